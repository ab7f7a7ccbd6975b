//! The record in short: a line for each cell, what was promised beside what came out.

use super::plan::Cell;
use super::table::{interval, number, plain};
use super::{BASELINE, NOT_REACHED};
use serde_json::Value;

/// What a user gets without asking for an engine.
const OURS: &str = "ringroad -r";

/// Markdown: a table with a line for each cell that ran, and the names of those for which there was no time.
pub(super) fn markdown(record: &Value) -> String {
    let cells = || record["cells"].as_array().into_iter().flatten();
    let rows: Vec<String> = cells().filter_map(row).collect();
    let mut text = String::new();
    if !rows.is_empty() {
        text.push_str(&format!(
        "\n## In short\n\n*Faster*: `cp -r`'s time over `{OURS}`'s, within blocks; bold where the aim is missed. *Beside \
         it*: our time over that of the fastest of the others, and what can be said of it.\n\n\
         | place | tree | faster than `cp -r` | aim | fastest other | beside it | | CPU s for a million files: ours, its, \
         `cp -r`'s |\n|---|---|---|---|---|---|---|---|\n"
        ));
    }
    rows.iter().for_each(|row| text.push_str(row));
    let left: Vec<String> = cells()
        .filter(|cell| cell["skipped"] == NOT_REACHED)
        .filter_map(|cell| Some(Cell::of_record(cell)?.title()))
        .collect();
    if !left.is_empty() {
        text.push_str(&format!("\nNo time was left for {}.\n", left.join(", ")));
    }
    text
}

fn row(cell: &Value) -> Option<String> {
    let of = |name: &str| {
        let rows = cell["contestants"].as_array()?;
        rows.iter().find(|row| row["name"] == name)
    };
    let known = Cell::of_record(cell)?;
    let ahead = cell["ahead"].as_array()?.iter().find(|line| line["name"] == OURS)?;
    let faster = &of(OURS)?["times_faster_than_cp_r"];
    let missed = known.aim().zip(faster["mid"].as_f64()).is_some_and(|(aim, mid)| mid < aim);
    let mark = if missed { "**" } else { "" };
    let peer = ahead["peer"].as_str()?;
    let cpu =
        |name: &str| of(name).map_or_else(String::new, |row| number(&row["cpu_s_per_million_files"], 1.0, 0));
    Some(format!(
        "| {} | {}, {}{} | {mark}{}{mark} | {} | {peer} | {} | {} | {}, {}, {} |\n",
        known.place,
        known.shape.name,
        if known.cold { "cold" } else { "warm" },
        if known.sync { ", sync" } else { "" },
        interval(faster),
        known.aim().map_or_else(|| "none".to_string(), |aim| format!("{aim:.1}")),
        interval(&ahead["ratio"]),
        plain(&ahead["finding"]),
        cpu(OURS),
        cpu(peer),
        cpu(BASELINE),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cell(place: &str, mid: f64) -> Value {
        let row = |name: &str, cpu: f64| {
            json!({"name": name, "cpu_s_per_million_files": cpu,
                "times_faster_than_cp_r": {"low": 1.0, "mid": mid, "high": 9.0}})
        };
        json!({"place": place, "shape": "100k-of-4k", "temperature": "cold", "sync": true, "skipped": null,
            "contestants": [row("cp -r", 126.0), row("xcp", 103.0), row("ringroad -r", 60.0)],
            "ahead": [{"name": "ringroad -r", "peer": "xcp", "finding": "faster by 38 %",
                "ratio": {"low": 0.5, "mid": 0.6, "high": 0.9}}]})
    }

    #[test]
    fn a_missed_aim_is_bold_and_a_met_one_is_not() {
        let text = markdown(&json!({"cells": [cell("ext4", 3.4), cell("disk", 3.6)]}));
        assert!(
            text.contains(
                "| ext4 | 100k-of-4k, cold, sync | **3.40 (1.00 to 9.00)** | 3.5 | xcp | 0.60 (0.50 to 0.90) | faster by \
                 38 % | 60, 103, 126 |"
            ),
            "{text}"
        );
        assert!(text.contains("| disk | 100k-of-4k, cold, sync | 3.60 (1.00 to 9.00) | 3.5"), "{text}");
    }

    #[test]
    fn what_there_was_no_time_for_is_named() {
        let late = json!({"place": "xfs", "shape": "mixed", "temperature": "warm", "sync": false, "skipped": NOT_REACHED,
            "contestants": [], "ahead": []});
        let text = markdown(&json!({"cells": [cell("ext4", 4.0), late]}));
        assert!(text.contains("No time was left for xfs/mixed/warm/no."), "{text}");
        assert!(!text.contains("| xfs |"), "{text}");
    }
}
