//! `cargo xtask stress [FILTER [RUNS]]`: repeats tests while every core is busy.
//!
//! A test that relies on timing fails sooner than on an idle machine. As many tests run at a time as in a run
//! of all. Each core has one busy thread of this process, so nothing stays behind when the process ends for
//! any reason. A failed test is not repeated: each run counts.

use crate::junit;
use crate::test::many_at_a_time;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Default number of runs.
const RUNS: u32 = 20;

pub(crate) fn stress(root: &Path, words: &[String]) -> ExitCode {
    let (filter, runs) = match words {
        [] => ("all()", Ok(RUNS)),
        [filter] => (&**filter, Ok(RUNS)),
        [filter, runs] => (&**filter, runs.parse()),
        _ => return usage("a filter of nextest and a number of runs"),
    };
    let Ok(runs @ 1..) = runs else { return usage("the number of runs is a number from 1 on") };
    // Builds before the cores are busy.
    let mut build = nextest(root, filter);
    if !build.arg("--no-run").status().is_ok_and(|status| status.success()) {
        eprintln!("stress: the tests do not build, or cargo nextest is not installed (.ci/run installs it)");
        return ExitCode::FAILURE;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!("stress: {runs} runs of {filter}, {cores} cores kept busy");
    let mut failures = BTreeMap::<String, u32>::new();
    let mut broken = 0;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = SetWhenDropped(&over);
        for _ in 0..cores {
            let spin = || {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            };
            if let Err(why) = std::thread::Builder::new().spawn_scoped(scope, spin) {
                eprintln!("stress: a core is not kept busy: {why}");
            }
        }
        for run in 1..=runs {
            let begun = Instant::now();
            let passed = once(root, filter, &mut failures);
            broken += u32::from(!passed);
            let outcome = if passed { "passed" } else { "FAILED" };
            println!("stress: run {run} of {runs} {outcome} in {} s", begun.elapsed().as_secs());
        }
    });
    for (test, count) in &failures {
        println!(" FAIL {test}: {count} of {runs}");
    }
    println!("stress: {} of {runs} runs held", runs - broken);
    if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the tests once. Returns whether none failed.
fn once(root: &Path, filter: &str, failures: &mut BTreeMap<String, u32>) -> bool {
    let mut run = nextest(root, filter);
    many_at_a_time(&mut run);
    let _ = std::fs::remove_file(junit::path(root));
    run.args(["--no-fail-fast", "--status-level", "fail", "--final-status-level", "none"])
        .stdin(Stdio::null());
    if run.status().is_ok_and(|status| status.success()) {
        return true;
    }
    match junit::newest(root) {
        Ok(tests) => {
            for test in tests.into_iter().filter(|test| test.failed) {
                *failures.entry(test.name).or_default() += 1;
            }
        }
        Err(why) => eprintln!("stress: {why}"),
    }
    false
}

fn nextest(root: &Path, filter: &str) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root).args(["nextest", "run", "--workspace", "--retries", "0", "-E", filter]);
    cargo
}

/// Ends the busy threads, also if this one panics.
struct SetWhenDropped<'a>(&'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn usage(what: &str) -> ExitCode {
    eprintln!("stress: {what} (cargo xtask stress [FILTER [RUNS]])");
    ExitCode::from(2)
}
