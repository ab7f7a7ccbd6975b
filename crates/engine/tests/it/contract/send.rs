//! Sending: all of it in order, the buffer back in any case, and a clear word when it went halfway.

use crate::support::{narrow_pair, numbers, pair, pattern, poll_once, receive, receive_all, some_turns};
use futures_util::future::{Either, select};
use ringroad_engine::net::{SocketOption, TcpStream};
use ringroad_engine::time::timeout;
use ringroad_engine::{Error, IoBuf, Lease, Pages, spawn, yield_now};
use std::future::Future;
use std::net::Shutdown;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

scenario!(much_goes_through_a_narrow_connection, |case| async move {
    const BYTES: usize = 8 << 20;
    let (mut ours, mut theirs) = if case.is_real() { pair().await } else { narrow_pair(case).await };
    ours.set_option(SocketOption::SendBuffer(16 * 1024)).unwrap();
    let writer = spawn(async move {
        let (sent, bytes) = ours.write_all(pattern(BYTES)).await;
        sent.unwrap();
        bytes
    });
    let mut at = 0;
    let expected = pattern(BYTES);
    loop {
        let lease = theirs.recv().await.unwrap();
        if lease.is_empty() {
            break;
        }
        assert!(expected[at..].starts_with(&lease), "wrong bytes behind {at}");
        at += lease.len();
    }
    assert_eq!(at, BYTES);
    assert!(writer.await.unwrap() == expected, "the buffer comes back as it was");
});

everywhere!(a_write_says_how_much_it_took_and_the_rest_can_follow, |case| async move {
    const BYTES: usize = 60_000;
    let (mut ours, mut theirs) = narrow_pair(case).await;
    let reader = spawn(async move { receive_all(&mut theirs).await });
    let mut rest = pattern(BYTES);
    let mut writes = 0;
    while !rest.is_empty() {
        let before = rest.len();
        let (written, back) = ours.write(rest).await;
        let written = written.unwrap();
        assert_eq!(back.len(), before);
        assert!((1..=before).contains(&written), "{written} of {before}");
        rest = back[written..].to_vec();
        writes += 1;
    }
    // A kernel that goes on by itself may well do with one.
    assert!(writes >= 1);
    drop(ours);
    assert!(reader.await.unwrap() == pattern(BYTES));
});

everywhere!(several_buffers_go_out_one_after_another_the_empty_ones_and_any_number, |case| async move {
    for (buffers, narrow) in [(0, false), (1, false), (3, false), (1025, false), (3000, true)] {
        let (mut ours, mut theirs) = if narrow { narrow_pair(case).await } else { pair().await };
        let mut number = numbers(buffers as u64);
        let all: Vec<Vec<u8>> = (0..buffers)
            .map(|at| {
                let bytes = if at % 5 == 0 { 0 } else { number(60) };
                vec![at as u8; bytes]
            })
            .collect();
        let expected = all.concat();
        let reader = spawn(async move { receive_all(&mut theirs).await });
        let (sent, back) = ours.write_vectored_all(all.clone()).await;
        sent.unwrap();
        assert!(back == all, "they come back in order");
        drop(ours);
        assert!(reader.await.unwrap() == expected, "{buffers} buffers");
    }
});

everywhere!(only_empty_buffers_are_nothing_to_send, |_| async {
    let (mut ours, mut theirs) = pair().await;
    ours.write_all("").await.0.unwrap();
    assert_eq!(ours.write(Vec::new()).await.0.unwrap(), 0);
    let (sent, back) = ours.write_vectored_all(vec![Vec::new(); 2000]).await;
    sent.unwrap();
    assert_eq!(back.len(), 2000);
    drop(ours);
    assert!(theirs.recv().await.unwrap().is_empty());
});

/// A lease with these bytes in it.
async fn lease_of(bytes: &'static [u8]) -> Lease {
    let (mut ours, mut theirs) = pair().await;
    ours.write_all(bytes).await.0.unwrap();
    loop {
        let lease = theirs.recv().await.unwrap();
        if lease.len() == bytes.len() {
            return lease;
        }
        // It came in pieces: they are asked for again, until they come in one.
        ours.write_all(bytes).await.0.unwrap();
        receive(&mut theirs, bytes.len() - lease.len()).await;
    }
}

