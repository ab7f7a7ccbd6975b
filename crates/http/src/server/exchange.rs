//! A request that takes longer than one poll: its handler waits, reads its body, or sends more than a buffer.
//!
//! While a handler or the stream of its response is waited for, the body of the request is received only as
//! its reader requests it. Start at [`Connection::exchange`].

use super::connection::{Connection, Ending, ending, panicked, reads_on, tell_to_continue, watch};
use super::refused::Reason;
use super::route::{Panicked, Running};
use super::seats::{Verdict, Waits};
use super::worker::Worker;
use crate::counters::add;
use crate::h1::{Unsent, encode, gather};
use crate::message::{
    ALONE_BYTES_MIN, BodyError, Chunk, ConnectionHost, ConnectionId, FileBody, Incoming, Outcome, Piece,
    Pieces, Response, Takeover, Watched,
};
use crate::pool;
use ringroad_engine::Lease;
use ringroad_engine::net::PeerGone;
use ringroad_engine::sync::budget::Turns;
use ringroad_engine::time::{Sleep, sleep};
use ringroad_wire::{BodyEncoder, CONTINUE, Event, Method, ReplyTo, Requests, Status};
use rustix::io::Errno;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

/// Returns whether this deadline has passed; `false` if there is none.
fn has_passed(time: &mut Option<Pin<Box<Sleep>>>, context: &mut Context<'_>) -> bool {
    time.as_mut().is_some_and(|sleep| sleep.as_mut().poll(context).is_ready())
}

/// Maximum number of bytes that are sent as one, with one deadline. For more bytes the progress is watched,
/// in however many steps they are sent.
const SENT_BYTES_MAX: usize = 64 * 1024;

/// Maximum number of bytes of one step, if the bytes are more than the engine can count (32 bits) and must be
/// copied in parts.
const STEP_BYTES: usize = 256 * 1024;

/// A request in progress.
pub(super) struct Exchange {
    stage: Stage,
    incoming: Option<Rc<Incoming>>,
    client: Client,
}

/// What a client's head requests about the connection.
#[derive(Clone, Copy)]
pub(super) struct Client {
    /// Whether it waits for `100 Continue` before it sends the body.
    pub(super) expects_continue: bool,
    /// Whether it makes no further request on this connection.
    pub(super) closes: bool,
    /// Whether it offers another protocol.
    pub(super) offers_upgrade: bool,
}

impl Client {
    /// A client that requests none of these.
    pub(super) const PLAIN: Client = Client { expects_continue: false, closes: false, offers_upgrade: false };
}

enum Stage {
    /// The handler is running.
    Waiting { running: Pin<Box<dyn Running>>, reply: ReplyTo, began: Instant },
    /// The handler has ended.
    Sending(Written),
}

/// A response with its head written.
pub(super) struct Written {
    pub(super) rest: Unsent,
    pub(super) keep_alive: bool,
    pub(super) watched: Option<Box<Watched>>,
    pub(super) ends_on_stop: bool,
}

/// What happens to the connection next.
pub(super) enum AfterExchange {
    GoOn,
    End(Ending),
    HandOver(Takeover),
    /// The connection is closed at once.
    Abort,
}

/// Why the rest of a request cannot be received.
enum Lost {
    /// The answer is this status, and the connection is closed.
    Refused(Status, Reason),
    /// The client has left.
    Gone,
}

impl Exchange {
    pub(super) fn waiting(
        running: Pin<Box<dyn Running>>,
        incoming: Option<Rc<Incoming>>,
        reply: ReplyTo,
        client: Client,
    ) -> Box<Exchange> {
        let began = Instant::now();
        Box::new(Exchange { stage: Stage::Waiting { running, reply, began }, incoming, client })
    }

    pub(super) fn sending(written: Written, incoming: Option<Rc<Incoming>>, client: Client) -> Box<Exchange> {
        Box::new(Exchange { stage: Stage::Sending(written), incoming, client })
    }
}

/// Returns whether the body of this response ends when the server stops.
#[inline]
pub(super) fn ends_on_stop(response: &Response) -> bool {
    response.streams() && (response.ends_on_stop || is_event_stream(response))
}

