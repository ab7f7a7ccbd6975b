//! Opening files beneath a folder, and nothing else: no way out of it, nothing that is not a plain file, no waiting.
//!
//! `openat2(2)` with RESOLVE_BENEATH (Linux 5.6) lets the kernel see to it, symbolic links included, whatever is renamed
//! meanwhile. Where it is missing or forbidden, each part is opened by itself and links are not followed at all. What a
//! name stands for is looked at before it is opened to be read, because opening a FIFO wakes who writes to it and opening
//! a device may do anything; and the file that is then open is looked at again, because the name may stand for another.

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2, statat};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// A folder whose files are served.
#[derive(Debug)]
pub struct Root {
    folder: OwnedFd,
    path: PathBuf,
    way: Way,
}

/// How what is beneath is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// `openat2`, which may be asked for what is in memory alone (RESOLVE_CACHED, Linux 5.12).
    Kernel { cached: bool },
    /// Part by part, without following links.
    Walk,
}

/// Whether a look may wait for a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// No: [`Refused::WouldWait`].
    None,
    Disk,
}

/// What tells whether a file is still what it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    pub(crate) bytes: u64,
    /// Seconds and nanoseconds.
    pub(crate) modified: (i64, u32),
    changed: (i64, u32),
    file: (u64, u64),
}

impl Identity {
    fn of(stat: &Stat) -> Identity {
        Identity {
            bytes: u64::try_from(stat.st_size).unwrap_or(0),
            modified: (stat.st_mtime, stat.st_mtime_nsec as u32),
            changed: (stat.st_ctime, stat.st_ctime_nsec as u32),
            file: (stat.st_dev, stat.st_ino),
        }
    }

    pub(crate) fn of_open(file: impl AsFd) -> io::Result<Identity> {
        Ok(Identity::of(&fstat(file)?))
    }
}

/// What a path leads to.
#[derive(Debug)]
pub(crate) enum Found {
    File(File, Identity),
    /// For [`std::fs`]-like walks: the folder, open.
    Folder(OwnedFd),
}

/// Why nothing is served.
#[derive(Debug)]
pub(crate) enum Refused {
    /// There is nothing, or nothing we show: outside, no plain file, forbidden.
    Missing,
    /// It is there, and permissions forbid it.
    Forbidden,
    /// It would have to be looked for on a disk.
    WouldWait,
    /// No descriptor is left: later.
    Busy,
    Failed(io::Error),
}

impl From<Errno> for Refused {
    fn from(errno: Errno) -> Refused {
        match errno {
            Errno::ACCESS | Errno::PERM => Refused::Forbidden,
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => Refused::Busy,
            // XDEV: a way out. LOOP: a link where none is followed. NXIO: a socket, or nobody at a FIFO's other end.
            Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::XDEV | Errno::LOOP | Errno::NXIO => {
                Refused::Missing
            }
            errno => Refused::Failed(errno.into()),
        }
    }
}

const LOOK: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// Never a wait, a terminal, or an inherited descriptor.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// A rename meanwhile makes the kernel look again; so often do we.
const TRIES: usize = 8;

impl Root {
    /// Opens a folder.
    ///
    /// # Errors
    /// It is not there, no folder, or forbidden.
    pub fn open(path: &Path) -> io::Result<Root> {
        let folder = openat(CWD, path, LOOK | OFlags::DIRECTORY, Mode::empty())?;
        // Permissions are asked when it is read.
        let readable = openat(CWD, path, READ | OFlags::DIRECTORY, Mode::empty());
        if let Err(why) = readable {
            return Err(why.into());
        }
        let try_with = |resolve| openat2(&folder, ".", LOOK, Mode::empty(), ResolveFlags::BENEATH | resolve);
        let way = match try_with(ResolveFlags::CACHED) {
            Ok(_) | Err(Errno::AGAIN) => Way::Kernel { cached: true },
            Err(_) if try_with(ResolveFlags::empty()).is_ok() => Way::Kernel { cached: false },
            // Not there before Linux 5.6; a filter that does not know it says EPERM or ENOSYS.
            Err(_) => Way::Walk,
        };
        Ok(Root { folder, path: path.to_owned(), way })
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    #[cfg(test)]
    pub(crate) fn by(mut self, way: Way) -> Root {
        self.way = way;
        self
    }

    /// What `path` leads to: relative, without empty parts, `.` and `..`; the root itself if it is empty.
    pub(crate) fn find(&self, path: &[u8], patience: Patience) -> Result<Found, Refused> {
        let mut tries = 0;
        loop {
            let place = self.at(path, LOOK, patience)?;
            let seen = fstat(&place)?;
            match FileType::from_raw_mode(seen.st_mode) {
                FileType::Directory => return Ok(Found::Folder(place)),
                FileType::RegularFile => {}
                _ => return Err(Refused::Missing),
            }
            let open = self.at(path, READ, patience)?;
            let stat = fstat(&open)?;
            let (seen, identity) = (Identity::of(&seen), Identity::of(&stat));
            if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && seen.file == identity.file {
                return Ok(Found::File(File::from(open), identity));
            }
            // Another thing has come to that name between the two looks.
            tries += 1;
            if tries == TRIES {
                return Err(Refused::Busy);
            }
        }
    }

    /// What a path's file is now, to compare with one that was found: links are followed wherever they lead, so this
    /// says nothing about a file that was not.
    pub(crate) fn identity(&self, path: &[u8]) -> Option<Identity> {
        statat(&self.folder, path, rustix::fs::AtFlags::empty()).ok().map(|stat| Identity::of(&stat))
    }

    fn at(&self, path: &[u8], flags: OFlags, patience: Patience) -> Result<OwnedFd, Refused> {
        let path = if path.is_empty() { b"." } else { path };
        match (self.way, patience) {
            // Nothing tells whether a walk would wait.
            (Way::Walk | Way::Kernel { cached: false }, Patience::None) => Err(Refused::WouldWait),
            (Way::Walk, Patience::Disk) => Ok(walk(&self.folder, path, flags)?),
            (Way::Kernel { .. }, patience) => {
                let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
                if patience == Patience::None {
                    resolve |= ResolveFlags::CACHED;
                }
                for _ in 0..TRIES {
                    match openat2(&self.folder, path, flags, Mode::empty(), resolve) {
                        Err(Errno::AGAIN) if patience == Patience::None => return Err(Refused::WouldWait),
                        // Something was renamed while the kernel went up again.
                        Err(Errno::AGAIN | Errno::INTR) => {}
                        opened => return Ok(opened?),
                    }
                }
                Err(Refused::Busy)
            }
        }
    }
}

/// Opens `path` part by part.
fn walk(folder: &OwnedFd, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let mut parts = path.split(|byte| *byte == b'/').peekable();
    let mut here: Option<OwnedFd> = None;
    while let Some(part) = parts.next() {
        // They are not in a path of ours; a way up would be a way out.
        if part.is_empty() || part == b".." {
            return Err(Errno::NOENT);
        }
        let flags = if parts.peek().is_some() { LOOK | OFlags::DIRECTORY } else { flags };
        let from = here.as_ref().unwrap_or(folder);
        here = Some(openat(from, part, flags | OFlags::NOFOLLOW, Mode::empty())?);
    }
    here.ok_or(Errno::NOENT)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    const WAYS: [Way; 3] = [Way::Kernel { cached: true }, Way::Kernel { cached: false }, Way::Walk];

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        std::fs::create_dir_all(path.join("root/a/b")).unwrap();
        std::fs::write(path.join("root/a/b/file"), "inside").unwrap();
        std::fs::write(path.join("outside"), "secret").unwrap();
        for (name, to) in [
            ("out", "../outside"),
            ("absolute", path.join("outside").to_str().unwrap()),
            ("a/b/up", "../../../outside"),
            ("folder-out", ".."),
            ("proc", "/proc/self/root"),
            ("loop", "loop"),
            ("nowhere", "nothing"),
        ] {
            symlink(to, path.join("root").join(name)).unwrap();
        }
        folder
    }

