//! FastCGI towards PHP: connections of one thread to responders, and one request on each at a time.
//!
//! A [`Responder`] is one FastCGI server: php-fpm behind an address, or a process that we started. All
//! threads share it, and with it the number of connections that it may have. [`FastCgi`] is one thread's
//! connections. A kept connection holds a child of php-fpm, so a thread closes an idle one when a request of
//! another thread waits for room.
//!
//! Start reading at [`FastCgi::exchange`].

use crate::lines::Lines;
use crate::pool::Ticket;
use futures_core::Stream;
use ringroad_engine::net::{ConnectOptions, TcpStream, UnixStream};
use ringroad_engine::sync::CancellationToken;
use ringroad_engine::{is_in_runtime, spawn, time};
use ringroad_gate::upstream::{Address, Permit, Room};
use ringroad_http::{
    Chunk, ReadTransport, Receive as _, RequestBody, SentSoFar, Transport, WriteTransport, addresses,
};
use ringroad_wire::fcgi::{self, Broken, Ended, Event, Ids, Params, Responses};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A FastCGI server, shared by all threads.
#[derive(Debug)]
pub struct Responder {
    id: u64,
    address: Address,
    room: Arc<Room>,
    timing: FastCgiTiming,
}

/// Times and numbers of connections to a FastCGI server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastCgiTiming {
    /// Connections of all threads together.
    pub connections: usize,
    /// How long connecting may take, with the wait for room.
    pub connect: Duration,
    /// How long nothing may move while an answer is waited for or comes.
    pub answer: Duration,
    /// Idle connections that each thread keeps; 0: each request has its own.
    pub keep: usize,
    /// How long they are kept.
    pub keep_for: Duration,
}

impl Default for FastCgiTiming {
    fn default() -> FastCgiTiming {
        FastCgiTiming {
            connections: 256,
            connect: Duration::from_secs(5),
            answer: Duration::from_secs(60),
            keep: 0,
            keep_for: Duration::from_secs(30),
        }
    }
}

impl PartialEq for Responder {
    /// Returns whether it is the same place, used in the same way.
    fn eq(&self, other: &Responder) -> bool {
        (&self.address, &self.timing) == (&other.address, &other.timing)
    }
}

impl Responder {
    /// Makes one that listens at an address.
    pub fn new(address: Address, timing: FastCgiTiming) -> Arc<Responder> {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Arc::new(Responder { id, address, room: Room::new(timing.connections), timing })
    }

    /// Returns where it listens.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Returns its times.
    pub fn timing(&self) -> &FastCgiTiming {
        &self.timing
    }
}

/// Why a FastCGI server has not answered, or not to the end.
#[derive(Debug)]
pub enum FastCgiFailed {
    /// It cannot be reached.
    Connect(String),
    /// It cannot be reached in time.
    ConnectTimeout(Duration),
    /// There was no room for a connection in time.
    NoRoom(Duration),
    /// Nothing moved for so long.
    TooSlow(Duration),
    /// It closed the connection before it answered.
    Closed(SentSoFar),
    /// It has not begun the request: it is overloaded.
    NotBegun(&'static str),
    /// What it sent is no answer.
    Wrong(String),
    /// What it sent is of another request. On a kept connection that is an earlier one, and says nothing
    /// about this one.
    Stray(String),
    /// The body of the request could not be read again.
    Body(String),
}

impl fmt::Display for FastCgiFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FastCgiFailed::Connect(why) => f.write_str(why),
            FastCgiFailed::ConnectTimeout(span) => write!(f, "connect: not done within {span:?}"),
            FastCgiFailed::NoRoom(span) => {
                write!(f, "connect: all connections are in use, and none became free within {span:?}")
            }
            FastCgiFailed::TooSlow(span) => write!(f, "answer: nothing moved for {span:?}"),
            FastCgiFailed::Closed(_) => {
                f.write_str("the connection was closed before the answer was complete")
            }
            FastCgiFailed::NotBegun(why) => write!(f, "the request was not begun: {why}"),
            FastCgiFailed::Wrong(why) | FastCgiFailed::Stray(why) => write!(f, "the application sent {why}"),
            FastCgiFailed::Body(why) => write!(f, "the body of the request: {why}"),
        }
    }
}

