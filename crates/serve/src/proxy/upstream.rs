//! A connection to an upstream server: opened, written, read, and kept for the next request.
//!
//! Its halves go different ways during an exchange, because a server may answer before it has read all of a
//! request. A stream of HTTP/2 takes part in this as a connection of one exchange; see [`super::http2`].

use super::http2::{self, Streamed};
use super::{Progress, lines};
use crate::config::{Speaks, UpstreamTls};
use ringroad_engine::net::{ConnectOptions, TcpStream, UnixStream};
use ringroad_engine::{Lease, time};
use ringroad_gate::upstream::{Address, Permit, Refusal};
use ringroad_http::{
    BodyError, Chunk, FailedAt, FieldBlock, Fields, HandshakeError, Method, ReadError, ReadTransport,
    Receive, Request, RequestBody, ResponseReader, SentSoFar, Status, TlsStream, Transport, WriteTransport,
};
use ringroad_tls::TlsErrorKind;
use ringroad_wire::{Asked, BodyEncoder, KeptHead, ResponseHead, Scratch, is_forbidden_trailer};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// A failed exchange with an upstream server: the step, how much of the request was sent, and the reason.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) at: FailedAt,
    pub(super) sent: SentSoFar,
    pub(super) why: Why,
}

/// The reason why an upstream server has not answered, or not to the end.
#[derive(Debug)]
pub(super) enum Why {
    /// It cannot be reached.
    Connect(String),
    /// It cannot be reached in time.
    ConnectTimeout(Duration),
    /// TLS came to nothing: most often the certificate is not accepted.
    Tls(String),
    /// The server has said that it did not act on the request: it refused the stream, or ended the connection
    /// before it.
    NotActedOn(String),
    /// This process has no descriptor, port or memory for a connection.
    NoMeans(String),
    /// There was no room for a connection for so long.
    NoRoom(Duration),
    /// Nothing moved for so long.
    TooSlow(Duration),
    /// It closed the connection, or that failed, before any byte of an answer.
    Unanswered(String),
    /// It closed in the middle of its answer.
    Closed,
    /// It takes an offer of another protocol than the one that was made.
    OtherProtocol,
    /// It takes the offer of WebSocket, and does not answer its key.
    WrongKey,
    /// Its answer is not HTTP as read here.
    Wrong(ringroad_wire::Error),
    /// Receiving failed.
    Connection(ringroad_engine::Error),
    /// A stream of HTTP/2 ended in the middle of the answer.
    Broken(String),
    /// The client's own body failed.
    Client(BodyError),
    /// The group has no servers.
    NoServer,
    /// The request could not be collected.
    Buffer(String),
    /// The group takes no request now.
    NotAdmitted(Refusal),
}

impl Failure {
    /// One before any server was asked.
    pub(super) fn unasked(why: Why) -> Failure {
        Failure { at: FailedAt::Request, sent: SentSoFar::Nothing, why }
    }

    pub(super) fn connecting(why: Why) -> Failure {
        Failure { at: FailedAt::Connect, sent: SentSoFar::Nothing, why }
    }

    /// While a request is being sent: the server may have a part of it.
    pub(super) fn sending(why: impl fmt::Display) -> Failure {
        Failure { at: FailedAt::Send, sent: SentSoFar::Part, why: Why::Unanswered(why.to_string()) }
    }

    /// While its answer is waited for or read; `begun`: it has begun.
    pub(super) fn answering(begun: bool, sent: SentSoFar, why: Why) -> Failure {
        let (at, sent) = match &why {
            Why::NotActedOn(_) => return Failure { at: FailedAt::Head, sent: SentSoFar::Nothing, why },
            _ => (&why, sent),
        };
        let at = match at {
            Why::Unanswered(_) | Why::TooSlow(_) if !begun => FailedAt::Head,
            _ if begun => FailedAt::Body,
            _ => FailedAt::HeadBegun,
        };
        Failure { at, sent, why }
    }

    /// Returns whether it counts against the server.
    pub(super) fn is_of_the_server(&self) -> bool {
        !matches!(
            self.why,
            Why::Client(_)
                | Why::NoServer
                | Why::Buffer(_)
                | Why::NoMeans(_)
                | Why::NoRoom(_)
                | Why::NotAdmitted(_)
        )
    }

    /// Returns whether the request may be sent to another server. Time that is over is not given twice.
    pub(super) fn may_try_another(&self, method: Method) -> bool {
        let in_time = !matches!(self.why, Why::TooSlow(_));
        self.is_of_the_server() && in_time && self.at.may_repeat(self.sent, method)
    }

