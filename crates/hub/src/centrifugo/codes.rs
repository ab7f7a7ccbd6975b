//! The protocol's numbers: errors of commands, and codes with which a connection or a subscription ends.

use ringroad_http::ws::CloseCode;
use serde_json::{Value, json};

/// A command failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Error {
    code: u16,
    message: &'static str,
    /// It may be tried again.
    temporary: bool,
}

impl Error {
    const fn new(code: u16, message: &'static str) -> Error {
        Error { code, message, temporary: false }
    }

    pub(super) fn json(self) -> Value {
        let mut told = json!({"code": self.code, "message": self.message});
        if let (true, Some(told)) = (self.temporary, told.as_object_mut()) {
            told.insert("temporary".to_owned(), true.into());
        }
        told
    }
}

pub(super) const INTERNAL: Error = Error { code: 100, message: "internal server error", temporary: true };
pub(super) const PERMISSION_DENIED: Error = Error::new(103, "permission denied");
pub(super) const METHOD_NOT_FOUND: Error = Error::new(104, "method not found");
pub(super) const ALREADY_SUBSCRIBED: Error = Error::new(105, "already subscribed");
pub(super) const LIMIT_EXCEEDED: Error = Error::new(106, "limit exceeded");
pub(super) const BAD_REQUEST: Error = Error::new(107, "bad request");
pub(super) const NOT_AVAILABLE: Error = Error::new(108, "not available");
pub(super) const TOKEN_EXPIRED: Error = Error::new(109, "token expired");
pub(super) const UNRECOVERABLE: Error = Error::new(112, "unrecoverable position");

/// How the hub ends a connection. Clients come back, unless the code is from 3500 to 3999.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Disconnect(pub(super) CloseCode, pub(super) &'static str);

pub(super) const SHUTDOWN: Disconnect = Disconnect(CloseCode::new(3001), "shutdown");
pub(super) const CONNECTION_EXPIRED: Disconnect = Disconnect(CloseCode::new(3005), "connection expired");
pub(super) const SLOW: Disconnect = Disconnect(CloseCode::new(3008), "slow");
pub(super) const INSUFFICIENT_STATE: Disconnect = Disconnect(CloseCode::new(3010), "insufficient state");
pub(super) const NO_PONG: Disconnect = Disconnect(CloseCode::new(3012), "no pong");
pub(super) const INVALID_TOKEN: Disconnect = Disconnect(CloseCode::new(3500), "invalid token");
pub(super) const BAD_COMMAND: Disconnect = Disconnect(CloseCode::new(3501), "bad request");
pub(super) const STALE: Disconnect = Disconnect(CloseCode::new(3502), "stale");
pub(super) const NO_HANDLER: Disconnect = Disconnect(CloseCode::new(3508), "not available");

/// A subscription ended: by the server for good, or because its token has expired. Clients subscribe again
/// behind codes from 2500 on.
pub(super) const UNSUBSCRIBED: (u16, &str) = (2000, "server unsubscribe");
pub(super) const SUBSCRIPTION_EXPIRED: (u16, &str) = (2501, "subscription expired");
