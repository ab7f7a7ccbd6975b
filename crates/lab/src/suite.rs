//! Suites: what to start, how to know it is ready, which load to put on it, how often, what to keep. Data only.
//!
//! A suite is a TOML file; every mistake is answered with file, line and key. A `[[server]]` with `each` stands
//! for one server per word, `{each}` being the word; a `[[load]]` stands for one load per connection count.
//! Placeholders that only a run knows (`{port}`, `{ringroad}`, …) stay in place here: `program` fills them.
//! [`built_in`] holds the suites that are part of the program.
//!
//! Start at [`Suite`].
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod built_in;

use crate::dataset::Dataset;
use crate::error::{Error, SuiteError};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use toml::Spanned;

/// A checked suite.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Suite {
    /// Its name: the file's stem, or `quick`.
    pub name: String,
    /// One line: what it asks.
    pub title: String,
    /// Load before the measured window, seconds; discarded.
    pub warmup_s: f64,
    /// The measured window, seconds.
    pub duration_s: f64,
    /// The window after it in which system calls are counted, seconds; 0 for none.
    pub syscalls_s: f64,
    /// Interleaved blocks: how often every cell runs.
    pub repeats: u32,
    /// The server all ratios are against.
    pub baseline: Option<String>,
    /// Run the baseline twice per block and load, as the A/A control.
    pub control: bool,
    /// What the whole suite may take, seconds; a plan that would take longer is refused.
    pub budget_s: Option<f64>,
    /// What to keep besides the primary figures.
    pub keep: Vec<Keep>,
    /// The programs, `each` expanded.
    pub servers: Vec<Server>,
    /// The loads, connection counts expanded.
    pub loads: Vec<Load>,
    /// Where relative paths of the suite start: its file's folder.
    pub folder: Option<PathBuf>,
}

/// Figures that cost time or space to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Keep {
    /// System calls per request, counted in a window of their own.
    Syscalls,
    /// Resident memory of the program and growth of kernel memory.
    Memory,
    /// The latency histogram itself, not only its percentiles.
    Histogram,
}

/// One program to start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// Its name in the record.
    pub id: String,
    /// The I/O driver under it, where known.
    pub driver: Option<String>,
    /// The command, word by word, placeholders unfilled.
    pub command: Vec<String>,
    /// How it says that it is ready.
    pub ready: Ready,
    /// More connections than this are not tried.
    pub max_connections: Option<u32>,
    /// Why not.
    pub max_connections_reason: Option<String>,
    /// The protocols it speaks.
    pub protocols: Vec<Protocol>,
    /// It prints our totals line when stopped.
    pub totals: bool,
    /// Environment on top of the harness's own, placeholders unfilled.
    pub env: BTreeMap<String, String>,
    /// Its working folder, relative to the suite's file.
    pub cwd: Option<PathBuf>,
    /// How long it may take to become ready, seconds.
    pub ready_timeout_s: f64,
    /// What to do about it where it is not installed, as a clause.
    pub hint: Option<String>,
    /// It answers with a page of its own: answers must be alike, whatever body the load names.
    pub own_page: bool,
}

impl Server {
    /// It can be told what a load wants of its program.
    pub fn takes_arguments(&self) -> bool {
        self.command.iter().any(|word| word == ARGUMENTS)
    }
}

/// How a program says that it accepts connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ready {
    /// It prints this line. `{addr}` in it stands for the address it chose; without it the address is the one
    /// it was given through `{addr}` or `{port}`.
    Line(String),
    /// A connection to the address it was given succeeds.
    Connect,
    /// It serves nobody: it does its work and ends.
    End,
}

/// What a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Bytes come back as they were sent.
    Echo,
    /// HTTP/1.1 GET with keep-alive.
    Http,
    /// None: a tree of files is copied.
    Files,
}

/// A tree of files to copy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tree {
    /// What `lab dataset` calls it.
    pub dataset: String,
    /// How much of it.
    #[serde(default = "whole")]
    pub scale: f64,
    /// Read from the disk, not from memory.
    #[serde(default)]
    pub cold: bool,
}

