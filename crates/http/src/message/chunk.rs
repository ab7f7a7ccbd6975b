//! A piece of a body, in memory of any kind.

use crate::pool;
use ringroad_engine::{AnyBuf, Lease, Result};
use std::fmt;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

/// A piece of a body: received bytes in the buffer they arrived in, or bytes to be sent.
///
/// A received chunk that is kept across a wait takes a buffer of the receive pool. When half of the pool is
/// taken, further bytes are copied to memory of their own.
pub struct Chunk(Inner);

/// Minimum size of a body that is sent by itself, in one call with its head; a smaller one is copied behind
/// its head. At this size both ways cost the same (docs/adr/0014).
pub(crate) const ALONE_BYTES_MIN: usize = 16 * 1024;

/// Maximum size that [`Chunk::gather`] joins, in bytes. A slow receiver holds this much.
const GATHERED_BYTES: usize = 64 * 1024;

enum Inner {
    Lease(Lease),
    Vec(Vec<u8>),
    Static(&'static [u8]),
    Shared(Rc<[u8]>),
    SharedByThreads(Arc<[u8]>),
}

impl Chunk {
    /// Joins `first` with further received bytes to one piece of at most 64 KiB: a large body then costs one
    /// send for that size, and not one for each buffer of the engine. A `first` of at least 16 KiB is passed
    /// on without a copy. `more` receives without waiting. The second value is the event after the data: the
    /// end (nothing), or an error, which is not returned again.
    pub fn gather(
        first: Lease,
        mut more: impl FnMut() -> Poll<Result<Lease>>,
    ) -> (Chunk, Option<Result<Lease>>) {
        // Further pieces usually have the same length, and then fit exactly.
        let each = first.len();
        let mut all = Chunk::from(first);
        if each >= ALONE_BYTES_MIN {
            return (all, None);
        }
        while all.len() + each <= GATHERED_BYTES {
            match more() {
                Poll::Pending => break,
                Poll::Ready(Ok(lease)) if !lease.is_empty() => all.append(&lease),
                Poll::Ready(behind) => return (all, Some(behind)),
            }
        }
        (all, None)
    }

    fn append(&mut self, more: &[u8]) {
        if let Inner::Vec(bytes) = &mut self.0 {
            return bytes.extend_from_slice(more);
        }
        let mut bytes = Vec::with_capacity(GATHERED_BYTES);
        bytes.extend_from_slice(self);
        bytes.extend_from_slice(more);
        self.0 = Inner::Vec(bytes);
    }

    /// Returns whether the bytes are in their receive buffer.
    #[cfg(test)]
    pub(crate) fn is_lease(&self) -> bool {
        matches!(&self.0, Inner::Lease(lease) if lease.is_pooled())
    }

    pub(crate) const fn of_static(bytes: &'static [u8]) -> Chunk {
        Chunk(Inner::Static(bytes))
    }

    /// Makes another chunk of the same bytes; without a copy if they are static or shared.
    #[must_use]
    pub fn duplicate(&self) -> Chunk {
        Chunk(match &self.0 {
            Inner::Static(bytes) => Inner::Static(bytes),
            Inner::Shared(bytes) => Inner::Shared(Rc::clone(bytes)),
            Inner::SharedByThreads(bytes) => Inner::SharedByThreads(Arc::clone(bytes)),
            Inner::Lease(_) | Inner::Vec(_) => Inner::Vec(self.to_vec()),
        })
    }

    /// Returns the same bytes, so that [`duplicate`](Self::duplicate) does not copy them.
    #[must_use]
    pub fn into_shared(self) -> Chunk {
        match self.0 {
            Inner::Lease(_) | Inner::Vec(_) => Chunk(Inner::Shared(self.into_vec().into())),
            _ => self,
        }
    }

    /// Returns the bytes in a `Vec`. They are copied, unless they are in one, as bytes received in bulk are.
    pub fn into_vec(self) -> Vec<u8> {
        match self.0 {
            Inner::Vec(bytes) => bytes,
            Inner::Lease(lease) => lease.into(),
            Inner::Static(bytes) => bytes.to_vec(),
            Inner::Shared(bytes) => bytes.to_vec(),
            Inner::SharedByThreads(bytes) => bytes.to_vec(),
        }
    }

    /// Returns the memory to the worker's pool, if it came from there.
    #[inline]
    pub(crate) fn recycle(self) {
        if let Inner::Vec(bytes) = self.0 {
            pool::give_buffer(bytes);
        }
    }

    /// Returns the same bytes, for the engine to send.
    pub fn into_buf(self) -> AnyBuf {
        match self.0 {
            Inner::Vec(bytes) => bytes.into(),
            Inner::Lease(lease) => lease.into(),
            Inner::Static(bytes) => bytes.into(),
            Inner::Shared(bytes) => bytes.into(),
            Inner::SharedByThreads(bytes) => bytes.into(),
        }
    }

    /// Returns whether the bytes never change, so that the kernel may send them without a copy.
    pub(crate) fn is_lasting(&self) -> bool {
        matches!(self.0, Inner::Static(_) | Inner::Shared(_) | Inner::SharedByThreads(_))
    }

    /// Returns the bytes if they are static, so that they can be cut without a copy.
    pub(crate) fn as_static(&self) -> Option<&'static [u8]> {
        match self.0 {
            Inner::Static(bytes) => Some(bytes),
            _ => None,
        }
    }
}

impl Deref for Chunk {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Inner::Lease(lease) => lease,
            Inner::Vec(bytes) => bytes,
            Inner::Static(bytes) => bytes,
            Inner::Shared(bytes) => bytes,
            Inner::SharedByThreads(bytes) => bytes,
        }
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chunk({} bytes)", self.len())
    }
}

macro_rules! from {
    ($($type:ty => $bytes:ident => $inner:expr;)*) => {$(
        impl From<$type> for Chunk {
            #[inline]
            fn from($bytes: $type) -> Chunk {
                Chunk($inner)
            }
        }
    )*};
}
from! {
    Lease => bytes => Inner::Lease(bytes);
    Vec<u8> => bytes => Inner::Vec(bytes);
    String => bytes => Inner::Vec(bytes.into_bytes());
    &'static [u8] => bytes => Inner::Static(bytes);
    &'static str => bytes => Inner::Static(bytes.as_bytes());
    Rc<[u8]> => bytes => Inner::Shared(bytes);
    Arc<[u8]> => bytes => Inner::SharedByThreads(bytes);
}
