//! Descriptors, and the table with the engine's state of each.
//!
//! A descriptor is opaque outside the drivers: the kernel's number, a place in a driver's own table, or a
//! number in the simulation. Its entry in the table names the slots of its operations, keeps the bytes of a
//! dropped receive, and records that a dropped send broke the stream. An entry is released when it is closed
//! *and* none of its operations is with the driver. Only then is the descriptor itself closed, so its number
//! cannot be reused under an operation in flight.

use crate::pool::{Lease, Tail};
use std::fmt;
use std::os::fd::{AsRawFd, OwnedFd};

/// A descriptor in the form that drivers get: its number (the kernel's or the simulation's), and its index
/// and generation in the engine's table. A driver may keep its own state under that index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Numbers below -1 stand for places in the table of direct connections ([`Target::place`]). A system
    /// call on such a number would fail with EBADF, and never reach another descriptor.
    pub(crate) number: i32,
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// A descriptor that operations work on.
#[derive(Debug)]
pub(crate) enum Descriptor {
    /// A descriptor of the kernel. Dropping closes it.
    Os(OwnedFd),
    /// A place in the table of direct connections. Only the driver can close it.
    Direct(u32),
    /// A duplicate of a file's descriptor, used only to wait for it. It shares the open file description with
    /// the file.
    Watched(OwnedFd),
    /// A number inside the simulation.
    Sim(u32),
}

/// Formats a target for messages and dumps.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place() {
            Some(place) => write!(f, "place {place}"),
            None => write!(f, "descriptor {}", self.number),
        }
    }
}

impl Target {
    /// The target of file operations, which have no entry in the table.
    pub(crate) const NONE: Target = Target { number: -1, index: NONE, generation: 0 };

    /// Returns the place of a direct connection.
    #[inline]
    pub(crate) fn place(self) -> Option<u32> {
        (self.number <= FIRST_PLACE).then(|| (FIRST_PLACE - self.number) as u32)
    }

    /// Returns whether this is a direct connection.
    #[inline]
    pub(crate) fn is_direct(self) -> bool {
        self.number <= FIRST_PLACE
    }
}

/// The number of the target with place 0; further places count down. (-1 means "no descriptor".)
const FIRST_PLACE: i32 = -2;

impl Descriptor {
    /// Returns the number that drivers use.
    #[inline]
    pub(crate) fn number(&self) -> i32 {
        match self {
            Descriptor::Os(fd) | Descriptor::Watched(fd) => fd.as_raw_fd(),
            Descriptor::Direct(place) => FIRST_PLACE - *place as i32,
            Descriptor::Sim(number) => *number as i32,
        }
    }
}

/// No slot, or no entry.
pub(crate) const NONE: u32 = u32::MAX;

/// The state of one descriptor.
#[derive(Debug)]
pub(crate) struct Entry {
    descriptor: Option<Descriptor>,
    generation: u32,
    /// Slot of the receive or accept, or [`NONE`]. In a free entry: the next free entry.
    pub(crate) receive: u32,
    /// Slot of the send or connect, or [`NONE`].
    pub(crate) send: u32,
    /// Number of its operations that the driver still has.
    pub(crate) with_driver: u8,
    marks: u8,
    /// Negated errno of a dropped receive, for the next receive. 0: none.
    failed: i16,
    /// Bytes of a dropped receive, or bytes that did not fit, for the next receive.
    pub(crate) kept: Option<Box<Tail>>,
}

/// Lasting facts about a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Mark {
    /// The owner has dropped it; it is closed when the driver has none of its operations.
    Closing = 1,
    /// The end of the peer's stream was delivered.
    Ended = 2,
    /// A send was dropped midway: an unknown part of it has reached the peer.
    Broken = 4,
    /// A stop of its standing operation was requested, so it is not armed again.
    Stopped = 8,
    /// Received data or connections will never be taken: the close sends a reset instead of the end of the
    /// stream.
    Unread = 16,
    /// A send queued behind a dropped send is to end with ECANCELED.
    SendCancelled = 32,
    /// A receive queued behind a dropped receive is to end with ECANCELED.
    ReceiveCancelled = 64,
    /// It moves to another runtime, with what its receive still returns.
    Leaving = 128,
}

