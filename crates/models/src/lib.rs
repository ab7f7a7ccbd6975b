//! The reference servers: the same echo and HTTP server, written once for each way of doing I/O on Linux.
//!
//! They are floors and lessons. A floor: nothing is between the program and the system calls, so the cost of
//! an engine is the difference to these. A lesson: each model is one short file that differs from its
//! siblings only in how it waits. All of them share [`protocol`], so a ratio between two models compares I/O
//! only.
//!
//! This crate binds, serves and counts. Arguments, signals and printing of results are left to the program
//! that uses it. Start at [`Server`]; then read `hand/poll.rs`, the simplest loop, and `hand/epoll.rs`, the
//! fastest.

mod engine;
mod hand;
pub mod protocol;
mod stop;
mod work;
mod workers;

pub use protocol::Protocol;
pub use stop::Stop;
pub use workers::Workers;

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroU16;
use std::str::FromStr;
use std::time::Duration;

/// A server that is bound and not yet serving.
///
/// ```
/// use ringroad_models::{Model, Options, Protocol, Server, Stop};
/// use std::io::{Read, Write};
///
/// let options = Options::default();
/// let server = Server::bind(Model::EpollEt, Protocol::Echo, ([127, 0, 0, 1], 0).into(), options)?;
/// let address = server.address();
/// let stop = Stop::new()?;
/// let totals = std::thread::scope(|scope| {
///     let serving = scope.spawn(|| server.run(&stop));
///     let mut client = std::net::TcpStream::connect(address)?;
///     client.write_all(b"hello")?;
///     let mut answer = [0; 5];
///     client.read_exact(&mut answer)?;
///     assert_eq!(&answer, b"hello");
///     stop.request();
///     Ok::<_, std::io::Error>(serving.join())
/// })?;
/// assert_eq!(totals.unwrap()?.bytes_out, 5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Server {
    model: Model,
    protocol: Protocol,
    options: Options,
    listener: TcpListener,
    address: SocketAddr,
}

impl Server {
    /// Binds and listens; clients may connect from here on, and wait in the backlog until [`Server::run`].
    ///
    /// # Errors
    /// The address is in use, not of this machine or not permitted, or `options` hold a value that no model
    /// supports. The error names the address.
    pub fn bind(model: Model, protocol: Protocol, address: SocketAddr, options: Options) -> Result<Self> {
        if options.buffer_bytes == 0 {
            let why = io::Error::new(io::ErrorKind::InvalidInput, "a buffer of 0 bytes can receive nothing");
            return Err(Error::new("reading options", why)
                .on("buffer")
                .hint("give at least 1 byte; 4096 is the default"));
        }
        if let Some(why) = options.batch.and_then(|_| model.no_batch()) {
            let why = io::Error::new(io::ErrorKind::InvalidInput, format!("{model} takes no batch: {why}"));
            return Err(Error::new("reading options", why)
                .on("batch")
                .hint("leave it out; the models by hand take one, but for threads"));
        }
        let listener = bind(address, &options)?;
        let address = listener.local_addr().map_err(|why| Error::new("getsockname", why).on(address))?;
        Ok(Server { model, protocol, options, listener, address })
    }

    /// Returns the address it listens on, with the port the kernel chose if port 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves on the calling thread until `stop` is requested, then closes every connection in its present
    /// state and returns the totals. A connection that fails affects no other one.
    ///
    /// # Errors
    /// The listener or the wait call itself failed.
    pub fn run(self, stop: &Stop) -> Result<Totals> {
        match self.model.engine_driver() {
            Some(driver) => engine::run(driver, self, stop),
            None => hand::run(self.model, hand::Site::new(self.listener, self.protocol, self.options), stop),
        }
    }
}

/// Opens a listening socket as every model uses it: `SO_REUSEADDR`, backlog 4096, non-blocking, and
/// `TCP_NODELAY`, which on Linux accepted sockets inherit (`tcp(7)`), so it costs no system call each.
///
/// # Errors
/// As [`Server::bind`].
pub fn bind(address: SocketAddr, options: &Options) -> Result<TcpListener> {
    hand::listen(address, options.reuse_port).map(TcpListener::from)
}

