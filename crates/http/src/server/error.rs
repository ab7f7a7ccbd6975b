//! What goes wrong when a server is set up or run.

use crate::transport::ListenError;
use ringroad_engine::choose::Unusable;
use ringroad_engine::workers::WorkerError;
use std::fmt;

/// Why a server could not be set up or run.
///
/// Its `Debug` is its `Display`, so that a `main` that returns it says what a person can read.
#[non_exhaustive]
pub enum ServerError {
    /// What was given as an address is none, or a socket that it names was not passed.
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
    /// Binding, or running a worker.
    Engine(ringroad_engine::Error),
    /// Making a worker's thread or runtime. Then no address was listened at.
    Runtime(ringroad_engine::Error),
    /// A worker gets no descriptor of the listening socket.
    Socket(std::io::Error),
    /// The workers have fewer listening sockets to give than are wanted.
    NoSocket {
        /// How many.
        wanted: usize,
        /// How many there are.
        there: usize,
    },
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
