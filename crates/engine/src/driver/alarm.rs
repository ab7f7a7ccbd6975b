//! The eventfd (`eventfd(2)`) that another thread writes to, to end a driver's wait.

use crate::counters::Counters;
use crate::sys::{check, check_wait};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Returns a new alarm with counter 0, non-blocking.
pub(crate) fn new() -> io::Result<OwnedFd> {
    made(libc::EFD_CLOEXEC | libc::EFD_NONBLOCK)
}

/// Returns a new alarm for [`wait_for`]: blocking.
pub(crate) fn waiting() -> io::Result<OwnedFd> {
    made(libc::EFD_CLOEXEC)
}

fn made(flags: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: takes numbers; the descriptor is new and no other code has it.
    Ok(unsafe { OwnedFd::from_raw_fd(check(libc::eventfd(0, flags))?) })
}

/// Waits until the alarm rings, and resets it. A signal ends the wait too.
pub(crate) fn wait_for(alarm: &OwnedFd) -> io::Result<()> {
    let mut count = 0u64;
    // SAFETY: eight bytes of a live local are written during the call only. (By number, as in
    // `sys::attempt`.)
    let read = unsafe { libc::syscall(libc::SYS_read, alarm.as_raw_fd(), &raw mut count, size_of::<u64>()) };
    check_wait(read).map(|_| ())
}

/// Rings the alarm.
pub(crate) fn ring(alarm: &OwnedFd, counters: &mut Counters) {
    counters.system_calls += 1;
    let one = 1u64;
    // SAFETY: eight bytes of a live local are read during the call only. The write fails only if 2^64 - 2
    // alarms are pending, and then the alarm rings already.
    unsafe { libc::syscall(libc::SYS_write, alarm.as_raw_fd(), &raw const one, size_of::<u64>()) };
}

/// Resets the alarm, for level-triggered pollers, which report it as long as its counter is not zero.
#[cold]
pub(crate) fn silence(alarm: &OwnedFd, counters: &mut Counters) {
    counters.system_calls += 1;
    let mut count = 0u64;
    // SAFETY: eight bytes of a live local are written during the call only.
    unsafe { libc::read(alarm.as_raw_fd(), (&raw mut count).cast(), size_of::<u64>()) };
}
