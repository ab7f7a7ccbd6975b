//! UDP: datagrams go whole or not at all, and nothing about them is forgotten on the way.

use crate::support::{Case, poll_once, runtime, some_turns};
use futures_util::join;
use ringroad_engine::net::{Received, SocketOption, UdpOptions, UdpSocket};
use ringroad_engine::time::timeout;
use ringroad_engine::{spawn, yield_now};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

fn anywhere() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

fn bound() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind(anywhere()).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// Two that are connected to each other.
fn connected() -> (UdpSocket, UdpSocket) {
    let ((ours, our_address), (theirs, their_address)) = (bound(), bound());
    ours.connect(their_address).unwrap();
    theirs.connect(our_address).unwrap();
    (ours, theirs)
}

/// An address without a receiver for us: its socket takes datagrams of itself only, and keeps the port from
/// other programs.
fn nobody() -> (UdpSocket, SocketAddr) {
    let (holder, address) = bound();
    holder.connect(address).unwrap();
    (holder, address)
}

/// The next datagram, and its sender.
async fn next(socket: &mut UdpSocket) -> (Vec<u8>, SocketAddr) {
    let (received, buffer) = socket.recv_from(Vec::with_capacity(100)).await;
    let (received, sender) = received.unwrap();
    assert_eq!(received, Received { bytes: buffer.len(), length: buffer.len() });
    (buffer, sender)
}

everywhere!(a_received_datagram_has_its_senders_address, |_| async {
    let ((mut ours, our_address), (mut theirs, their_address)) = (bound(), bound());
    let (sent, buffer) = ours.send_to(b"a question".to_vec(), their_address).await;
    sent.unwrap();
    assert_eq!(buffer, b"a question", "the buffer comes back");
    let (got, sender) = next(&mut theirs).await;
    assert_eq!((&*got, sender), (&b"a question"[..], our_address));
    theirs.send_to("an answer", sender).await.0.unwrap();
    assert_eq!(next(&mut ours).await, (b"an answer".to_vec(), their_address));
});

everywhere!(what_is_received_is_put_behind_what_the_buffer_holds, |_| async {
    let (mut ours, mut theirs) = connected();
    ours.send("second").await.0.unwrap();
    let mut buffer = Vec::with_capacity(64);
    buffer.extend_from_slice(b"first, ");
    let (received, buffer) = theirs.recv(buffer).await;
    assert_eq!(received.unwrap(), Received { bytes: 6, length: 6 });
    assert_eq!(buffer, b"first, second");
});

everywhere!(an_empty_datagram_is_a_datagram_and_no_end, |_| async {
    let (mut ours, mut theirs) = connected();
    for message in ["before", "", "after", ""] {
        ours.send(message).await.0.unwrap();
    }
    for message in ["before", "", "after", ""] {
        assert_eq!(next(&mut theirs).await.0, message.as_bytes());
    }
});

everywhere!(a_datagram_that_waits_for_its_receiver_wakes_it, |_| async {
    let (mut ours, our_address) = bound();
    let (mut theirs, their_address) = bound();
    let receiver = spawn(async move { next(&mut theirs).await });
    some_turns().await;
    ours.send_to("at last", their_address).await.0.unwrap();
    assert_eq!(receiver.await.unwrap(), (b"at last".to_vec(), our_address));
});

everywhere!(datagrams_stay_apart_and_in_order, |_| async {
    let (mut ours, mut theirs) = connected();
    for round in 0..20u8 {
        for number in 0..30u8 {
            ours.send(vec![round; usize::from(number)]).await.0.unwrap();
        }
        for number in 0..30u8 {
            assert_eq!(next(&mut theirs).await.0, vec![round; usize::from(number)]);
        }
    }
});

