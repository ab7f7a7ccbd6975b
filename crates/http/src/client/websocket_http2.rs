//! WebSocket sessions on streams of an HTTP/2 connection: the client's side of RFC 8441.

use super::error::ClientError;
use super::failure::{FailedAt, Failure, SentSoFar};
use super::http2::{Http2Connection, uri_of};
use super::websocket::agreed;
use crate::h2::Tunnel;
use crate::h2::head::{WEBSOCKET, block, put};
use crate::transport::{Carrier, TunnelStream};
use crate::ws::{Options, WebSocket};
use ::h2::ext::Protocol;
use ringroad_engine::spawn;
use ringroad_wire::ws::{Role, deflate, handshake};
use ringroad_wire::{FieldBlock, Status};
use std::future::poll_fn;
use std::rc::Rc;

impl Http2Connection {
    /// Opens a WebSocket session on a stream of this connection. The scheme is `http` or `https`. `options`
    /// are those of a client: `protocols` and `compress` are offered to the server. Waits for a free stream,
    /// as [`send`](Self::send) does, and has no deadline of its own.
    ///
    /// Each session may have 256 KiB unread. A slow session does not stop the others.
    ///
    /// # Errors
    /// [`ClientError::NoExtendedConnect`], [`ClientError::NotUpgraded`]. Otherwise as [`send`](Self::send).
    pub async fn websocket(
        &self,
        scheme: &str,
        authority: &str,
        target: &str,
        lines: &FieldBlock,
        options: &Options,
    ) -> Result<WebSocket, Failure> {
        let uri = uri_of(scheme, authority, target).map_err(Failure::of_request)?;
        if !self.takes_tunnels().await {
            let why = ClientError::NoExtendedConnect;
            return Err(Failure::new(FailedAt::Send, SentSoFar::Nothing, why));
        }
        let mut head = ::http::Request::new(());
        *head.method_mut() = ::http::Method::CONNECT;
        *head.uri_mut() = uri;
        head.extensions_mut().insert(Protocol::from_static(WEBSOCKET));
        let map = head.headers_mut();
        put(map, b"sec-websocket-version", handshake::VERSION.as_bytes());
        if !options.offered_protocols().is_empty() {
            put(map, b"sec-websocket-protocol", options.offered_protocols().join(", ").as_bytes());
        }
        if options.offers_compression() {
            put(map, b"sec-websocket-extensions", deflate::OFFER.as_bytes());
        }
        for field in lines.iter() {
            put(map, field.name, field.value);
        }
        let (response, send) = self.open(head).await?;
        let response = self.answered(response.await)?;
        let (parts, recv) = response.into_parts();
        let status = Status::new(parts.status.as_u16()).unwrap_or(Status::BAD_GATEWAY);
        let refuse = |why: String| {
            let why = ClientError::NotUpgraded { status, why };
            Failure::new(FailedAt::HeadBegun, SentSoFar::All, why)
        };
        if !parts.status.is_success() {
            return Err(refuse("the server does not speak WebSocket there".to_owned()));
        }
        let fields = block(&parts.headers);
        let extensions: Vec<&str> = parts
            .headers
            .get_all("sec-websocket-extensions")
            .iter()
            .filter_map(|value| value.to_str().ok())
            .collect();
        let protocol = fields.get("sec-websocket-protocol").and_then(|value| str::from_utf8(value).ok());
        let (protocol, agreed) = agreed(protocol, &extensions.join(","), options).map_err(refuse)?;
        let tunnel = Tunnel::new(recv, send, self.traffic());
        let (peer, tls) = self.facts();
        let stream = TunnelStream::new(Rc::clone(&tunnel) as Rc<dyn Carrier>, peer, tls);
        let open = self.count_tunnel();
        spawn(async move {
            // Keeps the connection alive, and the tunnel counted, as long as the session lasts.
            let _open = open;
            poll_fn(|context| tunnel.poll_drive(context)).await;
            // Sends queued data, then a reset if the server has not ended its side.
            tunnel.end();
        })
        .detach();
        Ok(WebSocket::new(Role::Client, options, agreed, protocol, stream.into(), Vec::new(), None))
    }
}
