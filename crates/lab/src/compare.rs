//! Compares two records: what became slower, what faster, and the smallest difference that would have been
//! detected.
//!
//! Cells are paired by name. The two records were not measured side by side, so every change of the machine
//! is in every difference. If both have the same baseline on the same machine, each cell is taken as a ratio
//! to the baseline of its own block, which cancels such changes. Start at [`compare`].

use crate::page::answer::{Doubt, Doubts};
use crate::table::{self, Paint, clean, wrapped};
use ringroad_measure::merge::other_machine;
use ringroad_measure::record::{Cell, Interval, Record, Run};
use ringroad_measure::units::Micros;
use ringroad_measure::{Comparison, Finding, Level, summary};
use std::fmt::Write;
use std::str::FromStr;

/// The compared figure. Of all three, less is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Measure {
    /// CPU time of the server per request.
    #[default]
    Cpu,
    /// The 99th percentile of the latency.
    P99,
    /// The time from one answer to the next: the reciprocal of the rate.
    Rate,
}

impl FromStr for Measure {
    type Err = String;

    fn from_str(name: &str) -> Result<Measure, String> {
        let known = [Measure::Cpu, Measure::P99, Measure::Rate];
        known.into_iter().find(|known| known.name() == name).ok_or("one of: cpu, p99, rate".to_owned())
    }
}

impl Measure {
    /// Returns the name that [`from_str`](Self::from_str) reads.
    fn name(self) -> &'static str {
        match self {
            Measure::Cpu => "cpu",
            Measure::P99 => "p99",
            Measure::Rate => "rate",
        }
    }

    /// Returns its title, for a heading.
    pub fn title(self) -> &'static str {
        match self {
            Measure::Cpu => "CPU per request",
            Measure::P99 => "99th percentile of the latency",
            Measure::Rate => "time per request at full load (the rate, turned over)",
        }
    }

    fn of(self, run: &Run) -> Option<f64> {
        match self {
            Measure::Cpu => run.cpu_us_per_request,
            Measure::P99 => run.p99_us,
            Measure::Rate => (run.rps > 0.0).then(|| 1e6 / run.rps),
        }
    }
}

/// The comparison of two records.
#[derive(Clone, Debug, PartialEq)]
pub struct Differences {
    /// What was compared.
    pub measure: Measure,
    /// The baseline of the ratios; `None` if absolute figures are compared.
    pub over: Option<String>,
    /// A fact in which the machines differ, if one does.
    pub other_machine: Option<&'static str>,
    /// The clients of the first record and of the second, if a cell of both had different ones.
    pub other_client: Option<(String, String)>,
    /// The cells of both records, in the order of the first one; then those of the second only.
    pub rows: Vec<Row>,
    /// Doubts about the compared figures: of the cells and of either run as a whole.
    doubts: Vec<Doubt>,
}

/// One cell in both.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// `model/load`.
    pub cell: String,
    /// The medians, microseconds.
    pub medians: Option<(f64, f64)>,
    /// Whether it was compared as a ratio to the baseline of its own block, not absolutely.
    pub as_ratio: bool,
    /// Whether the cell or its baseline is SUSPECT in either record.
    pub suspect: bool,
    /// The result.
    pub outcome: Outcome,
}

/// Result for a cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Second over first.
    Compared(Comparison),
    /// Not compared; the reason as a clause.
    Not(String),
    /// Not compared, because the cell or its baseline is INVALID in one of the records; the reason as a
    /// clause.
    Invalid(String),
}

