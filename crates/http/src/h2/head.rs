//! Conversion of heads between HTTP/2 and messages.
//!
//! A request becomes the text of an HTTP/1.1 head, which the same strict parser reads as all others
//! ([`ringroad_wire`]). So one place decides what a head may contain, and a gateway cannot be made to write a
//! head that means something else to the server behind it. An extended CONNECT for a WebSocket (RFC 8441)
//! becomes the GET of an HTTP/1.1 handshake, so that handlers and gateways see one kind of handshake. The key
//! that HTTP/1.1 requires is generated here.

use crate::message::{Interim, Response};
use crate::random::random;
use ::h2::ext::Protocol;
use ::http::header::{
    CONTENT_LENGTH, COOKIE, DATE, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_KEY,
};
use ::http::request::Parts;
use ringroad_wire::ws::handshake;
use ringroad_wire::{FieldBlock, Status};

/// Why a request cannot be converted to an HTTP/1.1 head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// `Host` differs from `:authority`.
    TwoHosts,
    /// More lines than a head may have; each cookie crumb counts.
    Lines,
    /// A value begins or ends with white space (RFC 9113 §8.2.1).
    Blank,
    /// A CONNECT to another server.
    Connect,
    /// A tunnel for a protocol that is not supported.
    Protocol,
    /// A tunnel with a content length.
    Length,
}

/// The protocol that a tunnel may carry.
pub(crate) const WEBSOCKET: &str = "websocket";

/// Returns whether a request is an extended CONNECT, a tunnel for a protocol (RFC 8441 §4).
pub(crate) fn is_tunnel(parts: &Parts) -> bool {
    parts.method == ::http::Method::CONNECT && parts.extensions.get::<Protocol>().is_some()
}

fn is_blank(byte: Option<&u8>) -> bool {
    matches!(byte, Some(b' ' | b'\t'))
}

/// Writes the text of a head. The parser validates it.
pub(crate) fn request_text(out: &mut Vec<u8>, parts: &Parts, lines_max: usize) -> Result<(), Unfit> {
    let headers = &parts.headers;
    let tunnels = is_tunnel(parts);
    if tunnels {
        let protocol = parts.extensions.get::<Protocol>().map_or("", Protocol::as_str);
        if !protocol.eq_ignore_ascii_case(WEBSOCKET) {
            return Err(Unfit::Protocol);
        }
        if headers.contains_key(CONTENT_LENGTH) {
            return Err(Unfit::Length);
        }
    } else if parts.method == ::http::Method::CONNECT {
        return Err(Unfit::Connect);
    }
    if headers.len() > lines_max {
        return Err(Unfit::Lines);
    }
    out.extend_from_slice(if tunnels { b"GET" } else { parts.method.as_str().as_bytes() });
    out.push(b' ');
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
    out.extend_from_slice(target.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    if let Some(authority) = parts.uri.authority() {
        let mut hosts = headers.get_all(HOST).iter();
        if !hosts.all(|host| host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes())) {
            return Err(Unfit::TwoHosts);
        }
        line(out, b"host", authority.as_str().as_bytes());
    }
    let has_authority = parts.uri.authority().is_some();
    for (name, value) in headers {
        let bytes = value.as_bytes();
        if is_blank(bytes.first()) || is_blank(bytes.last()) {
            return Err(Unfit::Blank);
        }
        if name == COOKIE || (has_authority && name == HOST) {
            continue;
        }
        // RFC 8441 §5: the key is not used. Without a body, `Expect` has no meaning.
        if tunnels && (name == SEC_WEBSOCKET_KEY || name == EXPECT) {
            continue;
        }
        line(out, name.as_str().as_bytes(), value.as_bytes());
    }
    // RFC 9113 §8.2.3: cookie crumbs are joined to one line before other code sees them.
    let mut cookies = headers.get_all(COOKIE).iter();
    if let Some(first) = cookies.next() {
        out.extend_from_slice(b"cookie: ");
        out.extend_from_slice(first.as_bytes());
        for crumb in cookies {
            out.extend_from_slice(b"; ");
            out.extend_from_slice(crumb.as_bytes());
        }
        out.extend_from_slice(b"\r\n");
    }
    if tunnels {
        line(out, b"connection", b"upgrade");
        line(out, b"upgrade", WEBSOCKET.as_bytes());
        line(out, b"sec-websocket-key", handshake::key_of(random()).as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// Returns an interim head; `None` if its status is not an interim one.
pub(crate) fn interim_head(interim: &Interim) -> Option<::http::Response<()>> {
    let mut head = ::http::Response::new(());
    *head.status_mut() = ::http::StatusCode::from_u16(interim.status).ok()?;
    for field in interim.lines.iter() {
        let name = HeaderName::from_bytes(field.name).ok()?;
        head.headers_mut().append(name, HeaderValue::from_bytes(field.value).ok()?);
    }
    Some(head)
}

fn line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Returns whether a line is specific to an HTTP/1 connection (RFC 9113 §8.2.2).
fn is_of_connection(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection" | "keep-alive" | "proxy-connection" | "transfer-encoding" | "upgrade"
    )
}

/// Adds a header line. A line that HTTP/2 cannot carry is left out.
pub(crate) fn put(map: &mut HeaderMap, name: &[u8], value: &[u8]) {
    // The lines of a message are checked when they are added, by stricter rules than these.
    if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value))
        && !is_of_connection(&name)
    {
        map.append(name, value);
    }
}

