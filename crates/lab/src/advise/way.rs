//! The ways in which a workload and a load may differ, and how far the two are apart in each.
//!
//! Costs grow with factors, so a distance is a factor too. Start at [`Way::distance`].

use super::Workload;
use crate::page::figure;
use crate::page::guide::RECONNECT;
use crate::page::shape::{self, Unit};
use crate::suite::{Load, Protocol};
use ringroad_measure::record::Cell;

/// What a load is like, of a record or of a suite.
pub(super) struct Point<'a> {
    protocol: &'a str,
    connections: u32,
    active_share: f64,
    payload_bytes: u64,
    pipeline: u32,
    /// What sets it apart besides its numbers.
    words: Option<&'a str>,
}

impl<'a> Point<'a> {
    /// Returns what a cell of a record was put under.
    pub(super) fn of_cell(cell: &'a Cell) -> Point<'a> {
        Point {
            protocol: &cell.protocol,
            connections: cell.connections,
            active_share: cell.active_share,
            payload_bytes: cell.payload_bytes,
            pipeline: cell.pipeline,
            words: cell.variant.as_deref(),
        }
    }

    /// Returns what a suite would put programs under.
    pub(super) fn of_load(load: &'a Load) -> Point<'a> {
        Point {
            protocol: match load.protocol {
                Protocol::Http => "http",
                Protocol::Echo => "echo",
                Protocol::Files => "files",
            },
            connections: load.connections,
            active_share: f64::from(load.active) / f64::from(load.connections.max(1)),
            payload_bytes: u64::from(load.payload_bytes),
            pipeline: load.pipeline,
            words: load.about.as_deref(),
        }
    }

    /// Returns whether it can speak for a workload at all: connections, in the protocol that is asked for,
    /// and nothing about them that a workload cannot name.
    pub(super) fn speaks_for(&self, workload: &Workload) -> bool {
        self.protocol != "files"
            && workload.protocol.as_ref().is_none_or(|protocol| protocol == self.protocol)
            && match (self.words, self.words.and_then(shape::quantity_in)) {
                (None | Some(RECONNECT), _) => true,
                (Some(_), Some(quantity)) => {
                    quantity.unit == Unit::Time
                        && (quantity.what.ends_with("work") || quantity.what.ends_with("delay"))
                }
                (Some(_), None) => false,
            }
    }

    /// Returns whether it is near a workload in every way.
    pub(super) fn is_near(&self, workload: &Workload) -> bool {
        WAYS.into_iter().all(|way| way.distance(workload, self) <= 1.0)
    }
}

/// One way in which a workload and a load may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Connections,
    Active,
    Payload,
    Pipeline,
    Work,
    Delay,
    Reconnect,
}

pub(super) const WAYS: [Way; 7] =
    [Way::Connections, Way::Active, Way::Payload, Way::Pipeline, Way::Work, Way::Delay, Way::Reconnect];

/// Below so many bytes a payload is one small copy beside a system call, whatever its size.
const SMALL_BYTES: f64 = 1024.0;

/// Costs of connections as work and delay are what the handler adds; below these they are not felt.
const WORK_FELT_US: f64 = 2.0;
const DELAY_FELT_US: f64 = 100.0;

impl Way {
    /// Returns what is asked for.
    pub(super) fn wanted(self, workload: &Workload) -> Option<f64> {
        match self {
            Way::Connections => workload.connections.map(f64::from),
            Way::Active => Some(workload.active_share.unwrap_or(1.0)),
            Way::Payload => workload.payload_bytes.map(|bytes| bytes as f64).or(Some(0.0)),
            Way::Pipeline => Some(f64::from(workload.pipeline.unwrap_or(1).max(1))),
            Way::Work => Some(workload.work_us.unwrap_or(0.0)),
            Way::Delay => Some(workload.delay_us.unwrap_or(0.0)),
            Way::Reconnect => Some(f64::from(u8::from(workload.reconnect))),
        }
    }

    /// Returns what a load has.
    pub(super) fn had(self, point: &Point<'_>) -> f64 {
        let time_of = |what: &str| {
            let quantity = point.words.and_then(shape::quantity_in);
            quantity
                .filter(|q| q.unit == Unit::Time && q.what.ends_with(what))
                .map_or(0.0, |quantity| quantity.value)
        };
        match self {
            Way::Connections => f64::from(point.connections),
            Way::Active => point.active_share,
            Way::Payload => point.payload_bytes as f64,
            Way::Pipeline => f64::from(point.pipeline.max(1)),
            Way::Work => time_of("work"),
            Way::Delay => time_of("delay"),
            Way::Reconnect => f64::from(u8::from(point.words == Some(RECONNECT))),
        }
    }

    /// Returns how far from what is asked: 0 is the same, up to 1 is near enough to speak for it.
    pub(super) fn distance(self, workload: &Workload, point: &Point<'_>) -> f64 {
        let Some(wanted) = self.wanted(workload) else {
            return 0.0;
        };
        let had = self.had(point);
        // Costs grow with factors, so distance is a factor too; the summand is what is not felt.
        let factor = |summand: f64, near: f64| ((wanted + summand) / (had + summand)).ln().abs() / near.ln();
        match self {
            // Half a decade.
            Way::Connections | Way::Active => factor(0.0, 10_f64.sqrt()),
            Way::Payload => factor(SMALL_BYTES, 4.0),
            Way::Pipeline if (wanted > 1.0) != (had > 1.0) => f64::INFINITY,
            Way::Pipeline => factor(0.0, 4.0),
            Way::Work => factor(WORK_FELT_US, 2.0),
            Way::Delay => factor(DELAY_FELT_US, 3.0),
            Way::Reconnect if wanted == had => 0.0,
            Way::Reconnect => f64::INFINITY,
        }
    }

    /// Returns the suite that varies it, where none covers all that is asked.
    pub(super) fn suite(self) -> &'static str {
        match self {
            Way::Connections => "models",
            Way::Active => "active-share",
            Way::Payload => "payload",
            Way::Pipeline => "pipeline",
            Way::Work | Way::Delay => "work",
            Way::Reconnect => "churn",
        }
    }

    /// Returns what is asked for in words.
    pub(super) fn said(self, value: f64) -> String {
        match self {
            Way::Connections => format!("{} connections", figure::count(value as u64)),
            Way::Active => format!("{} of them active", figure::percent_short(value)),
            Way::Payload => format!("{} per request", figure::bytes(value)),
            Way::Pipeline => format!("{} requests in flight on each", figure::count(value as u64)),
            Way::Work => format!("{} of work per request", figure::micros(value)),
            Way::Delay => format!("{} of delay per request", figure::micros(value)),
            Way::Reconnect => "a connection per request".to_owned(),
        }
    }
}
