//! A small writer of charts as inline SVG: rows of bars, dots and spans, and lines over a logarithmic axis.
//!
//! It knows geometry, ticks, labels and escaping, and nothing of records. Colours come from the page's style
//! sheet through class names, so that one file serves light, dark and print. A chart is 360 units wide, a phone's
//! width, so that its text is never scaled down to dust. Nothing is told by colour alone: every row has its
//! label and number, every line its own marker and label, every mark a `<title>` that shows on hover.
//!
//! Start at [`Rows`] and [`Lines`]; both end in [`Chart`].

use std::fmt::Write;

/// Width of every chart in its own units.
const WIDTH: f64 = 360.0;
/// Height of a row, and of the strip of tick labels below the plot.
const ROW: f64 = 23.0;
const FOOT: f64 = 34.0;
/// Size of the text in the charts' own units; the style sheet sets the same.
const TEXT: f64 = 11.5;
/// Mean width of a character of that size, on the safe side for sans-serif faces.
const CHAR: f64 = 6.9;

/// How much wider bold text is.
const BOLD: f64 = 1.08;

/// Text as it may stand between tags and in quoted attributes.
pub(crate) fn escape(text: &str) -> String {
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
            // Nor are these two, which are no characters.
            '\u{fffe}' | '\u{ffff}' => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

/// How numbers become places.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scale {
    /// Equal steps; from the first number to the second.
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

    /// Over the positive values with a little air at both ends.
    pub(crate) fn log(values: impl IntoIterator<Item = f64>) -> Self {
        let good = values.into_iter().filter(|v| v.is_finite() && *v > 0.0);
        let (low, high) = good.fold((f64::INFINITY, 0.0_f64), |(low, high), v| (low.min(v), high.max(v)));
        if high <= 0.0 {
            return Scale::Log(1.0, 10.0);
        }
        let air = (high / low).powf(0.05).max(1.01);
        Scale::Log(low / air, high * air)
    }

    /// Zero-based where the values are of one size, logarithmic where small ones would vanish.
    pub(crate) fn fitting(values: impl IntoIterator<Item = f64> + Clone) -> Self {
        let good = || values.clone().into_iter().filter(|v| v.is_finite() && *v > 0.0);
        let (low, high) = good().fold((f64::INFINITY, 0.0_f64), |(low, high), v| (low.min(v), high.max(v)));
        if high > 12.0 * low { Scale::log(good()) } else { Scale::from_zero(good()) }
    }

    /// Is it logarithmic? A chart that is says so.
    pub(crate) fn is_log(self) -> bool {
        matches!(self, Scale::Log(..))
    }

    /// The place of a value, 0 to 1; outside values stop at the edge.
    fn place(self, value: f64) -> f64 {
        let share = match self {
            Scale::Linear(low, high) => (value - low) / (high - low),
            Scale::Log(low, high) => (value.max(f64::MIN_POSITIVE) / low).ln() / (high / low).ln(),
        };
        if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Round numbers within the scale, the most important first (where labels collide, later ones go).
    fn round_numbers(self) -> Vec<f64> {
        match self {
            Scale::Linear(low, high) => {
                let step = nice_step((high - low) / 4.0);
                let first = (low / step).ceil() as i64;
                // At most a handful: the step was chosen for four.
                (first..first + 12).map(|n| n as f64 * step).take_while(|t| *t <= high).collect()
            }
            Scale::Log(low, high) => {
                let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
                let mut ticks = Vec::new();
                // Decades first, then halves, then what fills a narrow range; each only if it is inside.
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

/// A scale with its name and the spelling of its ticks.
pub(crate) struct Axis<'a> {
    /// What it measures, in which unit.
    pub(crate) name: &'a str,
    /// Where values stand.
    pub(crate) scale: Scale,
    /// Ticks are round multiples of this; bytes are not round in tens.
    pub(crate) unit: f64,
    /// A tick's label.
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

    /// Its name, and that it is logarithmic if it is.
    fn label(&self) -> String {
        format!("{}{}", self.name, if self.scale.is_log() { " · log scale" } else { "" })
    }
}

/// A step of 1, 2 or 5 times a power of ten, at least as large as asked.
fn nice_step(rough: f64) -> f64 {
    let power = 10_f64.powf(rough.log10().floor());
    let lead = rough / power;
    power
        * if lead <= 1.0 {
            1.0
        } else if lead <= 2.0 {
            2.0
        } else if lead <= 5.0 {
            5.0
        } else {
            10.0
        }
}

/// A chart as text, and what it is called.
pub(crate) struct Chart {
    body: String,
    height: f64,
    title: String,
    description: String,
}

impl Chart {
    fn new(title: &str) -> Self {
        Chart { body: String::new(), height: 0.0, title: title.to_owned(), description: String::new() }
    }

    /// The `<svg>` element.
    pub(crate) fn into_svg(self) -> String {
        format!(
            "<svg role=\"img\" viewBox=\"0 0 {WIDTH} {:.0}\"><title>{}</title><desc>{}</desc>{}</svg>",
            self.height,
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

    /// `anchor` is `start`, `middle` or `end`.
    fn text(&mut self, class: &str, x: f64, y: f64, anchor: &str, text: &str) {
        let anchor = if anchor == "start" { String::new() } else { format!(" text-anchor=\"{anchor}\"") };
        self.put(format_args!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\"{anchor}>{}</text>",
            escape(text)
        ));
    }

    /// Everything put until the matching [`Chart::close`] belongs to one thing with one hover text.
    fn open(&mut self, class: &str, hover: &str) {
        self.put(format_args!("<g class=\"{class}\"><title>{}</title>", escape(hover)));
    }

    fn close(&mut self) {
        self.body.push_str("</g>");
    }

    /// Vertical grid lines with labels under the plot; labels that would touch are left out.
    fn foot(&mut self, axis: &Axis<'_>, plot: Span, top: f64, bottom: f64) {
        let mut taken: Vec<Span> = Vec::new();
        for tick in axis.ticks() {
            let x = plot.at(axis.scale.place(tick));
            let label = (axis.spell)(tick);
            let half = text_width(&label) / 2.0;
            let middle = x.clamp(half, WIDTH - half);
            let room = Span { from: middle - half - 4.0, to: middle + half + 4.0 };
            if taken.iter().any(|other| other.touches(room)) {
                continue;
            }
            taken.push(room);
            self.line(if tick == 0.0 { "zero" } else { "grid" }, x, top, x, bottom);
            self.text("tick", middle, bottom + 14.0, "middle", &label);
        }
        let axis = axis.label();
        let half = text_width(&axis) / 2.0;
        let middle =
            ((plot.from + plot.to) / 2.0).clamp(half.min(WIDTH / 2.0), (WIDTH - half).max(WIDTH / 2.0));
        self.text("axis", middle, bottom + 29.0, "middle", &axis);
    }
}

/// A stretch of one axis in chart units.
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
}

/// What a row shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mark {
    /// A bar from zero, and the interval around its end.
    Bar(f64, Option<(f64, f64)>),
    /// A dot and the interval around it.
    Dot(f64, Option<(f64, f64)>),
    /// Two places and the way between them.
    Between(f64, f64),
    /// Nothing was measured; the row's text says why.
    Nothing,
}

impl Mark {
    /// Every number the scale must reach.
    pub(crate) fn reach(self) -> Vec<f64> {
        match self {
            Mark::Bar(value, whisker) | Mark::Dot(value, whisker) => {
                let (low, high) = whisker.unwrap_or((value, value));
                vec![value, low, high]
            }
            Mark::Between(from, to) => vec![from, to],
            Mark::Nothing => Vec::new(),
        }
    }
}

/// One labelled row.
pub(crate) struct Row {
    /// Left of the plot; shortened if it is long, whole in the hover text.
    pub(crate) label: String,
    /// What is drawn.
    pub(crate) mark: Mark,
    /// Right of the plot, or in it where nothing is drawn.
    pub(crate) text: String,
    /// The long form, shown on hover and read out.
    pub(crate) hover: String,
    /// `best`, `plain`, `suspect`, `invalid` or `absent`: how the style sheet should treat it.
    pub(crate) class: &'static str,
}

/// A chart of rows over one horizontal axis.
pub(crate) struct Rows<'a> {
    /// What it is, for those who cannot see it.
    pub(crate) title: String,
    /// Under the rows.
    pub(crate) axis: Axis<'a>,
    /// A shaded stretch of the axis.
    pub(crate) band: Option<(f64, f64)>,
    /// A line across all rows.
    pub(crate) reference: Option<f64>,
    /// From top to bottom.
    pub(crate) rows: Vec<Row>,
}

impl Rows<'_> {
    /// Draws it.
    pub(crate) fn draw(self) -> Chart {
        let mut chart = Chart::new(&self.title);
        let widest = |texts: &mut dyn Iterator<Item = &str>| texts.map(text_width).fold(0.0, f64::max);
        let left = widest(&mut self.rows.iter().map(|row| row.label.as_str())).clamp(24.0, 112.0) + 8.0;
        let with_mark = |row: &&Row| row.mark != Mark::Nothing;
        let right = widest(&mut self.rows.iter().filter(with_mark).map(|row| row.text.as_str()))
            .clamp(20.0, 124.0)
            + 8.0;
        let plot = Span { from: left, to: WIDTH - right };
        let bottom = ROW * self.rows.len() as f64 + 2.0;
        let x = |value: f64| plot.at(self.axis.scale.place(value));
        if let Some((low, high)) = self.band {
            let (from, to) = (x(low), x(high));
            chart.put(format_args!(
                "<rect class=\"band\" x=\"{from:.1}\" y=\"0\" width=\"{:.1}\" height=\"{bottom:.1}\"/>",
                (to - from).max(1.0)
            ));
        }
        chart.foot(&self.axis, plot, 0.0, bottom);
        if let Some(reference) = self.reference {
            chart.line("reference", x(reference), 0.0, x(reference), bottom);
        }
        for (nth, row) in self.rows.iter().enumerate() {
            let middle = ROW * nth as f64 + ROW / 2.0 + 1.0;
            let baseline = middle + TEXT * 0.36;
            chart.open(&format!("row {}", row.class), &format!("{}: {}", row.label, row.hover));
            // The whole row answers to the pointer, not just the ink.
            chart.put(format_args!(
                "<rect class=\"hit\" x=\"0\" y=\"{:.1}\" width=\"{WIDTH}\" height=\"{ROW}\"/>",
                middle - ROW / 2.0
            ));
            chart.text("label", left - 8.0, baseline, "end", &shortened(&row.label, left - 8.0));
            match row.mark {
                Mark::Bar(value, whisker) => {
                    let (zero, end) = (x(0.0), x(value));
                    chart.put(format_args!(
                        "<rect class=\"bar\" x=\"{zero:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"11\"/>",
                        middle - 5.5,
                        (end - zero).max(0.75)
                    ));
                    draw_whisker(&mut chart, whisker.map(|(low, high)| (x(low), x(high))), middle);
                }
                Mark::Dot(value, whisker) => {
                    draw_whisker(&mut chart, whisker.map(|(low, high)| (x(low), x(high))), middle);
                    chart.put(format_args!(
                        "<circle class=\"dot\" cx=\"{:.1}\" cy=\"{middle:.1}\" r=\"4\"/>",
                        x(value)
                    ));
                }
                Mark::Between(from, to) => {
                    chart.line("way", x(from), middle, x(to), middle);
                    chart.put(format_args!(
                        "<circle class=\"from\" cx=\"{:.1}\" cy=\"{middle:.1}\" r=\"4\"/>",
                        x(from)
                    ));
                    // A bar across the line, so that the two ends differ in shape as well.
                    chart.line("to", x(to), middle - 6.0, x(to), middle + 6.0);
                }
                Mark::Nothing => {
                    let room = WIDTH - plot.from - 6.0;
                    chart.text("value", plot.from + 6.0, baseline, "start", &shortened(&row.text, room));
                }
            }
            if row.mark != Mark::Nothing {
                chart.text("value", plot.to + 8.0, baseline, "start", &shortened(&row.text, right - 8.0));
            }
            chart.close();
        }
        chart.description =
            self.rows.iter().map(|row| format!("{} {}", row.label, row.text)).collect::<Vec<_>>().join("; ");
        chart.height = bottom + FOOT;
        chart
    }
}

fn draw_whisker(chart: &mut Chart, ends: Option<(f64, f64)>, middle: f64) {
    if let Some((low, high)) = ends {
        let top = middle - 3.5;
        chart.put(format_args!(
            "<path class=\"whisker\" d=\"M{low:.1} {middle:.1}H{high:.1}M{low:.1} {top:.1}v7M{high:.1} {top:.1}v7\"/>"
        ));
    }
}

/// One value of a line.
pub(crate) struct Point {
    /// Where on the horizontal axis.
    pub(crate) x: f64,
    /// Where on the vertical axis.
    pub(crate) y: f64,
    /// The interval around it.
    pub(crate) whisker: Option<(f64, f64)>,
    /// Shown on hover.
    pub(crate) hover: String,
}

/// One line.
pub(crate) struct Series {
    /// At its right end.
    pub(crate) label: String,
    /// Which colour the style sheet should give it.
    pub(crate) class: &'static str,
    /// Which marker: one of [`Series::MARKERS`] shapes, by number.
    pub(crate) marker: usize,
    /// Drawn broken, where two lines share a colour.
    pub(crate) dashed: bool,
    /// Ascending in `x`.
    pub(crate) points: Vec<Point>,
}

impl Series {
    /// How many markers there are before shapes repeat.
    pub(crate) const MARKERS: usize = 12;

    /// Every number the vertical scale must reach.
    pub(crate) fn reach(&self) -> Vec<f64> {
        let ends = |point: &Point| point.whisker.map_or([point.y; 2], |(low, high)| [low, high]);
        self.points.iter().flat_map(|point| [point.y].into_iter().chain(ends(point))).collect()
    }
}

/// Lines over a logarithmic horizontal axis with a tick at each given number.
pub(crate) struct Lines<'a> {
    /// What it is, for those who cannot see it.
    pub(crate) title: String,
    /// Under the horizontal axis.
    pub(crate) x_axis: &'a str,
    /// The numbers on the horizontal axis, ascending, positive.
    pub(crate) xs: Vec<f64>,
    /// The vertical axis; its name stands above it.
    pub(crate) y_axis: Axis<'a>,
    /// The lines.
    pub(crate) series: Vec<Series>,
    /// Tick labels of the horizontal axis.
    pub(crate) spell_x: &'a dyn Fn(f64) -> String,
}

