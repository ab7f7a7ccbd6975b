//! One worker: a thread with a runtime, a listener and connections of its own.
//!
//! Its main future is the sweep: once a second, at the beginning of the clock's second, it reads the clock
//! for all connections (the date, the deadlines) and publishes its counts. Connections come from its own
//! listener, which shares the address with those of the other workers, or are handed over by a worker that
//! has more ([`Workers`]).

use super::connection::{Connection, serve};
use super::handshakes::{self, Handshakes};
use super::http2::Places;
use super::interims::Interims;
use super::per_address::{Counted, PerAddress, TooMany};
use super::proxy::{self, Network};
use super::refused::{HEAD_TOLD_BYTES, OnRefused, Reason, Refused};
use super::route::Router;
use super::seats::Seats;
use super::waiters::Waiters;
use crate::counters::{Counts, add};
use crate::h1::HeadCache;
use crate::h2::Http2;
use crate::message::{ConnectionHost, ConnectionId, ConnectionInfo, Interim, OnClientGone, forget_heads};
use crate::pool;
use crate::transport::{Listener, Socket as ListenSocket, SocketFile, Transport};
use ringroad_engine::net::Canceller;
use ringroad_engine::{Remote, Runtime, spawn, time};
use ringroad_wire::{Deadlines, Limits, Method, Scratch, Status};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// State that the workers of a server share.
pub(crate) struct Workers {
    pub(crate) handles: Vec<Arc<WorkerHandle>>,
    pub(crate) stopping: AtomicBool,
    /// Whether requests in progress are not waited for any more.
    pub(crate) at_once: AtomicBool,
    /// The file of the Unix socket that they listen on, until the server is told to stop.
    pub(crate) file: Mutex<Option<SocketFile>>,
}

/// One worker, as the others see it.
#[derive(Default)]
pub(crate) struct WorkerHandle {
    pub(crate) counts: Counts,
    /// Its connections, including those on their way to it.
    pub(crate) connections: AtomicUsize,
    /// Whether it has a listener.
    pub(crate) listens: AtomicBool,
    /// Whether another worker has its listening socket, so that it gets no more connections
    /// ([`super::Released`]).
    pub(crate) leaving: AtomicBool,
    /// Whether another server of this process may listen at an overlapping address ([`super::overlap`]).
    pub(crate) overlaps: AtomicBool,
    /// Its listening socket, for a worker that takes its place. A listener is not closed while this exists.
    pub(crate) socket: Mutex<Option<ListenSocket>>,
    /// The handle to send it messages, once it runs.
    pub(crate) remote: Mutex<Option<Remote>>,
}

