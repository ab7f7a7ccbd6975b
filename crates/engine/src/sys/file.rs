//! File operations as plain system calls. They may wait for the disk, so they run on threads of the pool, or
//! with RWF_NOWAIT.

use super::attempt::bounded;
use super::negated;
use super::sigpipe::without_sigpipe;
use crate::op::{FileOp, Span};
use ringroad_uring::FUSE_SUPER_MAGIC;

/// Returns the number of pages of this range in the page cache (`cachestat(2)`, Linux 6.5), or a negated
/// errno. Pages that are still being read count too.
pub(crate) fn pages_cached(fd: i32, from: u64, bytes: u64) -> Result<u64, i32> {
    /// The same on every architecture.
    const CACHESTAT: libc::c_long = 451;
    let range = [from, bytes];
    // In the page cache, dirty, in writeback, evicted, recently evicted.
    let mut counts = [0_u64; 5];
    // SAFETY: cachestat(2) reads a range of two numbers and writes five, all of this frame, during the call
    // only.
    let answer = negated(unsafe { libc::syscall(CACHESTAT, fd, &raw const range, &raw mut counts, 0) });
    if answer < 0 { Err(answer) } else { Ok(counts[0]) }
}

/// Returns the page size in bytes.
pub(crate) fn page_bytes() -> u64 {
    // SAFETY: sysconf(3) takes a number, and knows this one.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(4096)
}

/// Performs the operation and returns the result in io_uring's form: a count or a descriptor, or a negated
/// errno. For files without positions (a pipe, a terminal) the offset is ignored, as by io_uring.
///
/// # Safety
/// What it points to is valid for the call, and no other code uses the memory that it writes meanwhile.
pub(crate) unsafe fn perform(op: FileOp) -> i32 {
    // SAFETY: system calls that take numbers, paths that end in NUL, and memory of the lengths given; all
    // promised by the caller.
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
                    -1 if is_stream() => {
                        let write = || negated(libc::syscall(libc::SYS_write, fd, start, length));
                        return without_sigpipe(write).0;
                    }
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

/// The requested metadata: the fields of stat(2), and the time of creation.
pub(crate) const STAT_MASK: u32 = libc::STATX_BASIC_STATS | libc::STATX_BTIME;

/// Returns the flags of unlinkat(2).
pub(crate) fn unlink_flags(directory: bool) -> i32 {
    if directory { libc::AT_REMOVEDIR } else { 0 }
}

/// Returns whether the call that has just failed was on a file without positions.
fn is_stream() -> bool {
    std::io::Error::last_os_error().raw_os_error() == Some(libc::ESPIPE)
}

/// Reads cached bytes. EAGAIN: it would have to wait; EOPNOTSUPP: the file system does not support
/// RWF_NOWAIT.
///
/// # Safety
/// `memory` is valid for writes, and no other code touches it during the call.
pub(crate) unsafe fn read_cached(fd: i32, memory: Span, offset: u64) -> i32 {
    let vector = libc::iovec { iov_base: memory.start.cast(), iov_len: bounded(memory.bytes) };
    // SAFETY: preadv2(2) with one vector, which lives for the call; its memory is promised by the caller.
    negated(unsafe {
        libc::syscall(libc::SYS_preadv2, fd, &raw const vector, 1, offset, 0, libc::RWF_NOWAIT)
    })
}

/// Reads from a file without positions. EAGAIN: it would have to wait; EOPNOTSUPP: it does not support
/// RWF_NOWAIT.
///
/// # Safety
/// As [`read_cached`].
pub(crate) unsafe fn read_now(fd: i32, memory: Span) -> i32 {
    /// The current position (preadv2(2)).
    const HERE: i64 = -1;
    let vector = libc::iovec { iov_base: memory.start.cast(), iov_len: bounded(memory.bytes) };
    // SAFETY: preadv2(2) with one vector, which lives for the call; its memory is promised by the caller.
    negated(unsafe { libc::syscall(libc::SYS_preadv2, fd, &raw const vector, 1, HERE, 0, libc::RWF_NOWAIT) })
}

/// Writes to a pipe or socket. EAGAIN: it would have to wait; EOPNOTSUPP: it does not support RWF_NOWAIT. A
/// closed peer is EPIPE, never a signal. Returns the number of system calls, too.
///
/// # Safety
/// `bytes` is valid for reads.
pub(crate) unsafe fn write_now(fd: i32, bytes: Span) -> (i32, u64) {
    /// The current position (pwritev2(2)).
    const HERE: i64 = -1;
    let vector = libc::iovec { iov_base: bytes.start.cast(), iov_len: bounded(bytes.bytes) };
    let (result, around) = without_sigpipe(|| {
        // SAFETY: pwritev2(2) with one vector, which lives for the call, and only reads its memory, which is
        // promised by the caller.
        negated(unsafe {
            libc::syscall(libc::SYS_pwritev2, fd, &raw const vector, 1, HERE, 0, libc::RWF_NOWAIT)
        })
    });
    (result, around + 1)
}

/// Returns whether the file has no positions (lseek(2): ESPIPE).
pub(crate) fn has_no_positions(fd: i32) -> bool {
    // SAFETY: lseek(2) takes numbers, and this moves nothing.
    let at = unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) };
    at == -1 && is_stream()
}

