//! Child processes.
//!
//! The command type is the standard library's. [`spawn`] starts it and returns its pipes as streams. The
//! driver waits for the end of the process (`pidfd_open(2)`), without a thread. If the kernel gives no pidfd,
//! a timer checks the process at least every 50 ms.

use crate::copy::both;
use crate::pipe::{PipeReader, PipeWriter};
use crate::traits::AsyncReadExt;
use ringroad_engine::{Error, PollFd, Result, time::sleep};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// No descriptor is free, in the process or in the system.
const EMFILE: i32 = rustix::io::Errno::MFILE.raw_os_error();
const ENFILE: i32 = rustix::io::Errno::NFILE.raw_os_error();

/// Longest pause between two checks of a process that has no pidfd.
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// Starts a process.
///
/// ```
/// use ringroad_engine::{DriverName, Runtime};
/// use ringroad_io::{AsyncReadExt, AsyncWrite, process};
/// use std::process::{Command, Stdio};
///
/// Runtime::new(DriverName::Epoll)?.block_on(async {
///     let mut command = Command::new("cat");
///     let mut child = process::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
///     let mut input = child.stdin.take().unwrap();
///     input.write_all("there and back").await.0?;
///     drop(input);
///     let mut output = child.stdout.take().unwrap();
///     assert_eq!(output.read_to_string().await?, "there and back");
///     assert!(child.wait().await?.success());
///     Ok::<(), ringroad_engine::Error>(())
/// })??;
/// # Ok::<(), ringroad_engine::Error>(())
/// ```
///
/// # Errors
/// Those of [`Command::spawn`].
pub fn spawn(command: &mut Command) -> Result<Child> {
    with_left(|_| {});
    let named = command.get_program().to_string_lossy().into_owned();
    let mut inner = command.spawn().map_err(|why| failed("spawn", &named, &why))?;
    let pidfd = i32::try_from(inner.id()).ok().and_then(Pid::from_raw);
    // Without a pidfd (an old kernel, or no free descriptor), `wait` checks the process at intervals.
    let pidfd = pidfd.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()).map(PollFd::new);
    Ok(Child {
        stdin: inner.stdin.take().map(|pipe| PipeWriter::from(OwnedFd::from(pipe))),
        stdout: inner.stdout.take().map(|pipe| PipeReader::from(OwnedFd::from(pipe))),
        stderr: inner.stderr.take().map(|pipe| PipeReader::from(OwnedFd::from(pipe))),
        id: inner.id(),
        inner: Arc::new(Mutex::new(inner)),
        pidfd,
        kills_on_drop: false,
    })
}

/// Runs a process to its end, with its output and errors collected: at most `limit` bytes of each.
///
/// # Errors
/// As [`spawn`]; `InvalidData` if it prints more. The process is killed then, and if the future is dropped.
pub async fn output(command: &mut Command, limit: usize) -> Result<Output> {
    let mut child = spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()))?;
    child.kill_on_drop(true);
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    // Reads both pipes at once: a process blocks when one pipe is full, and then never closes the other.
    let named = command.get_program().to_string_lossy();
    let mut stdout = pin!(collected(stdout, limit, &named));
    let mut stderr = pin!(collected(stderr, limit, &named));
    let (stdout, stderr) = both(stdout.as_mut(), stderr.as_mut()).await?;
    let status = child.wait().await?;
    Ok(Output { status, stdout, stderr })
}

async fn collected(pipe: Option<PipeReader>, limit: usize, named: &str) -> Result<Vec<u8>> {
    let Some(mut pipe) = pipe else { return Ok(Vec::new()) };
    let (read, bytes) = pipe.read_to_end(Vec::new(), limit).await;
    match read {
        Ok(()) => Ok(bytes),
        // Only the limit gives this kind: a pipe never returns it.
        Err(why) if why.kind() == ErrorKind::InvalidData => Err(prints_too_much(named, limit)),
        Err(why) => Err(why),
    }
}

#[cold]
fn prints_too_much(named: &str, limit: usize) -> Error {
    let why = format!(
        "{named} prints more than the limit of {limit} bytes: raise the limit, or `spawn` it and read its pipes"
    );
    Error::layered("read", std::io::Error::new(ErrorKind::InvalidData, why))
}

