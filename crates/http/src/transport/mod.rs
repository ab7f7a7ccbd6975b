//! Transports of a connection: TCP, a Unix socket, and TLS over them.
//!
//! An enum and not a type parameter: its one branch is always predicted, no code is duplicated, and the task
//! of an idle connection stays small. The code above ([`server`](crate::server), upgraded connections) uses
//! these methods only, so that a further transport is one more arm here. TLS is in [`tls`].

mod io;
mod layered;
mod listen;
mod tls;
mod tunnel;

pub use listen::{Bound, ListenAt};
pub(crate) use listen::{ListenError, Listener, Socket, SocketFile, patiently};
pub use tls::{HandshakeError, TlsSend, TlsStream};
pub(crate) use tls::{Steps, Unshaken, handshake};
pub(crate) use tunnel::{Carrier, cancelled, reset};
pub use tunnel::{TunnelSend, TunnelStream};

use crate::tls::Info;
use layered::Layered;
use ringroad_bridge::{Sink, Source};
use ringroad_engine::net::{
    Canceller, Family, Inet, PeerGone, ReadHalf, SendState, Stream, TcpStream, Unix, UnixStream, WriteHalf,
};
use ringroad_engine::{FilePart, IoBuf, Lease, Result};
use std::fmt;
use std::future::poll_fn;
use std::net::{Shutdown, SocketAddr};
use std::rc::Weak;
use std::sync::Arc;
use std::task::{Context, Poll};
use tls::{TlsReadHalf, TlsWriteHalf};

/// Maximum number of bytes that are received and dropped after a refused handshake, or beyond the windows of
/// HTTP/2: more than a client can have in flight.
pub(crate) const HEARD_BYTES_MAX: u64 = 1 << 20;

/// A connection.
#[non_exhaustive]
pub enum Transport {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a Unix socket.
    Unix(UnixStream),
    /// TLS over one of them.
    Tls(Box<TlsStream>),
    /// A stream of an HTTP/2 connection.
    Tunnel(TunnelStream),
}

/// Calls a method on the stream of any transport.
macro_rules! each {
    ($self:expr, $stream:ident => $do:expr) => {
        match $self {
            Transport::Tcp($stream) => $do,
            Transport::Unix($stream) => $do,
            Transport::Tls($stream) => $do,
            Transport::Tunnel($stream) => $do,
        }
    };
}

/// Makes a future: inline for sockets, boxed for layers.
macro_rules! layered {
    ($self:expr, $stream:ident => $do:expr) => {
        match $self {
            Transport::Tcp($stream) => Layered::Plain { future: $do },
            Transport::Unix($stream) => Layered::Plain { future: $do },
            Transport::Tls($stream) => Layered::Boxed { future: Box::pin($do) },
            Transport::Tunnel($stream) => Layered::Boxed { future: Box::pin($do) },
        }
    };
}

