//! HTTP/2 towards servers behind: shared connections, gRPC with its trailers, what may be repeated.

use crate::environments::environment;
use crate::frames::{PREFACE, block, frame, settings};
use crate::ports::nowhere;
use crate::support::{HANG, Site, configure, start};
use futures_core::Stream;
use ringroad_engine::choose::Wish;
use ringroad_engine::net::TcpStream;
use ringroad_engine::sync::bounded;
use ringroad_engine::{DriverName, Runtime, time};
use ringroad_http::{
    Body, BoxError, Chunk, FieldBlock, Handle, Http2, Http2Connection, Http2Request, Http2Response, Piece,
    Request, RequestBody, Response, Server, Status, Transport, any,
};
use ringroad_serve::Event;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

pub(crate) fn run<F: Future + 'static>(driver: DriverName, work: F) -> F::Output {
    Runtime::new(driver).unwrap().block_on(async { time::timeout(HANG, work).await.unwrap() }).unwrap()
}

/// A body that comes back, with these lines behind it.
struct Echo(Option<RequestBody>);

impl Stream for Echo {
    type Item = Result<Piece, BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(body) = &mut self.0 else { return Poll::Ready(None) };
        match std::task::ready!(Pin::new(&mut *body).poll_next(context)) {
            Some(piece) => Poll::Ready(Some(piece.map(Piece::Data).map_err(Into::into))),
            None => {
                let mut lines = FieldBlock::of([("grpc-status", "0"), ("x-behind", "yes")]).unwrap();
                for (name, value) in body.trailers() {
                    lines.push(format!("came-{name}").as_bytes(), &value).unwrap();
                }
                self.0 = None;
                Poll::Ready(Some(Ok(Piece::Trailers(lines))))
            }
        }
    }
}

fn behind(driver: DriverName) -> Handle {
    let call = any(async |request: Request| {
        let te = request.header("te").unwrap_or("-").to_owned();
        let response = Response::new(Body::stream(Echo(Some(request.into_body()))));
        response.header("content-type", "application/grpc")?.header("x-te", te)
    });
    let told = any(async |request: Request| format!("{:?} {:?}", request.version(), request.authority()));
    let hints = any(async |request: Request| {
        let lines = FieldBlock::of([("Link", "</a.css>; rel=preload")]).unwrap();
        assert!(request.inform(103, lines));
        "answer"
    });
    Server::new()
        .http2_prior_knowledge(Http2::default())
        .route("/hints", hints)
        .bind("127.0.0.1:0")
        .unwrap()
        .driver(Wish::Named(driver))
        .route("/echo.Echo/{method}", call)
        .route("/told", told)
        .start()
        .unwrap()
}

fn proxy(driver: DriverName, to: SocketAddr, more: &str) -> Site {
    let routes = format!(
        "[http2]\nprior_knowledge = true\n[[route]]\npath = \"/\"\nkind = \"proxy\"\nto = \"http://{to}\"\nhttp2 = true\n{more}\n"
    );
    start(driver, &routes, |_| {})
}

drivers!(what_a_server_behind_says_before_its_answer_is_passed_on_over_http_2, |driver: DriverName| {
    let server = behind(driver);
    let site = proxy(driver, server.address(), "");
    let at = site.address();
    run(driver, async move {
        let connection = connect(at).await;
        let none = FieldBlock::new();
        let ask = Http2Request {
            method: "GET",
            scheme: "http",
            authority: "a.example",
            target: "/hints",
            lines: &none,
            body: Body::empty(),
        };
        let mut hints = Vec::new();
        let inform = |status: Status, lines: FieldBlock| hints.push((status.code(), lines));
        let mut answer = connection.send_with(ask, inform).await.unwrap();
        assert_eq!(answer.bytes(10).await.unwrap(), b"answer");
        let [(status, lines)] = &hints[..] else { panic!("{hints:?}") };
        assert_eq!((*status, lines.get("link")), (103, Some(&b"</a.css>; rel=preload"[..])));
    });
});

pub(crate) async fn connect(address: SocketAddr) -> Http2Connection {
    let stream = TcpStream::connect(address).await.unwrap();
    Http2Connection::begin(Transport::from(stream)).await.unwrap()
}

