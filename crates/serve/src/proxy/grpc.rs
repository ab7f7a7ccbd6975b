//! Refusals of this server for gRPC clients: gRPC has its own status, in the trailers or, where there is no
//! body, in the head (gRPC over HTTP/2, "Trailers-Only").

use ringroad_http::{Body, Request, Response, Status};
use std::fmt::Write;

/// Returns whether a request is a gRPC call.
pub(crate) fn is_call(request: &Request) -> bool {
    let Some(kind) = request.headers().get("content-type") else { return false };
    let Some(rest) = kind.strip_prefix(b"application/grpc") else { return false };
    // `application/grpc-web` is another protocol, over any version of HTTP.
    matches!(rest.first(), None | Some(b'+' | b';' | b' '))
}

/// Returns the refusal of this server's as a gRPC client reads it.
pub(crate) fn refusal(mut response: Response) -> Response {
    let status = response.status_code();
    let message = percent(&format!("{} {}", status.code(), status.reason()));
    for name in ["Content-Type", "Content-Security-Policy", "Content-Encoding"] {
        response.remove_header(name);
    }
    response.set_body(Body::empty());
    let code = code(status).to_string();
    for (name, value) in
        [("Content-Type", "application/grpc"), ("grpc-status", &code), ("grpc-message", &message)]
    {
        // Names and values are constants and digits.
        let _ = response.set_header(name, value);
    }
    response.status(Status::OK)
}

/// Returns the status of gRPC for one of HTTP (gRPC, "HTTP to gRPC Status Code Mapping"), with
/// RESOURCE_EXHAUSTED for a call that is too long, and DEADLINE_EXCEEDED where time was over: clients repeat
/// what is UNAVAILABLE, and the server behind may have acted on this one.
fn code(status: Status) -> u32 {
    match status.code() {
        400 => 13,
        401 => 16,
        403 => 7,
        404 => 12,
        408 | 504 => 4,
        413 => 8,
        429 | 502 | 503 => 14,
        _ => 2,
    }
}

/// Returns a message as it stands in a line: visible ASCII but `%`, the rest escaped.
fn percent(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => out.push(char::from(byte)),
            // Writing to a string does not fail.
            _ => drop(write!(out, "%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_a_status_of_grpc_without_a_body() {
        let page = Response::html("<h1>no</h1>").status(Status::SERVICE_UNAVAILABLE);
        let mut told = refusal(page);
        assert_eq!(told.status_code(), Status::OK);
        assert_eq!(told.header_value("grpc-status"), Some(&b"14"[..]));
        assert_eq!(told.header_value("grpc-message"), Some(&b"503 Service Unavailable"[..]));
        assert_eq!(told.header_value("content-type"), Some(&b"application/grpc"[..]));
        assert!(told.body().is_empty());
        let of = |code| Status::new(code).map(super::code);
        assert_eq!([408, 429, 502, 504].map(of), [4, 14, 14, 4].map(Some));
        assert_eq!(percent("a%\u{e4}"), "a%25%C3%A4");
    }
}