everywhere!(what_there_is_no_room_for_is_told, |_| async {
    let (mut ours, mut theirs) = connected();
    for room in [1, 5, 9] {
        ours.send("ten bytes.").await.0.unwrap();
        let mut buffer = Vec::new();
        buffer.reserve_exact(room);
        let room = buffer.capacity().min(10);
        let (received, buffer) = theirs.recv(buffer).await;
        let received = received.unwrap();
        assert_eq!(received, Received { bytes: room, length: 10 });
        assert_eq!(received.is_truncated(), room < 10);
        assert_eq!(buffer, b"ten bytes."[..room]);
    }
    // Without any room it is taken all the same, and only its length is told.
    ours.send("ten bytes.").await.0.unwrap();
    let (received, _) = theirs.recv(Vec::new()).await;
    assert_eq!(received.unwrap(), Received { bytes: 0, length: 10 });
    ours.send("whole").await.0.unwrap();
    assert_eq!(next(&mut theirs).await.0, b"whole");
});

scenario!(the_longest_datagram_there_is_arrives_whole_and_a_longer_one_is_refused, |case| async move {
    let (mut ours, mut theirs) = connected();
    let longest = crate::support::pattern(65_507);
    ours.send(longest.clone()).await.0.unwrap();
    let (received, buffer) = theirs.recv(Vec::with_capacity(70_000)).await;
    assert_eq!(received.unwrap(), Received { bytes: 65_507, length: 65_507 });
    assert!(buffer == longest);
    let (refused, buffer) = ours.send(vec![7; 65_508]).await;
    let error = refused.unwrap_err();
    assert_eq!(buffer, vec![7; 65_508], "the buffer comes back");
    assert_eq!((error.raw_os_error(), error.driver()), (Some(libc::EMSGSIZE), Some(case.driver())));
    assert!(error.to_string().contains("send it in parts"), "{error}");
    ours.send("and it goes on").await.0.unwrap();
    assert_eq!(next(&mut theirs).await.0, b"and it goes on");
});

everywhere!(a_missing_receiver_is_reported_once_to_a_connected_socket, |case| async move {
    let (mut ours, _) = bound();
    let (_holder, nobody) = nobody();
    ours.connect(nobody).unwrap();
    ours.send("is anybody there?").await.0.unwrap();
    let (received, buffer) = ours.recv(Vec::with_capacity(10)).await;
    let error = received.unwrap_err();
    assert_eq!((error.raw_os_error(), error.operation()), (Some(libc::ECONNREFUSED), "recvmsg"));
    assert_eq!((error.driver(), buffer.capacity() >= 10), (Some(case.driver()), true));
    // Reported once, by the next operation on the socket, which may be a send.
    ours.send("is anybody there now?").await.0.unwrap();
    let sent = ours.send("hello?").await.0;
    assert_eq!(sent.unwrap_err().raw_os_error(), Some(libc::ECONNREFUSED));
    ours.send("well then").await.0.unwrap();
});

everywhere!(a_waiting_receive_gets_the_error_of_a_refused_datagram, |_| async {
    let (ours, _) = bound();
    let (_holder, nobody) = nobody();
    ours.connect(nobody).unwrap();
    let (mut receiver, mut sender) = ours.split();
    let receiving = spawn(async move { receiver.recv(Vec::with_capacity(10)).await.0 });
    some_turns().await;
    sender.send("is anybody there?").await.0.unwrap();
    assert_eq!(receiving.await.unwrap().unwrap_err().raw_os_error(), Some(libc::ECONNREFUSED));
});

everywhere!(a_socket_that_is_not_connected_is_not_told_of_others_troubles, |_| async {
    let (mut ours, our_address) = bound();
    let (mut theirs, _) = bound();
    let (_holder, nobody) = nobody();
    ours.send_to("is anybody there?", nobody).await.0.unwrap();
    theirs.send_to("I am", our_address).await.0.unwrap();
    assert_eq!(next(&mut ours).await.0, b"I am");
});

