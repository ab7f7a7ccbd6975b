//! Cost of choosing a driver at start: `cargo run --release -p ringroad-engine --example trial -- MEBIBYTES`.
//!
//! Only the first trial of a process has a cost, so each figure is from a new process. The argument is the
//! amount of memory that the process holds: a fork that copies its page tables takes longer.

use ringroad_engine::choose;
use std::time::Instant;

fn main() {
    let mebibytes: usize = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    let memory: Vec<u8> = (0..mebibytes << 20).map(|at| at as u8).collect();
    let began = Instant::now();
    let choice = choose::choose(None, None);
    let took = began.elapsed();
    match choice {
        Ok(choice) => println!("{took:?} with {} MiB: {choice}", memory.len() >> 20),
        Err(unusable) => println!("{took:?} with {} MiB: {unusable}", memory.len() >> 20),
    }
}
