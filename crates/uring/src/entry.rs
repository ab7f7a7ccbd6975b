//! A submission entry: one operation as plain data.
//!
//! Building an entry is safe, since nothing happens; handing it to the kernel is not (see
//! [`crate::Slot::fill`]). Constructors are named after the opcode and take its arguments in the order of the
//! corresponding system call. Chained methods set what opcodes share: link, fixed file, buffer group, user
//! data.
//! Reference: io_uring_enter(2), one paragraph per opcode.

use crate::abi::*;
use std::fmt;
use std::os::fd::RawFd;

/// One operation, ready to be given to [`crate::SubmissionQueue::push`].
#[repr(transparent)]
pub struct Sqe {
    pub(crate) raw: io_uring_sqe,
}

impl fmt::Debug for Sqe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let raw = &self.raw;
        f.debug_struct("Sqe")
            .field("opcode", &raw.opcode)
            .field("fd", &raw.fd)
            .field("flags", &raw.flags)
            .field("len", &raw.len)
            .field("user_data", &raw.user_data)
            .finish_non_exhaustive()
    }
}

/// Offset that means "at the file's own position" (5.6, `IORING_FEAT_RW_CUR_POS`).
pub const CURRENT_POSITION: u64 = u64::MAX;

impl Sqe {
    #[inline]
    fn new(opcode: io_uring_op, fd: RawFd) -> Sqe {
        // SAFETY: the structure is integers and unions of integers; all-zero is a valid value of each, and
        // the one the kernel expects in fields an opcode does not use.
        let mut raw: io_uring_sqe = unsafe { std::mem::zeroed() };
        raw.opcode = opcode as u8;
        raw.fd = fd;
        Sqe { raw }
    }

    /// Returns the value that the completion will carry. See [`user_data`](Self::user_data).
    pub fn user_data_bits(&self) -> u64 {
        self.raw.user_data
    }

    /// Returns an entry as the kernel's structure, for opcodes without a constructor here.
    pub fn from_raw(raw: io_uring_sqe) -> Sqe {
        Sqe { raw }
    }

    /// Returns the kernel's structure, to be changed or handed over by other means than a [`crate::Ring`].
    pub fn into_raw(self) -> io_uring_sqe {
        self.raw
    }

    #[inline]
    fn memory(mut self, address: *const u8, bytes: u32) -> Sqe {
        self.raw.__bindgen_anon_2.addr = address as u64;
        self.raw.len = bytes;
        self
    }

    #[inline]
    fn offset(mut self, offset: u64) -> Sqe {
        self.raw.__bindgen_anon_1.off = offset;
        self
    }

    #[inline]
    fn call_flags(mut self, flags: u32) -> Sqe {
        // One union of 32-bit flag words, named per opcode; msg_flags stands for all of them.
        self.raw.__bindgen_anon_3.msg_flags = flags;
        self
    }

    /// Makes an entry `IORING_OP_NOP`: completes at once with zero.
    #[inline]
    pub fn nop() -> Sqe {
        Sqe::new(io_uring_op::IORING_OP_NOP, -1)
    }

    /// Makes an entry `IORING_OP_READ` (5.6), as pread(2). May read less than asked.
    #[inline]
    pub fn read(fd: RawFd, buffer: *mut u8, bytes: u32, offset: u64) -> Sqe {
        Sqe::new(io_uring_op::IORING_OP_READ, fd).memory(buffer, bytes).offset(offset)
    }

    /// Makes an entry `IORING_OP_WRITE` (5.6), as pwrite(2). May write less than asked.
    #[inline]
    pub fn write(fd: RawFd, buffer: *const u8, bytes: u32, offset: u64) -> Sqe {
        Sqe::new(io_uring_op::IORING_OP_WRITE, fd).memory(buffer, bytes).offset(offset)
    }

    /// Makes an entry `IORING_OP_READV`, as preadv(2).
    #[inline]
    pub fn readv(fd: RawFd, vectors: *const libc::iovec, count: u32, offset: u64) -> Sqe {
        Sqe::new(io_uring_op::IORING_OP_READV, fd).memory(vectors.cast(), count).offset(offset)
    }

