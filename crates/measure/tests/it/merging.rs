//! Records made one: runs are pooled and figures are those of all runs, as if they had been one record's.

use ringroad_measure::caveat::{Caveat, Level, Verdict};
use ringroad_measure::histogram::Histogram;
use ringroad_measure::merge::{MergeError, merge, other_machine};
use ringroad_measure::record::{
    Cell, Control, Errors, Interval, Latencies, Loop, Program, Record, Run, SCHEMA, ServerCost,
};
use serde_json::{Map, json};

/// A cell of three runs that cost what `cpu` says.
fn cell(model: &str, cpu: [f64; 3]) -> Cell {
    let mut histogram = Histogram::new();
    let runs: Vec<Run> = (0..3)
        .map(|block| {
            let cpu_us = cpu[block as usize];
            histogram.record((cpu_us * 1000.0) as u64);
            Run {
                block,
                duration_s: 1.0,
                completed: 1000,
                rps: 1000.0 * cpu_us,
                cpu_us_per_request: Some(cpu_us),
                user_share: Some(0.5),
                syscalls_per_request: Some(2.0),
                rss_bytes: Some(1 << 20),
                client_count: 1000,
                ..Run::default()
            }
        })
        .collect();
    let percentiles = histogram.percentiles();
    Cell {
        id: format!("{model}/http-64"),
        model: model.into(),
        load: "http-64".into(),
        driver: None,
        variant: None,
        protocol: "http".into(),
        connections: 64,
        active_share: 1.0,
        payload_bytes: 20,
        pipeline: 1,
        kind: Loop::Closed,
        rate_target: None,
        duration_s: 1.0,
        sent: 3000,
        completed: 3000,
        rps: Some(1000.0),
        errors: Errors { reset: 1, ..Errors::default() },
        latency_us: Latencies { response: percentiles, service: percentiles, lag: None },
        server: ServerCost::of_runs(&runs, Some("perf".into())),
        limiter: None,
        client_cpu_share: None,
        ratio: None,
        verdict: Verdict::of(Caveat::too_few_repeats(3)),
        skipped: None,
        runs,
        series: None,
        histogram: Some(histogram.to_base64()),
        details: Default::default(),
    }
}

fn record(suite: &str, cells: Vec<Cell>) -> Record {
    Record {
        schema: SCHEMA.into(),
        tool: "lab".into(),
        version: "0.1.0".into(),
        command: vec!["ringroad".into()],
        started: "2026-01-02T03:04:05Z".into(),
        suite: Some(suite.into()),
        title: Some(format!("what {suite} asks")),
        host: Map::from_iter([("kernel".into(), json!("6.18"))]),
        verdict: Verdict::worst(cells.iter().map(|cell| &cell.verdict)),
        baseline: Some("base".into()),
        blocks: 3,
        control: vec![Control {
            load: "http-64".into(),
            ratio: Interval { low: 0.99, mid: 1.0, high: 1.01 },
        }],
        harness_cpu_share: Some(0.001),
        cells,
        claims: Vec::new(),
    }
}

/// The same figures, measured once more.
fn once_more(record: &Record) -> Record {
    let mut again = record.clone();
    again.cells.iter_mut().flat_map(|cell| &mut cell.runs).for_each(|run| run.at_s += 100.0);
    again
}

/// As a record is that comes from a file: its sentences have no level of their own.
fn from_file(record: &Record) -> Record {
    serde_json::from_str(&serde_json::to_string(record).unwrap()).unwrap()
}

