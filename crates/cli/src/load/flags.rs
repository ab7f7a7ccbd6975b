//! The options of `ringroad load`. One declaration gives parsing, help and usage errors.
//!
//! Options that wrk, hey, oha, ab and curl have too go by their names here where those agree. Start at
//! [`LoadFlags`].

use crate::flags::{bytes, delimiter, time};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

const LOAD: &str = "Load";
const REQUEST: &str = "Request";
const CONNECTION: &str = "Connection";
const CHECK: &str = "Checks";
const OUTPUT: &str = "Output";
const HOLD: &str = "Long-lived connections";
const BROADCAST: &str = "Broadcast";
const PROCESS: &str = "Threads and processes";
const PARTS: &str = "Several machines";

/// Load-test a server and flag results that cannot be trusted
///
/// Closed loop by default: each connection sends its next request when it has the answer to the last. With
/// --rate, open loop: requests are sent on schedule however slow the answers are.
#[derive(Args, Debug)]
#[command(override_usage = "ringroad load [OPTIONS] <URL>
       ringroad load [OPTIONS] --urls <FILE>
       ringroad load [OPTIONS] --calibrate
       ringroad load [OPTIONS] --plan")]
pub(crate) struct LoadFlags {
    /// http://HOST[:PORT]/PATH (http:// may be left out), https:// likewise, unix:SOCKET[:/PATH], or tcp://HOST:PORT
    /// for an echo server; `'URL 3'` has weight 3 among several
    #[arg(value_name = "URL", required_unless_present_any = ["calibrate", "urls", "plan"])]
    pub(crate) url: Option<String>,

