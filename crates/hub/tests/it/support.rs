//! Servers with a hub, and clients made of plain sockets.

use ringroad_engine::DriverName;
use ringroad_engine::choose::Wish;
use ringroad_http::{Handle, Request, Server, State, any};
use ringroad_hub::{Checked, Credentials, Endpoint, Hub, Place, Settings};
use ringroad_wire::ws::{Event, Messages, Opcode, Role, Scratch, put_frame};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// Timeout of a socket, after which a test counts as hanging. Far above the time that any test needs.
pub(crate) const HANG: Duration = Duration::from_secs(240);

/// Identifies clients by a line `X-Publish`, and by tokens that are their claims as plain JSON, including
/// `typ`.
#[derive(Debug)]
pub(crate) struct Known;

impl Credentials for Known {
    fn check(&self, request: &Request, token: Option<&str>) -> Checked {
        if request.header("x-publish").is_some() {
            return Checked::Every;
        }
        let Some(token) = token else { return Checked::Missing };
        self.check_text(token)
    }

    fn check_text(&self, token: &str) -> Checked {
        if token == "key" {
            return Checked::Every;
        }
        match serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(token) {
            Ok(claims) => {
                let typ = claims.get("typ").and_then(|typ| typ.as_str()).map(str::to_owned);
                Checked::Claims(typ, claims)
            }
            Err(_) => Checked::Wrong,
        }
    }
}

/// A place with all protocols except Pusher, and with clients of [`Known`].
pub(crate) fn place() -> Place {
    Place { publish: Some(Arc::new(Known)), subscribe: Some(Arc::new(Known)), ..Place::default() }
}

/// Starts a server with two workers and the hub. Clients with the line `X-Publish` may publish.
pub(crate) fn start(driver: DriverName, hub: &Hub) -> Handle {
    start_at(driver, hub, place())
}

/// Starts the same server with other settings of the place.
pub(crate) fn start_at(driver: DriverName, hub: &Hub, place: Place) -> Handle {
    let start = || {
        let (hub, place) = (hub.clone(), place.clone());
        Server::with_state(move || Endpoint::new(hub.clone(), place.clone()))
            .bind("127.0.0.1:0")
            .unwrap()
            .driver(Wish::Named(driver))
            .workers(2)
            .route(
                "/{*path}",
                any(async |mut request: Request, endpoint: State<Endpoint>| {
                    endpoint.answer(&mut request).await
                }),
            )
            .start()
    };
    // Another program may take the port between the first worker and the second: then another port is used.
    let mut tries = 0;
    loop {
        match start() {
            Ok(handle) => return handle,
            Err(why) if tries < 100 && why.to_string().contains("Address already in use") => tries += 1,
            Err(why) => panic!("{why}"),
        }
    }
}

/// The heartbeat detects at the latest that a stream's client has left.
pub(crate) fn settings() -> Settings {
    Settings { heartbeat: Duration::from_secs(5), ..Settings::default() }
}

pub(crate) struct Socket {
    pub(crate) stream: TcpStream,
    pub(crate) input: Vec<u8>,
}

impl Socket {
    pub(crate) fn open(handle: &Handle, request: &str) -> Socket {
        let mut stream = TcpStream::connect(handle.address()).unwrap();
        stream.set_read_timeout(Some(HANG)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        Socket { stream, input: Vec::new() }
    }

    pub(crate) fn more(&mut self) -> bool {
        let mut buffer = [0; 64 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(bytes) => {
                self.input.extend_from_slice(&buffer[..bytes]);
                true
            }
            Err(why) if why.kind() == ErrorKind::ConnectionReset => false,
            // Interrupted by a signal: the kernel does not restart a read on a socket with a timeout
            // (signal(7)).
            Err(why) if why.kind() == ErrorKind::Interrupted => true,
            Err(why) => panic!("{why}"),
        }
    }

    /// Reads up to this mark, and removes the mark.
    pub(crate) fn until(&mut self, mark: &str) -> String {
        let mark = mark.as_bytes();
        let mut from = 0;
        loop {
            let found = self.input[from..].windows(mark.len()).position(|window| window == mark);
            if let Some(at) = found.map(|at| from + at) {
                let all: Vec<u8> = self.input.drain(..at + mark.len()).collect();
                return String::from_utf8(all[..at].to_vec()).unwrap();
            }
            from = self.input.len().saturating_sub(mark.len());
            assert!(
                self.more(),
                "the connection has ended behind {:?}",
                String::from_utf8_lossy(&self.input)
            );
        }
    }
}

/// A WebSocket member.
pub(crate) struct Member {
    pub(crate) socket: Socket,
    messages: Messages,
    scratch: Scratch,
}

impl Member {
    pub(crate) fn open(handle: &Handle, query: &str, more: &str) -> Member {
        Member::open_at(handle, &format!("/hub?{query}"), more)
    }

