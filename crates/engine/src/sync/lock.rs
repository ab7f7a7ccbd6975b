//! A lock that may be held across awaits: that of `async-lock`, counted against the task's budget.

use super::budget::counted;
use std::fmt;
use std::sync::Arc;

pub use async_lock::{MutexGuard, MutexGuardArc};

/// A mutual-exclusion lock that may be held across awaits. Tasks get it in order of arrival.
#[derive(Default)]
#[repr(transparent)]
pub struct Mutex<T: ?Sized>(async_lock::Mutex<T>);

impl<T> Mutex<T> {
    /// Makes a lock around `value`.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(async_lock::Mutex::new(value))
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }

    /// Locks; the guard keeps the lock itself alive.
    #[doc(alias = "lock_owned")]
    pub async fn lock_arc(self: &Arc<Self>) -> MutexGuardArc<T> {
        counted(self.shared().lock_arc()).await
    }

    /// Locks if the lock is free; the guard keeps the lock itself alive.
    pub fn try_lock_arc(self: &Arc<Self>) -> Option<MutexGuardArc<T>> {
        self.shared().try_lock_arc()
    }

    fn shared(self: &Arc<Self>) -> Arc<async_lock::Mutex<T>> {
        let inner = Arc::into_raw(Arc::clone(self)).cast::<async_lock::Mutex<T>>();
        // SAFETY: the pointer is from `into_raw`, and by `repr(transparent)` both types have one layout.
        unsafe { Arc::from_raw(inner) }
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Locks; waits while another task holds the lock. Dropping the future gives up its place in the line.
    pub async fn lock(&self) -> MutexGuard<'_, T> {
        counted(self.0.lock()).await
    }

    /// Locks if the lock is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock()
    }

    /// Locks on a thread without a runtime; blocks.
    #[doc(alias = "blocking_lock")]
    pub fn lock_blocking(&self) -> MutexGuard<'_, T> {
        self.0.lock_blocking()
    }

    /// Returns the value without locking: the borrow is exclusive.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Mutex<T> {
        Mutex::new(value)
    }
}

impl<T: fmt::Debug + ?Sized> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
