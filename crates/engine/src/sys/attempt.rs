//! One operation, one system call, which never waits. Results have io_uring's form: a count or a descriptor,
//! or a negated errno.
//!
//! Calls with flags use MSG_DONTWAIT. `accept4` and `sendfile` have no such flag and depend on O_NONBLOCK,
//! which every driver sets and none clears (ADR 22): the mode belongs to the open file description, and other
//! descriptors, runtimes and processes may share it.
//!
//! Calls are made by number: the C library's `recv` and `send` are cancellation points, which costs some 30
//! instructions each in a process with several threads, and these threads are never cancelled.

use super::negated;
use super::sigpipe::without_sigpipe;
use crate::counters::Counters;
use crate::op::Span;
use socket2::SockAddr;
use std::fs::File;
use std::os::fd::AsRawFd;

/// Flags of new sockets, also for `accept4`.
pub(crate) const SOCKET_FLAGS: libc::c_int = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;

/// Takes one connection from the listener's queue. The listener is non-blocking.
#[inline]
pub(crate) fn accept(listener: i32, counters: &mut Counters) -> i32 {
    counters.system_calls += 1;
    let (no_name, no_length) = (std::ptr::null_mut::<u8>(), std::ptr::null_mut::<u8>());
    // SAFETY: accept4(2). Null name and length are allowed, and mean that the peer's address is not wanted.
    negated(unsafe { libc::syscall(libc::SYS_accept4, listener, no_name, no_length, SOCKET_FLAGS) })
}

/// Returns 0 if a read would not block, or EAGAIN.
pub(crate) fn is_readable(number: i32, counters: &mut Counters) -> i32 {
    is_ready(number, libc::POLLIN, counters)
}

/// Returns 0 if a write would not block, or EAGAIN.
pub(crate) fn is_writable(number: i32, counters: &mut Counters) -> i32 {
    is_ready(number, libc::POLLOUT, counters)
}

fn is_ready(number: i32, events: i16, counters: &mut Counters) -> i32 {
    counters.system_calls += 1;
    let mut entry = libc::pollfd { fd: number, events, revents: 0 };
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let (entry, span) = (&raw mut entry, &raw const at_once);
    // SAFETY: ppoll(2) with one live entry, written during the call only, a live timespec, and no signal
    // mask.
    match negated(unsafe {
        libc::syscall(libc::SYS_ppoll, entry, 1usize, span, std::ptr::null::<u8>(), 0usize)
    }) {
        0 => -libc::EAGAIN,
        ready => ready.min(0),
    }
}

/// Starts a connect; returns 0, EINPROGRESS, or another negated errno.
pub(crate) fn connect(socket: i32, address: &SockAddr, counters: &mut Counters) -> i32 {
    counters.system_calls += 1;
    // SAFETY: connect(2). The address is borrowed for the call, and is `len` bytes long by its type.
    negated(unsafe { libc::syscall(libc::SYS_connect, socket, address.as_ptr(), address.len()) })
}

/// Returns and clears the pending error of a socket: 0, or a negated errno.
pub(crate) fn take_error(socket: i32, counters: &mut Counters) -> i32 {
    counters.system_calls += 1;
    let mut error: libc::c_int = 0;
    let mut bytes = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: both pointers are to live locals of the lengths given, written during the call only.
    let answer = unsafe {
        libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_ERROR, (&raw mut error).cast(), &raw mut bytes)
    };
    if answer < 0 { negated(answer.into()) } else { -error }
}

/// Receives into `memory`, which no other code touches during the call.
///
/// # Safety
/// The memory is valid for writes of its length.
#[inline]
pub(crate) unsafe fn receive(socket: i32, memory: Span, counters: &mut Counters) -> i32 {
    counters.system_calls += 1;
    let (no_name, no_length) = (std::ptr::null_mut::<u8>(), std::ptr::null_mut::<u8>());
    let (length, flags) = (bounded(memory.bytes), libc::MSG_DONTWAIT);
    // SAFETY: recvfrom(2) without a name is recv(2): the kernel writes at most `bytes` bytes, during the call
    // only; promised by the caller.
    negated(unsafe {
        libc::syscall(libc::SYS_recvfrom, socket, memory.start, length, flags, no_name, no_length)
    })
}

