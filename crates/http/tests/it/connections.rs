//! Connections: their peer addresses, their maximum number, and other protocols spoken on them.

use crate::over::Over;
use crate::support::{Client, start, wait_until};
use ringroad_engine::DriverName;
use ringroad_engine::sync::{self, Sender};
use ringroad_engine::time::sleep;
use ringroad_http::{Deadlines, EncodeError, PerAddress, Request, Response, Server, Upgraded, get};
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

async fn hello(_: Request) -> &'static str {
    "hello"
}

drivers!(a_request_knows_the_address_of_its_peer, |driver: DriverName| {
    let at_once = |request: Request| async move { request.peer_addr().unwrap().to_string() };
    let later = |request: Request| async move {
        sleep(Duration::from_millis(1)).await;
        request.peer_addr().unwrap().to_string()
    };
    let server = start(driver, Server::new().workers(2).route("/", get(at_once)).route("/later", get(later)));
    // Three rounds, so that slots are reused: a connection must not report the address of its slot's previous
    // one.
    for _ in 0..3 {
        let mut clients: Vec<_> = (0..3).map(|_| Client::new(server.address())).collect();
        for client in &mut clients {
            let address = client.stream().local_addr().unwrap().to_string();
            for path in ["/", "/later", "/"] {
                assert_eq!(client.get(path).text(), address);
            }
        }
    }
});

drivers!(a_request_knows_the_address_that_its_client_connected_to, |driver: DriverName| {
    let told = |request: Request| async move { request.local_addr().unwrap().to_string() };
    let server = start(driver, Server::new().route("/", get(told)));
    let mut client = Client::new(server.address());
    assert_eq!(client.get("/").text(), client.stream().peer_addr().unwrap().to_string());
});

drivers!(a_request_kept_beyond_its_connection_has_no_peer, |driver: DriverName| {
    let (give, taken) = std::sync::mpsc::channel();
    let keep = move |request: Request| {
        let give = give.clone();
        async move {
            let kept = ringroad_engine::spawn(async move {
                while request.peer_addr().is_some() {
                    sleep(Duration::from_millis(1)).await;
                }
                give.send(()).unwrap();
            });
            kept.detach();
            "kept"
        }
    };
    let server = start(driver, Server::new().route("/", get(keep)));
    let mut client = Client::new(server.address());
    assert_eq!(client.get("/").text(), "kept");
    drop(client);
    taken.recv_timeout(Duration::from_secs(60)).expect("nobody's address");
    wait_until("it is gone", || server.counters().connections == 0);
});

pub(crate) type Answer = Pin<Box<dyn Future<Output = &'static str>>>;

/// A handler that answers on command.
pub(crate) fn held() -> (Sender<()>, impl Fn(Request) -> Answer + Clone + Send) {
    let (release, held) = sync::bounded::<()>(100);
    let handler = move |_: Request| {
        let held = held.clone();
        Box::pin(async move {
            held.recv().await.unwrap();
            "held"
        }) as Answer
    };
    (release, handler)
}

drivers!(at_the_limit_the_next_waits_while_all_connections_are_busy, |driver: DriverName| {
    let one = NonZeroUsize::new(1).unwrap();
    let (release, handler) = held();
    let server = start(driver, Server::new().connections_max(one).route("/", get(handler)));
    let mut first = Client::new(server.address());
    first.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    wait_until("it is busy", || server.counters().bytes_in > 0);
    let mut other = Client::new(server.address());
    other.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("accepting pauses", || server.counters().accept_paused >= 1);
    assert_eq!((server.counters().connections, server.counters().requests()), (1, 0));
    release.try_send(()).unwrap();
    release.try_send(()).unwrap();
    assert_eq!((first.reply().text(), other.reply().text()), ("held", "held"));
    assert_eq!(server.counters().evicted, 0);
});

