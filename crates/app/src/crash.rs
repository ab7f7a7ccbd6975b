//! What follows when starts fail again and again: a crash loop.
//!
//! Each slot waits longer after each failure, up to `backoff`'s second time. With [`FAILURES`] in a row in
//! one slot, the breaker opens: then one start at a time is tried for all slots together, seldom. Processes
//! that serve are not touched by any of this. It closes when a process that was started behind the last
//! failure has proved itself.

use std::time::{Duration, Instant};

/// So many failures in a row in one slot open the breaker.
const FAILURES: u32 = 5;

/// The breaker of an application.
#[derive(Debug, Default)]
pub(crate) struct CrashLoop(Option<Open>);

/// It is open.
#[derive(Debug)]
pub(crate) struct Open {
    /// Starts that have failed in a row, in the slot where it is the most.
    pub(crate) failures: u32,
    /// The last lines of the last one.
    pub(crate) why: String,
    /// When the next is tried.
    pub(crate) next_try: Instant,
    failed: Instant,
}

impl CrashLoop {
    /// Notes that a start has failed, the `failures`th in a row in its slot; `wait` is the time to the next
    /// one if the breaker is open. Returns whether it has just opened.
    pub(crate) fn failed(&mut self, failures: u32, why: &str, now: Instant, wait: Duration) -> bool {
        let (opens, most) = match &self.0 {
            Some(open) => (false, open.failures + 1),
            None if failures >= FAILURES => (true, failures),
            None => return false,
        };
        self.0 = Some(Open { failures: most, why: why.to_owned(), next_try: now + wait, failed: now });
        opens
    }

    /// Returns whether a process may be started.
    pub(crate) fn lets_start(&self, now: Instant) -> bool {
        self.0.as_ref().is_none_or(|open| now >= open.next_try)
    }

    /// One was started: the next is tried only after `wait`, unless this one proves itself before.
    pub(crate) fn tries(&mut self, now: Instant, wait: Duration) {
        if let Some(open) = &mut self.0 {
            open.next_try = now + wait;
        }
    }

    /// The next start is tried at once: it was ordered.
    pub(crate) fn hurry(&mut self, now: Instant) {
        if let Some(open) = &mut self.0 {
            open.next_try = now;
        }
    }

    /// Notes that a process that was started at `started` has proved itself. Returns whether that closes the
    /// breaker.
    pub(crate) fn proved(&mut self, started: Instant) -> bool {
        self.0.take_if(|open| started >= open.failed).is_some()
    }

    /// Begins anew: the application is another one.
    pub(crate) fn reset(&mut self) {
        self.0 = None;
    }

    /// Returns what it is while it is open.
    pub(crate) fn open(&self) -> Option<&Open> {
        self.0.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_breaker_opens_at_the_fifth_failure_and_closes_behind_a_start_that_proves_itself() {
        let (mut crash, begin, wait) = (CrashLoop::default(), Instant::now(), Duration::from_secs(30));
        let at = |seconds| begin + Duration::from_secs(seconds);
        for failures in 1..FAILURES {
            assert!(!crash.failed(failures, "no", at(0), wait) && crash.lets_start(at(0)));
        }
        assert!(crash.failed(FAILURES, "no database", at(1), wait), "it opens");
        assert!(!crash.lets_start(at(30)) && crash.lets_start(at(31)));
        crash.tries(at(31), wait);
        assert!(!crash.lets_start(at(32)), "one at a time");
        assert!(!crash.failed(1, "still no database", at(33), wait), "it is open");
        assert_eq!(crash.open().map(|open| (open.failures, &*open.why)), Some((6, "still no database")));
        assert!(!crash.proved(at(0)), "a process from before says nothing");
        crash.hurry(at(40));
        assert!(crash.lets_start(at(40)));
        assert!(crash.proved(at(40)) && crash.open().is_none() && !crash.proved(at(41)));
    }
}