    /// Makes an entry `IORING_OP_READ_FIXED`: a read into registered buffer `index`; `buffer` lies inside it.
    #[inline]
    pub fn read_fixed(fd: RawFd, buffer: *mut u8, bytes: u32, offset: u64, index: u16) -> Sqe {
        let mut entry = Sqe::new(io_uring_op::IORING_OP_READ_FIXED, fd).memory(buffer, bytes).offset(offset);
        entry.raw.__bindgen_anon_4.buf_index = index;
        entry
    }

    /// Makes an entry `IORING_OP_WRITE_FIXED`: a write from registered buffer `index`; `buffer` lies inside
    /// it.
    #[inline]
    pub fn write_fixed(fd: RawFd, buffer: *const u8, bytes: u32, offset: u64, index: u16) -> Sqe {
        let mut entry = Sqe::new(io_uring_op::IORING_OP_WRITE_FIXED, fd).memory(buffer, bytes).offset(offset);
        entry.raw.__bindgen_anon_4.buf_index = index;
        entry
    }

    /// Makes an entry `IORING_OP_FSYNC`; `flags` is 0 or `IORING_FSYNC_DATASYNC`.
    #[inline]
    pub fn fsync(fd: RawFd, flags: u32) -> Sqe {
        Sqe::new(io_uring_op::IORING_OP_FSYNC, fd).call_flags(flags)
    }

    /// Makes an entry `IORING_OP_POLL_ADD`: completes once with the ready `POLL*` bits.
    #[inline]
    pub fn poll_add(fd: RawFd, events: u32) -> Sqe {
        let mut entry = Sqe::new(io_uring_op::IORING_OP_POLL_ADD, fd);
        // The kernel reads this word with its 16-bit halves swapped on big-endian machines (liburing does the
        // same in io_uring_prep_poll_mask).
        let events = if cfg!(target_endian = "big") { events.rotate_left(16) } else { events };
        entry.raw.__bindgen_anon_3.poll32_events = events;
        entry
    }

    /// Makes an entry `IORING_OP_POLL_ADD` with `IORING_POLL_ADD_MULTI` (5.13): a completion per readiness,
    /// until cancelled.
    #[inline]
    pub fn poll_multishot(fd: RawFd, events: u32) -> Sqe {
        let mut entry = Sqe::poll_add(fd, events);
        entry.raw.len = IORING_POLL_ADD_MULTI;
        entry
    }

    /// Makes an entry `IORING_OP_RECV` (5.6), as recv(2).
    #[inline]
    pub fn recv(fd: RawFd, buffer: *mut u8, bytes: u32, flags: i32) -> Sqe {
        Sqe::new(io_uring_op::IORING_OP_RECV, fd).memory(buffer, bytes).call_flags(flags as u32)
    }

    /// Makes an entry `IORING_OP_RECV` with `IORING_RECV_MULTISHOT` (6.0): a completion per arrival, each
    /// with a buffer of `group`. Ends (no `more`) at end of stream, on error, and with ENOBUFS when the group
    /// is empty.
    #[inline]
    pub fn recv_multishot(fd: RawFd, group: u16) -> Sqe {
        let mut entry = Sqe::new(io_uring_op::IORING_OP_RECV, fd).buffer_group(group);
        entry.raw.ioprio = IORING_RECV_MULTISHOT as u16;
        entry
    }

    /// Makes an entry `IORING_OP_RECV` (5.7) into a buffer of `group`, once: as much as has arrived and the
    /// buffer holds. While it waits it has no buffer. ENOBUFS when the group is empty.
    #[inline]
    pub fn recv_selected(fd: RawFd, group: u16) -> Sqe {
        Sqe::new(io_uring_op::IORING_OP_RECV, fd).buffer_group(group)
    }

    /// Makes an entry `IORING_OP_SEND` (5.6), as send(2). May send less than asked unless `MSG_WAITALL` is
    /// given.
    #[inline]
    pub fn send(fd: RawFd, buffer: *const u8, bytes: u32, flags: i32) -> Sqe {
        Sqe::new(io_uring_op::IORING_OP_SEND, fd).memory(buffer, bytes).call_flags(flags as u32)
    }

    /// Makes an entry `IORING_OP_SENDMSG` (5.3), as sendmsg(2). What the message names counts as named by the
    /// entry.
    #[inline]
    pub fn sendmsg(fd: RawFd, message: *const libc::msghdr, flags: i32) -> Sqe {
        Sqe::new(io_uring_op::IORING_OP_SENDMSG, fd).memory(message.cast(), 1).call_flags(flags as u32)
    }