/// Compares `second` against `first`. With `absolute`, absolute figures are compared even if both have a
/// baseline.
pub fn compare(first: &Record, second: &Record, measure: Measure, absolute: bool) -> Differences {
    let other_machine = other_machine(&first.host, &second.host);
    let over = first.baseline.clone().filter(|baseline| {
        !absolute && other_machine.is_none() && second.baseline.as_ref() == Some(baseline)
    });
    let mut rows: Vec<Row> = Vec::new();
    let mut other_client = None;
    let mut doubts = Doubts::default();
    // One baseline belongs to many rows.
    let mut doubted: Vec<&Cell> = Vec::new();
    for mine in &first.cells {
        let theirs = second.cells.iter().find(|cell| cell.id == mine.id);
        let clients =
            mine.details.client.clone().zip(theirs.and_then(|theirs| theirs.details.client.clone()));
        other_client = other_client.or_else(|| clients.filter(|(mine, theirs)| mine != theirs));
        let Some(theirs) = theirs else {
            rows.push(not(mine, "only in the first record"));
            continue;
        };
        let mut row = row((first, mine), (second, theirs), measure, over.as_deref());
        let both = [("first", first, mine), ("second", second, theirs)];
        let compared = matches!(row.outcome, Outcome::Compared(_));
        for (which, record, cell) in both.into_iter().filter(|_| compared) {
            let base = over.as_deref().and_then(|over| baseline_of(record, cell, over));
            for cell in [cell].into_iter().chain(base).filter(|cell| cell.verdict.level == Level::Suspect) {
                row.suspect = true;
                if !doubted.iter().any(|known| std::ptr::eq(*known, cell)) {
                    doubted.push(cell);
                    doubts.of_cell(&format!("{} in the {which} record", cell.id), cell);
                }
            }
        }
        rows.push(row);
    }
    doubts.of_run(Some("the first record as a whole"), first);
    doubts.of_run(Some("the second record as a whole"), second);
    let only_there = second.cells.iter().filter(|cell| !first.cells.iter().any(|mine| mine.id == cell.id));
    rows.extend(only_there.map(|cell| not(cell, "only in the second record")));
    Differences { measure, over, other_machine, other_client, rows, doubts: doubts.worst_first() }
}

fn not(cell: &Cell, why: impl Into<String>) -> Row {
    let outcome = Outcome::Not(why.into());
    Row { cell: cell.id.clone(), medians: None, as_ratio: false, suspect: false, outcome }
}

fn row(
    (first, mine): (&Record, &Cell),
    (second, theirs): (&Record, &Cell),
    measure: Measure,
    over: Option<&str>,
) -> Row {
    for (which, cell) in [("first", mine), ("second", theirs)] {
        if let Some(reason) = &cell.skipped {
            return not(mine, format!("it did not run in the {which} record: {reason}"));
        }
        if cell.verdict.level == Level::Invalid {
            let reason = cell.verdict.reasons.first().map(ToString::to_string).unwrap_or_default();
            let outcome = Outcome::Invalid(format!("it is INVALID in the {which} record: {reason}"));
            return Row { outcome, ..not(mine, "") };
        }
    }
    let load = |cell: &Cell| {
        let numbers = (cell.connections, cell.pipeline, cell.payload_bytes);
        (numbers, cell.variant.clone(), cell.protocol.clone(), cell.kind)
    };
    let same_rates = mine.active_share == theirs.active_share && mine.rate_target == theirs.rate_target;
    if load(mine) != load(theirs) || !same_rates {
        return not(mine, "the load of that name is another one in the second record");
    }
    if mine.details.turn_s != theirs.details.turn_s {
        return not(mine, "programs did not take the same turns in both records, and figures depend on that");
    }
    let figures = |cell: &Cell| cell.runs.iter().filter_map(|run| measure.of(run)).collect::<Vec<f64>>();
    let medians = summary::median(&figures(mine)).zip(summary::median(&figures(theirs)));
    // The baseline over itself is always 1, so it is compared absolutely.
    let over = over.filter(|over| mine.model != *over);
    for side in [("first", first), ("second", second)] {
        if let Some(outcome) = over.and_then(|over| unusable_baseline(side, mine, over)) {
            return Row { outcome, ..not(mine, "") };
        }
    }
    let (a, b) = match over {
        Some(over) => (ratios(first, mine, measure, over), ratios(second, theirs, measure, over)),
        None => (figures(mine), figures(theirs)),
    };
    let control =
        wider(control_of(first, mine), control_of(second, theirs)).filter(|_| measure == Measure::Cpu);
    match Comparison::of_runs(&a, &b, control) {
        Some(comparison) => Row {
            cell: mine.id.clone(),
            medians,
            as_ratio: over.is_some(),
            suspect: false,
            outcome: Outcome::Compared(comparison),
        },
        None => Row { medians, ..not(mine, unknown(mine, theirs, measure)) },
    }
}