#[test]
fn runs_of_the_same_cell_are_pooled_and_ratios_stay_within_their_blocks() {
    let first = record("quick", vec![cell("base", [4.0, 4.1, 4.2]), cell("mine", [8.0, 8.2, 8.4])]);
    // All of it twice as slow, on a bad day: the ratios are the same.
    let second = record("quick", vec![cell("base", [8.0, 8.2, 8.4]), cell("mine", [16.0, 16.4, 16.8])]);
    let merged = merge(&[from_file(&first), from_file(&second)]).unwrap();
    assert_eq!((merged.blocks, merged.suite.as_deref()), (6, Some("quick")));
    let mine = &merged.cells[1];
    let blocks: Vec<u32> = mine.runs.iter().map(|run| run.block).collect();
    assert_eq!(blocks, [0, 1, 2, 3, 4, 5]);
    assert_eq!((mine.sent, mine.completed, mine.errors.reset), (6000, 6000, 2));
    assert_eq!(mine.server.cpu_us_per_request, Some((8.4 + 16.0) / 2.0));
    assert_eq!(mine.server.syscalls_per_request, Some(2.0));
    let ratio = mine.ratio.unwrap();
    assert!((ratio.low - 2.0).abs() < 1e-9 && (ratio.high - 2.0).abs() < 1e-9, "{ratio:?}");
    assert_eq!(merged.cells[0].ratio, None);
    let histogram = Histogram::from_base64(mine.histogram.as_ref().unwrap()).unwrap();
    assert_eq!(histogram.count(), 6);
    assert_eq!(mine.latency_us.response, histogram.percentiles());
}

/// What is told of one run is not told of several: its seconds, what became of its connections, its service
/// times where only the responses have a histogram.
#[test]
fn what_is_of_one_run_is_left_out() {
    let mut first = record("quick", vec![cell("base", [4.0; 3])]);
    first.cells[0].kind = Loop::Open;
    first.cells[0].series = Some(json!([1]));
    first.cells[0].details.held = Some(Default::default());
    let merged = merge(&[from_file(&first), from_file(&once_more(&first))]).unwrap();
    let cell = &merged.cells[0];
    assert_eq!((&cell.series, cell.details.is_empty(), cell.latency_us.service), (&None, true, None));
    assert!(cell.latency_us.response.is_some());
    first.cells[0].kind = Loop::Closed;
    let merged = merge(&[from_file(&first), from_file(&once_more(&first))]).unwrap();
    assert_eq!(merged.cells[0].latency_us.service, merged.cells[0].latency_us.response);
}

#[test]
fn too_few_runs_alone_may_be_enough_together_and_other_doubts_stay() {
    let first = record("quick", vec![cell("base", [4.0; 3]), cell("mine", [4.0; 3])]);
    let mut second = once_more(&first);
    second.cells[1].verdict.add(Caveat::NothingMeasured);
    let merged = merge(&[from_file(&first), from_file(&second)]).unwrap();
    assert_eq!(merged.cells[0].verdict, Verdict::valid());
    assert_eq!(merged.cells[1].verdict.level, Level::Invalid);
    assert_eq!(merged.cells[1].verdict.reasons.len(), 1, "{}", merged.cells[1].verdict);
    assert_eq!(merged.verdict.level, Level::Invalid);
}

#[test]
fn cells_of_one_record_only_are_taken_as_they_are_and_a_skipped_one_gives_way() {
    let mut skipped = cell("mine", [4.0; 3]);
    skipped.skipped = Some("not installed".into());
    skipped.runs.clear();
    let first = record("quick", vec![cell("base", [4.0; 3]), skipped]);
    let second = record("peers", vec![cell("mine", [5.0; 3]), cell("other", [6.0; 3])]);
    let merged = merge(&[first, second]).unwrap();
    let ids: Vec<&str> = merged.cells.iter().map(|cell| cell.id.as_str()).collect();
    assert_eq!(ids, ["base/http-64", "mine/http-64", "other/http-64"]);
    assert_eq!((merged.cells[1].skipped.as_deref(), merged.cells[1].runs[0].block), (None, 3));
    assert_eq!(merged.suite.as_deref(), Some("quick+peers"));
    // The baseline did not run in their blocks, so there is nothing to divide by.
    assert_eq!(merged.cells[2].ratio, None);
}

#[test]
fn another_load_of_the_same_name_is_refused() {
    let first = record("quick", vec![cell("base", [4.0; 3])]);
    for spoil in [
        |cell: &mut Cell| cell.connections = 65,
        |cell: &mut Cell| cell.active_share = 0.5,
        |cell: &mut Cell| cell.payload_bytes = 21,
        |cell: &mut Cell| cell.variant = Some("work".into()),
        |cell: &mut Cell| cell.details.turn_s = Some(0.02),
    ] {
        let mut second = first.clone();
        spoil(&mut second.cells[0]);
        assert_eq!(merge(&[first.clone(), second]), Err(MergeError::OtherLoad("base/http-64".into())));
    }
    assert_eq!(merge(&[]), Err(MergeError::Nothing));
}

