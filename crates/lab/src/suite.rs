//! Suites: what to start, how to know it is ready, which load to put on it, how often, what to keep. Data
//! only.
//!
//! A suite is a TOML file; every mistake is answered with file, line and key. A `[[server]]` with `each`
//! stands for one server per word, `{each}` being the word; a `[[load]]` stands for one load per connection
//! count. Placeholders that only a run knows (`{port}`, `{ringroad}`, …) stay in place here: `program` fills
//! them. [`built_in`] holds the suites that are part of the program.
//!
//! Reading the text, and every rule about it, is in `parse.rs`. Start at [`Suite`].
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod built_in;
mod parse;
mod url;

pub use url::Url;

use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// What a program may take to become ready unless the suite says otherwise, seconds.
const READY_TIMEOUT_S: f64 = 10.0;
/// What a program that a user adds may take: it may be of any kind, and one that cannot start mostly ends.
const ADDED_READY_TIMEOUT_S: f64 = 60.0;
/// The word of a command that stands for the words of a load.
pub(crate) const ARGUMENTS: &str = "{arguments}";
/// What may stand in the command of a server that a user adds.
const OF_A_SERVER: [&str; 5] = ["{ringroad}", "{protocol}", "{port}", "{addr}", ARGUMENTS];
/// What may stand in the command of a copier that a user adds.
const OF_A_COPIER: [&str; 3] = ["{ringroad}", "{source}", "{target}"];

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
    /// Of each block, those under one load run side by side and take turns of so many seconds; absent, one
    /// after the other.
    #[serde(default)]
    pub turn_s: Option<f64>,
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
    /// The user added it to the suite.
    #[serde(default)]
    pub added: bool,
    /// It runs already, here: it is neither started nor stopped.
    #[serde(default)]
    pub url: Option<Url>,
}

impl Server {
    /// Makes a server that already runs. It answers with a page of its own, over HTTP.
    pub fn running(id: String, url: Url) -> Server {
        Server {
            id,
            driver: None,
            command: vec![url.to_string()],
            ready: Ready::Connect,
            max_connections: None,
            max_connections_reason: None,
            protocols: vec![Protocol::Http],
            totals: false,
            env: BTreeMap::new(),
            cwd: None,
            ready_timeout_s: READY_TIMEOUT_S,
            hint: None,
            own_page: true,
            added: true,
            url: Some(url),
        }
    }

    /// Returns whether it is not known how long it takes to start and to answer: the user added it.
    pub fn is_unknown(&self) -> bool {
        self.added
    }

    /// Returns whether it can be told what a load wants of its program.
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
    /// It serves no connection: it does its work and ends.
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

/// The client that puts the load on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Client {
    /// The load generator, which the caller's program has.
    Load,
    /// The small one: [`crate::client`].
    Small,
    /// `wrk`, an outside program, to check ours against.
    Wrk,
}

/// Requests in flight on one connection, for the load generator.
const LOAD_PIPELINE_MAX: u32 = 256;
/// The load generator has every number of requests that go out together laid out behind each other: so many
/// bytes at most.
const LOAD_LAID_OUT_MAX: u64 = 16 << 20;

impl Client {
    /// Returns it as suites and the command line have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Client::Load => "load",
            Client::Small => "small",
            Client::Wrk => "wrk",
        }
    }
}

impl std::str::FromStr for Client {
    type Err = String;

    /// Returns the two clients of this program; `wrk` has limits of its own and is for suites.
    fn from_str(word: &str) -> Result<Client, String> {
        match word {
            "load" => Ok(Client::Load),
            "small" => Ok(Client::Small),
            _ => Err("load or small is expected".to_owned()),
        }
    }
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
    /// The client that puts it on.
    pub client: Client,
    /// How long an answer may take before it counts as missing, seconds.
    pub timeout_s: f64,
    /// Words for the program's command, where it says `{arguments}`: `--work-us 20`. Without that it is
    /// skipped.
    pub arguments: Vec<String>,
    /// CPUs the program must have for itself; with fewer it is skipped.
    pub cores: u32,
    /// What sets it apart besides its numbers, in words.
    pub about: Option<String>,
}

