//! `cargo xtask bench held`: what connections cost that do little. What an idle one takes of the server's
//! memory ([`idle`]), and what thousands that send or read slowly take from the others ([`slow`]).
//!
//! Each block starts every server anew, in a random order; ratios are taken within a run of one server, so
//! that what drifts between runs drifts for both sides. The clients are plain sockets of this process. About
//! a quarter of an hour; the servers are those of `peers`. Start at [`bench`].

mod idle;
mod slow;

use crate::recorded::{self, number};
use crate::{peers, release_binary};
use ringroad_measure::summary::{median, median_interval};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const USAGE: &str = "usage: cargo xtask bench held [OPTION VALUE]...
  --only LIST        servers (default: all)
  --questions LIST   of idle, slow (default: both)
  --repeats N        blocks (default: 6)
  --connections N    that are held (default: 10000)
  --seconds N        of good traffic, each time (default: 3)
  --out DIR          gets held/record.json and held/table.md (default: docs/results)";

/// What to do.
#[derive(Debug)]
struct Plan {
    only: Vec<String>,
    questions: Vec<String>,
    repeats: usize,
    connections: usize,
    seconds: u64,
    out: PathBuf,
}

impl Plan {
    fn parse(root: &Path, words: &[String]) -> Result<Plan, String> {
        let mut plan = Plan {
            only: Vec::new(),
            questions: vec!["idle".to_owned(), "slow".to_owned()],
            repeats: 6,
            connections: 10_000,
            seconds: 3,
            out: root.join("docs/results"),
        };
        recorded::options(words, |pair| {
            match pair.option {
                "--only" => plan.only = pair.list(),
                "--questions" => plan.questions = pair.list(),
                "--repeats" => plan.repeats = pair.count()?,
                // Fewer than the base would leave nothing to divide by.
                "--connections" => plan.connections = pair.count()?.max(2 * idle::BASE),
                "--seconds" => plan.seconds = pair.number()?.max(1),
                "--out" => plan.out = PathBuf::from(pair.value),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(plan)
    }

    fn asks(&self, question: &str) -> bool {
        self.questions.iter().any(|asked| asked == question)
    }
}

/// A server to be held on to.
struct Contestant {
    name: String,
    /// Program and arguments; `{addr}` and `{port}` stand for where it is to listen.
    words: Vec<String>,
    driver: Option<&'static str>,
    /// It has files for the slow readers.
    has_files: bool,
    idle: Vec<idle::Cost>,
    slow: Vec<slow::Cost>,
}

impl Contestant {
    fn new(name: &str, words: &[&str], driver: Option<&'static str>, has_files: bool) -> Contestant {
        Contestant {
            name: name.to_owned(),
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            driver,
            has_files,
            idle: Vec::new(),
            slow: Vec::new(),
        }
    }

    fn start(&self, folder: &Path, cpus: &[u32]) -> io::Result<peers::Server> {
        let address = peers::free_address()?;
        let mut words = self.words.iter().map(|word| {
            word.replace("{addr}", &address.to_string()).replace("{port}", &address.port().to_string())
        });
        let mut command = Command::new(words.next().unwrap_or_default());
        command.current_dir(folder).args(words);
        if let Some(driver) = self.driver {
            command.env("RINGROAD_DRIVER", driver);
        }
        peers::Server::start(&mut command, address, cpus)
    }
}

fn contestants(ringroad: &str) -> Vec<Contestant> {
    let mut all = Vec::new();
    for driver in ["io_uring", "epoll", "poll"] {
        all.push(Contestant::new(&format!("hello-{driver}"), &["./hello", "{addr}"], Some(driver), false));
        let serve = [ringroad, "serve", "--config", "behind.toml", "--listen", "{addr}"];
        all.push(Contestant::new(&format!("serve-{driver}"), &serve, Some(driver), true));
    }
    all.push(Contestant::new("nginx", &["sh", "start.sh", "nginx-held", "{port}"], None, true));
    all.push(Contestant::new("hyper", &["./peer-hyper", "{addr}"], None, false));
    all.push(Contestant::new("go", &["./peer-go", "{addr}"], None, false));
    all.push(Contestant::new("node", &["node", "hello.js", "{addr}"], None, false));
    all
}

/// Runs the bench and leaves record and table; exit code 1 when a run failed.
pub(crate) fn bench(root: &Path, words: &[String]) -> ExitCode {
    recorded::bench("held", USAGE, Plan::parse(root, words), |plan| run(root, plan))
}

fn run(root: &Path, plan: &Plan) -> io::Result<String> {
    let ringroad = release_binary(root)?;
    peers::build(root)?;
    raise_descriptor_limit()?;
    let folder = peers::folder(root)?;
    let mut all = contestants(&ringroad.to_string_lossy());
    recorded::keep_only(&mut all, &plan.only, "server", |one| &one.name)?;
    // Read once: what this thread may use is less from here on.
    let (server, client, _) = peers::cores();
    peers::on(&client, || {
        for block in 1..=plan.repeats {
            eprintln!("block {block} of {}", plan.repeats);
            fastrand::shuffle(&mut all);
            let mut gone = Vec::new();
            for (at, one) in all.iter_mut().enumerate() {
                if let Err(why) = held(one, &folder, &server, plan, block == 1) {
                    // A server that is not installed, or broke, is left out: the others go on.
                    eprintln!("bench held: {} is left out: {why}", one.name);
                    gone.push(at);
                }
            }
            gone.into_iter().rev().for_each(|at| drop(all.remove(at)));
        }
        Ok(())
    })?;
    all.sort_by(|one, other| one.name.cmp(&other.name));
    let record = record(plan, &all);
    let table = table(&record);
    recorded::leave(&plan.out, "held", &record, &table)?;
    Ok(table)
}

/// One server's turn in a block.
fn held(one: &mut Contestant, folder: &Path, cpus: &[u32], plan: &Plan, first: bool) -> io::Result<()> {
    if plan.asks("idle") {
        let server = one.start(folder, cpus)?;
        one.idle.push(idle::measure(&server, plan.connections)?);
    }
    if plan.asks("slow") && one.has_files {
        let server = one.start(folder, cpus)?;
        // nginx gives a head six times as long; waiting for that tells nothing of us.
        let evicts = first && one.driver.is_some();
        one.slow.push(slow::measure(&server, plan.connections, plan.seconds, evicts)?);
    }
    Ok(())
}

/// This process holds the clients' ends.
fn raise_descriptor_limit() -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?)
}

fn record(plan: &Plan, all: &[Contestant]) -> Value {
    let fields = json!({
        "repeats": plan.repeats,
        "connections": plan.connections,
        "seconds": plan.seconds,
        "servers": all.iter().map(server_record).collect::<Vec<_>>(),
    });
    recorded::record("held", fields)
}

fn server_record(one: &Contestant) -> Value {
    let idle = |read: fn(&idle::Cost) -> f64| spread(one.idle.iter().map(read).collect());
    let slow = |read: fn(&slow::Cost) -> f64| spread(one.slow.iter().map(read).collect());
    json!({
        "server": one.name,
        "driver": one.driver,
        "idle_bytes": idle(|cost| cost.idle_bytes),
        "idle_bytes_after_burst": idle(|cost| cost.after_burst_bytes),
        "rate_alone": slow(|cost| cost.alone),
        "rate_with_slow_senders": slow(|cost| cost.with_senders / cost.alone),
        "rate_with_slow_readers": slow(|cost| cost.with_readers / cost.alone),
        "senders_evicted_after_s": one.slow.iter().find_map(|cost| cost.evicted_after_s),
    })
}

/// All figures, and their middle with its doubt.
fn spread(all: Vec<f64>) -> Value {
    let interval = median_interval(&all);
    json!({
        "all": all,
        "median": median(&all),
        "low": interval.map(|interval| interval.low),
        "high": interval.map(|interval| interval.high),
    })
}

/// The record for people: a pure function, so that it can be made again.
fn table(record: &Value) -> String {
    let mut text = format!(
        "Of {} connections: bytes of the server's memory for each that is idle, before and after all of them were busy at \
         once; and the rate of 64 good ones beside the slow ones, over their rate alone.\n\n\
         | | idle, bytes | after a burst | alone, 1/s | beside slow senders | beside slow readers | slow heads gone after |\n\
         |---|---|---|---|---|---|---|\n",
        record["connections"]
    );
    for server in record["servers"].as_array().into_iter().flatten() {
        let whole = |key: &str| number(&server[key]["median"], 0);
        let ratio = |key: &str| match (server[key]["low"].as_f64(), server[key]["high"].as_f64()) {
            (Some(low), Some(high)) => {
                format!("{} ({low:.2} to {high:.2})", number(&server[key]["median"], 2))
            }
            _ => number(&server[key]["median"], 2),
        };
        let gone = server["senders_evicted_after_s"].as_f64().map_or("-".to_owned(), |s| format!("{s:.1} s"));
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {gone} |",
            server["server"].as_str().unwrap_or_default(),
            whole("idle_bytes"),
            whole("idle_bytes_after_burst"),
            whole("rate_alone"),
            ratio("rate_with_slow_senders"),
            ratio("rate_with_slow_readers"),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_table_has_a_row_for_each_server_with_what_was_asked() {
        let mut one = Contestant::new("serve-epoll", &["x"], Some("epoll"), true);
        for alone in [100_000.0, 200_000.0] {
            one.slow.push(slow::Cost {
                alone,
                with_senders: alone * 0.95,
                with_readers: alone,
                evicted_after_s: Some(11.0),
            });
        }
        let plan = Plan::parse(Path::new("/"), &[]).unwrap();
        let text = table(&record(&plan, &[one]));
        let row = text.lines().last().unwrap();
        assert_eq!(
            row,
            "| serve-epoll | - | - | 150000 | 0.95 (0.95 to 0.95) | 1.00 (1.00 to 1.00) | 11.0 s |"
        );
    }

    #[test]
    fn a_mistake_in_an_option_is_told() {
        for words in [&["--repeats", "many"][..], &["--only"], &["--what", "1"]] {
            let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
            assert!(Plan::parse(Path::new("/"), &words).is_err(), "{words:?}");
        }
    }
}
