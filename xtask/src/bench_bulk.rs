//! `cargo xtask bench bulk`: what large bodies cost. An upload that a handler writes to a file (beside axum),
//! a download that a client writes to a file, and a TCP proxy of plain receives and sends (beside haproxy),
//! each on io_uring and on epoll.
//!
//! Each block runs every contestant of every question once, in a new random order, each in a fresh process;
//! ratios are taken within blocks. The figure is CPU time of all threads. The other side is plain sockets of
//! this process, on the CPUs that the lab gives to clients. Start at [`bench`].

use crate::peers::{self, Server};
use crate::recorded::{self, number};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use ringroad_host::cpu::ProcessClock;
use ringroad_measure::summary::median;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

const USAGE: &str = "usage: cargo xtask bench bulk [OPTION VALUE]...
  --only LIST     of upload, download, proxy-1, proxy-16 (default: all)
  --repeats N     blocks (default: 6)
  --percent N     of the bytes of a full run (default: 100)
  --seed N        of the random order (default: by the clock; it is in the record)
  --out DIR       gets bulk/record.json and bulk/table.md (default: docs/results)";

/// What is asked: name, bytes, connections, and the contestants, of which ratios are to the last.
const QUESTIONS: [Question; 4] = [
    Question {
        name: "upload",
        bytes: 500 << 20,
        connections: 1,
        contestants: &["io_uring", "epoll", "axum"],
    },
    Question { name: "download", bytes: 256 << 20, connections: 1, contestants: &["io_uring", "epoll"] },
    Question {
        name: "proxy-1",
        bytes: 2 << 30,
        connections: 1,
        contestants: &["io_uring", "epoll", "haproxy"],
    },
    Question {
        name: "proxy-16",
        bytes: 2 << 30,
        connections: 16,
        contestants: &["io_uring", "epoll", "haproxy"],
    },
];

#[derive(Clone, Copy, Debug)]
struct Question {
    name: &'static str,
    bytes: u64,
    connections: u64,
    contestants: &'static [&'static str],
}

/// Bytes written or read at a time by this process.
const STEP: usize = 128 << 10;

#[derive(Debug)]
struct Plan {
    only: Vec<String>,
    repeats: usize,
    percent: u64,
    seed: u64,
    out: PathBuf,
}