    /// Makes an entry `IORING_OP_SEND_ZC` (6.0), as send(2) without a copy if possible. Completes with the
    /// result, and if that has `more`, a second time
    /// ([`Cqe::is_notification`](crate::Cqe::is_notification)). The entry names the bytes, and the kernel may
    /// read them, until then, which may be when the peer has acknowledged them. Errors: EOPNOTSUPP (a socket
    /// without support, Unix ones for instance), ENOBUFS (more memory would be in use at a time than may be
    /// locked).
    #[inline]
    pub fn send_zc(fd: RawFd, buffer: *const u8, bytes: u32, flags: i32) -> Sqe {
        Sqe::new(io_uring_op::IORING_OP_SEND_ZC, fd).memory(buffer, bytes).call_flags(flags as u32)
    }

    /// Makes an entry `IORING_OP_SENDMSG_ZC` (6.1), as sendmsg(2), likewise. The message and its vectors are
    /// named until the first completion, what they name until the last.
    #[inline]
    pub fn sendmsg_zc(fd: RawFd, message: *const libc::msghdr, flags: i32) -> Sqe {
        Sqe::new(io_uring_op::IORING_OP_SENDMSG_ZC, fd).memory(message.cast(), 1).call_flags(flags as u32)
    }

    /// Sets `IORING_SEND_ZC_REPORT_USAGE` (6.2) for a zero-copy send: its notification reports whether the
    /// kernel copied nevertheless ([`Cqe::was_copied`](crate::Cqe::was_copied)). Older kernels return EINVAL.
    #[inline]
    pub fn report_usage(mut self) -> Sqe {
        self.raw.ioprio |= IORING_SEND_ZC_REPORT_USAGE as u16;
        self
    }

    /// Makes an entry `IORING_OP_RECVMSG` (5.3), as recvmsg(2). What the message names counts as named by the
    /// entry, and is written, as is the message itself.
    #[inline]
    pub fn recvmsg(fd: RawFd, message: *mut libc::msghdr, flags: i32) -> Sqe {
        Sqe::new(io_uring_op::IORING_OP_RECVMSG, fd).memory(message.cast(), 1).call_flags(flags as u32)
    }

    /// Makes an entry `IORING_OP_ACCEPT` (5.5), as accept4(2) without the peer's address. `flags`:
    /// `SOCK_CLOEXEC`, …
    #[inline]
    pub fn accept(fd: RawFd, flags: i32) -> Sqe {
        Sqe::new(io_uring_op::IORING_OP_ACCEPT, fd).call_flags(flags as u32)
    }

    /// Makes an entry `IORING_OP_ACCEPT` with `IORING_ACCEPT_MULTISHOT` (5.19): a completion per connection.
    #[inline]
    pub fn accept_multishot(fd: RawFd, flags: i32) -> Sqe {
        let mut entry = Sqe::accept(fd, flags);
        entry.raw.ioprio = IORING_ACCEPT_MULTISHOT as u16;
        entry
    }

    /// Makes an entry `IORING_OP_FIXED_FD_INSTALL` (6.8): gives the file in slot `index` of the ring's table
    /// a descriptor as well, close-on-exec, which is the result.
    #[inline]
    pub fn install_fixed_fd(index: u32) -> Sqe {
        Sqe::new(io_uring_op::IORING_OP_FIXED_FD_INSTALL, index as RawFd).fixed_file()
    }

    /// Makes an entry `IORING_OP_CONNECT` (5.5), as connect(2).
    #[inline]
    pub fn connect(fd: RawFd, address: *const libc::sockaddr, address_bytes: libc::socklen_t) -> Sqe {
        let mut entry = Sqe::new(io_uring_op::IORING_OP_CONNECT, fd).offset(u64::from(address_bytes));
        entry.raw.__bindgen_anon_2.addr = address as u64;
        entry
    }

    /// Makes an entry `IORING_OP_SHUTDOWN` (5.11), as shutdown(2).
    #[inline]
    pub fn shutdown(fd: RawFd, how: i32) -> Sqe {
        let mut entry = Sqe::new(io_uring_op::IORING_OP_SHUTDOWN, fd);
        entry.raw.len = how as u32;
        entry
    }

