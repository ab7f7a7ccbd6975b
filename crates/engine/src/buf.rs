//! Owned buffers: memory that a program lends to the engine for the kernel to read or write.
//!
//! The kernel may touch a buffer until the last completion of its operation, also after the future is
//! dropped. So operations take buffers by value and return them with the result. [`Buf`] is the closed list
//! of their types. The bytes of each stay in place when the owner moves.

use crate::op::{Lasting, Span};
use crate::pages::Pages;
use crate::pool::Lease;
use bytes::{Bytes, BytesMut};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

/// Bytes to be sent, with their owner.
#[derive(Debug)]
pub(crate) enum Buf {
    Vec(Vec<u8>),
    Static(&'static [u8]),
    Shared(Rc<[u8]>),
    SharedByThreads(Arc<[u8]>),
    Lease(Lease),
    Pages(Pages),
    /// In a box, so that the list stays at the size of a `Vec`.
    Bytes(Box<Bytes>),
    BytesMut(Box<BytesMut>),
}

const _: () = assert!(size_of::<Buf>() == 24);

impl Buf {
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Buf::Vec(bytes) => bytes,
            Buf::Static(bytes) => bytes,
            Buf::Shared(bytes) => bytes,
            Buf::SharedByThreads(bytes) => bytes,
            Buf::Lease(lease) => lease,
            Buf::Pages(pages) => pages,
            Buf::Bytes(bytes) => bytes,
            Buf::BytesMut(bytes) => bytes,
        }
    }

    /// Returns the bytes after the first `done`, for the kernel to read.
    #[inline]
    pub(crate) fn span_after(&self, done: usize) -> Span {
        let bytes = self.bytes().get(done..).unwrap_or_default();
        Span { start: bytes.as_ptr().cast_mut(), bytes: bytes.len() }
    }

    /// Returns an owner of the bytes, if they are immutable and can have several owners.
    #[inline]
    pub(crate) fn lasting(&self) -> Option<Lasting<'_>> {
        match self {
            Buf::Static(_) => Some(Lasting::Static),
            Buf::Shared(bytes) => Some(Lasting::Shared(bytes)),
            Buf::SharedByThreads(bytes) => Some(Lasting::SharedByThreads(bytes)),
            Buf::Vec(_) | Buf::Lease(_) | Buf::Pages(_) | Buf::Bytes(_) | Buf::BytesMut(_) => None,
        }
    }

    /// Copies a pooled lease out of the pool, because the operation is going to wait. Copies all of it: the
    /// caller gets the whole lease back.
    pub(crate) fn leave_pool(&mut self) {
        if let Buf::Lease(lease) = self
            && lease.is_pooled()
        {
            *lease = std::mem::take(lease).into_own();
        }
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A buffer with bytes that can be sent: its bytes `0..len`.
///
/// Implemented for `Vec<u8>`, `Box<[u8]>`, `String`, `[u8; N]`, `&'static [u8]`, `&'static [u8; N]`,
/// `&'static str`, `Rc<[u8]>`, `Arc<[u8]>`, [`Bytes`], [`BytesMut`], [`Lease`], [`Pages`], and [`AnyBuf`] of
/// these. Borrowed bytes are not possible: the kernel may read them after the borrow has ended. Only an array
/// is copied, because its bytes move with it.
///
/// For a part of a buffer use [`Bytes::slice`], or [`write_from`](crate::net::TcpStream::write_from).
///
/// ```compile_fail
/// # async fn example(stream: &mut ringroad_engine::net::TcpStream, bytes: Vec<u8>) {
/// stream.write_all(&bytes).await.0; // give the Vec away: `write_all(bytes)` gives it back
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be lent to the kernel",
    label = "give an owned buffer away, `Vec<u8>` for one; the operation gives it back with its result",
    note = "the kernel may read the bytes until the operation is over, also after its future is dropped, so it takes \
            owned buffers (`Vec<u8>`, `Bytes`, `Arc<[u8]>`, `Lease`, `Pages`) and `'static` ones, and no borrowed ones"
)]
pub trait IoBuf: sealed::Sealed + Sized + 'static {
    #[doc(hidden)]
    fn into_buf(self) -> Loan;
    #[doc(hidden)]
    fn from_buf(loan: Loan) -> Self;
    /// Returns the bytes that would be sent, for a layer that sends something else in their place.
    fn bytes(&self) -> &[u8];
}

/// A buffer that is lent to an operation.
#[doc(hidden)]
#[derive(Debug)]
pub struct Loan(pub(crate) Buf);

