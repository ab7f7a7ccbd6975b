//! From runs to the record: medians, intervals, ratios within blocks, verdicts. A pure function of its input.
//!
//! Start at [`record`].

use crate::plan::{Plan, Role};
use crate::run::Measured;
use crate::suite::{Keep, Load, Protocol, Suite};
use crate::verdict::{self, middle};
use ringroad_measure::caveat::REPEATS_MIN;
use ringroad_measure::record::{
    Cell, Control, CrossCheck, Details, Errors, Latencies, Loop, Program, Record, Run, SCHEMA, ServerCost,
};
use ringroad_measure::{Caveat, Comparison, Finding, Histogram, Verdict, ratios};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Everything that happened, per cell of the plan.
#[derive(Clone, Debug, Default)]
pub struct CellRuns {
    /// Runs with figures, in the order of the blocks.
    pub runs: Vec<Measured>,
    /// Runs without, as clauses.
    pub failures: Vec<String>,
    /// Why the cell did not run (any more).
    pub skipped: Option<String>,
    /// Why it runs by itself where others take turns.
    pub alone: Option<String>,
}

impl CellRuns {
    /// Returns why it runs by itself, also where that was found before the run was resumed.
    pub(crate) fn why_alone(&self) -> Option<String> {
        self.alone.clone().or_else(|| self.runs.last().and_then(|measured| measured.run.alone.clone()))
    }
}

/// What the record says besides the cells.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    /// The command line, word by word.
    pub command: Vec<String>,
    /// RFC 3339, UTC.
    pub started: String,
    /// Facts about the machine, and the CPUs of server, client and harness.
    pub host: Map<String, Value>,
    /// What each server's name stands for.
    pub programs: BTreeMap<String, Program>,
    /// Blocks completed.
    pub blocks: u32,
    /// Stopped by the caller.
    pub interrupted: bool,
    /// Client and server shared a core.
    pub shared_core: bool,
}

/// Puts the record together. `runs` is parallel to the plan's cells.
pub fn record(suite: &Suite, plan: &Plan, runs: &[CellRuns], frame: Frame) -> Record {
    let mut run_level = Vec::new();
    let controls: Vec<Option<(Control, Finding)>> =
        (0..suite.loads.len()).map(|load| control(suite, plan, runs, load)).collect();
    let check = checked(plan);
    let mut cells = Vec::new();
    for (index, planned) in plan.cells.iter().enumerate().filter(|(_, cell)| cell.role == Role::Cell) {
        let mut cell = cell(suite, plan, runs, index, frame.shared_core);
        cell.details.program = frame.programs.get(&cell.model).filter(|_| cell.skipped.is_none()).cloned();
        let control = controls[planned.load].as_ref();
        if let Some((control, Finding::Slower { by, .. } | Finding::Faster { by, .. })) = control
            && cell.skipped.is_none()
        {
            let by = if control.ratio.mid < 1.0 { -by.abs() } else { by.abs() };
            cell.verdict.add(Caveat::ControlDiffers { by });
        }
        if let Some(caveat) = clients(plan, runs, planned.load).filter(|_| cell.skipped.is_none()) {
            cell.verdict.add(caveat);
        }
        if let Some(check) = check.filter(|(checked, _)| *checked == index) {
            cross_check(&mut cell, &runs[index], &runs[check.1], &suite.loads[planned.load]);
        }
        cells.push(cell);
    }
    let control: Vec<Control> = controls.iter().flatten().map(|(control, _)| control.clone()).collect();
    ratios::set(&mut cells, suite.baseline.as_deref());
    ratios::judge(&mut cells, &control);
    if frame.interrupted {
        run_level.push(Caveat::Interrupted { done: frame.blocks, planned: suite.repeats });
    }
    for planned in plan.cells.iter().filter(|cell| cell.role == Role::Control) {
        let baseline_ran = cells.iter().any(|cell| {
            cell.skipped.is_none()
                && cell.load == suite.loads[planned.load].id
                && Some(&cell.model) == suite.baseline.as_ref()
        });
        if controls[planned.load].is_none() && baseline_ran && frame.blocks >= REPEATS_MIN {
            run_level.push(Caveat::Unknown {
                what: format!("the noise floor of {}", suite.loads[planned.load].id),
                why: "the baseline did not run twice in the same block, so no difference has a control"
                    .to_owned(),
            });
        }
    }
    let harness_cpu_share = harness_share(runs);
    run_level.extend(harness_cpu_share.and_then(Caveat::harness_busy));
    if cells.iter().all(|cell| cell.skipped.is_some()) {
        run_level.push(Caveat::Other("no cell could run: read the reason at each.".to_owned()));
    }
    let run_level = Verdict::of(run_level);
    let verdict = Verdict::worst(cells.iter().map(|cell| &cell.verdict).chain([&run_level]));
    Record {
        schema: SCHEMA.to_owned(),
        tool: "lab".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: frame.command,
        started: frame.started,
        suite: Some(suite.name.clone()),
        title: Some(suite.title.clone()),
        host: frame.host,
        verdict,
        baseline: suite.baseline.clone(),
        blocks: frame.blocks,
        control,
        harness_cpu_share,
        cells,
        claims: Vec::new(),
    }
}

