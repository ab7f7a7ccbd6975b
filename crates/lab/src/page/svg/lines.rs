//! A chart of lines, each with its own marker and its label at its end.
//!
//! Axes, ticks and text are the parent's; which lines there are, `charts` decides. Start at [`Lines`].

use super::{Axis, BOLD, Chart, FOOT, Scale, Span, TEXT, WIDTH, shortened, text_width};

/// One value of a line.
pub(crate) struct Point {
    /// Where on the horizontal axis.
    pub(crate) x: f64,
    /// Where on the vertical axis.
    pub(crate) y: f64,
    /// The interval around it.
    pub(crate) whisker: Option<(f64, f64)>,
    /// Shown on hover; a point without one only bends the line.
    pub(crate) hover: String,
}

/// One line.
pub(crate) struct Series {
    /// At its end.
    pub(crate) label: String,
    /// Behind the label where there is room: the value at the end.
    pub(crate) end: String,
    /// Style class, which decides the colour.
    pub(crate) class: &'static str,
    /// Which marker, 0 to [`Series::MARKERS`] - 1: so that lines of one colour differ.
    pub(crate) marker: usize,
    /// Drawn broken, so that two lines of one colour differ.
    pub(crate) dashed: bool,
    /// Along the horizontal axis.
    pub(crate) points: Vec<Point>,
}

impl Series {
    /// How many different markers there are.
    pub(crate) const MARKERS: usize = 12;

    /// Every number the vertical scale must reach.
    pub(crate) fn reach(&self) -> Vec<f64> {
        let ends = |point: &Point| point.whisker.map_or([point.y; 2], |(low, high)| [low, high]);
        self.points.iter().flat_map(|point| [point.y].into_iter().chain(ends(point))).collect()
    }
}

/// How the numbers of the horizontal axis become places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Along {
    /// Equal factors are equal ways. All numbers are positive.
    Log,
    /// One step for each number, in the order given: for numbers with a zero among them, or falling ones.
    Steps,
}

/// How large a chart of lines is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// For a phone, and beside others.
    Narrow,
    /// Across a column of text.
    Wide,
}

impl Size {
    fn width(self) -> f64 {
        match self {
            Size::Narrow => WIDTH,
            Size::Wide => 2.1 * WIDTH,
        }
    }

    /// Height of the plot: enough for each line's label, and no less than looks well.
    fn plot(self, lines: usize) -> f64 {
        let least = match self {
            Size::Narrow => 200.0,
            Size::Wide => 290.0,
        };
        (lines as f64 * LABEL).max(least)
    }
}

/// A line that ends further from the edge than this share of the plot ends early.
const EARLY: f64 = 0.12;

/// From one label to the next at least.
const LABEL: f64 = TEXT + 3.0;

/// Lines that lie so close together that they are drawn as the band between the lowest and the highest.
pub(crate) struct Band {
    /// At its end.
    pub(crate) label: String,
    /// The range of values at its end.
    pub(crate) end: String,
    /// The programs in it, told below the chart.
    pub(crate) members: Vec<String>,
    /// For each number of the horizontal axis the lowest value and the highest.
    pub(crate) edges: Vec<(f64, f64, f64)>,
}

impl Band {
    /// Of so many lines one is drawn for those that lie close together.
    const LINES_MIN: usize = 7;
    /// And of so many in it.
    const MEMBERS_MIN: usize = 4;
    /// How far from the median at each place a line may lie.
    const APART: f64 = 0.25;

