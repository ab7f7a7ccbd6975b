//! Several servers in one load, connections that go elsewhere than the URL says, Unix sockets, and requests
//! that differ.

use crate::pauses::but_for_pauses;
use crate::server::{Log, Requests, Server, ok};
use crate::{best, drivers, get, http, run};
use ringroad_load::plan::{Pace, Request};
use ringroad_load::schedule::Arrivals;
use ringroad_load::site::{Destination, Route};
use ringroad_load::{Message, Plan, Table, Target};
use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

#[test]
fn connections_are_divided_among_servers_by_weight_and_send_each_its_own() {
    for choice in drivers() {
        let servers = [Server::http(|_| ok()), Server::http(|_| ok())];
        let mut plan = http(servers[0].address);
        let there: Target = format!("http://{}/there", servers[1].address).parse().unwrap();
        plan.messages.push(get(&there, 3).at(1));
        plan.others = vec![there];
        (plan.connections, plan.threads, plan.count) = (8, 2, Some(400));
        plan.idle = 2;
        let outcome = run(&plan, &choice).unwrap();
        assert_eq!((outcome.counts.completed, outcome.counts.errors.total()), (400, 0), "{choice}");
        // Of eight connections one in four, and one of two idle ones.
        servers[0].has_accepted(2 + 1);
        servers[1].has_accepted(6 + 1);
        for (server, path) in servers.iter().zip(["/", "/there"]) {
            let lines = server.log.lines.lock().unwrap();
            assert!(
                !lines.is_empty() && lines.iter().all(|line| line == &format!("GET {path} HTTP/1.1")),
                "{choice}"
            );
        }
        let counted: u64 = outcome.urls.iter().map(|url| url.completed).sum();
        assert_eq!((outcome.urls.len(), counted), (2, 400), "{choice}");
        assert_eq!(outcome.urls[1].completed, servers[1].requests(), "{choice}");
    }
}

#[test]
fn fewer_connections_than_servers_are_refused() {
    let mut plan = http(([127, 0, 0, 1], 9).into());
    plan.others = vec![plan.target.clone(); 3];
    assert!(plan.check().unwrap_err().to_string().contains("fewer connections than servers"));
}

#[test]
fn connections_go_where_their_route_leads_and_the_host_line_stays() {
    let server = Server::http(|_| ok());
    let heads = heads();
    let there = heads.0.address;
    let mut plan = http(server.address);
    plan.target = "http://example.invalid:81/".parse().unwrap();
    plan.messages = vec![get(&plan.target, 1)];
    plan.routes = vec![format!("example.invalid:81:{}:{}", there.ip(), there.port()).parse().unwrap()];
    let outcome = run(&plan, &best()).unwrap();
    assert_eq!((outcome.counts.completed, server.requests()), (12, 0));
    assert!(heads.1.lock().unwrap().iter().all(|head| head.contains("\r\nHost: example.invalid:81\r\n")));
}

#[test]
fn a_unix_socket_is_loaded_on_every_driver() {
    for choice in drivers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("http.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let served = Arc::new(Log::default());
        let log = Arc::clone(&served);
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let log = Arc::clone(&log);
                thread::spawn(move || {
                    let mut requests = Requests::default();
                    while requests.next(&mut stream, &log).is_some() {
                        if stream.write_all(&ok()).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        let mut plan = Plan { idle: 2, ..http(([127, 0, 0, 1], 9).into()) };
        plan.routes = vec![Route { host: None, port: None, to: Destination::Unix(path) }];
        let outcome = run(&plan, &choice).unwrap();
        assert_eq!((outcome.counts.completed, outcome.counts.errors.total()), (12, 0), "{choice}");
        assert_eq!((served.requests.load(Ordering::SeqCst), outcome.idle_at_end), (12, 2), "{choice}");
        plan.routes =
            vec![Route { host: None, port: None, to: Destination::Unix(folder.path().join("none")) }];
        let error = run(&plan, &choice).unwrap_err().to_string();
        assert!(error.contains("No such file") && error.contains("none"), "{choice}: {error}");
    }
}

/// A server that keeps the heads and bodies of requests: what one read brings is one request.
fn heads() -> (Server, Arc<Mutex<Vec<String>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&seen);
    let server = Server::start(move |stream, _| {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = std::io::Read::read(stream, &mut buffer) {
            notes.lock().unwrap().push(String::from_utf8(buffer[..count].to_vec()).unwrap());
            if stream.write_all(&ok()).is_err() {
                return;
            }
        }
    });
    (server, seen)
}

#[test]
fn requests_with_placeholders_differ_and_have_the_length_they_say() {
    let (server, seen) = heads();
    let table = Arc::new(Table::parse("user\nann\nbob\n").unwrap());
    let mut plan = Plan { threads: 2, ..http(server.address) };
    let target: Target = format!("http://{}/item/{{n}}?u={{user}}", server.address).parse().unwrap();
    let headers = [("X-Id".to_owned(), "{uuid}".to_owned())];
    let request = Request {
        method: "POST",
        headers: &headers,
        body: br#"{"n":{n},"r":{random:1-1000}}"#,
        close: false,
    };
    plan.messages = vec![Message::template(&target, &request, 1, Some(&table)).unwrap()];
    let outcome = run(&plan, &best()).unwrap();
    assert_eq!((outcome.counts.completed, outcome.counts.errors.total()), (12, 0));
    let seen = seen.lock().unwrap();
    let (mut ids, mut numbers) = (BTreeSet::new(), BTreeSet::new());
    for request in seen.iter() {
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("\r\nContent-Length: {}", body.len())), "{request}");
        let n = head.split(['/', '?']).nth(2).unwrap();
        assert!(body.starts_with(&format!("{{\"n\":{n},\"r\":")), "{request}");
        numbers.insert(n.to_owned());
        let user = ["ann", "bob"][n.parse::<usize>().unwrap() % 2];
        assert!(head.contains(&format!("?u={user} HTTP/1.1")), "{request}");
        ids.insert(head.split("X-Id: ").nth(1).unwrap().get(..36).unwrap().to_owned());
    }
    assert_eq!((ids.len(), numbers.len()), (12, 12), "each request is another");
}

