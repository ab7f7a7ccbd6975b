//! Workers that others take the place of, on the same sockets: no client is refused, reset or left without
//! its answer.

use crate::connections::held;
use crate::drivers::here;
use crate::over::Over;
use crate::pauses::but_for_pauses;
use crate::support::{Client, start, wait_until};
use ringroad_engine::DriverName;
use ringroad_engine::choose::Wish;
use ringroad_engine::sync;
use ringroad_http::{Body, Handle, Request, Response, Server, ServerError, Sockets, Upgraded, get};
use std::io::{Read, Write};
use std::num::NonZeroUsize;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

async fn hello(_: Request) -> &'static str {
    "hello"
}

fn pages() -> Server<()> {
    Server::new().route("/", get(hello))
}

fn some(workers: usize) -> NonZeroUsize {
    NonZeroUsize::new(workers).unwrap()
}

/// A server that takes the place of workers on another driver.
fn instead(driver: DriverName, server: Server<()>, sockets: &Sockets) -> Handle {
    server.driver(Wish::Named(driver)).instead_of(sockets).start().unwrap()
}

/// Clients that keep their connections and clients that connect anew for each request, on every other
/// driver in turn.
///
/// One that pauses for a second between an answer and its next request is idle, and a worker that leaves
/// closes it.
fn gives_way_under_load(from: DriverName) {
    let mut servers = vec![start(from, pages().workers(2))];
    let mut left = Vec::new();
    let address = servers[0].address();
    let (over, asked) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _over = Over(&over);
        for number in 0..6 {
            let (over, asked) = (&over, &asked);
            scope.spawn(move || {
                let mut client = Client::new(address);
                while !over.load(Ordering::Relaxed) {
                    let reply = client.get("/");
                    assert_eq!((reply.status, reply.text()), (200, "hello"));
                    asked.fetch_add(1, Ordering::Relaxed);
                    if number % 2 == 0 || reply.header("Connection") == Some("close") {
                        client = Client::new(address);
                    }
                }
            });
        }
        for to in here().filter(|to| *to != from).chain([from]) {
            let before = asked.load(Ordering::Relaxed);
            wait_until("there is load", || asked.load(Ordering::Relaxed) > before + 200);
            let mut old = servers.pop().unwrap();
            let sockets = old.sockets(some(2)).unwrap();
            let new = instead(to, pages(), &sockets);
            left.push((old.release(sockets), old.stats()));
            assert_eq!((old.workers(), new.workers(), new.address()), (0, 2, address));
            assert_eq!(new.choice().driver(), to);
            servers.push(new);
        }
        let before = asked.load(Ordering::Relaxed);
        wait_until("the last ones answer", || asked.load(Ordering::Relaxed) > before + 200);
    });
    let last = servers.pop().unwrap();
    let mut answered = last.counters().requests();
    for (released, stats) in left {
        released.wait().unwrap();
        assert_eq!(stats.counters().connections, 0);
        answered += stats.counters().requests();
    }
    assert_eq!(answered, asked.load(Ordering::Relaxed));
    last.stop();
    last.wait().unwrap();
    let refused = std::net::TcpStream::connect(address).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
}
drivers!(workers_give_way_to_others_under_load_and_no_request_fails, |from: DriverName| {
    but_for_pauses(Duration::from_millis(500), || gives_way_under_load(from));
});

drivers!(
    /// The stop of the others' server does not cut it either, within its drain.
    a_request_that_has_begun_is_completed_where_it_began,
    |driver: DriverName| {
        let (finish, slow) = held();
        let with_slow = || pages().drain(Duration::ZERO).route("/slow", get(slow.clone()));
        let mut old = start(driver, with_slow());
        let mut client = Client::new(old.address());
        client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
        wait_until("the request comes", || old.counters().bytes_in > 0);
        let mut other = Client::new(old.address());
        assert_eq!(other.get("/").text(), "hello");
        let sockets = old.sockets(some(1)).unwrap();
        let new = instead(driver, with_slow(), &sockets);
        let released = old.release(sockets);
        assert_eq!(Client::new(new.address()).get("/").text(), "hello");
        // Until an answer is the last one, or the connection is closed in its idle time.
        let is_last = move || {
            let reply = other.try_send(REQUEST).then(|| other.try_reply(false)).flatten();
            reply.is_none_or(|reply| reply.header("Connection") == Some("close"))
        };
        wait_until("the old worker has heard that it is to go", is_last);
        finish.try_send(()).unwrap();
        let reply = client.reply();
        assert_eq!((reply.text(), reply.header("Connection")), ("held", Some("close")));
        released.wait().unwrap();
    }
);

/// Whether this comes before the end.
fn hears(client: &mut Client, what: &[u8]) -> bool {
    let mut heard = Vec::new();
    while !heard.windows(what.len()).any(|some| some == what) {
        let more = client.some();
        if more.is_empty() {
            return false;
        }
        heard.extend(more);
    }
    true
}

/// Gives every byte back.
async fn echo(upgraded: Upgraded) {
    let (mut stream, mut bytes) = upgraded.into_parts();
    while stream.write_all(bytes).await.0.is_ok() {
        match stream.recv().await {
            Ok(lease) if !lease.is_empty() => bytes = lease.to_vec(),
            _ => return,
        }
    }
}