impl Plan {
    fn parse(root: &Path, words: &[String]) -> Result<Plan, String> {
        let mut plan = Plan {
            only: Vec::new(),
            repeats: 6,
            percent: 100,
            seed: fastrand::u64(0..1 << 32),
            out: root.join("docs/results"),
        };
        recorded::options(words, |pair| {
            match pair.option {
                "--only" => plan.only = pair.list(),
                "--repeats" => plan.repeats = pair.count()?,
                "--percent" => plan.percent = pair.number()?.clamp(1, 100),
                "--seed" => plan.seed = pair.number()?,
                "--out" => plan.out = PathBuf::from(pair.value),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(plan)
    }
}

/// Runs the bench and leaves record and table; exit code 1 when a run failed.
pub(crate) fn bench(root: &Path, words: &[String]) -> ExitCode {
    recorded::bench("bulk", USAGE, Plan::parse(root, words), |plan| run(root, plan))
}

/// What one run cost the contestant.
#[derive(Clone, Copy, Debug)]
struct Cost {
    cpu_s: f64,
    wall_s: f64,
}

/// The costs of a question's contestants, block by block.
struct Asked {
    question: Question,
    costs: Vec<Vec<Cost>>,
}

/// The programs that are measured, and where they may write.
struct Bench {
    peer: PathBuf,
    proxy: PathBuf,
    folder: tempfile::TempDir,
    server: Vec<u32>,
    client: Vec<u32>,
}

fn run(root: &Path, plan: &Plan) -> io::Result<String> {
    let mut questions = QUESTIONS.to_vec();
    recorded::keep_only(&mut questions, &plan.only, "question", |question| question.name)?;
    let bench = Bench::build(root)?;
    let mut all: Vec<Asked> = questions
        .into_iter()
        .map(|question| Asked {
            question: Question { bytes: question.bytes / 100 * plan.percent, ..question },
            costs: vec![Vec::new(); question.contestants.len()],
        })
        .collect();
    let mut random = fastrand::Rng::with_seed(plan.seed);
    for block in 1..=plan.repeats {
        eprintln!("block {block} of {}", plan.repeats);
        for asked in &mut all {
            let mut order: Vec<usize> = (0..asked.costs.len()).collect();
            random.shuffle(&mut order);
            for at in order {
                let (Some(name), Some(costs)) = (asked.question.contestants.get(at), asked.costs.get_mut(at))
                else {
                    continue;
                };
                costs.push(bench.ask(&asked.question, name)?);
            }
        }
    }
    let record = record(plan, &all);
    let table = table(&record);
    recorded::leave(&plan.out, "bulk", &record, &table)?;
    Ok(table)
}

impl Bench {
    fn build(root: &Path) -> io::Result<Bench> {
        let cargo = |arguments: &[&str], folder: PathBuf| {
            let status = Command::new(env!("CARGO"))
                .current_dir(folder)
                .args(["build", "--release", "--quiet"])
                .args(arguments)
                .status()?;
            if status.success() {
                Ok(())
            } else {
                Err(io::Error::other(format!("a build ended with {status}")))
            }
        };
        let built = peers::folder(root)?.join("build");
        let into = built.to_string_lossy().into_owned();
        cargo(&["--example", "peer-bulk", "--target-dir", &into], root.join("peers/bulk"))?;
        cargo(&["--package", "ringroad", "--example", "proxy", "--target-dir", &into], root.to_owned())?;
        let (server, client, _) = peers::cores();
        Ok(Bench {
            peer: built.join("release/examples/peer-bulk"),
            proxy: built.join("release/examples/proxy"),
            // Beside the build: a real file system, where `/tmp` may be memory.
            folder: tempfile::tempdir_in(&built)?,
            server,
            client,
        })
    }

    fn ask(&self, question: &Question, contestant: &str) -> io::Result<Cost> {
        match question.name {
            "upload" => self.upload(contestant, question.bytes),
            "download" => self.download(contestant, question.bytes),
            _ => self.proxy(contestant, question.connections, question.bytes),
        }
    }

    /// Sends a body to a server that writes it to a file.
    fn upload(&self, contestant: &str, bytes: u64) -> io::Result<Cost> {
        let address = peers::free_address()?;
        let folder = tempfile::tempdir_in(self.folder.path())?;
        let whose = if contestant == "axum" { "axum" } else { "ours" };
        let mut command = Command::new(&self.peer);
        command.args(["upload", whose, &address.to_string()]).arg(folder.path().join("body"));
        let server = Server::start(command.env("RINGROAD_DRIVER", contestant), address, &self.server)?;
        self.measured(&server, || {
            let mut stream = TcpStream::connect(address)?;
            let head = format!(
                "PUT /body HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {bytes}\r\n\r\n"
            );
            stream.write_all(head.as_bytes())?;
            send(&mut stream, bytes)?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            if answer.ends_with(&format!("\r\n\r\n{bytes}")) { Ok(()) } else { Err(io::Error::other(answer)) }
        })
    }

    /// Has a client write an answer to a file. Its whole process counts.
    fn download(&self, driver: &str, bytes: u64) -> io::Result<Cost> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let server = peers::on(&self.client, || {
            Ok(thread::spawn(move || -> io::Result<()> {
                let (mut stream, _) = listener.accept()?;
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte)?;
                    request.extend(byte);
                }
                write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n")?;
                send(&mut stream, bytes)
            }))
        })?;
        let file = self.folder.path().join("download");
        let (began, before) = (Instant::now(), children_s()?);
        let mut command = Command::new(&self.peer);
        command.args(["download", &address.to_string()]).arg(&file).env("RINGROAD_DRIVER", driver);
        let told = peers::on(&self.server, || command.output())?;
        let cost = Cost { cpu_s: children_s()? - before, wall_s: began.elapsed().as_secs_f64() };
        if !told.stdout.starts_with(format!("{bytes} bytes").as_bytes()) {
            return Err(io::Error::other(format!("the client of {driver}: {told:?}")));
        }
        server.join().map_err(|_| io::Error::other("the thread that serves the download panicked"))??;
        std::fs::remove_file(file)?;
        Ok(cost)
    }

