//! Whole messages: pieces joined, inflated and bounded.
//!
//! A message that arrives in one piece is shown where it lies. Otherwise its pieces are joined in memory of
//! the connection's own, which is given up with the message, so that a connection between messages holds
//! none.

use super::close::CloseCode;
use super::deflate::{Agreed, Deflater, Inflater};
use super::error::{Error, Problem};
use super::frame::{FrameEvent, Frames, Kind, Role};

/// How much a peer may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of a message, compressed and inflated: 1 MiB.
    pub message_bytes: u32,
    /// Most frames of a message: 1,024.
    pub fragments: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { message_bytes: 1 << 20, fragments: 1024 }
    }
}

/// What connections of a worker share: the compressor, and memory for a message while it is looked at.
#[derive(Debug, Default)]
pub struct Scratch {
    /// The worker's compressor.
    pub deflater: Deflater,
    inflater: Inflater,
    whole: Vec<u8>,
}

/// More memory than this is given up with the message.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// What was received.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A whole message.
    Message {
        /// Text was checked to be UTF-8.
        kind: Kind,
        /// What it says.
        bytes: &'a [u8],
    },
    /// A ping, to be answered with a pong of the same bytes.
    Ping(&'a [u8]),
    /// A pong: the answer to a ping, or sent without one.
    Pong(&'a [u8]),
    /// The peer closes; nothing after it is read. `None` if it sent no code.
    Close(Option<(CloseCode, &'a str)>),
}

/// Reads the messages of one connection.
#[derive(Debug)]
pub struct Messages {
    frames: Frames,
    limits: Limits,
    partial: Vec<u8>,
}

impl Messages {
    /// Makes the reader of a connection that was just upgraded; `role` is this side's.
    pub fn new(role: Role, limits: Limits) -> Messages {
        Messages { frames: Frames::new(role), limits, partial: Vec::new() }
    }

    /// Sets the agreed compression.
    #[must_use]
    pub fn deflate(mut self, agreed: Option<Agreed>) -> Messages {
        self.frames = self.frames.deflate(agreed.is_some());
        self
    }

    /// Returns whether the peer has closed.
    pub fn is_closed(&self) -> bool {
        self.frames.is_closed()
    }

    /// Returns the bytes held of an incomplete message.
    pub fn held(&self) -> usize {
        self.partial.len()
    }

    /// Returns the next event in `input` from `at` on, and advances `at` past the used bytes. `None` means
    /// that more bytes are needed; present the rest, at most 131 bytes, again with more bytes after it. Input
    /// is unmasked in place.
    ///
    /// # Errors
    /// The peer broke a rule or a limit. Each further call returns the error again.
    #[inline]
    pub fn next<'a>(
        &mut self,
        scratch: &'a mut Scratch,
        input: &'a mut [u8],
        at: &mut usize,
    ) -> Result<Option<Event<'a>>, Error> {
        let Limits { message_bytes, fragments } = self.limits;
        loop {
            let from = *at;
            let event = self.frames.next(input, at, message_bytes.into(), fragments)?;
            let (kind, bytes, compressed, last) = match event {
                None => return Ok(None),
                // Shown again below, for the borrow does not end here on the way that returns it.
                Some(FrameEvent::Data { bytes, kind, compressed, last, .. }) => {
                    (kind, bytes.len(), compressed, last)
                }
                Some(FrameEvent::Ping(bytes)) => {
                    let bytes = bytes.len();
                    return Ok(Some(Event::Ping(behind(input, *at, bytes))));
                }
                Some(FrameEvent::Pong(bytes)) => {
                    let bytes = bytes.len();
                    return Ok(Some(Event::Pong(behind(input, *at, bytes))));
                }
                Some(FrameEvent::Close(None)) => return Ok(Some(Event::Close(None))),
                Some(FrameEvent::Close(Some((code, reason)))) => {
                    let reason = reason.len();
                    let reason = str::from_utf8(behind(input, *at, reason)).unwrap_or_default();
                    return Ok(Some(Event::Close(Some((code, reason)))));
                }
            };
            debug_assert!(from <= *at);
            if last && !compressed && self.partial.is_empty() {
                return Ok(Some(Event::Message { kind, bytes: behind(input, *at, bytes) }));
            }
            if !last {
                self.partial.extend_from_slice(behind(input, *at, bytes));
                continue;
            }
            self.join(scratch, behind(input, *at, bytes), kind, compressed)?;
            return Ok(Some(Event::Message { kind, bytes: &scratch.whole }));
        }
    }

    /// Puts the message that ends with `end` together in `scratch`.
    fn join(&mut self, scratch: &mut Scratch, end: &[u8], kind: Kind, compressed: bool) -> Result<(), Error> {
        if scratch.whole.capacity() > KEPT_BYTES_MAX {
            scratch.whole = Vec::new();
        }
        scratch.whole.clear();
        let mut partial = std::mem::take(&mut self.partial);
        if !compressed {
            partial.extend_from_slice(end);
            scratch.whole = partial;
            return Ok(());
        }
        let packed = if partial.is_empty() {
            end
        } else {
            partial.extend_from_slice(end);
            &partial
        };
        scratch.inflater.inflate(packed, &mut scratch.whole, self.limits.message_bytes as usize)?;
        if kind == Kind::Text && str::from_utf8(&scratch.whole).is_err() {
            return Err(Error::new(Problem::NotUtf8));
        }
        Ok(())
    }
}

/// Returns the last `bytes` bytes of `input` before `at`.
#[inline]
fn behind(input: &[u8], at: usize, bytes: usize) -> &[u8] {
    input.get(at.saturating_sub(bytes)..at).unwrap_or_default()
}