/// Reports that a figure is unknown, and which ones are known: records of `load` have no CPU time of a
/// server.
fn unknown(mine: &Cell, theirs: &Cell, measure: Measure) -> String {
    let mut runs = mine.runs.iter().chain(&theirs.runs).peekable();
    let has_runs = runs.peek().is_some();
    let known = [Measure::Cpu, Measure::P99, Measure::Rate]
        .into_iter()
        .filter(|other| *other != measure && has_runs && runs.clone().all(|run| other.of(run).is_some()));
    let known: Vec<String> = known.map(|other| format!("--figure {}", other.name())).collect();
    let what = "the figure is not known for every run of both records";
    if known.is_empty() { what.to_owned() } else { format!("{what}; compare {}", known.join(" or ")) }
}

/// Returns the baseline's cell of a cell's load.
fn baseline_of<'a>(record: &'a Record, cell: &Cell, over: &str) -> Option<&'a Cell> {
    record.cells.iter().find(|base| base.model == over && base.load == cell.load)
}

/// Returns the outcome of a cell if the record named by `which` has no usable baseline for its load; `None`
/// if it has.
fn unusable_baseline((which, record): (&str, &Record), cell: &Cell, over: &str) -> Option<Outcome> {
    let (make, why): (fn(String) -> Outcome, _) = match baseline_of(record, cell, over) {
        None => (Outcome::Not, "is not"),
        Some(base) if base.skipped.is_some() => (Outcome::Not, "did not run"),
        Some(base) if base.verdict.level == Level::Invalid => (Outcome::Invalid, "is INVALID"),
        Some(_) => return None,
    };
    Some(make(format!(
        "its baseline {over} {why} in the {which} record; --absolute compares figures as they are"
    )))
}

/// Returns a cell's figures over those of the baseline in the same blocks.
fn ratios(record: &Record, cell: &Cell, measure: Measure, over: &str) -> Vec<f64> {
    let base = baseline_of(record, cell, over);
    let base = base.map(|base| base.runs.as_slice()).unwrap_or_default();
    let ratio = |run: &Run| {
        let base = base.iter().find(|base| base.block == run.block)?;
        measure.of(run).zip(measure.of(base)).map(|(figure, base)| figure / base)
    };
    cell.runs.iter().filter_map(ratio).collect()
}

fn control_of(record: &Record, cell: &Cell) -> Option<Interval> {
    record.control.iter().find(|control| control.load == cell.load).map(|control| control.ratio)
}

fn wider(one: Option<Interval>, other: Option<Interval>) -> Option<Interval> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if other.reach() > one.reach() { other } else { one }),
        (one, other) => one.or(other),
    }
}

/// Returns a finding on lines of its own to the right of its figures; below them if there is no room.
fn beside(row: &str, finding: &str, width: usize) -> String {
    let begin = row.lines().last().unwrap_or_default().chars().count();
    if begin + FINDING_MIN <= width {
        let lines = wrapped(finding, width - begin, "");
        let indent = " ".repeat(begin);
        let lines: Vec<String> = lines.lines().map(|line| format!("{indent}{line}\n")).collect();
        return format!("{row}{}", lines.concat().trim_start());
    }
    let lines = wrapped(finding, width - 4, "");
    let lines: Vec<String> = lines.lines().map(|line| format!("    {line}\n")).collect();
    format!("{}\n{}", row.trim_end(), lines.concat())
}

/// Minimum columns of a finding.
const FINDING_MIN: usize = 30;

/// Columns of the figures, with the mark behind them.
const FIGURES: usize = 26;

/// Indentation of figures on a line of their own.
const APART: usize = 2;

/// Below this width words are not indented.
const WIDTH_MIN: usize = 20;

impl Differences {
    /// Returns whether a cell was not compared because it, or its baseline, is INVALID in one of the records.
    pub fn is_invalid(&self) -> bool {
        self.rows.iter().any(|row| matches!(row.outcome, Outcome::Invalid(_)))
    }

