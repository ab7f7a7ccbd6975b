//! Finds the driver that costs least for the traffic of a running server, from the server's figures for each
//! driver.
//!
//! A server with workers on several drivers distributes its connections over all of them at the same time. So
//! every interval between two readings is a block in which both had the same conditions. The drivers are
//! compared as the lab's programs are: within blocks, by the median of the ratios with its interval. If the
//! figures do not permit a comparison, it is refused with the reason. Start at [`advise`].

use crate::table::wrapped;
use ringroad_measure::caveat::REPEATS_MIN;
use ringroad_measure::units::{Apart, Share};
use ringroad_measure::{Comparison, Finding};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// Minimum number of requests of each driver in each interval: with fewer, one large answer would be a tenth
/// of the figure.
pub const REQUESTS_MIN: u64 = 200;

/// Maximum difference between two drivers in the bytes of an answer, as a share, in the median of the
/// intervals.
const BYTES_MAX: f64 = 0.1;

/// Maximum difference in the connections per request, and in the share of answers that are not 2xx or 3xx.
const SHARE_MAX: f64 = 0.05;

/// Maximum share of the process's CPU time that is in no driver's figures.
const OTHER_MAX: f64 = 0.1;

/// What a server has counted for one driver since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// Requests that were answered.
    pub requests: u64,
    /// Of these, with a status of 2xx or 3xx.
    pub good: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Bytes of bodies sent.
    pub body_bytes: u64,
    /// Sum of the times from the heads of all requests to their answers, seconds.
    pub seconds: f64,
    /// CPU time of the workers' threads.
    pub cpu_s: f64,
}

/// One reading of a server's figures, from its metrics as text or its status as JSON.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// Totals by the driver's name.
    pub drivers: BTreeMap<String, Totals>,
    /// CPU time of the process that is in no driver's figures.
    pub other_cpu_s: f64,
}

/// Why a text is not a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoReading {
    /// It has no figures of drivers.
    NoDrivers,
    /// A number is missing or invalid.
    BadNumber,
}

impl fmt::Display for NoReading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoReading::NoDrivers => {
                "it has no figures of drivers (metrics or status of `ringroad serve` have them)"
            }
            NoReading::BadNumber => "a figure of a driver is missing, or is no number",
        })
    }
}

impl std::error::Error for NoReading {}

impl Reading {
    /// Parses metrics in the text format of Prometheus, a status in JSON, or the output of
    /// `ringroad workers status --json`.
    ///
    /// # Errors
    /// It has no figures of drivers, or they are incomplete.
    pub fn of(text: &str) -> Result<Reading, NoReading> {
        match serde_json::from_str::<Value>(text) {
            Ok(status) => Reading::of_status(status.get("workers").unwrap_or(&status)),
            Err(_) => Reading::of_metrics(text),
        }
    }

    fn of_status(told: &Value) -> Result<Reading, NoReading> {
        let all = told.get("drivers").and_then(Value::as_array).ok_or(NoReading::NoDrivers)?;
        let one = |one: &Value| {
            let count = |value: &Value| value.as_u64();
            let totals = Totals {
                requests: count(one.get("requests")?)?,
                good: count(one.get("responses")?.get("2xx")?)? + count(one.get("responses")?.get("3xx")?)?,
                accepted: count(one.get("accepted")?)?,
                body_bytes: count(one.get("body_bytes")?)?,
                seconds: one.get("seconds")?.as_f64()?,
                cpu_s: one.get("cpu_s")?.as_f64()?,
            };
            Some((one.get("driver")?.as_str()?.to_owned(), totals))
        };
        let drivers = all.iter().map(one).collect::<Option<BTreeMap<_, _>>>().ok_or(NoReading::BadNumber)?;
        let other_cpu_s = told.get("other_cpu_s").and_then(Value::as_f64).ok_or(NoReading::BadNumber)?;
        Reading { drivers, other_cpu_s }.whole()
    }

