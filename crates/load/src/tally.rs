//! Counts and latencies of one worker or of all, merged exactly.
//!
//! Start at [`Tally`].

use crate::broadcast::Told;
use crate::hold::Held;
use ringroad_measure::Histogram;
use ringroad_measure::record::Errors;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Kinds of failure that are named; more of them are counted as `others`.
const KINDS_MAX: usize = 32;

/// Counts of a whole run, warm-up included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Requests handed to the kernel, whole or in part.
    pub sent: u64,
    /// Whole answers that were as expected.
    pub completed: u64,
    /// Whole answers of any status.
    pub answers: u64,
    /// Failures by kind.
    pub errors: Errors,
    /// Whole answers by status, expected or not; none where the protocol has no statuses.
    pub statuses: BTreeMap<u16, u64>,
    /// Where the first answer of 3xx leads.
    pub location: Option<String>,
    /// Cookies that were set (`name=value`), if the plan keeps them.
    pub cookies: Vec<String>,
    /// Connections made.
    pub connects: u64,
    /// Connections that the server closed between answers or with one, as it may.
    pub closed_in_order: u64,
    /// Idle connections that ended.
    pub idle_lost: u64,
    /// Requests that were due and never sent (open loop).
    pub unsent: u64,
    /// Requests of a probe that were due and had not left when its time was over; their latency so far is
    /// recorded.
    pub cut_off: u64,
    /// The fate of held connections.
    pub held: Held,
    /// What was broadcast. Then `sent` is the number of deliveries that were expected.
    #[serde(default)]
    pub broadcast: Told,
    /// Bytes received.
    pub bytes_received: u64,
    /// Bytes of all bodies of answers that were completed.
    pub body_bytes: u64,
    /// Failures by description, and how often.
    pub failures: BTreeMap<String, u64>,
}

impl Counts {
    /// Adds another's.
    pub fn add(&mut self, other: &Counts) {
        let Counts { sent, completed, answers, errors, connects, closed_in_order, idle_lost, unsent, .. } =
            other;
        self.sent += sent;
        self.completed += completed;
        self.answers += answers;
        self.errors.add(errors);
        self.connects += connects;
        self.closed_in_order += closed_in_order;
        self.idle_lost += idle_lost;
        self.unsent += unsent;
        self.cut_off += other.cut_off;
        self.held.add(&other.held);
        self.broadcast.add(&other.broadcast);
        self.bytes_received += other.bytes_received;
        self.body_bytes += other.body_bytes;
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        self.location = self.location.take().or_else(|| other.location.clone());
        self.cookies.extend(other.cookies.iter().cloned());
        for (what, count) in &other.failures {
            self.name(what, *count);
        }
    }

    /// Names a failure that was counted.
    #[cold]
    pub(crate) fn name(&mut self, what: &str, count: u64) {
        if let Some(known) = self.failures.get_mut(what) {
            *known += count;
        } else {
            let what = if self.failures.len() < KINDS_MAX { what } else { "others" };
            *self.failures.entry(what.to_owned()).or_default() += count;
        }
    }
}

/// Latencies, nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latencies {
    /// From the intended send to the whole answer.
    pub response: Histogram,
    /// From the actual send to the whole answer; open loop only, elsewhere it is the response.
    pub service: Option<Histogram>,
    /// From the intended to the actual send; open loop only.
    pub lag: Option<Histogram>,
    /// The part of the lag caused by the client: a connection was free, and the request left late.
    pub late: Option<Histogram>,
}

impl Latencies {
    /// Makes a set without latencies.
    pub fn new(open: bool) -> Latencies {
        let histogram = || open.then(Histogram::new);
        Latencies { response: Histogram::new(), service: histogram(), lag: histogram(), late: histogram() }
    }

    /// Adds another's: as if all had been recorded here.
    pub fn add(&mut self, other: &Latencies) {
        self.response.add(&other.response);
        for (mine, theirs) in
            [(&mut self.service, &other.service), (&mut self.lag, &other.lag), (&mut self.late, &other.late)]
        {
            if let (Some(mine), Some(theirs)) = (mine, theirs) {
                mine.add(theirs);
            }
        }
    }
}

