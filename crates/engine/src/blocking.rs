//! A pool of threads for calls that block.
//!
//! The process has one pool of at most [`threads_max`] threads. A thread is started when there is work and
//! none is idle, and ends after ten seconds without work. Further calls wait in a queue, in order. The pool
//! is for file system calls and computation, which end without other calls. Do not run a call here that waits
//! for a *peer*: a bounded pool deadlocks when each of its threads waits for a call that is still in the
//! queue. The drivers wait for peers.
//!
//! A forked child makes a pool of its own: its parent's threads do not exist there.
//!
//! In `sim` there are no other threads: the call runs when it is first awaited, so that a run depends on its
//! seed alone.

use crate::exec::{Core, JoinError};
use crate::fork::PerProcess;
use crate::name::DriverName;
use futures_channel::oneshot;
#[cfg(ringroad_loom)]
use loom::{
    sync::{Condvar, Mutex, MutexGuard, atomic::AtomicUsize},
    thread,
};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
#[cfg(not(ringroad_loom))]
use std::sync::{Condvar, Mutex, MutexGuard, atomic::AtomicUsize};
use std::task::{Context, Poll};
#[cfg(not(ringroad_loom))]
use std::{thread, time::Duration};

/// Default maximum of threads.
const THREADS_MAX: usize = 64;

/// Time after which an idle thread ends.
#[cfg(not(ringroad_loom))]
const IDLE: Duration = Duration::from_secs(10);

/// A call on its way to a thread. Receives the error if no thread can be started.
type Job = Box<dyn FnOnce(io::Result<()>) + Send>;

/// Threads and the queue before them.
///
/// INVARIANT: a queued job has a thread that will look at the queue again: a running one, an idle one that is
/// notified (one that gives up waiting before it is notified looks too), or one that is being started. If no
/// thread can be started, `not_started` passes the error to each queued job.
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

/// This process's pool.
fn pool() -> &'static Arc<Pool> {
    static POOL: PerProcess<Arc<Pool>> = PerProcess::new();
    POOL.get(|parents| {
        let threads_max = parents.map_or(THREADS_MAX, |pool| pool.threads_max.load(Ordering::Relaxed));
        Arc::new(Pool::new(threads_max))
    })
}

/// Returns the maximum number of threads: 64, or what [`set_threads_max`] set.
pub fn threads_max() -> usize {
    pool().threads_max.load(Ordering::Relaxed)
}

/// Sets the maximum number of threads, at least 1. Threads beyond it end when they become idle.
pub fn set_threads_max(threads: usize) {
    pool().threads_max.store(threads.max(1), Ordering::Relaxed);
}

/// Returns the current number of threads.
pub fn threads() -> usize {
    pool().state().threads
}

impl Pool {
    fn new(threads_max: usize) -> Pool {
        let state = State { queue: VecDeque::new(), threads: 0, idle: 0 };
        Pool { state: Mutex::new(state), work: Condvar::new(), threads_max: AtomicUsize::new(threads_max) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // User code never runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(self: &Arc<Self>, job: Job) {
        let mut state = self.state();
        state.queue.push_back(job);
        if state.queue.len() <= state.idle {
            // Notified under the lock, the thread would wake only to wait for the lock.
            drop(state);
            self.work.notify_one();
            return;
        }
        if state.threads >= self.threads_max.load(Ordering::Relaxed) {
            return;
        }
        state.threads += 1;
        drop(state);
        let thread = thread::Builder::new().name("ringroad-blocking".into());
        let pool = Arc::clone(self);
        if let Err(why) = thread.spawn(move || pool.serve()) {
            self.not_started(&why);
        }
    }

    /// Handles the failure to start a thread that was already counted.
    #[cold]
    fn not_started(&self, why: &io::Error) {
        let mut state = self.state();
        state.threads -= 1;
        // A remaining thread still runs the queued jobs, only more slowly.
        if state.threads > 0 {
            return;
        }
        // Another caller may have counted on this thread and queued a job too: report the error to all of
        // them.
        let queue = std::mem::take(&mut state.queue);
        drop(state);
        let errno = why.raw_os_error().unwrap_or(libc::EAGAIN);
        for job in queue {
            guarded(job, Err(io::Error::from_raw_os_error(errno)));
        }
    }

    fn serve(&self) {
        let mut state = self.state();
        loop {
            while let Some(job) = state.queue.pop_front() {
                drop(state);
                guarded(job, Ok(()));
                state = self.state();
            }
            if state.threads > self.threads_max.load(Ordering::Relaxed) {
                break;
            }
            state.idle += 1;
            let (woken, timed_out) = self.idle(state);
            state = woken;
            state.idle -= 1;
            if timed_out && state.queue.is_empty() {
                break;
            }
        }
        state.threads -= 1;
    }

    /// Waits for work; returns whether the wait timed out.
    #[cfg(not(ringroad_loom))]
    fn idle<'a>(&self, state: MutexGuard<'a, State>) -> (MutexGuard<'a, State>, bool) {
        let (state, waited) = self.work.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
        (state, waited.timed_out())
    }

    /// Returns the same for loom, which has no time: a wait may time out at any moment.
    #[cfg(ringroad_loom)]
    fn idle<'a>(&self, state: MutexGuard<'a, State>) -> (MutexGuard<'a, State>, bool) {
        let state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        (state, true)
    }
}

