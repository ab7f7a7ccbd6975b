//! `cargo xtask bench tls`: what TLS and HTTP/2 cost `serve` beside nginx, haproxy and Envoy: handshakes,
//! pages on kept connections, files, streams, idle connections, and quiet clients in a storm of handshakes.
//!
//! Each block runs every contestant of every question once, in a new random order, each in a fresh process
//! with one worker; ratios are taken within blocks. The figure is CPU time of the server for a request. The
//! client is `ringroad load`, on the CPUs that the lab gives to clients. Start at [`bench`].

use crate::peers::{self, Server};
use crate::recorded::{self, number};
use ringroad_host::cpu::ProcessClock;
use ringroad_measure::summary::median;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

const USAGE: &str = "usage: cargo xtask bench tls [OPTION VALUE]...
  --only LIST     of full, resumed, page, 64k, 1m, streams, idle, storm (default: all)
  --repeats N     blocks (default: 3)
  --percent N     of the requests of a full run (default: 100)
  --program FILE  the `ringroad` to measure (default: a release build is made)
  --seed N        of the random order (default: by the clock; it is in the record)
  --out DIR       gets tls/record.json and tls/table.md (default: docs/results)";

/// The servers that are measured. Ratios are to nginx. Envoy, which few systems package, is left out where it
/// is not installed.
const ALL: [&str; 5] = ["io_uring", "epoll", "nginx", "haproxy", "envoy"];
/// Those that serve files.
const OF_FILES: [&str; 3] = ["io_uring", "epoll", "nginx"];

/// What is asked: name, unit, requests, the client's options, and the contestants.
#[derive(Clone, Copy, Debug)]
struct Question {
    name: &'static str,
    unit: &'static str,
    requests: u64,
    path: &'static str,
    options: &'static [&'static str],
    contestants: &'static [&'static str],
    /// The ratio to nginx that is aimed at.
    aim: f64,
}

const QUESTIONS: [Question; 8] = [
    Question {
        name: "full",
        unit: "µs",
        requests: 4_000,
        path: "",
        options: &["-c", "16", "--disable-keepalive"],
        contestants: &ALL,
        aim: 0.75,
    },
    Question {
        name: "resumed",
        unit: "µs",
        requests: 6_000,
        path: "",
        options: &["-c", "16", "--disable-keepalive"],
        contestants: &ALL,
        aim: 0.75,
    },
    Question {
        name: "page",
        unit: "µs",
        requests: 100_000,
        path: "",
        options: &["-c", "32"],
        contestants: &ALL,
        aim: 0.85,
    },
    Question {
        name: "64k",
        unit: "µs",
        requests: 10_000,
        path: "files/64k",
        options: &["-c", "16"],
        contestants: &OF_FILES,
        aim: 0.95,
    },
    Question {
        name: "1m",
        unit: "µs",
        requests: 1_000,
        path: "files/1m",
        options: &["-c", "8"],
        contestants: &OF_FILES,
        aim: 1.0,
    },
    Question {
        name: "streams",
        unit: "µs",
        requests: 150_000,
        path: "",
        options: &["-c", "10", "--http2", "--streams", "100"],
        contestants: &ALL,
        aim: 0.8,
    },
    Question {
        name: "idle",
        unit: "bytes",
        requests: 3_000,
        path: "",
        options: &[],
        contestants: &ALL,
        aim: 1.0,
    },
    Question {
        name: "storm",
        unit: "p99 ÷ p99 without",
        requests: 2,
        path: "",
        options: &[],
        contestants: &ALL,
        aim: 1.0,
    },
];

#[derive(Debug)]
struct Plan {
    only: Vec<String>,
    repeats: usize,
    percent: u64,
    program: Option<PathBuf>,
    seed: u64,
    out: PathBuf,
}

