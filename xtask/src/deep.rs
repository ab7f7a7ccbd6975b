//! `cargo xtask deep [PART]...`: checks that prove more than `.ci/run` and take longer, and their record.
//!
//! Each part is a command of xtask, which runs as a process of this program. `docs/results/deep.md` has one
//! line for each part: commit, date, result and duration. A part that runs again replaces its own line.

use std::io;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

/// The record file.
const RECORD: &str = "docs/results/deep.md";

/// A part: its name, what it proves, and the words of its command.
struct Part {
    name: &'static str,
    what: &'static str,
    words: &'static [&'static str],
}

const PARTS: [Part; 13] = [
    Part { name: "release", what: "release build with LTO, and the lab with it", words: &[] },
    Part { name: "features", what: "the library with each set of features", words: &["features"] },
    Part { name: "loom", what: "code that crosses threads, in every order of events", words: &["loom"] },
    Part { name: "asan", what: "engine and HTTP under AddressSanitizer", words: &["asan"] },
    Part { name: "miri", what: "the simulated driver under Miri", words: &["miri"] },
    Part { name: "denied", what: "io_uring denied, in every way", words: &["denied"] },
    Part {
        name: "seeds",
        what: "114,000 programs drawn by chance, others than each run of the tests has",
        words: &["test", "-E", "package(ringroad-engine-tests) & test(seeds::)"],
    },
    Part {
        name: "apps",
        what: "what a run of all tests leaves out: applications on poll and select",
        words: &["test", "--ignore-default-filter", "-E", "not default()"],
    },
    Part {
        name: "cp",
        what: "each shell line beside GNU's cp, with every engine",
        words: &["test", "-E", "package(ringroad-cli) & test(beside_gnu::)"],
    },
    Part { name: "coreutils", what: "GNU's tests of `cp` on ours", words: &["coreutils"] },
    Part {
        name: "second-kernel",
        what: "the engine's tests under another kernel",
        words: &["second-kernel"],
    },
    Part {
        name: "package",
        what: "packages of the libraries, the oldest compiler",
        words: &["package", "--build"],
    },
    Part { name: "dist", what: "archive with the static binary", words: &["dist"] },
];

/// Runs the named parts, or all.
pub(crate) fn deep(root: &Path, words: &[String]) -> ExitCode {
    let known = || PARTS.map(|part| part.name).join(", ");
    if let Some(unknown) = words.iter().find(|word| !PARTS.iter().any(|part| part.name == **word)) {
        eprintln!("deep: no part {unknown:?} (there are: {})", known());
        return ExitCode::from(2);
    }
    let mut failed = Vec::new();
    for part in PARTS.iter().filter(|part| words.is_empty() || words.iter().any(|word| word == part.name)) {
        println!("\n== {}: {}", part.name, part.what);
        let begun = Instant::now();
        let outcome = run(root, part);
        let line = Line {
            part: part.name,
            what: part.what,
            commit: commit(root),
            day: day(),
            result: match &outcome {
                Ok(Ended::Passed) => "passed".to_owned(),
                Ok(Ended::PassedOn(kernel)) => format!("passed on {kernel}"),
                Ok(Ended::NotRun(why)) => format!("not run: {why}"),
                Err(why) => format!("**FAILED**: {why}"),
            },
            minutes: begun.elapsed().as_secs().div_ceil(60),
        };
        println!("== {} {} in {} min", part.name, line.result, line.minutes);
        if outcome.is_err() {
            failed.push(part.name);
        }
        if let Err(why) = record(&root.join(RECORD), &line) {
            eprintln!("deep: {RECORD}: {why}");
            return ExitCode::FAILURE;
        }
    }
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("\ndeep: failed: {}", failed.join(", "));
    ExitCode::FAILURE
}

