//! Large bytes that never change: they arrive as they are, and are given back once no kernel reads them,
//! whether it copies them or not. (Case `IoUring` sends them without a copy wherever it may, `IoUringPlain`
//! nowhere.)

use crate::support::{Case, narrow_pair, pair, pattern, poll_once, receive, receive_all, runtime};
use futures_util::future::{Either, join_all, select};
use ringroad_engine::net::{SocketOption, TcpStream};
use ringroad_engine::{Counters, Features, spawn, yield_now};
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const BYTES: usize = 200_000;

fn shared(bytes: usize) -> Rc<[u8]> {
    pattern(bytes).into()
}

/// Turns until there is no other owner.
async fn given_back(bytes: &Rc<[u8]>) {
    while Rc::strong_count(bytes) > 1 {
        yield_now().await;
    }
}

fn counters() -> Counters {
    runtime(|runtime| runtime.counters())
}

everywhere!(large_bytes_that_never_change_arrive_as_they_are, |_| async {
    let (mut ours, mut theirs) = pair().await;
    let fixed: &'static [u8] = pattern(BYTES).leak();
    let counted = shared(BYTES + 1);
    let of_threads: Arc<[u8]> = pattern(BYTES + 2).into();
    let reader = spawn(async move { receive_all(&mut theirs).await });
    let mut expected = Vec::new();
    for _ in 0..4 {
        ours.write_all(fixed).await.0.unwrap();
        ours.write_all("a little").await.0.unwrap();
        ours.write_all(Rc::clone(&counted)).await.0.unwrap();
        let (mut rest, mut from) = (Rc::clone(&counted), 1000);
        while from < counted.len() {
            let (sent, back) = ours.write_from(rest, from).await;
            (rest, from) = (back, sent.unwrap());
        }
        ours.write_all(Arc::clone(&of_threads)).await.0.unwrap();
        expected.extend([fixed, b"a little", &*counted, &counted[1000..], &*of_threads].concat());
    }
    drop(ours);
    assert!(reader.await.unwrap() == expected);
    given_back(&counted).await;
    while Arc::strong_count(&of_threads) > 1 {
        yield_now().await;
    }
});

everywhere!(ten_connections_at_once_get_the_same_bytes, |_| async {
    let bytes = shared(BYTES);
    let mut connections = Vec::new();
    for _ in 0..10 {
        let (mut ours, mut theirs) = pair().await;
        let bytes = Rc::clone(&bytes);
        connections.push(spawn(async move {
            for _ in 0..3 {
                ours.write_all(Rc::clone(&bytes)).await.0.unwrap();
            }
        }));
        connections.push(spawn(async move {
            assert!(receive_all(&mut theirs).await == pattern(BYTES).repeat(3));
        }));
    }
    for connection in join_all(connections).await {
        connection.unwrap();
    }
    given_back(&bytes).await;
});

scenario!(what_was_sent_arrives_though_connection_and_bytes_are_dropped, |_| async {
    let (mut ours, mut theirs) = pair().await;
    let bytes = shared(BYTES);
    // As much as goes without a receiver reading.
    let (sent, back) = ours.write(Rc::clone(&bytes)).await;
    let sent = sent.unwrap();
    drop((ours, back));
    assert!(receive_all(&mut theirs).await == bytes[..sent]);
    given_back(&bytes).await;
});

scenario!(a_send_dropped_midway_gives_its_bytes_back_in_the_end, |case| async move {
    let bytes = shared(4 << 20);
    let (mut ours, mut theirs) = narrow_pair(case).await;
    let send = ours.write_all(Rc::clone(&bytes));
    let mut got = match select(pin!(send), pin!(theirs.recv())).await {
        Either::Left(_) => panic!("there is no room for so much"),
        Either::Right((lease, _)) => lease.unwrap().to_vec(),
    };
    let why = ours.write_all("after").await.0.unwrap_err();
    assert!(why.to_string().contains("dropped midway"), "{why}");
    drop(ours);
    got.extend(receive_all(&mut theirs).await);
    assert!(bytes.starts_with(&got));
    given_back(&bytes).await;
});

