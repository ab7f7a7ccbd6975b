//! The protocols of the reference servers: bytes in, bytes to send, and no I/O.
//!
//! Every model, hand-written or on an engine, uses this file, so that two models differ only in their I/O.
//! `echo` returns its input. `http` answers every request with the same small page. It parses only the parts
//! of a request that decide where the next one begins and whether there is one. It is not a strict parser:
//! irrelevant header lines are skipped, and `Host` is not required.
//!
//! Start at [`Session::next`]. Below it: the end of a head ([`parse`]), its meaning ([`Request`]), the
//! skipping of a body ([`Phase`]), and the answers ([`Answer`]).
//!
//! # References
//! RFC 9112 (HTTP/1.1): §2.2 empty lines before a request, §3 request line, §6 message body, §7.1 chunked,
//! §9.3 persistence, §9.6 tear-down. RFC 9110 §10.1.1 `Expect`.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use crate::UnknownName;
use memchr::memchr;
use std::fmt;
use std::str::FromStr;

/// Maximum bytes of a request head, including its final empty line; a longer one is answered 431.
pub const HEAD_BYTES_MAX: usize = 8192;

/// Maximum bytes of a line inside a chunked body (a chunk size with its extension, a trailer), and of all
/// trailers.
const CHUNK_LINE_BYTES_MAX: u16 = 8192;

/// Maximum number of answers in one slice.
pub const BATCH_MAX: usize = 64;

/// Bytes that are read and dropped after a closing answer ([`End::Linger`]); then the connection is closed.
pub const LINGER_BYTES_MAX: u32 = 256 * 1024;

/// The protocol of a server's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Bytes are returned unchanged.
    Echo,
    /// HTTP/1.1 and 1.0, each request answered with a page of 20 bytes.
    Http,
}

impl Protocol {
    /// Every protocol.
    pub const ALL: &[Protocol] = &[Protocol::Echo, Protocol::Http];

    /// Returns the name used on command lines and in records.
    pub const fn name(self) -> &'static str {
        match self {
            Protocol::Echo => "echo",
            Protocol::Http => "http",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Protocol {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        let known = || Protocol::ALL.iter().map(|protocol| protocol.name());
        Protocol::ALL
            .iter()
            .copied()
            .find(|p| p.name() == name)
            .ok_or_else(|| UnknownName::new("protocol", name, known()))
    }
}

/// The state of one connection. Holds no heap memory between requests.
#[derive(Debug)]
pub struct Session {
    /// The received part of an incomplete head; empty and unallocated otherwise.
    carry: Vec<u8>,
    phase: Phase,
    /// Bytes of the chunk-size line or trailers so far; valid in those phases.
    line_bytes: u16,
    /// The answer to the request with the body that is being skipped.
    answer: Answer,
    /// An answer that must wait until a batch of plain ones was sent.
    held: Option<Answer>,
    protocol: Protocol,
}

/// Bytes to send, all of them, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The bytes: a part of the input (`echo`) or of a static table (`http`).
    pub bytes: &'a [u8],
    /// The same bytes, if they are in the table, so that they may be sent after the input was freed. `None`:
    /// they are all of the input.
    pub fixed: Option<&'static [u8]>,
    /// Number of HTTP requests that these bytes answer with 200.
    pub requests: u32,
    /// Units of work for these bytes: requests with `http`, 1 with `echo`.
    pub portions: u32,
    /// The step after they were sent.
    pub end: End,
}

/// The fate of the connection after a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The connection is kept.
    Open,
    /// Close it: the peer agreed to send nothing more.
    Close,
    /// Shut down the sending side, then read and discard until the peer ends: it may still be sending, and
    /// closing on unread bytes makes the kernel reset the connection and destroy the reply (RFC 9112 §9.6).
    Linger,
}

impl Session {
    /// Makes the state of a connection that was just opened.
    pub fn new(protocol: Protocol) -> Self {
        Session {
            carry: Vec::new(),
            phase: Phase::Head,
            line_bytes: 0,
            answer: Answer::Plain,
            held: None,
            protocol,
        }
    }

