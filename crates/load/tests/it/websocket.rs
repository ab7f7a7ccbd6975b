//! ws:// and wss://: the load is a client that servers accept, counts what came back, and notices what did not.

use crate::server::{Server, close};
use crate::tls::certificate;
use crate::{drivers, plan, run};
use ringroad_load::hold::Hold;
use ringroad_load::plan::Pace;
use ringroad_load::schedule::Arrivals;
use ringroad_load::tls::{Client, Trust};
use ringroad_load::{Message, Plan};
use ringroad_wire::ws::{Event, Messages, Opcode, Role, Scratch, handshake, put_frame};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What a server of these tests does with a message.
#[derive(Clone, Copy, PartialEq)]
enum Does {
    /// Sends it back, with a ping before each.
    Echo,
    /// Sends another one back.
    Other,
    /// Answers pings, each behind a message of its own, as a server that pushes.
    Push,
    /// Refuses the handshake.
    Refuse,
}

/// Speaks WebSocket until the client ends. Returns the pongs that came.
fn speak(stream: &mut (impl Read + Write), does: Does) -> std::io::Result<u64> {
    let mut input = Vec::new();
    let mut buffer = [0; 4096];
    let end = loop {
        if let Some(at) = input.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        match stream.read(&mut buffer)? {
            0 => return Ok(0),
            count => input.extend_from_slice(&buffer[..count]),
        }
    };
    let head = String::from_utf8(input.drain(..end).collect()).unwrap();
    let line = |wanted: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.to_owned())
    };
    assert!(head.starts_with("GET /chat?x HTTP/1.1\r\n"), "{head}");
    assert_eq!(line("sec-websocket-version").as_deref(), Some("13"));
    assert_eq!(line("x-a").as_deref(), Some("b"));
    if does == Does::Refuse {
        stream.write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")?;
        return Ok(0);
    }
    let accept = handshake::accept_key(&line("sec-websocket-key").unwrap());
    write!(
        stream,
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\n\r\n"
    )?;
    let mut messages = Messages::new(Role::Server, Default::default());
    let mut scratch = Scratch::default();
    let mut pongs = 0;
    loop {
        let mut at = 0;
        let mut out = Vec::new();
        while let Some(event) = messages.next(&mut scratch, &mut input, &mut at).unwrap() {
            match event {
                Event::Message { bytes, .. } => {
                    put_frame(&mut out, Opcode::Ping, b"x", None);
                    let other = [b"?", &bytes[1..]].concat();
                    put_frame(&mut out, Opcode::Text, if does == Does::Echo { bytes } else { &other }, None);
                }
                Event::Pong(_) => pongs += 1,
                Event::Ping(payload) if does == Does::Push => {
                    put_frame(&mut out, Opcode::Text, b"news", None);
                    put_frame(&mut out, Opcode::Pong, payload, None);
                }
                Event::Ping(_) | Event::Close(_) => {}
            }
        }
        input.drain(..at);
        stream.write_all(&out)?;
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return Ok(pongs),
            Ok(count) => input.extend_from_slice(&buffer[..count]),
        }
    }
}

fn begin(does: Does) -> (Server, Arc<AtomicU64>) {
    let pongs = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&pongs);
    let server = Server::start(move |stream, _| {
        counted.fetch_add(speak(stream, does).unwrap_or(0), Ordering::Relaxed);
        close(stream);
    });
    (server, pongs)
}

fn of(scheme: &str, address: SocketAddr, payload: &[u8]) -> Plan {
    let target = format!("{scheme}://localhost:{}/chat?x", address.port()).parse().unwrap();
    let headers = [("X-A".to_owned(), "b".to_owned())];
    let message = Message::websocket(&target, &headers, payload.to_vec()).unwrap();
    plan(target, message)
}