impl WorkerHandle {
    pub(crate) fn remote(&self) -> Option<Remote> {
        self.remote.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Releases the additional descriptor of the listening socket.
    pub(crate) fn forget_socket(&self) {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    pub(crate) fn is_leaving(&self) -> bool {
        // Sequentially consistent with the count of connections: the worker that hands one over sees the
        // flag, or this one sees the count.
        self.leaving.load(Ordering::SeqCst)
    }
}

/// A worker hands new connections over if it has this many more than another.
const SLACK: usize = 4;

/// When the answers of a batch reach this size, they are sent before the next request is processed. Each may
/// have 16 KiB that are copied, so a limit of their number would let a client make a connection hold a
/// megabyte.
const BATCH_BYTES: usize = 32 * 1024;

/// The same, if the client did not take the last batch at once.
const SLOW_BATCH_BYTES: usize = 16 * 1024;

impl Workers {
    pub(crate) fn new(workers: usize) -> Workers {
        let handles = (0..workers).map(|_| Arc::default()).collect();
        Workers {
            handles,
            stopping: AtomicBool::new(false),
            at_once: AtomicBool::new(false),
            file: Mutex::default(),
        }
    }

    /// Removes the file of the Unix socket. Connected clients are served; new ones cannot connect.
    pub(crate) fn remove_file(&self) {
        if let Some(file) = self.file.lock().unwrap_or_else(PoisonError::into_inner).take() {
            file.remove();
        }
    }

    /// Returns whether a worker has a listener.
    pub(crate) fn listen(&self) -> bool {
        self.handles.iter().any(|worker| worker.listens.load(Ordering::Acquire))
    }

    /// Returns whether a worker has room for one more connection.
    fn has_room(&self, most: usize) -> bool {
        let has_room = |worker: &Arc<WorkerHandle>| worker.connections.load(Ordering::Relaxed) < most;
        self.handles.iter().any(|worker| has_room(worker) && !worker.is_leaving())
    }

    /// Returns the worker that should have the connection that worker `me` has just accepted, if it is
    /// another one. The connection is counted there.
    fn better_than(&self, me: usize, most: usize) -> Option<usize> {
        let load = |worker: &Arc<WorkerHandle>| worker.connections.load(Ordering::Relaxed);
        let mine = self.handles.get(me).map_or(0, load);
        let staying = self.handles.iter().enumerate().filter(|(_, worker)| !worker.is_leaving());
        let (other, least) =
            staying.map(|(at, worker)| (at, load(worker))).min_by_key(|(_, count)| *count)?;
        if other == me || least >= most || (mine <= least + SLACK && mine < most) {
            return None;
        }
        let worker = self.handles.get(other)?;
        worker.connections.fetch_add(1, Ordering::SeqCst);
        if worker.is_leaving() {
            // It may have checked its count before the connection was counted.
            worker.connections.fetch_sub(1, Ordering::SeqCst);
            return None;
        }
        Some(other)
    }
}

/// Settings of a server's connections.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) limits: Limits,
    pub(crate) deadlines: Deadlines,
    pub(crate) drain: Duration,
    pub(crate) upgraded_grace: Duration,
    pub(crate) dated: bool,
    /// For each worker.
    pub(crate) connections_max: usize,
    /// For each worker.
    pub(crate) unsent_bytes_max: usize,
    pub(crate) on_client_gone: OnClientGone,
    pub(crate) on_refused: Option<OnRefused>,
    /// The limit of connections per address.
    pub(crate) per_address: Option<Arc<PerAddress>>,
    /// Connections of these peers begin with a PROXY header.
    pub(crate) proxy_from: Arc<[Network]>,
    /// `None`: only HTTP/1.
    pub(crate) http2: Option<Arc<Http2>>,
    /// HTTP/2 is spoken also without TLS.
    pub(crate) prior_knowledge: bool,
    /// Connections begin with a TLS handshake.
    pub(crate) tls: Option<Arc<crate::tls::Server>>,
    /// Maximum number of concurrent handshakes of each worker.
    pub(crate) handshakes_max: usize,
    /// Time for a handshake from the beginning of the connection, including the wait in line.
    pub(crate) handshake_timeout: Duration,
}

/// A worker, as its connections know it.
pub(crate) struct Worker {
    pub(crate) router: Router,
    pub(crate) scratch: RefCell<Scratch>,
    pub(crate) heads: RefCell<HeadCache>,
    pub(crate) seats: Seats,
    /// Streams of HTTP/2 with a handler under way.
    pub(crate) places: Places,
    /// Heads that handlers send before their responses.
    pub(crate) interims: Interims,
    pub(crate) settings: Settings,
    pub(crate) handshakes: Handshakes,
    /// Limits of a connection that can be replaced while the server runs.
    pub(crate) pipeline_depth: Cell<u16>,
    pub(crate) requests_per_connection: Cell<u32>,
    /// From the settings; it can be replaced while the worker runs.
    drain: Cell<Duration>,
    upgraded_grace: Cell<Duration>,
    /// Whether other workers have its place, while the server does not stop.
    gives_way: Cell<bool>,
    connections_max: Cell<usize>,
    unsent_bytes_max: Cell<usize>,
    /// Bytes of memory that hold data being sent, and input received after its requests.
    unsent: Cell<usize>,
    /// Above this number of unsent bytes, the slowest connections are closed at once.
    cut_above: Cell<usize>,
    workers: Arc<Workers>,
    pub(super) handle: Arc<WorkerHandle>,
    me: usize,
    /// The buffer of the last answers; without capacity while it is in use.
    spare: Cell<Vec<u8>>,
    /// Seconds since the worker began.
    now: Cell<u32>,
    /// Sweeps so far.
    sweeps: Cell<u32>,
    began: Instant,
    stopping: Cell<bool>,
    /// Tasks that wait for the end of a connection, by its index, or for [`STOP`].
    waiters: Waiters,
    /// The waker of the main future.
    main: Cell<Option<Waker>>,
    /// The waker of the accepting task, while there is no room.
    acceptor: Cell<Option<Waker>>,
    listener: RefCell<Option<Canceller>>,
    /// The error that ended accepting, if it was not a stop.
    accept_failed: Cell<Option<ringroad_engine::Error>>,
    /// Connections that count for their address, by their seat.
    counted: RefCell<HashMap<u32, Counted>>,
    /// The request that is being refused with its handler at work, and the status.
    pub(crate) refusing: Cell<Option<(ConnectionId, Status)>>,
    /// What happens to a request if its client leaves, if it has a rule of its own.
    rules: RefCell<HashMap<ConnectionId, OnClientGone>>,
}

/// The subject of tasks that wait for the server's stop. No connection has this index.
const STOP: u32 = u32::MAX;

/// The subject of tasks that check their deadlines once a second.
const SECOND: u32 = u32::MAX - 1;

thread_local! {
    /// The worker of this thread, for what other threads send to it.
    static HERE: RefCell<Option<Rc<Worker>>> = const { RefCell::new(None) };
}

/// Returns the worker of this thread, while there is one.
pub(crate) fn here() -> Option<Rc<Worker>> {
    HERE.try_with(|here| here.borrow().clone()).ok().flatten()
}

/// Stops the worker of this thread.
pub(crate) fn stop_here() {
    if let Some(worker) = here() {
        worker.stop();
        worker.wake_main();
    }
}

impl ConnectionHost for Worker {
    fn info(&self, id: ConnectionId) -> Option<ConnectionInfo> {
        self.seats.info(self.places.connection_of(id)?)
    }

