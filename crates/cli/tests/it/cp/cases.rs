//! Shell lines that must have the same outcome with GNU's cp and with ours: name, script.
//!
//! In a script, `code` prints the exit code of the line before. Each runs in an empty folder, umask 022.

/// Grouped by what they are about.
pub(super) const CASES: &[(&str, &str)] = &[
    // The line.
    ("no operand", "cp"),
    ("one operand", "cp a"),
    ("unknown options", "cp --what a b; code; cp -q a b; code; cp -rq a b; code; cp --what=x"),
    ("values", "cp -t; code; cp -S; code; cp --sparse; code; cp --force=1 a b; code; cp --target-directory"),
    ("ambiguous", "for o in a c n no p r re s v; do cp --$o a b; code; done"),
    ("abbreviated", "echo x >a; cp --rec a b; cp --verb a c; cp --symb a d; cp --sp=al a e; cp --ref=n a f"),
    (
        "bad values",
        "for o in sparse=x sparse= reflink=x backup=x backup=n preserve=x preserve= preserve=mode,x no-preserve=x; do cp --$o a b; code; done",
    ),
    (
        "contradictions",
        "cp -ls a b; code; cp -bn a b; code; cp --reflink --sparse=always a b; code; cp -T -t d a",
    ),
    (
        "targets",
        "touch a b; mkdir d; cp -T a b c; code; cp -t d; code; cp -t d -t e a; code; cp -t a b; code; cp a b a; code; cp a b nope; code; cp -t nope a; code; cp a b d/x/y; code; cp a b nope/",
    ),
    (
        "overwriting in place",
        "echo new >s; echo old >t; ln t u; exec 7>>t; : >e; i=$(stat -c %i t); cp s t; test $i = $(stat -c %i t); code; cp e t; echo x >&7; cat t u; mkdir d; echo old >d/s; i=$(stat -c %i d/s); touch -d 2001-01-01 d; cp -a s d; test $i = $(stat -c %i d/s); code; stat -c %y d | cut -c1-10",
    ),
    (
        "a backup that is another name of the source",
        "echo o >other; ln other f~; echo f >f; cp --backup=simple other f; code; cat f f~; cp -b f~ f; code; ls",
    ),
    ("parents are named as they are", "mkdir -p 'a b/c' d; echo x >'a b/c/f'; cp -v --parents 'a b/c/f' d"),
    (
        "a file onto a directory with a slash",
        "echo x >f; mkdir d; cp -T f d/; code; cp -T f d; code; cp -T f e/",
    ),
    (
        "parents of dots",
        "mkdir -p s/t d e/s/t; echo x >s/t/f; cp -r --parents s/t/. d; code; rm -r d; mkdir d; cp -r --parents s/t/.. d; code; cp -r --parents s/t/.. e; code; find d e | sort; mkdir f; cp -r --parents s/t/../t/. f; code; find f | sort",
    ),
    (
        "parents where something else is",
        "mkdir -p s/t d e f; echo x >s/t/f; echo y >d/s; cp --parents s/t/f d; code; cp -a --parents s/t/f d; code; ln -s nowhere e/s; cp --parents s/t/f e; code; ln -s s f/s; cp --parents s/t/f f; code; cat d/s; ls -R d e f",
    ),
    (
        "a directory into itself under the name that was typed",
        "for n in s/ s// ./s/ s/.; do mkdir -p s/t; cp -r $n s; code; cp -r $n s/t/new; code; cp -r $n s//t/; code; rm -r s; done",
    ),
    ("parents need a directory", "touch a; cp --parents a b"),
    ("permuted", "touch a; cp a b -v; cp a -v c; cp -- a -v; ls -- *"),
    ("posixly correct", "touch a; POSIXLY_CORRECT=1 cp a -f b"),
    ("context", "touch a; cp -Z a b; code; cp --context=x a c; code; cp --preserve=context a d"),
    (
        "names in messages",
        "for n in \"it's\" 'a b' \"$(printf 'a\\nb')\" \"$(printf '\\001')\" \"$(printf '\\303\\251')\" \"it's \\$x\" '~' '#'; do cp \"$n\" z; done",
    ),
    // Where it goes.
    ("file to file", "echo x >a; cp a b; cp a a2; cat b"),
    ("into a directory", "echo x >a; mkdir d; cp a d; cp a d/b; cp a d/; ls d"),
    ("several into one", "echo x >a; echo y >b; mkdir d; cp a b d; cp -t e a b; code; cp -t d b a; ls d"),
    (
        "a directory under its name and into one",
        "mkdir -p s/t; echo x >s/t/f; cp -r s new; cp -r s new; find new | sort",
    ),
    ("not into but over", "mkdir -p s d; echo x >s/f; cp -rT s d; code; cp -rT s n; find . | sort"),
    ("dot and slash", "mkdir -p s/t; echo x >s/t/f; cp -r s/. d; cp -r s/ e; cp -r s/t/.. f; find . | sort"),
    ("dot dot", "mkdir -p s/t d; echo x >s/f; cp -r s/t/.. d; find . | sort"),
    (
        "trailing slashes",
        "echo x >a; cp a b/; code; cp a/ b; code; mkdir d; cp -r d e/; code; cp a d/e/; code; ls",
    ),
    (
        "slashes and dots behind targets in messages",
        "echo x >a; echo y >b; mkdir d t; cp -v a d//; cp -v a b .//d///; cp -v --parents a d//; cp a t/../new///; code; cp a b//; code; cp a b/x; code; cp -T a d/.; code; cp -r t b/.; code; cp -r t b/; code; cp -v a .//d/c; cp d//a d//; code",
    ),
    (
        "stripped slashes",
        "echo x >a; mkdir d; ln -s d l; mkdir e; cp -d --strip-trailing-slashes l/ e; cp --strip-trailing-slashes a/ e; code; ls -l e/l | sed 's/.* e/e/'",
    ),
    (
        "links over what is there",
        "touch a x; echo old >b; ln b b2; ln -s x l; mkfifo p; cp -al a b; code; cp -al a b2; code; stat -c '%n %h' a b b2; echo 1 >c; cp -sRv l c; code; echo 2 >d; cp -sP a d; code; cp -sRn p d; code; cp -sR p d; code; cp -sRf a d; code; ln -s a e; cp -al x e; code; cp -al --attributes-only a b; code; rm -f e; ls -l | sed 's/.*[0-9] //'",
    ),
    (
        "links into a directory that is not there",
        "touch a; ln -s a l; mkfifo p; mkdir d; for n in a l p d nope; do for o in -l -s -rl -rs -al; do cp $o $n x/y; code; done; done",
    ),
    (
        "times of links that are made",
        "touch -d 2001-02-03 a; cp -as a l; cp -s a n; ln -s a k; touch -hd 2004-05-06 k; cp -ps k m; cp -as k m2; stat -c '%n %Y %F' l m m2; cp -asf a m; stat -c %Y m; test $(stat -c %Y n) -gt 1200000000; code; cp -as /bin/. t; stat -c %Y t; test $(stat -c %Y t/sh) = $(stat -c %Y /bin/sh); code; rm -r t",
    ),
    (
        "slashes behind directories in messages",
        "mkdir -p s/t; echo x >s/t/f; ln -s nope s/l; cp -rv s// new//; cp -rv s/// new/; code; cp -rL s// o//; code; mkdir d; cp -rv s//t// d//",
    ),
    (
        "a fifo where a directory is",
        "mkfifo p; mkdir d; timeout 20 cp -T p d; code; timeout 20 cp --attributes-only -T p d; code",
    ),
    (
        "symbolic links that cannot be relative",
        "mkdir d; for n in 'a~' '~a' 'a#' '{' '{}' ']' '[' 'a b' \"it's\" 'a@'; do touch -- \"$n\"; cp -s -- \"$n\" d; code; done; touch d/x x; cp -s d/x d; code; cp -sn x d; code; cp -s x d; code; ls d",
    ),
    ("empty names", "echo x >a; cp a ''; code; cp '' a; code; mkdir d; cp '' a d"),
    (
        "parents",
        "mkdir -p s/t d; echo x >s/t/f; chmod 750 s/t; cp --parents s/t/f d; cp -v --parents s/t/f d; mkdir e; cp -r --parents s/t e; find d e | sort; stat -c %a d/s/t",
    ),
    (
        "parents absolute and dotted",
        "mkdir -p s/t d; echo x >s/t/f; cp --parents \"$PWD/s/t/f\" d; test -f \"d$PWD/s/t/f\"; code; rm -r d; mkdir d; cp --parents s/./t/f d; cp --parents s/../s/t/f d; find d | sort",
    ),
    (
        "parents of a dot",
        "mkdir -p s/t d/s e/s/t g/s/t h; echo x >s/t/f; cp -r --parents s/. d; code; cp -r --parents s/t/./ e; code; cp -r --parents s/t/.. g; code; cd s; cp -r --parents . ../h; code; cp -r --parents ./t ../h; code; cd ..; find d e g h | sort",
    ),
    (
        "parents that are there already",
        "mkdir -p s/t s/u d/s/t; chmod 700 s s/t; chmod 750 s/u; echo x >s/t/f; echo y >s/u/g; touch -d 2001-01-01 s/t s; cp -p --parents s/t/f d; code; stat -c '%n %a' d/s d/s/t; test d/s -nt s; code; cp -p --parents s/u/g d; code; stat -c '%n %a' d/s d/s/u; stat -c %y d/s",
    ),
    (
        "modes of parents",
        "for m in 500 700 750 777 1777 2755; do mkdir s$m; echo x >s$m/f; chmod $m s$m; done; mkdir d p m o a n; for m in 500 700 750 777 1777 2755; do cp --parents s$m/f d; cp -p --parents s$m/f p; cp --preserve=mode --parents s$m/f m; cp --preserve=ownership --parents s$m/f o; cp -a --no-preserve=mode --parents s$m/f a; cp --no-preserve=mode --parents s$m/f n; done; stat -c '%n %a' [dpmoan]/*; chmod 700 s500 */s500",
    ),
    ("missing source", "cp nope b; code; mkdir d; echo x >a; cp nope a d; code; ls d"),
    (
        "missing folder",
        "echo x >a; cp a no/b; code; mkdir s; cp -r s no/b; code; ln -s nowhere l; cp -P l no/l",
    ),
    ("a file where a folder should be", "echo x >a; echo y >f; cp a f/b; code; cp f/b c"),
    ("operands twice", "echo x >a; mkdir d s; cp a a d; code; cp -r s s d; code; cp a ./a d; code; ls d"),
    ("two of one name", "mkdir d x y; echo 1 >x/f; echo 2 >y/f; cp x/f y/f d; code; cat d/f"),
    (
        "two names of one file as sources",
        "mkdir x y d e g; echo 1 >x/f; ln x/f y/f; cp x/f y/f d; code; cp -a x/f y/f e; code; cp x/f ./x/f x/../x/f g; code; cp -l x/f y/f g; code; ls d e g",
    ),
    (
        "two names of one file as targets",
        "mkdir d; echo 1 >x; echo 2 >y; echo o >d/x; ln d/x d/y; cp x y d; code; cat d/x d/y; stat -c %h d/x",
    ),
    (
        "two directories of one name",
        "mkdir -p d x/s y/s; echo 1 >x/s/f; echo 2 >y/s/f; echo 3 >y/s/g; cp -r x/s y/s d; code; cat d/s/f; ls d/s",
    ),
    (
        "what merges into the destination comes in its turn",
        "mkdir -p a/x b/s s d e g h i k; for i in a b/s; do echo base >$i/f; done; echo override >f; echo override >s/f; cp -r a/. f d; code; cp -r b/. s e; code; cp -rn a/. f g; cp -r f a/. h; code; cp -r s b/. i; code; cp -r a/x/.. f k; code; cat d/f e/s/f g/f h/f i/s/f k/f",
    ),
    (
        "a file comes after the directory before it",
        "mkdir a; echo base >a/f; echo over >b; for d in 1 2 3 4 5; do mkdir -p $d/a; echo o >$d/a/f; echo o >$d/b; done; ln -f 1/a/f 1/b; ln -sf a/f 2/b; ln -sf ../b 3/a/f; rm -r 4/a; ln -sf a/f 4/b; rm 5/b; ln -sf ../b 5/a/f; for d in 1 2 3 4 5; do cp -r a b $d; code; done; cat ?/a/f ?/b",
    ),
    (
        "a directory whose links are followed to a file after it",
        "mkdir a d e; ln -s ../d/b a/l; echo over >b; cp -rL a b d; code; echo old >e/b; ln -sf ../e/b a/l; cp -rL a b e; code; cat e/a/l; find d | sort",
    ),
    (
        "an operand that the one before it makes",
        "mkdir -p a/t w x/a/t y; echo 1 >a/f; echo 2 >a/t/g; echo old >x/a/f; cp -r a w/a/f w; code; cp -r a x/a/f x/a/t x; code; cp -ra a y/a/t y/a/t/g y; code; cat w/f x/f x/t/g y/g; find w x y | sort",
    ),
    // What is not done.
    ("a directory without -r", "mkdir s; cp s d; code; echo x >a; mkdir e; cp a s e; code; ls e"),
    (
        "the same file",
        "echo x >a; cp a a; code; cp a ./a; code; ln a b; cp a b; code; ln -s a l; cp a l; code; cp l a; code; cp -P l a; code; cat a",
    ),
    (
        "the same file with -f",
        "echo x >a; ln a b; ln -s a l; cp -f a a; code; cp -f a b; code; cp -f a l; code; cp -f l a; code; cat a b; ls -l l | sed 's/.* l/l/'",
    ),
    (
        "the same file with --remove-destination",
        "echo x >a; ln a b; ln -s a l; cp --remove-destination a a; code; cp --remove-destination a b; code; cp --remove-destination a l; code; ls; cat a b l",
    ),
    (
        "the same file with -b",
        "echo x >a; ln a b; ln -s a l; cp -b a a; code; cp -b a b; code; cp -b a l; code; ls; cat a b l",
    ),
    (
        "the same file with -n",
        "echo x >a; ln a b; ln -s a l; for f in a b l; do cp -n $f a; code; done; cat a",
    ),
    ("the same file with -fb", "echo x >a; cp -fb a a; code; cp -f --backup=numbered a a; code; ls; cat a*"),
    (
        "the same file with -l",
        "echo x >a; ln a b; ln -s a l; cp -l a a; code; cp -l a b; code; cp -l a l; code; cp -lf a l; code; cp -l a c; stat -c %h c; ls",
    ),
    (
        "the same file with -s",
        "echo x >a; ln a b; cp -s a a; code; cp -s a b; code; cp -sf a a; code; cp -s a c; readlink c; cat a",
    ),
    (
        "the same link",
        "ln -s x l; cp -P l l; code; cp -d l m; cp -d l m; code; cp -d m l; readlink l m; code; ln l h; cp -P l h; code; readlink h",
    ),
    // GNU stops at the entry that is the copy, and which entries come before it is the directory's secret: so
    // not the trees are compared here, but codes and messages.
    (
        "into itself",
        "for d in s s/t; do mkdir -p s/t; cp -r s $d; code; rm -r s; done; mkdir s; cp -rT s s; code; cp -r s s/new; code; cp -r . s; code; rm -rf s",
    ),
    (
        "onto itself with nothing replaced",
        "mkdir -p s/t; echo x >s/f; cp -rn s/. s; code; cp -an s/t s; code; cp -rnT s s; code; cp -n s/f s; code; cp -r s/. s; code; cat s/f",
    ),
    (
        "into itself by a link",
        "mkdir s d; echo x >s/f; ln -s ../s d/l; cp -r s d/l/; code; test -f s/f; code; rm -r s",
    ),
    (
        "directory over file",
        "mkdir s; echo x >f; cp -r s f; code; cp -rT s f; code; mkdir d; echo y >d/s; cp -r s d; code; cp -rf s d",
    ),
    (
        "file over directory",
        "mkdir -p d/a; echo x >a; cp a d; code; cp -T a d; code; cp -f a d; code; mkdir s; echo y >s/n; mkdir -p t/n; cp -rT s t; code; cp --remove-destination -T a d",
    ),
    (
        "dangling target",
        "echo x >a; ln -s nowhere l; cp a l; code; cp -f a l; code; POSIXLY_CORRECT=1 cp a l; code; rm -f nowhere; cp --remove-destination a l; code; ls -l l | cut -c1",
    ),
    ("link to a file as target", "echo x >a; echo y >t; ln -s t l; cp a l; code; cat t; ls -l l | cut -c1"),
    (
        "link to a directory as target",
        "mkdir d; ln -s d l; echo x >a; cp a l; code; ls d; mkdir s; echo y >s/f; cp -r s l; cp -rT s l; code; find . | sort",
    ),
    (
        "a directory over a link to one",
        "mkdir -p s/n t/o; echo x >s/n/f; ln -s o t/n; cp -r s/n t; code; cp -a s/n t; code; find . | sort",
    ),
    (
        "reading what may not be read",
        "echo x >a; chmod 0 a; test $(id -u) = 0 || cp a b; mkdir d; chmod 0 d; test $(id -u) = 0 || cp -r d e; chmod 700 d e 2>/dev/null; ls",
    ),
    // Links.
    (
        "links followed or not",
        "echo x >a; ln -s a l; cp l c; cp -P l p; cp -d l d; cp -L l q; cp -H l h; ls -l | cut -c1; readlink p d",
    ),
    (
        "links in trees",
        "mkdir s; echo x >s/a; ln -s a s/l; ln -s s t; cp -r s r; cp -rL s rl; cp -rH t rh; cp -rP t rp; cp -a t ra; cp -rd s rd; ls -l r rl rh rd | cut -c1 | sort | uniq -c; readlink r/l rp ra",
    ),
    (
        "dangling links",
        "ln -s nowhere l; cp l c; code; cp -P l c; code; mkdir s; ln -s nowhere s/l; cp -rL s d; code; cp -r s e; code; readlink c e/l",
    ),
    (
        "cyclic links",
        "mkdir s; ln -s ../s s/l; ln -s m m; cp -rL s d; code; cp m n; code; cp -r s e; find . | sort",
    ),
    (
        "a link over what exists",
        "ln -s new l; echo x >f; cp -P l f; code; readlink f; ln -s other g; cp -P l g; code; readlink g; mkdir d; cp -PT l d; code; echo y >h; cp -fP l h; readlink h",
    ),
    (
        "making hard links",
        "echo x >a; mkdir s; echo y >s/f; ln -s f s/l; cp -l a b; cp -rl s d; code; stat -c %h b d/f d/l; cp -l s e; code; ln -s a k; cp -l k m; ls -l m | cut -c1; cp -lP k n; ls -l n | cut -c1",
    ),
    (
        "making hard links over",
        "echo x >a; echo y >b; cp -l a b; code; cat b; cp -lf a b; code; cat b; cp -l --remove-destination a c; code",
    ),
    (
        "asking before links are made over",
        "echo x >a; echo y >b; echo n | cp -li a b; stat -c %h b; echo y | cp -liv a b; code; stat -c %h b; echo z >c; ln -s c l; echo y | cp -li a l; code; cat l; stat -c %h a; echo y | cp -si a c; code; ls",
    ),
    (
        "making symbolic links",
        "echo x >a; mkdir d s; echo y >s/f; cp -s a b; readlink b; cp -s a d; code; cp -s a 'd/a b'; cp -s /etc/hostname d; readlink d/hostname; cp -rs s e; code; cp -rs \"$PWD/s\" f; code; test \"$(readlink f/f)\" = \"$PWD/s/f\"; code; rm -r f; find e f -type l 2>/dev/null | sort",
    ),
    ("making symbolic links over", "echo x >a; echo y >b; cp -s a b; code; cp -sf a b; code; readlink b"),
    (
        "hard links kept or not",
        "mkdir s; echo x >s/a; ln s/a s/b; cp -r s r; cp -a s p; cp -rd s d; cp -r --preserve=links s l; cp -a --no-preserve=links s n; for i in r p d l n; do stat -c %h $i/a; done; ls s/b | xargs echo; cp -d s/a s/b .; stat -c %h a",
    ),
    (
        "hard links met by several operands",
        "mkdir s d e; echo x >s/f; ln s/f s/g; cp -a s/f s d; stat -c %h d/f d/s/f d/s/g; cp -a s s/g s/f e; stat -c %h e/f e/g e/s/f e/s/g",
    ),
    (
        "hard links over what exists",
        "mkdir s; echo x >s/a; ln s/a s/b; mkdir d; echo 1 >d/a; echo 2 >d/b; cp -aT s d; code; stat -c %h d/a; cat d/b; cp -aT s d; code; stat -c %h d/a",
    ),
    (
        "a link to a deep tree, and few descriptors",
        "mkdir -p s/1/2/3/4/5/6/7/8/9/a/b/c; echo x >s/1/2/3/4/5/6/7/8/9/a/b/c/f; touch -d 2001-01-01 s; ln -s s l; (ulimit -n 64; cp -aH l d); code; find d | sort; stat -c %y d",
    ),
    // What is kept.
    (
        "modes",
        "for m in 644 600 755 4755 2755 1644 777; do echo x >f$m; chmod $m f$m; cp f$m d$m; cp -p f$m p$m; cp --no-preserve=mode f$m n$m; cp --preserve=mode f$m m$m; done; stat -c '%n %a' *",
    ),
    (
        "modes over what exists",
        "echo x >a; chmod 755 a; echo y >b; chmod 600 b; cp a b; stat -c %a b; cp -p a b; stat -c %a b; chmod 640 b; cp --no-preserve=mode a b; stat -c %a b",
    ),
    (
        "modes of directories",
        "mkdir -m 700 s; mkdir -m 1777 s/t; mkdir -m 2775 s/g; mkdir -m 555 s/r; cp -r s d; cp -rp s p; cp -r --no-preserve=mode s n; cp -r --preserve=ownership s o; mkdir -m 2755 q; cp -r --preserve=ownership s q/a; cp -r s q/b; for i in d p n o q/a q/b; do stat -c '%n %a' $i $i/*; done",
    ),
    (
        "modes under another umask",
        "umask 077; echo x >a; chmod 666 a; mkdir s; chmod 777 s; cp a b; cp -r s d; cp -a s e; cp -a a f; umask 0; cp a g; cp --no-preserve=mode a h; cp -r s i; stat -c '%n %a' b d e f g h i",
    ),
    (
        "modes of directories that exist",
        "mkdir -m 700 s; mkdir -m 755 d; mkdir -m 750 s/t; mkdir -m 711 d/t; cp -rT s d; stat -c '%n %a' d d/t; cp -aT s d; stat -c '%n %a' d d/t",
    ),
    (
        "times",
        "echo x >a; touch -d '2001-02-03 04:05:06.789' a; mkdir s; touch -d 2002-01-01 s/f; touch -h -d 2003-01-01 s; cp -p a b; cp --preserve=timestamps a c; cp -a s d; cp -rp s e; stat -c '%n %y' b c d d/f e",
    ),
    (
        "times of links",
        "ln -s x l; touch -h -d 2001-01-01 l; cp -a l m; cp -P --preserve=timestamps l n; stat -c '%n %y' m n",
    ),
    (
        "owners",
        "test $(id -u) = 0 || exit 0; echo x >a; chown 12:34 a; chmod 6755 a; ln -s a l; chown -h 56:78 l; cp a b; cp -p a c; cp -a l m; cp --preserve=ownership a d; cp --preserve=mode a e; cp -a --no-preserve=ownership a f; stat -c '%n %u:%g %a' b c d e f m",
    ),
    (
        "fifos and devices",
        "mkfifo -m 640 p; cp -r p q; code; cp -a p r; stat -c '%n %F %a' q r; mkdir s; mkfifo s/f; cp -r s d; stat -c %F d/f; test $(id -u) = 0 || exit 0; mknod n c 1 3; cp -a n o; stat -c '%n %F %t %T' o; cp n m; stat -c '%n %F %s' m; cp -r --copy-contents n k; stat -c '%n %F' k",
    ),
    (
        "a fifo over what exists",
        "mkfifo p; echo x >f; cp -r p f; code; stat -c %F f; cp -r p q; cp -r p q; code; mkdir d; cp -rT p d",
    ),
    (
        "what is no file over what exists, links followed",
        "mkfifo p; ln -s p k; for o in -rL -rH -rfL; do rm -f f; echo precious >f; cp $o p f; code; stat -c '%F %s' f; cp $o k f; code; stat -c '%F %s' f; done; mkdir s d; ln -s x s/l; mkfifo s/p; echo y >d/l; echo z >d/p; cp -rHT s d; code; readlink d/l; stat -c %F d/p",
    ),
    (
        "a directory over a file that is to stay",
        "mkdir s; echo x >s/f; echo y >t; touch -d 2030-01-01 t; for o in -rn -ru; do cp ${o}T s t; code; done; mkdir -p d/u s/u; rmdir d/u; echo z >d/u; cp -rnT s d; code; cat d/u",
    ),
    (
        "sparse",
        "truncate -s 1M h; printf x | dd of=h bs=1 seek=500000 conv=notrunc 2>/dev/null; cp h a; cp --sparse=never h n; cp --sparse=always h s; cmp h a; cmp h n; cmp h s; test $(stat -c %b n) -ge 2048; code; test $(stat -c %b a) -le 64; code; test $(stat -c %b s) -le 64; code; head -c 100000 /dev/zero >z; cp --sparse=always z y; stat -c '%s %b' y; cp z x; test $(stat -c %b x) -ge 192; code",
    ),
    ("reflink", "echo x >a; cp --reflink=never a b; code; cp --reflink=auto a c; code; cat b c"),
    (
        "attributes only",
        "echo x >a; chmod 755 a; touch -d 2001-01-01 a; cp --attributes-only -p a b; stat -c '%s %a %y' b; echo old >c; cp --attributes-only a c; cat c; stat -c %a c; mkdir s; echo y >s/f; cp -a --attributes-only s d; stat -c '%n %s' d/f",
    ),
    ("one file system", "mkdir s; echo x >s/f; cp -rx s d; code; find d | sort"),
    (
        "copying /proc",
        "cp /proc/version v; test -s v; code; cp --sparse=always /proc/version x; test -s x; code",
    ),
    (
        "devices as source and target",
        "printf abc >a; cp a /dev/null; code; cp /dev/null e; stat -c '%F %s' e; echo x | cp /dev/stdin f; cat f; cp a /dev/stdout",
    ),
    // What is replaced, and how.
    ("over what exists", "echo new >a; echo old >b; ln b c; cp a b; code; cat b c; stat -c %h b"),
    (
        "a hard link that cannot be made, where a file is",
        "test $(id -u) = 0 || exit 0; mkdir -p s/a s/b d/a d/b; unshare -m sh -c 'mount -t tmpfs t d/b; echo new >s/a/f; ln s/a/f s/b/f; echo old >d/a/f; echo old >d/b/f; cp -aT s d 2>/dev/null; echo $?; cat d/a/f d/b/f'; rm -r s d",
    ),
    (
        "a name that another took while its copy was made",
        "mkfifo p; echo precious >y; cp p x & c=$!; exec 3>p; echo hi >&3; until test -e x; do sleep 0.05; done; mv y x; kill $c; wait $c 2>/dev/null; exec 3>&-; cat x",
    ),
    (
        "two names of one file, written by two",
        "mkdir -p s/a s/b; head -c 8388608 /dev/zero | tr '\\0' x >s/a/f; head -c 6291456 /dev/zero | tr '\\0' y >s/b/f; for i in 1 2 3 4 5 6 7 8; do mkdir -p d/a d/b; echo >d/a/f; ln d/a/f d/b/f; cp -rT s d; code; cmp -s d/a/f s/a/f || cmp -s d/a/f s/b/f || echo torn; rm -r d; done; rm -r s",
    ),
    (
        "more directories than descriptors",
        "ulimit -n 256; mkdir s d; for i in $(seq 300); do mkdir s/$i; echo $i >s/$i/f; done; cp -r s/* d; code; find d -name f | wc -l",
    ),
    (
        "links that lead where nobody may look, copied again",
        "echo x >f; mkdir s; ln -s ../f/x s/l; ln -s $(printf 'n%.0s' $(seq 300)) s/m; cp -aT s d; code; ln -sfn ../other s/l; cp -aT s d; code; readlink d/l; ln -s f/x k; cp f k; code; cp -b f k; code; readlink k~; ln -s f/x n; cp --remove-destination f n; code; cat k n; mkfifo p; ln -s f/x o; cp -a p o; code",
    ),
    (
        "no room for the old file and the new one",
        "test $(id -u) = 0 || exit 0; mkdir m q; unshare -m sh -c 'mount -t tmpfs -o size=10m t m; head -c 6291456 /dev/zero | tr \"\\0\" o >m/f; head -c 6291456 /dev/zero | tr \"\\0\" n >q/f; echo z >q/z; cp q/f q/z m; echo $?; cmp q/f m/f; ls m; head -c 12582912 /dev/zero >q/g; echo old >m/g; cp q/g m; echo $?; ls m'",
    ),
    (
        "over a file that is mounted",
        "test $(id -u) = 0 || exit 0; echo old >h; touch t; echo new >a; chmod 640 a; unshare -m sh -c 'mount --bind h t; cp a t; echo $?; cat t; cp -p a t; echo $?; ls'; cat h; stat -c %a h",
    ),
    (
        "over what has setuid bits",
        "echo new >a; echo old >b; for m in 4755 6755 2755 2745; do chmod $m b; cp a b; code; stat -c %a b; done; ls",
    ),
    (
        "over a file in a directory with a default list",
        "command -v setfacl >/dev/null || exit 0; echo new >a; mkdir d; echo old >d/b; chmod 660 d/b; setfacl -d -m u:65534:rw d; cp a d/b; code; getfacl -c d/b; cp -p a d/b; getfacl -c d/b",
    ),
    ("force", "echo new >a; echo old >b; chmod 0 b; cp -f a b; code; cat b; ln -s nowhere l; cp -f a l"),
    (
        "remove destination",
        "echo new >a; echo old >b; ln b c; cp --remove-destination a b; code; cat b c; cp -v --remove-destination a b; mkdir s d; echo 1 >s/f; echo 2 >d/f; cp -rv --remove-destination -T s d",
    ),
    (
        "no clobber",
        "echo new >a; echo old >b; cp -n a b; code; cat b; cp -nv a b; code; cp -nv a c; mkdir s d; echo 1 >s/f; echo 1 >s/g; echo 2 >d/f; cp -rnT s d; code; cat d/f d/g; cp -in a b; code; ln -s nowhere l; cp -n a l; code",
    ),
    (
        "update",
        "echo new >a; echo old >b; touch -d 2001-01-01 b; cp -u a b; cat b; touch -d 2001-01-01 a; echo newer >b; cp -u a b; code; cat b; cp -uv a b; cp -uv a c; mkdir s d; echo 1 >s/f; echo 2 >d/f; touch -d 2030-01-01 s/f; cp -ruvT s d; cat d/f; cp -nu a b; cp -pu a b; code",
    ),
    (
        "interactive",
        "echo new >a; echo old >b; echo n | cp -i a b; cat b; echo y | cp -i a b; code; cat b; cp -i a b </dev/null; cp -i a c; code; echo yes | cp -iv a b; echo | cp -i a b; cp -ni a b </dev/null; echo y | cp -ib a b; ls; mkdir d; echo z >d/a; echo y | cp -ri a b d; code; ls d",
    ),
    (
        "backups",
        "echo 1 >a; echo 2 >b; cp -b a b; ls; cp -bv a b; cp --backup=numbered a b; cp --backup=t -v a b; cp -b a b; cp --backup=simple a b; cp --backup=none a b; cp --backup=off a b; ls; cat b*",
    ),
    (
        "backup suffixes",
        "echo 1 >a; echo 2 >b; cp -S .x a b; cp -b -S .y a b; SIMPLE_BACKUP_SUFFIX=.z cp -b a b; SIMPLE_BACKUP_SUFFIX=.w cp -b -S .v a b; cp -b -S '' a b; cp -b -S x/y a b; SIMPLE_BACKUP_SUFFIX=a/b cp -b a b; ls",
    ),
    (
        "version control",
        "echo 1 >a; echo 2 >b; VERSION_CONTROL=numbered cp -b a b; VERSION_CONTROL=x cp -b a b; code; VERSION_CONTROL=x cp a b; code; VERSION_CONTROL=never cp -b a b; VERSION_CONTROL=numbered cp --backup=simple a b; VERSION_CONTROL=none cp -b a b; ls",
    ),
    (
        "empty version control",
        "echo 1 >a; echo 2 >b; VERSION_CONTROL= cp -b a b; code; cp --backup= a b; code; VERSION_CONTROL=numbered cp --backup= a b; code; VERSION_CONTROL= cp --backup= a b; code; cp --backup=simple --backup= a b; code; cp --backup= --backup=simple a b; code; ls",
    ),
    (
        "backups of trees",
        "mkdir s d; echo 1 >s/f; echo 2 >d/f; ln -s x s/l; ln -s y d/l; cp -rbT s d; cp -rbvT s d; find d | sort; cp -rb s d; cp -rb s d; find d | sort",
    ),
    (
        "backups of operands given twice",
        "mkdir s d e; echo 1 >s/f; echo 2 >a; cp -rb s s a a d; code; cp -rb s e; cp -r --backup=numbered s s ./s e; code; find d e | sort",
    ),
    (
        "a backup that would destroy the source",
        "echo 1 >a; echo 2 >a~; cp -b a~ a; code; cat a a~; cp --backup=simple a~ a; code; cp -S .o a a.o; cp -b -S .o a.o a; code",
    ),
    (
        "backup of a directory by a file",
        "mkdir d; echo x >a; cp -bT a d; code; ls; mkdir e; echo y >f; cp -rbT e f; code; ls",
    ),
    (
        "numbers of backups",
        "echo 1 >a; echo 2 >b; echo >b.~9~; echo >b.~x~; echo >b.~10~; echo >b.~03~; cp -b a b; ls; cp --backup=existing a a2; ls",
    ),
    // What is told.
    (
        "verbose",
        "echo x >a; mkdir -p s/t; echo y >s/t/f; ln -s f s/t/l; ln s/t/f s/t/h; cp -v a b; cp -rv s d; cp -av s e; cp -lv a c; cp -sv a g; cp -v a \"a b\"; cp -Pv s/t/l m",
    ),
    (
        "verbose into directories",
        "echo x >a; mkdir -p d s/t; cp -v a d; cp -v a d/; cp -v ./a d; cp -rv s/ d; cp -rv s/. d; cp -rvT s n; cp -vt d a",
    ),
    (
        "reflink of what is empty or says so",
        "touch e; cp --reflink=always e f; code; cp --reflink=always /proc/version v; code; rm -f f v",
    ),
    (
        "a full device among others",
        "mkdir o; for f in a b c; do echo $f >$f; done; ln -s /dev/full o/b; cp a b c o; code; cat o/a o/c",
    ),
    (
        "a target that is a link in a circle",
        "echo x >a; ln -s l l; cp a l; code; mkdir d s; echo y >s/f; ln -s f d/f; cp s/f d; code; cp -rT s d; code; cp -f a l; code; cat l; readlink d/f",
    ),
    ("a full device", "echo x >a; cp a /dev/full; code; cp -v a b >/dev/full"),
    (
        "closed descriptors where there is no /dev",
        "test $(id -u) = 0 || exit 0; echo x >a; mkdir s; echo y >s/f; unshare -m sh -c 'mount -t tmpfs t /dev; cp a b <&-; echo $?; cp a c >&-; echo $?; cp a d 2>&-; echo $?; cp -r s t <&- >&- 2>&-; echo $?; cp nope e 2>&-; echo $?; cp -v a f >&-; echo $?'; cat b c d f t/f",
    ),
    (
        "closed descriptors are no files",
        "echo x >a; cp a a <&-; code; cp --help >&-; code; cp --version >&-; code; cp -v a b >&-; code; cat b",
    ),
    (
        "what fakeroot keeps",
        "test -x /usr/bin/fakeroot || exit 0; mkdir s; fakeroot sh -c 'cd s; echo x >f; chown 123:456 f; chmod 4755 f; mknod dev c 5 7; mknod disk b 8 1; ln -s f l; chown -h 7:8 l; mkfifo p; chown 9:9 p; chmod 620 p; mkdir d; chown 11:12 d; chmod 1777 d; echo y >d/g; chown 13 d/g; cd ..; cp -a s t 2>/dev/null; echo $?; mkdir u; cp -a s/f s/dev s/l u 2>/dev/null; echo $?; chown 3:4 t/f; cp -a --remove-destination s/f t 2>/dev/null; echo $?; for i in s/* s/d/g; do for x in t u; do test -e $x/${i#s/} && stat -c \"%n %u:%g %a %F %t,%T\" $x/${i#s/}; done; done'",
    ),
    (
        "attributes that a table excludes",
        "test $(id -u) = 0 && test -e /etc/xattr.conf && command -v setfattr >/dev/null || exit 0; echo b >b; for n in Beagle.uid mine skipped.a skipped kept1; do setfattr -n user.$n -v 1 b || exit 0; done; cp --preserve=xattr b c; echo $?; cp -a b d; echo $?; getfattr -d b c d; printf 'user.skipped* skip\\nuser.kept[0-9] permissions # a word\\n' >table; unshare -m sh -c 'mount --bind table /etc/xattr.conf; cp --preserve=xattr b e; echo $?'; getfattr -d e",
    ),
    ("a closed output", "echo x >a; cp a c >&-; code; cp a d </dev/null 2>&-; code; cp nope e 2>&-"),
    // Odd things.
    (
        "names that are not text",
        "n=$(printf '\\377\\376'); echo x >\"$n\"; mkdir d; cp \"$n\" d; cp -v \"$n\" b; ls d | od -c | head -1",
    ),
    ("names that look like options", "echo x >-r; cp -- -r b; cp ./-r c; mkdir d; cp -t d -- -r; ls d"),
    (
        "many levels",
        "p=$(printf 'd/%.0s' $(seq 200)); mkdir -p s/$p; echo x >s/$p/f; cp -r s t; cmp s/$p/f t/$p/f",
    ),
    (
        "a name of 255 bytes",
        "n=$(printf 'n%.0s' $(seq 255)); echo x >$n; mkdir d; cp $n d; code; cp ${n}x d; code; cp $n d/${n}y; code; cp -b $n d; code",
    ),
    (
        "default lists without the modes of the source",
        "command -v setfacl >/dev/null && mkdir d && setfacl -d -m u:65534:rwx d || exit 0; mkdir -p s/t; echo x >s/f; echo y >s/t/g; chmod 600 s/f; chmod 700 s/t; mkfifo -m 600 s/p; cp -r --no-preserve=mode s d; code; getfacl -R d; cp --no-preserve=mode s/f d; code; getfacl d/f; cp -r s d/n; code; getfacl -R d/n",
    ),
    (
        "default lists and the directories of the source's path",
        "command -v setfacl >/dev/null && mkdir d && setfacl -d -m u:65534:rwx,g::r-x,o::--- d || exit 0; mkdir -p p/q/r; chmod 700 p/q; echo x >p/q/r/f; cp -a d e; cp -a d f; cp -a --parents --no-preserve=mode p/q/r d; code; getfacl -R d; cp -r --parents --no-preserve=mode p/q/r e; code; getfacl -R e; cp -p --parents --no-preserve=mode p/q/r/f f; code; getfacl -R f",
    ),
    (
        "default lists and directories that all may write to",
        "command -v setfacl >/dev/null && mkdir d && setfacl -d -m u:65534:rwx,g::r-x,o::--x d || exit 0; for m in 700 711 722 755 770 777 1777; do mkdir m$m; echo x >m$m/f; chmod $m m$m; done; for u in 022 002 027 077; do umask $u; cp -a d $u; mkdir $u/g; cp -r m* $u/g; code; getfacl $u/g/*; done",
    ),
    (
        "backups with numbers that no integer holds",
        "echo n >n; for i in 9 10 18446744073709551615 99999999999999999999999 01 +7; do rm -f z*; echo z >z; touch z.~$i~; cp --backup=numbered n z; code; cp --backup=existing n z; code; ls; done",
    ),
    (
        "few descriptors",
        "mkdir -p s/1/2/3/4/5/6/7 s/8/9; for i in $(seq 30); do echo $i >s/1/2/f$i; echo $i >s/1/2/3/4/5/f$i; echo $i >s/8/9/f$i; done; mkfifo s/p; ln s/8/9/f1 s/h; (ulimit -n 20; cp -a s d; code; cp -r s e; code); find d e | sort",
    ),
    (
        "attributes that cannot be given",
        "test $(id -u) = 0 && test -x /usr/sbin/setcap && test -x /usr/sbin/capsh || exit 0; echo x >f; /usr/sbin/setcap cap_net_raw+ep f || exit 0; mkdir s; cp -a f s/g; for o in -a --preserve=all --preserve=xattr '-a --preserve=xattr' '--preserve=xattr -a' '-a --preserve=all' '--preserve=all --no-preserve=xattr' '-a --attributes-only' '--preserve=all --attributes-only' '-r --preserve=all'; do for i in f s; do echo $o $i; /usr/sbin/capsh --drop=cap_setfcap -- -c \"cp $o $i t 2>e\"; code; test -s e && echo told; rm -rf t; done; done; rm e",
    ),
    (
        "a colon in a name before a colon",
        "mkdir -p s d; touch s/a:b s/c; cp -s s/a:b s/c d; code; cp -rs s n; code",
    ),
    (
        "a directory linked to itself",
        "mkdir -p s/t; echo x >s/f; cp -rl s .; code; cp -rlT s s; code; cp -al s/t s; code; cp -rs s .; code; cp -r s .; code; stat -c %h s/f",
    ),
    (
        "a question before a link that cannot be made",
        "mkdir d; echo x >a; echo y >d/a; echo n | cp -si a d; echo; echo y | cp -si a d; code; cat d/a",
    ),
    (
        "a directory in a file's place with backups",
        "mkdir -p s/x/y d e; echo 1 >s/x/f; echo old >d/x; ln -s nowhere e/x; for o in -b --backup=numbered; do cp -r $o s/. d; code; cp -rT $o s e; code; done; find d e | sort; cat d/x",
    ),
    (
        "a special file where there is no directory",
        "mkfifo p; echo x >f; ln -s f l; for o in -r -rL -a '-r --copy-contents'; do test \"$o\" = '-r --copy-contents' || cp $o p no/p; code; cp $o l no/l; code; done",
    ),
    (
        "--parents of a directory's dot without -r",
        "mkdir -p s/t d; cp --parents s/t/. d; code; cp -p --parents s/. d; code; find d | sort",
    ),
    ("an empty tree", "mkdir s; cp -r s d; code; cp -r s d; find . | sort"),
    (
        "a mixture of good and bad",
        "mkdir s d; for i in 1 2 3; do echo $i >s/f$i; done; mkdir d/f2; cp -rT s d; code; cat d/f1 d/f3; cp s/f1 nope s/f3 d; code",
    ),
];

