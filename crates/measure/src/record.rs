//! The record `ringroad.record/1`: the one serialised form of a measurement.
//!
//! `lab`, the load generator and every bench write it; reports and comparisons are pure functions of it.
//! Field names and meanings are a contract with users (`docs/record.schema.json`): fields are added, never
//! renamed. A number that could not be read is `None` (JSON `null`), never zero. A cell that could not run
//! is present with `skipped` set, never absent.
//!
//! Start at [`Record`]; a [`Cell`] is one program under one load, its figures the medians over [`Run`]s.

use crate::caveat::Verdict;
use crate::claim::Claim;
use crate::summary;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The `schema` string this version writes and reads.
pub const SCHEMA: &str = "ringroad.record/1";

/// One run of a tool: what ran, where, and what came out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// The tool that wrote it: `lab`, `load`.
    pub tool: String,
    /// Version of the tool.
    pub version: String,
    /// The command line, word by word.
    pub command: Vec<String>,
    /// When it started: RFC 3339, UTC.
    pub started: String,
    /// Suite name, where the tool runs suites.
    #[serde(default)]
    pub suite: Option<String>,
    /// One line of the suite: what it asks.
    #[serde(default)]
    pub title: Option<String>,
    /// Facts about the machine as `host` reports them; unknown facts are `null`.
    pub host: Map<String, Value>,
    /// The verdict over all cells: the worst of them, and what concerns the run as a whole.
    pub verdict: Verdict,
    /// The program all ratios are against, if the suite names one.
    #[serde(default)]
    pub baseline: Option<String>,
    /// How many interleaved blocks were completed.
    #[serde(default)]
    pub blocks: u32,
    /// The A/A control: the baseline against itself in the same run, one entry per load. Its interval is the
    /// noise floor: a difference that does not leave it was not found.
    #[serde(default)]
    pub control: Vec<Control>,
    /// What the harness itself used of one core while measuring, 0 to 1.
    #[serde(default)]
    pub harness_cpu_share: Option<f64>,
    /// The results, in the order of the suite.
    pub cells: Vec<Cell>,
    /// Published figures beside what was measured, where the run was about them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<Claim>,
}

/// The A/A control of one load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Control {
    /// The load, as in [`Cell::load`].
    pub load: String,
    /// Second baseline over first, CPU per request.
    pub ratio: Interval,
}

/// A median with the 95 % bootstrap interval around it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// The median.
    pub mid: f64,
    /// Upper end of the 95 % interval.
    pub high: f64,
}

/// Closed loop: the next request waits for the answer. Open loop: requests follow a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Loop {
    /// A connection sends again when it has its answer.
    Closed,
    /// Requests are sent at intended times, whatever the answers do.
    Open,
}

/// One program under one load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// `model/load`, unique in the record.
    pub id: String,
    /// The program: a model's name, a peer's, or the user's own.
    pub model: String,
    /// The load's short name, equal for all programs that were put under the same load.
    #[serde(default)]
    pub load: String,
    /// The I/O driver under the program: `io_uring epoll poll select threads`, or unknown.
    pub driver: Option<String>,
    /// What sets this load apart besides its numbers, in words: `20 µs of work`, `a connection per request`.
    #[serde(default)]
    pub variant: Option<String>,
    /// `echo` or `http`.
    pub protocol: String,
    /// Connections open during the measured window.
    pub connections: u32,
    /// Share of the connections that send, 0 to 1.
    pub active_share: f64,
    /// Bytes of payload per request (echo: the message; http: the response body).
    pub payload_bytes: u64,
    /// Requests in flight per connection.
    pub pipeline: u32,
    /// Closed or open loop.
    #[serde(rename = "loop")]
    pub kind: Loop,
    /// Intended requests per second, open loop only.
    pub rate_target: Option<f64>,
    /// Length of the measured window, seconds: the median over the runs.
    pub duration_s: f64,
    /// Requests sent, all runs together: from the first connection to the last answer, warm-up included.
    pub sent: u64,
    /// Answers received whole and correct, all runs together, warm-up included.
    pub completed: u64,
    /// Requests per second in the measured window: median over the runs.
    pub rps: Option<f64>,
    /// Failures by kind, all runs together.
    pub errors: Errors,
    /// Latency in the measured windows, all runs together, microseconds.
    pub latency_us: Latencies,
    /// What it cost the program.
    pub server: ServerCost,
    /// What bounded the rate: `server`, `client`, `neither`, or unknown.
    #[serde(default)]
    pub limiter: Option<Limiter>,
    /// How busy the client was, share of one core, median over the runs.
    #[serde(default)]
    pub client_cpu_share: Option<f64>,
    /// CPU per request over the baseline's in the same blocks.
    #[serde(default)]
    pub ratio: Option<Interval>,
    /// The verdict: how reliable these numbers are, with reasons.
    pub verdict: Verdict,
    /// Why the cell did not run, or `None` if it did.
    pub skipped: Option<String>,
    /// The single runs, in the order of the blocks.
    #[serde(default)]
    pub runs: Vec<Run>,
    /// Values over time, where the tool records them.
    #[serde(default)]
    pub series: Option<Value>,
    /// The response latency histogram: HDR V2, base64, nanoseconds.
    #[serde(default)]
    pub histogram: Option<String>,
    /// What only some loads have.
    #[serde(default, skip_serializing_if = "Details::is_empty")]
    pub details: Details,
}

