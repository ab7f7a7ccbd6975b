//! Units as types, with the spelling a person enjoys: `3.91 µs`, `12.4 KiB`, `251 k/s`, `3.1 %`.
//!
//! Few on purpose: quantities that cross a crate or reach a reader. Fields of the record keep plain numbers with
//! the unit in the name, because a record is read by other languages.
//!
//! Start at [`Nanos`].

use std::fmt;
use std::time::Duration;

/// A length of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

/// A length of time in microseconds, the unit of latencies and of CPU per request in the record.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Micros(pub f64);

/// A number of bytes; printed with binary prefixes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

/// A rate, events per second; printed with decimal prefixes.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct PerSecond(pub f64);

/// A part of a whole: 0.031 is printed `3.1 %`. May leave 0 to 1, as several threads use several cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Share(pub f64);

impl Nanos {
    /// As microseconds; exact below 2^53 ns (104 days).
    pub fn micros(self) -> Micros {
        Micros(self.0 as f64 / 1e3)
    }

    /// As seconds.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl From<Duration> for Nanos {
    /// Saturates at 584 years.
    fn from(duration: Duration) -> Self {
        Nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Nanos> for Duration {
    fn from(nanos: Nanos) -> Self {
        Duration::from_nanos(nanos.0)
    }
}

impl From<Nanos> for Micros {
    fn from(nanos: Nanos) -> Self {
        nanos.micros()
    }
}

impl PerSecond {
    /// `count` events in `time`; `None` for no time at all.
    pub fn of(count: u64, time: Duration) -> Option<Self> {
        (!time.is_zero()).then(|| PerSecond(count as f64 / time.as_secs_f64()))
    }
}

impl Share {
    /// `part` of `whole`; `None` for a whole of nothing.
    pub fn of(part: f64, whole: f64) -> Option<Self> {
        (whole != 0.0).then(|| Share(part / whole))
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.micros().fmt(f)
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&scaled(self.0 * 1e3, &[("ns", 1e3), ("µs", 1e3), ("ms", 1e3), ("s", f64::INFINITY)], " "))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 1024 {
            return f.pad(&format!("{} B", self.0));
        }
        f.pad(&scaled(
            self.0 as f64 / 1024.0,
            &[("KiB", 1024.0), ("MiB", 1024.0), ("GiB", 1024.0), ("TiB", f64::INFINITY)],
            " ",
        ))
    }
}

impl fmt::Display for PerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&scaled(self.0, &[("/s", 1e3), ("k/s", 1e3), ("M/s", 1e3), ("G/s", f64::INFINITY)], " "))
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = self.0 * 100.0;
        // One decimal is what a share of CPU or a difference deserves; two where one would read as zero.
        let text = if percent != 0.0 && percent.abs() < 0.095 {
            format!("{percent:.2} %")
        } else if percent.abs() < 99.95 {
            format!("{percent:.1} %")
        } else {
            format!("{percent:.0} %")
        };
        f.pad(&text)
    }
}

/// Three significant digits in the largest unit that keeps the number at or above 1. `units` pairs each name
/// with the factor to the next one.
fn scaled(value: f64, units: &[(&str, f64)], gap: &str) -> String {
    let mut value = value;
    let mut name = "";
    for (unit, next) in units {
        name = unit;
        // 999.5 would round to 1000: that is one of the next unit.
        if value.abs() < next - 0.5 || !value.is_finite() {
            break;
        }
        value /= next;
    }
    let magnitude = value.abs();
    let decimals = if value == value.trunc() && magnitude < 10.0 && value == 0.0 {
        0
    } else if magnitude < 9.995 {
        2
    } else if magnitude < 99.95 {
        1
    } else {
        0
    };
    format!("{value:.decimals$}{gap}{name}")
}
