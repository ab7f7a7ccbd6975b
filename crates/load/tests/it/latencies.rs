//! Latencies against what the server itself took.
//!
//! Of each request the client's time holds the server's, so of both, sorted, every quantile of the client's
//! is at least the server's: that is true on any machine. How much more it is depends on the machine, and is
//! bounded by sums.

use crate::pauses::but_for_pauses;
use crate::server::{self, Requests, Server, ok};
use crate::{best, drivers, http, on_each_driver, run};
use ringroad_load::plan::Pace;
use ringroad_load::require::Requirement;
use ringroad_load::schedule::Arrivals;
use ringroad_load::verdict::verdict;
use ringroad_load::{Event, Outcome, Plan};
use ringroad_measure::Histogram;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// A server that waits before each answer as long as `delay` says for the n-th request, and what it really
/// took.
fn delayed(delay: impl Fn(usize) -> Duration + Send + Sync + 'static) -> (Server, Arc<Mutex<Vec<u64>>>) {
    let took = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&took);
    let server = Server::start(move |stream, log| {
        let mut requests = Requests::default();
        while requests.next(stream, log).is_some() {
            let came = Instant::now();
            let nth = notes.lock().unwrap().len();
            thread::sleep(delay(nth));
            notes.lock().unwrap().push(came.elapsed().as_nanos() as u64);
            if stream.write_all(&ok()).is_err() {
                return;
            }
        }
    });
    (server, took)
}

fn holds_at_least(client: &Histogram, server: &mut [u64]) {
    server.sort_unstable();
    assert_eq!(client.count(), server.len() as u64);
    for percent in 1..=100 {
        let rank = (server.len() * percent).div_ceil(100).max(1);
        let least = server[rank - 1] as f64;
        let said = client.quantile_ns(percent as f64 / 100.0).unwrap() as f64;
        // A thousandth is what the histogram may be off.
        assert!(said >= 0.998 * least, "p{percent}: {said} ns is less than the {least} ns the server took");
    }
}

fn holds_at_most(client: &Histogram, bounds: &mut [u64]) {
    bounds.sort_unstable();
    for percent in 1..=100 {
        // A hundredth is no number of two, so the histogram may count one further: 0.07 of 100 is a little
        // more than 7.
        let most = bounds[(bounds.len() * percent).div_ceil(100).min(bounds.len() - 1)] as f64;
        let said = client.quantile_ns(percent as f64 / 100.0).unwrap() as f64;
        assert!(said <= 1.002 * most, "p{percent}: {said} ns is more than the {most} ns it can have been");
    }
}

/// What one server has seen of one connection: for each request when it had read it, and when it began to
/// answer.
type Times = Arc<Mutex<Vec<(Instant, Instant)>>>;

/// A server for one connection that waits before each answer as long as `delay` says for the n-th request.
fn timed(delay: impl Fn(usize) -> Duration + Send + Sync + 'static) -> (Server, Times) {
    let times = Times::default();
    let notes = Arc::clone(&times);
    let server = Server::start(move |stream, log| {
        let mut requests = Requests::default();
        while requests.next(stream, log).is_some() {
            let came = Instant::now();
            let nth = notes.lock().unwrap().len();
            thread::sleep(delay(nth));
            notes.lock().unwrap().push((came, Instant::now()));
            if stream.write_all(&ok()).is_err() {
                return;
            }
        }
    });
    (server, times)
}

/// One connection, one request at a time: the client sent a request after the server began to answer the one
/// before, and had its answer before the server read the next. So the server's own log says between which
/// bounds each latency lies, on any machine; undisturbed they are 2 % apart or less. Quantiles of the
/// latencies lie between the quantiles of the bounds.
#[test]
fn percentiles_are_what_the_servers_own_log_says_whatever_its_delays_are() {
    let fixed: fn(usize) -> u64 = |_| 10;
    let of_two_kinds: fn(usize) -> u64 = |nth| if nth % 10 == 9 { 80 } else { 10 };
    let frozen: fn(usize) -> u64 = |nth| if nth == 30 { 500 } else { 10 };
    for delay in [fixed, of_two_kinds, frozen] {
        let (server, times) = timed(move |nth| Duration::from_millis(delay(nth)));
        let plan = Plan { connections: 1, count: Some(50), ..http(server.address) };
        let begun = Instant::now();
        let outcome = run(&plan, &best()).unwrap();
        let ended = Instant::now();
        let times = times.lock().unwrap();
        let (mut least, mut most) = (Vec::new(), Vec::new());
        for (nth, (came, answered)) in times.iter().enumerate() {
            let before = nth.checked_sub(1).map_or(begun, |before| times[before].1);
            let after = times.get(nth + 1).map_or(ended, |next| next.0);
            least.push(answered.duration_since(*came).as_nanos() as u64);
            most.push(after.duration_since(before).as_nanos() as u64);
        }
        holds_at_least(&outcome.tally.latencies.response, &mut least);
        holds_at_most(&outcome.tally.latencies.response, &mut most);
    }
}

