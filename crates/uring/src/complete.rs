//! The completion queue: observe the tail, copy an entry out, advance the head.
//!
//! The mirror image of `submit.rs`: the kernel owns the tail, user space the head.
//!
//! INVARIANT: `head <= seen <= tail` (wrapping): entries between head and seen were observed and are whole;
//! the kernel does not overwrite an entry until the head has passed it.

use crate::abi::{
    IORING_CQE_BUFFER_SHIFT, IORING_CQE_F_BUFFER, IORING_CQE_F_MORE, IORING_CQE_F_NOTIF,
    IORING_CQE_F_SOCK_NONEMPTY, IORING_NOTIF_USAGE_ZC_COPIED, io_uring_cqe, io_uring_params,
};
use crate::fork::ForkGuard;
use crate::map::Mapping;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A completion, copied out of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cqe {
    /// What the entry carried.
    pub user_data: u64,
    /// The result as the kernel gives it: a count, a descriptor, zero, or a negated errno. `EINTR` stands for
    /// the kernel's own numbers of an interrupted call, which some operations complete with when the process
    /// is stopped and goes on.
    pub result: i32,
    /// `IORING_CQE_F_*`.
    pub flags: u32,
}

impl Cqe {
    /// Returns the result, with a negated errno as an error.
    #[inline]
    pub fn result(&self) -> io::Result<u32> {
        if self.result < 0 { Err(io::Error::from_raw_os_error(-self.result)) } else { Ok(self.result as u32) }
    }

    /// Returns whether more completions of the same entry will follow; without it this one is the last.
    #[inline]
    pub fn more(&self) -> bool {
        self.flags & IORING_CQE_F_MORE != 0
    }

    /// Returns the buffer the kernel took from the entry's group. Its bytes `0..result` are valid. Set even
    /// when `result` is zero: the buffer must be given back all the same.
    #[inline]
    pub fn buffer_id(&self) -> Option<u16> {
        if self.flags & IORING_CQE_F_BUFFER != 0 {
            Some((self.flags >> IORING_CQE_BUFFER_SHIFT) as u16)
        } else {
            None
        }
    }

    /// Returns whether the socket had more to read when this receive ended (5.19): a hint that another
    /// receive would not wait.
    #[inline]
    pub fn socket_nonempty(&self) -> bool {
        self.flags & IORING_CQE_F_SOCK_NONEMPTY != 0
    }

    /// Returns whether this is the notification of a zero-copy send: only now may its memory be reused (6.0).
    #[inline]
    pub fn is_notification(&self) -> bool {
        self.flags & IORING_CQE_F_NOTIF != 0
    }

    /// Returns whether this is a notification that says the kernel copied some or all of the bytes, as it
    /// always does over loopback. Reported only for an entry that [asked](crate::Sqe::report_usage) (6.2).
    #[inline]
    pub fn was_copied(&self) -> bool {
        self.is_notification() && self.result as u32 & IORING_NOTIF_USAGE_ZC_COPIED != 0
    }
}

/// Maps `ERESTARTSYS`, `ERESTARTNOINTR`, `ERESTARTNOHAND` and `ERESTART_RESTARTBLOCK` (`linux/errno.h`),
/// which user space does not know, to `EINTR`.
#[inline]
fn as_errno(result: i32) -> i32 {
    if matches!(result, -514..=-512 | -516) { -libc::EINTR } else { result }
}

/// The consumer's side of the completion queue, borrowed from its [`Ring`](crate::Ring).
///
/// Like the [`SubmissionQueue`](crate::SubmissionQueue), it cannot be swapped with that of another ring:
///
/// ```compile_fail,E0308
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut one = ringroad_uring::Ring::builder(8).build()?;
/// let mut other = ringroad_uring::Ring::builder(8).build()?;
/// std::mem::swap(one.completions(), other.completions());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct CompletionQueue<'ring> {
    queue: &'ring mut Completions,
}

/// The completion queue itself. Only the [`Ring`](crate::Ring) owns one, beside the mapping it points into,
/// and never moves it out: every pointer below is valid for as long as this value can be reached.
#[derive(Debug)]
pub(crate) struct Completions {
    /// Next entry to take: our private count, always equal to what the kernel has been told.
    head: u32,
    /// The tail as last observed.
    seen: u32,
    mask: u32,
    entries: u32,
    kernel_head: *const AtomicU32,
    kernel_tail: *const AtomicU32,
    kernel_overflow: *const AtomicU32,
    slots: *const io_uring_cqe,
    guard: Rc<ForkGuard>,
}

