//! The checks of `cargo xtask tidy`, each a function from the tree to findings.
//!
//! A finding names the file and says what to do. The levels below are the map of the workspace
//! (docs/ARCHITECTURE.md draws the same one): a crate imports only from lower levels, also for its tests.

use crate::claims;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Folder under `crates/`, and its level.
const LEVELS: &[(&str, u32)] = &[
    ("uring", 0),
    ("wire", 0),
    ("measure", 0),
    ("host", 0),
    ("engine", 1),
    ("lab", 1),
    ("models", 2),
    ("http", 2),
    ("load", 2),
    ("copy", 2),
    ("serve", 3),
    ("ringroad", 3),
    ("cli", 4),
];

/// Crates that may contain unsafe code. All others forbid it in their root file.
const UNSAFE_ALLOWED: &[&str] = &["uring", "engine", "models", "host", "copy"];

/// Modules of the engine, and their levels: a module imports only from lower ones, or from itself.
const ENGINE_LEVELS: &[(&str, u32)] = &[
    ("address", 0),
    ("caller", 0),
    ("clock", 0),
    ("counters", 0),
    ("name", 0),
    ("option", 0),
    ("pages", 0),
    ("file_part", 0),
    ("error", 1),
    ("pool", 1),
    ("wheel", 1),
    ("descriptor", 2),
    ("op", 3),
    ("buf", 4),
    ("sys", 4),
    ("inflight", 5),
    ("driver", 5),
    ("choose", 6),
    ("io", 6),
    ("exec", 7),
    ("blocking", 8),
    ("signal", 8),
    ("sync", 8),
    ("time", 8),
    ("fs", 9),
    ("net", 9),
];

/// Something that is not as it should be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    file: PathBuf,
    what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.what)
    }
}

/// Runs every check on the tree at `root`.
pub(crate) fn check(root: &Path) -> io::Result<Vec<Finding>> {
    let mut files = Vec::new();
    walk(root, Path::new(""), &mut files)?;
    files.sort();
    let mut findings = Vec::new();
    for file in &files {
        let text = match fs::read_to_string(root.join(file)) {
            Ok(text) => text,
            // Pictures and other binary results have nothing for us to read.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => continue,
            Err(error) => return Err(error),
        };
        let mut found = |what: Option<String>| {
            findings.extend(what.map(|what| Finding { file: file.clone(), what }));
        };
        found(opening(file, &text));
        found(unsafe_code(file, &text));
        found(hand_written(file, &text));
        found(engine_edges(file, &text));
        if let Some(folder) = manifest_of(file) {
            edges(folder, &text).into_iter().for_each(|what| found(Some(what)));
        }
        if file.extension().is_some_and(|end| end == "md") {
            links(root, file, &text).into_iter().for_each(|what| found(Some(what)));
        }
    }
    let claims = claims::check(root)?.findings;
    findings.extend(claims.into_iter().map(|what| Finding { file: PathBuf::from(claims::CLAIMS), what }));
    Ok(findings)
}

fn walk(root: &Path, folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let name = entry.file_name();
        let path = folder.join(&name);
        if entry.file_type()?.is_dir() {
            if name != "target" && name != ".git" && name != "results" && name != "corpus" {
                walk(root, &path, files)?;
            }
        } else {
            files.push(path);
        }
    }
    Ok(())
}

/// Every source file opens by saying what it is for.
fn opening(file: &Path, text: &str) -> Option<String> {
    let name = file.file_name()?.to_str()?;
    let opener = match file.extension().and_then(|end| end.to_str()) {
        Some("rs") => "//!",
        Some("css") => "/*",
        Some("toml") if name != "Cargo.toml" => "#",
        Some("sh") => "#",
        _ => return None,
    };
    let first = text.lines().find(|line| !line.trim().is_empty() && !line.starts_with("#!/"))?;
    let says_enough = first.trim_start_matches(opener).trim().len() >= 10;
    (!first.starts_with(opener) || !says_enough)
        .then(|| format!("opens without its purpose: begin with `{opener}` and a sentence"))
}

