//! Memory that a worker's requests reuse: buffers for answers, and blocks of header lines.
//!
//! A worker is a thread, so its pool is the thread's. The pool is last in, first out, and bounded: excess
//! items are dropped, so little remains after a burst. Request heads have a pool of their own
//! (`message/request.rs`).

use ringroad_wire::FieldBlock;
use std::cell::RefCell;

/// Maximum number of each kind that is kept.
const KEPT: usize = 64;

/// Larger buffers are not kept.
const BUFFER_BYTES_MAX: usize = 64 * 1024;

/// Longer blocks of header lines are not kept.
const BLOCK_BYTES_MAX: usize = 4 * 1024;

/// Initial capacity: an answer without a large body fits.
const BUFFER_BYTES: usize = 1024;

struct Pool {
    buffers: Vec<Vec<u8>>,
    blocks: Vec<FieldBlock>,
}

thread_local! {
    static POOL: RefCell<Pool> =
        const { RefCell::new(Pool { buffers: Vec::new(), blocks: Vec::new() }) };
}

/// Keeps `item` if there is room. Otherwise the caller drops it, after the borrow has ended.
#[inline]
fn keep<T>(kept: fn(&mut Pool) -> &mut Vec<T>, item: T) -> Option<T> {
    let mut item = Some(item);
    // Fails while the thread ends.
    let _ = POOL.try_with(|pool| {
        let mut pool = pool.borrow_mut();
        let kept = kept(&mut pool);
        if kept.len() < KEPT {
            kept.extend(item.take());
        }
    });
    item
}

#[inline]
fn take<T>(kept: fn(&mut Pool) -> &mut Vec<T>) -> Option<T> {
    POOL.try_with(|pool| kept(&mut pool.borrow_mut()).pop()).ok().flatten()
}

/// Returns an empty buffer.
#[inline]
pub(crate) fn buffer() -> Vec<u8> {
    take(|pool| &mut pool.buffers).unwrap_or_else(|| Vec::with_capacity(BUFFER_BYTES))
}

/// Returns whether a buffer is kept for reuse.
#[inline]
pub(crate) fn is_kept(buffer: &Vec<u8>) -> bool {
    (BUFFER_BYTES..=BUFFER_BYTES_MAX).contains(&buffer.capacity())
}

/// Returns a buffer to the pool.
#[inline]
pub(crate) fn give_buffer(mut buffer: Vec<u8>) {
    if is_kept(&buffer) {
        buffer.clear();
        drop(keep(|pool| &mut pool.buffers, buffer));
    }
}

/// Returns an empty block of header lines.
#[inline]
pub(crate) fn block() -> FieldBlock {
    take(|pool| &mut pool.blocks).unwrap_or_default()
}

/// Returns a block of header lines to the pool.
#[inline]
pub(crate) fn give_block(mut block: FieldBlock) {
    if (1..=BLOCK_BYTES_MAX).contains(&block.bytes().len()) {
        block.clear();
        drop(keep(|pool| &mut pool.blocks, block));
    }
}
