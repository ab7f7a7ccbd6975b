//! A stream with a task of its own: its handler waits, or reads a body that has not arrived, or answers with
//! a stream of pieces.

use super::request::{PlaceGuard, watched};
use super::{Connection, Life, tunnel};
use crate::counters::add;
use crate::h2::head::{interim_head, response_head, trailer_pairs, trailers};
use crate::h2::{Part, Progress};
use crate::message::Watched;
use crate::message::{
    BodyError, Chunk, ConnectionId, Incoming, Inner, Outcome, Piece, Pieces, Response, refusal,
};
use crate::server::connection::panicked;
use crate::server::exchange::{Polled, StopWaiter, ends_on_stop, poll_piece};
use crate::server::refused::Reason;
use crate::server::route::{Panicked, Running};
use crate::server::worker::Worker;
use ::h2::server::SendResponse;
use ::h2::{Reason as Code, RecvStream, SendStream};
use ringroad_engine::spawn;
use ringroad_wire::{Deadlines, Method, Status};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// Bytes of a streamed answer that may wait for flow control before the next piece is requested.
const WAITING_BYTES_MAX: usize = 64 * 1024;

/// Maximum bytes of a body that are received and dropped after the answer, so that the client reads the
/// answer.
const UNREAD_BYTES_MAX: usize = 1 << 20;

/// Maximum seconds for that.
const UNREAD_SECONDS: u32 = 2;

/// The deadlines of a stream: of its body's arrival and of its answer's pieces.
#[derive(Default)]
pub(super) struct Clock {
    /// Whether the body is waited for.
    waits: Cell<bool>,
    grace_left: Cell<Option<u16>>,
    received: Cell<u64>,
    /// Whether the body arrived too slowly.
    is_overdue: Cell<bool>,
    task: RefCell<Option<Waker>>,
}

impl Clock {
    /// Accounts for `passed` seconds.
    pub(super) fn pass(&self, _: u32, passed: u32, deadlines: &Deadlines) {
        if !self.waits.get() {
            return;
        }
        let grace = u16::try_from(deadlines.body_grace.as_secs()).unwrap_or(u16::MAX);
        // The second in which it begins may be nearly over.
        let left = self.grace_left.get().unwrap_or(grace.saturating_add(1));
        let left = left.saturating_sub(u16::try_from(passed).unwrap_or(u16::MAX));
        self.grace_left.set(Some(left));
        if left > 0 {
            return;
        }
        let least = u64::from(deadlines.body_bytes_per_second_min) * u64::from(grace);
        if self.received.replace(0) >= least {
            return self.grace_left.set(Some(grace));
        }
        self.is_overdue.set(true);
        let task = self.task.borrow_mut().take();
        if let Some(task) = task {
            task.wake();
        }
    }
}

/// The body of a request, between the HTTP/2 machine and its reader.
///
/// DATA frames are taken out of the machine as they arrive, into one buffer, so that many small frames hold
/// no more than their bytes. Flow control returns the bytes that the reader has taken, so the buffer is never
/// longer than the stream's window.
pub(super) struct Pump {
    connection: Rc<Connection>,
    recv: RecvStream,
    pub(super) incoming: Rc<Incoming>,
    queue: Vec<u8>,
    state: PumpState,
    expects_continue: bool,
    clock: Rc<Clock>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PumpState {
    Data,
    Trailers,
    Ended,
    Over,
}

impl Pump {
    pub(super) fn new(
        connection: &Rc<Connection>,
        recv: RecvStream,
        incoming: Rc<Incoming>,
        expects_continue: bool,
    ) -> Pump {
        Pump {
            connection: Rc::clone(connection),
            recv,
            incoming,
            queue: Vec::new(),
            state: PumpState::Data,
            expects_continue,
            clock: Rc::default(),
        }
    }

