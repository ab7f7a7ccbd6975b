//! `ringroad lab`: runs suites, shows what came out, and starts the reference servers.
//!
//! The measuring is in the `lab` library; this file turns flags into its options, its events into a progress
//! line, its record into files, a table and an exit code.

mod advise;
mod client;

use crate::complaint::{DONE, FAILED, INTERRUPTED, INVALID, USAGE, say, why};
use crate::flags::{Common, DatasetFlags, LabAct, LabFlags, RunFlags, ServerFlags, SourcesFlags};
use crate::progress::Progress;
use ringroad_engine::choose;
use ringroad_engine::signal::{Signal, dump_on};
use ringroad_lab::compare::{Measure, compare as differences};
use ringroad_lab::dataset::{self, DatasetError};
use ringroad_lab::pin::Cores;
use ringroad_lab::plan::Plan;
use ringroad_lab::suite::built_in;
use ringroad_lab::{Error, RunOptions, Suite, page, runner, sources, table};
use ringroad_measure::caveat::Level;
use ringroad_measure::merge;
use ringroad_measure::record::{Record, SCHEMA};
use ringroad_models::{Model, Options, Stop, Workers};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{env, fs};

pub(crate) fn run(flags: Box<LabFlags>, common: &Common) -> ExitCode {
    let LabFlags { act, driver, run } = *flags;
    if common.driver.or(driver).is_some() {
        say("--driver: the lab's models name their drivers (--model, or a suite)");
        return ExitCode::from(USAGE);
    }
    let code = match act {
        None => suite("quick", &run, common),
        Some(LabAct::Quick(run)) => suite("quick", &run, common),
        Some(LabAct::Run { suite: name, run }) => suite(name.as_deref().unwrap_or("quick"), &run, common),
        Some(LabAct::Suites) => suites(),
        Some(LabAct::Sources(flags)) => claims(&flags, common),
        Some(LabAct::Report { records, out, chart }) => report(&records, out.as_deref(), chart.as_deref()),
        Some(LabAct::Compare { first, second, figure, absolute }) => {
            compare(&first, &second, figure, absolute)
        }
        Some(LabAct::Merge { records, out }) => merge_into(&records, &out),
        Some(LabAct::Advise(flags)) => advise::advise(&flags),
        Some(LabAct::Server(flags)) => server(&flags),
        Some(LabAct::Dataset(flags)) => make_dataset(&flags, common),
        Some(LabAct::Client(flags)) => client::run(&flags),
    };
    ExitCode::from(code.unwrap_or_else(|Complaint { message, code }| {
        say(&message);
        code
    }))
}

/// What to say, and the exit code that goes with it.
struct Complaint {
    message: String,
    code: u8,
}

fn failed(what: &str, on: &Path, error: &io::Error) -> Complaint {
    Complaint { message: format!("{what}, on {}: {}", on.display(), why(error)), code: FAILED }
}

/// Runs a suite, or goes on with one, and leaves record, page and table.
fn suite(name: &str, flags: &RunFlags, common: &Common) -> Result<u8, Complaint> {
    let ringroad =
        env::current_exe().map_err(|error| failed("finding this program", Path::new("ringroad"), &error))?;
    let options = RunOptions {
        command: command(),
        seed: flags.seed,
        repeats: flags.repeats,
        duration_s: flags.duration.map(|span| span.as_secs_f64()),
        who: flags.client,
        ..RunOptions::of(ringroad)
    };
    // Trees to copy lie beside the record, on the disk that holds it, and go when the run is over.
    let options = |folder: &Folder| RunOptions { scratch: Some(folder.trees()), ..options.clone() };
    match &flags.resume {
        // What is there stays until the whole is there: the record of the part that was done is not lost by trying.
        Some(folder) => {
            let folder = Folder(folder.clone());
            let (journal, options) = (folder.journal(), options(&folder));
            run_it(&folder, flags, common, |progress, stop| {
                runner::resume(&journal, &options, progress, stop)
            })
        }
        None => {
            let mut suite = Suite::load(name).map_err(refused)?;
            only(&mut suite, &flags.only)?;
            flags.with.iter().try_for_each(|program| suite.add(program)).map_err(refused)?;
            if flags.plan {
                return say_plan(suite, flags);
            }
            // Before anything is measured: two minutes must not end in "permission denied".
            let folder = Folder::prepare(flags.out.clone(), &suite.name)?;
            let options = RunOptions { journal: Some(folder.journal()), ..options(&folder) };
            run_it(&folder, flags, common, |progress, stop| runner::run(&suite, &options, progress, stop))
        }
    }
}

