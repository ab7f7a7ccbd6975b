//! The submission queue: reserve an entry, fill it, publish the tail.
//!
//! User space owns the tail, the kernel owns the head. Both count up for ever and wrap at 2^32; an index is
//! the count masked by `entries - 1`.
//!
//! INVARIANT: `head <= published <= tail` and `tail - head <= entries` (in wrapping arithmetic): an entry
//! between head and published belongs to the kernel, one between published and tail is filled and owned by
//! user space, the rest is free.

use crate::abi::{IORING_SQ_CQ_OVERFLOW, IORING_SQ_NEED_WAKEUP, io_uring_params, io_uring_sqe};
use crate::entry::Sqe;
use crate::fork::ForkGuard;
use crate::map::Mapping;
use std::fmt;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The producer's side of the submission queue, borrowed from its [`Ring`](crate::Ring).
///
/// It is returned by value and borrows the ring, so a queue can neither outlive its ring nor be swapped with
/// that of another one:
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut ring = ringroad_uring::Ring::builder(8).build()?;
/// let queue = ring.submissions();
/// assert_eq!(queue.pending(), 0);
/// # Ok(())
/// # }
/// ```
///
/// ```compile_fail,E0308
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut one = ringroad_uring::Ring::builder(8).build()?;
/// let mut other = ringroad_uring::Ring::builder(8).build()?;
/// std::mem::swap(one.submissions(), other.submissions());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SubmissionQueue<'ring> {
    queue: &'ring mut Submissions,
}

/// The submission queue itself. Only the [`Ring`](crate::Ring) owns one, beside the mappings it points into,
/// and never moves it out: every pointer below is valid for as long as this value can be reached.
#[derive(Debug)]
pub(crate) struct Submissions {
    /// Next entry to hand out: our private count.
    tail: u32,
    /// The tail as the kernel sees it: behind `tail` by the entries filled since the last publish.
    published: u32,
    mask: u32,
    entries: u32,
    kernel_head: *const AtomicU32,
    kernel_tail: *const AtomicU32,
    kernel_flags: *const AtomicU32,
    kernel_dropped: *const AtomicU32,
    slots: *mut io_uring_sqe,
    guard: Rc<ForkGuard>,
}

/// The queue is full: the kernel has not consumed earlier entries yet. Submit, then try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the submission queue is full: submit what it holds first")
    }
}

impl std::error::Error for Full {}

/// A reserved, free entry. It counts only once filled: a slot that is dropped unfilled was never taken.
#[derive(Debug)]
pub struct Slot<'queue> {
    queue: &'queue mut Submissions,
}

impl Submissions {
    /// Lays the queue over its mappings. `rings` and `slots` must outlive it: the ring owns all three.
    pub(crate) fn new(
        params: &io_uring_params,
        rings: &Mapping,
        slots: &Mapping,
        guard: Rc<ForkGuard>,
    ) -> Submissions {
        let at = &params.sq_off;
        let entries = params.sq_entries;
        let queue = Submissions {
            tail: 0,
            published: 0,
            mask: entries - 1,
            entries,
            kernel_head: rings.at::<AtomicU32>(at.head),
            kernel_tail: rings.at::<AtomicU32>(at.tail),
            kernel_flags: rings.at::<AtomicU32>(at.flags),
            kernel_dropped: rings.at::<AtomicU32>(at.dropped),
            slots: slots.at::<io_uring_sqe>(0),
            guard,
        };
        assert!(entries.is_power_of_two(), "the kernel rounds entries up to a power of two");
        // SAFETY: the words lie in the mapping (checked by `at`) and are valid for the whole of its life.
        let (mask, tail) =
            unsafe { (*rings.at::<u32>(at.ring_mask), (*queue.kernel_tail).load(Ordering::Relaxed)) };
        assert_eq!(mask, queue.mask, "the mask the kernel shows is the one we compute");
        assert_eq!(tail, 0, "a new queue is empty");
        if params.flags & crate::abi::IORING_SETUP_NO_SQARRAY == 0 {
            // The kernel finds entry i through array[i]. We always use the identity, so it is written once.
            for index in 0..entries {
                // SAFETY: as above; before the first publish the kernel reads nothing here.
                unsafe { rings.at::<u32>(at.array + index * size_of::<u32>() as u32).write(index) };
            }
        }
        queue
    }

    /// Shows the filled entries to the kernel and returns how many it has not consumed yet.
    #[inline]
    pub(crate) fn publish(&mut self) -> u32 {
        self.guard.assert_owner();
        if self.published != self.tail {
            // SAFETY: the word lies in the rings' mapping. The `Ring` owns that mapping and this queue, drops
            // neither before itself, and lends this queue only inside a view that borrows the ring: it cannot
            // be reached after the mapping is gone, nor from another ring.
            // Release: pairs with the kernel's acquire load of the tail (io_uring/io_uring.c,
            // io_sqring_entries), so the entries written before it are whole when the kernel reads them.
            unsafe { (*self.kernel_tail).store(self.tail, Ordering::Release) };
            self.published = self.tail;
        }
        self.pending()
    }

