//! WebSocket over HTTP/2 (RFC 8441): our client against our server, and the `h2` crate's client with frames
//! of its own.

use super::client::{self, get, read, run, send_all};
use super::start_http2;
use crate::support::{start, wait_until};
use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use h2::ext::Protocol;
use h2::{Reason, RecvStream, SendStream};
use ringroad_bridge::Io;
use ringroad_engine::net::TcpStream;
use ringroad_engine::{DriverName, spawn, time};
use ringroad_http::ws::{self, CloseCode, Options, SendError, WebSocket, WebSocketError};
use ringroad_http::{
    ClientError, FieldBlock, Handle, Http2, Http2Connection, Request, Response, Server, Status, Transport,
    any, get as on_get,
};
use ringroad_wire::ws::{Event, Limits, Messages, Opcode, Role, Scratch, put_frame};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

const KEY: Option<[u8; 4]> = Some([1, 2, 3, 4]);

/// Of a stream.
const WINDOW: usize = 64 * 1024;

/// Far beyond what any test needs.
const HANG: Duration = Duration::from_secs(240);

async fn talk(mut socket: WebSocket) {
    while let Ok(Some(message)) = socket.recv().await {
        if socket.send(message).await.is_err() {
            break;
        }
    }
}

async fn echo(request: Request) -> Response {
    ws::accept(&request, talk)
}

