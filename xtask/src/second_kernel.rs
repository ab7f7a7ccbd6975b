//! `cargo xtask second-kernel [NAME...]`: the engine's suite under another kernel, and what the doctor says
//! there.
//!
//! User-mode Linux is a kernel that runs as an ordinary process; Debian's package `user-mode-linux` is Linux
//! 6.1, the oldest with what the io_uring driver needs. Its root is this machine's, read only, so the
//! binaries are the ones built here. It has one CPU and counts no time one could believe: it is for
//! correctness.

use crate::checked;
use crate::denied::{ENGINE, test_binaries};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

const KERNEL: &str = "linux.uml";
/// Seconds until it is ended. It takes five minutes; on a busy host three times as long.
const PATIENCE: &str = "2400";
const OVER: &str = "second-kernel: over, failed:";

/// The tests with one of `names` in their name; all if `names` is empty.
pub(crate) fn run(root: &Path, names: &[String]) -> ExitCode {
    match boot(root, names) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("second-kernel: {error}");
            ExitCode::FAILURE
        }
    }
}

fn boot(root: &Path, names: &[String]) -> io::Result<bool> {
    let binaries = test_binaries(root, ENGINE).map_err(io::Error::other)?;
    let doctor = ringroad(root)?;
    let folder = tempfile::tempdir()?;
    let init = folder.path().join("init");
    fs::write(&init, script(&root.canonicalize()?, &doctor, &binaries, names))?;
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755))?;
    let mut kernel = Command::new("timeout");
    kernel
        .args(["--kill-after=10", PATIENCE, KERNEL])
        .args([
            "mem=2G",
            "root=/dev/root",
            "rootfstype=hostfs",
            "rootflags=/",
            "ro",
            "quiet",
            "con=null",
            "con0=null,fd:1",
        ])
        .arg(format!("init={}", init.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut failed = true;
    let followed = checked::follow(&mut kernel, |line| !line.ends_with("... ok"), &mut |line| {
        if let Some((_, count)) = line.split_once(OVER) {
            failed = count.trim() != "0";
        }
    });
    let (status, passed) = followed?;
    match status.code() {
        // timeout(1)
        Some(127) => Err(io::Error::other(format!("there is no {KERNEL}: apt-get install user-mode-linux"))),
        Some(124 | 137) => Err(io::Error::other(format!("not over after {PATIENCE} s, {passed} passed"))),
        _ => {
            println!("second-kernel: {passed} passed");
            Ok(!failed && passed > 0)
        }
    }
}

/// The first process there: mounts what a suite needs, runs it, and ends the kernel.
fn script(root: &Path, doctor: &Path, binaries: &[String], names: &[String]) -> String {
    let mut text = String::from(
        "#!/bin/sh\n\
         export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/run TMPDIR=/run RINGROAD_SEEDS=500 NO_COLOR=1 RUST_BACKTRACE=0\n\
         mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t tmpfs tmp /run; mount -t devtmpfs dev /dev\n\
         mkdir -p /dev/shm; mount -t tmpfs shm /dev/shm\n\
         ip link set lo up\n\
         ulimit -n 20000\n\
         failed=0\n",
    );
    text.push_str(&format!("{} doctor\ncd {}/crates/engine\n", quoted(doctor), quoted(root)));
    let names: String = names.iter().map(|name| format!(" {}", quoted(Path::new(name)))).collect();
    for binary in binaries {
        // Two at a time, as on two CPUs: with more, tests of the harness's deadlines would be of the
        // scheduler.
        text.push_str(&format!(
            "{} --test-threads=2 --color=never{names} || failed=$((failed + 1))\n",
            quoted(Path::new(binary))
        ));
    }
    text.push_str(&format!("echo {OVER} $failed\nhalt -f || reboot -f\n"));
    text
}

fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

/// The program itself, built as the tests are.
fn ringroad(root: &Path) -> io::Result<PathBuf> {
    let built = Command::new(env!("CARGO"))
        .current_dir(root)
        .args(["build", "--quiet", "--package", "ringroad-cli"])
        .status()?;
    if !built.success() {
        return Err(io::Error::other("cargo build failed"));
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    root.join(target).join("debug/ringroad").canonicalize()
}
