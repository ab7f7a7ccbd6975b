//! A connection leaves its runtime for another, with another driver or the same, and nothing of it is lost.
//!
//! First what every driver does by itself: out and in again in one runtime, in the simulation with everything
//! going wrong. Then from each driver to each, between threads, against a peer of the system's own sockets.

use crate::peer::anywhere;
use crate::support::{
    Case, alone, listener, narrow_pair, numbers, pair, pair_by, pattern, poll_once, receive, receive_all,
    run, runtime, some_turns, watched, with_runtime,
};
use futures_util::future::{Either, select};
use ringroad_engine::net::{Detached, SocketOption, TcpListener, TcpStream, UdpSocket};
use ringroad_engine::{spawn, sync, yield_now};
use std::future::Future;
use std::io::{Read, Write};
use std::net;
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const RESET: SocketOption = SocketOption::Linger(Some(Duration::ZERO));

/// Out of the runtime, and into it again.
async fn out_and_in(stream: TcpStream) -> TcpStream {
    stream.detach().await.unwrap().attach().unwrap()
}

everywhere!(bytes_received_before_a_move_are_read_after_it, |_| async {
    // Nothing under way; a receive that is no longer awaited; a dropped receive into memory; bytes that did
    // not fit.
    for before in 0..4 {
        let (mut ours, mut theirs) = pair().await;
        match before {
            1 => assert!(poll_once(pin!(theirs.recv())).await.is_none()),
            2 => assert!(poll_once(pin!(theirs.recv_into(Vec::with_capacity(100)))).await.is_none()),
            3 => {
                assert!(poll_once(pin!(theirs.recv())).await.is_none());
                ours.write_all("!").await.0.unwrap();
                assert_eq!(receive(&mut theirs, 1).await, b"!");
            }
            _ => {}
        }
        ours.write_all("before and ").await.0.unwrap();
        some_turns().await;
        let detached = theirs.detach().await.unwrap();
        assert!(b"before and ".starts_with(detached.unread()), "{detached:?}");
        ours.write_all("after").await.0.unwrap();
        let mut theirs = detached.attach().unwrap();
        assert_eq!(receive(&mut theirs, 16).await, b"before and after", "before: {before}");
        theirs.write_all("and back").await.0.unwrap();
        assert_eq!(receive(&mut ours, 8).await, b"and back");
    }
});

everywhere!(a_stream_that_moves_again_and_again_loses_nothing, |_| async {
    const BYTES: usize = 200_000;
    let (mut ours, mut theirs) = pair().await;
    let writer = spawn(async move {
        for piece in pattern(BYTES).chunks(7_001) {
            ours.write_all(piece.to_vec()).await.0.unwrap();
        }
        ours
    });
    let (mut got, mut draw) = (Vec::new(), numbers(3));
    while got.len() < BYTES {
        match draw(4) {
            0 => theirs = out_and_in(theirs).await,
            1 => got.extend(
                poll_once(pin!(theirs.recv()))
                    .await
                    .map(Result::unwrap)
                    .iter()
                    .flat_map(|lease| lease.to_vec()),
            ),
            2 => {
                // One that is dropped on the way, or has something.
                let received = poll_once(pin!(theirs.recv_into(Vec::with_capacity(1 + draw(5_000))))).await;
                if let Some((received, part)) = received {
                    received.unwrap();
                    got.extend_from_slice(&part);
                }
            }
            _ => got.extend_from_slice(&theirs.recv().await.unwrap()),
        }
    }
    assert!(got == pattern(BYTES));
    let mut ours = writer.await.unwrap();
    // And in the other direction all is as it was.
    theirs.write_all("heard").await.0.unwrap();
    assert_eq!(receive(&mut ours, 5).await, b"heard");
});

everywhere!(the_end_goes_along_seen_or_not, |_| async {
    for seen in 0..3 {
        let (mut ours, mut theirs) = pair().await;
        if seen > 0 {
            assert!(poll_once(pin!(theirs.recv())).await.is_none());
        }
        ours.write_all("the last").await.0.unwrap();
        ours.shutdown(std::net::Shutdown::Write).unwrap();
        some_turns().await;
        if seen == 2 {
            assert_eq!(receive_all(&mut theirs).await, b"the last");
        }
        let mut theirs = out_and_in(theirs).await;
        let expected: &[u8] = if seen == 2 { b"" } else { b"the last" };
        assert_eq!(receive_all(&mut theirs).await, expected, "seen: {seen}");
        assert!(theirs.recv().await.unwrap().is_empty(), "it stays the end");
        theirs.write_all("half-closed").await.0.unwrap();
        assert_eq!(receive(&mut ours, 11).await, b"half-closed");
    }
});

