//! The cost of a peer's frames: parses each frame header as its bytes pass, and keeps none.
//!
//! The budget is a token bucket ([`Misbehaviour`]). The meter also bounds two quantities before the decoder
//! works on them: the length of a header block, and the number of frames per turn, so that a connection with
//! many small frames gives way to others.

use super::frames::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, Header, SETTINGS, WINDOW_UPDATE, Walk,
};
use super::settings::Misbehaviour;

/// Maximum number of frames per turn. It also bounds the small DATA frames that wait for the tasks of their
/// streams.
const FRAMES_PER_TURN: u32 = 256;

/// Maximum number of CONTINUATION frames of one header block.
const CONTINUATIONS_MAX: u32 = 8;

/// Maximum size of one header block as it is sent, in bytes.
const BLOCK_BYTES_MAX: u32 = 64 * 1024;

/// Cost in thousandths of a token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost(i64);

impl Cost {
    pub(crate) const ONE: Cost = Cost(1000);
    const QUARTER: Cost = Cost(250);
}

const TOKEN: i64 = 1000;

/// Meters the frames of one peer.
#[derive(Debug)]
pub(crate) struct Meter {
    walk: Walk,
    /// Thousandths of a token.
    tokens: i64,
    rules: Misbehaviour,
    filled_at: u32,
    turn: u32,
    /// Number of CONTINUATION frames, and bytes, of the present header block.
    block: Option<(u32, u32)>,
    is_exhausted: bool,
    frames: u64,
}

impl Meter {
    /// Makes the meter of a connection that begins with the client's preface.
    pub(crate) fn new(rules: Misbehaviour, now: u32) -> Meter {
        Meter {
            walk: Walk::of_client(),
            tokens: i64::from(rules.burst) * TOKEN,
            rules,
            filled_at: now,
            turn: 0,
            block: None,
            is_exhausted: false,
            frames: 0,
        }
    }

    /// Begins a turn of the connection's task, in second `now`.
    pub(crate) fn begin_turn(&mut self, now: u32) {
        self.turn = 0;
        let passed = now.saturating_sub(self.filled_at);
        self.filled_at = now;
        self.refund(i64::from(passed) * i64::from(self.rules.per_second) * TOKEN);
    }

    /// Returns whether no more is read in this turn.
    pub(crate) fn is_turn_over(&self) -> bool {
        self.turn >= FRAMES_PER_TURN
    }

    /// Returns whether the peer has spent its budget.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }

    /// Returns the number of frames so far.
    pub(crate) fn frames(&self) -> u64 {
        self.frames
    }

    /// Returns whether a frame or a header block is incomplete.
    pub(crate) fn is_within(&self) -> bool {
        self.block.is_some() || !self.walk.is_between()
    }

    /// Charges a cost.
    pub(crate) fn charge(&mut self, cost: Cost) {
        self.tokens -= cost.0;
        self.is_exhausted |= self.tokens < 0;
    }

    fn refund(&mut self, tokens: i64) {
        self.tokens = (self.tokens + tokens).min(i64::from(self.rules.burst) * TOKEN);
    }

    /// Credits pieces of bodies that were sent to the peer. It may answer each with two window updates: of
    /// the stream and of the connection.
    pub(crate) fn earn_updates(&mut self, pieces: u32) {
        self.refund(i64::from(pieces) * 2 * Cost::QUARTER.0);
    }

    /// Credits bytes of bodies that were moved, and answered requests.
    pub(crate) fn earn(&mut self, bytes: u64, answered: u32) {
        let bytes = i64::try_from(bytes * 1000 / 1024).unwrap_or(i64::MAX / 2);
        self.refund(bytes.saturating_add(i64::from(answered) * TOKEN));
    }

