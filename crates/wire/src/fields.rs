//! Header and trailer lines: the position of each name and value, found in one pass.
//!
//! A complete line is checked once. A fragmented head costs a second check of the line at which it stopped,
//! and one more pass at the end to fill the table.
//!
//! Start at [`lines`], the scanner; [`Fields`] is the public type.

use crate::encode::ReplyTo;
use crate::error::{Error, Problem};
use crate::limits::{ANSWER_HEAD_BYTES_MAX, FIELDS_MAX, Limits};
use crate::request_head::RequestMeta;
use crate::scan::{is_word, token_len, value_len};
use std::fmt;
use std::num::NonZeroU64;

/// Position of one header line in its head, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Offset of the line.
    name: u32,
    name_len: u16,
    /// Offset of the value from the beginning of the line, which fits 16 bits.
    value: u16,
    value_len: u16,
}

/// State that a worker keeps once for all its connections: the limits, the table of the present head's header
/// lines, and the last request head. An idle connection has none of it.
#[derive(Clone, Debug)]
pub struct Scratch {
    limits: Limits,
    slots: Slots,
    last: Last,
}

/// The request head that was read last, if it is short, with what was understood of it; its lines are in the
/// table.
///
/// INVARIANT: where `bytes` is not 0, the table is as reading `head[..bytes]` under these limits left it.
#[derive(Clone, Debug)]
struct Last {
    head: [u8; LAST_BYTES_MAX],
    bytes: u16,
    count: u8,
    meta: Option<RequestMeta>,
    /// What an answer to it has to observe, where the head is all there is to the request.
    plain: Option<ReplyTo>,
    /// Which of the heads it is that were ever kept here.
    stamp: u64,
}

/// Longer heads are not kept. Those of programs, which say the same again and again, are shorter.
const LAST_BYTES_MAX: usize = 512;

pub(crate) type Slots = [Slot; FIELDS_MAX];

impl Scratch {
    /// Makes a table under these limits.
    pub fn new(limits: Limits) -> Self {
        let last = Last { head: [0; LAST_BYTES_MAX], bytes: 0, count: 0, meta: None, plain: None, stamp: 0 };
        Scratch { limits, slots: [Slot::default(); FIELDS_MAX], last }
    }

    /// Holds everything that is read from now on to these limits.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
        // It was read under others. Its stamp is not used again.
        self.last.bytes = 0;
    }

    /// Returns the limits everything read with this table is held to.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the table, to be written: what it held is forgotten.
    #[inline]
    pub(crate) fn table(&mut self) -> (&Limits, &mut Slots) {
        self.last.bytes = 0;
        (&self.limits, &mut self.slots)
    }

    /// Returns what the head at the front of `bytes` means, if it is the last one again: what it means
    /// depends on its bytes and the limits and on nothing else, and a head ends where its own bytes say. With
    /// its length and its number of lines, which are in the table.
    #[inline]
    pub(crate) fn again(&self, bytes: &[u8]) -> Option<(RequestMeta, usize, u8)> {
        let last = &self.last;
        let head = last.head.get(..usize::from(last.bytes)).filter(|head| !head.is_empty())?;
        let meta = last.meta?;
        bytes.starts_with(head).then_some((meta, head.len(), last.count))
    }

    /// Returns the same for a request that is plain ([`RequestMeta::plain`]), with its length.
    #[inline]
    pub(crate) fn plain_again(&self, bytes: &[u8]) -> Option<(ReplyTo, usize)> {
        let last = &self.last;
        let head = last.head.get(..usize::from(last.bytes)).filter(|head| !head.is_empty())?;
        let reply = last.plain?;
        bytes.starts_with(head).then_some((reply, head.len()))
    }

    /// Keeps a head with its lines in the table.
    #[inline]
    pub(crate) fn keep(&mut self, head: &[u8], meta: RequestMeta, count: u8) {
        let last = &mut self.last;
        let Some(room) = last.head.get_mut(..head.len()) else { return };
        room.copy_from_slice(head);
        (last.bytes, last.meta, last.count) = (head.len() as u16, Some(meta), count);
        last.plain = meta.plain();
        last.stamp += 1;
    }

    /// Returns the [stamp](crate::RequestHead::stamp) of the head that was read last, if it is kept.
    #[inline]
    pub fn stamp(&self) -> Option<NonZeroU64> {
        if self.last.bytes == 0 { None } else { NonZeroU64::new(self.last.stamp) }
    }

    pub(crate) fn used(&self, count: u8) -> &[Slot] {
        self.slots.get(..usize::from(count)).unwrap_or_default()
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Scratch::new(Limits::default())
    }
}

/// Header or trailer lines, in the order they came.
#[derive(Clone, Copy, Default)]
pub struct Fields<'a> {
    bytes: &'a [u8],
    slots: &'a [Slot],
}

