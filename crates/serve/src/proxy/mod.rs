//! Passes requests on to an upstream server and its answers back, both as they arrive.
//!
//! Fields of one hop are not passed on (RFC 9110 §7.6.1): each hop has its own framing and its own
//! `Connection`. A client cannot remove a field that the proxy adds. A failure of the upstream server is 502
//! or 504 with a short text for the client and the reason in the log. Connections are in [`upstream`], those
//! of HTTP/2 in [`http2`], header fields in [`lines`], places that an answer names in [`location`], WebSocket
//! connections in [`tunnel`], refusals of gRPC calls in [`grpc`].

pub(crate) mod groups;
pub(crate) mod grpc;
mod http2;
mod lines;
mod location;
mod tunnel;
mod upstream;

use crate::answer::{Answer, AnsweredBy, Tally, Watch};
use crate::config::{Proxy, Route, Upstream};
use crate::event::{Event, EventSink, ServerChange};
use crate::page;
use foldhash::fast::RandomState;
use futures_core::Stream;
use http2::Key;
use ringroad_engine::sync::CancellationToken;
use ringroad_engine::sync::budget::Turns;
use ringroad_engine::{spawn, time};
use ringroad_gate::flow::{self, cookie as cookie_of};
use ringroad_gate::path;
use ringroad_gate::upstream::{
    Admitted, Balance, CollectError, Collected, Group, HashBy, Pick, Room, Spool, SpoolLimits, SpoolReader,
    State, hash,
};
use ringroad_http::{
    Body, BoxError, Chunk, EncodeError, FailedAt, FieldBlock, KeptConnections, Method, Piece, Receive,
    Request, RequestBody, Response, SentSoFar, Status,
};
use ringroad_policy::Nanos;
use ringroad_wire::{Asked, BodyEncoder, BodySize, Limits, Scratch};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};
use upstream::{Connection, Failure, Head, Sink, Source, Why};

/// One worker's connections to upstream servers.
pub(crate) struct Proxies {
    /// Idle connections by the server's number and its protocol settings. A server that a reload keeps, keeps
    /// its connections.
    idle: RefCell<HashMap<Key, KeptConnections<Key, Connection>, RandomState>>,
    /// The HTTP/2 connections.
    http2: http2::Pool,
    scratch: Rc<RefCell<Scratch>>,
    /// The budget for connections of all workers.
    room: Arc<Room>,
    /// The task that closes idle connections for tasks that wait for room runs.
    makes_room: Cell<bool>,
    /// Requests of this worker that wait for room, by server as above, in the order in which they came.
    line: RefCell<HashMap<Key, VecDeque<Rc<Offer>>, RandomState>>,
    /// Changes of breakers are reported there.
    events: EventSink,
}

/// A time that no exchange takes.
const EVER: Duration = Duration::from_secs(10 * 365 * 86400);

/// Bytes that most heads of requests to upstream servers fit into.
const HEAD: usize = 768;

/// A connection that another request gives to one that waits for room.
#[derive(Default)]
struct Offer {
    connection: RefCell<Option<Connection>>,
    waker: RefCell<Option<Waker>>,
}

/// A request's place in line, until it is dropped.
struct InLine<'p> {
    proxies: &'p Proxies,
    server: Key,
    offer: Rc<Offer>,
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        let mut line = self.proxies.line.borrow_mut();
        if let Some(of_server) = line.get_mut(&self.server) {
            of_server.retain(|other| !Rc::ptr_eq(other, &self.offer));
            if of_server.is_empty() {
                line.remove(&self.server);
            }
        }
    }
}

impl Proxies {
    /// Makes an empty set with these limits of answers.
    pub(crate) fn new(room: Arc<Room>, limits: Limits, events: EventSink) -> Proxies {
        let scratch = Rc::new(RefCell::new(Scratch::new(limits)));
        let (idle, line) = (RefCell::default(), RefCell::default());
        let (http2, makes_room) = (http2::Pool::default(), Cell::new(false));
        Proxies { idle, http2, scratch, room, makes_room, line, events }
    }

    /// Sets the limits of later answers.
    pub(crate) fn set_limits(&self, limits: Limits) {
        self.scratch.borrow_mut().set_limits(limits);
    }

    /// Closes as many idle connections as tasks wait for room, each time some begin to wait.
    fn make_room(self: &Rc<Proxies>) {
        if self.makes_room.replace(true) {
            return;
        }
        let (room, proxies) = (Arc::clone(&self.room), Rc::downgrade(self));
        let making = async move {
            let mut seen = 0;
            loop {
                let mut wanted = room.pressed(&mut seen).await;
                let Some(proxies) = proxies.upgrade() else { return };
                for kept in proxies.idle.borrow().values() {
                    wanted -= kept.close_oldest(wanted);
                }
                proxies.http2.close_idle(wanted);
            }
        };
        spawn(making).detach();
    }

    /// Passes a request on and returns the answer.
    pub(crate) async fn answer(
        self: &Rc<Proxies>,
        route: &Rc<ProxyRoute>,
        request: &mut Request,
        asking: &flow::Context,
    ) -> Result<Answer, EncodeError> {
        self.answer_or(route, request, asking, &mut None).await
    }

