//! The picture of a running load: a pure function from what was told to lines of text.
//!
//! A column is a second, the same second in every row: how much was answered, how long that took, whether something
//! failed. The latencies stand on a logarithmic scale, since the tail is what one looks for. Start at [`Board::draw`].

use ringroad_load::Point;
use ringroad_measure::units::{Nanos, PerSecond};
use std::collections::VecDeque;

/// Seconds that are remembered: no terminal is wider.
const COLUMNS_MAX: usize = 512;

/// What stands left of the columns: a label, and the axis.
const MARGIN: usize = 12;

/// Rows of the plot at most, and what is no plot any more.
const ROWS: (usize, usize) = (8, 3);

/// Lines around the plot: three of head, a blank, the rate, the failures, the legend.
const AROUND: usize = 7;

const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// What is known of a load while it runs.
#[derive(Debug, Default)]
pub(super) struct Board {
    target: String,
    /// Connections, loop, driver: one line.
    load: String,
    end: End,
    /// Connections there are, and how many were wanted; `None`: they are being made.
    pub(super) connections: Option<(u32, u32)>,
    seconds: VecDeque<Point>,
    completed: u64,
    failed: u64,
}

/// When it is over.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum End {
    /// Nobody knows.
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

    /// Takes in a second.
    pub(super) fn push(&mut self, point: &Point) {
        self.completed += point.completed;
        self.failed += point.failed;
        if self.seconds.len() == COLUMNS_MAX {
            self.seconds.pop_front();
        }
        self.seconds.push_back(*point);
    }

    /// The lines of it, at most `height` and none longer than `width`.
    pub(super) fn draw(&self, width: usize, height: usize) -> Vec<Vec<Span>> {
        let mut lines = vec![vec![span(&*self.target, Tint::Bold)], self.progress(), self.now()];
        let room = width.saturating_sub(MARGIN);
        let shown: Vec<&Point> = self.seconds.iter().rev().take(room).rev().collect();
        let rows = height.saturating_sub(AROUND).min(ROWS.0);
        if rows >= ROWS.1 && room > 0 && shown.iter().any(|point| point.p50_ns.is_some()) {
            lines.push(Vec::new());
            lines.push(labelled("rate", Tint::Plain, rates(&shown)));
            lines.extend(plot(&shown, rows));
            lines.push(labelled("failed", Tint::Bad, marks(&shown)));
            lines.push(vec![
                span(format!("{:>width$}└ ", "", width = MARGIN - 1), Tint::Dim),
                span("a second each: ● median  ┃ up to p99  · slowest", Tint::Dim),
            ]);
        }
        lines.truncate(height);
        lines.iter_mut().for_each(|line| clip(line, width));
        lines
    }

    /// `200 connections, closed loop, io_uring   12 s of 30 s`.
    fn progress(&self) -> Vec<Span> {
        let seconds = self.seconds.back().map_or(0, |last| last.at_s + last.seconds);
        let state = match (self.connections, self.seconds.is_empty()) {
            (None, _) => "connecting".to_owned(),
            (Some(_), true) => "warming up".to_owned(),
            (Some(_), false) => match self.end {
                End::Open => format!("{seconds} s"),
                End::Seconds(all) => format!("{seconds} s of {all:.0} s"),
                End::Requests(all) => format!("{} of {all} requests", self.completed + self.failed),
            },
        };
        let mut line = vec![span(format!("{}, {state}", self.load), Tint::Plain)];
        if let Some((there, wanted)) = self.connections.filter(|(there, wanted)| there < wanted) {
            line.push(span(format!("  {there} of {wanted} connections"), Tint::Bad));
        }
        line
    }

    /// The last second in figures.
    fn now(&self) -> Vec<Span> {
        let Some(last) = self.seconds.back() else { return Vec::new() };
        let time = |ns: Option<u64>| ns.map_or("-".to_owned(), |ns| Nanos(ns).to_string());
        let rate = PerSecond(last.completed as f64 / f64::from(last.seconds.max(1)));
        let mut line = vec![span(format!("{:>9}", rate.to_string()), Tint::Bold)];
        for (name, ns) in [("p50", last.p50_ns), ("p99", last.p99_ns), ("max", last.max_ns)] {
            line.push(span(format!("  {name} "), Tint::Dim));
            line.push(span(format!("{:>7}", time(ns)), Tint::Plain));
        }
        line.push(span("  failed ", Tint::Dim));
        line.push(span(self.failed.to_string(), if self.failed > 0 { Tint::Bad } else { Tint::Plain }));
        line
    }
}

/// A row: what it is, the axis, and a mark for each second.
fn labelled(label: &str, tint: Tint, marks: String) -> Vec<Span> {
    vec![span(format!("{label:>width$} │", width = MARGIN - 2), Tint::Dim), span(marks, tint)]
}

/// How much was answered, against the best second shown.
fn rates(shown: &[&Point]) -> String {
    let most = shown.iter().map(|point| point.completed).max().unwrap_or(0).max(1);
    shown
        .iter()
        .map(|point| {
            // Rounded up: something is not nothing.
            let level = (point.completed * 8).div_ceil(most) as usize;
            LEVELS.get(level).copied().unwrap_or(' ')
        })
        .collect()
}

fn marks(shown: &[&Point]) -> String {
    shown.iter().map(|point| if point.failed > 0 { '✗' } else { ' ' }).collect()
}

/// Latencies over time.
fn plot(shown: &[&Point], rows: usize) -> Vec<Vec<Span>> {
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

    /// The value in the middle of a row.
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
            board.push(&point(at as u32, completed, p50, p99, max));
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
200 connections, closed loop, 1 thread on io_uring, 5 s of 30 s  199 of 200 connections
  1.00 /s  p50 64.0 ms  p99 64.0 ms  max 64.0 ms  failed 3

      rate │▄█ █▁
   45.3 ms │   ·●
           │
           │ · ┃
   5.66 ms │   ┃
           │┃┃ ┃
   1.41 ms │●● ●
    failed │  ✗
           └ a second each: ● median  ┃ up to p99  · slowest
";
        assert_eq!(text(&board().draw(100, 13)), golden);
    }

    #[test]
    fn it_fits_any_terminal() {
        let mut board = board();
        (5..2_000).for_each(|at| board.push(&point(at, 7, 100, 200, 300)));
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
        board.push(&point(0, 0, 0, 0, 0));
        let text = text(&board.draw(80, 24));
        assert!(text.contains("p50       -") && text.contains("failed 3") && !text.contains('│'), "{text}");
    }
}
