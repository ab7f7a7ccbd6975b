//! One-shot operations: connect, and receive into memory of the caller.

use super::Io;
use crate::buf::{filled, spare_of};
use crate::caller::Caller;
use crate::descriptor::{Mark, NONE};
use crate::inflight::{Memory, State, op_of};
use crate::op::{Kind, Token};
use std::task::Poll;

/// A one-shot operation in a slot.
#[derive(Debug)]
pub(crate) enum OneShot {
    Fresh(Memory),
    InFlight(Token),
    Over(Memory),
}

impl Io {
    /// Ready with the kernel's result.
    pub(crate) fn poll_one_shot(
        &mut self,
        kind: Kind,
        index: u32,
        operation: &mut OneShot,
        caller: &Caller<'_>,
    ) -> Poll<i32> {
        if self.must_yield(caller) {
            if let OneShot::Fresh(memory) = operation {
                let memory = std::mem::replace(memory, Memory::None);
                let token = self.queue_one_shot(kind, index, memory);
                self.slots.awaits(token);
                *operation = OneShot::InFlight(token);
            }
            return Poll::Pending;
        }
        let on = self.table.target(index);
        let token = match operation {
            OneShot::Fresh(memory) => {
                loop {
                    match self.attempt(&op_of(kind, memory, 0, on, true)).map(|outcome| outcome.result) {
                        None => break,
                        Some(errno) if errno == -libc::EINTR => {}
                        Some(result) => {
                            *operation = OneShot::Over(std::mem::replace(memory, Memory::None));
                            return Poll::Ready(result);
                        }
                    }
                }
                let memory = std::mem::replace(memory, Memory::None);
                let token = self.queue_one_shot(kind, index, memory);
                self.submit(token, index);
                *operation = OneShot::InFlight(token);
                self.wait_for(token, caller);
                return Poll::Pending;
            }
            OneShot::InFlight(token) => *token,
            OneShot::Over(_) => unreachable!("polled after its end"),
        };
        let mut result = None;
        if self.slots.state(token) == State::Done {
            match self.slots.result(token) {
                errno if matches!(-errno, libc::EINTR | libc::EAGAIN) => {
                    if self.slots.is_cancel_asked(token) {
                        result = Some(-libc::ECANCELED);
                    } else {
                        self.slots.requeue(token);
                    }
                }
                other => result = Some(other),
            }
        }
        while result.is_none() && self.slots.state(token) == State::Queued {
            match self.driver.attempt(&self.slots.op(token, on)).map(|outcome| outcome.result) {
                None => self.submit_queued(token, index),
                Some(errno) if errno == -libc::EINTR => {}
                other => result = other,
            }
        }
        let Some(result) = result else {
            self.wait_for(token, caller);
            return Poll::Pending;
        };
        *Self::place(self.table.entry(index), kind) = NONE;
        self.trash.extend(self.slots.clear_waker(token));
        *operation = OneShot::Over(self.slots.release(token));
        Poll::Ready(result)
    }

    fn queue_one_shot(&mut self, kind: Kind, index: u32, mut memory: Memory) -> Token {
        if !kind.is_inward() && (!self.driver.sends_from_pool() || self.driver.pool().is_strained()) {
            memory.leave_pool();
        }
        let token = self.slots.insert(kind, index, memory, 0, self.now);
        *Self::place(self.table.entry(index), kind) = token.index;
        token
    }

    /// Receives into the caller's memory; ready with the number of appended bytes.
    pub(crate) fn poll_receive_into(
        &mut self,
        index: u32,
        operation: &mut OneShot,
        caller: &Caller<'_>,
    ) -> Poll<std::result::Result<usize, i32>> {
        if let OneShot::Fresh(Memory::Buf(buf)) = operation {
            let (start, room) = spare_of(buf);
            let entry = self.table.entry(index);
            let elsewhere = entry.receive != NONE || entry.has_left_something();
            if room == 0 {
                return Poll::Ready(Ok(0));
            }
            if elsewhere {
                // A standing receive is armed or has left bytes: copy from its lease.
                let mut lease = match self.poll_receive(index, caller) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(received) => received?,
                };
                let bytes = room.min(lease.len());
                // SAFETY: `room` bytes from `start` are the buffer's spare capacity, which no other code uses
                // and which does not overlap the lease; `bytes` of them are written here before they are
                // marked as filled.
                unsafe {
                    std::ptr::copy_nonoverlapping(lease.as_ptr(), start.as_ptr(), bytes);
                    filled(buf, bytes);
                }
                if bytes < lease.len() {
                    lease.advance(bytes);
                    self.table.entry(index).kept = Some(lease.into_tail());
                }
                return Poll::Ready(Ok(bytes));
            }
        }
        let result = match self.poll_one_shot(Kind::ReceiveInto, index, operation, caller) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(result) => result,
        };
        if result < 0 {
            return Poll::Ready(Err(result));
        }
        if result == 0 {
            self.table.entry(index).mark(Mark::Ended);
        }
        if let OneShot::Over(Memory::Buf(buf)) = operation {
            // SAFETY: the last completion reported that this many bytes were written into the spare capacity.
            unsafe { filled(buf, result as usize) };
        }
        Poll::Ready(Ok(result as usize))
    }

    /// Handles the drop of a one-shot operation's future.
    pub(crate) fn drop_one_shot(&mut self, index: u32, operation: &OneShot) {
        if let OneShot::InFlight(token) = operation {
            self.abandon(*token, index);
        }
    }
}
