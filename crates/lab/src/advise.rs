//! Recommends a driver and settings for a workload, with the evidence, from a record.
//!
//! A record covers a [`Workload`] if one of its loads is near in every respect that matters, or if two loads
//! lie on either side of it. The cheapest programs there, and those that cannot be told from them, are
//! recommended. Where a record does not cover the workload, the answer is the command that would measure it.
//! Figures and comparisons are `page`'s. Start at [`Workload::advice`] and [`general`].

mod way;

use crate::page::answer::{self, Standing};
use crate::page::figure::{self, Figure};
use crate::page::guide;
use crate::page::shape::{self, Load};
use crate::suite::{self, Suite};
use crate::table;
use ringroad_measure::Level;
use ringroad_measure::record::{Cell, Record};
use ringroad_measure::units::{counted, in_number};
use serde_json::Value;
use way::{Point, WAYS, Way};

/// A workload. A field that is not set is not a requirement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workload {
    /// `http` or `echo`; unset: either, HTTP first.
    pub protocol: Option<String>,
    /// Connections open at a time.
    pub connections: Option<u32>,
    /// The share of them that send, 0 to 1; unset: all.
    pub active_share: Option<f64>,
    /// Bytes per request; unset: small.
    pub payload_bytes: Option<u64>,
    /// Requests in flight on each connection; unset: one.
    pub pipeline: Option<u32>,
    /// CPU time of the handler per request, in microseconds; unset: none.
    pub work_us: Option<f64>,
    /// Time the handler waits per request, in microseconds; unset: none.
    pub delay_us: Option<f64>,
    /// A new connection for each request, instead of kept connections.
    pub reconnect: bool,
}

/// Advice as text for a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// Whether the record covers the workload.
    pub covered: bool,
    /// Lines ended by `\n`, at most as long as the requested width where words allow.
    pub text: String,
}

/// Maximum distance of two loads that together enclose a workload, in units of a near distance.
const BESIDE: f64 = 2.2;

/// Returns how many connections a server of ours can hold, if that is less than descriptors allow, as the
/// suites have it.
fn limits() -> Vec<(String, u32)> {
    let servers = Suite::load("models").map(|suite| suite.servers).unwrap_or_default();
    servers.into_iter().filter_map(|server| Some((server.id, server.max_connections?))).collect()
}

/// Evidence of a record for a workload.
enum Evidence<'l, 'a> {
    /// These loads cover it: one, or one on each side.
    Loads(Vec<&'l Load<'a>>),
    /// The respects in which no load is near, and the nearest load. Both empty if no load has the protocol.
    Missing(Vec<Way>, Option<&'l Load<'a>>),
}

impl Workload {
    /// Returns whether the workload has no requirement.
    pub fn is_empty(&self) -> bool {
        *self == Workload::default()
    }

    /// Returns the advice from a record, in lines of `width` characters.
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
        /// A load that ran, and its distance in each respect.
        struct Known<'l, 'a>(&'l Load<'a>, [f64; WAYS.len()]);
        let known: Vec<Known<'l, 'a>> = loads
            .iter()
            .filter(|load| !answer::ranked(record, load).0.is_empty())
            .filter_map(|load| {
                let point = Point::of_cell(load.cells.first()?);
                point.speaks_for(self).then(|| Known(load, WAYS.map(|way| way.distance(self, &point))))
            })
            .collect();
        let http = |load: &Load<'_>| load.cells.first().is_some_and(|cell| cell.protocol == "http");
        // HTTP before echo where both are equally far.
        let far =
            |known: &Known<'_, '_>| known.1.iter().sum::<f64>() + if http(known.0) { 0.0 } else { 1e-6 };
        let nearest = known.iter().min_by(|a, b| far(a).total_cmp(&far(b)));
        let side = |way: Way, known: &Known<'_, '_>| {
            let cell = known.0.cells.first();
            way.wanted(self)
                .zip(cell)
                .map_or(0.0, |(wanted, cell)| (way.had(&Point::of_cell(cell)) - wanted).signum())
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
        let Some(nearest) = nearest else {
            return Evidence::Missing(Vec::new(), None);
        };
        let ways = |is_missing: &dyn Fn(usize) -> bool| -> Vec<Way> {
            WAYS.into_iter().enumerate().filter(|(nth, _)| is_missing(*nth)).map(|(_, way)| way).collect()
        };
        let alone = ways(&|nth| !known.iter().any(|known| known.1[nth] <= 1.0));
        let together = || ways(&|nth| nearest.1[nth] > 1.0);
        Evidence::Missing(if alone.is_empty() { together() } else { alone }, Some(nearest.0))
    }

