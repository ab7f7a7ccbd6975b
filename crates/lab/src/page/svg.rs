//! A small writer of charts as inline SVG: rows of bars, dots and spans, and lines over a logarithmic axis.
//!
//! It handles geometry, ticks, labels and escaping, and does not use records. Colours come from the page's
//! style sheet through class names, so that one file serves light, dark and print. A chart is 360 units wide,
//! the width of a phone, so that its text stays readable; lines are also drawn in a wide version. Colour
//! alone carries no information: every row has its label and number, every line its own marker and label, and
//! every mark a `<title>` that shows on hover.
//!
//! Start at [`Rows`] and [`Lines`]; both end in [`Chart`].

mod lines;
mod rows;

pub(crate) use lines::{Along, Band, Lines, Point, Series, Size};
pub(crate) use rows::{Mark, Row, Rows};

use std::fmt::Write;

/// Width of a chart in its own units, unless it is drawn wide.
const WIDTH: f64 = 360.0;
/// Height of a row, and of the strip of tick labels below the plot.
const ROW: f64 = 23.0;
const FOOT: f64 = 34.0;
/// Size of the text in the charts' own units; the style sheet sets the same.
const TEXT: f64 = 11.5;
/// Mean width of a character of that size, an upper estimate for sans-serif faces.
const CHAR: f64 = 6.9;

/// Ratio of the width of bold text to that of regular text.
const BOLD: f64 = 1.08;

/// Escapes text for use between tags and in quoted attributes.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // Control characters are not allowed in the document, escaped or not.
            c if c.is_control() && c != '\n' && c != '\t' => safe.push('\u{fffd}'),
            // These two code points are not allowed either.
            '\u{fffe}' | '\u{ffff}' => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

/// The mapping from numbers to positions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scale {
    /// Equal steps, from the first number to the second.
    Linear(f64, f64),
    /// Equal factors; both numbers positive.
    Log(f64, f64),
}

impl Scale {
    /// From zero to a little beyond the largest value.
    pub(crate) fn from_zero(values: impl IntoIterator<Item = f64>) -> Self {
        let most = values.into_iter().filter(|v| v.is_finite()).fold(0.0, f64::max);
        Scale::Linear(0.0, if most > 0.0 { most * 1.04 } else { 1.0 })
    }

    /// Makes a logarithmic scale over the positive values, with some margin at both ends.
    pub(crate) fn log(values: impl IntoIterator<Item = f64>) -> Self {
        let good = values.into_iter().filter(|v| v.is_finite() && *v > 0.0);
        let (low, high) = good.fold((f64::INFINITY, 0.0_f64), |(low, high), v| (low.min(v), high.max(v)));
        if high <= 0.0 {
            return Scale::Log(1.0, 10.0);
        }
        let air = (high / low).powf(0.05).max(1.01);
        Scale::Log(low / air, high * air)
    }

    /// Makes a scale from zero if the values are of similar size, and a logarithmic one if small values would
    /// vanish.
    pub(crate) fn fitting(values: impl IntoIterator<Item = f64> + Clone) -> Self {
        let good = || values.clone().into_iter().filter(|v| v.is_finite() && *v > 0.0);
        let (low, high) = good().fold((f64::INFINITY, 0.0_f64), |(low, high), v| (low.min(v), high.max(v)));
        if high > 12.0 * low { Scale::log(good()) } else { Scale::from_zero(good()) }
    }

    /// Returns whether it is logarithmic. Such a chart is labelled so.
    pub(crate) fn is_log(self) -> bool {
        matches!(self, Scale::Log(..))
    }

    /// Returns the position of a value, 0 to 1; values outside stop at the edge.
    fn place(self, value: f64) -> f64 {
        let share = match self {
            Scale::Linear(low, high) => (value - low) / (high - low),
            Scale::Log(low, high) => (value.max(f64::MIN_POSITIVE) / low).ln() / (high / low).ln(),
        };
        if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Returns round numbers within the scale, the most important first (if labels collide, later ones are
    /// left out).
    fn round_numbers(self) -> Vec<f64> {
        match self {
            Scale::Linear(low, high) => {
                let step = nice_step((high - low) / 4.0);
                let first = (low / step).ceil() as i64;
                // At most a few: the step was chosen for four.
                (first..first + 12).map(|n| n as f64 * step).take_while(|t| *t <= high).collect()
            }
            Scale::Log(low, high) => {
                let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
                let mut ticks = Vec::new();
                // Decades first, then halves, then others for a narrow range; each only if it is within the
                // scale.
                for leads in [
                    &[1.0][..],
                    &[2.0, 5.0],
                    &[3.0, 1.5, 7.0],
                    &[1.2, 4.0, 2.5],
                    &[1.1, 1.05, 0.95, 1.3, 1.7],
                ] {
                    if ticks.len() >= 3 {
                        break;
                    }
                    for decade in decades.clone() {
                        for lead in leads {
                            let tick = lead * 10_f64.powi(decade);
                            if tick >= low && tick <= high {
                                ticks.push(tick);
                            }
                        }
                    }
                }
                ticks
            }
        }
    }
}

/// A scale with its name and the format of its ticks.
pub(crate) struct Axis<'a> {
    /// The quantity and its unit.
    pub(crate) name: &'a str,
    /// The positions of values.
    pub(crate) scale: Scale,
    /// Ticks are round multiples of this; bytes are not round in tens.
    pub(crate) unit: f64,
    /// Formats the label of a tick.
    pub(crate) spell: &'a dyn Fn(f64) -> String,
}

impl Axis<'_> {
    fn ticks(&self) -> Vec<f64> {
        let unit = self.unit;
        let scale = match self.scale {
            Scale::Linear(low, high) => Scale::Linear(low / unit, high / unit),
            Scale::Log(low, high) => Scale::Log(low / unit, high / unit),
        };
        scale.round_numbers().into_iter().map(|tick| tick * unit).collect()
    }

