//! The answer in sentences: what a record says, how sure it is, and what it did not ask.
//!
//! The page opens with these sentences and the terminal's table ends with them. Every claim is built from the
//! record's numbers; a difference is claimed only where the paired comparison of the runs finds one. Spelling
//! of numbers is `figure`'s part.
//!
//! Start at [`Answer::of`]; who is cheaper than whom is [`standing`].

use super::figure::{self, Figure, Load};
use ringroad_measure::compare::{Comparison, Finding};
use ringroad_measure::record::{Cell, Interval, Limiter, Loop, Record};
use ringroad_measure::{Caveat, Level};

/// What a record says, in plain language. Every string is a sentence or several, not yet escaped.
pub(crate) struct Answer {
    /// Why these numbers need care; present unless the verdict is VALID. Read it first.
    pub(crate) warning: Option<String>,
    /// Who was cheapest under the main load.
    pub(crate) lead: String,
    /// How the others did under the main load.
    pub(crate) ranking: Vec<String>,
    /// One sentence for each further load.
    pub(crate) further: Vec<String>,
    /// How cost grows with connections.
    pub(crate) growth: Vec<String>,
    /// What the suite did not measure, as clauses.
    pub(crate) not_measured: Vec<String>,
}

impl Answer {
    /// Reads the answer out of a record.
    pub(crate) fn of(record: &Record) -> Self {
        let loads = figure::loads(record);
        let main = main_load(&loads);
        Answer {
            warning: warning(record),
            lead: main.map_or_else(|| nothing_ran(record), |load| lead(record, load)),
            ranking: main.map(|load| ranking(record, load)).unwrap_or_default(),
            further: loads
                .iter()
                .filter(|load| main.is_some_and(|main| !std::ptr::eq(main, *load)))
                .map(|load| further(record, load))
                .collect(),
            growth: growth(record),
            not_measured: not_measured(record),
        }
    }

