//! `ringroad manifest`: merges the manifests of the parts of a copy, and compares a tree with one.
//!
//! The work is the `copy` library's (`lists`). Start at [`run`].

use crate::complaint::{DONE, FAILED, name, say};
use crate::flags::ManifestVerb;
use ringroad_copy::lists::{Checked, check, merge};
use ringroad_measure::units::counted;
use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::available_parallelism;

/// A copy that differs from its source.
const MISMATCH: u8 = 4;

pub(crate) fn run(verb: &ManifestVerb, quiet: bool) -> ExitCode {
    let code = match verb {
        ManifestVerb::Merge { out, lists } => match merge(lists, out) {
            Ok(files) => {
                if !quiet {
                    let (files, lists) = (counted(files, "file"), counted(lists.len() as u64, "list"));
                    tell(&format!("{files} of {lists} in {}\n", name(out)));
                }
                DONE
            }
            Err(why) => failed(&why.to_string()),
        },
        ManifestVerb::Check { list, folder, jobs } => {
            let jobs = jobs.map_or_else(|| available_parallelism().map_or(1, Into::into), usize::from);
            let inexact = AtomicBool::new(false);
            let report = |path: &std::path::Path, fault: ringroad_copy::lists::Fault| {
                // What stands for bytes that are no UTF-8 in a line of `b3sum`.
                if path.to_str().is_some_and(|path| path.contains(char::REPLACEMENT_CHARACTER)) {
                    inexact.store(true, Ordering::Relaxed);
                }
                say(&format!("{} {}", name(path), fault.what()));
            };
            match check(list, folder, jobs, &report) {
                Ok(Checked { good, faults }) => {
                    if inexact.into_inner() {
                        say(
                            "a list of b3sum has no names that are not UTF-8 (cp --manifest FILE.ndjson makes one that has)",
                        );
                    }
                    if !quiet {
                        let verb = |count| if count == 1 { "is" } else { "are" };
                        tell(&format!(
                            "{} {} as in {}, {faults} {} not\n",
                            counted(good, "file"),
                            verb(good),
                            name(list),
                            verb(faults)
                        ));
                    }
                    if faults > 0 { MISMATCH } else { DONE }
                }
                Err(why) => failed(&why.to_string()),
            }
        }
    };
    ExitCode::from(code)
}

fn failed(why: &str) -> u8 {
    say(why);
    FAILED
}

/// Prints on standard output. A closed one is no reason to fail: the files are written.
fn tell(text: &str) {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}
