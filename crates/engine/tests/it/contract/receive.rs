//! Receiving: every byte once and in order, then the end or the reset, whatever the futures that ask do.

use crate::support::{
    Gate, listener, narrow_pair, numbers, pair, pattern, poll_once, receive, receive_all, some_turns,
};
use ringroad_engine::net::{SocketOption, TcpStream};
use ringroad_engine::time::timeout;
use ringroad_engine::{Pages, spawn, yield_now};
use std::future::poll_fn;
use std::net::Shutdown;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// Longer than anything takes that comes at all.
const GENEROUS: Duration = Duration::from_secs(60);

const RESET: SocketOption = SocketOption::Linger(Some(Duration::ZERO));

/// Closes a connection so that the peer is reset.
fn reset(stream: TcpStream) {
    stream.set_option(RESET).unwrap();
    drop(stream);
}

everywhere!(bytes_come_once_and_in_order_however_they_are_asked_for, |_| async {
    const BYTES: usize = 300_000;
    let (mut ours, mut theirs) = pair().await;
    let writer = spawn(async move {
        let all = pattern(BYTES);
        let mut number = numbers(1);
        let mut rest = &all[..];
        while !rest.is_empty() {
            let (part, after) = rest.split_at(rest.len().min(1 + number(9000)));
            ours.write_all(part.to_vec()).await.0.unwrap();
            rest = after;
        }
    });
    let mut number = numbers(2);
    let mut all = Vec::new();
    loop {
        let before = all.len();
        match number(3) {
            0 => all.extend_from_slice(&theirs.recv().await.unwrap()),
            1 => {
                let (received, part) = theirs.recv_into(Vec::with_capacity(1 + number(5000))).await;
                assert_eq!(received.unwrap(), part.len());
                all.extend_from_slice(&part);
            }
            _ => {
                let (received, part) = theirs.recv_into(Pages::new(1).unwrap()).await;
                assert_eq!(received.unwrap(), part.len());
                all.extend_from_slice(&part);
            }
        }
        if all.len() == before {
            break;
        }
    }
    assert!(all == pattern(BYTES), "{} bytes of {BYTES}, or others", all.len());
    writer.await.unwrap();
});

everywhere!(receives_dropped_at_any_moment_lose_no_byte, |_| async {
    const BYTES: usize = 40_000;
    let mut dropped = 0u32;
    for seed in 0..4 {
        let (mut ours, mut theirs) = pair().await;
        let writer = spawn(async move {
            let all = pattern(BYTES);
            let mut number = numbers(seed);
            let mut rest = &all[..];
            while !rest.is_empty() {
                let (part, after) = rest.split_at(rest.len().min(1 + number(700)));
                ours.write_all(part.to_vec()).await.0.unwrap();
                rest = after;
                for _ in 0..number(4) {
                    yield_now().await;
                }
            }
        });
        let mut number = numbers(seed + 100);
        let mut all = Vec::new();
        let mut ended = false;
        while !ended {
            let (room, polls) = (1 + number(1500), 1 + number(3));
            let way = number(4);
            // Some polls of a receive that is then dropped; where there was something, the rest of it.
            let mut got = None;
            match way {
                0 | 1 => {
                    let mut recv = pin!(theirs.recv());
                    for _ in 0..polls {
                        match poll_once(recv.as_mut()).await {
                            Some(lease) => {
                                got = Some(lease.unwrap().to_vec());
                                break;
                            }
                            None => yield_now().await,
                        }
                    }
                }
                _ => {
                    let mut recv = pin!(theirs.recv_into(Vec::with_capacity(room)));
                    for _ in 0..polls {
                        match poll_once(recv.as_mut()).await {
                            Some((received, part)) => {
                                assert_eq!(received.unwrap(), part.len());
                                got = Some(part);
                                break;
                            }
                            None => yield_now().await,
                        }
                    }
                }
            }
            match got {
                Some(part) if part.is_empty() => ended = true,
                Some(part) => all.extend_from_slice(&part),
                None => dropped += 1,
            }
        }
        assert!(all == pattern(BYTES), "seed {seed}: {} bytes of {BYTES}, or others", all.len());
        writer.await.unwrap();
    }
    assert!(dropped > 0, "none was dropped: this showed nothing");
});

