//! A queue of operations that wait to be submitted, in order. Cancelling any of them costs one store.
//!
//! A cancelled entry stays in the queue and is stale: its ticket no longer matches the slot of its operation.
//! Stale entries are dropped when they reach either end of the queue.
//!
//! INVARIANT: no two entries of an operation have the same ticket (stale entries are purged when tickets wrap
//! around). An entry is live exactly while its operation's slot is `Place::Waiting` with the entry's ticket.
//! Only live entries leave the queue for submission, so the kernel never gets the memory of a cancelled
//! operation.

use super::{Hold, Place};
use crate::op::Token;
use std::collections::VecDeque;

/// A queue of operations: user_data, ticket, and content.
#[derive(Debug)]
pub(super) struct Line<T> {
    entries: VecDeque<(u64, u32, T)>,
}

/// Returns whether the operation still waits in this entry.
fn is_live(holds: &[Hold], bits: u64, ticket: u32) -> bool {
    let Token { index, generation } = Token::from_bits(bits & !super::TAG);
    holds
        .get(index as usize)
        .is_some_and(|hold| hold.generation == generation && hold.place == Place::Waiting(ticket))
}

impl<T> Line<T> {
    pub(super) fn new() -> Line<T> {
        Line { entries: VecDeque::new() }
    }

    /// Returns whether no operation waits. (Relies on [`trim`](Self::trim) after each cancel: then a queue
    /// that is not empty has a live entry.)
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Puts an operation at the end. Its slot is `Waiting` with this ticket.
    pub(super) fn push_back(&mut self, bits: u64, ticket: u32, what: T) {
        self.entries.push_back((bits, ticket, what));
    }

    /// Puts an operation back to the front.
    pub(super) fn push_front(&mut self, bits: u64, ticket: u32, what: T) {
        self.entries.push_front((bits, ticket, what));
    }

    /// Removes and returns the first live entry.
    pub(super) fn pop_front(&mut self, holds: &[Hold]) -> Option<(u64, u32, T)> {
        while let Some((bits, ticket, what)) = self.entries.pop_front() {
            if is_live(holds, bits, ticket) {
                return Some((bits, ticket, what));
            }
        }
        None
    }

    /// Drops stale entries from both ends. Called after an entry has become stale.
    pub(super) fn trim(&mut self, holds: &[Hold]) {
        while self.entries.front().is_some_and(|(bits, ticket, _)| !is_live(holds, *bits, *ticket)) {
            self.entries.pop_front();
        }
        while self.entries.back().is_some_and(|(bits, ticket, _)| !is_live(holds, *bits, *ticket)) {
            self.entries.pop_back();
        }
    }

    /// Drops every stale entry.
    pub(super) fn purge(&mut self, holds: &[Hold]) {
        self.entries.retain(|(bits, ticket, _)| is_live(holds, *bits, *ticket));
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }

    /// Returns the number of entries, stale ones included.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}
