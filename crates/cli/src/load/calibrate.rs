//! `--calibrate`: the highest rate of this client, measured against a server that only answers.
//!
//! The null server is the hand-written model on epoll, a process of its own. Where the server is slower than
//! the client, the client's ceiling is extrapolated from its CPU time per request, which does not grow with
//! the rate. Start at [`Ceiling::measure`].

use super::Complaint;
use crate::complaint::{FAILED, USAGE, why};
use ringroad_engine::choose::Choice;
use ringroad_load::plan::{Body, Pace};
use ringroad_load::{Plan, Scheme, Split, Statuses, run};
use ringroad_measure::caveat::BUSY_SHARE;
use ringroad_measure::record;
use ringroad_measure::units::{Nanos, PerSecond, Share};
use std::env;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Measured time, and warm-up.
const LENGTH: Duration = Duration::from_secs(3);
const WARMUP: Duration = Duration::from_millis(500);

/// The ceiling of a client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ceiling {
    /// Requests per second that it reached.
    reached: f64,
    /// CPU time of a request, seconds.
    cpu_s: f64,
    threads: u32,
}

impl Ceiling {
    /// Runs the plan's load against a null server in a closed loop.
    pub(super) fn measure(
        plan: &Plan,
        choice: &Choice,
        stop: &Arc<AtomicBool>,
    ) -> Result<Ceiling, Complaint> {
        let refuse =
            |message: String, code| Err(Complaint { message: format!("--calibrate: {message}"), code });
        let protocol = match plan.target.scheme {
            Scheme::Http => "http",
            Scheme::Tcp => "echo",
            Scheme::Ws | Scheme::Wss => {
                return refuse("no null server speaks WebSocket (take http:// or tcp://)".to_owned(), USAGE);
            }
            Scheme::Https => return refuse("no null server speaks TLS (take http://)".to_owned(), USAGE),
        };
        let server = Null::start(protocol)?;
        let mut target = plan.target.clone();
        (target.host, target.port) = (server.address.ip().to_string(), server.address.port());
        // The null server answers one request in one way.
        let messages = plan.messages.iter().map(|message| message.clone().with_body(Body::Any).at(0));
        let plan = Plan {
            target,
            others: Vec::new(),
            routes: Vec::new(),
            statuses: Statuses::default(),
            messages: messages.collect(),
            tls: None,
            slices: 1,
            pace: Pace::Closed,
            stages: None,
            connect_rate: None,
            idle: 0,
            duration: Some(LENGTH),
            count: None,
            warmup: WARMUP,
            sources: Vec::new(),
            processes: 1,
            part: 0,
            split: Split::WHOLE,
            ..plan.clone()
        };
        let outcome = run(&plan, choice, stop, &mut |_| {})?;
        let failures = &outcome.counts.failures;
        if let Some((what, count)) = failures.iter().max_by_key(|(_, count)| **count) {
            return refuse(
                format!("the null server does not answer such requests ({count} times {what})"),
                FAILED,
            );
        }
        let (count, seconds) = (outcome.tally.completed as f64, outcome.window.as_secs_f64());
        match outcome.client.cpu.filter(|_| count > 0.0 && seconds > 0.0) {
            Some(cpu) => Ok(Ceiling {
                reached: count / seconds,
                cpu_s: cpu.as_secs_f64() / count,
                threads: plan.threads,
            }),
            None => refuse(
                "nothing was measured (the CPU time of a process is not available here)".to_owned(),
                FAILED,
            ),
        }
    }

    /// Returns the highest rate of this client, requests per second.
    pub(super) fn per_second(&self) -> f64 {
        if self.is_reached() { self.reached } else { f64::from(self.threads) / self.cpu_s }
    }

    /// Returns how busy the client was, share of its threads.
    fn share(&self) -> f64 {
        self.reached * self.cpu_s / f64::from(self.threads)
    }

    fn is_reached(&self) -> bool {
        self.share() >= BUSY_SHARE
    }

    /// As a record has it.
    pub(super) fn record(&self) -> record::Ceiling {
        record::Ceiling {
            rps: self.per_second(),
            reached_rps: self.reached,
            cpu_us_per_request: self.cpu_s * 1e6,
        }
    }

    /// Returns a line for the summary of a load that did so many.
    pub(super) fn beside(&self, per_second: f64) -> String {
        let (ceiling, share) = (PerSecond(self.per_second()), Share(per_second / self.per_second()));
        format!("  ceiling    {ceiling} for this client, of which the load is {share}\n")
    }
}

impl fmt::Display for Ceiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let threads =
            if self.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", self.threads) };
        let (ceiling, reached) = (PerSecond(self.per_second()), PerSecond(self.reached));
        let each = Nanos((self.cpu_s * 1e9) as u64);
        if self.is_reached() {
            write!(f, "client ceiling: {ceiling} on {threads}, measured ({each} of CPU per request)")
        } else {
            let share = Share(self.share());
            write!(
                f,
                "client ceiling: about {ceiling} on {threads} (extrapolated from {reached} at {share} CPU, {each} per \
                 request)"
            )
        }
    }
}

/// A server that only answers. Killed when dropped.
struct Null {
    process: Child,
    address: SocketAddr,
}

impl Null {
    fn start(protocol: &str) -> Result<Null, Complaint> {
        let failed =
            |why: String| Complaint { message: format!("starting a null server: {why}"), code: FAILED };
        let program = env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
        let mut process = Command::new(program)
            .args(["lab", "server", "--model", "epoll-et", "--protocol", protocol, "--listen", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| failed(why(&error)))?;
        let said = process.stdout.take();
        let mut null = Null { process, address: SocketAddr::from(([127, 0, 0, 1], 0)) };
        let mut line = String::new();
        if let Some(said) = said {
            BufReader::new(said).read_line(&mut line).map_err(|error| failed(why(&error)))?;
        }
        let address = line.trim_end().strip_prefix("listening on ").and_then(|address| address.parse().ok());
        null.address = address.ok_or_else(|| failed("it did not print its address".to_owned()))?;
        Ok(null)
    }
}

impl Drop for Null {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ceiling_is_what_was_reached_or_what_the_cost_of_a_request_allows() {
        let reckoned = Ceiling { reached: 200_000.0, cpu_s: 2.5e-6, threads: 1 };
        assert_eq!(reckoned.per_second().round(), 400_000.0);
        assert_eq!(
            reckoned.to_string(),
            "client ceiling: about 400 k/s on 1 thread (extrapolated from 200 k/s at 50.0 % CPU, 2.50 µs per request)"
        );
        let expected = "  ceiling    400 k/s for this client, of which the load is 25.0 %\n";
        assert_eq!(reckoned.beside(100_000.0), expected);
        let reached = Ceiling { reached: 790_000.0, cpu_s: 2.5e-6, threads: 2 };
        assert_eq!(reached.per_second(), 790_000.0);
        assert_eq!(
            reached.to_string(),
            "client ceiling: 790 k/s on 2 threads, measured (2.50 µs of CPU per request)"
        );
    }
}
