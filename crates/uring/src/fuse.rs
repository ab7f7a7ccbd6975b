//! Files that a ring must not read: those on FUSE.
//!
//! The ring continues a read that answered less than was asked for. Of a file that the server has bypass the
//! page cache (`FOPEN_DIRECT_IO`) Linux continues from where the read began: bytes of the beginning come in
//! place of those behind, and neither the position of the file nor its end is ever reached. Seen with Linux
//! 6.18, with `IOSQE_ASYNC` as well; a file that its reader has opened with `O_DIRECT` is read right.

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
