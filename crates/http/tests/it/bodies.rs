//! Bodies in both directions: whole, in pieces, at the pace of the slower side, read or unread.

use crate::requests::Once;
use crate::support::{Client, start, wait_until};
use ringroad_engine::time::sleep;
use ringroad_engine::{DriverName, spawn, sync};
use ringroad_http::{Body, BodyError, FieldBlock, Limits, Piece, Request, Server, Status, get, post};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Bytes that differ from place to place.
fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8).collect()
}

async fn count(mut request: Request) -> Result<String, BodyError> {
    let mut bytes = 0;
    let mut pieces = 0;
    while let Some(piece) = request.body().next().await {
        bytes += piece?.len();
        pieces += 1;
    }
    let trailers = request.body().trailers();
    Ok(format!("{bytes} bytes, {} piece(s), {trailers:?}", if pieces > 1 { "several" } else { "one" }))
}

async fn echo(request: Request) -> Body {
    Body::from(request.into_body())
}

async fn upper(mut request: Request) -> Result<Vec<u8>, BodyError> {
    Ok(request.bytes(1000).await?.to_ascii_uppercase())
}

fn server() -> Server {
    Server::new()
        .route("/count", post(count))
        .route("/echo", post(echo))
        .route("/upper", post(upper))
        .route("/ignore", post(|_: Request| async { "ignored" }))
        .route("/", get(|_: Request| async { "here" }))
}

