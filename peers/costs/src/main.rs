//! `peer-costs RUNTIME CASE ITEMS`: does something so many times on one runtime, and prints what that cost.
//!
//! The cases are written once ([`cases`](on_ringroad::cases)) and compiled for each runtime: our engine
//! ([`on_ringroad`]), tokio's current-thread runtime ([`on_tokio`]), compio ([`on_compio`]) and monoio
//! ([`on_monoio`]). Channels and semaphores ([`messages`](on_ringroad::messages)) are there for the first
//! two: the others have none. One process measures one case on one runtime, so that none finds what another
//! has left; order, repetition and statistics are the caller's (`cargo xtask bench costs`).
//!
//! `peer-costs list` prints the cases: name, items that take some 50 ms, how many threads are at work, and
//! the runtimes that have the case.
#![forbid(unsafe_code)]

mod on_compio;
mod on_monoio;
mod on_ringroad;
mod on_tokio;
mod yielding;

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

/// The runtimes, with the cases that each has. The first has all.
const RUNTIMES: [(&str, &[&[Case]]); 4] = [
    ("ours", &[on_ringroad::cases::CASES, on_ringroad::messages::CASES]),
    ("tokio", &[on_tokio::cases::CASES, on_tokio::messages::CASES]),
    ("compio", &[on_compio::cases::CASES]),
    ("monoio", &[on_monoio::cases::CASES]),
];

/// A case of a runtime by its name.
fn case(cases: &[&'static [Case]], name: &str) -> Option<&'static Case> {
    cases.iter().flat_map(|cases| cases.iter()).find(|case| case.name == name)
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["list"] => {
            for one in RUNTIMES[0].1.iter().flat_map(|cases| cases.iter()) {
                let has = |(name, cases): (&'static str, _)| case(cases, one.name).map(|_| name);
                let runtimes: Vec<&str> = RUNTIMES.into_iter().filter_map(has).collect();
                println!("{} {} {} {}", one.name, one.items, one.threads, runtimes.join(" "));
            }
            ExitCode::SUCCESS
        }
        [runtime, name, items] => {
            let runtime = RUNTIMES.into_iter().find(|(known, _)| *known == runtime);
            match (runtime.and_then(|(_, cases)| case(cases, name)), items.parse()) {
                (Some(case), Ok(items)) => measure(case, items),
                _ => usage(),
            }
        }
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: peer-costs list | peer-costs ours|tokio|compio|monoio CASE ITEMS");
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