impl Transport {
    /// Works as [`Stream::recv`].
    ///
    /// # Errors
    /// Those of that method.
    #[inline]
    pub fn recv(&mut self) -> impl Future<Output = Result<Lease>> + '_ {
        match self {
            Transport::Tcp(stream) => layered::Recv::Plain { future: stream.recv() },
            Transport::Unix(stream) => layered::Recv::Plain { future: stream.recv() },
            Transport::Tls(stream) => layered::Recv::Tls { stream },
            Transport::Tunnel(stream) => layered::Recv::Tunnel { stream },
        }
    }

    /// Works as [`Stream::poll_recv`].
    ///
    /// # Errors
    /// Those of that method.
    #[inline]
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Result<Lease>> {
        each!(self, stream => stream.poll_recv(context))
    }

    /// Works as [`Stream::poll_recv_parked`]. The second value is true for sockets only.
    ///
    /// # Errors
    /// Those of that method.
    #[inline]
    pub fn poll_recv_parked(&mut self, context: &mut Context<'_>) -> Poll<Result<(Lease, bool)>> {
        match self {
            Transport::Tcp(stream) => stream.poll_recv_parked(context),
            Transport::Unix(stream) => stream.poll_recv_parked(context),
            Transport::Tls(stream) => stream.poll_recv(context).map_ok(|lease| (lease, false)),
            Transport::Tunnel(stream) => stream.poll_recv(context).map_ok(|lease| (lease, false)),
        }
    }

    /// Works as [`Stream::is_quiet`]. Bytes of a layer that are not message content, such as TLS tickets, are
    /// consumed first, if the driver has them at hand.
    pub fn is_quiet(&mut self) -> bool {
        each!(self, stream => stream.is_quiet())
    }

    /// Works as [`Stream::hangup`].
    ///
    /// # Errors
    /// Those of that method.
    pub fn hangup(&mut self) -> impl Future<Output = Result<PeerGone>> + '_ {
        match self {
            Transport::Tcp(stream) => layered::Gone::Socket { future: stream.hangup() },
            Transport::Unix(stream) => layered::Gone::Socket { future: stream.hangup() },
            Transport::Tls(stream) => layered::Gone::Socket { future: stream.hangup() },
            Transport::Tunnel(stream) => layered::Gone::Tunnel { stream },
        }
    }

    /// Works as [`Stream::write_all`].
    ///
    /// # Errors
    /// Those of that method.
    #[inline]
    pub fn write_all<B: IoBuf + Unpin>(&mut self, bytes: B) -> impl Future<Output = (Result<()>, B)> {
        layered!(self, stream => stream.write_all(bytes))
    }

    /// Works as [`Stream::try_write`]. Over TLS it sends all or nothing: if only a part of the records was
    /// sent, it returns `None` and keeps the rest, so the next send must be of the same bytes, as with
    /// streams.
    #[inline]
    pub fn try_write(&mut self, bytes: &[u8]) -> Option<usize> {
        each!(self, stream => stream.try_write(bytes))
    }

    /// Works as [`Stream::write_from`].
    ///
    /// # Errors
    /// Those of that method.
    pub fn write_from<B: IoBuf + Unpin>(
        &mut self,
        bytes: B,
        from: usize,
    ) -> impl Future<Output = (Result<usize>, B)> {
        layered!(self, stream => stream.write_from(bytes, from))
    }

    /// Works as [`Stream::write_vectored_all`].
    ///
    /// # Errors
    /// Those of that method.
    pub fn write_vectored_all<B: IoBuf + Unpin>(
        &mut self,
        buffers: Vec<B>,
    ) -> impl Future<Output = (Result<()>, Vec<B>)> {
        layered!(self, stream => stream.write_vectored_all(buffers))
    }

    /// Works as [`Stream::sends_without_copy`].
    pub fn sends_without_copy(&self, bytes: usize) -> bool {
        each!(self, stream => stream.sends_without_copy(bytes))
    }

    /// Works as [`Stream::send_file`]. Over TLS the bytes are read, sealed and sent, at most 64 KiB at a
    /// time.
    ///
    /// # Errors
    /// Those of that method.
    pub fn send_file(&mut self, part: FilePart) -> impl Future<Output = (Result<usize>, FilePart)> {
        layered!(self, stream => stream.send_file(part))
    }

    /// Ends the sending side. Over TLS it first sends `close_notify`, without which the peer treats the data
    /// as truncated. Then it works as [`shutdown`](Self::shutdown).
    ///
    /// # Errors
    /// The connection has failed.
    pub async fn finish(&mut self) -> Result<()> {
        if let Transport::Tls(stream) = self {
            return stream.finish().await;
        }
        self.shutdown(Shutdown::Write)
    }

    /// Returns the results of the TLS handshake.
    pub fn tls(&self) -> Option<&Arc<Info>> {
        match self {
            Transport::Tls(stream) => Some(stream.info()),
            Transport::Tunnel(stream) => stream.info(),
            Transport::Tcp(_) | Transport::Unix(_) => None,
        }
    }

    /// Works as [`Stream::shutdown`]. Over TLS `close_notify` is sent only if that needs no waiting: use
    /// [`finish`](Self::finish) to be sure.
    ///
    /// # Errors
    /// Those of that method.
    pub fn shutdown(&mut self, how: Shutdown) -> Result<()> {
        each!(self, stream => stream.shutdown(how))
    }

    /// Works as [`Stream::canceller`].
    pub fn canceller(&self) -> TransportCanceller {
        TransportCanceller(match self {
            Transport::Tcp(stream) => Cancels::Socket(stream.canceller()),
            Transport::Unix(stream) => Cancels::Socket(stream.canceller()),
            Transport::Tls(stream) => Cancels::Socket(stream.canceller()),
            Transport::Tunnel(stream) => Cancels::Tunnel(stream.canceller()),
        })
    }

    /// Returns the peer's address; `None` for a Unix socket (its peers rarely have one) and after the end of
    /// the connection.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        match self {
            Transport::Tcp(stream) => stream.peer_addr().ok(),
            Transport::Unix(_) => None,
            Transport::Tls(stream) => stream.peer_addr(),
            Transport::Tunnel(stream) => stream.peer_addr(),
        }
    }

    /// Splits the connection into a receiving and a sending half, for two tasks.
    pub fn split(self) -> (ReadTransport, WriteTransport) {
        match self {
            Transport::Tcp(stream) => {
                let (read, write) = stream.split();
                (ReadTransport::Tcp(read), WriteTransport::Tcp(write))
            }
            Transport::Unix(stream) => {
                let (read, write) = stream.split();
                (ReadTransport::Unix(read), WriteTransport::Unix(write))
            }
            Transport::Tls(stream) => {
                let (read, write) = stream.split();
                (ReadTransport::Tls(Box::new(read)), WriteTransport::Tls(Box::new(write)))
            }
            Transport::Tunnel(stream) => {
                let (read, write) = stream.split();
                (ReadTransport::Tunnel(read), WriteTransport::Tunnel(write))
            }
        }
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        each!(self, stream => stream.fmt(f))
    }
}

