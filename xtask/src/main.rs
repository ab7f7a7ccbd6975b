//! Chores of this repository: `cargo xtask test`, `tidy`, `charts`, `bench NAME`, `peers`, `loom`, `asan`, `denied`, `dist`,
//! `second-kernel` and `coreutils DIR`.
//!
//! `tidy` holds what the compiler cannot: which crate may import which, where unsafe may live, that every file
//! says what it is for, that documents point at what exists. `bench` is shorthand for a release build and
//! `ringroad lab run benches/NAME.toml`, before which the suites about HTTP build what they compare with ([`peers`]);
//! `bench copy`, `bench copy-memory`, `bench costs` and `bench held` are their own, since copiers and parts of a runtime
//! are no servers, and connections that do nothing are no load.
#![forbid(unsafe_code)]

mod bench_copy;
mod bench_costs;
mod bench_held;
mod bench_load;
mod charts;
mod checked;
mod claims;
mod coreutils;
mod denied;
mod dist;
mod peers;
mod recorded;
mod second_kernel;
mod test;
mod tidy;

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

const USAGE: &str = "usage: cargo xtask test [ARGUMENT OF THE RUNNER]...
       cargo xtask tidy
       cargo xtask charts
       cargo xtask bench NAME [arguments of `ringroad lab run`]
       cargo xtask bench copy [OPTION VALUE]...
       cargo xtask bench copy-memory [OPTION VALUE]...
       cargo xtask bench costs [OPTION VALUE]...
       cargo xtask bench load [OPTION VALUE]...
       cargo xtask bench held [OPTION VALUE]...
       cargo xtask peers
       cargo xtask loom
       cargo xtask asan
       cargo xtask deny WAY CALLS COMMAND...
       cargo xtask denied [sample | WAY CALLS]
       cargo xtask dist
       cargo xtask second-kernel [NAME...]
       cargo xtask coreutils DIR [TEST...]";

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.split_first() {
        Some((word, [])) if word == "charts" => match charts::draw(&root) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("charts: {error}");
                ExitCode::FAILURE
            }
        },
        Some((word, rest)) if word == "test" => test::test(&root, rest),
        Some((word, [])) if word == "tidy" => tidy(&root),
        Some((word, [name, rest @ ..])) if word == "bench" && name == "copy" => {
            bench_copy::bench(&root, rest)
        }
        Some((word, [name, rest @ ..])) if word == "bench" && name == "copy-memory" => {
            bench_copy::memory(&root, rest)
        }
        Some((word, [name, rest @ ..])) if word == "bench" && name == "costs" => {
            bench_costs::bench(&root, rest)
        }
        Some((word, [name, rest @ ..])) if word == "bench" && name == "load" => {
            bench_load::bench(&root, rest)
        }
        Some((word, [name, rest @ ..])) if word == "bench" && name == "held" => {
            bench_held::bench(&root, rest)
        }
        Some((word, [name, rest @ ..])) if word == "bench" => bench(&root, name, rest),
        Some((word, [])) if word == "peers" => match peers::build(&root) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("peers: {error}");
                ExitCode::FAILURE
            }
        },
        Some((word, [])) if word == "loom" => checked::loom(&root),
        Some((word, [])) if word == "asan" => checked::asan(&root),
        Some((word, rest)) if word == "deny" => denied::deny(rest),
        Some((word, rest)) if word == "denied" => denied::denied(&root, rest),
        Some((word, [])) if word == "dist" => dist::dist(&root),
        Some((word, names)) if word == "second-kernel" => second_kernel::run(&root, names),
        Some((word, rest @ [_, ..])) if word == "coreutils" => coreutils::run(&root, rest),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn tidy(root: &Path) -> ExitCode {
    let findings = match tidy::check(root) {
        Ok(findings) => findings,
        Err(error) => {
            eprintln!("tidy: {error}");
            return ExitCode::FAILURE;
        }
    };
    for finding in &findings {
        println!("{finding}");
    }
    match claims::check(root) {
        Ok(checked) if checked.with_documents => {
            println!("tidy: the claims were held against the documents too")
        }
        _ => println!(
            "tidy: the documents are not beside this checkout: the claims were held against the list of their cells"
        ),
    }
    println!("tidy: {} found", findings.len());
    if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn bench(root: &Path, name: &str, rest: &[String]) -> ExitCode {
    let suite = root.join("benches").join(format!("{name}.toml"));
    if !suite.is_file() {
        let mut known: Vec<String> = std::fs::read_dir(root.join("benches"))
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| Some(entry.path().file_stem()?.to_string_lossy().into_owned()))
            .collect();
        known.sort();
        eprintln!("bench: no suite {name:?} (there are: {})", known.join(", "));
        return ExitCode::from(2);
    }
    match lab(root, name, &suite, rest) {
        Ok(status) => ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)),
        Err(error) => {
            eprintln!("bench {name}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a suite, with what it needs around it.
fn lab(root: &Path, name: &str, suite: &Path, rest: &[String]) -> io::Result<ExitStatus> {
    let ringroad = release_binary(root)?;
    if peers::SUITES.contains(&name) {
        peers::build(root)?;
    }
    let mut run = Command::new(&ringroad);
    run.current_dir(root).args(["lab", "run"]).arg(suite).args(rest);
    let behind = if name == "proxy" { Some(peers::behind(root, &ringroad)?) } else { None };
    if let Some(behind) = &behind {
        run.env("UPSTREAM", behind.address.to_string());
    }
    run.status()
}

/// Builds the binary as users have it, and says where it is.
fn release_binary(root: &Path) -> io::Result<PathBuf> {
    let built = Command::new(env!("CARGO"))
        .current_dir(root)
        .args(["build", "--release", "--quiet", "--package", "ringroad-cli"])
        .status()?;
    if !built.success() {
        return Err(io::Error::other("cargo build --release failed"));
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    root.join(target).join("release/ringroad").canonicalize()
}