    /// Returns its name, marked if the scale is logarithmic.
    fn label(&self) -> String {
        format!("{}{}", self.name, if self.scale.is_log() { " · log scale" } else { "" })
    }
}

/// Returns a step of 1, 2, 2.5 or 5 times a power of ten, at least as large as `rough`.
fn nice_step(rough: f64) -> f64 {
    let power = 10_f64.powf(rough.log10().floor());
    let lead = rough / power;
    power
        * if lead <= 1.0 {
            1.0
        } else if lead <= 2.0 {
            2.0
        } else if lead <= 2.5 {
            2.5
        } else if lead <= 5.0 {
            5.0
        } else {
            10.0
        }
}

/// A chart as text, and its title.
pub(crate) struct Chart {
    body: String,
    width: f64,
    height: f64,
    title: String,
    description: String,
}

impl Chart {
    fn new(title: &str, width: f64) -> Self {
        Chart { body: String::new(), width, height: 0.0, title: title.to_owned(), description: String::new() }
    }

    /// Returns the `<svg>` element.
    pub(crate) fn into_svg(self) -> String {
        self.element("", 0.0, "")
    }

    /// Returns a separate file: with the name space, a display size, its style inside, and a background with
    /// a margin, since the background of the surrounding page is unknown.
    pub(crate) fn into_file(self, style: &str) -> String {
        const MARGIN: f64 = 14.0;
        let size = format!(
            " xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0}\" height=\"{:.0}\"",
            self.width + 2.0 * MARGIN,
            self.height + 2.0 * MARGIN
        );
        let style = format!("<style>{style}svg {{ background: var(--paper); }}</style>");
        let mut file = self.element(&size, MARGIN, &style);
        file.push('\n');
        file
    }

    fn element(&self, attributes: &str, margin: f64, first: &str) -> String {
        format!(
            "<svg role=\"img\"{attributes} viewBox=\"{} {} {} {:.0}\"><title>{}</title><desc>{}</desc>{first}{}</svg>",
            0.0 - margin,
            0.0 - margin,
            self.width + 2.0 * margin,
            self.height + 2.0 * margin,
            escape(&self.title),
            escape(&self.description),
            self.body
        )
    }

    /// Writing to a string cannot fail.
    fn put(&mut self, markup: std::fmt::Arguments<'_>) {
        let _ = self.body.write_fmt(markup);
    }

    fn line(&mut self, class: &str, x1: f64, y1: f64, x2: f64, y2: f64) {
        self.put(format_args!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        ));
    }

    /// Writes a text. `anchor` is `start`, `middle` or `end`.
    fn text(&mut self, class: &str, x: f64, y: f64, anchor: &str, text: &str) {
        let anchor = if anchor == "start" { String::new() } else { format!(" text-anchor=\"{anchor}\"") };
        self.put(format_args!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\"{anchor}>{}</text>",
            escape(text)
        ));
    }

    /// Opens a group with one hover text, up to the matching [`Chart::close`].
    fn open(&mut self, class: &str, hover: &str) {
        self.put(format_args!("<g class=\"{class}\"><title>{}</title>", escape(hover)));
    }

    fn close(&mut self) {
        self.body.push_str("</g>");
    }

    /// Returns the span from edge to edge.
    fn across(&self) -> Span {
        Span { from: 0.0, to: self.width }
    }

    /// Draws vertical grid lines with labels under the plot; labels that would touch are left out.
    fn foot(&mut self, axis: &Axis<'_>, plot: Span, top: f64, bottom: f64) {
        let mut taken: Vec<Span> = Vec::new();
        for tick in axis.ticks() {
            let x = plot.at(axis.scale.place(tick));
            let label = (axis.spell)(tick);
            let half = text_width(&label) / 2.0;
            let middle = self.across().held(x, half);
            let room = Span { from: middle - half - 4.0, to: middle + half + 4.0 };
            if taken.iter().any(|other| other.touches(room)) {
                continue;
            }
            taken.push(room);
            self.line(if tick == 0.0 { "zero" } else { "grid" }, x, top, x, bottom);
            self.text("tick", middle, bottom + 14.0, "middle", &label);
        }
        let axis = axis.label();
        let middle = self.across().held(plot.middle(), text_width(&axis) / 2.0);
        self.text("axis", middle, bottom + 29.0, "middle", &axis);
    }
}

