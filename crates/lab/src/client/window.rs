//! The measured window: clocks read at its exact edges, slower counters read just outside it.
//!
//! CPU time, the client's own waiting and steal are read at the edges, where they cost microseconds. The split
//! into user and system time, context switches and memory need one file per thread of the server, which can
//! take tens of milliseconds, so they are read in the warm-up and after the window and tied to the client's
//! own count of answers at those moments.
//!
//! Start at [`Window`].

use ringroad_host::cpu::{self, CpuSplit, MachineTimes, ProcessClock};
use ringroad_host::memory;
use ringroad_host::syscalls::Counter;
use ringroad_measure::Histogram;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

/// What was measured between the edges.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// Its real length, nanoseconds.
    pub duration_ns: u64,
    /// Answers in it.
    pub completed: u64,
    /// Mean latency, nanoseconds.
    pub mean_ns: Option<f64>,
    /// Median latency, nanoseconds.
    pub p50_ns: Option<u64>,
    /// 99th percentile, nanoseconds.
    pub p99_ns: Option<u64>,
    /// All latencies: HDR V2, base64, nanoseconds.
    pub histogram: String,
    /// CPU time of the server and its descendants, nanoseconds.
    pub server_cpu_ns: Option<u64>,
    /// How many threads of the server carried the load, those that idle not counted.
    pub server_carriers: Option<f64>,
    /// User part of the server's CPU time, 0 to 1.
    pub server_user_share: Option<f64>,
    /// Context switches of the server per answer.
    pub switches_per_request: Option<f64>,
    /// CPU time of this client, nanoseconds.
    pub client_cpu_ns: Option<u64>,
    /// Time this client was ready but waited for a CPU, nanoseconds.
    pub client_wait_ns: Option<u64>,
    /// Steal, share of the time of the CPUs that server and client may run on.
    pub steal_share: Option<f64>,
    /// Resident memory of the server and its descendants at the end, bytes.
    pub rss_bytes: Option<u64>,
    /// What it has grown by since before the connections, bytes; 0 if it shrank.
    pub rss_growth_bytes: Option<u64>,
    /// Growth of the kernel's memory (slab, stacks, page tables) since before the connections, whole machine, bytes;
    /// unknown if it shrank.
    pub kernel_bytes: Option<u64>,
    /// System calls of the server per answer, counted by the kernel after the window.
    pub syscalls_per_request: Option<f64>,
    /// Why system calls were not counted.
    pub syscalls_unknown: Option<String>,
}

/// Everything that is read about server, client and machine.
#[derive(Debug, Default)]
pub(super) struct Gauges {
    pids: Vec<u32>,
    clocks: Vec<ProcessClock>,
    /// Where server and client may run.
    cpus: Vec<usize>,
    kernel_before: Option<u64>,
    rss_before: Option<u64>,
}

/// Clocks at one edge.
#[derive(Debug)]
pub(super) struct Edge {
    at: Instant,
    server: Option<Duration>,
    client: Option<Duration>,
    client_wait_ns: Option<u64>,
    machine: Option<MachineTimes>,
}

/// Slow counters, and how many answers there had been.
#[derive(Debug)]
pub(super) struct Slow {
    split: Option<CpuSplit>,
    /// CPU time of each thread of the server.
    threads: BTreeMap<u32, u64>,
    answers: u64,
}

/// System calls being counted.
#[derive(Debug)]
pub(super) struct SyscallWindow {
    counters: Vec<Counter>,
    answers: u64,
    before: u64,
}

impl Gauges {
    /// For the server `pid`, before any connection is made.
    pub(super) fn before_connections(pid: Option<u32>) -> Gauges {
        let rss_before = pid.and_then(|pid| resident(&family(pid)));
        Gauges { kernel_before: kernel_bytes(), rss_before, ..Gauges::default() }
    }

    /// Finds the server's processes; servers with workers have them all by the end of the warm-up.
    pub(super) fn find(&mut self, pid: Option<u32>) {
        self.pids = pid.map(family).unwrap_or_default();
        self.clocks = self.pids.iter().filter_map(|pid| ProcessClock::of(*pid).ok()).collect();
        let server = self.pids.iter().filter_map(|pid| i32::try_from(*pid).ok().and_then(Pid::from_raw));
        let sets = server.map(Some).chain([None]).filter_map(|pid| sched_getaffinity(pid).ok());
        self.cpus = sets.flat_map(|set| (0..CpuSet::MAX_CPU).filter(move |cpu| set.is_set(*cpu))).collect();
    }

    pub(super) fn edge(&self) -> Edge {
        // Split and machine first at the start and last at the end would be tighter by their own 100 µs; one
        // order for both edges makes their cost cancel out instead.
        let own = cpu::split(std::process::id()).ok();
        let machine = cpu::machine_of(&self.cpus).ok();
        let client = ProcessClock::own().read().ok();
        Edge {
            server: self.server_cpu(),
            client,
            client_wait_ns: own.and_then(|split| split.wait_ns),
            machine,
            at: Instant::now(),
        }
    }

    fn server_cpu(&self) -> Option<Duration> {
        if self.clocks.is_empty() || self.clocks.len() != self.pids.len() {
            return None;
        }
        self.clocks.iter().map(|clock| clock.read().ok()).sum()
    }

