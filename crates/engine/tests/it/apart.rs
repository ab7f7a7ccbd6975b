//! A test in a process of its own. Tests of the crates above use this file as well, by its path.

use ringroad_host::process::tie_to_parent;
use std::io::Write as _;
use std::process::Command;

/// Returns whether this process runs one test alone, as nextest has each test run.
pub(crate) fn is_by_nextest() -> bool {
    std::env::var("NEXTEST_EXECUTION_MODE").is_ok_and(|mode| mode == "process-per-test")
}

/// Makes the command that runs this program again, for the test of this name only. It ends with this process.
pub(crate) fn again(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]);
    tie_to_parent(&mut command);
    command
}

/// Waits for a test in a process of its own, and fails if that did not pass. Repeats what it left out.
pub(crate) fn passed(command: &mut Command) {
    let output = command.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // A name that no test has would succeed without running anything.
    let passed = output.status.success() && stdout.contains("1 passed");
    assert!(passed, "{}, in a process of its own:\n{stdout}{stderr}", output.status);
    for line in stderr.lines().filter(|line| line.starts_with("skipped: ")) {
        // Past the capture of the test harness.
        let _ = writeln!(std::io::stderr(), "{line}");
    }
}