    /// Returns the same. Where no server has begun to answer, and not because time is over, `unanswered` says
    /// how much of the request the last one may have: another one may get it, as the method permits.
    pub(crate) async fn answer_or(
        self: &Rc<Proxies>,
        route: &Rc<ProxyRoute>,
        request: &mut Request,
        asking: &flow::Context,
        unanswered: &mut Option<SentSoFar>,
    ) -> Result<Answer, EncodeError> {
        let settings = route.settings();
        let mut head = Vec::with_capacity(HEAD);
        let method = request.method();
        if lines::hops_left(request) == Some(0) {
            // The client asks the last server of so many, which is this one.
            return Ok(Answer::plain(Response::empty(Status::NO_CONTENT)));
        }
        // A request that offers WebSocket has no body to send first.
        let websocket =
            lines::offers_websocket(request) && request.head().body() == ringroad_wire::Body::Empty;
        if settings.trust_forwarded || asking.comes_by_proxy() {
            asking.take_id(request);
        }
        // Both sides of a call speak when they like.
        let is_call = settings.to.speaks.http2 && grpc::is_call(request);
        let buffer = settings.buffer.as_ref().filter(|_| !is_call);
        let trailers = is_call || lines::takes_trailers(request);
        let mut body = std::mem::take(request.body());
        if is_call {
            body.take_time();
        }
        let body = match buffer {
            _ if body.is_empty() => Outgoing::Empty,
            // Before a server is taken: a slow client never holds one, and a body that is malformed reaches
            // none.
            Some(limits) => match Collected::collect(body, limits).await {
                Ok(collected) => Outgoing::Kept(Rc::new(collected)),
                Err(CollectError::Body(why)) => {
                    return Ok(refused(&settings.to.name, &Failure::unasked(Why::Client(why)), asking));
                }
                Err(CollectError::File(why)) => {
                    let why = format!("temporary file in {}: {why}", limits.folder.display());
                    let failure = Failure::unasked(Why::Buffer(why));
                    return Ok(refused(&settings.to.name, &failure, asking));
                }
            },
            None => Outgoing::Once(body),
        };
        let size = body.size();
        let target = target(settings, request, asking.below());
        let encoder = match lines::request(
            &mut head,
            route,
            request,
            &target,
            websocket,
            asking,
            route.subject.as_deref(),
        ) {
            Ok(encoder) => encoder,
            Err(lines::NotHandedOn::Loop) => {
                asking.fault("this server is behind itself: Via has its name twice".to_owned());
                let status = Status::new(508).unwrap_or(Status::BAD_GATEWAY);
                return Ok(page::refusal(status, asking, "The request came through here before."));
            }
            Err(lines::NotHandedOn::TooManyNamed) => {
                return Ok(page::refusal(Status::BAD_REQUEST, asking, "Connection names too many lines."));
            }
            Err(lines::NotHandedOn::Unwritable) => {
                return Ok(page::refusal(Status::BAD_REQUEST, asking, "This request cannot be passed on."));
            }
        };
        let key = key(route.group.balance(), request, asking);
        let encoder = encoder.finish(size);
        let begun = asking.now();
        let asked = Asked { method, upgrade: websocket };
        // A client that sends a key answers for repeats (draft-ietf-httpapi-idempotency-key-header).
        let has_key = matches!(method, Method::Post | Method::Patch)
            && request.headers().get("idempotency-key").is_some_and(|key| !key.is_empty());
        let repeat_as = if has_key { Method::Put } else { method };
        let mut tried = Tried::new(request, trailers, repeat_as);
        let mut admitted = match route.group.admit(|| asking.now()).await {
            Ok(admitted) => admitted,
            Err(refusal) => {
                route.group.refused.fetch_add(1, Ordering::Relaxed);
                let failure = Failure::unasked(Why::NotAdmitted(refusal));
                return Ok(refused(&settings.to.name, &failure, asking));
            }
        };
        self.report(&route.group, &mut admitted, String::new);
        route.group.request_begins();
        // Only a bulkhead lets a request wait in line.
        tried.begun = route.group.guards().bulkhead.is_none().then_some(begun);
        let mut asked = self.ask_one_or_two(route, head, encoder, body, asked, key, &mut tried, asking).await;
        let ended = tried.ended.unwrap_or_else(|| asking.now());
        let opened = match &asked {
            Ok((head, _)) => admitted.ended(head.status().code() < 500, ended),
            Err(failure) if failure.is_of_the_server() => admitted.ended(false, ended),
            Err(_) => false,
        };
        route.group.opened.fetch_add(u64::from(opened), Ordering::Relaxed);
        let address = tried.last.clone().unwrap_or_else(|| settings.to.name.as_str().into());
        self.report(&route.group, &mut admitted, || match &asked {
            Ok((head, _)) => format!("{address}: status {}", head.status().code()),
            Err(failure) => format!("{address}: {failure}"),
        });
        if let Ok((_, pump)) = &mut asked {
            pump.pick.hold(admitted);
        }
        asking.answered_by(AnsweredBy {
            address: Arc::clone(&address),
            took: Duration::from_nanos(ended.saturating_sub(begun)),
        });
        match asked {
            Ok((head, pump)) if head.status() == Status::SWITCHING_PROTOCOLS => {
                let why = if !lines::is_websocket(head.fields()) {
                    Why::OtherProtocol
                } else if !lines::answers_key(request, head.fields()) {
                    Why::WrongKey
                } else {
                    let handing = Handing { route, request, asking, target: &target };
                    return hand_through(&handing, head, pump);
                };
                Ok(refused(&address, &Failure::answering(true, SentSoFar::All, why), asking))
            }
            Ok((head, pump)) => {
                let cookie = cookie(route.group.balance(), &pump.pick, key);
                let handing = Handing { route, request, asking, target: &target };
                let answer = self.hand_back(&handing, head, pump, method, buffer)?;
                match cookie {
                    // The cookie is this client's, and the answer may be kept for all.
                    Some(cookie) if route.route.steps.ask_again() => {
                        asking.note_cookie(cookie);
                        Ok(answer)
                    }
                    Some(cookie) => answer.with(|response| response.header("Set-Cookie", cookie)),
                    None => Ok(answer),
                }
            }
            Err(failure) => {
                *unanswered = failure.before_an_answer();
                Ok(refused(&address, &failure, asking))
            }
        }
    }

