//! A buffer ring (5.19): a group of equal buffers from which the kernel takes one when data arrives.
//!
//! So thousands of idle connections hold no receive buffer: a request names the group, and the kernel picks a
//! buffer when data arrives. User space owns the tail (buffers offered); the kernel's head is internal.
//!
//! INVARIANT: a buffer is in exactly one place: offered (between the kernel's head and the tail), or owned by
//! user space (taken by a completion, not yet given back). `ours` records which, so that no buffer is offered
//! twice and no bytes are readable that the kernel may be writing. Only a completion transfers a buffer to
//! user space: so [`BufferRing::take`] is unsafe, and the rest is safe.

use crate::abi::{io_uring_buf, io_uring_buf_reg, io_uring_register_op};
use crate::complete::Cqe;
use crate::map::Mapping;
use crate::ring::{Handle, Ring};
use std::io;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicU16, Ordering};

/// The largest number of buffers in one ring.
pub const BUFFERS_MAX: u16 = 1 << 15;

/// A registered group of `entries` buffers of `buffer_bytes` each.
#[derive(Debug)]
pub struct BufferRing {
    group: u16,
    tail: u16,
    mask: u16,
    entries: u16,
    buffer_bytes: u32,
    outstanding: u16,
    /// By buffer: user space owns it.
    ours: Vec<bool>,
    /// By buffer: the one offered right after it. A bundle names its first buffer only; the kernel took the
    /// rest in this order. Kept beside the slots because a slot may be filled again before the completion
    /// that used it is seen: completions arrive in any order. A buffer's follower changes only when the
    /// buffer itself is offered again.
    next: Vec<u16>,
    last_staged: u16,
    /// The ring of `io_uring_buf` the kernel reads.
    slots: Mapping,
    /// The buffers, one after another.
    memory: Mapping,
    handle: Rc<Handle>,
}

impl BufferRing {
    /// Registers group `group` with `ring` and offers all its buffers. `entries` is a power of two, at most
    /// [`BUFFERS_MAX`]. Errors: EEXIST (the group is in use), EINVAL (before 5.19), ENOMEM.
    pub fn new(ring: &Ring, group: u16, entries: u16, buffer_bytes: u32) -> io::Result<BufferRing> {
        if !entries.is_power_of_two() || entries > BUFFERS_MAX || buffer_bytes == 0 {
            let why = format!(
                "a buffer ring has a power of two of buffers, at most {BUFFERS_MAX}, of one byte or more: not {entries} of {buffer_bytes}"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let slots = Mapping::anonymous(usize::from(entries) * size_of::<io_uring_buf>())?;
        let memory = Mapping::anonymous(usize::from(entries) * buffer_bytes as usize)?;
        let argument = io_uring_buf_reg {
            ring_addr: slots.start() as u64,
            ring_entries: u32::from(entries),
            bgid: group,
            flags: 0,
            resv: [0; 3],
        };
        // SAFETY: one such structure is read during the call. The slots' memory is page-aligned, of the size
        // `entries` says, and stays mapped until `drop` has unregistered the group: both mappings are owned
        // by the value made here and die after its `drop` body.
        unsafe {
            ring.handle.register(
                io_uring_register_op::IORING_REGISTER_PBUF_RING,
                (&raw const argument).cast(),
                1,
            )?
        };
        let mut buffers = BufferRing {
            group,
            tail: 0,
            mask: entries - 1,
            entries,
            buffer_bytes,
            outstanding: entries,
            ours: vec![true; usize::from(entries)],
            next: vec![0; usize::from(entries)],
            last_staged: 0,
            slots,
            memory,
            handle: Rc::clone(&ring.handle),
        };
        for id in 0..entries {
            buffers.stage(id);
        }
        buffers.offer();
        Ok(buffers)
    }

    /// Returns the group's number, for [`crate::Sqe::buffer_group`].
    pub fn group(&self) -> u16 {
        self.group
    }

    /// Returns the number of buffers.
    pub fn entries(&self) -> u16 {
        self.entries
    }

    /// Returns the size of each buffer in bytes.
    pub fn buffer_bytes(&self) -> u32 {
        self.buffer_bytes
    }

    /// Returns the start of the buffers: buffer `id` is at offset `id * buffer_bytes`. For callers that track
    /// ownership themselves; reading a buffer needs the promise of [`take`](Self::take).
    pub fn start(&self) -> NonNull<u8> {
        self.memory.start_non_null()
    }

    /// Returns the number of buffers that completions have taken and [`give_back`](Self::give_back) has not
    /// returned.
    ///
    /// Counted from the completions shown to [`take`](Self::take).
    pub fn outstanding(&self) -> u16 {
        self.outstanding
    }

    /// Returns the bytes of a completion, or `None` if it carries no buffer. They stay valid until this
    /// buffer is given back; [`give_back`](Self::give_back) must be called once for each `Some`, also when it
    /// is empty.
    ///
    /// # Safety
    /// The completion came from this ring, for an entry that selects from this group, and is shown here for
    /// the first time. A completion that is made up, another group's, or shown again would let the kernel
    /// write what is read here.
    #[inline]
    pub unsafe fn take(&mut self, completion: &Cqe) -> Option<(u16, &mut [u8])> {
        let id = completion.buffer_id()?;
        assert!(id < self.entries, "the kernel names buffer {id} of {}", self.entries);
        assert!(!std::mem::replace(&mut self.ours[usize::from(id)], true), "buffer {id} is taken already");
        self.outstanding += 1;
        Some((id, self.bytes(id, completion.result.max(0) as usize)))
    }

    /// Calls `each` with every buffer that a completion filled, in order, and the number of bytes in it: one
    /// buffer, or several for a receive with [`Sqe::bundle`](crate::Sqe::bundle). None for a completion that
    /// carries no buffer. Each one must be given back once.
    ///
    /// # Safety
    /// As [`take`](Self::take).
    #[inline]
    pub unsafe fn take_each(&mut self, completion: &Cqe, mut each: impl FnMut(u16, u32)) {
        let Some(mut id) = completion.buffer_id() else { return };
        let mut left = completion.result.max(0) as u32;
        loop {
            assert!(id < self.entries, "the kernel names buffer {id} of {}", self.entries);
            assert!(
                !std::mem::replace(&mut self.ours[usize::from(id)], true),
                "buffer {id} is taken already"
            );
            self.outstanding += 1;
            let bytes = left.min(self.buffer_bytes);
            left -= bytes;
            each(id, bytes);
            if left == 0 {
                return;
            }
            id = self.next[usize::from(id)];
        }
    }

    /// Returns the first `length` bytes of buffer `id`, which a completion has taken and which is not yet
    /// given back.
    #[inline]
    pub fn bytes(&mut self, id: u16, length: usize) -> &mut [u8] {
        assert!(id < self.entries && length <= self.buffer_bytes as usize);
        assert!(self.ours[usize::from(id)], "buffer {id} is offered: the kernel may write it");
        // SAFETY: inside the mapping, by the first line. The buffer is ours, by the second: the kernel does
        // not write it after the completion that named it, until it is offered again by `stage` and `offer`,
        // which need `&mut self` while this slice borrows it. The memory is initialised: anonymous pages are
        // zeroed.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.memory.start().add(usize::from(id) * self.buffer_bytes as usize),
                length,
            )
        }
    }