everywhere!(a_connected_socket_takes_datagrams_of_its_peer_only, |_| async {
    let (mut ours, mut theirs) = connected();
    let (mut stranger, _) = bound();
    stranger.send_to("listen to me", theirs.local_addr().unwrap()).await.0.unwrap();
    ours.send("from your peer").await.0.unwrap();
    assert_eq!(next(&mut theirs).await, (b"from your peer".to_vec(), ours.local_addr().unwrap()));
    assert_eq!(theirs.peer_addr().unwrap(), ours.local_addr().unwrap());
    assert_eq!(stranger.peer_addr().unwrap_err().raw_os_error(), Some(libc::ENOTCONN));
    let error = stranger.send("to whom?").await.0.unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EDESTADDRREQ));
    assert!(error.to_string().contains("say where to"), "{error}");
});

everywhere!(a_receive_of_a_datagram_is_cancelled_and_the_next_is_not, |case| async move {
    let (mut ours, mut theirs) = connected();
    let cancel = theirs.canceller();
    let receiving = spawn(async move {
        let mut mine = Vec::with_capacity(64);
        mine.extend_from_slice(b"mine");
        let (received, buffer) = theirs.recv(mine).await;
        (received, buffer, theirs)
    });
    some_turns().await;
    cancel.cancel();
    let (received, buffer, mut theirs) = receiving.await.unwrap();
    let error = received.unwrap_err();
    assert!(error.is_cancelled());
    assert_eq!((error.operation(), error.driver()), ("recvmsg", Some(case.driver())));
    assert_eq!(buffer, b"mine", "the buffer comes back");
    cancel.cancel();
    ours.send("later").await.0.unwrap();
    assert_eq!(next(&mut theirs).await.0, b"later");
});

everywhere!(a_receive_cancelled_while_its_datagram_comes_tells_the_truth, |_| async {
    for turns in 0..6 {
        let (mut ours, mut theirs) = connected();
        let cancel = theirs.canceller();
        let mut receiving = Box::pin(theirs.recv(Vec::with_capacity(64)));
        assert!(poll_once(receiving.as_mut()).await.is_none());
        yield_now().await;
        ours.send("the first").await.0.unwrap();
        for _ in 0..turns {
            yield_now().await;
        }
        cancel.cancel();
        let (received, buffer) = receiving.await;
        match received {
            Ok(received) => assert_eq!((received.length, &*buffer), (9, &b"the first"[..])),
            Err(why) => {
                assert!(why.is_cancelled() && buffer.is_empty(), "{why}");
                assert_eq!(next(&mut theirs).await.0, b"the first", "{turns} turns");
            }
        }
        ours.send("the second").await.0.unwrap();
        assert_eq!(next(&mut theirs).await.0, b"the second", "{turns} turns");
    }
});

everywhere!(a_dropped_receive_loses_no_datagram_nor_its_sender, |_| async {
    let ((mut ours, our_address), (mut theirs, their_address)) = (bound(), bound());
    for round in 0..40u8 {
        {
            let mut receiving = pin!(theirs.recv_from(Vec::with_capacity(64)));
            assert!(poll_once(receiving.as_mut()).await.is_none());
            for _ in 0..round % 4 {
                yield_now().await;
            }
            ours.send_to(vec![round; usize::from(round)], their_address).await.0.unwrap();
            for _ in 0..round % 3 {
                yield_now().await;
            }
        }
        // Whether it is kept or still with the kernel; into a buffer that holds something already, too.
        if round % 2 == 0 {
            some_turns().await;
        }
        let mut buffer = Vec::with_capacity(100);
        buffer.push(255);
        let (received, buffer) = theirs.recv_from(buffer).await;
        let length = usize::from(round);
        assert_eq!(received.unwrap(), (Received { bytes: length, length }, our_address), "round {round}");
        assert_eq!(buffer[1..], vec![round; length]);
    }
});

