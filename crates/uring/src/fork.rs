//! Detects a forked child: one page that the kernel wipes there.
//!
//! Asking `getpid` before every `enter` would cost a system call each (glibc has not cached it since 2.25). A
//! private page under `MADV_WIPEONFORK` (Linux 4.14) answers by a load: the maker's pid is written in it
//! once, and a child made by fork, or by clone without `CLONE_VM`, reads zero there.

use crate::map::Mapping;
use std::io;

/// Detects whether the current process made the ring.
#[derive(Debug)]
pub(crate) struct ForkGuard {
    page: Mapping,
    made_by: u32,
}

impl ForkGuard {
    pub(crate) fn new() -> io::Result<ForkGuard> {
        let page = Mapping::anonymous(size_of::<u32>())?;
        page.advise(libc::MADV_WIPEONFORK)?;
        let made_by = std::process::id();
        // SAFETY: the page is ours, writable, large and aligned enough for one u32, and no reference to it
        // exists: it is only ever read through `is_owner` below, on the thread that holds `self`.
        unsafe { page.start().cast::<u32>().write_volatile(made_by) };
        Ok(ForkGuard { page, made_by })
    }

    /// Returns whether the current process made the ring.
    #[inline]
    pub(crate) fn is_owner(&self) -> bool {
        // SAFETY: the page is mapped in the child too (wiped, not removed), so the load is valid in both.
        // Volatile: the value changes by fork, which the compiler cannot see.
        (unsafe { self.page.start().cast::<u32>().read_volatile() }) == self.made_by
    }

    /// Returns the error that system calls give in a forked child.
    #[inline]
    pub(crate) fn check(&self) -> io::Result<()> {
        if self.is_owner() { Ok(()) } else { Err(io::Error::other(self.message())) }
    }

    /// Panics in a forked child, where the queues are not mapped, before an access faults.
    #[inline]
    pub(crate) fn assert_owner(&self) {
        assert!(self.is_owner(), "{}", self.message());
    }

    #[cold]
    fn message(&self) -> String {
        format!(
            "this io_uring was made by process {}, and process {} is a forked child of it: \
             make a ring of your own after fork",
            self.made_by,
            std::process::id()
        )
    }
}
