//! Starting a process: its command, descriptors and environment.
//!
//! Descriptor 3 is the control link (RWP) or a listening socket (HTTP), 4 the runner's source. Standard input
//! is empty; standard output and error are pipes. Each process has its own process group: Ctrl-C in a
//! terminal reaches only this program, and a kill also reaches the worker's children.

use crate::control::{CONTROL_ENV, Control};
use crate::php;
use crate::run_folder::RunFolder;
use crate::settings::{Launch, Protocol, Settings, environments};
use crate::slot::TASK_SLOT;
use command_fds::{CommandFdExt, FdMapping};
use ringroad_host::process::{in_path, tie_to_parent};
use ringroad_host::words::with_notes;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::MemfdFlags;
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal};
use std::fmt;
use std::fs::File;
use std::io::{self, PipeReader, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// The runner for Python.
const PYTHON: &str = include_str!("../../../runners/python/ringroad_runner.py");

/// How much the priority of a process is lowered while no request waits for it (nice(2)). It then gets about
/// a tenth of a contended CPU.
const LOWER_BY: i32 = 10;

/// Runs the source at descriptor 4. The name in angle brackets is not a file, so tracebacks look for no
/// source.
const START: &str = "exec(compile(open(4, encoding='utf-8').read(), '<ringroad>', 'exec'))";

/// A started process.
#[derive(Debug)]
pub(crate) struct Process {
    /// `None` if a mold forked it.
    child: Option<Child>,
    /// Unknown until a forked process has sent HELLO.
    pid: Option<Pid>,
    pidfd: Option<OwnedFd>,
    pub(crate) out: Option<Arc<File>>,
    pub(crate) err: Option<Arc<File>>,
    is_lowered: bool,
}

/// State that all processes of an application share.
#[derive(Debug)]
pub(crate) struct Ground {
    runner: OwnedFd,
    /// Swoole's classes, for PHP.
    classes: php::Classes,
    /// Folder for sockets of workers that speak HTTP; closed to other users.
    folder: RunFolder,
    /// The priority of this process, if a lowered priority can be restored.
    priority: Option<i32>,
}

/// The listening socket of a slot.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) path: PathBuf,
    socket: Option<UnixListener>,
}

impl Ground {
    pub(crate) fn new() -> io::Result<Ground> {
        let mut runner = File::from(rustix::fs::memfd_create("ringroad-runner", MemfdFlags::CLOEXEC)?);
        runner.write_all(PYTHON.as_bytes())?;
        let classes = php::classes()?;
        Ok(Ground {
            runner: runner.into(),
            classes,
            folder: RunFolder::new()?,
            priority: restorable_priority(),
        })
    }

