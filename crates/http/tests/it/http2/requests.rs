//! What handlers are told, and what clients are, as over HTTP/1.1.

use super::client::{Client, code, get, post, read, run};
use super::{frames, start_http2};
use crate::support::{self, start, wait_until};
use bytes::Bytes;
use h2::Reason;
use http::{HeaderMap, Request as Ask};
use ringroad_engine::{DriverName, spawn, sync, time};
use ringroad_http::{
    Body, Deadlines, FieldBlock, Handle, Limits, Outcome, Piece, Request, Response, Server, Status, Version,
    any, get as on_get, post as on_post,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const LARGE: usize = 3 << 20;

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 + at / 251) as u8).collect()
}

async fn tell(request: Request) -> String {
    assert_eq!(request.version(), Version::Http2);
    assert!(request.peer_addr().is_some_and(|peer| peer.ip().is_loopback()));
    format!(
        "{} {} {:?} {:?} {:?} {:?} {:?}",
        request.method_name(),
        request.path(),
        request.param("id").as_deref(),
        request.query(),
        request.header("x-word"),
        request.header("cookie"),
        request.authority(),
    )
}

async fn echo(mut request: Request) -> Result<Vec<u8>, ringroad_http::BodyError> {
    request.bytes(usize::MAX).await
}

/// Sends back what comes, as it comes, with the trailers.
async fn stream_back(request: Request) -> Body {
    request.into_body().into()
}

async fn never(_: Request) -> Status {
    std::future::pending().await
}

fn server() -> Server {
    let limits = Limits { body_bytes: LARGE as u64 * 2, ..Limits::default() };
    Server::new()
        .limits(limits)
        .route("/page", on_get(async |_: Request| Response::html("<h1>Hello World</h1>")))
        .route("/tell/{id}", any(tell))
        .route("/echo", on_post(echo).body_bytes_max(LARGE as u64))
        .route("/stream", on_post(stream_back))
        .route("/never", any(never))
        .route("/middling", on_get(async |_: Request| Response::new(pattern(60_000))))
        .route("/large", on_get(async |_: Request| Response::new(pattern(LARGE))))
}

drivers!(a_page_is_served_with_its_type_length_and_date, |driver: DriverName| {
    let server = start_http2(driver, server());
    let address = server.address();
    run(driver, async move {
        let mut client = Client::connect(address).await;
        for _ in 0..3 {
            let reply = client.get("/page").await;
            assert_eq!((reply.status(), reply.text()), (200, "<h1>Hello World</h1>"));
            assert_eq!(reply.header("content-type"), Some("text/html"));
            assert_eq!(reply.header("content-length"), Some("20"));
            assert!(reply.header("date").is_some_and(|date| date.ends_with(" GMT")));
        }
        let head = client.ask(Ask::head("http://a/page").body(()).unwrap(), Bytes::new()).await.unwrap();
        assert_eq!((head.status(), head.text(), head.header("content-length")), (200, "", Some("20")));
        assert_eq!(client.get("/nowhere").await.status(), 404);
        let refused = client.ask(post("/page"), Bytes::new()).await.unwrap();
        assert_eq!((refused.status(), refused.header("allow")), (405, Some("GET, HEAD, OPTIONS")));
    });
    assert_eq!(server.counters().responses, [0, 4, 0, 2, 0]);
});

drivers!(a_handler_sees_method_path_query_lines_and_one_cookie_line, |driver: DriverName| {
    let server = start_http2(driver, server());
    let address = server.address();
    run(driver, async move {
        let mut client = Client::connect(address).await;
        let request = Ask::put("http://a.example:81/tell/7?q=1")
            .header("x-word", "w")
            .header("cookie", "a=1")
            .header("cookie", "b=2")
            .body(())
            .unwrap();
        let reply = client.ask(request, Bytes::new()).await.unwrap();
        assert_eq!(
            reply.text(),
            r#"PUT /tell/7 Some("7") Some("q=1") Some("w") Some("a=1; b=2") Some("a.example:81")"#
        );
    });
});

