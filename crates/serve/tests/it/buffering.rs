//! Slow clients, clients that leave, and what the log says of them: the server behind is held by none of
//! these.

use crate::ports::held;
use crate::support::{Client, Site, behind, start, wait_until};
use ringroad_engine::DriverName;
use ringroad_serve::Event;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn site(driver: DriverName, to: &str, more: &str) -> Site {
    let text = format!(
        "log = {{ file = \"log.json\", format = \"json\" }}\n[buffer]\nmemory = \"64K\"\n[limits]\nbody = \"64M\"\n\
         [[route]]\npath = \"/\"\nkind = \"proxy\"\nto = \"{to}\"\n{more}"
    );
    start(driver, &text, |_| {})
}

/// The lines of the log, as soon as there are so many.
fn lines(site: &Site, count: usize) -> Vec<String> {
    let read = || std::fs::read_to_string(site.path("log.json")).unwrap_or_default();
    wait_until(&format!("{count} lines of the log"), || read().lines().count() >= count);
    read().lines().map(str::to_owned).collect()
}

/// Reads a head and a body of the announced length.
fn request(client: &mut Client) -> Option<(String, Vec<u8>)> {
    let head = String::from_utf8(client.until(b"\r\n\r\n")?).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let body = client.exactly(length.map_or(0, |length| length.parse().unwrap()))?;
    Some((head, body))
}

drivers!(a_request_reaches_a_server_only_when_all_of_it_is_here, |driver: DriverName| {
    let (address, connections) = behind(|client| {
        while let Some((head, body)) = request(client) {
            let sum: u64 = body.iter().map(|byte| u64::from(*byte)).sum();
            let told = format!("{} {sum} {}", body.len(), head.contains("Transfer-Encoding"));
            client.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{told}", told.len()));
        }
    });
    let site = site(driver, &format!("http://{address}"), "");
    // In memory, and beyond it in a file; with a length, and in chunks.
    for size in [10_usize, 65_536, 300_000] {
        let body: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
        let (first, rest) = body.split_at(size / 2);
        let expected = format!("{size} {} false", body.iter().map(|byte| u64::from(*byte)).sum::<u64>());
        for chunked in [false, true] {
            let before = connections.load(Ordering::SeqCst);
            let mut client = site.client();
            let framing = if chunked {
                "Transfer-Encoding: chunked".to_owned()
            } else {
                format!("Content-Length: {size}")
            };
            client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n"));
            for piece in [first, rest] {
                // Another request is answered meanwhile: the worker is not held either.
                assert_eq!(site.client().get("/").text(), "0 0 false");
                if chunked {
                    client.send(format!("{:x}\r\n", piece.len())).send(piece).send("\r\n");
                } else {
                    client.send(piece);
                }
            }
            if chunked {
                client.send("0\r\n\r\n");
            }
            assert_eq!(client.reply().text(), expected, "{size} chunked {chunked}");
            // The requests between were all on one kept connection, and so was this one.
            assert!(connections.load(Ordering::SeqCst) <= before + 1, "{size} chunked {chunked}");
        }
    }
});

drivers!(an_answer_is_taken_from_its_server_while_the_client_does_not_read, |driver: DriverName| {
    const BYTES: usize = 8 << 20;
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let (address, _) = behind(move |client| {
        while client.until(b"\r\n\r\n").is_some() {
            client.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {BYTES}\r\n\r\n"));
            for _ in 0..BYTES / 65_536 {
                client.send(vec![7; 65_536]);
                counted.fetch_add(65_536, Ordering::SeqCst);
            }
        }
    });
    let site = site(driver, &format!("http://{address}"), "");
    let mut client = site.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    // The client has read nothing: more than sockets hold has left the server all the same.
    wait_until("the server has sent all", || sent.load(Ordering::SeqCst) == BYTES);
    let reply = client.reply();
    assert_eq!(reply.body.len(), BYTES);
    assert!(reply.body.iter().all(|byte| *byte == 7));
    let line = lines(&site, 1).remove(0);
    assert!(line.contains(&format!("\"bytes\":{BYTES},")), "{line}");
});

