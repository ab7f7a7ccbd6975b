//! The table a person sees in the terminal at the end of a run.
//!
//! One block of rows per load, notes and doubts once each under it, the answer as the last sentence. It shares
//! figures and sentences with the page. Whether colour is wanted and how wide the terminal is, the caller knows.
//!
//! Start at [`text`].

use crate::page::answer::{self, Answer, Doubt, Standing};
use crate::page::figure::{self, Figure};
use crate::page::shape::{self, Load};
use ringroad_measure::Level;
use ringroad_measure::record::{Cell, Limiter, Record};

/// Narrower than this the columns cannot be told apart; wider than that a row is hard to follow.
const WIDTH_MIN: usize = 80;
const WIDTH_MAX: usize = 100;
/// The columns but the name, the bar and the last mark, with the space before each.
const FIXED: usize = 13 + 9 + 6 + 8 + 8 + 6 + 2 + 9 + 2;
/// What stands where a number is not known.
const UNKNOWN: &str = "–";
/// The longest bar and the longest name.
const BAR_MAX: usize = 20;
const NAME_MAX: usize = 24;

/// The record as text, lines ended by `\n`, none longer than `width` characters; `width` is taken as at least 80
/// and at most 100. With `color` there are ANSI colours in it, which take no width. Names are shown without
/// control characters, so that no program's name can steer the terminal.
pub fn text(record: &Record, width: usize, color: bool) -> String {
    let width = width.clamp(WIDTH_MIN, WIDTH_MAX);
    let paint = Paint { color };
    let loads = shape::loads(record);
    let mut out = String::new();
    let columns = Columns::fitting(record, width);
    for load in &loads {
        out.push_str(&block(record, load, &columns, &paint));
        out.push('\n');
    }
    for note in notes(record, &loads) {
        out.push_str(&wrapped(&note, width, "  "));
    }
    out.push_str(&doubted(&answer::doubts(record), width, &paint));
    if !out.is_empty() {
        out.push('\n');
    }
    out.push_str(&paint.bold(&wrapped(&Answer::of(record).short(), width, "")));
    out
}

/// How wide the columns that can give are.
struct Columns {
    name: usize,
    bar: usize,
}

impl Columns {
    fn fitting(record: &Record, width: usize) -> Self {
        let longest =
            shape::models(record).iter().map(|model| clean(model).chars().count()).max().unwrap_or(0);
        let free = width - FIXED;
        let name = longest.clamp(8, NAME_MAX.min(free));
        // A bar of one or two characters tells nothing.
        let bar = Some(free - name).and_then(|left| left.checked_sub(2)).filter(|bar| *bar >= 3).unwrap_or(0);
        Columns { name, bar: bar.min(BAR_MAX) }
    }

    fn bar_room(&self) -> usize {
        if self.bar > 0 { self.bar + 1 } else { 0 }
    }
}

/// One load: its title, the heads of the columns, a row for each program.
fn block(record: &Record, load: &Load<'_>, columns: &Columns, paint: &Paint) -> String {
    let (ranked, even) = answer::ranked(record, load);
    let best = &ranked[..even];
    let most = load.cells.iter().filter_map(|cell| Figure::Cpu.value(cell)).fold(0.0, f64::max);
    let against = match record.baseline.as_deref() {
        Some(_) => "vs base",
        None => "",
    };
    let mut out = format!("{}\n", paint.bold(&plain(&load.title)));
    let head = format!(
        "{:name$} {:>12}{:bar$} {:>8} {:>5} {:>7} {:>7} {:>5}   {:>8}",
        "",
        "CPU µs/req",
        "",
        against,
        "calls",
        "p50",
        "p99",
        "req/s",
        "memory",
        name = columns.name,
        bar = columns.bar_room(),
    );
    out.push_str(&paint.dim(head.trim_end()));
    out.push('\n');
    for cell in &load.cells {
        let name = format!("{:name$}", cut(&clean(&cell.model), columns.name), name = columns.name);
        if let Some(reason) = &cell.skipped {
            let room = columns.name + columns.bar_room() + FIXED - name.chars().count() - 1;
            let line = format!("{name} {}", cut(&format!("skipped: {}", clean(reason)), room));
            out.push_str(&paint.dim(line.trim_end()));
            out.push('\n');
            continue;
        }
        let is_best = best.iter().any(|other| std::ptr::eq(*other, *cell));
        let row = format!(
            "{name} {:>12}{} {:>8} {:>5} {:>7} {:>7} {:>5} {} {:>8} {}",
            cut(&cpu(cell), 12),
            bar(Figure::Cpu.value(cell), most, columns.bar),
            against_baseline(record, load, cell),
            short(Figure::Syscalls, cell),
            short(Figure::P50, cell),
            short(Figure::P99, cell),
            short(Figure::Rate, cell),
            if cell.limiter == Some(Limiter::Client) { "c" } else { " " },
            short(Figure::Memory, cell),
            flag(cell.verdict.level),
        );
        let row = row.trim_end();
        out.push_str(&match cell.verdict.level {
            Level::Valid if is_best => paint.best(row),
            level => paint.level(level, row),
        });
        out.push('\n');
    }
    out
}

