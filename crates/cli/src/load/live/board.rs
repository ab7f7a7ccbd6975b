//! The live view of a running load: a pure function from events to lines of text.
//!
//! A column is a slice of a second, the same in every row: rate, latencies, failures. Latencies have a
//! logarithmic scale, so that the tail is visible. Start at [`Board::draw`].

use ringroad_load::{Point, Tally};
use ringroad_measure::units::{Nanos, PerSecond};
use std::collections::VecDeque;

/// Columns that are remembered: no terminal is wider.
const COLUMNS_MAX: usize = 512;

/// What stands left of the columns: a label, and the axis.
const MARGIN: usize = 12;

/// Rows of the plot at most, and what is no plot any more.
const ROWS: (usize, usize) = (8, 3);

/// Lines of a plot beside its rows: a blank, the rate, the failures, the legend.
const AROUND: usize = 4;

const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The legend, and shorter ones where there is less room.
const LEGENDS: [&str; 3] = ["● median  ┃ up to p99  · slowest", "● p50  ┃ p99  · slowest", "●p50 ┃p99 ·max"];

/// The state of a running load.
#[derive(Debug, Default)]
pub(super) struct Board {
    target: String,
    /// Connections, loop, driver: one line.
    load: String,
    end: End,
    /// Connections there are so far while they are made, and how many were wanted.
    pub(super) connecting: (u32, u32),
    /// Connections there are, and how many were wanted; `None`: they are being made.
    pub(super) connections: Option<(u32, u32)>,
    /// Whether the load is over.
    pub(super) is_over: bool,
    columns: VecDeque<Column>,
    /// The last whole second.
    last: Option<Column>,
    /// Whether columns are slices of seconds.
    is_sliced: bool,
    elapsed_s: f64,
    completed: u64,
    failed: u64,
}

/// What was measured in a slice of time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Column {
    seconds: f64,
    completed: u64,
    failed: u64,
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
    max_ns: Option<u64>,
}

impl Column {
    /// Makes the column of so many seconds.
    pub(super) fn of(tally: &Tally, seconds: f64) -> Column {
        let at = |q| tally.latencies.response.quantile_ns(q);
        let Tally { completed, failed, .. } = *tally;
        Column { seconds, completed, failed, p50_ns: at(0.5), p99_ns: at(0.99), max_ns: tally.longest_ns() }
    }
}

impl From<&Point> for Column {
    fn from(point: &Point) -> Column {
        let Point { completed, failed, p50_ns, p99_ns, max_ns, .. } = *point;
        Column { seconds: f64::from(point.seconds), completed, failed, p50_ns, p99_ns, max_ns }
    }
}

/// When it is over.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum End {
    /// Not known.
    #[default]
    Open,
    /// After so many seconds.
    Seconds(f64),
    /// After so many requests.
    Requests(u64),
}

/// A piece of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) text: String,
    pub(super) tint: Tint,
}

/// How it looks where there are colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tint {
    Plain,
    Bold,
    Dim,
    Bad,
}

fn span(text: impl Into<String>, tint: Tint) -> Span {
    Span { text: text.into(), tint }
}

impl Board {
    pub(super) fn new(target: String, load: String, end: End) -> Board {
        Board { target, load, end, ..Board::default() }
    }

    /// Nothing was measured yet.
    pub(super) fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// Takes in a slice of a second.
    pub(super) fn push(&mut self, column: Column) {
        self.is_sliced = true;
        self.add(column);
    }

    /// Takes in a second. Its slices came before it, if there are any.
    pub(super) fn second(&mut self, point: &Point) {
        self.last = Some(Column::from(point));
        if !self.is_sliced {
            self.add(Column::from(point));
        }
    }

    fn add(&mut self, column: Column) {
        self.completed += column.completed;
        self.failed += column.failed;
        self.elapsed_s += column.seconds;
        if self.columns.len() == COLUMNS_MAX {
            self.columns.pop_front();
        }
        self.columns.push_back(column);
    }

