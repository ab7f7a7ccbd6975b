//! Which chart shows what: the figures of a record's cells as rows and lines.
//!
//! Drawing is `svg`'s part, spelling numbers `figure`'s, judging differences `answer`'s. Every cell of a load
//! gets a row, also one that was skipped or whose number is unknown: an absent bar must say why it is absent.
//!
//! Start at [`load_chart`] and [`family_chart`].

use super::answer::{self, Standing};
use super::figure::{self, Family, Figure, Load};
use super::svg::{Axis, Lines, Mark, Point, Row, Rows, Scale, Series};
use ringroad_measure::Level;
use ringroad_measure::record::{Cell, Interval, Record};

/// The chart of one figure under one load, as an `<svg>` element; `None` where no cell has the figure. The chart
/// of [`Figure::P50`] shows the 99th percentile too.
pub(crate) fn load_chart(record: &Record, load: &Load<'_>, figure: Figure) -> Option<String> {
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
        Figure::Ratio => {
            Scale::log(reach().chain([1.0]).chain(band.into_iter().flat_map(|(low, high)| [low, high])))
        }
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
    let axis = Axis { name, scale, unit, spell: &spell };
    Some(Rows { title, axis, band, reference, rows }.draw().into_svg())
}

/// The chart of one figure over the number of connections; `None` where fewer than two points exist.
pub(crate) fn family_chart(record: &Record, family: &Family<'_>, figure: Figure) -> Option<String> {
    let models = figure::models(record);
    let mut series: Vec<Series> = Vec::new();
    for (nth, model) in models.iter().enumerate() {
        let mut cells: Vec<&Cell> = family
            .cells
            .iter()
            .copied()
            .filter(|cell| cell.model == *model && answer::usable(cell))
            .collect();
        cells.sort_by_key(|cell| cell.connections);
        let class = colour(family.cells.iter().find(|cell| cell.model == *model).copied());
        let points: Vec<Point> = cells
            .iter()
            .filter_map(|cell| {
                let value = figure.value(cell)?;
                Some(Point {
                    x: f64::from(cell.connections.max(1)),
                    y: value,
                    whisker: figure.interval(cell).map(|i| (i.low, i.high)),
                    hover: format!("{}, {}", figure::connections(cell), long(cell, figure, value)),
                })
            })
            .collect();
        series.push(Series {
            label: (*model).to_owned(),
            class,
            marker: nth,
            dashed: series.iter().any(|other| other.class == class),
            points,
        });
    }
    if series.iter().map(|s| s.points.len()).max().unwrap_or(0) < 2 {
        return None;
    }
    let spell = |value: f64| figure.tick(value);
    let spell_x = |value: f64| figure::count(value as u64);
    let reach: Vec<f64> = series.iter().flat_map(Series::reach).collect();
    let unit = figure.tick_unit(reach.iter().copied().fold(0.0, f64::max));
    let y_axis = Axis { name: figure.axis(), scale: Scale::fitting(reach), unit, spell: &spell };
    let lines = Lines {
        title: format!("{}, {}", heading(figure), family.span()),
        x_axis: "connections",
        xs: family.connections.iter().map(|c| f64::from((*c).max(1))).collect(),
        y_axis,
        series,
        spell_x: &spell_x,
    };
    Some(lines.draw().into_svg())
}

/// The heading of a section; the two latencies share one.
pub(crate) fn heading(figure: Figure) -> &'static str {
    match figure {
        Figure::P50 => "Latency",
        other => other.name(),
    }
}

fn row(record: &Record, load: &Load<'_>, cell: &Cell, figure: Figure) -> Row {
    let empty = |text: String, class: &'static str| Row {
        label: cell.model.clone(),
        mark: Mark::Nothing,
        hover: text.clone(),
        text,
        class,
    };
    if let Some(reason) = &cell.skipped {
        return empty(format!("skipped: {reason}"), "absent");
    }
    let is_baseline = record.baseline.as_deref() == Some(cell.model.as_str());
    let value = match figure.value(cell) {
        Some(value) => value,
        // The baseline against itself is 1 by definition, whether or not the record says so.
        None if figure == Figure::Ratio && is_baseline && answer::usable(cell) => 1.0,
        None => return empty(figure::UNKNOWN.to_owned(), "absent"),
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
            (Mark::Bar(value, None), format!("{}{limit}", figure.spell(value)))
        }
        _ => (Mark::Bar(value, whisker), figure.spell(value)),
    };
    let ranked = figure == Figure::Cpu && {
        let (cells, even) = answer::ranked(record, load);
        cells[..even].iter().any(|best| std::ptr::eq(*best, cell))
    };
    let (class, flag) = match cell.verdict.level {
        Level::Invalid => ("invalid", " !"),
        Level::Suspect if ranked => ("best suspect", " ?"),
        Level::Suspect => ("suspect", " ?"),
        Level::Valid if ranked => ("best", ""),
        Level::Valid => ("plain", ""),
    };
    let doubt = match cell.verdict.level {
        Level::Valid => String::new(),
        level => format!(" ({level})"),
    };
    Row {
        label: cell.model.clone(),
        mark,
        text: format!("{text}{flag}"),
        hover: format!("{}{doubt}", long(cell, figure, value)),
        class,
    }
}

/// The value in full: with its interval, its percentiles, its limiter.
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
        Figure::Rate => format!(
            "{} requests/s, limited by: {}",
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

/// The baseline's cell of a load.
pub(crate) fn baseline_of<'a>(record: &Record, load: &Load<'a>) -> Option<&'a Cell> {
    let baseline = record.baseline.as_deref()?;
    load.cells.iter().copied().find(|cell| cell.model == baseline && answer::usable(cell))
}

/// The style class of a line: its colour follows the I/O driver.
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