async fn call(connection: &Http2Connection, body: Body) -> Http2Response {
    let lines = FieldBlock::of([("content-type", "application/grpc"), ("te", "trailers")]).unwrap();
    let request = Http2Request {
        method: "POST",
        scheme: "http",
        authority: "a.example",
        target: "/echo.Echo/Both",
        lines: &lines,
        body,
    };
    connection.send(request).await.unwrap()
}

/// Two pieces of a body: bytes, and lines behind them.
struct WithTrailers(Vec<Piece>);

impl Stream for WithTrailers {
    type Item = Result<Piece, BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.0.pop().map(Ok))
    }
}

drivers!(trailers_of_a_client_do_not_say_what_only_the_server_says, |driver: DriverName| {
    let behind = behind(driver);
    let site = proxy(driver, behind.bound().tcp().unwrap(), "");
    let address = site.address();
    run(driver, async move {
        let connection = connect(address).await;
        let lines =
            [("x-forwarded-for", "192.0.2.1"), ("x_user", "root"), ("x.real.ip", "1"), ("x-sum", "7")];
        let lines = FieldBlock::of(lines).unwrap();
        let pieces = vec![Piece::Trailers(lines), Piece::Data(Chunk::from("message"))];
        let mut answer = call(&connection, Body::stream(WithTrailers(pieces))).await;
        assert_eq!(answer.bytes(100).await.unwrap(), b"message");
        let mut names: Vec<_> = answer.trailers().iter().map(|(name, _)| &**name).collect();
        names.sort_unstable();
        assert_eq!(names, ["came-x-sum", "grpc-status", "x-behind"]);
    });
});

drivers!(a_grpc_call_streams_both_ways_and_ends_with_its_trailers, |driver: DriverName| {
    let behind = behind(driver);
    let site = proxy(driver, behind.bound().tcp().unwrap(), "");
    let address = site.address();
    run(driver, async move {
        let connection = connect(address).await;
        let (send, receive) = bounded::<Chunk>(1);
        let mut answer = call(&connection, Body::stream(receive)).await;
        assert_eq!((answer.status().code(), answer.header("x-te")), (200, Some("trailers")));
        assert_eq!(answer.header("content-type"), Some("application/grpc"));
        // Each message comes back before the next one is sent: no side collects anything.
        for number in 0..20_u8 {
            send.send(Chunk::from(vec![number; 1000])).await.unwrap();
            let mut came = Vec::new();
            while came.len() < 1000 {
                came.extend_from_slice(&answer.next().await.unwrap().unwrap());
            }
            assert!(came == vec![number; 1000]);
        }
        drop(send);
        assert!(answer.next().await.is_none());
        let lines: Vec<_> = answer.trailers().iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(lines, [("grpc-status", &b"0"[..]), ("x-behind", b"yes")]);
        // Many calls, on one connection to the server behind.
        let calls: Vec<_> = (0..50)
            .map(|_| {
                let connection = connection.clone();
                ringroad_engine::spawn(async move {
                    let mut answer = call(&connection, Body::from("one message")).await;
                    assert_eq!(answer.bytes(100).await.unwrap(), b"one message");
                    assert_eq!(answer.trailers().len(), 2);
                })
            })
            .collect();
        for call in calls {
            call.await.unwrap();
        }
    });
    assert_eq!(behind.counters().accepted, 1);
    drop(site);
});

