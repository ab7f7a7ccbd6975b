//! Errors of a body.

use ringroad_wire::Status;
use std::fmt;

/// Any error of the user's code.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a body could not be received or read.
#[derive(Debug)]
#[non_exhaustive]
pub enum BodyError {
    /// The body breaks the protocol or a limit, or ended early.
    Refused(ringroad_wire::Error),
    /// The body arrived too slowly, or not at all.
    TooSlow,
    /// The body is longer than the reader's limit, in bytes.
    TooLong(usize),
    /// The body is not received any more: its request was answered, or the connection has ended.
    Over,
    /// The body is not JSON of the expected shape.
    #[cfg(feature = "json")]
    Json(serde_json::Error),
    /// The body is a form, but not of the expected shape, for this reason.
    Form(String),
    /// The body is not a form with files, or exceeds a limit of one, for this reason.
    Multipart(String),
    /// A file of a form could not be stored.
    Store(BoxError),
    /// The body does not have this media type.
    Type(&'static str),
    /// The body is not UTF-8.
    NotText,
    /// The connection failed.
    Connection(ringroad_engine::Error),
    /// The source of a body that the program made failed.
    Source(BoxError),
}

impl BodyError {
    /// Returns the status of a server's answer: 400, 408, 413, 415, 422, or the one that the protocol
    /// requires.
    pub fn status(&self) -> Status {
        match self {
            BodyError::Refused(why) => why.status(),
            BodyError::TooSlow => Status::REQUEST_TIMEOUT,
            BodyError::TooLong(_) => Status::CONTENT_TOO_LARGE,
            BodyError::Over | BodyError::Connection(_) | BodyError::Source(_) | BodyError::Store(_) => {
                Status::INTERNAL_SERVER_ERROR
            }
            // It is JSON, but of another shape.
            #[cfg(feature = "json")]
            BodyError::Json(why) if why.is_data() => Status::UNPROCESSABLE_CONTENT,
            #[cfg(feature = "json")]
            BodyError::Json(_) => Status::BAD_REQUEST,
            BodyError::Form(_) => Status::UNPROCESSABLE_CONTENT,
            BodyError::Multipart(_) | BodyError::NotText => Status::BAD_REQUEST,
            BodyError::Type(_) => Status::UNSUPPORTED_MEDIA_TYPE,
        }
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BodyError::Refused(why) => write!(f, "body: {why}"),
            BodyError::TooSlow => f.write_str("body: it did not come in time"),
            BodyError::TooLong(bytes) => write!(f, "body: longer than {bytes} bytes"),
            BodyError::Over => f.write_str("body: its exchange is over, and it is not received any more"),
            BodyError::Form(why) => write!(f, "body: not the form that was expected: {why}"),
            BodyError::Multipart(why) => write!(f, "body: not a form with files: {why}"),
            BodyError::Store(why) => write!(f, "body: storing a file of the form: {why}"),
            BodyError::Type(wanted) => write!(f, "body: expected Content-Type: {wanted}"),
            #[cfg(feature = "json")]
            BodyError::Json(why) => write!(f, "body: not the JSON that was expected: {why}"),
            BodyError::NotText => f.write_str("body: not UTF-8"),
            BodyError::Connection(why) => write!(f, "body: {why}"),
            BodyError::Source(why) => write!(f, "body: {why}"),
        }
    }
}

impl std::error::Error for BodyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            BodyError::Refused(why) => Some(why),
            #[cfg(feature = "json")]
            BodyError::Json(why) => Some(why),
            BodyError::Store(why) => Some(&**why),
            BodyError::Connection(why) => Some(why),
            BodyError::Source(why) => Some(&**why),
            _ => None,
        }
    }
}
