//! `ringroad load --hold` as users run it.

use crate::support::{Kill, Lines, Server, ringroad, run};
use rustix::process::Signal;
use serde_json::Value;
use std::process::Stdio;
use std::time::{Duration, Instant};

#[test]
fn a_server_that_bears_it_is_healthy_and_the_record_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("held.json");
    let server = Server::start(&["--model", "epoll-et", "--protocol", "echo"]);
    let url = format!("tcp://{}", server.address);
    let words = ["load", &url, "--hold", "-c", "3", "--heartbeat", "1s", "-d", "2s", "--out"];
    let hold = |_| {
        let outcome = run(ringroad(words).arg(&file));
        let record: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        (outcome, record)
    };
    // A heartbeat that has not begun by the end, since the machine had no time for it, is not counted.
    let is_whole = |(_, record): &(_, Value)| record["cells"][0]["details"]["held"]["heartbeats"] == 6;
    let (outcome, record) = (0..10).map(hold).find(is_whole).expect("two heartbeats of each");
    let text = outcome.text();
    let held = &record["cells"][0]["details"]["held"];
    assert_eq!(
        (&held["opened"], &held["survived"], &held["lost"]),
        (&3.into(), &3.into(), &0.into()),
        "{text}"
    );
    assert!(text.contains("3 connections, held, a heartbeat every 1s"), "{text}");
    assert!(text.contains("3 of 3 connections survived: 100 %"), "{text}");
    // Whether each heartbeat left in time is up to the machine; what is made of that is not.
    let expected = match (record["verdict"]["level"].as_str().unwrap(), held["health"].as_str().unwrap()) {
        ("INVALID", _) => 5,
        (_, "healthy" | "doubtful") => 0,
        _ => 1,
    };
    assert_eq!(outcome.code, Some(expected), "{text}{}", outcome.stderr);
    server.stop(Signal::INT);
}

#[test]
fn a_server_that_goes_away_is_unavailable_after_the_allowed_tries_and_that_exits_with_1() {
    let server = Server::start(&["--model", "epoll-et", "--protocol", "http"]);
    let url = format!("http://{}/", server.address);
    let arguments = ["--hold", "-c", "2", "--heartbeat", "100ms", "-d", "1h", "--retry-limit", "2"];
    let mut command = ringroad(["load", &url].iter().chain(&arguments));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = Kill(command.spawn().unwrap());
    let told = Lines::of(process.0.stderr.take().unwrap());
    let out = Lines::of(process.0.stdout.take().unwrap());
    // A second of it has gone by when its line is there.
    while !told.next().unwrap().contains("p50") {}
    server.stop(Signal::INT);
    let code = process.wait();
    let text = out.rest().join("\n");
    // Late heartbeats of a machine that is busy elsewhere outrank it.
    assert_eq!(code, Some(if text.contains("\nINVALID") { 5 } else { 1 }), "{text}");
    assert!(text.contains("health     unavailable") && text.contains("gave up    2 connections"), "{text}");
    let last = told.rest().pop().unwrap();
    assert!(
        last.starts_with(&format!("ringroad: hold, on {url}: unavailable: it was unreachable after ")),
        "{last}"
    );
}

#[test]
fn connections_are_held_to_the_end_though_no_more_heartbeats_are_due() {
    let server = Server::start(&["--model", "epoll-et", "--protocol", "echo"]);
    let url = format!("tcp://{}", server.address);
    let begun = Instant::now();
    let outcome = run(&mut ringroad([
        "load",
        &url,
        "--hold",
        "-c",
        "2",
        "--heartbeat",
        "1h",
        "-d",
        "2s",
        "--warmup",
        "0s",
    ]));
    let text = outcome.text();
    assert!(begun.elapsed() >= Duration::from_secs(2), "{text}");
    assert!(text.contains("2 of 2 connections survived"), "{text}");
    server.stop(Signal::INT);
}

#[test]
fn what_does_not_go_with_holding_is_refused() {
    for (arguments, why) in [
        (&["--heartbeat", "1s"][..], "--hold"),
        (&["--hold", "-r", "5"], "--rate"),
        (&["--hold", "-n", "5"], "--requests"),
        (&["--hold", "-p", "2"], "--pipeline"),
        (&["--hold", "--retry-limit", "0"], "--retry-limit"),
        (&["--hold", "--heartbeat", "1ms"], "--heartbeat"),
    ] {
        let outcome = run(&mut ringroad(["load", "http://127.0.0.1:9/"].iter().chain(arguments)));
        assert_eq!(outcome.code, Some(2), "{arguments:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(why), "{arguments:?}: {}", outcome.stderr);
    }
}
