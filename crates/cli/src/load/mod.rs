//! `ringroad load`: puts a load on a server, and says what came of it and how far to believe it.
//!
//! The load is the `load` library's. This file turns flags into its plan ([`plan`]), what it tells meanwhile into a
//! picture ([`live`]), its outcome into a summary ([`summary`]), a record and an exit code.

mod calibrate;
mod hold;
mod live;
mod plan;
mod processes;
mod room;
mod summary;
mod trust;

use crate::complaint::{DONE, FAILED, INTERRUPTED, INVALID, USAGE, say, why};
use crate::flags::{Common, LoadFlags};
use calibrate::Ceiling;
use ringroad_engine::choose;
use ringroad_host::capacity::Capacity;
use ringroad_load::knee::search;
use ringroad_load::report::{Frame, knee_record, record, skipped};
use ringroad_load::require::Requirement;
use ringroad_load::{Event, source};
use ringroad_measure::caveat::Level;
use ringroad_measure::record::Record;
use ringroad_measure::units::PerSecond;
use serde_json::Value;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

pub(crate) fn run_verb(flags: &LoadFlags, common: &Common) -> ExitCode {
    ExitCode::from(load(flags, common).unwrap_or_else(|Complaint { message, code }| {
        say(&message);
        code
    }))
}

/// What to say, and the exit code that goes with it.
struct Complaint {
    message: String,
    code: u8,
}

impl From<ringroad_load::Error> for Complaint {
    fn from(error: ringroad_load::Error) -> Complaint {
        Complaint { message: error.to_string(), code: if error.is_usage() { USAGE } else { FAILED } }
    }
}

