//! Whether the libraries can be published as they are: `cargo xtask package`.
//!
//! [`check`] reads manifests and licence files, and runs with the tests. [`package`] also has cargo make the
//! packages, looks into each, holds every dependency against the oldest compiler that is promised, and counts
//! the crates that come along ([`WEIGHT`]). It publishes nothing. Programs and what only they use are not on
//! the list: they are installed from a release or from the repository.

use crate::features::SETS;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Folders under `crates/` that are published, in the order in which they are: each after what it needs.
const PUBLISHED: &[&str] =
    &["uring", "host", "wire", "policy", "macros", "tls", "engine", "io", "bridge", "http", "ringroad"];

const LICENCES: &[&str] = &["LICENSE-APACHE", "LICENSE-MIT"];

/// The table of the crates that come with each feature.
const WEIGHT: &str = "docs/weight.md";

/// A package is at most so large, compressed.
const PACKAGE_BYTES_MAX: u64 = 1 << 20;

fn table(path: &Path) -> Result<toml::Table, String> {
    let text = fs::read_to_string(path).map_err(|why| format!("{}: {why}", path.display()))?;
    text.parse().map_err(|why| format!("{}: {why}", path.display()))
}

fn name_of(folder: &str) -> String {
    if folder == "ringroad" { folder.to_owned() } else { format!("ringroad-{folder}") }
}

/// Returns the published libraries that have public items, each with its manifest and its name. Attributes
/// and macros are none.
pub(crate) fn libraries() -> impl Iterator<Item = (String, String)> {
    let named = |folder: &&str| (format!("crates/{folder}/Cargo.toml"), name_of(folder));
    PUBLISHED.iter().filter(|folder| **folder != "macros").map(named)
}

/// What keeps the libraries from being published, one line each.
pub(crate) fn check(root: &Path) -> Result<Vec<String>, String> {
    let workspace = table(&root.join("Cargo.toml"))?;
    let version = workspace
        .get("workspace")
        .and_then(|workspace| workspace.get("package")?.get("version")?.as_str())
        .ok_or("the workspace has no version")?;
    let shared = workspace.get("workspace").and_then(|workspace| workspace.get("dependencies"));
    let mut found = Vec::new();
    let mut folders: Vec<String> = fs::read_dir(root.join("crates"))
        .map_err(|why| format!("crates: {why}"))?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    folders.sort();
    for folder in &folders {
        let at = root.join("crates").join(folder);
        for licence in LICENCES {
            if fs::read(at.join(licence)).ok() != fs::read(root.join(licence)).ok() {
                found.push(format!("crates/{folder}: {licence} is not that of the repository: link it"));
            }
        }
    }
    for (place, folder) in PUBLISHED.iter().enumerate() {
        let manifest = table(&root.join("crates").join(folder).join("Cargo.toml"))?;
        let package = manifest.get("package");
        let mut wrong = |what: String| found.push(format!("crates/{folder}/Cargo.toml: {what}"));
        let text = |key: &str| package.and_then(|package| package.get(key)?.as_str()).unwrap_or_default();
        let count = |key: &str| {
            package.and_then(|package| Some(package.get(key)?.as_array()?.len())).unwrap_or_default()
        };
        if text("description").len() < 20 {
            wrong("the description is missing or too short".to_owned());
        }
        for key in ["keywords", "categories"] {
            if !(1..=5).contains(&count(key)) {
                wrong(format!("one to five {key} are allowed"));
            }
        }
        for key in ["version", "license", "rust-version", "readme", "edition"] {
            let is_shared =
                package.and_then(|package| package.get(key)?.get("workspace")?.as_bool()).unwrap_or_default();
            if !is_shared {
                wrong(format!("{key} is not the workspace's"));
            }
        }
        if package.and_then(|package| package.get("publish")?.as_bool()) != Some(true) {
            wrong("publish = true is missing".to_owned());
        }
        let needs = manifest.get("dependencies").and_then(toml::Value::as_table);
        for need in needs.into_iter().flat_map(|needs| needs.keys()) {
            let Some(other) = need.strip_prefix("ringroad-") else { continue };
            match PUBLISHED.iter().position(|folder| *folder == other) {
                Some(before) if before < place => {}
                Some(_) => wrong(format!("{need} is published later")),
                None => wrong(format!("{need} is not published")),
            }
        }
        // Where others depend on it, a version stands beside the path.
        let told = shared.and_then(|shared| shared.get(name_of(folder))?.get("version")?.as_str());
        if *folder != "ringroad" && told != Some(version) {
            found.push(format!("Cargo.toml: {} needs version = {version:?}", name_of(folder)));
        }
    }
    Ok(found)
}

