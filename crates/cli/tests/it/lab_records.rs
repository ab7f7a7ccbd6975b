//! What is done with records once they are there: compared, merged, drawn together, gone on with; the list of
//! suites; and a program of the user's as a row. Figures are not looked at: a window lasts a tenth of a
//! second.

use crate::support::{
    BINARY, Kill, Lines, installed, own_copy, processes_with, put_script, ringroad, run, run_with_input,
};
use ringroad_measure::Verdict;
use ringroad_measure::caveat::{Caveat, Level};
use ringroad_measure::record::Record;
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A suite of two programs under one load; nothing in it takes long.
fn suite(folder: &Path) -> PathBuf {
    let path = folder.join("small.toml");
    let text = r#"title = "small"
warmup_s = 0.0
duration_s = 0.1
syscalls_s = 0.0
repeats = 2
baseline = "epoll-et"
[[server]]
each = ["epoll-et", "poll"]
id = "{each}"
command = ["{ringroad}", "lab", "server", "--model", "{each}", "--protocol", "{protocol}", "{arguments}"]
ready = "listening on {addr}"
protocols = ["http"]
totals = true
[[load]]
id = "http"
protocol = "http"
connections = [4]
body = "<h1>Hello World</h1>"
timeout_s = 30
[[load]]
id = "busy"
protocol = "http"
connections = [4]
arguments = ["--work-us", "5", "--workers", "2"]
timeout_s = 30
"#;
    fs::write(&path, text).unwrap();
    path
}

fn record_in(folder: &Path) -> Record {
    serde_json::from_str(&fs::read_to_string(folder.join("record.json")).unwrap()).unwrap()
}

#[test]
fn suites_are_listed_with_what_they_ask_and_each_can_be_named() {
    let list = run(&mut ringroad(["lab", "suites"]));
    assert_eq!((list.code, list.stderr.as_str()), (Some(0), ""));
    let text = list.text();
    let quick: Vec<&str> = text.lines().find(|line| line.starts_with("quick ")).unwrap().split(' ').collect();
    assert!(quick.contains(&"s") && !quick.contains(&"min"), "two and a half minutes are not two: {quick:?}");
    for name in
        ["quick", "models", "active-share", "payload", "pipeline", "churn", "idle", "work", "experiments"]
    {
        assert!(text.lines().any(|line| line.starts_with(&format!("{name} "))), "{name}: {text}");
        // A program that is in no suite: so it is known that the suite was found, and nothing is run.
        let named = run(&mut ringroad(["lab", "run", name, "--only", "kqueue"]));
        assert_eq!(named.code, Some(2), "{named:?}");
        assert!(named.stderr.contains(&format!("not in suite {name}")), "{named:?}");
    }
}

/// A record in which nothing was measured.
const RECORD: &str = r#"{"schema": "ringroad.record/1", "tool": "lab", "version": "0.1.0", "host": {}, "cells": [],
    "command": ["ringroad", "lab"], "started": "2026-11-20T19:12:03Z", "verdict": {"level": "VALID", "reasons": []}}"#;

#[test]
fn a_page_has_the_name_of_its_record_and_replaces_nothing_but_an_earlier_one() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let report =
        |words: &[&str]| run(ringroad(["lab", "report"].iter().chain(words)).current_dir(folder.path()));
    for (record, page) in [("run.json", "run.html"), ("record.json", "report.html"), ("report.json", "")] {
        fs::write(at(record), RECORD).unwrap();
        for _ in 0..2 {
            let outcome = report(&[record]);
            // A name that two records have is the first one's.
            assert_eq!(outcome.code, Some(u8::from(page.is_empty()).into()), "{record}: {outcome:?}");
            if page.is_empty() {
                let why =
                    "report.html is there and was not made from report.json (--out FILE writes it elsewhere)";
                assert!(outcome.stderr.contains(why) && !outcome.stdout.is_empty(), "{outcome:?}");
            } else {
                assert!(outcome.text().ends_with(&format!("\npage:   {page}\n")), "{outcome:?}");
            }
        }
    }
    fs::write(at("run.html"), "mine").unwrap();
    for verb in ["report", "open"] {
        let refused =
            run(ringroad(["lab", verb, "run.json"]).env("BROWSER", "true").current_dir(folder.path()));
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stderr.contains("run.html is there"), "{refused:?}");
        assert_eq!(fs::read_to_string(at("run.html")).unwrap(), "mine");
    }
    // What is named is written.
    assert_eq!(report(&["run.json", "--out", "run.html"]).code, Some(0));
    let page = fs::read_to_string(at("run.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>"), "{page}");
    // A page of a run that was made before pages named their record.
    let old: String = page.lines().filter(|line| !line.contains("ringroad-record")).collect();
    assert!(old.len() < page.len(), "{page}");
    fs::write(at("report.html"), old).unwrap();
    assert_eq!(report(&["record.json"]).code, Some(0));
    let piped = |words: &[&str]| {
        let words = ["lab", "report", "/dev/stdin"].iter().chain(words);
        run_with_input(ringroad(words).current_dir(folder.path()), RECORD.as_bytes())
    };
    let outcome = piped(&[]);
    assert!(outcome.code == Some(0) && outcome.text().contains("page:   none: "), "{outcome:?}");
    assert!(!Path::new("/dev/stdin.html").exists());
    assert_eq!(piped(&["--out", "piped.html"]).code, Some(0));
    assert!(at("piped.html").exists());
}