scenario!(a_reset_goes_along_and_is_told_once, |_| async {
    for armed in 0..3 {
        let (ours, mut theirs) = pair().await;
        match armed {
            1 => assert!(poll_once(pin!(theirs.recv())).await.is_none()),
            2 => assert!(poll_once(pin!(theirs.recv_into(Vec::with_capacity(10)))).await.is_none()),
            _ => {}
        }
        some_turns().await;
        ours.set_option(RESET).unwrap();
        ours.close().await;
        some_turns().await;
        let mut theirs = out_and_in(theirs).await;
        let told = theirs.recv().await.unwrap_err();
        assert_eq!(told.raw_os_error(), Some(libc::ECONNRESET), "armed: {armed}");
        // Told already, it is not told again over there.
        let mut theirs = out_and_in(theirs).await;
        assert!(theirs.recv().await.unwrap().is_empty());
    }
});

everywhere!(both_halves_together_move, |case| async move {
    let (mut ours, theirs) = narrow_pair(case).await;
    let (mut reader, mut writer) = theirs.split();
    let receiving = spawn(async move {
        assert_eq!(&*reader.recv().await.unwrap(), b"?");
        reader
    });
    let sending = spawn(async move {
        writer.write_all(pattern(50_000)).await.0.unwrap();
        writer
    });
    ours.write_all("?").await.0.unwrap();
    let got = receive(&mut ours, 50_000).await;
    assert!(got == pattern(50_000));
    let (reader, writer) = (receiving.await.unwrap(), sending.await.unwrap());
    let mut theirs = out_and_in(reader.reunite(writer).unwrap()).await;
    ours.write_all("whole").await.0.unwrap();
    assert_eq!(receive(&mut theirs, 5).await, b"whole");
});

scenario!(halves_of_two_connections_come_back, |_| async {
    let ((mut ours, theirs), (_, others)) = (pair().await, pair().await);
    let ((reader, writer), (_, other)) = (theirs.split(), others.split());
    let (reader, _) = reader.reunite(other).unwrap_err();
    let mut theirs = reader.reunite(writer).unwrap();
    theirs.write_all("still").await.0.unwrap();
    assert_eq!(receive(&mut ours, 5).await, b"still");
});

everywhere!(a_send_dropped_midway_is_waited_for_and_remembered, |case| async move {
    let (mut ours, mut theirs) = narrow_pair(case).await;
    {
        let send = pin!(ours.write_all(pattern(300_000)));
        match select(send, pin!(theirs.recv())).await {
            // On Linux 6.1 one call takes all of it, however narrow the connection.
            Either::Left(((all, _), _)) => {
                all.unwrap();
                return eprintln!("skipped: there is room for all of it");
            }
            Either::Right((received, _)) => assert!(!received.unwrap().is_empty()),
        }
    }
    let mut ours = out_and_in(ours).await;
    let why = ours.write_all("more").await.0.unwrap_err();
    assert_eq!(why.raw_os_error(), Some(libc::EPIPE), "{why}");
    theirs.write_all("other way").await.0.unwrap();
    assert_eq!(receive(&mut ours, 9).await, b"other way");
});

everywhere!(a_move_that_is_dropped_midway_closes_the_connection, |_| async {
    let (mut listener, address) = listener();
    for armed in [false, true] {
        let (mut ours, mut theirs) = pair_by(&mut listener, address).await;
        if armed {
            assert!(poll_once(pin!(theirs.recv())).await.is_none());
            some_turns().await;
        }
        {
            let mut detach = pin!(theirs.detach());
            // Some drivers are ready at once.
            let _ = poll_once(detach.as_mut()).await;
        }
        assert!(receive_all(&mut ours).await.is_empty(), "armed: {armed}");
        drop(ours);
        while runtime(|runtime| runtime.descriptors()) > 1 {
            yield_now().await;
        }
    }
});

