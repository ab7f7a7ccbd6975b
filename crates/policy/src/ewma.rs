//! Peak EWMA: how slow a server is, remembering the worst of the last seconds (as Finagle and Linkerd do it).

use crate::Nanos;
use std::sync::atomic::{AtomicU64, Ordering};

/// How fast a peak is forgotten: after this time 37 % of it is left.
const DECAY_MS: f32 = 10_000.0;
/// What a server is taken for that has not answered yet and has a request: it gets one, and no flood.
const START_MS: f32 = 30.0;
/// The least average that is kept: 0 is that of a server without a sample.
const LEAST_MS: f32 = 1e-6;

/// The average of one server, shared by threads: milliseconds as `f32`, and the time of the last sample in
/// milliseconds as `u32` (which turns over after 49 days; a server silent for so long starts again). The word
/// is 0 before the first sample.
#[derive(Debug, Default)]
pub struct PeakEwma(AtomicU64);

fn packed(value: f32, stamp: u32) -> u64 {
    u64::from(value.to_bits()) << 32 | u64::from(stamp)
}

fn unpacked(word: u64) -> (f32, u32) {
    (f32::from_bits((word >> 32) as u32), word as u32)
}

fn milliseconds(now: Nanos) -> u32 {
    (now / 1_000_000) as u32
}

fn decayed(value: f32, stamp: u32, now: u32) -> f32 {
    value * (-(now.wrapping_sub(stamp) as f32) / DECAY_MS).exp()
}

impl PeakEwma {
    /// Takes in a sample. A slower one than the average counts at once, a faster one with the time that has
    /// passed.
    ///
    /// An answer that is an error comes fast. The caller gives a penalty for it instead of its time, or the
    /// server that fails would look like the best one.
    pub fn observe(&self, sample: Nanos, now: Nanos) {
        let (sample, now) = ((sample as f32 / 1e6).max(LEAST_MS), milliseconds(now));
        let update = |word: u64| {
            let (value, stamp) = unpacked(word);
            let next = if sample >= value {
                sample
            } else {
                let weight = (-(now.wrapping_sub(stamp) as f32) / DECAY_MS).exp();
                value * weight + sample * (1.0 - weight)
            };
            Some(packed(next, now))
        };
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
    }

    /// Takes in an exchange that was given up after `waited`: its answer would have taken at least so long.
    /// That raises the average or leaves it, and never lowers it.
    pub fn observe_at_least(&self, waited: Nanos, now: Nanos) {
        let (waited, now) = ((waited as f32 / 1e6).max(LEAST_MS), milliseconds(now));
        let update = |word: u64| {
            let (value, stamp) = unpacked(word);
            (waited > decayed(value, stamp, now)).then(|| packed(waited, now))
        };
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
    }

    /// Returns the average in milliseconds at `now`: 30 without a sample. That of a silent server comes
    /// closer to 1 ms with time.
    pub fn value(&self, now: Nanos) -> f64 {
        let (value, stamp) = unpacked(self.0.load(Ordering::Relaxed));
        if value == 0.0 {
            return f64::from(START_MS);
        }
        f64::from(decayed(value, stamp, milliseconds(now)).max(1.0))
    }

    /// Returns what one more request would cost at a server with so many in flight. Without a sample the
    /// first request costs nothing, or a server slower than others would never get one to show how slow it
    /// is.
    pub fn cost(&self, in_flight: u32, now: Nanos) -> f64 {
        if in_flight == 0 && self.0.load(Ordering::Relaxed) == 0 {
            return 0.0;
        }
        self.value(now) * (f64::from(in_flight) + 1.0)
    }
}
