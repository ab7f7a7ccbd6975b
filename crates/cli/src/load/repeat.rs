//! `--repeat` and `--vs`: the same load several times, and two URLs in turns, with the statistics of the lab.
//!
//! In each block every URL is loaded once, in random order, so that a temporary disturbance of the machine
//! affects both. Figures are divided within a block, and the median of the ratios is reported with its 95 %
//! interval ([`ringroad_measure::Comparison`]). Start at [`run`].

use super::processes;
use crate::terminal::shortened;
use ringroad_engine::choose::Choice;
use ringroad_load::report::{Frame, record};
use ringroad_load::require::Requirement;
use ringroad_load::{Error, Event, Outcome, Plan, Point};
use ringroad_measure::caveat::{Caveat, Level};
use ringroad_measure::merge::merge;
use ringroad_measure::record::{Cell, Interval, Record, Run};
use ringroad_measure::units::{Apart, Micros, PerSecond, Share, counted};
use ringroad_measure::{Comparison, Finding, Verdict, summary};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Default number of blocks of a comparison.
pub(super) const BLOCKS: u32 = 10;

/// The letters of the two URLs.
const NAMES: [&str; 2] = ["A", "B"];

/// The result of all runs.
pub(super) struct Repeated {
    pub(super) record: Record,
    pub(super) text: String,
    /// Requirements that a run did not meet.
    pub(super) unmet: Vec<String>,
    pub(super) interrupted: bool,
    /// The seconds of all runs, one after the other.
    pub(super) series: Vec<Point>,
}

/// An event of a run while others follow.
pub(super) enum Told<'a> {
    Event(&'a Event<'a>),
    /// A run has ended: its summary line.
    Run(String),
}

/// Loads each of the one or two plans once in each block.
pub(super) fn run(
    plans: &[Plan],
    blocks: u32,
    required: &[Requirement],
    (choice, stop, frame): (&Choice, &Arc<AtomicBool>, &Frame),
    tell: &mut dyn FnMut(Told<'_>),
) -> Result<Repeated, Error> {
    let mut records: Vec<Vec<Record>> = vec![Vec::new(); plans.len()];
    let (mut unmet, mut series) = (Vec::new(), Vec::new());
    let begun = Instant::now();
    let mut random = fastrand::Rng::with_seed(plans.first().map_or(0, |plan| plan.seed));
    'blocks: for block in 0..blocks {
        let mut order: Vec<usize> = (0..plans.len()).collect();
        random.shuffle(&mut order);
        for (place, nth) in order.into_iter().enumerate() {
            let Some(plan) = plans.get(nth) else { continue };
            let at_s = begun.elapsed().as_secs_f64();
            let outcome = processes::run(plan, choice, stop, &mut |event| tell(Told::Event(event)))?;
            if stop.load(Ordering::Relaxed) {
                break 'blocks;
            }
            let mut one = record(plan, &outcome, frame);
            for run in one.cells.iter_mut().flat_map(|cell| &mut cell.runs) {
                // Merging continues the numbers of the blocks.
                (run.block, run.order, run.at_s) = (0, place as u32, at_s);
            }
            tell(Told::Run(line(plans.len() > 1, (block + 1, blocks), nth, &outcome, &one)));
            unmet.extend(required.iter().filter_map(|required| required.unmet(&outcome)));
            let offset = series.last().map_or(0, |last: &Point| last.at_s + last.seconds);
            series.extend(outcome.series.iter().map(|point| Point { at_s: point.at_s + offset, ..*point }));
            records.get_mut(nth).into_iter().for_each(|all| all.push(one.clone()));
        }
    }
    let interrupted = stop.load(Ordering::Relaxed);
    // Only whole blocks can be compared.
    let whole = records.iter().map(Vec::len).min().unwrap_or(0);
    if whole == 0 {
        return Err(Error::interrupted("the load was stopped before its first block was over"));
    }
    records.iter_mut().for_each(|all| all.truncate(whole));
    let record = whole_record(plans, &records, interrupted)?;
    let text = text(plans, &record, whole, blocks);
    unmet.dedup();
    Ok(Repeated { record, text, unmet, interrupted, series })
}

