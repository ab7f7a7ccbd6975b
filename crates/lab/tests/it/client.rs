//! The client against servers in this process: honest ones, which must agree in the counts, and liars: every
//! lie must be counted, without a hang.

use crate::longer::for_long_enough;
use crate::ports::{held, nowhere};
use ringroad_lab::client::window::Window;
use ringroad_lab::client::{self, ClientReport, Options};
use ringroad_lab::suite::Protocol;
use ringroad_measure::Histogram;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const BODY: &str = "<h1>Hello World</h1>";

/// Starts a server that gives every connection to `talk` on a thread of its own. The threads end with their
/// connections, the accepting one with the test process.
fn server(talk: impl Fn(TcpStream) -> std::io::Result<()> + Send + Sync + 'static) -> SocketAddr {
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
        body: None,
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
    Options { body: Some(BODY.to_owned()), ..options(addr, Protocol::Http) }
}

/// As long as it takes until every connection has ended by an error, also on a busy machine.
fn until_all_end(options: Options) -> Options {
    Options { duration_s: 60.0, ..options }
}

/// Reads whole requests and calls `answer` with each one's number; writes what it returns, and closes after
/// `None`.
fn each_request(
    mut stream: TcpStream,
    mut answer: impl FnMut(u64) -> Option<Vec<u8>>,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut carry, mut piece, mut number) = (Vec::new(), [0; 4096], 0);
    loop {
        let bytes = stream.read(&mut piece)?;
        if bytes == 0 {
            return Ok(());
        }
        carry.extend_from_slice(&piece[..bytes]);
        let mut out = Vec::new();
        while let Some(end) = memchr::memmem::find(&carry, b"\r\n\r\n") {
            carry.drain(..end + 4);
            match answer(number) {
                Some(bytes) => out.extend_from_slice(&bytes),
                None => return stream.write_all(&out),
            }
            number += 1;
        }
        stream.write_all(&out)?;
    }
}

fn good() -> Vec<u8> {
    answer_with(BODY.len(), BODY)
}

fn answer_with(length: usize, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
}

fn run(options: &Options) -> ClientReport {
    client::run(options).unwrap()
}

fn no_errors(report: &ClientReport) {
    assert_eq!(report.errors.total(), 0, "{:?}", report.first_error);
    assert_eq!(report.sent, report.completed);
    assert_eq!((report.connected, report.served), (3, 3));
}

/// Whether the latencies are those of the answers of the window, and what still waited at its end if that was
/// long; of each connection one at most.
fn counts_what_was_answered(window: &Window) {
    let counted = Histogram::from_base64(&window.histogram).unwrap().count();
    assert!((window.completed..=window.completed + 3).contains(&counted), "{counted}, {}", window.completed);
}

#[test]
fn an_honest_http_server_and_the_client_count_the_same() {
    let served = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&served);
    let addr = server(move |stream| {
        each_request(stream, |_| {
            count.fetch_add(1, Ordering::SeqCst);
            Some(good())
        })
    });
    for pipeline in [1, 16] {
        let asked = f64::from(3 * pipeline);
        let mut in_flight = 0.0;
        let is_lawful = for_long_enough(&Options { pipeline, ..http(addr) }, |options| {
            served.store(0, Ordering::SeqCst);
            let report = run(options);
            no_errors(&report);
            assert!(report.completed >= u64::from(3 * pipeline));
            assert_eq!(report.answers, served.load(Ordering::SeqCst));
            assert_eq!(report.payload_bytes, Some(20));
            let window = report.window.unwrap();
            assert!(window.completed < report.completed);
            counts_what_was_answered(&window);
            // Little's law holds by construction in a closed loop, so the client's own clocks must obey it.
            // In a short window what crosses its edges may be most of it.
            let mean_ns = window.mean_ns.unwrap_or(0.0);
            in_flight = window.completed as f64 * mean_ns / window.duration_ns as f64;
            (in_flight / asked - 1.0).abs() < 0.5
        });
        assert!(is_lawful, "{in_flight} in flight instead of {asked}");
    }
}

