//! `ringroad lab`: runs suites, prints results, and starts the reference servers.
//!
//! The measuring is in the `lab` library; this file turns flags into its options, its events into a progress
//! line, its record into files, a table and an exit code.

mod advise;
mod client;
pub(crate) mod flags;
mod parts;
mod store;
mod traffic;

use crate::complaint::{DONE, FAILED, INTERRUPTED, INVALID, USAGE, say, why};
use crate::flags::Common;
use crate::progress::Progress;
use crate::terminal::{Indent, columns, fitted};
use flags::{DatasetFlags, Format, LabAct, LabFlags, PrintFlags, RunFlags, ServerFlags, SourcesFlags};
use ringroad_engine::choose;
use ringroad_engine::signal::{Signal, dump_on};
use ringroad_lab::compare::{Measure, compare as differences};
use ringroad_lab::dataset::{self, DatasetError};
use ringroad_lab::pin::Cores;
use ringroad_lab::plan::Plan;
use ringroad_lab::suite::{Server, built_in};
use ringroad_lab::table::{self, Detail};
use ringroad_lab::{Error, RunOptions, Suite, export, page, program, runner, sources};
use ringroad_measure::caveat::Level;
use ringroad_measure::merge;
use ringroad_measure::record::Record;
use ringroad_measure::units::counted;
use ringroad_models::{Model, Options, Stop, Workers};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{env, fs};
use store::{Folder, Page, read};

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
        Some(LabAct::List) => store::list(),
        Some(LabAct::Open { record }) => store::open(record),
        Some(LabAct::Sources(flags)) => claims(&flags, common),
        Some(LabAct::Report { records, out, chart, print }) => {
            report(&records, out.as_deref(), chart.as_deref(), print)
        }
        Some(LabAct::Compare { first, second, figure, absolute }) => {
            compare(&first, &second, figure, absolute)
        }
        Some(LabAct::Merge { records, out }) => merge_into(&records, &out),
        Some(LabAct::Advise(flags)) => advise::advise(&flags),
        Some(LabAct::Server(flags)) => server(&flags),
        Some(LabAct::Dataset(flags)) => make_dataset(&flags, common),
        Some(LabAct::Client(flags)) => client::run(&flags),
        Some(LabAct::Other(words)) => Err(no_such_verb(&words)),
    };
    ExitCode::from(code.unwrap_or_else(|Complaint { message, code }| {
        say(&message);
        code
    }))
}

/// Returns the error for a word that is not a verb, usually the name of a suite.
fn no_such_verb(words: &[std::ffi::OsString]) -> Complaint {
    let word = words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    let is_suite = built_in::names().any(|name| name == word) || word.ends_with(".toml");
    let message = if is_suite {
        format!("lab {word}: a suite name follows `run`: ringroad lab run {word}")
    } else {
        let verbs =
            "quick, run, suites, list, open, sources, report, compare, merge, advise, server, dataset";
        format!("lab {word}: not a verb (available: {verbs}; a suite name follows `run`)")
    };
    Complaint { message, code: USAGE }
}

/// An error message and its exit code.
struct Complaint {
    message: String,
    code: u8,
}

fn failed(what: &str, on: &Path, error: &io::Error) -> Complaint {
    Complaint { message: format!("{what}, on {}: {}", on.display(), why(error)), code: FAILED }
}