/// Runs a job. A panic of the call itself is its result. If its future is gone, the result, or the call that
/// never ran, is dropped here, and that may panic as well. The thread is counted in the pool, so the panic
/// must not end it.
fn guarded(job: Job, thread: io::Result<()>) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| job(thread))) {
        // Dropping the payload could panic again, outside of the catch.
        std::mem::forget(payload);
    }
}

/// Runs a call that may block on a thread of the pool, and returns its result.
///
/// If the future is dropped before the call has begun, the call never runs. After that the call runs to its
/// end, and its result is dropped. A panic is [`JoinError::Panicked`]. [`JoinError::NoThread`]: the system
/// could not start any thread.
///
/// # Panics
/// Outside of a runtime.
pub fn spawn_blocking<F, T>(call: F) -> Blocking<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let simulated = Core::current("spawn_blocking").with_io(|io| io.driver_name()) == Some(DriverName::Sim);
    let (sender, receiver) = oneshot::channel();
    let job = move |thread: io::Result<()>| {
        // The future is gone.
        if sender.is_canceled() {
            return;
        }
        let returned = match thread {
            Ok(()) => catch_unwind(AssertUnwindSafe(call)).map_err(JoinError::Panicked),
            Err(why) => Err(JoinError::NoThread(why)),
        };
        // Fails if the future was dropped meanwhile: then the result is dropped here.
        let _ = sender.send(returned);
    };
    let mut blocking = Blocking { receiver, here: None };
    if simulated {
        blocking.here = Some(Box::new(job));
    } else {
        pool().push(Box::new(job));
    }
    blocking
}

/// Future of [`spawn_blocking`].
#[must_use = "dropping it cancels the call if that has not begun"]
pub struct Blocking<T> {
    receiver: oneshot::Receiver<Result<T, JoinError>>,
    /// Called on the current thread, in `sim`.
    here: Option<Job>,
}

impl<T> Future for Blocking<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(call) = self.here.take() {
            call(Ok(()));
        }
        // Every job sends a result; it is missing only if the thread was killed.
        Pin::new(&mut self.receiver).poll(context).map(|told| told.unwrap_or(Err(JoinError::Cancelled)))
    }
}

impl<T> fmt::Debug for Blocking<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Blocking")
    }
}

#[cfg(all(test, not(ringroad_loom)))]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// Two concurrent callers: each has queued a job and counted a thread, and neither thread can be started.
    #[test]
    fn without_any_thread_every_job_in_the_queue_gets_the_error() {
        let pool = Pool::new(2);
        pool.state().threads = 2;
        let (tell, told) = mpsc::channel();
        for number in 0..2 {
            let tell = tell.clone();
            let job: Job = Box::new(move |thread| {
                let errno = thread.err().and_then(|why| why.raw_os_error());
                let _ = tell.send((number, errno));
                // The destructor of a job's value is user code; its panic must not affect the next job.
                assert!(number > 0, "on purpose");
            });
            pool.state().queue.push_back(job);
        }
        let why = io::Error::from_raw_os_error(libc::ENOMEM);
        pool.not_started(&why);
        assert!(told.try_recv().is_err(), "the other thread may still come");
        pool.not_started(&why);
        assert_eq!(told.try_recv(), Ok((0, Some(libc::ENOMEM))));
        assert_eq!(told.try_recv(), Ok((1, Some(libc::ENOMEM))));
        let state = pool.state();
        assert_eq!((state.threads, state.queue.len()), (0, 0));
    }
}

#[cfg(all(test, ringroad_loom))]
mod tests {
    use super::*;

    /// Counts jobs done, and lets a model wait for them.
    #[derive(Default)]
    struct Done {
        count: Mutex<usize>,
        more: Condvar,
    }

    impl Done {
        fn job(self: &Arc<Done>) -> Job {
            let done = Arc::clone(self);
            Box::new(move |thread| {
                assert!(thread.is_ok());
                *done.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
                done.more.notify_one();
            })
        }

        /// Waits for this many jobs. A job that no thread runs is a deadlock, which loom reports.
        fn wait_for(&self, jobs: usize) {
            let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
            while *count < jobs {
                count = self.more.wait(count).unwrap_or_else(PoisonError::into_inner);
            }
            assert_eq!(*count, jobs);
        }
    }

    /// Ends every thread, because loom requires that none is left. A thread that has already checked the
    /// limit is waiting by the time the lock is free, and is notified.
    fn end(pool: &Pool) {
        pool.threads_max.store(0, Ordering::Relaxed);
        drop(pool.state());
        pool.work.notify_all();
    }

    #[test]
    fn a_job_that_arrives_while_the_only_thread_ends_is_run() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let (pool, done) = (Arc::new(Pool::new(1)), Arc::<Done>::default());
            pool.push(done.job());
            // The idle thread may time out just as the second job arrives.
            pool.work.notify_all();
            pool.push(done.job());
            done.wait_for(2);
            end(&pool);
        });
    }

    #[test]
    fn jobs_of_two_callers_are_run_by_at_most_the_maximum_of_threads() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let (pool, done) = (Arc::new(Pool::new(1)), Arc::<Done>::default());
            let other = {
                let (pool, done) = (Arc::clone(&pool), Arc::clone(&done));
                thread::spawn(move || pool.push(done.job()))
            };
            pool.push(done.job());
            assert!(pool.state().threads <= 1);
            assert!(other.join().is_ok());
            done.wait_for(2);
            end(&pool);
        });
    }
}
