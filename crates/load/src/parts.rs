//! A load that several programs put on, on any machines, and the sum of what they measured.
//!
//! Each has the whole plan and takes its part of it by its number alone ([`Split`]). What a part measured is
//! in its record with every histogram ([`Told`]), so [`merge`] adds them exactly: a percentile of the sum is
//! the one that a single program with all connections would have had. The sum is judged as one load, and
//! parts that are missing, or that were not put on together, make it INVALID.
//!
//! Start at [`Gate`], which lets a part begin at the common instant, then [`record`] and [`merge`].

use crate::clock::unix_s;
use crate::error::Error;
use crate::plan::{Expect, Message, Pace, Plan, Split};
use crate::report::{self, Frame};
use crate::run::{Event, Outcome, Point, Stage};
use crate::schedule::Profile;
use crate::tally::Tally;
use crate::target::Target;
use ringroad_measure::caveat::{Caveat, Level};
use ringroad_measure::record::{Cell, Clock, OfPart, Part, Record};
use ringroad_measure::{Histogram, Verdict};
use ringroad_wire::{Asked, Method};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

/// Seconds with a histogram of their own in what a part tells; when there are more, every two become one.
const SECONDS_MAX: usize = 600;

/// How often one that waits for its start looks whether it was interrupted.
const LOOK: Duration = Duration::from_millis(20);

/// The figures of a plan that a sum needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Whole {
    target: String,
    /// What messages are called, and how often they are sent.
    messages: Vec<(String, u32)>,
    is_http: bool,
    payload_bytes: u64,
    connections: u32,
    silent: u32,
    idle: u32,
    workers: u32,
    lost_max: u32,
    pipeline: u32,
    http2: bool,
    pace: Pace,
    /// Length in seconds, first and last level of each.
    stages: Option<Vec<(f64, f64, f64)>>,
    duration: Option<Duration>,
    count: Option<u64>,
    one_request_per_connection: bool,
    until_closed: bool,
}

impl Whole {
    fn of(plan: &Plan) -> Whole {
        let mut before = 0.0;
        let stages = plan.stages.as_ref().map(|stages| {
            let length =
                |(end, from, to): (f64, f64, f64)| (end - std::mem::replace(&mut before, end), from, to);
            stages.pieces().map(length).collect()
        });
        Whole {
            target: plan.target.to_string(),
            messages: plan.messages.iter().map(|message| (message.label.clone(), message.weight)).collect(),
            is_http: plan.messages.iter().any(|message| matches!(message.expect, Expect::Http(_))),
            payload_bytes: plan.messages.first().map_or(0, Message::payload_bytes),
            connections: plan.connections,
            silent: plan.silent,
            idle: plan.idle,
            workers: plan.workers(),
            lost_max: plan.lost_max,
            pipeline: plan.pipeline,
            http2: plan.http2,
            pace: plan.pace,
            stages,
            duration: plan.duration,
            count: plan.count,
            one_request_per_connection: plan.one_request_per_connection,
            until_closed: plan.until_closed,
        }
    }

    /// Returns a plan with these figures, to report and to judge by.
    fn plan(&self, workers: u32) -> Result<Plan, Error> {
        let target: Target = self.target.parse()?;
        let message = |(label, weight): &(String, u32)| Message {
            expect: match self.is_http {
                true => Expect::Http(Asked::from(Method::new(b"GET"))),
                false => Expect::Echo,
            },
            label: label.clone(),
            weight: *weight,
            ..Message::placeholder(self.payload_bytes)
        };
        let messages = self.messages.iter().map(message).collect();
        Ok(Plan {
            connections: self.connections,
            silent: self.silent,
            idle: self.idle,
            threads: workers,
            lost_max: self.lost_max,
            pipeline: self.pipeline,
            http2: self.http2,
            pace: self.pace,
            stages: self.stages.as_ref().map(|stages| {
                let mut profile = Profile::default();
                for (length, from, to) in stages {
                    profile.push(Duration::from_secs_f64(length.clamp(0.0, 1e9)), *from, *to);
                }
                profile
            }),
            duration: self.duration,
            count: self.count,
            one_request_per_connection: self.one_request_per_connection,
            until_closed: self.until_closed,
            ..Plan::new(target, messages)
        })
    }
}

/// Text that goes into a hash.
struct Hashed(blake3::Hasher);

impl std::fmt::Write for Hashed {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.update(text.as_bytes());
        Ok(())
    }
}

