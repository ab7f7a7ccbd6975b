//! Errors of a client's request.

use crate::message::{BodyError, BoxError};
use crate::transport::HandshakeError;
use std::fmt;
use std::time::Duration;

/// Why a client's request got no response.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// The URL cannot be requested by this client.
    Url {
        /// The URL.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// The name was not found.
    Resolve {
        /// The host.
        host: String,
        /// The system's error.
        why: std::io::Error,
    },
    /// The TLS handshake failed: most often the server's certificate is not accepted.
    Tls(HandshakeError),
    /// Connecting, sending or receiving failed.
    Connection(ringroad_engine::Error),
    /// A part of the request is invalid.
    Request(ringroad_wire::EncodeError),
    /// The source of the request's body failed.
    Body(BoxError),
    /// The server's answer breaks the protocol.
    Response(ringroad_wire::Error),
    /// The body of the response could not be read.
    Unread(BodyError),
    /// The server closed the connection before it answered.
    Closed,
    /// A stream or connection of HTTP/2 was ended with this code (RFC 9113 §7).
    Http2(u32),
    /// The server did not accept the WebSocket session as requested.
    NotUpgraded {
        /// The status of its answer.
        status: ringroad_wire::Status,
        /// What is wrong.
        why: String,
    },
    /// The server does not support WebSocket over HTTP/2 (RFC 8441).
    NoExtendedConnect,
    /// A step did not complete in time: the step, and its time limit.
    TimedOut(&'static str, Duration),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::Url { url, why } => write!(f, "request, on {url:?}: {why}"),
            ClientError::Resolve { host, why } => {
                write!(f, "resolve, on {host:?}: {why}")?;
                // An error of the engine has its own hint.
                match why.get_ref().is_some_and(|why| why.is::<ringroad_engine::Error>()) {
                    true => Ok(()),
                    false => {
                        f.write_str(" (check its spelling, and the system's resolver: `getent ahosts NAME`)")
                    }
                }
            }
            ClientError::Tls(why) => write!(f, "{why}"),
            ClientError::Connection(why) => write!(f, "{why}"),
            ClientError::Request(why) => write!(f, "request: {why}"),
            ClientError::Body(why) => write!(f, "request body: {why}"),
            ClientError::Response(why) => write!(f, "response: {why}"),
            ClientError::Unread(why) => write!(f, "response {why}"),
            ClientError::Closed => f.write_str("response: the server closed the connection instead"),
            ClientError::Http2(code) => write!(f, "HTTP/2: {}", h2::Reason::from(*code)),
            ClientError::NotUpgraded { status, why } => {
                write!(f, "WebSocket handshake: {why} (status {})", status.code())
            }
            ClientError::NoExtendedConnect => f.write_str(
                "WebSocket handshake: the server opens none over HTTP/2 (RFC 8441): ask it by HTTP/1.1",
            ),
            ClientError::TimedOut(what, span) => write!(f, "{what}: not done within {span:?}"),
        }
    }
}

impl std::error::Error for ClientError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ClientError::Resolve { why, .. } => Some(why),
            ClientError::Tls(why) => Some(why),
            ClientError::Connection(why) => Some(why),
            ClientError::Request(why) => Some(why),
            ClientError::Response(why) => Some(why),
            ClientError::Body(why) => Some(&**why),
            ClientError::Unread(why) => Some(why),
            _ => None,
        }
    }
}

impl From<ringroad_engine::Error> for ClientError {
    fn from(why: ringroad_engine::Error) -> Self {
        ClientError::Connection(why)
    }
}

impl From<BodyError> for ClientError {
    fn from(why: BodyError) -> Self {
        ClientError::Unread(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn a_name_that_is_not_found_is_told_with_what_to_do_and_an_error_with_a_hint_as_it_is() {
        let told = |why| ClientError::Resolve { host: "a.test".to_owned(), why }.to_string();
        let unknown = told(io::Error::other("Name or service not known"));
        assert!(unknown.contains("not known (check its spelling, and the system's resolver"), "{unknown}");
        let engine = ringroad_engine::Error::layered("a zone", io::Error::other("no interface eth9"));
        assert_eq!(told(engine.into()), "resolve, on \"a.test\": a zone: no interface eth9");
    }
}