impl From<TcpStream> for Transport {
    fn from(stream: TcpStream) -> Transport {
        Transport::Tcp(stream)
    }
}

impl From<TunnelStream> for Transport {
    fn from(stream: TunnelStream) -> Transport {
        Transport::Tunnel(stream)
    }
}

impl From<UnixStream> for Transport {
    fn from(stream: UnixStream) -> Transport {
        Transport::Unix(stream)
    }
}

impl Source for Transport {
    fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Result<Lease>> {
        Transport::poll_recv(self, context)
    }
}

impl Sink for Transport {
    type Sending = TransportSend;

    fn try_write(&mut self, bytes: &[u8]) -> Option<usize> {
        Transport::try_write(self, bytes)
    }

    fn begin_send(&mut self, bytes: Vec<u8>) -> TransportSend {
        match self {
            Transport::Tcp(_) | Transport::Unix(_) => TransportSend::Plain(SendState::new(bytes)),
            Transport::Tls(_) => TransportSend::Tls(TlsSend::new(bytes)),
            Transport::Tunnel(_) => TransportSend::Tunnel(TunnelSend::new(bytes)),
        }
    }

    fn poll_send(
        &mut self,
        send: &mut TransportSend,
        context: &mut Context<'_>,
    ) -> Poll<(Result<()>, Vec<u8>)> {
        match (self, send) {
            (Transport::Tcp(stream), TransportSend::Plain(send)) => stream.poll_send(send, context),
            (Transport::Unix(stream), TransportSend::Plain(send)) => stream.poll_send(send, context),
            (Transport::Tls(stream), TransportSend::Tls(send)) => stream.poll_send(send, context),
            (Transport::Tunnel(stream), TransportSend::Tunnel(send)) => send.poll(stream, context),
            // A send of another kind of connection is impossible: a transport does not change.
            (_, TransportSend::Plain(_) | TransportSend::Tls(_) | TransportSend::Tunnel(_)) => {
                Poll::Ready((Err(tls::not_this_stream()), Vec::new()))
            }
        }
    }

    fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        match self {
            Transport::Tls(stream) => stream.poll_shutdown(context),
            plain => Poll::Ready(plain.shutdown(Shutdown::Write)),
        }
    }
}

/// A send in flight on a [`Transport`], which owns its buffer.
#[derive(Debug)]
pub enum TransportSend {
    /// Plain bytes.
    Plain(SendState<Vec<u8>>),
    /// Encrypted bytes.
    Tls(TlsSend),
    /// Bytes of a stream within an HTTP/2 connection.
    Tunnel(TunnelSend),
}