    pub(crate) fn open_at(handle: &Handle, target: &str, more: &str) -> Member {
        let mut socket = Socket::open(
            handle,
            &format!(
                "GET {target} HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                 Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
            ),
        );
        let head = socket.until("\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        Member {
            socket,
            messages: Messages::new(Role::Client, Default::default()),
            scratch: Scratch::default(),
        }
    }

    /// Returns the next text; `close CODE`; or nothing at the end.
    pub(crate) fn next(&mut self) -> String {
        loop {
            let mut at = 0;
            let input = &mut self.socket.input;
            let told = match self.messages.next(&mut self.scratch, input, &mut at).unwrap() {
                Some(Event::Message { bytes, .. }) => Some(String::from_utf8(bytes.to_vec()).unwrap()),
                Some(Event::Close(close)) => {
                    Some(format!("close {}", close.map_or(0, |(code, _)| code.get())))
                }
                Some(Event::Ping(_)) => {
                    let mut out = Vec::new();
                    put_frame(&mut out, Opcode::Pong, b"", Some([0; 4]));
                    // The server may have closed meanwhile.
                    let _ = self.socket.stream.write_all(&out);
                    Some(String::new())
                }
                Some(Event::Pong(_)) => Some(String::new()),
                None => None,
            };
            input.drain(..at);
            match told {
                Some(told) if told.is_empty() => continue,
                Some(told) => return told,
                None if !self.socket.more() => return String::new(),
                None => {}
            }
        }
    }

    pub(crate) fn say(&mut self, text: &str) {
        self.put(Opcode::Text, text.as_bytes());
    }

    pub(crate) fn put(&mut self, opcode: Opcode, payload: &[u8]) {
        let mut out = Vec::new();
        put_frame(&mut out, opcode, payload, Some([9, 8, 7, 6]));
        self.socket.stream.write_all(&out).unwrap();
    }

    /// Returns whether the server still receives. If not, it answers the first of these writes with a reset.
    pub(crate) fn is_heard(&mut self) -> bool {
        (0..2).all(|_| self.socket.stream.write_all(b"x").is_ok())
    }
}

/// How a client ends its session but keeps the connection open: it closes, or breaks the protocol.
pub(crate) const ENDS: [(Opcode, &[u8]); 2] = [(Opcode::Close, b"\x03\xe8"), (Opcode::Text, b"\xff")];

/// Runs a test that returns whether an event came before the server ended a client's connection, which it
/// does after some seconds. If the machine stands still for that long, the end may come first; the test is
/// then repeated, up to ten runs in all.
pub(crate) fn comes_first(test: impl Fn(Opcode, &[u8]) -> bool) {
    for (opcode, payload) in ENDS {
        assert!((0..10).any(|_| test(opcode, payload)), "{opcode:?}");
    }
}

/// A member by server-sent events, and the head of the answer.
pub(crate) fn events(handle: &Handle, query: &str, more: &str) -> (Socket, String) {
    let mut socket = Socket::open(handle, &format!("GET /hub?{query} HTTP/1.1\r\nHost: a\r\n{more}\r\n"));
    let head = socket.until("\r\n\r\n");
    (socket, head)
}

/// Returns the next event, taken out of its chunk.
pub(crate) fn event(socket: &mut Socket) -> String {
    loop {
        // The line end of a chunk comes with the next chunk.
        let mut line = socket.until("\r\n");
        if line.is_empty() {
            line = socket.until("\r\n");
        }
        let size = usize::from_str_radix(&line, 16).unwrap();
        assert!(size > 0, "the stream has ended");
        while socket.input.len() < size {
            assert!(socket.more());
        }
        let text = String::from_utf8(socket.input.drain(..size).collect()).unwrap();
        if !text.starts_with(':') {
            return text;
        }
    }
}

pub(crate) fn post(handle: &Handle, form: &str, more: &str) -> (String, String) {
    let length = form.len();
    let mut socket = Socket::open(
        handle,
        &format!(
            "POST /hub HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-www-form-urlencoded\r\n\
             Content-Length: {length}\r\nConnection: close\r\n{more}\r\n{form}"
        ),
    );
    let head = socket.until("\r\n\r\n");
    while socket.more() {}
    (head, String::from_utf8(socket.input).unwrap())
}

pub(crate) const PUBLISH: &str = "X-Publish: 1\r\n";