impl Lines<'_> {
    /// Draws it.
    pub(crate) fn draw(self) -> Chart {
        const TOP: f64 = 24.0;
        const PLOT: f64 = 196.0;
        let mut chart = Chart::new(&self.title);
        let y_scale = self.y_axis.scale;
        let x_scale = Scale::log(self.xs.iter().copied());
        let widest =
            self.series.iter().map(|s| text_width(&s.label) * BOLD).fold(0.0, f64::max).clamp(30.0, 120.0);
        let tick_width =
            self.y_axis.ticks().iter().map(|t| text_width(&(self.y_axis.spell)(*t))).fold(0.0, f64::max);
        let plot = Span { from: tick_width + 8.0, to: WIDTH - widest - 24.0 };
        let bottom = TOP + PLOT;
        let x = |value: f64| plot.at(x_scale.place(value));
        let y = |value: f64| bottom - y_scale.place(value) * PLOT;

        chart.text("axis", 0.0, 11.0, "start", &self.y_axis.label());
        let mut last_label = f64::INFINITY;
        for tick in sorted(self.y_axis.ticks()) {
            let at = y(tick);
            chart.line(if tick == 0.0 { "zero" } else { "grid" }, plot.from, at, plot.to, at);
            if last_label - at > TEXT + 1.0 {
                chart.text("tick", plot.from - 6.0, at + TEXT * 0.36, "end", &(self.y_axis.spell)(tick));
                last_label = at;
            }
        }
        // The largest number matters most, so places are given from the right.
        let mut free_to = f64::INFINITY;
        for &value in self.xs.iter().rev() {
            let label = (self.spell_x)(value);
            let half = text_width(&label) / 2.0;
            let at = x(value);
            chart.line("tickmark", at, bottom, at, bottom + 4.0);
            if at + half < free_to {
                chart.text("tick", at, bottom + 16.0, "middle", &label);
                free_to = at - half - 4.0;
            }
        }
        chart.text(
            "axis",
            (plot.from + plot.to) / 2.0,
            bottom + 31.0,
            "middle",
            &format!("{} · log scale", self.x_axis),
        );

        let drawn: Vec<&Series> = self.series.iter().filter(|s| !s.points.is_empty()).collect();
        let ends: Vec<f64> = drawn.iter().filter_map(|s| s.points.last()).map(|p| y(p.y)).collect();
        let labels = apart(&ends, TEXT + 2.5, TOP, bottom);
        for (series, label_y) in drawn.iter().zip(labels) {
            let dashed = if series.dashed { " dashed" } else { "" };
            chart.open(&format!("series {}{dashed}", series.class), &series.label);
            let path: Vec<String> =
                series.points.iter().map(|p| format!("{:.1},{:.1}", x(p.x), y(p.y))).collect();
            chart.put(format_args!("<polyline points=\"{}\"/>", path.join(" ")));
            for point in &series.points {
                let (at, height) = (x(point.x), y(point.y));
                chart.open("point", &format!("{}: {}", series.label, point.hover));
                if let Some((low, high)) = point.whisker {
                    chart.line("whisker", at, y(low), at, y(high));
                }
                draw_marker(&mut chart, series.marker, at, height);
                chart.put(format_args!("<circle class=\"hit\" cx=\"{at:.1}\" cy=\"{height:.1}\" r=\"11\"/>"));
                chart.close();
            }
            if let Some(last) = series.points.last() {
                // A thin line leads from the last point to its label, which may have had to move aside.
                chart.line("leader", x(last.x) + 6.0, y(last.y), plot.to + 16.0, label_y);
            }
            chart.text(
                "label",
                plot.to + 20.0,
                label_y + TEXT * 0.36,
                "start",
                &shortened(&series.label, widest),
            );
            chart.close();
        }
        let ends = |series: &Series| match (series.points.first(), series.points.last()) {
            (Some(first), Some(last)) => format!("{} from {} to {}", series.label, first.hover, last.hover),
            _ => String::new(),
        };
        chart.description = drawn.iter().map(|series| ends(series)).collect::<Vec<_>>().join("; ");
        chart.height = bottom + FOOT + 2.0;
        chart
    }
}

