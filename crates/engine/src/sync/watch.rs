//! A value that changes, with receivers that see its latest state.
//!
//! A slow receiver misses intermediate values and never the last one. For every value use
//! [`broadcast`](super::broadcast).

use super::budget::counted;
use event_listener::{Event, listener};
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

/// Makes a channel with this first value, which counts as seen.
///
/// ```
/// use ringroad_engine::{DriverName, Runtime, spawn, sync::watch};
///
/// Runtime::new(DriverName::Epoll)?.block_on(async {
///     let (sender, mut receiver) = watch::channel("starting");
///     spawn(async move {
///         sender.send("ready").unwrap();
///     })
///     .detach();
///     receiver.changed().await.unwrap();
///     assert_eq!(*receiver.borrow_and_update(), "ready");
/// })?;
/// # Ok::<(), ringroad_engine::Error>(())
/// ```
pub fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared {
        value: RwLock::new(Versioned { value, version: 0 }),
        changed: Event::new(),
        abandoned: Event::new(),
        senders: AtomicUsize::new(1),
        receivers: AtomicUsize::new(1),
    });
    (Sender { shared: Arc::clone(&shared) }, Receiver { shared, seen: 0 })
}

struct Shared<T> {
    value: RwLock<Versioned<T>>,
    /// The value has changed, or the last sender was dropped.
    changed: Event,
    /// The last receiver was dropped.
    abandoned: Event,
    senders: AtomicUsize,
    receivers: AtomicUsize,
}

struct Versioned<T> {
    value: T,
    version: u64,
}

impl<T> Shared<T> {
    fn read(&self) -> RwLockReadGuard<'_, Versioned<T>> {
        self.value.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The latest value, borrowed. While it exists no sender can change the value: drop it before an await.
pub struct Ref<'a, T>(RwLockReadGuard<'a, Versioned<T>>);

impl<T> Deref for Ref<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Ref<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// The sending side. Each clone is a sender.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Sender<T> {
    /// Replaces the value and wakes the receivers.
    ///
    /// # Errors
    /// There is no receiver: the value comes back, and nothing has changed.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        if self.receiver_count() == 0 {
            return Err(SendError(value));
        }
        self.send_replace(value);
        Ok(())
    }

    /// Replaces the value, also without receivers; returns the previous one.
    pub fn send_replace(&self, mut value: T) -> T {
        self.send_modify(|held| std::mem::swap(held, &mut value));
        value
    }

    /// Changes the value in place and wakes the receivers.
    pub fn send_modify(&self, change: impl FnOnce(&mut T)) {
        self.send_if_modified(|value| {
            change(value);
            true
        });
    }

    /// Changes the value in place; wakes the receivers if `change` returns that it has changed it. Returns
    /// that too.
    pub fn send_if_modified(&self, change: impl FnOnce(&mut T) -> bool) -> bool {
        {
            let mut held = self.shared.value.write().unwrap_or_else(PoisonError::into_inner);
            if !change(&mut held.value) {
                return false;
            }
            held.version += 1;
        }
        self.shared.changed.notify(usize::MAX);
        true
    }

    /// Borrows the value.
    pub fn borrow(&self) -> Ref<'_, T> {
        Ref(self.shared.read())
    }

    /// Makes a receiver that has seen the present value.
    pub fn subscribe(&self) -> Receiver<T> {
        self.shared.receivers.fetch_add(1, Ordering::AcqRel);
        let seen = self.shared.read().version;
        Receiver { shared: Arc::clone(&self.shared), seen }
    }

    /// Returns the number of senders.
    pub fn sender_count(&self) -> usize {
        self.shared.senders.load(Ordering::Acquire)
    }

    /// Returns whether both belong to the same channel.
    pub fn same_channel(&self, other: &Sender<T>) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Returns the number of receivers.
    pub fn receiver_count(&self) -> usize {
        self.shared.receivers.load(Ordering::Acquire)
    }

    /// Returns whether there is no receiver.
    pub fn is_closed(&self) -> bool {
        self.receiver_count() == 0
    }

    /// Waits until there is no receiver.
    pub async fn closed(&self) {
        counted(async {
            while !self.is_closed() {
                listener!(self.shared.abandoned => abandoned);
                if !self.is_closed() {
                    abandoned.await;
                }
            }
        })
        .await;
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.shared.senders.fetch_add(1, Ordering::Relaxed);
        Sender { shared: Arc::clone(&self.shared) }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.shared.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.changed.notify(usize::MAX);
        }
    }
}

