//! One run: a fresh server, a client process, the window, the end; everything gone afterwards.
//!
//! Failures are data here: a program that is missing, ends, or never answers gives a [`Failure`], and the
//! suite goes on. A program that already runs ([`Server::url`]) is neither started nor stopped. Judging
//! figures is `verdict`'s part. Several runs at once, which take turns, are `turns.rs`'s. Start at
//! [`Bench::run`].

use crate::ask::{self, Keeping, Refusal};
use crate::client::{self, ClientReport};
use crate::error::Error;
use crate::pin::Cores;
use crate::program::{self, Filling, Program, STOP_DEADLINE, Start, StartError, wait_any};
use crate::suite::{self, Client, Keep, Load, Protocol, Server, Suite};
use crate::wrk;
use ringroad_host::cpu::{self, ProcessClock};
use ringroad_measure::Histogram;
use ringroad_measure::record::Run;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a server that already runs is tried, before its load.
const URL_PATIENCE: Duration = Duration::from_secs(2);

/// What all runs of a suite share.
#[derive(Debug)]
pub struct Bench<'a> {
    /// The suite.
    pub suite: &'a Suite,
    /// Our own program, for `{ringroad}`.
    pub ringroad: &'a Path,
    /// The command of our clients; the name of one is appended, and its options as one JSON word.
    pub client: &'a [String],
    /// The CPUs of server, client and harness.
    pub cores: &'a Cores,
    /// Where trees of files may lie; without it what copies them is skipped.
    pub scratch: Option<&'a Path>,
    /// The caller's wish to stop.
    pub stop: &'a AtomicBool,
    /// What is known of programs from asking them once.
    pub asked: Asked,
}

/// Whether each program keeps its connections under each load, by their ids: asked in its first run.
#[derive(Debug, Default)]
pub struct Asked(RefCell<BTreeMap<(String, String), Manner>>);

/// How a load is put on a program.
#[derive(Clone, Copy, Debug)]
struct Manner {
    keeping: Keeping,
    /// So many connections at a time.
    connections: u32,
}

/// A program under test: started here, or found running.
#[derive(Debug)]
pub(crate) struct Subject {
    /// `None`: it runs by itself.
    child: Option<Program>,
    pid: Option<u32>,
}

impl Subject {
    /// Sleeps until the client or the program writes or ends, or a while has passed; takes what they wrote.
    pub(crate) fn wait_with(&mut self, client: &mut Program) {
        match &mut self.child {
            // Of a program that has ended poll would return at once.
            Some(child) if !child.is_zombie() => wait_any(&mut [client, child], program::slice()),
            _ => wait_any(&mut [client], program::slice()),
        }
    }
}

/// What one run gave. `run` goes into the record as it is; the rest is for gates and medians.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    /// The figures of the record; `block`, `order` and `at_s` are the runner's to fill.
    pub run: Run,
    /// Requests sent in the whole run.
    pub sent: u64,
    /// Bytes sent and received by the client in the whole run.
    pub bytes: Option<(u64, u64)>,
    /// Connections that got an answer.
    pub served: Option<u32>,
    /// What was waited for in the window, by its length: requests in flight by Little's law.
    pub in_flight: Option<f64>,
    /// The client and its driver: `load, io_uring`.
    pub client: Option<String>,
    /// What counted the system calls: `perf` or `program`.
    pub syscalls_source: Option<String>,
    /// Bytes of an answer's body or message.
    pub payload_bytes: Option<u64>,
    /// The server's own counts, if it prints them.
    pub totals: Option<Totals>,
    /// CPU use of the server over what it can use: a CPU for each thread that carries the load, at most its
    /// CPUs. 1 is all.
    pub server_busy: Option<f64>,
    /// All latencies of the window.
    #[serde(with = "as_text")]
    pub histogram: Option<Histogram>,
    /// CPU time of the harness while the client ran.
    pub harness_cpu: Option<Duration>,
    /// How long the client ran.
    pub watched: Duration,
    /// What the program under test did that it must not, as a clause.
    pub server_failed: Option<String>,
    /// What went wrong first for the client, as a clause.
    pub first_error: Option<String>,
    /// The client leaves requests unanswered at its end (wrk), so counts may differ by this many.
    pub count_slack: u64,
    /// The program closes its connection after each answer.
    #[serde(default)]
    pub closes: bool,
    /// It was put under fewer connections than the load has.
    #[serde(default)]
    pub connections: Option<u32>,
}

