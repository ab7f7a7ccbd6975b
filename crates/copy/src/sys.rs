//! The system calls that the safe bindings do not offer, or not safely: closing, with its answer; changing the mode of what
//! is held by a descriptor that cannot be read or written.

use rustix::fs::Mode;
use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};

/// `fchmodat2(2)`, Linux 6.6: the same number on every architecture that has it, but not in all headers yet.
const FCHMODAT2: libc::c_long = 452;

/// Closes, and says what the file system has to say: NFS and quotas report here what a write could not.
pub(crate) fn close(fd: OwnedFd) -> Result<(), Errno> {
    let fd = fd.into_raw_fd();
    // SAFETY: the descriptor was owned, and ownership ended in the line above: nobody else closes it or may use
    // it. Whatever the answer, Linux has released the number (close(2)), so it is not closed twice.
    match unsafe { rustix::io::try_close(fd) } {
        // Interrupted while flushing; the number is gone all the same.
        Ok(()) | Err(Errno::INTR) => Ok(()),
        Err(why) => Err(why),
    }
}

/// Changes the mode of what an `O_PATH` descriptor holds. `ENOSYS`: this kernel cannot.
pub(crate) fn chmod_held(held: BorrowedFd<'_>, mode: Mode) -> Result<(), Errno> {
    let (fd, mode) = (held.as_raw_fd(), mode.as_raw_mode());
    // SAFETY: the descriptor is open as long as it is borrowed, and the path is a string that ends in NUL; the kernel reads
    // both and writes no memory of ours.
    let answer = unsafe { libc::syscall(FCHMODAT2, fd, c"".as_ptr(), mode, libc::AT_EMPTY_PATH) };
    if answer == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
    }
}