drivers!(clients_of_http_1_are_answered_by_servers_of_http_2, |driver: DriverName| {
    let behind = behind(driver);
    let site = proxy(driver, behind.bound().tcp().unwrap(), "");
    let mut client = site.client();
    assert_eq!(client.get("/told").text(), "Http2 Some(\"example.org\")");
    let head = client.ask("HEAD", "/told", &[]);
    assert_eq!((head.status, head.header("Content-Length")), (200, Some("25")));
    let body = "x".repeat(300_000);
    client.send(format!(
        "POST /echo.Echo/One HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    let head = client.until(b"\r\n\r\n").unwrap();
    assert!(head.starts_with(b"HTTP/1.1 200"));
    let rest = String::from_utf8(client.until(b"x-behind: yes\r\n\r\n").unwrap()).unwrap();
    assert_eq!(rest.matches('x').count(), 300_000 + 1, "with trailers behind a collected answer");
    assert!(rest.contains("\r\n0\r\ngrpc-status: 0\r\n"), "{}", &rest[rest.len() - 100..]);
    assert_eq!(client.get("/told").status, 200);
});

drivers!(our_own_refusals_are_told_a_grpc_client_as_a_status_of_grpc, |driver: DriverName| {
    let closed = nowhere();
    let site = proxy(driver, closed, "");
    let address = site.address();
    run(driver, async move {
        let connection = connect(address).await;
        let mut answer = call(&connection, Body::from("message")).await;
        assert_eq!((answer.status().code(), answer.header("grpc-status")), (200, Some("14")));
        assert_eq!(answer.header("grpc-message"), Some("502 Bad Gateway"));
        assert!(answer.next().await.is_none(), "no body");
    });
    assert!(site.event().to_string().contains("connect"), "the log has the reason");
    assert_eq!(site.client().get("/").status, 502, "other clients get the status of HTTP");
});

/// A server of frames: on each connection, `script` says what is answered to the nth request of all, on its
/// stream; and how many connections there were.
fn frames_behind(
    script: impl Fn(usize, u32) -> Vec<u8> + Send + Sync + 'static,
) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (connections, requests, script) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(script));
    let counted = Arc::clone(&connections);
    // It ends with the test's process.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            counted.fetch_add(1, Ordering::SeqCst);
            let (requests, script) = (Arc::clone(&requests), Arc::clone(&script));
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut preface = [0; PREFACE.len()];
                stream.read_exact(&mut preface).unwrap();
                stream.write_all(&settings(&[])).unwrap();
                let mut header = [0; 9];
                while stream.read_exact(&mut header).is_ok() {
                    let [high, middle, low, kind, _, id @ ..] = header;
                    let mut payload = vec![0; u32::from_be_bytes([0, high, middle, low]) as usize];
                    if stream.read_exact(&mut payload).is_err() {
                        return;
                    }
                    if kind == 1 {
                        let number = requests.fetch_add(1, Ordering::SeqCst);
                        let _ = stream.write_all(&script(number, u32::from_be_bytes(id)));
                    }
                }
            });
        }
    });
    (address, connections)
}

fn answer(stream: u32) -> Vec<u8> {
    frame(1, 5, stream, &block(&[(":status", "204"), ("x-by", "frames")]))
}

const POST: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody";

drivers!(what_the_server_behind_did_not_act_on_is_sent_again_whatever_it_is, |driver: DriverName| {
    // The second request is refused, the fourth left out by a GOAWAY, which ends the connection.
    let (address, connections) = frames_behind(|number, stream| match number {
        1 => frame(3, 0, stream, &7_u32.to_be_bytes()),
        3 => frame(7, 0, 0, &[(stream - 2).to_be_bytes(), 0_u32.to_be_bytes()].concat()),
        _ => answer(stream),
    });
    let site = proxy(driver, address, "");
    let mut client = site.client();
    for _ in 0..4 {
        let reply = client.send(POST).reply();
        assert_eq!((reply.status, reply.header("x-by")), (204, Some("frames")));
    }
    assert_eq!(connections.load(Ordering::SeqCst), 2);
});

drivers!(what_it_may_have_acted_on_is_not_sent_again, |driver: DriverName| {
    let (address, _) = frames_behind(|number, stream| match number {
        0 => answer(stream),
        1 => frame(3, 0, stream, &2_u32.to_be_bytes()),
        _ => answer(stream),
    });
    let site = proxy(driver, address, "");
    let mut client = site.client();
    assert_eq!(client.get("/").status, 204);
    assert_eq!(client.send(POST).reply().status, 502);
    assert_eq!(client.send(POST).reply().status, 204);
});

