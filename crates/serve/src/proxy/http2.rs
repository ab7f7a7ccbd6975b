//! HTTP/2 towards servers: connections that many requests share, and one request's stream.
//!
//! A worker has few connections to a server, and opens another only where all are full. Requests that find
//! none wait for the same one to be opened. What a failed stream says about the request decides whether it
//! may be repeated ([`Why::NotActedOn`]): a stream that was refused, or that a GOAWAY leaves out, was not
//! acted on (RFC 9113 §8.7).
//!
//! Heads go through their HTTP/1.1 text in both directions: one place decides what is handed on.

use super::upstream::{Failure, Head, Why, connect};
use super::{Progress, Proxies, lines};
use crate::config::{Speaks, Timing};
use futures_core::Stream;
use ringroad_engine::{spawn, time};
use ringroad_gate::upstream::{Address, Permit, Pick};
use ringroad_http::{
    Body, BodyError, BoxError, Chunk, FieldBlock, Http2Connection, Http2Request, Http2Response, Piece,
    Request, RequestBody, SentSoFar,
};
use ringroad_wire::{Asked, ResponseEvent, Responses, Scratch};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt::Write;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

/// Streams of a connection that are used, also where its server takes more: the next request opens another.
const STREAMS_MAX: usize = 100;

/// Connections that one request waits for. All streams of one may be taken by requests that waited longer; a
/// server that closes each at once is not asked for ever.
const OPENED_MAX: u32 = 64;

/// How long nothing has to come before a server is asked for a sign of life: servers of gRPC end connections
/// that ask them often.
const SILENCE: Duration = Duration::from_millis(500);

/// What is kept of a body that is passed on as it comes, until its answer begins.
const TAKEN_BYTES_MAX: usize = 64 * 1024;

/// What is taken of a body at once, if it is there with the head.
const READY_BYTES_MAX: usize = 64 * 1024;

/// A server, and the way in which it is spoken to.
pub(super) type Key = (u64, u64);

/// One worker's connections.
#[derive(Default)]
pub(super) struct Pool {
    servers: RefCell<HashMap<Key, Connections>>,
}

#[derive(Default)]
struct Connections {
    open: Vec<Rc<Shared>>,
    /// One that is being opened.
    opening: Option<Rc<Opening>>,
}

/// A connection that requests share.
struct Shared {
    connection: Http2Connection,
    streams: Cell<usize>,
    /// When the last stream ended.
    used: Cell<Instant>,
    /// How long it stays without a stream: what the last route said that used it, as a reload may change it.
    keep_for: Cell<Duration>,
    /// Wakes the task that closes it.
    watching: RefCell<Option<Waker>>,
    /// How long its server has for a sign of life.
    patience: Duration,
    /// Of its requests.
    scheme: &'static str,
    _permit: Permit,
}

impl Shared {
    fn has_room(&self) -> bool {
        let (connection, streams) = (&self.connection, self.streams.get());
        // A request on an idle one that its server has left in the midst of a frame would fail with that, and
        // might have been acted on.
        let is_whole = streams > 0 || !connection.is_within_frame();
        connection.is_usable()
            && is_whole
            && !connection.is_doubted()
            && streams < connection.streams_max().min(STREAMS_MAX)
    }

    fn keep_for(&self, span: Duration) {
        if self.keep_for.replace(span) != span
            && let Some(watching) = self.watching.take()
        {
            watching.wake();
        }
    }
}

/// A connection that is being opened, for all requests that wait for it.
#[derive(Default)]
struct Opening {
    ended: RefCell<Option<Result<(), Failure>>>,
    waiting: RefCell<Vec<Waker>>,
}

impl Opening {
    fn end(&self, how: Result<(), Failure>) {
        *self.ended.borrow_mut() = Some(how);
        for waiting in self.waiting.take() {
            waiting.wake();
        }
    }

