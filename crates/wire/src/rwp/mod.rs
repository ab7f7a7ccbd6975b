//! RWP/1, the protocol between the server and application workers: frames as bytes, both directions.
//!
//! A link is a stream of frames. Each has a head of [`HEAD_BYTES`] and a payload of at most
//! [`PAYLOAD_BYTES_MAX`]. Stream 0 is the link itself; every other number is one request and its answer.
//! `docs/APP-PROTOCOL.md` describes each kind. Start at [`next`] and [`put`]. [`Answering`] checks the order
//! of a worker's frames on one stream. [`marshal`] writes request heads in the form that Python reads
//! fastest.

mod answer;
pub mod marshal;
mod task;

pub use answer::{Answer, Answering, Fault, HeadLines, MESSAGE_COST, message_cost};
pub use task::{ANY_SLOT, BadTaskFrame, FORGET, Outcome, TASK_SLOT, TaskFrame};

/// The version that this module implements.
pub const VERSION: u8 = 1;

/// Bytes of a frame's head: `u32` length, `u8` kind, `u8` flags, `u16` aux, `u32` stream, all little-endian.
pub const HEAD_BYTES: usize = 12;

/// Maximum bytes of a payload. A longer one means a broken link: the bytes were not a length.
pub const PAYLOAD_BYTES_MAX: usize = 16 << 20;

/// Body bytes that each side may send on a stream before it gets credit, unless WELCOME says otherwise.
pub const WINDOW_BYTES: u32 = 256 << 10;

/// Flag: the last frame of its side on this stream.
pub const END: u8 = 1;
/// Flag of RESPONSE: the body is a file, which the next frame (SENDFILE) names.
pub const FILE_FOLLOWS: u8 = 2;

/// Value of aux in STEP: the worker reads its control link during the step.
pub const READS: u16 = 1;

/// Value of aux in WS_DATA: the message is a text.
pub const TEXT: u16 = 1;
/// Value of aux in WS_DATA: the message is bytes.
pub const BINARY: u16 = 2;

/// The kind of a frame. Both sides skip unknown kinds, so that later versions can add some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind(pub u8);

#[allow(missing_docs, reason = "docs/APP-PROTOCOL.md describes each with its payload")]
impl Kind {
    pub const HELLO: Kind = Kind(1);
    pub const WELCOME: Kind = Kind(2);
    pub const READY: Kind = Kind(3);
    pub const PING: Kind = Kind(4);
    pub const PONG: Kind = Kind(5);
    pub const STOP: Kind = Kind(6);
    pub const DRAIN: Kind = Kind(7);
    pub const LOG: Kind = Kind(8);
    pub const LINK: Kind = Kind(9);
    pub const FORK: Kind = Kind(10);
    pub const LATE: Kind = Kind(11);
    pub const FAILED: Kind = Kind(12);
    pub const EXITED: Kind = Kind(13);
    pub const STEP: Kind = Kind(14);
    pub const PART: Kind = Kind(15);
    pub const REQUEST: Kind = Kind(16);
    pub const BODY: Kind = Kind(17);
    pub const CREDIT: Kind = Kind(18);
    pub const ABORT: Kind = Kind(19);
    pub const RESPONSE: Kind = Kind(20);
    pub const INFORMATIONAL: Kind = Kind(21);
    pub const TRAILERS: Kind = Kind(22);
    pub const SENDFILE: Kind = Kind(23);
    pub const RESET: Kind = Kind(24);
    pub const OPENED: Kind = Kind(25);
    pub const WS_OPEN: Kind = Kind(32);
    pub const WS_ACCEPT: Kind = Kind(33);
    pub const WS_DATA: Kind = Kind(34);
    pub const WS_CLOSE: Kind = Kind(35);
    pub const TASK_SUBMIT: Kind = Kind(48);
    pub const TASK: Kind = Kind(49);
    pub const TASK_DONE: Kind = Kind(50);
    pub const TASK_RESULT: Kind = Kind(51);
    pub const MESSAGE: Kind = Kind(52);
}

/// A frame, as a view of received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'b> {
    /// The kind.
    pub kind: Kind,
    /// [`END`], [`FILE_FOLLOWS`].
    pub flags: u8,
    /// A number; its meaning depends on the kind.
    pub aux: u16,
    /// The stream; 0 is the link itself.
    pub stream: u32,
    /// The payload.
    pub payload: &'b [u8],
}

impl Frame<'_> {
    /// Returns whether it is the last frame of its side on the stream.
    pub fn ends(&self) -> bool {
        self.flags & END != 0
    }
}

