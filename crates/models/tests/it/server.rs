//! A server under test in a process of its own: own descriptors, own limits, own memory to look at.
//!
//! The test binary starts itself again with a specification in the environment; the one test that sees it
//! serves instead of testing. The child ends when its standard input does, so none outlives the tests.

use ringroad_models::{Model, Options, Protocol, Server as Serving, Stop};
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Holds the specification: model, protocol, buffer, delay, work, batch, descriptor limit.
const SPECIFICATION: &str = "RINGROAD_MODELS_TEST_SERVER";

/// A guard against hanging, not a measurement: far beyond what anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A running child.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    complaints: Receiver<String>,
}

/// What it printed at its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
    pub(crate) requests: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) syscalls: u64,
}

impl Server {
    pub(crate) fn start(model: Model, protocol: Protocol) -> Self {
        Self::with(model, protocol, Options::default())
    }

    pub(crate) fn with(model: Model, protocol: Protocol, options: Options) -> Self {
        Self::limited(model, protocol, options, None)
    }

    /// `descriptors_max`: the child's own limit, if it is to have one.
    pub(crate) fn limited(
        model: Model,
        protocol: Protocol,
        options: Options,
        descriptors_max: Option<u64>,
    ) -> Self {
        raise_descriptor_limit();
        let Options { buffer_bytes, delay, work, batch, .. } = options;
        let batch = batch.map_or(0, |batch| batch.get());
        let limit = descriptors_max.unwrap_or(0);
        let (delay, work) = (delay.as_nanos(), work.as_nanos());
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "server::a_child_serves_and_stops", "--nocapture"])
            .env(SPECIFICATION, format!("{model} {protocol} {buffer_bytes} {delay} {work} {batch} {limit}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let lines = lines_of(child.stdout.take().unwrap());
        let complaints = lines_of(child.stderr.take().unwrap());
        let address = await_line(&lines, |line| line.strip_prefix("listening on ").map(str::to_owned));
        Server { address: address.parse().unwrap(), child, input, lines, complaints }
    }

    /// Asks it to stop, waits for its end and reads its totals.
    pub(crate) fn stop(mut self) -> Totals {
        drop(self.input.take());
        let line = await_line(&self.lines, |line| line.starts_with(r#"{"totals":"#).then(|| line.to_owned()));
        assert!(self.child.wait().unwrap().success(), "the server failed");
        let number = |name: &str| {
            let (_, rest) = line.split_once(&format!("\"{name}\":")).expect(name);
            rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().expect(name)
        };
        Totals {
            accepted: number("accepted"),
            refused: number("refused"),
            requests: number("requests"),
            bytes_in: number("bytes_in"),
            bytes_out: number("bytes_out"),
            syscalls: number("syscalls"),
        }
    }

    /// What it has said on stderr so far.
    pub(crate) fn complaints(&self) -> Vec<String> {
        self.complaints.try_iter().filter(|line| line.starts_with("ringroad: ")).collect()
    }

    /// Waits for its next word on stderr.
    pub(crate) fn await_complaint(&self) -> String {
        await_line(&self.complaints, |line| line.starts_with("ringroad: ").then(|| line.to_owned()))
    }

    /// Anonymous memory it holds now, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }

    /// Sockets it has open now.
    pub(crate) fn sockets(&self) -> usize {
        let open = std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap();
        // One may be closed while we look.
        let names = open.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
        names.filter(|name| name.to_string_lossy().starts_with("socket:")).count()
    }

    /// Stops its threads until [`Server::resume`], so that what clients do meanwhile meets it all at once.
    pub(crate) fn pause(&self) {
        self.signal(libc::SIGSTOP);
        let path = format!("/proc/{}/status", self.child.id());
        while !std::fs::read_to_string(&path).unwrap().contains("State:\tT") {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn resume(&self) {
        self.signal(libc::SIGCONT);
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: plain numbers. The child is ours and not reaped, so its pid is not reused.
        assert_eq!(unsafe { libc::kill(self.child.id() as libc::pid_t, signal) }, 0);
    }

    /// CPU time used by all its living threads.
    pub(crate) fn cpu(&self) -> Duration {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let nanoseconds = tasks
            .filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("schedstat")).ok())
            .map(|line| line.split_whitespace().next().unwrap().parse::<u64>().unwrap())
            .sum();
        Duration::from_nanos(nanoseconds)
    }

    /// Returns once every thread of it has been asleep, without one switch, for a while: whatever was to be
    /// done is done.
    pub(crate) fn settle(&self) {
        let mut before = String::new();
        let mut unchanged = 0;
        while unchanged < 20 {
            std::thread::sleep(Duration::from_millis(2));
            let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
            let now: String = tasks
                .filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("status")).ok())
                .flat_map(|status| {
                    let kept = |line: &&str| line.starts_with("State:") || line.contains("ctxt_switches");
                    status.lines().filter(kept).map(str::to_owned).collect::<Vec<_>>()
                })
                .collect();
            unchanged = if now == before && !now.contains("running") { unchanged + 1 } else { 0 };
            before = now;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Gone already after `stop`; killed here if a test panicked before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines_of(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

fn await_line<T>(lines: &Receiver<String>, pick: impl Fn(&str) -> Option<T>) -> T {
    let mut seen = Vec::new();
    loop {
        match lines.recv_timeout(PATIENCE) {
            Ok(line) => match pick(&line) {
                Some(picked) => return picked,
                None => seen.push(line),
            },
            Err(why) => panic!("{why}; the server printed before: {seen:#?}"),
        }
    }
}

/// A thousand clients are a thousand descriptors here, too.
fn raise_descriptor_limit() {
    set_descriptor_limit(|limit| limit.rlim_cur = limit.rlim_max);
}

fn set_descriptor_limit(change: impl FnOnce(&mut libc::rlimit)) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a live, writable rlimit, used only during the call.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }, 0);
    change(&mut limit);
    // SAFETY: a live rlimit, only read, during the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
}

/// Without the specification a test of the child itself; with it, the child.
#[test]
fn a_child_serves_and_stops() {
    let Ok(specification) = std::env::var(SPECIFICATION) else {
        let server = Server::start(Model::Poll, Protocol::Echo);
        assert_eq!(crate::client::exchange(&mut crate::client::connect(&server), b"ping"), b"ping");
        assert_eq!(server.stop().bytes_out, 4);
        return;
    };
    let words: Vec<&str> = specification.split(' ').collect();
    let [model, protocol, buffer, delay, work, batch, limit] = words[..] else { panic!("{specification:?}") };
    let options = Options {
        buffer_bytes: buffer.parse().unwrap(),
        delay: Duration::from_nanos(delay.parse().unwrap()),
        work: Duration::from_nanos(work.parse().unwrap()),
        batch: std::num::NonZeroU16::new(batch.parse().unwrap()),
        reuse_port: false,
    };
    match limit.parse().unwrap() {
        0 => raise_descriptor_limit(),
        limit => set_descriptor_limit(|was| was.rlim_cur = limit),
    }
    // Rust ignores SIGPIPE; a program that does not must survive all the same.
    // SAFETY: the default action runs no code of ours, and this process serves and does nothing else.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let address = ([127, 0, 0, 1], 0).into();
    let server = Serving::bind(model.parse().unwrap(), protocol.parse().unwrap(), address, options).unwrap();
    // A line of its own: the test harness has printed the beginning of one.
    println!("\nlistening on {}", server.address());
    let stop = Stop::new().unwrap();
    let totals = std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            stop.request();
        });
        server.run(&stop).unwrap()
    });
    println!("\n{totals}");
}
