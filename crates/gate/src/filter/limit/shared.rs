//! Limits that several servers count together, in a store: `store`, `when_store_fails`, `nodes`.
//!
//! One script decides by the same algorithm as the table of one process: a key of the store has the time at
//! which it has its whole burst again, by the store's clock, and is gone when that is over. A refusal is
//! remembered here until its time is over, so a client that goes on asking costs the store nothing.

use crate::feature::Configured;
use crate::flow::Flow;
use crate::store::Store;
use ringroad_policy::gcra::{Decision, Quota};
use ringroad_policy::{Nanos, SECOND};
use ringroad_stores::redis::{Client, RedisError, Reply, Script};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

/// A refusal is remembered for so many keys.
const REMEMBERED_MAX: usize = 65_536;

/// Microseconds, since the store's clock has no finer ones; from 2025 on, so that a number of Lua is exact.
/// A negative cost gives an allowed request back.
static GCRA: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local time = redis.call('TIME')\n\
         local now = (time[1] - 1735689600) * 1000000 + time[2]\n\
         local interval, burst, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])\n\
         local from = math.max(tonumber(redis.call('GET', KEYS[1]) or now), now)\n\
         local next = from + interval * cost\n\
         local allowed, wait = 1, 0\n\
         if next > now + interval * burst then\n\
         allowed, wait, next = 0, next - now - interval * burst, from\n\
         elseif next > now then\n\
         redis.call('SET', KEYS[1], string.format('%.0f', next), 'PX', math.ceil((next - now) / 1000))\n\
         else\n\
         redis.call('DEL', KEYS[1])\n\
         end\n\
         local ahead = math.max(next - now, 0)\n\
         return {allowed, math.floor((interval * burst - ahead) / interval), wait, ahead}",
    )
});

/// What is decided when the store does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WhenFails {
    /// Each server counts for itself: its share of the rate.
    Local,
    /// The request passes.
    Open,
    /// The request is refused with 503.
    Closed,
}

pub(super) const WORDS: &[(&str, WhenFails)] =
    &[("local", WhenFails::Local), ("open", WhenFails::Open), ("closed", WhenFails::Closed)];

/// How a limit uses a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sharing {
    /// The `NAME` of `[redis.NAME]`.
    pub(super) store: String,
    pub(super) when_fails: WhenFails,
    /// Servers that share the store.
    pub(super) nodes: u64,
}

/// A limit's store and what is remembered of it, for all workers.
#[derive(Debug)]
pub(super) struct Shared {
    store: Arc<Store>,
    refused: Mutex<Remembered>,
    pub(super) asked: AtomicU64,
    pub(super) remembered: AtomicU64,
    pub(super) failed: AtomicU64,
    trouble: Trouble,
}

/// What the operator was told of a store that fails.
#[derive(Debug, Default)]
struct Trouble {
    is_told: AtomicBool,
    /// When it was told last.
    at: AtomicU64,
}

/// A store that fails now and then is told of once in so long.
const TOLD_EVERY: Nanos = 10 * SECOND;

impl Trouble {
    /// Notes that the store has failed. Returns whether that is news.
    fn begins(&self, now: Nanos) -> bool {
        let at = self.at.load(Ordering::Relaxed);
        let is_news = !self.is_told.load(Ordering::Relaxed) && (at == 0 || now >= at.saturating_add(TOLD_EVERY));
        // Of several workers one tells it.
        is_news && {
            self.at.store(now, Ordering::Relaxed);
            !self.is_told.swap(true, Ordering::Relaxed)
        }
    }

    /// It has answered. Returns whether that is news.
    fn ends(&self) -> bool {
        self.is_told.load(Ordering::Relaxed) && self.is_told.swap(false, Ordering::Relaxed)
    }
}

#[derive(Clone, Copy, Debug)]
struct Refused {
    until: Nanos,
    reset: Nanos,
}

/// Refusals until their time is over.
#[derive(Debug, Default)]
struct Remembered {
    known: HashMap<u64, Refused>,
    /// When those that are over were last looked for.
    swept: Nanos,
}

impl Remembered {
    fn put(&mut self, key: u64, refused: Refused, now: Nanos) {
        // All of them are looked at, under the lock that each request takes: not for each of many refusals.
        if self.known.len() >= REMEMBERED_MAX && now >= self.swept.saturating_add(SECOND) {
            self.known.retain(|_, known| known.until > now);
            self.swept = now;
        }
        // Where it is full of others, this key asks the store again: slower, and as exact.
        if self.known.len() < REMEMBERED_MAX {
            self.known.insert(key, refused);
        }
    }
}

impl Shared {
    pub(super) fn new(store: Arc<Store>) -> Shared {
        Shared {
            store,
            refused: Mutex::default(),
            asked: AtomicU64::new(0),
            remembered: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            trouble: Trouble::default(),
        }
    }

    /// Returns whether both count in one store that is reached in one way.
    pub(super) fn is_as(&self, other: &Shared) -> bool {
        self.store.same_as(&*other.store)
    }

    /// Returns the thread's client of the store.
    pub(super) fn client(&self) -> Client {
        self.store.redis().client()
    }

    /// Returns the refusal of a key, while its time is not over.
    pub(super) fn recall(&self, key: u64, now: Nanos) -> Option<Decision> {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let known = refused.known.get(&key).filter(|known| known.until > now)?;
        let (retry_after, reset_after) = (known.until - now, known.reset.saturating_sub(now));
        Some(Decision { allowed: false, remaining: 0, retry_after, reset_after })
    }