    /// Reports what a request has changed of the group's breaker. `by`: how it ended.
    fn report(&self, group: &Group, admitted: &mut Admitted, by: impl FnOnce() -> String) {
        if let Some(change) = admitted.take_change() {
            self.events.report(Event::Breaker { upstream: group.name().to_owned(), change, by: by() });
        }
    }

    /// Counts a request that failed at a server, and reports if that is left out now.
    fn failed(&self, pick: &Pick, asking: &flow::Context, why: impl FnOnce() -> String) {
        let now = asking.now();
        if !pick.failed(now, asking.random()) {
            return;
        }
        let server = pick.server();
        let State::Ejected(until) = server.state(now) else { return };
        self.events.report(Event::Server {
            upstream: pick.group().name().to_owned(),
            server: server.name().to_string(),
            change: ServerChange::Ejected(Duration::from_nanos(until.saturating_sub(now)), why()),
        });
    }

    /// Sends a request to a server of the group, and to a second one as well where the first is slow and the
    /// group is configured so (`hedge`). The first answer counts; the other exchange is dropped.
    #[allow(clippy::too_many_arguments, reason = "as of `ask`")]
    async fn ask_one_or_two(
        self: &Rc<Proxies>,
        route: &Rc<ProxyRoute>,
        head: Vec<u8>,
        encoder: BodyEncoder,
        body: Outgoing,
        asked: Asked,
        key: Option<u64>,
        tried: &mut Tried<'_>,
        asking: &flow::Context,
    ) -> Result<(Head, Box<Pump>), Failure> {
        let group = &route.group;
        let repeatable = FailedAt::Head.may_repeat(SentSoFar::All, tried.repeat_as);
        let may_hedge = repeatable && !asked.upgrade && group.servers().len() > 1;
        let after = group.hedge_after().filter(|_| may_hedge);
        let (Some(after), Some(copy)) = (after, body.again()) else {
            return self.ask(route, head, encoder, body, asked, key, tried, asking).await;
        };
        let mut second_tried = Tried::new(tried.request, tried.trailers, tried.repeat_as);
        let current = Rc::clone(tried.current.get_or_insert_default());
        // Apart: only a group with `hedge` has two of these large futures.
        let mut first = Box::pin(self.ask(route, head.clone(), encoder, body, asked, key, tried, asking));
        if let Ok(answered) = time::timeout(after, &mut first).await {
            return answered;
        }
        if !group.may_repeat(asking.now()) {
            return first.await;
        }
        group.hedged.fetch_add(1, Ordering::Relaxed);
        second_tried.places.extend(current.get());
        let mut second =
            Box::pin(self.ask(route, head, encoder, copy, asked, None, &mut second_tried, asking));
        let (mut one, mut two) = (None, None);
        // An answer that is an error of the server waits for the other one.
        let is_good = |answered: &Result<(Head, Box<Pump>), Failure>| {
            answered.as_ref().is_ok_and(|(head, _)| head.status().code() < 500)
        };
        let mut turns = Turns::default();
        poll_fn(|context| {
            for polls_first in turns.round() {
                if polls_first
                    && one.is_none()
                    && let Poll::Ready(answered) = first.as_mut().poll(context)
                {
                    one = Some(answered);
                }
                if !polls_first
                    && two.is_none()
                    && let Poll::Ready(answered) = second.as_mut().poll(context)
                {
                    two = Some(answered);
                }
            }
            let is_over = one.is_some() && two.is_some();
            let has_good = one.iter().chain(&two).any(is_good);
            if is_over || has_good { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        drop((first, second));
        let second_counts = two.as_ref().is_some_and(is_good) && !one.as_ref().is_some_and(is_good)
            || two.as_ref().is_some_and(Result::is_ok) && !one.as_ref().is_some_and(Result::is_ok);
        if second_counts {
            (tried.last, tried.ended) = (second_tried.last, second_tried.ended);
        }
        let answered = if second_counts { two } else { one };
        answered.unwrap_or_else(|| Err(Failure::unasked(Why::NoServer)))
    }

    /// Sends a request to a server of the group, and waits for the head of its answer.
    ///
    /// It is sent again only if [`FailedAt::may_repeat`](ringroad_http::FailedAt::may_repeat) permits it and
    /// its body is still here: on a new connection where a kept one turned out closed, which says nothing of
    /// the server; once to a server that has said that it did not act on it; else to a server that was not
    /// tried yet. A server that cannot be reached has seen nothing of it; what one may have seen is repeated
    /// within the group's budget.
    #[allow(clippy::too_many_arguments, reason = "one exchange's parts, each used once")]
    async fn ask(
        self: &Rc<Proxies>,
        route: &Rc<ProxyRoute>,
        head: Vec<u8>,
        encoder: BodyEncoder,
        mut body: Outgoing,
        asked: Asked,
        key: Option<u64>,
        tried: &mut Tried<'_>,
        asking: &flow::Context,
    ) -> Result<(Head, Box<Pump>), Failure> {
        let (group, timing) = (&route.group, &route.settings().to.timing);
        let retry = &group.guards().retry;
        // A repeat that would begin after the time limit is not made: the present answer is returned at once.
        let fits = |wait: &Duration| asking.time_left().is_none_or(|left| *wait < left);
        let mut repeats = 0;
        let mut head = head;
        let mut fresh = false;
        // A server that did not act on it may get it once more at once, also on its first connection.
        let mut may_refuse = route.settings().to.speaks.http2;
        loop {
            let random = [asking.random(), asking.random()];
            let begun = tried.begun.take().unwrap_or_else(|| asking.now());
            let pick = group.pick(key, &tried.places, begun, random);
            let Some(pick) = pick else { return Err(Failure::unasked(Why::NoServer)) };
            tried.last = Some(Arc::clone(pick.server().name()));
            if let Some(current) = &tried.current {
                current.set(Some(pick.place()));
            }
            if !matches!(body, Outgoing::Once(_)) {
                pick.count_if_given_up(flow::clock, asking.epoch());
            }
            let another = tried.places.len() + 1 < group.servers().len();
            let connected = self.connection(route, &pick, asked.upgrade, fresh, tried.trailers).await;
            let (connection, was_kept) = match connected {
                Ok(connected) => connected,
                Err(failure) => {
                    if failure.is_of_the_server() {
                        self.failed(&pick, asking, || failure.to_string());
                    }
                    let may = failure.may_try_another(tried.repeat_as);
                    if another && may {
                        tried.places.push(pick.place());
                        continue;
                    }
                    if may
                        && let Some(wait) = retry.wait(repeats, false, asking.random()).filter(fits)
                        && group.may_repeat(asking.now())
                    {
                        drop(pick);
                        repeats += 1;
                        time::sleep(wait).await;
                        continue;
                    }
                    return Err(failure);
                }
            };
            let (source, sink) = connection.split();
            let is_kept = !matches!(body, Outgoing::Once(_));
            if !is_kept {
                source.keep_taken();
            }
            let progress = Progress::default();
            let rest = body.for_one_attempt();
            let has_body = rest.is_some();
            let may_be_last = !(was_kept || may_refuse || retry.wait(repeats, another, 0).is_some());
            let bytes = if may_be_last { std::mem::take(&mut head) } else { head.clone() };
            let sending = Sending {
                future: Some(Box::pin(sink.send(bytes, encoder, rest, Rc::clone(&progress)))),
                sink: None,
                failed: None,
            };
            let mut pump = Box::new(Pump {
                source,
                sending,
                progress,
                span: timing.answer,
                scratch: Rc::clone(&self.scratch),
                pick,
                keep_alive: None,
                trailers: tried.trailers,
                behind: None,
                // Some applications send a body after HEAD, which would be the next request's answer.
                poisoned: asked.method == Method::Head
                    || has_body
                        && !matches!(
                            asked.method,
                            Method::Post | Method::Put | Method::Patch | Method::Other
                        ),
            });
            let answered = pump.head(asked, tried.request, route.subject.as_deref()).await;
            if answered.as_ref().is_ok_and(|head| head.status().code() >= 500) {
                pump.pick.server().errors.fetch_add(1, Ordering::Relaxed);
            }
            let failure = match answered {
                Ok(head) if is_kept && retry.statuses.contains(&head.status().code()) => {
                    let idempotent = FailedAt::Head.may_repeat(SentSoFar::All, tried.repeat_as);
                    let wait = retry.wait(repeats, another, asking.random()).filter(|_| idempotent);
                    let wait = wait.and_then(|wait| patience(&head, wait, retry.longest)).filter(fits);
                    self.failed(&pump.pick, asking, || format!("status {}", head.status().code()));
                    match wait {
                        Some(wait) if group.may_repeat(asking.now()) => {
                            tried.places.push(pump.pick.place());
                            drop((head, pump));
                            repeats += 1;
                            fresh = false;
                            time::sleep(wait).await;
                            continue;
                        }
                        _ => return Ok((head, pump)),
                    }
                }
                Ok(head) => {
                    let now = asking.now();
                    pump.pick.succeeded(now.saturating_sub(begun), now);
                    group.took(now.saturating_sub(begun));
                    tried.ended = Some(now);
                    pump.keep_alive = head.fields().get("keep-alive").map(<[u8]>::to_vec);
                    return Ok((head, pump));
                }
                Err(failure) => failure,
            };
            let back = pump.source.take_back().filter(|_| !is_kept);
            let is_whole = is_kept || back.is_some();
            if let Some(back) = back {
                body = Outgoing::Once(back);
            }
            let may_repeat = is_whole && failure.may_try_another(tried.repeat_as);
            if may_repeat && was_kept && failure.is_unanswered() {
                fresh = true;
                continue;
            }
            if may_repeat && failure.is_not_acted_on() && std::mem::take(&mut may_refuse) {
                fresh = true;
                continue;
            }
            if failure.is_of_the_server() {
                self.failed(&pump.pick, asking, || failure.to_string());
            }
            if may_repeat
                && let Some(wait) = retry.wait(repeats, another, asking.random()).filter(fits)
                && group.may_repeat(asking.now())
            {
                tried.places.push(pump.pick.place());
                drop(pump);
                repeats += 1;
                fresh = false;
                if !wait.is_zero() {
                    time::sleep(wait).await;
                }
                continue;
            }
            return Err(failure);
        }
    }

    /// Returns a connection for one exchange, or a stream of one; and whether it was there before. With
    /// `fresh`, no kept connection is taken. WebSocket is spoken over HTTP/1.1.
    async fn connection(
        self: &Rc<Proxies>,
        route: &ProxyRoute,
        pick: &Pick,
        upgrade: bool,
        fresh: bool,
        trailers: bool,
    ) -> Result<(Connection, bool), Failure> {
        let Upstream { timing, speaks, .. } = &*route.settings().to;
        if speaks.http2 && !upgrade {
            let (stream, was_there) = http2::open(self, pick, speaks, timing, fresh, trailers).await?;
            return Ok((Connection::stream(stream), was_there));
        }
        let kept = if fresh { None } else { self.kept(route, pick).take(&key_of(route, pick)) };
        match kept {
            Some(connection) => Ok((connection, true)),
            None => self.open(route, pick, timing.connect).await,
        }
    }

    /// Returns a new connection; or, where there is no room for one, one that another request gives away
    /// first, which is told.
    async fn open(
        self: &Rc<Proxies>,
        route: &ProxyRoute,
        pick: &Pick,
        span: Duration,
    ) -> Result<(Connection, bool), Failure> {
        let (address, speaks) = (pick.server().address(), &route.settings().to.speaks);
        if let Some(permit) = self.room.try_permit() {
            return Ok((Connection::open(address, speaks, span, span, permit).await?, false));
        }
        let (begun, server, offer) = (Instant::now(), key_of(route, pick), Rc::<Offer>::default());
        self.line.borrow_mut().entry(server).or_default().push_back(Rc::clone(&offer));
        let in_line = InLine { proxies: self, server, offer };
        // A request that waits closes idle connections, also where none was kept since.
        self.make_room();
        let mut permit = pin!(self.room.permit());
        let either = poll_fn(|context| {
            if let Some(mut connection) = in_line.offer.connection.take() {
                if connection.is_quiet() {
                    return Poll::Ready(Ok(connection));
                }
                // Dropped, it gives its permit to the first request that waits. This one goes on waiting, in
                // its place.
                let mut line = self.line.borrow_mut();
                line.entry(server).or_default().push_front(Rc::clone(&in_line.offer));
            }
            *in_line.offer.waker.borrow_mut() = Some(context.waker().clone());
            permit.as_mut().poll(context).map(Err)
        });
        match time::timeout(span, either).await {
            Ok(Ok(connection)) => Ok((connection, true)),
            Ok(Err(permit)) => {
                let left = span.saturating_sub(begun.elapsed());
                Ok((Connection::open(address, speaks, span, left, permit).await?, false))
            }
            Err(_) => Err(Failure::connecting(Why::NoRoom(span))),
        }
    }

    fn kept(&self, route: &ProxyRoute, pick: &Pick) -> KeptConnections<Key, Connection> {
        let mut idle = self.idle.borrow_mut();
        let (key, keep) = (key_of(route, pick), route.settings().to.timing.keep);
        if let Some(kept) = idle.get(&key) {
            // A reload may have changed it.
            kept.set_most(keep);
            return kept.clone();
        }
        // Servers that no configuration names any more leave nothing behind.
        idle.retain(|_, kept| !kept.is_empty());
        idle.entry(key).or_insert_with(|| KeptConnections::new(keep)).clone()
    }

    /// Keeps a connection for later requests, a second less long than its server says it does.
    fn keep(
        self: &Rc<Proxies>,
        route: &ProxyRoute,
        pick: &Pick,
        connection: Connection,
        keep_alive: Option<&[u8]>,
    ) {
        let timing = &route.settings().to.timing;
        let span = ringroad_http::keep_for(keep_alive, timing.keep_for);
        let server = key_of(route, pick);
        let waits = self.line.borrow_mut().get_mut(&server).and_then(VecDeque::pop_front);
        if let Some(offer) = waits {
            *offer.connection.borrow_mut() = Some(connection);
            if let Some(waker) = offer.waker.take() {
                waker.wake();
            }
            return;
        }
        // Requests to other servers, or of other workers, that wait need the room more.
        if self.room.waiting() == 0 {
            self.make_room();
            self.kept(route, pick).keep(server, connection, span);
        }
    }

    /// Converts the answer of an upstream server.
    fn hand_back(
        self: &Rc<Proxies>,
        handing: &Handing<'_>,
        head: Head,
        mut pump: Box<Pump>,
        method: Method,
        buffer: Option<&SpoolLimits>,
    ) -> Result<Answer, EncodeError> {
        let route = handing.route;
        let respond = |body: Body| lines::response(&head, handing, Response::new(body).status(head.status()));
        if method == Method::Head {
            pump.finish(self, route);
            return Ok(Answer::plain(respond(Body::left_out(head.length()))?));
        }
        if pump.source.is_complete() {
            pump.finish(self, route);
            return Ok(Answer::plain(respond(Body::empty())?));
        }
        // A body that has been received completely is sent without a stream.
        let (pieces, complete) = pump.source.ready(&pump.scratch);
        if complete {
            let lines = pump.trailers();
            pump.finish(self, route);
            let body = match lines {
                Some(lines) => Body::stream(Whole(VecDeque::from([
                    Piece::Data(Chunk::from(pieces)),
                    Piece::Trailers(lines),
                ]))),
                None => Body::from(pieces),
            };
            return Ok(Answer::plain(respond(body)?));
        }
        if route.parting.is_some() {
            // An application that has begun its answer goes on when it likes.
            pump.span = EVER;
        }
        let tally = Tally::new();
        if let Some(limits) = buffer {
            let spool = Spool::new(limits.clone());
            let trailers = Rc::clone(pump.behind.get_or_insert_default());
            let reader = Spooled { reader: Some(spool.reader()), trailers };
            let body = match head.length() {
                Some(length) => Body::stream_of(length, reader),
                None => Body::stream(reader),
            };
            let ready = (!pieces.is_empty()).then(|| Chunk::from(pieces));
            spawn(drain(ready, pump, spool, (Rc::clone(self), Rc::clone(route)), Rc::clone(&tally))).detach();
            return Ok(Answer { response: respond(body)?, watch: Watch::Stream(tally) });
        }
        let stream = Answering {
            ready: (!pieces.is_empty()).then(|| Chunk::from(pieces)),
            next: None,
            pump: Some(pump),
            home: (Rc::clone(self), Rc::clone(route)),
            tally: Rc::clone(&tally),
        };
        let body = match head.length() {
            Some(length) => Body::stream_of(length, stream),
            None => Body::stream(stream),
        };
        Ok(Answer { response: respond(body)?, watch: Watch::Stream(tally) })
    }
}

/// Takes an answer from its server as fast as that sends, so that a client that reads slowly does not hold
/// the server. A client that is gone ends it, and with it the exchange.
async fn drain(
    ready: Option<Chunk>,
    mut pump: Box<Pump>,
    spool: Rc<Spool>,
    home: (Rc<Proxies>, Rc<ProxyRoute>),
    tally: Rc<Tally>,
) {
    let mut piece = ready;
    loop {
        if let Some(piece) = piece.take()
            && spool.write(piece).await.is_err()
        {
            return;
        }
        let next;
        match spool.unless_abandoned(pump.next()).await {
            Some(pumped) => (pump, next) = pumped,
            None => return,
        }
        match next {
            Ok(Some(chunk)) => piece = Some(chunk),
            Ok(None) => {
                let lines = pump.trailers();
                if let Some(behind) = &pump.behind {
                    *behind.borrow_mut() = lines;
                }
                pump.finish(&home.0, &home.1);
                return spool.end(Ok(()));
            }
            Err(failure) => {
                let why = format!("{}: {failure}", pump.pick.server().address());
                if !failure.is_of_the_client() {
                    tally.fault(&why);
                }
                return spool.end(Err(why));
            }
        }
    }
}

/// Makes the answer when the upstream server fails.
fn refused(address: &str, failure: &Failure, asking: &flow::Context) -> Answer {
    let (status, what) = failure.told();
    let told = format!("{address}: {failure}");
    match failure.is_of_the_client() {
        true => asking.client_fault(told),
        false => asking.fault(told),
    }
    let mut refusal = page::refusal(status, asking, what);
    if status == Status::SERVICE_UNAVAILABLE {
        // A number is a value of a header line.
        let _ = refusal.response.set_header("Retry-After", failure.retry_after().to_string());
    }
    refusal
}

/// Accepts the offer as the upstream server did, and starts the tunnel.
fn hand_through(handing: &Handing<'_>, head: Head, pump: Box<Pump>) -> Result<Answer, EncodeError> {
    let (tunnelled, tally) = (Rc::clone(handing.route), Tally::new());
    let counted = Rc::clone(&tally);
    let response = Response::upgrade(lines::WEBSOCKET, move |upgraded| async move {
        let address = pump.pick.server().address().clone();
        let (timing, parting) = (&tunnelled.settings().to.timing, tunnelled.parting.as_ref());
        match tunnel::run(upgraded, pump, timing, &counted, parting).await {
            Ok(()) | Err(tunnel::Broken::Client) => {}
            Err(why) => counted.fault(&format!("{address}: {why}")),
        }
    })?;
    Ok(Answer { response: lines::response(&head, handing, response)?, watch: Watch::Tunnel(tally) })
}

/// The request that an answer is handed back for.
struct Handing<'r> {
    route: &'r Rc<ProxyRoute>,
    request: &'r Request,
    asking: &'r flow::Context,
    /// The target that was asked for behind.
    target: &'r str,
}

/// The route of a proxy.
pub(crate) struct ProxyRoute {
    pub(crate) route: Arc<Route>,
    pub(crate) group: Arc<Group>,
    /// The header line with the subject of a client's certificate.
    pub(crate) subject: Option<String>,
    /// Of a worker of an application: cancelled when its streams without an end are to end.
    pub(crate) parting: Option<CancellationToken>,
}

impl ProxyRoute {
    pub(crate) fn settings(&self) -> &Proxy {
        match &self.route.kind {
            crate::config::Kind::Proxy(settings) => settings,
            #[allow(clippy::unreachable, reason = "it is made of such a route and of no other")]
            _ => unreachable!("a route of another kind"),
        }
    }
}

/// Returns the target to request: unchanged, or with the route's path replaced by the upstream's.
fn target<'r>(settings: &Proxy, request: &'r Request, below: usize) -> Cow<'r, str> {
    let mut target = match &settings.path {
        Some(base) => {
            let behind = path::behind(request.path(), below);
            format!("{base}{behind}")
        }
        None => return request.path_and_query(),
    };
    if let Some(query) = request.query() {
        target.push('?');
        target.push_str(query);
    }
    Cow::Owned(target)
}

