//! Common parts of requests and responses: versions, methods, and the framing of a body.
//!
//! Start at [`Facts`]: only this file evaluates the header lines that decide where a message ends and what
//! follows it, for both directions.

use crate::error::{Error, Problem};
use crate::fields::list_holds;
use crate::head::Note;
use crate::scan::{is_token, is_word};
use std::fmt;

/// The version of a message. This crate reads and writes HTTP/1 only; HTTP/2 is for callers with another
/// implementation beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
    /// HTTP/2
    Http2,
}

/// The method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// GET
    Get,
    /// HEAD
    Head,
    /// POST
    Post,
    /// PUT
    Put,
    /// DELETE
    Delete,
    /// CONNECT
    Connect,
    /// OPTIONS
    Options,
    /// TRACE
    Trace,
    /// PATCH
    Patch,
    /// Another token, as [`Limits::extension_methods`](crate::Limits::extension_methods) allows.
    Other,
}

impl Method {
    /// Returns the method of this name, which is case-sensitive.
    pub fn new(name: &[u8]) -> Method {
        match name {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"POST" => Method::Post,
            b"PUT" => Method::Put,
            b"DELETE" => Method::Delete,
            b"CONNECT" => Method::Connect,
            b"OPTIONS" => Method::Options,
            b"TRACE" => Method::Trace,
            b"PATCH" => Method::Patch,
            _ => Method::Other,
        }
    }

    /// Returns the name of a known method; empty for [`Method::Other`].
    pub const fn name(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Delete => "DELETE",
            Method::Connect => "CONNECT",
            Method::Options => "OPTIONS",
            Method::Trace => "TRACE",
            Method::Patch => "PATCH",
            Method::Other => "",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// State of a connection, which decides the caller's deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Between messages. The connection may end here.
    Idle,
    /// Within a head.
    Head,
    /// Within a body.
    Body,
    /// After the last message; further input is ignored.
    Closed,
    /// The connection speaks another protocol now.
    HandedOver,
    /// A message was refused.
    Failed,
}

/// The framing of the body of a received message, decided once by its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    /// No body: the message is complete with its head.
    Empty,
    /// This many bytes; at least one.
    Length(u64),
    /// In chunks, each with its length, and perhaps trailers.
    Chunked,
    /// To the end of the connection; responses only.
    UntilClose,
}

/// Framing and connection facts in the header lines, collected while they are parsed.
///
/// A line that is invalid by itself is refused when it is parsed. Lines that contradict each other are
/// refused at the end of the head, so that the answer does not depend on how the head was fragmented.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) length: u64,
    lengths: u8,
    /// Two lines name different lengths.
    lengths_differ: bool,
    codings: u8,
    /// Number of lines with only `identity`, which is not a coding.
    identities: u8,
    pub(crate) close: bool,
    pub(crate) keep_alive: bool,
    /// `Connection: upgrade` was seen.
    upgrade_option: bool,
    /// `Upgrade` was seen.
    upgrade: bool,
}

/// Collects the lines that matter in both directions.
impl Note for Facts {
    #[inline(always)]
    fn note(&mut self, _: u8, name: &[u8], value: &[u8]) -> Result<(), Error> {
        match name.len() {
            7 if is_word(name, b"upgrade") => self.upgrade = true,
            10 if is_word(name, b"connection") => self.connection(value),
            14 if is_word(name, b"content-length") => {
                let length = decimal(value).ok_or_else(|| Error::new(Problem::ContentLength, value))?;
                self.lengths_differ |= self.lengths > 0 && length != self.length;
                self.length = length;
                self.lengths = self.lengths.saturating_add(1);
            }
            17 if is_word(name, b"transfer-encoding") => {
                if is_word(value, b"identity") {
                    self.identities = self.identities.saturating_add(1);
                    return Ok(());
                }
                if !is_word(value, b"chunked") {
                    return Err(Error::new(not_chunked(value), value));
                }
                self.codings = self.codings.saturating_add(1);
            }
            _ => {}
        }
        Ok(())
    }
}

