//! What handlers and owners of a server are told: clients that have gone, a server that stops, what was
//! refused, and what was sent.

use crate::pauses::but_for_pauses;
use crate::support::{Client, start, wait_until};
use futures_core::Stream;
use ringroad_engine::DriverName;
use ringroad_engine::sync;
use ringroad_engine::sync::budget::poll_counted;
use ringroad_http::{Body, Deadlines, Limits, OnClientGone, Outcome, Request, Response, Server, get, post};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

async fn panics(_: Request) -> &'static str {
    panic!("it was told to")
}

/// Counts up when it is made, and down when it is dropped.
struct Inside(Arc<AtomicUsize>);

impl Inside {
    fn new(count: &Arc<AtomicUsize>) -> Inside {
        count.fetch_add(1, Ordering::SeqCst);
        Inside(Arc::clone(count))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

const HOUR: Duration = Duration::from_secs(3600);

/// A server that answers clients for so long after they have ended their side.
fn half_close(span: Duration) -> Server {
    Server::new().deadlines(Deadlines { half_close: span, ..Deadlines::default() })
}

/// A server with a handler that never returns, and the number of requests in that handler.
fn endless() -> (Server, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let inside = Arc::clone(&count);
    let handler = move |_: Request| {
        let inside = Inside::new(&inside);
        async move {
            let _inside = inside;
            std::future::pending::<()>().await;
        }
    };
    (Server::new().drain(Duration::from_millis(10)).route("/", get(handler.clone()).post(handler)), count)
}

drivers!(a_get_whose_client_resets_the_connection_is_given_up, |driver: DriverName| {
    let (server, inside) = endless();
    let server = start(driver, server);
    let clients: Vec<_> = (0..10)
        .map(|_| {
            let mut client = Client::new(server.address());
            client.send(REQUEST);
            client
        })
        .collect();
    wait_until("all are with the handler", || inside.load(Ordering::SeqCst) == 10);
    clients.into_iter().for_each(Client::reset);
    wait_until("none is", || inside.load(Ordering::SeqCst) == 0);
    wait_until("they are gone", || server.counters().connections == 0);
    assert_eq!(server.counters().clients_gone, 10);
});

drivers!(a_client_that_only_ends_its_side_is_answered, |driver: DriverName| {
    let (release, held) = sync::bounded::<()>(1);
    let handler = move |_: Request| {
        let held = held.clone();
        async move {
            held.recv().await.unwrap();
            "answered"
        }
    };
    let server = start(driver, half_close(HOUR).route("/", get(handler)));
    let mut client = Client::new(server.address());
    client.send(REQUEST).finish();
    wait_until("it has come", || server.counters().bytes_in > 0);
    release.try_send(()).unwrap();
    assert_eq!(client.reply().text(), "answered");
    assert_eq!(server.counters().clients_gone, 0);
});

drivers!(a_client_that_has_ended_its_side_for_too_long_has_left, |driver: DriverName| {
    // At once, and after a time.
    for span in [Duration::ZERO, Duration::from_millis(20)] {
        let (server, inside) = endless();
        let server = start(driver, server.deadlines(Deadlines { half_close: span, ..Deadlines::default() }));
        let (mut ended, mut closed) = (Client::new(server.address()), Client::new(server.address()));
        for client in [&mut ended, &mut closed] {
            client.send(REQUEST);
        }
        wait_until("both are with the handler", || inside.load(Ordering::SeqCst) == 2);
        ended.finish();
        drop(closed);
        wait_until("none is", || inside.load(Ordering::SeqCst) == 0);
        assert_eq!(ended.rest(), b"");
        assert_eq!(server.counters().clients_gone, 2);
    }
});

drivers!(the_body_of_an_answer_that_waits_ends_with_a_client_that_closes, |driver: DriverName| {
    /// A body that has a piece, and then nothing for ever.
    struct Waits(Option<&'static str>, #[allow(dead_code, reason = "it counts by its drop")] Inside);
    impl Stream for Waits {
        type Item = &'static str;
        fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<&'static str>> {
            self.0.take().map_or(Poll::Pending, |piece| Poll::Ready(Some(piece)))
        }
    }
    let count = Arc::new(AtomicUsize::new(0));
    let inside = Arc::clone(&count);
    let handler = move |_: Request| {
        let body = Waits(Some("piece"), Inside::new(&inside));
        async move { Body::stream(body) }
    };
    let server = start(driver, half_close(Duration::ZERO).route("/", get(handler)));
    let mut client = Client::new(server.address());
    client.send(REQUEST).reply_to_head();
    assert_eq!(count.load(Ordering::SeqCst), 1);
    drop(client);
    wait_until("the body is dropped", || count.load(Ordering::SeqCst) == 0);
});

drivers!(a_request_may_have_a_rule_of_its_own_for_a_client_that_leaves, |driver: DriverName| {
    let count = Arc::new(AtomicUsize::new(0));
    let inside = Arc::clone(&count);
    let handler = move |mut request: Request| {
        let inside = Inside::new(&inside);
        async move {
            let _inside = inside;
            match request.query_value("rule").as_deref() {
                Some("finish") => request.set_on_client_gone(OnClientGone::Finish),
                Some("cancel") => {
                    // The last one counts.
                    request.set_on_client_gone(OnClientGone::Finish);
                    request.set_on_client_gone(OnClientGone::Cancel);
                }
                _ => {}
            }
            if request.query_value("answer").is_none() {
                std::future::pending::<()>().await;
            }
        }
    };
    let server = start(driver, Server::new().route("/", get(handler.clone()).post(handler)));
    let post = |query: &str| format!("POST /?{query} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    let get = |query: &str| format!("GET /?{query} HTTP/1.1\r\nHost: a\r\n\r\n");
    let left = |number| wait_until("it is noticed", || server.counters().clients_gone == number);
    let gone = |what: &str| wait_until(what, || count.load(Ordering::SeqCst) == 0);
    let leaves = |mut client: Client, request: String| {
        client.send(request);
        wait_until("it is with the handler", || count.load(Ordering::SeqCst) > 0);
        client.reset();
    };
    leaves(Client::new(server.address()), post("rule=cancel"));
    gone("a POST is given up");
    // A rule ends with its request.
    let mut client = Client::new(server.address());
    client.send(get("rule=finish&answer=1")).reply();
    leaves(client, get(""));
    gone("a GET is given up");
    left(2);
    leaves(Client::new(server.address()), get("rule=finish"));
    left(3);
    assert_eq!(count.load(Ordering::SeqCst), 1);
});

drivers!(a_post_goes_on_without_its_client_and_is_told, |driver: DriverName| {
    let (tell, told) = channel();
    let tell = Mutex::new(tell);
    let handler = move |mut request: Request| {
        let tell = tell.lock().unwrap().clone();
        async move {
            assert_eq!(request.bytes(10).await.unwrap(), b"12345");
            request.client_gone().await;
            tell.send("gone").unwrap();
        }
    };
    let handler = Arc::new(handler);
    let server = Server::new().route("/", post(move |request: Request| handler(request)));
    let server = start(driver, server);
    let mut client = Client::new(server.address());
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n12345");
    wait_until("it has come", || server.counters().bytes_in > 0);
    client.reset();
    assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok("gone"));
});

/// Waits for `future` beside something that always has something to do.
async fn beside_work<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| {
        let polled = future.as_mut().poll(context);
        while polled.is_pending() && poll_counted(context, |_| Poll::Ready(())).is_ready() {}
        polled
    })
    .await
}