macro_rules! io_buf {
    ($type:ty, $variant:ident, $from:expr) => {
        impl sealed::Sealed for $type {}
        impl IoBuf for $type {
            #[inline]
            fn into_buf(self) -> Loan {
                Loan(Buf::$variant(self))
            }
            #[inline]
            fn from_buf(loan: Loan) -> Self {
                match loan.0 {
                    Buf::$variant(this) => this,
                    // A buffer is returned as the variant it was lent as. A lease may have been copied; it is
                    // still a lease.
                    _ => $from,
                }
            }
            #[inline]
            fn bytes(&self) -> &[u8] {
                self
            }
        }
    };
}

io_buf!(Vec<u8>, Vec, Vec::new());
io_buf!(&'static [u8], Static, &[]);
io_buf!(Rc<[u8]>, Shared, Rc::new([]));
io_buf!(Arc<[u8]>, SharedByThreads, Arc::new([]));
io_buf!(Lease, Lease, Lease::nothing());
io_buf!(Pages, Pages, Pages::empty());

/// Any buffer that can be sent, for code that sends buffers of several types.
#[derive(Debug)]
pub struct AnyBuf(Buf);

macro_rules! any_buf {
    ($($type:ty => $variant:ident),*) => {$(
        impl From<$type> for AnyBuf {
            #[inline]
            fn from(buf: $type) -> AnyBuf {
                AnyBuf(Buf::$variant(buf))
            }
        }
    )*};
}
any_buf!(Vec<u8> => Vec, &'static [u8] => Static, Rc<[u8]> => Shared, Arc<[u8]> => SharedByThreads, Lease => Lease,
    Pages => Pages);

impl From<Bytes> for AnyBuf {
    fn from(buf: Bytes) -> AnyBuf {
        AnyBuf(Buf::Bytes(Box::new(buf)))
    }
}

impl std::ops::Deref for AnyBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl sealed::Sealed for AnyBuf {}
impl IoBuf for AnyBuf {
    #[inline]
    fn into_buf(self) -> Loan {
        Loan(self.0)
    }
    #[inline]
    fn from_buf(loan: Loan) -> Self {
        AnyBuf(loan.0)
    }
    #[inline]
    fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl sealed::Sealed for &'static str {}
impl IoBuf for &'static str {
    fn into_buf(self) -> Loan {
        Loan(Buf::Static(self.as_bytes()))
    }
    fn from_buf(loan: Loan) -> Self {
        match loan.0 {
            Buf::Static(bytes) => std::str::from_utf8(bytes).unwrap_or_default(),
            _ => "",
        }
    }
    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// Types that are lent in the form of another.
macro_rules! io_buf_by {
    ([$($generic:tt)*] $type:ty, $into:expr, $from:expr) => {
        impl<$($generic)*> sealed::Sealed for $type {}
        impl<$($generic)*> IoBuf for $type {
            fn into_buf(self) -> Loan {
                let into: fn($type) -> Buf = $into;
                Loan(into(self))
            }
            fn from_buf(loan: Loan) -> Self {
                let from: fn(Buf) -> $type = $from;
                from(loan.0)
            }
            fn bytes(&self) -> &[u8] {
                self.as_ref()
            }
        }
    };
}

io_buf_by!([] Bytes, |bytes| Buf::Bytes(Box::new(bytes)), |buf| match buf {
    Buf::Bytes(bytes) => *bytes,
    _ => Bytes::new(),
});
io_buf_by!([] BytesMut, |bytes| Buf::BytesMut(Box::new(bytes)), |buf| match buf {
    Buf::BytesMut(bytes) => *bytes,
    _ => BytesMut::new(),
});
// A boxed slice is a vector without spare capacity, so neither way copies.
io_buf_by!([] Box<[u8]>, |bytes| Buf::Vec(bytes.into_vec()), |buf| match buf {
    Buf::Vec(bytes) => bytes.into_boxed_slice(),
    _ => Box::default(),
});
io_buf_by!([] String, |text| Buf::Vec(text.into_bytes()), |buf| match buf {
    // It is the same text: what is sent is not changed.
    Buf::Vec(bytes) => String::from_utf8(bytes).unwrap_or_default(),
    _ => String::new(),
});
io_buf_by!([const N: usize] [u8; N], |bytes| Buf::Vec(bytes.to_vec()), |buf| match buf {
    Buf::Vec(bytes) => bytes.try_into().unwrap_or([0; N]),
    _ => [0; N],
});
io_buf_by!([const N: usize] &'static [u8; N], |bytes| Buf::Static(bytes), |buf| match buf {
    Buf::Static(bytes) => bytes.try_into().unwrap_or(&[0; N]),
    _ => &[0; N],
});

/// A buffer that the kernel may write: `Vec<u8>` and [`BytesMut`] (their spare capacity), and [`Pages`] (from
/// its length on).
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no room for the kernel to write to",
    label = "give an owned buffer with spare room away, `Vec::with_capacity(4096)` for one; it comes back with what was read",
    note = "the kernel may write to the buffer until the operation is over, also after its future is dropped, so it takes \
            `Vec<u8>`, `BytesMut` and `Pages`, and no borrowed ones"
)]
pub trait IoBufMut: IoBuf {
    /// Copies as much of `bytes` into the spare capacity as there is room for; returns that number. For a
    /// layer that has received the bytes some other way.
    fn append(&mut self, bytes: &[u8]) -> usize;
    #[doc(hidden)]
    fn spare(loan: &mut Loan) -> (NonNull<u8>, usize);
    /// # Safety
    /// The kernel has written this many bytes at the start of the memory that `spare` returned.
    #[doc(hidden)]
    unsafe fn filled(loan: &mut Loan, bytes: usize);
}

