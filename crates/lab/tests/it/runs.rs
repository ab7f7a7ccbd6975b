//! Whole runs with child processes: the example `tiny` is the server and the client.

use crate::over::Over;
use ringroad_lab::pin::{Cores, Pinned};
use ringroad_lab::suite::Client;
use ringroad_lab::{Error, Event, RunOptions, Suite, runner};
use ringroad_measure::record::Record;
use ringroad_measure::{Caveat, Level};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// The example that `cargo test` builds beside the tests. With a test's name on the command line cargo leaves
/// examples as they are: then `cargo build -p ringroad-lab --example tiny` first, or an older one is run.
fn tiny() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let path = own.ancestors().nth(2).unwrap().join("examples/tiny");
    assert!(path.exists(), "{} is not built: run `cargo test -p ringroad-lab` whole", path.display());
    path
}

pub(crate) fn options() -> RunOptions {
    let tiny = tiny();
    RunOptions {
        client: vec![tiny.to_string_lossy().into_owned(), "client".to_owned()],
        command: vec!["tiny".to_owned()],
        seed: Some(11),
        // The load generator is not this crate's.
        client_override: Some(Client::Small),
        ..RunOptions::of(tiny)
    }
}

/// A suite of one server per quirk, named after it, on both protocols.
pub(crate) fn suite(quirks: &[&str], more: &str) -> Suite {
    let text = format!(
        r#"title = "quirks"
warmup_s = 0.05
duration_s = 0.2
syscalls_s = 0.05
repeats = 2
baseline = "{}"
control = true
[[server]]
each = {quirks:?}
id = "{{each}}"
command = ["{{ringroad}}", "server", "{{protocol}}", "127.0.0.1:0", "{{each}}"]
ready = "listening on {{addr}}"
protocols = ["http", "echo"]
totals = true
{more}
[[load]]
id = "http"
protocol = "http"
connections = [4]
timeout_s = 60
[[load]]
id = "echo"
protocol = "echo"
connections = [4]
timeout_s = 60
"#,
        quirks[0]
    );
    Suite::parse(&text, "t.toml", "t", None).unwrap()
}

pub(crate) fn run(suite: &Suite) -> Record {
    runner::run(suite, &options(), &mut (), &AtomicBool::new(false)).unwrap()
}

/// Runs a suite, and again with windows five times as long, twice at most, where a busy machine has left this
/// one too little for `has_enough`.
pub(crate) fn run_long_enough(suite: &Suite, has_enough: impl Fn(&Record) -> bool) -> Record {
    let mut suite = suite.clone();
    for _ in 0..2 {
        let record = run(&suite);
        if has_enough(&record) {
            return record;
        }
        suite.duration_s *= 5.0;
    }
    run(&suite)
}

/// The processes with `mark` in their command line.
fn processes_with(mark: &str) -> Vec<String> {
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| {
            let line = std::fs::read_to_string(entry.path().join("cmdline")).ok()?;
            line.contains(mark).then(|| format!("{:?}: {line:?}", entry.file_name()))
        })
        .collect()
}

#[test]
fn a_whole_run_counts_the_same_on_both_sides_and_fills_the_record() {
    let has_answers =
        |record: &Record| record.cells.iter().flat_map(|cell| &cell.runs).all(|run| run.completed > 0);
    let record = run_long_enough(&suite(&["plain"], ""), has_answers);
    assert_eq!(record.cells.len(), 2);
    assert_eq!(record.blocks, 2);
    assert_eq!(record.command, ["tiny", "--seed", "11"]);
    assert!(record.control.is_empty(), "of two blocks there is no interval, so no noise floor");
    assert!(record.harness_cpu_share.is_some());
    assert!(record.host.contains_key("pinning"));
    for cell in &record.cells {
        assert_eq!(cell.skipped, None);
        assert_eq!(cell.errors.total(), 0, "{}", cell.verdict);
        assert_eq!(cell.sent, cell.completed, "{}", cell.id);
        assert_eq!(cell.runs.len(), 2);
        assert!(cell.server.cpu_us_per_request.is_some_and(|cpu| cpu > 0.0));
        assert!(cell.server.rss_bytes.is_some_and(|rss| rss > 0));
        assert!(cell.latency_us.response.is_some());
        // Of the machine, a doubt may well be left: others may have used it meanwhile.
        let of_the_machine = |why: &Caveat| {
            matches!(why, Caveat::Steal { .. } | Caveat::LittlesLaw { .. } | Caveat::ClientStarved { .. })
        };
        let wrong =
            cell.verdict.reasons.iter().find(|why| why.level() == Level::Invalid && !of_the_machine(why));
        assert_eq!(wrong, None, "{}: {}", cell.id, cell.verdict);
        for run in &cell.runs {
            assert_eq!(Some(run.client_count), run.server_count);
        }
    }
    assert_eq!((record.cells[0].payload_bytes, record.cells[1].payload_bytes), (20, 64));
    let text = serde_json::to_string(&record).unwrap();
    assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
}

