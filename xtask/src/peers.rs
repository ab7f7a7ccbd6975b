//! Building what `benches/http.toml` runs beside ours: the example `hello`, and the same page by others (`peers/`).
//!
//! All of it goes to `target/peers`, where the suite looks. What cannot be built here, for want of a compiler or a
//! network, is said and left out; the lab then records it as skipped.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds everybody that can be built.
///
/// # Errors
/// Ours cannot be.
pub(crate) fn build(root: &Path) -> io::Result<()> {
    let out = root.join("target/peers");
    fs::create_dir_all(out.join("nginx-tmp"))?;
    let out = out.canonicalize()?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let target = root.join(target);
    run(Command::new(env!("CARGO")).current_dir(root).args([
        "build",
        "--release",
        "--quiet",
        "--package",
        "ringroad",
        "--example",
        "hello",
    ]))?;
    place(&target.join("release/examples/hello"), &out.join("hello"))?;
    for name in ["hyper", "may"] {
        let folder = root.join("peers").join(name);
        let built = run(Command::new(env!("CARGO"))
            .current_dir(&folder)
            .args(["build", "--release", "--quiet", "--target-dir"])
            .arg(out.join("build")));
        let binary = format!("peer-{name}");
        told(name, built.and_then(|()| place(&out.join("build/release").join(&binary), &out.join(&binary))));
    }
    let go = Command::new("go")
        .current_dir(root.join("peers/go"))
        .args([OsStr::new("build"), OsStr::new("-o"), out.join("peer-go").as_os_str(), OsStr::new(".")])
        .status();
    told("go", go.and_then(ended_well));
    place(&root.join("peers/node/hello.js"), &out.join("hello.js"))?;
    place(&root.join("peers/nginx/nginx.conf"), &out.join("nginx.conf"))
}

fn run(command: &mut Command) -> io::Result<()> {
    command.status().and_then(ended_well)
}

fn ended_well(status: std::process::ExitStatus) -> io::Result<()> {
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("its build ended with {status}"))) }
}

fn told(name: &str, built: io::Result<()>) {
    if let Err(why) = built {
        eprintln!("bench http: {name} is left out: {why}");
    }
}

/// Copied, and put in place at once, so that nobody runs a half of it.
fn place(from: &Path, to: &Path) -> io::Result<()> {
    let new = to.with_extension("new");
    fs::copy(from, &new)?;
    fs::rename(&new, to)
}
