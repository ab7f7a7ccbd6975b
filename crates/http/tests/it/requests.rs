//! Requests as handlers see them, the choice of the handler, and answers as clients see them.

use crate::support::{Client, start, wait_until};
use ringroad_engine::DriverName;
use ringroad_engine::time::sleep;
use ringroad_http::{
    Body, ContentType, Html, Json, Request, Response, Server, Shared, State, Stats, Status, any, get, post,
};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

async fn hello(_: Request) -> Html<&'static str> {
    Html("<h1>Hello World</h1>")
}

async fn slow(request: Request) -> String {
    let wait = request.query_value("ms").unwrap().parse().unwrap();
    sleep(Duration::from_millis(wait)).await;
    format!("slow {wait}")
}

/// The facts of a request that a handler sees.
async fn tell(request: Request) -> String {
    format!(
        "{} {} {:?} {:?} {:?} {:?} {:?}",
        request.method_name(),
        request.decoded_path(),
        request.param("id").as_deref(),
        request.param("rest").as_deref(),
        request.query_value("q").as_deref(),
        request.header("x-word"),
        request.authority(),
    )
}

fn server() -> Server {
    Server::new()
        .route("/", get(hello))
        .route("/slow", get(slow))
        .route("/users/{id}", get(tell).delete(tell))
        .route("/files/{id}/{*rest}", any(tell))
}

drivers!(a_page_is_served_with_its_type_length_and_date, |driver: DriverName| {
    let server = start(driver, server());
    let mut client = Client::new(server.address());
    for _ in 0..3 {
        let asked = now_seconds();
        let reply = client.get("/");
        assert_eq!((reply.status, reply.text()), (200, "<h1>Hello World</h1>"));
        assert_eq!(reply.header("Content-Type"), Some("text/html"));
        assert_eq!(reply.header("Content-Length"), Some("20"));
        let date = httpdate_seconds(reply.header("Date").unwrap());
        assert!((asked - 5..=now_seconds() + 5).contains(&date), "{}", reply.head);
    }
    assert_eq!(server.counters().requests(), 3);
});

fn now_seconds() -> u64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs()
}

fn httpdate_seconds(date: &str) -> u64 {
    let time = httpdate::parse_http_date(date).unwrap();
    time.duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap().as_secs()
}

drivers!(a_handler_sees_path_parameters_query_headers_and_host, |driver: DriverName| {
    let server = start(driver, server());
    let mut client = Client::new(server.address());
    client.send("GET /users/a%20b?x=1&q=%C3%A9+z HTTP/1.1\r\nHost: h:1\r\nX-Word: yes\r\n\r\n");
    assert_eq!(
        client.reply().text(),
        r#"GET /users/a b Some("a b") None Some("é z") Some("yes") Some("h:1")"#
    );
    client.send("PATCH http://other/files/7/a/b%2Fc HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(
        client.reply().text(),
        r#"PATCH /files/7/a/b/c Some("7") Some("a/b/c") None None Some("other")"#
    );
});

drivers!(methods_without_a_handler_are_405_with_the_list_of_those_that_have_one, |driver: DriverName| {
    let server = start(driver, server());
    let mut client = Client::new(server.address());
    let reply = client.send("POST /users/1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc").reply();
    assert_eq!((reply.status, reply.header("Allow")), (405, Some("GET, HEAD, DELETE, OPTIONS")));
    let reply = client.send("OPTIONS /users/1 HTTP/1.1\r\nHost: a\r\n\r\n").reply();
    assert_eq!((reply.status, reply.header("Allow")), (204, Some("GET, HEAD, DELETE, OPTIONS")));
    let reply = client.send("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n").reply();
    assert_eq!(reply.status, 204);
    assert_eq!(client.get("/none").status, 404);
    assert_eq!(client.get("/").status, 200);
});

