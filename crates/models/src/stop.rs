//! A request to stop a server, from another thread or from a signal handler.
//!
//! One pipe: the read end is in every model's wait set, and the caller gets the write end. No model reads the
//! byte, so one request wakes every waiter and stays visible.

use crate::{Error, Result};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A request to stop that any number of servers can wait for.
#[derive(Debug)]
pub struct Stop {
    seen: OwnedFd,
    ask: OwnedFd,
}

impl Stop {
    /// Makes a stop that is not requested yet.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> Result<Self> {
        let mut ends = [-1; 2];
        // SAFETY: `ends` is two writable ints, which is what pipe2(2) fills, and only during the call.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } < 0 {
            return Err(Error::new("pipe2", io::Error::last_os_error()));
        }
        // SAFETY: pipe2 succeeded, so both numbers are open, new, and known to no other code: they are ours
        // to close.
        let (seen, ask) = unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) };
        Ok(Stop { seen, ask })
    }

    /// Requests the stop. Every server that waits on it stops; further requests have no effect.
    pub fn request(&self) {
        // A full pipe refuses the byte (O_NONBLOCK), and holds a request already then. No other failure is
        // possible while we own both ends, so the result is ignored.
        // SAFETY: the byte is static and only read; the descriptor is open because we own it.
        unsafe { libc::write(self.ask.as_raw_fd(), b"s".as_ptr().cast(), 1) };
    }

    /// Returns the non-blocking end for a signal handler: writing one byte requests the stop.
    pub fn write_end(&self) -> BorrowedFd<'_> {
        self.ask.as_fd()
    }
}

/// The end that becomes readable permanently once a stop is requested. Wait for it; do not read it.
impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.seen.as_fd()
    }
}
