//! The command line as typed. One declaration gives parsing, help and usage errors.

use crate::lab::flags::LabFlags;
use clap::{Args, Parser, Subcommand};
use ringroad_engine::DriverName;
use ringroad_engine::choose::Wish;
use std::ffi::OsString;

use std::path::PathBuf;
use std::time::Duration;

/// Shown below the help of the program and in its manual page.
const EXIT_CODES: &str = "\
Exit codes: 0 done, 1 failed (the message says why), 2 wrong usage or an unusable driver, 3 destination full, \
4 a copy differs from its source, 5 the run is INVALID, 130 interrupted.";

/// Tools for Linux servers on one completion-based I/O engine: benchmark, load-test, serve, copy
#[derive(Debug, Parser)]
#[command(name = "ringroad", version, arg_required_else_help = true, disable_help_subcommand = true)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Flags {
    #[command(subcommand)]
    pub(crate) verb: Verb,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Options of every verb. Help shows them last.
#[derive(Args, Debug)]
#[command(next_help_heading = "Common options", next_display_order = 900)]
pub(crate) struct Common {
    /// Print errors and verdicts only
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Print more details; may be repeated
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// I/O driver: auto, io_uring, epoll, poll, select or threads [default: $RINGROAD_DRIVER, else auto]. A
    /// named driver is used or refused, never replaced
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) driver: Option<Wish>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Manage the applications of a running server
    App(AppFlags),
    /// Print files and block devices, read through io_uring
    Cat(CatFlags),
    // Its line is read by its own parser (`cp/getopt.rs`); this is its entry in the list of verbs.
    /// Copy files and trees like GNU cp, faster, with --resume and --verify
    #[command(disable_help_flag = true)]
    Cp {
        #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
    /// Check which I/O drivers work here, what blocks the others, and how to fix it
    Doctor(DoctorFlags),
    /// Benchmark servers side by side: twelve I/O models, or your own programs
    Lab(Box<LabFlags>),
    /// Load-test a server and flag results that cannot be trusted
    Load(Box<crate::load::flags::LoadFlags>),
    /// Merge the manifests of the parts of a copy, or compare a tree with one
    Manifest {
        #[command(subcommand)]
        verb: ManifestVerb,
    },
    /// Pack a tree of small files into tar shards, for plain tar and WebDataset
    Pack(PackFlags),
    /// Unpack tar shards into a folder, and check them against their indexes
    Unpack(UnpackFlags),
    /// Serve a folder over HTTP, or what a configuration file describes
    Serve(ServeFlags),
    /// Compare the I/O drivers of a running server, and move its workers between them
    Workers(WorkersFlags),
    /// Print the script that completes this program's verbs and options in a shell
    #[command(alias = "completion")]
    Completions(CompletionFlags),
    /// Write the manual pages into a folder
    Man(ManFlags),
    // `main` turns it into `VERB --help` before the line is parsed; this is its entry in the list of verbs.
    /// Print the help of a verb
    Help {
        /// The verb, as in `help load` or `help lab run`
        #[arg(value_name = "VERB")]
        words: Vec<String>,
    },
}

