//! `cargo xtask charts`: the pictures of docs/learn, drawn from the records under docs/results.
//!
//! One for each page: CPU per request against connections, the page's own models in colour with their 95 %
//! intervals, all others in grey behind them. Drawn and not painted, so that a test can hold each file
//! against its record. Start at [`CHARTS`].

use ringroad_measure::record::{Cell, Interval, Record};
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;

/// A page's picture: its file, the record it is of, the models it is about.
struct Chart {
    file: &'static str,
    record: &'static str,
    own: &'static [&'static str],
}

const FOLDER: &str = "docs/learn/charts";
const FLOOR: &str = "docs/results/floor/record.json";
const CHARTS: &[Chart] = &[
    Chart { file: "threads.svg", record: FLOOR, own: &["threads"] },
    Chart { file: "select.svg", record: FLOOR, own: &["select"] },
    Chart { file: "poll.svg", record: FLOOR, own: &["poll"] },
    Chart { file: "epoll.svg", record: FLOOR, own: &["epoll-et", "epoll-lt"] },
    Chart { file: "uring.svg", record: FLOOR, own: &["uring-multishot", "uring"] },
    Chart {
        file: "tasks.svg",
        record: "docs/results/engine/record.json",
        own: &["engine-epoll", "engine-io_uring"],
    },
];

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 300.0;
/// The plot within it; the right margin holds the names of the lines.
const LEFT: f64 = 44.0;
const RIGHT: f64 = 500.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 252.0;
/// Names closer than this would overlap.
const NAME_STEP: f64 = 16.0;

