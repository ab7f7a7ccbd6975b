//! `cargo xtask deny` and `cargo xtask denied`: programs where io_uring is forbidden, or epoll's newer wait.
//!
//! `deny WAY CALLS COMMAND...` runs a command under a filter of the kernel's, as containers have it: WAY is
//! what the filter answers (EPERM, ENOSYS, EINVAL, KILL, TRAP), CALLS to which calls (`all`, `enter`,
//! `register` of io_uring; `pwait2` of epoll). WAY `memlock` lets it lock no memory instead, as user nobody.
//! `denied` runs the suites of all that stands on the engine so, each way; `denied WAY CALLS` one way;
//! `denied sample` what says most in a short time.

use crate::checked;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use std::cell::Cell;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// The same numbers on every architecture.
const SETUP: i64 = 425;
const ENTER: i64 = 426;
const REGISTER: i64 = 427;
const EPOLL_PWAIT2: i64 = 441;

const WAYS: [(&str, SeccompAction); 5] = [
    ("EPERM", SeccompAction::Errno(1)),
    ("ENOSYS", SeccompAction::Errno(38)),
    ("EINVAL", SeccompAction::Errno(22)),
    ("KILL", SeccompAction::KillProcess),
    ("TRAP", SeccompAction::Trap),
];

const CALLS: [(&str, &[i64]); 4] = [
    ("all", &[SETUP, ENTER, REGISTER]),
    ("enter", &[ENTER]),
    ("register", &[REGISTER]),
    ("pwait2", &[EPOLL_PWAIT2]),
];

/// Becomes the command, with io_uring denied.
pub(crate) fn deny(words: &[String]) -> ExitCode {
    let [way, calls, program, arguments @ ..] = words else {
        eprintln!("deny: a way, calls and a command are needed");
        return ExitCode::from(2);
    };
    let denied = if way == "memlock" { lock_nothing() } else { filter(way, calls) };
    if let Err(why) = denied {
        eprintln!("deny: {why}");
        return ExitCode::from(2);
    }
    let error = Command::new(program).args(arguments).exec();
    eprintln!("deny: {program}: {error}");
    ExitCode::from(127)
}

fn filter(way: &str, calls: &str) -> Result<(), String> {
    let names = |known: &[&str]| known.join(", ");
    let (_, action) = WAYS.into_iter().find(|(name, _)| *name == way).ok_or_else(|| {
        format!("no way {way:?} (there are: {}, memlock)", names(&WAYS.clone().map(|(name, _)| name)))
    })?;
    let (_, calls) = CALLS
        .into_iter()
        .find(|(name, _)| *name == calls)
        .ok_or_else(|| format!("no calls {calls:?} (there are: {})", names(&CALLS.map(|(name, _)| name))))?;
    let rules = calls.iter().map(|call| (*call, Vec::new())).collect();
    let machine = std::env::consts::ARCH.try_into().map_err(|why| format!("{why:?}"))?;
    let filter =
        SeccompFilter::new(rules, SeccompAction::Allow, action, machine).map_err(|why| why.to_string())?;
    let program: BpfProgram = filter.try_into().map_err(|why| format!("{why:?}"))?;
    seccompiler::apply_filter(&program).map_err(|why| why.to_string())
}

/// No locked memory, and the rights of user nobody: root is not held to the limit.
fn lock_nothing() -> Result<(), String> {
    use rustix::process::{Resource, Rlimit, setrlimit};
    use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Memlock, none).map_err(|why| format!("setrlimit: {why}"))?;
    if rustix::process::geteuid().is_root() {
        // Of this thread, which is the one that becomes the command.
        let (user, group) = (rustix::process::Uid::from_raw(65534), rustix::process::Gid::from_raw(65534));
        set_thread_groups(&[]).map_err(|why| format!("setgroups: {why}"))?;
        set_thread_res_gid(group, group, group).map_err(|why| format!("setresgid: {why}"))?;
        set_thread_res_uid(user, user, user).map_err(|why| format!("setresuid: {why}"))?;
    }
    Ok(())
}

/// What is tried: a package, and its folder.
const SUITES: [(&str, &str); 5] = [
    (ENGINE, "crates/engine"),
    ("ringroad-http", "crates/http"),
    ("ringroad-serve", "crates/serve"),
    ("ringroad-copy", "crates/copy"),
    ("ringroad-cli", "crates/cli"),
];

/// Parts of the names of tests that have a driver other than io_uring.
const OF_OTHER_DRIVERS: [&str; 4] = ["::epoll", "::poll", "::select", "::threads"];

/// The longest time for one test binary, in seconds. The longest takes a sixth of it on two cores.
const SECONDS_MAX: &str = "1200";

pub(crate) const ENGINE: &str = "ringroad-engine";

