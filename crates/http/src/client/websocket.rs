//! The client's side of the WebSocket handshake (RFC 6455 §4.1).

use super::error::ClientError;
use super::failure::{FailedAt, Failure, SentSoFar};
use super::{Client, Target};
use crate::random::random;
use crate::ws::{Options, WebSocket};
use ringroad_engine::time;
use ringroad_wire::ws::{Role, deflate, handshake};
use ringroad_wire::{Asked, BodySize, EncodeError, Encoder, FieldBlock, Method, Status, after_scheme};
use std::cell::Cell;

/// A request to open a session.
#[must_use = "it is not opened before `connect` is awaited"]
pub struct WebSocketRequest {
    client: Client,
    url: String,
    fields: FieldBlock,
    options: Options,
    wrong: Option<EncodeError>,
}

impl Client {
    /// Opens a WebSocket session at a URL that begins with `ws://` or `wss://`.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use ringroad_http::Client;
    ///
    /// let mut socket = Client::new().websocket("ws://127.0.0.1:8080/echo").connect().await?;
    /// socket.send("hello").await?;
    /// println!("{:?}", socket.recv().await?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn websocket(&self, url: &str) -> WebSocketRequest {
        WebSocketRequest {
            client: self.clone(),
            url: url.to_owned(),
            fields: FieldBlock::new(),
            options: Options::new(),
            wrong: None,
        }
    }
}

impl WebSocketRequest {
    /// Adds a header line. An invalid one is reported when the session is opened.
    pub fn header(mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> WebSocketRequest {
        if let Err(why) = self.fields.push(name.as_ref(), value.as_ref()) {
            self.wrong = self.wrong.or(Some(why));
        }
        self
    }

    /// Sets the limits and deadlines of the session. `protocols` and `compress` are offered to the server.
    pub fn options(mut self, options: &Options) -> WebSocketRequest {
        self.options = options.clone();
        self
    }

    /// Opens the session.
    ///
    /// # Errors
    /// As [`ClientRequest::send`](super::ClientRequest::send); [`ClientError::NotUpgraded`] if the server
    /// answers otherwise, or agrees to an option that was not offered.
    pub async fn connect(self) -> Result<WebSocket, Failure> {
        let span = self.client.timeout;
        let opened = time::timeout(span, self.open()).await;
        opened.unwrap_or_else(|late| {
            let why = ClientError::TimedOut("handshake", late.0);
            Err(Failure::new(FailedAt::Head, SentSoFar::All, why))
        })
    }

    async fn open(self) -> Result<WebSocket, Failure> {
        let WebSocketRequest { client, url, fields, options, wrong } = self;
        let of_request = |why| Failure::of_request(ClientError::Request(why));
        if let Some(why) = wrong {
            return Err(of_request(why));
        }
        // The schemes of WebSocket (RFC 6455 §3).
        let http = match (after_scheme(&url, "ws"), after_scheme(&url, "wss")) {
            (Some(rest), _) => format!("http://{rest}"),
            (_, Some(rest)) => format!("https://{rest}"),
            (None, None) => {
                let why = "it must begin with ws:// or wss://".to_owned();
                return Err(Failure::of_request(ClientError::Url { url, why }));
            }
        };
        let target = Target::new(&http).map_err(Failure::of_request)?;
        let key = handshake::key_of(random());
        let mut out = Vec::new();
        let mut head =
            Encoder::request(&mut out, Method::Get, &target.path, &target.authority).map_err(of_request)?;
        head.upgrade("websocket").map_err(of_request)?;
        head.field("Sec-WebSocket-Version", handshake::VERSION).map_err(of_request)?;
        head.field("Sec-WebSocket-Key", &key).map_err(of_request)?;
        if !options.offered_protocols().is_empty() {
            let list = options.offered_protocols().join(", ");
            head.field("Sec-WebSocket-Protocol", list).map_err(of_request)?;
        }
        if options.offers_compression() {
            head.field("Sec-WebSocket-Extensions", deflate::OFFER).map_err(of_request)?;
        }
        head.block(&fields);
        let _ = head.finish(BodySize::Known(0));
        let server = target.server(&client);
        let (mut connection, _) = client.connection(&server, true).await?;
        let reached = Cell::new((FailedAt::Send, SentSoFar::Part));
        let asked = Asked { upgrade: true, ..Asked::from(Method::Get) };
        let answered = connection.ask(out, None, &client.shared.scratch, asked, &reached).await;
        let kept = answered.map_err(|why| {
            let (at, sent) = reached.get();
            Failure::new(at, sent, why.into_error())
        })?;
        let failed = |why| Failure::new(FailedAt::Head, SentSoFar::All, why);
        let head = kept.view();
        let refuse = |why: String| failed(ClientError::NotUpgraded { status: head.status(), why });
        if head.status() != Status::SWITCHING_PROTOCOLS {
            return Err(refuse("the server does not speak WebSocket there".to_owned()));
        }
        let fields = head.fields();
        let value = |name: &str| fields.get(name).and_then(|value| str::from_utf8(value).ok());
        let list = |name: &str| -> Vec<&str> {
            fields.get_all(name).filter_map(|value| str::from_utf8(value).ok()).collect()
        };
        if !value("upgrade").is_some_and(|name| name.eq_ignore_ascii_case("websocket")) {
            return Err(refuse("the server switched to another protocol".to_owned()));
        }
        if value("sec-websocket-accept").map(str::trim) != Some(&handshake::accept_key(&key)) {
            return Err(refuse("Sec-WebSocket-Accept does not answer the key".to_owned()));
        }
        let extensions = list("sec-websocket-extensions").join(",");
        let (protocol, agreed) =
            agreed(value("sec-websocket-protocol"), &extensions, &options).map_err(refuse)?;
        let (stream, rest) = connection.into_upgraded();
        Ok(WebSocket::new(Role::Client, &options, agreed, protocol, stream, rest, None))
    }
}

/// Returns the subprotocol and the compression that a server's head agrees to, if they were offered.
pub(super) fn agreed(
    protocol: Option<&str>,
    extensions: &str,
    options: &Options,
) -> Result<(Option<String>, Option<deflate::Agreed>), String> {
    let protocol = protocol.map(str::to_owned);
    if let Some(protocol) = &protocol
        && !options.offered_protocols().contains(protocol)
    {
        return Err(format!("the server chose the protocol {protocol:?}, which was not offered"));
    }
    match deflate::taken(extensions) {
        Ok(agreed) if agreed.is_none() || options.offers_compression() => Ok((protocol, agreed)),
        _ => Err(format!("the server agreed to {extensions:?}, which was not offered")),
    }
}

impl std::fmt::Debug for WebSocketRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WebSocketRequest({})", self.url)
    }
}