#[cold]
fn is_event_stream(response: &Response) -> bool {
    response.header_value("content-type").is_some_and(crate::is_event_stream)
}

/// Gives the reader the received part of a body, as one piece. Returns an error if the bytes are invalid.
pub(super) fn feed(
    worker: &Worker,
    requests: &mut Requests,
    incoming: &Incoming,
    input: &[u8],
    at: &mut usize,
) -> Option<ringroad_wire::Error> {
    let mut piece = Vec::new();
    let refused = loop {
        match requests.next(&mut worker.scratch.borrow_mut(), input, at) {
            Ok(Some(Event::Data(data))) if piece.capacity() == 0 => {
                piece = pool::buffer();
                piece.extend_from_slice(data);
            }
            Ok(Some(Event::Data(data))) => piece.extend_from_slice(data),
            Ok(Some(Event::End(trailers))) => {
                incoming.end(trailers);
                break None;
            }
            // Not before the end of this body.
            Ok(Some(Event::Head(_))) | Ok(None) => break None,
            Err(why) => {
                incoming.fail(BodyError::Refused(why));
                break Some(why);
            }
        }
    };
    if !piece.is_empty() {
        incoming.push(Chunk::from(piece));
    }
    refused
}

impl Connection {
    /// Sends the answers before it, then runs `exchange` until its response is sent.
    pub(super) async fn exchange(&mut self, out: Vec<u8>, exchange: Box<Exchange>) -> AfterExchange {
        let Exchange { stage, incoming, client } = *exchange;
        let mut out = out;
        let mut client = client;
        let written = match stage {
            Stage::Sending(written) => written,
            Stage::Waiting { running, reply, began } => {
                if !out.is_empty() {
                    self.wait_for(Waits::Send);
                    if !self.send(std::mem::take(&mut out)).await {
                        return AfterExchange::Abort;
                    }
                    self.complete_batch();
                }
                match self.answer(running, reply, began, incoming.as_ref(), &mut client).await {
                    Ok((text, written)) => {
                        out = text;
                        written
                    }
                    Err(lost) => return self.give_up(lost).await,
                }
            }
        };
        self.wait_for(Waits::Send);
        self.guard.worker.seats.begin_large(self.guard.seat);
        let after = self.send_rest(out, written, incoming.as_ref(), client.closes).await;
        // Interim heads of the body's code are too late: the head was sent.
        drop(self.guard.worker.interims.take(self.guard.seat));
        after
    }

    /// Waits for the handler, and writes the head of its response.
    async fn answer(
        &mut self,
        mut running: Pin<Box<dyn Running>>,
        mut reply: ReplyTo,
        began: Instant,
        incoming: Option<&Rc<Incoming>>,
        client: &mut Client,
    ) -> Result<(Vec<u8>, Written), Lost> {
        let handler = Some(reply.method);
        let polled = self
            .while_feeding(incoming, &mut client.expects_continue, handler, |context| {
                running.as_mut().poll(context)
            })
            .await;
        running.recycle();
        let mut response = match polled? {
            Ok(response) => response,
            Err(Panicked) => panicked(&self.guard.worker, self.guard.seat),
        };
        reply.keep_alive &= !self.guard.worker.is_stopping();
        if response.switches() {
            let complete = incoming.is_none_or(|incoming| incoming.is_complete());
            response = response.if_it_may_switch(client.offers_upgrade, complete);
        }
        let mut out = pool::buffer();
        self.write_interims(&mut out);
        if let Some(incoming) = incoming
            && !incoming.is_complete()
        {
            if !reads_on(&response, reply, incoming) {
                // The length of a chunked body is known only at its end, so the client learns at once that
                // this may be the last answer on the connection (RFC 9112 §9.6).
                reply.keep_alive &= self.requests.body_left().is_some() && self.skip_body(incoming);
                incoming.fail(BodyError::Over);
            } else if client.expects_continue {
                tell_to_continue(&mut out, &mut self.requests);
            }
        }
        let written = self.write(&mut out, reply, response, Some(began));
        Ok((out, written))
    }

