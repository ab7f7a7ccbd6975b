//! `cargo xtask bench load`: what a request costs the client, beside `wrk`, on the same hand-written server.
//!
//! CPU time of the whole client process (user and system), per request it sent; server and client on a CPU
//! each; the clients take turns in an order drawn anew each round, and what is compared are medians with
//! their 95 % intervals. Then the rates of an open loop: asked for, achieved, and how late requests were
//! sent. Start at [`bench`].

use nix::sys::resource::{UsageWho, getrusage};
use ringroad_measure::summary::median_interval;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

const USAGE: &str =
    "usage: cargo xtask bench load [--rounds N] [--seconds N] [--connections LIST] [--rates LIST]";

struct Options {
    rounds: u32,
    seconds: u32,
    connections: Vec<u32>,
    rates: Vec<u32>,
}

/// Runs the whole comparison.
pub(crate) fn bench(root: &Path, words: &[String]) -> ExitCode {
    let Some(options) = Options::of(words) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(root, &options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench load: {error}");
            ExitCode::FAILURE
        }
    }
}

impl Options {
    fn of(words: &[String]) -> Option<Options> {
        let mut options = Options {
            rounds: 7,
            seconds: 3,
            connections: vec![200, 10_000],
            rates: vec![1_000, 20_000, 100_000],
        };
        let list =
            |text: &str| text.split(',').map(|number| number.parse().ok()).collect::<Option<Vec<u32>>>();
        for pair in words.chunks(2) {
            let [name, value] = pair else { return None };
            match name.as_str() {
                "--rounds" => options.rounds = value.parse().ok().filter(|rounds| *rounds > 0)?,
                "--seconds" => options.seconds = value.parse().ok().filter(|seconds| *seconds > 0)?,
                "--connections" => options.connections = list(value)?,
                "--rates" => options.rates = list(value)?,
                _ => return None,
            }
        }
        Some(options)
    }
}

/// The load generator that is measured.
#[derive(Clone, Copy, PartialEq)]
enum Client {
    Wrk,
    Ours(&'static str),
}

impl Client {
    const ALL: [Client; 3] = [Client::Wrk, Client::Ours("io_uring"), Client::Ours("epoll")];