/// A way of doing I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Model {
    /// A blocking thread for each connection.
    Threads,
    /// One thread in `select(2)`: bit sets, descriptors below 1024 only.
    Select,
    /// One thread in `poll(2)`: an array the kernel walks in full each time.
    Poll,
    /// One thread in `epoll(7)`, level-triggered: the kernel reports a descriptor again while it is ready.
    EpollLt,
    /// One thread in `epoll(7)`, edge-triggered: the kernel reports each change once, and the program
    /// remembers it.
    EpollEt,
    /// One thread in `io_uring(7)`, a request for each receive, with a buffer per connection.
    Uring,
    /// One thread in `io_uring(7)`, one receive request per connection, buffers taken from a ring when data
    /// comes.
    UringMultishot,
    /// One task per connection on the engine, over worker threads.
    EngineThreads,
    /// One task per connection on the engine, over select.
    EngineSelect,
    /// One task per connection on the engine, over poll.
    EnginePoll,
    /// One task per connection on the engine, over epoll.
    EngineEpoll,
    /// One task per connection on the engine, over io_uring.
    EngineIoUring,
}

impl Model {
    /// Every model, from the oldest interface to the newest.
    pub const ALL: &[Model] = &[
        Model::Threads,
        Model::Select,
        Model::Poll,
        Model::EpollLt,
        Model::EpollEt,
        Model::Uring,
        Model::UringMultishot,
        Model::EngineThreads,
        Model::EngineSelect,
        Model::EnginePoll,
        Model::EngineEpoll,
        Model::EngineIoUring,
    ];

    /// Returns the name used on command lines and in records.
    pub const fn name(self) -> &'static str {
        match self {
            Model::Threads => "threads",
            Model::Select => "select",
            Model::Poll => "poll",
            Model::EpollLt => "epoll-lt",
            Model::EpollEt => "epoll-et",
            Model::Uring => "uring",
            Model::UringMultishot => "uring-multishot",
            Model::EngineThreads => "engine-threads",
            Model::EngineSelect => "engine-select",
            Model::EnginePoll => "engine-poll",
            Model::EngineEpoll => "engine-epoll",
            Model::EngineIoUring => "engine-io_uring",
        }
    }

    /// Returns why a model ignores [`Options::batch`]; `None` if it uses it.
    pub const fn no_batch(self) -> Option<&'static str> {
        match self {
            Model::Threads => Some("each thread has one connection, so there is no turn over several"),
            Model::Select
            | Model::Poll
            | Model::EpollLt
            | Model::EpollEt
            | Model::Uring
            | Model::UringMultishot => None,
            Model::EngineThreads
            | Model::EngineSelect
            | Model::EnginePoll
            | Model::EngineEpoll
            | Model::EngineIoUring => Some("the engine decides how much its turns hold"),
        }
    }

    /// Returns the engine's driver, for models that are on the engine.
    pub fn engine_driver(self) -> Option<ringroad_engine::DriverName> {
        use ringroad_engine::DriverName;
        match self {
            Model::EngineThreads => Some(DriverName::Threads),
            Model::EngineSelect => Some(DriverName::Select),
            Model::EnginePoll => Some(DriverName::Poll),
            Model::EngineEpoll => Some(DriverName::Epoll),
            Model::EngineIoUring => Some(DriverName::IoUring),
            _ => None,
        }
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Model {
    type Err = UnknownName;

    fn from_str(name: &str) -> std::result::Result<Self, UnknownName> {
        let known = || Model::ALL.iter().map(|model| model.name());
        Model::ALL
            .iter()
            .copied()
            .find(|model| model.name() == name)
            .ok_or_else(|| UnknownName::new("model", name, known()))
    }
}

/// An unknown name, with the known ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName {
    kind: &'static str,
    name: String,
    known: String,
}

