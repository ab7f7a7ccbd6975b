//! What is to be run: the cells, in the order of their importance, and how long that may take.
//!
//! A run may be cut short ([`Plan::time_limit`]), so what matters most comes first: the two sizes that the
//! copier's claims are about, on the root disk and on a fresh ext4, without a sync.

use super::CONTESTANTS;
use super::place;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A tree to copy.
#[derive(Debug, PartialEq)]
pub(super) struct Shape {
    pub(super) name: &'static str,
    /// What `lab dataset` calls it.
    pub(super) dataset: &'static str,
    /// Files and bytes at scale 1, for the estimate and for the room it needs.
    files: f64,
    bytes: f64,
    /// How many times as fast as `cp -r` the copier is to be, cold.
    pub(super) cold_aim: Option<f64>,
    /// A small tree on which system calls are counted, with folders as full as the whole one's: what a folder
    /// costs is then shared by as many files. And its scale.
    pub(super) sample: (&'static str, f64),
}

/// What no sample is larger than.
pub(super) const SAMPLE_FILES: u64 = 3000;
pub(super) const SAMPLE_BYTES: u64 = 24 << 20;

const fn shape(
    name: &'static str,
    dataset: &'static str,
    files: f64,
    bytes: f64,
    cold_aim: Option<f64>,
    sample: (&'static str, f64),
) -> Shape {
    Shape { name, dataset, files, bytes, cold_aim, sample }
}

/// How many times as fast as `cp -r` the copier is to be where the source is cached.
pub(super) const WARM_AIM: f64 = 2.0;

/// The shapes there are; the first two are what the claims are about.
pub(super) const SHAPES: &[Shape] = &[
    shape("100k-of-4k", "100000x4K/100", 1e5, 4.1e8, Some(3.5), ("2000x4K/2", 1.0)),
    shape("20k-of-100k", "20000x100K/100", 2e4, 2.05e9, Some(4.2), ("200x100K", 1.0)),
    shape("60k-of-784", "60000x784/20", 6e4, 4.7e7, None, ("3000x784", 1.0)),
    shape("mixed", "mixed", 1e5, 6e9, None, ("mixed", 0.004)),
    shape("flat-100k", "100000x4K", 1e5, 4.1e8, Some(3.5), ("2000x4K", 1.0)),
];
const MAIN_SHAPES: usize = 2;

const USAGE: &str = "usage: cargo xtask bench copy [OPTION VALUE]...
  --cell PLACE/SHAPE[/TEMPERATURE[/SYNC]]  this cell (may be repeated; in this order); without it:
  --places LIST      disk, ext4, xfs, btrfs, tmpfs (default: all)
  --shapes LIST      100k-of-4k, 20k-of-100k, 60k-of-784, mixed, flat-100k (default: all)
  --temperatures LIST  cold, warm (default: both)
  --syncs LIST       no, yes: a sync of the target inside the timed part (default: both)
  --only LIST        contestants (default: all)
  --repeats N        blocks (default: 6, the fewest that can show a difference)
  --scale F          of the trees (default: 1)
  --time-limit T     begin no block that would end after T, as in 40m or 90s (default: none)
  --seed N           of the random order (default: by the clock; it is in the record)
  --dir DIR          a folder on the root disk for trees and images (default: target/bench-copy)
  --out DIR          gets copy/table.md and copy/record.json (default: docs/results)
  --add yes          go on with the record that is there: cells that it has and this run does not stay in it
  --plan yes         print the plan and its estimate, and run nothing";

/// What the user is told after a mistake.
pub(super) fn usage() -> String {
    let names: Vec<&str> = CONTESTANTS.iter().map(|(name, _)| *name).collect();
    format!("{USAGE}\ncontestants: {}", names.join(", "))
}

/// One state of affairs in which every contestant runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cell {
    pub(super) place: &'static str,
    pub(super) shape: &'static Shape,
    pub(super) cold: bool,
    pub(super) sync: bool,
}

impl Cell {
    pub(super) fn title(&self) -> String {
        let temperature = if self.cold { "cold" } else { "warm" };
        let sync = if self.sync { "yes" } else { "no" };
        format!("{}/{}/{temperature}/{sync}", self.place, self.shape.name)
    }

    /// How many times as fast as `cp -r` the copier is to be, if anything was promised.
    pub(super) fn aim(&self) -> Option<f64> {
        if self.cold { self.shape.cold_aim } else { Some(WARM_AIM) }
    }

    /// The cell that a record speaks of.
    pub(super) fn of_record(cell: &Value) -> Option<Cell> {
        let place = place::NAMES.iter().find(|name| cell["place"] == **name)?;
        let shape = SHAPES.iter().find(|shape| cell["shape"] == shape.name)?;
        Some(Cell { place, shape, cold: cell["temperature"] == "cold", sync: cell["sync"] == true })
    }

