//! An estimate of a quantile, as the 95th percentile of latencies, in one word.
//!
//! Each sample above the estimate moves it up a lot, each below it down a little, in such shares that it
//! rests where the wanted share of samples is below ("frugal streaming", Ma, Muthukrishnan, Sandler 2013;
//! here by shares of the estimate, so that it suits microseconds and seconds).

use crate::Nanos;
use std::sync::atomic::{AtomicU64, Ordering};

/// So many samples come before the estimate says anything.
const SAMPLES_MIN: u64 = 20;

/// How far one sample moves the estimate at most.
const STEP: f64 = 0.05;

/// An estimate, shared by threads.
#[derive(Debug)]
pub struct Quantile {
    share: f64,
    estimate: AtomicU64,
    seen: AtomicU64,
}

impl Quantile {
    /// Makes an estimate of what `share` of the samples are below.
    pub fn new(share: f64) -> Quantile {
        Quantile { share: share.clamp(0.0, 1.0), estimate: AtomicU64::new(0), seen: AtomicU64::new(0) }
    }

    /// Takes in a sample. Of two at the same moment one may be lost.
    pub fn see(&self, sample: Nanos) {
        // Relaxed: nothing is published by these words.
        let before = self.estimate.load(Ordering::Relaxed);
        let next = if self.seen.fetch_add(1, Ordering::Relaxed) == 0 {
            sample
        } else {
            let factor = if sample > before { STEP * self.share } else { STEP * (self.share - 1.0) };
            (before as f64 * (1.0 + factor)) as u64
        };
        self.estimate.store(next.max(1000), Ordering::Relaxed);
    }

    /// Returns the estimate; `None` after too few samples.
    pub fn get(&self) -> Option<Nanos> {
        let is_known = self.seen.load(Ordering::Relaxed) >= SAMPLES_MIN;
        is_known.then(|| self.estimate.load(Ordering::Relaxed))
    }
}
