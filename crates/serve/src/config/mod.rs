//! What a server is to be: read from TOML and checked whole, before anything is started or changed.
//!
//! [`Config`] is what is left when nothing is wrong; folders are open, addresses are addresses. Reading is in
//! [`reader`], the values' forms in [`words`], routes in [`route`].

mod reader;
mod route;
mod words;

pub use reader::{ConfigError, Mistake};
pub use route::{Kind, Proxy, Redirect, Respond, Route, Static, Upstream};

pub use crate::files::Root;
use reader::{Mistakes, Section};
use ringroad_engine::choose::Wish;
use ringroad_http::{Deadlines, Limits};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Where a server listens if nobody says.
pub const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8080);

/// A server to be.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file it was read from.
    pub file: Option<PathBuf>,
    /// Addresses, at least one.
    pub listen: Vec<SocketAddr>,
    /// Threads for each address; 0: as many as this process may run at a time.
    pub workers: usize,
    /// Other processes may listen on the same addresses.
    pub reuse_port: bool,
    /// Connections of all workers of all addresses together; by default as many as there are descriptors for, some left
    /// for files.
    pub connections_max: Option<usize>,
    /// The kernel's interface.
    pub driver: Option<Wish>,
    /// How long a stop waits for what has begun.
    pub drain: Duration,
    /// The header line that tells a request's id to the client.
    pub request_id: Option<String>,
    /// Sizes.
    pub limits: Limits,
    /// Times.
    pub deadlines: Deadlines,
    /// The access log, if there is one.
    pub log: Option<LogTo>,
    /// Files in memory.
    pub cache: Cache,
    /// What is answered where, in the order of the file.
    pub routes: Vec<Arc<Route>>,
}

/// How many files are kept in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// All together, of all workers.
    pub memory_bytes: u64,
    /// The largest one.
    pub file_bytes: u64,
}

impl Default for Cache {
    fn default() -> Cache {
        Cache { memory_bytes: 64 << 20, file_bytes: 256 << 10 }
    }
}

impl Config {
    /// The files of a folder, and nothing else.
    ///
    /// # Errors
    /// It cannot be opened, or is no folder.
    pub fn of_folder(folder: &Path, autoindex: bool) -> io::Result<Config> {
        let root = Root::open(folder)?;
        let kind = Kind::Static(Static { autoindex, ..Static::of(Arc::new(root)) });
        Ok(Config {
            routes: vec![Arc::new(Route { path: "/".to_owned(), headers: Vec::new(), kind })],
            ..Config::bare()
        })
    }

    /// Threads for each address.
    pub fn threads(&self) -> usize {
        let available = || std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
        if self.workers == 0 { available() } else { self.workers }
    }

    fn bare() -> Config {
        Config {
            file: None,
            listen: vec![LISTEN],
            workers: 1,
            reuse_port: false,
            connections_max: None,
            driver: None,
            drain: Duration::from_secs(10),
            request_id: None,
            limits: Limits::default(),
            deadlines: Deadlines::default(),
            log: None,
            cache: Cache::default(),
            routes: Vec::new(),
        }
    }

    /// Reads a configuration.
    ///
    /// # Errors
    /// Every mistake that is in it.
    pub fn load(file: &Path) -> Result<Config, ConfigError> {
        match std::fs::read_to_string(file) {
            Ok(text) => Config::parse(&text, file),
            Err(why) => {
                let unreadable = Some(why.to_string());
                Err(ConfigError { file: file.to_owned(), mistakes: Vec::new(), unreadable })
            }
        }
    }

    /// The same of a text; relative paths in it begin at `file`'s folder.
    ///
    /// # Errors
    /// Every mistake that is in it.
    pub fn parse(text: &str, file: &Path) -> Result<Config, ConfigError> {
        let mistakes = Mistakes::new(text);
        let config = match toml::de::DeTable::parse(text) {
            Ok(table) => {
                let mut config = Config { file: Some(file.to_owned()), ..Config::bare() };
                config
                    .read(Section::root(table.get_ref(), &mistakes), file.parent().unwrap_or(Path::new("")));
                config
            }
            Err(why) => {
                let at = why.span().map_or(0, |span| span.start);
                let what = why.message().lines().collect::<Vec<_>>().join(", ");
                mistakes.note(at, "", format!("not TOML: {what}"));
                Config::bare()
            }
        };
        if mistakes.is_empty() {
            return Ok(config);
        }
        Err(ConfigError { file: file.to_owned(), mistakes: mistakes.into_sorted(), unreadable: None })
    }

