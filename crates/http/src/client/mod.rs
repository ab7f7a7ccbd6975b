//! A client: requests out, responses in, connections kept for the next.
//!
//! It belongs to one runtime. Start at [`Client`]; a connection is in [`connection`], how responses are read in [`reader`].

mod connection;
mod reader;
mod response;

pub use reader::{ReadError, Receive, ResponseReader, gather};
pub use response::ClientResponse;

use crate::body::{Body, Inner as BodyInner};
use crate::error::ClientError;
use connection::{Connection, Failed};
use ringroad_engine::net::TcpStream;
use ringroad_engine::{spawn_blocking, time};
use ringroad_wire::{BodySize, EncodeError, Encoder, FieldBlock, Limits, Method, Scratch};
use serde::Serialize;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Asks servers. Clones share the connections that are kept.
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
}

/// What a client's clones and its responses share.
struct Shared {
    /// By host and port.
    idle: RefCell<HashMap<String, Vec<Idle>>>,
    scratch: RefCell<Scratch>,
}

/// A connection nobody uses now.
struct Idle {
    stream: TcpStream,
    since: Instant,
}

/// Most connections that are kept for one server.
const IDLE_MAX: usize = 32;

/// A connection that was not used for so long is not used again: the server is about to close it.
const IDLE_AGE_MAX: Duration = Duration::from_secs(30);

impl Default for Client {
    fn default() -> Client {
        Client::new()
    }
}

impl Client {
    /// One that gives a connection 10 s and a whole exchange 30 s.
    pub fn new() -> Client {
        let scratch = RefCell::new(Scratch::new(Limits::client()));
        Client {
            shared: Rc::new(Shared { idle: RefCell::default(), scratch }),
            connect_timeout: Duration::from_secs(10),
            timeout: Duration::from_secs(30),
        }
    }

    /// The same, with this long to connect.
    #[must_use]
    pub fn connect_timeout(mut self, span: Duration) -> Client {
        self.connect_timeout = span;
        self
    }

    /// The same, with this long from the beginning of a request to the last byte of its response.
    #[must_use]
    pub fn timeout(mut self, span: Duration) -> Client {
        self.timeout = span;
        self
    }

    /// GET.
    pub fn get(&self, url: &str) -> ClientRequest {
        self.request(Method::Get, url)
    }

    /// POST.
    pub fn post(&self, url: &str) -> ClientRequest {
        self.request(Method::Post, url)
    }

    /// Any method; the URL begins with `http://`.
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

    /// Connections that are kept now.
    pub fn idle_connections(&self) -> usize {
        self.shared.idle.borrow().values().map(Vec::len).sum()
    }

    /// A connection to the server: one that was kept, or a new one; and whether it was kept.
    async fn connection(&self, target: &Target, fresh: bool) -> Result<(Connection, bool), ClientError> {
        while !fresh && let Some(idle) = self.shared.take(&target.authority) {
            let mut connection = Connection::new(idle.stream);
            if idle.since.elapsed() < IDLE_AGE_MAX && connection.is_quiet().await {
                return Ok((connection, true));
            }
        }
        let connect = async {
            let mut last = None;
            for address in target.addresses().await? {
                match TcpStream::connect(address).await {
                    Ok(stream) => return Ok(stream),
                    Err(why) => last = Some(why),
                }
            }
            Err(last.map_or_else(
                || ClientError::Resolve {
                    host: target.host.clone(),
                    why: std::io::Error::other("it has no address"),
                },
                ClientError::Connection,
            ))
        };
        let connected = time::timeout(self.connect_timeout, connect).await;
        let stream = connected.map_err(|late| ClientError::TimedOut("connect", late.0))??;
        Ok((Connection::new(stream), false))
    }
}

impl Shared {
    fn take(&self, authority: &str) -> Option<Idle> {
        self.idle.borrow_mut().get_mut(authority)?.pop()
    }

    fn keep(&self, authority: String, stream: TcpStream) {
        let mut all = self.idle.borrow_mut();
        let idle = all.entry(authority).or_default();
        if idle.len() < IDLE_MAX {
            idle.push(Idle { stream, since: Instant::now() });
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("idle", &self.idle_connections()).finish()
    }
}

/// Where a request goes.
struct Target {
    /// As `Host` says it.
    authority: String,
    host: String,
    port: u16,
    path: String,
}

impl Target {
    fn new(url: &str) -> Result<Target, ClientError> {
        let wrong = |why: &str| ClientError::Url { url: url.to_owned(), why: why.to_owned() };
        let uri: http::Uri = url.parse().map_err(|why: http::uri::InvalidUri| wrong(&why.to_string()))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some(_) => return Err(wrong("only http:// is spoken (put a proxy before what speaks TLS)")),
            None => return Err(wrong("it must begin with http://")),
        }
        let authority = uri.authority().ok_or_else(|| wrong("it names no host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("a name and password belong in an Authorization header"));
        }
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let path = if path.starts_with('?') { format!("/{path}") } else { path.to_owned() };
        Ok(Target {
            authority: authority.as_str().to_owned(),
            host,
            port: authority.port_u16().unwrap_or(80),
            path,
        })
    }

