//! Counters and histograms of applications, for Prometheus.

use crate::pool::Pool;
use crate::status::TasksStatus;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one application.
#[derive(Debug, Default)]
pub struct Counts {
    /// Answers by the first digit of their status.
    pub answers: [AtomicU64; 6],
    /// Time until each began.
    pub took: Times,
    /// Time that requests waited for a worker, where they had to.
    pub queue: Times,
    /// Requests that got no worker, by [`Rejected`].
    rejected: [AtomicU64; 4],
    /// Requests that were repeated.
    pub retries: AtomicU64,
    /// Requests that were cancelled: the client left, or the answer came too late.
    pub aborted: AtomicU64,
    /// Requests that took too long.
    pub timeouts: AtomicU64,
}

/// Why a request got no worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejected {
    /// The queue is full.
    Full,
    /// The request waited for the longest time that is allowed.
    Late,
    /// No worker can be started.
    NoWorker,
    /// The application stops.
    Stopping,
}

impl Counts {
    pub(crate) fn reject(&self, why: Rejected) {
        if let Some(count) = self.rejected.get(why as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Upper ends of the buckets of [`Times`], in seconds; above the last one is another.
const ENDS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// Times, counted by length.
#[derive(Debug, Default)]
pub struct Times {
    counts: [AtomicU64; ENDS.len() + 1],
    sum_ns: AtomicU64,
}

impl Times {
    /// Counts one, of so many nanoseconds.
    pub fn add(&self, span_ns: u64) {
        let seconds = span_ns as f64 / 1e9;
        let at = ENDS.iter().position(|end| seconds <= *end).unwrap_or(ENDS.len());
        if let Some(count) = self.counts.get(at) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.sum_ns.fetch_add(span_ns, Ordering::Relaxed);
    }

    /// Returns the lines of a histogram: endings of the name, labels and values.
    fn lines(&self, labels: &str) -> Vec<(&'static str, String, f64)> {
        let mut sum = 0;
        let mut lines = Vec::new();
        let ends = ENDS.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        for (count, end) in self.counts.iter().zip(ends) {
            sum += count.load(Ordering::Relaxed);
            lines.push(("_bucket", format!("{labels},le=\"{end}\""), sum as f64));
        }
        lines.push(("_sum", labels.to_owned(), self.sum_ns.load(Ordering::Relaxed) as f64 / 1e9));
        lines.push(("_count", labels.to_owned(), sum as f64));
        lines
    }
}

/// Returns the lines of all applications.
pub fn text(pools: &[Arc<Pool>]) -> String {
    let mut out = String::new();
    if pools.is_empty() {
        return out;
    }
    let all: Vec<_> = pools.iter().filter_map(|pool| Some((pool, pool.status()?))).collect();
    let mut family = |name: &str, kind: &str, help: &str, lines: Vec<(String, f64)>| {
        let _ = writeln!(out, "# HELP ringroad_app_{name} {help}\n# TYPE ringroad_app_{name} {kind}");
        for (labels, value) in lines {
            let _ = writeln!(out, "ringroad_app_{name}{{{labels}}} {value}");
        }
    };
    let mut times = String::new();
    let load = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64;
    let app = |name: &str| format!("app=\"{}\"", name.replace(['"', '\\', '\n'], "_"));
    let each = |value: &dyn Fn(&Counts) -> f64| -> Vec<(String, f64)> {
        all.iter().map(|(pool, status)| (app(&status.app), value(pool.counts()))).collect()
    };
    let mut codes = Vec::new();
    for (pool, status) in &all {
        for (class, count) in pool.counts().answers.iter().enumerate().skip(1) {
            codes.push((format!("{},code=\"{class}xx\"", app(&status.app)), load(count)));
        }
    }
    family("requests_total", "counter", "Answers of applications.", codes);
    let mut whys = Vec::new();
    for (pool, status) in &all {
        let names = ["full", "late", "no_worker", "stopping"];
        for (count, why) in pool.counts().rejected.iter().zip(names) {
            whys.push((format!("{},why=\"{why}\"", app(&status.app)), load(count)));
        }
    }
    family("rejected_total", "counter", "Requests that got no worker, by reason.", whys);
    family(
        "retries_total",
        "counter",
        "Requests given to a second worker.",
        each(&|counts| load(&counts.retries)),
    );
    family("aborted_total", "counter", "Requests given up.", each(&|counts| load(&counts.aborted)));
    family(
        "timeouts_total",
        "counter",
        "Requests that took too long.",
        each(&|counts| load(&counts.timeouts)),
    );
    let one = |value: &dyn Fn(&crate::Status) -> f64| -> Vec<(String, f64)> {
        all.iter().map(|(_, status)| (app(&status.app), value(status))).collect()
    };
    family("queue", "gauge", "Requests that wait.", one(&|status| status.waiting as f64));
    family("generation", "gauge", "Reloads so far, plus one.", one(&|status| status.generation as f64));
    let workers = |value: &dyn Fn(&crate::SlotStatus) -> f64| -> Vec<(String, f64)> {
        let mut lines = Vec::new();
        for (_, status) in &all {
            for slot in status.workers.iter().filter(|slot| slot.state == "ready") {
                let labels = format!("{},slot=\"{}\"", app(&status.app), slot.slot);
                lines.push((labels, value(slot)));
            }
        }
        lines
    };
    family(
        "worker_requests_total",
        "counter",
        "Requests of the worker.",
        workers(&|slot| slot.served as f64),
    );
    family("worker_busy_seconds_total", "counter", "Time with requests.", workers(&|slot| slot.busy_seconds));
    family(
        "worker_in_flight",
        "gauge",
        "Requests at the moment.",
        workers(&|slot| f64::from(slot.in_flight)),
    );
    family("worker_sockets", "gauge", "WebSockets at the moment.", workers(&|slot| f64::from(slot.sockets)));
    family("worker_memory_bytes", "gauge", "Resident memory.", workers(&|slot| slot.memory_bytes as f64));
    family("worker_cpu_seconds_total", "counter", "Processor time.", workers(&|slot| slot.cpu_seconds));
    family("worker_generation", "gauge", "Reload that started it.", workers(&|slot| slot.generation as f64));
    family("worker_loop_lag_seconds", "gauge", "Delay of its event loop.", workers(&|slot| slot.lag_seconds));
    let mut states = Vec::new();
    for (_, status) in &all {
        for is_task in [false, true] {
            for state in ["starting", "standby", "ready", "draining", "stopping", "killed"] {
                let count =
                    status.workers.iter().filter(|one| one.slot.is_task == is_task && one.state == state);
                let kind = if is_task { "task" } else { "request" };
                let labels = format!("{},kind=\"{kind}\",state=\"{state}\"", app(&status.app));
                states.push((labels, count.count() as f64));
            }
        }
    }
    family("workers", "gauge", "Processes by what they are for and by state.", states);
    let crash = one(&|status| f64::from(u8::from(status.crash_loop.is_some())));
    family("crash_loop", "gauge", "1 while starts fail again and again.", crash);
    let mut restarts = Vec::new();
    for (_, status) in &all {
        for (why, count) in &status.restarts {
            restarts.push((format!("{},why=\"{why}\"", app(&status.app)), *count as f64));
        }
    }
    let tasks = |value: &dyn Fn(&TasksStatus) -> f64| -> Vec<(String, f64)> {
        let there = all.iter().filter_map(|(_, status)| Some((status, status.tasks.as_ref()?)));
        there.map(|(status, tasks)| (app(&status.app), value(tasks))).collect()
    };
    family("tasks_queued", "gauge", "Tasks that wait.", tasks(&|tasks| tasks.queued as f64));
    family("tasks_running", "gauge", "Tasks that run.", tasks(&|tasks| tasks.running as f64));
    family("tasks_seconds_total", "counter", "Time that tasks ran.", tasks(&|tasks| tasks.seconds));
    let mut over = Vec::new();
    for (_, status) in &all {
        for (how, count) in status.tasks.iter().flat_map(|tasks| &tasks.over) {
            over.push((format!("{},how=\"{how}\"", app(&status.app)), *count as f64));
        }
    }
    family("tasks_total", "counter", "Tasks that are over, by how they ended.", over);
    family("worker_restarts_total", "counter", "Workers replaced, by reason.", restarts);
    for (name, help, of) in [
        ("seconds", "Time until an answer began.", (|counts| &counts.took) as fn(&Counts) -> &Times),
        ("queue_seconds", "Time in the queue, of requests that had to wait.", |counts| &counts.queue),
    ] {
        let _ = writeln!(times, "# HELP ringroad_app_{name} {help}\n# TYPE ringroad_app_{name} histogram");
        for (pool, status) in &all {
            for (ending, labels, value) in of(pool.counts()).lines(&app(&status.app)) {
                let _ = writeln!(times, "ringroad_app_{name}{ending}{{{labels}}} {value}");
            }
        }
    }
    out + &times
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_up_to_the_end_of_their_bucket() {
        let times = Times::default();
        for ms in [1, 2, 3, 60_000] {
            times.add(ms * 1_000_000);
        }
        let lines = times.lines("app=\"web\"");
        let value = |ending: &str, le: &str| {
            let mut found = lines.iter().filter(|line| line.0 == ending && line.1.contains(le));
            found.next().map(|line| line.2)
        };
        for (le, count) in [("0.001", 1.0), ("0.0025", 2.0), ("0.005", 3.0), ("\"10\"", 3.0), ("+Inf", 4.0)] {
            assert_eq!(value("_bucket", le), Some(count), "{le}");
        }
        assert_eq!((value("_count", ""), value("_sum", "")), (Some(4.0), Some(60.006)));
    }
}