drivers!(bodies_are_received_and_sent_whole, |driver: DriverName| {
    let server = start_http2(driver, server());
    let address = server.address();
    run(driver, async move {
        let mut client = Client::connect(address).await;
        for bytes in [1, 1000, 70_000, LARGE] {
            let reply = client.ask(post("/echo"), pattern(bytes)).await.unwrap();
            assert!(reply.body == pattern(bytes), "{bytes}");
            let reply = client.ask(post("/stream"), pattern(bytes)).await.unwrap();
            assert!(reply.body == pattern(bytes), "{bytes}");
        }
        assert!(client.get("/large").await.body == pattern(LARGE));
    });
    // Nothing is booked as unsent any more: a large answer would be cut at once.
    assert_eq!(server.counters().panics, 0);
});

drivers!(pieces_and_trailers_go_both_ways_while_the_other_side_still_sends, |driver: DriverName| {
    let server = start_http2(driver, server());
    let address = server.address();
    run(driver, async move {
        let mut client = Client::connect(address).await;
        let (response, mut stream) = client.begin(post("/stream"), false).await.unwrap();
        stream.send_data(Bytes::from_static(b"ping"), false).unwrap();
        let response = response.await.unwrap();
        let mut body = response.into_body();
        // The first piece is back before the second is sent.
        assert_eq!(body.data().await.unwrap().unwrap(), "ping");
        stream.send_data(Bytes::from_static(b"pong"), false).unwrap();
        assert_eq!(body.data().await.unwrap().unwrap(), "pong");
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        stream.send_trailers(trailers.clone()).unwrap();
        assert!(body.data().await.is_none());
        assert_eq!(body.trailers().await.unwrap(), Some(trailers));
    });
});

drivers!(many_requests_are_answered_at_a_time, |driver: DriverName| {
    let gate = Arc::new(AtomicU64::new(0));
    let (seen, most) = (Arc::clone(&gate), 100);
    let server = server().route(
        "/together",
        on_get(move |_: Request| {
            let seen = Arc::clone(&seen);
            async move {
                // None is answered before all have come.
                seen.fetch_add(1, Ordering::Relaxed);
                while seen.load(Ordering::Relaxed) < most {
                    time::sleep(Duration::from_millis(1)).await;
                }
                "all"
            }
        }),
    );
    let server = start_http2(driver, server);
    let address = server.address();
    run(driver, async move {
        let mut client = Client::connect(address).await;
        let mut waiting = Vec::new();
        for _ in 0..most {
            waiting.push(client.begin(get("/together"), true).await.unwrap().0);
        }
        for response in waiting {
            assert_eq!(read(response.await.unwrap()).await.unwrap().text(), "all");
        }
    });
});

drivers!(http_1_is_spoken_on_the_same_address, |driver: DriverName| {
    let server = start_http2(
        driver,
        Server::new().route("/", on_get(async |request: Request| format!("{:?}", request.version()))),
    );
    let address = server.address();
    assert_eq!(support::Client::new(address).get("/").text(), "Http11");
    run(driver, async move {
        assert_eq!(Client::connect(address).await.get("/").await.text(), "Http2");
    });
    // In one byte after another, the preface is one all the same.
    let mut client = frames::Peer::silent(address);
    for byte in frames::PREFACE {
        client.send(std::slice::from_ref(byte));
    }
    client.send(&frames::settings(&[]));
    client.get(1, "/");
    assert_eq!(client.response(1).as_deref(), Some(&b"Http2"[..]));
    // After a request it is not a preface.
    let mut client = support::Client::new(address);
    client.get("/");
    client.send(frames::PREFACE);
    assert_eq!(client.reply().status, 400);
});

drivers!(a_server_that_was_not_told_to_speak_it_refuses_it, |driver: DriverName| {
    let server = start(driver, server());
    let mut client = support::Client::new(server.address());
    assert_eq!(client.send(frames::PREFACE).reply().status, 400);
});

