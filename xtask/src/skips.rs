//! What the tests of a run left out, held against the list of what may be left out.
//!
//! A test that cannot have what it needs prints `skipped: REASON` and passes. Which machine runs the tests
//! would so decide, in silence, what is tested. So each reason of a run is told, and where the variable `CI`
//! is set a reason that is not in `.config/skips.toml` fails the run.

use crate::junit::Test;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// A reason that may be, and why.
#[derive(Debug)]
struct Allowed {
    /// What the line of the test contains.
    reason: String,
    /// What the test's name contains; empty for all tests.
    tests: String,
}

/// Tells what was left out. True if all of it may be, or if no machine depends on it.
pub(crate) fn judge(root: &Path, run: &[Test]) -> bool {
    let allowed = match allowed(root) {
        Ok(allowed) => allowed,
        Err(why) => {
            eprintln!("skips: .config/skips.toml: {why}");
            return false;
        }
    };
    let found = found(run);
    let strict = std::env::var_os("CI").is_some();
    let mut passed = true;
    for (reason, tests) in &found {
        let stray: Vec<&str> =
            tests.iter().copied().filter(|test| !may_be_left_out(&allowed, test, reason)).collect();
        let (mark, named) = match stray.first() {
            None => ("SKIP", tests[0]),
            Some(first) => ("SKIP, not in .config/skips.toml,", *first),
        };
        let more = match tests.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        println!(" {mark} {reason} ({named}{more})");
        passed &= stray.is_empty();
    }
    if !passed && strict {
        println!(
            "skips: CI is set, and tests left out what they must not: install what is missing, or add the reason"
        );
    }
    passed || !strict
}

/// Each reason, and the tests that gave it.
fn found(run: &[Test]) -> BTreeMap<String, Vec<&str>> {
    let mut found = BTreeMap::<String, Vec<&str>>::new();
    for test in run {
        for line in test.output.lines() {
            let Some(reason) = line.trim_start().strip_prefix("skipped: ") else { continue };
            let tests = found.entry(reason.to_owned()).or_default();
            if tests.last() != Some(&&*test.name) {
                tests.push(&test.name);
            }
        }
    }
    found
}

fn may_be_left_out(allowed: &[Allowed], test: &str, reason: &str) -> bool {
    allowed.iter().any(|one| reason.contains(&*one.reason) && test.contains(&*one.tests))
}

fn allowed(root: &Path) -> io::Result<Vec<Allowed>> {
    read(&std::fs::read_to_string(root.join(".config/skips.toml"))?).map_err(io::Error::other)
}

fn read(text: &str) -> Result<Vec<Allowed>, String> {
    let table: toml::Table = text.parse().map_err(|why: toml::de::Error| why.to_string())?;
    let entries = table.get("skip").and_then(toml::Value::as_array).ok_or("no [[skip]]")?;
    let mut allowed = Vec::new();
    for entry in entries {
        let word = |key: &str| entry.get(key).and_then(toml::Value::as_str).unwrap_or("").to_owned();
        let (reason, because) = (word("reason"), word("because"));
        // An empty reason would allow everything.
        if reason.is_empty() || because.is_empty() {
            return Err(format!("an entry needs `reason` and `because`: {entry}"));
        }
        allowed.push(Allowed { reason, tests: word("tests") });
    }
    Ok(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(name: &str, output: &str) -> Test {
        Test { name: name.to_owned(), failed: false, flaky: false, output: output.to_owned() }
    }

    #[test]
    fn each_reason_is_told_once_with_its_tests() {
        let run = [
            ran("a::it one", "skipped: no php\nother\nskipped: no php\n"),
            ran("a::it two", "  skipped: no php\n"),
            ran("b::it three", "3 skipped: no reason of a test\nskipped: io_uring: EPERM\n"),
        ];
        let found = found(&run);
        let told: Vec<_> = found.iter().map(|(reason, tests)| (&**reason, &**tests)).collect();
        assert_eq!(
            told,
            [("io_uring: EPERM", &["b::it three"][..]), ("no php", &["a::it one", "a::it two"][..])]
        );
    }

    #[test]
    fn a_reason_is_allowed_for_the_tests_that_the_list_names() -> Result<(), String> {
        let list = read(
            r#"
[[skip]]
reason = "no php"
because = "it is installed where there is a package"

[[skip]]
reason = "cannot clone"
tests = "copy::it"
because = "ext4 cannot"
"#,
        )?;
        assert!(may_be_left_out(&list, "serve::it php", "no php: 8.1"));
        assert!(may_be_left_out(&list, "copy::it clones", "this file system cannot clone"));
        assert!(!may_be_left_out(&list, "serve::it clones", "this file system cannot clone"));
        assert!(!may_be_left_out(&list, "copy::it clones", "io_uring: EPERM"));
        Ok(())
    }

    #[test]
    fn an_entry_without_a_reason_is_refused() {
        for text in ["[[skip]]\nbecause = \"x\"", "[[skip]]\nreason = \"\"\nbecause = \"x\"", "skip = 1"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_list_of_this_repository_can_be_read() -> io::Result<()> {
        let list = allowed(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))?;
        assert!(!list.is_empty());
        Ok(())
    }
}