    /// Connections that send requests [default: 10]
    #[arg(short, long, value_name = "N", value_parser = count32, allow_negative_numbers = true, help_heading = LOAD)]
    pub(crate) connections: Option<u32>,
    /// Measured time, as in 10s, 500ms, 2m [default: 10s, or until -n requests are answered]
    #[arg(short, long, short_alias = 'z', value_name = "TIME", value_parser = measured, help_heading = LOAD)]
    pub(crate) duration: Option<Duration>,
    /// Send N requests in all (10k and 1m are understood)
    #[arg(short = 'n', long = "requests", value_name = "N", value_parser = count, allow_negative_numbers = true, help_heading = LOAD)]
    pub(crate) count: Option<u64>,
    /// Send N requests per second however fast the server answers (open loop)
    #[arg(short, long, short_alias = 'R', value_name = "N", value_parser = number, allow_negative_numbers = true, help_heading = LOAD)]
    pub(crate) rate: Option<f64>,
    /// With --rate: Poisson arrivals instead of evenly spaced ones
    #[arg(long, help_heading = LOAD)]
    pub(crate) poisson: bool,
    /// Load before the measured time [default: 1s; 0s with -n]
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = LOAD)]
    pub(crate) warmup: Option<Duration>,
    /// Requests in flight on each connection (closed loop)
    #[arg(short, long, value_name = "N", default_value_t = 1, help_heading = LOAD)]
    pub(crate) pipeline: u32,
    /// Speak HTTP/2: chosen by TLS, or by prior knowledge with http://
    #[arg(long, conflicts_with = "calibrate", help_heading = LOAD)]
    pub(crate) http2: bool,
    /// With --http2: streams, that is requests in flight, on each connection
    #[arg(long, value_name = "N", requires = "http2", conflicts_with = "pipeline", help_heading = LOAD)]
    pub(crate) streams: Option<u32>,
    /// A load that changes: 30s:100 holds 100 connections, 1m:100..2000 rises evenly, 30s:5000/s is a rate;
    /// comma-separated
    #[arg(long, value_name = "LIST", conflicts_with_all = ["rate", "duration", "count", "ramp"], help_heading = LOAD)]
    pub(crate) stages: Option<String>,
    /// A staircase: 200+200/3m..3000 begins with 200 connections and adds 200 every 3 minutes, up to 3000
    #[arg(long, value_name = "STAIRS", conflicts_with_all = ["rate", "duration", "count"], help_heading = LOAD)]
    pub(crate) ramp: Option<String>,
    /// Search the highest rate that meets this, as in p99<5ms: probes of -d (3s) after --warmup (500ms), from
    /// -r (1000) on
    #[arg(long, value_name = "DEMAND", conflicts_with_all = ["stages", "ramp", "count", "require"], help_heading = LOAD)]
    pub(crate) knee: Option<String>,
    /// Additional idle connections
    #[arg(long, value_name = "N", default_value = "0", value_parser = count32, help_heading = LOAD)]
    pub(crate) idle: u32,
    /// Run the load N times; with --vs, N times each
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = LOAD)]
    pub(crate) repeat: Option<u32>,
    /// Compare with this URL: both are loaded in turns, and the ratio is reported with its 95 % interval
    /// [repeats: 10]
    #[arg(long, value_name = "URL", conflicts_with_all = ["knee", "processes", "urls", "also", "hold"], help_heading = LOAD)]
    pub(crate) vs: Option<String>,
    /// First measure what this client can reach, against a server that does nothing; without a URL, only that
    #[arg(long, conflicts_with_all = ["processes", "knee"], help_heading = LOAD)]
    pub(crate) calibrate: bool,
    /// Seed of random choices
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = LOAD)]
    pub(crate) seed: u64,

    /// Method [default: GET, or POST with a body]
    #[arg(short = 'X', long, short_alias = 'm', value_name = "NAME", help_heading = REQUEST)]
    pub(crate) method: Option<String>,
    /// A header line, `'Name: value'`; may be repeated
    #[arg(short = 'H', long, value_name = "LINE", help_heading = REQUEST)]
    pub(crate) header: Vec<String>,
    /// The body, or the message of tcp://; `@FILE` is the content of a file
    #[arg(long, alias = "data", value_name = "TEXT", help_heading = REQUEST)]
    pub(crate) body: Option<String>,
    /// The body from a file
    #[arg(short = 'D', long, value_name = "FILE", conflicts_with = "body", help_heading = REQUEST)]
    pub(crate) body_file: Option<PathBuf>,
    /// The header line Content-Type
    #[arg(short = 'T', long, value_name = "TYPE", help_heading = REQUEST)]
    pub(crate) content_type: Option<String>,
    /// The header line Accept
    #[arg(short = 'A', long, value_name = "TYPE", help_heading = REQUEST)]
    pub(crate) accept: Option<String>,
    /// Log in with Basic authentication
    #[arg(short = 'a', long, value_name = "USER:PASSWORD", help_heading = REQUEST)]
    pub(crate) auth: Option<String>,
    /// Cookies to send, `'name=value; other=value'`; may be repeated
    #[arg(short = 'b', long, short_alias = 'C', value_name = "COOKIES", help_heading = REQUEST)]
    pub(crate) cookie: Vec<String>,
    /// Send the cookies that the server sets in its answer to the first request
    #[arg(long, help_heading = REQUEST)]
    pub(crate) jar: bool,
    /// Follow redirects on the same host before the load, and load the URL they lead to
    #[arg(short = 'L', long, help_heading = REQUEST)]
    pub(crate) location: bool,
    /// Another URL, or a path of the same server, with a weight as above; may be repeated
    #[arg(long, value_name = "URL", help_heading = REQUEST)]
    pub(crate) also: Vec<String>,
    /// URLs from a file: `[METHOD] URL [WEIGHT]` on each line; # begins a comment
    #[arg(long, alias = "urls-from-file", value_name = "FILE", help_heading = REQUEST)]
    pub(crate) urls: Option<PathBuf>,
    /// Values for placeholders: CSV with a line of names; {name} in path, header and body is the value of the
    /// next row
    #[arg(long, value_name = "FILE", help_heading = REQUEST)]
    pub(crate) vars: Option<PathBuf>,
    /// Send placeholders ({random}, {random:1-9}, {uuid}, the number n in braces) as they are, instead of
    /// filling them in for each request
    #[arg(long, help_heading = REQUEST)]
    pub(crate) no_template: bool,
    /// A new connection for each request
    #[arg(long, help_heading = REQUEST)]
    pub(crate) disable_keepalive: bool,
    /// tcp:// and ws://: bytes of a message, which come back the same [default: 64]
    #[arg(long, value_name = "BYTES", value_parser = bytes, help_heading = REQUEST)]
    pub(crate) length: Option<u32>,
    /// tcp://: an answer is any bytes up to this one: a character, or \\n, \\r, \\0
    #[arg(long, value_name = "BYTE", value_parser = delimiter, help_heading = REQUEST)]
    pub(crate) delimiter: Option<u8>,

    /// Connect to this Unix socket instead of the URL's host
    #[arg(long, alias = "unix-socket", value_name = "PATH", conflicts_with_all = ["connect_to", "source"], help_heading = CONNECTION)]
    pub(crate) unix: Option<PathBuf>,
    /// Connect to HOST2:PORT2 for URLs of HOST1:PORT1; parts may be empty; may be repeated
    #[arg(long, value_name = "HOST1:PORT1:HOST2:PORT2", help_heading = CONNECTION)]
    pub(crate) connect_to: Vec<String>,
    /// Name in the Host line and in the TLS handshake instead of the URL's host
    #[arg(long, value_name = "NAME", help_heading = CONNECTION)]
    pub(crate) host: Option<String>,
    #[command(flatten)]
    pub(crate) tls: TlsFlags,
    /// Limit for one answer, and for one connection
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time, help_heading = CONNECTION)]
    pub(crate) timeout: Duration,
    /// Connections made per second at most
    #[arg(long, value_name = "N", value_parser = number, help_heading = CONNECTION)]
    pub(crate) connect_rate: Option<f64>,
    /// Limit for making all connections; then the load begins with those there are [default: 60s and 1s per
    /// 1000]
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = CONNECTION)]
    pub(crate) connect_limit: Option<Duration>,
    /// Local addresses to connect from, in turns: 127.0.0.2,10.0.0.7 or 127.0.0.2-127.0.0.9 [default on
    /// loopback: as many as needed]
    #[arg(long, value_name = "LIST", help_heading = CONNECTION)]
    pub(crate) source: Option<String>,
    /// io_uring on Linux 6.13: connections without descriptors [default: where descriptors are too few]
    #[arg(long, help_heading = CONNECTION)]
    pub(crate) direct: bool,
    /// Leave TCP_NODELAY off
    #[arg(long, help_heading = CONNECTION)]
    pub(crate) no_nodelay: bool,
    /// SO_RCVBUF of each socket
    #[arg(long, value_name = "BYTES", value_parser = bytes, help_heading = CONNECTION)]
    pub(crate) rcvbuf: Option<u32>,
    /// SO_SNDBUF of each socket
    #[arg(long, value_name = "BYTES", value_parser = bytes, help_heading = CONNECTION)]
    pub(crate) sndbuf: Option<u32>,

    /// Statuses of a good answer: 200,404 or 2xx or 300-399 [default: 2xx]
    #[arg(long, value_name = "LIST", help_heading = CHECK)]
    pub(crate) expect_status: Option<String>,
    /// Text that the body of a good answer contains
    #[arg(long, value_name = "TEXT", help_heading = CHECK)]
    pub(crate) expect_body: Option<String>,
    /// Load at once, without one request before to see what the server answers
    #[arg(long, help_heading = CHECK)]
    pub(crate) no_ask: bool,
    /// Exit with 1 unless this holds: p99<5ms, rps>=10000, errors%<=0.1, connections>=500; may be repeated
    #[arg(long, value_name = "DEMAND", help_heading = CHECK)]
    pub(crate) require: Vec<String>,
    /// Exit with 5 for SUSPECT results too, not only for INVALID ones
    #[arg(long, help_heading = CHECK)]
    pub(crate) strict: bool,

    /// Write the record (JSON) to a file; - is standard output
    #[arg(short, long, value_name = "FILE", help_heading = OUTPUT)]
    pub(crate) out: Option<PathBuf>,
    /// Print the record (JSON) on standard output, and the summary on standard error
    #[arg(long, conflicts_with = "out", help_heading = OUTPUT)]
    pub(crate) json: bool,
    /// Hand the record over: to a folder, as a file of its own; or to a server, by POST to http://HOST/PATH, by
    /// PUT of a file to http://HOST/PATH/
    #[arg(long, value_name = "URL", help_heading = OUTPUT)]
    pub(crate) post: Option<String>,
    /// Write a line of figures for each second (CSV) to a file; - is standard output
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub(crate) csv: Option<PathBuf>,
    /// As in wrk; the latency distribution is always printed
    #[arg(long, hide = true)]
    pub(crate) latency: bool,

    #[command(flatten)]
    pub(crate) hold: HoldFlags,
    #[command(flatten)]
    pub(crate) broadcast: BroadcastFlags,
    /// Threads [default: one per CPU; half of them if the server is on this machine]
    #[arg(short, long, value_name = "N", help_heading = PROCESS)]
    pub(crate) threads: Option<u32>,
    #[command(flatten)]
    pub(crate) processes: ProcessFlags,
    #[command(flatten)]
    pub(crate) parts: PartFlags,
    /// Put no load on; print how many machines like this one it needs, and which limit makes them so many
    #[arg(long, conflicts_with_all = ["knee", "vs", "repeat"], help_heading = PARTS)]
    pub(crate) plan: bool,
}

