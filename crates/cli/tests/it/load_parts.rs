//! `load --part` and `lab merge`: parts that know nothing of each other add up to one load.

use crate::serve::Serving;
use crate::support::{DEADLINE, Kill, Lines, Server, ringroad, run};
use ringroad_measure::Histogram;
use rustix::process::Signal;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

fn record(file: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

fn histogram(record: &Value) -> Histogram {
    Histogram::from_base64(record["cells"][0]["histogram"].as_str().unwrap()).unwrap()
}

/// This program, with no engine's variables around it.
fn part(words: &[&str], folder: &Path, more: &[String]) -> Command {
    let mut command = ringroad(words);
    command.args(["--post", folder.to_str().unwrap()]).args(more);
    for name in ["JOB_COMPLETION_INDEX", "RINGROAD_PARTS", "RINGROAD_START_AT", "SLURM_ARRAY_TASK_ID"] {
        command.env_remove(name);
    }
    command
}

fn merge(folder: &Path) -> (crate::support::Outcome, Value) {
    let out = folder.join("whole.json");
    let merged =
        run(&mut ringroad(["lab", "merge", folder.to_str().unwrap(), "--out", out.to_str().unwrap()]));
    let value = if out.exists() { record(&out) } else { Value::Null };
    (merged, value)
}

/// Parts with different numbers of threads, one of them found by what Kubernetes sets, one by Slurm's.
#[test]
fn three_parts_are_one_load_of_all_connections_and_requests() {
    for pace in [&["-n", "500"][..], &["-r", "500", "-d", "1s", "--warmup", "0s"]] {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(&["--model", "poll", "--protocol", "http"]);
        let url = format!("http://{}/", server.address);
        let words: Vec<&str> = ["load", &url, "-c", "7", "--no-ask"].iter().chain(pace).copied().collect();
        let mut first = part(&words, folder.path(), &["--part=1/3".into(), "-t2".into()]);
        let mut second = part(&words, folder.path(), &[]);
        second.env("JOB_COMPLETION_INDEX", "1").env("RINGROAD_PARTS", "3");
        let mut third = part(&words, folder.path(), &["--processes=2".into()]);
        third
            .env("SLURM_ARRAY_TASK_ID", "7")
            .env("SLURM_ARRAY_TASK_MIN", "5")
            .env("SLURM_ARRAY_TASK_COUNT", "3");
        let outcomes = [&mut first, &mut second, &mut third].map(run);
        let sent = |index: usize| {
            let name = format!("part-{index}-of-3.json");
            let value = record(&folder.path().join(name));
            let cell = &value["cells"][0];
            (cell["sent"].as_u64().unwrap(), cell["connections"].as_u64().unwrap(), histogram(&value))
        };
        let parts = [1, 2, 3].map(sent);
        let each = parts.iter().map(|part| (part.0, part.1)).collect::<Vec<_>>();
        assert_eq!(each, [(167, 3), (167, 2), (166, 2)], "{outcomes:?}");
        assert_eq!(server.stop(Signal::TERM)["requests"], 500);
        let (merged, value) = merge(folder.path());
        let cell = &value["cells"][0];
        assert_eq!((&cell["sent"], &cell["completed"]), (&500.into(), &500.into()), "{merged:?}");
        assert_eq!(cell["connections"], 7);
        let mut sum = Histogram::new();
        parts.iter().for_each(|part| sum.add(&part.2));
        assert_eq!(histogram(&value), sum);
        // One after the other is not together.
        assert_eq!(merged.code, Some(5), "{merged:?}");
        assert!(merged.text().contains("the parts began"), "{merged:?}");
    }
}

#[test]
fn parts_with_a_common_start_begin_together_and_a_missing_one_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&["--model", "epoll-et", "--protocol", "http"]);
    let url = format!("http://{}/", server.address);
    let words = ["load", &url, "-c", "4", "-r", "200", "-d", "2s", "--warmup", "0s"];
    // Soon, and later where this machine was too busy to start two programs and to connect until then.
    let begun = [2, 10, 60].into_iter().find(|seconds| {
        let start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + Duration::from_secs(*seconds);
        let start = format!("--start-at={}", start.as_secs_f64());
        let spawn = |part_of: &str| {
            let mut command = part(&words, folder.path(), &[format!("--part={part_of}"), start.clone()]);
            Kill(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
        };
        let mut parts = ["1/2", "2/2"].map(spawn);
        let codes = parts.each_mut().map(Kill::wait);
        codes.iter().all(|code| matches!(code, Some(0 | 5)))
    });
    assert!(begun.is_some());
    let (merged, value) = merge(folder.path());
    let details = &value["cells"][0]["details"];
    let began = |at: usize| details["parts"][at]["began_after_s"].as_f64().unwrap();
    assert_eq!(f64::min(began(0), began(1)), 0.0, "{merged:?}");
    assert_eq!(value["cells"][0]["rate_target"], 200.0);
    assert!(details.get("part").is_none());
    std::fs::remove_file(folder.path().join("part-1-of-2.json")).unwrap();
    let (merged, value) = merge(folder.path());
    assert_eq!((merged.code, &value["verdict"]["level"]), (Some(5), &"INVALID".into()), "{merged:?}");
    assert!(merged.text().contains("part 1 of 2 is missing"), "{merged:?}");
    // A file is read as a folder is.
    let (one, out) = (folder.path().join("part-2-of-2.json"), folder.path().join("alone.json"));
    let alone = run(ringroad(["lab", "merge", "--out"]).args([&out, &one]));
    assert_eq!((alone.code, &record(&out)["verdict"]["level"]), (Some(5), &"INVALID".into()), "{alone:?}");
    std::fs::create_dir(folder.path().join("none")).unwrap();
    let none = run(ringroad(["lab", "merge", "--out"]).args([&out, &folder.path().join("none")]));
    assert!(none.stderr.contains("neither record.json nor parts of a load are in it"), "{none:?}");
    // The same part again, by itself, is late: it is not put on.
    let late = run(&mut part(&words, folder.path(), &["--part=1/2".into(), "--start-at=1000000000".into()]));
    assert_eq!(late.code, Some(1), "{late:?}");
    assert!(late.stderr.contains("begin together or not at all"), "{late:?}");
    server.stop(Signal::INT);
}

