//! A byte connection to a store.

use ringroad_bridge::Sink as _;
use ringroad_engine::net::{ConnectOptions, TcpStream, UnixStream};
use ringroad_http::{TlsStream, Transport, TransportSend, addresses};
use std::fmt;
use std::path::PathBuf;
use std::task::{Context, Poll};

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A name or an address, and a port.
    Tcp(String, u16),
    /// A Unix socket.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp(host, port) => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Maximum size of a buffer that is kept for the next write.
const SPARE_BYTES_MAX: usize = 64 << 10;

/// A connection, and received bytes that are not used yet.
pub(crate) struct Pipe {
    transport: Transport,
    kept: Vec<u8>,
    sending: Option<TransportSend>,
    spare: Vec<u8>,
}

impl Pipe {
    pub(crate) fn new(transport: Transport) -> Pipe {
        Pipe { transport, kept: Vec::new(), sending: None, spare: Vec::new() }
    }

    /// Connects to a server, without TLS.
    pub(crate) async fn connect(to: &Address) -> Result<Pipe, String> {
        let (host, port) = match to {
            Address::Unix(path) => {
                let connected = UnixStream::connect(path.clone()).await;
                return connected.map(|stream| Pipe::new(stream.into())).map_err(|why| why.to_string());
            }
            Address::Tcp(host, port) => (host, *port),
        };
        let found = addresses(host, port).await;
        let addresses = found.map_err(|why| format!("resolve, on {host:?}: {why}"))?;
        let connected = TcpStream::connect_any(addresses, ConnectOptions::default()).await;
        connected.map(|stream| Pipe::new(stream.into())).map_err(|why| why.to_string())
    }

    /// Switches to TLS. No received bytes may be left, and no send may be in flight.
    pub(crate) async fn secure(self, client: &ringroad_tls::Client, name: &str) -> Result<Pipe, String> {
        let secured = TlsStream::connect(self.transport, client, name).await;
        secured.map(|stream| Pipe::new(stream.into())).map_err(|why| why.to_string())
    }

    /// Returns the received bytes that are not used yet.
    pub(crate) fn kept(&self) -> &[u8] {
        &self.kept
    }

    /// Marks received bytes as used.
    pub(crate) fn used(&mut self, bytes: usize) {
        self.kept.drain(..bytes);
    }

    /// Receives more bytes after the kept ones.
    pub(crate) fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<Result<(), String>> {
        match self.transport.poll_recv(context) {
            Poll::Pending => {
                if self.kept.is_empty() && self.kept.capacity() > SPARE_BYTES_MAX {
                    self.kept = Vec::new();
                }
                Poll::Pending
            }
            Poll::Ready(Ok(lease)) if lease.is_empty() => Poll::Ready(Err("the server closed it".to_owned())),
            Poll::Ready(Ok(lease)) => {
                self.kept.extend_from_slice(&lease);
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(why)) => Poll::Ready(Err(why.to_string())),
        }
    }

    /// Sends `out` and empties it. While a send is in flight, `out` is kept for the next one.
    pub(crate) fn poll_write(&mut self, out: &mut Vec<u8>, context: &mut Context<'_>) -> Result<(), String> {
        loop {
            let Pipe { transport, sending, spare, .. } = self;
            if sending.is_none() {
                if out.is_empty() {
                    return Ok(());
                }
                let bytes = std::mem::replace(out, std::mem::take(spare));
                *sending = Some(transport.begin_send(bytes));
            }
            let Some(under_way) = sending else { return Ok(()) };
            match transport.poll_send(under_way, context) {
                Poll::Pending => return Ok(()),
                Poll::Ready((sent, mut buffer)) => {
                    *sending = None;
                    sent.map_err(|why| why.to_string())?;
                    if buffer.capacity() <= SPARE_BYTES_MAX {
                        buffer.clear();
                        *spare = buffer;
                    }
                }
            }
        }
    }
}