/// `3.91 ±0.03`: the median and half the width of its interval.
fn cpu(cell: &Cell) -> String {
    let Some(value) = Figure::Cpu.value(cell) else {
        return UNKNOWN.to_owned();
    };
    let digits = match value {
        v if v < 1.0 => 3,
        v if v < 99.95 => 2,
        _ => 0,
    };
    match Figure::Cpu.interval(cell) {
        Some(interval) => format!("{value:.digits$} ±{:.digits$}", (interval.high - interval.low) / 2.0),
        None => format!("{value:.digits$}"),
    }
}

/// `= 1.01 ×`, `1.91 ×`, `baseline`.
fn against_baseline(record: &Record, load: &Load<'_>, cell: &Cell) -> String {
    let Some(baseline) = record.baseline.as_deref() else {
        return String::new();
    };
    if cell.model == baseline {
        return "baseline".to_owned();
    }
    let Some(ratio) = Figure::Ratio.value(cell) else {
        return UNKNOWN.to_owned();
    };
    let even =
        load.cells.iter().find(|other| other.model == baseline).is_some_and(|baseline| {
            matches!(answer::standing(record, cell, baseline), Some(Standing::Even(_)))
        });
    plain(&format!("{}{}", if even { "= " } else { "" }, figure::times(ratio)))
}

/// A number that fits its column.
fn short(figure: Figure, cell: &Cell) -> String {
    let Some(value) = figure.value(cell) else {
        return UNKNOWN.to_owned();
    };
    let text = plain(&figure.spell(value));
    match figure {
        // The head of the column says it is per second.
        Figure::Rate => text.trim_end_matches("/s").trim_end().replace(' ', ""),
        // A space for the digit that numbers below 0.1 have more, so that the points stand in one line.
        Figure::Syscalls if text.len() == 4 => format!("{text} "),
        Figure::Syscalls => text.replace(' ', ""),
        _ => text,
    }
}

/// The value as a part of the largest, in eighths of a character; a space before it.
fn bar(value: Option<f64>, most: f64, width: usize) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    if width == 0 {
        return String::new();
    }
    let share = value.map_or(0.0, |value| (value / most).clamp(0.0, 1.0));
    let eighths = (share * width as f64 * 8.0).round() as usize;
    let drawn = format!("{}{}", "█".repeat(eighths / 8), PARTS[eighths % 8]);
    format!(" {drawn:width$}")
}

/// What the marks in the table mean, for the marks that occur.
fn notes(record: &Record, loads: &[Load<'_>]) -> Vec<String> {
    let mut notes = Vec::new();
    let ran = || record.cells.iter().filter(|cell| cell.skipped.is_none());
    if ran().any(|cell| Figure::Cpu.interval(cell).is_some()) {
        notes.push("± half of the 95 % interval of the median; calls: system calls per request.".to_owned());
    }
    let equal = loads
        .iter()
        .any(|load| load.cells.iter().any(|cell| against_baseline(record, load, cell).starts_with('=')));
    if equal {
        notes.push("= no difference from the baseline was found in this run.".to_owned());
    }
    if ran().any(|cell| cell.limiter == Some(Limiter::Client)) {
        notes.push(
            "c the client was the limit: rate and latency are its own, CPU per request is not touched by it."
                .to_owned(),
        );
    }
    if ran()
        .any(|cell| Figure::ALL.iter().any(|figure| *figure != Figure::Ratio && figure.value(cell).is_none()))
    {
        notes.push("– unknown on this machine.".to_owned());
    }
    notes.extend(answer::pages(record));
    notes.extend(answer::noise(record, loads));
    notes
}

/// Each kind of doubt once: the mark that its rows have, one of those it is about, and how many more there are.
pub(crate) fn doubted(doubts: &[Doubt], width: usize, paint: &Paint) -> String {
    let mut out = String::new();
    for doubt in doubts {
        let Some((about, sentence)) = doubt.cases.first() else { continue };
        let more = match doubt.cases.len() {
            1 => String::new(),
            cases => format!(" (and {} more like it)", cases - 1),
        };
        let about = about.as_deref().unwrap_or("the whole run");
        let lines = wrapped(&format!("{} {about}{more}: {sentence}", flag(doubt.level)), width, "  ");
        out.push_str(&paint.level(doubt.level, &lines));
    }
    out
}

/// The mark of a verdict.
pub(crate) fn flag(level: Level) -> &'static str {
    match level {
        Level::Valid => "",
        Level::Suspect => "?",
        Level::Invalid => "!",
    }
}

