//! The record of a load: one cell in the form all tools share. A pure function. Start at [`record`].

use crate::hold::diagnose;
use crate::knee::{Knee, Probe};
use crate::plan::{Expect, Message, Pace, Plan};
use crate::run::{Outcome, Point, Stage};
use crate::tally::OfUrl;
use crate::verdict::verdict;
use ringroad_measure::Verdict;
use ringroad_measure::record::{
    self, Cell, Details, Errors, Handshakes, Held, Latencies, Limiter, Loop, Record, Run, SCHEMA, ServerCost,
    Unanswered,
};
use ringroad_measure::units::PerSecond;
use serde_json::{Map, Value, json};

/// What is known beside the load itself.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The command line, word by word.
    pub command: Vec<String>,
    /// When it started: RFC 3339, UTC.
    pub started: String,
    /// Facts about the machine.
    pub host: Map<String, Value>,
    /// The driver under the client.
    pub driver: String,
}

/// Returns the record of a load that was put on.
pub fn record(plan: &Plan, outcome: &Outcome, frame: &Frame) -> Record {
    let cell = cell(plan, outcome);
    around(cell.verdict.clone(), vec![cell], frame)
}

/// Returns the record of a search: a cell for each probe, with its own verdict, and the interval in the
/// title.
pub fn knee_record(knee: &Knee, title: &str, frame: &Frame) -> Record {
    let mut cells: Vec<Cell> = Vec::new();
    for probe in &knee.probes {
        let mut cell = cell(&probe.plan, &probe.outcome);
        // A rate is tried more than once.
        let times = cells.iter().filter(|before| before.load == cell.load).count();
        if times > 0 {
            cell.id = format!("{}#{}", cell.id, times + 1);
        }
        cells.push(cell);
    }
    // On the cell that it is the rate of; on the last, if no rate met the demand.
    let is_best = |probe: &Probe| probe.unmet.is_none() && probe.rate() == knee.met;
    let at = knee.probes.iter().rposition(is_best).unwrap_or(knee.probes.len().saturating_sub(1));
    if let Some(cell) = cells.get_mut(at) {
        cell.details.knee = Some(record::Knee {
            demand: knee.demand.to_string(),
            met_rps: knee.met,
            unmet_rps: knee.unmet,
            probes: knee.probes.len() as u32,
        });
    }
    let mut record = around(knee.verdict(), cells, frame);
    record.title = Some(title.to_owned());
    record
}

fn cell(plan: &Plan, outcome: &Outcome) -> Cell {
    let verdict = verdict(plan, outcome);
    let mut cell = empty(plan, verdict);
    let latencies = &outcome.tally.latencies;
    let counts = &outcome.counts;
    let open = plan.pace.is_timed();
    let response = latencies.response.percentiles();
    cell.latency_us = Latencies {
        response,
        service: if open {
            latencies.service.as_ref().and_then(|service| service.percentiles())
        } else {
            response
        },
        lag: latencies.lag.as_ref().and_then(|lag| lag.percentiles()),
    };
    cell.connections = outcome.connected + outcome.idle_at_end;
    cell.active_share = share(outcome.connected.saturating_sub(plan.silent), cell.connections);
    if counts.completed > 0 && plan.messages.iter().any(|message| matches!(message.expect, Expect::Http(_))) {
        cell.payload_bytes = counts.body_bytes / counts.completed;
    }
    cell.duration_s = outcome.window.as_secs_f64();
    cell.sent = counts.sent;
    cell.completed = counts.completed;
    cell.rps = PerSecond::of(outcome.tally.completed, outcome.window).map(|PerSecond(rate)| rate);
    // What was due and never left is an answer that did not come in time.
    cell.errors = Errors { timeout: counts.errors.timeout + counts.unsent, ..counts.errors };
    let seconds = outcome.window.as_secs_f64();
    cell.client_cpu_share = outcome.client.cores(outcome.client.cpu);
    let busy = cell.client_cpu_share.map(|share| share / f64::from(plan.workers()));
    cell.limiter =
        busy.is_some_and(|busy| busy >= ringroad_measure::caveat::BUSY_SHARE).then_some(Limiter::Client);
    cell.series = Some(Value::Array(outcome.series.iter().map(point).collect()));
    cell.histogram = Some(latencies.response.to_base64());
    cell.runs = vec![run(outcome, &cell)];
    cell.details.held = held(plan, outcome);
    cell.details.broadcast = plan.broadcast.as_ref().map(|_| {
        let told = &counts.broadcast;
        record::Broadcast {
            members: told.members,
            published: told.published,
            expected: told.expected(),
            missing: told.expected().saturating_sub(counts.completed),
            repeated: told.repeated,
            to_sender: told.own > 0,
        }
    });
    cell.details.handshakes = outcome.handshakes.as_ref().map(|handshakes| Handshakes {
        full: handshakes.full,
        resumed: handshakes.resumed,
        failed: handshakes.failed,
        took_us: handshakes.took.percentiles(),
    });
    let details = &mut cell.details;
    details.statuses.clone_from(&counts.statuses);
    details.refused_us = outcome.tally.other.as_ref().and_then(|other| other.percentiles());
    details.unanswered = (outcome.tally.unanswered > 0).then(|| Unanswered {
        requests: outcome.tally.unanswered,
        longest_us: outcome.tally.unanswered_ns as f64 / 1e3,
    });
    details.bytes_per_s = (seconds > 0.0).then(|| outcome.tally.bytes as f64 / seconds);
    details.urls =
        plan.messages.iter().zip(&outcome.urls).map(|(message, url)| of_url(message, url, seconds)).collect();
    cell.details.stages = (!outcome.stages.is_empty()).then(|| stages(plan, outcome));
    cell
}

