//! The pool of receive buffers, and leases of them.
//!
//! A waiting connection holds no buffer. A receive takes a buffer when data has arrived and lends it out as a
//! [`Lease`], which returns it when it is dropped. Spare buffers are reused last in, first out, so that many
//! small receives use one buffer that stays in the cache.
//!
//! INVARIANT: a buffer is in exactly one place: free (in `free`), with the kernel (of a buffer ring), or out
//! (named by one lease). At most half of the buffers are out; beyond that a lease is a copy of its bytes, and
//! the buffer is free immediately. So a program that keeps leases uses its own memory, and can never stop
//! receiving.

use crate::pages::Pages;
use ringroad_uring::BufferRing;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::rc::Rc;

/// A set of buffers of equal size, and where each is.
pub(crate) struct Pool {
    start: NonNull<u8>,
    buffer_bytes: usize,
    count: u16,
    /// The buffer that was returned last, or [`NONE`]. Used next, because it is in the cache.
    hot: Cell<u16>,
    /// The other free buffers. With a buffer ring: those to be offered to the kernel again.
    free: RefCell<Vec<u16>>,
    /// Buffers named by leases.
    out: Cell<u16>,
    memory: Memory,
    /// Spare large buffers, the most recently used last. Empty until a stream is first in bulk.
    #[expect(clippy::vec_box, reason = "a lease has the box, and is made and dropped without an allocation")]
    large: RefCell<Vec<Box<Large>>>,
    /// Large buffers named by leases.
    large_out: Cell<u16>,
}

/// A large buffer for receives in bulk. Only plain system calls write it, so the kernel never holds one.
pub(crate) struct Large {
    bytes: Vec<u8>,
    /// Number of consumed bytes at the front.
    start: usize,
    /// The pool it returns to, while a lease has it.
    home: Option<Rc<Pool>>,
}

/// Memory of the buffers.
enum Memory {
    /// Owned pages. Kept for their drop; the bytes are accessed through `start`.
    Own { _pages: Pages },
    /// A buffer ring that the kernel takes them from.
    Ring(RefCell<BufferRing>),
}

impl Pool {
    /// Creates `count` buffers of `buffer_bytes` each (at most [`BUFFER_BYTES_MAX`], so that a position fits
    /// a lease).
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn new(count: u16, buffer_bytes: usize) -> io::Result<Rc<Pool>> {
        assert!((1..=BUFFER_BYTES_MAX).contains(&buffer_bytes) && count > 0, "{count} x {buffer_bytes}");
        // Unused pages stay untouched and take no memory.
        let pages = Pages::new(usize::from(count) * buffer_bytes)?;
        Ok(Rc::new(Pool {
            start: pages.start(),
            buffer_bytes,
            count,
            hot: Cell::new(NONE),
            free: RefCell::new((0..count).rev().collect()),
            out: Cell::new(0),
            memory: Memory::Own { _pages: pages },
            large: RefCell::default(),
            large_out: Cell::new(0),
        }))
    }

    /// Creates a pool of the buffers of a ring, all of them with the kernel.
    pub(crate) fn of_ring(ring: BufferRing) -> Rc<Pool> {
        let buffer_bytes = ring.buffer_bytes() as usize;
        assert!(buffer_bytes <= BUFFER_BYTES_MAX, "{buffer_bytes}");
        Rc::new(Pool {
            start: ring.start(),
            buffer_bytes,
            count: ring.entries(),
            hot: Cell::new(NONE),
            free: RefCell::new(Vec::with_capacity(usize::from(ring.entries()))),
            out: Cell::new(0),
            memory: Memory::Ring(RefCell::new(ring)),
            large: RefCell::default(),
            large_out: Cell::new(0),
        })
    }

    /// Returns the size of each buffer in bytes.
    #[inline]
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// Buffers named by leases.
    #[cfg(feature = "sim")]
    #[inline]
    pub(crate) fn out(&self) -> u16 {
        self.out.get()
    }

    /// Returns the number of buffers.
    #[cfg(feature = "sim")]
    pub(crate) fn count(&self) -> u16 {
        self.count
    }

    /// Returns the number of buffers that are neither leased nor with an operation.
    #[cfg(feature = "sim")]
    pub(crate) fn free(&self) -> usize {
        self.free.borrow().len() + usize::from(self.hot.get() != NONE)
    }

