//! Ticks at equal distances.

use super::{now, sleep_until};
use std::fmt;
use std::time::{Duration, Instant};

/// What is later than every clock shows stands for "never".
const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Returns the instant `span` after `at`, or one that never comes if there is none.
fn later(at: Instant, span: Duration) -> Instant {
    at.checked_add(span).or_else(|| at.checked_add(NEVER)).unwrap_or(at)
}

/// What an [`Interval`] does about ticks that were missed because its task was late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissedTick {
    /// Makes them up at once, so that there are as many ticks as periods.
    #[default]
    Burst,
    /// Leaves them out; the next one is a period after the late one.
    Delay,
    /// Leaves them out; the next one is at a whole number of periods after the first.
    Skip,
}

/// Returns an interval with its first tick now. Ticks follow the runtime's clock: at once in a simulation.
///
/// ```
/// use ringroad_engine::{DriverName, Runtime, time};
/// use std::time::Duration;
///
/// Runtime::new(DriverName::Epoll)?.block_on(async {
///     let mut interval = time::interval(Duration::from_millis(1));
///     let first = interval.tick().await;
///     assert_eq!(interval.tick().await, first + Duration::from_millis(1));
/// })?;
/// # Ok::<(), ringroad_engine::Error>(())
/// ```
///
/// # Panics
/// If `period` is zero; outside of a runtime.
pub fn interval(period: Duration) -> Interval {
    interval_at(now(), period)
}

/// Returns an interval with its first tick at `start`.
///
/// # Panics
/// If `period` is zero.
pub fn interval_at(start: Instant, period: Duration) -> Interval {
    assert!(!period.is_zero(), "an interval of no length would tick without end");
    Interval { next: start, period, missed: MissedTick::default() }
}

/// Ticks at equal distances. See [`interval`].
pub struct Interval {
    next: Instant,
    period: Duration,
    missed: MissedTick,
}

impl Interval {
    /// Waits for the next tick; returns the time it was due. Dropping the future loses no tick.
    pub async fn tick(&mut self) -> Instant {
        let due = self.next;
        sleep_until(due).await;
        self.next = self.after(due, now());
        due
    }

    /// Returns the tick after the one that was due at `due` and came at `now`.
    fn after(&self, due: Instant, now: Instant) -> Instant {
        let next = later(due, self.period);
        if next > now {
            return next;
        }
        match self.missed {
            MissedTick::Burst => next,
            MissedTick::Delay => later(now, self.period),
            MissedTick::Skip => {
                let past = now.duration_since(due).as_nanos() % self.period.as_nanos();
                // Below the period, which fits.
                let left = self.period - Duration::from_nanos(u64::try_from(past).unwrap_or(0));
                later(now, left)
            }
        }
    }

    /// Sets what is done about missed ticks.
    #[doc(alias = "set_missed_tick_behavior")]
    pub fn set_missed_tick(&mut self, missed: MissedTick) {
        self.missed = missed;
    }

    /// Starts anew: the next tick is one period from now.
    pub fn reset(&mut self) {
        self.next = later(now(), self.period);
    }

    /// Starts anew: the next tick is now.
    pub fn reset_immediately(&mut self) {
        self.next = now();
    }

    /// Starts anew: the next tick is in `span`.
    pub fn reset_after(&mut self, span: Duration) {
        self.next = later(now(), span);
    }

    /// Starts anew: the next tick is at `start`.
    pub fn reset_at(&mut self, start: Instant) {
        self.next = start;
    }

    /// Returns what is done about missed ticks.
    pub fn missed_tick(&self) -> MissedTick {
        self.missed
    }

    /// Returns the period.
    pub fn period(&self) -> Duration {
        self.period
    }
}

impl fmt::Debug for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interval").field("period", &self.period).field("missed", &self.missed).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_beyond_the_end_of_time_has_a_first_tick_only() {
        let start = Instant::now();
        for missed in [MissedTick::Burst, MissedTick::Delay, MissedTick::Skip] {
            let mut interval = interval_at(start, Duration::MAX);
            interval.set_missed_tick(missed);
            let next = interval.after(start, start + Duration::from_secs(1));
            assert!(next > start + NEVER / 2, "{missed:?}");
        }
    }

    #[test]
    fn missed_ticks_are_made_up_delayed_or_skipped_as_asked() {
        let start = Instant::now();
        let ms = |ms| start + Duration::from_millis(ms);
        let mut interval = interval_at(start, Duration::from_millis(10));
        let late = |interval: &Interval| interval.after(ms(0), ms(34));
        assert_eq!(late(&interval), ms(10));
        interval.set_missed_tick(MissedTick::Delay);
        assert_eq!(late(&interval), ms(44));
        interval.set_missed_tick(MissedTick::Skip);
        assert_eq!(late(&interval), ms(40));
        assert_eq!(interval.after(ms(0), ms(3)), ms(10), "none was missed");
    }
}
