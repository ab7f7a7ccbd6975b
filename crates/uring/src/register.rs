//! Objects registered with `io_uring_register`: fixed files, fixed buffers, the ring's descriptor, limits.
//!
//! Buffer rings have a file of their own (`buffer_ring.rs`), and so have the probe (`probe.rs`) and a table
//! of files that knows which of its slots are taken (`file_table.rs`).

use crate::abi::*;
use crate::ring::{Handle, Ring};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

/// A slot of the fixed file table with nothing in it, as the kernel takes it.
pub(crate) const EMPTY_SLOT: RawFd = -1;

impl Ring {
    /// Registers a table of files; entries then name them by index ([`crate::Sqe::fixed_file`]), which spares
    /// the kernel a reference per request. `None` leaves a slot empty. The kernel holds its own references:
    /// the descriptors may be closed. Errors: EBUSY (a table is registered), EMFILE (more than
    /// RLIMIT_NOFILE).
    pub fn register_files(&mut self, files: &[Option<BorrowedFd<'_>>]) -> io::Result<()> {
        let files = numbers(files);
        // SAFETY: the array is read during the call only.
        unsafe {
            self.handle.register(
                io_uring_register_op::IORING_REGISTER_FILES,
                files.as_ptr().cast(),
                files.len() as u32,
            )
        }
        .map(|_| ())
    }

    /// Registers a table of `count` empty slots (5.19).
    pub fn register_files_sparse(&mut self, count: u32) -> io::Result<()> {
        let argument = io_uring_rsrc_register {
            nr: count,
            flags: IORING_RSRC_REGISTER_SPARSE,
            resv2: 0,
            data: 0,
            tags: 0,
        };
        // SAFETY: `FILES2` reads one such structure, of the size given, during the call only.
        unsafe {
            self.handle.register(
                io_uring_register_op::IORING_REGISTER_FILES2,
                (&raw const argument).cast(),
                size_of_val(&argument) as u32,
            )
        }
        .map(|_| ())
    }

    /// Replaces slots from `start` on; `None` empties one. Requests that use an old file keep it until they
    /// complete. Returns how many slots were changed, which is fewer than asked when the kernel refuses a
    /// file.
    pub fn update_files(&mut self, start: u32, files: &[Option<BorrowedFd<'_>>]) -> io::Result<u32> {
        self.handle.update_files(start, &numbers(files))
    }

    /// Unregisters the file table.
    pub fn unregister_files(&mut self) -> io::Result<()> {
        self.handle.unregister_files()
    }

    /// Pins buffers for [`crate::Sqe::read_fixed`] and `write_fixed`. Counts against RLIMIT_MEMLOCK (ENOMEM).
    ///
    /// # Safety
    /// Each buffer stays mapped, and its memory is used for nothing else, until it is unregistered (or the
    /// ring is closed) and every request that uses it has completed.
    pub unsafe fn register_buffers(&mut self, buffers: &[libc::iovec]) -> io::Result<()> {
        // SAFETY: the array is read during the call; what it names is promised by the caller.
        unsafe {
            self.handle.register(
                io_uring_register_op::IORING_REGISTER_BUFFERS,
                buffers.as_ptr().cast(),
                buffers.len() as u32,
            )
        }
        .map(|_| ())
    }

    /// Unpins the registered buffers. Requests in flight keep theirs until they complete.
    pub fn unregister_buffers(&mut self) -> io::Result<()> {
        // SAFETY: takes no argument.
        unsafe { self.handle.register(io_uring_register_op::IORING_UNREGISTER_BUFFERS, std::ptr::null(), 0) }
            .map(|_| ())
    }

    /// Registers the ring's own descriptor (5.18), so that `enter` finds it without the descriptor table. The
    /// index belongs to this thread, which is one reason why a [`Ring`] is not `Send`.
    pub fn register_ring_fd(&mut self) -> io::Result<()> {
        if self.enter_target.is_some() {
            return Ok(());
        }
        let mut argument = ring_update(u32::MAX, self.handle.fd.as_raw_fd());
        // SAFETY: one such structure is read and its `offset` written during the call.
        unsafe {
            self.handle.register(
                io_uring_register_op::IORING_REGISTER_RING_FDS,
                (&raw mut argument).cast(),
                1,
            )?
        };
        self.enter_target = Some(argument.offset);
        Ok(())
    }

    /// Returns whether `enter` uses the registered descriptor.
    pub fn has_registered_ring_fd(&self) -> bool {
        self.enter_target.is_some()
    }

    /// Undoes [`register_ring_fd`](Self::register_ring_fd); also done on drop, or the thread would keep the
    /// ring open.
    pub(crate) fn forget_registered_fd(&mut self) {
        if let Some(index) = self.enter_target.take() {
            let argument = ring_update(index, 0);
            // SAFETY: one such structure is read during the call. An error would mean that the index is not
            // registered, which leaves nothing to undo.
            let _ = unsafe {
                self.handle.register(
                    io_uring_register_op::IORING_UNREGISTER_RING_FDS,
                    (&raw const argument).cast(),
                    1,
                )
            };
        }
    }

    /// Caps the kernel's worker threads for this ring's thread (5.15): `bounded` for files, `unbounded` for
    /// what may wait for ever. Zero keeps a limit. Returns the previous pair.
    pub fn limit_workers(&mut self, bounded: u32, unbounded: u32) -> io::Result<(u32, u32)> {
        let mut limits = [bounded, unbounded];
        // SAFETY: two u32 are read and written during the call.
        unsafe {
            self.handle.register(
                io_uring_register_op::IORING_REGISTER_IOWQ_MAX_WORKERS,
                limits.as_mut_ptr().cast(),
                2,
            )?
        };
        Ok((limits[0], limits[1]))
    }

    /// Starts a ring that was made with `IORING_SETUP_R_DISABLED`.
    pub fn enable(&mut self) -> io::Result<()> {
        // SAFETY: takes no argument.
        unsafe {
            self.handle.register(io_uring_register_op::IORING_REGISTER_ENABLE_RINGS, std::ptr::null(), 0)
        }
        .map(|_| ())
    }

    /// Cancels every request and waits at most `patience` until none is running (6.0). The completions, with
    /// ECANCELED or the result they had reached, still have to be taken. Errors: ETIME. ENOENT (nothing to
    /// cancel) becomes `Ok`.
    pub fn cancel_all(&mut self, patience: Duration) -> io::Result<()> {
        // SAFETY: the structure is integers only; zero is valid, and demanded in the padding.
        let mut argument: io_uring_sync_cancel_reg = unsafe { std::mem::zeroed() };
        argument.fd = -1;
        argument.flags = IORING_ASYNC_CANCEL_ANY | IORING_ASYNC_CANCEL_ALL;
        argument.timeout = crate::ring::timespec(patience);
        // SAFETY: one such structure is read during the call.
        match unsafe {
            self.handle.register(
                io_uring_register_op::IORING_REGISTER_SYNC_CANCEL,
                (&raw const argument).cast(),
                1,
            )
        } {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            answer => answer.map(|_| ()),
        }
    }
}

impl Handle {
    /// See [`Ring::update_files`].
    pub(crate) fn update_files(&self, start: u32, files: &[RawFd]) -> io::Result<u32> {
        let argument = io_uring_files_update { offset: start, resv: 0, fds: files.as_ptr() as u64 };
        // SAFETY: the structure and the array it points to are read during the call only.
        unsafe {
            self.register(
                io_uring_register_op::IORING_REGISTER_FILES_UPDATE,
                (&raw const argument).cast(),
                files.len() as u32,
            )
        }
    }

    /// See [`Ring::unregister_files`].
    pub(crate) fn unregister_files(&self) -> io::Result<()> {
        // SAFETY: takes no argument.
        unsafe { self.register(io_uring_register_op::IORING_UNREGISTER_FILES, std::ptr::null(), 0) }
            .map(|_| ())
    }
}

/// Returns the descriptors as the kernel takes them.
fn numbers(files: &[Option<BorrowedFd<'_>>]) -> Vec<RawFd> {
    files.iter().map(|file| file.map_or(EMPTY_SLOT, |file| file.as_raw_fd())).collect()
}

/// `io_uring_rsrc_update`, which the two ring-descriptor calls use with `data` as a descriptor.
fn ring_update(offset: u32, fd: RawFd) -> io_uring_rsrc_update {
    io_uring_rsrc_update { offset, resv: 0, data: fd as u64 }
}
