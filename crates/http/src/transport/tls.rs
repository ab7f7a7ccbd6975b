//! TLS over a stream. Received records are decrypted in the lease that they arrived in. Sent data is
//! encrypted into buffers that are reused.
//!
//! INVARIANT: a connection that waits between two records holds no buffer here; within a record it holds the
//! bytes received so far. Sealed records are sent in the order in which they were sealed, whatever future
//! began them: records that a dropped or partial send has left are in `unsent`, and are sent first.

use super::{HEARD_BYTES_MAX, Transport};
use crate::tls::{Client, Info, Output, Server, Session, TlsError};
use ringroad_engine::net::{
    Canceller, Hangup, Inet, ReadHalf, SendState, TcpStream, Unix, UnixStream, WriteHalf,
};
use ringroad_engine::{Error, FilePart, IoBuf, Lease, Result, spawn, time::timeout};
use std::cell::RefCell;
use std::fmt;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

/// Maximum plaintext that is sealed and sent at a time: four records.
const STEP_BYTES: usize = 64 * 1024;

/// Up to this size, plaintext is copied into the lease that its records came in; more is passed on in its own
/// buffer.
const COPIED_BYTES: usize = 4 * 1024;

/// Time for a refused client to read the alert.
const HEARD_OUT: Duration = Duration::from_secs(5);

/// Maximum number of spare buffers of each kind that a thread keeps.
const SPARE_MAX: usize = 8;

/// Larger buffers are not kept.
const SPARE_BYTES_MAX: usize = 80 * 1024;

thread_local! {
    /// Buffers for records to be sent. They are not cleared: see [`Output`].
    static SEALED: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
    /// Buffers for plaintext.
    static PLAIN: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

type Spare = std::thread::LocalKey<RefCell<Vec<Vec<u8>>>>;

fn take(spare: &'static Spare) -> Vec<u8> {
    // Fails while the thread ends.
    spare.try_with(|spare| spare.borrow_mut().pop()).ok().flatten().unwrap_or_default()
}

fn give(spare: &'static Spare, buffer: Vec<u8>) {
    if (1..=SPARE_BYTES_MAX).contains(&buffer.capacity()) {
        let _ = spare.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARE_MAX {
                spare.push(buffer);
            }
        });
    }
}

/// The stream under TLS.
enum Under {
    Tcp(TcpStream),
    Unix(UnixStream),
}

macro_rules! under {
    ($self:expr, $stream:ident => $do:expr) => {
        match $self {
            Under::Tcp($stream) => $do,
            Under::Unix($stream) => $do,
        }
    };
}

impl Under {
    async fn write_all(&mut self, bytes: Vec<u8>) -> Result<()> {
        let (sent, bytes) = under!(self, stream => stream.write_all(bytes).await);
        give(&SEALED, bytes);
        sent
    }

    fn poll_send(&mut self, send: &mut SendState<Vec<u8>>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let polled = under!(self, stream => stream.poll_send(send, context));
        polled.map(|(sent, bytes)| {
            give(&SEALED, bytes);
            sent
        })
    }
}

/// TLS over a TCP connection or a Unix socket.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use ringroad_engine::net::TcpStream;
/// use ringroad_http::{TlsStream, Transport};
/// use ringroad_tls::Client;
///
/// let stream = TcpStream::connect("127.0.0.1:443".parse()?).await?;
/// let mut stream = TlsStream::connect(stream, &Client::system()?, "localhost").await?;
/// stream.write_all(b"hello".to_vec()).await.0?;
/// stream.finish().await?;
/// # Ok(())
/// # }
/// ```
pub struct TlsStream {
    under: Under,
    core: Core,
    info: Arc<Info>,
    /// The last records (`close_notify`), while they are sent by polling.
    last: Option<Box<SendState<Vec<u8>>>>,
}

/// A send in flight, which owns its bytes.
#[derive(Debug)]
pub struct TlsSend {
    bytes: Vec<u8>,
    /// How many of the bytes are sealed.
    from: usize,
    /// Records being sent.
    under: Option<SendState<Vec<u8>>>,
}

impl TlsSend {
    pub(super) fn new(bytes: Vec<u8>) -> TlsSend {
        TlsSend { bytes, from: 0, under: None }
    }
}

#[cold]
pub(super) fn not_this_stream() -> Error {
    Error::layered("send", io::Error::new(io::ErrorKind::InvalidInput, "it began on another stream"))
}

