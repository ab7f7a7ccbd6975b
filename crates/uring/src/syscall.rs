//! The three system calls: `io_uring_setup`, `io_uring_enter`, `io_uring_register`.
//!
//! Thin on purpose: arguments as the manual pages give them, errno as [`io::Error`]. Nothing retries here:
//! whether EINTR, EBUSY or EAGAIN is worth another try depends on what the caller was doing.

use crate::abi::io_uring_params;
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Calls io_uring_setup(2): makes a ring of at least `entries` submission entries and fills `params` in.
///
/// The descriptor is close-on-exec. Errors by cause: ENOSYS (no io_uring, or a seccomp filter that says so),
/// EPERM (`kernel.io_uring_disabled`, or a seccomp filter), ENOMEM (`RLIMIT_MEMLOCK`), EINVAL (a flag this
/// kernel does not know, or too many entries: 32768 at most), EMFILE.
pub fn setup(entries: u32, params: &mut io_uring_params) -> io::Result<OwnedFd> {
    // SAFETY: `params` is a live, exclusively borrowed structure of the size the kernel writes (its size is
    // asserted in `abi.rs`); the kernel keeps no reference to it after the call.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, entries, params as *mut io_uring_params) };
    let fd = result(fd)?;
    // SAFETY: the kernel has just given us this descriptor; no other code knows its number yet, so we own it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Calls io_uring_enter(2): submits `to_submit` published entries and waits for `min_complete` completions.
///
/// `ring` is the ring's descriptor, or its index when `flags` has `IORING_ENTER_REGISTERED_RING`. Returns how
/// many entries the kernel consumed. When entries were consumed, that count wins over an error of the wait.
///
/// # Safety
/// Every published entry keeps the promise of [`crate::Slot::fill`]. `argument` is null or points to
/// `argument_bytes` valid bytes of what `flags` says: with `IORING_ENTER_EXT_ARG` an `io_uring_getevents_arg`
/// with pointers that stay valid for the duration of the call.
pub unsafe fn enter(
    ring: RawFd,
    to_submit: u32,
    min_complete: u32,
    flags: u32,
    argument: *const c_void,
    argument_bytes: usize,
) -> io::Result<u32> {
    // SAFETY: the caller vouches for the entries and the argument; the other arguments are plain numbers.
    let consumed = unsafe {
        libc::syscall(
            libc::SYS_io_uring_enter,
            ring,
            to_submit,
            min_complete,
            flags,
            argument,
            argument_bytes,
        )
    };
    result(consumed).map(|consumed| consumed as u32)
}

/// Calls io_uring_register(2).
///
/// # Safety
/// `argument` and `count` are what `opcode` asks for. Memory that the kernel keeps beyond the call
/// (registered buffers, buffer rings) stays mapped and is not reused until it is unregistered and no request
/// uses it.
pub unsafe fn register(
    ring: BorrowedFd<'_>,
    opcode: u32,
    argument: *const c_void,
    count: u32,
) -> io::Result<u32> {
    // SAFETY: the caller vouches for `argument`; the descriptor is borrowed, so it is open during the call.
    let answer =
        unsafe { libc::syscall(libc::SYS_io_uring_register, ring.as_raw_fd(), opcode, argument, count) };
    result(answer).map(|answer| answer as u32)
}

fn result(returned: libc::c_long) -> io::Result<libc::c_long> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}
