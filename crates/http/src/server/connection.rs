//! One connection: receive, parse, answer, send, repeat.
//!
//! The task is small, because most connections are idle most of the time. Then it holds the stream, the state
//! of the protocol, and perhaps the beginning of a head. Requests that arrived together are answered into one
//! buffer and sent together. A request that needs more than one poll of its handler is boxed (its answer is
//! not ready, it reads a body, or it sends a large one): [`exchange`](super::exchange).
//!
//! Start at [`serve`]; [`Connection::work`] decides what is answered.

use super::carry::Carry;
use super::exchange::{AfterExchange, Client, Exchange, Written, ends_on_stop};
use super::http2;
use super::linger::hear_out;
use super::refused::Reason;
use super::route::{Matched, Started};
use super::seats::{Verdict, Waits};
use super::takeover;
use super::worker::Worker;
use crate::counters::add;
use crate::h1::{Unsent, encode};
use crate::h2::PREFACE;
use crate::message::{
    ConnectionHost, ConnectionId, Head, Incoming, Outcome, Request, Response, Takeover, Upgraded, Watched,
    WatchedList, give_head, refusal, take_head,
};
use crate::pool;
use crate::transport::Transport;
use pin_project_lite::pin_project;
use ringroad_engine::Lease;
use ringroad_wire::{Body, CONTINUE, Event, Method, Phase, ReplyTo, Requests, Status};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

/// A connection.
pub(crate) struct Connection {
    pub(super) guard: SeatGuard,
    pub(super) stream: Transport,
    pub(super) requests: Requests,
    pub(super) carry: Carry,
    requests_left: u32,
    /// The carried input is incomplete: more must be received.
    pub(super) starved: bool,
    /// Whether input is the rest of an unread body, and its request was answered.
    pub(super) skipping: bool,
    /// The client did not take the last batch of answers at once.
    slow: bool,
    /// Answers being sent with handlers that want a report.
    pub(super) batch: WatchedList,
}

/// A connection's seat with its worker, until this is dropped.
pub(super) struct SeatGuard {
    pub(super) worker: Rc<Worker>,
    pub(super) seat: ConnectionId,
}

impl Drop for SeatGuard {
    fn drop(&mut self) {
        self.worker.seats.leave(self.seat);
        add(&self.worker.counts().closed, 1);
        drop(self.worker.interims.take(self.seat));
        self.worker.ended(self.seat);
    }
}

/// How a connection ends after its last answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Closes at once: the client sends no more.
    Close,
    /// Shuts our side down, and drops further input for a while. Closing with unread bytes would make the
    /// kernel reset the connection, and destroy the answer on its way (RFC 9112 §9.6).
    Linger,
}

/// Facts about a request while it is answered.
struct Asked {
    reply: ReplyTo,
    incoming: Option<Rc<Incoming>>,
    client: Client,
}

/// Whether a connection goes on.
enum Fate {
    GoOn,
    Over,
    HandOver(Takeover),
    Http2,
}

/// Result of processing the input.
pub(super) enum Step {
    /// More is needed.
    Receive,
    /// Send these answers.
    Send(Vec<u8>),
    /// This many bytes of the answers were sent: send the rest.
    SendRest(Vec<u8>, usize),
    /// Send these answers, which are the last.
    Last(Vec<u8>, Ending),
    /// Send these answers, then run a request that takes longer.
    Exchange(Vec<u8>, Box<Exchange>),
    /// The client has ended its side, or receiving failed.
    Over(Option<ringroad_engine::Error>),
    /// The client began with the preface of HTTP/2.
    Http2,
}