    /// Makes an entry `IORING_OP_CLOSE` (5.6), as close(2). Does not cancel what is pending on the
    /// descriptor.
    #[inline]
    pub fn close(fd: RawFd) -> Sqe {
        Sqe::new(io_uring_op::IORING_OP_CLOSE, fd)
    }

    /// Makes an entry `IORING_OP_OPENAT` (5.6), as openat(2). `path` is NUL-terminated.
    #[inline]
    pub fn openat(directory: RawFd, path: *const libc::c_char, flags: i32, mode: u32) -> Sqe {
        Sqe::new(io_uring_op::IORING_OP_OPENAT, directory).memory(path.cast(), mode).call_flags(flags as u32)
    }

    /// Makes an entry `IORING_OP_STATX` (5.6), as statx(2). `path` is NUL-terminated.
    #[inline]
    pub fn statx(
        directory: RawFd,
        path: *const libc::c_char,
        flags: i32,
        mask: u32,
        into: *mut libc::statx,
    ) -> Sqe {
        Sqe::new(io_uring_op::IORING_OP_STATX, directory)
            .memory(path.cast(), mask)
            .offset(into as u64)
            .call_flags(flags as u32)
    }

    /// Makes an entry `IORING_OP_FTRUNCATE` (6.9), as ftruncate(2).
    #[inline]
    pub fn ftruncate(fd: RawFd, bytes: u64) -> Sqe {
        Sqe::new(io_uring_op::IORING_OP_FTRUNCATE, fd).offset(bytes)
    }

    /// Makes an entry `IORING_OP_RENAMEAT` (5.11), as renameat2(2). Both paths are NUL-terminated.
    #[inline]
    pub fn renameat(
        old_directory: RawFd,
        old: *const libc::c_char,
        new_directory: RawFd,
        new: *const libc::c_char,
        flags: u32,
    ) -> Sqe {
        Sqe::new(io_uring_op::IORING_OP_RENAMEAT, old_directory)
            .memory(old.cast(), new_directory as u32)
            .offset(new as u64)
            .call_flags(flags)
    }

    /// Makes an entry `IORING_OP_UNLINKAT` (5.11), as unlinkat(2). `path` is NUL-terminated.
    #[inline]
    pub fn unlinkat(directory: RawFd, path: *const libc::c_char, flags: i32) -> Sqe {
        Sqe::new(io_uring_op::IORING_OP_UNLINKAT, directory).memory(path.cast(), 0).call_flags(flags as u32)
    }

    /// Makes an entry `IORING_OP_MKDIRAT` (5.15), as mkdirat(2). `path` is NUL-terminated.
    #[inline]
    pub fn mkdirat(directory: RawFd, path: *const libc::c_char, mode: u32) -> Sqe {
        Sqe::new(io_uring_op::IORING_OP_MKDIRAT, directory).memory(path.cast(), mode)
    }

    /// Makes an entry `IORING_OP_LINKAT` (5.15), as linkat(2). Both paths are NUL-terminated.
    #[inline]
    pub fn linkat(
        old_directory: RawFd,
        old: *const libc::c_char,
        new_directory: RawFd,
        new: *const libc::c_char,
        flags: i32,
    ) -> Sqe {
        Sqe::new(io_uring_op::IORING_OP_LINKAT, old_directory)
            .memory(old.cast(), new_directory as u32)
            .offset(new as u64)
            .call_flags(flags as u32)
    }

    /// Makes an entry `IORING_OP_SYMLINKAT` (5.15), as symlinkat(2). Both are NUL-terminated.
    #[inline]
    pub fn symlinkat(target: *const libc::c_char, directory: RawFd, path: *const libc::c_char) -> Sqe {
        Sqe::new(io_uring_op::IORING_OP_SYMLINKAT, directory).memory(target.cast(), 0).offset(path as u64)
    }

    /// Makes an entry `IORING_OP_TIMEOUT` (5.4): completes with ETIME after `span`, or earlier with 0 once
    /// `completions` others have come (0: time alone counts). `span` is read at submission.
    #[inline]
    pub fn timeout(span: *const __kernel_timespec, completions: u32, flags: u32) -> Sqe {
        Sqe::new(io_uring_op::IORING_OP_TIMEOUT, -1)
            .memory(span.cast(), 1)
            .offset(u64::from(completions))
            .call_flags(flags)
    }