drivers!(
    what_a_server_did_not_act_on_is_sent_once_more_also_on_its_first_connection,
    |driver: DriverName| {
        let refused = |stream: u32| frame(3, 0, stream, &7_u32.to_be_bytes());
        let (address, connections) =
            frames_behind(move |number, stream| if number == 0 { refused(stream) } else { answer(stream) });
        let site = proxy(driver, address, "");
        assert_eq!(site.client().send(POST).reply().status, 204);
        assert_eq!(connections.load(Ordering::SeqCst), 1);
        // One that refuses all is not asked for ever.
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let (address, _) = frames_behind(move |_, stream| {
            count.fetch_add(1, Ordering::SeqCst);
            refused(stream)
        });
        let site = proxy(driver, address, "");
        assert_eq!(site.client().send(POST).reply().status, 502);
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }
);

/// A server of frames that reads bodies to their end: `refuse` says which frame the nth request of all gets,
/// on its stream; others get their body back, as a call of gRPC.
fn bodies_behind(
    refuse: impl Fn(usize, u32) -> Option<Vec<u8>> + Send + Sync + 'static,
) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (requests, refuse) = (Arc::new(AtomicUsize::new(0)), Arc::new(refuse));
    let counted = Arc::clone(&requests);
    // It ends with the test's process.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (requests, refuse) = (Arc::clone(&counted), Arc::clone(&refuse));
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                stream.read_exact(&mut [0; PREFACE.len()]).unwrap();
                stream.write_all(&settings(&[(4, 1 << 20)])).unwrap();
                stream.write_all(&frame(8, 0, 0, &(1_u32 << 20).to_be_bytes())).unwrap();
                let (mut header, mut bodies) = ([0; 9], std::collections::HashMap::new());
                while stream.read_exact(&mut header).is_ok() {
                    let [high, middle, low, kind, flags, id @ ..] = header;
                    let id = u32::from_be_bytes(id);
                    let mut payload = vec![0; u32::from_be_bytes([0, high, middle, low]) as usize];
                    if stream.read_exact(&mut payload).is_err() {
                        return;
                    }
                    if !matches!(kind, 0 | 1) {
                        continue;
                    }
                    let body: &mut (Vec<u8>, usize) = bodies.entry(id).or_default();
                    match kind {
                        0 => body.0.extend(payload),
                        _ => body.1 += 1,
                    }
                    if flags & 1 == 0 {
                        continue;
                    }
                    let (body, heads) = bodies.remove(&id).unwrap();
                    let number = requests.fetch_add(1, Ordering::SeqCst);
                    let heads = heads.to_string();
                    let told = refuse(number, id).unwrap_or_else(|| {
                        let head = block(&[(":status", "200"), ("content-type", "application/grpc")]);
                        let trailers = block(&[("grpc-status", "0"), ("x-heads", &heads)]);
                        [frame(1, 4, id, &head), frame(0, 0, id, &body), frame(1, 5, id, &trailers)].concat()
                    });
                    let _ = stream.write_all(&told);
                }
            });
        }
    });
    (address, requests)
}

drivers!(
    /// A call of gRPC is not collected: what was sent of it is kept until its answer begins.
    a_body_that_is_passed_on_as_it_comes_is_sent_again_where_it_was_not_acted_on,
    |driver: DriverName| {
        let refused = |stream: u32| frame(3, 0, stream, &7_u32.to_be_bytes());
        let left_out = || frame(7, 0, 0, &[0; 8]);
        let (address, requests) = bodies_behind(move |number, stream| match number {
            0 => Some(left_out()),
            2 => Some(refused(stream)),
            _ => None,
        });
        let site = proxy(driver, address, "buffer = false");
        let at = site.address();
        run(driver, async move {
            let connection = connect(at).await;
            let mut answer = call(&connection, Body::from("one message")).await;
            assert_eq!(answer.bytes(100).await.unwrap(), b"one message");
            // In pieces, with lines behind them.
            let lines = FieldBlock::of([("x-sum", "7")]).unwrap();
            let pieces =
                vec![Piece::Trailers(lines), Piece::Data(Chunk::from("b")), Piece::Data(Chunk::from("a"))];
            let mut answer = call(&connection, Body::stream(WithTrailers(pieces))).await;
            assert_eq!(answer.bytes(100).await.unwrap(), b"ab");
            let heads = answer.trailers().iter().find(|(name, _)| name == "x-heads").unwrap();
            assert_eq!(heads.1, b"2", "with the lines behind it");
        });
        assert_eq!(requests.load(Ordering::SeqCst), 4);
        // What is longer than what is kept cannot be sent again: the client may do that.
        let (address, requests) = bodies_behind(move |_, stream| Some(refused(stream)));
        let site = proxy(driver, address, "");
        let at = site.address();
        run(driver, async move {
            let connection = connect(at).await;
            let answer = call(&connection, Body::from(vec![b'x'; 100_000])).await;
            assert_eq!((answer.status().code(), answer.header("grpc-status")), (200, Some("14")));
        });
        assert_eq!(requests.load(Ordering::SeqCst), 1);
    }
);