#[test]
fn an_honest_echo_server_gets_back_every_byte_it_returns() {
    let bytes_in = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&bytes_in);
    let addr = server(move |mut stream| {
        stream.set_nodelay(true)?;
        let mut piece = [0; 1000];
        loop {
            let bytes = stream.read(&mut piece)?;
            if bytes == 0 {
                return Ok(());
            }
            count.fetch_add(bytes as u64, Ordering::SeqCst);
            stream.write_all(&piece[..bytes])?;
        }
    });
    // Smaller than a piece, not a divisor of anything, larger than a piece and the socket's buffers.
    for (payload_bytes, pipeline) in [(64, 1), (333, 5), (300_000, 2)] {
        bytes_in.store(0, Ordering::SeqCst);
        let report = run(&Options { payload_bytes, pipeline, ..options(addr, Protocol::Echo) });
        no_errors(&report);
        assert_eq!(report.bytes_sent, bytes_in.load(Ordering::SeqCst));
        assert_eq!(report.bytes_received, report.bytes_sent);
        assert_eq!(report.bytes_sent, report.sent * u64::from(payload_bytes));
    }
}

#[test]
fn answers_split_byte_by_byte_are_whole_answers() {
    let addr = server(|mut stream| {
        stream.set_nodelay(true)?;
        let mut piece = [0; 4096];
        while stream.read(&mut piece)? > 0 {
            for byte in good() {
                stream.write_all(&[byte])?;
            }
        }
        Ok(())
    });
    no_errors(&run(&http(addr)));
}

#[test]
fn answers_that_differ_but_are_valid_are_accepted() {
    let addr = server(|stream| {
        each_request(stream, |number| {
            let date = format!("HTTP/1.1 200 OK\r\nDate: {}\r\ncontent-length: 20\r\n\r\n{BODY}", number % 7);
            let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n<h1>H\r\nf\r\nello World</h1>\r\n0\r\n\r\n";
            Some(if number % 2 == 0 { date.into_bytes() } else { chunked.as_bytes().to_vec() })
        })
    });
    for pipeline in [1, 7] {
        no_errors(&run(&Options { pipeline, ..http(addr) }));
    }
}

/// A server that answers well twice per connection and then with `lie`.
fn liar(lie: impl Fn() -> Option<Vec<u8>> + Send + Sync + 'static) -> SocketAddr {
    server(move |stream| each_request(stream, |number| if number < 2 { Some(good()) } else { lie() }))
}

#[test]
fn a_wrong_body_is_a_protocol_error() {
    let report = run(&until_all_end(http(liar(|| Some(answer_with(20, "<h1>Hullo World</h1>"))))));
    assert_eq!((report.errors.protocol, report.errors.total()), (3, 3));
    assert!(report.first_error.unwrap().contains("Hullo"));
    assert_eq!(report.completed, 6);
    assert_eq!(report.window, None, "a load that broke down measured nothing");
}

#[test]
fn a_length_that_is_no_length_is_a_protocol_error() {
    for head in ["Content-Length: 2O", "Content-Length: +20", "Content-Length: 20\r\nContent-Length: 21"] {
        let text = format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{BODY}");
        let report = run(&until_all_end(http(liar(move || Some(text.clone().into_bytes())))));
        assert_eq!(
            (report.errors.protocol, report.errors.total()),
            (3, 3),
            "{head}: {:?}",
            report.first_error
        );
    }
}

#[test]
fn too_long_an_answer_leaves_bytes_that_are_no_answer() {
    let report = run(&until_all_end(http(liar(|| Some(answer_with(20, "<h1>Hello World</h1>!!"))))));
    assert_eq!((report.errors.protocol, report.errors.total()), (3, 3));
}

#[test]
fn more_answers_than_requests_are_a_protocol_error() {
    let report = run(&until_all_end(http(liar(|| Some([good(), good()].concat())))));
    assert_eq!((report.errors.protocol, report.errors.total()), (3, 3));
    assert!(report.first_error.unwrap().contains("without a request"));
}

#[test]
fn too_short_an_answer_is_a_timeout_when_the_connection_stays_open() {
    let addr = liar(|| Some(answer_with(20, "<h1>Hello")));
    let mut last = None;
    let all_wait = for_long_enough(&Options { timeout_s: 0.3, ..http(addr) }, |options| {
        let report = last.insert(run(options));
        (report.errors.timeout, report.errors.total()) == (3, 3) && report.sent - report.completed == 3
    });
    assert!(all_wait, "{last:?}");
}

#[test]
fn a_server_that_closes_early_is_counted_per_connection() {
    let report = run(&until_all_end(http(liar(|| None))));
    assert_eq!((report.errors.reset, report.errors.total()), (3, 3));
    assert_eq!(report.served, 3);
}

