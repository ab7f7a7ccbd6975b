//! `ringroad load` past the limit of descriptors: connections without them, in the rings of as many threads
//! as that takes.

use crate::support::{BINARY, Outcome, Server, ringroad, run};
use rustix::process::Signal;
use serde_json::Value;
use std::process::{Command, Stdio};

/// The binary in a process that may have so many descriptors.
fn limited(descriptors: u32, arguments: &[&str]) -> Outcome {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n $0 && exec \"$@\"", &descriptors.to_string(), BINARY, "load"]);
    run(command.args(arguments).stdin(Stdio::null()))
}

/// Whether this kernel has it. If not, it says so.
fn is_to_be_had(server: &Server) -> bool {
    let url = format!("http://{}/", server.address);
    let outcome =
        run(&mut ringroad(["load", &url, "--driver", "io_uring", "--direct", "-c", "1", "-n", "1"]));
    let is_refused = outcome.code == Some(2) || outcome.stderr.contains("into_direct");
    if is_refused {
        eprintln!("skipped: {}", outcome.stderr);
    }
    !is_refused
}

#[test]
fn a_process_drives_several_times_as_many_connections_as_it_may_have_descriptors() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.json");
    for descriptors in [64, 128] {
        let connections = (descriptors * 4).to_string();
        for pace in [&["-n", "2000"][..], &["-n", "2000", "-r", "2000"]] {
            let server = Server::start(&["--model", "epoll-et", "--protocol", "http"]);
            if !is_to_be_had(&server) {
                return;
            }
            let url = format!("http://{}/", server.address);
            let fixed =
                [&url, "--driver", "io_uring", "-c", &connections, "--idle", "50", "--timeout", "100s"];
            let outcome =
                limited(descriptors, &[&fixed[..], pace, &["--out", file.to_str().unwrap()]].concat());
            let (text, told) = (outcome.text(), outcome.stderr);
            assert!(told.contains(&format!("(a process's limit: {descriptors})")), "{told}");
            assert!(text.contains("on io_uring, direct descriptors"), "{text}{told}");
            let record: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
            let cell = &record["cells"][0];
            assert_eq!((&cell["sent"], &cell["completed"]), (&2000.into(), &2000.into()), "{text}{told}");
            assert_eq!(cell["errors"]["connect"], 0, "{text}{told}");
            let made = descriptors * 4 + 50;
            assert!(
                text.contains(&format!("connections made {made}, ended by the server 0")),
                "{text}{told}"
            );
            // One of them was to find out, and each of the two loads asks once.
            assert_eq!(server.stop(Signal::TERM)["requests"], 2003);
        }
    }
}

#[test]
fn connections_without_descriptors_are_held_and_made_anew() {
    let server = Server::start(&["--model", "epoll-et", "--protocol", "http"]);
    if !is_to_be_had(&server) {
        return;
    }
    let url = format!("http://{}/", server.address);
    let held = ["--hold", "-c", "300", "--heartbeat", "1s", "-d", "2s", "--timeout", "100s"];
    let outcome = limited(64, &[&[&url[..], "--driver", "io_uring"], &held[..]].concat());
    let text = outcome.text();
    assert!(text.contains("300 connections, held") && text.contains("direct descriptors"), "{text}");
    assert!(text.contains("300 of 300 connections survived"), "{text}{}", outcome.stderr);
    // A connection for each request: each takes a place that another has left.
    let anew = ["--direct", "-c", "8", "-n", "1000", "--disable-keepalive", "--timeout", "100s"];
    let outcome = limited(64, &[&[&url[..], "--driver", "io_uring"], &anew[..]].concat());
    let text = outcome.text();
    assert!(text.contains("direct descriptors") && !text.contains("connect:"), "{text}{}", outcome.stderr);
    let requests = server.stop(Signal::TERM)["requests"].as_u64().unwrap();
    assert!(requests > 1000, "{requests}: {text}");
}

#[test]
fn where_connections_need_descriptors_it_says_what_would_do() {
    let url = "http://127.0.0.1:9/";
    let outcome = limited(128, &[url, "--driver", "epoll", "-c", "500"]);
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("or --driver io_uring, which needs no descriptor"), "{}", outcome.stderr);
    let outcome = limited(128, &[url, "--driver", "epoll", "--direct"]);
    assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
    assert!(
        outcome.stderr.contains("--processes N, which multiplies the limit on any driver"),
        "{}",
        outcome.stderr
    );
}