drivers!(
    /// The body that came back from a server that did not act on it is gone when it was sent once more.
    an_answer_that_is_repeated_has_its_whole_body_or_is_handed_on,
    |driver: DriverName| {
        let unavailable = |stream: u32| frame(1, 5, stream, &block(&[(":status", "503")]));
        let refused = |stream: u32| frame(3, 0, stream, &7_u32.to_be_bytes());
        let (address, requests) = bodies_behind(move |number, stream| match number {
            0 => Some(refused(stream)),
            1 => Some(unavailable(stream)),
            _ => None,
        });
        let routes = format!(
            "[upstream.g]\nservers = [\"http://{address}\"]\nhttp2 = true\n\
             retry = {{ times = 3, on = [503] }}\n\
             [[route]]\npath = \"/\"\nkind = \"proxy\"\nto = \"upstream:g\"\nbuffer = false\n"
        );
        let site = start(driver, &routes, |_| {});
        let put = "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody";
        assert_eq!(site.client().send(put).reply().status, 503);
        assert_eq!(requests.load(Ordering::SeqCst), 2);
    }
);

drivers!(
    /// A POST there would fail with it, and could not be sent again.
    a_connection_that_is_left_within_a_frame_gets_no_request,
    |driver: DriverName| {
        let (address, connections) = frames_behind(|number, stream| match number {
            0 => [answer(stream), frame(6, 0, 0, &[0; 8])[..5].to_vec()].concat(),
            _ => answer(stream),
        });
        let site = proxy(driver, address, "");
        let mut client = site.client();
        for _ in 0..3 {
            assert_eq!(client.send(POST).reply().status, 204);
        }
        assert_eq!(connections.load(Ordering::SeqCst), 2);
    }
);

drivers!(
    /// Its machine may be gone without a word: all that follows would wait there for nothing.
    a_connection_on_which_an_answer_was_waited_for_in_silence_gets_no_request_without_a_sign_of_life,
    |driver: DriverName| {
        let (address, connections) = frames_behind(|number, stream| match number {
            1 => Vec::new(),
            _ => answer(stream),
        });
        let routes = format!(
            "[upstream.g]\nservers = [\"http://{address}\"]\nhttp2 = true\n\
             [[route]]\npath = \"/\"\nkind = \"proxy\"\nto = \"upstream:g\"\n\
             [[route]]\npath = \"/hurried\"\nkind = \"proxy\"\nto = \"upstream:g\"\ntimeouts = {{ answer = \"1s\" }}\n"
        );
        let site = start(driver, &routes, |_| {});
        let mut client = site.client();
        let statuses = ["/", "/hurried", "/", "/"].map(|path| client.get(path).status);
        assert_eq!(statuses, [204, 504, 204, 204]);
        assert_eq!(connections.load(Ordering::SeqCst), 2);
    }
);

