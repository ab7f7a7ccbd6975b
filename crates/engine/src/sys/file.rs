//! Operations on files as plain system calls: they wait for the disk, so they are made where that hurts nobody, or
//! under the kernel's promise not to.

use super::attempt::bounded;
use super::negated;
use crate::op::{FileOp, Span};

/// How many pages of these bytes of a file are in the page cache (`cachestat(2)`, Linux 6.5), or a negated errno. That a
/// page is there does not say that it has been read already.
pub(crate) fn pages_cached(fd: i32, from: u64, bytes: u64) -> Result<u64, i32> {
    /// Of every architecture that Linux has had since the numbers are the same on all.
    const CACHESTAT: libc::c_long = 451;
    let range = [from, bytes];
    // In the page cache, dirty, in writeback, evicted, recently evicted.
    let mut counts = [0_u64; 5];
    // SAFETY: cachestat(2) reads a range of two numbers and writes five, all of this frame, during the call only.
    let answer = negated(unsafe { libc::syscall(CACHESTAT, fd, &raw const range, &raw mut counts, 0) });
    if answer < 0 { Err(answer) } else { Ok(counts[0]) }
}

/// What a page is.
pub(crate) fn page_bytes() -> u64 {
    // SAFETY: sysconf(3) takes a number, and knows this one.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(4096)
}

/// Does it, and answers as io_uring would: a count or a descriptor, or a negated errno. On what has no positions (a
/// pipe, a terminal) the offset means nothing, as for io_uring.
///
/// # Safety
/// What it points to is valid for the call, and memory it writes to is touched by nobody else meanwhile.
pub(crate) unsafe fn perform(op: FileOp) -> i32 {
    // SAFETY: system calls that take numbers, paths that end in NUL, and memory of the lengths given; all promised
    // by the caller.
    negated(unsafe {
        match op {
            FileOp::Read { fd, memory: Span { start, bytes }, offset } => {
                let length = bounded(bytes);
                match libc::syscall(libc::SYS_pread64, fd, start, length, offset) {
                    -1 if is_stream() => libc::syscall(libc::SYS_read, fd, start, length),
                    answer => answer,
                }
            }
            FileOp::Write { fd, bytes: Span { start, bytes }, offset } => {
                let length = bounded(bytes);
                match libc::syscall(libc::SYS_pwrite64, fd, start, length, offset) {
                    -1 if is_stream() => libc::syscall(libc::SYS_write, fd, start, length),
                    answer => answer,
                }
            }
            FileOp::Open { at, flags, mode } => {
                libc::syscall(libc::SYS_openat, at.beneath, at.path, flags, mode)
            }
            FileOp::Stat { at, flags, into } => {
                libc::syscall(libc::SYS_statx, at.beneath, at.path, flags, STAT_MASK, into)
            }
            FileOp::Sync { fd, data_only: false } => libc::syscall(libc::SYS_fsync, fd),
            FileOp::Sync { fd, data_only: true } => libc::syscall(libc::SYS_fdatasync, fd),
            FileOp::Truncate { fd, bytes } => libc::syscall(libc::SYS_ftruncate, fd, bytes),
            FileOp::Rename { from, to } => {
                libc::syscall(libc::SYS_renameat2, from.beneath, from.path, to.beneath, to.path, 0)
            }
            FileOp::Unlink { at, directory } => {
                libc::syscall(libc::SYS_unlinkat, at.beneath, at.path, unlink_flags(directory))
            }
            FileOp::MakeDirectory { at, mode } => libc::syscall(libc::SYS_mkdirat, at.beneath, at.path, mode),
            FileOp::Link { from, to } => {
                libc::syscall(libc::SYS_linkat, from.beneath, from.path, to.beneath, to.path, 0)
            }
            FileOp::Symlink { target, at } => libc::syscall(libc::SYS_symlinkat, target, at.beneath, at.path),
            FileOp::ReadLink { at, memory: Span { start, bytes } } => {
                libc::syscall(libc::SYS_readlinkat, at.beneath, at.path, start, bounded(bytes))
            }
            FileOp::ReadDirectory { fd, memory: Span { start, bytes } } => {
                libc::syscall(libc::SYS_getdents64, fd, start, bounded(bytes))
            }
        }
    })
}

/// What is asked for of a file: everything stat(2) tells, and when it was made.
pub(crate) const STAT_MASK: u32 = libc::STATX_BASIC_STATS | libc::STATX_BTIME;

/// The flags of unlinkat(2).
pub(crate) fn unlink_flags(directory: bool) -> i32 {
    if directory { libc::AT_REMOVEDIR } else { 0 }
}

/// The call that has just failed met something without positions.
fn is_stream() -> bool {
    std::io::Error::last_os_error().raw_os_error() == Some(libc::ESPIPE)
}

/// Reads what is in memory already, or says that it would have to wait: EAGAIN; or that this file system makes no
/// such promise: EOPNOTSUPP.
///
/// # Safety
/// `memory` is valid for writes, and touched by nobody else during the call.
pub(crate) unsafe fn read_cached(fd: i32, memory: Span, offset: u64) -> i32 {
    let vector = libc::iovec { iov_base: memory.start.cast(), iov_len: bounded(memory.bytes) };
    // SAFETY: preadv2(2) with one vector, which lives for the call; its memory is promised by the caller.
    negated(unsafe {
        libc::syscall(libc::SYS_preadv2, fd, &raw const vector, 1, offset, 0, libc::RWF_NOWAIT)
    })
}

/// Whether the file lies in a file system that is memory and nothing else. May wait for a file server.
pub(crate) fn is_in_memory(fd: i32) -> bool {
    // SAFETY: statfs is integers.
    let mut told: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: fstatfs(2) writes what it is pointed to, during the call.
    let answer = unsafe { libc::fstatfs(fd, &raw mut told) };
    answer == 0 && MEMORY_FILE_SYSTEMS.contains(&(told.f_type as i64))
}

/// tmpfs and ramfs (statfs(2)).
const MEMORY_FILE_SYSTEMS: [i64; 2] = [0x0102_1994, 0x8584_58f6];

/// About how long a file is: what is known without asking anybody.
pub(crate) fn length_hint(fd: i32) -> u64 {
    // SAFETY: statx is integers.
    let mut told: libc::statx = unsafe { std::mem::zeroed() };
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    // SAFETY: statx(2) with an empty path, and a structure that it writes during the call.
    let answer = unsafe { libc::statx(fd, c"".as_ptr(), flags, libc::STATX_SIZE, &raw mut told) };
    if answer == 0 { told.stx_size } else { 0 }
}

/// Has a descriptor wait again, which was opened without. Best effort: one that cannot (`O_PATH`) does no I/O.
pub(crate) fn wait_again(fd: i32, flags: i32) {
    // SAFETY: fcntl(2) takes numbers only.
    unsafe { libc::fcntl(fd, libc::F_SETFL, flags & !libc::O_NONBLOCK) };
}

/// The flags a file was opened with, and has been given since; none where that is not told (a filter).
pub(crate) fn flags_of(fd: i32) -> i32 {
    // SAFETY: fcntl(2) takes numbers only.
    unsafe { libc::fcntl(fd, libc::F_GETFL) }.max(0)
}
