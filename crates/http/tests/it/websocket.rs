//! WebSocket sessions on every driver: a client that is nothing but a socket against our server, and our
//! client against our server.

use crate::pauses::but_for_pauses;
use crate::support::{Client, start, wait_until};
use ringroad_engine::{DriverName, Runtime, spawn, time, yield_now};
use ringroad_http::ws::{
    self, CloseCode, Frame, Limits, Message, Options, Origins, SendError, WebSocketError,
};
use ringroad_http::{Client as HttpClient, Handle, Request, Response, Server, State, get};
use ringroad_wire::ws::{Event, Messages, Opcode, Role, Scratch, put_close, put_frame, put_frame_as};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const KEY: Option<[u8; 4]> = Some([1, 2, 3, 4]);

fn handshake(path: &str, more: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
    )
}

/// A session of a client that is nothing but a socket.
struct Raw {
    client: Client,
    messages: Messages,
    scratch: Scratch,
    input: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
enum Got {
    Text(String),
    Binary(usize),
    Ping,
    Pong(Vec<u8>),
    Close(u16),
    End,
}

impl Raw {
    fn open(handle: &Handle, path: &str, more: &str) -> Raw {
        let mut client = Client::new(handle.address());
        let reply = client.send(handshake(path, more)).reply();
        assert_eq!(reply.status, 101, "{}", reply.head);
        assert_eq!(reply.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        let limits = Limits { message_bytes: 1 << 30, fragments: 1000 };
        Raw {
            client,
            messages: Messages::new(Role::Client, limits),
            scratch: Scratch::default(),
            input: vec![],
        }
    }

    fn send(&mut self, opcode: Opcode, payload: &[u8]) -> &mut Raw {
        let mut out = Vec::new();
        put_frame(&mut out, opcode, payload, KEY);
        self.client.send(out);
        self
    }

    fn next(&mut self) -> Got {
        loop {
            let mut at = 0;
            let got = match self.messages.next(&mut self.scratch, &mut self.input, &mut at).unwrap() {
                Some(Event::Message { kind: ws::Kind::Text, bytes }) => {
                    Some(Got::Text(String::from_utf8(bytes.to_vec()).unwrap()))
                }
                Some(Event::Message { bytes, .. }) => Some(Got::Binary(bytes.len())),
                Some(Event::Ping(_)) => Some(Got::Ping),
                Some(Event::Pong(bytes)) => Some(Got::Pong(bytes.to_vec())),
                Some(Event::Close(close)) => Some(Got::Close(close.map_or(0, |(code, _)| code.get()))),
                None => None,
            };
            self.input.drain(..at);
            if let Some(got) = got {
                return got;
            }
            let more = self.client.some();
            if more.is_empty() {
                return Got::End;
            }
            self.input.extend(more);
        }
    }
}

async fn echo(request: Request) -> Response {
    ws::accept(&request, |mut socket| async move {
        while let Ok(Some(message)) = socket.recv().await {
            if socket.send(message).await.is_err() {
                break;
            }
        }
    })
}

drivers!(messages_of_any_length_come_back, |driver| {
    let handle = start(driver, Server::new().route("/", get(echo)));
    let mut raw = Raw::open(&handle, "/", "");
    raw.send(Opcode::Text, "grüße".as_bytes());
    assert_eq!(raw.next(), Got::Text("grüße".to_owned()));
    for bytes in [0, 1, 125, 126, 4000, 65_535, 65_536, 1 << 20] {
        raw.send(Opcode::Binary, &vec![7; bytes]);
        assert_eq!(raw.next(), Got::Binary(bytes));
    }
    raw.send(Opcode::Ping, b"are you there");
    assert_eq!(raw.next(), Got::Pong(b"are you there".to_vec()));
    let mut out = Vec::new();
    put_close(&mut out, CloseCode::new(4321), "enough", KEY);
    raw.client.send(out);
    assert_eq!((raw.next(), raw.next()), (Got::Close(4321), Got::End));
});

drivers!(messages_that_come_together_are_answered_in_order, |driver| {
    let handle = start(driver, Server::new().route("/", get(echo)));
    // The first are behind the handshake already.
    let mut client = Client::new(handle.address());
    let mut bytes = handshake("/", "").into_bytes();
    for number in 0..500 {
        put_frame(&mut bytes, Opcode::Text, number.to_string().as_bytes(), KEY);
    }
    // One in fragments, with a ping inside, and cut in the middle of a head.
    put_frame_as(&mut bytes, Opcode::Text, false, false, b"frag", KEY);
    put_frame(&mut bytes, Opcode::Ping, b"!", KEY);
    put_frame_as(&mut bytes, Opcode::Continuation, true, false, b"ment", KEY);
    let (first, second) = bytes.split_at(bytes.len() - 7);
    client.send(first);
    assert_eq!(client.reply().status, 101);
    let limits = Limits::default();
    let mut raw = Raw {
        client,
        messages: Messages::new(Role::Client, limits),
        scratch: Scratch::default(),
        input: vec![],
    };
    for number in 0..500 {
        assert_eq!(raw.next(), Got::Text(number.to_string()));
    }
    assert_eq!(raw.next(), Got::Pong(b"!".to_vec()));
    raw.client.send(second);
    assert_eq!(raw.next(), Got::Text("fragment".to_owned()));
});

drivers!(a_peer_that_breaks_a_rule_is_told_the_code, |driver| {
    let (tell, told) = mpsc::channel();
    let tell = Mutex::new(tell);
    let handle = start(
        driver,
        Server::with_state(move || tell.lock().unwrap().clone()).route(
            "/",
            get(async |request: Request, tell: State<mpsc::Sender<u16>>| {
                let options = Options::new().limits(Limits { message_bytes: 100, fragments: 2 });
                options.accept(&request, move |mut socket| async move {
                    let end = socket.recv().await;
                    tell.send(end.map_or_else(|why| why.code().get(), |_| 0)).unwrap();
                })
            }),
        ),
    );
    for (bytes, code) in [
        (&b"\x81\x01x"[..], 1002),
        (b"\x83\x80\0\0\0\0", 1002),
        (b"\x81\x81\0\0\0\0\xff", 1007),
        (b"\x82\xfe\x01\x00\0\0\0\0", 1009),
        (b"\x02\x80\0\0\0\0\x00\x80\0\0\0\0\x00\x80\0\0\0\0", 1008),
    ] {
        let mut raw = Raw::open(&handle, "/", "");
        // What is behind it must not reset the answer away.
        raw.client.send(bytes).send([0x55; 1000]);
        assert_eq!(raw.next(), Got::Close(code));
        assert_eq!(raw.next(), Got::End);
        drop(raw);
        assert_eq!(told.recv().unwrap(), code);
    }
});

drivers!(what_is_no_handshake_is_refused, |driver| {
    async fn listed(request: Request) -> Response {
        let origins = Origins::Listed(vec!["https://friend.example".to_owned()]);
        Options::new().origins(origins).accept(&request, |_| async {})
    }
    let server = Server::new().route("/", get(echo)).route("/listed", get(listed));
    let handle = start(driver, server);
    let ask = |bytes: &str| Client::new(handle.address()).send(bytes).reply();
    let reply = ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((reply.status, reply.header("sec-websocket-version")), (426, Some("13")));
    // RFC 9110 §15.5.22.
    assert_eq!((reply.header("upgrade"), reply.header("connection")), (Some("websocket"), Some("upgrade")));
    let old = ask(&handshake("/", "").replace("Version: 13", "Version: 8"));
    assert_eq!((old.status, old.header("sec-websocket-version")), (426, Some("13")));
    assert_eq!(ask(&handshake("/", "").replace("dGhl", "")).status, 400);
    assert_eq!(ask(&handshake("/", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n")).status, 400);
    assert_eq!(ask(&handshake("/", "").replace("Upgrade: websocket", "Upgrade: h2c")).status, 426);
    assert_eq!(ask(&handshake("/", "Origin: http://evil.example\r\n")).status, 403);
    assert_eq!(ask(&handshake("/", "Origin: null\r\n")).status, 403);
    let two = "Origin: http://localhost\r\nOrigin: http://evil.example\r\n";
    assert_eq!(ask(&handshake("/", two)).status, 403, "each of them has to be allowed");
    for (path, origin) in
        [("/", "http://localhost"), ("/listed", "https://friend.example"), ("/listed", "http://localhost")]
    {
        let more = format!("Origin: {origin}\r\n");
        assert_eq!(ask(&handshake(path, &more)).status, 101, "{origin}");
    }
    assert_eq!(ask(&handshake("/listed", "Origin: https://friend.example.evil\r\n")).status, 403);
});

drivers!(our_client_and_server_agree_on_a_protocol_and_compression, |driver| {
    let options = Options::new().compress(true).protocols(["b", "a"]);
    let serving = options.clone();
    let handle = start(
        driver,
        Server::with_state(move || serving.clone()).route(
            "/",
            get(async |request: Request, options: State<Options>| {
                options.accept(&request, |mut socket| async move {
                    let protocol = socket.protocol().unwrap_or("none").to_owned();
                    socket.send(protocol).await.unwrap();
                    while let Ok(Some(message)) = socket.recv().await {
                        socket.send(message).await.unwrap();
                    }
                })
            }),
        ),
    );
    let url = format!("ws://{}/", handle.address());
    let runtime = Runtime::builder(driver).build().unwrap();
    let talked = runtime.block_on(async move {
        let client = HttpClient::new();
        for compress in [true, false] {
            let offer = Options::new().compress(compress).protocols(["x", "a", "b"]);
            let mut socket = client.websocket(&url).options(&offer).connect().await.unwrap();
            assert_eq!(socket.protocol(), Some("b"));
            assert_eq!(socket.recv().await.unwrap().unwrap().as_text(), Some("b"));
            let long = "repeat ".repeat(20_000);
            for text in ["short", &long] {
                socket.send(text).await.unwrap();
                let back = socket.recv().await.unwrap().unwrap();
                assert_eq!(back.as_text(), Some(text));
            }
            socket.send(vec![9; 300_000]).await.unwrap();
            assert_eq!(socket.recv().await.unwrap().unwrap().into_bytes(), vec![9; 300_000]);
            socket.close(CloseCode::NORMAL, "done").await.unwrap();
            assert_eq!(socket.closed().unwrap().code, CloseCode::NORMAL);
            assert!(matches!(socket.send("late").await, Err(WebSocketError::Closed)));
        }
        // Nothing listens for WebSocket there.
        let refused = client.websocket(&format!("{url}missing")).connect().await.unwrap_err();
        assert!(refused.to_string().contains("404"), "{refused}");
        assert!(client.websocket("http://localhost/").connect().await.is_err());
    });
    talked.unwrap();
    let _ = runtime.shutdown(Duration::from_secs(60));
});

drivers!(a_server_that_stops_closes_its_sessions_with_1001, |driver| {
    let handle = start(driver, Server::new().upgraded_grace(Duration::from_secs(60)).route("/", get(echo)));
    let mut sessions: Vec<Raw> = (0..20).map(|_| Raw::open(&handle, "/", "")).collect();
    // One more that has spoken.
    sessions[0].send(Opcode::Text, b"x");
    assert_eq!(sessions[0].next(), Got::Text("x".to_owned()));
    wait_until("all are upgraded", || handle.counters().upgraded == 20);
    handle.stop();
    for raw in &mut sessions {
        assert_eq!(raw.next(), Got::Close(1001));
        let mut out = Vec::new();
        put_close(&mut out, CloseCode::GOING_AWAY, "", KEY);
        raw.client.send(out);
        assert_eq!(raw.next(), Got::End);
    }
    handle.wait().unwrap();
});

/// In time that passes: the shortest spans are seconds.
#[test]
fn a_silent_peer_is_pinged_and_given_up_without_an_answer() {
    but_for_pauses(Duration::from_millis(200), || {
        let (tell, told) = mpsc::channel();
        let tell = Mutex::new(tell);
        let handle = start(
            DriverName::Epoll,
            Server::with_state(move || tell.lock().unwrap().clone()).route(
                "/",
                get(async |request: Request, tell: State<mpsc::Sender<String>>| {
                    let spans = (Duration::from_secs(1), Duration::from_secs(1));
                    let tell = tell.clone();
                    Options::new().ping(Some(spans)).accept(&request, move |mut socket| async move {
                        tell.send(format!("{:?}", socket.recv().await)).unwrap();
                    })
                }),
            ),
        );
        let mut alive = Raw::open(&handle, "/", "");
        let mut dead = Raw::open(&handle, "/", "");
        for _ in 0..3 {
            assert_eq!(alive.next(), Got::Ping);
            alive.send(Opcode::Pong, b"");
        }
        assert_eq!((dead.next(), dead.next()), (Got::Ping, Got::End));
        assert_eq!(told.recv().unwrap(), "Err(TimedOut)");
        alive.send(Opcode::Text, b"still here");
        assert_eq!(told.recv().unwrap(), "Ok(Some(Text(\"still here\")))");
    });
}

#[test]
fn a_peer_that_does_not_close_is_closed() {
    let handle = start(
        DriverName::Epoll,
        Server::new().route(
            "/",
            get(async |request: Request| {
                let options = Options::new().close_timeout(Duration::from_secs(1));
                options.accept(&request, |mut socket| async move {
                    socket.close(CloseCode::new(3000), "").await.unwrap();
                })
            }),
        ),
    );
    let mut raw = Raw::open(&handle, "/", "");
    assert_eq!(raw.next(), Got::Close(3000));
    assert_eq!(raw.next(), Got::End);
}

drivers!(many_sessions_send_one_frame_and_a_slow_one_is_closed_alone, |driver| {
    struct Room {
        senders: RefCell<Vec<ws::Sender>>,
        full: Arc<Mutex<usize>>,
    }
    let full = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&full);
    let handle = start(
        driver,
        Server::with_state(move || Room { senders: RefCell::default(), full: Arc::clone(&counted) })
            .route(
                "/join",
                get(async |request: Request, room: State<Room>| {
                    let options = Options::new().queue_bytes(256 * 1024);
                    options.accept(&request, move |mut socket| async move {
                        room.senders.borrow_mut().push(socket.sender());
                        while let Ok(Some(_)) = socket.recv().await {}
                    })
                }),
            )
            .route(
                "/say",
                get(async |request: Request, room: State<Room>| {
                    let text = request.query().unwrap_or_default().repeat(1000);
                    let frame = Frame::text(&text);
                    for sender in room.senders.borrow().iter() {
                        if sender.send_frame(&frame) == Err(SendError::Full) {
                            *room.full.lock().unwrap() += 1;
                            sender.close_now(CloseCode::new(4000), "too slow");
                        }
                    }
                    "said"
                }),
            ),
    );
    let mut quick: Vec<Raw> = (0..10).map(|_| Raw::open(&handle, "/join", "")).collect();
    let mut slow = Raw::open(&handle, "/join", "");
    let mut publisher = Client::new(handle.address());
    wait_until("all have joined", || handle.counters().upgraded == 11);
    let mut said = 0;
    while *full.lock().unwrap() == 0 {
        assert_eq!(publisher.get("/say?0123456789").status, 200);
        said += 1;
        for raw in &mut quick {
            assert_eq!(raw.next(), Got::Text("0123456789".repeat(1000)));
        }
        assert!(said < 100_000, "the kernel takes everything");
    }
    for _ in 0..said {
        match slow.next() {
            Got::Text(text) => assert_eq!(text, "0123456789".repeat(1000)),
            got => {
                assert_eq!(got, Got::Close(4000));
                return;
            }
        }
    }
    panic!("the slow one has got everything");
});

drivers!(a_future_that_is_dropped_loses_nothing, |driver| {
    let handle = start(driver, Server::new().route("/", get(echo)));
    let url = format!("ws://{}/", handle.address());
    let runtime = Runtime::builder(driver).build().unwrap();
    let talked = runtime.block_on(async move {
        let mut socket = HttpClient::new().websocket(&url).connect().await.unwrap();
        let sender = socket.sender();
        for number in 0..200 {
            sender.send(number.to_string()).unwrap();
        }
        let mut got = 0;
        while got < 200 {
            // Most of these are dropped before they are ready.
            if let Ok(message) = time::timeout(Duration::from_micros(50), socket.recv()).await {
                assert_eq!(message.unwrap().unwrap().as_text(), Some(&*got.to_string()));
                got += 1;
            }
        }
        // What is queued goes out while the session does something else, and when it is dropped.
        let seen = Rc::new(RefCell::new(0));
        let big = vec![1; 900_000];
        let mut other = HttpClient::new().websocket(&url).connect().await.unwrap();
        let count = Rc::clone(&seen);
        other.sender().send(big).unwrap();
        spawn(async move {
            let message: Message = other.recv().await.unwrap().unwrap();
            *count.borrow_mut() = message.as_bytes().len();
        })
        .await
        .unwrap();
        assert_eq!(*seen.borrow(), 900_000);
    });
    talked.unwrap();
    let _ = runtime.shutdown(Duration::from_secs(60));
});

/// Counts 500 messages, and answers with the most that it got while another task was polled once.
async fn count(request: Request) -> Response {
    ws::accept(&request, |mut socket| async move {
        let done = Rc::new(Cell::new(0));
        let most = Rc::new(Cell::new(0));
        let (seen, noted) = (Rc::clone(&done), Rc::clone(&most));
        let watch = spawn(async move {
            loop {
                let before = seen.get();
                yield_now().await;
                noted.set(noted.get().max(seen.get() - before));
            }
        });
        yield_now().await;
        while done.get() < 500 {
            match socket.recv().await {
                Ok(Some(_)) => done.set(done.get() + 1),
                _ => return,
            }
        }
        yield_now().await;
        watch.cancel();
        let _ = socket.send(Message::text(most.get().to_string())).await;
    })
}

drivers!(a_buffer_full_of_short_messages_does_not_stop_the_worker, |driver| {
    let handle = start(driver, Server::new().route("/", get(count)));
    let mut raw = Raw::open(&handle, "/", "");
    let mut bytes = Vec::new();
    (0..500).for_each(|_| put_frame(&mut bytes, Opcode::Text, b"", KEY));
    raw.client.send(bytes);
    let Got::Text(most) = raw.next() else { panic!("it answers with a text") };
    let most: u32 = most.parse().unwrap();
    assert!((1..=200).contains(&most), "{most} messages in one turn");
});
