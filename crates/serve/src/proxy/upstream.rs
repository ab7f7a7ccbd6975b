//! A connection to a server behind this one: opened, written, read, and kept for the next request.
//!
//! Its halves go different ways during an exchange, because a server may answer before it has read all of a request.

use crate::config::Upstream;
use ringroad_engine::net::{ReadHalf, Recv, Send, Stream, TcpStream, Unix, UnixStream, WriteHalf};
use ringroad_engine::{IoBuf, spawn_blocking, time};
use ringroad_http::{BodyError, Chunk, Fields, ReadError, Receive, RequestBody, ResponseReader, Status};
use ringroad_wire::{Asked, BodyEncoder, KeptHead, ResponseHead, Scratch};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::poll_fn;
use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Why a server behind us has not answered, or not to the end.
#[derive(Debug)]
pub(super) enum Failure {
    /// It cannot be reached.
    Connect(String),
    /// It cannot be reached in time.
    ConnectTimeout(Duration),
    /// Nothing moved for so long.
    TooSlow(Duration),
    /// It closed the connection, or that failed, before it said anything.
    Unanswered(String),
    /// It closed in the middle of its answer.
    Closed,
    /// It takes an offer of another protocol than the one that was made.
    OtherProtocol,
    /// Its answer is not HTTP as we read it.
    Wrong(ringroad_wire::Error),
    /// Receiving failed.
    Connection(ringroad_engine::Error),
    /// The client's own body failed.
    Client(BodyError),
}

impl Failure {
    /// What the client is told.
    pub(super) fn told(&self) -> (Status, &'static str) {
        match self {
            Failure::ConnectTimeout(_) | Failure::TooSlow(_) => {
                (Status::GATEWAY_TIMEOUT, "The server behind this one did not answer in time.")
            }
            Failure::Client(why) => (why.status(), "The request did not come as it should."),
            Failure::Connect(_) => (Status::BAD_GATEWAY, "The server behind this one cannot be reached."),
            _ => (Status::BAD_GATEWAY, "The server behind this one did not answer properly."),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Connect(why) => f.write_str(why),
            Failure::ConnectTimeout(span) => write!(f, "connect: not done within {span:?}"),
            Failure::TooSlow(span) => write!(f, "answer: nothing moved for {span:?}"),
            Failure::Unanswered(why) => write!(f, "no answer: {why}"),
            Failure::Closed => f.write_str("answer: the connection was closed in the middle of it"),
            Failure::OtherProtocol => f.write_str("answer: 101 to a protocol that was not offered"),
            Failure::Wrong(why) => write!(f, "answer: {why}"),
            Failure::Connection(why) => write!(f, "answer: {why}"),
            Failure::Client(why) => write!(f, "the client's {why}"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<ReadError> for Failure {
    fn from(why: ReadError) -> Failure {
        match why {
            ReadError::Unanswered(_) => Failure::Unanswered(why.to_string()),
            ReadError::Closed(_) => Failure::Closed,
            ReadError::Refused(why) => Failure::Wrong(why),
            ReadError::Connection(why) => Failure::Connection(why),
        }
    }
}

/// A connection between two exchanges.
pub(super) struct Connection {
    source: Source,
    sink: Sink,
}

/// The half that is written to.
pub(super) struct Sink(Writer);

/// The half that is read from.
pub(super) struct Source {
    half: Reader,
    reader: ResponseReader,
}

/// One side of a connection over TCP or within the machine.
pub(super) enum Half<T, U> {
    Tcp(T),
    Unix(U),
}

/// What is received from.
pub(super) type Reader = Half<ReadHalf, ReadHalf<Unix>>;

/// What is sent to.
pub(super) type Writer = Half<WriteHalf, WriteHalf<Unix>>;

impl Receive for Reader {
    fn recv(&mut self) -> Recv<'_> {
        match self {
            Half::Tcp(half) => half.recv(),
            Half::Unix(half) => half.recv(),
        }
    }
}

impl Writer {
    pub(super) fn write_all<B: IoBuf>(&mut self, bytes: B) -> Send<'_, B> {
        match self {
            Half::Tcp(half) => half.write_all(bytes),
            Half::Unix(half) => half.write_all(bytes),
        }
    }

    pub(super) fn shutdown(&mut self) -> ringroad_engine::Result<()> {
        match self {
            Half::Tcp(half) => half.shutdown(),
            Half::Unix(half) => half.shutdown(),
        }
    }
}

/// The head of an answer.
pub(super) struct Head(KeptHead);

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

    /// How long the body is that GET would get, if that is said.
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
    /// Opens one.
    pub(super) async fn open(to: &Upstream, span: Duration) -> Result<Connection, Failure> {
        let opened = time::timeout(span, connect(to)).await;
        let (half, write) = opened.map_err(|_| Failure::ConnectTimeout(span))??;
        let source = Source { half, reader: ResponseReader::new() };
        Ok(Connection { source, sink: Sink(write) })
    }

    pub(super) fn split(self) -> (Source, Sink) {
        (self.source, self.sink)
    }

    /// The connection for another request, if it can have one.
    pub(super) fn join(source: Source, sink: Sink) -> Option<Connection> {
        source.reader.is_idle().then_some(Connection { source, sink })
    }

    /// Whether it is still open, with nothing said that nobody asked for.
    pub(super) async fn is_quiet(&mut self) -> bool {
        poll_fn(|context| Poll::Ready(pin!(self.source.half.recv()).poll(context).is_pending())).await
    }
}

async fn connect(to: &Upstream) -> Result<(Reader, Writer), Failure> {
    let failed = |why: &dyn fmt::Display| Failure::Connect(why.to_string());
    match to {
        Upstream::Unix(path) => {
            let opened = UnixStream::connect(path.clone()).await.map_err(|why| failed(&why));
            let (read, write) = opened?.split();
            Ok((Half::Unix(read), Half::Unix(write)))
        }
        Upstream::Tcp { host, port } => {
            let mut last = failed(&"resolve: the name has no address");
            for address in addresses(host, *port).await? {
                match TcpStream::connect(address).await.map(Stream::split) {
                    Ok((read, write)) => return Ok((Half::Tcp(read), Half::Tcp(write))),
                    Err(why) => last = failed(&why),
                }
            }
            Err(last)
        }
    }
}

async fn addresses(host: &str, port: u16) -> Result<Vec<SocketAddr>, Failure> {
    if let Ok(address) = host.parse() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let name = (host.to_owned(), port);
    let found = spawn_blocking(move || name.to_socket_addrs().map(Iterator::collect)).await;
    let failed = |why: String| Failure::Connect(format!("resolve: {why}"));
    found.map_err(|why| failed(why.to_string()))?.map_err(|why| failed(why.to_string()))
}

impl Sink {
    /// What is under it.
    pub(super) fn into_writer(self) -> Writer {
        self.0
    }