/// Colours that are told apart with any eyes, on white and on black (blue and orange of Okabe and Ito,
/// lightened for the dark).
const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#333}.m{fill:#666;font-size:12px}.g{stroke:#ddd}\
.o{stroke:#bbb;fill:none;stroke-width:1.5}.a,.b{fill:none;stroke-width:2.5}.a{stroke:#0072b2}.b{stroke:#d55e00}\
.ta{fill:#0072b2}.tb{fill:#d55e00}.da{fill:#0072b2}.db{fill:#d55e00}.w{stroke-width:1.2}\
@media(prefers-color-scheme:dark){text{fill:#ddd}.m{fill:#aaa}.g{stroke:#333}.o{stroke:#555}.a{stroke:#56b4e9}\
.b{stroke:#ff9e4a}.ta{fill:#56b4e9}.tb{fill:#ff9e4a}.da{fill:#56b4e9}.db{fill:#ff9e4a}}";

/// Draws them all.
pub(crate) fn draw(root: &Path) -> io::Result<()> {
    fs::create_dir_all(root.join(FOLDER))?;
    for chart in CHARTS {
        fs::write(root.join(FOLDER).join(chart.file), chart.of(&chart.record(root)?))?;
    }
    Ok(())
}

/// A model's points: connections, CPU per request, its interval.
type Line = Vec<(f64, f64, Option<Interval>)>;

impl Chart {
    fn record(&self, root: &Path) -> io::Result<Record> {
        serde_json::from_str(&fs::read_to_string(root.join(self.record))?).map_err(io::Error::other)
    }

    fn of(&self, record: &Record) -> String {
        let mut models: Vec<&str> = Vec::new();
        for cell in record.cells.iter().filter(|cell| is_shown(cell)) {
            if !models.contains(&cell.model.as_str()) {
                models.push(&cell.model);
            }
        }
        let lines: Vec<(&str, Line)> = models.iter().map(|model| (*model, line(record, model))).collect();
        let all = || lines.iter().flat_map(|(_, line)| line);
        let most = all().map(|(_, cpu, interval)| interval.map_or(*cpu, |interval| interval.high.max(*cpu)));
        let axes = Axes::over(all().map(|(connections, ..)| *connections), most.fold(0.0, f64::max));

        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\
             <title>CPU per request against connections: {}</title><style>{STYLE}</style>\n",
            self.own.join(", ")
        );
        axes.draw(&mut svg);
        let (own, others): (Vec<_>, Vec<_>) = lines.iter().partition(|(model, _)| self.own.contains(model));
        for (_, line) in &others {
            let _ = writeln!(svg, "<polyline class=\"o\" points=\"{}\"/>", axes.points(line));
        }
        let mut names: Vec<(f64, &str, char)> = Vec::new();
        for (model, line) in &own {
            let class = if self.own.first() == Some(model) { 'a' } else { 'b' };
            let _ = writeln!(svg, "<polyline class=\"{class}\" points=\"{}\"/>", axes.points(line));
            for (connections, cpu, interval) in line {
                let (x, y) = (axes.x(*connections), axes.y(*cpu));
                if let Some(Interval { low, high, .. }) = interval {
                    let (low, high) = (axes.y(*low), axes.y(*high));
                    let _ = write!(svg, "<path class=\"{class} w\" d=\"M{x:.1} {low:.1}V{high:.1}\"/>");
                }
                let _ = writeln!(
                    svg,
                    "<circle class=\"d{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"><title>{model}, {connections} \
                     connections: {cpu:.2} µs</title></circle>"
                );
            }
            names.extend(line.last().map(|(_, cpu, _)| (axes.y(*cpu), *model, class)));
        }
        names.sort_by(|a, b| a.0.total_cmp(&b.0));
        for nth in 1..names.len() {
            let above = names[nth - 1].0 + NAME_STEP;
            names[nth].0 = names[nth].0.max(above);
        }
        let right =
            own.iter().flat_map(|(_, line)| line.last()).map(|(c, ..)| axes.x(*c)).fold(0.0, f64::max);
        for (y, model, class) in names {
            let (x, y) = (right + 10.0, y + 4.0);
            let _ = writeln!(svg, "<text class=\"t{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{model}</text>");
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// HTTP, every connection busy, one request at a time.
fn is_shown(cell: &Cell) -> bool {
    cell.protocol == "http" && cell.pipeline == 1 && cell.server.cpu_us_per_request.is_some()
}

fn line(record: &Record, model: &str) -> Line {
    let cells = record.cells.iter().filter(|cell| cell.model == model && is_shown(cell));
    let point = |cell: &Cell| {
        let cpu = cell.server.cpu_us_per_request?;
        Some((f64::from(cell.connections), cpu, cell.server.cpu_interval))
    };
    let mut line: Line = cells.filter_map(point).collect();
    line.sort_by(|a, b| a.0.total_cmp(&b.0));
    line
}

/// Connections from left to right by their logarithm, microseconds upwards from zero.
struct Axes {
    connections: Vec<f64>,
    step: f64,
    top: f64,
}

impl Axes {
    fn over(connections: impl Iterator<Item = f64>, most: f64) -> Axes {
        let mut connections: Vec<f64> = connections.collect();
        connections.sort_by(f64::total_cmp);
        connections.dedup();
        let step = if most > 12.0 { 5.0 } else { 2.0 };
        Axes { connections, step, top: (most / step).ceil().max(1.0) * step }
    }

    fn x(&self, connections: f64) -> f64 {
        let ends = (self.connections.first().copied().unwrap_or(1.0), self.connections.last().copied());
        let (low, high) = (ends.0.ln(), ends.1.unwrap_or(2.0).ln());
        LEFT + 16.0 + (connections.ln() - low) / (high - low).max(1e-9) * (RIGHT - LEFT - 16.0)
    }

    fn y(&self, cpu: f64) -> f64 {
        BOTTOM - cpu / self.top * (BOTTOM - TOP)
    }

    fn points(&self, line: &Line) -> String {
        let points = line.iter().map(|(c, cpu, _)| format!("{:.1},{:.1}", self.x(*c), self.y(*cpu)));
        points.collect::<Vec<_>>().join(" ")
    }

    fn draw(&self, svg: &mut String) {
        let _ = writeln!(svg, "<text x=\"8\" y=\"18\">µs of CPU per request</text>");
        let mut value = 0.0;
        while value <= self.top {
            let y = self.y(value);
            let text = y + 4.0;
            let _ = writeln!(
                svg,
                "<path class=\"g\" d=\"M{LEFT} {y:.1}H{RIGHT}\"/><text class=\"m\" x=\"36\" y=\"{text:.1}\" \
                 text-anchor=\"end\">{value}</text>"
            );
            value += self.step;
        }
        for connections in &self.connections {
            let x = self.x(*connections);
            let _ = writeln!(
                svg,
                "<text class=\"m\" x=\"{x:.1}\" y=\"270\" text-anchor=\"middle\">{}</text>",
                grouped(*connections)
            );
        }
        let middle = (LEFT + RIGHT) / 2.0;
        let _ = writeln!(
            svg,
            "<text class=\"m\" x=\"{middle}\" y=\"291\" text-anchor=\"middle\">connections, all of them busy; grey: the \
             other models</text>"
        );
    }
}

/// `10,000`.
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    match digits.len() {
        4.. => format!("{},{}", &digits[..digits.len() - 3], &digits[digits.len() - 3..]),
        _ => digits,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_pictures_are_those_of_their_records() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for chart in CHARTS {
            let drawn = chart.of(&chart.record(&root).unwrap());
            let file = root.join(FOLDER).join(chart.file);
            let there = fs::read_to_string(&file).unwrap_or_default();
            assert!(there == drawn, "{}: run `cargo xtask charts`", file.display());
            for model in chart.own {
                assert!(drawn.contains(&format!("<title>{model}, ")), "{model} is drawn");
            }
        }
    }
}