/// Returns the type of the file (`S_IFMT`, inode(7)) without asking a file server; 0 if it is not known.
pub(crate) fn kind_of(fd: i32) -> u32 {
    // SAFETY: statx is integers.
    let mut told: libc::statx = unsafe { std::mem::zeroed() };
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    // SAFETY: statx(2) with an empty path, and a structure that it writes during the call.
    let answer = unsafe { libc::statx(fd, c"".as_ptr(), flags, libc::STATX_TYPE, &raw mut told) };
    if answer == 0 { u32::from(told.stx_mode) & libc::S_IFMT } else { 0 }
}

/// Kinds of file systems that differ in how files are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileSystem {
    /// In memory only: tmpfs and ramfs.
    Memory,
    /// Of a server in user space, and virtiofs.
    Fuse,
    /// Any other, also where the call fails.
    Other,
}

/// Returns the kind of file system of a file. May wait for a file server.
pub(crate) fn file_system_of(fd: i32) -> FileSystem {
    // SAFETY: statfs is integers.
    let mut told: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: fstatfs(2) writes what it is pointed to, during the call.
    let answer = unsafe { libc::fstatfs(fd, &raw mut told) };
    // Magic numbers: statfs(2).
    match told.f_type as u32 {
        0x0102_1994 | 0x8584_58f6 if answer == 0 => FileSystem::Memory,
        FUSE_SUPER_MAGIC if answer == 0 => FileSystem::Fuse,
        _ => FileSystem::Other,
    }
}

/// Estimates the length of a file without a system call.
pub(crate) fn length_hint(fd: i32) -> u64 {
    // SAFETY: statx is integers.
    let mut told: libc::statx = unsafe { std::mem::zeroed() };
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    // SAFETY: statx(2) with an empty path, and a structure that it writes during the call.
    let answer = unsafe { libc::statx(fd, c"".as_ptr(), flags, libc::STATX_SIZE, &raw mut told) };
    if answer == 0 { told.stx_size } else { 0 }
}

/// Clears O_NONBLOCK. Best effort: a descriptor where it fails (`O_PATH`) does no I/O.
pub(crate) fn wait_again(fd: i32, flags: i32) {
    // SAFETY: fcntl(2) takes numbers only.
    unsafe { libc::fcntl(fd, libc::F_SETFL, flags & !libc::O_NONBLOCK) };
}

/// Returns the file status flags; 0 if the call fails (a seccomp filter).
pub(crate) fn flags_of(fd: i32) -> i32 {
    // SAFETY: fcntl(2) takes numbers only.
    unsafe { libc::fcntl(fd, libc::F_GETFL) }.max(0)
}
