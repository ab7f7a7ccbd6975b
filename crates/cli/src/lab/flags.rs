//! The command line of `ringroad lab` as typed.

use crate::flags::{bytes, microseconds, share, time};
use clap::{Args, Subcommand, ValueEnum};
use ringroad_engine::choose::Wish;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct LabFlags {
    #[command(subcommand)]
    pub(crate) act: Option<LabAct>,
    /// The option of every verb, hidden here: the lab's models name their drivers
    #[arg(long, global = true, hide = true, value_name = "NAME")]
    pub(crate) driver: Option<Wish>,
    #[command(flatten)]
    pub(crate) run: RunFlags,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabAct {
    /// Compare twelve servers, seven by hand and five on the engine, with 64 connections: two and a half
    /// minutes (the same as `lab` without a verb)
    Quick(RunFlags),
    /// Run a suite: a name (`lab suites` lists them) or a TOML file
    #[command(override_usage = "ringroad lab run [OPTIONS] <SUITE>
       ringroad lab run [OPTIONS] --url <URL>
       ringroad lab run [OPTIONS] --resume <DIR>")]
    Run {
        /// A suite's name, or the path of one
        #[arg(required_unless_present_any = ["resume", "url"], conflicts_with = "resume")]
        suite: Option<String>,
        #[command(flatten)]
        run: RunFlags,
    },
    /// List the built-in suites: what each asks, and how long it takes
    Suites,
    /// List the records that earlier runs left, the newest first
    List,
    /// Open the page of a record in the browser (default: that of the newest)
    Open {
        /// The record, or the folder it is in
        #[arg(value_name = "RECORD")]
        record: Option<PathBuf>,
    },
    /// Measure published figures again and print both side by side: eight minutes (it cannot be resumed)
    Sources(SourcesFlags),
    /// Print the table of earlier records, several as one, and draw their page again
    Report {
        /// The records to read: record.json, or the folder it is in (default: the newest)
        #[arg(value_name = "RECORD")]
        records: Vec<PathBuf>,
        /// Where to write the page (default: report.html beside record.json, run.html beside run.json;
        /// needed for several, and for a record from a pipe)
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// Also write the main chart as an SVG file
        #[arg(long, value_name = "FILE")]
        chart: Option<PathBuf>,
        #[command(flatten)]
        print: PrintFlags,
    },
    /// Show what became slower or faster between two records, with the smallest detectable difference
    Compare {
        /// The record to compare with (record.json, or the folder it is in)
        #[arg(value_name = "BEFORE")]
        first: PathBuf,
        /// The record to judge
        #[arg(value_name = "AFTER")]
        second: PathBuf,
        /// Figure to compare: cpu (per request), p99, rate
        #[arg(long, value_name = "FIGURE", default_value = "cpu")]
        figure: ringroad_lab::compare::Measure,
        /// Compare absolute figures, not ratios to the baseline of the same run
        #[arg(long)]
        absolute: bool,
    },
    /// Merge several records into one: runs of the same cells are pooled, other cells are added. Parts of a
    /// load (load --part) are added up exactly, and judged as one
    Merge {
        /// The records to read (record.json, or the folder it is in; or a folder of part-I-of-N.json)
        #[arg(value_name = "RECORD", required = true)]
        records: Vec<PathBuf>,
        /// Where to write the record
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Recommend a driver and settings for a workload, from a record of this machine; without a workload, for
    /// common ones
    Advise(AdviseFlags),
    /// Run one of the reference servers; on SIGUSR1 those on the engine print their state to stderr
    Server(ServerFlags),
    /// Write a tree of files to copy: imagenet, coco, mnist, cifar10, mixed
    Dataset(DatasetFlags),
    /// Drive a server with one of the lab's clients, and print what it counted as JSON
    #[command(hide = true)]
    Client(ClientFlags),
    /// Anything else is not a verb
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}

/// How a record is printed.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct PrintFlags {
    /// Print the record in this format
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    pub(crate) format: Format,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,
    /// The same as --format markdown
    #[arg(long, conflicts_with_all = ["format", "json"])]
    pub(crate) markdown: bool,
    /// The same as --format csv
    #[arg(long, conflicts_with_all = ["format", "json", "markdown"])]
    pub(crate) csv: bool,
    /// Print the table and the answer only, without notes and reasons for doubt
    #[arg(long, conflicts_with_all = ["json", "markdown", "csv"])]
    pub(crate) brief: bool,
}

impl PrintFlags {
    /// Returns the format asked for, by whichever option.
    pub(crate) fn wanted(&self) -> Format {
        match (self.json, self.markdown, self.csv) {
            (true, ..) => Format::Json,
            (_, true, _) => Format::Markdown,
            (_, _, true) => Format::Csv,
            _ => self.format,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    #[default]
    Table,
    /// The whole record
    Json,
    /// A table for a document
    Markdown,
    /// One line per result
    Csv,
}

#[derive(Args, Clone, Debug, Default)]
pub(crate) struct RunFlags {
    /// Folder for record.json and report.html (default: a new one under the user's state directory)
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Resume an interrupted run from its last whole block, in the folder with its journal
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with_all =
            ["out", "with", "only", "client", "repeats", "duration", "seed", "url", "path", "connections"]
    )]
    pub(crate) resume: Option<PathBuf>,
    /// Measure a program of your own, too: NAME=COMMAND, with {port} or {addr} in it, as in `mine=./server
    /// {port}`; may be repeated
    #[arg(long, value_name = "NAME=COMMAND")]
    pub(crate) with: Vec<String>,
    /// Compare HTTP servers that already run, instead of a suite: [NAME=]URL, the first is the baseline; may
    /// be repeated (https: certificates are not verified)
    #[arg(long, value_name = "URL", conflicts_with_all = ["with", "only"])]
    pub(crate) url: Vec<String>,
    /// Request this path, instead of the suite's
    #[arg(long, value_name = "PATH")]
    pub(crate) path: Option<String>,
    /// Make so many connections, instead of the suite's numbers; several counts, comma-separated, are several
    /// loads
    #[arg(long, value_name = "COUNTS", value_delimiter = ',')]
    pub(crate) connections: Vec<u32>,
    /// Only these programs of the suite (comma-separated), and its baseline
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// The client that puts the loads on: load (this program's load generator) or small (one that shares no
    /// code with it)
    #[arg(long, value_name = "NAME")]
    pub(crate) client: Option<ringroad_lab::suite::Client>,
    /// Times each result is measured, instead of the suite's number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeats: Option<u32>,
    /// Time of each measured window, as in 2s, instead of the suite's
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) duration: Option<Duration>,
    /// Seed of the random order, instead of a fresh one
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Print what would run, which programs would be left out and why, and how long it would take; run
    /// nothing
    #[arg(long, conflicts_with_all = ["resume", "json"])]
    pub(crate) plan: bool,
    /// Exit with 5 for SUSPECT too, not for INVALID alone
    #[arg(long)]
    pub(crate) strict: bool,
    #[command(flatten)]
    pub(crate) print: PrintFlags,
}

