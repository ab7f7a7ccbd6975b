//! Passive health: a server that fails requests in a row is left out for a while.

use crate::{Nanos, SECOND, below};

/// When a server is left out, and for how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Failures in a row.
    pub after: u32,
    /// The first time; each further time in a row adds as much.
    pub base: Nanos,
    /// The longest time.
    pub longest: Nanos,
    /// Share of a group's servers that may be out at once; one may in any case.
    pub most: f64,
}

impl Default for Settings {
    /// 5 in a row, 30 s to 300 s, half of the servers.
    fn default() -> Settings {
        Settings { after: 5, base: 30 * SECOND, longest: 300 * SECOND, most: 0.5 }
    }
}

impl Settings {
    /// Returns whether one more of `servers` may be left out when `out` are already. A group of one is never
    /// emptied.
    pub fn allows(&self, servers: usize, out: usize) -> bool {
        let most = ((servers as f64 * self.most) as usize).max(1);
        servers > 1 && out < most
    }
}

/// What is known of one server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ejection {
    failures: u32,
    /// Times it was left out without a good spell between them.
    times: u32,
    until: Nanos,
}

impl Ejection {
    /// Returns until when it is left out; in the past or 0 where it is not.
    pub fn until(&self) -> Nanos {
        self.until
    }

    /// Failures in a row so far.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Takes in a request that was answered well.
    pub fn succeeded(&mut self, settings: &Settings, now: Nanos) {
        self.failures = 0;
        // A good spell as long as the last time out makes the next one short again.
        let spell = settings.base.saturating_mul(u64::from(self.times));
        if self.times > 0 && now >= self.until.saturating_add(spell) {
            self.times = 0;
        }
    }

    /// Takes in one that failed. Returns until when the server is left out, if that begins now: where `may`
    /// permits it, with up to a tenth more by chance, so that servers do not all come back at once.
    pub fn failed(&mut self, settings: &Settings, now: Nanos, may: bool, random: u64) -> Option<Nanos> {
        self.failures = self.failures.saturating_add(1);
        if self.failures < settings.after.max(1) || self.until > now || !may {
            return None;
        }
        self.failures = 0;
        self.times = self.times.saturating_add(1);
        let span = settings.base.saturating_mul(u64::from(self.times)).min(settings.longest);
        self.until = now.saturating_add(span).saturating_add(below(random, span / 10 + 1));
        Some(self.until)
    }
}
