//! When to try again: twice as long after each failure, up to a bound, and half of it by chance, so that
//! connections that failed together do not come back together. No clock.

use std::time::Duration;

/// Failures in a row, and the wait that follows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retry {
    /// The first wait and the longest.
    bounds: (Duration, Duration),
    next: Duration,
    failures: u32,
}

impl Retry {
    pub(crate) fn new(bounds: (Duration, Duration)) -> Retry {
        Retry { bounds, next: bounds.0, failures: 0 }
    }

    /// It worked: the next failure is a first one.
    pub(crate) fn reset(&mut self) {
        *self = Retry::new(self.bounds);
    }

    /// Counts a try that failed. How many that are in a row.
    pub(crate) fn failed(&mut self) -> u32 {
        self.failures += 1;
        self.failures
    }

    /// Returns how long to wait now; `chance` from 0 to 1 says where between half of it and all.
    pub(crate) fn wait(&mut self, chance: f64) -> Duration {
        let wait = self.next.mul_f64((1.0 + chance) / 2.0);
        self.next = (self.next * 2).min(self.bounds.1);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound_and_half_of_each_is_chance() {
        let ms = Duration::from_millis;
        let mut retry = Retry::new((ms(100), ms(500)));
        let longest: Vec<_> = (0..5).map(|_| retry.wait(1.0)).collect();
        assert_eq!(longest, [ms(100), ms(200), ms(400), ms(500), ms(500)]);
        retry.reset();
        let shortest: Vec<_> = (0..4).map(|_| retry.wait(0.0)).collect();
        assert_eq!(shortest, [ms(50), ms(100), ms(200), ms(250)]);
    }

    #[test]
    fn failures_are_counted_until_one_try_works() {
        let mut retry = Retry::new((Duration::ZERO, Duration::ZERO));
        assert_eq!((retry.failed(), retry.failed()), (1, 2));
        retry.reset();
        assert_eq!(retry.failed(), 1);
    }
}
