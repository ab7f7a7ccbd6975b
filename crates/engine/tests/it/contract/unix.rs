//! Unix streams: as TCP where they can be, and where they differ, told how.

use crate::support::{Case, Gate, SocketDir, abstract_name, pattern, poll_once, runtime, some_turns};
use futures_util::join;
use ringroad_engine::net::{
    SocketOption, UnixAddr, UnixDatagram, UnixListenOptions, UnixListener, UnixStream,
};
use ringroad_engine::time::timeout;
use ringroad_engine::{Error, spawn, yield_now};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

/// What connecting comes to once the listener is gone. Until then it may live on for a moment, in a child
/// that another test is starting.
async fn refused(address: &UnixAddr) -> Error {
    loop {
        match UnixStream::connect(address).await {
            Ok(_) => yield_now().await,
            Err(why) => return why,
        }
    }
}

/// Two ends: the connecting one, and the accepted one.
async fn pair_at(listener: &mut UnixListener) -> (UnixStream, UnixStream) {
    let address = listener.local_addr().unwrap();
    let (ours, theirs) = join!(UnixStream::connect(address), listener.accept());
    (ours.unwrap(), theirs.unwrap())
}

/// Two ends with hardly any room from `ours` to `theirs`.
fn narrow_pair() -> (UnixStream, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_option(SocketOption::SendBuffer(4096)).unwrap();
    (ours, theirs)
}

async fn receive_all(stream: &mut UnixStream) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let lease = stream.recv().await.unwrap();
        if lease.is_empty() {
            return all;
        }
        all.extend_from_slice(&lease);
    }
}

async fn receive(stream: &mut UnixStream, bytes: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < bytes {
        let (received, part) = stream.recv_into(Vec::with_capacity(bytes - all.len())).await;
        assert!(received.unwrap() > 0, "the end after {} of {bytes}", all.len());
        all.extend_from_slice(&part);
    }
    all
}

everywhere!(a_socket_file_carries_connections_both_ways, |_| async {
    let dir = SocketDir::new();
    let path = dir.path("echo");
    let mut listener = UnixListener::bind(&path).unwrap();
    assert_eq!(listener.local_addr().unwrap(), UnixAddr::from(&path));
    let (mut ours, mut theirs) = pair_at(&mut listener).await;
    ours.write_all("a question").await.0.unwrap();
    assert_eq!(receive(&mut theirs, 10).await, b"a question");
    theirs.write_vectored_all(vec!["an ", "answer"]).await.0.unwrap();
    theirs.shutdown(Shutdown::Write).unwrap();
    assert_eq!(receive_all(&mut ours).await, b"an answer");
    ours.write_all("thanks").await.0.unwrap();
    drop(ours);
    assert_eq!(receive_all(&mut theirs).await, b"thanks");
});

everywhere!(both_ends_of_a_unix_connection_know_their_names, |_| async {
    let dir = SocketDir::new();
    let path = dir.path("named");
    let mut listener = UnixListener::bind(&path).unwrap();
    let (ours, theirs) = pair_at(&mut listener).await;
    assert_eq!(ours.peer_addr().unwrap().as_path(), Some(&*path));
    assert_eq!(theirs.local_addr().unwrap().as_path(), Some(&*path));
    assert!(ours.local_addr().unwrap().is_unnamed() && theirs.peer_addr().unwrap().is_unnamed());
    assert_eq!(theirs.to_string(), format!("{} to an unnamed socket", path.display()));
});

everywhere!(an_abstract_name_has_no_file_and_goes_with_its_listener, |_| async {
    let name = abstract_name();
    let mut listener = UnixListener::bind(&name).unwrap();
    assert_eq!(listener.local_addr().unwrap(), name);
    let (mut ours, mut theirs) = pair_at(&mut listener).await;
    assert_eq!(ours.peer_addr().unwrap(), name);
    ours.write_all("no file").await.0.unwrap();
    assert_eq!(receive(&mut theirs, 7).await, b"no file");
    let error = UnixListener::bind(&name).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EADDRINUSE));
    assert!(error.to_string().contains(&name.to_string()), "{error}");
    drop(listener);
    let error = refused(&name).await;
    assert_eq!(error.raw_os_error(), Some(libc::ECONNREFUSED));
    while let Err(why) = UnixListener::bind(&name) {
        assert_eq!(why.raw_os_error(), Some(libc::EADDRINUSE));
        yield_now().await;
    }
});

