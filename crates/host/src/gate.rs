//! Causes that may forbid io_uring to a process: a sysctl, a seccomp filter, a security module, a limit.
//!
//! This module only reads what the kernel reports. The caller concludes from a refusal which of them refused.
//! Start at [`Gate`].

use crate::cgroup::Limit;
use crate::cpu::status_number;
use crate::facts::{Limits, container};
use crate::root::Root;

/// The gates of the calling thread. `None` means hidden or unknown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gate {
    /// kernel.io_uring_disabled (Linux 6.6): 0 allows every process, 1 only members of a group and holders of
    /// CAP_SYS_ADMIN, 2 no process.
    pub disabled: Option<u8>,
    /// kernel.io_uring_group: that group; -1 is none.
    pub group: Option<i64>,
    /// Whether this thread is in it.
    pub in_group: bool,
    /// Whether this thread has CAP_SYS_ADMIN.
    pub admin: Option<bool>,
    /// The seccomp mode: 0 none, 1 strict, 2 filter.
    pub seccomp_mode: Option<u8>,
    /// Locked memory this process may have, bytes.
    pub memlock: Option<Limit<u64>>,
    /// The active security modules, as the kernel lists them.
    pub security_modules: Vec<String>,
    /// The kind of container, such as `docker`, if there is a sign of one.
    pub container: Option<String>,
}

/// Returns the seccomp mode of the calling thread: 0 none, 1 strict, 2 filter. `None`: it cannot be read.
pub fn seccomp_mode() -> Option<u8> {
    mode_in(&Root::system().text("proc/thread-self/status")?)
}

fn mode_in(status: &str) -> Option<u8> {
    status_number(status, "Seccomp").and_then(|mode| u8::try_from(mode).ok())
}

/// CAP_SYS_ADMIN's bit (capabilities(7)).
const CAP_SYS_ADMIN: u32 = 21;

impl Gate {
    /// Returns the gates of this thread.
    pub fn of_this_thread() -> Gate {
        Gate::read(&Root::system())
    }

    /// Returns the gates of the machine under `root`.
    ///
    /// # References
    /// Documentation/admin-guide/sysctl/kernel.rst; proc_pid_status(5); io_uring_setup(2).
    pub fn read(root: &Root) -> Gate {
        let status = root.text("proc/thread-self/status").unwrap_or_default();
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let group: Option<i64> = root.number("proc/sys/kernel/io_uring_group");
        // The kernel checks the file system group id (the fourth field) and the supplementary groups.
        let file_system = line("Gid:").and_then(|ids| ids.split_ascii_whitespace().nth(3));
        let others = line("Groups:").unwrap_or_default().split_ascii_whitespace();
        let in_group = group.is_some_and(|group| {
            group >= 0 && file_system.into_iter().chain(others).any(|id| id.parse() == Ok(group))
        });
        let capabilities = line("CapEff:").and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
        let modules = root.text("sys/kernel/security/lsm").unwrap_or_default();
        Gate {
            disabled: root.number("proc/sys/kernel/io_uring_disabled"),
            group,
            in_group,
            admin: capabilities.map(|bits| bits >> CAP_SYS_ADMIN & 1 != 0),
            seccomp_mode: mode_in(&status),
            memlock: Limits::read(root).memlock_soft_bytes,
            security_modules: modules.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect(),
            container: container(root),
        }
    }

    /// Returns whether the sysctl forbids io_uring to this thread. Unknown, as before Linux 6.6, counts as
    /// no.
    pub fn sysctl_forbids(&self) -> bool {
        match self.disabled {
            Some(0) | None => false,
            Some(1) => !self.in_group && self.admin != Some(true),
            Some(_) => true,
        }
    }

    /// Returns whether a filter decides about this thread's system calls.
    pub fn is_filtered(&self) -> bool {
        self.seccomp_mode == Some(2)
    }
}

#[cfg(test)]
mod tests {
    use super::Gate;
    use crate::cgroup::Limit;
    use crate::root::Fixture;

    const LIMITS: &str = "Limit  Soft Limit  Hard Limit  Units\nMax locked memory  65536  65536  bytes\n";

    fn gate(disabled: &str, group: &str, status: &str) -> Gate {
        let files = [
            ("proc/sys/kernel/io_uring_disabled", disabled),
            ("proc/sys/kernel/io_uring_group", group),
            ("proc/thread-self/status", status),
            ("proc/self/limits", LIMITS),
            ("sys/kernel/security/lsm", "capability,landlock,selinux"),
        ];
        Gate::read(&Fixture::of(&files).root)
    }

    #[test]
    fn the_sysctl_forbids_exactly_the_users_it_excludes() {
        let unprivileged = "Gid:\t7\t7\t7\t7\nGroups:\t8 9 \nCapEff:\t0000000000000000\nSeccomp:\t0\n";
        let admin = "Gid:\t7\t7\t7\t7\nGroups:\t\nCapEff:\t0000000000200000\nSeccomp:\t2\n";
        for (disabled, group, status, forbids) in [
            ("0", "-1", unprivileged, false),
            ("1", "-1", unprivileged, true),
            ("1", "5", unprivileged, true),
            ("1", "9", unprivileged, false),
            ("1", "7", unprivileged, false),
            ("1", "-1", admin, false),
            ("2", "9", unprivileged, true),
            ("2", "-1", admin, true),
        ] {
            assert_eq!(
                gate(disabled, group, status).sysctl_forbids(),
                forbids,
                "{disabled} {group} {status}"
            );
        }
    }

    #[test]
    fn filter_limit_and_modules_are_read_and_what_is_hidden_forbids_nothing() {
        let seen = gate("0", "-1", "Seccomp:\t2\n");
        assert!(seen.is_filtered());
        assert_eq!(seen.memlock, Some(Limit::At(65536)));
        assert_eq!(seen.security_modules, ["capability", "landlock", "selinux"]);
        let hidden = Gate::read(&Fixture::of(&[]).root);
        assert_eq!(hidden, Gate::default());
        assert!(!hidden.sysctl_forbids() && !hidden.is_filtered());
    }
}
