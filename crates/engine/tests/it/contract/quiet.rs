//! Whether a stream has something to be received, asked without receiving.

use crate::support::{Case, listener, pair, pattern, poll_once, receive};
use ringroad_engine::net::{SocketOption, TcpStream};
use ringroad_engine::time;
use std::io::Write;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::time::Duration;

const A_MOMENT: Duration = Duration::from_millis(1);

/// Waits until the kernel has something for this stream, without asking the runtime for it.
async fn arrived(stream: &mut TcpStream, case: Case) {
    if !case.is_real() {
        // On the way for an unknown time, and seen by nothing else.
        for _ in 0..10_000 {
            if !stream.is_quiet() {
                return;
            }
            time::sleep(A_MOMENT).await;
        }
        panic!("nothing has arrived");
    }
    let same = stream.duplicate_fd().unwrap();
    // An error of the socket is something, too, and a receive would take it.
    let mut events = libc::pollfd { fd: same.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: poll(2) reads and writes the one entry, which outlives the call.
    while unsafe { libc::poll(&mut events, 1, -1) } != 1 {}
}

everywhere!(a_stream_is_quiet_until_bytes_come_that_no_receive_was_asked_for, |case| async move {
    let (mut ours, mut theirs) = pair().await;
    assert!(theirs.is_quiet() && theirs.is_quiet());
    ours.write_all("one answer too many").await.0.unwrap();
    arrived(&mut theirs, case).await;
    assert!(!theirs.is_quiet());
    assert_eq!(receive(&mut theirs, 19).await, b"one answer too many");
    assert!(theirs.is_quiet());
});

everywhere!(a_stream_at_its_end_is_not_quiet, |case| async move {
    let (mut ours, mut theirs) = pair().await;
    ours.shutdown(Shutdown::Write).unwrap();
    arrived(&mut theirs, case).await;
    assert!(!theirs.is_quiet());
    assert!(theirs.recv().await.unwrap().is_empty());
    assert!(!theirs.is_quiet(), "the end stays");
});

everywhere!(a_stream_that_was_reset_is_not_quiet_and_the_error_is_received, |case| async move {
    let (ours, mut theirs) = pair().await;
    ours.set_option(SocketOption::Linger(Some(Duration::ZERO))).unwrap();
    drop(ours);
    arrived(&mut theirs, case).await;
    assert!(!theirs.is_quiet());
    let received = theirs.recv().await;
    assert_eq!(received.unwrap_err().raw_os_error(), Some(libc::ECONNRESET));
});

everywhere!(a_stream_is_quiet_after_bulk_and_not_with_bytes_behind_it, |case| async move {
    let (mut ours, mut theirs) = pair().await;
    let sent = pattern(250_000);
    let writing = ringroad_engine::spawn(async move {
        ours.write_all(sent).await.0.unwrap();
        ours
    });
    assert!(receive(&mut theirs, 250_000).await == pattern(250_000));
    let mut ours = writing.await.unwrap();
    assert!(theirs.is_quiet());
    ours.write_all("\r\n").await.0.unwrap();
    arrived(&mut theirs, case).await;
    assert!(!theirs.is_quiet());
    assert_eq!(receive(&mut theirs, 2).await, b"\r\n");
});

everywhere!(
    /// A receive is with the driver, and the runtime gets no turn between the bytes and the question. On
    /// io_uring the kernel may have moved them to a completion.
    bytes_for_a_receive_that_waits_are_seen_without_a_turn, |case| async move {
    if !case.is_real() {
        return;
    }
    let (mut listener, address) = listener();
    let mut peer = std::net::TcpStream::connect(address).unwrap();
    let mut stream = listener.accept().await.unwrap();
    for round in 0..20 {
        assert!(poll_once(pin!(stream.recv())).await.is_none(), "round {round}");
        // The driver has submitted it.
        time::sleep(A_MOMENT).await;
        assert!(stream.is_quiet(), "round {round}");
        peer.write_all(b"late").unwrap();
        while stream.is_quiet() {
            std::thread::sleep(A_MOMENT);
        }
        assert_eq!(receive(&mut stream, 4).await, b"late", "round {round}");
    }
});
