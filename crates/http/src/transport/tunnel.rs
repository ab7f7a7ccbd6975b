//! A stream within a connection as a transport of its own: it carries another protocol over HTTP/2 (RFC
//! 8441).
//!
//! The protocol under it implements [`Carrier`]; this file depends on none. A stream ends as a connection
//! does: it is shut down for each direction, and closed when its last owner is dropped.

use crate::tls::Info;
use ringroad_engine::net::PeerGone;
use ringroad_engine::{Error, FilePart, IoBuf, Lease, Result};
use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Maximum number of bytes of a file that are read and sent at a time.
const STEP_BYTES: usize = 64 * 1024;

/// The protocol under such a stream.
pub(crate) trait Carrier {
    /// Returns the next bytes; an empty lease means the end.
    fn poll_recv(&self, context: &mut Context<'_>) -> Poll<Result<Lease>>;
    /// Ready when the peer has ended the stream or reset it. Takes no bytes.
    fn poll_hangup(&self, context: &mut Context<'_>) -> Poll<Result<PeerGone>>;
    /// Takes as many bytes as there is room for; `None` if there is no room, or the stream is over.
    fn try_write(&self, bytes: &[u8]) -> Option<usize>;
    /// Takes some bytes when there is room.
    fn poll_write(&self, bytes: &[u8], context: &mut Context<'_>) -> Poll<Result<usize>>;
    /// Ends one direction, or both.
    fn shutdown(&self, how: Shutdown);
    /// Fails present waits and later calls with ECANCELED.
    fn cancel(&self);
    /// Called when the last owner is dropped.
    fn close(&self);
}

/// State that the owners of a stream share.
struct Shared {
    carrier: Rc<dyn Carrier>,
    /// Received bytes that did not fit the caller's buffer.
    early: RefCell<Vec<u8>>,
    peer: Option<SocketAddr>,
    tls: Option<Arc<Info>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.carrier.close();
    }
}

/// A stream of an HTTP/2 connection that carries another protocol (RFC 8441).
///
/// The end of one side is END_STREAM; a cancelled stream is reset (`CANCEL`). Flow control makes the peer
/// wait while nothing is received here, and makes a send wait while the peer takes nothing.
pub struct TunnelStream(Rc<Shared>);

impl TunnelStream {
    pub(crate) fn new(
        carrier: Rc<dyn Carrier>,
        peer: Option<SocketAddr>,
        tls: Option<Arc<Info>>,
    ) -> TunnelStream {
        TunnelStream(Rc::new(Shared { carrier, early: RefCell::default(), peer, tls }))
    }

    fn carrier(&self) -> &dyn Carrier {
        &*self.0.carrier
    }

    pub(super) fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Result<Lease>> {
        let early = std::mem::take(&mut *self.0.early.borrow_mut());
        if !early.is_empty() {
            return Poll::Ready(Ok(Lease::from(early)));
        }
        self.carrier().poll_recv(context)
    }

    /// Works as [`Transport::is_quiet`](super::Transport::is_quiet).
    pub(super) fn is_quiet(&mut self) -> bool {
        self.0.early.borrow().is_empty()
            && self.carrier().poll_recv(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    /// Keeps received bytes for the next receive.
    pub(super) fn keep(&mut self, rest: Lease) {
        *self.0.early.borrow_mut() = Vec::from(rest);
    }

    pub(super) fn poll_hangup(&self, context: &mut Context<'_>) -> Poll<Result<PeerGone>> {
        self.carrier().poll_hangup(context)
    }

    pub(super) fn try_write(&mut self, bytes: &[u8]) -> Option<usize> {
        self.carrier().try_write(bytes)
    }

    pub(super) fn poll_write(&self, bytes: &[u8], context: &mut Context<'_>) -> Poll<Result<usize>> {
        self.carrier().poll_write(bytes, context)
    }

    async fn send_all(&self, bytes: &[u8]) -> Result<()> {
        let mut from = 0;
        while let Some(rest) = bytes.get(from..).filter(|rest| !rest.is_empty()) {
            from += poll_fn(|context| self.poll_write(rest, context)).await?;
        }
        Ok(())
    }

    pub(super) async fn write_all<B: IoBuf>(&self, bytes: B) -> (Result<()>, B) {
        (self.send_all(bytes.bytes()).await, bytes)
    }

    pub(super) async fn write_from<B: IoBuf>(&self, bytes: B, from: usize) -> (Result<usize>, B) {
        let rest = bytes.bytes().get(from..).unwrap_or_default();
        let sent = match rest.is_empty() {
            true => Ok(0),
            false => poll_fn(|context| self.poll_write(rest, context)).await,
        };
        (sent.map(|sent| from + sent), bytes)
    }

    pub(super) async fn write_vectored_all<B: IoBuf>(&self, buffers: Vec<B>) -> (Result<()>, Vec<B>) {
        let mut sent = Ok(());
        for bytes in &buffers {
            sent = self.send_all(bytes.bytes()).await;
            if sent.is_err() {
                break;
            }
        }
        (sent, buffers)
    }

    pub(super) async fn send_file(&self, mut part: FilePart) -> (Result<usize>, FilePart) {
        let mut buffer = vec![0; STEP_BYTES];
        let sent = match part.read(&mut buffer) {
            Ok(bytes) => self.send_all(buffer.get(..bytes).unwrap_or_default()).await.map(|()| bytes),
            Err(why) => Err(Error::layered("pread", why)),
        };
        (sent, part)
    }

    pub(super) fn shutdown(&self, how: Shutdown) -> Result<()> {
        self.carrier().shutdown(how);
        Ok(())
    }

    pub(super) fn sends_without_copy(&self, _: usize) -> bool {
        false
    }

    pub(super) fn peer_addr(&self) -> Option<SocketAddr> {
        self.0.peer
    }

    /// Returns the results of the connection's TLS handshake.
    pub(super) fn info(&self) -> Option<&Arc<Info>> {
        self.0.tls.as_ref()
    }

    pub(super) fn canceller(&self) -> Weak<dyn Carrier> {
        Rc::downgrade(&self.0.carrier)
    }

    /// Returns an owner for each direction.
    pub(super) fn split(self) -> (TunnelStream, TunnelStream) {
        let read = TunnelStream(Rc::clone(&self.0));
        (read, self)
    }
}

/// A send in flight, which owns its bytes.
#[derive(Debug)]
pub struct TunnelSend {
    bytes: Vec<u8>,
    from: usize,
}

impl TunnelSend {
    pub(super) fn new(bytes: Vec<u8>) -> TunnelSend {
        TunnelSend { bytes, from: 0 }
    }

    pub(super) fn poll(
        &mut self,
        stream: &TunnelStream,
        context: &mut Context<'_>,
    ) -> Poll<(Result<()>, Vec<u8>)> {
        while let Some(rest) = self.bytes.get(self.from..).filter(|rest| !rest.is_empty()) {
            match stream.poll_write(rest, context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(sent)) => self.from += sent,
                Poll::Ready(Err(why)) => return Poll::Ready((Err(why), std::mem::take(&mut self.bytes))),
            }
        }
        Poll::Ready((Ok(()), std::mem::take(&mut self.bytes)))
    }
}

/// Returns the error of a stream that its peer has reset, or that ended with its connection.
#[cold]
pub(crate) fn reset(operation: &'static str) -> Error {
    Error::layered(operation, io::ErrorKind::ConnectionReset.into())
}

/// Returns the error of a stream that was cancelled.
#[cold]
pub(crate) fn cancelled(operation: &'static str) -> Error {
    let errno = rustix::io::Errno::CANCELED.raw_os_error();
    Error::layered(operation, io::Error::from_raw_os_error(errno))
}

impl fmt::Debug for TunnelStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TunnelStream({:?})", self.0.peer)
    }
}
