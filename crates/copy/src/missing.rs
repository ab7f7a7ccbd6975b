//! What a file system refused as a whole: it is full, a quota is used up, it is read-only, or takes no file
//! of that size. It says nothing about other file systems, so the copy goes on, and tells at its end what
//! each of them lacks. Start at [`Lacks::note`].

use crate::error::{Error, ErrorKind};
use rustix::io::Errno;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Entries that one file system did not take, for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The file system, as `stat` numbers it.
    pub device: u64,
    /// The topmost directory of the destination that is on it, as the user would write it.
    pub place: PathBuf,
    /// The errno: `ENOSPC`, `EDQUOT`, `EROFS` or `EFBIG`.
    pub errno: i32,
    /// Entries that it did not take.
    pub entries: u64,
    /// Those of them that are directories: what is in them is missing, too.
    pub directories: u64,
}

impl Missing {
    /// Returns the reason.
    pub fn why(&self) -> io::Error {
        io::Error::from_raw_os_error(self.errno)
    }

    /// Returns major and minor number of the device.
    pub fn numbers(&self) -> (u32, u32) {
        (rustix::fs::major(self.device), rustix::fs::minor(self.device))
    }
}

/// What file systems lack, so far.
#[derive(Debug, Default)]
pub(crate) struct Lacks(Mutex<Vec<Missing>>);

impl Lacks {
    /// Counts an error, if it is such a refusal.
    pub(crate) fn note(&self, error: &Error) {
        let refusals = [Errno::NOSPC, Errno::DQUOT, Errno::ROFS, Errno::FBIG];
        let Some(why) = refusals.into_iter().find(|why| error.makes() && error.is(*why)) else { return };
        // A device or a pipe at the target that has no room says nothing about the files beside it.
        let is_apart = |there: std::fs::Metadata| !there.is_file() && !there.is_dir();
        if std::fs::metadata(&error.path).is_ok_and(is_apart) {
            return;
        }
        let (device, place) = file_system_of(&error.path);
        let directory = u64::from(error.kind == ErrorKind::CreateDirectory);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let errno = why.raw_os_error();
        match all.iter_mut().find(|one| one.device == device && one.errno == errno) {
            Some(one) => {
                one.entries += 1;
                one.directories += directory;
                // Operands may lead to it by several paths; the shortest is told.
                if place.as_os_str().len() < one.place.as_os_str().len() {
                    one.place = place;
                }
            }
            None => all.push(Missing { device, place, errno, entries: 1, directories: directory }),
        }
    }

    /// Returns whether something had no room.
    pub(crate) fn is_full(&self) -> bool {
        let full = [Errno::NOSPC, Errno::DQUOT].map(Errno::raw_os_error);
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().any(|one| full.contains(&one.errno))
    }

    /// All of it, in the order in which it was met.
    pub(crate) fn all(&self) -> Vec<Missing> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Returns the device that a target is on, or would be, and the topmost directory above it on that device.
fn file_system_of(target: &Path) -> (u64, PathBuf) {
    let device = |path: &Path| {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        std::fs::metadata(path).ok().map(|about| about.dev())
    };
    let mut above = target.ancestors().filter_map(|path| Some((device(path)?, path)));
    let Some((own, mut top)) = above.next() else { return (0, target.to_owned()) };
    for (device, path) in above {
        if device != own || path.as_os_str().is_empty() {
            break;
        }
        top = path;
    }
    (own, if top.as_os_str().is_empty() { PathBuf::from(".") } else { top.to_owned() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn error(kind: ErrorKind, path: &Path, why: Errno) -> Error {
        Error::system(kind, path.to_owned(), why)
    }

    #[test]
    fn refusals_are_counted_by_device_and_reason_and_other_errors_are_none() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let lacks = Lacks::default();
        lacks.note(&error(ErrorKind::Create, &at("a"), Errno::ACCESS));
        lacks.note(&error(ErrorKind::PreserveXattr, &at("a"), Errno::NOSPC));
        lacks.note(&error(ErrorKind::Write, Path::new("/dev/full"), Errno::NOSPC));
        assert_eq!(lacks.all(), []);
        lacks.note(&error(ErrorKind::Write, &at("a"), Errno::FBIG));
        assert!(!lacks.is_full());
        lacks.note(&error(ErrorKind::Write, &at("b"), Errno::NOSPC));
        lacks.note(&error(ErrorKind::CreateDirectory, &at("c"), Errno::NOSPC));
        assert!(lacks.is_full());
        let all = lacks.all();
        let told: Vec<_> = all.iter().map(|one| (one.errno, one.entries, one.directories)).collect();
        assert_eq!(told, [(Errno::FBIG.raw_os_error(), 1, 0), (Errno::NOSPC.raw_os_error(), 2, 1)]);
        assert!(all.iter().all(|one| folder.path().starts_with(&one.place) && one.device != 0));
    }
}
