//! Existing crates on every driver. The programs are the examples of this crate.

#[path = "../../examples/axum_hello.rs"]
mod axum_hello;
#[path = "../../examples/axum_websocket.rs"]
mod axum_websocket;
#[path = "../../examples/grpc_echo.rs"]
mod grpc_echo;
#[path = "../../examples/hyper_client.rs"]
mod hyper_client;
#[path = "../../examples/postgres_client.rs"]
mod postgres_client;
#[path = "../../examples/redis_client.rs"]
mod redis_client;
#[path = "../../examples/websocket_echo.rs"]
mod websocket_echo;

use super::servers::{Postgres, Redis};
use super::{pair, pattern, run};
use ::hyper::body::Incoming;
use ::hyper::service::service_fn;
use ::hyper::{Request, Response, client};
use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use grpc_echo::Text;
use http_body_util::{BodyExt as _, Full};
use hyper_util::server::conn::auto;
use ringroad_bridge::{Connector, Io, LocalExecutor};
use ringroad_engine::net::{TcpListener, TcpStream, UnixStream};
use ringroad_engine::sync::CancellationToken;
use ringroad_engine::{DriverName, choose, spawn};
use std::cell::Cell;
use std::convert::Infallible;
use std::net::SocketAddr;
use tokio_tungstenite::tungstenite::Message;
use tower_service::Service as _;

fn axum_routes(driver: DriverName) {
    run(driver, async {
        let (here, there) = pair().await;
        let served = spawn(axum_hello::serve(there, axum_hello::routes()));
        let (mut sender, connection) = client::conn::http1::handshake(Io::new(here)).await.unwrap();
        spawn(connection).detach();
        let get = |path: &str| Request::get(path).header("host", "a").body(Full::default()).unwrap();
        let sum = Request::post("/sum").header("host", "a").header("content-type", "application/json");
        let sum = sum.body(Full::new(Bytes::from_static(b"[1, 2, 39]"))).unwrap();
        let requests = [
            (get("/hello/you"), 200, "hello, you"),
            (sum, 200, "42"),
            (get("/later"), 200, "later"),
            (get("/nowhere"), 404, ""),
        ];
        for (request, status, body) in requests {
            sender.ready().await.unwrap();
            let response = sender.send_request(request).await.unwrap();
            assert_eq!(response.status(), status);
            assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), body);
        }
        drop(sender);
        served.await.unwrap().unwrap();
    });
}
drivers!(axum_answers_by_its_routes_and_waits_for_the_engine, axum_routes);

/// Listens with a server for HTTP/1.1 and HTTP/2 that answers with the number of the connection, and of the
/// request on it.
fn counting_server() -> SocketAddr {
    let mut listener = TcpListener::bind(([127, 0, 0, 1], 0).into()).unwrap();
    let address = listener.local_addr().unwrap();
    spawn(async move {
        for connection in 1.. {
            let stream = listener.accept().await.unwrap();
            let requests = Cell::new(0);
            let service = service_fn(move |_: Request<Incoming>| {
                requests.set(requests.get() + 1);
                let text = format!("{connection} {}", requests.get());
                async { Ok::<_, Infallible>(Response::new(text)) }
            });
            spawn(async move {
                let builder = auto::Builder::new(LocalExecutor);
                let _ = builder.serve_connection(Io::gathering(stream), service).await;
            })
            .detach();
        }
    })
    .detach();
    address
}

/// Sends a request to a [`counting_server`].
async fn asked(client: &hyper_client::Client, url: &str) -> (u32, u32) {
    let (status, body) = hyper_client::fetch(client, url).await.unwrap();
    assert_eq!(status, 200);
    let (connection, request) = std::str::from_utf8(&body).unwrap().split_once(' ').unwrap();
    (connection.parse().unwrap(), request.parse().unwrap())
}

fn pooled(driver: DriverName) {
    run(driver, async {
        let url = format!("http://{}/", counting_server());
        let (client, other) = (hyper_client::client(false), hyper_client::client(true));
        // A connection becomes free shortly after its answer, so the next request may open another one.
        let mut again = 0;
        while again < 10 {
            again += u32::from(asked(&client, &url).await.1 > 1);
        }
        // With HTTP/2 all requests share one connection.
        let (first, _) = asked(&other, &url).await;
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let (other, url) = (other.clone(), url.clone());
                spawn(async move { asked(&other, &url).await })
            })
            .collect();
        let mut numbers = Vec::new();
        for task in tasks {
            let (connection, request) = task.await.unwrap();
            assert_eq!(connection, first);
            numbers.push(request);
        }
        numbers.sort_unstable();
        assert_eq!(numbers, (2..=21).collect::<Vec<_>>());
    });
}
drivers!(the_pooled_client_of_hyper_util_uses_its_connections_again, pooled);

