//! The answer in sentences: what a record says, how sure it is, and what it did not ask.
//!
//! The page opens with these sentences and the terminal's table ends with them. Every claim is built from the
//! record's numbers; a difference is claimed only where the paired comparison of the runs finds one. Spelling
//! of numbers is `figure`'s part; comparing, doubting, and the words themselves have files of their own below
//! this one.
//!
//! Start at [`Answer::of`]; which of two programs is cheaper is decided by [`standing`](fn@standing).

mod beside;
mod doubts;
mod growth;
mod pages;
mod standing;
mod words;

pub(crate) use beside::beside;
pub(crate) use doubts::{Doubt, Doubts, doubts, noise};
pub(crate) use pages::{closing, pages};
pub(crate) use standing::{Standing, alike, control, hidden, ranked, standing, usable};
pub(crate) use words::{
    act, circumstances, cpu, either, full_stop, hiding, listed, named, percent, range, sentence,
    sentence_start,
};

use super::claims;
use super::figure::{self, Figure};
use super::guide;
use super::shape::{self, Load};
use doubts::warning;
use growth::growth;
use ringroad_measure::record::{Cell, Limiter, Loop, Record};
use words::{in_letters, subject_start};

/// The suite that asks for memory, so that the answer opens with it.
const OF_MEMORY: &str = "idle";

/// The answer of a record in plain language. Every string is one or several sentences, not escaped.
pub(crate) struct Answer {
    /// The warning; present unless the verdict is VALID.
    pub(crate) warning: Option<String>,
    /// The cheapest program under the main load, or the one with the least memory where that is the question.
    pub(crate) lead: String,
    /// Results of the others under the main load; for a suite about memory also the cost of a request.
    pub(crate) ranking: Vec<String>,
    /// One sentence for each further load.
    pub(crate) further: Vec<String>,
    /// How cost grows with connections.
    pub(crate) growth: Vec<String>,
    /// What no suite measures, as clauses.
    pub(crate) not_measured: Vec<String>,
}

impl Answer {
    /// Reads the answer out of a record.
    pub(crate) fn of(record: &Record) -> Self {
        let loads = shape::loads(record);
        let main = main_load(&loads);
        let memory =
            if record.suite.as_deref() == Some(OF_MEMORY) { guide::least_memory(record) } else { None };
        let cost = |load| lead(record, load);
        let cost_behind = memory.as_ref().and(main).map(cost);
        Answer {
            warning: warning(record),
            lead: match main {
                // A run about published claims has no main load.
                Some(_) if !record.claims.is_empty() => claims::summary(&record.claims),
                Some(load) => memory.map_or_else(|| cost(load), |least| least.as_lead()),
                None => nothing_ran(record),
            },
            ranking: cost_behind
                .into_iter()
                .chain(
                    main.filter(|_| record.claims.is_empty())
                        .map(|load| ranking(record, load))
                        .unwrap_or_default(),
                )
                .collect(),
            further: loads
                .iter()
                .filter(|load| main.is_some_and(|main| !std::ptr::eq(main, *load)))
                .map(|load| further(record, load))
                .collect(),
            growth: growth(record),
            not_measured: not_measured(record),
        }
    }

    /// Returns the few sentences for a terminal: the warning, the cheapest program, and the others.
    pub(crate) fn short(&self) -> String {
        let mut sentences: Vec<&str> = self.warning.iter().map(String::as_str).collect();
        sentences.push(&self.lead);
        sentences.extend(self.ranking.first().map(String::as_str));
        sentences.join(" ")
    }
}

