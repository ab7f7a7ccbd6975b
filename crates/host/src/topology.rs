//! Which CPUs share a core, and how to part them between server, client and harness.
//!
//! Only decisions: setting an affinity is the harness's part. Start at [`split_cores`].

use crate::root::Root;

/// Parts the CPUs this process may use: `(server, client, harness)`.
///
/// One core: all three get it whole. Two: one each, and the harness, idle while measuring, is with the
/// client. Three or more: disjoint; the harness gets one, the server the smaller half of the rest. A core is
/// given with all its threads that are in `affinity`, so that no two parties share one; CPUs outside it are
/// never given. Where the kernel hides which CPUs share a core, each CPU counts as one.
pub fn split_cores(affinity: &[u32]) -> (Vec<u32>, Vec<u32>, Vec<u32>) {
    split_cores_under(&Root::system(), affinity)
}

/// Does as [`split_cores`] on another machine's files.
pub fn split_cores_under(root: &Root, affinity: &[u32]) -> (Vec<u32>, Vec<u32>, Vec<u32>) {
    part(&cores(root, affinity))
}

/// Returns the given CPUs grouped by core, each group sorted, groups by their first CPU.
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

/// Returns the CPUs this process may run on, from `Cpus_allowed_list` of its status; `None` if hidden.
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

/// Returns a list as in cpuset(7): `0-3,8,10-11`. `None` for anything else, an empty list included.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{affinity, cores, parse_cpu_list, split_cores, split_cores_under};
    use crate::root::Fixture;

    /// Returns a machine of `cores` cores with `threads` threads each, numbered as Linux does on PCs: first
    /// all first threads, then all second ones.
    fn machine(cores: u32, threads: u32) -> Fixture {
        let files: Vec<(String, String)> = (0..cores * threads)
            .map(|cpu| {
                let siblings: Vec<String> =
                    (0..threads).map(|thread| (cpu % cores + thread * cores).to_string()).collect();
                (format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"), siblings.join(","))
            })
            .collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (&path[..], &text[..])).collect();
        Fixture::of(&files)
    }

    #[test]
    fn one_core_is_for_all_and_two_are_shared_out() {
        let of = |affinity: &[u32]| split_cores_under(&machine(4, 1).root, affinity);
        assert_eq!(of(&[]), (vec![], vec![], vec![]));
        assert_eq!(of(&[3]), (vec![3], vec![3], vec![3]));
        assert_eq!(of(&[3, 1]), (vec![1], vec![3], vec![3]));
        assert_eq!(of(&[1, 2, 3]), (vec![2], vec![3], vec![1]));
        // Two threads of one core are one core: parting them would let the client slow the server down.
        assert_eq!(split_cores_under(&machine(1, 2).root, &[0, 1]), (vec![0, 1], vec![0, 1], vec![0, 1]));
    }

    /// Every machine up to 9 cores with 1 or 2 threads, and every choice of CPUs that leaves some out.
    #[test]
    fn parts_are_inside_the_affinity_and_no_two_share_a_core() {
        for threads in [1, 2] {
            for count in 1..=9 {
                let machine = machine(count, threads);
                for skip in [1, 2, 3, 5] {
                    let affinity: Vec<u32> =
                        (0..count * threads).filter(|cpu| skip == 1 || cpu % skip != 0).collect();
                    let (server, client, harness) = split_cores_under(&machine.root, &affinity);
                    let given = cores(&machine.root, &affinity).len();
                    let all = [&server, &client, &harness];
                    assert!(all.iter().all(|part| part.is_empty() == affinity.is_empty()));
                    assert!(
                        all.iter().all(|part| part.iter().all(|cpu| affinity.contains(cpu))),
                        "{affinity:?}"
                    );
                    let meet =
                        |a: &[u32], b: &[u32]| a.iter().any(|x| b.iter().any(|y| x % count == y % count));
                    if given >= 2 {
                        assert!(!meet(&server, &client) && !meet(&server, &harness), "{affinity:?}");
                    }
                    if given >= 3 {
                        assert!(!meet(&client, &harness), "{affinity:?}");
                        let used = server.len() + client.len() + harness.len();
                        assert_eq!(used, affinity.len(), "CPUs left idle or given twice: {affinity:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_machine_that_hides_its_cores_counts_each_cpu() {
        let masked = Fixture::of(&[("sys/devices/system/cpu/cpu0/topology/core_cpus_list", "junk")]);
        assert_eq!(split_cores_under(&masked.root, &[0, 1]), (vec![0], vec![1], vec![1]));
    }

    #[test]
    fn files_that_contradict_each_other_give_no_cpu_twice() {
        let liar = Fixture::of(&[
            ("sys/devices/system/cpu/cpu0/topology/core_cpus_list", "0-1"),
            ("sys/devices/system/cpu/cpu1/topology/core_cpus_list", "1-2"),
            ("sys/devices/system/cpu/cpu2/topology/core_cpus_list", "1-2"),
        ]);
        assert_eq!(cores(&liar.root, &[0, 1, 2]), [vec![0, 1], vec![2]]);
    }

    #[test]
    fn the_cpus_of_this_process_can_be_parted() {
        let mine = affinity().unwrap();
        let (server, client, harness) = split_cores(&mine);
        for part in [server, client, harness] {
            assert!(!part.is_empty() && part.iter().all(|cpu| mine.contains(cpu)));
        }
    }

    #[test]
    fn cpu_lists_are_read_and_junk_is_refused() {
        assert_eq!(parse_cpu_list("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(parse_cpu_list("5,1,1-2"), Some(vec![1, 2, 5]));
        for junk in ["", "x", "3-1", "1-", "-1", "1,,2", "0-4294967295", "99999999999999999999"] {
            assert_eq!(parse_cpu_list(junk), None, "{junk:?}");
        }
    }
}