    /// Returns how much of the request a server may have that cannot be reached, or has closed the connection
    /// before any byte of an answer.
    pub(super) fn before_an_answer(&self) -> Option<SentSoFar> {
        match &self.why {
            Why::Connect(_) => Some(SentSoFar::Nothing),
            Why::NotActedOn(_) => Some(SentSoFar::Nothing),
            Why::Unanswered(_) => Some(self.sent),
            _ => None,
        }
    }

    /// Returns whether the server closed a connection before any byte of an answer: one that was kept may end
    /// at any time.
    pub(super) fn is_unanswered(&self) -> bool {
        matches!(self.why, Why::Unanswered(_) | Why::NotActedOn(_))
    }

    /// Returns whether it is the client that failed: that is no fault of the server's, nor of this side.
    pub(super) fn is_of_the_client(&self) -> bool {
        matches!(self.why, Why::Client(_))
    }

    /// Returns whether the server has said that it did not act on the request.
    pub(super) fn is_not_acted_on(&self) -> bool {
        matches!(self.why, Why::NotActedOn(_))
    }

    /// Returns the same failure for another request that waited for the same connection; `None` if it is no
    /// failure to connect.
    pub(super) fn of_connecting(&self) -> Option<Failure> {
        let why = match &self.why {
            Why::Connect(why) => Why::Connect(why.clone()),
            Why::Tls(why) => Why::Tls(why.clone()),
            Why::NoMeans(why) => Why::NoMeans(why.clone()),
            Why::ConnectTimeout(span) => Why::ConnectTimeout(*span),
            Why::NoRoom(span) => Why::NoRoom(*span),
            _ => return None,
        };
        Some(Failure { at: self.at, sent: self.sent, why })
    }

    /// Seconds after which to try again.
    pub(super) fn retry_after(&self) -> u64 {
        match &self.why {
            Why::NotAdmitted(refusal) => refusal.retry_after(),
            _ => 1,
        }
    }

    /// Returns the text for the client.
    pub(super) fn told(&self) -> (Status, &'static str) {
        match &self.why {
            Why::ConnectTimeout(_) | Why::TooSlow(_) => {
                (Status::GATEWAY_TIMEOUT, "The upstream server did not answer in time.")
            }
            Why::Client(why) => (why.status(), "The request did not come as it should."),
            Why::NoServer => (Status::SERVICE_UNAVAILABLE, "There is no server for this request."),
            Why::NotAdmitted(Refusal::Open(_)) => {
                (Status::SERVICE_UNAVAILABLE, "The servers behind this one have trouble. Try again later.")
            }
            Why::Buffer(_) | Why::NoMeans(_) | Why::NoRoom(_) | Why::NotAdmitted(Refusal::Full) => {
                (Status::SERVICE_UNAVAILABLE, "The server has no room for this request now.")
            }
            Why::Connect(_) => (Status::BAD_GATEWAY, "The upstream server cannot be reached."),
            Why::Tls(_) => (Status::BAD_GATEWAY, "There is no secure connection to the upstream server."),
            _ => (Status::BAD_GATEWAY, "The upstream server did not answer properly."),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.why {
            Why::Connect(why) | Why::NoMeans(why) | Why::Tls(why) => f.write_str(why),
            Why::NotActedOn(why) => write!(f, "not acted on: {why}"),
            Why::ConnectTimeout(span) => write!(f, "connect: not done within {span:?}"),
            Why::NoRoom(span) => write!(f, "connect: no room for another connection within {span:?}"),
            Why::TooSlow(span) => write!(f, "answer: nothing moved for {span:?}"),
            Why::Unanswered(why) if why.contains("CertificateRequired") => write!(
                f,
                "no answer: {why}: the server wants a client certificate: give it one by `tls = {{ certificate, key }}`"
            ),
            Why::Unanswered(why) => write!(f, "no answer: {why}"),
            Why::Closed => f.write_str("answer: the connection was closed in the middle of it"),
            Why::OtherProtocol => f.write_str("answer: 101 to a protocol that was not offered"),
            Why::WrongKey => f.write_str("answer: Sec-WebSocket-Accept does not answer the key"),
            Why::Wrong(why) => write!(f, "answer: {why}"),
            Why::Connection(why) => write!(f, "answer: {why}"),
            Why::Broken(why) => write!(f, "answer: {why}"),
            Why::Client(why) => write!(f, "the client's {why}"),
            Why::NoServer => f.write_str("the group has no servers"),
            Why::Buffer(why) => f.write_str(why),
            Why::NotAdmitted(why) => why.fmt(f),
        }
    }
}

impl std::error::Error for Failure {}

impl From<ReadError> for Why {
    fn from(why: ReadError) -> Why {
        match why {
            ReadError::Unanswered(_) => Why::Unanswered(why.to_string()),
            ReadError::Closed(_) => Why::Closed,
            ReadError::Refused(why) => Why::Wrong(why),
            ReadError::Connection(why) => Why::Connection(why),
        }
    }
}

/// A connection between two exchanges.
pub(super) struct Connection {
    source: Source,
    sink: Sink,
}

/// The half that is written to.
pub(super) enum Sink {
    Http1(Writer),
    Http2(Rc<Streamed>),
}

/// The half that is read from.
pub(super) enum Source {
    Http1(Box<Reading>),
    Http2(Box<http2::Exchange>),
}

/// What is read from a connection that speaks HTTP/1.1.
pub(super) struct Reading {
    half: Reader,
    /// The permit of the connection.
    permit: Permit,
    reader: ResponseReader,
}

/// The receiving half.
pub(super) type Reader = ReadTransport;

/// The sending half.
pub(super) type Writer = WriteTransport;

/// The head of an answer.
pub(super) struct Head(pub(super) KeptHead);

impl Head {
    fn view(&self) -> ResponseHead<'_> {
        self.0.view()
    }

