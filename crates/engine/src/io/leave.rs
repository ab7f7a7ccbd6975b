//! Moves a descriptor from one runtime to another, with everything that was received from it.
//!
//! Like a close, it cancels operations in flight and waits for the last completion of each, so that neither
//! the kernel nor a worker uses the descriptor. Unlike a close, it keeps their results: bytes in order, the
//! end of the stream, an error. Then the driver forgets the descriptor, and the rest is plain data,
//! [`Loose`].

use super::Io;
use crate::caller::Caller;
use crate::descriptor::{Descriptor, Entry, Mark, NONE, Target};
use crate::inflight::State;
use crate::op::{Call, Outcome};
use crate::pool::Tail;
use crate::sys::call::{make_blocking, reset_at_close};
use std::os::fd::OwnedFd;
use std::task::Poll;

/// A descriptor that belongs to no runtime, with results for the next receive and send.
#[derive(Debug)]
pub(crate) struct Loose {
    pub(crate) descriptor: Descriptor,
    /// Received bytes that no receive has taken.
    kept: Option<Box<Tail>>,
    /// The end of the stream follows the bytes.
    ended: bool,
    /// A send was dropped midway.
    broken: bool,
    /// This negated errno follows the bytes; 0: none.
    failed: i32,
}

impl Loose {
    /// Returns received bytes that no receive has taken.
    pub(crate) fn unread(&self) -> &[u8] {
        self.kept.as_ref().and_then(|tail| tail.bytes.get(tail.start..)).unwrap_or_default()
    }

    /// Closes the descriptor. Unread bytes cause a reset of the peer, as when a runtime closes it.
    pub(crate) fn close(self) {
        if let Descriptor::Os(fd) = self.descriptor
            && self.kept.is_some()
        {
            reset_at_close(&fd);
        }
    }
}

impl Io {
    /// Cancels the operations in flight of a descriptor that is to move.
    pub(crate) fn begin_to_leave(&mut self, index: u32) {
        let entry = self.table.entry(index);
        entry.mark(Mark::Leaving);
        for slot in [entry.receive, entry.send] {
            if slot != NONE {
                let token = self.slots.token(slot);
                if self.slots.state(token) != State::Orphaned {
                    self.abandon(token, index);
                }
            }
        }
    }

    /// Keeps the result of a receive on a descriptor that is about to move.
    pub(super) fn keep_received(&mut self, index: u32, outcome: Outcome) {
        let received = outcome.received();
        let entry = self.table.entry(index);
        match received {
            Ok(lease) if lease.is_nothing() => entry.mark(Mark::Ended),
            Ok(lease) => entry.keep(lease),
            // An error of the operation, not of the stream.
            Err(errno) if matches!(-errno, libc::ECANCELED | libc::EINTR | libc::EAGAIN | libc::ENOBUFS) => {}
            // A limit of this driver, which does not matter on the next one.
            Err(errno) if self.driver.explain(-errno).is_some() => {}
            Err(errno) => entry.keep_error(errno),
        }
    }

    /// Wakes the task that waits to move this descriptor, if it can move now.
    pub(super) fn leave_if_over(&mut self, index: u32) {
        if self.table.entry(index).with_driver == 0 {
            self.wakes.extend(self.closers.remove(&index));
        }
    }

    /// Ready when the driver has no operation of the descriptor; then its entry is freed.
    pub(crate) fn poll_leave(&mut self, index: u32, caller: &Caller<'_>) -> Poll<Loose> {
        if self.table.entry(index).with_driver > 0 {
            // At most one waker: leaving consumes the owner.
            self.trash.extend(self.closers.insert(index, caller.waker()));
            return Poll::Pending;
        }
        self.trash.extend(self.closers.remove(&index));
        Poll::Ready(self.let_loose(index))
    }

    /// Removes a kernel descriptor immediately, if `is_free` returns that nothing would be lost; else EBUSY.
    /// With `blocking`, sets it to blocking mode, which every descriptor that shares the socket then has.
    pub(crate) fn take_out(
        &mut self,
        index: u32,
        is_free: impl Fn(&Entry) -> bool,
        blocking: bool,
    ) -> std::result::Result<OwnedFd, i32> {
        if self.keeps_datagram(index) || !is_free(self.table.entry(index)) {
            return Err(libc::EBUSY);
        }
        if !matches!(self.table.entry(index).descriptor(), Some(Descriptor::Os(_))) {
            return Err(libc::EOPNOTSUPP);
        }
        if let Some(result) = self.driver.release(self.table.target(index)) {
            self.keep_received(index, Outcome::of(result));
            return Err(libc::EBUSY);
        }
        if blocking {
            self.counters.system_calls += 1;
            make_blocking(self.table.target(index))?;
        }
        match self.table.remove(index) {
            Some(Descriptor::Os(fd)) => Ok(fd),
            _ => unreachable!("it was looked at"),
        }
    }

    fn let_loose(&mut self, index: u32) -> Loose {
        if let Some(result) = self.driver.release(self.table.target(index)) {
            self.keep_received(index, Outcome::of(result));
        }
        let entry = self.table.entry(index);
        debug_assert!(entry.with_driver == 0 && entry.receive == NONE && entry.send == NONE, "{entry:?}");
        let (kept, failed) = (entry.kept.take(), entry.take_error());
        let (ended, broken) = (entry.is(Mark::Ended), entry.is(Mark::Broken));
        let descriptor = self.table.remove(index).unwrap_or_else(|| unreachable!("its owner holds it open"));
        Loose { descriptor, kept, ended, broken, failed }
    }

    /// Takes in a descriptor from another runtime; returns it if this driver cannot use it.
    pub(crate) fn arrive(&mut self, loose: Loose) -> Result<Target, (crate::Error, Loose)> {
        let Loose { descriptor, kept, ended, broken, failed } = loose;
        let on = self.table.insert(descriptor);
        let entry = self.table.entry(on.index);
        entry.kept = kept;
        entry.keep_error(failed);
        for (mark, is) in [(Mark::Ended, ended), (Mark::Broken, broken)] {
            if is {
                entry.mark(mark);
            }
        }
        match self.call(Call::Adopt { on }) {
            Ok(_) => Ok(on),
            Err(why) => Err((why, self.let_loose(on.index))),
        }
    }
}
