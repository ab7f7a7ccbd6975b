//! Takes completions, a turn's worth at a time, and turns them into news. Drains the ring when the driver is
//! dropped.
//!
//! INVARIANT: a completion is popped once, and is handled either by [`Uring::take`], which reports it, or,
//! when the driver is dropped, by [`Uring::discard`].

use super::{AT_ONCE, CANCEL, DESCRIPTOR, INSTALL, Place, RECEIVE, ROOM, TAG, Uring, ZERO_COPY, is_passing};
use crate::COMPLETIONS_PER_TURN;
use crate::op::{Completion, News, Outcome, Token};
use ringroad_uring::{Cqe, Wait};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long a drop waits for operations in flight, unless [`Driver::abandon`](crate::driver::Driver::abandon)
/// sets it.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// Interval at which the drop cancels again.
const SLICE: Duration = Duration::from_millis(10);

impl Uring {
    /// Takes completions and appends their news.
    pub(super) fn take(&mut self, out: &mut Vec<Completion>) -> io::Result<()> {
        let start = out.len();
        let end = start + COMPLETIONS_PER_TURN;
        while let Some(completion) = self.next_completion()? {
            // A single bundle never exceeds a turn (UIO_MAXIOV).
            if self.pieces(&completion) > end - out.len() && out.len() > start {
                self.held.push_front(completion);
                break;
            }
            self.report(&completion, out);
        }
        // Entries submitted next may complete immediately, and need room beside the completions left in the
        // queue.
        let mut queue = self.kernel.ring.completions();
        self.room = queue.entries().saturating_sub(queue.ready());
        Ok(())
    }

    #[inline]
    fn next_completion(&mut self) -> io::Result<Option<Cqe>> {
        if let Some(held) = self.held.pop_front() {
            return Ok(Some(held));
        }
        let (submissions, mut completions) = self.kernel.ring.queues();
        let next = completions.pop();
        if next.is_some() || !submissions.completion_overflow() {
            return Ok(next);
        }
        self.fetch_overflow()
    }

    /// Returns whether a completion of this receive waits to be taken, or may wait where it cannot be seen.
    /// It stays in its place.
    pub(super) fn has_completed(&mut self, token: Token) -> bool {
        let (submissions, mut completions) = self.kernel.ring.queues();
        if submissions.completion_overflow() {
            return true;
        }
        while let Some(completion) = completions.pop() {
            self.held.push_back(completion);
        }
        let is_of = |bits: u64| bits & CANCEL == 0 && bits < INSTALL && bits & !TAG == token.to_bits();
        self.held.iter().any(|completion| is_of(completion.user_data))
    }

    /// Makes the kernel move overflowed completions into the queue, and takes one.
    #[cold]
    fn fetch_overflow(&mut self) -> io::Result<Option<Cqe>> {
        self.counters.overflows += 1;
        self.counters.system_calls += 1;
        match self.kernel.ring.flush_overflow() {
            Err(why) if !is_passing(&why) => Err(why),
            _ => Ok(self.kernel.ring.completions().pop()),
        }
    }

    /// Returns the number of news items of a completion: a bundle has one per buffer.
    #[inline]
    fn pieces(&self, completion: &Cqe) -> usize {
        if !self.abilities.bundles
            || completion.user_data & TAG != RECEIVE
            || completion.buffer_id().is_none()
        {
            return 1;
        }
        (completion.result.max(1) as usize).div_ceil(self.kernel.pool.buffer_bytes())
    }

    #[inline]
    pub(super) fn report(&mut self, completion: &Cqe, out: &mut Vec<Completion>) {
        let bits = completion.user_data;
        if bits & CANCEL != 0 {
            return self.cancel_missed(bits & !CANCEL);
        }
        if bits >= INSTALL {
            return self.handle_internal(bits, completion.result);
        }
        if bits & TAG == ZERO_COPY {
            return self.report_zero_copy(completion, out);
        }
        let token = Token::from_bits(bits & !TAG);
        let only_waits = bits & TAG == RECEIVE && self.only_waits(token);
        if !completion.more() {
            self.in_flight -= 1;
            self.put(bits, Place::Out);
        }
        if only_waits {
            // The result of a poll is its ready events.
            let result = if completion.result < 0 { completion.result } else { -libc::EAGAIN };
            return out.push(Completion { token, news: News::Last(Outcome::of(result)) });
        }
        if bits & TAG == RECEIVE {
            return self.report_received(token, completion, out);
        }
        if bits & TAG == ROOM && completion.result >= 0 {
            out.push(Completion { token, news: News::Ready });
            return;
        }
        let result = if bits & TAG == DESCRIPTOR { self.brought(completion) } else { completion.result };
        let outcome = Outcome::of(result);
        let news = if completion.more() { News::Item(outcome) } else { News::Last(outcome) };
        out.push(Completion { token, news });
    }