impl Plan {
    fn parse(root: &Path, words: &[String]) -> Result<Plan, String> {
        let mut plan = Plan {
            only: Vec::new(),
            repeats: 3,
            percent: 100,
            program: None,
            seed: fastrand::u64(0..1 << 32),
            out: root.join("docs/results"),
        };
        recorded::options(words, |pair| {
            match pair.option {
                "--only" => plan.only = pair.list(),
                "--repeats" => plan.repeats = pair.count()?,
                "--percent" => plan.percent = pair.number()?.clamp(1, 100),
                "--program" => plan.program = Some(PathBuf::from(pair.value)),
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
    recorded::bench("tls", USAGE, Plan::parse(root, words), |plan| run(root, plan))
}

/// The figures of a question's contestants, block by block.
struct Asked {
    question: Question,
    contestants: Vec<&'static str>,
    figures: Vec<Vec<f64>>,
}

fn run(root: &Path, plan: &Plan) -> io::Result<String> {
    let mut questions = QUESTIONS.to_vec();
    recorded::keep_only(&mut questions, &plan.only, "question", |question| question.name)?;
    let bench = Bench::prepare(root, plan.program.as_deref())?;
    let has_envoy = Command::new("envoy").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !has_envoy {
        eprintln!("left out: envoy is not in PATH");
    }
    let mut all: Vec<Asked> = questions
        .into_iter()
        .map(|question| {
            let is_there = |name: &&str| has_envoy || *name != "envoy";
            let contestants: Vec<_> = question.contestants.iter().copied().filter(is_there).collect();
            Asked {
                question: Question { requests: (question.requests * plan.percent / 100).max(1), ..question },
                figures: vec![Vec::new(); contestants.len()],
                contestants,
            }
        })
        .collect();
    let mut random = fastrand::Rng::with_seed(plan.seed);
    for block in 1..=plan.repeats {
        eprintln!("block {block} of {}", plan.repeats);
        for Asked { question, contestants, figures } in &mut all {
            let mut order: Vec<usize> = (0..figures.len()).collect();
            random.shuffle(&mut order);
            for at in order {
                if let (Some(name), Some(own)) = (contestants.get(at), figures.get_mut(at)) {
                    own.push(bench.ask(question, name)?);
                }
            }
        }
    }
    let record = record(plan, &all);
    let table = table(&record);
    recorded::leave(&plan.out, "tls", &record, &table)?;
    Ok(table)
}

/// The programs, and the files that they read.
struct Bench {
    ringroad: PathBuf,
    folder: tempfile::TempDir,
    server: Vec<u32>,
    client: Vec<u32>,
}

impl Bench {
    fn prepare(root: &Path, program: Option<&Path>) -> io::Result<Bench> {
        let ringroad = match program {
            Some(program) => program.canonicalize()?,
            None => build(root)?,
        };
        // Beside the build: a real file system, where `/tmp` may be memory.
        let folder = tempfile::tempdir_in(peers::folder(root)?)?;
        let at = folder.path();
        let made = Command::new("openssl")
            .current_dir(at)
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
            .args(["-days", "30", "-subj", "/CN=localhost", "-keyout", "site.key", "-out", "site.pem"])
            .stderr(Stdio::null())
            .status()?;
        if !made.success() {
            return Err(io::Error::other("openssl made no certificate"));
        }
        let both = [fs::read(at.join("site.pem"))?, fs::read(at.join("site.key"))?].concat();
        fs::write(at.join("both.pem"), both)?;
        fs::create_dir(at.join("files"))?;
        for (name, bytes) in [("64k", 64 << 10), ("1m", 1 << 20)] {
            let content: Vec<u8> = (0..bytes).map(|at: usize| (at * 31 + at / 251) as u8).collect();
            fs::write(at.join("files").join(name), content)?;
        }
        let (server, client, _) = peers::cores();
        Ok(Bench { ringroad, folder, server, client })
    }

    fn start(&self, contestant: &str, resumes: bool) -> io::Result<Server> {
        let (at, address) = (self.folder.path(), peers::free_address()?);
        let mut command = match contestant {
            "nginx" => {
                let text = nginx(&address.to_string(), at, resumes);
                fs::write(at.join("nginx.conf"), text)?;
                let mut command = Command::new("nginx");
                command.args(["-e", "stderr", "-p"]).arg(at).arg("-c").arg(at.join("nginx.conf"));
                command
            }
            "haproxy" => {
                fs::write(at.join("haproxy.cfg"), haproxy(&address.to_string(), at, resumes))?;
                let mut command = Command::new("haproxy");
                command.arg("-f").arg(at.join("haproxy.cfg"));
                command
            }
            "envoy" => {
                fs::write(at.join("envoy.json"), envoy(address, at, resumes).to_string())?;
                let mut command = Command::new("envoy");
                command.args(["--concurrency", "1", "--log-level", "off", "--use-dynamic-base-id", "-c"]);
                command.arg(at.join("envoy.json"));
                command
            }
            driver => {
                fs::write(at.join("ringroad.toml"), ours(&address.to_string(), resumes))?;
                let mut command = Command::new(&self.ringroad);
                command.args(["-q", "serve", "--driver", driver, "--config"]).arg(at.join("ringroad.toml"));
                command
            }
        };
        // Debian has these where only root looks.
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{path}:/usr/sbin:/usr/local/sbin")).stderr(Stdio::null());
        Server::start(&mut command, address, &self.server)
    }

    /// A load, as a record.
    fn load(&self, server: &Server, path: &str, options: &[&str]) -> io::Result<Command> {
        let mut command = Command::new(&self.ringroad);
        command.args(["-q", "load", &format!("https://{}/{path}", server.address), "-k", "--no-ask"]);
        command.args(["--warmup", "0s", "--json", "-t", "1"]).args(options);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(command)
    }

    fn done(&self, output: &std::process::Output) -> io::Result<Value> {
        let told: Value = serde_json::from_slice(&output.stdout)
            .map_err(|why| io::Error::other(format!("{why}: {}", String::from_utf8_lossy(&output.stderr))))?;
        Ok(told["cells"][0].clone())
    }

    fn ask(&self, question: &Question, contestant: &str) -> io::Result<f64> {
        let server = self.start(contestant, question.name != "full")?;
        match question.name {
            "idle" => self.idle(&server, question.requests),
            "storm" => self.storm(&server),
            _ => self.requests(&server, question, contestant),
        }
    }

    /// Microseconds of the server's CPU for a request.
    fn requests(&self, server: &Server, question: &Question, contestant: &str) -> io::Result<f64> {
        let count = question.requests.to_string();
        let mut few = self.load(server, question.path, question.options)?;
        let warm = peers::on(&self.client, || few.args(["-n", "200"]).output())?;
        self.done(&warm)?;
        let clock = ProcessClock::of(server.pid())?;
        let before = clock.read()?;
        let mut load = self.load(server, question.path, question.options)?;
        let output = peers::on(&self.client, || load.args(["-n", &count]).output())?;
        let cpu = clock.read()?.saturating_sub(before);
        let cell = self.done(&output)?;
        if cell["completed"].as_u64() != Some(question.requests) {
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(io::Error::other(format!("{contestant}, {}: {cell}: {why}", question.name)));
        }
        let resumed = cell["details"]["handshakes"]["resumed"].as_u64().unwrap_or(0);
        let is_so = match question.name {
            "full" => resumed == 0,
            // The first of each connection is full, and two at a time may take the same ticket.
            "resumed" => resumed * 10 >= question.requests * 8,
            _ => true,
        };
        if !is_so {
            return Err(io::Error::other(format!(
                "{contestant}, {}: {resumed} sessions resumed",
                question.name
            )));
        }
        Ok(cpu.as_secs_f64() * 1e6 / question.requests as f64)
    }

    /// Bytes of resident memory for each idle connection.
    fn idle(&self, server: &Server, count: u64) -> io::Result<f64> {
        let mut warm = self.load(server, "", &["-c", "4", "-n", "200"])?;
        self.done(&peers::on(&self.client, || warm.output())?)?;
        let before = resident(server.pid())?;
        let count_text = count.to_string();
        let options = ["-c", "1", "--idle", &count_text, "-r", "1", "-d", "6s"];
        let mut load = self.load(server, "", &options)?;
        let mut held = peers::on(&self.client, || load.spawn())?;
        // All are open after a second or two; the highest is what they take.
        let mut most = before;
        while held.try_wait()?.is_none() {
            std::thread::sleep(Duration::from_millis(100));
            most = most.max(resident(server.pid())?);
        }
        let output = held.wait_with_output()?;
        self.done(&output)?;
        Ok(most.saturating_sub(before) as f64 / count as f64)
    }

    /// The p99 of quiet connections during a storm of handshakes, over that without.
    fn storm(&self, server: &Server) -> io::Result<f64> {
        let quiet = ["-c", "10", "-r", "200", "-d", "3s"];
        let p99 = |output: &std::process::Output| -> io::Result<f64> {
            let cell = self.done(output)?;
            cell["latency_us"]["response"]["p99"]
                .as_f64()
                .or_else(|| cell["latency_us"]["p99"].as_f64())
                .ok_or_else(|| io::Error::other(format!("no p99 in {cell}")))
        };
        let mut alone = self.load(server, "", &quiet)?;
        let without = p99(&peers::on(&self.client, || alone.output())?)?;
        let storm = self.load(server, "", &["-c", "64", "--disable-keepalive", "-d", "4s"])?;
        // The storm's client has the CPU only when the quiet client leaves it: the server is what is asked.
        let mut storm = lowered(&storm);
        let mut storming = peers::on(&self.client, || storm.spawn())?;
        std::thread::sleep(Duration::from_millis(500));
        let mut during = self.load(server, "", &quiet)?;
        let with = peers::on(&self.client, || during.output()).and_then(|output| p99(&output));
        storming.wait()?;
        Ok(with? / without)
    }
}

/// The same command, at the lowest priority.
fn lowered(command: &Command) -> Command {
    let mut nice = Command::new("nice");
    nice.args(["-n", "19"]).arg(command.get_program()).args(command.get_args());
    nice.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    nice
}

/// Makes a release build.
fn build(root: &Path) -> io::Result<PathBuf> {
    let built = Command::new(env!("CARGO"))
        .current_dir(root)
        .args(["build", "--release", "--quiet", "--package", "ringroad-cli"])
        .status()?;
    if !built.success() {
        return Err(io::Error::other(format!("the build ended with {built}")));
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    root.join(target).join("release/ringroad").canonicalize()
}

/// Resident memory of a process, in bytes.
fn resident(pid: u32) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| io::Error::other("no VmRSS"))
}

fn ours(address: &str, resumes: bool) -> String {
    let tickets = if resumes { "memory" } else { "off" };
    format!(
        "listen = {{ address = \"{address}\", tls = true }}\nworkers = 1\n\
         [tls]\ncertificates = [\"site.pem\"]\ntickets = \"{tickets}\"\n\
         [limits]\nrequests_per_connection = 1000000\n\
         [[route]]\npath = \"/\"\nkind = \"respond\"\nbody = \"0123456789abcdef\"\n\
         [[route]]\npath = \"/files/\"\nkind = \"static\"\nroot = \"files\"\n"
    )
}

fn nginx(address: &str, folder: &Path, resumes: bool) -> String {
    let (tickets, cache) = if resumes { ("on", "shared:SSL:10m") } else { ("off", "off") };
    let folder = folder.display();
    format!(
        "daemon off;\nmaster_process off;\npid {folder}/nginx.pid;\nworker_rlimit_nofile 20000;\n\
         events {{ worker_connections 10000; }}\n\
         http {{ access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000; keepalive_timeout 300s;\n\
         client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;\n\
         uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi; default_type text/plain;\n\
         server {{ listen {address} ssl http2 backlog=4096; ssl_certificate {folder}/site.pem;\n\
         ssl_certificate_key {folder}/site.key; ssl_protocols TLSv1.2 TLSv1.3; ssl_session_tickets {tickets};\n\
         ssl_session_cache {cache}; location / {{ return 200 \"0123456789abcdef\"; }}\n\
         location /files/ {{ root {folder}; }} }} }}\n"
    )
}

fn haproxy(address: &str, folder: &Path, resumes: bool) -> String {
    let (cache, tickets) = if resumes { ("20000", "") } else { ("0", " no-tls-tickets") };
    format!(
        "global\n nbthread 1\n maxconn 9000\n tune.ssl.cachesize {cache}\n\
         defaults\n mode http\n timeout connect 5s\n timeout client 300s\n timeout server 300s\n\
         frontend tls\n bind {address} ssl crt {}/both.pem alpn h2,http/1.1{tickets}\n\
         http-request return status 200 content-type text/plain string 0123456789abcdef\n",
        folder.display()
    )
}

fn envoy(address: SocketAddr, folder: &Path, resumes: bool) -> Value {
    let file = |name: &str| json!({ "filename": folder.join(name) });
    let pair = json!({ "certificate_chain": file("site.pem"), "private_key": file("site.key") });
    let tls = json!({
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
        "disable_stateless_session_resumption": !resumes,
        "disable_stateful_session_resumption": !resumes,
        "common_tls_context": { "tls_certificates": [pair], "alpn_protocols": ["h2", "http/1.1"] },
    });
    let answer = json!({ "status": 200, "body": { "inline_string": "0123456789abcdef" } });
    let route = json!({ "match": { "prefix": "/" }, "direct_response": answer });
    let router = json!({ "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router" });
    let http = json!({
        "@type":
            "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "page",
        "codec_type": "AUTO",
        "route_config": { "virtual_hosts": [{ "name": "page", "domains": ["*"], "routes": [route] }] },
        "http_filters": [{ "name": "envoy.filters.http.router", "typed_config": router }],
    });
    let manager = json!({ "name": "envoy.filters.network.http_connection_manager", "typed_config": http });
    let chain = json!({
        "transport_socket": { "name": "envoy.transport_sockets.tls", "typed_config": tls },
        "filters": [manager],
    });
    let at = json!({ "address": address.ip().to_string(), "port_value": address.port() });
    let inspector = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector",
    });
    let listener = json!({
        "address": { "socket_address": at },
        "listener_filters": [{ "name": "envoy.filters.listener.tls_inspector", "typed_config": inspector }],
        "filter_chains": [chain],
    });
    json!({ "static_resources": { "listeners": [listener] } })
}

fn record(plan: &Plan, all: &[Asked]) -> Value {
    let questions = all.iter().map(|Asked { question, contestants, figures }| {
        let nginx = contestants.iter().position(|name| *name == "nginx").and_then(|at| figures.get(at));
        let contestants = contestants.iter().zip(figures).map(|(name, own)| {
            let pairs = own.iter().zip(nginx.into_iter().flatten());
            json!({
                "name": name,
                "figures": own,
                "median": median(own),
                "over_nginx": median(&pairs.map(|(one, other)| one / other).collect::<Vec<_>>()),
            })
        });
        json!({
            "question": question.name,
            "unit": question.unit,
            "requests": question.requests,
            "aim": question.aim,
            "contestants": contestants.collect::<Vec<_>>(),
        })
    });
    let questions: Vec<Value> = questions.collect();
    recorded::record("tls", json!({ "repeats": plan.repeats, "seed": plan.seed, "questions": questions }))
}

/// The record as a page: a pure function, so that it can be made again.
fn table(record: &Value) -> String {
    let mut text = format!(
        "Medians of {} blocks; ratios are taken within blocks.\n\n\
         | question | contestant | figure | unit | over nginx | aim |\n|---|---|---|---|---|---|\n",
        record["repeats"]
    );
    for question in record["questions"].as_array().into_iter().flatten() {
        for one in question["contestants"].as_array().into_iter().flatten() {
            let name = one["name"].as_str().unwrap_or_default();
            let is_peer = matches!(name, "nginx" | "haproxy" | "envoy");
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "| {} | {name} | {} | {} | {} | {} |",
                question["question"].as_str().unwrap_or_default(),
                number(&one["median"], 2),
                question["unit"].as_str().unwrap_or_default(),
                number(&one["over_nginx"], 2),
                if is_peer { String::new() } else { number(&question["aim"], 2) },
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
    fn ratios_are_taken_within_blocks_and_to_nginx() {
        let figures = vec![vec![1.0, 20.0, 3.0], vec![2.0, 2.0, 2.0], vec![2.0, 40.0, 4.0], vec![1.0; 3]];
        let plan = Plan::parse(Path::new("/"), &[]).unwrap();
        let contestants = vec!["io_uring", "epoll", "nginx", "haproxy"];
        let text = table(&record(&plan, &[Asked { question: QUESTIONS[0], contestants, figures }]));
        let row = |name: &str| text.lines().find(|line| line.contains(name)).unwrap().to_owned();
        assert_eq!(row("io_uring"), "| full | io_uring | 3.00 | µs | 0.50 | 0.75 |");
        assert_eq!(row("| nginx |"), "| full | nginx | 4.00 | µs | 1.00 |  |");
    }
}
