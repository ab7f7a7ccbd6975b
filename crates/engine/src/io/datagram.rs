//! Datagrams: one-shot operations that each transfer one whole datagram or none.
//!
//! A dropped send breaks nothing: the peer has got the datagram or not. If a dropped receive completes with a
//! datagram, it is kept for the next receive. At most one is kept: the next receive waits for the end of the
//! dropped one, and takes the kept datagram before it asks the driver.

use super::{Io, OneShot};
use crate::caller::Caller;
use crate::descriptor::{Mark, NONE};
use crate::inflight::{Memory, Message, State};
use crate::op::Kind;
use std::task::Poll;

/// A datagram that no receive has taken.
#[derive(Debug)]
pub(super) struct Kept {
    message: Box<Message>,
    /// Offset of the datagram in its buffer.
    start: usize,
    /// Its whole length, including bytes that did not fit.
    length: usize,
}

impl Io {
    /// Receives one datagram; returns its whole length, and how many of its bytes were appended to the
    /// buffer.
    pub(crate) fn poll_receive_message(
        &mut self,
        index: u32,
        operation: &mut OneShot,
        caller: &Caller<'_>,
    ) -> Poll<std::result::Result<(usize, usize), i32>> {
        if let OneShot::Fresh(Memory::Message(message)) = operation {
            let entry = self.table.entry(index);
            if entry.is(Mark::ReceiveCancelled) {
                self.leave_standing(index);
                return Poll::Ready(Err(-libc::ECANCELED));
            }
            if !self.datagrams.is_empty()
                && let Some(Kept { message: kept, start, length }) = self.datagrams.remove(&index)
            {
                return Poll::Ready(Ok((length, message.receive_from(&kept, start))));
            }
            match self.table.entry(index).take_error() {
                0 => {}
                errno => return Poll::Ready(Err(errno)),
            }
            if !self.has_room(index, Kind::ReceiveMessage, caller) {
                return Poll::Pending;
            }
        }
        let result = match self.poll_one_shot(Kind::ReceiveMessage, index, operation, caller) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(result) => result,
        };
        let Ok(length) = usize::try_from(result) else { return Poll::Ready(Err(result)) };
        let OneShot::Over(Memory::Message(message)) = operation else {
            unreachable!("a receive of a datagram ends with its message")
        };
        // SAFETY: the driver said so, with the last completion of a receive into this message.
        Poll::Ready(Ok((length, unsafe { message.received(length) })))
    }

    /// Sends one datagram with an operation of this kind; returns its length.
    pub(crate) fn poll_send_message(
        &mut self,
        kind: Kind,
        index: u32,
        operation: &mut OneShot,
        caller: &Caller<'_>,
    ) -> Poll<std::result::Result<usize, i32>> {
        if let OneShot::Fresh(_) = operation {
            if self.table.entry(index).is(Mark::SendCancelled) {
                self.leave_send(index);
                return Poll::Ready(Err(-libc::ECANCELED));
            }
            if !self.has_room(index, kind, caller) {
                return Poll::Pending;
            }
        }
        let polled = self.poll_one_shot(kind, index, operation, caller);
        polled.map(|result| usize::try_from(result).map_err(|_| result))
    }

    /// Returns whether no earlier operation blocks this direction. Otherwise its end wakes the caller.
    fn has_room(&mut self, index: u32, kind: Kind, caller: &Caller<'_>) -> bool {
        let slot = *Self::place(self.table.entry(index), kind);
        if slot == NONE {
            return true;
        }
        let token = self.slots.token(slot);
        match self.slots.state(token) {
            // A dropped operation that is still in flight.
            State::Orphaned => self.wait_for(token, caller),
            _ => self.drop_forgotten(token, index, caller),
        }
        false
    }

    /// Returns whether a dropped receive has left a datagram.
    pub(crate) fn keeps_datagram(&self, index: u32) -> bool {
        self.datagrams.contains_key(&index)
    }

    /// Handles the end of a dropped receive.
    pub(super) fn dispose_message(&mut self, index: u32, result: i32, memory: Memory) {
        match (usize::try_from(result), memory) {
            (Ok(length), Memory::Message(mut message)) => {
                let start = message.buf.bytes().len();
                // SAFETY: the driver said so, with the last completion of a receive into this message.
                unsafe { message.received(length) };
                self.datagrams.insert(index, Kept { message, start, length });
            }
            _ if !matches!(-result, libc::ECANCELED | libc::EINTR | libc::EAGAIN) => {
                self.table.entry(index).keep_error(result);
            }
            _ => {}
        }
    }
}
