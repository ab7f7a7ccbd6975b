//! Typed errors for requests that a handler does not expect, which are responses.

use super::{BodyError, IntoResponse, Response};
use ringroad_wire::Status;
use std::fmt;

/// A request that is not what the handler expects. Returned with `?`, it is the answer: its
/// [status](Self::status), and the reason as text.
#[derive(Debug)]
#[non_exhaustive]
pub enum Rejection {
    /// A path parameter cannot be converted to the expected type: 400.
    #[non_exhaustive]
    Path {
        /// The reason, for the client.
        why: String,
    },
    /// The query does not have the expected shape: 400.
    #[non_exhaustive]
    Query {
        /// The reason, for the client.
        why: String,
    },
    /// A header line is missing or invalid: 400.
    #[non_exhaustive]
    Header {
        /// The reason, for the client.
        why: String,
    },
    /// The body does not have the expected shape: 400, 408, 413, 415 or 422.
    Body(BodyError),
    /// A value that the handler extracts was not inserted: a bug of the program, 500.
    #[non_exhaustive]
    Missing {
        /// What is missing, for the program's log.
        what: &'static str,
    },
}

impl Rejection {
    pub(crate) fn path(why: impl fmt::Display) -> Rejection {
        Rejection::Path { why: why.to_string() }
    }

    #[cfg(feature = "json")]
    pub(crate) fn query(why: impl fmt::Display) -> Rejection {
        Rejection::Query { why: why.to_string() }
    }

    /// Makes the rejection of a header line, for extractors of your own.
    pub fn header(why: impl fmt::Display) -> Rejection {
        Rejection::Header { why: why.to_string() }
    }

    pub(crate) fn missing(what: &'static str) -> Rejection {
        Rejection::Missing { what }
    }

    /// Returns the status of the answer.
    pub fn status(&self) -> Status {
        match self {
            Rejection::Path { .. } | Rejection::Query { .. } | Rejection::Header { .. } => {
                Status::BAD_REQUEST
            }
            Rejection::Body(why) => why.status(),
            Rejection::Missing { .. } => Status::INTERNAL_SERVER_ERROR,
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rejection::Path { why } => write!(f, "path: {why}"),
            Rejection::Query { why } => write!(f, "query: {why}"),
            Rejection::Header { why } => write!(f, "header: {why}"),
            Rejection::Body(why) => why.fmt(f),
            Rejection::Missing { what } => {
                write!(f, "the handler takes {what}, which no earlier step has put in")
            }
        }
    }
}

impl std::error::Error for Rejection {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Rejection::Body(why) => Some(why),
            _ => None,
        }
    }
}

impl From<BodyError> for Rejection {
    fn from(why: BodyError) -> Rejection {
        Rejection::Body(why)
    }
}

impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        // The client learns no internals of a program with a bug.
        let text = match &self {
            Rejection::Missing { .. } => "500 Internal Server Error\n".to_owned(),
            other => format!("{other}\n"),
        };
        (self.status(), text).into_response()
    }
}
