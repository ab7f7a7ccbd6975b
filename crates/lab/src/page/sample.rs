//! Records as a real run could give them, for tests and for looking at the page: made of plausible figures
//! with seeded noise, a skipped program, doubtful and broken cells, and unknown numbers. Not measurements.
//!
//! Start at [`quick`], [`floor`] and [`idle`].
#![allow(clippy::unwrap_used, clippy::expect_used)]

use ringroad_measure::claim::{Claim, Little, Origin, Outcome, Place, Sense};
use ringroad_measure::record::{
    Cell, Control, Errors, Interval, Latencies, Limiter, Loop, Percentiles, Record, Run, SCHEMA, ServerCost,
};
use ringroad_measure::{Caveat, Verdict, summary};
use serde_json::json;

/// How many blocks the samples have.
const BLOCKS: u32 = 10;

/// `lab quick`: two loads, seven models.
pub(crate) fn quick() -> Record {
    let mut record = empty("quick", "Which way of doing I/O costs least?", &["ringroad", "lab", "quick"]);
    for protocol in ["http", "echo"] {
        load(&mut record, protocol, 64, 1);
    }
    judge(&mut record);
    record
}

/// `benches/floor.toml`: many loads, several numbers of connections, a skipped cell, a doubtful one,
/// unknowns.
pub(crate) fn floor() -> Record {
    let mut record = empty(
        "floor",
        "What does a request cost at least, from 64 to 10,000 connections?",
        &["ringroad", "lab", "run", "benches/floor.toml"],
    );
    for connections in [64, 200, 1000, 10_000] {
        load(&mut record, "http", connections, 1);
    }
    for connections in [64, 1000] {
        load(&mut record, "echo", connections, 1);
    }
    load(&mut record, "http", 64, 16);
    for cell in &mut record.cells {
        if cell.model == "select" && cell.connections == 10_000 {
            *cell = skipped(cell, "select(2) holds at most 1,024 descriptors (FD_SETSIZE of the C library)");
        }
        if cell.model == "threads" && cell.connections == 10_000 {
            cell.verdict =
                Verdict::of([Caveat::Steal { share: 0.034 }, Caveat::ClientStarved { wait_share: 0.081 }]);
        }
        if cell.model == "poll" && cell.id == "poll/http-200" {
            cell.verdict = Verdict::of([Caveat::CountsDiffer {
                what: "requests",
                client: 1_204_331,
                server: 1_204_330,
            }]);
        }
        if cell.model == "uring" && cell.protocol == "echo" {
            cell.server.syscalls_per_request = None;
            cell.verdict = Verdict::of([Caveat::Unknown {
                what: "system calls per request".to_owned(),
                why: "perf_event_open was refused (EACCES)".to_owned(),
            }]);
        }
    }
    judge(&mut record);
    record
}

/// `active-share`: 1,000 and 10,000 connections of which 100, 10 and 1 % send; poll and select pay for the
/// rest.
pub(crate) fn idle() -> Record {
    let mut record =
        empty("active-share", "What do idle connections cost?", &["ringroad", "lab", "run", "active-share"]);
    for connections in [1000, 10_000] {
        for share in [1.0, 0.1, 0.01] {
            let before = record.cells.len();
            load(&mut record, "http", connections, 1);
            for cell in &mut record.cells[before..] {
                cell.active_share = share;
                cell.load = format!("http-{connections}-{share}");
                cell.id = format!("{}/{}", cell.model, cell.load);
                if matches!(cell.model.as_str(), "poll" | "select") {
                    let scanned = f64::from(connections) / (f64::from(connections) * share).min(64.0);
                    let cpu = cell.server.cpu_us_per_request.unwrap() + scanned * 0.02;
                    set_cpu(cell, cpu, 0.012, u64::from(connections));
                }
                if cell.model == "select" && connections > 1000 {
                    *cell = skipped(
                        cell,
                        "select(2) holds at most 1,024 descriptors (FD_SETSIZE of the C library)",
                    );
                }
            }
            let name = record.cells[before].load.clone();
            record.control.last_mut().unwrap().load = name;
        }
    }
    set_ratios(&mut record);
    judge(&mut record);
    record
}

