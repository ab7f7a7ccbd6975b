//! CPU time: of a process to the nanosecond, its split into user, system and waiting, and the machine's.
//!
//! [`ProcessClock`] is the figure to build on: it counts every thread of the process, those that ended and
//! io_uring's workers (`iou-wrk-*`, threads of the process since Linux 5.12) included. [`split`] explains it:
//! coarser, but it tells user from system and running from waiting. [`machine`] has the time taken by the
//! hypervisor.

use crate::root::Root;
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

/// The CPU-time clock of one process: user and system time of all its threads, living and dead.
///
/// The resolution is that of the scheduler: nanoseconds. It stops when the process ends; a reused pid has
/// another clock.
///
/// # References
/// clock_getcpuclockid(3), clock_gettime(2).
#[derive(Clone, Copy, Debug)]
pub struct ProcessClock {
    clock: libc::clockid_t,
}

/// Process ids are below this on every 64-bit kernel (PID_MAX_LIMIT; proc_sys_kernel(5)).
const PID_MAX: u32 = 1 << 22;

impl ProcessClock {
    /// Makes the clock of process `pid`.
    ///
    /// # Errors
    /// `NotFound` if there is no such process (a thread id does not count); `InvalidInput` for an impossible
    /// pid.
    pub fn of(pid: u32) -> io::Result<Self> {
        // The kernel reads 0 as the calling process. It reads every number with its low 29 bits clear as 0
        // too, since a clock id keeps only those bits. The kernel's limit on pids is far below that.
        if pid == 0 || pid > PID_MAX {
            let what = format!("CPU clock of process {pid}: not a process id");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let id = pid as libc::pid_t;
        let mut clock: libc::clockid_t = 0;
        // SAFETY: `clock` is a live, aligned clockid_t of ours; the call writes it before it returns and
        // keeps no pointer to it.
        let errno = unsafe { libc::clock_getcpuclockid(id, &mut clock) };
        if errno == 0 { Ok(ProcessClock { clock }) } else { Err(process_error("CPU clock", pid, errno)) }
    }

    /// Returns the clock of this process.
    pub fn own() -> Self {
        ProcessClock { clock: libc::CLOCK_PROCESS_CPUTIME_ID }
    }

    /// Returns the CPU time used so far.
    ///
    /// # Errors
    /// `NotFound` when the process has ended and been reaped.
    pub fn read(&self) -> io::Result<Duration> {
        read_clock(self.clock)
    }
}

/// The CPU-time clock of one thread of this process: user time, and system time of the calls that it makes.
/// Work that the kernel hands to other threads is on their clocks (`iou-wrk-*` of io_uring).
///
/// Any thread may read it while that one lives. Once it has ended, reading fails, or finds the clock of a
/// later thread with the same number: keep the last reading of a thread that is about to end.
///
/// # References
/// pthread_getcpuclockid(3), clock_gettime(2).
#[derive(Clone, Copy, Debug)]
pub struct ThreadClock {
    clock: libc::clockid_t,
}

impl ThreadClock {
    /// Returns the clock of the thread that calls this.
    ///
    /// # Errors
    /// The kernel was built without clocks of threads.
    pub fn own() -> io::Result<Self> {
        let mut clock: libc::clockid_t = 0;
        // SAFETY: `pthread_self` names the calling thread, which is alive. `clock` is a live, aligned
        // clockid_t of ours; the call writes it before it returns and keeps no pointer to it.
        let errno = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &mut clock) };
        if errno == 0 { Ok(ThreadClock { clock }) } else { Err(io::Error::from_raw_os_error(errno)) }
    }

    /// Returns the CPU time used so far.
    ///
    /// # Errors
    /// `InvalidInput` when the thread has ended.
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
    /// Returns what was added since `earlier`; `threads` is the present number. A field is `None` where
    /// either side is, and where it shrank, which happens when threads ended in between: then its growth is
    /// not known.
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

    /// Returns the context switches of both kinds.
    pub fn switches(&self) -> Option<u64> {
        Some(self.voluntary_switches? + self.involuntary_switches?)
    }
}

/// Returns where the CPU time of process `pid` went so far: `/proc/PID/stat`,
/// `/proc/PID/task/*/{schedstat,status}`.
///
/// # Errors
/// `NotFound` if there is no such process.
pub fn split(pid: u32) -> io::Result<CpuSplit> {
    split_under(&Root::system(), pid)
}