/// An upright cross.
const PLUS: [(f64, f64); 12] = [
    (-1.5, -4.2),
    (1.5, -4.2),
    (1.5, -1.5),
    (4.2, -1.5),
    (4.2, 1.5),
    (1.5, 1.5),
    (1.5, 4.2),
    (-1.5, 4.2),
    (-1.5, 1.5),
    (-4.2, 1.5),
    (-4.2, -1.5),
    (-1.5, -1.5),
];

/// Twelve shapes that can be told apart in one colour.
fn draw_marker(chart: &mut Chart, shape: usize, x: f64, y: f64) {
    let polygon = |points: &[(f64, f64)]| {
        let points: Vec<String> =
            points.iter().map(|(dx, dy)| format!("{:.1},{:.1}", x + dx, y + dy)).collect();
        format!("<polygon class=\"marker\" points=\"{}\"/>", points.join(" "))
    };
    let markup = match shape % Series::MARKERS {
        0 => format!("<circle class=\"marker\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.6\"/>"),
        1 => polygon(&[(-3.3, -3.3), (3.3, -3.3), (3.3, 3.3), (-3.3, 3.3)]),
        2 => polygon(&[(0.0, -4.4), (4.2, 3.2), (-4.2, 3.2)]),
        3 => polygon(&[(0.0, -4.8), (4.4, 0.0), (0.0, 4.8), (-4.4, 0.0)]),
        4 => polygon(&[(0.0, 4.4), (4.2, -3.2), (-4.2, -3.2)]),
        5 => format!("<circle class=\"marker hollow\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.4\"/>"),
        6 => {
            polygon(&[(-3.3, -3.3), (3.3, -3.3), (3.3, 3.3), (-3.3, 3.3)]).replace("marker", "marker hollow")
        }
        7 => polygon(&[(0.0, -4.4), (4.2, 3.2), (-4.2, 3.2)]).replace("marker", "marker hollow"),
        8 => polygon(&[(0.0, -4.8), (4.4, 0.0), (0.0, 4.8), (-4.4, 0.0)]).replace("marker", "marker hollow"),
        9 => polygon(&[(0.0, 4.4), (4.2, -3.2), (-4.2, -3.2)]).replace("marker", "marker hollow"),
        10 => polygon(&PLUS),
        _ => polygon(&PLUS).replace("marker", "marker hollow"),
    };
    chart.body.push_str(&markup);
}

