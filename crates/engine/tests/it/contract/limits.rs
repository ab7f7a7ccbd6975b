//! Many connections, few buffers, small rings, no descriptors left: what is bounded stays bounded, and every
//! client is served nevertheless.

use crate::peer::{Client, Echo, Latch, anywhere, echo, pair};
use crate::support::{Case, Crowd, alone, child, crowd, role, run, with_runtime};
use ringroad_engine::net::{TcpListener, TcpStream, UnixStream};
use ringroad_engine::sim::{Faults, SimConfig};
use ringroad_engine::time::timeout;
use ringroad_engine::{Builder, DriverName, Error, Lease, spawn, yield_now};
use std::cell::Cell;
use std::fs::File;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::process::Stdio;
use std::rc::Rc;
use std::time::Duration;

/// More than fits into the buffers of any socket without a reader.
fn flood(case: Case) -> Vec<u8> {
    vec![b'y'; if case.is_real() { 8 << 20 } else { 1 << 20 }]
}

cases!(five_thousand_connections_at_once_get_their_own_bytes_back, many, |case| {
    let crowd = crowd();
    let connections = if case.is_real() { crowd.connections(5000) } else { 5000 };
    run(
        case,
        |builder| builder,
        move |_| async move {
            let server = Echo::start();
            let mut clients = Vec::new();
            for _ in 0..connections {
                clients.push(Client::connect(server.address).await);
            }
            // All are open; now all speak at once.
            let speaking: Vec<_> = clients
                .into_iter()
                .enumerate()
                .map(|(n, mut client)| {
                    spawn(async move {
                        for round in 0..3usize {
                            client.exchange(format!("{n} {round}").repeat(1 + n % 7).into_bytes()).await;
                        }
                    })
                })
                .collect();
            for client in speaking {
                client.await.unwrap();
            }
            server.end().await;
        },
    );
});

cases!(
    /// The limit of select, which is why it carries no five thousand connections: a set has bits for 1024
    /// descriptor numbers. A descriptor with a higher number is closed, with an error that says so;
    /// established connections are still served; and an accept fails once, then waits for a usable number
    /// instead of turning one peer after another away.
    on_select_a_descriptor_without_a_bit_is_closed_and_accepting_waits_for_one,
    [select Select],
    |case| with_runtime(case, |builder| builder, |case, runtime| {
        let body = async {
            let mut listener = TcpListener::bind(anywhere()).unwrap();
            let address = listener.local_addr().unwrap();
            let (early, mut early_served) = pair().await;
            let mut spare = Vec::new();
            let mut spare_served = Vec::new();
            for _ in 0..3 {
                let (ours, theirs) = pair().await;
                spare.push(ours);
                spare_served.push(theirs);
            }
            let mut files = Vec::new();
            while files.last().is_none_or(|file: &File| file.as_raw_fd() < 1023) {
                files.push(File::open("/dev/null").unwrap());
            }
            let says_why = |error: Error, operation| {
                assert_eq!((error.operation(), error.driver()), (operation, Some(case.driver())));
                assert!(error.is_driver_limit() && !error.is_cancelled());
                let text = error.to_string();
                assert!(text.contains("below 1024") && text.contains("epoll"), "{text}");
            };
            says_why(TcpStream::connect(address).await.unwrap_err(), "socket");
            says_why(TcpListener::bind(anywhere()).unwrap_err(), "socket");
            let mut waiting = Vec::new();
            let mut kept = Vec::new();
            for n in 0..4u8 {
                let mut peer = std::net::TcpStream::connect(address).unwrap();
                // The first one's bytes would make its end a reset.
                if n > 0 {
                    peer.write_all(&[n; 10]).unwrap();
                }
                waiting.push(peer);
            }
            let from_elsewhere = std::net::TcpStream::connect(address).unwrap();
            says_why(TcpStream::from_std(from_elsewhere).unwrap_err(), "ioctl");

            // The first is turned away, and no further one.
            let turned_away = listener.accept().await.unwrap_err();
            assert!(turned_away.to_string().contains(&address.to_string()), "{turned_away}");
            says_why(turned_away, "accept");
            let mut turned_away = waiting.remove(0);
            assert_eq!(turned_away.read(&mut [0; 10]).unwrap(), 0, "closed");
            for n in 1..4u8 {
                let accepting = timeout(Duration::from_millis(20), listener.accept()).await;
                assert!(accepting.is_err(), "there is no number: {accepting:?}");
                // One is free from here on.
                spare.pop().unwrap().close().await;
                let mut served = listener.accept().await.unwrap();
                let lease = served.recv().await.unwrap();
                assert_eq!(*lease, [n; 10]);
                served.write_all(lease).await.0.unwrap();
                let mut answer = [0; 10];
                waiting[usize::from(n) - 1].read_exact(&mut answer).unwrap();
                assert_eq!(answer, [n; 10]);
                kept.push(served);
            }
            // All the while.
            let (mut early_reader, mut early_writer) = early.split();
            early_writer.write_all("as ever").await.0.unwrap();
            assert_eq!(&*early_served.recv().await.unwrap(), b"as ever");
            early_served.write_all("as ever").await.0.unwrap();
            assert_eq!(&*early_reader.recv().await.unwrap(), b"as ever");
        };
        runtime.block_on(body).unwrap();
        let counters = runtime.counters();
        assert!((3..=12).contains(&counters.accept_parked), "it does not spin: {counters:?}");
    })
);