fn post_to(path: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn chunked_to(path: &str, chunks: &[&[u8]], trailers: &str) -> Vec<u8> {
    let mut all =
        format!("POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").into_bytes();
    for chunk in chunks {
        all.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        all.extend_from_slice(chunk);
        all.extend_from_slice(b"\r\n");
    }
    all.extend_from_slice(format!("0\r\n{trailers}\r\n").as_bytes());
    all
}

drivers!(a_body_is_received_whole_whatever_its_framing, |driver: DriverName| {
    let server = start(driver, server());
    let mut client = Client::new(server.address());
    assert_eq!(client.send(post_to("/upper", b"abc")).reply().text(), "ABC");
    assert_eq!(client.send(post_to("/upper", b"")).reply().text(), "");
    let chunks = chunked_to("/upper", &[b"a", b"bc", b"def"], "");
    assert_eq!(client.send(chunks).reply().text(), "ABCDEF");
    assert_eq!(client.send(post_to("/upper", &[b'x'; 1001])).reply().status, 413);
    assert_eq!(client.get("/").text(), "here");
});

drivers!(a_chunked_body_may_be_cut_anywhere, |driver: DriverName| {
    let server = start(driver, server());
    let mut client = Client::new(server.address());
    let request = chunked_to("/count", &[b"hello", b"world"], "X-Sum: 10\r\n");
    let mut received = 0;
    for cut in 1..request.len() {
        client.send(&request[..cut]);
        wait_until("the server receives", || server.counters().bytes_in == received + cut as u64);
        let reply = client.send(&request[cut..]).reply();
        received += request.len() as u64;
        let text = reply.text();
        assert!(text.starts_with("10 bytes"), "cut at {cut}: {text}");
        assert!(text.ends_with(r#"[("X-Sum", [49, 48])]"#), "cut at {cut}: {text}");
    }
});

drivers!(a_long_body_is_echoed_while_it_comes, |driver: DriverName| {
    let server = start(driver, server());
    let sent = pattern(3_000_000);
    for request in [post_to("/echo", &sent), {
        let pieces: Vec<&[u8]> = sent.chunks(70_001).collect();
        chunked_to("/echo", &pieces, "")
    }] {
        let mut client = Client::new(server.address());
        let mut sender = client.stream().try_clone().unwrap();
        let sending = std::thread::spawn(move || {
            use std::io::Write;
            sender.write_all(&request).unwrap();
        });
        let reply = client.reply();
        sending.join().unwrap();
        assert!(reply.status == 200 && reply.body == sent, "{}", reply.head);
        assert_eq!(client.get("/").text(), "here");
    }
});

#[test]
fn what_has_come_of_a_large_body_is_one_piece_of_at_most_256_kib() {
    let (open, gate) = std::sync::mpsc::channel::<()>();
    let gate = std::sync::Arc::new(std::sync::Mutex::new(gate));
    let pieces = move |mut request: Request| {
        let gate = std::sync::Arc::clone(&gate);
        async move {
            let waited = ringroad_engine::spawn_blocking(move || gate.lock().unwrap().recv()).await;
            assert!(matches!(waited, Ok(Ok(()))));
            let mut lengths = Vec::new();
            while let Some(piece) = request.body().next().await {
                lengths.push(piece?.len().to_string());
            }
            Ok::<_, BodyError>(lengths.join(" "))
        }
    };
    let server = start(DriverName::Epoll, Server::new().route("/", post(pieces)));
    let mut client = Client::new(server.address());
    let sent = pattern(1_000_000);
    let mut sender = client.stream().try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        use std::io::Write;
        sender.write_all(&post_to("/", &sent)).unwrap();
    });
    wait_until("the head has come", || server.counters().bytes_in > 0);
    // More than two of the engine's buffers, and less than any socket holds.
    wait_until("more has come than one buffer holds", || unread(&client) > 10_000);
    open.send(()).unwrap();
    let reply = client.reply();
    sending.join().unwrap();
    let lengths: Vec<usize> = reply.text().split(' ').map(|length| length.parse().unwrap()).collect();
    assert_eq!(lengths.iter().sum::<usize>(), 1_000_000);
    // A large buffer of the engine.
    assert!(lengths.iter().all(|length| *length <= 256 * 1024), "{lengths:?}");
    assert!(lengths.iter().any(|length| *length > 2 * 4096), "{lengths:?}");
}

/// Bytes that have come to the server's socket and were not received yet, by the kernel's table
/// (proc(5)).
fn unread(client: &Client) -> usize {
    let (mine, theirs) =
        (client.stream().local_addr().unwrap().port(), client.stream().peer_addr().unwrap().port());
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let row = table.lines().find(|line| {
        let mut words = line.split_whitespace().skip(1);
        let port = |word: Option<&str>| u16::from_str_radix(word?.rsplit_once(':')?.1, 16).ok();
        (port(words.next()), port(words.next())) == (Some(theirs), Some(mine))
    });
    let queues = row.and_then(|line| line.split_whitespace().nth(4)).unwrap_or("0:0");
    usize::from_str_radix(queues.rsplit_once(':').unwrap().1, 16).unwrap()
}

drivers!(a_response_may_be_a_stream_with_trailers, |driver: DriverName| {
    let stream = |_: Request| async {
        let (sender, receiver) = sync::bounded::<Piece>(1);
        spawn(async move {
            for text in ["one ", "two ", "three"] {
                sleep(Duration::from_millis(1)).await;
                sender.send(Piece::Data(text.into())).await.unwrap();
            }
            let lines = FieldBlock::of([("X-Words", "3")]).unwrap();
            sender.send(Piece::Trailers(lines)).await.unwrap();
        })
        .detach();
        Body::stream(receiver)
    };
    let short = |_: Request| async { Body::stream_of(5, Once::of("piece")) };
    let server = start(driver, server().route("/stream", get(stream)).route("/short", get(short)));
    let mut client = Client::new(server.address());
    for _ in 0..2 {
        let reply = client.get("/stream");
        assert_eq!((reply.text(), reply.trailers.as_str()), ("one two three", "X-Words: 3\r\n"));
        assert_eq!(reply.header("Transfer-Encoding"), Some("chunked"));
        let reply = client.get("/short");
        assert_eq!((reply.text(), reply.header("Content-Length")), ("piece", Some("5")));
    }
});

drivers!(a_stream_that_fails_or_is_too_short_ends_the_connection_without_an_end, |driver: DriverName| {
    let fails = |_: Request| async {
        let (sender, receiver) = sync::bounded::<Result<&'static str, std::io::Error>>(2);
        sender.try_send(Ok("begun")).unwrap();
        sender.try_send(Err(std::io::Error::other("on purpose"))).unwrap();
        Body::stream(receiver)
    };
    let short = |_: Request| async { Body::stream_of(6, Once::of("piece")) };
    let never = |_: Request| async {
        let (sender, receiver) = sync::bounded::<Result<&'static str, std::io::Error>>(1);
        sender.try_send(Err(std::io::Error::other("on purpose"))).unwrap();
        Body::stream(receiver)
    };
    let server = server().route("/fails", get(fails)).route("/short", get(short)).route("/never", get(never));
    let server = start(driver, server);
    let cases = [("/fails", "5\r\nbegun"), ("/short", "piece"), ("/never", "chunked\r\n\r\n")];
    for (path, begun) in cases {
        let mut client = Client::new(server.address());
        let all = client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).rest();
        let all = String::from_utf8(all).unwrap();
        assert!(all.ends_with(begun), "{all}");
    }
});