    /// Returns the lines of it, at most `height` and none longer than `width`.
    pub(super) fn draw(&self, width: usize, height: usize) -> Vec<Vec<Span>> {
        let mut lines = broken(&self.target, Tint::Bold, width);
        lines.extend(self.progress(width));
        lines.extend(self.now(width));
        let room = width.saturating_sub(MARGIN);
        let shown: Vec<&Column> = self.columns.iter().rev().take(room).rev().collect();
        let rows = height.saturating_sub(lines.len() + AROUND).min(ROWS.0);
        if rows >= ROWS.1 && room > 0 && shown.iter().any(|column| column.p50_ns.is_some()) {
            lines.push(Vec::new());
            lines.push(labelled("rate", Tint::Plain, rates(&shown)));
            lines.extend(plot(&shown, rows));
            lines.push(labelled("failed", Tint::Bad, marks(&shown)));
            lines.push(vec![
                span(format!("{:>width$}└ ", "", width = MARGIN - 1), Tint::Dim),
                span(self.legend(room.saturating_sub(1)), Tint::Dim),
            ]);
        }
        lines.truncate(height);
        lines.iter_mut().for_each(|line| clip(line, width));
        lines
    }

    /// Returns the longest legend for which there is room.
    fn legend(&self, room: usize) -> String {
        let each = self.columns.back().map_or(1.0, |column| column.seconds);
        let whole = format!("{each} s each: {}", LEGENDS[0]);
        let all = std::iter::once(whole).chain(LEGENDS.into_iter().map(str::to_owned));
        all.filter(|legend| legend.chars().count() <= room)
            .max_by_key(|legend| legend.chars().count())
            .unwrap_or_default()
    }

    /// `200 connections, closed loop, io_uring   12 s of 30 s`.
    fn progress(&self, width: usize) -> Vec<Vec<Span>> {
        let elapsed = self.elapsed_s;
        let state = match (self.connections, self.columns.is_empty()) {
            (None, _) if self.connecting.1 > 0 => {
                format!("connecting: {} of {}", self.connecting.0, self.connecting.1)
            }
            (None, _) => "connecting".to_owned(),
            (Some(_), true) => "warming up".to_owned(),
            (Some(_), false) => match self.end {
                _ if self.is_over => format!("{elapsed:.1} s, over"),
                End::Open => format!("{elapsed:.1} s"),
                End::Seconds(all) => format!("{elapsed:.1} s of {all:.0} s"),
                End::Requests(all) => format!("{} of {all} requests", self.completed + self.failed),
            },
        };
        let mut lines = broken(&format!("{}, {state}", self.load), Tint::Plain, width);
        if let Some((there, wanted)) = self.connections.filter(|(there, wanted)| there < wanted) {
            lines.extend(broken(&format!("{there} of {wanted} connections"), Tint::Bad, width));
        }
        lines
    }

    /// Returns the last second in figures, or the last slice before the first second is over.
    fn now(&self, width: usize) -> Vec<Vec<Span>> {
        let Some(last) = self.last.or(self.columns.back().copied()) else { return vec![Vec::new()] };
        let time = |ns: Option<u64>| ns.map_or("-".to_owned(), |ns| Nanos(ns).to_string());
        let rate = PerSecond(last.completed as f64 / last.seconds.max(f64::MIN_POSITIVE));
        let mut line = vec![span(format!("{:>9}", rate.to_string()), Tint::Bold)];
        let mut used = 9;
        for (name, ns) in [("p50", last.p50_ns), ("p99", last.p99_ns), ("max", last.max_ns)] {
            line.push(span(format!("  {name} "), Tint::Dim));
            line.push(span(format!("{:>7}", time(ns)), Tint::Plain));
            used += 6 + 7;
        }
        let failed = vec![
            span("  failed ", Tint::Dim),
            span(self.failed.to_string(), if self.failed > 0 { Tint::Bad } else { Tint::Plain }),
        ];
        if used + 9 + self.failed.to_string().len() <= width {
            line.extend(failed);
            return vec![line];
        }
        vec![line, failed]
    }
}

/// Returns a text in lines no longer than `width`, broken between words where there is a blank.
fn broken(text: &str, tint: Tint, width: usize) -> Vec<Vec<Span>> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split(' ') {
        let Some(line) = lines.last_mut() else { continue };
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.extend([" ", word]);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines.into_iter().map(|line| vec![span(line, tint)]).collect()
}

/// Returns a row: what it is, the axis, and a mark for each column.
fn labelled(label: &str, tint: Tint, marks: String) -> Vec<Span> {
    vec![span(format!("{label:>width$} │", width = MARGIN - 2), Tint::Dim), span(marks, tint)]
}

