//! The engine's clock: nanoseconds since an origin, read once per turn. Real, or virtual in `sim`.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A point in time: nanoseconds since the clock's origin. Holds 584 years.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Moment(pub(crate) u64);

impl Moment {
    /// Returns the moment `span` later, saturating.
    pub(crate) fn after(self, span: Duration) -> Moment {
        Moment(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Returns the time since `earlier`, saturating at zero.
    pub(crate) fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A source of time.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    /// CLOCK_MONOTONIC since this instant.
    Monotonic(Instant),
    /// The virtual time of a simulation.
    #[cfg_attr(not(feature = "sim"), allow(dead_code, reason = "made by the simulation"))]
    Virtual(Rc<Cell<u64>>),
}

impl Clock {
    /// Returns a clock with the origin now.
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

    /// Reads the clock as an instant of the standard library.
    pub(crate) fn instant(&self) -> Instant {
        /// Where virtual time begins: an instant cannot be made from nothing.
        static ORIGIN: OnceLock<Instant> = OnceLock::new();
        match self {
            Clock::Monotonic(_) => Instant::now(),
            Clock::Virtual(now) => *ORIGIN.get_or_init(Instant::now) + Duration::from_nanos(now.get()),
        }
    }
}

/// Limit of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// Take pending news; do not wait.
    Now,
    /// Until news, or for this long.
    For(Duration),
    /// Until news.
    News,
}