/// The body of a request to an upstream server.
enum Outgoing {
    Empty,
    /// Passed on as the client sends it.
    Once(RequestBody),
    /// Collected completely.
    Kept(Rc<Collected>),
}

impl Outgoing {
    fn size(&self) -> BodySize {
        match self {
            Outgoing::Empty => BodySize::Known(0),
            Outgoing::Once(body) => body.bytes_left().map_or(BodySize::Unknown, BodySize::Known),
            Outgoing::Kept(collected) => BodySize::Known(collected.size()),
        }
    }

    /// Returns the same once more, if it is kept.
    fn again(&self) -> Option<Outgoing> {
        match self {
            Outgoing::Empty => Some(Outgoing::Empty),
            Outgoing::Once(_) => None,
            Outgoing::Kept(collected) => Some(Outgoing::Kept(Rc::clone(collected))),
        }
    }

    fn for_one_attempt(&mut self) -> Option<RequestBody> {
        match self {
            Outgoing::Empty => None,
            Outgoing::Once(body) => Some(std::mem::take(body)),
            Outgoing::Kept(collected) => Some(collected.body()),
        }
    }
}

/// The attempts for one request.
struct Tried<'r> {
    /// The request: its client gets what a server says before its answer.
    request: &'r Request,
    /// Indices of the servers of the group that could not be reached.
    places: Vec<usize>,
    /// The address of the last one.
    last: Option<Arc<str>>,
    /// The place of the last one, where a second request asks for it (`hedge`).
    current: Option<Rc<Cell<Option<usize>>>>,
    /// When the first attempt begins, where the clock was read just before.
    begun: Option<Nanos>,
    /// When the head of the answer had come.
    ended: Option<Nanos>,
    /// The client takes trailers.
    trailers: bool,
    /// The method that decides whether it is sent again: a client that sends a key answers for repeats.
    repeat_as: Method,
}

