//! The alarm: the eventfd that a driver waits on, written by another thread to end the wait.
//!
//! Start at [`of`].

use super::inbox::Alarm;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// Returns the alarm for this eventfd; without one, an alarm that has no effect.
pub(super) fn of(eventfd: Option<Arc<OwnedFd>>) -> Box<dyn Alarm> {
    match eventfd {
        Some(fd) => Box::new(EventFd(fd)),
        None => Box::new(NoAlarm),
    }
}

/// An alarm that writes to an eventfd.
struct EventFd(Arc<OwnedFd>);

impl Alarm for EventFd {
    fn raise(&self) {
        let one = 1u64;
        // SAFETY: eight bytes of a live local are read during the call; the descriptor is open while we own
        // it. EAGAIN means that 2^64 - 2 alarms are pending, so it rings already.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), size_of::<u64>()) };
    }
}

/// For drivers that no other thread can wake.
struct NoAlarm;

impl Alarm for NoAlarm {
    fn raise(&self) {}
}
