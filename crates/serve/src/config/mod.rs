//! The configuration of a server: read from TOML and checked as a whole before anything starts or changes.
//!
//! [`Config`] is what is left when nothing is wrong; folders are open, addresses are addresses. Reading is in
//! `ringroad_settings`; keys are described in [`keys`], routes read in [`route`], groups of servers in
//! [`upstream`].

mod acme;
mod app;
mod drivers;
mod http2;
mod hub;
mod keys;
mod listen;
mod log;
mod php;
mod route;
mod speaks;
mod tls;
mod upstream;
mod words;

pub use app::AppRoute;
pub use drivers::drivers;
pub use http2::SpeaksHttp2;
pub use hub::{HubRoute, HubTable};
pub use listen::{Listen, listen_at};
pub use log::{Format, LogTo, Only, SyslogTo, Target};
pub use php::{PhpRoute, PhpTo};
pub use ringroad_settings::{Mistake, SettingsError as ConfigError};
pub use route::{Kind, Proxy, Redirect, Respond, Route, Static, Try, Upload};
pub use speaks::{Speaks, UpstreamTls};
pub use tls::Tls;
pub use upstream::{Member, Timing, Upstream};

pub use crate::files::Root;
use ringroad_engine::DriverName;
use ringroad_engine::choose::Wish;
use ringroad_gate::client::{From, Trust};
use ringroad_gate::feature::{NamedTables, Reading, Scope};
use ringroad_gate::filter;
use ringroad_gate::media::MediaTypes;
use ringroad_gate::routes::Match;
use ringroad_gate::steps::{self, Steps};
use ringroad_gate::upstream::SpoolLimits;
use ringroad_gate::words::header_name;
use ringroad_http::{Deadlines, Limits, ListenAt};
use ringroad_settings::{Document, Section, markdown, markdown_of, value};
use ringroad_wire::{ANSWER_HEAD_BYTES_MAX, FIELDS_MAX};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The default address to listen on.
pub const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8080);

