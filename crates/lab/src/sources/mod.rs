//! `lab sources`: figures that documents state, compared with results here.
//!
//! [`catalogue`] reads what is claimed (`docs/claims.toml`); [`servers`], [`waits`], [`machine`] and
//! [`files`] measure, each giving figures by name; [`judge`] puts the two together; [`text`] writes them for
//! a terminal. Servers run under the same harness as every suite, so that their cells are in the record too.
//! Start at [`run`].

pub mod catalogue;
mod files;
pub mod judge;
mod late;
mod machine;
pub mod servers;
mod slow;
pub mod sum;
pub mod text;
mod waits;

use crate::error::Error;
use crate::event::{Event, Observer};
use crate::runner::{self, RunOptions};
use catalogue::Catalogue;
use ringroad_measure::record::SCHEMA;
use ringroad_measure::{Caveat, Record, Verdict};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;
use sum::Figure;

/// The documents there are.
pub const SOURCES: [&str; 5] = ["000", "001", "002", "003", "004"];
/// The reason for what was not measured because the caller stopped it.
const INTERRUPTED: &str = "the run was stopped before it";

/// What the caller decides.
#[derive(Clone, Debug)]
pub struct Options {
    /// As for any run. Repeats and duration, where given, are in place of those of every suite here.
    pub run: RunOptions,
    /// The documents to test; empty for all.
    pub only: Vec<String>,
    /// As long and as large as the documents say, not scaled to end within ten minutes.
    pub full: bool,
    /// The folder with servers made by other means (`cargo xtask peers` fills `target/peers`).
    pub peers: PathBuf,
    /// The folder for trees to copy; on the disk that is to be measured.
    pub scratch: PathBuf,
}

/// A figure with its name, or why there is none.
type Named = (String, Result<Figure, String>);

/// What the measurements that are not suites have in common.
struct Setting<'a> {
    ringroad: &'a Path,
    scratch: &'a Path,
    full: bool,
    stop: &'a AtomicBool,
}

