//! Errors of WebSocket sessions.

use ringroad_wire::ws::{self, CloseCode};
use std::fmt;

/// Why a session ended without a closing handshake, or nothing can be sent.
#[derive(Debug)]
#[non_exhaustive]
pub enum WebSocketError {
    /// The peer broke a rule of the protocol or a limit. A close frame with the code was sent to it.
    Protocol(ws::Error),
    /// Receiving or sending failed.
    Connection(ringroad_engine::Error),
    /// The peer closed the connection without a close frame.
    Lost,
    /// The peer did not answer a ping in time, or did not take sent data in time.
    TimedOut,
    /// The session is closed or closing: nothing more can be sent.
    Closed,
}

impl WebSocketError {
    /// Returns the close code for this error. It may or may not have been sent to the peer.
    pub fn code(&self) -> CloseCode {
        match self {
            WebSocketError::Protocol(why) => why.code(),
            WebSocketError::Closed => CloseCode::NORMAL,
            WebSocketError::Connection(_) | WebSocketError::Lost | WebSocketError::TimedOut => {
                CloseCode::ABNORMAL
            }
        }
    }
}

impl fmt::Display for WebSocketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WebSocketError::Protocol(why) => why.fmt(f),
            WebSocketError::Connection(why) => write!(f, "WebSocket: {why}"),
            WebSocketError::Lost => {
                f.write_str("WebSocket: the peer closed the connection without a close frame")
            }
            WebSocketError::TimedOut => f.write_str("WebSocket: the peer did not answer in time"),
            WebSocketError::Closed => f.write_str("WebSocket: the session is closed"),
        }
    }
}

impl std::error::Error for WebSocketError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            WebSocketError::Protocol(why) => Some(why),
            WebSocketError::Connection(why) => Some(why),
            WebSocketError::Lost | WebSocketError::TimedOut | WebSocketError::Closed => None,
        }
    }
}

/// Why a [`Sender`](super::Sender) did not take a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// The queue is full: the peer is slow.
    Full,
    /// The session is closed, or closing.
    Closed,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SendError::Full => "WebSocket: too much waits to be sent (the peer is slow)",
            SendError::Closed => "WebSocket: the session is closed",
        })
    }
}

impl std::error::Error for SendError {}