    async fn addresses(&self) -> Result<Vec<SocketAddr>, ClientError> {
        if let Ok(address) = self.host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::from((address, self.port))]);
        }
        let name = (self.host.clone(), self.port);
        let found = spawn_blocking(move || name.to_socket_addrs().map(Iterator::collect)).await;
        let failed = |why| ClientError::Resolve { host: self.host.clone(), why };
        found.map_err(|why| failed(std::io::Error::other(why.to_string())))?.map_err(failed)
    }
}

/// A request to be sent.
#[must_use = "it is not sent before `send` is awaited"]
pub struct ClientRequest {
    client: Client,
    method: Method,
    url: String,
    fields: FieldBlock,
    body: Body,
    /// What was given wrongly.
    wrong: Option<EncodeError>,
}

impl ClientRequest {
    /// The same with one more header line; what is wrong with it is said when the request is sent.
    pub fn header(mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> ClientRequest {
        if let Err(why) = self.fields.push(name.as_ref(), value.as_ref()) {
            self.wrong = self.wrong.or(Some(why));
        }
        self
    }

    /// The same with this body.
    pub fn body(mut self, body: impl Into<Body>) -> ClientRequest {
        self.body = body.into();
        self
    }

    /// The same with this value as JSON.
    ///
    /// # Errors
    /// It cannot be written as such.
    pub fn json(self, value: &(impl Serialize + ?Sized)) -> Result<ClientRequest, ClientError> {
        let bytes = serde_json::to_vec(value).map_err(|why| ClientError::Body(Box::new(why)))?;
        Ok(self.header("Content-Type", "application/json").body(bytes))
    }

    /// Sends it, and waits for the head of the response.
    ///
    /// A request that may be repeated (RFC 9110 §9.2.2), on a connection that was kept and turns out to be closed,
    /// is sent once more on a new one.
    ///
    /// # Errors
    /// The URL is wrong, nobody is there, it takes too long, or the answer is not one.
    pub async fn send(self) -> Result<ClientResponse, ClientError> {
        let (span, deadline) = (self.client.timeout, Instant::now() + self.client.timeout);
        let sent = time::timeout(span, self.send_by(deadline)).await;
        sent.map_err(|late| ClientError::TimedOut("request", late.0))?
    }

    async fn send_by(self, deadline: Instant) -> Result<ClientResponse, ClientError> {
        let ClientRequest { client, method, url, fields, body, wrong } = self;
        if let Some(why) = wrong {
            return Err(ClientError::Request(why));
        }
        let target = Target::new(&url)?;
        let size = match &body.0 {
            // A connection is only handed over by an answer.
            BodyInner::Empty | BodyInner::Switch(_) => BodySize::Known(0),
            BodyInner::Whole(chunk) => BodySize::Known(chunk.len() as u64),
            BodyInner::File(part) => BodySize::Known(part.left()),
            BodyInner::Stream(pieces) => pieces.size.map_or(BodySize::Unknown, BodySize::Known),
        };
        let mut out = Vec::new();
        let head = Encoder::request(&mut out, method, &target.path, &target.authority);
        let mut head = head.map_err(ClientError::Request)?;
        head.block(&fields);
        let mut encoder = head.finish(size);
        let pieces = match body.0 {
            BodyInner::Empty | BodyInner::Switch(_) => None,
            BodyInner::Whole(chunk) => {
                encoder.data(&mut out, &chunk).map_err(ClientError::Request)?;
                None
            }
            BodyInner::File(part) => Some(Box::new(part.into_pieces())),
            BodyInner::Stream(pieces) => Some(pieces),
        };
        let idempotent = !matches!(method, Method::Post | Method::Patch | Method::Connect | Method::Other);
        if let Some(pieces) = pieces {
            // What a stream has given it does not give again: on a new connection.
            let (mut connection, _) = client.connection(&target, true).await?;
            connection.send_pieces(out, *pieces, encoder).await?;
            let head = connection.head(&client.shared.scratch, method).await.map_err(Failed::into_error)?;
            return Ok(ClientResponse::new(client, target.authority, connection, head, deadline));
        }
        encoder.end(&mut out).map_err(ClientError::Request)?;
        let mut fresh = false;
        loop {
            let (mut connection, kept) = client.connection(&target, fresh).await?;
            let (asked, bytes) = connection.ask(out, &client.shared.scratch, method).await;
            out = bytes;
            match asked {
                Ok(head) => {
                    return Ok(ClientResponse::new(client, target.authority, connection, head, deadline));
                }
                Err(Failed::Unanswered(_)) if kept && idempotent => fresh = true,
                Err(why) => return Err(why.into_error()),
            }
        }
    }
}

impl fmt::Debug for ClientRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.url)
    }
}
