//! Whether the library builds with none of its features, with each alone and with all: `cargo xtask
//! features`.
//!
//! A build of the workspace has the features of all its crates together. So a file that needs a feature and
//! does not ask for it, and a warning that comes without one, show here only.

use std::path::Path;
use std::process::{Command, ExitCode};

/// Sets of features of the facade, as cargo takes them, and their names in the table of weights.
pub(crate) const SETS: &[(&[&str], &str)] = &[
    (&["--no-default-features"], "none"),
    (&["--no-default-features", "--features", "json"], "`json`"),
    (&["--no-default-features", "--features", "tls"], "`tls`"),
    (&["--no-default-features", "--features", "multipart"], "`multipart`"),
    (&["--no-default-features", "--features", "tracing"], "`tracing`"),
    (&["--no-default-features", "--features", "sim"], "`sim`"),
    (&[], "`json`, `tls` (the default)"),
    (&["--all-features"], "all"),
];

/// Crates that come with `tls` only.
const OF_TLS: &[&str] = &["ringroad-tls", "rustls", "aws-lc-rs", "aws-lc-sys"];

/// Builds the facade, and with it each library below it, with each set of features.
pub(crate) fn features(root: &Path) -> ExitCode {
    let mut failed = 0;
    for (set, name) in SETS {
        println!("features: {name}");
        if let Err(why) = builds(root, set).and_then(|()| is_without_tls(root, set)) {
            eprintln!("features, on {name}: {why}");
            failed += 1;
        }
    }
    println!("features: {failed} of {} sets failed", SETS.len());
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Checks the libraries without their tests, which bring features of their own.
fn builds(root: &Path, set: &[&str]) -> Result<(), String> {
    let mut clippy = Command::new(env!("CARGO"));
    clippy.current_dir(root).args(["clippy", "--quiet", "-p", "ringroad", "--lib"]).args(set);
    let status = clippy.args(["--", "-D", "warnings"]).status();
    match status.map_err(|why| format!("cargo clippy: {why}"))?.success() {
        true => Ok(()),
        false => Err("it does not build, or with warnings".to_owned()),
    }
}

/// Looks for crates of TLS where they do not belong.
fn is_without_tls(root: &Path, set: &[&str]) -> Result<(), String> {
    if set.first() != Some(&"--no-default-features") || set.contains(&"tls") {
        return Ok(());
    }
    let mut tree = Command::new(env!("CARGO"));
    tree.current_dir(root).args(["tree", "-p", "ringroad", "-e", "normal,build", "--prefix", "none"]);
    let output = tree.args(["-f", "{p}"]).args(set).output().map_err(|why| format!("cargo tree: {why}"))?;
    if !output.status.success() {
        return Err(format!("cargo tree: {}", String::from_utf8_lossy(&output.stderr).trim_end()));
    }
    let found = |line: &str| OF_TLS.iter().any(|name| line.split(' ').next() == Some(name));
    match String::from_utf8_lossy(&output.stdout).lines().find(|line| found(line)) {
        Some(line) => Err(format!("{line} comes along without `tls`")),
        None => Ok(()),
    }
}
