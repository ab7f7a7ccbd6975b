//! Loads that change while they last, and where connections come from. What ends a test is something the
//! server has seen, never a time.

use crate::server::{Requests, Server, ok};
use crate::{best, drivers, http, run};
use ringroad_load::plan::{Pace, Stages};
use ringroad_load::schedule::{Arrivals, Profile};
use ringroad_load::{Outcome, Plan};
use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// How often each connection, by its client's address, has asked.
type Asked = Arc<Mutex<BTreeMap<SocketAddr, u64>>>;

/// A server that counts the requests of each connection.
fn server() -> (Server, Asked) {
    let asked = Asked::default();
    let notes = Arc::clone(&asked);
    let server = Server::start(move |stream, log| {
        let peer = stream.peer_addr().unwrap();
        notes.lock().unwrap().insert(peer, 0);
        let mut requests = Requests::default();
        while requests.next(stream, log).is_some() {
            *notes.lock().unwrap().get_mut(&peer).unwrap() += 1;
            if stream.write_all(&ok()).is_err() {
                return;
            }
        }
    });
    (server, asked)
}

/// Runs the plan until the server has seen enough.
fn run_until(plan: &Plan, enough: impl Fn() -> bool) -> Outcome {
    let stop = Arc::new(AtomicBool::new(false));
    thread::scope(|scope| {
        let load = scope.spawn(|| ringroad_load::run(plan, &best(), &stop, &mut |_| {}));
        while !enough() && !load.is_finished() {
            thread::sleep(Duration::from_millis(1));
        }
        stop.store(true, Ordering::SeqCst);
        load.join().unwrap().unwrap()
    })
}

fn staged(address: SocketAddr, stages: Profile, connections: u32) -> Plan {
    Plan {
        connections,
        count: None,
        duration: Some(Duration::from_secs_f64(stages.seconds())),
        stages: Some(stages),
        ..http(address)
    }
}

#[test]
fn of_connections_in_stages_as_many_send_as_the_stage_says() {
    let (server, asked) = server();
    // All are open from the beginning, and one of them sends.
    let plan = staged(server.address, levels("3600s:1,1s:3"), 3);
    let busy = || asked.lock().unwrap().values().sum::<u64>() >= 50 && asked.lock().unwrap().len() == 3;
    let outcome = run_until(&plan, busy);
    let mut counts: Vec<u64> = asked.lock().unwrap().values().copied().collect();
    counts.sort_unstable();
    assert_eq!((outcome.connected, outcome.asked, outcome.served), (3, 1, 1));
    assert_eq!((counts[0], counts[1], counts[2]), (0, 0, outcome.counts.sent));
    assert_eq!(outcome.counts.completed, outcome.counts.sent);
}

#[test]
fn connections_that_a_later_stage_wants_begin_when_it_comes() {
    let (server, asked) = server();
    let plan = Plan { threads: 2, ..staged(server.address, levels("0.05s:1,3600s:4"), 4) };
    let outcome = run_until(&plan, || {
        let asked = asked.lock().unwrap();
        asked.len() == 4 && asked.values().all(|count| *count >= 3)
    });
    assert_eq!((outcome.asked, outcome.served, outcome.counts.errors.total()), (4, 4, 0));
    assert_eq!(outcome.counts.sent, server.requests());
    // Each stage has its own figures, and together they are the whole.
    assert_eq!(outcome.stages.iter().map(|stage| stage.from).collect::<Vec<_>>(), [1.0, 4.0]);
    let each: u64 = outcome.stages.iter().map(|stage| stage.tally.latencies.response.count()).sum();
    assert_eq!(each, outcome.tally.latencies.response.count());
}

#[test]
fn a_rate_in_stages_sends_what_was_due_in_each() {
    for choice in drivers() {
        let (server, _) = server();
        let mut rates = Profile::default();
        // 100, then 0 to 1000 evenly, then nothing: 20 and 50 arrivals.
        rates.push(Duration::from_millis(200), 100.0, 100.0);
        rates.push(Duration::from_millis(100), 0.0, 1000.0);
        rates.push(Duration::from_millis(50), 0.0, 0.0);
        let pace = Pace::Open { per_second: 200.0, arrivals: Arrivals::Constant };
        let plan = Plan { pace, threads: 2, ..staged(server.address, rates, 3) };
        let outcome = run(&plan, &choice).unwrap();
        assert_eq!((outcome.counts.sent, outcome.counts.completed), (70, 70), "{choice}");
        assert_eq!(server.requests(), 70, "{choice}");
    }
}

#[test]
fn connections_are_made_no_faster_than_they_may() {
    let (server, _) = server();
    let plan = Plan { connections: 12, connect_rate: Some(100.0), ..http(server.address) };
    let begun = Instant::now();
    let outcome = run(&plan, &best()).unwrap();
    // The first may come at once and each later one after 10 ms: eleven gaps, one of which rounding may take.
    assert!(begun.elapsed() >= Duration::from_millis(100), "{:?}", begun.elapsed());
    assert_eq!((outcome.connected, outcome.counts.completed), (12, 12));
}

#[test]
fn connections_come_from_the_sources_in_turns() {
    for choice in drivers() {
        let (server, asked) = server();
        let sources = ["127.0.0.2", "::1", "127.0.0.3"].map(|text| text.parse().unwrap());
        let plan = Plan { connections: 4, idle: 2, sources: sources.to_vec(), ..http(server.address) };
        let outcome = run(&plan, &choice).unwrap();
        server.has_accepted(6);
        assert_eq!((outcome.connected, outcome.idle_at_end), (4, 2), "{choice}");
        let from: Vec<String> = asked.lock().unwrap().keys().map(|peer| peer.ip().to_string()).collect();
        assert!(from.iter().all(|ip| ip == "127.0.0.2" || ip == "127.0.0.3"), "{choice}: {from:?}");
        assert!(
            from.iter().any(|ip| ip == "127.0.0.2") && from.iter().any(|ip| ip == "127.0.0.3"),
            "{from:?}"
        );
    }
}

#[test]
fn sources_of_another_version_of_ip_are_told_as_such() {
    let (server, _) = server();
    let plan = Plan { sources: vec!["::1".parse().unwrap()], ..http(server.address) };
    let error = run(&plan, &best()).unwrap_err().to_string();
    assert!(error.contains("no source address of the target's version of IP"), "{error}");
}

/// Stages of connections.
fn levels(text: &str) -> Profile {
    let time = |text: &str| text.strip_suffix('s')?.parse().ok().map(Duration::from_secs_f64);
    match ringroad_load::plan::stages(text, time).unwrap() {
        Stages::Connections(profile) => profile,
        Stages::Rate(_) => panic!("a rate"),
    }
}