/// Serves a connection to its end. An error ends it, and affects no other connection.
///
/// Not an `async fn`, which would reserve memory for its argument twice. Nothing large is alive while it
/// waits, and rare cases are boxed.
#[allow(clippy::manual_async_fn, reason = "see above")]
pub(crate) fn serve(mut connection: Connection) -> impl Future<Output = ()> {
    async move {
        loop {
            // In a block, so that none of its values take memory in the task while it sends.
            let sending = {
                match (Turn { connection: &mut connection }).await {
                    Step::Send(out) => {
                        connection.wait_for(Waits::Send);
                        connection.begin_send(&out);
                        Timely { sending: connection.stream.write_all(out), slow: false }
                    }
                    rare => match Box::pin(connection.rarely(rare)).await {
                        Fate::GoOn => continue,
                        Fate::Over => return,
                        Fate::HandOver(takeover) => {
                            return Box::pin(connection.hand_over(takeover)).await;
                        }
                        Fate::Http2 => {
                            let Connection { guard, stream, mut carry, .. } = connection;
                            let (early, at) = carry.take();
                            return Box::pin(http2::serve(guard, stream, early, at)).await;
                        }
                    },
                }
            };
            let ((sent, out), slow) = sending.await;
            connection.slow = slow;
            connection.end_send(&out);
            pool::give_buffer(out);
            if sent.is_err() {
                return connection.send_failed();
            }
            connection.complete_batch();
            connection.settle();
        }
    }
}

/// Receives, answers and sends as long as only the receive has to wait. Ready with the next step.
struct Turn<'c> {
    connection: &'c mut Connection,
}

impl Future for Turn<'_> {
    type Output = Step;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Step> {
        self.connection.turn(context)
    }
}

pin_project! {
    /// A send, and whether it had to wait.
    struct Timely<F> {
        #[pin]
        sending: F,
        slow: bool,
    }
}

impl<F: Future> Future for Timely<F> {
    type Output = (F::Output, bool);

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let polled = this.sending.poll(context);
        *this.slow |= polled.is_pending();
        polled.map(|sent| (sent, *this.slow))
    }
}

impl Connection {
    pub(crate) fn new(worker: Rc<Worker>, stream: Transport, seat: ConnectionId) -> Connection {
        Connection::of(SeatGuard { worker, seat }, stream)
    }

    /// Makes a connection that has its seat already.
    pub(super) fn of(guard: SeatGuard, stream: Transport) -> Connection {
        let requests_left = guard.worker.requests_per_connection.get();
        Connection {
            guard,
            stream,
            requests: Requests::new(),
            carry: Carry::default(),
            requests_left,
            starved: true,
            skipping: false,
            slow: false,
            batch: WatchedList::default(),
        }
    }

    /// Returns its parts before any request was parsed: seat, stream, and received bytes.
    pub(super) fn take_apart(self) -> (SeatGuard, Transport, Vec<u8>) {
        let read = self.carry.rest().to_vec();
        (self.guard, self.stream, read)
    }