    /// Sends bytes through a proxy to a sink.
    fn proxy(&self, contestant: &str, connections: u64, bytes: u64) -> io::Result<Cost> {
        let sink = Sink::start(&self.client)?;
        let address = peers::free_address()?;
        let mut command = if contestant == "haproxy" {
            let file = self.folder.path().join("haproxy.cfg");
            std::fs::write(&file, haproxy(address, sink.address))?;
            let mut command = Command::new("haproxy");
            // Debian has it where only root looks.
            let path = std::env::var("PATH").unwrap_or_default();
            command.env("PATH", format!("{path}:/usr/sbin:/usr/local/sbin")).arg("-f").arg(file);
            command
        } else {
            let mut command = Command::new(&self.proxy);
            command.args([address.to_string(), sink.address.to_string()]).env("RINGROAD_DRIVER", contestant);
            command
        };
        let server = Server::start(&mut command, address, &self.server)?;
        let each = bytes / connections;
        let cost = self.measured(&server, || {
            let senders: Vec<_> = (0..connections)
                .map(|_| {
                    thread::spawn(move || -> io::Result<()> {
                        let mut stream = TcpStream::connect(address)?;
                        send(&mut stream, each)?;
                        stream.shutdown(Shutdown::Write)?;
                        // The end comes when the sink has read all.
                        stream.read_to_end(&mut Vec::new()).map(|_| ())
                    })
                })
                .collect();
            for sender in senders {
                sender.join().map_err(|_| io::Error::other("a sender panicked"))??;
            }
            Ok(())
        })?;
        let got = sink.received.load(Ordering::Acquire);
        if got != each * connections {
            return Err(io::Error::other(format!("{contestant} passed on {got} of {bytes} bytes")));
        }
        Ok(cost)
    }

    /// What `work`, on the clients' CPUs, costs the server.
    fn measured(&self, server: &Server, work: impl FnOnce() -> io::Result<()>) -> io::Result<Cost> {
        let clock = ProcessClock::of(server.pid())?;
        let (began, before) = (Instant::now(), clock.read()?);
        peers::on(&self.client, work)?;
        let cpu = clock.read()?.saturating_sub(before);
        Ok(Cost { cpu_s: cpu.as_secs_f64(), wall_s: began.elapsed().as_secs_f64() })
    }
}

/// Reads all that is sent to it, on connections that come at any time.
struct Sink {
    address: SocketAddr,
    received: Arc<AtomicU64>,
}

impl Sink {
    /// Its threads end with this process; each waits for a connection, or for the end of one.
    fn start(cpus: &[u32]) -> io::Result<Sink> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let sink = Sink { address: listener.local_addr()?, received: Arc::default() };
        let received = Arc::clone(&sink.received);
        peers::on(cpus, || {
            thread::spawn(move || {
                for stream in listener.incoming() {
                    let (Ok(mut stream), received) = (stream, Arc::clone(&received)) else { return };
                    thread::spawn(move || {
                        let mut room = vec![0; STEP];
                        while let Ok(bytes @ 1..) = stream.read(&mut room) {
                            received.fetch_add(bytes as u64, Ordering::Release);
                        }
                    });
                }
            });
            Ok(())
        })?;
        Ok(sink)
    }
}

fn haproxy(listen: SocketAddr, target: SocketAddr) -> String {
    format!(
        "global\n nbthread 1\n maxconn 1000\ndefaults\n mode tcp\n timeout connect 5s\n timeout client 60s\n \
         timeout server 60s\nlisten bulk\n bind {listen}\n server sink {target}\n"
    )
}