/// Returns the load that the answer opens with: if some connections are idle, the one with most of them; else
/// HTTP if there is one, and the first in the suite's order with a number.
pub(crate) fn main_load<'l, 'a>(loads: &'l [Load<'a>]) -> Option<&'l Load<'a>> {
    let ran = |load: &&Load<'_>| load.cells.iter().any(|cell| cell.skipped.is_none());
    let has_answer =
        |load: &&Load<'_>| load.cells.iter().any(|cell| usable(cell) && Figure::Cpu.value(cell).is_some());
    let is_http = |load: &&Load<'_>| load.cells.iter().any(|cell| cell.protocol == "http");
    let idle = |load: &Load<'_>| {
        load.cells.first().map_or(0.0, |cell| f64::from(cell.connections) * (1.0 - cell.active_share))
    };
    let candidates = || loads.iter().filter(ran);
    candidates()
        .filter(has_answer)
        .filter(|load| idle(load) > 0.0)
        .max_by(|a, b| idle(a).total_cmp(&idle(b)))
        .or_else(|| candidates().filter(has_answer).find(is_http))
        .or_else(|| candidates().find(has_answer))
        .or_else(|| candidates().next())
}

fn nothing_ran(record: &Record) -> String {
    let skipped = record.cells.len();
    if skipped == 0 && !record.claims.is_empty() {
        return claims::summary(&record.claims);
    }
    if skipped == 0 {
        return "Nothing was measured: the record has no results.".to_owned();
    }
    let reason = record.cells.iter().find_map(|cell| cell.skipped.as_deref()).unwrap_or(figure::UNKNOWN);
    format!(
        "Nothing was measured: all {skipped} results were skipped, the first because {}",
        full_stop(reason)
    )
}

fn lead(record: &Record, load: &Load<'_>) -> String {
    let (cells, even) = ranked(record, load);
    let Some(first) = cells.first() else {
        return without_cost(record, load);
    };
    let place = format!("On this machine, with {}", circumstances(load));
    let act = act(first);
    if cells.len() == 1 {
        let is_only = record.cells.iter().all(|cell| cell.model == first.model);
        let others =
            if is_only { "no other program was measured" } else { "no other program gave a usable number" };
        return format!(
            "{place}, {} took {} of CPU {act}; {others}.",
            figure::in_words(&first.model),
            cpu(first)
        );
    }
    let hidden = hidden(record, first, &cells[..even]);
    if even > NAMED_MAX {
        let all = if even == cells.len() { "all " } else { "" };
        let of = if even == cells.len() { String::new() } else { format!("{} of ", in_letters(even)) };
        let so = if alike(hidden) { ", so any of them will do" } else { "" };
        return format!(
            "{place}, {all}{of}{} ways {act} showed no significant difference, {} of CPU: {}{so}.",
            in_letters(cells.len()),
            range(&cells[..even]),
            hiding(hidden),
        );
    }
    if even > 1 {
        let names: Vec<String> = cells[..even]
            .iter()
            .enumerate()
            .map(|(nth, cell)| {
                let unit = if nth == 0 { " of CPU" } else { "" };
                format!("{} ({}{unit})", figure::in_words(&cell.model), cpu(cell))
            })
            .collect();
        return format!(
            "{place}, the cheapest ways {act} were {} (no significant difference): {}.",
            listed(&names),
            hiding(hidden),
        );
    }
    let doubt = doubt(record, &cells, even).unwrap_or_default();
    format!(
        "{place}, the cheapest way {act} was {}: {} of CPU{doubt}.",
        figure::in_words(&first.model),
        cpu(first)
    )
}

/// Returns the caveat after the name of the cheapest: others may be as cheap.
pub(crate) fn doubt(record: &Record, cells: &[&Cell], even: usize) -> Option<&'static str> {
    let (first, others) = cells.split_first().filter(|_| even == 1)?;
    let untold = |cell: &&Cell| match standing(record, cell, first) {
        Some(Standing::Untold(ratio)) => Some(ratio),
        _ => None,
    };
    if others.first().and_then(untold).flatten().is_some() {
        return Some(", but with too few runs to separate a small difference from noise");
    }
    let apart = others.iter().any(|cell| untold(cell) == Some(None));
    apart.then_some(", among programs that ran side by side")
}

