//! Errors that prevent a run. Errors *during* a run are counted instead.

use crate::target::Target;
use std::fmt;

/// A run that did not begin, or that could not be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    message: String,
    usage: bool,
    /// What is wrong with what the server sent, where that is the reason.
    heard: Option<String>,
    /// The caller has stopped it.
    interrupted: bool,
}

impl Error {
    /// Returns an invalid request.
    pub(crate) fn usage(message: impl Into<String>) -> Error {
        Error { usage: true, ..Error::failed(message) }
    }

    /// Returns an error of the machine or the network.
    pub(crate) fn failed(message: impl Into<String>) -> Error {
        Error { message: message.into(), usage: false, heard: None, interrupted: false }
    }

    /// No connection came to a request, because of what the server sent before one.
    pub(crate) fn heard(message: impl Into<String>, heard: &str) -> Error {
        Error { heard: Some(heard.to_owned()), ..Error::failed(message) }
    }

    /// Returns what is wrong with what the server sent, if that is the reason.
    pub(crate) fn what_was_heard(&self) -> Option<&str> {
        self.heard.as_deref()
    }

    /// Returns a load that was stopped, with the caller's message.
    pub fn stopped(message: impl Into<String>) -> Error {
        Error::failed(message)
    }

    /// Returns a load that the caller has stopped before there was anything to tell.
    pub fn interrupted(message: impl Into<String>) -> Error {
        Error { interrupted: true, ..Error::failed(message) }
    }

    /// Returns the error of a load on `target` that the caller has stopped while its connections were made,
    /// or behind that.
    pub(crate) fn before_the_load(target: &Target) -> Error {
        Error::interrupted(format!("{target}: interrupted before the load began"))
    }

    /// Returns whether the caller has stopped it, and nothing else has failed.
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