    /// Returns whether more than half of the buffers are lent out.
    #[inline]
    pub(crate) fn is_strained(&self) -> bool {
        self.out.get() > self.count / 2
    }

    /// Takes a free buffer, for [`Pool::lease`] or [`Pool::put`].
    #[inline]
    pub(crate) fn take(&self) -> Option<u16> {
        match self.hot.replace(NONE) {
            NONE => self.free.borrow_mut().pop(),
            id => Some(id),
        }
    }

    /// Takes back a buffer that no lease names.
    #[inline]
    pub(crate) fn put(&self, id: u16) {
        match self.hot.replace(id) {
            NONE => {}
            other => self.free.borrow_mut().push(other),
        }
    }

    /// Returns the start of buffer `id`.
    #[inline]
    pub(crate) fn buffer(&self, id: u16) -> NonNull<u8> {
        assert!(id < self.count, "buffer {id} of {}", self.count);
        // SAFETY: inside the allocation, by the line above.
        unsafe { self.start.add(usize::from(id) * self.buffer_bytes) }
    }

    /// Lends out the first `bytes` of buffer `id`.
    ///
    /// # Safety
    /// The buffer was taken ([`Pool::take`], or by the kernel from the ring, as reported by a completion), no
    /// other lease names it, and nothing writes it until the lease is dropped.
    #[inline]
    pub(crate) unsafe fn lease(self: &Rc<Pool>, id: u16, bytes: usize) -> Lease {
        assert!(bytes <= self.buffer_bytes, "{bytes} bytes of a buffer of {}", self.buffer_bytes);
        self.out.set(self.out.get() + 1);
        let lease = Lease(Inner::Pooled { pool: Rc::clone(self), id, start: 0, end: bytes as u16 });
        if self.is_strained() { lease.into_own() } else { lease }
    }

    /// Takes a spare large buffer, or makes one: empty, with room for [`LARGE_BYTES`].
    #[inline]
    pub(crate) fn take_large(&self) -> Box<Large> {
        let spare = self.large.borrow_mut().pop();
        spare.unwrap_or_else(|| {
            Box::new(Large { bytes: Vec::with_capacity(LARGE_BYTES), start: 0, home: None })
        })
    }

    /// Takes back a large buffer that no lease names.
    pub(crate) fn put_large(&self, mut large: Box<Large>) {
        let mut spare = self.large.borrow_mut();
        if spare.len() < LARGE_SPARE && large.bytes.capacity() >= LARGE_BYTES {
            large.bytes.clear();
            large.start = 0;
            spare.push(large);
        }
    }

    /// Lends out the first `bytes` of a large buffer: the buffer itself if it is mostly filled, otherwise a
    /// copy. So a lease that is kept takes little more memory than its bytes.
    ///
    /// # Safety
    /// At least `bytes` of the buffer were written since it was taken.
    pub(crate) unsafe fn lease_large(self: &Rc<Pool>, mut large: Box<Large>, bytes: usize) -> Lease {
        assert!(bytes <= large.bytes.capacity(), "{bytes} bytes of {}", large.bytes.capacity());
        // SAFETY: inside the capacity, by the line above; written, as the caller promises.
        unsafe { large.bytes.set_len(bytes) };
        if bytes <= self.buffer_bytes {
            let lease = self.lease_copy(&large.bytes);
            self.put_large(large);
            return lease;
        }
        if self.large_out.get() < LARGE_OUT {
            self.large_out.set(self.large_out.get() + 1);
            large.home = Some(Rc::clone(self));
            return Lease(Inner::Large(large));
        }
        if bytes <= LARGE_BYTES / 2 {
            let lease = Lease::own(Box::new(Tail { bytes: large.bytes.clone(), start: 0 }));
            self.put_large(large);
            return lease;
        }
        Lease::own(Box::new(Tail { bytes: large.bytes, start: 0 }))
    }

