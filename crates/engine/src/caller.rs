//! Who polls: the waker of a future's task, as what is borrowed may handle it.
//!
//! Cloning a waker that is not ours is somebody else's code, which may use this very runtime. So it is cloned before
//! anything is borrowed, once for each poll, and whoever has to keep it takes that clone. Ours are numbers
//! (`exec::waker`), and cost nothing here.

use std::cell::Cell;
use std::task::Waker;

/// The waker a future is polled with. It outlives every borrow that is taken in its name, and so does its spare.
pub(crate) struct Caller<'a> {
    waker: &'a Waker,
    spare: Cell<Option<Waker>>,
}

impl<'a> Caller<'a> {
    /// One of our tasks: to clone its waker runs nobody's code.
    #[inline]
    pub(crate) fn ours(waker: &'a Waker) -> Caller<'a> {
        Caller { waker, spare: Cell::new(None) }
    }

    /// Anybody, who is called here.
    pub(crate) fn anybody(waker: &'a Waker) -> Caller<'a> {
        Caller { waker, spare: Cell::new(Some(waker.clone())) }
    }

    /// Whether this waker would wake the same.
    #[inline]
    pub(crate) fn is(&self, waker: &Waker) -> bool {
        waker.will_wake(self.waker)
    }

    /// To be kept. A poll needs one at most: it has told the one who is to wake it, and returns.
    #[inline]
    pub(crate) fn waker(&self) -> Waker {
        self.spare.take().unwrap_or_else(|| self.waker.clone())
    }
}
