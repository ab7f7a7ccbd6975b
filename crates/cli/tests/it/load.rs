//! `ringroad load` as users run it, against the reference servers. Nothing here depends on speed.

use crate::fifo::reader_of;
use crate::support::{Kill, Lines, Server, ringroad, run, run_with_input, until};
use ringroad_measure::Histogram;
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

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
    // One is asked before the load.
    assert_eq!(server.stop(Signal::TERM)["requests"], 501);
    let text = String::from_utf8(outcome.stdout).unwrap();
    assert!(text.contains("500 sent, 500 completed, 0 failed"), "{text}");
    assert!(!outcome.stderr.contains("this host can open"), "it is far from that: {}", outcome.stderr);
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
    let (verdict, rest) = outcome.stderr.split_once('\n').unwrap();
    assert!(verdict.starts_with("ringroad: SUSPECT: the measured window was"), "{verdict}");
    assert_eq!(rest, "ringroad: required connections>=3: it is 2\n");
    assert_eq!(with(&["--strict"]).code, Some(5));
    server.stop(Signal::INT);
}

#[test]
fn what_fails_for_the_most_part_is_invalid() {
    // An echo sends requests back, which are no answers.
    let server = Server::start(&["--model", "epoll-et", "--protocol", "echo"]);
    let url = format!("http://{}/", server.address);
    let outcome = load(&[&url, "-c", "1", "-n", "3"]);
    assert_eq!((outcome.code, outcome.stdout.len()), (Some(1), 0), "asked once: {}", outcome.stderr);
    assert!(outcome.stderr.contains("malformed answer"), "{}", outcome.stderr);
    let outcome = load(&[&url, "-c", "1", "-n", "3", "--no-ask"]);
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
        (&["http://localhost/", "--also", "tcp://other:7"], "tcp:// cannot be combined"),
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
    // More than descriptors, and more than there is memory for.
    for arguments in [&["--driver", "epoll", "-c", "4000000"][..], &["-c", "4294967295"]] {
        let outcome = load(&[&["http://127.0.0.1:9/"], arguments].concat());
        assert_eq!(outcome.code, Some(1));
        assert!(outcome.stderr.contains("are requested") || outcome.stderr.contains("would be needed"));
        assert!(outcome.stderr.contains("limited by"), "{}", outcome.stderr);
    }
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

/// The kernel takes connections and requests, and no answer comes.
#[test]
fn a_server_that_is_stopped_times_out_and_the_load_comes_to_its_end() {
    let server = Server::start(&["--model", "epoll-et", "--protocol", "http"]);
    server.signal(Signal::STOP);
    let outcome = load(&[&format!("http://{}/", server.address), "-c", "2", "-n", "2", "--timeout", "1s"]);
    server.signal(Signal::CONT);
    let text = String::from_utf8(outcome.stdout).unwrap();
    assert_eq!(outcome.code, Some(5), "{text}{}", outcome.stderr);
    assert!(text.contains("2 sent, 0 completed, 2 failed") && text.contains("no answer within 1s"), "{text}");
    server.stop(Signal::INT);
}

/// 200 requests a second are due while the server is stopped for half a second: a hundred of them wait, the
/// first of them all of that time. A client that stops asking would notice it twice.
#[test]
fn a_stall_of_the_server_counts_for_every_request_due_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.json");
    let server = Server::start(&["--model", "epoll-et", "--protocol", "http"]);
    let url = format!("http://{}/", server.address);
    let mut command = ringroad(["load", &url, "-c", "2", "-r", "200", "-d", "1h", "--warmup", "0s", "--out"]);
    command.arg(&file).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let before = Instant::now();
    let mut process = Kill(command.spawn().unwrap());
    let told = Lines::of(process.0.stderr.take().unwrap());
    let _out = Lines::of(process.0.stdout.take().unwrap());
    // `ringroad:    1 s     200 /s  p50 …`
    let second = || loop {
        let line = told.next().unwrap();
        if line.contains("p50") {
            return line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap();
        }
    };
    second();
    server.signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(500));
    server.signal(Signal::CONT);
    // The second that was under way, and one that began later: lines may have waited to be read. Seconds are
    // counted from a moment after the start of the program.
    let later = before.elapsed().as_secs() + 2;
    while second() < later {}
    process.signal(Signal::INT);
    assert_eq!(process.wait(), Some(130));
    let record: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let cell = &record["cells"][0];
    let histogram = Histogram::from_base64(cell["histogram"].as_str().unwrap()).unwrap();
    let waited =
        histogram.buckets().filter(|(ns, _)| *ns >= 200_000_000).map(|(_, count)| count).sum::<u64>();
    assert!(waited >= 50, "{waited} of {} waited", histogram.count());
    assert!(cell["latency_us"]["response"]["max"].as_f64().unwrap() >= 480_000.0);
    server.stop(Signal::INT);
}

