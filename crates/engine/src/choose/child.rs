//! A child process in which something may be tried that could end it.
//!
//! A seccomp filter may answer `io_uring_setup` by killing whoever called it, and a sandbox may not answer at all. So a
//! trial runs in a process of its own, under a deadline, and its report lies in a page both see: it tells how far the
//! trial came even when the child was killed in the middle, which a pipe would not.
//!
//! The child shares our memory where that is safe, so that in a program of many gigabytes no page tables are copied.
//! What a trial may do is said in `trial.rs`; what the answer means is concluded in `refusal.rs`.

use super::bugs::Version;
use super::trial::{Arena, PIECE, Report, Step};
use ringroad_uring::Probe;
use std::ffi::{c_int, c_void};
use std::io;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};

/// Stack of the child. A trial needs some hundred bytes, unoptimised some thousand.
const STACK_BYTES: usize = 2 * PIECE;

/// How the child ended.
#[derive(Debug)]
pub(super) enum End {
    /// By itself: the report tells the rest.
    Exited,
    /// By this signal.
    Killed(i32),
    /// There was no child: what was attempted, and why not.
    Unborn(&'static str, io::Error),
}

/// What a trial left behind, as plain values.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) step: Step,
    pub(super) passed: bool,
    pub(super) errno: i32,
    pub(super) plain_errno: i32,
    pub(super) setup_flags: u32,
    pub(super) features: u32,
    /// `None`: the trial did not come that far.
    pub(super) opcodes: Option<Probe>,
    pub(super) multishot_accept: i32,
    pub(super) files: [i32; super::trial::FILES.len()],
    pub(super) took: Duration,
}

/// A trial: a function from clean memory to a report.
pub(super) type Trial = fn(&Report, Arena) -> Result<(), i32>;

/// Runs `trial` in a child, and waits for its end.
pub(super) fn run(trial: Trial) -> (End, Seen) {
    // Before Linux 5.16 a core dump, which a kill by seccomp begins, ended every process that shared the memory.
    let shares = Version::of_this_kernel().is_some_and(|version| version >= Version::new(5, 16, 0));
    run_as(trial, shares)
}

/// The same with memory shared or copied.
pub(super) fn run_as(trial: Trial, shares_memory: bool) -> (End, Seen) {
    let began = Instant::now();
    match try_to_run(trial, shares_memory) {
        Ok((end, mut seen)) => {
            seen.took = began.elapsed();
            (end, seen)
        }
        Err((call, why)) => (End::Unborn(call, why), Seen::of(&Report::default(), began.elapsed())),
    }
}

struct Task {
    trial: Trial,
    report: *const Report,
    arena: Arena,
}

