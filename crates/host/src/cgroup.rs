//! The limits a container or service manager has set: CPU, memory and processes, in both generations of
//! cgroups.
//!
//! A limit of any ancestor binds, so the smallest on the way up is what counts. Start at [`CgroupLimits`].

use crate::root::Root;
#[cfg(feature = "serde")]
use serde::{Serialize, ser::Serializer};

/// A limit that may be absent. Serialised as the number, or as `"unlimited"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit<T> {
    /// No more than this.
    At(T),
    /// No limit. Greater than every number.
    Unlimited,
}

#[cfg(feature = "serde")]
impl<T: Serialize> Serialize for Limit<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Limit::At(value) => value.serialize(serializer),
            Limit::Unlimited => serializer.serialize_str("unlimited"),
        }
    }
}

/// What the control groups of this process allow. `None`: it could not be found out, as where the files are
/// masked.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize))]
pub struct CgroupLimits {
    /// `1`, `2`, or `hybrid` where both are mounted.
    pub version: Option<&'static str>,
    /// CPU time per time, in cores: 1.5 is 150 ms in every 100 ms.
    pub cpu_cores: Option<Limit<f64>>,
    /// Memory, bytes.
    pub memory_bytes: Option<Limit<u64>>,
    /// Processes and threads.
    pub pids: Option<Limit<u64>>,
}

impl CgroupLimits {
    /// Returns the limits of this process.
    ///
    /// # References
    /// cgroups(7); Documentation/admin-guide/cgroup-v2.rst and cgroup-v1 of the kernel.
    pub fn read(root: &Root) -> Self {
        let hierarchies = hierarchies(root);
        let unified = hierarchies.iter().any(|h| h.unified);
        let legacy = hierarchies.iter().any(|h| !h.unified);
        CgroupLimits {
            version: match (unified, legacy) {
                (true, true) => Some("hybrid"),
                (true, false) => Some("2"),
                (false, true) => Some("1"),
                (false, false) => None,
            },
            cpu_cores: smallest(root, &hierarchies, "cpu", |dir, unified| {
                if unified {
                    quota_v2(&root.text(format!("{dir}/cpu.max"))?)
                } else {
                    quota_v1(
                        &root.text(format!("{dir}/cpu.cfs_quota_us"))?,
                        &root.text(format!("{dir}/cpu.cfs_period_us"))?,
                    )
                }
            }),
            memory_bytes: smallest(root, &hierarchies, "memory", |dir, unified| {
                let file = if unified { "memory.max" } else { "memory.limit_in_bytes" };
                amount(&root.text(format!("{dir}/{file}"))?)
            }),
            pids: smallest(root, &hierarchies, "pids", |dir, _| {
                amount(&root.text(format!("{dir}/pids.max"))?)
            }),
        }
    }
}

/// One mounted hierarchy, and where this process stands in it.
struct Hierarchy {
    unified: bool,
    /// Controllers of a v1 hierarchy; a v2 hierarchy names its own in every directory.
    controllers: Vec<String>,
    mount: String,
    /// Directories below `mount`, from the process's own group up to the mount itself, which is `""`.
    way_up: Vec<String>,
}

/// Returns the smallest limit on the way up in the hierarchy that has the controller.
fn smallest<T: PartialOrd>(
    root: &Root,
    hierarchies: &[Hierarchy],
    controller: &str,
    limit_of: impl Fn(&str, bool) -> Option<Limit<T>>,
) -> Option<Limit<T>> {
    // A controller lives in one hierarchy at a time; v1, if it is there, took it away from v2.
    let legacy = hierarchies.iter().find(|h| h.controllers.iter().any(|c| c == controller));
    let hierarchy = legacy.or_else(|| {
        hierarchies.iter().find(|h| {
            h.unified
                && root
                    .text(format!("{}/cgroup.controllers", h.mount))
                    .is_some_and(|list| list.split_ascii_whitespace().any(|c| c == controller))
        })
    })?;
    let mut smallest: Option<Limit<T>> = None;
    for group in &hierarchy.way_up {
        let dir = format!("{}{group}", hierarchy.mount);
        if !root.is_dir(&dir) {
            continue;
        }
        // A group without the file sets no limit: the root has none, and neither has a child of a group that
        // does not delegate the controller. A file that exists but holds anything else is unknown.
        let limit = match limit_of(&dir, hierarchy.unified) {
            Some(limit) => limit,
            None if has_controller_file(root, &dir, controller) => return None,
            None => Limit::Unlimited,
        };
        smallest = Some(match smallest {
            Some(least) if least <= limit => least,
            _ => limit,
        });
    }
    smallest
}