/// Broken into lines at spaces; lines after the first begin with `indent`. Never cuts within a word unless the
/// word alone is longer than a line.
pub(crate) fn wrapped(text: &str, width: usize, indent: &str) -> String {
    let mut out = String::new();
    let mut used = 0;
    for word in clean(text).split(' ').filter(|word| !word.is_empty()) {
        let mut word = word.to_owned();
        let mut length = word.chars().count();
        if used > 0 && used + 1 + length > width {
            out.push('\n');
            out.push_str(indent);
            used = indent.len();
        } else if used > 0 {
            out.push(' ');
            used += 1;
        }
        while used + length > width {
            let room = width - used;
            out.extend(word.chars().take(room));
            out.push('\n');
            out.push_str(indent);
            word = word.chars().skip(room).collect();
            length -= room;
            used = indent.len();
        }
        out.push_str(&word);
        used += length;
    }
    out.push('\n');
    plain(&out)
}

/// Cut to a number of characters, with an ellipsis where something is missing.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// Without characters that move the cursor or change what the terminal does.
pub(crate) fn clean(text: &str) -> String {
    text.chars()
        .map(|c| {
            // Right-to-left marks and their kin turn a row around without being control characters.
            let turns =
                matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
            if c.is_control() || turns { '\u{fffd}' } else { c }
        })
        .collect()
}

/// The spaces that keep number and unit together on the page are plain ones here.
pub(crate) fn plain(text: &str) -> String {
    text.replace('\u{a0}', " ")
}

/// ANSI colours, or none.
pub(crate) struct Paint {
    pub(crate) color: bool,
}

impl Paint {
    pub(crate) fn with(&self, code: &str, text: &str) -> String {
        if !self.color || text.is_empty() {
            return text.to_owned();
        }
        let body = text.trim_end_matches('\n');
        format!("\u{1b}[{code}m{body}\u{1b}[0m{}", &text[body.len()..])
    }

    pub(crate) fn bold(&self, text: &str) -> String {
        self.with("1", text)
    }

    pub(crate) fn dim(&self, text: &str) -> String {
        self.with("2", text)
    }

    fn best(&self, text: &str) -> String {
        self.with("1;32", text)
    }