everywhere!(a_listener_without_a_name_gets_one_that_is_free, |_| async {
    let mut first = UnixListener::bind(UnixAddr::UNNAMED).unwrap();
    let second = UnixListener::bind(UnixAddr::UNNAMED).unwrap();
    let names = [first.local_addr().unwrap(), second.local_addr().unwrap()];
    assert!(names.iter().all(|name| name.as_abstract_name().is_some()) && names[0] != names[1], "{names:?}");
    let (ours, _theirs) = pair_at(&mut first).await;
    assert_eq!(ours.peer_addr().unwrap(), names[0]);
});

everywhere!(a_pair_is_connected_and_unnamed, |_| async {
    let (mut ours, mut theirs) = UnixStream::pair().unwrap();
    assert!(ours.local_addr().unwrap().is_unnamed() && ours.peer_addr().unwrap().is_unnamed());
    let sent = pattern(100_000);
    let expected = sent.clone();
    let sending = spawn(async move { ours.write_all(sent).await.0.unwrap() });
    assert!(receive_all(&mut theirs).await == expected);
    sending.await.unwrap();
});

everywhere!(the_kernel_reports_the_peers_credentials, |case| async move {
    let mut listener = UnixListener::bind(abstract_name()).unwrap();
    let (ours, theirs) = pair_at(&mut listener).await;
    let (one, other) = UnixStream::pair().unwrap();
    for stream in [&ours, &theirs, &one, &other] {
        let who = stream.peer_credentials().unwrap();
        if case.is_real() {
            // SAFETY: these take nothing, and cannot fail.
            let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
            assert_eq!((who.pid, who.uid, who.gid), (std::process::id(), uid, gid));
        } else {
            assert_eq!((who.pid, who.uid, who.gid), (1, 0, 0));
        }
    }
});

everywhere!(a_name_that_is_too_long_is_told_before_anything_is_done, |_| async {
    let long = "n".repeat(108);
    for error in [
        UnixListener::bind(long.as_str()).unwrap_err(),
        UnixListener::bind(UnixAddr::abstract_name(&long)).unwrap_err(),
        UnixDatagram::bind(long.as_str()).unwrap_err(),
        UnixStream::connect(long.as_str()).await.unwrap_err(),
    ] {
        assert_eq!(error.raw_os_error(), Some(libc::ENAMETOOLONG));
        let text = error.to_string();
        assert!(text.contains(&long) && text.contains("at most 107 bytes"), "{text}");
    }
    let error = UnixListener::bind("").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    let error = UnixStream::connect("a\0b").await.unwrap_err();
    assert!(error.to_string().contains("no zero byte"), "{error}");
});

everywhere!(a_socket_file_without_a_listener_is_distinguished_from_a_missing_file, |case| async move {
    let dir = SocketDir::new();
    let path = dir.path("left behind");
    let error = UnixStream::connect(&path).await.unwrap_err();
    assert_eq!((error.raw_os_error(), error.operation()), (Some(libc::ENOENT), "connect"));
    assert_eq!(error.driver(), Some(case.driver()));
    assert!(error.to_string().contains("no such file"), "{error}");
    UnixListener::bind(&path).unwrap();
    let error = refused(&UnixAddr::from(&path)).await;
    assert_eq!(error.raw_os_error(), Some(libc::ECONNREFUSED));
    let text = error.to_string();
    assert!(text.contains("left behind: ") && text.contains("nothing listens there"), "{text}");
    let mail = dir.path("mail");
    let _mailbox = UnixDatagram::bind(&mail).unwrap();
    let error = UnixStream::connect(&mail).await.unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EPROTOTYPE));
    assert!(error.to_string().contains("do not mix"), "{error}");
});

everywhere!(a_stale_socket_file_is_replaced_only_on_request_and_without_a_listener, |_| async {
    let dir = SocketDir::new();
    let path = dir.path("service");
    let mut replacing = UnixListenOptions::default();
    replacing.replace_stale = true;
    // Nothing is there: nothing is replaced.
    let listener = UnixListener::bind_with(&path, replacing).unwrap();
    let error = UnixListener::bind_with(&path, replacing).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EADDRINUSE));
    assert!(error.to_string().contains("a process listens there"), "{error}");
    drop(listener);
    refused(&UnixAddr::from(&path)).await;
    let error = UnixListener::bind(&path).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EADDRINUSE));
    assert!(error.to_string().contains("replace_stale"), "{error}");
    let mut listener = UnixListener::bind_with(&path, replacing).unwrap();
    let (mut ours, mut theirs) = pair_at(&mut listener).await;
    ours.write_all("again").await.0.unwrap();
    assert_eq!(receive(&mut theirs, 5).await, b"again");
    // Of the other kind, and alive.
    let mail = dir.path("mail");
    let _mailbox = UnixDatagram::bind(&mail).unwrap();
    UnixListener::bind_with(&mail, replacing).unwrap_err();
    UnixDatagram::unbound().unwrap().connect(&mail).unwrap();
});

