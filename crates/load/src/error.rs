//! Errors that prevent a run. Errors *during* a run are counted instead.

use std::fmt;

/// A run that did not begin, or that could not be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    message: String,
    usage: bool,
}

impl Error {
    /// An invalid request.
    pub(crate) fn usage(message: impl Into<String>) -> Error {
        Error { message: message.into(), usage: true }
    }

    /// An error of the machine or the network.
    pub(crate) fn failed(message: impl Into<String>) -> Error {
        Error { message: message.into(), usage: false }
    }

    /// A load that was stopped, with the caller's message.
    pub fn stopped(message: impl Into<String>) -> Error {
        Error::failed(message)
    }

    /// Whether only another command line would help.
    pub fn is_usage(&self) -> bool {
        self.usage
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
