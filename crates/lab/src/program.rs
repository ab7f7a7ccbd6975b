//! A program under test or a client as a child process: started pinned, awaited, stopped, never left behind.
//!
//! Each child leads a process group of its own, so that Ctrl-C in a terminal reaches the harness alone and so
//! that stopping reaches what the child has started. The kernel kills the child if the harness dies. Output
//! is read without threads: the harness sleeps in `poll` on pipes and a pidfd.
//!
//! Start at [`Program::start`].
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use crate::pin::Pinned;
use crate::suite::{ARGUMENTS, Ready, Server};
use ringroad_host::connect::connect;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a program may take to stop by itself after SIGTERM.
pub const STOP_DEADLINE: Duration = Duration::from_secs(5);
/// The caller's wish to stop is noticed within this time.
const SLICE: Duration = Duration::from_millis(100);
/// Output kept per stream, bytes; the newest.
const OUTPUT_MAX: usize = 256 * 1024;

/// What to start.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// Program and arguments.
    pub words: Vec<String>,
    /// On top of our own environment.
    pub env: BTreeMap<String, String>,
    /// Working folder.
    pub cwd: Option<PathBuf>,
    /// CPUs to run on; empty: ours.
    pub cpus: Vec<u32>,
    /// Its standard input is ours to write ([`Program::tell`]); else it is empty.
    pub is_told: bool,
}

/// A running child; dropped, it and its process group are killed and reaped.
#[derive(Debug)]
pub struct Program {
    child: Child,
    name: String,
    pidfd: OwnedFd,
    stdin: Option<ChildStdin>,
    stdout: Stream<std::process::ChildStdout>,
    stderr: Stream<std::process::ChildStderr>,
    status: Option<ExitStatus>,
}

/// What a program wrote and how it ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Its exit status.
    pub status: ExitStatus,
    /// Its standard output (the newest part, if it was long).
    pub stdout: String,
    /// It did not stop by itself and was killed.
    pub killed: bool,
}

/// Why a program is not there to be measured.
#[derive(Debug)]
pub enum StartError {
    /// It is not installed: no such file, or not executable, or its shell says so (exit codes 126 and 127).
    Missing(String),
    /// It ran and said that it cannot work here (exit code 2), with its last words.
    Unusable(String),
    /// It did not become ready: why, with its last output.
    Failed(String),
    /// The caller wants to stop.
    Interrupted,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Missing(how) | StartError::Unusable(how) | StartError::Failed(how) => {
                f.write_str(how)
            }
            StartError::Interrupted => f.write_str("stopped by the caller"),
        }
    }
}

/// A pipe being read without blocking.
#[derive(Debug)]
struct Stream<R> {
    pipe: Option<R>,
    kept: Vec<u8>,
}

impl<R: Read + AsFd> Stream<R> {
    fn new(pipe: Option<R>) -> io::Result<Self> {
        if let Some(pipe) = &pipe {
            rustix::io::ioctl_fionbio(pipe, true)?;
        }
        Ok(Stream { pipe, kept: Vec::new() })
    }

