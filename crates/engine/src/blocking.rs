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
use std::io;
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

/// A call on its way to a thread; it is told why there is none, if there is none.
type Job = Box<dyn FnOnce(io::Result<()>) + Send>;

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

    fn push(&'static self, job: Job) {
        let mut state = self.state();
        state.queue.push_back(job);
        if state.queue.len() <= state.idle {
            self.work.notify_one();
            return;
        }
        if state.threads >= threads_max() {
            return;
        }
        state.threads += 1;
        drop(state);
        let thread = thread::Builder::new().name("ringroad-blocking".into());
        if let Err(why) = thread.spawn(move || self.serve()) {
            self.not_started(&why);
        }
    }

    /// A thread that was counted could not be made.
    #[cold]
    fn not_started(&self, why: &io::Error) {
        let mut state = self.state();
        state.threads -= 1;
        // With a thread left the queue goes on being worked on, only slower.
        if state.threads > 0 {
            return;
        }
        // Who counted on this thread may have queued a job too, so that none of them is anybody's in particular.
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

/// Does a job. That the call itself panics is its result; but what it returned, or never used, is dropped here if nobody
/// waits any more, and that may panic as well. The thread, which is counted, goes on.
fn guarded(job: Job, thread: io::Result<()>) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| job(thread))) {
        // Who throws what panics when it is dropped is not given a third try.
        std::mem::forget(panic);
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
    let job = move |thread: io::Result<()>| {
        // Nobody waits any more.
        if sender.is_closed() {
            return;
        }
        let returned = match thread {
            Ok(()) => catch_unwind(AssertUnwindSafe(call)).map_err(JoinError::Panicked),
            Err(why) => Err(JoinError::NoThread(why)),
        };
        // Refused when whoever waited is gone: dropped here.
        let _ = sender.send(returned);
    };
    let mut blocking = Blocking { receiver, here: None };
    if simulated {
        blocking.here = Some(Box::new(job));
    } else {
        POOL.push(Box::new(job));
    }
    blocking
}

/// Future of [`spawn_blocking`].
#[must_use = "dropping it cancels the call if that has not begun"]
pub struct Blocking<T> {
    receiver: oneshot::AsyncReceiver<Result<T, JoinError>>,
    /// To be called here, in `sim`.
    here: Option<Job>,
}

impl<T> Future for Blocking<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(call) = self.here.take() {
            call(Ok(()));
        }
        // Every job answers; it would be gone without only if its thread were.
        Pin::new(&mut self.receiver).poll(context).map(|told| told.unwrap_or(Err(JoinError::Cancelled)))
    }
}

impl<T> fmt::Debug for Blocking<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Blocking")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// Two pushers at once: each has queued a job and counted a thread, and neither thread can be made.
    #[test]
    fn without_any_thread_every_job_in_the_queue_hears_why() {
        let pool = Pool {
            state: Mutex::new(State { queue: VecDeque::new(), threads: 2, idle: 0 }),
            work: Condvar::new(),
            threads_max: AtomicUsize::new(2),
        };
        let (tell, told) = mpsc::channel();
        for number in 0..2 {
            let tell = tell.clone();
            let job: Job = Box::new(move |thread| {
                let errno = thread.err().and_then(|why| why.raw_os_error());
                let _ = tell.send((number, errno));
                // What a job drops is other people's, and must not stand in the way of the next.
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
