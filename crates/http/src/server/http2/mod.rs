//! A connection that uses HTTP/2: its task, which reads frames, begins requests and sends.
//!
//! One task drives the `h2` crate's connection ([`Task`]). If the answer to a request is ready at once, it is
//! sent there, so that requests that arrived together are answered with one send. Any other request gets a
//! task of its own ([`stream`]). Start at [`serve`].
//!
//! INVARIANT: a stream counts ([`Connection::alive`]) from its head until its handler has ended and the last
//! byte of its answer was sent, whatever the client does: [`Life`] is dropped with the last of them. Only the
//! limit ([`Connection::is_full`]) does not count an answer that is completely on the way to the socket.

mod places;
mod request;
mod stream;
mod tunnel;

pub(super) use places::Places;

use super::connection::SeatGuard;
use super::linger::hear_out;
use super::refused::Reason;
use super::seats::{Verdict, Waits};
use super::worker::Worker;
use crate::counters::add;
use crate::h2::{Cost, Http2, Line, Meter, Part, Pipe, Progress, Traffic};
use crate::message::Watched;
use crate::message::{ConnectionHost, ConnectionId, Outcome};
use crate::transport::{HEARD_BYTES_MAX, Transport};
use ::h2::server::{Builder, Connection as Machine};
use ::h2::{Reason as Code, SendStream};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::net::Shutdown;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Largest window (RFC 9113 §6.9.1).
const WINDOW_MAX: u32 = (1 << 31) - 1;

/// How long reset streams are remembered, so that frames on their way to them are accepted.
const RESET_REMEMBERED: Duration = Duration::from_secs(1);

/// Maximum number of reset streams that were never accepted; more at a time is an attack (CVE-2023-44487).
const RESET_WAITING_MAX: usize = 20;

/// Twice what the small DATA frames of one turn may cost in the `h2` crate, which counts 256 bytes for each.
const DATA_FRAME_BUDGET: usize = 128 * 1024;

/// State that a connection's task and its streams share.
pub(super) struct Connection {
    guard: SeatGuard,
    settings: Arc<Http2>,
    line: Rc<Line<Transport>>,
    traffic: Rc<Traffic>,
    alive: Cell<u32>,
    /// Bytes of the heads of waiting requests.
    heads: Cell<usize>,
    /// Answers that are being sent.
    sending: RefCell<Vec<Sending>>,
    /// Streams with a task.
    streams: RefCell<Vec<Weak<stream::Clock>>>,
    /// Streams that carry another protocol.
    tunnels: Cell<u32>,
    /// Requests since the last turn, which restart the idle time.
    begun: Cell<bool>,
}

/// Counts as one stream until it is dropped.
pub(super) struct Life {
    connection: Rc<Connection>,
    head: Cell<usize>,
}

impl Life {
    fn new(connection: &Rc<Connection>) -> Life {
        connection.alive.set(connection.alive.get() + 1);
        Life { connection: Rc::clone(connection), head: Cell::new(0) }
    }

    /// Records that it holds a head of `bytes` while it waits.
    fn hold_head(&self, bytes: usize) {
        let heads = &self.connection.heads;
        heads.set(heads.get() + bytes - self.head.replace(bytes));
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        let connection = &self.connection;
        connection.alive.set(connection.alive.get() - 1);
        connection.heads.set(connection.heads.get() - self.head.get());
        connection.traffic.changed.set(true);
    }
}

/// An answer that the HTTP/2 machine has, and that is not sent completely.
struct Sending {
    stream: SendStream<Part>,
    progress: Rc<Progress>,
    watched: Option<Box<Watched>>,
    /// [`Progress::moved`] at the last check, and the second in which it last changed.
    moved: u64,
    since: u32,
    /// The second in which the machine got it.
    begun: u32,
    _life: Life,
}

impl Sending {
    /// Gives the answer up: its receiver is too slow. Its parts are dropped, and the stream ends with the
    /// last one.
    fn give_up(&mut self, worker: &Worker) {
        add(&worker.counts().timed_out, 1);
        if let Some(mut watched) = self.watched.take() {
            watched.body_bytes = self.progress.moved();
            watched.end(Outcome::TooSlow);
        }
        self.stream.send_reset(Code::CANCEL);
    }
}

impl Connection {
    fn worker(&self) -> &Rc<Worker> {
        &self.guard.worker
    }

    fn seat(&self) -> ConnectionId {
        self.guard.seat
    }

    fn charge(&self) {
        self.line.meter.borrow_mut().charge(Cost::ONE);
    }