everywhere!(a_kept_datagram_that_was_cut_says_how_long_it_was, |_| async {
    let (mut ours, mut theirs) = connected();
    for first_room in [4usize, 40] {
        for second_room in [4usize, 40] {
            let mut small = Vec::new();
            small.reserve_exact(first_room);
            assert!(poll_once(pin!(theirs.recv(small))).await.is_none());
            // Its future is gone; whether the driver still has it is the driver's affair.
            ours.send("twenty bytes, or so..").await.0.unwrap();
            some_turns().await;
            let mut buffer = Vec::new();
            buffer.reserve_exact(second_room);
            let (received, buffer) = theirs.recv(buffer).await;
            let received = received.unwrap();
            assert_eq!(received.length, 21);
            assert_eq!(received.bytes, buffer.len());
            assert!(b"twenty bytes, or so..".starts_with(&buffer));
            assert_eq!(received.is_truncated(), buffer.len() < 21);
        }
    }
});

everywhere!(a_dropped_send_of_a_datagram_breaks_nothing, |_| async {
    let (mut ours, mut theirs) = connected();
    for round in 0..20u8 {
        let told = {
            let mut sending = pin!(ours.send(vec![round; 100]));
            let told = poll_once(sending.as_mut()).await.is_some();
            for _ in 0..round % 3 {
                yield_now().await;
            }
            told
        };
        ours.send("whole").await.0.unwrap();
        let mut got = next(&mut theirs).await.0;
        // The dropped one came all the same, as it was meant.
        if got != b"whole" {
            assert_eq!(got, vec![round; 100]);
            got = next(&mut theirs).await.0;
        } else {
            assert!(!told, "what was told as sent has come");
        }
        assert_eq!(got, b"whole");
    }
});

everywhere!(two_tasks_have_a_direction_each, |_| async {
    let (ours, theirs) = connected();
    let ((mut our_receiver, mut our_sender), (mut their_receiver, mut their_sender)) =
        (ours.split(), theirs.split());
    let echo = spawn(async move {
        for _ in 0..50 {
            let (received, buffer) = their_receiver.recv(Vec::with_capacity(100)).await;
            assert!(!received.unwrap().is_truncated());
            their_sender.send(buffer).await.0.unwrap();
        }
    });
    let asking = async {
        for number in 0..50u8 {
            our_sender.send(vec![number; 10]).await.0.unwrap();
        }
    };
    let listening = async {
        for number in 0..50u8 {
            let (received, buffer) = our_receiver.recv(Vec::with_capacity(100)).await;
            assert_eq!((received.unwrap().length, buffer), (10, vec![number; 10]));
        }
    };
    join!(asking, listening);
    echo.await.unwrap();
});

scenario!(a_full_receive_buffer_loses_the_latest_and_keeps_the_rest_in_order, |_| async {
    let (mut ours, mut theirs) = connected();
    theirs.set_option(SocketOption::ReceiveBuffer(8192)).unwrap();
    for number in 0..200u8 {
        ours.send(vec![number; 1000]).await.0.unwrap();
    }
    // A mark that occurs in no other datagram, sent until there is room for it.
    let mut next_number = 0;
    let mut lost = false;
    loop {
        ours.send("the end").await.0.unwrap();
        let (received, buffer) = theirs.recv(Vec::with_capacity(2000)).await;
        assert!(!received.unwrap().is_truncated());
        if buffer == b"the end" {
            break;
        }
        assert_eq!(buffer, vec![buffer[0]; 1000]);
        assert!(buffer[0] >= next_number, "out of order");
        lost |= buffer[0] > next_number;
        next_number = buffer[0] + 1;
    }
    assert!(lost || next_number < 200, "the buffer was never full");
});

