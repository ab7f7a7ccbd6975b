//! Connecting: which address is reached, the error when nothing listens there, and the fate of a dropped
//! connect.

use crate::support::{listener, listener_with, pair, pair_by, poll_once, receive, receive_all, some_turns};
use ringroad_engine::net::{ConnectOptions, ListenOptions, SocketOption, TcpListener, TcpStream};
use ringroad_engine::spawn;
use ringroad_engine::time::timeout;
use std::net::{Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::time::Duration;

everywhere!(a_refused_connection_says_what_was_tried_where_and_on_which_driver, |case| async move {
    // A port of ours without a listener, which no other process can get meanwhile.
    let (ours, _theirs) = pair().await;
    let nobody = ours.local_addr().unwrap();
    let error = TcpStream::connect(nobody).await.unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ECONNREFUSED));
    assert_eq!(error.operation(), "connect");
    assert_eq!(error.driver(), Some(case.driver()));
    let text = error.to_string();
    assert!(text.starts_with(&format!("connect, on {nobody}: ")), "{text}");
    assert!(text.contains("nothing listens there") && text.contains(case.driver().as_str()), "{text}");
});

// Simultaneous open: the socket's own port is the one that nothing listens at.
everywhere!(a_connection_to_itself_is_refused_and_leaves_its_port, |_| async {
    for name in [SocketAddr::from(([127, 0, 0, 1], 0)), SocketAddr::from((Ipv6Addr::LOCALHOST, 0))] {
        let mut error = None;
        // Another process may get the port meanwhile: then it is another port's turn.
        'ports: for _ in 0..20 {
            let address = TcpListener::bind(name).unwrap().local_addr().unwrap();
            // The listener's port may be free some turns later.
            for _ in 0..1000 {
                let options = ConnectOptions { from: Some(address), ..ConnectOptions::default() };
                let why = TcpStream::connect_with(address, options).await.unwrap_err();
                if why.raw_os_error() != Some(libc::EADDRINUSE) {
                    error = Some(why);
                    break 'ports;
                }
                some_turns().await;
            }
        }
        let error = error.unwrap();
        assert_eq!(error.raw_os_error(), Some(libc::ECONNREFUSED), "{error}");
        assert!(error.to_string().contains("nothing listens there"), "{error}");
    }
});

everywhere!(both_ends_know_their_names, |_| async {
    let (mut listener, address) = listener();
    let (ours, theirs) = pair_by(&mut listener, address).await;
    assert_eq!(ours.peer_addr().unwrap(), address);
    assert_eq!(theirs.local_addr().unwrap(), address);
    assert_eq!(ours.local_addr().unwrap(), theirs.peer_addr().unwrap());
    assert_eq!(theirs.to_string(), format!("{address} to {}", ours.local_addr().unwrap()));
});

everywhere!(a_connection_comes_from_the_address_it_was_told_to_and_as_it_was_told_to_be, |_| async {
    let (mut listener, address) = listener();
    let from = SocketAddr::from(([127, 0, 0, 5], 0));
    let options = ConnectOptions {
        from: Some(from),
        no_delay: true,
        receive_buffer: Some(20_000),
        send_buffer: Some(30_000),
    };
    let connecting = spawn(async move { TcpStream::connect_with(address, options).await });
    let theirs = listener.accept().await.unwrap();
    let ours = connecting.await.unwrap().unwrap();
    let name = ours.local_addr().unwrap();
    assert_eq!((name.ip(), theirs.peer_addr().unwrap()), (from.ip(), name));
    assert_ne!(name.port(), 0);
    for set in [
        SocketOption::NoDelay(true),
        SocketOption::ReceiveBuffer(40_000),
        SocketOption::SendBuffer(60_000),
        SocketOption::BindAddressNoPort(true),
    ] {
        assert_eq!(ours.option(set).unwrap(), set);
    }
    let other = TcpStream::connect(address).await.unwrap();
    let unset = SocketOption::BindAddressNoPort(false);
    assert_eq!(other.option(unset).unwrap(), unset);
});

everywhere!(an_address_that_is_not_ours_is_no_source, |case| async move {
    let (_listener, address) = listener();
    // No host has an address of TEST-NET-1 (RFC 5737).
    let options =
        ConnectOptions { from: Some(SocketAddr::from(([192, 0, 2, 1], 0))), ..ConnectOptions::default() };
    let error = TcpStream::connect_with(address, options).await.unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EADDRNOTAVAIL));
    assert_eq!((error.operation(), error.driver()), ("bind", Some(case.driver())));
    assert!(error.to_string().contains("192.0.2.1") && error.to_string().contains("no address of this"));
});

