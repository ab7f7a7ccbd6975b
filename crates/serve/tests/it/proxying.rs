//! Requests passed on to an upstream server, which here is a script on a socket.

use crate::ports::nowhere;
use crate::support::{Client, Site, behind, configure, start, wait_until};
use ringroad_engine::DriverName;
use ringroad_serve::Event;
use std::net::TcpListener;
use std::sync::atomic::Ordering;

fn site(driver: DriverName, to: &str, more: &str) -> Site {
    let route = format!("[[route]]\npath = \"/\"\nkind = \"proxy\"\nto = \"{to}\"\n{more}\n");
    start(driver, &route, |_| {})
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// Answers each request with its own head as the body, as long as there are some.
fn echo_heads(client: &mut Client) {
    while let Some(head) = client.until(b"\r\n\r\n") {
        let head = String::from_utf8(head).unwrap();
        client.send(ok(&head));
    }
}

drivers!(lines_of_the_hop_stay_there_and_ours_are_added, |driver: DriverName| {
    let (address, _) = behind(echo_heads);
    let site = site(driver, &format!("http://{address}"), "");
    let mut client = site.client();
    for path in ["/a%20b/%2e%2e/c", "/a%2fb/../c", "/../c"] {
        assert_eq!(client.get(path).status, 400, "a path that means two places is not handed on: {path}");
    }
    let reply = client.ask("GET", "/a%20b/x/../c/.?d=/../%2e", &[]);
    assert!(reply.text().starts_with("GET /a%20b/c/?d=/../%2e HTTP/1.1\r\n"), "{}", reply.text());
    let lines = [
        ("Accept", "text/*"),
        ("Connection", "keep-alive, X-Of-The-Hop, X-Forwarded-For"),
        ("X-Of-The-Hop", "1"),
        ("Keep-Alive", "timeout=5"),
        ("TE", "trailers"),
        ("Proxy-Authorization", "Basic x"),
        ("Upgrade", "websocket"),
        ("X-Forwarded-For", "10.0.0.1"),
        ("X_Forwarded_For", "10.0.0.2"),
        ("X-Forwarded-Proto", "https"),
        ("Forwarded", "for=10.0.0.3"),
        ("X-Real-IP", "10.0.0.4"),
        ("X-Request-Id", "theirs"),
        ("Cookie", "a=b"),
    ];
    let reply = client.ask("GET", "/a%20b/c?d=%2e", &lines);
    let head = reply.text();
    let (first, rest) = head.split_once("\r\n").unwrap();
    assert_eq!(first, "GET /a%20b/c?d=%2e HTTP/1.1");
    let mut got: Vec<_> = rest.trim_end().split("\r\n").collect();
    let id = got.iter().position(|line| line.starts_with("X-Request-Id: ")).unwrap();
    assert_ne!(got.remove(id), "X-Request-Id: theirs");
    let expected = [
        "Host: example.org",
        "Accept: text/*",
        "Cookie: a=b",
        "X-Forwarded-For: 127.0.0.1",
        "X-Real-IP: 127.0.0.1",
        "X-Forwarded-Host: example.org",
        "X-Forwarded-Proto: http",
        "Forwarded: for=127.0.0.1;host=\"example.org\";proto=http",
        "Via: 1.1 ringroad",
    ];
    assert_eq!(got, expected);
});

drivers!(
    a_request_with_more_lines_of_its_hop_than_16_is_refused_before_a_server_has_it,
    |driver: DriverName| {
        let (address, connections) = behind(echo_heads);
        let site = site(driver, &format!("http://{address}"), "");
        let named = |count: usize| (0..count).map(|at| format!("X-{at}")).collect::<Vec<_>>().join(",");
        let mut client = site.client();
        // In one line, and in three with empty words between.
        for lines in [
            vec![named(17)],
            vec![named(6), format!(",{},", named(6)), named(5)],
            vec!["a,".repeat(4000)],
            vec!["keep-alive,".repeat(17)],
        ] {
            let lines: Vec<_> = lines.iter().map(|line| ("Connection", line.as_str())).collect();
            assert_eq!(client.ask("GET", "/", &lines).status, 400);
        }
        assert_eq!(connections.load(Ordering::SeqCst), 0);
        let reply = client.ask("GET", "/", &[("Connection", &named(16)), ("X-15", "1"), ("X-16", "2")]);
        let (gone, stays) = ("X-15: 1\r\n", "X-16: 2\r\n");
        assert!(!reply.text().contains(gone) && reply.text().contains(stays), "{}", reply.text());
    }
);

drivers!(a_client_has_no_line_removed_that_is_set_here, |driver: DriverName| {
    let (address, _) = behind(echo_heads);
    let rules = format!(
        r#"
        [auth.shop]
        kind = "key"
        keys = [{{ key = "secret", name = "ann" }}]
        tell = "X-User"

        [[route]]
        path = "/"
        kind = "proxy"
        to = "http://{address}"
        auth = "shop"
        headers = {{ request = {{ set = {{ X-Token = "inner" }} }} }}
        timeouts = {{ answer = "200s", tell = "X-Left" }}

        [[route]]
        path = "/theirs"
        kind = "redirect"
        to = "/not-{{header.X-Theirs}}-here"
        "#
    );
    let site = start(driver, &rules, |_| {});
    let mut client = site.client();
    let lines = [
        ("Authorization", "Bearer secret"),
        ("Connection", "keep-alive, X-User, x-token"),
        ("Connection", "X-Left,X-Theirs, , Host, Content-Length"),
        ("X-Theirs", "1"),
    ];
    let reply = client.ask("GET", "/", &lines);
    assert_eq!(reply.status, 200);
    for line in ["Host: example.org\r\n", "X-User: ann\r\n", "X-Token: inner\r\n", "X-Left: "] {
        assert!(reply.text().contains(line), "{line} in {}", reply.text());
    }
    assert!(!reply.text().contains("X-Theirs"), "{}", reply.text());
    // What does not go on counts for nothing here either.
    assert_eq!(client.ask("GET", "/theirs", &lines).header("Location"), Some("/not--here"));
    let without = [lines[0], ("Connection", "authorization")];
    assert_eq!(client.ask("GET", "/", &without).status, 401);
});

#[test]
fn a_proxy_before_us_is_believed_where_it_is_trusted() {
    let (address, _) = behind(echo_heads);
    let more = "trust_forwarded = true\nhost = \"app.internal:81\"\n";
    let site = site(DriverName::Epoll, &format!("http://{address}"), more);
    let lines = [
        ("X-Forwarded-For", "10.0.0.1"),
        ("X-Forwarded-For", "10.0.0.2"),
        ("X-Forwarded-Proto", "http"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Host", "of.the.client"),
        ("X-Forwarded-Host", "www.example.org"),
        ("Forwarded", "for=10.0.0.1"),
        ("X-Request-Id", "theirs"),
    ];
    let reply = site.client().ask("GET", "/", &lines);
    for line in [
        "Host: app.internal:81\r\n",
        "X-Forwarded-For: 10.0.0.1, 10.0.0.2, 127.0.0.1\r\n",
        "X-Forwarded-Proto: https\r\n",
        "X-Forwarded-Host: www.example.org\r\n",
        "Forwarded: for=10.0.0.1, for=127.0.0.1;host=\"example.org\";proto=https\r\n",
        "X-Request-Id: theirs\r\n",
    ] {
        assert!(reply.text().contains(line), "{line} in {}", reply.text());
    }
}

#[test]
fn a_path_behind_the_upstream_replaces_the_routes() {
    let (address, _) = behind(echo_heads);
    let routes = format!(
        "[[route]]\npath = \"/api/\"\nkind = \"proxy\"\nto = \"http://{address}/v1/\"\n\
         [[route]]\npath = \"/one\"\nkind = \"proxy\"\nto = \"http://{address}/two\"\n"
    );
    let site = start(DriverName::Epoll, &routes, |_| {});
    let mut client = site.client();
    for (path, target) in
        [("/api/a%20b?c", "/v1/a%20b?c"), ("/%61pi/x", "/v1/x"), ("/one", "/two"), ("/api/", "/v1/")]
    {
        let reply = client.get(path);
        assert!(reply.text().starts_with(&format!("GET {target} HTTP/1.1\r\n")), "{path}: {}", reply.text());
    }
}

drivers!(
    /// Upstream servers may take several slashes for one, and `..;` for `..`.
    a_route_before_a_proxy_is_not_got_around,
    |driver: DriverName| {
        let (address, count) = behind(echo_heads);
        let routes = format!(
            "[[route]]\npath = \"/\"\nkind = \"proxy\"\nto = \"http://{address}\"\n\
             [[route]]\npath = \"/api/\"\nkind = \"proxy\"\nto = \"http://{address}/v1/\"\n\
             [[route]]\npath = \"/old/\"\nkind = \"redirect\"\nto = \"/new/\"\n\
             [[route]]\npath = \"/admin/\"\nkind = \"respond\"\nstatus = 403\n\
             [[route]]\npath = \"/secret\"\nkind = \"respond\"\nstatus = 403\n"
        );
        let site = start(driver, &routes, |_| {});
        let mut client = site.client();
        for path in ["/admin/x", "//admin/x", "/admin//", "/admin/a%2fb", "/admin/a;b", "/%61dmin/x", "/secret", "///secret", "/x/../admin/x", "/admin/x/../y", "/./admin/.", "/x//..//secret"] {
            assert_eq!(client.get(path).status, 403, "{path}");
        }
        for path in [
            "/x/..;/admin/",
            "/x/..;a=b/admin/",
            "/.;/admin/",
            "/x/%2e%2e%3b/admin/",
            "/..;",
            "/x/..\\admin/users",
            "/x%5c..%5cadmin/users",
            // Readings that choose different routes.
            "/admin;a=b/users",
            "/;/admin/users",
            "/%2fadmin/x",
            "/%2F/admin//x",
            "//admin%2fx",
            "/admin%5cusers",
            "/%2fsecret",
            "/secret;x",
            "/%2Fapi//x",
            // An overlong form of a slash.
            "/%c0%afadmin/users",
        ] {
            assert_eq!(client.get(path).status, 400, "{path}");
        }
        assert_eq!(count.load(Ordering::SeqCst), 0, "something was handed on");
        // The request is passed on unchanged.
        for (path, target) in [
            ("//x//y", "//x//y"),
            ("/%2fx", "/%2fx"),
            ("/a..;/b;c", "/a..;/b;c"),
            ("//api/x", "/v1/x"),
        ] {
            let reply = client.get(path);
            assert!(reply.text().starts_with(&format!("GET {target} HTTP/1.1\r\n")), "{path}: {}", reply.text());
        }
        assert_eq!(client.get("//old//x").header("Location"), Some("/new//x"));
        assert_eq!(client.get("//admin").header("Location"), Some("/admin/"));
    }
);

drivers!(
    /// The proxy waits for the client then, and not for the upstream server.
    an_answer_that_the_client_takes_slowly_is_handed_back_whole,
    |driver: DriverName| {
        const BYTES: usize = 64 << 20;
        let (address, _) = behind(|client| {
            client.until(b"\r\n\r\n");
            client.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {BYTES}\r\n\r\n"));
            client.try_send(vec![b'x'; BYTES]);
            client.rest();
        });
        let site = site(driver, &format!("http://{address}"), "answer_timeout = \"2s\"");
        let mut client = site.client();
        // The upstream server is waited for until its answer begins. A busy machine may be late with that.
        wait_until("the head of an answer in time", || {
            client = site.client();
            client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            let head = String::from_utf8(client.until(b"\r\n\r\n").unwrap()).unwrap();
            assert!(head.starts_with("HTTP/1.1 200 ") || head.starts_with("HTTP/1.1 504 "), "{head}");
            head.starts_with("HTTP/1.1 200 ")
        });
        std::thread::sleep(std::time::Duration::from_secs(3));
        assert_eq!(client.count_rest(), BYTES);
    }
);

/// Heads that come before an answer.
fn hints(path: &str) -> String {
    let hint = |status: &str, lines: &str| format!("HTTP/1.1 {status}\r\n{lines}\r\n");
    match path {
        "/hop" => hint(
            "103 Early Hints",
            "Link: </a.css>; rel=preload\r\nConnection: X-Secret\r\nX-Secret: 1\r\nKeep-Alive: timeout=5\r\n",
        ),
        "/others" => {
            let long = format!("Link: {}\r\n", "x".repeat(9000));
            let first = [hint("100 Continue", ""), hint("102 Processing", "X-A: 1\r\n")].concat();
            [first, hint("103 Early Hints", &long), hint("199 Whatever", "X-B: 2\r\n")].concat()
        }
        "/many" => hint("103 Early Hints", "Link: </a.css>\r\n").repeat(255),
        "/too-many" => hint("103 Early Hints", "Link: </a.css>\r\n").repeat(256),
        _ => String::new(),
    }
}

/// What is said before an answer, and the status of the answer.
fn told(client: &mut Client, ask: &str) -> (Vec<String>, u16) {
    client.send(ask);
    let mut hints = Vec::new();
    loop {
        let reply = client.reply();
        if reply.status >= 200 {
            return (hints, reply.status);
        }
        hints.push(reply.head);
    }
}

drivers!(what_a_server_behind_says_before_its_answer_is_passed_on, |driver: DriverName| {
    let (go, told_to_go) = std::sync::mpsc::channel::<()>();
    let told_to_go = std::sync::Mutex::new(told_to_go);
    let (address, _) = behind(move |client| {
        while let Some(head) = client.until(b"\r\n\r\n") {
            let path = String::from_utf8(head).unwrap().split(' ').nth(1).unwrap().to_owned();
            client.send(hints(&path));
            if path == "/hop" {
                // The answer waits until the hints have arrived.
                told_to_go.lock().unwrap().recv().unwrap();
            }
            client.send(ok("answer"));
        }
    });
    let site = site(driver, &format!("http://{address}"), "[http2]\nprior_knowledge = true");
    let mut client = site.client();
    client.send("GET /hop HTTP/1.1\r\nHost: a\r\n\r\n");
    let hint = String::from_utf8(client.until(b"\r\n\r\n").unwrap()).unwrap();
    assert_eq!(hint, "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n");
    go.send(()).unwrap();
    assert_eq!(client.reply().text(), "answer");
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    // `100 Continue` is of the hop, and one head is too long to be passed on.
    let (hints, status) = told(&mut client, &get("/others"));
    let expected = ["HTTP/1.1 102 Processing\r\nX-A: 1\r\n\r\n", "HTTP/1.1 199 \r\nX-B: 2\r\n\r\n"];
    assert_eq!((hints, status), (expected.map(str::to_owned).to_vec(), 200));
    // Of those that come at once, as many as may wait.
    let (hints, status) = told(&mut client, &get("/many"));
    assert_eq!((hints.len(), status), (16, 200));
    // Without an end it is no answer.
    let (hints, status) = told(&mut client, &get("/too-many"));
    assert_eq!((hints.len(), status), (16, 502));
    // A client of HTTP/1.0 knows none.
    let (hints, status) = told(&mut site.client(), "GET /many HTTP/1.0\r\n\r\n");
    assert_eq!((hints.len(), status), (0, 200));
    // A client of HTTP/2 does.
    let mut peer = crate::frames::Peer::new(site.address());
    peer.get(1, "/many");
    let heads = (0..17).map(|_| peer.frame_of(1).unwrap()).collect::<Vec<_>>();
    assert!(heads.iter().all(|(kind, flags, _)| (*kind, flags & 1) == (1, 0)), "{heads:?}");
    assert_eq!(peer.response(1).as_deref(), Some(&b"answer"[..]));
});

drivers!(an_answer_is_handed_back_with_what_is_not_the_hops, |driver: DriverName| {
    let (address, count) = behind(|client| {
        while let Some(head) = client.until(b"\r\n\r\n") {
            let path = String::from_utf8(head).unwrap().split(' ').nth(1).unwrap().to_owned();
            let answer = match path.as_str() {
                "/lines" => "HTTP/1.1 201 Made\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nServer: behind\r\n\
                     Connection: X-Secret, keep-alive\r\nX-Secret: 1\r\nKeep-Alive: timeout=5\r\nSet-Cookie: a=1\r\n\
                     Set-Cookie: b=2\r\nContent-Length: 4\r\n\r\nmade"
                    .to_owned(),
                "/chunked" => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\nX-T: 1\r\n\r\n"
                    .to_owned(),
                "/interim" => format!("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n{}", ok("after")),
                "/304" => "HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\n\r\n".to_owned(),
                "/204" => "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
                "/head" => "HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n".to_owned(),
                _ => "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_owned(),
            };
            client.send(answer);
        }
    });
    let site = site(driver, &format!("http://{address}"), "headers = { X-Ours = \"1\", Server = \"ours\" }");
    let mut client = site.client();
    let reply = client.get("/lines");
    assert_eq!((reply.status, reply.text()), (201, "made"));
    assert_eq!(reply.headers("Date").count(), 1);
    assert_ne!(reply.header("Date"), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
    assert_eq!(reply.headers("Set-Cookie").collect::<Vec<_>>(), ["a=1", "b=2"]);
    assert_eq!(reply.headers("Server").collect::<Vec<_>>(), ["ours"]);
    assert_eq!(
        (reply.header("X-Secret"), reply.header("Keep-Alive"), reply.header("X-Ours")),
        (None, None, Some("1"))
    );
    assert_eq!(client.get("/chunked").text(), "abcde");
    assert_eq!(client.get("/interim").status, 103);
    assert_eq!(client.reply().text(), "after");
    let unchanged = client.get("/304");
    assert_eq!((unchanged.status, unchanged.header("ETag")), (304, Some("\"x\"")));
    assert_eq!(client.get("/204").status, 204);
    assert_eq!(client.ask("HEAD", "/head", &[]).header("Content-Length"), Some("12345"));
    assert_eq!(client.get("/empty").text(), "");
    // A connection that carried HEAD is not kept: some servers send a body behind it.
    assert_eq!(count.load(Ordering::SeqCst), 2, "one connection until HEAD, and one behind it");
});

/// Reads a request's body of `bytes` and echoes it.
fn echo_body(client: &mut Client) {
    while let Some(head) = client.until(b"\r\n\r\n") {
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let body = if head.contains("transfer-encoding: chunked") {
            let mut body = Vec::new();
            loop {
                let line = String::from_utf8(client.until(b"\r\n").unwrap()).unwrap();
                let size = usize::from_str_radix(line.trim(), 16).unwrap();
                body.extend_from_slice(&client.exactly(size).unwrap());
                client.exactly(2).unwrap();
                if size == 0 {
                    break body;
                }
            }
        } else {
            let length = head
                .split("content-length: ")
                .nth(1)
                .map_or(0, |rest| rest.split("\r\n").next().unwrap().parse().unwrap());
            client.exactly(length).unwrap()
        };
        client.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len())).send(&body);
    }
}

drivers!(bodies_of_all_sizes_go_both_ways, |driver: DriverName| {
    let (address, _) = behind(echo_body);
    let site = site(driver, &format!("http://{address}"), "");
    let mut client = site.client();
    for size in [0, 1, 1000, 16_384, 100_000, 3_000_000] {
        let body: Vec<u8> = (0..size).map(|at: usize| (at % 251) as u8).collect();
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n")).send(&body);
        assert!(client.reply().body == body, "{size} bytes of a known length");
        client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        for piece in body.chunks(70_000) {
            client.send(format!("{:x}\r\n", piece.len())).send(piece).send("\r\n");
        }
        client.send("0\r\n\r\n");
        assert!(client.reply().body == body, "{size} bytes in chunks");
    }
});

drivers!(an_answer_comes_while_its_request_is_still_sent, |driver: DriverName| {
    let (address, _) = behind(|client| {
        client.until(b"\r\n\r\n").unwrap();
        client.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        for number in 0..5 {
            // A chunk of one byte comes, behind the line end of the one before, and goes back.
            let chunk = client.exactly(if number == 0 { 4 } else { 6 }).unwrap();
            let last = *chunk.last().unwrap();
            client.send([b'1', b'\r', b'\n', last, b'\r', b'\n']);
        }
        client.exactly(7).unwrap();
        client.send("0\r\n\r\n");
    });
    let site = site(driver, &format!("http://{address}"), "buffer = false\n");
    let mut client = site.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    let head = String::from_utf8(client.until(b"\r\n\r\n").unwrap()).unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    for byte in *b"abcde" {
        client.send([b'1', b'\r', b'\n', byte, b'\r', b'\n']);
        let back = client.exactly(if byte == b'a' { 4 } else { 6 }).unwrap();
        assert_eq!(back.last(), Some(&byte));
    }
    client.send("0\r\n\r\n");
    assert!(client.until(b"0\r\n\r\n").is_some());
});

drivers!(a_kept_connection_that_was_closed_is_replaced_without_a_word, |driver: DriverName| {
    // Each connection answers one request, as if it would go on, and closes.
    let (address, count) = behind(|client| {
        client.until(b"\r\n\r\n");
        client.send(ok("once"));
    });
    let site = site(driver, &format!("http://{address}"), "");
    let mut client = site.client();
    for round in 1..=20 {
        assert_eq!(client.get("/").text(), "once", "{round}");
        assert_eq!(count.load(Ordering::SeqCst), round);
    }
});

fn fault(site: &Site) -> String {
    match site.event() {
        event @ Event::Fault { .. } => event.to_string(),
        event => panic!("{event:?}"),
    }
}

drivers!(what_goes_wrong_behind_is_502_or_504_with_the_reason_in_the_log, |driver: DriverName| {
    let closed = nowhere();
    let (silent, _) = behind(|client| drop(client.rest()));
    let (garbage, _) = behind(|client| {
        client.until(b"\r\n\r\n");
        client.send("SSH-2.0-OpenSSH_9.2\r\n");
        client.rest();
    });
    let (smuggler, _) = behind(|client| {
        client.until(b"\r\n\r\n");
        client.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
        client.rest();
    });
    let (gone, _) = behind(|client| drop(client.until(b"\r\n\r\n")));
    let (half, _) = behind(|client| {
        client.until(b"\r\n\r\n");
        client.send("HTTP/1.1 200");
    });
    for (to, status, reason) in [
        (closed, 502, "nothing listens there"),
        (silent, 504, "answer: nothing moved for 200ms"),
        (garbage, 502, "answer: "),
        (smuggler, 502, "answer: "),
        (gone, 502, "no answer: "),
        (half, 502, "answer: the connection was closed in the middle of it"),
    ] {
        let log = "log = { file = \"log.json\", format = \"json\" }\n";
        // Only the silent upstream gets a short timeout, so that a slow machine does not fail the others.
        let timeout = if status == 504 { "200ms" } else { "60s" };
        let route = format!(
            "{log}[[route]]\npath = \"/\"\nkind = \"proxy\"\nto = \"http://{to}\"\nanswer_timeout = \"{timeout}\"\n\
             [[route]]\npath = \"/health\"\nkind = \"health\"\n"
        );
        let site = start(driver, &route, |_| {});
        let mut client = site.client();
        let reply = client.get("/a?b");
        assert_eq!(reply.status, status, "{reason}: {reply:?}");
        assert!(!reply.text().contains(&to.to_string()), "{}", reply.text());
        let said = fault(&site);
        assert!(
            said.contains(reason) && said.contains("on GET /a?b: ") && said.contains(&to.to_string()),
            "{said}"
        );
        // The connection goes on.
        assert_eq!(client.get("/health").status, 200);
        drop(client);
        let Site { folder, service, .. } = site;
        service.stop().unwrap();
        let log = std::fs::read_to_string(folder.path().join("log.json")).unwrap();
        let line = log.lines().next().unwrap();
        assert!(line.contains(&format!("\"upstream\":\"{to}\"")) && line.contains("\"error\":"), "{line}");
    }
});

drivers!(an_answer_that_breaks_off_breaks_off, |driver: DriverName| {
    let (address, _) = behind(|client| {
        client.until(b"\r\n\r\n");
        client.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nten bytes.");
    });
    let site = site(driver, &format!("http://{address}"), "");
    let mut client = site.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let rest = String::from_utf8(client.rest()).unwrap();
    assert!(rest.contains("Content-Length: 100\r\n") && rest.ends_with("ten bytes."), "{rest}");
    assert!(fault(&site).contains("closed in the middle"));
});

drivers!(a_body_to_the_end_of_the_connection_is_handed_back_in_chunks, |driver: DriverName| {
    let (address, _) = behind(|client| {
        client.until(b"\r\n\r\n");
        client.send("HTTP/1.0 200 OK\r\n\r\n").send(vec![b'x'; 1_000_000]);
    });
    let site = site(driver, &format!("http://{address}"), "");
    let mut client = site.client();
    let reply = client.get("/");
    assert_eq!(reply.header("Transfer-Encoding"), Some("chunked"));
    assert!(reply.body == vec![b'x'; 1_000_000]);
    assert_eq!(client.get("/").body.len(), 1_000_000);
});

drivers!(an_upstream_may_be_a_socket_in_the_file_system, |driver: DriverName| {
    use std::io::{Read, Write};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while stream.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {
                    if stream.write_all(ok("unix").as_bytes()).is_err() {
                        break;
                    }
                }
            });
        }
    });
    let site = site(driver, &format!("unix:{}", path.display()), "");
    let mut client = site.client();
    for _ in 0..3 {
        assert_eq!(client.get("/").text(), "unix");
    }
    std::fs::remove_file(&path).unwrap();
    let other = crate::proxying::site(driver, &format!("unix:{}", path.display()), "");
    assert_eq!(other.client().get("/").status, 502);
    assert!(fault(&other).contains("No such file or directory"));
});

