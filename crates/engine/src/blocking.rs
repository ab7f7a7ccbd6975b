//! Calls that block, on threads of their own.
//!
//! One pool for the process, of at most [`threads_max`] threads: made when there is work and none idle, ended
//! after ten seconds without any. What is more waits in a queue, in order: this is for file system calls and for
//! computing, which end by themselves. What waits for a *peer* does not belong here (a bounded pool of such would
//! stand still when every thread waits for somebody in the queue); that is what the drivers are for.
//!
//! In `sim` there are no other threads: the call is made where it is first awaited, so that a run depends on
//! nothing but its seed.

use crate::exec::{Core, JoinError};
use crate::name::Name;
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

/// Threads at first.
const THREADS_MAX: usize = 64;

/// An idle thread ends after this.
const IDLE: Duration = Duration::from_secs(10);

/// A call on its way to a thread.
type Job = Box<dyn FnOnce() + Send>;

struct Pool {
    state: Mutex<State>,
    work: Condvar,
    threads_max: AtomicUsize,
}

struct State {
    queue: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

static POOL: Pool = Pool {
    state: Mutex::new(State { queue: VecDeque::new(), threads: 0, idle: 0 }),
    work: Condvar::new(),
    threads_max: AtomicUsize::new(THREADS_MAX),
};

/// How many threads the pool may have: 64, unless [`set_threads_max`] says otherwise.
pub fn threads_max() -> usize {
    POOL.threads_max.load(Ordering::Relaxed)
}

/// Sets how many threads the pool may have, at least 1. Threads it has beyond go when they are next idle.
pub fn set_threads_max(threads: usize) {
    POOL.threads_max.store(threads.max(1), Ordering::Relaxed);
}

/// Threads the pool has now.
pub fn threads() -> usize {
    POOL.state().threads
}

impl Pool {
    fn state(&self) -> MutexGuard<'_, State> {
        // No code of others runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&'static self, job: Job) -> std::io::Result<()> {
        let mut state = self.state();
        state.queue.push_back(job);
        if state.queue.len() <= state.idle {
            self.work.notify_one();
            return Ok(());
        }
        if state.threads >= threads_max() {
            return Ok(());
        }
        state.threads += 1;
        drop(state);
        let thread = thread::Builder::new().name("ringroad-blocking".into());
        if let Err(why) = thread.spawn(move || self.serve()) {
            let mut state = self.state();
            state.threads -= 1;
            // With a thread left the queue goes on being worked on, only slower.
            if state.threads == 0 {
                state.queue.pop_back();
                return Err(why);
            }
        }
        Ok(())
    }

    fn serve(&self) {
        let mut state = self.state();
        loop {
            while let Some(job) = state.queue.pop_front() {
                drop(state);
                job();
                state = self.state();
            }
            if state.threads > threads_max() {
                break;
            }
            state.idle += 1;
            let (woken, waited) = self.work.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if waited.timed_out() && state.queue.is_empty() {
                break;
            }
        }
        state.threads -= 1;
    }
}

/// Makes a call that may block, on a thread of the pool, and gives what it returns.
///
/// Dropped before the call has begun, it never begins; after that it runs to its end, and what it returns is
/// dropped. A panic is [`JoinError::Panicked`]; [`JoinError::NoThread`] where the
/// system gives no thread at all.
///
/// # Panics
/// Outside of a runtime.
pub fn spawn_blocking<F, T>(call: F) -> Blocking<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let simulated = Core::current("spawn_blocking").with_io(|io| io.driver_name()) == Some(Name::Sim);
    let (sender, receiver) = oneshot::async_channel();
    let job = move || {
        // Nobody waits any more.
        if sender.is_closed() {
            return;
        }
        let returned = catch_unwind(AssertUnwindSafe(call));
        // Refused when whoever waited is gone: dropped here.
        let _ = sender.send(returned);
    };
    let mut blocking = Blocking { receiver, here: None, refused: None };
    if simulated {
        blocking.here = Some(Box::new(job));
    } else if let Err(why) = POOL.push(Box::new(job)) {
        blocking.refused = Some(why);
    }
    blocking
}

/// Future of [`spawn_blocking`].
#[must_use = "dropping it cancels the call if that has not begun"]
pub struct Blocking<T> {
    receiver: oneshot::AsyncReceiver<thread::Result<T>>,
    /// To be called here, in `sim`.
    here: Option<Job>,
    refused: Option<std::io::Error>,
}

impl<T> Future for Blocking<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(call) = self.here.take() {
            call();
        }
        match Pin::new(&mut self.receiver).poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(Ok(returned))) => Poll::Ready(Ok(returned)),
            Poll::Ready(Ok(Err(panic))) => Poll::Ready(Err(JoinError::Panicked(panic))),
            // The job was dropped unmade: there was no thread.
            Poll::Ready(Err(_)) => {
                Poll::Ready(Err(self.refused.take().map_or(JoinError::Cancelled, JoinError::NoThread)))
            }
        }
    }
}

impl<T> fmt::Debug for Blocking<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Blocking")
    }
}