/// Pages with these bytes in them.
async fn pages_of(bytes: &'static [u8]) -> Pages {
    let (mut ours, mut theirs) = pair().await;
    ours.write_all(bytes).await.0.unwrap();
    let mut pages = Pages::new(bytes.len()).unwrap();
    while pages.len() < bytes.len() {
        let (received, back) = theirs.recv_into(pages).await;
        received.unwrap();
        pages = back;
    }
    pages
}

/// Sends a buffer that works, and one on a connection that is shut. Both times it must come back.
async fn comes_back<B: IoBuf + Unpin>(make: impl AsyncFn() -> B, bytes: impl Fn(&B) -> Vec<u8>) {
    let (mut ours, mut theirs) = pair().await;
    let (sent, back) = ours.write_all(make().await).await;
    sent.unwrap();
    assert_eq!(bytes(&back), b"a buffer");
    let (sent, back) = ours.write(back).await;
    let sent = sent.unwrap();
    assert!((1..=8).contains(&sent));
    assert_eq!(bytes(&back), b"a buffer");
    let expected = [b"a buffer", &b"a buffer"[..sent], b"a buffer", b"a buffer"].concat();
    let (sent, back) = ours.write_vectored_all(vec![back, make().await]).await;
    sent.unwrap();
    assert_eq!(back.iter().map(&bytes).collect::<Vec<_>>(), [b"a buffer", b"a buffer"]);
    ours.shutdown(Shutdown::Write).unwrap();
    assert_eq!(receive_all(&mut theirs).await, expected);
    let shut = |error: Error| assert_eq!(error.raw_os_error(), Some(libc::EPIPE));
    let (sent, back) = ours.write_all(make().await).await;
    shut(sent.unwrap_err());
    assert_eq!(bytes(&back), b"a buffer");
    let (sent, back) = ours.write(back).await;
    shut(sent.unwrap_err());
    assert_eq!(bytes(&back), b"a buffer");
    let (sent, back) = ours.write_vectored_all(vec![back, make().await]).await;
    shut(sent.unwrap_err());
    assert_eq!(back.iter().map(&bytes).collect::<Vec<_>>(), [b"a buffer", b"a buffer"]);
}

everywhere!(every_kind_of_buffer_comes_back_sent_or_not, |_| async {
    comes_back(async || b"a buffer".to_vec(), |bytes| bytes.clone()).await;
    comes_back(async || b"a buffer".as_slice(), |bytes| bytes.to_vec()).await;
    comes_back(async || "a buffer", |text| text.as_bytes().to_vec()).await;
    comes_back(async || Rc::<[u8]>::from(b"a buffer".as_slice()), |bytes| bytes.to_vec()).await;
    comes_back(async || lease_of(b"a buffer").await, |bytes| bytes.to_vec()).await;
    comes_back(async || pages_of(b"a buffer").await, |bytes| bytes.to_vec()).await;
});

everywhere!(shared_bytes_are_not_kept_once_they_are_sent, |_| async {
    let (mut ours, mut theirs) = pair().await;
    let shared = Rc::<[u8]>::from(b"shared".as_slice());
    let (sent, back) = ours.write_all(Rc::clone(&shared)).await;
    sent.unwrap();
    assert_eq!(Rc::strong_count(&shared), 2);
    drop(back);
    assert_eq!(Rc::strong_count(&shared), 1);
    assert_eq!(receive(&mut theirs, 6).await, b"shared");
});

everywhere!(a_send_to_a_closed_peer_fails_with_its_reason, |case| async move {
    let (mut ours, theirs) = pair().await;
    theirs.set_option(SocketOption::Linger(Some(Duration::ZERO))).unwrap();
    drop(theirs);
    assert_eq!(ours.recv().await.unwrap_err().raw_os_error(), Some(libc::ECONNRESET));
    for _ in 0..2 {
        let (sent, back) = ours.write_all("anybody?").await;
        let error = sent.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPIPE));
        assert_eq!((error.operation(), error.driver()), ("send", Some(case.driver())));
        assert!(!error.to_string().contains("dropped"), "{error}");
        assert_eq!(back, "anybody?");
    }
});

