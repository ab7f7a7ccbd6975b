//! Which chart shows what: the figures of a record's cells as rows and lines.
//!
//! Drawing is `svg`'s part, spelling numbers `figure`'s, judging differences `answer`'s. Every cell of a load
//! gets a row, also one that was skipped or has no known number: an absent bar must say why it is absent.
//! A line leaves such a cell out, and says under the chart that it did.
//!
//! Start at [`load_chart`] and [`family_chart`].

use super::answer::{self, Standing};
use super::figure::{self, Figure};
use super::memory;
use super::shape::{self, Axis, Family, Load};
use super::svg::{self, Along, Chart, Lines, Mark, Point, Row, Rows, Scale, Series, Size, escape};
use ringroad_measure::Level;
use ringroad_measure::record::{Cell, Interval, Record};

/// Returns the chart of one figure under one load, as an `<svg>` element; `None` where no cell has the
/// figure. The chart of [`Figure::P50`] shows the 99th percentile too.
pub(crate) fn load_chart(record: &Record, load: &Load<'_>, figure: Figure) -> Option<String> {
    Some(load_rows(record, load, figure)?.into_svg())
}

/// Returns the same as a file of its own with its looks inside.
pub(crate) fn load_file(record: &Record, load: &Load<'_>, figure: Figure, style: &str) -> Option<String> {
    Some(load_rows(record, load, figure)?.into_file(style))
}

fn load_rows(record: &Record, load: &Load<'_>, figure: Figure) -> Option<Chart> {
    let rows: Vec<Row> = load.cells.iter().map(|cell| row(record, load, cell, figure)).collect();
    if rows.iter().all(|row| row.mark == Mark::Nothing) {
        return None;
    }
    let band = (figure == Figure::Ratio)
        .then(|| answer::control(record, load.name))
        .flatten()
        .map(|c| (c.low, c.high));
    let reach = || rows.iter().flat_map(|row| row.mark.reach());
    let scale = match figure {
        // One scale for all loads, so that their charts can be compared.
        Figure::Ratio => ratio_scale(record),
        Figure::P50 | Figure::P99 => Scale::fitting(reach().collect::<Vec<_>>()),
        // Bars show amounts by their length, which only a scale from zero keeps true.
        _ => Scale::from_zero(reach()),
    };
    let name = match figure {
        Figure::P50 => "latency, ● half and ┃ 99 % of the answers · less is better",
        other => other.axis(),
    };
    let spell = |value: f64| figure.tick(value);
    let title = format!("{}, {}", heading(figure), load.title);
    let reference = (figure == Figure::Ratio).then_some(1.0);
    let unit = figure.tick_unit(reach().fold(0.0, f64::max));
    let axis = svg::Axis { name, scale, unit, spell: &spell };
    Some(Rows { title, axis, band, reference, rows }.draw())
}

fn ratio_scale(record: &Record) -> Scale {
    let ratios = record.cells.iter().filter_map(|cell| cell.ratio);
    let ends = ratios.flat_map(|ratio| [ratio.low, ratio.high]);
    let noise = record.control.iter().flat_map(|control| [control.ratio.low, control.ratio.high]);
    Scale::log(ends.chain(noise).chain([0.95, 1.0, 1.05]))
}

/// Memory of one connection under a load, what the process holds and what the kernel; `None` where no cell
/// tells.
pub(crate) fn memory_chart(record: &Record, load: &Load<'_>) -> Option<String> {
    let rows: Vec<Row> = load.cells.iter().map(|cell| memory_row(record, cell)).collect();
    if rows.iter().all(|row| row.mark == Mark::Nothing) {
        return None;
    }
    let reach = || rows.iter().flat_map(|row| row.mark.reach());
    let most = reach().fold(0.0, f64::max);
    let spell = |value: f64| Figure::Memory.tick(value);
    let title = format!("Memory of one connection, {}", load.title);
    let axis = svg::Axis {
        name: "a connection: process, then kernel · less is better",
        scale: Scale::from_zero(reach()),
        unit: Figure::Memory.tick_unit(most),
        spell: &spell,
    };
    Some(Rows { title, axis, band: None, reference: None, rows }.draw().into_svg())
}

/// One figure along a family's axis, as lines, narrow and wide, of which the style sheet shows one; under it
/// the programs that are not in it. `None` where no program has two points.
pub(crate) fn family_chart(record: &Record, family: &Family<'_>, figure: Figure) -> Option<String> {
    let missing = missing(family, figure)
        .map(|text| format!("<p class=\"limits\">{}</p>", escape(&text)))
        .unwrap_or_default();
    with_lines(record, family, figure, |lines| format!("{}{missing}", both(lines)))
}