/// What would run.
fn say_plan(mut suite: Suite, flags: &RunFlags) -> Result<u8, Complaint> {
    suite.repeats = flags.repeats.unwrap_or(suite.repeats);
    suite.duration_s = flags.duration.map_or(suite.duration_s, |span| span.as_secs_f64());
    let plan = fitting_plan(&suite)?;
    print(&plan.text(&suite, width()))?;
    Ok(DONE)
}

/// The plan of a suite with what this machine has too few CPUs for left out.
fn fitting_plan(suite: &Suite) -> Result<Plan, Complaint> {
    let mut plan = Plan::of(suite, 0);
    plan.fit(suite, Cores::of_this_process().map_err(refused)?.server.len());
    Ok(plan)
}

/// What the documents claim, beside what comes out here.
fn claims(flags: &SourcesFlags, common: &Common) -> Result<u8, Complaint> {
    let ringroad =
        env::current_exe().map_err(|error| failed("finding this program", Path::new("ringroad"), &error))?;
    // Programs may be started from folders of their own, so the path must not depend on ours.
    let peers = std::path::absolute(&flags.peers)
        .map_err(|error| failed("finding the folder", &flags.peers, &error))?;
    let options = sources::Options {
        run: RunOptions {
            command: command(),
            seed: flags.seed,
            repeats: flags.repeats,
            duration_s: flags.duration.map(|span| span.as_secs_f64()),
            ..RunOptions::of(ringroad)
        },
        only: flags.only.clone(),
        full: flags.full,
        peers,
        scratch: flags.scratch.clone().unwrap_or_else(env::temp_dir),
    };
    let folder = Folder::prepare(flags.out.clone(), "sources")?;
    let output = RunFlags { json: flags.json, strict: flags.strict, ..RunFlags::default() };
    run_it(&folder, &output, common, |progress, stop| sources::run(&options, progress, stop))
}

/// What follows from `run`, which may be stopped by a signal.
fn run_it(
    folder: &Folder,
    flags: &RunFlags,
    common: &Common,
    run: impl FnOnce(&mut Progress, &AtomicBool) -> Result<Record, Error>,
) -> Result<u8, Complaint> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The second one ends this process as if nothing were registered; the kernel ends the children then.
        let twice = signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop));
        let once = signal_hook::flag::register(signal, Arc::clone(&stop));
        if let Err(error) = twice.and(once) {
            return Err(Complaint {
                message: format!("registering for signals: {}", why(&error)),
                code: FAILED,
            });
        }
    }
    let mut progress = Progress::new(common);
    let record = run(&mut progress, &stop);
    progress.finish();
    match fs::remove_dir_all(folder.trees()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            say(&format!("remove, on {}: {}", folder.trees().display(), why(&error)));
        }
        _ => {}
    }
    let record = record.map_err(refused)?;
    let interrupted = stop.load(Ordering::Relaxed);

    folder.write(&record, page::html)?;
    if interrupted {
        // Only a suite can be gone on with.
        if !common.quiet && folder.journal().exists() {
            say(&format!("go on with it: ringroad lab run --resume {}", folder.0.display()));
        }
    } else {
        // Everything is in the record now. (What cannot be removed does no harm.)
        let _ = fs::remove_file(folder.journal());
    }
    if flags.json {
        print(&json(&record))?
    } else {
        print(&table_for_here(&record))?
    }
    if !common.quiet && !flags.json {
        print(&format!("\nrecord: {}\npage:   {}\n", folder.record().display(), folder.page().display()))?;
    }
    Ok(match record.verdict.level {
        _ if interrupted => INTERRUPTED,
        Level::Invalid => INVALID,
        Level::Suspect if flags.strict => INVALID,
        Level::Suspect | Level::Valid => DONE,
    })
}