#[test]
fn a_part_that_is_stopped_while_it_waits_for_the_start_sends_nothing() {
    for processes in ["--processes=1", "--processes=2"] {
        is_stopped_while_it_waits(processes);
    }
}

/// Starts a part of two connections, stops it before its start, and sees that it has sent nothing.
fn is_stopped_while_it_waits(processes: &str) {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + Duration::from_secs(3600);
    let words = ["load", &url, "-c", "4", "--no-ask", "--part=1/2", processes];
    let mut waits = part(&words, folder.path(), &[format!("--start-at={}", start.as_secs())]);
    let mut waits = Kill(waits.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let connections = [listener.accept().unwrap().0, listener.accept().unwrap().0];
    rustix::process::kill_process(rustix::process::Pid::from_child(&waits.0), Signal::TERM).unwrap();
    for mut connection in connections {
        let mut sent = Vec::new();
        connection.read_to_end(&mut sent).unwrap();
        assert_eq!(String::from_utf8_lossy(&sent), "");
    }
    assert_eq!(waits.wait(), Some(130));
    let told = record(&folder.path().join("part-1-of-2.json"));
    let cell = &told["cells"][0];
    assert!(cell["skipped"].as_str().unwrap().ends_with("interrupted before the load began"), "{told}");
    assert!(cell["sent"] == 0 && cell["details"]["part"]["told"].is_null(), "{told}");
}

#[test]
fn parts_that_could_not_be_one_load_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["load", "tcp://127.0.0.1:1", "-c", "4"];
    for (more, why) in [
        (&["--part=9/8"][..], "counted from 1 to N"),
        (&["--part=1/5"], "at most as many parts as -c"),
        (&["--part=1/2", "--repeat=3"], "--vs and --repeat"),
        (&["--part=1/2", "--start-at=noon"], "seconds since 1970"),
        (&["--part=1/2", "--clock-from=tcp://127.0.0.1:1"], "http:// or ntp://"),
        (&["--parts=4"], "which of them?"),
    ] {
        let more: Vec<String> = more.iter().map(|word| (*word).to_owned()).collect();
        let outcome = run(&mut part(&words, folder.path(), &more));
        assert_eq!(outcome.code, Some(2), "{more:?} {outcome:?}");
        assert!(outcome.stderr.contains(why), "{more:?} {outcome:?}");
    }
    let outcome = run(part(&words, folder.path(), &[]).env("JOB_COMPLETION_INDEX", "3"));
    assert!(outcome.code == Some(2) && outcome.stderr.contains("of how many?"), "{outcome:?}");
}

#[test]
fn a_clock_that_is_silent_gives_no_answer_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let web = TcpListener::bind("127.0.0.1:0").unwrap();
    let time = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    for (clock, what) in [
        (format!("http://{}/", web.local_addr().unwrap()), "read: no answer in time"),
        (format!("ntp://{}", time.local_addr().unwrap()), "receive: no answer in time"),
    ] {
        let more = ["--part=1/2".to_owned(), format!("--clock-from={clock}")];
        let outcome = run(&mut part(&["load", "tcp://127.0.0.1:1", "-c", "4"], folder.path(), &more));
        assert_eq!(outcome.code, Some(1), "{clock}: {outcome:?}");
        assert!(outcome.stderr.contains(what), "{clock}: {outcome:?}");
    }
}

