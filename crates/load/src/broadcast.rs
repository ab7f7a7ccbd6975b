//! Broadcast as a load: each message that one connection sends has to reach every connection.
//!
//! A message carries a [`Mark`]: when it was due, when it was sent, and its number. The mark is searched in
//! all that arrives, so the same code measures any server that passes letters and digits on unchanged, in
//! whatever envelope. Each arrival of a mark at a connection is a *delivery*, and counts as an answer: its
//! latency runs from the scheduled time of its message.
//!
//! How many deliveries are expected follows from the messages and the members. What does not come in time has
//! failed. A server may leave out the sender: if none of the senders got its own message, none is expected.
//!
//! Start at [`Broadcast`]; [`Fan`] is what all threads know together, [`Member`] what one connection knows.

use crate::error::Error;
use crate::websocket;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Where in the text of a message its mark goes.
pub const PLACE: &str = "{mark}";

/// The first letters of each mark. Those of the load follow, so that messages that a server has kept from
/// another load are passed over.
const BEGIN: &[u8; 2] = b"rr";
/// Letters and digits of the parts of a mark: the load, the number, the due time, the delay of the sending,
/// and the part of the delay that the client caused.
const PARTS: [usize; 5] = [4, 7, 10, 7, 7];
/// Bytes of a mark.
const MARK_BYTES: usize = BEGIN.len() + 4 + 7 + 10 + 7 + 7;
/// Five bits each; all of them come through JSON, forms and URLs unchanged.
const DIGITS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// How long after its last delivery a load that expects only those to the senders themselves goes on waiting.
const SENDERS: Duration = Duration::from_millis(500);

/// What is published, and what each connection sends first.
#[derive(Clone, Debug)]
pub struct Broadcast {
    before: Vec<u8>,
    after: Vec<u8>,
    join: Option<Vec<u8>>,
    /// Of this load.
    tag: u32,
}

impl Broadcast {
    /// Makes a broadcast of messages of this text, in which [`PLACE`] stands for the mark. With `join` each
    /// connection sends that first, as the subscription to a channel.
    ///
    /// # Errors
    /// The text has no place for a mark, or several; `join` is empty.
    pub fn new(text: &str, join: Option<&str>) -> Result<Broadcast, Error> {
        let refuse = |why: &str| Error::usage(format!("--broadcast: {why}"));
        let (before, after) = text.split_once(PLACE).ok_or_else(|| {
            refuse("the message needs {mark}, by which its deliveries are known (--body '{\"text\":\"{mark}\"}')")
        })?;
        if after.contains(PLACE) {
            return Err(refuse("the message has {mark} more than once"));
        }
        if join.is_some_and(str::is_empty) {
            return Err(refuse("--join is empty"));
        }
        Ok(Broadcast {
            before: before.into(),
            after: after.into(),
            join: join.map(|join| join.as_bytes().to_vec()),
            tag: fastrand::u32(0..1 << 20),
        })
    }

    /// Returns a text of this many bytes that is a mark and letters behind it; shorter than a mark it cannot
    /// be.
    pub fn padded(bytes: u32) -> String {
        let rest = (bytes as usize).saturating_sub(MARK_BYTES);
        PLACE.to_owned() + &String::from_utf8_lossy(&crate::plan::pattern(rest as u32))
    }

    /// Returns a message as it looks on its way: for its length, and for what depends on its form.
    pub fn sample(&self) -> Vec<u8> {
        let mut payload = Vec::new();
        self.payload(&Mark::default(), &mut payload);
        payload
    }

    fn payload(&self, mark: &Mark, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.before);
        mark.write(self.tag, out);
        out.extend_from_slice(&self.after);
    }

    /// Returns a message with this mark, as a frame.
    pub(crate) fn frame(&self, mark: &Mark) -> Vec<u8> {
        let mut payload = Vec::with_capacity(self.before.len() + MARK_BYTES + self.after.len());
        self.payload(mark, &mut payload);
        // A mark is in it, so it is not empty.
        websocket::frame(&payload).unwrap_or_default()
    }

    /// Returns what a connection sends first, as a frame.
    pub(crate) fn joining(&self) -> Option<Vec<u8>> {
        self.join.as_deref().and_then(|join| websocket::frame(join).ok())
    }
}

