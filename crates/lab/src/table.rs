//! The table for a terminal, at the end of a run and from a record.
//!
//! A block of rows per load, then notes and doubts, each kind once, and the answer as the last sentence.
//! Figures and sentences are the page's. Colour and width are the caller's decision.
//!
//! Start at [`text`].

use crate::page::answer::{self, Answer, Doubt, Standing};
use crate::page::figure::{self, Figure};
use crate::page::shape::{self, Load};
use ringroad_measure::Level;
use ringroad_measure::record::{Cell, Limiter, Record};

/// Below this no column but the cost has room; beyond this a row is hard to follow. Sentences go on to the
/// second.
const WIDTH_MIN: usize = 40;
const WIDTH_MAX: usize = 100;
/// What stands where a number is not known.
const UNKNOWN: &str = "–";
/// The longest bar, the longest name, and the name that columns give way to.
const BAR_MAX: usize = 20;
const NAME_MAX: usize = 24;
const NAME_FIRST: usize = 16;
/// The mark of a verdict and the space behind it.
const MARK: usize = 2;

/// How much is printed besides the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// What the marks mean, every kind of doubt, and the answer.
    #[default]
    Full,
    /// The answer alone.
    Brief,
}

/// Returns the record as text, lines ended by `\n`, none longer than `width` characters; `width` is taken as
/// at least 40 and at most 100. Where columns have no room the less important ones are left out. With `color`
/// there are ANSI colours      in it, which take no width. Names are shown without control characters, so
/// that no program's name can steer the terminal.
pub fn text(record: &Record, width: usize, color: bool) -> String {
    detailed(record, width, color, Detail::Full)
}

/// Writes it as [`text`] does, with the detail asked for.
pub fn detailed(record: &Record, width: usize, color: bool, detail: Detail) -> String {
    let width = width.clamp(WIDTH_MIN, WIDTH_MAX);
    let paint = Paint { color };
    let loads = shape::loads(record);
    let mut out = String::new();
    let columns = Columns::fitting(record, width);
    for load in &loads {
        out.push_str(&block(record, load, &columns, &paint));
        out.push('\n');
    }
    let doubts = answer::doubts(record);
    match detail {
        Detail::Full => {
            for note in notes(record, &loads, &columns) {
                out.push_str(&wrapped(&note, width, "  "));
            }
            out.push_str(&doubted(&doubts, width, &paint));
        }
        Detail::Brief => {
            let kinds = doubts.len();
            if kinds > 0 {
                let s = if kinds == 1 { "" } else { "s" };
                let worst = doubts.iter().map(|doubt| doubt.level).max().unwrap_or(Level::Valid);
                let text = format!("{worst}: {kinds} kind{s} of doubt; without --brief they are printed.");
                out.push_str(&paint.level(worst, &wrapped(&text, width, "  ")));
            }
        }
    }
    if !out.is_empty() && !out.ends_with("\n\n") {
        out.push('\n');
    }
    out.push_str(&paint.bold(&wrapped(&Answer::of(record).short(), width, "")));
    out
}

/// One column of figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Cpu,
    Against,
    Calls,
    P50,
    P99,
    Rate,
    Memory,
}

impl Column {
    const ALL: [Column; 7] =
        [Column::Cpu, Column::Against, Column::Calls, Column::P50, Column::P99, Column::Rate, Column::Memory];
    /// Those that are left out where there is no room, in this order.
    const GIVING_WAY: [Column; 5] = [Column::Memory, Column::P50, Column::Calls, Column::Rate, Column::P99];

    fn head(self) -> &'static str {
        match self {
            Column::Cpu => "CPU µs/req",
            Column::Against => "vs base",
            Column::Calls => "calls",
            Column::P50 => "p50",
            Column::P99 => "p99",
            Column::Rate => "req/s",
            Column::Memory => "memory",
        }
    }

    /// Its width, and the space before it: two where two numbers without a unit would read as one.
    fn room(self) -> (usize, usize) {
        match self {
            Column::Cpu => (11, 1),
            Column::Against => (8, 2),
            Column::Calls => (5, 2),
            Column::P50 => (7, 1),
            // Where the lesser columns have given way it stands behind the ratio.
            Column::P99 => (7, 2),
            Column::Rate => (6, 2),
            Column::Memory => (8, 1),
        }
    }

    fn spelled(self, record: &Record, load: &Load<'_>, cell: &Cell) -> String {
        match self {
            Column::Cpu => cpu(cell),
            Column::Against => against_baseline(record, load, cell),
            Column::Calls => short(Figure::Syscalls, cell),
            Column::P50 => short(Figure::P50, cell),
            Column::P99 => short(Figure::P99, cell),
            Column::Rate => {
                let at_least = if is_client_bound(cell) { "≥" } else { "" };
                format!("{at_least}{}", short(Figure::Rate, cell))
            }
            Column::Memory => short(Figure::Memory, cell),
        }
    }
}

