//! A running server: started from a configuration, changed by another, stopped.
//!
//! Each address has workers of its own, in a group for each driver. A reload changes the answers: routes,
//! files, the log. It also adds and removes addresses. A listener that stays is not touched, so no connection
//! attempt is refused. Start at [`Service::start`]; [`crews`] has the drivers, and moves workers between
//! them.

mod addresses;
mod crews;

pub use crews::{Crew, Move, MoveError};

use crate::acme::{self, Answers};
use crate::config::{Config, ConfigError, HubTable, Kind, Listen, Member, Tls, Upstream};
use crate::control::Control;
use crate::event::{Event, EventSink, Refreshed, ServerChange};
use crate::log::{self, Log};
use crate::metrics::{Counts, RouteList};
use crate::tending::Tender;
use crate::worker::{self, Audience, Plan, Station, Worker};
use addresses::{Reach, part_families};
use ringroad_acme::{Keeper, Progress};
use ringroad_app::Pool;
use ringroad_engine::choose::{Choice, Wish};
use ringroad_engine::{Builder, DriverName};
use ringroad_gate::health;
use ringroad_gate::upstream::{Group, Room, Server};
use ringroad_http::{
    Bound, Client, Counters, Handle, Http2, ListenAt, Listens, OnClientGone, PerAddress, Refused,
    Server as HttpServer, ServerError, Stats,
};
use ringroad_tls::{CertificateInfo, Pair, PairFiles, Place, Server as TlsServer, TlsError};
use rustix::io::Errno;
use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// Where a configuration comes from, each time it is read.
#[derive(Clone, Debug)]
pub enum Source {
    /// A file.
    File(PathBuf),
    /// A folder with files to serve.
    Folder {
        /// The folder.
        path: PathBuf,
        /// Folders without an index file are listed.
        autoindex: bool,
    },
    /// An application, which answers every request.
    App(Box<ringroad_app::Settings>),
}

/// Settings of the command line, which take precedence over a file.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// Where to listen, and nowhere else.
    pub listen: Option<ListenAt>,
    /// Addresses without a setting of their own speak TLS with this certificate.
    pub tls: Option<OwnTls>,
    /// Threads.
    pub workers: Option<usize>,
    /// Other processes may listen there too.
    pub reuse_port: bool,
    /// The I/O driver.
    pub driver: Option<Wish>,
    /// Threads for each address by driver, instead of `workers` and `driver`; empty: nothing is said.
    pub drivers: Vec<(DriverName, usize)>,
    /// Requests are logged to standard output, where the file has no log.
    pub log: Option<crate::config::LogTo>,
    /// The control socket.
    pub control: Option<PathBuf>,
}

/// A certificate from the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnTls {
    /// These files.
    Files(PairFiles),
    /// A certificate that is made at start and that no other program trusts.
    Dev,
}

/// The reason why a server does not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration is wrong.
    Config(ConfigError),
    /// The folder cannot be served.
    Folder(PathBuf, std::io::Error),
    /// The certificates cannot be used.
    Tls(TlsError),
    /// No certificate can be made.
    Certificate(String),
    /// The log cannot be opened.
    Log(String, std::io::Error),
    /// An application cannot be started.
    App(String, std::io::Error),
    /// The control socket cannot be had.
    Control(PathBuf, std::io::Error),
    /// The command line contradicts the configuration.
    Overrides(String),
    /// The state folder of ACME cannot be used.
    Acme(ringroad_acme::StateError),
    /// No driver, or an address that is not to be had.
    Server(ServerError),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Config(why) => write!(f, "{why}"),
            StartError::Folder(path, why) => write!(f, "serve, on {}: {why}", path.display()),
            StartError::Tls(why) => write!(f, "{why}"),
            StartError::Certificate(why) | StartError::Overrides(why) => f.write_str(why),
            StartError::Log(target, why) => write!(f, "access log, on {target}: {why}"),
            StartError::App(name, why) => write!(f, "start, on application {name}: {why}"),
            StartError::Control(path, why) => {
                write!(f, "listen, on control socket {}: {why}", path.display())
            }
            StartError::Acme(why) => write!(f, "{why}"),
            StartError::Server(why) => write!(f, "{why}"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            StartError::Certificate(_) | StartError::Overrides(_) => None,
            StartError::Config(why) => Some(why),
            StartError::Folder(_, why)
            | StartError::Log(_, why)
            | StartError::App(_, why)
            | StartError::Control(_, why) => Some(why),
            StartError::Tls(why) => Some(why),
            StartError::Acme(why) => Some(why),
            StartError::Server(why) => Some(why),
        }
    }
}

impl From<ServerError> for StartError {
    fn from(why: ServerError) -> StartError {
        StartError::Server(why)
    }
}

/// Reads the configuration, with what the command line says.
///
/// # Errors
/// It is wrong, or cannot be read; the access log cannot be written.
pub fn load(source: &Source, overrides: &Overrides) -> Result<Config, StartError> {
    let config = read(source, overrides, Config::load)?;
    if let Some(tls) = config.tls.as_ref().filter(|tls| !tls.dev) {
        TlsServer::new(tls.settings.clone(), Vec::new()).map_err(StartError::Tls)?;
    }
    if let Some(log) = &config.log {
        log::check(&log.target).map_err(|why| StartError::Log(log.target.to_string(), why))?;
    }
    Ok(config)
}

/// Does the same without a look at the certificates: a server that runs has some, and keeps them where new
/// ones cannot be used.
fn read(
    source: &Source,
    overrides: &Overrides,
    load: fn(&Path) -> Result<Config, ConfigError>,
) -> Result<Config, StartError> {
    let mut config = match source {
        Source::File(path) => load(path).map_err(StartError::Config)?,
        Source::App(app) => Config::of_app((**app).clone()).map_err(|why| {
            StartError::Folder(app.launch.script().map(PathBuf::from).unwrap_or_default(), why)
        })?,
        Source::Folder { path, autoindex } => {
            Config::of_folder(path, *autoindex).map_err(|why| StartError::Folder(path.clone(), why))?
        }
    };
    if let Some(control) = &overrides.control {
        config.control = Some(control.clone());
    }
    if let Some(at) = &overrides.listen {
        let tls = config.listen.iter().all(|listen| listen.tls);
        let http2 = config.listen.iter().all(|listen| listen.http2);
        config.listen = vec![Listen { tls, http2, ..Listen::plain(at.clone()) }];
    }
    if let Some(own) = &overrides.tls {
        let tls = match own {
            OwnTls::Files(files) => Tls::of(vec![Place::Pair(files.clone())]),
            OwnTls::Dev => Tls { dev: true, ..Tls::of(Vec::new()) },
        };
        config.tls = Some(tls);
        for listen in config.listen.iter_mut().filter(|listen| listen.redirect_https.is_none()) {
            listen.tls = true;
        }
    }
    crews::override_threads(&mut config, overrides)?;
    config.reuse_port |= overrides.reuse_port;
    config.log = config.log.or_else(|| overrides.log.clone());
    Ok(config)
}

