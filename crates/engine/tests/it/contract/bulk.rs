//! Data in bulk: a stream that brings much is given large pieces, holds no buffer while it waits, and goes
//! back to small buffers when it brings little.

use crate::support::{numbers, pair, pattern, poll_once, some_turns};
use ringroad_engine::net::TcpStream;
use ringroad_engine::{spawn, yield_now};
use std::pin::pin;

/// Size of the default receive buffers.
const SMALL: usize = 4096;

/// More than any count of receives that lets a stream be in bulk.
const SMALL_MESSAGES: usize = 20;

const BURST: usize = 60 * 1024;

/// Sends `bytes` so that all of them lie in the socket before the receiver looks. Nothing is waited for by
/// the clock: the kernel has them when the send is over.
async fn burst(ours: &mut TcpStream, bytes: usize) {
    ours.write_all(pattern(bytes)).await.0.unwrap();
    some_turns().await;
}

/// Receives `bytes` bytes: the length of each piece.
async fn pieces(theirs: &mut TcpStream, bytes: usize) -> Vec<usize> {
    let mut all = Vec::new();
    let mut lengths = Vec::new();
    while all.len() < bytes {
        let lease = theirs.recv().await.unwrap();
        assert!(!lease.is_empty(), "the end after {} bytes of {bytes}", all.len());
        lengths.push(lease.len());
        all.extend_from_slice(&lease);
    }
    assert!(all == pattern(bytes), "other bytes than were sent");
    lengths
}

scenario!(a_stream_that_brings_data_in_bulk_is_given_large_pieces, |_| async {
    const BYTES: usize = 4 << 20;
    let (mut ours, mut theirs) = pair().await;
    // It has waited: what is large after that was learned.
    assert!(poll_once(pin!(theirs.recv())).await.is_none());
    let writer = spawn(async move {
        ours.write_all(pattern(BYTES)).await.0.unwrap();
        ours
    });
    let lengths = pieces(&mut theirs, BYTES).await;
    let large: usize = lengths.iter().filter(|length| **length > SMALL).sum();
    assert!(large >= BYTES / 2, "{large} of {BYTES} bytes came in large pieces: {lengths:?}");
    writer.await.unwrap();
});

scenario!(
    /// Nothing is waited for in between, so no driver has to wait for readiness and learn from that.
    a_stream_that_never_has_to_wait_is_given_large_pieces_too,
    |_| async {
        let (mut ours, mut theirs) = pair().await;
        burst(&mut ours, BURST).await;
        let lengths = pieces(&mut theirs, BURST).await;
        burst(&mut ours, BURST).await;
        let again = pieces(&mut theirs, BURST).await;
        assert!(again[0] > SMALL, "{lengths:?}, {again:?}");
    }
);

scenario!(a_burst_does_not_pin_the_size_of_receives_for_ever, |_| async {
    let (mut ours, mut theirs) = pair().await;
    assert!(poll_once(pin!(theirs.recv())).await.is_none());
    burst(&mut ours, BURST).await;
    pieces(&mut theirs, BURST).await;
    burst(&mut ours, BURST).await;
    let in_bulk = pieces(&mut theirs, BURST).await;
    assert!(in_bulk[0] > SMALL, "{in_bulk:?}");
    for _ in 0..SMALL_MESSAGES {
        burst(&mut ours, 10).await;
        assert_eq!(pieces(&mut theirs, 10).await, [10]);
    }
    burst(&mut ours, BURST).await;
    let after = pieces(&mut theirs, BURST).await;
    assert!(after[0] <= SMALL, "{after:?}");
});

everywhere!(bytes_are_in_order_while_a_stream_changes_between_little_and_much, |_| async {
    const BYTES: usize = 1 << 20;
    let (mut ours, mut theirs) = pair().await;
    let writer = spawn(async move {
        let all = pattern(BYTES);
        let mut number = numbers(3);
        let mut rest = &all[..];
        while !rest.is_empty() {
            // A series of one size each, so that sizes are learned and forgotten.
            let (bytes, times) = ([1, 100, 5000, 70_000][number(4)], 1 + number(12));
            for _ in 0..times {
                let (part, after) = rest.split_at(rest.len().min(bytes));
                ours.write_all(part.to_vec()).await.0.unwrap();
                rest = after;
                if number(3) == 0 {
                    yield_now().await;
                }
            }
        }
    });
    let mut number = numbers(4);
    let mut all = Vec::new();
    let mut kept = Vec::new();
    loop {
        // Some receives are dropped after a look, some go into memory of the caller's, some leases are kept
        // for a while.
        if number(8) == 0 {
            let (received, part) = theirs.recv_into(Vec::with_capacity(1 + number(9000))).await;
            all.extend_from_slice(&part);
            if received.unwrap() == 0 {
                break;
            }
            continue;
        }
        if number(4) == 0 {
            if let Some(lease) = poll_once(pin!(theirs.recv())).await {
                let lease = lease.unwrap();
                all.extend_from_slice(&lease);
                if lease.is_empty() {
                    break;
                }
            }
            continue;
        }
        let lease = theirs.recv().await.unwrap();
        if lease.is_empty() {
            break;
        }
        kept.push((lease.to_vec(), lease));
        all.extend_from_slice(&kept[kept.len() - 1].0);
        if kept.len() > number(12) {
            for (bytes, lease) in kept.drain(..) {
                assert!(*bytes == *lease, "a lease that is kept changes");
            }
        }
    }
    assert!(all == pattern(BYTES), "{} bytes of {BYTES}, or others", all.len());
    writer.await.unwrap();
});