impl UnknownName {
    fn new<'a>(kind: &'static str, name: &str, known: impl Iterator<Item = &'a str>) -> Self {
        UnknownName { kind, name: name.to_owned(), known: known.collect::<Vec<_>>().join(", ") }
    }
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown {} {:?} (one of: {})", self.kind, self.name, self.known)
    }
}

impl std::error::Error for UnknownName {}

/// Options that all models have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Size of the receive buffer, in bytes, at least 1. Loops have one for all connections, so that an idle
    /// connection holds none; `threads` has one per thread.
    pub buffer_bytes: usize,
    /// How long an answer waits before it is sent, which simulates a slow back end: it delays its own
    /// connection and no other. One wait covers all answers to one receive.
    pub delay: Duration,
    /// CPU time spent for each request (`http`) or received chunk (`echo`), which simulates business logic:
    /// it blocks the serving thread. Calibrated when the server starts; meant for 0.1 µs and more.
    pub work: Duration,
    /// Maximum number of ready connections that a model serves between two waits; on io_uring, of completions
    /// that it takes, each receive and each send being one. `None` is the model's own choice: 1024 with
    /// epoll, otherwise all. [`Model::no_batch`] names the models that refuse it.
    pub batch: Option<NonZeroU16>,
    /// Sets `SO_REUSEPORT`, so that several servers share the port (`socket(7)`).
    pub reuse_port: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            buffer_bytes: 4096,
            delay: Duration::ZERO,
            work: Duration::ZERO,
            batch: None,
            reuse_port: false,
        }
    }
}

/// Totals of a server from start to stop. [`fmt::Display`] writes them as the JSON line
/// `{"totals":{"model":"epoll-et",...}}`, by which a harness checks its own counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// The model that served.
    pub model: Model,
    /// Connections taken and served.
    pub accepted: u64,
    /// Connections taken and closed at once because the model could not hold them.
    pub refused: u64,
    /// HTTP requests answered with 200; 0 for `echo`, which has no messages.
    pub requests: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes the kernel took for sending.
    pub bytes_out: u64,
    /// System calls made to serve, from the first wait to the last close. Calls of the C library that create
    /// and end threads are not counted.
    pub syscalls: u64,
}

impl Totals {
    /// Adds the totals of another server of the same model.
    pub fn add(&mut self, other: &Totals) {
        let Totals { model: _, accepted, refused, requests, bytes_in, bytes_out, syscalls } = other;
        self.accepted += accepted;
        self.refused += refused;
        self.requests += requests;
        self.bytes_in += bytes_in;
        self.bytes_out += bytes_out;
        self.syscalls += syscalls;
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Written by hand: every value is a number or a name of ours, so there is nothing to escape.
        let Totals { model, accepted, refused, requests, bytes_in, bytes_out, syscalls } = self;
        write!(
            f,
            r#"{{"totals":{{"model":"{model}","accepted":{accepted},"refused":{refused},"requests":{requests},"bytes_in":{bytes_in},"bytes_out":{bytes_out},"syscalls":{syscalls}}}}}"#
        )
    }
}

/// An error that prevents a server from starting or continuing: the step, its target, the system's error, and
/// a hint.
#[derive(Debug)]
pub struct Error {
    action: &'static str,
    target: Option<String>,
    source: io::Error,
    hint: Option<&'static str>,
}

/// Result with this crate's error.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Makes an error; `action` is the system call by its kernel name, or a description of the step.
    pub(crate) fn new(action: &'static str, source: io::Error) -> Self {
        Error { action, target: None, source, hint: None }
    }

    pub(crate) fn on(mut self, target: impl fmt::Display) -> Self {
        self.target = Some(target.to_string());
        self
    }

    pub(crate) fn hint(mut self, hint: &'static str) -> Self {
        self.hint = Some(hint);
        self
    }

    /// Returns the kind of the system's error.
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.action)?;
        if let Some(target) = &self.target {
            write!(f, ", on {target}")?;
        }
        write!(f, ": {}", self.source)?;
        if let Some(hint) = self.hint {
            write!(f, " ({hint})")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}
