//! Advice from a record: which driver and which settings for a workload described in numbers, and on what evidence.
//!
//! A [`Workload`] is covered by a record if a load in it is near in every way that matters, or two loads lie on
//! either side of it. Then the programs that were cheapest there, or cannot be told from the cheapest, are what to use.
//! Where a record does not cover it, the advice is the command that would. What a figure is and how programs are
//! compared, `page` knows. Start at [`Workload::advice`] and [`general`].

use crate::page::answer::{self, Standing};
use crate::page::figure::{self, Figure};
use crate::page::guide::{self, RECONNECT};
use crate::page::shape::{self, Load, Unit};
use crate::table;
use ringroad_measure::Level;
use ringroad_measure::record::{Cell, Record};
use serde_json::Value;

/// What a program is to be used for. What is not said is not asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workload {
    /// `http` or `echo`; either will do if it is not said, HTTP first.
    pub protocol: Option<String>,
    /// Connections open at a time.
    pub connections: Option<u32>,
    /// The share of them that send at a time, 0 to 1; all, if it is not said.
    pub active_share: Option<f64>,
    /// Bytes per request; small, if it is not said.
    pub payload_bytes: Option<u64>,
    /// Requests in flight on each connection; one, if it is not said.
    pub pipeline: Option<u32>,
    /// CPU time the handler takes for each request, microseconds; none, if it is not said.
    pub work_us: Option<f64>,
    /// Time the handler waits for each request, microseconds; none, if it is not said.
    pub delay_us: Option<f64>,
    /// A connection for each request, instead of connections that are kept.
    pub reconnect: bool,
}

/// What to use, as text for a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// Whether the record covers what was asked.
    pub covered: bool,
    /// Lines ended by `\n`, none longer than the width asked for where words allow.
    pub text: String,
}

/// One way in which a workload and a load may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Connections,
    Active,
    Payload,
    Pipeline,
    Work,
    Delay,
    Reconnect,
}

const WAYS: [Way; 7] =
    [Way::Connections, Way::Active, Way::Payload, Way::Pipeline, Way::Work, Way::Delay, Way::Reconnect];

/// Below so many bytes a payload is one small copy beside a system call, whatever its size.
const SMALL_BYTES: f64 = 1024.0;

/// At this distance, in units of what is near, a load on each side still encloses a workload.
const BESIDE: f64 = 2.2;

/// Costs of connections as work and delay are what the handler adds; below these they are not felt.
const WORK_FELT_US: f64 = 2.0;
const DELAY_FELT_US: f64 = 100.0;

impl Way {
    /// What is asked for.
    fn wanted(self, workload: &Workload) -> Option<f64> {
        match self {
            Way::Connections => workload.connections.map(f64::from),
            Way::Active => Some(workload.active_share.unwrap_or(1.0)),
            Way::Payload => workload.payload_bytes.map(|bytes| bytes as f64).or(Some(0.0)),
            Way::Pipeline => Some(f64::from(workload.pipeline.unwrap_or(1).max(1))),
            Way::Work => Some(workload.work_us.unwrap_or(0.0)),
            Way::Delay => Some(workload.delay_us.unwrap_or(0.0)),
            Way::Reconnect => Some(f64::from(u8::from(workload.reconnect))),
        }
    }

    /// What a load has.
    fn had(self, cell: &Cell) -> f64 {
        let time_of = |what: &str| {
            let quantity = shape::quantity(cell).filter(|q| q.unit == Unit::Time && q.what.ends_with(what));
            quantity.map_or(0.0, |quantity| quantity.value)
        };
        match self {
            Way::Connections => f64::from(cell.connections),
            Way::Active => cell.active_share,
            Way::Payload => cell.payload_bytes as f64,
            Way::Pipeline => f64::from(cell.pipeline.max(1)),
            Way::Work => time_of("work"),
            Way::Delay => time_of("delay"),
            Way::Reconnect => f64::from(u8::from(cell.variant.as_deref() == Some(RECONNECT))),
        }
    }