    /// Consumes the front of `input` and returns the next reply, or `None` if it needs more: `input` is empty
    /// then, and all of it was processed or kept. Call it until `None`. Fragmentation over calls never
    /// changes the replies as a whole, only into how many parts they are divided.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Option<Reply<'a>> {
        match self.protocol {
            Protocol::Echo if input.is_empty() => None,
            Protocol::Echo => {
                let bytes = std::mem::take(input);
                Some(Reply { bytes, fixed: None, requests: 0, portions: 1, end: End::Open })
            }
            Protocol::Http => self.next_http(input),
        }
    }

    /// Collects plain answers while they are available, so that a pipelined batch is one reply and one send.
    fn next_http<'a>(&mut self, input: &mut &'a [u8]) -> Option<Reply<'a>> {
        let mut plain = 0;
        while plain < BATCH_MAX {
            let Some(answer) = self.held.take().or_else(|| self.advance(input)) else { break };
            if answer == Answer::Plain {
                plain += 1;
                continue;
            }
            if plain > 0 {
                self.held = Some(answer);
                break;
            }
            if answer.end() != End::Open {
                self.phase = Phase::Ended;
                *input = &[];
            }
            let requests = answer.requests();
            let bytes = answer.bytes();
            return Some(Reply {
                bytes,
                fixed: Some(bytes),
                requests,
                portions: requests,
                end: answer.end(),
            });
        }
        let bytes = PLAIN_BATCH.get(..plain * PLAIN.len()).filter(|bytes| !bytes.is_empty())?;
        let requests = plain as u32;
        Some(Reply { bytes, fixed: Some(bytes), requests, portions: requests, end: End::Open })
    }

    /// Consumes input up to the next answer. `None`: the input is used up.
    fn advance(&mut self, input: &mut &[u8]) -> Option<Answer> {
        loop {
            if input.is_empty() {
                return None;
            }
            match &mut self.phase {
                Phase::Head => match self.head(input)? {
                    Ok(request) => {
                        self.answer = request.answer;
                        self.line_bytes = 0;
                        self.phase = match request.body {
                            Body::None => return Some(request.answer),
                            Body::Length(left) => Phase::Length { left },
                            Body::Chunked => Phase::ChunkSize { size: 0, digits: 0 },
                        };
                        if request.expects_continue {
                            return Some(Answer::Continue);
                        }
                    }
                    Err(refusal) => return Some(refusal),
                },
                Phase::Length { left } => {
                    skip(input, left);
                    if *left == 0 {
                        self.phase = Phase::Head;
                        return Some(self.answer);
                    }
                }
                Phase::ChunkData { left } if *left > 0 => skip(input, left),
                Phase::Ended => *input = &[],
                _ => {
                    let (byte, rest) = input.split_first()?;
                    *input = rest;
                    match self.chunk_byte(*byte) {
                        Ok(false) => {}
                        Ok(true) => {
                            self.phase = Phase::Head;
                            return Some(self.answer);
                        }
                        Err(refusal) => return Some(refusal),
                    }
                }
            }
        }
    }

    /// Takes one head from the front of `input`, after the carried bytes. `None`: it is incomplete, and the
    /// input is kept in `carry`.
    fn head(&mut self, input: &mut &[u8]) -> Option<Result<Request, Answer>> {
        let carried = self.carry.len();
        let outcome = if carried == 0 {
            parse(input)
        } else {
            let room = HEAD_BYTES_MAX - carried;
            let fresh = input.get(..room).unwrap_or(input);
            self.carry.extend_from_slice(fresh);
            // Without a line feed among the new bytes no line has ended, so nothing can have been decided:
            // a head that comes byte by byte is parsed once per line, not once per byte.
            if memchr(b'\n', fresh).is_some() || self.carry.len() == HEAD_BYTES_MAX {
                parse(&self.carry)
            } else {
                Outcome::Partial
            }
        };
        match outcome {
            Outcome::Whole { head_bytes, request } => {
                // The carried part held no whole head, so the end lies in the new bytes.
                *input = input.get(head_bytes - carried..).unwrap_or_default();
                if carried > 0 {
                    self.carry = Vec::new();
                }
                Some(Ok(request))
            }
            Outcome::Refused(refusal) => {
                self.carry = Vec::new();
                Some(Err(refusal))
            }
            Outcome::Partial => {
                if carried == 0 {
                    self.carry.extend_from_slice(input);
                }
                *input = &[];
                None
            }
        }
    }

    /// Parses one byte of a chunked body outside its data. `Ok(true)`: the body is complete.
    fn chunk_byte(&mut self, byte: u8) -> Result<bool, Answer> {
        self.line_bytes += 1;
        if self.line_bytes > CHUNK_LINE_BYTES_MAX {
            return Err(Answer::BadRequest);
        }
        self.phase = match (self.phase, byte) {
            (Phase::ChunkSize { size, digits }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') if digits < 16 => {
                let digit = (byte as char).to_digit(16).unwrap_or_default();
                Phase::ChunkSize { size: (size << 4) | u64::from(digit), digits: digits + 1 }
            }
            (Phase::ChunkSize { size, digits: 1.. }, b'\r') => Phase::ChunkLineFeed { size },
            (Phase::ChunkSize { size, digits: 1.. }, b';' | b' ' | b'\t') => Phase::ChunkExtension { size },
            (Phase::ChunkExtension { size }, b'\r') => Phase::ChunkLineFeed { size },
            (Phase::ChunkExtension { size }, _) if byte != b'\n' => Phase::ChunkExtension { size },
            (Phase::ChunkLineFeed { size: 0 }, b'\n') => Phase::Trailer { at_start: true },
            (Phase::ChunkLineFeed { size }, b'\n') => Phase::ChunkData { left: size },
            (Phase::ChunkData { left: 0 }, b'\r') => Phase::ChunkDataLineFeed,
            (Phase::ChunkDataLineFeed, b'\n') => {
                self.line_bytes = 0;
                Phase::ChunkSize { size: 0, digits: 0 }
            }
            (Phase::Trailer { at_start }, b'\r') => Phase::TrailerLineFeed { last: at_start },
            (Phase::Trailer { .. }, _) if byte != b'\n' => Phase::Trailer { at_start: false },
            (Phase::TrailerLineFeed { last: false }, b'\n') => Phase::Trailer { at_start: true },
            (Phase::TrailerLineFeed { last: true }, b'\n') => return Ok(true),
            _ => return Err(Answer::BadRequest),
        };
        Ok(false)
    }
}

