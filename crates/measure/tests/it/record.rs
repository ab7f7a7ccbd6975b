//! The record, its schema in `docs/`, and the types agree: what we write validates, and both name the same
//! fields.

use crate::schema;
use ringroad_measure::caveat::{Caveat, Level, Verdict};
use ringroad_measure::claim::{Claim, Little, Origin, Outcome, Place, Sense};
use ringroad_measure::histogram::Histogram;
use ringroad_measure::record::{
    Broadcast, Ceiling, Cell, Clock, Control, CrossCheck, Details, Errors, Handshakes, Held, Interval, Knee,
    Latencies, Limiter, Loop, OfPart, OfUrl, Part, Program, Record, Run, SCHEMA, ServerCost, Stage,
    Unanswered,
};
use serde_json::{Map, Value, json};

fn published() -> Value {
    serde_json::from_str(include_str!("../../../../docs/record.schema.json")).unwrap()
}

/// A record in which every optional field is present, so that every field is written.
fn full() -> Record {
    let mut histogram = Histogram::new();
    (1..=1_000).for_each(|nth| histogram.record(nth * 1_037));
    let interval = Interval { low: 0.97, mid: 1.0 / 3.0, high: 1.04 };
    let percentiles = histogram.percentiles();
    let errors = Errors { connect: 1, reset: 2, timeout: 3, status: 4, protocol: 5 };
    let clock = Clock { from: "ntp://localhost".into(), offset_s: 0.25, within_s: 0.001 };
    let run = Run {
        mean_us: Some(0.1),
        p50_us: Some(0.2),
        p99_us: Some(0.3),
        cpu_us_per_request: Some(3.91),
        server_cpu_share: Some(0.99),
        client_cpu_share: Some(0.8),
        client_wait_share: Some(0.01),
        steal_share: Some(0.0),
        server_count: Some(u64::MAX),
        user_share: Some(0.1),
        syscalls_per_request: Some(2.0),
        context_switches_per_request: Some(0.01),
        rss_bytes: Some(1 << 20),
        rss_growth_bytes: Some(1 << 19),
        kernel_bytes: Some(4_096),
        closed: 3,
        alone: Some("its turn took too long".into()),
        errors,
        ..Run::default()
    };
    let cell = Cell {
        id: "epoll-et/http-64".into(),
        model: "epoll-et".into(),
        load: "http-64".into(),
        driver: Some("epoll".into()),
        variant: Some("20 µs of work".into()),
        protocol: "http".into(),
        connections: 64,
        active_share: 1.0,
        payload_bytes: 20,
        pipeline: 1,
        kind: Loop::Closed,
        rate_target: Some(1e5),
        duration_s: 1.5,
        sent: 10,
        completed: 10,
        rps: Some(251_000.0),
        errors,
        latency_us: Latencies { response: percentiles, service: percentiles, lag: percentiles },
        server: ServerCost {
            cpu_us_per_request: Some(3.91),
            cpu_interval: Some(interval),
            user_us: Some(0.4),
            sys_us: Some(3.5),
            syscalls_per_request: Some(2.0),
            syscalls_source: Some("perf".into()),
            context_switches_per_request: Some(0.01),
            rss_bytes: Some(1 << 20),
            rss_growth_bytes: Some(1 << 19),
            kernel_bytes: Some(4_096),
        },
        limiter: Some(Limiter::Neither),
        client_cpu_share: Some(0.8),
        ratio: Some(interval),
        verdict: Verdict::of([Caveat::SharedCore, Caveat::Steal { share: 0.03 }]),
        skipped: Some("no io_uring here".into()),
        runs: vec![run],
        series: Some(json!([1, 2])),
        histogram: Some(histogram.to_base64()),
        details: Details {
            held: Some(Held {
                survival: Some(0.995),
                reconnects_per_hour: Some(0.1),
                write_failures: Some(0.01),
                unavailable_after_s: Some(1.5),
                health: "unhealthy".into(),
                findings: vec!["why".into()],
                ..Held::default()
            }),
            broadcast: Some(Broadcast {
                members: 4,
                published: 6,
                expected: 24,
                missing: 1,
                repeated: 2,
                to_sender: true,
            }),
            handshakes: Some(Handshakes { full: 1, resumed: 2, failed: 3, took_us: percentiles }),
            ceiling: Some(Ceiling { rps: 4e5, reached_rps: 2.5e5, cpu_us_per_request: 2.5 }),
            stages: Some(vec![Stage {
                from: 10.0,
                to: 20.0,
                duration_s: 2.0,
                completed: 7,
                failed: 1,
                rps: Some(3.5),
                response_us: percentiles,
            }]),
            knee: Some(Knee {
                demand: "p99<5ms".into(),
                met_rps: Some(1e4),
                unmet_rps: Some(1.04e4),
                probes: 12,
            }),
            client: Some("load, io_uring".into()),
            program: Some(Program {
                command: vec!["./server".into(), "{port}".into()],
                files: [("./server".to_owned(), "01ab".to_owned())].into(),
            }),
            turn_s: Some(0.02),
            cross_check: Some(CrossCheck {
                client: "small, epoll".into(),
                rate: interval,
                cpu: Some(interval),
            }),
            closes: true,
            statuses: [(200, 7), (503, 1)].into(),
            refused_us: percentiles,
            unanswered: Some(Unanswered { requests: 3, longest_us: 2e6 }),
            bytes_per_s: Some(1.5e6),
            urls: vec![OfUrl {
                url: "GET http://127.0.0.1/".into(),
                completed: 7,
                refused: 1,
                rps: Some(3.5),
                response_us: percentiles,
            }],
            part: Some(Part {
                index: 3,
                count: 8,
                plan: "01ab".into(),
                start_at: Some("2026-01-02T03:04:05.000Z".into()),
                began_s: Some(1.5e9),
                clock: Some(clock.clone()),
                machine: Some("a boot".into()),
                told: Some(json!({})),
                hash: Some("hash".into()),
            }),
            parts: vec![OfPart {
                index: 1,
                connections: 8,
                completed: 7,
                rps: Some(3.5),
                p99_us: Some(0.3),
                began_after_s: Some(0.001),
                client_cpu_share: Some(0.8),
                clock: Some(clock),
                machine: Some("a boot".into()),
                verdict: Verdict::valid(),
            }],
        },
    };
    Record {
        schema: SCHEMA.into(),
        tool: "lab".into(),
        version: "0.1.0".into(),
        command: vec!["ringroad".into(), "lab".into()],
        started: "2026-01-02T03:04:05Z".into(),
        suite: Some("quick".into()),
        title: Some("Which way is cheapest?".into()),
        host: Map::from_iter([("kernel".into(), json!("6.18")), ("governor".into(), Value::Null)]),
        verdict: Verdict::of([Caveat::SharedCore]),
        baseline: Some("epoll-et".into()),
        blocks: 10,
        control: vec![Control { load: "http-64".into(), ratio: interval }],
        harness_cpu_share: Some(0.004),
        cells: vec![cell],
        claims: vec![claim(interval)],
    }
}