    /// How far from what is asked: 0 is the same, up to 1 is near enough to speak for it.
    fn distance(self, workload: &Workload, cell: &Cell) -> f64 {
        let Some(wanted) = self.wanted(workload) else {
            return 0.0;
        };
        let had = self.had(cell);
        // Costs grow with factors, so distance is a factor too; the summand is what is not felt.
        let factor = |summand: f64, near: f64| ((wanted + summand) / (had + summand)).ln().abs() / near.ln();
        match self {
            // Half a decade.
            Way::Connections | Way::Active => factor(0.0, 10_f64.sqrt()),
            Way::Payload => factor(SMALL_BYTES, 4.0),
            Way::Pipeline if (wanted > 1.0) != (had > 1.0) => f64::INFINITY,
            Way::Pipeline => factor(0.0, 4.0),
            Way::Work => factor(WORK_FELT_US, 2.0),
            Way::Delay => factor(DELAY_FELT_US, 3.0),
            Way::Reconnect if wanted == had => 0.0,
            Way::Reconnect => f64::INFINITY,
        }
    }

    /// The suite that varies it.
    fn suite(self) -> &'static str {
        match self {
            Way::Connections => "models",
            Way::Active => "active-share",
            Way::Payload => "payload",
            Way::Pipeline => "pipeline",
            Way::Work | Way::Delay => "work",
            Way::Reconnect => "churn",
        }
    }

    /// What is asked for in words.
    fn said(self, value: f64) -> String {
        match self {
            Way::Connections => format!("{} connections", figure::count(value as u64)),
            Way::Active => format!("{} of them active", figure::percent_short(value)),
            Way::Payload => format!("{} per request", figure::bytes(value)),
            Way::Pipeline => format!("{} requests in flight on each", figure::count(value as u64)),
            Way::Work => format!("{} of work per request", figure::micros(value)),
            Way::Delay => format!("{} of delay per request", figure::micros(value)),
            Way::Reconnect => "a connection per request".to_owned(),
        }
    }
}

/// What a record has for a workload.
enum Evidence<'l, 'a> {
    /// These loads speak for it: one, or one on each side.
    Loads(Vec<&'l Load<'a>>),
    /// In these ways nothing is near; and the nearest load, if any ran.
    Missing(Vec<Way>, Option<&'l Load<'a>>),
}

impl Workload {
    /// Whether anything at all is asked.
    pub fn is_empty(&self) -> bool {
        *self == Workload::default()
    }

    /// The advice that a record gives, in lines of `width` characters.
    pub fn advice(&self, record: &Record, width: usize) -> Advice {
        let loads = shape::loads(record);
        match self.evidence(record, &loads) {
            Evidence::Loads(found) => Advice { covered: true, text: self.covered(record, &found, width) },
            Evidence::Missing(ways, nearest) => {
                Advice { covered: false, text: self.missing(record, &ways, nearest, width) }
            }
        }
    }

    /// `10,000 connections, 1 % of them active, HTTP`.
    fn said(&self) -> String {
        let ordinary = Workload::default();
        let mut parts: Vec<String> = WAYS
            .into_iter()
            .filter(|way| way.wanted(self) != way.wanted(&ordinary))
            .filter_map(|way| Some(way.said(way.wanted(self)?)))
            .collect();
        parts.extend(self.protocol.as_deref().map(|protocol| match protocol {
            "http" => "HTTP".to_owned(),
            other => other.to_owned(),
        }));
        if parts.is_empty() { "no workload in particular".to_owned() } else { parts.join(", ") }
    }