/// Returns the same, wide, as a file of its own with its looks inside.
pub(crate) fn family_file(
    record: &Record,
    family: &Family<'_>,
    figure: Figure,
    style: &str,
) -> Option<String> {
    // A file is looked at and not pointed at, so what no eye can tell apart is drawn as one.
    with_gathered(record, family, figure, true, |lines| lines.draw(Size::Wide).into_file(style))
}

/// Returns a chart of lines for a phone and one for a desk.
pub(crate) fn both(lines: &Lines<'_>) -> String {
    format!(
        "<div class=\"narrow\">{}</div><div class=\"wide\">{}</div>",
        lines.draw(Size::Narrow).into_svg(),
        lines.draw(Size::Wide).into_svg()
    )
}

fn with_lines<T>(
    record: &Record,
    family: &Family<'_>,
    figure: Figure,
    draw: impl FnOnce(&Lines<'_>) -> T,
) -> Option<T> {
    with_gathered(record, family, figure, false, draw)
}

/// With those that lie close together as a band, if `gather`.
fn with_gathered<T>(
    record: &Record,
    family: &Family<'_>,
    figure: Figure,
    gather: bool,
    draw: impl FnOnce(&Lines<'_>) -> T,
) -> Option<T> {
    let mut series: Vec<Series> = styled(record, family.cells.iter().copied(), |model| {
        let mut cells: Vec<&Cell> = family.cells.iter().copied().filter(|cell| cell.model == model).collect();
        cells.retain(|cell| answer::usable(cell));
        let nth = |cell: &Cell| family.values.iter().position(|v| *v == family.value(cell));
        cells.sort_by_key(|cell| nth(cell));
        let point = |cell: &Cell| {
            let value = figure.value(cell)?;
            let at = family.value(cell);
            Some(Point {
                x: place(family.axis, at),
                y: value,
                whisker: figure.interval(cell).map(|i| (i.low, i.high)),
                hover: format!("{} {}, {}", family.axis_name(), family.spell(at), long(cell, figure, value)),
            })
        };
        cells.into_iter().filter_map(point).collect()
    })
    .into_iter()
    .map(|series| Series {
        end: series.points.last().map_or_else(String::new, |last| figure.spell(last.y)),
        ..series
    })
    .collect();
    if series.iter().map(|s| s.points.len()).max().unwrap_or(0) < 2 {
        return None;
    }
    let spell = |value: f64| figure.tick(value);
    let spell_x = |value: f64| family.spell(value);
    let reach: Vec<f64> = series.iter().flat_map(Series::reach).collect();
    let unit = figure.tick_unit(reach.iter().copied().fold(0.0, f64::max));
    let xs: Vec<f64> = family.values.iter().map(|value| place(family.axis, *value)).collect();
    series.retain(|series| !series.points.is_empty());
    let band = if gather {
        svg::Band::gathered(&mut series, &xs, &|value| figure.spell(value), &spell_x)
    } else {
        None
    };
    Some(draw(&Lines {
        title: format!("{}, {}", heading(figure), family.span()),
        x_axis: family.axis_name(),
        along: if family.axis == Axis::Connections { Along::Log } else { Along::Steps },
        xs,
        y_axis: svg::Axis { name: figure.axis(), scale: Scale::fitting(reach), unit, spell: &spell },
        series,
        band,
        spell_x: &spell_x,
    }))
}

/// Returns a line for each program that has points: its colour is its driver's, and what shares a colour
/// differs in its marker and its stroke.
pub(crate) fn styled<'a>(
    record: &Record,
    cells: impl Iterator<Item = &'a Cell> + Clone,
    points: impl Fn(&str) -> Vec<Point>,
) -> Vec<Series> {
    let mut series: Vec<Series> = Vec::new();
    for (nth, model) in shape::models(record).into_iter().enumerate() {
        let class = colour(cells.clone().find(|cell| cell.model == model));
        series.push(Series {
            label: model.to_owned(),
            end: String::new(),
            class,
            marker: nth,
            dashed: series.iter().any(|other| other.class == class),
            points: points(model),
        });
    }
    series
}

/// Returns a number where a logarithm is taken of it.
fn place(axis: Axis, value: f64) -> f64 {
    if axis == Axis::Connections { value.max(1.0) } else { value }
}

/// Which cells of a family have no point, and why: `threads at 1,000 and 10,000 (INVALID)`, and a name alone
/// for a program without any point.
fn missing(family: &Family<'_>, figure: Figure) -> Option<String> {
    /// A program, and where it has no point.
    type Places<'a> = (&'a str, Vec<f64>);
    let mut reasons: Vec<(&str, Vec<Places<'_>>)> = Vec::new();
    for cell in &family.cells {
        let why = match (&cell.skipped, cell.verdict.level) {
            (Some(_), _) => "skipped",
            (None, Level::Invalid) => "INVALID",
            (None, _) if figure.value(cell).is_none() => figure::UNKNOWN,
            _ => continue,
        };
        let at = family.value(cell);
        let nth = reasons.iter().position(|(known, _)| *known == why).unwrap_or_else(|| {
            reasons.push((why, Vec::new()));
            reasons.len() - 1
        });
        let models = &mut reasons[nth].1;
        match models.iter_mut().find(|(model, _)| *model == cell.model) {
            Some((_, places)) => places.push(at),
            None => models.push((&cell.model, vec![at])),
        }
    }
    let all = |model: &str| family.cells.iter().filter(|cell| cell.model == model).count();
    let place_of = |(model, places): &Places<'_>| {
        if places.len() == all(model) {
            return (*model).to_owned();
        }
        let places: Vec<String> = places.iter().map(|place| family.spell(*place)).collect();
        format!("{model} at {}", answer::listed(&places))
    };
    let said: Vec<String> = reasons
        .iter()
        .map(|(why, models)| {
            format!("{} ({why})", models.iter().map(place_of).collect::<Vec<_>>().join(", "))
        })
        .collect();
    (!said.is_empty()).then(|| format!("Not drawn: {}.", said.join("; ")))
}

