//! Messages in two forms: those of GNU `cp` if the program is called `cp`, this project's otherwise.
//!
//! [`Voice`] is the one place where the two differ: messages here, exit codes in [`Voice::code`].

use super::options::Usage;
use super::quote::{self, Charset};
use crate::complaint::{self, DONE, FAILED, INTERRUPTED, USAGE, why};
use nix::errno::Errno;
use ringroad_copy::{Error, ErrorKind, Refusal, Report};
use std::io::Write;
use std::path::Path;

/// Nothing is left at the destination.
const FULL: u8 = 3;
/// A copy that differs from its source.
const MISMATCH: u8 = 4;

/// The form of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Voice {
    /// Called by the name `cp`: GNU's sentences; exit codes 0 and 1.
    Gnu(Charset),
    /// `ringroad cp`.
    House,
}

impl Voice {
    /// One line on stderr. A closed stderr is no reason to stop.
    pub(super) fn say(self, message: &str) {
        match self {
            Voice::Gnu(_) => drop(writeln!(std::io::stderr().lock(), "cp: {message}")),
            Voice::House => complaint::say(message),
        }
    }

    pub(super) fn name(self, path: &Path) -> String {
        match self {
            Voice::Gnu(charset) => quote::file(path, charset),
            Voice::House => complaint::name(path),
        }
    }

    /// Returns a name in front of a colon, quoted only where it must be.
    fn bare(self, path: &Path) -> String {
        match self {
            Voice::Gnu(charset) => quote::bare(path, charset),
            Voice::House => complaint::name(path),
        }
    }

    /// Prints a usage error; returns the exit code.
    pub(super) fn usage(self, usage: &Usage) -> u8 {
        match self {
            Voice::Gnu(_) => {
                self.say(&usage.message);
                if usage.point_to_help {
                    let _ = writeln!(std::io::stderr().lock(), "Try 'cp --help' for more information.");
                }
                FAILED
            }
            Voice::House => {
                let hint = match usage.meant {
                    Some(meant) => format!(" ({meant}; see ringroad cp --help)"),
                    None if usage.point_to_help => " (see ringroad cp --help)".to_owned(),
                    None => String::new(),
                };
                self.say(&format!("cp: {}{hint}", usage.message));
                USAGE
            }
        }
    }

    /// Prints why a copy did not begin; returns the exit code.
    pub(super) fn refusal(self, refusal: &Refusal) -> u8 {
        let message = match (refusal, self) {
            (Refusal::Manifest(path, error), Voice::Gnu(_)) => {
                format!("cannot create regular file {}: {}", self.name(path), why(error))
            }
            (Refusal::Manifest(path, error), Voice::House) => {
                format!("create manifest, on {}: {}", self.name(path), why(error))
            }
            (Refusal::List(error), _) => {
                let line = if error.line > 0 { format!(", line {}", error.line) } else { String::new() };
                format!("list, on {}{line}: {}", self.name(&error.list), error.why)
            }
            (Refusal::Options(why), Voice::House) => format!("cp: {why}"),
            (refusal, _) => refusal.to_string(),
        };
        self.say(&message);
        match (self, refusal) {
            (Voice::Gnu(_), _) | (_, Refusal::Manifest(..) | Refusal::List(_)) => FAILED,
            _ => USAGE,
        }
    }

    /// Returns the exit code of a copy that ran.
    pub(super) fn code(self, report: &Report) -> u8 {
        match self {
            _ if report.is_success() => DONE,
            Voice::Gnu(_) => FAILED,
            Voice::House if report.cancelled => INTERRUPTED,
            Voice::House if report.full => FULL,
            Voice::House if report.mismatches > 0 => MISMATCH,
            Voice::House => FAILED,
        }
    }

    /// One error, as a sentence without the program's name.
    pub(super) fn error(self, error: &Error) -> String {
        match self {
            Voice::Gnu(_) => self.gnu(error),
            Voice::House => self.house(error),
        }
    }

    /// Returns `what, on what: why`, with escaped names.
    fn house(self, error: &Error) -> String {
        let mut text = format!("{}, on {}", error.kind.what(), self.name(&error.path));
        if let Some(other) = &error.other {
            text.push_str(&format!(" (with {})", self.name(other)));
        }
        if let Some(reason) = error.kind.why() {
            text.push_str(&format!(": {reason}"));
        }
        if let Some(source) = &error.source {
            text.push_str(&format!(": {}", why(source)));
        }
        if errno(error) == Some(Errno::EMFILE as i32) {
            text.push_str(
                " (a tree takes 9 descriptors, 11 with hard links or --verify, a file 7: raise `ulimit -n`)",
            );
        }
        if error.is_full() {
            text.push_str(" (the rest is copied; make room and run it again with --resume)");
        }
        text
    }