/// Runs or resumes a suite, and writes record, page and table.
fn suite(name: &str, flags: &RunFlags, common: &Common) -> Result<u8, Complaint> {
    let ringroad =
        env::current_exe().map_err(|error| failed("finding this program", Path::new("ringroad"), &error))?;
    let given = RunOptions {
        command: command(),
        seed: flags.seed,
        repeats: flags.repeats,
        duration_s: flags.duration.map(|span| span.as_secs_f64()),
        client_override: flags.client,
        ..RunOptions::of(ringroad)
    };
    // Trees to copy are beside the record, on its disk, and are removed after the run.
    let options = |folder: &Folder| RunOptions { scratch: Some(folder.trees()), ..given.clone() };
    match &flags.resume {
        // The existing record stays until the new one is complete, so that an attempt does not lose it.
        Some(folder) => {
            let folder = Folder(folder.clone());
            let (journal, options) = (folder.journal(), options(&folder));
            run_it(&folder, flags, common, |progress, stop| {
                runner::resume(&journal, &options, progress, stop)
            })
        }
        None => {
            let mut suite = match flags.url.as_slice() {
                [] => Suite::load(name).map_err(refused)?,
                urls if name == "quick" => Suite::of_urls(urls).map_err(refused)?,
                _ => {
                    let message = "--url: takes the place of a suite: leave the suite out".to_owned();
                    return Err(Complaint { message, code: USAGE });
                }
            };
            only(&mut suite, &flags.only)?;
            if let Some(path) = &flags.path {
                suite.set_path(path).map_err(refused)?;
            }
            if !flags.connections.is_empty() {
                suite.set_connections(&flags.connections).map_err(refused)?;
            }
            flags.with.iter().try_for_each(|program| suite.add(program)).map_err(refused)?;
            if flags.plan {
                return say_plan(&suite, &given);
            }
            // The user's program is the purpose of the run, so without it the rest is not measured.
            let added = suite.servers.iter().rev().take(flags.with.len());
            let missing = |server: &Server| program::missing(server, suite.folder.as_deref());
            if let Some((server, why)) = added.rev().find_map(|server| Some((server, missing(server)?))) {
                return Err(Complaint { message: format!("--with {}: {why}", server.id), code: USAGE });
            }
            // Check before measuring: a run of two minutes must not end in "permission denied".
            let folder = Folder::prepare(flags.out.clone(), &suite.name)?;
            let options = RunOptions { journal: Some(folder.journal()), ..options(&folder) };
            run_it(&folder, flags, common, |progress, stop| runner::run(&suite, &options, progress, stop))
        }
    }
}

/// Prints the plan of a run.
fn say_plan(suite: &Suite, options: &RunOptions) -> Result<u8, Complaint> {
    let suite = runner::overridden(suite, options).map_err(refused)?;
    let mut plan = fitting_plan(&suite)?;
    plan.look_for_programs(&suite);
    print(&plan.text(&suite, width()))?;
    if plan.runs() == 0 {
        let message = "nothing would be measured: no program can run".to_owned();
        return Err(Complaint { message, code: FAILED });
    }
    Ok(DONE)
}

/// Returns the plan of a suite, without what needs more CPUs than this machine has.
fn fitting_plan(suite: &Suite) -> Result<Plan, Complaint> {
    let mut plan = Plan::of(suite, 0);
    plan.fit(suite, Cores::of_this_process().map_err(refused)?.server.len());
    Ok(plan)
}

/// Prints the documents' claims beside the results here.
fn claims(flags: &SourcesFlags, common: &Common) -> Result<u8, Complaint> {
    let ringroad =
        env::current_exe().map_err(|error| failed("finding this program", Path::new("ringroad"), &error))?;
    // Programs may run in other folders, so the path must be absolute.
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
    let output = RunFlags { print: flags.print, strict: flags.strict, ..RunFlags::default() };
    run_it(&folder, &output, common, |progress, stop| sources::run(&options, progress, stop))
}

/// Runs `run`, which a signal may stop, and returns its result.
fn run_it(
    folder: &Folder,
    flags: &RunFlags,
    common: &Common,
    run: impl FnOnce(&mut Progress, &AtomicBool) -> Result<Record, Error>,
) -> Result<u8, Complaint> {
    let stop = Arc::new(AtomicBool::new(false));
    // If a later signal ends this process, the kernel ends the children.
    crate::stopping::on_signals(&crate::stopping::wishes(), &stop, |_| ()).map_err(|error| Complaint {
        message: format!("registering for signals: {}", why(&error)),
        code: FAILED,
    })?;
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

    if interrupted && folder.has_more_than(&record) {
        // Runs of an incomplete block are only in the record; a resumed run repeats them.
        if !common.quiet {
            say(&format!("{} has more runs than this one, so it is kept", folder.record().display()));
        }
    } else {
        folder.write(&record, page::html)?;
    }
    if interrupted {
        // Only a suite can be resumed.
        if !common.quiet && folder.journal().exists() {
            say(&format!("resume it: ringroad lab run --resume {}", folder.0.display()));
        }
    } else {
        // Everything is in the record now. (A journal that cannot be removed is harmless.)
        let _ = fs::remove_file(folder.journal());
    }
    print(&printed(&record, flags.print))?;
    if !common.quiet && flags.print.wanted() == Format::Table {
        print(&format!("\nrecord: {}\npage:   {}\n", folder.record().display(), folder.page().display()))?;
    }
    // A run about published figures may have had nothing to measure.
    let nothing = record.claims.is_empty() && record.cells.iter().all(|cell| cell.skipped.is_some());
    if nothing && !interrupted {
        say("nothing was measured: no program could run");
        return Ok(FAILED);
    }
    Ok(match record.verdict.level {
        _ if interrupted => INTERRUPTED,
        Level::Invalid => INVALID,
        Level::Suspect if flags.strict => INVALID,
        Level::Suspect | Level::Valid => DONE,
    })
}

