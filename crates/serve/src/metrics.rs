//! What is counted, and how it is told: Prometheus' text form, with the names its users know.
//!
//! Each worker is the only one to write its counts, so counting is a load and a store; whoever is asked adds them up.

use crate::service::Shared;
use ringroad_http::Counters;
use std::fmt::{Display, Write};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

/// A count that one thread writes.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, more: u64) {
        // Relaxed: each count stands for itself.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Upper bounds of the histogram's buckets, in seconds.
const BOUNDS: [f64; 16] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

const FIRST_STATUS: usize = 100;
const STATUSES: usize = 500;

/// One worker's counts.
#[derive(Debug)]
pub(crate) struct Counts {
    /// By status, from 100 on.
    responses: Box<[Count]>,
    /// By bound; the last is without one.
    took: [Count; BOUNDS.len() + 1],
    took_ns: Count,
    body_bytes: Count,
    pub(crate) memory_hits: Count,
    pub(crate) memory_misses: Count,
    pub(crate) faults: Count,
}

impl Counts {
    pub(crate) fn new() -> Counts {
        Counts {
            responses: (0..STATUSES).map(|_| Count::default()).collect(),
            took: Default::default(),
            took_ns: Count::default(),
            body_bytes: Count::default(),
            memory_hits: Count::default(),
            memory_misses: Count::default(),
            faults: Count::default(),
        }
    }

    pub(crate) fn answered(&self, status: u16, took: Duration, bytes: u64) {
        if let Some(count) = self.responses.get(usize::from(status).wrapping_sub(FIRST_STATUS)) {
            count.add(1);
        }
        let seconds = took.as_secs_f64();
        let bucket = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len());
        if let Some(count) = self.took.get(bucket) {
            count.add(1);
        }
        self.took_ns.add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        self.body_bytes.add(bytes);
    }
}

/// Writes families of samples.
#[derive(Default)]
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string does not fail; here and below.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        let _ = match labels {
            "" => writeln!(self.0, "{name} {value}"),
            labels => writeln!(self.0, "{name}{{{labels}}} {value}"),
        };
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(name, "", value);
    }

    fn several(&mut self, name: &str, kind: &str, help: &str, samples: &[(String, u64)]) {
        self.family(name, kind, help);
        for (labels, value) in samples {
            self.sample(name, labels, value);
        }
    }
}

/// A label's value.
fn label(name: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{name}=\"{value}\"")
}

/// Everything, as Prometheus reads it.
pub(crate) fn text(shared: &Shared) -> String {
    let mut out = Text::default();
    let members = shared.members.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let sum = |of: fn(&Counts) -> &Count| members.iter().map(|counts| of(counts).get()).sum::<u64>();

    out.family("ringroad_build_info", "gauge", "Constant 1, labelled with the version.");
    out.sample("ringroad_build_info", &label("version", env!("CARGO_PKG_VERSION")), 1);
    out.family(
        "ringroad_driver_info",
        "gauge",
        "Constant 1, labelled with the driver and why it was chosen.",
    );
    let (driver, why) = (shared.choice.driver().to_string(), shared.choice.why());
    out.sample("ringroad_driver_info", &[label("driver", &driver), label("why", &why)].join(","), 1);

    let mut by_status = Vec::new();
    for at in 0..STATUSES {
        let count: u64 = members.iter().filter_map(|counts| counts.responses.get(at)).map(Count::get).sum();
        if count > 0 {
            by_status.push((label("code", &(at + FIRST_STATUS).to_string()), count));
        }
    }
    out.several(
        "ringroad_http_requests_total",
        "counter",
        "Requests answered by a route, by status.",
        &by_status,
    );

    const TOOK: &str = "ringroad_http_request_duration_seconds";
    out.family(
        TOOK,
        "histogram",
        "From a request's head to its answer, or to the end of one that is a stream.",
    );
    let mut below = 0;
    for (at, bound) in BOUNDS.iter().map(f64::to_string).chain(["+Inf".to_owned()]).enumerate() {
        below += members.iter().filter_map(|counts| counts.took.get(at)).map(Count::get).sum::<u64>();
        out.sample(&format!("{TOOK}_bucket"), &label("le", &bound), below);
    }
    out.sample(&format!("{TOOK}_sum"), "", sum(|counts| &counts.took_ns) as f64 / 1e9);
    out.sample(&format!("{TOOK}_count"), "", below);
    out.one(
        "ringroad_http_response_body_bytes_total",
        "counter",
        "Bytes of bodies, as the access log counts them.",
        sum(|counts| &counts.body_bytes),
    );
    out.one(
        "ringroad_http_faults_total",
        "counter",
        "Requests that failed on this side or behind it (the log says why).",
        sum(|counts| &counts.faults),
    );
    out.one("ringroad_file_memory_hits_total", "counter", "Files sent from memory.", sum(|c| &c.memory_hits));
    out.one("ringroad_file_memory_misses_total", "counter", "Files opened.", sum(|c| &c.memory_misses));

    listeners(&mut out, shared);
    out.one(
        "ringroad_access_log_dropped_lines_total",
        "counter",
        "Lines of the access log that could not be written.",
        shared.log_dropped(),
    );
    let reloads = &shared.reloads;
    out.several(
        "ringroad_config_reloads_total",
        "counter",
        "Times the configuration was read again, by whether it was taken.",
        &[
            (label("result", "taken"), reloads.taken.load(Ordering::Relaxed)),
            (label("result", "refused"), reloads.refused.load(Ordering::Relaxed)),
        ],
    );
    process(&mut out, shared);
    out.0
}

