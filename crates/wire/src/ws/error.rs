//! Why a connection is given up: the rule that the peer broke, and the code that tells the peer.

use super::close::CloseCode;
use std::fmt;

/// A rule that the peer broke. After one the machine stays failed: the next frame cannot be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    problem: Problem,
}

impl Error {
    /// Makes an error of this rule.
    pub const fn new(problem: Problem) -> Error {
        Error { problem }
    }

    /// Returns the rule.
    pub fn problem(self) -> Problem {
        self.problem
    }

    /// Returns the code of the close frame that answers it.
    pub fn code(self) -> CloseCode {
        self.problem.row().0
    }
}

macro_rules! problems {
    ($($(#[$meta:meta])* $name:ident $code:ident $text:literal;)*) => {
        /// The rules that can be broken.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Problem {
            $($(#[$meta])* $name,)*
        }

        impl Problem {
            fn row(self) -> (CloseCode, &'static str) {
                match self {
                    $(Problem::$name => (CloseCode::$code, $text),)*
                }
            }
        }
    };
}

problems! {
    /// RSV1 to RSV3 without an extension that gives them a meaning.
    ReservedBits PROTOCOL_ERROR "reserved bits are set, and no extension was agreed on that uses them";
    /// Opcodes 3 to 7 and 11 to 15.
    ReservedOpcode PROTOCOL_ERROR "reserved opcode";
    /// A client must mask.
    Unmasked PROTOCOL_ERROR "a client's frame is not masked";
    /// A server must not.
    Masked PROTOCOL_ERROR "a server's frame is masked";
    /// A control frame in fragments.
    FragmentedControl PROTOCOL_ERROR "a control frame is fragmented";
    /// More than 125 bytes.
    LongControl PROTOCOL_ERROR "a control frame has more than 125 bytes";
    /// A length that fits in fewer bytes, or with its highest bit set.
    Length PROTOCOL_ERROR "the length of a frame is not written in the fewest bytes";
    /// Opcode 0 outside of a message.
    NoMessage PROTOCOL_ERROR "a continuation frame outside of a message";
    /// A new message before the end of the last.
    MessageInside PROTOCOL_ERROR "a new message begins inside another";
    /// One byte, or a code that must not be sent.
    Close PROTOCOL_ERROR "a close frame with a wrong code";
    /// A text or a close reason.
    NotUtf8 INVALID_DATA "a text is not UTF-8";
    /// The deflate stream is broken.
    Deflate INVALID_DATA "compressed data cannot be inflated";
    /// Longer than the limit, before or after inflating.
    TooLong TOO_BIG "a message is longer than the limit";
    /// More fragments than the limit.
    TooManyFragments POLICY "a message has too many fragments";
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (code, text) = self.problem.row();
        write!(f, "WebSocket: {text} (close with {code})")
    }
}

impl std::error::Error for Error {}