fn whole() -> f64 {
    1.0
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Protocol::Echo => "echo",
            Protocol::Http => "http",
            Protocol::Files => "files",
        })
    }
}

/// Who puts the load on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Client {
    /// Ours: [`crate::client`].
    #[default]
    Own,
    /// `wrk`, an outside program, to check ours against.
    Wrk,
}

/// One load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Unique: `http-64`.
    pub id: String,
    /// What the connections speak.
    pub protocol: Protocol,
    /// For files: what is copied.
    pub tree: Option<Tree>,
    /// Connections; 1 for files.
    pub connections: u32,
    /// How many of them go on sending; the others send one request and are held open.
    pub active: u32,
    /// Each request has a connection of its own.
    pub reconnect: bool,
    /// Requests in flight per connection.
    pub pipeline: u32,
    /// Echo: bytes per message. HTTP: known only from the answers, 0 here.
    pub payload_bytes: u32,
    /// HTTP: the path asked for.
    pub path: String,
    /// HTTP: the body every answer must have; without it the first answer's body is the measure.
    pub body: Option<String>,
    /// Who puts it on.
    pub client: Client,
    /// How long an answer may take before it counts as missing, seconds.
    pub timeout_s: f64,
    /// Words for the program's command, where it says `{arguments}`: `--work-us 20`. Without that it is skipped.
    pub arguments: Vec<String>,
    /// CPUs the program must have for itself; with fewer it is skipped.
    pub cores: u32,
    /// What sets it apart besides its numbers, in words.
    pub about: Option<String>,
}

impl Suite {
    /// The built-in suite: every model, echo and HTTP, 64 connections.
    ///
    /// # Errors
    /// None in a released build: a test parses the embedded file.
    pub fn quick() -> Result<Suite, Error> {
        Suite::load("quick")
    }