    /// Writes the head of a response, and its body if that is small.
    fn write(
        &self,
        out: &mut Vec<u8>,
        reply: ReplyTo,
        mut response: Response,
        began: Option<Instant>,
    ) -> Written {
        let worker = &self.guard.worker;
        worker.counts().responded(response.status_code());
        let ends_on_stop = ends_on_stop(&response);
        let mut watched = watch(&mut response, reply.method, began);
        let (rest, keep_alive) = encode::response(out, &worker.heads.borrow(), reply, response);
        if let (Some(watched), false) = (&mut watched, matches!(rest, Unsent::Nothing)) {
            // Counted while it is sent.
            watched.body_bytes = 0;
        }
        Written { rest, keep_alive, watched, ends_on_stop }
    }

    /// Sends the written part and the rest of a response.
    async fn send_rest(
        &mut self,
        out: Vec<u8>,
        written: Written,
        incoming: Option<&Rc<Incoming>>,
        client_closes: bool,
    ) -> AfterExchange {
        let Written { rest, mut keep_alive, watched, ends_on_stop } = written;
        let mut sent = watched.as_ref().map_or(0, |watched| watched.body_bytes);
        let mut takeover = None;
        let outcome = match rest {
            Unsent::Nothing => self.send(out).await.then_some(Outcome::Complete),
            Unsent::Bytes(chunk) => self.send_large(out, chunk, &mut sent).await.then_some(Outcome::Complete),
            Unsent::File(part) => self.send_file(out, *part, &mut sent).await,
            Unsent::Switch(switch) => {
                takeover = Some(switch);
                (self.send(out).await && self.requests.hand_over()).then_some(Outcome::Complete)
            }
            Unsent::Pieces(pieces, encoder) => {
                self.send_pieces(out, *pieces, encoder, incoming, ends_on_stop, &mut sent).await
            }
        };
        let outcome = outcome.unwrap_or_else(|| self.why_ended());
        if let Some(mut watched) = watched {
            watched.body_bytes = sent;
            watched.end(outcome);
        }
        if outcome != Outcome::Complete {
            self.batch.end(outcome, false);
            return AfterExchange::Abort;
        }
        self.complete_batch();
        if let Some(takeover) = takeover {
            return AfterExchange::HandOver(takeover);
        }
        if let Some(incoming) = incoming
            && !incoming.is_complete()
            && !self.skipping
        {
            keep_alive &= self.skip_body(incoming);
        }
        if keep_alive {
            return AfterExchange::GoOn;
        }
        // With unread input, closing at once could reset the connection and destroy the answer.
        let at_once = client_closes && incoming.is_none() && self.carry.is_empty();
        AfterExchange::End(ending(at_once, &self.requests))
    }

    /// Stops reading the rest of a body. Returns `false` if the connection must not be reused.
    fn skip_body(&mut self, incoming: &Incoming) -> bool {
        incoming.fail(BodyError::Over);
        self.skipping = self.requests.skip_body(self.guard.worker.scratch.borrow().limits());
        self.skipping
    }

    /// Handles the loss of a request's rest.
    async fn give_up(&mut self, lost: Lost) -> AfterExchange {
        // The handler was dropped, and has seen the status.
        self.guard.worker.refusing.set(None);
        if let Lost::Refused(status, reason) = lost
            && self.say(status, reason, true).await
        {
            return AfterExchange::End(Ending::Linger);
        }
        AfterExchange::Abort
    }

