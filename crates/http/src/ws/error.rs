//! How a session fails.

use ringroad_wire::ws::{self, CloseCode};
use std::fmt;

/// Why a session ended without a closing handshake, or nothing can be sent.
#[derive(Debug)]
#[non_exhaustive]
pub enum WebSocketError {
    /// The peer broke a rule of the protocol or a limit. It was told so.
    Protocol(ws::Error),
    /// Receiving or sending failed.
    Connection(ringroad_engine::Error),
    /// The peer closed the connection without a close frame.
    Lost,
    /// The peer answered no ping, or took nothing of what was sent, for too long.
    TimedOut,
    /// It is closed, or closing: nothing more is sent.
    Closed,
}

impl WebSocketError {
    /// Returns the close code that says as much; it may have been sent to the peer or not.
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
    /// As much waits to be sent as may: the peer is slow.
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
