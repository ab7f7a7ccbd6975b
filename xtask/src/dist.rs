//! `cargo xtask dist`: one static binary, tried in a root with nothing else in it.
//!
//! It is linked against musl, which is made for static linking: a glibc linked so still loads its resolver at run time.
//! What runs in an empty root needs no file of its system, so it can be copied into any container.

use rustix::process::{Pid, Signal};
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::time::Duration;

pub(crate) fn dist(root: &Path) -> ExitCode {
    match make(root) {
        Ok(binary) => {
            let bytes = fs::metadata(&binary).map_or(0, |about| about.len());
            println!("dist: {} ({:.1} MiB)", binary.display(), bytes as f64 / f64::from(1 << 20));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("dist: {error}");
            ExitCode::FAILURE
        }
    }
}

fn make(root: &Path) -> io::Result<PathBuf> {
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let built = Command::new(env!("CARGO"))
        .current_dir(root)
        .args(["build", "--release", "--package", "ringroad-cli", "--target", &target])
        // Two thirds of the file are lines for debuggers.
        .args(["--config", "profile.release.strip=\"debuginfo\""])
        // The C and assembly of a hash need a compiler for musl; they include no header of a C library, so any does.
        .env(format!("CC_{}", target.replace('-', "_")), "cc")
        .status()?;
    if !built.success() {
        let hint = format!("cargo build failed; if the target is missing: rustup target add {target}");
        return Err(io::Error::other(hint));
    }
    let folder = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let folder = root.join(folder);
    let made = folder.join(&target).join("release/ringroad");
    let dist = folder.join("dist");
    fs::create_dir_all(&dist)?;
    let binary = dist.join("ringroad");
    fs::copy(made, &binary)?;
    is_static(&binary)?;
    runs_alone(&binary)?;
    Ok(binary)
}

/// Asks for no loader: its program headers name no interpreter (elf(5)).
fn is_static(binary: &Path) -> io::Result<()> {
    const INTERPRETER: u32 = 3;
    let bytes = fs::read(binary)?;
    let number = |at: usize, length: usize| {
        let field = bytes.get(at..at + length).unwrap_or_default();
        field.iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte))
    };
    if !bytes.starts_with(b"\x7fELF\x02\x01") {
        return Err(io::Error::other("not a little-endian 64-bit ELF file"));
    }
    let (start, size, count) = (number(32, 8) as usize, number(54, 2) as usize, number(56, 2) as usize);
    let kinds = (0..count).map(|index| number(start + index * size, 4) as u32);
    if count == 0 || kinds.into_iter().any(|kind| kind == INTERPRETER) {
        return Err(io::Error::other("the binary asks for a loader: it is not static"));
    }
    Ok(())
}

/// Does its work in a root that holds nothing but itself and two files: no libraries, no /proc, no /dev.
fn runs_alone(binary: &Path) -> io::Result<()> {
    let root = tempfile::tempdir()?;
    fs::copy(binary, root.path().join("ringroad"))?;
    symlink("ringroad", root.path().join("cp"))?;
    fs::write(root.path().join("file"), "alone\n")?;
    let version = alone(root.path(), &["/ringroad", "--version"])?;
    expect("--version", &version, version.stdout.starts_with(b"ringroad "))?;
    let doctor = alone(root.path(), &["/ringroad", "doctor", "--json"])?;
    let found: serde_json::Value = serde_json::from_slice(&doctor.stdout).map_err(io::Error::other)?;
    expect("doctor", &doctor, doctor.status.success() && found["chosen"].is_string())?;
    let cat = alone(root.path(), &["/ringroad", "cat", "-q", "/file"])?;
    expect("cat", &cat, cat.stdout == b"alone\n")?;
    let copy = alone(root.path(), &["/cp", "/file", "/copy"])?;
    expect("cp", &copy, copy.status.success() && fs::read(root.path().join("copy"))? == b"alone\n")?;
    let chosen = found["chosen"].as_str().unwrap_or_default();
    serves_alone(root.path(), &format!("engine-{chosen}"))?;
    println!("dist: doctor, cat, cp and lab server run in an empty root: driver {chosen}");
    Ok(())
}

/// `lab server`, until it is told to stop: one request, answered, and counted by it.
fn serves_alone(root: &Path, model: &str) -> io::Result<()> {
    let words =
        ["/ringroad", "lab", "server", "--model", model, "--protocol", "http", "--listen", "127.0.0.1:0"];
    let mut server = in_root(root, &words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let asked = ask(&mut server);
    // `unshare` has become the server, so the signal is for it.
    let pid = Pid::from_child(&server);
    rustix::process::kill_process(pid, Signal::TERM)?;
    let output = server.wait_with_output()?;
    let answer = match asked {
        Ok(answer) => answer,
        Err(error) => {
            expect("lab server", &output, false)?;
            return Err(error);
        }
    };
    expect("lab server", &output, output.status.success() && answer.contains("<h1>Hello World</h1>"))
}

/// Waits for the line that says where it listens, and asks for a page there.
fn ask(server: &mut Child) -> io::Result<String> {
    let output = server.stdout.as_mut().ok_or_else(|| io::Error::other("no output"))?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    let address = line
        .trim_end()
        .strip_prefix("listening on ")
        .ok_or_else(|| io::Error::other(format!("it said {line:?} and not where it listens")))?;
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: alone\r\n\r\n")?;
    let mut answer = Vec::new();
    let mut piece = [0; 1024];
    while !answer.ends_with(b"</h1>") {
        match stream.read(&mut piece)? {
            0 => break,
            bytes => answer.extend_from_slice(&piece[..bytes]),
        }
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn expect(what: &str, output: &Output, right: bool) -> io::Result<()> {
    if right {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{what}, in an empty root: {}: {said}", output.status)))
}

fn alone(root: &Path, words: &[&str]) -> io::Result<Output> {
    in_root(root, words).output()
}

/// In a root of its own; who is not root becomes it in a user namespace first.
fn in_root(root: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.arg("--root").arg(root).args(words).env_clear();
    command
}
