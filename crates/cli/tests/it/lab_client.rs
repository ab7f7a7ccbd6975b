//! The lab's two clients, each as the process the harness starts: what the load generator counts is what the
//! small client counts and what the server did; a server that lies, a client without time and clients that
//! were told apart are seen.
//!
//! How the small client takes every kind of lie is tested in `lab`, the load generator's own course in
//! `load`.

use crate::longer::for_long_enough;
use crate::over::Over;
use crate::ports::nowhere;
use crate::support::{BINARY, ringroad, run};
use ringroad_lab::client::{ClientReport, Options};
use ringroad_lab::pin::{Cores, Pinned};
use ringroad_lab::suite::Protocol;
use ringroad_lab::{RunOptions, Suite, runner};
use ringroad_measure::record::{CrossCheck, Record};
use ringroad_measure::{Caveat, Histogram, Level};
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const BODY: &str = "<h1>Hello World</h1>";

/// A server that gives every connection to `talk` on a thread of its own; all of it ends with the test
/// process.
fn server(talk: impl Fn(TcpStream) -> io::Result<()> + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let talk = Arc::new(talk);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let talk = Arc::clone(&talk);
            std::thread::spawn(move || stream.and_then(|stream| talk(stream)));
        }
    });
    addr
}

/// Answers each request, by its number on the connection; closes where there is no answer.
fn each_request(mut stream: TcpStream, mut answer: impl FnMut(u64) -> Option<Vec<u8>>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut carry, mut piece, mut number) = (Vec::new(), [0; 4096], 0);
    loop {
        let bytes = stream.read(&mut piece)?;
        if bytes == 0 {
            return Ok(());
        }
        carry.extend_from_slice(&piece[..bytes]);
        while let Some(end) = carry.windows(4).position(|four| four == b"\r\n\r\n") {
            carry.drain(..end + 4);
            match answer(number) {
                Some(bytes) => stream.write_all(&bytes)?,
                None => return Ok(()),
            }
            number += 1;
        }
    }
}

fn page(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn options(addr: SocketAddr, protocol: Protocol) -> Options {
    Options {
        addr,
        protocol,
        host: None,
        tls: false,
        connections: 3,
        active: 3,
        reconnect: false,
        pipeline: 1,
        payload_bytes: 64,
        path: "/".to_owned(),
        body: (protocol == Protocol::Http).then(|| BODY.to_owned()),
        warmup_s: 0.05,
        duration_s: 0.3,
        syscalls_s: 0.0,
        memory: false,
        timeout_s: 60.0,
        server_pid: None,
        turn_s: None,
    }
}

fn http(addr: SocketAddr) -> Options {
    options(addr, Protocol::Http)
}

/// Both of them.
const CLIENTS: [&str; 2] = ["load", "small"];

fn by(client: &str, options: &Options) -> ClientReport {
    let outcome = run(ringroad(["lab", "client", client]).arg(serde_json::to_string(options).unwrap()));
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{client}");
    let report: ClientReport = serde_json::from_str(&outcome.text()).unwrap();
    assert!(report.client.starts_with(&format!("{client}, ")), "{}", report.client);
    report
}

fn all_answered(report: &ClientReport) {
    assert_eq!(report.errors.total(), 0, "{}: {:?}", report.client, report.first_error);
    assert_eq!((report.sent, report.answers), (report.completed, report.completed), "{}", report.client);
    assert_eq!(report.connected, report.served, "{}", report.client);
}

#[test]
fn each_client_counts_what_the_server_counts_and_measures_a_part_of_it() {
    let served = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&served);
    let addr = server(move |stream| {
        each_request(stream, |_| {
            count.fetch_add(1, Ordering::SeqCst);
            Some(page(BODY))
        })
    });
    for client in CLIENTS {
        for pipeline in [1, 16] {
            served.store(0, Ordering::SeqCst);
            let report = by(client, &Options { pipeline, ..http(addr) });
            all_answered(&report);
            assert_eq!(report.answers, served.load(Ordering::SeqCst), "{client}");
            assert_eq!((report.connected, report.payload_bytes), (3, Some(20)), "{client}");
            let window = report.window.unwrap();
            assert!(window.completed < report.completed, "{client}: what came before and after is left out");
            let latencies = Histogram::from_base64(&window.histogram).unwrap();
            // Of each connection the request that waits at the end may be among the slowest.
            let waiting = latencies.count() - window.completed;
            assert!(waiting <= 3, "{client}: {waiting}");
            assert!(window.client_cpu_ns.is_some() && window.client_wait_ns.is_some(), "{client}");
        }
    }
}