/// Reads one number of a listener's counters.
type Read = fn(&Counters) -> u64;

/// What the library counts for each address.
fn listeners(out: &mut Text, shared: &Shared) {
    let stats = shared.stats.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let counters: Vec<_> =
        stats.iter().map(|(listen, stats)| (label("listen", listen), stats.counters())).collect();
    let all = |read: Read| counters.iter().map(|(name, of)| (name.clone(), read(of))).collect::<Vec<_>>();
    let families: [(&str, &str, &str, Read); 10] = [
        ("ringroad_http_connections", "gauge", "Connections open now.", |c| c.connections),
        ("ringroad_http_connections_accepted_total", "counter", "Connections accepted.", |c| c.accepted),
        ("ringroad_http_connections_closed_total", "counter", "Connections ended.", |c| c.closed),
        ("ringroad_http_received_bytes_total", "counter", "Bytes received.", |c| c.bytes_in),
        ("ringroad_http_sent_bytes_total", "counter", "Bytes sent.", |c| c.bytes_out),
        (
            "ringroad_http_limits_hit_total",
            "counter",
            "Requests that the protocol or a limit refused.",
            |c| c.refused,
        ),
        (
            "ringroad_http_timeouts_total",
            "counter",
            "Connections ended because something took too long.",
            |c| c.timed_out,
        ),
        (
            "ringroad_http_accept_pauses_total",
            "counter",
            "Times accepting paused at the limit of connections.",
            |c| c.accept_paused,
        ),
        (
            "ringroad_http_files_cut_total",
            "counter",
            "Files that ended before what was announced of them was sent.",
            |c| c.files_cut,
        ),
        ("ringroad_http_panics_total", "counter", "Requests whose handler panicked.", |c| c.panics),
    ];
    for (name, kind, help, read) in families {
        out.several(name, kind, help, &all(read));
    }
    out.family(
        "ringroad_http_responses_total",
        "counter",
        "Responses of all kinds, refusals included, by class.",
    );
    for (name, of) in &counters {
        for (class, count) in ["1xx", "2xx", "3xx", "4xx", "5xx"].iter().zip(of.responses) {
            out.sample("ringroad_http_responses_total", &format!("{name},{}", label("class", class)), count);
        }
    }
    type EngineRead = fn(&ringroad_engine::Counters) -> u64;
    let engine: [(&str, &str, EngineRead); 12] = [
        ("system_calls", "System calls made by the driver.", |e| e.system_calls),
        ("waits", "Waits for the kernel.", |e| e.waits),
        ("operations_at_once", "Operations answered without waiting.", |e| e.answered_at_once),
        ("operations_submitted", "Operations handed to the driver.", |e| e.submitted),
        ("operations_completed", "Results of those.", |e| e.completed),
        ("queue_full", "Times the submission queue was full.", |e| e.queue_full),
        ("queue_overflows", "Times completions overflowed their queue.", |e| e.overflows),
        ("buffers_empty", "Receives that found no buffer.", |e| e.ring_empty),
        ("zero_copy_sends", "Sends from where the bytes lie.", |e| e.zero_copy_sends),
        ("zero_copy_copied", "Of these, those the kernel copied all the same.", |e| e.zero_copy_copied),
        ("accept_paused", "Times accepting paused for want of descriptors.", |e| e.accept_parked),
        ("polls", "Tasks polled.", |e| e.polls),
    ];
    for (what, help, read) in engine {
        let name = format!("ringroad_engine_{what}_total");
        out.family(&name, "counter", help);
        for (listen, of) in &counters {
            for (worker, of) in of.engine.iter().enumerate() {
                out.sample(&name, &format!("{listen},{}", label("worker", &worker.to_string())), read(of));
            }
        }
    }
}

/// What every exporter tells of its process.
fn process(out: &mut Text, shared: &Shared) {
    let started = shared.started.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    out.one("process_start_time_seconds", "gauge", "When it began, since 1970.", started);
    if let Ok(clock) = ringroad_host::cpu::ProcessClock::own().read() {
        out.one("process_cpu_seconds_total", "counter", "CPU time of all threads.", clock.as_secs_f64());
    }
    let memory = ringroad_host::memory::process(std::process::id()).ok().and_then(|memory| memory.rss_bytes);
    if let Some(bytes) = memory {
        out.one("process_resident_memory_bytes", "gauge", "Memory in use.", bytes);
    }
    if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
        // One is the folder itself.
        out.one("process_open_fds", "gauge", "Descriptors open.", open.count().saturating_sub(1));
    }
    if let Some(most) = rustix::process::getrlimit(rustix::process::Resource::Nofile).current {
        out.one("process_max_fds", "gauge", "Descriptors it may have.", most);
    }
}
