//! Descriptors, and the table that says what the engine knows of each.
//!
//! A descriptor is opaque outside the drivers: the kernel's number, a place in a driver's own table, or a number inside the
//! simulation. The table
//! entry names the slots in which its operations are, keeps what a dropped receive brought, and remembers what
//! a dropped send broke. An entry is given up when it is closed *and* nothing of it is with the kernel; only
//! then is the descriptor itself closed, so that its number cannot be reused under an operation in flight.

use crate::pool::{Lease, Tail};
use std::fmt;
use std::os::fd::{AsRawFd, OwnedFd};

/// A descriptor as a driver is told of it: its number (the kernel's, or the simulation's) and its place in the
/// engine's table, under which a driver may keep what it knows about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Below -1 it stands for a place in the driver's own table ([`Target::place`]): who takes that for a descriptor's number
    /// is told EBADF, and never meets somebody else's descriptor.
    pub(crate) number: i32,
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// What an operation works on.
#[derive(Debug)]
pub(crate) enum Descriptor {
    /// The kernel's. Dropping closes it.
    Os(OwnedFd),
    /// A place in the driver's own table, which holds the file. Only the driver can close it.
    Direct(u32),
    /// A number inside the simulation, which keeps a ledger of them.
    Sim(u32),
}

/// For a person.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place() {
            Some(place) => write!(f, "place {place}"),
            None => write!(f, "descriptor {}", self.number),
        }
    }
}

impl Target {
    /// Of what is in no table: the operations on files.
    pub(crate) const NONE: Target = Target { number: -1, index: NONE, generation: 0 };

    /// Its place in the driver's own table, if it has no descriptor.
    #[inline]
    pub(crate) fn place(self) -> Option<u32> {
        (self.number <= FIRST_PLACE).then(|| (FIRST_PLACE - self.number) as u32)
    }

    /// Whether it has such a place.
    #[inline]
    pub(crate) fn is_direct(self) -> bool {
        self.number <= FIRST_PLACE
    }
}

/// What a target has for a number at the first place; the next have those below. -1 is no number at all.
const FIRST_PLACE: i32 = -2;

impl Descriptor {
    /// The number a driver knows it by.
    #[inline]
    pub(crate) fn number(&self) -> i32 {
        match self {
            Descriptor::Os(fd) => fd.as_raw_fd(),
            Descriptor::Direct(place) => FIRST_PLACE - *place as i32,
            Descriptor::Sim(number) => *number as i32,
        }
    }
}

/// No slot.
pub(crate) const NONE: u32 = u32::MAX;

/// What is known of one descriptor.
#[derive(Debug)]
pub(crate) struct Entry {
    descriptor: Option<Descriptor>,
    generation: u32,
    /// The slot of its receive, or of its accept, or [`NONE`]. On a free entry: the next free one.
    pub(crate) receive: u32,
    /// The slot of its send or connect, or [`NONE`].
    pub(crate) send: u32,
    /// Operations of it that the driver or the kernel still holds.
    pub(crate) with_driver: u8,
    marks: u8,
    /// A negated errno that a dropped receive brought; the next receive gets it. 0: none.
    failed: i16,
    /// Bytes a dropped receive brought, or that did not fit; the next receive gets them first.
    pub(crate) kept: Option<Box<Tail>>,
}

/// What has happened to a descriptor for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Mark {
    /// Its owner is gone; it is closed when the driver holds nothing of it.
    Closing = 1,
    /// The peer has sent its end, and it was delivered.
    Ended = 2,
    /// A send was dropped midway: what the peer has is not what anybody meant to send.
    Broken = 4,
    /// Its standing operation was asked to stop, and is not armed again.
    Stopped = 8,
    /// Something came that nobody took, and nobody will: the peer is to be reset, not ended.
    Unread = 16,
    /// Whoever waits to send, behind a dropped send, is to be told that it was cancelled.
    SendCancelled = 32,
    /// Whoever waits to receive, behind a dropped receive, likewise.
    ReceiveCancelled = 64,
    /// It is going to another runtime: what its receive still brings goes along.
    Leaving = 128,
}

impl Entry {
    /// How a driver is told of it; `index` is its own.
    #[inline]
    pub(crate) fn target(&self, index: u32) -> Target {
        let number = self.descriptor.as_ref().map_or(-1, Descriptor::number);
        Target { number, index, generation: self.generation }
    }

    #[inline]
    pub(crate) fn is(&self, mark: Mark) -> bool {
        self.marks & mark as u8 != 0
    }

    #[inline]
    pub(crate) fn mark(&mut self, mark: Mark) {
        self.marks |= mark as u8;
    }

    /// Takes a mark off; whether it was there.
    #[inline]
    pub(crate) fn unmark(&mut self, mark: Mark) -> bool {
        let was = self.is(mark);
        self.marks &= !(mark as u8);
        was
    }

    /// Nothing is known that would keep a send from going out.
    #[inline]
    pub(crate) fn may_send(&self) -> bool {
        self.send == NONE && self.marks & (Mark::Broken as u8 | Mark::SendCancelled as u8) == 0
    }

    /// What it is, if it is open.
    pub(crate) fn descriptor(&self) -> Option<&Descriptor> {
        self.descriptor.as_ref()
    }