everywhere!(closing_with_a_receive_pending_frees_the_port_for_the_next, |case| async move {
    let (mut sender, _) = bound();
    // An address of its own, so that no other test is given the port meanwhile.
    let own = SocketAddr::from((Ipv4Addr::new(127, 255, 71, case as u8), 0));
    for round in 0..20u8 {
        let mut socket = UdpSocket::bind(own).unwrap();
        let address = socket.local_addr().unwrap();
        assert!(poll_once(pin!(socket.recv(Vec::with_capacity(10)))).await.is_none());
        if round % 2 == 0 {
            yield_now().await;
        }
        socket.close().await;
        assert_eq!(runtime(|runtime| runtime.descriptors()), 1);
        let mut again = loop {
            match UdpSocket::bind(address) {
                Ok(again) => break again,
                // A child that another test is starting has it too, for a moment.
                Err(why) => assert_eq!(why.raw_os_error(), Some(libc::EADDRINUSE)),
            }
            yield_now().await;
        };
        sender.send_to(vec![round], address).await.0.unwrap();
        assert_eq!(next(&mut again).await.0, [round]);
    }
});

everywhere!(a_number_used_again_gets_no_datagram_of_its_predecessor, |_| async {
    let (mut sender, sender_address) = bound();
    for round in 0..30u8 {
        let (mut first, address) = bound();
        {
            let mut receiving = pin!(first.recv(Vec::with_capacity(10)));
            assert!(poll_once(receiving.as_mut()).await.is_none());
            if round % 2 == 0 {
                yield_now().await;
            }
            sender.send_to("for the first", address).await.0.unwrap();
        }
        drop(first);
        // Nothing is waited for: it takes what is free.
        let (mut second, second_address) = bound();
        sender.send_to(vec![round], second_address).await.0.unwrap();
        assert_eq!(next(&mut second).await, (vec![round], sender_address));
    }
});

everywhere!(a_datagram_socket_of_the_sixth_version_works_as_well, |case| async move {
    let here = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    if case.is_real()
        && let Err(why) = std::net::UdpSocket::bind(here)
    {
        return eprintln!("skipped: no IPv6 loopback here: {why}");
    }
    let mut options = UdpOptions::default();
    options.only_v6 = Some(true);
    let (mut ours, mut theirs) =
        (UdpSocket::bind_with(here, options).unwrap(), UdpSocket::bind(here).unwrap());
    ours.send_to("six", theirs.local_addr().unwrap()).await.0.unwrap();
    assert_eq!(next(&mut theirs).await, (b"six".to_vec(), ours.local_addr().unwrap()));
    for option in [SocketOption::HopLimit(7), SocketOption::MulticastHopLimit(3)] {
        ours.set_option(option).unwrap();
        assert_eq!(ours.option(option).unwrap(), option);
    }
});

everywhere!(options_of_datagrams_are_read_back, |_| async {
    let (socket, _) = bound();
    for option in [
        SocketOption::Broadcast(true),
        SocketOption::Broadcast(false),
        SocketOption::HopLimit(9),
        SocketOption::MulticastHopLimit(4),
        SocketOption::MulticastLoop(false),
        SocketOption::MulticastLoop(true),
        SocketOption::MulticastFrom(Ipv4Addr::LOCALHOST),
    ] {
        socket.set_option(option).unwrap();
        assert_eq!(socket.option(option).unwrap(), option);
    }
    let error = socket.set_option(SocketOption::HopLimit(300)).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    assert!(error.to_string().contains("IP_TTL"), "{error}");
    socket.set_option(SocketOption::NoDelay(true)).unwrap_err();
});

everywhere!(a_broadcast_is_refused_until_it_is_allowed, |_| async {
    let (mut ours, _) = bound();
    let everybody = SocketAddr::from((Ipv4Addr::BROADCAST, 9));
    let error = ours.send_to("hello, everybody", everybody).await.0.unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EACCES));
    assert!(error.to_string().contains("SocketOption::Broadcast"), "{error}");
    ours.connect(everybody).unwrap_err();
});

