//! The command line as typed. One declaration gives parsing, help and usage errors.

use clap::{Args, Parser, Subcommand};
use ringroad_engine::choose::Wish;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// One completion-based I/O engine for Linux, and the tools on it.
#[derive(Debug, Parser)]
#[command(name = "ringroad", version, arg_required_else_help = true, disable_help_subcommand = true)]
pub(crate) struct Flags {
    #[command(subcommand)]
    pub(crate) verb: Verb,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// What every verb understands.
#[derive(Args, Debug)]
pub(crate) struct Common {
    /// Say less: errors only
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Say more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// The kernel interface: auto, io_uring, epoll, poll, select, threads (also RINGROAD_DRIVER; a named one is used or
    /// refused; not for lab; cp takes auto, io_uring, threads)
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) driver: Option<Wish>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Print files and block devices, read through io_uring
    Cat(CatFlags),
    /// Copy files and trees: GNU cp and more (read by its own parser; this is its entry in the list of verbs)
    #[command(about = "Copy files and trees: what GNU cp does, faster, and more", disable_help_flag = true)]
    Cp {
        #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
    /// Say what works on this machine, what does not and why, and the line that changes it
    Doctor(DoctorFlags),
    /// Measure which way of doing I/O is best on this machine
    Lab(Box<LabFlags>),
    /// Put a load on a server, and say what it took and whether to believe that
    Load(Box<LoadFlags>),
    /// Serve a folder over HTTP, or whatever a configuration describes
    Serve(ServeFlags),
}

#[derive(Args, Debug)]
pub(crate) struct ServeFlags {
    /// The folder to serve (default: this one)
    #[arg(value_name = "DIR", conflicts_with = "config")]
    pub(crate) folder: Option<PathBuf>,
    /// What to serve and how, as TOML (contrib/ringroad.toml has all of it)
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Address to listen on, instead of 127.0.0.1:8080 or the configuration's; port 0: a free one, printed
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<SocketAddr>,
    /// Threads that serve, for each address; 0: one for each CPU
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=1024))]
    pub(crate) workers: Option<u16>,
    /// Share the port with other servers (SO_REUSEPORT)
    #[arg(long)]
    pub(crate) reuse_port: bool,
    /// List folders that have no index.html
    #[arg(long, conflicts_with = "config")]
    pub(crate) autoindex: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DoctorFlags {
    /// Print one JSON object instead of the screen
    #[arg(long)]
    pub(crate) json: bool,
    /// Exit with 1 unless all of this is so: `io_uring,connections>=50000`
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) require: Vec<String>,
    /// Print this seccomp profile (in Docker's form; `-` is standard input) with io_uring let through, and nothing else
    #[arg(long, value_name = "PROFILE", conflicts_with_all = ["json", "require"])]
    pub(crate) seccomp: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct LoadFlags {
    /// http://HOST[:PORT]/PATH, https:// likewise, or tcp://HOST:PORT for a server that sends back what it gets; with
    /// --also, `'URL 3'` has weight 3
    #[arg(value_name = "URL", required_unless_present = "calibrate")]
    pub(crate) url: Option<String>,
    /// Say first what this client can do at all, against a server that does nothing; without a URL, say nothing else
    #[arg(long, conflicts_with_all = ["processes", "knee"])]
    pub(crate) calibrate: bool,
    /// Connections that send (10)
    #[arg(short, long, value_name = "N")]
    pub(crate) connections: Option<u32>,
    /// Measured time, as in 10s, 500ms, 2m (10s unless -n says when it ends)
    #[arg(short, long, value_name = "TIME", value_parser = time)]
    pub(crate) duration: Option<Duration>,
    /// Requests in all, counted from the first
    #[arg(short = 'n', long = "requests", value_name = "N")]
    pub(crate) count: Option<u64>,
    /// Open loop: requests per second that are due whatever the answers do (without it, closed loop)
    #[arg(short, long, value_name = "N")]
    pub(crate) rate: Option<f64>,
    /// With a rate: by chance, as people come, instead of evenly
    #[arg(long)]
    pub(crate) poisson: bool,
    /// Load that changes, comma-separated: 30s:100 holds 100 connections, 1m:100..2000 goes up evenly, /s behind it makes it a
    /// rate (30s:5000/s)
    #[arg(long, value_name = "LIST", conflicts_with_all = ["rate", "duration", "count", "ramp"])]
    pub(crate) stages: Option<String>,
    /// A staircase of connections: 200+200/3m..3000 begins with 200 and adds 200 every three minutes, up to 3000
    #[arg(long, value_name = "STAIRS", conflicts_with_all = ["rate", "duration", "count"])]
    pub(crate) ramp: Option<String>,
    /// Search the highest rate at which this is so, as in p99<5ms, by probes of -d (3s) after --warmup (500ms) each,
    /// beginning at -r (1000)
    #[arg(long, value_name = "DEMAND", conflicts_with_all = ["stages", "ramp", "count", "require"])]
    pub(crate) knee: Option<String>,
    /// Connections made per second at most
    #[arg(long, value_name = "N")]
    pub(crate) connect_rate: Option<f64>,
    #[command(flatten)]
    pub(crate) hold: HoldFlags,
    #[command(flatten)]
    pub(crate) tls: TlsFlags,
    #[command(flatten)]
    pub(crate) processes: ProcessFlags,
    /// Threads (one for each CPU; half of them where the server is on this machine)
    #[arg(short, long, value_name = "N")]
    pub(crate) threads: Option<u32>,
    /// io_uring, Linux 6.13: connections without descriptors, in the tables of as many threads as that takes (without this
    /// option only where descriptors are too few)
    #[arg(long)]
    pub(crate) direct: bool,
    /// Load before the measured time (1s; none with -n)
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) warmup: Option<Duration>,
    /// How long an answer or a connection may take
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    pub(crate) timeout: Duration,
    /// Requests in flight on each connection (closed loop)
    #[arg(short, long, value_name = "N", default_value_t = 1)]
    pub(crate) pipeline: u32,
    /// Connections that are open beside the others and say nothing
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) idle: u32,
    /// Method (GET; POST with a body)
    #[arg(short = 'X', long, value_name = "NAME")]
    pub(crate) method: Option<String>,
    /// A header line, `'Name: value'`; may be repeated
    #[arg(short = 'H', long, value_name = "LINE")]
    pub(crate) header: Vec<String>,
    /// The body, or the message of tcp://; `@FILE` is a file's bytes
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) body: Option<String>,
    /// Another URL or path of the same server, with a weight as above; may be repeated
    #[arg(long, value_name = "URL")]
    pub(crate) also: Vec<String>,
    /// A connection for each request
    #[arg(long)]
    pub(crate) disable_keepalive: bool,
    /// tcp://: bytes of a message (64), which come back the same
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) length: Option<u32>,
    /// tcp://: an answer ends at this byte, whatever it says: a character, or \\n, \\r, \\0
    #[arg(long, value_name = "BYTE", value_parser = delimiter)]
    pub(crate) delimiter: Option<u8>,
    /// Addresses that connections come from, in turns: 127.0.0.2,10.0.0.7 or 127.0.0.2-127.0.0.9 (on loopback as many as
    /// the connections need)
    #[arg(long, value_name = "LIST")]
    pub(crate) source: Option<String>,
    /// Leave TCP_NODELAY off
    #[arg(long)]
    pub(crate) no_nodelay: bool,
    /// SO_RCVBUF of each socket
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) rcvbuf: Option<u32>,
    /// SO_SNDBUF of each socket
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) sndbuf: Option<u32>,
    /// Exit with 1 unless this is so: p99<5ms, rps>=10000, errors%<=0.1, connections>=500; may be repeated
    #[arg(long, value_name = "DEMAND")]
    pub(crate) require: Vec<String>,
    /// Write the record (JSON) to this file
    #[arg(short, long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Exit with 5 for SUSPECT too, not for INVALID alone
    #[arg(long)]
    pub(crate) strict: bool,
    /// Seed of what goes by chance
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// `load --processes` and what belongs to it.
#[derive(Args, Debug)]
pub(crate) struct ProcessFlags {
    /// Processes that share the load, each with -t threads and the descriptors a process may have
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) processes: u32,
    /// With --processes: how many may be lost before the run is INVALID
    #[arg(long, value_name = "N", default_value_t = 0, requires = "processes")]
    pub(crate) allow_lost: u32,
    /// Be this one of the processes: told what to do on standard input, telling what happens on standard output
    #[arg(long, value_name = "N", hide = true)]
    pub(crate) part: Option<u32>,
}

