//! Bodies, as they are written: the sender held to what its head announced.
//!
//! Start at [`BodyEncoder`]. Bytes may go through it, or beside it (`sendfile`, zero-copy sends): then it
//! writes only what stands between them.

use crate::body::is_forbidden_trailer;
use crate::encode::{EncodeError, FieldBlock};

/// What a head announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// No body.
    None,
    /// The body that GET would have got: not sent, of this length if that was said.
    Unsent { length: Option<u64> },
    /// `left` bytes are still owed.
    Length { left: u64 },
    /// `line_due`: the CR LF of the last chunk is still to be written.
    Chunked { line_due: bool },
    /// The end of the connection is the end of the body.
    UntilClose,
}

/// The body of a message being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a body has to be ended, also an empty one"]
pub struct BodyEncoder {
    framing: Framing,
    keep_alive: bool,
}

impl BodyEncoder {
    #[inline]
    pub(crate) fn new(framing: Framing, keep_alive: bool) -> Self {
        BodyEncoder { framing, keep_alive }
    }

    /// Returns whether the connection goes on after this message, as its head told the peer.
    pub fn keep_alive(&self) -> bool {
        self.keep_alive
    }

    /// Returns whether bytes of the body are sent at all: not after HEAD, nor with 204 and 304. A sender that
    /// would have to fetch them can spare itself.
    pub fn is_sent(&self) -> bool {
        !matches!(self.framing, Framing::None | Framing::Unsent { .. })
    }

    /// Returns whether the peer can tell a body that breaks off from a whole one: not where the connection's
    /// end is the body's.
    pub fn tells_its_end(&self) -> bool {
        !matches!(self.framing, Framing::UntilClose)
    }

    /// Writes a piece of the body, framed. After HEAD it writes nothing.
    #[inline]
    pub fn data(&mut self, out: &mut Vec<u8>, data: &[u8]) -> Result<(), EncodeError> {
        if self.frame(out, data.len() as u64)? {
            out.extend_from_slice(data);
        }
        Ok(())
    }

    /// Writes what stands before a piece of `data_bytes`, which the caller then sends itself, all of it,
    /// behind what is in `out`. False: nothing of it is sent.
    #[inline]
    pub fn frame(&mut self, out: &mut Vec<u8>, data_bytes: u64) -> Result<bool, EncodeError> {
        match &mut self.framing {
            Framing::None if data_bytes > 0 => Err(EncodeError::BodyTooLong),
            Framing::None | Framing::Unsent { .. } => Ok(false),
            Framing::Length { left } => {
                *left = left.checked_sub(data_bytes).ok_or(EncodeError::BodyTooLong)?;
                Ok(true)
            }
            // A chunk of no bytes would be the last.
            Framing::Chunked { .. } if data_bytes == 0 => Ok(false),
            Framing::Chunked { line_due } => {
                if *line_due {
                    out.extend_from_slice(b"\r\n");
                }
                put_hexadecimal(out, data_bytes);
                out.extend_from_slice(b"\r\n");
                *line_due = true;
                Ok(true)
            }
            Framing::UntilClose => Ok(true),
        }
    }

    /// Ends the body. An error if fewer bytes went than were announced: then close the connection, which
    /// tells the peer that the body is not complete.
    #[inline]
    pub fn end(self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.end_with(out, &FieldBlock::new())
    }

    /// Ends the body with trailers, which only a chunked body can carry: with another framing they are
    /// dropped, as RFC 9110 §6.5.1 lets every hop do.
    #[inline]
    pub fn end_with(self, out: &mut Vec<u8>, trailers: &FieldBlock) -> Result<(), EncodeError> {
        match self.framing {
            Framing::Length { left: 0 } | Framing::None | Framing::Unsent { .. } | Framing::UntilClose => {
                Ok(())
            }
            Framing::Length { .. } => Err(EncodeError::BodyTooShort),
            Framing::Chunked { line_due } => {
                let names = trailers.bytes().split(|byte| *byte == b'\n');
                let mut names = names.filter_map(|line| line.split(|byte| *byte == b':').next());
                if names.any(is_forbidden_trailer) {
                    return Err(EncodeError::Framing);
                }
                out.extend_from_slice(if line_due { b"\r\n0\r\n" } else { b"0\r\n" });
                out.extend_from_slice(trailers.bytes());
                out.extend_from_slice(b"\r\n");
                Ok(())
            }
        }
    }
}

/// Writes a number, in hexadecimal.
fn put_hexadecimal(out: &mut Vec<u8>, number: u64) {
    let mut digits = [b'0'; 16];
    let mut rest = number;
    let mut first = digits.len();
    for digit in digits.iter_mut().rev() {
        *digit = char::from_digit((rest & 15) as u32, 16).map_or(b'0', |digit| digit as u8);
        rest >>= 4;
        first -= 1;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(first..).unwrap_or_default());
}