#[test]
fn a_server_that_counts_otherwise_makes_its_cells_invalid() {
    for cell in run(&suite(&["miscount"], "")).cells {
        assert_eq!(cell.verdict.level, Level::Invalid);
        assert!(
            cell.verdict.reasons.iter().any(|c| matches!(c, Caveat::CountsDiffer { .. })),
            "{}",
            cell.verdict
        );
    }
}

#[test]
fn a_server_that_dies_under_load_is_invalid_and_the_others_still_run() {
    let record = run(&suite(&["plain", "die"], ""));
    for cell in record.cells {
        let failed = cell.verdict.reasons.iter().find(|c| matches!(c, Caveat::ServerFailed { .. }));
        if cell.model == "die" {
            let text = failed.unwrap().to_string();
            assert!(text.contains("code 7") && text.contains("out of luck"), "{text}");
            assert_eq!(cell.rps, None, "nothing was measured, which is not a rate of 0");
        } else {
            assert!(failed.is_none(), "{}", cell.verdict);
        }
    }
}

#[test]
fn a_server_that_prints_no_totals_has_failed() {
    let record = run(&suite(&["mute"], ""));
    assert_eq!(record.verdict.level, Level::Invalid);
    assert!(record.verdict.to_string().contains("no totals"), "{}", record.verdict);
}

#[test]
fn a_program_that_is_missing_or_unusable_is_a_skipped_cell() {
    let missing = r#"
[[server]]
id = "missing"
command = ["no-such-program-here", "{addr}"]
ready = "connect"
protocols = ["http"]
"#;
    let record = run(&suite(&["plain", "unusable"], missing));
    let skipped = |id: &str| record.cells.iter().find(|c| c.id == id).unwrap().skipped.clone();
    assert_eq!(skipped("plain/http-4"), None);
    assert!(skipped("missing/http-4").unwrap().contains("no-such-program-here"));
    assert!(skipped("unusable/http-4").unwrap().contains("switched off"));
    assert!(skipped("unusable/echo-4").is_some());
}

#[test]
fn events_tell_of_every_run_in_order() {
    let suite = suite(&["plain"], "");
    let (mut started, mut done, mut finished) = (0, Vec::new(), None);
    let mut observer = |event: &Event<'_>| match event {
        Event::RunStarted { .. } => started += 1,
        Event::RunDone { done: so_far, total, .. } => done.push((*so_far, *total)),
        Event::Finished { interrupted, blocks } => finished = Some((*interrupted, *blocks)),
        _ => {}
    };
    runner::run(&suite, &options(), &mut observer, &AtomicBool::new(false)).unwrap();
    assert_eq!(started, 8);
    assert_eq!(done, (1..=8).map(|n| (n, 8)).collect::<Vec<_>>());
    assert_eq!(finished, Some((false, 2)));
}

