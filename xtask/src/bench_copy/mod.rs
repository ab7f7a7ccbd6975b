//! `cargo xtask bench copy`: copiers side by side, on several file systems, cold and warm, in random order.
//!
//! A *cell* is a place (file system), a shape of tree, a temperature and whether the last byte has to be on
//! the disk within the timed part. In a *block* every *contestant* runs once in each cell of a place and
//! shape, in a new random order, after the same preparation ([`run::prepare`]) and into a folder of its own
//! ([`place`]); so what drifts between blocks drifts for all, and ratios are taken within blocks. What cannot
//! run here is in the record with its reason. Record and table are written after every block, so that a run
//! can be cut short.
//!
//! Servers have the lab; a copier has no load generator and no connections, so this stands beside it and
//! shares its statistics. Start at [`bench`].

mod earlier;
mod memory;
mod place;
mod plan;
mod result;
mod run;
mod short;
mod table;

pub(crate) use memory::bench as memory;
use place::Place;
use plan::{Cell, Group, Plan};
use result::Runs;
use ringroad_host::facts::facts;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde_json::{Value, json};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

/// A contestant: a name, and a command in which SOURCE, TARGET and RINGROAD stand for paths. Ours begin with
/// `ringroad`; the first of them is what a user gets.
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
    (CONTROL, &["cp", "-r", "SOURCE", "TARGET"]),
    (FLOOR, &["sh", "-c", "mkdir TARGET && find SOURCE -type f -print0 | xargs -0 -P 16 -n 64 cat"]),
];

/// What every ratio is taken to.
const BASELINE: &str = "cp -r";
/// The baseline once more: what it differs from itself is noise.
const CONTROL: &str = "cp -r again";
/// Everything read, sixteen files at a time, and nothing written: near what the storage gives for large cold
/// files. Not for small or cached ones, where starting a program for every 64 files costs more than copying
/// them.
const FLOOR: &str = "reading alone";

/// The reason for a cell that the time limit left no time for.
const NOT_REACHED: &str = "the time limit";

/// Runs the bench and leaves record and table; exit code 1 when a contestant that is here failed.
pub(crate) fn bench(root: &Path, words: &[String]) -> ExitCode {
    let plan = match Plan::parse(root, words) {
        Ok(plan) => plan,
        Err(mistake) => {
            eprintln!("bench copy: {mistake}\n{}", plan::usage());
            return ExitCode::from(2);
        }
    };
    eprint!("{}", plan.describe());
    if plan.only_plan {
        return ExitCode::SUCCESS;
    }
    let bench = Bench::new(root, &plan, words);
    match bench.and_then(Bench::run) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench copy: {error}");
            ExitCode::FAILURE
        }
    }
}

/// One cell with all contestants' runs so far.
#[derive(Debug)]
struct Found<'p> {
    cell: Cell,
    mount: String,
    files: u64,
    runs: Vec<(&'p str, Runs)>,
    skipped: Option<String>,
}

struct Bench<'p> {
    plan: &'p Plan,
    ringroad: PathBuf,
    /// The record but for its cells.
    head: Value,
    /// The record that is gone on with.
    earlier: Option<Value>,
    random: fastrand::Rng,
    begun: Instant,
    found: Vec<Found<'p>>,
    /// Held as long as this runs.
    _alone: File,
}

impl<'p> Bench<'p> {
    fn new(root: &Path, plan: &'p Plan, words: &[String]) -> io::Result<Self> {
        let ringroad = crate::release_binary(root)?;
        std::fs::create_dir_all(&plan.dir)?;
        let alone = alone_in(&plan.dir)?;
        std::fs::create_dir_all(plan.out.join("copy"))?;
        let host = facts();
        let command: Vec<&str> =
            ["cargo", "xtask", "bench", "copy"].into_iter().chain(visible(words)).collect();
        let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let versions = versions(plan);
        let head = json!({
            "schema": "ringroad.copy/2",
            "version": env!("CARGO_PKG_VERSION"),
            "started_unix_s": started.as_secs(),
            "command": command,
            "host": {
                "kernel": host.kernel, "arch": host.arch, "cpu_model": host.cpu_model,
                "cpus": host.cpus_online, "memory_total_bytes": host.memory_total_bytes,
                "virtualisation": host.virtualisation,
            },
            "versions": versions,
            "repeats": plan.repeats,
            "scale": plan.scale,
            "seed": plan.seed,
        });
        let earlier = if plan.add { Some(earlier::read(&plan.record(), &head)?) } else { None };
        let cells = plan.cells.iter().map(|cell| Found {
            cell: *cell,
            mount: String::new(),
            files: 0,
            runs: plan.only.iter().map(|name| (name.as_str(), Runs::default())).collect(),
            skipped: Some(NOT_REACHED.to_string()),
        });
        let random = fastrand::Rng::with_seed(plan.seed);
        Ok(Bench {
            plan,
            ringroad,
            head,
            earlier,
            random,
            begun: Instant::now(),
            found: cells.collect(),
            _alone: alone,
        })
    }

