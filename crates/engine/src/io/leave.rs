//! Leaving: a descriptor goes from one runtime to another, with everything that was received from it.
//!
//! As a close, it cancels what is under way and waits for the last word of each operation, so that no kernel and no
//! worker has anything of it. Unlike a close, what those words bring is kept: bytes in order, the end of the stream, an
//! error. Then the driver forgets the descriptor, and what is left is plain data, [`Loose`].

use super::Io;
use crate::caller::Caller;
use crate::descriptor::{Descriptor, Entry, Mark, NONE, Target};
use crate::inflight::State;
use crate::op::{Call, Outcome};
use crate::pool::Tail;
use crate::sys::call::reset_at_close;
use std::os::fd::OwnedFd;
use std::task::Poll;

/// A descriptor that is no runtime's, with what the next receive and the next send are to be told.
#[derive(Debug)]
pub(crate) struct Loose {
    pub(crate) descriptor: Descriptor,
    /// Received, and nobody's yet.
    kept: Option<Box<Tail>>,
    /// After the bytes comes the end.
    ended: bool,
    /// A send was dropped midway.
    broken: bool,
    /// After the bytes comes this negated errno; 0: none.
    failed: i32,
}

impl Loose {
    /// Received bytes that nobody has taken.
    pub(crate) fn unread(&self) -> &[u8] {
        self.kept.as_ref().and_then(|tail| tail.bytes.get(tail.start..)).unwrap_or_default()
    }

    /// Closes it, if it is the kernel's. Bytes that nobody will read reset the peer, as when a runtime closes it.
    pub(crate) fn close(self) {
        if let Descriptor::Os(fd) = self.descriptor
            && self.kept.is_some()
        {
            reset_at_close(&fd);
        }
    }
}

impl Io {
    /// The owner of a descriptor wants to take it away: what is under way is cancelled.
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

    /// What a receive brings whose descriptor leaves.
    pub(super) fn keep_received(&mut self, index: u32, outcome: Outcome) {
        let received = outcome.received();
        let entry = self.table.entry(index);
        match received {
            Ok(lease) if lease.is_nothing() => entry.mark(Mark::Ended),
            Ok(lease) => entry.keep(lease),
            // Of the operation, not of the stream.
            Err(errno) if matches!(-errno, libc::ECANCELED | libc::EINTR | libc::EAGAIN | libc::ENOBUFS) => {}
            // Of this driver, which it leaves.
            Err(errno) if self.driver.explain(-errno).is_some() => {}
            Err(errno) => entry.keep_error(errno),
        }
    }

    /// Whoever waits for this descriptor to be free may look.
    pub(super) fn leave_if_over(&mut self, index: u32) {
        if self.table.entry(index).with_driver == 0 {
            self.wakes.extend(self.closers.remove(&index));
        }
    }

    /// Ready once nothing of the descriptor is with the driver any more; then its entry is gone.
    pub(crate) fn poll_leave(&mut self, index: u32, caller: &Caller<'_>) -> Poll<Loose> {
        if self.table.entry(index).with_driver > 0 {
            // One at most: leaving takes the owner.
            self.trash.extend(self.closers.insert(index, caller.waker()));
            return Poll::Pending;
        }
        self.trash.extend(self.closers.remove(&index));
        Poll::Ready(self.let_loose(index))
    }

    /// Takes a descriptor of the kernel's out at once, if `is_free` says that nothing of it would be lost; else EBUSY.
    pub(crate) fn take_out(
        &mut self,
        index: u32,
        is_free: impl Fn(&Entry) -> bool,
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

    /// Takes in what came from another runtime; gives it back if this driver cannot.
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