    fn gnu(self, error: &Error) -> String {
        use ErrorKind::*;
        let path = self.name(&error.path);
        let other = error.other.as_deref().map(|other| self.name(other)).unwrap_or_default();
        let said = match error.kind {
            Stat => format!("cannot stat {path}"),
            Access => format!("cannot access {path}"),
            ReadDirectory => format!("error reading directory {path}"),
            OpenSource => format!("cannot open {path} for reading"),
            Read => format!("error reading {path}"),
            ReadLink => format!("cannot read symbolic link {path}"),
            Create => format!("cannot create regular file {path}"),
            CreateDirectory => format!("cannot create directory {path}"),
            CreateSymlink if other.is_empty() => format!("cannot create symbolic link {path}"),
            CreateSymlink => format!("cannot create symbolic link {path} to {other}"),
            CreateHardLink => format!("cannot create hard link {path} to {other}"),
            CreateFifo => format!("cannot create fifo {path}"),
            CreateSpecial => format!("cannot create special file {path}"),
            Write => format!("error writing {path}"),
            Extend => format!("failed to extend {path}"),
            Clone => format!("failed to clone {path} from {other}"),
            Close => format!("failed to close {path}"),
            Sync => format!("error writing {path}"),
            Remove => format!("cannot remove {path}"),
            Backup => format!("cannot backup {path}"),
            BackupDestroysSource => {
                format!("backing up {path} might destroy source;  {other} not copied")
            }
            Rename => format!("cannot create regular file {path}"),
            PreserveOwnership => format!("failed to preserve ownership for {path}"),
            PreserveMode => format!("preserving permissions for {path}"),
            PreserveTimes => format!("preserving times for {path}"),
            PreserveXattr | LeftXattr => format!("setting attributes for {path}"),
            SetMode => format!("setting permissions for {path}"),
            OmittedDirectory => format!("-r not specified; omitting directory {path}"),
            SameFile => format!("{path} and {other} are the same file"),
            IntoItself => format!("cannot copy a directory, {path}, into itself, {other}"),
            CyclicLink => format!("cannot copy cyclic symbolic link {path}"),
            DirectoryByOther if other.is_empty() => {
                format!("cannot overwrite directory {path} with non-directory")
            }
            DirectoryByOther => format!("cannot overwrite directory {path} with non-directory {other}"),
            OtherByDirectory => format!("cannot overwrite non-directory {path} with directory {other}"),
            JustCreated => format!("will not overwrite just-created {path} with {other}"),
            ThroughJustCreated => format!("will not copy {other} through just-created symlink {path}"),
            SourceTwice => format!("warning: source file {path} specified more than once"),
            DirectoryTwice => format!("warning: source directory {path} specified more than once"),
            NotReplacing => format!("not replacing {path}"),
            DanglingTarget => format!("not writing through dangling symlink {path}"),
            HardLinkToDirectory => format!("will not create hard link {path} to directory {other}"),
            RelativeSymlink => {
                let path = self.bare(&error.path);
                format!("{path}: can make relative symbolic links only in current directory")
            }
            Replaced => format!("skipping file {path}, as it was replaced while being copied"),
            Changed => format!("{path} changed while being copied"),
            Unverified => format!("{path} changed while being copied, so its copy was not verified"),
            NotReadBack => {
                format!(
                    "{path} was written and not verified, because it is no file or disk that can be read back"
                )
            }
            KeptDiffers => format!("{path} was kept, and differs from its source {other}"),
            Mismatch => format!("{path} differs from its source {other}"),
            Manifest => format!("error writing {path}"),
            OntoManifest => format!("will not copy {other} to {path}, where the manifest will be"),
            LeftByParts => format!("{path} was copied by no part"),
            UnknownType => format!("{path} has unknown file type"),
            Parent if errno(error) == Some(Errno::ENOTDIR as i32) => {
                return format!("{path} exists but is not a directory");
            }
            Parent => format!("cannot make directory {path}"),
            Mounted => format!("cannot remove {path}: a file system is mounted there"),
            kind => match kind.why() {
                Some(why) => format!("{}, on {path}: {why}", kind.what()),
                None => format!("{}, on {path}", kind.what()),
            },
        };
        match &error.source {
            Some(source) => format!("{said}: {}", why(source)),
            None => said,
        }
    }

    /// Asks whether a file may be replaced. Ends without a line feed: the answer is typed after it.
    pub(super) fn question(self, target: &Path, protected_mode: Option<u32>, overrides: bool) -> String {
        let name = self.name(target);
        let asked = match protected_mode {
            None => format!("overwrite {name}? "),
            Some(mode) => {
                let (digits, letters) = (mode & 0o7777, permissions(mode));
                if overrides {
                    format!("replace {name}, overriding mode {digits:04o} ({letters})? ")
                } else {
                    format!("unwritable {name} (mode {digits:04o}, {letters}); try anyway? ")
                }
            }
        };
        format!("{}: {asked}", self.program())
    }

    /// Returns the program name at the start of messages.
    pub(super) fn program(self) -> &'static str {
        match self {
            Voice::Gnu(_) => "cp",
            Voice::House => "ringroad",
        }
    }
}

/// Returns the number of the system's error.
fn errno(error: &Error) -> Option<i32> {
    error.source.as_ref().and_then(std::io::Error::raw_os_error)
}

/// Nine letters, as `ls -l` shows them.
fn permissions(mode: u32) -> String {
    let mut letters = String::new();
    for (shift, special, set, unset) in [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')]
    {
        let bits = mode >> shift;
        letters.push(if bits & 4 != 0 { 'r' } else { '-' });
        letters.push(if bits & 2 != 0 { 'w' } else { '-' });
        letters.push(match (mode & special != 0, bits & 1 != 0) {
            (false, true) => 'x',
            (false, false) => '-',
            (true, true) => set,
            (true, false) => unset,
        });
    }
    letters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_shown_as_ls_shows_them() {
        for (mode, letters) in [
            (0o644, "rw-r--r--"),
            (0o4755, "rwsr-xr-x"),
            (0o2644, "rw-r-Sr--"),
            (0o1777, "rwxrwxrwt"),
            (0, "---------"),
        ] {
            assert_eq!(permissions(mode), letters);
        }
    }

    #[test]
    fn a_name_cannot_begin_a_line_in_either_voice() {
        let error = Error { kind: ErrorKind::Stat, path: "a\nringroad: b".into(), other: None, source: None };
        for voice in [Voice::House, Voice::Gnu(Charset::Utf8)] {
            assert!(!voice.error(&error).contains('\n'), "{voice:?}");
        }
    }
}