    /// The few sentences for a terminal: the warning, who was cheapest, how the others did.
    pub(crate) fn short(&self) -> String {
        let mut sentences: Vec<&str> = self.warning.iter().map(String::as_str).collect();
        sentences.push(&self.lead);
        sentences.extend(self.ranking.first().map(String::as_str));
        sentences.join(" ")
    }
}

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
    let (mine, theirs) = paired(cell, other);
    if mine.len() > 1
        && let Some(comparison) = Comparison::of_blocks(&theirs, &mine, control(record, &cell.load))
    {
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

/// One kind of doubt and the cells it is about.
pub(crate) struct Doubt {
    /// How bad.
    pub(crate) level: Level,
    /// The cell, or `None` for the run as a whole, and the sentence with that cell's numbers.
    pub(crate) cases: Vec<(Option<String>, String)>,
}

/// Every reason of a record, alike ones together (they differ in their numbers only), worst first.
pub(crate) fn doubts(record: &Record) -> Vec<Doubt> {
    let mut doubts: Vec<(String, Doubt)> = Vec::new();
    let mut add = |level: Level, about: Option<String>, reason: &Caveat| {
        let sentence = sentence(&reason.to_string());
        let kind = without_numbers(&sentence);
        let case = (about, sentence);
        match doubts.iter_mut().find(|(known, doubt)| *known == kind && doubt.level == level) {
            Some((_, doubt)) => doubt.cases.push(case),
            None => doubts.push((kind, Doubt { level, cases: vec![case] })),
        }
    };
    let level_of = |nth: usize, stated: Level, reason: &Caveat| {
        // A sentence read back from a file has lost its level; the worst comes first and has the stated one.
        if nth == 0 { stated } else { reason.level() }
    };
    let loads = figure::loads(record);
    for load in &loads {
        for cell in &load.cells {
            for (nth, reason) in cell.verdict.reasons.iter().enumerate() {
                let about = format!("{}, {}", cell.model, load.title);
                add(level_of(nth, cell.verdict.level, reason), Some(about), reason);
            }
        }
    }
    for (nth, reason) in record.verdict.reasons.iter().enumerate() {
        // The run's verdict repeats what its cells say.
        if !record.cells.iter().any(|cell| cell.verdict.reasons.contains(reason)) {
            add(level_of(nth, record.verdict.level, reason), None, reason);
        }
    }
    let mut doubts: Vec<Doubt> = doubts.into_iter().map(|(_, doubt)| doubt).collect();
    doubts.sort_by_key(|doubt| std::cmp::Reverse(doubt.level));
    doubts
}

/// What the A/A control says of the noise, as a sentence.
pub(crate) fn noise(record: &Record) -> Option<String> {
    let widest = record
        .control
        .iter()
        .map(|control| control.ratio.reach())
        .filter(|r| r.is_finite())
        .fold(None, |widest: Option<f64>, r| Some(widest.map_or(r, |w| w.max(r))))?;
    let baseline = record.baseline.as_deref().map_or("The baseline", figure::in_words);
    Some(format!(
        "{} was also measured against itself: the 95 % interval of that ratio reaches {} from equal at most. A difference smaller than \
         this is not claimed.",
        sentence_start(baseline),
        percent(widest),
    ))
}

/// A text that starts with a capital and ends with a stop.
pub(crate) fn sentence(text: &str) -> String {
    let mut text = sentence_start(text.trim());
    if !text.ends_with(['.', '!', '?']) {
        text.push('.');
    }
    text
}

fn sentence_start(text: &str) -> String {
    // `epoll`, `io_uring`, `poll(2)`: names keep their spelling also at the start of a sentence.
    let first_word = text.split([' ', '-', '(']).next().unwrap_or_default();
    if matches!(first_word, "epoll" | "poll" | "select" | "io_uring" | "uring" | "threads") {
        return text.to_owned();
    }
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// The load the answer opens with: HTTP if there is some, and the first in the suite's order that has a number.
fn main_load<'l, 'a>(loads: &'l [Load<'a>]) -> Option<&'l Load<'a>> {
    let ran = |load: &&Load<'_>| load.cells.iter().any(|cell| cell.skipped.is_none());
    let has_answer =
        |load: &&Load<'_>| load.cells.iter().any(|cell| usable(cell) && Figure::Cpu.value(cell).is_some());
    let is_http = |load: &&Load<'_>| load.cells.iter().any(|cell| cell.protocol == "http");
    let candidates = || loads.iter().filter(ran);
    candidates()
        .filter(has_answer)
        .find(is_http)
        .or_else(|| candidates().find(has_answer))
        .or_else(|| candidates().next())
}

fn warning(record: &Record) -> Option<String> {
    let total = record.cells.iter().filter(|cell| cell.skipped.is_none()).count();
    let at = |level: Level| {
        record.cells.iter().filter(|cell| cell.skipped.is_none() && cell.verdict.level == level).count()
    };
    let cause = doubts(record)
        .into_iter()
        .find(|doubt| doubt.level == record.verdict.level)
        .and_then(|doubt| doubt.cases.into_iter().next())
        .map(|(about, text)| match about {
            Some(about) => format!(" {about}: {text}"),
            None => format!(" {text}"),
        })
        .unwrap_or_default();
    let of = |level: Level| match at(level) {
        0 => "what follows concerns the run as a whole".to_owned(),
        some => format!("{some} of {total} results"),
    };
    match record.verdict.level {
        Level::Valid => None,
        Level::Suspect => {
            Some(format!("Read with care, the run is SUSPECT ({}).{cause}", of(Level::Suspect)))
        }
        Level::Invalid => Some(format!(
            "Do not use these numbers: the run is INVALID ({}).{cause} What can still be read from the rest:",
            of(Level::Invalid)
        )),
    }
}

fn nothing_ran(record: &Record) -> String {
    let skipped = record.cells.len();
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
        return without_cost(load);
    };
    let place = format!("On this machine, with {}", circumstances(load));
    let act = act(first);
    if cells.len() == 1 {
        return format!(
            "{place}, {} took {} of CPU {act}; no other program gave a usable number.",
            figure::in_words(&first.model),
            cpu(first)
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
            "{place}, the cheapest ways {act} were {}: equal within the noise of this run.",
            listed(&names)
        );
    }
    let doubt = match standing(record, cells[1], first) {
        Some(Standing::Untold(_)) => ", though with too few runs to tell a small difference from noise",
        _ => "",
    };
    format!(
        "{place}, the cheapest way {act} was {}: {} of CPU{doubt}.",
        figure::in_words(&first.model),
        cpu(first)
    )
}

