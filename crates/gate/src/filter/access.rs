//! `access = { allow = [...], deny = [...] }`: which addresses a route answers.

use crate::chain::{Builder, Filter, Step};
use crate::feature::{Configured, Declaration, Feature, Reading, Scope};
use crate::flow::{Flow, Local};
use crate::metrics::Families;
use crate::page;
use crate::stage::Stage;
use crate::words;
use ringroad_http::Status;
use ringroad_settings::{IpNet, Key, Section, Table, value};
use std::any::Any;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) static DECLARATION: Declaration = Declaration {
    key: Key {
        name: "access",
        form: "table, as `{ allow = [\"10.0.0.0/8\", \"::1\"], deny = [\"10.0.0.9\"] }`",
        default: "-",
        meaning: "Addresses that are answered, see below. `client_ip` decides which address a client has.",
    },
    tables: &[&TABLE],
    scope: Scope::Everywhere,
    read,
    named: None,
};

static TABLE: Table = Table {
    name: "access = { … }",
    meaning: "An address in `deny` is refused. With `allow`, so is every address that is not in it.",
    keys: &[
        Key { name: "allow", form: "networks or addresses", default: "-", meaning: "Answered; all others are refused." },
        Key { name: "deny", form: "networks or addresses", default: "-", meaning: "Refused." },
        Key { name: "status", form: "200 to 599", default: "403", meaning: "Status of the refusal." },
    ],
};

fn read(section: &Section<'_>, _: &Reading<'_>) -> Option<Arc<dyn Feature>> {
    let mut table = section.table(DECLARATION.key.name)?;
    table.describe(&TABLE);
    let networks = |key: &str| table.read(key, |value| value::some(value, "networks or addresses", value::network));
    let (allow, deny) = (networks("allow"), networks("deny"));
    let status = table.read("status", words::status).unwrap_or(Status::FORBIDDEN);
    if !table.has("allow") && !table.has("deny") {
        section.mistake(DECLARATION.key.name, "expected `allow`, `deny` or both");
    }
    // A list that is wrong must not become one that allows all.
    let whole = allow.is_some() == table.has("allow") && deny.is_some() == table.has("deny");
    table.finish();
    whole.then(|| {
        let settings = Settings { allow, deny: deny.unwrap_or_default(), status };
        Arc::new(Access { settings, refused: AtomicU64::new(0) }) as Arc<dyn Feature>
    })
}

#[derive(Debug)]
struct Access {
    settings: Settings,
    refused: AtomicU64,
}

#[derive(Debug, PartialEq)]
struct Settings {
    allow: Option<Vec<IpNet>>,
    deny: Vec<IpNet>,
    status: Status,
}

impl Settings {
    /// Returns whether an address is admitted. One that is not known (a Unix socket) is in no list.
    fn admits(&self, address: Option<IpAddr>) -> bool {
        let within = |list: &[IpNet]| address.is_some_and(|address| list.iter().any(|net| net.contains(&address)));
        !within(&self.deny) && self.allow.as_deref().is_none_or(within)
    }
}

impl Configured for Access {
    fn same_as(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<Access>().is_some_and(|other| self.settings == other.settings)
    }

    fn adopt(&self, before: &dyn Any) {
        if let Some(before) = before.downcast_ref::<Access>() {
            self.refused.fetch_add(before.refused.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    fn metrics(&self, labels: &str, out: &mut Families) {
        let help = "Requests refused for their client's address, by route.";
        let count = self.refused.load(Ordering::Relaxed);
        out.family("ringroad_access_refused_total", "counter", help).sample(labels, count);
    }
}

impl Feature for Access {
    fn install(self: Arc<Self>, _: &Rc<Local>, chain: &mut Builder) {
        chain.add(Stage::Admit, Rc::new(List(self)));
    }
}

struct List(Arc<Access>);

impl Filter for List {
    fn request<'a>(&'a self, flow: &'a mut Flow) -> Step<'a> {
        let address = flow.see_client();
        if self.0.settings.admits(address) {
            return Step::Next;
        }
        self.0.refused.fetch_add(1, Ordering::Relaxed);
        let what = "This address is not admitted here.";
        Step::Answer(page::refusal(self.0.settings.status, &flow.context, what))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn deny_counts_before_allow_and_an_unknown_address_is_in_no_list() {
        let nets = |list: &[&str]| list.iter().map(|net| net.parse().unwrap()).collect::<Vec<IpNet>>();
        let admits = |allow: Option<&[&str]>, deny: &[&str], address: &str| {
            let settings = Settings { allow: allow.map(nets), deny: nets(deny), status: Status::FORBIDDEN };
            settings.admits(address.parse().ok())
        };
        for (allow, deny, address, expected) in [
            (None, &["10.0.0.0/8"][..], "10.1.2.3", false),
            (None, &["10.0.0.0/8"], "11.1.2.3", true),
            (Some(&["10.0.0.0/8"][..]), &[], "10.1.2.3", true),
            (Some(&["10.0.0.0/8"]), &[], "::1", false),
            (Some(&["10.0.0.0/8"]), &["10.0.0.9/32"], "10.0.0.9", false),
            (Some(&["0.0.0.0/0"]), &[], "", false),
            (None, &["0.0.0.0/0"], "", true),
        ] {
            assert_eq!(admits(allow, deny, address), expected, "{allow:?} {deny:?} {address:?}");
        }
    }
}