impl Entry {
    /// Returns the target for drivers; `index` is the index of this entry.
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

    /// Removes a mark; returns whether it was set.
    #[inline]
    pub(crate) fn unmark(&mut self, mark: Mark) -> bool {
        let was = self.is(mark);
        self.marks &= !(mark as u8);
        was
    }

    /// Returns whether no recorded state prevents a send.
    #[inline]
    pub(crate) fn may_send(&self) -> bool {
        self.send == NONE && self.marks & (Mark::Broken as u8 | Mark::SendCancelled as u8) == 0
    }

    /// Returns the descriptor, if it is open.
    pub(crate) fn descriptor(&self) -> Option<&Descriptor> {
        self.descriptor.as_ref()
    }

    /// Returns whether no operation is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.receive == NONE && self.send == NONE && self.with_driver == 0
    }

    /// Returns whether no operation is in flight and no result is kept.
    pub(crate) fn is_untouched(&self) -> bool {
        self.is_idle() && self.marks == 0 && !self.has_left_something()
    }

    /// Keeps received bytes for the next receive, after those kept already.
    pub(crate) fn keep(&mut self, lease: Lease) {
        match &mut self.kept {
            Some(tail) => tail.bytes.extend_from_slice(&lease),
            none => *none = Some(lease.into_tail()),
        }
    }

    /// Keeps the negated errno of a dropped receive.
    pub(crate) fn keep_error(&mut self, errno: i32) {
        // An errno is below 4096 (MAX_ERRNO).
        self.failed = errno as i16;
    }

    /// Returns the kept errno, or 0.
    pub(crate) fn failed(&self) -> i32 {
        self.failed.into()
    }

    /// Takes the kept errno, or 0.
    pub(crate) fn take_error(&mut self) -> i32 {
        std::mem::replace(&mut self.failed, 0).into()
    }

    /// Returns whether bytes or an errno are kept for the next receive.
    #[inline]
    pub(crate) fn has_left_something(&self) -> bool {
        self.marks & (Mark::Ended as u8 | Mark::ReceiveCancelled as u8) != 0
            || self.failed != 0
            || self.kept.is_some()
    }
}

/// All descriptors of a runtime, by index. The last freed index is reused first.
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

    /// Returns the number of open descriptors.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// Adds a descriptor.
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
        // There are fewer entries than descriptor numbers, which are positive i32.
        let index = self.entries.len() as u32;
        self.entries.push(fresh(0));
        Target { number, index, generation: 0 }
    }

    /// Replaces the open descriptor at `index` by what `work` makes of it. The entry stays.
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

    /// Returns the entry at `index`; a live handle names it.
    #[inline]
    pub(crate) fn entry(&mut self, index: u32) -> &mut Entry {
        &mut self.entries[index as usize]
    }

    /// Returns the target of the entry at `index`.
    #[inline]
    pub(crate) fn target(&self, index: u32) -> Target {
        self.entries[index as usize].target(index)
    }

    /// Returns whether the generation is current and the owner has not dropped it.
    pub(crate) fn is_open(&self, target: Target) -> bool {
        self.entries.get(target.index as usize).is_some_and(|entry| {
            entry.generation == target.generation && entry.descriptor.is_some() && !entry.is(Mark::Closing)
        })
    }

    /// Returns whether the generation is current, closing or not.
    pub(crate) fn is_current(&self, target: Target) -> bool {
        let entry = self.entries.get(target.index as usize);
        entry.is_some_and(|entry| entry.generation == target.generation && entry.descriptor.is_some())
    }

    /// Frees the entry and returns the descriptor, to be closed or moved.
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

    /// Returns every index with an open descriptor.
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
    fn a_target_of_an_earlier_generation_is_not_open() {
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
    fn a_place_is_not_a_descriptor_number_and_can_be_read_back() {
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