    /// Lends out a copy of bytes that fit a buffer: in a buffer of the pool if one is free.
    pub(crate) fn lease_copy(self: &Rc<Pool>, bytes: &[u8]) -> Lease {
        assert!(
            bytes.len() <= self.buffer_bytes,
            "{} bytes for a buffer of {}",
            bytes.len(),
            self.buffer_bytes
        );
        let Some(id) = self.take() else {
            return Lease::own(Box::new(Tail { bytes: bytes.to_vec(), start: 0 }));
        };
        // SAFETY: the buffer was just taken, so `bytes` does not overlap it and no other code uses it until
        // the lease is dropped; the first line checks its length.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.buffer(id).as_ptr(), bytes.len());
            self.lease(id, bytes.len())
        }
    }

    /// With a buffer ring: passes every free buffer to `offer`, to be put back into the ring.
    pub(crate) fn refill(&self, offer: impl FnOnce(&mut BufferRing, &mut Vec<u16>)) {
        if let Memory::Ring(ring) = &self.memory {
            let mut free = self.free.borrow_mut();
            match self.hot.replace(NONE) {
                NONE => {}
                id => free.push(id),
            }
            if !free.is_empty() {
                offer(&mut ring.borrow_mut(), &mut free);
            }
        }
    }

    /// With a buffer ring: runs `look` on it.
    pub(crate) fn with_ring<R>(&self, look: impl FnOnce(&mut BufferRing) -> R) -> Option<R> {
        match &self.memory {
            Memory::Ring(ring) => Some(look(&mut ring.borrow_mut())),
            Memory::Own { .. } => None,
        }
    }
}

/// No buffer: there are at most 2^15.
const NONE: u16 = u16::MAX;

/// Maximum size of a buffer in bytes: whole pages, and positions have 16 bits.
pub(crate) const BUFFER_BYTES_MAX: usize = 60 * 1024;

/// Capacity of a large buffer in bytes. Each receive of an upload is followed by a write, which costs a trip
/// to another thread: a quarter of the trips saves a third of the CPU time (docs/results/bulk.md).
pub(crate) const LARGE_BYTES: usize = 256 * 1024;

/// Maximum number of spare large buffers.
const LARGE_SPARE: usize = 4;

/// Maximum number of large buffers lent out; beyond it a lease owns its memory.
const LARGE_OUT: u16 = 4;

impl Large {
    /// Returns the memory that a receive writes (`span`, in `op.rs`, is the form for drivers).
    pub(crate) fn room(&mut self) -> &mut [MaybeUninit<u8>] {
        self.bytes.spare_capacity_mut()
    }

    /// Returns a large buffer with the memory of `bytes`.
    pub(crate) fn of(bytes: Vec<u8>) -> Box<Large> {
        Box::new(Large { bytes, start: 0, home: None })
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("count", &self.count)
            .field("buffer_bytes", &self.buffer_bytes)
            .field("out", &self.out.get())
            .finish()
    }
}

/// Received bytes, in the buffer they arrived in.
///
/// Dropping the lease returns the buffer, so drop it before waiting for anything else.
/// [`write_all`](crate::net::TcpStream::write_all) takes a lease and sends from it without a copy. Leases
/// that are kept use up the pool: beyond half of it, received bytes are copied into separate memory.
///
/// It stays on its thread.
pub struct Lease(Inner);

enum Inner {
    Pooled {
        pool: Rc<Pool>,
        id: u16,
        start: u16,
        end: u16,
    },
    /// Bytes in separate memory.
    Own(Box<Tail>),
    Large(Box<Large>),
    /// No bytes: the end of a stream.
    Nothing,
}

/// Bytes in separate memory, and the number of consumed bytes at the front.
#[derive(Debug)]
pub(crate) struct Tail {
    pub(crate) bytes: Vec<u8>,
    pub(crate) start: usize,
}

const _: () = assert!(size_of::<Lease>() == 16);

impl Lease {
    /// Returns an empty lease.
    pub(crate) fn nothing() -> Lease {
        Lease(Inner::Nothing)
    }

    /// Returns whether this is the end of a stream: no bytes and no buffer.
    #[inline]
    pub(crate) fn is_nothing(&self) -> bool {
        matches!(self.0, Inner::Nothing)
    }

    /// Returns a lease of bytes in separate memory.
    pub(crate) fn own(tail: Box<Tail>) -> Lease {
        Lease(Inner::Own(tail))
    }