/// One header line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    /// The name as it was sent: a token, in any case.
    pub name: &'a [u8],
    /// The value without surrounding white space: no control characters except tabs; not necessarily UTF-8.
    pub value: &'a [u8],
}

impl<'a> Fields<'a> {
    /// Makes the lines at the positions of `slots` in `bytes`, for a caller that kept copies of
    /// [`Fields::slots`] and of the bytes. Slots of other bytes give other, possibly empty, names and values.
    pub fn new(bytes: &'a [u8], slots: &'a [Slot]) -> Self {
        Fields { bytes, slots }
    }

    /// Returns the number of lines.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns the positions, for keeping.
    pub fn slots(&self) -> &'a [Slot] {
        self.slots
    }

    /// Returns every line.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Field<'a>> + DoubleEndedIterator + use<'a> {
        let bytes = self.bytes;
        self.slots.iter().map(move |slot| slot.field(bytes))
    }

    /// Returns the value of the first line of this name, in any case.
    pub fn get(&self, name: &str) -> Option<&'a [u8]> {
        self.get_all(name).next()
    }

    /// Returns the values of all lines of this name, in any case. A list may be spread over several.
    pub fn get_all<'n>(&self, name: &'n str) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n> {
        let bytes = self.bytes;
        let same_length = move |slot: &&Slot| usize::from(slot.name_len) == name.len();
        let fields = self.slots.iter().filter(same_length).map(move |slot| slot.field(bytes));
        fields.filter(move |field| field.name.eq_ignore_ascii_case(name.as_bytes())).map(|field| field.value)
    }
}

impl fmt::Debug for Fields<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl fmt::Debug for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name.escape_ascii(), self.value.escape_ascii())
    }
}

impl Slot {
    /// Makes the slot of a line that begins at `name`, with `: ` after its name. Its end must be below
    /// HEAD_BYTES_MAX.
    pub(crate) fn at(name: usize, name_len: usize, value_len: usize) -> Slot {
        Slot {
            name: name as u32,
            name_len: name_len as u16,
            value: (name_len + 2) as u16,
            value_len: value_len as u16,
        }
    }

    /// Moves the slot when bytes before it change: `removed` were removed and `added` were added.
    pub(crate) fn shift(&mut self, removed: usize, added: usize) {
        self.name = (self.name as usize + added).saturating_sub(removed) as u32;
    }

    pub(crate) fn field(self, bytes: &[u8]) -> Field<'_> {
        let line = bytes.get(self.name as usize..).unwrap_or_default();
        let part = |from: u16, len: u16| {
            let from = usize::from(from);
            line.get(from..from + usize::from(len)).unwrap_or_default()
        };
        Field { name: part(0, self.name_len), value: part(self.value, self.value_len) }
    }
}

/// How many lines of a section have been checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Offset of the section.
    section: u16,
    /// Offset of the first line that is not known to be complete, in 24 bits, because every idle connection
    /// stores it. section <= line.
    line_low: u16,
    line_high: u8,
    /// Number of lines before it.
    pub(crate) count: u8,
}

// A head's length fits 24 bits.
const _: () = assert!(ANSWER_HEAD_BYTES_MAX < 1 << 24 && size_of::<Progress>() == 6);

impl Progress {
    /// Returns the progress before the first line of a section that begins at `start`; `None` if there is no
    /// room for a line.
    pub(crate) fn begin(start: usize) -> Option<Self> {
        let section = u16::try_from(start).ok()?;
        Some(Progress { section, line_low: section, line_high: 0, count: 0 })
    }

    /// The progress before the first line of a section at the beginning of its bytes.
    pub(crate) const START: Progress = Progress { section: 0, line_low: 0, line_high: 0, count: 0 };

    fn at(self, line: usize, count: u8) -> Progress {
        Progress { line_low: line as u16, line_high: (line >> 16) as u8, count, ..self }
    }

    /// Returns the progress before the line at `line`, the last one that was taken for complete.
    pub(crate) fn back_to(self, line: usize) -> Progress {
        self.at(line, self.count.saturating_sub(1))
    }

    /// Returns the offset of the first line that is not known to be complete.
    pub(crate) fn line(self) -> usize {
        usize::from(self.line_low) | usize::from(self.line_high) << 16
    }
}

/// Limits of a section, and the problems of exceeding them.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) section_bytes: u32,
    pub(crate) line_bytes: u16,
    /// Maximum offset of the last byte of a section, whatever the other limits are.
    pub(crate) end_max: usize,
    /// Whether a line may end with LF alone, and white space may precede its colon.
    pub(crate) tolerant: bool,
    pub(crate) fields: u8,
    pub(crate) section_too_long: Problem,
    pub(crate) line_too_long: Problem,
    pub(crate) too_many: Problem,
}