    fn of_metrics(text: &str) -> Result<Reading, NoReading> {
        let mut reading = Reading::default();
        for line in text.lines() {
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            if series == "ringroad_other_cpu_seconds_total" {
                reading.other_cpu_s = value.parse().map_err(|_| NoReading::BadNumber)?;
            }
            let Some(series) = series.strip_prefix("ringroad_driver_") else { continue };
            let Some((name, labels)) = series.split_once('{') else { continue };
            let Some(driver) = label(labels, "driver") else { continue };
            let value: f64 = value.parse().map_err(|_| NoReading::BadNumber)?;
            let totals = reading.drivers.entry(driver.to_owned()).or_default();
            // A count is far below 2^53.
            let count = value as u64;
            match name {
                "requests_total" => {
                    totals.requests += count;
                    if matches!(label(labels, "class"), Some("2xx" | "3xx")) {
                        totals.good += count;
                    }
                }
                "connections_accepted_total" => totals.accepted = count,
                "response_body_bytes_total" => totals.body_bytes = count,
                "request_duration_seconds_sum" => totals.seconds = value,
                "cpu_seconds_total" => totals.cpu_s = value,
                _ => {}
            }
        }
        reading.whole()
    }

    fn whole(self) -> Result<Reading, NoReading> {
        if self.drivers.is_empty() { Err(NoReading::NoDrivers) } else { Ok(self) }
    }
}

/// Returns the value of a label among `name="value",…}`.
fn label<'t>(labels: &'t str, name: &str) -> Option<&'t str> {
    labels.split([',', '}']).find_map(|one| one.strip_prefix(name)?.strip_prefix("=\"")?.strip_suffix('"'))
}

/// Why the figures do not permit a comparison.
#[derive(Clone, Debug, PartialEq)]
pub enum Refused {
    /// There are too few readings.
    Readings(usize),
    /// A figure is smaller than before: the server was restarted, or the order is wrong.
    Backwards(String),
    /// Fewer than two drivers have workers.
    OneDriver(Option<String>),
    /// A driver has answered too few requests in an interval.
    Requests {
        /// The driver.
        driver: String,
        /// The smallest number of requests in an interval.
        fewest: u64,
    },
    /// Too much CPU time is in no driver's figures.
    Elsewhere(f64),
    /// The drivers had different traffic.
    Unlike {
        /// The differing quantity.
        what: &'static str,
        /// The drivers with their figures.
        figures: [(String, f64); 2],
    },
    /// A driver has used no CPU time by its clock.
    NoClock(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Readings(count) => {
                write!(f, "{count} readings are too few: {} make {REPEATS_MIN} intervals", REPEATS_MIN + 1)
            }
            Refused::Backwards(driver) => write!(
                f,
                "a figure of {driver} is smaller than in the reading before: the server was started again, or the \
                 readings are not in the order of time"
            ),
            Refused::OneDriver(None) => f.write_str("no driver has answered requests"),
            Refused::OneDriver(Some(driver)) => write!(
                f,
                "only {driver} has answered requests in every interval (`drivers` in the configuration, or `ringroad \
                 workers move`, puts workers on two)"
            ),
            Refused::Requests { driver, fewest } => write!(
                f,
                "too few requests: {driver} answered {fewest} in an interval, {REQUESTS_MIN} are needed (longer \
                 intervals have more)"
            ),
            Refused::Elsewhere(share) => write!(
                f,
                "{} of the process's CPU time is on threads that are no driver's workers, so what the drivers cost is \
                 not known",
                Share(*share)
            ),
            Refused::Unlike { what, figures: [(one, of_one), (other, of_other)] } => write!(
                f,
                "the drivers had different traffic: {what} were {of_one:.2} on {one} and {of_other:.2} on {other} (more \
                 connections are dealt out more evenly)"
            ),
            Refused::NoClock(driver) => write!(f, "{driver} has no CPU time by its clock"),
        }
    }
}

impl std::error::Error for Refused {}

/// The totals of one driver in one interval.
type Block = Totals;

fn grown(now: &Totals, then: &Totals) -> Option<Block> {
    let time = |now: f64, then: f64| (now >= then).then_some(now - then);
    Some(Totals {
        requests: now.requests.checked_sub(then.requests)?,
        good: now.good.checked_sub(then.good)?,
        accepted: now.accepted.checked_sub(then.accepted)?,
        body_bytes: now.body_bytes.checked_sub(then.body_bytes)?,
        seconds: time(now.seconds, then.seconds)?,
        cpu_s: time(now.cpu_s, then.cpu_s)?,
    })
}

impl Totals {
    fn each(&self, figure: f64) -> f64 {
        figure / self.requests as f64
    }

    fn cpu_us(&self) -> f64 {
        self.each(self.cpu_s * 1e6)
    }

    fn took_ms(&self) -> f64 {
        self.each(self.seconds * 1e3)
    }

    fn bytes(&self) -> f64 {
        self.each(self.body_bytes as f64)
    }
}

