//! What choosing costs at start: `cargo run --release -p ringroad-engine --example trial -- MEBIBYTES`.
//!
//! The first trial of a process is the one that costs, so each figure is of a fresh process. The argument is how much
//! memory the process holds meanwhile: a child that copied it would take longer.

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
