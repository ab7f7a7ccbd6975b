//! Header lines between two hops: which are handed on, and which are ours to say.

use super::Place;
use super::upstream::Head;
use crate::answer::Asking;
use ringroad_http::{EncodeError, Fields, Method, Request, Response};
use ringroad_wire::Encoder;
use std::net::SocketAddr;

/// Lines that belong to one connection (RFC 9110 §7.6.1, §11.7), and those that the encoder writes.
const OF_THE_HOP: &[&str] = &[
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Lines by which proxies tell who asked. A client's own are handed on only where they are trusted.
const FORWARDED: &[&str] = &[
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-real-ip",
    "x-request-id",
];

/// The one protocol that is handed through. Others stay with us: what a tunnel carries passes by the routes, and a server
/// behind that would take an offer of HTTP/2 would answer there whatever it is asked (RFC 9113 §3.1 has that offer no more).
pub(super) const WEBSOCKET: &str = "websocket";

/// Whether a request offers to speak WebSocket (RFC 6455 §4.1), and nothing else.
pub(super) fn offers_websocket(request: &Request) -> bool {
    let alone = is_websocket(request.headers());
    alone && request.head().upgrade() && request.method() == Method::Get
}

/// Whether `Upgrade` says so, once and alone.
pub(super) fn is_websocket(fields: Fields<'_>) -> bool {
    let mut offers = fields.get_all("upgrade");
    let is_it = |value: &[u8]| value.trim_ascii().eq_ignore_ascii_case(WEBSOCKET.as_bytes());
    offers.next().is_some_and(is_it) && offers.next().is_none()
}

fn is_one_of(name: &[u8], names: &[&str]) -> bool {
    names.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

/// The same to a program that gets header lines as variables (CGI, WSGI), where `_` and `-` are one.
fn is_forwarded(name: &[u8]) -> bool {
    let plain: Vec<u8> = name.iter().map(|byte| if *byte == b'_' { b'-' } else { *byte }).collect();
    is_one_of(&plain, FORWARDED)
}

/// Whether `Connection` names this line as its hop's.
fn is_named(fields: Fields<'_>, name: &[u8]) -> bool {
    fields.get_all("connection").any(|value| {
        value.split(|byte| *byte == b',').any(|word| word.trim_ascii().eq_ignore_ascii_case(name))
    })
}

/// Writes the head of a request to the server behind, with an offer of WebSocket or without. `None`: it cannot be written.
pub(super) fn request<'a>(
    out: &'a mut Vec<u8>,
    place: &Place,
    request: &Request,
    target: &str,
    websocket: bool,
    asking: &Asking<'_>,
) -> Option<Encoder<'a>> {
    let settings = place.settings();
    let authority = request.authority();
    let host = settings.host.as_deref().or(authority).unwrap_or("localhost");
    let fields = request.headers();
    let mut head = Encoder::request_named(out, request.method_name(), target, host).ok()?;
    for field in fields.iter() {
        let ours = is_one_of(field.name, OF_THE_HOP) || is_forwarded(field.name);
        if !ours && !is_named(fields, field.name) {
            head.field(field.name, field.value).ok()?;
        }
    }
    let trusted = |name: &str| fields.get(name).filter(|_| settings.trust_forwarded);
    let text = |name: &str| trusted(name).and_then(|value| str::from_utf8(value).ok());
    let peer = request.peer_addr();
    let behind = |list: Option<&str>, one: String| match list {
        Some(list) if !list.is_empty() => format!("{list}, {one}"),
        _ => one,
    };
    if let Some(peer) = peer {
        let address = peer.ip().to_canonical().to_string();
        head.field("X-Forwarded-For", behind(list(fields, settings.trust_forwarded).as_deref(), address))
            .ok()?;
    }
    if let Some(host) = text("x-forwarded-host").or(authority) {
        head.field("X-Forwarded-Host", host).ok()?;
    }
    let proto = text("x-forwarded-proto").unwrap_or("http");
    head.field("X-Forwarded-Proto", proto).ok()?;
    head.field("Forwarded", behind(text("forwarded"), forwarded(peer, authority, proto))).ok()?;
    head.field("X-Request-Id", text("x-request-id").unwrap_or_else(|| asking.id())).ok()?;
    // RFC 9110 §7.6.3. Ours is behind those that are handed on.
    head.field("Via", "1.1 ringroad").ok()?;
    if websocket {
        head.upgrade(WEBSOCKET).ok()?;
    }
    Some(head)
}

/// Who asked, as those before us tell it: the list may be spread over several lines.
fn list(fields: Fields<'_>, trusted: bool) -> Option<String> {
    let all: Vec<_> =
        fields.get_all("x-forwarded-for").filter_map(|value| str::from_utf8(value).ok()).collect();
    (trusted && !all.is_empty()).then(|| all.join(", "))
}

/// RFC 7239 §4. What is more than a token is quoted; an address with colons is, with its brackets.
fn forwarded(peer: Option<SocketAddr>, host: Option<&str>, proto: &str) -> String {
    let who = match peer.map(|peer| peer.ip().to_canonical()) {
        Some(std::net::IpAddr::V4(address)) => format!("for={address}"),
        Some(std::net::IpAddr::V6(address)) => format!("for=\"[{address}]\""),
        None => "for=unknown".to_owned(),
    };
    let host = host.map(|host| format!(";host=\"{host}\"")).unwrap_or_default();
    let token = !proto.is_empty() && proto.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let proto = if token { format!(";proto={proto}") } else { String::new() };
    format!("{who}{host}{proto}")
}

/// The head of an answer from behind, as ours. The date is the library's, which has a clock of its own.
pub(super) fn response(head: &Head, place: &Place, response: Response) -> Result<Response, EncodeError> {
    let mut response = response;
    let fields = head.fields();
    let replaced =
        |name: &[u8]| place.route.headers.iter().any(|(own, _)| name.eq_ignore_ascii_case(own.as_bytes()));
    for field in fields.iter() {
        let ours = is_one_of(field.name, OF_THE_HOP) || field.name.eq_ignore_ascii_case(b"date");
        if !ours && !replaced(field.name) && !is_named(fields, field.name) {
            response = response.header(field.name, field.value)?;
        }
    }
    for (name, value) in &place.route.headers {
        response = response.header(name, value)?;
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asked_is_told_in_the_rfcs_form() {
        let v4 = SocketAddr::from(([192, 0, 2, 1], 5));
        let v6 = SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], 5));
        assert_eq!(forwarded(Some(v4), Some("a:80"), "http"), "for=192.0.2.1;host=\"a:80\";proto=http");
        assert_eq!(forwarded(Some(v6), None, "https"), "for=\"[2001:db8::1]\";proto=https");
        assert_eq!(forwarded(None, None, "a;b"), "for=unknown");
    }

    #[test]
    fn a_line_spelt_for_cgi_is_the_same_line() {
        for name in ["X-Forwarded-For", "x_forwarded_for", "X_Forwarded-Proto", "FORWARDED", "X-Real_IP"] {
            assert!(is_forwarded(name.as_bytes()), "{name}");
        }
        assert!(!is_forwarded(b"X-Forwarded"));
    }
}