/// Connections of the greedy peer, each with one message it has sent half of. Fewer in the simulation, where
/// making connections takes time that grows with the square of their number.
fn halves(case: Case, crowd: &Crowd) -> usize {
    if case.is_real() { crowd.ends(10_000) } else { 1000 }
}

/// A message: its length in four bytes, then its bytes. Half of one is four bytes and fifty of a hundred.
const HALF: [u8; 54] = {
    let mut half = [b'h'; 54];
    [half[0], half[1], half[2], half[3]] = 100u32.to_be_bytes();
    half
};

/// The greedy peer as a process of its own, since the descriptors of one are not enough for both ends.
fn greedy_peer(address: SocketAddr, halves: usize) {
    let connections: Vec<_> = (0..halves)
        .map(|_| {
            let mut stream = std::net::TcpStream::connect(address).unwrap();
            stream.write_all(&HALF).unwrap();
            stream
        })
        .collect();
    // Until the test closes our input.
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    drop(connections);
}

/// Receives a message and keeps it in the leases it came in: what a server does that takes no copies.
async fn message(stream: &mut TcpStream, half_sent: impl Fn()) -> Option<Vec<Lease>> {
    let (mut leases, mut got, mut wanted) = (Vec::new(), 0, usize::MAX);
    while got < wanted {
        let lease = stream.recv().await.ok().filter(|lease| !lease.is_empty())?;
        got += lease.len();
        leases.push(lease);
        if wanted == usize::MAX && got >= 4 {
            let head: Vec<u8> = leases.iter().flat_map(|lease| lease.iter().copied()).take(4).collect();
            wanted = 4 + u32::from_be_bytes(head.try_into().unwrap()) as usize;
        }
        if got == HALF.len() && wanted > got {
            half_sent();
        }
    }
    Some(leases)
}