#[test]
fn each_client_gets_back_every_byte_of_an_echo() {
    let bytes_in = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&bytes_in);
    let addr = server(move |mut stream| {
        stream.set_nodelay(true)?;
        let mut piece = [0; 1000];
        while let bytes @ 1.. = stream.read(&mut piece)? {
            count.fetch_add(bytes as u64, Ordering::SeqCst);
            stream.write_all(&piece[..bytes])?;
        }
        Ok(())
    });
    for client in CLIENTS {
        for (payload_bytes, pipeline) in [(1, 1), (333, 5), (300_000, 2)] {
            bytes_in.store(0, Ordering::SeqCst);
            let report = by(client, &Options { payload_bytes, pipeline, ..options(addr, Protocol::Echo) });
            all_answered(&report);
            assert_eq!(report.bytes_sent, bytes_in.load(Ordering::SeqCst), "{client}");
            assert_eq!(report.bytes_received, report.bytes_sent, "{client}");
            assert_eq!(report.payload_bytes, Some(u64::from(payload_bytes)), "{client}");
        }
    }
}

#[test]
fn an_echo_of_what_another_connection_sent_is_a_protocol_error() {
    for client in CLIENTS {
        let last: Arc<Mutex<Vec<u8>>> = Arc::default();
        let addr = server(move |mut stream| {
            let mut piece = [0; 64];
            loop {
                stream.read_exact(&mut piece)?;
                // Each connection gets what the one before sent; the first its own.
                let mut last = last.lock().unwrap();
                let theirs = if last.is_empty() { piece.to_vec() } else { last.clone() };
                *last = piece.to_vec();
                drop(last);
                stream.write_all(&theirs)?;
            }
        });
        let report = by(client, &options(addr, Protocol::Echo));
        assert!(report.errors.protocol > 0, "{client}: {:?}", report.errors);
    }
}

#[test]
fn a_page_that_is_not_the_one_it_has_to_be_is_a_protocol_error() {
    let honest = server(|stream| each_request(stream, |_| Some(page("<p>mine</p>"))));
    let liar = server(|stream| {
        each_request(stream, |nth| Some(page(if nth < 5 { BODY } else { "<h1>Hullo World</h1>" })))
    });
    for client in CLIENTS {
        // Which page it is may be open; that it is always the same is not.
        all_answered(&by(client, &Options { body: None, ..http(honest) }));
        for options in [http(honest), http(liar), Options { body: None, ..http(liar) }] {
            let is_seen = for_long_enough(&options, |options| {
                let ClientReport { errors, first_error, .. } = by(client, options);
                assert_eq!(errors.total(), errors.protocol, "{client}: {first_error:?}");
                errors.protocol > 0
            });
            assert!(is_seen, "{client}: no error");
        }
    }
}

#[test]
fn silent_connections_send_one_request_and_the_others_go_on() {
    for client in CLIENTS {
        let counts: Arc<Mutex<Vec<u64>>> = Arc::default();
        let all = Arc::clone(&counts);
        let addr = server(move |stream| {
            let mine = {
                let mut all = all.lock().unwrap();
                all.push(0);
                all.len() - 1
            };
            each_request(stream, |_| {
                all.lock().unwrap()[mine] += 1;
                Some(page(BODY))
            })
        });
        let report = by(client, &Options { connections: 10, active: 3, duration_s: 1.0, ..http(addr) });
        all_answered(&report);
        assert_eq!((report.connected, report.served), (10, 10), "{client}");
        let counts = counts.lock().unwrap();
        assert_eq!(report.completed, counts.iter().sum::<u64>(), "{client}");
        assert_eq!(counts.iter().filter(|count| **count == 1).count(), 7, "{client}: {counts:?}");
        assert_eq!(counts.iter().filter(|count| **count > 1).count(), 3, "{client}: {counts:?}");
    }
}

#[test]
fn a_connection_per_request_is_answered_closed_by_the_server_and_counted_once() {
    let served = Arc::new(AtomicU64::new(0));
    for says_so in [true, false] {
        let count = Arc::clone(&served);
        let addr = server(move |stream| {
            let mut end = stream.try_clone()?;
            each_request(stream, |_| {
                count.fetch_add(1, Ordering::SeqCst);
                let close = if says_so { "Connection: close\r\n" } else { "" };
                let answer = format!("HTTP/1.1 200 OK\r\n{close}Content-Length: 20\r\n\r\n{BODY}");
                // Written here, so that the connection ends with it.
                end.write_all(answer.as_bytes()).unwrap();
                None
            })
        });
        for client in CLIENTS {
            served.store(0, Ordering::SeqCst);
            let report = by(client, &Options { reconnect: true, ..http(addr) });
            assert_eq!(report.errors.total(), 0, "{client}: {:?}", report.first_error);
            assert_eq!(report.answers, served.load(Ordering::SeqCst), "{client}");
            assert_eq!((report.sent, report.completed), (report.answers, report.answers), "{client}");
        }
    }
}

