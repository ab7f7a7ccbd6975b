//! The server: its addresses, routes and workers, and its stop.
//!
//! A worker is a thread with a runtime of its own ([`worker`]); workers share a few counts. Start at
//! [`Server`].

mod backlog;
mod boxes;
mod carry;
mod connection;
mod error;
mod exchange;
mod extract;
mod handshakes;
mod http2;
mod interims;
pub mod layers;
mod linger;
mod overlap;
mod per_address;
mod proxy;
mod refused;
mod released;
mod route;
mod router;
mod seats;
#[cfg(feature = "tracing")]
mod spans;
mod takeover;
mod turns;
mod unencrypted;
mod waiters;
mod worker;
pub mod wrap;

pub use error::ServerError;
pub use extract::{Cookies, Extension, Extracted, FromRequest};
#[cfg(feature = "json")]
pub use extract::{Form, Path, Query};
pub use per_address::PerAddress;
pub use proxy::Network;
pub use refused::{Reason, Refused};
pub use released::{Released, Sockets};
pub use route::{
    Answering, Handler, Methods, Plain, State, WithState, any, delete, get, options, patch, post, put,
};
pub use router::{Layer, LocalServer, Next, Router};

use crate::counters::Counters;
use crate::h2::Http2;
use crate::message::OnClientGone;
use crate::transport::{Bound, ListenAt, Socket, patiently};
use ringroad_engine::choose::{Choice, Wish, choose};
use ringroad_engine::net::{ListenOptions, TcpListener};
use ringroad_engine::signal::{Signal, Signals};
use ringroad_engine::workers::{self as threads, Crew, OnPanic};
use ringroad_engine::{Builder, Runtime, spawn};
use ringroad_wire::{Deadlines, Limits};
use route::Routes;
use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak, mpsc};
use std::thread;
use std::time::Duration;
use worker::{Settings, Worker, WorkerHandle, Workers};

/// Default time that a stopping server waits for requests in progress.
const DRAIN: Duration = Duration::from_secs(10);

/// Default time that a stopping server waits for connections with another protocol. Those that do not watch
/// for the stop would delay it without a benefit.
const UPGRADED_GRACE: Duration = Duration::from_secs(3);

/// Default maximum of unsent answers of a worker's connections, in bytes. Above it the worker saves memory.
const UNSENT_BYTES_MAX: usize = 64 << 20;

/// Default maximum number of TLS handshakes that a worker begins at once.
const HANDSHAKES_MAX: usize = 64;

/// Default time for a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Builds a server.
///
/// ```no_run
/// use ringroad_http::{Html, Request, Server, get};
///
/// async fn hello(request: Request) -> Html<String> {
///     Html(format!("<h1>Hello, {} letters</h1>", request.param("name").unwrap_or_default().len()))
/// }
///
/// Server::new().bind("127.0.0.1:8080")?.route("/{name}", get(hello)).serve()?;
/// # Ok::<(), ringroad_http::ServerError>(())
/// ```
pub struct Server<S = ()> {
    listen_at: ListenAt,
    wish: Option<Wish>,
    workers: usize,
    reuse_port: bool,
    /// Whether another server of this process listens at the same address.
    shares: bool,
    /// Whether other servers of this process listen at addresses that overlap this one's.
    overlaps: bool,
    /// Whether it refuses IPv4 connections at `[::]`.
    only_v6: bool,
    /// The socket of the server that this one listens beside.
    beside: Option<Socket>,
    /// The sockets that the workers take over from others.
    given: Vec<Socket>,
    routes: Routes<S>,
    make_state: Arc<dyn Fn() -> S + Send + Sync>,
    settings: Settings,
    tune: Arc<dyn Fn(Builder) -> Builder + Send + Sync>,
}

impl Server<()> {
    /// Makes a server without routes and with one worker. It listens on 127.0.0.1:8080, unless
    /// [`bind`](Self::bind) is called.
    pub fn new() -> Server<()> {
        Server::with_state(|| ())
    }
}

impl Default for Server<()> {
    fn default() -> Server<()> {
        Server::new()
    }
}