    fn run(mut self) -> io::Result<bool> {
        // What is on the disk stays until the end: `place.rs` says why.
        let mut disk = Place::new("disk", &self.plan.dir).map_err(io::Error::other)?;
        for group in self.plan.groups() {
            if group.place() == "disk" {
                self.group(&group, &mut disk)?;
                continue;
            }
            match Place::new(group.place(), &self.plan.dir) {
                Ok(mut place) => self.group(&group, &mut place)?,
                Err(reason) => self.skip(&group, &reason),
            }
        }
        let table = self.write()?;
        print!("{table}");
        eprintln!("{} removing what was copied", plan::clock(self.begun.elapsed()));
        drop(disk);
        let failed =
            |(_, runs): &(&str, Runs)| runs.skipped.as_ref().is_some_and(|why| why != run::NOT_INSTALLED);
        Ok(!self.found.iter().any(|found| found.runs.iter().any(failed)))
    }

    fn skip(&mut self, group: &Group, reason: &str) {
        eprintln!("{}, {}: skipped: {reason}", group.place(), group.shape().name);
        for cell in &group.cells {
            if let Some(found) = self.found.iter_mut().find(|found| found.cell == *cell) {
                found.skipped = Some(reason.to_string());
            }
        }
    }

    /// All blocks of one place and shape, or as many as fit into the time there is.
    fn group(&mut self, group: &Group, place: &mut Place) -> io::Result<()> {
        for cell in &group.cells {
            let reason = place.refuses(cell.cold).map(str::to_string);
            if let Some(found) = self.found.iter_mut().find(|found| found.cell == *cell) {
                found.skipped = reason;
                for (name, runs) in &mut found.runs {
                    if !run::installed(command_of(name)) {
                        runs.skipped = Some(run::NOT_INSTALLED.to_string());
                    }
                }
            }
        }
        let mut longest = self.plan.estimate(group);
        for block in 0..self.plan.repeats {
            if let Some(limit) = self.plan.time_limit
                && self.begun.elapsed() + longest > limit
            {
                if block == 0 {
                    self.skip(group, NOT_REACHED);
                }
                return Ok(());
            }
            let begun = Instant::now();
            eprintln!(
                "{} {}, {}: block {} of {}",
                plan::clock(self.begun.elapsed()),
                group.place(),
                group.shape().name,
                block + 1,
                self.plan.repeats
            );
            let (bytes, files) = self.plan.block_size(group);
            if let Err(reason) = place.renew(group.shape().name, bytes, files) {
                if block > 0 {
                    return Err(io::Error::other(reason));
                }
                self.skip(group, &reason);
                return Ok(());
            }
            self.block(group, place, block)?;
            let took = begun.elapsed();
            longest = if block == 0 { took } else { longest.max(took) };
            self.write()?;
        }
        Ok(())
    }

    /// Every contestant once in every cell.
    fn block(&mut self, group: &Group, place: &mut Place, block: usize) -> io::Result<()> {
        let shape = group.shape();
        let (source, sample) = (place.source(shape.name), place.sample(shape.name));
        let files = if source.exists() {
            // Made for an earlier block, or for the cells of the same tree without a sync: the disk keeps it.
            let same = self.found.iter().filter(|found| found.cell.place == group.place());
            same.filter(|found| found.cell.shape == shape).map(|found| found.files).max().unwrap_or(0)
        } else {
            make_tree(&self.ringroad, shape.sample.0, shape.sample.1, &sample)?;
            make_tree(&self.ringroad, shape.dataset, self.plan.scale, &source)?
        };
        for found in self.found.iter_mut().filter(|found| group.cells.contains(&found.cell)) {
            found.files = files;
            found.mount = place.description();
        }
        let (bytes, files) = self.plan.size(shape);
        let mut order: Vec<(usize, usize)> = Vec::new();
        for (at, found) in self.found.iter().enumerate() {
            if group.cells.contains(&found.cell) && found.skipped.is_none() {
                order.extend((0..found.runs.len()).map(|nth| (at, nth)));
            }
        }
        self.random.shuffle(&mut order);
        for (at, nth) in order {
            let Some(found) = self.found.get_mut(at) else { continue };
            let Some((name, runs)) = found.runs.get_mut(nth) else { continue };
            if runs.skipped.is_some() {
                continue;
            }
            let room = bytes + files * 4096;
            let target = place.fresh_target(room, files)?;
            let mut cell = run::Cell {
                ringroad: &self.ringroad,
                source: &source,
                target: &target,
                cold: found.cell.cold,
                sync: found.cell.sync,
                bytes: room,
            };
            let title = found.cell.title();
            match run::timed(command_of(name), &cell, block == 0 && *name != FLOOR)? {
                Ok(one) => {
                    eprintln!("  {title} {name}: {:.3} s, {:.2} CPU s", one.seconds, one.cpu_s);
                    runs.add(block, &one);
                }
                Err(how) => {
                    eprintln!("  {title} {name}: failed: {how}");
                    runs.skipped = Some(how);
                    continue;
                }
            }
            if block == 0 {
                let target = place.fresh_target(plan::SAMPLE_BYTES, plan::SAMPLE_FILES)?;
                cell = run::Cell { source: &sample, target: &target, bytes: plan::SAMPLE_BYTES, ..cell };
                let calls = run::syscalls(command_of(name), &cell)?;
                let copied = run::contents(&sample)?.0;
                runs.calls_per_file = calls.map(|calls| calls as f64 / copied.max(1) as f64);
            }
        }
        Ok(())
    }