/// Makes one record of all runs: a cell for each plan.
fn whole_record(plans: &[Plan], records: &[Vec<Record>], interrupted: bool) -> Result<Record, Error> {
    let mut all: Option<Record> = None;
    for of_plan in records {
        let mut one = merge(of_plan).map_err(|why| Error::stopped(why.to_string()))?;
        // A merged verdict counts the runs of each part; here there is one part.
        one.verdict = once(of_plan.iter().map(|record| &record.verdict));
        one.blocks = of_plan.len() as u32;
        for cell in &mut one.cells {
            cell.verdict = one.verdict.clone();
        }
        match &mut all {
            None => all = Some(one),
            Some(all) => {
                for mut cell in one.cells {
                    // The same URL twice makes two cells.
                    if all.cells.iter().any(|known| known.id == cell.id) {
                        cell.model += " (B)";
                        cell.id = format!("{}/{}", cell.model, cell.load);
                    }
                    all.cells.push(cell);
                }
            }
        }
    }
    let mut all = all.ok_or_else(|| Error::stopped("nothing was loaded"))?;
    all.verdict = once(records.iter().flatten().map(|record| &record.verdict));
    all.baseline = (plans.len() > 1).then(|| all.cells.first().map(|cell| cell.model.clone())).flatten();
    if interrupted {
        let stopped = "the load was stopped before its last block: fewer runs make wider intervals.";
        all.verdict.add(Caveat::Other(stopped.to_owned()));
    }
    Ok(all)
}

/// Returns the verdict of several runs: each reason once, in the words of the first run that has it, and the
/// number of runs with it. Reasons of one kind differ only in their numbers.
fn once<'a>(verdicts: impl Iterator<Item = &'a Verdict>) -> Verdict {
    let kind = |sentence: &str| sentence.split(|c: char| c.is_ascii_digit()).collect::<String>();
    let (mut found, mut runs, mut level): (Vec<(String, Caveat, u32)>, _, _) = (Vec::new(), 0, Level::Valid);
    for verdict in verdicts {
        runs += 1;
        level = level.max(verdict.level);
        for reason in &verdict.reasons {
            let kind = kind(&reason.to_string());
            match found.iter_mut().find(|(known, ..)| *known == kind) {
                Some((.., count)) => *count += 1,
                None => found.push((kind, reason.clone(), 1)),
            }
        }
    }
    let reasons = found.into_iter().map(|(_, reason, count)| match count {
        _ if runs == 1 => reason,
        1 => Caveat::Other(format!("in one of {runs} runs: {reason}")),
        count if count == runs => Caveat::Other(format!("in all {runs} runs, here of the first: {reason}")),
        count => Caveat::Other(format!("in {count} of {runs} runs, here of the first of them: {reason}")),
    });
    Verdict { level, reasons: reasons.collect() }
}

/// Formats a run as one line.
fn line(named: bool, (block, blocks): (u32, u32), nth: usize, outcome: &Outcome, record: &Record) -> String {
    let name = if named { NAMES.get(nth).copied().unwrap_or_default() } else { "" };
    let rate = PerSecond::of(outcome.tally.completed, outcome.window).unwrap_or(PerSecond(0.0));
    let of = |figure: fn(&Run) -> Option<f64>| {
        let run = record.cells.first().and_then(|cell| cell.runs.first());
        run.and_then(figure).map_or("-".to_owned(), |us| Micros(us).to_string())
    };
    let (p50, p99) = (of(|run| run.p50_us), of(|run| run.p99_us));
    let level = match record.verdict.level {
        Level::Valid => String::new(),
        other => format!("  {other}"),
    };
    format!("{block:>3} of {blocks} {name:1} {:>10}  p50 {p50:>8}  p99 {p99:>8}{level}", rate.to_string())
}

/// A figure to compare, of which less is better.
struct Figure {
    name: &'static str,
    of: fn(&Run) -> Option<f64>,
    /// Formats the figure.
    shown: fn(f64) -> String,
    /// Whether the reciprocal is shown, of which more is better.
    turned: bool,
}

const FIGURES: [Figure; 3] = [
    Figure {
        name: "requests/s",
        of: |run| (run.rps > 0.0).then(|| 1.0 / run.rps),
        shown: |seconds| PerSecond(1.0 / seconds).to_string(),
        turned: true,
    },
    Figure { name: "p50", of: |run| run.p50_us, shown: |us| Micros(us).to_string(), turned: false },
    Figure { name: "p99", of: |run| run.p99_us, shown: |us| Micros(us).to_string(), turned: false },
];

fn figures(cell: &Cell, figure: &Figure) -> Vec<f64> {
    cell.runs.iter().filter_map(figure.of).collect()
}

/// Returns the summary.
fn text(plans: &[Plan], record: &Record, whole: usize, wanted: u32) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_all(&mut out, plans, record, whole, wanted);
    out
}

