//! A client: sends requests, receives responses, and keeps connections for reuse.
//!
//! It belongs to one runtime. Start at [`Client`]; [`connection`] has a connection, [`reader`] reads
//! responses.

mod connection;
mod error;
mod failure;
mod follow;
mod http2;
mod jar;
mod kept;
mod location;
mod outgoing;
mod reader;
mod resolve;
mod response;
mod websocket;
mod websocket_http2;

pub use error::ClientError;
pub use failure::{FailedAt, Failure, SentSoFar};
pub use follow::Retries;
pub use http2::{Http2Connection, Http2Request, Http2Response};
pub use jar::CookieJar;
pub use kept::{KeptConnections, keep_for};
pub use reader::{ReadError, ResponseReader};
pub use resolve::addresses;
pub use response::ClientResponse;
pub use websocket::WebSocketRequest;

use crate::message::{Body, Inner as BodyInner};
use crate::tls;
use crate::transport::{HandshakeError, TlsStream, Transport};
use connection::{Connection, Failed};
use follow::Follow;
use ringroad_engine::net::{ConnectOptions, TcpStream, UnixStream, split_zone};
use ringroad_engine::time;
use ringroad_wire::{Asked, BodySize, EncodeError, Encoder, FieldBlock, Limits, Method, Scratch};
#[cfg(feature = "json")]
use serde::Serialize;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Sends requests to servers. Clones share the idle connections: up to 32 for each server and 256 in all,
/// each for up to 30 s after its last exchange. A connection that its server closes is removed at once, even
/// if no further request is made.
///
/// A response may arrive before all of the request is sent: a server refuses the body, or answers while it
/// reads. The response is returned at once, and the body is sent while the response is read. When the
/// response is complete, the rest of the body is not sent, and the connection is closed.
///
/// ```no_run
/// # async fn example() -> Result<(), ringroad_http::ClientError> {
/// use ringroad_http::Client;
///
/// let client = Client::new();
/// let mut response = client.get("http://127.0.0.1:8080/").send().await?;
/// println!("{}: {}", response.status(), response.text().await?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    shared: Rc<Shared>,
    connect_timeout: Duration,
    timeout: Duration,
    /// The socket that all requests go to, whatever their URLs are.
    unix: Option<Arc<Path>>,
    /// TLS settings for `https://`, and their number in this process; `None` means the system's trusted
    /// certificates.
    tls: Option<(u64, tls::Client)>,
    follow: Follow,
}

/// State that a client's clones and responses share.
struct Shared {
    kept: KeptConnections<Server, Transport>,
    scratch: RefCell<Scratch>,
}

/// The target of a connection.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Server {
    at: At,
    /// The expected name of the certificate, and the number of the TLS settings: connections with different
    /// settings are not shared.
    tls: Option<(String, u64)>,
}

/// The address of a server.
#[derive(Clone, PartialEq, Eq, Hash)]
enum At {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

/// The next number of TLS settings; 0 is the system's.
static WAYS: AtomicU64 = AtomicU64::new(1);

/// Maximum number of connections that are kept for one server.
const IDLE_MAX: usize = 32;

/// Maximum number of connections that are kept for all servers together.
const IDLE_OF_ALL_MAX: usize = 256;

/// How long a connection is kept, unless the server states a shorter time.
const IDLE_AGE_MAX: Duration = Duration::from_secs(30);

impl Default for Client {
    fn default() -> Client {
        Client::new()
    }
}

impl Client {
    /// Makes a client that allows 10 s for a connection and 30 s for a whole exchange.
    pub fn new() -> Client {
        let scratch = RefCell::new(Scratch::new(Limits::client()));
        Client {
            shared: Rc::new(Shared { kept: KeptConnections::bounded(IDLE_MAX, IDLE_OF_ALL_MAX), scratch }),
            connect_timeout: Duration::from_secs(10),
            timeout: Duration::from_secs(30),
            unix: None,
            tls: None,
            follow: Follow::default(),
        }
    }

    /// Sets the TLS settings for `https://`: other authorities, a certificate of the client's own. Without
    /// this call the client trusts the system's certificates.
    #[must_use]
    pub fn tls(mut self, client: &tls::Client) -> Client {
        self.tls = Some((WAYS.fetch_add(1, Ordering::Relaxed), client.with_alpn(&[tls::ALPN_HTTP11])));
        self
    }

