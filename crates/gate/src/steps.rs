//! The features of a route, as they were read, and the chain that a worker makes of them.

use crate::chain::{Builder, Chain};
use crate::feature::{Declaration, Feature, NamedTables, Reading, Scope};
use crate::filter;
use crate::flow::Local;
use crate::metrics::Families;
use crate::store;
use ringroad_settings::{Section, value};
use std::rc::Rc;
use std::sync::Arc;

/// Adds the keys of features to those that may be written at the top of a file.
pub fn describe_top(top: &mut Section<'_>) {
    for declaration in filter::ALL {
        if declaration.scope != Scope::Route {
            top.describe_key(&declaration.key);
        }
        if let Some(named) = &declaration.named {
            top.describe_key(&named.key);
        }
    }
}

/// Adds the keys of features to those that may be written in a route.
pub fn describe_route(route: &mut Section<'_>) {
    for declaration in filter::ALL.iter().filter(|one| one.scope != Scope::Top) {
        route.describe_key(&declaration.key);
    }
}

/// Reads the named tables: stores, and those of all features.
pub fn named_tables(top: &Section<'_>) -> NamedTables {
    let mut all = NamedTables::default();
    all.note_written(top);
    store::read(top, &mut all);
    for named in filter::ALL.iter().filter_map(|declaration| declaration.named) {
        for (name, section) in top.named(named.key.name) {
            if let Some(table) = (named.read)(&name, section, &all) {
                all.add(named.key.name, name, table);
            }
        }
    }
    all
}

/// The features of one route, in the order of the table of features.
#[derive(Clone, Debug, Default)]
pub struct Steps(Vec<(&'static str, Arc<dyn Feature>)>);

impl PartialEq for Steps {
    fn eq(&self, other: &Steps) -> bool {
        let mut pairs = self.0.iter().zip(&other.0);
        self.0.len() == other.0.len()
            && pairs.all(|((key, one), (other_key, other))| key == other_key && one.same_as(&**other))
    }
}

impl Steps {
    /// Reads the keys of a route. Features of `defaults` count where the route has no key of their name.
    pub fn of_route(section: &Section<'_>, reading: &Reading<'_>, defaults: &Steps) -> Steps {
        let mut all = Vec::new();
        for declaration in filter::ALL.iter().filter(|one| one.scope != Scope::Top) {
            let name = declaration.key.name;
            if section.has(name) {
                all.extend(read(declaration, section, reading));
            } else if let Some((_, default)) = defaults.0.iter().find(|(own, _)| *own == name) {
                all.push((name, Arc::clone(default)));
            }
        }
        Steps(all)
    }

    /// Reads the keys at the top of the file of the features that have this scope.
    pub fn of_top(top: &Section<'_>, reading: &Reading<'_>, scope: Scope) -> Steps {
        let of_scope = filter::ALL.iter().filter(|one| one.scope == scope && top.has(one.key.name));
        Steps(of_scope.filter_map(|declaration| read(declaration, top, reading)).collect())
    }

    /// Makes the chain of a worker.
    pub fn chain(&self, local: &Rc<Local>) -> Chain {
        let mut chain = Builder::default();
        for (_, feature) in &self.0 {
            Arc::clone(feature).install(local, &mut chain);
        }
        chain.finish()
    }

    /// Takes over the state of the features that were in force at the same place.
    pub fn adopt(&self, before: &Steps) {
        for (name, feature) in &self.0 {
            if let Some((_, before)) = before.0.iter().find(|(own, _)| own == name)
                && !Arc::ptr_eq(before, feature)
            {
                feature.adopt(&**before);
            }
        }
    }

    /// Returns the lines that endpoints put into answers that they prepare.
    pub fn lines(&self) -> impl Iterator<Item = &(String, String)> {
        self.0.iter().flat_map(|(_, feature)| feature.lines())
    }

    /// Methods that the route must take for its features.
    pub fn methods(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().flat_map(|(_, feature)| feature.methods()).copied()
    }

    /// Groups of upstream servers that features send requests to, with the keys that name them.
    pub fn upstreams(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().flat_map(|(key, feature)| feature.upstreams().iter().map(|name| (*key, name.as_str())))
    }

    /// Returns whether a feature asks the endpoint by itself.
    pub fn ask_again(&self) -> bool {
        self.0.iter().any(|(_, feature)| feature.asks_again())
    }

    /// Returns the longest body that the route takes, if it has a limit of its own.
    pub fn body_bytes(&self) -> Option<u64> {
        self.0.iter().find_map(|(_, feature)| feature.body_bytes())
    }

    /// Writes what the features have counted.
    pub fn metrics(&self, labels: &str, out: &mut Families) {
        for (_, feature) in &self.0 {
            feature.metrics(labels, out);
        }
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn read(
    declaration: &'static Declaration,
    section: &Section<'_>,
    reading: &Reading<'_>,
) -> Option<(&'static str, Arc<dyn Feature>)> {
    let name = declaration.key.name;
    let off = section.read(name, |value| Ok(value::truth(value) == Ok(false)));
    if off == Some(true) {
        return None;
    }
    Some((name, (declaration.read)(section, reading)?))
}
