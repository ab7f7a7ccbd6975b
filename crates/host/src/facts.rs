//! Facts about the machine that explain a measurement or a refusal, as one serialisable value.
//!
//! It only reads; `doctor` judges and the record keeps. Start at [`Facts`].

use crate::cgroup::{CgroupLimits, Limit};
use crate::cpu::status_number;
use crate::memory::{kilobytes, page_bytes};
use crate::root::Root;
use crate::topology;
#[cfg(feature = "serde")]
use serde::Serialize;
use std::str::FromStr;

/// What is known about this machine and this process's place in it. `None` (JSON `null`): hidden or unknown.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize))]
pub struct Facts {
    /// Kernel release, as `uname -r`.
    pub kernel: Option<String>,
    /// Kernel build, as `uname -v`.
    pub kernel_build: Option<String>,
    /// Machine architecture, as `uname -m`; this program's own where the kernel does not show it (before
    /// 6.1).
    pub arch: String,
    /// Processor model.
    pub cpu_model: Option<String>,
    /// CPUs online, counted as the scheduler does: threads of cores.
    pub cpus_online: Option<u32>,
    /// CPUs this process may use.
    pub affinity: Option<Vec<u32>>,
    /// Those CPUs grouped by core.
    pub cores: Option<Vec<Vec<u32>>>,
    /// Main memory, bytes.
    pub memory_total_bytes: Option<u64>,
    /// Main memory available without swapping, bytes.
    pub memory_available_bytes: Option<u64>,
    /// Size of a page, bytes.
    pub page_bytes: u64,
    /// The hypervisor's or product's name, `a hypervisor` if it has none, `none` on bare metal.
    pub virtualisation: Option<String>,
    /// A container's sign, such as `docker`; `None` where there is no sign of one.
    pub container: Option<String>,
    /// Kernel clock source. Anything but `tsc` makes every clock read on x86 a slow one.
    pub clocksource: Option<String>,
    /// Frequency governor of the first CPU.
    pub governor: Option<String>,
    /// Limits of control groups.
    pub cgroup: CgroupLimits,
    /// Limits of this process.
    pub limits: Limits,
    /// Kernel settings that matter to a server.
    pub sysctls: Sysctls,
    /// 0 none, 1 strict, 2 filter.
    pub seccomp_mode: Option<u8>,
    /// No set-user-id program can give this process more rights.
    pub no_new_privs: Option<bool>,
    /// Processor weaknesses and what is done about them: it changes the price of a system call.
    pub mitigations: Option<Mitigations>,
}

/// Limits of this process (getrlimit(2)).
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize))]
pub struct Limits {
    /// Open files, soft.
    pub nofile_soft: Option<Limit<u64>>,
    /// Open files, hard.
    pub nofile_hard: Option<Limit<u64>>,
    /// Locked memory, soft, bytes.
    pub memlock_soft_bytes: Option<Limit<u64>>,
    /// Locked memory, hard, bytes.
    pub memlock_hard_bytes: Option<Limit<u64>>,
    /// Processes and threads of this user, soft.
    pub nproc_soft: Option<Limit<u64>>,
    /// Processes and threads of this user, hard.
    pub nproc_hard: Option<Limit<u64>>,
}

/// Kernel settings, named after their sysctl.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize))]
pub struct Sysctls {
    /// net.core.somaxconn: the longest accept queue.
    pub somaxconn: Option<u64>,
    /// net.ipv4.tcp_max_syn_backlog.
    pub tcp_max_syn_backlog: Option<u64>,
    /// net.ipv4.ip_local_port_range: first and last port for outgoing connections.
    pub ip_local_port_range: Option<[u16; 2]>,
    /// net.ipv4.tcp_mem in pages: no pressure below the first, none granted above the last.
    pub tcp_mem_pages: Option<[u64; 3]>,
    /// fs.nr_open: the highest hard limit of open files.
    pub nr_open: Option<u64>,
    /// fs.file-max: open files of the whole machine.
    pub file_max: Option<u64>,
    /// kernel.io_uring_disabled (Linux 6.6): 0 allowed, 1 for a group only, 2 forbidden.
    pub io_uring_disabled: Option<u8>,
    /// kernel.io_uring_group: the group that may when the former is 1.
    pub io_uring_group: Option<i64>,
    /// kernel.perf_event_paranoid.
    pub perf_event_paranoid: Option<i64>,
}