#[test]
fn the_wider_control_counts_and_another_machine_is_said() {
    let first = record("quick", vec![cell("base", [4.0; 3])]);
    let mut second = once_more(&first);
    second.control[0].ratio = Interval { low: 0.9, mid: 1.0, high: 1.02 };
    second.host.insert("kernel".into(), json!("6.1"));
    let merged = merge(&[first.clone(), second.clone()]).unwrap();
    assert_eq!(merged.control[0].ratio.low, 0.9);
    assert_eq!(merged.verdict.level, Level::Suspect);
    assert!(merged.verdict.to_string().contains("different machines"), "{}", merged.verdict);
    assert_eq!(other_machine(&first.host, &second.host), Some("kernel"));
    second.host.insert("kernel".into(), serde_json::Value::Null);
    assert_eq!(other_machine(&first.host, &second.host), None, "what is unknown differs from nothing");
}

#[test]
fn records_of_different_builds_are_merged_with_a_doubt() {
    let built = |record: &Record, build: &str| {
        let mut record = record.clone();
        record.host.insert("ringroad_build".into(), json!(build));
        record
    };
    let unknown = record("quick", vec![cell("base", [4.0; 3])]);
    let first = built(&unknown, "01");
    let again = built(&once_more(&unknown), "01");
    assert_eq!(merge(&[first.clone(), again]).unwrap().verdict.level, Level::Valid);
    let other = built(&once_more(&unknown), "02");
    let merged = merge(&[first.clone(), other.clone()]).unwrap();
    assert_eq!(merged.verdict.level, Level::Suspect);
    assert!(merged.verdict.to_string().contains("made by different builds"), "{}", merged.verdict);
    // What is unknown differs from nothing, and hides no difference between two others.
    let unknown = once_more(&once_more(&unknown));
    assert_eq!(merge(&[unknown.clone(), first.clone()]).unwrap().verdict.level, Level::Valid);
    assert_eq!(merge(&[unknown, first, other]).unwrap().verdict.level, Level::Suspect);
}

/// A record of one program, started by `command`: its first word is a file with this hash.
fn started(command: &str, hash: &str, at: f64) -> Record {
    let mut record = record("quick", vec![cell("mine", [4.0; 3])]);
    let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
    let files = [(words[0].clone(), hash.to_owned())].into();
    record.cells[0].details.program = Some(Program { command: words, files });
    record.cells[0].runs.iter_mut().for_each(|run| run.at_s = at);
    record
}

#[test]
fn runs_of_different_programs_of_one_name_are_merged_with_a_doubt() {
    let first = started("/a/server {port}", "01", 0.0);
    let verdict = |other: Record| {
        let merged = merge(&[from_file(&first), from_file(&other)]).unwrap();
        let is_known = merged.cells[0].details.program.is_some();
        (merged.cells[0].verdict.level, is_known, merged.verdict.to_string())
    };
    assert_eq!(verdict(started("/a/server {port}", "01", 9.0)).0, Level::Valid);
    assert_eq!(
        verdict(started("/b/server {port}", "01", 9.0)).0,
        Level::Valid,
        "the same file at another place"
    );
    for other in [
        started("/b/server {port}", "02", 9.0),
        started("/a/server {port}", "02", 9.0),
        started("/a/server {port} -v", "01", 9.0),
        started("/a/server {addr}", "01", 9.0),
    ] {
        let (level, is_known, said) = verdict(other);
        assert_eq!((level, is_known), (Level::Suspect, false));
        assert!(said.contains("different programs of one name"), "{said}");
    }
    let mut unknown = once_more(&first);
    unknown.cells[0].details.program = None;
    assert_eq!(verdict(unknown.clone()).0, Level::Valid, "of what is unknown nothing is said");
    let other = started("/a/server {port}", "02", 18.0);
    let merged = merge(&[from_file(&first), from_file(&unknown), from_file(&other)]).unwrap();
    assert_eq!(merged.cells[0].verdict.level, Level::Suspect, "{}", merged.verdict);
}

