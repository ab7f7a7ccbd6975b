//! Unix datagrams: none is lost, so a send waits for the receiver.

use crate::support::{Gate, SocketDir, abstract_name, poll_once, runtime, some_turns};
use ringroad_engine::net::{Received, SocketOption, UnixAddr, UnixDatagram, UnixStream};
use ringroad_engine::{spawn, yield_now};
use std::pin::pin;

async fn next(socket: &mut UnixDatagram) -> (Vec<u8>, UnixAddr) {
    let (received, buffer) = socket.recv_from(Vec::with_capacity(100)).await;
    let (received, sender) = received.unwrap();
    assert!(!received.is_truncated());
    (buffer, sender)
}

everywhere!(a_unix_datagram_has_its_senders_name_if_there_is_one, |_| async {
    let dir = SocketDir::new();
    let mut server = UnixDatagram::bind(dir.path("server")).unwrap();
    let (mut client, name) =
        (UnixDatagram::bind(abstract_name()).unwrap(), UnixAddr::from(dir.path("server")));
    let mut stranger = UnixDatagram::unbound().unwrap();
    client.send_to("who am I?", &name).await.0.unwrap();
    let (got, sender) = next(&mut server).await;
    assert_eq!((&*got, &sender), (&b"who am I?"[..], &client.local_addr().unwrap()));
    server.send_to("you are you", sender).await.0.unwrap();
    assert_eq!(next(&mut client).await, (b"you are you".to_vec(), name.clone()));
    stranger.send_to("nobody", &name).await.0.unwrap();
    assert_eq!(next(&mut server).await, (b"nobody".to_vec(), UnixAddr::UNNAMED));
});

everywhere!(a_pair_of_datagram_sockets_carries_empty_and_cut_ones, |_| async {
    let (mut ours, mut theirs) = UnixDatagram::pair().unwrap();
    for message in ["one", "", "three"] {
        ours.send(message).await.0.unwrap();
        assert_eq!(next(&mut theirs).await.0, message.as_bytes());
    }
    ours.send("ten bytes.").await.0.unwrap();
    let mut small = Vec::new();
    small.reserve_exact(4);
    let room = small.capacity().min(10);
    let (received, buffer) = theirs.recv(small).await;
    assert_eq!(received.unwrap(), Received { bytes: room, length: 10 });
    assert_eq!(buffer, b"ten bytes."[..room]);
});

everywhere!(a_full_queue_holds_a_connected_sender_back_and_loses_nothing, |_| async {
    for mutual in [false, true] {
        let (mut ours, mut theirs) = if mutual {
            let (ours, theirs) = UnixDatagram::pair().unwrap();
            ours.set_option(SocketOption::SendBuffer(4096)).unwrap();
            (ours, theirs)
        } else {
            let theirs = UnixDatagram::bind(abstract_name()).unwrap();
            let ours = UnixDatagram::unbound().unwrap();
            ours.connect(theirs.local_addr().unwrap()).unwrap();
            (ours, theirs)
        };
        let done = Gate::default();
        let sending = {
            let done = done.clone();
            spawn(async move {
                for number in 0..100u8 {
                    ours.send(vec![number; 1000]).await.0.unwrap();
                }
                done.open();
                ours
            })
        };
        some_turns().await;
        assert!(!done.is_open(), "mutual: {mutual}: there is no room for all of them");
        for number in 0..100u8 {
            let (received, buffer) = theirs.recv(Vec::with_capacity(2000)).await;
            assert_eq!((received.unwrap().length, buffer), (1000, vec![number; 1000]), "mutual: {mutual}");
        }
        sending.await.unwrap();
    }
});

everywhere!(a_full_queue_holds_a_stranger_back_too, |_| async {
    let mut theirs = UnixDatagram::bind(abstract_name()).unwrap();
    let name = theirs.local_addr().unwrap();
    let sending = spawn(async move {
        let mut ours = UnixDatagram::unbound().unwrap();
        for number in 0..60u8 {
            let (sent, buffer) = ours.send_to(vec![number; 10], &name).await;
            sent.unwrap();
            assert_eq!(buffer, vec![number; 10]);
        }
    });
    some_turns().await;
    for number in 0..60u8 {
        assert_eq!(next(&mut theirs).await.0, vec![number; 10]);
    }
    sending.await.unwrap();
});

