//! System calls of a process, counted by the kernel: `perf_event_open(2)` on `raw_syscalls:sys_enter`.
//!
//! While any counter is open, *every* process of the machine takes the kernel's slower system-call path.
//! Count in a separate window, never in the window in which CPU time is measured. Start at [`Counter`].

use crate::root::Root;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::FromRawFd;

/// Counts system calls entered by all tasks of a process, later threads and children included, from
/// [`Counter::attach`] on.
#[derive(Debug)]
pub struct Counter {
    /// One event per task that lived at attach; each also counts what that task starts later.
    events: Vec<File>,
}

/// Listings of a process that starts threads all the time differ for ever; this many tries then suffice to
/// say so.
const ATTEMPTS: u32 = 20;

impl Counter {
    /// Starts counting. Attach when the process is ready and before the load: with threads starting at that
    /// very moment it tries again, and gives up with `ResourceBusy`.
    ///
    /// # Errors
    /// `NotFound` for no such process, or no such tracepoint; `PermissionDenied` with what would allow it;
    /// `Unsupported` for a kernel without perf events.
    pub fn attach(pid: u32) -> io::Result<Self> {
        let root = Root::system();
        let tracepoint = tracepoint(&root)?;
        for _ in 0..ATTEMPTS {
            let before = tasks(&root, pid)?;
            let events = before
                .iter()
                .filter_map(|task| open(*task, tracepoint).transpose())
                .collect::<io::Result<Vec<File>>>()?;
            // A task that is new now was either started by one we follow, and is counted, or by one we did
            // not follow yet, and is not. Nothing tells which, so the set must have stood still.
            if tasks(&root, pid)?.iter().all(|task| before.contains(task)) {
                return Ok(Counter { events });
            }
        }
        Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            format!(
                "count system calls of process {pid}: it starts threads without pause; attach before the load"
            ),
        ))
    }

    /// Returns the system calls entered since attach.
    ///
    /// # Errors
    /// The kernel's error from reading an event.
    pub fn read(&self) -> io::Result<u64> {
        let mut total = 0_u64;
        for event in &self.events {
            let mut count = [0; 8];
            let mut event: &File = event;
            event.read_exact(&mut count)?;
            total = total.wrapping_add(u64::from_ne_bytes(count));
        }
        Ok(total)
    }
}

/// The first 64 bytes of `struct perf_event_attr` (include/uapi/linux/perf_event.h, PERF_ATTR_SIZE_VER0): the
/// kernel takes any published size and reads the rest as zero.
#[repr(C)]
#[derive(Default)]
struct PerfEventAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    config1: u64,
}

const _: () = assert!(size_of::<PerfEventAttr>() == 64);

const PERF_TYPE_TRACEPOINT: u32 = 2;
/// Bit 1 of the flags: threads and children started later are counted too.
const INHERIT: u64 = 1 << 1;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;

/// Opens the event on one task; `None` if the task has ended.
fn open(task: libc::pid_t, tracepoint: u64) -> io::Result<Option<File>> {
    let attr = PerfEventAttr {
        kind: PERF_TYPE_TRACEPOINT,
        size: size_of::<PerfEventAttr>() as u32,
        config: tracepoint,
        flags: INHERIT,
        ..PerfEventAttr::default()
    };
    let (any_cpu, no_group): (libc::c_int, libc::c_int) = (-1, -1);
    // SAFETY: `attr` lives across the call, has the size it states, and is only read by the kernel.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attr,
            task,
            any_cpu,
            no_group,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    if fd < 0 {
        let error = io::Error::last_os_error();
        return if error.raw_os_error() == Some(libc::ESRCH) {
            Ok(None)
        } else {
            Err(explain(&error, &Root::system()))
        };
    }
    // SAFETY: the kernel has just made this descriptor for us and nothing else knows it, so `File` is its one
    // owner and closes it once. It fits c_int, as every descriptor does.
    Ok(Some(unsafe { File::from_raw_fd(fd as libc::c_int) }))
}

