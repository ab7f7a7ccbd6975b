//! The checks of `cargo xtask tidy`, each a function from the tree to findings.
//!
//! A finding names the file and the remedy. The levels below match the map in docs/ARCHITECTURE.md: a crate
//! imports only from lower levels, also for its tests.

use crate::claims;
use crate::language;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Folder under `crates/`, and its level.
const LEVELS: &[(&str, u32)] = &[
    ("uring", 0),
    ("wire", 0),
    ("policy", 0),
    ("measure", 0),
    ("host", 0),
    ("macros", 0),
    ("settings", 1),
    ("engine", 1),
    ("tls", 1),
    ("lab", 1),
    ("bridge", 2),
    ("io", 2),
    ("models", 2),
    ("load", 2),
    ("copy", 2),
    ("http", 3),
    ("stores", 4),
    ("acme", 4),
    ("ringroad", 4),
    ("gate", 5),
    ("app", 6),
    ("hub", 6),
    ("serve", 7),
    ("cli", 8),
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
    ("task_local", 0),
    ("option", 0),
    ("pages", 0),
    ("file_part", 0),
    ("fork", 0),
    ("parked", 0),
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
    ("join_set", 8),
    ("signal", 8),
    ("time", 8),
    ("fs", 9),
    ("net", 9),
    ("sync", 9),
    ("poll_fd", 10),
    ("workers", 10),
];

/// Modules of the HTTP library, and their levels, as above.
const HTTP_LEVELS: &[(&str, u32)] = &[
    ("counters", 0),
    ("no_tls", 0),
    ("pool", 0),
    ("random", 0),
    ("transport", 0),
    ("message", 1),
    ("h1", 2),
    ("ws", 2),
    ("h2", 2),
    ("client", 3),
    ("server", 3),
];

/// Modules of the gateway, and their levels, as above.
const GATE_LEVELS: &[(&str, u32)] = &[
    ("client", 0),
    ("coding", 0),
    ("date", 0),
    ("media", 0),
    ("metrics", 0),
    ("path", 0),
    ("routes", 0),
    ("stage", 0),
    ("template", 0),
    ("words", 0),
    ("upstream", 1),
    ("flow", 1),
    ("page", 2),
    ("chain", 3),
    ("groups", 4),
    ("feature", 4),
    ("health", 5),
    ("store", 5),
    ("auth", 5),
    ("cache", 5),
    ("filter", 6),
    ("steps", 7),
];

/// The folder of features: one file each, and their table.
const FEATURES: &str = "crates/gate/src/filter";

/// The folder of results. Its documents are checked as others are. Its data, pictures and scripts are not:
/// programs write most of them, and each is a record of its day.
const RECORDS: &str = "docs/results";

/// A violation of a rule.
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
    let list = fs::read_to_string(root.join(language::PENDING)).unwrap_or_default();
    let pending = language::pending(&list);
    for file in &files {
        let text = match fs::read_to_string(root.join(file)) {
            Ok(text) => text,
            // Pictures and other binary files are not checked.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => continue,
            Err(error) => return Err(error),
        };
        let mut found = |what: Option<String>| {
            findings.extend(what.map(|what| Finding { file: file.clone(), what }));
        };
        found(opening(file, &text));
        found(unsafe_code(file, &text));
        found(hand_written(file, &text));
        found(inner_edges("engine", ENGINE_LEVELS, file, &text));
        found(inner_edges("http", HTTP_LEVELS, file, &text));
        found(inner_edges("gate", GATE_LEVELS, file, &text));
        found(feature_edges(file, &text));
        found(binaries(root, file, &text));
        if !pending.iter().any(|path| file == Path::new(path)) {
            language::check(file, &text).into_iter().for_each(|what| found(Some(what)));
        }
        if let Some((folder, of_tests)) = manifest_of(file) {
            edges(folder, of_tests, &text).into_iter().for_each(|what| found(Some(what)));
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
            if name != "target" && name != ".git" && name != "corpus" {
                walk(root, &path, files)?;
            }
        } else if !path.starts_with(RECORDS) || path.extension().is_some_and(|end| end == "md") {
            files.push(path);
        }
    }
    Ok(())
}