/// Returns the load as the one run of its cell: so records of several loads can be merged and compared, run
/// against run.
fn run(outcome: &Outcome, cell: &Cell) -> Run {
    let seconds = outcome.window.as_secs_f64();
    let response = cell.latency_us.response;
    Run {
        duration_s: seconds,
        completed: outcome.tally.completed,
        rps: cell.rps.unwrap_or(0.0),
        mean_us: response.map(|response| response.mean),
        p50_us: response.map(|response| response.p50),
        p99_us: response.map(|response| response.p99),
        client_cpu_share: cell.client_cpu_share,
        client_wait_share: outcome.client.cores(outcome.client.wait),
        steal_share: outcome.client.steal_share,
        errors: cell.errors,
        client_count: outcome.counts.answers,
        ..Run::default()
    }
}

fn of_url(message: &Message, url: &OfUrl, seconds: f64) -> record::OfUrl {
    record::OfUrl {
        url: message.label().to_owned(),
        completed: url.completed,
        refused: url.refused,
        rps: (seconds > 0.0).then(|| url.completed as f64 / seconds),
        response_us: url.response.percentiles(),
    }
}

/// Returns the stages with the levels of the plan: those of a part are its shares.
fn stages(plan: &Plan, outcome: &Outcome) -> Vec<record::Stage> {
    let levels = plan.stages.iter().flat_map(|stages| stages.pieces());
    outcome.stages.iter().zip(levels).map(|(measured, (_, from, to))| stage(measured, from, to)).collect()
}

fn stage(stage: &Stage, from: f64, to: f64) -> record::Stage {
    let Stage { seconds, tally, .. } = stage;
    record::Stage {
        from,
        to,
        duration_s: *seconds,
        completed: tally.completed,
        failed: tally.failed,
        rps: (*seconds > 0.0).then(|| tally.completed as f64 / seconds),
        response_us: tally.latencies.response.percentiles(),
    }
}

/// Returns the record of a load that could not begin, for this reason.
pub fn skipped(plan: &Plan, why: &str, frame: &Frame) -> Record {
    let mut cell = empty(plan, Verdict::valid());
    cell.skipped = Some(why.to_owned());
    around(cell.verdict.clone(), vec![cell], frame)
}

fn around(verdict: Verdict, cells: Vec<Cell>, frame: &Frame) -> Record {
    let mut host = frame.host.clone();
    // In a cell `driver` is the program's own; this is the client's.
    host.insert("client_driver".to_owned(), Value::String(frame.driver.clone()));
    Record {
        schema: SCHEMA.to_owned(),
        tool: "load".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: frame.command.clone(),
        started: frame.started.clone(),
        suite: None,
        title: None,
        host,
        verdict,
        baseline: None,
        blocks: 0,
        control: Vec::new(),
        harness_cpu_share: None,
        cells,
        claims: Vec::new(),
    }
}

/// Returns a cell that says what was asked for.
fn empty(plan: &Plan, verdict: Verdict) -> Cell {
    let (kind, rate_target) = match plan.pace {
        Pace::Closed => (Loop::Closed, None),
        Pace::Open { per_second, .. } => (Loop::Open, Some(per_second)),
        Pace::Hold(hold) => (Loop::Open, Some(f64::from(plan.connections) / hold.heartbeat.as_secs_f64())),
    };
    let model = plan.target.to_string();
    let load = match rate_target {
        _ if plan.stages.is_some() => format!("c{}-staged", plan.connections),
        Some(rate) => format!("c{}-r{rate}", plan.connections),
        None => format!("c{}-p{}", plan.connections, plan.pipeline),
    };
    Cell {
        id: format!("{model}/{load}"),
        model,
        load,
        driver: None,
        variant: plan.http2.then(|| "http2".to_owned()),
        protocol: plan.target.scheme.protocol().to_owned(),
        connections: plan.held(),
        active_share: share(plan.active(), plan.held()),
        payload_bytes: plan.messages.first().map_or(0, |message| message.payload_bytes()),
        pipeline: plan.pipeline,
        kind,
        rate_target,
        duration_s: 0.0,
        sent: 0,
        completed: 0,
        rps: None,
        errors: Errors::default(),
        latency_us: Latencies::default(),
        server: ServerCost::default(),
        limiter: None,
        client_cpu_share: None,
        ratio: None,
        verdict,
        skipped: None,
        runs: Vec::new(),
        series: None,
        histogram: None,
        details: Details::default(),
    }
}

fn held(plan: &Plan, outcome: &Outcome) -> Option<Held> {
    let Pace::Hold(hold) = plan.pace else { return None };
    let held = &outcome.counts.held;
    let (health, findings) = diagnose(held, outcome.window);
    Some(Held {
        heartbeat_s: hold.heartbeat.as_secs_f64(),
        opened: held.opened,
        survived: held.survived,
        lost: held.lost,
        reconnects: held.reconnects,
        gave_up: held.gave_up,
        unavailable_after_s: held.unavailable_after_ns.map(|ns| ns as f64 / 1e9),
        heartbeats: held.due,
        unwritten: held.unwritten(),
        survival: held.survival(),
        reconnects_per_hour: held.reconnects_per_hour(outcome.window),
        write_failures: held.write_failures(),
        health: health.to_string(),
        findings,
    })
}

fn share(part: u32, whole: u32) -> f64 {
    if whole == 0 { 0.0 } else { f64::from(part) / f64::from(whole) }
}

fn point(point: &Point) -> Value {
    let micros = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e3);
    json!({
        "at_s": point.at_s,
        "seconds": point.seconds,
        "completed": point.completed,
        "failed": point.failed,
        "p50_us": micros(point.p50_ns),
        "p99_us": micros(point.p99_ns),
        "max_us": micros(point.max_ns),
    })
}
