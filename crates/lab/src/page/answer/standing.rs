//! Who is cheaper than whom under one load, and how sure that is.
//!
//! Claims are made of paired runs where there are some, of intervals where there are none. What is said of it is the
//! parent's part. Start at [`standing`] and [`ranked`].

use super::super::figure::Figure;
use super::super::shape::Load;
use ringroad_measure::Level;
use ringroad_measure::compare::{Comparison, Finding};
use ringroad_measure::record::{Cell, Interval, Record};

/// What one cell's CPU per request is to another's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Standing {
    /// No difference was found; the share is what would have been seen.
    Even(Option<f64>),
    /// A difference was found; the ratio, never 1.
    Apart(f64),
    /// There are two numbers, but too few runs to tell noise from difference.
    Untold(f64),
}

/// Compares `cell` with `other`, block by block where both have runs of the same blocks. `None` if either has
/// no CPU time.
pub(crate) fn standing(record: &Record, cell: &Cell, other: &Cell) -> Option<Standing> {
    let ratio = Figure::Cpu.value(cell)? / Figure::Cpu.value(other)?;
    if std::ptr::eq(cell, other) {
        return Some(Standing::Even(None));
    }
    if let Some(comparison) = compared(cell, other, Figure::Cpu, control(record, &cell.load)) {
        return Some(match comparison.finding {
            Finding::NoDifference { could_have_seen } => Standing::Even(Some(could_have_seen)),
            // The pairs must not contradict the medians that rank the two; if they do, nobody is ahead.
            Finding::Slower { .. } if ratio > 1.0 => Standing::Apart(comparison.ratio.mid),
            Finding::Faster { .. } if ratio < 1.0 => Standing::Apart(comparison.ratio.mid),
            Finding::Slower { .. } | Finding::Faster { .. } => Standing::Even(None),
            Finding::TooFewBlocks { .. } => Standing::Untold(ratio),
        });
    }
    // A record may come without its runs. Overlapping intervals are a blunter test: they miss differences that
    // pairing would find, but claim none that it would not.
    Some(match (Figure::Cpu.interval(cell), Figure::Cpu.interval(other)) {
        (Some(a), Some(b)) if a.low <= b.high && b.low <= a.high => {
            Standing::Even(Some((a.high / b.low - 1.0).abs().max((a.low / b.high - 1.0).abs())))
        }
        (Some(_), Some(_)) => Standing::Apart(ratio),
        _ => Standing::Untold(ratio),
    })
}

/// The A/A interval of a load.
pub(crate) fn control(record: &Record, load: &str) -> Option<Interval> {
    record
        .control
        .iter()
        .find(|control| control.load == load)
        .map(|control| control.ratio)
        .filter(|ratio| ratio.low.is_finite() && ratio.high.is_finite())
}

/// Did it run, and may its numbers be used?
pub(crate) fn usable(cell: &Cell) -> bool {
    cell.skipped.is_none() && cell.verdict.level != Level::Invalid
}

/// The usable cells of a load from cheap to costly, and how many of them, from the front, cannot be told from
/// the cheapest.
pub(crate) fn ranked<'a>(record: &Record, load: &Load<'a>) -> (Vec<&'a Cell>, usize) {
    let mut cells: Vec<(&Cell, f64)> = load
        .cells
        .iter()
        .filter(|cell| usable(cell))
        .filter_map(|cell| Some((*cell, Figure::Cpu.value(cell)?)))
        .collect();
    cells.sort_by(|a, b| a.1.total_cmp(&b.1));
    let cells: Vec<&Cell> = cells.into_iter().map(|(cell, _)| cell).collect();
    let even = cells
        .iter()
        .take_while(|cell| matches!(standing(record, cell, cells[0]), Some(Standing::Even(_))))
        .count();
    (cells, even)
}

/// A figure of `cell` over that of `other`, block by block where both have runs of the same blocks.
fn compared(cell: &Cell, other: &Cell, figure: Figure, control: Option<Interval>) -> Option<Comparison> {
    let good = |value: Option<f64>| value.filter(|v| v.is_finite() && *v > 0.0);
    let (mine, theirs): (Vec<f64>, Vec<f64>) = cell
        .runs
        .iter()
        .filter_map(|run| {
            let twin = other.runs.iter().find(|twin| twin.block == run.block)?;
            Some((good(figure.in_run(run))?, good(figure.in_run(twin))?))
        })
        .unzip();
    if mine.len() > 1 { Comparison::of_blocks(&theirs, &mine, control) } else { None }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::super::tests::with_cpu;
    use super::*;

    #[test]
    fn without_its_runs_a_record_is_judged_by_its_intervals() {
        let mut record =
            with_cpu(&[("epoll-et", 4.0, 0.0), ("uring-multishot", 4.1, 0.0), ("poll", 5.0, 0.0)]);
        for cell in &mut record.cells {
            cell.runs.clear();
            let mid = cell.server.cpu_us_per_request.unwrap();
            cell.server.cpu_interval = Some(Interval { low: mid * 0.97, mid, high: mid * 1.03 });
        }
        let [poll, epoll, uring] = &record.cells[..] else { panic!("three cells") };
        assert!(matches!(standing(&record, uring, epoll), Some(Standing::Even(Some(_)))));
        assert!(matches!(standing(&record, poll, epoll), Some(Standing::Apart(ratio)) if ratio > 1.2));
    }
}
