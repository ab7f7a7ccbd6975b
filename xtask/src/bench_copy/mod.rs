//! `cargo xtask bench copy`: copiers side by side, on several file systems, cold and warm, in random order.
//!
//! A *cell* is a place (file system), a shape of tree, a temperature and whether the last byte has to be on the
//! disk within the timed part. In a cell every *contestant* runs once per block, in a new random order each block,
//! after the same preparation ([`run::prepare`]), so that what drifts between blocks drifts for all. Ratios to
//! `cp -r` are taken within blocks. What cannot run here is in the record with its reason.
//!
//! Servers have the lab; a copier has no load generator and no connections, so this stands beside it and shares
//! its statistics. Start at [`bench`].

mod place;
mod run;
mod table;

use ringroad_host::facts::facts;
use serde_json::{Value, json};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// A tree to copy: its name in the table, and what `lab dataset` calls it.
const SHAPES: &[(&str, &str)] = &[
    ("100k-of-4k", "100000x4K/100"),
    ("20k-of-100k", "20000x100K/100"),
    ("60k-of-784", "60000x784/20"),
    ("mixed", "mixed"),
    ("flat-100k", "100000x4K"),
];

/// Who copies: a name, and a command in which SOURCE, TARGET and RINGROAD stand for paths.
const CONTESTANTS: &[(&str, &[&str])] = &[
    ("cp -r", &["cp", "-r", "SOURCE", "TARGET"]),
    ("cp -a", &["cp", "-a", "SOURCE", "TARGET"]),
    ("rsync -a", &["rsync", "-a", "SOURCE/", "TARGET/"]),
    ("tar", &["sh", "-c", "mkdir TARGET && tar -C SOURCE -cf - . | tar -C TARGET -xf -"]),
    ("xcp", &["xcp", "-r", "SOURCE", "TARGET"]),
    ("cpz", &["cpz", "SOURCE", "TARGET"]),
    ("ringroad -r", &["RINGROAD", "cp", "--quiet", "-r", "SOURCE", "TARGET"]),
    ("ringroad -a", &["RINGROAD", "cp", "--quiet", "-a", "SOURCE", "TARGET"]),
    ("ringroad threads", &["RINGROAD", "cp", "--quiet", "-r", "--engine", "threads", "SOURCE", "TARGET"]),
    ("ringroad ring", &["RINGROAD", "cp", "--quiet", "-r", "--engine", "ring", "SOURCE", "TARGET"]),
    (
        "ringroad ring-splice",
        &["RINGROAD", "cp", "--quiet", "-r", "--engine", "ring-splice", "SOURCE", "TARGET"],
    ),
];

/// What every ratio is taken to.
const BASELINE: &str = "cp -r";

const USAGE: &str = "usage: cargo xtask bench copy [OPTION VALUE]...
  --dir DIR          a folder on the root disk for trees and images (default: target/bench-copy)
  --out DIR          where record.json and table.md go (default: docs/results/copy)
  --places LIST      disk, tmpfs, ext4, xfs, btrfs (default: all)
  --shapes LIST      100k-of-4k, 20k-of-100k, 60k-of-784, mixed, flat-100k (default: all)
  --temperatures LIST  cold, warm (default: both)
  --syncs LIST       no, yes: a sync of the target inside the timed part (default: both)
  --only LIST        contestants (default: all)
  --repeats N        blocks (default: 5)
  --scale F          of the trees (default: 1)";

/// What to run.
#[derive(Debug)]
struct Plan {
    dir: PathBuf,
    out: PathBuf,
    places: Vec<String>,
    shapes: Vec<String>,
    temperatures: Vec<String>,
    syncs: Vec<String>,
    only: Vec<String>,
    repeats: usize,
    scale: f64,
}

impl Plan {
    fn parse(root: &Path, words: &[String]) -> Result<Plan, String> {
        let list = |text: &str| text.split(',').map(str::to_string).collect::<Vec<_>>();
        let mut plan = Plan {
            dir: root.join("target/bench-copy"),
            out: root.join("docs/results/copy"),
            places: place::NAMES.iter().map(|name| name.to_string()).collect(),
            shapes: SHAPES.iter().map(|(name, _)| name.to_string()).collect(),
            temperatures: list("cold,warm"),
            syncs: list("no,yes"),
            only: CONTESTANTS.iter().map(|(name, _)| name.to_string()).collect(),
            repeats: 5,
            scale: 1.0,
        };
        let mut words = words.iter();
        while let Some(option) = words.next() {
            let value = words.next().ok_or(format!("{option}: needs a value"))?;
            let among = |known: Vec<&str>| {
                let chosen = list(value);
                match chosen.iter().find(|name| !known.contains(&name.as_str())) {
                    Some(other) => Err(format!("{option} {other}: there are {}", known.join(", "))),
                    None => Ok(chosen),
                }
            };
            match option.as_str() {
                "--dir" => plan.dir = value.into(),
                "--out" => plan.out = value.into(),
                "--places" => plan.places = among(place::NAMES.to_vec())?,
                "--shapes" => plan.shapes = among(SHAPES.iter().map(|(name, _)| *name).collect())?,
                "--temperatures" => plan.temperatures = among(vec!["cold", "warm"])?,
                "--syncs" => plan.syncs = among(vec!["no", "yes"])?,
                "--only" => plan.only = among(CONTESTANTS.iter().map(|(name, _)| *name).collect())?,
                "--repeats" => {
                    plan.repeats =
                        value.parse().ok().filter(|count| *count > 0).ok_or("--repeats: a number")?
                }
                "--scale" => {
                    plan.scale = value.parse().ok().filter(|scale| *scale > 0.0).ok_or("--scale: a number")?
                }
                _ => return Err(format!("{option}: not known")),
            }
        }
        if !plan.only.iter().any(|name| name == BASELINE) {
            plan.only.insert(0, BASELINE.to_string());
        }
        Ok(plan)
    }
}