drivers!(a_client_that_resets_ends_the_handler_of_a_get_and_is_told_of_to_others, |driver: DriverName| {
    let gone = Arc::new(AtomicU64::new(0));
    struct Guard(Arc<AtomicU64>);
    impl Drop for Guard {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let seen = Arc::clone(&gone);
    let handler = move |request: Request| {
        let guard = Guard(Arc::clone(&seen));
        async move {
            let _guard = guard;
            request.client_gone().await;
            // A GET's handler does not come so far.
            assert_eq!(request.method_name(), "POST");
            "too late"
        }
    };
    let server = start_http2(driver, server().route("/gone", any(handler)));
    let address = server.address();
    let counted = Arc::clone(&gone);
    run(driver, async move {
        let mut client = Client::connect(address).await;
        for request in [get("/gone"), post("/gone")] {
            let (response, mut stream) = client.begin(request, true).await.unwrap();
            // The handler has begun when a request behind it is answered.
            client.get("/page").await;
            stream.send_reset(Reason::CANCEL);
            drop(response);
        }
        while counted.load(Ordering::Relaxed) < 2 {
            time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(client.get("/page").await.status(), 200);
    });
    assert_eq!((server.counters().clients_gone, server.counters().panics), (2, 0));
});

drivers!(a_body_that_is_too_long_is_refused_and_the_connection_goes_on, |driver: DriverName| {
    let refused = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&refused);
    let server = server().on_refused(move |refused| told.lock().unwrap().push(refused.reason.to_string()));
    let server = start_http2(driver, server);
    let address = server.address();
    run(driver, async move {
        let mut client = Client::connect(address).await;
        let told = Ask::post("http://a/echo").header("content-length", LARGE + 1).body(()).unwrap();
        let (response, _stream) = client.begin(told, false).await.unwrap();
        assert_eq!(response.await.unwrap().status(), 413);
        // One that does not say how long it is turns out too long.
        let (response, mut stream) = client.begin(post("/echo"), false).await.unwrap();
        spawn(async move {
            let mut left = 2 * LARGE;
            while left > 0 {
                stream.reserve_capacity(left);
                let Some(Ok(room)) = std::future::poll_fn(|context| stream.poll_capacity(context)).await
                else {
                    break;
                };
                let piece = room.min(left);
                if stream.send_data(Bytes::from(vec![0; piece]), false).is_err() {
                    break;
                }
                left -= piece;
            }
        })
        .detach();
        assert_eq!(response.await.unwrap().status(), 413);
        assert_eq!(client.get("/page").await.status(), 200);
    });
    assert_eq!(refused.lock().unwrap().len(), 1);
});

drivers!(heads_that_mean_nothing_here_are_refused_and_told_of, |driver: DriverName| {
    let refused = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&refused);
    let server = server().on_refused(move |refused| told.lock().unwrap().push(refused.reason.to_string()));
    let server = start_http2(driver, server);
    let address = server.address();
    run(driver, async move {
        let mut client = Client::connect(address).await;
        let two_hosts = Ask::get("http://a/page").header("host", "b").body(()).unwrap();
        assert_eq!(client.ask(two_hosts, Bytes::new()).await.unwrap().status(), 400);
        let crumbs = (0..101).fold(Ask::get("http://a/page"), |ask, _| ask.header("cookie", "a"));
        assert_eq!(client.ask(crumbs.body(()).unwrap(), Bytes::new()).await.unwrap().status(), 431);
        let method = Ask::builder().method("BREW").uri("http://a/page").body(()).unwrap();
        assert_eq!(client.ask(method, Bytes::new()).await.unwrap().status(), 501);
        assert_eq!(client.get("/page").await.status(), 200);
    });
    assert_eq!(refused.lock().unwrap().len(), 3, "{:?}", refused.lock().unwrap());
});

drivers!(what_was_sent_is_told, |driver: DriverName| {
    let sent = Arc::new(Mutex::new(Vec::new()));
    let of = |kind: &'static str| {
        let sent = Arc::clone(&sent);
        move |_: Request| {
            let sent = Arc::clone(&sent);
            async move {
                let body = match kind {
                    "whole" => Body::from("whole"),
                    "endless" => Body::stream(Endless),
                    _ => Body::stream(Failing(false)),
                };
                let sent = Arc::clone(&sent);
                Response::new(body)
                    .on_sent(move |what| sent.lock().unwrap().push((kind, what.body_bytes, what.outcome)))
            }
        }
    };
    let server = server()
        .route("/whole", on_get(of("whole")))
        .route("/endless", on_get(of("endless")))
        .route("/failing", on_get(of("failing")));
    let server = start_http2(driver, server);
    let address = server.address();
    run(driver, async move {
        let mut client = Client::connect(address).await;
        assert_eq!(client.get("/whole").await.text(), "whole");
        let failed = client.ask(get("/failing"), Bytes::new()).await.map(|reply| reply.status()).unwrap_err();
        assert_eq!(code(&failed), Some(Reason::INTERNAL_ERROR));
        let (response, mut stream) = client.begin(get("/endless"), true).await.unwrap();
        let mut body = response.await.unwrap().into_body();
        body.data().await.unwrap().unwrap();
        stream.send_reset(Reason::CANCEL);
        drop(body);
        assert_eq!(client.get("/page").await.status(), 200);
    });
    wait_until("three are told", || sent.lock().unwrap().len() == 3);
    let sent = sent.lock().unwrap();
    assert_eq!(sent[0], ("whole", 5, Outcome::Complete));
    assert_eq!((sent[1].0, sent[1].2), ("failing", Outcome::BodyFailed));
    assert_eq!((sent[2].0, sent[2].2), ("endless", Outcome::ClientGone));
});

