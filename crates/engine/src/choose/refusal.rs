//! Explains why a driver cannot be used: a reason and a fix, from the trial's findings and the possible
//! causes.
//!
//! Pure functions: the same errno can come from a sysctl, a filter or a limit. The cause is inferred here, so
//! a test can describe any machine. Start at [`Refusal`].

use super::child::{End, Seen};
use super::trial::{SILENT, Step, WRONG};
use crate::driver::uring::setup::missing;
use crate::error::Error;
use crate::name::DriverName;
use ringroad_host::cgroup::Limit;
use ringroad_host::gate::Gate;
use ringroad_host::words::without_number;
use ringroad_uring::Features;
use std::fmt;
use std::io;

/// The kind of obstacle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// A sysctl, a seccomp filter or a security module forbids it.
    Forbidden,
    /// This kernel lacks it, or a part of it.
    Missing,
    /// A limit is reached.
    Limited,
    /// It works, but incorrectly.
    Broken,
}

/// A driver that cannot be used here, the reason, and a fix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The driver.
    pub driver: DriverName,
    /// The kind of obstacle.
    pub obstacle: Obstacle,
    /// The call that was tried, and its result.
    pub reason: String,
    /// What to do, if there is a fix.
    pub fix: Option<String>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.driver, self.reason)?;
        match &self.fix {
            Some(fix) => write!(f, " ({fix})"),
            None => Ok(()),
        }
    }
}

const KERNEL: &str = "Linux 6.1 or newer has what is needed";

/// Returns the refusal that the findings imply, if any.
pub(super) fn conclude(driver: DriverName, end: &End, seen: &Seen, gate: &Gate) -> Option<Refusal> {
    let (call, what) = match seen.step {
        // The names of these drivers are those of their system calls.
        Step::Readiness => (driver.as_str(), "an event that is waited for"),
        step => step.words(),
    };
    let refusal =
        |obstacle, reason: String, fix: Option<String>| Some(Refusal { driver, obstacle, reason, fix });
    match end {
        End::Unborn(call, why) => {
            let fix = "more processes: ulimit -u, or the pids limit of the container";
            let reason = format!("{call}, for a process to try it in: {}", without_number(why));
            return refusal(Obstacle::Limited, reason, Some(fix.to_owned()));
        }
        End::Killed(libc::SIGSYS) | End::Vanished => {
            let reason = format!("a seccomp filter ends a process that calls {call} (seen by {what})");
            let fix = match driver {
                DriverName::Epoll => "allow epoll_pwait and epoll_pwait2".to_owned(),
                _ => allow(gate),
            };
            return refusal(Obstacle::Forbidden, reason, Some(fix));
        }
        End::Killed(libc::SIGALRM) => {
            let (reason, fix) = silent(call, what, gate);
            return refusal(Obstacle::Broken, reason, fix);
        }
        End::Killed(signal) => {
            let reason = format!("the process that tried it ended by signal {signal}, in {call} ({what})");
            return refusal(Obstacle::Broken, reason, None);
        }
        End::Exited => {}
    }
    // A missing feature explains the later failure.
    if let Some(opcodes) = &seen.opcodes {
        let missing = missing(Features(seen.features), |opcode| opcodes.supports(opcode));
        if !missing.is_empty() {
            let reason = format!("this kernel's io_uring lacks {}", missing.join(", "));
            return refusal(Obstacle::Missing, reason, Some(KERNEL.to_owned()));
        }
    }
    if seen.passed {
        return None;
    }
    if seen.errno == SILENT {
        let (reason, fix) = silent(call, what, gate);
        return refusal(Obstacle::Broken, reason, fix);
    }
    let answer = if seen.errno == WRONG {
        "not the answer it should give".to_owned()
    } else {
        without_number(&io::Error::from_raw_os_error(seen.errno))
    };
    let answered = format!("{call}, {what}: {answer}");
    let (obstacle, because, fix) = match seen.errno {
        libc::EPERM | libc::EACCES | libc::ENOSYS | libc::EINVAL if driver == DriverName::IoUring => {
            io_uring(seen, gate)
        }
        libc::ENOMEM if driver == DriverName::IoUring => memory(gate),
        libc::EMFILE | libc::ENFILE => no_descriptor(),
        libc::EPERM | libc::EACCES | libc::ENOSYS => {
            (Obstacle::Forbidden, "a seccomp filter forbids it".to_owned(), None)
        }
        _ if driver == DriverName::IoUring => (Obstacle::Broken, String::new(), Some(KERNEL.to_owned())),
        _ => (Obstacle::Broken, String::new(), None),
    };
    let reason = if because.is_empty() { answered } else { format!("{answered}: {because}") };
    refusal(obstacle, reason, fix)
}