drivers!(
    a_handler_that_always_has_something_to_do_gets_its_body_and_learns_that_its_client_is_gone,
    |driver: DriverName| {
        let (tell, told) = channel();
        let tell = Mutex::new(tell);
        let handler = move |mut request: Request| {
            let tell = tell.lock().unwrap().clone();
            async move {
                tell.send("begun").unwrap();
                assert_eq!(beside_work(request.bytes(10)).await.unwrap(), b"12345");
                tell.send("body").unwrap();
                beside_work(request.client_gone()).await;
                tell.send("gone").unwrap();
            }
        };
        let handler = Arc::new(handler);
        let server = Server::new().route("/", post(move |request: Request| handler(request)));
        let server = start(driver, server);
        let mut client = Client::new(server.address());
        let next = || told.recv_timeout(Duration::from_secs(60));
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n");
        assert_eq!(next(), Ok("begun"));
        client.send("12345");
        assert_eq!(next(), Ok("body"));
        client.reset();
        assert_eq!(next(), Ok("gone"));
    }
);

drivers!(a_server_that_is_told_to_finish_gives_no_request_up, |driver: DriverName| {
    let (server, inside) = endless();
    let server = start(driver, server.on_client_gone(OnClientGone::Finish));
    let mut client = Client::new(server.address());
    client.send(REQUEST);
    wait_until("it is with the handler", || inside.load(Ordering::SeqCst) == 1);
    client.reset();
    wait_until("it is noticed", || server.counters().clients_gone == 1);
    assert_eq!(inside.load(Ordering::SeqCst), 1);
});

