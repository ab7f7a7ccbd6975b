//! Answers that wait: a queue of due times.
//!
//! The wait is the same for everybody, so who comes first is due first, and a plain queue is in order without a
//! heap or a wheel. The loop waits no longer than [`Delay::timeout`] and then takes what is due.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Who waits, and until when. `T` names the one who waits.
#[derive(Debug)]
pub(super) struct Delay<T> {
    wait: Duration,
    due: VecDeque<(Instant, T)>,
}

impl<T> Delay<T> {
    pub(super) fn new(wait: Duration) -> Self {
        Delay { wait, due: VecDeque::new() }
    }

    /// Lets `who` wait from now on.
    pub(super) fn push(&mut self, who: T) {
        self.due.push_back((Instant::now() + self.wait, who));
    }

    /// How long the loop may sleep before somebody is due: `None` if nobody waits, zero if one is due.
    pub(super) fn timeout(&self) -> Option<Duration> {
        // The clock is read only if somebody waits: it costs 20 ns.
        self.due.front().map(|(due, _)| due.saturating_duration_since(Instant::now()))
    }

    /// The next one whose time has come.
    pub(super) fn pop_due(&mut self) -> Option<T> {
        let (due, _) = self.due.front()?;
        if *due > Instant::now() {
            return None;
        }
        self.due.pop_front().map(|(_, who)| who)
    }
}