/// State that is shared by the workers of all addresses.
pub(crate) struct Shared {
    plan: Mutex<Arc<Plan>>,
    /// Increased after each new plan is stored.
    pub(crate) generation: AtomicU64,
    pub(crate) stopping: AtomicBool,
    pub(crate) members: Mutex<Vec<Arc<Counts>>>,
    /// Counts of routes with a name.
    pub(crate) routes: RouteList,
    /// Statistics of each present and past address, so that no count ever decreases.
    pub(crate) stats: Mutex<Vec<ListenerStats>>,
    /// The driver of work beside requests, and of addresses for metrics alone.
    pub(crate) choice: Choice,
    /// The drivers of workers of the public addresses.
    pub(crate) crews: Mutex<Vec<Crew>>,
    pub(crate) reloads: Reloads,
    /// Connections of one client's address, on all addresses.
    pub(crate) per_address: Arc<PerAddress>,
    /// Does work beside requests.
    tender: Tender,
    pub(crate) started: SystemTime,
    /// Where the clock of decisions begins.
    pub(crate) epoch: Instant,
    /// Certificates, where any address speaks TLS.
    tls: Mutex<Option<Arc<TlsServer>>>,
    /// Answers to challenges of certificate authorities.
    pub(crate) challenges: Answers,
    /// What becomes of the certificates that are obtained from an authority.
    acme: Mutex<Option<Arc<Progress>>>,
    pub(crate) events: EventSink,
}

/// The counts of one set of workers on one address.
#[derive(Clone)]
pub(crate) struct ListenerStats {
    pub(crate) name: String,
    pub(crate) driver: DriverName,
    /// Not of an address for metrics alone.
    pub(crate) is_public: bool,
    live: Counted,
}

/// Workers that are there are asked; of those that have ended only numbers are kept, no descriptor of theirs.
#[derive(Clone)]
enum Counted {
    Live(u64, Stats),
    Ended(Box<Counters>),
}

impl ListenerStats {
    pub(crate) fn counters(&self) -> Counters {
        match &self.live {
            Counted::Live(_, stats) => stats.counters(),
            Counted::Ended(counters) => (**counters).clone(),
        }
    }
}

/// Times the configuration was read again.
#[derive(Debug, Default)]
pub(crate) struct Reloads {
    pub(crate) taken: AtomicU64,
    pub(crate) refused: AtomicU64,
}

