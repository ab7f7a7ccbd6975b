//! Values of settings: sizes, times, counts, rates, addresses. Each function returns the value, or a message
//! with what was expected.

use ipnet::IpNet;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;
use toml::de::DeValue;

/// Returns the message `expected …, found …`.
pub fn found(expected: &str, value: &DeValue<'_>) -> String {
    let what = match value {
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(truth) => truth.to_string(),
        DeValue::Datetime(date) => date.to_string(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    };
    format!("expected {expected}, found {what}")
}

/// Reads a text in quotes.
///
/// # Errors
/// States what was expected; so do all functions of this module.
pub fn text(value: &DeValue<'_>) -> Result<String, String> {
    value.as_str().map(str::to_owned).ok_or_else(|| found("a text in quotes", value))
}

/// Reads `true` or `false`.
///
/// # Errors
/// As [`text`].
pub fn truth(value: &DeValue<'_>) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| found("true or false", value))
}

fn number(value: &DeValue<'_>) -> Option<u64> {
    match value {
        DeValue::Integer(number) => {
            u64::from_str_radix(number.as_str().trim_start_matches('+'), number.radix()).ok()
        }
        // Environment variables are always text.
        DeValue::String(text) => digits(text),
        _ => None,
    }
}

/// Reads a number from `least` to `most`. Digits as text are accepted too, since environment variables are
/// text.
///
/// # Errors
/// As [`text`].
pub fn count(value: &DeValue<'_>, least: u64, most: u64) -> Result<u64, String> {
    let range = || match most {
        u64::MAX => format!("a number, {least} or more"),
        most => format!("a number from {least} to {most}"),
    };
    number(value).filter(|number| (least..=most).contains(number)).ok_or_else(|| found(&range(), value))
}

/// Reads a share: `0.5` or `"50%"`, from 0 to 1.
///
/// # Errors
/// As [`text`].
pub fn share(value: &DeValue<'_>) -> Result<f64, String> {
    let read = match value {
        DeValue::String(text) => {
            let percent = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
            percent.map(|percent| percent / 100.0)
        }
        DeValue::Float(number) => number.as_str().replace('_', "").parse().ok(),
        DeValue::Integer(_) => number(value).filter(|number| *number <= 1).map(|number| number as f64),
        _ => None,
    };
    let within = read.filter(|share| (0.0..=1.0).contains(share));
    within.ok_or_else(|| found("a share, as \"50%\" or 0.5", value))
}

/// Reads a number of bytes from `least` to `most`: `8192`, `"8K"`, `"64M"`, `"2G"`.
///
/// # Errors
/// As [`text`].
pub fn bytes(value: &DeValue<'_>, least: u64, most: u64) -> Result<u64, String> {
    let parsed = match value {
        DeValue::String(text) => sized(text),
        value => number(value),
    };
    let expected = || {
        let bounds = match most {
            u64::MAX => String::new(),
            most => format!(", {least} to {most}"),
        };
        format!("a number of bytes (65536, \"64K\", \"8M\", \"2G\"){bounds}")
    };
    parsed.filter(|bytes| (least..=most).contains(bytes)).ok_or_else(|| found(&expected(), value))
}

fn sized(text: &str) -> Option<u64> {
    let (number, unit) = with_unit(text)?;
    let shift = match unit {
        "" => 0,
        "K" | "k" | "KiB" => 10,
        "M" | "m" | "MiB" => 20,
        "G" | "g" | "GiB" => 30,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

fn with_unit(text: &str) -> Option<(u64, &str)> {
    let number = text.trim_end_matches(|last: char| last.is_ascii_alphabetic());
    Some((digits(number)?, text.get(number.len()..)?))
}

/// The longest time that [`span`] accepts.
pub const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Reads a time, at least `least` and at most a day: `10` (seconds), `"10s"`, `"250ms"`, `"5m"`, `"1h"`,
/// `"1d"`.
///
/// # Errors
/// As [`text`].
pub fn span(value: &DeValue<'_>, least: Duration) -> Result<Duration, String> {
    span_within(value, least..=DAY)
}

/// Works as [`span`] with other bounds; `"7d"` is seven days.
///
/// # Errors
/// As [`text`].
pub fn span_within(value: &DeValue<'_>, bounds: RangeInclusive<Duration>) -> Result<Duration, String> {
    let parsed = match value {
        DeValue::String(text) => spanned(text),
        value => number(value).map(Duration::from_secs),
    };
    let expected = || {
        let (least, most) = (bounds.start(), bounds.end());
        let least = if *least > Duration::ZERO { format!(", at least {least:?}") } else { String::new() };
        let most =
            if *most == DAY { "a day".to_owned() } else { format!("{} days", most.as_secs() / 86_400) };
        format!(
            "a span of time, as \"250ms\", \"10s\", \"5m\" or \"1h\" (units: ms, s, m, h, d; without one: seconds){least}, \
             at most {most}"
        )
    };
    parsed.filter(|span| bounds.contains(span)).ok_or_else(|| found(&expected(), value))
}

fn spanned(text: &str) -> Option<Duration> {
    let (number, unit) = with_unit(text)?;
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "" | "s" => Some(Duration::from_secs(number)),
        "m" | "min" => number.checked_mul(60).map(Duration::from_secs),
        "h" => number.checked_mul(3600).map(Duration::from_secs),
        "d" => number.checked_mul(86_400).map(Duration::from_secs),
        _ => None,
    }
}

/// Reads two times, `"25ms..250ms"`: the first is not longer than the second.
///
/// # Errors
/// As [`text`].
pub fn span_range(value: &DeValue<'_>) -> Result<RangeInclusive<Duration>, String> {
    let read = value.as_str().and_then(|text| text.split_once(".."));
    let read = read.and_then(|(from, to)| Some(spanned(from.trim())?..=spanned(to.trim())?));
    let expected = "two times with the shorter one first, as \"25ms..250ms\"";
    read.filter(|range| !range.is_empty() && *range.end() <= DAY).ok_or_else(|| found(expected, value))
}

/// A number of events per time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// The number, at least one.
    pub count: u64,
    /// The time.
    pub per: Duration,
}

/// Reads `"50/s"`, `"1000/m"`, `"5/10s"`.
///
/// # Errors
/// As [`text`].
pub fn rate(value: &DeValue<'_>) -> Result<Rate, String> {
    let read = value.as_str().and_then(|text| text.split_once('/'));
    let read = read.and_then(|(count, per)| {
        let (count, per) = (digits(count.trim())?, per.trim());
        // A unit without a number means one.
        let per = if per.starts_with(|c: char| c.is_ascii_digit()) {
            spanned(per)?
        } else {
            spanned(&format!("1{per}"))?
        };
        (count > 0 && !per.is_zero() && per <= DAY).then_some(Rate { count, per })
    });
    read.ok_or_else(|| found("a rate, as \"50/s\", \"1000/m\" or \"5/10s\"", value))
}

/// Reads an address with its port. `8080`, `"8080"` and `":8080"` mean that port of 127.0.0.1 and of all
/// addresses; `"localhost:8080"` is 127.0.0.1.
///
/// # Errors
/// As [`text`].
pub fn address(value: &DeValue<'_>) -> Result<SocketAddr, String> {
    let read = match value {
        DeValue::Integer(_) => number(value).and_then(|port| u16::try_from(port).ok()).map(loopback),
        value => value.as_str().and_then(address_of),
    };
    read.ok_or_else(|| {
        found("an address with its port, as \"127.0.0.1:8080\", \"[::1]:8080\" or \":8080\"", value)
    })
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// Parses an address in any of the forms of [`address`].
pub fn address_of(text: &str) -> Option<SocketAddr> {
    let port = |text: &str| digits(text).and_then(|port| u16::try_from(port).ok());
    if let Some(port) = port(text) {
        return Some(loopback(port));
    }
    if let Some(rest) = text.strip_prefix(':') {
        return port(rest).map(|port| SocketAddr::from(([0, 0, 0, 0], port)));
    }
    if let Some(rest) = text.strip_prefix("localhost:") {
        return port(rest).map(loopback);
    }
    text.parse().ok()
}

/// Reads a network, such as `10.0.0.0/8`; a single address is a network of one.
///
/// # Errors
/// As [`text`].
pub fn network(value: &DeValue<'_>) -> Result<IpNet, String> {
    let read = value.as_str().and_then(|text| {
        let network = text.parse::<IpNet>().ok();
        network.or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
    });
    read.ok_or_else(|| found("a network or an address, as \"10.0.0.0/8\" or \"::1\"", value))
}

/// Reads one value, or a list with at least one.
///
/// # Errors
/// As [`text`], for every invalid entry of the list.
pub fn some<T>(
    value: &DeValue<'_>,
    expected: &str,
    one: impl Fn(&DeValue<'_>) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    match value {
        DeValue::Array(all) if all.is_empty() => Err(format!("expected {expected}, found an empty list")),
        DeValue::Array(all) => {
            let (mut read, mut wrong) = (Vec::new(), Vec::<String>::new());
            for value in all.iter() {
                match one(value.get_ref()) {
                    Ok(value) => read.push(value),
                    Err(what) if wrong.contains(&what) => {}
                    Err(what) => wrong.push(what),
                }
            }
            if wrong.is_empty() { Ok(read) } else { Err(together(&wrong)) }
        }
        value => Ok(vec![one(value)?]),
    }
}

/// Joins the messages of several values. Equal expectations are stated once.
fn together(wrong: &[String]) -> String {
    const FOUND: &str = ", found ";
    let mut text = String::new();
    let mut expected = "";
    for what in wrong {
        let (before, _) = what.rsplit_once(FOUND).unwrap_or((what, ""));
        match what.strip_prefix(before) {
            Some(found) if before == expected && !found.is_empty() => {
                text.push_str(" and ");
                text.push_str(found.strip_prefix(FOUND).unwrap_or(found));
            }
            _ => {
                text.push_str(if text.is_empty() { "" } else { "; " });
                text.push_str(what);
            }
        }
        expected = before;
    }
    text
}

/// Reads one of these words.
///
/// # Errors
/// As [`text`].
pub fn one_of<T: Copy>(value: &DeValue<'_>, words: &[(&str, T)]) -> Result<T, String> {
    let named = value.as_str().and_then(|word| words.iter().find(|(name, _)| *name == word));
    named.map(|(_, meaning)| *meaning).ok_or_else(|| {
        let names: Vec<_> = words.iter().map(|(name, _)| format!("{name:?}")).collect();
        found(&format!("one of {}", names.join(", ")), value)
    })
}

/// Reads a status from 200 to 599.
///
/// # Errors
/// As [`text`].
pub fn status(value: &DeValue<'_>) -> Result<u16, String> {
    count(value, 200, 599).map(|code| code as u16)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::borrow::Cow;

    fn of(text: &str) -> DeValue<'_> {
        DeValue::String(Cow::Borrowed(text))
    }

    #[test]
    fn every_wrong_entry_of_a_list_is_told_and_what_was_expected_once() {
        let list = |texts: &[&'static str]| {
            let all = texts.iter().map(|text| toml::Spanned::new(0..0, of(text)));
            DeValue::Array(all.collect())
        };
        let one = |value: &DeValue<'_>| match value.as_str() {
            Some("ok") => Ok(1),
            Some("odd") => Err("odd, and told in other words".to_owned()),
            _ => Err(found("ok", value)),
        };
        assert_eq!(some(&list(&["ok", "ok"]), "words", one), Ok(vec![1, 1]));
        for (texts, told) in [
            (
                &["a", "ok", "b, found c", "a"][..],
                "expected ok, found \"a\"; expected ok, found \"b, found c\"",
            ),
            (&["a", "b", "c"], "expected ok, found \"a\" and \"b\" and \"c\""),
            (&["odd", "a", "odd", "b"], "odd, and told in other words; expected ok, found \"a\" and \"b\""),
            (&[], "expected words, found an empty list"),
        ] {
            assert_eq!(some(&list(texts), "words", one), Err(told.to_owned()), "{texts:?}");
        }
    }

    #[test]
    fn sizes_have_units_of_1024_and_nothing_else() {
        for (text, bytes) in [("0", 0), ("1", 1), ("8K", 8192), ("64M", 64 << 20), ("2G", 2 << 30)] {
            assert_eq!(sized(text), Some(bytes), "{text}");
        }
        for text in ["", "K", "-1", "1.5K", "1T", "+1", "1 K", "99999999999999999999", "17179869184G"] {
            assert_eq!(sized(text), None, "{text}");
        }
    }

    #[test]
    fn spans_have_units_and_seconds_are_the_default() {
        for (text, ms) in [("0", 0), ("10", 10_000), ("10s", 10_000), ("250ms", 250), ("5m", 300_000)] {
            assert_eq!(spanned(text), Some(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "s", "-1", "1.5s", "1y", "1 s", "99999999999999999999"] {
            assert_eq!(spanned(text), None, "{text}");
        }
        assert!(span(&of("2d"), Duration::ZERO).is_err());
        assert!(span_within(&of("2d"), Duration::ZERO..=7 * DAY).is_ok());
    }

    #[test]
    fn a_range_of_times_is_written_with_the_shorter_one_first() {
        let range = span_range(&of("25ms..250ms")).unwrap();
        assert_eq!(range, Duration::from_millis(25)..=Duration::from_millis(250));
        for text in ["250ms..25ms", "25ms", "..", "a..b"] {
            assert!(span_range(&of(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn a_rate_is_a_count_in_a_time() {
        for (text, count, ms) in
            [("50/s", 50, 1000), ("1000/m", 1000, 60_000), ("5/10s", 5, 10_000), ("1/h", 1, 3_600_000)]
        {
            assert_eq!(rate(&of(text)), Ok(Rate { count, per: Duration::from_millis(ms) }), "{text}");
        }
        for text in ["", "50", "0/s", "5/0s", "-1/s", "5/x", "/s"] {
            assert!(rate(&of(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn a_share_is_a_percentage_or_a_fraction() {
        assert_eq!(share(&of("50%")), Ok(0.5));
        assert_eq!(share(&of("0%")), Ok(0.0));
        for text in ["", "50", "101%", "-1%", "x%"] {
            assert!(share(&of(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn an_address_is_understood_in_each_usual_spelling() {
        for (text, expected) in [
            ("127.0.0.1:8080", "127.0.0.1:8080"),
            ("[::1]:80", "[::1]:80"),
            ("8080", "127.0.0.1:8080"),
            (":8080", "0.0.0.0:8080"),
            ("localhost:8080", "127.0.0.1:8080"),
        ] {
            assert_eq!(address_of(text), Some(expected.parse().unwrap()), "{text}");
        }
        for text in ["", ":", "localhost", "host:80", "70000", ":70000", "127.0.0.1"] {
            assert_eq!(address_of(text), None, "{text}");
        }
    }

    #[test]
    fn a_network_may_be_a_single_address() {
        assert_eq!(network(&of("10.0.0.0/8")).unwrap().to_string(), "10.0.0.0/8");
        assert_eq!(network(&of("::1")).unwrap().to_string(), "::1/128");
        assert!(network(&of("10.0.0.0/33")).is_err());
    }
}
