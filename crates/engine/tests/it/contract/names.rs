//! Connections by name, descriptors of other kinds, and descriptors of sockets for what has no method.

use crate::support::{listener, pair, poll_once};
use ringroad_engine::net::{ConnectOptions, TcpStream, lookup_host};
use ringroad_engine::time::timeout;
use ringroad_engine::{PollFd, spawn};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

scenario!(a_name_is_looked_up_and_connected_to, |case| async move {
    if !case.is_real() {
        return eprintln!("skipped: names of the system do not lead into the simulation");
    }
    let (mut listener, address) = listener();
    let addresses = lookup_host(format!("localhost:{}", address.port())).await.unwrap();
    assert!(addresses.iter().all(|found| found.ip().is_loopback() && found.port() == address.port()));
    assert_eq!(lookup_host(address.to_string()).await.unwrap(), [address]);
    // The listener has one family; the other is refused, and that costs nothing but a try.
    let connecting = spawn(TcpStream::connect_to(format!("localhost:{}", address.port())));
    let accepted = listener.accept().await.unwrap();
    let connected = connecting.await.unwrap().unwrap();
    assert_eq!(connected.local_addr().unwrap(), accepted.peer_addr().unwrap());
});

scenario!(a_name_that_is_wrong_and_one_that_is_unknown_are_told_with_what_to_do, |_| async {
    for wrong in ["example.com", "example.com:http"] {
        let why = lookup_host(wrong).await.unwrap_err().to_string();
        assert!(why.contains(wrong) && why.contains("expected a name or an address, and a port"), "{why}");
    }
    // No name server knows a label of more than 63 bytes, so none is asked.
    let name = format!("{}.test:80", "x".repeat(64));
    let why = lookup_host(&*name).await.unwrap_err().to_string();
    assert!(why.contains(&name) && why.contains("check its spelling") && !why.contains("expected"), "{why}");
});

scenario!(an_address_that_refuses_is_followed_by_the_next, |_| async {
    // A port of ours without a listener, which no other process can get meanwhile.
    let (ours, _theirs) = pair().await;
    let refuses = ours.local_addr().unwrap();
    let (mut listener, address) = listener();
    let connecting = spawn(TcpStream::connect_any(vec![refuses, address], ConnectOptions::default()));
    let _accepted = listener.accept().await.unwrap();
    assert_eq!(connecting.await.unwrap().unwrap().peer_addr().unwrap(), address);
    let none = TcpStream::connect_any(vec![refuses], ConnectOptions::default()).await.unwrap_err();
    assert_eq!(none.kind(), io::ErrorKind::ConnectionRefused);
    let empty = TcpStream::connect_any(Vec::new(), ConnectOptions::default()).await.unwrap_err();
    assert_eq!(empty.kind(), io::ErrorKind::InvalidInput);
});

scenario!(an_address_that_is_silent_is_tried_beside_the_others, |case| async move {
    if !case.is_real() {
        return eprintln!("skipped: in the simulation every address answers");
    }
    // Its queue holds one; the others wait for an answer that does not come.
    let silent = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    silent.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    silent.listen(0).unwrap();
    let silences = silent.local_addr().unwrap().as_socket().unwrap();
    let _queued: Vec<_> = (0..8)
        .map(|_| {
            let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
            socket.set_nonblocking(true).unwrap();
            let _ = socket.connect(&silences.into());
            socket
        })
        .collect();
    let (mut listener, address) = listener();
    // One after another these would have 3 s each, and the last of them none.
    let addresses = [[silences; 20].as_slice(), &[address]].concat();
    let mut told = Vec::new();
    let options = |address| {
        told.push(address);
        (told.len() > 1).then(ConnectOptions::default)
    };
    let connecting = TcpStream::connect_first(addresses, Duration::from_secs(60), options);
    let connected = timeout(Duration::from_secs(60), connecting).await.unwrap().unwrap();
    assert_eq!(connected.peer_addr().unwrap(), address);
    let _accepted = listener.accept().await.unwrap();
    assert_eq!(told.len(), 21, "each was asked for its options once");
});