impl Shared {
    pub(crate) fn plan(&self) -> Arc<Plan> {
        Arc::clone(&self.plan.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Begins the work beside requests that the plan in force needs.
    fn tend(&self) {
        let plan = self.plan();
        let used = plan.config.used_upstreams();
        let groups = plan.groups.iter().filter_map(|group| {
            let upstream = used.iter().find(|upstream| upstream.name == group.name())?;
            let tls = upstream.speaks.tls.as_ref().map(|tls| tls.http1.clone());
            let secure = tls.is_some();
            let make = move || match tls {
                Some(tls) => Client::new().tls(&tls),
                None => Client::new(),
            };
            let events = self.events.clone();
            let report = move |group: &Group, server: &Server, why: Option<String>| {
                events.report(Event::Server {
                    upstream: group.name().to_owned(),
                    server: server.name().to_string(),
                    change: why.map_or(ServerChange::Up, ServerChange::Down),
                });
            };
            health::tend(group, secure, make, self.epoch, report)
        });
        let hubs = plan.config.hubs.iter().filter_map(|hub| hub.tend());
        if let Err(why) = self.tender.give(plan.config.tables.tend().chain(groups).chain(hubs)) {
            let request = "work beside requests (health checks, keys)".to_owned();
            self.events.report(Event::Fault { request, why: format!("it cannot begin: {why}") });
        }
    }

    /// Returns the clock of decisions, the same for all workers.
    pub(crate) fn now(&self) -> u64 {
        ringroad_gate::flow::clock(self.epoch)
    }

    pub(crate) fn tls(&self) -> Option<Arc<TlsServer>> {
        self.tls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Uses these certificates of an authority from now on.
    pub(crate) fn install(&self, pairs: Vec<Pair>) -> Result<(), TlsError> {
        // A reload that changes them holds the same lock.
        let tls = self.tls.lock().unwrap_or_else(PoisonError::into_inner);
        tls.as_ref().map_or(Ok(()), |tls| tls.set_given(pairs))
    }

    /// Returns what becomes of the certificates that are obtained from an authority.
    pub(crate) fn acme(&self) -> Option<Arc<Progress>> {
        self.acme.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Logs a request that the protocol layer has refused, with the reason.
    fn refused(&self, refused: &Refused<'_>) {
        if let Some(log) = &self.plan().log {
            log.refused(refused);
        }
    }

    /// Keeps the counts of workers that have ended, and nothing else of them.
    fn keep_counts(&self, id: u64, stats: &Stats) {
        let counters = Box::new(stats.counters());
        for one in self.stats.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
            if matches!(one.live, Counted::Live(own, _) if own == id) {
                one.live = Counted::Ended(counters);
                return;
            }
        }
    }

    pub(crate) fn log_dropped(&self) -> u64 {
        self.plan().log.as_ref().map_or(0, |log| log.dropped())
    }
}

/// A running server.
pub struct Service {
    shared: Arc<Shared>,
    /// Looks at the files of TLS again and again, until it is dropped.
    watch: Option<mpsc::Sender<()>>,
    /// Obtains certificates, until it is dropped.
    keeper: Option<Keeper>,
    listening: Vec<Listening>,
    source: Source,
    overrides: Overrides,
    /// The configuration that the workers were made with.
    made_with: Config,
    /// Logs of earlier plans, to which a worker may still write.
    old_logs: Vec<Arc<Log>>,
    /// The control socket, which answers `ringroad app`.
    control: Option<Control>,
    /// Addresses that a reload has taken away. Their listeners may not be closed yet.
    closing: Vec<(Listen, Listens)>,
    /// Workers that have left their sockets to others, and complete what they have begun.
    leaving: Vec<crews::Leaving>,
}

/// The workers of one address.
struct Listening {
    /// The configured address; the port may be 0.
    listen: Listen,
    audience: Audience,
    /// At least one.
    groups: Vec<WorkerSet>,
}

/// Workers of an address on one driver.
struct WorkerSet {
    driver: DriverName,
    handle: Handle,
    /// The number of its [`ListenerStats`].
    id: u64,
}

/// Keys with new values that take effect only after a restart, each with the reason.
pub const ONLY_AT_START: [&str; 8] = [
    "workers (an address has its threads from its start)",
    "reuse_port (it is set before a socket is bound)",
    "driver (a connection stays with the runtime it began on)",
    "drivers (`ringroad workers move` moves workers)",
    "listen.tls, .http2, .proxy_protocol, .redirect_https (of an address that stays)",
    "tls.handshakes, .handshake_timeout (a worker has its line from its start)",
    "http2 (what a connection may do is told its client when it begins)",
    HUB_AT_START,
];

/// Hubs among them. A reload names each hub in place of `NAME`.
const HUB_AT_START: &str = "hub.NAME (its members stay with a hub of the same name)";

static NEXT_LISTENING: AtomicU64 = AtomicU64::new(0);

impl Listening {
    /// Ends it: no more connections, what has begun is finished, and its counts stay. That takes as long as
    /// its slowest request, so a thread does it.
    fn retire(self, shared: &Arc<Shared>) {
        for WorkerSet { handle, id, .. } in self.groups {
            let shared = Arc::clone(shared);
            let retire = move || {
                let stats = handle.stats();
                drop(handle);
                shared.keep_counts(id, &stats);
            };
            // Without a thread the handle is dropped with the closure, which ends the workers here.
            let _ = thread::Builder::new().name("ringroad-drain".to_owned()).spawn(retire);
        }
    }

    fn bound(&self) -> Option<&Bound> {
        self.groups.first().map(|group| group.handle.bound())
    }

    /// Returns whether it is the one for an address and an audience.
    fn is_at(&self, listen: &Listen, audience: Audience) -> bool {
        let own = (&self.listen.at, self.listen.only_v6, self.audience);
        own == (&listen.at, listen.only_v6, audience)
    }

    /// Returns whether its sockets keep others from an address.
    fn overlaps(&self, reach: &Reach) -> bool {
        let bound = self.bound().and_then(Bound::tcp);
        bound.is_some_and(|address| Reach { address, only_v6: self.listen.only_v6 }.overlaps(reach))
    }
}

/// Buffers for large bodies: a receive has its price, whatever it brings, and what comes in one piece is sent
/// on without a copy. Drivers that wait for readiness use one after another, so a few are enough. io_uring's
/// are all with the kernel, where each takes one answer: as many as ever, of which small requests touch one
/// page each, as they would of small ones. On `threads` each worker has one of its own: there small ones
/// stay, and the number of threads is bounded.
fn receive_buffers(driver: DriverName) -> impl Fn(Builder) -> Builder {
    const BYTES: usize = 60 * 1024;
    move |builder| match driver {
        DriverName::Epoll | DriverName::Poll | DriverName::Select => builder.buffers(16, BYTES),
        DriverName::IoUring => builder.buffers(128, BYTES),
        DriverName::Threads => builder.workers(THREADS_MAX),
        _ => builder,
    }
}

impl Service {
    /// Starts to serve. If the driver that `auto` chose gets no memory for all workers, it starts anew on the
    /// next.
    ///
    /// # Errors
    /// No driver, an address that is not to be had, a log that cannot be opened: then nothing runs.
    pub fn start(
        source: Source,
        overrides: Overrides,
        config: Config,
        events: EventSink,
    ) -> Result<Service, StartError> {
        let mut crews = crews::choose(&overrides, &config)?;
        let start = |crews| {
            let events = events.clone();
            Service::start_on(crews, source.clone(), overrides.clone(), config.clone(), events)
        };
        match &mut *crews {
            // Several drivers are there because they were named.
            [crew] => {
                let (workers, was_moved) = (crew.workers, crew.was_moved);
                let on = |choice: &Choice| start(vec![Crew { choice: choice.clone(), workers, was_moved }]);
                crew.choice.settle(on, |why| match why {
                    StartError::Server(ServerError::Runtime(why)) => Some(why),
                    _ => None,
                })
            }
            _ => start(crews),
        }
    }

    fn start_on(
        crews: Vec<Crew>,
        source: Source,
        overrides: Overrides,
        config: Config,
        events: EventSink,
    ) -> Result<Service, StartError> {
        let Some(choice) = crews.first().map(|crew| crew.choice.clone()) else {
            unreachable!("there is a crew for each driver, or one");
        };
        let log = open_log(&config, &events)?;
        let (_, upstream_connections_max) = room(&config, &crews::drivers(&crews));
        let apps = config
            .apps
            .iter()
            .map(|app| start_app(app, choice.driver(), &events))
            .collect::<Result<_, _>>()?;
        let plan = Arc::new(Plan {
            apps,
            groups: groups(&config, &[]),
            body_bytes: config.widest_limits().body_bytes,
            config: config.clone(),
            log,
            room: Room::new(upstream_connections_max),
        });
        let tls = config.tls.as_ref().map(|tls| make_tls(tls, &config.listen, &events)).transpose()?;
        let shared = Arc::new(Shared {
            plan: Mutex::new(plan),
            generation: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            members: Mutex::default(),
            routes: RouteList::default(),
            stats: Mutex::default(),
            tender: Tender::new(choice.clone()),
            choice,
            crews: Mutex::new(crews),
            reloads: Reloads::default(),
            per_address: Arc::default(),
            started: SystemTime::now(),
            epoch: Instant::now(),
            tls: Mutex::new(tls),
            challenges: Answers::default(),
            acme: Mutex::default(),
            events,
        });
        let mut service = Service {
            shared,
            watch: None,
            keeper: None,
            listening: Vec::new(),
            source,
            overrides,
            made_with: config.clone(),
            old_logs: Vec::new(),
            control: None,
            closing: Vec::new(),
            leaving: Vec::new(),
        };
        service.bound_addresses(&config);
        // After an error, dropping stops what was started before.
        if let Some(path) = &config.control {
            let control = Control::start(path, &service.shared);
            service.control = Some(control.map_err(|why| StartError::Control(path.clone(), why))?);
        }
        for (listen, audience) in addresses(&config) {
            let one = service.listen(listen, audience, &[])?;
            service.listening.push(one);
        }
        create_log(service.shared.plan().log.as_ref())?;
        service.watch = watch(&service.shared);
        service.shared.tend();
        service.keep_certificates(&config);
        Ok(service)
    }

    /// Starts the workers of an address. `more`: what listens besides, and is not announced yet.
    fn listen(
        &self,
        listen: Listen,
        audience: Audience,
        more: &[Listening],
    ) -> Result<Listening, ServerError> {
        let reach = Reach::of(&listen);
        let is_in_way = |one: &&Listening| reach.is_some_and(|reach| one.overlaps(&reach));
        let in_way: Vec<&Listening> = self.listening.iter().chain(more).filter(is_in_way).collect();
        for group in in_way.iter().flat_map(|one| &one.groups) {
            group.handle.lets_overlap();
        }
        let wanted = match audience {
            Audience::Public => self.crews().iter().map(|crew| (crew.driver(), crew.workers)).collect(),
            Audience::Own(_) => vec![(self.shared.choice.driver(), 1)],
        };
        let shares = wanted.len() > 1;
        let mut groups: Vec<WorkerSet> = Vec::new();
        for (driver, workers) in wanted {
            let server = self.server(&listen, audience, driver)?.workers(workers);
            let server = if in_way.is_empty() { server } else { server.overlaps() };
            let server = match groups.first() {
                Some(first) => server.beside(&first.handle),
                None if shares => server.shares_address(),
                None => server,
            };
            let started = server.start().map_err(|why| match in_way.first().and_then(|one| one.bound()) {
                Some(own) if is_in_use(&why) => ServerError::Address(format!(
                    "{listen}: in use by {own}, which this server listens on itself and cannot share: it was passed \
                     to it, or another program listens there as well"
                )),
                _ => why,
            })?;
            groups.push(self.group(started, audience, driver));
        }
        Ok(Listening { listen, audience, groups })
    }

    /// Registers the counts of a server that has started.
    fn group(&self, handle: Handle, audience: Audience, driver: DriverName) -> WorkerSet {
        let id = NEXT_LISTENING.fetch_add(1, Ordering::Relaxed);
        let stats = ListenerStats {
            name: handle.bound().to_string(),
            driver,
            is_public: audience == Audience::Public,
            live: Counted::Live(id, handle.stats()),
        };
        self.shared.stats.lock().unwrap_or_else(PoisonError::into_inner).push(stats);
        WorkerSet { driver, handle, id }
    }

    /// Returns the server of an address on one driver, not started.
    fn server(
        &self,
        listen: &Listen,
        audience: Audience,
        driver: DriverName,
    ) -> Result<HttpServer<Worker>, ServerError> {
        let config = &self.made_with;
        let shared = Arc::clone(&self.shared);
        let (redirect_https, tls) = (listen.redirect_https, self.shared.tls().filter(|_| listen.tls));
        let place = Station { audience, driver, redirect_https, is_secure: tls.is_some() };
        let make = move || Worker::new(Arc::clone(&shared), place);
        let mut server = HttpServer::with_state(make);
        if listen.http2 {
            let bounds = config.http2.as_ref().map_or_else(Http2::default, |speaks| speaks.bounds.clone());
            let plain = config.http2.as_ref().is_some_and(|speaks| speaks.prior_knowledge);
            server = if plain { server.http2_prior_knowledge(bounds) } else { server.http2(bounds) };
        }
        let mut server = server
            .bind(&listen.at)?
            .proxy_from(listen.proxy_protocol.iter().copied())
            .per_address(Arc::clone(&self.shared.per_address))
            .driver(Wish::Named(driver))
            .reuse_port(config.reuse_port)
            .only_v6(listen.only_v6)
            .connections_max(self.connections_max())
            .unsent_bytes_max(self.unsent_bytes_max())
            .limits(config.widest_limits())
            .deadlines(config.deadlines.clone())
            .drain(config.drain)
            // A route may say otherwise.
            .on_client_gone(OnClientGone::Cancel)
            // The stop waits for tunnels as for requests.
            .upgraded_grace(config.drain)
            .tune(receive_buffers(driver))
            .fallback(worker::answer)
            .on_refused({
                let shared = Arc::clone(&self.shared);
                move |refused: &Refused<'_>| shared.refused(refused)
            });
        if let Some(tls) = tls {
            server = server.tls(tls);
        }
        if let Some(tls) = &config.tls {
            server = server.handshakes_max(tls.handshakes).handshake_timeout(tls.handshake_timeout);
        }
        Ok(server)
    }

    /// Returns the most connections of one worker. Some descriptors are left for files, upstreams and the
    /// log, so that open connections are served even when no more can be accepted.
    fn connections_max(&self) -> NonZeroUsize {
        let config = &self.made_with;
        let (connections, _) = room(config, &crews::drivers(&self.crews()));
        NonZeroUsize::new(connections / workers(config)).unwrap_or(NonZeroUsize::MIN)
    }

    /// Bytes of answers that one worker may hold unsent.
    fn unsent_bytes_max(&self) -> usize {
        let each = self.made_with.unsent_bytes_max / workers(&self.made_with) as u64;
        usize::try_from(each).unwrap_or(usize::MAX)
    }

    /// Returns the TCP addresses where it listens; an address of its own for metrics last.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.listening.iter().filter_map(|one| one.bound()?.tcp())
    }

    /// Returns where it listens, as a person writes it: `https://127.0.0.1:8443/`, `unix:/run/site.sock`.
    pub fn urls(&self) -> impl Iterator<Item = String> {
        self.listening.iter().filter_map(|one| Some((one, one.bound()?))).map(|(one, bound)| {
            match bound.tcp() {
                Some(address) => format!("{}://{address}/", if one.listen.tls { "https" } else { "http" }),
                None => bound.to_string(),
            }
        })
    }

    /// Returns the certificates in force.
    pub fn certificates(&self) -> Vec<CertificateInfo> {
        self.shared.tls().map(|tls| tls.certificates()).unwrap_or_default()
    }

    /// Returns the servers of all groups, and how often each was left out.
    pub fn servers(&self) -> Vec<(String, u64)> {
        let plan = self.shared.plan();
        let servers = plan.groups.iter().flat_map(|group| group.servers());
        let told =
            |server: &Arc<Server>| (server.address().to_string(), server.ejections.load(Ordering::Relaxed));
        servers.map(told).collect()
    }

    /// Returns the driver of work beside requests, with the reason for its choice. It is the first of those
    /// of [`crews`](Self::crews) at start.
    pub fn choice(&self) -> &Choice {
        &self.shared.choice
    }

    /// Workers of each address.
    pub fn workers(&self) -> usize {
        self.made_with.threads()
    }

    /// Opens the file of the access log again, because it was moved away. Without a file nothing happens.
    pub fn reopen_log(&self) {
        if let Some(log) = &self.shared.plan().log {
            log.reopen();
        }
    }

    /// Reads the configuration again and puts it in force, or says why not: then everything stays as it is.
    pub fn reload(&mut self) {
        let event = match read(&self.source, &self.overrides, Config::load_again) {
            Ok(config) => match self.change(config) {
                Ok(waiting) => match &self.source {
                    Source::File(_) => Event::Reloaded { waiting },
                    Source::Folder { path, .. } => Event::Refreshed(Refreshed::Folder(path.clone())),
                    Source::App(app) => Event::Refreshed(Refreshed::App(app.name.clone())),
                },
                Err(why) => Event::ReloadFailed(why.to_string()),
            },
            Err(StartError::Config(why)) => Event::ReloadRefused(why),
            Err(why) => Event::ReloadFailed(why.to_string()),
        };
        let taken = matches!(event, Event::Reloaded { .. } | Event::Refreshed(_));
        let count = if taken { &self.shared.reloads.taken } else { &self.shared.reloads.refused };
        count.fetch_add(1, Ordering::Relaxed);
        self.shared.events.report(event);
    }

    fn change(&mut self, config: Config) -> Result<Vec<String>, StartError> {
        let old = self.shared.plan();
        let log = match &old.log {
            Some(log) if Some(&log.to) == config.log.as_ref() => {
                log.reopen();
                Some(Arc::clone(log))
            }
            _ => open_log(&config, &self.shared.events)?,
        };
        let waiting = self.waiting(&config);
        self.change_tls(&config)?;
        let wanted = addresses(&config);
        let mut new = Vec::new();
        for (listen, audience) in &wanted {
            if !self.listening.iter().any(|one| one.is_at(listen, *audience)) {
                self.wait_until_closed(listen);
                match self.listen(listen.clone(), *audience, &new) {
                    Ok(one) => new.push(one),
                    Err(why) => {
                        // The other listeners were never announced; ending them must not delay signals.
                        new.into_iter().for_each(|one: Listening| one.retire(&self.shared));
                        return Err(why.into());
                    }
                }
            }
        }
        let same = |log: &Arc<Log>| old.log.as_ref().is_some_and(|old| Arc::ptr_eq(old, log));
        if !log.as_ref().is_some_and(same) {
            self.old_logs.extend(old.log.clone());
        }
        let mut config = config;
        for route in &mut config.routes {
            // An unchanged route keeps its state, with its files in memory.
            if let Some(same) = old.config.routes.iter().find(|before| before == &&*route) {
                *route = Arc::clone(same);
            }
        }
        let groups = groups(&config, &old.groups);
        let mut apps = Vec::new();
        for app in &config.apps {
            let known = old.apps.iter().find(|pool| pool.settings().name == app.name);
            apps.push(match known {
                Some(pool) => Arc::clone(pool),
                None => start_app(app, self.shared.choice.driver(), &self.shared.events)?,
            });
        }
        let control = match &config.control {
            Some(path) if self.made_with.control.as_ref() != Some(path) => {
                let control = Control::start(path, &self.shared);
                Some(control.map_err(|why| StartError::Control(path.clone(), why))?)
            }
            _ => None,
        };
        create_log(log.as_ref())?;
        // Nothing fails from here on.
        if config.control != self.made_with.control {
            self.control = control;
        }
        for (pool, app) in apps.iter().zip(&config.apps) {
            if old.apps.iter().any(|known| Arc::ptr_eq(known, pool)) {
                pool.begin_reload(Some(told_driver(app, self.shared.choice.driver())));
            }
        }
        let gone: Vec<_> =
            old.apps.iter().filter(|pool| !apps.iter().any(|one| Arc::ptr_eq(one, pool))).cloned().collect();
        config.adopt(&old.config);
        let is_gone = |hub: &&Arc<HubTable>| config.hubs.iter().all(|one| one.name != hub.name);
        let hubs_gone: Vec<_> = old.config.hubs.iter().filter(is_gone).map(Arc::clone).collect();
        let room = Arc::clone(&old.room);
        drop(old);
        let bounds = config.clone();
        let body_bytes = config.widest_limits().body_bytes;
        let plan = Arc::new(Plan { config, log, groups, body_bytes, room, apps });
        *self.shared.plan.lock().unwrap_or_else(PoisonError::into_inner) = plan;
        // Pairs with the acquire load of each worker.
        self.shared.generation.fetch_add(1, Ordering::Release);
        self.shared.tend();
        hubs_gone.iter().for_each(|hub| hub.end());
        self.keep_certificates(&bounds);
        // No worker uses a log after this: it is complete.
        let drain = self.made_with.drain;
        self.old_logs.retain(|log| {
            let used = Arc::strong_count(log) > 1;
            if !used {
                log.finish(drain);
            }
            used
        });
        for pool in gone {
            // Its requests are completed first.
            let _ = thread::Builder::new().name("ringroad-drain".to_owned()).spawn(move || pool.stop());
        }
        self.listening.append(&mut new);
        let stays = |one: &Listening| wanted.iter().any(|(listen, audience)| one.is_at(listen, *audience));
        let (stay, go) = std::mem::take(&mut self.listening).into_iter().partition(stays);
        self.listening = stay;
        self.change_bounds(&bounds);
        self.closing.retain(|(_, listens)| listens.now());
        for one in go {
            for group in &one.groups {
                group.handle.stop();
                self.closing.push((one.listen.clone(), group.handle.listens()));
            }
            one.retire(&self.shared);
        }
        self.forget_left();
        Ok(waiting)
    }

    /// Waits until the workers that had this address before have closed their listeners. Each does so when it
    /// next looks for work; one that does not come to it makes the bind fail, which is told.
    fn wait_until_closed(&self, wanted: &Listen) {
        const LONGEST: Duration = Duration::from_secs(2);
        let began = Instant::now();
        let reach = Reach::of(wanted);
        let is_in_way = |of: &Listen| {
            of.at == wanted.at || reach.zip(Reach::of(of)).is_some_and(|(reach, of)| reach.overlaps(&of))
        };
        let listens = |(of, listens): &(Listen, Listens)| is_in_way(of) && listens.now();
        while self.closing.iter().any(listens) && began.elapsed() < LONGEST {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Takes other certificates and rules. Where they are those of before, the files are looked at again.
    fn change_tls(&mut self, config: &Config) -> Result<(), StartError> {
        let mut tls = self.shared.tls.lock().unwrap_or_else(PoisonError::into_inner);
        match (&config.tls, &*tls) {
            (Some(new), Some(tls))
                if new.settings == tls.settings()
                    && new.acme.as_ref() == self.keeper.as_ref().map(Keeper::settings) =>
            {
                refresh(tls, &self.shared.events);
            }
            (Some(new), Some(tls)) => {
                // What a keeper holds is in force, whatever has become of its folder.
                let holds = self.keeper.as_ref().is_some_and(|one| new.acme.as_ref() == Some(one.settings()));
                let changed = if holds {
                    tls.change_settings(new.settings.clone())
                } else {
                    let given = given(new, &config.listen, &self.shared.events)?;
                    tls.change(new.settings.clone(), given)
                };
                let bad = changed.map_err(StartError::Tls)?;
                bad.into_iter().for_each(|bad| self.shared.events.report(Event::CertificateRefused(bad)));
                tell_expired(tls, &self.shared.events);
            }
            (Some(new), None) => *tls = Some(make_tls(new, &config.listen, &self.shared.events)?),
            // Addresses that still speak it have it as long as they stay.
            (None, _) => *tls = None,
        }
        drop(tls);
        self.made_with.tls.clone_from(&config.tls);
        if self.watch.is_none() {
            self.watch = watch(&self.shared);
        }
        Ok(())
    }

    /// Has the certificates of ACME obtained and renewed. A keeper with the same settings goes on.
    fn keep_certificates(&mut self, config: &Config) {
        let wanted = config.tls.as_ref().and_then(|tls| tls.acme.as_ref());
        if self.keeper.as_ref().map(Keeper::settings) == wanted {
            return;
        }
        // Ended first: two would ask for the same.
        self.keeper = None;
        let before = self.shared.acme.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(settings) = wanted else { return };
        let (keeper, work) = Keeper::new(settings.clone(), acme::site(&self.shared));
        if let Some(before) = before {
            keeper.progress().adopt(&before);
        }
        *self.shared.acme.lock().unwrap_or_else(PoisonError::into_inner) = Some(keeper.progress());
        self.keeper = Some(keeper);
        if let Err(why) = self.shared.tender.give([work]) {
            let request = "work beside requests (certificates of ACME)".to_owned();
            self.shared.events.report(Event::Fault { request, why: format!("it cannot begin: {why}") });
        }
    }

    /// Gives the workers that run the sizes, times and numbers of a new configuration.
    fn change_bounds(&mut self, config: &Config) {
        let Config { workers, reuse_port, driver, .. } = self.made_with;
        let (drivers, http2) = (std::mem::take(&mut self.made_with.drivers), self.made_with.http2.take());
        self.made_with = Config { workers, reuse_port, driver, drivers, http2, ..config.clone() };
        let (_, upstream_connections_max) = room(&self.made_with, &crews::drivers(&self.crews()));
        self.shared.plan().room.set_most(upstream_connections_max);
        self.bound_addresses(config);
        let (connections, unsent) = (self.connections_max(), self.unsent_bytes_max());
        for WorkerSet { handle, .. } in self.groups() {
            handle.set_limits(config.widest_limits());
            handle.set_deadlines(config.deadlines.clone());
            handle.set_drain(config.drain, config.drain);
            handle.set_connections_max(connections);
            handle.set_unsent_bytes_max(unsent);
        }
    }

    /// Puts the bound of connections for each client's address in force. Proxies have those of many clients.
    fn bound_addresses(&self, config: &Config) {
        let except = config.client_ip.proxies.iter().filter_map(|network| network.to_string().parse().ok());
        self.shared.per_address.set(config.connections_per_client, except.collect());
    }

    /// Returns the keys of a new configuration that need a restart, each with the reason.
    fn waiting(&self, config: &Config) -> Vec<String> {
        let made = &self.made_with;
        let speaks_otherwise = |new: &Listen| {
            self.listening.iter().any(|one| {
                one.audience == Audience::Public && one.listen.at == new.at && !one.listen.speaks_as(new)
            })
        };
        let handshakes = |config: &Config| {
            let tls = config.tls.as_ref();
            tls.map(|tls| (tls.handshakes, tls.handshake_timeout))
        };
        let plan = self.shared.plan();
        let stays = |hub: &&Arc<HubTable>| plan.config.hubs.iter().any(|one| hub.waits_for(one));
        let hubs: Vec<_> = config.hubs.iter().filter(stays).collect();
        let differs = [
            made.workers != config.workers,
            made.reuse_port != config.reuse_port,
            made.driver != config.driver,
            made.drivers != config.drivers,
            config.listen.iter().any(speaks_otherwise),
            self.shared.tls().is_some() && handshakes(made) != handshakes(config),
            made.http2 != config.http2,
        ];
        // Hubs are the last, and have a line each.
        let mut waiting: Vec<String> = ONLY_AT_START
            .iter()
            .zip(differs)
            .filter(|(_, differs)| *differs)
            .map(|(name, _)| (*name).to_owned())
            .collect();
        waiting.extend(hubs.iter().map(|hub| HUB_AT_START.replacen("NAME", &hub.name, 1)));
        waiting
    }

    /// Returns whether some worker has ended by itself, which is an error that [`stop`](Self::stop) tells.
    pub fn has_failed(&self) -> bool {
        self.groups().any(|group| group.handle.has_ended())
    }

    /// Returns a count of the open connections that can be used while [`stop`](Self::stop) waits for them.
    pub fn connections(&self) -> impl Fn() -> u64 + Send + 'static {
        let shared = Arc::clone(&self.shared);
        move || {
            let stats = shared.stats.lock().unwrap_or_else(PoisonError::into_inner);
            stats.iter().map(|stats| stats.counters().connections).sum()
        }
    }

    /// Returns how long [`stop`](Self::stop) waits for requests in progress.
    pub fn drain(&self) -> Duration {
        self.made_with.drain
    }

    /// Stops: no more connections, what has begun is finished within the time for that, the log is written.
    ///
    /// # Errors
    /// The first worker's that ended by an error or a panic.
    pub fn stop(self) -> Result<(), ServerError> {
        self.shared.stopping.store(true, Ordering::Relaxed);
        for group in self.groups() {
            group.handle.stop();
        }
        for left in &self.leaving {
            left.hurry(self.made_with.drain);
        }
        let mut ended = Ok(());
        // All are waited for; the first error is returned.
        for group in self.listening.into_iter().flat_map(|one| one.groups) {
            ended = ended.and(group.handle.wait());
        }
        for left in self.leaving {
            ended = ended.and(left.wait(&self.shared));
        }
        for pool in &self.shared.plan().apps {
            pool.stop();
        }
        for log in self.old_logs.iter().chain(&self.shared.plan().log) {
            log.finish(self.made_with.drain);
        }
        ended
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("addresses", &self.addresses().collect::<Vec<_>>()).finish()
    }
}

/// Returns the groups of servers that routes name, each with what is known of its servers.
fn groups(config: &Config, before: &[Arc<Group>]) -> Vec<Arc<Group>> {
    let make = |upstream: &Arc<Upstream>| {
        let Upstream { name, servers, balance, guards, .. } = &**upstream;
        let known = before.iter().find(|group| group.name() == name).map(|group| &**group);
        let server = |one: &Member| Server::new(one.address.clone(), one.weight).as_backup(one.backup);
        let servers = servers.iter().map(server).collect();
        Arc::new(Group::new(name, servers, balance.clone(), guards.clone(), known))
    };
    config.used_upstreams().into_iter().map(make).collect()
}

/// Returns the settings with a variable that tells workers the driver of the server's connections.
fn told_driver(app: &ringroad_app::Settings, driver: DriverName) -> ringroad_app::Settings {
    let mut app = app.clone();
    app.env.push(("RINGROAD_DRIVER_IN_USE".to_owned(), driver.as_str().to_owned()));
    app
}

fn start_app(
    app: &ringroad_app::Settings,
    driver: DriverName,
    events: &EventSink,
) -> Result<Arc<Pool>, StartError> {
    let events = events.clone();
    let say = Arc::new(move |line| events.report(Event::App(line)));
    let pool =
        Pool::start(told_driver(app, driver), say).map_err(|why| StartError::App(app.name.clone(), why))?;
    Ok(Arc::new(pool))
}

/// Every address, and the audience that is answered there.
fn addresses(config: &Config) -> Vec<(Listen, Audience)> {
    let own = config.routes.iter().filter_map(|route| match route.kind {
        Kind::Metrics(own) => own,
        _ => None,
    });
    let public = config.listen.iter().map(|listen| (listen.clone(), Audience::Public));
    let own = own.map(|own| (Listen::plain(ListenAt::Tcp(own)), Audience::Own(own)));
    let mut all: Vec<_> = public.chain(own).collect();
    part_families(all.iter_mut().map(|(listen, _)| listen));
    all
}

fn is_in_use(why: &ServerError) -> bool {
    matches!(why, ServerError::Engine(why) if why.raw_os_error() == Some(Errno::ADDRINUSE.raw_os_error()))
}

/// How often files of TLS are looked at.
const LOOK: Duration = Duration::from_secs(10);

fn make_tls(tls: &Tls, listen: &[Listen], events: &EventSink) -> Result<Arc<TlsServer>, StartError> {
    let given = given(tls, listen, events)?;
    let (server, bad) = TlsServer::new(tls.settings.clone(), given).map_err(StartError::Tls)?;
    bad.into_iter().for_each(|bad| events.report(Event::CertificateUnusable(bad)));
    tell_expired(&server, events);
    Ok(Arc::new(server))
}

/// Certificates that are in no file of the configuration: one for development, or those of ACME that the
/// state folder has.
fn given(tls: &Tls, listen: &[Listen], events: &EventSink) -> Result<Vec<Pair>, StartError> {
    if tls.dev {
        return Ok(vec![dev_pair(listen)?]);
    }
    let Some(acme) = &tls.acme else { return Ok(Vec::new()) };
    let stored = ringroad_acme::stored(acme).map_err(StartError::Acme)?;
    // The set is new: what cannot be read of it is in force nowhere.
    stored.bad.into_iter().for_each(|bad| events.report(Event::CertificateUnusable(bad)));
    if let Some(why) = stored.unwritable {
        events.report(Event::StateNotWritable(Arc::new(why)));
    }
    Ok(stored.pairs)
}

/// Returns a certificate for development: for this machine, by its names and the addresses that are listened
/// on.
fn dev_pair(listen: &[Listen]) -> Result<Pair, StartError> {
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    let own = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
    if !own.trim().is_empty() && own.trim().bytes().all(is_name) {
        names.push(own.trim().to_owned());
    }
    names.extend(listen.iter().filter_map(|listen| match listen.at {
        ListenAt::Tcp(address) if !address.ip().is_unspecified() => Some(address.ip().to_string()),
        _ => None,
    }));
    names.sort();
    names.dedup();
    let settings = |why: String| StartError::Certificate(format!("a certificate for development: {why}"));
    ringroad_tls::self_signed(names).map_err(settings)
}

/// Looks at the files of TLS, and tells what comes of it.
fn refresh(tls: &TlsServer, events: &EventSink) {
    let refreshed = tls.refresh();
    if refreshed.changed {
        events.report(Event::CertificatesTaken);
    }
    refreshed.bad.into_iter().for_each(|bad| events.report(Event::CertificateRefused(bad)));
    tell_expired(tls, events);
}

fn tell_expired(tls: &TlsServer, events: &EventSink) {
    let expired = tls.newly_expired(SystemTime::now());
    expired.into_iter().for_each(|what| events.report(Event::CertificateExpired(what)));
}

/// Looks at the files of TLS every ten seconds, on a thread of its own, until the sender is dropped.
fn watch(shared: &Arc<Shared>) -> Option<mpsc::Sender<()>> {
    shared.tls()?;
    let (stop, stopped) = mpsc::channel::<()>();
    let shared = Arc::clone(shared);
    let looking = move || {
        while stopped.recv_timeout(LOOK) == Err(mpsc::RecvTimeoutError::Timeout) {
            if let Some(tls) = shared.tls() {
                refresh(&tls, &shared.events);
            }
        }
    };
    // Without a thread there is still SIGHUP.
    thread::Builder::new().name("ringroad-certs".to_owned()).spawn(looking).ok()?;
    Some(stop)
}

fn open_log(config: &Config, events: &EventSink) -> Result<Option<Arc<Log>>, StartError> {
    let open = |to| Log::open(to, events).map_err(|why| StartError::Log(to.target.to_string(), why));
    config.log.as_ref().map(open).transpose()
}

/// Makes the file of a log that is opened, once nothing else can fail.
fn create_log(log: Option<&Arc<Log>>) -> Result<(), StartError> {
    let Some(log) = log else { return Ok(()) };
    log.create().map_err(|why| StartError::Log(log.to.target.to_string(), why))
}

/// Workers of all public addresses.
fn workers(config: &Config) -> usize {
    (config.threads() * config.listen.len()).max(1)
}

/// Most connections of clients, and most to servers behind, of all workers together.
fn room(config: &Config, drivers: &[DriverName]) -> (usize, usize) {
    // A filter may refuse the question: then it is the usual one.
    let limit = ringroad_host::process::nofile().unwrap_or(1024);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    // A descriptor may be the number of any worker's.
    let free = drivers.iter().map(|driver| connections(*driver, limit, workers(config))).min().unwrap_or(1);
    let proxies =
        !config.used_upstreams().is_empty() || config.apps.iter().any(ringroad_app::Settings::speaks_http);
    shares(free, proxies, config.connections_max, config.upstream_connections_max)
}

/// Shares descriptors between clients and servers behind. A request that is handed on needs one of each, so
/// by default both get half; what the configuration gives to one of them is not the other's. A number that it
/// names is taken, also if there are fewer descriptors: then the kernel refuses the last ones.
fn shares(free: usize, proxies: bool, clients: Option<usize>, upstreams: Option<usize>) -> (usize, usize) {
    if !proxies {
        return (clients.unwrap_or(free), upstreams.unwrap_or(1));
    }
    // At least an eighth is left for the other side.
    let rest = |taken: usize| free.saturating_sub(taken).max(free / 8).max(1);
    match (clients, upstreams) {
        (Some(clients), Some(upstreams)) => (clients, upstreams),
        (Some(clients), None) => (clients, rest(clients).min(clients.max(free / 8).max(1))),
        (None, Some(upstreams)) => (rest(upstreams), upstreams),
        (None, None) => (rest(free / 2), rest(free / 2)),
    }
}

/// Threads of one worker that wait, on the driver of that name.
const THREADS_MAX: u32 = 4096;

/// Connections that a process may have under a limit of open files.
fn connections(driver: DriverName, limit: usize, workers: usize) -> usize {
    let (limit, each, ahead) = match driver {
        // Its sets end there.
        DriverName::Select => (limit.min(1024), 1, 0),
        // One that waits has a thread, which has a descriptor too.
        DriverName::Threads => (limit, 2, 0),
        // The kernel takes so many out of the backlog before a worker asks.
        DriverName::IoUring => (limit, 1, 64 * workers),
        _ => (limit, 1, 0),
    };
    let left = (limit / 4).clamp(64, 512) + ahead;
    let connections = (limit - left.min(limit / 2)) / each;
    if driver == DriverName::Threads {
        // Some wait in both directions.
        return connections.min(workers * (THREADS_MAX as usize / 4 * 3));
    }
    connections
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_left_for_what_is_no_connection() {
        for (driver, limit, workers, most) in [
            (DriverName::Epoll, 20_000, 1, 19_488),
            (DriverName::IoUring, 20_000, 2, 19_360),
            (DriverName::Threads, 20_000, 4, 9_744),
            (DriverName::Threads, 20_000, 1, 3_072),
            (DriverName::Select, 20_000, 1, 768),
            (DriverName::Epoll, 1024, 1, 768),
            (DriverName::IoUring, 256, 1, 128),
            (DriverName::Poll, 64, 1, 32),
        ] {
            assert_eq!(connections(driver, limit, workers), most, "{driver} {limit} {workers}");
        }
    }

    #[test]
    fn clients_and_servers_behind_share_the_descriptors() {
        for (proxies, clients, upstreams, expected) in [
            (false, None, None, (1000, 1)),
            (false, Some(9), None, (9, 1)),
            (true, None, None, (500, 500)),
            // No more connections to servers than there are clients.
            (true, Some(100), None, (100, 125)),
            (true, Some(700), None, (700, 300)),
            (true, Some(2000), None, (2000, 125)),
            (true, None, Some(10), (990, 10)),
            (true, None, Some(990), (125, 990)),
            (true, Some(7), Some(8), (7, 8)),
        ] {
            assert_eq!(shares(1000, proxies, clients, upstreams), expected, "{clients:?} {upstreams:?}");
        }
        assert_eq!(shares(1, true, None, None), (1, 1));
    }
}
