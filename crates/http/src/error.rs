//! What goes wrong with a body, and with a request that a client makes.

use crate::response::{IntoResponse, Response};
use ringroad_engine::choose::Unusable;
use ringroad_wire::Status;
use std::fmt;
use std::time::Duration;

/// Anything that went wrong in code of the user's.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a body did not come, or not as it should.
#[derive(Debug)]
#[non_exhaustive]
pub enum BodyError {
    /// It breaks the protocol's rules or limits, or it ended before its end.
    Refused(ringroad_wire::Error),
    /// It came too slowly, or not at all.
    TooSlow,
    /// It is longer than the reader asked for: so many bytes at most.
    TooLong(usize),
    /// Nobody receives it any more: its request was answered, or the connection is gone.
    Over,
    /// It is not the JSON that was asked for.
    Json(serde_json::Error),
    /// It is not UTF-8.
    NotText,
    /// The connection failed.
    Connection(ringroad_engine::Error),
}

impl BodyError {
    /// What a server answers: 400, 408, 413, or what the protocol asks for.
    pub fn status(&self) -> Status {
        match self {
            BodyError::Refused(why) => why.status(),
            BodyError::TooSlow => Status::REQUEST_TIMEOUT,
            BodyError::TooLong(_) => Status::CONTENT_TOO_LARGE,
            BodyError::Over | BodyError::Connection(_) => Status::INTERNAL_SERVER_ERROR,
            BodyError::Json(_) | BodyError::NotText => Status::BAD_REQUEST,
        }
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BodyError::Refused(why) => write!(f, "body: {why}"),
            BodyError::TooSlow => f.write_str("body: it did not come in time"),
            BodyError::TooLong(bytes) => write!(f, "body: longer than {bytes} bytes"),
            BodyError::Over => f.write_str("body: its exchange is over, nobody receives it any more"),
            BodyError::Json(why) => write!(f, "body: not the JSON that was expected: {why}"),
            BodyError::NotText => f.write_str("body: not UTF-8"),
            BodyError::Connection(why) => write!(f, "body: {why}"),
        }
    }
}

impl std::error::Error for BodyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            BodyError::Refused(why) => Some(why),
            BodyError::Json(why) => Some(why),
            BodyError::Connection(why) => Some(why),
            _ => None,
        }
    }
}

impl IntoResponse for BodyError {
    fn into_response(self) -> Response {
        let mut text = self.to_string();
        text.push('\n');
        (self.status(), text).into_response()
    }
}

/// Why a server could not be set up or run.
///
/// Its `Debug` is its `Display`, so that a `main` that returns it says what a person can read.
#[non_exhaustive]
pub enum ServerError {
    /// What was given as an address is none.
    Address(String),
    /// A pattern is wrong, or contradicts another.
    Route {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        why: String,
    },
    /// No driver, or not the one that was asked for.
    Driver(Unusable),
    /// Binding, or making a runtime.
    Engine(ringroad_engine::Error),
    /// The system gives no thread.
    Thread(std::io::Error),
    /// A worker ended by a panic of the library or of a state's making.
    Panicked(String),
}

impl fmt::Debug for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerError::Address(address) => {
                write!(f, "bind, on {address:?}: not an address (give one as 127.0.0.1:8080 or [::1]:8080)")
            }
            ServerError::Route { pattern, why } => write!(f, "route, on {pattern:?}: {why}"),
            ServerError::Driver(why) => write!(f, "{why}"),
            ServerError::Engine(why) => write!(f, "{why}"),
            ServerError::Thread(why) => {
                write!(f, "starting a worker: {why} (see `ulimit -u` and the cgroup's pids.max)")
            }
            ServerError::Panicked(why) => write!(f, "a worker panicked: {why}"),
        }
    }
}

impl std::error::Error for ServerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ServerError::Driver(why) => Some(why),
            ServerError::Engine(why) => Some(why),
            ServerError::Thread(why) => Some(why),
            _ => None,
        }
    }
}

impl From<ringroad_engine::Error> for ServerError {
    fn from(why: ringroad_engine::Error) -> Self {
        ServerError::Engine(why)
    }
}

/// Why a client's request got no response.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// It is not a URL this client can ask for.
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
        /// What the system said.
        why: std::io::Error,
    },
    /// Connecting, sending or receiving failed.
    Connection(ringroad_engine::Error),
    /// A part of the request cannot be sent as it is.
    Request(ringroad_wire::EncodeError),
    /// The body of the request failed.
    Body(BoxError),
    /// The server's answer breaks the protocol.
    Response(ringroad_wire::Error),
    /// The body of the response did not come as it should.
    Unread(BodyError),
    /// The server closed the connection before it answered.
    Closed,
    /// It was not done in time: what, and how long it had.
    TimedOut(&'static str, Duration),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::Url { url, why } => write!(f, "request, on {url:?}: {why}"),
            ClientError::Resolve { host, why } => write!(f, "resolve, on {host:?}: {why}"),
            ClientError::Connection(why) => write!(f, "{why}"),
            ClientError::Request(why) => write!(f, "request: {why}"),
            ClientError::Body(why) => write!(f, "request body: {why}"),
            ClientError::Response(why) => write!(f, "response: {why}"),
            ClientError::Unread(why) => write!(f, "response {why}"),
            ClientError::Closed => f.write_str("response: the server closed the connection instead"),
            ClientError::TimedOut(what, span) => write!(f, "{what}: not done within {span:?}"),
        }
    }
}

impl std::error::Error for ClientError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ClientError::Resolve { why, .. } => Some(why),
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
