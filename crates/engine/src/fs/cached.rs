//! What of a file is in the kernel's page cache.

use crate::sys::file::{page_bytes, pages_cached};
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the kernel has a page in its cache for all of these places of a file, which one call tells of any length. Those
/// that a read ahead has just begun to fill count, so look at the last byte as well (`RWF_NOWAIT`, preadv2(2)).
///
/// `None`: this kernel does not tell (before Linux 6.5), or not us: newer ones want the file to be ours, or that we may
/// write it. Once refused, it is not asked again.
pub fn is_cached(file: &File, range: Range<u64>) -> Option<bool> {
    static REFUSED: AtomicBool = AtomicBool::new(false);
    // Relaxed: whoever has not heard of it asks once more.
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
