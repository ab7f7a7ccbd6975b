//! `cargo xtask coreutils DIR`: GNU's own tests of `cp`, run on ours.
//!
//! DIR is a copy of the suite that lives outside this repository, since its licence is another one:
//! coreutils' `tests/` and `init.cfg`, with gnulib's `tests/init.sh` put into `tests/`. Nothing is built
//! there: a scratch folder looks to the tests like a finished build with our binary as `src/cp`. Tests are
//! named `same-file` or `tests/cp/same-file.sh`. `cargo xtask deep coreutils` runs all of the suite that
//! `RINGROAD_COREUTILS` names. Start at [`run`].

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Longer than any of these tests takes; one that hangs is killed and fails.
const DEADLINE: Duration = Duration::from_secs(180);

/// The user that root becomes for the tests that root cannot run: user nobody.
const NOBODY: u32 = 65_534;

/// The variable with the folder of the suite, for `cargo xtask deep`.
const VARIABLE: &str = "RINGROAD_COREUTILS";

/// Tests that fail for a reason that is not in our `cp`.
const KNOWN: [(&str, &str); 1] =
    [("cp-mv-enotsup-xattr", "its half of `mv` runs the system's, which can be older than the suite")];

/// What the tests look up in a finished build's configuration.
const CONFIG: &str = "#define HAVE_OPENAT 1\n#define USE_XATTR 1\n#define USE_ACL 1\n#define HAVE_CAP 1\n\
    #define HAVE_UTIMENSAT 1\n#define HAVE_LUTIMES 1\n#define HAVE_LINKAT 1\n";

/// The names that no test of the suite has.
#[derive(Debug, PartialEq, Eq)]
struct Unknown(Vec<String>);

/// How one test ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    /// With the test's own reason.
    Skipped(String),
    /// With the last thing it said.
    Failed(String),
    /// As [`KNOWN`] says, with the last thing it said.
    FailedAsKnown(String),
}

/// Runs the suite, or the named tests of it, and prints a table. Exit code 1 if any fails, 2 if a name is no
/// test's.
pub(crate) fn run(root: &Path, words: &[String]) -> ExitCode {
    let Some((suite, names)) = words.split_first() else { return ExitCode::from(2) };
    let suite = match suite_at(Path::new(suite)) {
        Ok(suite) => suite,
        Err(error) => {
            eprintln!("coreutils: {error}");
            return ExitCode::FAILURE;
        }
    };
    let chosen = match all_tests(&suite).map(|all| chosen(all, names)) {
        Ok(Ok(chosen)) => chosen,
        Ok(Err(Unknown(names))) => {
            eprintln!(
                "coreutils: no test is called {}; they are the files in {}/tests/cp, named as `same-file` or `tests/cp/same-file.sh`",
                names.join(", "),
                suite.display()
            );
            return ExitCode::from(2);
        }
        Err(error) => {
            eprintln!("coreutils: {error}");
            return ExitCode::FAILURE;
        }
    };
    match suite_on_ours(root, &suite, chosen) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("coreutils: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the folder of the suite, if one is named.
pub(crate) fn named() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).filter(|named| !named.is_empty()).map(PathBuf::from)
}

/// The suite in a folder, if all of it is there.
fn suite_at(folder: &Path) -> io::Result<PathBuf> {
    let suite = folder
        .canonicalize()
        .map_err(|why| io::Error::new(why.kind(), format!("{}, for the suite: {why}", folder.display())))?;
    for needed in ["init.cfg", "tests/init.sh", "tests/cp"] {
        if !suite.join(needed).exists() {
            let what = format!(
                "{} has no {needed}: coreutils' tests/ and init.cfg, gnulib's tests/init.sh",
                suite.display()
            );
            return Err(io::Error::other(what));
        }
    }
    Ok(suite)
}

