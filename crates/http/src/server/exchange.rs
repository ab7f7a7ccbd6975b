//! A request that takes longer than one look: its handler waits, reads its body, or sends more than a buffer.
//!
//! While a handler or the stream of its response is waited for, the body of the request is received as its reader
//! asks for it, and not faster. Start at [`Connection::exchange`].

use super::connection::{Connection, Ending, ending, reads_on, tell_to_continue};
use super::seats::{Verdict, Waits};
use super::worker::Worker;
use crate::body::{Piece, Pieces};
use crate::chunk::Chunk;
use crate::client::gather;
use crate::counters::add;
use crate::encode::{self, Rest, refusal};
use crate::error::BodyError;
use crate::file::FileBody;
use crate::incoming::Incoming;
use crate::pool;
use crate::route::{Panicked, Running};
use crate::upgrade::Takeover;
use ringroad_engine::Lease;
use ringroad_wire::{BodyEncoder, CONTINUE, Event, ReplyTo, Requests, Status};
use rustix::io::Errno;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

/// Most bytes that are sent as one. Of more, each so many have a deadline of their own, in however many steps they go.
const SENT_BYTES_MAX: usize = 256 * 1024;

/// A request on its way.
pub(super) struct Exchange {
    what: What,
    incoming: Option<Rc<Incoming>>,
    client: Client,
}

/// What the client of a request said of itself.
#[derive(Clone, Copy)]
pub(super) struct Client {
    /// It waits to be told before it sends the body.
    pub(super) expects_continue: bool,
    /// It asks for nothing more on this connection.
    pub(super) closes: bool,
    /// It would speak another protocol.
    pub(super) offers_upgrade: bool,
}

enum What {
    Waiting(Pin<Box<dyn Running>>, ReplyTo),
    Sending(Rest, bool),
}

/// What becomes of the connection.
pub(super) enum Then {
    GoOn,
    End(Ending),
    HandOver(Takeover),
    /// It is broken.
    Abort,
}

/// The rest of a request cannot be had.
enum Lost {
    /// Answer this, and close.
    Refused(Status),
    /// Nobody is there to be answered.
    Gone,
}

impl Exchange {
    pub(super) fn waiting(
        running: Pin<Box<dyn Running>>,
        incoming: Option<Rc<Incoming>>,
        reply: ReplyTo,
        client: Client,
    ) -> Box<Exchange> {
        Box::new(Exchange { what: What::Waiting(running, reply), incoming, client })
    }

    pub(super) fn sending(
        rest: Rest,
        incoming: Option<Rc<Incoming>>,
        keep_alive: bool,
        client: Client,
    ) -> Box<Exchange> {
        Box::new(Exchange { what: What::Sending(rest, keep_alive), incoming, client })
    }
}

