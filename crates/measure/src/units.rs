//! Units as types, with the spelling for readers: `3.91 µs`, `12.4 KiB`, `251 k/s`, `3.1 %`.
//!
//! Only quantities that cross a crate boundary or are shown have a type. Fields of the record are plain
//! numbers with the unit in the name, because programs in other languages read them.
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

/// The distance of a ratio from 1: 1.031 and 0.969 are printed as `3.1 %`. From a factor of three on
/// percentages are hard to read, and 99.9 % less is ambiguous: 12.6 and 1/12.6 are printed as
/// `a factor of 12.6`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Apart(pub f64);

/// The ratio from which on [`Apart`] is printed as a factor.
const FACTOR_MIN: f64 = 3.0;

impl Nanos {
    /// Returns it as microseconds; exact below 2^53 ns (104 days).
    pub fn micros(self) -> Micros {
        Micros(self.0 as f64 / 1e3)
    }

    /// Returns it as seconds.
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
    /// Returns the rate of `count` events in `time`; `None` if `time` is zero.
    pub fn of(count: u64, time: Duration) -> Option<Self> {
        (!time.is_zero()).then(|| PerSecond(count as f64 / time.as_secs_f64()))
    }
}

impl Share {
    /// Returns the share of `part` in `whole`; `None` if `whole` is zero.
    pub fn of(part: f64, whole: f64) -> Option<Self> {
        (whole != 0.0).then(|| Share(part / whole))
    }
}

impl Apart {
    /// Formats it with half the width of the ratio's interval: `3.1 % ± 0.9`, `a factor of 12.6 ± 0.3`.
    pub fn plus_minus(self, half: f64) -> String {
        if self.is_factor() {
            // The interval of 1/x is narrower or wider than that of x by the square of x.
            let half = if self.0 < 1.0 { half / (self.0 * self.0) } else { half };
            return format!("{self} ± {half:.*}", decimals(self.factor()));
        }
        format!("{self} ± {:.1}", half * 100.0)
    }

    /// Formats it with the ends of the ratio's interval, which need not be symmetric:
    /// `5.0 % (4.0 % to 10.0 %)`, `a factor of 12.6 (12.1 to 13.4)`.
    pub fn within(self, low: f64, high: f64) -> String {
        let (near, far) = if self.0 < 1.0 { (high, low) } else { (low, high) };
        if self.is_factor() {
            let decimals = decimals(self.factor());
            let end = |ratio| Apart(ratio).factor();
            return format!("{self} ({:.decimals$} to {:.decimals$})", end(near), end(far));
        }
        let end = |ratio: f64| Share((ratio - 1.0).abs());
        format!("{self} ({} to {})", end(near), end(far))
    }

    fn is_factor(self) -> bool {
        (FACTOR_MIN..f64::INFINITY).contains(&self.factor())
    }

    fn factor(self) -> f64 {
        if self.0 < 1.0 { 1.0 / self.0 } else { self.0 }
    }
}

impl fmt::Display for Apart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_factor() {
            let factor = self.factor();
            return f.pad(&format!("a factor of {factor:.*}", decimals(factor)));
        }
        Share((self.0 - 1.0).abs()).fmt(f)
    }
}

/// Returns the number of decimals for three significant digits of a number of at least 1.
fn decimals(magnitude: f64) -> usize {
    match magnitude {
        magnitude if magnitude < 9.995 => 2,
        magnitude if magnitude < 99.95 => 1,
        _ => 0,
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.micros().fmt(f)
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&scaled(self.0 * 1e3, &[("ns", 1e3), ("µs", 1e3), ("ms", 1e3), ("s", f64::INFINITY)]))
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
        ))
    }
}

impl fmt::Display for PerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&scaled(self.0, &[("/s", 1e3), ("k/s", 1e3), ("M/s", 1e3), ("G/s", f64::INFINITY)]))
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = self.0 * 100.0;
        // One decimal suffices for a share of CPU or a difference; two if one would read as zero.
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

/// Returns a count with its noun, which is given in the singular: `1 file`, `2 entries`.
pub fn counted(count: u64, noun: &str) -> String {
    format!("{count} {}", in_number(count, noun))
}

/// Returns a regular noun, given in the singular, in the form for a count.
pub fn in_number(count: u64, noun: &str) -> String {
    let is_vowel = |letter: char| "aeiou".contains(letter);
    match noun.strip_suffix('y') {
        _ if count == 1 => noun.to_owned(),
        Some(stem) if !stem.ends_with(is_vowel) => format!("{stem}ies"),
        _ if noun.ends_with('s') => format!("{noun}es"),
        _ => format!("{noun}s"),
    }
}