#[test]
fn the_page_that_is_opened_is_that_of_the_record_as_it_is_now() {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("run.json");
    let opened = |tool: &str| {
        fs::write(&record, RECORD.replace("\"tool\": \"lab\"", &format!("\"tool\": \"{tool}\""))).unwrap();
        let outcome = run(ringroad(["lab", "open"]).arg(&record).env("BROWSER", "true"));
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        fs::read_to_string(folder.path().join("run.html")).unwrap()
    };
    assert!(opened("lab").contains("<title>ringroad lab</title>"));
    // An older page, whatever the clock of the file system can tell apart.
    let old = fs::OpenOptions::new().write(true).open(folder.path().join("run.html")).unwrap();
    old.set_modified(std::time::UNIX_EPOCH).unwrap();
    assert!(opened("load").contains("<title>ringroad load</title>"));
}

#[test]
fn a_plan_says_what_would_run_and_how_long_and_runs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (path, out) = (suite(folder.path()), folder.path().join("out"));
    let told = run(ringroad(["lab", "run", "--plan", "--repeats", "7", "--out"]).arg(&out).arg(&path));
    assert_eq!((told.code, told.stderr.as_str()), (Some(0), ""));
    assert!(
        told.text().contains(" in 7 blocks, about ") && told.text().contains("busy-4"),
        "{}",
        told.text()
    );
    assert!(!out.exists(), "a plan leaves nothing behind");
}

#[test]
fn records_are_compared_merged_and_drawn_together() {
    let folder = tempfile::tempdir().unwrap();
    let path = suite(folder.path());
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    for out in [&one, &two] {
        let outcome = run(ringroad(["lab", "run", "--seed", "1", "--out"]).arg(out).arg(&path));
        assert!(matches!(outcome.code, Some(0 | 5)), "{outcome:?}");
        assert!(!out.join("journal.jsonl").exists(), "everything is in the record");
    }
    let record = record_in(&one);
    let busy = record.cells.iter().find(|cell| cell.load == "busy-4").unwrap();
    assert_eq!(busy.variant.as_deref(), Some("--work-us 5 --workers 2"));
    assert_eq!(busy.runs[0].server_count, Some(busy.runs[0].client_count), "both workers' counts");

    let compared = run(ringroad(["lab", "compare"]).arg(&one).arg(two.join("record.json")));
    // A busy machine may make cells INVALID, which are not compared.
    let invalid = |record: &Record| record.cells.iter().any(|cell| cell.verdict.level == Level::Invalid);
    let code = if invalid(&record) || invalid(&record_in(&two)) { 5 } else { 0 };
    assert_eq!((compared.code, compared.stderr.as_str()), (Some(code), ""), "{compared:?}");
    let text = compared.text();
    assert!(text.contains("ratio to epoll-et") && text.contains("poll/http-4"), "{text}");
    let absolute = run(ringroad(["lab", "compare", "--absolute", "--figure", "p99"]).arg(&one).arg(&two));
    assert!(absolute.text().contains("figures as they are"), "{absolute:?}");

    let both = folder.path().join("both.json");
    let merged = run(ringroad(["lab", "merge", "--out"]).arg(&both).arg(&one).arg(&two));
    assert_eq!((merged.code, merged.stderr.as_str()), (Some(0), ""), "{merged:?}");
    let sum: Record = serde_json::from_str(&fs::read_to_string(&both).unwrap()).unwrap();
    let (mine, theirs) = (record_in(&one), record_in(&two));
    for ((sum, mine), theirs) in sum.cells.iter().zip(&mine.cells).zip(&theirs.cells) {
        assert_eq!(sum.runs.len(), mine.runs.len() + theirs.runs.len());
        assert_eq!(sum.completed, mine.completed + theirs.completed);
    }
    let page = folder.path().join("both.html");
    let report = run(ringroad(["lab", "report", "--out"]).arg(&page).arg(&one).arg(&two));
    assert_eq!(report.code, Some(0), "{report:?}");
    assert!(fs::read_to_string(&page).unwrap().contains("poll"));
    let nowhere = run(ringroad(["lab", "report"]).arg(&one).arg(&two));
    assert_eq!(nowhere.code, Some(2), "{nowhere:?}");
    assert!(nowhere.stderr.contains("--out"), "{nowhere:?}");
}

