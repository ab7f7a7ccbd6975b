//! System calls on descriptors, written once for every driver of the real kernel.
//!
//! `call` has calls that never wait, `attempt` socket operations, `file` file operations. Each function
//! counts its system calls. `sigpipe` guards calls without MSG_NOSIGNAL. The caller decides what follows from
//! a result.

pub(crate) mod attempt;
pub(crate) mod call;
pub(crate) mod file;
mod sigpipe;

use crate::clock::Until;
use std::io;
use std::time::Duration;

/// Turns the C convention (-1 and errno) into a result.
#[inline]
pub(crate) fn check(answer: libc::c_int) -> io::Result<libc::c_int> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

/// Converts the C convention into the kernel's: a count or a negated errno.
#[inline]
pub(crate) fn negated(answer: libc::c_long) -> i32 {
    // A result that is not an error fits: transfers are bounded, descriptors are ints.
    if answer >= 0 { answer as i32 } else { -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO) }
}

/// Converts the kernel's convention into a `Result`.
pub(crate) fn check_result(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result) }
}

/// Returns the kernel's id of the calling thread.
pub(crate) fn thread_id() -> i32 {
    // SAFETY: gettid(2) takes nothing and cannot fail.
    let id = unsafe { libc::syscall(libc::SYS_gettid) };
    // A pid_t.
    id as i32
}

/// Returns the descriptor limit of this process (RLIMIT_NOFILE, soft); the usual one if a filter refuses the
/// call.
pub(crate) fn descriptors_max() -> i32 {
    const USUAL: libc::rlim_t = 1024;
    let mut limit = libc::rlimit { rlim_cur: USUAL, rlim_max: USUAL };
    // SAFETY: getrlimit(2) writes the live local during the call only, or nothing if it fails.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    i32::try_from(limit.rlim_cur).unwrap_or(i32::MAX)
}

/// Returns the time-out of a wait in the kernel's form; `None`: no limit.
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

/// Returns the number of events of a wait; 0 after EINTR.
pub(crate) fn check_wait(answer: libc::c_long) -> io::Result<usize> {
    match negated(answer) {
        found if found >= 0 => Ok(found as usize),
        errno if errno == -libc::EINTR => Ok(0),
        errno => Err(io::Error::from_raw_os_error(-errno)),
    }
}
