//! Accepting: every client is served once, whatever becomes of the futures that wait for connections.

use crate::support::{
    Case, Gate, alone, listener, listener_with, pair_by, poll_once, receive, receive_all, run, runtime,
    some_turns,
};
use futures_util::future::{Either, join_all, select};
use ringroad_engine::net::{ListenOptions, TcpListener, TcpStream};
use ringroad_engine::{spawn, yield_now};
use std::cell::Cell;
use std::fs::File;
use std::io::Write;
use std::net;
use std::pin::pin;
use std::rc::Rc;

everywhere!(hundreds_of_simultaneous_clients_are_each_served_once, |_| async {
    const CLIENTS: u32 = 300;
    let (mut listener, address) = listener();
    let served = Rc::new(Cell::new(0));
    let clients = join_all((0..CLIENTS).map(|number| async move {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(number.to_be_bytes().to_vec()).await.0.unwrap();
        assert_eq!(receive_all(&mut stream).await, number.to_be_bytes());
    }));
    let server = {
        let served = Rc::clone(&served);
        spawn(async move {
            let mut seen = vec![false; CLIENTS as usize];
            for _ in 0..CLIENTS {
                let mut stream = listener.accept().await.unwrap();
                let number = receive(&mut stream, 4).await;
                let at = u32::from_be_bytes(number.as_slice().try_into().unwrap()) as usize;
                assert!(!std::mem::replace(&mut seen[at], true), "{at} is served twice");
                stream.write_all(number).await.0.unwrap();
                served.set(served.get() + 1);
            }
            // No further client connects.
            assert!(poll_once(pin!(listener.accept())).await.is_none());
        })
    };
    clients.await;
    server.await.unwrap();
    assert_eq!(served.get(), CLIENTS);
});

everywhere!(a_connection_that_comes_to_a_dropped_accept_is_the_next_ones, |_| async {
    let (mut listener, address) = listener();
    for turns in 0..20 {
        // Drop the accept before, while and after a client connects.
        {
            let mut accept = pin!(listener.accept());
            assert!(poll_once(accept.as_mut()).await.is_none());
            for _ in 0..turns / 4 {
                yield_now().await;
            }
        }
        let connect = spawn(TcpStream::connect(address));
        let taken = {
            let mut accept = pin!(listener.accept());
            let taken = poll_once(accept.as_mut()).await;
            for _ in 0..turns {
                yield_now().await;
            }
            taken
        };
        let theirs = match taken {
            Some(theirs) => theirs,
            None => listener.accept().await,
        };
        let (ours, theirs) = (connect.await.unwrap().unwrap(), theirs.unwrap());
        assert_eq!(ours.local_addr().unwrap(), theirs.peer_addr().unwrap());
    }
    assert!(poll_once(pin!(listener.accept())).await.is_none());
});

everywhere!(an_accept_that_loses_races_serves_all_the_same, |_| async {
    const CLIENTS: usize = 40;
    let (mut listener, address) = listener();
    // A dropped accept: no client has connected yet.
    match select(pin!(listener.accept()), pin!(yield_now())).await {
        Either::Left(_) => panic!("somebody came"),
        Either::Right(_) => {}
    }
    let clients = spawn(async move {
        for _ in 0..CLIENTS {
            let mut stream = TcpStream::connect(address).await.unwrap();
            assert_eq!(receive_all(&mut stream).await, b"served");
        }
    });
    let mut served = 0;
    while served < CLIENTS {
        // How many of these are lost is the machine's to say.
        if let Either::Left((stream, _)) = select(pin!(listener.accept()), pin!(yield_now())).await {
            stream.unwrap().write_all("served").await.0.unwrap();
            served += 1;
        }
    }
    clients.await.unwrap();
});