    /// Sends all requests to the Unix socket at `path`; the host of a URL is only sent as `Host`.
    #[must_use]
    pub fn unix(mut self, path: impl AsRef<Path>) -> Client {
        self.unix = Some(path.as_ref().into());
        self
    }

    /// Sets the limits of answers, for all clones. Without this call they are those of [`Limits::client`].
    #[must_use]
    pub fn limits(self, limits: Limits) -> Client {
        self.shared.scratch.borrow_mut().set_limits(limits);
        self
    }

    /// Sets how long connecting may take.
    #[must_use]
    pub fn connect_timeout(mut self, span: Duration) -> Client {
        self.connect_timeout = span;
        self
    }

    /// Sets how long an exchange may take, from the beginning of the request to the last byte of the
    /// response.
    #[must_use]
    pub fn timeout(mut self, span: Duration) -> Client {
        self.timeout = span;
        self
    }

    /// Begins a GET request.
    pub fn get(&self, url: &str) -> ClientRequest {
        self.request(Method::Get, url)
    }

    /// Begins a POST request.
    pub fn post(&self, url: &str) -> ClientRequest {
        self.request(Method::Post, url)
    }

    /// Begins a PUT request.
    pub fn put(&self, url: &str) -> ClientRequest {
        self.request(Method::Put, url)
    }

    /// Begins a PATCH request.
    pub fn patch(&self, url: &str) -> ClientRequest {
        self.request(Method::Patch, url)
    }

    /// Begins a DELETE request.
    pub fn delete(&self, url: &str) -> ClientRequest {
        self.request(Method::Delete, url)
    }

    /// Begins a HEAD request.
    pub fn head(&self, url: &str) -> ClientRequest {
        self.request(Method::Head, url)
    }

    /// Begins a request with any method; the URL begins with `http://` or `https://`.
    pub fn request(&self, method: Method, url: &str) -> ClientRequest {
        ClientRequest {
            client: self.clone(),
            method,
            url: url.to_owned(),
            fields: FieldBlock::new(),
            body: Body::empty(),
            wrong: None,
        }
    }

    /// Returns the number of idle connections.
    pub fn idle_connections(&self) -> usize {
        self.shared.kept.len()
    }

    /// Returns an idle or a new connection to the server, and whether it was idle.
    async fn connection(&self, server: &Server, fresh: bool) -> Result<(Connection, bool), Failure> {
        if !fresh && let Some(kept) = self.shared.kept.take(server) {
            return Ok((Connection::new(kept), true));
        }
        let mut at = FailedAt::Connect;
        let connected = time::timeout(self.connect_timeout, self.connect(server, &mut at)).await;
        let stream = connected
            .unwrap_or_else(|late| Err(ClientError::TimedOut("connect", late.0)))
            .map_err(|why| Failure::new(at, SentSoFar::Nothing, why))?;
        Ok((Connection::new(stream), false))
    }

    /// Connects and completes the TLS handshake, if there is one.
    async fn connect(&self, server: &Server, at: &mut FailedAt) -> Result<Transport, ClientError> {
        let Some((name, _)) = &server.tls else { return self.connect_plain(&server.at, at).await };
        // Before connecting: without TLS settings a connection would be useless.
        *at = FailedAt::Tls;
        let tls = match &self.tls {
            Some((_, tls)) => tls.clone(),
            None => tls::Client::system().map_err(|why| ClientError::Tls(HandshakeError::Tls(why)))?,
        };
        *at = FailedAt::Connect;
        let stream = self.connect_plain(&server.at, at).await?;
        *at = FailedAt::Tls;
        Ok(TlsStream::connect(stream, &tls, name).await.map_err(ClientError::Tls)?.into())
    }

