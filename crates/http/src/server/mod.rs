//! The server: where it listens, what it answers, how many workers it has, and how it stops.
//!
//! A worker is a thread with everything of its own ([`worker`]); what they share is a few counts. Start at
//! [`Server`].

mod connection;
mod exchange;
pub(crate) mod seats;
pub(crate) mod worker;

use crate::counters::Counters;
use crate::error::ServerError;
use crate::route::{Handler, Methods, Routes, State};
use ringroad_engine::choose::{Choice, Wish, choose};
use ringroad_engine::net::{ListenOptions, TcpListener};
use ringroad_engine::signal::{Signal, Signals};
use ringroad_engine::{Builder, Runtime, spawn};
use ringroad_wire::{Deadlines, Limits};
use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, mpsc};
use std::thread;
use std::time::Duration;
use worker::{Crew, Settings, Worker};

/// How long a server that was told to stop waits for what it has begun, unless told otherwise.
const DRAIN: Duration = Duration::from_secs(10);

/// A server to be.
///
/// ```no_run
/// use ringroad_http::{Html, Request, Server, get};
///
/// async fn hello(request: Request) -> Html<String> {
///     Html(format!("<h1>Hello {}</h1>", request.param("name").unwrap_or("World".into()).len()))
/// }
///
/// Server::new().bind("127.0.0.1:8080")?.route("/{name}", get(hello)).serve()?;
/// # Ok::<(), ringroad_http::ServerError>(())
/// ```
pub struct Server<S = ()> {
    address: Option<SocketAddr>,
    wish: Option<Wish>,
    workers: usize,
    reuse_port: bool,
    routes: Routes<S>,
    make_state: Arc<dyn Fn() -> S + Send + Sync>,
    settings: Settings,
    tune: Arc<dyn Fn(Builder) -> Builder + Send + Sync>,
}

impl Server<()> {
    /// One without routes and without an address, with one worker.
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
    /// One whose handlers get what `make` makes: once for each worker, on its thread, so that it needs no lock.
    pub fn with_state(make: impl Fn() -> S + Send + Sync + 'static) -> Server<S> {
        Server {
            address: None,
            wish: None,
            workers: 1,
            reuse_port: false,
            routes: Routes::new(),
            make_state: Arc::new(make),
            settings: Settings {
                limits: Limits::default(),
                deadlines: Deadlines::default(),
                drain: DRAIN,
                dated: true,
                connections_max: usize::MAX,
            },
            tune: Arc::new(|builder| builder),
        }
    }

    /// Listens on `address`, as `127.0.0.1:8080` or `[::]:80`; port 0 lets the kernel choose one.
    ///
    /// # Errors
    /// It is not an address. Whether it can be had turns out when the server starts.
    pub fn bind(mut self, address: impl fmt::Display) -> Result<Server<S>, ServerError> {
        let address = address.to_string();
        self.address = Some(address.parse().map_err(|_| ServerError::Address(address))?);
        Ok(self)
    }

    /// Answers requests whose path fits `pattern`: `/users/{id}` takes one segment, `/files/{*path}` all that are
    /// left. Literal segments come before parameters.
    #[must_use]
    pub fn route(mut self, pattern: &str, methods: Methods<S>) -> Server<S> {
        self.routes.add(pattern, methods);
        self
    }

    /// Answers what no route fits; 404 otherwise.
    #[must_use]
    pub fn fallback<K, H: Handler<S, K>>(mut self, handler: H) -> Server<S> {
        self.routes.set_fallback(handler);
        self
    }

