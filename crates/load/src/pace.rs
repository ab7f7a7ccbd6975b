//! A thread that keeps time for a worker: it sleeps until the next arrival and wakes the worker's dispatcher.
//!
//! The engine's timers go by the millisecond, which is enough for deadlines and would show in a latency of fifty
//! microseconds. This thread holds the same schedule, needs to be told nothing, and touches no socket. Two wakes are
//! at least [`STEP`] apart: at high rates a wake serves several arrivals. Start at [`Metronome::start`].

use crate::schedule::Schedule;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Shortest time between two wakes. A wake costs two switches of threads, about 5 µs.
const STEP: Duration = Duration::from_micros(50);

/// How long it sleeps at most, so that it notices that it is not needed any more.
const NAP: Duration = Duration::from_millis(100);

/// The thread. Dropping it ends it.
pub(crate) struct Metronome {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Metronome {
    /// Wakes `waker` at every arrival of a schedule that began at `begin`.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn start(
        begin: Instant,
        make: impl FnOnce() -> Schedule + Send + 'static,
        waker: Waker,
    ) -> io::Result<Metronome> {
        let over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&over);
        let thread =
            thread::Builder::new().name("metronome".to_owned()).stack_size(64 << 10).spawn(move || {
                // Without this the kernel may be 50 µs late (PR_SET_TIMERSLACK(2const)). Refused, it is; nothing breaks.
                let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
                beat(begin, make(), &waker, &ends);
            })?;
        Ok(Metronome { over, thread: Some(thread) })
    }
}

fn beat(begin: Instant, mut schedule: Schedule, waker: &Waker, over: &AtomicBool) {
    let mut earliest = Duration::ZERO;
    while let Some(due) = schedule.peek() {
        let due = Duration::from_nanos(due).max(earliest);
        loop {
            // Pairs with nothing: a late look costs a nap.
            if over.load(Ordering::Relaxed) {
                return;
            }
            match due.checked_sub(begin.elapsed()) {
                Some(left) if !left.is_zero() => thread::sleep(left.min(NAP)),
                _ => break,
            }
        }
        waker.wake_by_ref();
        let now = begin.elapsed();
        earliest = now + STEP;
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        while schedule.peek().is_some_and(|due| due <= now) {
            schedule.take();
        }
    }
}

impl Drop for Metronome {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It runs nothing that panics.
            let _ = thread.join();
        }
    }
}