scenario!(a_detached_connection_that_is_dropped_is_closed, |_| async {
    for unread in [false, true] {
        let (mut ours, mut theirs) = pair().await;
        assert!(poll_once(pin!(theirs.recv())).await.is_none());
        some_turns().await;
        if unread {
            ours.write_all("unread").await.0.unwrap();
            some_turns().await;
        }
        let detached = theirs.detach().await.unwrap();
        assert_eq!(runtime(|runtime| runtime.in_flight()), 0);
        drop(detached);
        // As on any other connection: closing it with unread bytes resets the peer.
        match ours.recv().await {
            Ok(lease) => assert!(!unread && lease.is_empty(), "{lease:?}"),
            Err(why) => assert!(unread && why.raw_os_error() == Some(libc::ECONNRESET), "{why}"),
        }
    }
});

everywhere!(what_knew_a_connection_before_its_move_knows_it_no_more, |_| async {
    let (mut ours, theirs) = pair().await;
    let canceller = theirs.canceller();
    // It comes back to the place it had.
    let mut theirs = out_and_in(theirs).await;
    {
        let mut recv = pin!(theirs.recv());
        assert!(poll_once(recv.as_mut()).await.is_none());
        canceller.cancel();
        some_turns().await;
        assert!(poll_once(recv.as_mut()).await.is_none(), "cancelled by somebody else's word");
    }
    ours.write_all("alive").await.0.unwrap();
    assert_eq!(receive(&mut theirs, 5).await, b"alive");
});

scenario!(its_options_go_along, |_| async {
    let (ours, _theirs) = pair().await;
    ours.set_option(SocketOption::KeepAlive(true)).unwrap();
    ours.set_option(RESET).unwrap();
    let ours = out_and_in(ours).await;
    assert_eq!(ours.option(SocketOption::KeepAlive(false)).unwrap(), SocketOption::KeepAlive(true));
    assert_eq!(ours.option(SocketOption::Linger(None)).unwrap(), RESET);
});

#[test]
fn a_simulated_connection_is_refused_by_every_other_runtime_and_comes_back() {
    watched(Case::Sim, |case, _| {
        let (home, other) = (case.builder().build().unwrap(), case.builder().build().unwrap());
        let (mut ours, detached) = home
            .block_on(async {
                let (ours, theirs) = pair().await;
                (ours, theirs.detach().await.unwrap())
            })
            .unwrap();
        let (why, detached) = other.block_on(async { detached.attach().unwrap_err() }).unwrap();
        assert!(why.to_string().contains("its own simulation"), "{why}");
        let real = Case::Poll.builder().build().unwrap();
        let (_, detached) = real.block_on(async { detached.attach().unwrap_err() }).unwrap();
        let exchange = async {
            let mut theirs = detached.attach().unwrap();
            ours.write_all("home").await.0.unwrap();
            assert_eq!(receive(&mut theirs, 4).await, b"home");
            // Dropped elsewhere, it is closed at home.
            theirs.detach().await.unwrap()
        };
        let detached = home.block_on(exchange).unwrap();
        drop(detached);
        assert!(home.block_on(async { receive_all(&mut ours).await.is_empty() }).unwrap());
    });
}

// ---- from each driver to each -----------------------------------------------------------------------------

const REAL: [Case; 6] =
    [Case::Epoll, Case::Poll, Case::Select, Case::Threads, Case::IoUring, Case::IoUringPlain];

/// Runs `body` from `case` to every driver that a connection can go to, in a process apart: one of the two
/// may be select, which has no room beside tests that hold thousands of descriptors.
fn to_each(case: Case, body: fn(Case, Case)) {
    alone(None, || {
        for other in REAL.into_iter().filter(|other| !other.is_refused()) {
            watched(case, move |case, _| body(case, other));
        }
    });
}