/// The position of a session within a request.
#[derive(Clone, Copy, Debug)]
enum Phase {
    Head,
    /// In a body of known length.
    Length {
        left: u64,
    },
    /// In a chunk-size line, before its digits end.
    ChunkSize {
        size: u64,
        digits: u8,
    },
    /// In a chunk-size line, after the digits: skipped.
    ChunkExtension {
        size: u64,
    },
    /// Between CR and LF of a chunk-size line.
    ChunkLineFeed {
        size: u64,
    },
    /// In chunk data; at 0 its CR is due.
    ChunkData {
        left: u64,
    },
    /// Between CR and LF after chunk data.
    ChunkDataLineFeed,
    /// In the lines after the last chunk.
    Trailer {
        at_start: bool,
    },
    /// Between CR and LF of such a line; the empty one is the last.
    TrailerLineFeed {
        last: bool,
    },
    /// A closing answer was sent: further input is ignored.
    Ended,
}

/// Drops up to `left` bytes from the front of `input`, and subtracts them from `left`.
fn skip(input: &mut &[u8], left: &mut u64) {
    let bytes = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
    *input = input.get(bytes..).unwrap_or_default();
    *left -= bytes as u64;
}

/// The parsed facts of a head.
#[derive(Clone, Copy, Debug)]
struct Request {
    answer: Answer,
    body: Body,
    expects_continue: bool,
}

#[derive(Clone, Copy, Debug)]
enum Body {
    None,
    Length(u64),
    Chunked,
}