/// Returns the heading of a section; the two latencies share one.
pub(crate) fn heading(figure: Figure) -> &'static str {
    match figure {
        Figure::P50 => "Latency",
        other => other.name(),
    }
}

fn empty(cell: &Cell, text: String) -> Row {
    Row { label: cell.model.clone(), mark: Mark::Nothing, hover: text.clone(), text, class: "absent" }
}

fn row(record: &Record, load: &Load<'_>, cell: &Cell, figure: Figure) -> Row {
    if let Some(reason) = &cell.skipped {
        return empty(cell, format!("skipped: {reason}"));
    }
    let is_baseline = record.baseline.as_deref() == Some(cell.model.as_str());
    let value = match figure.value(cell) {
        Some(value) => value,
        // The baseline against itself is 1 by definition, whether or not the record says so.
        None if figure == Figure::Ratio && is_baseline && answer::usable(cell) => 1.0,
        None => return empty(cell, figure::UNKNOWN.to_owned()),
    };
    let whisker = figure.interval(cell).map(|i| (i.low, i.high));
    let (mark, text) = match figure {
        Figure::Ratio if is_baseline => (Mark::Dot(1.0, None), "baseline".to_owned()),
        Figure::Ratio => {
            let even = baseline_of(record, load).is_some_and(|baseline| {
                matches!(answer::standing(record, cell, baseline), Some(Standing::Even(_)))
            });
            (Mark::Dot(value, whisker), format!("{}{}", if even { "= " } else { "" }, figure.spell(value)))
        }
        Figure::P50 => match Figure::P99.value(cell) {
            Some(p99) => {
                (Mark::Between(value, p99), format!("{} … {}", figure.spell(value), figure.spell(p99)))
            }
            None => (Mark::Dot(value, None), figure.spell(value)),
        },
        Figure::Rate => {
            let limit = figure::limiter(cell);
            let limit = if limit == figure::UNKNOWN { String::new() } else { format!(" · {limit}") };
            (Mark::Bar(value, whisker), format!("{}{limit}", figure.spell(value)))
        }
        Figure::Cpu => match cell.server.user_us.filter(|user| (0.0..=value).contains(user)) {
            Some(user) => (Mark::Stack([user, value - user], whisker), figure.spell(value)),
            None => (Mark::Bar(value, whisker), figure.spell(value)),
        },
        _ => (Mark::Bar(value, whisker), figure.spell(value)),
    };
    let ranked = figure == Figure::Cpu && {
        let (cells, even) = answer::ranked(record, load);
        cells[..even].iter().any(|best| std::ptr::eq(*best, cell))
    };
    let class = match cell.verdict.level {
        Level::Invalid => "invalid",
        Level::Suspect if ranked => "best suspect",
        Level::Suspect => "suspect",
        Level::Valid if ranked => "best",
        Level::Valid => "plain",
    };
    let doubt = match cell.verdict.level {
        Level::Valid => String::new(),
        level => format!(" ({level})"),
    };
    Row {
        label: cell.model.clone(),
        mark,
        text: format!("{text}{}", figure::flag(cell)),
        hover: format!("{}{doubt}", long(cell, figure, value)),
        class,
    }
}