/// One connection again, in open loop: the n-th request was due n hundredths of a second after the load
/// began, which was after the connections were there and before the server read the first request.
#[test]
fn in_open_loop_a_stall_counts_in_the_percentiles_of_every_request() {
    let (server, times) = timed(|nth| Duration::from_millis(if nth == 40 { 200 } else { 2 }));
    let plan = Plan {
        connections: 1,
        count: None,
        duration: Some(Duration::from_secs(1)),
        pace: Pace::Open { per_second: 100.0, arrivals: Arrivals::Constant },
        ..http(server.address)
    };
    let mut connected = Instant::now();
    let outcome = ringroad_load::run(&plan, &best(), &Arc::default(), &mut |event| {
        if let Event::Connected { .. } = event {
            connected = Instant::now();
        }
    });
    let (outcome, ended) = (outcome.unwrap(), Instant::now());
    let times = times.lock().unwrap();
    assert_eq!((times.len(), outcome.counts.completed), (100, 100));
    let (mut least, mut most) = (Vec::new(), Vec::new());
    for (nth, (_, answered)) in times.iter().enumerate() {
        let due = Duration::from_millis(10) * nth as u32;
        let after = times.get(nth + 1).map_or(ended, |next| next.0);
        least.push(answered.saturating_duration_since(times[0].0 + due).as_nanos() as u64);
        most.push(after.saturating_duration_since(connected + due).as_nanos() as u64);
    }
    holds_at_least(&outcome.tally.latencies.response, &mut least);
    holds_at_most(&outcome.tally.latencies.response, &mut most);
    // Due from 0.4 s on: twenty waited, the first of them 200 ms, and the service time of one alone shows it.
    let slow = |histogram: &Histogram| {
        histogram.buckets().filter(|(ns, _)| *ns >= 50_000_000).map(|(_, count)| count).sum::<u64>()
    };
    assert!(slow(&outcome.tally.latencies.response) >= 14);
}

/// 200 requests a second, a second long, and a server that once does nothing for 300 ms: whatever was due in
/// the first half of the freeze waited for the second half at least. That is 30 requests; a load that waits
/// with the server would have asked twice and noticed it twice.
#[test]
fn a_freeze_shows_in_open_loop_in_every_request_that_was_due_in_it() {
    // One lock over all connections: when the server freezes, all of it does.
    let gate = Mutex::new(0_u32);
    let server = Server::start(move |stream, log| {
        let mut requests = Requests::default();
        while requests.next(stream, log).is_some() {
            let mut served = gate.lock().unwrap();
            *served += 1;
            if *served == 50 {
                thread::sleep(Duration::from_millis(300));
            }
            if stream.write_all(&ok()).is_err() {
                return;
            }
        }
    });
    let plan = Plan {
        connections: 2,
        count: None,
        duration: Some(Duration::from_secs(1)),
        pace: Pace::Open { per_second: 200.0, arrivals: Arrivals::Constant },
        ..http(server.address)
    };
    let outcome = run(&plan, &best()).unwrap();
    assert_eq!((outcome.counts.sent, outcome.counts.completed), (200, 200));
    let slow = |histogram: &Histogram| {
        histogram.buckets().filter(|(ns, _)| *ns >= 149_000_000).map(|(_, count)| count).sum::<u64>()
    };
    let latencies = &outcome.tally.latencies;
    assert!(slow(&latencies.response) >= 29, "{}", slow(&latencies.response));
    // It was sent late for want of a connection, and the lag says so; the service time alone would hide it.
    assert!(slow(latencies.lag.as_ref().unwrap()) >= 27);
    assert!(latencies.response.quantile_ns(1.0).unwrap() >= 299_000_000);
}

#[test]
fn response_is_lag_and_service_together() {
    let (server, took) = delayed(|_| Duration::from_millis(3));
    let plan = Plan {
        connections: 2,
        count: Some(60),
        pace: Pace::Open { per_second: 500.0, arrivals: Arrivals::Poisson },
        ..http(server.address)
    };
    let outcome = run(&plan, &best()).unwrap();
    let latencies = &outcome.tally.latencies;
    let mean = |histogram: &Option<Histogram>| histogram.as_ref().unwrap().mean_ns().unwrap();
    let (service, lag, late) = (mean(&latencies.service), mean(&latencies.lag), mean(&latencies.late));
    let response = latencies.response.mean_ns().unwrap();
    assert!((response / (service + lag) - 1.0).abs() < 0.002, "{response} is not {service} and {lag}");
    assert!(late <= lag * 1.002, "the generator's own part is a part of the lag");
    holds_at_least(latencies.service.as_ref().unwrap(), &mut took.lock().unwrap());
}

