//! Standing operations: receive and accept. They stay with the driver and bring one result after another.

use super::{Io, PARKED_FOR};
use crate::caller::Caller;
use crate::descriptor::{Mark, NONE, Target};
use crate::inflight::{Items, Memory, Next, State};
use crate::op::{Kind, Op, Outcome, Token};
use crate::pool::Lease;
use std::task::Poll;

impl Io {
    /// Received bytes; none at the end of the stream.
    #[inline]
    pub(crate) fn poll_receive(
        &mut self,
        index: u32,
        caller: &Caller<'_>,
    ) -> Poll<std::result::Result<Lease, i32>> {
        if self.must_yield(caller) {
            self.set_standing_aside(Kind::Receive, index);
            return Poll::Pending;
        }
        let entry = self.table.entry(index);
        if entry.has_left_something() {
            return Poll::Ready(self.left(index));
        }
        // What happens nearly always: it stands already, and has brought nothing.
        let slot = entry.receive;
        if slot != NONE
            && let Some(standing) = self.slots.empty_handed(slot, Kind::Receive)
        {
            let on = entry.target(index);
            loop {
                let received = if self.tries { self.driver.attempt_receive(on) } else { None };
                match received {
                    None => {
                        if let Some(before) = standing.wait(caller) {
                            self.trash.push(before);
                        }
                        return Poll::Pending;
                    }
                    Some(Err(errno)) if errno == -libc::EINTR => {}
                    Some(received) => {
                        standing.serve();
                        self.counters.answered_at_once += 1;
                        self.answers_left -= 1;
                        if received.as_ref().is_ok_and(Lease::is_nothing) {
                            entry.mark(Mark::Ended);
                        }
                        return Poll::Ready(received);
                    }
                }
            }
        }
        self.poll_receive_standing(index, caller)
    }

    fn poll_receive_standing(
        &mut self,
        index: u32,
        caller: &Caller<'_>,
    ) -> Poll<std::result::Result<Lease, i32>> {
        self.poll_standing(Kind::Receive, index, caller).map(|outcome| {
            let received = outcome.received();
            if received.as_ref().is_ok_and(Lease::is_nothing) {
                self.table.entry(index).mark(Mark::Ended);
            }
            received
        })
    }

    /// What earlier receives have left for the next.
    #[cold]
    fn left(&mut self, index: u32) -> std::result::Result<Lease, i32> {
        let cancelled = self.table.entry(index).is(Mark::ReceiveCancelled);
        self.leave_standing(index);
        let entry = self.table.entry(index);
        if let Some(tail) = entry.kept.take() {
            return Ok(Lease::own(tail));
        }
        match entry.take_error() {
            0 if cancelled => Err(-libc::ECANCELED),
            0 => Ok(Lease::nothing()),
            errno => Err(errno),
        }
    }