    /// Small comes first: the main shapes on the main places, then the main shapes, then the rest; syncs
    /// last.
    pub(super) fn rank(&self) -> impl Ord + use<> {
        let shape = SHAPES.iter().position(|shape| shape == self.shape).unwrap_or(SHAPES.len());
        let place = place::NAMES.iter().position(|name| *name == self.place).unwrap_or(place::NAMES.len());
        (self.sync, shape >= MAIN_SHAPES, place >= place::MAIN, shape, place, !self.cold)
    }
}

/// Cells that share a tree: one place, one shape. A block makes the place afresh and runs all of them in it.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) cells: Vec<Cell>,
}

impl Group {
    pub(super) fn place(&self) -> &'static str {
        self.cells.first().map_or("", |cell| cell.place)
    }

    pub(super) fn shape(&self) -> &'static Shape {
        self.cells.first().map_or(&SHAPES[0], |cell| cell.shape)
    }
}

/// What to run.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) dir: PathBuf,
    pub(super) out: PathBuf,
    pub(super) cells: Vec<Cell>,
    pub(super) only: Vec<String>,
    pub(super) repeats: usize,
    pub(super) scale: f64,
    pub(super) time_limit: Option<Duration>,
    pub(super) seed: u64,
    pub(super) only_plan: bool,
    /// Cells of the record that is there stay in it.
    pub(super) add: bool,
}

/// The value of a list option: each of its words must be one of `known`.
fn among<'k>(option: &str, value: &str, known: &[&'k str]) -> Result<Vec<&'k str>, String> {
    let find = |word: &str| {
        let found = known.iter().find(|name| **name == word).copied();
        found.ok_or_else(|| format!("{option} {word}: there are {}", known.join(", ")))
    };
    value.split(',').map(find).collect()
}

/// `40m`, `90s`, `2h`, `90`.
fn duration(text: &str) -> Option<Duration> {
    let (digits, factor) = match text.char_indices().last()? {
        (at, 'h') => (text.get(..at)?, 3600.0),
        (at, 'm') => (text.get(..at)?, 60.0),
        (at, 's') => (text.get(..at)?, 1.0),
        _ => (text, 1.0),
    };
    let seconds = digits.parse::<f64>().ok()? * factor;
    Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero())
}

impl Plan {
    pub(super) fn parse(root: &Path, words: &[String]) -> Result<Plan, String> {
        let shape_names: Vec<&str> = SHAPES.iter().map(|shape| shape.name).collect();
        let contestants: Vec<&str> = CONTESTANTS.iter().map(|(name, _)| *name).collect();
        let mut plan = Plan {
            dir: root.join("target/bench-copy"),
            out: root.join("docs/results"),
            cells: Vec::new(),
            only: contestants.iter().map(|name| name.to_string()).collect(),
            repeats: ringroad_measure::caveat::REPEATS_MIN as usize,
            scale: 1.0,
            time_limit: None,
            seed: fastrand::u64(..1 << 32),
            only_plan: false,
            add: false,
        };
        let (mut places, mut shapes) = (place::NAMES.to_vec(), shape_names.clone());
        let (mut temperatures, mut syncs) = (vec!["cold", "warm"], vec!["no", "yes"]);
        let mut words = words.iter();
        while let Some(option) = words.next() {
            let value = words.next().ok_or(format!("{option}: needs a value"))?;
            let number = || value.parse::<u64>().map_err(|_| format!("{option} {value}: a number is needed"));
            match option.as_str() {
                "--cell" => plan.cells.extend(cells_of(value)?),
                "--dir" => plan.dir = value.into(),
                "--out" => plan.out = value.into(),
                "--places" => places = among(option, value, place::NAMES)?,
                "--shapes" => shapes = among(option, value, &shape_names)?,
                "--temperatures" => temperatures = among(option, value, &["cold", "warm"])?,
                "--syncs" => syncs = among(option, value, &["no", "yes"])?,
                "--only" => {
                    let chosen = among(option, value, &contestants)?;
                    plan.only = chosen.iter().map(|name| name.to_string()).collect();
                }
                "--repeats" => {
                    plan.repeats = number()? as usize;
                    if plan.repeats == 0 {
                        return Err("--repeats 0: at least one block".to_string());
                    }
                }
                "--seed" => plan.seed = number()?,
                "--scale" => {
                    let scale = value.parse().ok().filter(|scale| *scale > 0.0);
                    plan.scale = scale.ok_or(format!("--scale {value}: a number above 0 is needed"))?;
                }
                "--time-limit" => {
                    let limit = duration(value).ok_or(format!("--time-limit {value}: as in 40m or 90s"))?;
                    plan.time_limit = Some(limit);
                }
                "--add" => plan.add = among(option, value, &["yes", "no"])? == ["yes"],
                "--plan" => plan.only_plan = among(option, value, &["yes", "no"])? == ["yes"],
                _ => return Err(format!("{option}: not known")),
            }
        }
        if !plan.only.iter().any(|name| name == super::BASELINE) {
            plan.only.insert(0, super::BASELINE.to_string());
        }
        if plan.cells.is_empty() {
            plan.cells = product(&places, &shapes, &temperatures, &syncs);
            plan.cells.sort_by_key(Cell::rank);
        }
        Ok(plan)
    }

