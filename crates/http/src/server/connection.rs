//! One connection: receive, understand, answer, send; again.
//!
//! The task is small, because most connections are idle most of the time: what it holds then is the stream, the
//! state of the protocol, and the beginning of a head if one has come. Requests that are there together are
//! answered into one buffer and sent together. Whatever needs more than one look at a handler (its answer is not
//! ready, it reads a body, it sends a large one) is boxed: [`exchange`](super::exchange).
//!
//! Start at [`serve`]; what is said is decided in [`Connection::work`].

use super::exchange::{Client, Exchange, Then};
use super::seats::{SeatId, Verdict, Waits};
use super::worker::Worker;
use crate::counters::add;
use crate::encode::{self, Rest, refusal};
use crate::incoming::Incoming;
use crate::pool;
use crate::request::Request;
use crate::response::Response;
use crate::route::{Found, Panicked, Started};
use crate::upgrade::{Takeover, Upgraded};
use ringroad_engine::Lease;
use ringroad_engine::net::TcpStream;
use ringroad_wire::{Body, CONTINUE, Event, Method, Phase, ReplyTo, Requests, Status};
use std::future::poll_fn;
use std::net::Shutdown;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::task::{Context, Poll};

/// With so many bytes of answers together they are sent before the next request is looked at. Each may have 16 KiB that
/// are copied, so their number alone would let a client have a connection hold a megabyte.
const OUT_BYTES_ENOUGH: usize = 64 * 1024;

/// A connection.
pub(crate) struct Connection {
    pub(super) place: Place,
    pub(super) stream: TcpStream,
    pub(super) requests: Requests,
    /// Input that is not used up, from `carry_at` on: the beginning of a head, or what waits behind an answer.
    pub(super) carry: Vec<u8>,
    pub(super) carry_at: u32,
    requests_left: u32,
    /// What is carried is not enough to go on with.
    pub(super) starved: bool,
    /// What comes is the rest of a body nobody reads, whose request is answered.
    pub(super) skipping: bool,
}

/// A connection's place with its worker, until this is dropped.
pub(super) struct Place {
    pub(super) worker: Rc<Worker>,
    pub(super) seat: SeatId,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.worker.seats.leave(self.seat);
        add(&self.worker.counts().closed, 1);
        self.worker.ended();
    }
}

/// How a connection ends after its last answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Closed: the client has said that it sends no more.
    Close,
    /// Our side is shut down, and what the client still sends is thrown away for a while: closing on unread bytes
    /// makes the kernel reset the connection and destroy the answer on its way (RFC 9112 §9.6).
    Linger,
}

/// Whether a connection goes on.
enum Next {
    GoOn,
    Over,
    HandOver(Takeover),
}

/// What comes of a look at the input.
pub(super) enum Turn {
    /// More is needed.
    Receive,
    /// These answers are to be sent.
    Send(Vec<u8>),
    /// And they are the last.
    Last(Vec<u8>, Ending),
    /// One that takes longer, behind these answers.
    Exchange(Vec<u8>, Box<Exchange>),
    /// The client sends no more, or receiving failed.
    Over(Option<ringroad_engine::Error>),
}

/// Serves a connection to its end. Every error is its end, and nobody else's concern.
///
/// Not an `async fn`: that would keep room for its argument twice. Nothing that is large is alive while it waits, and
/// what is rare is boxed.
#[allow(clippy::manual_async_fn, reason = "see above")]
pub(crate) fn serve(mut connection: Connection) -> impl Future<Output = ()> {
    async move {
        loop {
            // In a block, so that nothing of it has a place in the task while it sends.
            let sending = {
                let turn = if connection.starved {
                    match connection.stream.recv().await {
                        Ok(lease) if !lease.is_empty() => connection.look(lease).await,
                        received => Turn::Over(received.err()),
                    }
                } else {
                    connection.look(Lease::default()).await
                };
                match turn {
                    Turn::Receive => {
                        connection.settle();
                        continue;
                    }
                    Turn::Send(out) => {
                        add(&connection.place.worker.counts().bytes_out, out.len() as u64);
                        connection.stream.write_all(out)
                    }
                    rare => match Box::pin(connection.rarely(rare)).await {
                        Next::GoOn => continue,
                        Next::Over => return,
                        Next::HandOver(takeover) => {
                            return Box::pin(connection.hand_over(takeover)).await;
                        }
                    },
                }
            };
            let (sent, out) = sending.await;
            pool::give_buffer(out);
            if sent.is_err() {
                return connection.send_failed();
            }
            connection.settle();
        }
    }
}

