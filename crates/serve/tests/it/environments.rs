//! Environments of Python with packages, made once for all tests.

use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of an environment that was made by `pip install` with these words, below the folder of the
/// build. Tests are processes of their own: one makes it, and others wait.
pub(crate) fn environment(name: &str, install: &[&str]) -> Result<PathBuf, String> {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let lock = File::create(place.with_extension("lock")).map_err(|why| why.to_string())?;
    flock(&lock, FlockOperation::LockExclusive).map_err(|why| why.to_string())?;
    let (done, wanted) = (place.join("done"), install.join(" "));
    if fs::read_to_string(&done).is_ok_and(|made| made == wanted) {
        return Ok(place);
    }
    succeeds(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&place))?;
    let mut pip = Command::new(place.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    succeeds(pip.args(install))?;
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
