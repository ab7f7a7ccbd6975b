//! What keeps a group in trouble from drawing others into it: how many requests it gets at once, a circuit
//! breaker, and how often a request is sent again.
//!
//! Workers share all of it. A request asks once, before a server is chosen ([`Group::admit`]), and tells how
//! it ended; what it holds it gives back when its answer was sent.

use super::group::Group;
use super::room::{Permit as Place, Room};
use ringroad_engine::time;
use ringroad_policy::breaker::{self, Breaker, Change, Outcome, State};
use ringroad_policy::quantile::Quantile;
use ringroad_policy::{Nanos, SECOND, backoff, ejection};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How a group is guarded.
#[derive(Clone, Debug, PartialEq)]
pub struct Guards {
    /// Which servers are left out because of the requests that they fail.
    pub ejection: ejection::Settings,
    /// Share of usable servers below which health is ignored.
    pub panic: f64,
    /// How long a server that comes back gets less than its share; 0: not at all.
    pub slow_start: Nanos,
    /// When no request is sent any more.
    pub breaker: Option<breaker::Settings>,
    /// Requests at once.
    pub bulkhead: Option<Bulkhead>,
    /// Active checks.
    pub check: Option<Check>,
    /// When a request is sent again.
    pub retry: Retry,
    /// When a request is sent to a second server as well.
    pub hedge: Option<Hedge>,
}

/// When a request without an answer is sent to a second server as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hedge {
    /// After this time.
    After(Duration),
    /// After as long as 95 % of the group's answers take.
    P95,
}

impl Default for Guards {
    fn default() -> Guards {
        Guards {
            ejection: ejection::Settings::default(),
            panic: 0.5,
            slow_start: 0,
            breaker: None,
            bulkhead: None,
            check: None,
            retry: Retry::default(),
            hedge: None,
        }
    }
}

/// Requests that a group has at once, and the line behind them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bulkhead {
    /// Requests at once.
    pub requests: usize,
    /// Requests that wait.
    pub line: usize,
    /// How long they wait.
    pub wait: Duration,
}

/// How servers are asked whether they are well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The path that is asked for.
    pub path: String,
    /// The `Host` that is asked for; `None`: the server's address.
    pub host: Option<String>,
    /// Between two checks of one server.
    pub every: Duration,
    /// How long one may take.
    pub timeout: Duration,
    /// Good checks in a row after which a server gets requests again.
    pub rise: u32,
    /// Bad checks in a row after which it gets none.
    pub fall: u32,
    /// Statuses that are good; empty: 200 to 399.
    pub statuses: Vec<u16>,
}

/// The shortest time between two checks of one server.
pub const CHECK_EVERY_MIN: Duration = Duration::from_millis(100);

/// When a request is sent again.
#[derive(Clone, Debug, PartialEq)]
pub struct Retry {
    /// How often, at most; `None`: as often as there are other servers.
    pub times: Option<u32>,
    /// Statuses that count as failures.
    pub statuses: Vec<u16>,
    /// The first wait is below this, each further one below twice as much; 0: none.
    pub base: Nanos,
    /// The longest wait.
    pub longest: Nanos,
    /// Repeats, as a share of requests.
    pub share: f64,
}

impl Default for Retry {
    fn default() -> Retry {
        Retry { times: None, statuses: Vec::new(), base: 0, longest: 0, share: 0.2 }
    }
}

impl Retry {
    /// Returns the wait before a repeat, where `done` have been made; `None`: no more.
    ///
    /// `another`: there is a server that was not tried. Without `times` only such a server is asked.
    pub fn wait(&self, done: u32, another: bool, random: u64) -> Option<Duration> {
        let may = self.times.map_or(another, |times| done < times);
        may.then(|| Duration::from_nanos(backoff::wait(done, self.base, self.longest, random)))
    }
}

/// What of the guards has a state, shared by all workers and kept over a reload.
#[derive(Clone, Default)]
pub(super) struct Shields {
    breaker: Option<Arc<Mutex<Breaker>>>,
    room: Option<Arc<Room>>,
    /// What 95 % of the answers take, where that is asked for.
    slow: Option<Arc<Quantile>>,
}