/// A driver with its intervals.
struct Driver {
    name: String,
    blocks: Vec<Block>,
}

impl Driver {
    fn all(&self) -> Totals {
        self.blocks.iter().fold(Totals::default(), |sum, block| Totals {
            requests: sum.requests + block.requests,
            good: sum.good + block.good,
            accepted: sum.accepted + block.accepted,
            body_bytes: sum.body_bytes + block.body_bytes,
            seconds: sum.seconds + block.seconds,
            cpu_s: sum.cpu_s + block.cpu_s,
        })
    }

    fn figures(&self, of: fn(&Block) -> f64) -> Vec<f64> {
        self.blocks.iter().map(of).collect()
    }
}

/// Reports which driver costs less, from readings in the order of time.
///
/// # Errors
/// The figures do not permit a comparison.
pub fn advise(readings: &[Reading], width: usize) -> Result<String, Refused> {
    if readings.len() <= REPEATS_MIN as usize {
        return Err(Refused::Readings(readings.len()));
    }
    let mut drivers = busy(readings)?;
    if drivers.len() < 2 {
        return Err(Refused::OneDriver(drivers.pop().map(|driver| driver.name)));
    }
    for driver in &drivers {
        let fewest = driver.blocks.iter().map(|block| block.requests).min().unwrap_or(0);
        if fewest < REQUESTS_MIN {
            return Err(Refused::Requests { driver: driver.name.clone(), fewest });
        }
        if driver.blocks.iter().any(|block| block.cpu_s <= 0.0) {
            return Err(Refused::NoClock(driver.name.clone()));
        }
    }
    let own: f64 = drivers.iter().map(|driver| driver.all().cpu_s).sum();
    let elsewhere =
        readings.last().zip(readings.first()).map_or(0.0, |(now, then)| now.other_cpu_s - then.other_cpu_s);
    let share = elsewhere / (own + elsewhere);
    if share > OTHER_MAX {
        return Err(Refused::Elsewhere(share));
    }
    // The cheapest first: the others are compared with it.
    drivers.sort_by(|one, other| one.all().cpu_us().total_cmp(&other.all().cpu_us()));
    let (cheapest, others) = drivers.split_first().ok_or(Refused::OneDriver(None))?;
    others.iter().try_for_each(|other| alike(cheapest, other))?;
    Ok(text(&drivers, readings.len() - 1, share, width))
}

/// Returns the drivers that have answered requests in every interval.
fn busy(readings: &[Reading]) -> Result<Vec<Driver>, Refused> {
    let mut drivers = Vec::new();
    let Some(last) = readings.last() else { return Ok(drivers) };
    for name in last.drivers.keys() {
        let totals: Option<Vec<_>> = readings.iter().map(|reading| reading.drivers.get(name)).collect();
        // A driver that was added meanwhile has no earlier figures.
        let Some(totals) = totals else { continue };
        let pairs = totals.iter().zip(totals.iter().skip(1));
        let blocks: Option<Vec<Block>> = pairs.map(|(then, now)| grown(now, then)).collect();
        let blocks = blocks.ok_or_else(|| Refused::Backwards(name.clone()))?;
        if blocks.iter().all(|block| block.requests > 0) {
            drivers.push(Driver { name: name.clone(), blocks });
        }
    }
    Ok(drivers)
}

