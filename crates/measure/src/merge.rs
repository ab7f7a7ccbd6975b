//! Merges records: the same cells with the runs of all of them, and the cells that only one has.
//!
//! Runs are pooled, and a cell's figures are computed from them again. Ratios stay within their blocks: the
//! blocks of one record follow those of another and are never mixed. Start at [`merge`].

use crate::caveat::{Caveat, Verdict};
use crate::claim::Outcome;
use crate::histogram::Histogram;
use crate::ratios;
use crate::record::{Cell, Details, Interval, Latencies, Loop, Record, Run, ServerCost};
use crate::summary;
use serde_json::{Map, Value};
use std::fmt;

/// Why records cannot be one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MergeError {
    /// There was none.
    Nothing,
    /// Two cells of the same name are not the same load; carries the name.
    OtherLoad(String),
    /// Two cells have a run in common; carries their name.
    Twice(String),
}

impl fmt::Display for MergeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MergeError::Nothing => f.write_str("there is no record to merge"),
            MergeError::OtherLoad(id) => write!(
                f,
                "cell {id} is another load in one record than in the other (connections, payload, pipeline, active \
                 share or turns differ): merge records of the same suite"
            ),
            MergeError::Twice(id) => write!(
                f,
                "cell {id} has the same run in two of the records: runs that count twice look surer than they are, so name \
                 each record once, and none beside one that it was merged into"
            ),
        }
    }
}

impl std::error::Error for MergeError {}

/// What tells one machine from another, of the facts in a record.
const MACHINE: [&str; 5] = ["kernel", "arch", "cpu_model", "cpus_online", "pinning"];

/// The fact that names which build of the program made a record.
pub const BUILD: &str = "ringroad_build";

/// Returns the first fact in which two records' machines differ, if they do. What only one of them knows is
/// no difference.
pub fn other_machine(first: &Map<String, Value>, second: &Map<String, Value>) -> Option<&'static str> {
    MACHINE.into_iter().find(|fact| match (first.get(*fact), second.get(*fact)) {
        (Some(first), Some(second)) => !first.is_null() && !second.is_null() && first != second,
        _ => false,
    })
}

/// Makes one record of all, in their order; the first gives what a record has once (machine, version,
/// command).
///
/// # Errors
/// [`MergeError`].
pub fn merge(records: &[Record]) -> Result<Record, MergeError> {
    let (first, others) = records.split_first().ok_or(MergeError::Nothing)?;
    let mut merged = first.clone();
    let mut doubts: Vec<Caveat> = Vec::new();
    // Where each record's blocks begin.
    let mut offset = blocks(first);
    for other in others {
        if let Some(fact) = other_machine(&first.host, &other.host) {
            doubts.push(Caveat::Other(format!(
                "it is merged from records of different machines (their {fact} differs): compare ratios, and take no \
                 figure for that of one machine."
            )));
        }
        if merged.baseline != other.baseline {
            merged.baseline = None;
        }
        for cell in &other.cells {
            let mut cell = cell.clone();
            cell.runs.iter_mut().for_each(|run| run.block += offset);
            match merged.cells.iter_mut().find(|known| known.id == cell.id) {
                Some(known) => join(known, cell)?,
                None => merged.cells.push(cell),
            }
        }
        for claim in &other.claims {
            match merged.claims.iter_mut().find(|known| known.id == claim.id) {
                Some(known)
                    if known.outcome == Outcome::Untestable && claim.outcome != Outcome::Untestable =>
                {
                    *known = claim.clone();
                }
                Some(_) => {}
                None => merged.claims.push(claim.clone()),
            }
        }
        for control in &other.control {
            match merged.control.iter_mut().find(|known| known.load == control.load) {
                Some(known) => known.ratio = wider(known.ratio, control.ratio),
                None => merged.control.push(control.clone()),
            }
        }
        offset += blocks(other);
        merged.harness_cpu_share = match (merged.harness_cpu_share, other.harness_cpu_share) {
            (Some(mine), Some(theirs)) => Some(mine.max(theirs)),
            _ => None,
        };
    }
    if others.is_empty() {
        return Ok(merged);
    }
    if unique(records.iter().filter_map(|record| record.host.get(BUILD)?.as_str())).len() > 1 {
        doubts.push(Caveat::Other(
            "it is merged from records made by different builds: a difference may be the program's, so measure both \
             sides of it with one build."
                .to_owned(),
        ));
    }
    // Blocks that all cells of the suite have; a cell of one record only has fewer.
    merged.blocks = records.iter().map(|record| record.blocks).sum();
    let suites: Vec<&str> = unique(records.iter().filter_map(|record| record.suite.as_deref()));
    merged.suite = (!suites.is_empty()).then(|| suites.join("+"));
    let titles: Vec<&str> = unique(records.iter().filter_map(|record| record.title.as_deref()));
    merged.title = match titles.as_slice() {
        [] => None,
        [one] => Some((*one).to_owned()),
        [first, rest @ ..] => Some(format!("{first} (and {} more)", rest.len())),
    };
    ratios::set(&mut merged.cells, merged.baseline.as_deref());
    ratios::judge(&mut merged.cells, &merged.control);
    let of_runs = records.iter().flat_map(|record| {
        // What concerns a record as a whole is what none of its cells says.
        let in_cells = |why: &Caveat| record.cells.iter().any(|cell| cell.verdict.reasons.contains(why));
        record.verdict.reasons.iter().filter(move |why| !in_cells(why)).cloned()
    });
    let whole = Verdict::of(of_runs.chain(doubts));
    merged.verdict = Verdict::worst(merged.cells.iter().map(|cell| &cell.verdict).chain([&whole]));
    Ok(merged)
}