/// A plan of so many URLs, `/0` and on, one connection for each thread.
fn urls(server: &Server, count: u32, threads: u32) -> Plan {
    let target = |nth| format!("http://{}/{nth}", server.address).parse().unwrap();
    let messages = (0..count).map(|nth| get(&target(nth), 1)).collect();
    Plan { messages, connections: threads, threads, ..http(server.address) }
}

/// The paths that were asked for, in the order in which the server read them.
fn paths(server: &Server) -> Vec<String> {
    let lines = server.log.lines.lock().unwrap();
    lines.iter().map(|line| line.split(['/', ' ']).nth(2).unwrap().to_owned()).collect()
}

#[test]
fn the_threads_of_a_load_go_through_one_sequence_of_urls() {
    for choice in drivers() {
        for (count, threads, requests) in [(8, 8, 8), (4, 4, 4), (8, 4, 20), (3, 2, 7)] {
            let server = Server::http(|_| ok());
            let plan = Plan { count: Some(requests), ..urls(&server, count, threads) };
            assert_eq!(run(&plan, &choice).unwrap().counts.completed, requests, "{choice}");
            let mut asked = paths(&server);
            let mut expected: Vec<_> =
                (0..requests).map(|nth| (nth % u64::from(count)).to_string()).collect();
            asked.sort();
            expected.sort();
            assert_eq!(asked, expected, "{choice}: {count} URLs, {threads} threads");
        }
    }
}

#[test]
fn requests_that_are_sent_together_go_through_the_sequence_too() {
    let server = Server::http(|_| ok());
    let plan = Plan { count: Some(20), pipeline: 8, ..urls(&server, 8, 1) };
    assert_eq!(run(&plan, &best()).unwrap().counts.completed, 20);
    assert_eq!(paths(&server), (0..20).map(|nth| (nth % 8).to_string()).collect::<Vec<_>>());
}

/// Arrivals a second apart, each at another thread: a thread that gets no processor for less changes nothing.
#[test]
fn in_open_loop_the_threads_ask_for_the_urls_in_their_order() {
    but_for_pauses(Duration::from_millis(200), || {
        let server = Server::http(|_| ok());
        let pace = Pace::Open { per_second: 1.0, arrivals: Arrivals::Constant };
        let plan = Plan { count: Some(6), pace, ..urls(&server, 3, 3) };
        assert_eq!(run(&plan, &best()).unwrap().counts.completed, 6);
        assert_eq!(paths(&server), ["0", "1", "2", "0", "1", "2"]);
    });
}

#[test]
fn the_requests_of_all_threads_are_numbered_in_one_sequence_beside_others() {
    let server = Server::http(|_| ok());
    let mut plan = Plan { count: Some(8), ..urls(&server, 1, 4) };
    let request = Request { method: "GET", headers: &[], body: b"", close: false };
    let target: Target = format!("http://{}/{{n}}", server.address).parse().unwrap();
    plan.messages = vec![get(&target, 1), Message::template(&target, &request, 1, None).unwrap()];
    plan.messages[0] = get(&format!("http://{}/fixed", server.address).parse().unwrap(), 1);
    assert_eq!(run(&plan, &best()).unwrap().counts.completed, 8);
    let mut asked = paths(&server);
    asked.sort();
    assert_eq!(asked, ["0", "1", "2", "3", "fixed", "fixed", "fixed", "fixed"]);
}
