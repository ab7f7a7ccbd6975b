//! Connections themselves: whose they are, how many there may be, and what else is spoken on them.

use crate::support::{Client, start, wait_until};
use ringroad_engine::Name;
use ringroad_engine::time::sleep;
use ringroad_http::{EncodeError, Request, Response, Server, Upgraded, get};
use std::num::NonZeroUsize;
use std::time::Duration;

async fn hello(_: Request) -> &'static str {
    "hello"
}

drivers!(a_request_knows_the_address_of_its_peer, |driver: Name| {
    let at_once = |request: Request| async move { request.peer_addr().unwrap().to_string() };
    let later = |request: Request| async move {
        sleep(Duration::from_millis(1)).await;
        request.peer_addr().unwrap().to_string()
    };
    let server = start(driver, Server::new().workers(2).route("/", get(at_once)).route("/later", get(later)));
    // More than one after another in the same place, so that nobody gets the address of who was there before.
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

drivers!(a_request_kept_beyond_its_connection_has_no_peer, |driver: Name| {
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

drivers!(at_the_limit_of_connections_the_next_waits_until_one_ends, |driver: Name| {
    let one = NonZeroUsize::new(1).unwrap();
    let server = start(driver, Server::new().connections_max(one).route("/", get(hello)));
    let mut first = Client::new(server.address());
    assert_eq!(first.get("/").status, 200);
    let mut others: Vec<_> = (0..5).map(|_| Client::new(server.address())).collect();
    for other in &mut others {
        other.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    wait_until("accepting pauses", || server.counters().accept_paused >= 1);
    for _ in 0..3 {
        assert_eq!(first.get("/").status, 200);
    }
    assert_eq!((server.counters().accepted, server.counters().requests()), (1, 4));
    drop(first);
    for mut other in others {
        assert_eq!(other.reply().status, 200);
        assert!(server.counters().connections <= 1);
    }
});

drivers!(
    /// They are told by their kernel that they are connected, and have sent their requests.
    who_waits_in_the_backlog_when_a_server_stops_is_answered,
    |driver: Name| {
        let one = NonZeroUsize::new(1).unwrap();
        let patient = Server::new().drain(Duration::from_secs(60));
        let server = start(driver, patient.connections_max(one).route("/", get(hello)));
        let address = server.address();
        let mut first = Client::new(address);
        assert_eq!(first.get("/").status, 200);
        let mut others: Vec<_> = (0..20).map(|_| Client::new(address)).collect();
        for other in &mut others {
            other.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        wait_until("accepting pauses", || server.counters().accept_paused >= 1);
        server.stop();
        for other in &mut others {
            let reply = other.reply();
            assert_eq!((reply.text(), reply.header("Connection")), ("hello", Some("close")));
            assert!(other.is_closed());
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

drivers!(an_upgraded_connection_is_the_handlers_with_what_came_behind_the_request, |driver: Name| {
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

drivers!(who_offers_no_upgrade_gets_none_and_is_told_which, |driver: Name| {
    let server = start(driver, Server::new().route("/", get(upgrade)));
    let mut client = Client::new(server.address());
    let reply = client.get("/");
    assert_eq!((reply.status, reply.header("Upgrade")), (426, Some("shout")));
    // HTTP goes on.
    assert_eq!(client.get("/?late").status, 426);
    assert_eq!(server.counters().upgraded, 0);
});

drivers!(a_connection_is_not_handed_over_in_the_midst_of_a_request, |driver: Name| {
    let server = start(driver, Server::new().route("/", get(upgrade).post(upgrade)));
    let mut client = Client::new(server.address());
    client.send(format!("POST / HTTP/1.1\r\n{OFFER}Content-Length: 5\r\n\r\nhel"));
    assert_eq!(client.reply().status, 500);
    client.send("lo");
    assert_eq!(client.get("/").status, 426);
    assert_eq!(server.counters().upgraded, 0);
});

drivers!(a_panic_ends_an_upgraded_connection_and_nothing_else, |driver: Name| {
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

drivers!(a_server_that_stops_waits_for_upgraded_connections, |driver: Name| {
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