    fn evidence<'l, 'a>(&self, record: &Record, loads: &'l [Load<'a>]) -> Evidence<'l, 'a> {
        /// A load that ran, and how far it is in each way.
        struct Known<'l, 'a>(&'l Load<'a>, [f64; WAYS.len()]);
        let known: Vec<Known<'l, 'a>> = loads
            .iter()
            .filter(|load| !answer::ranked(record, load).0.is_empty())
            .filter_map(|load| {
                let cell = *load.cells.first()?;
                let speaks = self.protocol.as_ref().is_none_or(|protocol| *protocol == cell.protocol);
                (speaks && is_ordinary(cell)).then(|| Known(load, WAYS.map(|way| way.distance(self, cell))))
            })
            .collect();
        let http = |load: &Load<'_>| load.cells.first().is_some_and(|cell| cell.protocol == "http");
        // HTTP before echo where both are equally far.
        let far =
            |known: &Known<'_, '_>| known.1.iter().sum::<f64>() + if http(known.0) { 0.0 } else { 1e-6 };
        let nearest = known.iter().min_by(|a, b| far(a).total_cmp(&far(b)));
        let side = |way: Way, known: &Known<'_, '_>| {
            let cell = known.0.cells.first();
            way.wanted(self).zip(cell).map_or(0.0, |(wanted, cell)| (way.had(cell) - wanted).signum())
        };
        let else_near = |way: usize, known: &Known<'_, '_>| {
            known.1.iter().enumerate().all(|(nth, far)| nth == way || *far <= 1.0)
        };
        // One near in every way, and with it the one beyond the workload, where it is not exactly this.
        let near = known
            .iter()
            .filter(|known| known.1.iter().all(|far| *far <= 1.0))
            .min_by(|a, b| far(a).total_cmp(&far(b)));
        for (nth, way) in WAYS.into_iter().enumerate() {
            let beside = |sign: f64| {
                known
                    .iter()
                    .filter(|known| {
                        else_near(nth, known) && known.1[nth] <= BESIDE && side(way, known) == sign
                    })
                    .filter(|known| near.is_none_or(|near| http(near.0) == http(known.0)))
                    .min_by(|a, b| far(a).total_cmp(&far(b)))
            };
            let here = near.is_some_and(|near| near.1[nth] == 0.0);
            if let (false, Some(below), Some(above)) = (here, beside(-1.0), beside(1.0)) {
                return Evidence::Loads(vec![below.0, above.0]);
            }
        }
        if let Some(near) = near {
            return Evidence::Loads(vec![near.0]);
        }
        let alone: Vec<Way> = WAYS
            .into_iter()
            .enumerate()
            .filter(|(nth, _)| !known.iter().any(|known| known.1[*nth] <= 1.0))
            .map(|(_, way)| way)
            .collect();
        let together = || match nearest {
            Some(nearest) => WAYS
                .into_iter()
                .enumerate()
                .filter(|(nth, _)| nearest.1[*nth] > 1.0)
                .map(|(_, way)| way)
                .collect(),
            None => vec![Way::Connections],
        };
        Evidence::Missing(if alone.is_empty() { together() } else { alone }, nearest.map(|known| known.0))
    }

    /// What to use, why, and with which settings.
    fn covered(&self, record: &Record, loads: &[&Load<'_>], width: usize) -> String {
        let verdicts: Vec<Verdict<'_>> = loads.iter().map(|load| Verdict::of(self, record, load)).collect();
        let mut out = String::new();
        let mut say = |indent: &str, text: &str| put(&mut out, indent, text, width);
        say("", &format!("For {}, on this machine:", self.said()));
        say("", "");
        let (first, rest) = match verdicts.split_first() {
            Some(split) => split,
            None => return out,
        };
        let in_all: Vec<&str> = first
            .best
            .iter()
            .map(|cell| cell.model.as_str())
            .filter(|model| rest.iter().all(|verdict| verdict.best.iter().any(|cell| cell.model == *model)))
            .collect();
        if in_all.is_empty() {
            say(
                "  ",
                "It changes within the range asked for, so measure exactly this, or choose by what you have more of:",
            );
            for verdict in &verdicts {
                say("  ", &format!("  near {}: {}", verdict.load.title, verdict.names()));
            }
        } else {
            let names: Vec<String> = in_all.iter().map(|model| figure::in_words(model).to_owned()).collect();
            let kind = if names.len() > 1 { ": equal in cost within the noise" } else { "" };
            say("  ", &format!("Use {}{kind}.", answer::either(&names)));
            for line in self.settings(record, first, &in_all) {
                say("  ", &line);
            }
        }
        for verdict in &verdicts {
            say("", "");
            say("", &format!("Evidence, {} ({}):", verdict.load.title, verdict.load.name));
            for line in verdict.lines(record) {
                say("  ", &line);
            }
        }
        say("", "");
        if let Some(noise) = answer::noise(record) {
            say("", &noise);
        }
        say("", &from(record));
        out
    }

    /// How to have it: the driver's flag, the choices inside a driver, what the machine must allow.
    fn settings(&self, record: &Record, verdict: &Verdict<'_>, best: &[&str]) -> Vec<String> {
        let mut lines = Vec::new();
        let cell_of = |model: &str| verdict.load.cells.iter().copied().find(|cell| cell.model == model);
        // The engine's drivers are what our own tools run on; ranked among themselves, since by hand is not for sale.
        let (ranked, _) = answer::ranked(record, verdict.load);
        let engines: Vec<&Cell> =
            ranked.into_iter().filter(|cell| cell.model.starts_with("engine-")).collect();
        if let Some(cheapest) = engines.first() {
            let even: Vec<String> = engines
                .iter()
                .filter(|cell| matches!(answer::standing(record, cell, cheapest), Some(Standing::Even(_))))
                .filter_map(|cell| cell.driver.clone())
                .collect();
            let equal = if even.len() > 1 { ", which are equal here" } else { "" };
            lines.push(format!(
                "Ringroad's tools and programs on its engine: --driver {} ({} of CPU per request){equal}.",
                answer::either(&even),
                answer::cpu(cheapest),
            ));
        } else {
            let mut drivers: Vec<String> =
                best.iter().filter_map(|model| cell_of(model)?.driver.clone()).collect();
            drivers.dedup();
            if !drivers.is_empty() {
                lines.push(format!(
                    "Ringroad's tools: --driver {}, to judge by the servers written by hand; the engine itself is not in this record.",
                    answer::either(&drivers)
                ));
            }
        }
        for (one, other, how) in CHOICES {
            let (Some(one), Some(other)) = (cell_of(one), cell_of(other)) else { continue };
            if !answer::usable(one) || !answer::usable(other) {
                continue;
            }
            match answer::standing(record, one, other) {
                Some(Standing::Apart(ratio)) => {
                    lines.push(format!("{how}: {} the cost.", figure::times(ratio)))
                }
                Some(Standing::Even(Some(seen))) => lines.push(format!(
                    "{how}: no difference found; {} would have been seen.",
                    figure::percent(seen)
                )),
                _ => {}
            }
        }
        lines.extend(self.limits(record));
        lines
    }

    /// What the machine allows, beside what is asked.
    fn limits(&self, record: &Record) -> Option<String> {
        let wanted = u64::from(self.connections?);
        let limit = record.host.get("limits")?.get("nofile_hard").and_then(Value::as_u64)?;
        // A few are taken before the first connection.
        (wanted + 64 > limit).then(|| {
            format!(
                "Descriptors: {} connections need as many, and this machine allows a process {}: raise the hard limit \
                 (LimitNOFILE= of systemd, --ulimit nofile= of Docker) or share the port among several processes.",
                figure::count(wanted),
                figure::count(limit),
            )
        })
    }

    /// What the record lacks, and the command that would have it.
    fn missing(&self, record: &Record, ways: &[Way], nearest: Option<&Load<'_>>, width: usize) -> String {
        let mut out = String::new();
        let mut say = |indent: &str, text: &str| put(&mut out, indent, text, width);
        let lacking: Vec<String> = ways.iter().filter_map(|way| Some(way.said(way.wanted(self)?))).collect();
        say(
            "",
            &format!(
                "This record does not cover {}: it has nothing near {}.",
                self.said(),
                answer::either(&lacking)
            ),
        );
        if let Some(nearest) = nearest {
            say("", &format!("The nearest it has is {}.", nearest.title));
        }
        let mut suites: Vec<&str> = ways.iter().map(|way| way.suite()).collect();
        suites.dedup();
        say("", "");
        say("", "This would measure it, or come near:");
        for suite in suites {
            say("  ", &format!("ringroad lab run {suite}"));
        }
        say("", "");
        say("", "Exactly this load: a suite of your own, which is a short TOML file (docs/SUITES.md).");
        say("", "");
        say("", &from(record));
        out
    }
}