everywhere!(a_reset_ends_a_send_that_waits, |case| async move {
    let (mut ours, mut theirs) = narrow_pair(case).await;
    let writer = spawn(async move {
        let (sent, back) = ours.write_all(pattern(500_000)).await;
        assert!(back == pattern(500_000));
        sent.unwrap_err()
    });
    // Some of it is here: it is on its way.
    assert!(!theirs.recv().await.unwrap().is_empty());
    theirs.set_option(SocketOption::Linger(Some(Duration::ZERO))).unwrap();
    drop(theirs);
    let error = writer.await.unwrap();
    assert!(matches!(error.raw_os_error(), Some(libc::ECONNRESET | libc::EPIPE)), "{error}");
});

/// After a send that was dropped midway: sending is over, with the reason; receiving is not.
async fn is_broken(mut ours: TcpStream, mut theirs: TcpStream, sent: &[u8], mut got: Vec<u8>) {
    for _ in 0..2 {
        let (result, back) = ours.write_all("after").await;
        let error = result.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPIPE));
        assert!(error.to_string().contains("dropped midway"), "{error}");
        assert_eq!(back, "after");
        let (result, back) = ours.write_vectored_all(vec!["af", "ter"]).await;
        assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EPIPE));
        assert_eq!(back, ["af", "ter"]);
    }
    theirs.write_all("the other way").await.0.unwrap();
    assert_eq!(receive(&mut ours, 13).await, b"the other way");
    drop(ours);
    got.extend_from_slice(&receive_all(&mut theirs).await);
    // Perhaps all of it, if it was faster than its drop.
    assert!(!got.is_empty() && sent.starts_with(&got), "{} bytes", got.len());
}

/// Lets a send get on until the peer has received something of it, which is returned, and drops it.
async fn midway(send: impl Future, theirs: &mut TcpStream) -> Vec<u8> {
    match select(pin!(send), pin!(theirs.recv())).await {
        Either::Left(_) => panic!("there is no room for so much"),
        Either::Right((lease, _)) => lease.unwrap().to_vec(),
    }
}

everywhere!(a_send_dropped_midway_breaks_the_sending_side, |case| async move {
    for vectored in [false, true] {
        let (mut ours, mut theirs) = narrow_pair(case).await;
        // On io_uring the kernel may receive and send in turn until the peer's pool is used up. This is more
        // than the pool and the buffers of both sockets hold.
        let sent = pattern(4_000_000);
        let got = if vectored {
            let buffers = sent.chunks(10_000).map(<[u8]>::to_vec).collect();
            midway(ours.write_vectored_all(buffers), &mut theirs).await
        } else {
            midway(ours.write_all(sent.clone()), &mut theirs).await
        };
        is_broken(ours, theirs, &sent, got).await;
    }
});

scenario!(
    a_lease_whose_send_is_dropped_midway_breaks_the_sending_side,
    |builder| builder.buffers(16, 32 * 1024),
    |case| async move {
        // A lease larger than what goes through at once.
        let (mut source, mut sink) = pair().await;
        source.write_all(pattern(32 * 1024)).await.0.unwrap();
        some_turns().await;
        let lease = sink.recv().await.unwrap();
        let sent = lease.to_vec();
        let (mut ours, mut theirs) = narrow_pair(case).await;
        let got = match select(pin!(ours.write_all(lease)), pin!(theirs.recv())).await {
            // On Linux 6.1 a packet takes what a lease has at most, however narrow the connection.
            Either::Left(((all, _), _)) => {
                all.unwrap();
                return eprintln!("skipped: there is room for all of it");
            }
            Either::Right((lease, _)) => lease.unwrap().to_vec(),
        };
        is_broken(ours, theirs, &sent, got).await;
    }
);

scenario!(a_dropped_send_of_which_nothing_went_leaves_no_trace, |case| async move {
    // A kernel that probes a closed window now and then makes room for a moment: then a byte of the dropped
    // one may have gone, and it is tried again.
    for _ in 0..20 {
        let (mut ours, mut theirs) = narrow_pair(case).await;
        // What finds no room when it ends at last has sent nothing. Pieces first: a byte takes as much of the
        // buffer as a thousand, and each waits for an acknowledgement. Long enough for late ones.
        let mut filled = 0usize;
        for piece in [512, 1] {
            while let Ok((sent, _)) = timeout(Duration::from_millis(300), ours.write(vec![b'f'; piece])).await
            {
                filled += sent.unwrap();
            }
        }
        let mut whole = true;
        for vectored in [false, true, false] {
            whole &= match vectored {
                true => poll_once(pin!(ours.write_vectored_all(vec!["dropped", "too"]))).await.is_none(),
                false => poll_once(pin!(ours.write_all("dropped"))).await.is_none(),
            };
            yield_now().await;
        }
        if !whole {
            continue;
        }
        let writer = spawn(async move { ours.write_all("kept").await.0 });
        let all = receive_all(&mut theirs).await;
        if let Err(why) = writer.await.unwrap() {
            assert!(why.to_string().contains("dropped midway"), "{why}");
            continue;
        }
        assert_eq!(all.len(), filled + 4);
        assert!(all.starts_with(&vec![b'f'; filled]) && all.ends_with(b"kept"));
        return;
    }
    panic!("something went of every dropped send");
});

