//! Held connections. A heartbeat on each shows whether it is alive; the totals show how well an endpoint
//! serves long-lived connections.
//!
//! Each connection has its own schedule. The schedules are spread evenly over the interval, so that a
//! thousand connections make no burst. A heartbeat is due but not possible when its connection is down or
//! still waits for the previous answer: it is not postponed, but counted as failed. The delay before a
//! reconnect doubles with each failure and has a random half, so that connections lost together do not
//! reconnect together.
//!
//! [`diagnose`] alone defines what counts as healthy.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// How connections are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// From one heartbeat of a connection to its next.
    pub heartbeat: Duration,
    /// Failed tries in a row after which a connection is given up, and the endpoint called unavailable;
    /// `None`: never.
    pub retry_limit: Option<u32>,
}

/// The first wait before a lost connection is made again, and the longest: each doubles the one before, until
/// a heartbeat is answered.
pub(crate) const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

/// Totals of held connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Connections that were open at some time.
    pub opened: u64,
    /// Of these, connections that were never lost.
    pub survived: u64,
    /// Number of lost connections.
    pub lost: u64,
    /// Number of reconnects.
    pub reconnects: u64,
    /// Connections given up at the retry limit.
    pub gave_up: u64,
    /// Time of the first, in nanoseconds after the holding began.
    pub unavailable_after_ns: Option<u64>,
    /// Heartbeats that were due.
    pub due: u64,
    /// Heartbeats that were due while their connection was away.
    pub away: u64,
    /// Heartbeats that were due while the one before was unanswered.
    pub busy: u64,
    /// Heartbeats that failed at sending.
    pub refused: u64,
}

impl Held {
    /// Adds another's.
    pub fn add(&mut self, other: &Held) {
        let Held { opened, survived, lost, reconnects, gave_up, due, away, busy, refused, .. } = other;
        self.opened += opened;
        self.survived += survived;
        self.lost += lost;
        self.reconnects += reconnects;
        self.gave_up += gave_up;
        self.due += due;
        self.away += away;
        self.busy += busy;
        self.refused += refused;
        let both = [self.unavailable_after_ns, other.unavailable_after_ns];
        self.unavailable_after_ns = both.into_iter().flatten().min();
    }

    /// Heartbeats that could not be written.
    pub fn unwritten(&self) -> u64 {
        self.away + self.busy + self.refused
    }

    /// Returns the share of the connections that were never lost.
    pub fn survival(&self) -> Option<f64> {
        (self.opened > 0).then(|| self.survived as f64 / self.opened as f64)
    }

    /// Returns how often a connection was made again in an hour, on average.
    pub fn reconnects_per_hour(&self, held_for: Duration) -> Option<f64> {
        let connection_hours = self.opened as f64 * held_for.as_secs_f64() / 3600.0;
        (connection_hours > 0.0).then(|| self.reconnects as f64 / connection_hours)
    }

    /// Returns the share of the heartbeats that could not be written.
    pub fn write_failures(&self) -> Option<f64> {
        (self.due > 0).then(|| self.unwritten() as f64 / self.due as f64)
    }
}

/// How well an endpoint keeps long connections; a later variant is worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// Every figure is normal.
    Healthy,
    /// One is neither normal nor abnormal.
    Doubtful,
    /// One is abnormal.
    Unhealthy,
    /// Connections were given up.
    Unavailable,
}

