//! `ringroad doctor` and the choice of a driver, on this machine and where io_uring is denied.
//!
//! What is denied is denied by a filter of the kernel's. Where this machine denies io_uring by itself, the
//! tests that need it to be there say so and end.

use crate::support::{BINARY, Outcome, ringroad, run};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};
use serde_json::{Value, json};
use std::process::{Command, Stdio};

const SETUP: i64 = libc::SYS_io_uring_setup;
const ENTER: i64 = libc::SYS_io_uring_enter;

fn machine() -> TargetArch {
    std::env::consts::ARCH.try_into().unwrap()
}

/// Runs a command under a filter.
fn under(program: &BpfProgram, command: &mut Command) -> Outcome {
    command.env_remove("RINGROAD_DRIVER").stdout(Stdio::piped()).stderr(Stdio::piped());
    // A filter holds for the thread that asked for it and what it starts; this thread ends here.
    std::thread::scope(|scope| {
        let filtered = scope.spawn(|| {
            seccompiler::apply_filter(program).unwrap();
            Outcome::from(command.spawn().unwrap().wait_with_output().unwrap())
        });
        filtered.join().unwrap()
    })
}

fn denial(action: SeccompAction, call: i64) -> BpfProgram {
    let rules = [(call, Vec::new())].into();
    SeccompFilter::new(rules, SeccompAction::Allow, action, machine()).unwrap().try_into().unwrap()
}

fn object(outcome: &Outcome) -> Value {
    serde_json::from_slice(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:?}"))
}

fn driver<'a>(object: &'a Value, name: &str) -> &'a Value {
    object["drivers"].as_array().unwrap().iter().find(|driver| driver["name"] == name).unwrap()
}

/// Whether io_uring can be used here; says why not.
fn has_io_uring() -> bool {
    let found = object(&run(ringroad(["doctor", "--json"]).env_remove("RINGROAD_DRIVER")));
    let io_uring = driver(&found, "io_uring");
    if io_uring["usable"] == false {
        eprintln!("skipped: no io_uring here: {}", io_uring["reason"]);
    }
    io_uring["usable"] == true
}

