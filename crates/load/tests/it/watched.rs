//! A load that is watched: looked at while it stands still, measured where the watcher says, silent where it
//! was asked to be, and whole connections as requests.

use crate::ports::nowhere;
use crate::server::{Requests, Server, close, ok};
use crate::{best, drivers, echo, get, http};
use ringroad_engine::choose::Choice;
use ringroad_load::hold::Hold;
use ringroad_load::plan::{Body, Pace, Request};
use ringroad_load::watched::{Next, Watched, watched};
use ringroad_load::{Message, Plan};
use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

const MOMENT: Duration = Duration::from_millis(100);

/// Looks at the load until all are served, measures it for a moment, and drains it. Answers in the measured
/// time, and latencies.
fn watch(plan: &Plan, choice: &Choice) -> (Watched, u64, u64) {
    let mut looks = 0;
    let (mut before, mut completed, mut latencies) = (None, 0, 0);
    let mut drained = false;
    let watched = watched(plan, choice, &mut |look| {
        looks += 1;
        match before {
            _ if looks == 1 => {
                assert_eq!((look.live, look.counts.sent), (0, 0), "nothing is connected yet");
                Next::Go(Duration::ZERO)
            }
            _ if looks == 2 => {
                assert_eq!(look.counts.sent, 0, "nothing is sent yet");
                Next::Go(Duration::from_millis(10))
            }
            _ if drained || look.live == 0 => Next::Leave,
            None if look.served < plan.connections => Next::Go(Duration::from_millis(10)),
            None => {
                before = Some(look.counts.completed);
                Next::Measure(MOMENT)
            }
            Some(before) => {
                completed = look.counts.completed - before;
                latencies = look.latencies.count();
                drained = true;
                Next::Drain(plan.timeout)
            }
        }
    });
    (watched.unwrap(), completed, latencies)
}

fn endless(plan: Plan) -> Plan {
    Plan { count: None, duration: Some(MOMENT), ..plan }
}

#[test]
fn on_every_driver_what_is_counted_between_two_looks_is_what_was_measured() {
    for choice in drivers() {
        let server = Server::http(|_| ok());
        let (watched, completed, latencies) = watch(&endless(http(server.address)), &choice);
        let counts = &watched.counts;
        assert_eq!((counts.errors.total(), watched.connected, watched.served), (0, 3, 3), "{choice}");
        assert_eq!((counts.sent, counts.answers), (counts.completed, counts.completed), "{choice}");
        assert_eq!(server.requests(), counts.sent, "{choice}");
        assert_eq!(latencies, completed, "{choice}");
        assert!(completed < counts.completed, "{choice}: what came before is left out");
        server.has_accepted(3);
    }
}

#[test]
fn silent_connections_send_one_request_each_and_are_open_to_the_end() {
    for choice in drivers() {
        let server = Server::http(|_| ok());
        let plan = Plan { connections: 10, silent: 9, pipeline: 4, ..endless(http(server.address)) };
        let (watched, ..) = watch(&plan, &choice);
        assert_eq!((watched.served, watched.counts.errors.total()), (10, 0), "{choice}");
        assert_eq!(server.requests(), watched.counts.sent, "{choice}");
        // Never more than its one request at once on nine of them, and they were made once.
        server.has_accepted(10);
    }
}

/// Of ten connections nine may send once: then three answers are the tenth's.
#[test]
fn a_count_is_met_by_those_that_are_not_silent() {
    let server = Server::http(|_| ok());
    let plan = Plan { connections: 10, silent: 9, ..http(server.address) };
    let outcome = crate::run(&plan, &best()).unwrap();
    assert_eq!((outcome.counts.completed, outcome.served), (12, 10));
    server.has_accepted(10);
}

fn churn(address: SocketAddr) -> Plan {
    let mut plan = http(address);
    let request = Request { method: "GET", headers: &[], body: b"", close: true };
    plan.messages = vec![Message::http(&plan.target, &request, 1).unwrap()];
    Plan { one_request_per_connection: true, until_closed: true, ..plan }
}

/// One answer for each connection, and then what `end` does.
fn answering_once(end: impl Fn(&mut std::net::TcpStream) + Send + Sync + 'static) -> Server {
    Server::start(move |stream, log| {
        if Requests::default().next(stream, log).is_some() {
            stream.write_all(&ok()).unwrap();
            end(stream);
        }
    })
}

