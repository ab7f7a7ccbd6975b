//! The pool of receive buffers, and leases of them.
//!
//! A waiting connection holds no buffer: one is taken when data is there, lent out as a [`Lease`], and is back
//! when the lease is dropped. Spare buffers are reused last in, first out, so that a turn of many small receives
//! goes through one hot buffer.
//!
//! INVARIANT: a buffer is in exactly one place: free (in `free`), with the kernel (of a buffer ring), or out
//! (named by one lease). At most half of the buffers are out in leases that anybody holds; past that a lease is
//! made of a copy of exactly its bytes, and the buffer goes back at once. So whoever keeps leases while waiting
//! pays with memory of his own, and can never bring receiving to a halt.

use crate::pages::Pages;
use ringroad_uring::BufferRing;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::ops::Deref;
use std::ptr::NonNull;
use std::rc::Rc;

/// Equal buffers, and who has them.
pub(crate) struct Pool {
    start: NonNull<u8>,
    buffer_bytes: usize,
    count: u16,
    /// The buffer that came back last, or [`NONE`]: the next to be used, since it is in the cache.
    hot: Cell<u16>,
    /// The others nobody has. With a buffer ring: those that are to be offered to the kernel again.
    free: RefCell<Vec<u16>>,
    /// Buffers named by leases.
    out: Cell<u16>,
    memory: Memory,
}

/// Where the buffers lie.
enum Memory {
    /// Ours. Kept for its drop; the bytes are reached through `start`.
    Own { _pages: Pages },
    /// A ring the kernel takes them from.
    Ring(RefCell<BufferRing>),
}

impl Pool {
    /// `count` buffers of `buffer_bytes` each (at most [`BUFFER_BYTES_MAX`], so that a position fits a lease).
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn new(count: u16, buffer_bytes: usize) -> io::Result<Rc<Pool>> {
        assert!((1..=BUFFER_BYTES_MAX).contains(&buffer_bytes) && count > 0, "{count} x {buffer_bytes}");
        // Pages that are never used are never touched.
        let pages = Pages::new(usize::from(count) * buffer_bytes)?;
        Ok(Rc::new(Pool {
            start: pages.start(),
            buffer_bytes,
            count,
            hot: Cell::new(NONE),
            free: RefCell::new((0..count).rev().collect()),
            out: Cell::new(0),
            memory: Memory::Own { _pages: pages },
        }))
    }

    /// The buffers of a ring, all of them with the kernel.
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
        })
    }

    /// Size of each buffer in bytes.
    #[inline]
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// Buffers named by leases.
    #[inline]
    pub(crate) fn out(&self) -> u16 {
        self.out.get()
    }

    /// How many buffers there are.
    pub(crate) fn count(&self) -> u16 {
        self.count
    }

    /// Buffers that nobody has.
    pub(crate) fn free(&self) -> usize {
        self.free.borrow().len() + usize::from(self.hot.get() != NONE)
    }

    /// More leases are out than may be.
    #[inline]
    pub(crate) fn is_strained(&self) -> bool {
        self.out.get() > self.count / 2
    }

    /// Takes a free buffer, to be filled and made a lease by [`Pool::lease`], or put back.
    #[inline]
    pub(crate) fn take(&self) -> Option<u16> {
        match self.hot.replace(NONE) {
            NONE => self.free.borrow_mut().pop(),
            id => Some(id),
        }
    }

    /// Puts a buffer back that no lease names.
    #[inline]
    pub(crate) fn put(&self, id: u16) {
        match self.hot.replace(id) {
            NONE => {}
            other => self.free.borrow_mut().push(other),
        }
    }

    /// Where buffer `id` begins.
    #[inline]
    pub(crate) fn buffer(&self, id: u16) -> NonNull<u8> {
        assert!(id < self.count, "buffer {id} of {}", self.count);
        // SAFETY: inside the allocation, by the line above.
        unsafe { self.start.add(usize::from(id) * self.buffer_bytes) }
    }

    /// Lends out the first `bytes` of buffer `id`.
    ///
    /// # Safety
    /// The buffer was taken ([`Pool::take`], or by the kernel from the ring and told by a completion), no other
    /// lease names it, and nobody writes it until the lease is dropped.
    #[inline]
    pub(crate) unsafe fn lease(self: &Rc<Pool>, id: u16, bytes: usize) -> Lease {
        assert!(bytes <= self.buffer_bytes, "{bytes} bytes of a buffer of {}", self.buffer_bytes);
        self.out.set(self.out.get() + 1);
        let lease = Lease(Inner::Pooled { pool: Rc::clone(self), id, start: 0, end: bytes as u16 });
        if self.is_strained() { lease.into_own() } else { lease }
    }

    /// With a buffer ring: lets `offer` put every free buffer back into it.
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

    /// With a buffer ring: looks at it.
    pub(crate) fn with_ring<R>(&self, look: impl FnOnce(&mut BufferRing) -> R) -> Option<R> {
        match &self.memory {
            Memory::Ring(ring) => Some(look(&mut ring.borrow_mut())),
            Memory::Own { .. } => None,
        }
    }
}