/// A session, and its bytes on the way.
struct Core {
    session: Session,
    /// Plaintext that came with the end of the handshake, or for which a read had no room.
    early: Vec<u8>,
    /// Records that must be sent before anything else.
    unsent: Vec<u8>,
    /// Number of the caller's bytes with records that are in `unsent` or were sent. The caller's next send
    /// begins after them.
    sealed_ahead: usize,
    /// The reason why nothing more is received.
    failed: Option<TlsError>,
}

/// Why a connection has no TLS.
#[derive(Debug)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The handshake failed.
    Tls(TlsError),
    /// The connection failed.
    Connection(Error),
    /// The peer closed the connection.
    Closed,
    /// TLS cannot run over TLS, nor over a stream of HTTP/2.
    Layered,
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HandshakeError::Tls(why) => why.fmt(f),
            HandshakeError::Connection(why) => write!(f, "TLS handshake: {why}"),
            HandshakeError::Closed => f.write_str("TLS handshake: the peer closed the connection"),
            HandshakeError::Layered => {
                f.write_str("TLS handshake: the connection is TLS or a stream of HTTP/2 already")
            }
        }
    }
}

impl std::error::Error for HandshakeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            HandshakeError::Tls(why) => Some(why),
            HandshakeError::Connection(why) => Some(why),
            HandshakeError::Closed | HandshakeError::Layered => None,
        }
    }
}

impl From<Error> for HandshakeError {
    fn from(why: Error) -> HandshakeError {
        HandshakeError::Connection(why)
    }
}

/// Bounds the share of a thread's time that handshakes take.
pub(crate) trait Steps {
    /// Waits until one more step may be taken.
    async fn step(&self);

    /// Records a step. `answered`: the peer's first message was complete.
    fn taken(&self, answered: bool);
}

/// No bound.
pub(crate) struct NoSteps;

impl Steps for NoSteps {
    async fn step(&self) {}
    fn taken(&self, _: bool) {}
}

/// A handshake that failed.
pub(crate) struct Unshaken {
    pub(crate) why: HandshakeError,
    /// The connection, if an alert was sent that the peer may not have read yet.
    pub(crate) told: Option<Transport>,
}

impl<E: Into<HandshakeError>> From<E> for Unshaken {
    fn from(why: E) -> Unshaken {
        Unshaken { why: why.into(), told: None }
    }
}

/// Performs a handshake.
pub(crate) async fn handshake(
    stream: Transport,
    mut session: Session,
    steps: &impl Steps,
    mut input: Vec<u8>,
) -> std::result::Result<Box<TlsStream>, Unshaken> {
    let mut under = match stream {
        Transport::Tcp(stream) => Under::Tcp(stream),
        Transport::Unix(stream) => Under::Unix(stream),
        Transport::Tls(_) | Transport::Tunnel(_) => return Err(HandshakeError::Layered.into()),
    };
    let mut early = Vec::new();
    loop {
        steps.step().await;
        let mut out = Output::reusing(take(&SEALED));
        let received = session.receive(&mut input, &mut early, &mut out);
        input.clear();
        // Bytes to be sent include the alert after a failure.
        let is_silent = out.is_empty();
        steps.taken(!is_silent);
        let sent = match is_silent {
            true => {
                give(&SEALED, out.into_vec());
                Ok(())
            }
            false => under.write_all(out.into_vec()).await,
        };
        if let Err(why) = received {
            let told = (!is_silent && sent.is_ok()).then(|| match under {
                Under::Tcp(stream) => Transport::Tcp(stream),
                Under::Unix(stream) => Transport::Unix(stream),
            });
            return Err(Unshaken { why: HandshakeError::Tls(why), told });
        }
        sent?;
        if let Some(info) = session.take_info() {
            let core = Core { session, early, unsent: Vec::new(), sealed_ahead: 0, failed: None };
            return Ok(Box::new(TlsStream { under, core, info: Arc::new(info), last: None }));
        }
        let lease = under!(&mut under, stream => stream.recv().await)?;
        if lease.is_empty() {
            return Err(HandshakeError::Closed.into());
        }
        input.extend_from_slice(&lease);
    }
}

/// Receives and drops further bytes of a refused client, so that it can read the alert. If the connection
/// were closed with unread bytes, it would be reset, and the alert lost.
async fn hear_out(mut stream: Transport) {
    if stream.shutdown(Shutdown::Write).is_err() {
        return;
    }
    let hear = async {
        let mut heard = 0;
        while heard <= HEARD_BYTES_MAX
            && let Ok(lease) = stream.recv().await
            && !lease.is_empty()
        {
            heard += lease.len() as u64;
        }
    };
    // A timeout here has no consequence.
    let _ = timeout(HEARD_OUT, hear).await;
}