/// Returns how much was answered, against the best column shown.
fn rates(shown: &[&Column]) -> String {
    let most = shown.iter().map(|column| column.completed).max().unwrap_or(0).max(1);
    shown
        .iter()
        .map(|column| {
            // Rounded up: something is not nothing.
            let level = (column.completed * 8).div_ceil(most) as usize;
            LEVELS.get(level).copied().unwrap_or(' ')
        })
        .collect()
}

fn marks(shown: &[&Column]) -> String {
    shown.iter().map(|point| if point.failed > 0 { '✗' } else { ' ' }).collect()
}

/// Latencies over time.
fn plot(shown: &[&Column], rows: usize) -> Vec<Vec<Span>> {
    let lowest = shown.iter().filter_map(|point| point.p50_ns).min().unwrap_or(1);
    let highest = shown.iter().filter_map(|point| point.max_ns).max().unwrap_or(1);
    let scale = Scale::around(lowest, highest, rows);
    (0..rows)
        .rev()
        .map(|row| {
            let marks = shown.iter().map(|point| {
                let place = |ns: Option<u64>| ns.map(|ns| scale.row(ns));
                let (p50, p99, max) = (place(point.p50_ns), place(point.p99_ns), place(point.max_ns));
                match (p50, p99, max) {
                    (Some(p50), ..) if p50 == row => '●',
                    (Some(p50), Some(p99), _) if p50 < row && row <= p99 => '┃',
                    (.., Some(max)) if max == row => '·',
                    _ => ' ',
                }
            });
            // The lowest, the highest and every other one between are named.
            let label = if row == 0 || row + 1 == rows || row % 2 == 0 && row + 2 < rows {
                Nanos(scale.middle(row)).to_string()
            } else {
                String::new()
            };
            labelled(&label, Tint::Plain, marks.collect())
        })
        .collect()
}

/// A logarithmic scale over rows, row 0 the lowest.
struct Scale {
    bottom: f64,
    /// Rows for a factor of e.
    per_factor: f64,
    rows: usize,
}

impl Scale {
    /// From below `lowest` to above `highest`; at least a factor of two, or noise would fill the plot.
    fn around(lowest: u64, highest: u64, rows: usize) -> Scale {
        let bottom = (lowest.max(1) as f64).ln();
        let top = (highest.max(1) as f64).ln().max(bottom + std::f64::consts::LN_2);
        Scale { bottom, per_factor: rows as f64 / (top - bottom), rows }
    }

    fn row(&self, ns: u64) -> usize {
        let row = ((ns.max(1) as f64).ln() - self.bottom) * self.per_factor;
        (row.max(0.0) as usize).min(self.rows - 1)
    }

    /// Returns the value in the middle of a row.
    fn middle(&self, row: usize) -> u64 {
        (self.bottom + (row as f64 + 0.5) / self.per_factor).exp() as u64
    }
}