/// Adds a text, broken into lines where it is too long for one; columns in a line that fits stay as they are.
fn put(out: &mut String, indent: &str, text: &str, width: usize) {
    let room = width.saturating_sub(indent.chars().count());
    if text.chars().count() <= room {
        out.push_str(format!("{indent}{}", table::plain(&table::clean(text))).trim_end());
        out.push('\n');
        return;
    }
    out.extend(table::wrapped(text, room, "  ").lines().map(|line| format!("{indent}{line}\n")));
}

/// Choices within a driver: the one, the other, and what the one is.
const CHOICES: [(&str, &str, &str); 4] = [
    (
        "uring-multishot",
        "uring",
        "io_uring with standing (multishot) receives and a shared buffer ring, against single ones",
    ),
    ("epoll-et", "epoll-lt", "epoll edge-triggered, against level-triggered"),
    ("engine-io_uring", "uring-multishot", "the engine on io_uring, against the same by hand"),
    ("engine-epoll", "epoll-et", "the engine on epoll, against the same by hand"),
];

/// Whether a load differs from others only in ways that a workload can name.
fn is_ordinary(cell: &Cell) -> bool {
    match (cell.variant.as_deref(), shape::quantity(cell)) {
        (None | Some(RECONNECT), _) => true,
        (Some(_), Some(quantity)) => {
            quantity.unit == Unit::Time
                && (quantity.what.ends_with("work") || quantity.what.ends_with("delay"))
        }
        (Some(_), None) => false,
    }
}

