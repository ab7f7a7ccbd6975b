//! Which requests that a worker failed are given to another one: one rule for workers of every protocol.
//!
//! A request that a worker has not begun may go anywhere. One that it may have begun is repeated once, if its
//! method is idempotent (RFC 9110 §9.2.2): the worker that died may have died of it.

use ringroad_app::{Failed, Pool, Refused, Settings, Ticket, Worker};
use ringroad_gate::flow;
use ringroad_http::Method;
use std::sync::atomic::Ordering;

/// Workers that a request is given to, if those before have not begun it.
const WORKERS_MAX: usize = 8;

/// The tries of one request.
pub(crate) struct Repeats<'p> {
    pool: &'p Pool,
    key: Option<u64>,
    /// `retry` of the application.
    wanted: bool,
    idempotent: bool,
    excluded: Vec<u64>,
    /// How often it was repeated.
    tries: usize,
    /// A worker that may have begun it has failed.
    begun: bool,
}

/// Returns whether a request may be repeated that was begun.
pub(crate) fn is_idempotent(method: Method) -> bool {
    !matches!(method, Method::Post | Method::Patch | Method::Connect | Method::Other)
}

impl<'p> Repeats<'p> {
    /// Nothing is tried yet.
    pub(crate) fn new(
        pool: &'p Pool,
        key: Option<u64>,
        settings: &Settings,
        idempotent: bool,
    ) -> Repeats<'p> {
        Repeats {
            pool,
            key,
            wanted: settings.retry,
            idempotent,
            excluded: Vec::new(),
            tries: 0,
            begun: false,
        }
    }

    /// Returns a worker that has not failed the request.
    pub(crate) async fn ticket(&self) -> Result<Ticket, Refused> {
        self.pool.take(self.key, &self.excluded).await
    }

    /// Returns whether the request that `worker` failed so is given to another one, and logs it.
    pub(crate) fn again(&mut self, failed: &Failed, worker: &Worker, asking: &flow::Context) -> bool {
        self.repeated(failed, worker, true, asking)
    }

    /// Returns the same where a kept connection to `worker` turned out closed: it may live, and gets the
    /// request over a new connection.
    pub(crate) fn again_there(&mut self, failed: &Failed, worker: &Worker, asking: &flow::Context) -> bool {
        self.repeated(failed, worker, false, asking)
    }

    fn repeated(&mut self, failed: &Failed, worker: &Worker, excludes: bool, asking: &flow::Context) -> bool {
        let Some(begun) = repeatable(failed, self.wanted, self.idempotent) else { return false };
        if begun && self.begun || self.tries + 1 >= WORKERS_MAX {
            return false;
        }
        self.begun |= begun;
        self.tries += 1;
        if excludes {
            self.excluded.push(worker.id());
        }
        self.pool.counts().retries.fetch_add(1, Ordering::Relaxed);
        let what = if begun { "had the request" } else { "had not begun the request" };
        let then = if excludes { "another one gets it" } else { "it gets it again" };
        let (name, slot) = (self.pool.settings().name.clone(), worker.slot());
        self.pool.say(format!("app {name}[{slot}] {}: {failed}; it {what}, {then}", asking.id()));
        true
    }
}

/// Returns whether a request that failed so may be repeated, and then whether it may have been begun.
/// `wanted`: requests that a dead worker was given are repeated at all.
pub(crate) fn repeatable(failed: &Failed, wanted: bool, idempotent: bool) -> Option<bool> {
    match failed {
        Failed::Died { unseen: true } if wanted => Some(false),
        Failed::Died { .. } if wanted && idempotent => Some(true),
        Failed::Reset { unhandled: true, .. } => Some(false),
        _ => None,
    }
}