fn has_controller_file(root: &Root, dir: &str, controller: &str) -> bool {
    let files: &[&str] = match controller {
        "cpu" => &["cpu.max", "cpu.cfs_quota_us"],
        "memory" => &["memory.max", "memory.limit_in_bytes"],
        _ => &["pids.max"],
    };
    files.iter().any(|file| root.exists(format!("{dir}/{file}")))
}

/// Mounted hierarchies from `mountinfo`, joined with this process's groups from `cgroup`.
fn hierarchies(root: &Root) -> Vec<Hierarchy> {
    let groups = root.text("proc/self/cgroup").unwrap_or_default();
    let mounts = root.text("proc/self/mountinfo").unwrap_or_default();
    mounts.lines().filter_map(|line| hierarchy(line, &groups)).collect()
}

/// `36 35 98:0 /root /mount options - cgroup source controllers` (proc_pid_mountinfo(5)).
fn hierarchy(line: &str, groups: &str) -> Option<Hierarchy> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(3);
    let (base, mount) = (unescape(left.next()?), unescape(left.next()?));
    let mut right = right.split(' ');
    let kind = right.next()?;
    let options = right.nth(1).unwrap_or_default();
    let unified = match kind {
        "cgroup2" => true,
        "cgroup" => false,
        _ => return None,
    };
    let controllers: Vec<String> =
        if unified { Vec::new() } else { options.split(',').map(str::to_owned).collect() };
    // `id:controllers:path`; the v2 line is `0::path` (cgroups(7)).
    let own = groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, names, path) = (parts.next()?, parts.next()?, parts.next()?);
        let ours = if unified {
            names.is_empty()
        } else {
            names.split(',').any(|n| !n.is_empty() && controllers.iter().any(|c| c == n))
        };
        ours.then_some(path)
    })?;
    // A bind mount shows a part of the tree, `base`; without a cgroup namespace the path still counts from
    // its true root. What does not lie below `base` cannot be walked, and the mount itself is then what binds
    // here.
    let base = base.trim_end_matches('/');
    let below = own.strip_prefix(base).filter(|rest| rest.is_empty() || rest.starts_with('/')).unwrap_or("");
    let mut way_up = Vec::new();
    let mut group = below.trim_end_matches('/');
    while !group.is_empty() && !group.contains("/..") {
        way_up.push(group.to_owned());
        group = &group[..group.rfind('/').unwrap_or(0)];
    }
    way_up.push(String::new());
    Some(Hierarchy { unified, controllers, mount, way_up })
}

/// mountinfo writes space, tab, newline and backslash as `\040` and the like.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

/// `max 100000` or `150000 100000`.
fn quota_v2(text: &str) -> Option<Limit<f64>> {
    let mut words = text.split_ascii_whitespace();
    let (quota, period) = (words.next()?, words.next().unwrap_or("100000"));
    if quota == "max" { Some(Limit::Unlimited) } else { cores_of(quota.parse().ok()?, period.parse().ok()?) }
}

/// Returns the limit of these two files. A quota of -1 is none.
fn quota_v1(quota: &str, period: &str) -> Option<Limit<f64>> {
    let quota: i64 = quota.parse().ok()?;
    if quota < 0 { Some(Limit::Unlimited) } else { cores_of(quota as u64, period.parse().ok()?) }
}

fn cores_of(quota_us: u64, period_us: u64) -> Option<Limit<f64>> {
    (period_us > 0).then(|| Limit::At(quota_us as f64 / period_us as f64))
}

/// v1 writes "no limit" as the largest multiple of the page size; nothing real is above 2^62.
const NO_LIMIT_FROM: u64 = 1 << 62;

fn amount(text: &str) -> Option<Limit<u64>> {
    if text == "max" {
        return Some(Limit::Unlimited);
    }
    let value: u64 = text.parse().ok()?;
    Some(if value >= NO_LIMIT_FROM { Limit::Unlimited } else { Limit::At(value) })
}

#[cfg(test)]
mod tests {
    use super::{CgroupLimits, Limit};
    use crate::root::Fixture;

    fn read(files: &[(&str, &str)]) -> CgroupLimits {
        CgroupLimits::read(&Fixture::of(files).root)
    }

    /// A v2 container as Docker makes it: a namespace of its own, so its group is the root of what it sees.
    const V2: [(&str, &str); 6] = [
        ("proc/self/cgroup", "0::/\n"),
        ("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw,nsdelegate\n"),
        ("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n"),
        ("sys/fs/cgroup/cpu.max", "150000 100000\n"),
        ("sys/fs/cgroup/memory.max", "536870912\n"),
        ("sys/fs/cgroup/pids.max", "max\n"),
    ];

