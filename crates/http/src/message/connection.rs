//! Facts about a request's connection.
//!
//! A request holds the number of its connection and a reference to its worker ([`ConnectionHost`]). So it
//! costs no allocation, and an idle connection no memory. The worker looks the facts up on demand.

use super::interim::Interim;
use ringroad_wire::{Method, Status};
use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The number of a connection of a worker, with a generation: a reused slot is another connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ConnectionId {
    pub(crate) index: u32,
    pub(crate) visit: u32,
}

impl ConnectionId {
    /// No connection.
    pub(crate) const NONE: ConnectionId = ConnectionId { index: u32::MAX, visit: 0 };
}

/// Facts about a connection besides its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionInfo {
    /// The client's address: the peer's, or the one in a PROXY header from a trusted address. `None` for a
    /// Unix socket without such a header.
    pub client: Option<SocketAddr>,
    /// The address that the client connected to, if a PROXY header contains it.
    pub server: Option<SocketAddr>,
    /// The other end of the socket, which may be a proxy. `None` for a Unix socket.
    pub peer: Option<SocketAddr>,
    /// Results of the TLS handshake: version, cipher suite, names, the verified client.
    pub tls: Option<Arc<crate::tls::Info>>,
}

/// What happens to a handler if its client leaves before the answer. A client has left if it has reset the
/// connection or the stream, or has ended its sending side for longer than
/// [`Deadlines::half_close`](crate::Deadlines::half_close).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnClientGone {
    /// The handler of a safe method (GET, HEAD, OPTIONS, TRACE: RFC 9110 §9.2.1) is dropped: its answer can
    /// reach no client. Others go on.
    #[default]
    CancelSafe,
    /// Every handler is dropped.
    Cancel,
    /// No handler is dropped.
    Finish,
}

impl OnClientGone {
    /// Returns whether the handler of a request with this method is dropped.
    pub(crate) fn cancels(self, method: Method) -> bool {
        match self {
            OnClientGone::Cancel => true,
            OnClientGone::CancelSafe => {
                matches!(method, Method::Get | Method::Head | Method::Options | Method::Trace)
            }
            OnClientGone::Finish => false,
        }
    }
}

/// A rule for one request, in place of the server's. It holds until this is dropped, with the request.
pub(super) struct GoneRule {
    host: Rc<dyn ConnectionHost>,
    id: ConnectionId,
}

impl GoneRule {
    pub(super) fn new(host: &Rc<dyn ConnectionHost>, id: ConnectionId, what: OnClientGone) -> GoneRule {
        host.set_on_client_gone(id, Some(what));
        GoneRule { host: Rc::clone(host), id }
    }
}

impl Drop for GoneRule {
    fn drop(&mut self) {
        self.host.set_on_client_gone(self.id, None);
    }
}

/// The owner of connections, which provides facts about them.
pub(crate) trait ConnectionHost {
    /// Returns facts about a connection; `None` after its end.
    fn info(&self, id: ConnectionId) -> Option<ConnectionInfo>;
    /// Returns the address that the client connected to.
    fn local(&self, id: ConnectionId) -> Option<SocketAddr>;
    /// Ready when the client has left, or the connection is over.
    fn poll_gone(&self, id: ConnectionId, waiter: &mut Option<u64>, context: &mut Context<'_>) -> Poll<()>;
    /// Ready when the server stops.
    fn poll_stopping(&self, waiter: &mut Option<u64>, context: &mut Context<'_>) -> Poll<()>;
    /// Queues an interim head, which is sent when the handler waits, or before its response. Returns `false`
    /// if it will not be sent.
    fn inform(&self, id: ConnectionId, interim: Interim) -> bool;
    /// Returns the status of the refusal that takes the place of the handler's response.
    fn refusing(&self, id: ConnectionId) -> Option<Status>;
    /// Sets what happens to the handler when the client leaves; `None` means the server's rule.
    fn set_on_client_gone(&self, id: ConnectionId, what: Option<OnClientGone>);
    /// Removes a waiter that is not polled any more.
    fn forget(&self, id: ConnectionId, waiter: u64);
}

/// The facts of a connection, for a request that outlives it.
pub(crate) struct Remembered {
    pub(crate) info: ConnectionInfo,
    pub(crate) local: Option<SocketAddr>,
}

impl ConnectionHost for Remembered {
    fn info(&self, _: ConnectionId) -> Option<ConnectionInfo> {
        Some(self.info.clone())
    }

    fn local(&self, _: ConnectionId) -> Option<SocketAddr> {
        self.local
    }

    fn poll_gone(&self, _: ConnectionId, _: &mut Option<u64>, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }

    fn poll_stopping(&self, _: &mut Option<u64>, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }

    fn refusing(&self, _: ConnectionId) -> Option<Status> {
        None
    }

    // The client of the first request has its answer, or has left.
    fn inform(&self, _: ConnectionId, _: Interim) -> bool {
        false
    }

    fn set_on_client_gone(&self, _: ConnectionId, _: Option<OnClientGone>) {}

    fn forget(&self, _: ConnectionId, _: u64) {}
}

/// Future of [`Request::client_gone`](crate::Request::client_gone).
#[must_use = "futures do nothing unless awaited"]
pub struct ClientGone {
    host: Option<Rc<dyn ConnectionHost>>,
    id: ConnectionId,
    waiter: Option<u64>,
}

impl ClientGone {
    pub(crate) fn new(host: Option<Rc<dyn ConnectionHost>>, id: ConnectionId) -> ClientGone {
        ClientGone { host, id, waiter: None }
    }
}

impl Future for ClientGone {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        match &this.host {
            Some(host) => host.poll_gone(this.id, &mut this.waiter, context),
            // A request without a connection has no client that could disconnect.
            None => Poll::Pending,
        }
    }
}

impl Drop for ClientGone {
    fn drop(&mut self) {
        if let (Some(host), Some(waiter)) = (&self.host, self.waiter) {
            host.forget(self.id, waiter);
        }
    }
}

impl fmt::Debug for ClientGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientGone")
    }
}

/// Future of [`Request::stopping`](crate::Request::stopping) and
/// [`Upgraded::stopping`](crate::Upgraded::stopping).
#[must_use = "futures do nothing unless awaited"]
pub struct Stopping {
    host: Option<Rc<dyn ConnectionHost>>,
    waiter: Option<u64>,
}

impl Stopping {
    pub(crate) fn new(host: Option<Rc<dyn ConnectionHost>>) -> Stopping {
        Stopping { host, waiter: None }
    }
}

impl Future for Stopping {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        match &this.host {
            Some(host) => host.poll_stopping(&mut this.waiter, context),
            None => Poll::Pending,
        }
    }
}

impl Drop for Stopping {
    fn drop(&mut self) {
        if let (Some(host), Some(waiter)) = (&self.host, self.waiter) {
            host.forget(ConnectionId::NONE, waiter);
        }
    }
}

impl fmt::Debug for Stopping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stopping")
    }
}