impl<S: 'static> Server<S> {
    /// Makes a server with a state that its handlers share. `make` is called once on each worker's thread, so
    /// that the state needs no lock.
    pub fn with_state(make: impl Fn() -> S + Send + Sync + 'static) -> Server<S> {
        Server {
            listen_at: ListenAt::Tcp(SocketAddr::from(([127, 0, 0, 1], 8080))),
            wish: None,
            workers: 1,
            reuse_port: false,
            shares: false,
            overlaps: false,
            only_v6: false,
            beside: None,
            given: Vec::new(),
            routes: Routes::new(),
            make_state: Arc::new(make),
            settings: Settings {
                limits: Limits::default(),
                deadlines: Deadlines::default(),
                drain: DRAIN,
                upgraded_grace: UPGRADED_GRACE,
                dated: true,
                connections_max: usize::MAX,
                unsent_bytes_max: UNSENT_BYTES_MAX,
                on_client_gone: OnClientGone::default(),
                on_refused: None,
                per_address: None,
                proxy_from: Arc::new([]),
                http2: None,
                prior_knowledge: false,
                tls: None,
                handshakes_max: HANDSHAKES_MAX,
                handshake_timeout: HANDSHAKE_TIMEOUT,
            },
            tune: Arc::new(|builder| builder),
        }
    }

    /// Makes a server with a state that all its workers share: each gets a clone. Put what they change
    /// together into an [`Arc`] with a lock or atomics.
    pub fn with_shared_state(state: S) -> Server<S>
    where
        S: Clone + Send + Sync,
    {
        Server::with_state(move || state.clone())
    }

    /// Listens at `address`: as text `127.0.0.1:8080`, `[::]:80` (port 0 lets the kernel choose one),
    /// `unix:/run/site.sock`, or `systemd:NAME` for a socket that was passed to this process ([`ListenAt`]).
    ///
    /// # Errors
    /// It is not an address. The start of the server reports an address that cannot be bound.
    pub fn bind(mut self, address: impl fmt::Display) -> Result<Server<S>, ServerError> {
        let address = address.to_string();
        self.listen_at =
            address.parse().map_err(|why| ServerError::Address(format!("{address:?}: {why}")))?;
        Ok(self)
    }

    /// Limits the connections of one client address; several servers may share the limit. A connection beyond
    /// it is closed. Behind a PROXY header the address is that of the header.
    #[must_use]
    pub fn per_address(mut self, bound: Arc<PerAddress>) -> Server<S> {
        self.settings.per_address = Some(bound);
        self
    }

    /// Expects a PROXY header, version 1 or 2, at the beginning of each connection from these networks, and
    /// from no others. The client's address is then that of the header. A connection from these networks
    /// without a header is closed.
    #[must_use]
    pub fn proxy_from(mut self, networks: impl IntoIterator<Item = Network>) -> Server<S> {
        self.settings.proxy_from = networks.into_iter().collect();
        self
    }

    /// Also accepts HTTP/2, from clients that choose it in the TLS handshake.
    #[must_use]
    pub fn http2(mut self, settings: Http2) -> Server<S> {
        self.settings.http2 = Some(Arc::new(settings));
        self
    }

    /// Also accepts HTTP/2 on a connection without TLS that begins with its preface (RFC 9113 §3.3, "prior
    /// knowledge", `h2c`). All other connections use HTTP/1.1.
    #[must_use]
    pub fn http2_prior_knowledge(mut self, settings: Http2) -> Server<S> {
        self.settings.prior_knowledge = true;
        self.http2(settings)
    }

    /// Accepts TLS connections only. `tls` has the certificates, and may replace them while the server runs.
    /// The parameters agreed on are in [`ConnectionInfo::tls`](crate::ConnectionInfo::tls).
    #[must_use]
    pub fn tls(mut self, tls: Arc<crate::tls::Server>) -> Server<S> {
        self.settings.tls = Some(tls);
        self
    }

    /// Sets how many TLS handshakes each worker begins at once: 64 by default. The others wait in line,
    /// behind those that have begun. A handshake that waits for its client does not count. A worker takes
    /// only a few handshake steps in a turn, so that its other connections do not wait for long.
    #[must_use]
    pub fn handshakes_max(mut self, handshakes: NonZeroUsize) -> Server<S> {
        self.settings.handshakes_max = handshakes.get();
        self
    }

    /// Sets the time for a TLS handshake, including the wait in line: 10 s by default.
    #[must_use]
    pub fn handshake_timeout(mut self, span: Duration) -> Server<S> {
        self.settings.handshake_timeout = span;
        self
    }

    /// Sets what happens to a handler if its client leaves before the answer: handlers of GET are dropped by
    /// default. See [`Request::set_on_client_gone`](crate::Request::set_on_client_gone) for single requests.
    #[must_use]
    pub fn on_client_gone(mut self, what: OnClientGone) -> Server<S> {
        self.settings.on_client_gone = what;
        self
    }

    /// Calls `tell` for each request that is answered without a handler, because of the protocol, its limits
    /// or its deadlines, or because its handler panicked. Handlers cannot log these requests. `tell` runs on
    /// the workers, and blocks them meanwhile.
    #[must_use]
    pub fn on_refused(mut self, tell: impl Fn(&Refused<'_>) + Send + Sync + 'static) -> Server<S> {
        self.settings.on_refused = Some(Arc::new(tell));
        self
    }

    /// Sets how many bytes of unsent answers the connections of each worker may hold: 64 MiB by default.
    /// Above half of it, requests that arrived together are answered one by one. Above it, the connections
    /// with clients that have taken nothing for longest are closed at once. Shared and static bodies and
    /// files do not count.
    #[must_use]
    pub fn unsent_bytes_max(mut self, bytes: usize) -> Server<S> {
        self.settings.unsent_bytes_max = bytes;
        self
    }

    /// Sets how long a stopping server waits for connections that speak another protocol: 3 s by default, and
    /// never longer than [`drain`](Self::drain). See [`Upgraded::stopping`](crate::Upgraded::stopping).
    #[must_use]
    pub fn upgraded_grace(mut self, span: Duration) -> Server<S> {
        self.settings.upgraded_grace = span;
        self
    }

    /// Adds a route for paths that match `pattern`: `/users/{id}` takes one segment, `/files/{*path}` all the
    /// remaining ones. Literal segments take precedence over parameters.
    #[must_use]
    pub fn route(mut self, pattern: &str, methods: Methods<S>) -> Server<S> {
        self.routes.add(pattern, methods);
        self
    }

    /// Sets the handler of requests without a route; 404 by default.
    #[must_use]
    pub fn fallback<K: 'static, H: Handler<S, K>>(mut self, handler: H) -> Server<S> {
        self.routes.set_fallback(handler);
        self
    }

    /// Adds the routes of a router, with its layers and its fallback around them. The server's own routes
    /// have no layers.
    #[must_use]
    pub fn router(mut self, router: Router<S>) -> Server<S> {
        self.routes.nest("", router.routes);
        self
    }

    /// Makes the server's routes on this thread, with a state of their own and without a socket: for tests.
    ///
    /// ```
    /// use ringroad_http::{Path, Request, Server, Status, get};
    ///
    /// async fn double(Path(number): Path<u32>) -> String {
    ///     (number * 2).to_string()
    /// }
    ///
    /// ringroad_engine::run(async {
    ///     let server = Server::new().route("/double/{number}", get(double)).local()?;
    ///     let mut response = server.call(Request::builder("GET", "/double/21").finish()?).await;
    ///     assert_eq!(response.take_body().bytes(100).await?, b"42");
    ///     let response = server.call(Request::builder("GET", "/double/x").finish()?).await;
    ///     assert_eq!(response.status_code(), Status::BAD_REQUEST);
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })??;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A route is invalid.
    pub fn local(self) -> Result<LocalServer, ServerError> {
        LocalServer::new(&self.routes, (self.make_state)())
    }

    /// Sets the number of workers: threads with a runtime and a listener of their own. 0 means the number of
    /// CPUs that this process may use.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Server<S> {
        let available = || thread::available_parallelism().map_or(1, NonZeroUsize::get);
        self.workers = if workers == 0 { available() } else { workers };
        self
    }

    /// Uses this driver and no other. Without this call the variable `RINGROAD_DRIVER` may name one;
    /// otherwise the first one that passes its trial on this machine is used.
    #[must_use]
    pub fn driver(mut self, wish: Wish) -> Server<S> {
        self.wish = Some(wish);
        self
    }

    /// Lets other processes listen on the same address (`SO_REUSEPORT`).
    #[must_use]
    pub fn reuse_port(mut self, reuse_port: bool) -> Server<S> {
        self.reuse_port = reuse_port;
        self
    }

    /// Sets the limits of what a client may send.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Server<S> {
        self.settings.limits = limits;
        self
    }

    /// Sets the deadlines. They are kept to within a second.
    #[must_use]
    pub fn deadlines(mut self, deadlines: Deadlines) -> Server<S> {
        self.settings.deadlines = deadlines;
        self
    }

    /// Sets how many connections each worker may have; unlimited by default. At the limit, a new connection
    /// replaces the one that has waited longest for its next request. If all are busy, the new one waits.
    #[must_use]
    pub fn connections_max(mut self, connections: NonZeroUsize) -> Server<S> {
        self.settings.connections_max = connections.get();
        self
    }

    /// Sets how long a stopping server waits for requests in progress: 10 s by default.
    #[must_use]
    pub fn drain(mut self, drain: Duration) -> Server<S> {
        self.settings.drain = drain;
        self
    }

    /// Sets whether responses have a `Date` line: by default they do, as RFC 9110 §6.6.1 requires of servers
    /// with a clock.
    #[must_use]
    pub fn dated(mut self, dated: bool) -> Server<S> {
        self.settings.dated = dated;
        self
    }

    /// Sets a function that changes the settings of each worker's runtime.
    #[must_use]
    pub fn tune(mut self, tune: impl Fn(Builder) -> Builder + Send + Sync + 'static) -> Server<S> {
        self.tune = Arc::new(tune);
        self
    }

    /// Serves until SIGINT or SIGTERM. Then it waits until the requests in progress are complete, or until
    /// the next such signal.
    ///
    /// # Errors
    /// The address cannot be bound, no driver can be used, a route is invalid, or a worker ended with an
    /// error.
    pub fn serve(self) -> Result<(), ServerError> {
        self.serve_and(|_| ())
    }

    /// Serves, and calls `begun` when the server has started, for instance to print its address and driver.
    ///
    /// # Errors
    /// As [`serve`](Self::serve).
    pub fn serve_and(self, begun: impl FnOnce(&Handle)) -> Result<(), ServerError> {
        let handle = self.start_with(true)?;
        begun(&handle);
        handle.wait()
    }

    /// Serves on threads of its own, until the handle stops it.
    ///
    /// # Errors
    /// The address cannot be bound, no driver can be used, or a route is invalid.
    pub fn start(self) -> Result<Handle, ServerError> {
        self.start_with(false)
    }

    fn start_with(self, until_signal: bool) -> Result<Handle, ServerError> {
        let mut choice = choose(self.wish, None).map_err(ServerError::Driver)?;
        let crew_on = |choice: &Choice| self.crew(choice);
        let Ready { crew, jobs } = choice.settle(crew_on, |why| match why {
            ServerError::Runtime(why) => Some(why),
            _ => None,
        })?;
        let workers = Arc::new(Workers::new(self.workers));
        for worker in &workers.handles {
            worker.overlaps.store(self.overlaps, Ordering::Relaxed);
        }
        let listen_at = self.listen_at;
        let mut given = self.given.into_iter();
        let others_listen = given.len() > 0 || self.beside.is_some();
        let mut socket = match (&listen_at, self.beside) {
            (_, Some(socket)) => Some(socket),
            (ListenAt::Tcp(address), None) => Some(Socket::Address(*address)),
            // The first worker opens the socket.
            _ => None,
        };
        let mut bound = Bound::Tcp(SocketAddr::from(([0, 0, 0, 0], 0)));
        let mut jobs = jobs.into_iter().enumerate();
        while let Some((me, give)) = jobs.next() {
            let (tell, told) = mpsc::channel();
            let job = Job {
                listen_at: listen_at.clone(),
                socket: given.next().or_else(|| socket.clone()),
                // The first worker verifies that no other program has the address.
                probe: me == 0
                    && (self.workers > 1 || self.shares)
                    && !self.reuse_port
                    && !others_listen
                    && !self.overlaps,
                reuse_port: self.reuse_port || self.workers > 1 || self.shares || self.overlaps,
                only_v6: self.only_v6,
                routes: self.routes.clone(),
                make_state: Arc::clone(&self.make_state),
                settings: self.settings.clone(),
                workers: Arc::clone(&workers),
                me,
                until_signal: until_signal && me == 0,
            };
            // Never fails: the thread waits for the job.
            let _ = give.send((job, tell));
            // A closed channel means a panic, which the join reports.
            let started = told.recv().unwrap_or(Err(ServerError::Panicked("while it began".to_owned())));
            match started {
                Ok((at, opened)) => (bound, socket) = (at, Some(opened.of_server())),
                Err(why) => {
                    // Threads without a job end.
                    drop(jobs);
                    let handle = Handle { bound, socket, choice, workers, crew };
                    if others_listen {
                        handle.leave_sockets();
                    }
                    handle.stop();
                    // The first error is reported.
                    let _ = handle.wait();
                    return Err(why);
                }
            }
        }
        Ok(Handle { bound, socket, choice, workers, crew })
    }

    /// Starts the threads on a driver, and makes their runtimes. They change nothing else before they get
    /// their jobs. If one has no runtime, all end.
    fn crew(&self, choice: &Choice) -> Result<Ready<S>, ServerError> {
        // Each worker ends by the server's own stop, which completes requests in progress. `wait` reports a
        // panic.
        let settings = threads::Workers::new(self.workers).choice(choice).name("ringroad-http");
        let tune = Arc::clone(&self.tune);
        let settings = settings.on_panic(OnPanic::Continue).runtime(move |builder| tune(builder));
        let mut crew = settings.crew()?;
        let mut jobs = Vec::new();
        for _ in 0..self.workers {
            let (give, given) = mpsc::channel::<(Job<S>, mpsc::Sender<Begun>)>();
            let work = move |_, runtime| match given.recv() {
                Ok((job, tell)) => job.run(runtime, &tell),
                Err(mpsc::RecvError) => Ok(()),
            };
            // The jobs are dropped before the crew, which waits for its threads.
            if let Err(why) = crew.add(work) {
                drop(jobs);
                return Err(ServerError::Runtime(why));
            }
            jobs.push(give);
        }
        Ok(Ready { crew, jobs })
    }
}

