//! A client's connection that uses HTTP/2: many concurrent requests, each on a stream.
//!
//! The `h2` crate's connection runs in a task of its own. It ends when the server ends it, or when no handle
//! and no response is left. A [`Failure`] shows whether an exchange may be repeated: the server did not
//! process a stream that it refused, or that is above the last one of its GOAWAY (RFC 9113 §8.7).

use super::error::ClientError;
use super::failure::{FailedAt, Failure, SentSoFar};
use crate::h2::head::{block, put, trailer_pairs, trailers};
use crate::h2::{Heard, Hearing, Listening, Part, Progress, Traffic};
use crate::message::{Body, BodyError, Chunk, Inner, Piece, Pieces};
use crate::transport::Transport;
use ::h2::client::{Builder, ResponseFuture, SendRequest};
use ::h2::{Ping, PingPong, Reason, RecvStream, SendStream};
use ::http::header::CONTENT_LENGTH;
use ::http::uri::{Authority, PathAndQuery, Scheme};
use ringroad_bridge::Io;
use ringroad_engine::{JoinHandle, spawn, time};
use ringroad_wire::{FieldBlock, Method, Status};
use std::cell::{Cell, RefCell};
use std::fmt::{self, Write};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

/// Bytes of a body that may wait for flow control before the next piece is requested.
const WAITING_BYTES_MAX: usize = 64 * 1024;

/// Bytes that may wait for their reader: of one response, and of all responses of a connection.
const WINDOWS: (u32, u32) = (256 * 1024, 1024 * 1024);

/// Maximum number of liveness PINGs before any frame of an answer arrives. After a pause one more is allowed.
/// gRPC servers close a connection with the fourth PING within five minutes.
const SIGNS_MAX: u8 = 2;
const SIGNS_AGAIN: Duration = Duration::from_secs(310);

/// Largest window (RFC 9113 §6.9.1).
const WINDOW_MAX: u32 = (1 << 31) - 1;

/// Maximum number of interim heads that are reported.
const INTERIM_MAX: u8 = u8::MAX;

/// Maximum size of a response head, as over HTTP/1.1 (`Limits::client`).
const HEADER_LIST_BYTES: u32 = 256 * 1024;

/// A connection to a server that uses HTTP/2. Clones share it.
#[derive(Clone)]
pub struct Http2Connection {
    sender: SendRequest<Part>,
    state: Rc<State>,
}

struct State {
    traffic: Rc<Traffic>,
    /// Whether the server takes no further requests, or the connection has ended.
    over: Cell<bool>,
    driver: RefCell<Option<JoinHandle<()>>>,
    /// Streams that carry another protocol.
    tunnels: Cell<u32>,
    heard: Rc<Heard>,
    /// Whether a PING is requested or in flight, and its timeout, if it has one.
    asks: Cell<Option<Option<Duration>>>,
    /// At the last PING: the frames of answers so far, the number of PINGs since then, and the time.
    asked: Cell<(u64, u8, Option<Instant>)>,
    /// Wakes the task that drives the connection.
    driving: RefCell<Option<Waker>>,
    /// Whether a PING was answered, and so the server's settings have arrived; or the connection has ended.
    settled: Cell<bool>,
    /// Tasks that wait for that.
    waiting: RefCell<Vec<Waker>>,
    peer: Option<SocketAddr>,
    tls: Option<Arc<crate::tls::Info>>,
}

impl State {
    fn settle(&self) {
        self.settled.set(true);
        self.waiting.take().into_iter().for_each(Waker::wake);
    }

    /// Returns whether a PING may be sent now without annoying the server. If so, it is counted.
    fn may_ask(&self) -> bool {
        if self.asks.get().is_some_and(|within| within.is_some()) {
            return false;
        }
        let spoken = self.heard.spoken();
        let (at, times, last) = self.asked.get();
        let times = if at == spoken { times } else { 0 };
        let may = times < SIGNS_MAX || last.is_none_or(|last| last.elapsed() >= SIGNS_AGAIN);
        if may {
            self.asked.set((spoken, (times + 1).min(SIGNS_MAX), Some(Instant::now())));
        }
        may
    }