/// Whom `load https://` believes.
#[derive(Args, Debug)]
pub(crate) struct TlsFlags {
    /// https: believe whatever certificate the server shows
    #[arg(short = 'k', long)]
    pub(crate) insecure: bool,
    /// https: believe the certificates in this file (PEM) instead of the system's
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub(crate) cacert: Option<PathBuf>,
}

/// `load --hold` and what belongs to it.
#[derive(Args, Debug)]
pub(crate) struct HoldFlags {
    /// Hold the connections, with a heartbeat on each, make lost ones again, and say how well the server bears that
    #[arg(long, conflicts_with_all = ["rate", "count", "stages", "ramp", "poisson"])]
    pub(crate) hold: bool,
    /// With --hold: from one heartbeat of a connection to its next
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time, requires = "hold")]
    pub(crate) heartbeat: Duration,
    /// With --hold: failed tries in a row after which a connection is given up and the server called unavailable (never)
    #[arg(long, value_name = "N", requires = "hold")]
    pub(crate) retry_limit: Option<u32>,
}

#[derive(Args, Debug)]
pub(crate) struct CatFlags {
    /// Files to print, in this order; `-` or none: standard input
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Bytes per read: a number, or one with K or M (multiples of 1024)
    #[arg(long, value_name = "BYTES", default_value = "128K", value_parser = bytes)]
    pub(crate) block_size: u32,
    /// Reads in flight, rounded up to a power of two
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) queue_depth: u32,
    /// Read past the page cache (O_DIRECT)
    #[arg(long)]
    pub(crate) direct: bool,
    /// Settings of the ring: `sqpoll`, `entries=N` (the same as --queue-depth), comma-separated
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) uring: Vec<String>,
}

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct LabFlags {
    #[command(subcommand)]
    pub(crate) act: Option<LabAct>,
    /// That of every verb, out of sight here: the lab's models name their drivers
    #[arg(long, global = true, hide = true, value_name = "NAME")]
    pub(crate) driver: Option<Wish>,
    #[command(flatten)]
    pub(crate) run: RunFlags,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabAct {
    /// Twelve servers, seven by hand and five on the engine, HTTP and for four of them echo, 64 connections: two and a half
    /// minutes (the same as bare `lab`)
    Quick(RunFlags),
    /// Run a suite: a name (`lab suites` lists them) or a TOML file
    Run {
        /// A suite's name, or the path of one
        #[arg(required_unless_present = "resume", conflicts_with = "resume")]
        suite: Option<String>,
        #[command(flatten)]
        run: RunFlags,
    },
    /// List the suites there are: what each asks, and how long it takes
    Suites,
    /// Test the figures of the documents this project began with, and put them beside what comes out here: eight minutes
    /// (one that is interrupted begins anew)
    Sources(SourcesFlags),
    /// Print the table of records made earlier, several as one, and make their page again
    Report {
        /// The records to read (record.json, or the folder it is in)
        #[arg(value_name = "RECORD", required = true)]
        records: Vec<PathBuf>,
        /// Where to write the page (default: report.html beside the record; needed for several)
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// Write the chart that says most of it too, as an SVG file of its own
        #[arg(long, value_name = "FILE")]
        chart: Option<PathBuf>,
    },
    /// Say what became slower or faster from one record to another, and what would have been seen
    Compare {
        /// The record to compare with (record.json, or the folder it is in)
        #[arg(value_name = "BEFORE")]
        first: PathBuf,
        /// The record to judge
        #[arg(value_name = "AFTER")]
        second: PathBuf,
        /// What to compare: cpu (per request), p99, rate
        #[arg(long, value_name = "FIGURE", default_value = "cpu")]
        figure: ringroad_lab::compare::Measure,
        /// Compare the figures as they are, not as ratios to the baseline of their own run
        #[arg(long)]
        absolute: bool,
    },
    /// Make one record of several: runs of the same cells are pooled, other cells are added
    Merge {
        /// The records to read (record.json, or the folder it is in)
        #[arg(value_name = "RECORD", required = true)]
        records: Vec<PathBuf>,
        /// Where to write the record
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Say which driver and settings to use for a workload, from a record made here; without a workload: for what people
    /// ask about
    Advise(AdviseFlags),
    /// Run one of the reference servers; on SIGUSR1 those on the engine say on stderr what they are doing
    Server(ServerFlags),
    /// Write a tree of files to copy: imagenet, coco, mnist, cifar10, mixed
    Dataset(DatasetFlags),
    /// Drive a server with one of the lab's clients, and print what it saw as JSON
    #[command(hide = true)]
    Client(ClientFlags),
}

#[derive(Args, Clone, Debug, Default)]
pub(crate) struct RunFlags {
    /// Folder for record.json and report.html (default: a new one under the user's state directory)
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Go on with a run that was stopped, from its last whole block, in the folder where it left its journal
    #[arg(long, value_name = "DIR", conflicts_with_all = ["out", "with", "only", "client", "repeats", "duration", "seed"])]
    pub(crate) resume: Option<PathBuf>,
    /// Print the record as JSON instead of the table
    #[arg(long)]
    pub(crate) json: bool,
    /// A program of your own beside the suite's: NAME=COMMAND, with {port} or {addr} in it; `mine=./server {port}`
    #[arg(long, value_name = "NAME=COMMAND")]
    pub(crate) with: Vec<String>,
    /// Only these programs of the suite (comma-separated)
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Who puts the loads on: load (this program's load generator) or small (a client that shares no code with it)
    #[arg(long, value_name = "NAME")]
    pub(crate) client: Option<ringroad_lab::suite::Client>,
    /// Times each cell is measured, instead of the suite's own number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeats: Option<u32>,
    /// Seconds of each measured window, instead of the suite's own
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) duration: Option<Duration>,
    /// Seed of the random order, instead of a fresh one
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Say what would run, who would sit out and how long it would take, and run nothing
    #[arg(long, conflicts_with_all = ["resume", "json"])]
    pub(crate) plan: bool,
    /// Exit with 5 for SUSPECT too, not for INVALID alone
    #[arg(long)]
    pub(crate) strict: bool,
}

#[derive(Args, Debug)]
pub(crate) struct SourcesFlags {
    /// Only these documents (comma-separated): 000, 001, 002, 003, 004
    #[arg(long, value_name = "IDS", value_delimiter = ',', value_parser = ringroad_lab::sources::SOURCES)]
    pub(crate) only: Vec<String>,
    /// As long and as large as the documents say (an hour, 35 GB of files), not scaled down
    #[arg(long)]
    pub(crate) full: bool,
    /// Folder of servers made by other means (`cargo xtask peers` fills it)
    #[arg(long, value_name = "DIR", default_value = "target/peers")]
    pub(crate) peers: PathBuf,
    /// Folder for trees to copy, on the disk to measure (default: the one for temporary files)
    #[arg(long, value_name = "DIR")]
    pub(crate) scratch: Option<PathBuf>,
    /// Times each server is measured, instead of its own number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeats: Option<u32>,
    /// Seconds of each measured window, instead of its own
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) duration: Option<Duration>,
    /// Folder for record.json and report.html (default: a new one under the user's state directory)
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print the record as JSON instead of the table
    #[arg(long)]
    pub(crate) json: bool,
    /// Seed of the random order, instead of a fresh one
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Exit with 5 for SUSPECT too, not for INVALID alone
    #[arg(long)]
    pub(crate) strict: bool,
}

#[derive(Args, Debug)]
pub(crate) struct AdviseFlags {
    /// The record to read (default: of those `lab` left, the newest that covers the workload)
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// echo or http
    #[arg(long, value_name = "PROTOCOL")]
    pub(crate) protocol: Option<ringroad_models::Protocol>,
    /// Connections open at a time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) connections: Option<u32>,
    /// Share of them that send at a time: `0.01`, or `1%`
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) active: Option<f64>,
    /// Bytes per request: a number, or one with K or M
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) payload: Option<u32>,
    /// Requests in flight on each connection
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pipeline: Option<u32>,
    /// CPU time the application takes for each request
    #[arg(long, value_name = "N", value_parser = microseconds)]
    pub(crate) work_us: Option<Duration>,
    /// Time the application waits for each request
    #[arg(long, value_name = "N", value_parser = microseconds)]
    pub(crate) delay_us: Option<Duration>,
    /// A new connection for each request
    #[arg(long)]
    pub(crate) reconnect: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ServerFlags {
    /// threads, select, poll, epoll-lt, epoll-et, uring, uring-multishot, engine-threads, engine-select, engine-poll,
    /// engine-epoll, engine-io_uring
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: ringroad_models::Model,
    /// echo or http
    #[arg(long, value_name = "PROTOCOL", default_value = "http")]
    pub(crate) protocol: ringroad_models::Protocol,
    /// Address to listen on; port 0: a free one, printed
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// Bytes of each receive buffer
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = bytes)]
    pub(crate) buffer: u32,
    /// Let each answer wait this long, others going on meanwhile
    #[arg(long, value_name = "N", default_value = "0", value_parser = microseconds)]
    pub(crate) delay_us: Duration,
    /// Burn this much CPU time per request; fractions are allowed
    #[arg(long, value_name = "N", default_value = "0", value_parser = microseconds)]
    pub(crate) work_us: Duration,
    /// Serve at most this many ready connections between two waits; on io_uring: take so many completions. `threads` and the
    /// models on the engine have none
    #[arg(long, value_name = "N")]
    pub(crate) batch: Option<std::num::NonZeroU16>,
    /// Threads that serve, each with a listener of its own on the same port
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) workers: u16,
    /// Share the port with other servers (SO_REUSEPORT)
    #[arg(long)]
    pub(crate) reuse_port: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DatasetFlags {
    /// imagenet, coco, mnist, cifar10, mixed; or COUNTxBYTES[/FOLDERS] as in 100000x4K/100
    #[arg(value_name = "NAME")]
    pub(crate) dataset: ringroad_lab::dataset::Dataset,
    /// The folder to make it in: a new one, or an empty one
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// How much of it: 1 is the whole dataset, 0.01 a hundredth of its files
    #[arg(long, value_name = "F", default_value_t = 1.0)]
    pub(crate) scale: f64,
}

