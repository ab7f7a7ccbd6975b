//! Recommendations: a row for each common situation, answered from the record; or, if it was not measured,
//! the command that measures it.
//!
//! The judgement of one load is `answer`'s part; a workload described in numbers is `advise`'s. Start at
//! [`rows`].

use super::answer;
use super::figure::{self, Figure};
use super::memory;
use super::shape::{self, Load, Unit};
use ringroad_measure::record::{Cell, Record};

/// A common situation.
struct Situation {
    /// As a heading: what the connections do.
    name: &'static str,
    /// The suite that measures it.
    suite: &'static str,
    /// Whether a load with this cell belongs to it.
    fits: fn(&Cell) -> bool,
    /// Of several loads that fit, the one with the largest weight is used.
    weight: fn(&Cell) -> f64,
}

/// Nothing but requests and answers on connections that are kept.
fn plain(cell: &Cell) -> bool {
    cell.pipeline <= 1 && cell.variant.is_none() && cell.payload_bytes <= 1024
}

fn busy(cell: &Cell) -> bool {
    cell.active_share >= 0.5
}

fn words(cell: &Cell, what: &str) -> bool {
    shape::quantity(cell)
        .is_some_and(|found| found.unit == Unit::Time && found.what.ends_with(what) && found.value > 0.0)
}

const SITUATIONS: [Situation; 7] = [
    Situation {
        name: "A few busy connections",
        suite: "quick",
        fits: |cell| plain(cell) && busy(cell) && cell.connections <= 250,
        // Nearest to 64.
        weight: |cell| -(f64::from(cell.connections) / 64.0).ln().abs(),
    },
    Situation {
        name: "Many busy connections",
        suite: "models",
        fits: |cell| plain(cell) && busy(cell) && cell.connections >= 1000,
        weight: |cell| f64::from(cell.connections),
    },
    Situation {
        name: "Many connections, mostly idle",
        suite: "active-share",
        fits: |cell| plain(cell) && cell.active_share <= 0.2 && cell.connections >= 500,
        weight: |cell| f64::from(cell.connections) / cell.active_share.max(1e-6),
    },
    Situation {
        name: "Several requests in flight on each connection",
        suite: "pipeline",
        fits: |cell| cell.pipeline > 1,
        weight: |cell| -(f64::from(cell.pipeline) / 16.0).ln().abs(),
    },
    Situation {
        name: "A new connection for each request",
        suite: "churn",
        fits: |cell| cell.variant.as_deref() == Some(RECONNECT),
        weight: |cell| f64::from(cell.connections),
    },
    Situation {
        name: "Large payloads",
        suite: "payload",
        fits: |cell| cell.payload_bytes >= 16 * 1024,
        weight: |cell| cell.payload_bytes as f64,
    },
    Situation {
        name: "Work in the application",
        suite: "work",
        fits: |cell| words(cell, "work") || words(cell, "delay"),
        // 100 µs is what a small page with a few look-ups takes.
        weight: |cell| {
            let micros = shape::quantity(cell).map_or(1.0, |quantity| quantity.value);
            -(micros / 100.0).ln().abs() - if words(cell, "delay") { 100.0 } else { 0.0 }
        },
    },
];

/// How the suites call a load that makes a connection for each request.
pub(crate) const RECONNECT: &str = "a connection per request";

/// One row of the answer.
pub(crate) struct Row {
    /// What the connections do.
    pub(crate) situation: &'static str,
    /// The advice, or the command that would measure it.
    pub(crate) advice: Result<Advice, &'static str>,
}

/// The advice of a record for a situation.
pub(crate) struct Advice {
    /// The load it is based on.
    pub(crate) load: String,
    /// `multishot io_uring`, `any of … and …`; `undecided between … and …` if no choice is supported.
    pub(crate) best: String,
    /// Whether there is a recommendation: not if the smallest detectable difference between the best is
    /// large.
    pub(crate) is_told: bool,
    /// The cost of the best, and of the others.
    pub(crate) evidence: String,
}

impl Advice {
    /// Returns the opening sentence of a page about memory.
    pub(crate) fn as_lead(&self) -> String {
        let Advice { load, best, is_told, evidence } = self;
        let what = if *is_told {
            "an open connection held least with"
        } else {
            "the program that held least for an open connection is"
        };
        format!("On this machine, under {load}, {what} {best}: {evidence}")
    }
}

