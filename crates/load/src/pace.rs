//! A thread that keeps time for a worker: it sleeps until the next arrival and wakes the worker's dispatcher.
//!
//! The engine's timers have millisecond resolution, which is enough for deadlines but would distort a latency
//! of fifty microseconds. This thread follows the same schedule without further communication, and uses no
//! socket. Two wakes are at least [`STEP`] apart: at high rates a wake serves several arrivals. A wake comes
//! earlier by [`lead`], because sleeping threads wake late; the worker polls the clock for the rest. Start at
//! [`Metronome::start`].

use crate::schedule::Schedule;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Shortest time between two wakes. A wake costs two switches of threads, about 5 µs.
const STEP: Duration = Duration::from_micros(50);

/// How long before an arrival it wakes at most. Two threads are woken one after the other, which on a virtual
/// machine takes 50 µs (measured, Linux 6.18).
const LEAD_MAX: Duration = Duration::from_micros(100);

/// Share of the time between two arrivals that may be spent on polling the clock.
const LEAD_SHARE: f64 = 0.1;

/// Returns how long before an arrival a worker is woken, which has as many in a second at most.
pub(crate) fn lead(per_second: f64) -> Duration {
    let between = LEAD_SHARE / per_second.max(LEAD_SHARE);
    LEAD_MAX.min(Duration::from_secs_f64(between))
}

/// Maximum sleep, so that the thread notices when it is no longer needed.
const NAP: Duration = Duration::from_millis(100);

/// The thread. Dropping it ends it.
pub(crate) struct Metronome {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Metronome {
    /// Wakes `waker` before every arrival of a schedule that began at `begin`, by `lead` or less.
    ///
    /// # Errors
    /// No thread could be started.
    pub(crate) fn start(
        begin: Instant,
        lead: Duration,
        make: impl FnOnce() -> Schedule + Send + 'static,
        waker: Waker,
    ) -> io::Result<Metronome> {
        let over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&over);
        let thread =
            thread::Builder::new().name("metronome".to_owned()).stack_size(64 << 10).spawn(move || {
                // Without this the kernel may be 50 µs late (PR_SET_TIMERSLACK(2const)). Refused, it is;
                // nothing breaks.
                let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
                beat(&mut System { begin, over: ends }, make(), lead, || waker.wake_by_ref());
            })?;
        Ok(Metronome { over, thread: Some(thread) })
    }
}

/// Time as the metronome sees it, counted from the beginning of the schedule.
trait Clock {
    fn now(&self) -> Duration;
    /// Sleeps for as long, or shorter. False: the metronome is not needed any more.
    fn sleep(&mut self, time: Duration) -> bool;
}

struct System {
    begin: Instant,
    over: Arc<AtomicBool>,
}

impl Clock for System {
    fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    fn sleep(&mut self, time: Duration) -> bool {
        if !time.is_zero() {
            thread::sleep(time.min(NAP));
        }
        // Pairs with nothing: a late look costs a nap.
        !self.over.load(Ordering::Relaxed)
    }
}

/// Wakes for every arrival, or once for several. Each is covered by a wake that began when it was due
/// already, or would be within `lead`.
fn beat(clock: &mut impl Clock, mut schedule: Schedule, lead: Duration, mut wake: impl FnMut()) {
    let mut earliest = Duration::ZERO;
    while let Some(due) = schedule.peek() {
        let due = Duration::from_nanos(due).saturating_sub(lead).max(earliest);
        // What is due by this time and the lead is served by the wake, since the woken task reads the clock
        // later, and goes on reading it while something is due within the lead. What becomes due during the
        // wake, which takes as long as the system lets others run, is not: it needs another.
        let now = loop {
            let now = clock.now();
            if !clock.sleep(due.saturating_sub(now)) {
                return;
            }
            if now >= due {
                break now;
            }
        };
        wake();
        earliest = now + STEP;
        let served = u64::try_from((now + lead).as_nanos()).unwrap_or(u64::MAX);
        while schedule.peek().is_some_and(|due| due <= served) {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::schedule::{Arrivals, Profile};
    use std::cell::Cell;
    use std::rc::Rc;

    /// A clock that advances when a task sleeps or is slow.
    struct Virtual(Rc<Cell<Duration>>);

    impl Clock for Virtual {
        fn now(&self) -> Duration {
            self.0.get()
        }

        fn sleep(&mut self, time: Duration) -> bool {
            self.0.set(self.0.get() + time);
            true
        }
    }

    /// Returns when wakes began, if each takes as long, with twelve arrivals a millisecond apart.
    fn wakes(each: Duration, lead: Duration) -> Vec<Duration> {
        let profile = Rc::new(Profile::constant(1000.0, Duration::from_secs(1)));
        let schedule = Schedule::new(profile, Arrivals::Constant, (0, 1), 0, 12);
        let (time, mut wakes) = (Rc::new(Cell::new(Duration::ZERO)), Vec::new());
        beat(&mut Virtual(Rc::clone(&time)), schedule, lead, || {
            wakes.push(time.get());
            time.set(time.get() + each);
        });
        wakes
    }

    #[test]
    fn every_arrival_has_a_wake_of_its_own_where_there_is_time() {
        let expected: Vec<_> = (0..12).map(Duration::from_millis).collect();
        assert_eq!(wakes(Duration::from_micros(5), Duration::ZERO), expected);
        let lead = Duration::from_micros(100);
        let early: Vec<_> = expected.iter().map(|due| due.saturating_sub(lead)).collect();
        assert_eq!(wakes(Duration::from_micros(5), lead), early);
    }

    #[test]
    fn a_busy_runtime_is_not_woken_early() {
        assert_eq!(lead(10.0), LEAD_MAX);
        assert_eq!(lead(10_000.0), Duration::from_micros(10));
        assert_eq!(lead(0.0), LEAD_MAX);
    }

    /// The woken task may run at once, hand out what is due, and sleep again before the waker goes on.
    #[test]
    fn however_long_a_wake_takes_one_begins_after_the_last_arrival_is_due() {
        for each in [1, 2, 4, 7, 30] {
            for lead in [0, 100] {
                let lead = Duration::from_micros(lead);
                let wakes = wakes(Duration::from_millis(each), lead);
                let last = *wakes.last().unwrap();
                assert!(last + lead >= Duration::from_millis(11), "{each} ms: {wakes:?}");
            }
        }
    }
}