/// Runs on a thread and a runtime of their own, and checks that nothing stays there.
fn on<F, T>(case: Case, body: impl FnOnce() -> F + Send + 'static) -> T
where
    F: Future<Output = T>,
    T: Send + 'static,
{
    let thread = thread::spawn(move || {
        let runtime = case.builder().build().unwrap();
        let over = runtime.block_on(body()).unwrap();
        assert_eq!((runtime.in_flight(), runtime.descriptors()), (0, 0), "{}", runtime.dump());
        over
    });
    thread.join().unwrap_or_else(|why| std::panic::resume_unwind(why))
}

/// Two ends of one connection, of the system's own.
fn ends() -> (Arc<net::TcpStream>, net::TcpStream) {
    let listener = net::TcpListener::bind(crate::peer::anywhere()).unwrap();
    let far = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (Arc::new(far), listener.accept().unwrap().0)
}

fn say(mut far: &net::TcpStream, bytes: &[u8]) {
    far.write_all(bytes).unwrap();
}

fn everything_from(mut far: &net::TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    far.read_to_end(&mut all).unwrap();
    all
}

/// Begins to receive, and does not wait for it; nothing has come yet.
async fn arm(stream: &mut TcpStream) {
    assert!(poll_once(pin!(stream.recv())).await.is_none());
    some_turns().await;
}

cases!(
    /// There and back, with bytes on their way each time.
    a_connection_goes_to_any_driver_and_comes_back,
    real,
    |case| to_each(case, |case, other| {
        let (far, near) = ends();
        let peer = Arc::clone(&far);
        let detached = on(case, move || async move {
            let mut stream = TcpStream::from_std(near).unwrap();
            arm(&mut stream).await;
            say(&peer, b"one ");
            some_turns().await;
            let detached = stream.detach().await.unwrap();
            say(&peer, b"two ");
            detached
        });
        let peer = Arc::clone(&far);
        let detached = on(other, move || async move {
            let mut stream = detached.attach().unwrap();
            assert_eq!(receive(&mut stream, 8).await, b"one two ");
            arm(&mut stream).await;
            say(&peer, b"three ");
            stream.detach().await.unwrap()
        });
        say(&far, b"four");
        on(case, move || async move {
            let mut stream = detached.attach().unwrap();
            assert_eq!(receive(&mut stream, 10).await, b"three four");
            stream.write_all("heard").await.0.unwrap();
            stream.close().await;
        });
        assert_eq!(everything_from(&far), b"heard", "{case:?} to {other:?}");
    })
);

cases!(
    /// The runtime that has the connection afterwards sees them, whichever kernel queue, worker or ring took
    /// them in.
    the_end_and_a_reset_go_to_any_driver,
    real,
    |case| to_each(case, |case, other| {
        for (reset, read) in [(false, false), (false, true), (true, false), (true, true)] {
            let (far, near) = ends();
            let detached = on(case, move || async move {
                let mut stream = TcpStream::from_std(near).unwrap();
                arm(&mut stream).await;
                say(&far, b"last words");
                if reset {
                    socket2::SockRef::from(&*far).set_linger(Some(Duration::ZERO)).unwrap();
                }
                drop(far);
                some_turns().await;
                if read {
                    assert_eq!(receive(&mut stream, 10).await, b"last words");
                    some_turns().await;
                }
                stream.detach().await.unwrap()
            });
            on(other, move || async move {
                let mut stream = detached.attach().unwrap();
                if !read {
                    assert_eq!(receive(&mut stream, 10).await, b"last words");
                }
                let told = stream.recv().await.map(|lease| lease.len()).map_err(|why| why.raw_os_error());
                let expected = if reset { Err(Some(libc::ECONNRESET)) } else { Ok(0) };
                assert_eq!(told, expected, "{case:?} to {other:?}, read: {read}");
            });
        }
    })
);

/// A hop of a connection: how many bytes were received before, and how many hops are left.
type Hop = (Detached<TcpStream>, usize, usize);

/// How often the connection moves.
const MOVES: usize = 20;

/// Receives and checks bytes where the connection is, and sends it on; at the last hop to the end.
async fn hop(hop: Hop, all: &[u8], share: usize) -> Option<Hop> {
    let (detached, mut at, left) = hop;
    let mut stream = detached.attach().unwrap();
    let check = |at: &mut usize, bytes: &[u8]| {
        assert!(all[*at..].starts_with(bytes), "other bytes than were sent, from {at} on");
        *at += bytes.len();
    };
    stream.write_all([left as u8].as_slice().to_vec()).await.0.unwrap();
    if left == 0 {
        loop {
            let lease = stream.recv().await.unwrap();
            if lease.is_empty() {
                assert_eq!(at, all.len());
                stream.close().await;
                return None;
            }
            check(&mut at, &lease);
        }
    }
    // Counted from the start, so that what earlier hops took beyond their share adds up to nothing.
    let until = (MOVES - left) * share;
    while at < until {
        let lease = stream.recv().await.unwrap();
        assert!(!lease.is_empty(), "the end at {at} of {}", all.len());
        check(&mut at, &lease);
    }
    // Most of the time it moves with bytes in its way: of a receive that was dropped, for data that still
    // comes.
    if let Some(lease) = poll_once(pin!(stream.recv())).await {
        check(&mut at, &lease.unwrap());
    }
    Some((stream.detach().await.unwrap(), at, left - 1))
}

/// A runtime that connections hop to and from, until one has come to its end there.
fn station(
    case: Case,
    all: Arc<Vec<u8>>,
    share: usize,
    arrivals: sync::Receiver<Hop>,
    departures: sync::Sender<Hop>,
) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let runtime = case.builder().build().unwrap();
        let work = async {
            while let Ok(arrived) = arrivals.recv().await {
                let Some(leaving) = hop(arrived, &all, share).await else { break };
                departures.send(leaving).await.unwrap();
            }
        };
        runtime.block_on(work).unwrap();
        assert_eq!((runtime.in_flight(), runtime.descriptors()), (0, 0), "{}", runtime.dump());
        assert_eq!(runtime.counters().stale, 0);
    })
}