fn write_all(
    out: &mut String,
    plans: &[Plan],
    record: &Record,
    whole: usize,
    wanted: u32,
) -> std::fmt::Result {
    let seconds = plans.first().and_then(|plan| plan.duration).map(|length| length.as_secs_f64());
    let each = seconds.map_or(String::new(), |seconds| format!(" of {seconds} s"));
    match (plans, record.cells.as_slice()) {
        ([one], [cell]) => {
            let target = shortened(&one.target.to_string());
            writeln!(out, "{target}\n  {whole} of {}{each}\n", counted(wanted.into(), "run"))?;
            writeln!(out, "  {:<12}{:>12}  95 % interval", "", "median")?;
            for figure in &FIGURES {
                let all = figures(cell, figure);
                let Some(interval) = summary::median_interval(&all).filter(|_| all.len() > 1) else {
                    let one = all.first().map_or("-".to_owned(), |one| (figure.shown)(*one));
                    writeln!(out, "  {:<12}{one:>12}  one run has none", figure.name)?;
                    continue;
                };
                let (low, high) = (interval.low.min(interval.high), interval.high.max(interval.low));
                let (low, high) = if figure.turned { (high, low) } else { (low, high) };
                let (low, high) = ((figure.shown)(low), (figure.shown)(high));
                writeln!(out, "  {:<12}{:>12}  {low} to {high}", figure.name, (figure.shown)(interval.mid))?;
            }
        }
        ([first, second], [a, b]) => {
            let shown = |plan: &Plan| shortened(&plan.target.to_string());
            writeln!(out, "A  {}\nB  {}", shown(first), shown(second))?;
            writeln!(
                out,
                "   {whole} of {}, each with a run{each} of A and of B in random order\n",
                counted(wanted.into(), "block")
            )?;
            writeln!(out, "  {:<12}{:>12}{:>12}  B/A, 95 % interval", "median", "A", "B")?;
            for figure in &FIGURES {
                let (a, b) = (figures(a, figure), figures(b, figure));
                let shown = |all: &[f64]| summary::median(all).map_or("-".to_owned(), figure.shown);
                write!(out, "  {:<12}{:>12}{:>12}  ", figure.name, shown(&a), shown(&b))?;
                match Comparison::of_blocks(&a, &b, None) {
                    Some(Comparison { ratio, finding }) => {
                        let turn = |ratio: f64| if figure.turned { 1.0 / ratio } else { ratio };
                        let (low, high) = (turn(ratio.low), turn(ratio.high));
                        let (low, high) = (low.min(high), low.max(high));
                        let shown = Interval { low, mid: turn(ratio.mid), high };
                        writeln!(
                            out,
                            "{:.3} ({low:.3} to {high:.3})  {}",
                            shown.mid,
                            found(&finding, shown, figure.turned)
                        )?;
                    }
                    None => writeln!(out, "not measured in every run")?,
                }
            }
        }
        _ => {}
    }
    writeln!(out, "\n{}", record.verdict.level)?;
    record.verdict.reasons.iter().try_for_each(|reason| writeln!(out, "  {reason}"))
}

