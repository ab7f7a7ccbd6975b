//! Encoding of bodies, which enforces the framing that the head announced.
//!
//! Start at [`BodyEncoder`]. Bytes may be written through it, or be sent separately (`sendfile`, zero-copy
//! sends): then it writes only the framing between them.

use crate::body::is_forbidden_trailer;
use crate::encode::{EncodeError, FieldBlock};

/// The framing that a head announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// No body.
    None,
    /// The body that GET would have got: not sent. Its length, if that was announced.
    Unsent { length: Option<u64> },
    /// `left` bytes are still to be sent.
    Length { left: u64 },
    /// `line_due`: the CR LF of the last chunk must still be written.
    Chunked { line_due: bool },
    /// The end of the connection ends the body.
    UntilClose,
}

/// Encodes the body of a message.
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

    /// Returns whether the connection is kept after this message, as its head announced.
    pub fn keep_alive(&self) -> bool {
        self.keep_alive
    }

    /// Returns whether bytes of the body are sent at all: not after HEAD, nor with 204 and 304. If not, a
    /// sender need not fetch them.
    pub fn is_sent(&self) -> bool {
        !matches!(self.framing, Framing::None | Framing::Unsent { .. })
    }

    /// Returns whether the peer can distinguish a truncated body from a complete one. It cannot if the end of
    /// the connection ends the body.
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

    /// Writes the framing before a piece of `data_bytes`, which the caller then sends completely, after the
    /// bytes in `out`. `false`: the piece must not be sent.
    #[inline]
    pub fn frame(&mut self, out: &mut Vec<u8>, data_bytes: u64) -> Result<bool, EncodeError> {
        match &mut self.framing {
            Framing::None if data_bytes > 0 => Err(EncodeError::BodyTooLong),
            Framing::None | Framing::Unsent { .. } => Ok(false),
            Framing::Length { left } => {
                *left = left.checked_sub(data_bytes).ok_or(EncodeError::BodyTooLong)?;
                Ok(true)
            }
            // A chunk without bytes would be the last one.
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

    /// Ends the body. Returns an error if fewer bytes were sent than announced: then close the connection,
    /// which shows the peer that the body is incomplete.
    #[inline]
    pub fn end(self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.end_with(out, &FieldBlock::new())
    }

    /// Ends the body with trailers, which only a chunked body can carry. With another framing they are
    /// dropped, as RFC 9110 §6.5.1 permits.
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

/// Writes a hexadecimal number.
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