/// An interval of one axis in chart units.
#[derive(Clone, Copy)]
struct Span {
    from: f64,
    to: f64,
}

impl Span {
    fn at(self, share: f64) -> f64 {
        self.from + share * (self.to - self.from)
    }

    fn touches(self, other: Span) -> bool {
        self.from < other.to && other.from < self.to
    }

    fn length(self) -> f64 {
        self.to - self.from
    }

    fn middle(self) -> f64 {
        (self.from + self.to) / 2.0
    }

    /// Returns the centre of an item that extends `half` to both sides: `place`, or the nearest position that
    /// keeps it inside; the middle if it is longer than the span.
    fn held(self, place: f64, half: f64) -> f64 {
        let middle = self.middle();
        place.clamp((self.from + half).min(middle), (self.to - half).max(middle))
    }
}

fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * CHAR
}

/// Cuts a text to a width, with an ellipsis if it was cut.
fn shortened(text: &str, width: f64) -> String {
    shortened_to(text, (width / CHAR + 0.01).floor() as usize)
}

/// Cuts a text to `room` characters, the last of them an ellipsis if it was cut.
pub(crate) fn shortened_to(text: &str, room: usize) -> String {
    if text.chars().count() <= room {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(room.saturating_sub(1)).collect();
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn linear_ticks_are_round_and_inside() {
        for most in [0.0013, 0.7, 3.98, 12.0, 99.0, 251_000.0] {
            let scale = Scale::from_zero([most]);
            let ticks = scale.round_numbers();
            assert!((3..=6).contains(&ticks.len()), "{most}: {ticks:?}");
            assert_eq!(ticks[0], 0.0);
            let Scale::Linear(_, high) = scale else { panic!("not linear") };
            assert!(ticks.iter().all(|tick| *tick <= high));
        }
    }

    #[test]
    fn ticks_are_round_in_their_own_unit() {
        let spell = |v: f64| v.to_string();
        let axis = Axis {
            name: "bytes",
            scale: Scale::from_zero([4.6 * 1_048_576.0]),
            unit: 1_048_576.0,
            spell: &spell,
        };
        assert_eq!(axis.ticks()[1], 2.0 * 1_048_576.0);
    }

    #[test]
    fn log_ticks_fill_narrow_and_wide_ranges() {
        for (low, high) in [(0.98, 1.04), (0.9, 1.9), (60.0, 10_500.0), (3.0, 4.0)] {
            let ticks = Scale::Log(low, high).round_numbers();
            assert!(!ticks.is_empty(), "{low} to {high}");
            assert!(ticks.iter().all(|tick| *tick >= low && *tick <= high), "{low} to {high}: {ticks:?}");
        }
    }

    #[test]
    fn small_values_beside_large_ones_get_a_log_scale() {
        assert!(Scale::fitting([1.0, 400.0]).is_log());
        assert!(!Scale::fitting([3.0, 8.0]).is_log());
    }

    #[test]
    fn what_is_longer_than_its_stretch_stands_in_the_middle_of_it() {
        let stretch = Span { from: 40.0, to: 100.0 };
        for (place, half, held) in
            [(70.0, 10.0, 70.0), (40.0, 10.0, 50.0), (99.0, 10.0, 90.0), (99.0, 31.0, 70.0)]
        {
            assert_eq!(stretch.held(place, half), held, "{place} ± {half}");
        }
    }

    #[test]
    fn a_tick_label_wider_than_the_chart_is_drawn() {
        let spell = |v: f64| format!("{v} {}", "of something with a long name".repeat(3));
        let mut chart = Chart::new("t", WIDTH);
        let axis = Axis { name: "axis", scale: Scale::from_zero([10.0]), unit: 1.0, spell: &spell };
        chart.foot(&axis, Span { from: 0.0, to: 300.0 }, 0.0, 10.0);
        assert_eq!(chart.body.matches("class=\"tick\"").count(), 1);
    }

    #[test]
    fn tick_labels_never_touch() {
        let spell = |v: f64| format!("a long label {v}");
        let mut chart = Chart::new("t", WIDTH);
        let scale = Scale::from_zero([10.0]);
        let axis = Axis { name: "axis", scale, unit: 1.0, spell: &spell };
        chart.foot(&axis, Span { from: 0.0, to: 300.0 }, 0.0, 10.0);
        let labels = chart.body.matches("class=\"tick\"").count();
        assert!(labels >= 1 && (labels as f64) * text_width("a long label 5") <= WIDTH, "{labels} labels");
    }
}