/// Returns a hash of the plan of the whole load, equal for all of its parts on any machine: what depends on
/// the machine (threads, sources, drivers) is not in it.
pub fn fingerprint(plan: &Plan, start_at: Option<&str>) -> String {
    let count = plan.split.count;
    let whole = Plan {
        split: Split { index: 0, count },
        threads: 1,
        processes: 1,
        part: 0,
        lost_max: 0,
        slices: 1,
        connect_limit: Duration::ZERO,
        direct: None,
        sources: Vec::new(),
        tls: None,
        ..plan.clone()
    };
    // Not as one text: a plan may have a large body.
    let mut hashed = Hashed(blake3::Hasher::new());
    // Writing into a hash cannot fail.
    let _ = write!(hashed, "{} {start_at:?} {} {whole:?}", env!("CARGO_PKG_VERSION"), plan.tls.is_some());
    let mut hash = hashed.0.finalize().to_hex().to_string();
    hash.truncate(32);
    hash
}

/// Lets a part begin at the instant at which all begin, and notes when that was.
#[derive(Debug)]
pub struct Gate {
    start: Option<SystemTime>,
    offset_s: f64,
    began: Option<SystemTime>,
}

impl Gate {
    /// Makes the gate for a start at this time of the common clock, which is `offset_s` ahead of this
    /// machine's; `None`: as soon as the connections are there.
    pub fn new(start: Option<SystemTime>, offset_s: f64) -> Gate {
        Gate { start, offset_s, began: None }
    }

    /// Returns how long it is until the start; `None`: it is over, or there is none.
    pub fn left(&self) -> Option<Duration> {
        let left = unix_s(self.start?) - unix_s(SystemTime::now()) - self.offset_s;
        Duration::try_from_secs_f64(left).ok().filter(|left| !left.is_zero())
    }

    /// Waits for the start; to be called when the connections are there ([`Event::Connected`]).
    pub fn pass(&mut self, stop: &AtomicBool) {
        while let Some(left) = self.left() {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            thread::sleep(left.min(LOOK));
        }
        self.began = Some(SystemTime::now());
    }

    /// Returns when the load began, seconds since 1970 by this machine's clock.
    pub fn began_s(&self) -> Option<f64> {
        self.began.map(unix_s)
    }

    /// Returns how much later than the start it began, seconds.
    pub fn late_s(&self) -> Option<f64> {
        Some(self.began_s()? + self.offset_s - unix_s(self.start?))
    }
}

/// A second of a load, or several, with all latencies of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Second {
    at_s: u32,
    seconds: u32,
    completed: u64,
    failed: u64,
    /// The histogram of the responses as in a record: small, however many there are.
    response: String,
    /// The longest that a request without an answer had waited at its end.
    #[serde(default)]
    waiting_ns: u64,
}

impl Second {
    fn join(&mut self, other: &Second) {
        self.seconds = self.seconds.max(other.at_s + other.seconds - self.at_s);
        self.completed += other.completed;
        self.failed += other.failed;
        self.waiting_ns = self.waiting_ns.max(other.waiting_ns);
        let mut sum = self.histogram();
        sum.add(&other.histogram());
        self.response = sum.to_base64();
    }

    fn histogram(&self) -> Histogram {
        Histogram::from_base64(&self.response).unwrap_or_default()
    }
}

/// Collects the seconds of a part as they come.
#[derive(Debug)]
pub struct Seconds {
    all: Vec<Second>,
    step: u32,
}

impl Default for Seconds {
    fn default() -> Seconds {
        Seconds { all: Vec::new(), step: 1 }
    }
}

impl Seconds {
    /// Notes an event, if it is a second.
    pub fn note(&mut self, event: &Event<'_>) {
        if let Event::Second { point, tally, .. } = event {
            self.add(Second {
                at_s: point.at_s,
                seconds: 1,
                completed: tally.completed,
                failed: tally.failed,
                response: tally.latencies.response.to_base64(),
                waiting_ns: tally.waiting_ns,
            });
        }
    }

    fn add(&mut self, second: Second) {
        let step = self.step;
        match self.all.last_mut().filter(|last| last.at_s / step == second.at_s / step) {
            Some(last) => last.join(&second),
            None => self.all.push(second),
        }
        if self.all.len() > SECONDS_MAX {
            self.step *= 2;
            for second in std::mem::take(&mut self.all) {
                self.add(second);
            }
        }
    }
}

/// What a part measured, whole.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Told {
    plan: Whole,
    outcome: Outcome,
    tally: Tally,
    stages: Vec<Stage>,
    step: u32,
    seconds: Vec<Second>,
}

