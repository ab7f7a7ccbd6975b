//! The caller of a poll: its waker, in a form that is safe to use while engine state is borrowed.
//!
//! Cloning a foreign waker runs foreign code, which may use this runtime. So it is cloned once per poll,
//! before anything is borrowed, and code that has to keep a waker takes that clone. The engine's own wakers
//! are numbers (`exec::waker`), and cloning them costs nothing.

use std::cell::Cell;
use std::task::Waker;

/// The waker of a poll, with a spare clone. Both outlive every borrow of engine state during the poll.
pub(crate) struct Caller<'a> {
    waker: &'a Waker,
    spare: Cell<Option<Waker>>,
}

impl<'a> Caller<'a> {
    /// Returns the caller for a task of the engine: cloning its waker runs no foreign code.
    #[inline]
    pub(crate) fn ours(waker: &'a Waker) -> Caller<'a> {
        Caller { waker, spare: Cell::new(None) }
    }

    /// Returns the caller for any waker, and clones it now.
    pub(crate) fn any(waker: &'a Waker) -> Caller<'a> {
        Caller { waker, spare: Cell::new(Some(waker.clone())) }
    }

    /// Returns whether this waker would wake the same task.
    #[inline]
    pub(crate) fn is(&self, waker: &Waker) -> bool {
        waker.will_wake(self.waker)
    }

    /// Returns an owned waker. Called at most once per poll.
    #[inline]
    pub(crate) fn waker(&self) -> Waker {
        self.spare.take().unwrap_or_else(|| self.waker.clone())
    }
}
