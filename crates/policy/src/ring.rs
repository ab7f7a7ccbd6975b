//! Consistent hashing: the same key goes to the same server, and few keys move when servers come and go.

use crate::mixed;

/// Points of a server of weight 1. The spread of loads falls with the root of their number: 160 give about 8
/// % (as ketama has them).
const POINTS: u32 = 160;
/// Points that one server has at most.
const POINTS_MAX: u32 = 16 * POINTS;

/// Servers on a ring of hashes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ring(Vec<(u64, u16)>);

impl Ring {
    /// Makes a ring of servers, each a hash of its name and a weight. The place of a server depends on its
    /// own name and weight alone, so that others may come and go.
    pub fn new(servers: &[(u64, u32)]) -> Ring {
        let lightest = servers.iter().map(|(_, weight)| (*weight).max(1)).min().unwrap_or(1);
        let mut points = Vec::new();
        for (at, (name, weight)) in servers.iter().enumerate() {
            let count = (POINTS * (*weight).max(1) / lightest).min(POINTS_MAX);
            let place =
                |number: u32| mixed(name ^ mixed(u64::from(number).wrapping_add(0x9e37_79b9_7f4a_7c15)));
            points.extend((0..count).map(|number| (place(number), at as u16)));
        }
        points.sort_unstable();
        Ring(points)
    }

    /// Servers in the order in which they stand behind a key's hash, each point's server, so that one comes
    /// several times: the first is the key's, the others take over where it cannot.
    pub fn from(&self, key: u64) -> impl Iterator<Item = usize> + '_ {
        let key = mixed(key);
        let start = self.0.partition_point(|(place, _)| *place < key);
        let (before, behind) = self.0.split_at(start);
        behind.iter().chain(before).map(|(_, server)| usize::from(*server))
    }
}

/// Requests in flight that a server may have with bounded loads: `factor` times its fair share of all,
/// rounded up, at least 1 (Mirrokni, Thorup, Zadimoghaddam, "Consistent hashing with bounded loads").
pub fn bound(in_flight: u64, weight: u32, weights: u64, factor: f64) -> u64 {
    let share = (in_flight + 1) as f64 * f64::from(weight.max(1)) / weights.max(1) as f64;
    (share * factor).ceil().max(1.0) as u64
}

/// Returns the server of a key by rendezvous hashing (highest random weight): for a handful of servers with
/// fixed numbers, where a number that is away gives its keys to all others evenly, and gets them back.
pub fn rendezvous(key: u64, servers: impl Iterator<Item = u64>) -> Option<u64> {
    servers.max_by_key(|server| mixed(key ^ mixed(server.wrapping_add(0x9e37_79b9_7f4a_7c15))))
}
