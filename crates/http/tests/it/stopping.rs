//! How a server stops, and how connections end that take too long.

use crate::pauses::but_for_pauses;
use crate::support::{Client, start, wait_until};
use ringroad_engine::DriverName;
use ringroad_engine::choose::Wish;
use ringroad_engine::time::sleep;
use ringroad_http::{Deadlines, Request, Server, ServerError, get, post};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

async fn hello(_: Request) -> &'static str {
    "hello"
}

drivers!(a_server_that_stops_finishes_what_it_has_begun, |driver: DriverName| {
    let slow = |request: Request| async move {
        // The stop comes in the midst of it.
        request.stopping().await;
        sleep(Duration::from_millis(20)).await;
        "done"
    };
    let server = start(driver, Server::new().route("/", get(hello)).route("/slow", get(slow)));
    let mut client = Client::new(server.address());
    let received = server.counters().bytes_in;
    client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("the request comes", || server.counters().bytes_in > received);
    server.stop();
    let reply = client.reply();
    assert_eq!((reply.text(), reply.header("Connection")), ("done", Some("close")));
    assert!(client.is_closed());
    server.wait().unwrap();
});

/// Clients that ask again and again, while the server stops: each request that was sent is answered, and
/// the last answer says that it is the last.
///
/// A client that pauses for a second between an answer and its next request is idle, and a server that stops
/// closes it.
fn stops_under_load(driver: DriverName) {
    let server = start(driver, Server::new().workers(2).route("/", get(hello)));
    let address = server.address();
    let answered = Arc::new(AtomicU64::new(0));
    let clients: Vec<_> = (0..16)
        .map(|_| {
            let answered = Arc::clone(&answered);
            let mut client = Client::new(address);
            std::thread::spawn(move || {
                loop {
                    let reply = client.get("/");
                    assert_eq!((reply.status, reply.text()), (200, "hello"));
                    answered.fetch_add(1, Ordering::Relaxed);
                    if reply.header("Connection") == Some("close") {
                        break;
                    }
                }
                assert!(client.is_closed());
            })
        })
        .collect();
    // A connection still in the accept queue when the listeners close would be reset, which is correct.
    wait_until("all are served", || server.counters().connections == 16);
    wait_until("there is load", || answered.load(Ordering::Relaxed) > 500);
    server.stop();
    for client in clients {
        client.join().unwrap();
    }
    server.wait().unwrap();
}
drivers!(a_server_stopped_under_load_loses_no_request, |driver: DriverName| {
    but_for_pauses(Duration::from_millis(500), || stops_under_load(driver));
});

drivers!(idle_connections_do_not_keep_a_server_from_stopping, |driver: DriverName| {
    let server = start(driver, Server::new().route("/", get(hello)));
    let mut used = Client::new(server.address());
    let mut fresh = Client::new(server.address());
    assert_eq!(used.get("/").status, 200);
    wait_until("both are there", || server.counters().connections == 2);
    server.stop();
    server.wait().unwrap();
    assert!(used.is_closed() && fresh.is_closed());
});

drivers!(a_handler_that_never_ends_is_given_up_when_the_time_is_over, |driver: DriverName| {
    let never = |_: Request| std::future::pending::<()>();
    let server = Server::new().drain(Duration::from_millis(50)).route("/", get(never));
    let server = start(driver, server);
    let mut client = Client::new(server.address());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("the request comes", || server.counters().bytes_in > 0);
    server.stop();
    server.wait().unwrap();
    assert!(client.is_closed());
});

const HOUR: Duration = Duration::from_secs(3600);

/// As short as they can be, once a client has begun to speak.
fn short() -> Deadlines {
    Deadlines {
        head: Duration::from_secs(1),
        body_bytes_per_second_min: 1000,
        body_grace: Duration::from_secs(1),
        send_stall: Duration::from_secs(1),
        keep_alive: HOUR,
        linger: Duration::from_secs(1),
        ..Deadlines::default()
    }
}

drivers!(
    who_is_too_slow_with_a_head_or_a_body_is_408_and_who_says_nothing_is_closed,
    |driver: DriverName| {
        const HALF_A_HEAD: &str = "GET / HTTP/1.1\r\nHost";
        const HALF_A_BODY: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf";
        let read = |mut request: Request| async move { request.bytes(1000).await };
        let server = start(driver, Server::new().deadlines(short()).route("/", get(hello).post(read)));
        let mut idle = Client::new(server.address());
        assert_eq!(idle.get("/").status, 200);
        let before = server.counters().bytes_in;
        let mut head = Client::new(server.address());
        head.send(HALF_A_HEAD);
        let mut body = Client::new(server.address());
        body.send(HALF_A_BODY);
        // A server of its own, with no patience from the beginning: those above may speak late.
        let impatient = || Deadlines { keep_alive: Duration::from_secs(1), ..short() };
        let other = start(driver, Server::new().deadlines(impatient()).route("/", get(hello)));
        let mut silent = Client::new(other.address());
        let sent = (HALF_A_HEAD.len() + HALF_A_BODY.len()) as u64;
        wait_until("all have spoken", || server.counters().bytes_in == before + sent);
        server.set_deadlines(impatient());
        assert!(silent.is_closed() && idle.is_closed());
        for client in [&mut head, &mut body] {
            let replies = client.replies();
            assert_eq!(replies.iter().map(|reply| reply.status).collect::<Vec<_>>(), [408]);
            assert_eq!(replies[0].header("Connection"), Some("close"));
        }
        assert_eq!((server.counters().timed_out, other.counters().timed_out), (3, 1));
        drop((silent, idle, head, body));
        wait_until("they are gone", || {
            server.counters().connections == 0 && other.counters().connections == 0
        });
    }
);

