//! Ends: dropped futures, cancels, and closing. What a dropped operation brings is disposed of in one place,
//! [`Io::dispose`].

use super::Io;
use crate::buf::{Buf, filled};
use crate::caller::Caller;
use crate::descriptor::{Mark, NONE, Target};
use crate::driver::Cancelled;
use crate::inflight::{Memory, Remains, State};
use crate::op::{Answer, Call, Kind, Outcome, Token};
use crate::option::SocketOption;
use crate::pool::Tail;
use std::task::Poll;

impl Io {
    /// An operation loses its future: it is cancelled, and its memory kept until the driver has let go.
    pub(super) fn abandon(&mut self, token: Token, index: u32) {
        let kind = self.slots.kind(token);
        let on = self.table.target(index);
        let outcome = match self.slots.state(token) {
            State::Submitted | State::Armed => {
                self.counters.cancels += 1;
                match self.driver.cancel(token, kind, on) {
                    Cancelled::Asked => {
                        self.counters.orphaned += 1;
                        while let Some(outcome) = self.slots.untaken(token) {
                            self.dispose_outcome(kind, index, outcome);
                        }
                        self.trash.extend(self.slots.orphan(token, self.now));
                        return;
                    }
                    Cancelled::Gone => {
                        self.slots.retract(token);
                        self.table.entry(index).with_driver -= 1;
                        Outcome::of(-libc::ECANCELED)
                    }
                }
            }
            State::Done => Outcome::of(self.slots.result(token)),
            _ => Outcome::of(-libc::ECANCELED),
        };
        while let Some(outcome) = self.slots.untaken(token) {
            self.dispose_outcome(kind, index, outcome);
        }
        let done = *self.slots.done(token);
        self.trash.extend(self.slots.clear_waker(token));
        let memory = self.slots.release(token);
        let remains = Remains { kind, descriptor: index, outcome, memory, done, waker: None, let_go: false };
        *Self::place(self.table.entry(index), kind) = NONE;
        self.dispose(remains);
    }

    /// What a dropped operation brought goes where it belongs.
    pub(super) fn dispose(&mut self, remains: Remains) {
        let Remains { kind, descriptor: index, outcome, memory, done, .. } = remains;
        match kind {
            Kind::Accept | Kind::Receive => self.dispose_outcome(kind, index, outcome),
            // A datagram went whole or not at all: the next one is none the worse.
            Kind::Connect | Kind::SendMessage | Kind::SendUnixMessage | Kind::Open | Kind::File => {}
            Kind::ReceiveMessage => self.dispose_message(index, outcome.result, memory),
            Kind::ReceiveInto => {
                let entry = self.table.entry(index);
                match (outcome.result, memory) {
                    // The bytes are the next receive's.
                    (bytes, Memory::Buf(buf)) if bytes > 0 => entry.kept = kept(buf, bytes as usize),
                    (0, _) => entry.mark(Mark::Ended),
                    (errno, _) if !matches!(-errno, libc::ECANCELED | libc::EINTR | libc::EAGAIN) => {
                        entry.keep_error(errno);
                    }
                    _ => {}
                }
            }
            Kind::Send | Kind::SendVectored | Kind::SendFile => {
                if done > 0 || outcome.result > 0 {
                    self.table.entry(index).mark(Mark::Broken);
                }
            }
        }
    }

    /// A standing operation is dropped when its descriptor is closed: nobody will ever take what it brought. Its
    /// peers hear what they would hear if the kernel still had it: a reset. Or when its descriptor leaves, and then it
    /// goes along.
    fn dispose_outcome(&mut self, kind: Kind, index: u32, outcome: Outcome) {
        if kind == Kind::Receive && self.table.entry(index).is(Mark::Leaving) {
            return self.keep_received(index, outcome);
        }
        if kind == Kind::Accept && outcome.result >= 0 {
            let descriptor = self.descriptor(outcome.result);
            let on = self.open(descriptor);
            self.table.entry(on.index).mark(Mark::Unread);
            self.close(on.index);
        }
        if outcome.lease.is_some() {
            self.table.entry(index).mark(Mark::Unread);
        }
    }

