//! The server's side of the handshake (RFC 6455 §4.2).

use super::options::{Options, Origins};
use super::session::{Role, WebSocket};
use crate::message::{Request, Response};
use ringroad_wire::ws::{deflate, handshake};
use ringroad_wire::{EncodeError, Method, Status};

/// Accepts a client's WebSocket handshake with the default [`Options`]: see [`Options::accept`].
pub fn accept<F, Fut>(request: &Request, session: F) -> Response
where
    F: FnOnce(WebSocket) -> Fut + 'static,
    Fut: Future<Output = ()> + 'static,
{
    Options::new().accept(request, session)
}

impl Options {
    /// Accepts a client's WebSocket handshake. The response switches the connection to a session, which is
    /// passed to `session`. When its future ends, the session is closed.
    ///
    /// A request without a handshake is answered 426, an invalid handshake 400, and a page that may not open
    /// a session 403 ([`Origins`]).
    pub fn accept<F, Fut>(&self, request: &Request, session: F) -> Response
    where
        F: FnOnce(WebSocket) -> Fut + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        match self.check(request) {
            Ok(offer) => self.switch(offer, session).unwrap_or_else(|_| Response::empty(Status::BAD_REQUEST)),
            Err(refused) => refused,
        }
    }

    /// Returns the refusal of a request without a valid handshake, or from a page that may not open a
    /// session. `None` if [`accept`](Self::accept) would take it. For a server that has to do other work
    /// before it accepts.
    pub fn refusal(&self, request: &Request) -> Option<Response> {
        self.check(request).err()
    }

    /// Returns whether the page of the request may open a session.
    pub fn allows_origin(&self, request: &Request) -> bool {
        let authority = request.authority().unwrap_or_default();
        let is_allowed = |origin: &[u8]| {
            let Ok(origin) = str::from_utf8(origin) else { return false };
            match &self.0.origins {
                Origins::Any => true,
                Origins::Same => handshake::is_same_origin(origin, authority),
                Origins::Listed(list) => {
                    handshake::is_same_origin(origin, authority)
                        || list.iter().any(|known| known.eq_ignore_ascii_case(origin))
                }
            }
        };
        // A browser sends one line; of several lines, each must be allowed.
        request.headers().get_all("origin").all(is_allowed)
    }

    fn check(&self, request: &Request) -> Result<Offer, Response> {
        let head = request.head();
        let wants = joined(request, "upgrade");
        let is_offered = handshake::protocols(&wants).any(|name| name.eq_ignore_ascii_case("websocket"));
        if !head.upgrade() || !is_offered || request.method() != Method::Get {
            return Err(upgrade_required());
        }
        if request.header("sec-websocket-version") != Some(handshake::VERSION) {
            return Err(upgrade_required());
        }
        let mut keys = request.headers().get_all("sec-websocket-key");
        let key = match (keys.next(), keys.next()) {
            (Some(key), None) => str::from_utf8(key).ok().filter(|key| handshake::is_key(key)),
            _ => None,
        };
        let Some(key) = key else {
            let text = "WebSocket: Sec-WebSocket-Key: expected 16 bytes in base64, once\n";
            return Err(Response::text(text).status(Status::BAD_REQUEST));
        };
        if !self.allows_origin(request) {
            let text = "WebSocket: pages of this origin may not connect\n";
            return Err(Response::text(text).status(Status::FORBIDDEN));
        }
        let protocol = (!self.0.protocols.is_empty())
            .then(|| joined(request, "sec-websocket-protocol"))
            .and_then(|list| {
                let known = self.0.protocols.iter().map(String::as_str);
                handshake::choose_protocol(&list, known).map(str::to_owned)
            });
        let extension = self.0.compress.then(|| joined(request, "sec-websocket-extensions"));
        let deflate = extension.and_then(|offers| deflate::answer(&offers));
        Ok(Offer { accept: handshake::accept_key(key), protocol, deflate })
    }

    fn switch<F, Fut>(&self, offer: Offer, session: F) -> Result<Response, EncodeError>
    where
        F: FnOnce(WebSocket) -> Fut + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        let Offer { accept, protocol, deflate } = offer;
        let (agreed, extension) = deflate.unzip();
        let (options, chosen) = (self.clone(), protocol.clone());
        let mut response = Response::upgrade("websocket", move |upgraded| {
            let stopping = upgraded.stopping();
            let (stream, read) = upgraded.into_parts();
            session(WebSocket::new(Role::Server, &options, agreed, chosen, stream, read, Some(stopping)))
        })?;
        response.add_header("Sec-WebSocket-Accept", accept)?;
        if let Some(protocol) = protocol {
            response.add_header("Sec-WebSocket-Protocol", protocol)?;
        }
        if let Some(extension) = extension {
            response.add_header("Sec-WebSocket-Extensions", extension)?;
        }
        Ok(response)
    }
}

/// The accepted offer.
struct Offer {
    accept: String,
    protocol: Option<String>,
    deflate: Option<(deflate::Agreed, String)>,
}

/// Returns the values of all header lines of this name, as one list.
fn joined(request: &Request, name: &str) -> String {
    let values: Vec<&str> =
        request.headers().get_all(name).filter_map(|value| str::from_utf8(value).ok()).collect();
    values.join(",")
}

/// Returns the response that names the protocol and its version (426).
fn upgrade_required() -> Response {
    let response =
        Response::text("WebSocket: expected a handshake of version 13\n").upgrade_required("websocket");
    let response = response.and_then(|response| response.header("Sec-WebSocket-Version", handshake::VERSION));
    response.unwrap_or_else(|_| Response::empty(Status::UPGRADE_REQUIRED))
}