/// A child process. Dropping it leaves it running, unless [`kill_on_drop`](Self::kill_on_drop) is set. One
/// that ends later is reaped when the program next starts a process or drops a `Child`, so a program that
/// starts many does not fill the table of processes with zombies.
#[derive(Debug)]
pub struct Child {
    /// Its standard input, if the command has a pipe for it. Dropping it ends the input.
    pub stdin: Option<PipeWriter>,
    /// Its standard output, likewise.
    pub stdout: Option<PipeReader>,
    /// Its standard error output, likewise.
    pub stderr: Option<PipeReader>,
    id: u32,
    inner: Arc<Mutex<std::process::Child>>,
    pidfd: Option<PollFd<OwnedFd>>,
    kills_on_drop: bool,
}

fn lock(child: &Mutex<std::process::Child>) -> MutexGuard<'_, std::process::Child> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cold]
fn failed(call: &'static str, on: &str, why: &std::io::Error) -> Error {
    Error::layered(call, std::io::Error::new(why.kind(), format!("{on}: {why}")))
}

impl Child {
    /// Returns its process id. After its end was waited for, the number may be another's.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Waits for its end. Dropping the future loses nothing; a second call returns the same.
    ///
    /// Its standard input is not closed by this: take and drop it if it reads to the end.
    ///
    /// # Errors
    /// ECHILD: it was waited for elsewhere, or the program ignores SIGCHLD.
    pub async fn wait(&mut self) -> Result<ExitStatus> {
        let mut pause = Duration::from_millis(1);
        loop {
            if let Some(ended) = self.try_wait()? {
                return Ok(ended);
            }
            let watched = match &self.pidfd {
                Some(pidfd) => Some(pidfd.readable().await),
                None => None,
            };
            match watched {
                Some(Ok(())) => {}
                Some(Err(why)) if !matches!(why.raw_os_error(), Some(EMFILE | ENFILE)) => return Err(why),
                // A timer, not a thread: a thread would outlive a dropped `wait` and keep the child in use.
                _ => {
                    sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    /// Returns how it has ended, if it has.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        let ended = lock(&self.inner).try_wait();
        ended.map_err(|why| self.failed("wait4", &why))
    }

    /// Kills it (SIGKILL). Has no effect if its end was waited for.
    ///
    /// # Errors
    /// EPERM: it runs as another user.
    pub fn kill(&mut self) -> Result<()> {
        let killed = lock(&self.inner).kill();
        killed.map_err(|why| self.failed("kill", &why))
    }

    /// Sets whether dropping this kills the process. A short-lived thread reaps it then.
    pub fn kill_on_drop(&mut self, kills: bool) {
        self.kills_on_drop = kills;
    }

    #[cold]
    fn failed(&self, call: &'static str, why: &std::io::Error) -> Error {
        failed(call, &format!("process {}", self.id), why)
    }
}

/// Children, shared between their owners and the code that reaps them.
type Left = Vec<Arc<Mutex<std::process::Child>>>;

/// Children that were dropped while they ran.
static LEFT: Mutex<Left> = Mutex::new(Vec::new());

/// Calls `change` with the children that were dropped while they ran, less those that have ended since, which
/// it reaps. It does not wait for the lock: in a child made by fork(2) it may be held for ever.
fn with_left(change: impl FnOnce(&mut Left)) {
    let Ok(mut left) = LEFT.try_lock() else { return };
    left.retain(|child| matches!(lock(child).try_wait(), Ok(None)));
    change(&mut left);
}

impl Drop for Child {
    fn drop(&mut self) {
        let runs = matches!(self.try_wait(), Ok(None));
        with_left(|left| {
            if runs && !self.kills_on_drop {
                left.push(Arc::clone(&self.inner));
            }
        });
        if runs && self.kills_on_drop {
            let _ = self.kill();
            // Reaped by a thread, because its end may take a moment. Without a thread it stays a zombie until
            // this process ends.
            let inner = Arc::clone(&self.inner);
            let reap = move || drop(lock(&inner).wait());
            let _ = std::thread::Builder::new().name("ringroad-reap".to_owned()).spawn(reap);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ringroad_engine::{DriverName, Runtime, blocking, time::timeout};
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn without_a_pidfd_a_wait_that_is_dropped_holds_neither_the_child_nor_a_thread() {
        let waited = Runtime::new(DriverName::Epoll).unwrap().block_on(async {
            let mut child = spawn(Command::new("cat").stdin(Stdio::piped()))?;
            child.pidfd = None;
            assert!(timeout(Duration::from_millis(20), child.wait()).await.is_err(), "it reads for ever");
            assert_eq!(blocking::threads(), 0);
            assert_eq!(child.try_wait()?, None);
            child.kill()?;
            assert_eq!(child.wait().await?.signal(), Some(9));
            Ok::<(), Error>(())
        });
        waited.unwrap().unwrap();
    }
}