everywhere!(bytes_for_a_dropped_receive_into_memory_are_the_next_ones_whatever_its_size, |_| async {
    for (first, second) in [(100, 1000), (1000, 3), (1, 1), (5, 0)] {
        for turns in [0, 1, 50] {
            let (mut ours, mut theirs) = pair().await;
            {
                let mut before = Vec::with_capacity(first + 4);
                before.extend_from_slice(b"mine");
                let mut dropped = pin!(theirs.recv_into(before));
                assert!(poll_once(dropped.as_mut()).await.is_none());
                yield_now().await;
                ours.write_all("eight by").await.0.unwrap();
                for _ in 0..turns {
                    yield_now().await;
                }
            }
            let mut all = Vec::new();
            if second == 0 {
                all.extend_from_slice(&theirs.recv().await.unwrap());
            } else {
                let (received, part) = theirs.recv_into(Vec::with_capacity(second)).await;
                assert!((1..=second).contains(&received.unwrap()));
                all.extend_from_slice(&part);
            }
            drop(ours);
            all.extend_from_slice(&receive_all(&mut theirs).await);
            assert_eq!(all, b"eight by", "{first}, {second}, {turns} turns");
        }
    }
});

everywhere!(bytes_for_a_dropped_receive_are_the_next_ones, |_| async {
    for turns in [0, 1, 50] {
        for into in [false, true] {
            let (mut ours, mut theirs) = pair().await;
            {
                let mut dropped = pin!(theirs.recv());
                assert!(poll_once(dropped.as_mut()).await.is_none());
                yield_now().await;
                ours.write_all("first").await.0.unwrap();
                for _ in 0..turns {
                    yield_now().await;
                }
            }
            let first = match into {
                true => receive(&mut theirs, 2).await,
                false => theirs.recv().await.unwrap().to_vec(),
            };
            ours.write_all(" second").await.0.unwrap();
            drop(ours);
            let rest = receive_all(&mut theirs).await;
            assert_eq!([first, rest].concat(), b"first second", "{turns} turns, into: {into}");
        }
    }
});

everywhere!(bytes_that_arrive_without_a_receive_are_complete_at_the_next_one, |_| async {
    // More pieces than a stream may hold unread, so that its receive is ended and begun again.
    const PIECES: usize = 60;
    let (mut ours, mut theirs) = pair().await;
    ours.set_option(SocketOption::NoDelay(true)).unwrap();
    assert!(poll_once(pin!(theirs.recv())).await.is_none());
    for piece in 0..PIECES {
        ours.write_all(vec![piece as u8; 100]).await.0.unwrap();
        yield_now().await;
    }
    some_turns().await;
    // Not even asked for while the end comes.
    drop(ours);
    some_turns().await;
    let expected: Vec<u8> = (0..PIECES).flat_map(|piece| [piece as u8; 100]).collect();
    assert_eq!(receive_all(&mut theirs).await, expected);
});

everywhere!(a_receive_into_memory_appends_and_says_how_much, |_| async {
    let (mut ours, mut theirs) = pair().await;
    ours.write_all("defgh").await.0.unwrap();
    let mut buffer = Vec::with_capacity(6);
    buffer.extend_from_slice(b"abc");
    while buffer.len() < 6 {
        let before = buffer.len();
        let (received, back) = theirs.recv_into(buffer).await;
        buffer = back;
        assert_eq!(received.unwrap(), buffer.len() - before);
    }
    assert_eq!((&buffer[..], buffer.capacity()), (&b"abcdef"[..], 6));
    // No room is not the end.
    let (received, buffer) = theirs.recv_into(buffer).await;
    assert_eq!((received.unwrap(), &buffer[..]), (0, &b"abcdef"[..]));
    assert_eq!(receive(&mut theirs, 2).await, b"gh");
});

everywhere!(after_the_end_comes_the_end_again, |_| async {
    let (mut ours, mut theirs) = pair().await;
    ours.write_all("last words").await.0.unwrap();
    drop(ours);
    assert_eq!(receive_all(&mut theirs).await, b"last words");
    for _ in 0..3 {
        assert!(theirs.recv().await.unwrap().is_empty());
        let (received, buffer) = theirs.recv_into(Vec::with_capacity(8)).await;
        assert_eq!((received.unwrap(), buffer.len()), (0, 0));
    }
});

everywhere!(an_end_behind_the_last_bytes_is_found, |_| async {
    for into in [false, true] {
        let (mut ours, mut theirs) = pair().await;
        ours.write_all("twelve bytes").await.0.unwrap();
        let mut all = receive(&mut theirs, 4).await;
        // Both the rest and the end are there when it is asked for.
        drop(ours);
        some_turns().await;
        loop {
            let part = match into {
                false => theirs.recv().await.unwrap().to_vec(),
                true => theirs.recv_into(Vec::with_capacity(100)).await.1,
            };
            if part.is_empty() {
                break;
            }
            all.extend_from_slice(&part);
        }
        assert_eq!(all, b"twelve bytes", "into: {into}");
    }
});

