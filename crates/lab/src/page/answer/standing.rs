//! Which of two programs is cheaper under one load, and how sure that is.
//!
//! Claims are based on paired runs where there are some. Two programs of a merged record may never have run
//! in the same block: then claims are based on their ratios to the baseline, never on their figures, which
//! depend on the hour and the machine. Intervals are used only for a record without runs. The parent module
//! writes the sentences. Start at [`standing`] and [`ranked`].

use super::super::figure::Figure;
use super::super::shape::Load;
use ringroad_measure::Level;
use ringroad_measure::caveat::REPEATS_MIN;
use ringroad_measure::compare::{Comparison, Finding};
use ringroad_measure::record::{Cell, Interval, Record, Run};

/// Comparison of two cells' CPU per request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Standing {
    /// No significant difference; the share is the smallest detectable difference. `None` for a cell and
    /// itself.
    Even(Option<f64>),
    /// A difference was found; the ratio, never 1.
    Apart(f64),
    /// Too few runs to tell noise from difference; the ratio, or `None` where nothing makes one: the two did
    /// not run side by side, and not both beside the baseline.
    Untold(Option<f64>),
}

/// Compares `cell` with `other`: block by block where both ran in blocks enough, else by their ratios to the
/// baseline. `None` if either has no CPU time.
pub(crate) fn standing(record: &Record, cell: &Cell, other: &Cell) -> Option<Standing> {
    let figures = Figure::Cpu.value(cell)? / Figure::Cpu.value(other)?;
    if std::ptr::eq(cell, other) {
        return Some(Standing::Even(None));
    }
    if !has_runs(cell) && !has_runs(other) {
        return Some(by_intervals(cell, other, figures));
    }
    let scale = Scale::of(record, &cell.load);
    let ratio = scale.ratio(cell, other);
    let control = control(record, &cell.load);
    let (theirs, mine) = paired(other, cell);
    let few = mine.len() < REPEATS_MIN as usize;
    let in_blocks = Comparison::of_blocks(&theirs, &mine, control);
    let apart = if few { over_baseline(record, cell, other, control) } else { None };
    let Some(comparison) = apart.or(in_blocks) else {
        return Some(Standing::Untold(ratio));
    };
    let (place, other_place) = (scale.place(cell), scale.place(other));
    Some(match comparison.finding {
        Finding::NoDifference { could_have_seen } => Standing::Even(Some(could_have_seen)),
        // If the runs contradict the figures that rank the two, neither is ahead.
        Finding::Slower { .. } if place > other_place => Standing::Apart(comparison.ratio.mid),
        Finding::Faster { .. } if place < other_place => Standing::Apart(comparison.ratio.mid),
        Finding::Slower { by, plus_minus } | Finding::Faster { by, plus_minus } => {
            Standing::Even(Some(by + plus_minus))
        }
        Finding::TooFewBlocks { .. } => Standing::Untold(ratio),
    })
}

/// Compares by intervals, for records without runs. This test is weaker: it misses differences that pairing
/// would find, but claims none that pairing would not.
fn by_intervals(cell: &Cell, other: &Cell, ratio: f64) -> Standing {
    match (Figure::Cpu.interval(cell), Figure::Cpu.interval(other)) {
        (Some(a), Some(b)) if a.low <= b.high && b.low <= a.high => {
            Standing::Even(Some((a.high / b.low - 1.0).abs().max((a.low / b.high - 1.0).abs())))
        }
        (Some(_), Some(_)) => Standing::Apart(ratio),
        _ => Standing::Untold(Some(ratio)),
    }
}

/// By which figure the cells of a load are ranked.
#[derive(Clone, Copy, Debug)]
enum Scale<'a> {
    /// All ran in the same blocks: by what they cost.
    Figures,
    /// They did not: by their ratios to this baseline, which were taken within blocks.
    Ratios(Option<&'a str>),
}

/// Where a cell stands: on the scale or behind all that are, then by cost.
type Place = (bool, f64);

impl<'a> Scale<'a> {
    fn of(record: &'a Record, load: &str) -> Self {
        let mut ran = record.cells.iter().filter(|cell| cell.load == load && usable(cell));
        let blocks = |cell: &'a Cell| cell.runs.iter().map(|run| run.block);
        match ran.next() {
            Some(first) if !ran.all(|cell| blocks(cell).eq(blocks(first))) => {
                Scale::Ratios(record.baseline.as_deref())
            }
            _ => Scale::Figures,
        }
    }

