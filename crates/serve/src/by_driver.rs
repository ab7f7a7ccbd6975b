//! What each driver costs and how long its requests take: figures of the workers of public addresses, for the
//! metrics, the status page and `ringroad workers status`.
//!
//! The CPU time of a driver is that of its workers' threads: user time, and system time of the calls that
//! they make. What io_uring hands to threads of the kernel (`iou-wrk-*`), what the `threads` driver's own
//! threads take, and blocking operations are on no worker's clock. That is told as the rest of the process.

use crate::metrics::{BOUNDS, Count, Counts};
use crate::service::Shared;
use ringroad_engine::DriverName;
use ringroad_gate::metrics::{Families, label};
use ringroad_host::cpu::ProcessClock;
use serde_json::{Value, json};
use std::fmt::Write;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// The figures of one driver since the server began.
#[derive(Debug)]
pub(crate) struct Figures {
    pub(crate) driver: DriverName,
    /// Threads of each public address that accept connections; 0: all were moved.
    workers: usize,
    why: String,
    connections: u64,
    accepted: u64,
    /// Requests that a route has answered, by class of status: 1xx to 5xx.
    classes: [u64; 5],
    /// Requests by bucket of time.
    took: Vec<u64>,
    took_ns: u64,
    body_bytes: u64,
    /// `None`: the kernel has no clock of threads.
    cpu: Option<Duration>,
}

impl Figures {
    fn requests(&self) -> u64 {
        self.took.iter().sum()
    }

    /// Microseconds of CPU for each request.
    fn cpu_us(&self) -> Option<f64> {
        let requests = self.requests();
        (requests > 0).then(|| self.cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / requests as f64)).flatten()
    }

    /// Milliseconds of a request, in the mean.
    fn took_ms(&self) -> Option<f64> {
        let requests = self.requests();
        (requests > 0).then(|| self.took_ns as f64 / 1e6 / requests as f64)
    }

    /// Returns the bound of the bucket with the 99th of 100 requests, in milliseconds. `None`: no request, or
    /// beyond the last bound.
    fn p99_ms(&self) -> Option<f64> {
        let requests = self.requests();
        let rank = (requests > 0).then(|| requests - requests / 100)?;
        let mut below = 0;
        let at = self.took.iter().position(|count| {
            below += count;
            below >= rank
        });
        Some(BOUNDS.get(at?)? * 1e3)
    }
}

/// Returns the figures of every driver that has or had workers.
pub(crate) fn figures(shared: &Shared) -> Vec<Figures> {
    let crews = shared.crews.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let members = shared.members.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let stats = shared.stats.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut drivers: Vec<DriverName> = crews.iter().map(|crew| crew.driver()).collect();
    for member in members.iter().filter(|member| member.is_public) {
        if !drivers.contains(&member.driver) {
            drivers.push(member.driver);
        }
    }
    let of = |driver: DriverName| {
        let crew = crews.iter().find(|crew| crew.driver() == driver);
        let own: Vec<&Arc<Counts>> =
            members.iter().filter(|member| member.is_public && member.driver == driver).collect();
        let sum = |read: fn(&Counts) -> &Count| own.iter().map(|one| read(one).get()).sum::<u64>();
        let mut figures = Figures {
            driver,
            workers: crew.map_or(0, |crew| crew.workers),
            why: crew.map_or_else(|| "its workers were moved".to_owned(), |crew| crew.why()),
            connections: 0,
            accepted: 0,
            classes: [0; 5],
            took: vec![0; BOUNDS.len() + 1],
            took_ns: sum(|counts| &counts.took_ns),
            body_bytes: sum(|counts| &counts.body_bytes),
            cpu: own.iter().map(|one| one.cpu()).sum(),
        };
        for one in &own {
            for (sum, count) in figures.took.iter_mut().zip(&one.took) {
                *sum += count.get();
            }
            for (status, count) in one.by_status() {
                if let Some(sum) = figures.classes.get_mut(usize::from(status / 100).wrapping_sub(1)) {
                    *sum += count;
                }
            }
        }
        for one in stats.iter().filter(|one| one.is_public && one.driver == driver) {
            let counters = one.counters();
            figures.connections += counters.connections;
            figures.accepted += counters.accepted;
        }
        figures
    };
    drivers.into_iter().map(of).collect()
}

/// CPU time of the process that is on no worker's clock.
fn rest(all: &[Figures]) -> Option<Duration> {
    let workers: Duration = all.iter().map(|one| one.cpu).sum::<Option<Duration>>()?;
    let process = ProcessClock::own().read().ok()?;
    Some(process.saturating_sub(workers))
}