#[test]
fn a_client_whose_body_breaks_the_protocol_is_told_so() {
    let (address, _) = behind(|client| drop(client.rest()));
    let site = site(DriverName::Epoll, &format!("http://{address}"), "");
    let mut client = site.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n");
    assert_eq!(client.reply().status, 400);
}

#[test]
fn connections_are_kept_as_many_as_told() {
    let (address, count) = behind(echo_heads);
    let site = site(DriverName::Epoll, &format!("http://{address}"), "keep = 0");
    let mut client = site.client();
    for _ in 0..3 {
        client.get("/");
    }
    assert_eq!(count.load(Ordering::SeqCst), 3);
}

drivers!(a_reload_changes_how_many_connections_are_kept, |driver: DriverName| {
    let (address, count) = behind(echo_heads);
    let mut site = site(driver, &format!("http://{address}"), "keep = 0");
    let mut opened = |keep: &str| {
        let route =
            format!("[[route]]\npath = \"/\"\nkind = \"proxy\"\nto = \"http://{address}\"\nkeep = {keep}\n");
        configure(site.folder.path(), &route);
        site.service.reload();
        let before = count.load(Ordering::SeqCst);
        let mut client = site.client();
        for _ in 0..3 {
            client.get("/");
        }
        count.load(Ordering::SeqCst) - before
    };
    // The last one is used once more, and then closed.
    assert_eq!((opened("0"), opened("2"), opened("0")), (3, 1, 2));
});