drivers!(
    /// Each byte comes in time, and the head does not.
    a_head_that_trickles_is_cut_off_all_the_same,
    |driver: DriverName| {
        let server = start(driver, Server::new().deadlines(short()).route("/", get(hello)));
        let mut client = Client::new(server.address());
        client.send("GET / HTTP/1.1\r\nHost: a\r\nX: ");
        let mut trickle = client.stream().try_clone().unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let sender = {
            let over = Arc::clone(&over);
            std::thread::spawn(move || {
                use std::io::Write;
                while !over.load(Ordering::Relaxed) && trickle.write_all(b"x").is_ok() {
                    std::thread::sleep(Duration::from_millis(20));
                }
            })
        };
        let reply = client.reply();
        over.store(true, Ordering::Relaxed);
        sender.join().unwrap();
        assert_eq!(reply.status, 408);
    }
);

drivers!(
    /// Each piece comes in time, and the body does not.
    a_body_that_trickles_is_cut_off_all_the_same,
    |driver: DriverName| {
        let read = |mut request: Request| async move { request.bytes(10_000).await };
        let deadlines = Deadlines { body_grace: Duration::from_secs(2), ..short() };
        let server = start(driver, Server::new().deadlines(deadlines).route("/", post(read)));
        let mut client = Client::new(server.address());
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\n\r\n");
        let mut trickle = client.stream().try_clone().unwrap();
        let sender = std::thread::spawn(move || {
            use std::io::Write;
            (0..5000).all(|_| {
                std::thread::sleep(Duration::from_millis(20));
                trickle.write_all(b"x").is_ok()
            })
        });
        assert_eq!(client.reply().status, 408);
        drop(client);
        assert!(!sender.join().unwrap(), "the server has not closed");
        assert_eq!(server.counters().timed_out, 1);
    }
);

/// Its request is answered; the rest of it is at least as fast as is asked.
fn sends_what_is_not_read(driver: DriverName) {
    let server = start(driver, Server::new().deadlines(short()).route("/", get(hello).post(hello)));
    let mut client = Client::new(server.address());
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 240000\r\n\r\n");
    assert_eq!(client.reply().text(), "hello");
    for _ in 0..120 {
        std::thread::sleep(Duration::from_millis(25));
        client.try_send([b'x'; 2000]);
    }
    client.try_send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.try_reply(false).map(|reply| reply.status), Some(200));
}
drivers!(a_body_nobody_reads_has_the_time_that_its_rate_gives_it, |driver: DriverName| {
    but_for_pauses(Duration::from_millis(200), || sends_what_is_not_read(driver));
});

drivers!(who_does_not_read_what_it_asked_for_is_closed, |driver: DriverName| {
    let large = |_: Request| async { vec![b'x'; 64 << 20] };
    let server = start(driver, Server::new().deadlines(short()).route("/", get(large)));
    let mut client = Client::new(server.address());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("it is closed", || server.counters().closed == 1);
    assert!(client.rest().len() < 64 << 20);
    assert_eq!(server.counters().timed_out, 1);
});

drivers!(after_so_many_requests_a_connection_is_closed, |driver: DriverName| {
    let deadlines = Deadlines { requests_per_connection: 3, ..Deadlines::default() };
    let server = start(driver, Server::new().deadlines(deadlines).route("/", get(hello).post(hello)));
    let mut client = Client::new(server.address());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(5));
    let replies = client.replies();
    assert_eq!(replies.len(), 3);
    assert_eq!(replies[2].header("Connection"), Some("close"));
});

/// The state of a worker, which knows the worker's number and how many states there are.
struct Numbered {
    number: usize,
    alive: Arc<AtomicUsize>,
    panics: bool,
}

impl Drop for Numbered {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::SeqCst);
        assert!(!self.panics || self.number == 0, "worker {} on purpose", self.number);
    }
}

/// A server with such states, and the number of those that live. `make` sees a worker's number first, and
/// tells whether the state panics when it is dropped.
fn numbered(make: impl Fn(usize) -> bool + Send + Sync + 'static) -> (Server<Numbered>, Arc<AtomicUsize>) {
    let (alive, made) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
    let counted = Arc::clone(&alive);
    let server = Server::with_state(move || {
        let number = made.fetch_add(1, Ordering::SeqCst);
        let panics = make(number);
        counted.fetch_add(1, Ordering::SeqCst);
        Numbered { number, alive: Arc::clone(&counted), panics }
    });
    (server.workers(3).route("/", get(hello)), alive)
}

drivers!(a_start_that_fails_at_one_worker_ends_those_before_it, |driver: DriverName| {
    let (server, alive) = numbered(|number| {
        assert!(number < 2, "on purpose");
        false
    });
    let server = server.bind("127.0.0.1:0").unwrap().driver(Wish::Named(driver));
    let why = server.start().unwrap_err();
    assert!(matches!(why, ServerError::Panicked(_)), "{why}");
    assert_eq!(alive.load(Ordering::SeqCst), 0);
});

drivers!(the_first_panic_of_a_worker_is_the_error_of_wait, |driver: DriverName| {
    let (server, alive) = numbered(|_| true);
    let server = start(driver, server);
    assert!(!server.has_ended());
    server.stop();
    let why = server.wait().unwrap_err();
    assert!(matches!(&why, ServerError::Panicked(text) if text == "worker 1 on purpose"), "{why}");
    assert_eq!(alive.load(Ordering::SeqCst), 0);
});
