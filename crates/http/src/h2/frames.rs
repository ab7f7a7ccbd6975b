//! Boundaries of frames (RFC 9113 §4.1), found as bytes pass; none are kept.

use super::PREFACE;

/// Frame types and flags that are evaluated (RFC 9113 §6).
pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const SETTINGS: u8 = 4;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;
pub(super) const END_STREAM: u8 = 0x1;
pub(super) const ACK: u8 = 0x1;
pub(super) const END_HEADERS: u8 = 0x4;

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Length of its payload in bytes.
    pub(super) length: u32,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

/// Position of the bytes within the frames.
#[derive(Debug)]
enum Place {
    Preface { seen: usize },
    Header { have: usize, bytes: [u8; 9] },
    Payload { left: u32 },
}

const START: Place = Place::Header { have: 0, bytes: [0; 9] };

/// Parses the frame headers of one direction.
#[derive(Debug)]
pub(super) struct Walk(Place);

impl Walk {
    /// Makes the parser for a server's frames.
    pub(super) fn of_server() -> Walk {
        Walk(START)
    }

    /// Makes the parser for a client's frames, which begin with the preface.
    pub(super) fn of_client() -> Walk {
        Walk(Place::Preface { seen: 0 })
    }

    /// Returns whether the last frame is complete and no other has begun.
    pub(super) fn is_between(&self) -> bool {
        matches!(self.0, Place::Header { have: 0, .. })
    }

    /// Advances to the end of the present header or payload, or of the bytes. Returns the number of bytes
    /// used, and the header if it is complete now.
    pub(super) fn step(&mut self, bytes: &[u8]) -> (usize, Option<Header>) {
        match &mut self.0 {
            Place::Preface { seen } => {
                let used = bytes.len().min(PREFACE.len() - *seen);
                *seen += used;
                if *seen == PREFACE.len() {
                    self.0 = START;
                }
                (used, None)
            }
            Place::Header { have, bytes: header } => {
                let before = *have;
                for (to, from) in header.iter_mut().skip(before).zip(bytes) {
                    *to = *from;
                    *have += 1;
                }
                let used = *have - before;
                if *have < header.len() {
                    return (used, None);
                }
                let [high, middle, low, kind, flags, stream @ ..] = *header;
                let length = u32::from_be_bytes([0, high, middle, low]);
                self.0 = if length == 0 { START } else { Place::Payload { left: length } };
                let stream = u32::from_be_bytes(stream) & 0x7fff_ffff;
                (used, Some(Header { length, kind, flags, stream }))
            }
            Place::Payload { left } => {
                let used = bytes.len().min(*left as usize);
                *left -= used as u32;
                if *left == 0 {
                    self.0 = START;
                }
                (used, None)
            }
        }
    }
}
