//! Standing operations: receive and accept. They stay with the driver and produce one result after another.

use super::{Io, PARKED_FOR, weight};
use crate::caller::Caller;
use crate::descriptor::{Mark, NONE, Target};
use crate::inflight::{Items, Memory, Next, State};
use crate::op::{Call, Kind, Op, Outcome, Token};
use crate::pool::Lease;
use std::task::Poll;

/// Number of consecutive refusals (EPERM) up to which an accept retries immediately: a firewall refuses
/// single connections.
const DENIED_AT_ONCE: u32 = 8;

/// Number of consecutive refusals after which the caller gets the error; before that, each one pauses
/// accepting.
const DENIED_MAX: u32 = DENIED_AT_ONCE + 3;

/// Maximum number of received bytes kept while a task waits only for the hang-up.
const WATCHED_BYTES_MAX: usize = 64 * 1024;

impl Io {
    /// Ready with received bytes; none at the end of the stream.
    #[inline]
    pub(crate) fn poll_receive(
        &mut self,
        index: u32,
        caller: &Caller<'_>,
    ) -> Poll<std::result::Result<Lease, i32>> {
        self.poll_receive_and::<false>(index, caller).map_ok(|(lease, _)| lease)
    }

    /// As [`poll_receive`](Self::poll_receive). True behind bytes: nothing more is there to be received, and
    /// the task is registered for what comes next, as though it had polled once more. Only with `PARK`.
    #[inline]
    pub(crate) fn poll_receive_and<const PARK: bool>(
        &mut self,
        index: u32,
        caller: &Caller<'_>,
    ) -> Poll<std::result::Result<(Lease, bool), i32>> {
        if self.must_yield(caller) {
            self.set_standing_aside(Kind::Receive, index);
            return Poll::Pending;
        }
        let entry = self.table.entry(index);
        if entry.has_left_something() {
            return Poll::Ready(self.left(index).map(|lease| (lease, false)));
        }
        // The common case: the receive is armed, and has no results.
        let slot = entry.receive;
        if slot != NONE
            && let Some(standing) = self.slots.empty_handed(slot, Kind::Receive)
        {
            let on = entry.target(index);
            let bulk = standing.is_bulk();
            loop {
                let received = if self.tries { self.driver.attempt_receive(on, bulk) } else { None };
                match received {
                    None => {
                        if let Some(before) = standing.wait(caller) {
                            self.trash.push(before);
                        }
                        return Poll::Pending;
                    }
                    Some(Err(errno)) if errno == -libc::EINTR => {}
                    Some(Err(errno)) => {
                        standing.serve();
                        self.counters.answered_at_once += 1;
                        self.answers_left -= 1;
                        return Poll::Ready(Err(errno));
                    }
                    Some(Ok(lease)) => {
                        standing.serve();
                        self.counters.answered_at_once += 1;
                        self.answers_left -= 1;
                        if lease.is_nothing() {
                            entry.mark(Mark::Ended);
                            return Poll::Ready(Ok((lease, false)));
                        }
                        standing.brought(lease.len(), self.buffer_bytes);
                        if bulk {
                            self.answers_left = self.answers_left.saturating_sub(weight(lease.len()));
                        }
                        // An end or an error behind the bytes is not left to a wake: then this is false.
                        let parked = PARK && self.driver.is_drained(on);
                        if parked && let Some(before) = standing.wait(caller) {
                            self.trash.push(before);
                        }
                        return Poll::Ready(Ok((lease, parked)));
                    }
                }
            }
        }
        self.poll_receive_standing(index, caller).map_ok(|lease| (lease, false))
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

    /// Returns whether nothing is to be received now: no bytes, no end, no error. One look at the socket on
    /// every driver, and at what the kernel has completed for this stream. False where that cannot be looked
    /// at: a direct stream.
    pub(crate) fn is_quiet(&mut self, index: u32) -> bool {
        let entry = self.table.entry(index);
        if entry.has_left_something() {
            return false;
        }
        let (slot, on) = (entry.receive, entry.target(index));
        if slot != NONE && self.slots.has_news(slot) {
            return false;
        }
        // The socket first: the kernel moves bytes from there to a completion, and never back.
        match self.driver.call(Call::Peek { on }) {
            Err(why) if why.raw_os_error() == Some(libc::EAGAIN) => {}
            Ok(_) => return false,
            Err(why) => {
                // An error of a socket is told once: the next receive returns it.
                if let Some(errno) = why.raw_os_error()
                    && !on.is_direct()
                {
                    self.table.entry(index).keep_error(-errno);
                }
                return false;
            }
        }
        slot == NONE || {
            let token = self.slots.token(slot);
            !self.driver.withholds(token, on)
        }
    }

    /// Ready with 0 at the end of the peer's stream, or with the error that ended the connection. Received
    /// bytes are kept for the next receive.
    ///
    /// The end, an error and kept bytes stay in the entry, so that a later receive gets them in order.
    pub(crate) fn poll_hangup(&mut self, index: u32, caller: &Caller<'_>) -> Poll<i32> {
        loop {
            let entry = self.table.entry(index);
            if entry.failed() != 0 {
                return Poll::Ready(entry.failed());
            }
            if entry.is(Mark::Ended) {
                return Poll::Ready(0);
            }
            // Set aside, because the receive would return it.
            let kept = entry.kept.take();
            if kept.as_ref().is_some_and(|tail| tail.bytes.len() - tail.start >= WATCHED_BYTES_MAX) {
                entry.kept = kept;
                return Poll::Pending;
            }
            // In bulk a single receive could exceed the limit again.
            if entry.receive != NONE {
                self.slots.end_bulk(entry.receive);
            }
            let polled = self.poll_receive(index, caller);
            let entry = self.table.entry(index);
            entry.kept = kept;
            match polled {
                Poll::Pending => return Poll::Pending,
                // The end is recorded in the entry.
                Poll::Ready(Ok(lease)) if lease.is_nothing() => {}
                Poll::Ready(Ok(lease)) => entry.keep(lease),
                Poll::Ready(Err(errno)) if errno == -libc::ECANCELED => return Poll::Ready(errno),
                Poll::Ready(Err(errno)) => entry.keep_error(errno),
            }
        }
    }

    /// Returns what earlier receives have left.
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

    /// Ready with the next connection, as an entry of the table.
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
                    if !self.denied.is_empty() {
                        self.denied.remove(&index);
                    }
                    return Poll::Ready(Ok(on));
                }
                libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM => {
                    return self.park(index, caller);
                }
                // Either a firewall has refused one connection, which was removed from the queue; or a
                // security policy denies accept(2) itself, every time, and nothing is removed from the queue.
                libc::EPERM => {
                    let denied = self.denied.entry(index).or_default();
                    *denied += 1;
                    if *denied > DENIED_MAX {
                        self.denied.remove(&index);
                        return Poll::Ready(Err(outcome.result));
                    }
                    if *denied > DENIED_AT_ONCE {
                        return self.park(index, caller);
                    }
                }
                // One connection in the backlog has failed, or its network (accept(2), "Error handling"); or
                // nothing happened.
                libc::ECONNABORTED
                | libc::ECONNRESET
                | libc::EPROTO
                | libc::ENOPROTOOPT
                | libc::ENETDOWN
                | libc::ENETUNREACH
                | libc::EHOSTDOWN
                | libc::EHOSTUNREACH
                | libc::ENONET
                | libc::ETIMEDOUT
                | libc::EINTR
                | libc::EAGAIN => {}
                // An error of the listener itself: a retry would fail for ever.
                _ => return Poll::Ready(Err(outcome.result)),
            }
        }
    }

    /// Parks the accept until a descriptor is closed, or for a pause.
    #[cold]
    fn park(&mut self, index: u32, caller: &Caller<'_>) -> Poll<std::result::Result<Target, i32>> {
        if self.table.entry(index).is(Mark::Stopped) {
            return Poll::Ready(Err(-libc::ECANCELED));
        }
        self.counters.accept_parked += 1;
        // By the listener, and not by the waker: each poll may come with another one.
        match self.parked.iter_mut().find(|(parked, _)| *parked == index) {
            Some((_, before)) => self.trash.push(std::mem::replace(before, caller.waker())),
            None => self.parked.push((index, caller.waker())),
        }
        self.parked_until.get_or_insert(self.now.after(PARKED_FOR));
        Poll::Pending
    }

    /// Ready with an item or the end of a standing operation. Arms it if needed.
    fn poll_standing(&mut self, kind: Kind, index: u32, caller: &Caller<'_>) -> Poll<Outcome> {
        let slot = self.table.entry(index).receive;
        let token = if slot == NONE {
            if let Some(outcome) = self.attempt_standing(kind, index, false) {
                let bytes = outcome.lease.as_ref().map_or(0, Lease::len);
                if bytes >= self.buffer_bytes {
                    // The stream needs a slot to record that it is in bulk. A stream that never has to wait
                    // would not get one otherwise.
                    let token = self.queue_standing(kind, index);
                    self.slots.brought(token.index, bytes, self.buffer_bytes);
                }
                return Poll::Ready(outcome);
            }
            let token = self.queue_standing(kind, index);
            self.submit(token, index);
            token
        } else {
            let token = self.slots.token(slot);
            if self.slots.kind(token) != kind {
                match self.slots.state(token) {
                    // A dropped receive into the caller's memory is still in flight: its end wakes the
                    // caller.
                    State::Orphaned => self.wait_for(token, caller),
                    _ => self.drop_forgotten(token, index, caller),
                }
                return Poll::Pending;
            }
            match self.slots.next(token) {
                Next::Item(outcome) => {
                    self.answers_left -= 1;
                    if self.table.target(index).is_direct() && self.slots.asks_ahead(token) {
                        self.submit(token, index);
                    }
                    return Poll::Ready(outcome);
                }
                Next::Empty => {
                    if self.tries
                        && let Some(outcome) = self.attempt_slot(kind, index, slot)
                    {
                        return Poll::Ready(outcome);
                    }
                }
                Next::Again if self.table.entry(index).is(Mark::Stopped) => {
                    self.slots.release(token);
                    self.table.entry(index).receive = NONE;
                    return Poll::Ready(Outcome::of(-libc::ECANCELED));
                }
                Next::Again => {
                    if let Some(outcome) = self.attempt_slot(kind, index, slot) {
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

    /// Gives a future that has to yield a slot, where a cancel finds it.
    #[cold]
    fn set_standing_aside(&mut self, kind: Kind, index: u32) {
        let entry = self.table.entry(index);
        if entry.has_left_something() {
            // It requests no more than that.
            return;
        }
        let token = match entry.receive {
            NONE => self.queue_standing(kind, index),
            slot => self.slots.token(slot),
        };
        self.slots.awaits(token);
    }

    /// Calls [`Io::attempt_standing`] for a slot that the driver does not fill now, and records the result in
    /// the slot.
    #[inline]
    fn attempt_slot(&mut self, kind: Kind, index: u32, slot: u32) -> Option<Outcome> {
        let bulk = self.slots.is_bulk(slot);
        let outcome = self.attempt_standing(kind, index, bulk)?;
        self.slots.served(slot);
        if let Some(lease) = &outcome.lease {
            self.slots.brought(slot, lease.len(), self.buffer_bytes);
            if bulk {
                self.answers_left = self.answers_left.saturating_sub(weight(lease.len()));
            }
        }
        Some(outcome)
    }

    /// Attempts a standing operation. A receive in bulk is attempted on every driver: the cost of the call is
    /// small beside the copy of its bytes, and all streams use one buffer that stays in the cache. INVARIANT:
    /// a driver that does not attempt by itself (`tries`) has no receive of this stream then, so bytes stay
    /// in order.
    #[inline]
    fn attempt_standing(&mut self, kind: Kind, index: u32, bulk: bool) -> Option<Outcome> {
        if !self.tries && !bulk {
            return None;
        }
        let on = self.table.target(index);
        let op = match kind {
            Kind::Accept => Op::Accept { on },
            _ if bulk => Op::ReceiveBulk { on },
            _ => Op::Receive { on },
        };
        loop {
            let outcome = self.attempt(&op)?;
            if outcome.result != -libc::EINTR {
                return Some(outcome);
            }
        }
    }

    /// Records that the task waiting for this standing operation was dropped; the operation continues.
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