scenario!(a_cancelled_send_gives_its_bytes_back_in_the_end, |case| async move {
    let bytes = shared(4 << 20);
    let (mut ours, theirs) = narrow_pair(case).await;
    let canceller = ours.canceller();
    {
        let mut send = pin!(ours.write_all(Rc::clone(&bytes)));
        assert!(poll_once(send.as_mut()).await.is_none());
        canceller.cancel();
        let (sent, back) = send.await;
        assert_eq!(sent.unwrap_err().raw_os_error(), Some(libc::ECANCELED));
        assert!(back == bytes);
    }
    theirs.set_option(SocketOption::Linger(Some(Duration::ZERO))).unwrap();
    drop((ours, theirs));
    given_back(&bytes).await;
});

scenario!(bytes_in_flight_to_a_peer_that_resets_are_returned, |_| async {
    let (mut ours, theirs) = pair().await;
    let bytes = shared(BYTES);
    let (sent, back) = ours.write(Rc::clone(&bytes)).await;
    assert!(sent.unwrap() > 0);
    drop(back);
    // Unread bytes reset it as well; this does it also where there is none.
    theirs.set_option(SocketOption::Linger(Some(Duration::ZERO))).unwrap();
    drop(theirs);
    given_back(&bytes).await;
    drop(ours);
});

scenario!(
    where_the_kernel_copies_a_connection_tries_once,
    |builder| builder.features(Features::default()),
    |case| async move {
        let bytes = shared(BYTES);
        for connection in 1..=2 {
            let (mut ours, mut theirs) = pair().await;
            let eligible = ours.sends_without_copy(BYTES);
            assert!(!ours.sends_without_copy(1000), "too few to be worth it");
            let exchange = async |ours: &mut TcpStream, theirs: &mut TcpStream| {
                let (sent, got) =
                    futures_util::join!(ours.write_all(Rc::clone(&bytes)), receive(theirs, BYTES));
                sent.0.unwrap();
                assert!(got == *bytes);
            };
            exchange(&mut ours, &mut theirs).await;
            if case.driver() != ringroad_engine::DriverName::IoUring {
                assert!(!eligible && counters().zero_copy_sends == 0);
                continue;
            }
            if !eligible || counters().zero_copy_sends == 0 {
                return eprintln!("skipped: this kernel has no such sends, or does not report (Linux 6.2)");
            }
            // It is told when the last of it has been acknowledged.
            while counters().zero_copy_copied < connection {
                yield_now().await;
            }
            assert!(!ours.sends_without_copy(BYTES));
            for _ in 0..3 {
                exchange(&mut ours, &mut theirs).await;
            }
            let counters = counters();
            assert_eq!((counters.zero_copy_sends, counters.zero_copy_copied), (connection, connection));
        }
        given_back(&bytes).await;
    }
);

cases!(
    /// The peer has not read, and does when all is over: it gets what was sent, not what the memory was used
    /// for since.
    a_runtime_ends_while_the_kernel_may_still_read,
    real,
    |case: Case| {
        let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        listener.set_recv_buffer_size(8 * 1024).unwrap();
        listener.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        listener.listen(1).unwrap();
        let address = listener.local_addr().unwrap().as_socket().unwrap();
        let runtime = case.builder().build().unwrap();
        let bytes = shared(BYTES);
        let (sent, lent) = runtime
            .block_on(async {
                let mut ours = TcpStream::connect(address).await.unwrap();
                ours.set_option(SocketOption::SendBuffer(4 * BYTES as u32)).unwrap();
                let sent = ours.write(Rc::clone(&bytes)).await.0.unwrap();
                (sent, Rc::strong_count(&bytes) > 1)
            })
            .unwrap();
        let mut peer = std::net::TcpStream::from(listener.accept().unwrap().0);
        drop(bytes);
        let over = runtime.shutdown(Duration::from_millis(20));
        // What cannot be waited for is told, and never freed.
        assert_eq!(over.map_err(|stuck| stuck.operations), if lent { Err(1) } else { Ok(()) });
        let reused: Vec<_> = (0..20).map(|_| vec![0xee; BYTES]).collect();
        let mut got = Vec::new();
        peer.read_to_end(&mut got).unwrap();
        drop(reused);
        assert!(got == pattern(BYTES)[..sent]);
    }
);
