//! The results of a cell: medians with their uncertainty, ratios within blocks, and the fastest contestant.

use super::run::One;
use super::{BASELINE, CONTROL, FLOOR, Found};
use ringroad_measure::summary::{median, median_interval};
use ringroad_measure::{Comparison, Interval};
use serde_json::{Value, json};

/// One contestant's runs in one cell.
#[derive(Debug, Default)]
pub(super) struct Runs {
    /// The block of each run: a contestant that failed has none later.
    pub(super) blocks: Vec<usize>,
    pub(super) seconds: Vec<f64>,
    pub(super) cpu_s: Vec<f64>,
    pub(super) peak_bytes: u64,
    /// From a run of its own, on a smaller tree: counting costs.
    pub(super) calls_per_file: Option<f64>,
    pub(super) steal_share: Vec<f64>,
    pub(super) skipped: Option<String>,
}

impl Runs {
    pub(super) fn add(&mut self, block: usize, one: &One) {
        self.blocks.push(block);
        self.seconds.push(one.seconds);
        self.cpu_s.push(one.cpu_s);
        self.peak_bytes = self.peak_bytes.max(one.peak_bytes);
        self.steal_share.extend(one.steal_share);
    }

    /// The times of both in the blocks that both ran in.
    fn paired(&self, other: &Runs) -> (Vec<f64>, Vec<f64>) {
        let own = self.blocks.iter().zip(&self.seconds);
        own.filter_map(|(block, seconds)| {
            let at = other.blocks.iter().position(|theirs| theirs == block)?;
            Some((*seconds, *other.seconds.get(at)?))
        })
        .unzip()
    }

    /// The candidate `other` against this one, with what a contestant reached against itself.
    fn against(&self, other: &Runs, control: Option<Interval>) -> Option<Comparison> {
        let (own, theirs) = self.paired(other);
        Comparison::of_blocks(&own, &theirs, control)
    }
}

/// A cell as the record has it.
pub(super) fn cell(found: &Found<'_>) -> Value {
    let of = |name: &str| {
        let found = found.runs.iter().find(|(known, runs)| *known == name && runs.skipped.is_none());
        found.map(|(_, runs)| runs).filter(|runs| !runs.seconds.is_empty())
    };
    let baseline = of(BASELINE);
    let control = baseline.zip(of(CONTROL)).and_then(|(one, other)| Some(one.against(other, None)?.ratio));
    let contestants: Vec<Value> = found
        .runs
        .iter()
        .map(|(name, runs)| contestant(name, runs, found.files, baseline, control))
        .collect();
    json!({
        "place": found.cell.place,
        "mount": found.mount,
        "shape": found.cell.shape.name,
        "files": found.files,
        "temperature": if found.cell.cold { "cold" } else { "warm" },
        "sync": found.cell.sync,
        "skipped": found.skipped,
        "control": control,
        "ahead": ahead(found, control),
        "contestants": contestants,
    })
}

fn contestant(
    name: &str,
    runs: &Runs,
    files: u64,
    baseline: Option<&Runs>,
    control: Option<Interval>,
) -> Value {
    let comparison = baseline.and_then(|base| base.against(runs, control));
    // The record says how many times faster, the comparison how many times the time.
    let times = comparison.map(|comparison| Interval {
        low: 1.0 / comparison.ratio.high,
        mid: 1.0 / comparison.ratio.mid,
        high: 1.0 / comparison.ratio.low,
    });
    let million = 1e6 / files.max(1) as f64;
    json!({
        "name": name,
        "skipped": runs.skipped,
        "seconds": runs.seconds,
        "seconds_interval": median_interval(&runs.seconds),
        "files_per_s": median(&runs.seconds).map(|seconds| files as f64 / seconds),
        "times_faster_than_cp_r": times,
        "cpu_s_per_million_files": median(&runs.cpu_s).map(|cpu| cpu * million),
        "syscalls_per_million_files": runs.calls_per_file.map(|calls| calls * 1e6),
        "peak_bytes": (runs.peak_bytes > 0).then_some(runs.peak_bytes),
        "steal_share": median(&runs.steal_share),
    })
}