    /// Whether nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.receive == NONE && self.send == NONE && self.with_driver == 0
    }

    /// Whether nothing is under way and nothing is left over.
    pub(crate) fn is_untouched(&self) -> bool {
        self.is_idle() && self.marks == 0 && !self.has_left_something()
    }

    /// Received bytes for the next receive, behind what it has already.
    pub(crate) fn keep(&mut self, lease: Lease) {
        match &mut self.kept {
            Some(tail) => tail.bytes.extend_from_slice(&lease),
            none => *none = Some(lease.into_tail()),
        }
    }

    /// A dropped receive brought this negated errno.
    pub(crate) fn keep_error(&mut self, errno: i32) {
        // An errno is below 4096 (MAX_ERRNO).
        self.failed = errno as i16;
    }

    /// Gives the kept errno out, or 0.
    pub(crate) fn take_error(&mut self) -> i32 {
        std::mem::replace(&mut self.failed, 0).into()
    }

    /// The next receive is to look here first.
    #[inline]
    pub(crate) fn has_left_something(&self) -> bool {
        self.marks & (Mark::Ended as u8 | Mark::ReceiveCancelled as u8) != 0
            || self.failed != 0
            || self.kept.is_some()
    }
}

/// All descriptors of a runtime, found by index, the last freed reused first.
#[derive(Debug)]
pub(crate) struct Table {
    entries: Vec<Entry>,
    free: u32,
    open: usize,
}

impl Table {
    pub(crate) fn new() -> Table {
        Table { entries: Vec::new(), free: NONE, open: 0 }
    }

    /// How many descriptors are open.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// Takes a descriptor in.
    pub(crate) fn insert(&mut self, descriptor: Descriptor) -> Target {
        self.open += 1;
        let number = descriptor.number();
        let fresh = |generation| Entry {
            descriptor: Some(descriptor),
            generation,
            receive: NONE,
            send: NONE,
            with_driver: 0,
            marks: 0,
            failed: 0,
            kept: None,
        };
        let index = self.free;
        if let Some(entry) = self.entries.get_mut(index as usize) {
            self.free = entry.receive;
            *entry = fresh(entry.generation);
            return Target { number, index, generation: entry.generation };
        }
        // Fewer than descriptors, whose number is a positive i32.
        let index = self.entries.len() as u32;
        self.entries.push(fresh(0));
        Target { number, index, generation: 0 }
    }

    /// Has `work` make another descriptor of the open one at `index`, which keeps its entry.
    pub(crate) fn exchange<R>(
        &mut self,
        index: u32,
        work: impl FnOnce(Descriptor) -> (Descriptor, R),
    ) -> Option<R> {
        let entry = &mut self.entries[index as usize];
        let (descriptor, told) = work(entry.descriptor.take()?);
        entry.descriptor = Some(descriptor);
        Some(told)
    }

    /// The entry at `index`, which a live handle names.
    #[inline]
    pub(crate) fn entry(&mut self, index: u32) -> &mut Entry {
        &mut self.entries[index as usize]
    }

    /// How a driver is told of the entry at `index`.
    #[inline]
    pub(crate) fn target(&self, index: u32) -> Target {
        self.entries[index as usize].target(index)
    }

    /// Whether this is still the same life of the entry, and its owner is not gone.
    pub(crate) fn is_open(&self, target: Target) -> bool {
        self.entries.get(target.index as usize).is_some_and(|entry| {
            entry.generation == target.generation && entry.descriptor.is_some() && !entry.is(Mark::Closing)
        })
    }

    /// Whether this is still the same life of the entry, closing or not.
    pub(crate) fn is_current(&self, target: Target) -> bool {
        let entry = self.entries.get(target.index as usize);
        entry.is_some_and(|entry| entry.generation == target.generation && entry.descriptor.is_some())
    }

    /// Gives the entry up and the descriptor out, to be closed or handed on.
    pub(crate) fn remove(&mut self, index: u32) -> Option<Descriptor> {
        let free = self.free;
        let entry = &mut self.entries[index as usize];
        let descriptor = entry.descriptor.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        entry.kept = None;
        entry.receive = free;
        self.free = index;
        self.open -= 1;
        Some(descriptor)
    }

    /// Every index with an open descriptor.
    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> + '_ {
        self.entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.descriptor.is_some())
            .map(|(index, _)| index as u32)
    }
}

const _: () = assert!(size_of::<Entry>() == 32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_of_an_earlier_life_is_not_open() {
        let mut table = Table::new();
        let first = table.insert(Descriptor::Sim(7));
        assert!(table.is_open(first));
        assert!(matches!(table.remove(first.index), Some(Descriptor::Sim(7))));
        let second = table.insert(Descriptor::Sim(7));
        assert_eq!(second.index, first.index, "the place is reused");
        assert!(!table.is_open(first));
        assert!(table.is_open(second));
        assert_eq!(table.open(), 1);
    }

    #[test]
    fn a_place_is_no_number_of_a_descriptor_and_is_told_back() {
        let mut table = Table::new();
        for place in [0, 1, (1 << 20) - 1] {
            let on = table.insert(Descriptor::Direct(place));
            assert!(on.number < -1 && on.is_direct());
            assert_eq!((on.place(), on.to_string()), (Some(place), format!("place {place}")));
        }
        assert_eq!((Target::NONE.place(), table.insert(Descriptor::Sim(0)).place()), (None, None));
    }

    #[test]
    fn places_are_reused_the_last_freed_first() {
        let mut table = Table::new();
        let all: Vec<_> = (0..4).map(|number| table.insert(Descriptor::Sim(number))).collect();
        table.remove(all[1].index);
        table.remove(all[3].index);
        assert_eq!(table.insert(Descriptor::Sim(9)).index, 3);
        assert_eq!(table.insert(Descriptor::Sim(9)).index, 1);
        assert_eq!(table.insert(Descriptor::Sim(9)).index, 4);
    }
}