/// `/sys/devices/system/cpu/vulnerabilities`, sorted by outcome; names as the kernel spells them.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize))]
pub struct Mitigations {
    /// Present and mitigated.
    pub mitigated: Vec<String>,
    /// Present and open.
    pub vulnerable: Vec<String>,
    /// Neither known.
    pub unknown: Vec<String>,
    /// How many do not affect this processor.
    pub not_affected: u32,
}

/// Returns the facts of this machine.
pub fn facts() -> Facts {
    Facts::read(&Root::system())
}

impl Facts {
    /// Returns the facts of the machine under `root`.
    pub fn read(root: &Root) -> Self {
        let cpuinfo = root.text("proc/cpuinfo").unwrap_or_default();
        let meminfo = root.text("proc/meminfo").unwrap_or_default();
        let status = root.text("proc/self/status").unwrap_or_default();
        let affinity = topology::affinity_under(root);
        Facts {
            kernel: root.text("proc/sys/kernel/osrelease"),
            kernel_build: root.text("proc/sys/kernel/version"),
            arch: root.text("proc/sys/kernel/arch").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cpu_model: cpu_model(root, &cpuinfo),
            cpus_online: root
                .text("sys/devices/system/cpu/online")
                .as_deref()
                .and_then(topology::parse_cpu_list)
                .map(|cpus| cpus.len() as u32),
            cores: affinity.as_deref().map(|cpus| topology::cores(root, cpus)),
            affinity,
            memory_total_bytes: kilobytes(&meminfo, "MemTotal"),
            memory_available_bytes: kilobytes(&meminfo, "MemAvailable"),
            page_bytes: page_bytes(),
            virtualisation: virtualisation(root, &cpuinfo),
            container: container(root),
            clocksource: root.text("sys/devices/system/clocksource/clocksource0/current_clocksource"),
            governor: root.text("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            cgroup: CgroupLimits::read(root),
            limits: Limits::read(root),
            sysctls: Sysctls::read(root),
            seccomp_mode: status_number(&status, "Seccomp").and_then(|mode| u8::try_from(mode).ok()),
            no_new_privs: status_number(&status, "NoNewPrivs").map(|value| value != 0),
            mitigations: Mitigations::read(root),
        }
    }
}

impl Limits {
    pub(crate) fn read(root: &Root) -> Self {
        let text = root.text("proc/self/limits").unwrap_or_default();
        // Columns: name (with spaces), soft, hard, unit.
        let pair = |name: &str| -> [Option<Limit<u64>>; 2] {
            let mut words = text
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .unwrap_or_default()
                .split_ascii_whitespace();
            [limit(words.next()), limit(words.next())]
        };
        let [nofile_soft, nofile_hard] = pair("Max open files");
        let [memlock_soft_bytes, memlock_hard_bytes] = pair("Max locked memory");
        let [nproc_soft, nproc_hard] = pair("Max processes");
        Limits { nofile_soft, nofile_hard, memlock_soft_bytes, memlock_hard_bytes, nproc_soft, nproc_hard }
    }
}

fn limit(word: Option<&str>) -> Option<Limit<u64>> {
    match word? {
        "unlimited" => Some(Limit::Unlimited),
        number => number.parse().ok().map(Limit::At),
    }
}

impl Sysctls {
    fn read(root: &Root) -> Self {
        Sysctls {
            somaxconn: root.number("proc/sys/net/core/somaxconn"),
            tcp_max_syn_backlog: root.number("proc/sys/net/ipv4/tcp_max_syn_backlog"),
            ip_local_port_range: numbers(root, "proc/sys/net/ipv4/ip_local_port_range"),
            tcp_mem_pages: numbers(root, "proc/sys/net/ipv4/tcp_mem"),
            nr_open: root.number("proc/sys/fs/nr_open"),
            file_max: root.number("proc/sys/fs/file-max"),
            io_uring_disabled: root.number("proc/sys/kernel/io_uring_disabled"),
            io_uring_group: root.number("proc/sys/kernel/io_uring_group"),
            perf_event_paranoid: root.number("proc/sys/kernel/perf_event_paranoid"),
        }
    }
}

fn numbers<T: FromStr, const N: usize>(root: &Root, path: &str) -> Option<[T; N]> {
    let text = root.text(path)?;
    let numbers: Vec<T> =
        text.split_ascii_whitespace().map(|word| word.parse().ok()).collect::<Option<_>>()?;
    numbers.try_into().ok()
}

impl Mitigations {
    fn read(root: &Root) -> Option<Self> {
        let dir = "sys/devices/system/cpu/vulnerabilities";
        let mut mitigations = Mitigations::default();
        for name in root.names(dir).ok()? {
            let state = root.text(format!("{dir}/{name}")).unwrap_or_default();
            // "KVM: Mitigation: ..." and "Processor vulnerable" occur too (kernel, hw-vuln documents).
            let list = if state == "Not affected" {
                mitigations.not_affected += 1;
                continue;
            } else if state.contains("Mitigation") {
                &mut mitigations.mitigated
            } else if state.to_ascii_lowercase().contains("vulnerable") {
                &mut mitigations.vulnerable
            } else {
                &mut mitigations.unknown
            };
            list.push(name);
        }
        Some(mitigations)
    }
}

/// Returns the value behind `name : ` in `/proc/cpuinfo`.
fn cpuinfo_value<'a>(cpuinfo: &'a str, name: &str) -> Option<&'a str> {
    cpuinfo.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim()).filter(|value| !value.is_empty())
    })
}

