//! `ringroad lab server`: every model under clients of other projects (curl, wrk, a script of raw bytes), its
//! end by signal with totals that are right, and what it refuses.

use crate::support::{DEADLINE, Kill, Lines, Server, installed, ringroad, run};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Command, Stdio};

const MODELS: [&str; 7] = ["threads", "select", "poll", "epoll-lt", "epoll-et", "uring", "uring-multishot"];
const BODY: &str = "<h1>Hello World</h1>";

/// The models that can run here. All others than those on io_uring can run everywhere.
fn models() -> Vec<&'static str> {
    let denied = run(&mut ringroad(["cat", "--driver", "io_uring", "/dev/null"])).code != Some(0);
    if denied {
        crate::support::skip("the models on io_uring", "io_uring cannot be used here");
    }
    MODELS.into_iter().filter(|model| !(denied && model.starts_with("uring"))).collect()
}

fn start(model: &str, protocol: &str) -> Server {
    Server::start(&["--model", model, "--protocol", protocol, "--listen", "127.0.0.1:0"])
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.set_write_timeout(Some(DEADLINE)).unwrap();
    stream
}

/// One answer, head and body.
fn read_answer(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(BODY.as_bytes()) {
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&answer));
        answer.push(byte[0]);
        assert!(answer.len() < 4096, "{}", String::from_utf8_lossy(&answer));
    }
    String::from_utf8(answer).unwrap()
}

#[test]
fn every_model_serves_curl() {
    if !installed("curl") {
        return;
    }
    for model in models() {
        let server = start(model, "http");
        let url = format!("http://{}/any/path?query", server.address);
        // Three requests on one connection, then one by itself.
        let several = run(Command::new("curl").args(["-sS", "-i", "--max-time", "30", &url, &url, &url]));
        assert_eq!((several.code, several.stderr.as_str()), (Some(0), ""), "{model}");
        let text = several.text();
        assert_eq!(text.matches("HTTP/1.1 200 OK\r\n").count(), 3, "{model}: {text}");
        assert_eq!(text.matches("Content-Type: text/html\r\n").count(), 3, "{model}: {text}");
        assert_eq!(text.matches("Content-Length: 20\r\n").count(), 3, "{model}: {text}");
        assert_eq!(text.matches(BODY).count(), 3, "{model}: {text}");
        let posted = run(Command::new("curl").args(["-sS", "--max-time", "30", "-d", "a=b", &url]));
        assert_eq!((posted.code, posted.text().as_str()), (Some(0), BODY), "{model}");
        let totals = server.stop(Signal::TERM);
        assert_eq!((&totals["accepted"], &totals["requests"]), (&2.into(), &4.into()), "{model}: {totals}");
    }
}

#[test]
fn every_model_serves_wrk_without_an_error() {
    if !installed("wrk") {
        return;
    }
    // At the same time: together they take as much of the CPUs as one.
    std::thread::scope(|scope| {
        for model in models() {
            scope.spawn(move || serves_wrk(model));
        }
    });
}

fn serves_wrk(model: &str) {
    // In a second a busy machine may give no answer.
    let is_measured = ["-d1", "-d20"].iter().any(|length| serves_wrk_for(model, length) > 0);
    assert!(is_measured, "{model}: no request was answered");
}

/// Returns how many requests wrk counted.
fn serves_wrk_for(model: &str, length: &str) -> u64 {
    let server = start(model, "http");
    let url = format!("http://{}/", server.address);
    let wrk = run(Command::new("wrk").args(["-t1", "-c50", length, "--timeout", "30", &url]));
    let report = wrk.text();
    assert_eq!(wrk.code, Some(0), "{model}: {report} {}", wrk.stderr);
    assert!(!report.contains("Socket errors") && !report.contains("Non-2xx"), "{model}: {report}");
    let line = report.lines().find(|line| line.contains("requests in")).unwrap_or_default();
    let requests: u64 = line.split_whitespace().next().unwrap_or_default().parse().unwrap();
    let totals = server.stop(Signal::TERM);
    // What was under way when wrk stopped counting was served and not counted: at most one per
    // connection, and one it tried out at first.
    let served = totals["requests"].as_u64().unwrap();
    assert!((requests..=requests + 51).contains(&served), "{model}: {line}: {totals}");
    assert!(totals["accepted"].as_u64().unwrap() >= 50, "{model}: {totals}");
    requests
}