/// Where the advice comes from.
fn from(record: &Record) -> String {
    let doubt = match record.verdict.level {
        Level::Valid => String::new(),
        level => format!(" The run as a whole is {level}: `lab report` says why."),
    };
    format!(
        "From {} of {}, {} blocks.{doubt}",
        record.suite.as_deref().map_or_else(|| "a record".to_owned(), |suite| format!("suite {suite}")),
        record.started,
        record.blocks,
    )
}

/// One load, judged.
struct Verdict<'a> {
    load: &'a Load<'a>,
    ranked: Vec<&'a Cell>,
    best: Vec<&'a Cell>,
}

impl<'a> Verdict<'a> {
    fn of(workload: &Workload, record: &Record, load: &'a Load<'a>) -> Self {
        let (ranked, even) = answer::ranked(record, load);
        let mut best = ranked[..even].to_vec();
        // What cannot hold the connections is no advice, however cheap it was with fewer.
        best.retain(|cell| cell.model != "select" || workload.connections.unwrap_or(0) <= SELECT_MAX);
        Verdict { load, ranked, best }
    }

    fn names(&self) -> String {
        let names: Vec<String> =
            self.best.iter().map(|cell| figure::in_words(&cell.model).to_owned()).collect();
        if names.is_empty() { "none of those that ran".to_owned() } else { answer::either(&names) }
    }

    /// A line for each program, the cheapest first.
    fn lines(&self, record: &Record) -> Vec<String> {
        let widest = self.load.cells.iter().map(|cell| cell.model.chars().count()).max().unwrap_or(0);
        let mut lines: Vec<String> = self
            .ranked
            .iter()
            .map(|cell| {
                let interval = Figure::Cpu.interval(cell).map_or_else(String::new, |i| {
                    format!(" ({} to {})", figure::number(i.low), figure::number(i.high))
                });
                let ratio = match (record.baseline.as_deref(), Figure::Ratio.interval(cell)) {
                    (Some(baseline), _) if baseline == cell.model => ", the baseline".to_owned(),
                    (Some(baseline), Some(ratio)) => format!(
                        ", {} {baseline} ({} to {})",
                        figure::times(ratio.mid),
                        figure::number(ratio.low),
                        figure::number(ratio.high)
                    ),
                    _ => String::new(),
                };
                let tail = Figure::P99
                    .value(cell)
                    .map_or_else(String::new, |p99| format!(", p99 {}", figure::micros(p99)));
                format!(
                    "{:widest$}  {}{interval}{ratio}{tail}{}",
                    cell.model,
                    answer::cpu(cell),
                    figure::flag(cell)
                )
            })
            .collect();
        for cell in self.load.cells.iter().filter(|cell| !answer::usable(cell)) {
            let why = cell
                .skipped
                .as_deref()
                .map_or_else(|| "INVALID, not used".to_owned(), |why| format!("skipped: {why}"));
            lines.push(format!("{:widest$}  {why}", cell.model));
        }
        lines
    }
}

