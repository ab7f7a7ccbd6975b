//! Asking a server to stop, from another thread or from a signal handler.
//!
//! One pipe: the read end stands in every model's wait set, the write end is given to the caller. No model
//! ever reads the byte, so one request is seen by every waiter and stays visible.

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
    /// Makes one that has not been requested.
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

    /// Asks for the stop. Every server waiting on this stops; asking again changes nothing.
    pub fn request(&self) {
        // A full pipe refuses the byte (O_NONBLOCK), and then it holds a request already; no other failure is
        // possible while we own both ends. So the result carries no news.
        // SAFETY: the byte is static and only read; the descriptor is open because we own it.
        unsafe { libc::write(self.ask.as_raw_fd(), b"s".as_ptr().cast(), 1) };
    }

    /// Returns the end to which a signal handler may write one byte: that is a request. Non-blocking.
    pub fn write_end(&self) -> BorrowedFd<'_> {
        self.ask.as_fd()
    }
}

/// The end that becomes readable, for good, once a stop is requested. Wait for it; do not read it.
impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.seen.as_fd()
    }
}