drivers!(a_client_that_resets_ends_its_request_behind, |driver: DriverName| {
    let (arrived, gone) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (came, left) = (Arc::clone(&arrived), Arc::clone(&gone));
    let (address, _) = behind(move |client| {
        if client.until(b"\r\n\r\n").is_some() {
            came.fetch_add(1, Ordering::SeqCst);
            // No answer: it waits for the end of the connection.
            assert_eq!(client.until(b"\r\n\r\n"), None);
            left.fetch_add(1, Ordering::SeqCst);
        }
    });
    let site = site(driver, &format!("http://{address}"), "");
    let mut clients: Vec<_> = (0..5).map(|_| site.client()).collect();
    for client in &mut clients {
        client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    wait_until("five requests behind", || arrived.load(Ordering::SeqCst) == 5);
    clients.into_iter().for_each(Client::reset);
    wait_until("five ended behind", || gone.load(Ordering::SeqCst) == 5);
    let lines = lines(&site, 5);
    assert!(lines.iter().all(|line| line.contains("\"status\":499")), "{lines:?}");
});

drivers!(a_client_that_closes_ends_its_request_behind, |driver: DriverName| {
    let [came, left] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let (arrived, gone) = (Arc::clone(&came), Arc::clone(&left));
    let (address, _) = behind(move |client| {
        if request(client).is_some() {
            arrived.fetch_add(1, Ordering::SeqCst);
            // No answer: it waits for the end of the connection.
            assert_eq!(client.until(b"\r\n\r\n"), None);
            gone.fetch_add(1, Ordering::SeqCst);
        }
    });
    let text = format!(
        "log = {{ file = \"log.json\", format = \"json\" }}\ntimeouts = {{ half_close = \"10ms\" }}\n\
         [[route]]\npath = \"/\"\nkind = \"proxy\"\nto = \"http://{address}\"\n"
    );
    let site = start(driver, &text, |_| {});
    let ask = |method: &str| {
        let mut client = site.client();
        client.send(format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"));
        client
    };
    let mut ended = ask("GET");
    let closed = [ask("GET"), ask("POST")];
    wait_until("three requests behind", || came.load(Ordering::SeqCst) == 3);
    ended.finish();
    drop(closed);
    wait_until("three ended behind", || left.load(Ordering::SeqCst) == 3);
    let lines = lines(&site, 3);
    assert!(lines.iter().all(|line| line.contains("\"status\":499")), "{lines:?}");
});

drivers!(a_route_says_what_becomes_of_requests_whose_clients_leave, |driver: DriverName| {
    let [came, left] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let (arrived, gone) = (Arc::clone(&came), Arc::clone(&left));
    let (address, _) = behind(move |client| {
        let Some((head, _)) = request(client) else { return };
        arrived.fetch_add(1, Ordering::SeqCst);
        if head.starts_with("GET /safe/") {
            assert_eq!(client.until(b"\r\n\r\n"), None);
            gone.fetch_add(1, Ordering::SeqCst);
        } else {
            wait_until("the other one has ended", || gone.load(Ordering::SeqCst) == 1);
            client.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let route = |path: &str, what: &str| {
        format!(
            "[[route]]\npath = \"{path}\"\nkind = \"proxy\"\nto = \"http://{address}\"\non_client_gone = \"{what}\"\n\
             answer_timeout = \"1h\"\n"
        )
    };
    let text = format!(
        "log = {{ file = \"log.json\", format = \"json\" }}\n{}{}",
        route("/finish/", "finish"),
        route("/safe/", "cancel_safe")
    );
    let site = start(driver, &text, |_| {});
    let mut sent = 0;
    let mut leave = |method: &str, path: &str| {
        let mut client = site.client();
        client.send(format!("{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"));
        sent += 1;
        wait_until("the request is behind", || came.load(Ordering::SeqCst) == sent);
        client.reset();
    };
    leave("GET", "/finish/");
    leave("POST", "/safe/");
    // The two get their answers when this one has been given up, although they left earlier.
    leave("GET", "/safe/");
    wait_until("one ended behind", || left.load(Ordering::SeqCst) == 1);
    let lines = lines(&site, 3);
    let count =
        |status: u16| lines.iter().filter(|line| line.contains(&format!("\"status\":{status}"))).count();
    assert_eq!((count(200), count(499)), (2, 1), "{lines:?}");
});

drivers!(what_the_protocol_layer_refuses_is_in_the_log_with_its_reason, |driver: DriverName| {
    let site = site(driver, "http://127.0.0.1:9", "");
    for (bytes, status) in [
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\n bad\r\n\r\n".to_owned(), 400),
        (format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(9000)), 414),
    ] {
        let mut client = site.client();
        client.send(bytes);
        assert_eq!(client.reply().status, status);
    }
    let lines = lines(&site, 3);
    for (line, status) in lines.iter().zip([400, 400, 414]) {
        assert!(line.contains(&format!("\"status\":{status}")) && line.contains("\"refused\":\""), "{line}");
        assert!(line.contains("\"remote\":\"127.0.0.1\""), "{line}");
    }
    assert!(lines[0].contains("\"request_line\":\"GET / HTTP/1.1\""), "{}", lines[0]);
});

drivers!(
    a_request_with_a_refused_body_is_one_line_with_the_status_that_its_client_got,
    |driver: DriverName| {
        let site = site(driver, "http://127.0.0.1:9", "limits = { body = \"10\" }");
        let head = "POST /up HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        for (body, status) in [("zz\r\n", 400), ("14\r\n01234567890123456789\r\n0\r\n\r\n", 413)] {
            let mut client = site.client();
            client.send(head);
            // Apart, so that the handler has begun.
            wait_until("the head has come", || site.service.connections()() > 0);
            client.send(body);
            assert_eq!(client.reply().status, status);
        }
        // Behind all lines of these two.
        let mut client = site.client();
        client.send("GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.reply().status, 400);
        let lines = lines(&site, 3);
        for status in [400, 413] {
            let with = |line: &&String| {
                line.contains("\"target\":\"/up\"") && line.contains(&format!("\"status\":{status}"))
            };
            assert_eq!(lines.iter().filter(with).count(), 1, "{lines:?}");
        }
        assert_eq!(lines.len(), 3, "{lines:?}");
        // It is the client's failure, and no fault of the server or of what is behind it.
        let faults: Vec<Event> =
            site.events.try_iter().filter(|event| matches!(event, Event::Fault { .. })).collect();
        assert!(faults.is_empty(), "{faults:?}");
    }
);

drivers!(a_download_that_is_cut_is_logged_with_what_was_sent, |driver: DriverName| {
    let text = "log = { file = \"log.json\", format = \"json\" }\n[[route]]\npath = \"/\"\nkind = \"static\"\nroot = \".\"\n";
    let site = start(driver, text, |_| {});
    let file = std::fs::File::create(site.path("large")).unwrap();
    file.set_len(4 << 30).unwrap();
    let mut client = site.client();
    client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    client.exactly(1 << 20).unwrap();
    client.reset();
    let line = lines(&site, 1).remove(0);
    let bytes: u64 = line.split("\"bytes\":").nth(1).unwrap().split(',').next().unwrap().parse().unwrap();
    assert!((1 << 19..1 << 30).contains(&bytes), "{line}");
    assert!(line.contains("\"cut\":\"client_gone\""), "{line}");
});

drivers!(a_kept_connection_leaves_as_soon_as_its_server_closes_it, |driver: DriverName| {
    let ended = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&ended);
    let (address, count) = behind(move |client| {
        // One request, an answer that may be followed by others, and then the end.
        if request(client).is_some() {
            client.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            client.finish();
            // The other side closes as well, although it has no request to send.
            assert_eq!(client.until(b"\r\n\r\n"), None);
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let site = site(driver, &format!("http://{address}"), "");
    let mut client = site.client();
    for number in 1..=3 {
        // It cannot be repeated, so it must not meet a connection that is closed.
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx");
        assert_eq!(client.reply().status, 200);
        wait_until("the connection is closed", || ended.load(Ordering::SeqCst) == number);
    }
    assert_eq!(count.load(Ordering::SeqCst), 3);
});

#[test]
fn a_connection_that_carried_a_get_with_a_body_is_not_used_again() {
    let (address, count) = behind(|client| {
        while request(client).is_some() {
            client.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let site = site(DriverName::Epoll, &format!("http://{address}"), "");
    let mut client = site.client();
    for _ in 0..3 {
        client.send("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
        assert_eq!(client.reply().text(), "ok");
    }
    assert_eq!(count.load(Ordering::SeqCst), 3);
    (0..3).for_each(|_| assert_eq!(client.get("/").text(), "ok"));
    assert_eq!(count.load(Ordering::SeqCst), 4);
}

#[test]
fn a_body_that_breaks_the_protocol_reaches_no_server() {
    let (address, count) = behind(|client| while request(client).is_some() {});
    let site = site(DriverName::Epoll, &format!("http://{address}"), "");
    let mut client = site.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n");
    assert_eq!(client.reply().status, 400);
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[test]
fn an_address_that_went_and_came_back_is_one_series() {
    let text =
        |listen: &str| format!("listen = [{listen}]\n[[route]]\npath = \"/metrics\"\nkind = \"metrics\"\n");
    let ((one, _one), (other, _other)) = (held(), held());
    let mut site = start(DriverName::Epoll, "[[route]]\npath = \"/metrics\"\nkind = \"metrics\"\n", |_| {});
    for listen in [format!("\"{one}\", \"{other}\""), format!("\"{one}\""), format!("\"{one}\", \"{other}\"")]
    {
        std::fs::write(site.path("ringroad.toml"), text(&listen)).unwrap();
        site.service.reload();
        assert_eq!(Client::new(one).get("/metrics").status, 200);
    }
    let reply = Client::new(other).get("/metrics");
    let name = format!("ringroad_http_connections_accepted_total{{listen=\"{other}\"}}");
    assert_eq!(reply.text().lines().filter(|line| line.starts_with(&name)).count(), 1, "{}", reply.text());
}

drivers!(a_server_that_is_silent_learns_that_the_client_has_left, |driver: DriverName| {
    let left = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&left);
    let (address, _) = behind(move |client| {
        let Some(_) = request(client) else { return };
        client.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n");
        // Nothing more until the other side ends.
        client.rest();
        counted.fetch_add(1, Ordering::SeqCst);
    });
    let site = site(driver, &format!("http://{address}"), "answer_timeout = \"1h\"");
    let mut client = site.client();
    client.send("GET /silent HTTP/1.1\r\nHost: a\r\n\r\n").until(b"first").unwrap();
    drop(client);
    wait_until("the end at the server", || left.load(Ordering::SeqCst) == 1);
});
