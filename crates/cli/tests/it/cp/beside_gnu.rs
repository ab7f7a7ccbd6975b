//! The installed `cp` and ours, by every engine, side by side: the same shell lines, then exit codes, output,
//! messages and trees compared. The lines are data, in `cases.rs`.
//!
//! Each case runs with the engine that is chosen and with one that is named, another one for the next case;
//! `RINGROAD_ENGINES=all` runs each with all of them (`cargo xtask deep cp`), and `RINGROAD_CASE=WORDS` only
//! the cases with these words in their names.
//!
//! What is compared is behaviour. Where GNU's own versions differ, or where we differ on purpose, the case is
//! not here but stated as ours in `options.rs`.

use super::cases::{CASES, UNPRIVILEGED};
use super::compare::{TIMELESS, differences};
use super::engines;
use crate::support::{BINARY, Outcome, installed, is_root, put_copy, put_script, run, skip};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Folders with a `cp` in each: the system's, ours, and ours with an engine named.
struct Sides {
    folder: TempDir,
    gnu: PathBuf,
    /// By what they are called in failures.
    ours: Vec<(&'static str, PathBuf)>,
    /// The user that runs the scripts, if not ours.
    user: Option<u32>,
}

impl Sides {
    fn new() -> Option<Sides> {
        let version = Command::new("/bin/cp").arg("--version").output().ok()?;
        if !installed("sh") || !String::from_utf8_lossy(&version.stdout).contains("GNU coreutils") {
            skip("comparison with GNU cp", "the installed cp is another one");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let side = |name: &str, program: &str| {
            let side = folder.path().join(name);
            fs::create_dir(&side).unwrap();
            symlink(program, side.join("cp")).unwrap();
            side
        };
        let (gnu, auto) = (side("gnu", "/bin/cp"), side("auto", BINARY));
        let mut ours = vec![("auto", auto.clone())];
        for engine in engines() {
            let named = folder.path().join(engine);
            fs::create_dir(&named).unwrap();
            let script = format!("#!/bin/sh\nexec {}/cp --engine {engine} \"$@\"\n", auto.display());
            put_script(&named.join("cp"), &script);
            ours.push((engine, named));
        }
        Some(Sides { folder, gnu, ours, user: None })
    }

    /// Runs a script in a fresh folder with the `cp` of one side first in the path.
    fn run(&self, cp: &Path, script: &str, name: &str) -> (Outcome, PathBuf) {
        let place = self.folder.path().join(name);
        fs::create_dir(&place).unwrap();
        let path = format!("{}:/usr/bin:/bin", cp.display());
        // `code` shows the code of the line before; the last line's own is the script's.
        let prelude = "umask 022; code() { echo \"exit $?\"; }\n";
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!("{prelude}{script}")).current_dir(&place);
        if let Some(user) = self.user {
            std::os::unix::fs::chown(&place, Some(user), Some(user)).unwrap();
            shell.uid(user).gid(user);
        }
        shell.env_clear().env("PATH", path).env("LC_ALL", "C").stdin(Stdio::null());
        (run(&mut shell), place)
    }
}

/// Lines in no order: no program promises which file of a directory comes first.
fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// What GNU says differently from one version to the next, in one form: since 9.2 the directory's replacement
/// is named too.
fn ageless(stderr: &str) -> String {
    let cut = |line: &str| match line.split_once("with non-directory") {
        Some((front, _)) => format!("{front}with non-directory\n"),
        None => format!("{line}\n"),
    };
    stderr.lines().map(cut).collect()
}

/// What differs between two runs of one script, a line each.
fn compared((theirs, expected): (&Outcome, &Path), (ours, found): (&Outcome, &Path)) -> Vec<String> {
    let mut differ: Vec<String> = differences(expected, found, TIMELESS);
    if theirs.code != ours.code {
        differ.push(format!("exit {:?}, expected {:?}", ours.code, theirs.code));
    }
    let (said, meant) = (String::from_utf8_lossy(&ours.stdout), String::from_utf8_lossy(&theirs.stdout));
    if sorted(&said) != sorted(&meant) {
        differ.push(format!("stdout:\n{said}expected:\n{meant}"));
    }
    if sorted(&ageless(&ours.stderr)) != sorted(&ageless(&theirs.stderr)) {
        differ.push(format!("stderr:\n{}expected:\n{}", ours.stderr, theirs.stderr));
    }
    differ
}

/// Tests run so many parts of the cases at a time. It has no divisor in common with the number of engines, so
/// that each part meets all of them.
const PARTS: usize = 4;

/// Runs every [`PARTS`]-th case from `part` on; fails with everything that differs.
fn all_alike(sides: &Sides, part: usize, cases: &[(&str, &str)]) {
    let mut failures = Vec::new();
    let only = std::env::var("RINGROAD_CASE").ok();
    let every_engine = std::env::var("RINGROAD_ENGINES").is_ok_and(|engines| engines == "all");
    let named = sides.ours.len().saturating_sub(1).max(1);
    for (nth, (name, script)) in cases.iter().enumerate().skip(part).step_by(PARTS) {
        if only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            continue;
        }
        let (theirs, expected) = sides.run(&sides.gnu, script, &format!("{nth}-gnu"));
        for (at, (engine, cp)) in sides.ours.iter().enumerate() {
            if at > 0 && !every_engine && (at - 1) != nth % named {
                continue;
            }
            let (ours, found) = sides.run(cp, script, &format!("{nth}-{engine}"));
            let differ = compared((&theirs, &expected), (&ours, &found));
            if !differ.is_empty() {
                failures.push(format!("== {name}, {engine}\n{script}\n-- {}", differ.join("\n-- ")));
            }
            fs::remove_dir_all(found).unwrap();
        }
    }
    assert!(
        failures.is_empty(),
        "{} differ, of {} cases:\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n")
    );
}

fn beside_gnu(part: usize) {
    if let Some(sides) = Sides::new() {
        all_alike(&sides, part, CASES);
    }
}

/// What a user may not do differs from what root may: the same lines, and some more, as user nobody.
fn beside_gnu_without_privileges(part: usize) {
    if !is_root() {
        // Then the tests above were these already.
        return skip("comparison with GNU cp as somebody else", "needs root to become somebody else");
    }
    let Some(mut sides) = Sides::new() else { return };
    // Another user may not enter the folder where the binary lies.
    fs::set_permissions(sides.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let place = sides.folder.path().join("own");
    fs::create_dir(&place).unwrap();
    put_copy(&place.join("cp"));
    sides.ours = vec![("auto", place)];
    sides.user = Some(65_534);
    let cases: Vec<_> = CASES.iter().chain(UNPRIVILEGED).copied().collect();
    all_alike(&sides, part, &cases);
}

/// A test for each part of the cases, so that they run beside each other.
macro_rules! parts {
    ($($name:ident: $test:path;)+) => { $(
        mod $name {
            #[test]
            fn first() {
                $test(0);
            }

            #[test]
            fn second() {
                $test(1);
            }

            #[test]
            fn third() {
                $test(2);
            }

            #[test]
            fn fourth() {
                $test(super::PARTS - 1);
            }
        }
    )+ };
}

parts! {
    every_case_ends_as_it_does_with_gnu_cp: super::beside_gnu;
    without_privileges_every_case_ends_as_with_gnu_cp: super::beside_gnu_without_privileges;
}