drivers!(
    /// On threads each connection that waits has one; an accept that finds none fails once, and waits from
    /// then on.
    a_server_without_a_free_thread_goes_on_when_connections_end,
    |driver: DriverName| {
        let server = Server::new().tune(|builder| builder.workers(8)).route("/", get(hello));
        let server = start(driver, server);
        let mut clients: Vec<_> = (0..24).map(|_| Client::new(server.address())).collect();
        for client in &mut clients {
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        for mut client in clients {
            assert_eq!(client.reply().status, 200);
        }
        assert!(!server.has_ended());
    }
);

drivers!(at_the_limit_the_connection_that_is_idle_for_longest_makes_room, |driver: DriverName| {
    let two = NonZeroUsize::new(2).unwrap();
    let server = start(driver, Server::new().connections_max(two).route("/", get(hello)));
    let (mut oldest, mut younger) = (Client::new(server.address()), Client::new(server.address()));
    assert_eq!((oldest.get("/").status, younger.get("/").status), (200, 200));
    let mut next = Client::new(server.address());
    assert_eq!(next.get("/").status, 200);
    assert!(oldest.is_closed());
    assert_eq!((server.counters().evicted, younger.get("/").status), (1, 200));
});

drivers!(a_connection_that_only_ends_makes_room_at_each_limit, |driver: DriverName| {
    let one = NonZeroUsize::new(1).unwrap();
    let patient =
        || Server::new().deadlines(Deadlines { linger: Duration::from_secs(3600), ..Deadlines::default() });
    let per_address = Arc::new(PerAddress::default());
    per_address.set(Some(1), Vec::new());
    for server in [patient().connections_max(one), patient().per_address(Arc::clone(&per_address))] {
        let server = start(driver, server.route("/", get(hello)));
        let over = AtomicBool::new(false);
        let mut refused = Client::new(server.address());
        refused.send("GET / bad\r\n\r\n");
        assert_eq!(refused.reply().status, 400);
        std::thread::scope(|scope| {
            // It goes on sending, so that the server goes on hearing it out.
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) && refused.try_send("x") {
                    std::thread::sleep(Duration::from_millis(50));
                }
            });
            let _over = Over(&over);
            assert_eq!(Client::new(server.address()).get("/").status, 200);
        });
    }
});

drivers!(when_too_much_is_unsent_the_clients_that_take_nothing_are_cut, |driver: DriverName| {
    let page = |_: Request| async { vec![b'x'; 15_000] };
    let server = start(driver, Server::new().unsent_bytes_max(100_000).route("/", get(page)));
    let mut silent: Vec<_> = (0..20).map(|_| Client::new(server.address())).collect();
    for client in &mut silent {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1000));
    }
    // Long before the stall that a receiver may have, which is 30 s.
    wait_until("some are cut", || server.counters().timed_out > 0);
    assert_eq!(Client::new(server.address()).get("/").body.len(), 15_000);
});