#[test]
fn stages_are_told_one_by_one() {
    let server = Server::start(&["--model", "epoll-et", "--protocol", "http"]);
    let url = format!("http://{}/", server.address);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.json");
    let out = file.to_str().unwrap();
    let outcome = load(&[&url, "--stages", "100ms:1,100ms:2..3", "--warmup", "0s", "--out", out]);
    let record: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let stages = record["cells"][0]["details"]["stages"].as_array().unwrap();
    let levels: Vec<_> = stages.iter().map(|stage| (stage["from"].as_f64(), stage["to"].as_f64())).collect();
    assert_eq!(levels, [(Some(1.0), Some(1.0)), (Some(2.0), Some(3.0))]);
    let text = String::from_utf8(outcome.stdout).unwrap();
    assert!(text.contains("closed loop, in 2 stages"), "{text}");
    assert!(text.contains("\n  2 to 3 ") && text.contains("\n  1 "), "{text}");
    let outcome = load(&[&url, "--ramp", "1+1/100ms..3", "--warmup", "0s"]);
    let text = String::from_utf8(outcome.stdout).unwrap();
    assert!(text.contains("3 connections, closed loop, in 3 stages"), "{text}");
    server.stop(Signal::INT);
}

#[test]
fn a_knee_is_told_as_an_interval_with_all_its_probes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.json");
    // Four connections, and each answer takes 2 ms at least: 2000 a second are never met.
    let server = Server::start(&["--model", "threads", "--protocol", "http", "--delay-us", "2000"]);
    let url = format!("http://{}/", server.address);
    let short = ["-c", "4", "-r", "500", "-d", "200ms", "--warmup", "0s"];
    let arguments =
        [&[url.as_str(), "--knee", "p50<20ms", "--out", file.to_str().unwrap()], &short[..]].concat();
    let outcome = load(&arguments);
    let text = String::from_utf8(outcome.stdout).unwrap();
    let record: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let title = record["title"].as_str().unwrap();
    assert!(text.contains(&format!("knee: {title}")) && title.starts_with("p50<20ms is "), "{text}");
    let probes = record["cells"].as_array().unwrap().len();
    assert!(text.contains(&format!("{probes} probes")), "{text}");
    assert!(outcome.stderr.contains("not met: required p50<20ms"), "{}", outcome.stderr);
    server.stop(Signal::INT);
}

/// Each connection has to wait 5 ms for each answer, so four of them get 800 a second at most, and four more
/// in a window of any length: for any client, and however slow this machine is.
#[test]
fn wrk_the_labs_client_and_we_say_alike_what_a_server_of_known_delay_does() {
    const MOST: f64 = 812.0;
    let server = Server::start(&["--model", "threads", "--protocol", "http", "--delay-us", "5000"]);
    let url = format!("http://{}/", server.address);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.json");
    load(&[&url, "-c", "4", "-n", "200", "-q", "--no-ask", "--out", file.to_str().unwrap()]);
    let first_cell = |file: &Path| -> Value {
        let record: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        record["cells"][0].clone()
    };
    let ours = first_cell(&file);
    assert_eq!((&ours["sent"], &ours["completed"]), (&200.into(), &200.into()));
    let mut served = 200;
    if crate::support::installed("wrk") {
        let mut wrk = std::process::Command::new("wrk");
        let report = run(wrk.args(["-t1", "-c4", "-d1", "--timeout", "30", &url])).text();
        let rate = report.split("Requests/sec:").nth(1).unwrap().split_whitespace().next().unwrap();
        assert!(rate.parse::<f64>().unwrap() <= MOST, "{report}");
        let count = report.split(" requests in").next().unwrap().split_whitespace().next_back().unwrap();
        served += count.parse::<u64>().unwrap();
    }
    let requests = server.stop(Signal::INT)["requests"].as_u64().unwrap();
    // What was on its way when wrk stopped counting was served and not counted.
    assert!((served..=served + 4).contains(&requests), "{requests} served, {served} counted");

    let suite = folder.path().join("known.toml");
    let text = r#"title = "known delay"
warmup_s = 0.0
duration_s = 0.5
syscalls_s = 0.0
repeats = 1
[[server]]
id = "known"
command = ["{ringroad}", "lab", "server", "--model", "threads", "--protocol", "{protocol}", "--delay-us", "5000"]
ready = "listening on {addr}"
protocols = ["http"]
totals = true
[[load]]
id = "http"
protocol = "http"
connections = [4]
timeout_s = 30
"#;
    std::fs::write(&suite, text).unwrap();
    let out = folder.path().join("lab");
    let lab = run(ringroad(["lab", "run", "--out"]).arg(&out).arg(&suite));
    assert!(matches!(lab.code, Some(0 | 5)), "{lab:?}");
    for cell in [ours, first_cell(&out.join("record.json"))] {
        // Where the lab's window saw no answer at all, it says nothing, and nothing wrong.
        assert!(cell["rps"].as_f64().is_none_or(|rate| rate <= MOST), "{cell}");
        for figure in ["min", "p50"] {
            let said = cell["latency_us"]["response"][figure].as_f64();
            assert!(said.is_none_or(|us| us >= 4_990.0), "{cell}");
        }
    }
}