fn tasks(root: &Root, pid: u32) -> io::Result<Vec<libc::pid_t>> {
    let names = root.names(format!("proc/{pid}/task"))?;
    Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
}

/// Returns the tracepoint's number, from tracefs or its older place under debugfs.
fn tracepoint(root: &Root) -> io::Result<u64> {
    let places = ["sys/kernel/tracing", "sys/kernel/debug/tracing"];
    let mut error = io::Error::from(io::ErrorKind::NotFound);
    for place in places {
        match root.read(format!("{place}/events/raw_syscalls/sys_enter/id")) {
            Ok(text) => {
                return text.trim().parse().map_err(|_| {
                    io::Error::new(
                        io::ErrorKind::InvalidData,
                        format!("/{place}: the id of raw_syscalls:sys_enter is no number"),
                    )
                });
            }
            // The first place where it exists but is closed tells more than the second where it is absent.
            Err(next) if error.kind() == io::ErrorKind::NotFound => error = next,
            Err(_) => {}
        }
    }
    let advice = if error.kind() == io::ErrorKind::PermissionDenied {
        "only root may look under /sys/kernel/tracing; run as root"
    } else {
        "mount it (mount -t tracefs none /sys/kernel/tracing, as root) or use a kernel with CONFIG_FTRACE_SYSCALLS"
    };
    Err(io::Error::new(
        error.kind(),
        format!("count system calls: no tracepoint raw_syscalls:sys_enter here ({advice})"),
    ))
}