/// A server that ends each connection after so many answers, announced or not.
fn server_of_few(answers: u64, says_so: bool) -> (SocketAddr, Arc<AtomicU64>) {
    let served = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&served);
    let addr = server(move |stream| {
        let mut end = stream.try_clone()?;
        each_request(stream, |number| {
            count.fetch_add(1, Ordering::SeqCst);
            let is_last = number + 1 == answers;
            let close = if is_last && says_so { "Connection: close\r\n" } else { "" };
            let answer = format!("HTTP/1.1 200 OK\r\n{close}Content-Length: 20\r\n\r\n{BODY}").into_bytes();
            if is_last {
                // Written here, so that the connection ends with it.
                end.write_all(&answer).unwrap();
                return None;
            }
            Some(answer)
        })
    });
    (addr, served)
}

#[test]
fn a_connection_that_the_server_announces_to_close_is_made_again_and_no_failure() {
    for answers in [1, 3] {
        let (addr, served) = server_of_few(answers, true);
        let mut last = None;
        let goes_on = for_long_enough(&Options { duration_s: 1.0, ..http(addr) }, |options| {
            served.store(0, Ordering::SeqCst);
            let report = run(options);
            no_errors(&report);
            assert_eq!(report.answers, served.load(Ordering::SeqCst));
            let report = last.insert(report);
            report.completed > 3 * answers && report.closed > 0
        });
        assert!(goes_on, "{last:?}");
    }
}

#[test]
fn an_answer_without_a_length_ends_with_its_connection() {
    let addr = server(|mut stream| {
        let mut piece = [0; 4096];
        let _ = stream.read(&mut piece)?;
        stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n<h1>Hello ")?;
        stream.write_all(b"World</h1>")
    });
    for reconnect in [false, true] {
        let mut last = None;
        let goes_on = for_long_enough(&Options { reconnect, duration_s: 1.0, ..http(addr) }, |options| {
            let report = run(options);
            no_errors(&report);
            assert_eq!(report.payload_bytes, Some(20));
            // With a connection for each request a close is expected.
            assert!(report.closed == 0 || !reconnect, "{report:?}");
            let report = last.insert(report);
            report.completed > 3 && (report.closed > 0 || reconnect)
        });
        assert!(goes_on, "{last:?}");
    }
    let lie = server(|mut stream| {
        let _ = stream.read(&mut [0; 4096])?;
        stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n<h1>Hello")
    });
    let report = run(&until_all_end(http(lie)));
    assert_eq!((report.errors.protocol, report.errors.total()), (3, 3), "half of it is another body");
}

#[test]
fn a_server_that_never_answers_is_a_timeout_and_no_hang() {
    let addr = server(|mut stream| stream.read_to_end(&mut Vec::new()).map(drop));
    let mut last = None;
    // In so short a time a busy machine may not even connect.
    let all_wait = for_long_enough(&Options { timeout_s: 0.3, pipeline: 4, ..http(addr) }, |options| {
        let report = last.insert(run(options));
        assert_eq!((report.completed, report.served, report.payload_bytes), (0, 0, None), "{report:?}");
        report.errors.timeout == 12
    });
    assert!(all_wait, "{last:?}");
}

#[test]
fn a_refused_status_is_an_answer_but_no_success() {
    let text = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 3\r\n\r\nno\n";
    let report = run(&http(server(move |stream| each_request(stream, |_| Some(text.as_bytes().to_vec())))));
    assert!(report.errors.status > 0);
    assert_eq!(report.errors.total(), report.errors.status);
    assert_eq!((report.answers, report.completed), (report.errors.status, 0));
}

#[test]
fn an_echo_of_other_bytes_is_a_protocol_error() {
    let addr = server(|mut stream| {
        let mut piece = [0; 64];
        for number in 0.. {
            stream.read_exact(&mut piece)?;
            if number == 2 {
                piece.swap(10, 11);
                // Two neighbours may be equal; this one then differs for certain.
                piece[12] = !piece[12];
            }
            stream.write_all(&piece)?;
        }
        Ok(())
    });
    let report = run(&until_all_end(options(addr, Protocol::Echo)));
    assert_eq!((report.errors.protocol, report.errors.total(), report.completed), (3, 3, 6));
}

#[test]
fn an_echo_of_another_connections_bytes_is_a_protocol_error() {
    let last: Arc<std::sync::Mutex<Vec<u8>>> = Arc::default();
    let addr = server(move |mut stream| {
        let mut piece = [0; 64];
        stream.read_exact(&mut piece)?;
        // The first gets its own; each later one gets what the one before sent.
        let mut last = last.lock().unwrap();
        let mine = if last.is_empty() { piece.to_vec() } else { last.clone() };
        *last = piece.to_vec();
        drop(last);
        stream.write_all(&mine)?;
        std::thread::sleep(Duration::from_millis(500));
        Ok(())
    });
    let report = run(&options(addr, Protocol::Echo));
    assert_eq!((report.errors.protocol, report.served), (2, 1), "{:?}", report.first_error);
}

