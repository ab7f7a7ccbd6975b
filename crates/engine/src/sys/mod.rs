//! System calls on descriptors, written once for every driver of the real kernel.
//!
//! `call` does what never waits; `attempt` does an operation on a non-blocking socket, `file` one
//! on a file. Each counts itself where
//! it is made. What to do about an answer is the caller's.

pub(crate) mod attempt;
pub(crate) mod call;
pub(crate) mod file;

use crate::clock::Until;
use std::io;
use std::time::Duration;

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

/// And back: a result as the kernel itself gives it, as a result.
pub(crate) fn check_result(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result) }
}

/// The calling thread, as the kernel knows it.
pub(crate) fn thread_id() -> i32 {
    // SAFETY: gettid(2) takes nothing and cannot fail.
    let id = unsafe { libc::syscall(libc::SYS_gettid) };
    // A pid_t.
    id as i32
}

/// How many descriptors this process may have at a time (its soft limit).
pub(crate) fn descriptors_max() -> i32 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit(2) writes the live local during the call only. With these arguments it cannot fail.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    i32::try_from(limit.rlim_cur).unwrap_or(i32::MAX)
}

/// How long a wait may take, as the kernel is told; `None`: for ever.
pub(crate) fn wait_span(until: Until) -> Option<libc::timespec> {
    let span = match until {
        Until::News => return None,
        Until::Now => Duration::ZERO,
        Until::For(span) => span,
    };
    Some(libc::timespec {
        tv_sec: span.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: span.subsec_nanos().into(),
    })
}

/// How much a wait has found. Interrupted, it has found nothing.
pub(crate) fn check_wait(answer: libc::c_long) -> io::Result<usize> {
    match negated(answer) {
        found if found >= 0 => Ok(found as usize),
        errno if errno == -libc::EINTR => Ok(0),
        errno => Err(io::Error::from_raw_os_error(-errno)),
    }
}