    fn cost(self, cell: &Cell) -> Option<f64> {
        match self {
            Scale::Figures => Figure::Cpu.value(cell),
            Scale::Ratios(baseline) if baseline == Some(cell.model.as_str()) => Some(1.0),
            Scale::Ratios(_) => Figure::Ratio.value(cell),
        }
    }

    fn ratio(self, cell: &Cell, other: &Cell) -> Option<f64> {
        Some(self.cost(cell)? / self.cost(other)?)
    }

    fn place(self, cell: &Cell) -> Place {
        let cost = self.cost(cell);
        (cost.is_none(), cost.or_else(|| Figure::Cpu.value(cell)).unwrap_or(f64::INFINITY))
    }
}

/// Returns the A/A interval of a load.
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

/// Returns the usable cells of a load from cheap to expensive, and how many of the first have no significant
/// difference to the cheapest.
pub(crate) fn ranked<'a>(record: &Record, load: &Load<'a>) -> (Vec<&'a Cell>, usize) {
    let mut cells: Vec<&Cell> =
        load.cells.iter().copied().filter(|cell| usable(cell) && Figure::Cpu.value(cell).is_some()).collect();
    let scale = Scale::of(record, load.name);
    cells.sort_by(|a, b| {
        let (a, b) = (scale.place(a), scale.place(b));
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
    });
    let even = cells
        .iter()
        .take_while(|cell| matches!(standing(record, cell, cells[0]), Some(Standing::Even(_))))
        .count();
    (cells, even)
}

/// Maximum detectable difference between programs that are called equally good. A tenth of the CPU is reason
/// enough to change the I/O model, and about the difference between most programs that the lab compares.
const HIDES_MAX: f64 = 0.10;

/// Returns the largest of the smallest detectable differences between the cheapest and those without a
/// significant difference to it; 0 if there are no others.
pub(crate) fn hidden(record: &Record, cheapest: &Cell, even: &[&Cell]) -> f64 {
    let hidden = even.iter().filter_map(|cell| match standing(record, cell, cheapest) {
        Some(Standing::Even(hidden)) => hidden,
        _ => None,
    });
    hidden.fold(0.0, f64::max)
}

/// Returns whether programs with this smallest detectable difference count as equally good.
pub(crate) fn alike(hidden: f64) -> bool {
    hidden <= HIDES_MAX
}

/// CPU per request in a run, if it is a number to divide by.
fn cpu(run: &Run) -> Option<f64> {
    Figure::Cpu.in_run(run).filter(|cpu| *cpu > 0.0)
}

fn has_runs(cell: &Cell) -> bool {
    cell.runs.iter().any(|run| cpu(run).is_some())
}

/// CPU per request of both in each block that both ran in.
fn paired(base: &Cell, cell: &Cell) -> (Vec<f64>, Vec<f64>) {
    let of_block = |run: &Run| {
        let twin = base.runs.iter().find(|twin| twin.block == run.block)?;
        Some((cpu(twin)?, cpu(run)?))
    };
    cell.runs.iter().filter_map(of_block).unzip()
}

