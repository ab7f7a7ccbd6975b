//! `ringroad load`: load-tests a server and reports how far the result can be trusted.
//!
//! The load is the `load` library's. This file turns flags into its plan ([`plan`]), what it tells meanwhile
//! into a picture ([`live`]), its outcome into a summary ([`summary`]), a record and an exit code
//! ([`output`]).

mod ask;
mod calibrate;
pub(crate) mod flags;
mod hold;
mod inputs;
mod live;
mod machines;
mod output;
mod part;
mod plan;
mod post;
mod processes;
mod repeat;
mod room;
mod summary;
mod trust;
mod urls;

use crate::complaint::{DONE, FAILED, INTERRUPTED, INVALID, USAGE, say, why};
use crate::flags::Common;
use crate::terminal::{Indent, columns, fitted};
use ask::Settled;
use calibrate::Ceiling;
use flags::LoadFlags;
use inputs::Inputs;
use output::{Output, print};
use part::Parted;
use repeat::{Repeated, Told};
use ringroad_engine::choose::{self, Choice};
use ringroad_host::Facts;
use ringroad_host::capacity::Capacity;
use ringroad_load::knee::search;
use ringroad_load::report::{Frame, knee_record};
use ringroad_load::require::Requirement;
use ringroad_load::site::Address;
use ringroad_load::{Event, Plan, Point, source};
use ringroad_measure::caveat::Level;
use ringroad_measure::record::Record;
use ringroad_measure::units::PerSecond;
use serde_json::Value;
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
        let code = match (error.is_usage(), error.is_interrupted()) {
            (true, _) => USAGE,
            (_, true) => INTERRUPTED,
            _ => FAILED,
        };
        Complaint { message: error.to_string(), code }
    }
}

fn load(flags: &LoadFlags, common: &Common) -> Result<u8, Complaint> {
    // What is wrong with the words is said before anything is asked for.
    let inputs = Inputs::new(flags.processes.processes > 1);
    let checked = plan::of(flags, None, &plan::Learnt::default(), &inputs)?;
    checked.check()?;
    if flags.knee.is_some() && checked.processes > 1 {
        let message = "--knee with --processes: a search is one process's".to_owned();
        return Err(Complaint { message, code: USAGE });
    }
    if flags.vs.is_some() && !flags.require.is_empty() {
        let message =
            "--require with --vs: it is not clear for which URL (load each with --require)".to_owned();
        return Err(Complaint { message, code: USAGE });
    }
    let searched = flags.knee.as_deref().map(str::parse::<Requirement>).transpose();
    // A demand is refused as one of --require.
    let searched = searched.map_err(|why| Complaint {
        message: why.to_string().replacen("--require", "--knee", 1),
        code: USAGE,
    })?;
    let required = flags.require.iter().map(|text| text.parse()).collect::<Result<Vec<Requirement>, _>>()?;
    let mut choice = choose::choose(common.driver, None)
        .map_err(|unusable| Complaint { message: unusable.to_string(), code: USAGE })?;
    let facts = ringroad_host::facts();
    let is_part = flags.processes.process_part.is_some();
    if !is_part {
        ringroad_load::settle(&checked, &mut choice)?;
    }
    // Before signals are taken over: a FIFO may have to be waited for, and Ctrl-C ends that.
    let stop = Arc::new(AtomicBool::new(false));
    let output =
        if flags.plan || is_part { None } else { Some(Output::new(flags, common.quiet, Arc::clone(&stop))?) };
    stop_on_signals(&stop)?;
    if flags.plan {
        let ceiling = flags.calibrate.then(|| Ceiling::measure(&checked, &choice, &stop)).transpose()?;
        print(&fits(&machines::text(&facts, &checked, choice.driver(), ceiling.as_ref())))?;
        return Ok(DONE);
    }
    // It may have a large body.
    drop(checked);
    let frame = frame(&facts, &choice);
    // One of several processes is told when to begin.
    let mut parted = if is_part { Parted::told() } else { Parted::new(&flags.parts, common.quiet, &stop)? };
    let mut plans = Vec::new();
    for url in std::iter::once(None).chain(flags.vs.as_deref().map(Some)) {
        let Settled { mut plan, refusal, warning } = ask::settle(flags, url, &inputs, &choice, &stop)?;
        if let Some(message) = refusal {
            if let Some(output) = &output {
                output.write_record(&parted.skipped(&plan, &message, &frame))?;
            }
            return Err(Complaint { message, code: FAILED });
        }
        if let Some(warning) = warning.filter(|_| !common.quiet) {
            say(&warning);
        }
        prepare(&mut plan, flags, &facts, &choice)?;
        plans.push(plan);
    }
    drop(inputs);
    let (Some(plan), Some(output)) = (plans.first().cloned(), output) else {
        return match plans.first() {
            Some(plan) => processes::part(plan, &choice, &stop),
            None => Ok(DONE),
        };
    };
    let ceiling = flags.calibrate.then(|| Ceiling::measure(&plan, &choice, &stop)).transpose()?;
    match &ceiling {
        Some(ceiling) if flags.url.is_none() && flags.urls.is_none() => {
            print(&fits(&format!("{ceiling}\n")))?;
            return Ok(if stop.load(Ordering::Relaxed) { INTERRUPTED } else { DONE });
        }
        Some(ceiling) if !common.quiet => say(&ceiling.to_string()),
        _ => {}
    }
    for plan in &plans {
        room::tell(&facts, &plan.own(), common)?;
    }
    let own = plan.own();
    let what = summary::load(&own, own.connections, own.idle, &frame.driver);
    let several = plans.len() > 1 || flags.repeat.is_some();
    let mut live = live::Live::new(&own, what, searched.is_some() || several, common.quiet);
    let plan = live.wishes(plan);
    let done = if several {
        let blocks = flags.repeat.unwrap_or(repeat::BLOCKS);
        let plans: Vec<Plan> = plans.into_iter().map(|plan| live.wishes(plan)).collect();
        let told = repeat::run(&plans, blocks, &required, (&choice, &stop, &frame), &mut |told| match told {
            Told::Event(event) => live.event(event),
            Told::Run(line) => live.note(&line),
        });
        told.map(|Repeated { record, text, unmet, interrupted, series }| Done {
            text,
            record,
            unmet,
            interrupted,
            series,
        })
    } else {
        once(&plan, searched.as_ref(), &required, ceiling, (&choice, &stop, &frame), (&mut live, &mut parted))
    };
    live.finish();
    let Done { record, text, unmet, interrupted, series } = match done {
        Ok(done) => done,
        Err(error) => {
            if !error.is_usage() {
                output.write_record(&parted.skipped(&plan, &error.to_string(), &frame))?;
            }
            return Err(error.into());
        }
    };
    let written = output.write(&text, &record, &series);
    unmet.iter().for_each(|unmet| say(unmet));
    written?;
    Ok(match record.verdict.level {
        _ if interrupted => INTERRUPTED,
        Level::Invalid => INVALID,
        Level::Suspect if flags.strict => INVALID,
        _ if !unmet.is_empty() => FAILED,
        Level::Suspect | Level::Valid => DONE,
    })
}