drivers!(a_limit_holds_for_a_last_piece_that_comes_with_the_end_of_the_body, |driver: DriverName| {
    let begun = Arc::new(AtomicBool::new(false));
    let tell = Arc::clone(&begun);
    let limited = move |mut request: Request| {
        let tell = Arc::clone(&tell);
        async move {
            request.body().limit(10)?;
            tell.store(true, Ordering::SeqCst);
            Ok::<_, BodyError>(request.bytes(1000).await?.len().to_string())
        }
    };
    let server = start(driver, server().route("/limited", post(limited)));
    let mut client = Client::new(server.address());
    client.send("POST /limited HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    wait_until("the handler waits", || begun.load(Ordering::SeqCst));
    assert_eq!(client.send("14\r\n01234567890123456789\r\n0\r\n\r\n").reply().status, 413);
});

drivers!(large_bodies_arrive_whole, |driver: DriverName| {
    let whole = |_: Request| async { pattern(1_000_000) };
    let middle = |_: Request| async { pattern(100_000) };
    let fixed = |_: Request| async { Body::from_static(&[b's'; 700_000]) };
    let server =
        server().route("/whole", get(whole)).route("/middle", get(middle)).route("/fixed", get(fixed));
    let server = start(driver, server);
    let mut client = Client::new(server.address());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /whole HTTP/1.1\r\nHost: a\r\n\r\n");
    client.send("GET /middle HTTP/1.1\r\nHost: a\r\n\r\nGET /fixed HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.reply().text(), "here");
    assert!(client.reply().body == pattern(1_000_000));
    assert!(client.reply().body == pattern(100_000));
    assert!(client.reply().body == [b's'; 700_000]);
    assert_eq!(client.get("/").text(), "here");
});

drivers!(a_client_that_expects_to_be_told_is_told_when_the_body_is_wanted, |driver: DriverName| {
    let server = start(driver, server());
    let mut client = Client::new(server.address());
    let head = |path: &str| {
        format!("POST {path} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
    };
    assert_eq!(client.send(head("/upper")).reply().status, 100);
    assert_eq!(client.send("abc").reply().text(), "ABC");
    // The handler ignores the body. Whether the client will send it is unknown, so the connection closes.
    let reply = client.send(head("/ignore")).reply();
    assert_eq!((reply.status, reply.header("Connection")), (200, Some("close")));
    assert!(client.is_closed());
});

drivers!(
    /// After HEAD, and with 204, nothing of the stream is sent, so nothing reads the request's body on its
    /// behalf.
    a_body_before_a_stream_that_is_not_sent_is_skipped,
    |driver: DriverName| {
        let stream = |_: Request| async { Body::stream(Once::of("never")) };
        let nothing = |_: Request| async { (Status::NO_CONTENT, Body::stream(Once::of("never"))) };
        let late = |_: Request| async {
            sleep(Duration::from_millis(1)).await;
            Body::stream(Once::of("never"))
        };
        let server = server()
            .route("/stream", get(stream))
            .route("/late", get(late))
            .route("/nothing", post(nothing));
        let server = start(driver, server);
        for start in ["HEAD /stream", "HEAD /late", "POST /nothing"] {
            let head = |more: &str| format!("{start} HTTP/1.1\r\nHost: a\r\n{more}\r\n");
            // Whether it will come is unknown, so the connection is over.
            let mut client = Client::new(server.address());
            client.send(head("Expect: 100-continue\r\nContent-Length: 28\r\n"));
            let reply = client.reply_to_head();
            assert_eq!(reply.header("Connection"), Some("close"), "{start}: {reply:?}");
            assert!(client.is_closed());
            // It breaks the rules: nothing more is said.
            let mut client = Client::new(server.address());
            client.send(head("Transfer-Encoding: chunked\r\n"));
            client.reply_to_head();
            client.try_send("nonsense\r\n");
            assert!(client.is_closed(), "{start}");
            // It is longer than is worth skipping.
            let mut client = Client::new(server.address());
            client.send(head("Content-Length: 8000000\r\n"));
            let reply = client.reply_to_head();
            assert_eq!(reply.header("Connection"), Some("close"), "{start}: {reply:?}");
            assert!(client.is_closed());
            // It comes, and so does the next request.
            let mut client = Client::new(server.address());
            client.send(head("Content-Length: 27\r\n"));
            client.reply_to_head();
            client.send("GET /count HTTP/1.1\r\nX: a\r\n");
            assert_eq!(client.get("/").text(), "here", "{start}");
        }
    }
);

drivers!(
    /// Behind the head of the answer it would be taken for a part of the answer.
    who_is_answered_with_its_own_body_is_told_to_send_it_before,
    |driver: DriverName| {
        let late = |request: Request| async move {
            sleep(Duration::from_millis(1)).await;
            Body::from(request.into_body())
        };
        let unread = |_: Request| async { Body::stream(Once::of("no need")) };
        let unread_late = |_: Request| async {
            sleep(Duration::from_millis(1)).await;
            Body::stream(Once::of("no need"))
        };
        let server = server()
            .route("/late", post(late))
            .route("/unread", post(unread))
            .route("/unread-late", post(unread_late));
        let server = start(driver, server);
        let head = |path: &str| {
            format!("POST {path} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        };
        let mut client = Client::new(server.address());
        for path in ["/echo", "/late"] {
            let reply = client.send(head(path)).reply();
            assert_eq!(reply.status, 100, "{path}: {reply:?}");
            let reply = client.send("hello").reply();
            assert_eq!((reply.status, reply.text()), (200, "hello"), "{path}");
        }
        // The handler has dropped the body, so the server does not ask the client for it.
        for path in ["/unread", "/unread-late"] {
            let mut client = Client::new(server.address());
            let reply = client.send(head(path)).reply();
            assert_eq!((reply.status, reply.text()), (200, "no need"), "{path}");
            assert_eq!(reply.header("Connection"), Some("close"));
            assert!(client.is_closed());
        }
    }
);

drivers!(
    a_body_that_is_not_read_is_skipped_if_it_is_short_and_ends_the_connection_if_not,
    |driver: DriverName| {
        let server = start(driver, server());
        let mut client = Client::new(server.address());
        // The body looks like a request; it must not be taken for one.
        let smuggled = b"GET /count HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(client.send(post_to("/ignore", smuggled)).reply().text(), "ignored");
        assert_eq!(client.send(chunked_to("/ignore", &[smuggled, b"x"], "")).reply().text(), "ignored");
        assert_eq!(client.get("/").text(), "here");
        client.send("POST /ignore HTTP/1.1\r\nHost: a\r\nContent-Length: 8000000\r\n\r\n");
        let reply = client.reply();
        assert_eq!((reply.status, reply.header("Connection")), (200, Some("close")));
        assert!(client.is_closed());
    }
);

drivers!(
    /// Its request has been answered, so nothing more is said: it could only be taken for the next one's
    /// answer.
    a_body_that_breaks_the_rules_while_it_is_skipped_ends_the_connection_in_silence,
    |driver: DriverName| {
        let server = start(driver, server());
        let head = "POST /ignore HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
        for (first, rest) in [
            (format!("{head}3\r\nabc\r\n").into_bytes(), b"nonsense\r\n".to_vec()),
            (format!("{head}{chunk}").into_bytes(), chunk.repeat(5).into_bytes()),
        ] {
            let mut client = Client::new(server.address());
            assert_eq!(client.send(first).reply().text(), "ignored");
            client.try_send(rest);
            client.try_send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            client.finish();
            assert!(client.is_closed());
        }
    }
);

drivers!(
    a_body_over_the_limit_is_413_before_it_is_read_or_as_soon_as_it_grows_past_it,
    |driver: DriverName| {
        let limits = Limits { body_bytes: 1000, ..Limits::default() };
        let server = start(driver, server().limits(limits));
        let mut client = Client::new(server.address());
        assert_eq!(client.send(post_to("/count", &[b'x'; 1000])).reply().status, 200);
        client.send("POST /count HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n");
        assert_eq!(client.replies().iter().map(|reply| reply.status).collect::<Vec<_>>(), [413]);
        let mut client = Client::new(server.address());
        client.send("POST /count HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.send(format!("1f4\r\n{}\r\n1f5\r\n", "x".repeat(500)));
        assert_eq!(client.replies().iter().map(|reply| reply.status).collect::<Vec<_>>(), [413]);
    }
);

drivers!(a_handler_is_told_of_a_body_that_is_cut_and_the_worker_lives, |driver: DriverName| {
    let (told, heard) = std::sync::mpsc::channel();
    let read = move |mut request: Request| {
        let told = told.clone();
        async move {
            let mut bytes = 0;
            loop {
                match request.body().next().await {
                    Some(Ok(piece)) => bytes += piece.len(),
                    Some(Err(why)) => return told.send((bytes, Some(why.to_string()))).unwrap(),
                    None => return told.send((bytes, None)).unwrap(),
                }
            }
        }
    };
    let server = start(driver, server().route("/read", post(read)));
    for request in [
        "POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf",
        "POST /read HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n64\r\nhalf",
    ] {
        let mut client = Client::new(server.address());
        client.send(request).finish();
        assert!(client.is_closed());
        let (bytes, why) = heard.recv().unwrap();
        assert_eq!(bytes, 4);
        assert!(why.unwrap().contains("before the end of the connection"));
    }
    assert_eq!(Client::new(server.address()).get("/").text(), "here");
});

drivers!(
    /// The connection receives no more until the handler has read the piece it holds.
    a_handler_that_does_not_read_holds_the_sender_back,
    |driver: DriverName| {
        let (go, wait) = sync::bounded::<()>(1);
        let slow = move |mut request: Request| {
            let wait = wait.clone();
            async move {
                wait.recv().await.unwrap();
                request.bytes(usize::MAX).await.map(|bytes| bytes.len().to_string())
            }
        };
        let limits = Limits { body_bytes: u64::MAX, ..Limits::default() };
        let server = start(driver, server().limits(limits).route("/slow", post(slow)));
        let mut client = Client::new(server.address());
        let total = 16 << 20;
        let mut sender = client.stream().try_clone().unwrap();
        let sending = std::thread::spawn(move || {
            use std::io::Write;
            sender.write_all(&post_to("/slow", &vec![b'x'; total])).unwrap();
        });
        wait_until("the head comes", || server.counters().bytes_in > 0);
        // Another connection is served meanwhile, many times over.
        let mut other = Client::new(server.address());
        for _ in 0..100 {
            assert_eq!(other.get("/").text(), "here");
        }
        let received = server.counters().bytes_in;
        assert!(received < 200_000, "{received} bytes of a body that is not read");
        go.try_send(()).unwrap();
        assert_eq!(client.reply().text(), total.to_string());
        sending.join().unwrap();
    }
);

drivers!(a_body_may_be_read_by_another_task_until_its_request_is_answered, |driver: DriverName| {
    let (told, heard) = std::sync::mpsc::channel();
    let passed_on = move |request: Request| {
        let told = told.clone();
        async move {
            let mut body = request.into_body();
            let reader = spawn(async move {
                let first = body.next().await.unwrap().unwrap().into_vec();
                let second = body.next().await;
                let lost = matches!(second, Some(Err(BodyError::Over)));
                told.send((first, lost)).unwrap();
            });
            // Long enough for the first piece, which is there already.
            ringroad_engine::yield_now().await;
            ringroad_engine::yield_now().await;
            reader.detach();
            Status::ACCEPTED
        }
    };
    let server = start(driver, server().route("/passed", post(passed_on)));
    let mut client = Client::new(server.address());
    client.send("POST /passed HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nfirst");
    assert_eq!(client.reply().status, 202);
    let (first, lost) = heard.recv().unwrap();
    assert!(first == b"first" && lost, "{first:?}, {lost}");
});
