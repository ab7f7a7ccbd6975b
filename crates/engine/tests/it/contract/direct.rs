//! Direct connections: without a descriptor they are what they were, and what needs one refuses. Where the
//! driver or the kernel has no table of its own, the stream comes back as it was, and every scenario goes on
//! with that.

use crate::support::{
    Case, alone, listener, narrow_pair, numbers, pair, pair_by, pattern, poll_once, receive, receive_all,
    run, runtime, some_turns, with_runtime,
};
use ringroad_engine::net::{Detached, SocketOption, TcpStream};
use ringroad_engine::{FilePart, spawn, yield_now};
use std::io::Read;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// Where it can be, without its number. Else as it was, and the error says why.
fn direct(case: Case, stream: TcpStream) -> TcpStream {
    let is_uring = matches!(case, Case::IoUring | Case::IoUringPlain);
    match stream.into_direct() {
        Ok(stream) => {
            assert!(is_uring && stream.is_direct());
            stream
        }
        Err((why, stream)) => {
            assert!(!stream.is_direct());
            if is_uring {
                // A kernel before 6.13, which says so.
                eprintln!("skipped: {why}");
                assert!(why.to_string().contains("Linux"), "{why}");
            } else {
                assert_eq!(why.raw_os_error(), Some(libc::EOPNOTSUPP), "{why}");
                assert!(why.to_string().contains("the driver io_uring"), "{why}");
            }
            stream
        }
    }
}

fn places_used() -> u64 {
    runtime(|runtime| runtime.counters().places_used)
}

/// Every place is empty, as soon as the kernel has let go of what was in flight there.
async fn all_places_are_empty() {
    while places_used() > 0 {
        yield_now().await;
    }
}

scenario!(a_connection_without_a_descriptor_sends_and_receives_as_ever, |case| async move {
    const BYTES: usize = 300_000;
    let (ours, theirs) = narrow_pair(case).await;
    let (ours, theirs) = (direct(case, ours), direct(case, theirs));
    assert_eq!(places_used(), if ours.is_direct() { 2 } else { 0 });
    let (mut reader, mut writer) = theirs.split();
    let (mut our_reader, mut our_writer) = ours.split();
    // Both ways at once, much and in pieces.
    let there = spawn(async move {
        our_writer.write_all(pattern(BYTES)).await.0.unwrap();
        let pieces: Vec<Vec<u8>> = pattern(BYTES).chunks(999).map(<[u8]>::to_vec).collect();
        our_writer.write_vectored_all(pieces).await.0.unwrap();
        our_writer.shutdown().unwrap();
        our_writer
    });
    let back = spawn(async move {
        writer.write_all("back").await.0.unwrap();
        writer
    });
    let mut got = Vec::new();
    // By leases and into memory of our own.
    while got.len() < BYTES / 2 {
        got.extend_from_slice(&reader.recv().await.unwrap());
    }
    loop {
        let (received, part) = reader.recv_into(Vec::with_capacity(5000)).await;
        if received.unwrap() == 0 {
            break;
        }
        got.extend_from_slice(&part);
    }
    assert!(got == [pattern(BYTES), pattern(BYTES)].concat());
    let (mut writer, our_writer) = (back.await.unwrap(), there.await.unwrap());
    // Half-closed: the other way is open.
    writer.write_all(" and the end").await.0.unwrap();
    drop((reader, writer));
    let mut heard = Vec::new();
    loop {
        let lease = our_reader.recv().await.unwrap();
        if lease.is_empty() {
            break;
        }
        heard.extend_from_slice(&lease);
    }
    assert_eq!(heard, b"back and the end");
    our_reader.reunite(our_writer).unwrap().close().await;
    all_places_are_empty().await;
});

scenario!(a_dropped_receive_of_a_direct_connection_loses_nothing, |case| async move {
    let (mut ours, theirs) = pair().await;
    let mut theirs = direct(case, theirs);
    for round in 0..3 {
        match round {
            0 => assert!(poll_once(pin!(theirs.recv_into(Vec::with_capacity(100)))).await.is_none()),
            _ => assert!(poll_once(pin!(theirs.recv())).await.is_none()),
        }
        ours.write_all("kept").await.0.unwrap();
        some_turns().await;
        assert_eq!(receive(&mut theirs, 4).await, b"kept", "round {round}");
    }
});

scenario!(a_canceller_from_before_ends_what_is_awaited_on_a_direct_connection, |case| async move {
    let (mut ours, theirs) = pair().await;
    let canceller = theirs.canceller();
    assert_eq!(canceller.peer_addr().unwrap(), ours.local_addr().unwrap());
    let mut theirs = direct(case, theirs);
    let receiving = spawn(async move {
        let cancelled = theirs.recv().await.unwrap_err();
        assert!(cancelled.is_cancelled(), "{cancelled}");
        theirs
    });
    some_turns().await;
    canceller.cancel();
    let mut theirs = receiving.await.unwrap();
    // The slot index is now free, or belongs to another operation.
    if theirs.is_direct() {
        let why = canceller.peer_addr().unwrap_err();
        assert_eq!(why.raw_os_error(), Some(libc::EOPNOTSUPP), "{why}");
    }
    ours.write_all("goes on").await.0.unwrap();
    assert_eq!(receive(&mut theirs, 7).await, b"goes on");
});