scenario!(any_descriptor_is_waited_for, |case| async move {
    let (reader, mut writer) = io::pipe().unwrap();
    let reader = PollFd::new(reader);
    if !case.is_real() {
        assert_eq!(reader.readable().await.unwrap_err().kind(), io::ErrorKind::Unsupported);
        return;
    }
    {
        let mut waits = pin!(reader.readable());
        assert!(poll_once(waits.as_mut()).await.is_none());
        writer.write_all(b"x").unwrap();
        waits.await.unwrap();
    }
    // Readable until it is read; two may wait at once.
    let (one, other) = (reader.readable().await, reader.readable().await);
    assert!(one.is_ok() && other.is_ok());
    let mut bytes = [0; 4];
    assert_eq!(reader.get_ref().read(&mut bytes).unwrap(), 1);
    drop(writer);
    reader.readable().await.unwrap();
    assert_eq!(reader.into_inner().read(&mut bytes).unwrap(), 0, "the end is readable too");
});

scenario!(a_read_is_repeated_while_it_would_block, |case| async move {
    if !case.is_real() {
        return eprintln!("skipped: in the simulation there are no descriptors of the kernel");
    }
    let (near, far) = std::os::unix::net::UnixDatagram::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    let near = PollFd::new(near);
    let mut bytes = [0; 16];
    let reading = near.read_with(|socket| socket.recv(&mut bytes));
    let mut reading = pin!(reading);
    assert!(poll_once(reading.as_mut()).await.is_none());
    far.send(b"told").unwrap();
    assert_eq!(reading.await.unwrap(), 4);
});

scenario!(any_option_is_set_through_another_descriptor, |case| async move {
    let (near, _far) = pair().await;
    if !case.is_real() {
        assert!(near.duplicate_fd().is_err());
        return;
    }
    let fd = near.duplicate_fd().unwrap();
    let socket = socket2::SockRef::from(&fd);
    socket.set_tcp_user_timeout(Some(std::time::Duration::from_secs(7))).unwrap();
    drop(fd);
    let again = near.duplicate_fd().unwrap();
    let told = socket2::SockRef::from(&again).tcp_user_timeout().unwrap();
    assert_eq!(told, Some(std::time::Duration::from_secs(7)));
});

scenario!(any_descriptor_is_waited_for_until_it_can_be_written, |case| async move {
    let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    let near = PollFd::new(near);
    if !case.is_real() {
        assert_eq!(near.writable().await.unwrap_err().kind(), io::ErrorKind::Unsupported);
        return;
    }
    near.writable().await.unwrap();
    let fill = || {
        let mut count = 0;
        while let Ok(bytes) = near.get_ref().write(&[7; 4096]) {
            count += bytes;
        }
        count
    };
    let mut left = fill();
    {
        let mut waits = pin!(near.writable());
        assert!(poll_once(waits.as_mut()).await.is_none());
        // A Unix socket has room again when a good part of what is in it was taken.
        let mut bytes = vec![0; left];
        (&far).read_exact(&mut bytes).unwrap();
        waits.await.unwrap();
    }
    left = fill();
    {
        let mut writing = pin!(near.write_with(|mut socket| socket.write(b"behind")));
        assert!(poll_once(writing.as_mut()).await.is_none());
        let mut bytes = vec![0; left];
        (&far).read_exact(&mut bytes).unwrap();
        assert_eq!(writing.await.unwrap(), 6);
    }
    assert!(fill() > 0);
    // An error is an end of the wait too: the write tells it.
    let mut waits = pin!(near.writable());
    assert!(poll_once(waits.as_mut()).await.is_none());
    drop(far);
    waits.await.unwrap();
    assert!(near.get_ref().write(b"x").is_err());
});
