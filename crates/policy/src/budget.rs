//! A budget for repeats: retries and hedges together stay a share of what clients send, so that a group of
//! servers in trouble is not sent twice the load (as Finagle does it).

use crate::{Nanos, SECOND};

/// How long unused budget lasts.
const KEPT_SECONDS: u64 = 10;
/// What one token is counted in.
const UNIT: u64 = 1000;

/// A budget.
#[derive(Clone, Debug)]
pub struct Budget {
    /// Parts of a token that each request brings.
    share: u64,
    /// Repeats each second that are permitted in any case.
    least_per_second: u64,
    tokens: u64,
    filled: Nanos,
}

impl Budget {
    /// Repeats are at most `share` of requests, and `least_per_second` in any case.
    pub fn new(share: f64, least_per_second: u32) -> Budget {
        let share = (share.clamp(0.0, 1.0) * UNIT as f64) as u64;
        let least_per_second = u64::from(least_per_second);
        Budget { share, least_per_second, tokens: least_per_second * KEPT_SECONDS * UNIT, filled: 0 }
    }

    /// Returns the most that time alone brings.
    fn idle_most(&self) -> u64 {
        self.least_per_second * KEPT_SECONDS * UNIT
    }

    fn fill(&mut self, now: Nanos) {
        let passed = now.saturating_sub(self.filled).min(KEPT_SECONDS * SECOND);
        let brought = passed * self.least_per_second / (SECOND / UNIT);
        if brought > 0 {
            self.tokens = (self.tokens + brought).min(self.idle_most()).max(self.tokens);
            self.filled = now;
        }
    }

    /// Counts a client's request that is sent for the first time.
    pub fn request(&mut self) {
        // What a thousand requests bring is kept at most.
        self.tokens = (self.tokens + self.share).min(self.idle_most() + self.share * 1000);
    }

    /// Returns whether a repeat may be sent; it is counted if so.
    pub fn repeat(&mut self, now: Nanos) -> bool {
        self.fill(now);
        let may = self.tokens >= UNIT;
        if may {
            self.tokens -= UNIT;
        }
        may
    }

    /// Repeats that are permitted now.
    pub fn left(&self) -> u64 {
        self.tokens / UNIT
    }
}