    /// Requests a PING.
    fn ask(&self, within: Option<Duration>) {
        self.asks.set(Some(self.asks.get().flatten().or(within)));
        let driver = self.driving.borrow_mut().take();
        if let Some(driver) = driver {
            driver.wake();
        }
    }
}

/// A PING in flight.
#[derive(Default)]
struct Pinging {
    pings: Option<PingPong>,
    is_sent: bool,
    /// The timeout of the PING.
    ends: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

impl Pinging {
    /// Sends a PING if one is requested, and receives its answer. Ready if the answer did not arrive in time.
    fn poll(&mut self, state: &State, context: &mut Context<'_>) -> Poll<()> {
        let (Some(within), Some(pings)) = (state.asks.get(), &mut self.pings) else { return Poll::Pending };
        if !self.is_sent {
            self.is_sent = pings.send_ping(Ping::opaque()).is_ok();
        }
        if self.is_sent && pings.poll_pong(context).is_ready() {
            (self.is_sent, self.ends) = (false, None);
            state.asks.set(None);
            state.settle();
            return Poll::Pending;
        }
        if self.ends.is_none() {
            self.ends = within.map(|within| Box::pin(time::sleep(within)) as _);
        }
        self.ends.as_mut().map_or(Poll::Pending, |ends| ends.as_mut().poll(context))
    }
}

/// Counts as a tunnel of its connection until it is dropped.
pub(super) struct OpenTunnel(Http2Connection);

impl Drop for OpenTunnel {
    fn drop(&mut self) {
        let tunnels = &self.0.state.tunnels;
        tunnels.set(tunnels.get().saturating_sub(1));
    }
}

/// A request over HTTP/2.
#[derive(Debug)]
pub struct Http2Request<'a> {
    /// The method; an extension method by its name.
    pub method: &'a str,
    /// `http` or `https`.
    pub scheme: &'a str,
    /// The host, with its port if that is not the scheme's.
    pub authority: &'a str,
    /// Path and query.
    pub target: &'a str,
    /// Header lines; those specific to an HTTP/1 connection are left out, except `te: trailers`.
    pub lines: &'a FieldBlock,
    /// The body. Trailers of a stream are sent.
    pub body: Body,
}

impl Http2Connection {
    /// Starts HTTP/2 on a connection: by prior knowledge, or because TLS chose it.
    ///
    /// # Errors
    /// The connection failed.
    pub async fn begin(stream: Transport) -> Result<Http2Connection, ClientError> {
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            .initial_window_size(WINDOWS.0)
            .initial_connection_window_size(WINDOWS.1)
            .max_header_list_size(HEADER_LIST_BYTES);
        let (peer, tls) = (stream.peer_addr(), stream.tls().map(Arc::clone));
        let heard = Rc::<Heard>::default();
        let io = Hearing::new(Io::gathering(stream), &heard);
        let (sender, mut connection) = builder.handshake(io).await.map_err(error)?;
        let state = Rc::new(State {
            traffic: Rc::default(),
            over: Cell::new(false),
            driver: RefCell::default(),
            tunnels: Cell::new(0),
            heard,
            asks: Cell::new(None),
            asked: Cell::default(),
            driving: RefCell::default(),
            settled: Cell::new(false),
            waiting: RefCell::default(),
            peer,
            tls,
        });
        let weak = Rc::downgrade(&state);
        let driver = spawn(async move {
            let mut tunnels = 0;
            let mut pinging = Pinging { pings: connection.ping_pong(), ..Pinging::default() };
            // The streams report how the connection ended.
            poll_fn(|context| {
                let state = weak.upgrade();
                let open = state.as_ref().map_or(0, |state| state.tunnels.get());
                if open != tunnels {
                    // Otherwise a session that is slow to read would stop the other streams.
                    tunnels = open;
                    let window = u64::from(WINDOWS.1) + u64::from(open) * u64::from(WINDOWS.0);
                    connection
                        .set_target_window_size(u32::try_from(window).unwrap_or(u32::MAX).min(WINDOW_MAX));
                }
                let Some(state) = state else { return Pin::new(&mut connection).poll(context).map(drop) };
                // First, because the connection then sends the PING that this requests.
                let silent = pinging.poll(&state, context);
                if Pin::new(&mut connection).poll(context).is_ready() || silent.is_ready() {
                    return Poll::Ready(());
                }
                state.driving.borrow_mut().replace(context.waker().clone());
                // The answer may have arrived just now.
                pinging.poll(&state, context)
            })
            .await;
            drop(connection);
            if let Some(state) = weak.upgrade() {
                state.over.set(true);
                state.settle();
            }
        });
        state.driver.borrow_mut().replace(driver);
        Ok(Http2Connection { sender, state })
    }