/// Does as [`split`] on another machine's files.
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
        // A kernel without CONFIG_SCHED_INFO prints zeros for every thread: that is hidden, not idle. A
        // thread that has just been made may truly stand at zero beside others that do not.
        wait_ns: sum(&waited).filter(|_| sum(&slices) != Some(0)),
        voluntary_switches: sum(&voluntary),
        involuntary_switches: sum(&involuntary),
        threads,
    })
}

/// Returns the CPU time of each living thread of process `pid`, nanoseconds, by thread id:
/// `/proc/PID/task/*/schedstat`. Empty where the kernel hides it.
///
/// # Errors
/// `NotFound` if there is no such process.
pub fn threads(pid: u32) -> io::Result<BTreeMap<u32, u64>> {
    threads_under(&Root::system(), pid)
}

fn threads_under(root: &Root, pid: u32) -> io::Result<BTreeMap<u32, u64>> {
    let tasks = format!("proc/{pid}/task");
    let ran = |task: String| {
        let text = root.text(format!("{tasks}/{task}/schedstat"))?;
        Some((task.parse().ok()?, text.split_ascii_whitespace().next()?.parse().ok()?))
    };
    Ok(root.names(&tasks)?.into_iter().filter_map(ran).collect())
}

/// Returns the effective number of threads that carried a load, from each thread's CPU time: the square of
/// the sum over the sum of the squares. Four equal threads give 4; one busy thread beside idle ones gives 1.
/// `None` if all are zero.
pub fn carried_by(parts: impl IntoIterator<Item = u64>) -> Option<f64> {
    let (sum, squares) = parts
        .into_iter()
        .map(|part| part as f64)
        .fold((0.0, 0.0), |(sum, squares), part| (sum + part, squares + part * part));
    (squares > 0.0).then(|| sum * sum / squares)
}

/// CPU time of the whole machine since boot, all cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineTimes {
    /// All time, idle and stolen included, nanoseconds.
    pub total_ns: u64,
    /// Time no core had work, waiting for disks included, nanoseconds.
    pub idle_ns: u64,
    /// Time the hypervisor ran others while a core here had work, nanoseconds. A hypervisor may not report
    /// it, and then it stands at 0: the kernel cannot tell these apart.
    pub steal_ns: Option<u64>,
}

impl MachineTimes {
    /// No time at all: what a sum begins with.
    pub const ZERO: MachineTimes = MachineTimes { total_ns: 0, idle_ns: 0, steal_ns: Some(0) };

    /// Returns the time since `earlier`; `None` if a clock went backwards. That of waiting for disks may
    /// (proc_stat(5)), and then counts as none.
    pub fn since(&self, earlier: &MachineTimes) -> Option<MachineTimes> {
        let steal_ns = match (self.steal_ns, earlier.steal_ns) {
            (Some(now), Some(then)) => Some(now.checked_sub(then)?),
            _ => None,
        };
        Some(MachineTimes {
            total_ns: self.total_ns.checked_sub(earlier.total_ns)?,
            idle_ns: self.idle_ns.saturating_sub(earlier.idle_ns),
            steal_ns,
        })
    }

    /// Returns both together; steal is unknown as soon as one is.
    #[must_use]
    pub fn plus(self, other: MachineTimes) -> MachineTimes {
        MachineTimes {
            total_ns: self.total_ns.saturating_add(other.total_ns),
            idle_ns: self.idle_ns.saturating_add(other.idle_ns),
            steal_ns: self.steal_ns.zip(other.steal_ns).map(|(one, other)| one.saturating_add(other)),
        }
    }

    /// Returns steal as a share of all time; `None` if unknown or no tick has passed.
    pub fn steal_share(&self) -> Option<f64> {
        (self.total_ns > 0).then_some(self.steal_ns? as f64 / self.total_ns as f64)
    }

    /// Returns steal since `earlier` as a share of all time; `None` if unknown or no tick has passed.
    pub fn steal_share_since(&self, earlier: &MachineTimes) -> Option<f64> {
        self.since(earlier)?.steal_share()
    }
}

