//! A set of tasks that are joined in the order in which they end, and cancelled together.

use crate::exec::{CancelHandle, JoinError, JoinHandle, in_destructor, spawn};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A set of tasks of one runtime. Dropping it cancels those that have not ended, in the order in which they
/// were added, as [`cancel_all`](Self::cancel_all) does.
///
/// ```
/// use ringroad_engine::{DriverName, JoinSet, Runtime};
///
/// Runtime::new(DriverName::Epoll)?.block_on(async {
///     let mut set = JoinSet::new();
///     for number in 1..=3 {
///         set.spawn(async move { number * number });
///     }
///     let mut sum = 0;
///     while let Some(joined) = set.join_next().await {
///         sum += joined.unwrap();
///     }
///     assert_eq!(sum, 14);
/// })?;
/// # Ok::<(), ringroad_engine::Error>(())
/// ```
pub struct JoinSet<T> {
    /// In the order in which they were added, which is the order in which all are cancelled.
    tasks: BTreeMap<u64, JoinHandle<T>>,
    next: u64,
    ended: Rc<RefCell<Ended>>,
}

/// Reports of the tasks.
#[derive(Default)]
struct Ended {
    /// Tasks that have ended, in this order, and are not joined yet.
    ids: VecDeque<u64>,
    /// Waker of the task that waits for the next one.
    waiting: Option<Waker>,
}

/// Reports the end of a task when its future is dropped: after its output, a panic or a cancel.
struct Report {
    id: u64,
    ended: Rc<RefCell<Ended>>,
}

impl Drop for Report {
    fn drop(&mut self) {
        let waiting = {
            let mut ended = self.ended.borrow_mut();
            ended.ids.push_back(self.id);
            ended.waiting.take()
        };
        if let Some(waker) = waiting {
            in_destructor(|| waker.wake());
        }
    }
}

impl<T: 'static> JoinSet<T> {
    /// Makes an empty set.
    pub fn new() -> JoinSet<T> {
        JoinSet { tasks: BTreeMap::new(), next: 0, ended: Rc::default() }
    }

    /// Starts a task on the current runtime and adds it to the set. Returns a handle that cancels only this
    /// task; the task is then joined as cancelled.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn spawn(&mut self, future: impl Future<Output = T> + 'static) -> CancelHandle {
        let id = self.next;
        self.next += 1;
        let report = Report { id, ended: Rc::clone(&self.ended) };
        let task = spawn(async move {
            let _report = report;
            future.await
        });
        let handle = task.cancel_handle();
        self.tasks.insert(id, task);
        handle
    }

    /// Returns the number of tasks that were not joined.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Returns whether every task was joined.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Waits for the next task that ends, and removes it; `None` if the set is empty. Dropping the future
    /// loses nothing.
    pub async fn join_next(&mut self) -> Option<Result<T, JoinError>> {
        poll_fn(|context| self.poll_join_next(context)).await
    }

    /// Removes the next task that has ended; `None` if none has.
    pub fn try_join_next(&mut self) -> Option<Result<T, JoinError>> {
        let id = *self.ended.borrow().ids.front()?;
        // `None` while the runtime is about to store the outcome.
        let joined = self.tasks.get(&id)?.try_output()?;
        self.ended.borrow_mut().ids.pop_front();
        self.tasks.remove(&id);
        Some(joined)
    }

    /// Works as [`join_next`](Self::join_next), for a hand-written future.
    pub fn poll_join_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<T, JoinError>>> {
        if self.tasks.is_empty() {
            return Poll::Ready(None);
        }
        let waker = context.waker().clone();
        let (id, before) = {
            let mut ended = self.ended.borrow_mut();
            match ended.ids.pop_front() {
                Some(id) => (id, None),
                None => (u64::MAX, ended.waiting.replace(waker)),
            }
        };
        drop(before);
        let Some(task) = self.tasks.get_mut(&id) else { return Poll::Pending };
        match Pin::new(task).poll(context) {
            Poll::Ready(joined) => {
                self.tasks.remove(&id);
                Poll::Ready(Some(joined))
            }
            // Its future is dropped, and the runtime is about to store the outcome.
            Poll::Pending => {
                self.ended.borrow_mut().ids.push_front(id);
                Poll::Pending
            }
        }
    }

    /// Waits for every task; returns the outputs in the order in which they ended.
    ///
    /// # Panics
    /// A task has panicked or was cancelled. The others are cancelled then.
    pub async fn join_all(mut self) -> Vec<T> {
        let mut outputs = Vec::with_capacity(self.tasks.len());
        while let Some(joined) = self.join_next().await {
            match joined {
                Ok(output) => outputs.push(output),
                Err(JoinError::Panicked(payload)) => std::panic::resume_unwind(payload),
                #[allow(clippy::panic, reason = "documented: there is no output to return")]
                Err(why) => panic!("{why}"),
            }
        }
        outputs
    }

    /// Cancels every task, in the order in which they were added. They are joined as cancelled, or with the
    /// output of those that had ended.
    #[doc(alias = "abort_all")]
    pub fn cancel_all(&self) {
        self.tasks.values().for_each(JoinHandle::cancel);
    }

    /// Cancels every task and removes it.
    pub fn shutdown(&mut self) {
        self.cancel_all();
        self.tasks.clear();
        self.ended.borrow_mut().ids.clear();
    }

    /// Removes every task and lets it run.
    pub fn detach_all(&mut self) {
        std::mem::take(&mut self.tasks).into_values().for_each(JoinHandle::detach);
        // They report to a separate queue, which is freed with the last of them.
        self.ended = Rc::default();
    }
}

/// Starts a task for each future.
impl<F: Future + 'static> FromIterator<F> for JoinSet<F::Output> {
    fn from_iter<I: IntoIterator<Item = F>>(futures: I) -> JoinSet<F::Output> {
        let mut set = JoinSet::new();
        futures.into_iter().for_each(|future| drop(set.spawn(future)));
        set
    }
}

impl<T: 'static> Default for JoinSet<T> {
    fn default() -> JoinSet<T> {
        JoinSet::new()
    }
}

impl<T> Drop for JoinSet<T> {
    fn drop(&mut self) {
        self.tasks.values().for_each(JoinHandle::cancel);
    }
}

impl<T> fmt::Debug for JoinSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinSet").field("tasks", &self.tasks.len()).finish()
    }
}
