//! What others have to know of a connection's task, and how they wake it.

use std::cell::{Cell, RefCell};
use std::task::Waker;

/// No time: what is in a seat while it waits for nothing.
pub(crate) const NEVER: u64 = u64::MAX;

/// What others have to know of a connection's task.
#[derive(Default)]
pub(crate) struct Seat {
    /// When its oldest unanswered request was sent, or its connecting began; [`NEVER`]: nothing is due.
    pub(crate) since: Cell<u64>,
    /// The arrival it was given while it was free.
    pub(crate) assigned: Cell<Option<u64>>,
    pub(crate) flags: Cell<u16>,
    pub(crate) waker: RefCell<Option<Waker>>,
}

/// It waits for an arrival.
pub(crate) const PARKED: u16 = 1;
/// What it waits for takes too long.
pub(crate) const EXPIRED: u16 = 2;
/// It got an answer at least once.
pub(crate) const SERVED: u16 = 4;
/// It has had its first try.
pub(crate) const TRIED: u16 = 8;
/// It is connected.
pub(crate) const OPEN: u16 = 16;
/// It has sent a request at least once.
pub(crate) const ASKED: u16 = 32;
/// It was lost, and may have been made again.
pub(crate) const LOST: u16 = 64;
/// Nobody tries to make it any more.
pub(crate) const GIVEN_UP: u16 = 128;
/// It has got an answer since it was made.
pub(crate) const ALIVE: u16 = 256;
/// It sends one request and is then held open.
pub(crate) const SILENT: u16 = 512;

impl Seat {
    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags.get() & flag != 0
    }

    pub(crate) fn set(&self, flag: u16) {
        self.flags.set(self.flags.get() | flag);
    }

    /// Whether it was set.
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
