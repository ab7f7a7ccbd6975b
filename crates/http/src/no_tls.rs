//! Replacements for `ringroad-tls` in a build without the feature `tls`: the names that this crate uses.
//!
//! A client, a server and a session cannot be made: each holds a value of [`Never`]. So no other file depends
//! on the feature, and the compiler drops code that needs such a value. An attempt to use TLS ends in
//! [`Client::system`], which returns an error.
#![allow(dead_code, reason = "these are the names of TLS, also those that only a session makes")]
#![allow(unreachable_pub, reason = "public items name these types, but not in a test of a build with TLS")]

use std::fmt;
use std::ops::Deref;

/// The ALPN protocol of HTTP/1.1.
pub(crate) const ALPN_HTTP11: &[u8] = b"http/1.1";

/// The ALPN protocol of HTTP/2.
pub(crate) const ALPN_H2: &[u8] = b"h2";

/// The ALPN protocol of challenges.
pub(crate) const ALPN_ACME: &[u8] = b"acme-tls/1";

/// A type without values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Never {}

/// Settings of a client: no value exists.
#[derive(Clone, Debug)]
pub struct Client(Never);

impl Client {
    /// Returns an error: this build has no TLS.
    pub(crate) fn system() -> Result<Client, TlsError> {
        Err(TlsError(()))
    }

    pub(crate) fn with_alpn(&self, _: &[&[u8]]) -> Client {
        match self.0 {}
    }

    pub(crate) fn begin(&self, _: &str) -> Result<Session, TlsError> {
        match self.0 {}
    }
}

/// Settings of a server: no value exists.
#[derive(Debug)]
pub struct Server(Never);

impl Server {
    pub(crate) fn begin(&self) -> Result<Session, TlsError> {
        match self.0 {}
    }

    pub(crate) fn begin_with_http2(&self) -> Result<Session, TlsError> {
        match self.0 {}
    }
}

/// A session: no value exists.
#[derive(Debug)]
pub(crate) struct Session(Never);

impl Session {
    pub(crate) fn receive(&mut self, _: &mut [u8], _: &mut Vec<u8>, _: &mut Output) -> Result<(), TlsError> {
        match self.0 {}
    }

    pub(crate) fn seal(&mut self, _: &[u8], _: &mut Output) -> Result<(), TlsError> {
        match self.0 {}
    }

    pub(crate) fn close(&mut self, _: &mut Output) {
        match self.0 {}
    }

    pub(crate) fn has_ended(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn take_info(&mut self) -> Option<Info> {
        match self.0 {}
    }
}

/// Parameters that two sides have agreed on: no value exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    pub(crate) version: ProtocolVersion,
    pub(crate) kind: HandshakeKind,
    pub(crate) alpn: Option<Box<[u8]>>,
    never: Never,
}

/// The version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProtocolVersion {
    Tls13,
}

/// How a handshake went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeKind {
    Resumed,
}

/// Records to be sent. Without a session they stay empty.
#[derive(Debug, Default)]
pub(crate) struct Output(Vec<u8>);

impl Output {
    pub(crate) fn reusing(mut bytes: Vec<u8>) -> Output {
        bytes.clear();
        Output(bytes)
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn into_vec(self) -> Vec<u8> {
        self.0
    }
}

impl Deref for Output {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// Why there is no session.
#[derive(Clone, Debug)]
pub struct TlsError(());

impl TlsError {
    pub(crate) fn kind(&self) -> TlsErrorKind {
        TlsErrorKind::NotBuilt
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TLS: {}", self.kind())
    }
}

impl std::error::Error for TlsError {}

/// The kind of a [`TlsError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsErrorKind {
    /// This build has no TLS.
    NotBuilt,
    /// The peer does not speak TLS.
    NotTls,
}

impl fmt::Display for TlsErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TlsErrorKind::NotBuilt => {
                "this program was built without it (the feature `tls` of ringroad-http, and of ringroad)"
            }
            TlsErrorKind::NotTls => "the peer does not speak TLS",
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_client_is_refused_with_the_feature_that_is_missing() {
        let why = Client::system().unwrap_err().to_string();
        assert!(why.starts_with("TLS: this program was built without it (the feature `tls`"), "{why}");
    }
}