/// The lead of a load that ran but has no usable CPU time.
fn without_cost(load: &Load<'_>) -> String {
    let best = load
        .cells
        .iter()
        .filter(|cell| usable(cell))
        .filter_map(|cell| Some((*cell, Figure::Rate.value(cell)?)))
        .max_by(|a, b| a.1.total_cmp(&b.1));
    match best {
        Some((cell, rate)) => format!(
            "CPU time per request could not be read on this machine, so nothing is ranked by cost. With {} the highest rate was {} ({}).",
            circumstances(load),
            Figure::Rate.spell(rate),
            figure::in_words(&cell.model),
        ),
        None => format!("With {} no program gave a number that can be used.", circumstances(load)),
    }
}

fn ranking(record: &Record, load: &Load<'_>) -> Vec<String> {
    let (cells, even) = ranked(record, load);
    let mut sentences = Vec::new();
    let Some(first) = cells.first() else {
        return sentences;
    };
    if let Some(others) = costlier(record, &cells, even) {
        sentences.push(format!("{}.", sentence_start(&others)));
    }
    if even > 1 {
        let seen = cells[1..even]
            .iter()
            .filter_map(|cell| match standing(record, cell, first) {
                Some(Standing::Even(Some(seen))) => Some(seen),
                _ => None,
            })
            .fold(f64::NAN, f64::max);
        if seen.is_finite() {
            sentences.push(format!(
                "Between those called equal, a difference of {} or more would have been seen.",
                percent(seen)
            ));
        }
    }
    sentences.extend(system_calls(&cells));
    sentences.extend(client_bound(load));
    sentences
}

