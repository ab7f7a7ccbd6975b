//! The status of a closing connection (RFC 6455 §7.4).

use std::fmt;

/// Why a connection is closed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CloseCode(u16);

impl CloseCode {
    /// 1000: the purpose was fulfilled.
    pub const NORMAL: CloseCode = CloseCode(1000);
    /// 1001: a server stops, or the user leaves the page.
    pub const GOING_AWAY: CloseCode = CloseCode(1001);
    /// 1002: a rule of the protocol was broken.
    pub const PROTOCOL_ERROR: CloseCode = CloseCode(1002);
    /// 1003: an unsupported kind of message.
    pub const UNSUPPORTED: CloseCode = CloseCode(1003);
    /// 1005: the close frame had no code. Never sent.
    pub const NO_STATUS: CloseCode = CloseCode(1005);
    /// 1006: the connection ended without a close frame. Never sent.
    pub const ABNORMAL: CloseCode = CloseCode(1006);
    /// 1007: a text that is not UTF-8, or invalid compressed data.
    pub const INVALID_DATA: CloseCode = CloseCode(1007);
    /// 1008: a violation of a server rule without a code of its own.
    pub const POLICY: CloseCode = CloseCode(1008);
    /// 1009: a message that is too long.
    pub const TOO_BIG: CloseCode = CloseCode(1009);
    /// 1010: the client expected an extension.
    pub const EXTENSION_NEEDED: CloseCode = CloseCode(1010);
    /// 1011: the server failed.
    pub const INTERNAL: CloseCode = CloseCode(1011);
    /// 1012: the server restarts; a client may reconnect.
    pub const RESTART: CloseCode = CloseCode(1012);
    /// 1013: overload; a client should retry later.
    pub const TRY_AGAIN: CloseCode = CloseCode(1013);

    /// Makes a code from its number.
    pub const fn new(code: u16) -> CloseCode {
        CloseCode(code)
    }

    /// Returns its number.
    pub const fn get(self) -> u16 {
        self.0
    }

    /// Returns whether a close frame may have it: 1000 to 1014 except 1004 to 1006, and 3000 to 4999, which
    /// belong to libraries and applications.
    pub const fn may_be_sent(self) -> bool {
        matches!(self.0, 1000..=1003 | 1007..=1014 | 3000..=4999)
    }
}

impl fmt::Display for CloseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for CloseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CloseCode({})", self.0)
    }
}