#[test]
fn the_object_has_every_field_of_its_schema_and_the_screen_says_the_same() {
    let outcome = run(ringroad(["doctor", "--json"]).env_remove("RINGROAD_DRIVER"));
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{outcome:?}");
    let found = object(&outcome);
    assert_eq!(found["schema"], "ringroad.doctor/1");
    for (field, right) in [
        ("kernel", found["kernel"].is_string()),
        ("chosen", found["chosen"].is_string()),
        ("limits", found["limits"]["nofile_hard"].is_u64() || found["limits"]["nofile_hard"] == "unlimited"),
        ("connections_max", found["connections_max"].is_u64()),
        ("opcodes", found["opcodes"].is_object()),
    ] {
        assert!(right, "{field}: {found:#}");
    }
    for driver in found["drivers"].as_array().unwrap() {
        assert!(driver["name"].is_string() && driver["usable"].is_boolean(), "{driver}");
        assert_eq!(driver["usable"] == false, driver["reason"].is_string(), "{driver}");
    }
    if driver(&found, "io_uring")["usable"] == true {
        assert_eq!((&found["opcodes"]["NOP"], &found["opcodes"]["RECV"]), (&json!(true), &json!(true)));
    }
    let screen = run(ringroad(["doctor"]).env_remove("RINGROAD_DRIVER"));
    let text = screen.text();
    assert_eq!(text.lines().next(), found["summary"].as_str(), "one line sums it up: {text}");
    assert_eq!(text.lines().next().unwrap().matches("; ").count(), 2, "{text}");
    let is_whole = text.lines().next().unwrap().ends_with("nothing to fix");
    assert_eq!(text.contains('→'), !is_whole, "an arrow stands where something is to be fixed: {text}");
    assert!(text.contains(found["kernel"].as_str().unwrap()), "{text}");
    assert!(text.contains(&format!("Driver  {}", found["chosen"].as_str().unwrap())), "{text}");
    assert!(text.lines().count() <= 40 && text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert!(!text.contains('\u{1b}'), "colours go to terminals only: {text:?}");
    let verbose = run(ringroad(["-v", "doctor"]).env_remove("RINGROAD_DRIVER")).text();
    assert_eq!(verbose.contains("SEND_ZC"), !found["opcodes"].as_object().unwrap().is_empty(), "{verbose}");
}

#[test]
fn where_io_uring_is_denied_the_doctor_names_cause_and_fix_and_continues() {
    if !has_io_uring() {
        return;
    }
    for (action, call, words) in [
        (SeccompAction::Errno(libc::EPERM as u32), SETUP, "Operation not permitted"),
        (SeccompAction::KillProcess, SETUP, "ends a process"),
        (SeccompAction::KillProcess, ENTER, "io_uring_enter"),
    ] {
        let filter = denial(action, call);
        let outcome = under(&filter, &mut ringroad(["doctor", "--json"]));
        assert_eq!(
            (outcome.code, outcome.stderr.as_str()),
            (Some(0), ""),
            "fallen back, not failed: {outcome:?}"
        );
        let found = object(&outcome);
        assert_eq!(found["chosen"], "epoll");
        let io_uring = driver(&found, "io_uring");
        assert_eq!(io_uring["usable"], false);
        let reason = io_uring["reason"].as_str().unwrap();
        assert!(reason.contains(words) && reason.contains("seccomp filter"), "{reason}");
        let screen = under(&filter, &mut ringroad(["doctor"])).text();
        assert!(screen.contains("✗ io_uring") && screen.contains("→"), "{screen}");
        let first = screen.lines().next().unwrap();
        assert!(
            first.starts_with("io_uring does not work, epoll is used; ") && first.contains("to fix"),
            "{first}"
        );
        let script = under(&filter, &mut ringroad(["doctor", "--fix-script"])).text();
        assert!(
            script.starts_with("#!/bin/sh\n") && script.contains("# io_uring cannot be used: "),
            "{script}"
        );

        let strict = under(&filter, &mut ringroad(["doctor", "-q", "--driver", "io_uring"]));
        assert_eq!((strict.code, strict.stdout.len()), (Some(2), 0), "{strict:?}");
        assert!(strict.stderr.starts_with("ringroad: --driver io_uring: "), "{strict:?}");
        let unmet = under(&filter, &mut ringroad(["doctor", "-q", "--require", "epoll,io_uring"]));
        assert_eq!(unmet.code, Some(1), "{unmet:?}");
        assert!(unmet.stderr.starts_with("ringroad: required io_uring: "), "{unmet:?}");

        // The verbs: a filter that ends a process which asks for a ring ends none here.
        let file = env!("CARGO_MANIFEST_PATH");
        let cat = under(&filter, &mut ringroad(["cat", file]));
        assert_eq!((cat.code, cat.stderr.lines().count()), (Some(0), 1), "{}", cat.stderr);
        assert_eq!(cat.stdout, std::fs::read(file).unwrap());
        let strict = under(&filter, &mut ringroad(["--driver", "uring", "cat", file]));
        assert_eq!((strict.code, strict.stdout.len()), (Some(2), 0), "{strict:?}");
        for model in ["engine-io_uring", "uring"] {
            let server = under(&filter, &mut ringroad(["lab", "server", "--model", model]));
            assert_eq!((server.code, server.stdout.len()), (Some(2), 0), "{server:?}");
            assert!(server.stderr.starts_with(&format!("ringroad: model {model}: io_uring: ")), "{server:?}");
        }
    }
}

#[test]
fn a_driver_is_named_before_or_after_the_verb_and_over_the_environment() {
    let chosen = |arguments: &[&str], variable: &str| {
        let outcome = run(ringroad(arguments).env("RINGROAD_DRIVER", variable));
        assert_eq!(outcome.code, Some(0), "{arguments:?} {variable}: {outcome:?}");
        object(&outcome)["chosen"].clone()
    };
    assert_eq!(chosen(&["doctor", "--json", "--driver", "epoll"], "io_uring"), "epoll");
    assert_eq!(chosen(&["--driver", "epoll", "doctor", "--json"], "auto"), "epoll");
    assert_eq!(chosen(&["doctor", "--json"], "epoll"), "epoll");
    for (arguments, variable) in
        [(&["doctor"][..], "kqueue"), (&["cat", "/dev/null"], "kqueue"), (&["doctor", "--driver", "sim"], "")]
    {
        let outcome = run(ringroad(arguments).env("RINGROAD_DRIVER", variable));
        assert_eq!((outcome.code, outcome.stdout.len()), (Some(2), 0), "{outcome:?}");
        assert!(outcome.stderr.contains("unknown driver"), "{outcome:?}");
        assert!(outcome.stderr.contains("io_uring, epoll"), "it says which there are: {outcome:?}");
    }
}

#[test]
fn what_is_required_is_met_or_named_and_what_is_not_known_is_bad_usage() {
    let require =
        |words: &str| run(ringroad(["doctor", "-q", "--require", words]).env_remove("RINGROAD_DRIVER"));
    let met = require("epoll,connections>=1,nofile>=16,kernel>=3.10");
    assert_eq!((met.code, met.stderr.as_str(), met.stdout.len()), (Some(0), "", 0), "{met:?}");
    let words =
        run(ringroad(["doctor", "--require", "epoll,nofile>=16,kernel>=99.1"]).env_remove("RINGROAD_DRIVER"));
    assert_eq!(
        (words.code, words.text().as_str()),
        (Some(1), "met: epoll\nmet: nofile>=16\n"),
        "no screen: {words:?}"
    );
    let unmet = require("epoll,connections>=18446744073709551615,kernel>=99.1");
    assert_eq!((unmet.code, unmet.stderr.lines().count()), (Some(1), 2), "{unmet:?}");
    assert!(unmet.stderr.contains("required connections>=18446744073709551615: it is "), "{unmet:?}");
    let unknown = require("epoll,speed>=9000");
    assert_eq!((unknown.code, unknown.stderr.lines().count()), (Some(2), 1), "{unknown:?}");
}

/// What a small container's profile lets through: what this program needs to start, to try drivers and to
/// tell.
const NEEDED: &[&str] = &[
    "accept4",
    "access",
    "arch_prctl",
    "bind",
    "brk",
    "clone",
    "clone3",
    "close",
    "connect",
    "dup",
    "dup2",
    "dup3",
    "vfork",
    "waitid",
    "epoll_create1",
    "epoll_ctl",
    "epoll_pwait",
    "epoll_wait",
    "eventfd2",
    "execve",
    "exit",
    "exit_group",
    "fcntl",
    "fstat",
    "futex",
    "getdents64",
    "getpid",
    "getrandom",
    "getsockname",
    "gettid",
    "ioctl",
    "listen",
    "lseek",
    "madvise",
    "memfd_create",
    "mmap",
    "mprotect",
    "munmap",
    "newfstatat",
    "openat",
    "pipe2",
    "poll",
    "ppoll",
    "prctl",
    "pread64",
    "prlimit64",
    "pselect6",
    "read",
    "readlink",
    "recvfrom",
    "rseq",
    "rt_sigaction",
    "rt_sigprocmask",
    "rt_sigreturn",
    "sched_getaffinity",
    "select",
    "sendto",
    "set_robust_list",
    "set_tid_address",
    "setitimer",
    "sigaltstack",
    "socket",
    "socketpair",
    "stat",
    "statx",
    "sysinfo",
    "tgkill",
    "uname",
    "wait4",
    "write",
    "writev",
];

/// Compiles a profile in Docker's form to the filter that runtimes make of it. Only what the profiles here
/// use: one default answer, and rules that allow.
fn compile(profile: &Value) -> BpfProgram {
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
    let rules = profile["syscalls"].as_array().unwrap();
    assert!(rules.iter().all(|rule| rule["action"] == "SCMP_ACT_ALLOW"));
    let names = rules.iter().flat_map(|rule| rule["names"].as_array().unwrap());
    let filter: Vec<Value> = names.map(|name| json!({ "syscall": name })).collect();
    let errno = &profile["defaultErrnoRet"];
    let thread = json!({ "mismatch_action": { "errno": errno }, "match_action": "allow", "filter": filter });
    let text = json!({ "all": thread }).to_string();
    let mut programs = seccompiler::compile_from_json(text.as_bytes(), machine()).unwrap();
    programs.remove("all").unwrap()
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_profile_that_went_through_the_doctor_lets_io_uring_work_in_the_container_it_makes() {
    if !has_io_uring() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profile.json");
    let before = json!({
        "defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": libc::EPERM,
        "syscalls": [{ "names": NEEDED, "action": "SCMP_ACT_ALLOW" }],
    });
    std::fs::write(&path, before.to_string()).unwrap();
    let refused = object(&under(&compile(&before), &mut ringroad(["doctor", "--json"])));
    assert_eq!(driver(&refused, "io_uring")["usable"], false);
    assert_eq!(refused["chosen"], "epoll");

    let mut doctor = ringroad(["doctor", "--seccomp"]);
    let outcome = run(doctor.arg(&path));
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{outcome:?}");
    let after = object(&outcome);
    assert_eq!(after["syscalls"][0], before["syscalls"][0], "what was allowed stays");
    let allowed = object(&under(&compile(&after), &mut ringroad(["doctor", "--json"])));
    assert_eq!(driver(&allowed, "io_uring")["reason"], Value::Null);
    assert_eq!(allowed["chosen"], "io_uring");
}

#[test]
fn what_is_no_profile_is_refused_with_the_file_it_is_not_in() {
    let refused = |arguments: &[&str]| {
        let outcome = run(&mut ringroad(arguments));
        assert_eq!((outcome.code, outcome.stdout.len()), (Some(1), 0), "{outcome:?}");
        outcome.stderr
    };
    assert!(refused(&["doctor", "--seccomp", BINARY]).contains("ringroad"));
    assert!(refused(&["doctor", "--seccomp", "/nowhere"]).contains("/nowhere: No such file"));
    assert!(refused(&["doctor", "--seccomp", "-"]).contains("standard input"));
}
