//! `cargo xtask test`: all tests of the workspace, and all failures of one run.
//!
//! `cargo nextest`, where it is installed, gives each test a process of its own and ends one that hangs
//! (`.config/nextest.toml` has the rules). What the tests left out is told after it, and where `CI` is set it
//! has to be in the list of what may be (`.config/skips.toml`). Nextest does not run the examples of the
//! documentation, which follow. Elsewhere `cargo test --no-fail-fast` runs all of it.

use crate::{junit, skips};
use std::io;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Runs the tests; `words` go to the runner, and with a choice of tests the examples are left out.
pub(crate) fn test(root: &Path, words: &[String]) -> ExitCode {
    let mut passed = true;
    if has_nextest(root) {
        let threads = threads().to_string();
        let mut tests =
            cargo(root, &["nextest", "run", "--workspace", "--no-fail-fast", "--test-threads", &threads]);
        // One of an earlier run would tell of other tests.
        let _ = std::fs::remove_file(junit::path(root));
        passed &= succeeds(tests.args(words));
        match junit::newest(root) {
            Ok(run) => passed &= skips::judge(root, &run),
            // Words such as `--no-run` run nothing.
            Err(why) if why.kind() == io::ErrorKind::NotFound && (!passed || !words.is_empty()) => {}
            Err(why) => {
                eprintln!("test: {why}");
                passed = false;
            }
        }
        if words.is_empty() {
            passed &= succeeds(&mut cargo(root, &["test", "--workspace", "--doc", "--no-fail-fast"]));
        }
    } else {
        println!(
            "test: cargo nextest is not installed: cargo test runs the tests, without a time limit for each"
        );
        passed &= succeeds(cargo(root, &["test", "--workspace", "--no-fail-fast"]).args(words));
    }
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn cargo(root: &Path, words: &[&str]) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root).args(words);
    cargo
}

fn has_nextest(root: &Path) -> bool {
    let asked = cargo(root, &["nextest", "--version"]).output();
    asked.is_ok_and(|output| output.status.success())
}

/// Eight for each processor. Most tests take four of them (`.config/nextest.toml`), and those that wait for
/// time limits one or two.
fn threads() -> usize {
    8 * std::thread::available_parallelism().map_or(1, usize::from)
}

fn succeeds(command: &mut Command) -> bool {
    match command.status() {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("test: cargo: {error}");
            false
        }
    }
}