/// Result of parsing the front of a buffer.
enum Outcome {
    /// A complete head, `head_bytes` long with its empty line.
    Whole { head_bytes: usize, request: Request },
    /// An incomplete head.
    Partial,
    /// Not a valid head.
    Refused(Answer),
}

/// Parses the head at the front of `data`: one pass, line by line. A header line is examined only if its
/// first letter is that of a relevant header.
fn parse(data: &[u8]) -> Outcome {
    let mut lines = Lines { rest: data.get(..HEAD_BYTES_MAX).unwrap_or(data) };
    let window_bytes = lines.rest.len();
    let outcome = parse_lines(&mut lines);
    match outcome {
        Ok(request) => Outcome::Whole { head_bytes: window_bytes - lines.rest.len(), request },
        Err(NoHead::Bad) => Outcome::Refused(Answer::BadRequest),
        Err(NoHead::Unfinished) if window_bytes == HEAD_BYTES_MAX => Outcome::Refused(Answer::HeadTooLarge),
        Err(NoHead::Unfinished) => Outcome::Partial,
    }
}

/// Why no head could be parsed.
enum NoHead {
    Unfinished,
    Bad,
}

/// The lines of a head, without their CR LF.
struct Lines<'a> {
    rest: &'a [u8],
}

impl<'a> Lines<'a> {
    fn next(&mut self) -> Result<&'a [u8], NoHead> {
        let feed = memchr(b'\n', self.rest).ok_or(NoHead::Unfinished)?;
        let (line, rest) = self.rest.split_at_checked(feed + 1).ok_or(NoHead::Unfinished)?;
        self.rest = rest;
        line.strip_suffix(b"\r\n").ok_or(NoHead::Bad)
    }
}

fn parse_lines(lines: &mut Lines<'_>) -> Result<Request, NoHead> {
    let mut line = lines.next()?;
    while line.is_empty() {
        line = lines.next()?;
    }
    let RequestLine { is_head, minor } = RequestLine::read(line).ok_or(NoHead::Bad)?;
    let mut length = None;
    let mut chunked = false;
    let mut close = false;
    let mut keep_alive = false;
    let mut expects_continue = false;
    loop {
        let line = lines.next()?;
        let Some(first) = line.first() else { break };
        match first {
            b'c' | b'C' | b't' | b'T' | b'e' | b'E' => {}
            // A folded line, or a header without a name.
            b' ' | b'\t' | b':' => return Err(NoHead::Bad),
            _ => continue,
        }
        let colon = memchr(b':', line).ok_or(NoHead::Bad)?;
        let (name, value) = line.split_at_checked(colon).ok_or(NoHead::Bad)?;
        // RFC 9112 §5.1: white space between name and colon is refused, since hops that treat it differently
        // can be made to disagree about the body.
        if name.last().is_some_and(|byte| matches!(byte, b' ' | b'\t')) {
            return Err(NoHead::Bad);
        }
        let value = value.get(1..).unwrap_or_default().trim_ascii();
        if name.eq_ignore_ascii_case(b"content-length") {
            // Twice is refused even with equal values, and with chunked below: RFC 9112 §6.3.
            if length.replace(decimal(value).ok_or(NoHead::Bad)?).is_some() {
                return Err(NoHead::Bad);
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if chunked || minor == 0 || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(NoHead::Bad);
            }
            chunked = true;
        } else if name.eq_ignore_ascii_case(b"connection") {
            for token in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                close |= token.eq_ignore_ascii_case(b"close");
                keep_alive |= token.eq_ignore_ascii_case(b"keep-alive");
            }
        } else if name.eq_ignore_ascii_case(b"expect") {
            expects_continue |= value.eq_ignore_ascii_case(b"100-continue");
        }
    }
    let body = match (length, chunked) {
        (Some(_), true) => return Err(NoHead::Bad),
        (None, true) => Body::Chunked,
        (None | Some(0), false) => Body::None,
        (Some(left), false) => Body::Length(left),
    };
    let answer = match (close || (minor == 0 && !keep_alive), minor, is_head) {
        (true, _, false) => Answer::Close,
        (true, _, true) => Answer::CloseHead,
        (false, 0, false) => Answer::KeepAlive,
        (false, 0, true) => Answer::KeepAliveHead,
        (false, _, false) => Answer::Plain,
        (false, _, true) => Answer::PlainHead,
    };
    let expects_continue = expects_continue && minor == 1 && !matches!(body, Body::None);
    Ok(Request { answer, body, expects_continue })
}

