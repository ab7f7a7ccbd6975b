//! The end of a body, and its content: lengths, chunks, or the end of the connection.
//!
//! A state machine reads the chunk header byte by byte, so that it may be fragmented anywhere and none of it
//! has to be kept. Trailers are header lines, parsed by [`fields`](crate::fields).

use crate::error::{Error, Problem};
use crate::fields::{Bounds, Lines, Progress, Scratch, lines};
use crate::limits::{HEAD_BYTES_MAX, Limits};
use crate::message::Body;
use crate::scan::{is_token, is_value, is_word};

/// The rest of a body.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Decoder {
    Length { left: u64 },
    Chunked(Chunked),
    UntilClose { received: u64 },
}

/// The next part at the front of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    Data(&'a [u8]),
    /// The end of the body, with the number of trailers in these bytes.
    End {
        section: &'a [u8],
        trailers: u8,
    },
    /// More bytes are needed.
    Nothing,
}

impl Decoder {
    /// Makes the decoder of a body that is not empty. `tolerant`: it is of an answer, and
    /// [`Limits::tolerant`] is set.
    pub(crate) fn new(body: Body, tolerant: bool) -> Option<Decoder> {
        match body {
            Body::Empty => None,
            Body::Length(left) => Some(Decoder::Length { left }),
            Body::Chunked => Some(Decoder::Chunked(Chunked { tolerant, ..Chunked::default() })),
            Body::UntilClose => Some(Decoder::UntilClose { received: 0 }),
        }
    }

    /// Returns the bytes of content that are left, if known.
    pub(crate) fn left(&self) -> Option<u64> {
        match self {
            Decoder::Length { left } => Some(*left),
            _ => None,
        }
    }

    /// Returns the next piece, and the number of used bytes. Trailers are recorded in `scratch`.
    pub(crate) fn next<'a>(
        &mut self,
        scratch: &mut Scratch,
        body_bytes_max: u64,
        bytes: &'a [u8],
    ) -> Result<(usize, Piece<'a>), Error> {
        match self {
            Decoder::Length { left: 0 } => Ok((0, Piece::End { section: &[], trailers: 0 })),
            Decoder::Length { left } => Ok(take(bytes, left)),
            Decoder::Chunked(chunked) => chunked.next(scratch, body_bytes_max, bytes),
            Decoder::UntilClose { received } => {
                let mut allowed = body_bytes_max.saturating_sub(*received);
                if allowed == 0 && !bytes.is_empty() {
                    return Err(Error::new(Problem::BodyTooLong, &[]));
                }
                let taken = take(bytes, &mut allowed);
                *received += taken.0 as u64;
                Ok(taken)
            }
        }
    }
}

/// Takes up to `left` bytes from the front.
fn take<'a>(bytes: &'a [u8], left: &mut u64) -> (usize, Piece<'a>) {
    let data = usize::try_from(*left).ok().and_then(|left| bytes.get(..left)).unwrap_or(bytes);
    if data.is_empty() {
        return (0, Piece::Nothing);
    }
    *left -= data.len() as u64;
    (data.len(), Piece::Data(data))
}

/// Decoder of RFC 9112 §7.1, strict except for the cases of [`Limits::tolerant`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Chunked {
    at: At,
    /// Number of digits of the size so far.
    digits: u8,
    /// Bytes of extensions so far, in the whole body.
    extension_bytes: u32,
    /// The size as read so far; within data, the rest of the chunk.
    size: u64,
    /// Content announced so far, in bytes.
    total: u64,
    trailers: Progress,
    tolerant: bool,
}

/// The next expected input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    /// A digit of the size, or its end.
    #[default]
    Size,
    /// White space that only a semicolon may follow, or with `tolerant` the CR.
    Gap,
    /// The name of an extension, after a semicolon and blanks.
    NameStart,
    Name,
    /// White space after a name: an equals sign or a semicolon follows.
    NameGap,
    /// The value, after an equals sign and blanks.
    ValueStart,
    Token,
    Quoted,
    QuotedEscape,
    QuotedEnd,
    /// The line feed of the chunk header.
    LineFeed,
    Data,
    DataReturn,
    DataLineFeed,
    Trailers,
}