fn suite_on_ours(root: &Path, suite: &Path, tests: Vec<String>) -> io::Result<bool> {
    let cp = crate::release_binary(root)?;
    let mut verdicts = BTreeMap::new();
    for test in tests {
        let mut verdict = one(suite, &test, &cp, None)?;
        let root_is_in_the_way =
            matches!(&verdict, Verdict::Skipped(why) if why.contains("non-root") || why.contains("as root"));
        if root_is_in_the_way && rustix::process::geteuid().is_root() {
            verdict = one(suite, &test, &cp, Some(NOBODY))?;
        }
        let verdict = judged(&test, verdict);
        println!("{}", line(&test, &verdict));
        verdicts.insert(test, verdict);
    }
    let count = |wanted: fn(&Verdict) -> bool| verdicts.values().filter(|verdict| wanted(verdict)).count();
    let failed = count(|verdict| matches!(verdict, Verdict::Failed(_)));
    println!(
        "coreutils: {} passed, {} skipped, {} failed as known, {failed} failed, of {}",
        count(|verdict| *verdict == Verdict::Passed),
        count(|verdict| matches!(verdict, Verdict::Skipped(_))),
        count(|verdict| matches!(verdict, Verdict::FailedAsKnown(_))),
        verdicts.len()
    );
    Ok(failed == 0)
}

/// Returns the verdict, with regard to [`KNOWN`].
fn judged(test: &str, verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::Failed(said) if KNOWN.iter().any(|(name, _)| *name == test) => Verdict::FailedAsKnown(said),
        other => other,
    }
}

fn line(test: &str, verdict: &Verdict) -> String {
    match verdict {
        Verdict::Passed => format!("| {test} | pass | |"),
        Verdict::Skipped(why) => format!("| {test} | skip | {why} |"),
        Verdict::Failed(said) => format!("| {test} | FAIL | {said} |"),
        Verdict::FailedAsKnown(said) => {
            let why = KNOWN.iter().find(|(name, _)| *name == test).map_or("", |(_, why)| why);
            format!("| {test} | fail, known: {why} | {said} |")
        }
    }
}

/// The names of all tests of `cp`, sorted.
fn all_tests(suite: &Path) -> io::Result<Vec<String>> {
    let mut tests = Vec::new();
    for entry in fs::read_dir(suite.join("tests/cp"))? {
        let path = entry?.path();
        let Some(name) = path.file_stem().and_then(|name| name.to_str()) else { continue };
        if path.extension().is_some_and(|end| end == "sh") {
            tests.push(name.to_string());
        }
    }
    tests.sort();
    Ok(tests)
}

/// Those of `all` that are named: `same-file`, or with the folder and the ending that its file has. Without
/// names, all.
fn chosen(all: Vec<String>, names: &[String]) -> Result<Vec<String>, Unknown> {
    let bare = |name: &str| {
        let name = name.strip_prefix("./").unwrap_or(name);
        let name = name.strip_prefix("tests/").unwrap_or(name);
        let name = name.strip_prefix("cp/").unwrap_or(name);
        name.strip_suffix(".sh").unwrap_or(name).to_string()
    };
    let unknown: Vec<String> = names.iter().filter(|name| !all.contains(&bare(name))).cloned().collect();
    if !unknown.is_empty() {
        return Err(Unknown(unknown));
    }
    let wanted: Vec<String> = names.iter().map(|name| bare(name)).collect();
    Ok(all.into_iter().filter(|test| wanted.is_empty() || wanted.contains(test)).collect())
}

/// The version of the system's tools: tests that run `cp` as another user take them for part of the build.
fn tools_version() -> io::Result<String> {
    let said = Command::new("rm").arg("--version").output()?.stdout;
    let said = String::from_utf8_lossy(&said);
    let first = said.lines().next().unwrap_or_default();
    Ok(first.rsplit(' ').next().unwrap_or_default().to_string())
}