impl TlsStream {
    /// Performs the client's handshake with a server of this name or address.
    ///
    /// # Errors
    /// The server's certificate is not accepted, or the connection fails.
    pub async fn connect(
        stream: impl Into<Transport>,
        client: &Client,
        host: &str,
    ) -> std::result::Result<TlsStream, HandshakeError> {
        let session = client.begin(host).map_err(HandshakeError::Tls)?;
        let shaken = handshake(stream.into(), session, &NoSteps, Vec::new()).await;
        shaken.map(|stream| *stream).map_err(|failed| failed.why)
    }

    /// Performs the server's handshake on an accepted connection.
    ///
    /// # Errors
    /// The handshake or the connection fails. A refused client has five seconds to read the alert, in a
    /// separate task; then its connection is closed.
    pub async fn accept(
        stream: impl Into<Transport>,
        server: &Server,
    ) -> std::result::Result<TlsStream, HandshakeError> {
        let session = server.begin().map_err(HandshakeError::Tls)?;
        let shaken = handshake(stream.into(), session, &NoSteps, Vec::new()).await;
        shaken.map(|stream| *stream).map_err(|failed| {
            if let Some(told) = failed.told {
                spawn(hear_out(told)).detach();
            }
            failed.why
        })
    }

    /// Returns the agreed parameters.
    pub fn info(&self) -> &Arc<Info> {
        &self.info
    }

    /// Returns the next bytes; an empty lease at the end, if the peer sent `close_notify`.
    ///
    /// # Errors
    /// Those of the stream under it; an invalid record; the stream ends without `close_notify`.
    pub async fn recv(&mut self) -> Result<Lease> {
        std::future::poll_fn(|context| self.poll_recv(context)).await
    }

    /// Works as [`recv`](Self::recv), for a hand-written future.
    ///
    /// # Errors
    /// Those of that method.
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Result<Lease>> {
        let TlsStream { under, core, .. } = self;
        loop {
            if let Some(ready) = core.ready() {
                return Poll::Ready(ready);
            }
            let Poll::Ready(lease) = under!(under, stream => stream.poll_recv(context)) else {
                return Poll::Pending;
            };
            let received = core.open(lease?);
            if !core.unsent.is_empty() {
                core.try_flush(|bytes| under!(under, stream => stream.try_write(bytes)));
            }
            if let Some(received) = received {
                return Poll::Ready(received);
            }
        }
    }

    /// Works as [`Transport::is_quiet`](super::Transport::is_quiet).
    pub(super) fn is_quiet(&mut self) -> bool {
        self.poll_recv(&mut Context::from_waker(Waker::noop())).is_pending()
            && under!(&mut self.under, stream => stream.is_quiet())
    }

    /// Keeps received bytes for the next receive.
    pub(super) fn keep(&mut self, rest: Lease) {
        self.core.early = Vec::from(rest);
    }

