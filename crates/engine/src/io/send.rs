//! Sends: attempted first, and given a slot only if they have to wait.

use super::{Io, weight};
use crate::caller::Caller;
use crate::descriptor::{Mark, NONE};
use crate::driver::uring::BULK_BYTES_MIN;
use crate::inflight::{Memory, State, op_of};
use crate::op::{Kind, Span, Token};
use std::task::Poll;

/// A send. It owns the memory unless a slot does.
#[derive(Debug)]
pub(crate) struct Sending {
    memory: Memory,
    stage: Stage,
    /// Bytes sent before it had a slot.
    done: u32,
}

/// Maximum length of one send in bytes: progress is counted in 32 bits.
pub(crate) const BYTES_MAX: usize = u32::MAX as usize;

/// Stage of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Not submitted yet.
    Fresh,
    InFlight(Token),
    Over,
}

impl Sending {
    #[inline]
    pub(crate) fn new(memory: Memory) -> Sending {
        Sending { memory, stage: Stage::Fresh, done: 0 }
    }

    /// Returns a send that continues at `from` and may be partial.
    pub(crate) fn starting_at(memory: Memory, from: usize) -> Sending {
        let done = u32::try_from(from).unwrap_or(u32::MAX);
        Sending { memory, stage: Stage::Fresh, done }
    }

    /// Returns its kind, while it owns its memory. (Not a field, to keep the tasks that send small.)
    fn kind(&self) -> Kind {
        match self.memory {
            Memory::Vectors(_) => Kind::SendVectored,
            Memory::File(_) => Kind::SendFile,
            _ => Kind::Send,
        }
    }

    /// Returns whether its result is known and it owns its memory again.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Ends a send that was not submitted.
    #[inline]
    pub(crate) fn end(&mut self) {
        self.stage = Stage::Over;
    }

    /// Returns the memory of a send that has ended.
    #[inline]
    pub(crate) fn take_memory(&mut self) -> Memory {
        std::mem::replace(&mut self.memory, Memory::None)
    }
}

impl Io {
    /// Sends as much of `bytes` as possible now, on drivers that attempt sends. `None`: nothing was sent; an
    /// awaited send returns the reason.
    #[inline]
    pub(crate) fn try_send(&mut self, index: u32, bytes: &[u8]) -> Option<usize> {
        let entry = self.table.entry(index);
        let may = self.tries && self.answers_left > 0 && entry.may_send();
        if !may || !(1..=BYTES_MAX).contains(&bytes.len()) {
            return None;
        }
        // The bytes are read during the attempt only, and never written.
        let span = Span { start: bytes.as_ptr().cast_mut(), bytes: bytes.len() };
        let sent = self.driver.attempt_send(entry.target(index), span)?;
        self.counters.answered_at_once += 1;
        self.answers_left -= 1;
        (sent > 0).then_some(sent as usize)
    }

    /// Sends all bytes, or without `all` as many as possible. Ready with the total number of bytes sent, or a
    /// negated errno; then `sending` has ended.
    #[inline]
    pub(crate) fn poll_send(
        &mut self,
        index: u32,
        sending: &mut Sending,
        all: bool,
        caller: &Caller<'_>,
    ) -> Poll<std::result::Result<u32, i32>> {
        if self.must_yield(caller) {
            self.set_send_aside(index, sending, all);
            return Poll::Pending;
        }
        let entry = self.table.entry(index);
        // The common case: one attempt sends everything.
        if self.tries
            && sending.stage == Stage::Fresh
            && sending.done == 0
            && let Memory::Buf(buf) = &sending.memory
            && entry.may_send()
        {
            let bytes = buf.span_after(0);
            if (1..=BYTES_MAX).contains(&bytes.bytes)
                && let Some(sent) = self.driver.attempt_send(entry.target(index), bytes)
            {
                self.counters.answered_at_once += 1;
                self.answers_left = self.answers_left.saturating_sub(1 + weight(sent.max(0) as usize));
                if sent >= 0 && (!all || sent as usize >= bytes.bytes) {
                    sending.end();
                    return Poll::Ready(Ok(sent as u32));
                }
                if sent >= 0 {
                    sending.done = sent as u32;
                } else if sent != -libc::EINTR {
                    sending.end();
                    return Poll::Ready(Err(sent));
                }
            }
        }
        self.poll_send_slowly(index, sending, all, caller)
    }

    /// Returns the general case of [`Io::poll_send`].
    fn poll_send_slowly(
        &mut self,
        index: u32,
        sending: &mut Sending,
        all: bool,
        caller: &Caller<'_>,
    ) -> Poll<std::result::Result<u32, i32>> {
        match sending.stage {
            Stage::Fresh => {}
            Stage::InFlight(token) => return self.poll_sending(index, sending, token, all, caller),
            Stage::Over => unreachable!("a send is polled after its end"),
        }
        let entry = self.table.entry(index);
        if entry.is(Mark::Broken) {
            sending.end();
            return Poll::Ready(Err(-libc::EPIPE));
        }
        if entry.unmark(Mark::SendCancelled) {
            self.leave_send(index);
            sending.end();
            return Poll::Ready(Err(-libc::ECANCELED));
        }
        if entry.send != NONE {
            let token = self.slots.token(entry.send);
            match self.slots.state(token) {
                // A dropped send is still in flight: later bytes must not overtake it.
                State::Orphaned => self.wait_for(token, caller),
                _ => self.drop_forgotten(token, index, caller),
            }
            return Poll::Pending;
        }
        let kind = sending.kind();
        let Sending { memory, done, .. } = sending;
        let total = memory.bytes();
        if total <= *done as usize {
            let done = *done;
            sending.end();
            return Poll::Ready(Ok(done));
        }
        if total > BYTES_MAX && (all || *done > 0) {
            sending.end();
            return Poll::Ready(Err(-libc::EMSGSIZE));
        }
        // Sends of files and large buffers are attempted on every driver.
        if self.tries
            || kind == Kind::SendFile
            || (kind == Kind::Send && total - *done as usize >= BULK_BYTES_MIN)
        {
            let on = entry.target(index);
            loop {
                match self
                    .attempt(&op_of(kind, memory, *done as usize, on, all))
                    .map(|outcome| outcome.result)
                {
                    None => break,
                    Some(sent) if sent >= 0 => {
                        *done += sent as u32;
                        self.answers_left = self.answers_left.saturating_sub(weight(sent as usize));
                        if !all || *done as usize >= total {
                            let done = *done;
                            sending.end();
                            return Poll::Ready(Ok(done));
                        }
                    }
                    Some(errno) if errno == -libc::EINTR => {}
                    Some(errno) => {
                        sending.end();
                        return Poll::Ready(Err(errno));
                    }
                }
            }
        }
        let token = self.queue_send(index, sending, all);
        self.submit(token, index);
        self.wait_for(token, caller);
        Poll::Pending
    }

