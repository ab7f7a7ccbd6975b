//! Measures time per phase: a count and a duration, taken around system calls on request.

use crate::report::Phase;
use std::time::{Duration, Instant};

/// The purpose of a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    Scan,
    Open,
    Read,
    Create,
    Write,
    Metadata,
    Sync,
}

const NAMES: [&str; 7] = ["scan", "open", "read", "create", "write", "metadata", "sync"];

/// One worker's clock.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    on: bool,
    spent: [(Duration, u64); 7],
}

impl Clock {
    pub(crate) fn new(on: bool) -> Clock {
        Clock { on, ..Clock::default() }
    }

    /// Makes one system call.
    #[inline]
    pub(crate) fn call<T>(&mut self, what: For, call: impl FnOnce() -> T) -> T {
        if !self.on {
            return call();
        }
        let before = Instant::now();
        let answer = call();
        self.add(what, before.elapsed(), 1);
        answer
    }

    /// Adds what was measured elsewhere.
    pub(crate) fn add(&mut self, what: For, time: Duration, calls: u64) {
        if let Some((spent, count)) = self.spent.get_mut(what as usize) {
            *spent += time;
            *count += calls;
        }
    }

    pub(crate) fn merge(&mut self, other: &Clock) {
        self.on |= other.on;
        for ((time, calls), (more_time, more_calls)) in self.spent.iter_mut().zip(other.spent) {
            *time += more_time;
            *calls += more_calls;
        }
    }

    /// Returns the phases, in the order of one file's life; none where nothing was measured.
    pub(crate) fn phases(&self) -> Vec<Phase> {
        if !self.on {
            return Vec::new();
        }
        let phases = NAMES.iter().zip(self.spent);
        phases.map(|(name, (time, calls))| Phase { name, time, calls }).collect()
    }
}