/// Prints the built-in suites, with their durations here.
fn suites() -> Result<u8, Complaint> {
    let mut text = String::new();
    for name in built_in::names() {
        let suite = Suite::load(name).map_err(refused)?;
        let seconds = fitting_plan(&suite)?.estimate(&suite).as_secs_f64();
        let time =
            if seconds < 180.0 { format!("{seconds:.0} s") } else { format!("{:.0} min", seconds / 60.0) };
        let line = format!("{name:<14}{time:>7}  {}", suite.title);
        text.push_str(&fitted(&line, Some(width()), Indent::At(23)));
        text.push('\n');
    }
    let more = "ringroad lab run NAME, with --plan to see what it would do; a suite of your own is a TOML file \
                (docs/SUITES.md).";
    text.push_str(&format!("\n{}\n", fitted(more, Some(width()), Indent::At(0))));
    print(&text)?;
    Ok(DONE)
}

/// Returns the command line for the record, with the plain program name: its path does not matter.
fn command() -> Vec<String> {
    let words = env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    std::iter::once("ringroad".to_string()).chain(words).collect()
}

fn refused(error: Error) -> Complaint {
    let code = match error {
        Error::NoSuchSuite { .. }
        | Error::Read { .. }
        | Error::Suite(_)
        | Error::With { .. }
        | Error::Url { .. }
        | Error::Option { .. } => USAGE,
        _ => FAILED,
    };
    Complaint { message: error.to_string(), code }
}

/// Keeps the named programs in the suite, and the baseline of the ratios.
fn only(suite: &mut Suite, names: &[String]) -> Result<(), Complaint> {
    if names.is_empty() {
        return Ok(());
    }
    if let Some(unknown) = names.iter().find(|name| !suite.servers.iter().any(|server| server.id == **name)) {
        let known: Vec<&str> = suite.servers.iter().map(|server| server.id.as_str()).collect();
        let message =
            format!("--only {unknown}: not in suite {} (available: {})", suite.name, known.join(", "));
        return Err(Complaint { message, code: USAGE });
    }
    let baseline = suite.baseline.clone();
    suite.servers.retain(|server| names.contains(&server.id) || Some(&server.id) == baseline.as_ref());
    Ok(())
}

fn json(record: &Record) -> String {
    // Strings, numbers and lists only: every value has a JSON form.
    let mut text = serde_json::to_string_pretty(record).unwrap_or_default();
    text.push('\n');
    text
}

/// Returns the record in the requested format.
fn printed(record: &Record, flags: PrintFlags) -> String {
    match flags.wanted() {
        Format::Table => table_for_here(record, if flags.brief { Detail::Brief } else { Detail::Full }),
        Format::Json => json(record),
        Format::Markdown => export::markdown(record),
        Format::Csv => export::csv(record),
    }
}

fn table_for_here(record: &Record, detail: Detail) -> String {
    let out = io::stdout();
    let terminal = out.is_terminal();
    let color = terminal && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    // For a record of claims, the claims matter; its cells are on the page.
    match sources::text::text(&record.claims, width(), color) {
        claims if claims.is_empty() => table::detailed(record, width(), color, detail),
        claims => claims,
    }
}

/// Returns the width of the terminal, or a readable default.
fn width() -> usize {
    columns(io::stdout()).unwrap_or(100)
}

fn print(text: &str) -> Result<(), Complaint> {
    crate::complaint::print(text).map_err(|message| Complaint { message, code: FAILED })
}

/// Reads several records as one. Parts of a load are added; others are pooled run by run.
fn read_all(paths: &[PathBuf]) -> Result<Record, Complaint> {
    let mut records = Vec::new();
    for path in paths {
        for file in store::files(path)? {
            records.push(read(&file)?);
        }
    }
    if records.iter().any(ringroad_load::parts::is_part) {
        // A single part is shown like any other record.
        if let ([one], [_]) = (records.as_slice(), paths)
            && !paths.iter().any(|path| path.is_dir())
        {
            return Ok(one.clone());
        }
        return added(&records);
    }
    merge::merge(&records).map_err(|error| Complaint { message: format!("merge: {error}"), code: FAILED })
}

/// Adds the parts of a load.
fn added(records: &[Record]) -> Result<Record, Complaint> {
    ringroad_load::parts::merge(records)
        .map_err(|error| Complaint { message: format!("merge: {error}"), code: FAILED })
}