/// Writes the families `ringroad_driver_*`.
pub(crate) fn metrics(out: &mut Families, shared: &Shared) {
    let all = figures(shared);
    let name = |one: &Figures| label("driver", one.driver.as_str());
    let help = "Constant 1, labelled with a driver that has workers and why it was chosen.";
    let mut info = out.family("ringroad_driver_info", "gauge", help);
    for one in all.iter().filter(|one| one.workers > 0) {
        info.sample(&[name(one), label("why", &one.why)].join(","), 1);
    }
    type Read = fn(&Figures) -> u64;
    let families: [(&str, &str, &str, Read); 4] = [
        ("workers", "gauge", "Threads of each public address, by driver.", |one| one.workers as u64),
        ("connections", "gauge", "Connections open now, by driver.", |one| one.connections),
        ("connections_accepted_total", "counter", "Connections accepted, by driver.", |one| one.accepted),
        ("response_body_bytes_total", "counter", "Bytes of bodies, by driver.", |one| one.body_bytes),
    ];
    for (what, kind, help, read) in families {
        let samples: Vec<_> = all.iter().map(|one| (name(one), read(one))).collect();
        out.several(&format!("ringroad_driver_{what}"), kind, help, &samples);
    }
    let help = "Requests answered by a route, by driver and class of status.";
    let mut requests = out.family("ringroad_driver_requests_total", "counter", help);
    for one in &all {
        for (class, count) in ["1xx", "2xx", "3xx", "4xx", "5xx"].iter().zip(one.classes) {
            requests.sample(&format!("{},{}", name(one), label("class", class)), count);
        }
    }
    let help = "From a request's head to its answer, or to the end of one that is a stream, by driver.";
    let mut took = out.family("ringroad_driver_request_duration_seconds", "histogram", help);
    for one in &all {
        let mut below = 0;
        let bounds = BOUNDS.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(&one.took) {
            below += count;
            took.part("_bucket", &format!("{},{}", name(one), label("le", &bound)), below);
        }
        took.part("_sum", &name(one), one.took_ns as f64 / 1e9);
        took.part("_count", &name(one), below);
    }
    let help = "CPU time of the workers' threads, by driver. Threads of the kernel and of the threads driver are \
                not in it.";
    let mut cpu = out.family("ringroad_driver_cpu_seconds_total", "counter", help);
    for one in &all {
        if let Some(time) = one.cpu {
            cpu.sample(&name(one), time.as_secs_f64());
        }
    }
    if let Some(time) = rest(&all) {
        let help = "CPU time of the process that is in no driver's.";
        out.one("ringroad_other_cpu_seconds_total", "counter", help, time.as_secs_f64());
    }
}

/// Returns the figures as JSON: what the status and `ringroad workers status` print.
pub(crate) fn json(shared: &Shared) -> Value {
    let all = figures(shared);
    let one = |one: &Figures| {
        json!({
            "driver": one.driver.as_str(),
            "why": one.why,
            "workers": one.workers,
            "connections": one.connections,
            "accepted": one.accepted,
            "requests": one.requests(),
            "responses": {
                "1xx": one.classes[0],
                "2xx": one.classes[1],
                "3xx": one.classes[2],
                "4xx": one.classes[3],
                "5xx": one.classes[4],
            },
            "seconds": one.took_ns as f64 / 1e9,
            "latency_mean_ms": one.took_ms(),
            "latency_p99_ms_at_most": one.p99_ms(),
            "body_bytes": one.body_bytes,
            "cpu_s": one.cpu.map(|cpu| cpu.as_secs_f64()),
            "cpu_us_per_request": one.cpu_us(),
        })
    };
    json!({
        "drivers": all.iter().map(one).collect::<Vec<_>>(),
        "other_cpu_s": rest(&all).map(|cpu| cpu.as_secs_f64()),
    })
}

/// Writes the part of the status page.
pub(crate) fn section(out: &mut String, told: &Value) {
    out.push_str(
        "<section>\n<h2>Drivers</h2>\n<div class=\"scroll\"><table>\n<thead><tr><th>Driver</th>\
         <th class=\"n\">Workers</th><th class=\"n\">Connections</th><th class=\"n\">Requests</th>\
         <th class=\"n\">Mean</th><th class=\"n\">99 % within</th><th class=\"n\">CPU</th>\
         <th class=\"n\">CPU a request</th></tr></thead>\n<tbody>\n",
    );
    for one in told["drivers"].as_array().map(Vec::as_slice).unwrap_or_default() {
        let number = |key: &str| one[key].as_u64().unwrap_or(0);
        let figure = |key: &str, digits: usize, unit: &str| match one[key].as_f64() {
            Some(value) => format!("{value:.digits$} {unit}"),
            None => "–".to_owned(),
        };
        let driver = one["driver"].as_str().unwrap_or_default();
        let why = crate::page::escape(one["why"].as_str().unwrap_or_default());
        // Writing to a string does not fail.
        let _ = writeln!(
            out,
            "<tr><td><span class=\"address\">{driver}</span> <span class=\"why\">{why}</span></td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            number("workers"),
            number("connections"),
            number("requests"),
            figure("latency_mean_ms", 3, "ms"),
            figure("latency_p99_ms_at_most", 2, "ms"),
            figure("cpu_s", 2, "s"),
            figure("cpu_us_per_request", 1, "µs"),
        );
    }
    out.push_str("</tbody>\n</table></div>\n");
    if let Some(rest) = told["other_cpu_s"].as_f64() {
        let _ = writeln!(
            out,
            "<p class=\"facts\">CPU is that of the workers' own threads; {rest:.2} s of this process are on \
             other threads.</p>"
        );
    }
    out.push_str("</section>\n");
}
