//! Rate limits by the generic cell rate algorithm: one word for each key (ITU-T I.371, "virtual scheduling").
//!
//! The word is the *theoretical arrival time*: the time at which the key has its whole burst again. A request
//! of cost 1 moves it by one interval. A request is refused if that would move it further ahead of now than
//! the burst allows. So a key without recent requests has its whole burst, and no key ever gets more than
//! `burst + rate × time` requests.

use crate::{Nanos, mixed};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A rate with a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Time between two requests at the full rate.
    interval: Nanos,
    /// Requests that may come at once, at least 1.
    burst: u64,
}

/// The decision on a request, with the facts for its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether it is within the limit.
    pub allowed: bool,
    /// Number of requests that would be allowed now, after this one.
    pub remaining: u64,
    /// Time until the same request would be allowed; 0 if it was.
    pub retry_after: Nanos,
    /// Time until the key has its whole burst again.
    pub reset_after: Nanos,
}

impl Quota {
    /// Makes a quota of `count` requests in `per`, and `burst` of them at once; zeros count as one.
    pub fn new(count: u64, per: Duration, burst: u64) -> Quota {
        let per = u64::try_from(per.as_nanos()).unwrap_or(u64::MAX);
        Quota { interval: (per / count.max(1)).max(1), burst: burst.max(1) }
    }

    /// Returns the number of requests that may come at once.
    pub fn burst(&self) -> u64 {
        self.burst
    }

    /// Returns the time between two requests at the full rate.
    pub fn interval(&self) -> Nanos {
        self.interval
    }

    fn depth(&self) -> Nanos {
        self.interval.saturating_mul(self.burst)
    }

    /// Decides on a request of `cost` at `now` for a key with the stored word `arrival`. Returns the key's
    /// next word, which is `arrival` unchanged if the request is refused.
    pub fn decide(&self, arrival: Nanos, now: Nanos, cost: u64) -> (Nanos, Decision) {
        let from = arrival.max(now);
        let next = from.saturating_add(self.interval.saturating_mul(cost));
        let limit = now.saturating_add(self.depth());
        let told = |arrival: Nanos, allowed, retry_after| {
            let ahead = arrival.saturating_sub(now);
            let remaining = self.depth().saturating_sub(ahead) / self.interval;
            Decision { allowed, remaining, retry_after, reset_after: ahead }
        };
        if next <= limit { (next, told(next, true, 0)) } else { (arrival, told(from, false, next - limit)) }
    }
}

/// The word of one key, shared by threads.
#[derive(Debug, Default)]
pub struct Cell(AtomicU64);

impl Cell {
    /// Decides on a request and keeps the result. Exact over threads: no request is counted twice or lost.
    pub fn take(&self, quota: &Quota, now: Nanos, cost: u64) -> Decision {
        // Relaxed: nothing else is published by this word.
        let mut arrival = self.0.load(Ordering::Relaxed);
        loop {
            let (next, decision) = quota.decide(arrival, now, cost);
            if next == arrival {
                return decision;
            }
            match self.0.compare_exchange_weak(arrival, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return decision,
                Err(seen) => arrival = seen,
            }
        }
    }

    /// Gives the cost of an allowed request back, because another limit has refused it.
    pub fn give_back(&self, quota: &Quota, cost: u64) {
        let back = quota.interval.saturating_mul(cost);
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |arrival| Some(arrival.saturating_sub(back)));
    }
}

/// Places of one set: a key is in one of so many.
const WAYS: usize = 8;
/// Locks of a table. More than threads of any machine we know, so that two rarely meet.
const SHARDS: usize = 64;

/// Words of many keys in memory of a fixed size, shared by threads.
///
/// A key that has its whole burst again needs no word. Where a set is full of keys that have not, the one
/// nearest to its whole burst gives way: a client that makes up keys can only bring others closer to a fresh
/// burst, never make the table grow.
#[derive(Debug)]
pub struct Table {
    shards: Box<[Mutex<Sets>]>,
    seed: u64,
}

/// The sets of one shard.
type Sets = Box<[[Entry; WAYS]]>;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    key: u64,
    arrival: Nanos,
}

impl Table {
    /// Makes room for at least `keys` keys. `seed` keeps clients from choosing keys that fall into one set.
    pub fn new(keys: usize, seed: u64) -> Table {
        let sets = keys.div_ceil(SHARDS * WAYS).max(1);
        let shard = || Mutex::new(vec![[Entry::default(); WAYS]; sets].into_boxed_slice());
        Table { shards: (0..SHARDS).map(|_| shard()).collect(), seed }
    }

    fn with<R>(&self, key: u64, now: Nanos, act: impl FnOnce(&mut Entry) -> R) -> R {
        let hash = mixed(key ^ self.seed);
        let shard = (hash as usize) % SHARDS;
        #[allow(clippy::indexing_slicing, reason = "the remainder is below the length, which is SHARDS")]
        let mut sets = self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner);
        let set = (hash >> 32) as usize % sets.len();
        #[allow(clippy::indexing_slicing, reason = "the remainder is below the length")]
        let set = &mut sets[set];
        // 0 marks a free place.
        let key = hash | 1;
        let place = match set.iter().position(|entry| entry.key == key) {
            Some(place) => place,
            None => {
                let soonest = set.iter().enumerate().min_by_key(|(_, entry)| entry.arrival);
                let place = soonest.map_or(0, |(place, _)| place);
                if let Some(entry) = set.get_mut(place) {
                    *entry = Entry { key, arrival: now };
                }
                place
            }
        };
        #[allow(clippy::indexing_slicing, reason = "a place of this set")]
        act(&mut set[place])
    }

    /// Decides on a request of `key`, which is a hash of what the limit counts by. Exact over threads.
    pub fn take(&self, key: u64, quota: &Quota, now: Nanos, cost: u64) -> Decision {
        self.with(key, now, |entry| {
            let (next, decision) = quota.decide(entry.arrival, now, cost);
            entry.arrival = next;
            decision
        })
    }

    /// Gives the cost of an allowed request back.
    pub fn give_back(&self, key: u64, quota: &Quota, now: Nanos, cost: u64) {
        let back = quota.interval.saturating_mul(cost);
        self.with(key, now, |entry| entry.arrival = entry.arrival.saturating_sub(back));
    }

    /// Returns the bytes that the table holds, whatever the number of keys.
    pub fn bytes(&self) -> usize {
        let sets = |shard: &Mutex<Sets>| shard.lock().unwrap_or_else(PoisonError::into_inner).len();
        self.shards.iter().map(|shard| sets(shard) * WAYS * size_of::<Entry>()).sum()
    }
}
