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
use std::time::Instant;

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
        let mut examples =
            limited(root, EXAMPLES_SECONDS_MAX, &["test", "--workspace", "--doc", "--no-fail-fast"]);
        std::thread::spawn(move || {
            let begun = Instant::now();
            (examples.output(), begun.elapsed().as_secs())
        })
    });
    let mut passed = tests(root, words);
    if let Some(examples) = examples {
        let (ended, seconds) =
            examples.join().unwrap_or_else(|_| (Err(io::Error::other("its thread panicked")), 0));
        let held = show(ended);
        println!("test: documentation examples {} in {seconds} s", if held { "passed" } else { "FAILED" });
        passed &= held;
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

/// Time limit for all documentation examples, which have none of their own. They take up to a minute.
const EXAMPLES_SECONDS_MAX: u32 = 900;

/// Returns a call of Cargo that is ended after so many seconds, with what it has started.
fn limited(root: &Path, seconds: u32, words: &[&str]) -> Command {
    let mut limited = Command::new("timeout");
    let seconds = seconds.to_string();
    limited.current_dir(root).args(["--kill-after=5", &*seconds, env!("CARGO")]).args(words);
    limited
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
    use ringroad_measure::record::Errors;
    use std::process::Stdio;
    use std::time::Duration;

    /// As nextest 0.9 prints them, with retries and without.
    const SUMMARY: &str = "\
  TRY 1 FAIL [   0.963s] (-----) a::it early
        LEAK [   0.500s] ( 1/14) a::it leaves_a_child
     Summary [  12.000s] 9 tests run: 3 passed (1 flaky), 4 failed, 2 timed out, 0 skipped
   FLAKY 2/3 [   0.076s] ( 9/14) a::it flaky
  TRY 3 FAIL [   1.155s] (10/14) a::it fails::epoll
  stderr ───

    thread 'fails::epoll' panicked
    FAIL [ none of these ] it only says so

 TRY 3 SIGSEGV [   0.100s] (11/14) b::it crashes
   TRY 3 TMT [   4.005s] (12/14) b::it hangs
 TRY 3 FL+LK [   4.005s] (12/14) b::it fails_and_leaves_a_child
     TIMEOUT [   4.005s] (13/14) c::it hangs_too
 FAIL + LEAK [   0.267s] (14/14) c::it fails
error: test run failed
 WHY c::it fails: it.rs:1:2: no
 SKIP no php (c::it php)
 SKIP, not in .config/skips.toml, no go (c::it go)
test: documentation examples passed in 30 s
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
        std::fs::write(logs.path().join("format.log"), "Diff in a.rs:1:\n+fn a() {}\nDiff in b.rs:2:\n")?;
        std::fs::write(logs.path().join("tidy.log"), "a.rs:1: no\n".repeat(30))?;
        let script = format!(
            "logs=$1; failed=(tests format tidy); left_over() {{ :; }}; free_gib() {{ echo 9; }}\n\
             reasons() {{\n{}\n}}\nclose() {{\n{}\n}}\nclose",
            body("reasons")?,
            body("close")?
        );
        let output = Command::new("bash").args(["-c", &script, "bash"]).arg(logs.path()).output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        let told: Vec<_> = said.lines().filter(|line| line.starts_with(' ')).collect();
        assert_eq!(
            told,
            [
                " FAIL a::it fails::epoll",
                " FAIL b::it fails_and_leaves_a_child",
                " FAIL c::it fails",
                " FLAKY a::it flaky",
                " SIGSEGV b::it crashes",
                " TIMEOUT b::it hangs",
                " TIMEOUT c::it hangs_too",
                " LEAK a::it leaves_a_child",
                " WHY c::it fails: it.rs:1:2: no",
                " SKIP no php (c::it php)",
                " SKIP, not in .config/skips.toml, no go (c::it go)",
                " format: Diff in a.rs:1:",
                " format: Diff in b.rs:2:",
            ]
            .into_iter()
            .chain([" tidy: a.rs:1: no"; 30])
            .collect::<Vec<_>>(),
            "{output:?}"
        );
        assert!(said.lines().any(|line| line == "documentation examples passed in 30 s"), "{said}");
        let last = said.lines().last().unwrap_or_default();
        let counts = "9 tests run: 3 passed (1 flaky), 4 failed, 2 timed out, 0 skipped; reasons to skip: 2";
        assert!(last.starts_with(&format!("failed: tests format tidy; {counts}; seconds: ")), "{last}");
        assert!(last.ends_with("free disk: 9 GiB"), "{last}");
        assert_eq!(output.status.code(), Some(1));
        Ok(())
    }

    #[test]
    fn a_stage_of_tests_that_failed_and_names_no_test_shows_the_end_of_what_it_said() -> io::Result<()> {
        let logs = tempfile::tempdir()?;
        let log = logs.path().join("tests.log");
        let script = format!("reasons() {{\n{}\n}}\nreasons tests \"$1\"", body("reasons")?);
        let told = |text: &str| {
            std::fs::write(&log, text)?;
            let output = Command::new("bash").args(["-c", &script, "bash"]).arg(&log).output()?;
            Ok::<_, io::Error>(String::from_utf8_lossy(&output.stdout).into_owned())
        };
        assert_eq!(told("error: it does not build\n")?, "error: it does not build\n");
        assert_eq!(told("error: test run failed\n WHY a::it b: no\n")?, "");
        let example =
            "failures:\n\n---- a.rs - b (line 1) stdout ----\nno\n\ntest result: FAILED. 0 passed\n";
        assert_eq!(
            told(&format!(" WHY a::it b: no\ntest b ... FAILED\n{example}error: 1 failed\n"))?,
            example
        );
        assert_eq!(told(" SKIP, not in .config/skips.toml, no go (c::it go)\n")?, "");
        Ok(())
    }

    #[test]
    fn a_stage_ends_with_its_command_though_a_child_of_it_holds_the_output() -> io::Result<()> {
        let logs = tempfile::tempdir()?;
        let script = format!(
            "logs=$1; failed=()\nstage() {{\n{}\n}}\nleaves() {{ sleep 300 & echo \"$!\" >\"$logs/child\"; echo told; return 3; }}\n\
             stage leaves leaves; echo \"code $?\"; cat \"$logs/stages\"; kill \"$(cat \"$logs/child\")\"",
            body("stage")?
        );
        let output =
            Command::new("timeout").args(["120", "bash", "-c", &script, "bash"]).arg(logs.path()).output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(said.contains("told\n") && said.contains("code 3\n"), "{said}");
        assert!(said.contains("leaves       FAILED in ") && said.contains("with exit code 3"), "{said}");
        assert_eq!(std::fs::read_to_string(logs.path().join("leaves.log"))?, "told\n");
        Ok(())
    }

    #[test]
    fn a_run_that_a_signal_ends_ends_what_it_has_started_and_removes_its_folder() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        // Another process works in the folder, and was there before: it runs on.
        let stands = folder.path().join("run");
        std::fs::create_dir(&stands)?;
        let mut stands = Command::new("sleep").arg("300").current_dir(stands).spawn()?;
        let script = format!(
            "logs=$1; target=$1/target; failed=(); export TMPDIR=$1/run\n\
             stage() {{\n{}\n}}\nprocesses() {{\n{}\n}}\nend() {{\n{}\n}}\nstanding=$(processes)\ntrap end EXIT\n\
             works() {{ bash -c 'sleep 300 & echo $! >\"$1/begun\"; mv \"$1/begun\" \"$1/child\"; wait' bash \"$logs\"; }}\n\
             stage works works",
            body("stage")?,
            body("processes")?,
            body("end")?
        );
        let mut run = Command::new("timeout");
        run.args(["--foreground", "120", "bash", "-c", &script, "bash"]).arg(folder.path());
        let mut run = run.stdout(Stdio::null()).spawn()?;
        let child = loop {
            match std::fs::read_to_string(folder.path().join("child")) {
                Ok(process) => break process,
                Err(_) if run.try_wait()?.is_none() => std::thread::sleep(Duration::from_millis(10)),
                Err(error) => return Err(error),
            }
        };
        let program = format!("/proc/{}/exe", child.trim());
        assert!(std::fs::read_link(&program).is_ok());
        let process = rustix::process::Pid::from_child(&run);
        rustix::process::kill_process(process, rustix::process::Signal::TERM)?;
        run.wait()?;
        let stood = stands.try_wait()?;
        stands.kill()?;
        stands.wait()?;
        assert_eq!(stood, None);
        assert!(std::fs::read_link(&program).is_err(), "it runs on: {child}");
        assert!(!folder.path().join("run").exists());
        Ok(())
    }

    /// Runs `main_job` with a lab that finds its figures INVALID (exit code 5), each for this reason.
    fn main_job_of(cells: usize, why: &Caveat) -> io::Result<Output> {
        let folder = tempfile::tempdir()?;
        let record = folder.path().join("said.json");
        // The whole has the reasons of all cells.
        let doubts = serde_json::json!({ "caveats": vec![why.to_string(); cells + 1] });
        std::fs::write(&record, doubts.to_string())?;
        let script = format!(
            "logs=$1; target=$1\nrun() {{ mkdir \"$logs/lab\"; cp \"$1/said.json\" \"$logs/lab/record.json\"; \
             echo page >\"$logs/lab/report.html\"; return 5; }}\nmain_job() {{\n{}\n}}\nmain_job",
            body("main_job")?
                .replace("timeout --kill-after=5 300 \"$target/debug/ringroad\" lab", "run \"$target\"")
        );
        Command::new("bash").args(["-c", &script, "bash"]).arg(folder.path()).output()
    }

    fn main_job(why: &Caveat) -> io::Result<Output> {
        main_job_of(1, why)
    }

    #[test]
    fn the_main_job_fails_where_requests_failed_or_no_cell_got_an_answer() -> io::Result<()> {
        let failed = |errors| Caveat::Failures { errors, sent: 9 };
        for errors in [
            Errors { status: 3, ..Errors::default() },
            Errors { connect: 1, ..Errors::default() },
            Errors { timeout: 2, protocol: 1, ..Errors::default() },
        ] {
            let output = main_job(&failed(errors))?;
            assert_eq!(output.status.code(), Some(1), "{output:?}");
            assert!(
                String::from_utf8_lossy(&output.stdout).contains(" of 9 requests failed ("),
                "{output:?}"
            );
        }
        // A busy machine may let a time limit pass, and a pause of it may take the window of a cell.
        let late = main_job(&failed(Errors { timeout: 2, ..Errors::default() }))?;
        assert_eq!(late.status.code(), Some(0), "{late:?}");
        assert_eq!(main_job_of(2, &Caveat::NothingMeasured)?.status.code(), Some(0));
        let none = main_job_of(16, &Caveat::NothingMeasured)?;
        assert_eq!(none.status.code(), Some(1), "{none:?}");
        assert!(String::from_utf8_lossy(&none.stdout).contains("no answer in 16 cells"), "{none:?}");
        Ok(())
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