impl Connection {
    pub(crate) fn new(worker: Rc<Worker>, stream: TcpStream, seat: SeatId) -> Connection {
        let requests_left = worker.settings.deadlines.requests_per_connection;
        Connection {
            place: Place { worker, seat },
            stream,
            requests: Requests::new(),
            carry: Vec::new(),
            carry_at: 0,
            requests_left,
            starved: true,
            skipping: false,
        }
    }

    #[inline]
    pub(super) fn wait_for(&self, waits: Waits) {
        self.place.worker.seats.set(self.place.seat, waits, self.place.worker.now());
    }

    /// Says what the connection waits for, before it receives.
    #[inline]
    pub(super) fn settle(&self) {
        self.wait_for(match self.requests.phase() {
            Phase::Idle => Waits::Request,
            Phase::Head => Waits::Head,
            Phase::Body => Waits::Body,
            Phase::Closed | Phase::HandedOver | Phase::Failed => Waits::End,
        });
    }

    /// Sends all of `out`. False: the connection is over.
    pub(super) async fn send(&mut self, out: Vec<u8>) -> bool {
        let bytes = out.len() as u64;
        let (sent, out) = self.stream.write_all(out).await;
        pool::give_buffer(out);
        if sent.is_err() {
            self.send_failed();
            return false;
        }
        add(&self.place.worker.counts().bytes_out, bytes);
        true
    }

    #[cold]
    pub(super) fn send_failed(&self) {
        if let Verdict::Overdue(_) = self.place.worker.seats.verdict(self.place.seat) {
            add(&self.place.worker.counts().timed_out, 1);
        }
    }

    /// [`take_in`](Self::take_in), for which it takes a task's context.
    #[inline]
    fn look(&mut self, lease: Lease) -> impl Future<Output = Turn> {
        let mut lease = Some(lease);
        poll_fn(move |context| Poll::Ready(self.take_in(lease.take().unwrap_or_default(), context)))
    }

    /// Whatever happens to few connections, or seldom.
    async fn rarely(&mut self, turn: Turn) -> Next {
        match turn {
            Turn::Receive | Turn::Send(_) => return Next::GoOn,
            Turn::Exchange(out, exchange) => match self.exchange(out, exchange).await {
                Then::GoOn => {
                    self.settle();
                    return Next::GoOn;
                }
                Then::End(ending) => self.end(ending).await,
                Then::HandOver(takeover) => return Next::HandOver(takeover),
                Then::Abort => {}
            },
            Turn::Last(out, ending) => {
                if out.is_empty() || self.send(out).await {
                    self.end(ending).await;
                }
            }
            Turn::Over(None) => self.input_ended().await,
            Turn::Over(Some(why)) => self.input_failed(&why).await,
        }
        Next::Over
    }

    /// Another protocol is spoken from here on, by somebody else.
    async fn hand_over(self, takeover: Takeover) {
        let Connection { place, stream, mut carry, carry_at, .. } = self;
        place.worker.seats.set(place.seat, Waits::Handler, place.worker.now());
        add(&place.worker.counts().upgraded, 1);
        carry.drain(..carry_at as usize);
        // What it does first may panic as well as the rest.
        let mut begun = None;
        let mut takeover = Some((takeover, Upgraded::new(stream, carry)));
        let ended = poll_fn(|context| {
            let polled = catch_unwind(AssertUnwindSafe(|| {
                if let Some((takeover, upgraded)) = takeover.take() {
                    begun = Some(takeover(upgraded));
                }
                begun.as_mut().map_or(Poll::Ready(()), |future| future.as_mut().poll(context))
            }));
            match polled {
                Ok(polled) => polled.map(Ok),
                Err(_) => Poll::Ready(Err(Panicked)),
            }
        });
        if ended.await.is_err() {
            add(&place.worker.counts().panics, 1);
        }
    }

    /// Answers what has come, as far as that can be done at once.
    #[inline]
    fn take_in(&mut self, lease: Lease, context: &mut Context<'_>) -> Turn {
        add(&self.place.worker.counts().bytes_in, lease.len() as u64);
        if self.skipping {
            self.place.worker.seats.progress(self.place.seat, lease.len());
        }
        if self.carry.is_empty() {
            let mut at = 0;
            let turn = self.work(&lease, &mut at, context);
            if at < lease.len() {
                self.carry_rest(lease.get(at..).unwrap_or_default());
            }
            return turn;
        }
        self.take_in_carried(&lease, context)
    }

    #[cold]
    fn carry_rest(&mut self, rest: &[u8]) {
        self.carry = rest.to_vec();
        self.carry_at = 0;
    }

