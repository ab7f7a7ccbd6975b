//! Runs a suite, block after block and cell after cell, and returns the record, also of an interrupted run.
//!
//! Start at [`run`]; [`resume`] continues an interrupted run.

use crate::collect::{self, CellRuns, Frame};
use crate::copies;
use crate::error::{Error, SuiteError};
use crate::event::{Event, Observer};
use crate::identity;
use crate::journal::{Begun, Journal, Kept};
use crate::pin::{Cores, Pinned};
use crate::plan::{Plan, Role, cell_name};
use crate::run::{Asked, Bench, Failure, Measured};
use crate::suite::{Client, Load, Server, Suite};
use crate::verdict;
use ringroad_measure::Record;
use ringroad_measure::merge::{BUILD, other_machine};
use ringroad_measure::units::counted;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// What the caller decides.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Our own program, what `{ringroad}` in a suite stands for.
    pub ringroad: PathBuf,
    /// The command of our clients; the name of one, `load` or `small`, is appended, and its options as one
    /// JSON word.
    pub client: Vec<String>,
    /// The client for all loads, instead of those the suite names. What the load generator cannot do stays
    /// with the small one.
    pub client_override: Option<Client>,
    /// The command line for the record. Without a `--seed` in it, the one that was used is appended, so that
    /// the recorded command repeats the same order.
    pub command: Vec<String>,
    /// Decides the order of the runs; chosen at random if absent.
    pub seed: Option<u64>,
    /// Instead of the suite's.
    pub repeats: Option<u32>,
    /// Instead of the suite's, seconds.
    pub duration_s: Option<f64>,
    /// Instead of the suite's, seconds.
    pub warmup_s: Option<f64>,
    /// A folder for trees of files to copy, on the disk that is to be measured; the caller removes it.
    pub scratch: Option<PathBuf>,
    /// A file that keeps what was done, for [`resume`]. Written over if it is there.
    pub journal: Option<PathBuf>,
}

impl RunOptions {
    /// Makes the options for a program that offers `lab server` and `lab client` itself.
    pub fn of(ringroad: impl Into<PathBuf>) -> RunOptions {
        let ringroad = ringroad.into();
        let client = vec![ringroad.to_string_lossy().into_owned(), "lab".to_owned(), "client".to_owned()];
        RunOptions { ringroad, client, ..RunOptions::default() }
    }
}

/// A cell that failed this often is not tried again: each try may cost a time-out.
const FAILURES_MAX: usize = 2;

/// Runs the suite and returns the record. Call it on a thread that stays: the kernel kills the children when
/// the calling thread ends.
///
/// Setting `stop` (a signal handler may) ends the current run within about 0.1 s, kills what was started, and
/// returns the record of what was completed, marked as interrupted.
///
/// # Errors
/// Only what keeps every cell from being measured: the affinity, a client that does not work, a plan over the
/// suite's budget. What fails in a cell is in the record.
pub fn run(
    suite: &Suite,
    options: &RunOptions,
    observer: &mut dyn Observer,
    stop: &AtomicBool,
) -> Result<Record, Error> {
    let suite = &overridden(suite, options)?;
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..=u64::from(u32::MAX)));
    let cores = Cores::of_this_process()?;
    let mut plan = Plan::of(suite, seed);
    plan.fit(suite, cores.server.len());
    plan.look_for_programs(suite);
    let estimate = plan.estimate(suite);
    let overrides = options.repeats.is_some() || options.duration_s.is_some() || options.warmup_s.is_some();
    if let Some(budget_s) = suite.budget_s.filter(|_| !overrides)
        && estimate.as_secs_f64() > budget_s
    {
        let message = format!(
            "{} of {:.2} s take {:.0} s, more than {budget_s:.0}: shorten, repeat less, or raise it",
            counted(plan.runs().into(), "run"),
            suite.run_estimate_s(),
            estimate.as_secs_f64(),
        );
        return Err(rule(suite, "budget_s", message).into());
    }
    let mut command = options.command.clone();
    if !command.is_empty() && !command.iter().any(|word| word == "--seed" || word.starts_with("--seed=")) {
        command.extend(["--seed".to_owned(), seed.to_string()]);
    }
    let started = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let begun = Begun::now(suite.clone(), seed, command, started, host(&cores, &options.ringroad));
    let journal = options.journal.as_deref();
    go_on(Kept::nothing(begun), journal, &cores, options, observer, stop)
}