    fn local(&self, id: ConnectionId) -> Option<SocketAddr> {
        self.seats.local(self.places.connection_of(id)?)
    }

    fn poll_gone(&self, id: ConnectionId, waiter: &mut Option<u64>, context: &mut Context<'_>) -> Poll<()> {
        let Some(connection) = self.places.connection_of(id) else { return Poll::Ready(()) };
        if self.places.is_gone(id) || self.seats.is_gone(connection) {
            return Poll::Ready(());
        }
        self.waiters.wait(id.index, waiter, context);
        Poll::Pending
    }

    fn poll_stopping(&self, waiter: &mut Option<u64>, context: &mut Context<'_>) -> Poll<()> {
        if self.stopping.get() && !self.gives_way.get() {
            return Poll::Ready(());
        }
        self.waiters.wait(STOP, waiter, context);
        Poll::Pending
    }

    fn forget(&self, id: ConnectionId, waiter: u64) {
        self.waiters.forget(id.index, waiter);
    }

    fn refusing(&self, id: ConnectionId) -> Option<Status> {
        self.refusing.get().filter(|(refused, _)| *refused == id).map(|(_, status)| status)
    }

    fn inform(&self, id: ConnectionId, interim: Interim) -> bool {
        self.interims.push(id, interim)
    }

    fn set_on_client_gone(&self, id: ConnectionId, what: Option<OnClientGone>) {
        let mut rules = self.rules.borrow_mut();
        match what {
            Some(what) => drop(rules.insert(id, what)),
            None => drop(rules.remove(&id)),
        }
    }
}

impl Worker {
    pub(crate) fn new(router: Router, settings: Settings, workers: Arc<Workers>, me: usize) -> Rc<Worker> {
        let unsent_bytes_max = settings.unsent_bytes_max;
        let worker = Rc::new(Worker {
            router,
            scratch: RefCell::new(Scratch::new(settings.limits.clone())),
            heads: RefCell::new(HeadCache::new(settings.dated)),
            seats: Seats::new(settings.deadlines.clone()),
            places: Places::default(),
            interims: Interims::default(),
            pipeline_depth: Cell::new(settings.deadlines.pipeline_depth),
            requests_per_connection: Cell::new(settings.deadlines.requests_per_connection),
            drain: Cell::new(settings.drain),
            upgraded_grace: Cell::new(settings.upgraded_grace),
            gives_way: Cell::new(false),
            connections_max: Cell::new(settings.connections_max),
            unsent_bytes_max: Cell::new(settings.unsent_bytes_max),
            handshakes: Handshakes::new(settings.handshakes_max),
            settings,
            unsent: Cell::new(0),
            cut_above: Cell::new(unsent_bytes_max),
            handle: workers.handles.get(me).map(Arc::clone).unwrap_or_default(),
            workers,
            me,
            spare: Cell::default(),
            now: Cell::new(0),
            sweeps: Cell::new(0),
            began: Instant::now(),
            stopping: Cell::new(false),
            waiters: Waiters::default(),
            main: Cell::new(None),
            acceptor: Cell::new(None),
            accept_failed: Cell::new(None),
            refusing: Cell::new(None),
            listener: RefCell::new(None),
            counted: RefCell::default(),
            rules: RefCell::default(),
        });
        HERE.with(|here| *here.borrow_mut() = Some(Rc::clone(&worker)));
        worker
    }