    pub(super) fn hangup(&mut self) -> Hangup<'_> {
        under!(&mut self.under, stream => stream.hangup())
    }

    pub(super) fn try_write(&mut self, bytes: &[u8]) -> Option<usize> {
        let TlsStream { under, core, .. } = self;
        core.seal(bytes).ok()?;
        core.try_flush(|bytes| under!(under, stream => stream.try_write(bytes)));
        if core.unsent.is_empty() {
            core.sealed_ahead = 0;
            return Some(bytes.len());
        }
        None
    }

    /// Sends all of `bytes`, and returns them.
    ///
    /// # Errors
    /// Those of the stream under it.
    pub async fn write_all<B: IoBuf>(&mut self, bytes: B) -> (Result<()>, B) {
        (self.send_all(bytes.bytes()).await, bytes)
    }

    async fn send_all(&mut self, bytes: &[u8]) -> Result<()> {
        let mut from = 0;
        loop {
            from = self.send_step(bytes, from).await?;
            if from >= bytes.len() {
                return Ok(());
            }
        }
    }

    /// Seals and sends bytes up to the end of the next step. Returns that position.
    async fn send_step(&mut self, bytes: &[u8], from: usize) -> Result<usize> {
        let end = bytes.len().min(from.saturating_add(STEP_BYTES));
        self.core.seal(bytes.get(from..end).unwrap_or_default())?;
        let to = from + std::mem::take(&mut self.core.sealed_ahead);
        self.flush().await?;
        Ok(to)
    }

    async fn flush(&mut self) -> Result<()> {
        if self.core.unsent.is_empty() {
            return Ok(());
        }
        self.under.write_all(std::mem::take(&mut self.core.unsent)).await
    }

    pub(super) async fn write_from<B: IoBuf>(&mut self, bytes: B, from: usize) -> (Result<usize>, B) {
        (self.send_step(bytes.bytes(), from).await, bytes)
    }

    pub(super) async fn write_vectored_all<B: IoBuf>(&mut self, buffers: Vec<B>) -> (Result<()>, Vec<B>) {
        let last = buffers.len().saturating_sub(1);
        let mut sent = Ok(());
        for (at, bytes) in buffers.iter().map(IoBuf::bytes).enumerate() {
            // A head is sent with the bytes after it.
            let is_head = at < last && bytes.len() <= COPIED_BYTES && self.core.sealed_ahead == 0;
            sent = if is_head { self.core.seal_behind(bytes) } else { self.send_all(bytes).await };
            if sent.is_err() {
                break;
            }
        }
        (sent, buffers)
    }

    pub(super) fn poll_send(
        &mut self,
        send: &mut TlsSend,
        context: &mut Context<'_>,
    ) -> Poll<(Result<()>, Vec<u8>)> {
        loop {
            if let Some(under) = &mut send.under {
                let sent = ready!(self.under.poll_send(under, context));
                send.under = None;
                if sent.is_err() {
                    return Poll::Ready((sent, std::mem::take(&mut send.bytes)));
                }
            }
            if send.from < send.bytes.len() {
                let end = send.bytes.len().min(send.from.saturating_add(STEP_BYTES));
                if let Err(why) = self.core.seal(send.bytes.get(send.from..end).unwrap_or_default()) {
                    return Poll::Ready((Err(why), std::mem::take(&mut send.bytes)));
                }
                send.from += std::mem::take(&mut self.core.sealed_ahead);
            }
            if self.core.unsent.is_empty() {
                return Poll::Ready((Ok(()), std::mem::take(&mut send.bytes)));
            }
            send.under = Some(SendState::new(std::mem::take(&mut self.core.unsent)));
        }
    }

    pub(super) fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.core.close();
        loop {
            if let Some(last) = &mut self.last {
                let sent = ready!(self.under.poll_send(last, context));
                self.last = None;
                sent?;
            }
            if self.core.unsent.is_empty() {
                return Poll::Ready(under!(&mut self.under, stream => stream.shutdown(Shutdown::Write)));
            }
            self.last = Some(Box::new(SendState::new(std::mem::take(&mut self.core.unsent))));
        }
    }

    pub(super) fn sends_without_copy(&self, _: usize) -> bool {
        false
    }

    pub(super) async fn send_file(&mut self, mut part: FilePart) -> (Result<usize>, FilePart) {
        let mut buffer = take(&PLAIN);
        buffer.resize(STEP_BYTES, 0);
        let sent = match part.read(&mut buffer) {
            Ok(bytes) => self.send_step(buffer.get(..bytes).unwrap_or_default(), 0).await,
            Err(why) => Err(Error::layered("pread", why)),
        };
        give(&PLAIN, buffer);
        (sent, part)
    }

    /// Sends the end of the data (`close_notify`), then ends the sending side.
    ///
    /// # Errors
    /// The connection has failed.
    pub async fn finish(&mut self) -> Result<()> {
        self.core.close();
        self.flush().await?;
        under!(&mut self.under, stream => stream.shutdown(Shutdown::Write))
    }

    pub(super) fn shutdown(&mut self, how: Shutdown) -> Result<()> {
        let TlsStream { under, core, .. } = self;
        if how != Shutdown::Read {
            core.close();
            core.try_flush(|bytes| under!(under, stream => stream.try_write(bytes)));
        }
        under!(under, stream => stream.shutdown(how))
    }

    pub(super) fn canceller(&self) -> Canceller {
        under!(&self.under, stream => stream.canceller())
    }

    pub(super) fn peer_addr(&self) -> Option<SocketAddr> {
        match &self.under {
            Under::Tcp(stream) => stream.peer_addr().ok(),
            Under::Unix(_) => None,
        }
    }

    pub(super) fn split(self) -> (TlsReadHalf, TlsWriteHalf) {
        let core = Rc::new(RefCell::new(self.core));
        let (read, write) = match self.under {
            Under::Tcp(stream) => {
                let (read, write) = stream.split();
                (UnderRead::Tcp(read), UnderWrite::Tcp(write))
            }
            Under::Unix(stream) => {
                let (read, write) = stream.split();
                (UnderRead::Unix(read), UnderWrite::Unix(write))
            }
        };
        (TlsReadHalf { under: read, core: Rc::clone(&core) }, TlsWriteHalf { under: write, core })
    }
}