drivers!(a_handler_learns_that_the_server_stops, |driver: DriverName| {
    let handler = |request: Request| async move {
        request.stopping().await;
        "stopping"
    };
    let server = Server::new().drain(Duration::from_secs(100)).route("/", get(handler));
    let server = start(driver, server);
    let mut client = Client::new(server.address());
    client.send(REQUEST);
    wait_until("it has come", || server.counters().bytes_in > 0);
    server.stop();
    assert_eq!(client.reply().text(), "stopping");
    server.wait().unwrap();
});

drivers!(a_stream_of_events_is_ended_when_the_server_stops, |driver: DriverName| {
    let handler = |_: Request| async {
        let (send, events) = sync::bounded::<&'static str>(2);
        send.try_send("data: one\n\n").unwrap();
        // Kept, so that the stream has no end of its own.
        std::mem::forget(send);
        Response::new(Body::stream(events)).header("Content-Type", "text/event-stream")
    };
    let server = Server::new().drain(Duration::from_secs(100)).route("/", get(handler));
    let server = start(driver, server);
    let mut client = Client::new(server.address());
    client.send(REQUEST);
    wait_until("it is answered", || server.counters().requests() == 1);
    server.stop();
    let reply = client.reply();
    assert_eq!((reply.status, reply.text()), (200, "data: one\n\n"));
    server.wait().unwrap();
});

drivers!(a_server_that_is_to_stop_at_once_does_not_wait, |driver: DriverName| {
    let (server, inside) = endless();
    let server = start(driver, server.drain(Duration::MAX));
    let mut client = Client::new(server.address());
    client.send(REQUEST);
    wait_until("it is with the handler", || inside.load(Ordering::SeqCst) == 1);
    server.stop();
    server.stop_at_once();
    server.wait().unwrap();
    assert!(client.is_closed());
    assert_eq!(inside.load(Ordering::SeqCst), 0);
});

drivers!(what_no_handler_sees_is_told_with_client_status_and_reason, |driver: DriverName| {
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = Arc::clone(&told);
    let limits = Limits { body_bytes: 10, ..Limits::default() };
    let deadlines = Deadlines { head: Duration::from_secs(1), ..Deadlines::default() };
    let server = Server::new()
        .limits(limits)
        .deadlines(deadlines)
        .on_refused(move |refused| {
            let text = format!(
                "{:?} {} | {}",
                refused.status.map(|status| status.code()),
                refused.reason,
                refused.head.escape_ascii()
            );
            tell.lock().unwrap().push((refused.client, text));
        })
        .route("/", get(panics));
    let server = start(driver, server.route("/post", post(|_: Request| async {})));
    for (request, status, text) in [
        (
            "GET /a b HTTP/1.1\r\n\r\n",
            400,
            "version: expected HTTP/1.1 or HTTP/1.0 and CR LF after one space",
        ),
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 500, "the handler panicked"),
        ("POST /post HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n", 413, "body: expected a shorter one"),
        ("GET / HTTP/1.1\r\nHo", 408, "head: it did not come in time"),
    ] {
        let mut client = Client::new(server.address());
        let address = client.local_addr();
        client.send(request);
        assert_eq!(client.reply().status, status, "{request:?}");
        let (peer, told) = told.lock().unwrap().pop().unwrap();
        assert_eq!(peer, Some(address));
        assert!(told.starts_with(&format!("Some({status}) {text}")), "{told}");
        // The beginning of the request is unknown: the handler has taken the request.
        assert_eq!(told.ends_with(&request.escape_default().to_string()), status != 500, "{told}");
    }
    assert!(told.lock().unwrap().is_empty());
});

