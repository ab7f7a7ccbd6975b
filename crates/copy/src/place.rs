//! Makes room for a target if its name exists: asks, renames it as a backup, or removes it. Temporary names
//! are in `leftover.rs`.

use crate::clock::For;
use crate::dir::lstat;
use crate::entry::Entry;
use crate::error::{Error, ErrorKind};
use crate::options::BackupKind;
use crate::plan::{self, Action, Facts, How, Question, Side};
use crate::report::{Event, Skip};
use crate::worker::Worker;
use rustix::fs::{Access, AtFlags, FileType, Mode, RawDir, RenameFlags};
use rustix::io::Errno;
use std::ffi::{CStr, CString, OsStr};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Bytes in a name, on every file system of Linux that matters here.
const NAME_MAX: usize = 255;

/// What was done to make room, to be undone on failure.
#[derive(Debug, Default)]
pub(crate) struct Room {
    pub(crate) backup: Option<CString>,
}

impl Room {
    /// Returns where the backup is, as the user would write it.
    pub(crate) fn backup_path(&self, entry: &Entry<'_>) -> Option<PathBuf> {
        self.backup.as_ref().map(|name| entry.dir.target_of(name))
    }
}

impl Worker<'_, '_> {
    /// Returns what is to happen where the target exists. The user is asked here, if at all.
    pub(crate) fn decide(
        &mut self,
        entry: &Entry<'_>,
        source: &Side,
        target: &Side,
    ) -> Result<Result<How, Skip>, Error> {
        let same_name = source.link.identity() == target.link.identity() && same_entry(entry);
        let question = Question {
            source: *source,
            target: *target,
            follow: entry.follow,
            same_name,
            operand: entry.operand,
            just_created: entry.operand && self.run.was_created(entry, target.link.identity()),
            differs: self.differs,
        };
        match plan::decide(self.run.options, &question) {
            Action::Refuse(ErrorKind::DanglingTarget) if entry.target_loops() => {
                // What could never be opened is what -f removes.
                let force = self.run.options.force;
                if force {
                    Ok(Ok(How::Remove))
                } else {
                    Err(entry.target_error(ErrorKind::Stat, Errno::LOOP))
                }
            }
            Action::Skip(why) => Ok(Err(why)),
            Action::Refuse(kind @ (ErrorKind::SameFile | ErrorKind::HardLinkToDirectory)) => {
                Err(Error::plain(kind, entry.source_path()).with(entry.target_path()))
            }
            Action::Refuse(kind) => Err(Error::plain(kind, entry.target_path()).with(entry.source_path())),
            Action::Replace(how) => {
                if self.run.options.interactive && how != How::Merge {
                    let protected = rustix::fs::accessat(
                        entry.handles.target(),
                        entry.target,
                        Access::WRITE_OK,
                        AtFlags::EACCESS,
                    );
                    let mode = protected.is_err().then_some(target.link.mode);
                    let mode = mode.filter(|_| target.link.kind != FileType::Symlink);
                    if !self.run.observer.overwrite(&entry.target_path(), mode) {
                        return Ok(Err(Skip::Declined));
                    }
                }
                Ok(Ok(how))
            }
        }
    }

    /// Makes room for something that cannot be written into an existing file.
    pub(crate) fn make_room(
        &mut self,
        entry: &Entry<'_>,
        source: &Side,
    ) -> Result<Result<Room, Skip>, Error> {
        let target =
            entry.target_side(plan::follows_target(self.run.options, source.copied(entry.follow).kind))?;
        match self.decide(entry, source, &target)? {
            Err(skip) => Ok(Err(skip)),
            Ok(How::Backup) => self.back_up_room(entry).map(Ok),
            Ok(How::Remove) => self.remove(entry).map(|()| Ok(Room::default())),
            // The call that finds the name taken says so again.
            Ok(How::Swap | How::InPlace | How::Merge) => Ok(Ok(Room::default())),
        }
    }

