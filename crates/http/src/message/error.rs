//! What goes wrong with a body.

use ringroad_wire::Status;
use std::fmt;

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
    /// It is not received any more: its request was answered, or the connection is gone.
    Over,
    /// It is not the JSON that was asked for.
    #[cfg(feature = "json")]
    Json(serde_json::Error),
    /// It is a form, but not the one that was asked for, for this reason.
    Form(String),
    /// It is no form with files, or breaks a bound of one, for this reason.
    Multipart(String),
    /// A file of a form could not be stored.
    Store(BoxError),
    /// It does not say that it is of this media type.
    Type(&'static str),
    /// It is not UTF-8.
    NotText,
    /// The connection failed.
    Connection(ringroad_engine::Error),
    /// The body was made, and what makes it failed.
    Source(BoxError),
}

impl BodyError {
    /// Returns what a server answers: 400, 408, 413, 415, 422, or what the protocol asks for.
    pub fn status(&self) -> Status {
        match self {
            BodyError::Refused(why) => why.status(),
            BodyError::TooSlow => Status::REQUEST_TIMEOUT,
            BodyError::TooLong(_) => Status::CONTENT_TOO_LARGE,
            BodyError::Over | BodyError::Connection(_) | BodyError::Source(_) | BodyError::Store(_) => {
                Status::INTERNAL_SERVER_ERROR
            }
            // It is JSON, of another shape.
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