impl std::error::Error for FastCgiFailed {}

/// The connections of one thread.
#[derive(Default)]
pub struct FastCgi {
    idle: RefCell<HashMap<u64, Vec<Rc<Idle>>>>,
}

impl fmt::Debug for FastCgi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FastCgi").finish_non_exhaustive()
    }
}

/// A connection between two requests.
struct Connection {
    read: ReadTransport,
    write: WriteTransport,
    ids: Ids,
    permit: Permit,
}

/// A kept connection, with the waker of the task that watches it.
#[derive(Default)]
struct Idle {
    connection: RefCell<Option<Connection>>,
    watcher: RefCell<Option<Waker>>,
}

impl Idle {
    fn take(&self) -> Option<Connection> {
        let connection = self.connection.borrow_mut().take();
        if let Some(watcher) = self.watcher.borrow_mut().take() {
            watcher.wake();
        }
        connection
    }

    /// Ready when the connection was taken, or is of no use any more.
    fn poll_over(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut connection = self.connection.borrow_mut();
        match connection.as_mut() {
            None => Poll::Ready(()),
            // Over: an end, an error, or bytes that answer nothing.
            Some(open) => {
                let over = open.read.poll_recv(context).map(|_| ());
                *self.watcher.borrow_mut() = over.is_pending().then(|| context.waker().clone());
                over
            }
        }
    }
}

/// The body of a request.
pub enum FastCgiBody {
    /// Bytes.
    Whole(Vec<u8>),
    /// As it comes, of a known length.
    Pieces(RequestBody),
}

impl fmt::Debug for FastCgiBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FastCgiBody")
    }
}

impl FastCgi {
    /// Makes a set without connections.
    pub fn new() -> Rc<FastCgi> {
        Rc::default()
    }

    /// Sends a request, and waits for the head of its answer. `log` gets each line of STDERR. `fresh`: on a
    /// new connection. `ticket` is the right to the process that answers, where the responder is one of
    /// ours; it is held until that has finished.
    ///
    /// # Errors
    /// There is no answer. On a kept connection that can be its end, which says nothing about the server;
    /// the second value tells whether it was one.
    pub async fn exchange(
        self: &Rc<FastCgi>,
        responder: &Arc<Responder>,
        params: &Params,
        body: FastCgiBody,
        fresh: bool,
        ticket: Option<Ticket>,
        log: Rc<dyn Fn(String)>,
    ) -> Result<(fcgi::Head, FastCgiAnswer), (FastCgiFailed, bool)> {
        let kept = if fresh { None } else { self.take(responder) };
        let was_kept = kept.is_some();
        let connection = match kept {
            Some(connection) => connection,
            None => open(responder).await.map_err(|why| (why, false))?,
        };
        let Connection { read, write, mut ids, permit } = connection;
        let mut out = Vec::new();
        let id = ids.take();
        fcgi::begin(&mut out, id, responder.timing.keep > 0);
        params.write(&mut out, id);
        let rest = match body {
            FastCgiBody::Whole(bytes) => {
                fcgi::stdin(&mut out, id, &bytes);
                fcgi::end_stdin(&mut out, id);
                None
            }
            FastCgiBody::Pieces(body) => Some(body),
        };
        let mut answer = FastCgiAnswer {
            home: Rc::clone(self),
            responder: Arc::clone(responder),
            read: Some(read),
            permit: Some(permit),
            sending: Sending::Going(Box::pin(send(write, id, out, rest))),
            responses: Responses::new(id),
            ids,
            received: Vec::new(),
            at: 0,
            first: Vec::new(),
            stderr: Lines::default(),
            log,
            begun: false,
            ticket,
            patience: Duration::ZERO,
        };
        match answer.head().await {
            Ok(head) => Ok((head, answer)),
            Err(why) => Err((why, was_kept && !answer.begun)),
        }
    }