cases!(no_file_but_a_socket_is_ever_removed, real, |case| {
    crate::support::run(
        case,
        |builder| builder,
        |_: Case| async {
            let dir = SocketDir::new();
            let path = dir.path("precious");
            std::fs::write(&path, "bytes").unwrap();
            let mut replacing = UnixListenOptions::default();
            replacing.replace_stale = true;
            let error = UnixListener::bind_with(&path, replacing).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EADDRINUSE));
            assert!(error.to_string().contains("not a socket, so it was not removed"), "{error}");
            assert_eq!(std::fs::read(&path).unwrap(), b"bytes");
            // Nor what a link names.
            let link = dir.path("link");
            std::os::unix::fs::symlink(&path, &link).unwrap();
            UnixListener::bind_with(&link, replacing).unwrap_err();
            assert!(path.exists() && link.exists());
            let error = UnixListener::bind(dir.path("none/at/all")).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
            assert!(error.to_string().contains("no such directory"), "{error}");
        },
    );
});

cases!(a_missing_permission_is_told_with_what_is_needed, real, |case| {
    // The threads' own user is changed by the call alone, not by the library for all of them.
    crate::support::run(
        case,
        |builder| builder,
        |_: Case| async {
            use std::os::unix::fs::PermissionsExt;
            // SAFETY: takes nothing, and cannot fail.
            let root = unsafe { libc::geteuid() } == 0;
            let dir = SocketDir::new();
            let path = dir.path("private");
            let _listener = UnixListener::bind(&path).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
            if root {
                set_thread_fsuid(65_534);
            }
            let result = UnixStream::connect(&path).await;
            if root {
                set_thread_fsuid(0);
            }
            let error = result.unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EACCES));
            assert!(error.to_string().contains("writable for this user"), "{error}");
        },
    );
});

/// The user that this thread's accesses to files are checked for (`setfsuid(2)`), which drops what root may.
fn set_thread_fsuid(user: u32) {
    // SAFETY: takes a number only; by number, so that it is this thread's alone.
    unsafe { libc::syscall(libc::SYS_setfsuid, user) };
}

everywhere!(a_connect_to_a_full_queue_waits_until_there_is_room, |_| async {
    let mut options = UnixListenOptions::default();
    options.backlog = 0;
    let mut listener = UnixListener::bind_with(abstract_name(), options).unwrap();
    let address = listener.local_addr().unwrap();
    // The queue holds one more than the backlog.
    let _first = UnixStream::connect(&address).await.unwrap();
    let connected = Gate::default();
    let second = {
        let (address, connected) = (address.clone(), connected.clone());
        spawn(async move {
            let mut stream = UnixStream::connect(address).await.unwrap();
            connected.open();
            stream.write_all("at last").await.0.unwrap();
        })
    };
    some_turns().await;
    assert!(!connected.is_open());
    // A connect that is dropped while it waits leaves nothing.
    let before = runtime(|runtime| runtime.descriptors());
    {
        let mut third = pin!(UnixStream::connect(&address));
        assert!(poll_once(third.as_mut()).await.is_none());
        assert_eq!(runtime(|runtime| runtime.descriptors()), before + 1);
    }
    assert_eq!(runtime(|runtime| runtime.descriptors()), before);
    drop(listener.accept().await.unwrap());
    let mut theirs = listener.accept().await.unwrap();
    assert_eq!(receive_all(&mut theirs).await, b"at last");
    second.await.unwrap();
});

everywhere!(a_slow_reader_holds_its_writer_back_and_gets_every_byte, |_| async {
    const BYTES: usize = 300_000;
    let (mut ours, mut theirs) = narrow_pair();
    let sent = Gate::default();
    let writing = {
        let sent = sent.clone();
        spawn(async move {
            ours.write_all(pattern(BYTES)).await.0.unwrap();
            sent.open();
        })
    };
    some_turns().await;
    assert!(!sent.is_open(), "there is no room for all of it");
    assert!(receive_all(&mut theirs).await == pattern(BYTES));
    writing.await.unwrap();
});