/// No buffer: there are at most 2^15.
const NONE: u16 = u16::MAX;

/// Whole pages, and a position inside a buffer has 16 bits.
pub(crate) const BUFFER_BYTES_MAX: usize = 60 * 1024;

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
/// The buffer goes back when the lease is dropped, so drop it before waiting for anything else; a lease is also
/// taken by [`write_all`](crate::net::TcpStream::write_all), which sends from it without a copy. A lease that is
/// kept does no harm but uses up the pool: past half of it, received bytes are copied to memory of their own.
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
    /// Bytes that could not stay in their buffer.
    Own(Box<Tail>),
    /// No bytes: the end of a stream.
    Nothing,
}

/// Bytes of their own, and how many at the front are used up.
#[derive(Debug)]
pub(crate) struct Tail {
    pub(crate) bytes: Vec<u8>,
    pub(crate) start: usize,
}

const _: () = assert!(size_of::<Lease>() == 16);

impl Lease {
    /// No bytes.
    pub(crate) fn nothing() -> Lease {
        Lease(Inner::Nothing)
    }

    /// Whether it is the end of a stream: no bytes, and no buffer.
    #[inline]
    pub(crate) fn is_nothing(&self) -> bool {
        matches!(self.0, Inner::Nothing)
    }

    /// Bytes that came some other way.
    pub(crate) fn own(tail: Box<Tail>) -> Lease {
        Lease(Inner::Own(tail))
    }

    /// How many bytes there are.
    #[inline]
    pub fn len(&self) -> usize {
        match &self.0 {
            Inner::Pooled { start, end, .. } => usize::from(end - start),
            Inner::Own(tail) => tail.bytes.len() - tail.start,
            Inner::Nothing => 0,
        }
    }

    /// Whether there are none: the stream has ended, or all of them are used up.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops the first `bytes` from the front. With the last of them the buffer goes back.
    ///
    /// # Panics
    /// If there are fewer.
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
            Inner::Nothing => {}
        }
    }

    /// Whether the bytes lie in a buffer of the pool.
    pub fn is_pooled(&self) -> bool {
        matches!(self.0, Inner::Pooled { .. })
    }

    /// The same bytes in memory of their own; the buffer goes back.
    pub(crate) fn into_own(self) -> Lease {
        match self.0 {
            Inner::Own(_) | Inner::Nothing => self,
            Inner::Pooled { .. } => Lease(Inner::Own(Box::new(Tail { bytes: self.to_vec(), start: 0 }))),
        }
    }

    /// The same bytes to be kept for later.
    pub(crate) fn into_tail(self) -> Box<Tail> {
        let mut own = self.into_own();
        match &mut own.0 {
            Inner::Own(tail) => {
                let empty = Tail { bytes: Vec::new(), start: 0 };
                Box::new(std::mem::replace(&mut **tail, empty))
            }
            // `into_own` leaves no pooled one.
            Inner::Pooled { .. } | Inner::Nothing => Box::new(Tail { bytes: Vec::new(), start: 0 }),
        }
    }
}

impl Default for Lease {
    /// No bytes, and no buffer.
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
                // SAFETY: `start <= end <= buffer_bytes` (`Pool::lease`, `advance`), so the range lies in the
                // buffer, which the pool keeps allocated. By the promise of `Pool::lease` nobody writes it while
                // this lease exists; and it is initialised, since pools begin zeroed.
                unsafe {
                    std::slice::from_raw_parts(pool.buffer(*id).as_ptr().add(usize::from(*start)), bytes)
                }
            }
            Inner::Own(tail) => tail.bytes.get(tail.start..).unwrap_or_default(),
            Inner::Nothing => &[],
        }
    }
}

impl Drop for Lease {
    #[inline]
    fn drop(&mut self) {
        if let Inner::Pooled { pool, id, .. } = &self.0 {
            pool.out.set(pool.out.get() - 1);
            pool.put(*id);
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
        // SAFETY: `id` was just taken, so nobody else reaches the buffer, which is long enough (asserted by lease).
        unsafe {
            pool.buffer(id).copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
            pool.lease(id, bytes.len())
        }
    }

    #[test]
    fn a_dropped_lease_gives_its_buffer_to_the_next() {
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
    fn a_lease_that_is_used_up_has_given_its_buffer_back() {
        let pool = Pool::new(8, 64).unwrap();
        let mut lease = lease_of(&pool, b"both parts");
        lease.advance(5);
        assert_eq!((&*lease, pool.out()), (&b"parts"[..], 1));
        lease.advance(5);
        assert_eq!((&*lease, pool.out()), (&b""[..], 0));
        lease.advance(0);
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
