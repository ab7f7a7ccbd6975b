//! Temporary names of unfinished copies, and the removal of those left by dead processes.
//!
//! A copy that replaces a file is made beside it, as `.ringroad-BOOT-NAMESPACE-PID-START-NUMBER.part`, and
//! locked (`flock(2)`) while it is written. A process that is killed leaves such a file; `resume` removes it.
//! A manifest is made as such a file too, with its own name in front; the next copy with that manifest
//! removes it. Whether the maker lives can be looked up only where process numbers mean the same: under the
//! same kernel since the same boot (BOOT), in the same PID namespace (NAMESPACE). In a container, after a
//! restart, or on a shared file system, the lock says it, and because a lock is taken a moment after the file
//! is made, what changed within [`YOUNG`] is left alone there.
//!
//! INVARIANT: what is removed has the whole form of such a name, and no process holds its lock.

use crate::error::{Error, ErrorKind};
use crate::worker::Worker;
use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, RawDir};
use rustix::io::Errno;
use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

const PREFIX: &str = ".ringroad-";
const SUFFIX: &str = ".part";
/// Maximum length of a prefix: with the rest the name has to fit into 255 bytes.
const FRONT_BYTES: usize = 160;
/// A file changed this recently may belong to a running process that cannot be looked up.
const YOUNG: Duration = Duration::from_secs(60);

/// A process among all that may see a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Maker {
    /// The first digits of the kernel's boot id, and the inode of the PID namespace; 0 where they are
    /// unknown.
    boot: u32,
    namespace: u64,
    pid: u32,
    /// When it began, in clock ticks after boot: its number may have been another's before.
    start: u64,
}

impl Maker {
    /// This process.
    pub(crate) fn this() -> Maker {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
        let namespace = rustix::fs::stat(c"/proc/self/ns/pid").ok();
        let pid = std::process::id();
        Maker {
            boot: boot.and_then(|id| u32::from_str_radix(id.get(..8)?, 16).ok()).unwrap_or(0),
            namespace: namespace.map_or(0, |facts| facts.st_ino),
            pid,
            start: start_of(pid).unwrap_or(0),
        }
    }

    /// Returns the name of its copy `number`.
    fn name(self, number: u64) -> CString {
        let Maker { boot, namespace, pid, start } = self;
        let name = format!("{PREFIX}{boot:08x}-{namespace}-{pid}-{start}-{number}{SUFFIX}");
        CString::new(name).unwrap_or_default()
    }

    /// Returns the process that made a temporary file of this name, with the prefix `front`.
    fn of(front: &[u8], name: &CStr) -> Option<Maker> {
        let name = std::str::from_utf8(name.to_bytes().strip_prefix(front)?).ok()?;
        let parts = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
        let mut parts = parts.split('-');
        let boot = parts.next().filter(|digits| digits.len() == 8)?;
        let maker = Maker {
            boot: u32::from_str_radix(boot, 16).ok()?,
            namespace: parts.next()?.parse().ok()?,
            pid: parts.next()?.parse().ok()?,
            start: parts.next()?.parse().ok()?,
        };
        parts.next()?.parse::<u64>().ok()?;
        parts.next().is_none().then_some(maker)
    }

    /// Returns whether this process could look the other up.
    fn sees(self, other: Maker) -> bool {
        let place = |maker: Maker| (maker.boot, maker.namespace);
        place(self) == place(other) && self.boot != 0 && self.namespace != 0
    }
}

/// Returns when process `pid` began; `None` where there is none to be seen.
fn start_of(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold anything, spaces and brackets too; behind its last bracket are numbers only.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(19)?.parse().ok()
}

/// Returns what stands in front of the name of a manifest in the making, or of another file made for `path`.
fn front(path: &Path) -> &[u8] {
    let name = path.file_name().unwrap_or_default().as_bytes();
    name.get(..FRONT_BYTES).unwrap_or(name)
}

/// Returns a new file beside `path`, locked, with a name that begins as that of `path` does.
pub(crate) fn create_beside(path: &Path, maker: Maker) -> io::Result<(PathBuf, File)> {
    let mut number = 0;
    loop {
        let name = [front(path), maker.name(number).as_bytes()].concat();
        let made = path.with_file_name(OsStr::from_bytes(&name));
        match File::options().read(true).write(true).create_new(true).open(&made) {
            Ok(file) => {
                lock(file.as_fd());
                return Ok((made, file));
            }
            // This process makes more than one.
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(why) => return Err(why),
        }
    }
}