/// Connections that fit into select's set beside the descriptors of a program.
const SELECT_MAX: u32 = 1000;

/// Advice where no workload was described: what the record says for each situation people ask about.
pub fn general(record: &Record, width: usize) -> String {
    let mut out = String::from("Which to use on this machine:\n\n");
    for row in guide::rows(record) {
        out.push_str(&format!("{}\n", row.situation));
        let lines = match row.advice {
            Ok(advice) => format!("use {}: {} ({})", advice.best, advice.evidence, advice.load),
            Err(suite) => format!("not measured here; `ringroad lab run {suite}` would"),
        };
        put(&mut out, "  ", &lines, width);
    }
    out.push('\n');
    put(&mut out, "", &from(record), width);
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::page::sample;

    fn asked(connections: u32) -> Workload {
        Workload { connections: Some(connections), ..Workload::default() }
    }

    fn advice(record: &Record, workload: &Workload) -> Advice {
        workload.advice(record, 100)
    }

    /// The paragraph that begins with "Use".
    fn used(advice: &Advice) -> String {
        let text = advice.text.replace("\n    ", " ");
        text.lines().find(|line| line.trim_start().starts_with("Use ")).unwrap_or_default().to_owned()
    }

    #[test]
    fn mostly_idle_connections_are_answered_from_the_load_that_has_them() {
        let workload = Workload { active_share: Some(0.01), ..asked(10_000) };
        let advice = advice(&sample::idle(), &workload);
        assert!(advice.covered);
        assert!(
            advice.text.starts_with("For 10,000 connections, 1 % of them active, on this machine:\n"),
            "{}",
            advice.text
        );
        assert!(used(&advice).contains("io_uring") && !used(&advice).contains(" poll"), "{}", used(&advice));
        assert!(advice.text.contains("(http-10000-0.01):"), "{}", advice.text);
        assert!(advice.text.contains("the baseline"), "{}", advice.text);
        assert!(advice.text.contains("skipped: select(2)"), "{}", advice.text);
    }

    #[test]
    fn between_two_loads_both_are_the_evidence() {
        let text = advice(&sample::floor(), &asked(4000)).text;
        assert!(text.contains("(http-1000):") && text.contains("(http-10000):"), "{text}");
        let exact = advice(&sample::floor(), &asked(1000)).text;
        assert!(exact.contains("(http-1000):") && !exact.contains("(http-10000):"), "{exact}");
    }

    #[test]
    fn what_holds_only_a_thousand_is_not_advised_for_more() {
        let mut record = sample::floor();
        record.cells.retain(|cell| matches!(cell.model.as_str(), "select" | "epoll-et"));
        for (nth, cell) in record.cells.iter_mut().filter(|cell| cell.skipped.is_none()).enumerate() {
            let cost = if cell.model == "select" { 2.0 } else { 4.0 };
            sample::set_cpu(cell, cost, 0.001, nth as u64);
        }
        sample::set_ratios(&mut record);
        assert!(used(&advice(&record, &asked(1000))).contains("Use select"));
        assert!(!used(&advice(&record, &asked(1500))).contains("select"));
    }

    #[test]
    fn what_the_record_does_not_cover_names_the_command_that_would() {
        let cases = [
            (Workload { active_share: Some(0.01), ..asked(64) }, "ringroad lab run active-share"),
            (asked(10_000), "ringroad lab run models"),
            (Workload { payload_bytes: Some(64 * 1024), ..asked(64) }, "ringroad lab run payload"),
            (Workload { pipeline: Some(16), ..asked(64) }, "ringroad lab run pipeline"),
            (Workload { work_us: Some(100.0), ..asked(64) }, "ringroad lab run work"),
            (Workload { delay_us: Some(10_000.0), ..asked(64) }, "ringroad lab run work"),
            (Workload { reconnect: true, ..asked(64) }, "ringroad lab run churn"),
        ];
        for (workload, command) in cases {
            let advice = advice(&sample::quick(), &workload);
            assert!(!advice.covered, "{workload:?}");
            let commands: Vec<&str> =
                advice.text.lines().filter(|line| line.starts_with("  ringroad")).map(str::trim).collect();
            assert_eq!(commands, [command], "{}", advice.text);
            assert!(!advice.text.contains("Use "), "{}", advice.text);
        }
    }

    #[test]
    fn work_in_the_words_of_the_suite_covers_work_in_numbers() {
        let mut record = sample::quick();
        for cell in record.cells.iter_mut().filter(|cell| cell.load == "http-64") {
            cell.variant = Some("100 µs of work".to_owned());
        }
        let with = |work_us: f64| advice(&record, &Workload { work_us: Some(work_us), ..asked(64) }).covered;
        assert!(with(100.0) && with(150.0) && !with(1000.0));
        assert!(!advice(&record, &Workload { protocol: Some("http".to_owned()), ..asked(64) }).covered);
    }

    #[test]
    fn a_setting_that_was_only_tried_speaks_for_no_workload() {
        let mut record = sample::quick();
        for cell in &mut record.cells {
            cell.variant = Some("1 event per turn".to_owned());
        }
        assert!(!advice(&record, &asked(64)).covered);
    }

    #[test]
    fn where_the_winner_changes_within_the_range_it_says_so() {
        let mut record = sample::floor();
        record.cells.retain(|cell| {
            cell.protocol == "http"
                && cell.pipeline == 1
                && matches!(cell.model.as_str(), "poll" | "epoll-et")
        });
        for (nth, cell) in record.cells.iter_mut().enumerate() {
            let cheap = (cell.model == "poll") == (cell.connections <= 1000);
            cell.verdict = ringroad_measure::Verdict::valid();
            sample::set_cpu(cell, if cheap { 3.0 } else { 6.0 }, 0.001, nth as u64);
        }
        let text = advice(&record, &asked(4000)).text;
        assert!(text.contains("It changes within the range"), "{text}");
        assert!(text.contains("near HTTP, 1,000 connections: poll"), "{text}");
        assert!(text.contains("near HTTP, 10,000 connections: edge-triggered epoll"), "{text}");
    }

    #[test]
    fn more_connections_than_descriptors_are_told() {
        let mut record = sample::floor();
        record.host.insert("limits".to_owned(), serde_json::json!({ "nofile_hard": 10_000 }));
        assert!(advice(&record, &asked(10_000)).text.contains("allows a process 10,000"));
        assert!(!advice(&record, &asked(1_000)).text.contains("allows a process"));
    }

    #[test]
    fn the_drivers_of_the_engine_are_named_where_the_record_has_them() {
        let mut record = sample::quick();
        assert!(advice(&record, &asked(64)).text.contains("to judge by the servers written by hand"));
        for cell in record.cells.iter_mut().filter(|cell| cell.model == "epoll-lt") {
            cell.model = "engine-epoll".to_owned();
        }
        let text = advice(&record, &asked(64)).text;
        assert!(text.contains("--driver epoll"), "{text}");
        assert!(text.contains("the engine on epoll, against the same by hand:"), "{text}");
    }

    #[test]
    fn without_a_workload_every_situation_has_its_line() {
        let text = general(&sample::quick(), 80);
        assert!(text.contains("A few busy connections\n  use "), "{text}");
        assert!(text.contains("not measured here; `ringroad lab run active-share` would"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn a_record_without_a_result_advises_nothing() {
        let mut record = sample::quick();
        record.cells.clear();
        assert!(!advice(&record, &asked(64)).covered);
        assert!(!advice(&record, &Workload::default()).covered);
    }
}
