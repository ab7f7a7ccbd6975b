//! Encoding of messages: heads of both directions into a caller's `Vec<u8>`.
//!
//! [`Encoder`] writes a head line by line, and decides the framing of the body in one place,
//! [`finish`](Encoder::finish). [`BodyEncoder`] then enforces that framing. Input that the other side could
//! misread is refused: control characters in values, names that are not tokens, framing lines written by
//! hand. A head that is not finished leaves nothing in the buffer.
//!
//! There is no clock here: the caller has one, and keeps a [`DateLine`] for a second.

use crate::body_encode::{BodyEncoder, Framing};
use crate::fields::Field;
use crate::message::{Method, Version};
use crate::request_head::RequestHead;
use crate::scan::{is_word, target_len, token_len, value_len};
use crate::status::Status;
use crate::target::{classify, is_host};
use std::fmt;

/// Why something is not written. The buffer is as before then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EncodeError {
    /// A method or header name that is not a token.
    Name,
    /// A header value with control characters in it.
    Value,
    /// A header line that frames the message or the connection, which [`Encoder::finish`] writes, or a
    /// trailer that belongs before the body.
    Framing,
    /// A request target that is not valid, or not with this method.
    Target,
    /// A host that is not a name or an address, with at most a port.
    Host,
    /// A date that is not 29 characters.
    Date,
    /// More of a body than was announced.
    BodyTooLong,
    /// Less of a body than was announced: the connection cannot be used again.
    BodyTooShort,
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EncodeError::Name => "method or header name: expected a token",
            EncodeError::Value => "header value: expected no control characters (strip or escape it)",
            EncodeError::Framing => {
                "header line: this one follows from the body and the connection and is not written by hand"
            }
            EncodeError::Target => {
                "request target: expected a path, a URL, or what the method asks for, with odd characters escaped"
            }
            EncodeError::Host => "host: expected a name or an address, with a port at most",
            EncodeError::Date => "date: expected 29 characters, as in Sun, 06 Nov 1994 08:49:37 GMT",
            EncodeError::BodyTooLong => "body: more bytes than were announced",
            EncodeError::BodyTooShort => "body: fewer bytes than were announced (close the connection)",
        })
    }
}

impl std::error::Error for EncodeError {}

/// The complete interim response that asks a client for its body.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The size of the body after a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BodySize {
    /// This many bytes.
    Known(u64),
    /// Not known yet.
    Unknown,
}

/// Facts about the request that a response needs, taken from its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyTo {
    /// The method: the answer to HEAD carries no body.
    pub method: Method,
    /// The version: a 1.0 client does not support chunks.
    pub version: Version,
    /// Whether the connection is kept. Clear it to close after this response.
    pub keep_alive: bool,
}

impl ReplyTo {
    /// Returns the facts for an answer to an invalid request: the connection is closed.
    pub const fn refused() -> Self {
        ReplyTo { method: Method::Get, version: Version::Http11, keep_alive: false }
    }
}

impl From<&RequestHead<'_>> for ReplyTo {
    fn from(head: &RequestHead<'_>) -> Self {
        ReplyTo { method: head.method(), version: head.version(), keep_alive: head.keep_alive() }
    }
}

/// A `Date` line ready to be written, made once a second.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DateLine([u8; DATE_LINE_BYTES]);

const DATE_LINE_BYTES: usize = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n".len();

impl DateLine {
    /// Makes the line of a date in the form of RFC 9110 §5.6.7, as `httpdate` writes it.
    pub fn new(date: &str) -> Result<Self, EncodeError> {
        let date = date.as_bytes().first_chunk::<29>().filter(|_| date.len() == 29);
        let date = date.filter(|date| value_len(&date[..]) == date.len()).ok_or(EncodeError::Date)?;
        let mut line = *b"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
        for (to, from) in line.iter_mut().skip("Date: ".len()).zip(date) {
            *to = *from;
        }
        Ok(DateLine(line))
    }
}

impl fmt::Debug for DateLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