/// Cancels the waits on a [`Transport`], from other tasks and without owning it.
///
/// For a socket, it cancels the present waits. A stream of an HTTP/2 connection is cancelled permanently, and
/// reset when it is closed.
#[derive(Clone)]
pub struct TransportCanceller(Cancels);

#[derive(Clone)]
enum Cancels {
    Socket(Canceller),
    Tunnel(Weak<dyn Carrier>),
}

impl TransportCanceller {
    /// Requests the cancel. Has no effect on a transport that is closed.
    pub fn cancel(&self) {
        match &self.0 {
            Cancels::Socket(canceller) => canceller.cancel(),
            Cancels::Tunnel(stream) => {
                if let Some(stream) = stream.upgrade() {
                    stream.cancel();
                }
            }
        }
    }

    /// Returns the address of the socket's peer, while it is connected.
    pub(crate) fn peer_addr(&self) -> Option<SocketAddr> {
        match &self.0 {
            Cancels::Socket(canceller) => canceller.peer_addr().ok(),
            Cancels::Tunnel(_) => None,
        }
    }

    /// Returns the socket's own address.
    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        match &self.0 {
            Cancels::Socket(canceller) => canceller.local_addr().ok(),
            Cancels::Tunnel(_) => None,
        }
    }
}

impl fmt::Debug for TransportCanceller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TransportCanceller")
    }
}

/// The receiving half of a [`Transport`].
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadTransport {
    /// Over TCP.
    Tcp(ReadHalf<Inet>),
    /// Over a Unix socket.
    Unix(ReadHalf<Unix>),
    /// TLS over one of them.
    Tls(Box<TlsReadHalf>),
    /// A stream of an HTTP/2 connection.
    Tunnel(TunnelStream),
}

impl ReadTransport {
    /// Works as [`Stream::canceller`].
    pub fn canceller(&self) -> TransportCanceller {
        TransportCanceller(match self {
            ReadTransport::Tcp(half) => Cancels::Socket(half.canceller()),
            ReadTransport::Unix(half) => Cancels::Socket(half.canceller()),
            ReadTransport::Tls(half) => Cancels::Socket(half.canceller()),
            ReadTransport::Tunnel(half) => Cancels::Tunnel(half.canceller()),
        })
    }
}

/// The sending half of a [`Transport`].
#[derive(Debug)]
#[non_exhaustive]
pub enum WriteTransport {
    /// Over TCP.
    Tcp(WriteHalf<Inet>),
    /// Over a Unix socket.
    Unix(WriteHalf<Unix>),
    /// TLS over one of them.
    Tls(Box<TlsWriteHalf>),
    /// A stream of an HTTP/2 connection.
    Tunnel(TunnelStream),
}

impl WriteTransport {
    /// Works as [`Stream::write_all`].
    ///
    /// # Errors
    /// Those of that method.
    pub fn write_all<B: IoBuf + Unpin>(&mut self, bytes: B) -> impl Future<Output = (Result<()>, B)> {
        match self {
            WriteTransport::Tcp(half) => Layered::Plain { future: half.write_all(bytes) },
            WriteTransport::Unix(half) => Layered::Plain { future: half.write_all(bytes) },
            WriteTransport::Tls(half) => Layered::Boxed { future: Box::pin(half.write_all(bytes)) },
            WriteTransport::Tunnel(half) => Layered::Boxed { future: Box::pin(half.write_all(bytes)) },
        }
    }

    /// Works as [`Transport::try_write`].
    #[inline]
    pub fn try_write(&mut self, bytes: &[u8]) -> Option<usize> {
        match self {
            WriteTransport::Tcp(half) => half.try_write(bytes),
            WriteTransport::Unix(half) => half.try_write(bytes),
            WriteTransport::Tls(half) => half.try_write(bytes),
            WriteTransport::Tunnel(half) => half.try_write(bytes),
        }
    }

