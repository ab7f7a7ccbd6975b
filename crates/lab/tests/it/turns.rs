//! Runs side by side that take turns: which has the turn, and that each counts its own.

use crate::runs::{options, run, run_long_enough, suite};
use ringroad_lab::client::ClientReport;
use ringroad_lab::{RunOptions, Suite, runner};
use ringroad_measure::Caveat;
use ringroad_measure::record::Record;
use std::sync::atomic::AtomicBool;

/// A suite of these servers in turns of so many seconds.
fn by_turns(quirks: &[&str], turn_s: f64) -> Suite {
    let mut suite = suite(quirks, "");
    suite.turn_s = Some(turn_s);
    suite
}

/// Returns whether answers came in the turns of each cell of this program, so that none was run by itself.
fn has_turns(record: &Record, model: &str) -> bool {
    let cells = record.cells.iter().filter(|cell| cell.model == model);
    cells.flat_map(|cell| &cell.runs).all(|run| run.completed > 0 && run.alone.is_none())
}

#[test]
fn by_turns_a_run_is_as_long_as_it_should_be_and_both_sides_count_the_same() {
    let have_turns = |record: &Record| has_turns(record, "plain") && has_turns(record, "other");
    let record = run_long_enough(&by_turns(&["plain", "other"], 0.02), have_turns);
    assert_eq!(record.cells.len(), 4);
    for cell in &record.cells {
        assert_eq!(cell.errors.total(), 0, "{}", cell.verdict);
        assert_eq!(cell.sent, cell.completed, "{}", cell.id);
        assert_eq!(cell.details.turn_s, Some(0.02));
        assert!(cell.server.cpu_us_per_request.is_some_and(|cpu| cpu > 0.0));
        assert!(cell.server.rss_bytes.is_some_and(|rss| rss > 0));
        assert!(cell.latency_us.response.is_some());
        for run in &cell.runs {
            assert!(run.duration_s >= 0.2, "ten turns: {}", run.duration_s);
            assert_eq!(Some(run.client_count), run.server_count);
        }
    }
    // Those under one load ran side by side, and have places of their own in the block.
    let of = |model: usize| &record.cells[model].runs;
    for block in 0..2 {
        let end = |model: usize| of(model)[block].at_s + of(model)[block].duration_s;
        let apart = |model: usize| (end(0) - end(model)).abs();
        assert!(apart(1) < 1e-6, "they ended together: {}", apart(1));
        assert!(apart(2) > 0.2, "under another load it was another time: {}", apart(2));
        assert_ne!(of(0)[block].order, of(1)[block].order);
    }
}

/// What was on its way when a turn ended has waited for all the others' turns; none of it may be among the
/// latencies.
#[test]
fn no_latency_has_the_turns_of_others_in_it() {
    let mut suite = by_turns(&["plain", "other"], 1.0);
    (suite.repeats, suite.duration_s) = (1, 2.0);
    suite.loads.truncate(1);
    // Two others are in between, a second each, every time; a disturbed machine stands still that long once.
    let mut most_us = Vec::new();
    let is_without = (0..4).any(|_| {
        let record = run(&suite);
        most_us = record.cells.iter().map(|cell| cell.latency_us.response.unwrap().max).collect();
        most_us.iter().all(|most_us| *most_us < 1_500_000.0)
    });
    assert!(is_without, "{most_us:?} µs");
}

#[test]
fn a_server_that_dies_in_its_turn_is_invalid_and_the_others_go_on_taking_theirs() {
    let record = run_long_enough(&by_turns(&["plain", "die"], 0.02), |record| has_turns(record, "plain"));
    for cell in record.cells {
        let failed = cell.verdict.reasons.iter().any(|why| matches!(why, Caveat::ServerFailed { .. }));
        assert_eq!(failed, cell.model == "die", "{}: {}", cell.id, cell.verdict);
        let whole = cell.runs.iter().filter(|run| run.duration_s >= 0.2).count();
        assert_eq!(whole, if failed { 0 } else { 2 }, "{}", cell.id);
    }
}

/// Of one that takes its time to accept connections the others must notice nothing, and it is measured all
/// the same.
#[test]
fn a_program_too_slow_for_its_turns_runs_by_itself_and_the_others_keep_theirs() {
    let mut suite = by_turns(&["plain", "narrow"], 0.02);
    suite.repeats = 1;
    suite.loads.truncate(1);
    let record = run_long_enough(&suite, |record| has_turns(record, "plain"));
    for cell in &record.cells {
        assert_eq!((cell.errors.total(), cell.runs.len()), (0, 1), "{}: {}", cell.id, cell.verdict);
        let alone = cell.runs[0].alone.as_deref();
        let is_slow = alone.is_some_and(|why| why.contains("a turn of it took more than"));
        assert_eq!(is_slow, cell.model == "narrow", "{alone:?}: {cell:?}");
        assert_eq!(cell.details.turn_s, (cell.model == "plain").then_some(0.02), "{}", cell.id);
        let said = cell.verdict.to_string().contains("1 of 1 run was made by itself, not in turns");
        assert_eq!(said, cell.model == "narrow", "{}", cell.verdict);
    }
}