cases!(ten_thousand_half_sent_messages_and_64_buffers_leave_a_good_client_served, many, |case| {
    let crowd = crowd();
    let halves = halves(case, &crowd);
    if let Some(address) = role() {
        return greedy_peer(address.parse().unwrap(), halves);
    }
    with_runtime(
        case,
        |builder| builder.buffers(64, 4096),
        move |case, runtime| {
            let body = async {
                let mut listener = TcpListener::bind(anywhere()).unwrap();
                let (address, stop) = (listener.local_addr().unwrap(), listener.canceller());
                let kept = Rc::new(Cell::new(0));
                let all_kept = Latch::default();
                let server = spawn({
                    let (kept, all_kept) = (Rc::clone(&kept), all_kept.clone());
                    async move {
                        let mut served = Vec::new();
                        while let Ok(mut stream) = listener.accept().await {
                            let (kept, all_kept) = (Rc::clone(&kept), all_kept.clone());
                            served.push(spawn(async move {
                                let half_sent = || {
                                    kept.set(kept.get() + 1);
                                    if kept.get() == halves {
                                        all_kept.open();
                                    }
                                };
                                while let Some(leases) = message(&mut stream, half_sent).await {
                                    for lease in leases {
                                        stream.write_all(lease).await.0.unwrap();
                                    }
                                }
                            }));
                        }
                        for connection in served {
                            connection.await.unwrap();
                        }
                    }
                });

                let mut greedy = case.is_real().then(|| {
                    let mut greedy = child(&address.to_string());
                    greedy.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
                });
                let mut simulated = Vec::new();
                if greedy.is_none() {
                    for _ in 0..halves {
                        let mut stream = TcpStream::connect(address).await.unwrap();
                        stream.write_all(&HALF[..]).await.0.unwrap();
                        simulated.push(stream);
                    }
                }
                all_kept.wait().await;
                let mut good = Client::connect(address).await;
                for round in 1..=50u32 {
                    let mut wanted = (round * 100).to_be_bytes().to_vec();
                    wanted.resize(4 + round as usize * 100, round as u8);
                    good.exchange(wanted).await;
                }
                assert_eq!(kept.get(), halves, "all are still only half sent");
                drop(good);

                drop(simulated);
                if let Some(greedy) = &mut greedy {
                    drop(greedy.stdin.take());
                }
                stop.cancel();
                server.await.unwrap();
                if let Some(mut greedy) = greedy {
                    assert!(greedy.wait().unwrap().success());
                }

                // All of the leases are back: the pool serves as it did at first.
                let (mut client, mut server) = pair().await;
                client.write_all("after").await.0.unwrap();
                let lease = server.recv().await.unwrap();
                assert_eq!((&*lease, lease.is_pooled()), (&b"after"[..], true));
            };
            runtime.block_on(body).unwrap();
        },
    );
});

cases!(
    /// What a peer sends and no task reads stays in the socket, except for the connection's credit of four
    /// buffers.
    an_unread_stream_takes_only_its_credit_of_the_buffers,
    all,
    |case| with_runtime(case, |builder| builder.buffers(16, 1024), |case, runtime| {
        runtime
            .block_on(async {
                let server = Echo::start();
                let mut good = Client::connect(server.address).await;
                let mut greedy = Vec::new();
                for _ in 0..6 {
                    let (mut unread, sender) = pair().await;
                    let (_, mut sender) = sender.split();
                    sender.write_all("x").await.0.unwrap();
                    // Its receive stands from now on.
                    assert_eq!(unread.recv().await.unwrap().len(), 1);
                    let flood = spawn(async move {
                        let flooded = sender.write_all(flood(case)).await.0;
                        assert!(flooded.is_err(), "nobody took all that");
                    });
                    greedy.push((unread, flood));
                }
                for round in 0..50 {
                    good.exchange(vec![b'z'; 1 + round * 400]).await;
                }
                // What was taken is still there, in order, and before the rest.
                for (unread, _) in &mut greedy {
                    let mut got = 0;
                    while got < 40_000 {
                        let lease = unread.recv().await.unwrap();
                        assert!(!lease.is_empty() && lease.iter().all(|byte| *byte == b'y'));
                        got += lease.len();
                    }
                }
                for (unread, flood) in greedy {
                    drop(unread);
                    flood.await.unwrap();
                }
                drop(good);
                server.end().await;
            })
            .unwrap();
        // Where the kernel fills buffers by itself it had to be stopped; elsewhere there is nothing to stop.
        let stopped = runtime.counters().out_of_credit;
        match case.driver() {
            DriverName::IoUring => assert!(stopped >= 6, "{:?}", runtime.counters()),
            DriverName::Epoll | DriverName::Poll | DriverName::Select | DriverName::Threads => assert_eq!(stopped, 0),
            _ => {}
        }
    })
);

