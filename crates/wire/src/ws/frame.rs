//! Frames (RFC 6455 §5): parsed in pieces and in place, and written.
//!
//! [`Frames`] consumes the head of a data frame as soon as it is complete, then the payload as it arrives. A
//! control frame is consumed as a whole: until then the caller keeps its bytes, at most 131.

use super::close::CloseCode;
use super::error::{Error, Problem};
use super::mask::apply_mask;
use super::utf8::Utf8;

/// The opcode of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Opcode {
    /// A further fragment of a message.
    Continuation,
    /// A text message begins.
    Text,
    /// A binary message begins.
    Binary,
    /// The connection is to be closed.
    Close,
    /// Asks for a pong.
    Ping,
    /// Answers a ping.
    Pong,
}

impl Opcode {
    fn bits(self) -> u8 {
        match self {
            Opcode::Continuation => 0,
            Opcode::Text => 1,
            Opcode::Binary => 2,
            Opcode::Close => 8,
            Opcode::Ping => 9,
            Opcode::Pong => 10,
        }
    }
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// UTF-8, which was checked.
    Text,
    /// Bytes.
    Binary,
}

impl From<Kind> for Opcode {
    fn from(kind: Kind) -> Opcode {
        match kind {
            Kind::Text => Opcode::Text,
            Kind::Binary => Opcode::Binary,
        }
    }
}

/// The side that reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Expects masked frames.
    Server,
    /// Expects frames without a mask.
    Client,
}

