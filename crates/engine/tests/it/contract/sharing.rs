//! Sockets shared by several descriptors: they have one mode, and no driver may depend on what others do to
//! it.

use crate::peer::anywhere;
use crate::support::{Case, alone, run, watched};
use futures_util::future::{Either, select};
use ringroad_engine::net::{
    Canceller, TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream,
};
use ringroad_engine::time::sleep;
use ringroad_engine::{Remote, spawn};
use std::future::Future;
use std::io::Read;
use std::net;
use std::os::fd::{AsFd, AsRawFd};
use std::pin::pin;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// The drivers that can share a listener.
const REAL: [Case; 6] =
    [Case::Epoll, Case::Poll, Case::Select, Case::Threads, Case::IoUring, Case::IoUringPlain];

/// Far above the time that a timer of a millisecond needs.
const STANDS_STILL: Duration = Duration::from_secs(60);

/// A runtime on its own thread that greets every client of a listener.
struct Greeter {
    case: Case,
    remote: Remote,
    thread: thread::JoinHandle<u64>,
}

impl Greeter {
    /// Returns once it has taken over the listener.
    fn start(case: Case, listener: net::TcpListener) -> Greeter {
        let (tell, told) = mpsc::channel();
        let thread = thread::spawn(move || {
            let runtime = case.builder().build().expect("the driver is to be had here");
            let greeted = runtime.block_on(async {
                let mut listener = TcpListener::from_std(listener).unwrap();
                CANCELLER.set(Some(listener.canceller()));
                tell.send(runtime.remote()).unwrap();
                let mut greeted = 0;
                while let Ok(mut client) = listener.accept().await {
                    client.write_all("welcome").await.0.unwrap();
                    client.close().await;
                    greeted += 1;
                }
                greeted
            });
            greeted.unwrap()
        });
        Greeter { case, remote: told.recv().unwrap(), thread }
    }

    /// Panics if the timers of this runtime do not run.
    fn ticks(&self) {
        let (tell, told) = mpsc::channel();
        let asked = self.remote.spawn(move || async move {
            sleep(Duration::from_millis(1)).await;
            let _ = tell.send(());
        });
        asked.unwrap();
        told.recv_timeout(STANDS_STILL).unwrap_or_else(|_| panic!("{:?} stands still", self.case));
    }

    fn stop(self) -> u64 {
        let stop = || CANCELLER.take().expect("it accepts").cancel();
        self.remote.spawn(move || async move { stop() }).unwrap();
        self.thread.join().unwrap()
    }
}

thread_local! {
    static CANCELLER: std::cell::Cell<Option<Canceller>> = const { std::cell::Cell::new(None) };
}

// One of them may be select. It needs descriptors below 1,024, which concurrent tests with many connections
// may hold.
cases!(two_runtimes_share_one_listener_whatever_their_drivers_are, real, |case| alone(None, || watched(
    case,
    |case, _| {
        const CLIENTS: u64 = 25;
        for other in REAL.into_iter().filter(|other| !other.is_refused()) {
            let ours = net::TcpListener::bind(anywhere()).unwrap();
            let address = ours.local_addr().unwrap();
            let theirs = ours.try_clone().unwrap();
            // In this order, because the second may change a mode of the socket that the first depends on.
            let greeters = [Greeter::start(case, ours), Greeter::start(other, theirs)];
            for _ in 0..CLIENTS {
                let mut greeting = String::new();
                net::TcpStream::connect(address).unwrap().read_to_string(&mut greeting).unwrap();
                assert_eq!(greeting, "welcome");
                // One of them has accepted the client; the other saw the readiness pass.
                greeters.iter().for_each(Greeter::ticks);
            }
            let greeted: u64 = greeters.into_iter().map(Greeter::stop).sum();
            assert_eq!(greeted, CLIENTS, "with {other:?}");
        }
    }
)));

/// The runtime continues while this waits.
async fn waits(operation: impl Future) {
    match select(pin!(operation), pin!(sleep(Duration::from_millis(5)))).await {
        Either::Left(_) => panic!("there was nothing to do"),
        Either::Right(_) => {}
    }
}

