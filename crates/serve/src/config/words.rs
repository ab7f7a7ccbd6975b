//! Values that only a server has: drivers.

use ringroad_engine::choose::Wish;
use ringroad_settings::Value;
use ringroad_settings::value::found;

/// Returns a driver's name, or `auto`.
pub(super) fn wish(value: &Value<'_>) -> Result<Wish, String> {
    let words: Vec<_> = Wish::words().collect();
    let expected = || found(&format!("one of {}", words.join(", ")), value);
    value.as_str().and_then(|word| word.parse().ok()).ok_or_else(expected)
}
