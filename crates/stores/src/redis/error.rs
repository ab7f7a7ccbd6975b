//! Why a command has no answer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Why a command has no answer. Clones are cheap: one lost connection is the error of many commands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RedisError {
    /// The server refused the command. The first word says why, as `OOM`, `WRONGTYPE`, `NOPERM`.
    Refused(Arc<str>),
    /// No answer came in this time. The command may have been executed.
    TimedOut(Duration),
    /// The connection ended before the answer came. The command may have been executed.
    Lost(Arc<str>),
    /// The server could not be reached; not before so long is it tried again. Nothing was sent.
    Unreachable {
        /// What was attempted, and what the system said.
        why: Arc<str>,
        /// Until the next attempt.
        again: Duration,
    },
    /// Too many commands in a row had no answer; not before so long is one sent again. Nothing was sent.
    Resting(Duration),
    /// Too many commands wait for their answers. Nothing was sent.
    Full,
}

impl RedisError {
    /// Returns whether the command was not sent, so that it had no effect.
    pub fn is_unsent(&self) -> bool {
        matches!(self, RedisError::Unreachable { .. } | RedisError::Resting(_) | RedisError::Full)
    }

    /// Returns the first word of the server's refusal, as `NOSCRIPT`.
    pub fn code(&self) -> Option<&str> {
        match self {
            RedisError::Refused(text) => text.split(' ').next(),
            _ => None,
        }
    }
}

impl fmt::Display for RedisError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RedisError::Refused(text) => write!(f, "Redis refused the command: {text}"),
            RedisError::TimedOut(span) => write!(f, "Redis did not answer within {span:?}"),
            RedisError::Lost(why) => write!(f, "Redis: the connection ended before the answer: {why}"),
            RedisError::Unreachable { why, again } => {
                write!(f, "Redis cannot be reached (tried again in {again:?}): {why}")
            }
            RedisError::Resting(again) => {
                write!(f, "Redis did not answer too many commands (tried again in {again:?})")
            }
            RedisError::Full => f.write_str("Redis: too many commands wait for their answers"),
        }
    }
}

impl std::error::Error for RedisError {}
