//! A connection that speaks another protocol from now on: handed over, with what was received and not used.
//!
//! The handler answers [`Response::upgrade`](crate::Response::upgrade); what is done with the connection is
//! the user's. Whether the client offered that is decided where the answer is written
//! (`server/connection.rs`).

use super::connection::{ConnectionHost, Stopping};
use crate::transport::Transport;
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;

/// A connection after `101 Switching Protocols`. Dropping it closes it.
///
/// It still counts as one of the server's: its worker counts it among its connections, and a server that
/// stops waits for it as long as [`Server::upgraded_grace`](crate::Server::upgraded_grace) says. HTTP's
/// deadlines are over for it.
pub struct Upgraded {
    stream: Transport,
    read: Vec<u8>,
    host: Rc<dyn ConnectionHost>,
}

impl Upgraded {
    pub(crate) fn new(stream: Transport, read: Vec<u8>, host: Rc<dyn ConnectionHost>) -> Upgraded {
        Upgraded { stream, read, host }
    }

    /// Becomes ready when the server stops: time to say good-bye in the new protocol.
    pub fn stopping(&self) -> Stopping {
        Stopping::new(Some(Rc::clone(&self.host)))
    }

    /// Returns the connection, and the bytes that came behind the request and belong to the new protocol:
    /// what is received next comes behind them.
    pub fn into_parts(self) -> (Transport, Vec<u8>) {
        (self.stream, self.read)
    }
}

impl fmt::Debug for Upgraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Upgraded({:?}, {} bytes read)", self.stream, self.read.len())
    }
}

/// Does something with a connection, until it is over.
pub(crate) type Takeover = Box<dyn FnOnce(Upgraded) -> Pin<Box<dyn Future<Output = ()>>>>;

/// The body of an answer of 101: none, but what follows it.
pub(crate) struct Switch {
    pub(crate) protocol: Box<str>,
    pub(crate) takeover: Takeover,
}

impl fmt::Debug for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Switch({})", self.protocol)
    }
}