impl fmt::Debug for Shields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shields")
    }
}

impl Shields {
    /// Those of `before` stay where their settings are the same; a bulkhead may change its number.
    pub(super) fn new(guards: &Guards, before: Option<(&Guards, &Shields)>) -> Shields {
        let kept = before.filter(|(old, _)| old.breaker == guards.breaker);
        let breaker = guards.breaker.map(|settings| {
            let known = kept.and_then(|(_, shields)| shields.breaker.clone());
            known.unwrap_or_else(|| Arc::new(Mutex::new(Breaker::new(settings))))
        });
        let room = guards.bulkhead.as_ref().map(|bulkhead| {
            let known = before.and_then(|(_, shields)| shields.room.clone());
            let room = known.unwrap_or_else(|| Room::new(bulkhead.requests));
            room.set_most(bulkhead.requests);
            room
        });
        let slow = (guards.hedge == Some(Hedge::P95)).then(|| {
            let known = before.and_then(|(_, shields)| shields.slow.clone());
            known.unwrap_or_else(|| Arc::new(Quantile::new(0.95)))
        });
        Shields { breaker, room, slow }
    }
}

/// Why a group takes no request now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Its breaker is open, for so long.
    Open(Nanos),
    /// It has as many requests as it may, and a full line, or none of them ended in time.
    Full,
}

impl Refusal {
    /// Seconds after which to try again.
    pub fn retry_after(&self) -> u64 {
        match self {
            Refusal::Open(left) => left.div_ceil(SECOND).max(1),
            Refusal::Full => 1,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Open(_) => f.write_str("the breaker is open: too many requests have failed"),
            Refusal::Full => f.write_str("the group has as many requests as it may (requests)"),
        }
    }
}

/// A request that a group has taken.
#[derive(Debug, Default)]
pub struct Admitted {
    breaker: Option<(Arc<Mutex<Breaker>>, breaker::Permit)>,
    /// What this request has changed of the breaker.
    change: Option<Change>,
    /// Its place among the requests at once, until it is dropped.
    _place: Option<Place>,
}

impl Admitted {
    /// Tells how it ended. Only the first call counts. Returns whether the breaker opened by it.
    pub fn ended(&mut self, well: bool, now: Nanos) -> bool {
        let outcome = if well { Outcome::Succeeded } else { Outcome::Failed };
        self.end(outcome, now)
    }

    fn end(&mut self, outcome: Outcome, now: Nanos) -> bool {
        let Some((breaker, permit)) = self.breaker.take() else { return false };
        let mut breaker = breaker.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = breaker.end(permit, outcome, now);
        self.change = breaker.take_change();
        opened
    }

    /// Returns what this request has changed of the breaker, by being admitted or by its end: once.
    pub fn take_change(&mut self) -> Option<Change> {
        self.change.take()
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        // A request that was given up says nothing of the servers; its probe is another one's.
        self.end(Outcome::Abandoned, 0);
    }
}

impl Group {
    /// Asks whether a request may be sent, and waits in the group's line for it.
    ///
    /// # Errors
    /// The breaker is open, or there are too many requests.
    pub async fn admit(&self, now: impl Fn() -> Nanos) -> Result<Admitted, Refusal> {
        let Shields { breaker, room, .. } = self.shields();
        let mut admitted = Admitted::default();
        if let (Some(room), Some(bulkhead)) = (room, &self.guards().bulkhead) {
            let place = match room.try_permit() {
                Some(place) => Some(place),
                None if room.waiting() >= bulkhead.line => None,
                None => time::timeout(bulkhead.wait, room.permit()).await.ok(),
            };
            admitted._place = Some(place.ok_or(Refusal::Full)?);
        }
        if let Some(breaker) = breaker {
            let (permit, change) = {
                let mut breaker = breaker.lock().unwrap_or_else(PoisonError::into_inner);
                (breaker.ask(now()).map_err(Refusal::Open)?, breaker.take_change())
            };
            admitted.change = change;
            admitted.breaker = Some((Arc::clone(breaker), permit));
        }
        Ok(admitted)
    }

    /// Takes in how long the head of an answer took.
    pub fn took(&self, span: Nanos) {
        if let Some(slow) = &self.shields().slow {
            slow.see(span);
        }
    }

