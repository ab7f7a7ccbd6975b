//! Large bodies that never change: sent from where they lie as long as the kernel does not report that it
//! copies them, which over loopback it does at once.

use crate::support::{Client, start, wait_until};
use ringroad_engine::{Counters, DriverName};
use ringroad_http::{Body, Handle, Request, Response, Server, Shared, State, get};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

const BYTES: usize = 200_000;

const fn pattern() -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let mut at = 0;
    while at < BYTES {
        bytes[at] = (at % 251) as u8;
        at += 1;
    }
    bytes
}

static PAGE: [u8; BYTES] = pattern();

fn server(driver: DriverName) -> Handle {
    let shared = || Shared::new(Response::html(PAGE.to_vec())).unwrap();
    let server = Server::with_state(shared)
        .route("/static", get(|_: Request| async { Body::from_static(&PAGE) }))
        .route("/shared", get(|_: Request, state: State<Shared>| async move { Response::shared(&state) }))
        .route("/copied", get(|_: Request| async { PAGE.to_vec() }))
        .route("/small", get(|_: Request| async { "small" }));
    start(driver, server)
}

/// The engine's counters as of the last second: sends from where bytes lie, and those that were copied.
fn counts(server: &Handle) -> (u64, u64) {
    let sum = |of: fn(&Counters) -> u64| server.counters().engine.iter().map(of).sum();
    (sum(|counters| counters.zero_copy_sends), sum(|counters| counters.zero_copy_copied))
}

/// Waits until counters have been told that are later than now.
fn told_anew(server: &Handle) {
    let turns = || server.counters().engine.iter().map(|counters| counters.turns).sum::<u64>();
    for _ in 0..2 {
        let before = turns();
        wait_until("counters are told", || turns() > before);
    }
}

/// Whether sends go without a copy here; else says why not.
fn is_tried(driver: DriverName) -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(|number| number.parse().unwrap_or(0));
    let version: (u32, u32) = (numbers.next().unwrap(), numbers.next().unwrap());
    if driver == DriverName::IoUring && version < (6, 2) {
        eprintln!("Linux {release} does not report whether it copied: all is copied");
    }
    driver == DriverName::IoUring && version >= (6, 2)
}

drivers!(where_the_kernel_copies_a_body_is_sent_without_a_copy_once, |driver: DriverName| {
    let server = server(driver);
    let mut known = (0, 0);
    for path in ["/static", "/shared"] {
        let mut client = Client::new(server.address());
        assert_eq!(client.get("/small").text(), "small");
        assert!(client.get("/copied").body == PAGE);
        assert!(client.get(path).body == PAGE);
        if is_tried(driver) {
            // A body for which there is no room at once goes in parts, and each is tried until the kernel
            // has told. What was sent before was no candidate.
            wait_until("the kernel tells what it did", || {
                let (sent, copied) = counts(&server);
                copied > known.1 && sent == copied
            });
            told_anew(&server);
            known = counts(&server);
        }
        for _ in 0..5 {
            assert!(client.get(path).body == PAGE);
        }
        if is_tried(driver) {
            told_anew(&server);
        }
        assert_eq!(counts(&server), known, "once it is known, it is not tried again");
    }
});

drivers!(answers_that_are_asked_for_together_come_in_order, |driver: DriverName| {
    let server = server(driver);
    let mut client = Client::new(server.address());
    let paths = ["/small", "/static", "/shared", "/small", "/copied", "/static"];
    for path in paths {
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    }
    for path in paths {
        let reply = client.reply();
        if path == "/small" {
            assert_eq!(reply.text(), "small");
        } else {
            assert!(reply.body == PAGE, "{path}");
        }
    }
});

drivers!(ten_clients_at_once_get_what_they_asked_for, |driver: DriverName| {
    let server = server(driver);
    let address = server.address();
    let clients: Vec<_> = (0..10)
        .map(|number| {
            std::thread::spawn(move || {
                let mut client = Client::new(address);
                for round in 0..6 {
                    let path = if (number + round) % 2 == 0 { "/static" } else { "/shared" };
                    assert!(client.get(path).body == PAGE);
                }
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
});

drivers!(a_client_that_reads_late_gets_all_of_it, |driver: DriverName| {
    // The server has answered and closed by then, and its kernel still has most of the answer.
    let server = server(driver);
    let mut late = narrow(&server);
    let head = "GET /shared HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    late.write_all(head.as_bytes()).unwrap();
    late.shutdown(Shutdown::Write).unwrap();
    let mut other = Client::new(server.address());
    for _ in 0..20 {
        assert!(other.get("/shared").body == PAGE);
    }
    let mut answer = Vec::new();
    late.read_to_end(&mut answer).unwrap();
    assert!(answer.ends_with(&PAGE));
});

drivers!(clients_that_go_away_in_the_midst_of_a_body_disturb_nobody, |driver: DriverName| {
    let server = server(driver);
    for path in ["/static", "/shared"] {
        for _ in 0..5 {
            let mut gone = narrow(&server);
            let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
            gone.write_all(head.as_bytes()).unwrap();
            gone.read_exact(&mut [0; 1000]).unwrap();
            // What it has not read resets the connection.
        }
    }
    let mut client = Client::new(server.address());
    assert!(client.get("/shared").body == PAGE);
    wait_until("they are gone", || server.counters().connections == 1);
    drop(client);
    server.stop();
    server.wait().unwrap();
});

/// A client with hardly any room.
fn narrow(server: &Handle) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(8 * 1024).unwrap();
    socket.connect(&server.address().into()).unwrap();
    socket.into()
}