    /// Returns the number of bytes left.
    #[inline]
    pub fn len(&self) -> usize {
        match &self.0 {
            Inner::Pooled { start, end, .. } => usize::from(end - start),
            Inner::Own(tail) => tail.bytes.len() - tail.start,
            Inner::Large(large) => large.bytes.len() - large.start,
            Inner::Nothing => 0,
        }
    }

    /// Returns whether no bytes are left: the end of the stream, or all were consumed.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Consumes `bytes` from the front. Consuming the last one returns the buffer.
    ///
    /// # Panics
    /// If fewer are left.
    #[inline]
    pub fn advance(&mut self, bytes: usize) {
        assert!(bytes <= self.len(), "{bytes} of {}", self.len());
        if bytes == self.len() {
            *self = Lease::nothing();
            return;
        }
        match &mut self.0 {
            // Fits: at most `end - start`.
            Inner::Pooled { start, .. } => *start += bytes as u16,
            Inner::Own(tail) => tail.start += bytes,
            Inner::Large(large) => large.start += bytes,
            Inner::Nothing => {}
        }
    }

    /// Drops bytes from the end, so that `bytes` are left; none if there are fewer.
    pub fn truncate(&mut self, bytes: usize) {
        if bytes >= self.len() {
            return;
        }
        if bytes == 0 {
            *self = Lease::nothing();
            return;
        }
        match &mut self.0 {
            // Fits: less than `end - start`.
            Inner::Pooled { start, end, .. } => *end = *start + bytes as u16,
            Inner::Own(tail) => tail.bytes.truncate(tail.start + bytes),
            Inner::Large(large) => large.bytes.truncate(large.start + bytes),
            Inner::Nothing => {}
        }
    }

    /// Returns whether the bytes are in a buffer of the pool.
    pub fn is_pooled(&self) -> bool {
        matches!(self.0, Inner::Pooled { .. })
    }

    /// Copies the bytes into separate memory; the buffer is returned.
    pub(crate) fn into_own(self) -> Lease {
        match self.0 {
            Inner::Own(_) | Inner::Large(_) | Inner::Nothing => self,
            Inner::Pooled { .. } => Lease(Inner::Own(Box::new(Tail { bytes: self.to_vec(), start: 0 }))),
        }
    }

    /// Converts the bytes into a form that is kept for later.
    pub(crate) fn into_tail(mut self) -> Box<Tail> {
        match &mut self.0 {
            Inner::Own(tail) => {
                let empty = Tail { bytes: Vec::new(), start: 0 };
                Box::new(std::mem::replace(&mut **tail, empty))
            }
            Inner::Large(large) => Box::new(Tail {
                bytes: std::mem::take(&mut large.bytes),
                start: std::mem::take(&mut large.start),
            }),
            Inner::Pooled { .. } | Inner::Nothing => Box::new(Tail { bytes: self.to_vec(), start: 0 }),
        }
    }
}

impl From<Vec<u8>> for Lease {
    /// Bytes that came some other way, for instance out of records of a protocol.
    fn from(bytes: Vec<u8>) -> Lease {
        if bytes.is_empty() { Lease::nothing() } else { Lease::own(Box::new(Tail { bytes, start: 0 })) }
    }
}

impl From<Lease> for Vec<u8> {
    /// Returns the bytes as a vector: without a copy if they were received in bulk and none was consumed.
    fn from(lease: Lease) -> Vec<u8> {
        let mut tail = lease.into_tail();
        tail.bytes.drain(..tail.start);
        tail.bytes
    }
}

impl Default for Lease {
    /// Returns an empty lease without a buffer.
    fn default() -> Lease {
        Lease::nothing()
    }
}

impl Deref for Lease {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Inner::Pooled { pool, id, start, end } => {
                let bytes = usize::from(end - start);
                // SAFETY: `start <= end <= buffer_bytes` (`Pool::lease`, `advance`), so the range is inside
                // the buffer, which the pool keeps allocated. By the contract of `Pool::lease` nothing writes
                // it while this lease exists. It is initialised, because pools start zeroed.
                unsafe {
                    std::slice::from_raw_parts(pool.buffer(*id).as_ptr().add(usize::from(*start)), bytes)
                }
            }
            Inner::Own(tail) => tail.bytes.get(tail.start..).unwrap_or_default(),
            Inner::Large(large) => large.bytes.get(large.start..).unwrap_or_default(),
            Inner::Nothing => &[],
        }
    }
}

