//! Rate and p99 of each program against the baseline, where CPU time is not known for both: servers on other
//! machines, and those of other users.
//!
//! Start at [`beside`].

use super::super::figure::Figure;
use super::super::shape::Load;
use ringroad_measure::record::{Cell, Record, Run};
use ringroad_measure::units::Apart;
use ringroad_measure::{Comparison, Finding, Level};

/// Per load and program one clause for the rate and one for p99, by the blocks that both have; empty where
/// CPU time tells.
pub(crate) fn beside(record: &Record, loads: &[Load<'_>]) -> Vec<String> {
    let Some(baseline) = record.baseline.as_deref() else { return Vec::new() };
    let mut said = Vec::new();
    for load in loads {
        let Some(base) = load.cells.iter().find(|cell| cell.model == baseline) else { continue };
        let usable = |cell: &Cell| cell.skipped.is_none() && cell.verdict.level < Level::Invalid;
        for cell in load.cells.iter().filter(|cell| cell.model != baseline && usable(cell)) {
            let cost = |cell: &Cell| Figure::Cpu.value(cell).is_some();
            if !usable(base) || cost(cell) && cost(base) {
                continue;
            }
            // The rate is turned over, so that of both figures less is better.
            let rate = compared(base, cell, |run| (run.rps > 0.0).then(|| 1.0 / run.rps));
            let p99 = compared(base, cell, |run| run.p99_us);
            let parts: Vec<String> = [
                rate.map(|finding| words("requests/s", &turned(finding))),
                p99.map(|finding| words("p99", &finding)),
            ]
            .into_iter()
            .flatten()
            .collect();
            if !parts.is_empty() {
                said.push(format!("{} against {baseline}: {}.", cell.id, parts.join("; ")));
            }
        }
    }
    said
}

/// Returns a finding on time per request as one on requests per time: what takes 1.25 times as long has 0.8
/// times the rate.
fn turned(finding: Finding) -> Finding {
    match finding {
        Finding::Slower { by, plus_minus } => {
            let ratio = 1.0 + by;
            Finding::Faster { by: 1.0 - 1.0 / ratio, plus_minus: plus_minus / (ratio * ratio) }
        }
        Finding::Faster { by, plus_minus } => {
            let ratio = 1.0 - by;
            Finding::Slower { by: 1.0 / ratio - 1.0, plus_minus: plus_minus / (ratio * ratio) }
        }
        same => same,
    }
}

/// `p99 lower by 12.0 % ± 1.1`.
fn words(what: &str, finding: &Finding) -> String {
    match finding {
        Finding::Slower { by, plus_minus } => {
            format!("{what} higher by {}", Apart(1.0 + by).plus_minus(*plus_minus))
        }
        Finding::Faster { by, plus_minus } => {
            format!("{what} lower by {}", Apart(1.0 - by).plus_minus(*plus_minus))
        }
        other => format!("{what} {other}"),
    }
}

fn compared(base: &Cell, cell: &Cell, figure: impl Fn(&Run) -> Option<f64>) -> Option<Finding> {
    let pairs = cell.runs.iter().filter_map(|run| {
        let other = base.runs.iter().find(|other| other.block == run.block)?;
        figure(other).zip(figure(run))
    });
    let (before, after): (Vec<f64>, Vec<f64>) = pairs.unzip();
    Comparison::of_blocks(&before, &after, None).map(|comparison| comparison.finding)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::super::{sample, shape};
    use super::*;

    #[test]
    fn where_no_cpu_time_is_known_rate_and_tail_are_compared_by_block() {
        let mut record = sample::quick();
        assert!(beside(&record, &shape::loads(&record)).is_empty(), "the cost tells");
        for cell in &mut record.cells {
            cell.server.cpu_us_per_request = None;
            let factor = if cell.model == "threads" { 1.25 } else { 1.0 };
            for run in &mut cell.runs {
                (run.rps, run.p99_us) = (1000.0 * factor, Some(200.0));
            }
        }
        let said = beside(&record, &shape::loads(&record));
        let threads = said.iter().find(|text| text.starts_with("threads/http")).unwrap();
        assert!(
            threads.contains("requests/s higher by 25.0 % ± 0.0; p99 no significant difference"),
            "{threads}"
        );
    }
}