/// The built-in suites, with how long each takes here.
fn suites() -> Result<u8, Complaint> {
    let mut text = String::new();
    for name in built_in::names() {
        let suite = Suite::load(name).map_err(refused)?;
        let seconds = fitting_plan(&suite)?.estimate(&suite).as_secs_f64();
        let time =
            if seconds < 180.0 { format!("{seconds:.0} s") } else { format!("{:.0} min", seconds / 60.0) };
        text.push_str(&format!("{name:<14}{time:>7}  {}\n", suite.title));
    }
    text.push_str("\nringroad lab run NAME, with --plan to see what it would do; a suite of your own is a TOML file\n(docs/SUITES.md).\n");
    print(&text)?;
    Ok(DONE)
}

/// The command line for the record: by our name, since where this program lies says nothing about the run.
fn command() -> Vec<String> {
    let words = env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    std::iter::once("ringroad".to_string()).chain(words).collect()
}

fn refused(error: Error) -> Complaint {
    let code = match error {
        Error::NoSuchSuite { .. } | Error::Read { .. } | Error::Suite(_) | Error::With { .. } => USAGE,
        _ => FAILED,
    };
    Complaint { message: error.to_string(), code }
}

/// Leaves the named programs in the suite, and the baseline that the ratios need.
fn only(suite: &mut Suite, names: &[String]) -> Result<(), Complaint> {
    if names.is_empty() {
        return Ok(());
    }
    if let Some(unknown) = names.iter().find(|name| !suite.servers.iter().any(|server| server.id == **name)) {
        let known: Vec<&str> = suite.servers.iter().map(|server| server.id.as_str()).collect();
        let message =
            format!("--only {unknown}: not in suite {} (there are: {})", suite.name, known.join(", "));
        return Err(Complaint { message, code: USAGE });
    }
    let baseline = suite.baseline.clone();
    suite.servers.retain(|server| names.contains(&server.id) || Some(&server.id) == baseline.as_ref());
    Ok(())
}

/// Where record and page go.
struct Folder(PathBuf);

impl Folder {
    fn prepare(wanted: Option<PathBuf>, suite: &str) -> Result<Folder, Complaint> {
        let folder = wanted
            .unwrap_or_else(|| state_folder().join(format!("{suite}-{}-{}", stamp(), std::process::id())));
        fs::create_dir_all(&folder).map_err(|error| failed("creating a folder", &folder, &error))?;
        let folder = Folder(folder);
        // Created, to see that they can be; and removed, since a page of an earlier run beside a record of this
        // one would lie, and so would an empty record of a run that did not end.
        for file in [folder.record(), folder.page()] {
            fs::File::create(&file)
                .and_then(|_| fs::remove_file(&file))
                .map_err(|error| failed("write", &file, &error))?;
        }
        Ok(folder)
    }

    fn record(&self) -> PathBuf {
        self.0.join("record.json")
    }

    fn journal(&self) -> PathBuf {
        self.0.join("journal.jsonl")
    }

    fn trees(&self) -> PathBuf {
        self.0.join("trees")
    }

    fn page(&self) -> PathBuf {
        self.0.join("report.html")
    }

    /// The record, and only then the page: should drawing it fail, what was measured is there.
    fn write(&self, record: &Record, draw: impl FnOnce(&Record) -> String) -> Result<(), Complaint> {
        write_whole(&self.record(), &json(record))?;
        write_whole(&self.page(), &draw(record))
    }
}

/// A file with all of the text, or none: one cut off in the middle is worse.
fn write_whole(file: &Path, text: &str) -> Result<(), Complaint> {
    fs::write(file, text).map_err(|error| {
        // Nothing to say if there is none.
        let _ = fs::remove_file(file);
        failed("write", file, &error)
    })
}

