//! Whether a lookup among 10,000 routes costs more than one among 10.
//!
//! `cargo bench -p ringroad-gate --bench routes` prints nanoseconds for each lookup, as medians of
//! interleaved blocks with their quartiles, and the ratio. Hosts, prefixes and exact paths are mixed as in a
//! large site.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use ringroad_gate::routes::{Found, Match, Routes, Subject};
use std::hint::black_box;
use std::time::Instant;

const BLOCKS: usize = 60;
const LOOKUPS: usize = 20_000;

struct Get<'h>(&'h str);

impl Subject for Get<'_> {
    fn host(&self) -> &str {
        self.0
    }
    fn method(&self) -> &str {
        "GET"
    }
    fn has_header(&self, _: &str, _: Option<&str>) -> bool {
        false
    }
    fn has_query(&self, _: &str, _: Option<&str>) -> bool {
        false
    }
}

/// `count` routes over `count / 10` hosts, and requests that each find one.
fn site(count: usize) -> (Routes<usize>, Vec<(String, String)>) {
    let mut routes = Vec::new();
    let mut requests = Vec::new();
    for number in 0..count {
        let (host, part) = (format!("h{}.example.org", number / 10), number % 10);
        let path = match part {
            0 => "/".to_owned(),
            1..6 => format!("/api/v1/part{part}/"),
            _ => format!("/page{part}.html"),
        };
        requests.push((host.clone(), if path.ends_with('/') { format!("{path}a/b") } else { path.clone() }));
        routes.push((Match { hosts: vec![host], ..Match::path(path) }, number));
    }
    (Routes::new(routes), requests)
}

fn block(routes: &Routes<usize>, requests: &[(String, String)], seed: usize) -> f64 {
    let begun = Instant::now();
    let mut at = seed;
    for _ in 0..LOOKUPS {
        // Of all requests, in an order that no cache line follows.
        at = (at * 7919 + 13) % requests.len();
        let (host, path) = &requests[at];
        assert!(matches!(black_box(routes.find(path.as_bytes(), &Get(host))), Found::Route(_)));
    }
    begun.elapsed().as_nanos() as f64 / LOOKUPS as f64
}

fn quartiles(mut all: Vec<f64>) -> (f64, f64, f64) {
    all.sort_by(f64::total_cmp);
    (all[all.len() / 4], all[all.len() / 2], all[all.len() * 3 / 4])
}

fn main() {
    let (few, many) = (site(10), site(10_000));
    let mut times = (Vec::new(), Vec::new(), Vec::new());
    for at in 0..BLOCKS {
        let one = block(&few.0, &few.1, at);
        let other = block(&many.0, &many.1, at);
        times.0.push(one);
        times.1.push(other);
        times.2.push(other / one);
    }
    for (name, all) in [("10 routes", times.0), ("10,000 routes", times.1), ("ratio", times.2)] {
        let (low, median, high) = quartiles(all);
        println!("{name}: {median:.2} ({low:.2} to {high:.2})");
    }
}