    /// Returns whether a further request may be sent on it, as far as is known.
    pub fn is_usable(&self) -> bool {
        !self.state.over.get()
    }

    /// Returns whether a frame from the server is incomplete. If the server leaves it so on an idle
    /// connection, it cannot answer a request there.
    pub fn is_within_frame(&self) -> bool {
        self.state.heard.is_within()
    }

    /// Returns the number of frames received from the server.
    pub fn frames_heard(&self) -> u64 {
        self.state.heard.frames()
    }

    /// Returns whether a liveness PING ([`ask_for_life`](Self::ask_for_life)) is unanswered.
    pub fn is_doubted(&self) -> bool {
        self.state.asks.get().is_some_and(|within| within.is_some())
    }

    /// Checks with a PING whether the server is alive. If no answer arrives within `within`, the connection
    /// ends, and with it everything that waits on it. After two answered PINGs without a frame of an answer,
    /// no PING is sent for five minutes: gRPC servers close connections that send more.
    pub fn ask_for_life(&self, within: Duration) {
        if self.state.may_ask() {
            self.state.ask(Some(within));
        }
    }

    /// Returns the number of concurrent streams that the server permits, as far as is known.
    pub fn streams_max(&self) -> usize {
        self.sender.current_max_send_streams()
    }

    /// Waits until a stream may be opened.
    ///
    /// # Errors
    /// The connection takes no further requests. [`Failure::sent`] is [`SentSoFar::Nothing`].
    pub async fn ready(&self) -> Result<(), Failure> {
        self.sender.clone().ready().await.map(|_| ()).map_err(|why| self.ended(why))
    }

    #[cold]
    fn ended(&self, why: ::h2::Error) -> Failure {
        self.state.over.set(true);
        Failure::new(FailedAt::Send, SentSoFar::Nothing, error(why))
    }

    /// Sends a request, and waits for the head of its response. Waits for a free stream first, if the
    /// server's limit is reached. Dropping the future resets the stream.
    ///
    /// # Errors
    /// [`Failure::sent`] is also [`SentSoFar::Nothing`] if the server has reported that it did not process
    /// the request.
    pub async fn send(&self, request: Http2Request<'_>) -> Result<Http2Response, Failure> {
        self.send_with(request, |_, _| {}).await
    }

