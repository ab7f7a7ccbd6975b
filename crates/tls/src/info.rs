//! Facts about a session after its handshake.

use crate::names::Names;
use std::fmt;
use std::sync::Arc;

/// The version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProtocolVersion {
    /// TLS 1.2.
    Tls12,
    /// TLS 1.3.
    Tls13,
}

impl ProtocolVersion {
    /// Returns it as OpenSSL and nginx write it: `TLSv1.3`.
    pub fn as_str(self) -> &'static str {
        match self {
            ProtocolVersion::Tls12 => "TLSv1.2",
            ProtocolVersion::Tls13 => "TLSv1.3",
        }
    }
}

impl fmt::Display for ProtocolVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How a handshake went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HandshakeKind {
    /// With certificates and signatures.
    Full,
    /// An earlier session was resumed.
    Resumed,
}

/// Parameters that both sides have agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Info {
    /// The version.
    pub version: ProtocolVersion,
    /// The cipher suite, as IANA names it.
    pub cipher: &'static str,
    /// How the handshake went.
    pub kind: HandshakeKind,
    /// The name that the client asked for (SNI), in lower case.
    pub server_name: Option<Box<str>>,
    /// The application protocol (ALPN).
    pub alpn: Option<Box<[u8]>>,
    /// The subject of the client's certificate, if the server verified one: as RFC 4514 writes it, in ASCII.
    pub client_subject: Option<Box<str>>,
    /// The names of the certificate that the server presented; `None` on the client's side.
    pub covered: Option<Arc<Names>>,
}

impl Info {
    /// Returns whether a request for `host` belongs on this session. It does if the certificate covers the
    /// host, or if the host is the name that the client requested (SNI). A client that sent no name may
    /// request addresses. Otherwise the answer is 421 (RFC 9110 §15.5.20): the client reached this server by
    /// the name of another site.
    pub fn covers(&self, host: &str) -> bool {
        let bare = host.strip_suffix('.').unwrap_or(host);
        let asked = match &self.server_name {
            Some(name) => name.eq_ignore_ascii_case(bare),
            None => host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok(),
        };
        asked || self.covered.as_ref().is_none_or(|names| names.covers(host))
    }
}