/// Goes on with a run that was stopped, from the last whole block of its journal, and returns the record of
/// all of it. Suite, order and command are those of the journal; of the options only the programs count.
///
/// # Errors
/// As [`run`]; and [`Error::Journal`] if it cannot be read or was begun on another machine.
pub fn resume(
    journal: &Path,
    options: &RunOptions,
    observer: &mut dyn Observer,
    stop: &AtomicBool,
) -> Result<Record, Error> {
    let kept = Kept::read(journal)?;
    let cores = Cores::of_this_process()?;
    let here = host(&cores, &options.ringroad);
    let no = |how: String| Error::Journal { path: journal.to_owned(), how };
    if let Some(fact) = other_machine(&kept.begun.host, &here) {
        return Err(no(format!(
            "it was started on another machine (its {fact} differs): start a new run here"
        )));
    }
    if kept.begun.host.get(BUILD).is_some_and(|build| Some(build) != here.get(BUILD)) {
        return Err(no(
            "the program was rebuilt since, and all blocks of a run must use one program: start a new run"
                .to_owned(),
        ));
    }
    for (name, now) in identity::of_suite(&kept.begun.suite) {
        if let Some(how) = kept.begun.programs.get(&name).and_then(|then| then.difference(&now)) {
            return Err(no(format!(
                "{name} is not the program the run was started with ({how}), and all blocks of a run must use one: start a new run"
            )));
        }
    }
    go_on(kept, Some(journal), &cores, options, observer, stop)
}

/// Runs the blocks that are not done yet.
fn go_on(
    kept: Kept,
    journal: Option<&Path>,
    cores: &Cores,
    options: &RunOptions,
    observer: &mut dyn Observer,
    stop: &AtomicBool,
) -> Result<Record, Error> {
    let mut journal = journal.map(|path| Journal::begin(path, &kept)).transpose()?;
    let suite = &kept.begun.suite;
    let mut plan = Plan::of(suite, kept.begun.seed);
    plan.fit(suite, cores.server.len());
    plan.look_for_programs(suite);
    let _pinned = Pinned::to(&cores.harness).map_err(|source| Error::Machine {
        what: format!("pin the harness to CPUs {:?}", cores.harness),
        source,
    })?;
    let scratch = options.scratch.as_deref();
    let bench = Bench {
        suite,
        ringroad: &options.ringroad,
        client: &options.client,
        cores,
        scratch,
        stop,
        asked: Asked::default(),
    };
    let done_before: usize = plan.blocks.iter().take(kept.blocks as usize).map(Vec::len).sum();
    let done_before = u32::try_from(done_before).unwrap_or(u32::MAX);
    let left = plan.runs().saturating_sub(done_before);
    let share = f64::from(left) / f64::from(plan.runs().max(1));
    let estimate = plan.estimate(suite).mul_f64(share);
    let mut progress = Progress {
        observer,
        names: plan.cells.iter().map(|cell| cell_name(suite, cell)).collect(),
        start: Instant::now(),
        before_s: 0.0,
        estimate,
        done_before,
        done: done_before,
        total: plan.runs(),
    };
    progress.tell(&Event::Planned { suite, runs: plan.runs(), blocks: suite.repeats, estimate });
    let mut cells: Vec<CellRuns> = Vec::new();
    for (index, planned) in plan.cells.iter().enumerate() {
        // Others have no cell of their own.
        if let Some(reason) = planned.skipped.as_ref().filter(|_| planned.role == Role::Cell) {
            let name = progress.names[index].clone();
            progress.tell(&Event::Skipped { cell: &name, reason });
        }
        cells.push(CellRuns { skipped: planned.skipped.clone(), ..CellRuns::default() });
    }
    progress.before_s = kept.restore(&mut cells);
    let blocks = Blocks {
        bench: &bench,
        plan: &plan,
        cells: &mut cells,
        progress: &mut progress,
        journal: journal.as_mut(),
    }
    .all(kept.blocks)?;
    if let Some(scratch) = scratch {
        // What cannot be removed shows when the user removes the folder.
        let _ = copies::clear(scratch);
    }
    let interrupted = blocks < suite.repeats;
    progress.tell(&Event::Finished { interrupted, blocks });
    let shared_core = cores.shared();
    let Begun { command, started, host, programs, .. } = kept.begun.clone();
    let frame = Frame { command, started, host, programs, blocks, interrupted, shared_core };
    Ok(collect::record(suite, &plan, &cells, frame))
}

/// The blocks in the making: what runs, what came of it so far, and the observer.
struct Blocks<'a, 'b> {
    bench: &'a Bench<'a>,
    plan: &'a Plan,
    cells: &'a mut [CellRuns],
    progress: &'a mut Progress<'b>,
    journal: Option<&'a mut Journal>,
}

/// Whether it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Going {
    On,
    Stopped,
}