everywhere!(many_buffers_of_a_unix_stream_go_in_order, |_| async {
    let (mut ours, mut theirs) = narrow_pair();
    let buffers: Vec<_> = pattern(200_000).chunks(101).map(<[u8]>::to_vec).collect();
    let writing = spawn(async move {
        let (sent, back) = ours.write_vectored_all(buffers).await;
        sent.unwrap();
        assert!(back.concat() == pattern(200_000), "they come back");
    });
    assert!(receive_all(&mut theirs).await == pattern(200_000));
    writing.await.unwrap();
});

everywhere!(half_of_a_unix_stream_ends_and_the_other_goes_on, |_| async {
    let (mut ours, mut theirs) = UnixStream::pair().unwrap();
    ours.write_all("the last of it").await.0.unwrap();
    ours.shutdown(Shutdown::Write).unwrap();
    assert_eq!(ours.write_all("no").await.0.unwrap_err().raw_os_error(), Some(libc::EPIPE));
    assert_eq!(receive_all(&mut theirs).await, b"the last of it");
    // The end stays the end.
    assert!(theirs.recv().await.unwrap().is_empty());
    theirs.write_all("but I go on").await.0.unwrap();
    drop(theirs);
    assert_eq!(receive_all(&mut ours).await, b"but I go on");
});

everywhere!(a_send_to_a_unix_peer_that_is_gone_is_refused_at_once, |_| async {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    theirs.close().await;
    assert!(ours.recv().await.unwrap().is_empty(), "it ended as it should");
    let (sent, buffer) = ours.write_all(b"hello?".to_vec()).await;
    assert_eq!(sent.unwrap_err().raw_os_error(), Some(libc::EPIPE));
    assert_eq!(buffer, b"hello?", "it comes back");
});

everywhere!(a_unix_peer_that_read_everything_ends_and_one_that_did_not_resets, |_| async {
    // Read: an end.
    let (mut ours, mut theirs) = UnixStream::pair().unwrap();
    ours.write_all("read").await.0.unwrap();
    assert_eq!(receive(&mut theirs, 4).await, b"read");
    theirs.close().await;
    assert!(ours.recv().await.unwrap().is_empty());
    // Not read, nor asked for, so that the kernel has it: a reset, told once, and then the end.
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    ours.write_all("unread").await.0.unwrap();
    theirs.close().await;
    assert_eq!(ours.recv().await.unwrap_err().raw_os_error(), Some(libc::ECONNRESET));
    assert!(ours.recv().await.unwrap().is_empty());
    // A dropped receive may have taken the bytes from the kernel: the peer sees an end or else a reset, and
    // no error beyond that.
    let (mut ours, mut theirs) = UnixStream::pair().unwrap();
    assert!(poll_once(pin!(theirs.recv())).await.is_none());
    some_turns().await;
    ours.write_all("taken").await.0.unwrap();
    some_turns().await;
    theirs.close().await;
    match ours.recv().await {
        Ok(end) => assert!(end.is_empty()),
        Err(why) => assert_eq!(why.raw_os_error(), Some(libc::ECONNRESET)),
    }
});

everywhere!(a_receive_of_a_unix_stream_is_cancelled_and_the_next_is_not, |case| async move {
    for into in [false, true] {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let cancel = theirs.canceller();
        let receiving = spawn(async move {
            let error = if into {
                theirs.recv_into(Vec::with_capacity(10)).await.0.unwrap_err()
            } else {
                theirs.recv().await.unwrap_err()
            };
            (error, theirs)
        });
        some_turns().await;
        cancel.cancel();
        let (error, mut theirs) = receiving.await.unwrap();
        assert!(error.is_cancelled());
        assert_eq!(error.driver(), Some(case.driver()));
        ours.write_all("later").await.0.unwrap();
        drop(ours);
        assert_eq!(receive_all(&mut theirs).await, b"later");
    }
});