/// What is known of a part beside its load.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// The common start as it was given: RFC 3339.
    pub start_at: Option<String>,
    /// How this machine's clock stands to another.
    pub clock: Option<Clock>,
    /// The boot of this machine.
    pub machine: Option<String>,
}

/// Returns the record of a part, with all that [`merge`] needs. `outcome` is that of the part alone.
pub fn record(
    plan: &Plan,
    outcome: &Outcome,
    (gate, seconds): (&Gate, &Seconds),
    about: &About,
    frame: &Frame,
) -> Record {
    let own = plan.own();
    let mut record = report::record(&own, outcome, frame);
    let told = Told {
        plan: Whole::of(plan),
        outcome: outcome.clone(),
        tally: outcome.tally.clone(),
        stages: outcome.stages.clone(),
        step: seconds.step,
        seconds: seconds.all.clone(),
    };
    let window_s = bearing_s(plan, outcome);
    let doubts = [
        gate.late_s().and_then(|late| {
            Caveat::parts_apart("the start and the moment at which this part began are", late, window_s)
        }),
        about.clock.as_ref().and_then(|clock| {
            let what = format!("this clock and that of {} may still be", clock.from);
            Caveat::parts_apart(&what, clock.within_s, window_s)
        }),
    ];
    let mut part = Part {
        began_s: gate.began_s(),
        // Numbers, strings and lists of ours: there is no value that JSON could not hold.
        told: serde_json::to_value(&told).ok(),
        ..of(plan, about)
    };
    part.hash = Some(hash(&part));
    for cell in &mut record.cells {
        doubts.iter().flatten().for_each(|doubt| cell.verdict.add(doubt.clone()));
        cell.details.part = Some(part.clone());
    }
    record.verdict = Verdict::worst(record.cells.iter().map(|cell| &cell.verdict));
    record.title = Some(format!("part {} of a load", plan.split));
    record
}

/// Returns the record of a part that could not begin, for this reason.
pub fn skipped(plan: &Plan, why: &str, about: &About, frame: &Frame) -> Record {
    let mut record = report::skipped(&plan.own(), why, frame);
    for cell in &mut record.cells {
        cell.details.part = Some(of(plan, about));
    }
    record.title = Some(format!("part {} of a load", plan.split));
    record
}

fn of(plan: &Plan, about: &About) -> Part {
    Part {
        index: plan.split.index + 1,
        count: plan.split.count,
        plan: fingerprint(plan, about.start_at.as_deref()),
        start_at: about.start_at.clone(),
        began_s: None,
        clock: about.clock.clone(),
        machine: about.machine.clone(),
        told: None,
        hash: None,
    }
}

/// Returns a hash of what a part says of itself: figures that were changed later, or damaged, are not added
/// up.
fn hash(part: &Part) -> String {
    let bare = Part { hash: None, ..part.clone() };
    // Keys of an object are sorted, and a number that is read is the one that was written.
    let text = serde_json::to_value(&bare).map(|value| value.to_string()).unwrap_or_default();
    let mut hash = blake3::hash(text.as_bytes()).to_hex().to_string();
    hash.truncate(32);
    hash
}

/// Returns the time against which a difference of clocks counts, seconds: the measured time, or its shortest
/// stage.
fn bearing_s(plan: &Plan, outcome: &Outcome) -> f64 {
    let mut before = 0.0;
    let stages = plan.stages.iter().flat_map(Profile::pieces);
    let shortest = stages.map(|(end, ..)| end - std::mem::replace(&mut before, end)).reduce(f64::min);
    shortest.unwrap_or(f64::INFINITY).min(outcome.window.as_secs_f64())
}

/// Returns whether a record is that of a part.
pub fn is_part(record: &Record) -> bool {
    record.cells.iter().any(|cell| cell.details.part.is_some())
}

/// A part as it is read.
struct Read<'a> {
    record: &'a Record,
    cell: &'a Cell,
    part: &'a Part,
}

