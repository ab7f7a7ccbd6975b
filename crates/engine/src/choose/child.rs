//! Runs a trial in this process, or in a forked copy of it where the trial could end the process.
//!
//! Without a seccomp filter no system call kills its caller, so the trial runs in this process, which costs
//! no fork. A filter may answer `io_uring_setup` by killing the caller, and a sandbox may not answer at all.
//! So where a filter is in force (or that cannot be determined) the trial runs in a fork of this process,
//! under a deadline. Its report is in a page shared with the child: unlike a pipe, it shows how far the trial
//! came even if the child was killed midway.
//!
//! `trial.rs` has the trials; `refusal.rs` interprets their outcome.

use super::trial::{PATIENCE, Report, Step, WRONG};
use ringroad_host::gate::seccomp_mode;
use ringroad_uring::Probe;
use std::ffi::c_int;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

/// How the trial ended.
#[derive(Debug)]
pub(super) enum End {
    /// It ran to its end: the report has the result.
    Exited,
    /// Its process was killed by this signal.
    Killed(i32),
    /// Its process is gone, but its exit status is lost: SIGCHLD is ignored, or another thread has reaped it.
    Vanished,
    /// No child could be created: the call that failed, and its error.
    Unborn(&'static str, io::Error),
}

/// The outcome of a trial, as plain values.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) step: Step,
    pub(super) passed: bool,
    pub(super) errno: i32,
    pub(super) plain_errno: i32,
    pub(super) setup_flags: u32,
    pub(super) features: u32,
    /// `None`: the trial ended earlier.
    pub(super) opcodes: Option<Probe>,
    pub(super) multishot_accept: i32,
    pub(super) files: [i32; super::trial::FILES.len()],
    pub(super) took: Duration,
}

/// A trial: returns an error number of its own or of the kernel.
pub(super) type Trial = fn(&Report) -> Result<(), i32>;

/// Runs `trial` where it cannot end this process, and waits for it.
pub(super) fn run(trial: Trial) -> (End, Seen) {
    if seccomp_mode() == Some(0) { run_here(trial) } else { run_in_child(trial) }
}

/// Runs `trial` in this process, on a separate thread.
///
/// The kernel destroys a ring some time after its last close, and then signals the thread that created it.
/// That interrupts a blocking call: a socket read with a time limit fails with EINTR, because calls with
/// SO_RCVTIMEO are not restarted (socket(7)). So the ring of a trial is created by a thread that has ended by
/// then. The thread inherits seccomp filters.
pub(super) fn run_here(trial: Trial) -> (End, Seen) {
    let began = Instant::now();
    let report = Report::default();
    let on_its_own = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("ringroad-trial".to_owned());
        let tried = thread.spawn_scoped(scope, || trial(&report));
        // A panic in the trial is reported as a wrong answer.
        tried.map(|tried| tried.join().unwrap_or(Err(WRONG)))
    });
    // If no thread can be started, run it on this one.
    report.conclude(on_its_own.unwrap_or_else(|_| trial(&report)));
    (End::Exited, Seen::of(&report, began.elapsed()))
}

/// Runs `trial` in a forked copy of this process.
///
/// The copy ends like any child: a program that handles SIGCHLD or waits for any child notices it.
pub(super) fn run_in_child(trial: Trial) -> (End, Seen) {
    run_in_child_within(PATIENCE, trial)
}

/// Does the same with this time limit.
pub(super) fn run_in_child_within(limit: Duration, trial: Trial) -> (End, Seen) {
    let began = Instant::now();
    match try_to_run(limit, trial) {
        Ok((end, mut seen)) => {
            seen.took = began.elapsed();
            (end, seen)
        }
        Err((call, why)) => (End::Unborn(call, why), Seen::of(&Report::default(), began.elapsed())),
    }
}