impl Load {
    /// Returns how many bytes a message takes that is laid out once, twice, … as often as are in flight, all
    /// together: what the load generator keeps.
    pub fn laid_out_bytes(&self) -> u64 {
        let depth = u64::from(self.pipeline);
        depth * (depth + 1) / 2 * u64::from(self.payload_bytes)
    }

    /// Returns whether the load generator can put it on. What it cannot is the small client's.
    pub fn is_for_load(&self) -> bool {
        self.tree.is_none()
            && self.pipeline <= LOAD_PIPELINE_MAX
            && self.laid_out_bytes() <= LOAD_LAID_OUT_MAX
    }
}

impl Suite {
    /// Returns the built-in suite: every model, echo and HTTP, 64 connections.
    ///
    /// # Errors
    /// None in a released build: a test parses the embedded file.
    pub fn quick() -> Result<Suite, Error> {
        Suite::load("quick")
    }

    /// Returns a suite by name or path: a built-in one, a `.toml` file, or `NAME` for `benches/NAME.toml` or
    /// `NAME.toml` here.
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

    /// Returns a suite from its text. `file` is what errors call it.
    ///
    /// # Errors
    /// [`Error::Suite`] with line and key.
    pub fn parse(text: &str, file: &str, name: &str, folder: Option<PathBuf>) -> Result<Suite, Error> {
        Ok(parse::suite(text, file, name, folder)?)
    }