impl Tried<'_> {
    fn new(request: &Request, trailers: bool, repeat_as: Method) -> Tried<'_> {
        let (places, last, current, begun, ended) = (Vec::new(), None, None, None, None);
        Tried { request, places, last, current, begun, ended, trailers, repeat_as }
    }
}

/// Returns what connections to a server are kept by.
fn key_of(route: &ProxyRoute, pick: &Pick) -> Key {
    (pick.server().id(), route.settings().to.speaks.way())
}

/// Returns the wait before a repeat after this answer: what its `Retry-After` says, if that is not too long.
fn patience(head: &Head, wait: Duration, longest: u64) -> Option<Duration> {
    let Some(told) = head.fields().get("retry-after") else { return Some(wait) };
    let told =
        str::from_utf8(told).ok().and_then(|text| text.trim().parse::<u64>().ok()).map(Duration::from_secs);
    match told {
        Some(told) => (told <= Duration::from_nanos(longest)).then(|| wait.max(told)),
        // A date is further away than a repeat waits.
        None => None,
    }
}

/// Returns the hash of a request's key, or the server that its cookie names.
fn key(balance: &Balance, request: &Request, asking: &flow::Context) -> Option<u64> {
    let by = match balance {
        Balance::Hash(by) => by,
        Balance::Sticky { cookie } => return u64::from_str_radix(cookie_of(request, cookie)?, 16).ok(),
        _ => return None,
    };
    match by {
        HashBy::Client => asking.client().map(|client| hash(&client)),
        HashBy::Path => Some(hash(request.path())),
        HashBy::Target => Some(hash(&*request.path_and_query())),
        HashBy::Header(name) => request.headers().get(name).map(hash),
        HashBy::Cookie(name) => cookie_of(request, name).map(hash),
        HashBy::Query(name) => request.query_value(name).map(|value| hash(&*value)),
    }
}

