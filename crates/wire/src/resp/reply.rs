//! A reply of a server, in all types of RESP2 and RESP3.

use super::{put_count, put_text};
use std::fmt;

/// A reply, or a part of one.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// `+OK`: a short text.
    Status(Vec<u8>),
    /// `-ERR …`: the command was refused. The first word says why.
    Error(Vec<u8>),
    /// A whole number.
    Integer(i64),
    /// Bytes; also a big number and a verbatim text of RESP3.
    Bytes(Vec<u8>),
    /// No value.
    Null,
    /// Values in their order.
    Array(Vec<Reply>),
    /// Keys and values in their order (RESP3).
    Map(Vec<(Reply, Reply)>),
    /// Values without an order (RESP3).
    Set(Vec<Reply>),
    /// What no command has asked for, as a message of a channel (RESP3).
    Push(Vec<Reply>),
    /// A number with a fraction (RESP3).
    Double(f64),
    /// True or false (RESP3).
    Boolean(bool),
}

impl Reply {
    /// Returns the text of an error.
    pub fn error(&self) -> Option<&[u8]> {
        match self {
            Reply::Error(text) => Some(text),
            _ => None,
        }
    }

    /// Returns whether it is an error with this first word, as `NOSCRIPT`.
    pub fn is_error(&self, code: &str) -> bool {
        let text = self.error().unwrap_or_default();
        text.split(|byte| *byte == b' ').next() == Some(code.as_bytes())
    }

    /// Returns the number of an integer, or of digits in a text.
    pub fn integer(&self) -> Option<i64> {
        match self {
            Reply::Integer(number) => Some(*number),
            Reply::Bytes(text) | Reply::Status(text) => std::str::from_utf8(text).ok()?.parse().ok(),
            _ => None,
        }
    }

    /// Returns the bytes of a text or of a status.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Reply::Bytes(text) | Reply::Status(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the values of an array, a set or a push.
    pub fn array(&self) -> Option<&[Reply]> {
        match self {
            Reply::Array(values) | Reply::Set(values) | Reply::Push(values) => Some(values),
            _ => None,
        }
    }

    /// Returns the values of an array, a set or a push, without a copy.
    pub fn into_array(self) -> Option<Vec<Reply>> {
        match self {
            Reply::Array(values) | Reply::Set(values) | Reply::Push(values) => Some(values),
            _ => None,
        }
    }

    /// Returns the bytes of a text or of a status, without a copy.
    pub fn into_bytes(self) -> Option<Vec<u8>> {
        match self {
            Reply::Bytes(text) | Reply::Status(text) => Some(text),
            _ => None,
        }
    }

    /// Appends the reply as a server writes it (RESP3). [`Replies`](super::Replies) reads it back as it was,
    /// unless a status or an error contains the end of a line.
    pub fn put(&self, out: &mut Vec<u8>) {
        match self {
            Reply::Status(text) => put_line(out, b'+', text),
            Reply::Error(text) => put_line(out, b'-', text),
            Reply::Integer(number) => put_line(out, b':', number.to_string().as_bytes()),
            Reply::Bytes(text) => put_text(out, b'$', text),
            Reply::Null => out.extend_from_slice(b"_\r\n"),
            Reply::Array(values) => put_all(out, b'*', values),
            Reply::Set(values) => put_all(out, b'~', values),
            Reply::Push(values) => put_all(out, b'>', values),
            Reply::Map(pairs) => {
                put_count(out, b'%', pairs.len());
                for (key, value) in pairs {
                    key.put(out);
                    value.put(out);
                }
            }
            Reply::Double(number) if number.is_nan() => put_line(out, b',', b"nan"),
            Reply::Double(number) => put_line(out, b',', number.to_string().as_bytes()),
            Reply::Boolean(truth) => put_line(out, b'#', if *truth { b"t" } else { b"f" }),
        }
    }
}

fn put_line(out: &mut Vec<u8>, first: u8, text: &[u8]) {
    out.push(first);
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

fn put_all(out: &mut Vec<u8>, first: u8, values: &[Reply]) {
    put_count(out, first, values.len());
    values.iter().for_each(|value| value.put(out));
}

impl fmt::Display for Reply {
    /// Returns a short form for messages: texts are cut, aggregates told by their length.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |text: &[u8]| String::from_utf8_lossy(text).chars().take(200).collect::<String>();
        match self {
            Reply::Status(bytes) | Reply::Error(bytes) => f.write_str(&text(bytes)),
            Reply::Bytes(bytes) => write!(f, "{:?}", text(bytes)),
            Reply::Integer(number) => write!(f, "{number}"),
            Reply::Null => f.write_str("null"),
            Reply::Double(number) => write!(f, "{number}"),
            Reply::Boolean(truth) => write!(f, "{truth}"),
            Reply::Array(values) | Reply::Set(values) | Reply::Push(values) => {
                write!(f, "{} values", values.len())
            }
            Reply::Map(pairs) => write!(f, "{} pairs", pairs.len()),
        }
    }
}