scenario!(
    /// More leases are kept than there are buffers: they stay right, others are still received, and when they
    /// are dropped the pool is whole again.
    a_pool_whose_leases_are_all_kept_goes_on_and_recovers,
    |builder: Builder| builder.buffers(8, 64),
    |_| async {
        let server = Echo::start();
        let mut other = Client::connect(server.address).await;
        let (mut sender, mut reader) = pair().await;
        for _ in 0..3 {
            let mut kept = Vec::new();
            for n in 0..100u8 {
                sender.write_all(vec![n; 48]).await.0.unwrap();
                let mut got = 0;
                while got < 48 {
                    let lease = reader.recv().await.unwrap();
                    got += lease.len();
                    kept.push((n, lease));
                }
            }
            let pooled = kept.iter().filter(|(_, lease)| lease.is_pooled()).count();
            assert!(pooled <= 4, "{pooled} of 8 are kept");
            other.exchange(vec![9; 500]).await;
            assert!(kept.iter().all(|(n, lease)| lease.iter().all(|byte| byte == n)));
        }
        sender.write_all("after").await.0.unwrap();
        assert!(reader.recv().await.unwrap().is_pooled(), "all are back");
        drop(other);
        server.end().await;
    }
);

/// Two hundred connections, timers and dropped receives, through as little as there may be.
async fn through_the_eye_of_a_needle() {
    let _crowd = crowd();
    let server = Echo::start();
    let address = server.address;
    let clients: Vec<_> = (0..200)
        .map(|n: usize| {
            spawn(async move {
                let mut quiet = TcpStream::connect(address).await.unwrap();
                let mut client = Client::connect(address).await;
                for round in 0..5 {
                    client.exchange(vec![n as u8; 1 + 60 * round]).await;
                    // The server sends nothing on this connection.
                    let buffer = Vec::with_capacity(10);
                    assert!(timeout(Duration::from_millis(1), quiet.recv_into(buffer)).await.is_err());
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    server.end().await;
}

scenario!(
    eight_entries_and_eight_completions_carry_two_hundred_connections,
    |builder: Builder| builder.entries(8).completion_entries(8).buffers(2, 64),
    |_| through_the_eye_of_a_needle()
);

scenario!(
    eight_entries_and_sixteen_completions_carry_two_hundred_connections,
    |builder: Builder| builder.entries(8).completion_entries(16).buffers(16, 64),
    |_| through_the_eye_of_a_needle()
);

scenario!(
    /// Sends that cannot go on wait by themselves.
    peers_that_do_not_read_do_not_keep_others_from_being_served,
    |builder: Builder| builder.entries(16).buffers(8, 512),
    |case| async move {
        let mut stuck = Vec::new();
        for _ in 0..40 {
            let (peer, mut stream) = pair().await;
            let sending = spawn(async move { stream.write_all(flood(case)).await.0.is_err() });
            stuck.push((peer, sending));
        }
        let server = Echo::start();
        let mut good = Client::connect(server.address).await;
        for round in 0..50 {
            good.exchange(vec![2; 1 + round * 300]).await;
        }
        for (peer, sending) in stuck {
            assert!(!sending.is_finished(), "its peer has read nothing");
            drop(peer);
            assert!(sending.await.unwrap(), "its peer is gone");
        }
        drop(good);
        server.end().await;
    }
);

/// How a runtime out of descriptors goes on. `free` of them are left at first, for as many connections.
async fn accepts_with_few_descriptors_left(free: usize, mut listener: TcpListener, waiting: Vec<TcpStream>) {
    let accepted = Rc::new(Cell::new(0));
    let stop = listener.canceller();
    let server = spawn({
        let accepted = Rc::clone(&accepted);
        async move {
            let mut served = Vec::new();
            while let Ok(stream) = listener.accept().await {
                accepted.set(accepted.get() + 1);
                served.push(spawn(echo(stream)));
            }
            for connection in served {
                connection.await.unwrap();
            }
        }
    });
    // One after another is served and closed, which makes room for the next. With all places taken, those
    // that are connected are served as ever.
    for (n, mut stream) in waiting.into_iter().enumerate() {
        for _ in 0..3 {
            stream.write_all("first come").await.0.unwrap();
            let mut got = Vec::new();
            while got.len() < 10 {
                got.extend_from_slice(&stream.recv().await.unwrap());
            }
            assert_eq!(got, b"first come");
        }
        // Ours is freed too: then there is room for two.
        assert!(accepted.get() <= free + 2 * n, "{} accepted, {free} free, {n} closed", accepted.get());
        stream.close().await;
    }
    stop.cancel();
    server.await.unwrap();
}

fn out_of_descriptors(case: Case, set_up: fn(Builder) -> Builder) {
    with_runtime(case, set_up, |case, runtime| {
        let (listener, waiting) = runtime
            .block_on(async {
                let listener = TcpListener::bind(anywhere()).unwrap();
                let address = listener.local_addr().unwrap();
                let mut waiting = Vec::new();
                for _ in 0..20 {
                    let mut stream = TcpStream::connect(address).await.unwrap();
                    // It waits already: on threads that takes a descriptor too.
                    assert!(futures_util::poll!(Box::pin(stream.recv())).is_pending());
                    waiting.push(stream);
                }
                (listener, waiting)
            })
            .unwrap();
        let mut files = Vec::new();
        if case.is_real() {
            // All but three of the descriptors are files'.
            files.extend(std::iter::from_fn(|| File::open("/dev/null").ok()));
            assert!((4..64).contains(&files.len()), "{} files", files.len());
            files.truncate(files.len() - 3);
        }
        runtime.block_on(accepts_with_few_descriptors_left(3, listener, waiting)).unwrap();
        let counters = runtime.counters();
        // Each of the forty ends that were closed let it try once more; a loop that spins tries every turn.
        assert!((1..=40).contains(&counters.accept_parked), "{counters:?}");
        assert_eq!(runtime.descriptors(), 0);
    });
}

cases!(
    /// Accepting waits for a close; it does not fail, it does not spin, and those accepted are served.
    without_descriptors_accepting_parks_until_one_is_closed,
    all,
    |case| {
        if case.is_real() {
            return alone(Some(64), || out_of_descriptors(case, |builder| builder));
        }
        out_of_descriptors(case, |builder| {
            let mut config = SimConfig::new(1, Faults::none());
            // The listener, twenty that wait, and three.
            config.descriptors_max = 24;
            builder.sim(config)
        });
    }
);

cases!(
    /// The limit of threads: at most as many operations wait as there may be workers. One more fails, and its
    /// error contains the number. No accepted connection is lost to that limit, since accepting waits for a
    /// worker first.
    on_threads_an_operation_past_the_limit_of_workers_fails_with_that_limit,
    [threads Threads],
    |case| with_runtime(case, |builder| builder.workers(6), |case, runtime| {
        let says_why = |error: Error, operation| {
            assert_eq!((error.operation(), error.driver()), (operation, Some(case.driver())));
            assert!(error.is_driver_limit() && !error.is_cancelled());
            let text = error.to_string();
            assert!(text.contains("at most 6") && text.contains("Builder::workers"), "{text}");
        };
        let body = async {
            let mut listener = TcpListener::bind(anywhere()).unwrap();
            let address = listener.local_addr().unwrap();
            let (mut reader, mut writer) = pair().await;
            assert!(futures_util::poll!(Box::pin(writer.recv())).is_pending());
            let mut clients: Vec<_> =
                (0..6).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
            let mut served = Vec::new();
            let mut failures = Vec::new();
            while failures.is_empty() {
                match listener.accept().await {
                    Ok(mut stream) => {
                        let waiting = futures_util::poll!(Box::pin(stream.recv()));
                        assert!(waiting.is_pending(), "it has its worker: {waiting:?}");
                        served.push(stream);
                    }
                    Err(why) => failures.push(why),
                }
            }
            assert_eq!(served.len(), 5, "the sixth waits for what the reader says");
            says_why(failures.remove(0), "accept");
            // What need not wait is done as ever.
            writer.write_all("at once").await.0.unwrap();
            assert_eq!(&*reader.recv().await.unwrap(), b"at once");
            says_why(reader.recv().await.unwrap_err(), "recv");
            let (got, buffer) = reader.recv_into(Vec::with_capacity(10)).await;
            says_why(got.unwrap_err(), "recv");
            assert_eq!(buffer.capacity(), 10, "it comes back");
            // Every accepted connection is served.
            for (client, stream) in clients.iter_mut().zip(&mut served) {
                client.write_all(b"and echoed").unwrap();
                let lease = stream.recv().await.unwrap();
                stream.write_all(lease).await.0.unwrap();
                let mut answer = [0; 10];
                client.read_exact(&mut answer).unwrap();
                assert_eq!(&answer, b"and echoed");
            }
            // One that ends leaves its worker to the next.
            served.remove(0).close().await;
            let mut wait = Box::pin(reader.recv());
            assert!(futures_util::poll!(&mut wait).is_pending());
            yield_now().await;
            assert!(futures_util::poll!(&mut wait).is_pending());
            drop(wait);
            writer.write_all("later").await.0.unwrap();
            assert_eq!(&*reader.recv().await.unwrap(), b"later");
        };
        runtime.block_on(body).unwrap();
    })
);

cases!(
    /// Connections that follow each other need no more workers than there are connections at a time: the
    /// limit has room for those that are on their way back.
    on_threads_a_connection_that_is_closed_leaves_its_place_at_once,
    [threads Threads],
    |case| with_runtime(case, |builder| builder.workers(2), |_, runtime| {
        let body = async {
            let (mut stays, _far) = UnixStream::pair().unwrap();
            assert!(futures_util::poll!(Box::pin(stays.recv())).is_pending());
            for round in 0..100 {
                let (mut near, _far) = UnixStream::pair().unwrap();
                let waiting = futures_util::poll!(Box::pin(near.recv()));
                assert!(waiting.is_pending(), "{round}: {waiting:?}");
            }
            // Of those that stay there are two.
            let (mut second, _far) = UnixStream::pair().unwrap();
            assert!(futures_util::poll!(Box::pin(second.recv())).is_pending());
            let (mut third, _far) = UnixStream::pair().unwrap();
            let why = third.recv().await.unwrap_err();
            assert!(why.is_driver_limit(), "{why}");
        };
        runtime.block_on(body).unwrap();
    })
);

cases!(
    /// A connection is accepted on the promise of a worker, and no other operation takes that one.
    on_threads_an_accepted_connection_waits_with_the_worker_it_was_accepted_on,
    [threads Threads],
    |case| with_runtime(case, |builder| builder.workers(2), |_, runtime| {
        let far = std::net::TcpListener::bind(anywhere()).unwrap();
        let mut fars = Vec::new();
        let mut outgoing = || {
            fars.push(std::net::TcpStream::connect(far.local_addr().unwrap()).unwrap());
            TcpStream::from_std(far.accept().unwrap().0).unwrap()
        };
        let body = async {
            let mut listener = TcpListener::bind(anywhere()).unwrap();
            let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let mut accepted = listener.accept().await.unwrap();
            let (mut one, mut other) = (outgoing(), outgoing());
            // One worker is left for these two.
            let (mut first, mut second) = (Box::pin(one.recv()), Box::pin(other.recv()));
            assert!(futures_util::poll!(&mut first).is_pending());
            let why = loop {
                if let std::task::Poll::Ready(told) = futures_util::poll!(&mut second) {
                    break told.unwrap_err();
                }
                yield_now().await;
            };
            assert!(why.is_driver_limit(), "{why}");
            let mut receive = Box::pin(accepted.recv());
            assert!(futures_util::poll!(&mut receive).is_pending());
            client.write_all(b"kept").unwrap();
            assert_eq!(&*receive.await.unwrap(), b"kept");
            assert!(futures_util::poll!(&mut first).is_pending());
        };
        runtime.block_on(body).unwrap();
    })
);

cases!(
    /// These operations never complete by themselves; a runtime that ends reaps them all in time, and closes
    /// its descriptors.
    a_shutdown_ends_hundreds_of_operations_that_would_never_complete,
    all,
    |case| with_runtime(case, |builder| builder.entries(16), |case, runtime| {
        let ends = runtime
            .block_on(async {
                let mut ends = Vec::new();
                for _ in 0..60 {
                    let (mut silent, mut receiving) = pair().await;
                    spawn(async move { drop(receiving.recv().await) }).detach();
                    spawn(async move { drop(silent.recv_into(Vec::with_capacity(100)).await) }).detach();
                    let (deaf, mut sending) = pair().await;
                    spawn(async move { drop(sending.write_all(flood(case)).await) }).detach();
                    ends.push(deaf);
                    let mut listener = TcpListener::bind(anywhere()).unwrap();
                    spawn(async move { drop(listener.accept().await) }).detach();
                }
                yield_now().await;
                yield_now().await;
                ends
            })
            .unwrap();
        assert!(runtime.in_flight() >= 4 * 60, "{}", runtime.dump());
        // Streams may outlive what they stood on.
        std::mem::forget(ends);
    })
);