/// Shows what there is of a body to its reader, as one piece; an error if it is none.
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
            // Not before this body's end.
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
    /// Sends the answers before it, then sees to `exchange` until its response is sent.
    pub(super) async fn exchange(&mut self, out: Vec<u8>, exchange: Box<Exchange>) -> Then {
        let Exchange { what, incoming, client } = *exchange;
        let Client { mut expects_continue, closes: client_closes, offers_upgrade } = client;
        let mut out = out;
        let (rest, keep_alive) = match what {
            What::Sending(rest, keep_alive) => (rest, keep_alive),
            What::Waiting(mut running, mut reply) => {
                if !out.is_empty() {
                    self.wait_for(Waits::Send);
                    if !self.send(std::mem::take(&mut out)).await {
                        return Then::Abort;
                    }
                }
                let polled = self
                    .while_feeding(incoming.as_ref(), &mut expects_continue, |context| {
                        running.as_mut().poll(context)
                    })
                    .await;
                running.recycle();
                let mut response = match polled {
                    Ok(Ok(response)) => response,
                    Ok(Err(Panicked)) => {
                        add(&self.place.worker.counts().panics, 1);
                        refusal(Status::INTERNAL_SERVER_ERROR)
                    }
                    Err(lost) => return self.give_up(lost, false).await,
                };
                reply.keep_alive &= !self.place.worker.is_stopping();
                if response.switches() {
                    let complete = incoming.as_ref().is_none_or(|incoming| incoming.is_complete());
                    response = response.if_it_may_switch(offers_upgrade, complete);
                }
                out = pool::buffer();
                if let Some(incoming) = &incoming
                    && !incoming.is_complete()
                {
                    if !reads_on(&response, reply, incoming) {
                        reply.keep_alive &= self.skip_body(incoming);
                    } else if expects_continue {
                        tell_to_continue(&mut out, &mut self.requests);
                    }
                }
                self.place.worker.counts().responded(response.status);
                encode::response(&mut out, &self.place.worker.lines.borrow(), reply, response)
            }
        };
        self.wait_for(Waits::Send);
        let mut keep_alive = keep_alive;
        match rest {
            Rest::Nothing => {
                if !self.send(out).await {
                    return Then::Abort;
                }
            }
            Rest::Bytes(chunk) => {
                if !self.send_large(out, chunk).await {
                    return Then::Abort;
                }
            }
            Rest::File(part) => {
                if !self.send_file(out, *part).await {
                    return Then::Abort;
                }
            }
            Rest::Switch(takeover) => {
                if !self.send(out).await || !self.requests.hand_over() {
                    return Then::Abort;
                }
                return Then::HandOver(takeover);
            }
            Rest::Pieces(pieces, encoder) => {
                match self.send_pieces(out, *pieces, encoder, incoming.as_ref()).await {
                    Ok(true) => {}
                    Ok(false) => return Then::Abort,
                    Err(lost) => return self.give_up(lost, true).await,
                }
                if let Some(incoming) = &incoming
                    && !incoming.is_complete()
                {
                    keep_alive &= self.skip_body(incoming);
                }
            }
        }
        if keep_alive { Then::GoOn } else { Then::End(ending(client_closes, &self.requests)) }
    }

    /// Nobody reads the rest of a body any more. False: the connection must not be used again.
    fn skip_body(&mut self, incoming: &Incoming) -> bool {
        incoming.fail(BodyError::Over);
        self.skipping = self.requests.skip_body(self.place.worker.scratch.borrow().limits());
        self.skipping
    }

    /// A request whose rest is lost: says so, unless an answer has begun.
    async fn give_up(&mut self, lost: Lost, begun: bool) -> Then {
        match lost {
            Lost::Refused(status) if !begun => {
                if self.say(status).await {
                    return Then::End(Ending::Linger);
                }
                Then::Abort
            }
            _ => Then::Abort,
        }
    }

    /// Polls `work` until it is ready, and meanwhile receives what the body's reader asks for. If the body cannot
    /// be had, its reader is told, and gets one more look.
    async fn while_feeding<T>(
        &mut self,
        incoming: Option<&Rc<Incoming>>,
        expects_continue: &mut bool,
        mut work: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Result<T, Lost> {
        /// What comes first.
        enum First<T> {
            Done(T),
            Wanted,
            Received(ringroad_engine::Result<Lease>),
        }
        // What came behind the last piece and was no data.
        let mut behind = None;
        loop {
            self.wait_for(Waits::Handler);
            let first = poll_fn(|context| match work(context) {
                Poll::Ready(done) => Poll::Ready(First::Done(done)),
                Poll::Pending => match incoming {
                    Some(incoming) if incoming.is_wanted(context) => Poll::Ready(First::Wanted),
                    _ => Poll::Pending,
                },
            });
            if let First::Done(done) = first.await {
                return Ok(done);
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
                poll_fn(|context| match work(context) {
                    Poll::Ready(done) => Poll::Ready(First::Done(done)),
                    Poll::Pending => receive.as_mut().poll(context).map(First::Received),
                })
                .await
            };
            let lost = match first {
                First::Done(done) => return Ok(done),
                First::Wanted => continue,
                First::Received(Ok(lease)) if !lease.is_empty() => {
                    let (chunk, next) = gather(&mut self.stream, lease).await;
                    behind = next;
                    add(&self.place.worker.counts().bytes_in, chunk.len() as u64);
                    self.place.worker.seats.progress(self.place.seat, chunk.len());
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
                    if let Verdict::Overdue(_) = self.place.worker.seats.verdict(self.place.seat) {
                        add(&self.place.worker.counts().timed_out, 1);
                    }
                    incoming.fail(BodyError::TooSlow);
                    Lost::Refused(Status::REQUEST_TIMEOUT)
                }
                First::Received(Err(why)) => {
                    incoming.fail(BodyError::Connection(why));
                    Lost::Gone
                }
            };
            let _ = poll_fn(|context| Poll::Ready(work(context).is_ready())).await;
            return Err(lost);
        }
    }

    /// Shows received bytes to the body's reader: as they are if all of them are its.
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
                let mut scratch = self.place.worker.scratch.borrow_mut();
                if let Ok(Some(Event::Data(data))) = self.requests.next(&mut scratch, &chunk, &mut at)
                    && data.len() == chunk.len()
                {
                    incoming.push(chunk);
                    // With the last byte comes the end.
                    if let Ok(Some(Event::End(trailers))) = self.requests.next(&mut scratch, &[], &mut 0) {
                        incoming.end(trailers);
                    }
                    return Ok(());
                }
            }
        }
        self.feed_carried(incoming, &chunk, work).await
    }

    /// Shows what is carried, and `more` behind it, to the body's reader.
    async fn feed_carried<T>(
        &mut self,
        incoming: &Incoming,
        more: &[u8],
        work: &mut impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Result<(), Lost> {
        let mut carry = std::mem::take(&mut self.carry);
        carry.extend_from_slice(more);
        let mut at = self.carry_at as usize;
        let refused = feed(&self.place.worker, &mut self.requests, incoming, &carry, &mut at);
        // What is left is the next request's, or needs more.
        self.starved = !incoming.is_complete();
        self.keep_carry(carry, at);
        let Some(why) = refused else { return Ok(()) };
        add(&self.place.worker.counts().refused, 1);
        let _ = poll_fn(|context| Poll::Ready(work(context).is_ready())).await;
        Err(Lost::Refused(why.status()))
    }

    /// Sends a head and what is in `out` before it, and behind it bytes that are not copied here; where it is worth
    /// while, by the kernel neither.
    async fn send_large(&mut self, out: Vec<u8>, chunk: Chunk) -> bool {
        let bytes = chunk.len();
        // The head is a buffer of ours, which is used again: it goes by itself then, and the kernel copies it.
        let apart = chunk.is_lasting() && self.stream.sends_without_copy(bytes);
        if bytes <= SENT_BYTES_MAX && !apart {
            let all = (out.len() + bytes) as u64;
            let sent = if out.is_empty() {
                pool::give_buffer(out);
                self.stream.write_all(chunk.into_buf()).await.0
            } else {
                self.stream.write_vectored_all(vec![out.into(), chunk.into_buf()]).await.0
            };
            if sent.is_err() {
                self.send_failed();
                return false;
            }
            add(&self.place.worker.counts().bytes_out, all);
            return true;
        }
        if !self.send(out).await {
            return false;
        }
        if bytes <= SENT_BYTES_MAX {
            let (sent, buffer) = self.stream.write_all(chunk.into_buf()).await;
            drop(buffer);
            if sent.is_err() {
                self.send_failed();
                return false;
            }
            add(&self.place.worker.counts().bytes_out, bytes as u64);
            return true;
        }
        // The engine counts in 32 bits.
        if bytes > u32::MAX as usize {
            let mut rest = &*chunk;
            while let Some((part, after)) = rest.split_at_checked(rest.len().min(SENT_BYTES_MAX))
                && !part.is_empty()
            {
                self.wait_for(Waits::Send);
                if !self.send(part.to_vec()).await {
                    return false;
                }
                rest = after;
            }
            return true;
        }
        let (mut buf, mut from, mut due) = (chunk.into_buf(), 0, 0);
        while from < bytes {
            if from >= due {
                self.wait_for(Waits::Send);
                due = from + SENT_BYTES_MAX;
            }
            let (sent, back) = self.stream.write_from(buf, from).await;
            let Ok(to) = sent else {
                self.send_failed();
                return false;
            };
            add(&self.place.worker.counts().bytes_out, (to - from) as u64);
            (buf, from) = (back, to);
        }
        true
    }

    /// Sends a head and what is in `out` before it, and behind it a part of a file. False: the connection is over, or
    /// the file was not what it was, which the client learns from the missing end.
    async fn send_file(&mut self, out: Vec<u8>, mut body: FileBody) -> bool {
        if !self.send(out).await {
            return false;
        }
        while let Some((mut part, is_cached)) = body.step() {
            if !is_cached {
                // A slow disk is not the client's fault.
                self.wait_for(Waits::Handler);
                add(&self.place.worker.counts().file_reads, 1);
                if !matches!(body.fetch(&part).await, Ok(Ok(()))) {
                    add(&self.place.worker.counts().files_cut, 1);
                    return false;
                }
            }
            let mut due = part.left();
            while part.left() > 0 {
                if part.left() <= due {
                    self.wait_for(Waits::Send);
                    due = part.left().saturating_sub(SENT_BYTES_MAX as u64);
                }
                let (sent, back) = self.stream.send_file(part).await;
                part = back;
                match sent {
                    Ok(bytes) => add(&self.place.worker.counts().bytes_out, bytes as u64),
                    Err(why) => {
                        if is_the_files(&why) {
                            add(&self.place.worker.counts().files_cut, 1);
                        }
                        self.send_failed();
                        return false;
                    }
                }
            }
        }
        true
    }

    /// Sends a stream, each piece when the one before is sent. False: the connection is over, or the stream failed,
    /// which the client learns from the missing end.
    async fn send_pieces(
        &mut self,
        mut out: Vec<u8>,
        pieces: Pieces,
        mut encoder: BodyEncoder,
        incoming: Option<&Rc<Incoming>>,
    ) -> Result<bool, Lost> {
        let mut stream = pieces.stream;
        let mut trailers = None;
        loop {
            // The head does not wait for a slow first piece: unless that is there, it goes alone.
            let ready = poll_fn(|context| Poll::Ready(poll_piece(&mut stream, context))).await;
            let polled = match ready {
                Poll::Ready(polled) => polled,
                Poll::Pending => {
                    if !out.is_empty() {
                        self.wait_for(Waits::Send);
                        if !self.send(std::mem::take(&mut out)).await {
                            return Ok(false);
                        }
                    }
                    // Who waited to be told was told before the head.
                    self.while_feeding(incoming, &mut false, |context| poll_piece(&mut stream, context))
                        .await?
                }
            };
            let piece = match polled {
                Polled::End => break,
                Polled::Panicked => {
                    add(&self.place.worker.counts().panics, 1);
                    return Ok(false);
                }
                Polled::Failed => return Ok(false),
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
            let sent = if piece.len() < encode::ALONE_BYTES_MIN {
                if encoder.data(&mut out, &piece).is_err() {
                    return Ok(false);
                }
                piece.recycle();
                self.send(std::mem::take(&mut out)).await
            } else {
                match encoder.frame(&mut out, piece.len() as u64) {
                    Ok(true) => self.send_large(std::mem::take(&mut out), piece).await,
                    Ok(false) => true,
                    Err(_) => return Ok(false),
                }
            };
            if !sent {
                return Ok(false);
            }
        }
        let ended = match &trailers {
            Some(lines) => encoder.end_with(&mut out, lines),
            None => encoder.end(&mut out),
        };
        if ended.is_err() {
            return Ok(false);
        }
        self.wait_for(Waits::Send);
        Ok(out.is_empty() || self.send(out).await)
    }
}

/// Whether sending a file failed because of the file.
fn is_the_files(why: &ringroad_engine::Error) -> bool {
    // It has ended; a disk's error; not a regular file.
    matches!(
        why.raw_os_error().map(Errno::from_raw_os_error),
        Some(Errno::NODATA | Errno::IO | Errno::INVAL | Errno::BADF | Errno::OVERFLOW)
    )
}

/// What a stream gives.
enum Polled {
    Piece(Piece),
    End,
    Failed,
    Panicked,
}

fn poll_piece(
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