/// What only some loads have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Details {
    /// Totals of held connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
    /// Totals of a broadcast.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broadcast: Option<Broadcast>,
    /// Handshakes of TLS, which are in no latency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshakes: Option<Handshakes>,
    /// What the client can do at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<Ceiling>,
    /// A load that changed, stage by stage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stages: Option<Vec<Stage>>,
    /// Where the highest rate lies that meets a demand, on the cell of the probe at its lower end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub knee: Option<Knee>,
    /// The client and its driver: `load, io_uring`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// What was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Program>,
    /// It ran side by side with the others under its load, in turns of so many seconds; absent: alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_s: Option<f64>,
    /// The same cell with another client in the same blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cross_check: Option<CrossCheck>,
    /// The program closes its connection after each answer, so each request has a connection of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub closes: bool,
    /// Whole answers of the run by their status, where the protocol has one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub statuses: BTreeMap<u16, u64>,
    /// Latencies in the window of whole answers that were not good, microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_us: Option<Percentiles>,
    /// Requests without an answer, which are in the latencies with the time that was waited for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unanswered: Option<Unanswered>,
    /// Bytes received per second of the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_s: Option<f64>,
    /// The figures of each URL, where a load has several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub urls: Vec<OfUrl>,
    /// Which part it is of a load that several programs put on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<Part>,
    /// The parts that it is the sum of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<OfPart>,
}

/// One part of a load, with all that is needed to add it to the others exactly.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Its number, from 1.
    pub index: u32,
    /// The number of parts.
    pub count: u32,
    /// A hash of the plan of the whole load: parts of one load have the same.
    pub plan: String,
    /// The instant at which all parts were to begin: RFC 3339, UTC.
    #[serde(default)]
    pub start_at: Option<String>,
    /// When it began, seconds since 1970 by the clock of its machine.
    #[serde(default)]
    pub began_s: Option<f64>,
    /// How that clock stands to another.
    #[serde(default)]
    pub clock: Option<Clock>,
    /// The boot of the machine: parts with the same one have the same clock.
    #[serde(default)]
    pub machine: Option<String>,
    /// Counts and histograms, whole, for `lab merge`; unknown if the part did not run.
    #[serde(default)]
    pub told: Option<Value>,
    /// A hash of all of this, for `lab merge`.
    #[serde(default)]
    pub hash: Option<String>,
}

/// How the clock of a machine stands to another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Clock {
    /// The other: a URL.
    pub from: String,
    /// What has to be added to this clock to have the other, seconds.
    pub offset_s: f64,
    /// How exact that is, seconds to each side.
    pub within_s: f64,
}

