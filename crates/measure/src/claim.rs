//! Published figures beside measurements of this machine.
//!
//! A [`Claim`] has everything that a table or a chart needs: the claim and its place, the measured value, how
//! far the two agree, and why something could not be tested. Which claims there are, and measuring for them,
//! is the lab's part. Start at [`Claim`].

use crate::record::Interval;
use serde::{Deserialize, Serialize};

/// One published figure, and its test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// Unique: `003-qps/select/1000`.
    pub id: String,
    /// The document it stands in.
    pub source: String,
    /// The part of the document, in a few words.
    pub section: String,
    /// The table it belongs to, if it is a cell of one: its id, the row and the column.
    #[serde(default)]
    pub cell: Option<Place>,
    /// What is claimed, in plain words.
    pub what: String,
    /// The figure as the document spells it.
    pub quote: String,
    /// Its value, in `unit`; `None` where the document has a mark and no number.
    pub claimed: Option<f64>,
    /// Of `claimed` and `measured`.
    pub unit: String,
    /// How the value is meant.
    #[serde(default)]
    pub sense: Sense,
    /// What was measured here, or computed from the document's own figures, in `unit`.
    pub measured: Option<f64>,
    /// The 95 % interval of `measured`, where there were runs enough.
    #[serde(default)]
    pub interval: Option<Interval>,
    /// Where `measured` comes from.
    pub origin: Option<Origin>,
    /// The program that stood for that of the claim, where it was another one.
    #[serde(default)]
    pub by: Option<String>,
    /// How the test here differs in size from the claim's: `1 s instead of 30`.
    #[serde(default)]
    pub scale: Option<String>,
    /// What came of it.
    pub outcome: Outcome,
    /// Why it could not be tested, or what else a reader should know.
    #[serde(default)]
    pub why: Option<String>,
    /// What Little's law says about the figure together with the latency beside it in the document.
    #[serde(default)]
    pub little: Option<Little>,
}

/// A cell of a table in a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The table's id.
    pub table: String,
    /// The row's id.
    pub row: String,
    /// The column's id.
    pub column: String,
}

/// How a claimed value is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sense {
    /// The value itself, give or take the tolerance.
    #[default]
    About,
    /// This or more.
    Least,
    /// This or less.
    Most,
    /// Less than this.
    Below,
}

/// Where a value beside a claim comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Measured here, and it tests the claim.
    Measured,
    /// Computed from figures of the document.
    Computed,
    /// Measured here on something related; it decides nothing about the claim.
    Nearest,
}

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The measured value agrees with the claim, within the tolerance.
    Reproduced,
    /// It does not.
    NotReproduced,
    /// It cannot be tested here; [`Claim::why`] says why.
    Untestable,
}

/// Little's law on a published rate and latency: requests in flight = rate × mean latency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Little {
    /// Connections the document states, each with a request in flight; `None` if it states none.
    pub connections: Option<f64>,
    /// Rate × latency.
    pub in_flight: f64,
    /// The latency was a high percentile and not the mean, so `in_flight` is too large rather than too small.
    pub at_most: bool,
}

/// Up to this share a product may differ from the connections: documents round.
const ROUNDING: f64 = 0.10;

impl Little {
    /// Returns whether rate and latency can have come from that many connections; `None` where none are
    /// stated. A percentile above the mean gives too many in flight, so that it can only contradict by being
    /// too few.
    pub fn agrees(&self) -> Option<bool> {
        let share = self.in_flight / self.connections?;
        Some(share >= 1.0 - ROUNDING && (self.at_most || share <= 1.0 + ROUNDING))
    }
}

impl Claim {
    /// Returns measured over claimed, where both are numbers and the claim is not 0.
    pub fn ratio(&self) -> Option<f64> {
        let claimed = self.claimed.filter(|claimed| *claimed != 0.0)?;
        Some(self.measured? / claimed)
    }
}

impl Sense {
    /// Returns whether `measured` is what `claimed` says. `tolerance` is a factor above 1, allowed either way
    /// for [`Sense::About`] and on the failing side for [`Sense::Least`] and [`Sense::Most`] not at all: they
    /// are generous already.
    pub fn is_met(self, claimed: f64, measured: f64, tolerance: f64) -> bool {
        match self {
            Sense::About if claimed == 0.0 => measured == 0.0,
            Sense::About => {
                let ratio = measured / claimed;
                (1.0 / tolerance..=tolerance).contains(&ratio)
            }
            Sense::Least => measured >= claimed,
            Sense::Most => measured <= claimed,
            Sense::Below => measured < claimed,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn little(connections: f64, in_flight: f64, at_most: bool) -> Option<bool> {
        Little { connections: Some(connections), in_flight, at_most }.agrees()
    }

    /// 98,432 × 101 ms beside 10,000 connections; 33,114 × 13.21 ms beside 200; 850 × 118 ms beside 1000.
    #[test]
    fn a_mean_must_account_for_all_connections_and_no_more() {
        assert_eq!(little(10_000.0, 98_432.0 * 0.101, false), Some(true));
        assert_eq!(little(200.0, 33_114.0 * 0.013_21, false), Some(false));
        assert_eq!(little(1_000.0, 850.0 * 0.118, false), Some(false));
    }

    #[test]
    fn a_percentile_contradicts_only_by_too_few_in_flight() {
        assert_eq!(little(1_000.0, 167_000.0 * 0.000_13, true), Some(false));
        assert_eq!(little(10.0, 155_000.0 * 0.000_12, true), Some(true));
        let none = Little { connections: None, in_flight: 1_656.0, at_most: false };
        assert_eq!(none.agrees(), None);
    }

    #[test]
    fn about_allows_a_factor_either_way_and_the_bounds_allow_none() {
        for (sense, measured, met) in [
            (Sense::About, 125.0, true),
            (Sense::About, 80.0, true),
            (Sense::About, 126.0, false),
            (Sense::About, 79.0, false),
            (Sense::Least, 1_000.0, true),
            (Sense::Least, 99.9, false),
            (Sense::Most, 1.0, true),
            (Sense::Most, 100.1, false),
            (Sense::Below, 100.0, false),
            (Sense::About, f64::NAN, false),
        ] {
            assert_eq!(sense.is_met(100.0, measured, 1.25), met, "{sense:?} {measured}");
        }
        assert!(Sense::About.is_met(0.0, 0.0, 1.25) && !Sense::About.is_met(0.0, 0.1, 1.25));
    }

    #[test]
    fn a_claim_survives_its_record() {
        let claim = Claim {
            id: "003-qps/select/1000".into(),
            source: "003".into(),
            section: "measured results".into(),
            cell: Some(Place { table: "003-qps".into(), row: "select".into(), column: "1000".into() }),
            what: "echo".into(),
            quote: "99K".into(),
            claimed: Some(99_000.0),
            unit: "requests/s".into(),
            sense: Sense::About,
            measured: Some(234_000.0),
            interval: None,
            origin: Some(Origin::Measured),
            by: None,
            scale: Some("1 s instead of 30".into()),
            outcome: Outcome::NotReproduced,
            why: None,
            little: Some(Little { connections: Some(1_000.0), in_flight: 39.6, at_most: true }),
        };
        let text = serde_json::to_string(&claim).unwrap();
        assert_eq!(serde_json::from_str::<Claim>(&text).unwrap(), claim);
        assert!(claim.ratio().is_some_and(|ratio| (ratio - 2.364).abs() < 0.001));
        assert!(text.contains(r#""outcome":"not_reproduced""#), "{text}");
    }
}