    #[test]
    fn nothing_leads_out_of_the_root() {
        let folder = folder();
        for way in WAYS {
            let root = Root::open(&folder.path().join("root")).unwrap().by(way);
            for path in [
                "out",
                "absolute",
                "a/b/up",
                "folder-out",
                "folder-out/outside",
                "proc",
                "proc/etc/passwd",
                "loop",
                "nowhere",
                "../outside",
                "a/../../outside",
                "/etc/passwd",
                "a//b/file",
                "a/b/file/",
            ] {
                let found = root.find(path.as_bytes(), Patience::Disk);
                // The kernel takes empty parts for nothing; they are refused before they come here.
                let harmless = way != Way::Walk && path == "a//b/file";
                assert!(harmless || matches!(found, Err(Refused::Missing)), "{way:?} {path}: {found:?}");
            }
            let found = root.find(b"a/b/file", Patience::Disk).unwrap();
            assert!(matches!(found, Found::File(_, identity) if identity.bytes == 6), "{way:?}");
            assert!(matches!(root.find(b"a", Patience::Disk), Ok(Found::Folder(_))), "{way:?}");
            assert!(matches!(root.find(b"", Patience::Disk), Ok(Found::Folder(_))), "{way:?}");
        }
    }

    #[test]
    fn links_within_the_root_are_followed_where_the_kernel_sees_to_it() {
        let folder = folder();
        symlink("a/b/file", folder.path().join("root/link")).unwrap();
        for way in WAYS {
            let root = Root::open(&folder.path().join("root")).unwrap().by(way);
            let found = root.find(b"link", Patience::Disk);
            assert_eq!(matches!(found, Ok(Found::File(..))), way != Way::Walk, "{way:?}: {found:?}");
        }
    }

    #[test]
    fn fifos_devices_and_sockets_are_no_files_and_nobody_waits_for_them() {
        let folder = folder();
        let path = folder.path().join("root");
        rustix::fs::mknodat(CWD, path.join("fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        let _socket = UnixListener::bind(path.join("socket")).unwrap();
        for way in WAYS {
            let root = Root::open(&path).unwrap().by(way);
            for name in ["fifo", "socket"] {
                let found = root.find(name.as_bytes(), Patience::Disk);
                assert!(matches!(found, Err(Refused::Missing)), "{way:?} {name}: {found:?}");
            }
        }
        // Nobody has opened it: a writer that does not wait finds no reader.
        let writer = openat(CWD, path.join("fifo"), OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty());
        assert_eq!(writer.err(), Some(Errno::NXIO));
        let devices = Root::open(Path::new("/dev")).unwrap();
        assert!(matches!(devices.find(b"zero", Patience::Disk), Err(Refused::Missing)));
    }

    #[test]
    fn an_identity_changes_with_the_file() {
        let folder = folder();
        let root = Root::open(&folder.path().join("root")).unwrap();
        let before = root.identity(b"a/b/file").unwrap();
        assert_eq!(root.identity(b"a/b/file"), Some(before));
        std::fs::write(folder.path().join("root/a/b/file"), "inside and longer").unwrap();
        assert_ne!(root.identity(b"a/b/file"), Some(before));
        std::fs::remove_file(folder.path().join("root/a/b/file")).unwrap();
        assert_eq!(root.identity(b"a/b/file"), None);
    }
}