impl Completions {
    /// Lays the queue over its mapping. `rings` must outlive it: the ring owns both.
    pub(crate) fn new(params: &io_uring_params, rings: &Mapping, guard: Rc<ForkGuard>) -> Completions {
        let at = &params.cq_off;
        let entries = params.cq_entries;
        assert!(entries.is_power_of_two(), "the kernel rounds entries up to a power of two");
        // The last entry lies inside too, so every masked index does.
        let last = at.cqes + (entries - 1) * size_of::<io_uring_cqe>() as u32;
        let _ = rings.at::<io_uring_cqe>(last);
        Completions {
            head: 0,
            seen: 0,
            mask: entries - 1,
            entries,
            kernel_head: rings.at::<AtomicU32>(at.head),
            kernel_tail: rings.at::<AtomicU32>(at.tail),
            kernel_overflow: rings.at::<AtomicU32>(at.overflow),
            slots: rings.at::<io_uring_cqe>(at.cqes),
            guard,
        }
    }

    #[inline]
    fn pop(&mut self) -> Option<Cqe> {
        self.guard.assert_owner();
        if self.head == self.seen {
            self.observe();
            if self.head == self.seen {
                return None;
            }
        }
        let index = (self.head & self.mask) as usize;
        // SAFETY: `index < entries`, so the entry lies in the mapping (`new` checked the last one). The
        // `Ring` owns that mapping and this queue, drops neither before itself, and lends this queue only
        // inside a view that borrows the ring: it cannot be reached after the mapping is gone, nor from
        // another ring. By the INVARIANT the entry is whole, and the kernel will not write it until the head
        // has passed it, which happens below, after the copy.
        let entry = unsafe {
            let slot = self.slots.add(index);
            Cqe { user_data: (*slot).user_data, result: as_errno((*slot).res), flags: (*slot).flags }
        };
        self.head = self.head.wrapping_add(1);
        // SAFETY: the word lies in the same mapping.
        // Release: pairs with the kernel's acquire of the head (io_uring/io_uring.c, __io_get_cqe refill: a
        // control dependency on the head it read), so our copy is finished before the entry is written again.
        unsafe { (*self.kernel_head).store(self.head, Ordering::Release) };
        Some(entry)
    }

    #[inline]
    fn observe(&mut self) {
        // SAFETY: as in `pop`.
        // Acquire: pairs with the kernel's release store of the tail (io_commit_cqring), so every entry below
        // it is whole when we read it.
        self.seen = unsafe { (*self.kernel_tail).load(Ordering::Acquire) };
    }
}

impl<'ring> CompletionQueue<'ring> {
    #[inline]
    pub(crate) fn of(queue: &'ring mut Completions) -> CompletionQueue<'ring> {
        CompletionQueue { queue }
    }

    /// Returns how many entries the queue holds.
    pub fn entries(&self) -> u32 {
        self.queue.entries
    }

    /// Returns how many completions wait, with a fresh look at the tail.
    #[inline]
    pub fn ready(&mut self) -> u32 {
        self.queue.guard.assert_owner();
        self.queue.observe();
        self.queue.seen.wrapping_sub(self.queue.head)
    }

    /// Takes the next completion, looking at the tail again only when those seen before are used up.
    #[inline]
    pub fn pop(&mut self) -> Option<Cqe> {
        self.queue.pop()
    }

    /// Returns the number of completions that the kernel lost because it could not even keep them aside (only
    /// without `IORING_FEAT_NODROP`, before 5.5). Above zero the state of the ring is unknown: drop the ring.
    pub fn lost(&self) -> u32 {
        self.queue.guard.assert_owner();
        // SAFETY: as in `Completions::pop`. Relaxed: a counter.
        unsafe { (*self.queue.kernel_overflow).load(Ordering::Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_interrupted_calls_that_the_kernel_keeps_to_itself_are_told_as_eintr() {
        for own in [512, 513, 514, 516] {
            assert_eq!(as_errno(-own), -libc::EINTR);
        }
        for result in [0, 512, 4096, -libc::EAGAIN, -libc::ENOENT, -511, -515, -517, i32::MIN] {
            assert_eq!(as_errno(result), result);
        }
    }
}