    /// Polls `work` until it is ready, and meanwhile receives what the body's reader requests. If the body
    /// cannot be received, its reader gets the error, and is polled once more. When the whole body has
    /// arrived, the client is watched: if it leaves, tasks that wait for that are woken. `work` is the
    /// handler of a request with the method `handler`, which may continue then, or the body of a response,
    /// which is dropped.
    async fn while_feeding<T>(
        &mut self,
        incoming: Option<&Rc<Incoming>>,
        expects_continue: &mut bool,
        handler: Option<Method>,
        mut work: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Result<T, Lost> {
        /// The first event.
        enum First<T> {
            Done(T),
            Wanted,
            Informs,
            Received(ringroad_engine::Result<Lease>),
            Gone(ringroad_engine::Result<PeerGone>),
            /// The client ended its sending side long ago.
            Left,
        }
        // The event after the last piece, if it was not data.
        let mut behind = None;
        let mut watches = true;
        // Until when a client that has ended its sending side still gets its answer.
        let mut grace = None;
        let worker = Rc::clone(&self.guard.worker);
        let seat = self.guard.seat;
        let informs = || handler.is_some() && worker.interims.wait(seat);
        // Otherwise work that is always ready would never get its body, nor notice the client's end.
        let mut turns = Turns::default();
        let step = |polled| match polled {
            Poll::Ready(done) => Poll::Ready(First::Done(done)),
            Poll::Pending if informs() => Poll::Ready(First::Informs),
            Poll::Pending => Poll::Pending,
        };
        loop {
            self.wait_for(Waits::Handler);
            let first = if watches && incoming.is_none_or(|incoming| incoming.is_complete()) {
                let mut hangup = pin!(self.stream.hangup());
                poll_fn(|context| {
                    let watch = |context: &mut Context<'_>| hangup.as_mut().poll(context).map(First::Gone);
                    turns.poll(context, |context| step(work(context)), watch)
                })
                .await
            } else {
                poll_fn(|context| match step(work(context)) {
                    Poll::Pending if incoming.is_some_and(|incoming| incoming.is_wanted(context)) => {
                        Poll::Ready(First::Wanted)
                    }
                    Poll::Pending if has_passed(&mut grace, context) => Poll::Ready(First::Left),
                    polled => polled,
                })
                .await
            };
            match first {
                First::Done(done) => return Ok(done),
                First::Gone(Ok(PeerGone::Ended)) => {
                    // The client may have ended its side only, and still read.
                    watches = false;
                    let half_close = worker.seats.deadlines().half_close;
                    grace = Some(Box::pin(sleep(half_close)));
                    continue;
                }
                First::Gone(Err(_)) => {
                    watches = false;
                    continue;
                }
                First::Gone(Ok(PeerGone::Reset(_))) | First::Left => {
                    (watches, grace) = (false, None);
                    add(&worker.counts().clients_gone, 1);
                    worker.set_gone(seat);
                    if handler.is_none_or(|method| worker.cancels(seat, method)) {
                        return Err(Lost::Gone);
                    }
                    continue;
                }
                First::Informs => {
                    let mut out = pool::buffer();
                    self.write_interims(&mut out);
                    self.wait_for(Waits::Send);
                    if !self.send(out).await {
                        if let Some(incoming) = incoming {
                            incoming.fail(BodyError::Over);
                        }
                        return Err(Lost::Gone);
                    }
                    continue;
                }
                First::Wanted | First::Received(_) => {}
            }
            let Some(incoming) = incoming else { continue };
            if !self.carry.is_empty() && !self.starved {
                self.feed_carried(incoming, &[], &mut work).await?;
                continue;
            }
            if std::mem::take(expects_continue) {
                self.wait_for(Waits::Send);
                if !self.send(CONTINUE.to_vec()).await {
                    incoming.fail(BodyError::Over);
                    return Err(Lost::Gone);
                }
                self.requests.continue_sent();
            }
            self.wait_for(Waits::Body);
            let first = if let Some(behind) = behind.take() {
                First::Received(behind)
            } else {
                let mut receive = pin!(self.stream.recv());
                poll_fn(|context| {
                    let take =
                        |context: &mut Context<'_>| receive.as_mut().poll(context).map(First::Received);
                    turns.poll(context, |context| step(work(context)), take)
                })
                .await
            };
            let lost = match first {
                First::Done(done) => return Ok(done),
                First::Wanted | First::Informs | First::Gone(_) | First::Left => continue,
                First::Received(Ok(lease)) if !lease.is_empty() => {
                    let (chunk, next) = gather(&mut self.stream, lease).await;
                    behind = next;
                    add(&self.guard.worker.counts().bytes_in, chunk.len() as u64);
                    self.guard.worker.seats.progress(self.guard.seat, chunk.len());
                    self.feed_chunk(incoming, chunk, &mut work).await?;
                    continue;
                }
                First::Received(Ok(_)) => {
                    if let Err(why) = self.requests.end_of_input() {
                        incoming.fail(BodyError::Refused(why));
                    }
                    Lost::Gone
                }
                First::Received(Err(why)) if why.is_cancelled() => {
                    if let Verdict::Overdue(_) = self.guard.worker.seats.verdict(self.guard.seat) {
                        add(&self.guard.worker.counts().timed_out, 1);
                    }
                    incoming.fail(BodyError::TooSlow);
                    worker.refusing.set(Some((seat, Status::REQUEST_TIMEOUT)));
                    Lost::Refused(Status::REQUEST_TIMEOUT, Reason::SlowBody)
                }
                First::Received(Err(why)) => {
                    incoming.fail(BodyError::Connection(why));
                    self.guard.worker.set_gone(self.guard.seat);
                    Lost::Gone
                }
            };
            let _ = poll_fn(|context| Poll::Ready(work(context).is_ready())).await;
            return Err(lost);
        }
    }

    /// Gives received bytes to the body's reader, without a copy if all of them belong to the body.
    async fn feed_chunk<T>(
        &mut self,
        incoming: &Incoming,
        chunk: Chunk,
        work: &mut impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Result<(), Lost> {
        if self.carry.is_empty() {
            let whole = self.requests.body_left().is_some_and(|left| left >= chunk.len() as u64);
            if whole {
                let mut at = 0;
                let mut scratch = self.guard.worker.scratch.borrow_mut();
                if let Ok(Some(Event::Data(data))) = self.requests.next(&mut scratch, &chunk, &mut at)
                    && data.len() == chunk.len()
                {
                    incoming.push(chunk);
                    // The end comes with the last byte.
                    if let Ok(Some(Event::End(trailers))) = self.requests.next(&mut scratch, &[], &mut 0) {
                        incoming.end(trailers);
                    }
                    return Ok(());
                }
            }
        }
        self.feed_carried(incoming, &chunk, work).await
    }

    /// Gives the carried bytes, then `more`, to the body's reader.
    async fn feed_carried<T>(
        &mut self,
        incoming: &Incoming,
        more: &[u8],
        work: &mut impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Result<(), Lost> {
        let (mut carry, mut at) = self.carry.take();
        carry.extend_from_slice(more);
        let refused = feed(&self.guard.worker, &mut self.requests, incoming, &carry, &mut at);
        // The rest belongs to the next request, or is incomplete.
        self.starved = !incoming.is_complete();
        self.carry.keep(carry, at);
        let Some(why) = refused else { return Ok(()) };
        add(&self.guard.worker.counts().refused, 1);
        self.guard.worker.refusing.set(Some((self.guard.seat, why.status())));
        let _ = poll_fn(|context| Poll::Ready(work(context).is_ready())).await;
        Err(Lost::Refused(why.status(), Reason::Protocol(why)))
    }

    /// Sends a head with the answers in `out` before it, then bytes that are not copied here, nor by the
    /// kernel if that pays off. Returns `false` if the connection is over.
    async fn send_large(&mut self, out: Vec<u8>, chunk: Chunk, sent: &mut u64) -> bool {
        let bytes = chunk.len();
        // The head is in a buffer of ours that is reused. It is sent separately then, and the kernel copies
        // it.
        let apart = chunk.is_lasting() && self.stream.sends_without_copy(bytes);
        if bytes <= SENT_BYTES_MAX && !apart {
            let all = out.len() + bytes;
            self.guard.worker.begin_send(all);
            let result = if out.is_empty() {
                pool::give_buffer(out);
                self.stream.write_all(chunk.into_buf()).await.0
            } else {
                self.stream.write_vectored_all(vec![out.into(), chunk.into_buf()]).await.0
            };
            self.guard.worker.end_send(all);
            if result.is_err() {
                self.send_failed();
                return false;
            }
            add(&self.guard.worker.counts().bytes_out, all as u64);
            *sent += bytes as u64;
            return true;
        }
        if !self.send(out).await {
            return false;
        }
        // The engine counts bytes in 32 bits.
        if bytes > u32::MAX as usize {
            let mut rest = &*chunk;
            while let Some((part, after)) = rest.split_at_checked(rest.len().min(STEP_BYTES))
                && !part.is_empty()
            {
                if !self.send_steps(Chunk::from(part.to_vec()), sent).await {
                    return false;
                }
                rest = after;
            }
            return true;
        }
        self.send_steps(chunk, sent).await
    }

    /// Sends bytes in as many steps as the client needs; each step is progress.
    async fn send_steps(&mut self, chunk: Chunk, sent: &mut u64) -> bool {
        let bytes = chunk.len();
        let (mut buf, mut from) = (chunk.into_buf(), 0);
        self.wait_for(Waits::SendMore);
        while from < bytes {
            let (result, back) = self.stream.write_from(buf, from).await;
            let Ok(to) = result else {
                self.send_failed();
                return false;
            };
            self.progress(to - from, sent);
            (buf, from) = (back, to);
        }
        true
    }

    /// Records sent bytes of a large body.
    fn progress(&self, bytes: usize, sent: &mut u64) {
        let worker = &self.guard.worker;
        add(&worker.counts().bytes_out, bytes as u64);
        worker.seats.sent(self.guard.seat, bytes, worker.now());
        *sent += bytes as u64;
    }

    /// Sends a head with the answers in `out` before it, then a part of a file. `None`: the connection is
    /// over. If the file has changed, the missing end shows it to the client.
    async fn send_file(&mut self, out: Vec<u8>, mut body: FileBody, sent: &mut u64) -> Option<Outcome> {
        if !self.send(out).await {
            return None;
        }
        while let Some((mut part, is_cached)) = body.step() {
            if !is_cached {
                // A slow disk does not count against the client's deadline.
                self.wait_for(Waits::Handler);
                add(&self.guard.worker.counts().file_reads, 1);
                if !matches!(body.fetch(&part).await, Ok(Ok(()))) {
                    add(&self.guard.worker.counts().files_cut, 1);
                    return Some(Outcome::BodyFailed);
                }
            }
            self.wait_for(Waits::SendMore);
            while part.left() > 0 {
                let (result, back) = self.stream.send_file(part).await;
                part = back;
                match result {
                    Ok(bytes) => self.progress(bytes, sent),
                    Err(why) if is_the_files(&why) => {
                        add(&self.guard.worker.counts().files_cut, 1);
                        return Some(Outcome::BodyFailed);
                    }
                    Err(_) => {
                        self.send_failed();
                        return None;
                    }
                }
            }
        }
        Some(Outcome::Complete)
    }

    /// Sends a stream, each piece when the one before was sent. `None`: the connection is over. If the stream
    /// fails, the missing end shows it to the client.
    async fn send_pieces(
        &mut self,
        mut out: Vec<u8>,
        pieces: Pieces,
        mut encoder: BodyEncoder,
        incoming: Option<&Rc<Incoming>>,
        ends_on_stop: bool,
        sent: &mut u64,
    ) -> Option<Outcome> {
        let mut stream = pieces.stream;
        let mut trailers = None;
        let worker = Rc::clone(&self.guard.worker);
        let mut stop = StopWaiter { worker: &worker, waiter: None };
        let mut poll_next = |context: &mut Context<'_>| {
            if ends_on_stop && stop.poll(context).is_ready() {
                return Poll::Ready(Polled::End);
            }
            poll_piece(&mut stream, context)
        };
        loop {
            // The head does not wait for a slow first piece: if that is not ready, the head is sent alone.
            let ready = poll_fn(|context| Poll::Ready(poll_next(context))).await;
            let polled = match ready {
                Poll::Ready(polled) => polled,
                Poll::Pending => {
                    if !out.is_empty() {
                        self.wait_for(Waits::Send);
                        if !self.send(std::mem::take(&mut out)).await {
                            return None;
                        }
                    }
                    // A client that waited for `100 Continue` got it before the head.
                    match self.while_feeding(incoming, &mut false, None, &mut poll_next).await {
                        Ok(polled) => polled,
                        Err(_) => return Some(Outcome::ClientGone),
                    }
                }
            };
            let piece = match polled {
                Polled::End => break,
                Polled::Panicked => {
                    add(&worker.counts().panics, 1);
                    worker.tell_refused(self.guard.seat, None, Reason::Panicked, &[]);
                    return Some(Outcome::BodyFailed);
                }
                Polled::Failed => {
                    // Sends the answers before it, and the head. The client sees that the body is incomplete,
                    // if the head announces its length or its end.
                    if !out.is_empty() && encoder.tells_its_end() {
                        self.wait_for(Waits::Send);
                        self.send(out).await;
                    }
                    return Some(Outcome::BodyFailed);
                }
                Polled::Piece(Piece::Trailers(lines)) => {
                    trailers = Some(lines);
                    break;
                }
                Polled::Piece(Piece::Data(chunk)) => chunk,
            };
            if out.capacity() == 0 {
                out = pool::buffer();
            }
            self.wait_for(Waits::Send);
            let is_sent = if piece.len() < ALONE_BYTES_MIN {
                if encoder.data(&mut out, &piece).is_err() {
                    return Some(Outcome::BodyFailed);
                }
                let bytes = piece.len() as u64;
                piece.recycle();
                let is_sent = self.send(std::mem::take(&mut out)).await;
                *sent += if is_sent { bytes } else { 0 };
                is_sent
            } else {
                match encoder.frame(&mut out, piece.len() as u64) {
                    Ok(true) => self.send_large(std::mem::take(&mut out), piece, sent).await,
                    Ok(false) => true,
                    Err(_) => return Some(Outcome::BodyFailed),
                }
            };
            if !is_sent {
                return None;
            }
        }
        let ended = match &trailers {
            Some(lines) => encoder.end_with(&mut out, lines),
            None => encoder.end(&mut out),
        };
        if ended.is_err() {
            return Some(Outcome::BodyFailed);
        }
        self.wait_for(Waits::Send);
        (out.is_empty() || self.send(out).await).then_some(Outcome::Complete)
    }
}

/// Waits for the server's stop, until this is dropped.
pub(super) struct StopWaiter<'a> {
    pub(super) worker: &'a Worker,
    pub(super) waiter: Option<u64>,
}

impl StopWaiter<'_> {
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.worker.poll_stopping(&mut self.waiter, context)
    }
}