/// Returns a file without a name, which goes when it is closed, on the file system of `path`.
pub(crate) fn unnamed_beside(path: &Path, maker: Maker) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::openat(CWD, folder_of(path), flags, Mode::RUSR | Mode::WUSR) {
        Ok(fd) => Ok(fd.into()),
        // A file system without such files.
        Err(_) => {
            let (path, file) = create_beside(path, maker)?;
            rustix::fs::unlinkat(CWD, &path, AtFlags::empty())?;
            Ok(file)
        }
    }
}

/// Returns whether a name is that of a copy in the making, of this process or another.
pub(crate) fn has_form(name: &CStr) -> bool {
    Maker::of(b"", name).is_some()
}

/// Returns whether `maker` makes, or made, a file of this name beside `path`.
pub(crate) fn is_made_beside(path: &Path, maker: Maker, name: &CStr) -> bool {
    Maker::of(front(path), name) == Some(maker)
}

/// Returns the folder that a file is in, as it can be opened.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Marks a copy as in the making for other processes, until it is closed. Where there are no locks, no
/// process gets one.
pub(crate) fn lock(copy: BorrowedFd<'_>) {
    let _ = rustix::fs::flock(copy, FlockOperation::NonBlockingLockExclusive);
}

/// Returns whether the process that made this copy has ended, as far as this process can tell.
fn is_leftover(this: Maker, directory: BorrowedFd<'_>, front: &[u8], name: &CStr) -> bool {
    let Some(maker) = Maker::of(front, name) else { return false };
    if !this.sees(maker) {
        return is_let_go(directory, name, YOUNG);
    }
    // A process that is hidden from this one still holds its lock.
    start_of(maker.pid) != Some(maker.start) && is_let_go(directory, name, Duration::ZERO)
}

/// Returns whether no process has locked a copy, and it did not change within `young`. In doubt it is not.
fn is_let_go(directory: BorrowedFd<'_>, name: &CStr, young: Duration) -> bool {
    // Where locks are those of a server, an exclusive one needs an open for writing.
    // Anything else that has the name is not opened.
    if !crate::dir::lstat(directory, name).is_ok_and(|facts| facts.kind == FileType::RegularFile) {
        return false;
    }
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let Ok(copy) = rustix::fs::openat(directory, name, flags, Mode::empty()) else { return false };
    let Ok(facts) = rustix::fs::fstat(&copy) else { return false };
    let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(facts.st_ctime.unsigned_abs());
    let age = SystemTime::now().duration_since(changed).unwrap_or_default();
    FileType::from_raw_mode(facts.st_mode) == FileType::RegularFile
        && age >= young
        && rustix::fs::flock(&copy, FlockOperation::NonBlockingLockExclusive).is_ok()
}

impl Worker<'_, '_> {
    /// Returns a name for a copy in the making, next to where it will be.
    pub(crate) fn temporary_name(&self) -> CString {
        let number = self.run.temporary.fetch_add(1, Ordering::Relaxed);
        self.run.maker.get_or_init(Maker::this).name(number)
    }

    /// Removes unfinished copies of killed processes from the directory `path`.
    pub(crate) fn remove_leftovers(&mut self, directory: BorrowedFd<'_>, path: impl Fn() -> PathBuf) {
        self.remove_leftovers_after(b"", directory, path);
    }

    /// Removes what killed processes left beside `path` when they made it.
    pub(crate) fn remove_leftovers_of(&mut self, path: &Path) {
        let folder = folder_of(path);
        // What may not be opened has its own error, where it matters.
        let Ok(directory) = rustix::fs::open(folder, crate::dir::OPEN_DIRECTORY, Mode::empty()) else {
            return;
        };
        self.remove_leftovers_after(front(path), directory.as_fd(), || folder.to_path_buf());
    }