#[test]
fn an_interrupted_run_returns_what_was_done_and_leaves_no_process() {
    // The quirk's name marks these processes among those of other tests.
    let mark = format!("plain-{}", std::process::id());
    let mut suite = suite(&[&mark], "");
    suite.duration_s = 30.0;
    suite.repeats = 3;
    let stop = AtomicBool::new(false);
    let record = std::thread::scope(|scope| {
        scope.spawn(|| {
            let _over = Over(&stop);
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(120);
            while processes_with(&mark).is_empty() && std::time::Instant::now() < deadline {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            assert!(!processes_with(&mark).is_empty(), "the server must be running to be interrupted");
        });
        runner::run(&suite, &options(), &mut (), &stop).unwrap()
    });
    assert_eq!(processes_with(&mark), Vec::<String>::new());
    assert_eq!(record.blocks, 0);
    assert!(record.verdict.reasons.iter().any(|c| matches!(c, Caveat::Interrupted { done: 0, planned: 3 })));
    assert_eq!(record.cells.len(), 2, "cells that never ran are present");
    let runs: usize = record.cells.iter().map(|cell| cell.runs.len()).sum();
    assert_eq!(runs, 0, "the run in progress was cut off, not waited for");
}

/// A program of the simplest kind closes after each answer. It is measured with a connection for each
/// request.
#[test]
fn a_program_that_closes_after_each_answer_is_measured_and_the_record_says_so() {
    for turn_s in [None, Some(0.05)] {
        let mut suite = suite(&["plain", "closes"], "");
        suite
            .servers
            .iter_mut()
            .filter(|server| server.id == "closes")
            .for_each(|server| server.totals = false);
        (suite.turn_s, suite.repeats) = (turn_s, 1);
        suite.loads.truncate(1);
        let goes_on = |record: &Record| record.cells.iter().all(|cell| cell.completed > 4);
        let record = run_long_enough(&suite, goes_on);
        let cell = record.cells.iter().find(|cell| cell.model == "closes").unwrap();
        assert_eq!(cell.errors.total(), 0, "{turn_s:?}: {}", cell.verdict);
        assert!(cell.completed > 4 && cell.details.closes, "{turn_s:?}: {cell:?}");
        let failed = cell.verdict.reasons.iter().find(|why| matches!(why, Caveat::Closed { .. }));
        assert_eq!(failed, None, "a close after each answer is expected");
        let plain = record.cells.iter().find(|cell| cell.model == "plain").unwrap();
        assert!(!plain.details.closes && plain.errors.total() == 0, "{turn_s:?}: {}", plain.verdict);

        suite.loads[0].pipeline = 2;
        let record = run(&suite);
        let cell = record.cells.iter().find(|cell| cell.model == "closes").unwrap();
        assert!(cell.skipped.as_ref().is_some_and(|why| why.contains("stay open")), "{:?}", cell.skipped);
    }
}

/// Others on the client's core take what it needs: that is no property of the server, and is said.
#[test]
fn a_client_whose_core_is_taken_by_others_is_called_starved() {
    let cores = Cores::of_this_process().unwrap();
    let over = AtomicBool::new(false);
    let record = std::thread::scope(|scope| {
        let _over = Over(&over);
        for _ in 0..4 {
            scope.spawn(|| {
                let _pinned = Pinned::to(&cores.client).unwrap();
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        run(&suite(&["eager"], ""))
    });
    for cell in &record.cells {
        let starved = cell.verdict.reasons.iter().any(|why| matches!(why, Caveat::ClientStarved { .. }));
        // A run that gave nothing is worse, and says so.
        assert!(starved || cell.verdict.level == Level::Invalid, "{}: {}", cell.id, cell.verdict);
    }
}

#[test]
fn a_client_that_does_not_work_is_an_error_with_its_words() {
    let broken = RunOptions {
        client: vec![tiny().to_string_lossy().into_owned(), "nonsense".to_owned()],
        ..options()
    };
    let error = runner::run(&suite(&["plain"], ""), &broken, &mut (), &AtomicBool::new(false)).unwrap_err();
    assert!(matches!(error, Error::Client { .. }));
    assert!(error.to_string().contains("usage"), "{error}");
}

#[test]
fn a_plan_over_its_budget_is_refused_before_anything_runs() {
    let mut suite = suite(&["plain"], "");
    suite.budget_s = Some(1.0);
    let error = runner::run(&suite, &options(), &mut (), &AtomicBool::new(false)).unwrap_err();
    assert!(error.to_string().contains("budget_s"), "{error}");
}

#[test]
fn a_load_that_needs_more_cpus_than_the_server_has_is_skipped_and_says_so() {
    let mut suite = suite(&["plain"], "");
    suite.loads[0].cores = 10_000;
    let mut planned = None;
    let mut observer = |event: &Event<'_>| {
        if let Event::Planned { runs, .. } = event {
            planned = Some(*runs);
        }
    };
    let record = runner::run(&suite, &options(), &mut observer, &AtomicBool::new(false)).unwrap();
    assert_eq!(planned, Some(4), "the other load, twice for the control, in two blocks");
    assert!(
        record.cells[0].skipped.as_ref().unwrap().contains("needs 10000 CPUs"),
        "{:?}",
        record.cells[0].skipped
    );
    assert_eq!(record.cells[1].skipped, None);
}

#[test]
fn a_part_of_the_connections_and_a_connection_per_request_are_told_in_the_record() {
    let mut suite = suite(&["plain"], "");
    suite.loads[1].active = 1;
    let record = run(&suite);
    assert_eq!((record.cells[0].active_share, record.cells[1].active_share), (1.0, 0.25));
    assert_eq!(record.cells[1].errors.total(), 0, "{}", record.cells[1].verdict);
    let cell = &record.cells[0];
    assert!(cell.server.rss_growth_bytes.is_some() && cell.runs[0].rss_bytes.is_some());
}

#[test]
fn a_page_of_its_own_is_no_wrong_answer_but_pages_that_differ_are() {
    let mut suite = suite(&["plain"], "");
    suite.loads[0].body = Some("<p>another</p>".to_owned());
    let wrong = run(&suite);
    assert_eq!(wrong.cells[0].verdict.level, Level::Invalid);
    suite.servers[0].own_page = true;
    let record = run(&suite);
    assert_eq!(record.cells[0].errors.total(), 0, "{}", record.cells[0].verdict);
    assert_eq!(record.cells[0].payload_bytes, 20);
}

/// Runs it with a journal and asks for the stop once `runs` runs are done.
fn stopped_after(suite: &Suite, journal: &std::path::Path, runs: u32) -> Record {
    let stop = AtomicBool::new(false);
    let mut observer = |event: &Event<'_>| {
        if let Event::RunDone { done, .. } = event
            && *done >= runs
        {
            stop.store(true, Ordering::SeqCst);
        }
    };
    let options = RunOptions { journal: Some(journal.to_owned()), ..options() };
    runner::run(suite, &options, &mut observer, &stop).unwrap()
}

#[test]
fn what_was_stopped_goes_on_from_its_last_whole_block() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal.jsonl");
    let mut suite = suite(&["plain", "unusable"], "");
    suite.repeats = 3;
    // Two programs and a control under two loads; one program is skipped: six places in a block, of which the
    // first block tries all.
    let first = stopped_after(&suite, &journal, 8);
    assert_eq!(first.blocks, 1, "the second block was cut");
    let text = std::fs::read_to_string(&journal).unwrap();
    // As if the machine had gone down in the middle of a line, and of a character.
    let mut torn = text.into_bytes();
    torn.extend(b"{\"failed\":{\"cell\":0,\"how\":\"\xc2");
    std::fs::write(&journal, torn).unwrap();

    let (mut started, mut planned) = (Vec::new(), None);
    let mut observer = |event: &Event<'_>| match event {
        Event::RunStarted { block, .. } => started.push(*block),
        Event::Planned { runs, .. } => planned = Some(*runs),
        _ => {}
    };
    let record = runner::resume(&journal, &options(), &mut observer, &AtomicBool::new(false)).unwrap();
    assert!(
        started.iter().all(|block| *block >= 1) && started.contains(&1) && started.contains(&2),
        "{started:?}"
    );
    assert_eq!(record.blocks, 3);
    assert_eq!(
        (record.command.as_slice(), record.started.as_str()),
        (first.command.as_slice(), first.started.as_str())
    );
    for cell in record.cells.iter().filter(|cell| cell.skipped.is_none()) {
        let blocks: Vec<u32> = cell.runs.iter().map(|run| run.block).collect();
        assert_eq!(blocks, [0, 1, 2], "{}", cell.id);
        let before = first.cells.iter().find(|before| before.id == cell.id).unwrap();
        assert_eq!(cell.runs[0], before.runs[0], "what was measured before is in it as it was");
        assert!(cell.latency_us.response.is_some());
        assert!(cell.runs.windows(2).all(|pair| pair[0].at_s < pair[1].at_s), "{}", cell.id);
    }
    assert!(record.cells.iter().any(|cell| cell.skipped.is_some()));
    assert!(!record.verdict.reasons.iter().any(|why| matches!(why, Caveat::Interrupted { .. })));
    // Gone on with, it can be stopped and gone on with again: the journal is whole.
    let again = runner::resume(&journal, &options(), &mut (), &AtomicBool::new(false)).unwrap();
    assert_eq!(again.cells, record.cells, "nothing was left to do");
}

