//! goridge, the frames between RoadRunner's server and its workers, wire version 1.
//!
//! A frame has a head of [`HEAD_BYTES`] with a checksum, up to [`OPTIONS_MAX`] numbers, and a payload. All
//! numbers are little-endian. A request and its answer have one option: the length of the head at the
//! beginning of the payload; the body follows. Write frames with [`put`], read them with [`next`]. The
//! contents of the payload are left to the caller.

use std::fmt;

/// Bytes of a frame's head without options: version and words, flags, payload length, checksum, stream byte,
/// one reserved byte.
pub const HEAD_BYTES: usize = 12;
/// Maximum number of options of a frame.
pub const OPTIONS_MAX: usize = 10;

/// The payload is a command, not a request: the number of a process, or `{"stop":true}`.
pub const CONTROL: u8 = 0x01;
/// The head in the payload is JSON.
pub const JSON: u8 = 0x08;
/// The payload is the text of an error.
pub const ERROR: u8 = 0x40;
/// The head in the payload is a message of Protocol Buffers.
pub const PROTO: u8 = 0x80;

/// Another frame of the same answer follows.
pub const STREAM: u8 = 0x01;
/// The answer is no longer wanted.
pub const STOP: u8 = 0x02;
/// The worker asks whether the answer is still wanted.
pub const PING: u8 = 0x04;
/// The answer is still wanted.
pub const PONG: u8 = 0x08;

/// The wire version, in the high half of the first byte.
const VERSION: u8 = 1;
/// Words of four bytes in a head without options.
const HEAD_WORDS: u8 = 3;

/// A frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'b> {
    /// The kind of payload: [`CONTROL`], [`JSON`], [`ERROR`], [`PROTO`].
    pub flags: u8,
    /// The role in a stream: [`STREAM`], [`STOP`], [`PING`], [`PONG`].
    pub stream: u8,
    /// The first option: the length of the head in the payload. 0 without options.
    pub head_bytes: u32,
    /// Head and body.
    pub payload: &'b [u8],
}

impl<'b> Frame<'b> {
    /// Returns the head and the body; `None` if the head would be longer than the payload.
    pub fn split(&self) -> Option<(&'b [u8], &'b [u8])> {
        self.payload.split_at_checked(self.head_bytes as usize)
    }
}

/// Why bytes are not a frame. Nothing after them can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadFrame {
    /// Another wire version, or fewer words than a head has.
    Version(u8),
    /// More options than [`OPTIONS_MAX`].
    Options(u8),
    /// The checksum differs: other output was written between the frames.
    Checksum,
    /// The payload exceeds the limit.
    TooLong(u32),
}

impl fmt::Display for BadFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadFrame::Version(byte) => write!(f, "a frame of another version (first byte {byte:#04x})"),
            BadFrame::Options(count) => write!(f, "a frame with {count} options"),
            BadFrame::Checksum => f.write_str("a frame with a wrong checksum"),
            BadFrame::TooLong(bytes) => write!(f, "a frame of {bytes} bytes"),
        }
    }
}

impl std::error::Error for BadFrame {}

/// Returns the CRC-32 (IEEE 802.3) of the first bytes of a head. For six bytes a table does not pay off.
fn checksum(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 };
        }
    }
    !crc
}

/// Appends the head of a frame with a payload of `payload_bytes`, which the caller appends or sends after it.
/// `head_bytes` becomes its one option.
pub fn put_head(out: &mut Vec<u8>, flags: u8, stream: u8, head_bytes: Option<u32>, payload_bytes: u32) {
    let words = HEAD_WORDS + u8::from(head_bytes.is_some());
    let mut head = [VERSION << 4 | words, flags, 0, 0, 0, 0];
    if let Some(length) = head.last_chunk_mut() {
        *length = payload_bytes.to_le_bytes();
    }
    out.extend_from_slice(&head);
    out.extend_from_slice(&checksum(&head).to_le_bytes());
    out.extend_from_slice(&[stream, 0]);
    if let Some(option) = head_bytes {
        out.extend_from_slice(&option.to_le_bytes());
    }
}

/// Appends a frame without options.
pub fn put(out: &mut Vec<u8>, flags: u8, stream: u8, payload: &[u8]) {
    put_head(out, flags, stream, None, payload.len() as u32);
    out.extend_from_slice(payload);
}