/// Returns why the kernel refused, and what would allow it.
fn explain(error: &io::Error, root: &Root) -> io::Error {
    let advice = match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => match root.number::<i64>("proc/sys/kernel/perf_event_paranoid") {
            Some(level) => format!(
                "kernel.perf_event_paranoid is {level}; tracepoints of other processes need root, CAP_PERFMON, or \
                 kernel.perf_event_paranoid = -1, and a container's seccomp profile must allow perf_event_open"
            ),
            None => {
                "run as root or with CAP_PERFMON; a container's seccomp profile must allow perf_event_open"
                    .into()
            }
        },
        Some(libc::ENOSYS | libc::EOPNOTSUPP) => "this kernel was built without CONFIG_PERF_EVENTS".into(),
        Some(libc::ENOENT | libc::EINVAL) => {
            "this kernel knows the tracepoint but not as a perf event".into()
        }
        Some(libc::EMFILE) => {
            "one descriptor per thread is needed; raise the limit of open files (ulimit -n)".into()
        }
        _ => "see perf_event_open(2)".into(),
    };
    io::Error::new(error.kind(), format!("count system calls: perf_event_open: {error} ({advice})"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{Counter, explain, tracepoint};
    use crate::root::Fixture;
    use std::io::{self, BufRead, BufReader, ErrorKind, Write};
    use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

    /// A shell that waits for a line, then forks a subshell that reads `/dev/zero` byte by byte with `dd`:
    /// two system calls per byte, made by a process that did not exist at attach.
    struct Caller {
        child: Child,
        stdin: ChildStdin,
        stdout: BufReader<ChildStdout>,
    }

    impl Caller {
        fn start(bytes: u64) -> Self {
            let script = format!(
                "echo ready; read line; dd if=/dev/zero of=/dev/null bs=1 count={bytes} 2>/dev/null; echo done; read line"
            );
            let mut child = Command::new("sh")
                .args(["-c", &script])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let stdin = child.stdin.take().unwrap();
            let stdout = BufReader::new(child.stdout.take().unwrap());
            let mut caller = Caller { child, stdin, stdout };
            assert_eq!(caller.line(), "ready");
            caller
        }

        fn line(&mut self) -> String {
            let mut line = String::new();
            self.stdout.read_line(&mut line).unwrap();
            line.trim().to_owned()
        }

        fn go(&mut self) {
            self.stdin.write_all(b"go\n").unwrap();
            assert_eq!(self.line(), "done");
        }
    }

    impl Drop for Caller {
        fn drop(&mut self) {
            // Killed, not asked: it may stand at either of its reads.
            self.child.kill().ok();
            self.child.wait().ok();
        }
    }

    /// Attaches, or says on stderr why this machine does not allow it, having checked that the reason is
    /// given.
    fn attach(pid: u32) -> Option<Counter> {
        match Counter::attach(pid) {
            Ok(counter) => Some(counter),
            Err(error) => {
                let text = error.to_string();
                if error.kind() == ErrorKind::ResourceBusy {
                    // Happens only in this test process: its other tests start threads at any time.
                    eprintln!("nothing was counted: {text}");
                    return None;
                }
                assert!(text.starts_with("count system calls"), "{text}");
                assert!(text.contains("root") || text.contains("CONFIG_"), "no advice in: {text}");
                eprintln!("system calls are not counted here, so only the error was tested: {text}");
                None
            }
        }
    }

    #[test]
    fn calls_of_processes_started_later_are_counted_to_the_last() {
        const BYTES: u64 = 10_000;
        let mut caller = Caller::start(BYTES);
        let Some(counter) = attach(caller.child.id()) else { return };
        caller.go();
        let counted = counter.read().unwrap();
        // Starting `dd` and the shell's own lines cost some hundred calls.
        assert!((2 * BYTES..2 * BYTES + 2_000).contains(&counted), "{counted} for {} calls", 2 * BYTES);
    }

    /// Threads of this process, one alive at attach and one started later; other tests' calls make this a
    /// lower bound only.
    #[test]
    fn calls_of_living_and_later_threads_are_counted() {
        const CALLS: u64 = 5_000;
        // SAFETY: getppid takes nothing and cannot fail.
        let call = || (0..CALLS).for_each(|_| unsafe { assert!(libc::getppid() >= 0) });
        let (go, gone) = std::sync::mpsc::channel::<()>();
        let living = std::thread::spawn(move || {
            gone.recv().unwrap();
            call();
        });
        let counter = attach(std::process::id());
        go.send(()).unwrap();
        living.join().unwrap();
        std::thread::spawn(call).join().unwrap();
        if let Some(counter) = counter {
            let counted = counter.read().unwrap();
            assert!(counted >= 2 * CALLS, "{counted} for {}", 2 * CALLS);
        }
    }

    #[test]
    fn no_such_process_is_not_found() {
        if let Err(error) = Counter::attach(1 << 30) {
            assert!(matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied), "{error}");
        } else {
            panic!("counts a process that cannot exist");
        }
    }

    #[test]
    fn the_tracepoint_is_found_in_either_place() {
        for place in ["sys/kernel/tracing", "sys/kernel/debug/tracing"] {
            let path = format!("{place}/events/raw_syscalls/sys_enter/id");
            assert_eq!(tracepoint(&Fixture::of(&[(&path, "443\n")]).root).unwrap(), 443);
            assert_eq!(
                tracepoint(&Fixture::of(&[(&path, "x")]).root).unwrap_err().kind(),
                ErrorKind::InvalidData
            );
        }
        let error = tracepoint(&Fixture::of(&[]).root).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("mount -t tracefs"), "{error}");
    }

    #[test]
    fn a_refusal_says_what_would_allow_it() {
        let strict = Fixture::of(&[("proc/sys/kernel/perf_event_paranoid", "4\n")]);
        for errno in [libc::EACCES, libc::EPERM] {
            let error = explain(&io::Error::from_raw_os_error(errno), &strict.root);
            assert_eq!(error.kind(), ErrorKind::PermissionDenied);
            assert!(error.to_string().contains("kernel.perf_event_paranoid is 4"), "{error}");
        }
        let error = explain(&io::Error::from_raw_os_error(libc::ENOSYS), &strict.root);
        assert!(error.to_string().contains("CONFIG_PERF_EVENTS"), "{error}");
    }
}
