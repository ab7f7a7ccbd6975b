//! `--help`: every option, in a line or two.

use super::message::Voice;

/// The help of the program that was called.
pub(super) fn text(voice: Voice) -> String {
    let program = if voice == Voice::House { "ringroad cp" } else { "cp" };
    format!(
        "Usage: {program} [OPTION]... [-T] SOURCE DEST
  or:  {program} [OPTION]... SOURCE... DIRECTORY
  or:  {program} [OPTION]... -t DIRECTORY SOURCE...
Copies SOURCE to DEST, or several SOURCEs into DIRECTORY.
{GNU}{OURS}{NOTES}"
    )
}

const GNU: &str = "
As GNU cp:
  -a, --archive                 -dR --preserve=all: keep everything
      --attributes-only         set what is preserved, copy no contents
      --backup[=CONTROL], -b    keep what would be replaced under another name
      --copy-contents           read FIFOs and devices when copying recursively
      --debug                   say how each file is copied; implies -v
  -d                            --no-dereference --preserve=links
  -f, --force                   remove a target that cannot be opened, and try again
  -i, --interactive             ask before replacing
  -H                            follow symbolic links given as SOURCE
  -l, --link                    make hard links
  -L, --dereference             follow all symbolic links
  -n, --no-clobber              leave what exists as it is
  -P, --no-dereference          follow no symbolic links
  -p                            --preserve=mode,ownership,timestamps
      --preserve[=LIST]         keep these: mode, ownership, timestamps, links, xattr, all
      --no-preserve=LIST        do not keep these
      --parents                 use the whole path of SOURCE below DIRECTORY
  -r, -R, --recursive           copy directories with what is in them
      --reflink[=WHEN]          share blocks: always, auto, never
      --remove-destination      remove each existing target before opening it
      --sparse=WHEN             holes: auto (as the source has them), always, never
      --strip-trailing-slashes  take / off the end of each SOURCE
  -s, --symbolic-link           make symbolic links
  -S, --suffix=SUFFIX           what the name of a backup ends in
  -t, --target-directory=DIR    copy every SOURCE into DIR
  -T, --no-target-directory     DEST is the name of the copy, never a directory to copy into
  -u, --update[=WHICH]          replace: all, none, none-fail, older (bare: older)
      --keep-directory-symlink  follow links to directories that exist at the destination
  -v, --verbose                 say what is copied
  -x, --one-file-system         stay on the file system of each SOURCE
  -Z, --context[=CONTEXT]       taken, without effect: SELinux is not supported
      --help                    show this
      --version                 show the version
";

const OURS: &str = "
Beyond it:
      --resume                  skip files whose type, size and time in ns match; keeps times
      --verify                  read every copy again and compare
      --manifest FILE           write the BLAKE3 hash of every file, as b3sum does (or as .ndjson);
                            to check: cd DESTINATION && b3sum --check FILE
      --exclude GLOB            leave out what matches, GLOB/ directories only; may be repeated
      --engine NAME             auto, threads, ring, ring-splice
      --driver NAME             auto, io_uring (the same as --engine ring), threads
      --jobs N                  workers
      --in-flight N             files in flight per ring
      --order NAME              inode, dir: in which order files are read
      --direct                  past the page cache (O_DIRECT)
      --durability WHEN         on the disk: none, end, file
      --explain                 say which engine and why, and what each phase cost
      --json                    say what happens as JSON, an event a line
      --quiet                   no progress line (there is one on terminals only)
";

const NOTES: &str = "
CONTROL is none or off, simple or never, existing or nil, numbered or t; without it VERSION_CONTROL is asked, and
SIMPLE_BACKUP_SUFFIX for the suffix, which is ~ otherwise. Long options may be abbreviated.
With --resume, -u also replaces what is younger and has another size, as what a stopped copy left torn; with -n,
--update=none and --update=none-fail that would stay, and both together are refused.
A manifest may be made below SOURCE: a file that it replaces there is copied as it was. What would be copied to where
the manifest will be is an error. Into a FIFO or a device it is written at the end: --manifest /dev/stdout, >(sort).
Exit codes: 0 done, 1 something failed. Of `ringroad cp` also: 2 bad usage or an unusable engine, 3 destination
full, 4 a copy differs from its source, 130 interrupted.
";
