//! Answers that are whole and not what was asked for: counted by status, timed apart, named in the verdict,
//! and noticed before the load.

use crate::server::{Requests, Server, ok};
use crate::{best, drivers, get, http, run};
use ringroad_load::ask::{Heard, ask};
use ringroad_load::plan::{Body, Request};
use ringroad_load::verdict::verdict;
use ringroad_load::{Message, Plan};
use ringroad_measure::caveat::Level;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn not_found() -> Vec<u8> {
    b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno".to_vec()
}

#[test]
fn an_answer_of_another_status_is_counted_timed_and_named_on_every_driver() {
    for choice in drivers() {
        let server = Server::http(|_| not_found());
        let plan = http(server.address);
        let outcome = run(&plan, &choice).unwrap();
        let (counts, tally) = (&outcome.counts, &outcome.tally);
        assert_eq!((counts.answers, counts.completed, counts.errors.status), (12, 0, 12), "{choice}");
        assert_eq!(counts.statuses, [(404, 12)].into(), "{choice}");
        assert_eq!(tally.other.as_ref().unwrap().count(), 12, "{choice}");
        assert_eq!((tally.answers(), tally.latencies.response.count()), (12, 0), "{choice}");
        let verdict = verdict(&plan, &outcome);
        let first = verdict.reasons[0].to_string();
        assert_eq!(verdict.level, Level::Invalid);
        assert!(first.starts_with("every answer was 404 Not Found: check the path"), "{first}");
        assert!(!verdict.to_string().contains("not one answer came"), "{verdict}");
    }
}

#[test]
fn the_statuses_that_are_expected_are_good_answers_and_the_others_are_not() {
    let server = Server::http(|_| not_found());
    let plan = Plan { statuses: "404".parse().unwrap(), ..http(server.address) };
    let outcome = run(&plan, &best()).unwrap();
    assert_eq!((outcome.counts.completed, outcome.counts.errors.total()), (12, 0));
    assert_eq!(outcome.tally.latencies.response.count(), 12);
    let server = Server::http(|_| ok());
    let plan = Plan { statuses: "404".parse().unwrap(), ..http(server.address) };
    assert_eq!(run(&plan, &best()).unwrap().counts.errors.status, 12, "200 is not expected");
}

/// Two thirds of the answers of a connection are refusals: each kind has its own count and its own histogram.
#[test]
fn good_answers_and_others_are_kept_apart() {
    let server = Server::start(|stream, log| {
        let mut requests = Requests::default();
        for nth in 0.. {
            let answer = if nth % 3 == 0 { ok() } else { not_found() };
            if requests.next(stream, log).is_none() || std::io::Write::write_all(stream, &answer).is_err() {
                return;
            }
        }
    });
    let plan = Plan { connections: 1, ..http(server.address) };
    let outcome = run(&plan, &best()).unwrap();
    assert_eq!(outcome.counts.statuses, [(200, 4), (404, 8)].into());
    assert_eq!(outcome.tally.latencies.response.count(), 4);
    assert_eq!(outcome.tally.other.as_ref().unwrap().count(), 8);
    assert_eq!(outcome.tally.bytes, outcome.counts.bytes_received, "all of it is in the window");
    let said = verdict(&plan, &outcome).to_string();
    assert!(said.contains("8 of 12 requests failed (status 8)"), "{said}");
}

#[test]
fn a_body_without_the_expected_text_fails_and_the_connection_goes_on() {
    let server = Server::http(|line| {
        let body = if line.contains("bad") { "good bye" } else { "hello you" };
        format!("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{body:<9}").into_bytes()
    });
    let mut plan = Plan { connections: 1, ..http(server.address) };
    let bad = format!("http://{}/bad", server.address).parse().unwrap();
    let looked_at = |message: Message| message.with_body(Body::Contains(b"hello".to_vec()));
    plan.messages = vec![looked_at(get(&plan.target, 1)), looked_at(get(&bad, 1))];
    let outcome = run(&plan, &best()).unwrap();
    let counts = &outcome.counts;
    assert_eq!((counts.completed, counts.errors.protocol, counts.connects), (6, 6, 1));
    assert_eq!(counts.failures.keys().collect::<Vec<_>>(), ["a body without the expected text"]);
    let urls: Vec<_> =
        outcome.urls.iter().map(|url| (url.completed, url.refused, url.response.count())).collect();
    assert_eq!(urls, [(6, 0, 6), (0, 6, 0)], "each URL has its own figures");
}

