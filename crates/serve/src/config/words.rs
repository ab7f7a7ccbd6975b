//! Values of a configuration: sizes, spans of time, counts, addresses. Each takes a value or says what was expected.

use super::reader::found;
use ringroad_engine::choose::Wish;
use ringroad_http::FieldBlock;
use std::net::SocketAddr;
use std::time::Duration;
use toml::de::DeValue;

/// A text.
pub(super) fn text(value: &DeValue<'_>) -> Result<String, String> {
    value.as_str().map(str::to_owned).ok_or_else(|| found("a text in quotes", value))
}

/// `true` or `false`.
pub(super) fn truth(value: &DeValue<'_>) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| found("true or false", value))
}

fn number(value: &DeValue<'_>) -> Option<u64> {
    let DeValue::Integer(number) = value else { return None };
    u64::from_str_radix(number.as_str().trim_start_matches('+'), number.radix()).ok()
}

/// A number from `least` to `most`.
pub(super) fn count(value: &DeValue<'_>, least: u64, most: u64) -> Result<u64, String> {
    let range = || match most {
        u64::MAX => format!("a number, {least} or more"),
        most => format!("a number from {least} to {most}"),
    };
    number(value).filter(|number| (least..=most).contains(number)).ok_or_else(|| found(&range(), value))
}

/// `8192`, `"8K"`, `"64M"`, `"2G"`: bytes, from `least` to `most`.
pub(super) fn bytes(value: &DeValue<'_>, least: u64, most: u64) -> Result<u64, String> {
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
    let digits = text.trim_end_matches(|last: char| last.is_ascii_alphabetic());
    let shift = match text.get(digits.len()..)? {
        "" => 0,
        "K" | "k" | "KiB" => 10,
        "M" | "m" | "MiB" => 20,
        "G" | "g" | "GiB" => 30,
        _ => return None,
    };
    let number: u64 = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())??;
    number.checked_mul(1 << shift)
}

/// `10` (seconds), `"10s"`, `"250ms"`, `"5m"`, `"1h"`; at least `least`, at most a day.
pub(super) fn span(value: &DeValue<'_>, least: Duration) -> Result<Duration, String> {
    let parsed = match value {
        DeValue::String(text) => spanned(text),
        value => number(value).map(Duration::from_secs),
    };
    let expected = || {
        let least = if least > Duration::ZERO { format!(", at least {least:?}") } else { String::new() };
        format!("a span of time (10, \"10s\", \"250ms\", \"5m\"){least}, at most a day")
    };
    let day = Duration::from_secs(24 * 60 * 60);
    parsed.filter(|span| (least..=day).contains(span)).ok_or_else(|| found(&expected(), value))
}

fn spanned(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|last: char| last.is_ascii_alphabetic());
    let number: u64 = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())??;
    match text.get(digits.len()..)? {
        "ms" => Some(Duration::from_millis(number)),
        "" | "s" => Some(Duration::from_secs(number)),
        "m" | "min" => number.checked_mul(60).map(Duration::from_secs),
        "h" => number.checked_mul(3600).map(Duration::from_secs),
        _ => None,
    }
}

/// An address with a port.
pub(super) fn address(value: &DeValue<'_>) -> Result<SocketAddr, String> {
    let expected = || found("an address with its port, as \"127.0.0.1:8080\" or \"[::1]:8080\"", value);
    value.as_str().and_then(|text| text.parse().ok()).ok_or_else(expected)
}

/// One value, or a list of them: at least one.
pub(super) fn some<T>(
    value: &DeValue<'_>,
    expected: &str,
    one: impl Fn(&DeValue<'_>) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    match value {
        DeValue::Array(all) if all.is_empty() => Err(format!("expected {expected}, found an empty list")),
        DeValue::Array(all) => all.iter().map(|value| one(value.get_ref())).collect(),
        value => Ok(vec![one(value)?]),
    }
}

/// A driver's name, or `auto`.
pub(super) fn wish(value: &DeValue<'_>) -> Result<Wish, String> {
    let words: Vec<_> = Wish::words().collect();
    let expected = || found(&format!("one of {}", words.join(", ")), value);
    value.as_str().and_then(|word| word.parse().ok()).ok_or_else(expected)
}

/// One of these words.
pub(super) fn one_of<T: Copy>(value: &DeValue<'_>, words: &[(&str, T)]) -> Result<T, String> {
    let named = value.as_str().and_then(|word| words.iter().find(|(name, _)| *name == word));
    named.map(|(_, meaning)| *meaning).ok_or_else(|| {
        let names: Vec<_> = words.iter().map(|(name, _)| format!("{name:?}")).collect();
        found(&format!("one of {}", names.join(", ")), value)
    })
}

/// Adds a header line, if it may be one.
pub(super) fn header(block: &mut FieldBlock, name: &str, value: &DeValue<'_>) -> Result<(), String> {
    let line = value.as_str().ok_or_else(|| found("a text in quotes", value))?;
    block.push(name.as_bytes(), line.as_bytes()).map_err(|why| why.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

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
        for text in ["", "s", "-1", "1.5s", "1d", "1 s", "99999999999999999999"] {
            assert_eq!(spanned(text), None, "{text}");
        }
    }
}