drivers!(
    /// They are told by their kernel that they are connected, and have sent their requests.
    a_request_in_the_backlog_of_a_stopping_server_is_answered,
    |driver: DriverName| {
        let one = NonZeroUsize::new(1).unwrap();
        let (release, handler) = held();
        let patient = Server::new().drain(Duration::from_secs(60));
        let server = start(driver, patient.connections_max(one).route("/", get(handler)));
        let address = server.address();
        let mut all: Vec<_> = (0..21).map(|_| Client::new(address)).collect();
        for client in &mut all {
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        wait_until("accepting pauses", || server.counters().accept_paused >= 1);
        server.stop();
        wait_until("all were taken from the backlog", || server.counters().connections == 21);
        (0..21).for_each(|_| release.try_send(()).unwrap());
        for client in &mut all {
            let reply = client.reply();
            assert_eq!((reply.text(), reply.header("Connection")), ("held", Some("close")));
            assert!(client.is_closed());
        }
        server.wait().unwrap();
        let refused = std::net::TcpStream::connect(address).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    }
);

/// Gives every byte back, upper case; a `!` ends it with a panic.
async fn shout(upgraded: Upgraded) {
    let (mut stream, mut bytes) = upgraded.into_parts();
    loop {
        assert!(!bytes.contains(&b'!'), "it was told to");
        bytes.make_ascii_uppercase();
        if stream.write_all(bytes).await.0.is_err() {
            return;
        }
        match stream.recv().await {
            Ok(lease) if !lease.is_empty() => bytes = lease.to_vec(),
            _ => return,
        }
    }
}

async fn upgrade(request: Request) -> Result<Response, EncodeError> {
    if request.query() == Some("late") {
        sleep(Duration::from_millis(1)).await;
    }
    Response::upgrade("shout", shout)?.header("X-Loud", "very")
}

const OFFER: &str = "Host: a\r\nConnection: upgrade\r\nUpgrade: shout\r\n";

drivers!(an_upgraded_connection_is_the_handlers_with_what_came_behind_the_request, |driver: DriverName| {
    let server = start(driver, Server::new().route("/", get(upgrade)));
    for path in ["/", "/?late"] {
        let mut client = Client::new(server.address());
        client.send(format!("GET {path} HTTP/1.1\r\n{OFFER}\r\nhello"));
        let reply = client.reply();
        assert_eq!((reply.status, reply.header("Upgrade")), (101, Some("shout")));
        assert_eq!((reply.header("Connection"), reply.header("X-Loud")), (Some("upgrade"), Some("very")));
        client.send(" GET / HTTP/1.1\r\n\r\n").finish();
        assert_eq!(client.rest(), b"HELLO GET / HTTP/1.1\r\n\r\n");
    }
    assert_eq!((server.counters().upgraded, server.counters().responses[0]), (2, 2));
    wait_until("they are gone", || server.counters().connections == 0);
});

drivers!(who_offers_no_upgrade_gets_none_and_is_told_which, |driver: DriverName| {
    let server = start(driver, Server::new().route("/", get(upgrade)));
    let mut client = Client::new(server.address());
    let reply = client.get("/");
    assert_eq!((reply.status, reply.header("Upgrade")), (426, Some("shout")));
    // HTTP goes on.
    assert_eq!(client.get("/?late").status, 426);
    assert_eq!(server.counters().upgraded, 0);
});

drivers!(a_connection_is_not_handed_over_in_the_midst_of_a_request, |driver: DriverName| {
    let server = start(driver, Server::new().route("/", get(upgrade).post(upgrade)));
    let mut client = Client::new(server.address());
    client.send(format!("POST / HTTP/1.1\r\n{OFFER}Content-Length: 5\r\n\r\nhel"));
    assert_eq!(client.reply().status, 500);
    client.send("lo");
    assert_eq!(client.get("/").status, 426);
    assert_eq!(server.counters().upgraded, 0);
});

drivers!(a_panic_ends_an_upgraded_connection_and_nothing_else, |driver: DriverName| {
    let server = start(driver, Server::new().route("/", get(upgrade)).route("/hello", get(hello)));
    let mut other = Client::new(server.address());
    for behind in ["!", ""] {
        let mut client = Client::new(server.address());
        client.send(format!("GET / HTTP/1.1\r\n{OFFER}\r\n{behind}"));
        assert_eq!(client.reply().status, 101);
        client.try_send("!");
        assert!(client.is_closed());
        assert_eq!(other.get("/hello").status, 200);
    }
    wait_until("both are counted", || server.counters().panics == 2);
});

drivers!(a_server_that_stops_waits_for_upgraded_connections, |driver: DriverName| {
    let patient = Server::new().drain(Duration::from_secs(60));
    let server = start(driver, patient.route("/", get(upgrade)));
    let mut client = Client::new(server.address());
    client.send(format!("GET / HTTP/1.1\r\n{OFFER}\r\n"));
    assert_eq!(client.reply().status, 101);
    server.stop();
    client.send("still here").finish();
    assert_eq!(client.rest(), b"STILL HERE");
    server.wait().unwrap();
});

#[test]
fn what_is_no_protocol_is_no_upgrade() {
    for protocol in ["", "a\r\nb"] {
        assert!(Response::upgrade(protocol, |_| async {}).is_err());
    }
}