/// Returns the CPU time of this machine: the `cpu` line of `/proc/stat`, in steps of the clock tick (10 ms).
///
/// # Errors
/// `/proc/stat` cannot be read or has no such line.
///
/// # References
/// proc_stat(5).
pub fn machine() -> io::Result<MachineTimes> {
    machine_under(&Root::system())
}

/// Does as [`machine`], for these CPUs alone: a program that runs on two of sixty-four CPUs is not affected
/// by steal on the others.
///
/// # Errors
/// `/proc/stat` cannot be read or names none of them.
pub fn machine_of(cpus: &[usize]) -> io::Result<MachineTimes> {
    let text = Root::system().read("proc/stat")?;
    parse_cpus(&text, cpus).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("read /proc/stat: no line `cpuN` for any of CPUs {cpus:?}"),
        )
    })
}

/// Does as [`machine`] on another machine's files.
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

fn parse_machine(text: &str) -> Option<MachineTimes> {
    text.lines().find_map(|line| times(line.strip_prefix("cpu ")?))
}

/// Returns the sum of the lines of these CPUs.
fn parse_cpus(text: &str, cpus: &[usize]) -> Option<MachineTimes> {
    let line = |line: &str| {
        let (number, rest) = line.strip_prefix("cpu")?.split_once(' ')?;
        let number: usize = number.parse().ok()?;
        if cpus.contains(&number) { times(rest) } else { None }
    };
    text.lines().filter_map(line).reduce(MachineTimes::plus)
}

/// `user nice system idle iowait irq softirq steal guest guest_nice`; guest is part of user already.
fn times(line: &str) -> Option<MachineTimes> {
    let ticks: Vec<u64> = line.split_ascii_whitespace().map_while(|word| word.parse().ok()).take(8).collect();
    let [_user, _nice, _system, idle, iowait, ..] = ticks.as_slice() else { return None };
    let ns = |ticks: u64| ticks.saturating_mul(tick_ns());
    Some(MachineTimes {
        total_ns: ns(ticks.iter().fold(0, |sum: u64, t| sum.saturating_add(*t))),
        idle_ns: ns(idle.saturating_add(*iowait)),
        steal_ns: ticks.get(7).copied().map(ns),
    })
}

/// Returns the sum of all parts; unknown as soon as one part is, or when there are none.
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

