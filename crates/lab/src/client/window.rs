//! The measured window: clocks read at its exact edges, slower counters read just outside it. It may be of
//! several pieces, with the turns of others in between; then each piece has its edges, and what came in them
//! is added up.
//!
//! CPU time, the client's own waiting and steal are read at the edges, where they cost microseconds. The
//! split into user and system time, context switches and memory need one file per thread of the server, which
//! can take tens of milliseconds, so they are read in the warm-up and after the window and tied to the
//! client's own count of answers at those moments.
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
    /// Requests in flight: what was waited for in it, by its length. Of a wait that crosses an edge the part
    /// within.
    pub in_flight: Option<f64>,
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
    /// Resident memory of the server and its descendants at the end, by turns at the end of the first, bytes.
    pub rss_bytes: Option<u64>,
    /// What it has grown by since before the connections, bytes; 0 if it shrank.
    pub rss_growth_bytes: Option<u64>,
    /// Growth of the kernel's memory (slab, stacks, page tables) since before the connections, whole machine,
    /// bytes; unknown if it shrank.
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

/// What came between the edges: of the whole window at once, or piece by piece.
#[derive(Debug)]
pub(super) struct Pieces {
    time: Duration,
    completed: u64,
    server: Option<Duration>,
    client: Option<Duration>,
    client_wait_ns: Option<u64>,
    machine: Option<MachineTimes>,
    latencies: Histogram,
    /// What was waited for, and how long that was looked at.
    awaited_ns: f64,
    watched: Duration,
    memory: Memory,
    /// Before the second turn and after the last.
    rests: Option<(Rest, Rest)>,
}

/// What a client took in of a piece.
#[derive(Debug)]
pub(super) struct Taken<'a> {
    /// When it began to take latencies.
    pub(super) since: Instant,
    /// What was on its way then, and for how long it had waited.
    pub(super) before: &'a [u64],
    /// Of what was answered, all of its time.
    pub(super) latencies: &'a Histogram,
    /// How long what is on its way has waited.
    pub(super) waiting: &'a [u64],
    /// Requests that each of these waits stands for.
    pub(super) depth: u32,
}

impl Taken<'_> {
    /// Returns what was waited for since then, nanoseconds.
    fn awaited_ns(&self) -> f64 {
        let sum = |waits: &[u64]| waits.iter().map(|ns| *ns as f64).sum::<f64>() * f64::from(self.depth);
        let answered = self.latencies.mean_ns().unwrap_or(0.0) * self.latencies.count() as f64;
        answered + sum(self.waiting) - sum(self.before)
    }
}

/// The server at rest: its CPU time, when so many of its answers had been taken in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rest {
    cpu: Duration,
    answers: u64,
}

/// What server and connections hold.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Memory {
    rss_bytes: Option<u64>,
    rss_growth_bytes: Option<u64>,
    kernel_bytes: Option<u64>,
}

impl Default for Pieces {
    fn default() -> Pieces {
        Pieces {
            time: Duration::ZERO,
            completed: 0,
            server: Some(Duration::ZERO),
            client: Some(Duration::ZERO),
            client_wait_ns: Some(0),
            machine: Some(MachineTimes::ZERO),
            latencies: Histogram::new(),
            awaited_ns: 0.0,
            watched: Duration::ZERO,
            memory: Memory::default(),
            rests: None,
        }
    }
}

impl Pieces {
    /// Adds what came between two edges: `completed` answers with these latencies, and requests that still
    /// wait, for so long. A clock that could not be read at one edge is unknown for the whole.
    ///
    /// Some requests are on their way at every edge, and most of them have waited for less than they will
    /// take. One that has waited for longer than 99 of 100 answers took is among the slowest whenever it is
    /// answered: it counts with that time, or a server that stalls would lose its slowest answers.
    pub(super) fn add(&mut self, first: &Edge, last: &Edge, completed: u64, taken: &Taken<'_>) {
        let Taken { latencies, waiting, .. } = *taken;
        self.time += last.at - first.at;
        self.awaited_ns += taken.awaited_ns();
        self.watched += last.at.saturating_duration_since(taken.since);
        self.completed += completed;
        let grown = |first: Option<Duration>, last: Option<Duration>| last?.checked_sub(first?);
        self.server = self.server.zip(grown(first.server, last.server)).map(|(sum, more)| sum + more);
        self.client = self.client.zip(grown(first.client, last.client)).map(|(sum, more)| sum + more);
        let waited = first.client_wait_ns.zip(last.client_wait_ns).and_then(|(a, b)| b.checked_sub(a));
        self.client_wait_ns = self.client_wait_ns.zip(waited).map(|(sum, more)| sum + more);
        let machine = first.machine.zip(last.machine).and_then(|(first, last)| last.since(&first));
        self.machine = self.machine.zip(machine).map(|(sum, more)| sum.plus(more));
        self.latencies.add(latencies);
        let slow_ns = latencies.quantile_ns(0.99).unwrap_or(0);
        waiting.iter().filter(|ns| **ns > slow_ns).for_each(|ns| self.latencies.record(*ns));
    }