    /// Takes what is there.
    fn drain(&mut self) {
        let mut piece = [0; 4096];
        while let Some(pipe) = &mut self.pipe {
            match pipe.read(&mut piece) {
                Ok(0) => self.pipe = None,
                Ok(bytes) => {
                    self.kept.extend_from_slice(piece.get(..bytes).unwrap_or_default());
                    if self.kept.len() > OUTPUT_MAX {
                        self.kept.drain(..self.kept.len() - OUTPUT_MAX / 2);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.pipe = None,
            }
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.kept).into_owned()
    }
}

impl Program {
    /// Starts a program on its CPUs.
    ///
    /// # Errors
    /// [`StartError::Missing`] if there is no such program, else [`StartError::Failed`] with the reason.
    pub fn start(command: &Start) -> Result<Program, StartError> {
        let Some((program, arguments)) = command.words.split_first() else {
            return Err(StartError::Failed("an empty command".to_owned()));
        };
        let failed = |what: &str, error: io::Error| StartError::Failed(format!("{what} {program}: {error}"));
        let mut to_start = Command::new(program);
        to_start
            .args(arguments)
            .envs(&command.env)
            .stdin(if command.is_told { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        if let Some(cwd) = &command.cwd {
            to_start.current_dir(cwd);
        }
        ringroad_host::process::tie_to_parent(&mut to_start);
        let mut child = {
            let _pinned = (!command.cpus.is_empty())
                .then(|| Pinned::to(&command.cpus))
                .transpose()
                .map_err(|error| failed("pin", error))?;
            to_start.spawn().map_err(|error| match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => {
                    StartError::Missing(format!("{program} is not installed or not executable ({error})"))
                }
                _ => failed("start", error),
            })?
        };
        let stdin = child.stdin.take();
        let prepared = (|| {
            let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
            Ok((pidfd, Stream::new(child.stdout.take())?, Stream::new(child.stderr.take())?))
        })();
        match prepared {
            Ok((pidfd, stdout, stderr)) => {
                Ok(Program { child, name: program.clone(), pidfd, stdin, stdout, stderr, status: None })
            }
            Err(error) => {
                let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
                let _ = child.wait();
                Err(failed("watch", error))
            }
        }
    }

    /// Starts a server and waits until it accepts connections; answers with its address.
    ///
    /// # Errors
    /// As [`Program::start`]; and a server that ends, or is not ready in time, is stopped and described with
    /// its last lines of output.
    pub fn start_server(
        server: &Server,
        filling: &Filling<'_>,
        folder: Option<&Path>,
        cpus: &[u32],
        stop: &AtomicBool,
    ) -> Result<(Program, SocketAddr), StartError> {
        let cwd = match (folder, &server.cwd) {
            (Some(folder), Some(cwd)) => Some(folder.join(cwd)),
            (None, Some(cwd)) => Some(cwd.clone()),
            (_, None) => None,
        };
        let mut words = filling.words(&server.command);
        if let (Some(folder), Some(first)) = (folder, words.first_mut())
            && first.contains('/')
            && Path::new(first).is_relative()
        {
            // The child's folder may differ from ours, so a relative program must not depend on either.
            let path = folder.join(&*first);
            *first = std::path::absolute(&path).unwrap_or(path).to_string_lossy().into_owned();
        }
        let env = server.env.iter().map(|(key, value)| (key.clone(), filling.fill(value))).collect();
        let mut program = Program::start(&Start { words, env, cwd, cpus: cpus.to_vec(), is_told: false })?;
        let deadline = Instant::now() + Duration::from_secs_f64(server.ready_timeout_s);
        loop {
            if stop.load(Ordering::Relaxed) {
                return Err(StartError::Interrupted);
            }
            let address = match &server.ready {
                Ready::Line(pattern) => find_ready(&program.stdout.text(), pattern, filling.addr),
                Ready::Connect => {
                    connect(filling.addr, Duration::from_millis(200)).is_ok().then_some(filling.addr)
                }
                // It is never there to be connected to; its run is not this way.
                Ready::End => None,
            };
            if let Some(address) = address {
                return Ok((program, address));
            }
            if program.has_ended() {
                let (how, code) = (program.how_it_ended(), program.status.and_then(|s| s.code()));
                let last = program.last_words();
                return Err(match code {
                    // Our servers' "bad usage or unusable driver", and a usual code for it elsewhere.
                    Some(2) => StartError::Unusable(format!("{} cannot run here: {last}", program.name)),
                    // A shell's, for what it was to start.
                    Some(126 | 127) => StartError::Missing(last),
                    _ => StartError::Failed(format!(
                        "{} ended before it was ready ({how}): {last}",
                        program.name
                    )),
                });
            }
            if Instant::now() >= deadline {
                let what = match &server.ready {
                    Ready::Line(pattern) => format!("did not print \"{pattern}\""),
                    Ready::Connect => format!("did not accept a connection on {}", filling.addr),
                    Ready::End => "serves no connection".to_owned(),
                };
                let last = program.last_words();
                return Err(StartError::Failed(format!(
                    "{} {what} within {} s: {last}",
                    program.name, server.ready_timeout_s
                )));
            }
            // A server awaited by connecting gives no sign by itself; one that prints wakes us.
            let wait = if server.ready == Ready::Connect { Duration::from_millis(10) } else { SLICE };
            wait_any(&mut [&mut program], wait);
        }
    }

    /// Returns the child's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns whether it has ended, by itself or not.
    pub fn has_ended(&mut self) -> bool {
        if self.status.is_none() && self.is_zombie() {
            self.reap();
        }
        self.status.is_some()
    }

    /// Returns whether it has ended but is not reaped: its clocks can still be read.
    pub fn is_zombie(&self) -> bool {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(n) if n > 0)
    }

    /// Returns what it wrote to standard output so far.
    pub fn output(&mut self) -> String {
        self.stdout.drain();
        self.stdout.text()
    }

    /// Writes to its standard input; `false` if it does not listen.
    #[must_use]
    pub fn tell(&mut self, word: &[u8]) -> bool {
        self.stdin.as_mut().is_some_and(|stdin| stdin.write_all(word).is_ok())
    }

    /// Returns whether the last that it printed is `word`, which is then taken off.
    pub fn has_said(&mut self, word: &[u8]) -> bool {
        self.stdout.drain();
        let rest = self.stdout.kept.strip_suffix(word).map(<[u8]>::len);
        rest.inspect(|rest| self.stdout.kept.truncate(*rest)).is_some()
    }

    /// Asks it to stop (SIGTERM), kills it and its process group after `deadline`, and reaps it.
    pub fn stop(mut self, deadline: Duration) -> Ended {
        let until = Instant::now() + deadline;
        let mut killed = false;
        if !self.has_ended() {
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
            while !self.is_zombie() {
                let now = Instant::now();
                if now >= until {
                    killed = true;
                    break;
                }
                wait_any(&mut [&mut self], (until - now).min(SLICE));
            }
        }
        self.reap();
        Ended { status: self.status.unwrap_or_default(), stdout: self.stdout.text(), killed }
    }

    /// Kills what is left of the group, takes the last output and the exit status. Idempotent.
    fn reap(&mut self) {
        if self.status.is_some() {
            return;
        }
        // Before the leader is reaped: until then no other process can get its number, so the group is ours.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        self.status = self.child.wait().ok();
        self.stdout.drain();
        self.stderr.drain();
    }

    /// Returns whether it ended with exit code 0.
    pub fn succeeded(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Returns the code it exited with, if it has exited.
    pub fn exit_code(&self) -> Option<i32> {
        self.status.and_then(|status| status.code())
    }

    /// Returns how it ended, as a clause.
    pub fn how_it_ended(&self) -> String {
        match self.status {
            None => "it is running".to_owned(),
            Some(status) => match (status.code(), status.signal()) {
                (Some(code), _) => format!("it exited with code {code}"),
                (None, Some(signal)) => format!("signal {signal} ended it"),
                (None, None) => "it ended".to_owned(),
            },
        }
    }

    /// Returns its last lines of output, errors first choice, on one line of at most [`LAST_WORDS_MAX`]
    /// characters, control characters escaped: a program may print anything, and this goes to terminals and
    /// records.
    pub fn last_words(&mut self) -> String {
        self.stdout.drain();
        self.stderr.drain();
        let (stdout, stderr) = (self.stdout.text(), self.stderr.text());
        let text = if stderr.trim().is_empty() { &stdout } else { &stderr };
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        match lines.len() {
            0 => "it printed nothing".to_owned(),
            count => {
                let last = lines.get(count.saturating_sub(3)..).unwrap_or_default().join(" | ");
                let shown: String = last.chars().take(LAST_WORDS_MAX).flat_map(visible).collect();
                if last.chars().count() > LAST_WORDS_MAX { shown + " …" } else { shown }
            }
        }
    }
}

/// The most characters of a program's output that are quoted.
const LAST_WORDS_MAX: usize = 300;

/// Returns a character as it may be shown: as it is, or escaped if it would act on a terminal.
fn visible(character: char) -> impl Iterator<Item = char> {
    let (plain, escaped) = if character.is_control() {
        (None, Some(character.escape_default()))
    } else {
        (Some(character), None)
    };
    plain.into_iter().chain(escaped.into_iter().flatten())
}

impl Drop for Program {
    fn drop(&mut self) {
        self.reap();
    }
}

/// Sleeps until one of the programs writes or ends, or `timeout` passes; takes what they wrote.
pub fn wait_any(programs: &mut [&mut Program], timeout: Duration) {
    {
        let mut fds = Vec::new();
        for program in programs.iter() {
            fds.push(PollFd::new(&program.pidfd, PollFlags::IN));
            fds.extend(program.stdout.pipe.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
            fds.extend(program.stderr.pipe.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        }
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        // EINTR is as good as a time-out: the caller looks again.
        let _ = poll(&mut fds, Some(&timeout));
    }
    for program in programs {
        program.stdout.drain();
        program.stderr.drain();
    }
}

/// Returns the slice in which a wait looks for the caller's wish to stop.
pub fn slice() -> Duration {
    SLICE
}

/// What placeholders stand for in one run.
#[derive(Clone, Copy, Debug)]
pub struct Filling<'a> {
    /// `{ringroad}`: the path of our own program.
    pub ringroad: &'a Path,
    /// `{protocol}`.
    pub protocol: crate::suite::Protocol,
    /// `{addr}`, and `{port}` of it: free when it was chosen.
    pub addr: SocketAddr,
    /// `{arguments}`: what the load wants of the program.
    pub arguments: &'a [String],
}

impl Filling<'_> {
    /// Returns a command with every placeholder filled; `{arguments}` becomes as many words as there are.
    pub fn words(&self, command: &[String]) -> Vec<String> {
        let mut words = Vec::new();
        for word in command {
            if word == ARGUMENTS {
                words.extend_from_slice(self.arguments);
            } else {
                words.push(self.fill(word));
            }
        }
        words
    }

    /// Replaces every placeholder in a word.
    pub fn fill(&self, word: &str) -> String {
        if !word.contains('{') {
            return word.to_owned();
        }
        word.replace("{ringroad}", &self.ringroad.to_string_lossy())
            .replace("{protocol}", &self.protocol.to_string())
            .replace("{addr}", &self.addr.to_string())
            .replace("{port}", &self.addr.port().to_string())
    }
}

/// Returns why a server's program cannot be started, as a clause; `None` if it can, or where only trying
/// tells.
pub fn missing(server: &Server, folder: Option<&Path>) -> Option<String> {
    let word = server.command.first()?;
    // Its own PATH may be another one, and `{ringroad}` is this program.
    if server.url.is_some() || server.env.contains_key("PATH") || word.contains('{') {
        return None;
    }
    let can_start =
        |path: &Path| path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok();
    let found = if word.contains('/') {
        can_start(&folder.unwrap_or(Path::new("")).join(word))
    } else {
        let places = std::env::var_os("PATH")?;
        std::env::split_paths(&places).any(|place| can_start(&place.join(word)))
    };
    let hint = server.hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default();
    (!found).then(|| format!("{word} is not installed or not executable{hint}"))
}

/// Returns an address of the loopback with a port that is free now.
///
/// # Errors
/// The kernel's error from binding; all ports may be in use.
pub fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind(("127.0.0.1", 0))?.local_addr()
}

/// Looks for the ready line in what was printed. `{addr}` in the pattern is read out of the line.
fn find_ready(printed: &str, pattern: &str, given: SocketAddr) -> Option<SocketAddr> {
    let whole_lines = &printed[..=printed.rfind('\n')?];
    whole_lines.lines().find_map(|line| match pattern.split_once("{addr}") {
        None => line.contains(pattern).then_some(given),
        Some((before, after)) => {
            let rest = &line[line.find(before)? + before.len()..];
            let end = rest.find(|c: char| c.is_whitespace()).unwrap_or(rest.len());
            let address = if after.is_empty() { &rest[..end] } else { &rest[..rest.find(after)?] };
            address.trim().parse().ok()
        }
    })
}
