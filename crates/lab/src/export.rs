//! A record as a table for other programs and documents: Markdown and CSV.
//!
//! Figures are the medians that the record has, in the units their names say; a figure that is not known is
//! empty in CSV and a dash in Markdown. Start at [`csv`] and [`markdown`].

use crate::page::shape;
use crate::table::clean;
use ringroad_measure::record::{Cell, Interval, Limiter, Record};

/// A column of the CSV form: its name and its figure.
type Column = (&'static str, fn(&Cell) -> String);

/// The columns of the CSV form. They are a contract: added, never renamed.
const COLUMNS: [Column; 21] = [
    ("load", |cell| cell.load.clone()),
    ("program", |cell| cell.model.clone()),
    ("driver", |cell| cell.driver.clone().unwrap_or_default()),
    ("protocol", |cell| cell.protocol.clone()),
    ("connections", |cell| cell.connections.to_string()),
    ("pipeline", |cell| cell.pipeline.to_string()),
    ("payload_bytes", |cell| cell.payload_bytes.to_string()),
    ("runs", |cell| cell.runs.len().to_string()),
    ("cpu_us_per_request", |cell| number(cell.server.cpu_us_per_request)),
    ("cpu_low_us", |cell| number(cell.server.cpu_interval.map(|interval| interval.low))),
    ("cpu_high_us", |cell| number(cell.server.cpu_interval.map(|interval| interval.high))),
    ("ratio_to_baseline", |cell| number(cell.ratio.map(|ratio| ratio.mid))),
    ("ratio_low", |cell| number(cell.ratio.map(|ratio| ratio.low))),
    ("ratio_high", |cell| number(cell.ratio.map(|ratio| ratio.high))),
    ("syscalls_per_request", |cell| number(cell.server.syscalls_per_request)),
    ("requests_per_second", |cell| number(cell.rps)),
    ("p50_us", |cell| number(cell.latency_us.response.map(|latency| latency.p50))),
    ("p99_us", |cell| number(cell.latency_us.response.map(|latency| latency.p99))),
    ("rss_bytes", |cell| cell.server.rss_bytes.map_or_else(String::new, |bytes| bytes.to_string())),
    ("failed", |cell| cell.errors.total().to_string()),
    ("verdict", |cell| match &cell.skipped {
        Some(_) => "SKIPPED".to_owned(),
        None => cell.verdict.level.to_string(),
    }),
];

/// Writes one line for each result with a head before them, as RFC 4180 has it but for the line ends.
pub fn csv(record: &Record) -> String {
    let line = |fields: Vec<String>| {
        let fields: Vec<String> = fields.iter().map(|field| quoted(field)).collect();
        format!("{}\n", fields.join(","))
    };
    let mut out = line(COLUMNS.iter().map(|(name, _)| (*name).to_owned()).collect());
    for cell in &record.cells {
        let skipped = cell.skipped.is_some();
        // What did not run has no figures, not even the zeros of its counts.
        let of = |(nth, (name, figure)): (usize, &Column)| match skipped && nth > 3 && *name != "verdict" {
            true => String::new(),
            false => figure(cell),
        };
        out.push_str(&line(COLUMNS.iter().enumerate().map(of).collect()));
    }
    out
}

fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

/// With the digits a figure of some per cent of spread can have.
fn number(value: Option<f64>) -> String {
    value.filter(|value| value.is_finite()).map_or_else(String::new, |value| {
        let digits = match value.abs() {
            v if v >= 1000.0 => 0,
            v if v >= 10.0 => 2,
            _ => 4,
        };
        format!("{value:.digits$}")
    })
}

/// Returns a table for each load, with what was found doubtful behind the program's name.
pub fn markdown(record: &Record) -> String {
    let mut out = String::new();
    for load in shape::loads(record) {
        out.push_str(&format!("**{}**\n\n", text(&load.title)));
        out.push_str(
            "| program | CPU µs/request | vs baseline | calls/request | p50 µs | p99 µs | requests/s |\n",
        );
        out.push_str("|:---|---:|---:|---:|---:|---:|---:|\n");
        for cell in &load.cells {
            let name = text(&cell.model);
            if let Some(reason) = &cell.skipped {
                out.push_str(&format!("| {name} | skipped: {} | | | | | |\n", text(reason)));
                continue;
            }
            let mark = match cell.verdict.level {
                ringroad_measure::Level::Valid => String::new(),
                level => format!(" ({level})"),
            };
            let is_base = record.baseline.as_ref() == Some(&cell.model);
            let ratio = cell.ratio.map(|ratio| format!("{:.2}×", ratio.mid)).filter(|_| !is_base);
            let base = if is_base { Some("baseline".to_owned()) } else { ratio };
            let at_least = if cell.limiter == Some(Limiter::Client) { "≥ " } else { "" };
            let figures = [
                with_interval(cell.server.cpu_us_per_request, cell.server.cpu_interval),
                base.unwrap_or_else(|| "–".to_owned()),
                known(number(cell.server.syscalls_per_request)),
                known(number(cell.latency_us.response.map(|latency| latency.p50))),
                known(number(cell.latency_us.response.map(|latency| latency.p99))),
                format!("{at_least}{}", known(number(cell.rps))),
            ];
            out.push_str(&format!("| {name}{mark} | {} |\n", figures.join(" | ")));
        }
        out.push('\n');
    }
    out
}

fn with_interval(value: Option<f64>, interval: Option<Interval>) -> String {
    let text = known(number(value));
    match interval {
        Some(interval) => format!("{text} ± {}", number(Some((interval.high - interval.low) / 2.0))),
        None => text,
    }
}

fn known(text: String) -> String {
    if text.is_empty() { "–".to_owned() } else { text }
}

/// Returns a text that cannot end its cell.
fn text(text: &str) -> String {
    clean(text).replace('\\', "\\\\").replace('|', "\\|").replace(['<', '\u{a0}'], " ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::page::sample;

    #[test]
    fn every_result_is_a_line_with_as_many_fields_as_the_head() {
        let mut record = sample::floor();
        record.cells[0].model = "with, a \"comma\"".to_owned();
        let text = csv(&record);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 1 + record.cells.len());
        assert!(lines[1].contains("\"with, a \"\"comma\"\"\""), "{}", lines[1]);
        for line in lines.iter().filter(|line| !line.contains('"')) {
            assert_eq!(line.split(',').count(), COLUMNS.len(), "{line}");
        }
        let skipped = record.cells.iter().position(|cell| cell.skipped.is_some()).unwrap();
        assert!(
            lines[skipped + 1].ends_with(",SKIPPED") && lines[skipped + 1].contains(",,,"),
            "{}",
            lines[skipped + 1]
        );
        let cpu = record.cells[1].server.cpu_us_per_request.unwrap();
        assert!(lines[2].contains(&format!(",{cpu:.4},")), "{}", lines[2]);
    }

    #[test]
    fn a_markdown_row_has_as_many_cells_as_its_head_whatever_a_name_holds() {
        let mut record = sample::floor();
        record.cells[0].model = "a|b\n| c".to_owned();
        for cell in &mut record.cells {
            cell.server.syscalls_per_request = None;
        }
        let text = markdown(&record);
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
        for row in &rows {
            assert_eq!(row.replace("\\|", "").matches('|').count(), 8, "{row}");
        }
        assert_eq!(rows.len(), record.cells.len() + 2 * crate::page::shape::loads(&record).len());
        assert!(text.contains("baseline") && text.contains("(INVALID)") && text.contains(" – "), "{text}");
    }
}
