//! A circuit breaker: when too many requests of a window fail, it opens and refuses requests for a while;
//! then a few probes are sent.

use crate::{Nanos, SECOND};

/// When a breaker opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Length of the window.
    pub window: Nanos,
    /// Minimum number of requests in the window for a decision.
    pub least: u32,
    /// Share of failures at which it opens, from 0 to 1.
    pub failed: f64,
    /// How long it stays open the first time; doubled each time a probe fails.
    pub open: Nanos,
    /// Maximum time that it stays open.
    pub longest: Nanos,
    /// Number of probes after that; all must succeed.
    pub probes: u32,
}

impl Default for Settings {
    /// Returns 10 s, 20 requests, half of them failed; 5 s to 60 s; 3 probes.
    fn default() -> Settings {
        Settings {
            window: 10 * SECOND,
            least: 20,
            failed: 0.5,
            open: 5 * SECOND,
            longest: 60 * SECOND,
            probes: 3,
        }
    }
}

const PARTS: usize = 10;

#[derive(Clone, Copy, Debug, Default)]
struct Part {
    number: u64,
    all: u32,
    failed: u32,
}

/// The state of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// All requests are sent.
    Closed,
    /// No request is sent until this time.
    Open(Nanos),
    /// A few probes are sent.
    Probing,
}

/// A change of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It opened for this long.
    Opened(Nanos, Opening),
    /// It sends this many probes.
    Probing(u32),
    /// It closed, after this many successful probes.
    Closed(u32),
}

/// The reason why a breaker opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// Too many requests of the window have failed.
    Share {
        /// Number of failed requests.
        failed: u32,
        /// Number of all requests.
        all: u32,
        /// Length of the window.
        window: Nanos,
    },
    /// A probe has failed.
    Probe,
}

/// The permission of one request. Pass it back with the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permit {
    /// Generation of the breaker's state: results of an earlier generation are ignored.
    life: u32,
    probe: bool,
}

/// How a permitted request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server answered successfully.
    Succeeded,
    /// Failed at the server.
    Failed,
    /// Given up without a result, for example because the client left.
    Abandoned,
}

/// A breaker.
#[derive(Clone, Debug)]
pub struct Breaker {
    settings: Settings,
    state: State,
    life: u32,
    parts: [Part; PARTS],
    /// How often it opened since it was last closed.
    times: u32,
    /// While probing: probes in flight, and successful ones.
    trying: u32,
    succeeded: u32,
    /// The last change, until it is taken.
    change: Option<Change>,
}

impl Breaker {
    /// Makes a closed breaker.
    pub fn new(settings: Settings) -> Breaker {
        let parts = [Part::default(); PARTS];
        let (life, times, trying, succeeded, change) = (0, 0, 0, 0, None);
        Breaker { settings, state: State::Closed, life, parts, times, trying, succeeded, change }
    }

    /// Returns the present state.
    pub fn state(&self, now: Nanos) -> State {
        match self.state {
            State::Open(until) if until <= now => State::Probing,
            state => state,
        }
    }

    /// Takes the last change. [`ask`](Self::ask) and [`end`](Self::end) make changes, and each replaces the
    /// one before it.
    pub fn take_change(&mut self) -> Option<Change> {
        self.change.take()
    }

    /// Requests permission for a request.
    ///
    /// # Errors
    /// How long to wait before the next attempt.
    pub fn ask(&mut self, now: Nanos) -> Result<Permit, Nanos> {
        match self.state {
            State::Closed => return Ok(Permit { life: self.life, probe: false }),
            State::Open(until) if until > now => return Err(until - now),
            State::Open(_) => {
                self.state = State::Probing;
                self.life = self.life.wrapping_add(1);
                (self.trying, self.succeeded) = (0, 0);
                self.change = Some(Change::Probing(self.settings.probes.max(1)));
            }
            State::Probing => {}
        }
        if self.trying + self.succeeded >= self.settings.probes.max(1) {
            // The probes in flight decide.
            return Err(SECOND);
        }
        self.trying += 1;
        Ok(Permit { life: self.life, probe: true })
    }

    /// Records the result of a permitted request. Returns whether it opened the breaker.
    pub fn end(&mut self, permit: Permit, outcome: Outcome, now: Nanos) -> bool {
        if permit.life != self.life {
            return false;
        }
        if permit.probe {
            self.trying = self.trying.saturating_sub(1);
            return match outcome {
                Outcome::Abandoned => false,
                Outcome::Failed => {
                    self.open(now, Opening::Probe);
                    true
                }
                Outcome::Succeeded => {
                    self.succeeded += 1;
                    if self.succeeded >= self.settings.probes.max(1) {
                        self.close();
                    }
                    false
                }
            };
        }
        if outcome == Outcome::Abandoned || self.state != State::Closed {
            return false;
        }
        let (all, failed) = self.count(outcome == Outcome::Failed, now);
        let share = f64::from(failed) / f64::from(all.max(1));
        let opens = all >= self.settings.least.max(1) && failed > 0 && share >= self.settings.failed;
        if opens {
            self.open(now, Opening::Share { failed, all, window: self.settings.window });
        }
        opens
    }

    /// Counts a result, and returns the totals of the window: all, and failed.
    fn count(&mut self, failed: bool, now: Nanos) -> (u32, u32) {
        let number = now / (self.settings.window / PARTS as u64).max(1);
        if let Some(part) = self.parts.get_mut((number % PARTS as u64) as usize) {
            if part.number != number {
                *part = Part { number, all: 0, failed: 0 };
            }
            part.all += 1;
            part.failed += u32::from(failed);
        }
        let within = self.parts.iter().filter(|part| part.number + PARTS as u64 > number);
        within.fold((0, 0), |(all, failed), part| (all + part.all, failed + part.failed))
    }

    fn open(&mut self, now: Nanos, why: Opening) {
        let doubled = self.settings.open.saturating_mul(1 << self.times.min(16));
        let span = doubled.min(self.settings.longest);
        self.times += 1;
        self.state = State::Open(now.saturating_add(span));
        self.change = Some(Change::Opened(span, why));
        self.life = self.life.wrapping_add(1);
    }

    fn close(&mut self) {
        self.state = State::Closed;
        self.change = Some(Change::Closed(self.succeeded));
        self.life = self.life.wrapping_add(1);
        self.times = 0;
        self.parts = [Part::default(); PARTS];
    }
}
