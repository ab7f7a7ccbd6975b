//! Calls that the safe bindings lack, or make past libc.
//!
//! Tools that pretend (fakeroot, pseudo, fakechroot) put functions of their own before libc's. What changes
//! or tells an owner, a mode, a device or an attribute must go through those functions: rustix does so with
//! its feature `use-libc`, except for the changes of mode and owner that are here. `clippy.toml` of this
//! crate forbids rustix's.

use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, RawDir};
use rustix::io::Errno;
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::path::Path;

/// `fchmodat2(2)`, Linux 6.6: the same number on every architecture that has it, but not in all headers yet.
const FCHMODAT2: libc::c_long = 452;

/// Closes a descriptor and returns the error: NFS and quotas may report a failed write only here.
pub(crate) fn close(fd: OwnedFd) -> Result<(), Errno> {
    let fd = fd.into_raw_fd();
    // SAFETY: the descriptor was owned, and ownership ended in the line above: no other code closes it or may
    // use it. Whatever the answer, Linux has released the number (close(2)), so it is not closed twice.
    match unsafe { rustix::io::try_close(fd) } {
        // EINTR: interrupted while flushing; the descriptor is closed anyway.
        Ok(()) | Err(Errno::INTR) => Ok(()),
        Err(why) => Err(why),
    }
}

/// Makes reads and writes through a descriptor wait. `false`: they do already, or it cannot be changed.
///
/// Files are opened with `O_NONBLOCK`, which means nothing for a regular file of most file systems, but does
/// for some of the kernel's own (`/proc/kmsg`), and where another program serves the file.
pub(crate) fn make_waiting(fd: BorrowedFd<'_>) -> bool {
    let Ok(flags) = rustix::fs::fcntl_getfl(fd) else { return false };
    flags.contains(OFlags::NONBLOCK)
        && rustix::fs::fcntl_setfl(fd, flags.difference(OFlags::NONBLOCK)).is_ok()
}

/// Tells the kernel to write what is dirty of a file to the disk, without waiting for it.
pub(crate) fn start_writing(file: BorrowedFd<'_>) -> Result<(), Errno> {
    sync_range(file, libc::SYNC_FILE_RANGE_WRITE)
}

/// Writes what is dirty of a file to the disk and waits for it. Neither metadata nor the disk's own cache is
/// flushed (sync_file_range(2)).
pub(crate) fn wait_written(file: BorrowedFd<'_>) -> Result<(), Errno> {
    let wait = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    sync_range(file, libc::SYNC_FILE_RANGE_WRITE | wait)
}

/// Syncs the whole of a file: from 0, and a length of 0 means to the end.
fn sync_range(file: BorrowedFd<'_>, flags: libc::c_uint) -> Result<(), Errno> {
    // SAFETY: the descriptor is open as long as it is borrowed; the other arguments are integers, and the
    // call reads and writes no memory of this process.
    answered(unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, flags) })
}

/// Writes the data of a file to the disk. A file system that has no such call has no disk to wait for, or
/// does not say when it has written: these answers are no errors.
pub(crate) fn sync_data(file: impl AsFd) -> Result<(), Errno> {
    match rustix::fs::fdatasync(file) {
        Ok(()) | Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::ROFS) => Ok(()),
        Err(why) => Err(why),
    }
}

/// Asks whether this process may do something with a file. Old filters answer EPERM to `faccessat2`, by which
/// libc asks for the effective user; access(2) asks for the real one, mostly the same.
pub(crate) fn may_access(path: &Path, access: Access) -> Result<(), Errno> {
    match rustix::fs::accessat(CWD, path, access, AtFlags::EACCESS) {
        Err(Errno::PERM | Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP) => rustix::fs::access(path, access),
        asked => asked,
    }
}

/// Returns the number of descriptors this process may have, less those that it has beside the standard
/// streams. Programs begin with what their parents leave open, which may be most of the limit.
#[must_use]
pub fn descriptors() -> usize {
    const STANDARD: usize = 3;
    let limit = descriptors_max();
    limit.saturating_sub(open_descriptors(limit).saturating_sub(STANDARD)).max(1)
}

