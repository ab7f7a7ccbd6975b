//! `ringroad load` as users run it, against the reference servers. Nothing here depends on speed.

use crate::support::{Server, ringroad, run};
use rustix::process::Signal;
use serde_json::Value;

fn load(arguments: &[&str]) -> crate::support::Outcome {
    run(&mut ringroad(["load"].iter().chain(arguments)))
}

#[test]
fn the_record_the_summary_and_the_server_agree() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.json");
    let server = Server::start(&["--model", "poll", "--protocol", "http"]);
    let url = format!("http://{}/", server.address);
    let outcome = load(&[&url, "-c", "3", "-n", "500", "--out", file.to_str().unwrap()]);
    let record: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let cell = &record["cells"][0];
    assert_eq!((&record["schema"], &record["tool"]), (&"ringroad.record/1".into(), &"load".into()));
    assert_eq!((&cell["sent"], &cell["completed"]), (&500.into(), &500.into()));
    assert_eq!((&cell["loop"], &cell["payload_bytes"]), (&"closed".into(), &20.into()));
    assert_eq!(server.stop(Signal::TERM)["requests"], 500);
    let text = String::from_utf8(outcome.stdout).unwrap();
    assert!(text.contains("500 sent, 500 completed, 0 failed"), "{text}");
    assert!(outcome.stderr.contains("this host can open"), "{}", outcome.stderr);
    // So short a window is doubted, and a doubt is no failure.
    assert_eq!((outcome.code, record["verdict"]["level"].as_str()), (Some(0), Some("SUSPECT")), "{text}");
    // Others read it.
    let report = run(&mut ringroad(["lab", "report", file.to_str().unwrap()]));
    assert_eq!(report.code, Some(0), "{}", report.stderr);
}

#[test]
fn a_demand_that_is_not_met_exits_with_1_and_a_doubt_with_5_where_it_is_to() {
    let server = Server::start(&["--model", "epoll-et", "--protocol", "echo"]);
    let url = format!("tcp://{}", server.address);
    let few = ["-c", "2", "-n", "20", "-q"];
    let with = |more: &[&str]| load(&[&[url.as_str()], &few[..], more].concat());
    assert_eq!(with(&["--require", "connections>=2"]).code, Some(0));
    let outcome = with(&["--require", "connections>=3", "--require", "p50<1s"]);
    assert_eq!((outcome.code, outcome.stdout.len()), (Some(1), 0));
    assert_eq!(outcome.stderr, "ringroad: required connections>=3: it is 2\n");
    assert_eq!(with(&["--strict"]).code, Some(5));
    server.stop(Signal::INT);
}

#[test]
fn what_fails_for_the_most_part_is_invalid() {
    // An echo sends requests back, which are no answers.
    let server = Server::start(&["--model", "epoll-et", "--protocol", "echo"]);
    let outcome = load(&[&format!("http://{}/", server.address), "-c", "1", "-n", "3"]);
    let text = String::from_utf8(outcome.stdout).unwrap();
    assert_eq!(outcome.code, Some(5), "{text}");
    assert!(
        text.contains("3 failed") && text.contains("malformed answer") && text.contains("INVALID"),
        "{text}"
    );
    server.stop(Signal::INT);
}

#[test]
fn what_makes_no_sense_is_refused_with_2_before_anything_is_sent() {
    for (arguments, why) in [
        (&["ftp://localhost/"][..], "unknown scheme"),
        (&["tcp://localhost"], "no port"),
        (&["http://localhost/", "-c", "0"], "-c 0"),
        (&["http://localhost/", "--length", "5"], "tcp://"),
        (&["tcp://localhost:7", "-X", "PUT"], "HTTP"),
        (&["http://localhost/", "--also", "http://other/"], "another server"),
        (&["http://localhost/", "--require", "p99<5"], "unit"),
        (&["http://localhost/", "-H", "no colon"], "no colon"),
        (&["http://localhost/", "-r", "5", "-p", "2"], "--pipeline"),
        (&["http://localhost/", "--poisson"], "--rate"),
        (&["http://localhost/", "-d", "soon"], "10s"),
        (&["http://localhost/ 0"], "weight"),
    ] {
        let outcome = load(arguments);
        assert_eq!((outcome.code, outcome.stdout.len()), (Some(2), 0), "{arguments:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(why), "{arguments:?}: {}", outcome.stderr);
    }
}

#[test]
fn more_connections_than_this_host_can_open_are_refused_with_what_limits_them() {
    let outcome = load(&["http://127.0.0.1:9/", "-c", "4000000"]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.stderr.contains("limited by"), "{}", outcome.stderr);
}

#[test]
fn a_load_that_is_interrupted_tells_what_there_was_and_exits_with_130() {
    let server = Server::start(&["--model", "epoll-et", "--protocol", "http"]);
    let mut command =
        ringroad(["load", &format!("http://{}/", server.address), "-c", "1", "-d", "1h", "--warmup", "0s"]);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut process = crate::support::Kill(command.spawn().unwrap());
    let told = crate::support::Lines::of(process.0.stderr.take().unwrap());
    let out = crate::support::Lines::of(process.0.stdout.take().unwrap());
    // A second of it has been measured when its line is there.
    while !told.next().unwrap().contains("p50") {}
    process.signal(Signal::INT);
    assert_eq!(process.wait(), Some(130));
    assert!(out.rest().iter().any(|line| line.contains("the run was stopped")));
    server.stop(Signal::INT);
}