    /// Returns a buffer to the kernel at once.
    #[inline]
    pub fn give_back(&mut self, id: u16) {
        self.stage(id);
        self.offer();
    }

    /// Prepares a buffer for the next [`offer`](Self::offer), so that several buffers share one store of the
    /// tail.
    #[inline]
    pub fn stage(&mut self, id: u16) {
        assert!(id < self.entries, "buffer {id} of {}", self.entries);
        assert!(
            std::mem::replace(&mut self.ours[usize::from(id)], false),
            "buffer {id} is given back, but not taken"
        );
        self.handle.guard.assert_owner();
        self.outstanding -= 1;
        self.next[usize::from(self.last_staged)] = id;
        self.last_staged = id;
        let index = usize::from(self.tail & self.mask);
        let address = self.memory.start() as u64 + u64::from(id) * u64::from(self.buffer_bytes);
        // SAFETY: `index < entries`, inside the mapping. By the INVARIANT at most `entries` buffers are
        // offered, so the slot at the tail is not one the kernel still has to read. Field by field: the last
        // one, `resv`, of slot 0 is where the kernel's tail lies, and must not be written.
        unsafe {
            let slot = self.slots.start().cast::<io_uring_buf>().add(index);
            (*slot).addr = address;
            (*slot).len = self.buffer_bytes;
            (*slot).bid = id;
        }
        self.tail = self.tail.wrapping_add(1);
    }

    /// Shows staged buffers to the kernel.
    #[inline]
    pub fn offer(&mut self) {
        // The tail overlays the last two bytes of slot 0 (asserted in `abi.rs`).
        let tail = self.slots.at::<AtomicU16>(std::mem::offset_of!(io_uring_buf, resv) as u32);
        // SAFETY: inside the mapping; the kernel only reads it.
        // Release: pairs with the kernel's acquire load of the tail (io_uring/kbuf.c, io_ring_buffer_select),
        // so the slots below it are whole, and our reads of a buffer's bytes are over, before it is taken.
        unsafe { (*tail).store(self.tail, Ordering::Release) };
    }
}

impl Drop for BufferRing {
    fn drop(&mut self) {
        let argument =
            io_uring_buf_reg { ring_addr: 0, ring_entries: 0, bgid: self.group, flags: 0, resv: [0; 3] };
        // After this the kernel takes no buffer of the group. A request that has taken one and not completed
        // is covered by the promise of `Slot::fill`.
        // SAFETY: one such structure is read during the call.
        let gone = unsafe {
            self.handle.register(
                io_uring_register_op::IORING_UNREGISTER_PBUF_RING,
                (&raw const argument).cast(),
                1,
            )
        };
        // In a forked child the call is refused, and these mappings are the child's private copies. In the
        // process that made the ring a refusal leaves it open whether the kernel still writes into the
        // buffers: they stay mapped for good.
        if gone.is_err() && self.handle.guard.is_owner() {
            self.slots.forget();
            self.memory.forget();
        }
    }
}