    /// Takes the lines that lie close to the median of all wherever they have a point out of `series`; `None`
    /// if there are too few for a band. `spell` writes a value, `spell_x` a number of the horizontal axis.
    pub(crate) fn gathered(
        series: &mut Vec<Series>,
        xs: &[f64],
        spell: &dyn Fn(f64) -> String,
        spell_x: &dyn Fn(f64) -> String,
    ) -> Option<Band> {
        if series.len() < Band::LINES_MIN {
            return None;
        }
        let at =
            |series: &Series, x: f64| series.points.iter().find(|point| point.x == x).map(|point| point.y);
        let median = |x: f64| middle(&series.iter().filter_map(|series| at(series, x)).collect::<Vec<_>>());
        let medians: Vec<f64> = xs.iter().map(|x| median(*x)).collect();
        let is_close = |series: &Series| {
            let near = |(x, median): (&f64, &f64)| {
                at(series, *x).is_none_or(|y| (y / median - 1.0).abs() <= Band::APART)
            };
            series.points.len() > 1 && xs.iter().zip(&medians).all(near)
        };
        let (members, others): (Vec<Series>, Vec<Series>) =
            std::mem::take(series).into_iter().partition(is_close);
        if members.len() < Band::MEMBERS_MIN {
            *series = members.into_iter().chain(others).collect();
            return None;
        }
        *series = others;
        let edges: Vec<(f64, f64, f64)> = xs
            .iter()
            .map(|x| {
                let values = || members.iter().filter_map(|series| at(series, *x));
                (*x, values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max))
            })
            .filter(|(_, low, _)| low.is_finite())
            .collect();
        let end = edges
            .last()
            .map_or_else(String::new, |(_, low, high)| format!("{} – {}", spell(*low), spell(*high)));
        Some(Band {
            label: format!("the other {}", members.len()),
            end,
            members: members
                .into_iter()
                .map(|series| match (series.points.last(), xs.last()) {
                    (Some(last), Some(end)) if last.x != *end => {
                        format!("{} (to {})", series.label, spell_x(last.x))
                    }
                    _ => series.label,
                })
                .collect(),
            edges,
        })
    }
}

/// Lines over a horizontal axis with a tick at each given number.
pub(crate) struct Lines<'a> {
    /// The description for screen readers.
    pub(crate) title: String,
    /// Under the horizontal axis.
    pub(crate) x_axis: String,
    /// How the horizontal axis is divided.
    pub(crate) along: Along,
    /// The numbers that have a tick on the horizontal axis, from left to right.
    pub(crate) xs: Vec<f64>,
    /// The vertical axis; its name stands above it.
    pub(crate) y_axis: Axis<'a>,
    /// The lines.
    pub(crate) series: Vec<Series>,
    /// And those that are drawn as one.
    pub(crate) band: Option<Band>,
    /// Tick labels of the horizontal axis.
    pub(crate) spell_x: &'a dyn Fn(f64) -> String,
}