    /// Returns a socket path for a process; listening already unless the command names it with `{socket}`.
    pub(crate) fn listening(&self, settings: &Settings, id: u64) -> io::Result<Option<Listening>> {
        let named = match &settings.launch {
            Launch::Command { line, protocol: Protocol::Http } => {
                line.iter().any(|word| word.contains("{socket}"))
            }
            launch if launch.protocol() == Protocol::FastCgi => false,
            _ => return Ok(None),
        };
        let path = self.folder.path().join(format!("{id}.sock"));
        let socket = if named { None } else { Some(UnixListener::bind(&path)?) };
        if let Some((user, group)) = settings.user {
            rustix::fs::chown(
                self.folder.path(),
                Some(rustix::fs::Uid::from_raw(user)),
                Some(rustix::fs::Gid::from_raw(group)),
            )?;
        }
        Ok(Some(Listening { path, socket }))
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // The process may have removed it.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Returns the priority of this process, if it may restore a lowered one: as root, or within RLIMIT_NICE.
fn restorable_priority() -> Option<i32> {
    // On Linux each thread has its own priority, so a separate thread tries it.
    let trial = std::thread::Builder::new().name("app-priority".to_owned()).spawn(|| {
        let own = rustix::process::getpriority_process(None).ok()?;
        rustix::process::setpriority_process(None, own + 1).ok()?;
        rustix::process::setpriority_process(None, own).ok()?;
        Some(own)
    });
    trial.ok()?.join().ok()?
}

/// Returns the variables that tell a process its slot.
pub(crate) fn slot_names(slot: u32) -> Vec<(&'static str, String)> {
    let mut names = vec![("RINGROAD_SLOT", (slot & !TASK_SLOT).to_string())];
    if slot & TASK_SLOT != 0 {
        names.push(("RINGROAD_TASK", "1".to_owned()));
    }
    names
}

/// Starts a process of `settings`. `link` is its end of `control`.
pub(crate) fn start(
    settings: &Settings,
    ground: &Ground,
    slot: u32,
    generation: u64,
    link: Option<OwnedFd>,
    listening: Option<&Listening>,
) -> io::Result<Process> {
    let folder = &settings.directory;
    let mut descriptors = Vec::new();
    let mut command = match &settings.launch {
        Launch::Python { python, target } => {
            let mut command = Command::new(Launch::python(python.as_deref(), folder));
            command.args(["-c", START, target]);
            // Opened again, to get its own file position.
            let number = ground.runner.as_fd().as_raw_fd();
            let runner = File::open(format!("/proc/self/fd/{number}"))?;
            descriptors.push(FdMapping { parent_fd: runner.into(), child_fd: 4 });
            command
        }
        Launch::Php { php, file, protocol: Protocol::Ringroad } => {
            php::command(php.as_deref(), file, ground.classes.path())
        }
        Launch::Php { php, file, protocol: Protocol::Goridge } => {
            let mut command = Command::new(php.as_deref().unwrap_or(Path::new("php")));
            command.arg(file);
            command
        }
        Launch::Php { php, .. } => Command::new(php.as_deref().unwrap_or(Path::new("php-cgi"))),
        Launch::Command { line, .. } => {
            let socket = listening.map(|one| one.path.display().to_string()).unwrap_or_default();
            let mut words = line.iter().map(|word| word.replace("{socket}", &socket));
            let mut command = Command::new(words.next().unwrap_or_default());
            command.args(words);
            command
        }
    };
    command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env("RINGROAD_GENERATION", generation.to_string());
    command.envs(slot_names(slot));
    command.env("RINGROAD_WORKERS", settings.most().to_string());
    match link {
        Some(link) if settings.launch.protocol() == Protocol::Goridge => {
            // The variables by which RoadRunner configures its workers. Octane has one of its own.
            command
                .env("RR_MODE", "http")
                .env("RR_RELAY", "pipes")
                .env("RR_VERSION", crate::goridge::VERSION);
            command.env("LARAVEL_OCTANE_ROADRUNNER_RELAY", "pipes");
            descriptors.push(FdMapping { parent_fd: link.try_clone()?, child_fd: 0 });
            descriptors.push(FdMapping { parent_fd: link, child_fd: 1 });
        }
        Some(link) => {
            command.env(CONTROL_ENV, "3");
            descriptors.push(FdMapping { parent_fd: link, child_fd: 3 });
        }
        None => {}
    }
    if let Some(socket) = listening.and_then(|one| one.socket.as_ref())
        && settings.launch.protocol() == Protocol::FastCgi
    {
        // The descriptor that FastCGI defines (§2.2). php-cgi makes no children and has no request limit: the
        // supervisor does both.
        command.env("PHP_FCGI_CHILDREN", "0").env("PHP_FCGI_MAX_REQUESTS", "0");
        descriptors.push(FdMapping { parent_fd: socket.as_fd().try_clone_to_owned()?, child_fd: 0 });
    } else if let Some(socket) = listening.and_then(|one| one.socket.as_ref()) {
        // As systemd passes sockets, except for LISTEN_PID: the pid is unknown before the fork.
        command.env("LISTEN_FDS", "1");
        descriptors.push(FdMapping { parent_fd: socket.as_fd().try_clone_to_owned()?, child_fd: 3 });
    }
    command.envs(settings.env.iter().map(|(name, value)| (name, value)));
    command.process_group(0);
    if let Some((user, group)) = settings.user {
        command.uid(user).gid(group);
    }
    command.fd_mappings(descriptors).map_err(|why| io::Error::other(why.to_string()))?;
    let program = Path::new(command.get_program()).to_owned();
    let child = tie_to_parent(&mut command).spawn().map_err(|why| {
        let hint = match why.kind() {
            io::ErrorKind::PermissionDenied => interpreter(&program)
                .map(|with| format!("it is no program: write \"{with} {}\"", program.display())),
            io::ErrorKind::NotFound => in_environment(&program, folder),
            _ => None,
        };
        let notes: Vec<&str> = hint.as_deref().into_iter().collect();
        let (why, kind) = (with_notes(&why, &notes), why.kind());
        io::Error::new(kind, format!("start {} in {}: {why}", program.display(), folder.display()))
    })?;
    Process::new(child)
}

/// Returns what to write for a program without a path that is not found: that of a virtual environment here.
fn in_environment(program: &Path, folder: &Path) -> Option<String> {
    // A program that PATH leads to has an interpreter that is not there.
    if program.components().count() != 1 || in_path(program).is_some() || !folder.is_dir() {
        return None;
    }
    let mut programs = environments(folder).map(|environment| environment.join("bin").join(program));
    Some(match programs.find(|path| path.exists()) {
        Some(path) => {
            let path = path.strip_prefix(folder).unwrap_or(&path);
            format!("it is not in PATH, but here: write \"{}\"", path.display())
        }
        None => "it is not in PATH".to_owned(),
    })
}

/// Returns the interpreter for a file with this name.
fn interpreter(file: &Path) -> Option<&'static str> {
    match file.extension()?.to_str()? {
        "js" | "mjs" | "cjs" => Some("node"),
        "py" => Some("python3"),
        "rb" => Some("ruby"),
        "sh" => Some("sh"),
        _ => None,
    }
}

impl Process {
    fn new(mut child: Child) -> io::Result<Process> {
        let pid = Pid::from_child(&child);
        let out = child.stdout.take().map(|pipe| Arc::new(File::from(OwnedFd::from(pipe))));
        let err = child.stderr.take().map(|pipe| Arc::new(File::from(OwnedFd::from(pipe))));
        // From here on `Drop` ends the process, even if it cannot be watched.
        let mut process =
            Process { child: Some(child), pid: Some(pid), pidfd: None, out, err, is_lowered: false };
        let told = |why: rustix::io::Errno| {
            io::Error::new(
                io::Error::from(why).kind(),
                format!("watch process {}: {why}", pid.as_raw_nonzero()),
            )
        };
        process.pidfd = Some(rustix::process::pidfd_open(pid, PidfdFlags::empty()).map_err(told)?);
        for pipe in [&process.out, &process.err].into_iter().flatten() {
            rustix::io::ioctl_fionbio(pipe, true)?;
        }
        Ok(process)
    }