/// What a message says of itself. Times are nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Its number among all messages of the load.
    pub(crate) number: u64,
    /// When it was due, of the epoch.
    pub(crate) due: u64,
    /// When it was sent.
    pub(crate) sent: u64,
    /// The part of the delay between the two that the client caused.
    pub(crate) late: u64,
}

impl Mark {
    fn write(&self, tag: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(BEGIN);
        let lag = self.sent.saturating_sub(self.due);
        let values = [tag.into(), self.number, self.due, lag, self.late];
        for (value, digits) in values.into_iter().zip(PARTS) {
            // The numbers begin again after 2^35; a delay of more than 34 s is told as one of 34 s.
            let most = (1_u64 << (5 * digits)) - 1;
            let value = if digits == 7 && value > most { value.min(most) } else { value & most };
            for place in (0..digits).rev() {
                let digit = (value >> (5 * place)) & 31;
                out.push(DIGITS.get(digit as usize).copied().unwrap_or(b'a'));
            }
        }
    }

    /// Reads a mark of this load.
    fn read(tag: u32, bytes: &[u8]) -> Option<Mark> {
        let mut rest = bytes.strip_prefix(BEGIN)?;
        let mut values = [0_u64; PARTS.len()];
        for (value, digits) in values.iter_mut().zip(PARTS) {
            let (part, behind) = rest.split_at_checked(digits)?;
            for byte in part {
                let digit = match byte {
                    b'a'..=b'z' => byte - b'a',
                    b'2'..=b'7' => byte - b'2' + 26,
                    _ => return None,
                };
                *value = *value << 5 | u64::from(digit);
            }
            rest = behind;
        }
        let [of, number, due, lag, late] = values;
        (of == u64::from(tag)).then_some(Mark { number, due, sent: due + lag, late })
    }
}

/// How many numbers below the highest one a connection knows apart.
const KNOWN: u64 = 128;

/// What one connection knows of the broadcast.
#[derive(Default)]
pub(crate) struct Member {
    /// Bytes at the end of what came that may be the beginning of a mark.
    open: Vec<u8>,
    /// The highest number that came, and which of those below it came: bit N is the number that is N lower.
    highest: Option<u64>,
    known: u128,
    /// The number of the message it has sent last.
    pub(crate) own: Option<u64>,
    /// What is to be sent first has been sent.
    pub(crate) has_joined: bool,
}

impl Member {
    /// Takes payload of messages, wherever it is cut, and shows the marks in it.
    pub(crate) fn take(
        &mut self,
        broadcast: &Broadcast,
        bytes: &[u8],
        mut show: impl FnMut(&mut Member, Mark),
    ) {
        let mut joined = std::mem::take(&mut self.open);
        let mut rest = if joined.is_empty() {
            bytes
        } else {
            joined.extend_from_slice(bytes);
            joined.as_slice()
        };
        while let Some(at) = memchr::memmem::find(rest, BEGIN) {
            let from = rest.get(at..).unwrap_or_default();
            if from.len() < MARK_BYTES && may_become(broadcast.tag, from) {
                self.open = from.to_vec();
                return;
            }
            let used = match Mark::read(broadcast.tag, from) {
                Some(mark) => {
                    show(self, mark);
                    MARK_BYTES
                }
                None => 1,
            };
            rest = from.get(used..).unwrap_or_default();
        }
        // The first of the two letters may be the last byte.
        if rest.last() == BEGIN.first() {
            self.open = BEGIN.get(..1).unwrap_or_default().to_vec();
        }
    }

    /// Returns whether the message with this number has not come before. One that is more than [`KNOWN`]
    /// behind the highest is taken for new.
    pub(crate) fn is_new(&mut self, number: u64) -> bool {
        let Some(highest) = self.highest else {
            (self.highest, self.known) = (Some(number), 1);
            return true;
        };
        if number > highest {
            let ahead = number - highest;
            self.known = if ahead < KNOWN { self.known << ahead | 1 } else { 1 };
            self.highest = Some(number);
            return true;
        }
        let behind = highest - number;
        if behind >= KNOWN {
            return true;
        }
        let bit = 1 << behind;
        let is_new = self.known & bit == 0;
        self.known |= bit;
        is_new
    }
}

