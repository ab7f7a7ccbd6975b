//! One operation, one system call, on a non-blocking socket. Answers as io_uring gives them: a count or a
//! descriptor, or a negated errno.
//!
//! Made by number: the C library's `recv` and `send` are points of thread cancellation, which in a process of
//! several threads costs some 30 instructions each, and nobody cancels our threads.

use super::negated;
use crate::counters::Counters;
use crate::op::Span;
use socket2::SockAddr;
use std::fs::File;
use std::os::fd::AsRawFd;

/// Takes one connection from the listener's queue.
#[inline]
pub(crate) fn accept(listener: i32, flags: i32, counters: &mut Counters) -> i32 {
    counters.system_calls += 1;
    let (no_name, no_length) = (std::ptr::null_mut::<u8>(), std::ptr::null_mut::<u8>());
    // SAFETY: accept4(2). Null name and length are allowed, and mean that the peer's address is not wanted.
    negated(unsafe { libc::syscall(libc::SYS_accept4, listener, no_name, no_length, flags) })
}

/// Begins to connect: 0, EINPROGRESS, or what was wrong.
pub(crate) fn connect(socket: i32, address: &SockAddr, counters: &mut Counters) -> i32 {
    counters.system_calls += 1;
    // SAFETY: connect(2). The address is borrowed for the call, and is `len` bytes long by its type.
    negated(unsafe { libc::syscall(libc::SYS_connect, socket, address.as_ptr(), address.len()) })
}

/// The pending error of a socket, taken from it: 0, or a negated errno.
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

/// Receives into `memory`, which nobody else touches during the call.
///
/// # Safety
/// The memory is valid for writes of its length.
#[inline]
pub(crate) unsafe fn receive(socket: i32, memory: Span, counters: &mut Counters) -> i32 {
    counters.system_calls += 1;
    let (no_name, no_length) = (std::ptr::null_mut::<u8>(), std::ptr::null_mut::<u8>());
    // SAFETY: recvfrom(2) without a name is recv(2): the kernel writes at most `bytes` bytes, during the call
    // only; promised by the caller.
    negated(unsafe {
        libc::syscall(libc::SYS_recvfrom, socket, memory.start, bounded(memory.bytes), 0, no_name, no_length)
    })
}

/// Sends from the front of `bytes`. A peer that is gone is EPIPE, never a signal.
///
/// # Safety
/// The memory is valid for reads of its length.
#[inline]
pub(crate) unsafe fn send(socket: i32, bytes: Span, counters: &mut Counters) -> i32 {
    counters.system_calls += 1;
    let (length, flags) = (bounded(bytes.bytes), libc::MSG_NOSIGNAL);
    // SAFETY: sendto(2) without a name is send(2): the kernel reads at most `bytes` bytes, during the call only;
    // promised by the caller.
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
    // SAFETY: sendmsg(2). Read during the call only; promised by the caller.
    negated(unsafe {
        libc::syscall(libc::SYS_sendmsg, socket, std::ptr::from_ref(message), libc::MSG_NOSIGNAL)
    })
}

/// Sends bytes of `file` from `at` on without copying them through here, as many as go now. Where the file has ended:
/// ENODATA.
pub(crate) fn send_file(socket: i32, file: &File, at: u64, bytes: usize, counters: &mut Counters) -> i32 {
    counters.system_calls += 1;
    let Ok(mut at) = i64::try_from(at) else { return -libc::EOVERFLOW };
    let (file, length) = (file.as_raw_fd(), bounded(bytes));
    // SAFETY: sendfile(2). It takes numbers, and a place that is this frame's and is written during the call only.
    let sent = negated(unsafe { libc::syscall(libc::SYS_sendfile, socket, file, &raw mut at, length) });
    if sent == 0 && length > 0 { -libc::ENODATA } else { sent }
}

/// The same on a socket that waits: it does not for this call.
pub(crate) fn send_file_at_once(
    socket: i32,
    file: &File,
    at: u64,
    bytes: usize,
    counters: &mut Counters,
) -> i32 {
    let refused = set_nonblocking(socket, true, counters);
    if refused < 0 {
        return refused;
    }
    let sent = send_file(socket, file, at, bytes, counters);
    // What has been set can be cleared.
    set_nonblocking(socket, false, counters);
    sent
}

/// Sets O_NONBLOCK, or clears it.
pub(super) fn set_nonblocking(socket: i32, nonblocking: bool, counters: &mut Counters) -> i32 {
    counters.system_calls += 1;
    let mut on = libc::c_int::from(nonblocking);
    // SAFETY: ioctl(2) with FIONBIO reads one number, of this frame, during the call.
    negated(unsafe { libc::syscall(libc::SYS_ioctl, socket, libc::FIONBIO, &raw mut on) })
}

/// Sends the datagram that `message` names, or says EAGAIN, also on a socket that blocks.
///
/// # Safety
/// As [`send_vectored`].
pub(crate) unsafe fn send_now(socket: i32, message: &libc::msghdr, counters: &mut Counters) -> i32 {
    counters.system_calls += 1;
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: sendmsg(2). Read during the call only; promised by the caller.
    negated(unsafe { libc::syscall(libc::SYS_sendmsg, socket, std::ptr::from_ref(message), flags) })
}

/// Receives one datagram into what `message` names; answers with its whole length.
///
/// # Safety
/// The message is valid for reads and writes; its vectors, and what they and the name's place name, for writes.
pub(crate) unsafe fn receive_message(
    socket: i32,
    message: *mut libc::msghdr,
    counters: &mut Counters,
) -> i32 {
    counters.system_calls += 1;
    // SAFETY: recvmsg(2). Written during the call only; promised by the caller. MSG_TRUNC as a flag makes the answer
    // the datagram's length instead of the bytes that there was room for.
    negated(unsafe { libc::syscall(libc::SYS_recvmsg, socket, message, libc::MSG_TRUNC) })
}

/// The number the next descriptor would get, or the highest there is: found out by opening one, like `like`, and
/// closing it.
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

/// Closes a descriptor that the kernel has just opened for us.
#[cold]
pub(crate) fn close(number: i32, counters: &mut Counters) {
    counters.system_calls += 1;
    // SAFETY: nobody else knows the number yet.
    unsafe { libc::close(number) };
}

/// A transfer's length as the kernel takes it: results are 32 bits wide, and `MAX_RW_COUNT` is a page less than
/// 2 GiB.
#[inline]
pub(crate) fn bounded(bytes: usize) -> usize {
    bytes.min(0x7fff_f000)
}