/// Returns a row for each situation, measured ones first.
pub(crate) fn rows(record: &Record) -> Vec<Row> {
    let loads = shape::loads(record);
    let mut rows: Vec<Row> = SITUATIONS
        .iter()
        .map(|situation| Row {
            situation: situation.name,
            advice: chosen(record, &loads, situation)
                .and_then(|load| of_load(record, load))
                .ok_or(situation.suite),
        })
        .collect();
    rows.push(Row {
        situation: "Least memory for each open connection",
        advice: least_memory(record).ok_or("idle"),
    });
    rows.sort_by_key(|row| row.advice.is_err());
    rows
}

/// Returns the most telling load for a situation: HTTP before echo.
fn chosen<'l, 'a>(record: &Record, loads: &'l [Load<'a>], situation: &Situation) -> Option<&'l Load<'a>> {
    let weight = |load: &Load<'_>| {
        let cell = load.cells.first()?;
        let measured = !answer::ranked(record, load).0.is_empty();
        (measured && (situation.fits)(cell)).then(|| (cell.protocol == "http", (situation.weight)(cell)))
    };
    loads
        .iter()
        .filter_map(|load| Some((load, weight(load)?)))
        .max_by(|a, b| a.1.0.cmp(&b.1.0).then(a.1.1.total_cmp(&b.1.1)))
        .map(|(load, _)| load)
}

fn of_load(record: &Record, load: &Load<'_>) -> Option<Advice> {
    let (cells, even) = answer::ranked(record, load);
    let first = cells.first()?;
    let names: Vec<String> =
        cells[..even.max(1)].iter().map(|cell| figure::in_words(&cell.model).to_owned()).collect();
    let hidden = answer::hidden(record, first, &cells[..even]);
    let is_told = answer::alike(hidden);
    let best = match names.len() {
        all if !is_told && all == cells.len() => "undecided between all of them".to_owned(),
        _ if !is_told => format!("undecided between {}", answer::listed(&names)),
        1 => names[0].clone(),
        all if all == cells.len() => "any of them".to_owned(),
        2 | 3 => answer::either(&names),
        _ => format!("any of {}", answer::listed(&names)),
    };
    let (cost, apart) = match even {
        0 | 1 => (answer::cpu(first), String::new()),
        _ => (
            answer::range(&cells[..even]),
            format!(", no significant difference: {}", answer::hiding(hidden)),
        ),
    };
    let doubt = answer::doubt(record, &cells, even).unwrap_or_default();
    let others = match answer::costlier(record, &cells, even) {
        Some(others) => format!("; {others}"),
        None => String::new(),
    };
    Some(Advice {
        load: load.title.clone(),
        best,
        is_told,
        evidence: format!("{cost} of CPU per request{apart}{doubt}{others}."),
    })
}

