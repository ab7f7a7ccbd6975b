//! Random bytes for keys and masks, which scripts of a page must not be able to predict (RFC 6455 §10.3).

use std::cell::RefCell;

/// Number of bytes that are taken from the kernel at a time.
const BLOCK_BYTES: usize = 1024;

thread_local! {
    static BLOCK: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Returns `N` random bytes, each used once.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    BLOCK.with(|block| {
        let mut block = block.borrow_mut();
        if block.len() < N {
            block.resize(BLOCK_BYTES.max(N), 0);
            // It cannot fail for so few bytes once the kernel has started (getrandom(2)).
            let _ = rustix::rand::getrandom(&mut block[..], rustix::rand::GetRandomFlags::empty());
        }
        let at = block.len() - N;
        let mut bytes = [0; N];
        bytes.copy_from_slice(&block[at..]);
        block.truncate(at);
        bytes
    })
}