#[test]
fn a_request_that_lasts_until_the_close_is_counted_when_that_has_come() {
    for choice in drivers() {
        let server = answering_once(close);
        let outcome = crate::run(&churn(server.address), &choice).unwrap();
        let counts = &outcome.counts;
        assert_eq!((counts.completed, counts.errors.total(), server.requests()), (12, 0, 12), "{choice}");
        assert_eq!(counts.closed_in_order, 12, "{choice}");
    }
    // One that never closes has not answered, whatever it said.
    let server = answering_once(|stream| while let Ok(1..) = std::io::Read::read(stream, &mut [0; 64]) {});
    let plan = Plan { timeout: Duration::from_secs(3), count: Some(3), ..churn(server.address) };
    let counts = crate::run(&plan, &best()).unwrap().counts;
    assert_eq!((counts.completed, counts.errors.timeout, counts.errors.total()), (0, 3, 3));
    // And more bytes before the close are none that were asked for.
    let server = answering_once(|stream| {
        let _ = stream.write_all(&ok());
        close(stream);
    });
    let counts = crate::run(&Plan { count: Some(3), ..churn(server.address) }, &best()).unwrap().counts;
    assert_eq!((counts.completed, counts.errors.protocol), (0, 3), "{:?}", counts.failures);
}

#[test]
fn watched_connections_per_request_end_with_nothing_owed() {
    for choice in drivers() {
        let server = answering_once(close);
        let (watched, completed, latencies) = watch(&endless(churn(server.address)), &choice);
        assert_eq!(
            (watched.counts.errors.total(), watched.counts.sent),
            (0, watched.counts.completed),
            "{choice}"
        );
        assert_eq!((server.requests(), latencies), (watched.counts.sent, completed), "{choice}");
    }
}

#[test]
fn a_body_that_has_to_be_alike_and_is_not_is_a_protocol_error_on_every_driver() {
    for choice in drivers() {
        let server = Server::start(|stream, log| {
            let mut requests = Requests::default();
            for nth in 0.. {
                if requests.next(stream, log).is_none() {
                    return;
                }
                let body = if nth == 5 { "hullo" } else { "hello" };
                let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{body}");
            }
        });
        let plan = Plan { connections: 1, count: Some(12), ..http(server.address) };
        let counts = crate::run(&plan, &choice).unwrap().counts;
        assert_eq!(counts.errors.total(), 0, "{choice}: nothing was asked for");
        let plan = Plan { messages: vec![get(&plan.target, 1).with_body(Body::Alike)], ..plan };
        let counts = crate::run(&plan, &choice).unwrap().counts;
        let why = counts.failures.keys().next().unwrap();
        assert_eq!(
            (counts.errors.protocol > 0, counts.errors.total()),
            (true, counts.errors.protocol),
            "{choice}"
        );
        assert!(why.contains("hullo"), "{why}");
    }
}

#[test]
fn a_missing_listener_and_a_dead_process_are_seen_at_the_next_check() {
    let (watched, completed, _) = watch(&endless(http(nowhere())), &best());
    assert_eq!((watched.connected, watched.served, completed), (0, 0, 0));
    assert!(watched.counts.errors.connect >= 3, "{:?}", watched.counts.errors);
    let server =
        Server::http(|_| b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec());
    let (watched, ..) = watch(&endless(http(server.address)), &best());
    assert!(watched.closed >= 3, "a connection that was to be kept and is not: {watched:?}");
}

#[test]
fn what_cannot_be_watched_or_makes_no_sense_is_refused() {
    let server = Server::http(|_| ok());
    let good = http(server.address);
    let hold = Pace::Hold(Hold { heartbeat: Duration::from_secs(1), retry_limit: None });
    for bad in [
        Plan { threads: 2, ..good.clone() },
        Plan { idle: 1, ..good.clone() },
        Plan { silent: 3, ..good.clone() },
        Plan { until_closed: true, ..good.clone() },
        Plan { connecting_max: 0, ..good.clone() },
        Plan { silent: 1, ..churn(server.address) },
        Plan { pace: hold, count: None, ..good.clone() },
    ] {
        let error = watched(&bad, &best(), &mut |_| panic!("it is not begun")).unwrap_err();
        assert!(error.is_usage(), "{error}");
    }
}

#[test]
fn large_messages_come_back_whole_on_every_driver() {
    let bytes = ringroad_load::plan::pattern(60_000);
    for choice in drivers() {
        let server = Server::echo(65_536);
        let plan = Plan { pipeline: 3, ..endless(echo(server.address, &bytes)) };
        let (watched, ..) = watch(&plan, &choice);
        assert_eq!(watched.counts.errors.total(), 0, "{choice}: {:?}", watched.counts.failures);
        assert_eq!(watched.counts.bytes_received, watched.counts.sent * 60_000, "{choice}");
        assert_eq!(server.log.requests.load(Ordering::SeqCst), watched.counts.bytes_received, "{choice}");
    }
}
