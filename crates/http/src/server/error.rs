//! Errors of setting up and running a server.

use crate::transport::ListenError;
use ringroad_engine::choose::Unusable;
use ringroad_engine::workers::WorkerError;
use std::fmt;

/// Why a server could not be set up or run.
///
/// `Debug` prints the same as `Display`, so that a `main` that returns this error prints readable text.
#[non_exhaustive]
pub enum ServerError {
    /// The text is not an address, or the passed socket that it names does not exist.
    Address(String),
    /// A pattern is invalid, or conflicts with another.
    Route {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        why: String,
    },
    /// No driver can be used, or not the requested one.
    Driver(Unusable),
    /// Binding, or running a worker, failed.
    Engine(ringroad_engine::Error),
    /// Making a worker's thread or runtime failed. No address was bound.
    Runtime(ringroad_engine::Error),
    /// The listening socket could not be duplicated for a worker, or the file of a Unix socket not examined.
    Socket(std::io::Error),
    /// The workers have fewer listening sockets than requested.
    NoSocket {
        /// The requested number.
        wanted: usize,
        /// The available number.
        there: usize,
    },
    /// A worker ended with a panic of the library, or of the function that makes the state.
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
                write!(f, "bind, on {address}")
            }
            ServerError::Route { pattern, why } => write!(f, "route, on {pattern:?}: {why}"),
            ServerError::Driver(why) => write!(f, "{why}"),
            ServerError::Engine(why) | ServerError::Runtime(why) => write!(f, "{why}"),
            ServerError::Socket(why) => write!(f, "dup, on a listening socket: {why} (see `ulimit -n`)"),
            ServerError::NoSocket { wanted, there } => {
                write!(f, "taking the place of {wanted} workers: {there} have a listening socket to give")
            }
            ServerError::Panicked(why) => write!(f, "a worker panicked: {why}"),
        }
    }
}

impl std::error::Error for ServerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ServerError::Driver(why) => Some(why),
            ServerError::Engine(why) | ServerError::Runtime(why) => Some(why),
            ServerError::Socket(why) => Some(why),
            _ => None,
        }
    }
}

impl From<ringroad_engine::Error> for ServerError {
    fn from(why: ringroad_engine::Error) -> Self {
        ServerError::Engine(why)
    }
}

impl From<WorkerError> for ServerError {
    fn from(why: WorkerError) -> Self {
        match why {
            WorkerError::Panicked { message, .. } => ServerError::Panicked(message),
            why => {
                ServerError::Engine(ringroad_engine::Error::layered("a worker", std::io::Error::other(why)))
            }
        }
    }
}

impl From<ListenError> for ServerError {
    fn from(why: ListenError) -> Self {
        match why {
            ListenError::Engine(why) => ServerError::Engine(why),
            ListenError::Passed(why) => ServerError::Address(why),
            ListenError::Copy(why) | ListenError::Look(why) => ServerError::Socket(why),
        }
    }
}