impl Lines<'_> {
    /// Draws it.
    pub(crate) fn draw(&self, size: Size) -> Chart {
        const TOP: f64 = 24.0;
        let drawn: Vec<&Series> = self.series.iter().filter(|s| !s.points.is_empty()).collect();
        let height = size.plot(drawn.len() + usize::from(self.band.is_some()));
        let mut chart = Chart::new(&self.title, size.width());
        let y_scale = self.y_axis.scale;
        let spelled = |tick: f64| (self.y_axis.spell)(tick);
        let widest = |text: &dyn Fn(&Series) -> f64| drawn.iter().map(|s| text(s)).fold(0.0, f64::max);
        let of_band = |text: &dyn Fn(&Band) -> f64| self.band.as_ref().map_or(0.0, text);
        let label_width = widest(&|s| text_width(&s.label) * BOLD)
            .max(of_band(&|band| text_width(&band.label) * BOLD))
            .clamp(30.0, 120.0);
        let end_width = match size {
            Size::Narrow => 0.0,
            Size::Wide => widest(&|s| text_width(&s.end)).max(of_band(&|band| text_width(&band.end))) + 8.0,
        };
        let tick_width = self.y_axis.ticks().into_iter().map(|t| text_width(&spelled(t))).fold(0.0, f64::max);
        let plot = Span { from: tick_width + 8.0, to: size.width() - label_width - end_width - 24.0 };
        let bottom = TOP + height;
        let log = self.log();
        let x = |value: f64| plot.at(self.share(value, log));
        let y = |value: f64| bottom - y_scale.place(value) * height;

        chart.text("axis", 0.0, 11.0, "start", &self.y_axis.label());
        let mut last_label = f64::INFINITY;
        for tick in sorted(self.y_axis.ticks()) {
            let at = y(tick);
            chart.line(if tick == 0.0 { "zero" } else { "grid" }, plot.from, at, plot.to, at);
            if last_label - at > TEXT + 1.0 {
                chart.text("tick", plot.from - 6.0, at + TEXT * 0.36, "end", &spelled(tick));
                last_label = at;
            }
        }
        // The last number matters most, so places are given from the right.
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
        let name = match self.along {
            Along::Log => format!("{} · log scale", self.x_axis),
            Along::Steps => self.x_axis.clone(),
        };
        chart.text("axis", plot.middle(), bottom + 31.0, "middle", &name);

        let end_of = |series: &Series| series.points.last().map_or(plot.from, |last| x(last.x));
        let furthest = drawn.iter().map(|series| end_of(series)).fold(plot.from, f64::max);
        // A line that ends early has its label where it ends: at the edge it would claim a value there.
        let early = |series: &Series| end_of(series) < furthest - EARLY * plot.length();
        let (stopped, through): (Vec<&Series>, Vec<&Series>) = drawn.iter().partition(|series| early(series));
        let mut ends: Vec<f64> = through.iter().filter_map(|s| s.points.last()).map(|p| y(p.y)).collect();
        let band_end = self.band.as_ref().and_then(|band| band.edges.last());
        ends.extend(band_end.map(|(_, low, high)| y((low + high) / 2.0)));
        let mut labels = apart(&ends, LABEL, TOP, bottom);
        if let Some(band) = &self.band {
            let edge = |upper: bool| {
                band.edges.iter().map(move |(x, low, high)| (*x, if upper { *high } else { *low }))
            };
            let outline = edge(true).chain(edge(false).collect::<Vec<_>>().into_iter().rev());
            let outline: Vec<String> =
                outline.map(|(at, value)| format!("{:.1},{:.1}", x(at), y(value))).collect();
            chart.open("pack", &format!("{}: {}", band.label, band.members.join(", ")));
            chart.put(format_args!("<polygon points=\"{}\"/>", outline.join(" ")));
            let label_y = labels.pop().unwrap_or(bottom);
            chart.text("label", plot.to + 20.0, label_y + TEXT * 0.36, "start", &band.label);
            if size == Size::Wide {
                chart.text("end", size.width(), label_y + TEXT * 0.36, "end", &band.end);
            }
            chart.close();
        }
        for (series, label_y) in through.iter().zip(labels) {
            open_line(&mut chart, series, size, &x, &y);
            if let Some(last) = series.points.last() {
                // A thin line leads from the last point to its label, which may have had to move aside.
                chart.line("leader", x(last.x) + 6.0, y(last.y), plot.to + 16.0, label_y);
            }
            let label = shortened(&series.label, label_width);
            chart.text("label", plot.to + 20.0, label_y + TEXT * 0.36, "start", &label);
            if size == Size::Wide {
                chart.text("end", size.width(), label_y + TEXT * 0.36, "end", &series.end);
            }
            chart.close();
        }
        // Labels that stand in the plot, which must not cover each other.
        let mut taken: Vec<(Span, f64)> = Vec::new();
        for series in stopped {
            open_line(&mut chart, series, size, &x, &y);
            if let Some(last) = series.points.last() {
                // On the side where the others are not.
                let beside = drawn.iter().flat_map(|other| &other.points).filter(|point| point.x == last.x);
                let others: Vec<f64> = beside.map(|point| y(point.y)).collect();
                let (above, below) = (y(last.y) - 9.0, y(last.y) + 9.0 + TEXT * 0.72);
                let upwards = y(last.y) <= middle(&others);
                let label = shortened(&series.label, plot.length() / BOLD);
                let half = text_width(&label) * BOLD / 2.0;
                let at = plot.held(x(last.x), half);
                let room = Span { from: at - half, to: at + half };
                // No label on another, on a line, or in the band.
                let free = |place: &f64| {
                    let (top, foot) = (place - TEXT, place + TEXT * 0.3);
                    let on_line = drawn.iter().any(|other| {
                        let line: Vec<(f64, f64)> =
                            other.points.iter().map(|point| (x(point.x), y(point.y))).collect();
                        let whiskers =
                            other.points.iter().filter_map(|point| Some((x(point.x), point.whisker?)));
                        let on_whisker = |(at, (low, high)): (f64, (f64, f64))| {
                            (room.from..=room.to).contains(&at) && y(high) <= foot && y(low) >= top
                        };
                        crosses(&line, room, top, foot) || whiskers.into_iter().any(on_whisker)
                    });
                    let in_band = self.band.as_ref().is_some_and(|band| {
                        let edge = |upper: bool| -> Vec<(f64, f64)> {
                            let value = |low, high| if upper { high } else { low };
                            band.edges.iter().map(|(at, low, high)| (x(*at), y(value(*low, *high)))).collect()
                        };
                        let (upper, lower) = (edge(true), edge(false));
                        crosses(&upper, room, top, foot)
                            || crosses(&lower, room, top, foot)
                            || height_at(&upper, at)
                                .zip(height_at(&lower, at))
                                .is_some_and(|(a, b)| a < *place && *place < b)
                    });
                    let on_label = taken
                        .iter()
                        .any(|(other, there)| other.touches(room) && (there - place).abs() < LABEL);
                    !on_line && !in_band && !on_label
                };
                // Farther away where the place is taken, and on the other side where that has no end.
                let farther = |nth: u8| {
                    let away = f64::from(nth) * LABEL;
                    if upwards { [above - away, below + away] } else { [below + away, above - away] }
                };
                let inside = |place: &f64| (TOP + TEXT..bottom - 2.0).contains(place);
                let place = (0..16).flat_map(farther).filter(inside).find(free);
                let place = place.unwrap_or(if upwards { above } else { below });
                if (place - y(last.y)).abs() > 2.0 * LABEL {
                    let to = if place < y(last.y) { place + TEXT * 0.3 } else { place - TEXT };
                    chart.line("leader", x(last.x), y(last.y), at, to);
                }
                chart.text("label near", at, place, "middle", &label);
                taken.push((room, place));
            }
            chart.close();
        }
        let ends = |series: &Series| {
            let mut said = series.points.iter().map(|point| &point.hover).filter(|hover| !hover.is_empty());
            match (said.next(), said.next_back()) {
                (Some(first), Some(last)) => format!("{} from {first} to {last}", series.label),
                (Some(only), None) => format!("{} {only}", series.label),
                _ => String::new(),
            }
        };
        let pack =
            self.band.iter().map(|band| format!("{}: {}, {}", band.label, band.members.join(", "), band.end));
        chart.description =
            drawn.iter().map(|series| ends(series)).chain(pack).collect::<Vec<_>>().join("; ");
        chart.height = bottom + FOOT + 2.0;
        if let Some(band) = &self.band {
            let mut line = format!("{}:", band.label);
            for (nth, member) in band.members.iter().enumerate() {
                let word = format!(" {member}{}", if nth + 1 < band.members.len() { "," } else { "" });
                if text_width(&line) + text_width(&word) > size.width() {
                    chart.text("axis", 0.0, chart.height + TEXT, "start", &line);
                    chart.height += LABEL;
                    line = String::new();
                }
                line.push_str(&word);
            }
            chart.text("axis", 0.0, chart.height + TEXT, "start", line.trim_start());
            chart.height += LABEL + 2.0;
        }
        chart
    }

    fn log(&self) -> Scale {
        let all = self.series.iter().flat_map(|series| &series.points).map(|point| point.x);
        Scale::log(self.xs.iter().copied().chain(all))
    }

    /// Returns where a number stands between the ends of the horizontal axis, 0 to 1.
    fn share(&self, value: f64, log: Scale) -> f64 {
        match self.along {
            Along::Log => log.place(value),
            Along::Steps => {
                let nth = self.xs.iter().position(|x| *x == value).unwrap_or(0);
                // Half a step of air at both ends.
                (nth as f64 + 0.5) / self.xs.len().max(1) as f64
            }
        }
    }
}

