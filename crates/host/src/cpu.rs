//! CPU time: of a process to the nanosecond, its split into user, system and waiting, and the machine's.
//!
//! [`ProcessClock`] is the figure to build on: it counts every thread of the process, those that ended and
//! io_uring's workers (`iou-wrk-*`, threads of the process since Linux 5.12) included. [`split`] explains it:
//! coarser, but it tells user from system and running from waiting. [`machine`] tells what the hypervisor took.

use crate::root::Root;
use std::io;
use std::time::Duration;

/// The CPU-time clock of one process: user and system time of all its threads, living and dead.
///
/// Resolution is the scheduler's, nanoseconds. It stops with the process; a pid used again is another clock.
///
/// # References
/// clock_getcpuclockid(3), clock_gettime(2).
#[derive(Clone, Copy, Debug)]
pub struct ProcessClock {
    clock: libc::clockid_t,
}

impl ProcessClock {
    /// The clock of process `pid`.
    ///
    /// # Errors
    /// `NotFound` if there is no such process (a thread id is none); `InvalidInput` for a pid no process can have.
    pub fn of(pid: u32) -> io::Result<Self> {
        // 0 would silently mean the caller.
        let id = libc::pid_t::try_from(pid).ok().filter(|id| *id > 0).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("CPU clock of process {pid}: not a process id"),
            )
        })?;
        let mut clock: libc::clockid_t = 0;
        // SAFETY: `clock` is a live, aligned clockid_t of ours; the call writes it before it returns and keeps
        // no pointer to it.
        let errno = unsafe { libc::clock_getcpuclockid(id, &mut clock) };
        if errno == 0 { Ok(ProcessClock { clock }) } else { Err(process_error("CPU clock", pid, errno)) }
    }

    /// The clock of this process.
    pub fn own() -> Self {
        ProcessClock { clock: libc::CLOCK_PROCESS_CPUTIME_ID }
    }

    /// CPU time used so far.
    ///
    /// # Errors
    /// `NotFound` when the process has ended and been reaped.
    pub fn read(&self) -> io::Result<Duration> {
        read_clock(self.clock)
    }
}

/// Where the CPU time of a process went. Sums over its threads; a field the kernel hides is `None`.
///
/// Take two and use [`CpuSplit::since`]: user and system include threads that have ended, the other sums only
/// those alive, so these can shrink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuSplit {
    /// User time, ended threads included, nanoseconds in steps of the kernel's clock tick (10 ms).
    pub user_ns: Option<u64>,
    /// System time, ended threads included, nanoseconds in steps of the kernel's clock tick (10 ms).
    pub sys_ns: Option<u64>,
    /// Time living threads were ready to run but waited for a CPU, nanoseconds.
    pub wait_ns: Option<u64>,
    /// Times a living thread gave up the CPU to wait for something.
    pub voluntary_switches: Option<u64>,
    /// Times a living thread was taken off the CPU.
    pub involuntary_switches: Option<u64>,
    /// Living threads, kernel workers of io_uring included.
    pub threads: u32,
}

impl CpuSplit {
    /// What was added since `earlier`; `threads` is the present number. A field is `None` where either side is,
    /// and where it shrank, which happens when threads ended in between: then its growth is not known.
    pub fn since(&self, earlier: &CpuSplit) -> CpuSplit {
        let grown = |now: Option<u64>, then: Option<u64>| now?.checked_sub(then?);
        CpuSplit {
            user_ns: grown(self.user_ns, earlier.user_ns),
            sys_ns: grown(self.sys_ns, earlier.sys_ns),
            wait_ns: grown(self.wait_ns, earlier.wait_ns),
            voluntary_switches: grown(self.voluntary_switches, earlier.voluntary_switches),
            involuntary_switches: grown(self.involuntary_switches, earlier.involuntary_switches),
            threads: self.threads,
        }
    }

    /// Context switches of both kinds.
    pub fn switches(&self) -> Option<u64> {
        Some(self.voluntary_switches? + self.involuntary_switches?)
    }
}

/// Where the CPU time of process `pid` went so far: `/proc/PID/stat`, `/proc/PID/task/*/{schedstat,status}`.
///
/// # Errors
/// `NotFound` if there is no such process.
pub fn split(pid: u32) -> io::Result<CpuSplit> {
    split_under(&Root::system(), pid)
}

/// [`split`] on another machine's files.
///
/// # Errors
/// `NotFound` if there is no such process under `root`.
pub fn split_under(root: &Root, pid: u32) -> io::Result<CpuSplit> {
    let tasks = format!("proc/{pid}/task");
    let (mut voluntary, mut involuntary, mut waited, mut slices) = (vec![], vec![], vec![], vec![]);
    let mut threads = 0;
    for task in root.names(&tasks)? {
        let status = root.read(format!("{tasks}/{task}/status"));
        if matches!(&status, Err(error) if error.kind() == io::ErrorKind::NotFound) {
            // Ended between the listing and now: neither its times nor itself count.
            continue;
        }
        threads += 1;
        let status = status.unwrap_or_default();
        voluntary.push(status_number(&status, "voluntary_ctxt_switches"));
        involuntary.push(status_number(&status, "nonvoluntary_ctxt_switches"));
        let schedstat = root.text(format!("{tasks}/{task}/schedstat")).as_deref().and_then(schedstat);
        waited.push(schedstat.map(|(wait_ns, _)| wait_ns));
        slices.push(schedstat.map(|(_, slices)| slices));
    }
    let ticks = root.read(format!("proc/{pid}/stat")).ok().as_deref().and_then(stat_ticks);
    Ok(CpuSplit {
        user_ns: ticks.map(|(user, _)| user.saturating_mul(tick_ns())),
        sys_ns: ticks.map(|(_, sys)| sys.saturating_mul(tick_ns())),
        // A kernel without CONFIG_SCHED_INFO prints zeros for every thread: that is hidden, not idle. A thread
        // that has just been made may truly stand at zero beside others that do not.
        wait_ns: sum(&waited).filter(|_| sum(&slices) != Some(0)),
        voluntary_switches: sum(&voluntary),
        involuntary_switches: sum(&involuntary),
        threads,
    })
}