    #[inline]
    fn turn(&mut self, context: &mut Context<'_>) -> Poll<Step> {
        loop {
            // Whether the task is registered for the next bytes. That holds until this returns.
            let mut parked = false;
            let step = if self.starved {
                match self.stream.poll_recv_parked(context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok((lease, is_all))) if !lease.is_empty() => {
                        parked = is_all;
                        self.take_in(lease, context)
                    }
                    Poll::Ready(received) => return Poll::Ready(Step::Over(received.err())),
                }
            } else {
                self.take_in(Lease::default(), context)
            };
            match step {
                Step::Receive => {}
                Step::Send(out) => match self.stream.try_write(&out) {
                    // The usual case on drivers that attempt.
                    Some(sent) if sent == out.len() => {
                        add(&self.guard.worker.counts().bytes_out, sent as u64);
                        self.guard.worker.keep_buffer(out);
                        self.slow = false;
                        self.complete_batch();
                    }
                    Some(sent) => return Poll::Ready(Step::SendRest(out, sent)),
                    None => return Poll::Ready(Step::Send(out)),
                },
                rare => return Poll::Ready(rare),
            }
            self.settle();
            if parked && self.starved {
                return Poll::Pending;
            }
        }
    }

    /// Sends the rest of a batch after the first `sent` bytes. Returns `false` if the connection is over.
    async fn send_rest_of(&mut self, out: Vec<u8>, sent: usize) -> bool {
        self.slow = true;
        add(&self.guard.worker.counts().bytes_out, sent as u64);
        let (mut out, mut sent, mut failed) = (out, sent, false);
        if out.len() - sent <= out.capacity() / 2 {
            // The client may be slow, and the memory of the sent part can be freed now.
            let rest = out.get(sent..).unwrap_or_default().to_vec();
            pool::give_buffer(std::mem::replace(&mut out, rest));
            sent = 0;
        }
        let bytes = out.len();
        self.guard.worker.begin_send(out.capacity() + self.carry.held());
        add(&self.guard.worker.counts().bytes_out, (bytes - sent) as u64);
        self.wait_for(Waits::SendMore);
        while sent < bytes && !failed {
            let (result, back) = self.stream.write_from(out, sent).await;
            out = back;
            match result {
                Ok(to) => {
                    let worker = &self.guard.worker;
                    worker.seats.sent(self.guard.seat, to - sent, worker.now());
                    sent = to;
                }
                Err(_) => failed = true,
            }
        }
        self.end_send(&out);
        pool::give_buffer(out);
        if failed {
            self.send_failed();
            return false;
        }
        self.complete_batch();
        true
    }

    /// Records that a batch is being sent.
    #[inline]
    fn begin_send(&self, out: &Vec<u8>) {
        let worker = &*self.guard.worker;
        add(&worker.counts().bytes_out, out.len() as u64);
        worker.begin_send(out.capacity() + self.carry.held());
    }

    #[inline]
    fn end_send(&self, out: &Vec<u8>) {
        self.guard.worker.end_send(out.capacity() + self.carry.held());
    }

    #[inline]
    pub(super) fn wait_for(&self, waits: Waits) {
        self.guard.worker.seats.set(self.guard.seat, waits, self.guard.worker.now());
    }

    /// Records what the connection waits for, before it receives.
    #[inline]
    pub(super) fn settle(&self) {
        self.wait_for(match self.requests.phase() {
            Phase::Idle => Waits::Request,
            Phase::Head => Waits::Head,
            Phase::Body => Waits::Body,
            Phase::Closed | Phase::HandedOver | Phase::Failed => Waits::End,
        });
    }

    /// Sends all of `out`. Returns `false` if the connection is over.
    pub(super) async fn send(&mut self, out: Vec<u8>) -> bool {
        self.begin_send(&out);
        let (sent, out) = self.stream.write_all(out).await;
        self.end_send(&out);
        pool::give_buffer(out);
        if sent.is_err() {
            self.send_failed();
            return false;
        }
        true
    }

    /// Reports that all answers of the batch were sent.
    #[inline]
    pub(super) fn complete_batch(&mut self) {
        if !self.batch.is_empty() {
            self.batch.end(Outcome::Complete, true);
        }
    }

    /// Reports a failed send, which ends the connection. It is unknown how much of the batch was sent.
    #[cold]
    pub(super) fn send_failed(&mut self) {
        let outcome = self.why_ended();
        if outcome == Outcome::TooSlow {
            add(&self.guard.worker.counts().timed_out, 1);
        }
        self.batch.end(outcome, false);
    }

    /// Returns how a response ended with its connection.
    pub(super) fn why_ended(&self) -> Outcome {
        match self.guard.worker.seats.verdict(self.guard.seat) {
            Verdict::Overdue(_) => Outcome::TooSlow,
            Verdict::Stopped => Outcome::Dropped,
            Verdict::None => Outcome::ClientGone,
        }
    }

    /// Handles the steps that are rare.
    async fn rarely(&mut self, step: Step) -> Fate {
        match step {
            Step::Receive | Step::Send(_) => return Fate::GoOn,
            Step::SendRest(out, sent) => {
                if self.send_rest_of(out, sent).await {
                    self.settle();
                    return Fate::GoOn;
                }
            }
            Step::Exchange(out, exchange) => match self.exchange(out, exchange).await {
                AfterExchange::GoOn => {
                    self.settle();
                    return Fate::GoOn;
                }
                AfterExchange::End(ending) => self.end(ending).await,
                AfterExchange::HandOver(takeover) => return Fate::HandOver(takeover),
                AfterExchange::Abort => {}
            },
            Step::Last(out, ending) => {
                if out.is_empty() || self.send(out).await {
                    self.complete_batch();
                    self.end(ending).await;
                }
            }
            Step::Http2 => return Fate::Http2,
            Step::Over(why) => {
                match why {
                    None => self.input_ended().await,
                    Some(why) => self.input_failed(&why).await,
                }
                if self.stream.tls().is_some() {
                    let _ = self.stream.finish().await;
                }
            }
        }
        Fate::Over
    }

    /// Hands the connection over to the user's code for another protocol.
    async fn hand_over(self, takeover: Takeover) {
        let Connection { guard, stream, carry, .. } = self;
        let worker = &guard.worker;
        worker.seats.set(guard.seat, Waits::Handler, worker.now());
        add(&worker.counts().upgraded, 1);
        let read = carry.rest().to_vec();
        let host = Rc::clone(worker) as Rc<dyn ConnectionHost>;
        takeover::run(worker, takeover, Upgraded::new(stream, read, host)).await;
    }

    /// Answers the received requests, as far as that can be done at once.
    #[inline]
    fn take_in(&mut self, lease: Lease, context: &mut Context<'_>) -> Step {
        add(&self.guard.worker.counts().bytes_in, lease.len() as u64);
        if self.skipping {
            self.guard.worker.seats.progress(self.guard.seat, lease.len());
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
        self.carry.keep(rest.to_vec(), 0);
    }

    #[cold]
    fn take_in_carried(&mut self, more: &[u8], context: &mut Context<'_>) -> Step {
        let (mut carry, mut at) = self.carry.take();
        carry.extend_from_slice(more);
        let step = self.work(&carry, &mut at, context);
        self.carry.keep(carry, at);
        step
    }

    /// Answers the requests in `input` from `at` on.
    fn work(&mut self, input: &[u8], at: &mut usize, context: &mut Context<'_>) -> Step {
        let mut depth_left = self.guard.worker.pipeline_depth.get();
        let batch_bytes = self.guard.worker.batch_bytes(self.slow);
        let mut out = Vec::new();
        self.starved = false;
        loop {
            let worker = &*self.guard.worker;
            let copy = take_head();
            // Programs repeat requests. A copy of the head and its handler then exist already, and the head
            // is only compared.
            let again = {
                let scratch = worker.scratch.borrow();
                match copy.route_by(scratch.stamp()) {
                    Some(route) => self.requests.next_again(&scratch, input, at).map(|reply| (route, reply)),
                    None => None,
                }
            };
            let (asked, mut started) = match again {
                Some((route, mut reply)) => {
                    self.requests_left = self.requests_left.saturating_sub(1);
                    reply.keep_alive = !worker.is_stopping() && self.requests_left > 0;
                    let request = Request::new(copy, None, &self.guard.worker, self.guard.seat);
                    let started = worker.router.route(route).start(request, context);
                    (Asked { reply, incoming: None, client: Client::PLAIN }, started)
                }
                None => match self.start(copy, input, at, &mut out, context) {
                    Ok(begun) => begun,
                    Err(None) => continue,
                    Err(Some(step)) => return step,
                },
            };
            if out.capacity() == 0 {
                out = self.guard.worker.take_buffer();
            }
            if !matches!(started, Started::Running(_)) {
                self.write_interims(&mut out);
            }
            if let Started::Done(response) = &mut started
                && asked.incoming.is_none()
                && encode::write_known(&mut out, &self.guard.worker.heads.borrow(), asked.reply, response)
            {
                self.guard.worker.counts().responded(Status::OK);
                // Fields written in this form own only the memory of their lines.
                drop(std::mem::take(&mut response.fields));
                std::mem::forget(started);
            } else {
                let (has_body, closes) = (asked.incoming.is_some(), asked.client.closes);
                match self.respond(&mut out, asked, started) {
                    Ok(true) => {}
                    Ok(false) => {
                        self.wait_for(Waits::Send);
                        let at_once = closes && *at == input.len() && !has_body;
                        return Step::Last(out, ending(at_once, &self.requests));
                    }
                    Err(exchange) => {
                        if out.is_empty() {
                            self.guard.worker.keep_buffer(std::mem::take(&mut out));
                        }
                        return Step::Exchange(out, exchange);
                    }
                }
            }
            // Usually that was all of the input.
            if *at == input.len() && self.requests.phase() == Phase::Idle {
                self.starved = true;
                break;
            }
            depth_left = depth_left.saturating_sub(1);
            if depth_left == 0 || out.len() >= batch_bytes {
                break;
            }
        }
        Step::Send(out)
    }

    /// Writes the heads that a handler sends before its response.
    #[inline]
    pub(super) fn write_interims(&self, out: &mut Vec<u8>) {
        for interim in self.guard.worker.interims.take(self.guard.seat) {
            interim.write(out);
        }
    }

    /// Begins to answer the next request. Otherwise returns the next step, with the answers in `out`, or
    /// `None` to parse again.
    fn start(
        &mut self,
        mut copy: Box<Head>,
        input: &[u8],
        at: &mut usize,
        out: &mut Vec<u8>,
        context: &mut Context<'_>,
    ) -> Result<(Asked, Started), Option<Step>> {
        let Connection { guard, requests, requests_left, starved, skipping, .. } = self;
        let (worker, seat) = (&*guard.worker, guard.seat);
        let mut scratch = worker.scratch.borrow_mut();
        let head = match requests.next(&mut scratch, input, at) {
            Ok(Some(Event::Head(head))) => head,
            other => {
                give_head(copy);
                return Err(match other {
                    // The end of a body that no handler read.
                    Ok(Some(_)) => {
                        *skipping = false;
                        None
                    }
                    Ok(None) => {
                        *starved = true;
                        Some(if out.is_empty() { Step::Receive } else { Step::Send(std::mem::take(out)) })
                    }
                    // The request was answered, so nothing more is sent.
                    Err(_) if *skipping => Some(Step::Last(std::mem::take(out), Ending::Linger)),
                    Err(why) => {
                        drop(scratch);
                        let head = input.get(*at..).unwrap_or_default();
                        let is_first = *requests_left == worker.requests_per_connection.get();
                        Some(if is_first && worker.settings.prior_knowledge && is_preface(head) {
                            Step::Http2
                        } else {
                            refuse(worker, seat, std::mem::take(out), why, head, false)
                        })
                    }
                });
            }
        };
        let mut reply = ReplyTo::from(&head);
        *requests_left = requests_left.saturating_sub(1);
        let client = Client {
            expects_continue: head.expects_continue(),
            closes: !reply.keep_alive,
            offers_upgrade: head.upgrade(),
        };
        reply.keep_alive &= !worker.is_stopping() && *requests_left > 0;
        let found = match copy.route_of(&head) {
            Some(route) => Ok(route),
            None => {
                copy.clear();
                match worker.router.find(&head, &mut copy.params) {
                    Matched::Route(route, names) => {
                        copy.copy(&head, route, names);
                        Ok(route)
                    }
                    Matched::Answer(response) => Err(response),
                }
            }
        };
        let incoming = match head.body() {
            Body::Empty => None,
            Body::Length(length) => Some(Incoming::new(Some(length))),
            _ => Some(Incoming::new(None)),
        };
        drop(scratch);
        if incoming.is_some() {
            worker.seats.begin_body(seat);
            if let Ok(route) = &found
                && let Err(why) = requests.limit_body(worker.router.body_bytes_max(*route))
            {
                return Err(Some(refuse(worker, seat, std::mem::take(out), why, &[], false)));
            }
        }
        let started = match found {
            Ok(route) => {
                let route = worker.router.route(route);
                let request = Request::new(copy, incoming.clone(), &guard.worker, seat);
                if let Some(incoming) = &incoming {
                    // Received bytes of the body are available when the handler first runs.
                    if let Some(refused) = super::exchange::feed(worker, requests, incoming, input, at) {
                        worker.refusing.set(Some((seat, refused.status())));
                        drop(route.start(request, context));
                        worker.refusing.set(None);
                        return Err(Some(refuse(worker, seat, std::mem::take(out), refused, &[], true)));
                    }
                    // More of it must be received, even if input is left.
                    *starved = !incoming.is_complete();
                }
                route.start(request, context)
            }
            Err(response) => {
                give_head(copy);
                Started::Done(response)
            }
        };
        Ok((Asked { reply, incoming, client }, started))
    }

    /// Writes a response to `out`. Returns whether the connection continues, or the work for the rest of the
    /// response.
    fn respond(&mut self, out: &mut Vec<u8>, asked: Asked, started: Started) -> Result<bool, Box<Exchange>> {
        let Connection { guard, requests, skipping, batch, .. } = self;
        let (worker, seat) = (&*guard.worker, guard.seat);
        let Asked { mut reply, incoming, client } = asked;
        let mut response = match started {
            Started::Done(response) => response,
            Started::Running(running) => {
                worker.seats.set(seat, Waits::Handler, worker.now());
                return Err(Exchange::waiting(running, incoming, reply, client));
            }
            Started::Panicked => panicked(worker, seat),
        };
        if response.switches() {
            let complete = incoming.as_ref().is_none_or(|incoming| incoming.is_complete());
            response = response.if_it_may_switch(client.offers_upgrade, complete);
        }
        if let Some(incoming) = &incoming
            && !incoming.is_complete()
        {
            if reads_on(&response, reply, incoming) {
                if client.expects_continue {
                    tell_to_continue(out, requests);
                }
            } else {
                // The length of a chunked body is known only at its end, so the client learns at once that
                // this may be the last answer on the connection (RFC 9112 §9.6).
                let skipped =
                    requests.body_left().is_some() && requests.skip_body(worker.scratch.borrow().limits());
                reply.keep_alive &= skipped;
                *skipping = skipped;
                incoming.fail(crate::BodyError::Over);
            }
        }
        worker.counts().responded(response.status_code());
        let ends_on_stop = ends_on_stop(&response);
        let mut watched = watch(&mut response, reply.method, None);
        let (rest, keep_alive) = encode::response(out, &worker.heads.borrow(), reply, response);
        if matches!(rest, Unsent::Nothing) {
            if let Some(watched) = watched {
                batch.push(watched);
            }
            return Ok(keep_alive);
        }
        if let Some(watched) = &mut watched {
            // Counted while it is sent.
            watched.body_bytes = 0;
        }
        let written = Written { rest, keep_alive, watched, ends_on_stop };
        Err(Exchange::sending(written, incoming, client))
    }

    /// Handles the end of the client's side.
    async fn input_ended(&mut self) {
        // A truncated head: its sender may still be reading.
        let phase = self.requests.phase();
        if let (Phase::Head, Err(why)) = (phase, self.requests.end_of_input()) {
            self.say(why.status(), Reason::Protocol(why), false).await;
        }
    }

    /// Handles a receive that failed or was cancelled.
    async fn input_failed(&mut self, why: &ringroad_engine::Error) {
        if !why.is_cancelled() {
            return;
        }
        match self.guard.worker.seats.verdict(self.guard.seat) {
            Verdict::Overdue(waits) => {
                add(&self.guard.worker.counts().timed_out, 1);
                let asks = matches!(waits, Waits::Head | Waits::Body) && !self.skipping;
                if asks && self.say(Status::REQUEST_TIMEOUT, Reason::overdue(waits), false).await {
                    self.end(Ending::Linger).await;
                }
            }
            Verdict::Stopped | Verdict::None => {}
        }
    }

    /// Answers with `status` as the last answer on this connection. `begun`: in place of a handler that had
    /// the request.
    pub(super) async fn say(&mut self, status: Status, reason: Reason, begun: bool) -> bool {
        let mut out = pool::buffer();
        let (worker, seat) = (&self.guard.worker, self.guard.seat);
        let head = self.carry.rest();
        worker.tell(seat, Some(status), reason, head, begun);
        worker.counts().responded(status);
        encode::response(&mut out, &worker.heads.borrow(), refused_reply(head), refusal(status));
        self.wait_for(Waits::Send);
        self.send(out).await
    }

    /// Ends after the last answer, in stages (RFC 9112 §9.6): ends the sending side, then drops input until
    /// the client ends its side, is silent for a while, or its time is over ([`linger`](super::linger)).
    async fn end(&mut self, ending: Ending) {
        let (worker, seat) = (Rc::clone(&self.guard.worker), self.guard.seat);
        worker.begin_end(seat);
        if ending == Ending::Close {
            // Over TLS, `close_notify` shows that nothing was truncated. Without TLS, the end of the TCP
            // stream does.
            if self.stream.tls().is_some() {
                let _ = self.stream.finish().await;
            }
            return;
        }
        if self.stream.finish().await.is_err() {
            return;
        }
        hear_out(&worker, seat, u64::MAX, |context| self.stream.poll_recv(context)).await;
    }
}

