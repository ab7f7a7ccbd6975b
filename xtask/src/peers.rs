//! Building what the suites `peers` and `http` run beside ours: the example `hello`, and the same by others (`peers/`).
//!
//! All of it goes to `target/peers`, where the suites look. What cannot be built here, for want of a compiler or a
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
    for name in ["hyper", "may", "tokio"] {
        let folder = root.join("peers").join(name);
        let built = run(Command::new(env!("CARGO"))
            .current_dir(&folder)
            .args(["build", "--release", "--quiet", "--target-dir"])
            .arg(out.join("build")));
        let binary = format!("peer-{name}");
        told(name, built.and_then(|()| place(&out.join("build/release").join(&binary), &out.join(&binary))));
    }
    for name in ["go", "gin"] {
        let binary = out.join(format!("peer-{name}"));
        let go = Command::new("go")
            .current_dir(root.join("peers").join(name))
            .args([OsStr::new("build"), OsStr::new("-o"), binary.as_os_str(), OsStr::new(".")])
            .status();
        told(name, go.and_then(ended_well));
    }
    let files = [
        "start.sh",
        "node/hello.js",
        "nginx/nginx.conf",
        "php/fpm.conf",
        "php/nginx-php.conf",
        "php/hello.php",
        "php/swoole.php",
    ];
    files.map(Path::new).into_iter().try_for_each(|file| {
        let name = file.file_name().unwrap_or(file.as_os_str());
        place(&root.join("peers").join(file), &out.join(name))
    })
}

fn run(command: &mut Command) -> io::Result<()> {
    command.status().and_then(ended_well)
}

fn ended_well(status: std::process::ExitStatus) -> io::Result<()> {
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("its build ended with {status}"))) }
}

fn told(name: &str, built: io::Result<()>) {
    if let Err(why) = built {
        eprintln!("peers: {name} is left out: {why}");
    }
}

/// Copied, and put in place at once, so that nobody runs a half of it.
fn place(from: &Path, to: &Path) -> io::Result<()> {
    let new = to.with_extension("new");
    fs::copy(from, &new)?;
    fs::rename(&new, to)
}
