//! How many connections one process of this machine can hold open, and what sets that limit.
//!
//! Computed from [`Facts`] and the named constants; nothing is opened. Start at [`Capacity`].

use crate::cgroup::Limit;
use crate::facts::Facts;

/// Descriptors a server needs besides its connections: listeners, its ring or epoll, files, logs.
pub const DESCRIPTORS_RESERVED: u64 = 64;

/// Memory one idle connection costs on a server's side, bytes. Measured on Linux 6.18, loopback, 10,000 idle
/// connections: 10.5 KB of kernel memory for both ends, and 512 bytes in the process.
pub const BYTES_PER_CONNECTION: u64 = 6 * 1024;

/// The name of the limit that each process has.
const PROCESS_FILES: &str = "open files of a process";

/// One cause of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Name of the limit, for messages.
    pub what: &'static str,
    /// Number of connections that it allows.
    pub connections: u64,
    /// How to raise it.
    pub fix: String,
    /// It applies to each process separately, so several processes can hold more.
    pub of_each_process: bool,
}

/// The maximum number of open connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Every bound that is known, the tightest first.
    pub bounds: Vec<Bound>,
    /// Maximum number of outgoing connections to one address and port: each takes a local port.
    pub outgoing: Option<u64>,
}

impl Capacity {
    /// Computes the capacity from the facts.
    ///
    /// # References
    /// getrlimit(2), proc_sys_fs(5), ip(7).
    pub fn of(facts: &Facts) -> Capacity {
        let mut bounds = Vec::new();
        let mut bound = |what,
                         limit: Option<Limit<u64>>,
                         connections: fn(u64) -> u64,
                         fix: &dyn Fn(u64) -> String| {
            if let Some(Limit::At(value)) = limit {
                // A round number above the current value.
                let more = (value.saturating_mul(2)).max(1 << 20);
                let of_each_process = what == PROCESS_FILES;
                bounds.push(Bound { what, connections: connections(value), fix: fix(more), of_each_process });
            }
        };
        let files: fn(u64) -> String = match facts.container.as_deref() {
            Some("docker" | "podman") => |more| format!("docker run --ulimit nofile={more}"),
            Some(_) => |more| format!("LimitNOFILE={more} in the unit of the container's service"),
            None => |more| format!("ulimit -Hn {more} as root; in a systemd unit LimitNOFILE={more}"),
        };
        bound(
            PROCESS_FILES,
            facts.limits.nofile_hard,
            |files| files.saturating_sub(DESCRIPTORS_RESERVED),
            &files,
        );
        let file_max = facts.sysctls.file_max.map(Limit::At);
        bound("open files of the machine", file_max, |files| files, &|more| {
            format!("sysctl fs.file-max={more}")
        });
        let share = |bytes| bytes / BYTES_PER_CONNECTION;
        let free = facts.memory_available_bytes.map(Limit::At);
        bound("memory that is free", free, share, &|_| "more memory, or less of it in use".to_owned());
        let fix = |_| "a higher memory limit of the container".to_owned();
        bound("memory of the control group", facts.cgroup.memory_bytes, share, &fix);
        bounds.sort_by_key(|bound| bound.connections);
        let outgoing =
            facts.sysctls.ip_local_port_range.map(|[first, last]| u64::from(last.saturating_sub(first)) + 1);
        Capacity { bounds, outgoing }
    }

    /// Returns the smallest bound; `None` if none is known.
    pub fn connections_max(&self) -> Option<u64> {
        self.bounds.first().map(|bound| bound.connections)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::root::Fixture;

    fn capacity(nofile: &str, available_kb: u64) -> Capacity {
        let limits = format!("Max open files  1024  {nofile}  files\n");
        let memory = format!("MemAvailable: {available_kb} kB\n");
        let files = [
            ("proc/self/limits", &*limits),
            ("proc/meminfo", &memory),
            ("proc/sys/fs/file-max", "100000\n"),
            ("proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n"),
        ];
        Capacity::of(&Facts::read(&Fixture::of(&files).root))
    }

    #[test]
    fn the_tightest_bound_counts_and_is_named() {
        let files = capacity("20000", 1 << 20);
        assert_eq!(
            (files.connections_max(), files.bounds[0].what),
            (Some(19_936), "open files of a process")
        );
        let memory = capacity("1000000", 6 * 1000);
        assert_eq!((memory.connections_max(), memory.bounds[0].what), (Some(1000), "memory that is free"));
        let machine = capacity("unlimited", 1 << 30);
        assert_eq!(
            (machine.connections_max(), machine.bounds[0].what),
            (Some(100_000), "open files of the machine")
        );
        assert_eq!(machine.outgoing, Some(28_232));
    }

    #[test]
    fn few_descriptors_leave_no_room_and_hidden_limits_are_no_bounds() {
        assert_eq!(capacity("20", 1 << 20).connections_max(), Some(0));
        let hidden = Capacity::of(&Facts::read(&Fixture::of(&[]).root));
        assert_eq!((hidden.connections_max(), hidden.outgoing), (None, None));
    }
}
