//! The percentile spectrum: how long the slowest half, tenth, hundredth … of the answers took.
//!
//! The horizontal axis is logarithmic in what is left over, so that each nine gets as much room as the one
//! before and the tail can be read. A curve ends where fewer than ten answers are left: what lies beyond is
//! chance. Start at [`chart`].

use super::answer;
use super::charts;
use super::figure::{self, Figure};
use super::shape::Load;
use super::svg::{Along, Axis, Lines, Point, Scale, Series, Size};
use ringroad_measure::Histogram;
use ringroad_measure::record::{Cell, Record};

/// The marked places: one answer in so many is slower.
const MARKED: [(f64, &str); 7] = [
    (2.0, "50 %"),
    (10.0, "90 %"),
    (100.0, "99 %"),
    (1000.0, "99.9 %"),
    (10_000.0, "99.99 %"),
    (100_000.0, "99.999 %"),
    (1_000_000.0, "99.9999 %"),
];

/// Points of a curve between one and ten times rarer.
const STEPS_PER_NINE: i32 = 5;

/// A point of a curve needs so many answers that were slower.
const SLOWER_MIN: f64 = 10.0;

/// Returns the spectra of the programs under a load, narrow and wide; `None` where no cell has one.
pub(crate) fn chart(record: &Record, load: &Load<'_>) -> Option<String> {
    with_lines(record, load, charts::both)
}

/// Returns the same, wide, as a file of its own with its looks inside.
pub(crate) fn file(record: &Record, load: &Load<'_>, style: &str) -> Option<String> {
    with_lines(record, load, |lines| lines.draw(Size::Wide).into_file(style))
}

fn with_lines<T>(record: &Record, load: &Load<'_>, draw: impl FnOnce(&Lines<'_>) -> T) -> Option<T> {
    let mut series = charts::styled(record, load.cells.iter().copied(), |model| {
        let cell = load.cells.iter().find(|cell| cell.model == model && answer::usable(cell));
        cell.map(|cell| curve(cell)).unwrap_or_default()
    });
    for line in &mut series {
        line.end = line.points.last().map_or_else(String::new, |last| Figure::P99.spell(last.y));
    }
    let rarest = series.iter().flat_map(|s| &s.points).map(|p| p.x).fold(0.0, f64::max);
    let xs: Vec<f64> = MARKED.iter().map(|(x, _)| *x).filter(|x| *x <= rarest * 1.01).collect();
    if xs.len() < 2 {
        return None;
    }
    let spell_x = |value: f64| share(value).to_owned();
    let spell = |value: f64| Figure::P99.tick(value);
    let scale = Scale::log(series.iter().flat_map(Series::reach));
    let lines = Lines {
        title: format!("Percentile spectrum of latency, {}", load.title),
        x_axis: "of the answers came within this time".to_owned(),
        along: Along::Log,
        xs,
        y_axis: Axis { name: "latency · less is better", scale, unit: 1.0, spell: &spell },
        series,
        band: None,
        spell_x: &spell_x,
    };
    Some(draw(&lines))
}

fn share(rare: f64) -> &'static str {
    MARKED.iter().find(|(x, _)| (x / rare - 1.0).abs() < 0.01).map_or("", |(_, text)| text)
}

/// Latency over rarity: from the histogram where the record holds it, else from the percentiles.
fn curve(cell: &Cell) -> Vec<Point> {
    let answers = cell.runs.iter().map(|run| run.completed).sum::<u64>().max(1) as f64;
    let point = |rare: f64, micros: f64| {
        let hover = match share(rare) {
            "" => String::new(),
            share => format!("{share} within {}", figure::micros(micros)),
        };
        Point { x: rare, y: micros, whisker: None, hover }
    };
    let histogram = cell.histogram.as_deref().and_then(|text| Histogram::from_base64(text).ok());
    if let Some(histogram) = histogram.filter(|histogram| !histogram.is_empty()) {
        let most = histogram.count() as f64 / SLOWER_MIN;
        let between =
            (1..=6 * STEPS_PER_NINE).map(|nth| 10_f64.powf(f64::from(nth) / f64::from(STEPS_PER_NINE)));
        let rare: Vec<f64> = [2.0, 5.0].into_iter().chain(between.filter(|x| *x > 5.5)).collect();
        return rare
            .into_iter()
            .take_while(|rare| *rare <= most)
            .filter_map(|rare| Some(point(rare, histogram.quantile_ns(1.0 - 1.0 / rare)? as f64 / 1e3)))
            .collect();
    }
    let Some(p) = cell.latency_us.response else {
        return Vec::new();
    };
    [
        (2.0, p.p50),
        (4.0, p.p75),
        (10.0, p.p90),
        (20.0, p.p95),
        (100.0, p.p99),
        (1000.0, p.p99_9),
        (10_000.0, p.p99_99),
    ]
    .into_iter()
    .take_while(|(rare, _)| rare * SLOWER_MIN <= answers)
    .filter(|(_, micros)| micros.is_finite() && *micros > 0.0)
    .map(|(rare, micros)| point(rare, micros))
    .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::super::{sample, shape};
    use super::*;

    fn cell_of(latencies: &[(u64, u64)]) -> Cell {
        let mut histogram = Histogram::new();
        for (nanos, count) in latencies {
            histogram.record_n(*nanos, *count);
        }
        Cell { histogram: Some(histogram.to_base64()), ..sample::quick().cells[0].clone() }
    }

    #[test]
    fn the_curve_is_read_from_the_histogram() {
        let points = curve(&cell_of(&[(100_000, 9_900), (2_000_000, 100)]));
        let at = |x: f64| points.iter().find(|p| (p.x / x - 1.0).abs() < 0.01).unwrap();
        assert!((at(2.0).y - 100.0).abs() < 1.0 && (at(1000.0).y - 2000.0).abs() < 20.0);
        assert!(at(1000.0).hover.starts_with("99.9 % within"), "{}", at(1000.0).hover);
    }

    #[test]
    fn the_curve_ends_where_only_chance_is_left() {
        for (count, last) in [(1_000, 100.0), (100_000, 10_000.0)] {
            let points = curve(&cell_of(&[(100_000, count)]));
            assert!((points.last().unwrap().x / last - 1.0).abs() < 0.01, "{count}");
        }
    }

    #[test]
    fn without_a_histogram_the_percentiles_serve() {
        let mut record = sample::quick();
        for cell in &mut record.cells {
            cell.histogram = None;
        }
        let load = &shape::loads(&record)[0];
        assert!(chart(&record, load).unwrap().contains("99.9 %"));
        for cell in &mut record.cells {
            cell.latency_us.response = None;
        }
        assert!(chart(&record, &shape::loads(&record)[0]).is_none());
    }

    #[test]
    fn a_histogram_that_is_none_is_not_read() {
        let mut cell = cell_of(&[(100_000, 1_000)]);
        cell.histogram = Some("HISTFAAAA".to_owned());
        assert!(curve(&cell).len() > 2);
    }
}