impl Blocks<'_, '_> {
    /// Runs block after block, those from `first` on; answers how many are completed.
    fn all(mut self, first: u32) -> Result<u32, Error> {
        let plan = self.plan;
        let mut done = first;
        for (block, order) in (0_u32..).zip(&plan.blocks).skip(first as usize) {
            for group in plan.groups(order, self.bench.suite) {
                if self.bench.stop.load(Ordering::Relaxed) || self.group(block, group)? == Going::Stopped {
                    return Ok(done);
                }
            }
            self.journal.as_mut().map_or(Ok(()), |journal| journal.block(block))?;
            done = block + 1;
        }
        Ok(done)
    }

    /// Runs what runs together: cells, each with its place in the block.
    fn group(&mut self, block: u32, group: Vec<(u32, usize)>) -> Result<Going, Error> {
        let Blocks { bench, plan, .. } = *self;
        let is_left = |cell: &CellRuns| cell.skipped.is_none() && cell.failures.len() < FAILURES_MAX;
        let (group, out): (Vec<_>, Vec<_>) =
            group.into_iter().partition(|(_, index)| is_left(&self.cells[*index]));
        self.progress.done += u32::try_from(out.len()).unwrap_or(u32::MAX);
        for (_, index) in &group {
            let name = self.progress.names[*index].clone();
            let Progress { done, total, .. } = *self.progress;
            let time_left = self.progress.time_left();
            self.progress.tell(&Event::RunStarted { cell: &name, block, done, total, time_left });
        }
        let at_s = self.progress.before_s + self.progress.start.elapsed().as_secs_f64();
        let loads: Vec<Cow<'_, Load>> =
            group.iter().map(|(_, index)| plan.cells[*index].load(bench.suite)).collect();
        let servers = group.iter().map(|(_, index)| &bench.suite.servers[plan.cells[*index].server]);
        let runs: Vec<(&Server, &Load)> = servers.zip(loads.iter().map(|load| &**load)).collect();
        let results = match bench.suite.turn_s {
            Some(_) => {
                let alone: Vec<Option<String>> =
                    group.iter().map(|(_, index)| self.cells[*index].why_alone()).collect();
                let (results, reasons) = by_turns(bench, &runs, &alone);
                for ((_, index), why) in group.iter().zip(reasons) {
                    self.cells[*index].alone = why;
                }
                results
            }
            None => runs.iter().map(|(server, load)| bench.run(server, load)).collect(),
        };
        let over_s = match bench.suite.turn_s {
            Some(_) => self.progress.before_s + self.progress.start.elapsed().as_secs_f64(),
            None => at_s,
        };
        let mut going = Going::On;
        for (((order, index), load), result) in group.into_iter().zip(&loads).zip(results) {
            let result = result.map(|mut measured| {
                // Where many ran, they ended together.
                let at_s = at_s.max(over_s - measured.run.duration_s);
                (measured.run.block, measured.run.order, measured.run.at_s) = (block, order, at_s);
                measured
            });
            if self.keep(index, load, result)? == Going::Stopped {
                going = Going::Stopped;
            }
        }
        Ok(going)
    }

    /// Tells what came of a run, and keeps it.
    fn keep(&mut self, index: usize, load: &Load, result: Result<Measured, Failure>) -> Result<Going, Error> {
        let name = self.progress.names[index].clone();
        self.progress.done += 1;
        match result {
            Ok(measured) => {
                let caveats = verdict::of_run(&measured, load);
                let Progress { done, total, .. } = *self.progress;
                let time_left = self.progress.time_left();
                self.progress.tell(&Event::RunDone {
                    cell: &name,
                    run: &measured.run,
                    caveats: &caveats,
                    done,
                    total,
                    time_left,
                });
                self.journal.as_mut().map_or(Ok(()), |journal| journal.run(index, &measured))?;
                self.cells[index].runs.push(measured);
            }
            Err(Failure::Skipped(reason)) => {
                self.progress.tell(&Event::Skipped { cell: &name, reason: &reason });
                self.journal.as_mut().map_or(Ok(()), |journal| journal.skipped(index, &reason))?;
                self.cells[index].skipped = Some(reason);
            }
            Err(Failure::Failed(how) | Failure::Slow(how)) => {
                self.progress.tell(&Event::RunFailed { cell: &name, how: &how });
                self.journal.as_mut().map_or(Ok(()), |journal| journal.failed(index, &how))?;
                self.cells[index].failures.push(how);
            }
            Err(Failure::Interrupted) => return Ok(Going::Stopped),
            Err(Failure::Client(error)) => return Err(error),
        }
        Ok(Going::On)
    }
}