    /// Adds a program of the user's: `NAME=COMMAND`, words as a shell would part them, with `{port}` or
    /// `{addr}` where the address goes. It speaks HTTP, or what the load speaks where the command says
    /// `{protocol}`, and may answer with any page. With `{source}` and `{target}` it is a copier. A relative
    /// path is from the folder this process is in.
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
        let says = |what: &str| command.iter().any(|word| word.contains(what));
        let (copies, known) = match says("{source}") || says("{target}") {
            true => (true, OF_A_COPIER.as_slice()),
            false => (false, OF_A_SERVER.as_slice()),
        };
        for word in &command {
            if let Some(unknown) = parse::unknown_placeholder(word, known) {
                return Err(wrong(format!("`{unknown}` is unknown; there are: {}", known.join(" "))));
            }
        }
        if copies && !(says("{source}") && says("{target}")) {
            return Err(wrong("a copier needs both {source} and {target} in its command".to_owned()));
        }
        if !copies && !says("{port}") && !says("{addr}") {
            return Err(wrong(
                "nothing tells it where to listen: put {port} or {addr} in the command".to_owned(),
            ));
        }
        let protocols = match copies {
            true => vec![Protocol::Files],
            false if says("{protocol}") => vec![Protocol::Echo, Protocol::Http],
            false => vec![Protocol::Http],
        };
        let ready = if copies { Ready::End } else { Ready::Connect };
        if let Some(first) = command.first_mut().filter(|first| first.contains('/')) {
            let path = std::path::absolute(&*first).map_err(|error| wrong(error.to_string()))?;
            *first = path.to_string_lossy().into_owned();
        }
        self.servers.push(Server {
            id: id.to_owned(),
            driver: None,
            command,
            ready,
            max_connections: None,
            max_connections_reason: None,
            protocols,
            totals: false,
            env: BTreeMap::new(),
            cwd: None,
            ready_timeout_s: ADDED_READY_TIMEOUT_S,
            hint: None,
            own_page: true,
            added: true,
            url: None,
        });
        // The budget is for the suite's own programs.
        self.budget_s = None;
        Ok(())
    }

    /// Servers that already run, side by side: `NAME=URL` each, the first the baseline. They are put under
    /// load one after the other in ten interleaved blocks, the baseline twice, since a turn must be long
    /// beside a latency that is not known here.
    ///
    /// # Errors
    /// [`Error::Url`] says what is wrong with one of the texts.
    pub fn of_urls(texts: &[String]) -> Result<Suite, Error> {
        let mut servers: Vec<Server> = Vec::new();
        for text in texts {
            let wrong = |how: String| Error::Url { text: text.clone(), how };
            let is_named = text.split_once('=').filter(|(id, _)| !id.contains(['/', ':']));
            let (id, url) = match is_named {
                Some((id, url)) => (id.to_owned(), url),
                None => (((b'a' + (servers.len() % 26) as u8) as char).to_string(), text.as_str()),
            };
            if id.is_empty() || id.chars().any(char::is_control) {
                return Err(wrong("the name before `=` is empty".to_owned()));
            }
            if servers.iter().any(|server| server.id == id) {
                return Err(wrong(format!("the name {id} is taken: give another one, NAME=URL")));
            }
            servers.push(Server::running(id, url.parse().map_err(wrong)?));
        }
        let is_tls = |server: &Server| server.url.as_ref().is_some_and(|url| url.https);
        let text = include_str!("../suites/urls.toml");
        let mut suite = Suite::parse(text, "urls", "urls", None)?;
        suite.baseline = servers.first().map(|server| server.id.clone());
        if servers.iter().any(is_tls) {
            for load in &mut suite.loads {
                load.about = Some("HTTPS where the URL says so".to_owned());
            }
        }
        suite.servers = servers;
        Ok(suite)
    }

    /// Has every HTTP load ask for this path. The servers' pages may differ from the suite's then.
    ///
    /// # Errors
    /// [`Error::Option`]: the path cannot be sent, or there is no HTTP load.
    pub fn set_path(&mut self, path: &str) -> Result<(), Error> {
        let wrong =
            |how: &str| Error::Option { option: "--path", text: path.to_owned(), how: how.to_owned() };
        if !path.starts_with('/') || path.bytes().any(|byte| !(0x21..=0x7e).contains(&byte)) {
            return Err(wrong("a path begins with / and is printable ASCII without blanks"));
        }
        let mut any = false;
        for load in self.loads.iter_mut().filter(|load| load.protocol == Protocol::Http) {
            path.clone_into(&mut load.path);
            load.body = None;
            any = true;
        }
        if any { Ok(()) } else { Err(wrong("no load of this suite speaks HTTP")) }
    }

    /// Has every load make these numbers of connections, one load for each.
    ///
    /// # Errors
    /// [`Error::Option`]: a number is out of range, or the suite copies files.
    pub fn set_connections(&mut self, counts: &[u32]) -> Result<(), Error> {
        let text: Vec<String> = counts.iter().map(ToString::to_string).collect();
        let wrong =
            |how: &str| Error::Option { option: "--connections", text: text.join(","), how: how.to_owned() };
        if let Some(_out) = counts.iter().find(|count| !(1..=parse::CONNECTIONS_MAX).contains(*count)) {
            return Err(wrong("from 1 to 1,000,000"));
        }
        if self.loads.iter().all(|load| load.tree.is_some()) {
            return Err(wrong("copying files makes no connections"));
        }
        let mut loads: Vec<Load> = Vec::new();
        for load in &self.loads {
            if load.tree.is_some() {
                loads.push(load.clone());
                continue;
            }
            let share = f64::from(load.active) / f64::from(load.connections);
            let name = load.id.strip_suffix(&format!("-{}", load.connections)).unwrap_or(&load.id);
            for &connections in counts {
                let id = format!("{name}-{connections}");
                if loads.iter().any(|known| known.id == id) {
                    continue;
                }
                let active = ((f64::from(connections) * share).round() as u32).clamp(1, connections);
                loads.push(Load { id, connections, active, ..load.clone() });
            }
        }
        self.loads = loads;
        Ok(())
    }

    /// Returns how long one run takes, seconds: warm-up, window, system-call window, and starting and
    /// stopping.
    pub fn run_estimate_s(&self) -> f64 {
        /// Measured: start, connect, drain and stop of a small server take 60 to 120 ms.
        const AROUND_S: f64 = 0.1;
        /// Measured: from one turn to the next, with what was on its way coming first.
        const BETWEEN_S: f64 = 0.002;
        let syscalls_s = if self.keep.contains(&Keep::Syscalls) { self.syscalls_s } else { 0.0 };
        let between_s = self.turn_s.map_or(0.0, |turn_s| BETWEEN_S * self.duration_s / turn_s);
        self.warmup_s + self.duration_s + between_s + syscalls_s + AROUND_S
    }
}
