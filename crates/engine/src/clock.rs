//! Time as the engine sees it: nanoseconds since an origin, read once per turn; real, or virtual in `sim`.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// A point in time: nanoseconds since the clock's origin. Holds 584 years.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Moment(pub(crate) u64);

impl Moment {
    /// `span` later; the end of time if that is past it.
    pub(crate) fn after(self, span: Duration) -> Moment {
        Moment(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// How long from `earlier` to here; zero if it is not earlier.
    pub(crate) fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Where time comes from.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    /// CLOCK_MONOTONIC since this instant.
    Monotonic(Instant),
    /// What the simulation says.
    Virtual(Rc<Cell<u64>>),
}

impl Clock {
    /// Starts now.
    pub(crate) fn monotonic() -> Clock {
        Clock::Monotonic(Instant::now())
    }

    /// Reads the clock: about 20 ns when real.
    pub(crate) fn now(&self) -> Moment {
        match self {
            Clock::Monotonic(origin) => {
                Moment(u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
            }
            Clock::Virtual(now) => Moment(now.get()),
        }
    }
}

/// How long a wait may last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// Take what is there; do not wait.
    Now,
    /// Until news, or for this long.
    For(Duration),
    /// Until news.
    News,
}
