//! A connection that is handed over to another protocol, with the bytes that were received and not used.
//!
//! The handler answers [`Response::upgrade`](crate::Response::upgrade); the user's code runs the protocol.
//! Whether the client offered it is checked where the answer is written (`server/connection.rs`).

use super::connection::{ConnectionHost, Stopping};
use crate::transport::Transport;
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;

/// A connection after `101 Switching Protocols`. Dropping it closes it.
///
/// It still counts as one of its worker's connections. A stopping server waits for it as long as
/// [`Server::upgraded_grace`](crate::Server::upgraded_grace) allows. HTTP's deadlines do not apply to it.
pub struct Upgraded {
    stream: Transport,
    read: Vec<u8>,
    host: Rc<dyn ConnectionHost>,
}

impl Upgraded {
    pub(crate) fn new(stream: Transport, read: Vec<u8>, host: Rc<dyn ConnectionHost>) -> Upgraded {
        Upgraded { stream, read, host }
    }

    /// Becomes ready when the server stops: time to close the session of the new protocol.
    pub fn stopping(&self) -> Stopping {
        Stopping::new(Some(Rc::clone(&self.host)))
    }

    /// Returns the connection, and the bytes after the request, which belong to the new protocol. Bytes
    /// received from the connection follow them.
    pub fn into_parts(self) -> (Transport, Vec<u8>) {
        (self.stream, self.read)
    }
}

impl fmt::Debug for Upgraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Upgraded({:?}, {} bytes read)", self.stream, self.read.len())
    }
}

/// Runs the protocol on a connection, until it ends.
pub(crate) type Takeover = Box<dyn FnOnce(Upgraded) -> Pin<Box<dyn Future<Output = ()>>>>;

/// The body of a 101 answer: the code that takes the connection over.
pub(crate) struct Switch {
    pub(crate) protocol: Box<str>,
    pub(crate) takeover: Takeover,
}

impl fmt::Debug for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Switch({})", self.protocol)
    }
}