/// Checks that every source file begins with its purpose.
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

/// Checks that unsafe code is only in the crates that may have it.
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

/// Checks that the hand-written models do not use an engine: they are the floor for comparisons.
fn hand_written(file: &Path, text: &str) -> Option<String> {
    let inside =
        file.starts_with("crates/models/src/hand") || file == Path::new("crates/models/src/protocol.rs");
    (inside && text.contains("ringroad_engine"))
        .then(|| "uses the engine: the hand-written models are the floor under it".to_string())
}

/// Checks that a module of this crate imports only from lower levels. (Cargo checks crates only.)
fn inner_edges(krate: &str, levels: &[(&str, u32)], file: &Path, text: &str) -> Option<String> {
    let inside = file.strip_prefix("crates").ok()?.strip_prefix(krate).ok()?.strip_prefix("src").ok()?;
    let module = inside.components().next()?.as_os_str().to_str()?.trim_end_matches(".rs");
    let level = |name: &str| levels.iter().find(|(known, _)| *known == name).map(|(_, level)| *level);
    if module == "lib" || file.extension().is_none_or(|end| end != "rs") || inside.file_name()? == "tests.rs"
    {
        return None;
    }
    let Some(own) = level(module) else {
        return Some(format!("module {module:?} of {krate} has no level: give it one in xtask/src/tidy.rs"));
    };
    // Of a nested import only the first name is checked, which suffices for the style used here.
    let imports = text.lines().filter_map(|line| line.trim_start().split_once("use crate::"));
    let names = imports.filter_map(|(_, path)| path.split(|c: char| !c.is_alphanumeric() && c != '_').next());
    names
        .filter(|name| *name != module)
        .find_map(|name| level(name).filter(|other| *other >= own).map(|other| (name, other)))
        .map(|(name, other)| {
            format!("level {own} of {krate} imports {name} of level {other}: only lower ones")
        })
}

/// Checks that a feature's file names no other feature. (The compiler checks that no other file names one:
/// the modules are private.)
fn feature_edges(file: &Path, text: &str) -> Option<String> {
    let inside = file.strip_prefix(FEATURES).ok()?;
    if inside == Path::new("mod.rs") {
        let public = text.lines().any(|line| line.trim_start().starts_with("pub mod"));
        return public.then(|| "has a public module: features are named by their table only".to_string());
    }
    let names_other = text.lines().map(str::trim_start).find(|line| {
        line.starts_with("use ") && (line.contains("super::") || line.contains("crate::filter::"))
            && !line.starts_with("use super::*")
            // Files of one feature that has a folder.
            && inside.components().count() == 1
    });
    names_other.map(|line| format!("names another feature (`{}`): share it outside of filter/", line.trim()))
}

/// Returns the folder of the crate that has this manifest, or has it for its tests; and whether it is theirs.
fn manifest_of(file: &Path) -> Option<(&str, bool)> {
    let folder = file.parent()?;
    let of_tests = folder.ends_with("tests");
    let folder = if of_tests { folder.parent()? } else { folder };
    let is_manifest = file.file_name()? == "Cargo.toml" && folder.parent()? == Path::new("crates");
    if is_manifest { Some((folder.file_name()?.to_str()?, of_tests)) } else { None }
}

/// Checks that a crate imports only from lower levels.
fn edges(folder: &str, of_tests: bool, manifest: &str) -> Vec<String> {
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
            // A crate's own tests enable its features.
            _ if short == folder => {}
            Some(other) if other < own => {}
            Some(other) => {
                findings.push(format!("level {own} imports {name} of level {other}: only lower ones"))
            }
            None => findings.push(format!("imports {name}, which has no level in xtask/src/tidy.rs")),
        }
    }
    let package =
        manifest.get("package").and_then(|package| package.get("name")).and_then(|name| name.as_str());
    let mut expected = if folder == "ringroad" { folder.to_string() } else { format!("ringroad-{folder}") };
    if of_tests {
        expected.push_str("-tests");
    }
    if package != Some(expected.as_str()) {
        findings.push(format!("package {package:?}: a crate is named after its folder, {expected}"));
    }
    findings
}