/// In open loop the slowest of all are those that were waited for until the timeout: they are in the tail.
#[test]
fn what_was_waited_for_until_the_timeout_is_in_the_latencies_of_an_open_loop() {
    let silent = std::sync::atomic::AtomicBool::new(true);
    let server = Server::start(move |stream, log| {
        let mut requests = Requests::default();
        while requests.next(stream, log).is_some() {
            if silent.swap(false, std::sync::atomic::Ordering::SeqCst) {
                // The first one gets nothing, until its client has gone.
                while requests.next(stream, log).is_some() {}
                return;
            }
            if stream.write_all(&ok()).is_err() {
                return;
            }
        }
    });
    let timeout = Duration::from_millis(500);
    let plan = Plan {
        count: Some(20),
        timeout,
        pace: Pace::Open { per_second: 200.0, arrivals: Arrivals::Constant },
        ..http(server.address)
    };
    let outcome = run(&plan, &best()).unwrap();
    let (counts, latencies) = (&outcome.counts, &outcome.tally.latencies);
    assert!(counts.errors.timeout >= 1, "{counts:?}");
    for histogram in
        [&latencies.response, latencies.service.as_ref().unwrap(), latencies.lag.as_ref().unwrap()]
    {
        assert_eq!(histogram.count(), counts.completed + counts.errors.timeout);
    }
    assert!(
        latencies.service.as_ref().unwrap().quantile_ns(1.0).unwrap() as f64
            >= 0.998 * timeout.as_nanos() as f64
    );
}

/// A server that answers, or ends, the fourth request of all by `stall`, and all others at once.
fn stalling(stall: impl Fn(&mut TcpStream) + Send + Sync + 'static) -> Server {
    let count = AtomicU64::new(0);
    Server::start(move |stream, log| {
        let mut requests = Requests::default();
        while requests.next(stream, log).is_some() {
            if count.fetch_add(1, Ordering::SeqCst) == 3 {
                return stall(stream);
            }
            if stream.write_all(&ok()).is_err() {
                return;
            }
        }
    })
}

const STALL: Duration = Duration::from_millis(700);

/// In such a pause the 300 ms below may be over before the fourth request, or an answer may come after STALL.
const PAUSE: Duration = Duration::from_millis(100);

fn for_300_ms(server: &Server) -> Plan {
    Plan { count: None, duration: Some(Duration::from_millis(300)), connections: 2, ..http(server.address) }
}

/// At least one request waited for as long, and the demand that none does is not met.
fn shows(outcome: &Outcome, wait: Duration, how: &str) {
    let longest = outcome.tally.latencies.response.quantile_ns(1.0).unwrap();
    assert!(longest as f64 >= 0.998 * wait.as_nanos() as f64, "{how}: {longest} ns");
    let required: Requirement = format!("max<{}ms", wait.as_millis() / 2).parse().unwrap();
    assert!(required.unmet(outcome).is_some(), "{how}");
}

#[test]
fn in_closed_loop_an_answer_after_the_window_counts_with_all_of_its_time() {
    on_each_driver(|choice| {
        for pipeline in [1, 4] {
            but_for_pauses(PAUSE, || {
                let server = stalling(|stream| {
                    thread::sleep(STALL);
                    let _ = stream.write_all(&ok());
                    server::close(stream);
                });
                let plan = Plan { pipeline, ..for_300_ms(&server) };
                let outcome = run(&plan, &choice).unwrap();
                shows(&outcome, STALL, &format!("{choice}, {pipeline}"));
                assert!(outcome.tally.completed < outcome.counts.completed, "the rate is that of the window");
            });
        }
    });
}

#[test]
fn a_request_without_an_answer_counts_with_the_time_it_was_waited_for_whatever_its_end_is() {
    let until_gone = |stream: &mut TcpStream| while let Ok(1..) = stream.read(&mut [0; 4096]) {};
    let close_late = |stream: &mut TcpStream| {
        thread::sleep(STALL);
        server::close(stream);
    };
    let nonsense_late = |stream: &mut TcpStream| {
        thread::sleep(STALL);
        let _ = stream.write_all(b"220 mail.example.org ESMTP\r\n");
        server::close(stream);
    };
    type End = fn(&mut TcpStream);
    let ends: [(&str, End); 3] =
        [("silence", until_gone), ("close", close_late), ("another protocol", nonsense_late)];
    on_each_driver(|choice| {
        for (how, end) in ends {
            but_for_pauses(PAUSE, || {
                let server = stalling(end);
                // What never comes is waited for until the timeout.
                let timeout = if how == "silence" { STALL } else { Duration::from_secs(60) };
                let plan = Plan { timeout, ..for_300_ms(&server) };
                let outcome = run(&plan, &choice).unwrap();
                let how = format!("{choice}, {how}");
                shows(&outcome, STALL, &how);
                assert_eq!((outcome.tally.unanswered, outcome.counts.errors.total()), (1, 1), "{how}");
                assert!(outcome.tally.unanswered_ns >= STALL.as_nanos() as u64, "{how}");
                let said = verdict(&plan, &outcome).to_string();
                assert!(said.contains("1 request got no answer"), "{how}: {said}");
            });
        }
    });
}