everywhere!(a_send_never_polled_is_nothing, |_| async {
    let (mut ours, mut theirs) = pair().await;
    drop(ours.write_all("never"));
    drop(ours.write_vectored_all(vec!["ne", "ver"]));
    ours.write_all("sent").await.0.unwrap();
    drop(ours);
    assert_eq!(receive_all(&mut theirs).await, b"sent");
});

scenario!(sends_and_receives_of_one_connection_do_not_wait_for_each_other, |_| async {
    // Each side sends more than fits before it receives: only both directions at once come to an end.
    const BYTES: usize = 3 << 20;
    let (ours, theirs) = pair().await;
    let mut ends = Vec::new();
    for stream in [ours, theirs] {
        let (mut reader, mut writer) = stream.split();
        ends.push(spawn(async move {
            writer.write_all(pattern(BYTES)).await.0.unwrap();
            writer.shutdown().unwrap();
        }));
        ends.push(spawn(async move {
            let expected = pattern(BYTES);
            let mut at = 0;
            loop {
                let lease = reader.recv().await.unwrap();
                if lease.is_empty() {
                    break;
                }
                assert!(expected[at..].starts_with(&lease), "wrong bytes behind {at}");
                at += lease.len();
            }
            assert_eq!(at, BYTES);
        }));
    }
    for end in ends {
        end.await.unwrap();
    }
});

everywhere!(a_write_takes_what_there_is_room_for_and_waits_for_no_more, |case| async move {
    const BYTES: usize = 4 << 20;
    let (mut ours, mut theirs) = narrow_pair(case).await;
    // No receive is under way, and the receiver learns only afterwards how much to expect.
    let (written, back) = ours.write(pattern(BYTES)).await;
    let written = written.unwrap();
    assert!((1..BYTES).contains(&written), "{written}");
    drop(ours);
    assert!(receive_all(&mut theirs).await == back[..written]);
});

everywhere!(a_send_that_was_forgotten_does_not_hold_up_the_next, |case| async move {
    let (mut ours, mut theirs) = narrow_pair(case).await;
    // No destructor runs: the engine is not told that the send is over, but its result cannot be asked for
    // either.
    let mut send = Box::pin(ours.write_all(pattern(400_000)));
    assert!(poll_once(send.as_mut()).await.is_none());
    std::mem::forget(send);
    let reader = spawn(async move { receive_all(&mut theirs).await });
    let after = ours.write_all("after it").await.0;
    drop(ours);
    let got = reader.await.unwrap();
    match after {
        // Nothing of it had gone.
        Ok(()) => assert_eq!(got, b"after it"),
        Err(why) => {
            assert!(why.to_string().contains("dropped midway"), "{why}");
            assert!(pattern(400_000).starts_with(&got));
        }
    }
});

everywhere!(what_is_tried_goes_at_once_in_part_or_not_at_all, |case| async move {
    const BYTES: usize = 4 << 20;
    let (mut ours, mut theirs) = narrow_pair(case).await;
    let reader = spawn(async move { receive_all(&mut theirs).await });
    let all = pattern(BYTES);
    let mut sent = 0;
    while sent < BYTES {
        let most = BYTES.min(sent + 100_000);
        sent = match ours.try_write(&all[sent..most]) {
            Some(bytes) => {
                assert!((1..=most - sent).contains(&bytes));
                sent + bytes
            }
            // Behind whatever went, in order.
            None => {
                ours.write_all(all[sent..most].to_vec()).await.0.unwrap();
                most
            }
        };
    }
    assert_eq!(ours.try_write(&[]), None);
    drop(ours);
    assert!(reader.await.unwrap() == all);
});