/// Returns whether these bytes, fewer than a mark has, may be the beginning of one of this load.
fn may_become(tag: u32, bytes: &[u8]) -> bool {
    let mut mark = Vec::with_capacity(MARK_BYTES);
    Mark::default().write(tag, &mut mark);
    let known = bytes.len().min(BEGIN.len() + 4);
    bytes.get(..known) == mark.get(..known) && bytes.iter().skip(known).all(|byte| DIGITS.contains(byte))
}

/// What all threads of a broadcast know together, of one load.
#[derive(Debug, Default)]
pub(crate) struct Fan {
    members: AtomicU64,
    /// When the measured time begins, of the epoch. A worker may get a message before it knows that the load
    /// has begun.
    window_ns: AtomicU64,
    /// The number of the next message.
    next: AtomicU64,
    published: AtomicU64,
    arrived: AtomicU64,
    own: AtomicU64,
    /// Threads that still publish.
    publishing: AtomicU32,
}

/// They are counters; no other memory is read because of their values. A stale value costs one turn.
const ORDER: Ordering = Ordering::Relaxed;

impl Fan {
    /// Begins a load on as many members, measured from `window_ns` of the epoch on. Numbers continue, so a
    /// delivery that is late is not taken for one of the new messages.
    pub(crate) fn begin(&self, members: u32, threads: u32, window_ns: u64) {
        self.window_ns.store(window_ns, ORDER);
        self.members.store(members.into(), ORDER);
        self.published.store(0, ORDER);
        self.arrived.store(0, ORDER);
        self.own.store(0, ORDER);
        self.publishing.store(threads, ORDER);
    }

    /// Ends the load: what comes now is too late to count.
    pub(crate) fn end(&self) {
        self.window_ns.store(u64::MAX, ORDER);
    }

    /// Returns when the measured time begins, nanoseconds of the epoch.
    pub(crate) fn window_ns(&self) -> u64 {
        self.window_ns.load(ORDER)
    }

    /// Returns the number of a message that is due at `due` and sent now.
    pub(crate) fn publish(&self, due: u64) -> u64 {
        self.published.fetch_add((due >= self.window_ns()).into(), ORDER);
        self.next.fetch_add(1, ORDER)
    }

    /// A sender has got its own message.
    pub(crate) fn came_back(&self) {
        self.own.fetch_add(1, ORDER);
    }

    /// So many deliveries more.
    pub(crate) fn arrived(&self, count: u64) {
        if count > 0 {
            self.arrived.fetch_add(count, ORDER);
        }
    }

    /// A thread has published all of its messages.
    pub(crate) fn ends(&self) {
        self.publishing.fetch_sub(1, ORDER);
    }

    /// Returns whether all that is expected has come, the last delivery so long ago.
    pub(crate) fn is_whole(&self, since: Duration) -> bool {
        if self.publishing.load(ORDER) > 0 {
            return false;
        }
        let told = self.told();
        let arrived = self.arrived.load(ORDER);
        // Until then those to the senders may only be slow.
        arrived >= told.published * told.members || arrived >= told.expected() && since >= SENDERS
    }

    /// Returns what is known so far.
    pub(crate) fn told(&self) -> Told {
        Told {
            members: self.members.load(ORDER),
            published: self.published.load(ORDER),
            own: self.own.load(ORDER),
            repeated: 0,
        }
    }
}

/// Totals of a broadcast. Messages that were due in the warm-up, and their deliveries, are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// Connections that there were when the load began.
    pub members: u64,
    /// Messages that were sent.
    pub published: u64,
    /// Senders that got their own message.
    pub own: u64,
    /// Deliveries of a message that the connection had got before.
    pub repeated: u64,
}

impl Told {
    /// Adds another's.
    pub fn add(&mut self, other: &Told) {
        self.members += other.members;
        self.published += other.published;
        self.own += other.own;
        self.repeated += other.repeated;
    }

    /// Connections that each message has to reach: without its sender, if no sender got its own.
    pub fn receivers(&self) -> u64 {
        self.members.saturating_sub(u64::from(self.own == 0))
    }

