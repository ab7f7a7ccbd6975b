//! The shared memory: a mapping, from mmap to munmap.
//!
//! A [`Mapping`] hands out its address and nothing else; what lies in it, and which side may touch which word
//! when, is argued in `submit.rs`, `complete.rs` and `buffer_ring.rs`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// One mapped region, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    /// Maps `bytes` of a ring's memory; `offset` is one of the `IORING_OFF_*`.
    pub(crate) fn of_ring(ring: BorrowedFd<'_>, offset: u32, bytes: usize) -> io::Result<Mapping> {
        // MAP_POPULATE: the queues are touched on every turn, so fault them in now.
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        let mapping = map(bytes, flags, ring.as_raw_fd(), i64::from(offset))?;
        // A child must not see the queues: two processes advancing the same indices would corrupt both.
        mapping.advise(libc::MADV_DONTFORK)?;
        Ok(mapping)
    }

    /// Maps `bytes` of zeroed private memory, page-aligned.
    pub(crate) fn anonymous(bytes: usize) -> io::Result<Mapping> {
        map(bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    }

    pub(crate) fn advise(&self, advice: libc::c_int) -> io::Result<()> {
        // SAFETY: the range is exactly this mapping. The advice values used here (DONTFORK, WIPEONFORK)
        // change what a child sees and leave our own view as it is.
        match unsafe { libc::madvise(self.start.as_ptr().cast(), self.bytes, advice) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Returns the start as a pointer that is known not to be null.
    pub(crate) fn start_non_null(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the address `offset` bytes in, checked to hold a whole, aligned `T`.
    pub(crate) fn at<T>(&self, offset: u32) -> *mut T {
        let offset = offset as usize;
        assert!(
            offset + size_of::<T>() <= self.bytes,
            "offset {offset} lies outside a mapping of {} bytes",
            self.bytes
        );
        // SAFETY: just checked to lie inside the mapping.
        let address = unsafe { self.start.as_ptr().add(offset) }.cast::<T>();
        assert!(address.is_aligned(), "offset {offset} is not aligned");
        address
    }

    /// Gives the region up without unmapping it: in a forked child, where it is not mapped (`MADV_DONTFORK`)
    /// and by now something else may be, and where the kernel may still write and the memory must stay.
    pub(crate) fn forget(&mut self) {
        self.bytes = 0;
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        // SAFETY: the region was mapped by `map` with this length and is unmapped once, here; every pointer
        // into it is held by the queue that owns this mapping and dies with it.
        let unmapped = unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert_eq!(unmapped, 0, "munmap of a whole mapping cannot fail");
    }
}

fn map(bytes: usize, flags: libc::c_int, fd: libc::c_int, offset: i64) -> io::Result<Mapping> {
    // SAFETY: no address is asked for, so no existing mapping is replaced; the kernel checks the rest.
    let start = unsafe {
        libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, fd, offset)
    };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    match NonNull::new(start.cast()) {
        Some(start) => Ok(Mapping { start, bytes }),
        None => Err(io::Error::other("mmap returned address zero")),
    }
}