    async fn wait(&self) -> Result<(), Failure> {
        poll_fn(|context| {
            if let Some(how) = &*self.ended.borrow() {
                return Poll::Ready(match how {
                    Ok(()) => Ok(()),
                    Err(why) => Err(why.of_connecting().unwrap_or_else(|| {
                        Failure::connecting(Why::Connect("connect: it came to nothing".to_owned()))
                    })),
                });
            }
            self.waiting.borrow_mut().push(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl Pool {
    /// Closes up to `count` connections without a stream. Returns how many.
    pub(super) fn close_idle(&self, count: usize) -> usize {
        let mut closed = Vec::new();
        for connections in self.servers.borrow_mut().values_mut() {
            connections.open.retain(|one| {
                let closes = closed.len() < count && one.streams.get() == 0;
                if closes {
                    closed.push(Rc::clone(one));
                }
                !closes
            });
        }
        closed.len()
    }

    /// Returns a connection with room, the fullest first, so that the others become idle.
    fn find(&self, key: Key) -> Option<Rc<Shared>> {
        let mut servers = self.servers.borrow_mut();
        let open = &mut servers.get_mut(&key)?.open;
        let mut over = Vec::new();
        open.retain(|one| {
            let stays = one.connection.is_usable();
            if !stays {
                over.push(Rc::clone(one));
            }
            stays
        });
        let found = open.iter().filter(|one| one.has_room()).max_by_key(|one| one.streams.get()).cloned();
        drop(servers);
        found
    }

    fn remove(&self, key: Key, which: &Rc<Shared>) {
        let mut servers = self.servers.borrow_mut();
        if let Some(connections) = servers.get_mut(&key) {
            connections.open.retain(|one| !Rc::ptr_eq(one, which));
            if connections.open.is_empty() && connections.opening.is_none() {
                servers.remove(&key);
            }
        }
    }
}

/// A place for one exchange on a connection.
struct Place(Rc<Shared>);

impl Place {
    fn new(shared: Rc<Shared>) -> Place {
        shared.streams.set(shared.streams.get() + 1);
        Place(shared)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.streams.set(self.0.streams.get() - 1);
        self.0.used.set(Instant::now());
    }
}

/// Returns a stream of a connection to a server: one that was there, or a new one; and whether it was there.
/// With `fresh`, one that was there is not told as such: what fails on it is not repeated for that reason
/// again.
pub(super) async fn open(
    proxies: &Rc<Proxies>,
    pick: &Pick,
    speaks: &Speaks,
    timing: &Timing,
    fresh: bool,
    trailers: bool,
) -> Result<(Exchange, bool), Failure> {
    let key = (pick.server().id(), speaks.way());
    let mut waited = false;
    for _ in 0..=OPENED_MAX {
        if let Some(shared) = proxies.http2.find(key) {
            shared.keep_for(timing.keep_for);
            return Ok((Exchange::new(Place::new(shared), trailers), !fresh && !waited));
        }
        let opening = {
            let mut servers = proxies.http2.servers.borrow_mut();
            let connections = servers.entry(key).or_default();
            match &connections.opening {
                Some(opening) => Rc::clone(opening),
                None => {
                    let opening = Rc::<Opening>::default();
                    connections.opening = Some(Rc::clone(&opening));
                    let address = pick.server().address().clone();
                    let work = connecting(
                        Rc::clone(proxies),
                        key,
                        address,
                        speaks.clone(),
                        timing.connect,
                        timing.keep_for,
                        Rc::clone(&opening),
                    );
                    // On a task of its own: a request that is given up does not end it for the others.
                    spawn(work).detach();
                    opening
                }
            }
        };
        waited = true;
        opening.wait().await?;
    }
    let why = "connect: the server closes connections as soon as they are open";
    Err(Failure::connecting(Why::Connect(why.to_owned())))
}

#[allow(clippy::too_many_arguments, reason = "a task's parts, each used once")]
async fn connecting(
    proxies: Rc<Proxies>,
    key: Key,
    address: Address,
    speaks: Speaks,
    span: Duration,
    keep_for: Duration,
    opening: Rc<Opening>,
) {
    let begun = Instant::now();
    let permit = match proxies.room.try_permit() {
        Some(permit) => Ok(permit),
        None => {
            proxies.make_room();
            let permit = time::timeout(span, proxies.room.permit()).await;
            permit.map_err(|_| Failure::connecting(Why::NoRoom(span)))
        }
    };
    let opened = match permit {
        Ok(permit) => {
            let left = span.saturating_sub(begun.elapsed());
            let opened = time::timeout(left, begin(&address, &speaks, left)).await;
            let opened = opened.unwrap_or_else(|_| Err(Failure::connecting(Why::ConnectTimeout(span))));
            opened.map(|connection| (connection, permit))
        }
        Err(why) => Err(why),
    };
    let ended = {
        let mut servers = proxies.http2.servers.borrow_mut();
        let connections = servers.entry(key).or_default();
        connections.opening = None;
        match opened {
            Ok((connection, permit)) => {
                let shared = Rc::new(Shared {
                    connection,
                    streams: Cell::new(0),
                    used: Cell::new(Instant::now()),
                    keep_for: Cell::new(keep_for),
                    watching: RefCell::default(),
                    patience: span,
                    scheme: if speaks.tls.is_some() { "https" } else { "http" },
                    _permit: permit,
                });
                connections.open.push(Rc::clone(&shared));
                spawn(watch(Rc::downgrade(&proxies), key, Rc::downgrade(&shared))).detach();
                Ok(())
            }
            Err(why) => {
                if connections.open.is_empty() {
                    servers.remove(&key);
                }
                Err(why)
            }
        }
    };
    opening.end(ended);
}

async fn begin(address: &Address, speaks: &Speaks, span: Duration) -> Result<Http2Connection, Failure> {
    let stream = connect(address, speaks, true, span).await?;
    let connection = Http2Connection::begin(stream).await;
    connection.map_err(|why| Failure::connecting(Why::Connect(format!("connect: {why}"))))
}

/// Closes a connection that has had no stream for as long as it is kept.
async fn watch(proxies: std::rc::Weak<Proxies>, key: Key, shared: std::rc::Weak<Shared>) {
    loop {
        let (span, keep_for) = {
            let (Some(proxies), Some(shared)) = (proxies.upgrade(), shared.upgrade()) else { return };
            let (idle, keep_for) = (shared.used.get().elapsed(), shared.keep_for.get());
            let is_idle = shared.streams.get() == 0;
            if is_idle && idle >= keep_for || !shared.connection.is_usable() {
                return proxies.http2.remove(key, &shared);
            }
            (if is_idle { keep_for.saturating_sub(idle) } else { keep_for }, keep_for)
        };
        let mut slept = pin!(time::sleep(span.max(Duration::from_millis(1))));
        poll_fn(|context| {
            let Some(shared) = shared.upgrade() else { return Poll::Ready(()) };
            if shared.keep_for.get() != keep_for {
                return Poll::Ready(());
            }
            shared.watching.borrow_mut().replace(context.waker().clone());
            slept.as_mut().poll(context)
        })
        .await;
    }
}

/// A request on its way from the half that sends to the stream.
#[derive(Default)]
pub(super) struct Streamed {
    given: RefCell<Option<Given>>,
    /// The body that is being sent.
    body: RefCell<Option<RequestBody>>,
    /// What was taken of it, as long as it may have to be sent once more.
    taken: RefCell<Option<Taken>>,
    /// Why the client's body failed, if it did.
    failed: RefCell<Option<BodyError>>,
    reader: RefCell<Option<Waker>>,
}

struct Given {
    head: Vec<u8>,
    body: Option<RequestBody>,
    progress: Progress,
}

/// What was sent of a body, from its beginning.
#[derive(Default)]
struct Taken {
    pieces: Vec<Chunk>,
    bytes: usize,
    /// The body has ended, with these lines behind it.
    ended: Option<Vec<(String, Vec<u8>)>>,
}

impl Streamed {
    /// Returns the next piece of the body, and keeps it if the body may have to be sent once more.
    fn poll_body(&self, context: &mut Context<'_>) -> Poll<Option<Result<Chunk, BodyError>>> {
        let mut body = self.body.borrow_mut();
        // It was taken back, to be sent elsewhere.
        let Some(source) = body.as_mut() else { return Poll::Ready(Some(Err(BodyError::Over))) };
        let next = ready!(Pin::new(source).poll_next(context));
        let mut taken = self.taken.borrow_mut();
        let Some(kept) = taken.as_mut() else { return Poll::Ready(next) };
        Poll::Ready(match next {
            Some(Ok(piece)) if kept.bytes + piece.len() <= TAKEN_BYTES_MAX => {
                let piece = piece.into_shared();
                kept.bytes += piece.len();
                kept.pieces.push(piece.duplicate());
                Some(Ok(piece))
            }
            None => None,
            next => {
                *taken = None;
                next
            }
        })
    }

    /// Returns the lines behind the body, which has ended.
    fn end_body(&self) -> Vec<(String, Vec<u8>)> {
        let lines = self.body.borrow_mut().take().map(|mut body| body.trailers()).unwrap_or_default();
        if let Some(taken) = self.taken.borrow_mut().as_mut() {
            taken.ended = Some(lines.clone());
        }
        lines
    }

    /// Takes the body back: one of which nothing was taken, or of which all that was taken is kept.
    fn take_back(&self) -> Option<RequestBody> {
        if let Some(given) = self.given.borrow_mut().as_mut() {
            return given.body.take();
        }
        let Taken { pieces, ended, .. } = self.taken.take()?;
        match ended {
            Some(lines) => Some(RequestBody::replay(pieces, RequestBody::empty()).with_trailers(lines)),
            None => self.body.take().map(|rest| RequestBody::replay(pieces, rest)),
        }
    }

    /// Has a request sent.
    pub(super) fn give(&self, head: Vec<u8>, body: Option<RequestBody>, progress: Progress) {
        *self.given.borrow_mut() = Some(Given { head, body, progress });
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

/// One request's stream.
pub(super) struct Exchange {
    request: Rc<Streamed>,
    response: Option<Http2Response>,
    /// Why the body of the answer is not complete, until that is told.
    broken: Option<BodyError>,
    /// The client takes trailers.
    trailers: bool,
    /// When it began, and how much its server had said by then.
    begun: (Instant, u64),
    place: Place,
}

impl Drop for Exchange {
    /// One that is given up unanswered, on a connection on which nothing came all the while, may have a dead
    /// server: without a sign of life the connection gets no further requests.
    fn drop(&mut self) {
        let (begun, heard) = self.begun;
        let connection = &self.place.0.connection;
        let is_silent = !self.is_answered() && connection.frames_heard() == heard;
        if is_silent && connection.is_usable() && begun.elapsed() >= SILENCE {
            connection.ask_for_life(self.place.0.patience);
        }
    }
}

impl Exchange {
    fn new(place: Place, trailers: bool) -> Exchange {
        let begun = (Instant::now(), place.0.connection.frames_heard());
        Exchange { request: Rc::default(), response: None, broken: None, trailers, begun, place }
    }

    fn is_answered(&self) -> bool {
        self.response.as_ref().is_some_and(Http2Response::is_complete)
    }

    /// Returns the half that sends.
    pub(super) fn sink(&self) -> Rc<Streamed> {
        Rc::clone(&self.request)
    }

    /// Keeps the beginning of the body until the answer begins: the server may say that it did not act on the
    /// request.
    pub(super) fn keep_taken(&self) {
        *self.request.taken.borrow_mut() = Some(Taken::default());
    }

    /// Takes the body back, if all of it is there.
    pub(super) fn take_back(&self) -> Option<RequestBody> {
        self.request.take_back()
    }

    /// Sends the request, and waits for the head of the answer.
    pub(super) async fn head(
        &mut self,
        scratch: &RefCell<Scratch>,
        asked: Asked,
        client: &Request,
        subject: Option<&str>,
    ) -> Result<Head, Why> {
        let Exchange { request, response, trailers, place, .. } = self;
        let shared = &place.0;
        poll_fn(|context| {
            if request.given.borrow().is_some() {
                return Poll::Ready(());
            }
            request.reader.borrow_mut().replace(context.waker().clone());
            Poll::Pending
        })
        .await;
        // What cannot be sent here stays there, for another connection.
        shared.connection.ready().await.map_err(|failure| Why::NotActedOn(failure.why.to_string()))?;
        let unfit = || Why::Unanswered("the request cannot be written as one of HTTP/2".to_owned());
        let Given { head, body, progress } = request.given.take().ok_or_else(unfit)?;
        let parts = Parts::of(&head, *trailers).ok_or_else(unfit)?;
        let body = match body {
            None => Body::empty(),
            Some(body) => {
                let size = body.bytes_left();
                *request.body.borrow_mut() = Some(body);
                let subject = subject.map(str::to_owned);
                let sending = Sending { request: Rc::clone(request), progress, subject, over: false };
                match size {
                    Some(size) => Body::stream_of(size, sending),
                    None => Body::stream(sending),
                }
            }
        };
        let asked_for = Http2Request {
            method: &parts.method,
            scheme: shared.scheme,
            authority: &parts.authority,
            target: &parts.target,
            lines: &parts.lines,
            body,
        };
        let inform = |status, lines: FieldBlock| {
            lines::inform_of(client, status, lines.iter(), &lines::Named::default())
        };
        match shared.connection.send_with(asked_for, inform).await {
            Ok(answer) => {
                request.taken.take();
                read_head(response.insert(answer), scratch, asked)
            }
            Err(failure) => Err(match request.failed.take() {
                Some(why) => Why::Client(why),
                None if failure.sent == SentSoFar::Nothing => Why::NotActedOn(failure.why.to_string()),
                None => Why::Unanswered(failure.why.to_string()),
            }),
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.broken.is_none() && self.response.as_ref().is_none_or(Http2Response::is_complete)
    }

    /// Returns what has come of the body, up to a bound. An error comes again with what is next.
    pub(super) fn ready(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        let Some(response) = &mut self.response else { return all };
        let mut context = Context::from_waker(Waker::noop());
        while all.len() < READY_BYTES_MAX && !response.is_complete() {
            match response.poll_next(&mut context) {
                Poll::Ready(Some(Ok(chunk))) => all.extend_from_slice(&chunk),
                Poll::Ready(Some(Err(why))) => self.broken = Some(why),
                Poll::Ready(None) => {}
                Poll::Pending => break,
            }
        }
        all
    }

    /// Returns the next piece of the body; `None` at its end.
    pub(super) async fn next(&mut self) -> Result<Option<Chunk>, Why> {
        let next = match (self.broken.take(), &mut self.response) {
            (Some(why), _) => Some(Err(why)),
            (None, Some(response)) => response.next().await,
            (None, None) => None,
        };
        next.transpose().map_err(|why| match self.request.failed.take() {
            Some(why) => Why::Client(why),
            None => Why::Broken(why.to_string()),
        })
    }

    /// Lines that came behind the body, once it has ended.
    pub(super) fn take_trailers(&mut self) -> Vec<(String, Vec<u8>)> {
        self.response.as_mut().map(Http2Response::take_trailers).unwrap_or_default()
    }
}

/// Returns the head of an answer, as all others are read.
fn read_head(answer: &Http2Response, scratch: &RefCell<Scratch>, asked: Asked) -> Result<Head, Why> {
    let mut text = format!("HTTP/1.1 {} \r\n", answer.status().code());
    if let Some(length) = answer.content_length() {
        // Writing to a string does not fail.
        let _ = write!(text, "content-length: {length}\r\n");
    }
    let text = [text.as_bytes(), answer.lines().bytes(), b"\r\n"].concat();
    let mut responses = Responses::default();
    responses.begin(asked).map_err(Why::Wrong)?;
    let mut scratch = scratch.borrow_mut();
    match responses.next(&mut scratch, &text, &mut 0).map_err(Why::Wrong)? {
        Some(ResponseEvent::Head(head)) => Ok(Head(head.keep())),
        _ => Err(Why::Unanswered("its status is of no answer".to_owned())),
    }
}

/// A head taken apart.
struct Parts {
    method: String,
    target: String,
    authority: String,
    lines: FieldBlock,
}

impl Parts {
    /// Takes apart a head that was written here.
    fn of(head: &[u8], trailers: bool) -> Option<Parts> {
        let text = head.strip_suffix(b"\r\n\r\n")?;
        let mut all = text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let first = str::from_utf8(all.next()?).ok()?;
        let (method, rest) = first.split_once(' ')?;
        let (target, _) = rest.rsplit_once(' ')?;
        let mut authority = None;
        let mut lines = FieldBlock::new();
        for line in all {
            let colon = line.iter().position(|byte| *byte == b':')?;
            let (name, value) = (line.get(..colon)?, line.get(colon + 1..)?.trim_ascii());
            if name.eq_ignore_ascii_case(b"host") {
                authority = str::from_utf8(value).ok().map(str::to_owned);
            } else {
                // Refused are lines of framing, which each hop has of its own.
                let _ = lines.push(name, value);
            }
        }
        if trailers {
            lines.push(b"te", b"trailers").ok()?;
        }
        Some(Parts { method: method.to_owned(), target: target.to_owned(), authority: authority?, lines })
    }
}

/// The body of a request on its way into a stream.
struct Sending {
    request: Rc<Streamed>,
    /// When something was last taken.
    progress: Progress,
    /// The line that no client may send.
    subject: Option<String>,
    over: bool,
}

impl Stream for Sending {
    type Item = Result<Piece, BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.over {
            return Poll::Ready(None);
        }
        match ready!(this.request.poll_body(context)) {
            Some(Ok(chunk)) => {
                this.progress.set(Some(Instant::now()));
                Poll::Ready(Some(Ok(Piece::Data(chunk))))
            }
            Some(Err(why)) => {
                let told = why.to_string();
                *this.request.failed.borrow_mut() = Some(why);
                this.over = true;
                Poll::Ready(Some(Err(told.into())))
            }
            None => {
                let mut lines = FieldBlock::new();
                let trailers = this.request.end_body().into_iter();
                let is_ours = |name: &str| lines::is_of_this_server(name.as_bytes(), this.subject.as_deref());
                for (name, value) in trailers.filter(|(name, _)| !is_ours(name)) {
                    // A line that cannot be written is of that hop only.
                    let _ = lines.push(name.as_bytes(), &value);
                }
                this.over = true;
                Poll::Ready((!lines.bytes().is_empty()).then_some(Ok(Piece::Trailers(lines))))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_head_is_taken_apart_without_its_framing() {
        let head = b"POST /a?b=c HTTP/1.1\r\nHost: a.example:81\r\nX-One: 1: 2\r\nContent-Length: 5\r\nVia: x\r\n\r\n";
        let parts = Parts::of(head, true).unwrap();
        assert_eq!((&*parts.method, &*parts.target, &*parts.authority), ("POST", "/a?b=c", "a.example:81"));
        assert_eq!(parts.lines.bytes(), b"X-One: 1: 2\r\nVia: x\r\nte: trailers\r\n");
        assert!(Parts::of(b"GET / HTTP/1.1\r\n\r\n", false).is_none(), "without a host");
    }
}