    /// A suite by name or path: a built-in one, a `.toml` file, or `NAME` for `benches/NAME.toml` or `NAME.toml` here.
    ///
    /// # Errors
    /// [`Error::NoSuchSuite`], [`Error::Read`], or [`Error::Suite`] with file, line and key.
    pub fn load(name: &str) -> Result<Suite, Error> {
        if let Some(text) = built_in::text(name) {
            return Suite::parse(text, name, name, None);
        }
        let is_path = name.contains('/') || name.ends_with(".toml");
        let tried: Vec<PathBuf> = if is_path {
            vec![PathBuf::from(name)]
        } else {
            vec![PathBuf::from(format!("benches/{name}.toml")), PathBuf::from(format!("{name}.toml"))]
        };
        let Some(path) = tried.iter().find(|path| path.exists()) else {
            return Err(Error::NoSuchSuite { name: name.to_owned(), tried });
        };
        let text =
            std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.clone(), source })?;
        let stem = path.file_stem().map_or_else(|| name.to_owned(), |s| s.to_string_lossy().into_owned());
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Suite::parse(&text, &path.display().to_string(), &stem, Some(folder.to_owned()))
    }

    /// A suite from its text. `file` is what errors call it.
    ///
    /// # Errors
    /// [`Error::Suite`] with line and key.
    pub fn parse(text: &str, file: &str, name: &str, folder: Option<PathBuf>) -> Result<Suite, Error> {
        let at = Place { file, text };
        let raw: RawSuite = toml::from_str(text).map_err(|error| SuiteError {
            file: file.to_owned(),
            line: error.span().map(|span| at.line(span.start)),
            key: None,
            message: error.message().trim_end().to_owned(),
        })?;
        let suite = check(raw, &at, name, folder)?;
        Ok(suite)
    }

    /// Adds a program of the user's: `NAME=COMMAND`, words as a shell would part them, with `{port}` or `{addr}` where
    /// the address goes. It speaks HTTP, or what the load speaks where the command says `{protocol}`, and may answer
    /// with any page. A relative path is from the folder this process is in.
    ///
    /// # Errors
    /// [`Error::With`] says what is wrong with the text.
    pub fn add(&mut self, text: &str) -> Result<(), Error> {
        let wrong = |how: String| Error::With { text: text.to_owned(), how };
        let (id, command) =
            text.split_once('=').ok_or_else(|| wrong("there is no `=`: give NAME=COMMAND".to_owned()))?;
        if id.is_empty() || id.contains('/') || id.chars().any(char::is_control) {
            return Err(wrong("the name before `=` is empty or has a `/` in it".to_owned()));
        }
        if self.servers.iter().any(|server| server.id == id) {
            return Err(wrong(format!(
                "suite {} has a program `{id}` already: take another name",
                self.name
            )));
        }
        let mut command = shlex::split(command)
            .filter(|words| !words.is_empty())
            .ok_or_else(|| wrong("the command is empty, or a quote in it is not closed".to_owned()))?;
        for word in &command {
            if let Some(unknown) = unknown_placeholder(word, &PLACEHOLDERS) {
                return Err(wrong(format!("`{unknown}` is unknown; there are: {}", PLACEHOLDERS.join(" "))));
            }
        }
        let says = |what: &str| command.iter().any(|word| word.contains(what));
        if !says("{port}") && !says("{addr}") {
            return Err(wrong(
                "nothing tells it where to listen: put {port} or {addr} in the command".to_owned(),
            ));
        }
        let protocols =
            if says("{protocol}") { vec![Protocol::Echo, Protocol::Http] } else { vec![Protocol::Http] };
        if let Some(first) = command.first_mut().filter(|first| first.contains('/')) {
            let path = std::path::absolute(&*first).map_err(|error| wrong(error.to_string()))?;
            *first = path.to_string_lossy().into_owned();
        }
        self.servers.push(Server {
            id: id.to_owned(),
            driver: None,
            command,
            ready: Ready::Connect,
            max_connections: None,
            max_connections_reason: None,
            protocols,
            totals: false,
            env: BTreeMap::new(),
            cwd: None,
            ready_timeout_s: READY_TIMEOUT_S,
            hint: None,
            own_page: true,
        });
        // The budget is for the suite's own programs.
        self.budget_s = None;
        Ok(())
    }

    /// How long one run takes, seconds: warm-up, window, system-call window, and starting and stopping.
    pub fn run_estimate_s(&self) -> f64 {
        /// Measured: start, connect, drain and stop of a small server take 60 to 120 ms.
        const AROUND_S: f64 = 0.1;
        let syscalls_s = if self.keep.contains(&Keep::Syscalls) { self.syscalls_s } else { 0.0 };
        self.warmup_s + self.duration_s + syscalls_s + AROUND_S
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSuite {
    title: String,
    #[serde(default = "half_a_second")]
    warmup_s: Spanned<f64>,
    duration_s: Spanned<f64>,
    #[serde(default = "third_of_a_second")]
    syscalls_s: Spanned<f64>,
    repeats: Spanned<u32>,
    baseline: Option<Spanned<String>>,
    #[serde(default)]
    control: bool,
    budget_s: Option<Spanned<f64>>,
    #[serde(default = "keep_all")]
    record: Vec<Keep>,
    #[serde(default)]
    server: Vec<RawServer>,
    #[serde(default)]
    load: Vec<RawLoad>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawServer {
    id: Spanned<String>,
    each: Option<Spanned<Vec<String>>>,
    driver: Option<String>,
    command: Spanned<Vec<String>>,
    ready: Spanned<String>,
    max_connections: Option<u32>,
    max_connections_reason: Option<String>,
    protocols: Vec<Protocol>,
    #[serde(default)]
    totals: bool,
    #[serde(default)]
    env: BTreeMap<String, String>,
    cwd: Option<PathBuf>,
    ready_timeout_s: Option<Spanned<f64>>,
    hint: Option<String>,
    #[serde(default)]
    own_page: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLoad {
    id: Spanned<String>,
    protocol: Protocol,
    connections: Option<Spanned<Vec<u32>>>,
    tree: Option<Spanned<Tree>>,
    active_share: Option<Spanned<f64>>,
    #[serde(default)]
    reconnect: bool,
    #[serde(default = "one")]
    pipeline: Spanned<u32>,
    payload_bytes: Option<Spanned<u32>>,
    path: Option<Spanned<String>>,
    body: Option<String>,
    #[serde(default)]
    client: Client,
    timeout_s: Option<Spanned<f64>>,
    #[serde(default)]
    arguments: Vec<String>,
    #[serde(default = "one")]
    cores: Spanned<u32>,
    about: Option<String>,
}

fn half_a_second() -> Spanned<f64> {
    Spanned::new(0..0, 0.5)
}

fn third_of_a_second() -> Spanned<f64> {
    Spanned::new(0..0, 0.3)
}

fn one() -> Spanned<u32> {
    Spanned::new(0..0, 1)
}

fn keep_all() -> Vec<Keep> {
    vec![Keep::Syscalls, Keep::Memory, Keep::Histogram]
}

/// Turns byte offsets into lines and mistakes into errors.
struct Place<'a> {
    file: &'a str,
    text: &'a str,
}

impl Place<'_> {
    fn line(&self, offset: usize) -> usize {
        1 + self.text.bytes().take(offset).filter(|b| *b == b'\n').count()
    }

    fn error<T>(&self, value: &Spanned<T>, key: &str, message: impl Into<String>) -> SuiteError {
        SuiteError {
            file: self.file.to_owned(),
            line: Some(self.line(value.span().start)),
            key: Some(key.to_owned()),
            message: message.into(),
        }
    }

    fn whole(&self, key: &str, message: impl Into<String>) -> SuiteError {
        SuiteError {
            file: self.file.to_owned(),
            line: None,
            key: Some(key.to_owned()),
            message: message.into(),
        }
    }

    /// A length of time that a run can have.
    fn seconds(&self, value: &Spanned<f64>, key: &str, least: f64) -> Result<f64, SuiteError> {
        /// A day: longer is a slip of the unit.
        const MOST: f64 = 86_400.0;
        let seconds = *value.get_ref();
        if (least..=MOST).contains(&seconds) {
            Ok(seconds)
        } else {
            Err(self.error(value, key, format!("{seconds} is not between {least} and {MOST} seconds")))
        }
    }
}

/// More connections than one client process can be asked for: the port range of a handful of source addresses.
const CONNECTIONS_MAX: u32 = 1_000_000;
/// More blocks than this would run for weeks.
const REPEATS_MAX: u32 = 10_000;
/// Deeper pipelines than this measure the client's buffers.
const PIPELINE_MAX: u32 = 1024;
/// Larger messages are a matter of throughput, not of requests.
const PAYLOAD_MAX: u32 = 1 << 20;
/// What a program may take to become ready unless the suite says otherwise, seconds.
const READY_TIMEOUT_S: f64 = 10.0;
/// The word of a command that stands for the words of a load.
pub(crate) const ARGUMENTS: &str = "{arguments}";
/// What may stand in a command.
const PLACEHOLDERS: [&str; 8] =
    ["{each}", "{ringroad}", "{protocol}", "{port}", "{addr}", "{source}", "{target}", ARGUMENTS];

fn check(raw: RawSuite, at: &Place<'_>, name: &str, folder: Option<PathBuf>) -> Result<Suite, SuiteError> {
    let warmup_s = at.seconds(&raw.warmup_s, "warmup_s", 0.0)?;
    let duration_s = at.seconds(&raw.duration_s, "duration_s", 0.01)?;
    let syscalls_s = at.seconds(&raw.syscalls_s, "syscalls_s", 0.0)?;
    let budget_s = raw.budget_s.as_ref().map(|s| at.seconds(s, "budget_s", 1.0)).transpose()?;
    if *raw.repeats.get_ref() == 0 {
        return Err(at.error(&raw.repeats, "repeats", "0 measures nothing; 6 is the least for an interval"));
    }
    if *raw.repeats.get_ref() > REPEATS_MAX {
        let message = format!("{} is more than {REPEATS_MAX}", raw.repeats.get_ref());
        return Err(at.error(&raw.repeats, "repeats", message));
    }
    if raw.server.is_empty() {
        return Err(
            at.whole("server", "there is none: add a [[server]] with id, command, ready and protocols")
        );
    }
    if raw.load.is_empty() {
        return Err(at.whole("load", "there is none: add a [[load]] with id, protocol and connections"));
    }
    let mut servers = Vec::new();
    let mut names = HashSet::new();
    for raw in raw.server {
        for server in check_server(&raw, at)? {
            if !names.insert(server.id.clone()) {
                return Err(at.error(
                    &raw.id,
                    "server.id",
                    format!("`{}` is taken; ids must differ", server.id),
                ));
            }
            servers.push(server);
        }
    }
    let mut loads = Vec::new();
    let mut names = HashSet::new();
    for raw in raw.load {
        for load in check_load(&raw, at)? {
            if !names.insert(load.id.clone()) {
                return Err(at.error(&raw.id, "load.id", format!("`{}` is taken; ids must differ", load.id)));
            }
            loads.push(load);
        }
    }
    if let Some(baseline) = &raw.baseline
        && !servers.iter().any(|server| server.id == *baseline.get_ref())
    {
        let known: Vec<&str> = servers.iter().map(|s| s.id.as_str()).collect();
        let message =
            format!("`{}` is not the id of a server; there are: {}", baseline.get_ref(), known.join(", "));
        return Err(at.error(baseline, "baseline", message));
    }
    if raw.control && raw.baseline.is_none() {
        return Err(at.whole("control", "an A/A control needs a `baseline` to run twice"));
    }
    Ok(Suite {
        name: name.to_owned(),
        title: raw.title,
        warmup_s,
        duration_s,
        syscalls_s,
        repeats: raw.repeats.into_inner(),
        baseline: raw.baseline.map(Spanned::into_inner),
        control: raw.control,
        budget_s,
        keep: raw.record,
        servers,
        loads,
        folder,
    })
}

fn check_server(raw: &RawServer, at: &Place<'_>) -> Result<Vec<Server>, SuiteError> {
    let id = raw.id.get_ref();
    let words: Vec<Option<&str>> = match &raw.each {
        None => vec![None],
        Some(each) if each.get_ref().is_empty() => {
            return Err(at.error(each, "server.each", "an empty list stands for no server"));
        }
        Some(each) if !id.contains("{each}") => {
            return Err(at.error(each, "server.each", "needs `{each}` in `id`, so that the servers differ"));
        }
        Some(each) => each.get_ref().iter().map(|word| Some(word.as_str())).collect(),
    };
    if raw.command.get_ref().is_empty() {
        return Err(at.error(&raw.command, "server.command", "is empty; give the program and its arguments"));
    }
    if raw.protocols.is_empty() {
        return Err(at.error(&raw.id, "server.protocols", "is empty; give \"echo\", \"http\" or both"));
    }
    for word in raw.command.get_ref().iter().chain(raw.env.values()) {
        if let Some(unknown) = unknown_placeholder(word, &PLACEHOLDERS) {
            let message = format!("`{unknown}` is unknown; there are: {}", PLACEHOLDERS.join(" "));
            return Err(at.error(&raw.command, "server.command", message));
        }
        if word.contains(ARGUMENTS) && word != ARGUMENTS {
            let message =
                format!("{ARGUMENTS} stands for any number of words, so it must be a word of its own");
            return Err(at.error(&raw.command, "server.command", message));
        }
    }
    let ready_text = raw.ready.get_ref();
    if let Some(unknown) = unknown_placeholder(ready_text, &["{each}", "{addr}"]) {
        return Err(at.error(
            &raw.ready,
            "server.ready",
            format!("`{unknown}` is unknown; there is: {{addr}}"),
        ));
    }
    if ready_text.trim().is_empty() {
        return Err(at.error(&raw.ready, "server.ready", "is empty; give a line it prints, or \"connect\""));
    }
    let copies = raw.protocols.contains(&Protocol::Files);
    if copies != (ready_text == "end") || (copies && raw.protocols.len() > 1) {
        let message = "what copies files serves nothing else, and is ready at its \"end\"";
        return Err(at.error(&raw.ready, "server.ready", message));
    }
    let says = |what: &str| raw.command.get_ref().iter().any(|word| word.contains(what));
    if copies && !(says("{source}") && says("{target}")) {
        let message = "nothing tells it what to copy: put {source} and {target} in the command";
        return Err(at.error(&raw.command, "server.command", message));
    }
    let given_address = raw
        .command
        .get_ref()
        .iter()
        .chain(raw.env.values())
        .any(|w| w.contains("{addr}") || w.contains("{port}"));
    if !copies && !given_address && !ready_text.contains("{addr}") {
        let message = "nothing tells the address: put {port} or {addr} in `command`, or {addr} in `ready`";
        return Err(at.error(&raw.ready, "server.ready", message));
    }
    let ready_timeout_s = match &raw.ready_timeout_s {
        Some(value) => at.seconds(value, "server.ready_timeout_s", 0.01)?,
        None => READY_TIMEOUT_S,
    };
    let filled = |text: &str, word: Option<&str>| match word {
        Some(word) => text.replace("{each}", word),
        None => text.to_owned(),
    };
    Ok(words
        .into_iter()
        .map(|word| Server {
            id: filled(id, word),
            driver: raw.driver.as_deref().map(|driver| filled(driver, word)),
            command: raw.command.get_ref().iter().map(|part| filled(part, word)).collect(),
            ready: match filled(ready_text, word) {
                connect if connect == "connect" => Ready::Connect,
                end if end == "end" => Ready::End,
                line => Ready::Line(line),
            },
            max_connections: raw.max_connections,
            max_connections_reason: raw.max_connections_reason.clone(),
            protocols: raw.protocols.clone(),
            totals: raw.totals,
            env: raw.env.iter().map(|(key, value)| (key.clone(), filled(value, word))).collect(),
            cwd: raw.cwd.clone(),
            ready_timeout_s,
            hint: raw.hint.clone(),
            own_page: raw.own_page,
        })
        .collect())
}

fn check_load(raw: &RawLoad, at: &Place<'_>) -> Result<Vec<Load>, SuiteError> {
    let connections = match (raw.protocol, &raw.connections) {
        (Protocol::Files, None) => vec![1],
        (Protocol::Files, Some(given)) => {
            return Err(at.error(given, "load.connections", "copying files makes none: leave it out"));
        }
        (_, None) => return Err(at.error(&raw.id, "load.connections", "is missing; give one count or more")),
        (_, Some(given)) if given.get_ref().is_empty() => {
            return Err(at.error(given, "load.connections", "is empty; give one count or more"));
        }
        (_, Some(given)) => {
            if let Some(count) = given.get_ref().iter().find(|count| !(1..=CONNECTIONS_MAX).contains(*count))
            {
                let message = format!("{count} is not between 1 and {CONNECTIONS_MAX}");
                return Err(at.error(given, "load.connections", message));
            }
            given.get_ref().clone()
        }
    };
    check_tree(raw, at)?;
    let pipeline = *raw.pipeline.get_ref();
    if !(1..=PIPELINE_MAX).contains(&pipeline) {
        return Err(at.error(
            &raw.pipeline,
            "load.pipeline",
            format!("{pipeline} is not 1 to {PIPELINE_MAX}"),
        ));
    }
    let payload_bytes = match (raw.protocol, &raw.payload_bytes) {
        (Protocol::Echo, None) => 64,
        (Protocol::Echo, Some(bytes)) if (1..=PAYLOAD_MAX).contains(bytes.get_ref()) => *bytes.get_ref(),
        (Protocol::Echo, Some(bytes)) => {
            let message = format!("{} is not between 1 and {PAYLOAD_MAX}", bytes.get_ref());
            return Err(at.error(bytes, "load.payload_bytes", message));
        }
        (Protocol::Http | Protocol::Files, None) => 0,
        (Protocol::Http, Some(bytes)) => {
            let message = "an HTTP load has no payload of its own; its answers decide";
            return Err(at.error(bytes, "load.payload_bytes", message));
        }
        (Protocol::Files, Some(bytes)) => {
            let message = "a tree has files of its own sizes; leave it out";
            return Err(at.error(bytes, "load.payload_bytes", message));
        }
    };
    let path = match &raw.path {
        None => "/".to_owned(),
        Some(path) => {
            let text = path.get_ref();
            if !text.starts_with('/') || text.bytes().any(|b| !(0x21..=0x7e).contains(&b)) {
                return Err(at.error(
                    path,
                    "load.path",
                    "must begin with / and be printable ASCII, no blanks",
                ));
            }
            text.clone()
        }
    };
    let share = match &raw.active_share {
        None => 1.0,
        Some(share) if *share.get_ref() > 0.0 && *share.get_ref() <= 1.0 => *share.get_ref(),
        Some(share) => {
            let message = format!("{} is no share: more than 0, at most 1", share.get_ref());
            return Err(at.error(share, "load.active_share", message));
        }
    };
    if raw.reconnect && (raw.protocol != Protocol::Http || pipeline != 1 || share < 1.0) {
        let message = "a connection per request is for HTTP, without pipeline, all of them active";
        return Err(at.error(&raw.id, "load.reconnect", message));
    }
    if raw.client == Client::Wrk
        && (raw.protocol != Protocol::Http || pipeline != 1 || share < 1.0 || raw.reconnect)
    {
        let message = "wrk speaks HTTP, one request in flight per connection, on all of them, and keeps them";
        return Err(at.error(&raw.id, "load.client", message));
    }
    if *raw.cores.get_ref() == 0 {
        return Err(at.error(&raw.cores, "load.cores", "a program cannot run on 0 CPUs"));
    }
    let about = raw.about.clone().or_else(|| match (raw.reconnect, raw.arguments.as_slice()) {
        (true, _) => Some("a connection per request".to_owned()),
        (false, []) => raw.tree.as_ref().map(|tree| {
            let Tree { dataset, scale, cold } = tree.get_ref();
            let part = if *scale == 1.0 { String::new() } else { format!(" at {scale}") };
            format!("{dataset}{part}, {}", if *cold { "cold" } else { "warm" })
        }),
        (false, words) => Some(words.join(" ")),
    });
    let timeout_s = match &raw.timeout_s {
        Some(value) => at.seconds(value, "load.timeout_s", 0.01)?,
        None => 5.0,
    };
    Ok(connections
        .iter()
        .map(|&connections| Load {
            id: match raw.protocol {
                Protocol::Files => raw.id.get_ref().clone(),
                _ => format!("{}-{connections}", raw.id.get_ref()),
            },
            tree: raw.tree.as_ref().map(|tree| tree.get_ref().clone()),
            protocol: raw.protocol,
            connections,
            active: ((f64::from(connections) * share).round() as u32).clamp(1, connections),
            reconnect: raw.reconnect,
            pipeline,
            payload_bytes,
            path: path.clone(),
            body: raw.body.clone(),
            client: raw.client,
            timeout_s,
            arguments: raw.arguments.clone(),
            cores: *raw.cores.get_ref(),
            about: about.clone(),
        })
        .collect())
}

/// What a load of files copies, and that no other load does.
fn check_tree(raw: &RawLoad, at: &Place<'_>) -> Result<(), SuiteError> {
    match (raw.protocol, &raw.tree) {
        (Protocol::Files, None) => Err(at.error(&raw.id, "load.tree", "is missing: say what is copied")),
        (Protocol::Files, Some(tree)) => {
            let Tree { dataset, scale, .. } = tree.get_ref();
            if let Err(why) = dataset.parse::<Dataset>() {
                return Err(at.error(tree, "load.tree", why));
            }
            if !(*scale > 0.0 && *scale <= 1000.0) {
                return Err(at.error(
                    tree,
                    "load.tree",
                    format!("scale {scale} is not above 0, at most 1000"),
                ));
            }
            Ok(())
        }
        (_, Some(tree)) => Err(at.error(tree, "load.tree", "is for protocol \"files\" alone")),
        (_, None) => Ok(()),
    }
}

/// The first `{word}` that is not one of `known`. Braces around anything but lower-case letters are plain text,
/// so that JSON arguments pass.
fn unknown_placeholder<'a>(text: &'a str, known: &[&str]) -> Option<&'a str> {
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        rest = &rest[open..];
        let end = rest.find('}').map(|end| end + 1)?;
        let word = &rest[..end];
        let is_word = end > 2 && word[1..end - 1].bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        if is_word && !known.contains(&word) {
            return Some(word);
        }
        rest = &rest[1..];
    }
    None
}
