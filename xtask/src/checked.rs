//! `cargo xtask loom`, `asan` and `miri`: tests under tools that find what a plain run does not.
//!
//! Loom runs code that several threads share in every relevant order. AddressSanitizer detects accesses to
//! memory that is freed or was never allocated; it needs an unstable compiler option, which RUSTC_BOOTSTRAP
//! enables only here. Miri interprets a program and finds other undefined behaviour; it makes no system
//! calls, so it runs the engine on the simulated driver. None of them detects writes by the *kernel*: for
//! those the tests have buffers of pages (`memory.rs`). Each has its own target folder, since its flags would
//! cause a complete rebuild.

use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus, Stdio};

/// Runs every order of events at the inbox of a runtime, the channels, the semaphore, between the threads
/// driver and one of its workers, and at the blocking pool. Models of three threads limit the preemptions of
/// a thread; each states its limit.
pub(crate) fn loom(root: &Path) -> ExitCode {
    let mut cargo = cargo(root, "loom");
    // Loom's dependencies take longer to optimise than the models to run.
    cargo.args(["--config", "profile.dev.package.\"*\".opt-level=0"]);
    // A name of our own: some dependencies interpret plain `loom`, and do not compile with it.
    cargo.args(["test", "--package", "ringroad-engine", "--lib", "--", "inbox", "sync::"]);
    cargo.args(["driver::threads::model", "blocking"]);
    cargo.env("RUSTFLAGS", "--cfg ringroad_loom");
    run("loom", cargo)
}

/// Packages under AddressSanitizer, and the tests of a sample, as a filter of nextest.
const ASAN: [(&str, &str); 3] = [
    ("ringroad-engine", ENGINE_SAMPLE),
    ("ringroad-engine-tests", ENGINE_SAMPLE),
    ("ringroad-http", HTTP_SAMPLE),
];

/// A sample of the engine's tests omits the longest ones that touch no other memory than the rest: random
/// programs, tests with many connections, tests that count or start a process each, and three drivers that
/// share their code with others.
const ENGINE_SAMPLE: &str = "not test(/seeds::|counts::|choose::|fork::|many|thousand|hundreds/) \
    and not test(/::(poll|select|io_uring_plain)/)";

/// A sample of the HTTP library's tests: bodies, files, and connections that change owners, where buffers
/// pass between the protocol, the handlers and the kernel.
const HTTP_SAMPLE: &str = "test(/bodies::|files::|zero_copy::|messages::|websocket::|replacing::/) \
    and not test(/::(epoll|poll|select)/)";