/// Returns the number of descriptors this process may have. Where a filter refuses the question it is the
/// usual one.
fn descriptors_max() -> usize {
    const USUAL: usize = 1024;
    let limit = limit_of(libc::RLIMIT_NOFILE);
    limit.map_or(USUAL, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// Returns the size that the address space of this process may have, if it has a limit.
pub(crate) fn address_space_max() -> Option<u64> {
    limit_of(libc::RLIMIT_AS).filter(|limit| *limit != libc::RLIM_INFINITY)
}

/// The type of the constants `RLIMIT_…`.
#[cfg(target_env = "musl")]
type Resource = libc::c_int;
#[cfg(not(target_env = "musl"))]
type Resource = libc::__rlimit_resource_t;

/// Returns a limit of this process; none is the largest number. `None` where a filter refuses the question,
/// which rustix takes for impossible.
fn limit_of(resource: Resource) -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is that of a local of the right type, which the call writes and does not keep.
    answered(unsafe { libc::getrlimit(resource, &raw mut limit) }).ok()?;
    Some(limit.rlim_cur)
}

/// Returns the number of descriptors below `limit` that are open. Without /proc the first of them are tried
/// one by one, as many as can be short of what a copy needs.
fn open_descriptors(limit: usize) -> usize {
    const TRIED_MOST: usize = 4096;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(listing) = rustix::fs::openat(CWD, "/proc/self/fd", flags, Mode::empty()) else {
        return (0..limit.min(TRIED_MOST))
            // SAFETY: the call takes a number that may be no descriptor, answers so, and changes nothing.
            .filter(|open| unsafe { libc::fcntl(*open as libc::c_int, libc::F_GETFD) } != -1)
            .count();
    };
    let mut room = Vec::with_capacity(32 * 1024);
    let mut entries = RawDir::new(&listing, room.spare_capacity_mut());
    let mut open = 0_usize;
    while let Some(Ok(entry)) = entries.next() {
        let number = entry.file_name().to_str().ok().and_then(|name| name.parse().ok());
        open += usize::from(number.is_some_and(|number: usize| number < limit));
    }
    // Without that of the listing, which is closed below. A close that fails has closed it all the same.
    let _ = close(listing);
    open.saturating_sub(1)
}

/// Takes the error of a libc function that answers 0 or -1. To be called before anything else can set
/// `errno`.
fn answered(answer: impl Into<libc::c_long>) -> Result<(), Errno> {
    if answer.into() == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
    }
}

/// Changes the mode of an open file.
pub(crate) fn chmod(file: impl AsFd, mode: Mode) -> Result<(), Errno> {
    // SAFETY: the descriptor is open as long as it is borrowed, and the mode is an integer; the call reads
    // and writes no memory of this process.
    answered(unsafe { libc::fchmod(file.as_fd().as_raw_fd(), mode.as_raw_mode()) })
}

/// Changes the mode of what a name in a directory leads to; a link is followed.
pub(crate) fn chmod_at(at: impl AsFd, name: &CStr, mode: Mode) -> Result<(), Errno> {
    // SAFETY: the descriptor is open as long as it is borrowed, and the name is a string that ends in NUL;
    // the call reads it and writes no memory of this process.
    answered(unsafe { libc::fchmodat(at.as_fd().as_raw_fd(), name.as_ptr(), mode.as_raw_mode(), 0) })
}

/// Changes owner and group of an open file. `None` leaves one as it is.
pub(crate) fn chown(file: impl AsFd, uid: Option<u32>, gid: Option<u32>) -> Result<(), Errno> {
    let (uid, gid) = (uid.unwrap_or(u32::MAX), gid.unwrap_or(u32::MAX));
    // SAFETY: as for `chmod`. The largest number says that there is to be no change (chown(2)).
    answered(unsafe { libc::fchown(file.as_fd().as_raw_fd(), uid, gid) })
}

/// Returns whether a pattern of a shell matches a name. Slashes and leading dots are like all else.
pub(crate) fn matches(pattern: &CStr, name: &CStr) -> bool {
    // SAFETY: both are strings that end in NUL; the call reads them and writes no memory of this process.
    unsafe { libc::fnmatch(pattern.as_ptr(), name.as_ptr(), 0) == 0 }
}

/// Changes the mode of what an `O_PATH` descriptor holds. `ENOSYS`: this kernel cannot.
pub(crate) fn chmod_held(held: BorrowedFd<'_>, mode: Mode) -> Result<(), Errno> {
    let (fd, mode) = (held.as_raw_fd(), mode.as_raw_mode());
    // SAFETY: the descriptor is open as long as it is borrowed, and the path is a string that ends in NUL;
    // the kernel reads both and writes no memory of ours.
    answered(unsafe { libc::syscall(FCHMODAT2, fd, c"".as_ptr(), mode, libc::AT_EMPTY_PATH) })
}