    #[inline]
    fn pending(&self) -> u32 {
        self.tail.wrapping_sub(self.consumed())
    }

    /// Returns whether the SQPOLL thread sleeps and must be woken by `enter`. Call after
    /// [`publish`](Self::publish).
    #[inline]
    pub(crate) fn needs_wakeup(&self) -> bool {
        // The tail must be visible before the flag is read, or both sides could go to sleep: a full fence,
        // pairing with the one between the kernel's set of NEED_WAKEUP and its last look at the tail
        // (io_uring/sqpoll.c).
        std::sync::atomic::fence(Ordering::SeqCst);
        self.flags() & IORING_SQ_NEED_WAKEUP != 0
    }

    #[inline]
    fn flags(&self) -> u32 {
        self.guard.assert_owner();
        // SAFETY: as in `publish`. Relaxed: each flag only asks for a later `enter`, which synchronises.
        unsafe { (*self.kernel_flags).load(Ordering::Relaxed) }
    }

    #[inline]
    fn consumed(&self) -> u32 {
        self.guard.assert_owner();
        // SAFETY: as in `publish`.
        // Acquire: pairs with the kernel's release store of the head (io_commit_sqring). An entry below it
        // has been copied, so the write that reuses it cannot be seen by the kernel's read.
        unsafe { (*self.kernel_head).load(Ordering::Acquire) }
    }
}

impl<'ring> SubmissionQueue<'ring> {
    #[inline]
    pub(crate) fn of(queue: &'ring mut Submissions) -> SubmissionQueue<'ring> {
        SubmissionQueue { queue }
    }

    /// Returns how many entries the queue holds.
    pub fn entries(&self) -> u32 {
        self.queue.entries
    }

    /// Returns the number of entries that are filled and that the kernel has not consumed yet.
    #[inline]
    pub fn pending(&self) -> u32 {
        self.queue.pending()
    }

    /// Returns whether the next [`reserve`](Self::reserve) would fail.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.pending() == self.queue.entries
    }

    /// Takes the next free entry, or `None` when the kernel has not consumed enough of the earlier ones.
    #[inline]
    pub fn reserve(&mut self) -> Option<Slot<'_>> {
        if self.is_full() { None } else { Some(Slot { queue: self.queue }) }
    }

    /// Reserves an entry and fills it.
    ///
    /// # Safety
    /// As [`Slot::fill`].
    #[inline]
    pub unsafe fn push(&mut self, entry: Sqe) -> Result<(), Full> {
        match self.reserve() {
            Some(slot) => {
                // SAFETY: the caller makes the promise of `Slot::fill`.
                unsafe { slot.fill(entry) };
                Ok(())
            }
            None => Err(Full),
        }
    }

    /// Shows the filled entries to the kernel and returns how many it has not consumed yet. Without SQPOLL
    /// the kernel looks only during `enter`; with it, from now on.
    #[inline]
    pub fn publish(&mut self) -> u32 {
        self.queue.publish()
    }

    /// Returns whether completions did not fit in their queue and wait in kernel memory: `enter` with
    /// GETEVENTS brings them.
    #[inline]
    pub fn completion_overflow(&self) -> bool {
        self.queue.flags() & IORING_SQ_CQ_OVERFLOW != 0
    }

    /// Returns the number of entries that the kernel refused as invalid and dropped without a completion. (An
    /// index was out of range, which the identity array excludes: a count above zero is a bug of this crate.)
    pub fn dropped(&self) -> u32 {
        self.queue.guard.assert_owner();
        // SAFETY: as in `Submissions::publish`. Relaxed: a counter for people.
        unsafe { (*self.queue.kernel_dropped).load(Ordering::Relaxed) }
    }
}

impl Slot<'_> {
    /// Writes the entry. The kernel sees it at the next publish or `enter`.
    ///
    /// # Safety
    /// Until the entry's last completion (no [`crate::Cqe::more`]; for a zero-copy send the notification):
    /// memory the entry names stays mapped at its address, is not written by us if the kernel reads it, and
    /// neither read nor written by us if the kernel writes it; a buffer group it selects from
    /// ([`Sqe::buffer_group`]) keeps its [`crate::BufferRing`]. A submit that fails does not end this: the
    /// kernel may have consumed the entry all the same.
    #[inline]
    pub unsafe fn fill(self, entry: Sqe) {
        let queue = self.queue;
        let index = (queue.tail & queue.mask) as usize;
        // SAFETY: `index < entries`, so the slot lies in the mapping; by the INVARIANT it is ours: `reserve`
        // saw `tail - head < entries` with an acquire load, and only we move the tail.
        unsafe { queue.slots.add(index).write(entry.raw) };
        queue.tail = queue.tail.wrapping_add(1);
    }
}