/// A histogram as the text it has in a record, for the journal.
mod as_text {
    use super::{Deserialize, Histogram, Serialize};
    use serde::de::Error as _;

    pub(super) fn serialize<S: serde::Serializer>(
        histogram: &Option<Histogram>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        histogram.as_ref().map(Histogram::to_base64).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Histogram>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| Histogram::from_base64(&text).map_err(D::Error::custom)).transpose()
    }
}

/// Why a run gave nothing.
#[derive(Debug)]
pub enum Failure {
    /// It cannot run here: a cell with `skipped`.
    Skipped(String),
    /// It failed: an INVALID cell.
    Failed(String),
    /// It held up the others that take turns with it, as a clause; by itself it may be measured.
    Slow(String),
    /// The caller wants to stop.
    Interrupted,
    /// The client of ours does not work: no cell can be measured.
    Client(Error),
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Missing(how) | StartError::Unusable(how) => Failure::Skipped(how),
            StartError::Failed(how) => Failure::Failed(how),
            StartError::Interrupted => Failure::Interrupted,
        }
    }
}

/// The line our servers print when stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Connections accepted.
    pub accepted: u64,
    /// HTTP requests answered; 0 for echo, which knows bytes only.
    pub requests: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// System calls made, by the program's own count.
    pub syscalls: u64,
}

impl Totals {
    /// Returns the last totals line in a program's output.
    pub fn find(output: &str) -> Option<Totals> {
        #[derive(Deserialize)]
        struct Line {
            totals: Totals,
        }
        output.lines().rev().find_map(|line| serde_json::from_str::<Line>(line).ok()).map(|line| line.totals)
    }

    /// Requests by the server's count: HTTP requests, or whole messages echoed.
    pub fn requests(&self, load: &Load) -> u64 {
        match load.protocol {
            Protocol::Http | Protocol::Files => self.requests,
            Protocol::Echo => self.bytes_out / u64::from(load.payload_bytes.max(1)),
        }
    }
}

/// Connecting, settling and draining may take the load's timeout each; starting and writing the report a
/// little more.
const CLIENT_MARGIN_S: f64 = 10.0;