/// What became of one part of a merged load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OfPart {
    /// Its number, from 1.
    pub index: u32,
    /// Connections that it made.
    pub connections: u32,
    /// Good answers in its window.
    pub completed: u64,
    /// Good answers per second.
    pub rps: Option<f64>,
    /// 99th percentile of its response latency, microseconds.
    pub p99_us: Option<f64>,
    /// How long after the first part it began, by its clock and what is known of that, seconds.
    pub began_after_s: Option<f64>,
    /// How busy its client was, share of one core.
    pub client_cpu_share: Option<f64>,
    /// Its clock, where it was compared.
    #[serde(default)]
    pub clock: Option<Clock>,
    /// The boot of its machine.
    #[serde(default)]
    pub machine: Option<String>,
    /// Its own verdict.
    pub verdict: Verdict,
}

/// Requests that got no answer, and the time that was waited for them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unanswered {
    /// How many.
    pub requests: u64,
    /// The longest wait, microseconds.
    pub longest_us: f64,
}

/// What was measured of one URL of a load that has several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OfUrl {
    /// Method and URL.
    pub url: String,
    /// Good answers in the window.
    pub completed: u64,
    /// Whole answers in the window that were not good.
    pub refused: u64,
    /// Good answers per second.
    pub rps: Option<f64>,
    /// Response latency of the good answers, microseconds.
    pub response_us: Option<Percentiles>,
}

/// What was started for a cell, so that two programs of one name can be told apart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// The command, word by word, as the suite has it.
    pub command: Vec<String>,
    /// The words of it that are files, each with a hash. Our own program is not among them: the host's facts
    /// name its build.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
}

impl Program {
    /// Returns in what the other is another program, as a clause; `None` if in nothing that both know.
    pub fn difference(&self, other: &Program) -> Option<String> {
        if self.command.len() != other.command.len() {
            return Some("their commands differ".to_owned());
        }
        self.command.iter().zip(&other.command).find_map(|(mine, theirs)| {
            match (self.files.get(mine), other.files.get(theirs)) {
                // The same file may lie at two places.
                (Some(one), Some(two)) => (one != two).then(|| format!("the file {mine} differs")),
                _ => (mine != theirs).then(|| "their commands differ".to_owned()),
            }
        })
    }
}

/// The cross-check of a cell by another client in the same blocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CrossCheck {
    /// The other client, and its driver: `small, epoll`.
    pub client: String,
    /// Requests per second over the other's.
    pub rate: Interval,
    /// Server CPU per request over the other's.
    pub cpu: Option<Interval>,
}

/// A stage of a load that changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// Connections that send, or requests per second, at its beginning.
    pub from: f64,
    /// And at its end.
    pub to: f64,
    /// Its length, seconds.
    pub duration_s: f64,
    /// Good answers that came in it.
    pub completed: u64,
    /// Failures in it.
    pub failed: u64,
    /// Good answers per second.
    pub rps: Option<f64>,
    /// Response latency in it, microseconds.
    pub response_us: Option<Percentiles>,
}

/// An interval in which the highest rate lies that meets a demand.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Knee {
    /// The demand, as in `p99<5ms`.
    pub demand: String,
    /// The highest rate that met it, requests per second; unknown if none did.
    pub met_rps: Option<f64>,
    /// The lowest that did not; unknown if none was too much.
    pub unmet_rps: Option<f64>,
    /// Probes that were made.
    pub probes: u32,
}

impl Details {
    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        *self == Details::default()
    }
}

/// What a client can do at all, measured against a server that does nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ceiling {
    /// Requests per second that it can prove.
    pub rps: f64,
    /// Requests per second that it did, with the null server as fast as it is.
    pub reached_rps: f64,
    /// CPU time of the client for a request.
    pub cpu_us_per_request: f64,
}

/// Handshakes of TLS.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Handshakes {
    /// Such as began from nothing.
    pub full: u64,
    /// Such as went on with a session known from before.
    pub resumed: u64,
    /// Such as failed.
    pub failed: u64,
    /// How long those that succeeded took.
    pub took_us: Option<Percentiles>,
}

