//! `cargo xtask second-kernel [NAME...]`: the engine's suite under another kernel, and what the doctor says
//! there.
//!
//! `RINGROAD_KERNEL` names the kernel's image. QEMU runs it with two emulated processors: no module, no disk
//! and no hardware support is needed, and another kernel than this machine's is one download away (`apt-get
//! download linux-image-…`, `dpkg -x`). Emulation is some ten
//! times slower, and its clock jumps, so it is for correctness.
//!
//! The initial RAM file system ([`archive`]) is all that the kernel gets: busybox, the doctor, the test
//! binaries and their libraries.

use crate::checked;
use crate::denied::{ENGINE, test_binaries};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

mod archive;

use archive::Archive;

/// The emulator, for the architecture of the test binaries.
const EMULATOR: &str =
    if cfg!(target_arch = "aarch64") { "qemu-system-aarch64" } else { "qemu-system-x86_64" };
/// Seconds until it is ended. It takes some ten minutes; on a busy host three times as long.
const PATIENCE: &str = "2400";
const OVER: &str = "second-kernel: over, failed:";
/// The variable with the kernel's image.
const VARIABLE: &str = "RINGROAD_KERNEL";
/// Programs of busybox that the init script, and tests by `sh`, call.
const APPLETS: [&str; 11] =
    ["cat", "echo", "ip", "mkdir", "mount", "poweroff", "sh", "sleep", "true", "uname", "unshare"];
/// Files that the C library reads to resolve names.
const OF_NAMES: [(&str, &str); 2] =
    [("/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"), ("/etc/nsswitch.conf", "hosts: files\n")];

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
    let kernel = kernel().ok_or_else(|| {
        io::Error::other(format!(
            "name the image of a kernel as {VARIABLE} (on Debian: apt-get download \
             linux-image-VERSION-cloud-amd64, dpkg -x FILE FOLDER, FOLDER/boot/vmlinuz-VERSION-cloud-amd64)"
        ))
    })?;
    let binaries = test_binaries(root, ENGINE).map_err(io::Error::other)?;
    // Written again by the next run, also after one that was interrupted.
    let image = target(root).join("second-kernel.initramfs");
    pack(&image, &ringroad(root)?, &binaries, names)?;
    println!("second-kernel: {}", kernel.display());
    let mut machine = Command::new("timeout");
    machine
        .args([
            "--foreground",
            "--kill-after=10",
            PATIENCE,
            EMULATOR,
            "-accel",
            "tcg,thread=multi",
            "-cpu",
            "max",
        ])
        .args(["-smp", "2", "-m", "3G", "-nic", "none", "-no-reboot"])
        .args(["-display", "none", "-monitor", "none", "-serial", "stdio"])
        .args(if cfg!(target_arch = "aarch64") { &["-machine", "virt"][..] } else { &[] })
        .arg("-kernel")
        .arg(&kernel)
        .arg("-initrd")
        .arg(&image)
        // A panic of the kernel ends the machine.
        .args(["-append", "console=ttyS0 console=ttyAMA0 quiet panic=-1"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut failed = None;
    let followed = checked::follow(&mut machine, |line| !line.ends_with("... ok"), &mut |line| {
        if let Some((_, count)) = line.split_once(OVER) {
            failed = Some(count.trim() != "0");
        }
    });
    let (status, passed) = followed?;
    match status.code() {
        // timeout(1)
        Some(127) => Err(io::Error::other(format!("there is no {EMULATOR}: apt-get install qemu-system"))),
        Some(124 | 137) => Err(io::Error::other(format!("not over after {PATIENCE} s, {passed} passed"))),
        _ => {
            println!("second-kernel: {passed} passed");
            let why = || io::Error::other(format!("the machine ended before the tests were over ({status})"));
            Ok(!failed.ok_or_else(why)? && passed > 0)
        }
    }
}

/// Returns the kernel's image, if one is named.
pub(crate) fn kernel() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).filter(|named| !named.is_empty()).map(PathBuf::from)
}