    /// Works as [`send`](Self::send), and calls `interim` for each head (1xx) before the response, up to 255.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn send_with(
        &self,
        request: Http2Request<'_>,
        interim: impl FnMut(Status, FieldBlock),
    ) -> Result<Http2Response, Failure> {
        let (head, pieces) = head_of(request).map_err(Failure::of_request)?;
        let mut sender = self.sender.clone().ready().await.map_err(|why| self.ended(why))?;
        let (response, stream) =
            sender.send_request(head, pieces.is_none()).map_err(|why| self.ended(why))?;
        drop(sender);
        let listening = self.state.heard.listen(response.stream_id().as_u32());
        let progress = Progress::new(&self.state.traffic);
        // Dropped with the response, it ends.
        let sending = pieces.map(|pieces| spawn(send_pieces(stream, pieces, progress)));
        self.receive(response, sending, listening, interim).await
    }

    /// Waits for a free stream, and begins a request without an end on it.
    pub(super) async fn open(
        &self,
        head: ::http::Request<()>,
    ) -> Result<(ResponseFuture, SendStream<Part>), Failure> {
        let mut sender = self.sender.clone().ready().await.map_err(|why| self.ended(why))?;
        sender.send_request(head, false).map_err(|why| self.ended(why))
    }

    /// Returns whether the server supports extended CONNECT (RFC 8441 §3). Waits for its settings.
    pub(super) async fn takes_tunnels(&self) -> bool {
        let state = &self.state;
        if !state.settled.get() && !self.sender.is_extended_connect_protocol_enabled() {
            // The PING's answer follows the settings, which a server sends first.
            state.ask(None);
        }
        poll_fn(|context| {
            let enabled = self.sender.is_extended_connect_protocol_enabled();
            if enabled || state.settled.get() {
                return Poll::Ready(enabled);
            }
            state.waiting.borrow_mut().push(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    pub(super) fn traffic(&self) -> &Rc<Traffic> {
        &self.state.traffic
    }

    /// Returns the server's address, and the results of the TLS handshake.
    pub(super) fn facts(&self) -> (Option<SocketAddr>, Option<Arc<crate::tls::Info>>) {
        (self.state.peer, self.state.tls.clone())
    }

    pub(super) fn count_tunnel(&self) -> OpenTunnel {
        self.state.tunnels.set(self.state.tunnels.get() + 1);
        OpenTunnel(self.clone())
    }

    /// Returns what a stream's answer or error means for the request and the connection.
    pub(super) fn answered<R>(&self, response: Result<R, ::h2::Error>) -> Result<R, Failure> {
        response.map_err(|why| {
            let refused = why.is_reset() && why.reason() == Some(Reason::REFUSED_STREAM);
            // A stream that the server's GOAWAY covers gets another error.
            let left_out = why.is_go_away() && why.is_remote();
            if why.is_go_away() || why.is_io() {
                self.state.over.set(true);
            }
            let sent = if refused || left_out { SentSoFar::Nothing } else { SentSoFar::All };
            Failure::new(FailedAt::Head, sent, error(why))
        })
    }

    async fn receive(
        &self,
        mut response: ResponseFuture,
        sending: Option<JoinHandle<()>>,
        listening: Listening,
        mut interim: impl FnMut(Status, FieldBlock),
    ) -> Result<Http2Response, Failure> {
        let mut left = INTERIM_MAX;
        let response = poll_fn(|context| {
            while let Poll::Ready(Some(Ok(head))) = response.poll_informational(context) {
                if let (Some(less), Some(status)) = (left.checked_sub(1), Status::new(head.status().as_u16()))
                {
                    left = less;
                    interim(status, block(head.headers()));
                }
            }
            Pin::new(&mut response).poll(context)
        });
        let response = self.answered(response.await)?;
        let (parts, body) = response.into_parts();
        let at_head = |why| Failure::new(FailedAt::HeadBegun, SentSoFar::All, why);
        let status = Status::new(parts.status.as_u16()).ok_or(ClientError::Closed).map_err(at_head)?;
        let lines = block(&parts.headers);
        let length = parts.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        Ok(Http2Response {
            status,
            lines,
            length,
            body,
            came: 0,
            trailers: Vec::new(),
            ended: false,
            listening,
            _sending: sending,
            _connection: self.clone(),
        })
    }
}

impl fmt::Debug for Http2Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http2Connection").field("is_usable", &self.is_usable()).finish()
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // The task ends by itself, with a GOAWAY.
        if let Some(driver) = self.driver.borrow_mut().take() {
            driver.detach();
        }
    }
}

pub(super) fn error(why: ::h2::Error) -> ClientError {
    match why.reason() {
        Some(code) => ClientError::Http2(code.into()),
        None => ClientError::Closed,
    }
}

/// Returns a target in which characters are escaped that a `:path` cannot have (RFC 9113 §8.3.1, RFC 3986
/// §3.4), and that HTTP/1.1 clients send nevertheless.
fn escaped(target: &str) -> String {
    let mut escaped = String::with_capacity(target.len() + 32);
    for character in target.chars() {
        match character {
            '"' | '<' | '>' | '^' | '`' | '{' | '|' | '}' | '\\' => {
                // Writing to a string does not fail.
                let _ = write!(escaped, "%{:02X}", u32::from(character));
            }
            other => escaped.push(other),
        }
    }
    escaped
}

/// Returns the URL of these parts.
pub(super) fn uri_of(scheme: &str, authority: &str, target: &str) -> Result<::http::Uri, ClientError> {
    let wrong = |what: &str| ClientError::Url {
        url: format!("{scheme}://{authority}{target}"),
        why: format!("{what:?} is not what it stands for"),
    };
    let mut uri = ::http::uri::Parts::default();
    uri.scheme = Some(Scheme::try_from(scheme).map_err(|_| wrong(scheme))?);
    uri.authority = Some(Authority::try_from(authority).map_err(|_| wrong(authority))?);
    let path_and_query = PathAndQuery::try_from(target).or_else(|_| PathAndQuery::try_from(escaped(target)));
    uri.path_and_query = Some(path_and_query.map_err(|_| wrong(target))?);
    ::http::Uri::from_parts(uri).map_err(|_| wrong(target))
}

/// Returns the head in the form of the `h2` crate, and the body if there is one.
fn head_of(request: Http2Request<'_>) -> Result<(::http::Request<()>, Option<Pieces>), ClientError> {
    let uri = uri_of(request.scheme, request.authority, request.target)?;
    let mut head = ::http::Request::new(());
    *head.method_mut() = ::http::Method::from_bytes(request.method.as_bytes()).map_err(|_| {
        ClientError::Url { url: uri.to_string(), why: format!("{:?} is no method", request.method) }
    })?;
    *head.uri_mut() = uri;
    let length = request.body.size();
    let map = head.headers_mut();
    for field in request.lines.iter() {
        // RFC 9113 §8.2.2: no other value is allowed.
        let is_te = field.name.eq_ignore_ascii_case(b"te");
        if !is_te || field.value.eq_ignore_ascii_case(b"trailers") {
            put(map, field.name, field.value);
        }
    }
    let has_content = !matches!(Method::new(request.method.as_bytes()), Method::Get | Method::Head);
    if let Some(length) = length.filter(|length| *length > 0 || has_content) {
        map.insert(CONTENT_LENGTH, length.into());
    }
    let pieces = match request.body.0 {
        Inner::Stream(pieces) => Some(*pieces),
        Inner::File(part) => Some(part.into_pieces()),
        Inner::Empty | Inner::Switch(_) => None,
        whole @ Inner::Whole(_) => Some(Pieces { stream: Body(whole).into_pieces(), size: length }),
    };
    Ok((head, pieces))
}

/// Sends a body. It is not an error if the server has answered and wants no more of it.
async fn send_pieces(mut stream: SendStream<Part>, mut pieces: Pieces, progress: Rc<Progress>) {
    loop {
        let next = poll_fn(|context| {
            if stream.poll_reset(context).is_ready() {
                return Poll::Ready(None);
            }
            if progress.poll_below(WAITING_BYTES_MAX, context).is_pending() {
                return Poll::Pending;
            }
            pieces.stream.as_mut().poll_next(context).map(Some)
        })
        .await;
        let sent = match next {
            None => return,
            Some(Some(Ok(Piece::Data(chunk)))) => stream.send_data(Part::new(chunk, &progress), false),
            Some(Some(Ok(Piece::Trailers(lines)))) => return drop(stream.send_trailers(trailers(&lines))),
            Some(None) => return drop(stream.send_data(Part::new(Chunk::of_static(b""), &progress), true)),
            // The reset shows the server that the body is incomplete.
            Some(Some(Err(_))) => return stream.send_reset(Reason::CANCEL),
        };
        if sent.is_err() {
            return;
        }
    }
}

/// A response over HTTP/2: its head, and its body as it is read. Dropping it before its end resets the
/// stream.
pub struct Http2Response {
    status: Status,
    lines: FieldBlock,
    length: Option<u64>,
    body: RecvStream,
    /// Received bytes of the body.
    came: u64,
    trailers: Vec<(String, Vec<u8>)>,
    ended: bool,
    listening: Listening,
    /// The task that sends the request's body.
    _sending: Option<JoinHandle<()>>,
    _connection: Http2Connection,
}

impl Http2Response {
    /// Returns the status.
    pub fn status(&self) -> Status {
        self.status
    }

    /// Returns the header lines, with names in lower case; those that follow from the body are left out.
    pub fn lines(&self) -> &FieldBlock {
        &self.lines
    }

    /// Returns the first header line of this name, in any case, if it is ASCII or UTF-8.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.lines.get(name).and_then(|value| str::from_utf8(value).ok())
    }

    /// Returns the length of the body in `Content-Length`.
    pub fn content_length(&self) -> Option<u64> {
        self.length
    }

    /// Returns whether all of it was received and read, including trailers.
    pub fn is_complete(&self) -> bool {
        self.ended || self.body.is_end_stream()
    }

    /// Returns the next piece of the body; `None` at its end. Reading opens the flow-control window.
    ///
    /// # Errors
    /// The stream or its connection ended before the body.
    pub async fn next(&mut self) -> Option<Result<Chunk, BodyError>> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// Works as [`next`](Self::next), for a hand-written future.
    ///
    /// # Errors
    /// Those of that method.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Chunk, BodyError>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let failed = |why| Poll::Ready(Some(Err(BodyError::Source(Box::new(error(why))))));
        match ready!(self.body.poll_data(context)) {
            Some(Ok(data)) => {
                self.came += data.len() as u64;
                // An error means that the stream is over; then its window does not matter.
                let _ = self.body.flow_control().release_capacity(data.len());
                return Poll::Ready(Some(Ok(Chunk::from(Vec::from(data)))));
            }
            Some(Err(why)) => {
                self.ended = true;
                return if self.is_all(&why) { Poll::Ready(None) } else { failed(why) };
            }
            None => {}
        }
        let trailers = ready!(self.body.poll_trailers(context));
        self.ended = true;
        match trailers {
            Err(why) if self.is_all(&why) => {}
            Ok(map) => self.trailers = map.as_ref().map(trailer_pairs).unwrap_or_default(),
            Err(why) => return failed(why),
        }
        Poll::Ready(None)
    }

    /// Returns whether a stream with this error has received the whole response: the server does not want the
    /// rest of the request, and resets the stream after its response (RFC 9113 §8.1).
    fn is_all(&self, why: &::h2::Error) -> bool {
        let wants_no_more = why.is_reset() && why.is_remote() && why.reason() == Some(Reason::NO_ERROR);
        let is_all = self.length.map_or_else(|| self.listening.has_ended(), |length| length == self.came);
        wants_no_more && is_all
    }

    /// Returns the trailers, once the body has ended.
    pub fn trailers(&self) -> &[(String, Vec<u8>)] {
        &self.trailers
    }

    /// Takes the trailers.
    pub fn take_trailers(&mut self) -> Vec<(String, Vec<u8>)> {
        std::mem::take(&mut self.trailers)
    }

    /// Reads the rest of the body, if it is not longer than `bytes_max`.
    ///
    /// # Errors
    /// As [`next`](Self::next); [`BodyError::TooLong`].
    pub async fn bytes(&mut self, bytes_max: usize) -> Result<Vec<u8>, BodyError> {
        let mut all = Vec::new();
        while let Some(piece) = self.next().await {
            let piece = piece?;
            if piece.len() > bytes_max - all.len() {
                return Err(BodyError::TooLong(bytes_max));
            }
            all.extend_from_slice(&piece);
        }
        Ok(all)
    }
}

impl fmt::Debug for Http2Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Http2Response({})", self.status.code())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_no_path_of_http2_has_is_escaped_and_all_else_stays() {
        for (target, expected) in [
            ("/a?b=%22{x}|^`\\[1]\u{e9}", "/a?b=%22{x}|^`\\[1]\u{e9}"),
            ("/?j={\"a\":1}", "/?j=%7B%22a%22:1%7D"),
            ("/?<b>&%3C", "/?%3Cb%3E&%3C"),
            ("/<\u{e9}>`?x", "/%3C\u{e9}%3E%60?x"),
        ] {
            assert_eq!(uri_of("http", "a", target).unwrap().path_and_query().unwrap().as_str(), expected);
        }
        assert!(uri_of("http", "a", "/a b").is_err());
    }
}