    /// Takes received bytes, and gives the reader what it has requested.
    pub(super) fn poll(&mut self, respond: &mut SendResponse<Part>, context: &mut Context<'_>) {
        while self.state == PumpState::Data {
            match self.recv.poll_data(context) {
                Poll::Pending => break,
                Poll::Ready(Some(Ok(data))) => {
                    self.queue.extend_from_slice(&data);
                    self.clock.received.set(self.clock.received.get() + data.len() as u64);
                }
                Poll::Ready(None) => self.state = PumpState::Trailers,
                Poll::Ready(Some(Err(why))) => self.fail(&why),
            }
        }
        let mut lines = Vec::new();
        if self.state == PumpState::Trailers {
            match self.recv.poll_trailers(context) {
                Poll::Pending => {}
                Poll::Ready(Ok(map)) => {
                    lines = map.as_ref().map(trailer_pairs).unwrap_or_default();
                    self.state = PumpState::Ended;
                }
                Poll::Ready(Err(why)) => self.fail(&why),
            }
        }
        let is_wanted = self.incoming.is_wanted(context);
        if !self.queue.is_empty()
            && (is_wanted || self.state == PumpState::Ended && !self.incoming.has_piece())
        {
            let piece = std::mem::take(&mut self.queue);
            // An error means that the stream is over; then its window does not matter.
            let _ = self.recv.flow_control().release_capacity(piece.len());
            self.incoming.push(Chunk::from(piece));
        }
        if self.state == PumpState::Ended && self.queue.is_empty() {
            self.state = PumpState::Over;
            self.incoming.end_with(lines);
        }
        let waits = is_wanted && matches!(self.state, PumpState::Data | PumpState::Trailers);
        if waits && std::mem::take(&mut self.expects_continue) {
            let mut head = ::http::Response::new(());
            *head.status_mut() = ::http::StatusCode::CONTINUE;
            // An error means that the answer has begun, or that the stream is over.
            let _ = respond.send_informational(head);
        }
        self.clock.waits.set(waits && !self.incoming.is_unhurried());
        if waits {
            self.clock.task.borrow_mut().replace(context.waker().clone());
        }
    }

    fn fail(&mut self, why: &::h2::Error) {
        self.state = PumpState::Over;
        let _ = why;
        self.incoming.fail(BodyError::Over);
    }