impl IoBufMut for Vec<u8> {
    fn append(&mut self, bytes: &[u8]) -> usize {
        let fits = bytes.len().min(self.capacity() - self.len());
        self.extend_from_slice(bytes.get(..fits).unwrap_or_default());
        fits
    }
    fn spare(loan: &mut Loan) -> (NonNull<u8>, usize) {
        spare_of(&mut loan.0)
    }
    unsafe fn filled(loan: &mut Loan, bytes: usize) {
        // SAFETY: promised by the caller.
        unsafe { filled(&mut loan.0, bytes) }
    }
}

impl IoBufMut for Pages {
    fn append(&mut self, bytes: &[u8]) -> usize {
        let (start, room) = self.spare();
        let fits = bytes.len().min(room);
        // SAFETY: `room` bytes from `start` are this buffer's own, borrowed mutably here, so they do not
        // overlap `bytes`; as many as are marked as filled were written.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), start.as_ptr(), fits);
            self.filled(fits);
        }
        fits
    }
    fn spare(loan: &mut Loan) -> (NonNull<u8>, usize) {
        spare_of(&mut loan.0)
    }
    unsafe fn filled(loan: &mut Loan, bytes: usize) {
        // SAFETY: promised by the caller.
        unsafe { filled(&mut loan.0, bytes) }
    }
}

impl IoBufMut for BytesMut {
    fn append(&mut self, bytes: &[u8]) -> usize {
        let fits = bytes.len().min(self.capacity() - self.len());
        self.extend_from_slice(bytes.get(..fits).unwrap_or_default());
        fits
    }
    fn spare(loan: &mut Loan) -> (NonNull<u8>, usize) {
        spare_of(&mut loan.0)
    }
    unsafe fn filled(loan: &mut Loan, bytes: usize) {
        // SAFETY: promised by the caller.
        unsafe { filled(&mut loan.0, bytes) }
    }
}

/// Returns the start and length of the memory that the kernel may write. Length 0 for buffers that are only
/// read.
pub(crate) fn spare_of(buf: &mut Buf) -> (NonNull<u8>, usize) {
    match buf {
        Buf::Vec(bytes) => {
            let spare = bytes.spare_capacity_mut();
            (NonNull::from(&mut *spare).cast(), spare.len())
        }
        Buf::Pages(pages) => pages.spare(),
        Buf::BytesMut(bytes) => {
            let spare = bytes.spare_capacity_mut();
            (NonNull::from(&mut *spare).cast(), spare.len())
        }
        _ => (NonNull::dangling(), 0),
    }
}

/// Adds `bytes` that the kernel has written to the buffer.
///
/// # Safety
/// The kernel has written them at the start of the memory that [`spare_of`] returned.
pub(crate) unsafe fn filled(buf: &mut Buf, bytes: usize) {
    match buf {
        Buf::Vec(vec) => {
            assert!(bytes <= vec.capacity() - vec.len(), "more than there was room for");
            // SAFETY: inside the capacity, and initialised by the kernel, as the caller promises.
            unsafe { vec.set_len(vec.len() + bytes) }
        }
        // SAFETY: promised by the caller.
        Buf::Pages(pages) => unsafe { pages.filled(bytes) },
        Buf::BytesMut(buf) => {
            assert!(bytes <= buf.capacity() - buf.len(), "more than there was room for");
            // SAFETY: inside the capacity, and initialised by the kernel, as the caller promises.
            unsafe { buf.set_len(buf.len() + bytes) }
        }
        _ => {}
    }
}
