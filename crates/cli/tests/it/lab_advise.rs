//! `ringroad lab advise`: which record it reads, what it prints, and its exit code. The judgement itself is
//! tested in `lab`; the record here is one that was kept (docs/results/floor), planted where `lab` would have
//! left it.

use crate::support::{Outcome, ringroad, run};
use ringroad_measure::record::Record;
use std::fs;
use std::path::{Path, PathBuf};

/// HTTP at 64 to 10,000 connections, all busy.
fn kept() -> Record {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results/floor/record.json");
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// Leaves a record where `lab` would leave it, under a state folder.
fn plant(state: &Path, name: &str, record: &Record) -> PathBuf {
    let folder = state.join("ringroad/lab").join(name);
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("record.json");
    fs::write(&file, serde_json::to_string(record).unwrap()).unwrap();
    file
}

fn advise(state: &Path, flags: &[&str]) -> Outcome {
    run(ringroad(["lab", "advise"]).args(flags).env("XDG_STATE_HOME", state))
}

#[test]
fn a_workload_that_a_record_covers_is_answered_with_its_evidence() {
    let state = tempfile::tempdir().unwrap();
    let file = plant(state.path(), "floor-1", &kept());
    let found = advise(state.path(), &["--connections", "1000"]);
    assert_eq!((found.code, found.stderr.as_str()), (Some(0), ""));
    let text = found.text();
    assert!(text.starts_with("For 1,000 connections, on this machine:\n"), "{text}");
    assert!(
        // That host was too loud to choose by.
        text.contains("\n  Undecided between ")
            && text.contains("\nEvidence, HTTP, 1,000 connections (http-1000):\n"),
        "{text}"
    );
    assert!(text.ends_with(&format!("record: {}\n", file.display())), "{text}");
    let named =
        advise(Path::new("/nonexistent"), &["--connections", "1000", "--record", file.to_str().unwrap()]);
    assert_eq!(named.text(), text);
}

#[test]
fn a_workload_that_no_record_covers_ends_with_the_command_and_exit_code_1() {
    let state = tempfile::tempdir().unwrap();
    plant(state.path(), "floor-1", &kept());
    let outcome = advise(state.path(), &["--connections", "10000", "--active", "1%"]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.text().contains("\n  ringroad lab run active-share\n"), "{}", outcome.text());
}

#[test]
fn of_several_records_the_newest_that_covers_the_workload_is_read() {
    let state = tempfile::tempdir().unwrap();
    let mut older = kept();
    older.started = "2026-01-01T00:00:00Z".to_owned();
    let mut newer = kept();
    newer.started = "2026-02-01T00:00:00Z".to_owned();
    newer.cells.retain(|cell| cell.connections <= 200);
    // Names do not matter, and what is no record is passed over.
    let old = plant(state.path(), "z", &older);
    let new = plant(state.path(), "a", &newer);
    fs::create_dir_all(state.path().join("ringroad/lab/cut-off")).unwrap();
    fs::write(state.path().join("ringroad/lab/cut-off/record.json"), "{").unwrap();
    let read = |flags: &[&str]| advise(state.path(), flags).text().lines().last().unwrap().to_owned();
    assert_eq!(read(&["--connections", "64"]), format!("record: {}", new.display()));
    assert_eq!(read(&["--connections", "10000"]), format!("record: {}", old.display()));
    assert_eq!(read(&[]), format!("record: {}", new.display()));
}

/// The newest was taken, and "use b" was the advice.
#[test]
fn a_record_without_drivers_is_passed_over() {
    let state = tempfile::tempdir().unwrap();
    let file = plant(state.path(), "floor-1", &kept());
    let mut of_urls = kept();
    of_urls.started = "2099-01-01T00:00:00Z".to_owned();
    of_urls.cells.iter_mut().for_each(|cell| (cell.driver, cell.model) = (None, "b".to_owned()));
    plant(state.path(), "urls-2", &of_urls);
    for flags in [&[][..], &["--connections", "1000"]] {
        let text = advise(state.path(), flags).text();
        assert!(text.ends_with(&format!("record: {}\n", file.display())), "{text}");
    }
}

#[test]
fn without_any_record_it_says_how_to_make_one() {
    let state = tempfile::tempdir().unwrap();
    let outcome = advise(state.path(), &["--connections", "64"]);
    assert_eq!((outcome.code, outcome.text().as_str()), (Some(1), ""));
    assert!(outcome.stderr.contains("`ringroad lab` creates one"), "{}", outcome.stderr);
}

#[test]
fn without_a_workload_it_tells_what_people_ask_about() {
    let state = tempfile::tempdir().unwrap();
    plant(state.path(), "floor-1", &kept());
    let outcome = advise(state.path(), &[]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
    let text = outcome.text();
    assert!(text.contains("\nMany busy connections\n  undecided between "), "{text}");
    assert!(text.contains("not measured here; `ringroad lab run churn` would"), "{text}");
}

#[test]
fn a_report_leaves_its_chart_as_a_file_where_one_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let file = plant(folder.path(), "floor-1", &kept());
    let chart = folder.path().join("chart.svg");
    let outcome = run(ringroad(["lab", "report", "--chart"]).arg(&chart).arg(&file));
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
    let svg = fs::read_to_string(&chart).unwrap();
    assert!(svg.starts_with("<svg ") && svg.contains("prefers-color-scheme: dark"), "{}", &svg[..200]);
    assert!(outcome.text().ends_with(&format!("chart:  {}\n", chart.display())), "{}", outcome.text());
}
