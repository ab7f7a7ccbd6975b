//! Whether the libraries keep what they have promised: `cargo xtask semver [REVISION]`.
//!
//! `cargo-semver-checks` compares the public items of each published library with those of a revision, and
//! reports a change that the version does not allow. Without an argument the revision is the last tag `v*`. A
//! library that the revision does not have yet has promised nothing, and is named and left out.

use crate::package::libraries;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Compares the published libraries with those of a revision.
pub(crate) fn semver(root: &Path, words: &[String]) -> ExitCode {
    let revision = match words {
        [revision] => commit(root, revision),
        _ => last_tag(root),
    };
    match revision.and_then(|revision| compare(root, &revision)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("semver: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the commit that `revision` names. One that does not exist would look like one without libraries.
fn commit(root: &Path, revision: &str) -> Result<String, String> {
    let mut git = Command::new("git");
    git.current_dir(root).args(["rev-parse", "--verify", "--quiet", "--end-of-options"]);
    let output = git.arg(format!("{revision}^{{commit}}")).output().map_err(|why| format!("git: {why}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(format!("{revision} names no commit of this repository")),
    }
}

/// Whether the revision has this file.
fn has(root: &Path, revision: &str, file: &str) -> Result<bool, String> {
    let mut git = Command::new("git");
    git.current_dir(root).args(["cat-file", "-e", &format!("{revision}:{file}")]);
    let output = git.output().map_err(|why| format!("git cat-file: {why}"))?;
    Ok(output.status.success())
}

fn last_tag(root: &Path) -> Result<String, String> {
    let mut git = Command::new("git");
    git.current_dir(root).args(["describe", "--tags", "--abbrev=0", "--match", "v*"]);
    let output = git.output().map_err(|why| format!("git describe: {why}"))?;
    if !output.status.success() {
        return Err("there is no tag v* yet: name the revision to compare with".to_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn compare(root: &Path, revision: &str) -> Result<bool, String> {
    let there = Command::new("cargo").args(["semver-checks", "--version"]).output();
    if !there.is_ok_and(|output| output.status.success()) {
        return Err(
            "cargo-semver-checks is not installed: cargo install cargo-semver-checks --locked".to_owned()
        );
    }
    let mut command = Command::new("cargo");
    command.current_dir(root).args(["semver-checks", "check-release", "--baseline-rev", revision]);
    let mut compared = 0;
    for (manifest, name) in libraries() {
        if has(root, revision, &manifest)? {
            command.args(["--package", &name]);
            compared += 1;
        } else {
            println!("semver: {name} is not in {revision}: left out");
        }
    }
    if compared == 0 {
        return Err(format!("{revision} has none of the libraries: name a later revision"));
    }
    let status = command.status().map_err(|why| format!("cargo semver-checks: {why}"))?;
    Ok(status.success())
}
