//! Watching for the peer's end while nothing is received.

use crate::support::{listener, pair, pair_by, pattern, poll_once, receive_all, some_turns};
use ringroad_engine::net::{PeerGone, SocketOption, TcpStream};
use ringroad_engine::{spawn, yield_now};
use std::net::Shutdown;
use std::pin::pin;
use std::time::Duration;

/// Fills a small receive buffer many times over, and is less than a watch may keep.
const BURST: usize = 60 * 1024;

async fn receive_exactly(stream: &mut TcpStream, bytes: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < bytes {
        let lease = stream.recv().await.unwrap();
        assert!(!lease.is_empty(), "the end after {} bytes of {bytes}", all.len());
        all.extend_from_slice(&lease);
    }
    assert_eq!(all.len(), bytes);
    all
}

fn reset(stream: TcpStream) {
    stream.set_option(SocketOption::Linger(Some(Duration::ZERO))).unwrap();
    drop(stream);
}

everywhere!(a_hangup_is_the_peers_end_and_the_next_receive_finds_it_too, |_| async {
    let (mut ours, mut theirs) = pair().await;
    assert!(poll_once(pin!(theirs.hangup())).await.is_none());
    ours.shutdown(Shutdown::Write).unwrap();
    assert!(matches!(theirs.hangup().await, Ok(PeerGone::Ended)));
    assert!(matches!(theirs.hangup().await, Ok(PeerGone::Ended)), "told again");
    assert!(theirs.recv().await.unwrap().is_empty());
    // Half a close: the other direction goes on.
    theirs.write_all("still here").await.0.unwrap();
    drop(theirs);
    assert_eq!(receive_all(&mut ours).await, b"still here");
});

everywhere!(a_hangup_behind_bytes_takes_none_of_them, |_| async {
    let (mut ours, mut theirs) = pair().await;
    ours.write_all(pattern(40_000)).await.0.unwrap();
    let watching = spawn(async move {
        let gone = theirs.hangup().await;
        (theirs, gone)
    });
    ours.write_all(vec![b'x'; 10]).await.0.unwrap();
    drop(ours);
    let (mut theirs, gone) = watching.await.unwrap();
    assert!(matches!(gone, Ok(PeerGone::Ended)), "{gone:?}");
    assert!(receive_all(&mut theirs).await == [pattern(40_000), vec![b'x'; 10]].concat());
});

everywhere!(a_hangup_that_is_dropped_loses_no_byte, |_| async {
    let (mut ours, mut theirs) = pair().await;
    let writer = spawn(async move {
        for part in pattern(30_000).chunks(700) {
            ours.write_all(part.to_vec()).await.0.unwrap();
            yield_now().await;
        }
    });
    let mut all = Vec::new();
    loop {
        let _ = poll_once(pin!(theirs.hangup())).await;
        let lease = theirs.recv().await.unwrap();
        if lease.is_empty() {
            break;
        }
        all.extend_from_slice(&lease);
    }
    assert!(all == pattern(30_000));
    writer.await.unwrap();
});

everywhere!(a_reset_is_told_as_one_and_by_the_next_receive_again, |_| async {
    let (mut listener, address) = listener();
    let (ours, mut theirs) = pair_by(&mut listener, address).await;
    let watching = spawn(async move {
        let gone = theirs.hangup().await;
        (theirs, gone)
    });
    yield_now().await;
    reset(ours);
    let (mut theirs, gone) = watching.await.unwrap();
    let Ok(PeerGone::Reset(why)) = gone else { panic!("{gone:?}") };
    assert_eq!(why.raw_os_error(), Some(libc::ECONNRESET));
    assert_eq!(theirs.recv().await.unwrap_err().raw_os_error(), Some(libc::ECONNRESET));
});

everywhere!(a_canceller_ends_a_hangup, |_| async {
    let (_ours, mut theirs) = pair().await;
    let canceller = theirs.canceller();
    let watching = spawn(async move { theirs.hangup().await });
    yield_now().await;
    canceller.cancel();
    assert!(watching.await.unwrap().unwrap_err().is_cancelled());
});

everywhere!(a_watch_keeps_little_more_than_its_limit_of_a_stream_in_bulk, |_| async {
    const KEPT_MAX: usize = 64 * 1024 + 4096;
    const BYTES: usize = 300 * 1024;
    let (mut ours, mut theirs) = pair().await;
    // The stream comes to be in bulk.
    for _ in 0..2 {
        ours.write_all(pattern(BURST)).await.0.unwrap();
        receive_exactly(&mut theirs, BURST).await;
    }
    let writer = spawn(async move {
        ours.write_all(pattern(BURST)).await.0.unwrap();
        ours.write_all(pattern(BYTES)).await.0.unwrap();
        ours
    });
    for _ in 0..4 {
        assert!(poll_once(pin!(theirs.hangup())).await.is_none());
        some_turns().await;
    }
    let kept = theirs.recv().await.unwrap();
    assert!(kept.len() <= KEPT_MAX, "{} bytes were kept", kept.len());
    let mut all = kept.to_vec();
    drop(kept);
    all.extend(receive_exactly(&mut theirs, BURST + BYTES - all.len()).await);
    assert!(all == [pattern(BURST), pattern(BYTES)].concat());
    drop(writer.await.unwrap());
});