/// What became of connections that were held, each with a heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Held {
    /// From one heartbeat of a connection to its next, seconds.
    pub heartbeat_s: f64,
    /// Connections that were open at some time.
    pub opened: u64,
    /// Of these, such as were never lost.
    pub survived: u64,
    /// How often a connection was lost.
    pub lost: u64,
    /// How often one was made again.
    pub reconnects: u64,
    /// Connections given up after the allowed number of tries.
    pub gave_up: u64,
    /// When the first was given up, seconds after the holding began.
    pub unavailable_after_s: Option<f64>,
    /// Heartbeats that were due.
    pub heartbeats: u64,
    /// Of these, such as could not be written.
    pub unwritten: u64,
    /// Share of the connections that were never lost.
    pub survival: Option<f64>,
    /// How often a connection was made again in an hour, on average.
    pub reconnects_per_hour: Option<f64>,
    /// Share of the heartbeats that could not be written.
    pub write_failures: Option<f64>,
    /// `healthy`, `doubtful`, `unhealthy` or `unavailable`.
    pub health: String,
    /// A sentence for everything that is not normal.
    pub findings: Vec<String>,
}

/// What became of messages that each had to reach all connections. Such a cell counts deliveries where others
/// count answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Broadcast {
    /// Connections that there were when the load began.
    pub members: u64,
    /// Messages that were sent.
    pub published: u64,
    /// Deliveries that were expected.
    pub expected: u64,
    /// Of these, such as did not come in time.
    pub missing: u64,
    /// Deliveries of a message that the connection had got before.
    pub repeated: u64,
    /// Whether senders get their own messages.
    pub to_sender: bool,
}

/// What bounded the rate of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Limiter {
    /// The program used the cores it was given whole.
    Server,
    /// The client used its core whole while the program had time left: rate and latency are the client's.
    Client,
    /// Both had time left: wake-ups, the loopback, or the number of requests in flight.
    Neither,
}

/// One run of a cell: a fresh process, connections, warm-up, the measured window, the end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The block it belongs to, from 0.
    pub block: u32,
    /// Its place in the block's random order, from 0.
    pub order: u32,
    /// Seconds from the start of the suite.
    pub at_s: f64,
    /// Length of the measured window, seconds.
    pub duration_s: f64,
    /// Answers in the measured window.
    pub completed: u64,
    /// Requests per second in the measured window.
    pub rps: f64,
    /// Mean response latency in the window, microseconds.
    pub mean_us: Option<f64>,
    /// Median response latency in the window, microseconds.
    pub p50_us: Option<f64>,
    /// 99th percentile in the window, microseconds.
    pub p99_us: Option<f64>,
    /// Server CPU per request, all threads, user and system, microseconds.
    pub cpu_us_per_request: Option<f64>,
    /// The server's CPU use in the window, share of one core (above 1 with several threads).
    pub server_cpu_share: Option<f64>,
    /// The client's CPU use in the window, share of one core.
    pub client_cpu_share: Option<f64>,
    /// Time the client was ready but had to wait for a CPU, share of the window.
    pub client_wait_share: Option<f64>,
    /// Time the hypervisor took from the cores that server and client may run on, share of these cores' time
    /// in the window.
    pub steal_share: Option<f64>,
    /// Failures by kind in the whole run.
    pub errors: Errors,
    /// Answers the client got in the whole run, by its own count.
    pub client_count: u64,
    /// Requests the server says it answered in the whole run, if it says so.
    pub server_count: Option<u64>,
    /// User part of the server's CPU time, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_share: Option<f64>,
    /// System calls of the server per request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub syscalls_per_request: Option<f64>,
    /// Context switches of the server per request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_switches_per_request: Option<f64>,
    /// Resident set of the server at the end of the window, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rss_bytes: Option<u64>,
    /// Growth of the server's resident set since before the connections, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rss_growth_bytes: Option<u64>,
    /// Growth of kernel memory since before the connections, whole machine, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_bytes: Option<u64>,
    /// Connections that the server closed between requests in the whole run, and that the client made again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub closed: u64,
    /// Why the run was made by itself although its cell runs in turns with others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alone: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde calls")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Failures by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Errors {
    /// Connections that could not be made.
    pub connect: u64,
    /// Connections that ended before their answers came.
    pub reset: u64,
    /// Answers that did not come in time.
    pub timeout: u64,
    /// Answers with a status other than 2xx.
    pub status: u64,
    /// Answers that were malformed or not what was sent.
    pub protocol: u64,
}