drivers!(an_answer_that_breaks_off_at_once_has_its_head, |driver: DriverName| {
    let (address, _) = behind(|client| {
        client.until(b"\r\n\r\n");
        client.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n");
    });
    for more in ["", "buffer = false"] {
        let site = site(driver, &format!("http://{address}"), more);
        let mut client = site.client();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let rest = String::from_utf8(client.rest()).unwrap();
        assert!(rest.contains("Content-Length: 100\r\n") && rest.ends_with("\r\n\r\n"), "{more} {rest:?}");
    }
});

drivers!(options_is_passed_on_as_far_as_it_says, |driver: DriverName| {
    let (address, count) = behind(echo_heads);
    let site = site(driver, &format!("http://{address}"), "");
    let mut client = site.client();
    let reply = client.ask("OPTIONS", "/", &[("Max-Forwards", "2")]);
    assert!(reply.text().contains("Max-Forwards: 1\r\n"), "{}", reply.text());
    // To other methods the line means nothing.
    let reply = client.ask("GET", "/", &[("Max-Forwards", "0")]);
    assert!(reply.text().contains("Max-Forwards: 0\r\n"), "{}", reply.text());
    let before = count.load(Ordering::SeqCst);
    assert_eq!(client.ask("OPTIONS", "/", &[("Max-Forwards", "0")]).status, 204);
    assert_eq!(client.ask("OPTIONS", "*", &[]).status, 204);
    assert_eq!(count.load(Ordering::SeqCst), before);
});

