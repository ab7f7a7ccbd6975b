//! `peer-costs RUNTIME CASE ITEMS`: does something so many times on one runtime, and prints what that cost.
//!
//! The cases are written once ([`cases`](ours::cases)) and compiled twice: over our engine ([`ours`]) and over tokio's
//! current-thread runtime ([`theirs`]). One process measures one case on one runtime, so that neither finds the other's
//! leavings; order, repetition and statistics are the caller's (`cargo xtask bench costs`).
//!
//! `peer-costs list` prints the cases: name, items that take some 50 ms, and whether several threads are at work.
#![forbid(unsafe_code)]

mod ours;
mod theirs;

use ringroad_host::{cpu::ProcessClock, memory};
use std::process::ExitCode;
use std::time::Instant;

/// A case: its name, how many items take some 50 ms, on how many threads.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) items: u64,
    pub(crate) threads: u32,
    /// Does so many items, between two looks of the meter.
    pub(crate) run: fn(u64, &mut Meter),
}

/// Looks at the clocks where a case says that it begins and ends.
pub(crate) struct Meter {
    began: Option<Look>,
    ended: Option<Look>,
}

#[derive(Clone, Copy)]
struct Look {
    wall: Instant,
    cpu_ns: u128,
    heap_bytes: u64,
    rss_bytes: u64,
}

impl Look {
    fn now() -> Look {
        let memory = memory::process(std::process::id()).unwrap_or_default();
        let cpu = ProcessClock::own().read().expect("the clock of the process that reads it");
        Look {
            wall: Instant::now(),
            cpu_ns: cpu.as_nanos(),
            heap_bytes: memory::heap_bytes().unwrap_or(0),
            rss_bytes: memory.rss_bytes.unwrap_or(0),
        }
    }
}

impl Meter {
    pub(crate) fn begin(&mut self) {
        self.began = Some(Look::now());
    }

    /// The clocks are read first: looking at the memory takes long.
    pub(crate) fn end(&mut self) {
        let (wall, cpu) = (Instant::now(), ProcessClock::own().read());
        let look = Look::now();
        self.ended = Some(Look { wall, cpu_ns: cpu.map_or(look.cpu_ns, |cpu| cpu.as_nanos()), ..look });
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["list"] => {
            for case in ours::cases::CASES {
                println!("{} {} {}", case.name, case.items, case.threads);
            }
            ExitCode::SUCCESS
        }
        [runtime @ ("ours" | "tokio"), name, items] => {
            let cases = if runtime == "ours" { ours::cases::CASES } else { theirs::cases::CASES };
            let case = cases.iter().find(|case| case.name == name);
            match (case, items.parse()) {
                (Some(case), Ok(items)) => measure(case, items),
                _ => usage(),
            }
        }
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: peer-costs list | peer-costs ours|tokio CASE ITEMS");
    ExitCode::from(2)
}

fn measure(case: &Case, items: u64) -> ExitCode {
    let mut meter = Meter { began: None, ended: None };
    (case.run)(items, &mut meter);
    let (Some(began), Some(ended)) = (meter.began, meter.ended) else {
        eprintln!("peer-costs: {} did not come to its end", case.name);
        return ExitCode::FAILURE;
    };
    let grown = |now: u64, then: u64| now.saturating_sub(then);
    println!(
        "{{\"items\":{items},\"cpu_ns\":{},\"wall_ns\":{},\"heap_bytes\":{},\"rss_bytes\":{}}}",
        ended.cpu_ns - began.cpu_ns,
        (ended.wall - began.wall).as_nanos(),
        grown(ended.heap_bytes, began.heap_bytes),
        grown(ended.rss_bytes, began.rss_bytes),
    );
    ExitCode::SUCCESS
}
