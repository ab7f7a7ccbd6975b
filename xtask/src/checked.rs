//! `cargo xtask loom` and `cargo xtask asan`: the engine's tests under tools that see what a plain run does not.
//!
//! Loom runs what crosses threads in every order that matters. AddressSanitizer sees reads and writes of memory that
//! is freed or never was ours; it needs a compiler option that is not stable, which RUSTC_BOOTSTRAP unlocks here and
//! nowhere else. Neither sees what the *kernel* writes: for that the tests have buffers of pages (`memory.rs`).
//! Each has a target folder of its own, since its flags would have everything built anew.

use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus, Stdio};

/// Every order of events at the inbox of a runtime, and at a channel without bound.
pub(crate) fn loom(root: &Path) -> ExitCode {
    let mut cargo = cargo(root, "loom");
    // Loom's dependencies take longer to optimise than the models to run.
    cargo.args(["--config", "profile.dev.package.\"*\".opt-level=0"]);
    // A name of our own: some crates we depend on mean something else by plain `loom`, and do not compile with it.
    cargo.args(["test", "--package", "ringroad-engine", "--lib", "--", "inbox", "sync::unbounded"]);
    cargo.env("RUSTFLAGS", "--cfg ringroad_loom");
    run("loom", cargo)
}

/// The engine's tests under AddressSanitizer.
pub(crate) fn asan(root: &Path) -> ExitCode {
    let target = match host() {
        Ok(target) => target,
        Err(error) => {
            eprintln!("asan: rustc -vV: {error}");
            return ExitCode::FAILURE;
        }
    };
    // What rustc supports it for, of what we run on.
    if !matches!(&*target, "x86_64-unknown-linux-gnu" | "aarch64-unknown-linux-gnu") {
        eprintln!("asan: skipped: there is no AddressSanitizer for {target}");
        return ExitCode::SUCCESS;
    }
    let mut cargo = cargo(root, "asan");
    cargo
        .args(["test", "--package", "ringroad-engine", "--lib", "--tests", "--target", &target])
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", "-Zsanitizer=address")
        // Some tests leak on purpose: what the kernel has not let go of.
        .env("ASAN_OPTIONS", "detect_leaks=0");
    // Twenty thousand seeds are for a run that is not three times slower.
    if std::env::var_os("RINGROAD_SEEDS").is_none() {
        cargo.env("RINGROAD_SEEDS", "1000");
    }
    run("asan", cargo)
}

fn cargo(root: &Path, name: &str) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into);
    cargo.current_dir(root).env("CARGO_TARGET_DIR", target.join(name));
    cargo
}

/// This compiler's own target.
fn host() -> io::Result<String> {
    let output = Command::new("rustc").arg("-vV").output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "names no host"))
}

/// Runs tests, and fails also if there were none.
fn run(what: &str, mut cargo: Command) -> ExitCode {
    match follow(cargo.stdout(Stdio::piped()), |_| true, &mut |_| ()) {
        Ok((status, 1..)) if status.success() => ExitCode::SUCCESS,
        Ok((status, 0)) if status.success() => {
            eprintln!("{what}: no test ran");
            ExitCode::FAILURE
        }
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{what}: cargo: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Passes what is wanted of its output on as it comes, shows every line to `look`, and counts the tests that passed.
pub(crate) fn follow(
    cargo: &mut Command,
    wanted: fn(&str) -> bool,
    look: &mut dyn FnMut(&str),
) -> io::Result<(ExitStatus, usize)> {
    let mut child = cargo.spawn()?;
    let mut passed = 0;
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).lines() {
            let line = line?;
            // The console of a kernel ends its lines as a terminal does.
            let line = line.trim_end();
            look(line);
            if wanted(line) {
                println!("{line}");
            }
            passed += usize::from(line.starts_with("test ") && line.ends_with(" ... ok"));
        }
    }
    Ok((child.wait()?, passed))
}
