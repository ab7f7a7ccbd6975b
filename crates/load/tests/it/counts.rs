//! What was counted here is what was counted there.

use crate::pauses::but_for_pauses;
use crate::server::{Server, ok};
use crate::{best, drivers, echo, get, http, run};
use ringroad_load::plan::{Pace, Request};
use ringroad_load::schedule::Arrivals;
use ringroad_load::{Event, Message, Plan};
use std::sync::atomic::Ordering;
use std::time::Duration;

#[test]
fn on_every_driver_the_server_has_seen_each_request_once() {
    for choice in drivers() {
        let server = Server::http(|_| ok());
        let plan = Plan { count: Some(100), threads: 2, ..http(server.address) };
        let outcome = run(&plan, &choice).unwrap();
        let counts = &outcome.counts;
        assert_eq!((counts.sent, counts.completed, counts.errors.total()), (100, 100, 0), "{choice}");
        assert_eq!(server.requests(), 100, "{choice}");
        server.has_accepted(3);
        assert_eq!(outcome.tally.latencies.response.count(), 100, "{choice}");
        assert_eq!((outcome.connected, outcome.served), (3, 3), "{choice}");
        assert_eq!(counts.body_bytes, 500);
    }
}

#[test]
fn with_a_duration_too_everything_sent_is_answered_or_counted() {
    for pace in [Pace::Closed, Pace::Open { per_second: 300.0, arrivals: Arrivals::Poisson }] {
        // In a pause of all that time nothing is sent.
        but_for_pauses(Duration::from_millis(100), || {
            let server = Server::http(|_| ok());
            let plan = Plan {
                count: None,
                duration: Some(Duration::from_millis(200)),
                warmup: Duration::from_millis(50),
                pace,
                threads: 2,
                ..http(server.address)
            };
            let outcome = run(&plan, &best()).unwrap();
            let counts = &outcome.counts;
            assert!(counts.sent > 0);
            assert_eq!((counts.completed, counts.errors.total()), (counts.sent, 0));
            assert_eq!(server.requests(), counts.sent);
            assert!(outcome.tally.latencies.response.count() <= counts.completed, "the warm-up is left out");
        });
    }
}

/// Every second is told once, with all of it, and the rest with which a load ends is told apart.
#[test]
fn the_seconds_that_are_told_are_the_whole_and_the_last_may_be_a_part() {
    let server = Server::http(|_| ok());
    let plan = Plan {
        count: None,
        duration: Some(Duration::from_millis(1300)),
        pace: Pace::Open { per_second: 100.0, arrivals: Arrivals::Constant },
        threads: 3,
        ..http(server.address)
    };
    let (mut told, mut latencies) = (Vec::new(), 0);
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let outcome = ringroad_load::run(&plan, &best(), &stop, &mut |event| {
        if let Event::Second { point, tally, whole } = event {
            told.push((point.at_s, *whole));
            latencies += tally.latencies.response.count();
        }
    })
    .unwrap();
    assert_eq!((told, latencies), (vec![(0, true), (1, false)], 130));
    assert_eq!(outcome.tally.latencies.response.count(), 130);
}

/// Every arrival of the schedule is sent, however late it is: 1000 a second for 0.4 s are 400.
#[test]
fn an_open_loop_sends_what_was_due_and_nothing_else() {
    for choice in drivers() {
        let server = Server::http(|_| ok());
        let plan = Plan {
            count: None,
            duration: Some(Duration::from_millis(300)),
            warmup: Duration::from_millis(100),
            pace: Pace::Open { per_second: 1000.0, arrivals: Arrivals::Constant },
            threads: 3,
            ..http(server.address)
        };
        let outcome = run(&plan, &choice).unwrap();
        assert_eq!(
            (outcome.counts.sent, outcome.counts.completed, outcome.counts.unsent),
            (400, 400, 0),
            "{choice}"
        );
        assert_eq!(server.requests(), 400, "{choice}");
        // Those that were due in the measured time, each in every histogram.
        let latencies = &outcome.tally.latencies;
        assert_eq!(latencies.response.count(), 300, "{choice}");
        for histogram in [&latencies.service, &latencies.lag, &latencies.late] {
            assert_eq!(histogram.as_ref().unwrap().count(), 300, "{choice}");
        }
    }
}