/// Allows changes in place, for instance decryption: a lease has one owner.
impl DerefMut for Lease {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Inner::Pooled { pool, id, start, end } => {
                let bytes = usize::from(*end - *start);
                // SAFETY: in bounds and initialised as in `deref`. Exclusive: a lease is not `Clone`, no
                // other lease names this buffer and the kernel does not have it (the promise of
                // `Pool::lease`), and this slice borrows the lease mutably.
                unsafe {
                    std::slice::from_raw_parts_mut(pool.buffer(*id).as_ptr().add(usize::from(*start)), bytes)
                }
            }
            Inner::Own(tail) => tail.bytes.get_mut(tail.start..).unwrap_or_default(),
            Inner::Large(large) => large.bytes.get_mut(large.start..).unwrap_or_default(),
            Inner::Nothing => &mut [],
        }
    }
}

impl Drop for Lease {
    #[inline]
    fn drop(&mut self) {
        match &self.0 {
            Inner::Pooled { pool, id, .. } => {
                pool.out.set(pool.out.get() - 1);
                pool.put(*id);
            }
            Inner::Large(_) => self.give_large_back(),
            Inner::Own(_) | Inner::Nothing => {}
        }
    }
}

impl Lease {
    fn give_large_back(&mut self) {
        if let Inner::Large(mut large) = std::mem::replace(&mut self.0, Inner::Nothing)
            && let Some(pool) = large.home.take()
        {
            pool.large_out.set(pool.large_out.get() - 1);
            pool.put_large(large);
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("bytes", &self.len()).field("pooled", &self.is_pooled()).finish()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn lease_of(pool: &Rc<Pool>, bytes: &[u8]) -> Lease {
        let id = pool.take().unwrap();
        // SAFETY: `id` was just taken, so no other code uses the buffer, which is long enough (asserted by
        // lease).
        unsafe {
            pool.buffer(id).copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
            pool.lease(id, bytes.len())
        }
    }

    #[test]
    fn a_lease_is_cut_at_both_ends_wherever_its_bytes_lie() {
        let pool = Pool::new(8, 64).unwrap();
        let mut large = pool.take_large();
        large.room()[..6].fill(MaybeUninit::new(b'x'));
        // SAFETY: six bytes were written.
        let large = unsafe { pool.lease_large(large, 6) };
        for mut lease in [lease_of(&pool, b"abcdef"), Lease::from(b"abcdef".to_vec()), large] {
            let whole = lease.to_vec();
            lease.truncate(10);
            assert_eq!(lease.len(), 6);
            lease.advance(2);
            lease.truncate(3);
            assert_eq!(&*lease, &whole[2..5]);
            lease.truncate(0);
            assert!(lease.is_nothing());
        }
        assert!(Lease::from(Vec::new()).is_nothing());
        assert_eq!(pool.out.get(), 0);
    }

    #[test]
    fn the_buffer_of_a_dropped_lease_is_reused_next() {
        let pool = Pool::new(8, 64).unwrap();
        let first = lease_of(&pool, b"first");
        let at = first.as_ptr();
        assert_eq!(&*first, b"first");
        drop(first);
        let second = lease_of(&pool, b"second");
        assert_eq!(second.as_ptr(), at, "last in, first out");
        assert_eq!(pool.out(), 1);
    }

    #[test]
    fn a_consumed_lease_has_returned_its_buffer() {
        let pool = Pool::new(8, 64).unwrap();
        let mut lease = lease_of(&pool, b"both parts");
        lease.advance(5);
        assert_eq!((&*lease, pool.out()), (&b"parts"[..], 1));
        lease.advance(5);
        assert_eq!((&*lease, pool.out()), (&b""[..], 0));
        lease.advance(0);
    }

    #[test]
    fn a_lease_is_changed_in_place_and_no_other_byte_of_the_pool_with_it() {
        let pool = Pool::new(8, 64).unwrap();
        let (before, mut lease, after) =
            (lease_of(&pool, &[1; 64]), lease_of(&pool, b"head and tail"), lease_of(&pool, &[2; 64]));
        lease.advance(9);
        let at = lease.as_ptr();
        lease.make_ascii_uppercase();
        assert_eq!((&*lease, lease.as_ptr()), (&b"TAIL"[..], at));
        assert_eq!((&*before, &*after), (&[1; 64][..], &[2; 64][..]));
        let mut own = lease.into_own();
        own[0] = b't';
        assert_eq!(&*own, b"tAIL");
        assert!(Lease::nothing().is_empty());
    }

    #[test]
    fn leases_past_half_of_the_pool_are_copies_and_leave_it_usable() {
        let pool = Pool::new(8, 64).unwrap();
        let leases: Vec<_> = (0..100u8).map(|value| lease_of(&pool, &[value; 3])).collect();
        assert_eq!(leases.iter().filter(|lease| lease.is_pooled()).count(), 4);
        assert_eq!(pool.out(), 4);
        for (value, lease) in leases.iter().enumerate() {
            assert_eq!(&**lease, [value as u8; 3]);
        }
        drop(leases);
        assert_eq!(pool.out(), 0);
        let all: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(all.len(), 8);
    }

    /// Returns a lease of a large buffer that holds `bytes`.
    fn large_lease_of(pool: &Rc<Pool>, bytes: usize) -> Lease {
        let mut large = pool.take_large();
        let span = large.span();
        assert!(span.bytes >= LARGE_BYTES && bytes <= span.bytes);
        // SAFETY: the buffer was just taken; all of `bytes` is written.
        unsafe {
            span.start.write_bytes(7, bytes);
            pool.lease_large(large, bytes)
        }
    }

    #[test]
    fn a_large_buffer_is_used_again_and_few_are_kept() {
        let pool = Pool::new(8, 64).unwrap();
        let first = large_lease_of(&pool, LARGE_BYTES);
        let at = first.as_ptr();
        drop(first);
        let second = large_lease_of(&pool, 40_000);
        assert_eq!((second.as_ptr(), second.len(), second.is_pooled()), (at, 40_000, false));
        let more: Vec<_> = (0..20).map(|_| large_lease_of(&pool, LARGE_BYTES)).collect();
        assert_eq!(pool.large_out.get(), LARGE_OUT);
        drop((second, more));
        assert_eq!((pool.large_out.get(), pool.large.borrow().len()), (0, LARGE_SPARE));
    }

    #[test]
    fn little_in_a_large_buffer_does_not_keep_it() {
        let pool = Pool::new(8, 64).unwrap();
        let small = large_lease_of(&pool, 64);
        assert_eq!((&*small, small.is_pooled(), pool.large.borrow().len()), (&[7; 64][..], true, 1));
        let leases: Vec<_> = (0..10).map(|_| large_lease_of(&pool, 1000)).collect();
        // Beyond the maximum: copies of exactly their bytes, through one buffer.
        assert_eq!((pool.large_out.get(), pool.large.borrow().len()), (LARGE_OUT, 1));
        assert!(leases.iter().all(|lease| **lease == [7; 1000]));
    }

    #[test]
    fn bytes_of_a_large_buffer_become_a_vec_without_a_copy() {
        let pool = Pool::new(8, 64).unwrap();
        let mut lease = large_lease_of(&pool, 50_000);
        let at = lease.as_ptr();
        lease.advance(0);
        let bytes = Vec::from(lease);
        assert_eq!((bytes.as_ptr(), bytes.len(), pool.large_out.get()), (at, 50_000, 0));
        assert_eq!(pool.large.borrow().len(), 0, "it is gone, and the next is another");
        let mut lease = large_lease_of(&pool, 50_000);
        lease.advance(49_990);
        assert_eq!(*lease, [7; 10]);
        assert_eq!(Vec::from(lease), [7; 10]);
        assert_eq!(Vec::from(lease_of(&pool, b"small")), b"small");
    }

    #[test]
    fn an_advanced_lease_keeps_its_end_in_its_own_memory_too() {
        let pool = Pool::new(8, 64).unwrap();
        let mut lease = lease_of(&pool, b"head and tail");
        lease.advance(9);
        assert_eq!(&*lease, b"tail");
        let mut own = lease.into_own();
        assert_eq!((&*own, own.is_pooled(), pool.out()), (&b"tail"[..], false, 0));
        own.advance(1);
        let tail = own.into_tail();
        assert_eq!(&tail.bytes[tail.start..], b"ail");
    }
}
