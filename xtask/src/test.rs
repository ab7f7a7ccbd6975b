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

pub(crate) fn has_nextest(root: &Path) -> bool {
    let asked = cargo(root, &["nextest", "--version"]).output();
    asked.is_ok_and(|output| output.status.success())
}

/// Eight for each processor. Most tests take four of them (`.config/nextest.toml`), and those that wait for
/// time limits one or two.
pub(crate) fn threads() -> usize {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// As nextest 0.9 prints them, with retries and without.
    const SUMMARY: &str = "\
  TRY 1 FAIL [   0.963s] (-----) a::it early
     Summary [  12.000s] 9 tests run: 3 passed (1 flaky), 4 failed, 2 timed out, 0 skipped
   FLAKY 2/3 [   0.076s] ( 9/14) a::it flaky
  TRY 3 FAIL [   1.155s] (10/14) a::it fails::epoll
  stderr ───

    thread 'fails::epoll' panicked
    FAIL [ none of these ] it only says so

 TRY 3 SIGSEGV [   0.100s] (11/14) b::it crashes
   TRY 3 TMT [   4.005s] (12/14) b::it hangs
     TIMEOUT [   4.005s] (13/14) c::it hangs_too
        FAIL [   0.267s] (14/14) c::it fails
error: test run failed
";

    #[test]
    fn the_closing_lines_of_a_run_name_each_test_that_failed_hung_or_was_repeated() -> io::Result<()> {
        let logs = tempfile::tempdir()?;
        std::fs::write(logs.path().join("stages"), "tests FAILED\n")?;
        std::fs::write(logs.path().join("tests.log"), SUMMARY)?;
        let run = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.ci/run"))?;
        let close = run.split("\nclose() {\n").nth(1).and_then(|rest| rest.split("\n}\n").next());
        let script = format!(
            "logs=$1; failed=(tests); left_over() {{ :; }}; free_gib() {{ echo 9; }}\n{}",
            close.ok_or_else(|| io::Error::other(".ci/run has no function `close`"))?
        );
        let output = Command::new("bash").args(["-c", &script, "bash"]).arg(logs.path()).output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        let told: Vec<_> = said.lines().filter(|line| line.starts_with(' ')).collect();
        assert_eq!(
            told,
            [
                " FAIL a::it fails::epoll",
                " FAIL c::it fails",
                " FLAKY a::it flaky",
                " SIGSEGV b::it crashes",
                " TIMEOUT b::it hangs",
                " TIMEOUT c::it hangs_too",
            ],
            "{output:?}"
        );
        assert_eq!(output.status.code(), Some(1));
        Ok(())
    }
}