/// Returns the program with the least memory for a connection, by the process, and all programs with runs
/// that overlap its runs; what the kernel holds is said and much the same for all.
pub(crate) fn least_memory(record: &Record) -> Option<Advice> {
    let loads = shape::loads(record);
    let load =
        loads
            .iter()
            .filter(|load| load.cells.iter().any(|cell| memory::of(record, cell).is_some()))
            .max_by_key(|load| load.cells.first().map(|cell| (cell.connections, cell.protocol == "http")))?;
    let mut known: Vec<(&Cell, memory::PerConnection)> = load
        .cells
        .iter()
        .filter(|cell| answer::usable(cell))
        .filter_map(|cell| Some((*cell, memory::of(record, cell)?)))
        .collect();
    known.sort_by(|a, b| a.1.process.total_cmp(&b.1.process));
    let (best, memory) = known.first()?;
    let kernel = memory.kernel.map_or_else(String::new, |kernel| {
        format!(" and {} in the kernel, for both ends", figure::bytes(kernel))
    });
    let (mut low, mut high) = memory::range(best).unwrap_or((memory.process, memory.process));
    let reached = high;
    let overlaps = |cell: &Cell| memory::range(cell).is_some_and(|(least, _)| least <= reached);
    let (named, others): (Vec<_>, Vec<_>) =
        known.iter().partition(|(cell, _)| std::ptr::eq(*cell, *best) || overlaps(cell));
    for (least, most) in named.iter().filter_map(|(cell, _)| memory::range(cell)) {
        (low, high) = (low.min(least), high.max(most));
    }
    let names: Vec<String> = named.iter().map(|(cell, _)| figure::in_words(&cell.model).to_owned()).collect();
    let is_told = names.len() == 1 || high == low || answer::alike(high / low - 1.0);
    let process = match names.len() {
        1 => Figure::Memory.spell(memory.process),
        _ => format!("{} to {}", Figure::Memory.spell(low), Figure::Memory.spell(high)),
    };
    let apart = if names.len() == 1 { "" } else { ", no significant difference: their runs overlap" };
    let others = others.last().map_or_else(String::new, |(worst, most)| {
        format!("; most {}, {}", figure::in_words(&worst.model), figure::bytes(most.process))
    });
    Some(Advice {
        load: load.title.clone(),
        best: if is_told {
            answer::either(&names)
        } else {
            format!("undecided between {}", answer::listed(&names))
        },
        is_told,
        evidence: format!("{process} in the process{kernel}{apart}{others}."),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::super::sample;
    use super::*;

    fn row(record: &Record, situation: &str) -> Row {
        rows(record).into_iter().find(|row| row.situation == situation).unwrap()
    }

    #[test]
    fn for_mostly_idle_connections_the_scanning_ways_lose() {
        let advice = row(&sample::idle(), "Many connections, mostly idle").advice.ok().unwrap();
        assert_eq!(advice.load.replace('\u{a0}', " "), "HTTP, 10,000 connections, 1 % active");
        assert!(
            !advice.best.contains("poll(") && !advice.best.split(' ').any(|word| word == "poll"),
            "{}",
            advice.best
        );
        assert!(advice.evidence.contains("poll cost"), "{}", advice.evidence);
    }

    #[test]
    fn what_was_not_measured_names_the_suite_that_would() {
        let quick = sample::quick();
        assert_eq!(row(&quick, "Many connections, mostly idle").advice.err(), Some("active-share"));
        assert_eq!(row(&quick, "Work in the application").advice.err(), Some("work"));
        assert!(row(&quick, "A few busy connections").advice.is_ok());
        let floor = sample::floor();
        assert!(row(&floor, "Several requests in flight on each connection").advice.is_ok());
        assert!(row(&floor, "Many busy connections").advice.ok().unwrap().load.contains("10,000"));
    }

    #[test]
    fn measured_rows_stand_before_the_others() {
        let order: Vec<bool> = rows(&sample::floor()).iter().map(|row| row.advice.is_ok()).collect();
        let mut sorted = order.clone();
        sorted.sort_by_key(|measured| !measured);
        assert_eq!(order, sorted);
        assert!(order.contains(&true) && order.contains(&false));
    }

    #[test]
    fn a_cell_that_is_not_to_be_used_advises_nothing() {
        let mut record = sample::idle();
        for cell in &mut record.cells {
            cell.verdict = ringroad_measure::Verdict::of([ringroad_measure::Caveat::CountsDiffer {
                what: "requests",
                client: 7,
                server: 9,
            }]);
        }
        assert!(rows(&record).iter().all(|row| row.advice.is_err() || row.situation.contains("memory")));
    }

    #[test]
    fn from_too_few_runs_no_winner_is_named_without_a_caveat() {
        let mut record = sample::quick();
        record.cells.iter_mut().for_each(|cell| cell.runs.truncate(3));
        let advice = row(&record, "A few busy connections").advice.ok().unwrap();
        assert!(advice.evidence.contains("too few runs"), "{} {}", advice.best, advice.evidence);
        let sure = row(&sample::quick(), "A few busy connections").advice.ok().unwrap();
        assert!(!sure.evidence.contains("too few runs"), "{}", sure.evidence);
    }

    #[test]
    fn with_a_large_detectable_difference_nothing_is_advised_and_the_remedy_is_named() {
        let mut record = sample::quick();
        let of = |record: &Record| row(record, "A few busy connections").advice.ok().unwrap();
        let advice = of(&record);
        assert!(advice.is_told, "{}", advice.best);
        assert!(
            advice.evidence.contains(", no significant difference: a difference of up to "),
            "{}",
            advice.evidence
        );
        record.control.iter_mut().for_each(|control| control.ratio.high = 1.6);
        let advice = of(&record);
        assert!(!advice.is_told && advice.best.starts_with("undecided between "), "{}", advice.best);
        assert!(advice.evidence.contains("use more blocks or a quieter machine"), "{}", advice.evidence);
        // Also where all are in it.
        record.cells.retain(|cell| matches!(cell.model.as_str(), "epoll-et" | "uring-multishot"));
        assert_eq!(of(&record).best, "undecided between all of them");
    }

    #[test]
    fn every_suite_that_is_named_exists_and_would_answer() {
        for situation in &SITUATIONS {
            let suite = crate::Suite::load(situation.suite).unwrap();
            let fits = suite.loads.iter().any(|load| {
                (situation.fits)(&Cell {
                    variant: load.about.clone(),
                    connections: load.connections,
                    active_share: f64::from(load.active) / f64::from(load.connections),
                    payload_bytes: u64::from(load.payload_bytes),
                    pipeline: load.pipeline,
                    ..sample::quick().cells[0].clone()
                })
            });
            assert!(fits, "{}: nothing in suite {} is about it", situation.name, situation.suite);
        }
        assert!(crate::Suite::load("idle").is_ok());
    }

    #[test]
    fn work_and_new_connections_are_told_by_the_words_of_the_suite() {
        let mut record = sample::quick();
        record
            .cells
            .iter_mut()
            .filter(|c| c.load == "http-64")
            .for_each(|c| c.variant = Some("100 µs of work".to_owned()));
        record
            .cells
            .iter_mut()
            .filter(|c| c.load == "echo-64")
            .for_each(|c| c.variant = Some(RECONNECT.to_owned()));
        assert!(row(&record, "Work in the application").advice.is_ok());
        assert!(row(&record, "A new connection for each request").advice.is_ok());
        assert!(row(&record, "A few busy connections").advice.is_err());
    }

    /// 10,000 connections held by two programs, with so many bytes of the process for each in each run.
    fn held(one: [u64; 6], other: [u64; 6]) -> Advice {
        row(&holding(one, other), "Least memory for each open connection").advice.ok().unwrap()
    }

    fn holding(one: [u64; 6], other: [u64; 6]) -> Record {
        let mut record = sample::idle();
        record
            .cells
            .retain(|cell| cell.connections == 10_000 && matches!(cell.model.as_str(), "epoll-et" | "uring"));
        for cell in &mut record.cells {
            let bytes = if cell.model == "epoll-et" { one } else { other };
            cell.runs.truncate(6);
            for (run, bytes) in cell.runs.iter_mut().zip(bytes) {
                run.rss_growth_bytes = Some(bytes * 10_000);
            }
            cell.server.rss_growth_bytes =
                ringroad_measure::record::ServerCost::of_runs(&cell.runs, None).rss_growth_bytes;
        }
        record
    }

    #[test]
    fn where_memory_was_asked_the_page_opens_with_it_and_the_cost_of_a_request_follows() {
        let mut record = holding([109, 109, 109, 109, 115, 122], [123, 123, 124, 125, 125, 126]);
        let answer = |record: &Record| answer::Answer::of(record);
        assert!(
            answer(&record).lead.contains("of CPU"),
            "another suite's question: {}",
            answer(&record).lead
        );
        record.suite = Some("idle".to_owned());
        let said = answer(&record);
        let lead = said.lead.replace('\u{a0}', " ");
        let begin = "On this machine, under HTTP, 10,000 connections, 1 % active, an open connection held least with \
                     edge-triggered epoll: 109 B in the process";
        assert!(lead.starts_with(begin), "{lead}");
        assert!(said.ranking[0].contains("of CPU"), "{}", said.ranking[0]);
        record.cells.iter_mut().for_each(|cell| cell.server.rss_growth_bytes = None);
        record.cells.iter_mut().for_each(|cell| cell.server.rss_bytes = None);
        assert!(answer(&record).lead.contains("of CPU"), "nothing known: {}", answer(&record).lead);
    }

    #[test]
    fn whose_runs_overlap_those_of_the_least_is_named_with_it() {
        let advice = held([109, 109, 109, 109, 115, 122], [109, 109, 109, 115, 115, 122]);
        assert_eq!(advice.best, "undecided between edge-triggered epoll and single-shot io_uring");
        assert!(!advice.is_told);
        let said = advice.evidence.replace('\u{a0}', " ");
        assert!(said.starts_with("109 B to 122 B in the process"), "{said}");
        assert!(said.ends_with(", no significant difference: their runs overlap."), "{said}");
        let near = held([109, 109, 109, 109, 110, 111], [109, 109, 110, 111, 111, 112]);
        assert!(near.is_told && near.best == "edge-triggered epoll or single-shot io_uring", "{}", near.best);
        let apart = held([109, 109, 109, 109, 115, 122], [123, 123, 124, 125, 125, 126]);
        assert!(apart.is_told && apart.best == "edge-triggered epoll", "{}", apart.best);
        assert!(apart.evidence.contains("; most single-shot io_uring, 124"), "{}", apart.evidence);
    }
}