everywhere!(a_send_that_waits_for_room_is_cancelled_and_sends_nothing, |_| async {
    let mut theirs = UnixDatagram::bind(abstract_name()).unwrap();
    let mut ours = UnixDatagram::unbound().unwrap();
    ours.connect(theirs.local_addr().unwrap()).unwrap();
    let cancel = ours.canceller();
    let mut sent = 0u8;
    let ended = Gate::default();
    // Until one has to wait, which is then cancelled.
    let sending = {
        let ended = ended.clone();
        spawn(async move {
            loop {
                let (result, buffer) = ours.send(vec![sent]).await;
                assert_eq!(buffer, [sent], "the buffer comes back");
                match result {
                    Ok(()) => sent += 1,
                    Err(why) => {
                        ended.open();
                        return (why, sent, ours);
                    }
                }
            }
        })
    };
    // A cancel that finds no send waiting has no effect on later ones, so it is repeated.
    while !ended.is_open() {
        some_turns().await;
        cancel.cancel();
    }
    let (why, sent, mut ours) = sending.await.unwrap();
    assert!(why.is_cancelled(), "{why}");
    for number in 0..sent {
        assert_eq!(next(&mut theirs).await.0, [number]);
    }
    ours.send("the next").await.0.unwrap();
    assert_eq!(next(&mut theirs).await.0, b"the next");
});

everywhere!(a_waiting_sender_gets_an_error_when_its_full_peer_closes, |_| async {
    let theirs = UnixDatagram::bind(abstract_name()).unwrap();
    let mut ours = UnixDatagram::unbound().unwrap();
    ours.connect(theirs.local_addr().unwrap()).unwrap();
    let sending = spawn(async move {
        loop {
            if let Err(why) = ours.send("hello?").await.0 {
                return why;
            }
        }
    });
    some_turns().await;
    drop(theirs);
    let why = sending.await.unwrap();
    assert!(matches!(why.raw_os_error(), Some(libc::ECONNREFUSED | libc::ENOTCONN)), "{why}");
});

everywhere!(a_dropped_receive_of_a_unix_datagram_keeps_it, |_| async {
    let (mut ours, mut theirs) = UnixDatagram::pair().unwrap();
    for round in 0..20u8 {
        {
            let mut receiving = pin!(theirs.recv(Vec::with_capacity(10)));
            assert!(poll_once(receiving.as_mut()).await.is_none());
            for _ in 0..round % 3 {
                yield_now().await;
            }
            ours.send(vec![round]).await.0.unwrap();
            for _ in 0..round % 4 {
                yield_now().await;
            }
        }
        assert_eq!(next(&mut theirs).await.0, [round]);
    }
});

everywhere!(a_connected_mailbox_takes_from_its_peer_only, |_| async {
    let mut theirs = UnixDatagram::bind(abstract_name()).unwrap();
    let mut ours = UnixDatagram::bind(abstract_name()).unwrap();
    let name = theirs.local_addr().unwrap();
    theirs.connect(ours.local_addr().unwrap()).unwrap();
    let mut stranger = UnixDatagram::unbound().unwrap();
    let error = stranger.send_to("let me in", &name).await.0.unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EPERM));
    ours.send_to("it is me", &name).await.0.unwrap();
    assert_eq!(next(&mut theirs).await.0, b"it is me");
    let error = stranger.send("to whom?").await.0.unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOTCONN));
    let (_reader, _writer) = UnixStream::pair().unwrap();
    let error = stranger.send_to("x", "/nowhere/at/all").await.0.unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
    assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
});

everywhere!(mailboxes_close_with_operations_pending, |_| async {
    for round in 0..20 {
        let (mut ours, theirs) = UnixDatagram::pair().unwrap();
        assert!(poll_once(pin!(ours.recv(Vec::with_capacity(10)))).await.is_none());
        if round % 2 == 0 {
            yield_now().await;
        }
        ours.close().await;
        theirs.close().await;
        assert_eq!(runtime(|runtime| runtime.descriptors()), 0);
    }
});