/// An event of the parser.
#[derive(Debug, PartialEq, Eq)]
pub enum FrameEvent<'a> {
    /// A piece of a message, unmasked; possibly empty.
    Data {
        /// The kind of the message.
        kind: Kind,
        /// The piece.
        bytes: &'a [u8],
        /// Whether the message is compressed.
        compressed: bool,
        /// Whether it is the first piece of its message.
        first: bool,
        /// Whether it is the last piece.
        last: bool,
    },
    /// A ping, to be answered with a pong of the same bytes.
    Ping(&'a [u8]),
    /// A pong: the answer to a ping, or sent without one.
    Pong(&'a [u8]),
    /// The peer closes; nothing after it is read. `None` if it sent no code.
    Close(Option<(CloseCode, &'a str)>),
}

/// Maximum bytes of a frame's head.
pub const HEAD_BYTES_MAX: usize = 14;

const CONTROL_BYTES_MAX: u64 = 125;

/// State of the parser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The next byte begins a frame.
    Head,
    /// The next byte is payload of a data frame.
    Payload,
    /// A close frame has been read.
    Closed,
    Failed(Problem),
}

/// Reads the frames of one connection.
#[derive(Debug)]
pub struct Frames {
    /// Bytes of the frame's payload that are left.
    left: u64,
    /// Bytes of the message, as its frames announced.
    message_bytes: u64,
    fragments: u32,
    key: [u8; 4],
    phase: u8,
    utf8: Utf8,
    role: Role,
    state: State,
    /// The kind of the present message.
    message: Option<Kind>,
    compressed: bool,
    /// Whether no piece of the message was returned yet.
    first: bool,
    /// Whether the frame is the last of its message.
    fin: bool,
    /// Whether permessage-deflate was agreed on.
    deflate: bool,
}

impl Frames {
    /// Makes the parser of a connection that was just upgraded; `role` is this side's.
    pub fn new(role: Role) -> Frames {
        Frames {
            left: 0,
            message_bytes: 0,
            fragments: 0,
            key: [0; 4],
            phase: 0,
            utf8: Utf8::default(),
            role,
            state: State::Head,
            message: None,
            compressed: false,
            first: false,
            fin: false,
            deflate: false,
        }
    }

    /// Sets whether compressed messages were agreed on.
    #[must_use]
    pub fn deflate(mut self, agreed: bool) -> Frames {
        self.deflate = agreed;
        self
    }

    /// Returns whether the peer has closed.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Returns whether the input ends within a message.
    pub fn is_inside(&self) -> bool {
        self.message.is_some()
    }

    /// Returns how many bytes of the present frame are left.
    pub fn left(&self) -> u64 {
        if self.state == State::Payload { self.left } else { 0 }
    }

    /// Returns the next event in `input` from `at` on, and advances `at` past the used bytes. `None`: more
    /// bytes are needed; present the rest again with more bytes after it.
    ///
    /// A message of more than `bytes_max` bytes is refused when a frame announces them, and one of more than
    /// `fragments_max` frames at the first excess frame. An uncompressed text is checked as it arrives; a
    /// compressed one must be checked when it is inflated.
    ///
    /// # Errors
    /// The peer broke a rule. Each further call returns the error again.
    #[inline]
    pub fn next<'a>(
        &mut self,
        input: &'a mut [u8],
        at: &mut usize,
        bytes_max: u64,
        fragments_max: u32,
    ) -> Result<Option<FrameEvent<'a>>, Error> {
        match self.state {
            State::Payload => self.payload(input, at),
            State::Head => {
                let Some(head) =
                    Head::parse(input.get(*at..).unwrap_or_default()).map_err(|why| self.fail(why))?
                else {
                    return Ok(None);
                };
                self.begin(head, input, at, bytes_max, fragments_max)
            }
            State::Closed => {
                *at = input.len();
                Ok(None)
            }
            State::Failed(problem) => Err(Error::new(problem)),
        }
    }

    #[cold]
    fn fail(&mut self, problem: Problem) -> Error {
        self.state = State::Failed(problem);
        Error::new(problem)
    }

    #[inline]
    fn begin<'a>(
        &mut self,
        head: Head,
        input: &'a mut [u8],
        at: &mut usize,
        bytes_max: u64,
        fragments_max: u32,
    ) -> Result<Option<FrameEvent<'a>>, Error> {
        match (self.role, head.key) {
            (Role::Server, None) => return Err(self.fail(Problem::Unmasked)),
            (Role::Client, Some(_)) => return Err(self.fail(Problem::Masked)),
            _ => {}
        }
        let compressed =
            head.reserved == RSV1 && self.deflate && matches!(head.opcode, Opcode::Text | Opcode::Binary);
        if head.reserved != 0 && !compressed {
            return Err(self.fail(Problem::ReservedBits));
        }
        let kind = match (head.opcode, self.message) {
            (Opcode::Text, None) => Kind::Text,
            (Opcode::Binary, None) => Kind::Binary,
            (Opcode::Text | Opcode::Binary, Some(_)) => return Err(self.fail(Problem::MessageInside)),
            (Opcode::Continuation, Some(kind)) => kind,
            (Opcode::Continuation, None) => return Err(self.fail(Problem::NoMessage)),
            (Opcode::Close | Opcode::Ping | Opcode::Pong, _) => return self.control(head, input, at),
        };
        if head.opcode != Opcode::Continuation {
            (self.message_bytes, self.fragments, self.first) = (0, 0, true);
            (self.compressed, self.utf8) = (compressed, Utf8::default());
        }
        self.fragments = self.fragments.saturating_add(1);
        if self.fragments > fragments_max {
            return Err(self.fail(Problem::TooManyFragments));
        }
        self.message_bytes = self.message_bytes.saturating_add(head.payload);
        if self.message_bytes > bytes_max {
            return Err(self.fail(Problem::TooLong));
        }
        (self.message, self.fin, self.left) = (Some(kind), head.fin, head.payload);
        (self.key, self.phase, self.state) = (head.key.unwrap_or_default(), 0, State::Payload);
        *at += head.bytes;
        self.payload(input, at)
    }

    #[inline]
    fn payload<'a>(&mut self, input: &'a mut [u8], at: &mut usize) -> Result<Option<FrameEvent<'a>>, Error> {
        let Some(kind) = self.message else { return Err(self.fail(Problem::NoMessage)) };
        let there = input.get_mut(*at..).unwrap_or_default();
        let bytes = self.left.min(there.len() as u64) as usize;
        if bytes == 0 && self.left > 0 {
            return Ok(None);
        }
        let piece = there.get_mut(..bytes).unwrap_or_default();
        if self.role == Role::Server {
            self.phase = apply_mask(piece, self.key, self.phase);
        }
        let checked = kind == Kind::Text && !self.compressed;
        if checked && self.utf8.feed(piece).is_err() {
            return Err(self.fail(Problem::NotUtf8));
        }
        *at += bytes;
        self.left -= bytes as u64;
        let mut last = false;
        if self.left == 0 {
            self.state = State::Head;
            last = self.fin;
        }
        if last {
            if checked && !self.utf8.is_complete() {
                return Err(self.fail(Problem::NotUtf8));
            }
            self.message = None;
        }
        let first = std::mem::take(&mut self.first);
        Ok(Some(FrameEvent::Data { kind, bytes: piece, compressed: self.compressed, first, last }))
    }

    fn control<'a>(
        &mut self,
        head: Head,
        input: &'a mut [u8],
        at: &mut usize,
    ) -> Result<Option<FrameEvent<'a>>, Error> {
        if !head.fin {
            return Err(self.fail(Problem::FragmentedControl));
        }
        if head.payload > CONTROL_BYTES_MAX {
            return Err(self.fail(Problem::LongControl));
        }
        let from = *at + head.bytes;
        // At most 125.
        let to = from + head.payload as usize;
        let Some(payload) = input.get_mut(from..to) else { return Ok(None) };
        if let Some(key) = head.key {
            apply_mask(payload, key, 0);
        }
        *at = to;
        let payload = &*payload;
        match head.opcode {
            Opcode::Ping => return Ok(Some(FrameEvent::Ping(payload))),
            Opcode::Pong => return Ok(Some(FrameEvent::Pong(payload))),
            _ => {}
        }
        let close = match payload.split_first_chunk::<2>() {
            None if payload.is_empty() => None,
            None => return Err(self.fail(Problem::Close)),
            Some((code, reason)) => {
                let code = CloseCode::new(u16::from_be_bytes(*code));
                if !code.may_be_sent() {
                    return Err(self.fail(Problem::Close));
                }
                match str::from_utf8(reason) {
                    Ok(reason) => Some((code, reason)),
                    Err(_) => return Err(self.fail(Problem::NotUtf8)),
                }
            }
        };
        self.state = State::Closed;
        Ok(Some(FrameEvent::Close(close)))
    }
}