    /// Makes a process that a mold forks, with the pipes of its output.
    pub(crate) fn forked(out: PipeReader, err: PipeReader) -> io::Result<Process> {
        let [out, err] = [out, err].map(|pipe| Arc::new(File::from(OwnedFd::from(pipe))));
        for pipe in [&out, &err] {
            rustix::io::ioctl_fionbio(pipe, true)?;
        }
        let (out, err) = (Some(out), Some(err));
        Ok(Process { child: None, pid: None, pidfd: None, out, err, is_lowered: false })
    }

    /// Returns whether a mold forked it and its process id is still unknown.
    pub(crate) fn is_unknown(&self) -> bool {
        self.pid.is_none()
    }

    /// Records the process id that a forked process sent. The id cannot belong to another process, since the
    /// mold reaps it only on EXITED.
    pub(crate) fn is_known_as(&mut self, pid: u32) -> io::Result<()> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("no number of a process"))?;
        self.pidfd = Some(rustix::process::pidfd_open(pid, PidfdFlags::empty())?);
        self.pid = Some(pid);
        Ok(())
    }

    /// Returns the process id; 0 while it is not known.
    pub(crate) fn pid(&self) -> u32 {
        self.pid.map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs())
    }

    pub(crate) fn pidfd(&self) -> Option<&OwnedFd> {
        self.pidfd.as_ref()
    }

    /// Returns the exit status, once the process has ended.
    pub(crate) fn ended(&mut self) -> Option<End> {
        if let Some(child) = &mut self.child {
            return child.try_wait().ok().flatten().map(|status| End(Some(status)));
        }
        let mut fds = [PollFd::new(self.pidfd.as_ref()?, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let ready = rustix::event::poll(&mut fds, Some(&now)).is_ok_and(|count| count > 0);
        ready.then(|| End(self.pid.and_then(status_of)))
    }

    /// Waits until the process has ended, at most for `span`.
    pub(crate) fn wait(&self, span: Duration) {
        let Some(pidfd) = &self.pidfd else { return };
        let span = Timespec { tv_sec: span.as_secs() as i64, tv_nsec: i64::from(span.subsec_nanos()) };
        let _ = rustix::event::poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&span));
    }

    /// Sends a signal to the process alone.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(pidfd) = &self.pidfd {
            // A process that has ended gets no signal.
            let _ = rustix::process::pidfd_send_signal(pidfd, signal);
        }
    }

    /// Lowers its priority, and that of its whole group, until [`restore`](Self::restore). Does nothing if
    /// the priority could not be restored.
    pub(crate) fn lower(&mut self, ground: &Ground) {
        if let Some(own) = ground.priority
            && self.set_priority(own + LOWER_BY)
        {
            self.is_lowered = true;
        }
    }

    /// Lowers the priority of a process that is about to end; it is not restored.
    pub(crate) fn lower_to_the_end(&self) {
        let own = rustix::process::getpriority_process(None).unwrap_or(0);
        self.set_priority(own + LOWER_BY);
    }

    /// Restores the priority of this process.
    pub(crate) fn restore(&mut self, ground: &Ground) {
        if let Some(own) = ground.priority.filter(|_| self.is_lowered) {
            self.is_lowered = !self.set_priority(own);
        }
    }

    /// Sets the priority of all threads of all processes of the group, which the process leads.
    fn set_priority(&self, priority: i32) -> bool {
        self.pid.is_some_and(|pid| rustix::process::setpriority_pgrp(Some(pid), priority.min(19)).is_ok())
    }

    /// Ends it with SIGABRT, on which the runner for Python prints where each thread is. A core dump is
    /// disabled, since it takes long.
    pub(crate) fn abort(&self) {
        if let Some(pid) = self.pid {
            let none = Rlimit { current: Some(0), maximum: Some(0) };
            // If that is forbidden, the process belongs to another user and has its own limit.
            let _ = rustix::process::prlimit(Some(pid), Resource::Core, none);
        }
        self.signal(Signal::ABORT);
    }

    /// Ends it and its whole group.
    pub(crate) fn kill(&self) {
        if let Some(pid) = self.pid {
            // It is not reaped yet, so its group id still belongs to it.
            let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        }
        self.signal(Signal::KILL);
    }
}

