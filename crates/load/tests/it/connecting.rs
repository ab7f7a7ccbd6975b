//! Connections that cannot all be had: the load begins with those there are, says so, and does not wait for
//! ever.

use crate::pauses::but_for_pauses;
use crate::{best, http, on_each_driver};
use ringroad_engine::choose::Choice;
use ringroad_load::verdict::verdict;
use ringroad_load::{Event, Outcome, Plan};
use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A listener that never accepts. Its queue has room for one connection, or for two; the kernel drops further
/// ones.
fn narrow() -> (OwnedFd, SocketAddr) {
    let listener = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&listener, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    listen(&listener, 0).unwrap();
    let address = SocketAddr::try_from(getsockname(&listener).unwrap()).unwrap();
    (listener, address)
}

/// Runs until the load has begun, and then stops it. What came of it, and the connections there were while
/// connecting.
fn until_begun(plan: &Plan, choice: &Choice) -> (Outcome, Vec<(u32, u32)>) {
    let stop = Arc::new(AtomicBool::new(false));
    let mut told = Vec::new();
    let outcome = ringroad_load::run(plan, choice, &stop, &mut |event| match event {
        Event::Connecting { connections, wanted } => told.push((*connections, *wanted)),
        Event::Connected { .. } => stop.store(true, Ordering::Relaxed),
        _ => {}
    });
    (outcome.unwrap(), told)
}

#[test]
fn connections_that_cannot_be_had_do_not_hold_up_the_load() {
    let ms = Duration::from_millis;
    on_each_driver(|choice| {
        // One limit each; the other is never met.
        for (timeout, connect_limit) in [(ms(700), ms(60_000)), (ms(60_000), ms(700))] {
            // The first connection is made in that time.
            but_for_pauses(ms(200), || {
                let (_listener, address) = narrow();
                // Fewer on their way at a time than there are: a try of all of them would take many timeouts.
                let plan =
                    Plan { connections: 300, connecting_max: 4, timeout, connect_limit, ..http(address) };
                let (outcome, told) = until_begun(&plan, &choice);
                assert!((1..=2).contains(&outcome.connected), "{choice}: {}", outcome.connected);
                assert!(
                    told.iter().all(|(connections, wanted)| connections <= wanted && *wanted == 300),
                    "{told:?}"
                );
                assert!(!told.is_empty(), "{choice}");
                let served = outcome.connected;
                let said = verdict(&plan, &Outcome { interrupted: false, served, ..outcome });
                let words = "of 300 connections were made before the load began";
                assert!(said.to_string().contains(words), "{said}");
            });
        }
    });
}

#[test]
fn no_connection_at_all_is_told_after_one_timeout() {
    let (_listener, address) = narrow();
    // What the queue has room for is taken.
    let _taken: Vec<_> = (0..4)
        .filter_map(|_| std::net::TcpStream::connect_timeout(&address, Duration::from_millis(300)).ok())
        .collect();
    let plan =
        Plan { connections: 50, connecting_max: 4, timeout: Duration::from_millis(700), ..http(address) };
    let stop = Arc::new(AtomicBool::new(false));
    let error = ringroad_load::run(&plan, &best(), &stop, &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("connect, on ") && error.contains("no answer in time"), "{error}");
}