#[test]
fn connections_that_the_server_does_not_keep_are_counted_as_lost() {
    let addr = server(|stream| each_request(stream, |number| (number < 2).then(|| page(BODY))));
    for client in CLIENTS {
        let mut last = None;
        let are_lost = for_long_enough(&http(addr), |options| {
            let ClientReport { errors, first_error, .. } = by(client, options);
            assert_eq!(errors.total(), errors.reset, "{client}: {first_error:?}");
            last.insert(errors).reset >= 3
        });
        assert!(are_lost, "{client}: {last:?}");
    }
}

/// A refusal and the close behind it are one failed request.
#[test]
fn a_refused_status_with_a_close_behind_it_is_counted_once() {
    let served = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&served);
    let addr = server(move |stream| {
        let mut end = stream.try_clone()?;
        each_request(stream, |_| {
            count.fetch_add(1, Ordering::SeqCst);
            end.write_all(b"HTTP/1.0 404 Not Found\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno")
                .unwrap();
            None
        })
    });
    for client in CLIENTS {
        for reconnect in [false, true] {
            let goes_on = for_long_enough(&Options { reconnect, ..http(addr) }, |options| {
                served.store(0, Ordering::SeqCst);
                let report = by(client, options);
                assert_eq!(report.answers, served.load(Ordering::SeqCst), "{client}");
                assert_eq!(report.errors.total(), report.answers, "{client}: {:?}", report.errors);
                assert_eq!(report.errors.status, report.answers, "{client}: {:?}", report.errors);
                report.answers > 3
            });
            assert!(goes_on, "{client}: three answers, and no more");
        }
    }
}

#[test]
fn connections_that_the_server_may_close_are_made_again_by_each_client() {
    let served = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&served);
    let addr = server(move |stream| {
        let mut end = stream.try_clone()?;
        each_request(stream, |number| {
            count.fetch_add(1, Ordering::SeqCst);
            if number < 2 {
                return Some(page(BODY));
            }
            let last = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 20\r\n\r\n{BODY}");
            end.write_all(last.as_bytes()).unwrap();
            None
        })
    });
    for client in CLIENTS {
        let mut closed = 0;
        let are_made_again = for_long_enough(&http(addr), |options| {
            served.store(0, Ordering::SeqCst);
            let report = by(client, options);
            all_answered(&report);
            assert_eq!(report.answers, served.load(Ordering::SeqCst), "{client}");
            closed = report.closed;
            closed >= 3
        });
        assert!(are_made_again, "{client}: {closed}");
    }
}

#[test]
fn without_a_listener_every_connection_has_a_connect_error_and_there_is_no_window() {
    let addr = nowhere();
    for client in CLIENTS {
        let report = by(client, &http(addr));
        assert_eq!((report.connected, report.window.is_some()), (0, false), "{client}");
        assert!(report.errors.connect >= 3, "{client}: {:?}", report.errors);
    }
}

/// That variable is for the programs under test.
#[test]
fn the_driver_of_the_load_generator_is_not_the_one_the_environment_names() {
    let addr = server(|stream| each_request(stream, |_| Some(page(BODY))));
    let mut command = ringroad(["lab", "client", "load"]);
    command.arg(serde_json::to_string(&http(addr)).unwrap()).env("RINGROAD_DRIVER", "select");
    let report: ClientReport = serde_json::from_str(&run(&mut command).text()).unwrap();
    assert!(["load, io_uring", "load, epoll"].contains(&report.client.as_str()), "{}", report.client);
}

#[test]
fn options_that_make_no_sense_are_refused_by_each() {
    let good = http("127.0.0.1:1".parse().unwrap());
    for client in CLIENTS {
        for bad in [Options { active: 4, ..good.clone() }, Options { pipeline: 0, ..good.clone() }] {
            let words = serde_json::to_string(&bad).unwrap();
            let outcome = run(ringroad(["lab", "client", client]).arg(words));
            assert_eq!(outcome.code, Some(1), "{client}: {outcome:?}");
            assert!(outcome.stderr.contains("client options"), "{client}: {outcome:?}");
        }
    }
}

/// A suite of a server of ours and what is said more, put on by the load generator.
fn suite(folder: &Path, more: &str) -> Suite {
    let text = format!(
        r#"title = "by the load generator"
warmup_s = 0.1
duration_s = 1.0
syscalls_s = 0.0
repeats = 2
baseline = "ours"
[[server]]
id = "ours"
command = ["{{ringroad}}", "lab", "server", "--model", "poll", "--protocol", "{{protocol}}"]
ready = "listening on {{addr}}"
protocols = ["http", "echo"]
totals = true
{more}
[[load]]
id = "http"
protocol = "http"
connections = [4]
timeout_s = 20
[[load]]
id = "echo"
protocol = "echo"
connections = [4]
timeout_s = 20
"#
    );
    Suite::parse(&text, "t.toml", "t", Some(folder.to_owned())).unwrap()
}