#[test]
fn answers_from_behind_may_have_longer_lines_than_requests_as_far_as_is_configured() {
    let (address, _) = behind(|client| {
        while client.until(b"\r\n\r\n").is_some() {
            let policy = "x".repeat(20_000);
            client.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Security-Policy: {policy}\r\nContent-Length: 0\r\n\r\n"
            ));
        }
    });
    for (limits, status) in [("", 200), ("limits.answer_header_line = 10000\n", 502)] {
        let route = format!("[[route]]\npath = \"/\"\nkind = \"proxy\"\nto = \"http://{address}\"\n");
        let site = start(DriverName::Epoll, &format!("{limits}{route}"), |_| {});
        assert_eq!(site.client().get("/").status, status, "{limits}");
    }
}

drivers!(
    what_a_server_sends_after_the_head_of_a_head_answer_is_no_other_requests_answer,
    |driver: DriverName| {
        let (address, _) = behind(|client| {
            while let Some(head) = client.until(b"\r\n\r\n") {
                if head.starts_with(b"HEAD") {
                    client.send("HTTP/1.1 200 OK\r\nContent-Length: 42\r\n\r\n");
                    // The body comes when the connection is used again.
                    if client.until(b"\r\n\r\n").is_some() {
                        client.try_send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil");
                    }
                    return;
                }
                client.send(ok("good"));
            }
        });
        let site = site(driver, &format!("http://{address}"), "");
        let mut client = site.client();
        for _ in 0..5 {
            assert_eq!(client.ask("HEAD", "/", &[]).status, 200);
            assert_eq!(client.get("/").text(), "good");
        }
    }
);