/// Requests in one write, the sending side closed at once, one request cut in two by a pause.
#[test]
fn every_model_answers_a_script_of_pipelined_requests_and_a_half_close() {
    for model in models() {
        for signal in [Signal::TERM, Signal::INT] {
            let server = start(model, "http");
            let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
            let mut stream = connect(&server);
            stream.write_all(request.repeat(2).as_bytes()).unwrap();
            let first = read_answer(&mut stream);
            assert!(first.starts_with("HTTP/1.1 200 OK\r\n"), "{model}: {first}");
            let (begin, end) = request.split_at(9);
            stream.write_all(begin.as_bytes()).unwrap();
            assert_eq!(read_answer(&mut stream), first, "{model}");
            stream.write_all(end.as_bytes()).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut rest = String::new();
            stream.read_to_string(&mut rest).unwrap();
            assert_eq!(rest, first, "{model}: the answer to what came before the end, then the end");

            let totals = server.stop(signal);
            let expected_in = 3 * request.len() as u64;
            let expected_out = 3 * first.len() as u64;
            assert_eq!(totals["model"], model, "{totals}");
            assert_eq!(totals["accepted"], 1, "{model}: {totals}");
            assert_eq!(totals["requests"], 3, "{model}: {totals}");
            assert_eq!(totals["bytes_in"], expected_in, "{model}: {totals}");
            assert_eq!(totals["bytes_out"], expected_out, "{model}: {totals}");
            assert!(totals["syscalls"].as_u64().unwrap() > 0, "{model}: {totals}");
        }
    }
}

/// More than the socket buffers hold, so that the server must stop reading and go on; then the end.
#[test]
fn every_model_echoes_more_than_the_buffers_hold() {
    let bytes: Vec<u8> = (0..8_u32 << 20).map(|place| (place % 251) as u8).collect();
    for model in models() {
        for signal in [Signal::TERM, Signal::INT] {
            let server = start(model, "echo");
            let mut stream = connect(&server);
            let mut writer = stream.try_clone().unwrap();
            let mut echoed = Vec::new();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    writer.write_all(&bytes).unwrap();
                    writer.shutdown(Shutdown::Write).unwrap();
                });
                stream.read_to_end(&mut echoed).unwrap();
            });
            assert!(echoed == bytes, "{model}: {} bytes of {}", echoed.len(), bytes.len());
            let totals = server.stop(signal);
            let length = bytes.len() as u64;
            assert_eq!(
                (&totals["bytes_in"], &totals["bytes_out"]),
                (&length.into(), &length.into()),
                "{model}"
            );
            assert_eq!((&totals["accepted"], &totals["requests"]), (&1.into(), &0.into()), "{model}");
        }
    }
}

#[test]
fn a_signal_ends_every_model_though_clients_stay_connected() {
    for model in models() {
        for protocol in ["echo", "http"] {
            let server = start(model, protocol);
            let idle: Vec<TcpStream> = (0..20).map(|_| connect(&server)).collect();
            // The last one is served, so all before it were accepted.
            let mut last = connect(&server);
            last.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            last.read_exact(&mut [0; 10]).unwrap();
            let totals = server.stop(Signal::TERM);
            assert_eq!(totals["accepted"], 21, "{model} {protocol}: {totals}");
            drop(idle);
        }
    }
}

#[test]
fn a_port_that_is_taken_is_said_with_exit_1() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for model in models() {
        let outcome = run(&mut ringroad(["lab", "server", "--model", model, "--listen", &address]));
        assert_eq!((outcome.code, outcome.stdout.len()), (Some(1), 0), "{model}: {outcome:?}");
        assert_eq!(outcome.stderr.lines().count(), 1, "{model}: {outcome:?}");
        assert!(outcome.stderr.starts_with("ringroad: "), "{model}: {outcome:?}");
        assert!(outcome.stderr.contains(&address), "{model}: {outcome:?}");
        assert!(outcome.stderr.contains("Address already in use"), "{model}: {outcome:?}");
        assert!(!outcome.stderr.contains("os error"), "{model}: {outcome:?}");
    }
}

#[test]
fn an_address_of_another_machine_is_said_with_exit_1() {
    // TEST-NET-1 of RFC 5737: reserved, no host has it.
    let outcome = run(&mut ringroad(["lab", "server", "--model", "poll", "--listen", "192.0.2.1:0"]));
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.stderr.contains("192.0.2.1:0"), "{outcome:?}");
}