fn try_to_run(trial: Trial, shares_memory: bool) -> Result<(End, Seen), (&'static str, io::Error)> {
    let mmap = |why| ("mmap", why);
    let page = Region::new(size_of::<Report>(), libc::MAP_SHARED).map_err(mmap)?;
    // From below: a guard, the stack, the arena.
    let memory = Region::new(PIECE + STACK_BYTES + Arena::BYTES, libc::MAP_PRIVATE).map_err(mmap)?;
    // SAFETY: the lowest piece of a mapping of ours, which nothing refers to.
    if unsafe { libc::mprotect(memory.start.cast(), PIECE, libc::PROT_NONE) } != 0 {
        return Err(("mprotect", io::Error::last_os_error()));
    }
    let stack_top = memory.start.wrapping_add(PIECE + STACK_BYTES);
    let task = Task { trial, report: page.start.cast(), arena: Arena { start: stack_top } };
    let mask = Masked::new();
    // The parent stands still until the child is gone (VFORK), so what is shared is used by one at a time. No signal
    // tells of its end: the program may wait for children of its own, and must not be told of ours.
    let flags = libc::CLONE_VFORK | if shares_memory { libc::CLONE_VM } else { 0 };
    let argument = (&raw const task).cast_mut().cast::<c_void>();
    // SAFETY: a stack of its own, 16-byte aligned; `task` and what it points to outlive the child, which is gone when
    // `waitpid` returns below. The child has its own descriptors and signal table. It runs `trial` only, which keeps to
    // system calls on that memory, so it leaves nothing half-done in ours wherever it is killed. (It shares this
    // thread's `errno`, which nobody looks at meanwhile.)
    let pid = unsafe { libc::clone(child, stack_top.cast(), flags, argument) };
    if pid < 0 {
        return Err(("clone", io::Error::last_os_error()));
    }
    let mut status: c_int = 0;
    let reaped = loop {
        // SAFETY: a child of ours; the status is written during the call. __WALL: it ends without a signal.
        let reaped = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) };
        if reaped >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            break reaped;
        }
    };
    drop(mask);
    // SAFETY: a page of zeros is a report, and the child, who wrote it by atomics, is gone.
    let report = unsafe { &*task.report };
    if shares_memory {
        // What the child mapped is in our memory, too, and was its alone: the kernel chose the places.
        for [start, bytes] in report.mapped.iter().map(|part| [part[0].load(Acquire), part[1].load(Relaxed)])
        {
            if start != 0 {
                // SAFETY: mapped by the child, who told nobody else of it and is gone.
                unsafe { libc::munmap(start as *mut c_void, bytes) };
            }
        }
    }
    let seen = Seen::of(report, Duration::ZERO);
    // Somebody else may have waited for any child at all; then the report speaks alone.
    let end = if reaped == pid && libc::WIFSIGNALED(status) {
        End::Killed(libc::WTERMSIG(status))
    } else {
        End::Exited
    };
    Ok((end, seen))
}

extern "C" fn child(task: *mut c_void) -> c_int {
    // SAFETY: what `try_to_run` made, alive until this process has ended.
    let (task, report) = unsafe {
        let task = &*task.cast::<Task>();
        (task, &*task.report)
    };
    match deadline().and_then(|()| (task.trial)(report, task.arena)) {
        Ok(()) => report.passed.store(1, Relaxed),
        Err(errno) => report.errno.store(errno, Relaxed),
    }
    0
}

/// Has the kernel end this process when the time is over, and without a core dump when it ends it otherwise.
fn deadline() -> Result<(), i32> {
    let failed = || io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL);
    // One second, once. A trial takes less than a thousandth of it.
    let none = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let span = libc::itimerval { it_interval: none, it_value: libc::timeval { tv_sec: 1, tv_usec: 0 } };
    // One byte: zero would still be piped to a handler of dumps (core(5)).
    let limit = libc::rlimit { rlim_cur: 1, rlim_max: 1 };
    // SAFETY: live structures, read during the calls, and null where nothing is wanted back. Limits, timers, masks and
    // the table of handlers are this process's own.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const limit);
        let mut alarm: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut alarm);
        libc::sigaddset(&raw mut alarm, libc::SIGALRM);
        // A handler of the program's must not run here.
        if libc::signal(libc::SIGALRM, libc::SIG_DFL) == libc::SIG_ERR
            || libc::setitimer(libc::ITIMER_REAL, &raw const span, std::ptr::null_mut()) != 0
            || libc::sigprocmask(libc::SIG_UNBLOCK, &raw const alarm, std::ptr::null_mut()) != 0
        {
            return Err(failed());
        }
    }
    Ok(())
}

/// Memory of our own, until dropped.
struct Region {
    start: *mut u8,
    bytes: usize,
}

impl Region {
    fn new(bytes: usize, sharing: c_int) -> io::Result<Region> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = sharing | libc::MAP_ANONYMOUS;
        // SAFETY: new memory, at no address that is anybody's.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Region { start: start.cast(), bytes })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, whole. Who used it is gone: the child has been waited for.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}

/// No signal reaches this thread, nor the child it makes, until dropped: a handler of the program's would run in the
/// child on shared memory.
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
        // SAFETY: the set this thread had.
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