cases!(
    /// Ten megabytes and twenty moves, while the peer goes on sending.
    a_stream_of_bytes_moves_between_any_two_drivers,
    real,
    |case| to_each(case, |case, other| {
        const BYTES: usize = 10_000_000;
        let all = Arc::new(pattern(BYTES));
        let (far, near) = ends();
        let first = on(case, move || async move { TcpStream::from_std(near).unwrap().detach().await.unwrap() });
        let writer = thread::spawn({
            let all = Arc::clone(&all);
            move || {
                say(&far, &all);
                far.shutdown(net::Shutdown::Write).unwrap();
                everything_from(&far)
            }
        });
        let ((to_here, here), (to_there, there)) = (sync::bounded(1), sync::bounded(1));
        to_there.send_blocking((first, 0, MOVES - 1)).unwrap();
        // Each move also takes a large piece or two along.
        let share = BYTES / (2 * MOVES);
        let stations = [
            station(case, Arc::clone(&all), share, here, to_there),
            station(other, all, share, there, to_here),
        ];
        stations.into_iter().for_each(|station| station.join().unwrap());
        let answers = writer.join().unwrap();
        assert_eq!(answers, (0..MOVES as u8).rev().collect::<Vec<_>>(), "{case:?} to {other:?}");
    })
);

cases!(
    /// Or every byte that comes would wake a runtime that has nothing to do with it.
    a_set_forgets_a_connection_that_leaves_it,
    [epoll Epoll],
    |case| alone(None, || with_runtime(case, |builder| builder, |_, runtime| {
        let watched = || -> usize {
            let infos = std::fs::read_dir("/proc/self/fdinfo").unwrap();
            let infos = infos.filter_map(|info| std::fs::read_to_string(info.unwrap().path()).ok());
            infos.map(|info| info.lines().filter(|line| line.starts_with("tfd:")).count()).sum()
        };
        let alarm = watched();
        let (far, near) = ends();
        let talk = async {
            let mut stream = TcpStream::from_std(near).unwrap();
            arm(&mut stream).await;
            assert_eq!(watched(), alarm + 1);
            let detached = stream.detach().await.unwrap();
            assert_eq!(watched(), alarm);
            let mut stream = detached.attach().unwrap();
            arm(&mut stream).await;
            say(&far, b"watched again");
            assert_eq!(receive(&mut stream, 13).await, b"watched again");
        };
        runtime.block_on(talk).unwrap();
    }))
);

cases!(
    /// So it also goes out where no other descriptor could be had, and no second one keeps its connection
    /// open.
    what_is_taken_out_is_the_descriptor_itself,
    real,
    |case| run(case, |builder| builder, |_| async {
        let listener = net::TcpListener::bind(anywhere()).unwrap();
        let number = listener.as_raw_fd();
        let near = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut far = listener.accept().unwrap().0;
        let listener = TcpListener::from_std(listener).unwrap();
        assert_eq!(listener.into_std().map_err(|(why, _)| why).unwrap().as_raw_fd(), number);
        let number = near.as_raw_fd();
        let mut near = TcpStream::from_std(near).unwrap();
        near.write_all("sent").await.0.unwrap();
        let near = near.into_std().map_err(|(why, _)| why).unwrap();
        assert_eq!(near.as_raw_fd(), number);
        assert_eq!(runtime(|runtime| runtime.descriptors()), 0);
        drop(near);
        let mut got = String::new();
        far.read_to_string(&mut got).unwrap();
        assert_eq!(got, "sent");
        let datagrams = net::UdpSocket::bind(anywhere()).unwrap();
        let number = datagrams.as_raw_fd();
        let datagrams = UdpSocket::from_std(datagrams).unwrap();
        assert_eq!(datagrams.into_std().map_err(|(why, _)| why).unwrap().as_raw_fd(), number);
    })
);