    /// Record and table as they stand.
    fn write(&self) -> io::Result<String> {
        let mut record = self.head.clone();
        record["took_s"] = json!(self.begun.elapsed().as_secs());
        record["cells"] = self.found.iter().map(result::cell).collect();
        if let Some(earlier) = &self.earlier {
            earlier::add(&mut record, earlier);
        }
        let text = serde_json::to_string_pretty(&record).map_err(io::Error::other)?;
        std::fs::write(self.plan.record(), text + "\n")?;
        let table = table::markdown(&record);
        std::fs::write(self.plan.out.join("copy/table.md"), &table)?;
        Ok(table)
    }
}

/// A lock on the folder for trees and images: two runs in it would unmount each other's, and measure each
/// other.
fn alone_in(dir: &Path) -> io::Result<File> {
    let lock = File::create(dir.join("lock"))?;
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(Errno::WOULDBLOCK) => {
            Err(io::Error::other(format!("another run is in {}: wait for its end", dir.display())))
        }
        Err(error) => Err(error.into()),
    }
}

/// The options without the folders of this machine, which say nothing about the run.
fn visible(words: &[String]) -> impl Iterator<Item = &str> {
    let pairs =
        words.chunks(2).filter(|pair| !matches!(pair.first().map(String::as_str), Some("--dir" | "--out")));
    pairs.flatten().map(String::as_str)
}

/// What each contestant that is not ours says of itself.
fn versions(plan: &Plan) -> Value {
    let mut versions = serde_json::Map::new();
    for name in &plan.only {
        let Some(program) = name.split(' ').next() else { continue };
        if program == "ringroad" || name == FLOOR || versions.contains_key(program) {
            continue;
        }
        let said = Command::new(program).arg("--version").output();
        let line = said.ok().and_then(|said| {
            let text = String::from_utf8_lossy(&said.stdout).into_owned();
            Some(text.lines().next()?.to_string())
        });
        versions.insert(program.to_string(), json!(line));
    }
    Value::Object(versions)
}

/// Writes the tree and returns how many files it has.
fn make_tree(ringroad: &Path, dataset: &str, scale: f64, tree: &Path) -> io::Result<u64> {
    let mut make = Command::new(ringroad);
    make.args(["lab", "dataset", dataset, "--scale", &scale.to_string()]).arg(tree);
    let said = make.output()?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let files = text.split_whitespace().next().and_then(|count| count.parse().ok());
    files.ok_or_else(|| io::Error::other(String::from_utf8_lossy(&said.stderr).into_owned()))
}

fn command_of(name: &str) -> &'static [&'static str] {
    CONTESTANTS.iter().find(|(known, _)| *known == name).map_or(&[], |(_, command)| command)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_second_run_in_a_folder_is_refused_until_the_first_is_over() {
        let folder = tempfile::tempdir().unwrap();
        let first = alone_in(folder.path()).unwrap();
        let refused = alone_in(folder.path()).unwrap_err().to_string();
        assert!(refused.contains("another run") && refused.contains("wait for its end"), "{refused}");
        drop(first);
        assert!(alone_in(folder.path()).is_ok());
    }

    #[test]
    fn folders_of_this_machine_stay_out_of_the_record() {
        let words: Vec<String> =
            ["--dir", "/here", "--scale", "1"].iter().map(|word| word.to_string()).collect();
        assert_eq!(visible(&words).collect::<Vec<_>>(), ["--scale", "1"]);
    }
}
