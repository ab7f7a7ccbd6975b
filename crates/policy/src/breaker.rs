//! A circuit breaker: when too many requests of a window fail, no more are sent for a while; then a few try.

use crate::{Nanos, SECOND};

/// When a breaker opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The window.
    pub window: Nanos,
    /// Requests in the window below which nothing is decided.
    pub least: u32,
    /// Share of failures at which it opens.
    pub failed: f64,
    /// How long it stays open the first time; doubled each time a probe fails.
    pub open: Nanos,
    /// The longest it stays open.
    pub longest: Nanos,
    /// Requests that try when that is over; all must succeed.
    pub probes: u32,
}

impl Default for Settings {
    /// 10 s, 20 requests, half of them failed; 5 s to 60 s; 3 probes.
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

/// What a breaker lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Everything.
    Closed,
    /// Nothing, until then.
    Open(Nanos),
    /// A few requests that try.
    Probing,
}

/// A change of what a breaker lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing, for so long.
    Opened(Nanos, Opening),
    /// So many requests may try.
    Probing(u32),
    /// Everything, since so many requests that tried have succeeded.
    Closed(u32),
}

/// The reason why a breaker opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// Too many requests of the window have failed.
    Share {
        /// Those that failed.
        failed: u32,
        /// All of them.
        all: u32,
        /// The window.
        window: Nanos,
    },
    /// A request that tried has failed.
    Probe,
}

/// The permission of one request. Its result must be given back with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permit {
    /// The life of the breaker in which it was given: results of an earlier life say nothing about this one.
    life: u32,
    probe: bool,
}

/// How a permitted request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answered well.
    Succeeded,
    /// Failed at the server.
    Failed,
    /// Given up without a result, as when its client has gone.
    Abandoned,
}

/// A breaker.
#[derive(Clone, Debug)]
pub struct Breaker {
    settings: Settings,
    state: State,
    life: u32,
    parts: [Part; PARTS],
    /// Times it opened without closing between them.
    times: u32,
    /// While probing: those on their way, and those that succeeded.
    trying: u32,
    succeeded: u32,
    /// What has changed and was not taken.
    change: Option<Change>,
}

impl Breaker {
    /// Makes a closed one.
    pub fn new(settings: Settings) -> Breaker {
        let parts = [Part::default(); PARTS];
        let (life, times, trying, succeeded, change) = (0, 0, 0, 0, None);
        Breaker { settings, state: State::Closed, life, parts, times, trying, succeeded, change }
    }

    /// Returns what it lets through now.
    pub fn state(&self, now: Nanos) -> State {
        match self.state {
            State::Open(until) if until <= now => State::Probing,
            state => state,
        }
    }

    /// Returns the last change, once. Changes are made by [`ask`](Self::ask) and [`end`](Self::end), and each
    /// takes the place of the one before it.
    pub fn take_change(&mut self) -> Option<Change> {
        self.change.take()
    }

    /// Asks to send a request.
    ///
    /// # Errors
    /// How long to wait before asking again.
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
            // The probes that are on their way decide.
            return Err(SECOND);
        }
        self.trying += 1;
        Ok(Permit { life: self.life, probe: true })
    }

    /// Takes in the result of a permitted request. Returns whether the breaker opened by it.
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

    /// Counts a result, and returns those of the window: all, and failed.
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
