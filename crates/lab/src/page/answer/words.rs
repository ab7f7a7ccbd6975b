//! Words: lists, sentences, and how a program, a load and a cost are called in them.
//!
//! Every function depends on its arguments alone. Start at [`sentence`].

use super::super::figure::{self, Figure};
use super::super::shape::Load;
use super::alike;
use ringroad_measure::record::{Cell, Record};

/// Returns a text that starts with a capital and ends with a stop.
pub(crate) fn sentence(text: &str) -> String {
    let mut text = sentence_start(text.trim());
    if !text.ends_with(['.', '!', '?']) {
        text.push('.');
    }
    text
}

pub(crate) fn sentence_start(text: &str) -> String {
    // `epoll`, `io_uring`, `poll(2)`: names keep their spelling also at the start of a sentence.
    let first_word = text.split([' ', '-', '(']).next().unwrap_or_default();
    if matches!(first_word, "epoll" | "poll" | "select" | "io_uring" | "uring" | "threads") {
        return text.to_owned();
    }
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// Returns the same for a text that may start with a program's name, which keeps its spelling.
pub(super) fn subject_start(record: &Record, text: &str) -> String {
    let is_named = |model: &str| {
        let rest = text.strip_prefix(model).filter(|_| figure::in_words(model) == model);
        rest.is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
    };
    if record.cells.iter().any(|cell| is_named(&cell.model)) { text.to_owned() } else { sentence_start(text) }
}

pub(crate) fn full_stop(text: &str) -> String {
    let text = text.trim_end();
    if text.ends_with(['.', '!', '?']) { text.to_owned() } else { format!("{text}.") }
}

/// `a`, `a and b`, `a, b and c`.
pub(crate) fn listed(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [start @ .., last] => format!("{} and {last}", start.join(", ")),
    }
}

/// `a or b`, `a, b or c`.
pub(crate) fn either(items: &[String]) -> String {
    match items {
        [start @ .., last] if !start.is_empty() => format!("{} or {last}", start.join(", ")),
        _ => listed(items),
    }
}

/// `seven`; figures beyond twelve.
pub(super) fn in_letters(count: usize) -> String {
    const WORDS: [&str; 13] = [
        "no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
        "twelve",
    ];
    WORDS.get(count).map_or_else(|| figure::count(count as u64), |word| (*word).to_owned())
}

/// Percent with the digits a sentence needs: `3.1 %`, `12 %`.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent.abs() < 9.95 { format!("{percent:.1}\u{a0}%") } else { format!("{percent:.0}\u{a0}%") }
}

pub(crate) fn cpu(cell: &Cell) -> String {
    Figure::Cpu.value(cell).map_or_else(|| figure::UNKNOWN.to_owned(), |value| Figure::Cpu.spell(value))
}

/// Returns what the cheapest and the dearest of them cost: `3.91 µs to 4.12 µs`.
pub(crate) fn range(cells: &[&Cell]) -> String {
    let costs = || cells.iter().filter_map(|cell| Figure::Cpu.value(cell));
    let least = costs().reduce(f64::min).zip(costs().reduce(f64::max));
    least.map_or_else(
        || figure::UNKNOWN.to_owned(),
        |(low, high)| format!("{} to {}", Figure::Cpu.spell(low), Figure::Cpu.spell(high)),
    )
}

/// Returns the smallest detectable difference as a clause; if it is too large to choose by, also what would
/// help.
pub(crate) fn hiding(hidden: f64) -> String {
    let hides = format!("a difference of up to {} would not have been detected", percent(hidden));
    if alike(hidden) {
        return hides;
    }
    format!("{hides}, so this run does not show which is cheaper; use more blocks or a quieter machine")
}

/// Names with their cost, as a list.
pub(crate) fn named(cells: &[&Cell]) -> String {
    let names: Vec<String> =
        cells.iter().map(|cell| format!("{} ({})", figure::in_words(&cell.model), cpu(cell))).collect();
    listed(&names)
}

/// Returns the load without its protocol, which the verb tells.
pub(crate) fn circumstances<'l>(load: &'l Load<'_>) -> &'l str {
    load.title.split_once(", ").map_or(load.title.as_str(), |(_, rest)| rest)
}

pub(crate) fn act(cell: &Cell) -> String {
    match cell.protocol.as_str() {
        "http" => "to answer an HTTP request".to_owned(),
        "echo" => "to echo a message".to_owned(),
        "files" => "to copy a file".to_owned(),
        other => format!("to serve a {other} request"),
    }
}
