//! Connections that are held, against servers that bear it and servers that do not.

use crate::pauses::but_for_pauses;
use crate::ports;
use crate::server::{Log, Requests, Server, ok};
use crate::{best, drivers, http, run};
use ringroad_load::hold::{Health, Held, Hold, diagnose};
use ringroad_load::plan::Pace;
use ringroad_load::report::record;
use ringroad_load::{Outcome, Plan};
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

fn held(address: SocketAddr, connections: u32, heartbeat_ms: u64, length: Duration) -> Plan {
    let hold = Hold { heartbeat: Duration::from_millis(heartbeat_ms), retry_limit: None };
    Plan { connections, count: None, duration: Some(length), pace: Pace::Hold(hold), ..http(address) }
}

/// Whatever happened, each heartbeat that was due was sent or has missed its connection.
fn account(outcome: &Outcome) -> Held {
    let (counts, held) = (&outcome.counts, outcome.counts.held);
    assert_eq!(held.due, counts.sent + held.away + held.busy, "{held:?}");
    assert_eq!(held.unwritten(), held.away + held.busy + held.refused);
    held
}

/// 4 connections with a heartbeat every 50 ms for 400 ms: 32 are due, on any machine.
#[test]
fn each_connection_has_its_heartbeats_and_survives_on_every_driver() {
    for choice in drivers() {
        let server = Server::http(|_| ok());
        let plan = Plan { threads: 2, ..held(server.address, 4, 50, Duration::from_millis(400)) };
        let outcome = run(&plan, &choice).unwrap();
        let held = account(&outcome);
        assert_eq!((held.due, held.opened, held.survived, held.lost), (32, 4, 4, 0), "{choice}");
        assert_eq!((held.away, held.refused, held.reconnects), (0, 0, 0), "{choice}");
        assert_eq!((server.requests(), outcome.counts.completed), (outcome.counts.sent, outcome.counts.sent));
        // From the time it was due, each in every histogram.
        assert_eq!(outcome.tally.latencies.response.count(), outcome.counts.completed, "{choice}");
        server.has_accepted(4);
    }
}

/// A server that ends each of five connections with its first answer, and keeps the sixth.
#[test]
fn a_connection_that_ends_is_lost_and_made_again() {
    for choice in drivers() {
        let stop = Arc::new(AtomicBool::new(false));
        let enough = Arc::clone(&stop);
        let server = Server::start(move |stream, log| {
            let stays = log.accepted.load(Ordering::SeqCst) >= 6;
            if stays {
                enough.store(true, Ordering::SeqCst);
            }
            let mut requests = Requests::default();
            while requests.next(stream, log).is_some() {
                if stream.write_all(&ok()).is_err() || !stays {
                    return;
                }
            }
        });
        let plan = held(server.address, 1, 20, Duration::from_secs(3600));
        let outcome = ringroad_load::run(&plan, &choice, &stop, &mut |_| {}).unwrap();
        let held = account(&outcome);
        // The sixth may be on its way when it ends; there is no seventh, however late it ends.
        assert!((4..=5).contains(&held.reconnects) && held.lost >= 5, "{choice}: {held:?}");
        assert_eq!((held.opened, held.survived, held.gave_up), (1, 0, 0), "{choice}");
        assert_eq!(diagnose(&held, outcome.window).0, Health::Unhealthy);
        let frame = crate::records::frame();
        let cell = &record(&plan, &outcome, &frame).cells[0];
        let told = cell.details.held.as_ref().unwrap();
        assert_eq!((told.lost, &*told.health, told.findings.is_empty()), (held.lost, "unhealthy", false));
    }
}

#[test]
fn after_so_many_tries_in_a_row_a_connection_is_given_up_and_the_endpoint_is_unavailable() {
    for choice in drivers() {
        let (address, _holder) = ports::held();
        let listener = TcpListener::bind(address).unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut requests = Requests::default();
            for _ in 0..2 {
                requests.next(&mut stream, &Log::default()).unwrap();
                stream.write_all(&ok()).unwrap();
            }
            // Nothing listens any more when the connection ends.
            drop(listener);
        });
        let mut plan = held(address, 1, 20, Duration::from_secs(3600));
        plan.pace = Pace::Hold(Hold { heartbeat: Duration::from_millis(20), retry_limit: Some(3) });
        // It ends by itself, an hour early: nothing is left to try.
        let outcome = run(&plan, &choice).unwrap();
        server.join().unwrap();
        let held = account(&outcome);
        assert_eq!((outcome.counts.errors.connect, held.gave_up, held.reconnects), (3, 1, 0), "{choice}");
        assert_eq!((held.opened, held.survived, held.lost), (1, 0, 1), "{choice}");
        assert!(held.unavailable_after_ns.is_some_and(|ns| u128::from(ns) <= outcome.window.as_nanos()));
        assert!(outcome.window < Duration::from_secs(3600));
        assert_eq!(diagnose(&held, outcome.window).0, Health::Unavailable);
    }
}

/// The answer to the last heartbeat is waited for, and a server that owes it has lost the connection,
/// although the time of holding is over by then.
#[test]
fn connections_whose_last_heartbeat_is_never_answered_are_lost() {
    for choice in drivers() {
        // All three are connected long before an answer is overdue.
        but_for_pauses(Duration::from_millis(100), || {
            // The kernel takes connections, and the server never accepts them.
            let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
            let mut plan = held(listener.local_addr().unwrap(), 3, 300, Duration::from_millis(300));
            plan.timeout = Duration::from_millis(600);
            let outcome = run(&plan, &choice).unwrap();
            let held = account(&outcome);
            assert_eq!((held.due, outcome.counts.completed), (3, 0), "{choice}");
            assert_eq!((held.opened, held.survived, held.lost), (3, 0, 3), "{choice}: {held:?}");
            assert_eq!(diagnose(&held, outcome.window).0, Health::Unhealthy, "{choice}: {held:?}");
        });
    }
}

/// What is due while the answer before is missing is not put off: it has failed, and is seen.
#[test]
fn a_heartbeat_that_finds_the_one_before_unanswered_is_not_written() {
    // The kernel takes connections, and the server never accepts them.
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let mut plan = held(listener.local_addr().unwrap(), 2, 20, Duration::from_millis(300));
    plan.timeout = Duration::from_secs(3);
    let outcome = run(&plan, &best()).unwrap();
    let held = account(&outcome);
    assert_eq!((held.due, outcome.counts.completed), (30, 0));
    assert!(held.busy > 0 && diagnose(&held, outcome.window).0 == Health::Unhealthy, "{held:?}");
}