    /// So many threads, each with a runtime and a listener of its own; at least 1. 0: as many as this process may
    /// run at a time.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Server<S> {
        let available = || thread::available_parallelism().map_or(1, NonZeroUsize::get);
        self.workers = if workers == 0 { available() } else { workers };
        self
    }

    /// On this driver and no other, or on whatever works best. What nobody says here, the variable
    /// `RINGROAD_DRIVER` may say.
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

    /// How much of each thing a client may send.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Server<S> {
        self.settings.limits = limits;
        self
    }

    /// How long things may take. They are kept to within a second.
    #[must_use]
    pub fn deadlines(mut self, deadlines: Deadlines) -> Server<S> {
        self.settings.deadlines = deadlines;
        self
    }

    /// How many connections each worker has at most; without a limit of ours by default. At the limit a worker does
    /// not accept until one of its connections ends: who comes then waits in the kernel's backlog (on io_uring up to
    /// 64 of them are taken out of it before).
    #[must_use]
    pub fn connections_max(mut self, connections: NonZeroUsize) -> Server<S> {
        self.settings.connections_max = connections.get();
        self
    }

    /// How long the server waits, when it is told to stop, for requests it has begun: 10 s by default.
    #[must_use]
    pub fn drain(mut self, drain: Duration) -> Server<S> {
        self.settings.drain = drain;
        self
    }

    /// Whether responses tell the `Date`: they do by default, as RFC 9110 §6.6.1 asks of who has a clock.
    #[must_use]
    pub fn dated(mut self, dated: bool) -> Server<S> {
        self.settings.dated = dated;
        self
    }

    /// Sets what a worker's runtime is made with.
    #[must_use]
    pub fn tune(mut self, tune: impl Fn(Builder) -> Builder + Send + Sync + 'static) -> Server<S> {
        self.tune = Arc::new(tune);
        self
    }

    /// Serves until SIGINT or SIGTERM, and then until what has begun is finished.
    ///
    /// # Errors
    /// The address is not to be had, no driver is, a route is wrong; or a worker ended by an error.
    pub fn serve(self) -> Result<(), ServerError> {
        self.serve_and(|_| ())
    }

    /// The same, and tells `begun` when it serves: to say where, and on which driver and why.
    ///
    /// # Errors
    /// As [`serve`](Self::serve).
    pub fn serve_and(self, begun: impl FnOnce(&Handle)) -> Result<(), ServerError> {
        let handle = self.start_with(true)?;
        begun(&handle);
        handle.wait()
    }

    /// Serves on threads of its own, until the handle says stop.
    ///
    /// # Errors
    /// The address is not to be had, no driver is, or a route is wrong.
    pub fn start(self) -> Result<Handle, ServerError> {
        self.start_with(false)
    }

    fn start_with(self, until_signal: bool) -> Result<Handle, ServerError> {
        let address = self.address.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 8080)));
        let choice = choose(self.wish, None).map_err(ServerError::Driver)?;
        let crew = Arc::new(Crew::new(self.workers));
        let mut threads = Vec::new();
        let mut bound = address;
        for me in 0..self.workers {
            let (tell, told) = mpsc::channel();
            let job = Job {
                address: bound,
                choice: choice.clone(),
                // The first makes sure that nobody else has the address.
                probe: me == 0 && self.workers > 1 && !self.reuse_port,
                reuse_port: self.reuse_port || self.workers > 1,
                routes: self.routes.clone(),
                make_state: Arc::clone(&self.make_state),
                settings: self.settings.clone(),
                tune: Arc::clone(&self.tune),
                crew: Arc::clone(&crew),
                me,
                until_signal: until_signal && me == 0,
            };
            let thread = thread::Builder::new().name(format!("ringroad-http-{me}"));
            let started =
                thread.spawn(move || job.run(&tell)).map_err(ServerError::Thread).and_then(|thread| {
                    threads.push(thread);
                    // Gone without a word: it panicked, which joining tells.
                    told.recv().unwrap_or(Err(ServerError::Panicked("while it began".to_owned())))
                });
            match started {
                Ok(address) => bound = address,
                Err(why) => {
                    let handle = Handle { address: bound, choice, crew, threads };
                    handle.stop();
                    // What went wrong first is what is told.
                    let _ = handle.wait();
                    return Err(why);
                }
            }
        }
        Ok(Handle { address: bound, choice, crew, threads })
    }
}

impl<S> fmt::Debug for Server<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("address", &self.address).field("workers", &self.workers).finish()
    }
}

/// What a worker's thread begins with.
struct Job<S> {
    address: SocketAddr,
    choice: Choice,
    probe: bool,
    reuse_port: bool,
    routes: Routes<S>,
    make_state: Arc<dyn Fn() -> S + Send + Sync>,
    settings: Settings,
    tune: Arc<dyn Fn(Builder) -> Builder + Send + Sync>,
    crew: Arc<Crew>,
    me: usize,
    until_signal: bool,
}

type Begun = Result<SocketAddr, ServerError>;