/// Opens a line's group and draws the line with its marked points. A phone has no pointer to hover with:
/// there the points have no text of their own, the chart's description and the table have it.
fn open_line(chart: &mut Chart, series: &Series, size: Size, x: &dyn Fn(f64) -> f64, y: &dyn Fn(f64) -> f64) {
    let dashed = if series.dashed { " dashed" } else { "" };
    chart.open(&format!("series {}{dashed}", series.class), &series.label);
    let path: Vec<String> = series.points.iter().map(|p| format!("{:.1},{:.1}", x(p.x), y(p.y))).collect();
    chart.put(format_args!("<polyline points=\"{}\"/>", path.join(" ")));
    for point in series.points.iter().filter(|point| !point.hover.is_empty()) {
        let (at, height) = (x(point.x), y(point.y));
        if size == Size::Wide {
            chart.open("point", &format!("{}: {}", series.label, point.hover));
        }
        if let Some((low, high)) = point.whisker {
            chart.line("whisker", at, y(low), at, y(high));
        }
        draw_marker(chart, series.marker, at, height);
        if size == Size::Wide {
            chart.put(format_args!("<circle class=\"hit\" cx=\"{at:.1}\" cy=\"{height:.1}\" r=\"11\"/>"));
            chart.close();
        }
    }
}

