//! Taking completions: what each one means, a turn's worth at a time; and at the end, taking every last one.
//!
//! INVARIANT: a completion is popped once, and goes either through [`Uring::take`], which tells it, or, when the
//! driver is dropped, through [`Uring::discard`].

use super::{AT_ONCE, CANCEL, DESCRIPTOR, Place, RECEIVE, ROOM, TAG, Uring, ZERO_COPY, is_passing};
use crate::COMPLETIONS_PER_TURN;
use crate::op::{Completion, News, Outcome, Token};
use ringroad_uring::{Cqe, Wait};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long giving up waits for the kernel to let go.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long giving up waits before it asks again.
const SLICE: Duration = Duration::from_millis(10);

impl Uring {
    /// Takes completions and appends what they mean.
    pub(super) fn take(&mut self, out: &mut Vec<Completion>) -> io::Result<()> {
        let start = out.len();
        let end = start + COMPLETIONS_PER_TURN;
        while let Some(completion) = self.next_completion()? {
            // A bundle alone is never longer than a turn (UIO_MAXIOV).
            if self.pieces(&completion) > end - out.len() && out.len() > start {
                self.held.push_front(completion);
                break;
            }
            self.tell(&completion, out);
        }
        // What is handed over next may complete at once, and has to find room beside what was left.
        let queue = self.kernel.ring.completions();
        self.room = queue.entries().saturating_sub(queue.ready());
        Ok(())
    }

    #[inline]
    fn next_completion(&mut self) -> io::Result<Option<Cqe>> {
        if let Some(held) = self.held.pop_front() {
            return Ok(Some(held));
        }
        let (submissions, completions) = self.kernel.ring.queues();
        let next = completions.pop();
        if next.is_some() || !submissions.completion_overflow() {
            return Ok(next);
        }
        self.fetch_overflow()
    }

    /// Has the kernel bring completions that found their queue full.
    #[cold]
    fn fetch_overflow(&mut self) -> io::Result<Option<Cqe>> {
        self.counters.overflows += 1;
        self.counters.system_calls += 1;
        match self.kernel.ring.flush_overflow() {
            Err(why) if !is_passing(&why) => Err(why),
            _ => Ok(self.kernel.ring.completions().pop()),
        }
    }

    /// How many pieces of news a completion is: a bundle one for each buffer.
    #[inline]
    fn pieces(&self, completion: &Cqe) -> usize {
        if !self.abilities.bundles || completion.user_data & TAG != RECEIVE {
            return 1;
        }
        (completion.result.max(1) as usize).div_ceil(self.kernel.pool.buffer_bytes())
    }

    #[inline]
    pub(super) fn tell(&mut self, completion: &Cqe, out: &mut Vec<Completion>) {
        let bits = completion.user_data;
        if bits & CANCEL != 0 {
            return self.cancel_missed(bits & !CANCEL);
        }
        if bits >= AT_ONCE {
            return self.tell_ourselves(bits, completion.result);
        }
        if bits & TAG == ZERO_COPY {
            return self.tell_zero_copy(completion, out);
        }
        if !completion.more() {
            self.in_flight -= 1;
            self.put(bits, Place::Out);
        }
        let token = Token::from_bits(bits & !TAG);
        if bits & TAG == RECEIVE {
            return self.tell_received(token, completion, out);
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
    fn tell_received(&mut self, token: Token, completion: &Cqe, out: &mut Vec<Completion>) {
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
                // SAFETY: the completion has just told that the kernel took this buffer and is done with it. It
                // is offered again only from the pool's free list, where the lease's drop puts it.
                let lease = unsafe { pool.lease(id, bytes as usize) };
                let outcome = Outcome { result: bytes as i32, lease: Some(lease) };
                tell(outcome, left == 0 && !completion.more());
            };
            // SAFETY: a completion of a receive, all of which select from this ring's group; completions are
            // popped once, and this is the only place that shows one (`discard` takes those of a given-up ring).
            unsafe { ring.take_each(completion, each) }
        });
        if completion.result > 0 && left == 0 {
            return;
        }
        if completion.result == -libc::ENOBUFS {
            self.counters.ring_empty += 1;
        }
        // Bytes without a buffer would be bytes lost.
        let result = if left > 0 { -libc::EIO } else { completion.result };
        tell(Outcome::of(result), !completion.more());
    }

    /// What is no operation's. The alarm rang: that the wait is over is all it is for. Or something was waited for by
    /// itself, and that wait failed: nobody asks any more.
    #[cold]
    fn tell_ourselves(&mut self, bits: u64, result: i32) {
        self.in_flight -= 1;
        if bits == AT_ONCE {
            return;
        }
        if result < 0 && !matches!(-result, libc::EINTR | libc::EAGAIN) {
            self.failed = Some(io::Error::from_raw_os_error(-result));
            return;
        }
        self.watch_alarm();
    }

    /// A cancel found nothing. What it was for has completed, which is told in its turn; or it was between two
    /// tries, where the kernel does not see it, or cannot be interrupted, and goes on: then it is cancelled again.
    #[cold]
    pub(super) fn cancel_missed(&mut self, bits: u64) {
        if let Some(place) = self.hold(bits).filter(|place| **place == Place::Cancelled) {
            *place = Place::Doomed;
            self.missed.push(bits);
        }
    }

    /// Cancels everything and takes every last completion. Whether that came to an end in time.
    fn settle(&mut self) -> bool {
        // The kernel has not seen these.
        for (bits, _) in self.line.drain(..).filter(|(bits, _)| bits & TAG == ZERO_COPY) {
            self.zero_copy.withdraw(bits);
        }
        self.starved.clear();
        self.cancels.clear();
        self.missed.clear();
        let deadline = Instant::now() + PATIENCE;
        let mut slice = None;
        loop {
            // What is queued but not submitted would not be found by the cancel.
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
            if entered.is_err() || left.is_zero() {
                return false;
            }
            // What it comes to is told by the completions. Again and again: one between two tries is not found.
            let _ = self.kernel.ring.cancel_all(left);
            slice = Some(left.min(SLICE));
        }
    }

    /// Disposes of what nobody wants any more.
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
        match bits & TAG {
            RECEIVE => {
                let pool = &self.kernel.pool;
                // SAFETY: as in `tell_received`.
                pool.with_ring(|ring| unsafe { ring.take_each(completion, |id, _| pool.put(id)) });
            }
            DESCRIPTOR if completion.result >= 0 => {
                // SAFETY: the kernel has just opened this descriptor for us; nobody else knows its number.
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
        if !is_ours || self.settle() {
            // SAFETY: dropped once, here, and not used after. The kernel has let go of all of it.
            unsafe { ManuallyDrop::drop(&mut self.kernel) }
        }
        if is_ours {
            self.zero_copy.leak();
        }
    }
}