/// Four published figures: one reproduced, one not, one with only something near it, one out of reach.
pub(crate) fn claims() -> Vec<Claim> {
    let claim = |row: &str, claimed: f64, measured: Option<f64>, outcome: Outcome| Claim {
        id: format!("000-bench/{row}/rps"),
        source: "000".to_owned(),
        section: "benchmark on one core".to_owned(),
        cell: Some(Place { table: "000-bench".to_owned(), row: row.to_owned(), column: "rps".to_owned() }),
        what: format!("one core, a page of 20 bytes: requests/s, {row}"),
        quote: format!("{claimed}"),
        claimed: Some(claimed),
        unit: "requests/s".to_owned(),
        sense: Sense::About,
        measured,
        interval: None,
        origin: measured.map(|_| Origin::Measured),
        by: None,
        scale: Some("1 s instead of 30".to_owned()),
        outcome,
        why: None,
        little: None,
    };
    let node = claim("node", 32_000.0, Some(40_000.0), Outcome::Reproduced);
    let go = claim("go", 48_000.0, Some(150_000.0), Outcome::NotReproduced);
    let uring = claim("swoole-uring", 146_873.0, Some(260_000.0), Outcome::Untestable);
    let epoll = claim("swoole-epoll", 71_253.0, None, Outcome::Untestable);
    let why = "Swoole is not among the programs here".to_owned();
    vec![
        Claim { little: Some(Little { connections: Some(200.0), in_flight: 437.4, at_most: false }), ..node },
        Claim { little: Some(Little { connections: Some(200.0), in_flight: 204.5, at_most: false }), ..go },
        Claim { origin: Some(Origin::Nearest), why: Some(why.clone()), ..uring },
        Claim { why: Some(why), ..epoll },
    ]
}

/// Gives the record the verdict its cells add up to.
pub(crate) fn judge(record: &mut Record) {
    record.verdict = Verdict::worst(record.cells.iter().map(|cell| &cell.verdict));
}

/// Returns the same cell, not run.
pub(crate) fn skipped(cell: &Cell, reason: &str) -> Cell {
    Cell {
        sent: 0,
        completed: 0,
        rps: None,
        latency_us: Latencies::default(),
        server: ServerCost::default(),
        limiter: None,
        client_cpu_share: None,
        ratio: None,
        verdict: Verdict::valid(),
        skipped: Some(reason.to_owned()),
        runs: Vec::new(),
        histogram: None,
        ..cell.clone()
    }
}

/// Gives a cell the CPU time `cpu_us` in every block, times a noise of `noise` (a share), and refreshes what
/// hangs on it.
pub(crate) fn set_cpu(cell: &mut Cell, cpu_us: f64, noise: f64, seed: u64) {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for run in &mut cell.runs {
        run.cpu_us_per_request = Some(cpu_us * (1.0 + noise * dice.throw()));
    }
    let values: Vec<f64> = cell.runs.iter().filter_map(|run| run.cpu_us_per_request).collect();
    let interval = summary::median_interval(&values).unwrap();
    cell.server.cpu_us_per_request = Some(interval.mid);
    cell.server.cpu_interval = Some(interval);
    cell.server.user_us = Some(interval.mid * 0.14);
    cell.server.sys_us = Some(interval.mid * 0.86);
}

/// Refreshes the ratios to the baseline.
pub(crate) fn set_ratios(record: &mut Record) {
    ringroad_measure::ratios::set(&mut record.cells, record.baseline.as_deref());
}

fn empty(suite: &str, title: &str, command: &[&str]) -> Record {
    let host = json!({
        "kernel": "6.18.5", "arch": "x86_64", "cpu_model": "Example CPU @ 2.80 GHz", "cpus_online": 2, "cores": [[0], [1]],
        "affinity": [0, 1], "memory_total_bytes": 8_241_025_024_u64, "hypervisor": true,
        "cgroup": { "version": 2, "cpu_quota_share": null, "memory_max_bytes": null, "pids_max": 4915 },
        "limits": { "nofile_soft": 20_000, "nofile_hard": 20_000, "memlock_bytes": 8_388_608 },
        "sysctls": { "somaxconn": 4096, "ip_local_port_range": "32768 60999", "io_uring_disabled": 0, "perf_event_paranoid": null },
        "mitigations": "spectre_v2: retpolines; meltdown: not affected"
    });
    Record {
        schema: SCHEMA.to_owned(),
        tool: "lab".to_owned(),
        version: "0.1.0".to_owned(),
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        started: "2026-11-20T19:12:03Z".to_owned(),
        suite: Some(suite.to_owned()),
        title: Some(title.to_owned()),
        host: host.as_object().unwrap().clone(),
        verdict: Verdict::valid(),
        baseline: Some("epoll-et".to_owned()),
        blocks: BLOCKS,
        control: Vec::new(),
        harness_cpu_share: Some(0.004),
        cells: Vec::new(),
        claims: Vec::new(),
    }
}

