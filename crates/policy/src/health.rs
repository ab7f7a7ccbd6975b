//! Active health: how many checks in a row change a server's state, when health is no longer believed, and
//! how a server that has come back gets its share slowly.

use crate::Nanos;

/// What checks say of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    healthy: bool,
    /// Checks in a row that said the opposite.
    against: u32,
}

impl Health {
    /// Makes a server's state before its first check: servers of a new group are taken for healthy.
    pub fn new(healthy: bool) -> Health {
        Health { healthy, against: 0 }
    }

    /// Returns whether it is healthy.
    pub fn is_healthy(&self) -> bool {
        self.healthy
    }

    /// Takes in a check. Returns whether the state changed: after `up` good checks in a row, or `down` bad
    /// ones.
    pub fn checked(&mut self, good: bool, up: u32, down: u32) -> bool {
        if good == self.healthy {
            self.against = 0;
            return false;
        }
        self.against += 1;
        let needed = if good { up } else { down }.max(1);
        let changes = self.against >= needed;
        if changes {
            *self = Health::new(good);
        }
        changes
    }
}

/// Returns whether so few servers are usable that health is ignored: below `least` of all (0.5 usually). To
/// send a share of requests to servers that may fail is better than to send all to the few that are left.
pub fn panics(usable: usize, all: usize, least: f64) -> bool {
    (usable as f64) < all as f64 * least
}

/// Returns the weight of a server that came back `since` ago: linear over `window`, from a tenth on.
pub fn slow_start(weight: u32, since: Nanos, window: Nanos) -> f64 {
    let share = if window == 0 { 1.0 } else { (since as f64 / window as f64).clamp(0.1, 1.0) };
    f64::from(weight.max(1)) * share
}
