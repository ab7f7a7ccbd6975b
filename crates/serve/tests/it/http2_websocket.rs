//! WebSocket over HTTP/2 (RFC 8441) in front of all that takes one over HTTP/1.1: servers behind, hubs,
//! applications.

use crate::apps::{python, site as application};
use crate::support::{Client, Site, behind, start, wait_until};
use ringroad_engine::net::TcpStream;
use ringroad_engine::{DriverName, Runtime, time};
use ringroad_http::ws::{CloseCode, Options, WebSocket, WebSocketError};
use ringroad_http::{FieldBlock, Http2Connection, Transport};
use ringroad_wire::ws::handshake::accept_key;
use std::time::Duration;

const HTTP2: &str = "[http2]\nprior_knowledge = true\n";

/// Far beyond what any test needs.
const HANG: Duration = Duration::from_secs(240);

async fn connect(site: std::net::SocketAddr) -> Http2Connection {
    let stream = TcpStream::connect(site).await.unwrap();
    Http2Connection::begin(Transport::from(stream)).await.unwrap()
}

async fn open(connection: &Http2Connection, target: &str, options: &Options) -> WebSocket {
    let lines = FieldBlock::of([("Cookie", "a=1")]).unwrap();
    connection.websocket("http", "example.org", target, &lines, options).await.unwrap()
}

/// Runs a client of the site, which has to come to its end.
fn run<F: Future<Output = ()> + 'static>(driver: DriverName, work: F) {
    let work = async move { time::timeout(HANG, work).await.expect("it ends") };
    Runtime::new(driver).unwrap().block_on(work).unwrap();
}

fn proxy(driver: DriverName, to: std::net::SocketAddr) -> Site {
    let route = format!("{HTTP2}[[route]]\npath = \"/\"\nkind = \"proxy\"\nto = \"http://{to}\"\n");
    start(driver, &route, |_| {})
}

/// Takes an offer as a server of HTTP/1.1 does, and returns its head.
fn take_offer(client: &mut Client) -> Option<String> {
    let head = String::from_utf8(client.until(b"\r\n\r\n")?).unwrap();
    let key = head.lines().find_map(|line| line.strip_prefix("sec-websocket-key: ")).unwrap();
    client.send(format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {}\r\nSec-WebSocket-Protocol: chat\r\n\r\n",
        accept_key(key)
    ));
    Some(head)
}

/// Sends messages back, up to 64 KiB each, to the end.
fn echo(client: &mut Client) {
    let Some(head) = take_offer(client) else { return };
    assert!(head.starts_with("GET /chat?room=1 HTTP/1.1\r\nHost: example.org\r\n"), "{head}");
    for line in ["sec-websocket-version: 13", "sec-websocket-protocol: chat", "cookie: a=1"] {
        assert_eq!(head.matches(&format!("{line}\r\n")).count(), 1, "{line} in {head}");
    }
    let lower = head.to_lowercase();
    for line in ["upgrade: websocket\r\n", "connection: upgrade\r\n", "sec-websocket-key: "] {
        assert_eq!(lower.matches(line).count(), 1, "{line} in {head}");
    }
    while let Some(start) = client.exactly(2) {
        let extended = match start[1] & 0x7f {
            126 => client.exactly(2).unwrap(),
            127 => panic!("a message of more than 64 KiB"),
            _ => Vec::new(),
        };
        let length = match extended[..] {
            [high, low] => usize::from(u16::from_be_bytes([high, low])),
            _ => usize::from(start[1] & 0x7f),
        };
        let mask = client.exactly(4).unwrap();
        let mut payload = client.exactly(length).unwrap();
        payload.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
        client.send([vec![start[0], start[1] & 0x7f], extended, payload].concat());
        // A close frame was the last one.
        if start[0] & 0xf == 8 {
            client.finish();
        }
    }
}

drivers!(a_server_behind_that_speaks_http_1_1_gets_an_upgrade, |driver: DriverName| {
    let (address, count) = behind(echo);
    let site = proxy(driver, address);
    let at = site.address();
    run(driver, async move {
        let connection = connect(at).await;
        let options = Options::new().protocols(["chat"]);
        for _ in 0..3 {
            let mut socket = open(&connection, "/chat?room=1", &options).await;
            assert_eq!(socket.protocol(), Some("chat"));
            for size in [0, 1, 1000, 65_535] {
                socket.send(vec![7; size]).await.unwrap();
                assert!(socket.recv().await.unwrap().unwrap().into_bytes() == vec![7; size], "{size}");
            }
            socket.close(CloseCode::new(4001), "").await.unwrap();
            assert_eq!(socket.closed().unwrap().code.get(), 4001);
        }
    });
    assert_eq!(count.load(std::sync::atomic::Ordering::SeqCst), 3);
});

drivers!(an_answer_of_a_server_behind_that_is_no_websocket_is_none_over_http_2, |driver: DriverName| {
    let (address, _) = behind(|client| {
        while let Some(head) = client.until(b"\r\n\r\n") {
            client.send(match String::from_utf8(head).unwrap().split(' ').nth(1).unwrap() {
                // Not of the key that it got.
                "/wrong-key" => {
                    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                     Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
                }
                "/page" => "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npage",
                _ => "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno",
            });
        }
    });
    let site = proxy(driver, address);
    let at = site.address();
    run(driver, async move {
        let connection = connect(at).await;
        for (target, status) in [("/wrong-key", "502"), ("/page", "501"), ("/closed", "403")] {
            let lines = FieldBlock::new();
            let refused =
                connection.websocket("http", "a", target, &lines, &Options::new()).await.unwrap_err();
            assert!(refused.to_string().contains(&format!("(status {status})")), "{target}: {refused}");
        }
    });
});

