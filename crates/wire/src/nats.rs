//! The core protocol of NATS, the client's side: parses the server's operations, and writes the client's.
//!
//! Operations are lines that end with CR LF; a message has a line, then its payload. Start at [`next`]. INFO
//! and CONNECT carry JSON, which is left to the caller.

use std::fmt;

/// Limits of what a server can make a client buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum bytes of a line.
    pub line_bytes: usize,
    /// Maximum bytes of a payload, with its headers.
    pub payload_bytes: usize,
}

impl Default for Limits {
    /// Returns lines of 64 KiB, payloads of 8 MiB.
    fn default() -> Limits {
        Limits { line_bytes: 64 << 10, payload_bytes: 8 << 20 }
    }
}

/// An operation of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<'b> {
    /// Facts about the server, as JSON. It is the first operation, and may be repeated.
    Info(&'b str),
    /// A message of a subscription.
    Message {
        /// The subject that it was published to.
        subject: &'b str,
        /// The number of the subscription.
        subscription: &'b str,
        /// The subject for an answer.
        reply: Option<&'b str>,
        /// Its bytes, without headers.
        payload: &'b [u8],
    },
    /// A liveness check; answer with [`put_pong`].
    Ping,
    /// The answer to [`put_ping`].
    Pong,
    /// An operation was accepted; sent only to clients that requested this.
    Accepted,
    /// The server refuses an operation. It closes the connection after most of these.
    Refused(&'b str),
}

/// Why a connection must be closed: the next operation cannot be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// A line that is not an operation.
    Unknown,
    /// An operation with a missing part, or with an invalid length.
    Malformed,
    /// A line beyond [`Limits::line_bytes`].
    LongLine,
    /// A payload beyond [`Limits::payload_bytes`].
    LongPayload,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::Unknown => "NATS: a line is no operation",
            Error::Malformed => "NATS: an operation is malformed",
            Error::LongLine => "NATS: a line is too long",
            Error::LongPayload => "NATS: a message is too long",
        })
    }
}

impl std::error::Error for Error {}

/// Returns the next operation of `bytes[*at..]`, and advances `at` past it; `None` if it is incomplete.
///
/// # Errors
/// The bytes are not an operation, or it exceeds a limit. The connection cannot be used any more.
pub fn next<'b>(limits: &Limits, bytes: &'b [u8], at: &mut usize) -> Result<Option<Operation<'b>>, Error> {
    let rest = bytes.get(*at..).unwrap_or_default();
    let Some(end) = rest.iter().take(limits.line_bytes + 2).position(|byte| *byte == b'\n') else {
        return if rest.len() >= limits.line_bytes + 2 { Err(Error::LongLine) } else { Ok(None) };
    };
    let line = rest.get(..end).and_then(|line| line.strip_suffix(b"\r")).ok_or(Error::Malformed)?;
    let line = str::from_utf8(line).map_err(|_| Error::Malformed)?;
    let (name, arguments) = line.split_once([' ', '\t']).unwrap_or((line, ""));
    let arguments = arguments.trim_matches([' ', '\t']);
    let mut used = end + 1;
    let is = |known: &str| name.eq_ignore_ascii_case(known);
    let operation = if is("MSG") || is("HMSG") {
        let parts: Vec<&str> = arguments.split([' ', '\t']).filter(|part| !part.is_empty()).collect();
        let (subject, subscription, reply, headers, length) = match (is("HMSG"), &parts[..]) {
            (false, [subject, subscription, length]) => (subject, subscription, None, "0", length),
            (false, [subject, subscription, reply, length]) => {
                (subject, subscription, Some(*reply), "0", length)
            }
            (true, [subject, subscription, headers, length]) => {
                (subject, subscription, None, *headers, length)
            }
            (true, [subject, subscription, reply, headers, length]) => {
                (subject, subscription, Some(*reply), *headers, length)
            }
            _ => return Err(Error::Malformed),
        };
        let number = |text: &str| match text.parse::<usize>() {
            Ok(number) if text.bytes().all(|byte| byte.is_ascii_digit()) => Ok(number),
            _ => Err(Error::Malformed),
        };
        let (headers, length) = (number(headers)?, number(length)?);
        if length > limits.payload_bytes {
            return Err(Error::LongPayload);
        }
        let Some(body) = rest.get(used..used + length + 2) else { return Ok(None) };
        let payload = body.strip_suffix(b"\r\n").ok_or(Error::Malformed)?;
        let payload = payload.get(headers..).ok_or(Error::Malformed)?;
        used += length + 2;
        Operation::Message { subject, subscription, reply, payload }
    } else if is("PING") {
        Operation::Ping
    } else if is("PONG") {
        Operation::Pong
    } else if is("+OK") {
        Operation::Accepted
    } else if is("-ERR") {
        Operation::Refused(arguments.trim_matches('\''))
    } else if is("INFO") {
        Operation::Info(arguments)
    } else {
        return Err(Error::Unknown);
    };
    *at += used;
    Ok(Some(operation))
}

