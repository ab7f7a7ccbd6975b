//! How many connections this host can open for a plan, and what limits that, checked before the load.
//!
//! The arithmetic is `host`'s ([`Capacity`]), as in `doctor`; here come the ports of one address, which bound
//! a client where they do not bound a server; and where descriptors are too few, whether the connections can
//! do without. Start at [`Room`], then [`places`].

use super::Complaint;
use crate::complaint::{FAILED, USAGE, say};
use crate::flags::Common;
use ringroad_engine::DriverName;
use ringroad_host::Facts;
use ringroad_host::capacity::{Bound, Capacity};
use ringroad_host::cgroup::Limit;
use ringroad_load::Plan;
use ringroad_load::direct::{Direct, OF_THREAD};
use std::fmt;

/// The number of connections that fit.
pub(super) struct Room {
    most: Option<u64>,
    limited_by: &'static str,
    fix: String,
    /// Said besides: how more connections than descriptors are held.
    how: String,
}

/// Returns how many descriptors a process may have.
fn descriptors(facts: &Facts) -> u64 {
    match facts.limits.nofile_hard {
        Some(Limit::At(limit)) => limit,
        // The kernel's own limit of what a table of a ring takes is far below.
        Some(Limit::Unlimited) | None => u64::MAX,
    }
}

/// Returns how many connections descriptors allow: as many times `bound` as there are processes, less what
/// their threads take.
fn by_descriptors(bound: &Bound, plan: &Plan) -> u64 {
    let all = bound.connections.saturating_mul(plan.processes.into());
    all.saturating_sub(u64::from(plan.workers()) * OF_THREAD)
}

/// Returns how the connections of this plan are to do without descriptors, and how many threads each process
/// has for that: if that is `asked` for, or if descriptors are too few and the driver can. `None`: they have
/// descriptors.
pub(super) fn places(
    facts: &Facts,
    plan: &Plan,
    asked: bool,
    driver: DriverName,
) -> Result<Option<(u32, Direct)>, Complaint> {
    if driver != DriverName::IoUring {
        let message = format!(
            "--direct: only io_uring holds connections without descriptors, and this is {driver}. Add --driver io_uring, or \
             give --processes N, which multiplies the limit on any driver"
        );
        return if asked { Err(Complaint { message, code: USAGE }) } else { Ok(None) };
    }
    let bound = Capacity::of(facts).bounds.into_iter().find(|bound| bound.of_each_process);
    let have = bound.map(|bound| by_descriptors(&bound, plan));
    if !asked && have.is_none_or(|have| have >= u64::from(plan.held())) {
        return Ok(None);
    }
    Ok(Some(Direct::for_limit(plan, descriptors(facts))?))
}

impl Room {
    pub(super) fn of(facts: &Facts, plan: &Plan) -> Room {
        let capacity = Capacity::of(facts);
        let ports = capacity.outgoing.map(|ports| {
            let fix = "--source with several addresses, or sysctl net.ipv4.ip_local_port_range='1024 65535'";
            let sources = plan.sources.len().max(1) as u64;
            (ports.saturating_mul(sources), "local ports towards one address", fix.to_owned())
        });
        let binds = |bound: &Bound| plan.direct.is_none() || !bound.of_each_process;
        let bounds = capacity.bounds.into_iter().filter(binds).map(|bound| match bound.of_each_process {
            true => {
                let fix = format!(
                    "{}; or --processes N, which multiplies it; or --driver io_uring, which needs no descriptor for a connection",
                    bound.fix
                );
                (by_descriptors(&bound, plan), bound.what, fix)
            }
            false => (bound.connections, bound.what, bound.fix),
        });
        let tightest = bounds.chain(ports).min_by_key(|(connections, ..)| *connections);
        let how = plan.direct.map_or_else(String::new, |direct| {
            let files = facts.limits.nofile_hard.map_or_else(|| "unknown".to_owned(), |limit| match limit {
                Limit::At(limit) => limit.to_string(),
                Limit::Unlimited => "unlimited".to_owned(),
            });
            let (threads, places) = (plan.threads, direct.places);
            format!(
                "; they have no descriptors (a process's limit: {files}) but places in the rings of {threads} threads, {places} each"
            )
        });
        match tightest {
            Some((most, limited_by, fix)) => Room { most: Some(most), limited_by, fix, how },
            None => Room { most: None, limited_by: "", fix: String::new(), how },
        }
    }

    /// Checks whether the plan fits.
    pub(super) fn check(&self, plan: &Plan) -> Result<(), String> {
        let wanted = plan.held();
        match self.most {
            Some(most) if most < u64::from(wanted) => Err(format!(
                "{wanted} connections are requested, but this host can open {most}, limited by {}. To raise it: {}",
                self.limited_by, self.fix
            )),
            _ => Ok(()),
        }
    }
}

/// From this share of what this host can open on, how much that is matters to the user.
const NEAR: u64 = 2;

/// Refuses a plan that does not fit, and says how many connections there is room for where that may matter.
pub(super) fn tell(facts: &Facts, plan: &Plan, common: &Common) -> Result<(), Complaint> {
    let room = Room::of(facts, plan);
    let is_near = room.most.is_some_and(|most| u64::from(plan.held()).saturating_mul(NEAR) >= most);
    if common.verbose > 0 || !common.quiet && (is_near || !room.how.is_empty()) {
        say(&room.to_string());
    }
    room.check(plan).map_err(|message| Complaint { message, code: FAILED })
}

impl fmt::Display for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.most {
            Some(most) => write!(f, "this host can open {most} connections, limited by {}", self.limited_by)?,
            None => f.write_str("no limit of connections is known here")?,
        }
        f.write_str(&self.how)
    }
}