    /// The next connection, as an entry of the table.
    pub(crate) fn poll_accept(
        &mut self,
        index: u32,
        caller: &Caller<'_>,
    ) -> Poll<std::result::Result<Target, i32>> {
        loop {
            if self.must_yield(caller) {
                self.set_standing_aside(Kind::Accept, index);
                return Poll::Pending;
            }
            if self.table.entry(index).is(Mark::Stopped) && self.table.entry(index).receive == NONE {
                return Poll::Ready(Err(-libc::ECANCELED));
            }
            let outcome = match self.poll_standing(Kind::Accept, index, caller) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(outcome) => outcome,
            };
            match -outcome.result {
                ..=0 => {
                    let descriptor = self.descriptor(outcome.result);
                    let on = self.open(descriptor);
                    self.driver.accepted(on);
                    return Poll::Ready(Ok(on));
                }
                libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM => {
                    if self.table.entry(index).is(Mark::Stopped) {
                        return Poll::Ready(Err(-libc::ECANCELED));
                    }
                    self.counters.accept_parked += 1;
                    if !self.parked.iter().any(|parked| caller.is(parked)) {
                        self.parked.push(caller.waker());
                    }
                    self.parked_until.get_or_insert(self.now.after(PARKED_FOR));
                    return Poll::Pending;
                }
                // One connection died in the backlog, or its network did, or a firewall forbids it (accept(2),
                // "Error handling"); or nothing happened.
                libc::ECONNABORTED
                | libc::ECONNRESET
                | libc::EPROTO
                | libc::ENOPROTOOPT
                | libc::EPERM
                | libc::ENETDOWN
                | libc::ENETUNREACH
                | libc::EHOSTDOWN
                | libc::EHOSTUNREACH
                | libc::ENONET
                | libc::ETIMEDOUT
                | libc::EINTR
                | libc::EAGAIN => {}
                // Of the listener itself: asking again would be asking for ever.
                _ => return Poll::Ready(Err(outcome.result)),
            }
        }
    }

    /// An item or the end of a standing operation, armed as need be.
    fn poll_standing(&mut self, kind: Kind, index: u32, caller: &Caller<'_>) -> Poll<Outcome> {
        let slot = self.table.entry(index).receive;
        let token = if slot == NONE {
            if let Some(outcome) = self.attempt_standing(kind, index) {
                return Poll::Ready(outcome);
            }
            let token = self.queue_standing(kind, index);
            self.submit(token, index);
            token
        } else {
            let token = self.slots.token(slot);
            if self.slots.kind(token) != kind {
                match self.slots.state(token) {
                    // A dropped receive into memory of the caller's, still on its way: its end tells us.
                    State::Orphaned => self.wait_for(token, caller),
                    _ => self.drop_forgotten(token, index, caller),
                }
                return Poll::Pending;
            }
            match self.slots.next(token) {
                Next::Item(outcome) => {
                    self.answers_left -= 1;
                    if self.slots.asks_ahead(token) {
                        self.submit(token, index);
                    }
                    return Poll::Ready(outcome);
                }
                Next::Empty => {
                    if let Some(outcome) = self.attempt_standing(kind, index) {
                        self.slots.served(slot);
                        return Poll::Ready(outcome);
                    }
                }
                Next::Again if self.table.entry(index).is(Mark::Stopped) => {
                    self.slots.release(token);
                    self.table.entry(index).receive = NONE;
                    return Poll::Ready(Outcome::of(-libc::ECANCELED));
                }
                Next::Again => {
                    if let Some(outcome) = self.attempt_standing(kind, index) {
                        self.slots.served(slot);
                        return Poll::Ready(outcome);
                    }
                    self.submit_queued(token, index);
                }
                Next::Over(result) => {
                    self.table.entry(index).receive = NONE;
                    return Poll::Ready(Outcome::of(result));
                }
            }
            token
        };
        self.wait_for(token, caller);
        Poll::Pending
    }

    fn queue_standing(&mut self, kind: Kind, index: u32) -> Token {
        let token = self.slots.insert(kind, index, Memory::Items(Items::EMPTY), 0, self.now);
        self.table.entry(index).receive = token.index;
        token
    }

    /// A future that has to yield is awaited, where a cancel finds it.
    #[cold]
    fn set_standing_aside(&mut self, kind: Kind, index: u32) {
        let entry = self.table.entry(index);
        if entry.has_left_something() {
            // That is all it asks for.
            return;
        }
        let token = match entry.receive {
            NONE => self.queue_standing(kind, index),
            slot => self.slots.token(slot),
        };
        self.slots.awaits(token);
    }

    #[inline]
    fn attempt_standing(&mut self, kind: Kind, index: u32) -> Option<Outcome> {
        if !self.tries {
            return None;
        }
        let on = self.table.target(index);
        let op = if kind == Kind::Accept { Op::Accept { on } } else { Op::Receive { on } };
        loop {
            let outcome = self.attempt(&op)?;
            if outcome.result != -libc::EINTR {
                return Some(outcome);
            }
        }
    }

    /// Nobody waits for this descriptor's standing operation any more; it goes on.
    #[inline]
    pub(crate) fn leave_standing(&mut self, index: u32) {
        let entry = self.table.entry(index);
        entry.unmark(Mark::ReceiveCancelled);
        let slot = entry.receive;
        if slot != NONE {
            let token = self.slots.token(slot);
            self.trash.extend(self.slots.clear_waker(token));
        }
    }
}
