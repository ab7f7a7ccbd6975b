//! The record as a table for people: a pure function, so that it can be made again.

use super::{NOT_REACHED, short};
use serde_json::Value;

/// Markdown: the machine, all in short, then a table per cell, the fastest first.
pub(super) fn markdown(record: &Value) -> String {
    let host = &record["host"];
    let mut text = format!(
        "# Copiers side by side\n\n`{}`\n\nLinux {}, {}, {} CPUs, {:.0} GiB, {}; scale {}, up to {} blocks in random \
         order, seed {}.\n{}\n\nTimes are medians with 95 % intervals (from six blocks or fewer, that is the range). \
         *faster*: `cp -r`'s time over this one's, within blocks; `cp -r again` shows the noise; \
         `reading alone` reads everything, sixteen files at a time, and writes nothing. Every run writes \
         into a new folder, and nothing is removed in between: ext4 slows every copier down after a removal. System \
         calls are counted on a small tree with folders as full. Each run follows one on a single file in \
         memory, so that its program is loaded.\n",
        command(record),
        plain(&host["kernel"]),
        plain(&host["cpu_model"]),
        plain(&host["cpus"]),
        host["memory_total_bytes"].as_f64().unwrap_or(0.0) / (1_u64 << 30) as f64,
        plain(&host["virtualisation"]),
        plain(&record["scale"]),
        plain(&record["repeats"]),
        plain(&record["seed"]),
        versions(&record["versions"]),
    );
    for run in record["earlier"].as_array().into_iter().flatten() {
        text.push_str(&format!("\nCells of an earlier run are here too: `{}`.\n", command(run)));
    }
    text.push_str(&short::markdown(record));
    let cells = record["cells"].as_array().into_iter().flatten();
    cells.filter(|cell| cell["skipped"] != NOT_REACHED).for_each(|cell| cell_table(&mut text, cell));
    text
}

/// The command that made it.
fn command(run: &Value) -> String {
    let words = run["command"].as_array().into_iter().flatten().filter_map(Value::as_str);
    words.collect::<Vec<_>>().join(" ")
}

fn cell_table(text: &mut String, cell: &Value) {
    let title: Vec<String> = ["place", "shape", "temperature"]
        .iter()
        .filter_map(|key| cell[*key].as_str())
        .map(str::to_string)
        .collect();
    let sync = if cell["sync"] == true { ", with sync" } else { "" };
    text.push_str(&format!("\n## {}{sync}\n\n", title.join(", ")));
    if let Some(reason) = cell["skipped"].as_str() {
        return text.push_str(&format!("Skipped: {reason}.\n"));
    }
    let of = |row: &Value| row["seconds"].as_array().map_or(0, Vec::len);
    let blocks = cell["contestants"].as_array().into_iter().flatten().map(of).max().unwrap_or(0);
    text.push_str(&format!(
        "{} files; {}; {blocks} blocks\n\n",
        plain(&cell["files"]),
        plain(&cell["mount"])
    ));
    text.push_str("| | seconds | faster | files/s | CPU s/M files | calls/file | peak MiB |\n");
    text.push_str("|---|---|---|---|---|---|---|\n");
    let mut rows: Vec<&Value> = cell["contestants"].as_array().into_iter().flatten().collect();
    let seconds = |row: &Value| row["seconds_interval"]["mid"].as_f64().unwrap_or(f64::INFINITY);
    rows.sort_by(|a, b| seconds(a).total_cmp(&seconds(b)));
    for row in rows {
        let name = plain(&row["name"]);
        if let Some(reason) = row["skipped"].as_str() {
            text.push_str(&format!("| {name} | {reason} | | | | | |\n"));
            continue;
        }
        text.push_str(&format!(
            "| {name} | {} | {} | {} | {} | {} | {} |\n",
            interval(&row["seconds_interval"]),
            interval(&row["times_faster_than_cp_r"]),
            number(&row["files_per_s"], 1.0, 0),
            number(&row["cpu_s_per_million_files"], 1.0, 1),
            number(&row["syscalls_per_million_files"], 1e-6, 1),
            number(&row["peak_bytes"], 1.0 / (1 << 20) as f64, 1),
        ));
    }
    let ahead: Vec<String> = cell["ahead"].as_array().into_iter().flatten().map(ahead).collect();
    if !ahead.is_empty() {
        text.push_str(&format!("\n{}\n", ahead.join("  \n")));
    }
}

/// One of ours beside the fastest of the others, as a sentence.
fn ahead(line: &Value) -> String {
    format!("{} beside {}: {}.", plain(&line["name"]), plain(&line["peer"]), plain(&line["finding"]))
}

fn versions(versions: &Value) -> String {
    let lines = versions.as_object().into_iter().flatten().filter_map(|(_, line)| line.as_str());
    lines.collect::<Vec<_>>().join("; ")
}

pub(super) fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}

pub(super) fn number(value: &Value, factor: f64, digits: usize) -> String {
    value.as_f64().map_or_else(|| "unknown".to_string(), |value| format!("{:.digits$}", value * factor))
}

pub(super) fn interval(value: &Value) -> String {
    match (value["mid"].as_f64(), value["low"].as_f64(), value["high"].as_f64()) {
        (Some(median), Some(low), Some(high)) => format!("{median:.2} ({low:.2} to {high:.2})"),
        _ => "unknown".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_are_sorted_by_time_and_what_was_skipped_is_there_with_its_reason() {
        let row = |name: &str, median: f64| json!({"name": name, "seconds_interval": {"low": 1.0, "mid": median, "high": 9.0}, "skipped": null});
        let record = json!({"host": {}, "command": ["x"], "cells": [
            {"place": "disk", "shape": "flat", "temperature": "cold", "sync": true, "files": 10, "mount": "ext4",
             "skipped": null,
             "contestants": [row("slow", 2.0), {"name": "away", "skipped": "not installed"}, row("fast", 1.5)]},
            {"place": "moon", "skipped": "too far"},
        ]});
        let text = markdown(&record);
        let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what} is not in {text}"));
        assert!(
            at("| fast | 1.50") < at("| slow | 2.00") && at("| slow") < at("| away | not installed"),
            "{text}"
        );
        assert!(text.contains("disk, flat, cold, with sync") && text.contains("Skipped: too far."), "{text}");
        assert!(text.contains("unknown"), "a figure that is not known is not zero: {text}");
    }
}