/// Blocks in which anything ran, complete or not.
fn blocks(record: &Record) -> u32 {
    let last = record.cells.iter().flat_map(|cell| &cell.runs).map(|run| run.block + 1).max();
    last.unwrap_or(0).max(record.blocks)
}

fn unique<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut all: Vec<&str> = Vec::new();
    for text in texts {
        if !all.contains(&text) {
            all.push(text);
        }
    }
    all
}

fn wider(one: Interval, other: Interval) -> Interval {
    if other.reach() > one.reach() { other } else { one }
}

/// Adds the runs of the same cell in another record.
fn join(cell: &mut Cell, other: Cell) -> Result<(), MergeError> {
    let load = |cell: &Cell| (cell.connections, cell.pipeline, cell.protocol.clone(), cell.variant.clone());
    let both_ran = cell.skipped.is_none() && other.skipped.is_none();
    let payload_differs = both_ran && cell.payload_bytes != other.payload_bytes;
    let turns_differ = both_ran && cell.details.turn_s != other.details.turn_s;
    let load_differs = load(cell) != load(&other) || cell.active_share != other.active_share;
    if load_differs || payload_differs || turns_differ {
        return Err(MergeError::OtherLoad(cell.id.clone()));
    }
    if other.skipped.is_some() {
        return Ok(());
    }
    if cell.skipped.is_some() {
        *cell = other;
        return Ok(());
    }
    let is_here =
        |run: &Run| cell.runs.iter().any(|known| *known == Run { block: known.block, ..run.clone() });
    if other.runs.iter().any(is_here) {
        return Err(MergeError::Twice(cell.id.clone()));
    }
    let few = Caveat::too_few_repeats(cell.runs.len() as u32);
    let few_there = Caveat::too_few_repeats(other.runs.len() as u32);
    cell.runs.extend(other.runs);
    cell.sent += other.sent;
    cell.completed += other.completed;
    cell.errors.add(&other.errors);
    let histograms = cell.histogram.as_deref().zip(other.histogram.as_deref());
    let histogram = histograms.and_then(|(mine, theirs)| {
        let mut sum = Histogram::from_base64(mine).ok()?;
        sum.add(&Histogram::from_base64(theirs).ok()?);
        Some(sum)
    });
    let percentiles = histogram.as_ref().and_then(Histogram::percentiles);
    // In open loop the histogram is that of the response times; there is none of the service times.
    let service = percentiles.filter(|_| cell.kind == Loop::Closed);
    cell.latency_us = Latencies { response: percentiles, service, lag: None };
    // These are of one run each, but for what was started, the client, and the turns.
    let mut doubts: Vec<Caveat> = Vec::new();
    let program = match (cell.details.program.take(), other.details.program) {
        (Some(mine), Some(theirs)) => match mine.difference(&theirs) {
            None => Some(mine),
            Some(how) => {
                doubts.push(Caveat::Other(format!(
                    "it is merged from runs of different programs of one name ({how}): give each a name of its own."
                )));
                None
            }
        },
        // What is unknown differs from nothing, and hides no difference between two others.
        (mine, theirs) => mine.or(theirs),
    };
    let client = cell.details.client.take().zip(other.details.client).map(|(mine, theirs)| {
        let names = unique(mine.split("; ").chain(theirs.split("; ")));
        if names.len() > unique(mine.split("; ")).len() || names.len() > unique(theirs.split("; ")).len() {
            doubts.push(Caveat::Other(
                "it is merged from runs under different clients: the client has a small effect on what a request costs, so \
                 merge records of one."
                    .to_owned(),
            ));
        }
        names.join("; ")
    });
    let closes = cell.details.closes || other.details.closes;
    (cell.series, cell.details) =
        (None, Details { client, program, turn_s: other.details.turn_s, closes, ..Details::default() });
    cell.histogram = histogram.map(|histogram| histogram.to_base64());
    let middle = |figure: fn(&Run) -> Option<f64>| {
        summary::median(&cell.runs.iter().filter_map(figure).collect::<Vec<f64>>())
    };
    cell.duration_s = middle(|run| Some(run.duration_s)).unwrap_or(0.0);
    cell.rps = middle(|run| (run.duration_s > 0.0).then_some(run.rps));
    cell.client_cpu_share = middle(|run| run.client_cpu_share);
    let source = cell.server.syscalls_source.clone().or(other.server.syscalls_source);
    let before = std::mem::replace(&mut cell.server, ServerCost::of_runs(&cell.runs, source));
    fill(&mut cell.server, before);
    if cell.limiter != other.limiter {
        cell.limiter = None;
    }
    // Runs that were too few alone may be enough together.
    let reasons = cell.verdict.reasons.drain(..).chain(other.verdict.reasons);
    let kept: Vec<Caveat> = reasons
        .filter(|why| Some(why) != few.as_ref() && Some(why) != few_there.as_ref())
        .chain(doubts)
        .collect();
    let level = cell.verdict.level.max(other.verdict.level);
    let few = Caveat::too_few_repeats(cell.runs.len() as u32);
    let nothing_left = kept.is_empty();
    cell.verdict = Verdict::of(kept.into_iter().chain(few));
    if !nothing_left {
        // Sentences read back carry no level of their own.
        cell.verdict.level = cell.verdict.level.max(level);
    }
    // Runs that were steady in each record need not be so together.
    let cpu: Vec<f64> = cell.runs.iter().filter_map(|run| run.cpu_us_per_request).collect();
    if let Some((spread, middle)) = summary::mad(&cpu).zip(summary::median(&cpu)).filter(|(_, m)| *m > 0.0) {
        Caveat::unsteady(spread / middle).into_iter().for_each(|doubt| cell.verdict.renew(doubt));
    }
    Ok(())
}

/// What the runs do not say, since an older version wrote them, is what the first record's cell says.
fn fill(server: &mut ServerCost, before: ServerCost) {
    server.user_us = server.user_us.or(before.user_us);
    server.sys_us = server.sys_us.or(before.sys_us);
    server.syscalls_per_request = server.syscalls_per_request.or(before.syscalls_per_request);
    server.context_switches_per_request =
        server.context_switches_per_request.or(before.context_switches_per_request);
    server.rss_bytes = server.rss_bytes.or(before.rss_bytes);
    server.rss_growth_bytes = server.rss_growth_bytes.or(before.rss_growth_bytes);
    server.kernel_bytes = server.kernel_bytes.or(before.kernel_bytes);
}