/// Header lines that are checked once and written many times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldBlock {
    bytes: Vec<u8>,
}

/// Returns whether a line of a block has this name, in any case.
fn is_of(line: &[u8], name: &str) -> bool {
    line.get(name.len()) == Some(&b':')
        && line.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name.as_bytes()))
}

impl FieldBlock {
    /// Makes a block without lines.
    pub const fn new() -> Self {
        FieldBlock { bytes: Vec::new() }
    }

    /// Makes a block of these lines.
    pub fn of<N: AsRef<[u8]>, V: AsRef<[u8]>>(
        lines: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, EncodeError> {
        let mut block = FieldBlock::new();
        for (name, value) in lines {
            block.push(name.as_ref(), value.as_ref())?;
        }
        Ok(block)
    }

    /// Adds a line.
    pub fn push(&mut self, name: &[u8], value: &[u8]) -> Result<(), EncodeError> {
        put_field(&mut self.bytes, name, value)
    }

    /// Adds an `Upgrade` line, for 426 answers only, which need one (RFC 9110 §15.5.22):
    /// [`Encoder::upgrade_named`].
    pub fn push_upgrade(&mut self, protocols: &[u8]) -> Result<(), EncodeError> {
        if protocols.is_empty() || value_len(protocols) != protocols.len() {
            return Err(EncodeError::Value);
        }
        for part in [b"Upgrade: ", protocols, b"\r\n"] {
            self.bytes.extend_from_slice(part);
        }
        Ok(())
    }

    /// Adds the lines of another block after these.
    pub fn append(&mut self, other: &FieldBlock) {
        self.bytes.extend_from_slice(&other.bytes);
    }

    /// Returns the lines: names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = Field<'_>> {
        self.lines().filter_map(|line| {
            let colon = line.iter().position(|byte| *byte == b':')?;
            Some(Field { name: line.get(..colon)?, value: line.get(colon + 2..line.len() - 2)? })
        })
    }

    /// Returns the lines, each with its CR LF.
    fn lines(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.bytes.as_slice();
        std::iter::from_fn(move || {
            // CR and LF are the only bytes of a line that a value cannot have.
            let (line, after) = rest.split_at_checked(value_len(rest) + 2)?;
            rest = after;
            Some(line)
        })
    }

    /// Returns the value of the first line of this name, in any case.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        let line = self.lines().find(|line| is_of(line, name))?;
        line.get(name.len() + 2..line.len() - 2)
    }

    /// Removes all lines of this name, in any case; returns how many there were.
    pub fn remove(&mut self, name: &str) -> usize {
        let count = self.lines().filter(|line| is_of(line, name)).count();
        if count > 0 {
            let kept: Vec<u8> = self.lines().filter(|line| !is_of(line, name)).flatten().copied().collect();
            self.bytes = kept;
        }
        count
    }

    /// Replaces all lines of this name by one.
    pub fn set(&mut self, name: &[u8], value: &[u8]) -> Result<(), EncodeError> {
        // Checked before any line is removed.
        let mut line = Vec::new();
        put_field(&mut line, name, value)?;
        if let Ok(name) = str::from_utf8(name) {
            self.remove(name);
        }
        self.bytes.extend_from_slice(&line);
        Ok(())
    }

    /// Returns the encoded lines, each with its CR LF.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Removes the lines and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }
}

/// Writes the line if it is valid.
#[inline]
pub(crate) fn put_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) -> Result<(), EncodeError> {
    if name.is_empty() || token_len(name) != name.len() {
        return Err(EncodeError::Name);
    }
    if is_framing(name) {
        return Err(EncodeError::Framing);
    }
    if value_len(value) != value.len() {
        return Err(EncodeError::Value);
    }
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// Lines that [`Encoder`] writes itself.
#[inline]
fn is_framing(name: &[u8]) -> bool {
    match name.len() {
        4 => is_word(name, b"host"),
        7 => is_word(name, b"upgrade"),
        10 => is_word(name, b"connection"),
        14 => is_word(name, b"content-length"),
        17 => is_word(name, b"transfer-encoding"),
        _ => false,
    }
}

/// A head being written.
#[derive(Debug)]
pub struct Encoder<'a> {
    out: &'a mut Vec<u8>,
    /// Offset of this head in `out`.
    start: usize,
    kind: Kind,
    upgrade: bool,
    finished: bool,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Response { status: Status, to: ReplyTo },
    Request { method: Method, keep_alive: bool },
}