    #[inline]
    pub(crate) fn counts(&self) -> &Counts {
        &self.handle.counts
    }

    /// Takes an empty buffer for answers.
    #[inline]
    pub(crate) fn take_buffer(&self) -> Vec<u8> {
        let spare = self.spare.take();
        if spare.capacity() == 0 { pool::buffer() } else { spare }
    }

    /// Keeps a buffer for the next answers.
    #[inline]
    pub(crate) fn keep_buffer(&self, mut buffer: Vec<u8>) {
        if pool::is_kept(&buffer) {
            buffer.clear();
            let before = self.spare.replace(buffer);
            if before.capacity() > 0 {
                pool::give_buffer(before);
            }
        }
    }

    /// Returns the current second.
    #[inline]
    pub(crate) fn now(&self) -> u32 {
        self.now.get()
    }

    /// Returns the number of sweeps.
    pub(crate) fn sweeps(&self) -> u32 {
        self.sweeps.get()
    }

    /// Returns whether each answer is the last on its connection.
    #[inline]
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    /// Sets the limits of later requests.
    pub(crate) fn set_limits(&self, limits: Limits) {
        self.scratch.borrow_mut().set_limits(limits);
    }

    /// Sets the deadlines from now on, also for connections that wait already.
    pub(crate) fn set_deadlines(&self, deadlines: Deadlines) {
        self.pipeline_depth.set(deadlines.pipeline_depth);
        self.requests_per_connection.set(deadlines.requests_per_connection);
        self.seats.set_deadlines(deadlines);
    }

    /// Sets the time that a stop waits for requests in progress, and for connections that speak another
    /// protocol.
    pub(crate) fn set_drain(&self, drain: Duration, upgraded_grace: Duration) {
        self.drain.set(drain);
        self.upgraded_grace.set(upgraded_grace);
    }

    /// Gives its place to other workers. Requests in progress are completed, however long they take, and
    /// streams without an end continue, until [`ends`](Self::ends).
    pub(crate) fn give_way(&self) {
        self.gives_way.set(true);
        self.drain.set(Duration::MAX);
    }

    /// Limits the remaining time of a worker that gave its place up.
    pub(crate) fn ends(&self, drain: Duration) {
        self.gives_way.set(false);
        self.set_drain(drain, drain);
        self.waiters.wake(STOP);
    }

    /// Returns whether another worker has its listening socket.
    pub(crate) fn is_leaving(&self) -> bool {
        self.handle.is_leaving()
    }

    /// Returns how long connections with another protocol may continue after the server's stop.
    pub(crate) fn upgraded_grace(&self) -> Duration {
        self.upgraded_grace.get()
    }

    /// Sets the maximum number of connections. Those above it stay until they end.
    pub(crate) fn set_connections_max(&self, connections: usize) {
        self.connections_max.set(connections);
        self.wake_acceptor();
    }

    /// Sets the bound for unsent answers.
    pub(crate) fn set_unsent_bytes_max(&self, bytes: usize) {
        self.unsent_bytes_max.set(bytes);
        self.cut_above.set(bytes);
    }

    /// Counts bytes at the beginning of their send.
    #[inline]
    pub(crate) fn begin_send(&self, bytes: usize) {
        let unsent = self.unsent.get() + bytes;
        self.unsent.set(unsent);
        if unsent > self.cut_above.get() {
            // Done by the main future: the connection of this task may be the one to be closed.
            self.wake_main();
        }
    }

    /// Counts bytes that were sent or were given up.
    #[inline]
    pub(crate) fn end_send(&self, bytes: usize) {
        let unsent = self.unsent.get().saturating_sub(bytes);
        self.unsent.set(unsent);
        if unsent <= self.unsent_bytes_max.get() {
            self.cut_above.set(self.unsent_bytes_max.get());
        }
    }