/// Returns the text of an error and its sources.
fn told(why: &dyn std::error::Error) -> String {
    let mut all = why.to_string();
    let mut next = why.source();
    while let Some(why) = next {
        all = format!("{all}: {why}");
        next = why.source();
    }
    all
}

fn refused(driver: DriverName) {
    run(driver, async {
        let client = hyper_client::client(false);
        let why = hyper_client::fetch(&client, "https://localhost/").await.unwrap_err();
        assert!(told(&*why).contains("https://localhost/: no TLS here"), "{}", told(&*why));
        let why = hyper_client::fetch(&client, "http://127.0.0.1:1/").await.unwrap_err();
        assert!(told(&*why).contains("nothing listens there"), "{}", told(&*why));
    });
}
drivers!(a_connector_says_why_it_opens_no_connection, refused);

fn below_tls(driver: DriverName) {
    run(driver, async {
        let mut listener = TcpListener::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let uri = format!("https://{}/", listener.local_addr().unwrap()).parse().unwrap();
        let opened = Connector::below_tls().call(uri).await.unwrap();
        let accepted = listener.accept().await.unwrap();
        assert_eq!(opened.get_ref().local_addr().unwrap(), accepted.peer_addr().unwrap());
    });
}
drivers!(a_connector_below_tls_opens_connections_to_https, below_tls);

fn axum_http2(driver: DriverName) {
    run(driver, async {
        let (here, there) = pair().await;
        let served = spawn(axum_hello::serve(there, axum_hello::routes()));
        let (mut sender, connection) =
            client::conn::http2::handshake(LocalExecutor, Io::gathering(here)).await.unwrap();
        spawn(connection).detach();
        let request = Request::get("http://a/hello/you").body(Full::<Bytes>::default()).unwrap();
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "hello, you");
        drop(sender);
        served.await.unwrap().unwrap();
    });
}
drivers!(axum_answers_over_http2_on_the_same_address, axum_http2);

fn axum_upgrade(driver: DriverName) {
    run(driver, async {
        let listener = TcpListener::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let served = spawn(axum_websocket::serve(listener, stop.clone()));
        // A connection that is idle after two answers.
        let stream = TcpStream::connect(address).await.unwrap();
        let (mut sender, idle) = client::conn::http1::handshake(Io::new(stream)).await.unwrap();
        let idle = spawn(idle);
        for (path, status) in [("/", 200), ("/socket", 426)] {
            let request = Request::get(path).header("host", "a").body(Full::<Bytes>::default()).unwrap();
            sender.ready().await.unwrap();
            let response = sender.send_request(request).await.unwrap();
            assert_eq!(response.status(), status);
            response.into_body().collect().await.unwrap();
        }
        let stream = Io::new(TcpStream::connect(address).await.unwrap());
        let (mut socket, _) = tokio_tungstenite::client_async("ws://localhost/socket", stream).await.unwrap();
        for message in [Message::text("hello"), Message::binary(pattern(1 << 20))] {
            socket.send(message.clone()).await.unwrap();
            assert!(socket.next().await.unwrap().unwrap() == message);
        }
        stop.cancel();
        served.await.unwrap().unwrap();
        idle.await.unwrap().unwrap();
        // It no longer belongs to the server, and ends by itself.
        socket.send(Message::text("still there")).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), Message::text("still there"));
        socket.close(None).await.unwrap();
        while socket.next().await.is_some() {}
    });
}
drivers!(axum_hands_a_connection_to_a_websocket_and_stops_in_order, axum_upgrade);

fn grpc(driver: DriverName) {
    run(driver, async {
        let (here, there) = pair().await;
        spawn(grpc_echo::serve(there)).detach();
        let mut client = grpc_echo::Client::new(here).await.unwrap();
        assert_eq!(client.once("hello").await.unwrap(), "hello");
        let large = "0123456789".repeat(100_000);
        assert!(client.once(&large).await.unwrap() == large);
        let refused = client.once("").await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument);
        // The next message is sent when the previous one was answered.
        let (mut tell, told) = futures_channel::mpsc::channel(1);
        let mut answers = client.each(told).await.unwrap();
        for number in 0..100 {
            let text = format!("message {number}");
            tell.send(Text { text: text.clone() }).await.unwrap();
            assert_eq!(answers.message().await.unwrap().unwrap().text, text);
        }
        drop(tell);
        assert!(answers.message().await.unwrap().is_none());
    });
}
drivers!(tonic_answers_unary_and_streaming_calls, grpc);

