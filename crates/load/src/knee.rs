//! The knee: the highest rate that still meets a demand, found by probes on connections that stay open.
//!
//! Rates double until the demand is not met, then the interval between the last that met it and the first
//! that did not is halved (its logarithm is), until its ends are close. A single probe may be disturbed by
//! other work, so after the doubling two of three probes decide. The result is an interval: at its lower end
//! the demand was met, at its upper end it was not. The search itself is pure ([`Bisection`]). Start at
//! [`search`].

use crate::error::Error;
use crate::plan::{Pace, Plan};
use crate::require::Requirement;
use crate::run::{Event, Outcome, with_workers};
use crate::verdict::verdict;
use ringroad_engine::choose::Choice;
use ringroad_measure::Verdict;
use ringroad_measure::caveat::Caveat;
use ringroad_measure::units::counted;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Final ratio of the two ends of the interval.
const TOLERANCE: f64 = 1.05;

/// Limits of the tested rates, requests per second.
const RATES: (f64, f64) = (1.0, 1e7);

/// Maximum share of a probe's requests that may fail or not be sent; requests not sent also count in the
/// latencies.
const FAILED_SHARE_MAX: f64 = 0.001;

/// Result of a search.
#[derive(Clone, Debug)]
pub struct Knee {
    /// The demand.
    pub demand: Requirement,
    /// The highest rate that met the demand; `None`: not even the lowest did.
    pub met: Option<f64>,
    /// The lowest that did not; `None`: none was found.
    pub unmet: Option<f64>,
    /// All probes, in order.
    pub probes: Vec<Probe>,
    /// Whether the search was stopped before its end.
    pub interrupted: bool,
}

/// One rate, tried once.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The plan of the probe.
    pub plan: Plan,
    /// The outcome of the probe.
    pub outcome: Outcome,
    /// The reason why the demand was not met; `None`: it was met.
    pub unmet: Option<String>,
}