    /// Returns whether no cell was compared.
    pub fn is_empty(&self) -> bool {
        !self.rows.iter().any(|row| matches!(row.outcome, Outcome::Compared(_)))
    }

    /// Formats it as text, with lines of at most `width` columns if words allow it. A row with a doubt is
    /// marked, and the doubts follow below, as in the table of a record.
    pub fn text(&self, width: usize) -> String {
        self.written(width, width)
    }

    /// Formats it as [`text`](Self::text) does, but with each row on one line, for programs that read lines.
    pub fn lines(&self, width: usize) -> String {
        self.written(width, usize::MAX)
    }

    fn written(&self, width: usize, row_width: usize) -> String {
        let (width, row_width) = (width.max(WIDTH_MIN), row_width.max(WIDTH_MIN));
        let mut out = String::new();
        let how = match &self.over {
            Some(over) => format!("each as a ratio to {over} in its own block, and {over} itself as it is"),
            None => "figures as they are".to_owned(),
        };
        out.push_str(&wrapped(
            &format!("{}, the second record against the first, {how}.", self.measure.title()),
            width,
            "",
        ));
        if let Some(fact) = self.other_machine {
            let note = format!("The machines differ ({fact}), so this also compares machines.");
            out.push_str(&wrapped(&note, width, ""));
        }
        if let Some((first, second)) = &self.other_client {
            let note = format!(
                "The loads came from different clients ({} and {}), which affects rates and latencies.",
                clean(first),
                clean(second)
            );
            out.push_str(&wrapped(&note, width, ""));
        }
        out.push('\n');
        let longest = self.rows.iter().map(|row| clean(&row.cell).chars().count()).max().unwrap_or(0);
        // A name is never broken, so that it can be copied. If it leaves no room, its figures are on a line
        // of their own.
        let is_apart = longest.saturating_add(FIGURES) > row_width;
        let name = if is_apart { APART } else { longest.max(4) };
        let _ = writeln!(out, "{:name$}  {:>10}  {:>10}", "", "first", "second");
        for row in &self.rows {
            let (first, second) = match row.medians {
                Some((first, second)) => (Micros(first).to_string(), Micros(second).to_string()),
                None => (String::new(), String::new()),
            };
            let said = match &row.outcome {
                // Among ratios, this one includes changes of the machine.
                Outcome::Compared(comparison) if self.over.is_some() && !row.as_ratio => {
                    format!("the baseline, as it is: {}", comparison.finding)
                }
                Outcome::Compared(comparison) => comparison.finding.to_string(),
                Outcome::Not(why) | Outcome::Invalid(why) => format!("not compared: {}", clean(why)),
            };
            let mark = table::flag(if row.suspect { Level::Suspect } else { Level::Valid });
            let cell = clean(&row.cell);
            let figures = format!("  {first:>10}  {second:>10} {mark:1} ");
            let row = match (is_apart, row.medians) {
                (true, Some(_)) => format!("{cell}\n{:name$}{figures}", ""),
                (true, None) => format!("{cell}\n    "),
                (false, _) => format!("{cell:name$}{figures}"),
            };
            out.push_str(&beside(&row, &said, row_width));
        }
        let is_short = |row: &Row| {
            matches!(
                &row.outcome,
                Outcome::Compared(Comparison { finding: Finding::TooFewBlocks { .. }, .. })
            )
        };
        if self.rows.iter().any(is_short) {
            let hint = "Six runs on each side are needed: --repeats 6 for the lab, --repeat 6 for load, or `lab merge` of \
                        several records.";
            out.push('\n');
            out.push_str(&wrapped(hint, width, ""));
        }
        if !self.doubts.is_empty() {
            out.push('\n');
            out.push_str(&table::doubted(&self.doubts, width, &Paint { color: false }));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::page::sample;

    /// Returns a record with cells that cost `factor` times the usual, but the baseline `mood` times, as
    /// everything does there.
    fn record(model: &str, factor: f64, mood: f64) -> Record {
        let mut record = sample::quick();
        record.control.clear();
        let baseline = record.baseline.clone().unwrap();
        for cell in &mut record.cells {
            cell.verdict = ringroad_measure::Verdict::valid();
            let extra = if cell.model == model { factor } else { 1.0 };
            assert!(cell.runs.len() >= 6 && cell.model.len() + baseline.len() > 0);
            for (nth, run) in cell.runs.iter_mut().enumerate() {
                // A little noise, which differs by cell and block.
                let noise = 1.0 + 0.001 * ((nth * 7 + cell.id.len() * 3) % 5) as f64;
                run.cpu_us_per_request = Some(4.0 * extra * mood * noise);
            }
        }
        record
    }

    fn outcome<'a>(differences: &'a Differences, cell: &str) -> &'a Finding {
        let row = differences.rows.iter().find(|row| row.cell.starts_with(cell)).unwrap();
        match &row.outcome {
            Outcome::Compared(comparison) => &comparison.finding,
            Outcome::Not(why) | Outcome::Invalid(why) => panic!("{cell}: {why}"),
        }
    }