#[test]
fn a_missing_listener_is_a_connect_error_per_connection() {
    let report = run(&http(nowhere()));
    assert_eq!((report.errors.connect, report.connected), (3, 0));
    assert_eq!(report.window, None);
}

/// Requests per connection, by a server that counts.
fn counting_server() -> (SocketAddr, Arc<std::sync::Mutex<Vec<u64>>>) {
    let counts: Arc<std::sync::Mutex<Vec<u64>>> = Arc::default();
    let all = Arc::clone(&counts);
    let addr = server(move |stream| {
        let mine = {
            let mut all = all.lock().unwrap();
            all.push(0);
            all.len() - 1
        };
        each_request(stream, |_| {
            all.lock().unwrap()[mine] += 1;
            Some(good())
        })
    });
    (addr, counts)
}

#[test]
fn silent_connections_send_one_request_and_the_others_go_on() {
    let (addr, counts) = counting_server();
    let report = run(&Options { connections: 10, active: 3, ..http(addr) });
    assert_eq!(report.errors.total(), 0, "{:?}", report.first_error);
    assert_eq!((report.connected, report.served), (10, 10));
    let counts = counts.lock().unwrap();
    assert_eq!(report.completed, counts.iter().sum::<u64>());
    assert_eq!(counts.iter().filter(|count| **count == 1).count(), 7, "{counts:?}");
    assert_eq!(counts.iter().filter(|count| **count > 1).count(), 3, "{counts:?}");
}

#[test]
fn nothing_is_measured_before_the_silent_connections_have_been_served() {
    // The first requests of seven connections are answered late, all at once; meanwhile the others go on.
    let answered = Arc::new(AtomicU64::new(0));
    let at_release = Arc::new(AtomicU64::new(u64::MAX));
    let (count, released, accepted) = (Arc::clone(&answered), Arc::clone(&at_release), AtomicU64::new(0));
    let started = std::time::Instant::now();
    let addr = server(move |stream| {
        let late = !matches!(accepted.fetch_add(1, Ordering::SeqCst), 3 | 6 | 9);
        each_request(stream, |_| {
            while late && started.elapsed() < Duration::from_millis(600) {
                std::thread::sleep(Duration::from_millis(10));
            }
            if late {
                released.fetch_min(count.load(Ordering::SeqCst), Ordering::SeqCst);
            }
            count.fetch_add(1, Ordering::SeqCst);
            Some(good())
        })
    });
    let report = run(&Options { connections: 10, active: 3, ..http(addr) });
    assert_eq!((report.served, report.errors.total()), (10, 0), "{:?}", report.first_error);
    let after = answered.load(Ordering::SeqCst) - at_release.load(Ordering::SeqCst);
    let completed = report.window.unwrap().completed;
    assert!(completed <= after, "{completed} in the window, and {after} came once all had been served");
}

/// Answers one request on each connection and closes it, saying so or not.
fn closing_server(says_so: bool) -> (SocketAddr, Arc<AtomicU64>) {
    let served = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&served);
    let addr = server(move |mut stream| {
        let (mut carry, mut piece) = (Vec::new(), [0; 4096]);
        while memchr::memmem::find(&carry, b"\r\n\r\n").is_none() {
            match stream.read(&mut piece)? {
                0 => return Ok(()),
                bytes => carry.extend_from_slice(&piece[..bytes]),
            }
        }
        assert!(memchr::memmem::find(&carry, b"Connection: close\r\n").is_some());
        count.fetch_add(1, Ordering::SeqCst);
        let close = if says_so { "Connection: close\r\n" } else { "" };
        stream.write_all(format!("HTTP/1.1 200 OK\r\n{close}Content-Length: 20\r\n\r\n{BODY}").as_bytes())
    });
    (addr, served)
}

#[test]
fn a_connection_per_request_is_made_answered_closed_and_counted_once() {
    for says_so in [true, false] {
        let (addr, served) = closing_server(says_so);
        let mut completed = 0;
        let goes_on = for_long_enough(&Options { reconnect: true, ..http(addr) }, |options| {
            served.store(0, Ordering::SeqCst);
            let report = run(options);
            no_errors(&report);
            assert_eq!(report.answers, served.load(Ordering::SeqCst));
            let window = report.window.unwrap();
            counts_what_was_answered(&window);
            completed = report.completed;
            completed > 3
        });
        assert!(goes_on, "the next request has a connection of its own: {completed}");
    }
}