/// A valid configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file it was read from.
    pub file: Option<PathBuf>,
    /// Addresses, at least one.
    pub listen: Vec<Listen>,
    /// TLS settings of the addresses that use TLS.
    pub tls: Option<Tls>,
    /// Threads for each address; 0: as many as this process may run at a time.
    pub workers: usize,
    /// Other processes may listen on the same addresses.
    pub reuse_port: bool,
    /// Connections of all workers of all addresses together; by default as many as there are descriptors for,
    /// some left for files.
    pub connections_max: Option<usize>,
    /// Connections of one client's address.
    pub connections_per_client: Option<usize>,
    /// Connections to servers behind of all workers together; by default what clients leave, and at most
    /// half.
    pub upstream_connections_max: Option<usize>,
    /// The I/O driver.
    pub driver: Option<Wish>,
    /// Threads for each address by driver, instead of `workers` on one driver; empty: those.
    pub drivers: Vec<(DriverName, usize)>,
    /// Bytes of answers that all workers together may hold unsent.
    pub unsent_bytes_max: u64,
    /// How long a stop waits for requests in progress.
    pub drain: Duration,
    /// Steps of every request before its route is chosen.
    pub identify: Steps,
    /// Steps of routes that have no key of their own for them, and of answers that no route gives.
    pub defaults: Steps,
    /// Named tables of features.
    pub tables: NamedTables,
    /// Sizes.
    pub limits: Limits,
    /// Sizes of answers from servers behind.
    pub answer_limits: Limits,
    /// Times.
    pub deadlines: Deadlines,
    /// Bounds of HTTP/2, if the file has a table for them.
    pub http2: Option<SpeaksHttp2>,
    /// The access log, if there is one.
    pub log: Option<LogTo>,
    /// Files in memory.
    pub cache: Cache,
    /// The media types of files by their names.
    pub types: MediaTypes,
    /// Proxies that are trusted to report the client's address.
    pub client_ip: Trust,
    /// Bounds for a request or an answer that is kept between a slow client and an upstream server.
    pub buffer: SpoolLimits,
    /// The control socket.
    pub control: Option<PathBuf>,
    /// Applications.
    pub apps: Vec<ringroad_app::Settings>,
    /// Groups of upstream servers.
    pub upstreams: Vec<Arc<Upstream>>,
    /// Hubs of topics.
    pub hubs: Vec<Arc<HubTable>>,
    /// Routes in the order of the file.
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
    /// Makes a configuration with the files of a folder, and nothing else.
    ///
    /// # Errors
    /// It cannot be opened, or is no folder.
    pub fn of_folder(folder: &Path, autoindex: bool) -> io::Result<Config> {
        let root = Root::open(folder)?;
        let kind = Kind::Static(Static { autoindex, ..Static::of(Arc::new(root)) });
        Ok(Config {
            routes: vec![Arc::new(Route {
                when: Match::path("/"),
                name: None,
                logged: true,
                steps: Steps::default(),
                kind,
            })],
            ..Config::bare()
        })
    }

    /// Makes a configuration with one application for all paths, and nothing else. The scripts and files
    /// beside a PHP script that is executed over FastCGI are served as well.
    ///
    /// # Errors
    /// The script's folder cannot be opened.
    pub fn of_app(app: ringroad_app::Settings) -> io::Result<Config> {
        let mut config = Config::bare();
        let kind = match app.launch.script() {
            Some(file) if app.launch.protocol() == ringroad_app::Protocol::FastCgi => {
                Kind::Php(PhpRoute::of_app(file, &app.name, config.buffer.clone())?)
            }
            _ => Kind::App(AppRoute {
                app: app.name.clone(),
                buffer: Some(config.buffer.clone()),
                files: None,
                sendfile: Vec::new(),
                types: MediaTypes::default(),
            }),
        };
        config.routes = vec![Arc::new(Route {
            when: Match::path("/"),
            name: None,
            logged: true,
            steps: Steps::default(),
            kind,
        })];
        config.apps = vec![app];
        Ok(config)
    }

    /// Threads for each address.
    pub fn threads(&self) -> usize {
        let available = || std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
        if self.workers == 0 { available() } else { self.workers }
    }

    /// Returns the group of upstream servers of this name.
    pub(crate) fn upstream(&self, name: &str) -> Option<&Arc<Upstream>> {
        self.upstreams.iter().find(|upstream| upstream.name == name)
    }

    /// Returns the groups of upstream servers that routes use, for their answers or in a feature, each once.
    pub(crate) fn used_upstreams(&self) -> Vec<&Arc<Upstream>> {
        let mut used: Vec<&Arc<Upstream>> = Vec::new();
        for route in &self.routes {
            let own = match &route.kind {
                Kind::Proxy(proxy) => Some(&proxy.to),
                _ => None,
            };
            let of_features = route.steps.upstreams().filter_map(|(_, name)| self.upstream(name));
            for upstream in own.into_iter().chain(of_features) {
                if used.iter().all(|known| known.name != upstream.name) {
                    used.push(upstream);
                }
            }
        }
        used
    }

    /// Takes over the state of named tables and of routes with the same condition, which this one replaces.
    pub(crate) fn adopt(&self, before: &Config) {
        self.tables.adopt(&before.tables);
        for hub in &self.hubs {
            if let Some(before) = before.hubs.iter().find(|before| before.name == hub.name) {
                hub.adopt(before);
            }
        }
        self.identify.adopt(&before.identify);
        self.defaults.adopt(&before.defaults);
        let known: HashMap<_, _> = before.routes.iter().map(|route| (&route.when, route)).collect();
        for route in &self.routes {
            if let Some(before) = known.get(&route.when).filter(|before| !Arc::ptr_eq(before, route)) {
                route.steps.adopt(&before.steps);
            }
        }
    }

    /// Returns the limits of the protocol layer, which does not know routes: the longest body that any route
    /// takes.
    pub(crate) fn widest_limits(&self) -> Limits {
        let of_routes = self.routes.iter().filter_map(|route| route.steps.body_bytes());
        let body_bytes = of_routes.fold(self.limits.body_bytes, u64::max);
        Limits { body_bytes, ..self.limits.clone() }
    }

    fn bare() -> Config {
        Config {
            file: None,
            listen: vec![Listen::plain(ListenAt::Tcp(LISTEN))],
            tls: None,
            workers: 1,
            reuse_port: false,
            connections_max: None,
            connections_per_client: None,
            upstream_connections_max: None,
            driver: None,
            drivers: Vec::new(),
            unsent_bytes_max: 256 << 20,
            drain: Duration::from_secs(10),
            identify: Steps::default(),
            defaults: Steps::default(),
            tables: NamedTables::default(),
            // A server behind may know methods that this one does not; routes can narrow them (`methods`).
            limits: Limits { extension_methods: true, ..Limits::default() },
            // An application's lines (a Content-Security-Policy, cookies) may be longer than a client's.
            answer_limits: Limits::client(),
            deadlines: Deadlines::default(),
            http2: None,
            log: None,
            cache: Cache::default(),
            types: MediaTypes::default(),
            client_ip: Trust::default(),
            buffer: SpoolLimits::default(),
            control: None,
            apps: Vec::new(),
            upstreams: Vec::new(),
            hubs: Vec::new(),
            routes: Vec::new(),
        }
    }

    /// Reads a configuration.
    ///
    /// # Errors
    /// Every mistake in it.
    pub fn load(file: &Path) -> Result<Config, ConfigError> {
        Document::load(file)?.read(&environment, |top| Config::of(top, file))
    }

    /// Reads it once more: a pipe had its bytes once, and is not waited for.
    ///
    /// # Errors
    /// Every mistake in it, or it is no regular file.
    pub(crate) fn load_again(file: &Path) -> Result<Config, ConfigError> {
        ringroad_host::input::open(file).map_err(|why| ConfigError {
            file: file.to_owned(),
            mistakes: Vec::new(),
            unreadable: Some(why.to_string()),
        })?;
        Config::load(file)
    }

    /// Reads a text instead of the file's; relative paths in it begin at the folder of `file`.
    ///
    /// # Errors
    /// Every mistake in it.
    pub fn parse(text: &str, file: &Path) -> Result<Config, ConfigError> {
        Document::parse(text.to_owned(), file).read(&environment, |top| Config::of(top, file))
    }

    fn of(top: Section<'_>, file: &Path) -> Option<Config> {
        let mut config = Config { file: Some(file.to_owned()), ..Config::bare() };
        config.read(top);
        Some(config)
    }

    fn read(&mut self, mut top: Section<'_>) {
        top.describe(&keys::TOP);
        steps::describe_top(&mut top);
        set(&mut self.listen, listen::read(&top));
        let has_plain = self.listen.iter().any(|listen| !listen.tls);
        self.tls = top.table("tls").map(|section| tls::read(section, has_plain));
        if !top.has("tls") && self.listen.iter().any(|listen| listen.tls) {
            top.mistake("listen", "an address speaks TLS, and there are no certificates: expected [tls]");
        }
        set(&mut self.workers, top.read("workers", |value| value::count(value, 0, 1024).map(|n| n as usize)));
        set(&mut self.reuse_port, top.read("reuse_port", value::truth));
        self.connections_max =
            top.read("max_connections", |value| value::count(value, 1, 1 << 30).map(|count| count as usize));
        self.connections_per_client = top.read("max_connections_per_client", |value| {
            value::count(value, 1, 1 << 30).map(|count| count as usize)
        });
        self.upstream_connections_max = top.read("max_upstream_connections", |value| {
            value::count(value, 1, 1 << 30).map(|count| count as usize)
        });
        self.driver = top.read("driver", words::wish);
        self.drivers = drivers::read(&top);
        if !self.drivers.is_empty() {
            self.workers = self.drivers.iter().map(|(_, threads)| threads).sum();
        }
        set(&mut self.drain, top.read("drain", |value| value::span(value, Duration::ZERO)));
        self.tables = steps::named_tables(&top);
        let reading = Reading { tables: &self.tables, path: None, kind: None, methods: &[] };
        self.identify = Steps::of_top(&top, &reading, Scope::Top);
        self.defaults = Steps::of_top(&top, &reading, Scope::Everywhere);
        if let Some(section) = top.table("client_ip") {
            self.client_ip = read_client_ip(section);
        }
        if let Some(section) = top.table("limits") {
            self.read_limits(section);
        }
        if let Some(section) = top.table("timeouts") {
            self.read_timeouts(section);
        }
        // `false` turns it off everywhere; `true` is the default.
        if top.has("http2") && top.table_if("http2").is_none() {
            let speaks = top.read("http2", |value| {
                value::truth(value).map_err(|_| value::found("a table, true or false", value))
            });
            self.listen.iter_mut().for_each(|listen| listen.http2 &= speaks.unwrap_or(true));
        } else {
            self.http2 = top.table("http2").map(http2::read);
        }
        self.log = top.table("log").and_then(log::read);
        self.types = MediaTypes::read(&top, &MediaTypes::default());
        if let Some(mut section) = top.table("cache") {
            section.describe(&keys::CACHE);
            let most = u64::MAX;
            set(&mut self.cache.memory_bytes, section.read("memory", |value| value::bytes(value, 0, most)));
            set(&mut self.cache.file_bytes, section.read("file", |value| value::bytes(value, 0, 64 << 20)));
            section.finish();
        }
        if let Some(mut section) = top.table("buffer") {
            section.describe(&keys::BUFFER);
            set(&mut self.buffer.memory, section.read("memory", |value| value::bytes(value, 0, 64 << 20)));
            set(&mut self.buffer.file, section.read("file", |value| value::bytes(value, 0, u64::MAX)));
            let folder = section.read("folder", |value| section.existing_folder(&value::text(value)?));
            set(&mut self.buffer.folder, folder);
            section.finish();
        }
        for (name, section) in top.named("upstream") {
            self.upstreams.extend(upstream::read(&name, section).map(Arc::new));
        }
        self.control = top.read("control", |value| value::text(value).map(|text| top.path(&text)));
        for section in top.tables("app") {
            let app = app::read(section, &self.apps);
            self.apps.extend(app);
        }
        for (name, section) in top.named("hub") {
            let table = hub::read_table(&name, section, self);
            self.hubs.push(Arc::new(table));
        }
        let mut count = 0;
        for section in top.tables("route") {
            count += 1;
            if let Some(route) = route::read(section, self) {
                self.routes.push(Arc::new(route));
            }
        }
        for route in &self.routes {
            if let Kind::Metrics(Some(own)) = route.kind
                && own.port() != 0
                && self.listen.iter().any(|listen| listen.at == ListenAt::Tcp(own))
            {
                top.mistake("listen", format!("{own} is the metrics' own address as well"));
            }
        }
        if count == 0 {
            top.mistake("route", "missing: expected at least one [[route]], with `path` and `kind`");
        }
        top.finish();
    }

    fn read_limits(&mut self, mut section: Section<'_>) {
        section.describe(&keys::LIMITS);
        let limits = &mut self.limits;
        let line = |value: &_| value::bytes(value, 64, u64::from(u16::MAX)).map(|bytes| bytes as u16);
        set(&mut limits.start_line_bytes, section.read("request_line", line));
        set(&mut limits.field_line_bytes, section.read("header_line", line));
        let all =
            |most: usize| move |value: &_| value::bytes(value, 64, most as u64).map(|bytes| bytes as u32);
        set(&mut limits.header_bytes, section.read("headers", all(usize::from(u16::MAX))));
        let count = |value: &_| value::count(value, 1, FIELDS_MAX as u64).map(|n| n as u8);
        set(&mut limits.fields, section.read("header_count", count));
        let answers = &mut self.answer_limits;
        set(&mut answers.field_line_bytes, section.read("answer_header_line", line));
        set(&mut answers.header_bytes, section.read("answer_headers", all(ANSWER_HEAD_BYTES_MAX)));
        set(&mut answers.fields, section.read("answer_header_count", count));
        set(&mut limits.body_bytes, section.read("body", |value| value::bytes(value, 0, u64::MAX)));
        set(
            &mut self.deadlines.requests_per_connection,
            section.read("requests_per_connection", |value| {
                value::count(value, 1, u64::from(u32::MAX)).map(|n| n as u32)
            }),
        );
        set(
            &mut self.deadlines.pipeline_depth,
            section.read("pipeline", |value| value::count(value, 1, u64::from(u16::MAX)).map(|n| n as u16)),
        );
        set(
            &mut self.unsent_bytes_max,
            section.read("unsent", |value| value::bytes(value, 64 << 10, u64::MAX)),
        );
        set(&mut limits.extension_methods, section.read("extension_methods", value::truth));
        section.finish();
    }

    fn read_timeouts(&mut self, mut section: Section<'_>) {
        section.describe(&keys::TIMEOUTS);
        let second = |value: &_| value::span(value, Duration::from_secs(1));
        let deadlines = &mut self.deadlines;
        set(&mut deadlines.head, section.read("header", second));
        set(&mut deadlines.body_grace, section.read("body_grace", second));
        set(
            &mut deadlines.body_bytes_per_second_min,
            section.read("body_rate", |value| {
                value::bytes(value, 0, u64::from(u32::MAX)).map(|bytes| bytes as u32)
            }),
        );
        set(&mut deadlines.send_stall, section.read("send", second));
        set(
            &mut deadlines.send_bytes_per_second_min,
            section.read("send_rate", |value| {
                value::bytes(value, 0, u64::from(u32::MAX)).map(|bytes| bytes as u32)
            }),
        );
        set(&mut deadlines.linger, section.read("linger", |value| value::span(value, Duration::ZERO)));
        set(&mut deadlines.keep_alive, section.read("keep_alive", second));
        set(
            &mut deadlines.half_close,
            section.read("half_close", |value| value::span(value, Duration::ZERO)),
        );
        section.finish();
    }
}