/// A claim with everything a claim may have.
fn claim(interval: Interval) -> Claim {
    Claim {
        id: "003-qps/select/1000".into(),
        source: "003".into(),
        section: "measured results".into(),
        cell: Some(Place { table: "003-qps".into(), row: "select".into(), column: "1000".into() }),
        what: "echo with select at 1000 connections".into(),
        quote: "99K".into(),
        claimed: Some(99_000.0),
        unit: "requests/s".into(),
        sense: Sense::About,
        measured: Some(234_000.0),
        interval: Some(interval),
        origin: Some(Origin::Measured),
        by: Some("by hand".into()),
        scale: Some("1 s instead of 30".into()),
        outcome: Outcome::NotReproduced,
        why: Some("another machine".into()),
        little: Some(Little { connections: Some(1_000.0), in_flight: 39.6, at_most: true }),
    }
}

/// The same with everything that may be unknown unknown.
fn bare() -> Record {
    let mut record = full();
    (record.suite, record.title, record.baseline, record.harness_cpu_share) = (None, None, None, None);
    record.control.clear();
    let blank = &mut record.claims[0];
    (blank.cell, blank.claimed, blank.measured, blank.interval, blank.origin) =
        (None, None, None, None, None);
    (blank.by, blank.scale, blank.why, blank.little) = (None, None, None, None);
    let cell = &mut record.cells[0];
    (cell.driver, cell.rate_target, cell.rps, cell.limiter, cell.ratio) = (None, None, None, None, None);
    cell.variant = None;
    (cell.client_cpu_share, cell.skipped, cell.series, cell.histogram) = (None, None, None, None);
    cell.latency_us = Latencies::default();
    cell.server = ServerCost::default();
    cell.details = Details::default();
    cell.runs = vec![Run::default()];
    cell.kind = Loop::Open;
    record
}

