//! A connector for the pooled client of hyper-util.

use crate::duplex::Duplex;
use crate::io::Io;
use crate::local::Local;
use hyper::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use ringroad_engine::net::TcpStream;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tower_service::Service;

/// Opens connections for `hyper_util::client::legacy::Client`, by name or address, on the runtime that the
/// request is made on. Requires the feature `client`.
///
/// ```no_run
/// use http_body_util::Empty;
/// use hyper_util::client::legacy::Client;
/// use ringroad_bridge::{Clock, Connector, LocalExecutor};
/// # ringroad_engine::run(async {
/// let mut builder = Client::builder(LocalExecutor);
/// let client = builder.pool_timer(Clock).timer(Clock).build(Connector::new());
/// # let client: Client<_, Empty<bytes::Bytes>> = client;
/// let response = client.get("http://localhost:8080/".parse()?).await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })??;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A connection lives on the runtime that opened it, and ends with it: give each runtime a client of its own.
///
/// For other streams, write a connector of your own: a service from a [`Uri`] to a `Local<Io<S>>`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Connector {
    is_below_tls: bool,
}

impl Connector {
    /// Returns a connector for `http://`. An `https://` URL is an error, because it would be requested
    /// without TLS.
    pub fn new() -> Connector {
        Connector::default()
    }

    /// Returns a connector that a TLS connector wraps. The wrapper adds TLS for `https://`.
    pub fn below_tls() -> Connector {
        Connector { is_below_tls: true }
    }

    /// Returns `host:port` of a URL.
    fn place(self, uri: &Uri) -> io::Result<String> {
        let refused = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, format!("{uri}: {why}"));
        let port = match uri.scheme_str() {
            Some("http") => 80,
            Some("https") if self.is_below_tls => 443,
            Some("https") => {
                return Err(refused("no TLS here: put a TLS connector over `Connector::below_tls()`"));
            }
            _ => return Err(refused("expected `http://` or `https://`")),
        };
        let host = uri.host().ok_or_else(|| refused("no host"))?;
        Ok(format!("{host}:{}", uri.port_u16().unwrap_or(port)))
    }
}

impl Service<Uri> for Connector {
    type Response = Local<Io<TcpStream>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let place = self.place(&uri);
        Box::pin(Local::new(async move {
            let stream = TcpStream::connect_to(place?).await?;
            Ok(Local::new(Io::gathering(stream)))
        }))
    }
}

impl<S: Duplex> Connection for Local<Io<S>> {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}