/// The relevant parts of a request line.
struct RequestLine {
    is_head: bool,
    /// Minor version: 0 or 1.
    minor: u8,
}

impl RequestLine {
    fn read(line: &[u8]) -> Option<Self> {
        let (rest, minor) = match line.strip_suffix(b" HTTP/1.1") {
            Some(rest) => (rest, 1),
            None => (line.strip_suffix(b" HTTP/1.0")?, 0),
        };
        let (method, target) = match rest.strip_prefix(b"GET ") {
            Some(target) => (&b"GET"[..], target),
            None => {
                let blank = memchr(b' ', rest)?;
                let (method, target) = rest.split_at_checked(blank)?;
                (method, target.get(1..)?)
            }
        };
        let method_is_token = !method.is_empty() && method.iter().all(|byte| is_token(*byte));
        let target_is_visible = !target.is_empty() && target.iter().all(|byte| *byte > b' ' && *byte != 0x7f);
        (method_is_token && target_is_visible).then_some(RequestLine { is_head: method == b"HEAD", minor })
    }
}

/// RFC 9110 §5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Digits only, no sign, no blank, and no overflow.
fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |value, byte| match byte {
        b'0'..=b'9' => value.checked_mul(10)?.checked_add(u64::from(byte - b'0')),
        _ => None,
    })
}

/// All answers of this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Plain,
    PlainHead,
    Close,
    CloseHead,
    /// HTTP/1.0 must be told that the connection persists; it is the default of 1.1.
    KeepAlive,
    KeepAliveHead,
    Continue,
    BadRequest,
    HeadTooLarge,
}

/// The status line and headers of the page, up to where a `Connection` header may follow.
macro_rules! page_head {
    () => {
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 20\r\n"
    };
}
macro_rules! page_body {
    () => {
        "<h1>Hello World</h1>"
    };
}

const PLAIN: &[u8] = concat!(page_head!(), "\r\n", page_body!()).as_bytes();

/// The plain answer, over and over, so that any number of them is a slice of one table.
#[allow(
    clippy::indexing_slicing,
    reason = "evaluated by the compiler, which would refuse an index out of range"
)]
static PLAIN_BATCH: [u8; PLAIN.len() * BATCH_MAX] = {
    let mut batch = [0; PLAIN.len() * BATCH_MAX];
    let mut at = 0;
    while at < batch.len() {
        batch[at] = PLAIN[at % PLAIN.len()];
        at += 1;
    }
    batch
};

impl Answer {
    fn bytes(self) -> &'static [u8] {
        match self {
            Answer::Plain => PLAIN,
            Answer::PlainHead => concat!(page_head!(), "\r\n").as_bytes(),
            Answer::Close => concat!(page_head!(), "Connection: close\r\n\r\n", page_body!()).as_bytes(),
            Answer::CloseHead => concat!(page_head!(), "Connection: close\r\n\r\n").as_bytes(),
            Answer::KeepAlive => concat!(page_head!(), "Connection: keep-alive\r\n\r\n", page_body!()).as_bytes(),
            Answer::KeepAliveHead => concat!(page_head!(), "Connection: keep-alive\r\n\r\n").as_bytes(),
            Answer::Continue => b"HTTP/1.1 100 Continue\r\n\r\n",
            Answer::BadRequest => b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            Answer::HeadTooLarge => {
                b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            }
        }
    }

    fn requests(self) -> u32 {
        match self {
            Answer::Continue | Answer::BadRequest | Answer::HeadTooLarge => 0,
            _ => 1,
        }
    }

    fn end(self) -> End {
        match self {
            Answer::Close | Answer::CloseHead => End::Close,
            Answer::BadRequest | Answer::HeadTooLarge => End::Linger,
            _ => End::Open,
        }
    }
}
