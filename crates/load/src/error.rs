//! Why no load could be put on anything. What goes wrong *during* a run is counted, not told here.

use std::fmt;

/// A run that did not begin, or that could not be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    message: String,
    usage: bool,
}

impl Error {
    /// What was asked for makes no sense.
    pub(crate) fn usage(message: impl Into<String>) -> Error {
        Error { message: message.into(), usage: true }
    }

    /// The machine or the network said no.
    pub(crate) fn failed(message: impl Into<String>) -> Error {
        Error { message: message.into(), usage: false }
    }

    /// Whether another command line would help, and nothing else.
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