    /// Closes the connections that have sent nothing for longest, so that an eighth of the limit becomes
    /// free. They free their memory when their tasks run; until then the next call waits for another eighth.
    /// `again`: those that were closed before and still send are closed once more.
    fn cut_slowest(&self, again: bool) {
        let (unsent, most) = (self.unsent.get(), self.unsent_bytes_max.get());
        if unsent <= self.cut_above.get() {
            return;
        }
        let too_much = unsent - (most - most / 8);
        // As many connections as hold the excess, if all hold the same.
        let share = |senders: usize| (senders * too_much).div_ceil(unsent);
        let slowest = self.seats.cut_slowest(again, share);
        self.cut_above.set(unsent + most / 8);
        slowest.into_iter().for_each(|slow| slow.cancel());
    }

    /// Returns the maximum size of a batch of answers: `slow` if the client did not take the last one at
    /// once. With half of the limit in use, each answer is sent by itself.
    #[inline]
    pub(crate) fn batch_bytes(&self, slow: bool) -> usize {
        if self.unsent.get() > self.unsent_bytes_max.get() / 2 {
            return 0;
        }
        if slow { SLOW_BATCH_BYTES } else { BATCH_BYTES }
    }

    /// Reports a refusal.
    pub(crate) fn tell_refused(&self, id: ConnectionId, status: Option<Status>, reason: Reason, head: &[u8]) {
        self.tell(id, status, reason, head, false);
    }

    /// Reports a refusal. `begun`: a handler had the request, and was dropped.
    #[cold]
    pub(crate) fn tell(
        &self,
        id: ConnectionId,
        status: Option<Status>,
        reason: Reason,
        head: &[u8],
        begun: bool,
    ) {
        if let Some(tell) = &self.settings.on_refused {
            let client = self.seats.info(id).and_then(|info| info.client);
            let head = head.get(..HEAD_TOLD_BYTES).unwrap_or(head);
            tell(&Refused { client, status, reason, head, begun });
        }
    }

    /// Registers the task to be woken at the next sweep.
    pub(crate) fn wait_for_second(&self, waiter: &mut Option<u64>, context: &mut Context<'_>) {
        self.waiters.wait(SECOND, waiter, context);
    }

    /// Removes the task from those that wait for the sweep.
    pub(crate) fn forget_second(&self, waiter: u64) {
        self.waiters.forget(SECOND, waiter);
    }

    /// Wakes the tasks of a stream: its client has gone, or its handler has ended.
    pub(crate) fn wake_place(&self, id: ConnectionId) {
        self.waiters.wake(id.index);
    }

    /// Returns whether the handler of a request is dropped when its client has left.
    pub(crate) fn cancels(&self, id: ConnectionId, method: Method) -> bool {
        let rule = self.rules.borrow().get(&id).copied();
        rule.unwrap_or(self.settings.on_client_gone).cancels(method)
    }

    /// Wakes the tasks of a connection: its client has gone.
    pub(crate) fn set_gone(&self, id: ConnectionId) {
        self.seats.set_gone(id);
        self.waiters.wake(id.index);
    }

    /// Accepts no more connections, and completes the present ones.
    fn stop(&self) {
        if self.stopping.replace(true) {
            return;
        }
        let listener = self.listener.borrow_mut().take();
        if let Some(listener) = listener {
            listener.cancel();
        }
        self.seats.sweep(self.now.get(), true);
        self.waiters.wake(STOP);
        self.wake_main();
        self.wake_acceptor();
    }

    fn wake_acceptor(&self) {
        if let Some(acceptor) = self.acceptor.take() {
            acceptor.wake();
        }
    }

    fn wake_main(&self) {
        if let Some(main) = self.main.take() {
            main.wake();
        }
    }

