//! A connection that speaks another protocol from now on: handed over, with what was received and not used.
//!
//! The handler answers [`Response::upgrade`](crate::Response::upgrade); what is done with the connection is the
//! user's. Whether the client offered that is decided where the answer is written (`server/connection.rs`).

use ringroad_engine::net::TcpStream;
use std::fmt;
use std::pin::Pin;

/// A connection after `101 Switching Protocols`. Dropping it closes it.
///
/// It still counts as one of the server's: a server that stops waits for it as it waits for requests, and its worker
/// counts it among its connections. HTTP's deadlines are over for it.
#[derive(Debug)]
pub struct Upgraded {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Upgraded {
    pub(crate) fn new(stream: TcpStream, read: Vec<u8>) -> Upgraded {
        Upgraded { stream, read }
    }

    /// The connection, and the bytes that came behind the request and belong to the new protocol: what is received
    /// next comes behind them.
    pub fn into_parts(self) -> (TcpStream, Vec<u8>) {
        (self.stream, self.read)
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