impl Bench<'_> {
    /// Runs one server under one load. Returns when both processes are gone, whatever happened.
    ///
    /// # Errors
    /// [`Failure`] says what to do with the cell.
    pub fn run(&self, server: &Server, load: &Load) -> Result<Measured, Failure> {
        if let Some(tree) = &load.tree {
            return self.copy(server, load, tree);
        }
        let (mut subject, addr) = self.serve(server, load)?;
        let measured = match load.client {
            Client::Load | Client::Small => {
                let client = self.client(server, &subject, addr, load, None)?;
                let watched = self.watch(&mut subject, client.words.clone(), client.most_s)?;
                client.marked(self.reported(load, &watched)?)
            }
            Client::Wrk => self.wrk(&mut subject, addr, load)?,
        };
        Ok(self.stopped(server, subject, load, measured))
    }

    /// Starts a server and waits until it is ready; finds the address and, on this machine, the process of
    /// one that runs.
    pub(crate) fn serve(&self, server: &Server, load: &Load) -> Result<(Subject, SocketAddr), Failure> {
        if let Some(url) = &server.url {
            let addr = url
                .resolve()
                .map_err(|error| Failure::Skipped(format!("{} cannot be resolved: {error}", url.host)))?;
            // A load would say of each of its connections that it failed.
            if let Err(error) = TcpStream::connect_timeout(&addr, URL_PATIENCE)
                && error.kind() == io::ErrorKind::ConnectionRefused
            {
                return Err(Failure::Failed(format!("nothing listens on {addr}, so start the server first")));
            }
            let pid = ringroad_host::listener::process_at(addr);
            return Ok((Subject { child: None, pid }, addr));
        }
        let addr = program::free_address()
            .map_err(|error| Failure::Failed(format!("no free port on the loopback: {error}")))?;
        let filling =
            Filling { ringroad: self.ringroad, protocol: load.protocol, addr, arguments: &load.arguments };
        let folder = self.suite.folder.as_deref();
        let started = Program::start_server(server, &filling, folder, &self.cores.server, self.stop);
        let (child, addr) = started.map_err(|error| match (error, &server.hint) {
            (StartError::Missing(how), Some(hint)) => StartError::Missing(format!("{how}; {hint}")),
            (StartError::Unusable(how), Some(hint)) => StartError::Unusable(format!("{how}; {hint}")),
            (error, _) => error,
        })?;
        let pid = Some(child.pid());
        Ok((Subject { child: Some(child), pid }, addr))
    }

    /// Returns whether this program closes its connection after each answer, and how many connections it
    /// takes then. A program that prints its totals is known to keep it, and another request would be missing
    /// in the client's count.
    fn manner(&self, server: &Server, addr: SocketAddr, load: &Load, path: &str) -> Result<Manner, Failure> {
        let kept = Manner { keeping: Keeping::Keeps, connections: load.connections };
        let is_tls = server.url.as_ref().is_some_and(|url| url.https);
        if load.protocol != Protocol::Http || load.reconnect || server.totals || is_tls {
            return Ok(kept);
        }
        let key = (server.id.clone(), load.id.clone());
        let known = self.asked.0.borrow().get(&key).copied();
        let manner = match known {
            Some(manner) => manner,
            None => {
                let host = server.url.as_ref().map_or_else(|| addr.to_string(), suite::Url::authority);
                match ask::ask(addr, &host, path, Duration::from_secs_f64(load.timeout_s)) {
                    Ok(keeping) => {
                        let connections = match keeping {
                            Keeping::Keeps => load.connections,
                            Keeping::Closes => ask::room(addr, load.connections),
                        };
                        let manner = Manner { keeping, connections };
                        self.asked.0.borrow_mut().insert(key, manner);
                        manner
                    }
                    Err(Refusal::Status(status)) => {
                        return Err(Failure::Failed(format!(
                            "it answers GET {path} with status {status}, so give a path that it serves"
                        )));
                    }
                    // It may have been busy: the load shows what it does, and says so.
                    Err(Refusal::Silent(_)) => return Ok(kept),
                }
            }
        };
        if manner.keeping == Keeping::Closes && (load.pipeline > 1 || load.active < load.connections) {
            return Err(Failure::Skipped(
                "it closes the connection after each answer, and this load needs connections that stay open"
                    .to_owned(),
            ));
        }
        Ok(manner)
    }

    /// Stops a server after its client is done, and takes its own counts.
    pub(crate) fn stopped(
        &self,
        server: &Server,
        subject: Subject,
        load: &Load,
        mut measured: Measured,
    ) -> Measured {
        let Some(mut child) = subject.child else { return measured };
        if child.has_ended() {
            measured.server_failed = Some(format!("{}: {}", child.how_it_ended(), child.last_words()));
            return measured;
        }
        let ended = child.stop(STOP_DEADLINE);
        if server.totals {
            measured.totals = Totals::find(&ended.stdout);
            if ended.killed {
                measured.server_failed = Some(format!("it did not stop within {STOP_DEADLINE:?} of SIGTERM"));
            } else if measured.totals.is_none() {
                measured.server_failed = Some("it printed no totals when stopped".to_owned());
            }
        }
        if let Some(totals) = &measured.totals {
            let requests = totals.requests(load);
            measured.run.server_count = Some(requests);
            // The kernel's count is of the steady state; the program's includes accepting, so it is second
            // choice.
            if measured.run.syscalls_per_request.is_none()
                && self.keeps(Keep::Syscalls)
                && requests > 0
                && totals.syscalls > 0
            {
                measured.run.syscalls_per_request = Some(totals.syscalls as f64 / requests as f64);
                measured.syscalls_source = Some("program".to_owned());
            }
        }
        measured
    }

    fn keeps(&self, what: Keep) -> bool {
        self.suite.keep.contains(&what)
    }

    /// Returns the command of a client of ours. With others it takes turns, and may wait for so many seconds
    /// in between.
    pub(crate) fn client(
        &self,
        server: &Server,
        subject: &Subject,
        addr: SocketAddr,
        load: &Load,
        others_s: Option<f64>,
    ) -> Result<ClientCommand, Failure> {
        let url = server.url.as_ref();
        let path = url.and_then(|url| url.path.as_ref()).unwrap_or(&load.path);
        let manner = self.manner(server, addr, load, path)?;
        let closes = manner.keeping == Keeping::Closes;
        let fewer = manner.connections < load.connections;
        let options = client::Options {
            addr,
            protocol: load.protocol,
            host: url.map(suite::Url::authority),
            tls: url.is_some_and(|url| url.https),
            connections: manner.connections,
            active: if fewer { manner.connections } else { load.active },
            reconnect: load.reconnect || closes,
            pipeline: load.pipeline,
            payload_bytes: load.payload_bytes,
            path: path.clone(),
            body: load.body.clone().filter(|_| !server.own_page),
            warmup_s: self.suite.warmup_s,
            duration_s: self.suite.duration_s,
            syscalls_s: if self.keeps(Keep::Syscalls) { self.suite.syscalls_s } else { 0.0 },
            memory: self.keeps(Keep::Memory),
            // What is on its way when a turn ends is answered soon and taken in at the next.
            timeout_s: load.timeout_s + others_s.unwrap_or(0.0),
            server_pid: subject.pid,
            turn_s: self.suite.turn_s.filter(|_| others_s.is_some()),
        };
        let word = serde_json::to_string(&options).map_err(|error| broken(error.to_string()))?;
        let mut words = self.client.to_vec();
        words.extend([load.client.as_str().to_owned(), word]);
        let most_s = options.warmup_s
            + options.duration_s
            // A turn may take as long to begin as it is.
            + options.turn_s.map_or(0.0, |turn_s| turn_s.max(options.duration_s))
            + options.syscalls_s
            + 3.0 * options.timeout_s
            + CLIENT_MARGIN_S;
        Ok(ClientCommand { words, most_s, closes, connections: fewer.then_some(manner.connections) })
    }

    /// Returns what a client of ours that ended has reported.
    pub(crate) fn reported(&self, load: &Load, watched: &Watched) -> Result<Measured, Failure> {
        let line = watched.stdout.lines().rev().find(|line| line.starts_with('{'));
        let report: ClientReport = match (watched.success, line) {
            (true, Some(line)) => serde_json::from_str(line)
                .map_err(|error| broken(format!("its report cannot be read ({error}): {line}")))?,
            _ => return Err(broken(watched.how.clone())),
        };
        Ok(self.figures(report, load, watched))
    }

    fn figures(&self, report: ClientReport, load: &Load, watched: &Watched) -> Measured {
        let window = report.window.unwrap_or_default();
        let duration_s = window.duration_ns as f64 / 1e9;
        let share = |ns: Option<u64>| {
            ns.filter(|_| window.duration_ns > 0).map(|ns| ns as f64 / window.duration_ns as f64)
        };
        let server_share = share(window.server_cpu_ns);
        let cpu_us_per_request = window
            .server_cpu_ns
            .filter(|_| window.completed > 0)
            .map(|ns| ns as f64 / 1e3 / window.completed as f64);
        let rps = if duration_s > 0.0 { window.completed as f64 / duration_s } else { 0.0 };
        let micros = |ns: u64| ns as f64 / 1e3;
        Measured {
            run: Run {
                duration_s,
                completed: window.completed,
                rps,
                mean_us: window.mean_ns.map(|ns| ns / 1e3),
                p50_us: window.p50_ns.map(micros),
                p99_us: window.p99_ns.map(micros),
                cpu_us_per_request,
                server_cpu_share: server_share,
                client_cpu_share: share(window.client_cpu_ns),
                client_wait_share: share(window.client_wait_ns),
                steal_share: window.steal_share,
                errors: report.errors,
                client_count: report.answers,
                user_share: window.server_user_share,
                syscalls_per_request: window.syscalls_per_request,
                context_switches_per_request: window.switches_per_request,
                rss_bytes: window.rss_bytes,
                rss_growth_bytes: window.rss_growth_bytes,
                kernel_bytes: window.kernel_bytes,
                closed: report.closed,
                ..Run::default()
            },
            sent: report.sent,
            bytes: (load.protocol == Protocol::Echo).then_some((report.bytes_sent, report.bytes_received)),
            served: Some(report.served),
            in_flight: window.in_flight,
            client: Some(report.client),
            syscalls_source: window.syscalls_per_request.map(|_| "perf".to_owned()),
            payload_bytes: report.payload_bytes,
            server_busy: server_share
                .zip(window.server_carriers)
                .map(|(share, carriers)| share / carriers.clamp(1.0, self.cores.server.len().max(1) as f64)),
            // An empty text is a window that never was.
            histogram: Histogram::from_base64(&window.histogram).ok(),
            harness_cpu: watched.harness_cpu,
            watched: watched.time,
            first_error: report.first_error,
            ..Measured::default()
        }
    }

    /// wrk takes whole seconds and has no warm-up: one run of it to warm, one to measure.
    fn wrk(&self, server: &mut Subject, addr: SocketAddr, load: &Load) -> Result<Measured, Failure> {
        let url = format!("http://{addr}{}", load.path);
        let mut warm_requests = 0;
        let call = |server: &mut Subject, seconds_s: f64| -> Result<(wrk::WrkReport, Watched), Failure> {
            let seconds = seconds_s.ceil().max(1.0);
            let words = wrk::command(&url, load.connections, seconds as u64, load.timeout_s);
            let most_s = seconds + 2.0 * load.timeout_s + CLIENT_MARGIN_S;
            let watched = self.watch(server, words, most_s)?;
            match wrk::parse(&watched.stdout) {
                Some(report) if watched.success => Ok((report, watched)),
                _ => Err(Failure::Failed(watched.how)),
            }
        };
        if self.suite.warmup_s > 0.0 {
            warm_requests = call(server, self.suite.warmup_s)?.0.requests;
        }
        let pids = server.pid.map(client::window::family).unwrap_or_default();
        let clocks: Vec<ProcessClock> = pids.iter().filter_map(|pid| ProcessClock::of(*pid).ok()).collect();
        let read = || {
            let all = clocks.iter().map(|clock| clock.read().ok()).sum::<Option<Duration>>();
            all.filter(|_| !clocks.is_empty())
        };
        let (begun, machine, before) = (Instant::now(), cpu::machine().ok(), read());
        let (report, watched) = call(server, self.suite.duration_s)?;
        // The clocks are read around all of the client, which takes a little longer than it says.
        let span = begun.elapsed().as_secs_f64();
        let server_cpu = before.zip(read()).and_then(|(before, after)| after.checked_sub(before));
        let steal_share =
            machine.zip(cpu::machine().ok()).and_then(|(before, after)| after.steal_share_since(&before));
        let rps = report.requests as f64 / report.seconds;
        let server_share = server_cpu.map(|cpu| cpu.as_secs_f64() / span);
        Ok(Measured {
            run: Run {
                duration_s: report.seconds,
                completed: report.requests,
                rps,
                mean_us: report.mean_us,
                p50_us: report.p50_us,
                p99_us: report.p99_us,
                cpu_us_per_request: server_cpu
                    .filter(|_| report.requests > 0)
                    .map(|cpu| cpu.as_secs_f64() * 1e6 / report.requests as f64),
                server_cpu_share: server_share,
                client_cpu_share: watched.client_cpu.map(|cpu| cpu.as_secs_f64() / span),
                steal_share,
                errors: report.errors,
                client_count: warm_requests + report.requests,
                rss_bytes: server.pid.and_then(|pid| ringroad_host::memory::process(pid).ok()?.rss_bytes),
                ..Run::default()
            },
            sent: warm_requests + report.requests,
            // Not gated by Little's law: wrk sends the next request a turn of its loop after the answer, so a
            // connection rests in between (64 connections held 45 in flight here) and the law would judge
            // wrk.
            in_flight: None,
            client: Some("wrk".to_owned()),
            server_busy: server_share.map(|share| share / self.cores.server.len().max(1) as f64),
            harness_cpu: watched.harness_cpu,
            watched: watched.time,
            count_slack: 2 * u64::from(load.connections),
            ..Measured::default()
        })
    }

    /// Starts a client on its cores and sleeps until it is done, keeping both programs' pipes empty.
    fn watch(&self, server: &mut Subject, words: Vec<String>, most_s: f64) -> Result<Watched, Failure> {
        let started = Instant::now();
        let own = ProcessClock::own();
        let own_before = own.read().ok();
        let start = Start { words, cpus: self.cores.client.clone(), ..Start::default() };
        let mut client = Program::start(&start)?;
        let clock = ProcessClock::of(client.pid()).ok();
        let deadline = started + Duration::from_secs_f64(most_s);
        while !client.is_zombie() {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Failure::Interrupted);
            }
            if Instant::now() >= deadline {
                return Err(Failure::Failed(format!("the client did not end within {most_s:.0} s")));
            }
            server.wait_with(&mut client);
        }
        let time = started.elapsed();
        let harness_cpu = own_before.zip(own.read().ok()).and_then(|(before, now)| now.checked_sub(before));
        // Ended but not reaped, so its clock still stands.
        let client_cpu = clock.and_then(|clock| clock.read().ok());
        Ok(Watched { client_cpu, ..Watched::of(client).in_time(time, harness_cpu) })
    }
}