#[derive(Args, Debug)]
pub(crate) struct ClientFlags {
    /// load or small
    pub(crate) client: ringroad_lab::suite::Client,
    /// The options as JSON, as the harness writes them
    pub(crate) options: String,
}

/// `4096`, `128K`, `1M`: at most 1 GiB.
fn bytes(text: &str) -> Result<u32, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    let number: u64 =
        digits.parse().map_err(|_| "not a number of bytes (examples: 4096, 128K, 1M)".to_string())?;
    match number.checked_mul(unit) {
        Some(bytes @ 1..=0x4000_0000) => Ok(bytes as u32),
        _ => Err("from 1 byte to 1024M".to_string()),
    }
}

/// `10s`, `500ms`, `2m`, `1m30s`; a bare number is seconds.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    if text.parse::<f64>().is_ok() {
        return seconds(text);
    }
    humantime::parse_duration(text).map_err(|why| format!("{why} (examples: 10s, 500ms, 2m)"))
}

/// One byte.
fn delimiter(text: &str) -> Result<u8, String> {
    match (text, text.as_bytes()) {
        ("\\n", _) => Ok(b'\n'),
        ("\\r", _) => Ok(b'\r'),
        ("\\0", _) => Ok(0),
        (_, [byte]) => Ok(*byte),
        _ => Err("one byte is expected: a character, or \\n, \\r, \\0".to_owned()),
    }
}

