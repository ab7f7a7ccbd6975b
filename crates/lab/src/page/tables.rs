//! The tables behind the charts: every cell of the record with the numbers of a figure, also a skipped cell.
//!
//! Which chart stands above which table, `sections` decides. Start at [`of_figure`] and [`of_family`].

use super::answer::{self, Standing};
use super::charts;
use super::figure::{self, Figure};
use super::memory;
use super::shape::{self, Family, Load};
use super::svg::escape;
use ringroad_measure::record::{Cell, Record};

/// Every cell of the record, also the skipped ones, with the numbers of a figure.
pub(crate) fn of_figure(record: &Record, loads: &[Load<'_>], figure: Figure) -> String {
    table(record, loads, &columns(figure), usize::MAX)
}

/// Every cell with what matters most of every figure: for a record too large to have a table for each. As
/// many rows as fit into `room` bytes, and below them how many do not; nothing if none does.
pub(crate) fn of_all(record: &Record, loads: &[Load<'_>], room: usize) -> String {
    let of = |figure: Figure| columns(figure).into_iter().next();
    let mut all: Vec<Column> =
        [Figure::Rate, Figure::P50, Figure::Cpu, Figure::Ratio, Figure::Syscalls, Figure::Memory]
            .into_iter()
            .filter_map(of)
            .collect();
    all.insert(2, ("p99", |_, _, c| known(Figure::P99.value(c), figure::micros)));
    table(record, loads, &all, room)
}

/// Returns a figure of a family: a row for each program, a column for each place on the axis.
pub(crate) fn of_family(record: &Record, family: &Family<'_>, figure: Figure) -> String {
    let mut html = String::from("<div class=\"scroll\"><table>\n<thead><tr><th>Program</th>");
    for value in &family.values {
        html.push_str(&format!("<th>{}</th>", escape(&family.spell(*value))));
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for model in shape::models(record) {
        let cells: Vec<&&Cell> = family.cells.iter().filter(|cell| cell.model == model).collect();
        if cells.is_empty() {
            continue;
        }
        html.push_str(&format!("<tr><th>{}</th>", escape(model)));
        for value in &family.values {
            let cell = cells.iter().find(|cell| family.value(cell) == *value);
            let text = match cell {
                None => "–".to_owned(),
                Some(cell) if cell.skipped.is_some() => "skipped".to_owned(),
                Some(cell) => {
                    format!("{}{}", known(figure.value(cell), |v| figure.spell(v)), figure::flag(cell))
                }
            };
            html.push_str(&format!("<td>{}</td>", escape(&text)));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody>\n</table></div>\n");
    html
}

fn table(record: &Record, loads: &[Load<'_>], columns: &[Column], room: usize) -> String {
    /// For the end, and for the sentence about the rows that found no room.
    const END: usize = 200;
    let mut html = String::from("<div class=\"scroll\"><table>\n<thead><tr><th>Program</th>");
    for (name, _) in columns {
        html.push_str(&format!("<th>{}</th>", escape(name)));
    }
    html.push_str("<th>Verdict</th></tr></thead>\n");
    let (mut rows, mut left_out) = (0, 0);
    for load in loads {
        let width = columns.len() + 2;
        let mut body =
            format!("<tbody><tr><th class=\"load\" colspan=\"{width}\">{}</th></tr>\n", escape(&load.title));
        let before = rows;
        for cell in &load.cells {
            let row = row(record, load, cell, columns);
            if left_out > 0 || (html.len() + body.len() + row.len() + END) > room {
                left_out += 1;
            } else {
                body.push_str(&row);
                rows += 1;
            }
        }
        if rows > before {
            html.push_str(&body);
            html.push_str("</tbody>\n");
        }
    }
    if rows == 0 && left_out > 0 {
        return String::new();
    }
    html.push_str("</table></div>\n");
    if left_out > 0 {
        let left_out = figure::count(left_out);
        html.push_str(&format!("<p class=\"limits\">{left_out} more are in <code>record.json</code>.</p>\n"));
    }
    html
}

fn row(record: &Record, load: &Load<'_>, cell: &Cell, columns: &[Column]) -> String {
    let mut html = format!("<tr><th>{}</th>", escape(&cell.model));
    match &cell.skipped {
        Some(reason) => html.push_str(&format!(
            "<td class=\"absent\" colspan=\"{}\">{}</td>",
            columns.len() + 1,
            escape(&format!("skipped: {reason}"))
        )),
        None => {
            for (_, read) in columns {
                html.push_str(&format!("<td>{}</td>", escape(&read(record, load, cell))));
            }
            html.push_str(&format!("<td>{}</td>", cell.verdict.level));
        }
    }
    html.push_str("</tr>\n");
    html
}

fn known(value: Option<f64>, spell: impl Fn(f64) -> String) -> String {
    value.filter(|v| v.is_finite()).map_or_else(|| figure::UNKNOWN.to_owned(), spell)
}

fn interval(figure: Figure, cell: &Cell) -> String {
    figure.interval(cell).map_or_else(|| figure::UNKNOWN.to_owned(), |i| charts::spelled(figure, i))
}

type Column = (&'static str, fn(&Record, &Load<'_>, &Cell) -> String);

/// Returns the columns of a figure's table: its own number and what explains it.
fn columns(figure: Figure) -> Vec<Column> {
    match figure {
        Figure::Cpu => vec![
            ("CPU per request", |_, _, c| known(Figure::Cpu.value(c), figure::micros)),
            ("95 % interval", |_, _, c| interval(Figure::Cpu, c)),
            ("user", |_, _, c| known(c.server.user_us, figure::micros)),
            ("system", |_, _, c| known(c.server.sys_us, figure::micros)),
            ("context switches", |_, _, c| known(c.server.context_switches_per_request, figure::number)),
        ],
        Figure::Ratio => vec![
            ("times the baseline", |r, _, c| {
                known(Figure::Ratio.value(c).or_else(|| by_definition(r, c)), figure::times)
            }),
            ("95 % interval", |r, _, c| match (Figure::Ratio.interval(c), by_definition(r, c)) {
                (Some(interval), _) => charts::spelled(Figure::Ratio, interval),
                (None, Some(_)) => "by definition".to_owned(),
                (None, None) => figure::UNKNOWN.to_owned(),
            }),
            ("finding", finding),
        ],
        Figure::P50 | Figure::P99 => vec![
            ("p50", |_, _, c| known(c.latency_us.response.map(|l| l.p50), figure::micros)),
            ("p90", |_, _, c| known(c.latency_us.response.map(|l| l.p90), figure::micros)),
            ("p99", |_, _, c| known(c.latency_us.response.map(|l| l.p99), figure::micros)),
            ("p99.9", |_, _, c| known(c.latency_us.response.map(|l| l.p99_9), figure::micros)),
            ("max", |_, _, c| known(c.latency_us.response.map(|l| l.max), figure::micros)),
        ],
        Figure::Syscalls => vec![
            ("system calls per request", |_, _, c| known(Figure::Syscalls.value(c), figure::number)),
            ("95 % interval", |_, _, c| interval(Figure::Syscalls, c)),
            ("counted by", |_, _, c| match c.server.syscalls_source.as_deref() {
                Some("perf") => "the kernel".to_owned(),
                Some("program") => "the program itself".to_owned(),
                Some(other) => other.to_owned(),
                None => figure::UNKNOWN.to_owned(),
            }),
        ],
        Figure::Rate => vec![
            ("requests/s", |_, _, c| known(Figure::Rate.value(c), |v| figure::count(v.max(0.0) as u64))),
            ("95 % interval", |_, _, c| interval(Figure::Rate, c)),
            ("limited by", |_, _, c| figure::limiter(c).to_owned()),
            ("client busy", |_, _, c| known(c.client_cpu_share, figure::busy)),
            ("sent", |_, _, c| figure::count(c.sent)),
            ("answered", |_, _, c| figure::count(c.completed)),
            ("failed", |_, _, c| figure::count(c.errors.total())),
        ],
        Figure::Memory => vec![
            ("process", |_, _, c| known(Figure::Memory.value(c), figure::bytes)),
            ("a connection in it", |r, _, c| known(memory::of(r, c).map(|m| m.process), figure::bytes)),
            ("kernel, whole machine", |_, _, c| {
                known(c.server.kernel_bytes.map(|b| b as f64), figure::bytes)
            }),
            ("a connection in it", |r, _, c| known(memory::of(r, c).and_then(|m| m.kernel), figure::bytes)),
        ],
    }
}

/// Returns the baseline's ratio to itself, which no run has to tell.
fn by_definition(record: &Record, cell: &Cell) -> Option<f64> {
    (record.baseline.as_deref() == Some(cell.model.as_str())).then_some(1.0)
}

fn finding(record: &Record, load: &Load<'_>, cell: &Cell) -> String {
    let Some(baseline) = charts::baseline_of(record, load) else {
        return "no baseline".to_owned();
    };
    if std::ptr::eq(baseline, cell) {
        return "is the baseline".to_owned();
    }
    match answer::standing(record, cell, baseline) {
        Some(Standing::Even(Some(seen))) => {
            format!("no significant difference (smallest detectable: {})", figure::percent(seen))
        }
        Some(Standing::Even(None)) => "no significant difference".to_owned(),
        Some(Standing::Apart(ratio)) if ratio > 1.0 => "costs more".to_owned(),
        Some(Standing::Apart(_)) => "costs less".to_owned(),
        Some(Standing::Untold(Some(_))) => "too few runs".to_owned(),
        Some(Standing::Untold(None)) => "not measured side by side".to_owned(),
        None => figure::UNKNOWN.to_owned(),
    }
}