    /// Returns whether a send of so many immutable bytes would now be zero-copy.
    pub(crate) fn sends_without_copy(&self, index: u32, bytes: usize) -> bool {
        self.driver.sends_without_copy(self.table.target(index), bytes)
    }

    /// Allocates the slot of a send that has to wait.
    fn queue_send(&mut self, index: u32, sending: &mut Sending, all: bool) -> Token {
        let kind = sending.kind();
        let mut memory = std::mem::replace(&mut sending.memory, Memory::None);
        if !self.driver.sends_from_pool() || self.driver.pool().is_strained() {
            memory.leave_pool();
        }
        let token = self.slots.insert(kind, index, memory, sending.done, self.now);
        if !all {
            self.slots.content_with_a_part(token);
        }
        self.table.entry(index).send = token.index;
        sending.stage = Stage::InFlight(token);
        token
    }

    /// Gives a send that has to yield a slot, where a cancel finds it.
    #[cold]
    fn set_send_aside(&mut self, index: u32, sending: &mut Sending, all: bool) {
        let entry = self.table.entry(index);
        if sending.stage != Stage::Fresh {
            return;
        }
        if entry.send != NONE {
            let token = self.slots.token(entry.send);
            self.slots.awaits(token);
        } else if entry.may_send() && (1..=BYTES_MAX).contains(&sending.memory.bytes()) {
            let token = self.queue_send(index, sending, all);
            self.slots.awaits(token);
        }
    }

    /// Records that the task waiting behind a dropped send was dropped.
    pub(crate) fn leave_send(&mut self, index: u32) {
        let entry = self.table.entry(index);
        entry.unmark(Mark::SendCancelled);
        if entry.send != NONE {
            let token = self.slots.token(entry.send);
            self.trash.extend(self.slots.clear_waker(token));
        }
    }

    fn poll_sending(
        &mut self,
        index: u32,
        sending: &mut Sending,
        token: Token,
        all: bool,
        caller: &Caller<'_>,
    ) -> Poll<std::result::Result<u32, i32>> {
        let mut result = Ok(());
        match self.slots.state(token) {
            State::Done => match self.slots.result(token) {
                sent if sent >= 0 => {
                    *self.slots.done(token) += sent as u32;
                    let over = !all || {
                        let done = *self.slots.done(token) as usize;
                        done >= self.slots.memory(token).bytes()
                    };
                    if !over && self.slots.is_cancel_asked(token) {
                        result = Err(-libc::ECANCELED);
                    } else if !over {
                        self.slots.requeue(token);
                    }
                }
                errno if matches!(-errno, libc::EINTR | libc::EAGAIN) => {
                    if self.slots.is_cancel_asked(token) {
                        result = Err(-libc::ECANCELED);
                    } else {
                        self.slots.requeue(token);
                    }
                }
                errno => result = Err(errno),
            },
            State::Queued => {}
            _ => {
                self.wait_for(token, caller);
                return Poll::Pending;
            }
        }
        while self.slots.state(token) == State::Queued {
            let on = self.table.target(index);
            let total = self.slots.memory(token).bytes();
            let op = self.slots.op(token, on);
            // `Io::attempt` needs all of `self`, but the operation borrows the slots. So this calls the
            // driver directly.
            match self.driver.attempt(&op).map(|outcome| outcome.result) {
                None => {
                    self.submit_queued(token, index);
                    self.wait_for(token, caller);
                    return Poll::Pending;
                }
                Some(sent) if sent >= 0 => {
                    let done = self.slots.done(token);
                    *done += sent as u32;
                    if !all || *done as usize >= total {
                        break;
                    }
                }
                Some(errno) if errno == -libc::EINTR => {}
                Some(errno) => {
                    result = Err(errno);
                    break;
                }
            }
        }
        let done = *self.slots.done(token);
        self.table.entry(index).send = NONE;
        self.trash.extend(self.slots.clear_waker(token));
        sending.memory = self.slots.release(token);
        sending.end();
        Poll::Ready(result.map(|()| done))
    }

    /// Handles the drop of a send's future.
    pub(crate) fn drop_send(&mut self, index: u32, sending: &Sending) {
        match sending.stage {
            Stage::Fresh => {
                self.leave_send(index);
                if sending.done > 0 {
                    self.table.entry(index).mark(Mark::Broken);
                }
            }
            Stage::InFlight(token) => self.abandon(token, index),
            Stage::Over => {}
        }
    }
}