    /// Where the record is.
    pub(super) fn record(&self) -> PathBuf {
        self.out.join("copy/record.json")
    }

    /// The cells, neighbours in one place with one shape together.
    pub(super) fn groups(&self) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        for cell in &self.cells {
            match groups.last_mut() {
                Some(group)
                    if group.place() == cell.place
                        && group.shape() == cell.shape
                        && group.cells.first().is_some_and(|first| first.sync == cell.sync) =>
                {
                    group.cells.push(*cell)
                }
                _ => groups.push(Group { cells: vec![*cell] }),
            }
        }
        groups
    }

    /// Bytes and files that one tree of a shape has.
    pub(super) fn size(&self, shape: &Shape) -> (u64, u64) {
        ((shape.bytes * self.scale) as u64, (shape.files * self.scale) as u64)
    }

    /// Bytes and files of a block: tree and sample, and a copy of both by every contestant in each cell.
    pub(super) fn block_size(&self, group: &Group) -> (u64, u64) {
        let (bytes, files) = self.size(group.shape());
        // File systems need some room for themselves, and a small file takes a whole block.
        let bytes = bytes + files * 4096;
        let trees = (self.only.len() * group.cells.len() + 2) as u64;
        ((bytes + SAMPLE_BYTES) * trees, (files + SAMPLE_FILES) * trees)
    }

    /// How long a block takes, roughly: from what such runs took on two cores and a virtual disk. Only the
    /// plan and the first block rely on it; later ones go by those before.
    pub(super) fn estimate(&self, group: &Group) -> Duration {
        let (bytes, files) = self.size(group.shape());
        let (bytes, files) = (bytes as f64, files as f64);
        let run = |cell: &Cell| {
            let memory = cell.place == "tmpfs";
            let (file, byte) = match (cell.cold, memory) {
                _ if memory => (15e-6, 1.0 / 2e9),
                (true, _) => (45e-6, 1.0 / 0.5e9),
                (false, _) => (22e-6, 1.0 / 1.5e9),
            };
            let sync = if cell.sync && !memory { bytes / 0.3e9 } else { 0.0 };
            let before = if memory { 0.5 } else { 1.5 + files * 8e-6 + bytes / 0.6e9 };
            file * files + byte * bytes + sync + before
        };
        let runs: f64 = group.cells.iter().map(run).sum();
        let tree = 2.0 + files * 40e-6 + bytes / 0.4e9;
        Duration::from_secs_f64(runs * self.only.len() as f64 + tree)
    }

    /// The plan in words, a line per group.
    pub(super) fn describe(&self) -> String {
        let mut text = String::new();
        let mut at = Duration::ZERO;
        for group in self.groups() {
            let block = self.estimate(&group);
            at += block * self.repeats as u32;
            let titles: Vec<String> = group.cells.iter().map(Cell::title).collect();
            text.push_str(&format!(
                "{:>7}  about {} each of {} blocks: {}\n",
                clock(at),
                clock(block),
                self.repeats,
                titles.join(" ")
            ));
        }
        text
    }
}