/// `$XDG_STATE_HOME/ringroad/lab`, or its default place; without a home the folder we are in.
fn state_folder() -> PathBuf {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
    state.unwrap_or_default().join("ringroad/lab")
}

/// Now, as part of a file name: seconds since 1970 sort as they follow each other.
fn stamp() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn json(record: &Record) -> String {
    // Strings, numbers and lists of ours: there is no value that JSON could not hold.
    let mut text = serde_json::to_string_pretty(record).unwrap_or_default();
    text.push('\n');
    text
}

fn table_for_here(record: &Record) -> String {
    let out = io::stdout();
    let terminal = out.is_terminal();
    let color = terminal && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    // A record that is about claims is read for them; its cells are on the page.
    match sources::text::text(&record.claims, width(), color) {
        claims if claims.is_empty() => table::text(record, width(), color),
        claims => claims,
    }
}

/// Of the terminal, or what reads well elsewhere.
fn width() -> usize {
    match rustix::termios::tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 => usize::from(size.ws_col),
        _ => 100,
    }
}

fn print(text: &str) -> Result<(), Complaint> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        // Nobody reads any more; the files are written.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        answer => answer.map_err(|error| failed("write", Path::new("standard output"), &error)),
    }
}

/// A record made earlier; of a folder, the one in it.
fn read(path: &Path) -> Result<Record, Complaint> {
    let file = if path.is_dir() { path.join("record.json") } else { path.to_owned() };
    let path = file.as_path();
    let text = fs::read_to_string(path).map_err(|error| failed("read", path, &error))?;
    let unreadable =
        |how: String| Complaint { message: format!("read, on {}: {how}", path.display()), code: FAILED };
    let record: Record = serde_json::from_str(&text)
        .map_err(|error| unreadable(format!("not a record of {SCHEMA}: {error}")))?;
    if record.schema != SCHEMA {
        return Err(unreadable(format!("schema {:?}, and this version reads {SCHEMA}", record.schema)));
    }
    Ok(record)
}

/// Several records as one.
fn read_all(paths: &[PathBuf]) -> Result<Record, Complaint> {
    let records = paths.iter().map(|path| read(path)).collect::<Result<Vec<Record>, _>>()?;
    merge::merge(&records).map_err(|error| Complaint { message: format!("merge: {error}"), code: FAILED })
}

/// What became slower or faster.
fn compare(first: &Path, second: &Path, figure: Measure, absolute: bool) -> Result<u8, Complaint> {
    let (first, second) = (read(first)?, read(second)?);
    print(&differences(&first, &second, figure, absolute).text(width()))?;
    Ok(DONE)
}

/// One record of several, as a file.
fn merge_into(paths: &[PathBuf], out: &Path) -> Result<u8, Complaint> {
    let record = read_all(paths)?;
    fs::write(out, json(&record)).map_err(|error| failed("write", out, &error))?;
    print(&format!("record: {}\n", out.display()))?;
    Ok(DONE)
}

/// Table and page of records made earlier, and their chart where one is wanted.
fn report(paths: &[PathBuf], out: Option<&Path>, chart: Option<&Path>) -> Result<u8, Complaint> {
    let file = match (paths, out) {
        (_, Some(out)) => out.to_owned(),
        ([path], None) if path.is_dir() => path.join("report.html"),
        ([path], None) => path.with_file_name("report.html"),
        (_, None) => {
            let message = "lab report: several records make one page: say where with --out FILE".to_owned();
            return Err(Complaint { message, code: USAGE });
        }
    };
    let record = read_all(paths)?;
    if let Some(file) = chart {
        let message = || "lab report: no CPU time in this record, so there is nothing to chart".to_owned();
        let chart = page::chart(&record).ok_or_else(|| Complaint { message: message(), code: FAILED })?;
        fs::write(file, chart).map_err(|error| failed("write", file, &error))?;
    }
    fs::write(&file, page::html(&record)).map_err(|error| failed("write", &file, &error))?;
    print(&table_for_here(&record))?;
    print(&format!("\npage:   {}\n", file.display()))?;
    if let Some(file) = chart {
        print(&format!("chart:  {}\n", file.display()))?;
    }
    Ok(DONE)
}

