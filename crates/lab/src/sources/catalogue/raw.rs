//! `docs/claims.toml` as it is written: tables with rows and columns, single figures, pairs; and numbers as
//! quotes spell them.
//!
//! What it all means is the parent's part. Start at [`RawCatalogue`].

use ringroad_measure::claim::Sense;
use serde::Deserialize;
use std::collections::BTreeMap;

/// What any level of a table may say of its cells.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Terms {
    pub(super) measure: Option<String>,
    pub(super) compute: Option<String>,
    pub(super) cannot: Option<String>,
    pub(super) near: Option<String>,
    pub(super) unit: Option<String>,
    pub(super) sense: Option<Sense>,
    pub(super) value: Option<f64>,
    pub(super) tolerance: Option<f64>,
    pub(super) by: Option<String>,
    pub(super) note: Option<String>,
    pub(super) connections: Option<f64>,
    pub(super) program: Option<String>,
}

impl Terms {
    pub(super) fn has_test(&self) -> bool {
        self.measure.is_some() || self.compute.is_some() || self.cannot.is_some()
    }
}

/// Unknown keys.
pub(super) type Rest = BTreeMap<String, toml::Value>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCatalogue {
    pub(super) reasons: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) table: Vec<RawTable>,
    #[serde(default)]
    pub(super) figure: Vec<RawFigure>,
    #[serde(default)]
    pub(super) little: Vec<RawLittle>,
}

#[derive(Deserialize)]
pub(super) struct RawTable {
    pub(super) id: String,
    pub(super) source: String,
    pub(super) section: String,
    pub(super) what: String,
    pub(super) columns: Vec<RawLine>,
    pub(super) rows: Vec<RawLine>,
    #[serde(default)]
    pub(super) cell: Vec<RawCell>,
    #[serde(flatten)]
    pub(super) terms: Terms,
    #[serde(flatten)]
    pub(super) rest: Rest,
}

/// A row or a column.
#[derive(Deserialize)]
pub(super) struct RawLine {
    pub(super) id: String,
    /// As the document calls it; `cargo xtask tidy` looks for it there.
    #[serde(rename = "head")]
    _head: String,
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) cells: Vec<String>,
    #[serde(flatten)]
    pub(super) terms: Terms,
    #[serde(flatten)]
    pub(super) rest: Rest,
}

impl RawLine {
    pub(super) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.id)
    }
}

#[derive(Deserialize)]
pub(super) struct RawCell {
    pub(super) row: String,
    pub(super) column: String,
    #[serde(flatten)]
    pub(super) terms: Terms,
    #[serde(flatten)]
    pub(super) rest: Rest,
}

#[derive(Deserialize)]
pub(super) struct RawFigure {
    pub(super) id: String,
    pub(super) source: String,
    pub(super) section: String,
    pub(super) what: String,
    pub(super) quote: String,
    #[serde(flatten)]
    pub(super) terms: Terms,
    #[serde(flatten)]
    pub(super) rest: Rest,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLittle {
    pub(super) of: String,
    pub(super) rate: String,
    pub(super) latency: String,
    pub(super) connections: Option<f64>,
    #[serde(default)]
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    #[default]
    Mean,
    P99,
}

/// Returns the first number of a quote in `unit`: `155K`, `98,432`, `2 GB`, `0.12`.
pub(super) fn number(quote: &str, unit: &str) -> Option<f64> {
    let from = quote.find(|c: char| c.is_ascii_digit())?;
    let quote = &quote[from..];
    let end = quote.find(|c: char| !c.is_ascii_digit() && c != ',' && c != '.').unwrap_or(quote.len());
    let (digits, rest) = quote.split_at(end);
    let value: f64 = digits.trim_end_matches([',', '.']).replace(',', "").parse().ok()?;
    let rest = rest.trim_start();
    let factor = match unit {
        "MB" if rest.starts_with("GB") => 1e3,
        "KB" | "MB" | "GB" => 1.0,
        _ if rest.starts_with(['K', 'k']) && !rest.starts_with("KB") => 1e3,
        _ if rest.starts_with('M') && !rest.starts_with("MB") => 1e6,
        "bytes" if rest.starts_with("KB") => 1024.0,
        _ => 1.0,
    };
    Some(value * factor)
}

/// `>` and `≥` mean that or more, `≤` that or less, `<` less.
pub(super) fn sense(quote: &str) -> Sense {
    match quote.trim_start().chars().next() {
        Some('>' | '≥') => Sense::Least,
        Some('≤') => Sense::Most,
        Some('<') => Sense::Below,
        _ => Sense::About,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_in_the_unit_of_the_claim() {
        for (quote, unit, expected) in [
            ("146,873", "requests/s", Some(146_873.0)),
            ("155K", "requests/s", Some(155_000.0)),
            ("13.21ms", "ms", Some(13.21)),
            ("2 GB (each 2MB", "MB", Some(2_000.0)),
            ("500 MB", "MB", Some(500.0)),
            ("1.28 M", "files", Some(1_280_000.0)),
            ("100–200 KB", "bytes", Some(100.0)),
            ("> 1M", "connections", Some(1_000_000.0)),
            ("10,000.", "connections", Some(10_000.0)),
            ("❌", "requests/s", None),
        ] {
            assert_eq!(number(quote, unit), expected, "{quote}");
        }
        assert_eq!(
            (sense("> 100K"), sense("< 100"), sense("99K")),
            (Sense::Least, Sense::Below, Sense::About)
        );
    }
}