/// Makes one record of all parts of a load.
///
/// # Errors
/// A record is no part's, a part is there twice, or two of them belong to different loads. Parts that
/// are missing are no error: the sum is made and is INVALID.
pub fn merge(records: &[Record]) -> Result<Record, Error> {
    let mut parts = Vec::new();
    for (record, number) in records.iter().zip(1..) {
        let found = match record.cells.as_slice() {
            [cell] => cell.details.part.as_ref().map(|part| (cell, part)),
            _ => None,
        };
        let (cell, part) = found.ok_or_else(|| {
            Error::failed(format!(
                "record {number} of {} is no part of a load: merge the parts first, by themselves",
                records.len()
            ))
        })?;
        parts.push(Read { record, cell, part });
    }
    parts.sort_by_key(|read| read.part.index);
    let first = parts.first().ok_or_else(|| Error::failed("there is no record to merge"))?;
    let count = first.part.count;
    for pair in parts.windows(2) {
        let [one, two] = pair else { continue };
        let name = |read: &Read<'_>| format!("part {}/{}", read.part.index, read.part.count);
        if one.part.plan != two.part.plan || one.part.count != two.part.count {
            let how = if one.record.version != two.record.version {
                "versions"
            } else if one.part.start_at == two.part.start_at {
                "plans"
            } else {
                "starts"
            };
            return Err(Error::failed(format!(
                "{} and {} are parts of different loads (their {how} differ): merge parts with the same options and --start-at",
                name(one),
                name(two)
            )));
        }
        if one.part.index == two.part.index {
            return Err(Error::failed(format!(
                "{} is there twice: what counts twice is not the load, so name each part once",
                name(one)
            )));
        }
    }
    let mut told = Vec::new();
    for read in &parts {
        let Some(value) = &read.part.told else { continue };
        if read.part.hash.as_ref().is_some_and(|found| *found != hash(read.part)) {
            return Err(Error::failed(format!(
                "part {}/{count} was changed after it was measured: merge the record that the part wrote",
                read.part.index
            )));
        }
        let what: Told = Told::deserialize(value).map_err(|why| {
            Error::failed(format!(
                "part {}/{count} cannot be read ({why}): merge with the version that made it, {}",
                read.part.index, read.record.version
            ))
        })?;
        told.push((read, what));
    }
    let Some(((_, head), others)) = told.split_first() else {
        return Err(Error::failed("none of the parts did run, so there is nothing to add"));
    };
    let workers = told.iter().map(|(_, told)| told.plan.workers).fold(0, u32::saturating_add);
    let plan = head.plan.plan(workers)?;
    let (mut outcome, mut tally, mut stages) =
        (head.outcome.clone(), head.tally.clone(), head.stages.clone());
    for (_, other) in others {
        outcome.join(&other.outcome);
        tally.add(&other.tally);
        for (mine, theirs) in stages.iter_mut().zip(&other.stages) {
            mine.tally.add(&theirs.tally);
            mine.seconds = mine.seconds.max(theirs.seconds);
        }
    }
    (outcome.tally, outcome.stages, outcome.series) = (tally, stages, series(&told));
    let mut frame = Frame {
        command: first.record.command.clone(),
        started: first.record.started.clone(),
        host: first.record.host.clone(),
        driver: drivers(&parts),
    };
    if let Some(earliest) = parts.iter().map(|read| &read.record.started).min() {
        frame.started.clone_from(earliest);
    }
    let mut merged = report::record(&plan, &outcome, &frame);
    let doubts = doubts(&parts, count, bearing_s(&plan, &outcome));
    let began = begins(&parts);
    let earliest = began.values().copied().reduce(f64::min);
    for cell in &mut merged.cells {
        doubts.iter().for_each(|doubt| cell.verdict.add(doubt.clone()));
        inherit(&mut cell.verdict, &parts, count);
        cell.details.parts = parts.iter().map(|read| of_part(read, &began, earliest)).collect();
    }
    merged.verdict = Verdict::worst(merged.cells.iter().map(|cell| &cell.verdict));
    merged.title = Some(format!("a load in {count} parts"));
    Ok(merged)
}