    #[test]
    fn a_program_that_became_slower_is_found_and_the_others_are_not() {
        let (old, new) = (record("poll", 1.0, 1.0), record("poll", 1.05, 1.0));
        let differences = compare(&old, &new, Measure::Cpu, false);
        assert!(
            matches!(outcome(&differences, "poll/"), Finding::Slower { by, .. } if (by - 0.05).abs() < 0.01)
        );
        assert!(matches!(outcome(&differences, "uring/"), Finding::NoDifference { .. }));
        assert!(differences.text(100).contains("slower by 5."), "{}", differences.text(100));
        let back = compare(&new, &old, Measure::Cpu, false);
        assert!(matches!(outcome(&back, "poll/"), Finding::Faster { .. }));
    }

    #[test]
    fn a_machine_in_another_mood_is_no_difference_unless_asked_for() {
        let (old, new) = (record("", 1.0, 1.0), record("", 1.0, 1.1));
        let differences = compare(&old, &new, Measure::Cpu, false);
        assert!(matches!(outcome(&differences, "poll/"), Finding::NoDifference { .. }));
        let absolute = compare(&old, &new, Measure::Cpu, true);
        assert_eq!(absolute.over, None);
        assert!(matches!(outcome(&absolute, "poll/"), Finding::Slower { by, .. } if (by - 0.1).abs() < 0.01));
    }

    #[test]
    fn over_a_baseline_that_is_invalid_nothing_is_claimed() {
        let (old, mut new) = (record("", 1.0, 1.0), record("", 1.0, 1.0));
        let base = new.cells.iter_mut().find(|cell| cell.id == "epoll-et/http-64").unwrap();
        base.verdict = ringroad_measure::Verdict::of([ringroad_measure::Caveat::NothingMeasured]);
        base.runs.iter_mut().for_each(|run| run.cpu_us_per_request = Some(2.0));
        let why = |differences: &Differences| match &differences
            .rows
            .iter()
            .find(|r| r.cell == "poll/http-64")
            .unwrap()
            .outcome
        {
            Outcome::Not(why) | Outcome::Invalid(why) => why.clone(),
            Outcome::Compared(comparison) => panic!("{comparison:?}"),
        };
        let differences = compare(&old, &new, Measure::Cpu, false);
        let said = why(&differences);
        assert!(said.contains("its baseline epoll-et is INVALID in the second record"), "{said}");
        assert!(differences.is_invalid() && !compare(&old, &old, Measure::Cpu, false).is_invalid());
        assert!(why(&compare(&new, &old, Measure::Cpu, false)).contains("in the first record"));
        assert!(matches!(
            outcome(&compare(&old, &new, Measure::Cpu, false), "poll/echo"),
            Finding::NoDifference { .. }
        ));
        assert!(matches!(
            outcome(&compare(&old, &new, Measure::Cpu, true), "poll/http"),
            Finding::NoDifference { .. }
        ));
        new.cells.retain(|cell| cell.id != "epoll-et/http-64");
        assert!(why(&compare(&old, &new, Measure::Cpu, false)).contains("is not in the second record"));
    }

