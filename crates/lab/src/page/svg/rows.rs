//! A chart of labelled rows over one horizontal axis: bars, dots, spans.
//!
//! Axes, ticks and text are the parent's; which rows there are, `charts` decides. Start at [`Rows`].

use super::{Axis, Chart, FOOT, ROW, Span, TEXT, WIDTH, shortened, text_width};

/// What a row shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mark {
    /// A bar from zero, and the interval around its end.
    Bar(f64, Option<(f64, f64)>),
    /// A bar from zero in two parts, one behind the other, and the interval around the end of both.
    Stack([f64; 2], Option<(f64, f64)>),
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
            Mark::Stack([first, second], whisker) => Mark::Bar(first + second, whisker).reach(),
            Mark::Between(from, to) => vec![from, to],
            Mark::Nothing => Vec::new(),
        }
    }
}

/// Room for the text right of the plot, at most: that of two sizes with their units.
const VALUE_MAX: f64 = 140.0;

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
    /// The description for screen readers.
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
        let mut chart = Chart::new(&self.title, WIDTH);
        let widest = |texts: &mut dyn Iterator<Item = &str>| texts.map(text_width).fold(0.0, f64::max);
        let left = widest(&mut self.rows.iter().map(|row| row.label.as_str())).clamp(24.0, 112.0) + 8.0;
        let with_mark = |row: &&Row| row.mark != Mark::Nothing;
        let right = widest(&mut self.rows.iter().filter(with_mark).map(|row| row.text.as_str()))
            .clamp(20.0, VALUE_MAX)
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
                    draw_bar(&mut chart, "bar", (x(0.0), x(value)), middle);
                    draw_whisker(&mut chart, whisker.map(|(low, high)| (x(low), x(high))), middle);
                }
                Mark::Stack([first, second], whisker) => {
                    draw_bar(&mut chart, "bar", (x(first), x(first + second)), middle);
                    draw_bar(&mut chart, "bar inner", (x(0.0), x(first)), middle);
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

fn draw_bar(chart: &mut Chart, class: &str, (from, to): (f64, f64), middle: f64) {
    chart.put(format_args!(
        "<rect class=\"{class}\" x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"11\"/>",
        middle - 5.5,
        (to - from).max(0.75)
    ));
}

fn draw_whisker(chart: &mut Chart, ends: Option<(f64, f64)>, middle: f64) {
    if let Some((low, high)) = ends {
        let top = middle - 3.5;
        chart.put(format_args!(
            "<path class=\"whisker\" d=\"M{low:.1} {middle:.1}H{high:.1}M{low:.1} {top:.1}v7M{high:.1} {top:.1}v7\"/>"
        ));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::page::svg::Scale;

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
}