everywhere!(a_unix_receive_cancelled_while_its_bytes_come_loses_none, |_| async {
    for turns in 0..6 {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let cancel = theirs.canceller();
        let mut all = Vec::new();
        {
            let mut receiving = Box::pin(theirs.recv());
            assert!(poll_once(receiving.as_mut()).await.is_none());
            yield_now().await;
            ours.write_all("bytes").await.0.unwrap();
            for _ in 0..turns {
                yield_now().await;
            }
            cancel.cancel();
            match receiving.await {
                Ok(lease) => all.extend_from_slice(&lease),
                Err(why) => assert!(why.is_cancelled(), "{why}"),
            }
        }
        ours.write_all(" and more").await.0.unwrap();
        drop(ours);
        all.extend_from_slice(&receive_all(&mut theirs).await);
        assert_eq!(all, b"bytes and more", "{turns} turns");
    }
});

everywhere!(a_unix_send_dropped_midway_says_so_to_the_next, |_| async {
    let (mut ours, mut theirs) = narrow_pair();
    let mut got;
    {
        let mut sending = pin!(ours.write_all(pattern(300_000)));
        // Until a part of it has gone, and been seen.
        got = loop {
            if let Some((all, _)) = poll_once(sending.as_mut()).await {
                // On Linux 6.1 one call takes all of it, however narrow the connection.
                all.unwrap();
                return eprintln!("skipped: there is room for all of it");
            }
            if let Some(lease) = poll_once(pin!(theirs.recv())).await {
                break lease.unwrap().to_vec();
            }
            yield_now().await;
        };
    }
    let error = ours.write_all("more").await.0.unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EPIPE));
    assert!(error.to_string().contains("dropped midway"), "{error}");
    drop(ours);
    got.extend_from_slice(&receive_all(&mut theirs).await);
    assert!(pattern(300_000).starts_with(&got) && got.len() < 300_000);
});

everywhere!(a_unix_stream_closes_with_operations_pending, |_| async {
    for pending in 0..4 {
        let (mut ours, mut theirs) = narrow_pair();
        match pending {
            1 => assert!(poll_once(pin!(ours.recv())).await.is_none()),
            2 => assert!(poll_once(pin!(ours.recv_into(Vec::with_capacity(10)))).await.is_none()),
            3 => {
                let mut sending = pin!(ours.write_all(pattern(300_000)));
                assert!(poll_once(sending.as_mut()).await.is_none());
                yield_now().await;
            }
            _ => {}
        }
        ours.close().await;
        assert_eq!(runtime(|runtime| runtime.descriptors()), 1, "pending: {pending}");
        let got = receive_all(&mut theirs).await;
        assert!(pattern(300_000).starts_with(&got));
        theirs.close().await;
        assert_eq!(runtime(|runtime| runtime.descriptors()), 0);
    }
});

everywhere!(a_number_of_a_unix_stream_used_again_gets_nothing_of_its_predecessor, |_| async {
    for round in 0..40u8 {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
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
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let mut receiving = Box::pin(theirs.recv());
        assert!(poll_once(receiving.as_mut()).await.is_none());
        ours.write_all(vec![round; 3]).await.0.unwrap();
        drop(ours);
        let mut got = receiving.await.unwrap().to_vec();
        got.extend_from_slice(&receive_all(&mut theirs).await);
        assert_eq!(got, [round; 3]);
    }
});

everywhere!(a_unix_listener_that_stops_serves_accepted_connections, |_| async {
    let mut listener = UnixListener::bind(abstract_name()).unwrap();
    let address = listener.local_addr().unwrap();
    let stop = listener.canceller();
    let serving = spawn(async move {
        let mut served = 0;
        while let Ok(mut stream) = listener.accept().await {
            stream.write_all("served").await.0.unwrap();
            served += 1;
        }
        served
    });
    for _ in 0..10 {
        let mut stream = UnixStream::connect(&address).await.unwrap();
        assert_eq!(receive_all(&mut stream).await, b"served");
    }
    stop.cancel();
    assert_eq!(serving.await.unwrap(), 10);
});

everywhere!(connections_that_were_not_accepted_end_with_their_listener, |_| async {
    let listener = UnixListener::bind(abstract_name()).unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = UnixStream::connect(&address).await.unwrap();
    drop(listener);
    match waiting.recv().await {
        Ok(end) => assert!(end.is_empty()),
        Err(why) => assert_eq!(why.raw_os_error(), Some(libc::ECONNRESET)),
    }
});

everywhere!(an_option_of_tcp_is_none_of_a_unix_stream, |_| async {
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let error = ours.set_option(SocketOption::NoDelay(true)).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP));
    assert!(error.to_string().contains("TCP_NODELAY"), "{error}");
});

