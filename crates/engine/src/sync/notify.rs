//! A notification without a value: one waiting task is woken, or all of them.

use super::budget::counted;
use crate::exec::in_destructor;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Wakes tasks that wait for something that another task or thread has changed.
///
/// [`notify_one`](Notify::notify_one) wakes the task that has waited longest; if none waits, the next
/// [`notified`](Notify::notified) returns immediately. Several calls without a waiting task are kept as one.
/// [`notify_waiters`](Notify::notify_waiters) wakes every task that waits now, and keeps nothing.
///
/// ```
/// use ringroad_engine::{DriverName, Runtime, spawn, sync::Notify};
/// use std::{cell::Cell, rc::Rc};
///
/// Runtime::new(DriverName::Epoll)?.block_on(async {
///     let (ready, value) = (Rc::new(Notify::new()), Rc::new(Cell::new(0)));
///     let (told, set) = (ready.clone(), value.clone());
///     spawn(async move {
///         set.set(7);
///         told.notify_one();
///     })
///     .detach();
///     ready.notified().await;
///     assert_eq!(value.get(), 7);
/// })?;
/// # Ok::<(), ringroad_engine::Error>(())
/// ```
#[derive(Default)]
pub struct Notify {
    state: Mutex<State>,
}

/// Wakers are cloned, woken and dropped outside of this lock, because they are user code.
#[derive(Default)]
struct State {
    /// A notification that no task has taken yet.
    is_kept: bool,
    /// Number of calls of `notify_waiters`.
    calls: u64,
    next: u64,
    /// Waiting tasks, in the order of their arrival.
    waiting: BTreeMap<u64, Waker>,
    /// Tasks that were notified by `notify_one` and have not been polled since.
    told: HashSet<u64>,
}

impl State {
    /// Notifies the task that has waited longest; returns its waker. Keeps the notification if none waits.
    fn tell_one(&mut self) -> Option<Waker> {
        match self.waiting.pop_first() {
            Some((id, waker)) => {
                self.told.insert(id);
                Some(waker)
            }
            None => {
                self.is_kept = true;
                None
            }
        }
    }
}

impl Notify {
    /// Creates a notification that nothing has sent yet.
    pub fn new() -> Notify {
        Notify::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the task that has waited longest, or the next one that waits.
    pub fn notify_one(&self) {
        let waker = self.state().tell_one();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Wakes every task that has called [`notified`](Self::notified) before.
    pub fn notify_waiters(&self) {
        let waiting = {
            let mut state = self.state();
            state.calls += 1;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_values().for_each(Waker::wake);
    }

    /// Waits for a notification. Dropping the future gives up its place and passes a notification that it has
    /// got to the next task.
    ///
    /// A future that exists while [`notify_waiters`](Self::notify_waiters) is called is notified, also before
    /// its first poll.
    pub fn notified(&self) -> impl Future<Output = ()> + '_ {
        let calls = self.state().calls;
        counted(Notified { notify: self, calls, id: None })
    }

    /// Works as [`notified`](Self::notified); the future keeps the notification itself alive.
    pub fn notified_arc(self: &Arc<Self>) -> impl Future<Output = ()> + use<> {
        let (this, calls) = (Arc::clone(self), self.state().calls);
        counted(Notified { notify: this, calls, id: None })
    }
}

/// Future of [`Notify::notified`].
struct Notified<N: std::ops::Deref<Target = Notify>> {
    notify: N,
    /// Number of calls of `notify_waiters` when this was made.
    calls: u64,
    /// Its place, from the first poll until it is ready.
    id: Option<u64>,
}

impl<N: std::ops::Deref<Target = Notify> + Unpin> Future for Notified<N> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let waker = context.waker().clone();
        let this = &mut *self;
        let before;
        {
            let mut state = this.notify.state();
            if state.calls != this.calls {
                // Notified by both: the notification for one goes to the next task when this is dropped.
                return Poll::Ready(());
            }
            match this.id {
                Some(id) if state.told.remove(&id) => {
                    this.id = None;
                    return Poll::Ready(());
                }
                None if std::mem::take(&mut state.is_kept) => return Poll::Ready(()),
                _ => {}
            }
            let id = *this.id.get_or_insert_with(|| {
                state.next += 1;
                state.next
            });
            before = state.waiting.insert(id, waker);
        }
        drop(before);
        Poll::Pending
    }
}

impl<N: std::ops::Deref<Target = Notify>> Drop for Notified<N> {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        let mut state = self.notify.state();
        let own = state.waiting.remove(&id);
        let next = if state.told.remove(&id) { state.tell_one() } else { None };
        drop(state);
        in_destructor(|| {
            if let Some(waker) = next {
                waker.wake();
            }
        });
        in_destructor(|| drop(own));
    }
}

impl fmt::Debug for Notify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notify").field("waiting", &self.state().waiting.len()).finish_non_exhaustive()
    }
}
