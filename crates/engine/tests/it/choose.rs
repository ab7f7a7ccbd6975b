//! Choice of a driver where io_uring is forbidden, in each of the ways that exist: by an errno, by a signal
//! that kills, by no answer, by a limit. Each runs in a separate process, because a filter cannot be removed
//! and a trial is not repeated.
//!
//! The denials are real, beneath the code: seccomp filters, as containers have them. `cargo xtask denied`
//! runs the whole suite under such filters.

use crate::support::Case;
use ringroad_engine::choose::{self, Obstacle, Unusable, Wish};
use ringroad_engine::net::{TcpListener, TcpStream};
use ringroad_engine::time::sleep;
use ringroad_engine::workers::Workers;
use ringroad_engine::{DriverName, Runtime};
use ringroad_host::process::tie_to_parent;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const SETUP: i64 = libc::SYS_io_uring_setup;
const ENTER: i64 = libc::SYS_io_uring_enter;
const REGISTER: i64 = libc::SYS_io_uring_register;

/// The role of a child.
const ROLE: &str = "RINGROAD_TEST_DENIED";

/// The answer to a call, as a seccomp filter returns it (seccomp(2)).
const fn errno(number: i32) -> u32 {
    libc::SECCOMP_RET_ERRNO | number as u32
}

/// Denies `calls` to this thread and to its later children. With `listen`, a thread that makes such a call
/// waits for an answer that never comes; the descriptor for the answer stays open until the end.
fn deny(calls: &[i64], action: u32, listen: bool) {
    let statement = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
    let mut program = vec![statement((libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, 0)];
    for (index, call) in calls.iter().enumerate() {
        // Jumps to the last but one: past the other comparisons and the "allow".
        let jt = (calls.len() - index) as u8;
        let code = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        program.push(libc::sock_filter { code, jt, jf: 0, k: *call as u32 });
    }
    let end = (libc::BPF_RET | libc::BPF_K) as u16;
    program.extend([statement(end, libc::SECCOMP_RET_ALLOW), statement(end, action)]);
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    let flags = if listen { libc::SECCOMP_FILTER_FLAG_NEW_LISTENER } else { 0 };
    // SAFETY: a live program of `len` instructions, which the kernel copies; the other arguments are numbers.
    let answer = unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const filter)
    };
    assert!(answer >= 0, "{}", std::io::Error::last_os_error());
}

/// Starts this test again, in a separate process that plays `role`.
fn again(test: &str, role: &str) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(ROLE, role);
    command.env_remove(choose::VARIABLE);
    tie_to_parent(&mut command).output().unwrap()
}

fn passed(output: &Output, about: &str) {
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(
        output.status.success() && stdout.contains("1 passed"),
        "{about}: {}\n{stdout}{stderr}",
        output.status
    );
}

/// Makes a connection and exchanges a byte: the driver works.
fn works(driver: DriverName) {
    let runtime = Runtime::builder(driver).build().unwrap();
    let exchanged = runtime.block_on(async {
        let mut listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut server = listener.accept().await.unwrap();
        client.write_all(b"!".to_vec()).await.0.unwrap();
        server.recv().await.unwrap().to_vec()
    });
    assert_eq!(exchanged.unwrap(), b"!");
}

const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;

/// The way, the action, and what the reason must contain.
const WAYS: [(&str, u32, &str); 6] = [
    ("EPERM", errno(libc::EPERM), "Operation not permitted"),
    ("ENOSYS", errno(libc::ENOSYS), "Function not implemented"),
    ("EINVAL", errno(libc::EINVAL), "Invalid argument"),
    ("KILL", KILL, "ends a process"),
    ("KILL_THREAD", libc::SECCOMP_RET_KILL_THREAD, "ends a process"),
    ("TRAP", libc::SECCOMP_RET_TRAP, "ends a process"),
];

/// The denied calls, and the one that is made first.
const CALLS: [(&str, &[i64], &str); 3] = [
    ("all", &[SETUP, ENTER, REGISTER], "io_uring_setup"),
    ("enter", &[ENTER], "io_uring_enter"),
    ("register", &[REGISTER], "io_uring_register"),
];

