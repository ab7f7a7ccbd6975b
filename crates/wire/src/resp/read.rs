//! Replies from bytes, incrementally. Start at [`Replies::next`].
//!
//! An aggregate that has begun is a frame on a stack that collects its parts, so a long reply that comes in
//! pieces costs each byte once. Only a line or a text that is not complete yet is looked at again.

use super::reply::Reply;
use std::fmt;

/// What a server can make a client keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one reply, its lines included.
    pub reply_bytes: usize,
    /// Values of one reply, those within others included.
    pub values: usize,
    /// Aggregates within each other.
    pub depth: usize,
    /// Bytes of one line: a status, an error, a number, a length.
    pub line_bytes: usize,
}

impl Default for Limits {
    /// 64 MiB, 1,048,576 values, 16 deep, lines of 64 KiB.
    fn default() -> Limits {
        Limits { reply_bytes: 64 << 20, values: 1 << 20, depth: 16, line_bytes: 64 << 10 }
    }
}

/// Why a connection is given up: the next reply cannot be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// A first byte that no type has.
    Type(u8),
    /// A length, a number or a line that is not one.
    Malformed,
    /// A streamed string or aggregate.
    Streamed,
    /// A reply beyond [`Limits::reply_bytes`].
    TooLong,
    /// A reply beyond [`Limits::values`].
    TooManyValues,
    /// A reply beyond [`Limits::depth`].
    TooDeep,
    /// A line beyond [`Limits::line_bytes`].
    LongLine,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Type(byte) => write!(f, "RESP: no type begins with {:?}", char::from(*byte)),
            Error::Malformed => f.write_str("RESP: a length, a number or a line is malformed"),
            Error::Streamed => f.write_str("RESP: streamed replies are not supported"),
            Error::TooLong => f.write_str("RESP: a reply has too many bytes"),
            Error::TooManyValues => f.write_str("RESP: a reply has too many values"),
            Error::TooDeep => f.write_str("RESP: a reply is nested too deeply"),
            Error::LongLine => f.write_str("RESP: a line is too long"),
        }
    }
}

impl std::error::Error for Error {}

/// What an aggregate becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Array,
    Map,
    Set,
    Push,
    /// Attributes of the value behind them; dropped.
    Attributes,
}

/// An aggregate that has begun.
#[derive(Debug)]
struct Frame {
    kind: Kind,
    left: usize,
    parts: Vec<Reply>,
}

/// Reads the replies of one connection.
#[derive(Debug, Default)]
pub struct Replies {
    limits: Limits,
    stack: Vec<Frame>,
    /// Of the reply that has begun.
    bytes: usize,
    values: usize,
    failed: Option<Error>,
}

/// A part of a reply.
enum Part {
    Whole(Reply),
    Begun(Kind, usize),
}

impl Replies {
    /// Makes a reader with these limits.
    pub fn new(limits: Limits) -> Replies {
        Replies { limits, ..Replies::default() }
    }

    /// Returns whether the input is between two replies.
    pub fn is_between(&self) -> bool {
        self.stack.is_empty() && self.bytes == 0
    }

    /// Returns the next reply behind `at`, and moves `at` behind what was used. `None`: more bytes are
    /// needed; keep what is behind `at`, and read more behind it.
    ///
    /// # Errors
    /// The bytes are no reply, or one beyond the limits. The error stays.
    pub fn next(&mut self, bytes: &[u8], at: &mut usize) -> Result<Option<Reply>, Error> {
        if let Some(why) = self.failed {
            return Err(why);
        }
        let next = self.advance(bytes, at);
        self.failed = next.as_ref().err().copied();
        next
    }

    fn advance(&mut self, bytes: &[u8], at: &mut usize) -> Result<Option<Reply>, Error> {
        loop {
            let rest = bytes.get(*at..).unwrap_or_default();
            let Some((part, used)) = self.part(rest)? else { return Ok(None) };
            *at += used;
            self.bytes += used;
            self.values += 1;
            if self.bytes > self.limits.reply_bytes {
                return Err(Error::TooLong);
            }
            if self.values > self.limits.values {
                return Err(Error::TooManyValues);
            }
            let done = match part {
                Part::Whole(reply) => self.put(reply),
                Part::Begun(kind, left) => {
                    if self.stack.len() >= self.limits.depth {
                        return Err(Error::TooDeep);
                    }
                    // What is announced may never come: memory is taken as it comes.
                    self.stack.push(Frame { kind, left, parts: Vec::with_capacity(left.min(64)) });
                    if left == 0 { self.end() } else { None }
                }
            };
            if let Some(reply) = done {
                (self.bytes, self.values) = (0, 0);
                return Ok(Some(reply));
            }
        }
    }