everywhere!(an_end_that_comes_to_a_dropped_receive_is_the_next_ones, |_| async {
    for into in [false, true] {
        let (ours, mut theirs) = pair().await;
        {
            let mut leased = pin!(theirs.recv());
            if !into {
                assert!(poll_once(leased.as_mut()).await.is_none());
                yield_now().await;
            }
        }
        if into {
            let mut dropped = pin!(theirs.recv_into(Vec::with_capacity(10)));
            assert!(poll_once(dropped.as_mut()).await.is_none());
            yield_now().await;
            drop(ours);
            some_turns().await;
        } else {
            drop(ours);
            some_turns().await;
        }
        assert!(theirs.recv().await.unwrap().is_empty(), "into: {into}");
        assert!(theirs.recv().await.unwrap().is_empty(), "into: {into}");
    }
});

everywhere!(a_reset_is_not_an_end, |case| async move {
    for into in [false, true] {
        for waits in [false, true] {
            let (mut ours, mut theirs) = pair().await;
            ours.write_all("hello").await.0.unwrap();
            assert_eq!(receive(&mut theirs, 5).await, b"hello");
            if !waits {
                reset(ours);
                some_turns().await;
            } else {
                spawn(async move {
                    some_turns().await;
                    reset(ours);
                })
                .detach();
            }
            let peer = theirs.peer_addr();
            let error = if into {
                let mut mine = Vec::with_capacity(10);
                mine.extend_from_slice(b"mine");
                let (received, buffer) = theirs.recv_into(mine).await;
                assert_eq!((&buffer[..], buffer.capacity()), (&b"mine"[..], 10), "it comes back as it was");
                received.unwrap_err()
            } else {
                theirs.recv().await.unwrap_err()
            };
            assert_eq!(error.raw_os_error(), Some(libc::ECONNRESET));
            assert_eq!((error.operation(), error.driver()), ("recv", Some(case.driver())));
            // Its name is gone with the connection, on a real kernel; the error says what it can.
            assert!(error.to_string().starts_with("recv, on "), "{error}; {peer:?}");
            // It is told once; then nothing comes any more.
            assert!(theirs.recv().await.unwrap().is_empty());
        }
    }
});

everywhere!(what_came_before_a_reset_is_still_received, |_| async {
    let (mut ours, mut theirs) = pair().await;
    ours.write_all("twelve bytes").await.0.unwrap();
    // Once a part of them is here, all are: they went in one segment.
    let mut all = receive(&mut theirs, 4).await;
    reset(ours);
    some_turns().await;
    let error = loop {
        match theirs.recv().await {
            Ok(lease) => {
                assert!(!lease.is_empty(), "an end, after {all:?}");
                all.extend_from_slice(&lease);
            }
            Err(why) => break why,
        }
    };
    assert_eq!(error.raw_os_error(), Some(libc::ECONNRESET));
    assert_eq!(all, b"twelve bytes");
});

everywhere!(a_reset_that_comes_to_a_dropped_receive_is_the_next_ones, |_| async {
    for into in [false, true] {
        let (ours, mut theirs) = pair().await;
        if into {
            let mut dropped = pin!(theirs.recv_into(Vec::with_capacity(10)));
            assert!(poll_once(dropped.as_mut()).await.is_none());
            yield_now().await;
            reset(ours);
            some_turns().await;
        } else {
            let mut dropped = pin!(theirs.recv());
            assert!(poll_once(dropped.as_mut()).await.is_none());
            yield_now().await;
            reset(ours);
            some_turns().await;
        }
        let error = theirs.recv().await.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ECONNRESET), "into: {into}");
    }
});

everywhere!(each_direction_ends_by_itself, |_| async {
    let (mut ours, mut theirs) = pair().await;
    ours.write_all("question").await.0.unwrap();
    ours.shutdown(Shutdown::Write).unwrap();
    assert_eq!(receive_all(&mut theirs).await, b"question");
    // The other way is still open, both for what is sent after that end and for much of it.
    let answer = pattern(200_000);
    let writer = spawn(async move {
        theirs.write_all(pattern(200_000)).await.0.unwrap();
        theirs.shutdown(Shutdown::Write).unwrap();
        theirs
    });
    assert!(receive_all(&mut ours).await == answer);
    let error = ours.write_all("more").await.0.unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EPIPE));
    let mut theirs = writer.await.unwrap();
    let error = theirs.write_all("more").await.0.unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EPIPE));
});

everywhere!(a_side_that_is_shut_for_receiving_is_at_its_end, |_| async {
    for armed in [false, true] {
        let (_ours, mut theirs) = pair().await;
        if armed {
            assert!(poll_once(pin!(theirs.recv())).await.is_none());
            some_turns().await;
        }
        theirs.shutdown(Shutdown::Read).unwrap();
        assert!(theirs.recv().await.unwrap().is_empty(), "armed: {armed}");
    }
});

