//! Folders that live as long as their server: for the sockets of processes, and for PHP's classes.
//!
//! A server that is killed removes nothing. Each folder is therefore locked while its server lives
//! (flock(2)), and the next server removes those that nothing locks.

use rustix::fs::{FlockOperation, Mode, OFlags};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::Once;
use tempfile::TempDir;

/// How the names of all such folders begin.
const PREFIX: &str = "ringroad-run-";
/// More tries than other servers can spoil.
const TRIES: usize = 100;

/// A folder in the temporary folder, removed when the value is dropped, or by the next server.
#[derive(Debug)]
pub(crate) struct RunFolder {
    folder: TempDir,
    /// Locked as long as it is open.
    _lock: File,
}

impl RunFolder {
    /// Makes a folder that this process's user alone can read. The first one of a process also removes the
    /// folders of servers that are gone.
    pub(crate) fn new() -> io::Result<RunFolder> {
        static SWEPT: Once = Once::new();
        let parent = std::env::temp_dir();
        SWEPT.call_once(|| sweep(&parent));
        Self::within(&parent)
    }

    fn within(parent: &Path) -> io::Result<RunFolder> {
        for _ in 0..TRIES {
            let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
            // Another server may take it for a left one until it is locked.
            let Ok(lock) = open(folder.path()) else { continue };
            // Where locks are not to be had, no server can take one, and none is removed.
            let _ = rustix::fs::flock(&lock, FlockOperation::LockExclusive);
            if is_at(&lock, folder.path()) {
                return Ok(RunFolder { folder, _lock: lock });
            }
        }
        Err(io::Error::other(format!("each new folder in {} was removed at once", parent.display())))
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Opens a folder, following no link.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

/// Returns whether `path` still names the open folder.
fn is_at(folder: &File, path: &Path) -> bool {
    match (folder.metadata(), fs::symlink_metadata(path)) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => false,
    }
}

/// Removes what servers of this user left in `parent`. What cannot be removed stays.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()) {
            let _ = remove_if_left(&entry.path());
        }
    }
}

fn remove_if_left(path: &Path) -> io::Result<()> {
    let folder = open(path)?;
    rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive)?;
    let (owner, user) = (folder.metadata()?.uid(), rustix::process::geteuid());
    if owner == user.as_raw() {
        return fs::remove_dir_all(path);
    }
    if !user.is_root() {
        return Ok(());
    }
    // A server that was started by root gives the folder of sockets to the user of its processes. Of another
    // user's folder nothing else is removed.
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_socket() {
            fs::remove_file(entry.path())?;
        }
    }
    fs::remove_dir(path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use std::os::unix::net::UnixListener;

    /// Returns a folder as a killed server leaves it.
    fn left(parent: &Path) -> std::path::PathBuf {
        let folder = RunFolder::within(parent).unwrap();
        fs::create_dir(folder.path().join("swoole")).unwrap();
        fs::write(folder.path().join("swoole/server.php"), "<?php").unwrap();
        drop(UnixListener::bind(folder.path().join("1.sock")).unwrap());
        let RunFolder { folder, _lock } = folder;
        folder.keep()
    }

    #[test]
    fn what_a_killed_server_left_is_removed_by_the_next() {
        let parent = tempfile::tempdir().unwrap();
        let gone = left(parent.path());
        let live = RunFolder::within(parent.path()).unwrap();
        sweep(parent.path());
        assert!(!gone.exists());
        assert!(live.path().is_dir(), "the folder of a server that runs stays");
        drop(live);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn links_and_other_names_are_left_alone() {
        let parent = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        fs::write(elsewhere.path().join("kept"), "").unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), parent.path().join("ringroad-run-link")).unwrap();
        fs::create_dir(parent.path().join("ringroad-other")).unwrap();
        fs::write(parent.path().join("ringroad-run-file"), "").unwrap();
        sweep(parent.path());
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 3);
        assert!(elsewhere.path().join("kept").exists());
    }

    #[test]
    fn of_another_users_folder_root_removes_sockets_alone() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("skipped: folders of another user need root");
        }
        let parent = tempfile::tempdir().unwrap();
        let (with_files, sockets) = (left(parent.path()), parent.path().join("ringroad-run-sockets"));
        fs::create_dir(&sockets).unwrap();
        drop(UnixListener::bind(sockets.join("1.sock")).unwrap());
        for path in [&with_files, &sockets] {
            std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
        }
        sweep(parent.path());
        assert!(!sockets.exists());
        assert!(with_files.join("swoole/server.php").exists());
    }

    #[test]
    fn servers_that_start_together_keep_their_folders() {
        let parent = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            let start = || {
                let folder = |_| {
                    sweep(parent.path());
                    RunFolder::within(parent.path()).unwrap()
                };
                (0..50).map(folder).collect::<Vec<_>>()
            };
            let all: Vec<_> = (0..4).map(|_| scope.spawn(start)).collect();
            let all: Vec<_> = all.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
            assert!(all.iter().all(|one| one.path().is_dir()));
        });
    }
}