    fn remember(&self, key: u64, decision: &Decision, now: Nanos) {
        let until = now.saturating_add(decision.retry_after);
        let refused = Refused { until, reset: now.saturating_add(decision.reset_after) };
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).put(key, refused, now);
    }

    /// Takes in what the store has said of a key.
    pub(super) fn learn(
        &self,
        key: u64,
        now: Nanos,
        answer: Result<Reply, RedisError>,
    ) -> Result<Decision, RedisError> {
        let decision = decision(&answer?)?;
        if !decision.allowed {
            self.remember(key, &decision, now);
        }
        Ok(decision)
    }
}

/// Tells the operator when the store of a limit begins to fail and when it counts again.
pub(super) fn tell(flow: &Flow, limit: &str, shared: &Shared, sharing: &Sharing, why: Option<&RedisError>, now: Nanos) {
    let store = &sharing.store;
    let line = match why {
        Some(why) if shared.trouble.begins(now) => {
            let then = match sharing.when_fails {
                WhenFails::Local => "this server counts for itself",
                WhenFails::Open => "all requests pass",
                WhenFails::Closed => "requests are refused with 503",
            };
            format!("limit {limit}: the store redis.{store} fails: {why}; until it answers {then} (when_store_fails)")
        }
        None if shared.trouble.ends() => format!("limit {limit}: the store redis.{store} answers and counts again"),
        _ => return,
    };
    flow.context.local().tell_operator(line);
}

/// The script's arguments for a quota.
#[derive(Clone)]
pub(super) struct Arguments {
    interval: String,
    burst: String,
}

impl Arguments {
    pub(super) fn new(quota: &Quota) -> Arguments {
        // Up: never more than the rate.
        let interval = quota.interval().div_ceil(1000).max(1);
        Arguments { interval: interval.to_string(), burst: quota.burst().to_string() }
    }
}

/// Asks the store about a key; the question is on its way when this returns.
pub(super) fn ask(
    client: &Client,
    key: &str,
    arguments: &Arguments,
) -> impl Future<Output = Result<Reply, RedisError>> + use<> {
    let client = client.clone();
    let first = send(&client, key, arguments, b"1");
    let again = (key.to_owned(), arguments.interval.clone(), arguments.burst.clone());
    async move {
        match first.await {
            Err(why) if why.code() == Some("NOSCRIPT") => {
                let (key, interval, burst) = again;
                client.eval(&GCRA, &[key.as_bytes()], &[interval.as_bytes(), burst.as_bytes(), b"1"]).await
            }
            answer => answer,
        }
    }
}

/// Gives an allowed request back; the answer is of no interest.
pub(super) fn give_back(client: &Client, key: &str, arguments: &Arguments) {
    drop(send(client, key, arguments, b"-1"));
}

fn send(
    client: &Client,
    key: &str,
    arguments: &Arguments,
    cost: &[u8],
) -> ringroad_stores::redis::Answer {
    let Arguments { interval, burst } = arguments;
    client.command(&[
        b"EVALSHA",
        GCRA.name().as_bytes(),
        b"1",
        key.as_bytes(),
        interval.as_bytes(),
        burst.as_bytes(),
        cost,
    ])
}

/// Reads the script's answer.
fn decision(answer: &Reply) -> Result<Decision, RedisError> {
    let numbers: Option<Vec<i64>> =
        answer.array().and_then(|parts| parts.iter().map(Reply::integer).collect());
    let Some([allowed, remaining, wait, ahead]) = numbers.as_deref() else {
        return Err(RedisError::Refused("the script's answer has another form".into()));
    };
    let count = |number: &i64| u64::try_from(*number).unwrap_or(0);
    let nanos = |number: &i64| count(number).saturating_mul(1000);
    Ok(Decision {
        allowed: *allowed == 1,
        remaining: count(remaining),
        retry_after: nanos(wait),
        reset_after: nanos(ahead),
    })
}

/// Returns the quota of one of several servers that cannot ask the store.
pub(super) fn share(quota: &Quota, nodes: u64) -> Quota {
    let interval = quota.interval().saturating_mul(nodes.max(1));
    // By its interval: the count of a second may not be a whole number.
    Quota::new(1, Duration::from_nanos(interval.min(SECOND * 86_400 * 366)), quota.burst().div_ceil(nodes.max(1)))
}

/// Notes that a request was refused because the store does not answer.
pub(super) fn note(flow: &Flow, limit: &str, why: &RedisError) {
    flow.context.fault(format!("limit.{limit}: {why}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_that_are_over_are_looked_for_once_a_second() {
        let mut all = Remembered::default();
        let until = |until: Nanos| Refused { until, reset: until };
        let at = |millis: u64| 10 * SECOND + millis * (SECOND / 1000);
        (0..REMEMBERED_MAX as u64).for_each(|key| all.put(key, until(at(500)), at(0)));
        let key = u64::MAX;
        all.put(key, until(at(9000)), at(0));
        assert!(!all.known.contains_key(&key), "it is full of others");
        all.put(key, until(at(9000)), at(900));
        assert!(!all.known.contains_key(&key), "that was looked for just now");
        all.put(key, until(at(9000)), at(1000));
        assert_eq!(all.known.keys().collect::<Vec<_>>(), [&key]);
    }

    #[test]
    fn trouble_of_a_store_is_told_once_and_its_end_once_and_no_more_often_than_every_ten_seconds() {
        let trouble = Trouble::default();
        let at = |seconds: u64| seconds * SECOND;
        assert!(!trouble.ends(), "nothing was told");
        assert!(trouble.begins(at(1)) && !trouble.begins(at(20)));
        assert!(trouble.ends() && !trouble.ends());
        assert!(trouble.begins(at(21)) && trouble.ends());
        assert!(!trouble.begins(at(22)) && !trouble.ends(), "it comes and goes");
        assert!(trouble.begins(at(31)));
    }
}
