//! Output of a running load: on a terminal a live view that is redrawn four times a second, elsewhere plain
//! lines.
//!
//! On stderr, so that the summary can be piped. Drawn on events, never by a timer: between events the drawing
//! thread sleeps and does not disturb the measurement. The last view stays when the load is over. The cursor
//! is never hidden, so a killed load leaves the terminal intact. Start at [`Live`].

mod board;

use crate::complaint::say;
use crate::terminal::shortened;
use board::{Board, Column, End, Span, Tint};
use ringroad_load::{Event, Plan, Point};
use ringroad_measure::units::{Nanos, PerSecond};
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Pictures in a second of a load.
const SLICES: u32 = 4;

/// Interval of the plain lines that show how many connections are open.
const TELLING: Duration = Duration::from_secs(1);

/// Assumed size of a terminal that does not report it.
const SIZE: (usize, usize) = (80, 24);

/// Prints the progress of a load.
pub(super) struct Live {
    way: Way,
    /// Where there is no picture: whether a second is worth a line.
    tells_seconds: bool,
    /// Time of the last line about connecting.
    told: Instant,
}

enum Way {
    Silent,
    Lines,
    Picture(Box<Picture>),
}

struct Picture {
    board: Board,
    colours: bool,
    /// Lines on the terminal above the cursor.
    drawn: usize,
}

impl Live {
    /// `load` describes the load in one line; `searches`: several loads in turn, to find a rate.
    pub(super) fn new(plan: &Plan, load: String, searches: bool, quiet: bool) -> Live {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let way = if quiet {
            Way::Silent
        } else if io::stderr().is_terminal() && !dumb {
            let end = match (plan.duration, plan.count) {
                _ if searches => End::Open,
                (_, Some(count)) => End::Requests(count),
                (Some(length), None) => End::Seconds(length.as_secs_f64()),
                (None, None) => End::Open,
            };
            let board = Board::new(shortened(&plan.target.to_string()), load, end);
            let mut picture = Picture { board, colours: !set("NO_COLOR"), drawn: 0 };
            picture.draw();
            Way::Picture(Box::new(picture))
        } else {
            Way::Lines
        };
        // The seconds of a probe say less than the probe.
        let is_long = plan.duration.is_none_or(|length| length.as_secs() > 2);
        Live { way, tells_seconds: is_long && !searches, told: Instant::now() }
    }

    /// Returns the plan with one slice of figures per picture.
    pub(super) fn wishes(&self, plan: Plan) -> Plan {
        let slices = if matches!(self.way, Way::Picture(_)) { SLICES } else { 1 };
        Plan { slices, ..plan }
    }

    /// Shows a line that stays.
    pub(super) fn note(&mut self, line: &str) {
        match &mut self.way {
            Way::Silent => {}
            Way::Lines => say(line),
            Way::Picture(picture) => {
                picture.clear();
                say(line);
                picture.draw();
            }
        }
    }

    pub(super) fn event(&mut self, event: &Event<'_>) {
        match (&mut self.way, event) {
            (Way::Picture(picture), Event::Connected { connections, wanted }) => {
                picture.board.connections = Some((*connections, *wanted));
                picture.draw();
            }
            (Way::Picture(picture), Event::Connecting { connections, wanted }) => {
                picture.board.connecting = (*connections, *wanted);
                picture.draw();
            }
            (Way::Picture(picture), Event::Slice { tally, .. }) => {
                picture.board.push(Column::of(tally, 1.0 / f64::from(SLICES)));
                picture.draw();
            }
            (Way::Picture(picture), Event::Second { point, whole: true, .. }) => {
                picture.board.second(point);
                picture.draw();
            }
            (Way::Lines, Event::Connecting { connections, wanted }) if self.told.elapsed() >= TELLING => {
                self.told = Instant::now();
                say(&connecting(*connections, *wanted));
            }
            (Way::Lines, Event::Connected { connections, wanted }) if connections < wanted => {
                say(&format!("{connections} of {wanted} connections could be made"));
            }
            (Way::Lines, Event::Second { point, whole: true, .. }) if self.tells_seconds => say(&line(point)),
            (_, Event::Probe { per_second, unmet }) => self.note(&probe(*per_second, unmet.as_deref())),
            _ => {}
        }
    }

    /// Leaves the last picture on the terminal, with a blank line below it. A load that never began has no
    /// picture.
    pub(super) fn finish(&mut self) {
        if let Way::Picture(picture) = &mut self.way {
            if picture.board.is_empty() {
                picture.clear();
            } else {
                picture.board.is_over = true;
                picture.draw();
                write("\n");
                picture.drawn = 0;
            }
        }
    }
}

/// Shows how many connections are open.
fn connecting(connections: u32, wanted: u32) -> String {
    format!("connected {connections} of {wanted}, {} waiting", wanted.saturating_sub(connections))
}

/// Shows a rate that was tried.
fn probe(per_second: f64, unmet: Option<&str>) -> String {
    let rate = PerSecond(per_second).to_string();
    match unmet {
        None => format!("{rate:>10}  met"),
        Some(why) => format!("{rate:>10}  not met: {why}"),
    }
}

/// Prints one second of a load, where there is no picture.
fn line(point: &Point) -> String {
    let time = |ns: Option<u64>| ns.map_or("-".to_owned(), |ns| Nanos(ns).to_string());
    format!(
        "{:>4} s  {:>9}  p50 {:>8}  p99 {:>8}  max {:>8}  failed {}",
        point.at_s + 1,
        PerSecond(point.completed as f64).to_string(),
        time(point.p50_ns),
        time(point.p99_ns),
        time(point.max_ns),
        point.failed,
    )
}

impl Picture {
    fn draw(&mut self) {
        let (width, height) = size();
        // The cursor stands below the picture, and the last column makes some terminals begin a new line.
        let lines = self.board.draw(width.saturating_sub(1), height.saturating_sub(1));
        let mut out = above(self.drawn);
        for line in &lines {
            line.iter().for_each(|span| paint(&mut out, span, self.colours));
            out.push('\n');
        }
        self.drawn = lines.len();
        write(&out);
    }

    fn clear(&mut self) {
        write(&above(self.drawn));
        self.drawn = 0;
    }
}

/// Returns the codes that move to the first of `lines` lines and clear everything below (ECMA-48: CPL, ED).
fn above(lines: usize) -> String {
    if lines == 0 { String::new() } else { format!("\x1b[{lines}F\x1b[J") }
}

fn paint(out: &mut String, span: &Span, colours: bool) {
    let code = match span.tint {
        Tint::Plain => None,
        Tint::Bold => Some("1"),
        Tint::Dim => Some("2"),
        Tint::Bad => Some("31"),
    };
    match code.filter(|_| colours) {
        Some(code) => out.extend(["\x1b[", code, "m", &span.text, "\x1b[0m"]),
        None => out.push_str(&span.text),
    }
}

/// Writes a picture with one call, so that it is never shown in part. A closed stderr is ignored.
fn write(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Returns columns and rows, read each time because windows are resized.
fn size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(io::stderr()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
            (usize::from(size.ws_col), usize::from(size.ws_row))
        }
        _ => SIZE,
    }
}