impl Drop for StopWaiter<'_> {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter {
            self.worker.forget(ConnectionId::NONE, waiter);
        }
    }
}

/// Returns whether sending a file failed because of the file.
fn is_the_files(why: &ringroad_engine::Error) -> bool {
    // The file has ended, the disk failed, or it is not a regular file.
    matches!(
        why.raw_os_error().map(Errno::from_raw_os_error),
        Some(Errno::NODATA | Errno::IO | Errno::INVAL | Errno::BADF | Errno::OVERFLOW)
    )
}

/// Result of polling a stream.
pub(super) enum Polled {
    Piece(Piece),
    End,
    Failed,
    Panicked,
}

pub(super) fn poll_piece(
    stream: &mut Pin<Box<dyn futures_core::Stream<Item = Result<Piece, crate::BoxError>>>>,
    context: &mut Context<'_>,
) -> Poll<Polled> {
    let polled =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| stream.as_mut().poll_next(context)));
    match polled {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(Some(Ok(piece)))) => Poll::Ready(Polled::Piece(piece)),
        Ok(Poll::Ready(Some(Err(_)))) => Poll::Ready(Polled::Failed),
        Ok(Poll::Ready(None)) => Poll::Ready(Polled::End),
        Err(_) => Poll::Ready(Polled::Panicked),
    }
}