impl Errors {
    /// Returns the sum of all kinds.
    pub fn total(&self) -> u64 {
        self.connect + self.reset + self.timeout + self.status + self.protocol
    }

    /// Adds another count, kind by kind.
    pub fn add(&mut self, other: &Errors) {
        self.connect += other.connect;
        self.reset += other.reset;
        self.timeout += other.timeout;
        self.status += other.status;
        self.protocol += other.protocol;
    }
}

/// Three latencies of the same requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latencies {
    /// From the intended send time to the whole answer. In closed loop equal to `service`.
    pub response: Option<Percentiles>,
    /// From the actual send to the whole answer.
    pub service: Option<Percentiles>,
    /// From the intended to the actual send: how late the generator was. Open loop only.
    pub lag: Option<Percentiles>,
}

/// Percentiles in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// Smallest.
    pub min: f64,
    /// Mean.
    pub mean: f64,
    /// 50th percentile.
    pub p50: f64,
    /// 75th percentile.
    pub p75: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p99_9: f64,
    /// 99.99th percentile.
    pub p99_99: f64,
    /// Largest.
    pub max: f64,
}

/// What the load cost the program: medians over the runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerCost {
    /// User and system time of all threads, kernel workers included, microseconds per request.
    pub cpu_us_per_request: Option<f64>,
    /// 95 % interval of the above.
    #[serde(default)]
    pub cpu_interval: Option<Interval>,
    /// The user part, microseconds per request.
    pub user_us: Option<f64>,
    /// The system part, microseconds per request.
    pub sys_us: Option<f64>,
    /// System calls per request.
    pub syscalls_per_request: Option<f64>,
    /// Where the system calls were counted: `perf` (the kernel) or `program` (its own counters).
    #[serde(default)]
    pub syscalls_source: Option<String>,
    /// Context switches per request, all threads.
    pub context_switches_per_request: Option<f64>,
    /// Resident set of the process, bytes, at the end of the window.
    pub rss_bytes: Option<u64>,
    /// Growth of the resident set since before the connections were made, bytes: what they cost the process.
    #[serde(default)]
    pub rss_growth_bytes: Option<u64>,
    /// Growth of kernel memory (slab, stacks, page tables) while the connections were open, bytes, whole
    /// machine.
    #[serde(default)]
    pub kernel_bytes: Option<u64>,
}

impl ServerCost {
    /// Returns the medians over the runs; what no run knows is unknown. `syscalls_source` names the counter.
    pub fn of_runs(runs: &[Run], syscalls_source: Option<String>) -> ServerCost {
        let all = |figure: fn(&Run) -> Option<f64>| runs.iter().filter_map(figure).collect::<Vec<f64>>();
        let middle = |figure: fn(&Run) -> Option<f64>| summary::median(&all(figure));
        let whole = |figure: fn(&Run) -> Option<f64>| middle(figure).map(|bytes| bytes.round() as u64);
        let cpu = all(|run| run.cpu_us_per_request);
        let cpu_us_per_request = summary::median(&cpu);
        let user_share = middle(|run| run.user_share);
        ServerCost {
            cpu_us_per_request,
            cpu_interval: if cpu.len() > 1 { summary::median_interval(&cpu) } else { None },
            user_us: cpu_us_per_request.zip(user_share).map(|(cpu, user)| cpu * user),
            sys_us: cpu_us_per_request.zip(user_share).map(|(cpu, user)| cpu * (1.0 - user)),
            syscalls_per_request: middle(|run| run.syscalls_per_request),
            syscalls_source,
            context_switches_per_request: middle(|run| run.context_switches_per_request),
            rss_bytes: whole(|run| run.rss_bytes.map(|bytes| bytes as f64)),
            rss_growth_bytes: whole(|run| run.rss_growth_bytes.map(|bytes| bytes as f64)),
            kernel_bytes: whole(|run| run.kernel_bytes.map(|bytes| bytes as f64)),
        }
    }
}