/// Cuts a line to this many characters: each of ours is one column wide.
fn clip(line: &mut Vec<Span>, width: usize) {
    let mut left = width;
    line.retain_mut(|span| {
        if let Some((at, _)) = span.text.char_indices().nth(left) {
            span.text.truncate(at);
        }
        left -= span.text.chars().count();
        !span.text.is_empty()
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(at_s: u32, completed: u64, p50_us: u64, p99_us: u64, max_us: u64) -> Point {
        let ns = |us: u64| (completed > 0).then_some(us * 1000);
        Point {
            at_s,
            seconds: 1,
            completed,
            failed: u64::from(completed == 0) * 3,
            p50_ns: ns(p50_us),
            p99_ns: ns(p99_us),
            max_ns: ns(max_us),
        }
    }

    fn board() -> Board {
        let mut board = Board {
            target: "http://127.0.0.1:8080/".to_owned(),
            load: "200 connections, closed loop, 1 thread on io_uring".to_owned(),
            end: End::Seconds(30.0),
            connections: Some((199, 200)),
            ..Board::default()
        };
        for (at, (completed, p50, p99, max)) in [
            (80_000, 1_000, 2_000, 3_000),
            (160_000, 1_000, 2_000, 9_000),
            (0, 0, 0, 0),
            (159_000, 1_000, 8_000, 64_000),
            (1, 64_000, 64_000, 64_000),
        ]
        .into_iter()
        .enumerate()
        {
            board.second(&point(at as u32, completed, p50, p99, max));
        }
        board
    }

    fn text(lines: &[Vec<Span>]) -> String {
        let line = |line: &Vec<Span>| line.iter().map(|span| &*span.text).collect::<String>();
        lines.iter().map(|spans| line(spans).trim_end().to_owned() + "\n").collect()
    }

    #[test]
    fn a_column_is_a_second_in_every_row() {
        let golden = "\
http://127.0.0.1:8080/
200 connections, closed loop, 1 thread on io_uring, 5.0 s of 30 s
199 of 200 connections
  1.00 /s  p50 64.0 ms  p99 64.0 ms  max 64.0 ms  failed 3

      rate │▄█ █▁
   45.3 ms │   ·●
           │
           │ · ┃
   5.66 ms │   ┃
           │┃┃ ┃
   1.41 ms │●● ●
    failed │  ✗
           └ 1 s each: ● median  ┃ up to p99  · slowest
";
        assert_eq!(text(&board().draw(100, 14)), golden);
    }

    #[test]
    fn what_does_not_fit_a_line_goes_on_in_the_next_and_the_legend_is_shorter() {
        let told = text(&board().draw(40, 20));
        assert!(
            told.contains("200 connections, closed loop, 1 thread\non io_uring, 5.0 s of 30 s\n"),
            "{told}"
        );
        assert!(told.contains("\n  failed 3\n") && told.contains("└ ● p50  ┃ p99  · slowest\n"), "{told}");
        let words =
            |width| text(&board().draw(width, 30)).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        for width in [30, 45, 60, 90] {
            assert!(words(width).iter().any(|word| word == "io_uring,"), "{width}: no word is cut");
        }
    }

    #[test]
    fn columns_are_slices_of_seconds_where_there_are_any() {
        let mut board = Board { connections: Some((5, 5)), end: End::Seconds(9.0), ..Board::default() };
        board.connecting = (3, 5);
        let mut tally = Tally::new(false);
        tally.completed = 100;
        tally.latencies.response.record_n(1_000_000, 100);
        for _ in 0..6 {
            board.push(Column::of(&tally, 0.25));
        }
        board.second(&point(0, 400, 2_000, 2_000, 2_000));
        let told = text(&board.draw(80, 24));
        assert!(told.contains("1.5 s of 9 s") && told.contains("rate │██████\n"), "{told}");
        assert!(told.contains("0.25 s each: ●") && told.contains("400 /s  p50 2.00 ms"), "{told}");
        board.is_over = true;
        assert!(text(&board.draw(80, 24)).contains("1.5 s, over"));
        let board = Board { connecting: (3, 5), ..Board::default() };
        assert!(text(&board.draw(80, 24)).contains("connecting: 3 of 5"));
    }

    #[test]
    fn it_fits_any_terminal() {
        let mut board = board();
        (5..2_000).for_each(|at| board.second(&point(at, 7, 100, 200, 300)));
        for width in [0, 1, 11, 12, 13, 40, 80, 1_000] {
            for height in [0, 1, 3, 9, 10, 24] {
                let lines = board.draw(width, height);
                assert!(lines.len() <= height, "{width}x{height}");
                let widest = lines.iter().map(|line| line.iter().map(|span| span.text.chars().count()).sum());
                assert!(widest.max().unwrap_or(0usize) <= width, "{width}x{height}");
            }
        }
        assert!(text(&board.draw(80, 24)).contains("rate │█████"));
    }

    #[test]
    fn before_the_first_second_it_says_what_it_waits_for() {
        let mut board = Board { load: "5 connections".to_owned(), ..Board::default() };
        assert!(text(&board.draw(80, 24)).contains("5 connections, connecting"));
        board.connections = Some((5, 5));
        assert!(text(&board.draw(80, 24)).contains("5 connections, warming up"));
        // Nothing answered is no plot, and no latency of 0.
        board.second(&point(0, 0, 0, 0, 0));
        let text = text(&board.draw(80, 24));
        assert!(text.contains("p50       -") && text.contains("failed 3") && !text.contains('│'), "{text}");
    }
}