#[test]
fn an_unknown_model_or_protocol_is_refused_with_the_known_ones() {
    let model = run(&mut ringroad(["lab", "server", "--model", "kqueue"]));
    assert_eq!(model.code, Some(2), "{model:?}");
    for known in MODELS {
        assert!(model.stderr.contains(known), "{known} is not in {}", model.stderr);
    }
    let protocol = run(&mut ringroad(["lab", "server", "--model", "poll", "--protocol", "smtp"]));
    assert_eq!(protocol.code, Some(2), "{protocol:?}");
    assert!(protocol.stderr.contains("echo") && protocol.stderr.contains("http"), "{protocol:?}");
    let none = run(&mut ringroad(["lab", "server"]));
    assert_eq!(none.code, Some(2), "{none:?}");
    assert!(none.stderr.contains("--model"), "{none:?}");
}

#[test]
fn values_that_cannot_be_are_refused_with_exit_2() {
    for (arguments, named) in [
        (["--buffer", "0"], "--buffer"),
        (["--buffer", "2048M"], "--buffer"),
        (["--buffer", "large"], "--buffer"),
        (["--delay-us", "soon"], "--delay-us"),
        (["--delay-us", "inf"], "--delay-us"),
        (["--work-us", "nan"], "--work-us"),
        (["--work-us", "1e300"], "--work-us"),
        (["--listen", "localhost"], "--listen"),
        (["--listen", "127.0.0.1:65536"], "--listen"),
    ] {
        let outcome = run(ringroad(["lab", "server", "--model", "poll"]).args(arguments));
        assert_eq!((outcome.code, outcome.stdout.len()), (Some(2), 0), "{arguments:?}: {outcome:?}");
        assert!(outcome.stderr.contains(named), "{arguments:?}: {outcome:?}");
    }
}

#[test]
fn every_model_serves_with_small_and_large_buffers_a_delay_and_work() {
    for model in models() {
        for options in [
            &["--buffer", "1"][..],
            &["--buffer", "1M"],
            &["--delay-us", "3000"],
            &["--work-us", "0.5"],
            &["--delay-us", "1000", "--work-us", "20", "--buffer", "64"],
        ] {
            let server = Server::start(&[&["--model", model, "--protocol", "http"][..], options].concat());
            let mut stream = connect(&server);
            let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
            stream.write_all(request.repeat(20).as_bytes()).unwrap();
            for _ in 0..20 {
                read_answer(&mut stream);
            }
            let totals = server.stop(Signal::TERM);
            assert_eq!(totals["requests"], 20, "{model} {options:?}: {totals}");
        }
    }
}

#[test]
fn servers_share_a_port_when_told_to() {
    let first = Server::start(&["--model", "epoll-et", "--protocol", "echo", "--reuse-port"]);
    let address = first.address.to_string();
    let second =
        Server::start(&["--model", "poll", "--protocol", "echo", "--reuse-port", "--listen", &address]);
    assert_eq!(second.address, first.address);
    let alone = run(&mut ringroad(["lab", "server", "--model", "poll", "--listen", &address]));
    assert_eq!(alone.code, Some(1), "{alone:?}");
    for _ in 0..40 {
        let mut stream = connect(&first);
        stream.write_all(b"x").unwrap();
        stream.read_exact(&mut [0]).unwrap();
    }
    let accepted = |server: Server| server.stop(Signal::TERM)["accepted"].as_u64().unwrap();
    assert_eq!(accepted(first) + accepted(second), 40);
}

#[test]
fn a_server_on_the_engine_says_what_it_is_doing_when_a_signal_asks() {
    let mut command = ringroad(["lab", "server", "--model", "engine-epoll", "--protocol", "echo"]);
    let mut process = Kill(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let lines = Lines::of(process.0.stdout.take().unwrap());
    let told = Lines::of(process.0.stderr.take().unwrap());
    let line = lines.next().unwrap();
    let mut client = TcpStream::connect(line.strip_prefix("listening on ").unwrap()).unwrap();
    client.set_read_timeout(Some(DEADLINE)).unwrap();
    // It runs, and has us.
    client.write_all(b"there?").unwrap();
    client.read_exact(&mut [0; 6]).unwrap();
    process.signal(Signal::USR1);
    let dump: Vec<_> =
        std::iter::from_fn(|| told.next().filter(|line| !line.starts_with("counters:"))).collect();
    let says = |part: &str| assert!(dump.iter().any(|line| line.contains(part)), "{part} in {dump:#?}");
    says("runtime 0 (epoll, thread ");
    says(" accept ");
    says(&format!("{}) ", client.local_addr().unwrap()));
    says("1 tasks, 0 ready");
    process.signal(Signal::TERM);
    drop(client);
    assert_eq!(process.wait(), Some(0));
}