/// A length above [`PAYLOAD_BYTES_MAX`]: the two sides disagree about where frames begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong(pub u32);

impl std::fmt::Display for TooLong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a frame of {} bytes (at most {PAYLOAD_BYTES_MAX})", self.0)
    }
}

impl std::error::Error for TooLong {}

/// Returns the next complete frame at `at`, and advances `at` past it. `None`: more bytes are needed.
///
/// # Errors
/// The link is broken.
pub fn next<'b>(bytes: &'b [u8], at: &mut usize) -> Result<Option<Frame<'b>>, TooLong> {
    let rest = bytes.get(*at..).unwrap_or_default();
    let Some((head, rest)) = rest.split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
    let [l0, l1, l2, l3, kind, flags, a0, a1, s0, s1, s2, s3] = *head;
    let length = u32::from_le_bytes([l0, l1, l2, l3]);
    if length as usize > PAYLOAD_BYTES_MAX {
        return Err(TooLong(length));
    }
    let Some(payload) = rest.get(..length as usize) else { return Ok(None) };
    *at += HEAD_BYTES + payload.len();
    Ok(Some(Frame {
        kind: Kind(kind),
        flags,
        aux: u16::from_le_bytes([a0, a1]),
        stream: u32::from_le_bytes([s0, s1, s2, s3]),
        payload,
    }))
}

/// Returns how many bytes are missing until the first frame of `bytes` is complete; at least 1.
pub fn missing(bytes: &[u8]) -> usize {
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else { return HEAD_BYTES - bytes.len() };
    let [l0, l1, l2, l3, ..] = *head;
    (u32::from_le_bytes([l0, l1, l2, l3]) as usize).saturating_sub(rest.len()).max(1)
}

/// Appends a frame.
///
/// # Panics
/// The payload is longer than [`PAYLOAD_BYTES_MAX`], which is a bug of the caller.
pub fn put(out: &mut Vec<u8>, kind: Kind, flags: u8, aux: u16, stream: u32, payload: &[u8]) {
    let at = begin(out, kind, flags, aux, stream);
    out.extend_from_slice(payload);
    finish(out, at);
}

/// Begins a frame. Append its payload to `out`, then call [`finish`] with the returned position.
pub fn begin(out: &mut Vec<u8>, kind: Kind, flags: u8, aux: u16, stream: u32) -> usize {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&[kind.0, flags]);
    out.extend_from_slice(&aux.to_le_bytes());
    out.extend_from_slice(&stream.to_le_bytes());
    at
}

/// Writes the length of the frame that [`begin`] began at `at`.
///
/// # Panics
/// As [`put`].
pub fn finish(out: &mut [u8], at: usize) {
    let length = out.len() - at - HEAD_BYTES;
    assert!(length <= PAYLOAD_BYTES_MAX, "a payload of {length} bytes is cut by the caller");
    if let Some(place) = out.get_mut(at..at + 4) {
        place.copy_from_slice(&(length as u32).to_le_bytes());
    }
}

/// Returns a little-endian `u32` at the beginning of a payload, and the rest.
pub fn split_u32(payload: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = payload.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*number), rest))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_frame_is_read_as_it_was_written_however_it_is_cut() {
        let mut bytes = Vec::new();
        put(&mut bytes, Kind::BODY, END, 7, 5, b"hello");
        put(&mut bytes, Kind::CREDIT, 0, 0, 9, &1000_u32.to_le_bytes());
        for cut in 0..bytes.len() {
            let mut at = 0;
            let mut seen = 0;
            while let Some(frame) = next(&bytes[..cut], &mut at).unwrap() {
                assert_eq!(frame.stream, [5, 9][seen]);
                seen += 1;
            }
            assert_eq!(seen, usize::from(cut >= 17), "{cut}");
            assert!(missing(&bytes[at..cut]) <= bytes.len() - cut);
        }
        let mut at = 0;
        let first = next(&bytes, &mut at).unwrap().unwrap();
        assert_eq!(
            (first.kind, first.aux, first.payload, first.ends()),
            (Kind::BODY, 7, &b"hello"[..], true)
        );
        let second = next(&bytes, &mut at).unwrap().unwrap();
        assert_eq!(split_u32(second.payload).unwrap(), (1000, &b""[..]));
        assert_eq!(at, bytes.len());
    }

    #[test]
    fn a_length_that_is_none_breaks_the_link() {
        let bytes = [0xff; 12];
        assert_eq!(next(&bytes, &mut 0), Err(TooLong(u32::MAX)));
    }
}