#[derive(Args, Debug)]
pub(crate) struct CompletionFlags {
    /// The shell to print the script for
    #[arg(value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Args, Debug)]
pub(crate) struct ManFlags {
    /// The folder to write to; it is created if it does not exist
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
}

#[derive(Args, Debug)]
#[command(override_usage = "ringroad serve [OPTIONS] [DIR]
       ringroad serve [OPTIONS] --config <FILE>
       ringroad serve [OPTIONS] --app <TARGET>")]
pub(crate) struct ServeFlags {
    /// The folder to serve (default: this one)
    #[arg(value_name = "DIR", conflicts_with = "config")]
    pub(crate) folder: Option<PathBuf>,
    /// What to serve and how, as TOML (contrib/ringroad.toml is an example, docs/CONFIG.md has every key)
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Address to listen on: 8080 (loopback), :8080 (all addresses), localhost:8080, [::1]:8080; port 0 takes
    /// a free one; unix:PATH; systemd or systemd:NAME for a socket that was passed
    #[arg(long, short = 'p', visible_alias = "port", value_name = "ADDR", value_parser = listen_address)]
    pub(crate) listen: Option<ringroad_http::ListenAt>,
    /// Serve https with this certificate, a chain in PEM, and the key of --tls-key
    #[arg(long, value_name = "FILE", requires = "tls_key", conflicts_with = "tls")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The private key of --tls-cert, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Serve https; `dev`: with a certificate made at start, which clients have to be told to accept
    #[arg(long, value_name = "WHAT", value_parser = ["dev"])]
    pub(crate) tls: Option<String>,
    /// Check the configuration, report every mistake and exit: 0 if it is valid, 2 if not
    #[arg(long, requires = "config")]
    pub(crate) check: bool,
    /// Threads that serve, for each address; with --app its worker processes. 0: one for each CPU
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=1024))]
    pub(crate) workers: Option<u16>,
    /// Threads that serve, for each address, by driver: io_uring=1,epoll=1
    #[arg(long, value_name = "LIST", value_parser = drivers, conflicts_with_all = ["workers", "driver", "app"])]
    pub(crate) drivers: Option<Drivers>,
    /// Share the port with other servers (SO_REUSEPORT)
    #[arg(long)]
    pub(crate) reuse_port: bool,
    /// List folders that have no index.html, also for other machines (on loopback they are listed anyway)
    #[arg(long, conflicts_with = "config")]
    pub(crate) autoindex: bool,
    /// Run this application and serve it: MODULE:ATTRIBUTE (Python, WSGI or ASGI), FILE.php that starts a
    /// server of Swoole's, FILE.php with --protocol fastcgi (and the scripts and files beside it), or a
    /// command line that serves HTTP on the Unix socket {socket}
    #[arg(long, value_name = "TARGET", conflicts_with_all = ["config", "folder", "autoindex"])]
    pub(crate) app: Option<String>,
    /// What the application speaks: auto, ringroad, http, fastcgi or goridge
    #[arg(long, value_name = "NAME", requires = "app", value_parser = ["auto", "ringroad", "http", "fastcgi", "goridge"])]
    pub(crate) protocol: Option<String>,
    /// The application is made by calling the target
    #[arg(long, requires = "app")]
    pub(crate) factory: bool,
    /// Where the application begins, as /shop (root_path, SCRIPT_NAME)
    #[arg(long, value_name = "PATH", requires = "app")]
    pub(crate) root_path: Option<String>,
    /// Requests at once in one worker; for WSGI its threads
    #[arg(long, value_name = "N", requires = "app", value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub(crate) concurrency: Option<u32>,
    /// Development: reload when a file changes, show in the browser why the application does not start
    #[arg(long, requires = "app")]
    pub(crate) dev: bool,
    /// Unix socket for `ringroad app` and `ringroad workers`; only its owner may open it
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct AppFlags {
    /// The server's configuration, which names the control socket
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,
    /// The server's control socket
    #[arg(long, value_name = "PATH", global = true, conflicts_with = "config")]
    pub(crate) control: Option<PathBuf>,
    /// One application, which `scale` needs where there are several; without it all
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) app: Option<String>,
    #[command(subcommand)]
    pub(crate) verb: AppVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AppVerb {
    /// Show workers, requests, memory and restarts
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Start new workers, and stop the old ones when all new ones serve. If one fails, nothing changes
    Reload,
    /// Replace the process of a slot, or all processes one after another, and wait for that. If a new one
    /// does not start, the old one stays
    Restart {
        /// The slot, as the status shows it: 0, or t0 for a task worker
        slot: Option<ringroad_app::SlotId>,
    },
    /// Change the number of workers, of task workers, or of both
    #[command(override_usage = "ringroad app scale [OPTIONS] <WORKERS> [--tasks <N>]
       ringroad app scale [OPTIONS] --tasks <N>")]
    Scale {
        /// Workers
        #[arg(value_parser = clap::value_parser!(u16).range(1..=1024), required_unless_present = "tasks")]
        workers: Option<u16>,
        /// Task workers
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=1024))]
        tasks: Option<u16>,
    },
    /// Stop the server; requests in progress are completed
    Stop,
}

/// Threads by driver.
#[derive(Clone, Debug)]
pub(crate) struct Drivers(pub(crate) Vec<(DriverName, usize)>);

fn driver_name(text: &str) -> Result<DriverName, String> {
    match text.parse() {
        Ok(Wish::Named(driver)) => Ok(driver),
        Ok(Wish::Auto) => Err("expected the name of a driver".to_owned()),
        Err(why) => Err(why.to_string()),
    }
}

