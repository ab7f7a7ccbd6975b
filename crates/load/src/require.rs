//! What a run is demanded to be: `p99<5ms`, `rps>=10000`, `errors%<=0.1`, `connections>=500`.
//!
//! Latencies are response latencies: what users wait. What was not measured meets no demand. Start at
//! [`Requirement`].

use crate::error::Error;
use crate::run::Outcome;
use ringroad_measure::units::{Nanos, PerSecond};
use std::fmt;
use std::str::FromStr;

/// One demand.
#[derive(Clone, Debug, PartialEq)]
pub struct Requirement {
    figure: Figure,
    relation: Relation,
    /// Nanoseconds, requests per second, percent or connections.
    bound: f64,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Figure {
    Quantile(f64),
    Mean,
    Max,
    Rate,
    ErrorPercent,
    Connections,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Less,
    AtMost,
    More,
    AtLeast,
}

const FIGURES: [(&str, Figure); 12] = [
    ("p50", Figure::Quantile(0.50)),
    ("p75", Figure::Quantile(0.75)),
    ("p90", Figure::Quantile(0.90)),
    ("p95", Figure::Quantile(0.95)),
    ("p99", Figure::Quantile(0.99)),
    ("p99_9", Figure::Quantile(0.999)),
    ("p99_99", Figure::Quantile(0.9999)),
    ("mean", Figure::Mean),
    ("max", Figure::Max),
    ("rps", Figure::Rate),
    ("errors%", Figure::ErrorPercent),
    ("connections", Figure::Connections),
];

/// Longer ones first: `<=` begins with `<`.
const RELATIONS: [(&str, Relation); 4] =
    [("<=", Relation::AtMost), (">=", Relation::AtLeast), ("<", Relation::Less), (">", Relation::More)];

const UNITS: [(&str, f64); 4] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];

impl FromStr for Requirement {
    type Err = Error;

    fn from_str(text: &str) -> Result<Requirement, Error> {
        let refuse = |why: &str| {
            let known: Vec<_> = FIGURES.iter().map(|(name, _)| *name).collect();
            Err(Error::usage(format!(
                "--require {text}: {why}. A demand is one of {}, then <, <=, > or >=, then a number, for latencies with \
                 a unit (ns, us, ms, s), as in p99<5ms",
                known.join(" ")
            )))
        };
        let Some(at) = text.find(['<', '>']) else { return refuse("neither < nor > in it") };
        let (name, rest) = text.split_at(at);
        // As records have it, or as summaries print it: p99.9.
        let name = name.trim().replace('.', "_");
        let Some((_, figure)) = FIGURES.into_iter().find(|(known, _)| *known == name) else {
            return refuse("no figure of that name");
        };
        let Some((relation, number)) =
            RELATIONS.into_iter().find_map(|(sign, relation)| Some((relation, rest.strip_prefix(sign)?)))
        else {
            return refuse("no relation");
        };
        let number = number.trim();
        let is_time = matches!(figure, Figure::Quantile(_) | Figure::Mean | Figure::Max);
        let (digits, unit) = if is_time {
            let number = number.replace("µs", "us");
            let found =
                UNITS.iter().find_map(|(unit, ns)| Some((number.strip_suffix(unit)?.to_owned(), *ns)));
            match found {
                Some(found) => found,
                None => return refuse("a latency needs a unit"),
            }
        } else {
            (number.strip_suffix('%').unwrap_or(number).to_owned(), 1.0)
        };
        match digits.trim().parse::<f64>() {
            Ok(value) if value.is_finite() && value >= 0.0 => {
                Ok(Requirement { figure, relation, bound: value * unit, text: text.to_owned() })
            }
            _ => refuse("not a number"),
        }
    }
}

impl Requirement {
    /// Returns whether it is a bound from above on what grows with the load: a latency, or the share of
    /// errors.
    pub fn is_limit(&self) -> bool {
        let grows = !matches!(self.figure, Figure::Rate | Figure::Connections);
        grows && matches!(self.relation, Relation::Less | Relation::AtMost)
    }

    /// Returns the least number of answers that its figure can be told from: of fewer than 100 the p99 is the
    /// slowest one.
    pub fn answers_min(&self) -> u64 {
        match self.figure {
            // Less a trifle: 0.99 in binary is not quite that.
            Figure::Quantile(quantile) => (1.0 / (1.0 - quantile) - 1e-6).ceil() as u64,
            _ => 1,
        }
    }

    /// Returns what to say if it is not so.
    pub fn unmet(&self, outcome: &Outcome) -> Option<String> {
        let Some(value) = self.figure.of(outcome) else {
            return Some(format!("required {self}: it was not measured"));
        };
        let met = match self.relation {
            Relation::Less => value < self.bound,
            Relation::AtMost => value <= self.bound,
            Relation::More => value > self.bound,
            Relation::AtLeast => value >= self.bound,
        };
        (!met).then(|| format!("required {self}: it is {}", self.figure.shown(value)))
    }
}