    /// Makes an entry `IORING_OP_ASYNC_CANCEL` (5.5) of the request that carries `user_data`. Completes with
    /// 0, ENOENT (no such request: it may have completed), or EALREADY (running). The request itself
    /// completes on its own.
    #[inline]
    pub fn cancel(user_data: u64) -> Sqe {
        let mut entry = Sqe::new(io_uring_op::IORING_OP_ASYNC_CANCEL, -1);
        entry.raw.__bindgen_anon_2.addr = user_data;
        entry
    }

    /// Makes an entry `IORING_OP_ASYNC_CANCEL` (5.19) of every request on `fd`. Completes with how many were
    /// found.
    #[inline]
    pub fn cancel_fd(fd: RawFd) -> Sqe {
        Sqe::new(io_uring_op::IORING_OP_ASYNC_CANCEL, fd)
            .call_flags(IORING_ASYNC_CANCEL_FD | IORING_ASYNC_CANCEL_ALL)
    }

    /// Makes an entry `IORING_OP_ASYNC_CANCEL` (5.19) of every request of the ring. Completes with how many
    /// were found.
    #[inline]
    pub fn cancel_any() -> Sqe {
        Sqe::new(io_uring_op::IORING_OP_ASYNC_CANCEL, -1)
            .call_flags(IORING_ASYNC_CANCEL_ANY | IORING_ASYNC_CANCEL_ALL)
    }

    /// Sets the value that the completion will carry.
    #[inline]
    pub fn user_data(mut self, user_data: u64) -> Sqe {
        self.raw.user_data = user_data;
        self
    }

    /// Sets `IOSQE_FIXED_FILE`: the descriptor is an index into the registered files.
    #[inline]
    pub fn fixed_file(self) -> Sqe {
        self.bit(io_uring_sqe_flags_bit::IOSQE_FIXED_FILE_BIT)
    }

    /// Sets `IOSQE_IO_LINK`: the next entry starts only when this one succeeded whole; a short transfer
    /// breaks the chain, and what follows completes with ECANCELED.
    #[inline]
    pub fn link(self) -> Sqe {
        self.bit(io_uring_sqe_flags_bit::IOSQE_IO_LINK_BIT)
    }

    /// Sets `IOSQE_IO_DRAIN`: starts only when everything submitted before has completed.
    #[inline]
    pub fn drain(self) -> Sqe {
        self.bit(io_uring_sqe_flags_bit::IOSQE_IO_DRAIN_BIT)
    }

    /// Sets `IOSQE_ASYNC`: goes to a kernel worker thread without a first try.
    #[inline]
    pub fn force_async(self) -> Sqe {
        self.bit(io_uring_sqe_flags_bit::IOSQE_ASYNC_BIT)
    }

    /// Sets `IOSQE_CQE_SKIP_SUCCESS` (5.17): no completion when it succeeds.
    #[inline]
    pub fn skip_success(self) -> Sqe {
        self.bit(io_uring_sqe_flags_bit::IOSQE_CQE_SKIP_SUCCESS_BIT)
    }

    /// Sets `IOSQE_BUFFER_SELECT`: the kernel takes a buffer of `group` when data is there.
    #[inline]
    pub fn buffer_group(mut self, group: u16) -> Sqe {
        self.raw.__bindgen_anon_4.buf_group = group;
        self.bit(io_uring_sqe_flags_bit::IOSQE_BUFFER_SELECT_BIT)
    }

    /// Sets `IORING_RECVSEND_POLL_FIRST` (5.19), for receive and send: wait for readiness before the first
    /// try.
    #[inline]
    pub fn poll_first(mut self) -> Sqe {
        self.raw.ioprio |= IORING_RECVSEND_POLL_FIRST as u16;
        self
    }

    /// Sets `IORING_RECVSEND_BUNDLE` (6.10), for a receive from a buffer group: one completion may fill
    /// several buffers, which [`BufferRing::take_each`](crate::BufferRing::take_each) names in order.
    #[inline]
    pub fn bundle(mut self) -> Sqe {
        self.raw.ioprio |= IORING_RECVSEND_BUNDLE as u16;
        self
    }

    #[inline]
    fn bit(mut self, bit: io_uring_sqe_flags_bit) -> Sqe {
        self.raw.flags |= 1 << bit as u8;
        self
    }
}