/// What is measured without a suite: as a noun, for which documents, and how.
const OTHERS: [(&str, &[&str], Measure); 3] = [
    ("ten requests that wait", &["001"], waits::figures),
    ("system calls and switches", &["000", "003"], |_| machine::figures()),
    ("copies of small files", &["004"], files::figures),
];
type Measure = fn(&Setting<'_>) -> Vec<Named>;

/// Measures for the documents' claims and judges them. Setting `stop` ends it early, as in [`runner::run`];
/// what is missing then says so.
///
/// # Errors
/// As [`runner::run`]. What cannot be measured here is a claim with its reason.
pub fn run(options: &Options, observer: &mut dyn Observer, stop: &AtomicBool) -> Result<Record, Error> {
    let catalogue = Catalogue::built_in()?;
    let sources: Vec<String> = match options.only.as_slice() {
        [] => SOURCES.map(str::to_owned).to_vec(),
        only => only.to_vec(),
    };
    let wanted = |source: &str| sources.iter().any(|own| own == source);
    let started = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let mut figures: BTreeMap<String, Result<Figure, String>> = BTreeMap::new();
    let mut records = Vec::new();
    for mut part in servers::parts(&sources, options.full, &options.peers)? {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        // In the suite itself, so that the scale that is told is the one that was run.
        part.suite.repeats = options.run.repeats.unwrap_or(part.suite.repeats);
        part.suite.duration_s = options.run.duration_s.unwrap_or(part.suite.duration_s);
        let record = runner::run(&part.suite, &options.run, observer, stop)?;
        figures.extend(servers::figures(&part, &record));
        records.push(record);
    }
    let setting =
        Setting { ringroad: &options.run.ringroad, scratch: &options.scratch, full: options.full, stop };
    for (what, documents, measure) in OTHERS {
        if !stop.load(Ordering::Relaxed) && documents.iter().any(|source| wanted(source)) {
            observer.event(&Event::Measuring { what });
            figures.extend(measure(&setting));
        }
    }
    let interrupted = stop.load(Ordering::Relaxed);
    let missing = if interrupted { INTERRUPTED } else { "no measurement here covers it" };
    let claims = judge::claims(&catalogue, &figures, missing)
        .into_iter()
        .filter(|claim| wanted(&claim.source))
        .collect();
    Ok(Record { claims, ..frame(options, started, records, interrupted) })
}

/// One record of several: their cells, and the worst of their verdicts.
fn frame(options: &Options, started: String, records: Vec<Record>, interrupted: bool) -> Record {
    let stopped = Verdict::of(interrupted.then(|| Caveat::Other(format!("{INTERRUPTED}'s end."))));
    let verdict = Verdict::worst(records.iter().map(|record| &record.verdict).chain([&stopped]));
    let share = |record: &Record| record.harness_cpu_share;
    let mut all = Record {
        schema: SCHEMA.to_owned(),
        tool: "lab".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: options.run.command.clone(),
        started,
        suite: Some("sources".to_owned()),
        title: Some("Claims of the documents, and results here".to_owned()),
        host: records.first().map_or_else(facts, |record| record.host.clone()),
        verdict,
        // Each part has its own.
        baseline: None,
        // Parts are repeated more or less often: what each result has at least.
        blocks: records.iter().map(|record| record.blocks).min().unwrap_or(0),
        control: Vec::new(),
        harness_cpu_share: records.iter().filter_map(share).reduce(f64::max),
        cells: Vec::new(),
        claims: Vec::new(),
    };
    all.cells.extend(records.into_iter().flat_map(|record| record.cells));
    all
}

fn facts() -> serde_json::Map<String, serde_json::Value> {
    match serde_json::to_value(ringroad_host::facts()) {
        Ok(serde_json::Value::Object(map)) => map,
        _ => serde_json::Map::new(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use catalogue::Test;

    #[test]
    fn every_figure_the_claims_ask_for_is_measured_somewhere() {
        let sources = SOURCES.map(str::to_owned);
        let mut names: Vec<String> = Vec::new();
        for part in servers::parts(&sources, false, Path::new("peers")).unwrap() {
            for load in &part.suite.loads {
                for server in &part.suite.servers {
                    let name = |figure: &&str| format!("{}/{}.{figure}", load.id, server.id);
                    names.extend(servers::FIGURES.iter().map(name));
                }
            }
        }
        let others = ["waits/in-turn.ms", "waits/together.ms", "machine/syscall.ns", "machine/switch.us"];
        names.extend(others.map(str::to_owned));
        for tree in ["copy-4k", "copy-100k", "slow-4k", "slow-100k"] {
            names.extend(["cp.s", "uring-sync.s", "cp.calls"].map(|figure| format!("{tree}/{figure}")));
        }
        for stated in &Catalogue::built_in().unwrap().stated {
            let sums = match &stated.test {
                Test::Measure { sum, near } => [Some(sum), near.as_ref()],
                Test::Cannot { near, .. } => [None, near.as_ref()],
                Test::Compute(_) => [None, None],
            };
            let names_asked = sums.into_iter().flatten().flat_map(|sum| sum.names());
            for name in names_asked {
                assert!(names.iter().any(|own| own == name), "{}: {name}", stated.id);
            }
        }
    }

    #[test]
    fn a_record_of_parts_has_the_blocks_that_every_part_has() {
        let options = Options {
            run: RunOptions::default(),
            only: Vec::new(),
            full: false,
            peers: PathBuf::new(),
            scratch: PathBuf::new(),
        };
        let part = |blocks| Record { blocks, ..crate::page::sample::quick() };
        let record = frame(&options, String::new(), vec![part(3), part(1), part(6)], false);
        assert_eq!(record.blocks, 1, "advice prefers a record with enough, by this number");
    }

    #[test]
    fn every_claim_is_of_a_document_there_is() {
        let catalogue = Catalogue::built_in().unwrap();
        assert!(catalogue.stated.iter().all(|stated| SOURCES.contains(&stated.source.as_str())));
        for source in SOURCES {
            assert!(catalogue.stated.iter().any(|stated| stated.source == source), "{source}");
        }
    }
}