    fn remove_leftovers_after(
        &mut self,
        front: &[u8],
        directory: BorrowedFd<'_>,
        path: impl Fn() -> PathBuf,
    ) {
        // A listing of its own, with its own position.
        let listing = rustix::fs::openat(directory, c".", crate::dir::OPEN_DIRECTORY, Mode::empty());
        // What may not be listed has its own error, where it matters.
        let Ok(listing) = listing else { return };
        let this = *self.run.maker.get_or_init(Maker::this);
        let mut buffer = Vec::with_capacity(1 << 15);
        let mut entries = RawDir::new(&listing, buffer.spare_capacity_mut());
        while let Some(Ok(found)) = entries.next() {
            let name = found.file_name();
            if !is_leftover(this, listing.as_fd(), front, name) {
                continue;
            }
            match rustix::fs::unlinkat(&listing, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(why) => {
                    let path = path().join(crate::dir::os(name));
                    self.tell(Error::system(ErrorKind::Remove, path, why));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_name_identifies_its_maker_and_no_other_name_does() {
        let this = Maker::this();
        assert_eq!(Maker::of(b"", &this.name(7)), Some(this));
        assert_eq!(Maker::of(b"list", &this.name(7)), None, "another name is in front");
        for alike in [
            c".ringroad-mine.part",
            c".ringroad-0-1-2-3-4.part",
            c".ringroad-00000000-1-2-3.part",
            c".ringroad-00000000-1-2-3-4-5.part",
            c".ringroad-00000000-1-2-3-x.part",
            c"ringroad-00000000-1-2-3-4.part",
            c".ringroad-00000000-1-2-3-4.parts",
        ] {
            assert_eq!(Maker::of(b"", alike), None, "{alike:?}");
        }
    }

    #[test]
    fn what_was_made_beside_a_file_is_found_by_the_name_of_that_file() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let directory = File::open(folder.path())?;
        let this = Maker::this();
        if this.boot == 0 || this.start == 0 {
            eprintln!("skipped: this system does not tell who its processes are");
            return Ok(());
        }
        let gone = Maker { pid: u32::MAX - 1, ..this };
        for name in ["list", &"n".repeat(255)] {
            let path = folder.path().join(name);
            let (first, held) = create_beside(&path, gone)?;
            let (second, let_go) = create_beside(&path, gone)?;
            drop(let_go);
            let found = |made: &Path| {
                let name = CString::new(made.file_name().unwrap_or_default().as_bytes())?;
                Ok::<_, io::Error>(is_leftover(this, directory.as_fd(), front(&path), &name))
            };
            assert!(!found(&first)?, "it is still being made");
            assert!(found(&second)?);
            drop(held);
            assert!(found(&first)?);
        }
        Ok(())
    }

    #[test]
    fn a_copy_is_left_alone_while_its_maker_lives_or_holds_its_lock_or_may_do_so() -> std::io::Result<()> {
        let folder = tempfile::tempdir()?;
        let directory = std::fs::File::open(folder.path())?;
        let path = |maker: Maker| folder.path().join(crate::dir::os(&maker.name(0)));
        let this = Maker::this();
        // Larger than any process id.
        let gone = Maker { pid: u32::MAX - 1, ..this };
        let before = Maker { start: this.start.wrapping_add(1), ..this };
        let elsewhere = Maker { boot: this.boot ^ 1, ..gone };
        let nowhere = Maker { boot: 0, namespace: 0, ..gone };
        let left = |by: Maker, maker: Maker| {
            std::fs::write(path(maker), "half")?;
            Ok::<_, std::io::Error>(is_leftover(by, directory.as_fd(), b"", &maker.name(0)))
        };
        if this.boot != 0 && this.start != 0 {
            assert!(!left(this, this)?, "it lives");
            assert!(left(this, gone)?, "there is no such process");
            assert!(left(this, before)?, "the number is another process's now");
            let held = std::fs::File::open(path(gone))?;
            lock(held.as_fd());
            assert!(!left(this, gone)?, "it cannot be seen, and holds its lock");
        }
        assert!(!left(this, elsewhere)?, "nobody can look its maker up, and it changed just now");
        assert!(!left(nowhere, nowhere)?, "two that do not know where they are are not in one place");
        let name = elsewhere.name(0);
        assert!(is_let_go(directory.as_fd(), &name, Duration::ZERO), "an older one would go");
        let held = std::fs::File::open(path(elsewhere))?;
        lock(held.as_fd());
        assert!(!is_let_go(directory.as_fd(), &name, Duration::ZERO), "but not while it is locked");
        Ok(())
    }
}