/// Two that did not run side by side, each as ratios to the baseline in its own blocks; `None` where either
/// has too few. Nothing pairs those ratios, so they are compared as runs of two records are.
fn over_baseline(
    record: &Record,
    cell: &Cell,
    other: &Cell,
    control: Option<Interval>,
) -> Option<Comparison> {
    let is_base = |base: &&Cell| {
        base.load == cell.load && record.baseline.as_ref() == Some(&base.model) && usable(base)
    };
    let base = record.cells.iter().find(is_base)?;
    let ratios = |cell: &Cell| -> Vec<f64> {
        let (base, own) = paired(base, cell);
        own.iter().zip(&base).map(|(own, base)| own / base).collect()
    };
    let (theirs, mine) = (ratios(other), ratios(cell));
    let enough = mine.len().min(theirs.len()) >= REPEATS_MIN as usize;
    if enough { Comparison::of_runs(&theirs, &mine, control) } else { None }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::super::tests::with_cpu;
    use super::super::{Answer, shape};
    use super::*;
    use ringroad_measure::merge::merge;

    /// Returns a run of edge-triggered epoll and one other, and a run of epoll and a third an hour later,
    /// when everything took 30 % longer; the two others cost so many times what epoll does.
    fn of_two_hours(poll: f64, threads: f64) -> Record {
        let first = with_cpu(&[("epoll-et", 4.0, 0.002), ("poll", 4.0 * poll, 0.002)]);
        let second = with_cpu(&[("epoll-et", 5.2, 0.002), ("threads", 5.2 * threads, 0.002)]);
        merge(&[first, second]).unwrap()
    }

    fn cell<'a>(record: &'a Record, model: &str) -> &'a Cell {
        record.cells.iter().find(|cell| cell.model == model).unwrap()
    }

    fn between(record: &Record, model: &str, other: &str) -> Standing {
        standing(record, cell(record, model), cell(record, other)).unwrap()
    }

    fn ranks(record: &Record) -> Vec<String> {
        let loads = shape::loads(record);
        ranked(record, &loads[0]).0.iter().map(|cell| cell.model.clone()).collect()
    }

    #[test]
    fn a_slow_hour_is_no_difference_between_programs_that_never_ran_side_by_side() {
        let record = of_two_hours(1.2, 1.2);
        let told = between(&record, "threads", "poll");
        assert!(matches!(told, Standing::Even(Some(hides)) if hides < 0.05), "{told:?}");
    }

    #[test]
    fn programs_of_two_records_are_ranked_and_told_apart_by_their_ratios_to_the_baseline() {
        // In figures poll is the cheaper one by far: 4.8 µs in the good hour, against 5.98 µs.
        let record = of_two_hours(1.2, 1.15);
        assert_eq!(ranks(&record), ["epoll-et", "threads", "poll"]);
        let told = between(&record, "poll", "threads");
        assert!(matches!(told, Standing::Apart(ratio) if (ratio - 1.2 / 1.15).abs() < 0.005), "{told:?}");
        let told = between(&record, "threads", "poll");
        assert!(matches!(told, Standing::Apart(ratio) if (ratio - 1.15 / 1.2).abs() < 0.005), "{told:?}");
        assert!(matches!(between(&record, "poll", "epoll-et"), Standing::Apart(ratio) if ratio > 1.19));
    }

    #[test]
    fn a_difference_between_records_must_leave_the_noise_floor_too() {
        let mut record = of_two_hours(1.2, 1.15);
        record.control[0].ratio = Interval { low: 0.95, mid: 1.0, high: 1.06 };
        assert!(matches!(between(&record, "poll", "threads"), Standing::Even(Some(_))));
    }

    #[test]
    fn fewer_than_six_ratios_of_either_tell_nothing() {
        let first = with_cpu(&[("epoll-et", 4.0, 0.002), ("poll", 4.8, 0.002)]);
        let mut second = with_cpu(&[("epoll-et", 5.2, 0.002), ("threads", 6.5, 0.002)]);
        second.cells.iter_mut().for_each(|cell| cell.runs.truncate(5));
        let record = merge(&[first, second]).unwrap();
        let told = between(&record, "threads", "poll");
        assert!(
            matches!(told, Standing::Untold(Some(ratio)) if (ratio - 1.25 / 1.2).abs() < 0.01),
            "{told:?}"
        );
        let said = Answer::of(&record).ranking[0].clone();
        assert!(said.ends_with("there is too little data for a thread per connection."), "{said}");
    }

    #[test]
    fn without_a_baseline_that_both_ran_beside_nothing_is_claimed() {
        let mut first = with_cpu(&[("epoll-et", 4.0, 0.002), ("poll", 4.8, 0.002)]);
        let second = with_cpu(&[("threads", 8.0, 0.002)]);
        first.baseline = None;
        let record = merge(&[first, second]).unwrap();
        assert_eq!(between(&record, "threads", "poll"), Standing::Untold(None));
        let answer = Answer::of(&record);
        assert!(answer.lead.contains(", among programs that ran side by side."), "{}", answer.lead);
        assert_eq!(
            answer.ranking[0].replace('\u{a0}', " "),
            "poll cost 20 % more; a thread per connection did not run side by side with edge-triggered epoll."
        );
    }

    #[test]
    fn a_record_with_runs_and_one_without_are_not_held_against_each_other_by_intervals() {
        let first = with_cpu(&[("epoll-et", 4.0, 0.002)]);
        let mut second = with_cpu(&[("poll", 6.0, 0.002)]);
        second.cells[0].runs.clear();
        let record = merge(&[first, second]).unwrap();
        assert_eq!(between(&record, "poll", "epoll-et"), Standing::Untold(None));
    }

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