/// Returns whether the load generator was the bottleneck: the program can do more.
fn is_client_bound(cell: &Cell) -> bool {
    cell.limiter == Some(Limiter::Client)
}

/// Which columns there are, and how wide those that can give are.
struct Columns {
    name: usize,
    bar: usize,
    shown: Vec<Column>,
}

impl Columns {
    fn fitting(record: &Record, width: usize) -> Self {
        let longest =
            shape::models(record).iter().map(|model| clean(model).chars().count()).max().unwrap_or(0);
        let room =
            |shown: &[Column]| shown.iter().map(|column| column.room().0 + column.room().1).sum::<usize>();
        let mut shown = Column::ALL.to_vec();
        if record.baseline.is_none() {
            shown.retain(|column| *column != Column::Against);
        }
        // A column without a number in any row says nothing, but for that of the cost: its absence is news.
        let known = |figure: Figure| record.cells.iter().any(|cell| figure.value(cell).is_some());
        shown.retain(|column| match column {
            Column::Against => known(Figure::Ratio),
            Column::Calls => known(Figure::Syscalls),
            Column::Memory => known(Figure::Memory),
            Column::Cpu | Column::P50 | Column::P99 | Column::Rate => true,
        });
        let wanted = longest.clamp(8, NAME_FIRST);
        for column in Column::GIVING_WAY {
            if MARK + wanted + room(&shown) > width {
                shown.retain(|other| *other != column);
            }
        }
        let free = width.saturating_sub(MARK + room(&shown));
        let name = longest.clamp(8, NAME_MAX).min(free);
        // A bar of one or two characters tells nothing.
        let bar = Some(free - name).and_then(|left| left.checked_sub(2)).filter(|bar| *bar >= 3).unwrap_or(0);
        Columns { name, bar: bar.min(BAR_MAX), shown }
    }

    /// All that stands behind a name.
    fn behind(&self) -> usize {
        let bar = if self.bar > 0 { self.bar + 1 } else { 0 };
        bar + self.shown.iter().map(|column| column.room().0 + column.room().1).sum::<usize>()
    }

    /// Returns a row: its mark, its name, a text for each column, and the bar behind the first.
    fn row(&self, mark: &str, name: &str, bar: &str, spell: impl Fn(Column) -> String) -> String {
        let mut out = format!("{mark:MARK$}{:name$}", cut(&clean(name), self.name), name = self.name);
        for column in &self.shown {
            let (width, space) = column.room();
            out.push_str(&format!("{:space$}{:>width$}", "", cut(&spell(*column), width)));
            if *column == Column::Cpu && self.bar > 0 {
                out.push_str(&format!(" {bar:width$}", width = self.bar));
            }
        }
        out.trim_end().to_owned()
    }
}

