//! Cancelling from outside: what waits ends and tells the truth, and what comes later is not affected.

use crate::support::{
    Gate, listener, narrow_pair, pair, pattern, poll_once, receive, receive_all, some_turns,
};
use ringroad_engine::{spawn, yield_now};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

everywhere!(a_waiting_receive_is_ended_and_the_next_is_not, |case| async move {
    for into in [false, true] {
        let (mut ours, mut theirs) = pair().await;
        let cancel = theirs.canceller();
        let (waiting, ended) = (Gate::default(), Gate::default());
        let reader = {
            let (waiting, ended) = (waiting.clone(), ended.clone());
            spawn(async move {
                waiting.open();
                let error = if into {
                    let mut mine = Vec::with_capacity(64);
                    mine.extend_from_slice(b"mine");
                    let (received, buffer) = theirs.recv_into(mine).await;
                    assert_eq!(buffer, b"mine");
                    received.unwrap_err()
                } else {
                    theirs.recv().await.unwrap_err()
                };
                ended.open();
                (error, receive(&mut theirs, 5).await)
            })
        };
        waiting.opened().await;
        some_turns().await;
        cancel.cancel();
        ended.opened().await;
        ours.write_all("later").await.0.unwrap();
        let (error, later) = reader.await.unwrap();
        assert!(error.is_cancelled());
        assert_eq!((error.operation(), error.driver()), ("recv", Some(case.driver())));
        assert_eq!(later, b"later");
    }
});

everywhere!(a_cancel_before_any_wait_does_nothing, |_| async {
    let (mut ours, mut theirs) = pair().await;
    let cancel = theirs.canceller();
    cancel.cancel();
    // Nor does one between two receives, when the driver may still have the first.
    assert!(poll_once(pin!(theirs.recv())).await.is_none());
    yield_now().await;
    cancel.cancel();
    let mut recv = Box::pin(theirs.recv());
    assert!(poll_once(recv.as_mut()).await.is_none());
    ours.write_all("hello").await.0.unwrap();
    assert!(!recv.await.unwrap().is_empty());
});

everywhere!(a_receive_cancelled_while_its_bytes_come_tells_the_truth, |_| async {
    for into in [false, true] {
        for turns in 0..6 {
            let (mut ours, mut theirs) = pair().await;
            let cancel = theirs.canceller();
            let mut all = Vec::new();
            if into {
                let mut recv = Box::pin(theirs.recv_into(Vec::with_capacity(100)));
                assert!(poll_once(recv.as_mut()).await.is_none());
                yield_now().await;
                ours.write_all("bytes").await.0.unwrap();
                for _ in 0..turns {
                    yield_now().await;
                }
                cancel.cancel();
                match recv.await {
                    (Ok(received), buffer) => {
                        assert_eq!(received, buffer.len());
                        all = buffer;
                    }
                    (Err(why), buffer) => assert!(why.is_cancelled() && buffer.is_empty(), "{why}"),
                }
            } else {
                let mut recv = Box::pin(theirs.recv());
                assert!(poll_once(recv.as_mut()).await.is_none());
                yield_now().await;
                ours.write_all("bytes").await.0.unwrap();
                for _ in 0..turns {
                    yield_now().await;
                }
                cancel.cancel();
                match recv.await {
                    Ok(lease) => all.extend_from_slice(&lease),
                    Err(why) => assert!(why.is_cancelled(), "{why}"),
                }
            }
            // That one was cancelled; the next ones are not.
            some_turns().await;
            ours.write_all(" and more").await.0.unwrap();
            drop(ours);
            all.extend_from_slice(&receive_all(&mut theirs).await);
            assert_eq!(all, b"bytes and more", "into: {into}, {turns} turns");
        }
    }
});

everywhere!(a_send_that_waits_is_ended_and_gives_its_buffer_back, |case| async move {
    let (mut ours, mut theirs) = narrow_pair(case).await;
    let cancel = ours.canceller();
    let sent = pattern(500_000);
    let writer = {
        let sent = sent.clone();
        spawn(async move { ours.write_all(sent).await })
    };
    // Some of it has gone, so that it is cancelled midway.
    let mut got = theirs.recv().await.unwrap().to_vec();
    some_turns().await;
    cancel.cancel();
    let (result, back) = writer.await.unwrap();
    assert!(result.unwrap_err().is_cancelled());
    assert!(back == sent);
    got.extend_from_slice(&receive_all(&mut theirs).await);
    assert!(got.len() < sent.len() && sent.starts_with(&got));
});

