//! Environments of Python with packages, made once for all tests.

use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of an environment that was made by `pip install` with these words, below the folder of the
/// build. Tests are processes of their own: one makes it, and others wait. Modules that many tests import are
/// imported here first, so that Python compiles them once and not in each test that begins then.
pub(crate) fn environment(name: &str, install: &[&str], modules: &[&str]) -> Result<PathBuf, String> {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let lock = File::create(place.with_extension("lock")).map_err(|why| why.to_string())?;
    flock(&lock, FlockOperation::LockExclusive).map_err(|why| why.to_string())?;
    let (done, wanted) = (place.join("done"), install.join(" "));
    if fs::read_to_string(&done).is_ok_and(|made| made == wanted) {
        return Ok(place);
    }
    // It has no pip of its own, and modules are compiled when they are imported: either takes seconds.
    succeeds(Command::new("python3").args(["-m", "venv", "--clear", "--without-pip"]).arg(&place))?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "--python"]).arg(place.join("bin/python"));
    pip.args(["install", "--quiet", "--disable-pip-version-check", "--no-compile"]);
    succeeds(pip.args(install))?;
    if !modules.is_empty() {
        let import = format!("import {}", modules.join(", "));
        // Where that fails, the test that imports them reports it.
        let _ = succeeds(Command::new(place.join("bin/python")).args(["-c", &import]));
    }
    fs::write(done, wanted).map_err(|why| why.to_string())?;
    Ok(place)
}

fn succeeds(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|why| format!("python3: {why}"))?;
    if output.status.success() {
        return Ok(());
    }
    let told = [output.stdout, output.stderr].concat();
    Err(String::from_utf8_lossy(&told).trim().to_owned())
}