/// `poll cost 12 % more, select 15 % more and a thread per connection 1.9 × as much`; `None` if all are even.
fn costlier(record: &Record, cells: &[&Cell], even: usize) -> Option<String> {
    let first = cells.first()?;
    // Several share the first place: say once against which of them the rest is held.
    let mut than = if even > 1 { format!(" than {}", figure::in_words(&first.model)) } else { String::new() };
    let mut parts: Vec<String> = Vec::new();
    for cell in &cells[even.max(1)..] {
        let verb = if parts.is_empty() { "cost " } else { "" };
        let name = figure::in_words(&cell.model);
        parts.push(match standing(record, cell, first)? {
            Standing::Even(_) => format!("{name} {verb}the same within the noise"),
            Standing::Apart(ratio) | Standing::Untold(ratio) if ratio < 1.5 => {
                format!("{name} {verb}{} more{}", percent(ratio - 1.0), std::mem::take(&mut than))
            }
            Standing::Apart(ratio) | Standing::Untold(ratio) => {
                format!("{name} {verb}{ratio:.1}\u{a0}× as much")
            }
        });
    }
    (!parts.is_empty()).then(|| listed(&parts))
}

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
    let who = match bound.len() {
        0 => return None,
        all if all == ran.len() => "every program".to_owned(),
        _ => listed(&bound),
    };
    Some(format!(
        "For {who} the client was the limit: rate and latency there are the client's, CPU per request is not touched by it."
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
    let kind = if names.len() > 1 { "cheapest, equal within the noise, were" } else { "cheapest was" };
    let worst = cells.last().filter(|_| cells.len() > even.max(1)).and_then(|cell| {
        match standing(record, cell, first)? {
            Standing::Apart(ratio) | Standing::Untold(ratio) => {
                Some(format!("; dearest {}, {:.2}\u{a0}× as much", figure::in_words(&cell.model), ratio))
            }
            Standing::Even(_) => None,
        }
    });
    format!("{}: {kind} {}{}.", load.title, listed(&names), worst.unwrap_or_default())
}

fn growth(record: &Record) -> Vec<String> {
    let mut sentences = Vec::new();
    for family in figure::families(record) {
        let (Some(&few), Some(&many)) = (family.connections.first(), family.connections.last()) else {
            continue;
        };
        let at = |model: &str, connections: u32| {
            family
                .cells
                .iter()
                .find(|cell| cell.model == model && cell.connections == connections && usable(cell))
                .and_then(|cell| Figure::Cpu.value(cell))
        };
        let mut grown: Vec<(&str, f64)> = figure::models(record)
            .into_iter()
            .filter_map(|model| Some((model, at(model, many)? / at(model, few)?)))
            .collect();
        grown.sort_by(|a, b| a.1.total_cmp(&b.1));
        if let (Some(least), Some(most)) = (grown.first(), grown.last())
            && least.0 != most.0
        {
            sentences.push(format!(
                "{}, from {} to {} connections: the cost of a request changed least with {}, to {}, and most with {}, to {}.",
                family.title,
                figure::count(u64::from(few)),
                figure::count(u64::from(many)),
                figure::in_words(least.0),
                figure::times(least.1),
                figure::in_words(most.0),
                figure::times(most.1),
            ));
        }
        let lost: Vec<String> = family
            .cells
            .iter()
            .filter(|cell| {
                cell.connections == many && cell.skipped.is_some() && at(&cell.model, few).is_some()
            })
            .map(|cell| figure::in_words(&cell.model).to_owned())
            .collect();
        if !lost.is_empty() {
            let verb = if lost.len() == 1 { "was" } else { "were" };
            sentences.push(format!(
                "{} {verb} not run at {}.",
                sentence_start(&listed(&lost)),
                figure::count(u64::from(many))
            ));
        }
    }
    sentences
}

/// What no cell of the record covers. Only what the record itself shows to be absent, and for the lab what its
/// way of measuring leaves out by design.
fn not_measured(record: &Record) -> Vec<String> {
    let ran: Vec<&Cell> = record.cells.iter().filter(|cell| cell.skipped.is_none()).collect();
    let mut clauses = Vec::new();
    if ran.is_empty() {
        return clauses;
    }
    let mut connections: Vec<u32> = ran.iter().map(|cell| cell.connections).collect();
    connections.sort_unstable();
    connections.dedup();
    if let [only] = connections[..] {
        clauses.push(format!("any number of connections but {}", figure::count(u64::from(only))));
    }
    if ran.iter().all(|cell| cell.active_share >= 1.0) {
        clauses.push("connections that are mostly idle (here every one was always busy)".to_owned());
    }
    if ran.iter().all(|cell| cell.pipeline <= 1) {
        clauses.push("several requests in flight on one connection".to_owned());
    }
    if let Some(largest) = ran.iter().map(|cell| cell.payload_bytes).max()
        && largest < 16 * 1024
    {
        clauses.push(format!("payloads above {}", figure::bytes(largest as f64)));
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
        clauses.push("work in the application, which makes these differences smaller".to_owned());
    }
    clauses
}

/// The figures of both in the blocks they share, in the order of the blocks.
fn paired(cell: &Cell, other: &Cell) -> (Vec<f64>, Vec<f64>) {
    let good = |value: Option<f64>| value.filter(|v| v.is_finite() && *v > 0.0);
    cell.runs
        .iter()
        .filter_map(|run| {
            let twin = other.runs.iter().find(|twin| twin.block == run.block)?;
            Some((good(run.cpu_us_per_request)?, good(twin.cpu_us_per_request)?))
        })
        .unzip()
}

fn cpu(cell: &Cell) -> String {
    Figure::Cpu.value(cell).map_or_else(|| figure::UNKNOWN.to_owned(), |value| Figure::Cpu.spell(value))
}

/// Percent with the digits a sentence needs: `3.1 %`, `12 %`.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent.abs() < 9.95 { format!("{percent:.1}\u{a0}%") } else { format!("{percent:.0}\u{a0}%") }
}

/// The load without its protocol, which the verb tells.
fn circumstances<'l>(load: &'l Load<'_>) -> &'l str {
    load.title.split_once(", ").map_or(load.title.as_str(), |(_, rest)| rest)
}

fn act(cell: &Cell) -> String {
    match cell.protocol.as_str() {
        "http" => "to answer an HTTP request".to_owned(),
        "echo" => "to echo a message".to_owned(),
        other => format!("to serve a {other} request"),
    }
}

/// `a`, `a and b`, `a, b and c`.
fn listed(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [start @ .., last] => format!("{} and {last}", start.join(", ")),
    }
}

fn full_stop(text: &str) -> String {
    let text = text.trim_end();
    if text.ends_with(['.', '!', '?']) { text.to_owned() } else { format!("{text}.") }
}

/// A sentence with each number replaced, so that sentences which differ only in numbers are equal.
fn without_numbers(sentence: &str) -> String {
    let mut kind = String::with_capacity(sentence.len());
    let mut in_number = false;
    for c in sentence.chars() {
        let part = c.is_ascii_digit() || (in_number && (c == '.' || c == ','));
        if part && !in_number {
            kind.push('#');
        }
        if !part {
            kind.push(c);
        }
        in_number = part;
    }
    kind
}
