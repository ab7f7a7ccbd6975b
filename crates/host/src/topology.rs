//! Which CPUs share a core, and how to part them between server, client and harness.
//!
//! Only decisions: setting an affinity is the harness's part. Start at [`split_cores`].

use crate::root::Root;

/// Parts the CPUs this process may use: `(server, client, harness)`.
///
/// One core: all three get it whole. Two: one each, and the harness, idle while measuring, is with the client.
/// Three or more: disjoint; the harness gets one, the server the smaller half of the rest. A core is given with
/// all its threads that are in `affinity`, so that no two parties share one; CPUs outside it are never given.
/// Where the kernel hides which CPUs share a core, each CPU counts as one.
pub fn split_cores(affinity: &[u32]) -> (Vec<u32>, Vec<u32>, Vec<u32>) {
    split_cores_under(&Root::system(), affinity)
}

/// [`split_cores`] on another machine's files.
pub fn split_cores_under(root: &Root, affinity: &[u32]) -> (Vec<u32>, Vec<u32>, Vec<u32>) {
    part(&cores(root, affinity))
}

/// The given CPUs grouped by core, each group sorted, groups by their first CPU.
pub fn cores(root: &Root, cpus: &[u32]) -> Vec<Vec<u32>> {
    let mut cpus = cpus.to_vec();
    cpus.sort_unstable();
    cpus.dedup();
    let mut cores: Vec<Vec<u32>> = Vec::new();
    for &cpu in &cpus {
        if cores.iter().any(|core| core.contains(&cpu)) {
            continue;
        }
        let mut core = siblings(root, cpu).unwrap_or_default();
        core.push(cpu);
        // A CPU that an earlier core has claimed stays there, should the files contradict each other.
        core.retain(|thread| cpus.binary_search(thread).is_ok() && !cores.iter().any(|c| c.contains(thread)));
        core.sort_unstable();
        core.dedup();
        cores.push(core);
    }
    cores
}

/// The CPUs this process may run on, from `Cpus_allowed_list` of its status; `None` if hidden.
pub fn affinity() -> Option<Vec<u32>> {
    affinity_under(&Root::system())
}

pub(crate) fn affinity_under(root: &Root) -> Option<Vec<u32>> {
    let status = root.text("proc/self/status")?;
    parse_cpu_list(status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?)
}

fn siblings(root: &Root, cpu: u32) -> Option<Vec<u32>> {
    let topology = format!("sys/devices/system/cpu/cpu{cpu}/topology");
    // core_cpus_list is the name since Linux 5.3, thread_siblings_list the older one.
    root.text(format!("{topology}/core_cpus_list"))
        .or_else(|| root.text(format!("{topology}/thread_siblings_list")))
        .as_deref()
        .and_then(parse_cpu_list)
}

fn part(cores: &[Vec<u32>]) -> (Vec<u32>, Vec<u32>, Vec<u32>) {
    match cores {
        [] => (Vec::new(), Vec::new(), Vec::new()),
        [only] => (only.clone(), only.clone(), only.clone()),
        [server, client] => (server.clone(), client.clone(), client.clone()),
        [harness, rest @ ..] => {
            // The harness takes the first core, where most machines also handle their interrupts.
            let (server, client) = rest.split_at(rest.len() / 2);
            (server.concat(), client.concat(), harness.clone())
        }
    }
}

/// No kernel has more CPUs than this (the largest NR_CPUS is 8192): a list that says otherwise is junk, and
/// must not make us write out four billion numbers.
const CPU_MAX: u32 = 1 << 16;

/// A list as in cpuset(7): `0-3,8,10-11`. `None` for anything else, an empty list included.
pub(crate) fn parse_cpu_list(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last >= CPU_MAX {
            return None;
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Some(cpus)
}