#[test]
fn a_journal_of_another_machine_or_none_at_all_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal.jsonl");
    let resume = || {
        let error = runner::resume(&journal, &options(), &mut (), &AtomicBool::new(false)).unwrap_err();
        assert!(matches!(error, Error::Journal { .. }), "{error}");
        error.to_string()
    };
    assert!(resume().contains("No such file"));
    std::fs::write(&journal, "").unwrap();
    assert!(resume().contains("empty"));
    std::fs::write(&journal, "hello\n").unwrap();
    assert!(resume().contains("not that of a journal"));
    stopped_after(&suite(&["plain"], ""), &journal, 1);
    let text = std::fs::read_to_string(&journal).unwrap();
    let begun = text.lines().next().unwrap();
    std::fs::write(&journal, format!("{begun}\nnonsense\n{{\"block\":0}}\n")).unwrap();
    assert!(resume().contains("line 2"));
    let mut rebuilt: serde_json::Value = serde_json::from_str(begun).unwrap();
    assert!(rebuilt["host"]["ringroad_build"].is_string(), "{rebuilt}");
    rebuilt["host"]["ringroad_build"] = "0123456789abcdef".into();
    std::fs::write(&journal, format!("{rebuilt}\n")).unwrap();
    assert!(resume().contains("was rebuilt since"));
    let mut elsewhere: serde_json::Value = serde_json::from_str(begun).unwrap();
    elsewhere["host"]["kernel"] = "1.0".into();
    std::fs::write(&journal, format!("{elsewhere}\n")).unwrap();
    assert!(resume().contains("kernel"));
    elsewhere["version"] = "0.0.0".into();
    std::fs::write(&journal, format!("{elsewhere}\n")).unwrap();
    assert!(resume().contains("version 0.0.0"));
}