drivers!(head_is_answered_as_get_is_without_its_body, |driver: DriverName| {
    let server = start(driver, server());
    let mut client = Client::new(server.address());
    client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = client.reply_to_head();
    let get = client.reply();
    assert_eq!((head.status, head.header("Content-Length")), (200, Some("20")));
    assert_eq!((get.status, get.text()), (200, "<h1>Hello World</h1>"));
});

drivers!(an_old_client_is_answered_in_its_manner, |driver: DriverName| {
    let chunks = |_: Request| async { Body::stream(Once::of("piece")) };
    let server = start(driver, server().route("/stream", get(chunks)));
    let mut client = Client::new(server.address());
    let reply = client.send("GET / HTTP/1.0\r\n\r\n").reply();
    assert_eq!((reply.status, reply.header("Connection")), (200, Some("close")));
    assert!(client.is_closed());

    let mut client = Client::new(server.address());
    client.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(client.reply().header("Connection"), Some("keep-alive"));
    // It knows no chunks: the end of the connection is the end of the body.
    let reply = client.send("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").reply();
    assert_eq!((reply.header("Transfer-Encoding"), reply.text()), (None, "piece"));
});

/// A stream of a few pieces.
pub(crate) struct Once(std::collections::VecDeque<&'static str>);

impl Once {
    pub(crate) fn of(piece: &'static str) -> Once {
        Once([piece].into())
    }
}

impl futures_core::Stream for Once {
    type Item = &'static str;
    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<&'static str>> {
        std::task::Poll::Ready(self.0.pop_front())
    }
}

drivers!(a_client_that_asks_to_close_is_closed, |driver: DriverName| {
    let server = start(driver, server());
    let mut client = Client::new(server.address());
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let replies = client.replies();
    assert_eq!(replies.len(), 1);
    assert_eq!(replies[0].header("Connection"), Some("close"));
});

drivers!(
    /// The server holds about 64 KiB of responses for a connection, however many requests were pipelined.
    answers_to_requests_that_come_together_are_sent_before_there_are_too_many,
    |driver: DriverName| {
        const BYTES: usize = 15_000;
        let stats = Arc::new(OnceLock::<Stats>::new());
        let asked = Arc::new(AtomicU64::new(0));
        let held_max = Arc::new(AtomicU64::new(0));
        let page = {
            let (stats, asked, held_max) = (Arc::clone(&stats), Arc::clone(&asked), Arc::clone(&held_max));
            move |_: Request| {
                let answered = asked.fetch_add(BYTES as u64, Ordering::Relaxed);
                let sent = stats.get().map_or(0, |stats| stats.counters().bytes_out);
                held_max.fetch_max(answered.saturating_sub(sent), Ordering::Relaxed);
                async { vec![b'x'; BYTES] }
            }
        };
        let server = start(driver, Server::new().route("/", get(page)));
        assert!(stats.set(server.stats()).is_ok());
        let mut client = Client::new(server.address());
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(64));
        for _ in 0..64 {
            assert_eq!(client.reply().body.len(), BYTES);
        }
        let held = held_max.load(Ordering::Relaxed);
        assert!(held <= 96 * 1024, "{held} bytes of answers in one buffer");
    }
);

drivers!(pipelined_requests_are_answered_in_order_slow_ones_too, |driver: DriverName| {
    let server = start(driver, server());
    let mut client = Client::new(server.address());
    let paths = ["/slow?ms=30", "/", "/users/1", "/slow?ms=1", "/slow?ms=10", "/", "/users/2", "/none"];
    let request = |path: &&str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    client.send(paths.iter().map(request).collect::<String>());
    let answers: Vec<_> = paths.iter().map(|_| client.reply()).collect();
    let texts: Vec<_> = answers.iter().map(|reply| reply.text().to_owned()).collect();
    assert!(texts[0] == "slow 30" && texts[3] == "slow 1" && texts[4] == "slow 10", "{texts:?}");
    assert!(texts[2].starts_with("GET /users/1") && texts[6].starts_with("GET /users/2"), "{texts:?}");
    assert_eq!((texts[1].as_str(), texts[5].as_str()), ("<h1>Hello World</h1>", "<h1>Hello World</h1>"));
    assert_eq!(answers[7].status, 404);
});

