//! Tells which parts of a file are in the page cache.

use crate::sys::file::{page_bytes, pages_cached};
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// Returns whether the page cache has all pages of this range of a file, by one call for any length. Pages
/// that read-ahead has only begun to fill count too, so read the last byte as well (`RWF_NOWAIT`,
/// preadv2(2)).
///
/// `None`: the kernel does not support it (before Linux 6.5), or denies it: newer kernels require that the
/// caller owns the file or may write it. After one refusal the call is not repeated.
pub fn is_cached(file: &File, range: Range<u64>) -> Option<bool> {
    static REFUSED: AtomicBool = AtomicBool::new(false);
    // Relaxed: a thread that does not see the store yet calls once more.
    if REFUSED.load(Ordering::Relaxed) {
        return None;
    }
    if range.is_empty() {
        return Some(true);
    }
    let page = page_bytes();
    let pages = (range.end - 1) / page - range.start / page + 1;
    match pages_cached(file.as_raw_fd(), range.start, range.end - range.start) {
        Ok(cached) => Some(cached >= pages),
        Err(_) => {
            REFUSED.store(true, Ordering::Relaxed);
            None
        }
    }
}