/// Returns the refusal for a driver that passed its trial, where a runtime on it could not be made: a trial
/// needs less than runtimes do.
pub(super) fn unmade(driver: DriverName, why: &Error, gate: &Gate) -> Refusal {
    let (obstacle, because, fix) = match why.raw_os_error() {
        Some(libc::ENOMEM) if driver == DriverName::IoUring => memory(gate),
        Some(libc::ENOMEM | libc::EAGAIN) => (Obstacle::Limited, String::new(), None),
        Some(libc::EMFILE | libc::ENFILE) => no_descriptor(),
        Some(libc::EPERM | libc::EACCES | libc::ENOSYS) => (Obstacle::Forbidden, String::new(), None),
        _ => (Obstacle::Broken, String::new(), None),
    };
    let answered = format!("{}, for a runtime: {}", why.operation(), without_number(why.system()));
    let reason = if because.is_empty() { answered } else { format!("{answered}: {because}") };
    Refusal { driver, obstacle, reason, fix }
}

fn no_descriptor() -> (Obstacle, String, Option<String>) {
    (Obstacle::Limited, "no descriptor is left".to_owned(), Some("ulimit -n".to_owned()))
}

/// Returns the reason and the fix for a call that did not answer.
fn silent(call: &str, what: &str, gate: &Gate) -> (String, Option<String>) {
    let fix = "a sandbox intercepts the call: ask the administrator of that sandbox";
    let reason = format!("{call} did not answer within five seconds (tried: {what})");
    (reason, gate.is_filtered().then(|| fix.to_owned()))
}

/// Infers what refused one of the three calls.
fn io_uring(seen: &Seen, gate: &Gate) -> (Obstacle, String, Option<String>) {
    let at_setup = seen.step == Step::Setup;
    let filtered = || (Obstacle::Forbidden, "a seccomp filter forbids it".to_owned(), Some(allow(gate)));
    match seen.errno {
        libc::EINVAL if at_setup && seen.plain_errno == 0 => {
            let because = "this kernel lacks SINGLE_ISSUER or DEFER_TASKRUN".to_owned();
            (Obstacle::Missing, because, Some(KERNEL.to_owned()))
        }
        libc::EINVAL if seen.step == Step::Buffers && !gate.is_filtered() => {
            (Obstacle::Missing, "this kernel lacks buffer rings".to_owned(), Some(KERNEL.to_owned()))
        }
        libc::EINVAL if !gate.is_filtered() => (Obstacle::Missing, String::new(), Some(KERNEL.to_owned())),
        libc::ENOSYS if !gate.is_filtered() => {
            let because = "this kernel is built without io_uring, or older than 5.1".to_owned();
            let fix = "Linux 6.1 or newer with CONFIG_IO_URING=y".to_owned();
            (Obstacle::Missing, because, Some(fix))
        }
        libc::EPERM | libc::EACCES if at_setup && gate.sysctl_forbids() => sysctl(gate),
        libc::EPERM | libc::EACCES if !gate.is_filtered() => {
            let modules = gate.security_modules.join(", ");
            let because = if modules.is_empty() {
                "a filter or a security module forbids it".to_owned()
            } else {
                format!("a security module forbids it, it seems (active: {modules})")
            };
            (Obstacle::Forbidden, because, None)
        }
        _ => filtered(),
    }
}

fn sysctl(gate: &Gate) -> (Obstacle, String, Option<String>) {
    let host = if gate.container.is_some() { " (on the host)" } else { "" };
    let open = format!("sysctl kernel.io_uring_disabled=0{host}");
    let (because, fix) = match (gate.disabled, gate.group) {
        (Some(1), Some(group @ 0..)) => (
            format!("the sysctl kernel.io_uring_disabled=1 allows only group {group}"),
            format!("usermod -aG {group} USER, or {open}"),
        ),
        (Some(1), _) => (
            "the sysctl kernel.io_uring_disabled=1 allows only CAP_SYS_ADMIN".to_owned(),
            format!("sysctl kernel.io_uring_group=GID{host} for a group of this user, or {open}"),
        ),
        _ => ("the sysctl kernel.io_uring_disabled=2 forbids it to every process".to_owned(), open),
    };
    (Obstacle::Forbidden, because, Some(fix))
}

fn memory(gate: &Gate) -> (Obstacle, String, Option<String>) {
    let because = match gate.memlock {
        Some(Limit::At(bytes)) => {
            format!("this user may lock {} KiB of memory (RLIMIT_MEMLOCK)", bytes / 1024)
        }
        _ => "no memory for a ring".to_owned(),
    };
    let fix = match gate.container.as_deref() {
        Some("docker" | "podman") => "docker run --ulimit memlock=-1",
        Some(_) => "LimitMEMLOCK=infinity where the container's service is defined",
        None => "ulimit -l unlimited; in a systemd unit LimitMEMLOCK=infinity",
    };
    (Obstacle::Limited, because, Some(fix.to_owned()))
}

