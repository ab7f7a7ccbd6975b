//! Our client, with our server and with others that misbehave.

use crate::support::{odd, start};
use ringroad_engine::time::sleep;
use ringroad_engine::{DriverName, Runtime, spawn, sync};
use ringroad_http::{
    Body, BodyError, Client, ClientError, FailedAt, Handle, Method, Request, SentSoFar, Server, Status, any,
    get, post,
};
use std::future::Future;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn server(driver: DriverName) -> Handle {
    let echo = |request: Request| async { Body::from(request.into_body()) };
    let stream = |_: Request| async {
        let (sender, receiver) = sync::bounded::<&'static str>(2);
        sender.try_send("one ").unwrap();
        sender.try_send("two").unwrap();
        Body::stream(receiver)
    };
    let server = Server::new()
        .route("/", get(|_: Request| async { "hello" }))
        .route("/stream", get(stream))
        .route("/echo", post(echo));
    start(driver, server)
}

fn run<F: Future>(driver: DriverName, future: F) -> F::Output {
    Runtime::new(driver).unwrap().block_on(future).unwrap()
}

drivers!(one_connection_serves_request_after_request, |driver: DriverName| {
    let server = server(driver);
    let url = format!("http://{}/", server.address());
    run(driver, async {
        let client = Client::new();
        for _ in 0..10 {
            let mut response = client.get(&url).send().await.unwrap();
            assert_eq!((response.status(), response.header("content-length")), (Status::OK, Some("5")));
            assert_eq!(response.text().await.unwrap(), "hello");
            let response = client.request(Method::Head, &url).send().await.unwrap();
            assert_eq!(response.status(), Status::OK);
        }
        assert_eq!(client.idle_connections(), 1);
    });
    assert_eq!(server.counters().accepted, 1);
});

drivers!(each_method_of_the_client_asks_by_its_name, |driver: DriverName| {
    let tell = |request: Request| async move { request.method_name().to_owned() };
    let server = start(driver, Server::new().route("/", any(tell)));
    let url = format!("http://{}/", server.address());
    run(driver, async {
        let client = Client::new();
        let requests = [
            (client.get(&url), "GET"),
            (client.post(&url), "POST"),
            (client.put(&url), "PUT"),
            (client.patch(&url), "PATCH"),
            (client.delete(&url), "DELETE"),
        ];
        for (request, name) in requests {
            assert_eq!(request.send().await.unwrap().text().await.unwrap(), name);
        }
        let mut response = client.head(&url).send().await.unwrap();
        assert_eq!(response.header("content-length"), Some("4"));
        assert_eq!(response.text().await.unwrap(), "");
    });
});

drivers!(
    /// All of them are under way before the first is answered.
    ten_requests_to_a_slow_server_wait_together,
    |driver: DriverName| {
        let come = Arc::new(AtomicUsize::new(0));
        let slow = move |_: Request| {
            let come = Arc::clone(&come);
            async move {
                come.fetch_add(1, Ordering::Relaxed);
                while come.load(Ordering::Relaxed) < 10 {
                    sleep(Duration::from_millis(1)).await;
                }
                "slow"
            }
        };
        let server = start(driver, Server::new().route("/", get(slow)));
        let url = format!("http://{}/", server.address());
        run(driver, async {
            let client = Client::new();
            let all: Vec<_> = (0..10)
                .map(|_| {
                    let request = client.get(&url).send();
                    spawn(async move { request.await.unwrap().text().await.unwrap() })
                })
                .collect();
            for one in all {
                assert_eq!(one.await.unwrap(), "slow");
            }
            assert_eq!(client.idle_connections(), 10);
        });
        assert_eq!(server.counters().accepted, 10);
    }
);

