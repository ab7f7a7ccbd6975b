//! `cargo xtask deny` and `cargo xtask denied`: programs under a filter that denies io_uring, or epoll's
//! newer wait.
//!
//! `deny WAY CALLS COMMAND...` runs a command under a seccomp filter, as containers do. WAY is the filter's
//! answer (EPERM, ENOSYS, EINVAL, KILL, TRAP), CALLS the denied calls (`all`, `enter`, `register` of
//! io_uring; `pwait2` of epoll). WAY `memlock` lets it lock no memory instead, as user nobody. `denied` runs
//! the engine's suite under each denial, and the suites of the crates above it with a filter that kills or
//! answers EPERM to io_uring. `denied WAY CALLS` runs all suites under one denial; `denied sample` runs the
//! most informative ones in a short time.

use crate::{checked, junit, test};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use std::cell::Cell;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// System call numbers, equal on every architecture.
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

/// Replaces this process by the command, with io_uring denied.
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

/// Sets the limit of locked memory to 0, and root becomes user nobody: the limit does not apply to root.
fn lock_nothing() -> Result<(), String> {
    use rustix::process::{Resource, Rlimit, setrlimit};
    use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Memlock, none).map_err(|why| format!("setrlimit: {why}"))?;
    if rustix::process::geteuid().is_root() {
        // Only for this thread, which becomes the command.
        let (user, group) = (rustix::process::Uid::from_raw(65534), rustix::process::Gid::from_raw(65534));
        set_thread_groups(&[]).map_err(|why| format!("setgroups: {why}"))?;
        set_thread_res_gid(group, group, group).map_err(|why| format!("setresgid: {why}"))?;
        set_thread_res_uid(user, user, user).map_err(|why| format!("setresuid: {why}"))?;
    }
    Ok(())
}

/// The tested packages, and their folders. The engine has its tests in a package of their own, in a folder
/// below its own.
const SUITES: [(&str, &str); 5] = [
    (ENGINE, "crates/engine"),
    ("ringroad-http", "crates/http"),
    ("ringroad-serve", "crates/serve"),
    ("ringroad-copy", "crates/copy"),
    ("ringroad-cli", "crates/cli"),
];

/// Parts of the names of tests on drivers other than io_uring.
const OF_OTHER_DRIVERS: &[&str] = &["::epoll", "::poll", "::select", "::threads"];

/// Parts of the names of tests on drivers that make the calls of epoll but for the wait.
const LIKE_EPOLL: &[&str] = &["::poll", "::select"];

/// Time limit for one test binary, in seconds. The longest takes a sixth of it on two cores.
const SECONDS_MAX: &str = "1200";

pub(crate) const ENGINE: &str = "ringroad-engine";

/// A denial, and the suites that run under it.
#[derive(Debug, PartialEq)]
struct Denial<'w> {
    way: &'w str,
    calls: &'w str,
    packages: Vec<&'static str>,
    /// Parts of the names of tests that do not run.
    left_out: &'static [&'static str],
}

/// Returns the denials that the words of the command line name; `None` if they name none.
///
/// The first way kills every caller of io_uring. Other answers to calls of io_uring do not affect the other
/// drivers, nor the crates above the engine, because the engine handles those answers. Containers answer
/// EPERM.
fn plan(words: &[String]) -> Option<Vec<Denial<'_>>> {
    let all = || SUITES.map(|(package, _)| package).to_vec();
    let denial = |way, calls, packages, left_out| Denial { way, calls, packages, left_out };
    match words {
        [] => {
            let mut plan =
                vec![denial("KILL", "all", all(), &[]), denial("EPERM", "all", all(), OF_OTHER_DRIVERS)];
            for (way, _) in WAYS {
                for (calls, numbers) in CALLS {
                    let is_new = plan.iter().all(|one| (one.way, one.calls) != (way, calls));
                    if is_new && numbers != [EPOLL_PWAIT2] {
                        plan.push(denial(way, calls, vec![ENGINE], OF_OTHER_DRIVERS));
                    }
                }
            }
            // Other answers to epoll's newer wait disable epoll, which nearly every suite needs.
            plan.push(denial("EPERM", "pwait2", vec![ENGINE, "ringroad-http"], &[]));
            plan.push(denial("memlock", "none", vec![ENGINE], &[]));
            Some(plan)
        }
        [sample] if sample == "sample" => Some(vec![
            denial("KILL", "all", vec![ENGINE], LIKE_EPOLL),
            denial("EPERM", "enter", vec![ENGINE], OF_OTHER_DRIVERS),
        ]),
        // The program's tests start built files, in folders that an account without rights may not be able to
        // enter.
        [way, calls] if way == "memlock" => Some(vec![denial(way, calls, vec![ENGINE], &[])]),
        [way, calls] => Some(vec![denial(way, calls, all(), &[])]),
        _ => None,
    }
}