    fn name(self) -> String {
        match self {
            Client::Wrk => "wrk".to_owned(),
            Client::Ours(driver) => format!("ringroad load, {driver}"),
        }
    }
}

fn run(root: &Path, options: &Options) -> io::Result<()> {
    let ringroad = crate::release_binary(root)?;
    let has_wrk = Command::new("wrk").arg("-v").output().is_ok();
    if !has_wrk {
        println!("wrk is not installed here: its lines are left out, and so are the ratios");
    }
    for &connections in &options.connections {
        let server = Server::start(&ringroad)?;
        let clients: Vec<Client> =
            Client::ALL.into_iter().filter(|client| has_wrk || *client != Client::Wrk).collect();
        let mut costs = vec![Vec::new(); clients.len()];
        for _ in 0..options.rounds {
            let mut order: Vec<usize> = (0..clients.len()).collect();
            fastrand::shuffle(&mut order);
            for at in order {
                let cost = cost(&ringroad, clients[at], &server.address, connections, options.seconds)?;
                costs[at].push(cost);
            }
        }
        println!(
            "\n{connections} connections, HTTP keep-alive, {} rounds of {} s",
            options.rounds, options.seconds
        );
        println!("{:<24}{:>26}{:>22}", "client", "CPU µs per request", "requests per CPU s");
        let wrk = median_interval(&costs[0]).filter(|_| has_wrk);
        for (client, costs) in clients.iter().zip(&costs) {
            let Some(cost) = median_interval(costs) else { continue };
            let ratio = wrk.map_or(String::new(), |wrk| format!("  {:.2} x wrk", wrk.mid / cost.mid));
            let spread = format!("{:.2} ({:.2} to {:.2})", cost.mid, cost.low, cost.high);
            println!("{:<24}{spread:>26}{:>22.0}{ratio}", client.name(), 1e6 / cost.mid);
        }
    }
    for &rate in &options.rates {
        rated(&ringroad, rate, options.seconds)?;
    }
    Ok(())
}

/// CPU microseconds per request of one run.
fn cost(ringroad: &Path, client: Client, address: &str, connections: u32, seconds: u32) -> io::Result<f64> {
    let url = format!("http://{address}/");
    let (connections, length) = (connections.to_string(), seconds.to_string());
    let mut command = Command::new("taskset");
    command.args(["-c", "1"]);
    match client {
        Client::Wrk => command.args(["wrk", "-t", "1", "-c", &connections, "-d", &length, &url]),
        Client::Ours(driver) => command
            .arg(ringroad)
            .args(["load", &url, "-t", "1", "-c", &connections])
            .args(["-d", &length, "--warmup", "0s", "--driver", driver]),
    };
    let before = children()?;
    let output = command.stderr(Stdio::null()).output()?;
    let used = children()? - before;
    let text = String::from_utf8_lossy(&output.stdout);
    let marker = if client == Client::Wrk { " requests in " } else { " sent, " };
    let requests: f64 = text
        .split(marker)
        .next()
        .and_then(|before| before.split_whitespace().next_back()?.parse().ok())
        .ok_or_else(|| io::Error::other(format!("{}: no count in its output:\n{text}", client.name())))?;
    Ok(used.as_secs_f64() * 1e6 / requests)
}

/// One open loop: what was asked for, and what became of it.
fn rated(ringroad: &Path, rate: u32, seconds: u32) -> io::Result<()> {
    let server = Server::start(ringroad)?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("record.json");
    let status = Command::new("taskset")
        .args(["-c", "1"])
        .arg(ringroad)
        .args(["load", &format!("http://{}/", server.address), "-t", "1", "-c", "200", "-q"])
        .args(["-d", &seconds.to_string(), "-r", &rate.to_string(), "--out"])
        .arg(&file)
        .status()?;
    let record: serde_json::Value = serde_json::from_slice(&std::fs::read(&file)?)?;
    let cell = &record["cells"][0];
    let number = |value: &serde_json::Value| value.as_f64().unwrap_or(f64::NAN);
    println!(
        "\nopen loop at {rate}/s: achieved {:.0}/s ({:+.2} %), lag p50 {:.0} µs, p99 {:.0} µs; {} (exit {})",
        number(&cell["rps"]),
        (number(&cell["rps"]) / f64::from(rate) - 1.0) * 100.0,
        number(&cell["latency_us"]["lag"]["p50"]),
        number(&cell["latency_us"]["lag"]["p99"]),
        record["verdict"]["level"].as_str().unwrap_or("no verdict"),
        status.code().unwrap_or(-1),
    );
    for reason in record["verdict"]["reasons"].as_array().into_iter().flatten() {
        println!("  {}", reason.as_str().unwrap_or_default());
    }
    Ok(())
}

/// User and system time of all children that have ended.
fn children() -> io::Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let of = |time: nix::sys::time::TimeVal| {
        Duration::from_secs(time.tv_sec() as u64) + Duration::from_micros(time.tv_usec() as u64)
    };
    Ok(of(usage.user_time()) + of(usage.system_time()))
}

/// The hand-written epoll server, on a CPU of its own.
struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start(ringroad: &Path) -> io::Result<Server> {
        let mut process = Command::new("taskset")
            .args(["-c", "0"])
            .arg(ringroad)
            .args(["lab", "server", "--model", "epoll-et", "--protocol", "http"])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        if let Some(out) = process.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        let address = line.trim().rsplit(' ').next().unwrap_or_default().to_owned();
        Ok(Server { process, address })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It is a child of ours, and nothing of it is wanted any more.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