#[test]
fn a_record_is_handed_over_to_a_server_that_first_refuses() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/records/", listener.local_addr().unwrap());
    let (tell, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut heard = Vec::new();
        for answer in ["503 Service Unavailable", "201 Created"] {
            let mut socket = BufReader::new(listener.accept().unwrap().0);
            let (mut head, mut length) = (String::new(), 0);
            while !head.ends_with("\r\n\r\n") {
                let mut line = String::new();
                socket.read_line(&mut line).unwrap();
                if let Some(value) = line.strip_prefix("Content-Length: ") {
                    length = value.trim().parse().unwrap();
                }
                head.push_str(&line);
            }
            let mut body = vec![0; length];
            socket.read_exact(&mut body).unwrap();
            write!(socket.get_mut(), "HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n").unwrap();
            heard.push((head, body));
        }
        tell.send(heard).unwrap();
    });
    let target = Server::start(&["--model", "poll", "--protocol", "echo"]);
    let load = format!("tcp://{}", target.address);
    let outcome = run(&mut ringroad(["load", &load, "-n", "8", "-c", "2", "--part=2/2", "--post", &url]));
    let heard = heard.recv_timeout(DEADLINE).unwrap_or_else(|_| panic!("{outcome:?}"));
    assert!(heard[1].0.starts_with("PUT /records/part-2-of-2.json HTTP/1.1\r\n"), "{heard:?}");
    assert!(outcome.stderr.contains("503 Service Unavailable"), "{outcome:?}");
    let value: Value = serde_json::from_slice(&heard[1].1).unwrap();
    assert_eq!(value["cells"][0]["completed"], 4);
    assert_eq!(heard[0].1, heard[1].1);
    target.stop(Signal::INT);
}

#[test]
fn one_signal_ends_the_wait_for_a_collector_that_is_silent() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/records/", listener.local_addr().unwrap());
    let target = Server::start(&["--model", "poll", "--protocol", "echo"]);
    let csv = folder.path().join("seconds.csv");
    let load = format!("tcp://{}", target.address);
    let mut command = ringroad(["load", &load, "-n", "8", "-c", "2", "--no-ask", "--post", &url]);
    command.arg("--csv").arg(&csv).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = Kill(command.spawn().unwrap());
    let errors = Lines::of(process.0.stderr.take().unwrap());
    // The record is on its way, and all of it is taken; no answer comes.
    let (mut collector, _) = listener.accept().unwrap();
    let mut head = [0; 12];
    collector.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"PUT /records");
    // What this machine keeps is written before.
    assert!(std::fs::read_to_string(&csv).unwrap().starts_with("at_s,"));
    process.signal(Signal::TERM);
    assert_eq!(process.wait(), Some(130));
    let said = errors.rest().join("\n");
    assert!(said.contains("stopped before it was taken (-o FILE keeps the record here)"), "{said}");
    target.stop(Signal::INT);
}

#[test]
fn parts_are_handed_over_to_an_upload_route_of_serve_and_merged_from_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("kept")).unwrap();
    let config = folder.path().join("ringroad.toml");
    let route = "[[route]]\npath = \"/results/\"\nkind = \"upload\"\nroot = \"kept\"\n";
    std::fs::write(&config, format!("listen = \"127.0.0.1:0\"\n{route}")).unwrap();
    let collector = Serving::of(&mut ringroad(["serve", "--config", config.to_str().unwrap()]));
    let target = Server::start(&["--model", "poll", "--protocol", "echo"]);
    let (url, post) = (format!("tcp://{}", target.address), format!("http://{}/results/", collector.address));
    let load = |index: usize| {
        let number = format!("--part={index}/2");
        run(&mut ringroad(["load", &url, "-n", "10", "-c", "2", "--no-ask", &number, "--post", &post]))
    };
    for index in 1..=2 {
        let outcome = load(index);
        assert!(matches!(outcome.code, Some(0 | 5)), "{outcome:?}");
    }
    let kept = folder.path().join("kept");
    let (merged, whole) = merge(&kept);
    assert_eq!(whole["cells"][0]["completed"], 10, "{merged:?}");
    // A result that is there is not replaced: the client is told, at once.
    let first = std::fs::read(kept.join("part-1-of-2.json")).unwrap();
    let again = load(1);
    assert_eq!(again.code, Some(1), "{again:?}");
    assert!(again.stderr.contains("PUT /results/part-1-of-2.json was answered"), "{}", again.stderr);
    assert_eq!(std::fs::read(kept.join("part-1-of-2.json")).unwrap(), first);
    target.stop(Signal::INT);
}

#[test]
fn a_plan_names_the_machines_and_the_limit_and_loads_nothing() {
    let words = ["load", "tcp://10.255.255.1:1", "-c", "1m", "--rate", "50k", "--plan"];
    let outcome = run(&mut ringroad(words));
    let text = outcome.text();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(text.starts_with("1000000 connections, "), "{text}");
    assert!(
        text.contains("local ports, 1 source address to 1 server") && text.contains("CPU: not measured"),
        "{text}"
    );
    assert!(text.contains("machines, limited by "), "{text}");
}