#[test]
fn wherever_io_uring_is_denied_auto_goes_on_with_epoll_and_a_named_io_uring_is_refused() {
    const TEST: &str =
        "choose::wherever_io_uring_is_denied_auto_goes_on_with_epoll_and_a_named_io_uring_is_refused";
    if let Ok(role) = std::env::var(ROLE) {
        let (way, calls) = role.split_once(' ').unwrap();
        let (_, action, words) = WAYS.into_iter().find(|(name, ..)| *name == way).unwrap();
        let (_, denied, call) = CALLS.into_iter().find(|(name, ..)| *name == calls).unwrap();
        deny(denied, action, false);

        let choice = choose::choose(None, None).unwrap();
        assert_eq!(choice.driver(), DriverName::Epoll);
        let [refusal] = choice.refused() else { panic!("{choice}") };
        assert_eq!(
            (refusal.driver, refusal.obstacle),
            (DriverName::IoUring, Obstacle::Forbidden),
            "{refusal}"
        );
        for word in [call, words, "seccomp filter"] {
            assert!(refusal.reason.contains(word), "no {word:?} in: {refusal}");
        }
        assert!(refusal.fix.is_some(), "{refusal}");
        works(choice.driver());

        let error = choose::choose(Some(Wish::Named(DriverName::IoUring)), None).unwrap_err();
        assert!(matches!(&error, Unusable::Named(_, same) if same == refusal), "{error}");
        assert_eq!(choose::may_make_rings().unwrap_err(), refusal);
        return;
    }
    if Case::IoUring.is_refused() {
        return;
    }
    for (way, ..) in WAYS {
        for (calls, ..) in CALLS {
            let role = format!("{way} {calls}");
            passed(&again(TEST, &role), &role);
        }
    }
}

/// An old filter answers unknown calls with EPERM or ENOSYS, and epoll uses the older call. Or it ends the
/// process, which is then the trial's child.
#[test]
fn a_filter_from_before_the_newer_wait_of_epoll_ends_no_wait_and_no_process() {
    const TEST: &str = "choose::a_filter_from_before_the_newer_wait_of_epoll_ends_no_wait_and_no_process";
    if let Ok(way) = std::env::var(ROLE) {
        let (_, action, _) = WAYS.into_iter().find(|(name, ..)| *name == way).unwrap();
        deny(&[libc::SYS_epoll_pwait2], action, false);
        let wish = Some(Wish::Named(DriverName::Epoll));
        if way.starts_with("KILL") {
            let error = choose::choose(wish, None).unwrap_err().to_string();
            assert!(error.contains("ends a process"), "{error}");
            return;
        }
        works(choose::choose(wish, None).unwrap().driver());
        let runtime = Runtime::builder(DriverName::Epoll).build().unwrap();
        // With a timer, the wait has a timeout.
        runtime.block_on(sleep(Duration::from_millis(2))).unwrap();
        return;
    }
    for way in ["EPERM", "ENOSYS", "KILL"] {
        passed(&again(TEST, way), way);
    }
}

#[test]
fn a_sandbox_that_never_answers_is_a_refusal() {
    if std::env::var(ROLE).is_err() {
        if Case::IoUring.is_refused() {
            return;
        }
        let output = again("choose::a_sandbox_that_never_answers_is_a_refusal", "silence");
        return passed(&output, "silence");
    }
    deny(&[ENTER], libc::SECCOMP_RET_USER_NOTIF, true);
    let refusal = choose::probe(DriverName::IoUring).unwrap_err();
    assert_eq!(refusal.obstacle, Obstacle::Broken, "{refusal}");
    assert!(refusal.reason.contains("io_uring_enter did not answer"), "{refusal}");
    works(choose::choose(None, None).unwrap().driver());
}

/// Returns whether a test can raise the limit of locked memory to this: without rights it cannot.
fn may_lock(memory: u64) -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a live limit, which the call fills.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit), 0);
        libc::geteuid() == 0 || limit.rlim_max >= memory
    }
}

/// Drops all rights of this process, and sets its limit of locked memory. The kernel counts for each user,
/// and no process of another test has this user's number. A user other than root stays the same.
fn become_another_user(user: u32, memory: u64) {
    let limit = libc::rlimit { rlim_cur: memory, rlim_max: memory };
    // SAFETY: a live limit, and numbers.
    unsafe {
        assert_eq!(libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit), 0);
        if libc::geteuid() == 0 {
            assert_eq!(libc::setgroups(0, std::ptr::null()), 0);
            assert_eq!(libc::setresgid(user, user, user), 0);
            assert_eq!(libc::setresuid(user, user, user), 0);
        }
    }
}

#[test]
fn where_the_rings_of_all_workers_find_no_memory_all_workers_begin_on_epoll() {
    const WORKERS: usize = 16;
    // Enough for a trial, and for one or two rings.
    const MEMORY: u64 = 64 << 10;
    if std::env::var(ROLE).is_err() {
        if !may_lock(MEMORY) {
            return eprintln!("skipped: a process may lock too little memory here");
        }
        let output = again(
            "choose::where_the_rings_of_all_workers_find_no_memory_all_workers_begin_on_epoll",
            "little memory",
        );
        return passed(&output, "little memory");
    }
    become_another_user(61_001, MEMORY);
    let first = choose::choose(None, None).unwrap();
    let begun = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&begun);
    let crew = Workers::new(WORKERS).start(move |_| {
        let count = Arc::clone(&count);
        async move { count.fetch_add(1, Ordering::Relaxed) }
    });
    assert_eq!(crew.unwrap().join().unwrap().len(), WORKERS);
    assert_eq!(begun.load(Ordering::Relaxed), WORKERS, "no body began in vain");
    let choice = choose::driver_info().unwrap();
    if first.driver() != DriverName::IoUring || choice.driver() == DriverName::IoUring {
        eprintln!("io_uring cannot be used here, or its rings are not counted as locked memory: {choice}");
        return;
    }
    assert_eq!(choice.driver(), DriverName::Epoll, "{choice}");
    let [refusal] = choice.refused() else { panic!("{choice}") };
    assert_eq!(refusal.obstacle, Obstacle::Limited, "{refusal}");
    assert!(refusal.reason.contains("may lock 64 KiB") && refusal.fix.is_some(), "{refusal}");
    // One runtime fits, even if the memory of earlier ones is still counted.
    works(Runtime::auto().unwrap().driver().unwrap());
}