/// Formats three significant digits, in the largest unit that keeps the number at 1 or above. `units` pairs
/// each name with the factor to the next one.
fn scaled(value: f64, units: &[(&str, f64)]) -> String {
    let mut value = value;
    let mut name = "";
    for (unit, next) in units {
        name = unit;
        // From half a unit below the factor the rounded number would read as the factor itself: 1000 µs.
        if value.abs() < next - 0.5 || !value.is_finite() {
            break;
        }
        value /= next;
    }
    let decimals = if value == 0.0 { 0 } else { decimals(value.abs()) };
    format!("{value:.decimals$} {name}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{Apart, Bytes, Micros, Nanos, PerSecond, Share, counted};
    use std::time::Duration;

    #[test]
    fn a_count_has_its_noun_in_the_right_number() {
        for (count, noun, expected) in [
            (0, "shard", "0 shards"),
            (1, "shard", "1 shard"),
            (1, "entry", "1 entry"),
            (2, "entry", "2 entries"),
            (2, "key", "2 keys"),
            (2, "address", "2 addresses"),
        ] {
            assert_eq!(counted(count, noun), expected);
        }
    }

    #[test]
    fn times_are_printed_with_three_digits_in_a_fitting_unit() {
        let texts = [
            (0, "0 ns"),
            (7, "7.00 ns"),
            (999, "999 ns"),
            (3_910, "3.91 µs"),
            (24_940, "24.9 µs"),
            (999_400, "999 µs"),
            (999_600, "1.00 ms"),
            (12_340_000, "12.3 ms"),
            (1_500_000_000, "1.50 s"),
            (3_600_000_000_000, "3600 s"),
        ];
        for (nanos, text) in texts {
            assert_eq!(Nanos(nanos).to_string(), text);
            assert_eq!(Micros(nanos as f64 / 1e3).to_string(), text);
        }
    }

    #[test]
    fn bytes_have_binary_prefixes() {
        let texts = [
            (0, "0 B"),
            (1_023, "1023 B"),
            (1_024, "1.00 KiB"),
            (12_700, "12.4 KiB"),
            (1_048_576, "1.00 MiB"),
            (5 << 40, "5.00 TiB"),
        ];
        for (bytes, text) in texts {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }

    #[test]
    fn rates_have_decimal_prefixes() {
        for (rate, text) in [(0.0, "0 /s"), (12.0, "12.0 /s"), (251_400.0, "251 k/s"), (3.95e6, "3.95 M/s")] {
            assert_eq!(PerSecond(rate).to_string(), text);
        }
    }

    #[test]
    fn shares_are_percents_that_never_read_as_zero_when_they_are_not() {
        let texts = [
            (0.0, "0.0 %"),
            (0.0004, "0.04 %"),
            (0.031, "3.1 %"),
            (-0.25, "-25.0 %"),
            (0.9996, "100 %"),
            (1.87, "187 %"),
        ];
        for (share, text) in texts {
            assert_eq!(Share(share).to_string(), text);
        }
    }

    #[test]
    fn figures_are_apart_by_percents_and_from_three_times_on_by_a_factor() {
        let texts = [
            (1.031, "3.1 % ± 0.9"),
            (0.969, "3.1 % ± 0.9"),
            (2.99, "199 % ± 0.9"),
            (1.0 / 2.99, "66.6 % ± 0.9"),
            (3.0, "a factor of 3.00 ± 0.01"),
            (0.25, "a factor of 4.00 ± 0.14"),
            (12.6, "a factor of 12.6 ± 0.0"),
            (1262.98, "a factor of 1263 ± 0"),
            (0.0, "100 % ± 0.9"),
        ];
        for (ratio, text) in texts {
            assert_eq!(Apart(ratio).plus_minus(0.009), text, "{ratio}");
        }
    }

    #[test]
    fn the_ends_of_an_interval_are_in_the_unit_of_its_middle() {
        assert_eq!(Apart(1.05).within(1.04, 1.1), "5.0 % (4.0 % to 10.0 %)");
        assert_eq!(Apart(0.95).within(0.9, 0.96), "5.0 % (4.0 % to 10.0 %)");
        assert_eq!(Apart(3.2).within(2.5, 12.0), "a factor of 3.20 (2.50 to 12.00)");
        assert_eq!(Apart(0.001).within(0.0005, 0.002), "a factor of 1000 (500 to 2000)");
    }

    #[test]
    fn numbers_line_up_in_a_table() {
        assert_eq!(format!("[{:>10}]", Nanos(3_910)), "[   3.91 µs]");
        assert_eq!(format!("[{:<9}]", Share(0.5)), "[50.0 %   ]");
    }

    #[test]
    fn nothing_is_divided_by_nothing() {
        assert_eq!(PerSecond::of(5, Duration::ZERO), None);
        assert_eq!(PerSecond::of(5, Duration::from_millis(500)), Some(PerSecond(10.0)));
        assert_eq!(Share::of(1.0, 0.0), None);
        assert_eq!(Share::of(1.0, 4.0), Some(Share(0.25)));
    }

    #[test]
    fn durations_come_and_go() {
        let duration = Duration::from_micros(1_500);
        assert_eq!(Nanos::from(duration), Nanos(1_500_000));
        assert_eq!(Duration::from(Nanos(1_500_000)), duration);
        assert_eq!(Nanos::from(Duration::MAX), Nanos(u64::MAX));
        assert_eq!(Nanos(1_500_000).seconds(), 0.0015);
    }
}