    /// Returns whether the client sent too slowly. The reader gets that error.
    fn take_overdue(&mut self) -> bool {
        if !self.clock.is_overdue.take() {
            return false;
        }
        add(&self.connection.worker().counts().timed_out, 1);
        self.state = PumpState::Over;
        self.incoming.fail(BodyError::TooSlow);
        true
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        self.incoming.fail(BodyError::Over);
    }
}

/// Receives and drops the rest of a body without a reader, after the answer, up to a limit. Then the receiver
/// is dropped, which ends the stream with RST_STREAM(NO_ERROR) (RFC 9113 §8.1). If this were sent at once,
/// some clients would lose the answer (curl up to 7.88).
async fn hear_out(connection: &Connection, recv: &mut RecvStream) {
    let worker = connection.worker();
    let (begun, mut left, mut waiter) = (worker.now(), UNREAD_BYTES_MAX, None);
    poll_fn(|context| {
        while let Poll::Ready(data) = recv.poll_data(context) {
            // The end of the body, or of the stream.
            let Some(Ok(data)) = data else { return Poll::Ready(()) };
            left = left.saturating_sub(data.len());
            // An error means that the stream is over; then its window does not matter.
            let _ = recv.flow_control().release_capacity(data.len());
            if left == 0 {
                return Poll::Ready(());
            }
        }
        if worker.now().saturating_sub(begun) >= UNREAD_SECONDS || worker.is_stopping() {
            return Poll::Ready(());
        }
        worker.wait_for_second(&mut waiter, context);
        Poll::Pending
    })
    .await;
    if let Some(waiter) = waiter {
        worker.forget_second(waiter);
    }
}

/// Drops the rest of the body: the whole answer was given to the machine, so the body has no reader.
pub(super) fn let_go(pump: Option<Pump>) {
    let Some(mut pump) = pump.filter(|pump| pump.state == PumpState::Data) else { return };
    pump.incoming.fail(BodyError::Over);
    pump.clock.waits.set(false);
    let unread = std::mem::take(&mut pump.queue).len();
    // An error means that the stream is over.
    let _ = pump.recv.flow_control().release_capacity(unread);
    let connection = Rc::clone(&pump.connection);
    spawn(async move { hear_out(&connection, &mut pump.recv).await }).detach();
}

/// Sends the interim heads of a handler.
#[inline]
pub(super) fn send_interims(worker: &Worker, id: ConnectionId, respond: &mut SendResponse<Part>) {
    for interim in worker.interims.take(id) {
        if let Some(head) = interim_head(&interim) {
            // An error means that the stream is over.
            let _ = respond.send_informational(head);
        }
    }
}

/// Framing of an answer.
struct Framing {
    length: Option<u64>,
    has_body: bool,
}

fn framing(response: &Response, size: Option<u64>, method: Method) -> Framing {
    let status = response.status_code();
    if status.forbids_body() {
        return Framing { length: None, has_body: false };
    }
    Framing { length: size, has_body: method != Method::Head && size != Some(0) }
}

/// Sends the head; `None` if the stream is over.
fn send_head(
    connection: &Connection,
    respond: &mut SendResponse<Part>,
    response: &Response,
    framing: &Framing,
) -> Option<SendStream<Part>> {
    let worker = connection.worker();
    worker.counts().responded(response.status_code());
    let head = response_head(response, framing.length, worker.heads.borrow().date());
    respond.send_response(head, !framing.has_body).ok()
}

/// Sends an answer of the protocol layer.
pub(super) fn send_now(
    connection: &Rc<Connection>,
    mut respond: SendResponse<Part>,
    mut recv: RecvStream,
    method: Method,
    response: Response,
    life: Life,
) {
    send_whole(connection, &mut respond, method, response, None, life);
    if !recv.is_end_stream() {
        let connection = Rc::clone(connection);
        spawn(async move { hear_out(&connection, &mut recv).await }).detach();
    }
}

/// Sends a response with a complete body.
pub(super) fn send_whole(
    connection: &Rc<Connection>,
    respond: &mut SendResponse<Part>,
    method: Method,
    mut response: Response,
    began: Option<Instant>,
    life: Life,
) {
    if response.switches() {
        // RFC 9113 §8.6: this request has made no offer.
        response = response.status(Status::UPGRADE_REQUIRED);
    }
    let watched = watched(&mut response, method, began);
    let chunk = response.whole_body();
    let size = chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
    let framing = framing(&response, Some(size), method);
    let progress = Progress::new(&connection.traffic);
    let Some(mut stream) = send_head(connection, respond, &response, &framing) else {
        return end_watched(watched, Outcome::ClientGone);
    };
    if let Some(chunk) = chunk.filter(|_| framing.has_body)
        // An error drops the part, which the progress reports.
        && stream.send_data(Part::new(chunk, &progress), true).is_err()
    {
        return end_watched(watched, Outcome::ClientGone);
    }
    connection.send(stream, progress, watched, life);
}

fn end_watched(watched: Option<Box<Watched>>, outcome: Outcome) {
    if let Some(watched) = watched {
        watched.end(outcome);
    }
}

/// A stream that is not answered in the first poll.
pub(super) struct Stream {
    pub(super) connection: Rc<Connection>,
    pub(super) place: PlaceGuard,
    pub(super) pump: Option<Pump>,
    /// The receiving side, if the client offers another protocol.
    pub(super) offered: Option<RecvStream>,
    pub(super) respond: SendResponse<Part>,
    pub(super) method: Method,
    pub(super) began: Instant,
    pub(super) life: Life,
}

/// Why a handler is not waited for any more.
enum Lost {
    Gone,
    TooSlow,
}

impl Stream {
    /// Waits for the handler, in a task of its own.
    pub(super) fn run(self, running: Pin<Box<dyn Running>>) {
        self.watch_deadlines();
        spawn(self.answer(running)).detach();
    }