fn cargo(root: &Path, arguments: &[&str]) -> io::Result<String> {
    let output = Command::new(env!("CARGO")).current_dir(root).args(arguments).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(io::Error::other(format!(
        "cargo {} failed:\n{}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    )))
}

/// Makes the packages, and looks into them.
pub(crate) fn package(root: &Path, words: &[String]) -> ExitCode {
    match all(root, words) {
        Ok(found) if found.is_empty() => ExitCode::SUCCESS,
        Ok(found) => {
            found.iter().for_each(|what| println!("{what}"));
            println!("package: {} found", found.len());
            ExitCode::FAILURE
        }
        Err(why) => {
            eprintln!("package: {why}");
            ExitCode::FAILURE
        }
    }
}

fn all(root: &Path, words: &[String]) -> Result<Vec<String>, String> {
    let (mut builds, mut records) = (false, false);
    for word in words {
        match word.as_str() {
            "--build" => builds = true,
            "--record" => records = true,
            other => return Err(format!("{other:?}: expected --build or --record")),
        }
    }
    let mut found = check(root)?;
    let failed = |why: io::Error| why.to_string();
    let names: Vec<String> = PUBLISHED.iter().map(|folder| name_of(folder)).collect();
    let selected: Vec<&str> = names.iter().flat_map(|name| ["-p", name.as_str()]).collect();

    // All at once, so that each finds the others though none is in the registry.
    let mut arguments = vec!["package", "--allow-dirty", "--quiet"];
    if !builds {
        arguments.push("--no-verify");
    }
    cargo(root, &[&arguments[..], &selected[..]].concat()).map_err(failed)?;
    println!("package: {} packages were made", names.len());
    let metadata = cargo(root, &["metadata", "--format-version", "1", "--locked"]).map_err(failed)?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata).map_err(|why| why.to_string())?;
    let target = metadata.get("target_directory").and_then(|path| path.as_str()).unwrap_or("target");
    for name in &names {
        let listed = cargo(root, &["package", "--allow-dirty", "--list", "-p", name]).map_err(failed)?;
        let files: BTreeSet<&str> = listed.lines().collect();
        for wanted in ["LICENSE-APACHE", "LICENSE-MIT", "README.md", "Cargo.toml", "src/lib.rs"] {
            if !files.contains(wanted) {
                found.push(format!("{name}: {wanted} is not in the package"));
            }
        }
        let made = fs::read_dir(Path::new(target).join("package")).map_err(failed)?.flatten();
        let made = made.filter(|entry| {
            let file = entry.file_name().to_string_lossy().into_owned();
            let version = file.strip_prefix(name.as_str()).and_then(|rest| rest.strip_prefix('-'));
            version.is_some_and(|version| {
                version.starts_with(|first: char| first.is_ascii_digit()) && version.ends_with(".crate")
            })
        });
        let bytes = made.filter_map(|entry| entry.metadata().ok()).map(|facts| facts.len()).max();
        match bytes {
            Some(bytes) if bytes <= PACKAGE_BYTES_MAX => {
                println!("package: {name}: {} files, {} KiB", files.len(), bytes / 1024);
            }
            Some(bytes) => found.push(format!("{name}: the package has {bytes} bytes")),
            None => found.push(format!("{name}: no package was made")),
        }
    }
    found.extend(compiler(root, &metadata)?);
    let weight = weight(root).map_err(failed)?;
    let recorded = fs::read_to_string(root.join(WEIGHT)).unwrap_or_default();
    let parts: Vec<&str> = recorded.split(MARK).collect();
    match parts.as_slice() {
        [before, _, behind] if records => {
            let text = format!("{before}{MARK}\n{weight}{MARK}{behind}");
            fs::write(root.join(WEIGHT), text).map_err(failed)?;
        }
        [_, table, _] if table.trim() == weight.trim() => {}
        [_, _, _] => found.push(format!(
            "{WEIGHT}: other crates come along now; if that is meant, `cargo xtask package --record`:\n{weight}"
        )),
        _ => found.push(format!("{WEIGHT}: it has no table between two lines of {MARK}")),
    }
    Ok(found)
}

/// Stands before and behind the table.
const MARK: &str = "<!-- counted by cargo xtask package -->";

/// Holds the facade's dependencies against the oldest compiler. If that is installed, it checks the code too.
fn compiler(root: &Path, metadata: &serde_json::Value) -> Result<Vec<String>, String> {
    let workspace = table(&root.join("Cargo.toml"))?;
    let oldest = workspace
        .get("workspace")
        .and_then(|workspace| workspace.get("package")?.get("rust-version")?.as_str())
        .ok_or("the workspace has no rust-version")?
        .to_owned();
    let number = |version: &str| {
        let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or_default());
        (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
    };
    let tree = ["tree", "-p", "ringroad", "--all-features", "-e", "normal", "--prefix", "none", "-f", "{p}"];
    let tree = cargo(root, &tree).map_err(|why| why.to_string())?;
    let used: BTreeSet<(&str, &str)> = tree
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            Some((words.next()?, words.next()?.strip_prefix('v')?))
        })
        .collect();
    let mut found = Vec::new();
    for package in metadata.get("packages").and_then(|all| all.as_array()).into_iter().flatten() {
        let text = |key: &str| package.get(key).and_then(|value| value.as_str()).unwrap_or_default();
        if used.contains(&(text("name"), text("version"))) && number(text("rust_version")) > number(&oldest) {
            found.push(format!(
                "{} {} needs Rust {}, and {oldest} is promised",
                text("name"),
                text("version"),
                text("rust_version")
            ));
        }
    }
    let installed = Command::new("rustup").args(["toolchain", "list"]).output();
    let installed = installed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let toolchain = installed.unwrap_or_default().lines().find_map(|line| {
        let name = line.split(' ').next()?;
        (name.starts_with(&format!("{oldest}.")) || name.starts_with(&format!("{oldest}-")))
            .then(|| name.to_owned())
    });
    match toolchain {
        Some(toolchain) => {
            let checked = Command::new("cargo")
                .current_dir(root)
                .arg(format!("+{toolchain}"))
                .args(["check", "-p", "ringroad", "--all-features", "--target-dir", "target/oldest"])
                .status();
            if !checked.is_ok_and(|status| status.success()) {
                found.push(format!("ringroad does not build with Rust {oldest}"));
            }
        }
        None => println!(
            "package: skipped: no toolchain of Rust {oldest} is installed; clippy and the dependencies were held against it"
        ),
    }
    Ok(found)
}

/// The table of crates by feature.
fn weight(root: &Path) -> io::Result<String> {
    let mut rows =
        "| features of `ringroad` | crates of the repository | of others |\n|---|---|---|\n".to_owned();
    for (features, name) in SETS {
        let tree = ["tree", "-p", "ringroad", "-e", "normal,build", "--prefix", "none", "-f", "{p}"];
        let tree = cargo(root, &[&tree[..], features].concat())?;
        let all: BTreeSet<String> =
            tree.lines().map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect();
        let ours = all.iter().filter(|name| name.starts_with("ringroad")).count();
        rows.push_str(&format!("| {name} | {ours} | {} |\n", all.len() - ours));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_libraries_can_be_published() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        assert_eq!(check(&root), Ok(Vec::new()));
    }
}