#[test]
fn each_message_is_sent_once_to_learn_what_is_answered() {
    let server = Server::http(|line| match line.split(' ').nth(1) {
        Some("/") => ok(),
        Some("/moved") => b"HTTP/1.1 308 P\r\nLocation: /there/\r\nContent-Length: 0\r\n\r\n".to_vec(),
        Some("/login") => {
            b"HTTP/1.1 200 OK\r\nSet-Cookie: id=7; Secure\r\nSet-Cookie: x=y\r\nContent-Length: 0\r\n\r\n"
                .to_vec()
        }
        Some("/text") => b"SSH-2.0\r\n\r\n".to_vec(),
        _ => not_found(),
    });
    let mut plan = Plan { keeps_cookies: true, pipeline: 4, count: None, ..http(server.address) };
    plan.duration = Some(std::time::Duration::from_secs(60));
    plan.messages = ["/", "/moved", "/login", "/text", "/else"]
        .into_iter()
        .map(|path| get(&format!("http://{}{path}", server.address).parse().unwrap(), 3))
        .collect();
    let stop = Arc::new(AtomicBool::new(false));
    let asked = ask(&plan, &best(), &stop).unwrap();
    assert_eq!(server.requests(), 5, "one for each");
    let heard: Vec<&Heard> = asked.iter().map(|asked| &asked.heard).collect();
    assert_eq!(heard[..3], [&Heard::Good, &Heard::Status(308), &Heard::Good]);
    assert!(matches!(heard[3], Heard::Wrong(why) if why.contains("malformed answer")), "{heard:?}");
    assert_eq!(heard[4], &Heard::Status(404));
    assert_eq!(asked[1].location.as_deref(), Some("/there/"));
    assert_eq!(asked[2].cookies, ["id=7", "x=y"]);
    assert_eq!(asked[1].what, format!("GET http://{}/moved", server.address));
    // A server that is not there is the load's to tell.
    let address = server.address;
    drop(server);
    let plan = http(address);
    stop.store(false, Ordering::Relaxed);
    assert!(ask(&plan, &best(), &stop).is_ok());
    // Where every answer is expected, every answer is good.
    let server = Server::http(|_| not_found());
    let request = Request { method: "DELETE", headers: &[], body: b"", close: true };
    let plan = http(server.address);
    let message = Message::http(&plan.target, &request, 1).unwrap();
    let plan = Plan { statuses: "4xx".parse().unwrap(), messages: vec![message], ..plan };
    assert_eq!(ask(&plan, &best(), &stop).unwrap()[0].heard, Heard::Good);
}

/// Such a server refuses a body by its head alone, and keeps the connection: nothing more goes out on it.
#[test]
fn a_server_that_answers_before_it_has_read_a_request_is_asked_on_another_connection() {
    for choice in drivers() {
        let server = Server::start(|stream, _| {
            // The load may be over.
            if std::io::Read::read_exact(stream, &mut [0; 1000]).is_err() {
                return;
            }
            std::io::Write::write_all(stream, &not_found()).unwrap();
            // It ends with the test.
            loop {
                std::thread::park();
            }
        });
        let target: ringroad_load::Target = format!("http://{}/", server.address).parse().unwrap();
        let body = vec![b'x'; 10 << 20];
        let request = Request { method: "POST", headers: &[], body: &body, close: false };
        let message = Message::http(&target, &request, 1).unwrap();
        let outcome = run(&crate::plan(target, message), &choice).unwrap();
        let counts = &outcome.counts;
        assert_eq!((counts.answers, counts.statuses.get(&404)), (12, Some(&12)), "{choice}");
        assert!(counts.connects >= 12, "{choice}: a request on each of {}", counts.connects);
    }
}
