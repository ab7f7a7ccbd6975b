//! The descriptor another thread writes to, to end a wait: `eventfd(2)`.

use crate::counters::Counters;
use crate::sys::check;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A new one, not ringing.
pub(crate) fn new() -> io::Result<OwnedFd> {
    let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
    // SAFETY: takes numbers; what it gives is new and known to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(check(libc::eventfd(0, flags))?) })
}

/// Stops it ringing, where a wait tells it for as long as it does.
#[cold]
pub(crate) fn silence(alarm: &OwnedFd, counters: &mut Counters) {
    counters.system_calls += 1;
    let mut count = 0u64;
    // SAFETY: eight bytes of a live local are written during the call only.
    unsafe { libc::read(alarm.as_raw_fd(), (&raw mut count).cast(), size_of::<u64>()) };
}
