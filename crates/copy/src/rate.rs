//! A limit on bytes per second that all workers share: a token bucket.
//!
//! The bucket is one instant: when all that was taken so far is paid for. A worker that takes bytes moves it
//! on by what they cost, and waits until it has come. Bytes are paid after they were read and before they are
//! written, so a burst is bounded by the pieces that the workers hold. Start at [`Bucket::take`].

use crate::report::Control;
use std::num::NonZeroU64;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time that was not used and may be made up for.
const BURST: Duration = Duration::from_millis(100);
/// How long a worker waits before it looks whether the copy was stopped.
const LOOK: Duration = Duration::from_millis(50);

/// The bucket.
#[derive(Debug)]
pub(crate) struct Bucket {
    bytes_per_second: NonZeroU64,
    /// When what was taken is paid for.
    paid: Mutex<Option<Instant>>,
}

impl Bucket {
    pub(crate) fn new(bytes_per_second: NonZeroU64) -> Bucket {
        Bucket { bytes_per_second, paid: Mutex::new(None) }
    }

    /// Bytes that one piece should have at most, so that the flow is even: those of an eighth of a second.
    pub(crate) fn piece(&self) -> usize {
        usize::try_from(self.bytes_per_second.get() / 8).unwrap_or(usize::MAX).max(4096)
    }

    /// Takes `bytes` at `now`. Returns when they are paid for.
    fn pay(&self, bytes: u64, now: Instant) -> Instant {
        let cost = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second.get() as f64);
        let mut paid = self.paid.lock().unwrap_or_else(PoisonError::into_inner);
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        let until = paid.map_or(now, |paid| paid.max(earliest)) + cost;
        *paid = Some(until);
        until
    }

    /// Waits until `bytes` may be written, or the copy is stopped.
    pub(crate) fn take(&self, bytes: u64, control: &Control) {
        let until = self.pay(bytes, Instant::now());
        while !control.is_cancelled() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(LOOK));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_paid_for_in_turn_and_a_pause_is_made_up_for_in_part() {
        let bucket = Bucket::new(NonZeroU64::MIN.saturating_add(999));
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        assert_eq!(bucket.pay(500, start), after(500));
        assert_eq!(bucket.pay(250, start), after(750), "another worker, at the same time");
        assert_eq!(bucket.pay(100, after(800)), after(850), "50 ms late, which is made up for");
        assert_eq!(bucket.pay(100, after(5000)), after(5000), "a long pause is not");
    }
}