/// Returns the head of a response, with a `Content-Length` if `length` is given.
pub(crate) fn response_head(
    response: &Response,
    length: Option<u64>,
    date: Option<&[u8]>,
) -> ::http::Response<()> {
    let mut head = ::http::Response::new(());
    *head.status_mut() = status(response.status_code());
    let map = head.headers_mut();
    let date = date.filter(|_| !Response::is_dated(&response.fields));
    if let Some(Ok(date)) = date.map(HeaderValue::from_bytes) {
        map.insert(DATE, date);
    }
    for field in response.headers() {
        put(map, field.name, field.value);
    }
    if let Some(length) = length {
        map.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    head
}

pub(crate) fn status(status: Status) -> ::http::StatusCode {
    // A status has three digits, the first of them not 0.
    ::http::StatusCode::from_u16(status.code()).unwrap_or(::http::StatusCode::INTERNAL_SERVER_ERROR)
}

/// Converts trailers for sending.
pub(crate) fn trailers(lines: &FieldBlock) -> HeaderMap {
    let mut map = HeaderMap::new();
    for field in lines.iter() {
        put(&mut map, field.name, field.value);
    }
    map
}

/// Converts received trailers.
pub(crate) fn trailer_pairs(map: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    map.iter().map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec())).collect()
}

/// Converts received lines to a block. Lines that follow from the body are left out, as in every block.
pub(crate) fn block(map: &HeaderMap) -> FieldBlock {
    let mut lines = FieldBlock::new();
    for (name, value) in map {
        // Framing lines are refused; they were evaluated already.
        let _ = lines.push(name.as_str().as_bytes(), value.as_bytes());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::expect_used, reason = "they are well-formed")]
    fn text(request: ::http::request::Builder) -> Result<String, Unfit> {
        let (parts, ()) = request.body(()).expect("a request").into_parts();
        let mut out = Vec::new();
        request_text(&mut out, &parts, 100).map(|()| String::from_utf8(out).expect("ASCII"))
    }

    #[test]
    fn a_head_has_its_host_first_and_one_cookie_line() {
        let request = ::http::Request::get("http://a.example/x?y=1")
            .header("cookie", "a=1")
            .header("accept", "*/*")
            .header("cookie", "b=2")
            .header("host", "A.example");
        assert_eq!(
            text(request).as_deref(),
            Ok("GET /x?y=1 HTTP/1.1\r\nhost: a.example\r\naccept: */*\r\ncookie: a=1; b=2\r\n\r\n")
        );
    }

    #[test]
    fn a_host_that_contradicts_the_authority_is_unfit() {
        let request = || ::http::Request::get("http://a/");
        assert_eq!(text(request().header("host", "b")), Err(Unfit::TwoHosts));
        assert_eq!(text(request().header("host", "a").header("host", "b")), Err(Unfit::TwoHosts));
    }

    #[test]
    fn a_value_with_a_blank_at_its_edge_is_unfit() {
        for value in [" a", "a\t"] {
            assert_eq!(text(::http::Request::get("http://a/").header("x", value)), Err(Unfit::Blank));
        }
    }

    #[test]
    fn crumbs_count_as_lines() {
        let request =
            (0..101).fold(::http::Request::get("http://a/"), |request, _| request.header("cookie", ""));
        assert_eq!(text(request), Err(Unfit::Lines));
    }

    #[test]
    fn an_extended_connect_is_the_get_that_offers_a_websocket() {
        let connect = || ::http::Request::connect("https://a.example/chat?room=1");
        let websocket = || connect().extension(Protocol::from_static("websocket"));
        let head =
            text(websocket().header("sec-websocket-version", "13").header("sec-websocket-key", "theirs"));
        let head = head.unwrap_or_default();
        let (before, key) = head.split_once("sec-websocket-key: ").unwrap_or_default();
        assert_eq!(
            before,
            "GET /chat?room=1 HTTP/1.1\r\nhost: a.example\r\nsec-websocket-version: 13\r\n\
             connection: upgrade\r\nupgrade: websocket\r\n"
        );
        assert!(handshake::is_key(key.trim_end()), "{key:?}");
        assert_eq!(text(connect()), Err(Unfit::Connect));
        assert_eq!(text(connect().extension(Protocol::from_static("udp"))), Err(Unfit::Protocol));
        assert_eq!(text(websocket().header("content-length", "0")), Err(Unfit::Length));
    }

    #[test]
    fn lines_of_one_connection_are_not_sent() {
        let mut map = HeaderMap::new();
        for name in ["Connection", "Keep-Alive", "Proxy-Connection", "Transfer-Encoding", "Upgrade", "X-Kept"]
        {
            put(&mut map, name.as_bytes(), b"1");
        }
        assert_eq!(map.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-kept"]);
    }
}