#[derive(Args, Debug)]
pub(crate) struct SourcesFlags {
    /// Only these documents (comma-separated): 000, 001, 002, 003, 004
    #[arg(long, value_name = "IDS", value_delimiter = ',', value_parser = ringroad_lab::sources::SOURCES)]
    pub(crate) only: Vec<String>,
    /// As long and as large as published (an hour, 35 GB of files), not scaled down
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
    /// Time of each measured window, as in 2s, instead of its own
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) duration: Option<Duration>,
    /// Folder for record.json and report.html (default: a new one under the user's state directory)
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Seed of the random order, instead of a fresh one
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Exit with 5 for SUSPECT too, not for INVALID alone
    #[arg(long)]
    pub(crate) strict: bool,
    #[command(flatten)]
    pub(crate) print: PrintFlags,
}

#[derive(Args, Debug)]
#[command(override_usage = "ringroad lab advise [OPTIONS]
       ringroad lab advise [--for <TIME>] --traffic <URL|FILE>...")]
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
    /// Advise for the traffic of a running `ringroad serve` with workers on several drivers: the URL of its
    /// metrics or its status, which is read for a while; or seven or more files with earlier readings, in the
    /// order of time
    #[arg(
        long, value_name = "URL|FILE", num_args = 1..,
        conflicts_with_all = ["record", "protocol", "connections", "active", "payload", "pipeline", "work_us", "delay_us", "reconnect"]
    )]
    pub(crate) traffic: Vec<String>,
    /// How long a URL is read: 12 intervals of equal length
    #[arg(long = "for", value_name = "TIME", requires = "traffic", value_parser = crate::flags::time, default_value = "1m")]
    pub(crate) span: Duration,
}

#[derive(Args, Debug)]
pub(crate) struct ServerFlags {
    /// threads, select, poll, epoll-lt, epoll-et, uring, uring-multishot, engine-threads, engine-select,
    /// engine-poll, engine-epoll, engine-io_uring
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
    /// Serve at most this many ready connections between two waits; on io_uring: take so many completions.
    /// `threads` and the models on the engine have none
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
