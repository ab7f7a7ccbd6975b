//! What the benches that keep a record of their own have in common: options in pairs, the contestants asked
//! for, and what stays: a record, and the table made from it. What is measured, and in which order, is
//! theirs.

use ringroad_host::facts::facts;
use serde_json::{Value, json};
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// An option and its value.
pub(crate) struct Pair<'a> {
    pub(crate) option: &'a str,
    pub(crate) value: &'a str,
}

impl Pair<'_> {
    pub(crate) fn number(&self) -> Result<u64, String> {
        self.value.parse().map_err(|_| format!("{} {}: not a number", self.option, self.value))
    }

    /// How often something is done: at least once.
    pub(crate) fn count(&self) -> Result<usize, String> {
        Ok(self.number()?.max(1) as usize)
    }

    pub(crate) fn list(&self) -> Vec<String> {
        self.value.split(',').map(str::to_owned).collect()
    }
}

/// Hands each option to `set`, which says whether it knows it.
pub(crate) fn options(
    words: &[String],
    mut set: impl FnMut(&Pair<'_>) -> Result<bool, String>,
) -> Result<(), String> {
    for words in words.chunks(2) {
        let [option, value] = words else { return Err(format!("{}: no value", words.join(" "))) };
        if !set(&Pair { option, value })? {
            return Err(format!("{option} {value}: not known"));
        }
    }
    Ok(())
}

/// Leaves those of `all` that are asked for: all, if none is named. An error names those that are not there.
pub(crate) fn keep_only<T>(
    all: &mut Vec<T>,
    only: &[String],
    kind: &str,
    name: impl Fn(&T) -> &str,
) -> io::Result<()> {
    if let Some(unknown) = only.iter().find(|asked| !all.iter().any(|one| name(one) == **asked)) {
        let known: Vec<&str> = all.iter().map(&name).collect();
        return Err(io::Error::other(format!("no {kind} {unknown:?} (there are: {})", known.join(", "))));
    }
    all.retain(|one| only.is_empty() || only.iter().any(|asked| asked == name(one)));
    Ok(())
}

/// Runs the bench `name` and shows its table; exit code 2 for a mistake in its options, 1 when a run failed.
pub(crate) fn bench<P>(
    name: &str,
    usage: &str,
    plan: Result<P, String>,
    run: impl FnOnce(&P) -> io::Result<String>,
) -> ExitCode {
    let plan = match plan {
        Ok(plan) => plan,
        Err(mistake) => {
            eprintln!("bench {name}: {mistake}\n{usage}");
            return ExitCode::from(2);
        }
    };
    match run(&plan) {
        Ok(table) => {
            print!("{table}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("bench {name}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The record of the bench `name`: what was run where and when, with `fields` of its own.
pub(crate) fn record(name: &str, fields: Value) -> Value {
    let host = facts();
    let ended = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let mut record = json!({
        "schema": format!("ringroad.{name}/1"),
        "version": env!("CARGO_PKG_VERSION"),
        "ended_unix_s": ended.as_secs(),
        "host": {
            "kernel": host.kernel, "arch": host.arch, "cpu_model": host.cpu_model,
            "cpus": host.cpus_online, "virtualisation": host.virtualisation,
        },
    });
    if let (Some(record), Value::Object(fields)) = (record.as_object_mut(), fields) {
        record.extend(fields);
    }
    record
}

/// Writes record and table to the folder `name` in `out`.
pub(crate) fn leave(out: &Path, name: &str, record: &Value, table: &str) -> io::Result<()> {
    let folder = out.join(name);
    std::fs::create_dir_all(&folder)?;
    let text = serde_json::to_string_pretty(record).map_err(io::Error::other)?;
    std::fs::write(folder.join("record.json"), text + "\n")?;
    std::fs::write(folder.join("table.md"), table)
}

/// A number of a record as so many decimals; `-` if there is none.
pub(crate) fn number(value: &Value, decimals: usize) -> String {
    value.as_f64().map_or_else(|| "-".to_string(), |number| format!("{number:.decimals$}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn missing_programs_are_named_beside_present_ones() {
        let mut all = vec!["epoll", "poll"];
        let why = keep_only(&mut all, &["pol".to_owned()], "server", |one| one).unwrap_err();
        assert_eq!(why.to_string(), "no server \"pol\" (there are: epoll, poll)");
        keep_only(&mut all, &[], "server", |one| one).unwrap();
        assert_eq!(all, ["epoll", "poll"]);
        keep_only(&mut all, &["poll".to_owned()], "server", |one| one).unwrap();
        assert_eq!(all, ["poll"]);
    }

    #[test]
    fn a_record_says_which_bench_it_is_of_and_has_the_fields_of_that() {
        let record = record("held", json!({ "repeats": 6 }));
        assert_eq!((&record["schema"], &record["repeats"]), (&json!("ringroad.held/1"), &json!(6)));
        assert!(record["host"]["kernel"].is_string());
    }
}