    fn suspect(record: &mut Record, id: &str, share: f64) {
        let cell = record.cells.iter_mut().find(|cell| cell.id == id).unwrap();
        cell.verdict = ringroad_measure::Verdict::of([ringroad_measure::Caveat::Steal { share }]);
        assert_eq!(cell.verdict.level, Level::Suspect);
        sample::judge(record);
    }

    /// Returns the row of a cell, and what is said below all rows, each in one line.
    fn row_and_doubts(differences: &Differences, cell: &str) -> (String, String) {
        // So wide that a row is one line.
        let text = differences.text(300);
        let row = text.lines().find(|line| line.starts_with(&format!("{cell} "))).unwrap();
        let below = text.rsplit_once("\n\n").map_or("", |(_, below)| below);
        (row.to_owned(), below.replace("\n  ", " "))
    }

    #[test]
    fn a_finding_fits_beside_or_below_its_figures() {
        let (old, mut new) = (record("", 1.0, 1.0), record("", 1.0, 1.0));
        new.cells[0].verdict = ringroad_measure::Verdict::of([ringroad_measure::Caveat::NothingMeasured]);
        let differences = compare(&old, &new, Measure::Cpu, false);
        for width in [30, 40, 50, 80, 100] {
            let text = differences.text(width);
            let long: Vec<&str> = text.lines().filter(|line| line.chars().count() > width).collect();
            assert_eq!(long, Vec::<&str>::new(), "{width}");
            let one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(one_line.contains("no significant difference (smallest detectable: "), "{text}");
        }
        let whole = differences.lines(50);
        let row = whole.lines().find(|line| line.starts_with("poll/http-64 ")).unwrap();
        assert!(row.contains(" µs  ") && row.contains("no significant difference (smallest"), "{row}");
    }

    #[test]
    fn a_name_that_leaves_no_room_for_its_figures_has_a_line_of_its_own() {
        let (mut old, mut new) = (record("", 1.0, 1.0), record("", 1.0, 1.0));
        let url = "load/http://127.0.0.1:8080/a/rather/long/path";
        for record in [&mut old, &mut new] {
            record.cells.truncate(2);
            record.cells[0].id = url.to_owned();
        }
        new.cells[1].verdict = ringroad_measure::Verdict::of([ringroad_measure::Caveat::NothingMeasured]);
        let differences = compare(&old, &new, Measure::Cpu, true);
        let row = |width: usize| {
            let text = differences.text(width);
            let lines: Vec<String> = text.lines().map(str::to_owned).collect();
            let at = lines.iter().position(|line| line.starts_with(url)).unwrap();
            let head = lines.iter().position(|line| line.ends_with("  second")).unwrap();
            let long = lines.iter().find(|line| line.chars().count() > width && *line != url);
            assert_eq!(long, None, "{width}");
            (lines[head].clone(), lines[at..].to_vec())
        };
        let (head, narrow) = row(40);
        assert_eq!(narrow[0], url);
        assert_eq!(head.chars().count(), narrow[1].chars().count(), "{narrow:?}");
        assert!(narrow[1].ends_with(" µs") && narrow[2].starts_with("    no significant"), "{narrow:?}");
        let id = &old.cells[1].id;
        let other = narrow.iter().position(|line| line == id).unwrap();
        assert!(narrow[other + 1].starts_with("    not compared: it is INVALID"), "{narrow:?}");
        // With room, the finding is beside its figures, and with more everything is in one line.
        assert!(row(64).1[1].contains(" µs   no significant"), "{:?}", row(64));
        assert!(row(120).1[0].contains(" µs   no significant"), "{:?}", row(120));
    }

    #[test]
    fn where_a_figure_is_not_known_those_that_are_known_are_named() {
        let (mut old, new) = (record("", 1.0, 1.0), record("", 1.0, 1.0));
        let why = |old: &Record, measure: Measure| match &compare(old, &new, measure, true).rows[0].outcome {
            Outcome::Not(why) => why.clone(),
            other => panic!("{other:?}"),
        };
        old.cells[0].runs.iter_mut().for_each(|run| run.cpu_us_per_request = None);
        let said = why(&old, Measure::Cpu);
        assert!(said.ends_with("of both records; compare --figure p99 or --figure rate"), "{said}");
        old.cells[0].runs.iter_mut().for_each(|run| (run.p99_us, run.rps) = (None, 0.0));
        assert!(why(&old, Measure::P99).ends_with("for every run of both records"));
    }