impl Drop for Encoder<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.out.truncate(self.start);
        }
    }
}

impl<'a> Encoder<'a> {
    /// Begins a response at the end of `out`. The version is 1.1 even for a 1.0 client, as RFC 9110 §6.2
    /// recommends: it states what this side understands.
    #[inline]
    pub fn response(out: &'a mut Vec<u8>, status: Status, to: ReplyTo) -> Self {
        let start = out.len();
        out.reserve(256);
        match status.line() {
            Some(line) => out.extend_from_slice(line),
            None => {
                out.extend_from_slice(b"HTTP/1.1 ");
                put_decimal(out, u64::from(status.code()));
                out.extend_from_slice(b" \r\n");
            }
        }
        Encoder { out, start, kind: Kind::Response { status, to }, upgrade: false, finished: false }
    }

    /// Begins a request at the end of `out`, for a connection that is to be kept. `host` is the authority of
    /// the URL, with its port unless it is the default one.
    pub fn request(
        out: &'a mut Vec<u8>,
        method: Method,
        target: &str,
        host: &str,
    ) -> Result<Self, EncodeError> {
        Encoder::request_named(out, method.name(), target, host)
    }

    /// Begins a request with a method of any name.
    pub fn request_named(
        out: &'a mut Vec<u8>,
        method: &str,
        target: &str,
        host: &str,
    ) -> Result<Self, EncodeError> {
        let (name, target, host) = (method.as_bytes(), target.as_bytes(), host.as_bytes());
        let method = Method::new(name);
        if name.is_empty() || token_len(name) != name.len() {
            return Err(EncodeError::Name);
        }
        let too_long = target.len() > usize::from(u16::MAX);
        if too_long || target_len(target) != target.len() || classify(target, method).is_none() {
            return Err(EncodeError::Target);
        }
        if !is_host(host) {
            return Err(EncodeError::Host);
        }
        let start = out.len();
        out.reserve(256);
        for part in [name, b" ", target, b" HTTP/1.1\r\nHost: ", host, b"\r\n"] {
            out.extend_from_slice(part);
        }
        let kind = Kind::Request { method, keep_alive: true };
        Ok(Encoder { out, start, kind, upgrade: false, finished: false })
    }