fn measured(suite: &Suite) -> Record {
    runner::run(suite, &RunOptions::of(BINARY), &mut (), &AtomicBool::new(false)).unwrap()
}

#[test]
fn a_run_names_its_client_and_compares_one_cell_with_the_small_client() {
    let folder = tempfile::tempdir().unwrap();
    let mut suite = suite(folder.path(), "");
    let mut record = measured(&suite);
    // On a busy machine a second may be without an answer.
    let compares = |check: &CrossCheck| check.rate.low > 0.0;
    if !record.cells[0].details.cross_check.as_ref().is_some_and(compares) {
        suite.duration_s = 10.0;
        record = measured(&suite);
    }
    assert_eq!(record.cells.len(), 2, "the cross-check is not one of the results");
    for cell in &record.cells {
        assert!(cell.details.client.as_ref().unwrap().starts_with("load, "), "{:?}", cell.details);
        assert_eq!((cell.errors.total(), cell.runs.len()), (0, 2), "{}", cell.verdict);
        for run in &cell.runs {
            assert_eq!(Some(run.client_count), run.server_count, "{}", cell.id);
        }
    }
    let [first, second] = record.cells.as_slice() else { panic!("{record:?}") };
    assert_eq!(second.details.cross_check, None, "one cell is enough");
    let check = first.details.cross_check.as_ref().unwrap_or_else(|| panic!("{}", first.verdict));
    assert_eq!(check.client, "small, epoll");
    assert!(check.rate.low > 0.0 && check.cpu.is_some(), "{check:?}");
}

#[test]
fn a_server_that_lies_about_its_counts_makes_its_cells_invalid_also_by_the_load_generator() {
    let folder = tempfile::tempdir().unwrap();
    // An honest server, but its totals are changed on their way out: a digit more.
    let liar = r#"
[[server]]
id = "liar"
command = ["sh", "-c", '''
rm -f told; mkfifo told
"$0" lab server --model poll --protocol http > told &
exec 3< told; read -r first <&3
trap "kill $!; wait $!; cat <&3 > honest; sed 's/\"requests\":/&1/' honest; exit 0" TERM
echo "$first"; wait''', "{ringroad}"]
cwd = "."
ready = "listening on {addr}"
protocols = ["http"]
totals = true
"#;
    let record = measured(&suite(folder.path(), liar));
    let cell = record.cells.iter().find(|cell| cell.model == "liar").unwrap();
    let differ = cell.verdict.reasons.iter().any(|why| matches!(why, Caveat::CountsDiffer { .. }));
    assert!(differ && cell.verdict.level == Level::Invalid, "{}", cell.verdict);
    let told = fs::read_to_string(folder.path().join("honest")).unwrap();
    assert!(told.contains("\"requests\":"), "it is the lie that was seen: {told}");
}

/// Others on the client's core take what it needs: that is no property of the server, and is said.
#[test]
fn a_load_generator_whose_core_is_taken_by_others_is_called_starved() {
    let cores = Cores::of_this_process().unwrap();
    let over = AtomicBool::new(false);
    let folder = tempfile::tempdir().unwrap();
    let record = std::thread::scope(|scope| {
        let _over = Over(&over);
        for _ in 0..4 {
            scope.spawn(|| {
                let _pinned = Pinned::to(&cores.client).unwrap();
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        measured(&suite(folder.path(), ""))
    });
    for cell in &record.cells {
        let starved = cell.verdict.reasons.iter().any(|why| matches!(why, Caveat::ClientStarved { .. }));
        // A run that gave nothing is worse, and says so.
        assert!(starved || cell.verdict.level == Level::Invalid, "{}: {}", cell.id, cell.verdict);
    }
}

#[test]
fn the_client_can_be_chosen_on_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let words =
        ["lab", "quick", "--client", "small", "--only=poll", "--repeats=1", "--duration=0.1", "--out"];
    let outcome = run(ringroad(words).arg(folder.path()));
    let record: Record =
        serde_json::from_str(&fs::read_to_string(folder.path().join("record.json")).unwrap()).unwrap();
    assert!(!record.cells.is_empty(), "{outcome:?}");
    for cell in &record.cells {
        assert_eq!(cell.details.client.as_deref(), Some("small, epoll"), "{}", cell.id);
        assert_eq!(cell.details.cross_check, None, "{}", cell.id);
    }
    let unknown = run(&mut ringroad(["lab", "quick", "--client", "wrk"]));
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    assert!(unknown.stderr.contains("load or small"), "{unknown:?}");
}