#[test]
fn a_server_that_does_not_close_when_asked_to_is_a_timeout() {
    let addr = server(|stream| each_request(stream, |_| Some(good())));
    let mut last = None;
    let all_wait = for_long_enough(&Options { reconnect: true, timeout_s: 0.3, ..http(addr) }, |options| {
        let report = last.insert(run(options));
        assert_eq!(report.completed, 0, "{report:?}");
        (report.errors.timeout, report.errors.total()) == (3, 3)
    });
    assert!(all_wait, "{last:?}");
    let first_error = last.and_then(|report| report.first_error);
    assert!(first_error.unwrap().contains("the close after them"));
}

#[test]
fn a_second_answer_before_the_close_is_a_protocol_error() {
    let addr = server(|mut stream| {
        let mut piece = [0; 4096];
        let _ = stream.read(&mut piece)?;
        stream.write_all(&good())?;
        // In a piece of its own, mostly; in the same one it is as wrong.
        std::thread::sleep(Duration::from_millis(50));
        stream.write_all(&good())
    });
    let report = run(&until_all_end(Options { reconnect: true, ..http(addr) }));
    assert_eq!((report.errors.protocol, report.errors.total()), (3, 3), "{:?}", report.first_error);
}

#[test]
fn a_stopped_server_is_a_connect_error_for_the_next_connection() {
    let (addr, _silent) = held();
    let listener = TcpListener::bind(addr).unwrap();
    std::thread::spawn(move || {
        let mut streams: Vec<TcpStream> = (0..3).map(|_| listener.accept().unwrap().0).collect();
        // The socket is closed when the answers come.
        drop(listener);
        for stream in &mut streams {
            let mut piece = [0; 4096];
            let _ = stream.read(&mut piece).unwrap();
            stream.write_all(&good()).unwrap();
        }
    });
    let report = run(&until_all_end(Options { reconnect: true, ..http(addr) }));
    assert_eq!((report.errors.connect, report.errors.total(), report.completed), (3, 3, 3));
}

#[test]
fn options_out_of_range_are_refused() {
    let good = http("127.0.0.1:1".parse().unwrap());
    for bad in [
        Options { connections: 0, ..good.clone() },
        Options { pipeline: 0, ..good.clone() },
        Options { timeout_s: -1.0, ..good.clone() },
        Options { duration_s: f64::NAN, ..good.clone() },
        Options { protocol: Protocol::Echo, payload_bytes: 0, ..good.clone() },
        Options { active: 0, ..good.clone() },
        Options { active: 4, ..good.clone() },
        Options { reconnect: true, active: 2, ..good.clone() },
        Options { reconnect: true, pipeline: 2, ..good.clone() },
        Options { reconnect: true, protocol: Protocol::Echo, ..good.clone() },
    ] {
        assert_eq!(client::run(&bad).unwrap_err().kind(), std::io::ErrorKind::InvalidInput, "{bad:?}");
    }
}

/// A server is its process and that one's children, and this process has those of other tests, which come and
/// go: so the body runs in a process with no other test.
#[test]
fn the_window_holds_the_servers_cpu_time_when_its_process_is_known() {
    const ALONE: &str = "RINGROAD_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return the_window_holds_what_the_server_used();
    }
    let name = "client::the_window_holds_the_servers_cpu_time_when_its_process_is_known";
    let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
    let output = alone.args([name, "--exact", "--nocapture"]).env(ALONE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    // A name that is no test's would succeed by running nothing.
    let passed = output.status.success() && said.contains("1 passed");
    assert!(passed, "{}:\n{said}{}", output.status, String::from_utf8_lossy(&output.stderr));
}

fn the_window_holds_what_the_server_used() {
    let addr = server(|stream| each_request(stream, |_| Some(good())));
    // Server and client are threads of this process: its clock holds both.
    let options = Options {
        server_pid: Some(std::process::id()),
        turn_s: None,
        memory: true,
        warmup_s: 0.1,
        duration_s: 0.2,
        syscalls_s: 0.05,
        ..http(addr)
    };
    let window = run(&options).window.unwrap();
    let (server, client) = (window.server_cpu_ns.unwrap(), window.client_cpu_ns.unwrap());
    assert!(client > 0 && server >= client / 2, "{server} {client}");
    let grown = window.rss_growth_bytes.unwrap();
    assert!(window.rss_bytes.unwrap() > grown, "{grown}");
    match (window.syscalls_per_request, window.syscalls_unknown) {
        // A receive and a send at either end of every request.
        (Some(calls), None) => assert!(calls > 2.0, "{calls}"),
        (None, Some(why)) => eprintln!("system calls are not counted here: {why}"),
        both => panic!("{both:?}"),
    }
}