    fn take(&self, responder: &Responder) -> Option<Connection> {
        loop {
            let idle = self.idle.borrow_mut().get_mut(&responder.id)?.pop()?;
            if let Some(mut connection) = idle.take()
                && connection.read.is_quiet()
            {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection until it ends, is too old, or a request of another thread waits for room.
    fn keep(self: &Rc<FastCgi>, responder: &Arc<Responder>, connection: Connection) {
        // Before the line is looked at: a request that joins it from here on is seen below.
        let mut seen = responder.room.waits();
        if responder.room.waiting() > 0 || responder.timing.keep == 0 {
            return;
        }
        let idle = Rc::new(Idle::default());
        *idle.connection.borrow_mut() = Some(connection);
        {
            let mut all = self.idle.borrow_mut();
            let known = all.entry(responder.id).or_default();
            if known.len() >= responder.timing.keep {
                return;
            }
            known.push(Rc::clone(&idle));
        }
        let (home, responder) = (Rc::downgrade(self), Arc::clone(responder));
        let watching = async move {
            let mut pressed = pin!(responder.room.pressed(&mut seen));
            let over = poll_fn(|context| {
                if idle.poll_over(context).is_ready() || pressed.as_mut().poll(context).is_ready() {
                    return Poll::Ready(());
                }
                Poll::Pending
            });
            // Taken, too old, or of no use.
            let _ = time::timeout(responder.timing.keep_for, over).await;
            drop(idle.connection.borrow_mut().take());
            if let Some(home) = home.upgrade() {
                let mut all = home.idle.borrow_mut();
                if let Some(known) = all.get_mut(&responder.id) {
                    known.retain(|one| !Rc::ptr_eq(one, &idle));
                    if known.is_empty() {
                        all.remove(&responder.id);
                    }
                }
            }
        };
        spawn(watching).detach();
    }
}

async fn open(responder: &Responder) -> Result<Connection, FastCgiFailed> {
    let span = responder.timing.connect;
    let permit = match responder.room.try_permit() {
        Some(permit) => permit,
        None => {
            time::timeout(span, responder.room.permit()).await.map_err(|_| FastCgiFailed::NoRoom(span))?
        }
    };
    let opened = time::timeout(span, connect(&responder.address, span)).await;
    let (read, write) = opened.map_err(|_| FastCgiFailed::ConnectTimeout(span))??;
    Ok(Connection { read, write, ids: Ids::default(), permit })
}

async fn connect(to: &Address, span: Duration) -> Result<(ReadTransport, WriteTransport), FastCgiFailed> {
    let failed = |why: ringroad_engine::Error| FastCgiFailed::Connect(why.to_string());
    match to {
        Address::Unix(path) => {
            let stream = UnixStream::connect(path.clone()).await.map_err(failed)?;
            Ok(Transport::from(stream).split())
        }
        Address::Tcp { host, port } => {
            let addresses = addresses(host, *port).await;
            let addresses = addresses.map_err(|why| FastCgiFailed::Connect(format!("resolve: {why}")))?;
            let options = |_| Some(ConnectOptions::default());
            let stream = TcpStream::connect_first(addresses, span, options).await.map_err(failed)?;
            Ok(Transport::from(stream).split())
        }
    }
}

/// Waits until a process that takes one connection after another takes one: it has finished with its request
/// then. One that cannot be reached has ended.
async fn idle(responder: &Responder) {
    // A question of the protocol that PHP answers at once, and closes the connection behind it.
    const GET_VALUES: [u8; 8] = [1, 9, 0, 0, 0, 0, 0, 0];
    let Ok((mut read, mut write)) = connect(&responder.address, responder.timing.connect).await else {
        return;
    };
    if write.write_all(GET_VALUES.to_vec()).await.0.is_ok() {
        // An answer, an end or an error: it has taken the connection.
        let _ = read.recv().await;
    }
}

/// What came of sending a request.
type Sent = (WriteTransport, Result<(), FastCgiFailed>);

async fn send(mut write: WriteTransport, id: u16, mut out: Vec<u8>, body: Option<RequestBody>) -> Sent {
    let Some(mut body) = body else {
        let (sent, _) = write.write_all(out).await;
        let sent = sent.map_err(|_| FastCgiFailed::Closed(SentSoFar::Part));
        return (write, sent);
    };
    loop {
        let last = match body.next().await {
            Some(Ok(piece)) => {
                fcgi::stdin(&mut out, id, &piece);
                false
            }
            Some(Err(why)) => return (write, Err(FastCgiFailed::Body(why.to_string()))),
            None => {
                fcgi::end_stdin(&mut out, id);
                true
            }
        };
        let (sent, bytes) = write.write_all(out).await;
        if sent.is_err() {
            return (write, Err(FastCgiFailed::Closed(SentSoFar::Part)));
        }
        if last {
            return (write, Ok(()));
        }
        out = bytes;
        out.clear();
    }
}

/// The request on its way, polled beside the answer, so that neither waits for the other.
enum Sending {
    Going(Pin<Box<dyn Future<Output = Sent>>>),
    Done(WriteTransport),
    Failed(Option<FastCgiFailed>),
}

/// The answer to a request: a stream of the body's pieces behind its head. Dropped before it is complete, the
/// application is told to give the request up.
pub struct FastCgiAnswer {
    home: Rc<FastCgi>,
    responder: Arc<Responder>,
    read: Option<ReadTransport>,
    permit: Option<Permit>,
    sending: Sending,
    responses: Responses,
    ids: Ids,
    received: Vec<u8>,
    /// Where the records that were not read begin in `received`.
    at: usize,
    /// Bytes of the body that came with the head.
    first: Vec<u8>,
    stderr: Lines,
    log: Rc<dyn Fn(String)>,
    /// Something of the answer has come.
    begun: bool,
    /// Of the process that answers, if it is one of ours.
    ticket: Option<Ticket>,
    /// How long that process may go on with a request that is given up.
    patience: Duration,
}

impl fmt::Debug for FastCgiAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FastCgiAnswer").field("responses", &self.responses).finish_non_exhaustive()
    }
}

impl FastCgiAnswer {
    /// Returns the next bytes of STDOUT; `None` at the end of the request.
    fn poll_bytes(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Vec<u8>>, FastCgiFailed>> {
        loop {
            if let Sending::Going(sending) = &mut self.sending
                && let Poll::Ready((write, sent)) = sending.as_mut().poll(context)
            {
                self.sending = match sent {
                    Ok(()) => Sending::Done(write),
                    // It may have answered before it closed.
                    Err(FastCgiFailed::Closed(_)) => Sending::Failed(None),
                    Err(why) => Sending::Failed(Some(why)),
                };
            }
            if let Sending::Failed(why) = &mut self.sending
                && let Some(why) = why.take()
            {
                return Poll::Ready(Err(why));
            }
            let event = self.responses.next(&self.received, &mut self.at);
            let event = event.map_err(|why| match why {
                Broken::Id(_) => FastCgiFailed::Stray(why.to_string()),
                why => FastCgiFailed::Wrong(why.to_string()),
            });
            match event? {
                Some(Event::Stdout(bytes)) => {
                    self.begun = true;
                    return Poll::Ready(Ok(Some(bytes.to_vec())));
                }
                Some(Event::Stderr(bytes)) => {
                    self.begun = true;
                    let log = &self.log;
                    self.stderr.push(bytes, |_, line| log(line));
                    continue;
                }
                Some(Event::End { how, .. }) => {
                    let log = &self.log;
                    self.stderr.finish(|_, line| log(line));
                    return Poll::Ready(match how {
                        Ended::Complete => Ok(None),
                        Ended::CannotMultiplex => Err(FastCgiFailed::NotBegun("one at a time")),
                        Ended::Overloaded => Err(FastCgiFailed::NotBegun("overloaded")),
                        Ended::UnknownRole => Err(FastCgiFailed::Wrong("that it is no responder".to_owned())),
                    });
                }
                None if self.responses.is_over() => return Poll::Ready(Ok(None)),
                None => {}
            }
            drop(self.received.drain(..self.at));
            self.at = 0;
            let Some(read) = &mut self.read else { return Poll::Ready(Ok(None)) };
            match read.poll_recv(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(lease)) if !lease.is_empty() => self.received.extend_from_slice(&lease),
                Poll::Ready(_) => {
                    let log = &self.log;
                    self.stderr.finish(|_, line| log(line));
                    let all = matches!(self.sending, Sending::Done(_));
                    let sent = if all { SentSoFar::All } else { SentSoFar::Part };
                    return Poll::Ready(Err(FastCgiFailed::Closed(sent)));
                }
            }
        }
    }

