//! `ringroad load --processes`: several processes are one load, and one that is lost is not overlooked.

use crate::ports::nowhere;
use crate::support::{Kill, Lines, Server, own_copy, ringroad, run, until};
use ringroad_measure::Histogram;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

fn record(file: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

#[test]
fn counts_and_histograms_are_added_exactly_in_closed_and_in_open_loop() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.json");
    for pace in [&["-n", "500"][..], &["-r", "500", "-d", "1s", "--warmup", "0s"]] {
        let server = Server::start(&["--model", "poll", "--protocol", "http"]);
        let url = format!("http://{}/", server.address);
        let fixed = ["load", &url, "-c", "7", "--processes", "3", "--out", file.to_str().unwrap()];
        let outcome = run(&mut ringroad(fixed.iter().chain(pace)));
        let (text, record) = (outcome.text(), record(&file));
        let cell = &record["cells"][0];
        assert_eq!(
            (&cell["sent"], &cell["completed"]),
            (&500.into(), &500.into()),
            "{text}{}",
            outcome.stderr
        );
        // One is asked before the load, by the first process alone.
        assert_eq!(server.stop(Signal::TERM)["requests"], 501);
        let histogram = Histogram::from_base64(cell["histogram"].as_str().unwrap()).unwrap();
        assert_eq!((histogram.count(), cell["connections"].as_u64()), (500, Some(7)));
        assert!(text.contains("7 connections") && text.contains("3 processes of 1 thread on"), "{text}");
        let series = cell["series"].as_array().unwrap();
        let told = series.iter().map(|point| point["completed"].as_u64().unwrap()).sum::<u64>();
        // Of a load with a length, an answer may come after its end; it is in the histogram, and in no
        // second.
        assert!(told == 500 || told < 500 && pace.contains(&"-d"), "{told} of {pace:?}: {text}");
    }
}

/// Two processes under a path of their own that hold connections until the server is gone.
struct Holding {
    server: Server,
    process: Kill,
    told: Lines,
    out: Lines,
    copy: String,
}

fn hold(folder: &Path, more: &[&str]) -> Holding {
    let server = Server::start(&["--model", "epoll-et", "--protocol", "http"]);
    let copy = own_copy(folder);
    let url = format!("http://{}/", server.address);
    let mut command = Command::new(&copy);
    command.args(["load", &url, "--hold", "-c", "4", "--heartbeat", "100ms", "-d", "1h"]);
    command.args(["--retry-limit", "1", "--processes", "2"]).args(more);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = Kill(command.spawn().unwrap());
    let told = Lines::of(process.0.stderr.take().unwrap());
    let out = Lines::of(process.0.stdout.take().unwrap());
    // A second of it has gone by, of both processes, when its line is there.
    while !told.next().unwrap().contains("p50") {}
    Holding { server, process, told, out, copy: copy.to_str().unwrap().to_owned() }
}

/// The processes with both in their command lines.
fn parts(copy: &str, part: &str) -> Vec<Pid> {
    let of = |entry: std::fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let words = std::fs::read(entry.path().join("cmdline")).ok()?;
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        (words.contains(copy) && words.contains(part)).then(|| Pid::from_raw(pid).unwrap())
    };
    std::fs::read_dir("/proc").unwrap().flatten().filter_map(of).collect()
}

#[test]
fn a_process_that_is_killed_makes_the_run_invalid_unless_one_may_be_lost() {
    for more in [&[][..], &["--allow-lost", "1"]] {
        let folder = tempfile::tempdir().unwrap();
        let mut holding = hold(folder.path(), more);
        let [part] = parts(&holding.copy, "--process-part=1")[..] else {
            panic!("one process has this part")
        };
        kill_process(part, Signal::KILL).unwrap();
        // Then the other has no server, and ends.
        holding.server.stop(Signal::INT);
        let code = holding.process.wait();
        let text = holding.out.rest().join("\n");
        assert!(text.contains("process 2 of 2 was lost (ended by signal 9)"), "{text}");
        assert!(text.contains("gave up    2 connections"), "{text}");
        // Reasons come worst first; a machine that is busy elsewhere may have others.
        let is_invalid = text.contains("\nINVALID\n");
        if more.is_empty() {
            assert!(is_invalid, "{text}");
        } else {
            assert!(!text.contains("\nINVALID\n  process 2 of 2 was lost"), "{text}");
        }
        assert_eq!(code, Some(if is_invalid { 5 } else { 1 }), "{text}");
    }
}

#[test]
fn when_none_is_left_the_load_has_failed() {
    let folder = tempfile::tempdir().unwrap();
    let mut holding = hold(folder.path(), &[]);
    for part in parts(&holding.copy, "--process-part=") {
        kill_process(part, Signal::KILL).unwrap();
    }
    assert_eq!(holding.process.wait(), Some(1));
    let last = holding.told.rest().pop().unwrap();
    assert!(last.contains("no process of the load is left: process 1 of 2 was lost"), "{last}");
    holding.server.stop(Signal::INT);
}

#[test]
fn children_end_when_the_process_that_started_them_ends() {
    let folder = tempfile::tempdir().unwrap();
    let mut holding = hold(folder.path(), &[]);
    assert_eq!(parts(&holding.copy, "--process-part=").len(), 2);
    holding.process.signal(Signal::KILL);
    assert_eq!(holding.process.wait(), None);
    until("the parts end", || parts(&holding.copy, "--process-part=").is_empty());
    holding.server.stop(Signal::INT);
}

#[test]
fn what_fails_in_a_process_is_said_once() {
    let url = format!("http://{}/", nowhere());
    let outcome = run(&mut ringroad(["load", &url, "-c", "4", "--processes", "2", "-q"]));
    assert_eq!((outcome.code, outcome.stdout.len()), (Some(1), 0), "{}", outcome.stderr);
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
    let outcome = run(&mut ringroad(["load", &url, "-c", "4", "--processes", "5"]));
    assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
}