/// Threads that have their runtimes and wait for their jobs. The jobs are dropped first: without them the
/// threads end.
struct Ready<S> {
    /// For each thread: the channel for its job, which holds the channel for the result of its start.
    jobs: Vec<mpsc::Sender<(Job<S>, mpsc::Sender<Begun>)>>,
    crew: Crew<Result<(), ServerError>>,
}

impl<S> fmt::Debug for Server<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("listen_at", &self.listen_at).field("workers", &self.workers).finish()
    }
}

/// The parameters of a worker's thread.
struct Job<S> {
    listen_at: ListenAt,
    /// The socket to listen on, once it is known.
    socket: Option<Socket>,
    probe: bool,
    reuse_port: bool,
    only_v6: bool,
    routes: Routes<S>,
    make_state: Arc<dyn Fn() -> S + Send + Sync>,
    settings: Settings,
    workers: Arc<Workers>,
    me: usize,
    until_signal: bool,
}

/// The address of a worker, and the socket for the next one.
type Listening = (Bound, Socket);

type Begun = Result<Listening, ServerError>;

impl<S: 'static> Job<S> {
    fn run(self, runtime: Runtime, tell: &mpsc::Sender<Begun>) -> Result<(), ServerError> {
        let _closes = Closes(self.workers.handles.get(self.me).cloned());
        match self.begin(runtime) {
            Ok((runtime, worker, begun)) => {
                // The starting thread may have given up.
                let _ = tell.send(Ok(begun));
                let ran = worker.run(&runtime);
                drop(worker);
                // Drops connections that have run out of time, and what they hold of the worker.
                let shut = runtime.shutdown(Duration::from_secs(5));
                worker::leave();
                ran?;
                // The kernel's memory is leaked rather than freed; a caller could do nothing about it.
                let _ = shut;
                Ok(())
            }
            Err(why) => {
                worker::leave();
                let _ = tell.send(Err(why));
                Ok(())
            }
        }
    }

    fn begin(self, runtime: Runtime) -> Result<(Runtime, std::rc::Rc<Worker>, Listening), ServerError> {
        let state = State(std::rc::Rc::new((self.make_state)()));
        let router = self.routes.make(&state);
        let router = router.map_err(|(pattern, why)| ServerError::Route { pattern, why })?;
        let worker = Worker::new(router, self.settings, Arc::clone(&self.workers), self.me);
        // `None` leaves the system's setting.
        let alone = ListenOptions { only_v6: self.only_v6.then_some(true), ..ListenOptions::default() };
        let options = ListenOptions { reuse_port: self.reuse_port, ..alone };
        let (probe, until_signal, me) = (self.probe, self.until_signal, self.me);
        let (listen_at, socket) = (self.listen_at, self.socket);
        let accepting = std::rc::Rc::clone(&worker);
        let workers = Arc::clone(&self.workers);
        let listening = runtime.block_on(async move {
            let mut socket = match socket {
                Some(socket) => socket,
                None => patiently(|| Socket::open(&listen_at)).await?,
            };
            if let (true, Socket::Address(address)) = (probe, &mut socket) {
                let alone = patiently(|| Ok(TcpListener::bind_with(*address, alone)?)).await?;
                *address = alone.local_addr()?;
                drop(alone);
            }
            if let Some(file) = socket.file() {
                *workers.file.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
            }
            let (listener, bound) = patiently(|| socket.listen(options)).await?;
            if let Some(handle) = workers.handles.get(me) {
                let mut kept = handle.socket.lock().unwrap_or_else(PoisonError::into_inner);
                *kept = socket.of_worker(&listener);
            }
            if let (Socket::Address(address), Bound::Tcp(at)) = (&mut socket, &bound) {
                // The next worker uses the port that the kernel has chosen.
                *address = *at;
            }
            if until_signal {
                let signals = Signals::new(&[Signal::SIGINT, Signal::SIGTERM])?;
                spawn(async move {
                    signals.recv().await;
                    stop(&workers);
                    signals.recv().await;
                    stop_at_once(&workers);
                })
                .detach();
            }
            spawn(accepting.accept(listener)).detach();
            Ok::<_, ServerError>((bound, socket))
        })?;
        let begun = listening?;
        if let Some(handle) = self.workers.handles.get(self.me) {
            *handle.remote.lock().unwrap_or_else(PoisonError::into_inner) = Some(runtime.remote());
        }
        Ok((runtime, worker, begun))
    }
}