/// Returns how to allow the three calls in the filter.
fn allow(gate: &Gate) -> String {
    match gate.container.as_deref() {
        Some(engine @ ("docker" | "podman")) => {
            format!(
                "{engine} run --security-opt seccomp=FILE; FILE is your profile through `ringroad doctor --seccomp`"
            )
        }
        Some("kubernetes" | "kubepods") => {
            "seccompProfile: {type: Localhost}; the profile is yours through `ringroad doctor --seccomp`"
                .to_owned()
        }
        _ => {
            "allow io_uring_setup, io_uring_enter, io_uring_register; in a systemd unit SystemCallFilter=@aio"
                .to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Duration;

    fn seen(step: Step, errno: i32) -> Seen {
        Seen {
            step,
            passed: false,
            errno,
            plain_errno: 0,
            setup_flags: 0,
            features: 0,
            opcodes: None,
            multishot_accept: 0,
            files: [0; 5],
            took: Duration::ZERO,
        }
    }

    fn told(end: End, seen: &Seen, gate: &Gate) -> (Obstacle, String) {
        let refusal = conclude(DriverName::IoUring, &end, seen, gate).unwrap();
        (refusal.obstacle, refusal.to_string())
    }

    /// A row: the findings, the gate, the expected obstacle, and words that the message must contain.
    #[test]
    fn every_refusal_names_its_cause_and_a_fix() {
        let open = Gate::default();
        let filtered = Gate { seccomp_mode: Some(2), ..Gate::default() };
        let docker = Gate { container: Some("docker".into()), ..filtered.clone() };
        let off = Gate { disabled: Some(2), ..filtered.clone() };
        let group = Gate { disabled: Some(1), group: Some(991), ..Gate::default() };
        let poor = Gate { memlock: Some(Limit::At(65536)), ..Gate::default() };
        let module = Gate { security_modules: vec!["selinux".into()], ..Gate::default() };
        let old = Seen { plain_errno: 0, ..seen(Step::Setup, libc::EINVAL) };
        let denied = Seen { plain_errno: libc::EINVAL, ..seen(Step::Setup, libc::EINVAL) };
        use Obstacle::{Broken, Forbidden, Limited, Missing};
        let rows: [(End, Seen, &Gate, Obstacle, &[&str]); 14] = [
            (
                End::Exited,
                seen(Step::Setup, libc::EPERM),
                &filtered,
                Forbidden,
                &["seccomp", "io_uring_setup", "@aio"],
            ),
            (
                End::Exited,
                seen(Step::Setup, libc::EPERM),
                &docker,
                Forbidden,
                &["docker run --security-opt seccomp="],
            ),
            (
                End::Exited,
                seen(Step::Setup, libc::EPERM),
                &off,
                Forbidden,
                &["io_uring_disabled=2", "sysctl kernel"],
            ),
            (End::Exited, seen(Step::Setup, libc::EPERM), &group, Forbidden, &["group 991", "usermod"]),
            (End::Exited, seen(Step::Setup, libc::EACCES), &module, Forbidden, &["selinux"]),
            (End::Exited, seen(Step::Setup, libc::ENOSYS), &open, Missing, &["CONFIG_IO_URING"]),
            (End::Exited, seen(Step::Setup, libc::ENOSYS), &filtered, Forbidden, &["seccomp"]),
            (End::Exited, old, &open, Missing, &["DEFER_TASKRUN", "6.1"]),
            (End::Exited, denied, &filtered, Forbidden, &["seccomp"]),
            (End::Exited, seen(Step::Setup, libc::ENOMEM), &poor, Limited, &["64 KiB", "ulimit -l"]),
            (End::Exited, seen(Step::Nop, libc::EPERM), &filtered, Forbidden, &["io_uring_enter", "seccomp"]),
            (
                End::Killed(libc::SIGSYS),
                seen(Step::Buffers, 0),
                &filtered,
                Forbidden,
                &["io_uring_register", "ends"],
            ),
            (
                End::Killed(libc::SIGALRM),
                seen(Step::Nop, 0),
                &open,
                Broken,
                &["io_uring_enter", "within five seconds"],
            ),
            (
                End::Exited,
                seen(Step::Receive, WRONG),
                &open,
                Broken,
                &["a receive that stands", "not the answer"],
            ),
        ];
        for (end, seen, gate, obstacle, expected) in rows {
            let about = format!("{end:?} {seen:?}");
            let (found, text) = told(end, &seen, gate);
            assert_eq!(found, obstacle, "{text}");
            assert!(
                expected.iter().all(|words| text.contains(words)),
                "{text} has not all of {expected:?} ({about})"
            );
            assert!(!text.contains("os error"), "{text}");
        }
    }

    #[test]
    fn missing_features_are_reported_before_the_failure_they_cause() {
        let mut lacking = seen(Step::Buffers, libc::EINVAL);
        lacking.opcodes = Some(ringroad_uring::Probe::from_bits([0; 4]));
        let (obstacle, text) = told(End::Exited, &lacking, &Gate::default());
        assert_eq!(obstacle, Obstacle::Missing);
        assert!(text.contains("IORING_OP_ACCEPT") && text.contains("IORING_FEAT_NODROP"), "{text}");
    }
}