/// Accepts when it is polled again.
async fn echo_later(request: Request) -> Response {
    let mut polled = false;
    std::future::poll_fn(|context| {
        context.waker().wake_by_ref();
        if std::mem::replace(&mut polled, true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    ws::accept(&request, talk)
}

async fn connect(address: SocketAddr) -> Http2Connection {
    let stream = TcpStream::connect(address).await.unwrap();
    Http2Connection::begin(Transport::from(stream)).await.unwrap()
}

async fn open(connection: &Http2Connection, path: &str, options: &Options) -> WebSocket {
    let lines = FieldBlock::new();
    let opened = connection.websocket("http", "a.example", path, &lines, options);
    time::timeout(HANG, opened).await.unwrap().unwrap()
}

/// Ends in time, or the test has found that something waits for ever.
async fn soon<T>(work: impl Future<Output = T>) -> T {
    time::timeout(HANG, work).await.expect("it ends")
}

/// The same as `run`, and connections come to their end before the runtime does.
fn on<F: Future<Output = ()> + 'static>(driver: DriverName, work: F) {
    run(driver, soon(work));
}

drivers!(messages_of_any_length_come_back_over_http_2, |driver: DriverName| {
    let server = Server::new().route("/", on_get(echo)).route("/later", on_get(echo_later));
    let server = start_http2(driver, server);
    let address = server.address();
    on(driver, async move {
        let connection = connect(address).await;
        for path in ["/", "/later"] {
            let mut socket = open(&connection, path, &Options::new()).await;
            socket.send("grüße").await.unwrap();
            assert_eq!(socket.recv().await.unwrap().unwrap().as_text(), Some("grüße"));
            for bytes in [0, 1, 125, 126, 4000, 65_535, 65_536, 1 << 20] {
                socket.send(vec![7; bytes]).await.unwrap();
                assert!(socket.recv().await.unwrap().unwrap().into_bytes() == vec![7; bytes], "{bytes}");
            }
            socket.close(CloseCode::new(4321), "enough").await.unwrap();
            assert_eq!(socket.closed().unwrap().code, CloseCode::new(4321));
        }
        // The connection goes on with other requests.
        let none = FieldBlock::new();
        let other = ringroad_http::Http2Request {
            method: "GET",
            scheme: "http",
            authority: "a",
            target: "/missing",
            lines: &none,
            body: ringroad_http::Body::empty(),
        };
        assert_eq!(connection.send(other).await.unwrap().status(), Status::NOT_FOUND);
    });
    let counters = server.counters();
    assert_eq!((counters.accepted, counters.upgraded, counters.refused), (1, 2, 0));
});

drivers!(client_and_server_agree_on_a_protocol_and_compression_over_http_2, |driver: DriverName| {
    async fn accept(request: Request) -> Response {
        let options = Options::new().compress(true).protocols(["b", "a"]);
        options.accept(&request, |mut socket| async move {
            let protocol = socket.protocol().unwrap_or("none").to_owned();
            socket.send(protocol).await.unwrap();
            talk(socket).await;
        })
    }
    let server = start_http2(driver, Server::new().route("/", on_get(accept)));
    let address = server.address();
    on(driver, async move {
        let connection = connect(address).await;
        let long = "repeat ".repeat(100_000);
        for compress in [true, false] {
            let options = Options::new().compress(compress).protocols(["x", "a", "b"]);
            let mut socket = open(&connection, "/", &options).await;
            assert_eq!(socket.protocol(), Some("b"));
            assert_eq!(socket.recv().await.unwrap().unwrap().as_text(), Some("b"));
            for text in ["short", &long] {
                socket.send(text).await.unwrap();
                assert!(socket.recv().await.unwrap().unwrap().as_text() == Some(text));
            }
            socket.close(CloseCode::NORMAL, "").await.unwrap();
        }
    });
    let counters = server.counters();
    // 1.4 MB without compression, and nearly nothing with it.
    assert!((700_000..1_000_000).contains(&counters.bytes_out), "{}", counters.bytes_out);
});

/// An extended CONNECT.
fn offer(path: &str) -> http::request::Builder {
    http::Request::connect(format!("http://a.example{path}"))
        .extension(Protocol::from_static("websocket"))
        .header("sec-websocket-version", "13")
}

/// A session of a client that is nothing but streams of frames.
struct Raw {
    send: SendStream<Bytes>,
    recv: RecvStream,
    messages: Messages,
    scratch: Scratch,
    input: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
enum Got {
    Message(usize),
    Ping,
    Pong,
    Close(u16),
    End,
    Reset(Option<Reason>),
}

async fn raw_client(address: SocketAddr) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(address).await.unwrap();
    let mut builder = Builder::new();
    builder.initial_connection_window_size(8 << 20);
    let (sender, connection) = builder.handshake(Io::gathering(stream)).await.unwrap();
    spawn(async move { drop(connection.await) }).detach();
    sender
}

impl Raw {
    async fn open(sender: &SendRequest<Bytes>, path: &str) -> Raw {
        let mut sender = sender.clone().ready().await.unwrap();
        let (response, send) = sender.send_request(offer(path).body(()).unwrap(), false).unwrap();
        let response = response.await.unwrap();
        assert_eq!(response.status(), 200, "{response:?}");
        for name in ["sec-websocket-accept", "sec-websocket-key", "upgrade", "connection", "content-length"] {
            assert_eq!(response.headers().get(name), None);
        }
        let limits = Limits { message_bytes: 1 << 30, fragments: 1000 };
        Raw {
            send,
            recv: response.into_body(),
            messages: Messages::new(Role::Client, limits),
            scratch: Scratch::default(),
            input: Vec::new(),
        }
    }

    fn say(&mut self, opcode: Opcode, payload: &[u8]) {
        let mut out = Vec::new();
        put_frame(&mut out, opcode, payload, KEY);
        self.send.send_data(Bytes::from(out), false).unwrap();
    }

    async fn next(&mut self) -> Got {
        loop {
            let mut at = 0;
            let got = match self.messages.next(&mut self.scratch, &mut self.input, &mut at).unwrap() {
                Some(Event::Message { bytes, .. }) => Some(Got::Message(bytes.len())),
                Some(Event::Ping(_)) => Some(Got::Ping),
                Some(Event::Pong(_)) => Some(Got::Pong),
                Some(Event::Close(close)) => Some(Got::Close(close.map_or(0, |(code, _)| code.get()))),
                None => None,
            };
            self.input.drain(..at);
            if let Some(got) = got {
                return got;
            }
            match soon(self.recv.data()).await {
                Some(Ok(data)) => {
                    self.recv.flow_control().release_capacity(data.len()).unwrap();
                    self.input.extend_from_slice(&data);
                }
                Some(Err(why)) => return Got::Reset(why.reason()),
                None => return Got::End,
            }
        }
    }
}

drivers!(what_is_no_offer_of_a_websocket_is_refused_over_http_2, |driver: DriverName| {
    async fn page(_: Request) -> &'static str {
        "page"
    }
    async fn moved(_: Request) -> Response {
        Response::redirect(Status::new(307).unwrap(), "/").unwrap()
    }
    let server =
        Server::new().route("/", on_get(echo)).route("/page", any(page)).route("/moved", any(moved)).route(
            "/later",
            on_get(async |request: Request| {
                request.stopping().await;
            }),
        );
    let server = start_http2(driver, server);
    let address = server.address();
    on(driver, async move {
        let mut client = client::Client::connect(address).await;
        let ask = async |client: &mut client::Client, request: http::request::Builder| {
            let (response, stream) = client.begin(request.body(()).unwrap(), false).await.unwrap();
            let reply = read(response.await.unwrap()).await.unwrap();
            drop(stream);
            (reply.status(), reply.text().to_owned())
        };
        assert!(client.get("/page").await.status() == 200);
        assert!(client.sender.is_extended_connect_protocol_enabled());
        // A tunnel to another server, and one for another protocol.
        let connect = http::Request::connect("http://a.example/").extension(Protocol::from_static("x"));
        assert_eq!(ask(&mut client, connect).await.0, 501);
        let with_length = offer("/").header("content-length", "3");
        assert_eq!(ask(&mut client, with_length).await.0, 400);
        let old = http::Request::connect("http://a.example/").extension(Protocol::from_static("websocket"));
        assert_eq!(ask(&mut client, old.header("sec-websocket-version", "8")).await.0, 426);
        assert_eq!(ask(&mut client, offer("/").header("origin", "http://evil.example")).await.0, 403);
        assert_eq!(ask(&mut client, offer("/missing")).await.0, 404);
        assert_eq!(ask(&mut client, offer("/moved")).await.0, 307);
        // 2xx would make it a tunnel.
        assert_eq!(ask(&mut client, offer("/page")).await, (501, String::new()));
        // A key is of no use, and does no harm.
        let (response, stream) =
            client.begin(offer("/").header("sec-websocket-key", "x").body(()).unwrap(), false).await.unwrap();
        assert_eq!(response.await.unwrap().status(), 200);
        drop(stream);
        // A GET offers nothing, whatever it says.
        let refused = client.ask(get("/"), "").await.unwrap();
        assert_eq!(refused.status(), 426);
        // RFC 9113 §8.2.2.
        assert!(refused.header("upgrade").is_none() && refused.header("connection").is_none());
    });
});

drivers!(a_server_that_opens_no_websocket_over_http_2_says_so_in_its_settings, |driver: DriverName| {
    let server = Server::new().route("/", on_get(echo));
    let settings = Http2 { websocket: false, ..Http2::default() };
    let server = start(driver, server.http2_prior_knowledge(settings));
    let address = server.address();
    on(driver, async move {
        let connection = connect(address).await;
        for _ in 0..2 {
            let lines = FieldBlock::new();
            let refused = connection.websocket("http", "a", "/", &lines, &Options::new()).await.unwrap_err();
            assert!(matches!(refused.why, ClientError::NoExtendedConnect), "{refused}");
        }
        // A client that asks all the same is reset.
        let sender = raw_client(address).await;
        let mut sender = sender.ready().await.unwrap();
        let (response, _stream) = sender.send_request(offer("/").body(()).unwrap(), false).unwrap();
        let why = response.await.unwrap_err();
        assert_eq!(why.reason(), Some(Reason::PROTOCOL_ERROR), "{why}");
    });
});

/// A server with sessions that report how they ended.
fn telling(driver: DriverName) -> (Handle, Arc<Mutex<Vec<String>>>) {
    let ends = Arc::<Mutex<Vec<String>>>::default();
    let told = Arc::clone(&ends);
    let handler = move |request: Request| {
        let told = Arc::clone(&told);
        async move {
            ws::accept(&request, move |mut socket| async move {
                let end = loop {
                    match socket.recv().await {
                        Ok(Some(_)) => {}
                        Ok(None) => break format!("closed {}", socket.closed().unwrap().code.get()),
                        Err(WebSocketError::Lost) => break "lost".to_owned(),
                        Err(WebSocketError::Connection(_)) => break "reset".to_owned(),
                        Err(WebSocketError::Protocol(why)) => break format!("protocol {}", why.code().get()),
                        Err(why) => break why.to_string(),
                    }
                };
                told.lock().unwrap().push(end);
            })
        }
    };
    (start_http2(driver, Server::new().route("/", on_get(handler))), ends)
}

drivers!(each_way_a_session_can_end_is_known_to_both_sides_over_http_2, |driver: DriverName| {
    let (server, ends) = telling(driver);
    let address = server.address();
    let told = Arc::clone(&ends);
    on(driver, async move {
        let sender = raw_client(address).await;
        let end = async |count: usize| {
            soon(async {
                while told.lock().unwrap().len() < count {
                    time::sleep(Duration::from_millis(1)).await;
                }
            })
            .await;
            told.lock().unwrap().last().unwrap().clone()
        };
        // Both close; the server ends its side first, as over HTTP/1.1.
        let mut raw = Raw::open(&sender, "/").await;
        raw.say(Opcode::Close, &4001_u16.to_be_bytes());
        assert_eq!((raw.next().await, raw.next().await), (Got::Close(4001), Got::End));
        raw.send.send_data(Bytes::new(), true).unwrap();
        assert_eq!(end(1).await, "closed 4001");
        // END_STREAM is a FIN: the client has gone without a word.
        let mut raw = Raw::open(&sender, "/").await;
        raw.send.send_data(Bytes::new(), true).unwrap();
        assert_eq!(end(2).await, "lost");
        assert_eq!(raw.next().await, Got::End);
        // RST_STREAM is a RST.
        let mut raw = Raw::open(&sender, "/").await;
        raw.say(Opcode::Text, b"half of a");
        raw.send.send_reset(Reason::CANCEL);
        assert_eq!(end(3).await, "reset");
        // A client that breaks a rule is told so. What is behind it does not reset the answer away.
        let mut raw = Raw::open(&sender, "/").await;
        raw.send.send_data(Bytes::from_static(b"\x81\x01x"), false).unwrap();
        send_all(&mut raw.send, Bytes::from(vec![0x55; 1000]), false).await;
        assert_eq!((raw.next().await, raw.next().await), (Got::Close(1002), Got::End));
        drop(raw);
        assert_eq!(end(4).await, "protocol 1002");
        // A connection that breaks ends all that is in it.
        let broken = raw_client(address).await;
        let raws = [Raw::open(&broken, "/").await, Raw::open(&broken, "/").await];
        drop((raws, broken));
        end(6).await;
    });
    drop(server);
    let ends = ends.lock().unwrap();
    assert!(ends[4..].iter().all(|end| end == "reset"), "{ends:?}");
});

drivers!(a_server_that_stops_closes_sessions_with_1001_over_http_2, |driver: DriverName| {
    let server = Server::new()
        .upgraded_grace(Duration::from_secs(60))
        .drain(Duration::from_secs(60))
        .route("/", on_get(echo))
        .http2_prior_knowledge(Http2::default());
    let server = start(driver, server);
    let address = server.address();
    let handle = Arc::new(server);
    let stopping = Arc::clone(&handle);
    on(driver, async move {
        let connection = connect(address).await;
        let mut sockets = Vec::new();
        for _ in 0..20 {
            sockets.push(open(&connection, "/", &Options::new()).await);
        }
        sockets[0].send("x").await.unwrap();
        assert_eq!(sockets[0].recv().await.unwrap().unwrap().as_text(), Some("x"));
        stopping.stop();
        drop(stopping);
        for socket in &mut sockets {
            assert_eq!(socket.recv().await.unwrap(), None);
            assert_eq!(socket.closed().unwrap().code, CloseCode::GOING_AWAY);
        }
    });
    // All of its connections have ended in order, long before the grace was over.
    Arc::into_inner(handle).unwrap().wait().unwrap();
});

drivers!(many_sessions_share_one_connection, |driver: DriverName| {
    let server = start_http2(driver, Server::new().route("/", on_get(echo)));
    let address = server.address();
    on(driver, async move {
        let connection = connect(address).await;
        // More than there may be at a time: the rest wait for a free stream.
        let talks: Vec<_> = (0..150_usize)
            .map(|at| {
                let connection = connection.clone();
                spawn(async move {
                    let mut socket = open(&connection, "/", &Options::new()).await;
                    for number in 0..20 {
                        let message = vec![at as u8; (at * 37 + number * 101) % 5000];
                        socket.send(message.clone()).await.unwrap();
                        assert!(socket.recv().await.unwrap().unwrap().into_bytes() == message);
                    }
                    socket.close(CloseCode::NORMAL, "").await.unwrap();
                })
            })
            .collect();
        for talk in talks {
            talk.await.unwrap();
        }
        assert!(connection.is_usable());
    });
    let counters = server.counters();
    assert_eq!((counters.accepted, counters.upgraded, counters.refused), (1, 150, 0));
});

/// Sessions that echo, sessions that read nothing, and sessions that send as much as they may. Of the last
/// kind: how much that was.
fn slow(driver: DriverName) -> (Handle, Arc<AtomicUsize>) {
    let queued = Arc::<AtomicUsize>::default();
    let sent = Arc::clone(&queued);
    let deaf = async |request: Request| {
        ws::accept(&request, |socket| async move {
            let _socket = socket;
            std::future::pending::<()>().await;
        })
    };
    let loud = move |request: Request| {
        let sent = Arc::clone(&sent);
        async move {
            ws::accept(&request, move |mut socket| async move {
                let sender = socket.sender();
                while sender.send(vec![1; 10_000]) != Err(SendError::Full) {
                    sent.fetch_add(10_000, Ordering::Relaxed);
                    // What the driver takes goes now.
                    let _ = std::pin::pin!(socket.flush())
                        .as_mut()
                        .poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
                }
                let _ = socket.recv().await;
            })
        }
    };
    let server = Server::new()
        .drain(Duration::from_millis(100))
        .upgraded_grace(Duration::from_millis(100))
        .route("/", on_get(echo))
        .route("/deaf", on_get(deaf))
        .route("/loud", on_get(loud));
    (start_http2(driver, server), queued)
}

drivers!(a_session_that_does_not_read_holds_a_window_and_stops_no_other, |driver: DriverName| {
    let (server, _) = slow(driver);
    let address = server.address();
    on(driver, async move {
        let sender = raw_client(address).await;
        let mut deaf = Vec::new();
        // Together far more than the connection's window of 256 KiB.
        for at in 0..12 {
            let mut raw = Raw::open(&sender, "/deaf").await;
            // Some by many small frames, each of which would cost as much as 256 bytes where it is kept.
            let step = if at % 2 == 0 { WINDOW } else { 13 };
            for piece in vec![0x55; WINDOW].chunks(step) {
                send_all(&mut raw.send, Bytes::copy_from_slice(piece), false).await;
            }
            // Its window is used up.
            raw.send.reserve_capacity(1);
            assert_eq!(raw.send.capacity(), 0, "session {at}");
            deaf.push(raw);
        }
        let mut other = Raw::open(&sender, "/").await;
        for size in [1, 1000, 60_000, 200_000] {
            let mut frame = Vec::new();
            put_frame(&mut frame, Opcode::Binary, &vec![7; size], KEY);
            let sending = send_all(&mut other.send, Bytes::from(frame), false);
            soon(sending).await;
            assert_eq!(other.next().await, Got::Message(size));
        }
        drop((deaf, other));
    });
    assert_eq!(server.counters().refused, 0);
});

drivers!(
    a_client_that_does_not_read_one_session_stops_no_other_and_bounds_what_waits,
    |driver: DriverName| {
        let (server, queued) = slow(driver);
        let address = server.address();
        let told = Arc::clone(&queued);
        on(driver, async move {
            let sender = raw_client(address).await;
            let loud = Raw::open(&sender, "/loud").await;
            let mut other = Raw::open(&sender, "/").await;
            for size in [1, 1000, 60_000, 200_000] {
                let mut frame = Vec::new();
                put_frame(&mut frame, Opcode::Binary, &vec![7; size], KEY);
                send_all(&mut other.send, Bytes::from(frame), false).await;
                assert_eq!(other.next().await, Got::Message(size));
            }
            // The queue of a session, a window, and what waits for it.
            let queued = told.load(Ordering::Relaxed);
            let most = (1 << 20) + 2 * WINDOW + 20_000;
            assert!(((1 << 20)..most).contains(&queued), "{queued}");
            drop((loud, other));
        });
        drop(server);
    }
);

drivers!(a_session_that_is_reset_gives_its_place_back, |driver: DriverName| {
    let (server, ends) = telling(driver);
    let address = server.address();
    let told = Arc::clone(&ends);
    on(driver, async move {
        let sender = raw_client(address).await;
        for at in 1..=250_usize {
            let mut raw = Raw::open(&sender, "/").await;
            raw.say(Opcode::Text, b"x");
            raw.send.send_reset(Reason::CANCEL);
            drop(raw);
            soon(async {
                while told.lock().unwrap().len() < at {
                    time::sleep(Duration::from_millis(1)).await;
                }
            })
            .await;
        }
    });
    // Each of them did its work: none was an attack.
    let counters = server.counters();
    assert_eq!((counters.upgraded, counters.refused), (250, 0));
    wait_until("all have ended", || ends.lock().unwrap().len() == 250);
});