    /// Removes the target.
    pub(crate) fn remove(&mut self, entry: &Entry<'_>) -> Result<(), Error> {
        let unlink = || rustix::fs::unlinkat(entry.handles.target(), entry.target, AtFlags::empty());
        match self.clock.call(For::Create, unlink) {
            Ok(()) => {
                if self.run.wants_entries {
                    self.run.observer.event(Event::Removed(&entry.target_path()));
                }
                Ok(())
            }
            Err(Errno::NOENT) => Ok(()),
            Err(why) => Err(entry.target_error(ErrorKind::Remove, why)),
        }
    }

    /// Brings a backup back after a copy that failed.
    pub(crate) fn undo(&mut self, entry: &Entry<'_>, room: &Room) {
        if let Some(backup) = &room.backup {
            let to = entry.handles.target();
            if let Err(why) = rustix::fs::renameat(to, &**backup, to, entry.target) {
                let error = entry.target_error(ErrorKind::Backup, why).with(entry.dir.target_of(backup));
                self.tell(error);
            }
        }
    }

    /// Renames the target to its backup's name, so that it can be undone.
    pub(crate) fn back_up_room(&mut self, entry: &Entry<'_>) -> Result<Room, Error> {
        self.back_up_name(entry).map(|name| Room { backup: Some(name) })
    }

    fn back_up_name(&mut self, entry: &Entry<'_>) -> Result<CString, Error> {
        let failed = |why| entry.target_error(ErrorKind::Backup, why);
        let Some(backup) = &self.run.options.backup else { return Err(failed(Errno::INVAL)) };
        let to = entry.handles.target();
        let highest = match backup.kind {
            BackupKind::Simple => None,
            BackupKind::Numbered | BackupKind::Existing => match highest_backup(entry) {
                // A directory that may be written and not listed: as if there were none, and what is there
                // stays.
                Err(Errno::ACCESS) => None,
                highest => highest.map_err(failed)?,
            },
        };
        let numbered = backup.kind == BackupKind::Numbered || highest.is_some();
        let mut number = highest.unwrap_or_default().next();
        loop {
            let mut name = entry.target.to_bytes().to_vec();
            if numbered {
                name.extend_from_slice(&[b".~", &*number.digits, b"~"].concat());
            } else {
                name.extend_from_slice(backup.suffix.as_bytes());
            }
            let name = CString::new(name).map_err(|_| failed(Errno::INVAL))?;
            if !numbered && let Ok(there) = lstat(to, &name) {
                // Another name of the source is no loss: the source keeps its own.
                let source = lstat(entry.handles.source(), entry.source);
                let named = OsStr::from_bytes(entry.source.to_bytes());
                let named =
                    Path::new(named).file_name().is_some_and(|last| last.as_bytes() == name.to_bytes());
                if named && source.is_ok_and(|source| source.identity() == there.identity()) {
                    return Err(Error::plain(ErrorKind::BackupDestroysSource, entry.target_path())
                        .with(entry.source_path()));
                }
            }
            let renamed = if numbered {
                // Libraries before libc know the older call only.
                let strict = match self.run.options.interposed {
                    true => Err(Errno::NOSYS),
                    false => rustix::fs::renameat_with(to, entry.target, to, &*name, RenameFlags::NOREPLACE),
                };
                match strict {
                    // There is no such rename here: by this file system, kernel or filter. What may
                    // not be renamed at all is refused by the older call, too.
                    Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM) => {
                        match lstat(to, &name) {
                            Ok(_) => Err(Errno::EXIST),
                            Err(_) => rustix::fs::renameat(to, entry.target, to, &*name),
                        }
                    }
                    renamed => renamed,
                }
            } else {
                rustix::fs::renameat(to, entry.target, to, &*name)
            };
            match renamed {
                Ok(()) => return Ok(name),
                // A backup of this number could not be listed, or was made meanwhile.
                Err(Errno::EXIST) if numbered => number = number.next(),
                // A name that has no room for the suffix is cut to make room for a tilde, by one byte more
                // than it takes, as GNU does it.
                Err(Errno::NAMETOOLONG) if !numbered => {
                    let room = entry.target.to_bytes().len().min(NAME_MAX - 2);
                    let mut cut = entry.target.to_bytes().get(..room).unwrap_or_default().to_vec();
                    cut.push(b'~');
                    let cut = CString::new(cut).map_err(|_| failed(Errno::INVAL))?;
                    rustix::fs::renameat(to, entry.target, to, &*cut).map_err(failed)?;
                    return Ok(cut);
                }
                Err(why) => return Err(failed(why)),
            }
        }
    }
}