/// Unsafe code stays in the crates that argue it.
fn unsafe_code(file: &Path, text: &str) -> Option<String> {
    let mut parts = file.components().map(|part| part.as_os_str().to_string_lossy());
    let in_crates = parts.next()? == "crates";
    let folder = if in_crates { parts.next()?.into_owned() } else { "xtask".to_string() };
    let root_file = ["src/lib.rs", "src/main.rs"].iter().any(|end| file.ends_with(end));
    if UNSAFE_ALLOWED.contains(&folder.as_str()) || !root_file {
        return None;
    }
    (!text.contains("#![forbid(unsafe_code)]")).then(|| {
        format!("lacks #![forbid(unsafe_code)]: unsafe code lives in {} only", UNSAFE_ALLOWED.join(", "))
    })
}

/// The hand-written models are floors: what they are compared with must not be in them.
fn hand_written(file: &Path, text: &str) -> Option<String> {
    let inside =
        file.starts_with("crates/models/src/hand") || file == Path::new("crates/models/src/protocol.rs");
    (inside && text.contains("ringroad_engine"))
        .then(|| "uses the engine: the hand-written models are the floor under it".to_string())
}

/// A module of the engine imports only from lower levels. (Cargo sees to that between crates only.)
fn engine_edges(file: &Path, text: &str) -> Option<String> {
    let inside = file.strip_prefix("crates/engine/src").ok()?;
    let module = inside.components().next()?.as_os_str().to_str()?.trim_end_matches(".rs");
    let level = |name: &str| ENGINE_LEVELS.iter().find(|(known, _)| *known == name).map(|(_, level)| *level);
    if module == "lib" || inside.file_name()? == "tests.rs" {
        return None;
    }
    let Some(own) = level(module) else {
        return Some(format!(
            "module {module:?} of the engine has no level: give it one in xtask/src/tidy.rs"
        ));
    };
    // Of a nested import only the first name counts, which is how they are written here.
    let imports = text.lines().filter_map(|line| line.trim_start().split_once("use crate::"));
    let names = imports.filter_map(|(_, path)| path.split(|c: char| !c.is_alphanumeric() && c != '_').next());
    names
        .filter(|name| *name != module)
        .find_map(|name| level(name).filter(|other| *other >= own).map(|other| (name, other)))
        .map(|(name, other)| {
            format!("level {own} of the engine imports {name} of level {other}: only lower ones")
        })
}

fn manifest_of(file: &Path) -> Option<&str> {
    let folder = file.parent()?;
    let is_manifest = file.file_name()? == "Cargo.toml" && folder.parent()? == Path::new("crates");
    if is_manifest { folder.file_name()?.to_str() } else { None }
}

/// A crate imports only from lower levels.
fn edges(folder: &str, manifest: &str) -> Vec<String> {
    let level = |name: &str| LEVELS.iter().find(|(known, _)| *known == name).map(|(_, level)| *level);
    let Some(own) = level(folder) else {
        return vec![format!(
            "crate {folder:?} has no level: give it one in xtask/src/tidy.rs and in ARCHITECTURE"
        )];
    };
    let manifest: toml::Table = match manifest.parse() {
        Ok(manifest) => manifest,
        Err(error) => return vec![format!("not readable as TOML: {error}")],
    };
    let tables = ["dependencies", "dev-dependencies", "build-dependencies"];
    let names =
        tables.iter().filter_map(|table| manifest.get(*table)?.as_table()).flat_map(|table| table.keys());
    let mut findings = Vec::new();
    for name in names {
        let Some(short) = name.strip_prefix("ringroad-").or((name == "ringroad").then_some("ringroad"))
        else {
            continue;
        };
        match level(short) {
            Some(other) if other < own => {}
            Some(other) => {
                findings.push(format!("level {own} imports {name} of level {other}: only lower ones"))
            }
            None => findings.push(format!("imports {name}, which has no level in xtask/src/tidy.rs")),
        }
    }
    let package =
        manifest.get("package").and_then(|package| package.get("name")).and_then(|name| name.as_str());
    let expected = if folder == "ringroad" { folder.to_string() } else { format!("ringroad-{folder}") };
    if package != Some(expected.as_str()) {
        findings.push(format!("package {package:?}: a crate is named after its folder, {expected}"));
    }
    findings
}