/// Returns the cookie that names the server of a sticky group, where the request's own does not.
fn cookie(balance: &Balance, pick: &Pick, key: Option<u64>) -> Option<String> {
    let Balance::Sticky { cookie } = balance else { return None };
    let id = pick.server().id();
    (key != Some(id)).then(|| format!("{cookie}={id:016x}; Path=/; HttpOnly; SameSite=Lax"))
}

/// The result of an operation that another task waits for.
type Later<T> = Pin<Box<dyn Future<Output = T>>>;

/// When something was last sent, since the wait for the answer began.
type Progress = Rc<Cell<Option<Instant>>>;

/// The request on its way, polled beside the answer, so that neither waits for the other.
struct Sending {
    future: Option<Later<(Sink, Result<(), Failure>)>>,
    /// Sent: the connection's half is free again.
    sink: Option<Sink>,
    failed: Option<Failure>,
}

impl Sending {
    fn poll(&mut self, context: &mut Context<'_>) {
        if let Some(future) = &mut self.future
            && let Poll::Ready((sink, sent)) = future.as_mut().poll(context)
        {
            self.future = None;
            match sent {
                Ok(()) => self.sink = Some(sink),
                Err(why) => self.failed = Some(why),
            }
        }
    }
}

/// One exchange: the request goes out and the answer comes in.
struct Pump {
    source: Source,
    sending: Sending,
    progress: Progress,
    span: Duration,
    scratch: Rc<RefCell<Scratch>>,
    /// The server, which counts the request as in flight until this is dropped.
    pick: Pick,
    /// The server's `Keep-Alive`.
    keep_alive: Option<Vec<u8>>,
    /// The client takes trailers.
    trailers: bool,
    /// Trailers of an answer that is drained into a spool.
    behind: Option<Rc<RefCell<Option<FieldBlock>>>>,
    /// The connection must not be used again: a server that ignores the body of such a request would take it
    /// for the next request.
    poisoned: bool,
}