struct Endless;

impl futures_core::Stream for Endless {
    type Item = Vec<u8>;

    fn poll_next(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Vec<u8>>> {
        std::task::Poll::Ready(Some(vec![7; 10_000]))
    }
}

struct Failing(bool);

impl futures_core::Stream for Failing {
    type Item = Result<Vec<u8>, std::io::Error>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        let first = !std::mem::replace(&mut self.0, true);
        std::task::Poll::Ready(Some(if first {
            Ok(vec![1; 10])
        } else {
            Err(std::io::ErrorKind::Other.into())
        }))
    }
}

drivers!(a_client_that_waits_for_100_continue_gets_it_when_the_body_is_read, |driver: DriverName| {
    let server = start_http2(driver, server());
    let mut client = frames::Peer::new(server.address());
    let lines = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", "/echo"),
        ("expect", "100-continue"),
    ];
    client.headers(1, &lines, false);
    // An interim head, and no other frame of this stream before the body is sent.
    let (kind, flags, _) = client.frame_of(1).unwrap();
    assert_eq!((kind, flags & 1), (1, 0));
    client.send(&frames::frame(0, 1, 1, b"body"));
    assert_eq!(client.response(1).as_deref(), Some(&b"body"[..]));
});

drivers!(a_server_that_stops_says_so_and_finishes_what_has_begun, |driver: DriverName| {
    let begun = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&begun);
    let handler = move |request: Request| {
        seen.fetch_add(1, Ordering::Relaxed);
        async move {
            request.stopping().await;
            time::sleep(Duration::from_millis(20)).await;
            "finished"
        }
    };
    let server = start_http2(driver, server().route("/slow", on_get(handler)));
    let address = server.address();
    let (tell, told) = sync::oneshot::channel();
    let stopping = std::thread::spawn(move || {
        wait_until("the handler has begun", || begun.load(Ordering::Relaxed) == 1);
        server.stop();
        tell.send(()).unwrap();
        server.wait().unwrap();
    });
    run(driver, async move {
        let mut client = Client::connect(address).await;
        let (response, _) = client.begin(get("/slow"), true).await.unwrap();
        let response = response.await.unwrap();
        assert_eq!(read(response).await.unwrap().text(), "finished");
        told.await.unwrap();
        // GOAWAY without an error: the client ends the connection by itself.
        drop(client.sender);
        client.ended.await.unwrap().unwrap();
    });
    stopping.join().unwrap();
});

drivers!(an_idle_connection_is_ended_in_order, |driver: DriverName| {
    let server = start_http2(driver, server());
    let mut client = frames::Peer::new(server.address());
    client.get(1, "/page");
    assert!(client.response(1).is_some());
    // Not before: the request might come too late.
    server.set_deadlines(Deadlines { keep_alive: Duration::from_secs(1), ..Deadlines::default() });
    let goaway = client.until(7).expect("GOAWAY");
    assert_eq!(&goaway[4..8], &[0; 4], "no error");
});

drivers!(
    /// The client had not read GOAWAY when it asked, and may not send the request again.
    a_request_on_its_way_to_a_server_that_stops_is_answered_on_a_connection_that_was_idle,
    |driver: DriverName| {
        // The server gives the request a second to come: a machine that pauses for as long shows nothing.
        let mut tries = 0..10;
        loop {
            assert!(tries.next().is_some(), "the request was not taken, or the machine paused each time");
            let begun = Arc::new(AtomicU64::new(0));
            let seen = Arc::clone(&begun);
            let slow = move |_: Request| {
                seen.fetch_add(1, Ordering::Relaxed);
                async {
                    // Longer than the end of a connection may take.
                    time::sleep(Duration::from_secs(3)).await;
                    "slow"
                }
            };
            let server = start_http2(driver, server().route("/slow", on_get(slow)));
            let mut client = frames::Peer::new(server.address());
            client.get(1, "/page");
            assert!(client.response(1).is_some());
            let since = Instant::now();
            wait_until("it is idle for long", || since.elapsed() >= Duration::from_secs(2));
            let stopped = Instant::now();
            server.stop();
            let goaway = client.until(7).expect("GOAWAY");
            assert_eq!(goaway[..4], [0x7f, 0xff, 0xff, 0xff], "all that is on the way is taken");
            let ping = client.until(6).expect("PING");
            client.get(3, "/slow");
            client.send(&frames::frame(6, 1, 0, &ping));
            let (answer, took) = (client.response(3), stopped.elapsed());
            server.wait().unwrap();
            if begun.load(Ordering::Relaxed) == 0 && took >= Duration::from_millis(500) {
                continue;
            }
            assert_eq!(answer.as_deref(), Some(&b"slow"[..]));
            return;
        }
    }
);