/// Moves places apart to at least `gap`, as little as needed and within `low` to `high`; keeps their order.
fn apart(places: &[f64], gap: f64, low: f64, high: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_by(|a, b| places[*a].total_cmp(&places[*b]));
    let mut moved: Vec<f64> = order.iter().map(|nth| places[*nth]).collect();
    let mut free_from = low;
    for place in &mut moved {
        *place = place.max(free_from);
        free_from = *place + gap;
    }
    let mut free_to = high;
    for place in moved.iter_mut().rev() {
        *place = place.min(free_to);
        free_to = *place - gap;
    }
    let mut result = vec![0.0; places.len()];
    for (nth, place) in order.into_iter().zip(moved) {
        result[nth] = place;
    }
    result
}

fn sorted(mut ticks: Vec<f64>) -> Vec<f64> {
    ticks.sort_by(f64::total_cmp);
    ticks
}

fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * CHAR
}

/// Cut to a width, with an ellipsis where something is missing.
fn shortened(text: &str, width: f64) -> String {
    let room = (width / CHAR + 0.01).floor() as usize;
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

    fn row(label: &str, mark: Mark) -> Row {
        Row {
            label: label.to_owned(),
            mark,
            text: "text".to_owned(),
            hover: "hover".to_owned(),
            class: "plain",
        }
    }

    fn rows(rows: Vec<Row>) -> String {
        let scale = Scale::from_zero(rows.iter().flat_map(|row| row.mark.reach()));
        let spell = |v: f64| v.to_string();
        let axis = Axis { name: "a", scale, unit: 1.0, spell: &spell };
        Rows { title: "t".to_owned(), axis, band: None, reference: None, rows }.draw().into_svg()
    }

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
    fn labels_are_moved_apart_and_keep_their_order() {
        // Crowded in the middle, at the upper edge and at the lower one: each edge needs its own pass.
        for places in [[100.0, 101.0, 99.0, 150.0], [24.0, 25.0, 24.5, 26.0], [199.0, 200.0, 198.0, 197.5]] {
            let moved = apart(&places, 14.0, 24.0, 200.0);
            let mut order: Vec<usize> = (0..places.len()).collect();
            order.sort_by(|a, b| places[*a].total_cmp(&places[*b]));
            for pair in order.windows(2) {
                assert!(moved[pair[1]] - moved[pair[0]] >= 14.0 - 1e-9, "{places:?}: {moved:?}");
            }
            assert!(moved.iter().all(|place| (24.0..=200.0).contains(place)), "{places:?}: {moved:?}");
        }
    }

    #[test]
    fn tick_labels_never_touch() {
        let spell = |v: f64| format!("a long label {v}");
        let mut chart = Chart::new("t");
        let scale = Scale::from_zero([10.0]);
        let axis = Axis { name: "axis", scale, unit: 1.0, spell: &spell };
        chart.foot(&axis, Span { from: 0.0, to: 300.0 }, 0.0, 10.0);
        let labels = chart.body.matches("class=\"tick\"").count();
        assert!(labels >= 1 && (labels as f64) * text_width("a long label 5") <= WIDTH, "{labels} labels");
    }

    #[test]
    fn markup_in_names_is_text() {
        let svg = rows(vec![
            row("<script>alert(1)</script>", Mark::Bar(1.0, None)),
            row("a & \"b\" 'c'", Mark::Nothing),
        ]);
        assert!(!svg.contains("<script"));
        let document = roxmltree::Document::parse(&svg).unwrap();
        let said: String = document.descendants().filter_map(|node| node.text()).collect();
        assert!(said.contains("a & \"b\" 'c'"));
    }

    #[test]
    fn control_characters_do_not_break_the_document() {
        let svg = rows(vec![row("bell\u{7}null\u{0}esc\u{1b}[31m\u{fffe}", Mark::Dot(1.0, None))]);
        roxmltree::Document::parse(&svg).unwrap();
    }

    #[test]
    fn a_chart_names_itself_and_each_mark() {
        let svg =
            rows(vec![row("one", Mark::Bar(1.0, Some((0.9, 1.1)))), row("two", Mark::Between(1.0, 2.0))]);
        let document = roxmltree::Document::parse(&svg).unwrap();
        let root = document.root_element();
        assert_eq!(root.attribute("role"), Some("img"));
        let titles = document.descendants().filter(|node| node.has_tag_name("title")).count();
        assert_eq!(titles, 3);
        assert!(root.children().any(|node| node.has_tag_name("desc") && node.text().is_some()));
    }

    #[test]
    fn nothing_is_drawn_outside_the_chart() {
        let svg = rows(vec![
            row("a name that is far longer than any label may be", Mark::Bar(5.0, Some((4.0, 1e9)))),
            row("n", Mark::Bar(f64::INFINITY, None)),
            row("m", Mark::Bar(f64::NAN, None)),
        ]);
        let document = roxmltree::Document::parse(&svg).unwrap();
        for node in document.descendants() {
            for name in ["x", "x1", "x2", "cx", "width"] {
                if let Some(value) = node.attribute(name) {
                    let value: f64 = value.parse().unwrap();
                    assert!((0.0..=WIDTH).contains(&value), "{name}={value} in {node:?}");
                }
            }
        }
    }

    #[test]
    fn every_line_ends_in_its_own_label() {
        let series = |label: &str, marker, y: f64| Series {
            label: label.to_owned(),
            class: "s-epoll",
            marker,
            dashed: false,
            points: vec![
                Point { x: 64.0, y, whisker: None, hover: String::new() },
                Point { x: 10_000.0, y, whisker: Some((y * 0.9, y * 1.1)), hover: String::new() },
            ],
        };
        let spell = |v: f64| v.to_string();
        let svg = Lines {
            title: "t".to_owned(),
            x_axis: "x",
            xs: vec![64.0, 1000.0, 10_000.0],
            y_axis: Axis { name: "y", scale: Scale::from_zero([4.5]), unit: 1.0, spell: &spell },
            series: vec![series("one", 0, 4.0), series("two", 1, 4.0), series("three", 2, 4.01)],
            spell_x: &spell,
        }
        .draw()
        .into_svg();
        let document = roxmltree::Document::parse(&svg).unwrap();
        let mut heights: Vec<f64> = document
            .descendants()
            .filter(|node| node.attribute("class") == Some("label"))
            .map(|node| node.attribute("y").unwrap().parse().unwrap())
            .collect();
        assert_eq!(heights.len(), 3);
        heights.sort_by(f64::total_cmp);
        assert!(heights.windows(2).all(|pair| pair[1] - pair[0] >= TEXT), "{heights:?}");
    }
}
