//! Servers that answer wrongly, each in its own way: every way is counted by its kind, none is a success, and
//! none ends the load.

use crate::ports::{held, nowhere};
use crate::server::{Requests, Server, close, ok};
use crate::{best, drivers, echo, http, on_each_driver, run};
use ringroad_load::verdict::verdict;
use ringroad_load::{Message, Plan};
use ringroad_measure::record::Errors;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Which count of failures.
type Count = fn(&Errors) -> u64;

const RESET: Count = |errors| errors.reset;
const STATUS: Count = |errors| errors.status;
const PROTOCOL: Count = |errors| errors.protocol;

/// What is sent instead of a good answer, after which the connection is closed.
const ANSWERS: [(&str, Count, &[u8]); 19] = [
    ("nothing at all", RESET, b""),
    ("half a status line", RESET, b"HTTP/1.1 2"),
    ("half a head", RESET, b"HTTP/1.1 200 OK\r\nContent-Le"),
    ("half a body", RESET, b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"),
    ("half a chunk", RESET, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel"),
    ("chunks without an end", RESET, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"),
    ("an interim answer only", RESET, b"HTTP/1.1 100 Continue\r\n\r\n"),
    ("a length that is too short", PROTOCOL, b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhello"),
    ("two answers to one request", PROTOCOL, b"HTTP/1.1 204 No\r\n\r\nHTTP/1.1 204 No\r\n\r\n"),
    ("two lengths", PROTOCOL, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello"),
    ("a length that is no number", PROTOCOL, b"HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\nhello"),
    (
        "length and chunks",
        PROTOCOL,
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
    ),
    (
        "a chunk size that is not a number",
        PROTOCOL,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\nhello\r\n",
    ),
    ("another protocol", PROTOCOL, b"220 mail.example.org ESMTP\r\n"),
    ("a future version", PROTOCOL, b"HTTP/2.0 200 OK\r\n\r\n"),
    ("an upgrade that was not offered", PROTOCOL, b"HTTP/1.1 101 Switching Protocols\r\n\r\n"),
    ("line ends without LF", PROTOCOL, b"HTTP/1.1 200 OK\rContent-Length: 5\r\rhello"),
    ("an error", STATUS, b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
    ("a redirect", STATUS, b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
];

#[test]
fn each_wrong_answer_is_counted_by_its_kind_and_is_no_success() {
    for (name, kind, answer) in ANSWERS {
        let server = Server::start(move |stream, log| {
            if Requests::default().next(stream, log).is_some() {
                let _ = stream.write_all(answer);
            }
            close(stream);
        });
        let plan = Plan { count: Some(4), connections: 2, ..http(server.address) };
        let counts = run(&plan, &best()).unwrap().counts;
        assert_eq!((counts.sent, counts.completed), (4, 0), "{name}");
        assert_eq!((kind(&counts.errors), counts.errors.total()), (4, 4), "{name}: {:?}", counts.failures);
        assert_eq!(counts.failures.values().sum::<u64>(), 4, "{name}");
    }
}

/// RFC 9112 §2.2: a recipient may take LF for the end of a line.
#[test]
fn an_answer_with_line_ends_of_lf_alone_is_a_success() {
    let server = Server::start(|stream, log| {
        if Requests::default().next(stream, log).is_some() {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\nContent-Length: 5\nConnection: close\n\nhello");
        }
        close(stream);
    });
    let plan = Plan { count: Some(4), connections: 2, ..http(server.address) };
    let counts = run(&plan, &best()).unwrap().counts;
    assert_eq!((counts.sent, counts.completed, counts.errors.total()), (4, 4, 0), "{:?}", counts.failures);
}

/// RFC 9112 §5.2, and RFC 9110 §2.5.
#[test]
fn an_answer_with_folded_lines_of_a_higher_minor_version_is_a_success() {
    let server = Server::start(|stream, log| {
        let mut requests = Requests::default();
        while requests.next(stream, log).is_some() {
            let head = b"HTTP/1.2 200 OK\r\nX: a,\r\n b\r\nContent-Length: 5\r\n\r\n";
            // In two pieces as well: the line is known when it turns out to be folded.
            let cut = head.len() - 25;
            let _ = stream.write_all(&head[..cut]);
            let _ = stream.write_all(&[&head[cut..], b"hello"].concat());
        }
        close(stream);
    });
    let plan = Plan { count: Some(8), connections: 2, ..http(server.address) };
    let counts = run(&plan, &best()).unwrap().counts;
    assert_eq!((counts.sent, counts.completed, counts.errors.total()), (8, 8, 0), "{:?}", counts.failures);
}

#[test]
fn a_server_of_another_protocol_is_named_with_what_to_do() {
    const ALERT: &[u8] = b"\x15\x03\x03\0\x02\x02\x46";
    const REFUSAL: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
    let cases: [(bool, &[u8], &str); 5] = [
        (false, ALERT, "the server speaks TLS on this port: load https://"),
        (false, b"\0\0\0\x04\0\0\0\0\0", "the server speaks HTTP/2 without TLS on this port: add --http2"),
        (true, ALERT, "the server speaks TLS on this port: load https://"),
        (true, REFUSAL, "the server does not speak HTTP/2: its first bytes are an HTTP/1.1 answer"),
        (true, b"<!DOCTYPE HTML>", "the server does not speak HTTP/2: its first bytes are \"<!DOCTYPE\""),
    ];
    for (http2, answer, expected) in cases {
        let server = Server::start(move |stream, _| {
            if std::io::Read::read(stream, &mut [0; 64]).is_ok_and(|count| count > 0) {
                let _ = stream.write_all(answer);
            }
            close(stream);
        });
        let plan = Plan { count: Some(1), connections: 4, http2, ..http(server.address) };
        // A client of HTTP/2 speaks first, so its connections may be gone before the load begins.
        let told = match run(&plan, &best()) {
            Ok(outcome) => {
                let counts = outcome.counts;
                assert!(counts.errors.total() <= counts.sent + counts.errors.connect, "{counts:?}");
                counts.failures.into_keys().collect::<Vec<_>>().join("\n")
            }
            Err(why) => why.to_string(),
        };
        assert!(told.contains(expected), "{expected}: {told}");
    }
}

/// One connection of ten sends the only request; to the others the server speaks unasked.
#[test]
fn what_fails_on_a_connection_without_a_request_is_no_request() {
    let (asked, spoilt) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (seen, others) = (Arc::clone(&asked), Arc::clone(&spoilt));
    let server = Server::start(move |stream, _| {
        let step = Duration::from_millis(10);
        stream.set_read_timeout(Some(step)).unwrap();
        while !seen.load(Ordering::SeqCst) {
            if std::io::Read::read(stream, &mut [0; 256]).is_ok_and(|count| count > 0) {
                seen.store(true, Ordering::SeqCst);
                let begun = Instant::now();
                while others.load(Ordering::SeqCst) < 9 && begun.elapsed() < Duration::from_secs(60) {
                    std::thread::sleep(step);
                }
                let _ = stream.write_all(&ok());
                return close(stream);
            }
        }
        stream.set_read_timeout(None).unwrap();
        let _ = stream.write_all(b"220 mail.example.org ESMTP\r\n");
        close(stream);
        others.fetch_add(1, Ordering::SeqCst);
    });
    let plan = Plan { count: Some(1), connections: 10, ..http(server.address) };
    let outcome = run(&plan, &best()).unwrap();
    let counts = &outcome.counts;
    assert_eq!((counts.sent, counts.completed, counts.errors.protocol), (1, 1, 0), "{counts:?}");
    assert!(counts.errors.connect >= 9, "{counts:?}");
    let said = verdict(&plan, &outcome).to_string();
    let tried = counts.errors.connect + 1;
    assert!(said.contains(&format!("{} of {tried} requests failed", tried - 1)), "{said}");
}

#[test]
fn one_wrong_answer_among_good_ones_is_found_on_every_driver() {
    for choice in drivers() {
        let server = Server::http(|_| ok());
        let bad = Server::start(|stream, log| {
            let mut requests = Requests::default();
            for nth in 0.. {
                if requests.next(stream, log).is_none() {
                    return;
                }
                // The same length, another status: nothing but the bytes tells.
                let answer = if nth == 5 {
                    b"HTTP/1.1 500 OK\r\nContent-Length: 5\r\n\r\nhello".to_vec()
                } else {
                    ok()
                };
                stream.write_all(&answer).unwrap();
            }
        });
        let plan = Plan { connections: 1, count: Some(20), ..http(bad.address) };
        let counts = run(&plan, &choice).unwrap().counts;
        assert_eq!((counts.completed, counts.errors.status, counts.errors.total()), (19, 1, 1), "{choice}");
        assert_eq!(counts.failures.get("status 500"), Some(&1));
        let good = run(&Plan { connections: 1, count: Some(20), ..http(server.address) }, &choice).unwrap();
        assert_eq!(good.counts.errors.total(), 0, "{choice}");
    }
}

/// As a server that is stopped (SIGSTOP): the kernel takes connection and request, and no answer comes.
#[test]
fn no_answer_is_a_timeout_and_the_load_comes_to_its_end() {
    on_each_driver(|choice| {
        // The kernel takes connections, and the server never accepts them.
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let plan = Plan {
            connections: 2,
            count: Some(2),
            // Long enough for two connections on any machine: what never answers is not asked to be quick.
            timeout: Duration::from_secs(3),
            ..http(listener.local_addr().unwrap())
        };
        let counts = run(&plan, &choice).unwrap().counts;
        assert_eq!((counts.sent, counts.completed), (2, 0), "{choice}");
        assert_eq!((counts.errors.timeout, counts.errors.total()), (2, 2), "{choice}: {:?}", counts.failures);
    });
}

#[test]
fn an_echo_that_changes_a_byte_adds_one_or_keeps_one_back_is_found() {
    let answers: [(Count, &[u8]); 3] = [(PROTOCOL, b"hellO"), (PROTOCOL, b"hello!"), (RESET, b"hell")];
    for (kind, answer) in answers {
        let server = Server::start(move |stream, _| {
            let mut five = [0; 5];
            if std::io::Read::read_exact(stream, &mut five).is_ok() {
                let _ = stream.write_all(answer);
            }
            close(stream);
        });
        let plan = Plan { count: Some(4), connections: 2, ..echo(server.address, b"hello") };
        let counts = run(&plan, &best()).unwrap().counts;
        assert_eq!((counts.sent, counts.completed), (4, 0), "{answer:?}");
        assert_eq!((kind(&counts.errors), counts.errors.total()), (4, 4), "{:?}", counts.failures);
    }
}

#[test]
fn an_answer_up_to_a_delimiter_may_be_any() {
    let server = Server::start(|stream, _| {
        let mut five = [0; 5];
        while std::io::Read::read_exact(stream, &mut five).is_ok() {
            stream.write_all(b"a longer answer\n").unwrap();
        }
    });
    let mut plan = echo(server.address, b"x");
    plan.messages = vec![Message::delimited(b"ping".to_vec(), b'\n').unwrap()];
    let counts = run(&plan, &best()).unwrap().counts;
    assert_eq!((counts.completed, counts.errors.total()), (12, 0));
}

#[test]
fn where_nothing_listens_there_is_no_load_and_the_reason_is_told() {
    let address = nowhere();
    for choice in drivers() {
        let error = run(&http(address), &choice).unwrap_err();
        assert!(!error.is_usage());
        let expected = format!("connect, on http://{address}/: Connection refused (nothing listens there)");
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn an_unknown_name_is_reported_as_unknown() {
    let mut plan = http(SocketAddr::from(([127, 0, 0, 1], 9)));
    plan.target.host = "nobody.invalid".to_owned();
    let error = run(&plan, &best()).unwrap_err().to_string();
    assert!(error.starts_with("resolve, on nobody.invalid: "), "{error}");
}

/// A server that goes away amid the load: what was on its way is lost, what cannot be made is counted, and it
/// ends.
#[test]
fn a_server_that_ends_amid_the_load_is_counted_not_waited_for() {
    let (address, _holder) = held();
    let listener = TcpListener::bind(address).unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut requests = Requests::default();
        for _ in 0..5 {
            requests.next(&mut stream, &crate::server::Log::default()).unwrap();
            stream.write_all(&ok()).unwrap();
        }
        // Both go: the sixth request is never answered, and no connection can be made any more.
    });
    let plan = Plan { connections: 1, count: Some(20), timeout: Duration::from_secs(3), ..http(address) };
    let counts = run(&plan, &best()).unwrap().counts;
    server.join().unwrap();
    assert_eq!(counts.completed, 5);
    assert!(counts.sent <= 6 && counts.errors.connect > 0, "{counts:?}");
    assert_eq!(counts.sent - counts.completed, counts.errors.total() - counts.errors.connect);
}