    /// Returns what to use, the reasons, and the settings.
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
        if verdicts.iter().all(|verdict| verdict.best.is_empty()) {
            say("  ", "None of the programs that ran can hold that many connections.");
        } else if in_all.is_empty() {
            say(
                "  ",
                "The answer changes within this range. Measure exactly this load, or choose the nearer case:",
            );
            for verdict in &verdicts {
                say("  ", &format!("  near {}: {}", verdict.load.title, verdict.names()));
            }
        } else {
            let names: Vec<String> = in_all.iter().map(|model| figure::in_words(model).to_owned()).collect();
            let hidden = most(verdicts.iter().map(|verdict| verdict.hidden(record, &in_all)));
            say(
                "  ",
                &match names.len() {
                    1 => {
                        let doubt = answer::doubt(record, &first.ranked, first.best.len());
                        format!("Use {}{}.", names[0], doubt.unwrap_or_default())
                    }
                    _ if answer::alike(hidden) => {
                        format!(
                            "Use {} (no significant difference): {}.",
                            answer::either(&names),
                            answer::hiding(hidden)
                        )
                    }
                    _ => {
                        format!("Undecided between {}: {}.", answer::listed(&names), answer::hiding(hidden))
                    }
                },
            );
            for line in self.settings(record, &verdicts, &in_all) {
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
        if let Some(noise) = answer::noise(record, loads.iter().copied()) {
            say("", &noise);
        }
        say("", &from(record));
        out
    }

    /// Returns the settings: the driver's flag, choices within a driver, and what the machine must allow.
    fn settings(&self, record: &Record, verdicts: &[Verdict<'_>], best: &[&str]) -> Vec<String> {
        let mut lines = Vec::new();
        let Some(verdict) = verdicts.first() else { return lines };
        let cell_of = |model: &str| verdict.load.cells.iter().copied().find(|cell| cell.model == model);
        // The project's tools run on the engine's drivers, so these are also ranked among themselves.
        let engines = verdict.engines(record);
        if let Some(cheapest) = engines.even.first() {
            let others: Vec<Engines<'_>> =
                verdicts.iter().skip(1).map(|other| other.engines(record)).collect();
            let drivers = engines.even.iter().filter_map(|cell| cell.driver.clone());
            let both: Vec<String> =
                drivers.filter(|driver| others.iter().all(|other| other.has(driver))).collect();
            let all = others.iter().chain([&engines]);
            let apart = match both.len() {
                0 | 1 => String::new(),
                _ => {
                    let hidden = most(all.map(|engines| engines.hidden(record, &both)));
                    format!(", no significant difference: {}", answer::hiding(hidden))
                }
            };
            lines.push(match both.is_empty() {
                false => format!(
                    "Ringroad's tools and programs on its engine: --driver {} ({} of CPU per request){apart}.",
                    answer::either(&both),
                    answer::cpu(cheapest),
                ),
                true => "Ringroad's tools and programs on its engine: the cheapest driver changes within the range, so \
                         measure exactly this."
                    .to_owned(),
            });
        } else {
            let mut drivers: Vec<String> =
                best.iter().filter_map(|model| cell_of(model)?.driver.clone()).collect();
            drivers.dedup();
            if !drivers.is_empty() {
                lines.push(format!(
                    "Ringroad's tools: --driver {}, judging by the hand-written servers; the engine itself is not in this record.",
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
                    "{how}: no significant difference (smallest detectable: {}).",
                    figure::percent(seen)
                )),
                _ => {}
            }
        }
        lines.extend(self.limits(record));
        lines
    }

    /// Returns what the machine allows, beside what is asked.
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

    /// Returns what the record lacks, and the command that would measure it.
    fn missing(&self, record: &Record, ways: &[Way], nearest: Option<&Load<'_>>, width: usize) -> String {
        let mut out = String::new();
        let mut say = |indent: &str, text: &str| put(&mut out, indent, text, width);
        let lacking: Vec<String> = ways.iter().filter_map(|way| Some(way.said(way.wanted(self)?))).collect();
        let lacks = match nearest {
            Some(_) => format!("it has no result near {}", answer::either(&lacking)),
            None => "it has no result for this kind of load".to_owned(),
        };
        say("", &format!("This record does not cover {}: {lacks}.", self.said()));
        if let Some(nearest) = nearest {
            say("", &format!("The nearest load in it is {}.", nearest.title));
        }
        say("", "");
        match self.suite() {
            Some(suite) => {
                say("", "To measure it:");
                say("  ", &format!("ringroad lab run {suite}"));
            }
            None => {
                let mut suites: Vec<&str> = ways.iter().map(|way| way.suite()).collect();
                suites.dedup();
                if !suites.is_empty() {
                    say("", "No suite has exactly this load. The nearest:");
                }
                for suite in suites {
                    say("  ", &format!("ringroad lab run {suite}"));
                }
            }
        }
        say("", "");
        say("", "For exactly this load write a suite, a short TOML file (docs/SUITES.md).");
        say("", "");
        say("", &from(record));
        out
    }

    /// Returns the first built-in suite with a load that covers this.
    fn suite(&self) -> Option<&'static str> {
        suite::built_in::names().find(|name| {
            let suite = Suite::load(name);
            suite.is_ok_and(|suite| {
                let mut points = suite.loads.iter().map(Point::of_load);
                points.any(|point| point.speaks_for(self) && point.is_near(self))
            })
        })
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

/// Returns where the advice comes from.
fn from(record: &Record) -> String {
    let doubt = match record.verdict.level {
        Level::Valid => String::new(),
        level => format!(" The run as a whole is {level}: `lab report` shows why."),
    };
    format!(
        "From {} of {}, {}.{doubt}",
        record.suite.as_deref().map_or_else(|| "a record".to_owned(), |suite| format!("suite {suite}")),
        record.started,
        counted(record.blocks.into(), "block"),
    )
}

/// One load, judged.
struct Verdict<'a> {
    load: &'a Load<'a>,
    ranked: Vec<&'a Cell>,
    best: Vec<&'a Cell>,
    /// Programs that ran but cannot hold the connections: never advised, however cheap with fewer.
    too_small: Vec<(&'a Cell, u32)>,
}

impl<'a> Verdict<'a> {
    fn of(workload: &Workload, record: &Record, load: &'a Load<'a>) -> Self {
        let wanted = workload.connections.unwrap_or(0);
        let limits = limits();
        let limit = |cell: &Cell| {
            let known = limits.iter().find(|(model, _)| *model == cell.model);
            known.map(|(_, most)| *most).filter(|most| wanted > *most)
        };
        let able = Load {
            name: load.name,
            title: load.title.clone(),
            cells: load.cells.iter().copied().filter(|cell| limit(cell).is_none()).collect(),
        };
        let (ranked, even) = answer::ranked(record, &able);
        let best = ranked[..even].to_vec();
        let ran = load.cells.iter().copied().filter(|cell| answer::usable(cell));
        let too_small = ran.filter_map(|cell| Some((cell, limit(cell)?))).collect();
        Verdict { load, ranked, best, too_small }
    }

    /// Returns the engine's cells that are as cheap as the cheapest of them.
    fn engines(&self, record: &Record) -> Engines<'a> {
        let mut engines = self.ranked.iter().copied().filter(|cell| cell.model.starts_with("engine-"));
        let Some(cheapest) = engines.next() else { return Engines { even: Vec::new() } };
        let is_even =
            |cell: &&Cell| matches!(answer::standing(record, cell, cheapest), Some(Standing::Even(_)));
        Engines { even: [cheapest].into_iter().chain(engines.filter(is_even)).collect() }
    }

    /// Returns the smallest detectable difference between the cheapest and these, all among the best.
    fn hidden(&self, record: &Record, models: &[&str]) -> f64 {
        let these: Vec<&Cell> =
            self.best.iter().copied().filter(|cell| models.contains(&cell.model.as_str())).collect();
        self.best.first().map_or(0.0, |cheapest| answer::hidden(record, cheapest, &these))
    }

    fn names(&self) -> String {
        let names: Vec<String> =
            self.best.iter().map(|cell| figure::in_words(&cell.model).to_owned()).collect();
        if names.is_empty() { "none of those that ran".to_owned() } else { answer::either(&names) }
    }

    /// Returns a line for each program, the cheapest first.
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
        for (cell, most) in &self.too_small {
            let (count, noun) = (figure::count(u64::from(*most)), in_number(u64::from(*most), "connection"));
            lines.push(format!("{:widest$}  holds {count} {noun} at most", cell.model));
        }
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

/// Programs on the engine under one load without a significant difference to the cheapest of them, which is
/// first.
struct Engines<'a> {
    even: Vec<&'a Cell>,
}

impl Engines<'_> {
    fn has(&self, driver: &str) -> bool {
        self.even.iter().any(|cell| cell.driver.as_deref() == Some(driver))
    }

    /// Returns the smallest detectable difference between the cheapest and those on these drivers.
    fn hidden(&self, record: &Record, drivers: &[String]) -> f64 {
        let is_one = |cell: &&Cell| cell.driver.as_ref().is_some_and(|driver| drivers.contains(driver));
        let these: Vec<&Cell> = self.even.iter().copied().filter(is_one).collect();
        self.even.first().map_or(0.0, |cheapest| answer::hidden(record, cheapest, &these))
    }
}

fn most(hidden: impl Iterator<Item = f64>) -> f64 {
    hidden.fold(0.0, f64::max)
}

/// Returns advice without a workload: the answer of the record for each common situation.
pub fn general(record: &Record, width: usize) -> String {
    let mut out = String::from("Which to use on this machine:\n\n");
    for row in guide::rows(record) {
        out.push_str(&format!("{}\n", row.situation));
        let lines = match row.advice {
            Ok(advice) => {
                let verb = if advice.is_told { "use " } else { "" };
                format!("{verb}{}: {} ({})", advice.best, advice.evidence, advice.load)
            }
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

    /// Returns the paragraph that begins with "Use".
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
    fn between_two_loads_what_cannot_hold_as_many_is_no_driver_to_take() {
        let mut record = sample::floor();
        record.cells.retain(|cell| cell.protocol == "http" && cell.pipeline == 1);
        record.cells.retain(|cell| matches!(cell.model.as_str(), "poll" | "epoll-et" | "select" | "threads"));
        record.control.clear();
        for (nth, cell) in record.cells.iter_mut().enumerate() {
            let (model, driver) = match cell.model.as_str() {
                "threads" => ("engine-threads", "threads"),
                "select" => ("engine-select", "select"),
                "poll" => ("engine-poll", "poll"),
                _ => ("engine-epoll", "epoll"),
            };
            (cell.model, cell.driver) = (model.to_owned(), Some(driver.to_owned()));
            cell.verdict = ringroad_measure::Verdict::valid();
            if cell.skipped.is_none() {
                // At 1,000 all are equal, at 10,000 poll is dear.
                let dear = cell.connections > 1000 && model == "engine-poll";
                sample::set_cpu(cell, if dear { 9.0 } else { 4.0 }, 0.0, nth as u64);
            }
        }
        let text = advice(&record, &asked(9999)).text;
        assert!(text.contains("(http-1000):") && text.contains("(http-10000):"), "{text}");
        assert!(text.contains("--driver epoll ("), "{text}");
        assert!(text.contains("holds 1,000 connections at most"), "{text}");
        assert!(text.contains("holds 4,000 connections at most"), "{text}");
        let text = advice(&record, &asked(1000)).text;
        assert!(text.contains("select") && text.contains("threads") && !text.contains("at most"), "{text}");
    }

    #[test]
    fn where_nothing_that_ran_holds_as_many_nothing_is_advised() {
        let mut record = sample::floor();
        record.cells.retain(|cell| cell.model == "select" && cell.connections <= 1000);
        let text = advice(&record, &asked(1500)).text;
        assert!(text.contains("None of the programs that ran can hold that many"), "{text}");
    }

    #[test]
    fn from_too_few_runs_no_winner_is_named_without_a_caveat() {
        let mut record = sample::quick();
        assert!(!used(&advice(&record, &asked(64))).contains("too few runs"));
        record.cells.iter_mut().for_each(|cell| cell.runs.truncate(3));
        assert!(used(&advice(&record, &asked(64))).contains("too few runs"));
    }

    #[test]
    fn where_much_may_hide_nothing_is_advised_and_what_would_tell_is_said() {
        let mut record = sample::quick();
        for (model, driver) in [("epoll-lt", "epoll"), ("uring", "io_uring")] {
            for (nth, cell) in record.cells.iter_mut().filter(|cell| cell.model == model).enumerate() {
                cell.model = format!("engine-{driver}");
                sample::set_cpu(cell, 4.0, 0.012, nth as u64);
            }
        }
        sample::set_ratios(&mut record);
        let told = |record: &Record| advice(record, &asked(64)).text.replace("\n    ", " ");
        let text = told(&record);
        assert!(
            text.contains("  Use ") && text.contains(" (no significant difference): a difference of up to "),
            "{text}"
        );
        let engines = |text: &str| text.lines().find(|line| line.contains("--driver")).unwrap().to_owned();
        assert!(engines(&text).contains("), no significant difference: a difference of up to "), "{text}");
        record.control.iter_mut().for_each(|control| control.ratio.high = 1.6);
        let text = told(&record);
        assert!(text.contains("  Undecided between ") && !text.contains("  Use "), "{text}");
        assert_eq!(text.matches("use more blocks or a quieter machine.").count(), 2, "{text}");
        assert!(!text.contains("are equal") && !text.contains("equal in cost"), "{text}");
        assert!(general(&record, 200).contains("A few busy connections\n  undecided between "));
    }

    #[test]
    fn the_noise_that_is_told_is_that_of_the_evidence() {
        let mut record = sample::quick();
        record.cells.retain(|cell| matches!(cell.model.as_str(), "epoll-et" | "poll"));
        for cell in record.cells.iter_mut() {
            sample::set_cpu(cell, if cell.model == "poll" { 4.4 } else { 4.0 }, 0.001, 1);
        }
        sample::set_ratios(&mut record);
        record.control[0].ratio.high = 1.03;
        record.control[1].ratio.high = 1.30;
        let advice = advice(&record, &Workload { protocol: Some("http".to_owned()), ..asked(64) });
        let text = advice.text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(used(&advice).contains("Use edge-triggered epoll."), "10 % is claimed: {text}");
        assert!(
            text.contains("reaches 3.0 % from equal. A difference smaller than this is not claimed."),
            "{text}"
        );
        assert!(!text.contains("30 %"), "{text}");
        let table = table::text(&record, 100, false);
        assert!(table.contains("30 %") && !table.contains("is not claimed"), "{table}");
        let page = crate::page::html(&record);
        assert!(page.contains("exceeds the A/A noise") && !page.contains("is not claimed"));
    }

    #[test]
    fn where_no_load_speaks_the_protocol_the_suite_that_does_is_named() {
        let mut record = sample::quick();
        record.cells.retain(|cell| cell.protocol == "http");
        let echo = Workload { protocol: Some("echo".to_owned()), ..asked(64) };
        let text = advice(&record, &echo).text;
        assert!(text.contains("no result for this kind of load"), "{text}");
        assert!(text.contains("To measure it:\n  ringroad lab run quick\n"), "{text}");
        let idle = Workload { active_share: Some(0.01), protocol: Some("http".to_owned()), ..asked(10_000) };
        let text = advice(&record, &idle).text;
        assert!(text.contains("\n  ringroad lab run idle\n"), "active-share speaks echo: {text}");
    }

    #[test]
    fn copies_of_files_speak_for_no_connections() {
        let mut record = sample::quick();
        record.cells.iter_mut().for_each(|cell| {
            (cell.protocol, cell.connections) = ("files".to_owned(), 1);
        });
        assert!(!advice(&record, &asked(1)).covered);
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
        assert!(text.contains("The answer changes within this range"), "{text}");
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
        assert!(advice(&record, &asked(64)).text.contains("judging by the hand-written servers"));
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