/// One request is due at the beginning, and none in what is left: that second counts all the same.
#[test]
fn a_rate_is_over_all_of_the_time_that_it_is_offered_in() {
    let server = Server::start(&["--model", "poll", "--protocol", "http"]);
    let url = format!("http://{}/", server.address);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.json");
    for processes in ["1", "2"] {
        let words =
            ["-c", "2", "-t", "1", "--warmup", "0s", "-r", "1", "-d", "1s", "--processes", processes, "-q"];
        let words =
            [&[&*url], &words[..], &["--out", file.to_str().unwrap(), "--require", "rps<=1.01"]].concat();
        let outcome = load(&words);
        // The verdict is about the machine too: a hypervisor that takes time makes it INVALID, which is 5.
        assert!(matches!(outcome.code, Some(0 | 5)), "{processes}: {outcome:?}");
        let record: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let cell = &record["cells"][0];
        assert!(cell["rps"].as_f64().unwrap() <= 1.01, "{processes}: {cell}");
        assert!(cell["duration_s"].as_f64().unwrap() >= 1.0, "{processes}: {cell}");
        // Of the same time, a share of what threads and the kernel's workers can do.
        assert!(cell["client_cpu_share"].as_f64().is_none_or(|share| share < 8.0), "{processes}: {cell}");
    }
    server.stop(Signal::INT);
}

/// Begins a long load, sends it signals once it measures, and checks that it says and writes what it has
/// measured.
fn ended_by(send: impl FnOnce(&Kill)) {
    let server = Server::start(&["--model", "poll", "--protocol", "http"]);
    let url = format!("http://{}/", server.address);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.json");
    let mut command = ringroad(["load", &url, "-c", "2", "-d", "600s", "--warmup", "0s", "-o"]);
    command.arg(&file).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut process = Kill(command.spawn().unwrap());
    let told = Lines::of(process.0.stderr.take().unwrap());
    let summary = Lines::of(process.0.stdout.take().unwrap());
    while !told.next().unwrap().contains("p50") {}
    send(&process);
    assert_eq!(process.wait(), Some(130));
    assert!(summary.rest().iter().any(|line| line.contains("answered in the window")));
    let record: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert!(record["cells"][0]["completed"].as_u64().unwrap() > 0);
    server.stop(Signal::INT);
}

#[test]
fn signals_together_are_one_wish_to_stop_and_lose_neither_summary_nor_record() {
    ended_by(|process| {
        // It finds all of them when it goes on, as from GNU timeout and a shell.
        process.signal(Signal::STOP);
        [Signal::INT, Signal::TERM, Signal::CONT].into_iter().for_each(|signal| process.signal(signal));
    });
}

#[test]
fn a_terminal_that_closes_costs_neither_summary_nor_record() {
    if ringroad_host::process::ignores(Signal::HUP.as_raw()) {
        // Started to outlive its terminal, and so is the program.
        return;
    }
    ended_by(|process| process.signal(Signal::HUP));
}

#[test]
fn a_later_signal_ends_it_at_once() {
    let server = Server::start(&["--model", "poll", "--protocol", "http"]);
    let url = format!("http://{}/", server.address);
    let mut command =
        ringroad(["load", &url, "-c", "2", "-d", "600s", "--warmup", "0s", "--timeout", "600s"]);
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
    let mut process = Kill(command.spawn().unwrap());
    let told = Lines::of(process.0.stderr.take().unwrap());
    while !told.next().unwrap().contains("p50") {}
    // It waits for the answers that are owed.
    server.signal(Signal::STOP);
    until("a signal ends it", || {
        process.signal(Signal::TERM);
        process.0.try_wait().unwrap().is_some()
    });
    server.signal(Signal::CONT);
    server.stop(Signal::INT);
}

