//! Opens regular files beneath a folder, and nothing outside it, without waiting.
//!
//! `openat2(2)` with RESOLVE_BENEATH (Linux 5.6) has the kernel enforce that, for symbolic links and
//! concurrent renames too. Where the call is missing or forbidden, each part of the path is opened by itself
//! and no link is followed. The type of a file is checked before it is opened for reading, because opening a
//! FIFO wakes its writer and opening a device may have any effect. It is checked again on the open
//! descriptor, because the name may have been given to another file in between.

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, fstatfs, openat, openat2, statat,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// A folder with files to serve.
#[derive(Debug)]
pub struct Root {
    path: PathBuf,
    /// The folder that the path leads to; it changes when a link in the path is moved.
    open: RwLock<Arc<Opened>>,
    /// The second of the last look at where the path leads.
    looked: AtomicU64,
    /// The thread of the last look at a file's identity.
    #[cfg(test)]
    pub(crate) asked_by: std::sync::Mutex<Option<std::thread::ThreadId>>,
}

/// A folder as it was at one moment, open as long as it is in use.
#[derive(Clone)]
pub(crate) struct OpenFolder(Arc<Opened>);

impl OpenFolder {
    /// Returns a number that no other folder of this process has had: the key of its files in memory.
    pub(super) fn id(&self) -> u64 {
        self.0.id
    }

    /// Returns whether each look at a file may wait for another machine or process.
    pub(super) fn is_remote(&self) -> bool {
        self.0.remote
    }

    /// Returns what a path's file is now ([`Root::identity`]).
    pub(super) fn identity(&self, path: &[u8]) -> Option<Identity> {
        statat(&self.0.folder, path, AtFlags::empty()).ok().map(|stat| Identity::of(&stat))
    }
}

impl AsFd for OpenFolder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.folder.as_fd()
    }
}