/// Runs a group in turns, but for those that are to run by themselves (`alone` says why), and once more by
/// themselves those that the turns did not suit: one that took too long for a turn, and one that lost
/// connections while others had theirs. Answers the results, and why each ran by itself if it did.
fn by_turns(
    bench: &Bench<'_>,
    runs: &[(&Server, &Load)],
    alone: &[Option<String>],
) -> (Vec<Result<Measured, Failure>>, Vec<Option<String>>) {
    let together: Vec<(&Server, &Load)> =
        runs.iter().zip(alone).filter(|(_, alone)| alone.is_none()).map(|(run, _)| *run).collect();
    let mut results = bench.run_by_turns(&together).into_iter();
    let mut reasons = Vec::new();
    let all = runs.iter().zip(alone).map(|((server, load), alone)| {
        let first = if alone.is_none() { results.next() } else { None };
        let why = alone.clone().or_else(|| first.as_ref().and_then(|first| unsuited(first, load)));
        let result = match (first, &why) {
            (Some(first), None) => first,
            _ => bench.run(server, load).map(|mut measured| {
                measured.run.alone.clone_from(&why);
                measured
            }),
        };
        reasons.push(why);
        result
    });
    let all = all.collect();
    (all, reasons)
}

/// Returns why a run by turns is to be made again by itself, as a clause.
fn unsuited(result: &Result<Measured, Failure>, load: &Load) -> Option<String> {
    match result {
        Err(Failure::Slow(how)) => Some(how.clone()),
        Ok(measured) if measured.server_failed.is_none() => {
            let errors = &measured.run.errors;
            let lost = errors.connect + errors.reset + errors.timeout;
            let what = match (lost, measured.run.completed) {
                (0, 1..) => return None,
                (0, 0) => "no answer came in its turns".to_owned(),
                _ => format!(
                    "in its turns {} of {} connections failed or were closed by the program while others had theirs (does it close \
                     silent connections after some seconds?)",
                    lost.min(u64::from(load.connections)),
                    load.connections
                ),
            };
            Some(what)
        }
        Ok(_) | Err(_) => None,
    }
}

/// How far the run is, and the observer.
struct Progress<'a> {
    observer: &'a mut dyn Observer,
    names: Vec<String>,
    start: Instant,
    /// What was done before took so long.
    before_s: f64,
    estimate: Duration,
    done_before: u32,
    done: u32,
    total: u32,
}

impl Progress<'_> {
    fn tell(&mut self, event: &Event<'_>) {
        self.observer.event(event);
    }

    /// By the pace so far; by the estimate before there is one.
    fn time_left(&self) -> Duration {
        let left = self.total.saturating_sub(self.done);
        match self.done - self.done_before {
            0 => self.estimate,
            done => self.start.elapsed() * left / done,
        }
    }
}

/// Returns the suite with the caller's wishes in it.
///
/// # Errors
/// [`Error::Suite`]: a value is out of range.
pub fn overridden(suite: &Suite, options: &RunOptions) -> Result<Suite, Error> {
    let mut suite = suite.clone();
    if let Some(client) = options.client_override {
        for load in suite.loads.iter_mut().filter(|load| load.client != Client::Wrk) {
            load.client = if load.is_for_load() { client } else { Client::Small };
        }
    }
    if let Some(repeats) = options.repeats {
        if repeats == 0 {
            return Err(rule(&suite, "repeats", "0 measures nothing".to_owned()).into());
        }
        suite.repeats = repeats;
    }
    for (wish, key, mine) in [
        (options.duration_s, "duration_s", &mut suite.duration_s),
        (options.warmup_s, "warmup_s", &mut suite.warmup_s),
    ] {
        if let Some(seconds) = wish {
            let least = if key == "duration_s" { 0.01 } else { 0.0 };
            if !(least..=86_400.0).contains(&seconds) {
                let error = SuiteError {
                    file: suite.name.clone(),
                    line: None,
                    key: Some(key.to_owned()),
                    message: format!("{seconds} is not between {least} and 86400 seconds"),
                };
                return Err(error.into());
            }
            *mine = seconds;
        }
    }
    Ok(suite)
}

fn rule(suite: &Suite, key: &str, message: String) -> SuiteError {
    SuiteError { file: suite.name.clone(), line: None, key: Some(key.to_owned()), message }
}

/// Returns the machine's facts, which build of the program runs, and the CPUs of server, client and harness.
fn host(cores: &Cores, ringroad: &Path) -> Map<String, Value> {
    let mut host = match serde_json::to_value(ringroad_host::facts()) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    };
    if let Ok(build) = identity::of_file(ringroad) {
        host.insert(BUILD.to_owned(), json!(build));
    }
    host.insert(
        "pinning".to_owned(),
        json!({"server": cores.server, "client": cores.client, "harness": cores.harness}),
    );
    host
}