    pub(super) fn slow(&self, answers: u64) -> Slow {
        let splits: Option<Vec<CpuSplit>> = self.pids.iter().map(|pid| cpu::split(*pid).ok()).collect();
        let threads = self.pids.iter().filter_map(|pid| cpu::threads(*pid).ok()).flatten().collect();
        Slow { split: splits.filter(|s| !s.is_empty()).map(|s| sum(&s)), threads, answers }
    }

    /// Starts counting system calls.
    pub(super) fn count_syscalls(&self, answers: u64) -> io::Result<SyscallWindow> {
        if self.pids.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "no process of the server is known"));
        }
        let counters = self.pids.iter().map(|pid| Counter::attach(*pid)).collect::<io::Result<Vec<_>>>()?;
        let before = counters.iter().map(Counter::read).sum::<io::Result<u64>>()?;
        Ok(SyscallWindow { counters, answers, before })
    }

    /// Puts the window together. `completed` answers came between the edges.
    pub(super) fn window(
        &self,
        (first, last): (&Edge, &Edge),
        (early, late): (&Slow, &Slow),
        completed: u64,
        latencies: &Histogram,
        with_memory: bool,
    ) -> Window {
        let split = early.split.zip(late.split).map(|(early, late)| late.since(&early));
        let answers_between = late.answers.saturating_sub(early.answers);
        let user_share = split.and_then(|split| {
            let (user, sys) = (split.user_ns? as f64, split.sys_ns? as f64);
            (user + sys > 0.0).then(|| user / (user + sys))
        });
        let rss_bytes = if with_memory { resident(&self.pids) } else { None };
        Window {
            duration_ns: nanos(last.at - first.at),
            completed,
            mean_ns: latencies.mean_ns(),
            p50_ns: latencies.quantile_ns(0.50),
            p99_ns: latencies.quantile_ns(0.99),
            histogram: latencies.to_base64(),
            server_cpu_ns: grown(first.server, last.server),
            server_carriers: cpu::carried_by(
                late.threads
                    .iter()
                    .map(|(thread, ns)| ns.saturating_sub(early.threads.get(thread).copied().unwrap_or(0))),
            )
            // Where the kernel hides the times of threads, each may be one that works.
            .or_else(|| late.split.map(|split| f64::from(split.threads))),
            server_user_share: user_share,
            switches_per_request: split
                .and_then(|split| split.switches())
                .filter(|_| answers_between > 0)
                .map(|switches| switches as f64 / answers_between as f64),
            client_cpu_ns: grown(first.client, last.client),
            client_wait_ns: first
                .client_wait_ns
                .zip(last.client_wait_ns)
                .and_then(|(first, last)| last.checked_sub(first)),
            steal_share: first
                .machine
                .zip(last.machine)
                .and_then(|(first, last)| last.steal_share_since(&first)),
            rss_bytes,
            rss_growth_bytes: rss_bytes.zip(self.rss_before).map(|(now, before)| now.saturating_sub(before)),
            // Where it shrank, what went meanwhile was more than what came, and how much came is not known.
            kernel_bytes: if with_memory {
                kernel_bytes().zip(self.kernel_before).and_then(|(now, before)| now.checked_sub(before))
            } else {
                None
            },
            syscalls_per_request: None,
            syscalls_unknown: None,
        }
    }
}

impl SyscallWindow {
    /// Ends the count: system calls per answer.
    pub(super) fn finish(self, answers: u64) -> io::Result<f64> {
        let calls = self.counters.iter().map(Counter::read).sum::<io::Result<u64>>()? - self.before;
        let answered = answers - self.answers;
        if answered == 0 {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer came while they were counted"));
        }
        Ok(calls as f64 / answered as f64)
    }
}

/// What the kernel holds for connections and threads, whole machine: slab, stacks, page tables.
fn kernel_bytes() -> Option<u64> {
    let memory = memory::kernel();
    Some(memory.slab_bytes? + memory.kernel_stack_bytes? + memory.page_tables_bytes?)
}

/// Resident memory of all these processes; `None` if one cannot be read.
fn resident(pids: &[u32]) -> Option<u64> {
    let sizes: Option<Vec<u64>> = pids.iter().map(|pid| memory::process(*pid).ok()?.rss_bytes).collect();
    sizes.filter(|sizes| !sizes.is_empty()).map(|sizes| sizes.iter().sum())
}

fn grown(first: Option<Duration>, last: Option<Duration>) -> Option<u64> {
    last?.checked_sub(first?).map(nanos)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn sum(splits: &[CpuSplit]) -> CpuSplit {
    let total = |field: fn(&CpuSplit) -> Option<u64>| splits.iter().map(field).sum::<Option<u64>>();
    CpuSplit {
        user_ns: total(|s| s.user_ns),
        sys_ns: total(|s| s.sys_ns),
        wait_ns: total(|s| s.wait_ns),
        voluntary_switches: total(|s| s.voluntary_switches),
        involuntary_switches: total(|s| s.involuntary_switches),
        threads: splits.iter().map(|s| s.threads).sum(),
    }
}

/// A process and all its descendants, itself first: `/proc/PID/task/TID/children` (CONFIG_PROC_CHILDREN).
/// Where the kernel has no such file, the process alone.
pub(crate) fn family(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    let mut next = 0;
    while let Some(&parent) = all.get(next) {
        next += 1;
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{parent}/task")) else { continue };
        for task in tasks.flatten() {
            let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            for child in children.split_ascii_whitespace().filter_map(|word| word.parse().ok()) {
                if !all.contains(&child) {
                    all.push(child);
                }
            }
        }
    }
    all
}
