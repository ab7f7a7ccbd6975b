//! Delayed answers: a queue of due times.
//!
//! The delay is the same for all, so a plain queue is in order without a heap or a timing wheel. The loop
//! waits no longer than [`Delay::timeout`] and then takes what is due.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// What waits, and until when. `T` names it.
#[derive(Debug)]
pub(super) struct Delay<T> {
    wait: Duration,
    due: VecDeque<(Instant, T)>,
}

impl<T> Delay<T> {
    pub(super) fn new(wait: Duration) -> Self {
        Delay { wait, due: VecDeque::new() }
    }

    /// Lets `waiter` wait from now on.
    pub(super) fn push(&mut self, waiter: T) {
        self.due.push_back((Instant::now() + self.wait, waiter));
    }

    /// Returns how long the loop may sleep before one is due: `None` if none waits, zero if one is due.
    pub(super) fn timeout(&self) -> Option<Duration> {
        // The clock is read only if something waits: it costs 20 ns.
        self.due.front().map(|(due, _)| due.saturating_duration_since(Instant::now()))
    }

    /// Removes and returns the next entry that is due.
    pub(super) fn pop_due(&mut self) -> Option<T> {
        let (due, _) = self.due.front()?;
        if *due > Instant::now() {
            return None;
        }
        self.due.pop_front().map(|(_, waiter)| waiter)
    }
}
