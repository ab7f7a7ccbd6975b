//! Why a message is refused: the rule, the bytes received, and the status that answers it.
//!
//! Every rule of this crate is one [`Problem`]; the table below has all of them. After an error a state
//! machine stays failed, since further bytes of the connection have no agreed meaning. Answer
//! [`Error::status`] with `Connection: close`, and close.

use crate::status::Status;
use std::fmt;

/// A message that was refused.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Error {
    problem: Problem,
    of_response: bool,
    got: Sample,
}

impl Error {
    pub(crate) fn new(problem: Problem, got: &[u8]) -> Self {
        Error { problem, of_response: false, got: Sample::of(got) }
    }

    /// Makes an error at one byte.
    pub(crate) fn at(problem: Problem, byte: u8) -> Self {
        Error::new(problem, &[byte])
    }

    /// Marks the error as one of a server's response.
    pub(crate) fn in_response(self) -> Self {
        Error { of_response: true, ..self }
    }

    /// Returns which rule was broken.
    pub fn problem(&self) -> Problem {
        self.problem
    }

    /// Returns the status of a server's answer: 400, 413, 414, 417, 431, 501 or 505. For a response it is
    /// 502, the answer of a gateway for its upstream.
    pub fn status(&self) -> Status {
        if self.of_response { Status::BAD_GATEWAY } else { self.problem.status() }
    }

    /// Returns the first bytes that came instead of the expected ones, at most 24; empty if none came, or if
    /// the length was the problem. They are the peer's: escape them before showing them, as `Display` does.
    pub fn got(&self) -> &[u8] {
        self.got.bytes.get(..usize::from(self.got.len)).unwrap_or_default()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, subject, expected) = self.problem.row();
        write!(f, "{subject}: expected {expected}")?;
        if !self.got().is_empty() {
            write!(f, ", got \"{}\"", self.got().escape_ascii())?;
        }
        // A client answers nothing, and a gateway logs its own status.
        if self.of_response {
            return Ok(());
        }
        write!(f, " (answer {} and close)", self.status().code())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.problem)
    }
}

impl std::error::Error for Error {}

/// The first of the bytes that broke a rule, by value, so that an error outlives the buffer and stays short
/// in a log.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Sample {
    len: u8,
    bytes: [u8; 24],
}

impl Sample {
    fn of(got: &[u8]) -> Self {
        let mut bytes = [0; 24];
        let len = got.len().min(bytes.len());
        for (to, from) in bytes.iter_mut().zip(got) {
            *to = *from;
        }
        Sample { len: len as u8, bytes }
    }
}

macro_rules! problems {
    ($($name:ident $status:ident $subject:literal: $expected:literal;)*) => {
        /// The rules that can be broken, each with the status that answers it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Problem {
            $(#[doc = concat!($subject, ": expected ", $expected, ".")] $name,)*
        }

        impl Problem {
            /// All problems.
            pub const ALL: &[Problem] = &[$(Problem::$name),*];

            /// Returns the status of a server's answer if this rule is broken.
            pub fn status(self) -> Status {
                self.row().0
            }

            fn row(self) -> (Status, &'static str, &'static str) {
                match self {
                    $(Problem::$name => (Status::$status, $subject, $expected),)*
                }
            }
        }
    };
}

problems! {
    EmptyLines BAD_REQUEST "request line": "it after a few empty lines at most";
    Method BAD_REQUEST "method": "a token and one space";
    UnknownMethod NOT_IMPLEMENTED "method": "one this server knows";
    RequestLineTooLong URI_TOO_LONG "request line": "a shorter one";
    Target BAD_REQUEST "request target": "UTF-8 without spaces, control characters or a fragment";
    TargetForm BAD_REQUEST "request target":
        "a path, http(s)://host/path, * with OPTIONS, or host:port with CONNECT";
    Version BAD_REQUEST "version": "HTTP/1.1 or HTTP/1.0 and CR LF after one space";
    UnsupportedVersion HTTP_VERSION_NOT_SUPPORTED "version": "HTTP/1.1 or HTTP/1.0";
    LineEnd BAD_REQUEST "line end": "CR LF";
    LeadingSpace BAD_REQUEST "header line": "a name first; folded lines are not taken";
    FieldName BAD_REQUEST "header name": "a token directly followed by a colon";
    FieldValue BAD_REQUEST "header value": "no control characters";
    FieldLineTooLong HEADER_FIELDS_TOO_LARGE "header line": "a shorter one";
    HeadersTooLong HEADER_FIELDS_TOO_LARGE "headers": "fewer bytes in total";
    TooManyFields HEADER_FIELDS_TOO_LARGE "headers": "fewer lines";
    HostMissing BAD_REQUEST "Host": "one in every HTTP/1.1 request";
    HostTwice BAD_REQUEST "Host": "only one";
    Host BAD_REQUEST "Host": "a name or address, with a port at most";
    ContentLength BAD_REQUEST "Content-Length": "1 to 19 digits";
    ContentLengthTwice BAD_REQUEST "Content-Length": "only one";
    LengthAndCoding BAD_REQUEST "Content-Length": "none beside Transfer-Encoding";
    TransferEncoding BAD_REQUEST "Transfer-Encoding": "chunked";
    TransferEncodingTwice BAD_REQUEST "Transfer-Encoding": "only one";
    TransferEncodingIn10 BAD_REQUEST "Transfer-Encoding": "none in HTTP/1.0";
    UnsupportedCoding NOT_IMPLEMENTED "Transfer-Encoding": "chunked alone, without other codings";
    Expect EXPECTATION_FAILED "Expect": "100-continue";
    BodyNotAllowed BAD_REQUEST "body": "none with CONNECT or TRACE";
    BodyTooLong CONTENT_TOO_LARGE "body": "a shorter one";
    ChunkSize BAD_REQUEST "chunk size": "1 to 16 hexadecimal digits and CR LF";
    ChunkExtension BAD_REQUEST "chunk extension": "name=value after a semicolon, and CR LF";
    ChunkExtensionsTooLong BAD_REQUEST "chunk extensions": "fewer bytes in total";
    ChunkEnd BAD_REQUEST "chunk": "CR LF after its data";
    TrailersTooLong BAD_REQUEST "trailers": "fewer bytes and lines in total";
    TrailerForbidden BAD_REQUEST "trailer": "no field that frames, routes or authenticates the message";
    Truncated BAD_REQUEST "message": "the rest of it before the end of the connection";
    DrainTooLong CONTENT_TOO_LARGE "unwanted body": "less of it";
    StatusLine BAD_GATEWAY "status line": "HTTP/1.1 or HTTP/1.0, three digits and a phrase";
    StatusLineTooLong BAD_GATEWAY "status line": "a shorter one";
    Unsolicited BAD_GATEWAY "response": "none without a request";
    UnofferedUpgrade BAD_GATEWAY "status": "101 only where an upgrade was offered";
    TooManyInterim BAD_GATEWAY "responses": "the final one after a few interim ones";
    Busy BAD_GATEWAY "connection": "to be free for another request";
}
