//! `ringroad lab advise`: which driver and settings for a workload, read from a record.
//!
//! The judgement is the `lab` library's; this file finds the record and turns flags into a workload. Start at
//! [`advise`].

use super::{Complaint, print, read, state_folder, width};
use crate::complaint::{DONE, FAILED};
use crate::flags::AdviseFlags;
use ringroad_lab::advise::{self, Workload};
use ringroad_measure::caveat::REPEATS_MIN;
use ringroad_measure::record::Record;
use std::fs;
use std::path::{Path, PathBuf};

/// Exit code 1 if no record covers what was asked: then what is printed is not an answer.
pub(super) fn advise(flags: &AdviseFlags) -> Result<u8, Complaint> {
    let workload = workload(flags);
    let width = width();
    let records: Vec<(PathBuf, Record)> = match &flags.record {
        Some(path) => vec![(path.clone(), read(path)?)],
        None => newest(&state_folder())?,
    };
    let Some((newest, rest)) = records.split_first() else {
        let message = format!(
            "lab advise: there is no record under {} (`ringroad lab` makes one; --record FILE names another)",
            state_folder().display()
        );
        return Err(Complaint { message, code: FAILED });
    };
    if workload.is_empty() {
        print(&advise::general(&newest.1, width))?;
        print(&format!("record: {}\n", newest.0.display()))?;
        return Ok(DONE);
    }
    let covering = |enough: bool| {
        let sure = move |record: &Record| !enough || record.blocks >= REPEATS_MIN;
        std::iter::once(newest)
            .chain(rest)
            .filter(move |(_, record)| sure(record))
            .map(|(path, record)| (path, workload.advice(record, width)))
            .find(|(_, advice)| advice.covered)
    };
    // The newest with blocks enough to tell a difference from noise, or else the newest.
    let (path, advice) = covering(true)
        .or_else(|| covering(false))
        .unwrap_or_else(|| (&newest.0, workload.advice(&newest.1, width)));
    print(&advice.text)?;
    print(&format!("record: {}\n", path.display()))?;
    Ok(if advice.covered { DONE } else { FAILED })
}

fn workload(flags: &AdviseFlags) -> Workload {
    let micros = |span: std::time::Duration| span.as_secs_f64() * 1e6;
    Workload {
        protocol: flags.protocol.map(|protocol| protocol.to_string()),
        connections: flags.connections,
        active_share: flags.active,
        payload_bytes: flags.payload.map(u64::from),
        pipeline: flags.pipeline,
        work_us: flags.work_us.map(micros),
        delay_us: flags.delay_us.map(micros),
        reconnect: flags.reconnect,
    }
}

/// The records under a folder, newest first; what is no record (a run that was cut off) is left out.
fn newest(folder: &Path) -> Result<Vec<(PathBuf, Record)>, Complaint> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(super::failed("list", folder, &error)),
    };
    let mut records: Vec<(PathBuf, Record)> = entries
        .filter_map(|entry| {
            let path = entry.ok()?.path().join("record.json");
            let record = read(&path).ok()?;
            Some((path, record))
        })
        .collect();
    // RFC 3339 in UTC sorts as time does.
    records.sort_by(|a, b| b.1.started.cmp(&a.1.started));
    Ok(records)
}