#[test]
fn every_message_comes_back_in_closed_and_open_loop_on_every_driver() {
    for choice in drivers() {
        for payload in [&b"hello"[..], &[0xff; 70_000]] {
            let (server, pongs) = begin(Does::Echo);
            let outcome = run(&of("ws", server.address, payload), &choice).unwrap();
            assert_eq!((outcome.counts.completed, outcome.counts.errors.total()), (12, 0), "{choice}");
            let open = Plan {
                pace: Pace::Open { per_second: 200.0, arrivals: Arrivals::Constant },
                count: None,
                duration: Some(Duration::from_millis(100)),
                ..of("ws", server.address, payload)
            };
            let outcome = run(&open, &choice).unwrap();
            assert_eq!((outcome.counts.completed, outcome.counts.errors.total()), (outcome.counts.sent, 0));
            assert!(outcome.counts.sent > 0);
            // Counted when the connection has ended.
            let begun = Instant::now();
            while pongs.load(Ordering::Relaxed) == 0 {
                assert!(begun.elapsed() < Duration::from_secs(60), "{choice}: no ping was answered");
                std::thread::yield_now();
            }
        }
    }
}

#[test]
fn messages_go_over_tls_on_every_driver() {
    let (config, der) = certificate("localhost");
    for choice in drivers() {
        let config = Arc::clone(&config);
        let server = Server::start(move |stream, _| {
            let mut session = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            let _ = speak(&mut rustls::Stream::new(&mut session, stream), Does::Echo);
            close(stream);
        });
        let plan = Plan {
            tls: Some(Client::new(Trust::Roots(vec![der.clone()])).unwrap()),
            ..of("wss", server.address, b"hello")
        };
        let outcome = run(&plan, &choice).unwrap();
        assert_eq!((outcome.counts.completed, outcome.counts.errors.total()), (12, 0), "{choice}");
    }
}

#[test]
fn held_connections_have_heartbeats_that_come_back() {
    for choice in drivers() {
        let (server, _) = begin(Does::Echo);
        let hold = Hold { heartbeat: Duration::from_millis(50), retry_limit: None };
        let plan = Plan {
            connections: 4,
            count: None,
            duration: Some(Duration::from_millis(200)),
            pace: Pace::Hold(hold),
            ..of("ws", server.address, b"beat")
        };
        let held = run(&plan, &choice).unwrap().counts.held;
        assert_eq!((held.opened, held.survived, held.lost), (4, 4, 0), "{choice}");
    }
}

#[test]
fn connections_to_a_server_that_pushes_are_held_by_pings() {
    for choice in drivers() {
        let (server, _) = begin(Does::Push);
        let headers = [("X-A".to_owned(), "b".to_owned())];
        let of = of("ws", server.address, b"beat");
        let message = Message::websocket_ping(&of.target, &headers, b"beat".to_vec()).unwrap();
        let plan = Plan {
            connections: 4,
            count: None,
            duration: Some(Duration::from_millis(200)),
            pace: Pace::Hold(Hold { heartbeat: Duration::from_millis(50), retry_limit: None }),
            ..plan(of.target, message)
        };
        let counts = run(&plan, &choice).unwrap().counts;
        assert_eq!((counts.held.opened, counts.held.survived, counts.held.lost), (4, 4, 0), "{choice}");
        assert!(counts.completed > 0 && counts.errors.total() == 0, "{choice}: {counts:?}");
    }
}

#[test]
fn another_message_is_an_error_and_a_refused_handshake_is_told() {
    for choice in drivers() {
        let (server, _) = begin(Does::Other);
        let outcome = run(&of("ws", server.address, b"hello"), &choice).unwrap();
        assert!(outcome.counts.completed == 0 && outcome.counts.errors.total() > 0, "{choice}");
        let (server, _) = begin(Does::Refuse);
        let told = match run(&of("ws", server.address, b"hello"), &choice) {
            Ok(outcome) => format!("{:?}", outcome.counts),
            Err(why) => why.to_string(),
        };
        assert!(told.contains("403 Forbidden"), "{choice}: {told}");
    }
}