impl Core {
    /// Returns what is available without receiving: early plaintext, the end, or the reason why nothing more
    /// is received.
    fn ready(&mut self) -> Option<Result<Lease>> {
        if !self.early.is_empty() {
            return Some(Ok(Lease::from(std::mem::take(&mut self.early))));
        }
        if let Some(why) = &self.failed {
            return Some(Err(failed("recv", why)));
        }
        self.session.has_ended().then(|| Ok(Lease::default()))
    }

    /// Decrypts received bytes. Returns the plaintext, the end, or an error; `None` if they hold none of
    /// these.
    fn open(&mut self, mut lease: Lease) -> Option<Result<Lease>> {
        if lease.is_empty() {
            let why = io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the connection ended without close_notify of TLS: what came may have been cut",
            );
            return Some(Err(Error::layered("recv", why)));
        }
        let mut plain = take(&PLAIN);
        plain.clear();
        let mut out = Output::reusing(take(&SEALED));
        if let Err(why) = self.session.receive(&mut lease, &mut plain, &mut out) {
            self.failed = Some(why);
        }
        if !out.is_empty() {
            self.unsent.extend_from_slice(&out);
        }
        give(&SEALED, out.into_vec());
        if plain.is_empty() {
            give(&PLAIN, plain);
            return self.ready();
        }
        if plain.len() > COPIED_BYTES || plain.len() > lease.len() {
            return Some(Ok(Lease::from(plain)));
        }
        lease.truncate(plain.len());
        lease.copy_from_slice(&plain);
        give(&PLAIN, plain);
        Some(Ok(lease))
    }

    /// Seals those of the bytes that are not sealed yet.
    fn seal(&mut self, bytes: &[u8]) -> Result<()> {
        let rest = bytes.get(self.sealed_ahead..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(());
        }
        self.seal_behind(rest)?;
        self.sealed_ahead = bytes.len();
        Ok(())
    }

    /// Seals bytes, and appends them to the unsent records.
    fn seal_behind(&mut self, bytes: &[u8]) -> Result<()> {
        let mut out = Output::reusing(take(&SEALED));
        if !self.unsent.is_empty() {
            out.append(&self.unsent);
            give(&SEALED, std::mem::take(&mut self.unsent));
        }
        let sealed = self.session.seal(bytes, &mut out);
        self.unsent = out.into_vec();
        sealed.map_err(|why| failed("send", &why))
    }

    fn close(&mut self) {
        let mut out = Output::default();
        self.session.close(&mut out);
        self.unsent.extend_from_slice(&out);
    }

    /// Sends records as far as that needs no waiting.
    fn try_flush(&mut self, send: impl FnOnce(&[u8]) -> Option<usize>) {
        match send(&self.unsent) {
            Some(sent) if sent >= self.unsent.len() => give(&SEALED, std::mem::take(&mut self.unsent)),
            Some(sent) => drop(self.unsent.drain(..sent)),
            None => {}
        }
    }
}

#[cold]
fn failed(operation: &'static str, why: &TlsError) -> Error {
    Error::layered(operation, io::Error::new(io::ErrorKind::InvalidData, why.clone()))
}

enum UnderRead {
    Tcp(ReadHalf<Inet>),
    Unix(ReadHalf<Unix>),
}

enum UnderWrite {
    Tcp(WriteHalf<Inet>),
    Unix(WriteHalf<Unix>),
}

/// The receiving half of a [`TlsStream`].
pub struct TlsReadHalf {
    under: UnderRead,
    core: Rc<RefCell<Core>>,
}

impl TlsReadHalf {
    pub(super) fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Result<Lease>> {
        loop {
            if let Some(ready) = self.core.borrow_mut().ready() {
                return Poll::Ready(ready);
            }
            let polled = match &mut self.under {
                UnderRead::Tcp(half) => half.poll_recv(context),
                UnderRead::Unix(half) => half.poll_recv(context),
            };
            let Poll::Ready(lease) = polled else { return Poll::Pending };
            // Records that the session wants to send are sent with the other half's next send.
            if let Some(received) = self.core.borrow_mut().open(lease?) {
                return Poll::Ready(received);
            }
        }
    }