/// Minutes and seconds.
pub(super) fn clock(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

fn product(places: &[&str], shapes: &[&str], temperatures: &[&str], syncs: &[&str]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for place in place::NAMES.iter().filter(|name| places.contains(name)) {
        for shape in SHAPES.iter().filter(|shape| shapes.contains(&shape.name)) {
            for temperature in temperatures {
                for sync in syncs {
                    cells.push(Cell { place, shape, cold: *temperature == "cold", sync: *sync == "yes" });
                }
            }
        }
    }
    cells
}

/// The cells that `PLACE/SHAPE[/TEMPERATURE[/SYNC]]` means.
fn cells_of(text: &str) -> Result<Vec<Cell>, String> {
    let shape_names: Vec<&str> = SHAPES.iter().map(|shape| shape.name).collect();
    let parts: Vec<&str> = text.split('/').collect();
    let (place, shape, rest) = match parts.as_slice() {
        [place, shape, rest @ ..] if rest.len() <= 2 => (place, shape, rest),
        _ => return Err(format!("--cell {text}: as in ext4/100k-of-4k/cold/no")),
    };
    let places = among("--cell", place, place::NAMES)?;
    let shapes = among("--cell", shape, &shape_names)?;
    let temperatures = match rest.first() {
        Some(temperature) => among("--cell", temperature, &["cold", "warm"])?,
        None => vec!["cold", "warm"],
    };
    let syncs = match rest.get(1) {
        Some(sync) => among("--cell", sync, &["no", "yes"])?,
        None => vec!["no"],
    };
    Ok(product(&places, &shapes, &temperatures, &syncs))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn plan(words: &[&str]) -> Result<Plan, String> {
        Plan::parse(Path::new("/r"), &words.iter().map(|word| word.to_string()).collect::<Vec<_>>())
    }

    fn titles(plan: &Plan) -> Vec<String> {
        plan.cells.iter().map(Cell::title).collect()
    }

    #[test]
    fn the_baseline_is_always_there() {
        assert_eq!(plan(&["--only", "xcp,ringroad ring"]).unwrap().only, ["cp -r", "xcp", "ringroad ring"]);
        assert_eq!(plan(&[]).unwrap().only.len(), CONTESTANTS.len());
    }

    #[test]
    fn what_is_not_known_is_refused_by_name() {
        for (words, named) in [
            (&["--shapes", "round"][..], "round"),
            (&["--places", "moon"], "moon"),
            (&["--repeats", "0"], "--repeats"),
            (&["--scale", "-1"], "--scale"),
            (&["--time-limit", "soon"], "--time-limit"),
            (&["--time-limit", "0"], "--time-limit"),
            (&["--cell", "ext4"], "--cell"),
            (&["--cell", "ext4/flat-100k/luke"], "luke"),
            (&["--cell", "ext4/flat-100k/cold/no/more"], "--cell"),
            (&["--add", "perhaps"], "--add"),
            (&["--what", "x"], "--what"),
            (&["--dir"], "--dir"),
        ] {
            assert!(plan(words).unwrap_err().contains(named), "{words:?}");
        }
    }

    #[test]
    fn what_the_claims_are_about_comes_first_and_syncs_come_last() {
        let all = titles(&plan(&[]).unwrap());
        let first = ["disk/100k-of-4k/cold/no", "disk/100k-of-4k/warm/no", "ext4/100k-of-4k/cold/no"];
        assert_eq!(all.get(..3).unwrap(), first);
        let at = |title: &str| all.iter().position(|other| other == title).unwrap();
        assert!(at("ext4/20k-of-100k/warm/no") < at("xfs/100k-of-4k/cold/no"));
        assert!(at("xfs/20k-of-100k/warm/no") < at("disk/mixed/cold/no"));
        assert!(at("tmpfs/flat-100k/warm/no") < at("disk/100k-of-4k/cold/yes"));
        assert_eq!(all.len(), 5 * 5 * 2 * 2);
    }

    #[test]
    fn a_cell_can_be_named_and_what_it_leaves_out_is_both_temperatures_without_a_sync() {
        let chosen = plan(&["--cell", "xfs/mixed", "--cell", "ext4/flat-100k/cold/yes"]).unwrap();
        assert_eq!(titles(&chosen), ["xfs/mixed/cold/no", "xfs/mixed/warm/no", "ext4/flat-100k/cold/yes"]);
        assert_eq!(chosen.groups().len(), 2);
    }

    #[test]
    fn a_cell_of_a_record_is_found_again_with_its_aim() {
        let of = |place: &str, shape: &str, temperature: &str| {
            Cell::of_record(
                &serde_json::json!({"place": place, "shape": shape, "temperature": temperature, "sync": true}),
            )
        };
        let cell = of("xfs", "20k-of-100k", "cold").unwrap();
        assert_eq!((cell.title().as_str(), cell.aim()), ("xfs/20k-of-100k/cold/yes", Some(4.2)));
        assert_eq!(of("xfs", "mixed", "cold").unwrap().aim(), None);
        assert_eq!(of("xfs", "mixed", "warm").unwrap().aim(), Some(2.0));
        assert_eq!(of("moon", "mixed", "warm"), None);
    }

    #[test]
    fn a_time_is_read_with_its_unit() {
        for (text, seconds) in [("40m", 2400), ("90s", 90), ("1h", 3600), ("5", 5), ("0.5m", 30)] {
            assert_eq!(duration(text), Some(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "m", "-1s", "1d"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }

    #[test]
    fn the_plan_names_every_cell_and_its_estimate_grows_with_what_is_asked() {
        let small = plan(&["--places", "disk", "--shapes", "100k-of-4k", "--scale", "0.1"]).unwrap();
        let text = small.describe();
        assert!(text.contains("disk/100k-of-4k/cold/no disk/100k-of-4k/warm/no"), "{text}");
        assert!(text.contains("disk/100k-of-4k/cold/yes"), "{text}");
        let big = plan(&["--places", "disk", "--shapes", "100k-of-4k"]).unwrap();
        assert!(big.estimate(&big.groups()[0]) > small.estimate(&small.groups()[0]));
    }
}