    /// Sends a response that is not complete, in a task of its own.
    pub(super) fn finish(self, response: Response) {
        self.watch_deadlines();
        spawn(self.send(response)).detach();
    }

    fn watch_deadlines(&self) {
        if let Some(pump) = &self.pump {
            self.connection.streams.borrow_mut().push(Rc::downgrade(&pump.clock));
        }
    }

    async fn answer(mut self, mut running: Pin<Box<dyn Running>>) {
        let connection = Rc::clone(&self.connection);
        let worker = connection.worker();
        let mut watches = true;
        let polled = poll_fn(|context| {
            if let Some(pump) = &mut self.pump {
                pump.poll(&mut self.respond, context);
                if pump.take_overdue() {
                    // The handler is polled once more, to clean up.
                    worker.refusing.set(Some((self.place.id, Status::REQUEST_TIMEOUT)));
                    let _ = running.as_mut().poll(context);
                    return Poll::Ready(Err(Lost::TooSlow));
                }
            }
            if watches && self.respond.poll_reset(context).is_ready() {
                watches = false;
                add(&worker.counts().clients_gone, 1);
                worker.places.set_gone(self.place.id);
                worker.wake_place(self.place.id);
                if worker.cancels(self.place.id, self.method) {
                    return Poll::Ready(Err(Lost::Gone));
                }
            }
            let polled = running.as_mut().poll(context);
            send_interims(worker, self.place.id, &mut self.respond);
            if polled.is_pending()
                && let Some(pump) = &mut self.pump
            {
                // The reader may have requested more in this poll.
                pump.poll(&mut self.respond, context);
            }
            polled.map(Ok)
        })
        .await;
        running.recycle();
        worker.refusing.set(None);
        let response = match polled {
            Ok(Ok(response)) => response,
            Ok(Err(Panicked)) => panicked(worker, connection.seat()),
            Err(Lost::Gone) => return,
            Err(Lost::TooSlow) => {
                let (status, reason) = (Status::REQUEST_TIMEOUT, Reason::SlowBody);
                worker.tell(connection.seat(), Some(status), reason, &[], true);
                refusal(status)
            }
        };
        let response = match self.offered.take() {
            Some(recv) if response.switches() => {
                let Stream { connection, mut respond, began, life, place, .. } = self;
                let began = Some(began);
                return tunnel::begin(&connection, &mut respond, response, recv, place, began, life);
            }
            Some(_) => tunnel::refused(response),
            None => response,
        };
        if response.streams() || response.is_file() {
            return self.send(response).await;
        }
        let Stream { mut respond, method, began, life, pump, place, .. } = self;
        drop(place);
        send_whole(&connection, &mut respond, method, response, Some(began), life);
        let_go(pump);
    }

