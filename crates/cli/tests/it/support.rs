//! Starts the binary and other programs with deadlines, and ends them whatever a test does.
//!
//! Deadlines are generous: they turn a hang into a failure, and measure nothing.

use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Above the time of any test here on a loaded machine with two cores, and below the time limit of the test
/// runner.
pub(crate) const DEADLINE: Duration = Duration::from_secs(240);

/// Path of the binary under test.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_ringroad");

/// Returns the binary with arguments; standard input is empty.
pub(crate) fn ringroad<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(BINARY);
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Result of a program that has ended, as bytes.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Its exit code; `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    /// Its standard output.
    pub(crate) stdout: Vec<u8>,
    /// Its standard error.
    pub(crate) stderr: String,
}

impl Outcome {
    /// Returns standard output as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.stdout.clone()).expect("text on standard output")
    }
}

impl From<Output> for Outcome {
    fn from(output: Output) -> Outcome {
        Outcome {
            code: output.status.code(),
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Runs a command to its end. A command that hangs is killed, and fails the test.
pub(crate) fn run(command: &mut Command) -> Outcome {
    feed(command, None)
}

/// Runs a command to its end, with `input` written to a pipe as its standard input.
pub(crate) fn run_with_input(command: &mut Command, input: &[u8]) -> Outcome {
    feed(command, Some(input))
}

fn feed(command: &mut Command, input: Option<&[u8]>) -> Outcome {
    if input.is_some() {
        command.stdin(Stdio::piped());
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Kill(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")));
    let pid = child.pid();
    let (mut stdin, mut stdout, mut stderr) =
        (child.0.stdin.take(), child.0.stdout.take().unwrap(), child.0.stderr.take().unwrap());
    let (done, ended) = channel::<()>();
    std::thread::scope(|scope| {
        let watchdog = scope.spawn(move || {
            let late = ended.recv_timeout(DEADLINE).is_err();
            if late {
                // Not reaped before `done` is sent, so the process id still belongs to it.
                let _ = kill_process(pid, Signal::KILL);
            }
            late
        });
        if let (Some(mut pipe), Some(input)) = (stdin.take(), input) {
            // A program that does not read all of its input is not an error here.
            scope.spawn(move || drop(pipe.write_all(input)));
        }
        let errors = scope.spawn(move || {
            let mut bytes = Vec::new();
            stderr.read_to_end(&mut bytes).map(|_| bytes)
        });
        let mut bytes = Vec::new();
        stdout.read_to_end(&mut bytes).unwrap();
        let stderr = errors.join().unwrap().unwrap();
        done.send(()).unwrap_or_default();
        let late = watchdog.join().unwrap();
        let status = child.0.wait().unwrap();
        assert!(!late, "{command:?} did not end within {DEADLINE:?}");
        Outcome { code: status.code(), stdout: bytes, stderr: String::from_utf8_lossy(&stderr).into_owned() }
    })
}

/// A child that is killed and reaped when dropped.
pub(crate) struct Kill(pub(crate) Child);

impl Kill {
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    /// Sends a signal, which must find the process.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Waits for its end and returns how it ended.
    pub(crate) fn status(&mut self) -> ExitStatus {
        let mut status = None;
        until("the process ends", || {
            status = self.0.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// Waits for its end and returns the exit code, `None` for a signal.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        self.status().code()
    }
}

impl Drop for Kill {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The lines of a running program, as they are written.
pub(crate) struct Lines(Receiver<String>);

impl Lines {
    pub(crate) fn of(pipe: impl Read + Send + 'static) -> Lines {
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Lines(lines)
    }

    /// Returns the next line, or `None` at the end of the output.
    pub(crate) fn next(&self) -> Option<String> {
        match self.0.recv_timeout(DEADLINE) {
            Ok(line) => Some(line),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => None,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("no line within {DEADLINE:?}"),
        }
    }

    /// Waits for the end of the output, at most [`DEADLINE`] after each line.
    pub(crate) fn end(&self) {
        while self.0.recv_timeout(DEADLINE).is_ok() {}
    }

    /// Returns all lines up to the end of the output.
    pub(crate) fn rest(&self) -> Vec<String> {
        std::iter::from_fn(|| self.next()).collect()
    }
}

/// A `lab server` that has printed its address.
pub(crate) struct Server {
    process: Kill,
    lines: Lines,
    pub(crate) address: SocketAddr,
}

impl Server {
    /// Starts `lab server` with these arguments, and reads the line with its address.
    pub(crate) fn start(arguments: &[&str]) -> Server {
        let mut command = ringroad(["lab", "server"].iter().chain(arguments));
        let mut process = Kill(command.stdout(Stdio::piped()).spawn().unwrap());
        let lines = Lines::of(process.0.stdout.take().unwrap());
        let line = lines.next().unwrap_or_else(|| panic!("{arguments:?} ended without a word"));
        let address = line.strip_prefix("listening on ").unwrap_or_else(|| panic!("{arguments:?}: {line}"));
        let address = address.parse().unwrap();
        Server { process, lines, address }
    }

    /// Sends it a signal that does not end it.
    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Stops it with a signal. It must exit successfully and print one line, the totals, which is returned.
    pub(crate) fn stop(mut self, signal: Signal) -> serde_json::Value {
        self.process.signal(signal);
        let lines = self.lines.rest();
        assert_eq!(self.process.wait(), Some(0), "after {lines:?}");
        let [line] = lines.as_slice() else { panic!("one line of totals, not {lines:?}") };
        serde_json::from_str::<serde_json::Value>(line).unwrap()["totals"].clone()
    }
}

/// Checks a condition repeatedly; fails with `what` if it does not become true.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited {DEADLINE:?} in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Prints to the real stderr, past the capture of the test harness, what was not tested and why.
pub(crate) fn skip(what: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {what}: {why}");
}

/// Returns whether a program of another project is installed; prints it if not.
pub(crate) fn installed(program: &str) -> bool {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).is_file()));
    if !found {
        skip(program, "not installed");
    }
    found
}

/// Returns whether permission bits do not apply to this user.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns the binary at a separate path, which identifies its processes among those of other tests.
pub(crate) fn own_copy(folder: &Path) -> std::path::PathBuf {
    let copy = folder.join("ringroad");
    put_copy(&copy);
    copy
}

/// Copies the binary to another place, by another program. A copy that is open for writing in this process,
/// or in a child that a concurrent test has forked, cannot be started (ETXTBSY).
pub(crate) fn put_copy(place: &Path) {
    if std::fs::hard_link(BINARY, place).is_err() {
        let copied = Command::new("cp").arg(BINARY).arg(place).status().unwrap();
        assert!(copied.success(), "cp {BINARY} {}: {copied}", place.display());
    }
}

/// Writes an executable script, by another program for the same reason.
pub(crate) fn put_script(place: &Path, text: &str) {
    let write = "printf %s \"$1\" >\"$0\" && chmod 755 \"$0\"";
    let written = Command::new("sh").args(["-c", write]).arg(place).arg(text).status().unwrap();
    assert!(written.success(), "writing {}: {written}", place.display());
}

/// Returns the command lines of all running processes that contain `marker`.
pub(crate) fn processes_with(marker: &str) -> Vec<String> {
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit()))
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .map(|words| String::from_utf8_lossy(&words).replace('\0', " "))
        .filter(|words| words.contains(marker))
        .collect()
}