/// x86 says `model name`; Arm boards say it in the device tree, servers not at all.
fn cpu_model(root: &Root, cpuinfo: &str) -> Option<String> {
    ["model name", "Model", "cpu model", "uarch"]
        .iter()
        .find_map(|name| cpuinfo_value(cpuinfo, name))
        .map(str::to_owned)
        .or_else(|| root.text("proc/device-tree/model").map(|model| model.trim_end_matches('\0').to_owned()))
}

fn virtualisation(root: &Root, cpuinfo: &str) -> Option<String> {
    // The flag is x86's: CPUID.1:ECX bit 31, which hypervisors set and processors never do.
    let flag = cpuinfo_value(cpuinfo, "flags").map(|flags| flags.split(' ').any(|flag| flag == "hypervisor"));
    if flag == Some(false) {
        return Some("none".to_owned());
    }
    let product =
        ["product_name", "sys_vendor"].iter().find_map(|file| root.text(format!("sys/class/dmi/id/{file}")));
    let hypervisor = root.text("sys/hypervisor/type");
    match flag {
        Some(_) => hypervisor.or(product).or_else(|| Some("a hypervisor".to_owned())),
        // Without the flag a product name alone proves nothing: bare machines have one too.
        None => hypervisor,
    }
}

pub(crate) fn container(root: &Root) -> Option<String> {
    if let Some(manager) = root.text("run/systemd/container") {
        return Some(manager);
    }
    let signs = [
        (".dockerenv", "docker"),
        ("run/.containerenv", "podman"),
        ("var/run/secrets/kubernetes.io", "kubernetes"),
    ];
    if let Some((_, name)) = signs.iter().find(|(path, _)| root.exists(path)) {
        return Some((*name).to_owned());
    }
    // The first process's environment carries `container=` by convention (systemd's container interface).
    if let Some(environ) = root.text("proc/1/environ")
        && let Some(name) = environ.split('\0').find_map(|entry| entry.strip_prefix("container="))
    {
        return Some(name.to_owned());
    }
    let groups = root.text("proc/1/cgroup")?;
    ["docker", "kubepods", "libpod", "containerd", "lxc"]
        .iter()
        .find(|name| groups.contains(**name))
        .map(|name| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{Facts, Limits, Mitigations, Sysctls, facts};
    use crate::cgroup::Limit;
    use crate::root::Fixture;
    #[cfg(feature = "serde")]
    use serde_json::Value;

    /// The parts of a small virtual machine that the facts are read from.
    const MACHINE: [(&str, &str); 20] = [
        ("proc/sys/kernel/osrelease", "6.1.0-test\n"),
        ("proc/sys/kernel/version", "#1 SMP\n"),
        ("proc/sys/kernel/arch", "x86_64\n"),
        ("proc/cpuinfo", "processor\t: 0\nmodel name\t: A Processor\nflags\t\t: fpu hypervisor sse\n"),
        ("proc/meminfo", "MemTotal: 2048 kB\nMemAvailable: 1024 kB\n"),
        ("proc/self/status", "Cpus_allowed_list:\t0-1\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters: 1\n"),
        (
            "proc/self/limits",
            "Limit  Soft Limit  Hard Limit  Units\nMax processes   100   unlimited  processes\n\
             Max open files  1024  4096  files\nMax locked memory  8388608  8388608  bytes\n",
        ),
        ("proc/sys/net/core/somaxconn", "4096\n"),
        ("proc/sys/net/ipv4/tcp_mem", "188\t251\t376\n"),
        ("proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n"),
        ("proc/sys/kernel/io_uring_disabled", "2\n"),
        ("proc/sys/kernel/io_uring_group", "-1\n"),
        ("proc/sys/kernel/perf_event_paranoid", "-1\n"),
        ("sys/devices/system/cpu/online", "0-3\n"),
        ("sys/devices/system/clocksource/clocksource0/current_clocksource", "kvm-clock\n"),
        ("sys/class/dmi/id/product_name", "Standard PC\n"),
        ("sys/devices/system/cpu/vulnerabilities/meltdown", "Not affected\n"),
        ("sys/devices/system/cpu/vulnerabilities/mds", "Vulnerable: no microcode\n"),
        ("sys/devices/system/cpu/vulnerabilities/retbleed", "Mitigation: Enhanced IBRS\n"),
        ("sys/devices/system/cpu/vulnerabilities/l1tf", "KVM: Unknown\n"),
    ];

    #[test]
    fn the_facts_of_a_laid_out_machine_are_read() {
        let facts = Facts::read(&Fixture::of(&MACHINE).root);
        assert_eq!(facts.kernel.as_deref(), Some("6.1.0-test"));
        assert_eq!((facts.arch.as_str(), facts.cpu_model.as_deref()), ("x86_64", Some("A Processor")));
        assert_eq!((facts.cpus_online, facts.affinity), (Some(4), Some(vec![0, 1])));
        assert_eq!(facts.cores, Some(vec![vec![0], vec![1]]));
        assert_eq!((facts.memory_total_bytes, facts.memory_available_bytes), (Some(2 << 20), Some(1 << 20)));
        assert_eq!(facts.virtualisation.as_deref(), Some("Standard PC"));
        assert_eq!(facts.clocksource.as_deref(), Some("kvm-clock"));
        assert_eq!((facts.seccomp_mode, facts.no_new_privs), (Some(2), Some(true)));
        assert_eq!(
            facts.limits,
            Limits {
                nofile_soft: Some(Limit::At(1024)),
                nofile_hard: Some(Limit::At(4096)),
                memlock_soft_bytes: Some(Limit::At(8 << 20)),
                memlock_hard_bytes: Some(Limit::At(8 << 20)),
                nproc_soft: Some(Limit::At(100)),
                nproc_hard: Some(Limit::Unlimited),
            }
        );
        assert_eq!(
            facts.sysctls,
            Sysctls {
                somaxconn: Some(4096),
                ip_local_port_range: Some([32_768, 60_999]),
                tcp_mem_pages: Some([188, 251, 376]),
                io_uring_disabled: Some(2),
                io_uring_group: Some(-1),
                perf_event_paranoid: Some(-1),
                ..Sysctls::default()
            }
        );
        assert_eq!(
            facts.mitigations,
            Some(Mitigations {
                mitigated: vec!["retbleed".into()],
                vulnerable: vec!["mds".into()],
                unknown: vec!["l1tf".into()],
                not_affected: 1,
            })
        );
    }

    /// Everything that can be hidden is `null`; only the architecture and the page size are this program's
    /// own.
    #[cfg(feature = "serde")]
    #[test]
    fn a_machine_that_shows_nothing_is_unknown_throughout() {
        fn known(path: &str, value: &Value, found: &mut Vec<String>) {
            match value {
                Value::Null => {}
                Value::Object(map) => {
                    map.iter().for_each(|(key, v)| known(&format!("{path}/{key}"), v, found))
                }
                _ => found.push(path.to_owned()),
            }
        }
        let facts = serde_json::to_value(Facts::read(&Fixture::of(&[]).root)).unwrap();
        let mut found = Vec::new();
        known("", &facts, &mut found);
        assert_eq!(found, ["/arch", "/page_bytes"]);
    }

    /// Each file in turn holds something no kernel would write.
    #[test]
    fn junk_in_any_file_is_survived() {
        let junk = [
            "",
            "\n",
            "-",
            ":",
            "\u{0}\u{fffd}",
            "99999999999999999999999",
            "a: b: c\n:\n\t:",
            "0-9999999999",
            "max",
        ];
        for nth in 0..MACHINE.len() {
            for text in junk {
                let mut files = MACHINE.to_vec();
                files[nth].1 = text;
                let facts = Facts::read(&Fixture::of(&files).root);
                if nth == 7 {
                    assert_eq!(facts.sysctls.somaxconn, None, "{text:?}");
                }
            }
        }
    }

    #[test]
    fn bare_metal_is_told_from_a_machine_that_hides_its_flags() {
        let virtualisation = |files: &[(&str, &str)]| Facts::read(&Fixture::of(files).root).virtualisation;
        let product = ("sys/class/dmi/id/product_name", "Laptop");
        assert_eq!(
            virtualisation(&[("proc/cpuinfo", "flags : fpu sse\n"), product]).as_deref(),
            Some("none")
        );
        assert_eq!(
            virtualisation(&[("proc/cpuinfo", "flags : hypervisor\n")]).as_deref(),
            Some("a hypervisor")
        );
        assert_eq!(virtualisation(&[("proc/cpuinfo", "Features : fp asimd\n"), product]), None);
        assert_eq!(virtualisation(&[("sys/hypervisor/type", "xen\n")]).as_deref(), Some("xen"));
    }

    #[test]
    fn a_container_is_known_by_its_signs() {
        let container = |files: &[(&str, &str)]| Facts::read(&Fixture::of(files).root).container;
        assert_eq!(container(&[("proc/1/cgroup", "0::/init.scope\n")]), None);
        assert_eq!(container(&[(".dockerenv", "")]).as_deref(), Some("docker"));
        assert_eq!(container(&[("run/.containerenv", "")]).as_deref(), Some("podman"));
        assert_eq!(container(&[("proc/1/environ", "PATH=/\0container=lxc\0")]).as_deref(), Some("lxc"));
        assert_eq!(container(&[("proc/1/cgroup", "1:cpu:/kubepods/x\n")]).as_deref(), Some("kubepods"));
    }

    #[test]
    fn this_machine_tells_its_kernel_memory_and_limits() {
        let facts = facts();
        assert!(facts.kernel.is_some() && facts.memory_total_bytes > Some(0), "{facts:?}");
        assert!(facts.limits.nofile_hard.is_some() && facts.affinity.is_some_and(|cpus| !cpus.is_empty()));
        assert!(facts.page_bytes.is_power_of_two());
    }
}