/// A folder that is open.
#[derive(Debug)]
struct Opened {
    folder: OwnedFd,
    way: Way,
    id: u64,
    /// Device and inode.
    place: (u64, u64),
    /// On another machine, or in another process: each look may wait for it.
    remote: bool,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl PartialEq for Root {
    /// Returns whether it is the same folder by the same path.
    fn eq(&self, other: &Root) -> bool {
        let (own, others) = (self.opened(), other.opened());
        (&self.path, own.place, own.way) == (&other.path, others.place, others.way)
    }
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
    /// Of its status, which the kernel sets and no tool can.
    pub(crate) changed: (i64, u32),
    /// Device and inode.
    pub(crate) file: (u64, u64),
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

/// The target of a path.
#[derive(Debug)]
pub(crate) enum Found {
    File(File, Identity),
    /// For [`std::fs`]-like walks: the folder, open.
    Folder(OwnedFd),
}

/// The reason why nothing is served.
#[derive(Debug)]
pub(crate) enum Refused {
    /// There is nothing, or nothing that may be shown: outside the folder, not a regular file, forbidden.
    Missing,
    /// A link leads out of the folder, or has an absolute target.
    Outside,
    /// It is there, and permissions forbid it.
    Forbidden,
    /// It would have to be looked for on a disk.
    WouldWait,
    /// Another program holds a lease on it, and was told to give it up ([`lease_break_time`]).
    Leased,
    /// No descriptor is left, or a file server is silent: later.
    Busy,
    Failed(io::Error),
}

/// The one place that tells the errors of files apart.
impl From<Errno> for Refused {
    fn from(errno: Errno) -> Refused {
        match errno {
            Errno::ACCESS | Errno::PERM => Refused::Forbidden,
            // Descriptors or memory are gone; a file server is silent, or has another file by now (STALE).
            Errno::MFILE
            | Errno::NFILE
            | Errno::NOMEM
            | Errno::AGAIN
            | Errno::INTR
            | Errno::STALE
            | Errno::TIMEDOUT
            | Errno::HOSTDOWN
            | Errno::HOSTUNREACH => Refused::Busy,
            Errno::XDEV => Refused::Outside,
            // LOOP: a link where none is followed. NXIO, NODEV: a socket, a FIFO without a process at its
            // other end, or a device without its driver.
            Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::LOOP | Errno::NXIO | Errno::NODEV => {
                Refused::Missing
            }
            errno => Refused::Failed(errno.into()),
        }
    }
}

impl From<io::Error> for Refused {
    fn from(why: io::Error) -> Refused {
        match why.raw_os_error() {
            Some(number) => Refused::from(Errno::from_raw_os_error(number)),
            None => Refused::Failed(why),
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
        let open = RwLock::new(Arc::new(Opened::new(path)?));
        Ok(Root {
            path: path.to_owned(),
            open,
            looked: AtomicU64::new(second(Instant::now())),
            #[cfg(test)]
            asked_by: std::sync::Mutex::default(),
        })
    }

    fn opened(&self) -> Arc<Opened> {
        // It is replaced whole.
        Arc::clone(&self.open.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns whether it is time to look where the path leads now, which [`reopen`](Self::reopen) does: once
    /// in each [`second`].
    pub(crate) fn is_to_be_looked_at(&self, now: u64) -> bool {
        self.looked.load(Ordering::Relaxed) != now && self.looked.swap(now, Ordering::Relaxed) != now
    }

    /// Opens the folder that the path leads to by now, if that is another one: a deployment has moved a link.
    /// What is being sent goes on. A path that leads nowhere changes nothing. It may wait for a disk.
    pub(crate) fn reopen(&self) {
        let Ok(stat) = statat(CWD, &self.path, AtFlags::empty()) else { return };
        if (stat.st_dev, stat.st_ino) == self.opened().place {
            return;
        }
        if let Ok(opened) = Opened::new(&self.path) {
            *self.open.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(opened);
        }
    }

    /// Returns the folder, as it is now.
    pub(super) fn folder(&self) -> OpenFolder {
        OpenFolder(self.opened())
    }

    /// Returns a number that no other folder of this process has had: the key of its files in memory.
    pub(crate) fn id(&self) -> u64 {
        self.opened().id
    }

    /// Returns whether each look at a file may wait for another machine or process.
    pub(crate) fn is_remote(&self) -> bool {
        self.opened().remote
    }

    /// Returns the path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    #[cfg(test)]
    #[allow(clippy::unwrap_used)]
    pub(crate) fn by(self, way: Way) -> Root {
        Arc::get_mut(&mut self.open.write().unwrap()).unwrap().way = way;
        self
    }

    #[cfg(test)]
    #[allow(clippy::unwrap_used)]
    pub(crate) fn made_remote(self) -> Root {
        Arc::get_mut(&mut self.open.write().unwrap()).unwrap().remote = true;
        self
    }

    /// Returns what `path` leads to: relative, without empty parts, `.` and `..`; the root itself if it is
    /// empty.
    pub(crate) fn find(&self, path: &[u8], patience: Patience) -> Result<Found, Refused> {
        let opened = self.opened();
        if opened.remote && patience == Patience::None {
            return Err(Refused::WouldWait);
        }
        match opened.find(path, patience) {
            // The kernel refuses every link with an absolute target, also one that leads back beneath the
            // folder.
            Err(Refused::Outside) if patience == Patience::None => Err(Refused::WouldWait),
            Err(Refused::Outside) => match self.beneath(path)? {
                // Opened under the same rule, whatever the links are by now.
                Some(path) => opened.find(&path, patience).map_err(|why| match why {
                    Refused::Outside => Refused::Missing,
                    why => why,
                }),
                None => Err(Refused::Missing),
            },
            found => found,
        }
    }

    /// Returns the path without links of what `path` leads to, relative to the folder; `None` if that is not
    /// beneath it.
    fn beneath(&self, path: &[u8]) -> Result<Option<Vec<u8>>, Refused> {
        let root = self.path.canonicalize()?;
        let place = root.join(OsStr::from_bytes(path)).canonicalize()?;
        Ok(place.strip_prefix(&root).ok().map(|path| path.as_os_str().as_bytes().to_vec()))
    }

    /// Returns what a path's file is now, to compare with one that was found: links are followed wherever
    /// they lead, so this says nothing about a file that was not.
    pub(crate) fn identity(&self, path: &[u8]) -> Option<Identity> {
        #[cfg(test)]
        {
            *self.asked_by.lock().unwrap_or_else(PoisonError::into_inner) = Some(std::thread::current().id());
        }
        self.folder().identity(path)
    }
}

/// Returns the second of a moment, counted from some moment of this process; 0 for those before it.
pub(crate) fn second(moment: Instant) -> u64 {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    moment.saturating_duration_since(*BEGAN.get_or_init(Instant::now)).as_secs()
}

/// File systems on another machine or in another process (statfs(2)): NFS, SMB and CIFS, FUSE, Ceph, 9P, AFS,
/// Lustre. `RESOLVE_CACHED` and `statx` may wait there for as long as the other side is silent.
fn is_remote(folder: &OwnedFd) -> bool {
    const REMOTE: [u32; 9] = [
        0x6969,
        0xff53_4d42,
        0xfe53_4d42,
        0x517b,
        0x6573_5546,
        0x00c3_6400,
        0x0102_1997,
        0x5346_414f,
        0x0bd0_0bd0,
    ];
    fstatfs(folder).is_ok_and(|stat| REMOTE.contains(&(stat.f_type as u32)))
}

impl Opened {
    fn new(path: &Path) -> io::Result<Opened> {
        let folder = openat(CWD, path, LOOK | OFlags::DIRECTORY, Mode::empty())?;
        // What is in it may be served if it may be searched. Listing it is another permission, which is asked
        // for then.
        openat(&folder, ".", LOOK | OFlags::DIRECTORY, Mode::empty())?;
        let try_with = |resolve| openat2(&folder, ".", LOOK, Mode::empty(), ResolveFlags::BENEATH | resolve);
        let way = match try_with(ResolveFlags::CACHED) {
            Ok(_) | Err(Errno::AGAIN) => Way::Kernel { cached: true },
            Err(_) if try_with(ResolveFlags::empty()).is_ok() => Way::Kernel { cached: false },
            // Not there before Linux 5.6; a filter that does not know it says EPERM or ENOSYS.
            Err(_) => Way::Walk,
        };
        let stat = fstat(&folder)?;
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let remote = is_remote(&folder);
        Ok(Opened { folder, way, id, place: (stat.st_dev, stat.st_ino), remote })
    }

    fn find(&self, path: &[u8], patience: Patience) -> Result<Found, Refused> {
        let mut tries = 0;
        loop {
            let place = self.at(path, LOOK, patience)?;
            let seen = fstat(&place)?;
            match FileType::from_raw_mode(seen.st_mode) {
                FileType::Directory => return Ok(Found::Folder(place)),
                FileType::RegularFile => {}
                _ => return Err(Refused::Missing),
            }
            let open = match self.at(path, READ, patience) {
                Err(Refused::Leased) if !leases_are_held() => open_waiting(&place)?,
                opened => opened?,
            };
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

    fn at(&self, path: &[u8], flags: OFlags, patience: Patience) -> Result<OwnedFd, Refused> {
        let path = if path.is_empty() { b"." } else { path };
        match (self.way, patience) {
            // Nothing tells whether a walk would wait.
            (Way::Walk | Way::Kernel { cached: false }, Patience::None) => Err(Refused::WouldWait),
            (Way::Walk, Patience::Disk) => match walk(&self.folder, path, flags) {
                Err(Errno::AGAIN) if flags == READ => Err(Refused::Leased),
                opened => Ok(opened?),
            },
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
                // Only an open that is not to wait is told so of a lease, each time.
                Err(if flags == READ { Refused::Leased } else { Refused::Busy })
            }
        }
    }
}

/// Returns how long the holder of a lease has to give it up, before the kernel takes it.
pub(super) fn lease_break_time() -> Duration {
    let text = std::fs::read_to_string("/proc/sys/fs/lease-break-time");
    Duration::from_secs(text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(45))
}

/// Returns whether some process holds a lease on some file, or that is not known.
fn leases_are_held() -> bool {
    let locks = std::fs::read_to_string("/proc/locks");
    locks.map_or(true, |locks| locks.contains("LEASE") || locks.contains("DELEG"))
}

/// Opens a regular file by a call that waits: its file system has another reason to tell one that does not to
/// come again. The descriptor is of the file itself, so nothing else can have come to its name.
fn open_waiting(place: &OwnedFd) -> Result<OwnedFd, Refused> {
    let flags = READ.difference(OFlags::NONBLOCK);
    Ok(openat(CWD, format!("/proc/self/fd/{}", place.as_raw_fd()), flags, Mode::empty())?)
}

/// Opens `path` part by part.
fn walk(folder: &OwnedFd, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let mut parts = path.split(|byte| *byte == b'/').peekable();
    let mut here: Option<OwnedFd> = None;
    while let Some(part) = parts.next() {
        // The caller has removed them; a way up would be a way out.
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
    fn a_link_with_an_absolute_target_is_followed_if_that_is_in_the_root() {
        let folder = folder();
        let root = folder.path().join("root");
        symlink(root.join("a/b"), root.join("inner")).unwrap();
        symlink(root.join("inner/file"), root.join("twice")).unwrap();
        symlink(root.join("a/b/up"), root.join("inner-out")).unwrap();
        let root = Root::open(&root).unwrap().by(Way::Kernel { cached: true });
        for path in ["inner/file", "twice"] {
            assert!(matches!(root.find(path.as_bytes(), Patience::None), Err(Refused::WouldWait)), "{path}");
            assert!(matches!(root.find(path.as_bytes(), Patience::Disk), Ok(Found::File(..))), "{path}");
        }
        assert!(matches!(root.find(b"inner-out", Patience::Disk), Err(Refused::Missing)));
    }

    #[test]
    fn a_root_whose_link_was_moved_is_the_other_folder_then() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["1", "2"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
            std::fs::write(folder.path().join(name).join("file"), name).unwrap();
        }
        let current = folder.path().join("current");
        symlink("1", &current).unwrap();
        let root = Root::open(&current).unwrap();
        let (id, before) = (root.id(), root.identity(b"file").unwrap());
        root.reopen();
        assert_eq!(root.id(), id, "nothing has moved");
        symlink("2", folder.path().join("next")).unwrap();
        std::fs::rename(folder.path().join("next"), &current).unwrap();
        root.reopen();
        assert_ne!((root.id(), root.identity(b"file").unwrap()), (id, before));
        std::fs::remove_file(&current).unwrap();
        let id = root.id();
        root.reopen();
        assert_eq!(root.id(), id, "a path that leads nowhere changes nothing");
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
        // The FIFO was not opened: a writer that does not wait finds no reader.
        let writer = openat(CWD, path.join("fifo"), OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty());
        assert_eq!(writer.err(), Some(Errno::NXIO));
        let devices = Root::open(Path::new("/dev")).unwrap();
        assert!(matches!(devices.find(b"zero", Patience::Disk), Err(Refused::Missing)));
    }

    #[test]
    fn errors_are_told_apart_wherever_they_come_from() {
        for (errnos, named) in [
            (&[Errno::ACCESS, Errno::PERM][..], "Forbidden"),
            (&[Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::STALE, Errno::TIMEDOUT], "Busy"),
            (&[Errno::NOENT, Errno::NOTDIR, Errno::NAMETOOLONG, Errno::LOOP, Errno::NODEV], "Missing"),
            (&[Errno::XDEV], "Outside"),
            (&[Errno::IO, Errno::NOSPC, Errno::BADF], "Failed"),
        ] {
            for errno in errnos {
                for refused in [Refused::from(*errno), Refused::from(io::Error::from(*errno))] {
                    assert!(format!("{refused:?}").starts_with(named), "{errno:?}: {refused:?}");
                }
            }
        }
        let refused = Refused::from(io::Error::from(io::ErrorKind::UnexpectedEof));
        assert!(matches!(refused, Refused::Failed(_)), "{refused:?}");
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
