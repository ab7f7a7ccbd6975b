//! Finds the ends of frames in bytes that are forwarded without parsing.

use super::HEAD_BYTES_MAX;

/// Finds the ends of frames in the bytes of one direction, which are only forwarded: a frame of this side's
/// own may be inserted between two of them.
///
/// It does not validate frames.
#[derive(Clone, Debug, Default)]
pub struct FrameEnds {
    /// The received part of a frame's head.
    head: [u8; HEAD_BYTES_MAX],
    have: usize,
    /// Bytes of the frame's payload that are left.
    left: u64,
    closed: bool,
}

impl FrameEnds {
    /// Makes the state of a connection that was just upgraded.
    pub fn new() -> FrameEnds {
        FrameEnds::default()
    }

    /// Returns whether the next byte begins a frame, and no close frame has passed, after which none may
    /// follow.
    pub fn is_between(&self) -> bool {
        self.have == 0 && self.left == 0 && !self.closed
    }

    /// Consumes bytes up to the first end of a frame, and returns their number. `None`: no frame ends in
    /// them, and all were consumed.
    pub fn next(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        loop {
            let rest = bytes.get(at..).unwrap_or_default();
            if self.left > 0 {
                let now = self.left.min(rest.len() as u64);
                self.left -= now;
                at += now as usize;
                return (self.left == 0).then_some(at);
            }
            let (byte, place) = (rest.first()?, self.head.get_mut(self.have)?);
            *place = *byte;
            self.have += 1;
            at += 1;
            if let Some(payload) = self.payload() {
                self.closed |= self.head[0] & 0x0f == 8;
                (self.have, self.left) = (0, payload);
                if payload == 0 {
                    return Some(at);
                }
            }
        }
    }

    /// Consumes all of the bytes.
    pub fn skip(&mut self, mut bytes: &[u8]) {
        while let Some(taken) = self.next(bytes) {
            bytes = bytes.get(taken..).unwrap_or_default();
        }
    }

    /// Returns the payload length in a complete head.
    fn payload(&self) -> Option<u64> {
        let head = self.head.get(..self.have)?;
        let (first, rest) = head.split_first_chunk::<2>()?;
        let key = if first[1] & 0x80 == 0 { 0 } else { 4 };
        let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let (length, payload) = match first[1] & 0x7f {
            126 => (2, number(rest.get(..2)?)),
            127 => (8, number(rest.get(..8)?)),
            payload => (0, u64::from(payload)),
        };
        (rest.len() == length + key).then_some(payload)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::{CloseCode, Opcode, put_close, put_frame};
    use super::*;

    #[test]
    fn frames_end_where_they_were_written_however_they_are_cut() {
        let mut bytes = Vec::new();
        let mut ends = Vec::new();
        for (size, mask) in
            [(0, None), (5, None), (125, Some([1, 2, 3, 4])), (126, None), (70_000, None), (0, Some([9; 4]))]
        {
            put_frame(&mut bytes, Opcode::Binary, &vec![0x88; size], mask);
            ends.push(bytes.len());
        }
        for step in [1, 2, 3, 7, 1000, bytes.len()] {
            let (mut found, mut frames, mut passed) = (Vec::new(), FrameEnds::new(), 0);
            for part in bytes.chunks(step) {
                let mut rest = part;
                while let Some(taken) = frames.next(rest) {
                    passed += taken;
                    rest = &rest[taken..];
                    found.push(passed);
                    assert!(frames.is_between());
                }
                passed += rest.len();
            }
            assert_eq!(found, ends, "{step}");
        }
    }

    #[test]
    fn nothing_goes_behind_a_close_frame() {
        let mut bytes = Vec::new();
        put_close(&mut bytes, CloseCode::NORMAL, "", None);
        let mut frames = FrameEnds::new();
        assert!(frames.is_between());
        frames.skip(&bytes);
        assert!(!frames.is_between());
    }
}