/// `load --processes` and what belongs to it.
#[derive(Args, Debug)]
pub(crate) struct ProcessFlags {
    /// Processes that share the load, each with -t threads and its own descriptor limit
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = PROCESS)]
    pub(crate) processes: u32,
    /// With --processes: how many may be lost before the run is INVALID
    #[arg(long, value_name = "N", default_value_t = 0, requires = "processes", help_heading = PROCESS)]
    pub(crate) allow_lost: u32,
    /// Be one of the processes: orders come on standard input, reports go to standard output
    #[arg(long, value_name = "N", hide = true)]
    pub(crate) process_part: Option<u32>,
}

/// `load --part` and what belongs to it.
#[derive(Args, Debug)]
pub(crate) struct PartFlags {
    /// Put on part I of N of this load, from 1, as in 3/8: all parts with the same options, then `lab merge`
    /// [default: from JOB_COMPLETION_INDEX and --parts, or from SLURM_ARRAY_TASK_ID; 1/1 for the whole]
    #[arg(long, value_name = "I/N", help_heading = PARTS)]
    pub(crate) part: Option<String>,
    /// The number of parts, where the engine sets only which one this is [default: $RINGROAD_PARTS]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000), help_heading = PARTS)]
    pub(crate) parts: Option<u32>,
    /// Begin at this instant, the same for all parts: 2026-11-24T15:00:00Z (UTC), or seconds since 1970
    /// [default: $RINGROAD_START_AT, else when the connections are there]
    #[arg(long, value_name = "TIME", help_heading = PARTS)]
    pub(crate) start_at: Option<String>,
    /// Compare this machine's clock with that of a time server (ntp://HOST) or with the Date of a web server
    /// (http://HOST/), and begin by that clock [default: $RINGROAD_CLOCK_FROM]
    #[arg(long, value_name = "URL", help_heading = PARTS)]
    pub(crate) clock_from: Option<String>,
}