#[test]
fn a_fifo_is_opened_once_and_waited_for_and_gets_the_whole_record() {
    use std::io::Read;
    let server = Server::start(&["--model", "poll", "--protocol", "http"]);
    let url = format!("http://{}/", server.address);
    let folder = tempfile::tempdir().unwrap();
    let (record, seconds) = (folder.path().join("record"), folder.path().join("seconds"));
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    for fifo in [&record, &seconds] {
        rustix::fs::mknodat(rustix::fs::CWD, fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    }
    let mut command = ringroad(["load", &url, "-c", "2", "-n", "20"]);
    command.arg("-o").arg(&record).arg("--csv").arg(&seconds);
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
    let mut process = Kill(command.spawn().unwrap());
    let told = Lines::of(process.0.stderr.take().unwrap());
    // Each is opened while it is waited for, and read to its end: a second opening would never be met.
    let readers = [record, seconds].map(|fifo| {
        assert!(told.next().unwrap().ends_with("waiting for a reader of this FIFO (Ctrl-C ends the wait)"));
        std::thread::spawn(move || {
            let mut text = String::new();
            reader_of(&fifo).read_to_string(&mut text).unwrap();
            text
        })
    });
    let [record, seconds] = readers.map(|reader| reader.join().unwrap());
    assert_eq!(serde_json::from_str::<Value>(&record).unwrap()["cells"][0]["completed"], 20);
    assert!(seconds.starts_with("at_s,"), "{seconds}");
    assert_eq!(process.wait(), Some(0));
    server.stop(Signal::INT);
}

/// The plan is made again after the first request to the server; what a pipe had is gone by then.
#[test]
fn urls_and_values_may_come_from_a_pipe_to_one_process() {
    let server = Server::start(&["--model", "epoll-et", "--protocol", "http"]);
    let url = format!("http://{}/", server.address);
    let few = ["-n", "6"];
    let from_pipe = |words: &[&str], input: &str| {
        run_with_input(&mut ringroad([&["load"], words, &few[..]].concat()), input.as_bytes())
    };
    let list = format!("{url}a\n{url}b\n");
    let outcome = from_pipe(&["--urls", "/dev/stdin"], &list);
    let text = String::from_utf8(outcome.stdout).unwrap();
    assert!(text.contains("6 sent, 6 completed, 0 failed"), "{text}{}", outcome.stderr);
    assert!(text.contains("/a") && text.contains("/b"), "{text}");
    let named = format!("{url}{{name}}");
    let outcome = from_pipe(&[&named, "--vars", "/dev/stdin"], "name\nx\ny\n");
    let text = String::from_utf8(outcome.stdout).unwrap();
    assert!(text.contains("6 sent, 6 completed, 0 failed"), "{text}{}", outcome.stderr);
    // Each of several processes would get a part of it, or nothing.
    for words in
        [&["--urls", "/dev/stdin"][..], &[&url, "-D", "/dev/stdin"], &[&named, "--vars", "/dev/stdin"]]
    {
        let outcome = from_pipe(&[words, &["--processes", "2", "-c", "2"]].concat(), &list);
        assert_eq!(outcome.code, Some(2), "{words:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains("only a regular file"), "{words:?}: {}", outcome.stderr);
    }
    server.stop(Signal::INT);
}

#[test]
fn an_input_without_an_end_is_refused() {
    let url = "http://127.0.0.1:1/";
    for words in [&["--urls", "/dev/zero"][..], &[url, "-D", "/dev/zero"], &[url, "--body", "@/dev/zero"]] {
        let outcome = run(&mut ringroad(["load", "-n", "1"].iter().chain(words)));
        assert_eq!(outcome.code, Some(1), "{words:?}: {}", outcome.stderr);
        let said = "/dev/zero: longer than 256 MiB, the most that is read of it";
        assert!(outcome.stderr.contains(said), "{words:?}: {}", outcome.stderr);
    }
}

#[test]
fn the_wait_for_a_reader_ends_by_a_signal() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let mut command = ringroad(["load", "http://127.0.0.1:9/", "-o"]);
    command.arg(&fifo).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
    let mut process = Kill(command.spawn().unwrap());
    let told = Lines::of(process.0.stderr.take().unwrap());
    assert!(told.next().unwrap().contains("waiting for a reader"));
    process.signal(Signal::TERM);
    assert_eq!(process.wait(), None, "by the signal");
}