/// A program that closes silent connections does so while others have their turns. That is no failure of a
/// request.
#[test]
fn a_program_that_closes_its_connections_during_the_turns_of_others_is_run_again_by_itself() {
    let mut suite = by_turns(&["plain", "impatient"], 0.5);
    (suite.repeats, suite.duration_s) = (1, 1.0);
    suite.loads.truncate(1);
    let record = run_long_enough(&suite, |record| has_turns(record, "plain"));
    let cell = record.cells.iter().find(|cell| cell.model == "impatient").unwrap();
    assert_eq!(cell.errors.total(), 0, "{}", cell.verdict);
    assert!(cell.completed > 4 && cell.rps.is_some_and(|rps| rps > 0.0), "{cell:?}");
    let why = cell.runs[0].alone.as_deref().unwrap();
    assert!(why.contains("of 4 connections") || why.contains("no answer came"), "{why}");
    let plain = record.cells.iter().find(|cell| cell.model == "plain").unwrap();
    assert_eq!((plain.runs[0].alone.as_deref(), plain.errors.total()), (None, 0));
}

/// Clients that write down when each of their turns begins and ends: no two are ever in it.
#[test]
fn one_client_at_a_time_is_at_work_and_each_has_its_turn_before_any_has_its_next() {
    let folder = tempfile::tempdir().unwrap();
    let diary = folder.path().join("diary");
    let report = serde_json::to_string(&ClientReport {
        client: "a diarist".to_owned(),
        connected: 0,
        served: 0,
        sent: 0,
        completed: 0,
        answers: 0,
        bytes_sent: 0,
        bytes_received: 0,
        closed: 0,
        errors: Default::default(),
        first_error: None,
        payload_bytes: None,
        window: None,
    })
    .unwrap();
    let script = format!(
        "for turn in 1 2 3; do read word; echo \"in $$ $word\" >> {diary}; sleep 0.02; echo \"out $$\" >> {diary}; \
         [ $turn = 3 ] || echo over; done; echo '{report}'",
        diary = diary.display(),
    );
    let mut suite = by_turns(&["plain", "other"], 0.02);
    suite.repeats = 1;
    suite.loads.truncate(1);
    let client = vec!["sh".to_owned(), "-c".to_owned(), script];
    let options = RunOptions { client, ..options() };
    runner::run(&suite, &options, &mut (), &AtomicBool::new(false)).unwrap();
    let diary = std::fs::read_to_string(diary).unwrap();
    let lines: Vec<Vec<&str>> = diary.lines().map(|line| line.split(' ').collect()).collect();
    // Two servers, and the baseline again: three clients of three turns. None of them reports an answer, so
    // each runs once more by itself behind that.
    assert!(lines.len() >= 18, "{diary}");
    let lines = &lines[..18];
    let mut order = Vec::new();
    for turn in lines.chunks(2) {
        assert_eq!((turn[0][0], turn[0][2], turn[1][0]), ("in", "turn", "out"), "{diary}");
        assert_eq!(turn[0][1], turn[1][1], "one's turn ends before another's begins: {diary}");
        order.push(turn[0][1]);
    }
    assert!(order[0] != order[1] && order[1] != order[2] && order[0] != order[2], "{diary}");
    assert_eq!((&order[..3], &order[..3]), (&order[3..6], &order[6..]), "round and round: {diary}");
}

#[test]
fn turns_are_refused_where_they_would_measure_something_else() {
    let text = |load: &str| {
        format!(
            "title = \"t\"\nduration_s = 1\nrepeats = 6\nturn_s = 0.02\n[[server]]\nid = \"a\"\n\
             command = [\"a\", \"{{port}}\"]\nready = \"connect\"\nprotocols = [\"http\"]\n[[load]]\nid = \"l\"\n\
             protocol = \"http\"\nconnections = [4]\n{load}\n"
        )
    };
    let refusal =
        |load: &str| Suite::parse(&text(load), "t.toml", "t", None).map_err(|error| error.to_string());
    assert_eq!(refusal("").unwrap().turn_s, Some(0.02));
    let wrk = refusal("client = \"wrk\"").unwrap_err();
    assert!(wrk.contains("t.toml:4") && wrk.contains("turn_s") && wrk.contains("l-4"), "{wrk}");
    let copier = text("")
        .replace("command = [\"a\", \"{port}\"]", "command = [\"a\", \"{source}\", \"{target}\"]")
        .replace("\"connect\"", "\"end\"")
        .replace("\"http\"", "\"files\"")
        .replace("connections = [4]", "tree = { dataset = \"mnist\" }");
    let copier = Suite::parse(&copier, "t.toml", "t", None).unwrap_err().to_string();
    assert!(copier.contains("t.toml:4") && copier.contains("copiers"), "{copier}");
}
