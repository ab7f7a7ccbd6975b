//! `[redis.NAME]`: stores that several machines share, for any feature that names one; and `[nats.NAME]`,
//! servers that only hand messages on.
//!
//! A feature looks a [`Store`] up by the name that its own key gives ([`find`]), and takes the server from it
//! ([`Store::redis`]) when it makes the steps of a worker. A reload that leaves a table as it was keeps its
//! connections.

use crate::feature::{Configured, NamedTables};
use crate::metrics::{Families, label};
use ringroad_settings::{Section, Value, value};
use ringroad_stores::nats::{self, Nats};
use ringroad_stores::redis::{self, Redis};
use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The family of the tables.
pub const FAMILY: &str = "redis";

/// The keys of a table, for the reference.
pub use ringroad_stores::redis::TABLE;

/// The family of the tables of NATS.
pub const NATS_FAMILY: &str = "nats";

/// The keys of a table of NATS, for the reference.
pub use ringroad_stores::nats::TABLE as NATS_TABLE;

/// A table of NATS. Its users make connections of their own.
#[derive(Debug)]
pub struct Bus {
    nats: Nats,
}

impl Bus {
    /// Returns the server.
    pub fn nats(&self) -> &Nats {
        &self.nats
    }
}

impl Configured for Bus {
    fn same_as(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<Bus>().is_some_and(|other| self.nats.settings() == other.nats.settings())
    }
}

/// A table.
#[derive(Debug)]
pub struct Store {
    /// Shared with the table of the same name and the same settings of the configuration before.
    redis: Mutex<Redis>,
}

impl Store {
    /// Returns the server, with what its clients have counted.
    pub fn redis(&self) -> Redis {
        self.redis.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Configured for Store {
    fn same_as(&self, other: &dyn Any) -> bool {
        other
            .downcast_ref::<Store>()
            .is_some_and(|other| *self.redis().settings() == *other.redis().settings())
    }

    fn adopt(&self, before: &dyn Any) {
        if let Some(before) = before.downcast_ref::<Store>().filter(|before| self.same_as(*before)) {
            *self.redis.lock().unwrap_or_else(PoisonError::into_inner) = before.redis();
        }
    }

    fn metrics(&self, labels: &str, out: &mut Families) {
        let redis = self.redis();
        let counters = redis.counters();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut families = |name: &str, help: &str, what: &str, counts: &[(&str, u64)]| {
            let mut family = out.family(name, "counter", help);
            for (value, count) in counts {
                family.sample(&format!("{labels},{}", label(what, value)), *count);
            }
        };
        let errors = count(&counters.errors);
        families(
            "ringroad_store_commands_total",
            "Commands to a shared store, by what became of them.",
            "result",
            &[
                ("answered", count(&counters.answered).saturating_sub(errors)),
                ("error", errors),
                ("timed_out", count(&counters.timed_out)),
                ("lost", count(&counters.lost)),
                ("refused", count(&counters.refused)),
                ("full", count(&counters.full)),
            ],
        );
        families(
            "ringroad_store_connections_total",
            "Attempts to connect to a shared store.",
            "result",
            &[("connected", count(&counters.connected)), ("failed", count(&counters.unconnected))],
        );
        let help = "From a command to its answer, all together.";
        let seconds = Duration::from_nanos(count(&counters.nanos)).as_secs_f64();
        out.family("ringroad_store_answer_seconds_total", "counter", help).sample(labels, seconds);
    }
}

/// Reads all tables of a file.
pub fn read(top: &Section<'_>, tables: &mut NamedTables) {
    for (name, section) in top.named(FAMILY) {
        if let Some(redis) = redis::read(&name, section) {
            tables.add(FAMILY, name, Arc::new(Store { redis: Mutex::new(redis) }));
        }
    }
    for (name, section) in top.named(NATS_FAMILY) {
        if let Some(nats) = nats::read(&name, section) {
            tables.add(NATS_FAMILY, name, Arc::new(Bus { nats }));
        }
    }
}

/// Reads the name of a table, as `"redis.main"`.
///
/// # Errors
/// Says what was expected.
pub fn name(value: &Value<'_>) -> Result<String, String> {
    let text = value::text(value)?;
    let name = text.strip_prefix("redis.").filter(|name| !name.is_empty()).map(str::to_owned);
    name.ok_or_else(|| value::found("a [redis.NAME], as \"redis.main\"", value))
}

/// Returns the table of this name.
///
/// # Errors
/// There is none.
pub fn find(tables: &NamedTables, name: &str) -> Result<Arc<Store>, String> {
    tables.get(FAMILY, name)
}
