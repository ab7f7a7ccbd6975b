//! A copy in a process of its own: for limits, which hold for a whole process, for other users, and for
//! killing.
//!
//! The test binary runs itself with one test, [`body`], which does nothing unless the environment tells it
//! what to copy. Before it a shell sets the limits.

use crate::support::{Told, archive};
use ringroad_copy::{Control, Destination, Engine, copy};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const VARIABLE: &str = "RINGROAD_COPY_TEST";
/// How many descriptors the process has before it copies, as if its parent had left them open.
pub(crate) const HELD: &str = "RINGROAD_COPY_TEST_HELD";

/// Starts a copy. `limits` is shell, run before it.
pub(crate) fn start(limits: &str, engine: Engine, source: &Path, target: &Path, resume: bool) -> Child {
    let work = serde_json::json!([engine.name(), source, target, resume]);
    let script = format!("{limits}; exec \"$0\" --exact child::body --nocapture --test-threads=1");
    Command::new("sh")
        .args(["-c", &script])
        .arg(std::env::current_exe().unwrap())
        .env(VARIABLE, work.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What the copy told: its totals, its errors.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) copied: u64,
    pub(crate) failed: u64,
    pub(crate) balanced: bool,
    pub(crate) errors: Vec<String>,
}

/// Copies under limits, to the end.
pub(crate) fn run(limits: &str, engine: Engine, source: &Path, target: &Path) -> Answer {
    let output = start(limits, engine, source, target, false).wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.split_once("answer:").map(|(_, answer)| answer));
    let line = line.unwrap_or_else(|| panic!("{text}\n{}", String::from_utf8_lossy(&output.stderr)));
    let answer: serde_json::Value = serde_json::from_str(line).unwrap();
    Answer {
        copied: answer["copied"].as_u64().unwrap(),
        failed: answer["failed"].as_u64().unwrap(),
        balanced: answer["balanced"].as_bool().unwrap(),
        errors: answer["errors"]
            .as_array()
            .unwrap()
            .iter()
            .map(|e| e.as_str().unwrap().to_string())
            .collect(),
    }
}

#[test]
fn body() {
    let Ok(work) = std::env::var(VARIABLE) else { return };
    let (engine, source, target, resume): (String, String, String, bool) =
        serde_json::from_str(&work).unwrap();
    let engine = crate::support::engines().iter().copied().find(|known| known.name() == engine).unwrap();
    let mut options = archive(engine);
    options.resume = resume;
    let held = std::env::var(HELD).map_or(0, |held| held.parse().unwrap());
    let _held: Vec<_> = (0..held).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
    let told = Told::default();
    let report =
        copy(&[source.into()], &Destination::At(target.into()), &options, &told, &Control::new()).unwrap();
    let errors = told.errors.into_inner().unwrap();
    let answer = serde_json::json!({
        "copied": report.totals.copied,
        "failed": report.totals.failed,
        "balanced": report.totals.balance(),
        "errors": errors,
    });
    println!("\nanswer:{answer}");
}