fn cell(suite: &Suite, plan: &Plan, runs: &[CellRuns], index: usize, shared_core: bool) -> Cell {
    let planned = &plan.cells[index];
    let (server, load) = (&suite.servers[planned.server], &suite.loads[planned.load]);
    let mine = &runs[index];
    let measured: Vec<&Measured> = mine.runs.iter().collect();
    // A cell that ran once and was skipped later (a program removed meanwhile) has figures, and failed.
    let skipped = planned.skipped.clone().or_else(|| mine.skipped.clone()).filter(|_| measured.is_empty());
    let nothing_ran = measured.is_empty() && mine.failures.is_empty();
    let skipped = skipped.or_else(|| nothing_ran.then(|| "the run was stopped before its turn".to_owned()));

    let mut errors = Errors::default();
    let mut latencies = Histogram::new();
    for run in &measured {
        errors.add(&run.run.errors);
        if let Some(histogram) = &run.histogram {
            latencies.add(histogram);
        }
    }
    let percentiles = latencies.percentiles();
    let verdict = match &skipped {
        Some(_) => Verdict::valid(),
        None => verdict::of_cell(&measured, &mine.failures, load, shared_core),
    };
    Cell {
        id: format!("{}/{}", server.id, load.id),
        model: server.id.clone(),
        load: load.id.clone(),
        driver: server.driver.clone(),
        variant: load.about.clone(),
        protocol: load.protocol.to_string(),
        connections: measured.iter().find_map(|run| run.connections).unwrap_or(load.connections),
        active_share: f64::from(load.active) / f64::from(load.connections.max(1)),
        payload_bytes: match load.protocol {
            Protocol::Echo => u64::from(load.payload_bytes),
            // A tree has files of many sizes.
            Protocol::Files => 0,
            Protocol::Http => measured
                .iter()
                .find_map(|m| m.payload_bytes)
                .unwrap_or(load.body.as_ref().map_or(0, |body| body.len() as u64)),
        },
        pipeline: load.pipeline,
        kind: Loop::Closed,
        rate_target: None,
        duration_s: middle(&measured, |m| Some(m.run.duration_s)).unwrap_or(0.0),
        sent: measured.iter().map(|m| m.sent).sum(),
        completed: measured.iter().map(|m| m.run.client_count - m.run.errors.status).sum(),
        rps: middle(&measured, |m| (m.run.duration_s > 0.0).then_some(m.run.rps)),
        errors,
        latency_us: Latencies { response: percentiles, service: percentiles, lag: None },
        server: ServerCost::of_runs(
            &measured.iter().map(|m| m.run.clone()).collect::<Vec<_>>(),
            measured.iter().find_map(|m| m.syscalls_source.clone()),
        ),
        limiter: verdict::limiter(&measured),
        client_cpu_share: middle(&measured, |m| m.run.client_cpu_share),
        ratio: None,
        verdict,
        skipped,
        runs: measured.iter().map(|m| m.run.clone()).collect(),
        series: None,
        details: Details {
            client: client_of(&measured),
            // A cell that ran by itself throughout did not take turns; of single runs each says so.
            turn_s: suite
                .turn_s
                .filter(|_| measured.is_empty() || measured.iter().any(|run| run.run.alone.is_none())),
            closes: measured.iter().any(|run| run.closes),
            ..Details::default()
        },
        histogram: (suite.keep.contains(&Keep::Histogram) && !latencies.is_empty())
            .then(|| latencies.to_base64()),
    }
}

/// Returns the baseline against itself, if it ran twice in blocks enough for an interval.
fn control(suite: &Suite, plan: &Plan, runs: &[CellRuns], load: usize) -> Option<(Control, Finding)> {
    let base = baseline_of(suite, plan, load)?;
    let again = plan.cells.iter().position(|cell| cell.role == Role::Control && cell.load == load)?;
    let comparison = compare(&runs[base], &runs[again], cpu)?;
    if matches!(comparison.finding, Finding::TooFewBlocks { .. }) {
        return None;
    }
    Some((Control { load: suite.loads[load].id.clone(), ratio: comparison.ratio }, comparison.finding))
}

fn baseline_of(suite: &Suite, plan: &Plan, load: usize) -> Option<usize> {
    let baseline = suite.baseline.as_ref()?;
    let is_it = |server: usize| suite.servers[server].id == *baseline;
    plan.cells.iter().position(|c| c.role == Role::Cell && c.load == load && is_it(c.server))
}