    #[inline]
    fn report_received(&mut self, token: Token, completion: &Cqe, out: &mut Vec<Completion>) {
        let pool = &self.kernel.pool;
        let mut left = completion.result.max(0) as u32;
        let mut tell = |outcome, last: bool| {
            let news = if last { News::Last(outcome) } else { News::Item(outcome) };
            out.push(Completion { token, news });
        };
        pool.with_ring(|ring| {
            let each = |id, bytes: u32| {
                if bytes == 0 {
                    return pool.put(id);
                }
                left -= bytes;
                // SAFETY: the completion shows that the kernel has filled this buffer and no longer uses it.
                // It is offered again only from the pool's free list, where the drop of the lease puts it.
                let lease = unsafe { pool.lease(id, bytes as usize) };
                let outcome = Outcome { result: bytes as i32, lease: Some(lease) };
                tell(outcome, left == 0 && !completion.more());
            };
            // SAFETY: a completion of a receive, all of which select from this ring's group; completions are
            // popped once, and only this function takes their buffers (`discard` does for a ring that is
            // dropped).
            unsafe { ring.take_each(completion, each) }
        });
        if completion.result > 0 && left == 0 {
            return;
        }
        if completion.result == -libc::ENOBUFS {
            self.counters.ring_empty += 1;
        }
        // Bytes without a buffer would be lost: report an error.
        let result = if left > 0 { -libc::EIO } else { completion.result };
        tell(Outcome::of(result), !completion.more());
    }

    /// Handles a completion that belongs to no slot: the alarm, which only ends the wait; or a late
    /// completion of [`Uring::at_once`], which no longer waits for it.
    #[cold]
    fn handle_internal(&mut self, bits: u64, result: i32) {
        self.in_flight -= 1;
        if bits == INSTALL && result >= 0 {
            // SAFETY: the kernel has just created this descriptor, and reports its number once, here.
            drop(unsafe { OwnedFd::from_raw_fd(result) });
        }
        if bits == AT_ONCE || bits == INSTALL {
            return;
        }
        if result < 0 && !matches!(-result, libc::EINTR | libc::EAGAIN) {
            self.failed = Some(io::Error::from_raw_os_error(-result));
            return;
        }
        self.watch_alarm();
    }

    /// Handles a cancel that found nothing. Either the operation has completed, and its completion follows.
    /// Or the kernel did not find it between two attempts, or cannot interrupt it: then the cancel is sent
    /// again later.
    #[cold]
    pub(super) fn cancel_missed(&mut self, bits: u64) {
        if let Some(place) = self.hold(bits).filter(|place| **place == Place::Cancelled) {
            *place = Place::Doomed;
            self.missed.push(bits);
        }
    }

    /// Cancels everything and takes all completions. Returns true if nothing is in flight any more.
    pub(super) fn drain(&mut self) -> bool {
        // The kernel has not seen these.
        while let Some((bits, ..)) = self.line.pop_front(&self.holds) {
            if bits & TAG == ZERO_COPY {
                self.zero_copy.withdraw(bits);
            }
        }
        self.starved.clear();
        self.cancels.clear();
        self.missed.clear();
        let deadline = Instant::now() + self.patience;
        let mut slice = None;
        loop {
            // Submits the queue first: the cancel does not find entries that are not submitted.
            let completions = u32::from(slice.is_some());
            let entered = self.enter(Wait { completions, timeout: slice, ..Wait::default() });
            while let Some(completion) =
                self.held.pop_front().or_else(|| self.kernel.ring.completions().pop())
            {
                self.discard(&completion);
            }
            if self.in_flight == 0 {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            // Even with no patience, operations that can be cancelled immediately are, and their completions
            // are taken.
            if entered.is_err() || (left.is_zero() && slice.is_some()) {
                return false;
            }
            // The completions carry the results. Repeated, because the kernel does not find an operation
            // between two attempts.
            let _ = self.kernel.ring.cancel_all(left);
            slice = Some(left.min(SLICE));
        }
    }

    /// Disposes of a completion that no operation waits for.
    fn discard(&mut self, completion: &Cqe) {
        let bits = completion.user_data;
        if bits & CANCEL != 0 {
            return;
        }
        if bits & TAG == ZERO_COPY {
            return self.discard_zero_copy(completion);
        }
        if !completion.more() {
            self.in_flight -= 1;
        }
        if bits >= INSTALL {
            if bits == INSTALL && completion.result >= 0 {
                // SAFETY: as in `handle_internal`.
                drop(unsafe { OwnedFd::from_raw_fd(completion.result) });
            }
            return;
        }
        match bits & TAG {
            RECEIVE => {
                let pool = &self.kernel.pool;
                // SAFETY: as in `report_received`.
                pool.with_ring(|ring| unsafe { ring.take_each(completion, |id, _| pool.put(id)) });
            }
            DESCRIPTOR if completion.result >= 0 => {
                // SAFETY: the kernel has just opened this descriptor for us; no other code knows its number.
                drop(unsafe { OwnedFd::from_raw_fd(completion.result) });
            }
            _ => {}
        }
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        // A forked child has nothing in flight: the operations are its parent's.
        let is_ours = self.kernel.ring.is_of_this_process();
        if !is_ours || self.drain() {
            // SAFETY: dropped once, here, and not used after. Nothing is in flight.
            unsafe { ManuallyDrop::drop(&mut self.kernel) }
        }
        if is_ours {
            self.zero_copy.leak();
        }
    }
}