/// Checks that only one package has binaries. `cargo install --git URL` reads every manifest of the
/// repository, including those outside the workspace, and refuses to choose between packages.
fn binaries(root: &Path, file: &Path, manifest: &str) -> Option<String> {
    let folder = file.parent()?;
    if file.file_name()? != "Cargo.toml" || folder == Path::new("crates/cli") {
        return None;
    }
    let table: toml::Table = manifest.parse().ok()?;
    let package = table.get("package")?;
    let found_by_itself = package.get("autobins").and_then(toml::Value::as_bool) != Some(false)
        && ["src/main.rs", "src/bin"].iter().any(|path| root.join(folder).join(path).exists());
    (found_by_itself || table.contains_key("bin")).then(|| {
        "has a binary, and `cargo install --git` wants one package with binaries: make it an `[[example]]`".to_string()
    })
}

/// Checks that relative links in documents have a target.
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

    /// Returns the findings for a tree of the given files, as text.
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
        let unknown = "//! A module without a level.\n";
        one(&[("crates/engine/src/novel.rs", unknown)], "has no level");
        let downward =
            "//! Slots, as they should be.\nuse crate::op::Op;\nuse crate::{COMPLETIONS_PER_TURN, Result};\n";
        assert_eq!(findings(&[("crates/engine/src/inflight.rs", downward)]), [""; 0]);
        let feature = "//! A feature, or so it says.\nuse super::headers::Headers;\n";
        one(&[("crates/gate/src/filter/novel.rs", feature)], "names another feature");
        let circle = "//! A flow, or so it says.\nuse crate::chain::Chain;\n";
        one(&[("crates/gate/src/flow.rs", circle)], "level 1 of gate imports chain of level 3");
        let protocol = "//! Messages, or so it says.\nuse crate::h1::HeadCache;\n";
        one(&[("crates/http/src/message/body.rs", protocol)], "level 1 of http imports h1 of level 2");
    }

    #[test]
    fn an_engine_among_the_hand_written_models_is_found() {
        let text = "//! A model by hand, or so it says.\nuse ringroad_engine::net;\n";
        one(&[("crates/models/src/hand/epoll.rs", text)], "floor under it");
    }

    #[test]
    fn a_second_package_with_a_binary_is_found() {
        let main = ("peers/new/src/main.rs", LIB);
        let package = "[package]\nname = \"peer-new\"\n";
        one(&[main, ("peers/new/Cargo.toml", package)], "one package with binaries");
        let named = format!("{package}[[bin]]\nname = \"peer-new\"\n");
        one(&[("peers/new/Cargo.toml", &named)], "one package with binaries");
        let example = format!("{package}autobins = false\n[[example]]\nname = \"peer-new\"\n");
        assert_eq!(findings(&[main, ("peers/new/Cargo.toml", &example)]), [""; 0]);
    }

    #[test]
    fn the_language_of_a_file_is_checked_unless_it_is_on_the_list() {
        let file = ("crates/host/src/cpu.rs", "//! Tells who runs here.\n");
        one(&[file], "line 1: \"who\"");
        assert_eq!(findings(&[file, (language::PENDING, "crates/host/src/cpu.rs\n")]), [""; 0]);
    }

    #[test]
    fn documents_of_results_are_checked_and_their_data_are_not() {
        one(&[("docs/results/http/table.md", "Asks who runs.\n")], "line 1: \"who\"");
        one(
            &[("docs/results/http.md", "see [the table](http/table.md)")],
            "http/table.md, which is not there",
        );
        let data = [
            ("docs/results/parts/figures.py", "# Asks who runs.\n"),
            ("docs/results/splice/relay.rs", "// who\n"),
        ];
        assert_eq!(findings(&data), [""; 0]);
    }

    #[test]
    fn a_dead_link_is_found() {
        one(&[("docs/ARCHITECTURE.md", "see [the map](map.md)")], "map.md, which is not there");
    }
}
