//! One worker: a thread with a runtime, a listener and connections of its own.
//!
//! Its main future is the sweep: once a second it reads the clock for everybody (the date, the deadlines) and
//! tells its counts. Connections come from its own listener, which shares the address with the others', or are
//! handed over by a worker that has more ([`Crew`]).

use super::connection::{Connection, serve};
use super::seats::Seats;
use crate::counters::{Counts, add};
use crate::encode::Lines;
use crate::route::Router;
use ringroad_engine::net::{Canceller, TcpListener, TcpStream};
use ringroad_engine::{Remote, Runtime, spawn, time};
use ringroad_wire::{Deadlines, Limits, Scratch};
use socket2::{SockFilter, Socket};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// What all workers of a server know of each other.
pub(crate) struct Crew {
    pub(crate) members: Vec<Member>,
    pub(crate) stopping: AtomicBool,
}

/// One worker, as the others see it.
#[derive(Default)]
pub(crate) struct Member {
    pub(crate) counts: Counts,
    /// Connections it has, and those on their way to it.
    pub(crate) connections: AtomicUsize,
    /// How to reach it, once it runs.
    pub(crate) remote: Mutex<Option<Remote>>,
}

impl Member {
    pub(crate) fn remote(&self) -> Option<Remote> {
        self.remote.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// `BPF_RET | BPF_K`, of no bytes (bpf(4)): a filter that takes no packet.
const DROP_ALL: u16 = 0x06;

/// A worker with so many connections more than another hands new ones over.
const SLACK: usize = 4;

impl Crew {
    pub(crate) fn new(workers: usize) -> Crew {
        let members = (0..workers).map(|_| Member::default()).collect();
        Crew { members, stopping: AtomicBool::new(false) }
    }

    /// Whether a worker has room for one more connection.
    fn has_room(&self, most: usize) -> bool {
        self.members.iter().any(|member| member.connections.load(Ordering::Relaxed) < most)
    }

    /// Who ought to have the connection that worker `me` has just taken, if somebody else: its place is taken.
    fn better_than(&self, me: usize, most: usize) -> Option<usize> {
        let load = |member: &Member| member.connections.load(Ordering::Relaxed);
        let mine = self.members.get(me).map_or(0, load);
        let (other, least) = self.members.iter().map(load).enumerate().min_by_key(|(_, count)| *count)?;
        if other == me || least >= most || (mine <= least + SLACK && mine < most) {
            return None;
        }
        self.members.get(other)?.connections.fetch_add(1, Ordering::Relaxed);
        Some(other)
    }
}

/// How a server's connections are served.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) limits: Limits,
    pub(crate) deadlines: Deadlines,
    pub(crate) drain: Duration,
    pub(crate) dated: bool,
    /// Of each worker.
    pub(crate) connections_max: usize,
}

/// A worker, as its connections know it.
pub(crate) struct Worker {
    pub(crate) router: Router,
    pub(crate) scratch: RefCell<Scratch>,
    pub(crate) lines: RefCell<Lines>,
    pub(crate) seats: Seats,
    pub(crate) settings: Settings,
    crew: Arc<Crew>,
    me: usize,
    /// Seconds since it began.
    now: Cell<u32>,
    began: Instant,
    stopping: Cell<bool>,
    /// Connections may still come from the listener.
    accepting: Cell<bool>,
    /// The main future.
    main: Cell<Option<Waker>>,
    /// Whoever accepts, while there is no room.
    acceptor: Cell<Option<Waker>>,
    listener: RefCell<Option<Canceller>>,
}

thread_local! {
    /// The worker of this thread, for what other threads send to it.
    static HERE: RefCell<Option<Rc<Worker>>> = const { RefCell::new(None) };
}

/// The worker of this thread, while there is one.
pub(crate) fn here() -> Option<Rc<Worker>> {
    HERE.try_with(|here| here.borrow().clone()).ok().flatten()
}

/// Stops the worker of this thread.
pub(crate) fn stop_here() {
    if let Some(worker) = here() {
        worker.stop();
    }
}

impl Worker {
    pub(crate) fn new(router: Router, settings: Settings, crew: Arc<Crew>, me: usize) -> Rc<Worker> {
        let worker = Rc::new(Worker {
            router,
            scratch: RefCell::new(Scratch::new(settings.limits.clone())),
            lines: RefCell::new(Lines::new(settings.dated)),
            seats: Seats::new(settings.deadlines.clone()),
            settings,
            crew,
            me,
            now: Cell::new(0),
            began: Instant::now(),
            stopping: Cell::new(false),
            accepting: Cell::new(false),
            main: Cell::new(None),
            acceptor: Cell::new(None),
            listener: RefCell::new(None),
        });
        HERE.with(|here| *here.borrow_mut() = Some(Rc::clone(&worker)));
        worker
    }

