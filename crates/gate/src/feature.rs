//! Features as they are configured, and how their keys are read.
//!
//! A feature is one file in `filter/`. Its [`Declaration`] says which key it has in a route and how that is
//! read. What is read is a [`Feature`]: one for the process, shared by all workers. Each worker asks it for
//! its [`Filter`](crate::chain::Filter)s. [`Steps`] are the features of one route.

use crate::chain::{Builder, Later};
use crate::flow::Local;
use crate::metrics::Families;
use ringroad_settings::{Key, NOTED, Section, Table, Value};
use std::any::Any;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

/// Something that was configured: a feature of a route, or a named table such as `[limit.NAME]`.
pub trait Configured: Any + Send + Sync + fmt::Debug {
    /// Returns whether `other` was configured in the same way. What is the same stays itself over a reload.
    fn same_as(&self, other: &dyn Any) -> bool;

    /// Takes over the state of the one with the same name, or of the same route, that was in force before,
    /// with other settings.
    fn adopt(&self, before: &dyn Any) {
        let _ = before;
    }

    /// Returns the work that goes on for it beside requests, such as fetching keys, unless it is under way
    /// already. It ends by itself when this is no longer in force.
    fn tend(self: Arc<Self>) -> Option<Tending> {
        None
    }

    /// Writes what it has counted. `labels` are those of its place: the route's name or its own.
    fn metrics(&self, labels: &str, out: &mut Families) {
        let _ = (labels, out);
    }
}

/// A piece of work beside requests: called on the thread that does it.
pub type Tending = Box<dyn FnOnce() -> Later<'static, ()> + Send>;

/// Returns whether both are of one type and equal: the usual [`Configured::same_as`].
pub fn same<T: PartialEq + 'static>(one: &T, other: &dyn Any) -> bool {
    other.downcast_ref::<T>().is_some_and(|other| one == other)
}

/// A feature of a route.
pub trait Feature: Configured {
    /// Adds its steps to the chain of a route on one worker.
    fn install(self: Arc<Self>, local: &Rc<Local>, chain: &mut Builder);

    /// Constant header lines that an endpoint puts into the answers that it prepares once and sends often.
    /// They replace lines of the same name. Refusals do not carry them.
    fn lines(&self) -> &[(String, String)] {
        &[]
    }

    /// Methods that the route must take for this feature, besides its own.
    fn methods(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns whether it asks the endpoint by itself, without a client's request.
    fn asks_again(&self) -> bool {
        false
    }

    /// Names of the groups of upstream servers that it sends requests to.
    fn upstreams(&self) -> &[String] {
        &[]
    }

    /// Returns the longest body that the route takes, in place of the server's limit.
    fn body_bytes(&self) -> Option<u64> {
        None
    }
}

/// Where a feature's key may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In a route.
    Route,
    /// In a route, and at the top of the file for all routes without a key of their own.
    Everywhere,
    /// At the top of the file, for all requests.
    Top,
}

/// What a feature's file declares: its key, and how that is read.
#[derive(Clone, Copy)]
pub struct Declaration {
    /// The key.
    pub key: Key,
    /// The tables of the key reference that describe what is inside.
    pub tables: &'static [&'static Table],
    /// Where it may be written.
    pub scope: Scope,
    /// Reads the key of this section; `None` if it is wrong, which is noted. Not called for `false`, which
    /// turns a default of the top off.
    pub read: Read,
    /// Its named tables, as `[limit.NAME]`.
    pub named: Option<Named>,
}

/// Reads a feature's key.
pub type Read = fn(&Section<'_>, &Reading<'_>) -> Option<Arc<dyn Feature>>;

/// Named tables that a feature owns.
#[derive(Clone, Copy)]
pub struct Named {
    /// The key of the family: `limit`.
    pub key: Key,
    /// Reads one. Tables of families that are read before it are there.
    pub read: fn(&str, Section<'_>, &NamedTables) -> Option<Arc<dyn Configured>>,
}

/// What was read before a route's features are.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'r> {
    /// The named tables.
    pub tables: &'r NamedTables,
    /// The route's path; `None` at the top of the file, or where it is wrong.
    pub path: Option<&'r str>,
    /// The route's kind.
    pub kind: Option<&'r str>,
    /// The route's methods; empty: all.
    pub methods: &'r [String],
}