everywhere!(a_waiting_accept_is_ended_by_its_canceller_and_so_is_every_later_one, |case| async move {
    let (mut listener, address) = listener();
    let stop = listener.canceller();
    let waiting = Gate::default();
    let server = {
        let waiting = waiting.clone();
        spawn(async move {
            waiting.open();
            let first = listener.accept().await.unwrap_err();
            let second = listener.accept().await.unwrap_err();
            (first, second)
        })
    };
    waiting.opened().await;
    some_turns().await;
    stop.cancel();
    stop.cancel();
    let (first, second) = server.await.unwrap();
    for error in [first, second] {
        assert!(error.is_cancelled());
        assert_eq!((error.operation(), error.driver()), ("accept", Some(case.driver())));
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
});

everywhere!(a_canceller_also_ends_an_accept_that_was_not_yet_waited_for, |_| async {
    // A fresh listener; after a dropped accept; after an accept that returned a connection.
    for before in 0..3 {
        let (mut listener, address) = listener();
        let mut connection = None;
        match before {
            1 => assert!(poll_once(pin!(listener.accept())).await.is_none()),
            2 => connection = Some(pair_by(&mut listener, address).await),
            _ => {}
        }
        some_turns().await;
        listener.canceller().cancel();
        some_turns().await;
        assert!(listener.accept().await.unwrap_err().is_cancelled());
        drop(connection);
    }
});

everywhere!(connections_taken_before_the_cancel_are_served_and_no_client_is_left_waiting, |_| async {
    const CLIENTS: usize = 5;
    for turns in [0, 1, 50] {
        let (mut listener, address) = listener();
        assert!(poll_once(pin!(listener.accept())).await.is_none());
        yield_now().await;
        let clients: Vec<_> = (0..CLIENTS).map(|_| spawn(TcpStream::connect(address))).collect();
        let mut connected = Vec::new();
        for client in clients {
            connected.push(client.await.unwrap().unwrap());
        }
        for _ in 0..turns {
            yield_now().await;
        }
        listener.canceller().cancel();
        let mut served = Vec::new();
        loop {
            match listener.accept().await {
                Ok(mut stream) => {
                    stream.write_all("served").await.0.unwrap();
                    served.push(stream.peer_addr().unwrap());
                }
                Err(why) => break assert!(why.is_cancelled(), "{why}"),
            }
        }
        drop(listener);
        for mut stream in connected {
            let name = stream.local_addr().unwrap();
            match served.contains(&name) {
                true => assert_eq!(receive_all(&mut stream).await, b"served"),
                false => {
                    let error = stream.recv().await.unwrap_err();
                    assert_eq!(error.raw_os_error(), Some(libc::ECONNRESET));
                }
            }
        }
    }
});

everywhere!(a_client_still_queued_when_a_listener_is_closed_is_reset, |_| async {
    // Once without any accept; once after a dropped accept, which on some drivers took the connection from
    // the kernel.
    for armed in [false, true] {
        let (mut listener, address) = listener();
        if armed {
            assert!(poll_once(pin!(listener.accept())).await.is_none());
            some_turns().await;
        }
        let mut ours = TcpStream::connect(address).await.unwrap();
        some_turns().await;
        drop(listener);
        let error = ours.recv().await.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ECONNRESET), "armed: {armed}");
    }
});

everywhere!(a_canceller_of_a_closed_listener_leaves_its_successor_alone, |_| async {
    let (first, _) = listener();
    let stop = first.canceller();
    drop(first);
    // It has the place of the first, and most likely its number.
    let (mut second, address) = listener();
    stop.cancel();
    let mut accept = Box::pin(second.accept());
    assert!(poll_once(accept.as_mut()).await.is_none());
    stop.cancel();
    let ours = TcpStream::connect(address).await.unwrap();
    let theirs = accept.await.unwrap();
    assert_eq!(ours.local_addr().unwrap(), theirs.peer_addr().unwrap());
});