drivers!(bodies_stream_both_ways, |driver: DriverName| {
    let server = server(driver);
    let base = format!("http://{}", server.address());
    run(driver, async {
        let client = Client::new();
        let (sender, receiver) = sync::bounded::<Vec<u8>>(1);
        spawn(async move {
            for piece in 0..10u8 {
                sender.send(vec![piece; 10_000]).await.unwrap();
            }
        })
        .detach();
        let request = client.post(&format!("{base}/upload")).body(Body::stream(receiver));
        let mut response = request.send().await.unwrap();
        assert_eq!(response.status(), Status::NOT_FOUND);
        assert_eq!(response.text().await.unwrap(), "404 Not Found\n");

        let request = client.post(&format!("{base}/echo")).body(vec![7; 300_000]).header("X-A", "b");
        let mut response = request.send().await.unwrap();
        let mut bytes = 0;
        while let Some(piece) = response.next().await {
            let piece = piece.unwrap();
            assert!(piece.iter().all(|byte| *byte == 7));
            bytes += piece.len();
        }
        assert_eq!(bytes, 300_000);
        let mut response = client.get(&format!("{base}/stream")).send().await.unwrap();
        assert_eq!(response.text().await.unwrap(), "one two");
    });
});

drivers!(a_response_dropped_before_its_end_does_not_spoil_the_next, |driver: DriverName| {
    let server = server(driver);
    let base = format!("http://{}", server.address());
    run(driver, async {
        let client = Client::new();
        let request = client.post(&format!("{base}/echo")).body(vec![7; 100_000]);
        drop(request.send().await.unwrap());
        assert_eq!(client.idle_connections(), 0);
        let mut response = client.get(&format!("{base}/")).send().await.unwrap();
        assert_eq!(response.text().await.unwrap(), "hello");
    });
});

fn read_head(stream: &mut std::net::TcpStream) {
    let mut got = Vec::new();
    let mut byte = [0];
    while !got.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() > 0 {
        got.push(byte[0]);
    }
}

drivers!(
    /// The server says nothing of it, and a request may be on its way already.
    a_connection_closed_by_the_server_between_requests_is_replaced,
    |driver: DriverName| {
        let url = odd(|_, mut stream| {
            read_head(&mut stream);
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").unwrap();
            // Closed with the next request unread, so that its sender finds out late.
            let mut byte = [0];
            let _ = stream.read(&mut byte);
        });
        run(driver, async {
            let client = Client::new();
            for _ in 0..3 {
                let mut response = client.get(&url).send().await.unwrap();
                assert_eq!(response.text().await.unwrap(), "hi");
            }
            // What may not be repeated is not.
            let request = client.post(&url).body("x").send().await;
            assert!(
                matches!(&request, Err(failure) if failure.sent != SentSoFar::Nothing),
                "{request:?}"
            );
        });
    }
);

