//! More connections than the descriptor limit: on io_uring they are direct, with places in the file tables of
//! the rings.
//!
//! A table has at most as many places as the descriptor limit, and each thread has a ring, so more threads
//! multiply the limit. This module computes their number; the engine manages the places
//! (`TcpStream::into_direct`). Start at [`Direct::for_limit`].

use crate::error::Error;
use crate::plan::Plan;

/// Maximum places of a table (`IORING_MAX_FIXED_FILES`).
const PLACES_MAX: u64 = 1 << 20;

/// Descriptors of a process beside those of its threads: standard streams, files, pipes to other processes.
const OWN: u64 = 24;

/// Descriptors of a thread beside its connections: its ring or epoll, its alarm, and what is open for a
/// moment only.
pub const OF_THREAD: u64 = 3;

/// Maximum number of connections of a thread in progress at a time.
const CONNECTING_MAX: u64 = 256;

/// Settings of direct connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Direct {
    /// Places of each thread.
    pub places: u32,
    /// Connections of each thread that may have a descriptor at a time, on their way to a place.
    pub connecting: u32,
}

impl Direct {
    /// Returns what this plan takes where a process may have so many descriptors: how many threads in each of
    /// its processes, as many as it has if they are enough, and what each has.
    ///
    /// # Errors
    /// The limit is too low, or there are fewer connections that send than threads are needed.
    pub fn for_limit(plan: &Plan, descriptors: u64) -> Result<(u32, Direct), Error> {
        let limit = descriptors.min(PLACES_MAX);
        // One that ends may still have its place when the next is there.
        let spare = (limit / 4).min(CONNECTING_MAX);
        let held = |threads: u64| {
            let workers = threads * u64::from(plan.processes);
            u64::from(plan.connections).div_ceil(workers) + u64::from(plan.idle).div_ceil(workers)
        };
        let asked = u64::from(plan.threads);
        let most = (u64::from(plan.connections) / u64::from(plan.processes)).max(asked);
        let threads = (asked..=most).find(|threads| held(*threads) + spare <= limit).ok_or_else(|| {
            let wanted = plan.held();
            let each = limit - spare;
            Error::failed(format!(
                "{wanted} connections are requested, which is more than there can be, limited by open files of a process. With \
                 {descriptors} of them a thread holds {each} connections, and each thread needs one that sends: give more \
                 connections that send (-c), or raise the limit (ulimit -n)"
            ))
        })?;
        let connecting = descriptors.saturating_sub(OWN + OF_THREAD * threads) / threads;
        if connecting == 0 {
            return Err(Error::failed(format!(
                "{threads} thread{} would be needed, limited by open files of a process. Their rings take all \
                 {descriptors} descriptors, and a connection needs one until it has its place: raise the limit \
                 (ulimit -n)",
                if threads == 1 { "" } else { "s" }
            )));
        }
        // Both are bounded by the limit, which is bounded by 2^20.
        let places = (held(threads) + spare) as u32;
        Ok((threads as u32, Direct { places, connecting: connecting.min(CONNECTING_MAX) as u32 }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Message;

    fn plan(connections: u32, idle: u32, threads: u32) -> Plan {
        let message = Message::echo(b"x".to_vec()).unwrap();
        let plan = Plan::new("tcp://localhost:7".parse().unwrap(), vec![message]);
        Plan { connections, idle, threads, ..plan }
    }

    #[test]
    fn threads_are_as_many_as_their_tables_must_be() {
        for (connections, idle, threads, limit, wanted) in [
            (100_000, 0, 1, 20_000, (6, 16_923, 256)),
            (10, 100_000, 1, 20_000, (6, 16_925, 256)),
            (100_000, 0, 1, 1 << 20, (1, 100_256, 256)),
            // Those that are asked for, if they are enough.
            (1000, 0, 8, 20_000, (8, 381, 256)),
            (300, 0, 1, 128, (4, 107, 23)),
            (300, 40, 1, 64, (8, 59, 2)),
        ] {
            let (count, direct) = Direct::for_limit(&plan(connections, idle, threads), limit).unwrap();
            assert_eq!((count, direct.places, direct.connecting), wanted, "{connections} {idle} {limit}");
            assert!(u64::from(direct.places) <= limit);
        }
    }

    #[test]
    fn processes_share_what_has_to_be_held() {
        let plan = Plan { processes: 2, ..plan(100_000, 0, 1) };
        assert_eq!(Direct::for_limit(&plan, 20_000).unwrap().0, 3);
    }

    #[test]
    fn a_limit_that_is_too_low_is_refused_with_what_to_do() {
        for (plan, limit, why) in [
            (plan(1000, 0, 1), 64, "Their rings take all 64 descriptors"),
            (plan(2, 0, 1), 16, "1 thread would be needed"),
            (plan(1, 100_000, 1), 20_000, "give more connections that send (-c)"),
            (plan(10, 0, 1), 0, "raise the limit (ulimit -n)"),
        ] {
            let error = Direct::for_limit(&plan, limit).unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
        }
    }
}
