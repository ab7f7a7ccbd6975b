//! `--help`: every option, in a line or two.

use super::message::Voice;
use crate::terminal::broken;

/// The column in which the descriptions of options begin.
const DESCRIPTION: usize = 32;
/// With fewer columns a description stands below the names of its option, and begins here.
const NARROW: (usize, usize) = (72, 10);

/// Breaks the lines of a help text at blanks to fit this many columns. A description goes on in its own
/// column.
pub(super) fn fitted(text: &str, columns: usize) -> String {
    let mut out = String::new();
    let mut rest = text.lines().peekable();
    while let Some(line) = rest.next() {
        // Names that reach into the column of descriptions stand alone.
        let names = line.get(..DESCRIPTION).filter(|names| names.ends_with(' ')).unwrap_or(line);
        if !names.trim_start().starts_with('-') || !names.starts_with(' ') {
            let indent = if line.starts_with("Usage") || line.starts_with("  or") { 7 } else { 0 };
            out = out + &broken(line, 0, indent, columns) + "\n";
            continue;
        }
        // What stands in the column of descriptions, in this line and in those below it.
        let mut description = line.get(names.len()..).unwrap_or_default().to_owned();
        while let Some(more) = rest.next_if(|next| next.starts_with(&" ".repeat(DESCRIPTION))) {
            description = format!("{description} {}", more.trim_start());
        }
        let (names, description) = (names.trim_end(), description.trim_start());
        let indent = if columns < NARROW.0 { NARROW.1 } else { DESCRIPTION };
        if names.len() + 1 < indent {
            let gap = " ".repeat(indent - names.len());
            out = out + names + &gap + &broken(description, indent, indent, columns) + "\n";
        } else {
            let gap = " ".repeat(indent);
            out = out + names + "\n" + &gap + &broken(description, indent, indent, columns) + "\n";
        }
    }
    out
}

