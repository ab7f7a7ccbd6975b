//! The one system call that the safe bindings do not offer safely: closing, with its answer.

use rustix::io::Errno;
use std::os::fd::{IntoRawFd, OwnedFd};

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