    /// Counts a new connection.
    fn begin(self: &Rc<Worker>, stream: Transport) {
        let seat = self.seats.take(stream.canceller(), self.now.get());
        let proxies = &self.settings.proxy_from;
        let proxy = if proxies.is_empty() { None } else { stream.peer_addr() };
        let proxy = proxy.filter(|peer| proxies.iter().any(|network| network.contains(peer.ip())));
        let counts = self.settings.per_address.as_ref().is_some_and(|bound| bound.is_set());
        // Behind a PROXY header the client's address is not known yet.
        let client = if counts && proxy.is_none() { stream.peer_addr() } else { None };
        let connection = Connection::new(Rc::clone(self), stream, seat);
        if client.is_some_and(|client| !self.admit(seat, client)) {
            // Dropping the stream closes it.
            return;
        }
        match (&self.settings.tls, proxy) {
            (Some(tls), proxy) => spawn(handshakes::serve(connection, Arc::clone(tls), proxy)).detach(),
            (None, Some(peer)) => spawn(proxy::serve(connection, peer)).detach(),
            (None, None) => spawn(serve(connection)).detach(),
        }
    }

    /// Counts a connection for its client's address. Returns `false` if that has as many as allowed.
    pub(crate) fn admit(&self, id: ConnectionId, client: SocketAddr) -> bool {
        let Some(bound) = &self.settings.per_address else { return true };
        match bound.enter(client.ip()) {
            Ok(None) => true,
            Ok(Some(counted)) => {
                self.counted.borrow_mut().insert(id.index, counted);
                true
            }
            Err(TooMany) => {
                add(&self.counts().refused, 1);
                self.tell_refused(id, None, Reason::TooManyConnections, &[]);
                false
            }
        }
    }

    /// Records that a connection has had its last answer: received bytes are dropped for a while. Its client
    /// may open another connection meanwhile.
    pub(crate) fn begin_end(&self, id: ConnectionId) {
        self.seats.begin_end(id, self.now.get());
        if self.settings.per_address.is_some() {
            self.counted.borrow_mut().remove(&id.index);
        }
    }

    /// Removes a connection that has ended.
    pub(crate) fn ended(&self, id: ConnectionId) {
        if self.settings.per_address.is_some() {
            self.counted.borrow_mut().remove(&id.index);
        }
        self.waiters.wake(id.index);
        self.handle.connections.fetch_sub(1, Ordering::Relaxed);
        self.wake_acceptor();
        if self.stopping.get() {
            self.wake_main();
        }
    }

    /// Accepts connections until it is stopped. An error of the listener stops the worker, and [`Self::run`]
    /// returns it.
    pub(crate) fn accept(self: Rc<Worker>, mut listener: Listener) -> impl Future<Output = ()> {
        *self.listener.borrow_mut() = Some(listener.canceller());
        self.handle.listens.store(true, Ordering::Release);
        async move {
            self.accept_all(&mut listener).await;
            self.handle.forget_socket();
            self.empty_backlog(listener).await;
            self.handle.listens.store(false, Ordering::Release);
            self.wake_main();
        }
    }

    async fn accept_all(self: &Rc<Worker>, listener: &mut Listener) {
        loop {
            let accepted = listener.accept().await;
            let most = self.connections_max.get();
            match accepted {
                Ok(stream) => {
                    add(&self.counts().accepted, 1);
                    if !self.workers.has_room(most) {
                        self.wait_for_room().await;
                    }
                    match self.workers.better_than(self.me, most) {
                        None => self.begin_here(stream),
                        Some(other) => self.hand_over(stream, other),
                    }
                }
                Err(why) if why.is_cancelled() => return,
                // Counted once: accepting then waits until there is room.
                Err(why) if why.is_driver_limit() => add(&self.counts().accept_paused, 1),
                Err(why) => {
                    self.accept_failed.set(Some(why));
                    return self.stop();
                }
            }
        }
    }

    /// Waits until a worker has room, or the server stops. Ending connections, and those that have been idle
    /// for longest, are closed to make room.
    async fn wait_for_room(&self) {
        let mut paused = false;
        poll_fn(|context| {
            if self.stopping.get() || self.workers.has_room(self.connections_max.get()) {
                return Poll::Ready(());
            }
            self.acceptor.set(Some(context.waker().clone()));
            let evicted = self.seats.evict_idle(self.now.get());
            if !evicted.is_empty() {
                add(&self.counts().evicted, evicted.len() as u64);
            } else if !std::mem::replace(&mut paused, true) {
                add(&self.counts().accept_paused, 1);
            }
            // Cancelling wakes tasks, which call this module later.
            evicted.into_iter().for_each(|idle| idle.cancel());
            Poll::Pending
        })
        .await;
    }