const FIN: u8 = 0x80;
const RSV1: u8 = 0x40;
const RESERVED: u8 = 0x70;
const MASK: u8 = 0x80;

/// A frame's head.
struct Head {
    fin: bool,
    reserved: u8,
    opcode: Opcode,
    payload: u64,
    key: Option<[u8; 4]>,
    /// Its own length.
    bytes: usize,
}

impl Head {
    /// Parses a head; `None` if it is incomplete.
    #[inline]
    fn parse(input: &[u8]) -> Result<Option<Head>, Problem> {
        let Some((&[first, second], mut rest)) = input.split_first_chunk::<2>() else { return Ok(None) };
        let opcode = match first & 0x0f {
            0 => Opcode::Continuation,
            1 => Opcode::Text,
            2 => Opcode::Binary,
            8 => Opcode::Close,
            9 => Opcode::Ping,
            10 => Opcode::Pong,
            _ => return Err(Problem::ReservedOpcode),
        };
        let (payload, extended) = match second & 0x7f {
            126 => {
                let Some((length, behind)) = rest.split_first_chunk::<2>() else { return Ok(None) };
                rest = behind;
                let length = u64::from(u16::from_be_bytes(*length));
                if length < 126 {
                    return Err(Problem::Length);
                }
                (length, 2)
            }
            127 => {
                let Some((length, behind)) = rest.split_first_chunk::<8>() else { return Ok(None) };
                rest = behind;
                let length = u64::from_be_bytes(*length);
                if length <= u64::from(u16::MAX) || length > i64::MAX as u64 {
                    return Err(Problem::Length);
                }
                (length, 8)
            }
            short => (u64::from(short), 0),
        };
        let key = if second & MASK == 0 {
            None
        } else {
            let Some((key, _)) = rest.split_first_chunk::<4>() else { return Ok(None) };
            Some(*key)
        };
        let bytes = 2 + extended + if key.is_some() { 4 } else { 0 };
        Ok(Some(Head { fin: first & FIN != 0, reserved: first & RESERVED, opcode, payload, key, bytes }))
    }
}

/// Writes the head of a frame with a payload of this many bytes, which must follow; masked with `mask` if
/// there is one. `compressed` sets the bit of permessage-deflate.
#[inline]
pub fn put_head(
    out: &mut Vec<u8>,
    opcode: Opcode,
    fin: bool,
    compressed: bool,
    payload_bytes: usize,
    mask: Option<[u8; 4]>,
) {
    let first = opcode.bits() | if fin { FIN } else { 0 } | if compressed { RSV1 } else { 0 };
    let masked = if mask.is_some() { MASK } else { 0 };
    match (u8::try_from(payload_bytes), u16::try_from(payload_bytes)) {
        (Ok(bytes @ ..=125), _) => out.extend_from_slice(&[first, masked | bytes]),
        (_, Ok(bytes)) => {
            let [high, low] = bytes.to_be_bytes();
            out.extend_from_slice(&[first, masked | 126, high, low]);
        }
        _ => {
            out.extend_from_slice(&[first, masked | 127]);
            out.extend_from_slice(&(payload_bytes as u64).to_be_bytes());
        }
    }
    if let Some(key) = mask {
        out.extend_from_slice(&key);
    }
}

/// Writes a complete frame, the only one of its message.
#[inline]
pub fn put_frame(out: &mut Vec<u8>, opcode: Opcode, payload: &[u8], mask: Option<[u8; 4]>) {
    put_frame_as(out, opcode, true, false, payload, mask);
}

/// Writes a frame.
#[inline]
pub fn put_frame_as(
    out: &mut Vec<u8>,
    opcode: Opcode,
    fin: bool,
    compressed: bool,
    payload: &[u8],
    mask: Option<[u8; 4]>,
) {
    out.reserve(payload.len() + HEAD_BYTES_MAX);
    put_head(out, opcode, fin, compressed, payload.len(), mask);
    let from = out.len();
    out.extend_from_slice(payload);
    if let (Some(key), Some(payload)) = (mask, out.get_mut(from..)) {
        apply_mask(payload, key, 0);
    }
}

/// Writes a close frame. With a code that must not be sent, the frame is empty. A reason is cut to 123 bytes,
/// between characters.
pub fn put_close(out: &mut Vec<u8>, code: CloseCode, reason: &str, mask: Option<[u8; 4]>) {
    let mut payload = Vec::with_capacity(125);
    if code.may_be_sent() {
        payload.extend_from_slice(&code.get().to_be_bytes());
        let end = cut_at(reason, 123);
        payload.extend_from_slice(reason.get(..end).unwrap_or_default().as_bytes());
    }
    put_frame(out, Opcode::Close, &payload, mask);
}

/// Returns the last character boundary of `text` at or before `most`.
fn cut_at(text: &str, most: usize) -> usize {
    let most = most.min(text.len());
    (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}