    /// Connects to the first address that accepts. `at` records the present step.
    async fn connect_plain(&self, server: &At, at: &mut FailedAt) -> Result<Transport, ClientError> {
        let (host, port) = match server {
            At::Unix(path) => return Ok(UnixStream::connect(path.clone()).await?.into()),
            At::Tcp { host, port } => (host, *port),
        };
        *at = FailedAt::Resolve;
        let found = addresses(host, port).await;
        let addresses = found.map_err(|why| ClientError::Resolve { host: host.clone(), why })?;
        *at = FailedAt::Connect;
        let span = self.connect_timeout.min(self.timeout);
        let options = |_| Some(ConnectOptions::default());
        Ok(TcpStream::connect_first(addresses, span, options).await?.into())
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("idle", &self.idle_connections()).finish()
    }
}

/// The target of a request.
struct Target {
    /// The value of `Host`.
    authority: String,
    host: String,
    port: u16,
    path: String,
    is_secure: bool,
}

impl Target {
    fn new(url: &str) -> Result<Target, ClientError> {
        let wrong = |why: &str| ClientError::Url { url: url.to_owned(), why: why.to_owned() };
        let uri: http::Uri = url.parse().map_err(|why: http::uri::InvalidUri| wrong(&why.to_string()))?;
        let is_secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some(_) => return Err(wrong("only http:// and https:// are spoken")),
            None => return Err(wrong("it must begin with http:// or https://")),
        };
        let authority = uri.authority().ok_or_else(|| wrong("it names no host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("a name and password belong in an Authorization header"));
        }
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        // The zone of an address has a meaning only on this machine, and is never sent (RFC 6874 §4).
        let (host, named) = match split_zone(&host) {
            Some((address, zone)) => {
                let port = authority.port().map(|port| format!(":{port}")).unwrap_or_default();
                (format!("{address}%{zone}"), format!("[{address}]{port}"))
            }
            None => (host, authority.as_str().to_owned()),
        };
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let path = if path.starts_with('?') { format!("/{path}") } else { path.to_owned() };
        Ok(Target {
            authority: named,
            host,
            port: authority.port_u16().unwrap_or(if is_secure { 443 } else { 80 }),
            path,
            is_secure,
        })
    }