everywhere!(leases_that_are_kept_keep_their_bytes, |builder| builder.buffers(4, 64), |_| async {
    let (mut ours, mut theirs) = pair().await;
    let mut leases = Vec::new();
    for round in 0..20u8 {
        ours.write_all(vec![round; 50]).await.0.unwrap();
        let mut got = 0;
        while got < 50 {
            let lease = theirs.recv().await.unwrap();
            got += lease.len();
            leases.push((round, lease));
        }
    }
    for (round, lease) in &leases {
        assert!(!lease.is_empty() && lease.iter().all(|byte| byte == round), "{round}: {lease:?}");
    }
    // From the front, of those in the pool and of those out of it.
    let (_, lease) = leases.last_mut().unwrap();
    let before = lease.len();
    lease.advance(1);
    assert_eq!(lease.len(), before - 1);
});

everywhere!(a_slow_reader_holds_its_peer_back_and_gets_everything, |case| async move {
    const BYTES: usize = 100_000;
    let (mut ours, mut theirs) = narrow_pair(case).await;
    let sent = Gate::default();
    let writer = {
        let sent = sent.clone();
        spawn(async move {
            ours.write_all(pattern(BYTES)).await.0.unwrap();
            sent.open();
        })
    };
    some_turns().await;
    assert!(!sent.is_open(), "there is no room for so much");
    assert!(receive_all(&mut theirs).await == pattern(BYTES));
    writer.await.unwrap();
});

everywhere!(a_receive_that_was_forgotten_does_not_hold_up_the_next, |_| async {
    for turns in [0, 1, 20] {
        let (mut ours, mut theirs) = pair().await;
        let mut recv = Box::pin(theirs.recv_into(Vec::with_capacity(100)));
        assert!(poll_once(recv.as_mut()).await.is_none());
        std::mem::forget(recv);
        ours.write_all("not lost").await.0.unwrap();
        for _ in 0..turns {
            yield_now().await;
        }
        assert_eq!(receive(&mut theirs, 8).await, b"not lost");
    }
});

everywhere!(
    /// The kernel ends a receive before the urgent byte. What is behind it was told together with what is
    /// before.
    bytes_behind_an_urgent_one_are_received_without_anything_coming_after_them,
    |case| async move {
        if !case.is_real() {
            return eprintln!("skipped: the simulation has no urgent data");
        }
        for into in [false, true] {
            let (mut listener, address) = listener();
            let (peer, ours) = (std::net::TcpStream::connect(address).unwrap(), listener.accept().await);
            let (peer, mut ours) = (socket2::Socket::from(peer), ours.unwrap());
            // From here on the driver waits for what comes: the first receive has found all there was.
            peer.send(b"!").unwrap();
            assert_eq!(receive(&mut ours, 1).await, b"!");
            assert!(poll_once(pin!(ours.recv())).await.is_none());
            peer.set_tcp_nodelay(true).unwrap();
            peer.send(b"before").unwrap();
            peer.send_out_of_band(b"u").unwrap();
            peer.send(b"behind").unwrap();
            let mut all = Vec::new();
            while all.len() < 12 {
                let part = async {
                    if !into {
                        return ours.recv().await.unwrap().to_vec();
                    }
                    let (received, part) = ours.recv_into(Vec::with_capacity(100)).await;
                    received.unwrap();
                    part
                };
                let part = timeout(GENEROUS, part).await;
                all.extend(part.unwrap_or_else(|_| panic!("nothing comes after {all:?}")));
            }
            assert_eq!(all, b"beforebehind");
        }
    }
);

everywhere!(a_task_that_parks_behind_its_bytes_is_woken_by_what_comes_next_and_by_the_end, |_| async {
    const ROUNDS: usize = 200;
    for end_with_bytes in [false, true] {
        let (mut ours, mut theirs) = pair().await;
        let reader = spawn(async move {
            let mut all = Vec::new();
            // Returns `Pending` as soon as nothing more is there, without asking again for that.
            poll_fn(|context| {
                loop {
                    match theirs.poll_recv_parked(context) {
                        Poll::Ready(Ok((lease, parked))) if !lease.is_empty() => {
                            all.extend_from_slice(&lease);
                            if parked {
                                return Poll::Pending;
                            }
                        }
                        Poll::Ready(end) => return Poll::Ready(end.map(|_| ())),
                        Poll::Pending => return Poll::Pending,
                    }
                }
            })
            .await
            .unwrap();
            all
        });
        let expected = pattern(ROUNDS * 10);
        for (round, part) in expected.chunks(10).enumerate() {
            ours.write_all(part.to_vec()).await.0.unwrap();
            if end_with_bytes && round == ROUNDS - 1 {
                // The end comes with the last bytes, and is no change of its own.
                break;
            }
            for _ in 0..round % 4 {
                yield_now().await;
            }
            some_turns().await;
        }
        drop(ours);
        let all = timeout(GENEROUS, reader).await.expect("the task is woken").unwrap();
        assert_eq!(all, expected);
    }
});