/// Closes the additional descriptors of a worker's listener at its end, also after a panic, so that no client
/// waits in the backlog of a socket on which nothing accepts.
struct Closes(Option<Arc<WorkerHandle>>);

impl Drop for Closes {
    fn drop(&mut self) {
        if let Some(handle) = &self.0 {
            handle.forget_socket();
        }
    }
}

fn stop(workers: &Workers) {
    workers.stopping.store(true, Ordering::Release);
    workers.remove_file();
    on_each(workers, worker::stop_here);
}

fn stop_at_once(workers: &Workers) {
    workers.at_once.store(true, Ordering::Release);
    stop(workers);
}

/// Runs `work` on each worker that still runs.
fn on_each(workers: &Workers, work: impl FnOnce() + Clone + Send + 'static) {
    for handle in &workers.handles {
        if let Some(remote) = handle.remote() {
            let work = work.clone();
            // Refused if that worker has ended.
            let _ = remote.spawn(move || async move { work() });
        }
    }
}

/// A running server. Dropping the handle stops the server and waits for it.
pub struct Handle {
    bound: Bound,
    socket: Option<Socket>,
    choice: Choice,
    workers: Arc<Workers>,
    crew: Crew<Ended>,
}

/// The output of a worker.
type Ended = Result<(), ServerError>;