impl Figure {
    fn of(self, outcome: &Outcome) -> Option<f64> {
        let response = &outcome.tally.latencies.response;
        match self {
            Figure::Quantile(q) => response.quantile_ns(q).map(|ns| ns as f64),
            Figure::Mean => response.mean_ns(),
            Figure::Max => response.quantile_ns(1.0).map(|ns| ns as f64),
            Figure::Rate => {
                PerSecond::of(outcome.tally.completed, outcome.window).map(|PerSecond(rate)| rate)
            }
            Figure::ErrorPercent => {
                let counts = &outcome.counts;
                // In a probe what did not get out in time is cut off, which is as good as a failure.
                let failed = counts.errors.total() + counts.unsent + counts.cut_off;
                let all = counts.completed + failed;
                (all > 0).then(|| 100.0 * failed as f64 / all as f64)
            }
            Figure::Connections => Some(f64::from(outcome.served)),
        }
    }

    fn shown(self, value: f64) -> String {
        match self {
            Figure::Quantile(_) | Figure::Mean | Figure::Max => Nanos(value as u64).to_string(),
            Figure::Rate => format!("{value:.0}"),
            Figure::ErrorPercent => format!("{value:.3}"),
            Figure::Connections => format!("{value}"),
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::run::Client;
    use crate::tally::{Counts, Tally};
    use ringroad_measure::record::Errors;
    use std::time::Duration;

    fn outcome() -> Outcome {
        let mut tally = Tally::new(false);
        tally.completed = 990;
        tally.latencies.response.record_n(1_000_000, 900);
        tally.latencies.response.record_n(8_000_000, 90);
        Outcome {
            addresses: Vec::new(),
            connected: 5,
            asked: 5,
            served: 5,
            open_at_end: 5,
            idle_at_end: 0,
            counts: Counts {
                sent: 1000,
                completed: 990,
                errors: Errors { reset: 10, ..Errors::default() },
                ..Counts::default()
            },
            tally,
            window: Duration::from_secs(2),
            series: Vec::new(),
            stages: Vec::new(),
            handshakes: None,
            urls: Vec::new(),
            client: Client::default(),
            interrupted: false,
            lost: Vec::new(),
        }
    }

    #[test]
    fn a_demand_is_met_or_told_with_what_is() {
        let outcome = outcome();
        let unmet = |text: &str| text.parse::<Requirement>().unwrap().unmet(&outcome);
        for met in [
            "p50<2ms",
            "p50 <= 1001us",
            "p99_9<9ms",
            "p99.9<9ms",
            "p99.99 < 9ms",
            "p99>7ms",
            "mean<2ms",
            "max<0.0081s",
            "rps>=495",
            "errors%<=1",
            "connections>=5",
        ] {
            assert_eq!(unmet(met), None, "{met}");
        }
        assert_eq!(unmet("p99<5ms").unwrap(), "required p99<5ms: it is 8.00 ms");
        assert_eq!(unmet("rps>495").unwrap(), "required rps>495: it is 495");
        assert_eq!(unmet("errors%<1%").unwrap(), "required errors%<1%: it is 1.000");
        assert!(unmet("connections>5").is_some() && unmet("max<500µs").is_some());
    }

    #[test]
    fn a_bound_from_above_on_what_grows_with_the_load_is_a_limit() {
        let is_limit = |text: &str| text.parse::<Requirement>().unwrap().is_limit();
        assert!(["p99<5ms", "max<=1s", "errors%<1"].into_iter().all(is_limit));
        assert!(!["p99>5ms", "rps<5", "connections<=5", "errors%>=1"].into_iter().any(is_limit));
    }

    #[test]
    fn a_quantile_takes_as_many_answers_as_have_one_beyond_it() {
        let least = |text: &str| text.parse::<Requirement>().unwrap().answers_min();
        let quantiles = ["p50<1s", "p75<1s", "p90<1s", "p95<1s", "p99<1s", "p99.9<1s", "p99.99<1s"];
        assert_eq!(quantiles.map(least), [2, 4, 10, 20, 100, 1000, 10_000]);
        assert_eq!(["mean<1s", "max<1s", "errors%<1"].map(least), [1; 3]);
    }

    #[test]
    fn what_was_not_measured_meets_nothing() {
        let nothing = Outcome { tally: Tally::new(false), window: Duration::ZERO, ..outcome() };
        for text in ["p50<1s", "mean>0ns", "rps>=0"] {
            let said = text.parse::<Requirement>().unwrap().unmet(&nothing).unwrap();
            assert!(said.ends_with("it was not measured"), "{said}");
        }
    }

    #[test]
    fn what_is_no_demand_is_refused_with_what_would_be() {
        for text in ["", "p99", "p98<1ms", "p99<5", "p99<ms", "rps>many", "p99=5ms", "p99<-1ms", "rps>NaN"] {
            let error = text.parse::<Requirement>().unwrap_err();
            assert!(error.is_usage() && error.to_string().contains("p99<5ms"), "{text}: {error}");
        }
    }
}
