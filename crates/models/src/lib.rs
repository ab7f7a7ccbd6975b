//! The reference servers: the same echo and HTTP server written once for every way Linux offers of doing I/O.
//!
//! They are floors and lessons. A floor: nothing stands between the program and the system calls, so what an
//! engine costs is what it adds to these. A lesson: each model is one short file that differs from its
//! siblings only in how it waits. What they say is decided in [`protocol`], by all of them alike, so that a
//! ratio between two models compares I/O and nothing else.
//!
//! This crate binds, serves and counts. It leaves arguments, signals and printing of results to the program
//! around it. Start at [`Server`]; then read `hand/poll.rs`, the plainest loop, and `hand/epoll.rs`, the
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
    /// The address is in use, not of this machine or not permitted, or `options` hold a value no model can
    /// serve with. The error names the address.
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

    /// Serves on the calling thread until `stop` is requested, then closes every connection as it stands and
    /// tells what was done. A connection that fails ends alone; the server goes on.
    ///
    /// # Errors
    /// Only what makes serving impossible: the listener or the wait call itself failed.
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
    /// One thread in `epoll(7)`, level-triggered: the kernel repeats itself while there is something to do.
    EpollLt,
    /// One thread in `epoll(7)`, edge-triggered: the kernel speaks once per change, the program remembers.
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
    /// Every model, from the oldest idea to the newest.
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

    /// Returns why [`Options::batch`] means nothing to it; `None` where it does.
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

/// A name that stands for nothing here, with the names that do.
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

/// How a model serves, whatever the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Size of the receive buffer, in bytes, at least 1. Loops have one for all connections, so that an idle
    /// connection holds none; `threads` has one per thread.
    pub buffer_bytes: usize,
    /// How long an answer waits before it is sent, standing for a back end that is asked and answers later:
    /// it holds up its own connection and no other. One wait covers all answers to one receive.
    pub delay: Duration,
    /// CPU time burnt for each request (`http`) or received chunk (`echo`), standing for business logic: it
    /// holds up the thread that serves. Calibrated when the server starts; meant for 0.1 µs and more.
    pub work: Duration,
    /// How many ready connections a model serves between two waits, at most; on io_uring, how many
    /// completions it takes, of which a receive is one and a send another. `None` is the model's own choice:
    /// with epoll 1024, else all there are. [`Model::no_batch`] names the models that refuse it.
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

/// What a server did from start to stop. [`fmt::Display`] writes it as the one JSON line
/// `{"totals":{"model":"epoll-et",...}}` by which a harness checks its own counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// The model that served.
    pub model: Model,
    /// Connections taken and served.
    pub accepted: u64,
    /// Connections taken and closed at once because the model could not hold them.
    pub refused: u64,
    /// HTTP requests answered with 200; 0 for `echo`, which knows bytes and no messages.
    pub requests: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes the kernel took for sending.
    pub bytes_out: u64,
    /// System calls made to serve, from the first wait to the last close. What the C library does to create
    /// and end a thread is its own and not counted.
    pub syscalls: u64,
}

impl Totals {
    /// Adds what another server of the same model did.
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

/// A server could not start or not go on: what was attempted, on what, what the system said, what may help.
#[derive(Debug)]
pub struct Error {
    action: &'static str,
    target: Option<String>,
    source: io::Error,
    hint: Option<&'static str>,
}

/// Shorthand for what this crate returns.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// `action` is the system call, by its kernel name, or what was being done.
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

    /// Returns what the system said.
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