/// Whether what the model stands on can be had here: said before a filter ends this process for trying.
fn usable(model: Model) -> Result<(), Complaint> {
    let outcome = match model.engine_driver() {
        Some(driver) => choose::probe(driver).map(drop),
        None if matches!(model, Model::Uring | Model::UringMultishot) => choose::may_make_rings(),
        None => Ok(()),
    };
    outcome.map_err(|refusal| Complaint { message: format!("model {model}: {refusal}"), code: USAGE })
}

/// One of the reference servers, until SIGINT or SIGTERM.
fn server(flags: &ServerFlags) -> Result<u8, Complaint> {
    let complain = |error: ringroad_models::Error| Complaint { message: error.to_string(), code: FAILED };
    let options = Options {
        buffer_bytes: flags.buffer as usize,
        delay: flags.delay_us,
        work: flags.work_us,
        batch: flags.batch,
        reuse_port: flags.reuse_port,
    };
    usable(flags.model)?;
    if let Some(why) = flags.batch.and_then(|_| flags.model.no_batch()) {
        let message = format!("--batch: {} takes none: {why}", flags.model);
        return Err(Complaint { message, code: USAGE });
    }
    let stop = Stop::new().map_err(complain)?;
    for signal in [SIGINT, SIGTERM] {
        stop.write_end()
            .try_clone_to_owned()
            .and_then(|end| signal_hook::low_level::pipe::register(signal, end))
            .map_err(|error| failed("registering for signals", Path::new("the server"), &error))?;
    }
    if flags.model.engine_driver().is_some() {
        // Whoever wonders why it stands still can ask. Nobody is told if standard error is gone.
        let tell = |text: &str| drop(io::stderr().write_all(text.as_bytes()));
        dump_on(Signal::SIGUSR1, tell)
            .map_err(|error| Complaint { message: error.to_string(), code: FAILED })?;
    }
    let server =
        Workers::bind(flags.model, flags.protocol, flags.listen, options, flags.workers).map_err(complain)?;
    print(&format!("listening on {}\n", server.address()))?;
    let totals = server.run(&stop).map_err(complain)?;
    print(&format!("{totals}\n"))?;
    Ok(DONE)
}

/// A tree of files to copy. SIGINT ends it where it is: what is there can be looked at and removed.
fn make_dataset(flags: &DatasetFlags, common: &Common) -> Result<u8, Complaint> {
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    let made = dataset::make(flags.dataset, flags.scale, &flags.folder, threads).map_err(|error| {
        let code = if matches!(error, DatasetError::Scale(_)) { USAGE } else { FAILED };
        Complaint { message: error.to_string(), code }
    })?;
    if !common.quiet {
        let dataset::Made { files, bytes, folders, links } = made;
        print(&format!("{files} files, {bytes} bytes, {folders} folders, {links} links\n"))?;
    }
    Ok(DONE)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use serde_json::json;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_page_that_cannot_be_drawn_leaves_the_record() {
        let record = json!({
            "schema": SCHEMA, "tool": "lab", "version": "0.1.0", "command": ["ringroad", "lab"],
            "started": "2026-11-20T19:12:03Z", "host": {}, "verdict": { "level": "VALID", "reasons": [] }, "cells": []
        });
        let record: Record = serde_json::from_value(record).unwrap();
        let place = tempfile::tempdir().unwrap();
        let folder = Folder(place.path().to_owned());
        let drawn =
            catch_unwind(AssertUnwindSafe(|| folder.write(&record, |_| panic!("no chart of this")).is_ok()));
        assert!(drawn.is_err());
        assert!(read(place.path()).is_ok_and(|left| left == record));
        assert!(!folder.page().exists());
    }
}
