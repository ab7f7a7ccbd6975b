//! The shared state of a connection's task, and the waker for it.

use std::cell::{Cell, RefCell};
use std::task::Waker;

/// No time: the value in a seat that waits for nothing.
pub(crate) const NEVER: u64 = u64::MAX;

/// The state of a connection's task that other tasks read.
#[derive(Default)]
pub(crate) struct Seat {
    /// When its oldest unanswered request was sent, or its connecting began; [`NEVER`]: nothing is due.
    pub(crate) since: Cell<u64>,
    /// The arrival it was given while it was free.
    pub(crate) assigned: Cell<Option<u64>>,
    pub(crate) flags: Cell<u16>,
    pub(crate) waker: RefCell<Option<Waker>>,
}

/// The connection is free and waits for an arrival.
pub(crate) const PARKED: u16 = 1;
/// The timeout of its wait has expired.
pub(crate) const EXPIRED: u16 = 2;
/// At least one answer came.
pub(crate) const SERVED: u16 = 4;
/// The first connect has ended, well or not.
pub(crate) const TRIED: u16 = 8;
/// The connection is open.
pub(crate) const OPEN: u16 = 16;
/// At least one request was sent.
pub(crate) const ASKED: u16 = 32;
/// The connection was lost, and may have been reconnected.
pub(crate) const LOST: u16 = 64;
/// Reconnecting has been given up.
pub(crate) const GIVEN_UP: u16 = 128;
/// An answer came since it was connected.
pub(crate) const ALIVE: u16 = 256;
/// The connection sends one request and is then held open.
pub(crate) const SILENT: u16 = 512;
/// The connection ended after the load, and was owed nothing.
pub(crate) const KEPT: u16 = 1024;

impl Seat {
    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags.get() & flag != 0
    }

    pub(crate) fn set(&self, flag: u16) {
        self.flags.set(self.flags.get() | flag);
    }

    /// Returns whether it was set.
    pub(crate) fn unset(&self, flag: u16) -> bool {
        let flags = self.flags.get();
        self.flags.set(flags & !flag);
        flags & flag != 0
    }

    pub(crate) fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}
