//! The head of a CGI answer (RFC 3875 §6): lines of fields, an empty line, then the body.
//!
//! The parser is strict, because the lines become lines of an HTTP answer: names are tokens, values have no
//! control characters, no line is folded.

use std::fmt;

/// Maximum bytes of a head.
pub const HEAD_BYTES_MAX: usize = 256 << 10;
/// Maximum number of lines of a head.
pub const LINES_MAX: usize = 1000;

/// A CGI head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The status: that of `Status`, else 302 if there is a `Location`, else 200.
    pub status: u16,
    /// The other lines, in their order.
    pub lines: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Why bytes are not a CGI head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadHead {
    /// It has more than [`HEAD_BYTES_MAX`] bytes or [`LINES_MAX`] lines.
    TooLong,
    /// A line is not a field.
    Line,
    /// `Status` is not a status from 200 to 599, or there are several different ones.
    Status,
}

impl fmt::Display for BadHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BadHead::TooLong => "a head that is too long",
            BadHead::Line => "an invalid header line",
            BadHead::Status => "an invalid status",
        })
    }
}

impl std::error::Error for BadHead {}

/// Parses the head at the beginning of an answer; returns it and its length. `None` if it is incomplete.
///
/// # Errors
/// The bytes are not a CGI head.
pub fn head(bytes: &[u8]) -> Result<Option<(Head, usize)>, BadHead> {
    let mut lines = Vec::new();
    let mut status = None;
    let mut at = 0;
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
            return if bytes.len() > HEAD_BYTES_MAX { Err(BadHead::TooLong) } else { Ok(None) };
        };
        at += end + 1;
        if at > HEAD_BYTES_MAX || lines.len() == LINES_MAX {
            return Err(BadHead::TooLong);
        }
        let line = rest.get(..end).unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            break;
        }
        let (name, value) = field(line).ok_or(BadHead::Line)?;
        if name.eq_ignore_ascii_case(b"status") {
            let told = code(value).ok_or(BadHead::Status)?;
            if status.replace(told).is_some_and(|before| before != told) {
                return Err(BadHead::Status);
            }
        } else {
            lines.push((name.to_vec(), value.to_vec()));
        }
    }
    let moved = lines.iter().any(|(name, _)| name.eq_ignore_ascii_case(b"location"));
    let status = status.unwrap_or(if moved { 302 } else { 200 });
    Ok(Some((Head { status, lines }, at)))
}

fn field(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = line.iter().position(|byte| *byte == b':')?;
    let (name, value) = (line.get(..at)?, line.get(at + 1..)?.trim_ascii());
    let token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let text = |byte: &u8| !byte.is_ascii_control() || *byte == b'\t';
    (!name.is_empty() && name.iter().all(token) && value.iter().all(text)).then_some((name, value))
}

fn code(value: &[u8]) -> Option<u16> {
    let (digits, rest) = value.split_at_checked(3)?;
    let code = str::from_utf8(digits).ok()?.parse().ok()?;
    (matches!(rest.first(), None | Some(b' ')) && (200..600).contains(&code)).then_some(code)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn line(name: &str, value: &str) -> (Vec<u8>, Vec<u8>) {
        (name.into(), value.into())
    }

    #[test]
    fn a_head_is_read_however_it_is_cut() {
        let bytes =
            b"Status: 404 Not Found\r\nX-Powered-By: PHP\nSet-Cookie: a=1\r\nSet-Cookie:b=2 \r\n\r\nbody";
        let (read, length) = head(bytes).unwrap().unwrap();
        assert_eq!(&bytes[length..], b"body");
        assert_eq!(read.status, 404);
        let lines = [line("X-Powered-By", "PHP"), line("Set-Cookie", "a=1"), line("Set-Cookie", "b=2")];
        assert_eq!(read.lines, lines);
        for cut in 0..length {
            assert_eq!(head(&bytes[..cut]), Ok(None), "{cut}");
        }
    }

    #[test]
    fn the_status_follows_from_the_location_where_it_is_not_said() {
        assert_eq!(head(b"Location: /a\n\n").unwrap().unwrap().0.status, 302);
        assert_eq!(head(b"Status: 201\nLocation: /a\n\n").unwrap().unwrap().0.status, 201);
        assert_eq!(head(b"\n").unwrap().unwrap().0.status, 200);
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        for wrong in [&b"<html>\n\n"[..], b": a\n\n", b"A b: c\n\n", b"A: b\r c\n\n", b"A: b\n folded\n\n"] {
            assert_eq!(head(wrong), Err(BadHead::Line), "{wrong:?}");
        }
        for wrong in
            [&b"Status: ok\n\n"[..], b"Status: 101\n\n", b"Status: 2000\n\n", b"Status: 200\nStatus: 500\n\n"]
        {
            assert_eq!(head(wrong), Err(BadHead::Status), "{wrong:?}");
        }
        assert_eq!(head(&[b'a'; HEAD_BYTES_MAX + 1]), Err(BadHead::TooLong));
        assert_eq!(head(&b"A: b\n".repeat(LINES_MAX + 1)), Err(BadHead::TooLong));
    }
}