impl Handle {
    /// Returns the TCP address it listens on; 0.0.0.0:0 if it listens on a Unix socket.
    pub fn address(&self) -> SocketAddr {
        self.bound.tcp().unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0)))
    }

    /// Returns the address it listens on.
    pub fn bound(&self) -> &Bound {
        &self.bound
    }

    /// Sets the limits for later requests.
    pub fn set_limits(&self, limits: Limits) {
        self.on_each_worker(move |worker| worker.set_limits(limits));
    }

    /// Sets the deadlines of all connections, including present waits.
    pub fn set_deadlines(&self, deadlines: Deadlines) {
        self.on_each_worker(move |worker| worker.set_deadlines(deadlines));
    }

    /// Sets how long a stop waits for requests in progress ([`Server::drain`]), and for connections that
    /// speak another protocol ([`Server::upgraded_grace`]).
    pub fn set_drain(&self, drain: Duration, upgraded_grace: Duration) {
        self.on_each_worker(move |worker| {
            if !worker.is_leaving() {
                worker.set_drain(drain, upgraded_grace);
            }
        });
    }

    /// Sets how many connections each worker may have ([`Server::connections_max`]). Present connections
    /// above a smaller limit stay until they end.
    pub fn set_connections_max(&self, connections: NonZeroUsize) {
        self.on_each_worker(move |worker| worker.set_connections_max(connections.get()));
    }

    /// Sets how many bytes of answers each worker may hold unsent ([`Server::unsent_bytes_max`]).
    pub fn set_unsent_bytes_max(&self, bytes: usize) {
        self.on_each_worker(move |worker| worker.set_unsent_bytes_max(bytes));
    }

    fn on_each_worker(&self, change: impl FnOnce(&Worker) + Clone + Send + 'static) {
        on_each(&self.workers, move || {
            if let Some(worker) = worker::here() {
                change(&worker);
            }
        });
    }

    /// Returns the driver, and why it was chosen.
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        counters(&self.workers)
    }

    /// Returns a reader of the counters for other threads.
    pub fn stats(&self) -> Stats {
        Stats { workers: Arc::clone(&self.workers) }
    }

    /// Stops the server. New clients cannot connect. Requests that have begun or are on their way are
    /// answered with `Connection: close`, including those of connections in the kernel's backlog.
    pub fn stop(&self) {
        stop(&self.workers);
    }

    /// Stops the server without waiting for requests in progress.
    pub fn stop_at_once(&self) {
        stop_at_once(&self.workers);
    }

    /// Returns a handle that shows whether the server still listens, for another server that needs its
    /// address: a stopping server listens for a moment longer.
    pub fn listens(&self) -> Listens {
        Listens { workers: Arc::downgrade(&self.workers) }
    }

    /// Returns whether a worker has ended: the server was stopped, or [`wait`](Self::wait) has an error to
    /// return.
    pub fn has_ended(&self) -> bool {
        self.crew.workers().any(|worker| self.crew.has_ended(worker))
    }

    /// Waits until it has stopped.
    ///
    /// # Errors
    /// That of the first worker that ended with an error or a panic.
    pub fn wait(mut self) -> Result<(), ServerError> {
        self.join()
    }

    fn join(&mut self) -> Result<(), ServerError> {
        let mut first = Ok(());
        while let Some(ended) = join_next(&mut self.crew) {
            if ended.is_err() {
                // Without one of its workers the server is incomplete.
                stop(&self.workers);
                first = first.and(ended);
            }
        }
        self.socket = None;
        self.workers.remove_file();
        first
    }
}