/// Sends from the front of `bytes`. A closed peer is EPIPE, never a signal.
///
/// # Safety
/// The memory is valid for reads of its length.
#[inline]
pub(crate) unsafe fn send(socket: i32, bytes: Span, counters: &mut Counters) -> i32 {
    counters.system_calls += 1;
    let (length, flags) = (bounded(bytes.bytes), libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT);
    // SAFETY: sendto(2) without a name is send(2): the kernel reads at most `bytes` bytes, during the call
    // only; promised by the caller.
    negated(unsafe {
        libc::syscall(libc::SYS_sendto, socket, bytes.start, length, flags, std::ptr::null::<u8>(), 0)
    })
}

/// Sends what `message` names.
///
/// # Safety
/// Its vectors, and what they name, are valid for reads.
pub(crate) unsafe fn send_vectored(socket: i32, message: &libc::msghdr, counters: &mut Counters) -> i32 {
    counters.system_calls += 1;
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: sendmsg(2). Read during the call only; promised by the caller.
    negated(unsafe { libc::syscall(libc::SYS_sendmsg, socket, std::ptr::from_ref(message), flags) })
}

/// Sends bytes of `file` from `at` on without copying them through user space, as many as possible now.
/// ENODATA: the file ends before `at`. A closed peer is EPIPE, never a signal. The socket is non-blocking.
pub(crate) fn send_file(socket: i32, file: &File, at: u64, bytes: usize, counters: &mut Counters) -> i32 {
    counters.system_calls += 1;
    let Ok(mut at) = i64::try_from(at) else { return -libc::EOVERFLOW };
    let (file, length) = (file.as_raw_fd(), bounded(bytes));
    // SAFETY: sendfile(2). It takes numbers, and an offset of this frame that is written during the call
    // only.
    let send = || negated(unsafe { libc::syscall(libc::SYS_sendfile, socket, file, &raw mut at, length) });
    let (sent, around) = without_sigpipe(send);
    counters.system_calls += around;
    if sent == 0 && length > 0 { -libc::ENODATA } else { sent }
}

/// Sets or clears O_NONBLOCK, for every descriptor that shares the socket.
pub(crate) fn set_nonblocking(socket: i32, nonblocking: bool) -> i32 {
    let mut on = libc::c_int::from(nonblocking);
    // SAFETY: ioctl(2) with FIONBIO reads one number, of this frame, during the call.
    negated(unsafe { libc::syscall(libc::SYS_ioctl, socket, libc::FIONBIO, &raw mut on) })
}

/// Receives one datagram into what `message` names; returns its whole length.
///
/// # Safety
/// The message is valid for reads and writes; its vectors, and what they and the name's place name, for
/// writes.
pub(crate) unsafe fn receive_message(
    socket: i32,
    message: *mut libc::msghdr,
    counters: &mut Counters,
) -> i32 {
    counters.system_calls += 1;
    // With MSG_TRUNC as a flag the result is the datagram's length instead of the number of bytes that
    // fitted.
    let flags = libc::MSG_TRUNC | libc::MSG_DONTWAIT;
    // SAFETY: recvmsg(2). Written during the call only; promised by the caller.
    negated(unsafe { libc::syscall(libc::SYS_recvmsg, socket, message, flags) })
}

/// Returns the number that the next descriptor would get: duplicates `like`, and closes the duplicate.
#[cold]
pub(crate) fn lowest_free(like: i32, counters: &mut Counters) -> i32 {
    counters.system_calls += 1;
    // SAFETY: fcntl(2) takes numbers only.
    let number = negated(unsafe { libc::syscall(libc::SYS_fcntl, like, libc::F_DUPFD_CLOEXEC, 0) });
    if number < 0 {
        return i32::MAX;
    }
    close(number, counters);
    number
}

/// Closes a descriptor that the kernel has just opened.
#[cold]
pub(crate) fn close(number: i32, counters: &mut Counters) {
    counters.system_calls += 1;
    // SAFETY: no other code knows the number yet.
    unsafe { libc::close(number) };
}

/// Limits the length of a transfer: results are 32 bits wide, and `MAX_RW_COUNT` is a page less than 2 GiB.
#[inline]
pub(crate) fn bounded(bytes: usize) -> usize {
    bytes.min(0x7fff_f000)
}