    /// Adds what memory is held, once: by turns, at the end of the first, before others make their
    /// connections.
    pub(super) fn hold(&mut self, memory: impl FnOnce() -> Memory) {
        if self.memory.rss_bytes.is_none() {
            self.memory = memory();
        }
    }

    /// Adds the server at rest between two turns, all that had been asked answered and not taken in. From the
    /// first such rest to the last its CPU time is exact, and that for whole turns with all that they begin
    /// and leave behind.
    pub(super) fn rest(&mut self, rest: Option<Rest>) {
        if let Some(rest) = rest {
            self.rests = Some((self.rests.map_or(rest, |(first, _)| first), rest));
        }
    }

    /// Returns whether it was seen at rest before.
    pub(super) fn has_rested(&self) -> bool {
        self.rests.is_some()
    }

    /// CPU time of the server for the answers of all pieces.
    fn server_cpu(&self) -> Option<Duration> {
        let Some((first, last)) = self.rests else { return self.server };
        let answers = last.answers.checked_sub(first.answers).filter(|answers| *answers > 0)?;
        Some(last.cpu.checked_sub(first.cpu)?.mul_f64(self.completed as f64 / answers as f64))
    }

    /// Returns how long they are together.
    pub(super) fn time(&self) -> Duration {
        self.time
    }
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