    /// Takes a value to where it belongs. Returns the whole reply when it is complete.
    fn put(&mut self, mut reply: Reply) -> Option<Reply> {
        loop {
            let Some(frame) = self.stack.last_mut() else { return Some(reply) };
            frame.parts.push(reply);
            frame.left -= 1;
            if frame.left > 0 {
                return None;
            }
            reply = self.finish()?;
        }
    }

    /// Ends an aggregate without parts.
    fn end(&mut self) -> Option<Reply> {
        let reply = self.finish()?;
        self.put(reply)
    }

    /// Makes the reply of the innermost aggregate, which is complete; `None` for attributes, which are none.
    fn finish(&mut self) -> Option<Reply> {
        let Frame { kind, parts, .. } = self.stack.pop()?;
        match kind {
            Kind::Array => Some(Reply::Array(parts)),
            Kind::Set => Some(Reply::Set(parts)),
            Kind::Push => Some(Reply::Push(parts)),
            Kind::Attributes => None,
            Kind::Map => {
                let mut pairs = Vec::with_capacity(parts.len() / 2);
                let mut parts = parts.into_iter();
                while let (Some(key), Some(value)) = (parts.next(), parts.next()) {
                    pairs.push((key, value));
                }
                Some(Reply::Map(pairs))
            }
        }
    }

    /// Reads one value, or the beginning of an aggregate, and tells the bytes that it has.
    fn part(&self, bytes: &[u8]) -> Result<Option<(Part, usize)>, Error> {
        let Some((first, rest)) = bytes.split_first() else { return Ok(None) };
        if !b"+-:$_*%~>|,#(=!".contains(first) {
            return Err(Error::Type(*first));
        }
        let Some(line) = self.line(rest)? else { return Ok(None) };
        let used = 1 + line.len() + 2;
        let whole = |reply| Ok(Some((Part::Whole(reply), used)));
        match first {
            b'+' => whole(Reply::Status(line.to_vec())),
            b'-' => whole(Reply::Error(line.to_vec())),
            b':' => whole(Reply::Integer(integer(line)?)),
            b'_' if line.is_empty() => whole(Reply::Null),
            b'#' => match line {
                b"t" => whole(Reply::Boolean(true)),
                b"f" => whole(Reply::Boolean(false)),
                _ => Err(Error::Malformed),
            },
            b',' => whole(Reply::Double(double(line)?)),
            b'(' => {
                let digits = line.strip_prefix(b"-").or_else(|| line.strip_prefix(b"+")).unwrap_or(line);
                let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
                if is_number { whole(Reply::Bytes(line.to_vec())) } else { Err(Error::Malformed) }
            }
            b'$' | b'=' | b'!' => {
                let Some(length) = length(line, *first == b'$')? else { return whole(Reply::Null) };
                self.text(*first, bytes, used, length)
            }
            b'*' | b'%' | b'~' | b'>' | b'|' => {
                let Some(count) = length(line, *first == b'*')? else { return whole(Reply::Null) };
                if count > self.limits.values {
                    return Err(Error::TooManyValues);
                }
                let (kind, values) = match first {
                    b'*' => (Kind::Array, count),
                    b'%' => (Kind::Map, count.saturating_mul(2)),
                    b'~' => (Kind::Set, count),
                    b'>' => (Kind::Push, count),
                    _ => (Kind::Attributes, count.saturating_mul(2)),
                };
                Ok(Some((Part::Begun(kind, values), used)))
            }
            _ => Err(Error::Malformed),
        }
    }

    /// Reads a text of `length` bytes at `from`.
    fn text(
        &self,
        first: u8,
        bytes: &[u8],
        from: usize,
        length: usize,
    ) -> Result<Option<(Part, usize)>, Error> {
        let allowed = self.limits.reply_bytes.saturating_sub(self.bytes);
        if length > allowed || from + length + 2 > allowed {
            return Err(Error::TooLong);
        }
        let end = from + length;
        let Some(ending) = bytes.get(end..end + 2) else { return Ok(None) };
        if ending != b"\r\n" {
            return Err(Error::Malformed);
        }
        let text = bytes.get(from..end).unwrap_or_default();
        let reply = match first {
            b'!' => Reply::Error(text.to_vec()),
            // Three bytes of a format and a colon come before the text.
            b'=' => match text.split_at_checked(4) {
                Some((format, text)) if format.ends_with(b":") => Reply::Bytes(text.to_vec()),
                _ => return Err(Error::Malformed),
            },
            _ => Reply::Bytes(text.to_vec()),
        };
        Ok(Some((Part::Whole(reply), end + 2)))
    }