    /// Sends a head, then a body as it comes from the client.
    pub(super) async fn send(
        mut self,
        head: Vec<u8>,
        mut encoder: BodyEncoder,
        body: Option<RequestBody>,
        progress: Rc<Cell<Instant>>,
    ) -> (Sink, Result<(), Failure>) {
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
                            if let Err(why) = self.write(std::mem::take(&mut out), &progress).await {
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
                        return (self, Err(Failure::Unanswered(why.to_string())));
                    }
                }
                Some(Err(why)) => return (self, Err(Failure::Client(why))),
                None => {
                    let ended = encoder.end(&mut out);
                    let sent = self.write(out, &progress).await;
                    let ended = ended.map_err(|why| Failure::Unanswered(why.to_string()));
                    return (self, sent.and(ended));
                }
            }
            if let Err(why) = self.write(std::mem::take(&mut out), &progress).await {
                return (self, Err(why));
            }
        }
    }

    async fn write(&mut self, out: Vec<u8>, progress: &Cell<Instant>) -> Result<(), Failure> {
        if out.is_empty() {
            return Ok(());
        }
        let (sent, _) = self.0.write_all(out).await;
        progress.set(Instant::now());
        sent.map_err(|why| Failure::Unanswered(why.to_string()))
    }
}

impl Source {
    /// Another protocol is spoken from here on: what is received from, and what has come of it already.
    pub(super) fn into_parts(self) -> (Reader, Vec<u8>) {
        (self.half, self.reader.into_rest())
    }

    /// The head of the answer to a request that is being sent.
    pub(super) async fn head(&mut self, scratch: &RefCell<Scratch>, asked: Asked) -> Result<Head, Failure> {
        Ok(Head(self.reader.head(&mut self.half, scratch, asked).await?))
    }

    /// Whether the answer is over.
    pub(super) fn is_complete(&self) -> bool {
        self.reader.is_complete()
    }

    /// What has come of the body already, and whether that is all of it.
    pub(super) fn ready(&mut self, scratch: &RefCell<Scratch>) -> (Vec<u8>, bool) {
        let all = self.reader.ready(scratch);
        (all, self.is_complete())
    }

    /// The next piece of the body; `None` at its end.
    pub(super) async fn next(&mut self, scratch: &RefCell<Scratch>) -> Result<Option<Chunk>, Failure> {
        Ok(self.reader.next(&mut self.half, scratch).await?)
    }
}
