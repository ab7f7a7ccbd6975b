//! Errors of channels.

use std::fmt;

/// Error: the channel is closed. Has the message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SendError<T>(pub T);

impl<T> SendError<T> {
    /// Returns the message.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SendError(..)")
    }
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the channel is closed: nothing receives the message")
    }
}

impl<T> std::error::Error for SendError<T> {}

/// Error of a send that does not wait. Has the message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// There is no room now.
    Full(T),
    /// The channel is closed.
    Closed(T),
}

impl<T> TrySendError<T> {
    /// Returns the message.
    pub fn into_inner(self) -> T {
        match self {
            TrySendError::Full(message) | TrySendError::Closed(message) => message,
        }
    }

    /// Returns whether there was no room.
    pub fn is_full(&self) -> bool {
        matches!(self, TrySendError::Full(_))
    }

    /// Returns whether the channel is closed.
    pub fn is_closed(&self) -> bool {
        matches!(self, TrySendError::Closed(_))
    }
}

impl<T> fmt::Debug for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_full() { "Full(..)" } else { "Closed(..)" })
    }
}

impl<T> fmt::Display for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_full() {
            "the channel has no room for the message"
        } else {
            "the channel is closed: nothing receives the message"
        })
    }
}

impl<T> std::error::Error for TrySendError<T> {}

/// Error of a send that waits for a limited time. Has the message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SendTimeoutError<T> {
    /// There was no room within the time.
    Elapsed(T),
    /// The channel is closed.
    Closed(T),
}

impl<T> SendTimeoutError<T> {
    /// Returns the message.
    pub fn into_inner(self) -> T {
        match self {
            SendTimeoutError::Elapsed(message) | SendTimeoutError::Closed(message) => message,
        }
    }
}

impl<T> fmt::Debug for SendTimeoutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SendTimeoutError::Elapsed(_) => "Elapsed(..)",
            SendTimeoutError::Closed(_) => "Closed(..)",
        })
    }
}

impl<T> fmt::Display for SendTimeoutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SendTimeoutError::Elapsed(_) => "the channel had no room for the message within the time",
            SendTimeoutError::Closed(_) => "the channel is closed: nothing receives the message",
        })
    }
}

impl<T> std::error::Error for SendTimeoutError<T> {}

/// Error: the channel is empty and closed, so no message can arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvError;

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the channel is empty and closed")
    }
}

impl std::error::Error for RecvError {}

/// Error of a receive that does not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryRecvError {
    /// There is no message now.
    Empty,
    /// The same as [`RecvError`].
    Closed,
}

impl TryRecvError {
    /// Returns whether there is no message now.
    pub fn is_empty(&self) -> bool {
        *self == TryRecvError::Empty
    }

    /// Returns whether no message can arrive.
    pub fn is_closed(&self) -> bool {
        *self == TryRecvError::Closed
    }
}

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TryRecvError::Empty => f.write_str("the channel is empty"),
            TryRecvError::Closed => RecvError.fmt(f),
        }
    }
}

impl std::error::Error for TryRecvError {}