#[test]
fn what_we_write_validates_against_the_published_schema() {
    for record in [full(), bare()] {
        let outcome = schema::check(&published(), &serde_json::to_value(record).unwrap());
        assert_eq!(outcome.faults, Vec::<String>::new());
    }
}

#[test]
fn schema_and_types_name_the_same_fields() {
    let outcome = schema::check(&published(), &serde_json::to_value(full()).unwrap());
    assert_eq!(outcome.unnamed, Vec::<String>::new(), "fields the schema does not name");
    let unwritten: Vec<_> = schema::properties(&published()).difference(&outcome.met).cloned().collect();
    assert_eq!(unwritten, Vec::<String>::new(), "fields of the schema that nobody writes");
}

/// Otherwise the two tests above would pass with a schema that allows everything.
#[test]
fn the_schema_refuses_what_is_no_record() {
    let breakages: [(&str, Value, &str); 9] = [
        ("/schema", json!("ringroad.record/2"), "is not \"ringroad.record/1\""),
        ("/cells", json!({}), "not of type"),
        ("/blocks", json!(-1), "beyond minimum"),
        ("/verdict/level", json!("FINE"), "none of"),
        ("/cells/0/loop", json!("half"), "none of"),
        ("/cells/0/active_share", json!(1.5), "beyond maximum"),
        ("/cells/0/latency_us/response/p99_9", json!("1 ms"), "not of type"),
        ("/cells/0/runs/0/errors", json!({}), "\"connect\" is missing"),
        ("/cells/0/server/rss_bytes", json!(0.5), "not of type"),
    ];
    for (pointer, value, fault) in breakages {
        let mut record = serde_json::to_value(full()).unwrap();
        *record.pointer_mut(pointer).unwrap() = value;
        let outcome = schema::check(&published(), &record);
        assert!(outcome.faults.iter().any(|f| f.contains(fault)), "{pointer}: {:?}", outcome.faults);
    }
}

#[test]
fn a_record_comes_back_as_it_was_written() {
    for record in [full(), bare()] {
        let text = serde_json::to_string(&record).unwrap();
        let back: Record = serde_json::from_str(&text).unwrap();
        assert_eq!(back, record);
        assert_eq!(serde_json::to_string(&back).unwrap(), text);
    }
}

/// Tools that write only the fields of the first format are read, and fields of later ones
/// are passed over.
#[test]
fn an_older_and_a_newer_record_are_read() {
    let mut value = serde_json::to_value(full()).unwrap();
    let required: Vec<Value> = published()["required"].as_array().unwrap().clone();
    value.as_object_mut().unwrap().retain(|name, _| required.iter().any(|r| r == name));
    let required: Vec<Value> = published()["$defs"]["cell"]["required"].as_array().unwrap().clone();
    value["cells"][0].as_object_mut().unwrap().retain(|name, _| required.iter().any(|r| r == name));
    value["from_the_future"] = json!({"x": 1});
    assert_eq!(schema::check(&published(), &value).faults, Vec::<String>::new());
    let record: Record = serde_json::from_value(value).unwrap();
    assert_eq!((record.suite, record.blocks, record.control.len()), (None, 0, 0));
    assert_eq!(record.cells[0].verdict.level, Level::Suspect);
    assert!(record.cells[0].runs.is_empty());
}