/// CPU time of the whole machine since boot, all cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineTimes {
    /// All time, idle and stolen included, nanoseconds.
    pub total_ns: u64,
    /// Time no core had work, waiting for disks included, nanoseconds.
    pub idle_ns: u64,
    /// Time the hypervisor ran others while a core here had work, nanoseconds. A hypervisor may not report it,
    /// and then it stands at 0: the kernel cannot tell these apart.
    pub steal_ns: Option<u64>,
}

impl MachineTimes {
    /// Steal since `earlier` as a share of all time; `None` if unknown or no tick has passed.
    pub fn steal_share_since(&self, earlier: &MachineTimes) -> Option<f64> {
        let total = self.total_ns.checked_sub(earlier.total_ns).filter(|t| *t > 0)?;
        let steal = self.steal_ns?.checked_sub(earlier.steal_ns?)?;
        Some(steal as f64 / total as f64)
    }
}

/// CPU time of this machine: the `cpu` line of `/proc/stat`, in steps of the clock tick (10 ms).
///
/// # Errors
/// `/proc/stat` cannot be read or has no such line.
///
/// # References
/// proc_stat(5).
pub fn machine() -> io::Result<MachineTimes> {
    machine_under(&Root::system())
}

/// [`machine`] on another machine's files.
///
/// # Errors
/// `proc/stat` under `root` cannot be read or has no `cpu` line.
pub fn machine_under(root: &Root) -> io::Result<MachineTimes> {
    let text = root.read("proc/stat")?;
    parse_machine(&text).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "read /proc/stat: no line `cpu` with at least five numbers",
        )
    })
}

/// `cpu user nice system idle iowait irq softirq steal guest guest_nice`; guest is part of user already.
fn parse_machine(text: &str) -> Option<MachineTimes> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_ascii_whitespace().map_while(|word| word.parse().ok()).take(8).collect();
    if ticks.len() < 5 {
        return None;
    }
    let ns = |ticks: u64| ticks.saturating_mul(tick_ns());
    Some(MachineTimes {
        total_ns: ns(ticks.iter().fold(0, |sum: u64, t| sum.saturating_add(*t))),
        idle_ns: ns(ticks[3].saturating_add(ticks[4])),
        steal_ns: ticks.get(7).copied().map(ns),
    })
}

/// The sum of all parts; unknown as soon as one part is, or when there are none.
fn sum(parts: &[Option<u64>]) -> Option<u64> {
    parts.iter().copied().reduce(|total, part| Some(total?.saturating_add(part?))).flatten()
}

/// Time waited and number of times run, from a thread's `run_ns wait_ns slices`
/// (Documentation/scheduler/sched-stats.rst).
fn schedstat(text: &str) -> Option<(u64, u64)> {
    let mut words = text.split_ascii_whitespace().skip(1);
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

/// utime and stime of a stat file, in clock ticks: fields 14 and 15 of proc_pid_stat(5). The name in
/// parentheses may hold spaces and parentheses, so counting starts behind the last one.
fn stat_ticks(text: &str) -> Option<(u64, u64)> {
    let mut words = text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace().skip(11);
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

/// The number behind `name:` in a status file, without its unit.
pub(crate) fn status_number(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    value.split_ascii_whitespace().next()?.parse().ok()
}

/// One clock tick of the files in `/proc`, nanoseconds.
fn tick_ns() -> u64 {
    // SAFETY: sysconf takes a number and returns one; no memory is involved.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    // The kernel has fixed USER_HZ at 100 on every architecture Rust runs on; sysconf only confirms it.
    1_000_000_000 / u64::try_from(per_second).ok().filter(|n| *n > 0).unwrap_or(100)
}

fn read_clock(clock: libc::clockid_t) -> io::Result<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a live, aligned timespec of ours; the call writes it before it returns and keeps no
    // pointer to it. Any clock id is allowed: an unknown one is EINVAL.
    if unsafe { libc::clock_gettime(clock, &mut time) } != 0 {
        let error = io::Error::last_os_error();
        // The kernel says EINVAL for the clock of a process that is gone (clock_gettime(2)).
        let gone = matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ESRCH));
        let kind = if gone { io::ErrorKind::NotFound } else { error.kind() };
        return Err(io::Error::new(kind, format!("read CPU clock: {error}; has the process ended?")));
    }
    // CPU clocks are never negative, so neither conversion loses anything.
    Ok(Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0)))
}

fn process_error(what: &str, pid: u32, errno: i32) -> io::Error {
    let error = io::Error::from_raw_os_error(errno);
    // glibc turns the kernel's EINVAL into ESRCH here; other libraries may not.
    let gone = matches!(errno, libc::ESRCH | libc::EINVAL);
    let kind = if gone { io::ErrorKind::NotFound } else { error.kind() };
    io::Error::new(kind, format!("{what} of process {pid}: {error}"))
}