drivers!(a_refused_head_request_gets_no_content, |driver: DriverName| {
    let server = start(driver, Server::new());
    let mut client = Client::new(server.address());
    client.send("HEAD / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n");
    let rest = String::from_utf8(client.rest()).unwrap();
    assert!(rest.starts_with("HTTP/1.1 400 ") && rest.ends_with("\r\n\r\n"), "{rest}");
});

drivers!(what_was_sent_is_told_when_it_has_been_sent, |driver: DriverName| {
    const LARGE: usize = 32 << 20;
    let (tell, told) = channel();
    let tell = Mutex::new(tell);
    let handler = move |request: Request| {
        let tell = tell.lock().unwrap().clone();
        async move {
            let bytes = request.query().unwrap().parse().unwrap();
            Response::new(vec![b'x'; bytes]).on_sent(move |sent| tell.send(sent.clone()).unwrap())
        }
    };
    let handler = Arc::new(handler);
    let server = start(driver, Server::new().route("/", get(move |request: Request| handler(request))));
    let mut client = Client::new(server.address());
    for bytes in [5, 20_000, 300_000] {
        assert_eq!(client.get(&format!("/?{bytes}")).body.len(), bytes);
        let sent = told.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!((sent.body_bytes, sent.outcome), (bytes as u64, Outcome::Complete));
    }
    // Two in one go, and a HEAD.
    client.send("GET /?7 HTTP/1.1\r\nHost: a\r\n\r\nHEAD /?8 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.reply().body.len(), 7);
    assert!(client.reply_to_head().body.is_empty());
    assert_eq!([told.recv().unwrap().body_bytes, told.recv().unwrap().body_bytes], [7, 0]);
    // A client that leaves in the midst of it.
    client.send(format!("GET /?{LARGE} HTTP/1.1\r\nHost: a\r\n\r\n"));
    wait_until("it has begun", || server.counters().bytes_out > 500_000);
    client.reset();
    let sent = told.recv_timeout(Duration::from_secs(60)).unwrap();
    assert_eq!(sent.outcome, Outcome::ClientGone);
    assert!(sent.body_bytes < LARGE as u64, "{sent:?}");
});

drivers!(an_early_answer_reaches_a_client_that_goes_on_sending, |driver: DriverName| {
    const LONG: usize = 12 << 20;
    let limits = Limits { body_bytes: 1 << 20, ..Limits::default() };
    let server = start(driver, Server::new().limits(limits).route("/", get(|_: Request| async {})));
    for (method, status, framing) in [
        ("GET", 413, format!("Content-Length: {LONG}\r\n")),
        ("PUT", 413, format!("Content-Length: {LONG}\r\n")),
        ("PUT", 405, format!("Content-Length: {}\r\n", 1 << 20)),
        ("PUT", 405, "Transfer-Encoding: chunked\r\n".to_owned()),
        ("PUT", 405, format!("Connection: close\r\nContent-Length: {}\r\n", 1 << 20)),
    ] {
        let mut client = Client::new(server.address());
        client.send(format!("{method} / HTTP/1.1\r\nHost: a\r\n{framing}\r\n"));
        let is_chunked = framing.starts_with('T');
        let bytes = if status == 413 { LONG } else { 1 << 20 };
        // All of it, before the answer is looked at, as programs do that do not read while they write.
        if is_chunked {
            client.send(format!("{LONG:x}\r\n")).send(vec![b'x'; LONG]).send("\r\n0\r\n\r\n");
        } else {
            client.send(vec![b'x'; bytes]);
        }
        let reply = client.reply();
        assert_eq!((reply.status, reply.header("Connection")), (status, Some("close")), "{method} {framing}");
    }
});

drivers!(an_old_client_that_sends_a_line_end_behind_its_body_is_not_reset, |driver: DriverName| {
    let server = start(driver, Server::new().route("/", post(|_: Request| async { "read" })));
    for _ in 0..20 {
        let mut client = Client::new(server.address());
        client.send("POST / HTTP/1.0\r\nContent-Length: 5\r\n\r\n12345\r\n");
        assert_eq!(client.reply().text(), "read");
    }
});

drivers!(limits_are_replaced_while_a_server_runs, |driver: DriverName| {
    let server = start(
        driver,
        Server::new().route(
            "/",
            post(|mut request: Request| async move {
                request.bytes(usize::MAX).await.map(|bytes| bytes.len().to_string())
            }),
        ),
    );
    let ask = |bytes: usize| {
        let mut client = Client::new(server.address());
        let body = "x".repeat(bytes);
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {bytes}\r\n\r\n{body}"));
        client.reply().status
    };
    assert_eq!(ask(100), 200);
    server.set_limits(Limits { body_bytes: 99, ..Limits::default() });
    wait_until("the worker has heard", || ask(100) == 413);
    assert_eq!(ask(99), 200);
    // An idle connection is closed by the deadlines that hold now.
    let mut idle = Client::new(server.address());
    idle.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(idle.reply().status, 200);
    server.set_deadlines(Deadlines { keep_alive: Duration::from_secs(1), ..Deadlines::default() });
    assert!(idle.is_closed());
});

drivers!(a_route_takes_bodies_as_long_as_it_says, |driver: DriverName| {
    let read = |mut request: Request| async move {
        request.body().limit(50)?;
        request.bytes(usize::MAX).await.map(|bytes| bytes.len().to_string())
    };
    let server = Server::new().route("/short", post(|_: Request| async { "read" }).body_bytes_max(10));
    let server = start(driver, server.route("/own", post(read)));
    let ask = |path: &str, body: &str| {
        let mut client = Client::new(server.address());
        client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\n{body}"));
        client.reply().status
    };
    assert_eq!(ask("/short", "Content-Length: 10\r\n\r\n0123456789"), 200);
    assert_eq!(ask("/short", "Content-Length: 11\r\n\r\n01234567890"), 413);
    assert_eq!(ask("/short", "Transfer-Encoding: chunked\r\n\r\nb\r\n01234567890\r\n0\r\n\r\n"), 413);
    assert_eq!(ask("/own", &format!("Content-Length: 51\r\n\r\n{}", "x".repeat(51))), 413);
    assert_eq!(
        ask("/own", &format!("Transfer-Encoding: chunked\r\n\r\n33\r\n{}\r\n0\r\n\r\n", "x".repeat(51))),
        413
    );
    assert_eq!(ask("/own", &format!("Content-Length: 50\r\n\r\n{}", "x".repeat(50))), 200);
});

/// In time that passes: the shortest stall is of seconds.
fn reads_slowly(driver: DriverName) {
    const BYTES: usize = 24 << 20;
    let large: &'static [u8] = vec![b'x'; BYTES].leak();
    let deadlines = Deadlines { send_stall: Duration::from_secs(2), ..Deadlines::default() };
    let server = Server::new().deadlines(deadlines);
    let server = start(driver, server.route("/", get(move |_: Request| async move { large })));
    let mut client = Client::new(server.address());
    client.send(REQUEST);
    let mut read = 0;
    // In all longer than a stall may be, with something taken in each of them.
    for _ in 0..5 {
        read += client.read_some(4 << 20);
        std::thread::sleep(Duration::from_millis(900));
    }
    read += client.read_some(BYTES - read);
    assert!(read >= BYTES, "{read} of {BYTES}");
}
drivers!(a_client_that_reads_slowly_but_reads_gets_all_of_a_large_body, |driver: DriverName| {
    but_for_pauses(Duration::from_millis(200), || reads_slowly(driver));
});