    pub(super) fn begin_here(self: &Rc<Worker>, stream: Transport) {
        self.handle.connections.fetch_add(1, Ordering::Relaxed);
        self.begin(stream);
    }

    /// Gives a connection from which nothing was read to another worker, which has counted it already.
    fn hand_over(self: &Rc<Worker>, stream: Transport, other: usize) {
        let Some(handle) = self.workers.handles.get(other) else { return };
        let keep = |stream: Transport| {
            handle.connections.fetch_sub(1, Ordering::Relaxed);
            self.begin_here(stream);
        };
        let Some(remote) = handle.remote() else { return keep(stream) };
        let moving = match stream.into_moving() {
            Ok(moving) => moving,
            Err(stream) => return keep(stream),
        };
        let workers = Arc::clone(&self.workers);
        let sent = remote.spawn(move || async move {
            match (here(), Transport::from_moving(moving)) {
                (Some(worker), Ok(stream)) => worker.begin(stream),
                // The connection is closed: no descriptor is left, or no worker.
                _ => {
                    if let Some(handle) = workers.handles.get(other) {
                        handle.connections.fetch_sub(1, Ordering::Relaxed);
                    }
                }
            }
        });
        match sent {
            Ok(()) => add(&self.counts().handed_over, 1),
            // The worker has ended, and the connection with it: the server is stopping.
            Err(_) => {
                handle.connections.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Runs until the worker is stopped and its connections are finished, or out of time.
    pub(crate) fn run(self: &Rc<Worker>, runtime: &Runtime) -> ringroad_engine::Result<()> {
        let mut began_to_stop = None;
        loop {
            runtime.block_on(self.second())?;
            self.now.set(u32::try_from(self.began.elapsed().as_secs()).unwrap_or(u32::MAX));
            self.heads.borrow_mut().tick();
            self.counts().set_engine(runtime.counters());
            if self.workers.stopping.load(Ordering::Acquire) {
                runtime.block_on(async { self.stop() })?;
            }
            let stopping = self.stopping.get();
            runtime.block_on(async { self.sweep(stopping) })?;
            // Another worker may have room.
            self.wake_acceptor();
            if !stopping {
                continue;
            }
            let began: &Instant = began_to_stop.get_or_insert_with(Instant::now);
            let is_over = self.is_empty()
                || began.elapsed() >= self.drain.get()
                || self.workers.at_once.load(Ordering::Acquire);
            if is_over {
                return self.accept_failed.take().map_or(Ok(()), Err);
            }
        }
    }

    fn sweep(&self, stopping: bool) {
        self.seats.sweep(self.now.get(), stopping);
        self.sweeps.set(self.sweeps.get().wrapping_add(1));
        self.waiters.wake(SECOND);
        // Connections closed in the last second have freed their memory by now, or their cancel came too
        // late.
        self.cut_above.set(self.unsent_bytes_max.get());
        self.cut_slowest(true);
    }

    /// Returns whether no connection is left or on its way.
    fn is_empty(&self) -> bool {
        !self.handle.listens.load(Ordering::Relaxed) && self.handle.connections.load(Ordering::SeqCst) == 0
    }

    /// Waits until the next second of the clock, or less if the worker is stopping and a connection has
    /// ended.
    async fn second(&self) {
        let woken = poll_fn(|context| {
            self.cut_slowest(false);
            let at_once = self.workers.at_once.load(Ordering::Acquire);
            if self.stopping.get() && (self.is_empty() || at_once) {
                return Poll::Ready(());
            }
            self.main.set(Some(context.waker().clone()));
            Poll::Pending
        });
        // The caller checks what woke it; the rest of the second is only the limit.
        let _ = time::timeout(rest_of_second(), woken).await;
    }
}

/// Returns the time to the next second of the clock, at which `Date` changes.
fn rest_of_second() -> Duration {
    const SECOND: Duration = Duration::from_secs(1);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // A timer that fires early would read the old second, and update the date a second late.
    SECOND - Duration::from_nanos(now.subsec_nanos().into()) + Duration::from_millis(1)
}

/// Ends the worker of this thread: drops what its connections and kept heads hold of it.
pub(crate) fn leave() {
    HERE.with(|here| here.borrow_mut().take());
    forget_heads();
}