drivers!(trailers_of_a_made_body_are_sent, |driver: DriverName| {
    let handler = async |_: Request| {
        let lines = FieldBlock::of([("Grpc-Status", "5")]).unwrap();
        Response::new(Body::stream(Pieces(vec![Piece::Trailers(lines), Piece::Data("message".into())])))
    };
    let server = start_http2(driver, server().route("/trailers", on_get(handler)));
    let address = server.address();
    run(driver, async move {
        let reply = Client::connect(address).await.get("/trailers").await;
        assert_eq!(reply.text(), "message");
        assert_eq!(reply.trailers.unwrap().get("grpc-status").unwrap(), "5");
        assert_eq!(reply.head.headers().get("content-length"), None);
    });
});

pub(super) struct Pieces(pub(super) Vec<Piece>);

impl futures_core::Stream for Pieces {
    type Item = Piece;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Piece>> {
        std::task::Poll::Ready(self.0.pop())
    }
}

/// A body that is never read does not hold up others, and its sender is told not to go on.
fn unread(driver: DriverName) {
    let handle: Handle = start_http2(driver, server());
    let address = handle.address();
    run(driver, async move {
        let mut client = Client::connect(address).await;
        let request = Ask::put("http://a/tell/1").body(()).unwrap();
        let (response, mut stream) = client.begin(request, false).await.unwrap();
        stream.send_data(Bytes::from_static(b"part"), false).unwrap();
        assert!(read(response.await.unwrap()).await.unwrap().text().starts_with("PUT"));
        let reset = std::future::poll_fn(|context| stream.poll_reset(context)).await.unwrap();
        assert_eq!(reset, Reason::NO_ERROR);
        assert_eq!(client.get("/page").await.status(), 200);
    });
}
drivers!(a_body_without_a_reader_is_refused_behind_the_answer, unread);

drivers!(
    /// Some clients lose an answer that is read together with the reset behind it (curl up to 7.88).
    a_client_that_still_sends_a_body_gets_the_answer_before_it_is_told_not_to_go_on,
    |driver: DriverName| {
        let handle: Handle = start_http2(driver, server());
        let post = |path| [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", path)];
        let mut tries = 0..50;
        loop {
            assert!(tries.next().is_some(), "no second without a pause of the machine");
            let (mut peer, began) = (frames::Peer::new(handle.address()), Instant::now());
            assert!(peer.send(&frames::headers(1, &post("/tell/1"), false)));
            assert!(peer.send(&frames::headers(3, &post("/nowhere"), false)));
            let (mut answered, mut reset) = (Vec::new(), Vec::new());
            // A reset behind the first two would come before the answer to what is asked then.
            for wanted in [&[1, 3][..], &[5]] {
                if wanted == [5] {
                    assert!(peer.get(5, "/page"));
                }
                while !wanted.iter().all(|stream| answered.contains(stream)) {
                    match peer.next().unwrap() {
                        (0 | 1, flags, stream, _) if flags & 1 != 0 => answered.push(stream),
                        (3, _, stream, _) => reset.push(stream),
                        _ => {}
                    }
                }
            }
            // Told after two ticks of the server's clock, which are a second at least.
            if began.elapsed() < Duration::from_secs(1) {
                assert!(reset.is_empty(), "{reset:?}");
                for stream in [1, 3] {
                    // The rest is taken.
                    assert!(peer.send(&frames::frame(0, 1, stream, b"the rest")));
                }
                peer.get(7, "/page");
                assert!(peer.response(7).is_some());
                return;
            }
        }
    }
);