fn real(case: Case, scenario: impl AsyncFnOnce() + Send + 'static) {
    run(case, |builder| builder, move |_| async move { scenario().await });
}

cases!(a_stream_that_another_descriptor_makes_blocking_stops_no_runtime, real, |case| real(
    case,
    async || {
        let listener = net::TcpListener::bind(anywhere()).unwrap();
        let peer = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket = listener.accept().unwrap().0;
        let shared = socket.try_clone().unwrap();
        let mut stream = TcpStream::from_std(socket).unwrap();
        shared.set_nonblocking(false).unwrap();
        waits(stream.recv()).await;
        // So many that the socket is not known to be empty now.
        std::io::Write::write_all(&mut &peer, b"1234").unwrap();
        let mut four = Vec::new();
        four.reserve_exact(4);
        assert_eq!(stream.recv_into(four).await.0.unwrap(), 4);
        waits(stream.recv()).await;
        // More than fits.
        let (_, mut writer) = stream.split();
        let mut all = Box::pin(writer.write_all(vec![7; 32 << 20]));
        waits(&mut all).await;
        let reader = thread::spawn(move || {
            let mut bytes = Vec::new();
            { peer }.read_to_end(&mut bytes).unwrap();
            bytes.len()
        });
        all.as_mut().await.0.unwrap();
        drop(all);
        writer.shutdown().unwrap();
        drop((writer, shared));
        assert_eq!(reader.join().unwrap(), 32 << 20);
    }
));

cases!(a_socket_of_datagrams_that_another_descriptor_makes_blocking_stops_no_runtime, real, |case| real(
    case,
    async || {
        let socket = net::UdpSocket::bind(anywhere()).unwrap();
        let shared = socket.try_clone().unwrap();
        let mut ours = UdpSocket::from_std(socket).unwrap();
        shared.set_nonblocking(false).unwrap();
        let peer = net::UdpSocket::bind(anywhere()).unwrap();
        for _ in 0..3 {
            waits(ours.recv_from(Vec::with_capacity(10))).await;
            peer.send_to(b"one", ours.local_addr().unwrap()).unwrap();
            let (received, buffer) = ours.recv_from(Vec::with_capacity(10)).await;
            received.unwrap();
            assert_eq!(buffer, b"one");
        }
    }
));

/// Returns whether an operation on this socket would wait.
fn blocks(socket: impl AsFd) -> bool {
    // SAFETY: fcntl(2) with the number of an open descriptor.
    let flags = unsafe { libc::fcntl(socket.as_fd().as_raw_fd(), libc::F_GETFL) };
    flags >= 0 && flags & libc::O_NONBLOCK == 0
}

cases!(what_leaves_for_std_blocks_as_what_std_makes_does, real, |case| real(case, async || {
    let mut listener = TcpListener::bind(anywhere()).unwrap();
    let address = listener.local_addr().unwrap();
    let connecting = spawn(async move { TcpStream::connect(address).await.unwrap() });
    let accepted = listener.accept().await.unwrap();
    let connected = connecting.await.unwrap();
    listener.canceller().cancel();
    while listener.accept().await.is_ok() {}
    let adopted = net::UdpSocket::bind(anywhere()).unwrap();
    adopted.set_nonblocking(true).unwrap();
    assert!(blocks(accepted.into_std().unwrap()));
    assert!(blocks(connected.into_std().unwrap()));
    assert!(blocks(listener.into_std().unwrap()));
    assert!(blocks(UdpSocket::bind(anywhere()).unwrap().into_std().unwrap()));
    assert!(blocks(UdpSocket::from_std(adopted).unwrap().into_std().unwrap()));
    let (one, other) = UnixStream::pair().unwrap();
    assert!(blocks(one.into_std().unwrap()) && blocks(other.into_std().unwrap()));
    let (one, other) = UnixDatagram::pair().unwrap();
    assert!(blocks(one.into_std().unwrap()) && blocks(other.into_std().unwrap()));
    let listener = UnixListener::bind(crate::support::abstract_name()).unwrap();
    assert!(blocks(listener.into_std().unwrap()));
}));