    pub(super) fn status(&self) -> Status {
        self.view().status()
    }

    pub(super) fn fields(&self) -> Fields<'_> {
        self.view().fields()
    }

    /// Returns how long the body is that GET would get, if that is said.
    pub(super) fn length(&self) -> Option<u64> {
        match self.view().body() {
            ringroad_wire::Body::Length(length) => Some(length),
            // After HEAD no body follows; what the line says is handed on.
            ringroad_wire::Body::Empty => {
                str::from_utf8(self.fields().get("content-length")?).ok()?.parse().ok()
            }
            _ => None,
        }
    }
}

impl Connection {
    /// Opens one, of which `left` of `span` is still to come.
    pub(super) async fn open(
        to: &Address,
        speaks: &Speaks,
        span: Duration,
        left: Duration,
        permit: Permit,
    ) -> Result<Connection, Failure> {
        let opened = time::timeout(left, connect(to, speaks, false, left)).await;
        let stream = opened.map_err(|_| Failure::connecting(Why::ConnectTimeout(span)))??;
        let (half, write) = stream.split();
        let reading = Reading { half, permit, reader: ResponseReader::new() };
        Ok(Connection { source: Source::Http1(Box::new(reading)), sink: Sink::Http1(write) })
    }

    /// Returns a stream of a connection that speaks HTTP/2, for one exchange.
    pub(super) fn stream(exchange: http2::Exchange) -> Connection {
        let sink = Sink::Http2(exchange.sink());
        Connection { source: Source::Http2(Box::new(exchange)), sink }
    }

    pub(super) fn split(self) -> (Source, Sink) {
        (self.source, self.sink)
    }

    /// Returns the connection for another request, if it can have one.
    pub(super) fn join(source: Source, sink: Sink) -> Option<Connection> {
        let is_idle = matches!(&source, Source::Http1(reading) if reading.reader.is_idle());
        is_idle.then_some(Connection { source, sink })
    }
}

impl Receive for Connection {
    fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<ringroad_engine::Result<Lease>> {
        match &mut self.source {
            Source::Http1(reading) => reading.half.poll_recv(context),
            // None is kept.
            Source::Http2(_) => Poll::Ready(Ok(Lease::default())),
        }
    }

    fn is_quiet(&mut self) -> bool {
        match &mut self.source {
            Source::Http1(reading) => reading.half.is_quiet(),
            Source::Http2(_) => false,
        }
    }
}

/// Returns whether what failed is this process's shortage, not the server's: descriptors, ports, memory.
fn is_ours(why: &ringroad_engine::Error) -> bool {
    let errno = why.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::ADDRNOTAVAIL))
}

fn not_connected(why: &ringroad_engine::Error) -> Failure {
    let told = why.to_string();
    Failure::connecting(if is_ours(why) { Why::NoMeans(told) } else { Why::Connect(told) })
}

/// Connects to a server, and makes the handshake where TLS is spoken. The caller waits for `span`.
pub(super) async fn connect(
    to: &Address,
    speaks: &Speaks,
    http2: bool,
    span: Duration,
) -> Result<Transport, Failure> {
    let stream = connect_plain(to, span).await?;
    match &speaks.tls {
        Some(tls) => secure(stream, to, tls, http2).await,
        None => Ok(stream),
    }
}