/// A rate up to the last good answer would leave out the time that was waited for what was never answered.
#[test]
fn a_count_ends_with_its_last_request_also_where_that_gets_no_answer() {
    let until_gone = |stream: &mut TcpStream| while let Ok(1..) = stream.read(&mut [0; 4096]) {};
    on_each_driver(|choice| {
        for duration in [None, Some(Duration::from_secs(60))] {
            let server = stalling(until_gone);
            let plan = Plan { duration, timeout: STALL, ..http(server.address) };
            let outcome = run(&plan, &choice).unwrap();
            let waited = Duration::from_nanos(outcome.tally.unanswered_ns);
            assert!(waited >= STALL, "{choice}: {waited:?}");
            assert!(outcome.window >= waited, "{choice}, {duration:?}: {:?}", outcome.window);
            // Eleven answers at most in that time.
            let required: Requirement = "rps>=20".parse().unwrap();
            assert!(required.unmet(&outcome).is_some(), "{choice}, {duration:?}");
        }
    });
}

/// Over HTTP/2: the connection is closed, the stream is reset, it is left out by GOAWAY.
#[test]
fn over_http2_a_request_without_an_answer_counts_with_the_time_it_was_waited_for() {
    let ends: [&[u8]; 3] =
        [b"", b"\0\0\x04\x03\0\0\0\0\x01\0\0\0\x08", b"\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\x01"];
    for end in ends {
        let server = Server::start(move |stream, _| {
            let _ = stream.write_all(b"\0\0\0\x04\0\0\0\0\0");
            let mut bytes = Vec::new();
            // A frame of headers: its stream is the first.
            while !bytes.windows(5).any(|five| five == b"\0\0\0\x01\x82" || five == b"\0\0\0\x01\x83") {
                let mut some = [0; 4096];
                let Ok(count @ 1..) = stream.read(&mut some) else { return };
                bytes.extend_from_slice(&some[..count]);
            }
            thread::sleep(STALL);
            let _ = stream.write_all(end);
            server::close(stream);
        });
        let plan = Plan { connections: 1, count: Some(1), http2: true, ..http(server.address) };
        let outcome = run(&plan, &best()).unwrap();
        shows(&outcome, STALL, &format!("{end:?}: {:?}", outcome.counts.failures));
        assert_eq!(outcome.tally.unanswered, 1);
    }
}

#[test]
fn what_waits_when_a_load_is_stopped_counts_with_its_wait_and_is_no_failure() {
    for choice in drivers() {
        let server = stalling(|stream| while let Ok(1..) = stream.read(&mut [0; 4096]) {});
        let plan = Plan { duration: Some(Duration::from_secs(3600)), ..for_300_ms(&server) };
        let stop = Arc::new(AtomicBool::new(false));
        let outcome = thread::scope(|scope| {
            let load = scope.spawn(|| ringroad_load::run(&plan, &choice, &stop, &mut |_| {}));
            while server.requests() < 100 && !load.is_finished() {
                thread::sleep(Duration::from_millis(1));
            }
            thread::sleep(Duration::from_millis(200));
            stop.store(true, Ordering::SeqCst);
            load.join().unwrap().unwrap()
        });
        shows(&outcome, Duration::from_millis(200), &choice.to_string());
        assert_eq!((outcome.tally.unanswered, outcome.counts.errors.total()), (1, 0), "{choice}");
    }
}

/// Whatever is due counts, sent or not: 20 requests at 100 a second, and one connection that gets no answer.
#[test]
fn in_open_loop_what_was_never_sent_is_in_the_latencies() {
    let server = Server::start(|stream, log| {
        let mut requests = Requests::default();
        while requests.next(stream, log).is_some() {}
    });
    let plan = Plan {
        connections: 1,
        count: None,
        duration: Some(Duration::from_millis(200)),
        timeout: Duration::from_millis(500),
        pace: Pace::Open { per_second: 100.0, arrivals: Arrivals::Constant },
        ..http(server.address)
    };
    let outcome = run(&plan, &best()).unwrap();
    assert!(outcome.counts.unsent > 0);
    assert_eq!((outcome.tally.latencies.response.count(), outcome.tally.unanswered), (20, 20));
    shows(&outcome, Duration::from_millis(500), "open loop");
}