/// Returns the text with lines that fit the terminal behind standard output, if it is one.
fn fits(text: &str) -> String {
    fitted(text, columns(std::io::stdout()), Indent::AsTheLine)
}

/// Runs the load once, or searches a rate.
fn once(
    plan: &Plan,
    searched: Option<&Requirement>,
    required: &[Requirement],
    ceiling: Option<Ceiling>,
    (choice, stop, frame): (&Choice, &Arc<AtomicBool>, &Frame),
    (live, parted): (&mut live::Live, &mut Parted),
) -> Result<Done, ringroad_load::Error> {
    let mut told = |event: &Event<'_>| {
        live.event(event);
        parted.note(event, stop);
    };
    if let Some(demand) = searched {
        let knee = search(plan, demand, choice, stop, &mut told)?;
        let title = summary::knee_title(&knee);
        let record = knee_record(&knee, &title, frame);
        return Ok(Done {
            text: summary::knee_text(&knee, &title, &record.verdict, &frame.driver),
            unmet: knee.met.is_none().then(|| title.clone()).into_iter().collect(),
            interrupted: knee.interrupted,
            series: knee.best().map(|best| best.outcome.series.clone()).unwrap_or_default(),
            record,
        });
    }
    let outcome = processes::run(plan, choice, stop, &mut told)?;
    let mut record = parted.record(plan, &outcome, frame);
    // Printed are the figures of this part.
    let plan = &plan.own();
    let ceiling = ceiling.map(|ceiling| {
        record.cells.iter_mut().for_each(|cell| cell.details.ceiling = Some(ceiling.record()));
        let rate = PerSecond::of(outcome.tally.completed, outcome.window);
        rate.map_or(String::new(), |PerSecond(rate)| ceiling.beside(rate))
    });
    let text = summary::text(plan, &outcome, &record.verdict, &frame.driver);
    Ok(Done {
        text: text + ceiling.as_deref().unwrap_or_default(),
        unmet: required
            .iter()
            .filter_map(|required| required.unmet(&outcome))
            .chain(hold::sick(plan, &outcome))
            .collect(),
        interrupted: outcome.interrupted,
        series: outcome.series,
        record,
    })
}

/// Gives the plan what depends on this machine: places for connections without descriptors, addresses to
/// connect from.
fn prepare(plan: &mut Plan, flags: &LoadFlags, facts: &Facts, choice: &Choice) -> Result<(), Complaint> {
    let own = plan.own();
    if let Some((threads, direct)) = room::places(facts, &own, flags.direct, choice.driver())? {
        (plan.threads, plan.direct) = (threads, Some(direct));
    }
    let mut addresses = Vec::new();
    for place in plan.places() {
        addresses.extend(place.resolve()?.iter().filter_map(Address::ip));
    }
    if let (true, true, Some(first)) = (plan.sources.is_empty(), plan.others.is_empty(), addresses.first()) {
        plan.sources = source::spread(first.ip(), own.held().into(), Capacity::of(facts).outgoing);
    }
    if flags.processes.process_part.is_none() {
        for address in addresses.iter().filter(|address| !address.ip().to_canonical().is_loopback()).take(1) {
            say(&format!(
                "warning: {address} is not this machine: load only servers that you are allowed to load"
            ));
        }
    }
    Ok(())
}

/// Returns what is known beside the load itself.
fn frame(facts: &Facts, choice: &Choice) -> Frame {
    Frame {
        command: std::iter::once("ringroad".to_owned())
            .chain(std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()))
            .collect(),
        started: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        host: match serde_json::to_value(facts) {
            Ok(Value::Object(facts)) => facts,
            _ => serde_json::Map::new(),
        },
        driver: choice.driver().to_string(),
    }
}

/// What came of it, ready to be told.
struct Done {
    record: Record,
    text: String,
    /// Demands that are not met.
    unmet: Vec<String>,
    interrupted: bool,
    series: Vec<Point>,
}

/// Set by the signals that ask it to stop.
fn stop_on_signals(stop: &Arc<AtomicBool>) -> Result<(), Complaint> {
    crate::stopping::on_signals(&crate::stopping::wishes(), stop, |_| ()).map_err(|error| Complaint {
        message: format!("registering for signals: {}", why(&error)),
        code: FAILED,
    })
}