fn memory_row(record: &Record, cell: &Cell) -> Row {
    if let Some(reason) = &cell.skipped {
        return empty(cell, format!("skipped: {reason}"));
    }
    let Some(memory) = memory::of(record, cell) else {
        return empty(cell, figure::UNKNOWN.to_owned());
    };
    let process = figure::bytes(memory.process);
    let (mark, text, hover) = match memory.kernel {
        Some(kernel) => {
            let kernel_text = figure::bytes(kernel);
            (
                Mark::Stack([memory.process, kernel], None),
                format!("{process} + {kernel_text}"),
                format!("{process} in the process, {kernel_text} in the kernel"),
            )
        }
        None => {
            (Mark::Stack([memory.process, 0.0], None), process.clone(), format!("{process} in the process"))
        }
    };
    let class = match cell.verdict.level {
        Level::Invalid => "invalid",
        Level::Suspect => "suspect",
        Level::Valid => "plain",
    };
    Row { label: cell.model.clone(), mark, text, hover, class }
}

/// Returns the value in full: with its interval, its percentiles, its limiter.
fn long(cell: &Cell, figure: Figure, value: f64) -> String {
    let interval = figure
        .interval(cell)
        .map(|interval| format!(", 95 % interval {}", spelled(figure, interval)))
        .unwrap_or_default();
    match figure {
        Figure::P50 => match Figure::P99.value(cell) {
            Some(p99) => format!("p50 {}, p99 {}", figure.spell(value), figure.spell(p99)),
            None => format!("p50 {}", figure.spell(value)),
        },
        Figure::P99 => format!("p99 {}", figure.spell(value)),
        Figure::Cpu => {
            let parts =
                cell.server.user_us.zip(cell.server.sys_us).map_or_else(String::new, |(user, system)| {
                    format!(", user {}, system {}", figure.spell(user), figure.spell(system))
                });
            format!("{}{interval}{parts}", figure.spell(value))
        }
        Figure::Rate => format!(
            "{} requests/s{interval}, limited by: {}",
            figure::count(value.max(0.0) as u64),
            figure::limiter(cell)
        ),
        _ => format!("{}{interval}", figure.spell(value)),
    }
}

/// `3.88 µs to 3.94 µs`.
pub(crate) fn spelled(figure: Figure, interval: Interval) -> String {
    format!("{} to {}", figure.spell(interval.low), figure.spell(interval.high))
}

/// Returns the baseline's cell of a load.
pub(crate) fn baseline_of<'a>(record: &Record, load: &Load<'a>) -> Option<&'a Cell> {
    let baseline = record.baseline.as_deref()?;
    load.cells.iter().copied().find(|cell| cell.model == baseline && answer::usable(cell))
}

/// Returns the style class of a line: its colour follows the I/O driver.
fn colour(cell: Option<&Cell>) -> &'static str {
    match cell.and_then(|cell| cell.driver.as_deref()) {
        Some("io_uring") => "s-io_uring",
        Some("epoll") => "s-epoll",
        Some("poll") => "s-poll",
        Some("select") => "s-select",
        Some("threads") => "s-threads",
        _ => "s-other",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::super::sample;
    use super::*;

    #[test]
    fn programs_that_are_not_drawn_are_named_with_their_rank() {
        let mut record = sample::floor();
        for cell in record.cells.iter_mut().filter(|cell| cell.model == "threads") {
            *cell = sample::skipped(cell, "no threads today");
        }
        for cell in record.cells.iter_mut().filter(|cell| cell.model == "uring" && cell.connections >= 1000) {
            cell.server.cpu_us_per_request = None;
        }
        let families = shape::families(&record, Axis::Connections);
        let http = families.iter().find(|family| family.title == "HTTP").unwrap();
        assert_eq!(
            missing(http, Figure::Cpu).unwrap(),
            "Not drawn: threads, select at 10,000 (skipped); poll at 200 (INVALID); uring at 1,000 and 10,000 (unknown)."
        );
    }
}