impl<S: 'static> Job<S> {
    fn run(self, tell: &mpsc::Sender<Begun>) -> Result<(), ServerError> {
        match self.begin() {
            Ok((runtime, worker, address)) => {
                // Whoever started us may have given up.
                let _ = tell.send(Ok(address));
                let ran = worker.run(&runtime);
                drop(worker);
                // Connections that are out of time, and what they hold of the worker.
                let shut = runtime.shutdown(Duration::from_secs(5));
                worker::leave();
                ran?;
                // The kernel's memory is leaked rather than freed; there is nothing a caller could do.
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

    fn begin(self) -> Result<(Runtime, std::rc::Rc<Worker>, SocketAddr), ServerError> {
        let runtime =
            (self.tune)(Runtime::builder(self.choice.driver()).features(self.choice.features())).build()?;
        let state = State(std::rc::Rc::new((self.make_state)()));
        let router = self.routes.make(&state);
        let router = router.map_err(|(pattern, why)| ServerError::Route { pattern, why })?;
        let worker = Worker::new(router, self.settings, Arc::clone(&self.crew), self.me);
        let options = ListenOptions { reuse_port: self.reuse_port, ..ListenOptions::default() };
        let (address, probe, until_signal) = (self.address, self.probe, self.until_signal);
        let accepting = std::rc::Rc::clone(&worker);
        let crew = Arc::clone(&self.crew);
        let listening = runtime.block_on(async move {
            let mut address = address;
            if probe {
                let alone = TcpListener::bind(address)?;
                address = alone.local_addr()?;
                drop(alone);
            }
            let listener = TcpListener::bind_with(address, options)?;
            let address = listener.local_addr()?;
            if until_signal {
                let signals = Signals::new(&[Signal::SIGINT, Signal::SIGTERM])?;
                spawn(async move {
                    signals.recv().await;
                    stop(&crew);
                })
                .detach();
            }
            spawn(accepting.accept(listener)).detach();
            ringroad_engine::Result::Ok(address)
        })?;
        let address = listening?;
        if let Some(member) = self.crew.members.get(self.me) {
            *member.remote.lock().unwrap_or_else(PoisonError::into_inner) = Some(runtime.remote());
        }
        Ok((runtime, worker, address))
    }
}

fn stop(crew: &Crew) {
    crew.stopping.store(true, Ordering::Release);
    for member in &crew.members {
        if let Some(remote) = member.remote() {
            // Refused: that worker is gone already.
            let _ = remote.spawn(|| async { worker::stop_here() });
        }
    }
}

/// A server that runs. Dropping it stops it and waits for it.
pub struct Handle {
    address: SocketAddr,
    choice: Choice,
    crew: Arc<Crew>,
    threads: Vec<thread::JoinHandle<Result<(), ServerError>>>,
}

impl Handle {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The driver it runs on, and how it came to that.
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// What it has done so far.
    pub fn counters(&self) -> Counters {
        counters(&self.crew)
    }

    /// Something to read the counters with, for other threads.
    pub fn stats(&self) -> Stats {
        Stats { crew: Arc::clone(&self.crew) }
    }

    /// Tells it to stop: nobody can connect any more; requests that have begun, or are on their way, are answered with
    /// `Connection: close`, those of connections still in the kernel's backlog among them.
    pub fn stop(&self) {
        stop(&self.crew);
    }

    /// Whether some worker has ended: the server was told to stop, or [`wait`](Self::wait) has an error to tell.
    pub fn has_ended(&self) -> bool {
        self.threads.iter().any(thread::JoinHandle::is_finished)
    }

    /// Waits until it has stopped.
    ///
    /// # Errors
    /// The first worker's that ended by an error or a panic.
    pub fn wait(mut self) -> Result<(), ServerError> {
        self.join()
    }

    fn join(&mut self) -> Result<(), ServerError> {
        let mut first = Ok(());
        for thread in self.threads.drain(..) {
            let ended = thread.join().unwrap_or_else(|panic| {
                let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
                let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
                Err(ServerError::Panicked(text.unwrap_or_else(|| "(no message)".to_owned())))
            });
            if ended.is_err() {
                // Without one of its workers a server is not what was asked for.
                stop(&self.crew);
                first = first.and(ended);
            }
        }
        first
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.stop();
            // A drop has nobody to tell.
            let _ = self.join();
        }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("address", &self.address)
            .field("driver", &self.choice.driver())
            .finish()
    }
}

/// Reads a server's counters, from any thread.
#[derive(Clone)]
pub struct Stats {
    crew: Arc<Crew>,
}

impl Stats {
    /// What the server has done so far.
    pub fn counters(&self) -> Counters {
        counters(&self.crew)
    }
}

impl fmt::Debug for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stats")
    }
}

fn counters(crew: &Crew) -> Counters {
    let mut all = Counters::default();
    for member in &crew.members {
        all.add(&member.counts);
        all.connections += member.connections.load(Ordering::Relaxed) as u64;
    }
    all
}