    /// Returns whether the client has as many streams as it may have.
    ///
    /// A client that has received an answer may open the next stream at once, before the flush that sent the
    /// answer has ended here. Such an answer holds no bytes of ours any more, and the machine counts its
    /// frames itself.
    fn is_full(&self) -> bool {
        let (alive, most) = (self.alive.get() as usize, self.settings.streams as usize);
        if alive < most {
            return false;
        }
        let on_their_way = self.sending.borrow().iter().filter(|answer| answer.progress.is_idle()).count();
        // The same for a tunnel that has ended its side: the client may have ended the other side just now.
        // The machine counts those that it still has, and only that many more are admitted here.
        let finishing = (self.traffic.finishing.get() as usize).min(most);
        alive - on_their_way - finishing >= most
    }

    /// Returns how many bytes the client may send ahead, for bodies and for each tunnel.
    fn window(&self) -> u64 {
        let settings = &self.settings;
        let held = u64::from(self.tunnels.get()) * u64::from(settings.stream_window);
        u64::from(settings.connection_window.max(65_535)) + held
    }

    /// Watches an answer until all of it was sent.
    fn send(
        &self,
        stream: SendStream<Part>,
        progress: Rc<Progress>,
        watched: Option<Box<Watched>>,
        life: Life,
    ) {
        let now = self.worker().now();
        let sending = Sending { stream, progress, watched, moved: 0, since: now, begun: now, _life: life };
        self.sending.borrow_mut().push(sending);
        self.traffic.changed.set(true);
    }

    /// Removes answers that have ended. Returns how many of them were sent completely.
    fn settle_sent(&self) -> u32 {
        if !self.traffic.changed.replace(false) {
            return 0;
        }
        let mut over = Vec::new();
        {
            let mut sending = self.sending.borrow_mut();
            let mut at = 0;
            while let Some(answer) = sending.get(at) {
                if answer.progress.is_idle() { over.push(sending.swap_remove(at)) } else { at += 1 }
            }
        }
        let mut complete = 0;
        // Callbacks may run any code.
        for answer in over {
            let is_cut = answer.progress.is_cut();
            complete += u32::from(!is_cut);
            if let Some(mut watched) = answer.watched {
                watched.body_bytes = answer.progress.moved();
                watched.end(if is_cut { self.why_cut() } else { Outcome::Complete });
            }
        }
        complete
    }

    /// Returns the outcome of an answer that was not sent.
    fn why_cut(&self) -> Outcome {
        match self.worker().seats.verdict(self.seat()) {
            Verdict::Overdue(_) => Outcome::TooSlow,
            Verdict::Stopped => Outcome::Dropped,
            Verdict::None => Outcome::ClientGone,
        }
    }

    /// Checks the deadlines of streams; `passed` is the number of seconds since the last check.
    fn pass_seconds(&self, passed: u32) {
        let worker = self.worker();
        let (now, stall) = (worker.now(), worker.seats.deadlines().send_stall);
        for answer in self.sending.borrow_mut().iter_mut() {
            let moved = answer.progress.moved();
            if moved != answer.moved {
                (answer.moved, answer.since) = (moved, now);
            } else if Duration::from_secs(now.saturating_sub(answer.since).saturating_sub(1).into()) >= stall
            {
                answer.give_up(worker);
            }
        }
        let deadlines = worker.seats.deadlines().clone();
        self.streams.borrow_mut().retain(|stream| match stream.upgrade() {
            Some(stream) => {
                stream.pass(now, passed, &deadlines);
                true
            }
            None => false,
        });
    }

    /// Gives up the answers that have waited for flow control for a whole window of the minimum rate, which
    /// the connection has not reached. Returns `false` if there are none, or if the socket itself takes
    /// nothing; the connection is to end then.
    fn give_up_slow(&self) -> bool {
        if !self.line.flushed.get() {
            return false;
        }
        let worker = self.worker();
        let (now, window) = (worker.now(), worker.seats.deadlines().send_stall);
        let mut given_up = false;
        for answer in self.sending.borrow_mut().iter_mut() {
            let waited = Duration::from_secs(now.saturating_sub(answer.begun).into());
            if answer.progress.waiting() > 0 && waited >= window {
                answer.give_up(worker);
                given_up = true;
            }
        }
        given_up
    }

    /// Returns whether a stream has a running deadline.
    fn is_watched(&self) -> bool {
        !self.sending.borrow().is_empty() || !self.streams.borrow().is_empty()
    }
}