/// Returns whether this is a valid subject: tokens separated by dots, without wildcards, at most 256 bytes,
/// so that a line has room for it.
pub fn is_subject(text: &str) -> bool {
    let is_token = |token: &str| {
        !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'*' && byte != b'>')
    };
    text.len() <= 256 && text.split('.').all(is_token)
}

/// Appends CONNECT with these options, an object in JSON.
pub fn put_connect(out: &mut Vec<u8>, options: &str) {
    out.extend_from_slice(b"CONNECT ");
    // A line break in JSON is only white space; here it would end the operation.
    out.extend(options.bytes().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
    out.extend_from_slice(b"\r\n");
}

/// Appends PUB: a message.
///
/// # Panics
/// `subject` is invalid ([`is_subject`]).
pub fn put_publish(out: &mut Vec<u8>, subject: &str, payload: &[u8]) {
    assert!(is_subject(subject), "a subject of NATS: {subject:?}");
    out.extend_from_slice(format!("PUB {subject} {}\r\n", payload.len()).as_bytes());
    out.extend_from_slice(payload);
    out.extend_from_slice(b"\r\n");
}

/// Appends SUB: a subscription, with a number chosen by the client.
///
/// # Panics
/// `subject` is invalid ([`is_subject`]).
pub fn put_subscribe(out: &mut Vec<u8>, subject: &str, subscription: u64) {
    assert!(is_subject(subject), "a subject of NATS: {subject:?}");
    out.extend_from_slice(format!("SUB {subject} {subscription}\r\n").as_bytes());
}

/// Appends PING: the server answers with PONG.
pub fn put_ping(out: &mut Vec<u8>) {
    out.extend_from_slice(b"PING\r\n");
}

/// Appends PONG, the answer to PING.
pub fn put_pong(out: &mut Vec<u8>) {
    out.extend_from_slice(b"PONG\r\n");
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn all<'b>(bytes: &'b [u8]) -> (Vec<Operation<'b>>, Option<Error>) {
        let (mut found, mut at) = (Vec::new(), 0);
        loop {
            match next(&Limits { line_bytes: 64, payload_bytes: 32 }, bytes, &mut at) {
                Ok(Some(operation)) => found.push(operation),
                Ok(None) => return (found, None),
                Err(why) => return (found, Some(why)),
            }
        }
    }

    #[test]
    fn operations_of_a_server_are_read() {
        let bytes = b"INFO {\"a\":1} \r\nping\r\nPONG\r\n+OK\r\n-ERR 'Unknown Protocol'\r\n\
            MSG a.b 9 5\r\nhe\r\no\r\nMSG\ta  9 back.1  0\r\n\r\nHMSG a 9 12 14\r\nNATS/1.0\r\n\r\nhi\r\nMSG a 9 4\r\nhi";
        let message =
            |subject, reply, payload| Operation::Message { subject, subscription: "9", reply, payload };
        let expected = [
            Operation::Info("{\"a\":1}"),
            Operation::Ping,
            Operation::Pong,
            Operation::Accepted,
            Operation::Refused("Unknown Protocol"),
            message("a.b", None, b"he\r\no"),
            message("a", Some("back.1"), b""),
            message("a", None, b"hi"),
        ];
        assert_eq!(all(bytes), (expected.to_vec(), None));
    }

    #[test]
    fn what_is_no_operation_or_too_long_ends_the_connection() {
        let long_line = [b"INFO ".as_slice(), &[b'a'; 64], b"\r\n"].concat();
        for (bytes, why) in [
            (b"HELLO\r\n".as_slice(), Error::Unknown),
            (b"PING\n", Error::Malformed),
            (b"MSG a 1\r\n", Error::Malformed),
            (b"MSG a 1 b c d\r\n", Error::Malformed),
            (b"MSG a 1 +2\r\nhi\r\n", Error::Malformed),
            (b"MSG a 1 -2\r\nhi\r\n", Error::Malformed),
            (b"MSG a 1 2\r\nhi!!", Error::Malformed),
            (b"MSG a 1 33\r\n", Error::LongPayload),
            (b"MSG a 1 99999999999999999999999\r\n", Error::Malformed),
            (b"HMSG a 1 5 2\r\nhi\r\n", Error::Malformed),
            (b"PI\xffG\r\n", Error::Malformed),
            (&long_line, Error::LongLine),
            (&long_line[..66], Error::LongLine),
        ] {
            assert_eq!(all(bytes), (vec![], Some(why)), "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn operations_of_a_client_are_written() {
        let mut out = Vec::new();
        put_connect(&mut out, "{\n\"verbose\":false}");
        put_subscribe(&mut out, "a.b", 1);
        put_publish(&mut out, "a.b", b"hi");
        put_ping(&mut out);
        put_pong(&mut out);
        let expected = "CONNECT { \"verbose\":false}\r\nSUB a.b 1\r\nPUB a.b 2\r\nhi\r\nPING\r\nPONG\r\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        for no in ["", "a b", "a.", ".a", "a..b", "a.*", "a.>", "a\r\nPUB x 0", &"a".repeat(257)] {
            assert!(!is_subject(no), "{no:?}");
        }
    }
}