/// Relative links in documents lead somewhere.
fn links(root: &Path, file: &Path, text: &str) -> Vec<String> {
    let folder = file.parent().unwrap_or(Path::new(""));
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets
        .map(|target| target.split('#').next().unwrap_or_default())
        .filter(|target| !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:"))
        .filter(|target| !root.join(folder).join(target).exists())
        .map(|target| format!("links to {target}, which is not there"))
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// The findings for a tree of the given files, as text.
    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        check(root.path()).unwrap().iter().map(Finding::to_string).collect()
    }

    fn one(files: &[(&str, &str)], expected: &str) {
        let found = findings(files);
        assert!(found.len() == 1 && found[0].contains(expected), "{found:?}");
    }

    const LIB: &str = "//! What this crate is for.\n#![forbid(unsafe_code)]\n";

    #[test]
    fn this_repository_is_tidy() {
        let found = check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).unwrap();
        assert_eq!(found, []);
    }

    #[test]
    fn a_tidy_tree_has_no_findings() {
        let manifest =
            "[package]\nname = \"ringroad-lab\"\n[dependencies]\nringroad-measure = \"0\"\nserde = \"1\"\n";
        let readme = "[here](crates/lab/src/lib.rs#part) and [there](https://example.org)";
        let files =
            [("crates/lab/Cargo.toml", manifest), ("crates/lab/src/lib.rs", LIB), ("README.md", readme)];
        assert_eq!(findings(&files), Vec::<String>::new());
    }

    #[test]
    fn an_import_from_the_same_or_a_higher_level_is_found_in_every_table() {
        for table in ["dependencies", "dev-dependencies", "build-dependencies"] {
            for name in ["ringroad-host", "ringroad-cli"] {
                let manifest = format!("[package]\nname = \"ringroad-measure\"\n[{table}]\n{name} = \"0\"\n");
                one(&[("crates/measure/Cargo.toml", &manifest)], "only lower ones");
            }
        }
    }

    #[test]
    fn a_crate_without_a_level_and_a_package_with_another_name_are_found() {
        one(&[("crates/extra/Cargo.toml", "[package]\nname = \"ringroad-extra\"\n")], "no level");
        one(&[("crates/host/Cargo.toml", "[package]\nname = \"host\"\n")], "named after its folder");
    }

    #[test]
    fn a_file_that_does_not_say_what_it_is_for_is_found() {
        one(&[("crates/host/src/cpu.rs", "use std::io;\n")], "opens without its purpose");
        one(&[("crates/host/src/cpu.rs", "//! x\n")], "opens without its purpose");
        one(&[("benches/floor.toml", "name = \"floor\"\n")], "opens without its purpose");
    }

    #[test]
    fn unsafe_may_not_be_allowed_elsewhere() {
        one(&[("crates/lab/src/lib.rs", "//! What this crate is for.\n")], "lacks #![forbid(unsafe_code)]");
        assert_eq!(
            findings(&[("crates/uring/src/lib.rs", "//! What this crate is for.\n")]),
            Vec::<String>::new()
        );
    }

    #[test]
    fn a_module_of_the_engine_that_reaches_upward_is_found() {
        let upward = "//! Slots, or so it says.\nuse crate::exec::Core;\n";
        one(&[("crates/engine/src/inflight.rs", upward)], "imports exec of level 7");
        let unknown = "//! A module nobody has placed.\n";
        one(&[("crates/engine/src/novel.rs", unknown)], "has no level");
        let downward =
            "//! Slots, as they should be.\nuse crate::op::Op;\nuse crate::{COMPLETIONS_PER_TURN, Result};\n";
        assert_eq!(findings(&[("crates/engine/src/inflight.rs", downward)]), [""; 0]);
    }

    #[test]
    fn an_engine_among_the_hand_written_models_is_found() {
        let text = "//! A model by hand, or so it says.\nuse ringroad_engine::net;\n";
        one(&[("crates/models/src/hand/epoll.rs", text)], "floor under it");
    }

    #[test]
    fn a_dead_link_is_found() {
        one(&[("docs/ARCHITECTURE.md", "see [the map](map.md)")], "map.md, which is not there");
    }
}