drivers!(
    /// As programs write it that are no servers by trade. What the proxy sends is its own writing.
    an_answer_with_bare_line_feeds_and_a_long_head_is_passed_on_in_order,
    |driver: DriverName| {
        let (address, _) = behind(|client| {
            while client.until(b"\r\n\r\n").is_some() {
                let long: String = (0..5).map(|at| format!("X-Long-{at}: {}\n", "x".repeat(40_000))).collect();
                let many: String = (0..200).map(|at| format!("X-{at}: {at}\n")).collect();
                client.send(format!("HTTP/1.1 200 OK\n{long}{many}Content-Length: 2\n\nhi"));
            }
        });
        let site = site(driver, &format!("http://{address}"), "");
        let mut client = site.client();
        for _ in 0..2 {
            let reply = client.get("/");
            assert_eq!((reply.status, reply.text()), (200, "hi"));
            assert_eq!((reply.header("X-199"), reply.header("X-Long-4").unwrap().len()), (Some("199"), 40_000));
            assert!(!reply.head.replace("\r\n", "").contains('\n'), "each line ends with CRLF");
        }
    }
);

drivers!(
    an_answer_with_padded_chunk_sizes_and_a_forbidden_trailer_is_passed_on_clean,
    |driver: DriverName| {
        let (address, _) = behind(|client| {
            while client.until(b"\r\n\r\n").is_some() {
                client.send(
                    "HTTP/1.1 200 OK\r\nX-One : 1\r\nTransfer-Encoding: chunked\r\n\r\n\
                     2   \r\nhi\r\n0   \r\nContent-Length: 7\r\nX-Sum: 1\r\n\r\n",
                );
            }
        });
        let site = site(driver, &format!("http://{address}"), "");
        let mut client = site.client();
        for _ in 0..2 {
            let reply = client.get("/");
            assert_eq!((reply.status, reply.text(), reply.header("X-One")), (200, "hi", Some("1")));
            assert!(reply.head.contains("\r\nX-One: 1\r\n"), "{}", reply.head);
        }
    }
);