/// Returns the lead of a load that ran but has no usable CPU time.
fn without_cost(record: &Record, load: &Load<'_>) -> String {
    let rates = || {
        let cells = load.cells.iter().filter(|cell| usable(cell));
        cells.filter_map(|cell| Some((*cell, Figure::Rate.value(cell)?)))
    };
    let best = rates().max_by(|a, b| a.1.total_cmp(&b.1));
    match best {
        Some((cell, rate)) => format!(
            "{} With {} the {}rate was {} ({}).",
            match record.tool == "load" {
                true => "The load generator measures a server from outside and does not read its CPU time.",
                false => "CPU time per request could not be read, so nothing is ranked by cost.",
            },
            circumstances(load),
            if rates().count() > 1 { "highest " } else { "" },
            Figure::Rate.spell(rate),
            figure::in_words(&cell.model),
        ),
        None => format!("With {} no program gave a number that can be used.", circumstances(load)),
    }
}

fn ranking(record: &Record, load: &Load<'_>) -> Vec<String> {
    let (cells, even) = ranked(record, load);
    let mut sentences = Vec::new();
    if let Some(others) = costlier(record, &cells, even) {
        sentences.push(format!("{}.", subject_start(record, &others)));
    }
    if even > NAMED_MAX {
        sentences.push(format!("Those without a significant difference are {}.", named(&cells[..even])));
    }
    sentences.extend(system_calls(&cells));
    sentences.extend(client_bound(load));
    sentences
}

/// `poll cost 12 % more, select 15 % more and a thread per connection 1.9 × as much`; `None` if all are even.
pub(crate) fn costlier(record: &Record, cells: &[&Cell], even: usize) -> Option<String> {
    let first = cells.first()?;
    // Several share the first place: name once the one that the others are compared with.
    let mut than = if even > 1 { format!(" than {}", figure::in_words(&first.model)) } else { String::new() };
    // Where the whole run has too few, it is said with the cheapest, and figures may follow.
    let few =
        cells.get(1).is_some_and(|cell| matches!(standing(record, cell, first), Some(Standing::Untold(_))));
    let mut parts: Vec<String> = Vec::new();
    let mut untold: Vec<String> = Vec::new();
    let mut elsewhere: Vec<String> = Vec::new();
    for cell in &cells[even.max(1)..] {
        let verb = if parts.is_empty() { "cost " } else { "" };
        let name = figure::in_words(&cell.model);
        match standing(record, cell, first)? {
            Standing::Untold(None) => elsewhere.push(name.to_owned()),
            // More expensive than one with a significant difference, but its own runs vary too much.
            Standing::Even(_) => untold.push(name.to_owned()),
            Standing::Untold(_) if !few => untold.push(name.to_owned()),
            Standing::Apart(ratio) | Standing::Untold(Some(ratio)) if ratio < 1.5 => {
                parts.push(format!(
                    "{name} {verb}{} more{}",
                    percent(ratio - 1.0),
                    std::mem::take(&mut than)
                ));
            }
            Standing::Apart(ratio) | Standing::Untold(Some(ratio)) => {
                parts.push(format!("{name} {verb}{ratio:.1}\u{a0}× as much"));
            }
        }
    }
    let mut said: Vec<String> = Vec::new();
    if !parts.is_empty() {
        said.push(listed(&parts));
    }
    if !untold.is_empty() {
        said.push(format!("there is too little data for {}", listed(&untold)));
    }
    if !elsewhere.is_empty() {
        said.push(format!(
            "{} did not run side by side with {}",
            listed(&elsewhere),
            figure::in_words(&first.model)
        ));
    }
    (!said.is_empty()).then(|| said.join("; "))
}

/// Maximum number of programs without a significant difference that the first sentence names; more are
/// counted there and named after it.
const NAMED_MAX: usize = 3;

fn system_calls(cells: &[&Cell]) -> Option<String> {
    let known = || cells.iter().filter_map(|cell| Some((*cell, Figure::Syscalls.value(cell)?)));
    let fewest = known().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let cheapest = known().next()?;
    let most = known().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let against = if cheapest.0.model == fewest.0.model { most } else { cheapest };
    if against.1 <= fewest.1 * 1.05 {
        return None;
    }
    Some(format!(
        "Fewest system calls were made by {}: {} per request, against {} for {}.",
        figure::in_words(&fewest.0.model),
        figure::number(fewest.1),
        figure::number(against.1),
        figure::in_words(&against.0.model),
    ))
}