/// One contestant's runs in one cell.
#[derive(Debug, Default)]
struct Runs {
    seconds: Vec<f64>,
    cpu_s: Vec<f64>,
    peak_bytes: u64,
    /// From a run of its own: counting costs.
    syscalls: Option<u64>,
    steal_share: Vec<f64>,
    skipped: Option<String>,
}

/// Runs the bench and leaves record and table; exit code 1 when a contestant that is here failed.
pub(crate) fn bench(root: &Path, words: &[String]) -> ExitCode {
    let plan = match Plan::parse(root, words) {
        Ok(plan) => plan,
        Err(mistake) => {
            eprintln!("bench copy: {mistake}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match measure(root, &plan, words) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench copy: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(root: &Path, plan: &Plan, words: &[String]) -> io::Result<bool> {
    let ringroad = crate::release_binary(root)?;
    std::fs::create_dir_all(&plan.dir)?;
    std::fs::create_dir_all(&plan.out)?;
    let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let mut cells: Vec<Value> = Vec::new();
    let mut well = true;
    for name in &plan.places {
        let place = match place::Place::make(name, &plan.dir, plan.scale) {
            Ok(place) => place,
            Err(reason) => {
                eprintln!("{name}: skipped: {reason}");
                cells.push(json!({"place": name, "skipped": reason}));
                continue;
            }
        };
        for shape in &plan.shapes {
            let source = place.path().join("source");
            let files = make_tree(&ringroad, shape, plan.scale, &source)?;
            for temperature in &plan.temperatures {
                for sync in &plan.syncs {
                    let cell = run::Cell {
                        ringroad: &ringroad,
                        source: &source,
                        target: &place.path().join("target"),
                        cold: temperature == "cold",
                        sync: sync == "yes",
                    };
                    let reason = place.refuses(cell.cold);
                    let title = format!("{name}, {shape}, {temperature}, sync {sync}");
                    eprintln!("{title}{}", reason.map(|why| format!(": skipped: {why}")).unwrap_or_default());
                    let mut value = json!({
                        "place": name, "mount": place.description(), "shape": shape, "files": files,
                        "temperature": temperature, "sync": cell.sync, "skipped": reason,
                    });
                    if reason.is_none() {
                        let runs = blocks(plan, &cell)?;
                        well &= runs.iter().all(|(_, runs)| {
                            runs.skipped.as_ref().is_none_or(|why| why == run::NOT_INSTALLED)
                        });
                        value["contestants"] = contestants(&runs, files);
                    }
                    cells.push(value);
                }
            }
            run::remove(&source)?;
        }
    }
    let host = facts();
    let command: Vec<&str> = ["cargo", "xtask", "bench", "copy"].into_iter().chain(visible(words)).collect();
    let record = json!({
        "schema": "ringroad.copy/1",
        "version": env!("CARGO_PKG_VERSION"),
        "started_unix_s": started.as_secs(),
        "command": command,
        "host": {
            "kernel": host.kernel, "arch": host.arch, "cpu_model": host.cpu_model, "cpus": host.cpus_online,
            "memory_total_bytes": host.memory_total_bytes, "virtualisation": host.virtualisation,
        },
        "repeats": plan.repeats,
        "scale": plan.scale,
        "cells": cells,
    });
    let text = serde_json::to_string_pretty(&record).map_err(io::Error::other)?;
    std::fs::write(plan.out.join("record.json"), text + "\n")?;
    let table = table::markdown(&record);
    std::fs::write(plan.out.join("table.md"), &table)?;
    print!("{table}");
    Ok(well)
}

/// The options without the folders of this machine, which say nothing about the run.
fn visible(words: &[String]) -> impl Iterator<Item = &str> {
    let pairs =
        words.chunks(2).filter(|pair| !matches!(pair.first().map(String::as_str), Some("--dir" | "--out")));
    pairs.flatten().map(String::as_str)
}

/// Writes the tree and returns how many files it has.
fn make_tree(ringroad: &Path, shape: &str, scale: f64, source: &Path) -> io::Result<u64> {
    let (_, dataset) =
        SHAPES.iter().find(|(name, _)| *name == shape).ok_or(io::Error::other("no such shape"))?;
    run::remove(source)?;
    let mut make = Command::new(ringroad);
    make.args(["lab", "dataset", dataset, "--scale", &scale.to_string()]).arg(source);
    let said = make.output()?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let files = text.split_whitespace().next().and_then(|count| count.parse().ok());
    files.ok_or_else(|| io::Error::other(String::from_utf8_lossy(&said.stderr).into_owned()))
}

/// Every contestant once per block, in a new order each block.
fn blocks<'p>(plan: &'p Plan, cell: &run::Cell<'_>) -> io::Result<Vec<(&'p str, Runs)>> {
    let mut all: Vec<(&str, Runs)> = plan.only.iter().map(|name| (name.as_str(), Runs::default())).collect();
    for (name, runs) in &mut all {
        let command = run::command(command_of(name), cell);
        if !run::installed(&command) {
            runs.skipped = Some(run::NOT_INSTALLED.to_string());
        }
    }
    for block in 0..plan.repeats {
        let mut order: Vec<usize> = (0..all.len()).collect();
        fastrand::shuffle(&mut order);
        for nth in order {
            let Some((name, runs)) = all.get_mut(nth) else { continue };
            if runs.skipped.is_some() {
                continue;
            }
            match run::timed(command_of(name), cell, block == 0)? {
                Ok(one) => {
                    eprintln!("  {block} {name}: {:.3} s, {:.2} CPU s", one.seconds, one.cpu_s);
                    runs.seconds.push(one.seconds);
                    runs.cpu_s.push(one.cpu_s);
                    runs.peak_bytes = runs.peak_bytes.max(one.peak_bytes);
                    runs.steal_share.extend(one.steal_share);
                }
                Err(how) => {
                    eprintln!("  {block} {name}: failed: {how}");
                    runs.skipped = Some(how);
                }
            }
        }
    }
    for (name, runs) in &mut all {
        if runs.skipped.is_none() {
            runs.syscalls = run::syscalls(command_of(name), cell)?;
        }
    }
    run::remove(cell.target)?;
    Ok(all)
}

fn command_of(name: &str) -> &'static [&'static str] {
    CONTESTANTS.iter().find(|(known, _)| *known == name).map_or(&[], |(_, command)| command)
}

fn contestants(all: &[(&str, Runs)], files: u64) -> Value {
    let baseline = all.iter().find(|(name, _)| *name == BASELINE).map(|(_, runs)| runs);
    let of = |(name, runs): &(&str, Runs)| {
        let interval = |values: &[f64]| {
            ringroad_measure::summary::median_interval(values)
                .map(|interval| json!({"low": interval.low, "median": interval.mid, "high": interval.high}))
        };
        let ratio: Option<Vec<f64>> = baseline
            .filter(|base| base.seconds.len() == runs.seconds.len())
            .map(|base| base.seconds.iter().zip(&runs.seconds).map(|(base, own)| base / own).collect());
        let million = 1e6 / files.max(1) as f64;
        let cpu = ringroad_measure::summary::median(&runs.cpu_s);
        let seconds = ringroad_measure::summary::median(&runs.seconds);
        json!({
            "name": name,
            "skipped": runs.skipped,
            "seconds": runs.seconds,
            "seconds_interval": interval(&runs.seconds),
            "files_per_s": seconds.map(|seconds| files as f64 / seconds),
            "times_faster_than_cp_r": ratio.as_deref().and_then(interval),
            "cpu_s_per_million_files": cpu.map(|cpu| cpu * million),
            "syscalls_per_million_files": runs.syscalls.map(|calls| calls as f64 * million),
            "peak_bytes": runs.peak_bytes,
            "steal_share": ringroad_measure::summary::median(&runs.steal_share),
        })
    };
    Value::Array(all.iter().map(of).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn plan(words: &[&str]) -> Result<Plan, String> {
        Plan::parse(Path::new("/r"), &words.iter().map(|word| word.to_string()).collect::<Vec<_>>())
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
            (&["--what", "x"], "--what"),
            (&["--dir"], "--dir"),
        ] {
            assert!(plan(words).unwrap_err().contains(named), "{words:?}");
        }
    }

    #[test]
    fn folders_of_this_machine_stay_out_of_the_record() {
        let words: Vec<String> =
            ["--dir", "/here", "--scale", "1"].iter().map(|word| word.to_string()).collect();
        assert_eq!(visible(&words).collect::<Vec<_>>(), ["--scale", "1"]);
    }

    #[test]
    fn ratios_are_taken_within_blocks() {
        let runs = |seconds: &[f64]| Runs { seconds: seconds.to_vec(), ..Runs::default() };
        let all = [("cp -r", runs(&[2.0, 20.0, 4.0])), ("xcp", runs(&[1.0, 10.0, 2.0]))];
        let found = contestants(&all, 1000);
        assert_eq!(found[1]["times_faster_than_cp_r"], json!({"low": 2.0, "median": 2.0, "high": 2.0}));
        assert_eq!(found[1]["files_per_s"], 500.0);
    }
}
