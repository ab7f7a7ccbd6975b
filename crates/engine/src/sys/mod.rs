//! System calls on descriptors, written once for every driver of the real kernel.
//!
//! `call` does what never waits; `attempt` does an operation on a non-blocking socket. Each counts itself where
//! it is made. What to do about an answer is the caller's.

pub(crate) mod attempt;
pub(crate) mod call;

use std::io;

/// Turns the C convention (-1 and errno) into a result.
#[inline]
pub(crate) fn check(answer: libc::c_int) -> io::Result<libc::c_int> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

/// Undoes the C convention: a result as the kernel itself gives it, a count or a negated errno.
#[inline]
pub(crate) fn negated(answer: libc::c_long) -> i32 {
    // A result that is not an error fits: transfers are bounded, descriptors are ints.
    if answer >= 0 { answer as i32 } else { -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO) }
}