/// Returns the drivers of all clients, each once.
fn drivers(parts: &[Read<'_>]) -> String {
    let name = |read: &Read<'_>| read.record.host.get("client_driver")?.as_str().map(str::to_owned);
    let all: BTreeSet<String> = parts.iter().filter_map(name).collect();
    all.into_iter().collect::<Vec<_>>().join(", ")
}

/// Returns whether all parts ran on one machine, which has one clock.
fn one_clock(parts: &[Read<'_>]) -> bool {
    let machines: BTreeSet<Option<&str>> = parts.iter().map(|read| read.part.machine.as_deref()).collect();
    machines.len() == 1 && !machines.contains(&None)
}

/// Returns when each part began by the common clock, by its number. On one machine that is its own, whatever
/// it was compared with.
fn begins(parts: &[Read<'_>]) -> BTreeMap<u32, f64> {
    let own = one_clock(parts);
    let clock = |part: &Part| part.clock.as_ref().filter(|_| !own).map(|clock| clock.offset_s);
    let offset = |part: &Part| clock(part).unwrap_or(0.0);
    let began = |read: &Read<'_>| Some((read.part.index, read.part.began_s? + offset(read.part)));
    parts.iter().filter_map(began).collect()
}

/// Returns what the parts together give reason to doubt.
fn doubts(parts: &[Read<'_>], count: u32, window_s: f64) -> Vec<Caveat> {
    let mut doubts = Vec::new();
    let ran: BTreeSet<u32> =
        parts.iter().filter(|read| read.part.told.is_some()).map(|read| read.part.index).collect();
    let missing: Vec<u32> = (1..=count).filter(|index| !ran.contains(index)).collect();
    if !missing.is_empty() {
        let why = parts.iter().find_map(|read| {
            let why = read.cell.skipped.as_ref().filter(|_| read.part.told.is_none())?;
            Some(format!(" (part {}: {})", read.part.index, why.replace(". ", "; ")))
        });
        let which =
            format!("{} of {count} {} missing{}", numbers(&missing), verb(&missing), why.unwrap_or_default());
        doubts.push(Caveat::PartsMissing { which });
    }
    let began = begins(parts);
    let (earliest, latest) = began
        .values()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), at| (low.min(*at), high.max(*at)));
    let one_clock = one_clock(parts);
    let within = match one_clock {
        true => 0.0,
        false => {
            let within = |read: &Read<'_>| read.part.clock.as_ref().map(|clock| clock.within_s);
            parts.iter().filter_map(within).fold(0.0, f64::max)
        }
    };
    if !began.is_empty() {
        doubts.extend(Caveat::parts_apart("the parts began", latest - earliest + within, window_s));
    }
    let sources: BTreeSet<Option<&str>> =
        parts.iter().map(|read| read.part.clock.as_ref().map(|clock| clock.from.as_str())).collect();
    if !one_clock && (sources.contains(&None) || sources.len() > 1) {
        doubts.push(Caveat::Other(
            "its parts ran on several machines with clocks that were not compared with the same one: they may have begun \
             at different times, so give all of them one --clock-from."
                .to_owned(),
        ));
    }
    doubts
}

/// Adds what the parts doubt of themselves, each reason once with the numbers of the parts that have it.
fn inherit(verdict: &mut Verdict, parts: &[Read<'_>], count: u32) {
    // What differs between two of a kind are numbers.
    let kind = |text: &str| text.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
    let mut kinds: BTreeMap<String, (String, Vec<u32>)> = BTreeMap::new();
    let known: BTreeSet<String> = verdict.reasons.iter().map(|reason| kind(&reason.to_string())).collect();
    for read in parts {
        for reason in &read.cell.verdict.reasons {
            let text = reason.to_string();
            if !known.contains(&kind(&text)) {
                kinds.entry(kind(&text)).or_insert_with(|| (text, Vec::new())).1.push(read.part.index);
            }
        }
    }
    for (text, of) in kinds.into_values() {
        verdict.add(Caveat::Other(format!("{} of {count}: {text}", numbers(&of))));
    }
    // A sentence carries no level of its own.
    let worst = parts.iter().map(|read| read.cell.verdict.level).max().unwrap_or(Level::Valid);
    verdict.level = verdict.level.max(worst);
}

/// `part 3`, `parts 3, 5 and 8`.
fn numbers(of: &[u32]) -> String {
    let text: Vec<String> = of.iter().map(u32::to_string).collect();
    match text.split_last() {
        Some((last, [])) => format!("part {last}"),
        Some((last, rest)) => format!("parts {} and {last}", rest.join(", ")),
        None => String::new(),
    }
}

fn verb(of: &[u32]) -> &'static str {
    if of.len() == 1 { "is" } else { "are" }
}

fn of_part(read: &Read<'_>, began: &BTreeMap<u32, f64>, earliest: Option<f64>) -> OfPart {
    let run = read.cell.runs.first();
    let at = began.get(&read.part.index).copied();
    OfPart {
        index: read.part.index,
        connections: if read.cell.skipped.is_some() { 0 } else { read.cell.connections },
        completed: run.map_or(0, |run| run.completed),
        rps: read.cell.rps,
        p99_us: run.and_then(|run| run.p99_us),
        began_after_s: at.zip(earliest).map(|(at, earliest)| at - earliest),
        client_cpu_share: read.cell.client_cpu_share,
        clock: read.part.clock.clone(),
        machine: read.part.machine.clone(),
        verdict: match &read.cell.skipped {
            Some(why) => Verdict { level: Level::Invalid, reasons: vec![Caveat::Other(why.clone())] },
            None => read.cell.verdict.clone(),
        },
    }
}

/// Returns the seconds of all parts, added; in steps as coarse as the coarsest.
fn series(told: &[(&Read<'_>, Told)]) -> Vec<Point> {
    let step = told.iter().map(|(_, told)| told.step).max().unwrap_or(1).max(1);
    let mut all: BTreeMap<u32, (Histogram, Point)> = BTreeMap::new();
    for second in told.iter().flat_map(|(_, told)| &told.seconds) {
        let at_s = second.at_s / step * step;
        let (sum, point) = all
            .entry(second.at_s / step)
            .or_insert_with(|| (Histogram::new(), Point { at_s, ..Point::default() }));
        sum.add(&second.histogram());
        // Until the end, the longest wait.
        point.max_ns = point.max_ns.max(Some(second.waiting_ns).filter(|ns| *ns > 0));
        point.seconds = point.seconds.max(second.at_s + second.seconds - at_s);
        point.completed += second.completed;
        point.failed += second.failed;
    }
    let point = |(sum, point): (Histogram, Point)| Point {
        p50_ns: sum.quantile_ns(0.5),
        p99_ns: sum.quantile_ns(0.99),
        max_ns: sum.quantile_ns(1.0).max(point.max_ns),
        ..point
    };
    all.into_values().map(point).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::course::Course;
    use crate::plan::Request;
    use crate::schedule::Arrivals;
    use serde_json::Map;

    fn plan(count: u32) -> Plan {
        let target: Target = "http://localhost:8080/a".parse().unwrap();
        let get = Request { method: "GET", headers: &[], body: b"", close: false };
        let message = Message::http(&target, &get, 1).unwrap();
        Plan {
            connections: 16,
            pace: Pace::Open { per_second: 1000.0, arrivals: Arrivals::Constant },
            split: Split { index: 0, count },
            ..Plan::new(target, vec![message])
        }
    }

    fn frame() -> Frame {
        let words = ["ringroad".to_owned(), "load".to_owned()];
        Frame {
            command: words.into(),
            started: "2026-01-01T00:00:00Z".into(),
            host: Map::new(),
            driver: "epoll".into(),
        }
    }

    /// Latencies of one second each, dealt out to parts as requests are.
    fn outcomes(latencies: &[Vec<u64>], count: u32) -> Vec<(Outcome, Seconds)> {
        let part = |index: u32| {
            let (mut course, mut seconds) = (Course::new(&plan(count)), Seconds::default());
            for (second, at_s) in latencies.iter().zip(0..) {
                let mut tally = Tally::new(true);
                for ns in second.iter().skip(index as usize).step_by(count as usize) {
                    tally.completed += 1;
                    tally.latencies.response.record(*ns);
                    for of in [&mut tally.latencies.service, &mut tally.latencies.lag] {
                        of.as_mut().unwrap().record(*ns / 3 + 1);
                    }
                }
                let point = course.add(at_s, &tally);
                seconds.note(&Event::Second { point, tally: &tally, whole: true });
            }
            let Course { total, series, .. } = course;
            let own = Split { index, count };
            let mut outcome = Outcome {
                series,
                connected: own.share(16) as u32,
                asked: own.share(16) as u32,
                served: own.share(16) as u32,
                window: Duration::from_secs(latencies.len() as u64),
                ..Outcome::default()
            };
            outcome.counts.sent = total.completed;
            (outcome.counts.completed, outcome.counts.answers) = (total.completed, total.completed);
            outcome.tally = total;
            (outcome, seconds)
        };
        (0..count).map(part).collect()
    }

    fn records(latencies: &[Vec<u64>], count: u32, began: impl Fn(u32) -> f64) -> Vec<Record> {
        let about = About { machine: Some("one".into()), ..About::default() };
        outcomes(latencies, count)
            .iter()
            .zip(0..)
            .map(|((outcome, seconds), index)| {
                let plan = Plan { split: Split { index, count }, ..plan(count) };
                let at = std::time::UNIX_EPOCH + Duration::from_secs_f64(1e9 + began(index));
                let gate = Gate { start: None, offset_s: 0.0, began: Some(at) };
                record(&plan, outcome, (&gate, seconds), &about, &frame())
            })
            .collect()
    }

    fn some_latencies(seed: u64) -> Vec<Vec<u64>> {
        let mut chance = fastrand::Rng::with_seed(seed);
        let mut second = || {
            (0..1000)
                .map(|_| {
                    let bits = chance.u32(10..33);
                    chance.u64(1..1 << bits)
                })
                .collect()
        };
        (0..10).map(|_| second()).collect()
    }

    /// Random latencies, dealt out to any number of parts, written, read and added: every figure of every
    /// percentile is that of one program that recorded all of them.
    #[test]
    fn a_merged_load_has_the_percentiles_of_one_program_that_did_it_all() {
        for seed in 0..3 {
            let latencies = some_latencies(seed);
            let whole = records(&latencies, 1, |_| 0.0).remove(0);
            for count in [2, 3, 8] {
                let mut parts = records(&latencies, count, |_| 0.0);
                fastrand::Rng::with_seed(seed).shuffle(&mut parts);
                let text = serde_json::to_string(&parts).unwrap();
                let parts: Vec<Record> = serde_json::from_str(&text).unwrap();
                let merged = merge(&parts).unwrap();
                let (one, sum) = (&whole.cells[0], &merged.cells[0]);
                assert_eq!(sum.histogram, one.histogram);
                assert_eq!(sum.latency_us, one.latency_us);
                assert_eq!(sum.series, one.series);
                assert_eq!((sum.completed, sum.sent, sum.rps), (one.completed, one.sent, one.rps));
                assert_eq!((sum.connections, sum.rate_target), (one.connections, one.rate_target));
                assert_eq!(sum.verdict.level, one.verdict.level, "{} {}", sum.verdict, one.verdict);
                assert_eq!(sum.details.parts.len(), count as usize);
                assert!(sum.details.part.is_none());
            }
        }
    }

    #[test]
    fn a_missing_part_makes_the_sum_invalid_and_is_named() {
        let mut parts = records(&some_latencies(1), 8, |_| 0.0);
        let plan = Plan { split: Split { index: 4, count: 8 }, ..plan(8) };
        parts[4] = skipped(
            &plan,
            "connect: refused",
            &About { machine: Some("one".into()), ..About::default() },
            &frame(),
        );
        parts.remove(2);
        let merged = merge(&parts).unwrap();
        assert_eq!(merged.verdict.level, Level::Invalid);
        let said = merged.verdict.reasons[0].to_string();
        assert!(said.starts_with("parts 3 and 5 of 8 are missing (part 5: connect: refused):"), "{said}");
    }

    #[test]
    fn a_part_that_is_there_twice_or_of_another_load_is_refused() {
        let parts = records(&some_latencies(1), 3, |_| 0.0);
        let twice = [parts[0].clone(), parts[1].clone(), parts[0].clone()];
        assert!(merge(&twice).unwrap_err().to_string().contains("part 1/3 is there twice"));
        let mut other = parts.clone();
        other[1].cells[0].details.part.as_mut().unwrap().plan = "another".into();
        assert!(merge(&other).unwrap_err().to_string().contains("parts of different loads"));
        let mut newer = parts.clone();
        newer[1].cells[0].details.part.as_mut().unwrap().plan = "another".into();
        newer[1].version = "9.0.0".into();
        assert!(merge(&newer).unwrap_err().to_string().contains("their versions differ"));
        let mut none = parts;
        none[2].cells[0].details.part = None;
        assert!(merge(&none).unwrap_err().to_string().contains("record 3 of 3 is no part"));
    }

    /// Sums of figures that do not belong together would look like any others.
    #[test]
    fn a_part_whose_figures_were_changed_is_refused() {
        let parts = serde_json::to_value(records(&some_latencies(1), 2, |_| 0.0)).unwrap();
        let changes: [(&str, serde_json::Value); 5] = [
            ("/1/cells/0/details/part/told/tally/completed", 7.into()),
            ("/1/cells/0/details/part/told/tally/completed", u64::MAX.into()),
            ("/1/cells/0/details/part/told/outcome/counts/answers", u64::MAX.into()),
            ("/1/cells/0/details/part/told/seconds/0/response", "".into()),
            ("/1/cells/0/details/part/began_s", 2e9.into()),
        ];
        let read =
            |value: &serde_json::Value| serde_json::from_str::<Vec<Record>>(&value.to_string()).unwrap();
        assert!(merge(&read(&parts)).is_ok());
        for (at, value) in changes {
            let mut changed = parts.clone();
            let there = changed.pointer_mut(at).unwrap();
            assert_ne!(*there, value);
            *there = value;
            let refused = merge(&read(&changed)).unwrap_err().to_string();
            assert!(refused.contains("part 2/2 was changed after it was measured"), "{at}: {refused}");
        }
    }

    #[test]
    fn parts_that_began_at_different_times_are_doubted_as_far_as_the_load_bears_it() {
        let level = |apart: f64| {
            let parts = records(&some_latencies(1), 2, |index| f64::from(index) * apart);
            let verdict = merge(&parts).unwrap().verdict;
            (verdict.level, verdict.to_string().contains("the parts began"))
        };
        let (calm, _) = level(0.0);
        assert!(!level(0.05).1, "half a percent of ten seconds");
        assert_eq!(level(0.3), (calm.max(Level::Suspect), true));
        assert_eq!(level(2.0), (Level::Invalid, true));
    }

    #[test]
    fn clocks_of_several_machines_have_to_be_compared() {
        let mut parts = records(&some_latencies(1), 2, |_| 0.0);
        let set = |record: &mut Record, machine: &str, clock: Option<(f64, f64)>| {
            let part = record.cells[0].details.part.as_mut().unwrap();
            part.machine = Some(machine.into());
            part.clock =
                clock.map(|(offset_s, within_s)| Clock { from: "ntp://a".into(), offset_s, within_s });
            part.hash = Some(hash(part));
        };
        set(&mut parts[1], "two", None);
        assert!(merge(&parts).unwrap().verdict.to_string().contains("not compared with the same one"));
        // The other's clock is five seconds behind, and that is known to a millisecond.
        set(&mut parts[0], "one", Some((0.0, 0.001)));
        parts[1].cells[0].details.part.as_mut().unwrap().began_s = Some(1e9 - 5.0);
        set(&mut parts[1], "two", Some((5.0, 0.001)));
        let verdict = merge(&parts).unwrap().verdict.to_string();
        assert!(!verdict.contains("not compared") && !verdict.contains("the parts began"), "{verdict}");
        set(&mut parts[1], "two", Some((5.0, 0.9)));
        assert_eq!(merge(&parts).unwrap().verdict.level, Level::Invalid);
    }

    /// One of them was started by another clock than the other.
    #[test]
    fn parts_of_one_machine_began_apart_by_its_own_clock() {
        let mut parts = records(&some_latencies(1), 2, |index| f64::from(index) * -5.0);
        let part = parts[1].cells[0].details.part.as_mut().unwrap();
        part.clock = Some(Clock { from: "ntp://a".into(), offset_s: 5.0, within_s: 0.001 });
        part.hash = Some(hash(part));
        let merged = merge(&parts).unwrap();
        assert_eq!(merged.verdict.level, Level::Invalid);
        assert!(merged.verdict.to_string().contains("the parts began 5.0"), "{}", merged.verdict);
        let after: Vec<_> = merged.cells[0].details.parts.iter().map(|part| part.began_after_s).collect();
        assert_eq!(after, [Some(5.0), Some(0.0)]);
    }

    #[test]
    fn a_plan_has_one_hash_on_all_machines_and_another_one_is_another_load() {
        let of = |change: fn(&mut Plan)| {
            let mut plan = plan(4);
            change(&mut plan);
            fingerprint(&plan, Some("2026-01-01T00:00:00Z"))
        };
        let first = of(|_| {});
        assert_eq!(first, of(|plan| (plan.split.index, plan.threads, plan.processes) = (3, 4, 2)));
        assert_eq!(first, of(|plan| plan.sources = vec!["127.0.0.2".parse().unwrap()]));
        let others: [fn(&mut Plan); 4] = [
            |plan| plan.split.count = 5,
            |plan| plan.connections = 17,
            |plan| plan.seed = 9,
            |plan| plan.messages[0].bytes = b"another".as_slice().into(),
        ];
        assert!(others.iter().all(|change| of(*change) != first));
        assert_ne!(fingerprint(&plan(4), None), first);
    }

    #[test]
    fn the_seconds_of_a_long_load_stay_bounded_and_lose_nothing() {
        let mut seconds = Seconds::default();
        let mut tally = Tally::new(false);
        tally.completed = 2;
        tally.latencies.response.record_n(1_000, 2);
        for at_s in 0..1500 {
            let point = Point { at_s, seconds: 1, ..Point::default() };
            seconds.note(&Event::Second { point, tally: &tally, whole: true });
            assert!(seconds.all.len() <= SECONDS_MAX);
        }
        assert_eq!(seconds.all.iter().map(|second| second.completed).sum::<u64>(), 3000);
        assert_eq!(seconds.all.iter().map(|second| second.histogram().count()).sum::<u64>(), 3000);
        assert_eq!(seconds.all.iter().map(|second| second.seconds).sum::<u32>(), 1500);
    }
}
