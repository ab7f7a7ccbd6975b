//! What a worker's requests use again and again: buffers for answers, heads, header lines.
//!
//! A worker is a thread, so its pool is the thread's. Everything is last in, first out, bounded, and dropped beyond
//! that: after a burst little remains.

use crate::request::Head;
use ringroad_wire::FieldBlock;
use std::cell::RefCell;

/// Most of each kind that are kept.
const KEPT: usize = 64;

/// Larger buffers are not kept.
const BUFFER_BYTES_MAX: usize = 64 * 1024;

/// Longer blocks of header lines are not kept.
const BLOCK_BYTES_MAX: usize = 4 * 1024;

/// An answer without a body worth mentioning fits.
const BUFFER_BYTES: usize = 1024;

struct Pool {
    buffers: Vec<Vec<u8>>,
    #[allow(
        clippy::vec_box,
        reason = "a request holds its head by its box, which is what is to be used again"
    )]
    heads: Vec<Box<Head>>,
    blocks: Vec<FieldBlock>,
}

thread_local! {
    static POOL: RefCell<Pool> =
        const { RefCell::new(Pool { buffers: Vec::new(), heads: Vec::new(), blocks: Vec::new() }) };
}

/// Keeps `item` if there is room. What is not kept is dropped by the caller, with nothing borrowed.
#[inline]
fn keep<T>(kept: fn(&mut Pool) -> &mut Vec<T>, item: T) -> Option<T> {
    let mut item = Some(item);
    // Not while the thread ends.
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

/// An empty buffer.
#[inline]
pub(crate) fn buffer() -> Vec<u8> {
    take(|pool| &mut pool.buffers).unwrap_or_else(|| Vec::with_capacity(BUFFER_BYTES))
}

/// A buffer is not needed any more.
#[inline]
pub(crate) fn give_buffer(mut buffer: Vec<u8>) {
    if (BUFFER_BYTES..=BUFFER_BYTES_MAX).contains(&buffer.capacity()) {
        buffer.clear();
        drop(keep(|pool| &mut pool.buffers, buffer));
    }
}

/// A head to be filled, which says what it said last.
#[inline]
pub(crate) fn head() -> Box<Head> {
    take(|pool| &mut pool.heads).unwrap_or_default()
}

/// A head is not needed any more.
#[inline]
pub(crate) fn give_head(head: Box<Head>) {
    if head.is_small() {
        drop(keep(|pool| &mut pool.heads, head));
    }
}

/// Header lines to be written.
#[inline]
pub(crate) fn block() -> FieldBlock {
    take(|pool| &mut pool.blocks).unwrap_or_default()
}

/// Header lines are not needed any more.
#[inline]
pub(crate) fn give_block(mut block: FieldBlock) {
    if (1..=BLOCK_BYTES_MAX).contains(&block.bytes().len()) {
        block.clear();
        drop(keep(|pool| &mut pool.blocks, block));
    }
}
