//! A lock for one writer or many readers, and a cell that is filled once. Both are those of `async-lock`,
//! counted against the task's budget.

use super::budget::counted;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

pub use async_lock::{RwLockReadGuard, RwLockReadGuardArc, RwLockWriteGuard, RwLockWriteGuardArc};

/// A lock for one writer or many readers that may be held across awaits. A waiting writer keeps new readers
/// out, so readers cannot starve it.
#[derive(Default)]
#[repr(transparent)]
pub struct RwLock<T: ?Sized>(async_lock::RwLock<T>);

impl<T> RwLock<T> {
    /// Makes a lock around `value`.
    pub const fn new(value: T) -> RwLock<T> {
        RwLock(async_lock::RwLock::new(value))
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }

    /// Locks for reading; the guard keeps the lock itself alive.
    #[doc(alias = "read_owned")]
    pub async fn read_arc(self: &Arc<Self>) -> RwLockReadGuardArc<T> {
        counted(self.shared().read_arc()).await
    }

    /// Locks for writing; the guard keeps the lock itself alive.
    #[doc(alias = "write_owned")]
    pub async fn write_arc(self: &Arc<Self>) -> RwLockWriteGuardArc<T> {
        counted(self.shared().write_arc()).await
    }

    /// Locks for reading if that is possible now; the guard keeps the lock itself alive.
    pub fn try_read_arc(self: &Arc<Self>) -> Option<RwLockReadGuardArc<T>> {
        self.shared().try_read_arc()
    }

    /// Locks for writing if the lock is free; the guard keeps the lock itself alive.
    pub fn try_write_arc(self: &Arc<Self>) -> Option<RwLockWriteGuardArc<T>> {
        self.shared().try_write_arc()
    }

    fn shared(self: &Arc<Self>) -> Arc<async_lock::RwLock<T>> {
        let inner = Arc::into_raw(Arc::clone(self)).cast::<async_lock::RwLock<T>>();
        // SAFETY: the pointer is from `into_raw`, and by `repr(transparent)` both types have one layout.
        unsafe { Arc::from_raw(inner) }
    }
}

impl<T> From<T> for RwLock<T> {
    fn from(value: T) -> RwLock<T> {
        RwLock::new(value)
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Locks for reading; waits while a writer holds the lock or waits for it. Dropping the future gives up
    /// its place in the line.
    pub async fn read(&self) -> RwLockReadGuard<'_, T> {
        counted(self.0.read()).await
    }

    /// Locks for writing; waits while another task holds the lock.
    pub async fn write(&self) -> RwLockWriteGuard<'_, T> {
        counted(self.0.write()).await
    }

    /// Locks for reading if that is possible now.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        self.0.try_read()
    }

    /// Locks for writing if the lock is free.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        self.0.try_write()
    }

    /// Locks for reading on a thread without a runtime; blocks.
    pub fn read_blocking(&self) -> RwLockReadGuard<'_, T> {
        self.0.read_blocking()
    }

    /// Locks for writing on a thread without a runtime; blocks.
    pub fn write_blocking(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write_blocking()
    }

    /// Returns the value without locking: the borrow is exclusive.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

impl<T: fmt::Debug + ?Sized> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A cell that a future fills once, even if several tasks request its value.
pub struct OnceCell<T>(async_lock::OnceCell<T>);

impl<T> OnceCell<T> {
    /// Makes an empty cell.
    pub const fn new() -> OnceCell<T> {
        OnceCell(async_lock::OnceCell::new())
    }

    /// Returns the value, if there is one.
    pub fn get(&self) -> Option<&T> {
        self.0.get()
    }

    /// Fills the cell.
    ///
    /// # Errors
    /// The cell is full: `value` is returned. Waits while another task fills it.
    pub async fn set(&self, value: T) -> Result<&T, T> {
        counted(self.0.set(value)).await
    }

    /// Returns the value. If the cell is empty, fills it with the output of `init`. If several tasks call
    /// this, one runs its future, and the others wait. If that future is dropped, another task runs its own.
    pub async fn get_or_init<F: Future<Output = T>>(&self, init: impl FnOnce() -> F) -> &T {
        counted(self.0.get_or_init(init)).await
    }

    /// Works as [`get_or_init`](Self::get_or_init), with a future that may fail. After an error the cell is
    /// empty.
    ///
    /// # Errors
    /// That of the future.
    pub async fn get_or_try_init<E, F>(&self, init: impl FnOnce() -> F) -> Result<&T, E>
    where
        F: Future<Output = Result<T, E>>,
    {
        counted(self.0.get_or_try_init(init)).await
    }

    /// Waits until another task has filled the cell.
    pub async fn wait(&self) -> &T {
        counted(self.0.wait()).await
    }

    /// Returns the value.
    pub fn into_inner(self) -> Option<T> {
        self.0.into_inner()
    }
}

impl<T> Default for OnceCell<T> {
    fn default() -> OnceCell<T> {
        OnceCell::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for OnceCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
