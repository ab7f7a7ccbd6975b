//! What requests and responses have in common: versions, methods, and how a body is framed.
//!
//! Start at [`Facts`]: the header lines that decide where a message ends and what follows it are read here
//! and nowhere else, for both directions.

use crate::error::{Error, Problem};
use crate::fields::list_holds;
use crate::head::Note;
use crate::scan::{is_token, is_word};
use std::fmt;

/// The version of a message. This crate reads and writes HTTP/1 only; HTTP/2 is for callers that have another
/// machine beside it.
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

/// Where in a conversation a connection is: which of the caller's deadlines applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Between messages. The end of the connection is in order here.
    Idle,
    /// Within a head.
    Head,
    /// Within a body.
    Body,
    /// After the last message; what comes is ignored.
    Closed,
    /// The connection speaks another protocol now.
    HandedOver,
    /// A message was refused.
    Failed,
}

/// How the body of a message that is being read is framed: decided once, by its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    /// There is none: the message is complete with its head.
    Empty,
    /// As many bytes; at least one.
    Length(u64),
    /// In chunks, each with its length, and perhaps trailers.
    Chunked,
    /// To the end of the connection; responses only.
    UntilClose,
}

/// What the header lines say about framing and connection, gathered while they are read.
///
/// A line that is wrong by itself is refused as it is read; lines that contradict each other are refused at
/// the end of the head, so that the answer does not depend on how the head was cut.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) length: u64,
    lengths: u8,
    /// Two lines name different lengths.
    lengths_differ: bool,
    codings: u8,
    /// Lines that name `identity`, which is no coding, as the only one.
    identities: u8,
    pub(crate) close: bool,
    pub(crate) keep_alive: bool,
    /// `Connection: upgrade` was seen.
    upgrade_option: bool,
    /// `Upgrade` was seen.
    upgrade: bool,
}

/// Notes the lines that matter in both directions.
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

    /// Returns whether the lines agree with each other, and the framing they name: `None` if they name none.
    ///
    /// RFC 9112 §6.1 and §6.3 let some of these pass and say which wins. A reader that accepts them must
    /// agree with every hop before and after about the winner, and has not always; so none of them passes
    /// here. `tolerant`: they are of an answer, and [`Limits::tolerant`](crate::Limits::tolerant) is set.
    #[inline]
    pub(crate) fn framing(&self, version: Version, tolerant: bool) -> Result<Option<Body>, Error> {
        if self.identities > 0 {
            return self.not_coded(tolerant);
        }
        if self.lengths == 0 && self.codings == 0 {
            return Ok(None);
        }
        // The same length twice leaves no choice (RFC 9110 §8.6), a coding beside it does.
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

    /// Returns the framing of a message with `Transfer-Encoding: identity`. An answer that names nothing else
    /// ends with its connection (RFC 9112 §6.3). Beside a length readers differ about which of the two
    /// counts, and a request has no such end.
    #[cold]
    fn not_coded(&self, tolerant: bool) -> Result<Option<Body>, Error> {
        if tolerant && self.identities == 1 && self.lengths == 0 && self.codings == 0 {
            return Ok(Some(Body::UntilClose));
        }
        Err(Error::new(Problem::TransferEncoding, b"identity"))
    }

    /// Returns whether the sender means the connection to go on (RFC 9112 §9.3).
    pub(crate) fn persists(&self, version: Version) -> bool {
        match version {
            Version::Http11 | Version::Http2 => !self.close,
            Version::Http10 => self.keep_alive && !self.close,
        }
    }

    /// Returns whether another protocol is offered or taken (RFC 9110 §7.8).
    pub(crate) fn upgrades(&self, version: Version) -> bool {
        self.upgrade && self.upgrade_option && version == Version::Http11
    }
}

/// 1 to 19 digits: 19 nines are below 2^64, so nothing wraps.
pub(crate) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 19 {
        return None;
    }
    digits
        .iter()
        .try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + u64::from(digit - b'0')))
}

/// Returns what is wrong with a transfer coding that is not `chunked`. A list of good names that ends in
/// `chunked` could be decoded by another program, so it is "not implemented"; with any other the end of the
/// body cannot be known.
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