/// Returns the help of the program that was called.
pub(super) fn text(voice: Voice) -> String {
    let program = if voice == Voice::House { "ringroad cp" } else { "cp" };
    format!(
        "Usage: {program} [OPTION]... [-T] SOURCE DEST
  or:  {program} [OPTION]... SOURCE... DIRECTORY
  or:  {program} [OPTION]... -t DIRECTORY SOURCE...
  or:  {program} [OPTION]... --make-list FILE SOURCE
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
      --debug                   print how each file is copied; implies -v
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
  -v, --verbose                 print each copied file
  -x, --one-file-system         stay on the file system of each SOURCE
  -Z, --context[=CONTEXT]       accepted, without effect: SELinux is not supported
      --help                    show this
      --version                 show the version
";

const OURS: &str = "
Beyond it:
      --dry-run                 print what would be copied, and change nothing
      --resume                  go on with an interrupted copy: skip files that are complete (see below)
      --atomic                  replace existing files by rename, so that readers see old or new, never half
      --verify                  compare every file with its source, also the skipped ones; copies are written
                                to the disk and read back from it
      --manifest FILE           write the BLAKE3 hash of every file, as b3sum does (or as .ndjson);
                                to check: cd DESTINATION && b3sum --check FILE
      --exclude GLOB            leave out what matches, GLOB/ directories only; may be repeated
      --retries N               try an entry again after EIO or ESTALE, with growing pauses [0]
      --part I/N                copy part I of N, from 1, by the hashes of paths (see below); auto: the
                                number that a job scheduler has set
      --parts N                 the number of parts where JOB_COMPLETION_INDEX says which (also RINGROAD_PARTS)
      --finish                  after all parts: files with several names, attributes of directories, and
                                whether everything was copied
      --make-list FILE          list SOURCE in FILE and copy nothing: for --list (only SOURCE is given)
      --list FILE               copy what the list has, without listing SOURCE again; --part then divides by bytes
                                and entries instead of hashes
      --journal FILE            record which ranges of the list are complete, and skip them next time
      --files-from FILE         copy what FILE names, a path below SOURCE in each line; - is standard input
  -0, --from0                   names of --files-from end in NUL
      --update-from-manifest FILE
                                copy only what is not as this manifest of DEST has it; DEST is not read
      --delete                  first remove what DEST has and SOURCE has not; nothing, if a part of SOURCE
                                could not be listed
      --max-delete N            remove nothing if more than N entries would be removed
      --rate BYTES              bytes per second that are written at most: 800k, 20M, 1.5G (of 1024)
      --engine NAME             auto, threads, ring, ring-splice
      --driver NAME             auto, io_uring (the same as --engine ring), threads
      --jobs N                  workers
      --in-flight N             files in flight per ring
      --order NAME              the order in which files are read: inode, dir
      --direct                  read and write past the page cache (O_DIRECT)
      --durability WHEN         sync the copy: none, end (once), file (each file)
      --explain                 print the engine, why it was chosen, and the cost of each phase
      --json                    print events as JSON, one per line
      --quiet                   no progress line and no summary (both appear on terminals only)
";

const NOTES: &str = "
CONTROL is none or off, simple or never, existing or nil, numbered or t; without it VERSION_CONTROL \
     decides. SIMPLE_BACKUP_SUFFIX is the suffix, ~ if it is not set. Long options may be abbreviated.
--resume skips a file if its copy has the same type, size and modification time (as exactly as the file \
     system keeps times) and has data wherever the source has. It sets these times only after the data is on \
     the disk, so what it copied itself is complete or is copied again, also after a power failure. `cp \
     --resume SOURCE DIRECTORY` goes on in DIRECTORY, not in DIRECTORY/SOURCE, if DIRECTORY is an interrupted \
     copy of SOURCE. If DIRECTORY has entries of SOURCE and others, the copy is refused: -T goes on in \
     DIRECTORY, -t DIRECTORY copies into it. With -u, --resume also replaces a younger file of another \
     size, as a torn copy is; -n, --update=none and --update=none-fail would keep it, so they are refused.
With --verify, a skipped file that differs is copied again if it looks complete; if -u or -n keeps it, \
     it is an error.
Files listed in a manifest were read in this run: copied ones as they were written, skipped ones after a \
     comparison.
--part and --finish are --resume: each can be repeated, on any machine, and what is complete is not \
     copied again. All parts have the same options. DEST is the name of the copy, whether it exists or not. \
     Until --finish directories belong to their owner alone (-a), and files with several names are missing. \
     `ringroad manifest merge` makes one list of those of the parts.
Lines of --files-from that are empty or begin with # or ; are ignored, except with -0. A directory is \
     copied with all its contents. --delete keeps what --exclude matches. With --dry-run it prints what \
     would be removed.
--durability file syncs each file before it gets its times, then the directories in which names were \
     made. A directory that may not be read cannot be synced, so nothing is copied into it. If a file system \
     refuses to sync directories, that is an error of the directory; the files in it are synced, and a power \
     failure may take their names.
A manifest may lie below SOURCE. Copying something to the manifest's own place is an error. A FIFO or a \
     device gets the manifest at the end: --manifest /dev/stdout, >(sort).
Exit codes: 0 done, 1 something failed. `ringroad cp` also has: 2 bad usage or an unusable engine, 3 \
     something did not fit into the destination, 4 a copy differed from its source and was removed, 130 \
     interrupted.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_fits_a_terminal_and_says_the_same_in_each_width() {
        let text = text(Voice::House);
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        for columns in [48, 71, 72, 80, 100, 200] {
            let fitted = fitted(&text, columns);
            assert_eq!(words(&fitted), words(&text), "{columns}");
            let long = fitted.lines().find(|line| line.len() > columns);
            assert_eq!(long, None, "{columns}");
        }
    }

    #[test]
    fn a_description_goes_on_in_its_column_and_below_the_names_where_there_is_no_room() {
        let text = "As GNU cp:\n  -f, --force                   remove a target that cannot be opened, and try again\n";
        assert_eq!(
            fitted(text, 72),
            "As GNU cp:\n  -f, --force                   remove a target that cannot be opened,\n                                and try again\n"
        );
        assert_eq!(
            fitted(text, 40),
            "As GNU cp:\n  -f, --force\n          remove a target that cannot be\n          opened, and try again\n"
        );
    }
}