fn websocket(driver: DriverName) {
    run(driver, async {
        let (here, there) = pair().await;
        let served = spawn(websocket_echo::echo(there));
        let mut socket = websocket_echo::open(here).await.unwrap();
        let messages =
            [Message::text("hello"), Message::binary(pattern(1 << 20)), Message::binary(Vec::new())];
        for message in messages {
            socket.send(message.clone()).await.unwrap();
            assert!(socket.next().await.unwrap().unwrap() == message);
        }
        socket.close(None).await.unwrap();
        assert!(matches!(socket.next().await, Some(Ok(Message::Close(_)))));
        assert!(socket.next().await.is_none());
        served.await.unwrap().unwrap();
    });
}
drivers!(tungstenite_exchanges_messages_and_closes, websocket);

/// Runs `body` on every driver with one server, because starting one takes seconds.
fn on_each(body: impl Fn(DriverName)) {
    choose::drivers().for_each(|driver| crate::drivers::on(driver, &body));
}

#[test]
fn postgres_is_asked_on_every_driver() {
    let Some(server) = Postgres::start() else { return };
    on_each(|driver| {
        run(driver, async {
            let stream = UnixStream::connect(server.socket().as_path()).await.unwrap();
            let mut client = postgres_client::log_in(stream, Postgres::USER).await.unwrap();
            let create = "CREATE TEMPORARY TABLE things (id INT PRIMARY KEY, name TEXT)";
            client.batch_execute(create).await.unwrap();
            let transaction = client.transaction().await.unwrap();
            let insert = transaction.prepare("INSERT INTO things VALUES ($1, $2)").await.unwrap();
            for id in 0..20 {
                transaction.execute(&insert, &[&id, &format!("thing {id}")]).await.unwrap();
            }
            transaction.commit().await.unwrap();
            // Two concurrent queries on one connection.
            let large = "SELECT string_agg(repeat('x', 1000), '') FROM generate_series(1, 1000)";
            let last = client.query_one("SELECT name FROM things ORDER BY id DESC LIMIT 1", &[]);
            let large = client.query_one(large, &[]);
            let (last, large) = futures_util::future::join(last, large).await;
            assert_eq!(last.unwrap().get::<_, String>(0), "thing 19");
            assert_eq!(large.unwrap().get::<_, String>(0).len(), 1_000_000);
            // An error of the server concerns one query; the connection is kept.
            let why = client.query("SELECT * FROM nothing", &[]).await.unwrap_err();
            assert_eq!(why.code().map(|code| code.code()), Some("42P01"));
            assert_eq!(client.query_one("SELECT 1 + 1", &[]).await.unwrap().get::<_, i32>(0), 2);
        });
    });
}

#[test]
fn redis_is_asked_on_every_driver() {
    let Some(server) = Redis::start() else { return };
    on_each(|driver| {
        run(driver, async {
            let stream = UnixStream::connect(server.socket().as_path()).await.unwrap();
            let mut client = redis_client::client(stream).await.unwrap();
            let large = pattern(1 << 20);
            let key = format!("key of {driver}");
            let () = redis::cmd("SET").arg(&key).arg(&large[..]).query_async(&mut client).await.unwrap();
            let got: Vec<u8> = redis::cmd("GET").arg(&key).query_async(&mut client).await.unwrap();
            assert!(got == large);
            // Clones share the connection, and each gets its own answer.
            let count = format!("count of {driver}");
            let tasks: Vec<_> = (0..50)
                .map(|_| {
                    let (mut client, count) = (client.clone(), count.clone());
                    spawn(async move {
                        redis::cmd("INCR").arg(&count).query_async::<u64>(&mut client).await.unwrap()
                    })
                })
                .collect();
            let mut numbers = Vec::new();
            for task in tasks {
                numbers.push(task.await.unwrap());
            }
            numbers.sort_unstable();
            assert_eq!(numbers, (1..=50).collect::<Vec<_>>());
            let wrong = redis::cmd("INCR").arg(&key).query_async::<u64>(&mut client).await;
            assert!(wrong.is_err());
        });
    });
}
