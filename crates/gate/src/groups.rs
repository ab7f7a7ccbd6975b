//! Groups of upstream servers for steps that send requests of their own, such as copies.
//!
//! A feature names the groups that it needs ([`Feature::upstreams`](crate::feature::Feature::upstreams)). The
//! server puts what reaches them into each worker ([`WorkerGroups`]) before a step runs.

use crate::chain::Later;
use crate::flow::Flow;
use ringroad_http::Response;
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

/// What a group is called in keys that take servers as well.
pub const PREFIX: &str = "upstream:";

/// Reaches groups of upstream servers.
pub trait Groups {
    /// Sends the request of a flow to a server of a group, as a proxy route does. An answer that this server
    /// made in place of the group's is noted as a fault of the flow.
    fn ask(&self, group: &str, flow: Flow) -> Later<'static, (Flow, Response)>;
}

/// The groups of a worker, kept with [`Local::own`](crate::flow::Local::own).
#[derive(Default)]
pub struct WorkerGroups(RefCell<Option<Rc<dyn Groups>>>);

impl WorkerGroups {
    /// Puts the groups of the configuration in force in the place of those before.
    pub fn set(&self, groups: Option<Rc<dyn Groups>>) {
        // Dropped when nothing is borrowed.
        drop(self.0.replace(groups));
    }

    /// Returns the groups, if any feature of the configuration names some.
    pub fn get(&self) -> Option<Rc<dyn Groups>> {
        self.0.borrow().clone()
    }
}

impl fmt::Debug for WorkerGroups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkerGroups({})", if self.0.borrow().is_some() { "set" } else { "none" })
    }
}
