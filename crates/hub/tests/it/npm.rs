//! Packages of npm and PyPI, installed once below the build's folder, and scripts that use them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Whether a program of another project starts; says so if not.
pub(crate) fn is_there(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("skipped: {program} is not installed");
    }
    found
}

/// The folder `node_modules` with these packages; `None` with the reason on stderr: there is none.
pub(crate) fn npm(name: &str, packages: &[&str]) -> Option<PathBuf> {
    if !is_there("npm") || !is_there("node") {
        return None;
    }
    let arguments = ["install", "--no-audit", "--no-fund", "--ignore-scripts"];
    let folder = installed(name, packages, |folder| {
        let mut command = Command::new("timeout");
        command.args(["120", "npm"]).args(arguments).args(packages).current_dir(folder);
        command
    })?;
    Some(folder.join("node_modules"))
}

/// The folder with these packages of PyPI; `None` with the reason on stderr: there is none.
pub(crate) fn pypi(name: &str, packages: &[&str]) -> Option<PathBuf> {
    if !is_there("python3") {
        return None;
    }
    installed(name, packages, |folder| {
        let mut command = Command::new("timeout");
        let install = ["120", "python3", "-m", "pip", "install", "-q", "--no-compile", "--target"];
        command.args(install).arg(folder).args(packages);
        command
    })
}

/// Installs beside the folder and gives it its name when all is there, so that tests at the same time do
/// not meet in it.
fn installed(name: &str, packages: &[&str], how: impl FnOnce(&Path) -> Command) -> Option<PathBuf> {
    let above = Path::new(env!("CARGO_TARGET_TMPDIR"));
    std::fs::create_dir_all(above).unwrap();
    let versions = packages.join("+").replace(['/', '=', '@'], "-");
    let folder = above.join(format!("{name}-{versions}"));
    if folder.is_dir() {
        return Some(folder);
    }
    let begun = tempfile::tempdir_in(above).unwrap();
    std::fs::write(begun.path().join("package.json"), "{\"private\":true}").unwrap();
    match how(begun.path()).output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            eprintln!("skipped: {name}: {}", String::from_utf8_lossy(&output.stderr));
            return None;
        }
        Err(why) => {
            eprintln!("skipped: {name}: {why}");
            return None;
        }
    }
    let begun = begun.keep();
    if std::fs::rename(&begun, &folder).is_err() {
        assert!(folder.is_dir(), "{} gets its name", begun.display());
        std::fs::remove_dir_all(&begun).unwrap();
    }
    Some(folder)
}

/// Runs a script of this folder, which says `ok` at its end.
pub(crate) fn run<I: AsRef<OsStr>>(
    program: &str,
    script: &str,
    packages: &Path,
    arguments: impl IntoIterator<Item = I>,
) -> Result<(), String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it").join(script);
    let output = Command::new("timeout")
        .args(["120", program])
        .arg(script)
        .args(arguments)
        .env("NODE_PATH", packages)
        .env("PYTHONPATH", packages)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    if said.trim() == "ok" {
        return Ok(());
    }
    Err(format!("{}: {said}{}", output.status, String::from_utf8_lossy(&output.stderr)))
}