/// Runs one test in a scratch build of its own.
fn one(suite: &Path, test: &str, cp: &Path, user: Option<u32>) -> io::Result<Verdict> {
    let scratch = tempfile::tempdir()?;
    // Tests that become another user must be able to enter this.
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755))?;
    let build = scratch.path().join("build");
    fs::create_dir_all(build.join("src"))?;
    for linked in ["tests", "init.cfg"] {
        symlink(suite.join(linked), build.join(linked))?;
    }
    // A copy, since another user may have to run it, and since its name makes it cp.
    fs::copy(cp, build.join("src/cp"))?;
    fs::write(build.join("config.h"), CONFIG)?;
    let limits = build.join("src/getlimits");
    fs::write(&limits, limits_script())?;
    fs::set_permissions(&limits, fs::Permissions::from_mode(0o755))?;
    if let Some(user) = user {
        for path in [scratch.path(), &build, &build.join("src")] {
            std::os::unix::fs::chown(path, Some(user), Some(user))?;
        }
    }
    let path = format!("{}:{}", build.join("src").display(), std::env::var("PATH").unwrap_or_default());
    let log = scratch.path().join("log");
    let out = fs::File::create(&log)?;
    let mut shell = Command::new("sh");
    // The suite's scripts speak to descriptor 9.
    shell.arg("-c").arg(format!("exec sh ./tests/cp/{test}.sh 9>&2")).current_dir(&build);
    shell.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out).env_clear().env("PATH", path);
    let top = build.display().to_string();
    let version = tools_version()?;
    for (name, value) in [
        ("srcdir", "."),
        ("top_srcdir", "."),
        ("abs_srcdir", &top),
        ("abs_top_srcdir", &top),
        ("abs_top_builddir", &top),
        ("CONFIG_HEADER", &build.join("config.h").display().to_string()),
        (
            "built_programs",
            "cat chgrp chmod chown chroot cp dd head ln ls mkdir mkfifo mktemp mv printf rm seq stat tail timeout touch truncate",
        ),
        ("TMPDIR", &top),
        ("LC_ALL", "C"),
        ("HOME", &top),
        ("SHELL", "/bin/sh"),
        ("PERL", "perl"),
        ("AWK", "awk"),
        ("EGREP", "grep -E"),
        ("host_os", "linux-gnu"),
        ("fail", "0"),
        ("VERSION", &version),
        ("PACKAGE_VERSION", &version),
        ("NON_ROOT_USERNAME", "nobody"),
        ("RUN_EXPENSIVE_TESTS", "yes"),
        ("RUN_VERY_EXPENSIVE_TESTS", "yes"),
        // Builds the libraries that two of the tests preload.
        ("CC", "cc"),
        ("VERBOSE", if std::env::var_os("COREUTILS_VERBOSE").is_some() { "yes" } else { "no" }),
    ] {
        shell.env(name, value);
    }
    match user {
        Some(user) => {
            shell.uid(user).gid(user);
        }
        // Root may give a file to any group, whether in it or not.
        None if rustix::process::geteuid().is_root() => {
            shell.env("COREUTILS_GROUPS", "0 1000");
        }
        None => {}
    }
    let code = wait(shell.process_group(0).spawn()?)?;
    let said = fs::read(&log)?;
    let said = String::from_utf8_lossy(&said);
    let lines: Vec<&str> = said.lines().filter(|line| !line.starts_with('+')).collect();
    Ok(match code {
        Some(0) => Verdict::Passed,
        Some(77) => Verdict::Skipped(
            lines
                .iter()
                .rev()
                .find_map(|line| line.split_once("skipped test: ").map(|(_, why)| why.to_string()))
                .unwrap_or_else(|| "without a word".to_string()),
        ),
        None => Verdict::Failed(format!("did not end within {DEADLINE:?}")),
        Some(code) => {
            if std::env::var_os("COREUTILS_VERBOSE").is_some() {
                let _ = io::stderr().write_all(said.as_bytes());
            }
            let last = lines.iter().rev().take(4).rev().copied().collect::<Vec<_>>().join("; ");
            Verdict::Failed(format!("exit {code}: {last}"))
        }
    })
}