/// Formats the claim about B. `ratio` is the figure of B over that of A; `turned` means that more is better.
/// The interval of a median is not symmetric, so both of its ends are printed.
fn found(finding: &Finding, ratio: Interval, turned: bool) -> String {
    match finding {
        Finding::Slower { .. } | Finding::Faster { .. } => {
            let word = match (turned, ratio.mid > 1.0) {
                (true, true) => "higher",
                (true, false) => "lower",
                (false, true) => "slower",
                (false, false) => "faster",
            };
            format!("B {word} by {}", Apart(ratio.mid).within(ratio.low, ratio.high))
        }
        Finding::NoDifference { could_have_seen } => {
            format!("no significant difference (smallest detectable: {})", Share(*could_have_seen))
        }
        Finding::TooFewBlocks { blocks, wanted } => {
            format!("not enough data: {}, {wanted} needed", counted((*blocks).into(), "block"))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ringroad_load::{Message, Tally};
    use std::time::Duration;

    fn plan(path: &str) -> Plan {
        let target = format!("http://127.0.0.1:9{path}").parse().unwrap();
        Plan::new(target, vec![Message::echo(b"x".to_vec()).unwrap()])
    }

    /// Returns a run of a second with so many answers, each as long as that makes it.
    fn one(plan: &Plan, completed: u64, block: u32) -> Record {
        let mut tally = Tally::new(false);
        // No two runs are alike.
        tally.completed = completed + u64::from(block % 3);
        tally.latencies.response.record_n(10_000_000_000 / completed, tally.completed);
        let outcome = Outcome {
            connected: 10,
            served: 10,
            tally,
            window: Duration::from_secs(1),
            ..Outcome::default()
        };
        let frame = Frame {
            command: Vec::new(),
            started: String::new(),
            host: serde_json::Map::new(),
            driver: "epoll".to_owned(),
        };
        let mut record = record(plan, &outcome, &frame);
        record.cells[0].runs[0].at_s = f64::from(block);
        record
    }

    fn of(plans: &[Plan], rates: &[u64], blocks: u32) -> (Record, String) {
        let runs = |(plan, rate): (&Plan, &u64)| (0..blocks).map(|block| one(plan, *rate, block)).collect();
        let records: Vec<Vec<Record>> = plans.iter().zip(rates).map(runs).collect();
        let record = whole_record(plans, &records, false).unwrap();
        let text = text(plans, &record, blocks as usize, blocks);
        (record, text)
    }

    #[test]
    fn two_urls_are_compared_block_by_block() {
        let (record, text) = of(&[plan("/a"), plan("/b")], &[10_000, 8_000], 8);
        assert_eq!((record.blocks, record.cells.len(), record.cells[1].runs.len()), (8, 2, 8));
        assert_eq!(record.baseline.as_deref(), Some("http://127.0.0.1:9/a"));
        assert!(text.contains("0.800 (0.800 to 0.800)  B lower by 20.0 % (20.0 % to 20.0 %)"), "{text}");
        assert!(text.contains("8 of 8 blocks, each with a run of 10 s of A and of B"), "{text}");
        let (record, text) = of(&[plan("/a"), plan("/a")], &[10_000, 10_000], 8);
        assert!(text.contains("no significant difference (smallest detectable: 1.0 %)"), "{text}");
        assert_ne!(record.cells[0].id, record.cells[1].id);
        let (_, text) = of(&[plan("/a"), plan("/b")], &[10_000, 8_000], 3);
        assert!(text.contains("not enough data: 3 blocks, 6 needed"), "{text}");
    }

    #[test]
    fn both_ends_of_an_interval_are_printed() {
        let slower = Finding::Slower { by: 0.05, plus_minus: 0.03 };
        let ratio = Interval { low: 1.04, mid: 1.05, high: 1.10 };
        assert_eq!(found(&slower, ratio, false), "B slower by 5.0 % (4.0 % to 10.0 %)");
        let faster = Finding::Faster { by: 0.05, plus_minus: 0.03 };
        let ratio = Interval { low: 0.90, mid: 0.95, high: 0.96 };
        assert_eq!(found(&faster, ratio, false), "B faster by 5.0 % (4.0 % to 10.0 %)");
    }

    #[test]
    fn figures_that_are_far_apart_have_a_factor_between_them() {
        let slower = Finding::Slower { by: 1261.98, plus_minus: 40.0 };
        let ratio = Interval { low: 1204.2, mid: 1262.98, high: 1300.9 };
        assert_eq!(found(&slower, ratio, false), "B slower by a factor of 1263 (1204 to 1301)");
        let ratio = Interval { low: 0.1, mid: 0.125, high: 0.2 };
        assert_eq!(found(&slower, ratio, true), "B lower by a factor of 8.00 (5.00 to 10.00)");
    }

    #[test]
    fn a_reason_that_several_runs_have_is_printed_once_with_their_number() {
        let busy = |client_share| Verdict::of([Caveat::ClientBusy { client_share }]);
        let runs = [busy(0.96), Verdict::valid(), busy(0.97)];
        let verdict = once(runs.iter());
        assert_eq!((verdict.level, verdict.reasons.len()), (Level::Suspect, 1), "{verdict}");
        let said = verdict.reasons[0].to_string();
        assert!(
            said.starts_with("in 2 of 3 runs, here of the first of them: the client used 96.0 %"),
            "{said}"
        );
        assert!(once(runs.iter().take(2)).to_string().contains("in one of 2 runs: "));
        assert_eq!(once(runs.iter().take(1)), runs[0]);
    }

    #[test]
    fn one_url_has_its_medians_with_intervals() {
        let (record, text) = of(&[plan("/a")], &[10_000], 7);
        assert_eq!((record.cells.len(), record.cells[0].runs.len(), record.baseline), (1, 7, None));
        assert!(text.contains("7 of 7 runs of 10 s") && text.contains("95 % interval"), "{text}");
        assert!(text.contains("10.0 k/s to 10.0 k/s"), "{text}");
        let (_, text) = of(&[plan("/a")], &[10_000], 1);
        assert!(text.contains("one run has none"), "{text}");
    }
}