    #[test]
    fn with_too_few_runs_the_way_to_more_is_printed() {
        let (mut old, new) = (record("", 1.0, 1.0), record("", 1.0, 1.0));
        assert!(!compare(&old, &new, Measure::Cpu, true).text(80).contains("Six runs"));
        old.cells.iter_mut().for_each(|cell| cell.runs.truncate(1));
        let text = compare(&old, &new, Measure::Cpu, true).text(80);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            text.contains("not enough data: 1 block, 6 needed") && text.contains("--repeat 6 for load"),
            "{text}"
        );
    }

    #[test]
    fn a_doubt_of_either_record_is_a_mark_at_the_row_and_a_sentence_below() {
        let (mut old, mut new) = (record("", 1.0, 1.0), record("", 1.0, 1.0));
        suspect(&mut old, "poll/http-64", 0.04);
        suspect(&mut new, "uring/http-64", 0.07);
        for absolute in [false, true] {
            let differences = compare(&old, &new, Measure::Cpu, absolute);
            for (cell, marked) in [("poll/http-64", true), ("uring/http-64", true), ("select/http-64", false)]
            {
                let (row, below) = row_and_doubts(&differences, cell);
                assert_eq!(row.contains(" ? no significant"), marked, "{row}");
                assert!(
                    below.starts_with("? poll/http-64 in the first record (and 1 more like it): "),
                    "{below}"
                );
                assert!(below.contains("4.0 %"), "{below}");
            }
        }
        let certain = compare(&record("", 1.0, 1.0), &record("", 1.0, 1.0), Measure::Cpu, false).text(100);
        assert!(!certain.contains('?'), "{certain}");
    }

    #[test]
    fn a_doubt_of_the_baseline_is_one_of_every_ratio_to_it() {
        let (old, mut new) = (record("", 1.0, 1.0), record("", 1.0, 1.0));
        suspect(&mut new, "epoll-et/http-64", 0.04);
        let differences = compare(&old, &new, Measure::Cpu, false);
        for row in &differences.rows {
            assert_eq!(row.suspect, row.cell.ends_with("/http-64"), "{}", row.cell);
        }
        let (row, below) = row_and_doubts(&differences, "poll/http-64");
        assert!(row.contains(" ? "), "{row}");
        assert!(below.starts_with("? epoll-et/http-64 in the second record: "), "{below}");
        // As they are, only the baseline's own figures are in doubt.
        let absolute = compare(&old, &new, Measure::Cpu, true);
        let marked: Vec<&str> =
            absolute.rows.iter().filter(|row| row.suspect).map(|row| row.cell.as_str()).collect();
        assert_eq!(marked, ["epoll-et/http-64"]);
    }

    #[test]
    fn a_doubt_of_what_is_not_compared_is_no_doubt_of_the_rest() {
        let (mut old, mut new) = (record("", 1.0, 1.0), record("", 1.0, 1.0));
        suspect(&mut old, "poll/http-64", 0.04);
        new.cells.retain(|cell| cell.id != "poll/http-64");
        assert!(!compare(&old, &new, Measure::Cpu, false).text(100).contains('?'));
        new.verdict.add(ringroad_measure::Caveat::HarnessBusy { share: 0.3 });
        let text = compare(&old, &new, Measure::Cpu, false).text(5);
        assert!(text.replace("\n  ", " ").contains("? the second record as a whole: "), "{text}");
    }

    #[test]
    fn the_baseline_among_ratios_says_that_it_is_none() {
        let (old, new) = (record("", 1.0, 1.0), record("", 1.0, 1.1));
        let differences = compare(&old, &new, Measure::Cpu, false);
        let (row, _) = row_and_doubts(&differences, "epoll-et/http-64");
        assert!(row.contains("the baseline, as it is: slower by 10"), "{row}");
        let (row, _) = row_and_doubts(&differences, "poll/http-64");
        assert!(row.contains("smallest detectable: ") && !row.contains("as it is"), "{row}");
        let heading = differences.text(100).replace('\n', " ");
        assert!(
            heading.contains("as a ratio to epoll-et in its own block, and epoll-et itself as it is."),
            "{heading}"
        );
        let (row, _) = row_and_doubts(&compare(&old, &new, Measure::Cpu, true), "epoll-et/http-64");
        assert!(!row.contains("the baseline"), "{row}");
    }

    #[test]
    fn another_client_is_said() {
        let (mut old, mut new) = (record("", 1.0, 1.0), record("", 1.0, 1.0));
        old.cells[0].details.client = Some("load, io_uring".to_owned());
        assert_eq!(compare(&old, &new, Measure::Rate, false).other_client, None, "of one it is not known");
        new.cells[0].details.client = Some("small, epoll".to_owned());
        let differences = compare(&old, &new, Measure::Rate, false);
        let text = differences.text(100).replace("\n", " ");
        assert!(text.contains("different clients (load, io_uring and small, epoll)"), "{text}");
        new.cells[0].details.client = old.cells[0].details.client.clone();
        assert_eq!(compare(&old, &new, Measure::Rate, false).other_client, None);
    }

    #[test]
    fn what_cannot_be_compared_is_a_row_that_says_why() {
        let (mut old, mut new) = (record("", 1.0, 1.0), record("", 1.0, 1.0));
        old.cells[0].skipped = Some("not installed".to_owned());
        old.cells[1].verdict = ringroad_measure::Verdict::of([ringroad_measure::Caveat::NothingMeasured]);
        new.cells[2].connections += 1;
        new.cells[4].details.turn_s = Some(0.02);
        let gone = new.cells.remove(3);
        let mut extra = gone.clone();
        extra.id = "mine/http-64".to_owned();
        new.cells.push(extra);
        let differences = compare(&old, &new, Measure::Cpu, false);
        let text = differences.text(100);
        for words in [
            "not installed",
            "INVALID in the first",
            "another one",
            "the same turns",
            "only in the first",
            "only in the second",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert_eq!(differences.rows.len(), old.cells.len() + 1);
    }

    #[test]
    fn records_of_two_machines_are_compared_as_they_are_and_it_says_so() {
        let (old, mut new) = (record("", 1.0, 1.0), record("", 1.0, 1.2));
        new.host.insert("kernel".to_owned(), "7.0".into());
        let differences = compare(&old, &new, Measure::Cpu, false);
        assert_eq!((differences.over.as_deref(), differences.other_machine), (None, Some("kernel")));
        assert!(matches!(outcome(&differences, "poll/"), Finding::Slower { .. }));
        assert!(differences.text(100).contains("The machines differ (kernel)"));
    }

    #[test]
    fn the_control_of_either_record_bounds_what_is_claimed() {
        let (mut old, new) = (record("poll", 1.0, 1.0), record("poll", 1.03, 1.0));
        let load = old.cells.iter().find(|cell| cell.model == "poll").unwrap().load.clone();
        let ratio = Interval { low: 0.94, mid: 1.0, high: 1.06 };
        old.control.push(ringroad_measure::record::Control { load, ratio });
        let differences = compare(&old, &new, Measure::Cpu, false);
        assert!(matches!(outcome(&differences, "poll/"), Finding::NoDifference { .. }));
    }

    #[test]
    fn rate_and_tail_are_compared_too_and_less_is_better_of_both() {
        let (old, mut new) = (record("", 1.0, 1.0), record("", 1.0, 1.0));
        for run in new.cells.iter_mut().flat_map(|cell| &mut cell.runs) {
            run.rps *= 0.9;
            run.p99_us = run.p99_us.map(|p99| p99 * 0.8);
        }
        let rate = compare(&old, &new, Measure::Rate, true);
        assert!(matches!(outcome(&rate, "poll/"), Finding::Slower { .. }));
        let p99 = compare(&old, &new, Measure::P99, true);
        assert!(matches!(outcome(&p99, "poll/"), Finding::Faster { .. }));
    }
}