    /// Works as [`Stream::write_from`].
    ///
    /// # Errors
    /// Those of that method.
    pub fn write_from<B: IoBuf + Unpin>(
        &mut self,
        bytes: B,
        from: usize,
    ) -> impl Future<Output = (Result<usize>, B)> {
        match self {
            WriteTransport::Tcp(half) => Layered::Plain { future: half.write_from(bytes, from) },
            WriteTransport::Unix(half) => Layered::Plain { future: half.write_from(bytes, from) },
            WriteTransport::Tls(half) => Layered::Boxed { future: Box::pin(half.write_from(bytes, from)) },
            WriteTransport::Tunnel(half) => Layered::Boxed { future: Box::pin(half.write_from(bytes, from)) },
        }
    }

    /// Ends the sending side. Over TLS `close_notify` is sent before that, only if it needs no waiting: use
    /// [`finish`](Self::finish) to be sure.
    ///
    /// # Errors
    /// ENOTCONN.
    pub fn shutdown(&mut self) -> Result<()> {
        match self {
            WriteTransport::Tcp(half) => half.shutdown(),
            WriteTransport::Unix(half) => half.shutdown(),
            WriteTransport::Tls(half) => half.shutdown(),
            WriteTransport::Tunnel(half) => half.shutdown(Shutdown::Write),
        }
    }

    /// Ends the sending side: over TLS first with `close_notify`.
    ///
    /// # Errors
    /// The connection has failed.
    pub async fn finish(&mut self) -> Result<()> {
        match self {
            WriteTransport::Tcp(half) => half.shutdown(),
            WriteTransport::Unix(half) => half.shutdown(),
            WriteTransport::Tls(half) => half.finish().await,
            WriteTransport::Tunnel(half) => half.shutdown(Shutdown::Write),
        }
    }

    /// Works as [`Stream::canceller`].
    pub fn canceller(&self) -> TransportCanceller {
        TransportCanceller(match self {
            WriteTransport::Tcp(half) => Cancels::Socket(half.canceller()),
            WriteTransport::Unix(half) => Cancels::Socket(half.canceller()),
            WriteTransport::Tls(half) => Cancels::Socket(half.canceller()),
            WriteTransport::Tunnel(half) => Cancels::Tunnel(half.canceller()),
        })
    }
}

/// A source of bytes: a connection, or its receiving half.
pub trait Receive {
    /// Receives the next bytes; an empty lease means the end. On `Pending` the task is woken when bytes
    /// arrive.
    ///
    /// # Errors
    /// The connection failed, or receiving was cancelled.
    fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Result<Lease>>;

    /// Returns whether nothing can be received now; see [`Stream::is_quiet`]. If `false`, the source cannot
    /// carry another exchange.
    fn is_quiet(&mut self) -> bool;

    /// Receives the next bytes; an empty lease means the end.
    ///
    /// # Errors
    /// As [`poll_recv`](Self::poll_recv).
    fn recv(&mut self) -> impl Future<Output = Result<Lease>> {
        poll_fn(|context| self.poll_recv(context))
    }
}

impl<F: Family> Receive for Stream<F> {
    fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Result<Lease>> {
        Stream::poll_recv(self, context)
    }

    fn is_quiet(&mut self) -> bool {
        Stream::is_quiet(self)
    }
}

impl<F: Family> Receive for ReadHalf<F> {
    fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Result<Lease>> {
        ReadHalf::poll_recv(self, context)
    }

    fn is_quiet(&mut self) -> bool {
        ReadHalf::is_quiet(self)
    }
}

impl Receive for Transport {
    fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Result<Lease>> {
        Transport::poll_recv(self, context)
    }

    fn is_quiet(&mut self) -> bool {
        Transport::is_quiet(self)
    }
}

impl Receive for ReadTransport {
    fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Result<Lease>> {
        match self {
            ReadTransport::Tcp(half) => half.poll_recv(context),
            ReadTransport::Unix(half) => half.poll_recv(context),
            ReadTransport::Tls(half) => half.poll_recv(context),
            ReadTransport::Tunnel(half) => half.poll_recv(context),
        }
    }

    fn is_quiet(&mut self) -> bool {
        match self {
            ReadTransport::Tcp(half) => half.is_quiet(),
            ReadTransport::Unix(half) => half.is_quiet(),
            ReadTransport::Tls(half) => half.is_quiet(),
            ReadTransport::Tunnel(half) => half.is_quiet(),
        }
    }
}