    /// Returns the line at the beginning of `rest`, without its end; `None` while it has no end.
    fn line<'b>(&self, rest: &'b [u8]) -> Result<Option<&'b [u8]>, Error> {
        let within = rest.get(..self.limits.line_bytes + 2).unwrap_or(rest);
        let Some(end) = within.iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
            let is_long = within.len() < rest.len() || within.len() > self.limits.line_bytes;
            return if is_long { Err(Error::LongLine) } else { Ok(None) };
        };
        if end > self.limits.line_bytes {
            return Err(Error::LongLine);
        }
        match rest.get(end..end + 2) {
            Some(b"\r\n") => Ok(rest.get(..end)),
            None if rest.get(end) == Some(&b'\r') => Ok(None),
            _ => Err(Error::Malformed),
        }
    }
}

fn integer(line: &[u8]) -> Result<i64, Error> {
    let text = std::str::from_utf8(line).map_err(|_| Error::Malformed)?;
    text.parse().map_err(|_| Error::Malformed)
}

fn double(line: &[u8]) -> Result<f64, Error> {
    let text = std::str::from_utf8(line).map_err(|_| Error::Malformed)?;
    text.parse().map_err(|_| Error::Malformed)
}

/// Reads a length. `None` is the null of RESP2, where that may stand.
fn length(line: &[u8], may_be_null: bool) -> Result<Option<usize>, Error> {
    match line {
        b"-1" if may_be_null => Ok(None),
        b"?" => Err(Error::Streamed),
        _ if line.is_empty() || !line.iter().all(u8::is_ascii_digit) => Err(Error::Malformed),
        _ => {
            let text = std::str::from_utf8(line).map_err(|_| Error::Malformed)?;
            text.parse().map(Some).map_err(|_| Error::TooLong)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::put_command;
    use super::*;

    fn all(bytes: &[u8], step: usize, limits: Limits) -> (Vec<Reply>, Option<Error>) {
        let (mut replies, mut found) = (Replies::new(limits), Vec::new());
        let mut kept = Vec::new();
        for piece in bytes.chunks(step.max(1)) {
            kept.extend_from_slice(piece);
            let mut at = 0;
            loop {
                match replies.next(&kept, &mut at) {
                    Ok(Some(reply)) => found.push(reply),
                    Ok(None) => break,
                    Err(why) => return (found, Some(why)),
                }
            }
            kept.drain(..at);
        }
        (found, None)
    }

    fn one(bytes: &[u8]) -> Reply {
        let (mut found, why) = all(bytes, bytes.len(), Limits::default());
        assert_eq!((found.len(), why), (1, None), "{:?}", String::from_utf8_lossy(bytes));
        found.remove(0)
    }

    #[test]
    fn every_type_is_read_and_written_back_the_same() {
        let text = |text: &str| Reply::Bytes(text.as_bytes().to_vec());
        for (bytes, expected) in [
            (&b"+OK\r\n"[..], Reply::Status(b"OK".to_vec())),
            (b"-NOSCRIPT No matching script.\r\n", Reply::Error(b"NOSCRIPT No matching script.".to_vec())),
            (b":-42\r\n", Reply::Integer(-42)),
            (b"$5\r\na\r\nbc\r\n", text("a\r\nbc")),
            (b"$0\r\n\r\n", text("")),
            (b"$-1\r\n", Reply::Null),
            (b"*-1\r\n", Reply::Null),
            (b"_\r\n", Reply::Null),
            (b"*0\r\n", Reply::Array(vec![])),
            (b"*2\r\n:1\r\n*1\r\n$1\r\na\r\n", {
                Reply::Array(vec![Reply::Integer(1), Reply::Array(vec![text("a")])])
            }),
            (b"%1\r\n+a\r\n*0\r\n", Reply::Map(vec![(Reply::Status(b"a".to_vec()), Reply::Array(vec![]))])),
            (b"~1\r\n#t\r\n", Reply::Set(vec![Reply::Boolean(true)])),
            (b">2\r\n$7\r\nmessage\r\n,1.5\r\n", Reply::Push(vec![text("message"), Reply::Double(1.5)])),
            (b",inf\r\n", Reply::Double(f64::INFINITY)),
            (b"(-3492890328409238509324850943850943825024385\r\n", {
                text("-3492890328409238509324850943850943825024385")
            }),
            (b"=8\r\ntxt:text\r\n", text("text")),
            (b"!5\r\nERR a\r\n", Reply::Error(b"ERR a".to_vec())),
            (b"|1\r\n+ttl\r\n:5\r\n*2\r\n:1\r\n|0\r\n:2\r\n", {
                Reply::Array(vec![Reply::Integer(1), Reply::Integer(2)])
            }),
        ] {
            assert_eq!(one(bytes), expected);
            let mut written = Vec::new();
            expected.put(&mut written);
            assert_eq!(one(&written), expected);
        }
        assert!(one(b"-NOSCRIPT No\r\n").is_error("NOSCRIPT"));
        assert!(!one(b"-NOSCRIPTS\r\n").is_error("NOSCRIPT"));
        assert_eq!(one(b"$2\r\n17\r\n").integer(), Some(17));
    }

    #[test]
    fn replies_are_the_same_however_they_are_cut() {
        let bytes =
            b"*3\r\n$3\r\nset\r\n%2\r\n+a\r\n:1\r\n+b\r\n*2\r\n_\r\n$-1\r\n,2.5\r\n+OK\r\n>1\r\n#f\r\n";
        let whole = all(bytes, bytes.len(), Limits::default());
        assert_eq!((whole.0.len(), whole.1), (3, None));
        for step in 1..bytes.len() {
            assert_eq!(all(bytes, step, Limits::default()), whole, "{step}");
        }
    }

    #[test]
    fn what_is_no_reply_or_beyond_a_limit_is_refused_and_stays_so() {
        let limits = Limits { reply_bytes: 64, values: 8, depth: 2, line_bytes: 16 };
        for (bytes, expected) in [
            (&b"?\r\n"[..], Error::Type(b'?')),
            (b"GET / HTTP/1.1\r\n", Error::Type(b'G')),
            (b"$?\r\n", Error::Streamed),
            (b"*?\r\n", Error::Streamed),
            (b"$-2\r\n", Error::Malformed),
            (b"%-1\r\n", Error::Malformed),
            (b"$+1\r\na\r\n", Error::Malformed),
            (b"$1\r\nab\r\n", Error::Malformed),
            (b":1x\r\n", Error::Malformed),
            (b":1\n", Error::Malformed),
            (b"+a\rb\r\n", Error::Malformed),
            (b"#x\r\n", Error::Malformed),
            (b"_x\r\n", Error::Malformed),
            (b"(12a\r\n", Error::Malformed),
            (b"=3\r\nabc\r\n", Error::Malformed),
            (b"$99999999999999999999\r\n", Error::LongLine),
            (b"$9999999999\r\n", Error::TooLong),
            (b"$60\r\n", Error::TooLong),
            (b"*9\r\n", Error::TooManyValues),
            (b"*1\r\n*1\r\n*1\r\n", Error::TooDeep),
            (b"+12345678901234567\r\n", Error::LongLine),
            (b"*8\r\n:1\r\n:2\r\n:3\r\n:4\r\n:5\r\n:6\r\n:7\r\n:8\r\n", Error::TooManyValues),
            (
                b"*3\r\n$20\r\n12345678901234567890\r\n$20\r\n12345678901234567890\r\n+abcdef\r\n",
                Error::TooLong,
            ),
        ] {
            let shown = String::from_utf8_lossy(bytes);
            for step in [1, bytes.len()] {
                assert_eq!(all(bytes, step, limits).1, Some(expected), "{shown:?}");
            }
            let mut replies = Replies::new(limits);
            while let Ok(Some(_)) = replies.next(bytes, &mut 0) {}
            if let Err(first) = replies.next(bytes, &mut 0) {
                assert_eq!(replies.next(b"+OK\r\n", &mut 0), Err(first));
            }
        }
        // A line without its end is refused as soon as it is too long.
        assert_eq!(all(&[b'+'; 40], 40, limits).1, Some(Error::LongLine));
        // The limits hold for one reply, not for a connection.
        assert_eq!(all(&b"*3\r\n:1\r\n:2\r\n:3\r\n".repeat(50), 7, limits).0.len(), 50);
    }

    #[test]
    fn a_command_is_an_array_of_texts() {
        let mut out = Vec::new();
        put_command(&mut out, &[&b"SET"[..], b"k", b"\r\n"]);
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\n\r\n\r\n");
        assert_eq!(one(&out).array().unwrap().len(), 3);
    }
}