    fn read(&mut self, mut top: Section<'_, '_>, folder: &Path) {
        let listen = |value: &_| words::some(value, "addresses to listen on", words::address);
        if let Some(listen) = top.read("listen", listen) {
            let twice =
                listen.iter().enumerate().find(|(at, one)| listen.iter().take(*at).any(|o| o == *one));
            if let Some((_, twice)) = twice.filter(|(_, address)| address.port() != 0) {
                top.mistake("listen", format!("{twice} is there twice"));
            }
            self.listen = listen;
        }
        set(&mut self.workers, top.read("workers", |value| words::count(value, 0, 1024).map(|n| n as usize)));
        set(&mut self.reuse_port, top.read("reuse_port", words::truth));
        self.connections_max =
            top.read("max_connections", |value| words::count(value, 1, 1 << 30).map(|count| count as usize));
        self.driver = top.read("driver", words::wish);
        set(&mut self.drain, top.read("drain", |value| words::span(value, Duration::ZERO)));
        self.request_id = top.read("request_id", |value| {
            let name = words::text(value)?;
            let line = ringroad_http::FieldBlock::of([(name.as_str(), "0")]);
            line.map(|_| name).map_err(|why| format!("expected the name of a header line: {why}"))
        });
        if let Some(section) = top.table("limits") {
            self.read_limits(section);
        }
        if let Some(section) = top.table("timeouts") {
            self.read_timeouts(section);
        }
        if let Some(mut section) = top.table("log") {
            let target = section.require("file", "a file, or \"-\" for standard output", |value| {
                let name = words::text(value)?;
                Ok(if name == "-" { Target::Stdout } else { Target::File(folder.join(name)) })
            });
            let forms = [("combined", Format::Combined), ("json", Format::Json)];
            let format = section.read("format", |value| words::one_of(value, &forms));
            self.log = target.map(|target| LogTo { target, format: format.unwrap_or(Format::Combined) });
            section.finish();
        }
        if let Some(mut section) = top.table("cache") {
            let most = u64::MAX;
            set(&mut self.cache.memory_bytes, section.read("memory", |value| words::bytes(value, 0, most)));
            set(&mut self.cache.file_bytes, section.read("file", |value| words::bytes(value, 0, 64 << 20)));
            section.finish();
        }
        let mut count = 0;
        for section in top.tables("route") {
            count += 1;
            if let Some(route) = route::read(section, folder, &self.routes) {
                self.routes.push(Arc::new(route));
            }
        }
        for route in &self.routes {
            if let Kind::Metrics(Some(own)) = route.kind
                && own.port() != 0
                && self.listen.contains(&own)
            {
                top.mistake("listen", format!("{own} is the metrics' own address as well"));
            }
        }
        if count == 0 {
            top.mistake("route", "missing: expected at least one [[route]], with `path` and `kind`");
        }
        top.finish();
    }

    fn read_limits(&mut self, mut section: Section<'_, '_>) {
        let limits = &mut self.limits;
        let line = |value: &_| words::bytes(value, 64, u64::from(u16::MAX)).map(|bytes| bytes as u16);
        set(&mut limits.start_line_bytes, section.read("request_line", line));
        set(&mut limits.field_line_bytes, section.read("header_line", line));
        set(&mut limits.header_bytes, section.read("headers", line));
        let most = ringroad_wire::FIELDS_MAX as u64;
        set(
            &mut limits.fields,
            section.read("header_count", |value| words::count(value, 1, most).map(|n| n as u8)),
        );
        set(&mut limits.body_bytes, section.read("body", |value| words::bytes(value, 0, u64::MAX)));
        set(
            &mut self.deadlines.requests_per_connection,
            section.read("requests_per_connection", |value| {
                words::count(value, 1, u64::from(u32::MAX)).map(|n| n as u32)
            }),
        );
        set(
            &mut self.deadlines.pipeline_depth,
            section.read("pipeline", |value| words::count(value, 1, u64::from(u16::MAX)).map(|n| n as u16)),
        );
        section.finish();
    }

    fn read_timeouts(&mut self, mut section: Section<'_, '_>) {
        let second = |value: &_| words::span(value, Duration::from_secs(1));
        let deadlines = &mut self.deadlines;
        set(&mut deadlines.head, section.read("header", second));
        set(&mut deadlines.body_grace, section.read("body_grace", second));
        set(
            &mut deadlines.body_bytes_per_second_min,
            section.read("body_rate", |value| {
                words::bytes(value, 0, u64::from(u32::MAX)).map(|bytes| bytes as u32)
            }),
        );
        set(&mut deadlines.send_stall, section.read("send", second));
        set(&mut deadlines.keep_alive, section.read("keep_alive", second));
        section.finish();
    }
}

/// Takes what was read; a default stays where nothing was said.
fn set<T>(place: &mut T, read: Option<T>) {
    if let Some(read) = read {
        *place = read;
    }
}

/// The access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogTo {
    /// Where to.
    pub target: Target,
    /// Its lines' form.
    pub format: Format,
}

/// Where a log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Standard output: `-`.
    Stdout,
    /// Behind what is in this file.
    File(PathBuf),
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::Stdout => f.write_str("standard output"),
            Target::File(path) => path.display().fmt(f),
        }
    }
}

/// The form of a log's lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// As Apache and nginx write it.
    Combined,
    /// An object for each request.
    Json,
}