/// Serves a connection from which `early` was received; its bytes from `at` on are not used yet.
pub(super) async fn serve(guard: SeatGuard, stream: Transport, mut early: Vec<u8>, at: usize) {
    early.drain(..at.min(early.len()));
    let worker = Rc::clone(&guard.worker);
    let Some(settings) = worker.settings.http2.clone() else { return };
    let meter = Meter::new(settings.misbehaviour, worker.now());
    let line = Line::new(stream, early, meter);
    let connection = Rc::new(Connection {
        guard,
        line: Rc::clone(&line),
        traffic: Rc::default(),
        alive: Cell::new(0),
        heads: Cell::new(0),
        sending: RefCell::default(),
        streams: RefCell::default(),
        tunnels: Cell::new(0),
        begun: Cell::new(false),
        settings,
    });
    let ended = run(&connection, Pipe(Rc::clone(&line))).await;
    let owned = connection.traffic.owned.get();
    debug_assert!(owned == 0 || !connection.sending.borrow().is_empty(), "{owned} bytes have no answer");
    connection.traffic.changed.set(true);
    connection.settle_sent();
    match ended {
        Ended::InOrder => linger(&connection).await,
        // Accepted data is dropped: the client has left, or takes nothing.
        Ended::Broken => line.io.borrow_mut().discard(),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// GOAWAY was sent, or the client has ended its side.
    InOrder,
    Broken,
}

/// Ends as an HTTP/1 connection does: shuts our side down, then drops input for a while, so that the client
/// reads the last frames.
async fn linger(connection: &Connection) {
    let (worker, seat) = (connection.worker(), connection.seat());
    worker.begin_end(seat);
    let io = &connection.line.io;
    if io.borrow_mut().get_mut().shutdown(Shutdown::Write).is_err() {
        return;
    }
    // The client cannot have sent more before it could read the last frames.
    let most = connection.window() + HEARD_BYTES_MAX;
    hear_out(worker, seat, most, |context| io.borrow_mut().get_mut().poll_recv(context)).await;
}

/// Runs the connection from the preface to its end.
async fn run(connection: &Rc<Connection>, pipe: Pipe<Transport>) -> Ended {
    let worker = connection.worker();
    worker.seats.set(connection.seat(), Waits::Head, worker.now());
    let settings = &connection.settings;
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(settings.streams)
        .initial_window_size(settings.stream_window.max(1))
        .initial_connection_window_size(settings.connection_window.max(65_535))
        .max_header_list_size(settings.header_list_bytes)
        .max_concurrent_reset_streams(settings.streams as usize)
        .reset_stream_duration(RESET_REMEMBERED)
        .max_pending_accept_reset_streams(RESET_WAITING_MAX)
        .max_local_error_reset_streams(Some(settings.misbehaviour.burst as usize))
        .data_frame_budget(DATA_FRAME_BUDGET.max(settings.connection_window as usize / 2));
    if settings.websocket {
        builder.enable_connect_protocol();
    }
    let mut handshake = pin!(builder.handshake::<_, Part>(pipe));
    let line = &connection.line;
    let machine = poll_fn(|context| {
        line.meter.borrow_mut().begin_turn(worker.now());
        let polled = handshake.as_mut().poll(context);
        if polled.is_pending() && (line.interrupted.get() || line.meter.borrow().is_exhausted()) {
            return Poll::Ready(None);
        }
        polled.map(Some)
    });
    let machine = match machine.await {
        Some(Ok(machine)) => machine,
        Some(Err(why)) => {
            tell_broken(connection, &why);
            return Ended::Broken;
        }
        None => {
            add(&worker.counts().timed_out, 1);
            worker.tell_refused(connection.seat(), None, Reason::SlowHead, &[]);
            return Ended::Broken;
        }
    };
    let mut task = Task {
        connection: Rc::clone(connection),
        machine,
        requests_left: worker.requests_per_connection.get(),
        leaving: false,
        calmed: false,
        waits: None,
        second: worker.now(),
        sweep: worker.sweeps(),
        stop_waiter: None,
        second_waiter: None,
        tunnels: 0,
        moved: 0,
        pieces: 0,
        frames: 0,
        bytes: (0, 0),
        owned: 0,
    };
    poll_fn(|context| task.turn(context)).await
}

/// Reports a connection on which the client broke the protocol.
fn tell_broken(connection: &Connection, why: &::h2::Error) {
    if let Some(code) = why.reason()
        && why.is_go_away()
        && !why.is_remote()
        && code != Code::NO_ERROR
    {
        let worker = connection.worker();
        add(&worker.counts().refused, 1);
        worker.tell_refused(connection.seat(), None, Reason::Http2(code.into()), &[]);
    }
}

/// The task of a connection.
struct Task {
    connection: Rc<Connection>,
    machine: Machine<Pipe<Transport>, Part>,
    requests_left: u32,
    /// Whether GOAWAY was requested: present streams are completed.
    leaving: bool,
    /// Whether the connection was ended for misbehaviour (`ENHANCE_YOUR_CALM`).
    calmed: bool,
    /// What the seat records.
    waits: Option<Waits>,
    /// The second in which deadlines were last checked.
    second: u32,
    /// The last sweep that was handled.
    sweep: u32,
    stop_waiter: Option<u64>,
    second_waiter: Option<u64>,
    /// The number of tunnels for which the connection's window has room.
    tunnels: u32,
    /// Traffic that is already accounted for.
    moved: u64,
    pieces: u32,
    frames: u64,
    bytes: (u64, u64),
    owned: usize,
}

impl Task {
    /// Runs one turn: begins received requests, sends, and updates the accounting.
    fn turn(&mut self, context: &mut Context<'_>) -> Poll<Ended> {
        let connection = Rc::clone(&self.connection);
        let (worker, line) = (connection.worker(), &*connection.line);
        line.meter.borrow_mut().begin_turn(worker.now());
        if line.interrupted.take()
            && let Some(ended) = self.interrupted()
        {
            return Poll::Ready(ended);
        }
        if worker.is_stopping() {
            self.leave();
        }
        if self.sweep != worker.sweeps() {
            // The waiter is used up, even if this is the same second as at the last sweep.
            (self.sweep, self.second_waiter) = (worker.sweeps(), None);
            let now = worker.now();
            connection.pass_seconds(now.saturating_sub(std::mem::replace(&mut self.second, now)));
        }
        self.widen();
        let ended = self.exchange(context);
        self.account(context);
        ended
    }

    /// Enlarges the connection's window for the bytes that each tunnel may hold unread. Otherwise a session
    /// that reads slowly would stop the other bodies and sessions.
    fn widen(&mut self) {
        let connection = &self.connection;
        let tunnels = connection.tunnels.get();
        if tunnels == self.tunnels {
            return;
        }
        self.tunnels = tunnels;
        let window = connection.window();
        self.machine.set_target_window_size(u32::try_from(window).unwrap_or(u32::MAX).min(WINDOW_MAX));
    }

    fn exchange(&mut self, context: &mut Context<'_>) -> Poll<Ended> {
        let connection = Rc::clone(&self.connection);
        let line = &*connection.line;
        loop {
            // Corked, so that the answers to requests that arrived together are sent together.
            let mut begun = false;
            loop {
                line.corked.set(true);
                let polled = self.machine.poll_accept(context);
                line.corked.set(false);
                match polled {
                    Poll::Pending => break,
                    Poll::Ready(Some(Ok((request, respond)))) => {
                        begun = true;
                        connection.begun.set(true);
                        self.requests_left = self.requests_left.saturating_sub(1);
                        request::begin(&connection, request, respond, context);
                    }
                    Poll::Ready(Some(Err(why))) => {
                        self.tell_end(&why);
                        return Poll::Ready(if why.is_io() { Ended::Broken } else { Ended::InOrder });
                    }
                    Poll::Ready(None) => return Poll::Ready(Ended::InOrder),
                }
            }
            if self.requests_left == 0 {
                self.leave();
            }
            if line.meter.borrow().is_exhausted() && !self.calmed {
                (self.calmed, self.leaving) = (true, true);
                self.machine.abrupt_shutdown(Code::ENHANCE_YOUR_CALM);
                let worker = connection.worker();
                add(&worker.counts().refused, 1);
                worker.tell_refused(connection.seat(), None, Reason::Misbehaviour, &[]);
                begun = true;
            }
            // Uncorked for one flush, which may find further requests.
            match self.machine.poll_closed(context) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => return Poll::Ready(Ended::InOrder),
                Poll::Ready(Err(why)) => {
                    self.tell_end(&why);
                    return Poll::Ready(if why.is_io() { Ended::Broken } else { Ended::InOrder });
                }
            }
            if line.flushed.get() {
                let complete = connection.settle_sent();
                line.meter.borrow_mut().earn(0, complete);
            }
            if !begun {
                return Poll::Pending;
            }
        }
    }

    fn tell_end(&self, why: &::h2::Error) {
        if !self.calmed {
            tell_broken(&self.connection, why);
        }
    }

    /// Accepts no more requests, and ends when the present ones are answered.
    fn leave(&mut self) {
        if !self.leaving {
            self.leaving = true;
            self.machine.graceful_shutdown();
        }
    }

    /// Handles a cancel by the worker's sweep.
    fn interrupted(&mut self) -> Option<Ended> {
        let connection = Rc::clone(&self.connection);
        let (worker, seat) = (connection.worker(), connection.seat());
        match worker.seats.verdict(seat) {
            // Idle for too long: GOAWAY, and time for the client to process it. A request may be on the way,
            // also if the server stops just after GOAWAY was requested.
            Verdict::Overdue(Waits::Request) | Verdict::Stopped if self.waits != Some(Waits::End) => {
                if worker.seats.verdict(seat) != Verdict::Stopped {
                    add(&worker.counts().timed_out, 1);
                }
                self.leave();
                worker.seats.pardon(seat, worker.now());
                worker.begin_end(seat);
                self.waits = Some(Waits::End);
                None
            }
            // The client reads, but opens no window. That concerns these streams, not the others.
            Verdict::Overdue(Waits::SendMore) if connection.give_up_slow() => {
                worker.seats.pardon(seat, worker.now());
                None
            }
            Verdict::Overdue(waits) => {
                if waits != Waits::End {
                    add(&worker.counts().timed_out, 1);
                }
                if waits == Waits::Head {
                    worker.tell_refused(seat, None, Reason::SlowHead, &[]);
                }
                Some(Ended::Broken)
            }
            Verdict::Stopped => Some(Ended::Broken),
            Verdict::None => None,
        }
    }

    /// Updates the worker's accounting, and records what the connection waits for.
    fn account(&mut self, context: &mut Context<'_>) {
        let connection = &*self.connection;
        let (worker, seat, line) = (connection.worker(), connection.seat(), &*connection.line);
        let (bytes_in, bytes_out) = (line.bytes_in.get(), line.bytes_out.get());
        add(&worker.counts().bytes_in, bytes_in - self.bytes.0);
        add(&worker.counts().bytes_out, bytes_out - self.bytes.1);
        let has_sent = bytes_out > self.bytes.1;
        self.bytes = (bytes_in, bytes_out);
        let owned = connection.traffic.owned.get();
        if owned > self.owned {
            worker.begin_send(owned - self.owned);
        } else {
            worker.end_send(self.owned - owned);
        }
        self.owned = owned;
        let moved = connection.traffic.moved.get();
        let step = moved - self.moved;
        self.moved = moved;
        let pieces = connection.traffic.complete.get();
        {
            let mut meter = line.meter.borrow_mut();
            let frames = meter.frames();
            add(&worker.counts().http2_frames, frames - std::mem::replace(&mut self.frames, frames));
            meter.earn(step, 0);
            meter.earn_updates(pieces.wrapping_sub(std::mem::replace(&mut self.pieces, pieces)));
        }

        // Includes a streamed answer, which is not in the list until its last piece. Sessions have their own
        // deadlines.
        let is_sending = connection.sending.borrow().iter().any(|answer| answer.progress.waiting() > 0)
            || (owned > 0 && connection.tunnels.get() == 0);
        let waits = if line.meter.borrow().is_within() {
            Waits::Head
        } else if is_sending {
            Waits::SendMore
        } else if !line.flushed.get() {
            Waits::Send
        } else if connection.alive.get() > 0 {
            Waits::Handler
        } else {
            Waits::Request
        };
        let is_new = self.waits != Some(waits);
        // A request that was on the way when the end began has as much time as any other.
        let goes_on = self.waits != Some(Waits::End) || connection.alive.get() > 0;
        if goes_on && (is_new || (waits == Waits::Request && connection.begun.get())) {
            if is_new && waits == Waits::SendMore {
                worker.seats.begin_large(seat);
            }
            worker.seats.set(seat, waits, worker.now());
            self.waits = Some(waits);
        }
        connection.begun.set(false);
        // Data of sessions may never be sent completely. Each session has its own deadline.
        if waits == Waits::Send && has_sent && connection.tunnels.get() > 0 {
            worker.seats.set(seat, waits, worker.now());
        }
        if step > 0 && waits == Waits::SendMore {
            worker.seats.sent(seat, usize::try_from(step).unwrap_or(usize::MAX), worker.now());
        }
        if self.stop_waiter.is_none() {
            let _ = worker.poll_stopping(&mut self.stop_waiter, context);
        }
        if self.second_waiter.is_none() && connection.is_watched() {
            worker.wait_for_second(&mut self.second_waiter, context);
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        let worker = self.connection.worker();
        worker.end_send(self.owned);
        if let Some(waiter) = self.stop_waiter {
            worker.forget(ConnectionId::NONE, waiter);
        }
        if let Some(waiter) = self.second_waiter {
            worker.forget_second(waiter);
        }
    }
}