/// Runs the tests of the engine and of the HTTP library under AddressSanitizer, or a sample of them.
///
/// Needs `cargo nextest`, which runs each test in a process of its own. In one process, tests of many
/// connections use up the descriptors that select(2) can wait for (0 to 1,023), and tests that count the
/// descriptors or mappings of their process count those of other tests.
pub(crate) fn asan(root: &Path, sample: bool) -> ExitCode {
    let target = match host() {
        Ok(target) => target,
        Err(error) => {
            eprintln!("asan: rustc -vV: {error}");
            return ExitCode::FAILURE;
        }
    };
    if !supports_asan(&target) {
        eprintln!("asan: skipped: there is no AddressSanitizer for {target}");
        return ExitCode::SUCCESS;
    }
    if !crate::test::has_nextest(root) {
        eprintln!(
            "asan: cargo nextest is not installed, and each test needs a process of its own \
             (cargo install --locked cargo-nextest)"
        );
        return ExitCode::FAILURE;
    }
    let mut passed = true;
    for (package, of_sample) in ASAN {
        let mut cargo = cargo(root, "asan");
        cargo
            .args(["nextest", "run", "--package", package, "--tests", "--no-fail-fast"])
            .args(["--target", &target])
            // An error that comes once in three tries is an error.
            .args(["--retries", "0"])
            .env("RUSTC_BOOTSTRAP", "1")
            .env("RUSTFLAGS", "-Zsanitizer=address")
            // Some tests leak memory that the kernel may still use.
            .env("ASAN_OPTIONS", "detect_leaks=0");
        // A run that is three times slower has longer time limits, and uses fewer seeds.
        if std::env::var_os("NEXTEST_PROFILE").is_none() {
            cargo.env("NEXTEST_PROFILE", "deep");
        }
        if std::env::var_os("RINGROAD_SEEDS").is_none() {
            cargo.env("RINGROAD_SEEDS", "1000");
        }
        if sample {
            cargo.args(["-E", of_sample]);
        }
        // Nextest fails if no test ran.
        passed &= match crate::test::many_at_a_time(&mut cargo).status() {
            Ok(status) => status.success(),
            Err(error) => {
                eprintln!("asan: cargo: {error}");
                false
            }
        };
    }
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns whether rustc supports AddressSanitizer for a target, of those that the engine supports.
fn supports_asan(target: &str) -> bool {
    matches!(target, "x86_64-unknown-linux-gnu" | "aarch64-unknown-linux-gnu")
}

/// Returns whether there is AddressSanitizer for the host; `true` if rustc does not name the host: that
/// fails later, with the reason.
pub(crate) fn has_asan() -> bool {
    host().map_or(true, |target| supports_asan(&target))
}

/// Returns whether a nightly compiler with Miri is installed.
pub(crate) fn has_miri() -> bool {
    let asked = Command::new("cargo").args(["+nightly", "miri", "--version"]).output();
    asked.is_ok_and(|output| output.status.success())
}

/// Runs the simulated driver and pure code under Miri, with a nightly compiler that has it.
pub(crate) fn miri(root: &Path) -> ExitCode {
    if !has_miri() {
        eprintln!("miri: not run: it is not installed (rustup +nightly component add miri rust-src)");
        return ExitCode::FAILURE;
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into);
    let mut cargo = Command::new("cargo");
    cargo
        .current_dir(root)
        .env("CARGO_TARGET_DIR", target.join("miri"))
        // `cargo run` sets it for its own compiler.
        .env_remove("RUSTUP_TOOLCHAIN")
        // The pool maps its buffers, and a test reads the clock. A test leaks memory that the kernel may
        // still use.
        .env("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-permissive-provenance -Zmiri-ignore-leaks")
        .args(["+nightly", "miri", "test", "--package", "ringroad-engine", "--lib", "--"])
        // Modules: a single word would also select tests of other drivers, which make system calls.
        .args(["driver::sim::", "inflight::", "wheel::", "descriptor::", "exec::tests::"])
        // Depth 8 of every order takes hours under Miri.
        .args(["--skip", "no_order_of_events"])
        // These start processes.
        .args(["--skip", "choose::"])
        // These make calls that the interpreter does not support.
        .args(["--skip", "inflight::request"])
        // Safe code, with hundreds of thousands of steps.
        .args(["--skip", "timers_fire_at_their_tick"]);
    run("miri", cargo)
}

/// Runs a target of `fuzz/` until it finds something or is stopped. Arguments are passed to libFuzzer
/// (`-max_total_time=60`).
///
/// The flags are those of `cargo fuzz`, which requires targets to be binaries; ours are not
/// (`fuzz/Cargo.toml` has the reason).
pub(crate) fn fuzz(root: &Path, target: &str, words: &[String]) -> ExitCode {
    let host = match host() {
        Ok(host) => host,
        Err(error) => {
            eprintln!("fuzz: rustc -vV: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut cargo = cargo(root, "fuzz");
    let corpus = root.join("fuzz/corpus").join(target);
    if let Err(error) = std::fs::create_dir_all(&corpus) {
        eprintln!("fuzz: create, on {}: {error}", corpus.display());
        return ExitCode::FAILURE;
    }
    cargo
        .current_dir(root.join("fuzz"))
        .args(["run", "--release", "--target", &host, "--example", target, "--"])
        .arg(corpus)
        .args(words)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("ASAN_OPTIONS", "detect_odr_violation=0")
        .env("RUSTFLAGS", FUZZ_FLAGS);
    match cargo.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("fuzz: cargo: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Coverage for libFuzzer, AddressSanitizer, and the checks of a debug build.
const FUZZ_FLAGS: &str = "--cfg fuzzing -Zsanitizer=address -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Ccodegen-units=1 -Cdebug-assertions -Coverflow-checks";

fn cargo(root: &Path, name: &str) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into);
    cargo.current_dir(root).env("CARGO_TARGET_DIR", target.join(name));
    cargo
}

/// Returns the host target of this compiler.
fn host() -> io::Result<String> {
    let output = Command::new("rustc").arg("-vV").output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "names no host"))
}

/// Runs tests. Fails also if there were none.
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

/// Forwards the wanted output as it arrives, passes every line to `look`, and counts the tests that passed.
pub(crate) fn follow(
    cargo: &mut Command,
    wanted: impl Fn(&str) -> bool,
    look: &mut dyn FnMut(&str),
) -> io::Result<(ExitStatus, usize)> {
    let mut child = cargo.spawn()?;
    let mut passed = 0;
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).split(b'\n') {
            // The console of a machine may print any byte, and ends its lines with CR LF.
            let line = line?;
            let line = String::from_utf8_lossy(&line);
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