/// Refuses two drivers with different traffic: their costs would be due to their requests.
fn alike(one: &Driver, other: &Driver) -> Result<(), Refused> {
    let unlike = |what, of: fn(&Totals) -> f64| {
        Err(Refused::Unlike {
            what,
            figures: [(one.name.clone(), of(&one.all())), (other.name.clone(), of(&other.all()))],
        })
    };
    let bytes = Comparison::of_blocks(&one.figures(Totals::bytes), &other.figures(Totals::bytes), None);
    let both_empty = one.all().body_bytes == 0 && other.all().body_bytes == 0;
    if !both_empty && bytes.is_none_or(|bytes| (bytes.ratio.mid - 1.0).abs() > BYTES_MAX) {
        return unlike("bytes of an answer", Totals::bytes);
    }
    type Figure = fn(&Totals) -> f64;
    let shares: [(&'static str, Figure); 2] = [
        ("connections for each request", |all| all.each(all.accepted as f64)),
        ("answers with a status of 2xx or 3xx", |all| all.each(all.good as f64)),
    ];
    for (what, of) in shares {
        if (of(&one.all()) - of(&other.all())).abs() > SHARE_MAX {
            return unlike(what, of);
        }
    }
    Ok(())
}

fn text(drivers: &[Driver], intervals: usize, elsewhere: f64, width: usize) -> String {
    let requests: u64 = drivers.iter().map(|driver| driver.all().requests).sum();
    let mut out =
        format!("For the traffic of this server, {requests} requests in {intervals} intervals:\n\n");
    let row = |driver: &str, requests: &str, cpu: &str, took: &str, bytes: &str| {
        format!("  {driver:8}  {requests:>10}  {cpu:>14}  {took:>9}  {bytes:>13}\n")
    };
    out.push_str(&row("driver", "requests", "CPU µs/request", "mean ms", "bytes/request"));
    for driver in drivers {
        let all = driver.all();
        let figures =
            (format!("{:.1}", all.cpu_us()), format!("{:.3}", all.took_ms()), format!("{:.0}", all.bytes()));
        out.push_str(&row(&driver.name, &all.requests.to_string(), &figures.0, &figures.1, &figures.2));
    }
    out.push('\n');
    let Some((cheapest, others)) = drivers.split_first() else { return out };
    for other in others {
        out.push_str(&compared(cheapest, other));
    }
    let counted = format!(
        "CPU is that of the workers' own threads; {} of the process's is on others and in no figure here. The drivers \
         ran side by side and shared the machine: alone, each may cost something else.",
        Share(elsewhere.max(0.0))
    );
    out.push_str(&wrapped(&counted, width, ""));
    out
}

/// Describes a driver that seems to cost more than the cheapest.
fn compared(cheapest: &Driver, other: &Driver) -> String {
    let compare = |of| Comparison::of_blocks(&cheapest.figures(of), &other.figures(of), None);
    let sentence = |what: &str, comparison: Option<Comparison>| match comparison.map(|one| one.finding) {
        Some(Finding::Slower { by, plus_minus }) => {
            let by = Apart(1.0 + by).plus_minus(plus_minus);
            format!("{} {what} more than {}, by {by}", other.name, cheapest.name)
        }
        Some(Finding::Faster { by, plus_minus }) => {
            let by = Apart(1.0 - by).plus_minus(plus_minus);
            format!("{} {what} less than {}, by {by}", other.name, cheapest.name)
        }
        Some(finding) => format!("{} and {}: {finding}", other.name, cheapest.name),
        None => format!("{} and {}: no figures", other.name, cheapest.name),
    };
    format!(
        "CPU:  {}.\nTime: {}.\n\n",
        sentence("costs", compare(Totals::cpu_us)),
        sentence("takes", compare(Totals::took_ms))
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Readings of a server on two drivers. In each of the intervals `io_uring` does what `one` says, and
    /// `epoll` what `other` says, with a little noise that both share and a little that is each one's own.
    fn readings(intervals: usize, one: Block, other: Block) -> Vec<Reading> {
        let mut all = vec![Reading {
            drivers: [("io_uring", one), ("epoll", other)]
                .map(|(name, _)| (name.to_owned(), Totals::default()))
                .into(),
            other_cpu_s: 0.0,
        }];
        for at in 0..intervals {
            let mut next = all.last().unwrap().clone();
            for (name, block, own) in [("io_uring", one, at % 3), ("epoll", other, at % 4)] {
                let totals = next.drivers.get_mut(name).unwrap();
                let noise = 1.0 + 0.1 * (at % 5) as f64 + 0.002 * own as f64;
                totals.requests += block.requests;
                totals.good += block.good;
                totals.accepted += block.accepted;
                totals.body_bytes += block.body_bytes;
                totals.seconds += block.seconds * noise;
                totals.cpu_s += block.cpu_s * noise;
            }
            next.other_cpu_s += 0.001;
            all.push(next);
        }
        all
    }

    const BLOCK: Block =
        Totals { requests: 1000, good: 990, accepted: 10, body_bytes: 500_000, seconds: 0.4, cpu_s: 0.05 };

    #[test]
    fn the_cheaper_driver_is_named_with_its_doubt() {
        let text = advise(&readings(12, BLOCK, Block { cpu_s: 0.06, ..BLOCK }), 100).unwrap();
        let line = text.lines().find(|line| line.starts_with("CPU:")).unwrap();
        assert!(
            line.starts_with("CPU:  epoll costs ") && line.contains(" more than io_uring, by "),
            "{text}"
        );
        let by: f64 = line.split_whitespace().nth(7).unwrap().parse().unwrap();
        assert!((19.0..21.0).contains(&by), "{text}");
        assert!(
            text.contains("Time: epoll and io_uring: no significant difference (smallest detectable: "),
            "{text}"
        );
    }

    #[test]
    fn equal_drivers_are_told_to_be_equal_with_what_would_have_been_seen() {
        let text = advise(&readings(12, BLOCK, BLOCK), 100).unwrap();
        assert!(
            text.contains("CPU:  epoll and io_uring: no significant difference")
                || text.contains("CPU:  io_uring and epoll: no significant difference"),
            "{text}"
        );
    }

    #[test]
    fn figures_that_bear_no_comparison_are_refused_with_the_reason() {
        let refused = |readings: &[Reading]| advise(readings, 100).unwrap_err();
        assert_eq!(refused(&readings(5, BLOCK, BLOCK)), Refused::Readings(6));
        let few = Block { requests: 199, good: 199, ..BLOCK };
        assert_eq!(
            refused(&readings(6, BLOCK, few)),
            Refused::Requests { driver: "epoll".to_owned(), fewest: 199 }
        );
        let large = Block { body_bytes: 600_000, ..BLOCK };
        assert!(matches!(
            refused(&readings(6, BLOCK, large)),
            Refused::Unlike { what: "bytes of an answer", .. }
        ));
        let bad = Block { good: 900, ..BLOCK };
        assert!(matches!(refused(&readings(6, BLOCK, bad)), Refused::Unlike { .. }));
        let new = Block { accepted: 1000, ..BLOCK };
        assert!(matches!(refused(&readings(6, BLOCK, new)), Refused::Unlike { .. }));
        assert_eq!(
            refused(&readings(6, BLOCK, Block { cpu_s: 0.0, ..BLOCK })),
            Refused::NoClock("epoll".to_owned())
        );
        assert_eq!(
            refused(&readings(6, BLOCK, Block::default())),
            Refused::OneDriver(Some("io_uring".to_owned()))
        );
        let mut backwards = readings(6, BLOCK, BLOCK);
        backwards.swap(1, 2);
        assert!(matches!(refused(&backwards), Refused::Backwards(_)));
        let mut elsewhere = readings(6, BLOCK, BLOCK);
        elsewhere.last_mut().unwrap().other_cpu_s += 1.0;
        assert!(matches!(refused(&elsewhere), Refused::Elsewhere(share) if share > 0.5));
    }

    #[test]
    fn metrics_and_status_read_alike() {
        let metrics = "# HELP x y\nringroad_driver_info{driver=\"epoll\",why=\"as asked, \\\"so\\\"\"} 1\n\
            ringroad_driver_requests_total{driver=\"epoll\",class=\"2xx\"} 7\n\
            ringroad_driver_requests_total{driver=\"epoll\",class=\"3xx\"} 1\n\
            ringroad_driver_requests_total{driver=\"epoll\",class=\"5xx\"} 2\n\
            ringroad_driver_connections_accepted_total{driver=\"epoll\"} 3\n\
            ringroad_driver_response_body_bytes_total{driver=\"epoll\"} 99\n\
            ringroad_driver_request_duration_seconds_sum{driver=\"epoll\"} 0.5\n\
            ringroad_driver_cpu_seconds_total{driver=\"epoll\"} 0.25\nringroad_other_cpu_seconds_total 0.125\n";
        let one = serde_json::json!({
            "driver": "epoll", "requests": 10, "accepted": 3, "body_bytes": 99, "seconds": 0.5, "cpu_s": 0.25,
            "responses": { "2xx": 7, "3xx": 1, "5xx": 2 },
        });
        let workers = serde_json::json!({ "drivers": [one], "other_cpu_s": 0.125 });
        let reading = Reading::of(metrics).unwrap();
        let totals = Totals { requests: 10, good: 8, accepted: 3, body_bytes: 99, seconds: 0.5, cpu_s: 0.25 };
        assert_eq!(reading.drivers, [("epoll".to_owned(), totals)].into());
        assert_eq!(Reading::of(&workers.to_string()).unwrap(), reading);
        assert_eq!(Reading::of(&serde_json::json!({ "workers": workers }).to_string()).unwrap(), reading);
        assert_eq!(Reading::of("up 1\n"), Err(NoReading::NoDrivers));
        assert_eq!(Reading::of("{}"), Err(NoReading::NoDrivers));
    }
}