fn send(stream: &mut TcpStream, bytes: u64) -> io::Result<()> {
    let step = vec![b'x'; STEP];
    let mut left = bytes;
    while left > 0 {
        let part = step.get(..left.min(STEP as u64) as usize).unwrap_or_default();
        stream.write_all(part)?;
        left -= part.len() as u64;
    }
    Ok(())
}

/// CPU time of the children that have ended.
fn children_s() -> io::Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    Ok((usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64 / 1e6)
}

fn record(plan: &Plan, all: &[Asked]) -> Value {
    let questions = all.iter().map(|Asked { question, costs }| {
        let contestants = question.contestants.iter().zip(costs).map(|(name, own)| {
            let over = |other: Option<&Vec<Cost>>| {
                let pairs = own.iter().zip(other.into_iter().flatten());
                median(&pairs.map(|(one, other)| one.cpu_s / other.cpu_s).collect::<Vec<_>>())
            };
            json!({
                "name": name,
                "cpu_s": own.iter().map(|cost| cost.cpu_s).collect::<Vec<_>>(),
                "wall_s": own.iter().map(|cost| cost.wall_s).collect::<Vec<_>>(),
                "cpu_s_median": median(&own.iter().map(|cost| cost.cpu_s).collect::<Vec<_>>()),
                "wall_s_median": median(&own.iter().map(|cost| cost.wall_s).collect::<Vec<_>>()),
                "cpu_over_epoll": over(costs.get(1)),
                "cpu_over_last": over(costs.last()),
            })
        });
        json!({
            "question": question.name,
            "bytes": question.bytes,
            "connections": question.connections,
            "contestants": contestants.collect::<Vec<_>>(),
        })
    });
    let questions: Vec<Value> = questions.collect();
    let fields = json!({ "repeats": plan.repeats, "seed": plan.seed, "questions": questions });
    recorded::record("bulk", fields)
}

/// The record as a page: a pure function, so that it can be made again.
fn table(record: &Value) -> String {
    let mut text = format!(
        "Medians of {} blocks; ratios of CPU time are taken within blocks, the last to axum, epoll or haproxy.\n\n\
         | question | bytes | contestant | CPU, s | wall, s | CPU over epoll | CPU over the last |\n\
         |---|---|---|---|---|---|---|\n",
        record["repeats"]
    );
    for question in record["questions"].as_array().into_iter().flatten() {
        for one in question["contestants"].as_array().into_iter().flatten() {
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} |",
                question["question"].as_str().unwrap_or_default(),
                question["bytes"],
                one["name"].as_str().unwrap_or_default(),
                number(&one["cpu_s_median"], 3),
                number(&one["wall_s_median"], 3),
                number(&one["cpu_over_epoll"], 2),
                number(&one["cpu_over_last"], 2),
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn ratios_are_taken_within_blocks_and_to_the_last_contestant() {
        let costs = |all: [f64; 3]| all.map(|cpu_s| Cost { cpu_s, wall_s: 1.0 }).to_vec();
        let asked = Asked {
            question: QUESTIONS[0],
            costs: vec![costs([1.0, 20.0, 3.0]), costs([1.0, 10.0, 4.0]), costs([2.0, 40.0, 4.0])],
        };
        let plan = Plan::parse(Path::new("/"), &[]).unwrap();
        let text = table(&record(&plan, &[asked]));
        let row = text.lines().find(|line| line.contains("io_uring")).unwrap();
        assert_eq!(row, "| upload | 524288000 | io_uring | 3.000 | 1.000 | 1.00 | 0.50 |");
    }

    #[test]
    fn a_mistake_in_an_option_is_told() {
        for words in [&["--repeats", "many"][..], &["--only"], &["--what", "1"]] {
            let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
            assert!(Plan::parse(Path::new("/"), &words).is_err(), "{words:?}");
        }
    }
}
