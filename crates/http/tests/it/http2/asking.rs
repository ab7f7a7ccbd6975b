//! Our client over HTTP/2: against our server, and against servers that are nothing but frames.

use super::client::run;
use super::frames::{block, frame, settings};
use super::{requests, start_http2};
use ringroad_engine::net::{TcpListener, TcpStream};
use ringroad_engine::{DriverName, JoinHandle, spawn, sync, time};
use ringroad_http::{
    Body, FailedAt, FieldBlock, Http2Connection, Http2Request, Limits, Method, Piece, Request, Response,
    SentSoFar, Server, Transport, any, get,
};
use std::net::SocketAddr;
use std::time::Duration;

const LARGE: usize = 2 << 20;

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 + at / 251) as u8).collect()
}

fn ask<'a>(method: &'a str, target: &'a str, lines: &'a FieldBlock, body: Body) -> Http2Request<'a> {
    Http2Request { method, scheme: "http", authority: "a.example", target, lines, body }
}

async fn connect(address: SocketAddr) -> Http2Connection {
    let stream = TcpStream::connect(address).await.unwrap();
    Http2Connection::begin(Transport::from(stream)).await.unwrap()
}

fn server() -> Server {
    Server::new()
        .limits(Limits { body_bytes: u64::MAX, ..Limits::default() })
        .route("/page", get(async |_: Request| Response::html("page")))
        .route("/echo", any(async |request: Request| Body::from(request.into_body())))
        .route(
            "/tell",
            any(async |request: Request| {
                let line = |name| request.header(name).unwrap_or("-").to_owned();
                format!("{:?} {} {} {}", request.authority(), line("te"), line("keep-alive"), line("x-word"))
            }),
        )
}

drivers!(requests_and_bodies_go_both_ways_on_one_connection, |driver: DriverName| {
    let server = start_http2(driver, server());
    let address = server.address();
    run(driver, async move {
        let connection = connect(address).await;
        let none = FieldBlock::new();
        let mut page = connection.send(ask("GET", "/page", &none, Body::empty())).await.unwrap();
        assert_eq!((page.status().code(), page.header("Content-Type")), (200, Some("text/html")));
        assert_eq!(page.bytes(10).await.unwrap(), b"page");
        let lines =
            FieldBlock::of([("TE", "trailers"), ("Keep-Alive", "timeout=5"), ("X-Word", "w")]).unwrap();
        let mut told = connection.send(ask("PUT", "/tell", &lines, Body::from("x"))).await.unwrap();
        assert_eq!(told.bytes(100).await.unwrap(), b"Some(\"a.example\") trailers - w");
        let mut echo =
            connection.send(ask("POST", "/echo", &none, Body::from(pattern(LARGE)))).await.unwrap();
        assert!(echo.bytes(LARGE).await.unwrap() == pattern(LARGE));
        let many: Vec<_> = (0..300)
            .map(|at| {
                let connection = connection.clone();
                spawn(async move {
                    let none = FieldBlock::new();
                    let body = Body::from(pattern(at * 100));
                    let mut reply = connection.send(ask("POST", "/echo", &none, body)).await.unwrap();
                    assert!(reply.bytes(LARGE).await.unwrap() == pattern(at * 100), "{at}");
                })
            })
            .collect();
        for one in many {
            one.await.unwrap();
        }
        assert!(connection.is_usable());
    });
    assert_eq!(server.counters().accepted, 1);
});

drivers!(a_head_as_long_as_over_http_1_is_taken, |driver: DriverName| {
    let long = async |_: Request| {
        let value = "x".repeat(50_000);
        let page = Response::html("page");
        let with_line = |page: Response, name| page.header(name, value.as_bytes()).unwrap();
        ["X-A", "X-B", "X-C", "X-D"].into_iter().fold(page, with_line)
    };
    let server = start_http2(driver, server().route("/long", get(long)));
    let address = server.address();
    run(driver, async move {
        let connection = connect(address).await;
        let none = FieldBlock::new();
        let mut page = connection.send(ask("GET", "/long", &none, Body::empty())).await.unwrap();
        assert_eq!(page.header("X-D").map(str::len), Some(50_000));
        assert_eq!(page.bytes(10).await.unwrap(), b"page");
    });
});

drivers!(trailers_go_both_ways, |driver: DriverName| {
    let server = start_http2(driver, server());
    let address = server.address();
    run(driver, async move {
        let connection = connect(address).await;
        let lines = FieldBlock::of([("Grpc-Status", "0")]).unwrap();
        let body =
            Body::stream(requests::Pieces(vec![Piece::Trailers(lines), Piece::Data("message".into())]));
        let none = FieldBlock::new();
        let mut reply = connection.send(ask("POST", "/echo", &none, body)).await.unwrap();
        assert_eq!(reply.bytes(100).await.unwrap(), b"message");
        assert_eq!(reply.trailers(), [("grpc-status".to_owned(), b"0".to_vec())]);
    });
});

/// A server that says this once it has heard a request.
fn telling(frames: Vec<u8>) -> (SocketAddr, JoinHandle<()>) {
    let mut listener = TcpListener::bind(([127, 0, 0, 1], 0).into()).unwrap();
    let address = listener.local_addr().unwrap();
    let serving = spawn(async move {
        let mut stream = listener.accept().await.unwrap();
        let mut heard = Vec::new();
        stream.write_all(settings(&[])).await.0.unwrap();
        // The head of a request is the one frame with this type and stream that a client begins with.
        while !heard.windows(5).any(|window| window[0] == 1 && window[2..] == [0, 0, 0]) {
            heard.extend_from_slice(&stream.recv().await.unwrap());
        }
        stream.write_all(frames).await.0.unwrap();
        // Until the client has gone.
        while stream.recv().await.is_ok_and(|lease| !lease.is_empty()) {}
    });
    (address, serving)
}