everywhere!(an_address_of_the_sixth_version_is_reached_as_well, |case| async move {
    let here = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    if case.is_real()
        && let Err(why) = std::net::TcpListener::bind(here)
    {
        return eprintln!("skipped: no IPv6 loopback here: {why}");
    }
    let options = ListenOptions { only_v6: Some(true), ..ListenOptions::default() };
    let mut listener = TcpListener::bind_with(here, options).unwrap();
    let address = listener.local_addr().unwrap();
    assert!(address.is_ipv6() && address.port() != 0);
    let (mut ours, mut theirs) = pair_by(&mut listener, address).await;
    ours.write_all("six").await.0.unwrap();
    assert_eq!(receive(&mut theirs, 3).await, b"six");
    assert_eq!(theirs.peer_addr().unwrap(), ours.local_addr().unwrap());
});

everywhere!(an_address_in_use_is_named_with_what_to_do, |case| async move {
    let (_listener, address) = listener();
    let error = TcpListener::bind(address).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EADDRINUSE));
    assert_eq!(error.driver(), Some(case.driver()));
    let text = error.to_string();
    assert!(text.contains(&address.to_string()) && text.contains("another port"), "{text}");
});

/// A listener with a full queue, so that a further connect waits; and the connection that fills it.
async fn full_listener() -> (TcpListener, SocketAddr, TcpStream) {
    // The queue holds one more than the backlog.
    let (listener, address) = listener_with(ListenOptions { backlog: 0, ..ListenOptions::default() });
    let first = TcpStream::connect(address).await.unwrap();
    (listener, address, first)
}

everywhere!(an_unanswered_connect_is_ended_by_a_timeout, |_| async {
    let (_listener, address, _first) = full_listener().await;
    let span = Duration::from_millis(20);
    let elapsed = timeout(span, TcpStream::connect(address)).await.unwrap_err();
    assert_eq!(elapsed.0, span);
});

everywhere!(a_connect_dropped_on_its_way_closes_its_socket, |_| async {
    let (_listener, address, _first) = full_listener().await;
    let descriptors = crate::support::runtime(|runtime| runtime.descriptors());
    for turns in 0..20 {
        let mut connect = pin!(TcpStream::connect(address));
        assert!(poll_once(connect.as_mut()).await.is_none());
        for _ in 0..turns {
            ringroad_engine::yield_now().await;
        }
    }
    // Whatever the kernel still had of them comes back.
    while crate::support::runtime(|runtime| runtime.descriptors()) > descriptors {
        ringroad_engine::yield_now().await;
    }
});

everywhere!(a_connect_never_polled_is_nothing, |_| async {
    let (_listener, address) = listener();
    let descriptors = crate::support::runtime(|runtime| runtime.descriptors());
    drop(TcpStream::connect(address));
    assert_eq!(crate::support::runtime(|runtime| runtime.descriptors()), descriptors);
});

everywhere!(a_connection_whose_connect_is_dropped_ends, |_| async {
    let (mut listener, address) = listener();
    let mut connect = Box::pin(TcpStream::connect(address));
    let mut theirs = {
        // Made, and most often not yet told; if it was told, it comes to the same.
        let mut accept = pin!(listener.accept());
        let mut made = None;
        loop {
            if made.is_none() {
                made = poll_once(connect.as_mut()).await;
            }
            if let Some(theirs) = poll_once(accept.as_mut()).await {
                break theirs.unwrap();
            }
            ringroad_engine::yield_now().await;
        }
    };
    some_turns().await;
    drop(connect);
    assert_eq!(receive_all(&mut theirs).await, b"");
});

everywhere!(a_connect_may_move_from_one_task_to_another, |_| async {
    let (mut listener, address) = listener();
    let mut connect = Box::pin(TcpStream::connect(address));
    if let Some(done) = poll_once(connect.as_mut()).await {
        done.unwrap();
        return;
    }
    // The first waker is of this task; the result must wake the other.
    let other = spawn(connect);
    let theirs = listener.accept().await.unwrap();
    let ours = other.await.unwrap().unwrap();
    assert_eq!(ours.peer_addr().unwrap(), theirs.local_addr().unwrap());
});

everywhere!(connecting_many_times_at_once_gives_every_one_a_port_of_its_own, |_| async {
    let (mut listener, address) = listener();
    let clients: Vec<_> = (0..64).map(|_| spawn(TcpStream::connect(address))).collect();
    let mut names = Vec::new();
    let mut accepted = Vec::new();
    for _ in 0..64 {
        let stream = listener.accept().await.unwrap();
        names.push(stream.peer_addr().unwrap());
        accepted.push(stream);
    }
    let mut expected = Vec::new();
    for client in clients {
        expected.push(client.await.unwrap().unwrap().local_addr().unwrap());
    }
    names.sort();
    expected.sort();
    assert_eq!(names, expected);
    names.dedup();
    assert_eq!(names.len(), 64);
});