fn drivers(text: &str) -> Result<Drivers, String> {
    ringroad_serve::config::drivers(text).map(Drivers)
}

#[derive(Args, Debug)]
pub(crate) struct WorkersFlags {
    /// The server's configuration, which names the control socket
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,
    /// The server's control socket
    #[arg(long, value_name = "PATH", global = true, conflicts_with = "config")]
    pub(crate) control: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) verb: WorkersVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WorkersVerb {
    /// Show workers, requests, latency and CPU time by driver
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Put workers on another driver. New ones take over the listening sockets, the old ones complete what
    /// they have begun; if a new one does not start, nothing changes
    Move {
        /// The driver that they are on
        #[arg(value_name = "FROM", value_parser = driver_name)]
        from: DriverName,
        /// The driver that they are to be on
        #[arg(value_name = "TO", value_parser = driver_name)]
        to: DriverName,
        /// Threads of each address (default: all on that driver)
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
        workers: Option<u16>,
    },
}

/// The same tree makes the same shards. Files that are equal up to the first point of their names stay
/// together. Beside each shard an index (.ndjson) says where each file lies, and has its BLAKE3 hash.
#[derive(Args, Debug)]
pub(crate) struct PackFlags {
    /// The tree
    #[arg(value_name = "DIR")]
    pub(crate) source: PathBuf,
    /// The names of shards, with one %06d: out/data-%06d.tar
    #[arg(value_name = "SHARDS")]
    pub(crate) shards: ringroad_copy::pack::Names,
    /// Bytes of a shard: 64M, 1G (of 1024)
    #[arg(long, value_name = "BYTES", default_value = "512M", value_parser = shard_bytes)]
    pub(crate) shard_size: u64,
    /// The time of all entries in seconds since 1970 [default: their own]
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true)]
    pub(crate) mtime: Option<i64>,
    /// The owner of all entries: UID:GID, or keep
    #[arg(long, value_name = "OWNER", default_value = "0:0", value_parser = owner)]
    pub(crate) owner: Owner,
    /// Leave out what matches, GLOB/ directories only; may be repeated
    #[arg(long, value_name = "GLOB")]
    pub(crate) exclude: Vec<String>,
    /// Write no indexes
    #[arg(long)]
    pub(crate) no_index: bool,
    #[command(flatten)]
    pub(crate) shares: ShareFlags,
}

#[derive(Args, Debug)]
pub(crate) struct UnpackFlags {
    /// The folder to unpack into; it is made if it is not there
    #[arg(short = 'C', long = "directory", value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// The shards
    #[arg(value_name = "SHARD", required = true)]
    pub(crate) shards: Vec<PathBuf>,
    /// A shard without an index beside it is an error; those with one are checked in any case
    #[arg(long)]
    pub(crate) verify: bool,
    /// Give entries their owners and special bits
    #[arg(long)]
    pub(crate) same_owner: bool,
    #[command(flatten)]
    pub(crate) shares: ShareFlags,
}

/// Which of the shards are this process's, and how many it works on at a time.
#[derive(Args, Debug)]
pub(crate) struct ShareFlags {
    /// Every N-th shard only: I/N, from 1; auto as an engine for jobs has set it
    #[arg(long, value_name = "I/N")]
    pub(crate) part: Option<String>,
    /// The number of parts where JOB_COMPLETION_INDEX says which (also RINGROAD_PARTS)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) parts: Option<u32>,
    /// Shards at a time [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) jobs: Option<u16>,
}

/// The owner of packed entries; `None`: their own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner(pub(crate) Option<(u32, u32)>);

fn owner(text: &str) -> Result<Owner, String> {
    if text == "keep" {
        return Ok(Owner(None));
    }
    let numbers = text.split_once(':').and_then(|(user, group)| user.parse().ok().zip(group.parse().ok()));
    numbers
        .map(|numbers| Owner(Some(numbers)))
        .ok_or_else(|| "expected UID:GID in numbers, or keep".to_owned())
}

fn shard_bytes(text: &str) -> Result<u64, String> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" => Some(0),
        "k" => Some(10),
        "m" => Some(20),
        "g" => Some(30),
        "t" => Some(40),
        _ => None,
    };
    let bytes =
        number.parse::<u64>().ok().zip(shift).and_then(|(number, shift)| number.checked_mul(1 << shift));
    bytes.filter(|bytes| *bytes > 0).ok_or_else(|| "expected bytes, as 65536, 64M or 1G".to_owned())
}