    fn level(&self, level: Level, text: &str) -> String {
        match level {
            Level::Valid => text.to_owned(),
            Level::Suspect => self.with("33", text),
            Level::Invalid => self.with("31", text),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::page::sample;

    #[test]
    fn no_line_is_wider_than_asked() {
        let mut record = sample::floor();
        for cell in record.cells.iter_mut().filter(|cell| cell.model == "poll") {
            cell.model = "a program with a name that no column can hold/at/all".repeat(3);
        }
        record.cells[0].server.cpu_us_per_request = Some(123_456.0);
        record.cells[0].server.cpu_interval = None;
        for (asked, most) in [(0, 80), (80, 80), (91, 91), (100, 100), (500, 100)] {
            let text = text(&record, asked, false);
            let long: Vec<&str> = text.lines().filter(|line| line.chars().count() > most).collect();
            assert!(long.is_empty(), "{asked}: {long:#?}");
        }
    }

    #[test]
    fn rows_of_a_load_are_aligned() {
        for width in [80, 100] {
            let text = text(&sample::quick(), width, false);
            let ends: Vec<usize> = text
                .lines()
                .filter(|line| line.ends_with("MiB") || line.ends_with("memory"))
                .map(|line| line.chars().count())
                .collect();
            assert_eq!(ends.len(), 16);
            assert!(ends.windows(2).all(|pair| pair[0] == pair[1]), "{width}: {ends:?}\n{text}");
        }
    }

    #[test]
    fn the_bar_is_dropped_where_there_is_no_room_for_it() {
        assert!(text(&sample::quick(), 100, false).contains('█'));
        assert!(!text(&sample::quick(), 80, false).contains('█'));
    }

    #[test]
    fn every_cell_has_its_row_also_a_skipped_one() {
        let record = sample::floor();
        let text = text(&record, 100, false);
        let rows = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
        for model in shape::models(&record) {
            // A name is followed by a space, so that `uring` does not count `uring-multishot`.
            assert_eq!(rows(&format!("{model} ")), 7, "{model}\n{text}");
        }
        assert!(text.contains("skipped: select(2) holds at most 1,024 descriptors"));
    }

    #[test]
    fn equal_to_the_baseline_is_marked_and_explained() {
        let text = text(&sample::quick(), 100, false);
        let row = text.lines().find(|line| line.starts_with("uring-multishot")).unwrap();
        assert!(row.contains("= 1.00 ×"), "{row}");
        let threads = text.lines().find(|line| line.starts_with("threads")).unwrap();
        assert!(!threads.contains('='), "{threads}");
        assert!(text.contains("= no difference from the baseline was found"));
    }

    #[test]
    fn doubtful_rows_are_marked_and_each_doubt_is_told_once() {
        let text = text(&sample::floor(), 100, false);
        assert!(text.lines().any(|line| line.starts_with("poll ") && line.ends_with('!')));
        assert!(text.lines().any(|line| line.starts_with("threads ") && line.ends_with('?')));
        let told = text.replace("\n  ", " ");
        assert_eq!(told.matches("of its core while the program had time left").count(), 1);
        assert!(told.contains("(and 6 more like it)"));
        assert!(text.contains("c the client was the limit"));
    }

    #[test]
    fn the_answer_is_the_last_thing_said() {
        let record = sample::quick();
        let text = text(&record, 90, false).replace('\n', " ");
        let answer = plain(&Answer::of(&record).short());
        assert!(text.trim_end().ends_with(&answer), "{text}");
    }

    #[test]
    fn colour_changes_nothing_but_colour() {
        let record = sample::floor();
        let colored = text(&record, 100, true);
        assert!(colored.contains("\u{1b}[1;32m"));
        let mut bare = String::new();
        let mut in_code = false;
        for c in colored.chars() {
            match c {
                '\u{1b}' => in_code = true,
                'm' if in_code => in_code = false,
                _ if in_code => {}
                c => bare.push(c),
            }
        }
        assert_eq!(bare, text(&record, 100, false));
    }

    #[test]
    fn a_name_cannot_steer_the_terminal() {
        let mut record = sample::quick();
        record.cells[0].model = "evil\u{1b}[2J\r\n\u{7}\u{202e}name".to_owned();
        record.cells[1].skipped = Some("because\u{1b}]0;title\u{7}".to_owned());
        record.baseline = Some(record.cells[0].model.clone());
        let text = text(&record, 100, false);
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
        assert!(!text.contains('\u{202e}'));
    }

    #[test]
    fn unknown_numbers_are_not_zero() {
        let mut record = sample::quick();
        for cell in &mut record.cells {
            cell.server.syscalls_per_request = None;
            cell.rps = None;
        }
        let text = text(&record, 100, false);
        let row = text.lines().find(|line| line.starts_with("poll ")).unwrap();
        assert_eq!(row.matches(UNKNOWN).count(), 2, "{row}");
        assert!(text.contains("– unknown on this machine."));
    }

    #[test]
    fn another_page_is_told_below_the_rows() {
        let mut record = sample::quick();
        assert!(!text(&record, 100, false).contains("Another page"));
        let poll = record.cells.iter_mut().filter(|cell| cell.model == "poll" && cell.protocol == "http");
        poll.for_each(|cell| cell.payload_bytes = 612);
        let text = text(&record, 100, false);
        assert!(text.replace("\n  ", " ").contains("poll answered 612 B instead of 20 B"), "{text}");
        assert!(text.lines().any(|line| line == "HTTP, 64 connections"), "{text}");
    }

    #[test]
    fn an_empty_record_is_only_an_answer() {
        let mut record = sample::quick();
        record.cells.clear();
        record.control.clear();
        assert_eq!(text(&record, 80, false), "Nothing was measured: the record has no results.\n");
    }
}