fn load(flags: &LoadFlags, common: &Common) -> Result<u8, Complaint> {
    let mut plan = plan::of(flags)?;
    plan.check()?;
    if flags.knee.is_some() && plan.processes > 1 {
        let message = "--knee with --processes: a search is one process's".to_owned();
        return Err(Complaint { message, code: USAGE });
    }
    let searched = flags.knee.as_deref().map(str::parse::<Requirement>).transpose()?;
    let required = flags.require.iter().map(|text| text.parse()).collect::<Result<Vec<Requirement>, _>>()?;
    let choice = choose::choose(common.driver, None)
        .map_err(|unusable| Complaint { message: unusable.to_string(), code: USAGE })?;
    let facts = ringroad_host::facts();
    if let Some((threads, direct)) = room::places(&facts, &plan, flags.direct, choice.driver())? {
        (plan.threads, plan.direct) = (threads, Some(direct));
    }
    let addresses = plan.target.resolve()?;
    if let (true, Some(first)) = (plan.sources.is_empty(), addresses.first()) {
        plan.sources = source::spread(first.ip(), plan.held().into(), Capacity::of(&facts).outgoing);
    }
    let stop = stop_on_signals()?;
    if flags.processes.part.is_some() {
        return processes::part(&plan, &choice, &stop);
    }
    let ceiling = flags.calibrate.then(|| Ceiling::measure(&plan, &choice, &stop)).transpose()?;
    match &ceiling {
        Some(ceiling) if flags.url.is_none() => {
            print(&format!("{ceiling}\n"))?;
            return Ok(if stop.load(Ordering::Relaxed) { INTERRUPTED } else { DONE });
        }
        Some(ceiling) if !common.quiet => say(&ceiling.to_string()),
        _ => {}
    }
    let room = room::Room::of(&facts, &plan);
    if !common.quiet {
        say(&room.to_string());
    }
    room.check(&plan).map_err(|message| Complaint { message, code: FAILED })?;
    for address in addresses.iter().filter(|address| !address.ip().is_loopback()).take(1) {
        say(&format!("warning: {address} is not this machine: put load only on what is yours"));
    }
    if let Some(file) = &flags.out {
        // Before anything is measured: ten minutes must not end in "permission denied".
        fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(file)
            .map_err(|error| Complaint { message: unwritten(file, &error), code: FAILED })?;
    }
    let frame = Frame {
        command: std::iter::once("ringroad".to_owned())
            .chain(std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()))
            .collect(),
        started: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        host: match serde_json::to_value(&facts) {
            Ok(Value::Object(facts)) => facts,
            _ => serde_json::Map::new(),
        },
        driver: choice.driver().to_string(),
    };
    let what = summary::load(&plan, plan.connections, plan.idle, &frame.driver);
    let mut live = live::Live::new(&plan, what, searched.is_some(), common.quiet);
    let mut told = |event: &Event<'_>| live.event(event);
    let done = match &searched {
        None => processes::run(&plan, &choice, &stop, &mut told).map(|outcome| {
            let mut record = record(&plan, &outcome, &frame);
            let ceiling = ceiling.map(|ceiling| {
                record.cells.iter_mut().for_each(|cell| cell.details.ceiling = Some(ceiling.record()));
                let rate = PerSecond::of(outcome.tally.completed, outcome.window);
                rate.map_or(String::new(), |PerSecond(rate)| ceiling.beside(rate))
            });
            let text = summary::text(&plan, &outcome, &record.verdict, &frame.driver);
            Done {
                text: text + ceiling.as_deref().unwrap_or_default(),
                unmet: required
                    .iter()
                    .filter_map(|required| required.unmet(&outcome))
                    .chain(hold::sick(&plan, &outcome))
                    .collect(),
                interrupted: outcome.interrupted,
                record,
            }
        }),
        Some(demand) => search(&plan, demand, &choice, &stop, &mut told).map(|knee| {
            let title = summary::knee_title(&knee, demand);
            let record = knee_record(&knee, &title, &frame);
            Done {
                text: summary::knee_text(&knee, &title, &record.verdict, &frame.driver),
                unmet: knee.met.is_none().then(|| title.clone()).into_iter().collect(),
                interrupted: knee.interrupted,
                record,
            }
        }),
    };
    live.finish();
    let Done { record, text, unmet, interrupted } = match done {
        Ok(done) => done,
        Err(error) => {
            if let Some(file) = flags.out.as_deref().filter(|_| !error.is_usage()) {
                write(file, &skipped(&plan, &error.to_string(), &frame))?;
            }
            return Err(error.into());
        }
    };
    if let Some(file) = &flags.out {
        write(file, &record)?;
    }
    if !common.quiet {
        print(&text)?;
    }
    unmet.iter().for_each(|unmet| say(unmet));
    Ok(match record.verdict.level {
        _ if interrupted => INTERRUPTED,
        Level::Invalid => INVALID,
        Level::Suspect if flags.strict => INVALID,
        _ if !unmet.is_empty() => FAILED,
        Level::Suspect | Level::Valid => DONE,
    })
}

/// What came of it, ready to be told.
struct Done {
    record: Record,
    text: String,
    /// Demands that are not met.
    unmet: Vec<String>,
    interrupted: bool,
}

/// Set by SIGINT and SIGTERM; the second one ends this process as if nothing were registered.
fn stop_on_signals() -> Result<Arc<AtomicBool>, Complaint> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .map_err(|error| Complaint {
                message: format!("registering for signals: {}", why(&error)),
                code: FAILED,
            })?;
    }
    Ok(stop)
}

fn write(file: &Path, record: &Record) -> Result<(), Complaint> {
    // Strings, numbers and lists of ours: there is no value that JSON could not hold.
    let mut text = serde_json::to_string_pretty(record).unwrap_or_default();
    text.push('\n');
    fs::write(file, text).map_err(|error| {
        // A record cut off in the middle is worse than none. (Nothing to say if there is none.)
        let _ = fs::remove_file(file);
        Complaint { message: unwritten(file, &error), code: FAILED }
    })
}

fn unwritten(file: &Path, error: &io::Error) -> String {
    format!("write, on {}: {}", crate::complaint::name(file), why(error))
}

fn print(text: &str) -> Result<(), Complaint> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // Whoever reads no further has seen enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Complaint { message: format!("write, on standard output: {}", why(&error)), code: FAILED })
        }
        _ => Ok(()),
    }
}