    fn member(&self) -> &Member {
        #[allow(clippy::indexing_slicing, reason = "a worker is made for a member of its crew")]
        &self.crew.members[self.me]
    }

    #[inline]
    pub(crate) fn counts(&self) -> &Counts {
        &self.member().counts
    }

    /// The second it is.
    #[inline]
    pub(crate) fn now(&self) -> u32 {
        self.now.get()
    }

    /// Answers are the last on their connections.
    #[inline]
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    /// No more connections; what is there is finished.
    fn stop(&self) {
        if self.stopping.replace(true) {
            return;
        }
        let listener = self.listener.borrow_mut().take();
        if let Some(listener) = listener {
            listener.cancel();
        }
        self.seats.sweep(self.now.get(), true);
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

    /// A connection has begun.
    fn begin(self: &Rc<Worker>, stream: TcpStream) {
        let seat = self.seats.take(stream.canceller(), self.now.get());
        spawn(serve(Connection::new(Rc::clone(self), stream, seat))).detach();
    }

    /// A connection is over.
    pub(crate) fn ended(&self) {
        self.member().connections.fetch_sub(1, Ordering::Relaxed);
        self.wake_acceptor();
        if self.stopping.get() {
            self.wake_main();
        }
    }

    /// Takes connections until it is stopped.
    pub(crate) async fn accept(self: Rc<Worker>, mut listener: TcpListener) -> ringroad_engine::Result<()> {
        *self.listener.borrow_mut() = Some(listener.canceller());
        self.accepting.set(true);
        let ended = self.accept_all(&mut listener).await;
        self.empty_backlog(listener);
        self.accepting.set(false);
        self.wake_main();
        ended
    }

    async fn accept_all(self: &Rc<Worker>, listener: &mut TcpListener) -> ringroad_engine::Result<()> {
        let most = self.settings.connections_max;
        loop {
            if !self.crew.has_room(most) {
                self.wait_for_room(most).await;
            }
            match listener.accept().await {
                Ok(stream) => {
                    add(&self.counts().accepted, 1);
                    match self.crew.better_than(self.me, most) {
                        None => self.begin_here(stream),
                        Some(other) => self.hand_over(stream, other),
                    }
                }
                Err(why) if why.is_cancelled() => return Ok(()),
                Err(why) => {
                    self.stop();
                    return Err(why);
                }
            }
        }
    }

    /// Until a worker has room, or none is needed any more.
    async fn wait_for_room(&self, most: usize) {
        let mut paused = false;
        poll_fn(|context| {
            if self.stopping.get() || self.crew.has_room(most) {
                return Poll::Ready(());
            }
            if !std::mem::replace(&mut paused, true) {
                add(&self.counts().accept_paused, 1);
            }
            self.acceptor.set(Some(context.waker().clone()));
            Poll::Pending
        })
        .await;
    }

    fn begin_here(self: &Rc<Worker>, stream: TcpStream) {
        self.member().connections.fetch_add(1, Ordering::Relaxed);
        self.begin(stream);
    }

    /// Serves who has connected and was not accepted, and lets nobody in any more. A listener that is just closed
    /// resets everybody in its backlog: they were told that they are connected, and may have sent their requests.
    fn empty_backlog(self: &Rc<Worker>, listener: TcpListener) {
        // Without a descriptor to spare nothing can be done for them: it is closed.
        let Ok(listener) = listener.into_std() else { return };
        let listener = Socket::from(listener);
        // From here on the listener hears nothing (SO_ATTACH_FILTER, socket(7)): who knocks now gets no answer until
        // it is closed, and then learns that nobody listens here. Refused, the gap is a few microseconds wide.
        let _ = listener.attach_filter(&[SockFilter::new(DROP_ALL, 0, 0, 0)]);
        if listener.set_nonblocking(true).is_err() {
            return;
        }
        while let Ok((socket, _)) = listener.accept() {
            // Failing, it is closed.
            if let Ok(stream) = TcpStream::from_std(socket.into()) {
                add(&self.counts().accepted, 1);
                self.begin_here(stream);
            }
        }
    }

    /// Gives a connection nobody has read from to another worker, whose count has it already.
    fn hand_over(self: &Rc<Worker>, stream: TcpStream, other: usize) {
        let Some(member) = self.crew.members.get(other) else { return };
        let keep = |stream: TcpStream| {
            member.connections.fetch_sub(1, Ordering::Relaxed);
            self.begin_here(stream);
        };
        let Some(remote) = member.remote() else { return keep(stream) };
        let stream = match stream.into_std() {
            Ok(stream) => stream,
            Err((_, stream)) => return keep(stream),
        };
        let crew = Arc::clone(&self.crew);
        let sent = remote.spawn(move || async move {
            match (here(), TcpStream::from_std(stream)) {
                (Some(worker), Ok(stream)) => worker.begin(stream),
                // Closed: there is no descriptor left, or no worker.
                _ => {
                    if let Some(member) = crew.members.get(other) {
                        member.connections.fetch_sub(1, Ordering::Relaxed);
                    }
                }
            }
        });
        match sent {
            Ok(()) => add(&self.counts().handed_over, 1),
            // It is gone, and with it the connection: the server is stopping.
            Err(_) => {
                member.connections.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Runs until the worker is stopped and its connections are finished, or out of time.
    pub(crate) fn run(self: &Rc<Worker>, runtime: &Runtime) -> ringroad_engine::Result<()> {
        let mut give_up = None;
        loop {
            runtime.block_on(self.second())?;
            self.now.set(u32::try_from(self.began.elapsed().as_secs()).unwrap_or(u32::MAX));
            self.lines.borrow_mut().tick();
            self.counts().set_engine(runtime.counters());
            if self.crew.stopping.load(Ordering::Acquire) {
                runtime.block_on(async { self.stop() })?;
            }
            let stopping = self.stopping.get();
            runtime.block_on(async { self.seats.sweep(self.now.get(), stopping) })?;
            // Another worker may have room.
            self.wake_acceptor();
            if !stopping {
                continue;
            }
            let give_up = *give_up.get_or_insert_with(|| Instant::now() + self.settings.drain);
            if self.is_empty() || Instant::now() >= give_up {
                return Ok(());
            }
        }
    }

    /// Whether nothing is left, and nothing on its way.
    fn is_empty(&self) -> bool {
        !self.accepting.get() && self.member().connections.load(Ordering::Relaxed) == 0
    }

    /// A second, or less if the worker is stopping and something has ended.
    async fn second(&self) {
        let woken = poll_fn(|context| {
            if self.stopping.get() && self.is_empty() {
                return Poll::Ready(());
            }
            self.main.set(Some(context.waker().clone()));
            Poll::Pending
        });
        // What wakes it is looked at here; the rest of the second is what bounds it.
        let _ = time::timeout(Duration::from_secs(1), woken).await;
    }
}

/// The worker of this thread is over: what its connections held of it goes.
pub(crate) fn leave() {
    HERE.with(|here| here.borrow_mut().take());
}