    /// Adds a header line. So that no value can become a header, it refuses names that are not tokens, values
    /// with control characters (tabs are allowed), and the lines that [`finish`](Self::finish) writes.
    #[inline]
    pub fn field(
        &mut self,
        name: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<&mut Self, EncodeError> {
        put_field(self.out, name.as_ref(), value.as_ref())?;
        Ok(self)
    }

    /// Adds header lines that were checked before.
    #[inline]
    pub fn block(&mut self, block: &FieldBlock) -> &mut Self {
        self.out.extend_from_slice(&block.bytes);
        self
    }

    /// Adds the `Date` line.
    #[inline]
    pub fn date(&mut self, date: &DateLine) -> &mut Self {
        self.out.extend_from_slice(&date.0);
        self
    }

    /// Marks the request as the last on its connection, or the response as its end.
    pub fn close(&mut self) -> &mut Self {
        match &mut self.kind {
            Kind::Response { to, .. } => to.keep_alive = false,
            Kind::Request { keep_alive, .. } => *keep_alive = false,
        }
        self
    }

    /// Adds `Upgrade`: offers another protocol, accepts the offer (101), or requires the protocol (426).
    pub fn upgrade(&mut self, protocol: &str) -> Result<&mut Self, EncodeError> {
        if protocol.is_empty() || value_len(protocol.as_bytes()) != protocol.len() {
            return Err(EncodeError::Value);
        }
        for part in [b"Upgrade: ", protocol.as_bytes(), b"\r\n"] {
            self.out.extend_from_slice(part);
        }
        self.upgrade = true;
        Ok(self)
    }

    /// Adds `Upgrade` to `Connection`, for a line that was in a [`block`](Self::block).
    pub fn upgrade_named(&mut self) -> &mut Self {
        self.upgrade = true;
        self
    }

    /// Ends the head: writes the lines for the body and the connection, and the empty line.
    ///
    /// For an interim response the size does not matter, and the encoder returned takes no body.
    #[inline]
    pub fn finish(mut self, size: BodySize) -> BodyEncoder {
        let (framing, keep_alive, old_client) = match self.kind {
            Kind::Response { status, to } => response_framing(status, to, size),
            Kind::Request { method, keep_alive } => (request_framing(method, size), keep_alive, false),
        };
        let out = &mut *self.out;
        match framing {
            Framing::Length { left } | Framing::Unsent { length: Some(left) } => {
                out.extend_from_slice(b"Content-Length: ");
                put_decimal(out, left);
                out.extend_from_slice(b"\r\n");
            }
            Framing::Chunked { .. } => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
            Framing::None | Framing::Unsent { length: None } | Framing::UntilClose => {}
        }
        match (keep_alive, self.upgrade) {
            (true, false) if old_client => out.extend_from_slice(b"Connection: keep-alive\r\n"),
            (true, false) => {}
            (true, true) => out.extend_from_slice(b"Connection: upgrade\r\n"),
            (false, true) => out.extend_from_slice(b"Connection: upgrade, close\r\n"),
            (false, false) => out.extend_from_slice(b"Connection: close\r\n"),
        }
        out.extend_from_slice(b"\r\n");
        self.finished = true;
        BodyEncoder::new(framing, keep_alive)
    }
}

/// Returns the framing of a response, whether the connection is kept, and whether a 1.0 client must be told
/// that.
#[inline]
fn response_framing(status: Status, to: ReplyTo, size: BodySize) -> (Framing, bool, bool) {
    let old_client = to.version == Version::Http10;
    if status.code() < 200 {
        return (Framing::None, true, false);
    }
    if to.method == Method::Connect && status.is_success() {
        return (Framing::None, true, false);
    }
    let framing = match size {
        _ if status.forbids_body() => Framing::None,
        BodySize::Known(length) if to.method == Method::Head => Framing::Unsent { length: Some(length) },
        BodySize::Unknown if to.method == Method::Head => Framing::Unsent { length: None },
        BodySize::Known(left) => Framing::Length { left },
        BodySize::Unknown if old_client => Framing::UntilClose,
        BodySize::Unknown => Framing::Chunked { line_due: false },
    };
    let keep_alive = to.keep_alive && framing != Framing::UntilClose;
    (framing, keep_alive, old_client)
}

/// Returns the framing of a request. RFC 9110 §8.6: an empty body is announced if the method usually has one.
fn request_framing(method: Method, size: BodySize) -> Framing {
    match size {
        BodySize::Known(0) if matches!(method, Method::Post | Method::Put | Method::Patch) => {
            Framing::Length { left: 0 }
        }
        BodySize::Known(0) => Framing::None,
        // These methods may not have a body.
        _ if matches!(method, Method::Connect | Method::Trace) => Framing::None,
        BodySize::Known(left) => Framing::Length { left },
        BodySize::Unknown => Framing::Chunked { line_due: false },
    }
}

/// Appends `number` in decimal without leading zeros, the form of lengths and status codes (RFC 9110 §8.6).
#[inline]
pub fn put_decimal(out: &mut Vec<u8>, number: u64) {
    let mut digits = [b'0'; 20];
    let mut rest = number;
    let mut first = digits.len();
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
        first -= 1;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(first..).unwrap_or_default());
}