everywhere!(a_send_of_several_buffers_is_ended_and_gives_them_back, |case| async move {
    let (mut ours, mut theirs) = narrow_pair(case).await;
    let cancel = ours.canceller();
    let buffers: Vec<_> = pattern(500_000).chunks(700).map(<[u8]>::to_vec).collect();
    let writer = {
        let buffers = buffers.clone();
        spawn(async move { ours.write_vectored_all(buffers).await })
    };
    assert!(!theirs.recv().await.unwrap().is_empty());
    some_turns().await;
    cancel.cancel();
    let (result, back) = writer.await.unwrap();
    assert!(result.unwrap_err().is_cancelled());
    assert!(back == buffers);
});

everywhere!(a_canceller_ends_what_both_halves_wait_for, |case| async move {
    let (ours, _theirs) = narrow_pair(case).await;
    let cancel = ours.canceller();
    let (mut reader, mut writer) = ours.split();
    let receiving = spawn(async move { reader.recv().await.unwrap_err().is_cancelled() });
    let sending =
        spawn(async move { writer.write_all(pattern(500_000)).await.0.unwrap_err().is_cancelled() });
    some_turns().await;
    cancel.cancel();
    assert!(receiving.await.unwrap());
    assert!(sending.await.unwrap());
});

everywhere!(a_canceller_of_a_closed_connection_leaves_its_successor_alone, |_| async {
    let (ours, theirs) = pair().await;
    let cancels = [ours.canceller(), theirs.canceller()];
    drop((ours, theirs));
    some_turns().await;
    let (mut ours, mut theirs) = pair().await;
    let mut recv = Box::pin(theirs.recv());
    assert!(poll_once(recv.as_mut()).await.is_none());
    yield_now().await;
    cancels.iter().for_each(|cancel| cancel.cancel());
    some_turns().await;
    ours.write_all("untouched").await.0.unwrap();
    assert!(!recv.await.unwrap().is_empty());
});

everywhere!(many_cancels_and_receives_in_turn_stay_in_step, |_| async {
    let (mut ours, mut theirs) = pair().await;
    let cancel = theirs.canceller();
    let reader = spawn(async move {
        let (mut cancelled, mut all) = (0, Vec::new());
        loop {
            match theirs.recv().await {
                Ok(lease) if lease.is_empty() => return (cancelled, all),
                Ok(lease) => all.extend_from_slice(&lease),
                Err(why) => {
                    assert!(why.is_cancelled(), "{why}");
                    cancelled += 1;
                }
            }
        }
    });
    for round in 0..100u8 {
        if round % 3 != 0 {
            ours.write_all(vec![round]).await.0.unwrap();
        }
        for _ in 0..round % 4 {
            yield_now().await;
        }
        cancel.cancel();
        for _ in 0..round % 3 {
            yield_now().await;
        }
    }
    drop(ours);
    let (cancelled, all) = reader.await.unwrap();
    assert!(cancelled > 0);
    assert_eq!(all, (0..100).filter(|round| round % 3 != 0).collect::<Vec<u8>>());
});

everywhere!(a_send_that_waits_behind_a_dropped_one_is_ended_too, |case| async move {
    for turns in [0, 1, 3] {
        let (mut ours, theirs) = narrow_pair(case).await;
        let cancel = ours.canceller();
        assert!(poll_once(pin!(ours.write_all(pattern(4 << 20)))).await.is_none());
        // Dropped, and perhaps with the kernel still.
        let mut send = Box::pin(ours.write_all(pattern(4 << 20)));
        if poll_once(send.as_mut()).await.is_none() {
            cancel.cancel();
            for _ in 0..turns {
                yield_now().await;
            }
            let (sent, back) = send.await;
            assert!(sent.is_err());
            assert_eq!(back.len(), 4 << 20);
        }
        drop(theirs);
    }
});