/// Parses the frame at `at` of `bytes`, and advances `at` past it. `None` if it is incomplete.
///
/// # Errors
/// The bytes are not a frame, or its payload exceeds `payload_max` bytes.
pub fn next<'b>(bytes: &'b [u8], at: &mut usize, payload_max: u32) -> Result<Option<Frame<'b>>, BadFrame> {
    let Some(rest) = bytes.get(*at..) else { return Ok(None) };
    let Some(first) = rest.first() else { return Ok(None) };
    let words = first & 0x0f;
    if first >> 4 != VERSION || words < HEAD_WORDS {
        return Err(BadFrame::Version(*first));
    }
    let options = words - HEAD_WORDS;
    if usize::from(options) > OPTIONS_MAX {
        return Err(BadFrame::Options(options));
    }
    let Some((head, _)) = rest.split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
    let [_, flags, l0, l1, l2, l3, c0, c1, c2, c3, stream, _] = *head;
    let (checked, _) = head.split_at(6);
    if checksum(checked) != u32::from_le_bytes([c0, c1, c2, c3]) {
        return Err(BadFrame::Checksum);
    }
    let length = u32::from_le_bytes([l0, l1, l2, l3]);
    if length > payload_max {
        return Err(BadFrame::TooLong(length));
    }
    let begin = usize::from(words) * 4;
    let Some(end) = begin.checked_add(length as usize) else { return Err(BadFrame::TooLong(length)) };
    let (Some(all), Some(payload)) = (rest.get(..begin), rest.get(begin..end)) else { return Ok(None) };
    let option = all.get(HEAD_BYTES..).and_then(|options| options.first_chunk().copied());
    *at += end;
    Ok(Some(Frame { flags, stream, head_bytes: option.map_or(0, u32::from_le_bytes), payload }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits.chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
    }

    #[test]
    fn frames_have_the_bytes_that_workers_of_roadrunner_read_and_write() {
        let mut out = Vec::new();
        put(&mut out, CONTROL | JSON, 0, br#"{"pid":4242}"#);
        assert_eq!(out, [hex("1309 0c000000 5f0c4673 0000"), br#"{"pid":4242}"#.to_vec()].concat());
        out.clear();
        put(&mut out, CONTROL | JSON, 0, br#"{"stop":true}"#);
        assert_eq!(out, [hex("1309 0d000000 3a6bfacb 0000"), br#"{"stop":true}"#.to_vec()].concat());
        out.clear();
        put(&mut out, 0, STOP, b"");
        assert_eq!(out, hex("1300 00000000 96d18034 0200"));
        out.clear();
        put_head(&mut out, JSON, 0, Some(27), 29);
        out.extend_from_slice(br#"{"status":200,"headers":{}}OK"#);
        assert_eq!(&out[..16], hex("1408 1d000000 ad2586bb 0000 1b000000"));
        let frame = next(&out, &mut 0, 100).unwrap().unwrap();
        assert_eq!(frame.split().unwrap(), (&br#"{"status":200,"headers":{}}"#[..], &b"OK"[..]));
    }

    #[test]
    fn a_frame_is_read_when_its_last_byte_has_come_and_not_before() {
        let mut out = Vec::new();
        put_head(&mut out, JSON, STREAM, Some(2), 5);
        out.extend_from_slice(b"{}abc");
        put(&mut out, 0, PONG, b"");
        let first = out.len() - HEAD_BYTES;
        for cut in 0..first {
            assert_eq!(next(&out[..cut], &mut 0, 100), Ok(None), "{cut}");
        }
        let mut at = 0;
        let frame = next(&out, &mut at, 100).unwrap().unwrap();
        assert_eq!((frame.flags, frame.stream, frame.payload), (JSON, STREAM, &b"{}abc"[..]));
        assert_eq!(at, first);
        assert_eq!(next(&out, &mut at, 100).unwrap().unwrap().stream, PONG);
        assert_eq!(next(&out, &mut at, 100), Ok(None));
    }

    #[test]
    fn what_a_program_prints_between_frames_is_found_at_once() {
        assert_eq!(next(b"Could not open", &mut 0, 100), Err(BadFrame::Version(b'C')));
        assert_eq!(next(b"\x13hello, world", &mut 0, 100), Err(BadFrame::Checksum));
        assert_eq!(next(b"\x1f", &mut 0, 100), Err(BadFrame::Options(12)));
        let mut out = Vec::new();
        put_head(&mut out, 0, 0, None, 101);
        assert_eq!(next(&out, &mut 0, 100), Err(BadFrame::TooLong(101)));
        // A head that is longer than its payload.
        out.clear();
        put_head(&mut out, 0, 0, Some(9), 0);
        assert_eq!(next(&out, &mut 0, 100).unwrap().unwrap().split(), None);
    }
}