    fn server(&self, client: &Client) -> Server {
        let at = match &client.unix {
            Some(path) => At::Unix(path.to_path_buf()),
            None => At::Tcp { host: self.host.clone(), port: self.port },
        };
        let way = client.tls.as_ref().map_or(0, |(way, _)| *way);
        Server { at, tls: self.is_secure.then(|| (self.host.clone(), way)) }
    }
}

/// A request to be sent.
///
/// A value goes out as JSON or as a form, and the answer comes back as one:
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use ringroad_http::{Client, Retries};
/// use std::collections::BTreeMap;
///
/// let client = Client::new().redirects(10).retries(Retries::new(3));
/// let note = BTreeMap::from([("text", "hello")]);
/// let mut response = client.post("http://127.0.0.1:8080/notes").json(&note)?.send().await?;
/// let stored: BTreeMap<String, String> = response.json().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "it is not sent before `send` is awaited"]
pub struct ClientRequest {
    client: Client,
    method: Method,
    url: String,
    fields: FieldBlock,
    body: Body,
    /// The first invalid argument.
    wrong: Option<EncodeError>,
}

impl ClientRequest {
    /// Adds a header line. An invalid one is reported when the request is sent.
    pub fn header(mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> ClientRequest {
        if let Err(why) = self.fields.push(name.as_ref(), value.as_ref()) {
            self.wrong = self.wrong.or(Some(why));
        }
        self
    }

    /// Sets the body.
    pub fn body(mut self, body: impl Into<Body>) -> ClientRequest {
        self.body = body.into();
        self
    }

    /// Sets the body to this value as JSON.
    ///
    /// # Errors
    /// The value cannot be serialised.
    #[cfg(feature = "json")]
    pub fn json(self, value: &(impl Serialize + ?Sized)) -> Result<ClientRequest, ClientError> {
        let bytes = serde_json::to_vec(value).map_err(|why| ClientError::Body(Box::new(why)))?;
        Ok(self.header("Content-Type", "application/json").body(bytes))
    }

    /// Sends the request, and waits for the head of the response.
    ///
    /// If a kept connection turns out to be closed, a request that may be repeated (RFC 9110 §9.2.2) is sent
    /// once more on a new one.
    ///
    /// # Errors
    /// The URL is invalid, nothing listens there, the timeout has passed, or the answer is invalid. The
    /// failure has the step that failed, and how much of the request was sent by then.
    pub async fn send(self) -> Result<ClientResponse, Failure> {
        let span = self.client.timeout;
        // A span beyond the clock's range means no deadline.
        let deadline = Instant::now().checked_add(span);
        let reached = Cell::new((FailedAt::Request, SentSoFar::Nothing));
        let sent = time::timeout(span, self.send_following(deadline, &reached)).await;
        sent.unwrap_or_else(|late| {
            let (at, sent) = reached.get();
            Err(Failure::new(at, sent, ClientError::TimedOut("request", late.0)))
        })
    }

    async fn send_by(
        self,
        deadline: Option<Instant>,
        reached: &Cell<(FailedAt, SentSoFar)>,
    ) -> Result<ClientResponse, Failure> {
        let ClientRequest { client, method, url, fields, body, wrong } = self;
        let of_request = Failure::of_request;
        if let Some(why) = wrong {
            return Err(of_request(ClientError::Request(why)));
        }
        let target = Target::new(&url).map_err(of_request)?;
        let server = target.server(&client);
        let size = body.size().map_or(BodySize::Unknown, BodySize::Known);
        let mut out = Vec::new();
        let head = Encoder::request(&mut out, method, &target.path, &target.authority);
        let mut head = head.map_err(|why| of_request(ClientError::Request(why)))?;
        head.block(&fields);
        let mut encoder = head.finish(size);
        // A server that ignores the body of such a request parses it as the next request (request smuggling,
        // CL.0). Its answer to that would be taken for the answer to the next request.
        let bare = matches!(
            method,
            Method::Get | Method::Head | Method::Options | Method::Delete | Method::Trace | Method::Connect
        );
        let reusable = !bare || body.is_empty();
        let pieces = match body.0 {
            // Only a response hands a connection over.
            BodyInner::Empty | BodyInner::Switch(_) => None,
            BodyInner::Whole(chunk) => {
                encoder.data(&mut out, &chunk).map_err(|why| of_request(ClientError::Request(why)))?;
                None
            }
            BodyInner::File(part) => Some(Box::new(part.into_pieces())),
            BodyInner::Stream(pieces) => Some(pieces),
        };
        let respond = |connection, head| {
            let server = reusable.then_some(server.clone());
            ClientResponse::new(client.clone(), server, connection, head, deadline)
        };
        let (scratch, asked) = (&client.shared.scratch, Asked::from(method));
        if let Some(pieces) = pieces {
            reached.set((FailedAt::Connect, SentSoFar::Nothing));
            // A stream yields each piece once, so it is sent on a new connection.
            let (mut connection, _) = client.connection(&server, true).await?;
            let head = connection.ask(out, Some((*pieces, encoder)), scratch, asked, reached).await;
            return match head {
                Ok(head) => Ok(respond(connection, head).await),
                Err(why) => Err(failed(why, reached)),
            };
        }
        encoder.end(&mut out).map_err(|why| of_request(ClientError::Request(why)))?;
        let mut fresh = false;
        loop {
            reached.set((FailedAt::Connect, SentSoFar::Nothing));
            let (mut connection, kept) = client.connection(&server, fresh).await?;
            let head = connection.ask(out, None, scratch, asked, reached).await;
            let (at, sent) = reached.get();
            match head {
                Ok(head) => return Ok(respond(connection, head).await),
                // A server may close an idle connection at any time, so this is not an error of the server.
                Err(Failed::Unanswered(_)) if kept && at.may_repeat(sent, method) => {
                    out = connection.into_request().await;
                    fresh = true;
                }
                Err(why) => return Err(failed(why, reached)),
            }
        }
    }
}

/// Returns the failure of a request that reached this step.
fn failed(why: Failed, reached: &Cell<(FailedAt, SentSoFar)>) -> Failure {
    let (at, sent) = reached.get();
    match why {
        Failed::Unanswered(why) => Failure::new(at, sent, why),
        why => Failure::new(why.at(), sent, why.into_error()),
    }
}

impl fmt::Debug for ClientRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.url)
    }
}