/// Searches for the highest rate at which `required` holds, from the rate of the plan on. Every probe has the
/// plan's warm-up and duration.
///
/// # Errors
/// As of [`run`](crate::run()); or the plan is no open loop of a constant rate and a duration, or the demand
/// names no figure that a higher rate makes worse.
pub fn search(
    plan: &Plan,
    required: &Requirement,
    choice: &Choice,
    stop: &Arc<AtomicBool>,
    observe: &mut dyn FnMut(&Event<'_>),
) -> Result<Knee, Error> {
    let Pace::Open { per_second, arrivals } = plan.pace else {
        return Err(Error::usage("--knee: needs a rate, not a closed loop"));
    };
    if plan.stages.is_some() || plan.count.is_some() || plan.duration.is_none() {
        return Err(Error::usage("--knee: a probe has a duration (-d), and neither stages nor a count (-n)"));
    }
    if !required.is_limit() {
        return Err(Error::usage(format!(
            "--knee {required}: expected an upper bound of a latency or errors% (p99<5ms)"
        )));
    }
    with_workers(plan, choice, stop, |conductor, stand| {
        conductor.gather(stand, observe)?;
        let (mut bisection, mut probes) = (Bisection::new(per_second), Vec::new());
        let mut interrupted = false;
        while let Some(per_second) = bisection.rate() {
            let outcome = conductor.carry_out(stand, Some(per_second), false, observe)?;
            if stop.load(Ordering::Relaxed) {
                interrupted = true;
                break;
            }
            let unmet = failing(&outcome).or_else(|| required.unmet(&outcome));
            bisection.note(unmet.is_none());
            observe(&Event::Probe { per_second, unmet: unmet.clone() });
            let plan = Plan { pace: Pace::Open { per_second, arrivals }, ..plan.clone() };
            probes.push(Probe { plan, outcome, unmet });
        }
        Ok(Knee { demand: required.clone(), met: bisection.met, unmet: bisection.unmet, probes, interrupted })
    })
}

/// Returns the reason why a probe cannot be judged by its latencies.
fn failing(outcome: &Outcome) -> Option<String> {
    let counts = &outcome.counts;
    let failed = counts.errors.total();
    let all = counts.sent + counts.cut_off + counts.errors.connect;
    (all == 0 || failed as f64 > all as f64 * FAILED_SHARE_MAX)
        .then(|| format!("{failed} of {all} requests failed"))
}

impl Knee {
    /// Returns the last probe at the highest rate that met the demand.
    pub fn best(&self) -> Option<&Probe> {
        let at = |probe: &&Probe| probe.unmet.is_none() && probe.rate() == self.met;
        self.probes.iter().rev().find(at)
    }

    /// Returns whether the client, and not the server, was the reason why the upper end of the interval did
    /// not meet the demand.
    pub fn client_is_limit(&self) -> bool {
        let beyond =
            self.probes.iter().rev().find(|probe| probe.unmet.is_some() && probe.rate() == self.unmet);
        beyond.is_some_and(Probe::is_ours)
    }

    /// Returns the verdict on the best probe, with a caveat if the client was the limit at the rate that
    /// failed.
    pub fn verdict(&self) -> Verdict {
        let mut all = Verdict::valid();
        let limit = self.client_is_limit().then(|| {
            Caveat::Other(
                "the client was the limit, not the server: at the rate that did not meet the demand its threads had no \
                 CPU time left, or it sent late by itself, so give it more threads where cores are free (-t), or put that \
                 rate on from several machines (--rate with --part)."
                    .to_owned(),
            )
        });
        let Some(best) = self.best() else {
            all.add(Caveat::Other("no rate met the demand, so none was found.".to_owned()));
            limit.into_iter().for_each(|limit| all.add(limit));
            return all;
        };
        all = verdict(&best.plan, &best.outcome);
        let (answers, needed) = (best.outcome.tally.completed, self.demand.answers_min());
        if answers < needed {
            all.add(Caveat::Other(format!(
                "{} of the best probe are too few to judge {} by, which takes {needed}: give the probes more time (-d).",
                counted(answers, "answer"),
                self.demand,
            )));
        }
        limit.into_iter().for_each(|limit| all.add(limit));
        if self.unmet.is_none() && !self.interrupted {
            all.add(Caveat::Other(
                "no tested rate exceeded the demand, within the range of this client.".to_owned(),
            ));
        }
        if self.interrupted {
            all.add(Caveat::Other(
                "the search was stopped before its end: the interval is not narrowed down.".to_owned(),
            ));
        }
        all
    }
}

impl Probe {
    /// Requests per second that were asked for.
    pub fn rate(&self) -> Option<f64> {
        match self.plan.pace {
            Pace::Open { per_second, .. } => Some(per_second),
            Pace::Closed | Pace::Hold(_) => None,
        }
    }

    /// Returns whether this client, not the server, caused the failure.
    pub fn is_ours(&self) -> bool {
        let client = &self.outcome.client;
        let busy = client.cores(client.cpu).map(|cores| cores / f64::from(self.plan.threads));
        let late = self.outcome.tally.latencies.late.as_ref().and_then(|late| late.quantile_ns(0.99));
        let response = self.outcome.tally.latencies.response.quantile_ns(0.99);
        busy.is_some_and(|busy| busy >= ringroad_measure::caveat::BUSY_SHARE)
            || late.zip(response).is_some_and(|(late, response)| late.saturating_mul(2) > response)
    }
}

/// The state of a search.
#[derive(Clone, Debug)]
struct Bisection {
    met: Option<f64>,
    unmet: Option<f64>,
    rate: f64,
    /// Probes at this rate that met the demand, and that did not.
    votes: (u32, u32),
}

impl Bisection {
    fn new(first: f64) -> Bisection {
        Bisection { met: None, unmet: None, rate: first.clamp(RATES.0, RATES.1), votes: (0, 0) }
    }

    /// Returns the rate of the next probe; `None`: it is found.
    fn rate(&self) -> Option<f64> {
        let over = match (self.met, self.unmet) {
            (Some(met), Some(unmet)) => unmet / met <= TOLERANCE,
            (Some(met), None) => met >= RATES.1,
            (None, Some(unmet)) => unmet <= RATES.0,
            (None, None) => false,
        };
        (!over).then_some(self.rate)
    }

    /// Records the outcome of a probe at that rate.
    fn note(&mut self, met: bool) {
        if met {
            self.votes.0 += 1;
        } else {
            self.votes.1 += 1;
        }
        // While doubling, one met probe is enough: the rates near the limit are probed again later.
        let enough = if self.unmet.is_none() { 1 } else { 2 };
        if self.votes.0 >= enough {
            self.met = Some(self.rate);
        } else if self.votes.1 >= 2 {
            self.unmet = Some(self.rate);
        } else {
            return;
        }
        self.votes = (0, 0);
        self.rate = match (self.met, self.unmet) {
            (Some(met), Some(unmet)) => (met * unmet).sqrt(),
            (Some(met), None) => (met * 2.0).min(RATES.1),
            (_, Some(unmet)) => (unmet / 2.0).max(RATES.0),
            (None, None) => self.rate,
        };
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::verdict::tests::{good, open};

    /// Searches from `first`, with `meets` in place of probes. Returns the interval and the number of probes.
    fn found(first: f64, mut meets: impl FnMut(f64) -> bool) -> (Option<f64>, Option<f64>, u32) {
        let (mut bisection, mut probes) = (Bisection::new(first), 0);
        while let Some(rate) = bisection.rate() {
            bisection.note(meets(rate));
            probes += 1;
            assert!(probes < 200, "{bisection:?}");
        }
        (bisection.met, bisection.unmet, probes)
    }

    #[test]
    fn the_interval_holds_the_knee_wherever_it_begins() {
        for knee in [1.5, 137.0, 41_234.0, 3e6] {
            for first in [1.0, 1000.0, 1e6] {
                let (met, unmet, probes) = found(first, |rate| rate <= knee);
                let (met, unmet) = (met.unwrap(), unmet.unwrap());
                assert!(met <= knee && knee < unmet && unmet / met <= TOLERANCE, "{met} {knee} {unmet}");
                assert!(probes <= 60, "{probes}");
            }
        }
    }

    #[test]
    fn a_demand_on_more_answers_than_came_is_doubted() {
        let told = |demand: &str, completed| {
            let mut outcome = good(true);
            outcome.tally.completed = completed;
            let knee = Knee {
                demand: demand.parse().unwrap(),
                met: Some(1000.0),
                unmet: Some(1040.0),
                probes: vec![Probe { plan: open(), outcome, unmet: None }],
                interrupted: false,
            };
            knee.verdict().reasons.iter().any(|reason| reason.to_string().contains("too few to judge"))
        };
        assert_eq!([9_999, 10_000].map(|completed| told("p99.99<1s", completed)), [true, false]);
        assert_eq!([99, 100].map(|completed| told("p99<1s", completed)), [true, false]);
        assert!(!told("errors%<1", 1));
    }

    #[test]
    fn one_bad_moment_in_three_moves_nothing() {
        for spoilt in 0..3 {
            let mut count = 0;
            let (met, unmet, _) = found(1000.0, |rate| {
                count += 1;
                rate <= 50_000.0 && count % 3 != spoilt
            });
            assert!(met.unwrap() <= 50_000.0 && unmet.unwrap() > 50_000.0, "{met:?} {unmet:?}");
        }
    }

    #[test]
    fn where_there_is_no_knee_it_ends_all_the_same() {
        assert_eq!(found(1000.0, |_| true).0, Some(RATES.1));
        let (met, unmet, _) = found(1000.0, |_| false);
        assert_eq!((met, unmet), (None, Some(RATES.0)));
    }
}
