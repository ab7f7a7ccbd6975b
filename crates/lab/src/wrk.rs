//! `wrk` as an outside client: its command line and its text output.
//!
//! wrk reports in prose, rounds, and leaves the requests in flight at its end unanswered; so counts agree
//! with the server's only to within the connections. Start at [`parse`].
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use ringroad_measure::record::Errors;

/// What wrk said.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WrkReport {
    /// Answers.
    pub requests: u64,
    /// Seconds it ran, by its own clock.
    pub seconds: f64,
    /// Mean latency, microseconds.
    pub mean_us: Option<f64>,
    /// Median latency, microseconds.
    pub p50_us: Option<f64>,
    /// 99th percentile, microseconds.
    pub p99_us: Option<f64>,
    /// Failures by kind; wrk's read and write errors are resets.
    pub errors: Errors,
}

/// Returns the command for one thread, `connections`, whole `seconds`.
pub fn command(url: &str, connections: u32, seconds: u64, timeout_s: f64) -> Vec<String> {
    let timeout = format!("--timeout={}s", timeout_s.ceil());
    ["wrk", "-t1", &format!("-c{connections}"), &format!("-d{seconds}s"), &timeout, "--latency", url]
        .map(str::to_owned)
        .to_vec()
}

/// Reads wrk's report; `None` if it is none.
pub fn parse(text: &str) -> Option<WrkReport> {
    let mut report = WrkReport::default();
    let mut complete = false;
    for line in text.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words.as_slice() {
            ["Latency", mean, _, _, _] => report.mean_us = micros(mean),
            ["50%", value] => report.p50_us = micros(value),
            ["99%", value] => report.p99_us = micros(value),
            [count, "requests", "in", seconds, ..] => {
                report.requests = count.parse().ok()?;
                report.seconds = micros(seconds.trim_end_matches(','))? / 1e6;
                complete = true;
            }
            ["Socket", "errors:", "connect", connect, "read", read, "write", write, "timeout", timeout] => {
                let number = |word: &str| word.trim_end_matches(',').parse::<u64>().ok();
                report.errors.connect = number(connect)?;
                report.errors.reset = number(read)? + number(write)?;
                report.errors.timeout = number(timeout)?;
            }
            ["Non-2xx", "or", "3xx", "responses:", count] => report.errors.status = count.parse().ok()?,
            _ => {}
        }
    }
    (complete && report.seconds > 0.0).then_some(report)
}

/// `631.00us`, `1.23ms`, `2.00s`, `1.5m` as microseconds.
fn micros(text: &str) -> Option<f64> {
    let (number, factor) = [("us", 1.0), ("ms", 1e3), ("s", 1e6), ("m", 6e7), ("h", 3.6e9)]
        .into_iter()
        .find_map(|(unit, factor)| text.strip_suffix(unit).map(|number| (number, factor)))?;
    Some(number.parse::<f64>().ok()? * factor)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    const REPORT: &str = "Running 2s test @ http://127.0.0.1:8080/
  1 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   259.41us   45.07us   1.53ms   92.17%
    Req/Sec   242.60k     5.04k  250.10k    80.95%
  Latency Distribution
     50%  251.00us
     75%  267.00us
     90%  295.00us
     99%    1.40ms
  506778 requests in 2.10s, 50.26MB read
  Socket errors: connect 1, read 2, write 3, timeout 4
  Non-2xx or 3xx responses: 5
Requests/sec: 241325.33
Transfer/sec:     23.93MB
";

    #[test]
    fn every_figure_is_read_in_its_unit() {
        let report = parse(REPORT).unwrap();
        assert_eq!(report.requests, 506_778);
        assert_eq!(report.seconds, 2.1);
        assert_eq!(report.mean_us, Some(259.41));
        assert_eq!(report.p50_us, Some(251.0));
        assert_eq!(report.p99_us, Some(1400.0));
        assert_eq!(report.errors, Errors { connect: 1, reset: 5, timeout: 4, status: 5, protocol: 0 });
    }

    #[test]
    fn a_report_cut_short_is_none() {
        let cut = REPORT.find("506778").unwrap();
        assert_eq!(parse(&REPORT[..cut]), None);
        assert_eq!(parse("unable to connect to 127.0.0.1:1 Connection refused"), None);
    }
}