    /// Asks the operations that somebody waits for on this descriptor to end. Each tells its true outcome.
    pub(crate) fn cancel(&mut self, on: Target, stop: bool) {
        if !self.table.is_open(on) {
            return;
        }
        // Its number may be another than when it was told.
        let on = self.table.target(on.index);
        let entry = self.table.entry(on.index);
        if stop {
            entry.mark(Mark::Stopped);
        }
        let slots = [entry.receive, entry.send];
        if stop {
            // It may be among those that wait for a descriptor.
            self.unpark();
        }
        for slot in slots {
            if slot == NONE {
                continue;
            }
            let token = self.slots.token(slot);
            if !self.slots.is_waited_for(token) && !stop {
                continue;
            }
            let kind = self.slots.kind(token);
            match self.slots.state(token) {
                State::Submitted | State::Armed => {
                    self.counters.cancels += 1;
                    self.slots.cancel_asked(token, self.now);
                    if self.driver.cancel(token, kind, on) == Cancelled::Gone {
                        self.slots.retract(token);
                        self.table.entry(on.index).with_driver -= 1;
                        if !kind.is_standing() {
                            self.slots.finish_cancelled(token);
                        }
                        self.wakes.extend(self.slots.take_waker(token));
                    }
                }
                // Its future is woken, or has yielded, and is going to look: it does not begin again.
                State::Queued => {
                    self.slots.cancel_asked(token, self.now);
                    self.slots.finish_cancelled(token);
                    self.wakes.extend(self.slots.take_waker(token));
                }
                // Likewise; it takes what is there first.
                State::Done => self.slots.cancel_asked(token, self.now),
                // The operation ends already. Who waits behind it for his own has no slot yet.
                State::Orphaned => {
                    let mark = if kind.is_inward() { Mark::ReceiveCancelled } else { Mark::SendCancelled };
                    self.table.entry(on.index).mark(mark);
                    self.wakes.extend(self.slots.take_waker(token));
                }
                State::Free => {}
            }
        }
    }

    /// The descriptor's owner is gone: cancel, reap every last completion, then close.
    pub(crate) fn close(&mut self, index: u32) {
        let entry = self.table.entry(index);
        debug_assert!(!entry.is(Mark::Closing), "closed twice");
        entry.mark(Mark::Closing);
        for slot in [entry.receive, entry.send] {
            if slot != NONE {
                let token = self.slots.token(slot);
                if self.slots.state(token) != State::Orphaned {
                    self.abandon(token, index);
                }
            }
        }
        self.close_if_over(index);
    }

    /// Ready once the descriptor is closed.
    pub(crate) fn poll_closed(&mut self, on: Target, caller: &Caller<'_>) -> Poll<()> {
        if !self.table.is_current(on) {
            return Poll::Ready(());
        }
        // One at most: closing takes the owner.
        self.trash.extend(self.closers.insert(on.index, caller.waker()));
        Poll::Pending
    }

    /// Closes the descriptor if nothing of it is with the driver any more.
    pub(super) fn close_if_over(&mut self, index: u32) {
        let entry = self.table.entry(index);
        if !entry.is(Mark::Closing) || entry.with_driver > 0 {
            return;
        }
        let unread = entry.is(Mark::Unread) || entry.kept.is_some();
        if !self.datagrams.is_empty() {
            self.datagrams.remove(&index);
        }
        let on = self.table.target(index);
        if unread {
            // As the kernel does with bytes that it still has (RFC 1122, 4.2.2.13), so that every driver does. Should
            // it fail, the peer sees an end instead.
            let _ = self.driver.call(Call::Reset { on });
        } else if self.may_linger && !on.is_direct() {
            self.see_that_close_waits_for_nobody(on);
        }
        if let Some(descriptor) = self.table.remove(index) {
            // The only error that matters, EBADF, would be a bug of ours; others come after it is closed.
            let closed = self.driver.call(Call::Close { on, descriptor });
            debug_assert!(
                !matches!(&closed, Err(why) if why.raw_os_error() == Some(libc::EBADF)),
                "{closed:?}"
            );
        }
        if !self.closers.is_empty() {
            self.wakes.extend(self.closers.remove(&index));
        }
        self.unpark();
    }

    /// A socket that lingers would have `close(2)` stop this thread, whatever its mode, until the peer has everything
    /// (`inet_release` in Linux). Without lingering the kernel sends it all the same.
    #[cold]
    pub(super) fn see_that_close_waits_for_nobody(&mut self, on: Target) {
        if self.lingers(on) {
            let option = SocketOption::Linger(None);
            let _ = self.driver.call(Call::SetOption { on, option });
        }
    }

    /// Whether a close of this socket would wait for its peer.
    pub(super) fn lingers(&mut self, on: Target) -> bool {
        let asked = self.driver.call(Call::GetOption { on, option: SocketOption::Linger(None) });
        matches!(asked, Ok(Answer::Option(option)) if option.lingers())
    }

    /// Listeners may try again.
    pub(super) fn unpark(&mut self) {
        if !self.parked.is_empty() {
            self.wakes.append(&mut self.parked);
            self.parked_until = None;
        }
    }
}

/// The `bytes` that a receive wrote behind what `buf` already held.
fn kept(mut buf: Buf, bytes: usize) -> Option<Box<Tail>> {
    let start = buf.bytes().len();
    // SAFETY: the driver said, with the last completion of a receive into this buffer, that so many bytes are there.
    unsafe { filled(&mut buf, bytes) };
    match buf {
        Buf::Vec(bytes) => Some(Box::new(Tail { bytes, start })),
        other => {
            Some(Box::new(Tail { bytes: other.bytes().get(start..).unwrap_or_default().to_vec(), start: 0 }))
        }
    }
}