drivers!(how_long_connections_are_kept_is_what_the_last_reload_says, |driver: DriverName| {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let routes = |keep_for: &str| {
        format!(
            "[[route]]\npath = \"/\"\nkind = \"proxy\"\nto = \"http://{to}\"\nhttp2 = true\nkeep_for = \"{keep_for}\"\n"
        )
    };
    let mut site = start(driver, &routes("24h"), |_| {});
    // Answers two requests, and returns when the connection has ended behind them.
    let behind = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(HANG)).unwrap();
        stream.read_exact(&mut [0; PREFACE.len()]).unwrap();
        stream.write_all(&settings(&[])).unwrap();
        let (mut header, mut answered) = ([0; 9], 0);
        while stream.read_exact(&mut header).is_ok() {
            let [high, middle, low, kind, _, id @ ..] = header;
            let mut payload = vec![0; u32::from_be_bytes([0, high, middle, low]) as usize];
            stream.read_exact(&mut payload).unwrap();
            if kind == 1 {
                stream.write_all(&answer(u32::from_be_bytes(id))).unwrap();
                answered += 1;
            }
        }
        answered
    });
    assert_eq!(site.client().get("/").status, 204);
    configure(site.folder.path(), &routes("1ms"));
    site.service.reload();
    assert!(matches!(site.event(), Event::Reloaded { .. }));
    assert_eq!(site.client().get("/").status, 204);
    assert_eq!(behind.join().unwrap(), 2);
});

/// A gRPC server and a client of another make, each with messages that are nothing but bytes.
const GRPC: &str = r#"
import sys, threading
import grpc
from concurrent import futures

def both(messages, context):
    context.set_trailing_metadata((("x-count", "many"),))
    for message in messages:
        yield message

def one(message, context):
    if message == b"fail":
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not \u00e4 chance")
    return message

handlers = {
    "One": grpc.unary_unary_rpc_method_handler(one),
    "Both": grpc.stream_stream_rpc_method_handler(both),
}
if sys.argv[1] == "server":
    server = grpc.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("echo.Echo", handlers),))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    sys.stdin.read()
    server.stop(None)
else:
    channel = grpc.insecure_channel(sys.argv[2])
    one = channel.unary_unary("/echo.Echo/One")
    both = channel.stream_stream("/echo.Echo/Both")
    for size in (0, 1, 100_000):
        assert one(b"x" * size, timeout=60) == b"x" * size
    try:
        one(b"fail", timeout=60)
        raise SystemExit("no failure")
    except grpc.RpcError as why:
        assert why.code() == grpc.StatusCode.FAILED_PRECONDITION, why
        assert why.details() == "not \u00e4 chance", why
    # Each message is sent when the one before has come back.
    back = threading.Semaphore(1)
    def messages():
        for number in range(100):
            back.acquire(timeout=60)
            yield str(number).encode()
    call = both(messages(), timeout=60)
    for number, message in enumerate(call):
        assert message == str(number).encode()
        back.release()
    assert ("x-count", "many") in [tuple(pair) for pair in call.trailing_metadata()]
    try:
        channel.unary_unary("/echo.Echo/None")(b"", timeout=60)
        raise SystemExit("no failure")
    except grpc.RpcError as why:
        assert why.code() == grpc.StatusCode.UNIMPLEMENTED, why
    print("all right")
"#;

/// A Python that has grpcio; `None` where it cannot be had.
fn python() -> Option<std::path::PathBuf> {
    let has = Command::new("python3").args(["-c", "import grpc"]).output();
    if has.is_ok_and(|output| output.status.success()) {
        return Some("python3".into());
    }
    match environment("grpcio", &["--only-binary", ":all:", "grpcio"], &["grpc"]) {
        Ok(place) => Some(place.join("bin/python")),
        Err(why) => {
            // Past the capture of the test harness.
            let _ = writeln!(
                std::io::stderr(),
                "skipped: grpcio cannot be had (python3, pip, a registry): {why}"
            );
            None
        }
    }
}

drivers!(a_client_and_a_server_of_grpcio_understand_each_other_through_it, |driver: DriverName| {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("echo.py");
    std::fs::write(&script, GRPC).unwrap();
    let mut server = Command::new(&python)
        .arg(&script)
        .arg("server")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(server.stdout.take().unwrap()), &mut line)
        .unwrap();
    let port: u16 = line.trim().parse().unwrap();
    let site = proxy(driver, ([127, 0, 0, 1], port).into(), "");
    let client = Command::new(&python)
        .arg(&script)
        .args(["client", &site.address().to_string()])
        .env("no_proxy", "*")
        .output()
        .unwrap();
    drop(server.stdin.take());
    server.wait().unwrap();
    let told =
        format!("{}{}", String::from_utf8_lossy(&client.stdout), String::from_utf8_lossy(&client.stderr));
    assert!(told.contains("all right"), "{told}");
});