    async fn bytes(&mut self) -> Result<Option<Vec<u8>>, FastCgiFailed> {
        let span = self.responder.timing.answer;
        let next = time::timeout(span, poll_fn(|context| self.poll_bytes(context))).await;
        if next.is_err()
            && let Some(ticket) = &self.ticket
        {
            self.patience = ticket.settings().kill_after;
        }
        next.unwrap_or(Err(FastCgiFailed::TooSlow(span)))
    }

    async fn head(&mut self) -> Result<fcgi::Head, FastCgiFailed> {
        let mut bytes = Vec::new();
        loop {
            match self.bytes().await? {
                Some(more) if bytes.is_empty() => bytes = more,
                Some(more) => bytes.extend_from_slice(&more),
                None => return Err(FastCgiFailed::Wrong("no head, and the end of the request".to_owned())),
            }
            let read = fcgi::head(&bytes).map_err(|why| FastCgiFailed::Wrong(why.to_string()))?;
            if let Some((head, length)) = read {
                bytes.drain(..length);
                self.first = bytes;
                return Ok(head);
            }
        }
    }

    /// Returns what has come of the body already, and whether that is all of it. It does not wait.
    ///
    /// # Errors
    /// The answer has failed behind its head.
    pub fn ready(&mut self) -> Result<(Vec<u8>, bool), FastCgiFailed> {
        let mut context = Context::from_waker(Waker::noop());
        loop {
            match self.poll_bytes(&mut context) {
                Poll::Ready(Ok(Some(more))) => self.first.extend_from_slice(&more),
                Poll::Ready(Ok(None)) => {
                    self.release();
                    return Ok((std::mem::take(&mut self.first), true));
                }
                Poll::Ready(Err(why)) => return Err(why),
                Poll::Pending => return Ok((std::mem::take(&mut self.first), false)),
            }
            if self.first.len() >= READY_BYTES_MAX {
                return Ok((std::mem::take(&mut self.first), false));
            }
        }
    }