everywhere!(listeners_that_share_a_port_together_serve_every_client, |_| async {
    const CLIENTS: usize = 60;
    let options = ListenOptions { reuse_port: true, ..ListenOptions::default() };
    let (first, address) = listener_with(options);
    let second = TcpListener::bind_with(address, options).unwrap();
    let served = Rc::new(Cell::new(0));
    let mut stops = Vec::new();
    let mut servers = Vec::new();
    for mut listener in [first, second] {
        stops.push(listener.canceller());
        let served = Rc::clone(&served);
        servers.push(spawn(async move {
            while let Ok(mut stream) = listener.accept().await {
                stream.write_all("served").await.0.unwrap();
                served.set(served.get() + 1);
            }
        }));
    }
    join_all((0..CLIENTS).map(|_| async move {
        let mut stream = TcpStream::connect(address).await.unwrap();
        assert_eq!(receive_all(&mut stream).await, b"served");
    }))
    .await;
    assert_eq!(served.get(), CLIENTS);
    stops.iter().for_each(|stop| stop.cancel());
    for server in servers {
        server.await.unwrap();
    }
});

everywhere!(a_listener_made_elsewhere_is_taken_over, |case| async move {
    if !case.is_real() {
        return eprintln!("skipped: the simulation has no sockets from elsewhere");
    }
    let made = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = made.local_addr().unwrap();
    let mut listener = TcpListener::from_std(made).unwrap();
    let elsewhere = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.write_all(b"to you").unwrap();
        let mut answer = [0; 6];
        stream.read_exact(&mut answer).unwrap();
        answer
    });
    let mut stream = listener.accept().await.unwrap();
    assert_eq!(receive(&mut stream, 6).await, b"to you");
    stream.write_all("to you").await.0.unwrap();
    assert_eq!(&elsewhere.join().unwrap(), b"to you");
    // An accept that waits does not block other operations, and dropping it leaves no descriptor.
    let mut accept = Box::pin(listener.accept());
    assert!(poll_once(accept.as_mut()).await.is_none());
    some_turns().await;
    drop(accept);
    assert_eq!(runtime(|runtime| runtime.descriptors()), 2);
});

/// Descriptors of this process that no driver knows of.
fn files(count: usize) -> Vec<File> {
    (0..count).map(|_| File::open("/dev/null").unwrap()).collect()
}

/// Accepts one of these clients; the others have come all the same, and wait in the backlog. Meanwhile so
/// many files can be opened. Then the others are accepted too.
async fn one_of_many(listener: &mut TcpListener, clients: u8, spare: usize) {
    let address = listener.local_addr().unwrap();
    let connect = |number: u8| {
        let mut client = net::TcpStream::connect(address).unwrap();
        client.write_all(&[number]).unwrap();
        client
    };
    let clients: Vec<_> = (0..clients).map(connect).collect();
    let mut served = vec![listener.accept().await.unwrap()];
    some_turns().await;
    drop(files(spare));
    while served.len() < clients.len() {
        served.push(listener.accept().await.unwrap());
    }
    let mut seen = Vec::new();
    for stream in &mut served {
        seen.push(receive(stream, 1).await[0]);
    }
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..clients.len() as u8));
}

cases!(
    /// Else a program that pauses accepting, to keep descriptors for its files, would find them gone.
    where_few_descriptors_are_left_no_connection_is_accepted_ahead,
    real,
    |case| alone(Some(1000), || {
        let scenario = |_: Case| async {
            let (mut listener, _) = listener();
            one_of_many(&mut listener, 200, 700).await;
        };
        run(case, |builder| builder, scenario);
    })
);

cases!(
    /// A ring with room for 256 results a turn accepts ahead as long as so many descriptors are left, and
    /// some more.
    a_listener_that_comes_near_the_limit_goes_on_with_one_at_a_time,
    [epoll Epoll, poll Poll, io_uring IoUring, io_uring_plain IoUringPlain],
    |case| alone(Some(1200), || {
        let scenario = |_: Case| async {
            let (mut listener, _) = listener();
            one_of_many(&mut listener, 20, 0).await;
            let others = files(720);
            one_of_many(&mut listener, 1, 0).await;
            one_of_many(&mut listener, 180, 250).await;
            drop(others);
            one_of_many(&mut listener, 20, 0).await;
        };
        run(case, |builder| builder.entries(64).completion_entries(256), scenario);
    })
);