    #[cold]
    fn take_in_carried(&mut self, more: &[u8], context: &mut Context<'_>) -> Turn {
        let mut carry = std::mem::take(&mut self.carry);
        carry.extend_from_slice(more);
        let mut at = self.carry_at as usize;
        let turn = self.work(&carry, &mut at, context);
        self.keep_carry(carry, at);
        turn
    }

    /// Keeps what is left of `carry` from `at` on, for the next look.
    pub(super) fn keep_carry(&mut self, mut carry: Vec<u8>, mut at: usize) {
        if at == carry.len() {
            carry = Vec::new();
            at = 0;
        } else if at > carry.len() / 2 {
            // So that moving what is left costs no more than what is used.
            carry.drain(..at);
            at = 0;
        }
        self.carry = carry;
        self.carry_at = at as u32;
    }

    /// Answers the requests in `input` from `at` on.
    fn work(&mut self, input: &[u8], at: &mut usize, context: &mut Context<'_>) -> Turn {
        let Connection { place, requests, requests_left, starved, skipping, .. } = self;
        let (worker, seat) = (&*place.worker, place.seat);
        let mut out = Vec::new();
        let mut depth_left = worker.settings.deadlines.pipeline_depth;
        *starved = false;
        loop {
            let mut scratch = worker.scratch.borrow_mut();
            let head = match requests.next(&mut scratch, input, at) {
                Ok(Some(Event::Head(head))) => head,
                // The end of a body nobody wanted.
                Ok(Some(_)) => {
                    *skipping = false;
                    continue;
                }
                Ok(None) => {
                    *starved = true;
                    if !out.is_empty() {
                        break;
                    }
                    return Turn::Receive;
                }
                // Its request has been answered: nothing more is said.
                Err(_) if *skipping => return Turn::Last(out, Ending::Linger),
                Err(why) => {
                    drop(scratch);
                    return refuse(worker, out, why.status());
                }
            };
            let mut reply = ReplyTo::from(&head);
            *requests_left = requests_left.saturating_sub(1);
            let client_closes = !reply.keep_alive;
            reply.keep_alive &= !worker.is_stopping() && *requests_left > 0;
            let has_body = head.body() != Body::Empty;
            let expects_continue = head.expects_continue();
            let offers_upgrade = head.upgrade();

            let mut copy = pool::head();
            // Clients say the same again and again: then copy and route are there already.
            let found = match copy.route_of(&head) {
                Some(route) => Ok(route),
                None => {
                    copy.clear();
                    match worker.router.find(&head, &mut copy.params) {
                        Found::Route(route, names) => {
                            copy.copy(&head, route, names);
                            Ok(route)
                        }
                        Found::Answer(response) => Err(response),
                    }
                }
            };
            let incoming = match (has_body, head.body()) {
                (false, _) => None,
                (true, Body::Length(length)) => Some(Incoming::new(Some(length))),
                (true, _) => Some(Incoming::new(None)),
            };
            drop(scratch);
            if has_body {
                worker.seats.begin_body(seat);
            }
            let started = match found {
                Ok(route) => {
                    let route = worker.router.route(route);
                    let request = Request::new(copy, incoming.clone(), seat);
                    if let Some(incoming) = &incoming {
                        // What is there of the body is there when the handler looks.
                        if let Some(refused) = super::exchange::feed(worker, requests, incoming, input, at) {
                            let _ = route.start(request, context);
                            return refuse(worker, out, refused.status());
                        }
                        // More of it has to be received, whatever is left of what is here.
                        *starved = !incoming.is_complete();
                    }
                    route.start(request, context)
                }
                Err(response) => {
                    pool::give_head(copy);
                    Started::Done(response)
                }
            };
            let mut response = match started {
                Started::Done(response) => response,
                Started::Running(running) => {
                    worker.seats.set(seat, Waits::Handler, worker.now());
                    let client = Client { expects_continue, closes: client_closes, offers_upgrade };
                    return Turn::Exchange(out, Exchange::waiting(running, incoming, reply, client));
                }
                Started::Panicked => {
                    add(&worker.counts().panics, 1);
                    refusal(Status::INTERNAL_SERVER_ERROR)
                }
            };
            if response.switches() {
                let complete = incoming.as_ref().is_none_or(|incoming| incoming.is_complete());
                response = response.if_it_may_switch(offers_upgrade, complete);
            }
            if out.capacity() == 0 {
                out = pool::buffer();
            }
            if let Some(incoming) = &incoming
                && !incoming.is_complete()
            {
                if reads_on(&response, reply, incoming) {
                    if expects_continue {
                        tell_to_continue(&mut out, requests);
                    }
                } else {
                    let skipped = requests.skip_body(worker.scratch.borrow().limits());
                    reply.keep_alive &= skipped;
                    *skipping = skipped;
                    incoming.fail(crate::BodyError::Over);
                }
            }
            worker.counts().responded(response.status);
            let (rest, keep_alive) = encode::response(&mut out, &worker.lines.borrow(), reply, response);
            match rest {
                Rest::Nothing => {}
                rest => {
                    let client = Client { expects_continue, closes: client_closes, offers_upgrade };
                    return Turn::Exchange(out, Exchange::sending(rest, incoming, keep_alive, client));
                }
            }
            if !keep_alive {
                worker.seats.set(seat, Waits::Send, worker.now());
                return Turn::Last(out, ending(client_closes, requests));
            }
            // Most often that was all there is.
            if *at == input.len() && requests.phase() == Phase::Idle {
                *starved = true;
                break;
            }
            depth_left = depth_left.saturating_sub(1);
            if depth_left == 0 || out.len() >= OUT_BYTES_ENOUGH {
                break;
            }
        }
        worker.seats.set(seat, Waits::Send, worker.now());
        Turn::Send(out)
    }