/// `0.01` or `1%`: more than nothing, at most all.
fn share(text: &str) -> Result<f64, String> {
    let (number, unit) = match text.strip_suffix('%') {
        Some(percent) => (percent.trim_end(), 100.0),
        None => (text, 1.0),
    };
    let share = number.parse::<f64>().map_err(|_| "not a number (examples: 0.01, 1%)".to_string())? / unit;
    if share > 0.0 && share <= 1.0 {
        Ok(share)
    } else {
        Err("a share is more than 0 and at most 1 (or 100%)".to_string())
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    span(text, 1.0)
}

fn microseconds(text: &str) -> Result<Duration, String> {
    span(text, 1e-6)
}

fn span(text: &str, unit: f64) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_string())?;
    Duration::try_from_secs_f64(number * unit)
        .map_err(|_| "not a span of time: it must be positive and finite".to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_declaration_is_consistent() {
        use clap::CommandFactory;
        Flags::command().debug_assert();
    }

    #[test]
    fn sizes_are_read_with_their_units_and_bounded() {
        for (text, expected) in
            [("1", 1), ("4096", 4096), ("128K", 131_072), ("2m", 2_097_152), ("1024M", 1 << 30)]
        {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for text in ["", "0", "K", "-1", "1G", "1025M", "99999999999999999999", "1.5K"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_have_units_and_a_bare_number_is_seconds() {
        for (text, expected) in
            [("10s", 10_000), ("500ms", 500), ("1m30s", 90_000), ("2", 2_000), ("0.5", 500)]
        {
            assert_eq!(time(text), Ok(Duration::from_millis(expected)), "{text}");
        }
        for text in ["", "s", "10 parsecs", "-1", "inf"] {
            assert!(time(text).is_err(), "{text}");
        }
        assert_eq!((delimiter("\\n"), delimiter(";")), (Ok(b'\n'), Ok(b';')));
        assert!(delimiter("").is_err() && delimiter("ab").is_err() && delimiter("ü").is_err());
    }

    #[test]
    fn shares_are_read_as_numbers_and_as_percent() {
        for (text, expected) in [("0.01", 0.01), ("1%", 0.01), ("100 %", 1.0), ("1", 1.0), ("0.5%", 0.005)] {
            assert_eq!(share(text), Ok(expected), "{text}");
        }
        for text in ["", "%", "0", "-1%", "1.01", "101%", "nan", "x"] {
            assert!(share(text).is_err(), "{text}");
        }
    }

    #[test]
    fn fractions_of_a_microsecond_are_kept() {
        assert_eq!(microseconds("0.2").unwrap(), Duration::from_nanos(200));
        assert!(
            microseconds("-1").is_err() && microseconds("nan").is_err() && microseconds("1e300").is_err()
        );
    }
}
