//! `limits` of a route: how long the body of its requests may be.
//!
//! The server's own limit holds for routes without one. The protocol layer refuses by the largest of all, the
//! routes by their own.

use crate::chain::Builder;
use crate::feature::{Configured, Declaration, Feature, Reading, Scope, same};
use crate::flow::Local;
use ringroad_settings::{Key, Section, Table, value};
use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;

pub(super) static DECLARATION: Declaration = Declaration {
    key: Key {
        name: "limits",
        form: "table, as `{ body = \"1G\" }`",
        default: "-",
        meaning: "Sizes of this route's requests, see below.",
    },
    tables: &[&TABLE],
    scope: Scope::Route,
    read,
    named: None,
};

static TABLE: Table = Table {
    name: "[[route]] limits = { … }",
    meaning: "Limits of a route in place of those of `[limits]`. Others hold for a connection, before its route is known.",
    keys: &[Key { name: "body", form: "bytes", default: "-", meaning: "The body, more or less than `limits.body`; longer: 413." }],
};

fn read(section: &Section<'_>, _: &Reading<'_>) -> Option<Arc<dyn Feature>> {
    let mut table = section.table(DECLARATION.key.name)?;
    table.describe(&TABLE);
    let body = table.require("body", "a number of bytes, as \"1G\"", |value| value::bytes(value, 0, u64::MAX));
    table.finish();
    Some(Arc::new(Limits { body: body? }))
}

#[derive(Debug, PartialEq)]
struct Limits {
    body: u64,
}

impl Configured for Limits {
    fn same_as(&self, other: &dyn Any) -> bool {
        same(self, other)
    }
}

impl Feature for Limits {
    // The limit is held where the route is chosen, which knows that of routes without this key too.
    fn install(self: Arc<Self>, _: &Rc<Local>, _: &mut Builder) {}

    fn body_bytes(&self) -> Option<u64> {
        Some(self.body)
    }
}