    /// Returns the server when it has come to rest, or when `patience` is over.
    ///
    /// The kernel brings the clock of another process up to date when that one goes to sleep, and while it
    /// runs only at the ticks of its CPU, 1 to 10 ms apart (`thread_group_cputime` in
    /// `kernel/sched/cputime.c`). At both ends of a second that is nothing; at those of a turn it would be a
    /// twentieth, and more for servers that seldom sleep.
    pub(super) fn rest(&self, answers: u64, patience: Duration) -> Option<Rest> {
        /// Longer than a tick: a server was asleep if its clock has not moved meanwhile.
        const STILL: Duration = Duration::from_millis(11);
        let until = Instant::now() + patience;
        let mut cpu = self.server_cpu()?;
        loop {
            std::thread::sleep(STILL);
            let now = self.server_cpu()?;
            if now == cpu || Instant::now() >= until {
                return Some(Rest { cpu: now, answers });
            }
            cpu = now;
        }
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

    /// Returns what is held now, and since before the connections.
    pub(super) fn memory(&self) -> Memory {
        let rss_bytes = resident(&self.pids);
        Memory {
            rss_bytes,
            rss_growth_bytes: rss_bytes.zip(self.rss_before).map(|(now, before)| now.saturating_sub(before)),
            // Where it shrank, what went meanwhile was more than what came, and how much came is not known.
            kernel_bytes: kernel_bytes()
                .zip(self.kernel_before)
                .and_then(|(now, before)| now.checked_sub(before)),
        }
    }

    /// Puts the window together.
    pub(super) fn window(&self, pieces: &Pieces, (early, late): (&Slow, &Slow)) -> Window {
        let latencies = &pieces.latencies;
        let split = early.split.zip(late.split).map(|(early, late)| late.since(&early));
        let answers_between = late.answers.saturating_sub(early.answers);
        let user_share = split.and_then(|split| {
            let (user, sys) = (split.user_ns? as f64, split.sys_ns? as f64);
            (user + sys > 0.0).then(|| user / (user + sys))
        });
        let Memory { rss_bytes, rss_growth_bytes, kernel_bytes } = pieces.memory;
        Window {
            duration_ns: nanos(pieces.time),
            completed: pieces.completed,
            mean_ns: latencies.mean_ns(),
            in_flight: latencies.mean_ns().and_then(|_| {
                let watched_ns = pieces.watched.as_nanos() as f64;
                (watched_ns > 0.0).then(|| pieces.awaited_ns / watched_ns)
            }),
            p50_ns: latencies.quantile_ns(0.50),
            p99_ns: latencies.quantile_ns(0.99),
            histogram: latencies.to_base64(),
            server_cpu_ns: pieces.server_cpu().map(nanos),
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
            client_cpu_ns: pieces.client.map(nanos),
            client_wait_ns: pieces.client_wait_ns,
            steal_share: pieces.machine.and_then(|times| times.steal_share()),
            rss_bytes,
            rss_growth_bytes,
            kernel_bytes,
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

/// Returns what the kernel holds for connections and threads, whole machine: slab, stacks, page tables.
fn kernel_bytes() -> Option<u64> {
    let memory = memory::kernel();
    Some(memory.slab_bytes? + memory.kernel_stack_bytes? + memory.page_tables_bytes?)
}

/// Resident memory of all these processes; `None` if one cannot be read.
fn resident(pids: &[u32]) -> Option<u64> {
    let sizes: Option<Vec<u64>> = pids.iter().map(|pid| memory::process(*pid).ok()?.rss_bytes).collect();
    sizes.filter(|sizes| !sizes.is_empty()).map(|sizes| sizes.iter().sum())
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

/// Returns a process and all its descendants, itself first: `/proc/PID/task/TID/children`
/// (CONFIG_PROC_CHILDREN). Where the kernel has no such file, the process alone.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_waits_at_the_end_counts_if_it_is_among_the_slowest() {
        let (gauges, mut pieces) = (Gauges::default(), Pieces::default());
        let (first, last) = (gauges.edge(), gauges.edge());
        let mut latencies = Histogram::new();
        latencies.record_n(1_000_000, 1000);
        let waiting = [1_000, 500_000, 4_000_000_000];
        let none = Histogram::new();
        let taken =
            |latencies| Taken { since: first.at, before: &[], latencies, waiting: &waiting, depth: 1 };
        pieces.add(&first, &last, 1000, &taken(&latencies));
        assert_eq!(pieces.latencies.count(), 1001);
        assert!(pieces.latencies.quantile_ns(1.0) >= Some(3_990_000_000));
        // Where nothing was answered, nothing but the waits is known.
        pieces.add(&first, &last, 0, &taken(&none));
        assert_eq!(pieces.latencies.count(), 1004);
    }

    /// Two connections for a second: one is answered every millisecond, the other waits across an edge.
    #[test]
    fn what_waits_across_an_edge_is_in_flight_for_the_part_within() {
        let gauges = Gauges::default();
        let first = gauges.edge();
        let last = Edge { at: first.at + Duration::from_secs(1), ..gauges.edge() };
        let (ms, half_s) = (1_000_000, 500_000_000);
        let waits: [(&[u64], u64, &[u64]); 3] = [
            // Since 1.5 s before the window, until its middle.
            (&[0, 3 * half_s], 4 * half_s, &[0, 0]),
            // Since its middle, until after its end.
            (&[0, 0], 0, &[0, half_s]),
            // Since 1.5 s before it, until after its end.
            (&[0, 3 * half_s], 0, &[0, 5 * half_s]),
        ];
        for (before, stalled, waiting) in waits {
            let mut latencies = Histogram::new();
            let quick_s = 2.0 - (stalled as f64 / 1e9 - before[1] as f64 / 1e9 + waiting[1] as f64 / 1e9);
            latencies.record_n(ms, (quick_s * 1e3).round() as u64);
            if stalled > 0 {
                latencies.record(stalled);
            }
            let mut pieces = Pieces::default();
            let taken = Taken { since: first.at, before, latencies: &latencies, waiting, depth: 1 };
            pieces.add(&first, &last, latencies.count(), &taken);
            let slow = || gauges.slow(0);
            let in_flight = gauges.window(&pieces, (&slow(), &slow())).in_flight;
            let is_two = in_flight.is_some_and(|count| (count - 2.0).abs() < 0.01);
            assert!(is_two, "{in_flight:?}: {before:?}, {stalled}, {waiting:?}");
        }
    }
}