/// Our own client failed: no cell can be measured.
fn broken(how: String) -> Failure {
    Failure::Client(Error::Client { how })
}

/// How a client of ours is started, and how long it may take, seconds.
#[derive(Debug)]
pub(crate) struct ClientCommand {
    pub(crate) words: Vec<String>,
    pub(crate) most_s: f64,
    /// The server closes its connection after each answer, and the client knows.
    pub(crate) closes: bool,
    /// It makes fewer connections than the load has.
    pub(crate) connections: Option<u32>,
}

impl ClientCommand {
    /// Returns what came of it, with how it was told to put the load on.
    pub(crate) fn marked(&self, measured: Measured) -> Measured {
        Measured { closes: self.closes, connections: self.connections, ..measured }
    }
}

/// A client that ended.
#[derive(Debug)]
pub(crate) struct Watched {
    time: Duration,
    harness_cpu: Option<Duration>,
    client_cpu: Option<Duration>,
    success: bool,
    stdout: String,
    how: String,
}

impl Watched {
    /// What is left of a client that has ended, the times unknown.
    pub(crate) fn of(mut client: Program) -> Watched {
        let _ = client.has_ended();
        let how = format!("{}: {}", client.how_it_ended(), client.last_words());
        let (success, stdout) = (client.succeeded(), client.output());
        Watched { time: Duration::ZERO, harness_cpu: None, client_cpu: None, success, stdout, how }
    }

    /// With how long it ran, and what CPU the harness used meanwhile.
    pub(crate) fn in_time(self, time: Duration, harness_cpu: Option<Duration>) -> Watched {
        Watched { time, harness_cpu, ..self }
    }
}
