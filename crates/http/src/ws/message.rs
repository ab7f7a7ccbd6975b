//! Messages, and frames that several sessions send.

use super::keeper;
use crate::pool;
use ringroad_wire::ws::deflate::Agreed;
use ringroad_wire::ws::{Kind, Opcode, put_frame, put_frame_as};
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// A message: text or bytes.
#[derive(PartialEq, Eq)]
pub struct Message {
    kind: Kind,
    bytes: Vec<u8>,
}

impl Message {
    /// Makes a message of text.
    pub fn text(text: impl Into<String>) -> Message {
        Message { kind: Kind::Text, bytes: text.into().into_bytes() }
    }

    /// Makes a message of bytes.
    pub fn binary(bytes: impl Into<Vec<u8>>) -> Message {
        Message { kind: Kind::Binary, bytes: bytes.into() }
    }

    /// Returns a copy of received bytes, in memory of the worker's pool.
    #[inline]
    pub(super) fn received(kind: Kind, bytes: &[u8]) -> Message {
        let mut copy = pool::buffer();
        copy.extend_from_slice(bytes);
        Message { kind, bytes: copy }
    }

    /// Returns the kind of the message.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the text; `None` for bytes.
    pub fn as_text(&self) -> Option<&str> {
        match self.kind {
            Kind::Text => str::from_utf8(&self.bytes).ok(),
            Kind::Binary => None,
        }
    }

    /// Returns the bytes; for a text, its UTF-8.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the text; `None` for bytes.
    pub fn into_text(self) -> Option<String> {
        match self.kind {
            Kind::Text => String::from_utf8(self.into_bytes()).ok(),
            Kind::Binary => None,
        }
    }

    /// Returns the bytes; for a text, its UTF-8.
    pub fn into_bytes(mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        pool::give_buffer(std::mem::take(&mut self.bytes));
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.as_text() {
            Some(text) => write!(f, "Text({text:?})"),
            None => write!(f, "Binary({} bytes)", self.bytes.len()),
        }
    }
}

impl From<&str> for Message {
    fn from(text: &str) -> Message {
        Message::text(text)
    }
}

impl From<String> for Message {
    fn from(text: String) -> Message {
        Message::text(text)
    }
}

impl From<&[u8]> for Message {
    fn from(bytes: &[u8]) -> Message {
        Message::binary(bytes)
    }
}

impl From<Vec<u8>> for Message {
    fn from(bytes: Vec<u8>) -> Message {
        Message::binary(bytes)
    }
}

/// A message that is encoded once and sent by many sessions, on any worker. Clones share its bytes.
#[derive(Clone)]
pub struct Frame(Arc<Encoded>);

struct Encoded {
    kind: Kind,
    /// The whole frame, as a server sends it.
    plain: Arc<[u8]>,
    /// Where the payload begins.
    payload: usize,
    /// The compressed frame, once a session has needed it.
    packed: OnceLock<Arc<[u8]>>,
}

/// Minimum size of a payload that is compressed.
pub(super) const PACKED_BYTES_MIN: usize = 64;

impl Frame {
    /// Encodes a message.
    pub fn new(kind: Kind, payload: &[u8]) -> Frame {
        let mut out = Vec::with_capacity(payload.len() + 10);
        put_frame(&mut out, kind.into(), payload, None);
        let at = out.len() - payload.len();
        Frame(Arc::new(Encoded { kind, plain: out.into(), payload: at, packed: OnceLock::new() }))
    }

    /// Encodes a text.
    pub fn text(text: &str) -> Frame {
        Frame::new(Kind::Text, text.as_bytes())
    }

    /// Returns the kind of the message.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// Returns the payload.
    pub fn payload(&self) -> &[u8] {
        self.0.plain.get(self.0.payload..).unwrap_or_default()
    }

    /// Returns the bytes that a server sends to a client with these agreed extensions.
    pub(super) fn bytes(&self, agreed: Option<Agreed>) -> &Arc<[u8]> {
        match agreed {
            // A smaller window would need a separate encoding.
            Some(Agreed { window_bits: 15 }) if self.payload().len() >= PACKED_BYTES_MIN => {
                self.0.packed.get_or_init(|| {
                    let mut packed = Vec::new();
                    let agreed = Agreed { window_bits: 15 };
                    keeper::with_scratch(|scratch| {
                        scratch.deflater.deflate(agreed, self.payload(), &mut packed)
                    });
                    let mut out = Vec::with_capacity(packed.len() + 10);
                    put_frame_as(&mut out, Opcode::from(self.0.kind), true, true, &packed, None);
                    out.into()
                })
            }
            _ => &self.0.plain,
        }
    }
}

impl Deref for Frame {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.payload()
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame({:?}, {} bytes)", self.0.kind, self.payload().len())
    }
}