/// Runs the suites under denials: all, a sample, or the named one. Tests of io_uring itself print why they
/// are skipped; all others must pass.
pub(crate) fn denied(root: &Path, words: &[String]) -> ExitCode {
    let Some(plan) = plan(words) else {
        eprintln!("denied: nothing, `sample`, or a way and calls");
        return ExitCode::from(2);
    };
    let mut failures = 0;
    for denial in &plan {
        let begun = Instant::now();
        println!("\n== denied: {}, {}", denial.way, denial.calls);
        // Each test of the others in its own process, many at a time, because most of them wait. An account
        // without rights cannot run cargo.
        let by_nextest = denial.way != "memlock" && test::has_nextest(root);
        let (apart, together): (Vec<_>, Vec<_>) =
            denial.packages.iter().partition(|package| by_nextest && **package != ENGINE);
        for package in together {
            match test_binaries(root, package) {
                Ok(binaries) => {
                    for binary in &binaries {
                        failures += usize::from(!run(root, denial, package, binary));
                    }
                }
                Err(why) => {
                    eprintln!("denied: {package}: {why}");
                    return ExitCode::FAILURE;
                }
            }
        }
        failures += usize::from(!apart.is_empty() && !each_apart(root, denial, &apart));
        println!("denied: {}, {}: {} s", denial.way, denial.calls, begun.elapsed().as_secs());
    }
    println!("\ndenied: {failures} failed");
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the tests of packages, each in its own process.
fn each_apart(root: &Path, denial: &Denial<'_>, packages: &[&'static str]) -> bool {
    let Ok(this) = std::env::current_exe() else { return false };
    let packages: Vec<_> = packages.iter().map(|package| format!("package({package})")).collect();
    let mut filter = format!("({}) - test(/::sim$/)", packages.join(" | "));
    if !denial.left_out.is_empty() {
        filter.push_str(&format!(" - test(/({})(::|$)/)", denial.left_out.join("|")));
    }
    let mut command = Command::new(this);
    command.args(["deny", denial.way, denial.calls, env!("CARGO")]).current_dir(root);
    command.args(["nextest", "run", "--workspace", "--no-fail-fast", "-E", &filter]);
    test::many_at_a_time(&mut command);
    let _ = std::fs::remove_file(junit::path(root));
    let passed = command.status().is_ok_and(|status| status.success());
    match junit::newest(root) {
        Ok(tests) => passed && tests.iter().any(|test| !test.failed),
        Err(why) => {
            eprintln!("denied: {why}");
            false
        }
    }
}

/// Runs a test binary as one process, with its tests as threads.
fn run(root: &Path, denial: &Denial<'_>, package: &str, binary: &str) -> bool {
    let Ok(this) = std::env::current_exe() else { return false };
    let folder = SUITES.iter().find(|(known, _)| *known == package).map_or("", |(_, folder)| folder);
    // A hanging test is a failure, and must not stop all later ones.
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", SECONDS_MAX]).arg(this).args(["deny", denial.way, denial.calls]);
    let for_all = match denial.way {
        "memlock" => Some(for_all(Path::new(binary))),
        _ => None,
    };
    match &for_all {
        None => command.arg(binary),
        Some(Ok(place)) => command.arg(place.path().join("tests")).env("TMPDIR", place.path()),
        Some(Err(why)) => {
            eprintln!("denied: {binary}: a copy for user nobody: {why}");
            return false;
        }
    };
    // The driver's own tests need a ring. The simulation, which no filter affects, is tested elsewhere.
    command.args(["--skip", "driver::uring::", "--skip", "::sim", "--skip", "seeds::"]);
    command.args(denial.left_out.iter().flat_map(|part| ["--skip", part]));
    if package == ENGINE {
        // Most of these tests wait most of the time.
        let threads = 3 * std::thread::available_parallelism().map_or(1, usize::from);
        command.args(["--test-threads", &threads.to_string()]);
    }
    command.current_dir(root.join(folder)).stdout(Stdio::piped());
    // The output of a failed test, which the harness prints after all tests.
    let fails = Cell::new(false);
    let shown = |line: &str| {
        fails.set(fails.get() || line == "failures:");
        let hangs = line.contains(" has been running for over ");
        fails.get() || hangs || line.starts_with("test result") || line.contains("FAILED")
    };
    match checked::follow(&mut command, shown, &mut |_| ()) {
        Ok((status, passed)) if status.success() && passed > 0 => true,
        // A package may have no unit tests.
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

/// Makes a folder that every user may write to, with a copy of a test binary: another user may not be able to
/// enter the folder of the built one.
fn for_all(binary: &Path) -> io::Result<tempfile::TempDir> {
    let place = tempfile::tempdir()?;
    std::fs::copy(binary, place.path().join("tests"))?;
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o1777))?;
    Ok(place)
}

