//! One operation, one system call, on a non-blocking socket. Answers as io_uring gives them: a count or a
//! descriptor, or a negated errno.

use super::negated_errno;
use crate::counters::Counters;
use crate::op::Span;
use socket2::SockAddr;

/// Takes one connection from the listener's queue.
#[inline]
pub(crate) fn accept(listener: i32, flags: i32, counters: &mut Counters) -> i32 {
    counters.system_calls += 1;
    let (no_name, no_length) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: null name and length are allowed, and mean that the peer's address is not wanted.
    let fd = unsafe { libc::accept4(listener, no_name, no_length, flags) };
    if fd < 0 { negated_errno() } else { fd }
}

/// Begins to connect: 0, EINPROGRESS, or what was wrong.
pub(crate) fn connect(socket: i32, address: &SockAddr, counters: &mut Counters) -> i32 {
    counters.system_calls += 1;
    // SAFETY: the address is borrowed for the call, and is `len` bytes long by its type.
    let answer = unsafe { libc::connect(socket, address.as_ptr().cast(), address.len()) };
    if answer < 0 { negated_errno() } else { 0 }
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
    if answer < 0 { negated_errno() } else { -error }
}

/// Receives into `memory`, which nobody else touches during the call.
///
/// # Safety
/// The memory is valid for writes of its length.
#[inline]
pub(crate) unsafe fn receive(socket: i32, memory: Span, counters: &mut Counters) -> i32 {
    counters.system_calls += 1;
    // SAFETY: the kernel writes at most `bytes` bytes, during the call only; promised by the caller.
    let bytes = unsafe { libc::recv(socket, memory.start.cast(), bounded(memory.bytes), 0) };
    if bytes < 0 { negated_errno() } else { bytes as i32 }
}

/// Sends from the front of `bytes`. A peer that is gone is EPIPE, never a signal.
///
/// # Safety
/// The memory is valid for reads of its length.
#[inline]
pub(crate) unsafe fn send(socket: i32, bytes: Span, counters: &mut Counters) -> i32 {
    counters.system_calls += 1;
    // SAFETY: the kernel reads at most `bytes` bytes, during the call only; promised by the caller.
    let sent = unsafe {
        libc::send(socket, bytes.start.cast_const().cast(), bounded(bytes.bytes), libc::MSG_NOSIGNAL)
    };
    if sent < 0 { negated_errno() } else { sent as i32 }
}

/// Sends what `message` names.
///
/// # Safety
/// Its vectors, and what they name, are valid for reads.
pub(crate) unsafe fn send_vectored(socket: i32, message: &libc::msghdr, counters: &mut Counters) -> i32 {
    counters.system_calls += 1;
    // SAFETY: read during the call only; promised by the caller.
    let sent = unsafe { libc::sendmsg(socket, message, libc::MSG_NOSIGNAL) };
    if sent < 0 { negated_errno() } else { sent as i32 }
}

/// A transfer's length as the kernel takes it: results are 32 bits wide, and `MAX_RW_COUNT` is a page less than
/// 2 GiB.
#[inline]
pub(crate) fn bounded(bytes: usize) -> usize {
    bytes.min(0x7fff_f000)
}