fn client_bound(load: &Load<'_>) -> Option<String> {
    let ran: Vec<&&Cell> = load.cells.iter().filter(|cell| cell.skipped.is_none()).collect();
    let bound: Vec<String> = ran
        .iter()
        .filter(|cell| cell.limiter == Some(Limiter::Client))
        .map(|cell| figure::in_words(&cell.model).to_owned())
        .collect();
    let programs = match bound.len() {
        0 => return None,
        all if all == ran.len() => "every program".to_owned(),
        _ => listed(&bound),
    };
    Some(format!(
        "For {programs} the load generator was the bottleneck: ignore rate and latency there; CPU per request is still valid."
    ))
}

fn further(record: &Record, load: &Load<'_>) -> String {
    let (cells, even) = ranked(record, load);
    let Some(first) = cells.first() else {
        let reason = load.cells.iter().find_map(|cell| cell.skipped.as_deref());
        return match reason {
            Some(reason) => format!("{}: skipped, because {}", load.title, full_stop(reason)),
            None => format!("{}: no usable number.", load.title),
        };
    };
    let names: Vec<String> = cells[..even.max(1)]
        .iter()
        .map(|cell| format!("{} ({})", figure::in_words(&cell.model), cpu(cell)))
        .collect();
    let (kind, hides) = match names.len() {
        1 => ("cheapest was", String::new()),
        _ => {
            let hidden = percent(hidden(record, first, &cells[..even]));
            ("cheapest were", format!(" (differences below {hidden} not detectable)"))
        }
    };
    let worst = cells.last().filter(|_| cells.len() > even.max(1)).and_then(|cell| {
        match standing(record, cell, first)? {
            Standing::Apart(ratio) | Standing::Untold(Some(ratio)) => {
                Some(format!("; dearest {}, {} as much", figure::in_words(&cell.model), figure::times(ratio)))
            }
            Standing::Even(_) | Standing::Untold(None) => None,
        }
    });
    let doubt = doubt(record, &cells, even).unwrap_or_default();
    format!("{}: {kind} {}{hides}{doubt}{}.", load.title, listed(&names), worst.unwrap_or_default())
}