drivers!(
    /// More than are answered at a time.
    five_hundred_pipelined_requests_get_five_hundred_answers,
    |driver: DriverName| {
        let server = start(driver, server());
        let mut client = Client::new(server.address());
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(500));
        for _ in 0..500 {
            assert_eq!(client.reply().text(), "<h1>Hello World</h1>");
        }
        assert_eq!(client.get("/users/9").status, 200);
    }
);

drivers!(
    /// A request is the same however it is cut.
    a_request_may_come_in_pieces_cut_anywhere,
    |driver: DriverName| {
        let server = start(driver, server());
        let request = "GET /users/7?q=w HTTP/1.1\r\nHost: abc\r\nX-Word: hello\r\n\r\n";
        let mut client = Client::new(server.address());
        for cut in 1..request.len() {
            client.send(&request[..cut]);
            // So that the server sees it cut: it has received this much.
            let received = request.len() * (cut - 1) + cut;
            wait_until("the server receives", || server.counters().bytes_in == received as u64);
            let reply = client.send(&request[cut..]).reply();
            assert_eq!(
                reply.text(),
                r#"GET /users/7 Some("7") None Some("w") Some("hello") Some("abc")"#,
                "cut at {cut}"
            );
        }
    }
);

drivers!(each_worker_has_a_state_of_its_own, |driver: DriverName| {
    let count = |_: Request, state: State<(u64, Cell<u32>)>| async move {
        state.1.set(state.1.get() + 1);
        format!("{} {}", state.0, state.1.get())
    };
    let numbers = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let server = Server::with_state(move || {
        (numbers.fetch_add(1, std::sync::atomic::Ordering::Relaxed), Cell::new(0))
    });
    let server = start(driver, server.workers(4).route("/", get(count)));
    let mut clients: Vec<_> = (0..120).map(|_| Client::new(server.address())).collect();
    let mut answers = BTreeSet::new();
    for client in &mut clients {
        assert!(answers.insert(client.get("/").text().to_owned()));
    }
    // Every connection counts on the state of its worker, and none has many more of them than another.
    let of = |worker: &str| answers.iter().filter(|answer| answer.starts_with(worker)).count();
    let all = ["0 ", "1 ", "2 ", "3 "].map(of);
    assert_eq!(all.iter().sum::<usize>(), 120);
    assert!(all.iter().max().unwrap() - all.iter().min().unwrap() <= 8, "{all:?}");
});

#[derive(serde::Deserialize, serde::Serialize)]
struct Point {
    x: i32,
    y: i32,
}

