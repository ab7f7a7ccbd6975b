//! The lines that `lab merge` prints for a load that was put on in parts. A pure function. Start at [`text`].

use ringroad_measure::record::{OfPart, Record};
use ringroad_measure::units::{Micros, PerSecond, counted};
use std::fmt::Write;

/// Returns the sum, its parts side by side, and the verdict.
pub(super) fn text(record: &Record) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_all(&mut out, record);
    out
}

fn write_all(out: &mut String, record: &Record) -> std::fmt::Result {
    let time = |us: Option<f64>| us.map_or("-".to_owned(), |us| Micros(us).to_string());
    let rate = |rate: Option<f64>| rate.map_or("-".to_owned(), |rate| PerSecond(rate).to_string());
    for cell in &record.cells {
        let response = cell.latency_us.response.as_ref();
        writeln!(out, "{}", cell.model)?;
        writeln!(
            out,
            "  {} in {}, {:.1} s measured",
            counted(cell.connections.into(), "connection"),
            counted(cell.details.parts.len() as u64, "part"),
            cell.duration_s
        )?;
        writeln!(
            out,
            "  {} sent, {} completed, {} failed: {}, p50 {}, p99 {}\n",
            cell.sent,
            cell.completed,
            cell.errors.total(),
            rate(cell.rps),
            time(response.map(|response| response.p50)),
            time(response.map(|response| response.p99)),
        )?;
        writeln!(
            out,
            "  {:<6}{:>13}{:>14}{:>12}{:>11}{:>9}",
            "part", "connections", "rate", "p99", "began", "verdict"
        )?;
        for OfPart { index, connections, rps, p99_us, began_after_s, verdict, .. } in &cell.details.parts {
            let began = began_after_s.map_or("-".to_owned(), |after| format!("+{:.1} ms", after * 1e3));
            let level = verdict.level;
            writeln!(
                out,
                "  {index:<6}{connections:>13}{:>14}{:>12}{began:>11}{level:>9}",
                rate(*rps),
                time(*p99_us)
            )?;
        }
    }
    writeln!(out, "\n{}", record.verdict.level)?;
    record.verdict.reasons.iter().try_for_each(|reason| writeln!(out, "  {reason}"))?;
    writeln!(out)
}