drivers!(
    a_folded_line_of_an_answer_is_passed_on_as_one_and_a_folded_length_is_refused,
    |driver: DriverName| {
        let (address, connections) = behind(|client| {
            while let Some(head) = client.until(b"\r\n\r\n") {
                let length = if head.starts_with(b"GET /length") {
                    "Content-Length:\r\n 2"
                } else {
                    "Content-Length: 2"
                };
                client.send("HTTP/1.1 103 Early Hints\r\nLink: <a>,\r\n <b>\r\n\r\n");
                client.send(format!("HTTP/1.1 200 OK\r\nX-One: a,\r\n b\r\n\tc\r\n{length}\r\n\r\nhi"));
            }
        });
        let site = site(driver, &format!("http://{address}"), "");
        let mut client = site.client();
        for _ in 0..2 {
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            let hints = String::from_utf8(client.until(b"\r\n\r\n").unwrap()).unwrap();
            assert!(hints.starts_with("HTTP/1.1 103") && hints.contains("Link: <a>,   <b>\r\n"), "{hints}");
            let reply = client.reply();
            assert_eq!((reply.status, reply.text()), (200, "hi"));
            assert_eq!(reply.header("X-One"), Some("a,   b  \tc"));
        }
        assert_eq!(connections.load(Ordering::SeqCst), 1, "the connection is kept");
        client.send("GET /length HTTP/1.1\r\nHost: a\r\n\r\n");
        client.until(b"\r\n\r\n").unwrap();
        assert_eq!(client.reply().status, 502);
        // A request is not unfolded.
        let folded = "GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n z\r\n\r\n";
        assert_eq!(site.client().send(folded).reply().status, 400);
    }
);