    /// The client sends no more.
    async fn input_ended(&mut self) {
        // A head that was cut: its sender may still be reading.
        let phase = self.requests.phase();
        if let (Phase::Head, Err(why)) = (phase, self.requests.end_of_input()) {
            self.say(why.status()).await;
        }
    }

    /// A receive failed, or was cancelled.
    async fn input_failed(&mut self, why: &ringroad_engine::Error) {
        if !why.is_cancelled() {
            return;
        }
        match self.place.worker.seats.verdict(self.place.seat) {
            Verdict::Overdue(waits) => {
                add(&self.place.worker.counts().timed_out, 1);
                let asks = matches!(waits, Waits::Head | Waits::Body) && !self.skipping;
                if asks && self.say(Status::REQUEST_TIMEOUT).await {
                    self.end(Ending::Linger).await;
                }
            }
            Verdict::Stopped | Verdict::None => {}
        }
    }

    /// The last words.
    pub(super) async fn say(&mut self, status: Status) -> bool {
        let mut out = pool::buffer();
        self.place.worker.counts().responded(status);
        encode::response(&mut out, &self.place.worker.lines.borrow(), ReplyTo::refused(), refusal(status));
        self.wait_for(Waits::Send);
        self.send(out).await
    }

    /// Ends after the last answer.
    async fn end(&mut self, ending: Ending) {
        if ending == Ending::Close || self.stream.shutdown(Shutdown::Write).is_err() {
            return;
        }
        self.wait_for(Waits::End);
        let mut left = self.place.worker.settings.limits.drain_bytes as usize;
        while let Ok(lease) = self.stream.recv().await {
            add(&self.place.worker.counts().bytes_in, lease.len() as u64);
            match left.checked_sub(lease.len()) {
                Some(less) if !lease.is_empty() => left = less,
                _ => return,
            }
        }
    }
}

/// Whether the rest of a request's body may be read while its response is sent: that is a stream, it is sent at all, and
/// somebody still has the body.
pub(super) fn reads_on(response: &Response, reply: ReplyTo, incoming: &Rc<Incoming>) -> bool {
    response.streams()
        && reply.method != Method::Head
        && !response.status.forbids_body()
        && Rc::strong_count(incoming) > 1
}

/// Tells a client that waits for it to send the body whose stream answers it: now, because behind the head of the
/// response it would be taken for a part of that.
#[cold]
pub(super) fn tell_to_continue(out: &mut Vec<u8>, requests: &mut Requests) {
    out.extend_from_slice(CONTINUE);
    requests.continue_sent();
}

/// How to end a connection whose last answer is written.
pub(super) fn ending(client_closes: bool, requests: &Requests) -> Ending {
    if client_closes && requests.phase() == Phase::Closed { Ending::Close } else { Ending::Linger }
}

/// Answers what was no request, behind the answers to those before it.
#[cold]
pub(super) fn refuse(worker: &Worker, mut out: Vec<u8>, status: Status) -> Turn {
    add(&worker.counts().refused, 1);
    worker.counts().responded(status);
    let response: Response = refusal(status);
    encode::response(&mut out, &worker.lines.borrow(), ReplyTo::refused(), response);
    Turn::Last(out, Ending::Linger)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_future<F>(_: impl Fn(Connection) -> F) -> usize {
        size_of::<F>()
    }

    /// With what the executor adds, which is the tag that tells whether it is over.
    #[test]
    fn an_idle_connections_task_is_at_most_256_bytes() {
        let bytes = size_of_future(serve) + 8;
        assert!(
            bytes <= 256,
            "{bytes} bytes, {} of them the connection's, {} the protocol's",
            size_of::<Connection>(),
            size_of::<Requests>()
        );
    }
}