/// What is due later than a request may take is no silence.
#[test]
fn a_count_at_a_low_rate_is_sent_to_its_end() {
    but_for_pauses(Duration::from_millis(100), || {
        let server = Server::http(|_| ok());
        let plan = Plan {
            connections: 1,
            threads: 1,
            count: Some(3),
            timeout: Duration::from_millis(200),
            pace: Pace::Open { per_second: 2.0, arrivals: Arrivals::Constant },
            ..http(server.address)
        };
        let outcome = run(&plan, &best()).unwrap();
        assert_eq!((outcome.counts.sent, outcome.counts.unsent), (3, 0));
    });
}

#[test]
fn requests_in_flight_are_as_many_as_were_asked_for_and_never_more() {
    let server = Server::http(|_| ok());
    let plan = Plan { connections: 1, pipeline: 8, count: Some(100), ..http(server.address) };
    let outcome = run(&plan, &best()).unwrap();
    assert_eq!((outcome.counts.completed, server.requests()), (100, 100));
    assert_eq!(server.log.at_once.load(Ordering::SeqCst), 8);
}

#[test]
fn several_urls_are_asked_for_by_their_weights() {
    let server = Server::http(|_| ok());
    let mut plan = http(server.address);
    let other = format!("http://{}/other?x=1", server.address).parse().unwrap();
    plan.messages.push(get(&other, 3));
    plan.connections = 1;
    let outcome = run(&plan, &best()).unwrap();
    assert_eq!(outcome.counts.completed, 12);
    let lines = server.log.lines.lock().unwrap();
    let count = |path: &str| lines.iter().filter(|line| line.split(' ').nth(1) == Some(path)).count();
    assert_eq!((count("/"), count("/other?x=1")), (3, 9));
}

#[test]
fn without_keep_alive_each_request_has_a_connection() {
    let server =
        Server::http(|_| b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec());
    let mut plan = http(server.address);
    let request = Request { method: "GET", headers: &[], body: b"", close: true };
    plan.messages = vec![Message::http(&plan.target, &request, 1).unwrap()];
    plan.one_request_per_connection = true;
    let outcome = run(&plan, &best()).unwrap();
    assert_eq!((outcome.counts.completed, outcome.counts.errors.total()), (12, 0));
    assert_eq!((server.requests(), outcome.counts.closed_in_order), (12, 12));
    // Those that found no request left for them were opened beside.
    assert!((12..=15).contains(&outcome.counts.connects), "{}", outcome.counts.connects);
}

#[test]
fn an_echo_is_whole_whatever_pieces_it_comes_in() {
    // Larger than what both sides' buffers hold at once would need more; this crosses every buffer of ours.
    let long = ringroad_load::plan::pattern(100_000);
    for (message, piece) in [(&b"x"[..], 1), (&long, 7_000), (&long, 65_536)] {
        for choice in drivers() {
            let server = Server::echo(piece);
            let outcome = run(&echo(server.address, message), &choice).unwrap();
            assert_eq!((outcome.counts.completed, outcome.counts.errors.total()), (12, 0), "{choice}");
            assert_eq!(server.requests(), 12 * message.len() as u64, "{choice}");
            assert_eq!(outcome.counts.bytes_received, 12 * message.len() as u64);
        }
    }
}

/// A peer that does not read on until it has got rid of what it says: a client that sent all before reading
/// would wait for ever.
#[test]
fn more_than_both_sides_can_hold_comes_back_all_the_same() {
    let server = Server::echo(65_536);
    let plan = Plan {
        connections: 1,
        count: Some(1),
        ..echo(server.address, &ringroad_load::plan::pattern(48 << 20))
    };
    let outcome = run(&plan, &best()).unwrap();
    assert_eq!((outcome.counts.completed, outcome.counts.bytes_received), (1, 48 << 20));
}

#[test]
fn idle_connections_are_open_and_silent() {
    for choice in drivers() {
        let server = Server::http(|_| ok());
        let plan = Plan { idle: 20, ..http(server.address) };
        let outcome = run(&plan, &choice).unwrap();
        assert_eq!((outcome.idle_at_end, outcome.counts.idle_lost), (20, 0), "{choice}");
        assert_eq!(server.requests(), 12, "{choice}");
        server.has_accepted(23);
    }
}
