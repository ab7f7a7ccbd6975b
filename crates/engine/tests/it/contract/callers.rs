//! Callers: futures polled with wakers that are not the engine's, and in runtimes other than their own.

use crate::peer::Echo;
use crate::support::{
    Case, listener, narrow_pair, pair, pattern, poll_once, receive, receive_all, some_turns,
};
use futures_util::join;
use ringroad_engine::net::{TcpStream, UdpSocket};
use ringroad_engine::time::sleep;
use ringroad_engine::{Error, Runtime, spawn, yield_now};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::net::{Ipv4Addr, Shutdown};
use std::pin::pin;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};
use std::time::Duration;

thread_local! {
    /// How often a [`stranger`] was cloned.
    static CLONES: Cell<usize> = const { Cell::new(0) };
    /// The wakers that any of them wakes.
    static BEHIND: RefCell<Vec<Waker>> = const { RefCell::new(Vec::new()) };
}

/// What a foreign waker may do at any time: anything. This one inspects all of the I/O, and begins an
/// operation.
fn use_the_runtime() {
    assert!(Runtime::dump_current().is_some_and(|dump| dump.contains("operations")));
    spawn(sleep(Duration::ZERO)).detach();
}

/// Its functions do not look at the pointer they get.
static STRANGER: RawWakerVTable = RawWakerVTable::new(
    |nothing| {
        CLONES.set(CLONES.get() + 1);
        use_the_runtime();
        RawWaker::new(nothing, &STRANGER)
    },
    |_| wake_behind(),
    |_| wake_behind(),
    |_| {
        if Runtime::dump_current().is_some() {
            use_the_runtime();
        }
    },
);

fn wake_behind() {
    use_the_runtime();
    BEHIND.take().into_iter().for_each(Waker::wake);
}

/// Polls `future` with a waker that is not the engine's, and uses the runtime whenever anything is done with
/// it.
async fn by_a_stranger<F: Future>(future: F) -> F::Output {
    // SAFETY: the functions of the table never follow the pointer, keep nothing of a thread's, and are only
    // called on this one: a runtime's wakers stay in it.
    let waker = unsafe { Waker::new(std::ptr::null(), &STRANGER) };
    let mut future = pin!(future);
    poll_fn(|context| {
        BEHIND.with_borrow_mut(|behind| behind.push(context.waker().clone()));
        future.as_mut().poll(&mut Context::from_waker(&waker))
    })
    .await
}

everywhere!(a_waker_that_uses_the_runtime_while_it_is_cloned_may_wait_for_anything, |case| {
    by_a_stranger(async move {
        let before = CLONES.get();
        let (mut ours, mut theirs) = pair().await;
        // Receives that wait, of every kind.
        let (lease, sent) = join!(theirs.recv(), async {
            some_turns().await;
            ours.write_all("a lease").await.0
        });
        sent.unwrap();
        assert!(b"a lease".starts_with(&lease.unwrap()));
        let (ended, _) = join!(receive_all(&mut theirs), async {
            some_turns().await;
            ours.shutdown(Shutdown::Write).unwrap();
        });
        drop(ended);
        let (got, sent) = join!(receive(&mut ours, 3), async {
            some_turns().await;
            theirs.write_all("own").await.0
        });
        sent.unwrap();
        assert_eq!(got, b"own");
        // A close, and a leave, with something under way.
        assert!(poll_once(pin!(ours.recv())).await.is_none());
        ours.detach().await.unwrap().attach().unwrap().close().await;
        // Sends that wait.
        let (mut ours, mut theirs) = narrow_pair(case).await;
        let (sent, got) = join!(ours.write_all(pattern(300_000)), async {
            some_turns().await;
            receive(&mut theirs, 300_000).await
        });
        sent.0.unwrap();
        assert!(got == pattern(300_000));
        // More answers than there are in one poll.
        let server = Echo::start();
        let mut client = TcpStream::connect(server.address).await.unwrap();
        for _ in 0..100 {
            client.write_all("x").await.0.unwrap();
        }
        assert_eq!(receive(&mut client, 100).await, [b'x'; 100]);
        drop(client);
        server.end().await;
        // Datagrams, and time.
        let mut one = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let mut other = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let address = one.local_addr().unwrap();
        let ((received, datagram), _) = join!(one.recv_from(Vec::with_capacity(8)), async {
            some_turns().await;
            other.send_to("datagram", address).await.0.unwrap();
        });
        received.unwrap();
        assert_eq!(datagram, b"datagram");
        sleep(Duration::from_millis(2)).await;
        assert!(CLONES.get() > before, "nobody has cloned it");
    })
});

runtimes!(a_socket_polled_in_another_runtime_is_an_error_and_continues_in_its_own, |case| {
    let runtime = |case: Case| case.builder().build().expect("the driver is to be had here");
    let (home, abroad) = (runtime(case), runtime(case));
    let says_why = |error: Error| {
        assert!(!error.is_cancelled(), "{error}");
        let text = error.to_string();
        assert!(text.contains("is of runtime") && text.contains("detach"), "{text}");
    };
    let ((mut ours, mut theirs), (mut waits, address), mut datagrams) = home
        .block_on(async {
            let datagrams = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
            (pair().await, listener(), datagrams)
        })
        .unwrap();
    // One that waits already, where it belongs.
    {
        let mut waiting = Box::pin(theirs.recv());
        assert!(home.block_on(async { poll_once(waiting.as_mut()).await }).unwrap().is_none());
        says_why(abroad.block_on(waiting).unwrap().unwrap_err());
    }
    abroad
        .block_on(async {
            says_why(ours.recv().await.unwrap_err());
            let (sent, bytes) = ours.write_all(b"bytes".to_vec()).await;
            says_why(sent.unwrap_err());
            assert_eq!(bytes, b"bytes", "the buffer comes back");
            let (received, buffer) = ours.recv_into(Vec::with_capacity(100)).await;
            says_why(received.unwrap_err());
            assert_eq!(buffer.capacity(), 100);
            says_why(waits.accept().await.unwrap_err());
            let (received, buffer) = datagrams.recv_from(Vec::with_capacity(100)).await;
            says_why(received.unwrap_err());
            assert_eq!(buffer.capacity(), 100);
            // By whatever waker.
            says_why(by_a_stranger(ours.recv()).await.unwrap_err());
        })
        .unwrap();
    let talk = async {
        ours.write_all("as ever").await.0.unwrap();
        assert_eq!(receive(&mut theirs, 7).await, b"as ever");
        let (connected, accepted) = join!(TcpStream::connect(address), waits.accept());
        drop((connected.unwrap(), accepted.unwrap()));
        yield_now().await;
    };
    home.block_on(talk).unwrap();
    // Outside of any runtime it may be looked at.
    let mut next = Box::pin(theirs.recv());
    let polled = next.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Pending));
    drop(next);
    // A stream that wants to leave cannot be waited for there; it is closed.
    says_why(abroad.block_on(ours.detach()).unwrap().unwrap_err());
    let closed = home.block_on(async { receive(&mut theirs, 1).await });
    assert_eq!(closed.unwrap(), b"");
    drop((theirs, waits, datagrams));
    abroad.shutdown(Duration::from_secs(10)).unwrap();
    home.shutdown(Duration::from_secs(10)).unwrap();
});
