//! `cargo xtask test`: runs all tests of the workspace, and reports all failures of the run.
//!
//! If `cargo nextest` is installed, it runs each test in its own process and ends one that hangs
//! (`.config/nextest.toml` has the rules). Why tests failed, at last or at first, and which were skipped is
//! reported afterwards; if `CI` is set, each skip must be in the list of permitted ones
//! (`.config/skips.toml`). Nextest does not run documentation examples, so
//! Cargo runs these meanwhile. Without nextest, `cargo test --no-fail-fast` runs everything.

use crate::{junit, skips};
use std::io;
use std::path::Path;
use std::process::{Command, ExitCode, Output};

/// Runs the tests. `words` are passed to the runner; with a selection of tests, the documentation examples
/// are left out.
pub(crate) fn test(root: &Path, words: &[String]) -> ExitCode {
    if !has_nextest(root) {
        println!(
            "test: cargo nextest is not installed: cargo test runs the tests, without a time limit for each"
        );
        return end(succeeds(cargo(root, &["test", "--workspace", "--no-fail-fast"]).args(words)));
    }
    // They take half a minute of one CPU, and tests leave more than that idle.
    let examples = words.is_empty().then(|| {
        let mut examples = cargo(root, &["test", "--workspace", "--doc", "--no-fail-fast"]);
        std::thread::spawn(move || examples.output())
    });
    let mut passed = tests(root, words);
    if let Some(examples) = examples {
        let ended = examples.join().unwrap_or_else(|_| Err(io::Error::other("its thread panicked")));
        passed &= show(ended);
    }
    end(passed)
}

fn end(passed: bool) -> ExitCode {
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the tests with nextest, and reports those that were skipped.
fn tests(root: &Path, words: &[String]) -> bool {
    let mut tests = cargo(root, &["nextest", "run", "--workspace", "--no-fail-fast"]);
    many_at_a_time(&mut tests);
    // A file of an earlier run would report other tests.
    let _ = std::fs::remove_file(junit::path(root));
    let passed = succeeds(tests.args(words));
    match junit::newest(root) {
        Ok(run) => {
            for test in run.iter().filter(|test| test.failed || test.flaky) {
                println!(" WHY {}: {}", test.name, test.reason());
            }
            passed & skips::judge(root, &run)
        }
        // Words such as `--no-run` run no test.
        Err(why) if why.kind() == io::ErrorKind::NotFound && (!passed || !words.is_empty()) => passed,
        Err(why) => {
            eprintln!("test: {why}");
            false
        }
    }
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

/// Adds to a run of nextest how it starts tests: ten threads for each CPU, of which most tests take two and
/// tests that wait for time limits one (`.config/nextest.toml`), and each test directly.
///
/// Nextest starts itself for each test otherwise, so that a stop by Ctrl-Z cannot come between fork and exec.
/// That took a twentieth of the CPU of a run.
pub(crate) fn many_at_a_time(nextest: &mut Command) -> &mut Command {
    let threads = 10 * std::thread::available_parallelism().map_or(1, usize::from);
    nextest.args(["--test-threads", &threads.to_string()]).env("NEXTEST_DOUBLE_SPAWN", "0")
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

/// Prints what a command has written; returns whether it succeeded.
fn show(ended: io::Result<Output>) -> bool {
    match ended {
        Ok(output) => {
            print!("{}", String::from_utf8_lossy(&output.stdout));
            eprint!("{}", String::from_utf8_lossy(&output.stderr));
            output.status.success()
        }
        Err(error) => {
            eprintln!("test: cargo: {error}");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringroad_measure::Caveat;

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
 WHY c::it fails: it.rs:1:2: no
 SKIP no php (c::it php)
";

    /// Returns the body of a function of `.ci/run`.
    fn body(function: &str) -> io::Result<String> {
        let run = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.ci/run"))?;
        let body =
            run.split(&format!("\n{function}() {{\n")).nth(1).and_then(|rest| rest.split("\n}\n").next());
        body.map(str::to_owned)
            .ok_or_else(|| io::Error::other(format!(".ci/run has no function `{function}`")))
    }

    #[test]
    fn the_closing_lines_of_a_run_name_each_test_that_failed_hung_or_was_repeated() -> io::Result<()> {
        let logs = tempfile::tempdir()?;
        std::fs::write(logs.path().join("stages"), "tests FAILED\n")?;
        std::fs::write(logs.path().join("tests.log"), SUMMARY)?;
        std::fs::write(logs.path().join("format.log"), "Diff in a.rs:1:\n+fn a() {}\n")?;
        let script = format!(
            "logs=$1; failed=(tests format); left_over() {{ :; }}; free_gib() {{ echo 9; }}\n\
             close() {{\n{}\n}}\nclose",
            body("close")?
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
                " WHY c::it fails: it.rs:1:2: no",
                " SKIP no php (c::it php)",
                " format: Diff in a.rs:1:",
                " format: +fn a() {}",
            ],
            "{output:?}"
        );
        let last = said.lines().last().unwrap_or_default();
        let counts = "9 tests run: 3 passed (1 flaky), 4 failed, 2 timed out, 0 skipped; reasons to skip: 1";
        assert!(last.starts_with(&format!("failed: tests format; {counts}; seconds: ")), "{last}");
        assert!(last.ends_with("free disk: 9 GiB"), "{last}");
        assert_eq!(output.status.code(), Some(1));
        Ok(())
    }

    /// Runs `main_job` with a lab that finds its figures INVALID (exit code 5) and says why.
    fn main_job(why: &Caveat) -> io::Result<Output> {
        let folder = tempfile::tempdir()?;
        let record = folder.path().join("said.json");
        let doubts = serde_json::json!({ "caveats": [why.to_string()] });
        std::fs::write(&record, doubts.to_string())?;
        let script = format!(
            "logs=$1; target=$1\nrun() {{ mkdir \"$logs/lab\"; cp \"$1/said.json\" \"$logs/lab/record.json\"; \
             echo page >\"$logs/lab/report.html\"; return 5; }}\nmain_job() {{\n{}\n}}\nmain_job",
            body("main_job")?.replace("\"$target/debug/ringroad\" lab", "run \"$target\"")
        );
        Command::new("bash").args(["-c", &script, "bash"]).arg(folder.path()).output()
    }

    #[test]
    fn the_main_job_fails_where_a_server_failed_or_counted_otherwise_and_not_where_the_machine_was_busy()
    -> io::Result<()> {
        for what in ["requests", "bytes sent", "answers of a stream"] {
            let output = main_job(&Caveat::CountsDiffer { what, client: 7, server: 8 })?;
            assert_eq!(output.status.code(), Some(1), "{output:?}");
            let told = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(told.contains(&format!("client counted 7 {what} and the server 8")), "{told}");
        }
        let output = main_job(&Caveat::ServerFailed { how: "killed by signal 9".into() })?;
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(told.contains("the program under test failed (killed by signal 9)"), "{told}");
        let output = main_job(&Caveat::ClientStarved { wait_share: 0.5 })?;
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        Ok(())
    }
}
