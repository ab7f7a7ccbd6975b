//! Owned buffers: what a program hands to the engine for the kernel to read or write, and gets back.
//!
//! The kernel may touch a buffer until the last completion of its operation, also after the future is dropped.
//! So operations take buffers by value; [`Buf`] is the closed list of what they may be, each with bytes that
//! stay in place when the owner moves.

use crate::op::{Lasting, Span};
use crate::pages::Pages;
use crate::pool::Lease;
use std::ptr::NonNull;
use std::rc::Rc;

/// Bytes to be sent, with whoever owns them.
#[derive(Debug)]
pub(crate) enum Buf {
    Vec(Vec<u8>),
    Static(&'static [u8]),
    Shared(Rc<[u8]>),
    Lease(Lease),
    Pages(Pages),
}

const _: () = assert!(size_of::<Buf>() == 24);

impl Buf {
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Buf::Vec(bytes) => bytes,
            Buf::Static(bytes) => bytes,
            Buf::Shared(bytes) => bytes,
            Buf::Lease(lease) => lease,
            Buf::Pages(pages) => pages,
        }
    }

    /// What is left after `done` bytes, for the kernel to read.
    #[inline]
    pub(crate) fn span_after(&self, done: usize) -> Span {
        let bytes = self.bytes().get(done..).unwrap_or_default();
        Span { start: bytes.as_ptr().cast_mut(), bytes: bytes.len() }
    }

    /// Whose they are, if they never change and may have several owners.
    #[inline]
    pub(crate) fn lasting(&self) -> Option<Lasting<'_>> {
        match self {
            Buf::Static(_) => Some(Lasting::Static),
            Buf::Shared(bytes) => Some(Lasting::Shared(bytes)),
            Buf::Vec(_) | Buf::Lease(_) | Buf::Pages(_) => None,
        }
    }

    /// Takes a pooled lease out of its pool: it is going to wait. All of it, for it goes back to its owner whole.
    pub(crate) fn settle(&mut self) {
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

/// A buffer whose bytes can be sent. Its bytes `0..len` are.
///
/// Implemented for `Vec<u8>`, `&'static [u8]`, `&'static str`, `Rc<[u8]>`, [`Lease`], [`Pages`], and [`AnyBuf`] of
/// these.
pub trait IoBuf: sealed::Sealed + Sized {
    #[doc(hidden)]
    fn into_buf(self) -> Loan;
    #[doc(hidden)]
    fn from_buf(loan: Loan) -> Self;
}

/// A buffer on its way.
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
                    // A buffer comes back as what it went in as, except that a lease may have been copied,
                    // which is still a lease.
                    _ => $from,
                }
            }
        }
    };
}

io_buf!(Vec<u8>, Vec, Vec::new());
io_buf!(&'static [u8], Static, &[]);
io_buf!(Rc<[u8]>, Shared, Rc::new([]));
io_buf!(Lease, Lease, Lease::nothing());
io_buf!(Pages, Pages, Pages::empty());

/// Any of the buffers that can be sent, for code that sends now one and now another.
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
any_buf!(Vec<u8> => Vec, &'static [u8] => Static, Rc<[u8]> => Shared, Lease => Lease, Pages => Pages);

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
}

/// A buffer the kernel may write into: `Vec<u8>` (its spare capacity) and [`Pages`] (from its length on).
pub trait IoBufMut: IoBuf {
    #[doc(hidden)]
    fn spare(loan: &mut Loan) -> (NonNull<u8>, usize);
    /// # Safety
    /// The kernel has written this many bytes at the start of what `spare` told.
    #[doc(hidden)]
    unsafe fn filled(loan: &mut Loan, bytes: usize);
}

impl IoBufMut for Vec<u8> {
    fn spare(loan: &mut Loan) -> (NonNull<u8>, usize) {
        spare_of(&mut loan.0)
    }
    unsafe fn filled(loan: &mut Loan, bytes: usize) {
        // SAFETY: promised by the caller.
        unsafe { filled(&mut loan.0, bytes) }
    }
}

impl IoBufMut for Pages {
    fn spare(loan: &mut Loan) -> (NonNull<u8>, usize) {
        spare_of(&mut loan.0)
    }
    unsafe fn filled(loan: &mut Loan, bytes: usize) {
        // SAFETY: promised by the caller.
        unsafe { filled(&mut loan.0, bytes) }
    }
}

/// Where the kernel may write, and how much. Nothing for buffers that are only read.
pub(crate) fn spare_of(buf: &mut Buf) -> (NonNull<u8>, usize) {
    match buf {
        Buf::Vec(bytes) => {
            let spare = bytes.spare_capacity_mut();
            (NonNull::from(&mut *spare).cast(), spare.len())
        }
        Buf::Pages(pages) => pages.spare(),
        _ => (NonNull::dangling(), 0),
    }
}

/// Makes `bytes` that the kernel has written part of the buffer.
///
/// # Safety
/// The kernel has written them at the start of what [`spare_of`] told.
pub(crate) unsafe fn filled(buf: &mut Buf, bytes: usize) {
    match buf {
        Buf::Vec(vec) => {
            assert!(bytes <= vec.capacity() - vec.len(), "more than there was room for");
            // SAFETY: inside the capacity, and initialised by the kernel, as the caller promises.
            unsafe { vec.set_len(vec.len() + bytes) }
        }
        // SAFETY: promised by the caller.
        Buf::Pages(pages) => unsafe { pages.filled(bytes) },
        _ => {}
    }
}