async fn connect_plain(to: &Address, span: Duration) -> Result<Transport, Failure> {
    match to {
        Address::Unix(path) => {
            let opened = UnixStream::connect(path.clone()).await;
            Ok(opened.map_err(|why| not_connected(&why))?.into())
        }
        Address::Tcp { host, port } => {
            let options = |_| Some(ConnectOptions::default());
            let opened = TcpStream::connect_first(addresses(host, *port).await?, span, options).await;
            Ok(opened.map_err(|why| not_connected(&why))?.into())
        }
    }
}

async fn secure(
    stream: Transport,
    to: &Address,
    tls: &UpstreamTls,
    http2: bool,
) -> Result<Transport, Failure> {
    let name = match (&tls.name, to) {
        (Some(name), _) => name,
        (None, Address::Tcp { host, .. }) => host,
        (None, Address::Unix(_)) => "localhost",
    };
    let failed = |why: String| Failure { at: FailedAt::Tls, sent: SentSoFar::Nothing, why: Why::Tls(why) };
    let client = if http2 { &tls.http2 } else { &tls.http1 };
    let stream = TlsStream::connect(stream, client, name).await.map_err(|why| failed(told(&why, name)))?;
    if http2 && stream.info().alpn.as_deref() != Some(ringroad_tls::ALPN_H2) {
        return Err(failed("TLS: the server does not speak HTTP/2: leave out `http2`".to_owned()));
    }
    Ok(stream.into())
}

/// Returns why a handshake came to nothing, and what to do about it.
#[cold]
fn told(why: &HandshakeError, name: &str) -> String {
    let what_to_do = match why {
        HandshakeError::Tls(why) => match why.kind() {
            TlsErrorKind::UnknownIssuer => "give its authority by `tls = { ca = \"FILE\" }`",
            TlsErrorKind::Authority => "give this certificate by `tls = { ca = \"FILE\" }`",
            TlsErrorKind::WrongName => {
                return format!(
                    "{why}: {name:?} was asked for; give a name of the certificate by `tls = {{ name }}`"
                );
            }
            TlsErrorKind::NotValidNow => "renew the server's certificate, or set the clocks",
            TlsErrorKind::NotTls => "write http:// where the server speaks no TLS",
            TlsErrorKind::Alert => {
                "the server's log says more; `tls = { certificate, key }` is the client's own"
            }
            TlsErrorKind::NothingInCommon => {
                "the server speaks neither TLS 1.2 nor 1.3, or not the protocol asked for"
            }
            _ => return why.to_string(),
        },
        _ => return why.to_string(),
    };
    format!("{why}: {what_to_do}")
}

/// One look-up for all requests, on a thread of its own; old addresses are used while a new one runs.
async fn addresses(host: &str, port: u16) -> Result<Vec<SocketAddr>, Failure> {
    ringroad_http::addresses(host, port).await.map_err(|why| Failure {
        at: FailedAt::Resolve,
        sent: SentSoFar::Nothing,
        why: Why::Connect(format!("resolve: {why}")),
    })
}

impl Sink {
    /// Returns the transport; a stream of HTTP/2 has none of its own.
    pub(super) fn into_writer(self) -> Option<Writer> {
        match self {
            Sink::Http1(writer) => Some(writer),
            Sink::Http2(_) => None,
        }
    }

    /// Sends a head, then a body as it comes from the client, and notes in `progress` when. A head alone is
    /// no progress of its own: the wait for its answer has just begun.
    pub(super) async fn send(
        mut self,
        head: Vec<u8>,
        mut encoder: BodyEncoder,
        body: Option<RequestBody>,
        progress: Progress,
    ) -> (Sink, Result<(), Failure>) {
        if let Sink::Http2(stream) = &self {
            stream.give(head, body, progress);
            return (self, Ok(()));
        }
        let mut out = head;
        let mut body = body;
        loop {
            let piece = match &mut body {
                None => None,
                Some(body) => {
                    // With the head go those bytes of the body that are there; it does not wait for others.
                    let ready = poll_fn(|context| Poll::Ready(pin!(body.next()).poll(context))).await;
                    match ready {
                        Poll::Ready(piece) => piece,
                        Poll::Pending => {
                            if let Err(why) = self.write(std::mem::take(&mut out), Some(&progress)).await {
                                return (self, Err(why));
                            }
                            body.next().await
                        }
                    }
                }
            };
            match piece {
                Some(Ok(piece)) => {
                    if let Err(why) = encoder.data(&mut out, &piece) {
                        return (self, Err(Failure::sending(why)));
                    }
                }
                Some(Err(why)) => {
                    let failure =
                        Failure { at: FailedAt::Send, sent: SentSoFar::Part, why: Why::Client(why) };
                    return (self, Err(failure));
                }
                None => {
                    let ended = encoder.end(&mut out);
                    let sent = self.write(out, body.is_some().then_some(&*progress)).await;
                    let ended = ended.map_err(Failure::sending);
                    return (self, sent.and(ended));
                }
            }
            if let Err(why) = self.write(std::mem::take(&mut out), Some(&progress)).await {
                return (self, Err(why));
            }
        }
    }