impl Chunked {
    fn next<'a>(
        &mut self,
        scratch: &mut Scratch,
        body_bytes_max: u64,
        bytes: &'a [u8],
    ) -> Result<(usize, Piece<'a>), Error> {
        let mut used = 0;
        loop {
            if self.at == At::Data {
                let (data_bytes, piece) = take(bytes.get(used..).unwrap_or_default(), &mut self.size);
                if self.size == 0 {
                    self.at = At::DataReturn;
                }
                return Ok((used + data_bytes, piece));
            }
            if self.at == At::Trailers {
                return self.trailers(scratch, used, bytes);
            }
            let Some(&byte) = bytes.get(used) else { return Ok((used, Piece::Nothing)) };
            self.header_byte(byte, scratch.limits(), body_bytes_max)?;
            used += 1;
        }
    }

    /// Parses one byte between data.
    #[inline]
    fn header_byte(&mut self, byte: u8, limits: &Limits, body_bytes_max: u64) -> Result<(), Error> {
        let next = match (self.at, byte) {
            (At::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') if self.digits < 16 => {
                let digit = (byte as char).to_digit(16).unwrap_or_default();
                self.size = self.size << 4 | u64::from(digit);
                self.digits += 1;
                return Ok(());
            }
            (At::Size, b'\r') if self.digits > 0 => At::LineFeed,
            (At::Size, b';') if self.digits > 0 => At::NameStart,
            (At::Size, b' ' | b'\t') if self.digits > 0 => At::Gap,
            (At::LineFeed, b'\n') => return self.begin_data(body_bytes_max),
            (At::DataReturn, b'\r') => At::DataLineFeed,
            (At::DataLineFeed, b'\n') => At::Size,

            (At::Gap | At::NameGap | At::NameStart | At::ValueStart, b' ' | b'\t') => self.at,
            (At::Gap | At::Name | At::NameGap | At::Token | At::QuotedEnd, b';') => At::NameStart,
            (At::Name | At::NameGap, b'=') => At::ValueStart,
            (At::Name | At::Token | At::QuotedEnd, b'\r') => At::LineFeed,
            (At::Gap, b'\r') if self.tolerant => At::LineFeed,
            (At::Name, b' ' | b'\t') => At::NameGap,
            (At::Token | At::QuotedEnd, b' ' | b'\t') => At::Gap,
            (At::NameStart | At::Name, _) if is_token(byte) => At::Name,
            (At::ValueStart | At::Token, _) if is_token(byte) => At::Token,
            (At::ValueStart, b'"') => At::Quoted,
            (At::Quoted, b'"') => At::QuotedEnd,
            (At::Quoted, b'\\') => At::QuotedEscape,
            (At::Quoted | At::QuotedEscape, _) if is_value(byte) => At::Quoted,

            (At::Size, _) => return Err(Error::at(Problem::ChunkSize, byte)),
            (At::LineFeed, _) => return Err(Error::at(Problem::LineEnd, byte)),
            (At::DataReturn | At::DataLineFeed, _) => return Err(Error::at(Problem::ChunkEnd, byte)),
            _ => return Err(Error::at(Problem::ChunkExtension, byte)),
        };
        if !matches!(next, At::Size | At::LineFeed | At::DataLineFeed) {
            self.extension_bytes = self.extension_bytes.saturating_add(1);
            if self.extension_bytes > limits.chunk_extension_bytes {
                return Err(Error::new(Problem::ChunkExtensionsTooLong, &[]));
            }
        }
        self.at = next;
        Ok(())
    }

    fn begin_data(&mut self, body_bytes_max: u64) -> Result<(), Error> {
        self.digits = 0;
        self.at = if self.size == 0 { At::Trailers } else { At::Data };
        match self.total.checked_add(self.size) {
            Some(total) if total <= body_bytes_max => self.total = total,
            _ => return Err(Error::new(Problem::BodyTooLong, &[])),
        }
        Ok(())
    }

    fn trailers<'a>(
        &mut self,
        scratch: &mut Scratch,
        used: usize,
        bytes: &'a [u8],
    ) -> Result<(usize, Piece<'a>), Error> {
        let (limits, slots) = scratch.table();
        let bounds = Bounds {
            section_bytes: limits.trailer_bytes.into(),
            line_bytes: limits.field_line_bytes,
            end_max: HEAD_BYTES_MAX,
            // The end of a body is always parsed strictly.
            tolerant: false,
            fields: limits.fields,
            section_too_long: Problem::TrailersTooLong,
            line_too_long: Problem::TrailersTooLong,
            too_many: Problem::TrailersTooLong,
        };
        let section = bytes.get(used..).unwrap_or_default();
        let from = self.trailers;
        let drops = self.tolerant;
        let mut scan = |from| {
            lines(section, from, &bounds, slots, |_, name, _| match is_forbidden_trailer(name) {
                true if !drops => Err(Error::new(Problem::TrailerForbidden, name)),
                is_forbidden => Ok(!is_forbidden),
            })
        };
        let mut found = scan(from)?;
        // The table holds only the lines since `from`: fill it from the first line.
        if from.count > 0 && matches!(found, Lines::Whole { .. }) {
            found = scan(Progress::default())?;
        }
        match found {
            Lines::Partial(progress) => {
                self.trailers = progress;
                Ok((used, Piece::Nothing))
            }
            Lines::Whole { end, count } => Ok((used + end, Piece::End { section, trailers: count })),
        }
    }
}

/// Returns whether a field must precede the body, because it decides framing, routing, the connection, the
/// client's identity or the content (RFC 9110 §6.5.1). In a trailer it comes too late, and would mislead a
/// program that merges trailers.
pub fn is_forbidden_trailer(name: &[u8]) -> bool {
    const FORBIDDEN: [&str; 18] = [
        "authorization",
        "cache-control",
        "connection",
        "content-encoding",
        "content-length",
        "content-range",
        "content-type",
        "cookie",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "set-cookie",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    FORBIDDEN.iter().any(|forbidden| is_word(name, forbidden.as_bytes()))
}