/// The result of a part that did not fail.
enum Ended {
    Passed,
    /// On a kernel that is named by its image.
    PassedOn(String),
    NotRun(&'static str),
}

fn run(root: &Path, part: &Part) -> Result<Ended, String> {
    if part.words.is_empty() {
        return release(root).map(|()| Ended::Passed);
    }
    if part.name == "miri" && !crate::checked::has_miri() {
        return Ok(Ended::NotRun("Miri is not installed"));
    }
    if part.name == "asan" && !crate::checked::has_asan() {
        return Ok(Ended::NotRun("there is no AddressSanitizer for this target"));
    }
    let kernel = crate::second_kernel::kernel().filter(|_| part.name == "second-kernel");
    if part.name == "second-kernel" && kernel.is_none() {
        return Ok(Ended::NotRun("no kernel is named (RINGROAD_KERNEL=IMAGE)"));
    }
    let suite = crate::coreutils::named().filter(|_| part.name == "coreutils");
    if part.name == "coreutils" && suite.is_none() {
        return Ok(Ended::NotRun("no suite is named (RINGROAD_COREUTILS=DIR)"));
    }
    let this = std::env::current_exe().map_err(|why| why.to_string())?;
    let mut chore = Command::new(this);
    // Long parts have their own time limit for a test.
    chore.args(part.words).args(suite).current_dir(root).env("NEXTEST_PROFILE", "deep");
    match part.name {
        "seeds" => _ = chore.env("RINGROAD_SEEDS", "6000..120000"),
        "cp" => _ = chore.env("RINGROAD_ENGINES", "all"),
        _ => {}
    }
    succeed(&mut chore)?;
    let name = kernel.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    Ok(name.map_or(Ended::Passed, Ended::PassedOn))
}

/// Checks that the release profile links and works. The lab may find its own numbers INVALID (5) on a busy
/// machine.
fn release(root: &Path) -> Result<(), String> {
    succeed(Command::new(env!("CARGO")).current_dir(root).args(["build", "--release"]))?;
    let program = crate::release_binary(root).map_err(|why| why.to_string())?;
    let out = tempfile::tempdir().map_err(|why| why.to_string())?;
    let mut lab = Command::new(program);
    lab.args(["lab", "--repeats", "2", "--duration", "0.3", "--out"]).arg(out.path());
    let status = lab.status().map_err(|why| format!("lab: {why}"))?;
    if !matches!(status.code(), Some(0 | 5)) {
        return Err(format!("lab: {status}"));
    }
    for file in ["record.json", "report.html"] {
        if !std::fs::metadata(out.path().join(file)).is_ok_and(|file| file.len() > 0) {
            return Err(format!("the lab made no {file}"));
        }
    }
    Ok(())
}

fn succeed(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|why| format!("{}: {why}", command.get_program().display()))?;
    if status.success() { Ok(()) } else { Err(status.to_string()) }
}

/// Returns the commit that is checked out, and whether files differ from it.
fn commit(root: &Path) -> String {
    let git = |words: &[&str]| {
        let output = Command::new("git").current_dir(root).args(words).output();
        output.ok().filter(|output| output.status.success()).map(|output| output.stdout)
    };
    let Some(name) = git(&["rev-parse", "--short=10", "HEAD"]) else { return "unknown".to_owned() };
    let name = String::from_utf8_lossy(&name).trim().to_owned();
    // The record itself changes with every part.
    let others = ["status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs/results/deep.md"];
    match git(&others) {
        Some(changed) if changed.is_empty() => name,
        _ => format!("{name} and changes"),
    }
}

fn day() -> String {
    let output = Command::new("date").args(["-u", "+%F"]).output();
    output
        .map_or_else(|_| "unknown".to_owned(), |output| String::from_utf8_lossy(&output.stdout).trim().into())
}

struct Line {
    part: &'static str,
    what: &'static str,
    commit: String,
    day: String,
    result: String,
    minutes: u64,
}

const HEAD: &str = "# What takes longer than a run of the tests\n\n\
    `cargo xtask deep [PART]...` (also `.ci/deep`) runs these parts and keeps its record here: of each part\n\
    its last run. Times are those of the machine that ran it.\n\n\
    | part | what | commit | day | result | minutes |\n|---|---|---|---|---|---|\n";

/// Replaces the line of the same part, or adds the line.
fn record(path: &Path, line: &Line) -> io::Result<()> {
    let old = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    std::fs::write(path, with_line(&old, line))
}

fn with_line(old: &str, line: &Line) -> String {
    let Line { part, what, commit, day, result, minutes } = line;
    let new = format!("| `{part}` | {what} | {commit} | {day} | {result} | {minutes} |");
    let kept = |name: &str| old.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
    let lines = PARTS.iter().filter_map(|known| match known.name {
        name if name == *part => Some(&*new),
        name => kept(name),
    });
    lines.fold(HEAD.to_owned(), |text, line| text + line + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(part: &'static str, result: &str) -> Line {
        let (commit, day, result) = ("c0ffee".to_owned(), "2026-11-27".to_owned(), result.to_owned());
        Line { part, what: "what", commit, day, result, minutes: 3 }
    }

    #[test]
    fn a_part_that_runs_again_replaces_its_line_alone() {
        let first = with_line("", &line("loom", "**FAILED**: exit status: 1"));
        let second = with_line(&first, &line("features", "passed"));
        let third = with_line(&second, &line("loom", "passed"));
        let rows: Vec<&str> = third.lines().filter(|line| line.starts_with("| `")).collect();
        assert_eq!(
            rows,
            [
                "| `features` | what | c0ffee | 2026-11-27 | passed | 3 |",
                "| `loom` | what | c0ffee | 2026-11-27 | passed | 3 |"
            ]
        );
        assert!(third.starts_with(HEAD));
    }
}