drivers!(what_is_no_answer_is_an_error_and_what_never_comes_too, |driver: DriverName| {
    let nonsense = odd(|_, mut stream| {
        read_head(&mut stream);
        stream.write_all(b"SSH-2.0-hello\r\n\r\n").unwrap();
    });
    let short = odd(|_, mut stream| {
        read_head(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhi").unwrap();
    });
    let silent = odd(|_, stream| std::mem::forget(stream));
    run(driver, async {
        let client = Client::new();
        let why = client.get(&nonsense).send().await.unwrap_err();
        assert!(matches!(why.why, ClientError::Response(_)), "{why:?}");
        assert_eq!((why.at, why.sent), (FailedAt::HeadBegun, SentSoFar::All));
        let answer = client.get(&short).send().await.unwrap().text().await;
        assert!(matches!(answer, Err(BodyError::Refused(_))), "{answer:?}");
        // Long enough to connect and to send, which takes longer where the machine is busy.
        let mut patience = Duration::from_millis(100);
        let why = loop {
            let why = Client::new().timeout(patience).get(&silent).send().await.unwrap_err();
            assert!(matches!(why.why, ClientError::TimedOut("request", _)), "{why:?}");
            if why.at == FailedAt::Head || patience > Duration::from_secs(20) {
                break why;
            }
            patience *= 2;
        };
        assert_eq!((why.at, why.sent), (FailedAt::Head, SentSoFar::All));
        for wrong in ["wss:/a/", "/path", "http://u@a/", "ftp://a/", "http://a/ b"] {
            let why = client.get(wrong).send().await.unwrap_err();
            assert!(matches!(why.why, ClientError::Url { .. }), "{wrong}: {why:?}");
        }
        let why = client.get("http://127.0.0.1:1/").header("A", "b\r\nC: d").send().await.unwrap_err();
        assert!(matches!(why.why, ClientError::Request(_)), "{why:?}");
        let why = client.get("http://127.0.0.1:1/").send().await.unwrap_err();
        assert!(matches!(why.why, ClientError::Connection(_)), "{why:?}");
        assert_eq!((why.at, why.sent), (FailedAt::Connect, SentSoFar::Nothing));
        // For ever is long enough.
        let answer = Client::new().timeout(Duration::MAX).get("http://127.0.0.1:1/").send().await;
        assert_eq!(answer.unwrap_err().at, FailedAt::Connect);
    });
});

drivers!(a_folded_line_of_an_answer_is_one_line, |driver: DriverName| {
    let url = odd(|_, mut stream| {
        read_head(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\nX-One: a\r\n b\r\nContent-Length: 2\r\n\r\nhi").unwrap();
    });
    run(driver, async {
        let mut response = Client::new().get(&url).send().await.unwrap();
        assert_eq!(response.header("x-one"), Some("a   b"));
        assert_eq!(response.text().await.unwrap(), "hi");
    });
});

drivers!(the_end_of_a_body_may_come_alone_and_with_lines_behind_it, |driver: DriverName| {
    let (go_on, told) = std::sync::mpsc::channel::<()>();
    let url = odd(move |_, mut stream| {
        read_head(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n").unwrap();
        told.recv().unwrap();
        stream.write_all(b"0\r\nX-Sum: 5\r\n\r\n").unwrap();
        // Open until the test is over: a connection that is closed is not kept.
        let _ = told.recv();
    });
    run(driver, async {
        let client = Client::new();
        let mut response = client.get(&url).send().await.unwrap();
        let mut body = Vec::new();
        while body.len() < 5 {
            body.extend_from_slice(&response.next().await.unwrap().unwrap());
        }
        assert_eq!(body, b"hello");
        go_on.send(()).unwrap();
        assert!(response.next().await.is_none());
        assert_eq!(response.trailers(), [("X-Sum".to_owned(), b"5".to_vec())]);
        assert_eq!(client.idle_connections(), 1, "it may be used again");
    });
});

drivers!(a_body_to_the_end_of_the_connection_is_not_whole_if_that_was_reset, |driver: DriverName| {
    let url = odd(|_, mut stream| {
        read_head(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nsome").unwrap();
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    });
    run(driver, async {
        let client = Client::new();
        // It may be reset before the head is read.
        if let Ok(mut response) = client.get(&url).send().await {
            let all = response.bytes(1000).await;
            assert!(matches!(all, Err(BodyError::Connection(_))), "{all:?}");
        }
    });
});

drivers!(a_name_is_looked_up, |driver: DriverName| {
    let server = server(driver);
    let url = format!("http://localhost:{}/", server.address().port());
    run(driver, async {
        let mut response = Client::new().get(&url).send().await.unwrap();
        assert_eq!(response.text().await.unwrap(), "hello");
    });
});

drivers!(a_kept_connection_that_the_server_closes_leaves_at_once, |driver: DriverName| {
    let (close, told) = std::sync::mpsc::channel::<()>();
    let told = std::sync::Mutex::new(told);
    let url = odd(move |_, mut stream| {
        read_head(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").unwrap();
        told.lock().unwrap().recv().unwrap();
    });
    run(driver, async {
        let client = Client::new();
        assert_eq!(client.get(&url).send().await.unwrap().text().await.unwrap(), "hi");
        assert_eq!(client.idle_connections(), 1);
        close.send(()).unwrap();
        while client.idle_connections() > 0 {
            ringroad_engine::time::sleep(Duration::from_millis(1)).await;
        }
    });
});

drivers!(a_connection_is_kept_no_longer_than_its_server_says, |driver: DriverName| {
    let url = odd(|_, mut stream| {
        read_head(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=1\r\nContent-Length: 2\r\n\r\nhi").unwrap();
        std::mem::forget(stream);
    });
    run(driver, async {
        let client = Client::new();
        assert_eq!(client.get(&url).send().await.unwrap().text().await.unwrap(), "hi");
        assert_eq!(client.idle_connections(), 0);
    });
});

drivers!(
    /// The server answers a second time, to what it takes for a request and was a body.
    a_connection_that_carried_a_get_with_a_body_is_not_kept,
    |driver: DriverName| {
        let server = server(driver);
        run(driver, async {
            let client = Client::new();
            let url = format!("http://{}/", server.address());
            let mut response = client.get(&url).body("GET /admin HTTP/1.1\r\nHost: a\r\n\r\n").send().await.unwrap();
            response.bytes(1000).await.unwrap();
            assert_eq!(client.idle_connections(), 0);
            client.get(&url).send().await.unwrap().bytes(1000).await.unwrap();
            assert_eq!(client.idle_connections(), 1);
        });
    }
);

drivers!(an_address_with_a_zone_is_asked_and_the_zone_is_not_sent, |driver: DriverName| {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        return eprintln!("skipped: no IPv6");
    }
    let tell = |request: Request| async move { request.authority().unwrap_or_default().to_owned() };
    let server = Server::new().route("/", get(tell)).bind("[::1%lo]:0").unwrap();
    let server = server.driver(ringroad_engine::choose::Wish::Named(driver)).start().unwrap();
    let port = server.address().port();
    run(driver, async {
        let client = Client::new();
        for host in ["[::1%25lo]", "[::1%lo]", "[::1%251]"] {
            let mut response = client.get(&format!("http://{host}:{port}/")).send().await.unwrap();
            assert_eq!(response.text().await.unwrap(), format!("[::1]:{port}"), "{host}");
        }
        let failed = client.get(&format!("http://[::1%25no-such-one]:{port}/")).send().await.unwrap_err();
        assert_eq!(failed.at, FailedAt::Resolve);
        assert!(failed.to_string().contains("::1%no-such-one"), "{failed}");
        let connected = ringroad_engine::net::TcpStream::connect_to(format!("[::1%lo]:{port}")).await;
        assert!(connected.is_ok(), "{connected:?}");
    });
});

drivers!(a_client_asks_over_a_unix_socket, |driver: DriverName| {
    let folder = std::env::temp_dir().join(format!("ringroad-client-{}-{driver}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("socket");
    let tell = |request: Request| async move { request.authority().unwrap_or_default().to_owned() };
    let server = Server::new().route("/", get(tell)).bind(format!("unix:{}", path.display())).unwrap();
    let server = server.driver(ringroad_engine::choose::Wish::Named(driver)).start().unwrap();
    run(driver, async {
        let client = Client::new().unix(&path);
        for _ in 0..2 {
            let mut response = client.get("http://app.example/").send().await.unwrap();
            assert_eq!(response.text().await.unwrap(), "app.example");
        }
        assert_eq!(client.idle_connections(), 1);
    });
    assert_eq!(server.counters().accepted, 1);
    drop(server);
    std::fs::remove_dir_all(folder).unwrap();
});

drivers!(with_the_last_clone_of_a_client_its_kept_connections_are_closed, |driver: DriverName| {
    let server = server(driver);
    run(driver, async {
        let client = Client::new();
        let url = format!("http://{}/", server.address());
        client.clone().get(&url).send().await.unwrap().bytes(1000).await.unwrap();
        assert_eq!((client.idle_connections(), server.counters().connections), (1, 1));
        drop(client);
        while server.counters().connections > 0 {
            ringroad_engine::time::sleep(Duration::from_millis(1)).await;
        }
    });
});
