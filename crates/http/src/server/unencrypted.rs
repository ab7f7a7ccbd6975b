//! Plain HTTP at an address that requires TLS: `http://` where `https://` was meant.
//!
//! Such a client would show a TLS alert as an invalid answer. It gets one answer in plain HTTP, and its
//! connection ends in stages. All other input that is not TLS is left to the handshake, which answers with an
//! alert. Start at [`begins`].

use super::connection::refused_reply;
use super::linger::end_refused;
use super::refused::Reason;
use super::seats::Waits;
use super::worker::Worker;
use crate::counters::add;
use crate::h1::encode;
use crate::message::{ConnectionId, Response};
use crate::tls::TlsErrorKind;
use crate::transport::{HandshakeError, Transport};
use ringroad_wire::Status;

/// The body of the answer.
const TEXT: &str = "This port speaks TLS: use https:// instead of http://\n";

/// Maximum length of a method that is recognised. Longer words are left to the handshake, so little is
/// buffered.
const METHOD_BYTES_MAX: usize = 24;

/// Receives after `input` until it is known whether `input` begins a plain HTTP request, and returns whether
/// it does. The first byte of a TLS record is sufficient.
///
/// # Errors
/// The connection has ended or failed.
pub(super) async fn begins(stream: &mut Transport, input: &mut Vec<u8>) -> Result<bool, HandshakeError> {
    loop {
        if let Some(is_http) = is_http(input) {
            return Ok(is_http);
        }
        let lease = stream.recv().await?;
        if lease.is_empty() {
            return Err(HandshakeError::Closed);
        }
        input.extend_from_slice(&lease);
    }
}

/// Returns whether the bytes begin with a method in capitals and a space; `None` if more bytes are needed. A
/// TLS record begins with its content type, a byte below 32 (RFC 8446 §5.1).
fn is_http(input: &[u8]) -> Option<bool> {
    let method = input.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
    match input.get(method) {
        _ if method > METHOD_BYTES_MAX => Some(false),
        None => None,
        Some(next) => Some(method >= 3 && *next == b' '),
    }
}

/// Answers a request that came without TLS. `head` is the received part of it.
pub(super) async fn refuse(worker: &Worker, seat: ConnectionId, mut stream: Transport, head: &[u8]) {
    let status = Status::BAD_REQUEST;
    add(&worker.counts().refused, 1);
    add(&worker.counts().bytes_in, head.len() as u64);
    worker.counts().responded(status);
    worker.tell_refused(seat, Some(status), Reason::Tls(TlsErrorKind::NotTls), head);
    let mut out = Vec::new();
    let response = Response::text(TEXT).status(status);
    // The text is one line, so `out` holds all of the answer.
    encode::response(&mut out, &worker.heads.borrow(), refused_reply(head), response);
    worker.seats.set(seat, Waits::Send, worker.now());
    let bytes = out.len() as u64;
    if stream.write_all(out).await.0.is_err() {
        return;
    }
    add(&worker.counts().bytes_out, bytes);
    end_refused(worker, seat, stream).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_in_capitals_with_a_space_is_http() {
        for (input, expected) in [
            (&b""[..], None),
            (b"G", None),
            (b"OPTIONS", None),
            (b"GET ", Some(true)),
            (b"HEAD / HTTP/1.1\r\n", Some(true)),
            (b"PRI * HTTP/2.0\r\n", Some(true)),
            (b"\x16\x03\x01", Some(false)),
            (b"\x80\x2e\x01", Some(false)),
            (b"get / ", Some(false)),
            (b"A ", Some(false)),
            (b"SSH-2.0-x", Some(false)),
            (b"PROXY\r\n", Some(false)),
            (&[b'A'; METHOD_BYTES_MAX + 1], Some(false)),
        ] {
            assert_eq!(is_http(input), expected, "{}", input.escape_ascii());
        }
    }
}