#[test]
fn comparing_exits_with_a_code_of_its_own_where_a_cell_is_invalid_or_none_was_compared() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, record: &Record| {
        let file = folder.path().join(name);
        fs::write(&file, serde_json::to_string(record).unwrap()).unwrap();
        file
    };
    // One that was kept.
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results/floor/record.json");
    let mut good: Record = serde_json::from_str(&fs::read_to_string(kept).unwrap()).unwrap();
    good.cells.iter_mut().for_each(|cell| cell.verdict = Verdict::valid());
    let mut bad = good.clone();
    bad.cells[1].verdict = Verdict::of([Caveat::NothingMeasured]);
    let mut other = good.clone();
    other.cells.iter_mut().for_each(|cell| cell.id.push_str("-of-another-suite"));
    let (good, bad, other) = (write("good", &good), write("bad", &bad), write("other", &other));
    for (second, code, words) in [
        (&good, 0, "second record against the first"),
        (&bad, 5, "not compared: it is INVALID in the second record"),
        (&other, 1, "not compared: only in the second record"),
    ] {
        let compared = run(ringroad(["lab", "compare"]).arg(&good).arg(second));
        assert_eq!(compared.code, Some(code), "{compared:?}");
        assert!(compared.text().contains(words), "{compared:?}");
    }
}

#[test]
fn records_that_are_none_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let good = folder.path().join("no.json");
    fs::write(&good, "{}").unwrap();
    for arguments in [vec!["compare"], vec!["merge", "--out", "/nowhere/at/all"]] {
        let outcome = run(ringroad(["lab"]).args(&arguments).arg(&good).arg("/nowhere.json"));
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        assert!(outcome.stderr.contains("no.json") && outcome.stderr.contains("not a record"), "{outcome:?}");
    }
}

#[test]
fn a_program_of_the_users_is_a_row_beside_the_suites() {
    if !installed("python3") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = suite(folder.path());
    let site = folder.path().join("site");
    fs::create_dir(&site).unwrap();
    fs::write(site.join("index.html"), "<p>mine</p>").unwrap();
    let mine = format!(
        "mine=python3 -u -m http.server --protocol HTTP/1.1 --bind 127.0.0.1 --directory '{}' {{port}}",
        site.display()
    );
    let only = "poll";
    let out = folder.path().join("out");
    let outcome = run(ringroad(["lab", "run", "--repeats", "1", "--only", only, "--with", &mine, "--out"])
        .arg(&out)
        .arg(&path));
    assert!(matches!(outcome.code, Some(0 | 5)), "{outcome:?}");
    let record = record_in(&out);
    let cell = |id: &str| record.cells.iter().find(|cell| cell.id == id).unwrap();
    assert_eq!(
        (cell("mine/http-4").errors.total(), cell("mine/http-4").payload_bytes),
        (0, 11),
        "{outcome:?}"
    );
    assert!(cell("mine/http-4").completed > 0 && cell("poll/http-4").completed > 0);
    assert!(cell("mine/busy-4").skipped.as_ref().unwrap().contains("cannot get"), "{outcome:?}");
    let wrong = run(&mut ringroad(["lab", "--with", "mine=./server"]));
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert!(wrong.stderr.contains("{port}"), "{wrong:?}");
}

/// A script that starts a server of ours, as a program that is not ours.
fn script(path: &Path, comment: &str) {
    let text = format!("#!/bin/sh\n# {comment}\nexec '{BINARY}' lab server --model poll --listen \"$1\"\n");
    put_script(path, &text);
}

#[test]
fn a_plan_says_why_an_added_program_sits_out() {
    let told = run(&mut ringroad([
        "lab",
        "run",
        "active-share",
        "--only",
        "epoll-et",
        "--with",
        "mine=./server {port}",
        "--plan",
    ]));
    assert_eq!(told.code, Some(0), "{told:?}");
    let text = told.text();
    assert!(text.contains("not mine: HTTP only (add {protocol} to the command"), "{text}");
}

