//! Dropped futures, cancels, and closing. [`Io::dispose`] is the one place that handles results of dropped
//! operations.

use super::Io;
use crate::buf::{Buf, filled};
use crate::caller::Caller;
use crate::descriptor::{Descriptor, Mark, NONE, Target};
use crate::driver::Cancelled;
use crate::inflight::{Memory, Remains, State};
use crate::op::{Answer, Call, Kind, Outcome, Token};
use crate::option::SocketOption;
use crate::pool::Tail;
use std::task::Poll;

impl Io {
    /// Cancels an operation after its future was dropped; its memory is kept until the driver has released
    /// it.
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

    /// Disposes of the result of a dropped operation.
    pub(super) fn dispose(&mut self, remains: Remains) {
        let Remains { kind, descriptor: index, outcome, memory, done, .. } = remains;
        match kind {
            Kind::Accept | Kind::Receive => self.dispose_outcome(kind, index, outcome),
            // A datagram was sent whole or not at all, so the next one is not affected.
            Kind::Connect
            | Kind::Readable
            | Kind::Writable
            | Kind::SendMessage
            | Kind::SendUnixMessage
            | Kind::Open
            | Kind::File => {}
            Kind::ReceiveMessage => self.dispose_message(index, outcome.result, memory),
            Kind::ReceiveInto => {
                let entry = self.table.entry(index);
                match (outcome.result, memory) {
                    // The bytes are kept for the next receive.
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

    /// Disposes of a result of a standing operation. Such an operation is dropped when its descriptor is
    /// closed: no receive will take the result, and the peer gets a reset, as if the kernel still had the
    /// bytes. Or it is dropped when the descriptor moves to another runtime: then the result moves with it.
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

    /// Cancels the operations on this descriptor that a task waits for. Each still reports its true outcome.
    pub(crate) fn cancel(&mut self, on: Target, stop: bool) {
        if !self.table.is_open(on) {
            return;
        }
        // The number may have changed since the caller got the target.
        let on = self.table.target(on.index);
        let entry = self.table.entry(on.index);
        if stop {
            entry.mark(Mark::Stopped);
        }
        let slots = [entry.receive, entry.send];
        if stop {
            // It may be a parked listener.
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
                // Its future was woken or has yielded, and is going to be polled: the operation is not
                // submitted again.
                State::Queued => {
                    self.slots.cancel_asked(token, self.now);
                    self.slots.finish_cancelled(token);
                    self.wakes.extend(self.slots.take_waker(token));
                }
                // Likewise; the future takes available results first.
                State::Done => self.slots.cancel_asked(token, self.now),
                // Already being cancelled. A task queued behind it has no slot yet: the entry records the
                // cancel.
                State::Orphaned => {
                    let mark = if kind.is_inward() { Mark::ReceiveCancelled } else { Mark::SendCancelled };
                    self.table.entry(on.index).mark(mark);
                    self.wakes.extend(self.slots.take_waker(token));
                }
                State::Free => {}
            }
        }
    }

    /// Closes a descriptor after its owner was dropped: cancels, reaps every last completion, then closes.
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

    /// Ready when the descriptor is closed.
    pub(crate) fn poll_closed(&mut self, on: Target, caller: &Caller<'_>) -> Poll<()> {
        if !self.table.is_current(on) {
            return Poll::Ready(());
        }
        // At most one waker: closing consumes the owner.
        self.trash.extend(self.closers.insert(on.index, caller.waker()));
        Poll::Pending
    }

    /// Closes the descriptor if the driver has none of its operations.
    pub(super) fn close_if_over(&mut self, index: u32) {
        let entry = self.table.entry(index);
        if !entry.is(Mark::Closing) || entry.with_driver > 0 {
            return;
        }
        let unread = entry.is(Mark::Unread) || entry.kept.is_some();
        if !self.datagrams.is_empty() {
            self.datagrams.remove(&index);
        }
        if !self.denied.is_empty() {
            self.denied.remove(&index);
        }
        let on = self.table.target(index);
        if unread {
            // The kernel does this for bytes that it still has (RFC 1122, 4.2.2.13); every driver does the
            // same for bytes already received. If it fails, the peer gets the end of the stream instead.
            let _ = self.driver.call(Call::Reset { on });
        } else if self.may_linger && !on.is_direct() {
            self.clear_linger_before_close(on);
        }
        if let Some(descriptor) = self.table.remove(index) {
            let descriptor = match descriptor {
                // Closing a duplicate does not remove its registration from an epoll set.
                Descriptor::Watched(fd) => {
                    self.driver.release(on);
                    Descriptor::Os(fd)
                }
                other => other,
            };
            // The only error that matters is EBADF, which would be a bug of the engine; other errors are
            // reported after the descriptor was closed.
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

    /// Clears SO_LINGER before a close. With it, `close(2)` would block this thread until the peer has
    /// received everything, even in non-blocking mode (`inet_release` in Linux). Without it the kernel sends
    /// the bytes in the background.
    #[cold]
    pub(super) fn clear_linger_before_close(&mut self, on: Target) {
        if self.lingers(on) {
            let option = SocketOption::Linger(None);
            let _ = self.driver.call(Call::SetOption { on, option });
        }
    }

    /// Returns whether a close of this socket would wait for its peer.
    pub(super) fn lingers(&mut self, on: Target) -> bool {
        let asked = self.driver.call(Call::GetOption { on, option: SocketOption::Linger(None) });
        matches!(asked, Ok(Answer::Option(option)) if option.lingers())
    }

    /// Wakes parked listeners, which retry.
    pub(super) fn unpark(&mut self) {
        if !self.parked.is_empty() {
            self.wakes.extend(self.parked.drain(..).map(|(_, waker)| waker));
            self.parked_until = None;
        }
    }
}

/// Returns the `bytes` that a receive appended to `buf`.
fn kept(mut buf: Buf, bytes: usize) -> Option<Box<Tail>> {
    let start = buf.bytes().len();
    // SAFETY: the last completion of a receive into this buffer reported this many bytes.
    unsafe { filled(&mut buf, bytes) };
    match buf {
        Buf::Vec(bytes) => Some(Box::new(Tail { bytes, start })),
        other => {
            Some(Box::new(Tail { bytes: other.bytes().get(start..).unwrap_or_default().to_vec(), start: 0 }))
        }
    }
}