/// Writes the initial RAM file system.
fn pack(image: &Path, doctor: &Path, binaries: &[String], names: &[String]) -> io::Result<()> {
    let busybox = busybox()?;
    let mut programs =
        BTreeMap::from([("/bin/busybox".to_owned(), busybox), ("/ringroad".to_owned(), doctor.into())]);
    let tests: Vec<_> = (0..binaries.len()).map(|at| format!("/tests-{at}")).collect();
    programs.extend(tests.iter().cloned().zip(binaries.iter().map(PathBuf::from)));
    let mut files = programs.clone();
    for program in programs.values() {
        files.extend(libraries(program)?.into_iter().map(|path| (path.display().to_string(), path)));
    }
    let mut archive = Archive::new(io::BufWriter::new(fs::File::create(image)?));
    for folder in ["/dev", "/proc", "/run", "/sys", "/tmp"] {
        archive.folder(folder)?;
    }
    for (name, path) in &files {
        let content = fs::read(path).map_err(|why| io::Error::other(format!("{}: {why}", path.display())))?;
        archive.file(name, &content)?;
    }
    for (name, text) in OF_NAMES {
        archive.file(name, text.as_bytes())?;
    }
    for applet in APPLETS {
        archive.link(&format!("/bin/{applet}"), "busybox")?;
    }
    archive.file("/init", script(&tests, names).as_bytes())?;
    archive.finish()?.flush()
}

/// Returns the path of busybox.
fn busybox() -> io::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join("busybox")).find(|path| path.is_file());
    found.ok_or_else(|| io::Error::other("there is no busybox in PATH: apt-get install busybox-static"))
}

/// Returns the libraries that a program is linked to, with its loader. A static program has none.
fn libraries(program: &Path) -> io::Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output();
    let output = output.map_err(|why| io::Error::other(format!("ldd: {why}")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if let Some(missing) = text.lines().find(|line| line.ends_with("not found")) {
        return Err(io::Error::other(format!("{}: {}", program.display(), missing.trim())));
    }
    let words = text.lines().flat_map(str::split_whitespace);
    Ok(words.filter(|word| word.starts_with('/')).map(PathBuf::from).collect())
}

/// The first process there: mounts what a suite needs, runs it, and ends the machine.
fn script(tests: &[String], names: &[String]) -> String {
    let mut text = String::from(
        "#!/bin/sh\n\
         export PATH=/bin HOME=/run TMPDIR=/run RINGROAD_SEEDS=500 NO_COLOR=1 RUST_BACKTRACE=0\n\
         mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t tmpfs tmp /run; mount -t devtmpfs dev /dev\n\
         mkdir -p /dev/shm; mount -t tmpfs shm /dev/shm\n\
         mkdir -p /dev/pts; mount -t devpts pts /dev/pts\n\
         ip link set lo up\n\
         ulimit -n 20000\n\
         failed=0\n\
         uname -a\n\
         /ringroad doctor\n",
    );
    let names: String = names.iter().map(|name| format!(" {}", quoted(name))).collect();
    for tests in tests {
        // Two at a time, as on two CPUs: with more, tests of the harness's deadlines would be of the
        // scheduler.
        text.push_str(&format!("{tests} --test-threads=2 --color=never{names} || failed=$((failed + 1))\n"));
    }
    text.push_str(&format!("echo {OVER} $failed\npoweroff -f\n"));
    text
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The program itself, built as the tests are.
fn ringroad(root: &Path) -> io::Result<PathBuf> {
    let built = Command::new(env!("CARGO"))
        .current_dir(root)
        .args(["build", "--quiet", "--workspace", "--bin", "ringroad"])
        .status()?;
    if !built.success() {
        return Err(io::Error::other("cargo build failed"));
    }
    target(root).join("debug/ringroad").canonicalize()
}

fn target(root: &Path) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    root.join(target)
}