/// The exit code; `None` if it had to be killed, with everything it started.
fn wait(mut child: Child) -> io::Result<Option<i32>> {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.code().unwrap_or(1)));
        }
        if Instant::now() >= deadline {
            let group = rustix::process::Pid::from_child(&child);
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What the suite's own helper prints: the limits of C's integers on this kind of machine.
fn limits_script() -> String {
    let mut script = String::from("#!/bin/sh\ncat <<END\n");
    for (name, least, most) in [
        ("INT", i128::from(i32::MIN), i128::from(i32::MAX)),
        ("LONG", i128::from(i64::MIN), i128::from(i64::MAX)),
        ("INTMAX", i128::from(i64::MIN), i128::from(i64::MAX)),
        ("SSIZE", i128::from(i64::MIN), i128::from(i64::MAX)),
        ("OFF_T", i128::from(i64::MIN), i128::from(i64::MAX)),
        ("TIME_T", i128::from(i64::MIN), i128::from(i64::MAX)),
        ("SIZE", 0, i128::from(u64::MAX)),
        ("UINTMAX", 0, i128::from(u64::MAX)),
        ("UINT", 0, i128::from(u32::MAX)),
        ("ULONG", 0, i128::from(u64::MAX)),
        ("UID_T", 0, i128::from(u32::MAX)),
        ("GID_T", 0, i128::from(u32::MAX)),
    ] {
        script.push_str(&format!("{name}_MAX={most}\n{name}_OFLOW={}\n", most + 1));
        if least < 0 {
            script.push_str(&format!("{name}_MIN={least}\n{name}_UFLOW={}\n", least - 1));
        }
    }
    for (name, says) in [
        ("EACCES", "Permission denied"),
        ("EINVAL", "Invalid argument"),
        ("ENOENT", "No such file or directory"),
        ("ENOTSUP", "Operation not supported"),
    ] {
        script.push_str(&format!("{name}='{says}'\n"));
    }
    script.push_str("IO_BUFSIZE=262144\nEND\n");
    script
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A suite of four scripts and a `cp` that is any program.
    fn verdicts(script: &str) -> Verdict {
        let suite = tempfile::tempdir().unwrap();
        fs::create_dir_all(suite.path().join("tests/cp")).unwrap();
        fs::write(suite.path().join("init.cfg"), "").unwrap();
        fs::write(suite.path().join("tests/cp/it.sh"), script).unwrap();
        one(suite.path(), "it", Path::new("/bin/true"), None).unwrap()
    }

    #[test]
    fn exit_codes_become_verdicts_with_their_reasons() {
        assert_eq!(verdicts("exit 0"), Verdict::Passed);
        assert_eq!(
            verdicts("echo 'it: skipped test: no disk' >&9; exit 77"),
            Verdict::Skipped("no disk".into())
        );
        assert_eq!(verdicts("echo why; exit 3"), Verdict::Failed("exit 3: why".into()));
    }

    #[test]
    fn a_failure_that_is_known_is_told_apart_from_others() {
        let failed = |test| judged(test, Verdict::Failed("exit 1: no".into()));
        assert_eq!(failed("same-file"), Verdict::Failed("exit 1: no".into()));
        let known = failed(KNOWN[0].0);
        assert_eq!(known, Verdict::FailedAsKnown("exit 1: no".into()));
        let told = line(KNOWN[0].0, &known);
        assert!(told.contains(KNOWN[0].1) && told.contains("exit 1: no"), "{told}");
        assert_eq!(judged(KNOWN[0].0, Verdict::Passed), Verdict::Passed);
    }

    #[test]
    fn tests_are_named_with_or_without_their_folder_and_ending() {
        let words = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        let all = words(&["debug", "link", "sparse-2"]);
        for name in
            ["sparse-2", "sparse-2.sh", "cp/sparse-2", "tests/cp/sparse-2.sh", "./tests/cp/sparse-2.sh"]
        {
            assert_eq!(chosen(all.clone(), &words(&[name])), Ok(words(&["sparse-2"])), "{name}");
        }
        assert_eq!(chosen(all.clone(), &words(&["link", "debug"])), Ok(words(&["debug", "link"])));
        assert_eq!(chosen(all.clone(), &[]), Ok(all));
    }

    #[test]
    fn a_name_that_no_test_has_is_an_error_and_nothing_runs() {
        let suite = tempfile::tempdir().unwrap();
        fs::create_dir_all(suite.path().join("tests/cp")).unwrap();
        let marker = suite.path().join("ran");
        for (file, text) in [
            ("init.cfg", String::new()),
            ("tests/init.sh", String::new()),
            ("tests/cp/it.sh", format!("touch {}", marker.display())),
        ] {
            fs::write(suite.path().join(file), text).unwrap();
        }
        let words = [suite.path().display().to_string(), "it".to_string(), "sparse".to_string()];
        assert_eq!(run(Path::new("/nowhere"), &words), ExitCode::from(2));
        assert!(!marker.exists());
        assert_eq!(
            chosen(all_tests(suite.path()).unwrap(), &words[1..]),
            Err(Unknown(vec!["sparse".to_string()]))
        );
    }

    #[test]
    fn our_binary_is_the_first_cp_in_the_path() {
        assert_eq!(
            verdicts("case $(command -v cp) in $abs_top_builddir/src/cp) cp;; *) exit 1;; esac"),
            Verdict::Passed
        );
    }

    #[test]
    fn limits_are_numbers_a_shell_can_read() {
        assert_eq!(
            verdicts("eval $(getlimits); test $INT_MAX = 2147483647 -a $INTMAX_OFLOW = 9223372036854775808"),
            Verdict::Passed
        );
    }
}