/// Waits for the worker with the lowest index. Returns `None` if none is left.
fn join_next(crew: &mut Crew<Ended>) -> Option<Ended> {
    let (_, ended) = crew.join_next()?;
    Some(ended.unwrap_or_else(|why| Err(why.into())))
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.crew.workers().len() > 0 {
            self.stop();
            // A drop cannot return an error.
            let _ = self.join();
        }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("bound", &self.bound).field("driver", &self.choice.driver()).finish()
    }
}

/// Reports whether a server listens, from any thread. It keeps nothing of the server alive.
#[derive(Clone)]
pub struct Listens {
    workers: Weak<Workers>,
}

impl Listens {
    /// Returns whether a worker has a listener. `false` once all are closed, even while requests are still
    /// answered.
    pub fn now(&self) -> bool {
        self.workers.upgrade().is_some_and(|workers| workers.listen())
    }
}

impl fmt::Debug for Listens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listens").field("now", &self.now()).finish()
    }
}

/// Reads a server's counters, from any thread.
#[derive(Clone)]
pub struct Stats {
    workers: Arc<Workers>,
}

impl Stats {
    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        counters(&self.workers)
    }
}

impl fmt::Debug for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stats")
    }
}

fn counters(workers: &Workers) -> Counters {
    let mut all = Counters::default();
    for worker in &workers.handles {
        all.add(&worker.counts);
        all.connections += worker.connections.load(Ordering::Relaxed) as u64;
    }
    all
}