impl Health {
    /// Returns its name in a record.
    pub fn as_str(self) -> &'static str {
        match self {
            Health::Healthy => "healthy",
            Health::Doubtful => "doubtful",
            Health::Unhealthy => "unhealthy",
            Health::Unavailable => "unavailable",
        }
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Normal is a survival of at least this …
pub const SURVIVAL_NORMAL: f64 = 0.995;
/// … at most so many reconnections of a connection in an hour …
pub const RECONNECTS_NORMAL: f64 = 1.0;
/// … of which more than this are abnormal …
pub const RECONNECTS_ABNORMAL: f64 = 3.0;
/// … and less than this share of heartbeats that could not be written.
pub const WRITE_FAILURES_ABNORMAL: f64 = 0.01;

/// Returns the diagnosis, and a sentence for each figure that is not normal.
///
/// The bounds are those of a published table of long-connection health (source 001 of docs/claims.toml,
/// section 4.4). It states both bounds of the reconnections; of the other two it states one, which parts
/// normal from abnormal here.
pub fn diagnose(held: &Held, held_for: Duration) -> (Health, Vec<String>) {
    let mut health = Health::Healthy;
    let mut findings = Vec::new();
    let mut find = |is: Health, what: String| {
        health = health.max(is);
        findings.push(what);
    };
    if let Some(after) = held.unavailable_after_ns {
        find(
            Health::Unavailable,
            format!(
                "it was unreachable after {:.1} s, when the first of {} reached the retry limit",
                after as f64 / 1e9,
                held.gave_up
            ),
        );
    }
    if let Some(survival) = held.survival().filter(|survival| *survival < SURVIVAL_NORMAL) {
        find(
            Health::Unhealthy,
            format!(
                "{:.2} % of the connections survived, and {:.1} % are normal: look for idle timeouts shorter than the \
                 heartbeat, for restarts, and for middleboxes that forget",
                100.0 * survival,
                100.0 * SURVIVAL_NORMAL
            ),
        );
    }
    if let Some(rate) = held.reconnects_per_hour(held_for).filter(|rate| *rate > RECONNECTS_NORMAL) {
        let is = if rate > RECONNECTS_ABNORMAL { Health::Unhealthy } else { Health::Doubtful };
        find(
            is,
            format!(
                "a connection was made again {rate:.2} times an hour; {RECONNECTS_NORMAL:.0} is normal, more than \
                 {RECONNECTS_ABNORMAL:.0} is not"
            ),
        );
    }
    if let Some(share) = held.write_failures().filter(|share| *share >= WRITE_FAILURES_ABNORMAL) {
        find(
            Health::Unhealthy,
            format!(
                "{:.2} % of the heartbeats could not be written ({} away, {} still waiting, {} refused), and less than \
                 {:.0} % is normal",
                100.0 * share,
                held.away,
                held.busy,
                held.refused,
                100.0 * WRITE_FAILURES_ABNORMAL
            ),
        );
    }
    (health, findings)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn good() -> Held {
        Held { opened: 1000, survived: 1000, due: 10_000, ..Held::default() }
    }

    #[test]
    fn each_figure_is_judged_at_its_bound_and_just_past_it() {
        assert_eq!(diagnose(&good(), HOUR), (Health::Healthy, Vec::new()));
        let cases: [(Held, Health, &str); 9] = [
            (Held { survived: 995, ..good() }, Health::Healthy, ""),
            (Held { survived: 994, ..good() }, Health::Unhealthy, "99.40 % of the connections survived"),
            (Held { reconnects: 1000, ..good() }, Health::Healthy, ""),
            (Held { reconnects: 1010, ..good() }, Health::Doubtful, "1.01 times an hour"),
            (Held { reconnects: 3000, ..good() }, Health::Doubtful, "3.00 times an hour"),
            (Held { reconnects: 3010, ..good() }, Health::Unhealthy, "3.01 times an hour"),
            (Held { away: 50, busy: 40, refused: 9, ..good() }, Health::Healthy, ""),
            (
                Held { away: 50, busy: 40, refused: 10, ..good() },
                Health::Unhealthy,
                "(50 away, 40 still waiting, 10 refused)",
            ),
            (
                Held { gave_up: 1, unavailable_after_ns: Some(1_500_000_000), ..good() },
                Health::Unavailable,
                "after 1.5 s, when the first of 1 reached the retry limit",
            ),
        ];
        for (held, health, words) in cases {
            let (found, findings) = diagnose(&held, HOUR);
            assert_eq!(found, health, "{findings:?}");
            assert!(findings.join("; ").contains(words), "{words}: {findings:?}");
        }
    }

    #[test]
    fn reconnections_are_counted_by_the_hour_of_a_connection() {
        let held = Held { reconnects: 10, ..good() };
        assert_eq!(held.reconnects_per_hour(HOUR), Some(0.01));
        assert_eq!(held.reconnects_per_hour(HOUR / 100), Some(1.0));
        assert_eq!(Held::default().reconnects_per_hour(HOUR), None);
        assert_eq!((Held::default().survival(), Held::default().write_failures()), (None, None));
    }

    #[test]
    fn parts_are_added_and_the_first_to_give_up_is_kept() {
        let part = |after| Held {
            opened: 1,
            survived: 2,
            lost: 3,
            reconnects: 4,
            gave_up: 5,
            unavailable_after_ns: after,
            due: 6,
            away: 7,
            busy: 8,
            refused: 9,
        };
        let mut sum = part(None);
        [part(Some(7)), part(Some(5)), part(None)].iter().for_each(|other| sum.add(other));
        let expected = Held {
            opened: 4,
            survived: 8,
            lost: 12,
            reconnects: 16,
            gave_up: 20,
            unavailable_after_ns: Some(5),
            due: 24,
            away: 28,
            busy: 32,
            refused: 36,
        };
        assert_eq!((sum, sum.unwritten()), (expected, 96));
    }
}