/// Adds the seven models under one load.
fn load(record: &mut Record, protocol: &str, connections: u32, pipeline: u32) {
    let name = match pipeline {
        1 => format!("{protocol}-{connections}"),
        deep => format!("{protocol}-{connections}-x{deep}"),
    };
    // Cost at 64 connections, µs; factor of growth per decade of connections; system calls; RSS, MiB.
    let models = [
        ("threads", "threads", 6.9, 1.12, 2.0, 3.4),
        ("select", "select", 4.6, 1.65, 2.3, 2.1),
        ("poll", "poll", 4.5, 1.9, 2.2, 2.1),
        ("epoll-lt", "epoll", 4.12, 1.1, 2.2, 2.2),
        ("epoll-et", "epoll", 3.90, 1.1, 2.05, 2.2),
        ("uring", "io_uring", 4.05, 1.09, 0.09, 3.0),
        ("uring-multishot", "io_uring", 3.92, 1.08, 0.06, 4.6),
    ];
    let decades = (f64::from(connections) / 64.0).log10();
    let protocol_factor = if protocol == "echo" { 0.86 } else { 1.0 };
    let seed = u64::from(connections) * 31 + u64::from(pipeline) * 7 + protocol.len() as u64;
    for (nth, (model, driver, cost, growth, calls, mib)) in models.into_iter().enumerate() {
        let batch = 1.0 + (f64::from(pipeline) - 1.0) * 0.75;
        let cpu = cost * f64::powf(growth, decades * 2.0) * protocol_factor / batch;
        let client_bound = pipeline > 1;
        let rps = if client_bound { 910_000.0 } else { 0.97e6 / cpu };
        let mean = f64::from(connections * pipeline) / rps * 1e6;
        let runs = (0..BLOCKS)
            .map(|block| Run {
                block,
                order: (block + nth as u32) % 7,
                at_s: f64::from(block) * 30.0 + nth as f64 * 4.0,
                duration_s: 2.0,
                completed: (rps * 2.0) as u64,
                rps,
                mean_us: Some(mean),
                p50_us: Some(mean * 0.93),
                p99_us: Some(mean * 1.9),
                server_cpu_share: Some(0.97),
                client_cpu_share: Some(0.81),
                client_wait_share: Some(0.001),
                steal_share: Some(0.0),
                client_count: (rps * 2.4) as u64,
                server_count: Some((rps * 2.4) as u64),
                ..Run::default()
            })
            .collect();
        let tail = if model == "threads" { 3.2 } else { 1.9 };
        let latency = Percentiles {
            min: mean * 0.2,
            mean,
            p50: mean * 0.93,
            p75: mean * 1.05,
            p90: mean * 1.25,
            p95: mean * 1.4,
            p99: mean * tail,
            p99_9: mean * tail * 1.6,
            p99_99: mean * tail * 2.2,
            max: mean * tail * 4.0,
        };
        let mut cell = Cell {
            id: format!("{model}/{name}"),
            model: model.to_owned(),
            load: name.clone(),
            driver: Some(driver.to_owned()),
            variant: None,
            protocol: protocol.to_owned(),
            connections,
            active_share: 1.0,
            payload_bytes: if protocol == "http" { 20 } else { 64 },
            pipeline,
            kind: Loop::Closed,
            rate_target: None,
            duration_s: 2.0,
            sent: (rps * 24.0) as u64,
            completed: (rps * 24.0) as u64,
            rps: Some(rps),
            errors: Errors::default(),
            latency_us: Latencies { response: Some(latency), service: Some(latency), lag: None },
            server: ServerCost {
                syscalls_per_request: Some(calls / batch),
                syscalls_source: Some("perf".to_owned()),
                context_switches_per_request: Some(if model == "threads" { 1.0 } else { 0.004 }),
                rss_bytes: Some(
                    (mib * 1_048_576.0) as u64
                        + u64::from(connections) * if model == "threads" { 8_800 } else { 300 },
                ),
                kernel_bytes: Some(u64::from(connections) * 6_100),
                ..ServerCost::default()
            },
            limiter: Some(if client_bound { Limiter::Client } else { Limiter::Server }),
            client_cpu_share: Some(if client_bound { 0.996 } else { 0.81 }),
            ratio: None,
            verdict: if client_bound {
                Verdict::of([Caveat::ClientBound { client_share: 0.985 + nth as f64 * 0.001 }])
            } else {
                Verdict::valid()
            },
            skipped: None,
            runs,
            series: None,
            details: Default::default(),
            histogram: Some("HISTFAAAA".repeat(120)),
        };
        set_cpu(&mut cell, cpu, 0.012, seed + nth as u64 * 977);
        record.cells.push(cell);
    }
    record.control.push(Control { load: name, ratio: Interval { low: 0.988, mid: 1.001, high: 1.011 } });
    set_ratios(record);
}

/// Numbers from −1 to 1, the same for the same seed.
struct Dice(u64);

impl Dice {
    fn throw(&mut self) -> f64 {
        // xorshift64: enough to look like noise.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }
}
