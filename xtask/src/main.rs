//! Chores of this repository: `cargo xtask test`, `stress`, `deep`, `tidy`, `charts`, `bench NAME`, `peers`,
//! `loom`, `asan`, `miri`, `denied`, `fuzz`, `dist`, `deb`, `package`, `features`, `semver`, `http2`,
//! `second-kernel` and `coreutils DIR`.
//!
//! `tidy` checks what the compiler cannot: the imports between crates, the crates with unsafe code, the
//! opening comment of every file, and the links of documents. `bench` means a release build and
//! `ringroad lab run benches/NAME.toml`; before the HTTP suites it builds the servers to compare with
//! ([`peers`]). `bench bulk`, `bench copy`, `bench copy-memory`, `bench costs`, `bench held` and `bench tls`
//! are separate programs: the lab measures servers under many small requests, and these measure other things.
#![forbid(unsafe_code)]

mod bench_bulk;
mod bench_copy;
mod bench_costs;
mod bench_held;
mod bench_load;
mod bench_tls;
mod charts;
mod checked;
mod claims;
mod coreutils;
mod deep;
mod denied;
mod dist;
mod features;
mod http2;
mod junit;
mod language;
mod package;
mod peers;
mod picture;
mod recorded;
mod second_kernel;
mod semver;
mod skips;
mod stress;
mod test;
mod tidy;

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

const USAGE: &str = "usage: cargo xtask test [ARGUMENT OF THE RUNNER]...
       cargo xtask stress [FILTER [RUNS]]
       cargo xtask deep [PART...]
       cargo xtask tidy
       cargo xtask wrap FILE...
       cargo xtask charts
       cargo xtask bench NAME [arguments of `ringroad lab run`]
       cargo xtask bench bulk [OPTION VALUE]...
       cargo xtask bench copy [OPTION VALUE]...
       cargo xtask bench copy-memory [OPTION VALUE]...
       cargo xtask bench costs [OPTION VALUE]...
       cargo xtask bench load [OPTION VALUE]...
       cargo xtask bench held [OPTION VALUE]...
       cargo xtask bench tls [OPTION VALUE]...
       cargo xtask picture [PROGRAM]
       cargo xtask peers
       cargo xtask loom
       cargo xtask asan [sample]
       cargo xtask miri
       cargo xtask deny WAY CALLS COMMAND...
       cargo xtask denied [sample | WAY CALLS]
       cargo xtask fuzz TARGET [arguments of libFuzzer]
       cargo xtask dist [x86_64 | aarch64]
       cargo xtask deb [x86_64 | aarch64]
       cargo xtask package [--build] [--record]
       cargo xtask features
       cargo xtask semver [REVISION]
       cargo xtask http2
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
        Some((word, rest)) if word == "stress" => stress::stress(&root, rest),
        Some((word, rest)) if word == "deep" => deep::deep(&root, rest),
        Some((word, [])) if word == "tidy" => tidy(&root),
        Some((word, [name, rest @ ..])) if word == "bench" && name == "bulk" => {
            bench_bulk::bench(&root, rest)
        }
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
        Some((word, [name, rest @ ..])) if word == "bench" && name == "tls" => bench_tls::bench(&root, rest),
        Some((word, [name, rest @ ..])) if word == "bench" => bench(&root, name, rest),
        Some((word, [])) if word == "peers" => match peers::build(&root) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("peers: {error}");
                ExitCode::FAILURE
            }
        },
        Some((word, rest @ ([] | [_]))) if word == "picture" => {
            let program =
                rest.first().map_or_else(|| release_binary(&root), |path| Path::new(path).canonicalize());
            match program.and_then(|ringroad| picture::draw(&root, &ringroad)) {
                Ok(file) => {
                    println!("picture: {}", file.display());
                    ExitCode::SUCCESS
                }
                Err(error) => {
                    eprintln!("picture: {error}");
                    ExitCode::FAILURE
                }
            }
        }
        Some((word, files @ [_, ..])) if word == "wrap" => wrap(files),
        Some((word, [])) if word == "loom" => checked::loom(&root),
        Some((word, [])) if word == "asan" => checked::asan(&root, false),
        Some((word, [sample])) if word == "asan" && sample == "sample" => checked::asan(&root, true),
        Some((word, [])) if word == "miri" => checked::miri(&root),
        Some((word, rest)) if word == "deny" => denied::deny(rest),
        Some((word, rest)) if word == "denied" => denied::denied(&root, rest),
        Some((word, [target, rest @ ..])) if word == "fuzz" => checked::fuzz(&root, target, rest),
        Some((word, rest @ ([] | [_]))) if word == "dist" => dist::dist(&root, rest),
        Some((word, rest @ ([] | [_]))) if word == "deb" => dist::deb(&root, rest),
        Some((word, rest)) if word == "package" => package::package(&root, rest),
        Some((word, [])) if word == "features" => features::features(&root),
        Some((word, rest @ ([] | [_]))) if word == "semver" => semver::semver(&root, rest),
        Some((word, [])) if word == "http2" => http2::judge(&root),
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

/// Wraps comments that are wider than the code.
fn wrap(files: &[String]) -> ExitCode {
    for file in files {
        let written = std::fs::read_to_string(file).and_then(|text| match language::wrapped(&text) {
            wrapped if wrapped == text => Ok(()),
            wrapped => std::fs::write(file, wrapped),
        });
        if let Err(error) = written {
            eprintln!("wrap, on {file}: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
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

/// Runs a suite, with the preparations that it needs.
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

/// Builds the release binary and returns its path.
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