/// Strings of a configuration read the environment (EDGE.md, contract of the command line).
fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Returns the reference of every key, in Markdown: `docs/CONFIG.md`.
pub fn reference() -> String {
    let head = "# Configuration\n\nEvery key of `ringroad serve --config FILE`. This page is made from the program's own \
        table of keys.\n\nSizes: `65536`, `\"64K\"`, `\"8M\"`, `\"2G\"`. Times: `10` (seconds), `\"10s\"`, `\"250ms\"`, `\"5m\"`, \
        `\"1h\"`. Rates: `\"50/s\"`, `\"1000/m\"`. Relative paths begin at the folder of the file that they are written \
        in. `$NAME` and `${NAME:-default}` in strings read the environment, `$$` is one `$`.\n\n";
    let mut page = format!("{head}{}", markdown(keys::SERVER_TABLES));
    let of = |wanted: fn(Scope) -> bool| filter::ALL.iter().filter(move |one| wanted(one.scope));
    let top = of(|scope| scope != Scope::Route).map(|one| &one.key);
    page += &markdown_of(
        "top of the file: steps",
        "Steps of every request. Those that a route may have too are the default of routes without that key; there \
        `false` turns one off.",
        top,
    );
    page += &markdown(keys::ROUTE_TABLES);
    let route = of(|scope| scope != Scope::Top).map(|one| &one.key);
    page += &markdown_of(
        "[[route]]: steps",
        "What a request and its answer pass on the way to any kind of route. `false` turns off what the top of the file \
        sets for all.",
        route,
    );
    for declaration in filter::ALL {
        page += &markdown(declaration.tables);
    }
    page
}

fn read_client_ip(mut section: Section<'_>) -> Trust {
    section.describe(&keys::CLIENT_IP);
    let networks = |value: &_| value::some(value, "networks of proxies", value::network);
    let proxies = section.require("proxies", "networks of proxies, as [\"10.0.0.0/8\"]", networks);
    let from = section.read("from", |value| {
        Ok(match value::text(value)?.to_ascii_lowercase().as_str() {
            "x-forwarded-for" => From::XForwardedFor,
            "forwarded" => From::Forwarded,
            _ => From::Line(header_name(value)?),
        })
    });
    section.finish();
    Trust { proxies: proxies.unwrap_or_default(), from: from.unwrap_or_default() }
}

/// Takes what was read; a default stays where nothing was said.
fn set<T>(place: &mut T, read: Option<T>) {
    if let Some(read) = read {
        *place = read;
    }
}
