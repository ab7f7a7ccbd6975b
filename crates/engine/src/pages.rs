//! Memory in whole pages, for pools and for direct I/O.

use std::io;
use std::ptr::NonNull;

/// Whole pages of memory, with the alignment that direct I/O requires.
///
/// A drop unmaps them immediately, so that a late write of the kernel fails with EFAULT instead of corrupting
/// memory. This helps tests, and costs two system calls per buffer.
pub struct Pages {
    start: NonNull<u8>,
    /// In bytes, as `length`. 32 bits each keep the struct at 16 bytes, and a transfer within the kernel's
    /// limit.
    capacity: u32,
    length: u32,
}

impl Pages {
    /// Allocates at least `bytes` of memory, rounded up to whole pages, with length 0.
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

    /// Returns the start of the memory.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns an empty value without memory.
    pub(crate) fn empty() -> Pages {
        Pages { start: NonNull::dangling(), capacity: 0, length: 0 }
    }

    /// Returns the capacity in bytes.
    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// Sets the length to 0.
    pub fn clear(&mut self) {
        self.length = 0;
    }

    /// Adds `bytes` to the length.
    ///
    /// # Safety
    /// They were written at the start of the memory that `spare` returned.
    pub(crate) unsafe fn filled(&mut self, bytes: usize) {
        assert!(bytes <= self.capacity() - self.len(), "more than there was room for");
        // Fits: at most the capacity.
        self.length += bytes as u32;
    }

    /// Returns the start and length of the spare memory.
    pub(crate) fn spare(&mut self) -> (NonNull<u8>, usize) {
        // SAFETY: `length <= capacity`, inside or at the end of the mapping.
        (unsafe { self.start.add(self.len()) }, self.capacity() - self.len())
    }
}

const PAGE_BYTES: usize = 4096;

// SAFETY: the mapping belongs to the whole process and to this value alone; it does not matter which of its
// threads reads, writes or unmaps it.
unsafe impl Send for Pages {}

/// Maximum length of one transfer, in whole pages (MAX_RW_COUNT).
const PAGES_BYTES_MAX: usize = 0x7fff_f000;

impl std::ops::Deref for Pages {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the first `length` bytes were written; anonymous pages are initialised anyway; they are
        // ours.
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
            // SAFETY: our own mapping, of this size, reached by nothing else: `self` is its only owner.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.capacity()) };
        }
    }
}