    #[test]
    fn a_v2_container_shows_its_limits() {
        assert_eq!(
            read(&V2),
            CgroupLimits {
                version: Some("2"),
                cpu_cores: Some(Limit::At(1.5)),
                memory_bytes: Some(Limit::At(512 << 20)),
                pids: Some(Limit::Unlimited),
            }
        );
    }

    #[test]
    fn the_smallest_limit_on_the_way_up_binds() {
        let limits = read(&[
            ("proc/self/cgroup", "0::/system.slice/job.service\n"),
            ("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n"),
            ("sys/fs/cgroup/cgroup.controllers", "cpu memory pids\n"),
            ("sys/fs/cgroup/system.slice/memory.max", "1000\n"),
            ("sys/fs/cgroup/system.slice/pids.max", "max\n"),
            ("sys/fs/cgroup/system.slice/job.service/memory.max", "2000\n"),
            ("sys/fs/cgroup/system.slice/job.service/pids.max", "50\n"),
            ("sys/fs/cgroup/system.slice/other.service/pids.max", "1\n"),
        ]);
        assert_eq!(limits.memory_bytes, Some(Limit::At(1000)));
        assert_eq!(limits.pids, Some(Limit::At(50)));
        assert_eq!(limits.cpu_cores, Some(Limit::Unlimited), "delegated, and no group on the way sets it");
    }

    #[test]
    fn v1_hierarchies_are_read_each_for_itself() {
        let limits = read(&[
            ("proc/self/cgroup", "8:pids:/\n4:memory:/docker/abc\n1:cpu,cpuacct:/docker/abc\n0::/\n"),
            (
                "proc/self/mountinfo",
                "31 30 0:27 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n\
                 32 30 0:28 / /sys/fs/cgroup/cpu\\040acct ro - cgroup cgroup rw,cpu,cpuacct\n\
                 33 30 0:29 / /sys/fs/cgroup/pids ro - cgroup cgroup rw,pids\n\
                 34 30 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
            ),
            // Docker without a namespace: the group's path counts from the host's root, the mount shows its
            // part.
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/cpu acct/docker/abc/cpu.cfs_quota_us", "50000\n"),
            ("sys/fs/cgroup/cpu acct/docker/abc/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/cpu acct/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu acct/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/pids/tasks", ""),
            ("sys/fs/cgroup/unified/cgroup.controllers", "\n"),
        ]);
        assert_eq!(
            limits,
            CgroupLimits {
                version: Some("hybrid"),
                cpu_cores: Some(Limit::At(0.5)),
                memory_bytes: Some(Limit::Unlimited),
                pids: Some(Limit::Unlimited),
            }
        );
    }

    #[test]
    fn masked_or_senseless_files_are_unknown_not_unlimited() {
        assert_eq!(read(&[]), CgroupLimits::default());
        // Mounted, but everything under it masked.
        let limits = read(&V2[..2]);
        assert_eq!((limits.version, limits.cpu_cores, limits.memory_bytes), (Some("2"), None, None));
        for junk in ["", "x", "1 0", "-5", "max max max", "1e9 100000"] {
            let mut files = V2.to_vec();
            files[3].1 = junk;
            files[4].1 = junk;
            let limits = read(&files);
            if !junk.starts_with("max") {
                assert_eq!(limits.cpu_cores, None, "{junk:?}");
            }
            assert_eq!(limits.memory_bytes, None, "{junk:?}");
            assert_eq!(limits.pids, Some(Limit::Unlimited), "a neighbour is not touched");
        }
    }

    /// Lines that are cut, doubled, or point outside: none may panic, none may invent a limit.
    #[test]
    fn junk_in_the_kernels_lists_is_survived() {
        let mounts = [
            "",
            " - ",
            "1 2 3",
            "30 23 0:26 / /sys/fs/cgroup rw - cgroup2",
            "a b c d e - cgroup x",
            "\u{0}\u{fffd} - cgroup2 - -",
        ];
        for mountinfo in mounts {
            for cgroup in ["", "::", "0::", "0::/../../..", "0::relative", "0::/a/../../b", "4:memory"] {
                let limits = read(&[("proc/self/mountinfo", mountinfo), ("proc/self/cgroup", cgroup)]);
                assert_eq!((limits.cpu_cores, limits.memory_bytes, limits.pids), (None, None, None));
            }
        }
    }

    #[cfg(feature = "serde")]
    #[test]
    fn a_limit_is_written_as_its_number_or_as_unlimited() {
        let text = |limit: Limit<u64>| serde_json::to_string(&limit).ok();
        assert_eq!(text(Limit::At(5)).as_deref(), Some("5"));
        assert_eq!(text(Limit::Unlimited).as_deref(), Some("\"unlimited\""));
    }
}