drivers!(
    /// Some have no end of their own, and end with the server.
    streams_of_events_and_other_protocols_go_on_where_they_began,
    |driver: DriverName| {
        let (send, events) = sync::bounded::<&'static str>(2);
        let events = Arc::new(Mutex::new(Some(events)));
        let pages = || {
            let events = Arc::clone(&events);
            let told = move |_: Request| {
                let events = events.lock().unwrap().take().unwrap();
                async { Response::new(Body::stream(events)).header("Content-Type", "text/event-stream") }
            };
            let server = pages().drain(Duration::ZERO).upgraded_grace(Duration::ZERO).route("/events", get(told));
            server.route("/echo", get(|_: Request| async { Response::upgrade("echo", echo) }))
        };
        let mut old = start(driver, pages());
        let mut told = Client::new(old.address());
        told.send("GET /events HTTP/1.1\r\nHost: a\r\n\r\n");
        send.try_send("data: one\n\n").unwrap();
        assert!(hears(&mut told, b"data: one\n\n"));
        let mut other = Client::new(old.address());
        other.send("GET /echo HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n");
        assert_eq!(other.reply().status, 101);
        // One that is idle: it is closed when the worker has heard that it is to go.
        let mut idle = Client::new(old.address());
        assert_eq!(idle.get("/").status, 200);
        let sockets = old.sockets(some(1)).unwrap();
        let new = instead(driver, pages(), &sockets);
        let released = old.release(sockets);
        assert_eq!(idle.rest(), b"");
        for round in 0..3 {
            send.try_send("data: more\n\n").unwrap();
            assert!(hears(&mut told, b"data: more\n\n"), "{round}");
            other.send("again");
            assert!(hears(&mut other, b"again"), "{round}");
        }
        assert!(!released.has_ended());
        // The server ends: the events as if they were all.
        released.set_drain(Duration::from_secs(60));
        assert!(told.rest().ends_with(b"0\r\n\r\n"));
        other.finish();
        released.wait().unwrap();
        drop(new);
    }
);

drivers!(
    /// A connection that comes while a worker leaves wakes that worker, or the other, and is served.
    a_client_that_comes_as_a_worker_leaves_is_answered,
    |driver: DriverName| {
        let mut old = start(driver, pages());
        for _ in 0..100 {
            let sockets = old.sockets(some(1)).unwrap();
            let new = instead(driver, pages(), &sockets);
            let released = old.release(sockets);
            assert_eq!(Client::new(new.address()).get("/").text(), "hello");
            released.wait().unwrap();
            old = new;
        }
    }
);

drivers!(some_of_the_workers_may_go_and_the_others_stay, |driver: DriverName| {
    let mut old = start(driver, pages().workers(3));
    let mut clients: Vec<_> = (0..12).map(|_| Client::new(old.address())).collect();
    for client in &mut clients {
        assert_eq!(client.get("/").status, 200);
    }
    let too_many = old.sockets(some(4)).unwrap_err();
    assert!(matches!(too_many, ServerError::NoSocket { wanted: 4, there: 3 }), "{too_many}");
    let sockets = old.sockets(some(2)).unwrap();
    let new = instead(DriverName::Epoll, pages(), &sockets);
    let released = old.release(sockets);
    released.wait().unwrap();
    assert_eq!((old.workers(), old.has_ended()), (1, false));
    // Connections of the worker that stays are kept.
    let kept = old.counters().connections;
    let answers = |client: &mut Client| client.try_send(REQUEST) && client.try_reply(false).is_some();
    assert_eq!(clients.iter_mut().filter_map(|client| answers(client).then_some(())).count() as u64, kept);
    for _ in 0..20 {
        assert_eq!(Client::new(new.address()).get("/").status, 200);
    }
    for server in [old, new] {
        server.stop();
        server.wait().unwrap();
    }
});

drivers!(a_server_that_gives_the_sockets_back_leaves_the_others_as_they_were, |driver: DriverName| {
    let old = start(driver, pages().workers(2));
    let mut client = Client::new(old.address());
    assert_eq!(client.get("/").status, 200);
    for other in here() {
        let sockets = old.sockets(some(2)).unwrap();
        instead(other, pages(), &sockets).give_back().unwrap();
        drop(sockets);
        for _ in 0..10 {
            assert_eq!(Client::new(old.address()).get("/").status, 200);
        }
    }
    assert_eq!(client.get("/").status, 200);
});

drivers!(the_file_of_a_unix_socket_goes_with_the_last_server_that_has_it, |driver: DriverName| {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let ask = || {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        assert!(reply.ends_with("hello"), "{reply}");
    };
    let at = format!("unix:{}", path.display());
    let server = pages().bind(&at).unwrap().workers(2).driver(Wish::Named(driver));
    let mut old = server.start().unwrap();
    ask();
    let sockets = old.sockets(some(2)).unwrap();
    let new = instead(DriverName::Epoll, pages().bind(&at).unwrap(), &sockets);
    let released = old.release(sockets);
    drop(old);
    released.wait().unwrap();
    ask();
    new.stop();
    new.wait().unwrap();
    assert!(!path.exists());
});

drivers!(servers_beside_each_other_share_an_address, |driver: DriverName| {
    let first = start(driver, pages().shares_address());
    let server = pages().bind("127.0.0.1:0").unwrap().driver(Wish::Named(DriverName::Epoll)).beside(&first);
    let second = server.start().unwrap();
    assert_eq!(second.address(), first.address());
    // The kernel deals them out by a hash of the addresses.
    wait_until("both have answered", || {
        assert_eq!(Client::new(first.address()).get("/").status, 200);
        first.counters().requests() > 0 && second.counters().requests() > 0
    });
    second.stop();
    second.wait().unwrap();
    assert_eq!(Client::new(first.address()).get("/").status, 200);
});