    /// Returns how long a request waits for its answer before a second server gets it too; `None`: it stays
    /// with one.
    pub fn hedge_after(&self) -> Option<Duration> {
        match self.guards().hedge? {
            Hedge::After(span) => Some(span),
            Hedge::P95 => self.shields().slow.as_ref()?.get().map(Duration::from_nanos),
        }
    }

    /// Returns what the breaker lets through; `None`: there is none.
    pub fn breaker(&self, now: Nanos) -> Option<State> {
        let breaker = self.shields().breaker.as_ref()?;
        Some(breaker.lock().unwrap_or_else(PoisonError::into_inner).state(now))
    }

    /// Requests that the group has now, the most that it may have, and those in line; `None`: there is no
    /// bound.
    pub fn places(&self) -> Option<(usize, usize, usize)> {
        let room = self.shields().room.as_ref()?;
        Some((room.used(), room.most(), room.waiting()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::group::Balance;
    use super::super::server::{Address, Server};
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn group(guards: Guards, before: Option<&Group>) -> Group {
        let server = Server::new(Address::Tcp { host: "a".to_owned(), port: 1 }, 1);
        Group::new("g", vec![server], Balance::default(), guards, before)
    }

    fn at_once(group: &Group, now: Nanos) -> Result<Admitted, Refusal> {
        let mut asked = pin!(group.admit(|| now));
        match asked.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(admitted) => admitted,
            Poll::Pending => panic!("it waits"),
        }
    }

    #[test]
    fn a_breaker_opens_by_failures_and_a_reload_keeps_it_open() {
        let settings = breaker::Settings { least: 4, ..breaker::Settings::default() };
        let guards = Guards { breaker: Some(settings), ..Guards::default() };
        let old = group(guards.clone(), None);
        let opened = (0..4).map(|_| at_once(&old, SECOND).unwrap().ended(false, SECOND)).collect::<Vec<_>>();
        assert_eq!(opened, [false, false, false, true]);
        assert_eq!(at_once(&old, 2 * SECOND).unwrap_err(), Refusal::Open(4 * SECOND));
        assert_eq!(Refusal::Open(4 * SECOND - 1).retry_after(), 4);
        let new = group(guards, Some(&old));
        assert!(at_once(&new, 2 * SECOND).is_err());
        // A probe that is given up leaves its place to another one.
        for _ in 0..10 {
            drop(at_once(&new, 7 * SECOND).unwrap());
        }
        let probes: Vec<_> = (0..3).map(|_| at_once(&new, 7 * SECOND).unwrap()).collect();
        assert!(at_once(&new, 7 * SECOND).is_err());
        for mut probe in probes {
            assert!(!probe.ended(true, 8 * SECOND));
        }
        assert_eq!(new.breaker(8 * SECOND), Some(State::Closed));
    }

    #[test]
    fn more_requests_than_a_group_may_have_are_refused_and_places_come_back() {
        let bulkhead = Bulkhead { requests: 2, line: 0, wait: Duration::ZERO };
        let guards = Guards { bulkhead: Some(bulkhead), ..Guards::default() };
        let group = group(guards, None);
        let one = at_once(&group, SECOND).unwrap();
        let _two = at_once(&group, SECOND).unwrap();
        assert_eq!(at_once(&group, SECOND).unwrap_err(), Refusal::Full);
        assert_eq!(group.places(), Some((2, 2, 0)));
        drop(one);
        assert!(at_once(&group, SECOND).is_ok());
    }

    #[test]
    fn repeats_are_as_many_as_configured_or_as_there_are_servers() {
        let retry = Retry { times: Some(2), base: SECOND, longest: SECOND, ..Retry::default() };
        let waits: Vec<_> = (0..4).map(|done| retry.wait(done, false, u64::MAX).is_some()).collect();
        assert_eq!(waits, [true, true, false, false]);
        assert_eq!(retry.wait(1, false, u64::MAX), Some(Duration::from_secs(1)));
        assert_eq!(Retry::default().wait(9, true, u64::MAX), Some(Duration::ZERO));
        assert_eq!(Retry::default().wait(0, false, u64::MAX), None);
    }
}