everywhere!(halves_of_a_unix_stream_work_in_two_tasks, |_| async {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (mut reader, mut writer) = theirs.split();
    let echo = spawn(async move {
        loop {
            let lease = reader.recv().await.unwrap();
            if lease.is_empty() {
                return;
            }
            writer.write_all(lease).await.0.unwrap();
        }
    });
    let (mut reader, mut writer) = ours.split();
    let sending = async {
        writer.write_all(pattern(150_000)).await.0.unwrap();
        writer.shutdown().unwrap();
    };
    let receiving = async {
        let mut all = Vec::new();
        loop {
            let lease = reader.recv().await.unwrap();
            if lease.is_empty() {
                return all;
            }
            all.extend_from_slice(&lease);
        }
    };
    let ((), all) = join!(sending, receiving);
    assert!(all == pattern(150_000));
    echo.await.unwrap();
});

cases!(a_unix_stream_comes_from_elsewhere_and_goes_there_again, real, |case| {
    crate::support::run(
        case,
        |builder| builder,
        |_: Case| async {
            use std::io::{Read, Write};
            let (mut other, ours) = std::os::unix::net::UnixStream::pair().unwrap();
            let ours = UnixStream::from_std(ours).unwrap();
            let back = ours.into_std().map_err(|(why, _)| why).unwrap();
            let mut ours = UnixStream::from_std(back).unwrap();
            other.write_all(b"from outside").unwrap();
            assert_eq!(receive(&mut ours, 12).await, b"from outside");
            ours.write_all("and back").await.0.unwrap();
            drop(ours);
            let mut got = String::new();
            other.read_to_string(&mut got).unwrap();
            assert_eq!(got, "and back");
            let dir = SocketDir::new();
            let path: &Path = &dir.path("std");
            let mut listener =
                UnixListener::from_std(std::os::unix::net::UnixListener::bind(path).unwrap()).unwrap();
            let (ours, _theirs) = pair_at(&mut listener).await;
            let (error, _ours) = {
                let mut ours = ours;
                assert!(poll_once(pin!(ours.recv())).await.is_none());
                ours.into_std().unwrap_err()
            };
            assert_eq!(error.raw_os_error(), Some(libc::EBUSY));
        },
    );
});

/// Sends a byte with a descriptor attached; the tests ignore the descriptor.
fn send_with_descriptor(peer: &std::os::unix::net::UnixStream, byte: u8) {
    let mut part = libc::iovec { iov_base: (&raw const byte).cast_mut().cast(), iov_len: 1 };
    // Aligned as a header has to be.
    let mut control = [0_u64; 4];
    let bytes = size_of::<libc::c_int>() as u32;
    // SAFETY: a message of zeroes is one without anything. It names one vector, and control data for which
    // there is room, all of this frame; CMSG_FIRSTHDR points to the beginning of the latter. sendmsg(2) reads
    // them during the call.
    let sent = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(bytes) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(bytes) as _;
        libc::CMSG_DATA(header).cast::<libc::c_int>().write_unaligned(peer.as_raw_fd());
        libc::sendmsg(peer.as_raw_fd(), &raw const message, 0)
    };
    assert_eq!(sent, 1, "{}", std::io::Error::last_os_error());
}

everywhere!(
    /// The kernel ends a receive behind each byte that a descriptor came with, whatever is behind it.
    bytes_behind_a_descriptor_are_received_without_anything_coming_after_them,
    |case| async move {
        if !case.is_real() {
            return eprintln!("skipped: in the simulation no descriptors are sent");
        }
        for into in [false, true] {
            let (peer, ours) = std::os::unix::net::UnixStream::pair().unwrap();
            let mut ours = UnixStream::from_std(ours).unwrap();
            assert!(poll_once(pin!(ours.recv())).await.is_none());
            for byte in *b"abc" {
                send_with_descriptor(&peer, byte);
            }
            let mut all = Vec::new();
            while all.len() < 3 {
                let part = async {
                    if !into {
                        return ours.recv().await.unwrap().to_vec();
                    }
                    let (received, part) = ours.recv_into(Vec::with_capacity(100)).await;
                    received.unwrap();
                    part
                };
                let part = timeout(Duration::from_secs(60), part).await;
                all.extend(part.unwrap_or_else(|_| panic!("nothing comes after {all:?}")));
            }
            assert_eq!(all, b"abc");
        }
    }
);
