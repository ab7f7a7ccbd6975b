//! Closing: cancel, reap every last completion, then close; after that the descriptor number is free for
//! reuse at once.

use crate::support::{
    listener, narrow_pair, pair, pair_by, pattern, poll_once, receive, receive_all, runtime, some_turns,
};
use ringroad_engine::net::{SocketOption, TcpStream};
use ringroad_engine::{spawn, yield_now};
use std::pin::pin;
use std::time::Duration;

fn descriptors() -> usize {
    runtime(|runtime| runtime.descriptors())
}

everywhere!(a_close_is_done_when_the_descriptor_is_closed, |case| async move {
    // Nothing pending; a receive; a receive into memory; a send.
    for pending in 0..4 {
        let (mut ours, mut theirs) = narrow_pair(case).await;
        while descriptors() > 2 {
            // The listener's, which was dropped.
            yield_now().await;
        }
        match pending {
            1 => assert!(poll_once(pin!(ours.recv())).await.is_none()),
            2 => assert!(poll_once(pin!(ours.recv_into(Vec::with_capacity(10)))).await.is_none()),
            3 => {
                let mut send = pin!(ours.write_all(pattern(300_000)));
                assert!(poll_once(send.as_mut()).await.is_none());
                yield_now().await;
            }
            _ => {}
        }
        ours.close().await;
        assert_eq!(descriptors(), 1, "pending: {pending}");
        let got = receive_all(&mut theirs).await;
        assert!(pattern(300_000).starts_with(&got));
        theirs.close().await;
        assert_eq!(descriptors(), 0, "pending: {pending}");
    }
});

scenario!(closing_a_lingering_socket_blocks_no_task, |case| async move {
    // An hour for its peer, which would be the runtime's hour. Told by us, or before we had it.
    let hour = Some(Duration::from_secs(3600));
    for adopted in [false, true] {
        let (mut ours, mut theirs) = narrow_pair(case).await;
        if !adopted {
            ours.set_option(SocketOption::Linger(hour)).unwrap();
        } else if case.is_real() {
            let socket = ours.into_std().unwrap();
            socket2::SockRef::from(&socket).set_linger(hour).unwrap();
            ours = TcpStream::from_std(socket).unwrap();
        }
        {
            let mut send = pin!(ours.write_all(pattern(300_000)));
            assert!(poll_once(send.as_mut()).await.is_none());
            some_turns().await;
            assert!(poll_once(send.as_mut()).await.is_none());
        }
        ours.close().await;
        // And what the kernel had taken arrives.
        let got = receive_all(&mut theirs).await;
        assert!(!got.is_empty() && pattern(300_000).starts_with(&got), "{} bytes", got.len());
    }
});

everywhere!(what_was_sent_before_a_close_arrives, |_| async {
    const BYTES: usize = 150_000;
    let (mut ours, mut theirs) = pair().await;
    let writer = spawn(async move {
        ours.write_all(pattern(BYTES)).await.0.unwrap();
        ours.close().await;
    });
    assert!(receive_all(&mut theirs).await == pattern(BYTES));
    writer.await.unwrap();
});

everywhere!(a_connection_is_closed_when_both_halves_are_gone, |_| async {
    let (ours, mut theirs) = pair().await;
    let (mut reader, mut writer) = ours.split();
    writer.write_all("from a half").await.0.unwrap();
    drop(writer);
    theirs.write_all("to a half").await.0.unwrap();
    let mut got = Vec::new();
    while got.len() < 9 {
        got.extend_from_slice(&reader.recv().await.unwrap());
    }
    assert_eq!(got, b"to a half");
    let before = descriptors();
    drop(reader);
    assert_eq!(receive_all(&mut theirs).await, b"from a half");
    while descriptors() == before {
        yield_now().await;
    }
});

everywhere!(cancelled_tasks_that_wait_on_both_halves_leave_a_closed_connection, |case| async move {
    let (ours, mut theirs) = narrow_pair(case).await;
    let (mut reader, mut writer) = ours.split();
    let receiving = spawn(async move { drop(reader.recv().await) });
    let sending = spawn(async move { drop(writer.write_all(pattern(500_000)).await) });
    assert!(!theirs.recv().await.unwrap().is_empty());
    receiving.cancel();
    some_turns().await;
    sending.cancel();
    assert!(receiving.await.is_err() && sending.await.is_err());
    // A part of it, then the end.
    receive_all(&mut theirs).await;
});

scenario!(closing_with_unread_bytes_resets_the_peer, |_| async {
    // As a kernel does by itself (RFC 1122, 4.2.2.13); also if a dropped receive took them from the kernel.
    for armed in 0..3 {
        let (mut ours, mut theirs) = pair().await;
        match armed {
            1 => assert!(poll_once(pin!(theirs.recv())).await.is_none()),
            2 => assert!(poll_once(pin!(theirs.recv_into(Vec::with_capacity(100)))).await.is_none()),
            _ => {}
        }
        some_turns().await;
        ours.write_all("unread").await.0.unwrap();
        some_turns().await;
        drop(theirs);
        let error = ours.recv().await.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ECONNRESET), "armed: {armed}");
    }
});

everywhere!(a_number_used_again_at_once_gets_nothing_of_its_predecessor, |_| async {
    let (mut listener, address) = listener();
    for round in 0..60u8 {
        // Ended with operations in flight, and with bytes on their way to them.
        let (mut ours, mut theirs) = pair_by(&mut listener, address).await;
        match round % 3 {
            0 => assert!(poll_once(pin!(theirs.recv())).await.is_none()),
            1 => assert!(poll_once(pin!(theirs.recv_into(Vec::with_capacity(100)))).await.is_none()),
            _ => {}
        }
        if round % 2 == 0 {
            yield_now().await;
        }
        ours.write_all("for the first").await.0.unwrap();
        drop(theirs);
        drop(ours);
        // Nothing is waited for: the new ones take what is free.
        let (mut ours, mut theirs) = pair_by(&mut listener, address).await;
        let mut recv = Box::pin(theirs.recv());
        let early = poll_once(recv.as_mut()).await;
        assert!(early.is_none(), "{early:?}");
        ours.write_all(vec![round; 3]).await.0.unwrap();
        let mut got = recv.await.unwrap().to_vec();
        got.extend_from_slice(&receive(&mut theirs, 3 - got.len()).await);
        assert_eq!(got, [round; 3]);
    }
});

everywhere!(a_connection_closed_while_its_peer_waits_wakes_it, |_| async {
    let (ours, mut theirs) = pair().await;
    let reader = spawn(async move { theirs.recv().await.unwrap().len() });
    some_turns().await;
    ours.close().await;
    assert_eq!(reader.await.unwrap(), 0);
});

everywhere!(opening_and_closing_leaves_nothing_behind, |_| async {
    let (mut listener, address) = listener();
    for round in 0..200 {
        let connect = spawn(TcpStream::connect(address));
        let mut theirs = listener.accept().await.unwrap();
        let mut ours = connect.await.unwrap().unwrap();
        ours.write_all("x").await.0.unwrap();
        assert_eq!(receive(&mut theirs, 1).await, b"x");
        if round % 2 == 0 {
            ours.close().await;
            theirs.close().await;
            assert_eq!(descriptors(), 1);
        }
    }
});
