//! The ring on the real kernel, one module per subject; `side_by_side` compares with the `io-uring` crate.
//!
//! A kernel without io_uring (or a sandbox that forbids it) fails these tests loudly: this crate's whole
//! subject is that interface. Features newer than 6.1 are tested where the kernel reports them, and each test
//! that cannot run says so on stderr.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod buffers;
mod file_table;
mod fork;
mod limits;
mod queues;
mod read_ahead;
mod registered;
mod side_by_side;
mod sockets;
mod zero_copy;

use ringroad_uring::{Cqe, Ring, Wait};

/// Takes `count` completions, waiting as long as needed; the harness's own limit ends a hang.
fn take(ring: &mut Ring, count: usize) -> Vec<Cqe> {
    let mut taken = Vec::new();
    while taken.len() < count {
        match ring.completions().pop() {
            Some(completion) => taken.push(completion),
            None => {
                ring.submit_and_wait(Wait { completions: 1, ..Wait::default() }).unwrap();
            }
        }
    }
    taken
}
