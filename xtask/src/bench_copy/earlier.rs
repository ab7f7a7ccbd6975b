//! Going on with a record: a hundred cells take hours, so they may be run in several sittings.
//!
//! Ratios are taken within blocks, so cells of different runs stand beside each other without harm as long as
//! machine, scale and number of blocks are the same. Start at [`add`].

use super::plan::Cell;
use serde_json::{Value, json};
use std::io;
use std::path::Path;

/// What must be the same in both.
const SAME: [&str; 5] = ["schema", "version", "host", "scale", "repeats"];

/// The record that is there, if a run with this head may go on with it.
pub(super) fn read(record: &Path, head: &Value) -> io::Result<Value> {
    let explain = |what: String| io::Error::other(format!("--add: {}: {what}", record.display()));
    let text = std::fs::read_to_string(record).map_err(|error| explain(error.to_string()))?;
    let earlier: Value = serde_json::from_str(&text).map_err(|error| explain(error.to_string()))?;
    for key in SAME {
        if earlier[key] != head[key] {
            return Err(explain(format!("its {key} is {}, and here it is {}", earlier[key], head[key])));
        }
    }
    Ok(earlier)
}

/// Adds to a record the cells of an earlier one that it does not have, and says of which runs they are.
pub(super) fn add(record: &mut Value, earlier: &Value) {
    let ran = |cell: &&Value| cell["skipped"].is_null();
    let of = |record: &Value| record["cells"].as_array().cloned().unwrap_or_default();
    let own = of(record);
    let has = |cells: &[Value], cell: &Value| {
        cells.iter().filter(ran).any(|known| Cell::of_record(known) == Cell::of_record(cell))
    };
    let theirs = of(earlier);
    // What neither has stays with the reason that this run gives.
    let mut cells: Vec<Value> = own.iter().filter(|cell| ran(cell) || !has(&theirs, cell)).cloned().collect();
    let known = |cells: &[Value], cell: &Value| {
        cells.iter().any(|known| Cell::of_record(known) == Cell::of_record(cell))
    };
    let missing: Vec<Value> = theirs.into_iter().filter(|cell| !known(&cells, cell)).collect();
    cells.extend(missing);
    cells.sort_by_key(|cell| Cell::of_record(cell).map(|cell| cell.rank()));
    record["cells"] = cells.into();
    let mut runs = earlier["earlier"].as_array().cloned().unwrap_or_default();
    runs.push(json!({
        "command": earlier["command"],
        "started_unix_s": earlier["started_unix_s"],
        "took_s": earlier["took_s"],
        "seed": earlier["seed"],
        "versions": earlier["versions"],
        "note": earlier["note"],
    }));
    record["earlier"] = runs.into();
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn cell(place: &str, skipped: Option<&str>, files: u64) -> Value {
        json!({"place": place, "shape": "mixed", "temperature": "cold", "sync": false, "skipped": skipped,
            "files": files})
    }

    fn record(seed: u64, cells: Vec<Value>) -> Value {
        json!({"schema": "s", "version": "1", "host": {"cpus": 2}, "scale": 0.1, "repeats": 6, "seed": seed,
            "command": ["x"], "cells": cells})
    }

    #[test]
    fn cells_that_this_run_has_not_stay_and_those_that_it_has_are_its_own() {
        let earlier = record(
            1,
            vec![
                cell("tmpfs", None, 1),
                cell("xfs", None, 1),
                cell("btrfs", Some("the time limit"), 1),
                cell("disk", None, 1),
            ],
        );
        let own = vec![
            cell("xfs", None, 2),
            cell("disk", Some("the time limit"), 2),
            cell("btrfs", Some("no room"), 2),
        ];
        let mut both = record(2, own);
        add(&mut both, &earlier);
        let found: Vec<(&str, u64)> = both["cells"]
            .as_array()
            .unwrap()
            .iter()
            .map(|cell| (cell["place"].as_str().unwrap(), cell["files"].as_u64().unwrap()))
            .collect();
        assert_eq!(found, [("disk", 1), ("xfs", 2), ("btrfs", 2), ("tmpfs", 1)]);
        assert_eq!(both["earlier"][0]["seed"], 1);
        let mut third = record(3, vec![]);
        add(&mut third, &both);
        assert_eq!(third["earlier"].as_array().map(Vec::len), Some(2));
        assert_eq!(third["earlier"][1]["seed"], 2);
    }

    #[test]
    fn a_record_of_another_machine_or_size_is_not_gone_on_with() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("record.json");
        let told = |head: &Value| read(&file, head).unwrap_err().to_string();
        assert!(told(&record(1, vec![])).contains("--add"), "no record at all");
        std::fs::write(&file, record(1, vec![]).to_string()).unwrap();
        assert_eq!(read(&file, &record(2, vec![])).unwrap()["seed"], 1);
        let mut other = record(2, vec![]);
        other["scale"] = json!(1.0);
        assert!(told(&other).contains("its scale is 0.1, and here it is 1.0"), "{}", told(&other));
        let mut other = record(2, vec![]);
        other["host"] = json!({"cpus": 4});
        assert!(told(&other).contains("host"), "{}", told(&other));
    }
}