/// Both sides are the same name in the same directory.
fn same_entry(entry: &Entry<'_>) -> bool {
    let base = |name: &CStr| {
        let bytes = name.to_bytes();
        let end = bytes.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
        let bytes = bytes.get(..end).unwrap_or_default();
        let start = bytes.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        bytes.get(start..).unwrap_or_default().to_vec()
    };
    if base(entry.source) != base(entry.target) {
        return false;
    }
    // The directories the two names are in.
    let parent = |at, name: &CStr| {
        let path = std::path::Path::new(crate::dir::os(name));
        match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            Some(parent) => rustix::fs::statat(at, parent, AtFlags::empty()),
            None => rustix::fs::fstat(at),
        }
        .map(Facts::from)
    };
    let source = parent(entry.handles.source(), entry.source);
    let target = parent(entry.handles.target(), entry.target);
    matches!((source, target), (Ok(source), Ok(target)) if source.identity() == target.identity())
}

/// The number of a backup, in decimal digits without leading zeros: names may hold larger ones than integers.
/// None at all is less than every number, and its next is 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Number {
    digits: Vec<u8>,
}

impl Number {
    fn of(digits: &[u8]) -> Option<Number> {
        let first = digits.first().is_some_and(|first| *first != b'0');
        (first && digits.iter().all(u8::is_ascii_digit)).then(|| Number { digits: digits.to_vec() })
    }

    fn next(&self) -> Number {
        let mut digits = self.digits.clone();
        let nines = digits.iter().rev().take_while(|digit| **digit == b'9').count();
        let (rest, end) = digits.split_at_mut(self.digits.len() - nines);
        end.fill(b'0');
        match rest.last_mut() {
            Some(last) => *last += 1,
            None => digits.insert(0, b'1'),
        }
        Number { digits }
    }
}

impl Ord for Number {
    fn cmp(&self, other: &Number) -> std::cmp::Ordering {
        self.digits.len().cmp(&other.digits.len()).then_with(|| self.digits.cmp(&other.digits))
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Number) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Returns the highest N of `name.~N~`.
fn highest_backup(entry: &Entry<'_>) -> rustix::io::Result<Option<Number>> {
    let listing =
        rustix::fs::openat(entry.handles.target(), c".", crate::dir::OPEN_DIRECTORY, Mode::empty())?;
    let mut buffer = vec![MaybeUninit::<u8>::uninit(); 1 << 15];
    let mut entries = RawDir::new(&listing, &mut buffer);
    let mut highest = None;
    while let Some(found) = entries.next() {
        let found = match found {
            // The directory was removed: there are no more entries in it.
            Err(Errno::NOENT) => break,
            found => found?,
        };
        let number = found
            .file_name()
            .to_bytes()
            .strip_prefix(entry.target.to_bytes())
            .and_then(|rest| rest.strip_prefix(b".~"))
            .and_then(|rest| rest.strip_suffix(b"~"))
            .and_then(Number::of);
        highest = highest.max(number);
    }
    Ok(highest)
}

#[cfg(test)]
mod tests {
    use super::Number;

    #[test]
    fn numbers_of_backups_have_no_upper_end() {
        for (number, after) in [
            ("", "1"),
            ("1", "2"),
            ("9", "10"),
            ("199", "200"),
            ("999", "1000"),
            ("18446744073709551615", "18446744073709551616"),
            ("99999999999999999999999", "100000000000000000000000"),
        ] {
            // A text that is not a number counts as zero.
            let number = Number::of(number.as_bytes()).unwrap_or_default();
            assert_eq!(number.next().digits, after.as_bytes());
            assert!(number.next() > number, "{after}");
        }
        for none in ["", "0", "01", "+1", "-1", "1a", " 1"] {
            assert_eq!(Number::of(none.as_bytes()), None, "{none}");
        }
        assert!(Number::of(b"10") > Number::of(b"9"));
    }
}
