//! The search for the highest rate, against a server of known capacity.

use crate::server::{Requests, Server, ok};
use crate::{best, http};
use ringroad_load::Plan;
use ringroad_load::knee::{Knee, search};
use ringroad_load::plan::Pace;
use ringroad_load::report::{Frame, knee_record};
use ringroad_load::schedule::Arrivals;
use std::io::Write;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

/// A server that takes at least two milliseconds for each request, one after the other: 500 a second, or
/// fewer.
fn slow() -> Server {
    let gate = Mutex::new(());
    Server::start(move |stream, log| {
        let mut requests = Requests::default();
        while requests.next(stream, log).is_some() {
            let turn = gate.lock().unwrap();
            thread::sleep(Duration::from_millis(2));
            drop(turn);
            if stream.write_all(&ok()).is_err() {
                return;
            }
        }
    })
}

fn probing(server: &Server) -> Plan {
    Plan {
        count: None,
        duration: Some(Duration::from_millis(300)),
        pace: Pace::Open { per_second: 1000.0, arrivals: Arrivals::Constant },
        ..http(server.address)
    }
}

fn find(plan: &Plan, demand: &str) -> Result<Knee, ringroad_load::Error> {
    let stop = Arc::new(AtomicBool::new(false));
    search(plan, &demand.parse().unwrap(), &best(), &stop, &mut |_| {})
}

/// At a rate of 700 in 0.3 s, 210 requests are due and at most 150 served by then: the median one waits for
/// longer than the demand allows, on any machine. On a slow one the knee is lower, and that is all.
#[test]
fn the_knee_lies_below_what_the_server_can_do_and_all_probes_use_the_same_connections() {
    let server = slow();
    let plan = probing(&server);
    let knee = find(&plan, "p50<15ms").unwrap();
    assert!(knee.met.is_none_or(|met| met < 700.0), "{:?}", knee.met);
    assert!(knee.unmet.is_some() && !knee.interrupted);
    server.has_accepted(u64::from(plan.connections));
    let sent: u64 = knee.probes.iter().map(|probe| probe.outcome.counts.sent).sum();
    assert_eq!(server.requests(), sent);
    for probe in &knee.probes {
        let counts = &probe.outcome.counts;
        assert_eq!((counts.sent, counts.errors.total()), (counts.completed, 0));
        // What was due and cut off stands in the latencies too.
        let due = (probe.rate().unwrap() * 0.3).ceil() as u64;
        assert_eq!(counts.sent + counts.cut_off, due, "{:?}", probe.rate());
        assert_eq!(probe.outcome.tally.latencies.response.count(), due);
    }
    let best = knee.best().map(|best| (best.unmet.clone(), best.rate()));
    assert_eq!(best, knee.met.map(|met| (None, Some(met))));
    // Each probe is a cell of its own.
    let frame = Frame {
        command: Vec::new(),
        started: String::new(),
        host: serde_json::Map::new(),
        driver: "epoll".to_owned(),
    };
    let record = knee_record(&knee, "the knee", &frame);
    let told: Vec<_> = record.cells.iter().filter_map(|cell| cell.details.knee.as_ref()).collect();
    let [told] = told.as_slice() else { panic!("{} cells tell the knee", told.len()) };
    assert_eq!((&*told.demand, told.met_rps, told.unmet_rps), ("p50<15ms", knee.met, knee.unmet));
    let mut names: Vec<_> = record.cells.iter().map(|cell| cell.id.clone()).collect();
    names.sort();
    names.dedup();
    assert_eq!((names.len(), record.title.as_deref()), (knee.probes.len(), Some("the knee")));
}

#[test]
fn a_search_of_what_does_not_grow_with_the_load_is_refused() {
    let server = slow();
    let plan = probing(&server);
    for demand in ["rps<5", "p99>1ms"] {
        assert!(find(&plan, demand).is_err_and(|error| error.is_usage()), "{demand}");
    }
    let closed = Plan { pace: Pace::Closed, ..plan.clone() };
    let counted = Plan { count: Some(5), ..plan };
    for plan in [closed, counted] {
        assert!(find(&plan, "p99<1ms").is_err_and(|error| error.is_usage()));
    }
}

#[test]
fn a_search_that_is_stopped_ends_and_says_so() {
    let server = slow();
    let stop = Arc::new(AtomicBool::new(false));
    let demand = "p50<15ms".parse().unwrap();
    let word = Arc::clone(&stop);
    let knee = search(&probing(&server), &demand, &best(), &stop, &mut |event| {
        if matches!(event, ringroad_load::Event::Probe { .. }) {
            word.store(true, std::sync::atomic::Ordering::SeqCst);
        }
    })
    .unwrap();
    assert!(knee.interrupted && knee.probes.len() == 1, "{}", knee.probes.len());
    assert!(knee.verdict().to_string().contains("stopped") || knee.met.is_none());
}

/// A server that is only slow fails no request: what did not even leave in time is what says that the rate
/// was too high.
#[test]
fn a_rate_at_which_requests_do_not_get_out_does_not_meet_a_demand_on_errors() {
    let server = slow();
    let knee = find(&probing(&server), "errors%<1").unwrap();
    assert!(
        knee.unmet.is_some() && knee.met.is_none_or(|met| met < 5000.0),
        "{:?} {:?}",
        knee.met,
        knee.unmet
    );
}