/// One load: its title, the heads of the columns, a row for each program.
fn block(record: &Record, load: &Load<'_>, columns: &Columns, paint: &Paint) -> String {
    let (ranked, even) = answer::ranked(record, load);
    let best = &ranked[..even];
    let most = load.cells.iter().filter_map(|cell| Figure::Cpu.value(cell)).fold(0.0, f64::max);
    let mut out = format!("{}\n", paint.bold(&plain(&load.title)));
    out.push_str(&paint.dim(&columns.row("", "", "", |column| column.head().to_owned())));
    out.push('\n');
    for cell in &load.cells {
        if let Some(reason) = &cell.skipped {
            let name = columns.row("", &cell.model, "", |_| String::new());
            let room = (columns.name + columns.behind()).saturating_sub(columns.name + 1);
            let name = format!("{name:width$}", width = MARK + columns.name);
            let line = format!("{name} {}", cut(&format!("skipped: {}", clean(reason)), room));
            out.push_str(&paint.dim(line.trim_end()));
            out.push('\n');
            continue;
        }
        let is_best = best.iter().any(|other| std::ptr::eq(*other, *cell));
        let bar = bar(Figure::Cpu.value(cell), most, columns.bar);
        let row = columns
            .row(flag(cell.verdict.level), &cell.model, &bar, |column| column.spelled(record, load, cell));
        out.push_str(&match cell.verdict.level {
            Level::Valid if is_best => paint.best(&row),
            level => paint.level(level, &row),
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
    let alone = format!("{value:.digits$}");
    let Some(interval) = Figure::Cpu.interval(cell) else { return alone };
    let half = (interval.high - interval.low) / 2.0;
    // A number that is cut reads as another number: digits behind the point give way, then the interval.
    let spelled = (0..=digits).rev().map(|digits| format!("{value:.digits$} ±{half:.digits$}"));
    spelled.into_iter().find(|text| text.chars().count() <= Column::Cpu.room().0).unwrap_or(alone)
}

/// `= 1.01×`, `1.91×`, `baseline`.
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
    // The sign stands at its number, or beside the next column it would read as a multiplication.
    let times = plain(&figure::times(ratio)).replace(' ', "");
    format!("{}{times}", if even { "= " } else { "" })
}

/// Returns a number that fits its column.
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

/// Returns the value as a part of the largest, in eighths of a character.
fn bar(value: Option<f64>, most: f64, width: usize) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    if width == 0 {
        return String::new();
    }
    let share = value.map_or(0.0, |value| (value / most).clamp(0.0, 1.0));
    let eighths = (share * width as f64 * 8.0).round() as usize;
    let drawn = format!("{}{}", "█".repeat(eighths / 8), PARTS[eighths % 8]);
    drawn
}

/// Returns what the marks in the table mean, for the marks that occur.
fn notes(record: &Record, loads: &[Load<'_>], columns: &Columns) -> Vec<String> {
    let mut notes = Vec::new();
    let ran = || record.cells.iter().filter(|cell| cell.skipped.is_none());
    let shown = |column| columns.shown.contains(&column);
    let mut first = Vec::new();
    if ran().any(|cell| Figure::Cpu.interval(cell).is_some()) {
        first.push("± half of the 95 % interval of the median");
    }
    if shown(Column::Calls) {
        first.push("calls: system calls per request");
    }
    if !first.is_empty() {
        notes.push(format!("{}.", first.join("; ")));
    }
    let equal = loads
        .iter()
        .any(|load| load.cells.iter().any(|cell| against_baseline(record, load, cell).starts_with('=')));
    if equal && shown(Column::Against) {
        notes.push("= no significant difference from the baseline.".to_owned());
    }
    if ran().any(is_client_bound) {
        notes.push(
            "≥ the load generator was the bottleneck: ignore rate and latency; CPU per request is still valid."
                .to_owned(),
        );
    }
    if ran()
        .any(|cell| columns.shown.iter().any(|column| *column != Column::Against && unknown(*column, cell)))
    {
        notes.push("– could not be measured.".to_owned());
    }
    notes.extend(answer::pages(record));
    notes.extend(answer::closing(record));
    notes.extend(answer::beside(record, loads));
    notes.extend(answer::noise(record, loads));
    notes
}

fn unknown(column: Column, cell: &Cell) -> bool {
    let figure = match column {
        Column::Cpu => Figure::Cpu,
        Column::Against => Figure::Ratio,
        Column::Calls => Figure::Syscalls,
        Column::P50 => Figure::P50,
        Column::P99 => Figure::P99,
        Column::Rate => Figure::Rate,
        Column::Memory => Figure::Memory,
    };
    figure.value(cell).is_none()
}

/// Each kind of doubt once: the mark that its rows have, one of those it is about, and how many more there
/// are.
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

/// Returns the mark of a verdict.
pub(crate) fn flag(level: Level) -> &'static str {
    match level {
        Level::Valid => "",
        Level::Suspect => "?",
        Level::Invalid => "!",
    }
}

/// Broken into lines at spaces; lines after the first begin with `indent`. Never cuts within a word unless
/// the word alone is longer than a line.
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

/// Returns the spaces that keep number and unit together on the page are plain ones here.
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
        for (asked, most) in
            [(0, 40), (40, 40), (50, 50), (60, 60), (80, 80), (91, 91), (100, 100), (500, 100)]
        {
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
    fn the_bar_and_then_the_lesser_columns_give_way_where_there_is_no_room() {
        let heads = |width| {
            let text = text(&sample::quick(), width, false);
            let head = text.lines().find(|line| line.contains("CPU µs/req")).unwrap().to_owned();
            (
                text.contains('█'),
                ["calls", "p50", "p99", "req/s", "memory"].map(|head_of| head.contains(head_of)),
            )
        };
        assert_eq!(heads(100), (true, [true; 5]));
        assert_eq!(heads(80), (false, [true; 5]));
        assert_eq!(heads(70), (true, [true, false, true, true, false]));
        assert_eq!(heads(60).1, [false, false, true, true, false]);
        assert_eq!(heads(40).1, [false; 5]);
    }

    #[test]
    fn the_half_of_a_wide_interval_is_rounded_and_not_cut() {
        let of = |value: f64, half: f64| {
            let mut cell = sample::quick().cells[0].clone();
            let mut interval = Figure::Cpu.interval(&cell).unwrap();
            (interval.low, interval.high) = (value - half, value + half);
            cell.server.cpu_us_per_request = Some(value);
            cell.server.cpu_interval = Some(interval);
            cpu(&cell)
        };
        assert_eq!(of(3.912, 0.034), "3.91 ±0.03");
        assert_eq!(of(20.49, 15.3), "20.5 ±15.3");
        assert_eq!(of(98.7, 123.45), "98.7 ±123.5");
        assert_eq!(of(12_345.0, 12_000.0), "12345");
    }

    /// Two numbers beside each other, the first with a sign that belongs between two, read as a product.
    #[test]
    fn a_ratio_carries_its_sign_and_stands_apart_from_the_next_number() {
        for width in [60, 80, 100, 120] {
            let text = text(&sample::quick(), width, false);
            let row = text.lines().find(|line| line.starts_with("  threads ")).unwrap();
            let times = row.find('×').unwrap();
            assert!(row[..times].ends_with(|c: char| c.is_ascii_digit()), "{row}");
            assert!(row[times..].trim_start_matches('×').starts_with("  "), "{row}");
        }
    }

    #[test]
    fn in_brief_there_are_rows_and_the_answer_and_the_count_of_doubts() {
        let record = sample::floor();
        let brief = detailed(&record, 100, false, Detail::Brief);
        let full = text(&record, 100, false);
        let rows = |text: &str| text.lines().take_while(|line| !line.starts_with('±')).count();
        assert!(brief.lines().count() < full.lines().count() && rows(&brief) > 10, "{brief}");
        assert!(brief.contains("INVALID: ") && brief.contains("kinds of doubt"), "{brief}");
        assert!(!brief.contains("calls: system calls"), "{brief}");
    }

    #[test]
    fn every_cell_has_its_row_also_a_skipped_one() {
        let record = sample::floor();
        let text = text(&record, 100, false);
        let rows = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
        for model in shape::models(&record) {
            // A name is followed by a space, so that `uring` does not count `uring-multishot`.
            let all: usize = ["  ", "? ", "! "].iter().map(|mark| rows(&format!("{mark}{model} "))).sum();
            assert_eq!(all, 7, "{model}\n{text}");
        }
        assert!(text.contains("skipped: select(2) holds at most 1,024 descriptors"));
    }

    #[test]
    fn equal_to_the_baseline_is_marked_and_explained() {
        let text = text(&sample::quick(), 100, false);
        let row = text.lines().find(|line| line.starts_with("  uring-multishot")).unwrap();
        assert!(row.contains("= 1.00×"), "{row}");
        let threads = text.lines().find(|line| line.starts_with("  threads")).unwrap();
        assert!(!threads.contains('='), "{threads}");
        assert!(text.contains("= no significant difference from the baseline"));
    }

    #[test]
    fn doubtful_rows_are_marked_and_each_doubt_is_told_once() {
        let text = text(&sample::floor(), 100, false);
        assert!(text.lines().any(|line| line.starts_with("! poll ")));
        assert!(text.lines().any(|line| line.starts_with("? threads ")));
        let told = text.replace("\n  ", " ");
        assert_eq!(told.matches("of its core while the program had time left").count(), 1);
        assert!(told.contains("(and 6 more like it)"));
        assert!(text.contains("≥ the load generator was the bottleneck") && text.contains(" ≥"));
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
        let all = text(&record, 100, false);
        let row = all.lines().find(|line| line.starts_with("  poll ")).unwrap();
        assert_eq!(row.matches(UNKNOWN).count(), 1, "{row}");
        assert!(all.contains("– could not be measured.") && !all.contains("calls"), "{all}");
        record.cells[0].server.syscalls_per_request = Some(1.0);
        let all = text(&record, 100, false);
        let row = all.lines().find(|line| line.starts_with("  poll ")).unwrap();
        assert_eq!(row.matches(UNKNOWN).count(), 2, "{row}");
    }

    #[test]
    fn another_page_is_told_below_the_rows() {
        let mut record = sample::quick();
        assert!(!text(&record, 100, false).contains("response body"));
        let poll = record.cells.iter_mut().filter(|cell| cell.model == "poll" && cell.protocol == "http");
        poll.for_each(|cell| cell.payload_bytes = 612);
        let text = text(&record, 100, false);
        assert!(
            text.replace("\n  ", " ").contains("poll's response body is 612 B, the others' 20 B"),
            "{text}"
        );
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
