//! Files that a ring must not read: files on FUSE.
//!
//! io_uring continues a read that returned fewer bytes than requested. If the file server bypasses the page
//! cache (`FOPEN_DIRECT_IO`), Linux continues at the offset where the read began. Bytes of the beginning then
//! replace later bytes, and neither the file's position nor its end is ever reached. Seen with Linux 6.18,
//! also with `IOSQE_ASYNC`. A file that its reader has opened with `O_DIRECT` is read correctly.

use std::os::fd::{AsRawFd, BorrowedFd};

/// The `f_type` of FUSE and virtiofs (statfs(2)).
pub const FUSE_SUPER_MAGIC: u32 = 0x6573_5546;

/// Returns whether a file is on FUSE, so that a [`Ring`](crate::Ring) may read wrong bytes from it. `false`
/// if fstatfs(2) fails. The call waits for the file server.
pub fn is_on_fuse(file: BorrowedFd<'_>) -> bool {
    // SAFETY: statfs is integers.
    let mut told: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the borrow proves the descriptor open, and fstatfs(2) writes what it is pointed to, during the
    // call.
    let answer = unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut told) };
    answer == 0 && told.f_type as u32 == FUSE_SUPER_MAGIC
}
