//! Two costs of this machine that the documents state: a system call that does nothing, and a switch of
//! threads.
//!
//! Start at [`figures`].

use super::Named;
use super::sum::Figure;
use crate::pin::{Cores, Pinned};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

/// Samples, of which the median counts.
const SAMPLES: usize = 7;
const CALLS: u32 = 200_000;
const TURNS: u32 = 10_000;

/// `machine/syscall.ns` and `machine/switch.us`.
pub(super) fn figures() -> Vec<Named> {
    let told = |values: io::Result<Vec<f64>>, count: u32, what: &str| {
        let values = values.map_err(|error| format!("measure {what}: {error}"))?;
        let median = Figure::median(&values).ok_or_else(|| format!("measure {what}: no samples"))?;
        Ok(median.scaled(format!("{count} of them, {SAMPLES} times")))
    };
    let switches = (0..SAMPLES).map(|_| switch_us()).collect();
    vec![
        (
            "machine/syscall.ns".to_owned(),
            told(Ok((0..SAMPLES).map(|_| syscall_ns()).collect()), CALLS, "system calls"),
        ),
        ("machine/switch.us".to_owned(), told(switches, TURNS, "switches of threads")),
    ]
}

/// `getppid`, which the C library does not keep.
fn syscall_ns() -> f64 {
    let start = Instant::now();
    for _ in 0..CALLS {
        std::hint::black_box(rustix::process::getppid());
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
}

/// Two threads on one CPU that wake each other with a byte: a turn there and back holds two switches, two
/// writes and two reads.
fn switch_us() -> io::Result<f64> {
    let cores = Cores::of_this_process().map_err(|error| io::Error::other(error.to_string()))?;
    // A thread starts on the CPUs of the one that starts it.
    let _pinned = Pinned::to(cores.server.get(..1).unwrap_or_default())?;
    let (mut here, mut there) = UnixStream::pair()?;
    std::thread::scope(|scope| {
        let other = std::thread::Builder::new().spawn_scoped(scope, move || {
            let mut byte = [0];
            // Ends with the other side's end.
            while there.read_exact(&mut byte).is_ok() && there.write_all(&byte).is_ok() {}
        })?;
        let mut byte = [1];
        let mut turn = || here.write_all(&byte.clone()).and_then(|()| here.read_exact(&mut byte));
        let measured = turn().and_then(|()| {
            let start = Instant::now();
            for _ in 0..TURNS {
                turn()?;
            }
            Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(2 * TURNS))
        });
        drop(here);
        // It cannot have panicked: it only reads and writes.
        let _ = other.join();
        measured
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_costs_are_positive_numbers() {
        for (name, figure) in figures() {
            assert!(figure.as_ref().is_ok_and(|figure| figure.value > 0.0), "{name}: {figure:?}");
        }
    }
}