drivers!(
    an_answer_with_its_length_twice_or_coded_as_identity_is_passed_on_with_one_framing,
    |driver: DriverName| {
        let (address, connections) = behind(|client| {
            while let Some(head) = client.until(b"\r\n\r\n") {
                let head = String::from_utf8(head).unwrap();
                let lines = match head.split(' ').nth(1).unwrap() {
                    "/twice" => "Content-Length: 2\r\nX: y\r\nContent-Length: 2\r\n",
                    "/differ" => "Content-Length: 2\r\nContent-Length: 3\r\n",
                    "/both" => "Content-Length: 2\r\nTransfer-Encoding: identity\r\n",
                    _ => "Transfer-Encoding: identity\r\n",
                };
                let body = if head.starts_with("HEAD") { "" } else { "hi" };
                client.send(format!("HTTP/1.1 200 OK\r\n{lines}\r\n{body}"));
                if head.contains("/identity") {
                    return;
                }
            }
        });
        let site = site(driver, &format!("http://{address}"), "");
        let mut client = site.client();
        let lengths = |head: &str| head.matches("Content-Length: 2\r\n").count();
        for _ in 0..2 {
            let reply = client.get("/twice");
            assert_eq!((reply.status, reply.text(), lengths(&reply.head)), (200, "hi", 1), "{}", reply.head);
        }
        client.send("HEAD /twice HTTP/1.1\r\nHost: a\r\n\r\n");
        let head = String::from_utf8(client.until(b"\r\n\r\n").unwrap()).unwrap();
        assert!(head.starts_with("HTTP/1.1 200") && lengths(&head) == 1, "{head}");
        assert_eq!(connections.load(Ordering::SeqCst), 1, "the connection is kept");
        let reply = client.get("/identity");
        assert_eq!((reply.status, reply.text()), (200, "hi"), "{}", reply.head);
        assert!(!reply.head.contains("identity"), "{}", reply.head);
        for path in ["/differ", "/both"] {
            assert_eq!(client.get(path).status, 502, "{path}");
        }
    }
);

