//! The descriptor another thread writes to, to end a wait: `eventfd(2)`.

use crate::counters::Counters;
use crate::sys::{check, check_wait};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A new one, not ringing.
pub(crate) fn new() -> io::Result<OwnedFd> {
    made(libc::EFD_CLOEXEC | libc::EFD_NONBLOCK)
}

/// The same for [`wait_for`].
pub(crate) fn waiting() -> io::Result<OwnedFd> {
    made(libc::EFD_CLOEXEC)
}

fn made(flags: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: takes numbers; what it gives is new and known to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(check(libc::eventfd(0, flags))?) })
}

/// Waits until it rings, and stops it. A signal ends the wait too.
pub(crate) fn wait_for(alarm: &OwnedFd) -> io::Result<()> {
    let mut count = 0u64;
    // SAFETY: eight bytes of a live local are written during the call only. (By number, as in `sys::attempt`.)
    let read = unsafe { libc::syscall(libc::SYS_read, alarm.as_raw_fd(), &raw mut count, size_of::<u64>()) };
    check_wait(read).map(|_| ())
}

/// Rings it.
pub(crate) fn ring(alarm: &OwnedFd, counters: &mut Counters) {
    counters.system_calls += 1;
    let one = 1u64;
    // SAFETY: eight bytes of a live local are read during the call only. It cannot fail for any reason but that 2^64
    // - 2 alarms are pending: it rings already.
    unsafe { libc::syscall(libc::SYS_write, alarm.as_raw_fd(), &raw const one, size_of::<u64>()) };
}

/// Stops it ringing, where a wait tells it for as long as it does.
#[cold]
pub(crate) fn silence(alarm: &OwnedFd, counters: &mut Counters) {
    counters.system_calls += 1;
    let mut count = 0u64;
    // SAFETY: eight bytes of a live local are written during the call only.
    unsafe { libc::read(alarm.as_raw_fd(), (&raw mut count).cast(), size_of::<u64>()) };
}