/// Returns whether the received bytes begin an HTTP/2 preface. An HTTP/1 server refuses the first lines of
/// the preface by design, so this costs other requests nothing.
#[cold]
fn is_preface(input: &[u8]) -> bool {
    input.len() >= 4 && (input.starts_with(PREFACE) || PREFACE.starts_with(input))
}

/// Returns the form of a refusal: a request that may be HEAD gets no content (RFC 9110 §9.3.2).
pub(super) fn refused_reply(head: &[u8]) -> ReplyTo {
    let mut reply = ReplyTo::refused();
    if head.starts_with(b"HEAD ") {
        reply.method = Method::Head;
    }
    reply
}

/// Counts and reports a handler's panic, and returns the answer for its client.
#[cold]
pub(super) fn panicked(worker: &Worker, seat: ConnectionId) -> Response {
    add(&worker.counts().panics, 1);
    worker.tell_refused(seat, Some(Status::INTERNAL_SERVER_ERROR), Reason::Panicked, &[]);
    refusal(Status::INTERNAL_SERVER_ERROR)
}

/// Returns the sent-callback of a response, if its handler set one.
#[inline]
pub(super) fn watch(response: &mut Response, method: Method, began: Option<Instant>) -> Option<Box<Watched>> {
    let mut watched = response.on_sent.take()?;
    watched.begin(began, if method == Method::Head { 0 } else { response.body_len() });
    Some(watched)
}

