//! Errors that prevent a run. Errors *during* a run are counted instead.

use crate::target::Target;
use std::fmt;

/// Why a run did not begin, or could not continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    message: String,
    usage: bool,
    /// What is wrong with the server's bytes, if that is the cause.
    heard: Option<String>,
    /// Whether the caller has stopped it.
    interrupted: bool,
}

impl Error {
    /// Makes an error for an invalid request.
    pub(crate) fn usage(message: impl Into<String>) -> Error {
        Error { usage: true, ..Error::failed(message) }
    }

    /// Makes an error of the machine or the network.
    pub(crate) fn failed(message: impl Into<String>) -> Error {
        Error { message: message.into(), usage: false, heard: None, interrupted: false }
    }

    /// Makes an error for a server that sent invalid bytes before any request.
    pub(crate) fn heard(message: impl Into<String>, heard: &str) -> Error {
        Error { heard: Some(heard.to_owned()), ..Error::failed(message) }
    }

    /// Returns what is wrong with the server's bytes, if that is the cause.
    pub(crate) fn what_was_heard(&self) -> Option<&str> {
        self.heard.as_deref()
    }

    /// Makes the error of a stopped load, with the caller's message.
    pub fn stopped(message: impl Into<String>) -> Error {
        Error::failed(message)
    }

    /// Makes the error of a load that the caller has stopped before there was any result.
    pub fn interrupted(message: impl Into<String>) -> Error {
        Error { interrupted: true, ..Error::failed(message) }
    }

    /// Makes the error of a load on `target` that the caller has stopped while connections were made, or
    /// after that.
    pub(crate) fn before_the_load(target: &Target) -> Error {
        Error::interrupted(format!("{target}: interrupted before the load began"))
    }

    /// Returns whether only the caller's stop caused it.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted
    }

    /// Returns whether only another command line would help.
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
