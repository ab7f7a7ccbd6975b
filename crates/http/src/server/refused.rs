//! Reports of requests that the protocol layer refuses: no handler gets them, or one that has begun is
//! dropped.

use super::seats::Waits;
use crate::tls::TlsErrorKind;
use ringroad_wire::{Error, Status};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// A request, or input that is not a request, that no handler answered.
#[derive(Debug)]
#[non_exhaustive]
pub struct Refused<'a> {
    /// The client's address, as [`Request::peer_addr`](crate::Request::peer_addr).
    pub client: Option<SocketAddr>,
    /// The answer; `None` if none was sent.
    pub status: Option<Status>,
    /// The reason.
    pub reason: Reason,
    /// The beginning of the request as far as it was received and is still in memory, at most 1 KiB. These
    /// are the client's bytes: escape them before they are shown.
    pub head: &'a [u8],
    /// Whether a handler had the request already: its body was refused, and the handler was dropped
    /// ([`Request::refused_with`](crate::Request::refused_with)).
    pub begun: bool,
}

/// The reason of a refusal.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Reason {
    /// The input breaks the protocol or a limit.
    Protocol(Error),
    /// The head did not arrive in time.
    SlowHead,
    /// The body arrived too slowly.
    SlowBody,
    /// The handler, or the stream of its body, panicked.
    Panicked,
    /// A well-formed HTTP/2 head that is not a valid request; the reason.
    Http2Head(&'static str),
    /// An HTTP/2 client broke the protocol, and its connection was ended with this code (RFC 9113 §7).
    Http2(u32),
    /// An HTTP/2 client has spent its [budget](crate::Misbehaviour), and its connection was ended.
    Misbehaviour,
    /// An HTTP/2 request came while its connection had as many streams, or bytes of waiting heads, as it may
    /// have. It was refused as one that can be repeated (`REFUSED_STREAM`).
    TooManyStreams,
    /// The client address has as many connections as allowed ([`PerAddress`](crate::PerAddress)).
    TooManyConnections,
    /// The connection came from an address that must send PROXY lines, and began with none or an invalid one.
    ProxyLine(ringroad_wire::proxy::ProxyError),
    /// The TLS handshake failed.
    Tls(TlsErrorKind),
    /// The TLS handshake took too long.
    SlowHandshake,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Protocol(why) => why.fmt(f),
            Reason::SlowHead => f.write_str("head: it did not come in time"),
            Reason::SlowBody => f.write_str("body: it came too slowly"),
            Reason::Panicked => f.write_str("the handler panicked"),
            Reason::Http2Head(why) => write!(f, "head: {why}"),
            Reason::Http2(code) => write!(f, "HTTP/2: connection error {}", h2::Reason::from(*code)),
            Reason::Misbehaviour => {
                f.write_str("HTTP/2: too many frames that cost the server more than the client")
            }
            Reason::TooManyStreams => f.write_str("HTTP/2: as many requests are under way as may be"),
            Reason::TooManyConnections => {
                f.write_str("connection: its address has as many connections as it may")
            }
            Reason::ProxyLine(why) => why.fmt(f),
            Reason::Tls(why) => write!(f, "TLS handshake: {why}"),
            Reason::SlowHandshake => f.write_str("TLS handshake: it took too long"),
        }
    }
}

impl Reason {
    pub(super) fn overdue(waits: Waits) -> Reason {
        if waits == Waits::Body { Reason::SlowBody } else { Reason::SlowHead }
    }
}

/// The callback for refusals.
pub(crate) type OnRefused = Arc<dyn Fn(&Refused<'_>) + Send + Sync>;

/// Maximum number of bytes of a head in a report.
pub(super) const HEAD_TOLD_BYTES: usize = 1024;