/// Which certificates `load https://` accepts.
#[derive(Args, Debug)]
pub(crate) struct TlsFlags {
    /// Do not verify the server's certificate
    #[arg(short = 'k', long, help_heading = CONNECTION)]
    pub(crate) insecure: bool,
    /// Trust the certificates in this file (PEM) instead of the system's
    #[arg(long, value_name = "FILE", conflicts_with = "insecure", help_heading = CONNECTION)]
    pub(crate) cacert: Option<PathBuf>,
}

/// `load --hold` and what belongs to it.
#[derive(Args, Debug)]
pub(crate) struct HoldFlags {
    /// Hold the connections with a heartbeat on each, reconnect lost ones, and report how well the server
    /// keeps them
    #[arg(long, conflicts_with_all = ["rate", "count", "stages", "ramp", "poisson"], help_heading = HOLD)]
    pub(crate) hold: bool,
    /// With --hold: time between two heartbeats of a connection
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time, requires = "hold", help_heading = HOLD)]
    pub(crate) heartbeat: Duration,
    /// With --hold: failed tries in a row after which a connection is given up and the server counts as
    /// unavailable
    #[arg(long, value_name = "N", requires = "hold", help_heading = HOLD)]
    pub(crate) retry_limit: Option<u32>,
}

/// `load --broadcast` and what belongs to it.
#[derive(Args, Debug)]
pub(crate) struct BroadcastFlags {
    /// Each message that one connection of ws:// sends has to reach all of them: count the deliveries, and
    /// their latency. The connections send in turn, 1 message a second together or --rate. {mark} in --body
    /// is where the mark goes, by which a message is known
    #[arg(long, conflicts_with_all = ["hold", "ramp", "pipeline", "http2", "idle", "processes", "part", "calibrate", "plan"], help_heading = BROADCAST)]
    pub(crate) broadcast: bool,
    /// With --broadcast: what each connection sends first, as a subscription. Let --warmup be longer than it
    /// takes
    #[arg(long, value_name = "TEXT", requires = "broadcast", help_heading = BROADCAST)]
    pub(crate) join: Option<String>,
}