/// Returns what no suite of the lab covers: what the record itself shows to be absent, and what the way of
/// measuring leaves out by design. What another suite would have measured, `guide` says.
fn not_measured(record: &Record) -> Vec<String> {
    let ran: Vec<&Cell> = record.cells.iter().filter(|cell| cell.skipped.is_none()).collect();
    let mut clauses = Vec::new();
    if ran.is_empty() {
        return clauses;
    }
    if ran.iter().all(|cell| cell.kind == Loop::Closed) {
        clauses.push(
            "latency at a given rate (here each client waited for its answer before it sent again, so the server was always \
             full)"
                .to_owned(),
        );
    }
    if record.tool == "lab" {
        clauses.push("a real network (client and server shared this machine)".to_owned());
    }
    clauses
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::super::sample;
    use super::*;
    use ringroad_measure::record::Interval;

    /// Returns the sample of `lab quick` with the CPU times of its HTTP cells set: model, µs, noise.
    pub(super) fn with_cpu(times: &[(&str, f64, f64)]) -> Record {
        let mut record = sample::quick();
        record
            .cells
            .retain(|cell| cell.protocol == "http" && times.iter().any(|(model, ..)| cell.model == *model));
        for (nth, (model, cpu_us, noise)) in times.iter().enumerate() {
            let cell = record.cells.iter_mut().find(|cell| cell.model == *model).unwrap();
            sample::set_cpu(cell, *cpu_us, *noise, 11 + nth as u64);
        }
        sample::set_ratios(&mut record);
        record
    }

    fn plain(text: &str) -> String {
        text.replace('\u{a0}', " ")
    }

    #[test]
    fn a_clear_winner_is_named_with_its_cost_and_the_others_distance() {
        let record = with_cpu(&[("epoll-et", 4.0, 0.001), ("poll", 4.8, 0.001), ("threads", 8.0, 0.001)]);
        let answer = Answer::of(&record);
        assert_eq!(
            plain(&answer.lead),
            "On this machine, with 64 connections, the cheapest way to answer an HTTP request was edge-triggered epoll: 4.00 µs of CPU."
        );
        assert_eq!(
            plain(&answer.ranking[0]),
            "poll cost 20 % more and a thread per connection 2.0 × as much."
        );
        assert_eq!(answer.warning, None);
    }

    #[test]
    fn a_program_of_ones_own_keeps_its_name_at_the_start_of_a_sentence() {
        let mut record = with_cpu(&[("epoll-et", 4.0, 0.001), ("poll", 4.8, 0.001)]);
        for cell in record.cells.iter_mut().filter(|cell| cell.model == "poll") {
            cell.model = "py".to_owned();
        }
        assert_eq!(plain(&Answer::of(&record).ranking[0]), "py cost 20 % more.");
    }

    #[test]
    fn the_cheapest_is_named_also_when_it_is_not_the_baseline() {
        let record = with_cpu(&[("epoll-et", 4.4, 0.001), ("uring-multishot", 4.0, 0.001)]);
        let answer = Answer::of(&record);
        assert!(plain(&answer.lead).ends_with("was multishot io_uring: 4.00 µs of CPU."), "{}", answer.lead);
        assert_eq!(plain(&answer.ranking[0]), "Edge-triggered epoll cost 10 % more.");
    }

    #[test]
    fn a_tie_within_the_noise_names_both_and_what_may_hide_between_them() {
        let record =
            with_cpu(&[("epoll-et", 4.0, 0.02), ("uring-multishot", 4.01, 0.02), ("poll", 6.0, 0.02)]);
        let answer = Answer::of(&record);
        assert!(answer.lead.contains("edge-triggered epoll ("), "{}", answer.lead);
        assert!(answer.lead.contains("multishot io_uring ("), "{}", answer.lead);
        let lead = plain(&answer.lead);
        let hides = lead.split_once(" (no significant difference): a difference of up to ").unwrap().1;
        assert!(hides.ends_with(" % would not have been detected."), "{lead}");
        assert!(!answer.lead.contains(" poll ("), "{}", answer.lead);
    }

    #[test]
    fn a_difference_inside_the_noise_floor_is_not_claimed() {
        let times = [("epoll-et", 4.0, 0.001), ("uring-multishot", 4.12, 0.001)];
        let mut record = with_cpu(&times);
        assert!(Answer::of(&record).lead.contains("the cheapest way"));
        record.control[0].ratio = Interval { low: 0.95, mid: 1.0, high: 1.05 };
        assert!(Answer::of(&record).lead.contains("no significant difference"));
    }

    #[test]
    fn too_few_runs_claim_no_difference_and_no_equality() {
        let mut record = with_cpu(&[("epoll-et", 4.0, 0.001), ("uring-multishot", 4.1, 0.001)]);
        for cell in &mut record.cells {
            cell.runs.truncate(3);
        }
        let lead = Answer::of(&record).lead;
        assert!(lead.contains("too few runs"), "{lead}");
        assert!(!lead.contains("equal"), "{lead}");
    }

    #[test]
    fn where_connections_idle_the_answer_is_about_most_of_them() {
        let lead = plain(&Answer::of(&sample::idle()).lead);
        assert!(lead.starts_with("On this machine, with 10,000 connections, 1 % active,"), "{lead}");
    }

    #[test]
    fn when_everything_was_skipped_the_answer_says_so_and_why() {
        let mut record = sample::quick();
        record.cells =
            record.cells.iter().map(|cell| sample::skipped(cell, "the program was not found")).collect();
        sample::judge(&mut record);
        let answer = Answer::of(&record);
        assert_eq!(
            answer.lead,
            "Nothing was measured: all 14 results were skipped, the first because the program was not found."
        );
        assert!(answer.ranking.is_empty() && answer.further.is_empty() && answer.not_measured.is_empty());
    }

    #[test]
    fn an_empty_record_gives_an_answer() {
        let mut record = sample::quick();
        record.cells.clear();
        assert!(Answer::of(&record).lead.contains("no results"));
    }

    #[test]
    fn without_cpu_times_no_program_is_ranked_by_cost() {
        let mut record = sample::quick();
        for cell in &mut record.cells {
            cell.server.cpu_us_per_request = None;
        }
        let answer = Answer::of(&record);
        assert!(answer.lead.contains("CPU time per request could not be read"), "{}", answer.lead);
        assert!(answer.lead.contains("the highest rate was"), "{}", answer.lead);
        assert!(answer.ranking.is_empty());
    }

    #[test]
    fn a_given_rate_is_absent_until_some_load_has_one() {
        let mut record = sample::quick();
        assert!(not_measured(&record)[0].contains("latency at a given rate"));
        record.cells[0].kind = Loop::Open;
        assert!(!not_measured(&record).join("; ").contains("given rate"));
    }

    /// Four that cost much the same and one that costs twice that, with so much noise in their runs.
    fn four_alike(noise: f64) -> Record {
        let mut record = with_cpu(&[
            ("epoll-et", 4.0, noise),
            ("epoll-lt", 4.01, noise),
            ("uring", 4.0, noise),
            ("uring-multishot", 4.01, noise),
            ("threads", 8.0, 0.01),
        ]);
        record.control[0].ratio = Interval { low: 0.97, mid: 1.0, high: 1.03 };
        record
    }

    #[test]
    fn many_programs_without_a_significant_difference_are_counted_first_and_then_named() {
        let mut record = four_alike(0.02);
        let answer = Answer::of(&record);
        let lead = plain(&answer.lead);
        assert!(
            lead.contains(
                "four of five ways to answer an HTTP request showed no significant difference, 3.9"
            ),
            "{lead}"
        );
        assert!(lead.ends_with(" % would not have been detected, so any of them will do."), "{lead}");
        let said = answer.ranking.join(" ");
        assert!(said.starts_with("A thread per connection cost 2.0"), "{said}");
        assert!(
            said.contains("Those without a significant difference are ")
                && said.contains("single-shot io_uring ("),
            "{said}"
        );
        record.cells.retain(|cell| cell.model != "threads");
        assert!(Answer::of(&record).lead.contains("all four ways to answer"), "{}", Answer::of(&record).lead);
    }

    #[test]
    fn with_a_large_detectable_difference_no_program_is_called_as_good_as_another() {
        let mut record = four_alike(0.02);
        record.control[0].ratio = Interval { low: 0.8, mid: 1.0, high: 1.6 };
        for named in [4, 2] {
            record.cells.retain(|cell| named == 4 || !matches!(cell.model.as_str(), "epoll-lt" | "uring"));
            let short = plain(&Answer::of(&record).short());
            assert!(
                short.contains("no significant difference") && short.contains("difference of up to 6"),
                "{short}"
            );
            assert!(
                short.contains(
                    "so this run does not show which is cheaper; use more blocks or a quieter machine."
                ),
                "{short}"
            );
            for word in ["equal", "will do", "the same"] {
                assert!(!short.contains(word), "{word}: {short}");
            }
        }
    }

    #[test]
    fn each_load_states_the_smallest_detectable_difference_of_programs_named_together() {
        let mut record = sample::quick();
        record.cells.retain(|cell| matches!(cell.model.as_str(), "epoll-et" | "uring-multishot"));
        let further = plain(&Answer::of(&record).further[0]);
        assert!(
            further.contains(") (differences below ") && further.ends_with(" % not detectable)."),
            "{further}"
        );
    }
}