drivers!(a_higher_minor_version_is_taken_on_both_sides, |driver: DriverName| {
    let (address, _) = behind(|client| {
        while let Some(head) = client.until(b"\r\n\r\n") {
            let head = String::from_utf8(head).unwrap();
            client.send(ok(&head).replace("HTTP/1.1 200", "HTTP/1.2 200"));
        }
    });
    let site = site(driver, &format!("http://{address}"), "");
    let mut client = site.client();
    for _ in 0..2 {
        let reply = client.send("GET /a HTTP/1.9\r\nHost: a\r\n\r\n").reply();
        assert!(reply.head.starts_with("HTTP/1.1 200"), "{}", reply.head);
        assert!(reply.text().starts_with("GET /a HTTP/1.1\r\n"), "{}", reply.text());
    }
    assert_eq!(client.send("GET /a HTTP/2.0\r\nHost: a\r\n\r\n").reply().status, 505);
});

#[test]
fn a_request_with_bare_line_feeds_is_refused_and_no_server_has_it() {
    let (address, connections) = behind(echo_heads);
    let site = site(DriverName::Epoll, &format!("http://{address}"), "");
    for request in ["GET / HTTP/1.1\nHost: a\n\n", "GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n"] {
        assert_eq!(site.client().send(request).reply().status, 400);
    }
    assert_eq!(connections.load(Ordering::SeqCst), 0);
}

drivers!(addresses_with_a_zone_are_listened_on_and_asked, |driver: DriverName| {
    if TcpListener::bind("[::1]:0").is_err() {
        return eprintln!("skipped: no IPv6");
    }
    let zoned = "@listen = \"[::1%lo]:0\"\n[[route]]\npath = \"/\"\nkind = \"respond\"\nbody = \"zoned\"\n";
    let behind = start(driver, zoned, |_| {});
    let port = behind.address().port();
    for zone in ["%25lo", "%lo"] {
        let front = site(driver, &format!("http://[::1{zone}]:{port}"), "");
        assert_eq!(front.client().get("/").text(), "zoned", "{zone}");
    }
    let front = site(driver, &format!("http://[::1%25no-such-one]:{port}"), "");
    assert_eq!(front.client().get("/").status, 502);
    let why = fault(&front);
    assert!(why.contains("::1%no-such-one") && why.contains("ip link"), "{why}");
});