impl Pump {
    /// Waits for `what` while there is progress, and sends meanwhile.
    async fn wait<T>(
        sending: &mut Sending,
        progress: &Cell<Option<Instant>>,
        span: Duration,
        what: impl Future<Output = T>,
    ) -> Result<T, Why> {
        let mut what = pin!(what);
        let mut turns = Turns::default();
        progress.set(None);
        let mut left = span;
        loop {
            let step = poll_fn(|context| {
                let send = |context: &mut Context<'_>| {
                    sending.poll(context);
                    // The client's body has failed: there is no client left to answer.
                    let failed = sending.failed.take_if(|failed| failed.is_of_the_client());
                    failed.map_or(Poll::Pending, |failed| Poll::Ready(Err(failed.why)))
                };
                turns.poll(context, send, |context| what.as_mut().poll(context).map(Ok))
            });
            // A result that is ready counts, even after the deadline.
            if let Ok(done) = time::timeout(left, step).await {
                return done;
            }
            // Unless something was sent meanwhile.
            left = progress.get().map_or(Duration::ZERO, |sent| span.saturating_sub(sent.elapsed()));
            if left.is_zero() {
                return Err(Why::TooSlow(span));
            }
        }
    }

    async fn head(
        &mut self,
        asked: Asked,
        request: &Request,
        subject: Option<&str>,
    ) -> Result<Head, Failure> {
        let Pump { source, sending, progress, span, scratch, .. } = self;
        let head = source.head(scratch, asked, request, subject);
        let head = Pump::wait(sending, progress, *span, head).await;
        let head = head.and_then(|head| head);
        let sent = if sending.sink.is_some() { SentSoFar::All } else { SentSoFar::Part };
        head.map_err(|why| match sending.failed.take() {
            // The server may have answered before it closed; if not, the error of the send is more specific.
            Some(failed) if matches!(why, Why::Unanswered(_)) && matches!(failed.why, Why::Unanswered(_)) => {
                failed
            }
            _ => Failure::answering(false, sent, why),
        })
    }

    /// Returns the next piece of the answer's body; `None` at its end.
    async fn next(mut self: Box<Pump>) -> Pumped {
        let Pump { source, sending, progress, span, scratch, .. } = &mut *self;
        let next = Pump::wait(sending, progress, *span, source.next(scratch)).await;
        let next = next.and_then(|next| next).map_err(|why| Failure::answering(true, SentSoFar::All, why));
        (self, next)
    }

    /// Lines behind the answer's body, if there are some and the client takes them.
    fn trailers(&mut self) -> Option<FieldBlock> {
        let lines = if self.trailers { self.source.take_trailers() } else { FieldBlock::new() };
        (!lines.bytes().is_empty()).then_some(lines)
    }

    /// The answer is complete: the connection is kept, if it can have another request.
    fn finish(self: Box<Self>, home: &Rc<Proxies>, route: &Rc<ProxyRoute>) {
        let Pump { source, sending, pick, keep_alive, poisoned, .. } = *self;
        let connection = sending.sink.and_then(|sink| Connection::join(source, sink));
        if let Some(connection) = connection.filter(|_| !poisoned) {
            home.keep(route, &pick, connection, keep_alive.as_deref());
        }
    }
}