drivers!(a_server_behind_that_breaks_a_session_resets_its_stream_only, |driver: DriverName| {
    let (address, _) = behind(|client| {
        let Some(head) = take_offer(client) else { return };
        if head.starts_with("GET /breaks ") {
            // The first bytes of a message.
            client.exactly(6).unwrap();
            return;
        }
        client.rest();
    });
    let site = proxy(driver, address);
    let at = site.address();
    run(driver, async move {
        let connection = connect(at).await;
        let options = Options::new().protocols(["chat"]);
        let mut stays = open(&connection, "/stays", &options).await;
        let mut breaks = open(&connection, "/breaks", &options).await;
        breaks.send("goodbye").await.unwrap();
        let why = breaks.recv().await.unwrap_err();
        assert!(matches!(why, WebSocketError::Lost | WebSocketError::Connection(_)), "{why}");
        stays.send("still here").await.unwrap();
        stays.flush().await.unwrap();
        let nothing = std::future::poll_fn(|context| std::task::Poll::Ready(stays.poll_recv(context))).await;
        assert!(nothing.is_pending());
    });
});

drivers!(hubs_are_heard_over_http_2, |driver: DriverName| {
    let config = format!(
        "{HTTP2}[auth.k]\nkind = \"key\"\nkeys = [\"secret\"]\n[hub.news]\n\
         [[route]]\npath = \"/push\"\nkind = \"hub\"\nhub = \"news\"\nspeak = [\"mercure\", \"websocket\"]\n\
         publish_auth = \"k\"\n\
         [[route]]\npath = \"/\"\nkind = \"hub\"\nhub = \"news\"\nspeak = [\"pusher\"]\n\
         pusher = {{ id = \"7\", key = \"k\", secret = \"s\" }}\n"
    );
    let site = start(driver, &config, |_| {});
    let at = site.address();
    run(driver, async move {
        let connection = connect(at).await;
        let mut topics = open(&connection, "/push?topic=a", &Options::new()).await;
        let subscribed = topics.recv().await.unwrap().unwrap();
        assert!(subscribed.as_text().unwrap().contains("subscribed"), "{subscribed:?}");
        let form = "topic=a&data=hello";
        let lines = FieldBlock::of([
            ("Authorization", "Bearer secret"),
            ("Content-Type", "application/x-www-form-urlencoded"),
        ]);
        let lines = lines.unwrap();
        let publish = ringroad_http::Http2Request {
            method: "POST",
            scheme: "http",
            authority: "example.org",
            target: "/push",
            lines: &lines,
            body: form.into(),
        };
        assert_eq!(connection.send(publish).await.unwrap().status().code(), 200);
        let message = topics.recv().await.unwrap().unwrap();
        assert!(message.as_text().unwrap().contains("hello"), "{message:?}");
        let mut pusher = open(&connection, "/app/k?protocol=7", &Options::new()).await;
        let greeting = pusher.recv().await.unwrap().unwrap();
        assert!(greeting.as_text().unwrap().contains("pusher:connection_established"), "{greeting:?}");
        topics.close(CloseCode::NORMAL, "").await.unwrap();
        pusher.close(CloseCode::NORMAL, "").await.unwrap();
    });
});

drivers!(an_application_speaks_websocket_over_http_2, |driver: DriverName| {
    if !python() {
        return;
    }
    let site = application(driver, "asgi_app:app", &format!("workers = 1\n{HTTP2}"));
    let at = site.address();
    run(driver, async move {
        let connection = connect(at).await;
        let mut scope = open(&connection, "/ws/scope?a=%20b", &Options::new().protocols(["chat"])).await;
        let told = scope.recv().await.unwrap().unwrap();
        let told: serde_json::Value = serde_json::from_str(told.as_text().unwrap()).unwrap();
        assert_eq!((&told["type"], &told["scheme"]), (&"websocket".into(), &"ws".into()));
        assert_eq!(told["path"], "/ws/scope");
        assert_eq!(told["subprotocols"], serde_json::json!(["chat"]));
        // An application that returns closes.
        assert_eq!(scope.recv().await.unwrap(), None);
        assert_eq!(scope.closed().unwrap().code, CloseCode::NORMAL);
        let mut echo = open(&connection, "/ws/echo", &Options::new()).await;
        for size in [0, 1, 65_536, 300_000] {
            echo.send(vec![7; size]).await.unwrap();
            assert!(echo.recv().await.unwrap().unwrap().into_bytes() == vec![7; size], "{size}");
        }
        echo.close(CloseCode::new(4002), "bye").await.unwrap();
        let lines = FieldBlock::new();
        let denied =
            connection.websocket("http", "a", "/ws/deny", &lines, &Options::new()).await.unwrap_err();
        assert!(denied.to_string().contains("(status 401)"), "{denied}");
    });
    let log = || std::fs::read_to_string(site.path("log.json")).unwrap_or_default();
    wait_until("the sessions are logged", || log().lines().filter(|line| line.contains("/ws/")).count() == 3);
    let line = log().lines().find(|line| line.contains("/ws/echo")).unwrap().to_owned();
    assert!(line.contains("101") && line.contains("HTTP/2.0"), "{line}");
});