/// Returns the number behind `name:` in a status file, without its unit.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{
        CpuSplit, MachineTimes, ProcessClock, carried_by, machine_under, parse_cpus, read_clock, split,
        split_under, stat_ticks, threads_under,
    };
    use crate::root::Fixture;
    use std::hint::black_box;
    use std::io::ErrorKind;
    use std::process::{Child, Command};
    use std::time::Duration;

    /// A process that ends with this value, also where a test fails.
    struct Sleeper(Child);

    impl Sleeper {
        fn start() -> Sleeper {
            Sleeper(Command::new("sleep").arg("1000").spawn().unwrap())
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Uses CPU time until this thread's own clock has advanced by `time`, and returns by how much it did.
    fn burn(time: Duration) -> Duration {
        let start = read_clock(libc::CLOCK_THREAD_CPUTIME_ID).unwrap();
        let mut work = 1_u64;
        loop {
            for _ in 0..10_000 {
                work = black_box(work.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
            }
            let used = read_clock(libc::CLOCK_THREAD_CPUTIME_ID).unwrap() - start;
            if used >= time {
                return used;
            }
        }
    }

    /// Compares CPU clocks only: the process has used at least the time of its threads, however long the test
    /// waits.
    #[test]
    fn a_finished_threads_time_stays_in_the_process_clock() {
        let clocks = [ProcessClock::own(), ProcessClock::of(std::process::id()).unwrap()];
        for clock in clocks {
            let before = clock.read().unwrap();
            let used = std::thread::spawn(|| burn(Duration::from_millis(20))).join().unwrap();
            let grown = clock.read().unwrap() - before;
            assert!(grown >= used, "{grown:?} for a thread that used {used:?}");
        }
    }

    #[test]
    fn the_clock_of_another_process_is_its_own() {
        let child = Sleeper::start();
        let clock = ProcessClock::of(child.0.id()).unwrap();
        let before = clock.read().unwrap();
        let used = burn(Duration::from_millis(50));
        let grown = clock.read().unwrap() - before;
        drop(child);
        assert!(grown < used, "a sleeping child used {grown:?} while we used {used:?}");
        assert_eq!(clock.read().unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn a_pid_that_is_none_is_refused() {
        assert_eq!(ProcessClock::of(0).unwrap_err().kind(), ErrorKind::InvalidInput);
        // The clock of 2^30 would be the caller's.
        for pid in [1 << 30, 1 << 29, u32::MAX] {
            assert_eq!(ProcessClock::of(pid).unwrap_err().kind(), ErrorKind::InvalidInput);
        }
        let error = ProcessClock::of(super::PID_MAX).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("of process 4194304"), "{error}");
        assert_eq!(split(super::PID_MAX).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn the_split_of_this_process_grows_with_its_work() {
        let pid = std::process::id();
        let before = split(pid).unwrap();
        let used = burn(Duration::from_millis(60)).as_nanos() as u64;
        let grown = split(pid).unwrap().since(&before);
        // Ticks of 10 ms, one of which may be cut off at each end of both figures.
        let ran = grown.user_ns.unwrap() + grown.sys_ns.unwrap();
        assert!(ran + 40_000_000 > used, "{ran} ns of {used}");
        assert!(grown.threads >= 1);
    }

    const STAT: &str = "7 (a (b) c) S 1 7 7 0 -1 4194560 1 2 3 4 150 25 9 9 20 0 2 0 100 1 1";

    #[test]
    fn threads_are_summed_and_the_process_line_gives_user_and_system() {
        let fixture = Fixture::of(&[
            ("proc/7/stat", STAT),
            ("proc/7/task/7/status", "voluntary_ctxt_switches:\t10\nnonvoluntary_ctxt_switches:\t3\n"),
            ("proc/7/task/7/schedstat", "500 40 5\n"),
            ("proc/7/task/9/status", "voluntary_ctxt_switches:\t1\nnonvoluntary_ctxt_switches:\t2\n"),
            ("proc/7/task/9/schedstat", "600 2 5\n"),
        ]);
        let split = split_under(&fixture.root, 7).unwrap();
        let tick = super::tick_ns();
        assert_eq!(
            split,
            CpuSplit {
                user_ns: Some(150 * tick),
                sys_ns: Some(25 * tick),
                wait_ns: Some(42),
                voluntary_switches: Some(11),
                involuntary_switches: Some(5),
                threads: 2,
            }
        );
        assert_eq!(split.switches(), Some(16));
    }

    /// A thread's directory that is there without its files is one that ended after it was listed.
    #[test]
    fn a_thread_that_ended_since_the_listing_is_passed_over() {
        let fixture = Fixture::of(&[
            ("proc/7/stat", STAT),
            ("proc/7/task/7/status", "voluntary_ctxt_switches:\t10\nnonvoluntary_ctxt_switches:\t3\n"),
            ("proc/7/task/7/schedstat", "500 40 5"),
            ("proc/7/task/8/gone", ""),
        ]);
        let split = split_under(&fixture.root, 7).unwrap();
        assert_eq!((split.threads, split.wait_ns, split.voluntary_switches), (1, Some(40), Some(10)));
    }

    #[test]
    fn what_a_kernel_hides_is_unknown_not_zero() {
        let without_sched_info = [
            ("proc/7/stat", "junk without a parenthesis"),
            ("proc/7/task/7/status", "Name:\tx\n"),
            ("proc/7/task/7/schedstat", "0 0 0\n"),
        ];
        for files in [&without_sched_info[..], &without_sched_info[..2], &without_sched_info[1..]] {
            let split = split_under(&Fixture::of(files).root, 7).unwrap();
            assert_eq!(split, CpuSplit { threads: 1, ..CpuSplit::default() });
        }
    }

    #[test]
    fn growth_that_cannot_be_told_is_unknown() {
        let then = CpuSplit { wait_ns: Some(50), user_ns: Some(1), ..CpuSplit::default() };
        let now = CpuSplit { wait_ns: Some(40), user_ns: Some(4), sys_ns: Some(4), threads: 3, ..then };
        let grown = now.since(&then);
        assert_eq!((grown.wait_ns, grown.user_ns, grown.sys_ns, grown.threads), (None, Some(3), None, 3));
    }

    #[test]
    fn stolen_time_is_a_share_of_all_time() {
        let at = |line: &str| machine_under(&Fixture::of(&[("proc/stat", line)]).root);
        let before = at("cpu  100 0 50 800 50 0 0 10 7 0\ncpu0 1 1 1 1\n").unwrap();
        let tick = super::tick_ns();
        assert_eq!(
            before,
            MachineTimes { total_ns: 1_010 * tick, idle_ns: 850 * tick, steal_ns: Some(10 * tick) }
        );
        let after = at("cpu  150 0 60 820 50 0 0 30 7 0\n").unwrap();
        assert_eq!(after.steal_share_since(&before), Some(0.2));
        assert_eq!(before.steal_share_since(&before), None, "no time has passed");
        // Before Linux 2.6.11 the line ended earlier.
        let old = at("cpu  150 0 60 820 50\n").unwrap();
        assert_eq!((old.steal_ns, old.steal_share_since(&before)), (None, None));
        for junk in ["", "cpu", "cpu  1 2 x", "intr 5"] {
            assert_eq!(at(junk).unwrap_err().kind(), ErrorKind::InvalidData, "{junk:?}");
        }
    }

    /// Three readings: the sum of both differences equals the difference of the first and the last.
    #[test]
    fn differences_add_up_and_an_unknown_part_makes_the_sum_unknown() {
        let at = |total_ns, idle_ns, steal_ns| MachineTimes { total_ns, idle_ns, steal_ns };
        let (first, second, third) = (at(100, 50, Some(5)), at(160, 48, Some(20)), at(200, 60, Some(30)));
        let (one, other) = (second.since(&first).unwrap(), third.since(&second).unwrap());
        assert_eq!(one, at(60, 0, Some(15)), "waiting for disks may go backwards");
        let sum = MachineTimes::ZERO.plus(one).plus(other);
        assert_eq!((sum.total_ns, sum.steal_ns, sum.steal_share()), (100, Some(25), Some(0.25)));
        assert_eq!(sum.steal_share(), third.steal_share_since(&first));
        assert_eq!(sum.plus(at(1, 0, None)).steal_share(), None);
        assert_eq!(first.since(&second), None, "all time does not go backwards");
    }

    #[test]
    fn a_programs_name_cannot_shift_the_fields_of_stat() {
        assert_eq!(stat_ticks(STAT), Some((150, 25)));
        for junk in ["", ")", "7 (x) S 1 2", "7 (x) S 1 7 7 0 -1 4194560 1 2 3 4 x 25"] {
            assert_eq!(stat_ticks(junk), None, "{junk:?}");
        }
    }

    #[test]
    fn of_many_cpus_those_asked_for_count_and_no_others() {
        let text = "cpu  300 0 0 500 0 0 0 200 0 0\ncpu0 100 0 0 100 0 0 0 0 0 0\ncpu1 100 0 0 0 0 0 0 100 0 0\n\
                    cpu10 100 0 0 400 0 0 0 100 0 0\nintr 5\n";
        let share = |cpus: &[usize]| parse_cpus(text, cpus).unwrap().steal_share().unwrap();
        assert_eq!((share(&[0]), share(&[1]), share(&[0, 1])), (0.0, 0.5, 0.25));
        assert_eq!(share(&[0, 1, 10]), 0.2, "all of them are the machine");
        assert_eq!(parse_cpus(text, &[2]), None);
        assert_eq!(parse_cpus(text, &[]), None);
    }

    #[test]
    fn threads_that_idle_carry_nothing() {
        let fixture = Fixture::of(&[
            ("proc/7/task/7/schedstat", "500 40 5\n"),
            ("proc/7/task/8/schedstat", "0 0 0\n"),
            ("proc/7/task/9/schedstat", "hidden"),
        ]);
        let threads = threads_under(&fixture.root, 7).unwrap();
        assert_eq!(threads.into_iter().collect::<Vec<_>>(), [(7, 500), (8, 0)]);
        assert_eq!(threads_under(&fixture.root, 8).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(carried_by([7, 7, 7, 7]), Some(4.0));
        assert_eq!(carried_by([1_000_000, 0, 0]), Some(1.0));
        let one_and_helpers = carried_by([1_000_000, 10, 10, 10]).unwrap();
        assert!((1.0..1.001).contains(&one_and_helpers), "{one_and_helpers}");
        assert_eq!(carried_by([]), None);
        assert_eq!(carried_by([0]), None);
    }
}