fn cpu(run: &Run) -> Option<f64> {
    run.cpu_us_per_request
}

/// Returns the client that put the load on; several, where a driver was not available in every run.
fn client_of(runs: &[&Measured]) -> Option<String> {
    let mut names: Vec<&str> = runs.iter().filter_map(|measured| measured.client.as_deref()).collect();
    names.dedup();
    (!names.is_empty()).then(|| names.join("; "))
}

/// Not every run of a load had the same client: then a difference between two programs, or two runs of one,
/// may be one between clients. The small client's runs are a check, and no part of it.
fn clients(plan: &Plan, runs: &[CellRuns], load: usize) -> Option<Caveat> {
    let of_load = plan.cells.iter().zip(runs).filter(|(cell, _)| cell.load == load);
    let of_load = of_load.filter(|(cell, _)| cell.role != Role::CrossCheck);
    let names: BTreeSet<&str> =
        of_load.flat_map(|(_, cell)| &cell.runs).filter_map(|measured| measured.client.as_deref()).collect();
    (names.len() > 1).then(|| {
        let names: Vec<&str> = names.into_iter().collect();
        Caveat::Other(format!(
            "runs of this load had different clients ({}), so a difference may be one between them: the rings of some \
             program left no memory for the client's (raise `ulimit -l`).",
            names.join("; ")
        ))
    })
}

/// Returns the cell that both clients put under load, and the one of its other runs.
fn checked(plan: &Plan) -> Option<(usize, usize)> {
    let other = plan.cells.iter().position(|cell| cell.role == Role::CrossCheck)?;
    let (server, load) = (plan.cells[other].server, plan.cells[other].load);
    let is_it =
        |cell: &crate::plan::PlannedCell| (cell.role, cell.server, cell.load) == (Role::Cell, server, load);
    Some((plan.cells.iter().position(is_it)?, other))
}

/// Holds what the load generator counted and measured against the small client.
fn cross_check(cell: &mut Cell, mine: &CellRuns, other: &CellRuns, load: &Load) {
    if cell.skipped.is_some() {
        return;
    }
    let measured: Vec<&Measured> = other.runs.iter().collect();
    // What makes the other's counts doubtful is not known to be no fault of what both have in common: the
    // server.
    let doubts = verdict::exact_of(&measured, load);
    let rate = compare(other, mine, |run| Some(run.rps));
    let enough = rate.is_some_and(|rate| !matches!(rate.finding, Finding::TooFewBlocks { .. }));
    let (Some(rate), Some(client)) = (rate.map(|rate| rate.ratio), client_of(&measured)) else {
        let why =
            other.failures.first().cloned().unwrap_or_else(|| "they have no block in common".to_owned());
        cell.verdict.add(Caveat::Unknown { what: "whether both clients agree".to_owned(), why });
        return;
    };
    let cpu = compare(other, mine, cpu).map(|comparison| comparison.ratio);
    cell.details.cross_check = Some(CrossCheck { client, rate, cpu });
    // A rate that is a client's own says how fast that one is, and no more.
    let free = |runs: &[Measured]| middle(&runs.iter().collect::<Vec<_>>(), |m| m.run.client_cpu_share);
    let both_free = [&mine.runs, &other.runs]
        .into_iter()
        .all(|runs| free(runs).is_none_or(|share| share < ringroad_measure::caveat::BUSY_SHARE));
    // One run that was disturbed is no disagreement.
    let differ = Caveat::clients_differ(rate).filter(|_| both_free && enough);
    doubts.into_iter().chain(differ).for_each(|caveat| cell.verdict.add(caveat));
}

/// Compares a figure by the blocks that both have.
fn compare(base: &CellRuns, other: &CellRuns, figure: impl Fn(&Run) -> Option<f64>) -> Option<Comparison> {
    let (base, other): (Vec<f64>, Vec<f64>) = base
        .runs
        .iter()
        .filter_map(|base| {
            let pair = other.runs.iter().find(|other| other.run.block == base.run.block)?;
            figure(&base.run).zip(figure(&pair.run))
        })
        .unzip();
    Comparison::of_blocks(&base, &other, None)
}

/// Returns what the harness used of a core while clients ran, all runs together.
fn harness_share(runs: &[CellRuns]) -> Option<f64> {
    let all = || runs.iter().flat_map(|cell| &cell.runs);
    let used: f64 = all().map(|m| m.harness_cpu.map(|cpu| cpu.as_secs_f64())).sum::<Option<f64>>()?;
    let watched: f64 = all().map(|m| m.watched.as_secs_f64()).sum();
    (watched > 0.0).then(|| used / watched)
}