drivers!(json_comes_typed_and_goes_typed, |driver: DriverName| {
    let turn = |mut request: Request| async move {
        let point: Point = request.json().await?;
        Ok::<_, ringroad_http::BodyError>(Json(Point { x: point.y, y: -point.x }))
    };
    let server = start(driver, Server::new().route("/turn", post(turn)));
    let mut client = Client::new(server.address());
    let mut ask = |body: &str| {
        let request =
            format!("POST /turn HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        client.send(request).reply()
    };
    let reply = ask(r#"{"x": 1, "y": 2}"#);
    assert_eq!((reply.status, reply.text()), (200, r#"{"x":2,"y":-1}"#));
    assert_eq!(reply.header("Content-Type"), Some("application/json"));
    let reply = ask(r#"{"x": 1}"#);
    assert_eq!(reply.status, 422);
    assert!(reply.text().contains("missing field `y`"), "{}", reply.text());
    assert_eq!(ask(r#"{"x": 3, "y": 4}"#).text(), r#"{"x":4,"y":-3}"#);
});

drivers!(a_handler_that_panics_is_500_and_the_connection_goes_on, |driver: DriverName| {
    let at_once = |request: Request| async move {
        assert!(request.path().is_empty(), "on purpose");
    };
    let later = |_: Request| async move {
        sleep(Duration::from_millis(1)).await;
        panic!("on purpose");
        #[allow(unreachable_code)]
        ()
    };
    let server = start(driver, server().route("/at-once", get(at_once)).route("/later", get(later)));
    let mut client = Client::new(server.address());
    for _ in 0..2 {
        assert_eq!(client.get("/at-once").status, 500);
        assert_eq!(client.get("/later").status, 500);
        assert_eq!(client.get("/").status, 200);
    }
    assert_eq!(server.counters().panics, 4);
});

drivers!(a_shared_response_is_what_the_same_response_is_unshared, |driver: DriverName| {
    fn response(path: &str) -> Response {
        let body = if path == "/large" { vec![b'x'; 100_000] } else { b"small".to_vec() };
        let response = Response::new(body).status(Status::CREATED).content_type(ContentType::Bytes);
        response.header("X-Kind", "shared").unwrap()
    }
    let server = Server::with_state(|| {
        (Shared::new(response("/small")).unwrap(), Shared::new(response("/large")).unwrap())
    })
    .route(
        "/small",
        get(|_: Request, state: State<(Shared, Shared)>| async move { Response::shared(&state.0) }),
    )
    .route(
        "/large",
        get(|_: Request, state: State<(Shared, Shared)>| async move { Response::shared(&state.1) }),
    )
    .route("/plain/small", get(|_: Request| async { response("/small") }))
    .route("/plain/large", get(|_: Request| async { response("/large") }));
    let server = start(driver, server);
    let without_date =
        |head: &str| head.lines().filter(|line| !line.starts_with("Date")).collect::<Vec<_>>().join("\n");
    for path in ["/small", "/large"] {
        for request in ["GET", "HEAD"] {
            for rest in ["HTTP/1.1\r\nHost: a", "HTTP/1.0", "HTTP/1.1\r\nHost: a\r\nConnection: close"] {
                let ask = |path: &str| {
                    let mut client = Client::new(server.address());
                    client.send(format!("{request} {path} {rest}\r\n\r\n"));
                    client.try_reply(request == "HEAD").unwrap()
                };
                let (shared, plain) = (ask(path), ask(&format!("/plain{path}")));
                assert!(shared.header("Date").is_some());
                assert_eq!(without_date(&shared.head), without_date(&plain.head), "{request} {path} {rest}");
                assert!(shared.body == plain.body, "{request} {path} {rest}");
            }
        }
    }
});

drivers!(connections_are_spread_over_the_workers, |driver: DriverName| {
    let server = start(driver, server().workers(3));
    let mut clients: Vec<_> = (0..60).map(|_| Client::new(server.address())).collect();
    for client in &mut clients {
        assert_eq!(client.get("/").status, 200);
    }
    let counters = server.counters();
    assert_eq!((counters.accepted, counters.connections), (60, 60));
    drop(clients);
    wait_until("all of them end", || server.counters().connections == 0);
});

#[test]
fn a_server_whose_address_is_taken_says_so() {
    let first = start(DriverName::Epoll, server());
    for workers in [1, 2] {
        let second = server().workers(workers).bind(first.address()).unwrap().start();
        let why = second.expect_err("the address is taken").to_string();
        assert!(why.contains("bind, on 127.0.0.1:") && why.contains("another program"), "{why}");
    }
}

#[test]
fn a_pattern_that_contradicts_another_is_refused_at_the_start() {
    let server = server().route("/users/{name}", get(hello)).bind("127.0.0.1:0").unwrap();
    let why = server.start().expect_err("two patterns for one path").to_string();
    assert!(why.starts_with("route, on \"/users/{name}\": "), "{why}");
    assert!(Server::new().bind("localhost").is_err());
}