/// A pump, and the next piece it gave.
type Pumped = (Box<Pump>, Result<Option<Chunk>, Failure>);

/// The body of an answer, passed on as it arrives.
struct Answering {
    ready: Option<Chunk>,
    next: Option<Later<Pumped>>,
    pump: Option<Box<Pump>>,
    home: (Rc<Proxies>, Rc<ProxyRoute>),
    tally: Rc<Tally>,
}

impl Stream for Answering {
    type Item = Result<Piece, Failure>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if let Some(chunk) = this.ready.take() {
            return Poll::Ready(Some(Ok(Piece::Data(chunk))));
        }
        if let Some(pump) = this.pump.take() {
            this.next = Some(Box::pin(pump.next()));
        }
        let Some(next) = &mut this.next else { return Poll::Ready(None) };
        let (mut pump, next) = ready!(next.as_mut().poll(context));
        match next {
            Ok(Some(chunk)) => {
                this.next = Some(Box::pin(pump.next()));
                Poll::Ready(Some(Ok(Piece::Data(chunk))))
            }
            Ok(None) => {
                this.next = None;
                let lines = pump.trailers();
                pump.finish(&this.home.0, &this.home.1);
                Poll::Ready(lines.map(|lines| Ok(Piece::Trailers(lines))))
            }
            Err(failure) => {
                this.next = None;
                if !failure.is_of_the_client() {
                    this.tally.fault(&format!("{}: {failure}", pump.pick.server().address()));
                }
                Poll::Ready(Some(Err(failure)))
            }
        }
    }
}

/// The body of a drained answer, with its trailers last.
struct Spooled {
    reader: Option<SpoolReader>,
    trailers: Rc<RefCell<Option<FieldBlock>>>,
}

impl Stream for Spooled {
    type Item = Result<Piece, BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(reader) = &mut self.reader else { return Poll::Ready(None) };
        match ready!(Pin::new(reader).poll_next(context)) {
            Some(Ok(chunk)) => Poll::Ready(Some(Ok(Piece::Data(chunk)))),
            Some(Err(why)) => Poll::Ready(Some(Err(why.into()))),
            None => {
                self.reader = None;
                Poll::Ready(self.trailers.borrow_mut().take().map(|lines| Ok(Piece::Trailers(lines))))
            }
        }
    }
}

/// Pieces that are all there.
struct Whole(VecDeque<Piece>);

impl Stream for Whole {
    type Item = Piece;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Piece>> {
        Poll::Ready(self.0.pop_front())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ringroad_engine::sync::budget::counted;
    use ringroad_engine::{DriverName, Runtime, choose};
    use std::future::{pending, ready};

    pub(super) fn on_every_driver(body: impl AsyncFn()) {
        for driver in DriverName::ALL.iter().copied().filter(|name| *name != DriverName::Sim) {
            match choose::probe(driver) {
                Ok(_) => Runtime::new(driver).unwrap().block_on(body()).unwrap(),
                Err(refusal) => eprintln!("skipped: {refusal}"),
            }
        }
    }

    /// Returns a future that always has something to do until `passed` is set, or until it has had far more
    /// than its share, which panics; and one that sets it, when it gets a turn with some of the budget left.
    pub(super) fn busy(passed: &Cell<bool>) -> (impl Future<Output = ()>, impl Future<Output = ()>) {
        let busy = async {
            let mut turns = 0;
            while !passed.get() {
                assert!(turns < 1_000_000, "the other one never had its turn");
                counted(ready(())).await;
                turns += 1;
            }
        };
        let other = async {
            counted(ready(())).await;
            passed.set(true);
        };
        (busy, other)
    }

    #[test]
    fn a_request_that_always_has_bytes_leaves_its_answer_a_turn() {
        on_every_driver(async || {
            let passed = Rc::new(Cell::new(false));
            let (always, sees) = (Rc::clone(&passed), Cell::new(false));
            let future: Later<(Sink, Result<(), Failure>)> = Box::pin(async move {
                busy(&always).0.await;
                pending().await
            });
            let mut sending = Sending { future: Some(future), sink: None, failed: None };
            let progress = Cell::new(None);
            let span = Duration::from_secs(1000);
            let answer = async {
                busy(&passed).1.await;
                sees.set(true);
            };
            assert!(Pump::wait(&mut sending, &progress, span, answer).await.is_ok());
            assert!(sees.get());
        });
    }
}
