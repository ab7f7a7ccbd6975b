//! Work that takes a stated amount of CPU time, standing for business logic.
//!
//! A counted loop; its speed is measured once at the start. A loop that spins until a deadline would be
//! wrong: a thread that is preempted while it spins would find its work done by waiting, and of many threads
//! on one core each would do a fraction of the work of a single one.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Rounds of one calibration sample: about a quarter of a millisecond.
const SAMPLE_ROUNDS: u64 = 250_000;

/// Samples taken; the fastest counts, since interference only ever slows one down.
const SAMPLES: usize = 32;

/// How much to burn for each portion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    rounds: u64,
}

impl Work {
    /// Finds out how many rounds take `each` here. Takes some 10 ms, and nothing if `each` is zero.
    pub(crate) fn calibrate(each: Duration) -> Self {
        if each.is_zero() {
            return Work { rounds: 0 };
        }
        let sample = || {
            let start = Instant::now();
            burn(SAMPLE_ROUNDS);
            start.elapsed()
        };
        let fastest = (0..SAMPLES).map(|_| sample()).min().unwrap_or(Duration::MAX);
        let rounds = SAMPLE_ROUNDS as f64 * each.as_secs_f64() / fastest.as_secs_f64();
        Work { rounds: (rounds as u64).max(1) }
    }

    /// Burns `portions` times the calibrated time on this thread.
    #[inline]
    pub(crate) fn perform(self, portions: u32) {
        if self.rounds > 0 {
            burn(self.rounds * u64::from(portions));
        }
    }
}

/// One dependent step per round: nothing for the compiler to fold and no memory to touch.
#[inline(never)]
fn burn(rounds: u64) {
    let mut state = black_box(rounds);
    for _ in 0..rounds {
        state = black_box(state.rotate_left(5) ^ 0x9e37_79b9);
    }
    black_box(state);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_grows_with_the_time_asked_for() {
        let small = Work::calibrate(Duration::from_micros(1)).rounds;
        let large = Work::calibrate(Duration::from_millis(1)).rounds;
        assert!(small > 0);
        // A thousand times, with wide room for a disturbed calibration.
        assert!(large / small > 100, "{small} rounds for 1 µs, {large} for 1 ms");
    }

    #[test]
    fn no_work_is_no_rounds() {
        assert_eq!(Work::calibrate(Duration::ZERO).rounds, 0);
    }
}