everywhere!(a_receive_that_waits_behind_a_dropped_one_is_ended_too, |_| async {
    for into in [false, true] {
        for turns in [0, 1, 3] {
            let (mut ours, mut theirs) = pair().await;
            let cancel = theirs.canceller();
            assert!(poll_once(pin!(theirs.recv_into(Vec::with_capacity(8)))).await.is_none());
            let ended = if into {
                let mut recv = Box::pin(theirs.recv_into(Vec::with_capacity(8)));
                assert!(poll_once(recv.as_mut()).await.is_none());
                cancel.cancel();
                for _ in 0..turns {
                    yield_now().await;
                }
                recv.await.0.unwrap_err()
            } else {
                let mut recv = Box::pin(theirs.recv());
                assert!(poll_once(recv.as_mut()).await.is_none());
                cancel.cancel();
                for _ in 0..turns {
                    yield_now().await;
                }
                recv.await.unwrap_err()
            };
            assert!(ended.is_cancelled(), "{ended}");
            // And nothing of it is left over.
            ours.write_all("later").await.0.unwrap();
            assert_eq!(receive(&mut theirs, 5).await, b"later");
        }
    }
});

everywhere!(a_dropped_future_takes_its_pending_cancel_along, |_| async {
    let (mut ours, mut theirs) = pair().await;
    let cancel = theirs.canceller();
    for behind in [false, true] {
        if behind {
            assert!(poll_once(pin!(theirs.recv_into(Vec::with_capacity(8)))).await.is_none());
        }
        assert!(poll_once(pin!(theirs.recv())).await.is_none());
        {
            let mut recv = pin!(theirs.recv());
            assert!(poll_once(recv.as_mut()).await.is_none());
            cancel.cancel();
        }
        let mut recv = Box::pin(theirs.recv());
        assert!(poll_once(recv.as_mut()).await.is_none());
        some_turns().await;
        ours.write_all("hello").await.0.unwrap();
        let mut got = recv.await.unwrap().to_vec();
        got.extend_from_slice(&receive(&mut theirs, 5 - got.len()).await);
        assert_eq!(got, b"hello");
    }
});

/// Uses up what a task gets at once in one poll, where anything is.
async fn use_up_answers() {
    let (mut ours, mut theirs) = pair().await;
    ours.write_all(vec![7; 200]).await.0.unwrap();
    some_turns().await;
    // The first is asked for, so that the others are known to be there.
    theirs.recv_into(Vec::with_capacity(1)).await.0.unwrap();
    poll_fn(|context| {
        // As often as it would be let: then it has to yield.
        for _ in 0..200 {
            let mut recv = pin!(theirs.recv_into(Vec::with_capacity(1)));
            if recv.as_mut().poll(context).is_pending() {
                break;
            }
        }
        Poll::Ready(())
    })
    .await;
    // Dropping both streams closes them without waiting.
}

everywhere!(a_cancel_ends_a_task_that_has_only_yielded, |case| async move {
    for turns in [0, 1, 3] {
        for fresh in [true, false] {
            let (_ours, mut theirs) = pair().await;
            let cancel = theirs.canceller();
            if !fresh {
                assert!(poll_once(pin!(theirs.recv())).await.is_none());
            }
            use_up_answers().await;
            let mut recv = Box::pin(theirs.recv());
            assert!(poll_once(recv.as_mut()).await.is_none());
            cancel.cancel();
            for _ in 0..turns {
                yield_now().await;
            }
            assert!(recv.await.unwrap_err().is_cancelled());
        }
        let (_ours, mut theirs) = pair().await;
        let cancel = theirs.canceller();
        use_up_answers().await;
        let mut recv = Box::pin(theirs.recv_into(Vec::with_capacity(8)));
        assert!(poll_once(recv.as_mut()).await.is_none());
        cancel.cancel();
        for _ in 0..turns {
            yield_now().await;
        }
        let (received, back) = recv.await;
        assert!(received.unwrap_err().is_cancelled());
        assert_eq!(back.capacity(), 8);

        let (mut ours, _theirs) = narrow_pair(case).await;
        let cancel = ours.canceller();
        use_up_answers().await;
        let mut send = Box::pin(ours.write_all(pattern(4 << 20)));
        assert!(poll_once(send.as_mut()).await.is_none());
        cancel.cancel();
        for _ in 0..turns {
            yield_now().await;
        }
        let (sent, back) = send.await;
        assert!(sent.unwrap_err().is_cancelled());
        assert_eq!(back.len(), 4 << 20);

        let (mut listener, _) = listener();
        let stop = listener.canceller();
        use_up_answers().await;
        let mut accept = Box::pin(listener.accept());
        assert!(poll_once(accept.as_mut()).await.is_none());
        stop.cancel();
        assert!(accept.await.unwrap_err().is_cancelled());
    }
});
