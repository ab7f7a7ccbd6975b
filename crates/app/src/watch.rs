//! Looks for changed files, in development.
//!
//! It compares times of modification twice a second: that works on every file system, also on those of
//! containers and networks that report no changes. Folders of virtual environments and caches are left out.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

const LEFT_OUT: &[&str] = &["__pycache__", "node_modules", "venv", "site-packages", "target"];
/// Ends of the names of files that an application is made of.
const SOURCES: &[&str] = &[
    "py", "pyi", "html", "jinja", "jinja2", "j2", "toml", "json", "yaml", "yml", "js", "mjs", "cjs", "ts",
    "mts", "cts", "rb", "php",
];
/// Files that are looked at; beyond that a folder is no application's.
const FILES_MAX: usize = 20_000;

/// A number that differs when a file below `places` was changed, added or removed.
pub(crate) fn stamp(places: &[PathBuf]) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut left = FILES_MAX;
    for place in places {
        walk(place, &mut hasher, &mut left, true);
    }
    hasher.finish()
}

/// `.env` and `.env.local`, of which many applications take their settings.
fn is_environment(name: &str) -> bool {
    name.strip_prefix(".env").is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn walk(place: &Path, hasher: &mut DefaultHasher, left: &mut usize, named: bool) {
    if *left == 0 {
        return;
    }
    let Ok(facts) = fs::symlink_metadata(place) else { return };
    if facts.is_dir() {
        let Ok(entries) = fs::read_dir(place) else { return };
        let mut names: Vec<_> =
            entries.filter_map(|entry| entry.ok().map(|entry| entry.file_name())).collect();
        names.sort();
        for name in names {
            let text = name.to_string_lossy();
            if (!text.starts_with('.') || is_environment(&text)) && !LEFT_OUT.contains(&&*text) {
                walk(&place.join(&name), hasher, left, false);
            }
        }
        return;
    }
    let source = place.extension().is_some_and(|end| SOURCES.iter().any(|known| end == *known));
    let environment = || place.file_name().is_some_and(|name| is_environment(&name.to_string_lossy()));
    if source || named || environment() {
        *left -= 1;
        place.hash(hasher);
        facts.len().hash(hasher);
        facts.modified().ok().hash(hasher);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_changed_added_or_removed_source_is_seen_and_a_cache_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let places = [folder.path().to_owned()];
        fs::write(folder.path().join("a.py"), "1").unwrap();
        let first = stamp(&places);
        assert_eq!(first, stamp(&places));
        fs::create_dir(folder.path().join("__pycache__")).unwrap();
        fs::write(folder.path().join("__pycache__/a.py"), "1").unwrap();
        fs::write(folder.path().join("log.txt"), "1").unwrap();
        assert_eq!(first, stamp(&places));
        fs::write(folder.path().join("a.py"), "12").unwrap();
        let second = stamp(&places);
        for name in [".env", ".env.local", "server.mjs", "server.ts"] {
            let before = stamp(&places);
            fs::write(folder.path().join(name), "").unwrap();
            assert_ne!(before, stamp(&places), "{name}");
            fs::remove_file(folder.path().join(name)).unwrap();
        }
        fs::write(folder.path().join(".environment"), "").unwrap();
        assert_ne!(first, second);
        fs::write(folder.path().join("b.py"), "").unwrap();
        assert_ne!(second, stamp(&places));
        fs::remove_file(folder.path().join("b.py")).unwrap();
        assert_eq!(second, stamp(&places));
    }
}