/// The suites under denials: all ways, a sample of them, or the one named. What is about io_uring itself says
/// why it is skipped; everything else passes.
pub(crate) fn denied(root: &Path, words: &[String]) -> ExitCode {
    let all = || SUITES.map(|(package, _)| package).to_vec();
    let ways: Vec<(&str, &str, Vec<&str>)> = match words {
        [] => {
            let of_rings = CALLS.iter().filter(|(_, calls)| *calls != [EPOLL_PWAIT2]);
            let of_rings = of_rings.map(|(calls, _)| *calls);
            let ways = WAYS.iter().flat_map(|(way, _)| of_rings.clone().map(move |calls| (*way, calls)));
            // Other answers to epoll's newer wait refuse epoll, which nearly every suite counts on.
            ways.chain([("EPERM", "pwait2"), ("memlock", "none")])
                .map(|(way, calls)| (way, calls, all()))
                .collect()
        }
        [sample] if sample == "sample" => {
            vec![("KILL", "all", vec![ENGINE]), ("EPERM", "enter", vec![ENGINE])]
        }
        [way, calls] => vec![(way, calls, all())],
        _ => {
            eprintln!("denied: nothing, `sample`, or a way and calls");
            return ExitCode::from(2);
        }
    };
    let is_sample = words.len() == 1;
    let mut failures = 0;
    for (nth, (way, calls, packages)) in ways.into_iter().enumerate() {
        println!("\n== denied: {way}, {calls}");
        // The first way kills whatever makes a call of io_uring: another answer to a call that they do not
        // make changes nothing for the other drivers.
        let skipped: &[&str] = if is_sample && nth > 0 { &OF_OTHER_DRIVERS } else { &[] };
        for package in packages {
            match test_binaries(root, package) {
                Ok(binaries) => {
                    for binary in &binaries {
                        failures += usize::from(!run(root, (way, calls), package, binary, skipped));
                    }
                }
                Err(why) => {
                    eprintln!("denied: {package}: {why}");
                    return ExitCode::FAILURE;
                }
            }
        }
    }
    println!("\ndenied: {failures} failed");
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(root: &Path, (way, calls): (&str, &str), package: &str, binary: &str, skipped: &[&str]) -> bool {
    let Ok(this) = std::env::current_exe() else { return false };
    let folder = SUITES.iter().find(|(known, _)| *known == package).map_or("", |(_, folder)| folder);
    // A test that hangs is a failure here, and not the end of everything behind it.
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", SECONDS_MAX]).arg(this).args(["deny", way, calls, binary]);
    // The driver's own tests need a ring; the simulation, which no filter touches, is run elsewhere.
    command.args(["--skip", "driver::uring::", "--skip", "::sim", "--skip", "seeds::"]);
    command.args(skipped.iter().flat_map(|part| ["--skip", part]));
    if package == ENGINE {
        // Most of these wait most of the time.
        let threads = 3 * std::thread::available_parallelism().map_or(1, usize::from);
        command.args(["--test-threads", &threads.to_string()]);
    }
    command.current_dir(root.join(folder)).stdout(Stdio::piped());
    // Of a test that fails, what it has printed as well: that stands behind all tests.
    let fails = Cell::new(false);
    let shown = |line: &str| {
        fails.set(fails.get() || line == "failures:");
        fails.get() || line.starts_with("test result") || line.contains("FAILED")
    };
    match checked::follow(&mut command, shown, &mut |_| ()) {
        Ok((status, passed)) if status.success() && passed > 0 => true,
        // A package may have no tests inside.
        Ok((status, 0)) if status.success() && package != ENGINE => true,
        Ok((status, _)) => {
            eprintln!("denied: {binary}: {status}");
            false
        }
        Err(error) => {
            eprintln!("denied: {binary}: {error}");
            false
        }
    }
}

/// The test binaries of a package, built. The whole workspace is built, with the features that all of it
/// needs together, so that nothing is compiled again that `cargo xtask test` has compiled.
pub(crate) fn test_binaries(root: &Path, package: &str) -> Result<Vec<String>, String> {
    let manifest = SUITES.iter().find(|(known, _)| *known == package);
    let manifest = manifest.and_then(|(_, folder)| root.join(folder).join("Cargo.toml").canonicalize().ok());
    let output = Command::new(env!("CARGO"))
        .current_dir(root)
        .args(["test", "--workspace", "--no-run", "--message-format", "json"])
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo: {error}"))?;
    if !output.status.success() {
        return Err("the tests do not build".to_owned());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let binaries: Vec<String> = messages
        .filter(|message| message["profile"]["test"] == true)
        .filter(|message| message["manifest_path"].as_str().map(Path::new) == manifest.as_deref())
        .filter_map(|message| message["executable"].as_str().map(str::to_owned))
        .collect();
    if binaries.is_empty() { Err("no test binary was built".to_owned()) } else { Ok(binaries) }
}