#[test]
fn two_programs_of_one_name_are_merged_with_a_doubt() {
    let folder = tempfile::tempdir().unwrap();
    let path = suite(folder.path());
    let outs = ["a", "b"].map(|name| {
        let tool = folder.path().join(name);
        script(&tool, name);
        let out = folder.path().join(format!("out-{name}"));
        let mine = format!("mine={} {{addr}}", tool.display());
        let outcome =
            run(ringroad(["lab", "run", "--repeats=1", "--only=epoll-et", "--with", &mine, "--out"])
                .arg(&out)
                .arg(&path));
        assert!(matches!(outcome.code, Some(0 | 5)), "{outcome:?}");
        out
    });
    let both = folder.path().join("both.json");
    let merged = run(ringroad(["lab", "merge", "--out"]).arg(&both).args(&outs));
    assert_eq!(merged.code, Some(0), "{merged:?}");
    let sum: Record = serde_json::from_str(&fs::read_to_string(&both).unwrap()).unwrap();
    for cell in sum.cells.iter().filter(|cell| cell.load == "http-4") {
        let said = cell.verdict.to_string();
        assert_eq!(
            said.contains("different programs of one name"),
            cell.model == "mine",
            "{}: {said}",
            cell.id
        );
    }
}

#[test]
fn a_run_whose_program_was_changed_meanwhile_is_not_gone_on_with() {
    let folder = tempfile::tempdir().unwrap();
    let path = suite(folder.path());
    let (tool, out) = (folder.path().join("tool.sh"), folder.path().join("out"));
    script(&tool, "first");
    let mine = format!("mine={} {{addr}}", tool.display());
    let mut command =
        ringroad(["lab", "run", "-v", "--repeats=1000", "--only=epoll-et", "--with", &mine, "--out"]);
    command.arg(&out).arg(&path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut process = Kill(command.spawn().unwrap());
    let errors = Lines::of(process.0.stderr.take().unwrap());
    while !errors.next().unwrap().contains("block 2") {}
    process.signal(Signal::INT);
    assert_eq!(process.wait(), Some(130));
    let journal = fs::read_to_string(out.join("journal.jsonl")).unwrap();
    script(&tool, "second");
    let resumed = run(ringroad(["lab", "run", "--resume"]).arg(&out));
    assert_eq!(resumed.code, Some(1), "{resumed:?}");
    assert!(resumed.stderr.contains("mine is not the program the run was started with"), "{resumed:?}");
    assert_eq!(
        fs::read_to_string(out.join("journal.jsonl")).unwrap(),
        journal,
        "what was done is still there"
    );
}

#[test]
fn an_interrupted_run_goes_on_where_it_was_and_ends_as_a_whole_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = suite(folder.path());
    let copy = own_copy(folder.path());
    let out = folder.path().join("out");
    let mut command = Command::new(&copy);
    command.args(["lab", "run", "-v", "--repeats=1000", "--out"]).arg(&out).arg(&path);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut process = Kill(command.spawn().unwrap());
    let errors = Lines::of(process.0.stderr.take().unwrap());
    // The second block has begun: the first is whole.
    while !errors.next().unwrap().contains("block 2") {}
    process.signal(Signal::INT);
    assert_eq!(process.wait(), Some(130));
    assert!(errors.rest().iter().any(|line| line.contains("--resume")));
    assert!(out.join("journal.jsonl").exists());
    let part = record_in(&out);
    assert!(part.blocks >= 1, "{}", part.blocks);

    // A thousand blocks would take a quarter of an hour: one more than there are will do.
    let journal = fs::read_to_string(out.join("journal.jsonl")).unwrap();
    let (begun, rest) = journal.split_once('\n').unwrap();
    let mut begun: serde_json::Value = serde_json::from_str(begun).unwrap();
    begun["suite"]["repeats"] = (part.blocks + 1).into();
    fs::write(out.join("journal.jsonl"), format!("{begun}\n{rest}")).unwrap();
    let resumed = run(Command::new(&copy).args(["lab", "run", "--resume"]).arg(&out));
    assert!(matches!(resumed.code, Some(0 | 5)), "{resumed:?}");
    let whole = record_in(&out);
    assert_eq!((whole.blocks, whole.command.as_slice()), (part.blocks + 1, part.command.as_slice()));
    assert!(whole.cells.iter().all(|cell| cell.runs.len() == whole.blocks as usize));
    assert_eq!(whole.cells[0].runs[0], part.cells[0].runs[0]);
    assert!(!out.join("journal.jsonl").exists());
    assert_eq!(processes_with(&folder.path().display().to_string()), Vec::<String>::new());

    let nothing = run(Command::new(&copy).args(["lab", "run", "--resume"]).arg(&out));
    assert_eq!(nothing.code, Some(1), "{nothing:?}");
    assert!(nothing.stderr.contains("journal.jsonl"), "{nothing:?}");
    let both = run(Command::new(&copy).args(["lab", "run", "quick", "--resume"]).arg(&out));
    assert_eq!(both.code, Some(2), "{both:?}");
}