/// Prints what became slower or faster.
fn compare(first: &Path, second: &Path, figure: Measure, absolute: bool) -> Result<u8, Complaint> {
    let (first, second) = (read(first)?, read(second)?);
    let differences = differences(&first, &second, figure, absolute);
    print(&match columns(io::stdout()) {
        Some(columns) => differences.text(columns),
        None => differences.lines(width()),
    })?;
    Ok(match (differences.is_invalid(), differences.is_empty()) {
        (true, _) => INVALID,
        (false, true) => FAILED,
        (false, false) => DONE,
    })
}

/// Merges several records into one file.
fn merge_into(paths: &[PathBuf], out: &Path) -> Result<u8, Complaint> {
    let mut record = read_all(paths)?;
    // A single part lacks all others.
    if ringroad_load::parts::is_part(&record) {
        record = added(std::slice::from_ref(&record))?;
    }
    store::write_whole(out, &json(&record))?;
    let parts = record.cells.iter().any(|cell| !cell.details.parts.is_empty());
    if !parts {
        print(&format!("record: {}\n", out.display()))?;
        return Ok(DONE);
    }
    print(&format!("{}record: {}\n", parts::text(&record), out.display()))?;
    Ok(if record.verdict.level == Level::Invalid { INVALID } else { DONE })
}

/// Prints the table of earlier records, and writes their page, and their chart if requested.
fn report(
    paths: &[PathBuf],
    out: Option<&Path>,
    chart: Option<&Path>,
    flags: PrintFlags,
) -> Result<u8, Complaint> {
    let last = if paths.is_empty() { Some(store::last()?) } else { None };
    let paths = last.as_ref().map_or(paths, std::slice::from_ref);
    let page = match (paths, out) {
        (_, Some(out)) => Some(Page::at(out, paths)),
        ([path], None) => Page::of(path),
        (_, None) => {
            let message = "lab report: several records make one page: name it with --out FILE".to_owned();
            return Err(Complaint { message, code: USAGE });
        }
    };
    let record = read_all(paths)?;
    if let Some(file) = chart {
        let message = || {
            "lab report: neither CPU time nor latencies in this record, so there is nothing to chart"
                .to_owned()
        };
        let chart = page::chart(&record).ok_or_else(|| Complaint { message: message(), code: FAILED })?;
        store::write_whole(file, &chart)?;
    }
    let for_people = flags.wanted() == Format::Table;
    // Output for another program is all that is wanted, unless a page is requested by name.
    let page = page.filter(|_| for_people || out.is_some());
    let refused = page.as_ref().and_then(|page| page.refusal(out.is_some()));
    if let (Some(page), None) = (&page, &refused) {
        page.write(&record)?;
    }
    print(&printed(&record, flags))?;
    if for_people {
        match (&page, &refused) {
            (Some(page), None) => print(&format!("\npage:   {}\n", page.file.display()))?,
            (Some(_), Some(_)) => {}
            (None, _) => print("\npage:   none: the record is not a file (--out FILE writes one)\n")?,
        }
        if let Some(file) = chart {
            print(&format!("chart:  {}\n", file.display()))?;
        }
    }
    refused.map_or(Ok(DONE), Err)
}

/// Checks whether the model can run here, before a filter ends this process for trying.
fn usable(model: Model) -> Result<(), Complaint> {
    let outcome = match model.engine_driver() {
        Some(driver) => choose::probe(driver).map(drop),
        None if matches!(model, Model::Uring | Model::UringMultishot) => choose::may_make_rings(),
        None => Ok(()),
    };
    outcome.map_err(|refusal| Complaint { message: format!("model {model}: {refusal}"), code: USAGE })
}

/// Runs one of the reference servers until SIGINT or SIGTERM.
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
        // For inspecting a server that seems to hang. A closed standard error does not stop it.
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

/// Makes a tree of files to copy. SIGINT stops it; the partial tree stays and can be removed.
fn make_dataset(flags: &DatasetFlags, common: &Common) -> Result<u8, Complaint> {
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    let made = dataset::make(flags.dataset, flags.scale, &flags.folder, threads).map_err(|error| {
        let code = if matches!(error, DatasetError::Scale(_)) { USAGE } else { FAILED };
        Complaint { message: error.to_string(), code }
    })?;
    if !common.quiet {
        let dataset::Made { files, bytes, folders, links } = made;
        let counts = [(files, "file"), (bytes, "byte"), (folders, "folder"), (links, "link")];
        print(&format!("{}\n", counts.map(|(count, noun)| counted(count, noun)).join(", ")))?;
    }
    Ok(DONE)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use ringroad_measure::record::SCHEMA;
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
