//! How an application is: for people, for programs, for metrics.

use crate::slot::SlotId;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::time::Duration;

/// One application.
#[derive(Clone, Debug)]
pub struct Status {
    /// Its name.
    pub app: String,
    /// What it starts.
    pub command: String,
    /// Reloads so far, plus one.
    pub generation: u64,
    /// Requests that wait for a worker.
    pub waiting: usize,
    /// Requests each second.
    pub rate: f64,
    /// Why no worker can be started, or why replacements fail.
    pub trouble: Option<String>,
    /// Starts fail again and again.
    pub crash_loop: Option<CrashStatus>,
    /// Its processes.
    pub workers: Vec<SlotStatus>,
    /// Replacements so far, by reason.
    pub restarts: Vec<(&'static str, u64)>,
    /// Its tasks, if it has task workers.
    pub tasks: Option<TasksStatus>,
}

/// A crash loop: starts are tried seldom, one at a time.
#[derive(Clone, Debug)]
pub struct CrashStatus {
    /// Starts that have failed in a row.
    pub failures: u32,
    /// Time to the next one.
    pub next_try: Duration,
}

/// Tasks of an application.
#[derive(Clone, Debug, Default)]
pub struct TasksStatus {
    /// Those that wait.
    pub queued: usize,
    /// Those that run.
    pub running: usize,
    /// Those that are over, by how they ended.
    pub over: Vec<(&'static str, u64)>,
    /// Time that they ran.
    pub seconds: f64,
}

/// One process.
#[derive(Clone, Debug)]
pub struct SlotStatus {
    /// Its slot.
    pub slot: SlotId,
    /// "starting", "ready", "draining" and so on.
    pub state: &'static str,
    /// Its process.
    pub pid: u32,
    /// Of which reload.
    pub generation: u64,
    /// Requests at the moment.
    pub in_flight: u32,
    /// WebSockets at the moment.
    pub sockets: u32,
    /// Requests so far.
    pub served: u64,
    /// Time with requests, summed over requests.
    pub busy_seconds: f64,
    /// Resident bytes.
    pub memory_bytes: u64,
    /// Processor time so far.
    pub cpu_seconds: f64,
    /// Delay of its event loop.
    pub lag_seconds: f64,
    /// Time since its start.
    pub age: Duration,
}

impl Status {
    /// Returns it as JSON, for programs.
    pub fn json(&self) -> Value {
        let workers: Vec<_> = self
            .workers
            .iter()
            .map(|one| {
                json!({
                    "slot": one.slot.number, "task": one.slot.is_task, "state": one.state, "pid": one.pid, "generation": one.generation,
                    "in_flight": one.in_flight, "sockets": one.sockets, "served": one.served,
                    "busy_seconds": one.busy_seconds, "cpu_seconds": one.cpu_seconds,
                    "memory_bytes": one.memory_bytes, "lag_seconds": one.lag_seconds,
                    "age_seconds": one.age.as_secs_f64(),
                })
            })
            .collect();
        let restarts: Map<String, Value> =
            self.restarts.iter().map(|(why, count)| ((*why).to_owned(), json!(count))).collect();
        let tasks = self.tasks.as_ref().map(|tasks| {
            let over: Map<String, Value> =
                tasks.over.iter().map(|(how, count)| ((*how).to_owned(), json!(count))).collect();
            json!({
                "queued": tasks.queued, "running": tasks.running, "over": over, "seconds": tasks.seconds,
            })
        });
        let crash_loop = self.crash_loop.as_ref().map(
            |crash| json!({ "failures": crash.failures, "next_try_seconds": crash.next_try.as_secs_f64() }),
        );
        json!({
            "app": self.app, "command": self.command, "generation": self.generation,
            "waiting": self.waiting, "requests_per_second": self.rate, "trouble": self.trouble,
            "crash_loop": crash_loop,
            "restarts": restarts, "workers": workers, "tasks": tasks,
        })
    }
}

/// Returns a table of what [`Status::json`] gave, for people.
pub fn table(status: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(
        out,
        "{}  generation {}  {:.0} requests/s  {} waiting  {}",
        text(&status["app"]),
        number(&status["generation"]),
        status["requests_per_second"].as_f64().unwrap_or_default(),
        number(&status["waiting"]),
        text(&status["command"]),
    );
    let head = ["slot", "state", "pid", "gen", "now", "sockets", "served", "busy", "memory", "lag", "age"];
    let mut rows = vec![head.map(str::to_owned)];
    for worker in status["workers"].as_array().into_iter().flatten() {
        let age = worker["age_seconds"].as_f64().unwrap_or_default();
        let busy = worker["busy_seconds"].as_f64().unwrap_or_default();
        let share = if age > 0.0 { busy / age * 100.0 } else { 0.0 };
        rows.push([
            format!("{}{}", if worker["task"] == true { "t" } else { "" }, number(&worker["slot"])),
            text(&worker["state"]),
            number(&worker["pid"]).to_string(),
            number(&worker["generation"]).to_string(),
            number(&worker["in_flight"]).to_string(),
            number(&worker["sockets"]).to_string(),
            number(&worker["served"]).to_string(),
            format!("{share:.0} %"),
            format!("{} MiB", number(&worker["memory_bytes"]) >> 20),
            format!("{:.1} ms", worker["lag_seconds"].as_f64().unwrap_or_default() * 1e3),
            age_text(age as u64),
        ]);
    }
    if rows.len() == 1 {
        rows.clear();
        out.push_str("  no process runs\n");
    }
    let widths: Vec<usize> = (0..head.len())
        .map(|at| rows.iter().filter_map(|row| row.get(at)).map(String::len).max().unwrap_or(0))
        .collect();
    for row in &rows {
        out.push(' ');
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            // Words at the left, numbers at the right.
            let _ = if at == 1 { write!(out, " {cell:<width$}") } else { write!(out, " {cell:>width$}") };
        }
        let end = out.trim_end().len();
        out.truncate(end);
        out.push('\n');
    }
    let counts = |map: &Value| -> Vec<String> {
        let all = map.as_object().into_iter().flatten().filter(|(_, count)| number(count) > 0);
        all.map(|(why, count)| format!("{why} {}", number(count))).collect()
    };
    let tasks = &status["tasks"];
    if tasks.is_object() {
        let mut parts = vec![
            format!("{} waiting", number(&tasks["queued"])),
            format!("{} running", number(&tasks["running"])),
        ];
        parts.extend(counts(&tasks["over"]));
        let _ = writeln!(out, "  tasks: {}", parts.join(", "));
    }
    let restarts = counts(&status["restarts"]);
    if !restarts.is_empty() {
        let _ = writeln!(out, "  replaced: {}", restarts.join(", "));
    }
    let crash = &status["crash_loop"];
    if crash.is_object() {
        let ready = |one: &&Value| one["state"] == "ready" && one["task"] == false;
        let serving = status["workers"].as_array().into_iter().flatten().filter(ready).count();
        let _ = writeln!(
            out,
            "  crash loop: {} starts in a row have failed, next try in {}; workers that serve: {serving}",
            number(&crash["failures"]),
            age_text(crash["next_try_seconds"].as_f64().unwrap_or_default().ceil() as u64),
        );
    }
    if let Some(trouble) = status["trouble"].as_str() {
        let _ = writeln!(out, "  trouble:");
        for line in trouble.lines() {
            let _ = writeln!(out, "    {line}");
        }
    }
    out
}

/// Returns a count with its noun: `1 worker`, `2 workers`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn age_text(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_processes_there_is_no_table() {
        let status = Status {
            app: "web".to_owned(),
            command: "main:app".to_owned(),
            generation: 1,
            waiting: 2,
            rate: 0.0,
            trouble: None,
            crash_loop: None,
            workers: Vec::new(),
            restarts: vec![("failed", 9)],
            tasks: None,
        };
        assert_eq!(
            table(&status.json()),
            "web  generation 1  0 requests/s  2 waiting  main:app\n  no process runs\n  replaced: failed 9\n"
        );
    }

    #[test]
    fn a_status_is_a_table() {
        let worker = SlotStatus {
            slot: SlotId { number: 0, is_task: false },
            state: "ready",
            pid: 4242,
            generation: 2,
            in_flight: 1,
            sockets: 7,
            served: 1000,
            busy_seconds: 30.0,
            memory_bytes: 52 << 20,
            cpu_seconds: 12.0,
            lag_seconds: 0.0012,
            age: Duration::from_secs(60),
        };
        let status = Status {
            app: "web".to_owned(),
            command: "main:app".to_owned(),
            generation: 2,
            waiting: 0,
            rate: 16.6,
            trouble: Some("no database\nlast line".to_owned()),
            crash_loop: Some(CrashStatus { failures: 7, next_try: Duration::from_millis(28_300) }),
            workers: vec![
                worker.clone(),
                SlotStatus { slot: SlotId { number: 0, is_task: true }, sockets: 0, pid: 4243, ..worker },
            ],
            restarts: vec![("died", 1), ("age", 0)],
            tasks: Some(TasksStatus {
                queued: 3,
                running: 1,
                over: vec![("done", 12), ("raised", 0), ("timeout", 1)],
                seconds: 1.5,
            }),
        };
        assert_eq!(
            table(&status.json()),
            "web  generation 2  17 requests/s  0 waiting  main:app\n  \
             slot state  pid gen now sockets served busy memory    lag   age\n     \
             0 ready 4242   2   1       7   1000 50 % 52 MiB 1.2 ms 1 min\n    \
             t0 ready 4243   2   1       0   1000 50 % 52 MiB 1.2 ms 1 min\n  \
             tasks: 3 waiting, 1 running, done 12, timeout 1\n  \
             replaced: died 1\n  \
             crash loop: 7 starts in a row have failed, next try in 29 s; workers that serve: 1\n  \
             trouble:\n    no database\n    last line\n"
        );
    }
}
