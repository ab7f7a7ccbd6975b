//! How many connections this host can open for a plan, and what limits that: said before it starts.
//!
//! The arithmetic is `host`'s ([`Capacity`]), as in `doctor`; here come the ports of one address, which bound a client
//! where they do not bound a server. Start at [`Room`].

use ringroad_host::Facts;
use ringroad_host::capacity::Capacity;
use ringroad_load::Plan;
use std::fmt;

/// What there is room for.
pub(super) struct Room {
    most: Option<u64>,
    limited_by: &'static str,
    fix: String,
}

impl Room {
    pub(super) fn of(facts: &Facts, plan: &Plan) -> Room {
        let capacity = Capacity::of(facts);
        let ports = capacity.outgoing.map(|ports| {
            let fix = "--source with several addresses, or sysctl net.ipv4.ip_local_port_range='1024 65535'";
            let sources = plan.sources.len().max(1) as u64;
            (ports.saturating_mul(sources), "local ports towards one address", fix.to_owned())
        });
        let processes = u64::from(plan.processes);
        let bounds = capacity.bounds.into_iter().map(|bound| match bound.of_each_process {
            true => {
                let fix = format!("{}; or --processes N, which is as many times that", bound.fix);
                (bound.connections.saturating_mul(processes), bound.what, fix)
            }
            false => (bound.connections, bound.what, bound.fix),
        });
        let tightest = bounds.chain(ports).min_by_key(|(connections, ..)| *connections);
        // Each thread has a ring or an epoll of its own, an alarm, and a few more.
        let threads = u64::from(plan.workers()) * 8;
        match tightest {
            Some((most, limited_by, fix)) => {
                Room { most: Some(most.saturating_sub(threads)), limited_by, fix }
            }
            None => Room { most: None, limited_by: "", fix: String::new() },
        }
    }

    /// Whether the plan fits.
    pub(super) fn check(&self, plan: &Plan) -> Result<(), String> {
        let wanted = u64::from(plan.connections) + u64::from(plan.idle);
        match self.most {
            Some(most) if most < wanted => Err(format!(
                "{wanted} connections are asked for, and this host can open {most}, limited by {} ({})",
                self.limited_by, self.fix
            )),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.most {
            Some(most) => write!(f, "this host can open {most} connections, limited by {}", self.limited_by),
            None => f.write_str("no limit of connections is known here"),
        }
    }
}