    /// Returns the next piece of the body; `None` at its end.
    ///
    /// # Errors
    /// The answer was cut.
    pub async fn next(&mut self) -> Result<Option<Chunk>, FastCgiFailed> {
        match self.bytes().await? {
            Some(bytes) => Ok(Some(Chunk::from(bytes))),
            None => {
                self.release();
                Ok(None)
            }
        }
    }

    /// The request is over: its connection is kept, or closed.
    fn release(&mut self) {
        self.release_connection();
        self.ticket = None;
    }

    fn release_connection(&mut self) {
        let (Some(read), Some(permit)) = (self.read.take(), self.permit.take()) else { return };
        let sending = std::mem::replace(&mut self.sending, Sending::Failed(None));
        if let Sending::Done(write) = sending
            && self.responder.timing.keep > 0
            && self.responses.is_over()
            && self.at == self.received.len()
        {
            let (home, responder) = (Rc::clone(&self.home), Arc::clone(&self.responder));
            home.keep(&responder, Connection { read, write, ids: self.ids, permit });
        }
    }

    /// Returns what is cancelled when the code of the process that answers is old, as [`Worker::parting`],
    /// if it is a process of ours.
    ///
    /// [`Worker::parting`]: crate::Worker::parting
    pub fn parting(&self) -> Option<CancellationToken> {
        self.ticket.as_ref().map(|ticket| ticket.worker().parting().clone())
    }