/// Each of our contestants without a named engine, beside the fastest of the others.
fn ahead(found: &Found<'_>, control: Option<Interval>) -> Value {
    let others = found
        .runs
        .iter()
        .filter(|(name, _)| !name.starts_with("ringroad") && ![CONTROL, FLOOR].contains(name));
    let time = |runs: &Runs| median(&runs.seconds);
    let fastest = others.filter(|(_, runs)| time(runs).is_some()).min_by(|(_, one), (_, other)| {
        time(one).unwrap_or(f64::MAX).total_cmp(&time(other).unwrap_or(f64::MAX))
    });
    let Some((peer, peer_runs)) = fastest else { return Value::Array(Vec::new()) };
    let ours = found.runs.iter().filter(|(name, _)| matches!(*name, "ringroad -r" | "ringroad -a"));
    let compare = |(name, runs): &(&str, Runs)| {
        let comparison = peer_runs.against(runs, control)?;
        Some(json!({
            "name": name, "peer": peer, "ratio": comparison.ratio, "finding": comparison.finding.to_string(),
        }))
    };
    Value::Array(ours.filter_map(compare).collect())
}

#[cfg(test)]
mod tests {
    use super::super::plan::{Cell, SHAPES};
    use super::*;

    fn runs(seconds: &[f64]) -> Runs {
        Runs { blocks: (0..seconds.len()).collect(), seconds: seconds.to_vec(), ..Runs::default() }
    }

    fn found<'n>(all: Vec<(&'n str, Runs)>) -> Found<'n> {
        let cell = Cell { place: "disk", shape: &SHAPES[0], cold: true, sync: false };
        Found { cell, mount: "ext4".to_string(), files: 1000, runs: all, skipped: None }
    }

    #[test]
    fn ratios_are_taken_within_blocks() {
        let slow = [2.0, 20.0, 4.0, 2.0, 2.0, 2.0];
        let fast = slow.map(|seconds| seconds / 2.0);
        let cell = cell(&found(vec![("cp -r", runs(&slow)), ("xcp", runs(&fast))]));
        let xcp = &cell["contestants"][1];
        assert_eq!(xcp["times_faster_than_cp_r"], json!({"low": 2.0, "mid": 2.0, "high": 2.0}));
        assert_eq!(xcp["files_per_s"], 1000.0);
    }

    #[test]
    fn a_contestant_that_failed_in_the_middle_is_compared_in_the_blocks_it_ran_in() {
        let mut short = runs(&[1.0, 5.0]);
        short.blocks = vec![0, 2];
        assert_eq!(runs(&[2.0, 3.0, 10.0]).paired(&short), (vec![2.0, 10.0], vec![1.0, 5.0]));
    }

    #[test]
    fn ours_is_compared_with_the_fastest_of_the_others() {
        let all = vec![
            ("cp -r", runs(&[4.0; 6])),
            ("cpz", runs(&[2.0; 6])),
            ("ringroad -r", runs(&[1.5; 6])),
            ("ringroad ring", runs(&[0.5; 6])),
        ];
        let cell = cell(&found(all));
        assert_eq!(cell["ahead"][0]["peer"], "cpz");
        assert_eq!(cell["ahead"][0]["finding"], "faster by 25.0 % ± 0.0");
        assert_eq!(cell["ahead"].as_array().map(Vec::len), Some(1));
    }

    #[test]
    fn the_difference_of_the_baseline_from_itself_is_noise_for_all() {
        let all = vec![
            ("cp -r", runs(&[1.0; 6])),
            (FLOOR, runs(&[0.5; 6])),
            (CONTROL, runs(&[0.9, 1.1, 0.9, 1.1, 0.9, 1.1])),
            ("cpz", runs(&[1.0; 6])),
            ("ringroad -r", runs(&[0.95; 6])),
        ];
        let text = cell(&found(all))["ahead"][0]["finding"].to_string();
        assert!(text.contains("no significant difference"), "{text}");
    }
}
