//! `--resume` on the command line: recognising the directory of an interrupted copy, and the line that goes
//! on with it.
//!
//! `cp -a SRC DIR` makes DIR where it does not exist, and copies to DIR/SRC where it does. So the same line,
//! given again with `--resume` after an interruption, would make a second copy inside the first. Start at
//! [`standing`] and [`command`].

use super::quote::{self, Charset};
use ringroad_copy::{Destination, Options, Update};
use std::ffi::{OsStr, OsString};
use std::fs::FileType;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Entries of a directory that are looked at. More of them say nothing new.
const LOOKED_AT: usize = 4096;

/// What `--resume` finds where the destination is a directory that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// The interrupted copy of the source: the copy goes on in it.
    Copy,
    /// A directory to copy into.
    Place,
    /// It has entries of the source and others, so it may be either.
    Unclear,
}

/// Looks at the directory `target` for the interrupted copy of the directory `source`: all that is in it is
/// in `source` too, under the same name and of the same type. `None`: there is no question, because `source`
/// is no directory, or because a copy in `target` has begun and goes on.
pub(super) fn standing(source: &Path, target: &Path, follow: bool) -> Option<Standing> {
    let bytes = source.as_os_str().as_bytes();
    let name = source.file_name()?;
    if bytes == b"." || bytes.ends_with(b"/.") {
        return None;
    }
    let directory = if follow { source.metadata() } else { source.symlink_metadata() };
    if !directory.is_ok_and(|source| source.is_dir()) || target.join(name).symlink_metadata().is_ok() {
        return None;
    }
    let listing = target.read_dir().ok()?;
    let (mut of_source, mut others) = (false, false);
    for entry in listing.take(LOOKED_AT) {
        let entry = entry.ok()?;
        let name = entry.file_name();
        if is_leftover(&name) {
            continue;
        }
        // Not the type in the listing, which may be that of what something is mounted over.
        match entry.metadata().map(|there| there.file_type()) {
            Ok(kind) if has(source, &name, kind) => of_source = true,
            _ => others = true,
        }
        if of_source && others {
            break;
        }
    }
    Some(match (of_source, others) {
        (true, true) => Standing::Unclear,
        (true, false) => Standing::Copy,
        (false, _) => Standing::Place,
    })
}

/// Returns whether `source` has an entry of this name and type, perhaps behind a link.
fn has(source: &Path, name: &OsStr, kind: FileType) -> bool {
    let path = source.join(name);
    let itself = path.symlink_metadata().map(|there| there.file_type());
    let behind = path.metadata().map(|there| there.file_type());
    [itself, behind].into_iter().flatten().any(|there| there == kind)
}

/// Returns whether a name is that of a temporary file of a copy that was killed.
fn is_leftover(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b".ringroad-") && name.as_bytes().ends_with(b".part")
}

/// Returns the line that goes on with an interrupted copy: the given words, with `--resume`, and with `-T`
/// where the destination would now be taken for a directory to copy into. `None` where `--resume` is refused.
pub(super) fn command(words: &[OsString], options: &Options, destination: &Destination) -> Option<String> {
    if matches!(options.update, Update::None | Update::NoneFail) {
        return None;
    }
    let mut line = String::from("ringroad cp");
    let has = |wanted: &[&str]| words.iter().any(|word| wanted.iter().any(|option| word == option));
    if !options.resume {
        line.push_str(" --resume");
    }
    if let Destination::At(target) = destination
        && target.is_dir()
        && !has(&["-T", "--no-target-directory"])
    {
        line.push_str(" -T");
    }
    for word in words {
        line.push(' ');
        line.push_str(&quote::bare(word, Charset::Utf8));
    }
    Some(line)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs;

    #[test]
    fn a_directory_that_holds_entries_of_the_source_and_nothing_else_is_its_interrupted_copy() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["s/a/b", "copy/a", "empty", "other/x", "file", "into/s", "both/x", "both/a"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        for name in ["s/f", "copy/f", "copy/.ringroad-00000000-1-2-3-4.part", "file/a"] {
            fs::write(at(name), "").unwrap();
        }
        let of = |target: &str| standing(&at("s"), &at(target), false);
        for (target, expected) in [
            ("copy", Some(Standing::Copy)),
            ("empty", Some(Standing::Place)),
            ("other", Some(Standing::Place)),
            ("file", Some(Standing::Place)),
            ("both", Some(Standing::Unclear)),
            ("into", None),
            ("missing", None),
        ] {
            assert_eq!(of(target), expected, "{target}");
        }
        assert_eq!(standing(&at("s/."), &at("copy"), false), None, "it merges already");
        assert_eq!(standing(&at("s/f"), &at("copy"), false), None, "a file is copied into a directory");
    }

    #[test]
    fn the_line_to_go_on_with_is_the_given_one_with_what_it_needs() {
        let folder = tempfile::tempdir().unwrap();
        let words: Vec<OsString> = ["-a", "my photos", "out"].iter().map(OsString::from).collect();
        let mut options = Options::default();
        let line = |options: &Options, words: &[OsString], to: &Destination| command(words, options, to);
        let to = Destination::At(folder.path().into());
        let told = line(&options, &words, &to).unwrap();
        assert_eq!(told, "ringroad cp --resume -T -a 'my photos' out");
        let into = Destination::Into(folder.path().into());
        assert_eq!(line(&options, &words, &into).unwrap(), "ringroad cp --resume -a 'my photos' out");
        options.resume = true;
        let with: Vec<OsString> = ["--resume", "-T", "a", "b"].iter().map(OsString::from).collect();
        assert_eq!(line(&options, &with, &to).unwrap(), "ringroad cp --resume -T a b");
        options.update = Update::None;
        assert_eq!(line(&options, &words, &to), None);
    }
}
