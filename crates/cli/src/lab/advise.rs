//! `ringroad lab advise`: which driver and settings for a workload, read from a record.
//!
//! The judgement is the `lab` library's; this file finds the record and turns flags into a workload. Start at
//! [`advise`].

use super::flags::AdviseFlags;
use super::store::{newest, none_yet, read};
use super::{Complaint, print, width};
use crate::complaint::{DONE, FAILED};
use ringroad_lab::advise::{self, Workload};
use ringroad_measure::caveat::REPEATS_MIN;
use ringroad_measure::record::Record;
use std::path::PathBuf;

/// Exit code 1 if no record covers what was asked: then what is printed is not an answer.
pub(super) fn advise(flags: &AdviseFlags) -> Result<u8, Complaint> {
    if !flags.traffic.is_empty() {
        return super::traffic::advise(&flags.traffic, flags.span);
    }
    let workload = workload(flags);
    let width = width();
    let records: Vec<(PathBuf, Record)> = match &flags.record {
        Some(path) => vec![(path.clone(), read(path)?)],
        // A comparison of URLs, or of other programs alone, says nothing about drivers.
        None => {
            let mut all = newest()?;
            all.retain(|(_, record)| record.cells.iter().any(|cell| cell.driver.is_some()));
            all
        }
    };
    let Some((newest, rest)) = records.split_first() else {
        return Err(none_yet("there is no record to advise from"));
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