#[derive(Debug, Subcommand)]
pub(crate) enum ManifestVerb {
    /// Make one list of those that `cp --part --manifest` and `cp --finish --manifest` wrote. A file that is
    /// in two of them is an error
    Merge {
        /// The list to write
        #[arg(value_name = "OUT")]
        out: PathBuf,
        /// The lists of all parts, and of the last pass
        #[arg(value_name = "LIST", required = true)]
        lists: Vec<PathBuf>,
    },
    /// Read every file of a tree and compare it with a list: files that are missing, that differ, and that
    /// are not in the list. Exit code 4 if there are any
    Check {
        /// The list
        #[arg(value_name = "LIST")]
        list: PathBuf,
        /// The tree that its paths are relative to
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        /// Threads [default: one per CPU]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
        jobs: Option<u16>,
    },
}

fn listen_address(text: &str) -> Result<ringroad_http::ListenAt, String> {
    let expected = "expected an address with its port, as 8080, :8080, localhost:8080 or [::1]:8080; or unix:PATH, \
                    systemd or systemd:NAME";
    // The interface of an address may be missing: that has a reason of its own.
    let told = |why: String| if text.contains('%') { why } else { expected.to_owned() };
    ringroad_serve::config::listen_at(text).map_err(told)
}

#[derive(Args, Debug)]
#[command(override_usage = "ringroad doctor [OPTIONS]
       ringroad doctor --fix-script
       ringroad doctor --seccomp <PROFILE>")]
pub(crate) struct DoctorFlags {
    /// Print one JSON object instead of the screen
    #[arg(long)]
    pub(crate) json: bool,
    /// Exit with 1 unless all of this holds: `io_uring,connections>=50000`; prints one line for each and no
    /// screen
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) require: Vec<String>,
    /// Print a shell script with the commands that fix what can be fixed here, to read and to run as root
    #[arg(long, conflicts_with_all = ["json", "require"])]
    pub(crate) fix_script: bool,
    /// Print this seccomp profile (in Docker's format; `-` is standard input) with io_uring allowed, and
    /// nothing else
    #[arg(long, value_name = "PROFILE", conflicts_with_all = ["json", "require", "fix_script"])]
    pub(crate) seccomp: Option<PathBuf>,
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

/// `4096`, `128K`, `1M`: at most 1 GiB.
pub(crate) fn bytes(text: &str) -> Result<u32, String> {
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
    let time = humantime::parse_duration(text)
        .map_err(|_| "a time is expected: a number and ms, s, m or h, as in 10s, 500ms, 1m30s".to_owned())?;
    within(time)
}

/// The longest time that is taken: sums of times are counted in nanoseconds of 64 bits.
pub(crate) const TIME_MAX: Duration = Duration::from_secs(10 * 366 * 86_400);

fn within(time: Duration) -> Result<Duration, String> {
    if time > TIME_MAX { Err("longer than 10 years".to_owned()) } else { Ok(time) }
}

/// One byte.
pub(crate) fn delimiter(text: &str) -> Result<u8, String> {
    match (text, text.as_bytes()) {
        ("\\n", _) => Ok(b'\n'),
        ("\\r", _) => Ok(b'\r'),
        ("\\0", _) => Ok(0),
        (_, [byte]) => Ok(*byte),
        _ => Err("one byte is expected: a character, or \\n, \\r, \\0".to_owned()),
    }
}

/// `0.01` or `1%`: more than nothing, at most all.
pub(crate) fn share(text: &str) -> Result<f64, String> {
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

pub(crate) fn microseconds(text: &str) -> Result<Duration, String> {
    span(text, 1e-6)
}

fn span(text: &str, unit: f64) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_string())?;
    if number * unit > TIME_MAX.as_secs_f64() {
        return Err("longer than 10 years".to_owned());
    }
    Duration::try_from_secs_f64(number * unit)
        .map_err(|_| "not a span of time: it must be positive and finite".to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_time_that_would_wrap_is_refused() {
        for text in ["999999999h", "1e300", "1e12", "600y", "3661d"] {
            assert_eq!(time(text).unwrap_err(), "longer than 10 years", "{text}");
        }
        assert_eq!(time("10years").map(|time| time <= TIME_MAX), Ok(true));
        assert!(time("inf").is_err() && time("nan").is_err() && time("-1").is_err());
        assert!(microseconds("1e30").is_err());
    }

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