/// Builds and returns the test binaries of a package. The whole workspace is built, with the union of its
/// features, so that nothing that `cargo xtask test` compiled is compiled again.
pub(crate) fn test_binaries(root: &Path, package: &str) -> Result<Vec<String>, String> {
    let folder = SUITES.iter().find(|(known, _)| *known == package);
    let folder = folder.and_then(|(_, folder)| root.join(folder).canonicalize().ok());
    let Some(folder) = folder else { return Err(format!("{package} is not there")) };
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
        .filter(|message| {
            message["manifest_path"].as_str().is_some_and(|path| Path::new(path).starts_with(&folder))
        })
        .filter_map(|message| message["executable"].as_str().map(str::to_owned))
        .collect();
    if binaries.is_empty() { Err("no test binary was built".to_owned()) } else { Ok(binaries) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_runs_under_every_denial_and_all_suites_where_a_call_of_io_uring_kills() {
        let all = plan(&[]).unwrap_or_default();
        for (way, _) in WAYS {
            for (calls, _) in CALLS.iter().filter(|(_, numbers)| *numbers != [EPOLL_PWAIT2]) {
                let same = all.iter().filter(|one| (one.way, one.calls) == (way, *calls));
                assert_eq!(same.filter(|one| one.packages.contains(&ENGINE)).count(), 1, "{way}, {calls}");
            }
        }
        assert!(all[0].way == "KILL" && all[0].calls == "all" && all[0].left_out.is_empty());
        assert_eq!(all[0].packages, SUITES.map(|(package, _)| package));
        for other in ["memlock", "pwait2"] {
            let one = all.iter().find(|one| one.way == other || one.calls == other);
            assert!(one.is_some_and(|one| one.left_out.is_empty()), "{other}");
        }
    }

    #[test]
    fn no_module_of_the_engines_tests_has_the_name_of_a_driver_and_is_left_out_with_it() -> io::Result<()> {
        let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/engine/tests/it/contract");
        let mut seen = 0;
        for module in std::fs::read_dir(modules)? {
            let name = module?.file_name();
            let name = format!("::{}", name.to_string_lossy().trim_end_matches(".rs"));
            seen += 1;
            for part in OF_OTHER_DRIVERS {
                assert!(!name.starts_with(part), "`--skip {part}` leaves out the module {name}");
            }
        }
        assert!(seen > 20, "{seen} modules");
        Ok(())
    }

    #[test]
    fn words_that_name_no_denial_are_refused() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert_eq!(plan(&words(&["simple"])), None);
        assert_eq!(plan(&words(&["EPERM", "all", "more"])), None);
        let left_out = |plan: Vec<Denial<'_>>| plan.iter().map(|one| one.left_out).collect::<Vec<_>>();
        assert_eq!(plan(&words(&["sample"])).map(left_out), Some(vec![LIKE_EPOLL, OF_OTHER_DRIVERS]));
        assert_eq!(plan(&words(&["EPERM", "all"])).map(left_out), Some(vec![&[][..]]));
        assert_eq!(plan(&words(&["EPERM", "all"])).map(|plan| plan[0].packages.len()), Some(SUITES.len()));
    }
}