/// Figures of a slice of one worker, or of the whole window of all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// Good answers that came in the window.
    pub completed: u64,
    /// Failures in the window, of all kinds.
    pub failed: u64,
    /// Whole answers that came in the window and were not good.
    #[serde(default)]
    pub refused: u64,
    /// Bytes received in the window.
    pub bytes: u64,
    /// Response latencies of whole answers that were not good, chosen as `latencies` are; `None`: there was
    /// none.
    pub other: Option<Box<Histogram>>,
    /// Latencies: closed loop, of all requests that were on their way in the window, whenever their answers
    /// came; open loop, of requests due in it. A request without an answer is among them with the time that
    /// it was waited for, which is a lower bound.
    pub latencies: Latencies,
    /// Requests among these that got no answer.
    #[serde(default)]
    pub unanswered: u64,
    /// The longest time that was waited for one of them, nanoseconds.
    #[serde(default)]
    pub unanswered_ns: u64,
    /// The longest time that a request without an answer had waited when a slice ended, nanoseconds.
    #[serde(default)]
    pub waiting_ns: u64,
    /// Closed loop: the parts of all waits that lie in the window, added; nanoseconds.
    #[serde(default)]
    pub awaited_ns: f64,
}

impl Tally {
    /// Makes a tally of nothing.
    pub fn new(open: bool) -> Tally {
        Tally { latencies: Latencies::new(open), ..Tally::default() }
    }

    /// Forgets everything and keeps the memory.
    pub fn clear(&mut self) {
        let mut latencies = std::mem::take(&mut self.latencies);
        let Latencies { response, service, lag, late } = &mut latencies;
        [Some(response), service.as_mut(), lag.as_mut(), late.as_mut()]
            .into_iter()
            .flatten()
            .for_each(Histogram::clear);
        *self = Tally { latencies, ..Tally::default() };
    }

    /// Adds another's.
    pub fn add(&mut self, other: &Tally) {
        self.completed += other.completed;
        self.failed += other.failed;
        self.refused += other.refused;
        self.bytes += other.bytes;
        self.unanswered += other.unanswered;
        self.unanswered_ns = self.unanswered_ns.max(other.unanswered_ns);
        self.waiting_ns = self.waiting_ns.max(other.waiting_ns);
        self.awaited_ns += other.awaited_ns;
        if let Some(theirs) = &other.other {
            self.other.get_or_insert_default().add(theirs);
        }
        self.latencies.add(&other.latencies);
    }

    /// Returns the longest wait, also of a request that had no answer when a slice ended.
    pub fn longest_ns(&self) -> Option<u64> {
        let waiting = Some(self.waiting_ns).filter(|ns| *ns > 0);
        self.latencies.response.quantile_ns(1.0).max(waiting)
    }

    /// Returns the whole answers in the window, good or not.
    pub fn answers(&self) -> u64 {
        self.completed + self.refused
    }
}

/// Figures of one message of a plan that has several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OfUrl {
    /// Good answers in the window.
    pub completed: u64,
    /// Returns the whole answers in the window that were not good.
    pub refused: u64,
    /// Bytes of the bodies of good answers.
    pub body_bytes: u64,
    /// Response latencies of good answers, and of requests without an answer the time that was waited.
    pub response: Histogram,
}

impl OfUrl {
    /// Adds another's.
    pub fn add(&mut self, other: &OfUrl) {
        self.completed += other.completed;
        self.refused += other.refused;
        self.body_bytes += other.body_bytes;
        self.response.add(&other.response);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_added_are_the_whole() {
        let mut chance = fastrand::Rng::with_seed(7);
        let mut whole = Tally::new(true);
        let mut parts = [Tally::new(true), Tally::new(true), Tally::new(true)];
        for _ in 0..10_000 {
            let bits = chance.u32(1..40);
            let ns = chance.u64(1..1 << bits);
            for tally in [&mut whole, &mut parts[chance.usize(0..3)]] {
                tally.completed += 1;
                tally.latencies.response.record(ns);
                for part in
                    [&mut tally.latencies.service, &mut tally.latencies.lag, &mut tally.latencies.late]
                {
                    part.as_mut().into_iter().for_each(|histogram| histogram.record(ns / 2));
                }
            }
        }
        let mut sum = Tally::new(true);
        parts.iter().for_each(|part| sum.add(part));
        assert_eq!(sum, whole);
        assert_eq!(sum.latencies.response.count(), 10_000);
    }

    #[test]
    fn failures_are_named_up_to_a_bound_and_all_are_counted() {
        let mut counts = Counts::default();
        for nth in 0..100 {
            counts.name(&format!("kind {nth}"), 2);
        }
        let mut sum = Counts::default();
        sum.add(&counts);
        sum.add(&counts);
        assert_eq!(sum.failures.len(), KINDS_MAX + 1);
        assert_eq!(sum.failures.values().sum::<u64>(), 400);
    }
}