    /// Returns the answer as a stream of a body. `fault` gets the reason of a failure.
    pub fn into_stream(self, first: Vec<u8>, fault: impl Fn(&str) + 'static) -> FastCgiStream {
        let first = (!first.is_empty()).then(|| Chunk::from(first));
        FastCgiStream { first, answer: Some(self), next: None, fault: Box::new(fault) }
    }
}

/// What is gathered of an answer before it is sent at once.
const READY_BYTES_MAX: usize = 64 << 10;

impl Drop for FastCgiAnswer {
    fn drop(&mut self) {
        if self.read.is_none() || self.responses.is_over() || !is_in_runtime() {
            return;
        }
        // The client has left, or waited too long. An application that looks at its connection learns of it.
        let sending = std::mem::replace(&mut self.sending, Sending::Failed(None));
        let (read, permit) = (self.read.take(), self.permit.take());
        let (ticket, patience) = (self.ticket.take(), self.patience);
        let Some(read) = read else { return };
        let (id, responder) = (self.responses.id(), Arc::clone(&self.responder));
        let giving_up = async move {
            match sending {
                Sending::Done(mut write) => {
                    let mut out = Vec::new();
                    fcgi::abort(&mut out, id);
                    let _ = time::timeout(Duration::from_secs(1), write.write_all(out)).await;
                }
                under_way => drop(under_way),
            }
            // PHP ends at its next output where the connection is closed, not at an order.
            drop(read);
            // A process of ours gets no other request before it has finished with this one.
            if let Some(ticket) = ticket {
                let span = if patience.is_zero() { ticket.settings().timeout } else { patience };
                if time::timeout(span, idle(&responder)).await.is_err() {
                    ticket.stuck();
                }
            }
            drop(permit);
        };
        spawn(giving_up).detach();
    }
}

/// What is being waited for, with the answer that it belongs to.
type Pending = Pin<Box<dyn Future<Output = (FastCgiAnswer, Result<Option<Chunk>, FastCgiFailed>)>>>;

/// The body of an answer as it comes.
pub struct FastCgiStream {
    first: Option<Chunk>,
    answer: Option<FastCgiAnswer>,
    next: Option<Pending>,
    fault: Box<dyn Fn(&str)>,
}

impl fmt::Debug for FastCgiStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FastCgiStream")
    }
}

impl Stream for FastCgiStream {
    type Item = Result<Chunk, String>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if let Some(first) = this.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        if let Some(mut answer) = this.answer.take() {
            this.next = Some(Box::pin(async move {
                let next = answer.next().await;
                (answer, next)
            }));
        }
        let Some(next) = &mut this.next else { return Poll::Ready(None) };
        let (answer, next) = std::task::ready!(next.as_mut().poll(context));
        this.next = None;
        Poll::Ready(match next {
            Ok(Some(chunk)) => {
                this.answer = Some(answer);
                Some(Ok(chunk))
            }
            Ok(None) => None,
            Err(why) => {
                let why = why.to_string();
                (this.fault)(&why);
                Some(Err(why))
            }
        })
    }
}