#[test]
fn runs_under_different_clients_are_merged_with_a_doubt_and_name_both() {
    let under = |client: &str, at: f64| {
        let mut record = started("/a/server {port}", "01", at);
        record.cells[0].details.client = Some(client.to_owned());
        record
    };
    let first = under("load, io_uring", 0.0);
    let same = merge(&[first.clone(), under("load, io_uring", 9.0)]).unwrap();
    assert_eq!(same.cells[0].verdict.level, Level::Valid);
    assert_eq!(same.cells[0].details.client.as_deref(), Some("load, io_uring"));
    let merged = merge(&[first, under("small, epoll", 9.0)]).unwrap();
    assert_eq!(merged.cells[0].details.client.as_deref(), Some("load, io_uring; small, epoll"));
    assert_eq!(merged.cells[0].verdict.level, Level::Suspect);
    assert!(merged.verdict.to_string().contains("different clients"), "{}", merged.verdict);
    // Said once, however many follow.
    let third = merge(&[from_file(&merged), under("small, epoll", 18.0)]).unwrap();
    assert_eq!(third.cells[0].verdict.reasons.len(), 1, "{}", third.cells[0].verdict);
}

#[test]
fn a_run_that_is_in_two_records_is_not_counted_twice() {
    let first = record("quick", vec![cell("base", [4.0, 4.1, 4.2])]);
    let twice = Err(MergeError::Twice("base/http-64".into()));
    assert_eq!(merge(&[first.clone(), first.clone()]), twice);
    let merged = merge(&[from_file(&once_more(&first)), from_file(&first)]).unwrap();
    assert_eq!(merge(&[from_file(&merged), from_file(&first)]), twice, "as blocks 3 to 5 of the other");
}

#[test]
fn what_is_steady_in_each_record_may_not_be_so_in_both() {
    let first = record("quick", vec![cell("base", [4.0; 3]), cell("mine", [4.0; 3])]);
    let mut second = once_more(&first);
    second.cells[0] = cell("base", [8.0; 3]);
    let merged = merge(&[from_file(&first), from_file(&second)]).unwrap();
    let doubts: Vec<String> = merged.cells[0].verdict.reasons.iter().map(ToString::to_string).collect();
    assert!(doubts.len() == 1 && doubts[0].starts_with("half of the runs lie more than"), "{doubts:?}");
    // Of the same kind there is one sentence, with the numbers of all runs.
    let mut third = once_more(&once_more(&first));
    third.cells[0] = cell("base", [7.0; 3]);
    let merged = merge(&[from_file(&merged), from_file(&third)]).unwrap();
    assert_eq!(merged.cells[0].verdict.reasons.len(), 1, "{}", merged.cells[0].verdict);
    assert_ne!(merged.cells[0].verdict.reasons[0].to_string(), doubts[0]);
}

#[test]
fn over_a_baseline_that_is_invalid_there_is_no_ratio() {
    let first = record("quick", vec![cell("base", [4.0; 3]), cell("mine", [8.0; 3])]);
    let mut second = once_more(&first);
    assert!(merge(&[first.clone(), second.clone()]).unwrap().cells[1].ratio.is_some());
    second.cells[0].verdict.add(Caveat::NothingMeasured);
    assert_eq!(merge(&[first, second]).unwrap().cells[1].ratio, None);
}

#[test]
fn a_claim_that_was_tested_in_one_record_is_not_lost_to_one_that_was_not() {
    use ringroad_measure::claim::{Claim, Outcome, Sense};
    let claim = |measured: Option<f64>| Claim {
        id: "000/x".into(),
        source: "000".into(),
        section: "s".into(),
        cell: None,
        what: "w".into(),
        quote: "1".into(),
        claimed: Some(1.0),
        unit: "ms".into(),
        sense: Sense::About,
        measured,
        interval: None,
        origin: None,
        by: None,
        scale: None,
        outcome: if measured.is_some() { Outcome::Reproduced } else { Outcome::Untestable },
        why: None,
        little: None,
    };
    let mut first = record("sources", vec![]);
    first.claims = vec![claim(None)];
    let mut second = first.clone();
    second.claims = vec![claim(Some(2.0))];
    for order in [[first.clone(), second.clone()], [second, first]] {
        assert_eq!(merge(&order).unwrap().claims[0].measured, Some(2.0));
    }
}

#[test]
fn one_record_is_itself() {
    let only = record("quick", vec![cell("base", [4.0; 3])]);
    assert_eq!(merge(std::slice::from_ref(&only)).unwrap(), only);
}