impl Facts {
    fn connection(&mut self, value: &[u8]) {
        if is_word(value, b"keep-alive") {
            self.keep_alive = true;
        } else if is_word(value, b"close") {
            self.close = true;
        } else {
            self.close |= list_holds(value, b"close");
            self.keep_alive |= list_holds(value, b"keep-alive");
            self.upgrade_option |= list_holds(value, b"upgrade");
        }
    }

    /// Returns the framing that the lines state, if they agree with each other; `None` if they state none.
    ///
    /// RFC 9112 §6.1 and §6.3 allow some contradictions and define which line wins. A reader that accepts
    /// them must agree with every hop about the winner, and hops have disagreed, so none is accepted here.
    /// `tolerant`: the lines are of an answer, and [`Limits::tolerant`](crate::Limits::tolerant) is set.
    #[inline]
    pub(crate) fn framing(&self, version: Version, tolerant: bool) -> Result<Option<Body>, Error> {
        if self.identities > 0 {
            return self.not_coded(tolerant);
        }
        if self.lengths == 0 && self.codings == 0 {
            return Ok(None);
        }
        // The same length twice is unambiguous (RFC 9110 §8.6); a coding beside it is not.
        let problem = if self.lengths > 1 && (self.lengths_differ || self.codings > 0 || !tolerant) {
            Problem::ContentLengthTwice
        } else if self.codings > 1 {
            Problem::TransferEncodingTwice
        } else if self.codings == 1 && version == Version::Http10 {
            Problem::TransferEncodingIn10
        } else if self.codings == 1 && self.lengths == 1 {
            Problem::LengthAndCoding
        } else if self.codings == 1 {
            return Ok(Some(Body::Chunked));
        } else if self.length == 0 {
            return Ok(Some(Body::Empty));
        } else {
            return Ok(Some(Body::Length(self.length)));
        };
        Err(Error::new(problem, &[]))
    }

    /// Returns the framing of a message with `Transfer-Encoding: identity`. An answer with no other framing
    /// ends with its connection (RFC 9112 §6.3). With a length beside it, readers differ about which one
    /// counts, and a request cannot end with its connection.
    #[cold]
    fn not_coded(&self, tolerant: bool) -> Result<Option<Body>, Error> {
        if tolerant && self.identities == 1 && self.lengths == 0 && self.codings == 0 {
            return Ok(Some(Body::UntilClose));
        }
        Err(Error::new(Problem::TransferEncoding, b"identity"))
    }

    /// Returns whether the sender wants to keep the connection (RFC 9112 §9.3).
    pub(crate) fn persists(&self, version: Version) -> bool {
        match version {
            Version::Http11 | Version::Http2 => !self.close,
            Version::Http10 => self.keep_alive && !self.close,
        }
    }

    /// Returns whether another protocol is offered or accepted (RFC 9110 §7.8).
    pub(crate) fn upgrades(&self, version: Version) -> bool {
        self.upgrade && self.upgrade_option && version == Version::Http11
    }
}

/// Parses 1 to 19 digits: 19 nines are below 2^64, so nothing wraps.
pub(crate) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 19 {
        return None;
    }
    digits
        .iter()
        .try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + u64::from(digit - b'0')))
}

/// Returns what is wrong with a transfer coding that is not `chunked`. A list of valid names that ends in
/// `chunked` could be decoded by another program, so it is "not implemented". With any other list the end of
/// the body is unknown.
#[cold]
fn not_chunked(value: &[u8]) -> Problem {
    let mut codings = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    let is_name = |coding: &[u8]| !coding.is_empty() && coding.iter().all(|byte| is_token(*byte));
    let last = codings.next_back().is_some_and(|coding| is_word(coding, b"chunked"));
    if last && codings.all(|coding| is_name(coding) && !is_word(coding, b"chunked")) {
        Problem::UnsupportedCoding
    } else {
        Problem::TransferEncoding
    }
}