/// The receiving side. Each clone is a receiver that has seen the same value.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    /// The version that was seen last.
    seen: u64,
}

impl<T> Receiver<T> {
    /// Borrows the latest value. It still counts as not seen.
    pub fn borrow(&self) -> Ref<'_, T> {
        Ref(self.shared.read())
    }

    /// Borrows the latest value and marks it as seen.
    pub fn borrow_and_update(&mut self) -> Ref<'_, T> {
        let held = self.shared.read();
        self.seen = held.version;
        Ref(held)
    }

    /// Marks the present value as not seen: the next [`changed`](Self::changed) is ready.
    pub fn mark_changed(&mut self) {
        self.seen = self.shared.read().version.wrapping_sub(1);
    }

    /// Marks the present value as seen.
    pub fn mark_unchanged(&mut self) {
        self.seen = self.shared.read().version;
    }

    /// Returns whether both belong to the same channel.
    pub fn same_channel(&self, other: &Receiver<T>) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Returns whether there is a value that was not seen.
    ///
    /// # Errors
    /// Every sender was dropped.
    pub fn has_changed(&self) -> Result<bool, RecvError> {
        let changed = self.shared.read().version != self.seen;
        if !changed && self.shared.senders.load(Ordering::Acquire) == 0 {
            return Err(RecvError);
        }
        Ok(changed)
    }

    /// Waits for a value that was not seen, and marks it as seen. Dropping the future changes nothing.
    ///
    /// # Errors
    /// Every sender was dropped, and the last value was seen.
    pub async fn changed(&mut self) -> Result<(), RecvError> {
        let version = counted(next(&self.shared, self.seen)).await?;
        self.seen = version;
        Ok(())
    }

    /// Waits until `is_wanted` holds for the value; returns it, as seen.
    ///
    /// # Errors
    /// Every sender was dropped before it did.
    pub async fn wait_for(&mut self, mut is_wanted: impl FnMut(&T) -> bool) -> Result<Ref<'_, T>, RecvError> {
        loop {
            // The borrow checker does not follow a borrow that is returned on one way only, so the guard is
            // taken apart from its receiver.
            let shared = &self.shared;
            let version = {
                let held = shared.read();
                if is_wanted(&held.value) {
                    self.seen = held.version;
                    return Ok(Ref(held));
                }
                held.version
            };
            self.seen = counted(next(shared, version)).await?;
        }
    }
}

/// Waits for another version than `seen`; returns it.
async fn next<T>(shared: &Shared<T>, seen: u64) -> Result<u64, RecvError> {
    loop {
        listener!(shared.changed => changed);
        // The senders are counted before the version is read: a sender changes the value before it is
        // dropped.
        let senders = shared.senders.load(Ordering::Acquire);
        let version = shared.read().version;
        if version != seen {
            return Ok(version);
        }
        if senders == 0 {
            return Err(RecvError);
        }
        changed.await;
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Receiver<T> {
        self.shared.receivers.fetch_add(1, Ordering::AcqRel);
        Receiver { shared: Arc::clone(&self.shared), seen: self.seen }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        if self.shared.receivers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.abandoned.notify(usize::MAX);
        }
    }
}

/// Error: no receiver. Has the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendError<T>(pub T);

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no receiver watches the value")
    }
}

impl<T: fmt::Debug> std::error::Error for SendError<T> {}

/// Error: no sender is left to change the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvError;

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no sender is left to change the value")
    }
}

impl std::error::Error for RecvError {}

impl<T: fmt::Debug> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("watch::Sender").field(&self.borrow()).finish()
    }
}

impl<T: fmt::Debug> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("watch::Receiver").field(&self.borrow()).finish()
    }
}