/// All named tables of a configuration, by family and name.
#[derive(Clone, Debug, Default)]
pub struct NamedTables {
    tables: Vec<(&'static str, String, Arc<dyn Configured>)>,
    /// Families and names that are written, also of tables in which something is wrong.
    written: Vec<(String, String)>,
}

impl NamedTables {
    /// Takes in which `[FAMILY.NAME]` and `[[FAMILY]]` with a `name` are written at the top of a file.
    pub fn note_written(&mut self, top: &Section<'_>) {
        for (family, value) in top.pairs() {
            let names: Vec<&str> = match value {
                Value::Table(tables) => tables.keys().map(|name| &**name.get_ref()).collect(),
                Value::Array(tables) => {
                    let named = tables.iter().filter_map(|table| table.get_ref().get("name"));
                    named.filter_map(|name| name.get_ref().as_str()).collect()
                }
                _ => continue,
            };
            self.written.extend(names.into_iter().map(|name| (family.to_owned(), name.to_owned())));
        }
    }

    /// Returns `what` as the mistake that there is no such table, or [`NOTED`] where it is written: then the
    /// mistakes in it are noted.
    pub fn no_such(&self, family: &str, name: &str, what: impl FnOnce() -> String) -> String {
        let is_written = self.written.iter().any(|(own, known)| own == family && known == name);
        if is_written { NOTED.to_owned() } else { what() }
    }

    /// Adds one.
    pub fn add(&mut self, family: &'static str, name: String, table: Arc<dyn Configured>) {
        self.tables.push((family, name, table));
    }

    /// Returns the table of this name, or the sentence that there is none.
    ///
    /// # Errors
    /// There is no such table, or it was wrong, which is noted at its place.
    pub fn get<T: Configured>(&self, family: &str, name: &str) -> Result<Arc<T>, String> {
        let mut of_family = self.tables.iter().filter(|(own, ..)| *own == family);
        if let Some((_, _, found)) = of_family.clone().find(|(_, own, _)| own == name) {
            let any: Arc<dyn Any + Send + Sync> = Arc::clone(found) as Arc<dyn Any + Send + Sync>;
            return any.downcast().map_err(|_| format!("[{family}.{name}] is of another kind"));
        }
        Err(self.no_such(family, name, || {
            let names: Vec<_> = of_family.by_ref().map(|(_, name, _)| name.as_str()).collect();
            let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            format!("there is no [{family}.{name}] (there are: {there})")
        }))
    }

    /// Returns the tables of a family with their names, in the order in which they are written.
    pub fn of<'t, T: Configured>(&'t self, family: &'t str) -> impl Iterator<Item = (&'t str, &'t T)> {
        let of_family = self.tables.iter().filter(move |(own, ..)| *own == family);
        of_family.filter_map(|(_, name, table)| {
            let any: &(dyn Any + Send + Sync) = &**table;
            Some((name.as_str(), any.downcast_ref::<T>()?))
        })
    }

    /// Takes over the state of the tables of the same names.
    pub fn adopt(&self, before: &NamedTables) {
        for (family, name, table) in &self.tables {
            let mut same = before.tables.iter().filter(|(own, known, _)| own == family && known == name);
            if let Some((_, _, before)) = same.next().filter(|(_, _, before)| !Arc::ptr_eq(before, table)) {
                table.adopt(&**before);
            }
        }
    }

    /// Returns the work that goes on beside requests for tables.
    pub fn tend(&self) -> impl Iterator<Item = Tending> {
        self.tables.iter().filter_map(|(_, _, table)| Arc::clone(table).tend())
    }

    /// Writes what the tables have counted, with their names as labels.
    pub fn metrics(&self, out: &mut Families) {
        for (family, name, table) in &self.tables {
            table.metrics(&crate::metrics::label(family, name), out);
        }
    }
}