everywhere!(every_member_of_a_group_gets_its_datagrams, |case| async move {
    let group = IpAddr::V4(Ipv4Addr::new(239, 255, 71, 3));
    let mut options = UdpOptions::default();
    options.reuse_address = true;
    let first = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0).into()).unwrap();
    let address = first.local_addr().unwrap();
    // Only now: a port that may be shared is one that the kernel gives to several.
    first.set_option(SocketOption::ReuseAddress(true)).unwrap();
    let second = UdpSocket::bind_with(address, options).unwrap();
    // The loopback interface is the first on Linux.
    let loopback = if case.is_real() { 1 } else { 0 };
    for member in [&first, &second] {
        member.join_multicast(group, loopback).unwrap();
        let again = member.join_multicast(group, loopback).unwrap_err();
        assert_eq!(again.raw_os_error(), Some(libc::EADDRINUSE));
    }
    let (mut sender, _) = bound();
    sender.set_option(SocketOption::MulticastFrom(Ipv4Addr::LOCALHOST)).unwrap();
    let to = SocketAddr::new(group, address.port());
    sender.send_to("to all", to).await.0.unwrap();
    let mut members = [first, second];
    for member in &mut members {
        assert_eq!(next(member).await.0, b"to all");
    }
    let [mut first, second] = members;
    second.leave_multicast(group, loopback).unwrap();
    let error = second.leave_multicast(group, loopback).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EADDRNOTAVAIL));
    assert!(error.to_string().contains("239.255.71.3"), "{error}");
    sender.send_to("to one", to).await.0.unwrap();
    assert_eq!(next(&mut first).await.0, b"to one");
    let error = first.join_multicast(Ipv4Addr::LOCALHOST.into(), 0).unwrap_err();
    assert!(error.to_string().contains("224.0.0.0/4"), "{error}");
});

everywhere!(an_address_of_udp_in_use_is_named_with_what_to_do, |_| async {
    let (_first, address) = bound();
    let error = UdpSocket::bind(address).unwrap_err();
    assert_eq!((error.raw_os_error(), error.operation()), (Some(libc::EADDRINUSE), "bind"));
    let text = error.to_string();
    assert!(text.contains(&address.to_string()) && text.contains("another port"), "{text}");
});

everywhere!(a_receive_that_takes_too_long_is_left_and_the_next_begins_anew, |_| async {
    let (mut ours, mut theirs) = connected();
    let waited = timeout(Duration::from_millis(5), theirs.recv(Vec::with_capacity(10))).await;
    waited.map(|_| ()).unwrap_err();
    ours.send("now").await.0.unwrap();
    assert_eq!(next(&mut theirs).await.0, b"now");
});

everywhere!(a_shared_buffer_is_sent_to_many_and_is_nobodys_but_ours, |_| async {
    let bytes: Rc<[u8]> = Rc::from(&b"shared"[..]);
    let (mut ours, _) = bound();
    let mut others: Vec<_> = (0..5).map(|_| bound()).collect();
    for (_, address) in &others {
        ours.send_to(Rc::clone(&bytes), *address).await.0.unwrap();
    }
    assert_eq!(Rc::strong_count(&bytes), 1);
    for (other, _) in &mut others {
        assert_eq!(next(other).await.0, b"shared");
    }
});

cases!(a_socket_of_datagrams_comes_from_elsewhere_and_goes_there_again, real, |case| {
    crate::support::run(
        case,
        |builder| builder,
        |_: Case| async {
            let other = std::net::UdpSocket::bind(anywhere()).unwrap();
            let mut ours = UdpSocket::from_std(std::net::UdpSocket::bind(anywhere()).unwrap()).unwrap();
            let address = ours.local_addr().unwrap();
            other.send_to(b"in", address).unwrap();
            assert_eq!(next(&mut ours).await, (b"in".to_vec(), other.local_addr().unwrap()));
            ours.send_to("out", other.local_addr().unwrap()).await.0.unwrap();
            let mut buffer = [0; 10];
            assert_eq!(other.recv_from(&mut buffer).unwrap(), (3, address));
            let back = ours.into_std().map_err(|(why, _)| why).unwrap();
            assert_eq!(back.local_addr().unwrap(), address);
            other.send_to(b"again", address).unwrap();
            assert_eq!(back.recv_from(&mut buffer).unwrap().0, 5);
        },
    );
});
