//! What is kept under docs/results is what the code of today draws from the records there.

use ringroad_lab::page;
use ringroad_measure::Record;
use std::fs;
use std::path::{Path, PathBuf};

/// The folders of docs/results with both files.
fn with(file: &str) -> Vec<PathBuf> {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
    let folders = fs::read_dir(results).unwrap().map(|entry| entry.unwrap().path());
    folders.filter(|folder| folder.join(file).exists() && folder.join("record.json").exists()).collect()
}

fn record_in(folder: &Path) -> Record {
    serde_json::from_str(&fs::read_to_string(folder.join("record.json")).unwrap()).unwrap()
}

#[test]
fn each_chart_that_is_kept_is_what_its_record_draws() {
    let folders = with("chart.svg");
    assert!(!folders.is_empty(), "the README shows one");
    for folder in folders {
        let name = folder.file_name().unwrap().display().to_string();
        let kept = fs::read_to_string(folder.join("chart.svg")).unwrap();
        assert!(
            page::chart(&record_in(&folder)).unwrap() == kept,
            "docs/results/{name}/chart.svg is out of step: \
             cargo run -- lab report docs/results/{name} --chart docs/results/{name}/chart.svg"
        );
    }
}

#[test]
fn every_record_that_is_kept_makes_a_page_of_the_size_that_is_promised() {
    let folders = with("report.html");
    assert!(folders.len() > 1);
    for folder in folders {
        let page = page::html(&record_in(&folder));
        assert!(page.len() < page::BYTES_MAX, "{}: {} bytes", folder.display(), page.len());
        let record = record_in(&folder);
        let is_invalid = record.verdict.level == ringroad_measure::Level::Invalid;
        assert_eq!(page.contains("Which to use on this machine"), !is_invalid, "{}", folder.display());
    }
}