scenario!(closing_a_direct_connection_with_unread_bytes_resets_its_peer, |case| async move {
    for armed in [false, true] {
        let (mut ours, theirs) = pair().await;
        let mut theirs = direct(case, theirs);
        if armed {
            assert!(poll_once(pin!(theirs.recv())).await.is_none());
        }
        ours.write_all("unread").await.0.unwrap();
        some_turns().await;
        theirs.close().await;
        let error = ours.recv().await.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ECONNRESET), "armed: {armed}");
    }
    all_places_are_empty().await;
});

scenario!(what_has_no_operation_of_the_ring_says_so_and_changes_nothing, |case| async move {
    let (mut ours, theirs) = pair().await;
    let mut theirs = direct(case, theirs);
    if !theirs.is_direct() {
        return;
    }
    let file = FilePart::new(Arc::new(std::fs::File::open("/proc/self/exe").unwrap()), 0..10);
    let refusals = [
        theirs.set_option(SocketOption::NoDelay(true)).unwrap_err(),
        theirs.option(SocketOption::NoDelay(true)).unwrap_err(),
        theirs.set_option(SocketOption::Linger(Some(Duration::ZERO))).unwrap_err(),
        theirs.local_addr().unwrap_err(),
        theirs.peer_addr().unwrap_err(),
        theirs.send_file(file).await.0.unwrap_err(),
    ];
    let (why, theirs) = theirs.into_std().unwrap_err();
    for why in refusals.into_iter().chain([why]) {
        assert_eq!(why.raw_os_error(), Some(libc::EOPNOTSUPP), "{why}");
        assert!(why.to_string().contains("do this before `into_direct`"), "{why}");
    }
    let mut theirs = theirs.into_direct().unwrap();
    assert_eq!(places_used(), 1, "again is no change");
    ours.write_all("unharmed").await.0.unwrap();
    assert_eq!(receive(&mut theirs, 8).await, b"unharmed");
    theirs.write_all("too").await.0.unwrap();
    assert_eq!(receive(&mut ours, 3).await, b"too");
    // There is no way back, and a hand-over takes the stream: its peer sees the end.
    let why = theirs.detach().await.unwrap_err();
    assert!(why.to_string().contains("do this before `into_direct`"), "{why}");
    assert!(receive_all(&mut ours).await.is_empty());
    all_places_are_empty().await;
});

scenario!(a_connection_that_waits_becomes_direct_after_it_was_detached, |case| async move {
    let (mut ours, mut theirs) = pair().await;
    assert!(poll_once(pin!(theirs.recv())).await.is_none());
    let (why, theirs) = theirs.into_direct().unwrap_err();
    assert_eq!(why.raw_os_error(), Some(libc::EBUSY), "{why}");
    assert!(why.to_string().contains("`detach` and `attach`"), "{why}");
    ours.write_all("before and ").await.0.unwrap();
    let theirs = theirs.detach().await.and_then(|loose| Detached::attach(loose).map_err(|(why, _)| why));
    let mut theirs = direct(case, theirs.unwrap());
    ours.write_all("after").await.0.unwrap();
    assert_eq!(receive(&mut theirs, 16).await, b"before and after");
});

scenario!(a_full_table_gives_the_stream_back, |builder| builder.direct_places(2), |case| async move {
    let (mut listener, address) = listener();
    let mut held = Vec::new();
    for _ in 0..2 {
        let (ours, theirs) = pair_by(&mut listener, address).await;
        held.push((ours, direct(case, theirs)));
    }
    let (mut ours, theirs) = pair_by(&mut listener, address).await;
    let (why, mut theirs) = theirs.into_direct().unwrap_err();
    if !held[0].1.is_direct() {
        return;
    }
    assert_eq!(why.raw_os_error(), Some(libc::ENFILE), "{why}");
    assert!(
        why.to_string().contains("a table of 2 places") && why.to_string().contains("another runtime"),
        "{why}"
    );
    assert!(!theirs.is_direct());
    ours.write_all("as ever").await.0.unwrap();
    assert_eq!(receive(&mut theirs, 7).await, b"as ever");
    // A place that is empty again can be taken.
    let (_ours, first) = held.swap_remove(0);
    first.close().await;
    assert_eq!(places_used(), 1);
    let (mut ours, theirs) = pair_by(&mut listener, address).await;
    let mut theirs = theirs.into_direct().unwrap();
    ours.write_all("in its place").await.0.unwrap();
    assert_eq!(receive(&mut theirs, 12).await, b"in its place");
});