    /// Meters received bytes. Returns how many of them the decoder may have now.
    pub(crate) fn pass(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let (used, header) = self.walk.step(rest);
            at += used;
            if let Some(header) = header {
                self.frame(header);
                if self.is_exhausted {
                    break;
                }
            }
            if self.is_turn_over() && self.walk.is_between() {
                break;
            }
        }
        at
    }

    /// Meters the beginning of a frame.
    fn frame(&mut self, Header { length, kind, flags, .. }: Header) {
        self.turn += 1;
        self.frames += 1;
        match kind {
            DATA if length == 0 && flags & END_STREAM == 0 => self.charge(Cost::ONE),
            DATA => self.earn(length.into(), 0),
            HEADERS => self.block = (flags & END_HEADERS == 0).then_some((0, length)),
            // The ACK of a PING costs one, since a server sends few PINGs.
            SETTINGS if flags & ACK != 0 => {}
            WINDOW_UPDATE => self.charge(Cost::QUARTER),
            CONTINUATION => {
                let (frames, bytes) = self.block.unwrap_or_default();
                let (frames, bytes) = (frames + 1, bytes.saturating_add(length));
                self.is_exhausted |= frames > CONTINUATIONS_MAX || bytes > BLOCK_BYTES_MAX;
                self.block = (flags & END_HEADERS == 0).then_some((frames, bytes));
            }
            // PRIORITY, RST_STREAM, SETTINGS, PING, PRIORITY_UPDATE, what no server expects, and unknown ones
            _ => self.charge(Cost::ONE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::h2::PREFACE;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let [_, high, middle, low] = (payload.len() as u32).to_be_bytes();
        [&[high, middle, low, kind, flags, 0, 0, 0, 1][..], payload].concat()
    }

    fn meter() -> Meter {
        let mut meter = Meter::new(Misbehaviour::default(), 0);
        assert_eq!(meter.pass(PREFACE), PREFACE.len());
        meter
    }

    /// Returns how many of these frames go through, with a turn for each.
    fn passed(meter: &mut Meter, frame: &[u8], of: usize) -> usize {
        (0..of)
            .take_while(|_| {
                meter.begin_turn(0);
                meter.pass(frame) == frame.len() && !meter.is_exhausted()
            })
            .count()
    }

    #[test]
    fn each_kind_of_cheap_frame_spends_the_budget() {
        let payload = [0; 8];
        for kind in [2, 3, 4, 5, 6, 7, 16, 200] {
            assert_eq!(passed(&mut meter(), &frame(kind, 0, &payload), 1000), 200, "kind {kind}");
        }
        assert_eq!(passed(&mut meter(), &frame(6, 1, &payload), 1000), 200);
        assert_eq!(passed(&mut meter(), &frame(8, 0, &[0; 4]), 2000), 800);
        assert_eq!(passed(&mut meter(), &frame(0, 0, &[]), 1000), 200);
    }

    #[test]
    fn acknowledged_settings_and_data_cost_nothing() {
        for ordinary in [frame(4, 1, &[]), frame(0, 0, &[0; 3]), frame(0, 1, &[])] {
            assert_eq!(passed(&mut meter(), &ordinary, 5000), 5000);
        }
    }

    #[test]
    fn bodies_and_answers_and_time_give_back() {
        let (mut meter, ping) = (meter(), frame(6, 0, &[0; 8]));
        assert_eq!(passed(&mut meter, &ping, 200), 200);
        meter.earn(3 * 1024, 2);
        assert_eq!(passed(&mut meter, &ping, 1000), 5);
        let mut meter = self::meter();
        assert_eq!(passed(&mut meter, &ping, 200), 200);
        meter.begin_turn(2);
        meter.filled_at = 0;
        assert_eq!(passed(&mut meter, &ping, 1000), 40);
        let mut meter = self::meter();
        assert_eq!(passed(&mut meter, &ping, 200), 200);
        meter.earn_updates(7);
        assert_eq!(passed(&mut meter, &frame(8, 0, &[0; 4]), 1000), 14);
    }

    #[test]
    fn a_header_block_has_so_many_continuations_and_bytes() {
        let mut meter = meter();
        meter.pass(&frame(1, 0, b"start"));
        assert!(meter.is_within());
        assert_eq!(passed(&mut meter, &frame(9, 0, b"x"), 100), 8);
        let mut meter = self::meter();
        meter.pass(&frame(1, 0, &[0; 16_000]));
        assert_eq!(passed(&mut meter, &frame(9, 0, &[0; 16_000]), 100), 3);
    }

    #[test]
    fn how_the_bytes_are_cut_changes_nothing() {
        let bytes =
            [PREFACE.to_vec(), frame(6, 0, &[0; 8]), frame(0, 0, &[0; 300]), frame(3, 0, &[0; 4])].concat();
        let mut whole = Meter::new(Misbehaviour::default(), 0);
        assert_eq!(whole.pass(&bytes), bytes.len());
        let mut cut = Meter::new(Misbehaviour::default(), 0);
        for byte in &bytes {
            assert_eq!(cut.pass(std::slice::from_ref(byte)), 1);
        }
        assert_eq!((whole.tokens, whole.turn, whole.is_within()), (cut.tokens, cut.turn, cut.is_within()));
        assert!(!whole.is_within());
    }

    #[test]
    fn a_turn_ends_after_so_many_frames() {
        let (mut meter, many) = (meter(), frame(0, 0, b"abc").repeat(1000));
        assert_eq!(meter.pass(&many), 256 * 12);
        assert!(meter.is_turn_over());
        meter.begin_turn(0);
        assert_eq!(meter.pass(&many[256 * 12..]), 256 * 12);
    }
}