#[test]
fn without_locked_memory_auto_falls_back_to_epoll_with_the_reason() {
    if std::env::var(ROLE).is_err() {
        let output =
            again("choose::without_locked_memory_auto_falls_back_to_epoll_with_the_reason", "memlock");
        return passed(&output, "memlock");
    }
    become_another_user(65534, 0);
    let choice = choose::choose(None, None).unwrap();
    if let [refusal] = choice.refused()
        && refusal.obstacle == Obstacle::Forbidden
    {
        eprintln!("io_uring is forbidden here before its memory is counted: {refusal}");
        assert_eq!(choice.driver(), DriverName::Epoll, "{choice}");
        return works(choice.driver());
    }
    // Checks whether this kernel counts rings as locked memory at all, with a set-up of eight entries.
    let mut parameters = [0u64; 15];
    // SAFETY: `io_uring_params` is 120 bytes of integers; a descriptor it returns ends with this process.
    let ring = unsafe { libc::syscall(SETUP, 8, parameters.as_mut_ptr()) };
    if ring >= 0 {
        eprintln!("this kernel (such as 6.1) does not count rings as locked memory");
        assert_eq!(choice.driver(), DriverName::IoUring, "{choice}");
        return works(choice.driver());
    }
    assert_eq!(choice.driver(), DriverName::Epoll, "{choice}");
    let [refusal] = choice.refused() else { panic!("{choice}") };
    assert_eq!(refusal.obstacle, Obstacle::Limited, "{refusal}");
    assert!(refusal.reason.contains("may lock 0 KiB") && refusal.fix.is_some(), "{refusal}");
    works(choice.driver());
}

/// A process under this filter dies at the first call of io_uring, and its children inherit the filter, but a
/// trial's child dies alone. So this shows that the trial is needed: with it the driver is refused, without
/// it the process is killed. It also shows that a named driver runs without a trial, and without io_uring.
#[test]
fn no_other_driver_ever_touches_io_uring() {
    const TEST: &str = "choose::no_other_driver_ever_touches_io_uring";
    match std::env::var(ROLE).as_deref() {
        Ok("io_uring") => {
            deny(&[SETUP], KILL, false);
            let _ = Runtime::builder(DriverName::IoUring).build();
            unreachable!("the filter ends whoever makes a ring");
        }
        Ok(name) => {
            deny(&[SETUP, ENTER, REGISTER], KILL, false);
            let driver: DriverName = name.parse().unwrap();
            let choice = choose::choose(Some(Wish::Named(driver)), None).unwrap();
            assert!(choice.refused().is_empty() && choice.driver() == driver, "{choice}");
            works(driver);
        }
        Err(_) => {
            if !Case::IoUring.is_refused() {
                let output = again(TEST, "io_uring");
                assert_eq!(
                    output.status.signal(),
                    Some(libc::SIGSYS),
                    "the filter denies nothing: {}",
                    output.status
                );
            }
            for driver in choose::drivers().filter(|driver| *driver != DriverName::IoUring) {
                passed(&again(TEST, driver.as_str()), driver.as_str());
            }
        }
    }
}

/// The environment variable names the driver if the command line does not. An invalid name is reported.
#[test]
fn the_environment_is_heard_and_the_command_line_is_heard_first() {
    const TEST: &str = "choose::the_environment_is_heard_and_the_command_line_is_heard_first";
    if let Ok(role) = std::env::var(ROLE) {
        let choice = choose::driver_info();
        if role == "nonsense" {
            let error = choice.unwrap_err().to_string();
            assert!(error.starts_with("RINGROAD_DRIVER: unknown driver"), "{error}");
        } else {
            let info = choice.unwrap();
            assert_eq!(
                (info.driver(), info.why().as_str()),
                (DriverName::Epoll, "as asked (RINGROAD_DRIVER)")
            );
        }
        let wish = Some(Wish::Named(DriverName::Epoll));
        assert_eq!(choose::choose(wish, None).unwrap().why(), "as asked on the command line");
        assert_eq!(
            choose::driver_info().unwrap().why(),
            "as asked on the command line",
            "the last choice is told"
        );
        return;
    }
    for word in ["epoll", "nonsense"] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", TEST, "--nocapture"]).env(ROLE, word).env(choose::VARIABLE, word);
        passed(&tie_to_parent(&mut command).output().unwrap(), word);
    }
}