    async fn write(&mut self, out: Vec<u8>, progress: Option<&Cell<Option<Instant>>>) -> Result<(), Failure> {
        if out.is_empty() {
            return Ok(());
        }
        // The other kind has nothing to write here.
        let Sink::Http1(writer) = self else { return Ok(()) };
        let (sent, _) = writer.write_all(out).await;
        if let Some(progress) = progress {
            progress.set(Some(Instant::now()));
        }
        sent.map_err(Failure::sending)
    }
}

impl Source {
    /// Another protocol is spoken from here on: what is received from, what has come of it already, and the
    /// connection's permit. A stream of HTTP/2 does not come to that.
    pub(super) fn into_parts(self) -> Option<(Reader, Vec<u8>, Permit)> {
        let Source::Http1(reading) = self else { return None };
        let Reading { half, permit, reader } = *reading;
        Some((half, reader.into_rest(), permit))
    }

    /// Returns the head of the answer to a request that is being sent. What is said before it is passed on to
    /// the client of `request`. `subject` is the line that no client may send.
    pub(super) async fn head(
        &mut self,
        scratch: &RefCell<Scratch>,
        asked: Asked,
        request: &Request,
        subject: Option<&str>,
    ) -> Result<Head, Why> {
        match self {
            Source::Http1(reading) => {
                let Reading { half, reader, .. } = &mut **reading;
                let inform = |head: ResponseHead<'_>| lines::inform(request, head.status(), head.fields());
                Ok(Head(reader.head_with(half, scratch, asked, inform).await?))
            }
            Source::Http2(exchange) => exchange.head(scratch, asked, request, subject).await,
        }
    }

    /// Keeps the beginning of the body until the answer begins, where the server may say that it did not act
    /// on the request.
    pub(super) fn keep_taken(&self) {
        if let Source::Http2(exchange) = self {
            exchange.keep_taken();
        }
    }

    /// Takes a body back that was to be sent, if all of it is there.
    pub(super) fn take_back(&self) -> Option<RequestBody> {
        match self {
            Source::Http1(_) => None,
            Source::Http2(exchange) => exchange.take_back(),
        }
    }

    /// Returns whether the answer is over.
    pub(super) fn is_complete(&self) -> bool {
        match self {
            Source::Http1(reading) => reading.reader.is_complete(),
            Source::Http2(exchange) => exchange.is_complete(),
        }
    }

    /// Returns what has come of the body already, and whether that is all of it.
    pub(super) fn ready(&mut self, scratch: &RefCell<Scratch>) -> (Vec<u8>, bool) {
        let all = match self {
            Source::Http1(reading) => reading.reader.ready(scratch),
            Source::Http2(exchange) => exchange.ready(),
        };
        (all, self.is_complete())
    }

    /// Returns the next piece of the body; `None` at its end.
    pub(super) async fn next(&mut self, scratch: &RefCell<Scratch>) -> Result<Option<Chunk>, Why> {
        match self {
            Source::Http1(reading) => {
                let Reading { half, reader, .. } = &mut **reading;
                Ok(reader.next(half, scratch).await?)
            }
            Source::Http2(exchange) => exchange.next().await,
        }
    }

    /// Lines that came behind the body, once it has ended; without those that may not stand there.
    pub(super) fn take_trailers(&mut self) -> FieldBlock {
        let lines = match self {
            Source::Http1(reading) => reading.reader.take_trailers(),
            Source::Http2(exchange) => exchange.take_trailers(),
        };
        let mut block = FieldBlock::new();
        for (name, value) in lines {
            if !is_forbidden_trailer(name.as_bytes()) {
                // A line that cannot be written is left out, as every hop may leave out any.
                let _ = block.push(name.as_bytes(), &value);
            }
        }
        block
    }
}