    /// Works as [`TlsStream::is_quiet`].
    pub(super) fn is_quiet(&mut self) -> bool {
        self.poll_recv(&mut Context::from_waker(Waker::noop())).is_pending()
            && match &mut self.under {
                UnderRead::Tcp(half) => half.is_quiet(),
                UnderRead::Unix(half) => half.is_quiet(),
            }
    }

    /// Works as [`TlsStream::keep`].
    pub(super) fn keep(&mut self, rest: Lease) {
        self.core.borrow_mut().early = Vec::from(rest);
    }

    pub(super) fn canceller(&self) -> Canceller {
        match &self.under {
            UnderRead::Tcp(half) => half.canceller(),
            UnderRead::Unix(half) => half.canceller(),
        }
    }
}

/// The sending half of a [`TlsStream`].
pub struct TlsWriteHalf {
    under: UnderWrite,
    core: Rc<RefCell<Core>>,
}

impl TlsWriteHalf {
    pub(super) fn try_write(&mut self, bytes: &[u8]) -> Option<usize> {
        let TlsWriteHalf { under, core } = self;
        let mut core = core.borrow_mut();
        core.seal(bytes).ok()?;
        core.try_flush(|bytes| match under {
            UnderWrite::Tcp(half) => half.try_write(bytes),
            UnderWrite::Unix(half) => half.try_write(bytes),
        });
        if core.unsent.is_empty() {
            core.sealed_ahead = 0;
            return Some(bytes.len());
        }
        None
    }

    pub(super) async fn write_all<B: IoBuf>(&mut self, bytes: B) -> (Result<()>, B) {
        (self.send_all(bytes.bytes()).await, bytes)
    }

    async fn send_all(&mut self, bytes: &[u8]) -> Result<()> {
        let mut from = 0;
        loop {
            from = self.send_step(bytes, from).await?;
            if from >= bytes.len() {
                return Ok(());
            }
        }
    }

    /// Works as [`TlsStream::send_step`].
    async fn send_step(&mut self, bytes: &[u8], from: usize) -> Result<usize> {
        let end = bytes.len().min(from.saturating_add(STEP_BYTES));
        let to = {
            let mut core = self.core.borrow_mut();
            core.seal(bytes.get(from..end).unwrap_or_default())?;
            from + std::mem::take(&mut core.sealed_ahead)
        };
        self.flush().await?;
        Ok(to)
    }

    pub(super) async fn write_from<B: IoBuf>(&mut self, bytes: B, from: usize) -> (Result<usize>, B) {
        (self.send_step(bytes.bytes(), from).await, bytes)
    }

    pub(super) fn shutdown(&mut self) -> Result<()> {
        self.core.borrow_mut().close();
        self.try_write(&[]);
        match &mut self.under {
            UnderWrite::Tcp(half) => half.shutdown(),
            UnderWrite::Unix(half) => half.shutdown(),
        }
    }

    async fn flush(&mut self) -> Result<()> {
        let unsent = std::mem::take(&mut self.core.borrow_mut().unsent);
        if unsent.is_empty() {
            return Ok(());
        }
        let (sent, bytes) = match &mut self.under {
            UnderWrite::Tcp(half) => half.write_all(unsent).await,
            UnderWrite::Unix(half) => half.write_all(unsent).await,
        };
        give(&SEALED, bytes);
        sent
    }

    pub(super) async fn finish(&mut self) -> Result<()> {
        self.core.borrow_mut().close();
        self.flush().await?;
        match &mut self.under {
            UnderWrite::Tcp(half) => half.shutdown(),
            UnderWrite::Unix(half) => half.shutdown(),
        }
    }

    pub(super) fn canceller(&self) -> Canceller {
        match &self.under {
            UnderWrite::Tcp(half) => half.canceller(),
            UnderWrite::Unix(half) => half.canceller(),
        }
    }
}

impl fmt::Debug for TlsStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TlsStream({:?})", self.core.session)
    }
}

impl fmt::Debug for TlsReadHalf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsReadHalf")
    }
}

impl fmt::Debug for TlsWriteHalf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsWriteHalf")
    }
}

impl From<TlsStream> for Transport {
    fn from(stream: TlsStream) -> Transport {
        Transport::Tls(Box::new(stream))
    }
}