/// Returns whether the rest of a request's body may be read while its response is sent: the response is a
/// stream, it is sent, and the body has a reader.
pub(super) fn reads_on(response: &Response, reply: ReplyTo, incoming: &Rc<Incoming>) -> bool {
    response.streams()
        && reply.method != Method::Head
        && !response.status.forbids_body()
        && Rc::strong_count(incoming) > 1
}

/// Sends `100 Continue` to a client that waits for it before it sends the body, because the answer streams
/// back. It must precede the head of the response, or the client would take it for a part of that.
#[cold]
pub(super) fn tell_to_continue(out: &mut Vec<u8>, requests: &mut Requests) {
    out.extend_from_slice(CONTINUE);
    requests.continue_sent();
}

/// Returns how a connection ends after its last answer.
pub(super) fn ending(client_closes: bool, requests: &Requests) -> Ending {
    if client_closes && requests.phase() == Phase::Closed { Ending::Close } else { Ending::Linger }
}

/// Answers an invalid request, after the answers to those before it. `head` is the received part of it.
/// `begun`: its handler had it.
#[cold]
pub(super) fn refuse(
    worker: &Worker,
    seat: ConnectionId,
    mut out: Vec<u8>,
    why: ringroad_wire::Error,
    head: &[u8],
    begun: bool,
) -> Step {
    let status = why.status();
    add(&worker.counts().refused, 1);
    worker.counts().responded(status);
    worker.tell(seat, Some(status), Reason::Protocol(why), head, begun);
    encode::response(&mut out, &worker.heads.borrow(), refused_reply(head), refusal(status));
    worker.seats.set(seat, Waits::Send, worker.now());
    Step::Last(out, Ending::Linger)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use crate::h1::HeadCache;
    use crate::message::{ALONE_BYTES_MIN, Shared};
    use ringroad_wire::Version;

    fn size_of_future<F>(_: impl Fn(Connection) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_shared_response_with_a_line_of_its_own_is_sent_from_the_memory_it_shares() {
        let body: Rc<[u8]> = vec![b'x'; ALONE_BYTES_MIN].into();
        let shared = Shared::new(Response::new(Rc::clone(&body))).unwrap();
        let mut response = Response::shared(&shared).header("X-Request-Id", "1").unwrap().on_sent(|_| {});
        let watched = watch(&mut response, Method::Get, None).unwrap();
        assert_eq!(watched.body_bytes, body.len() as u64);
        let (mut out, cache) = (Vec::new(), HeadCache::new(false));
        let reply = ReplyTo { method: Method::Get, version: Version::Http11, keep_alive: true };
        let Unsent::Bytes(chunk) = encode::response(&mut out, &cache, reply, response).0 else {
            panic!("the body is not sent by itself")
        };
        assert!(std::ptr::eq(&*chunk, &*body), "the body was copied");
        assert!(out.windows(15).any(|line| line == b"X-Request-Id: 1"));
        watched.end(Outcome::Complete);
    }

    /// Includes the executor's tag of a task, 8 bytes, which tells whether the task is over.
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