/// The exit status of a process, if it can be known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End(Option<ExitStatus>);

impl End {
    /// Returns whether SIGKILL ended it. That is never the program's own fault: an operator, the kernel's
    /// out-of-memory killer, or this process sent it.
    pub(crate) fn is_by_kill(self) -> bool {
        self.0.and_then(|status| status.signal()) == Some(Signal::KILL.as_raw())
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(status) => write!(f, "{status}"),
            None => f.write_str("its process has ended"),
        }
    }
}

/// Returns the status of an ended process that its parent, which is not this process, has not taken yet: the
/// last field of `/proc/PID/stat` (proc_pid_stat(5), `exit_code`).
fn status_of(pid: Pid) -> Option<ExitStatus> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The name of the program may contain blanks and parentheses.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(EXIT_CODE - STATE)?.parse().ok().map(ExitStatus::from_raw)
}

/// Field numbers of `/proc/PID/stat`.
const STATE: usize = 3;
const EXIT_CODE: usize = 52;

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended().is_none() {
            self.kill();
            if let Some(child) = &mut self.child {
                let _ = child.wait();
            }
        }
    }
}

/// Returns the control link of a process that speaks RWP.
pub(crate) fn link(settings: &Settings) -> io::Result<Option<(Arc<Control>, OwnedFd)>> {
    if matches!(settings.launch.protocol(), Protocol::Http | Protocol::FastCgi | Protocol::Goridge) {
        return Ok(None);
    }
    let (ours, theirs) = Control::pair()?;
    Ok(Some((Arc::new(ours), theirs.into())))
}