/// Returns the height of a line above a place of the horizontal axis; `None` beside its ends.
fn height_at(line: &[(f64, f64)], at: f64) -> Option<f64> {
    line.windows(2).find_map(|pair| {
        let [(x1, y1), (x2, y2)] = [pair[0], pair[1]];
        (x1 <= at && at <= x2).then(|| if x2 > x1 { y1 + (y2 - y1) * (at - x1) / (x2 - x1) } else { y1 })
    })
}

/// Returns whether a line passes through the box of a label, or has a point in it.
fn crosses(line: &[(f64, f64)], room: Span, top: f64, foot: f64) -> bool {
    const STEPS: u32 = 16;
    let places = (0..=STEPS).map(|nth| room.from + room.length() * f64::from(nth) / f64::from(STEPS));
    let passes = places.filter_map(|at| height_at(line, at)).any(|height| (top..=foot).contains(&height));
    passes || line.iter().any(|(x, y)| (room.from..=room.to).contains(x) && (top..=foot).contains(y))
}

/// Returns the middle one of some places; the top if there are none.
fn middle(places: &[f64]) -> f64 {
    sorted(places.to_vec()).get(places.len() / 2).copied().unwrap_or(0.0)
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn lines(along: Along, xs: Vec<f64>, series: Vec<Series>) -> Lines<'static> {
        Lines {
            title: "t".to_owned(),
            x_axis: "x".to_owned(),
            along,
            xs,
            y_axis: Axis { name: "y", scale: Scale::from_zero([4.5]), unit: 1.0, spell: &|v| v.to_string() },
            series,
            band: None,
            spell_x: &|v| v.to_string(),
        }
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
    fn every_line_ends_in_its_own_label() {
        let series = |label: &str, marker, y: f64| Series {
            label: label.to_owned(),
            end: "4 µs".to_owned(),
            class: "s-epoll",
            marker,
            dashed: false,
            points: vec![
                Point { x: 64.0, y, whisker: None, hover: "first".to_owned() },
                Point { x: 10_000.0, y, whisker: Some((y * 0.9, y * 1.1)), hover: "last".to_owned() },
            ],
        };
        for size in [Size::Narrow, Size::Wide] {
            let svg = lines(
                Along::Log,
                vec![64.0, 1000.0, 10_000.0],
                vec![series("one", 0, 4.0), series("two", 1, 4.0), series("three", 2, 4.01)],
            )
            .draw(size)
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

    #[test]
    fn a_line_that_ends_early_has_its_label_where_it_ends() {
        let series = |label: &str, xs: &[f64]| Series {
            label: label.to_owned(),
            end: String::new(),
            class: "s-poll",
            marker: 0,
            dashed: false,
            points: xs
                .iter()
                .map(|x| Point { x: *x, y: 4.0, whisker: None, hover: "here".to_owned() })
                .collect(),
        };
        let all = vec![series("long", &[64.0, 1000.0, 10_000.0]), series("short", &[64.0, 1000.0])];
        let svg = lines(Along::Log, vec![64.0, 1000.0, 10_000.0], all).draw(Size::Wide).into_svg();
        let document = roxmltree::Document::parse(&svg).unwrap();
        let label = |text: &str| {
            let mut nodes = document.descendants().filter(|node| node.has_tag_name("text"));
            let node = nodes.find(|node| node.text() == Some(text)).unwrap();
            (
                node.attribute("class").unwrap().to_owned(),
                node.attribute("x").unwrap().parse::<f64>().unwrap(),
            )
        };
        let ((long, edge), (short, inside)) = (label("long"), label("short"));
        assert_eq!((long.as_str(), short.as_str()), ("label", "label near"));
        assert!(inside < edge - 100.0, "{inside} and {edge}");
    }

    #[test]
    fn a_long_name_that_ends_early_is_shortened_to_the_plot() {
        let point = |x: f64| Point { x, y: 4.0, whisker: None, hover: "here".to_owned() };
        let series = |label: &str, points: Vec<Point>| Series {
            label: label.to_owned(),
            end: String::new(),
            class: "s-other",
            marker: 0,
            dashed: false,
            points,
        };
        for size in [Size::Narrow, Size::Wide] {
            for chars in 1..150 {
                let name = "m".repeat(chars);
                let all = vec![
                    series(&"l".repeat(20), vec![point(64.0), point(10_000.0)]),
                    series(&name, vec![point(64.0)]),
                ];
                let svg = lines(Along::Log, vec![64.0, 10_000.0], all).draw(size).into_svg();
                let document = roxmltree::Document::parse(&svg).unwrap();
                let mut nodes = document.descendants();
                let node = nodes.find(|node| node.attribute("class") == Some("label near")).unwrap();
                let (at, label): (f64, &str) =
                    (node.attribute("x").unwrap().parse().unwrap(), node.text().unwrap());
                let half = text_width(label) * BOLD / 2.0;
                // At the edge is the label of the other line.
                let plot = Span { from: 8.0, to: size.width() - 120.0 };
                assert!(at - half >= plot.from && at + half <= plot.to, "{size:?}: {label} at {at}");
                assert_eq!(label == name, !label.ends_with('…'), "{label}");
                assert!(chars > 20 || label == name, "{label}");
            }
        }
    }

    fn plain(label: &str, points: &[(f64, f64)]) -> Series {
        let point = |(x, y): &(f64, f64)| Point { x: *x, y: *y, whisker: None, hover: "here".to_owned() };
        Series {
            label: label.to_owned(),
            end: String::new(),
            class: "s-epoll",
            marker: 0,
            dashed: false,
            points: points.iter().map(point).collect(),
        }
    }

    #[test]
    fn lines_that_cannot_be_told_apart_become_one_band_and_the_others_stay() {
        let xs = [10.0, 100.0];
        let close =
            |nth: usize| plain(&format!("close-{nth}"), &[(10.0, 4.0 + 0.05 * nth as f64), (100.0, 4.2)]);
        let xs = [xs[0], 50.0, xs[1]];
        let mut series: Vec<Series> = (0..6).map(close).collect();
        series.push(plain("apart", &[(10.0, 8.0), (100.0, 9.0)]));
        series.push(plain("a point", &[(10.0, 4.1)]));
        series.push(plain("short", &[(10.0, 4.3), (50.0, 4.0)]));
        let spell = |value: f64| value.to_string();
        let band = Band::gathered(&mut series, &xs, &spell, &spell).unwrap();
        let left: Vec<&str> = series.iter().map(|series| series.label.as_str()).collect();
        assert_eq!((left.as_slice(), band.members.len()), (&["apart", "a point"][..], 7));
        assert_eq!((band.edges[0], band.members[6].as_str()), ((10.0, 4.0, 4.3), "short (to 50)"));
        assert_eq!(band.label, "the other 7");
        let drawn = Lines { band: Some(band), ..lines(Along::Log, xs.to_vec(), series) }.draw(Size::Wide);
        assert!(drawn.description.contains("the other 7: close-0, close-1"), "{}", drawn.description);
        let svg = drawn.into_svg();
        roxmltree::Document::parse(&svg).unwrap();
        assert!(svg.contains("<polygon points=") && svg.contains("close-5"));
        // Few lines are drawn each.
        let mut few: Vec<Series> = (0..5).map(close).collect();
        assert!(Band::gathered(&mut few, &xs, &spell, &spell).is_none());
        assert_eq!(few.len(), 5);
    }

    #[test]
    fn a_label_in_the_plot_lies_on_no_line() {
        for size in [Size::Narrow, Size::Wide] {
            let mut all: Vec<Series> = (0..3)
                .map(|nth| {
                    plain(&format!("through-{nth}"), &[(10.0, 3.5 + 0.4 * f64::from(nth)), (1000.0, 4.0)])
                })
                .collect();
            all.push(plain("short", &[(10.0, 3.9), (100.0, 3.95)]));
            let svg = lines(Along::Log, vec![10.0, 100.0, 1000.0], all).draw(size).into_svg();
            let document = roxmltree::Document::parse(&svg).unwrap();
            let label =
                document.descendants().find(|node| node.attribute("class") == Some("label near")).unwrap();
            let number = |name: &str| label.attribute(name).unwrap().parse::<f64>().unwrap();
            let half = text_width("short") * BOLD / 2.0;
            let room = Span { from: number("x") - half, to: number("x") + half };
            for line in document.descendants().filter(|node| node.has_tag_name("polyline")) {
                let places: Vec<(f64, f64)> = line
                    .attribute("points")
                    .unwrap()
                    .split(' ')
                    .map(|pair| {
                        pair.split_once(',').map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap())).unwrap()
                    })
                    .collect();
                assert!(!crosses(&places, room, number("y") - TEXT, number("y")), "{size:?}: {places:?}");
            }
        }
    }

    /// Zero has no logarithm, and shares are shown falling.
    #[test]
    fn steps_stand_in_the_order_given_also_a_zero() {
        let xs = vec![100.0, 10.0, 0.0];
        let chart = lines(Along::Steps, xs.clone(), vec![]);
        let places: Vec<f64> = xs.iter().map(|x| chart.share(*x, chart.log())).collect();
        assert!(places.windows(2).all(|pair| pair[1] - pair[0] > 0.3), "{places:?}");
        assert!(places.iter().all(|place| (0.1..=0.9).contains(place)), "{places:?}");
    }

    #[test]
    fn a_point_without_hover_bends_the_line_and_has_no_marker() {
        let point = |x: f64, hover: &str| Point { x, y: x, whisker: None, hover: hover.to_owned() };
        let series = Series {
            label: "one".to_owned(),
            end: String::new(),
            class: "s-epoll",
            marker: 0,
            dashed: false,
            points: vec![point(2.0, "half"), point(5.0, ""), point(10.0, "nine of ten")],
        };
        let chart = lines(Along::Log, vec![2.0, 10.0], vec![series]).draw(Size::Narrow);
        assert!(chart.description.contains("one from half to nine of ten"), "{}", chart.description);
        let svg = chart.into_svg();
        assert_eq!(svg.matches("class=\"marker\"").count(), 2);
        let document = roxmltree::Document::parse(&svg).unwrap();
        let line = document.descendants().find(|node| node.has_tag_name("polyline")).unwrap();
        assert_eq!(line.attribute("points").unwrap().split(' ').count(), 3);
    }

    #[test]
    fn labels_of_lines_that_stop_at_one_place_do_not_cover_each_other() {
        let point = |x: f64, y: f64| Point { x, y, whisker: None, hover: "here".to_owned() };
        let series = |label: &str, points: Vec<Point>| Series {
            label: label.to_owned(),
            end: String::new(),
            class: "s-epoll",
            marker: 0,
            dashed: false,
            points,
        };
        for size in [Size::Narrow, Size::Wide] {
            let mut all = vec![series("through", vec![point(10.0, 2.0), point(1000.0, 2.0)])];
            all.extend(["one", "two", "three", "four"].map(|label| series(label, vec![point(10.0, 2.0)])));
            let chart = lines(Along::Log, vec![10.0, 1000.0], all).draw(size);
            let svg = chart.into_svg();
            let document = roxmltree::Document::parse(&svg).unwrap();
            let mut heights: Vec<f64> = document
                .descendants()
                .filter(|node| node.attribute("class") == Some("label near"))
                .map(|node| node.attribute("y").unwrap().parse().unwrap())
                .collect();
            heights.sort_by(f64::total_cmp);
            assert_eq!(heights.len(), 4);
            assert!(heights.windows(2).all(|pair| pair[1] - pair[0] > TEXT), "{heights:?}");
        }
    }
}