/// What a request to a server that says this comes to.
async fn told_by(frames: Vec<u8>) -> ringroad_http::Failure {
    let (address, serving) = telling(frames);
    let connection = connect(address).await;
    let none = FieldBlock::new();
    let asked = connection.send(ask("POST", "/", &none, Body::empty()));
    let failure = time::timeout(Duration::from_secs(60), asked).await.unwrap().unwrap_err();
    drop(connection);
    serving.detach();
    failure
}

drivers!(what_the_server_did_not_act_on_may_be_repeated_whatever_it_is, |driver: DriverName| {
    run(driver, async {
        let refused = told_by(frame(3, 0, 1, &7_u32.to_be_bytes())).await;
        assert_eq!((refused.at, refused.sent), (FailedAt::Head, SentSoFar::Nothing), "{refused}");
        let left_out = told_by(frame(7, 0, 0, &[0; 8])).await;
        assert_eq!((left_out.at, left_out.sent), (FailedAt::Head, SentSoFar::Nothing), "{left_out}");
        assert!(left_out.at.may_repeat(left_out.sent, Method::Post));
        // Whether it has acted on one that it resets otherwise, is not known.
        let reset = told_by(frame(3, 0, 1, &2_u32.to_be_bytes())).await;
        assert_eq!((reset.at, reset.sent), (FailedAt::Head, SentSoFar::All), "{reset}");
        assert!(!reset.at.may_repeat(reset.sent, Method::Post));
        let no_status = told_by(frame(1, 5, 1, &block(&[("x", "y")]))).await;
        assert_eq!(no_status.sent, SentSoFar::All, "{no_status}");
    });
});

drivers!(
    /// The reset says that no more of the request is wanted (RFC 9113 §8.1), not that the answer is broken.
    an_answer_with_a_reset_behind_it_that_is_no_error_is_whole,
    |driver: DriverName| {
        run(driver, async {
            let head = block(&[(":status", "413"), ("content-length", "3")]);
            let without_length = block(&[(":status", "413")]);
            let trailers = block(&[("x", "y")]);
            let no_error = frame(3, 0, 1, &[0; 4]);
            for (head, data, whole) in [
                (&head, frame(0, 1, 1, b"big"), true),
                (&head, frame(0, 0, 1, b"big"), true),
                (&head, frame(0, 0, 1, b"bi"), false),
                (&without_length, frame(0, 1, 1, b"big"), true),
                (&without_length, [frame(0, 0, 1, b"big"), frame(1, 5, 1, &trailers)].concat(), true),
                // Its end has not come: it may be any part of what there is.
                (&without_length, frame(0, 0, 1, b"big"), false),
            ] {
                let told = [frame(1, 4, 1, head), data, no_error.clone()].concat();
                let (address, serving) = telling(told);
                let connection = connect(address).await;
                let none = FieldBlock::new();
                // Its body never ends.
                let (_pieces, body) = sync::bounded::<Vec<u8>>(1);
                let asked = connection.send(ask("POST", "/", &none, Body::stream(body)));
                let mut answer = time::timeout(Duration::from_secs(60), asked).await.unwrap().unwrap();
                assert_eq!(answer.status().code(), 413);
                let body = time::timeout(Duration::from_secs(60), answer.bytes(10)).await.unwrap();
                match whole {
                    true => assert_eq!(body.unwrap(), b"big"),
                    false => assert!(body.is_err(), "{body:?}"),
                }
                drop((answer, connection));
                serving.detach();
            }
        });
    }
);

drivers!(
    a_server_that_gives_no_sign_of_life_loses_the_connection_and_another_keeps_it,
    |driver: DriverName| {
        let server = start_http2(driver, server());
        let address = server.address();
        run(driver, async move {
            let none = FieldBlock::new();
            let connection = connect(address).await;
            connection.ask_for_life(Duration::from_secs(3600));
            assert!(connection.is_doubted());
            // The answer to what was asked before comes before.
            let mut page = connection.send(ask("GET", "/page", &none, Body::empty())).await.unwrap();
            assert_eq!(page.bytes(10).await.unwrap(), b"page");
            assert!(!connection.is_doubted() && connection.is_usable());
            // With nothing but signs of life it is asked for no third one.
            for _ in 0..2 {
                connection.ask_for_life(Duration::from_secs(3600));
                assert!(connection.is_doubted());
                while connection.is_doubted() {
                    time::sleep(Duration::from_millis(1)).await;
                }
            }
            connection.ask_for_life(Duration::from_secs(3600));
            assert!(!connection.is_doubted());
            let mut page = connection.send(ask("GET", "/page", &none, Body::empty())).await.unwrap();
            assert_eq!(page.bytes(10).await.unwrap(), b"page");
            connection.ask_for_life(Duration::from_secs(3600));
            assert!(connection.is_doubted());

            let (address, serving) = telling(Vec::new());
            let connection = connect(address).await;
            let asking = connection.clone();
            let asked = spawn(async move {
                let none = FieldBlock::new();
                asking.send(ask("POST", "/", &none, Body::empty())).await.unwrap_err()
            });
            connection.ask_for_life(Duration::from_millis(10));
            let failure = time::timeout(Duration::from_secs(60), asked).await.unwrap().unwrap();
            assert_eq!((failure.at, failure.sent), (FailedAt::Head, SentSoFar::All), "{failure}");
            assert!(!connection.is_usable());
            drop(connection);
            serving.detach();
        });
    }
);