/// The lines at the front of a buffer.
#[derive(Clone, Copy)]
pub(crate) enum Lines {
    /// The complete section up to `end`, including its empty line.
    Whole { end: usize, count: u8 },
    /// An incomplete section.
    Partial(Progress),
}

/// Parses the lines at `from`, and calls `each` with the number, name and value of every line. Its result
/// decides whether the line is kept in `slots`.
///
/// For a prefix of `bytes` the result is either "more is needed" or the final result of the whole. Bytes are
/// checked from left to right, and a limit is exceeded at the byte that exceeds it, whether or not more bytes
/// follow. So fragmentation does not change the meaning of a message.
#[inline(always)]
pub(crate) fn lines(
    bytes: &[u8],
    from: Progress,
    bounds: &Bounds,
    slots: &mut Slots,
    mut each: impl FnMut(u8, &[u8], &[u8]) -> Result<bool, Error>,
) -> Result<Lines, Error> {
    // Every recorded offset is below this, so that it fits the slot.
    let section_end = (usize::from(from.section) + bounds.section_bytes as usize).min(bounds.end_max - 2);
    let fields_max = bounds.fields.min(FIELDS_MAX as u8);
    let mut at = from.line();
    let mut count = from.count;
    loop {
        let partial = Ok(Lines::Partial(from.at(at, count)));
        let Some(&first) = bytes.get(at) else { return partial };
        if first == b'\r' {
            return match bytes.get(at + 1) {
                Some(b'\n') => Ok(Lines::Whole { end: at + 2, count }),
                Some(&other) => Err(Error::at(Problem::LineEnd, other)),
                None => partial,
            };
        }
        if first == b'\n' && bounds.tolerant {
            return Ok(Lines::Whole { end: at + 1, count });
        }
        // A folded line does not count as a further one.
        if count == fields_max && !matches!(first, b' ' | b'\t') {
            return Err(Error::new(bounds.too_many, &[]));
        }
        // The CR of this line is at `cr_max` or before.
        let line_end = at + usize::from(bounds.line_bytes);
        let cr_max = line_end.min(section_end);
        let line = bytes.get(at..bytes.len().min(cr_max + 1)).unwrap_or_default();
        let ended = || {
            if bytes.len() <= cr_max {
                return partial;
            }
            let problem =
                if line_end <= section_end { bounds.line_too_long } else { bounds.section_too_long };
            Err(Error::new(problem, &[]))
        };

        let name_len = token_len(line);
        let mut colon_at = name_len;
        while bounds.tolerant && name_len > 0 && matches!(line.get(colon_at), Some(b' ' | b'\t')) {
            colon_at += 1;
        }
        let Some(&colon) = line.get(colon_at) else { return ended() };
        if colon != b':' || name_len == 0 {
            return Err(not_a_name(name_len, colon));
        }
        let mut value = colon_at + 1;
        while let Some(b' ' | b'\t') = line.get(value) {
            value += 1;
        }
        let mut value_end = value + value_len(line.get(value..).unwrap_or_default());
        let Some(&stop) = line.get(value_end) else { return ended() };
        let mut next = at + value_end + 2;
        if stop == b'\n' && bounds.tolerant {
            next -= 1;
        } else if stop != b'\r' {
            let problem = if stop == b'\n' { Problem::LineEnd } else { Problem::FieldValue };
            return Err(Error::at(problem, stop));
        }
        match bytes.get(next - 1) {
            Some(b'\n') => {}
            Some(&other) => return Err(Error::at(Problem::LineEnd, other)),
            None => return partial,
        }
        while let Some([.., b' ' | b'\t']) = line.get(value..value_end) {
            value_end -= 1;
        }

        if let Some(slot) = slots.get_mut(usize::from(count)) {
            *slot = Slot {
                name: at as u32,
                name_len: name_len as u16,
                value: value as u16,
                value_len: (value_end - value) as u16,
            };
        }
        let is_noted = each(
            count,
            line.get(..name_len).unwrap_or_default(),
            line.get(value..value_end).unwrap_or_default(),
        )?;
        count += u8::from(is_noted);
        at = next;
    }
}

#[cold]
fn not_a_name(name_len: usize, stop: u8) -> Error {
    let problem = match stop {
        b' ' | b'\t' if name_len == 0 => Problem::LeadingSpace,
        b'\n' => Problem::LineEnd,
        _ => Problem::FieldName,
    };
    Error::at(problem, stop)
}

/// Returns whether a comma-separated list contains `option` (given in lower case), in any case.
pub(crate) fn list_holds(list: &[u8], option: &[u8]) -> bool {
    list.split(|byte| *byte == b',').any(|element| is_word(element.trim_ascii(), option))
}
