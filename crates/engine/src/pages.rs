//! Memory in whole pages: what pools are made of, and buffers for direct I/O.

use std::io;
use std::ptr::NonNull;

/// Whole pages of memory, aligned as direct I/O wants them.
///
/// When dropped they go back to the system at once, so that memory the kernel should no longer touch *cannot* be
/// touched: a late write becomes EFAULT (a test's net; it costs two system calls per buffer).
pub struct Pages {
    start: NonNull<u8>,
    /// Bytes, as `length`; 32 bits each keep the whole in 16 bytes and a transfer in the kernel's limits.
    capacity: u32,
    length: u32,
}

impl Pages {
    /// At least `bytes` of memory, rounded up to whole pages, holding none yet.
    ///
    /// # Errors
    /// ENOMEM from `mmap(2)`; InvalidInput for 2 GiB and more.
    pub fn new(bytes: usize) -> io::Result<Pages> {
        if bytes > PAGES_BYTES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a buffer of pages holds less than 2 GiB",
            ));
        }
        let capacity = bytes.max(1).next_multiple_of(PAGE_BYTES);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new anonymous mapping at an address the kernel chooses touches nothing that exists.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), capacity, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        match NonNull::new(start.cast()) {
            Some(start) => Ok(Pages { start, capacity: capacity as u32, length: 0 }),
            None => Err(io::Error::from_raw_os_error(libc::ENOMEM)),
        }
    }

    /// Where the memory begins.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// No memory at all.
    pub(crate) fn empty() -> Pages {
        Pages { start: NonNull::dangling(), capacity: 0, length: 0 }
    }

    /// How many bytes it can hold.
    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// Forgets what it holds, so that it can be filled again.
    pub fn clear(&mut self) {
        self.length = 0;
    }

    /// Makes `bytes` more of it part of what it holds.
    ///
    /// # Safety
    /// They were written at the start of what `spare` told.
    pub(crate) unsafe fn filled(&mut self, bytes: usize) {
        assert!(bytes <= self.capacity() - self.len(), "more than there was room for");
        // Fits: at most the capacity.
        self.length += bytes as u32;
    }

    /// Where more can be written, and how much.
    pub(crate) fn spare(&mut self) -> (NonNull<u8>, usize) {
        // SAFETY: `length <= capacity`, inside or at the end of the mapping.
        (unsafe { self.start.add(self.len()) }, self.capacity() - self.len())
    }
}

const PAGE_BYTES: usize = 4096;

// SAFETY: the mapping belongs to the whole process and to this value alone; it does not matter which of its threads
// reads, writes or unmaps it.
unsafe impl Send for Pages {}

/// What one transfer can be, in whole pages.
const PAGES_BYTES_MAX: usize = 0x7fff_f000;

impl std::ops::Deref for Pages {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the first `length` bytes were written; anonymous pages are initialised anyway; they are ours.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length as usize) }
    }
}

impl std::fmt::Debug for Pages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pages").field("length", &self.length).field("capacity", &self.capacity).finish()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if self.capacity > 0 {
            // SAFETY: our own mapping, of this size, reached by nobody else: `self` is its only owner.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.capacity()) };
        }
    }
}
