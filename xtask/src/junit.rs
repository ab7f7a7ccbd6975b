//! Reads nextest's JUnit file: each test of a run, whether it failed, and its output.
//!
//! The parser supports only what nextest writes: attributes in double quotes, the five named entities, and
//! numbers.

use std::io;
use std::path::{Path, PathBuf};

/// A test of a run.
#[derive(Debug, PartialEq)]
pub(crate) struct Test {
    /// Binary and test, as nextest names them: `ringroad-copy::it races::a_name`.
    pub(crate) name: String,
    pub(crate) failed: bool,
    /// Whether it passed, after a try that failed.
    pub(crate) flaky: bool,
    /// The output of its tries, of both streams.
    pub(crate) output: String,
}

impl Test {
    /// Returns why it failed, in one line: its first panic with up to four lines of the message, or the error
    /// that it returned, or its last line.
    pub(crate) fn reason(&self) -> String {
        let mut lines = self.output.lines().map(str::trim).filter(|line| !line.is_empty());
        let panicked = lines.clone().skip_while(|line| !line.contains("panicked at ")).take(5);
        let message: Vec<_> = panicked
            .take_while(|line| !line.starts_with("stack backtrace:") && !line.starts_with("note: "))
            .map(|line| line.split_once("panicked at ").map_or(line, |(_, place)| place))
            .collect();
        if !message.is_empty() {
            return message.join(" ");
        }
        let error = lines.clone().find(|line| line.starts_with("Error: "));
        error.or_else(|| lines.next_back()).unwrap_or("no output").to_owned()
    }
}

/// Returns the file of the newest run (named in `.config/nextest.toml`), in the folder of nextest's profile.
pub(crate) fn path(root: &Path) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let profile = std::env::var("NEXTEST_PROFILE").unwrap_or_else(|_| "default".to_owned());
    target.join("nextest").join(profile).join("junit.xml")
}

/// Reads the newest run.
pub(crate) fn newest(root: &Path) -> io::Result<Vec<Test>> {
    let path = path(root);
    let text = std::fs::read_to_string(&path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    Ok(tests(&text))
}

/// Returns the tests in a JUnit file.
pub(crate) fn tests(text: &str) -> Vec<Test> {
    let cases = text.split("<testcase ").skip(1);
    cases
        .map(|case| {
            // A test without output is one empty element; text after it belongs to no test.
            let (head, rest) = case.split_once('>').unwrap_or((case, ""));
            let body = if head.ends_with('/') { "" } else { rest.split("</testcase>").next().unwrap_or("") };
            let name = format!("{} {}", attribute(head, "classname"), attribute(head, "name"));
            let failed = body.contains("<failure") || body.contains("<error");
            let flaky = body.contains("<flakyFailure") || body.contains("<flakyError");
            let output = ["system-out", "system-err"].map(|element| elements(body, element)).concat();
            Test { name, failed, flaky, output }
        })
        .collect()
}

fn attribute(head: &str, name: &str) -> String {
    let marked = format!("{name}=\"");
    let mut rest = head;
    while let Some(at) = rest.find(&marked) {
        // `name="` is also the end of `classname="`.
        let begins = at == 0 || rest[..at].ends_with(' ');
        rest = &rest[at + marked.len()..];
        if begins {
            return unescaped(rest.split('"').next().unwrap_or(""));
        }
    }
    String::new()
}

/// Returns the texts of all elements of this name.
fn elements(body: &str, name: &str) -> String {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let texts = body.split(&*open).skip(1).map(|text| unescaped(text.split(&*close).next().unwrap_or("")));
    texts.map(|text| text + "\n").collect()
}

fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let Some((entity, behind)) = rest.split_once(';') else {
            out.push('&');
            continue;
        };
        match entity {
            "lt" => out.push('<'),
            "gt" => out.push('>'),
            "amp" => out.push('&'),
            "quot" => out.push('"'),
            "apos" => out.push('\''),
            _ => {
                let number = entity.strip_prefix('#').and_then(|number| match number.strip_prefix('x') {
                    Some(hex) => u32::from_str_radix(hex, 16).ok(),
                    None => number.parse().ok(),
                });
                match number.and_then(char::from_u32) {
                    Some(character) => out.push(character),
                    None => {
                        out.push('&');
                        continue;
                    }
                }
            }
        }
        rest = behind;
    }
    out + rest
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn tests_are_read_with_what_they_have_printed() {
        let text = r#"<?xml version="1.0"?>
<testsuites name="nextest-run" tests="3">
    <testsuite name="one::it">
        <testcase name="quiet" classname="one::it" time="0.023"/>
        <testcase name="says::why" classname="one::it" time="1">
            <system-out>running 1 test
</system-out>
            <system-err>skipped: a &lt;b&gt; &amp; &quot;c&quot; &#x27;d&#39;&amp;lt;</system-err>
        </testcase>
        <testcase name="fails" classname="one::it" time="1">
            <failure message="thread panicked" type="test failure">more &gt;</failure>
            <system-err>left: 1</system-err>
        </testcase>
        <testcase name="second_try" classname="one::it" time="1">
            <flakyFailure type="test failure"><system-err>first</system-err></flakyFailure>
        </testcase>
    </testsuite>
</testsuites>"#;
        let read = tests(text);
        let told: Vec<_> =
            read.iter().map(|test| (&*test.name, test.failed, test.flaky, &*test.output)).collect();
        let said = "running 1 test\n\nskipped: a <b> & \"c\" 'd'&lt;\n";
        assert_eq!(
            told,
            [
                ("one::it quiet", false, false, ""),
                ("one::it says::why", false, false, said),
                ("one::it fails", true, false, "left: 1\n"),
                ("one::it second_try", false, true, "first\n"),
            ]
        );
    }

    #[test]
    fn the_reason_of_a_failure_is_its_panic_its_error_or_its_last_line() {
        let reason = |output: &str| {
            let output = output.to_owned();
            Test { name: "a::it b".to_owned(), failed: true, flaky: false, output }.reason()
        };
        let panicked = "running 1 test\nskipped: nothing\n\nthread 'b' (7) panicked at crates/a/it.rs:3:5:\n\
             assertion `left == right` failed\n  left: 1\n right: 2\nstack backtrace:\n   0: rust_begin_unwind\n";
        let told = "crates/a/it.rs:3:5: assertion `left == right` failed left: 1 right: 2";
        assert_eq!(reason(panicked), told);
        assert_eq!(reason("Error: Os { code: 2 }\n\ntest b ... FAILED\n"), "Error: Os { code: 2 }");
        assert_eq!(reason("begun\nended by a signal\n"), "ended by a signal");
        assert_eq!(reason(""), "no output");
    }
}