/// Returns the measured time. Behind -d curl, hey and oha take a body.
fn measured(text: &str) -> Result<Duration, String> {
    let begins_as_time = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+'));
    time(text).map_err(|why| match begins_as_time {
        true => why,
        false => format!("{why}; a body is --body TEXT, or -D FILE"),
    })
}

/// Returns a number with an optional suffix: k is a thousand, m a million, as in wrk.
fn number(text: &str) -> Result<f64, String> {
    let (digits, factor) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1e3),
        None => text.strip_suffix(['m', 'M']).map_or((text, 1.0), |digits| (digits, 1e6)),
    };
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.' || byte == b'-');
    digits
        .parse::<f64>()
        .ok()
        .filter(|number| is_plain && number.is_finite())
        .map(|number| number * factor)
        .ok_or_else(|| "a number is expected, as in 500, 10k, 1.5m".to_owned())
}

fn count(text: &str) -> Result<u64, String> {
    if let Ok(count) = text.parse::<u64>() {
        return Ok(count);
    }
    let count = number(text)?;
    if count.fract() != 0.0 || !(0.0..=1e15).contains(&count) {
        return Err("a whole number is expected, as in 500, 10k, 1.5m".to_owned());
    }
    Ok(count as u64)
}

fn count32(text: &str) -> Result<u32, String> {
    u32::try_from(count(text)?).map_err(|_| "at most 4294967295".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_may_have_a_suffix() {
        for (text, value) in
            [("500", 500), ("10k", 10_000), ("1.5m", 1_500_000), ("2M", 2_000_000), ("0.5K", 500)]
        {
            assert_eq!(count(text), Ok(value), "{text}");
        }
        assert_eq!(number("1.25"), Ok(1.25));
        assert_eq!(count32("4294967295"), Ok(u32::MAX));
        for text in ["", "k", "1.5", "-1", "1kk", "inf", "1e3", "1g", "0x10"] {
            assert!(count(text).is_err(), "{text}");
        }
        assert!(count32("5000m").is_err());
    }
}