/// Lines that mean something only for an unprivileged user.
pub(super) const UNPRIVILEGED: &[(&str, &str)] = &[
    (
        "sources that may not be read",
        "echo x >a; chmod 0 a; cp a b; code; mkdir s; echo 1 >s/f; echo 2 >s/g; chmod 0 s/f; cp -r s d; code; ls d; cp -a s e; code; ls e",
    ),
    (
        "directories that may not be listed",
        "mkdir -p s/t; echo x >s/t/f; chmod 0 s/t; cp -r s d; code; cp -a s e; code; ls d e; chmod 700 s/t d/t e/t",
    ),
    (
        "existing copies of directories that may not be listed",
        "mkdir -p s/t d/s/t e/s/t; touch -d 2001-01-01 s/t; chmod 310 s/t; cp -a s d; code; cp -r s e; code; stat -c '%n %a' d/s/t e/s/t; stat -c %y d/s/t; chmod 700 s/t d/s/t e/s/t",
    ),
    (
        "modes of directories that may not be listed",
        "for m in 0 311 1333; do mkdir -p s$m/t; chmod $m s$m/t; for o in -r -a --preserve=ownership --no-preserve=mode; do cp -r $o s$m d$o; code; done; stat -c '%n %a' d*/t; chmod 700 s$m/t; for d in ./d*; do chmod 700 $d/t; rm -r $d; done; done",
    ),
    (
        "directories that may not be entered",
        "mkdir -p s/t; echo x >s/t/f; chmod 400 s/t; cp -r s d; code; chmod 700 s/t d/t; mkdir n; chmod 0 n; cp s/t/f n/; code; cp s/t/f n/g; code; chmod 700 n; find d n | sort",
    ),
    (
        "a working directory that may not be entered",
        "echo x >a; echo y >b; mkdir g d; h=$PWD; cd g; chmod 0 .; cp $h/a $h/d/a; code; cp -r $h/a $h/b $h/d; code; cp -l $h/a $h/d/h; code; cp a $h/d; code; cp $h/a b; code; chmod 700 $h/g; find $h/d -type f | wc -l",
    ),
    (
        "targets in directories that may not be entered",
        "mkdir d s; ln -s x l; mkfifo f; echo x >a; chmod 600 d; for n in s l f a; do cp -rP $n d; code; done; cp -l a d; code; cp -s $PWD/a d; code; chmod 700 d",
    ),
    (
        "sources that may not be read and would not be copied",
        "echo x >a; chmod 0 a; cp a a; code; mkdir -p d e/a; cp -T a d; code; cp a e; code; mkdir -p s t/s/f; echo x >s/f; echo y >s/g; chmod 0 s/*; cp -r s t; code; find t",
    ),
    (
        "directories that may not be written",
        "mkdir d; chmod 555 d; echo x >a; cp a d; code; cp -r d e; code; cp a e; code; stat -c %a e; mkdir -m 555 s; mkdir s2; chmod 755 s; echo y >s/f; chmod 555 s; cp -r s s2; code; cp -a s s3; code; stat -c '%n %a' s2/s s3; chmod 755 d e s s2/s s3",
    ),
    (
        "targets that may be written and not listed",
        "mkdir -p s/t d/s/t e/s/t g/s/t; echo x >s/t/f; touch -d 2001-01-01 s/t; chmod 300 d/s/t e/s e/s/t; cp -r s d; code; stat -c %a d/s/t; chmod 700 d/s/t; cat d/s/t/f; chmod 300 d/s/t; cp -a s d; code; stat -c '%a %y' d/s/t; cp --parents s/t/f e; code; chmod 700 e/s e/s/t; chmod 100 g/s/t; cp -r s g; code; chmod 700 g/s/t; find d e g | sort",
    ),
    (
        "backups where it may be written and not listed",
        "mkdir wx; echo old >wx/f; echo 1 >a; echo 2 >b; chmod 311 wx; cp -b a wx/f; code; cp --backup=numbered b wx/f; code; chmod 755 wx; ls wx; cat wx/*",
    ),
    (
        "masks that take what the owner needs",
        "mkdir -p s/e; mkdir -m 500 s/n; echo x >s/e/f; for m in 222 300 777; do mkdir r$m a$m n$m o$m p$m q$m; (umask $m; cp -r s r$m; code; cp -a s a$m; code; cp -r --no-preserve=mode s n$m; code; cp -r --preserve=ownership s o$m; code; cp -r --parents s/e p$m; code; cp -p --parents s/e/f q$m; code); done",
    ),
    (
        "targets that may not be written",
        "echo new >a; echo old >b; chmod 444 b; cp a b; code; cat b; cp -f a b; code; cat b; stat -c %a b; chmod 444 b; cp -v --remove-destination a b; code; chmod 444 b; cp -fv a b; code; ln -s b l; chmod 444 b; cp -f a l; code; ls -l l | cut -c1",
    ),
    (
        "questions about them",
        "echo new >a; echo old >b; chmod 444 b; echo n | cp -i a b; echo n | cp -if a b; echo y | cp -i a b; code; echo y | cp -if a b; code; cat b; chmod 4555 b; echo n | cp -i --remove-destination a b; cat b",
    ),
    (
        "owners that cannot be given",
        "cp -p /etc/passwd p; code; cp -a /etc/passwd q; code; stat -c '%n %u %a' p q; cp --preserve=ownership /etc/passwd r; code; stat -c '%u %a' r; cp --preserve=all /etc/passwd t; code",
    ),
    (
        "setuid of somebody else",
        "cp -p /bin/su s 2>/dev/null || exit 0; stat -c %a s; cp -a /bin/su t; stat -c %a t; cp /bin/su u; stat -c %a u; echo x >m; chmod 6755 m; cp -p m n; stat -c %a n",
    ),
    ("devices that cannot be made", "cp -a /dev/null n; code; ls; cp -r /dev/null m; code; ls"),
    (
        "times of files of somebody else",
        "cp -p /etc/passwd p; touch -r /etc/passwd q; test p -nt q -o p -ot q; code",
    ),
];