    /// Deliveries that are expected.
    pub fn expected(&self) -> u64 {
        self.published.saturating_mul(self.receivers())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const MARK: Mark = Mark { number: 77, due: 123_456_789_012, sent: 123_456_790_000, late: 5 };

    /// Returns the marks in these bytes, which come in pieces of `size`.
    fn marks(broadcast: &Broadcast, bytes: &[u8], size: usize) -> Vec<Mark> {
        let (mut member, mut all) = (Member::default(), Vec::new());
        bytes.chunks(size).for_each(|piece| member.take(broadcast, piece, |_, mark| all.push(mark)));
        all
    }

    #[test]
    fn a_mark_is_found_in_any_envelope_wherever_the_bytes_are_cut() {
        let broadcast = Broadcast::new("rr{mark}r", None).unwrap();
        let other = Broadcast { tag: broadcast.tag ^ 1, ..broadcast.clone() };
        let mut bytes = b"{\"r\":\"rrr".to_vec();
        let mut expected = Vec::new();
        for number in 0..3 {
            let mark = Mark { number, ..MARK };
            broadcast.payload(&mark, &mut bytes);
            expected.push(mark);
            // Of another load, and one that is not whole.
            other.payload(&MARK, &mut bytes);
            let whole = bytes.len();
            broadcast.payload(&MARK, &mut bytes);
            bytes.truncate(whole + 20);
            bytes.extend_from_slice(b"\"}{\"r\":\"");
        }
        for size in (1..=MARK_BYTES + 2).chain([bytes.len()]) {
            assert_eq!(marks(&broadcast, &bytes, size), expected, "pieces of {size}");
        }
    }

    #[test]
    fn a_delay_too_long_for_a_mark_is_told_as_the_longest() {
        let broadcast = Broadcast::new(PLACE, None).unwrap();
        let mut bytes = Vec::new();
        broadcast.payload(&Mark { sent: MARK.due + (1 << 40), late: 1 << 36, ..MARK }, &mut bytes);
        let longest = (1 << 35) - 1;
        let told = Mark { sent: MARK.due + longest, late: longest, ..MARK };
        assert_eq!((marks(&broadcast, &bytes, 7), bytes.len()), (vec![told], MARK_BYTES));
    }

    #[test]
    fn what_came_before_is_known_whatever_the_order_was() {
        let mut member = Member::default();
        let new: Vec<bool> =
            [5, 6, 5, 9, 7, 7, 8, 9, 300, 173, 173, 172, 172].map(|number| member.is_new(number)).into();
        let (yes, no) = (true, false);
        assert_eq!(new, [yes, yes, no, yes, yes, no, yes, no, yes, yes, no, yes, yes]);
    }

    #[test]
    fn a_message_without_a_place_for_its_mark_is_refused() {
        for (text, join, why) in [
            ("hello", None, "needs {mark}"),
            ("{mark}{mark}", None, "more than once"),
            ("{mark}", Some(""), "--join is empty"),
        ] {
            let told = Broadcast::new(text, join).unwrap_err();
            assert!(told.is_usage() && told.to_string().contains(why), "{told}");
        }
        for (bytes, long) in [(0, MARK_BYTES), (37, MARK_BYTES), (64, 64)] {
            assert_eq!(Broadcast::new(&Broadcast::padded(bytes), None).unwrap().sample().len(), long);
        }
    }

    #[test]
    fn senders_that_get_nothing_are_not_waited_for_without_end() {
        let fan = Fan::default();
        fan.begin(3, 2, 10);
        assert_eq!((fan.publish(10), fan.publish(9), fan.publish(11)), (0, 1, 2));
        fan.arrived(4);
        fan.ends();
        assert!(!fan.is_whole(SENDERS), "a thread still publishes");
        fan.ends();
        assert!(fan.is_whole(SENDERS) && !fan.is_whole(SENDERS / 2), "two each, without their senders");
        fan.came_back();
        assert!(!fan.is_whole(SENDERS), "a sender got its own, so all of them are expected");
        fan.arrived(2);
        assert!(fan.is_whole(Duration::ZERO));
        assert_eq!((fan.told().receivers(), fan.told().expected()), (3, 6));
    }
}
