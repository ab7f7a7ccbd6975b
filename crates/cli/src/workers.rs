//! `ringroad workers`: figures of a running server by driver, and moves between drivers, over its control
//! socket.

use crate::app::{answer_of, socket};
use crate::complaint::{DONE, say};
use crate::flags::{Common, WorkersFlags, WorkersVerb};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;

pub(crate) fn run(flags: &WorkersFlags, common: &Common) -> ExitCode {
    ExitCode::from(match ask_and_tell(flags, common) {
        Ok(()) => DONE,
        Err((code, text)) => {
            text.lines().for_each(say);
            code
        }
    })
}

fn ask_and_tell(flags: &WorkersFlags, common: &Common) -> Result<(), (u8, String)> {
    let path = socket(flags.control.as_ref(), flags.config.as_ref())?;
    let question = match &flags.verb {
        WorkersVerb::Status { .. } => json!({ "do": "workers" }),
        WorkersVerb::Move { from, to, workers } => {
            json!({ "do": "move", "from": from.as_str(), "to": to.as_str(), "workers": workers })
        }
    };
    let told = answer_of(&path, &question)?;
    let text = match (&flags.verb, &told) {
        (WorkersVerb::Status { json: true }, told) => {
            format!("{}\n", serde_json::to_string_pretty(told).unwrap_or_default())
        }
        (WorkersVerb::Status { .. }, told) => table(told),
        (WorkersVerb::Move { .. }, Value::String(done)) if !common.quiet => format!("{done}\n"),
        _ => String::new(),
    };
    // An output without a reader is no failure of the question.
    let _ = io::stdout().lock().write_all(text.as_bytes());
    Ok(())
}

/// One line for each driver.
fn table(told: &Value) -> String {
    let head = [
        "driver",
        "workers",
        "connections",
        "requests",
        "mean ms",
        "99 % within ms",
        "CPU s",
        "CPU µs/request",
    ];
    let mut rows: Vec<Vec<String>> = vec![head.map(str::to_owned).to_vec()];
    for one in told["drivers"].as_array().map(Vec::as_slice).unwrap_or_default() {
        let number = |key: &str| one[key].as_u64().unwrap_or(0).to_string();
        let figure = |key: &str, digits: usize| {
            one[key].as_f64().map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
        };
        rows.push(vec![
            one["driver"].as_str().unwrap_or_default().to_owned(),
            number("workers"),
            number("connections"),
            number("requests"),
            figure("latency_mean_ms", 3),
            figure("latency_p99_ms_at_most", 2),
            figure("cpu_s", 3),
            figure("cpu_us_per_request", 1),
        ]);
    }
    let mut out = String::new();
    for row in &rows {
        let mut line = String::new();
        for (at, cell) in row.iter().enumerate() {
            let widest = rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max();
            let widest = widest.unwrap_or(0);
            // Writing to a string does not fail.
            let _ = if at == 0 { write!(line, "{cell:widest$}") } else { write!(line, "  {cell:>widest$}") };
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    if let Some(rest) = told["other_cpu_s"].as_f64() {
        let _ = writeln!(
            out,
            "CPU is that of the workers' own threads; other threads of the process: {rest:.3} s"
        );
    }
    out
}