    /// Sends a stream. Each piece is requested when those before are nearly sent.
    async fn send(self, mut response: Response) {
        let Stream { connection, place, mut pump, mut respond, method, began, life, .. } = self;
        let ends_on_stop = ends_on_stop(&response);
        let watched = watched(&mut response, method, Some(began));
        let pieces = match response.take_body().0 {
            Inner::File(part) => part.into_pieces(),
            Inner::Stream(pieces) => *pieces,
            // Only files and streams get here.
            Inner::Empty | Inner::Whole(_) | Inner::Switch(_) => return,
        };
        let framing = framing(&response, pieces.size, method);
        let head = send_head(&connection, &mut respond, &response, &framing);
        let Some(mut stream) = head else { return end_watched(watched, Outcome::ClientGone) };
        let progress = Progress::new(&connection.traffic);
        if !framing.has_body {
            connection.send(stream, progress, watched, life);
            return let_go(pump);
        }
        if let Some(pump) = &pump
            && Rc::strong_count(&pump.incoming) == 1
        {
            pump.incoming.fail(BodyError::Over);
        }
        let sent = send_pieces(
            &connection,
            &mut stream,
            &mut respond,
            pieces,
            pump.as_mut(),
            &progress,
            ends_on_stop,
        )
        .await;
        drop(place);
        match sent {
            Ok(()) => {
                connection.send(stream, progress, watched, life);
                let_go(pump);
            }
            Err((outcome, code)) => {
                stream.send_reset(code);
                if let Some(mut watched) = watched {
                    watched.body_bytes = progress.moved();
                    watched.end(outcome);
                }
            }
        }
    }
}

/// Sends the pieces of a body to their end. Otherwise returns how it ended, and the code for the client.
async fn send_pieces(
    connection: &Rc<Connection>,
    stream: &mut SendStream<Part>,
    respond: &mut SendResponse<Part>,
    pieces: Pieces,
    mut pump: Option<&mut Pump>,
    progress: &Rc<Progress>,
    ends_on_stop: bool,
) -> Result<(), (Outcome, Code)> {
    let worker = connection.worker();
    let mut source = pieces.stream;
    let mut left = pieces.size;
    let mut stop = StopWaiter { worker, waiter: None };
    // The stall of this stream: the last second with progress while something waited.
    let mut seen = (progress.moved(), worker.now());
    let mut waiter = None;
    let result = loop {
        let step = poll_fn(|context| {
            if let Some(pump) = &mut pump {
                pump.poll(respond, context);
                pump.take_overdue();
            }
            if stream.poll_reset(context).is_ready() || progress.is_cut() {
                return Poll::Ready(Err((connection.why_cut(), Code::CANCEL)));
            }
            if progress.poll_below(WAITING_BYTES_MAX, context).is_pending() {
                let (moved, now) = (progress.moved(), worker.now());
                if moved != seen.0 {
                    seen = (moved, now);
                } else {
                    let waited = u64::from(now.saturating_sub(seen.1).saturating_sub(1));
                    if waited >= worker.seats.deadlines().send_stall.as_secs() {
                        add(&worker.counts().timed_out, 1);
                        return Poll::Ready(Err((Outcome::TooSlow, Code::CANCEL)));
                    }
                }
                worker.wait_for_second(&mut waiter, context);
                return Poll::Pending;
            }
            seen = (progress.moved(), worker.now());
            if ends_on_stop && stop.poll(context).is_ready() {
                return Poll::Ready(Ok(Polled::End));
            }
            poll_piece(&mut source, context).map(Ok)
        })
        .await;
        let piece = match step {
            Err(lost) => break Err(lost),
            Ok(Polled::Failed) => break Err((Outcome::BodyFailed, Code::INTERNAL_ERROR)),
            Ok(Polled::Panicked) => {
                add(&worker.counts().panics, 1);
                worker.tell_refused(connection.seat(), None, Reason::Panicked, &[]);
                break Err((Outcome::BodyFailed, Code::INTERNAL_ERROR));
            }
            Ok(Polled::End) => {
                // The client checks the length, and would treat a regular end as an error anyway.
                if left.is_some_and(|left| left > 0) && !ends_on_stop {
                    break Err((Outcome::BodyFailed, Code::INTERNAL_ERROR));
                }
                let last = Part::new(Chunk::of_static(b""), progress);
                break stream.send_data(last, true).map_err(|_| (connection.why_cut(), Code::CANCEL));
            }
            Ok(Polled::Piece(Piece::Trailers(lines))) => {
                let sent = stream.send_trailers(trailers(&lines));
                break sent.map_err(|_| (connection.why_cut(), Code::CANCEL));
            }
            Ok(Polled::Piece(Piece::Data(chunk))) => chunk,
        };
        if piece.is_empty() {
            continue;
        }
        if let Some(left) = &mut left {
            let Some(rest) = left.checked_sub(piece.len() as u64) else {
                break Err((Outcome::BodyFailed, Code::INTERNAL_ERROR));
            };
            *left = rest;
        }
        if stream.send_data(Part::new(piece, progress), false).is_err() {
            break Err((connection.why_cut(), Code::CANCEL));
        }
    };
    if let Some(waiter) = waiter {
        worker.forget_second(waiter);
    }
    result
}