fn try_to_run(limit: Duration, trial: Trial) -> Result<(End, Seen), (&'static str, io::Error)> {
    let page = SharedPage::new().map_err(|why| ("mmap", why))?;
    let mask = Masked::new();
    // SAFETY: fork(2) of the C library: its handlers keep memory allocation usable in the child, even if
    // another thread was allocating. The child runs the trial, which takes no lock that other threads of this
    // process may hold and starts no thread, and ends by `_exit` without unwinding into its caller.
    let pid = unsafe { libc::fork() };
    match pid {
        ..0 => return Err(("fork", io::Error::last_os_error())),
        0 => {
            let report = page.report();
            let tried = catch_unwind(AssertUnwindSafe(|| deadline(limit).and_then(|()| trial(report))));
            report.conclude(tried.unwrap_or(Err(WRONG)));
            // SAFETY: _exit(2) takes a number, and runs no code of the parent.
            unsafe { libc::_exit(0) }
        }
        _ => {}
    }
    let mut status: c_int = 0;
    let reaped = loop {
        // SAFETY: our own child; the status is written during the call.
        let reaped = unsafe { libc::waitpid(pid, &raw mut status, 0) };
        if reaped >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            break reaped;
        }
    };
    drop(mask);
    let report = page.report();
    let end = if reaped == pid && libc::WIFSIGNALED(status) {
        End::Killed(libc::WTERMSIG(status))
    } else if report.ended.load(Acquire) == 0 {
        // Another thread has waited for any child, or SIGCHLD is ignored. (waitpid(2) still returns only
        // after the child has ended.)
        End::Vanished
    } else {
        End::Exited
    };
    Ok((end, Seen::of(report, Duration::ZERO)))
}

/// Makes the kernel kill this process at the deadline, and prevents a core dump.
fn deadline(limit: Duration) -> Result<(), i32> {
    let failed = || io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL);
    // Once. A trial takes less than a millisecond.
    let none = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let (seconds, micros) = (limit.as_secs() as libc::time_t, limit.subsec_micros() as libc::suseconds_t);
    let span =
        libc::itimerval { it_interval: none, it_value: libc::timeval { tv_sec: seconds, tv_usec: micros } };
    // One byte: with zero a dump would still be piped to a handler (core(5)).
    let core = libc::rlimit { rlim_cur: 1, rlim_max: 1 };
    // SAFETY: live structures, read during the calls, and null where no result is wanted. Limits, timers,
    // masks and handlers belong to this process alone.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const core);
        let mut alarm: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut alarm);
        libc::sigaddset(&raw mut alarm, libc::SIGALRM);
        // Signal handlers of the program must not run here.
        if libc::signal(libc::SIGALRM, libc::SIG_DFL) == libc::SIG_ERR
            || libc::setitimer(libc::ITIMER_REAL, &raw const span, std::ptr::null_mut()) != 0
            || libc::sigprocmask(libc::SIG_UNBLOCK, &raw const alarm, std::ptr::null_mut()) != 0
        {
            return Err(failed());
        }
    }
    Ok(())
}

impl Report {
    /// Records how the trial ended.
    fn conclude(&self, outcome: Result<(), i32>) {
        match outcome {
            Ok(()) => self.passed.store(1, Relaxed),
            Err(errno) => self.errno.store(errno, Relaxed),
        }
        self.ended.store(1, Release);
    }
}

/// A zeroed page with a report, shared with forked children, until dropped.
struct SharedPage(*mut Report);

impl SharedPage {
    fn new() -> io::Result<SharedPage> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: new memory, at no address that is in use.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), size_of::<Report>(), access, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(SharedPage(start.cast()))
    }

    fn report(&self) -> &Report {
        // SAFETY: mapped as long as this lives, page-aligned and large enough. A zeroed page is a valid
        // report: atomic integers, which both processes may write.
        unsafe { &*self.0 }
    }
}

impl Drop for SharedPage {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, and no reference to it is left.
        unsafe { libc::munmap(self.0.cast(), size_of::<Report>()) };
    }
}

/// Blocks every signal that can be blocked, for this thread and the child it forks, until dropped: otherwise
/// the program's handlers would run in the child. (The C library reserves 32 and 33, and only the C library
/// sends them.)
struct Masked(libc::sigset_t);

impl Masked {
    fn new() -> Masked {
        // SAFETY: live sets; blocking cannot fail with SIG_SETMASK.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            Masked(before)
        }
    }
}

impl Drop for Masked {
    fn drop(&mut self) {
        // SAFETY: the previous set of this thread.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
    }
}

impl Seen {
    fn of(report: &Report, took: Duration) -> Seen {
        let bits = || std::array::from_fn(|index| report.opcodes[index].load(Relaxed));
        Seen {
            step: Step::of(report.step.load(Relaxed)),
            passed: report.passed.load(Relaxed) != 0,
            errno: report.errno.load(Relaxed),
            plain_errno: report.plain_errno.load(Relaxed),
            setup_flags: report.setup_flags.load(Relaxed),
            features: report.features.load(Relaxed),
            opcodes: (report.asked.load(Relaxed) != 0).then(|| Probe::from_bits(bits())),
            multishot_accept: report.multishot_accept.load(Relaxed),
            files: std::array::from_fn(|index| report.files[index].load(Relaxed)),
            took,
        }
    }
}