scenario!(however_direct_connections_end_no_place_is_left_taken, |case| async move {
    let (mut listener, address) = listener();
    let mut draw = numbers(11);
    let mut peers = Vec::new();
    for round in 0..120 {
        let (ours, theirs) = pair_by(&mut listener, address).await;
        let mut theirs = direct(case, theirs);
        match round % 8 {
            0 => drop(theirs),
            1 => theirs.close().await,
            // A receive that stands, one into memory, a send with no room: each dropped with its stream, at
            // some time.
            2 => {
                assert!(poll_once(pin!(theirs.recv())).await.is_none());
                for _ in 0..draw(3) {
                    yield_now().await;
                }
            }
            3 => {
                assert!(poll_once(pin!(theirs.recv_into(Vec::with_capacity(10)))).await.is_none());
                for _ in 0..draw(3) {
                    yield_now().await;
                }
            }
            4 => {
                let mut sending = pin!(theirs.write_all(vec![7; 8 << 20]));
                for _ in 0..draw(3) {
                    assert!(poll_once(sending.as_mut()).await.is_none());
                    yield_now().await;
                }
            }
            5 => {
                // The task that has it panics.
                let task = spawn(async move {
                    let _theirs = theirs;
                    assert_eq!(round, 0, "it panics, as it is meant to");
                });
                assert!(task.await.is_err());
            }
            6 => {
                // The task that has it is cancelled while it waits.
                let task = spawn(async move { theirs.recv().await.map(|_| ()) });
                for _ in 0..draw(3) {
                    yield_now().await;
                }
                task.cancel();
                assert!(task.await.is_err());
            }
            _ => {
                // One half after the other, and a canceller that outlives both.
                let canceller = theirs.canceller();
                let (reader, mut writer) = theirs.split();
                drop(reader);
                writer.write_all("last").await.0.unwrap();
                drop(writer);
                canceller.cancel();
            }
        }
        peers.push(ours);
    }
    all_places_are_empty().await;
    // And each peer has seen its end.
    for mut peer in peers {
        while peer.recv().await.is_ok_and(|lease| !lease.is_empty()) {}
    }
});

cases!(a_runtime_that_ends_closes_its_direct_connections, real, |case| {
    let listening = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listening.local_addr().unwrap();
    let peers = std::thread::spawn(move || -> Vec<std::net::TcpStream> {
        (0..3).map(|_| listening.accept().unwrap().0).collect()
    });
    with_runtime(
        case,
        |builder| builder,
        move |case, runtime| {
            let streams = runtime.block_on(async {
                let mut streams = Vec::new();
                for _ in 0..3 {
                    streams.push(direct(case, TcpStream::connect(address).await.unwrap()));
                }
                // One has a receive that stands.
                assert!(poll_once(pin!(streams[0].recv())).await.is_none());
                streams
            });
            // They outlive it, as handles do.
            std::mem::forget(streams);
        },
    );
    for mut peer in peers.join().unwrap() {
        assert_eq!(peer.read(&mut [0]).unwrap(), 0);
    }
});

cases!(
    /// Which is what it is for.
    there_are_more_connections_than_descriptors,
    [io_uring IoUring, io_uring_plain IoUringPlain],
    |case| alone(Some(64), || run(case, |builder| builder, |case| async move {
        let probe = pair().await.0;
        if !direct(case, probe).is_direct() {
            return;
        }
        let (mut listener, address) = listener();
        let (mut near, mut far) = (Vec::new(), Vec::new());
        for _ in 0..30 {
            let (ours, theirs) = pair_by(&mut listener, address).await;
            near.push(ours.into_direct().unwrap());
            far.push(theirs.into_direct().unwrap());
        }
        // And those that have descriptors, more than would be left.
        for _ in 0..20 {
            let (ours, theirs) = pair_by(&mut listener, address).await;
            near.push(ours);
            far.push(theirs);
        }
        for (n, ours) in near.iter_mut().enumerate() {
            ours.write_all(format!("{n:4}").into_bytes()).await.0.unwrap();
        }
        for (n, theirs) in far.iter_mut().enumerate() {
            assert_eq!(receive(theirs, 4).await, format!("{n:4}").into_bytes());
        }
    }))
);

#[test]
fn a_table_larger_than_the_limit_is_refused_with_what_to_do() {
    if Case::IoUring.is_refused() {
        return;
    }
    let runtime = Case::IoUring.builder().direct_places((1 << 20) + 1).build().unwrap();
    let why = runtime.direct_places().unwrap_err().to_string();
    // A kernel that has no direct connections: 6.8 gives them descriptors, 6.13 closes them at once.
    let lacks = ["Linux 6.8", "Linux 6.13"].iter().any(|kernel| why.contains(kernel));
    assert!(why.contains("1048577 places") || lacks, "{why}");
    let runtime = Case::IoUring.builder().direct_places(7).build().unwrap();
    assert!(runtime.direct_places().is_ok_and(|places| places == 7) || lacks);
}
