//! Looks for changed files, in development.
//!
//! It compares lengths and times of modification twice a second: that works on every file system, also on
//! those of containers and networks that report no changes. Folders of virtual environments and caches are
//! left out, and files that the server or its workers have open for writing: an access log in JSON beside
//! the sources grows with each request, and is not a source.

use ringroad_host::open_files;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

const LEFT_OUT: &[&str] = &["__pycache__", "node_modules", "venv", "site-packages", "target"];
/// Ends of the names of files that an application is made of.
const SOURCES: &[&str] = &[
    "py", "pyi", "html", "jinja", "jinja2", "j2", "toml", "json", "yaml", "yml", "js", "mjs", "cjs", "ts",
    "mts", "cts", "rb", "php",
];
/// Files that are looked at; beyond that a folder is no application's.
const FILES_MAX: usize = 20_000;

/// What is known of a file: its length and when it was modified last.
type Version = (u64, Option<SystemTime>);

/// The files of an application as they were seen last.
#[derive(Debug, Default)]
pub(crate) struct Sources(BTreeMap<PathBuf, Version>);

impl Sources {
    /// Returns the files below `places` as they are.
    pub(crate) fn look(places: &[PathBuf]) -> Sources {
        let mut found = Sources::default();
        for place in places {
            found.walk(place, true);
        }
        found
    }

    /// Returns the first file, by path, that was changed, added or removed between `before` and these. A file
    /// that one of `writers` has open for writing does not count.
    pub(crate) fn changed_since<'a>(&'a self, before: &'a Sources, writers: &[u32]) -> Option<&'a Path> {
        if self.0 == before.0 {
            return None;
        }
        let is_new = self.0.iter().filter(|(path, version)| before.0.get(*path) != Some(*version));
        let is_gone = before.0.iter().filter(|(path, _)| !self.0.contains_key(*path));
        let is_written = |path: &Path| {
            let facts = fs::symlink_metadata(path);
            facts.is_ok_and(|facts| writers.iter().any(|pid| open_files::writes(*pid, &facts)))
        };
        let mut changed: Vec<&Path> = is_new.chain(is_gone).map(|(path, _)| path.as_path()).collect();
        changed.sort_unstable();
        changed.into_iter().find(|path| !is_written(path))
    }

    fn walk(&mut self, place: &Path, named: bool) {
        if self.0.len() == FILES_MAX {
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
                    self.walk(&place.join(&name), false);
                }
            }
            return;
        }
        let source = place.extension().is_some_and(|end| SOURCES.iter().any(|known| end == *known));
        let environment = || place.file_name().is_some_and(|name| is_environment(&name.to_string_lossy()));
        if source || named || environment() {
            self.0.insert(place.to_owned(), (facts.len(), facts.modified().ok()));
        }
    }
}

/// `.env` and `.env.local`, of which many applications take their settings.
fn is_environment(name: &str) -> bool {
    name.strip_prefix(".env").is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::Write;

    #[test]
    fn a_changed_added_or_removed_source_is_seen_and_a_cache_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let places = [folder.path().to_owned()];
        let at = |name: &str| folder.path().join(name);
        let mut seen = Sources::default();
        let mut changed = || {
            let now = Sources::look(&places);
            let path = now.changed_since(&seen, &[]).map(Path::to_owned);
            seen = now;
            path
        };
        fs::write(at("a.py"), "1").unwrap();
        assert_eq!(changed(), Some(at("a.py")));
        assert_eq!(changed(), None);
        fs::create_dir(at("__pycache__")).unwrap();
        fs::write(at("__pycache__/a.py"), "1").unwrap();
        fs::write(at("log.txt"), "1").unwrap();
        fs::write(at(".environment"), "").unwrap();
        assert_eq!(changed(), None);
        fs::write(at("a.py"), "12").unwrap();
        assert_eq!(changed(), Some(at("a.py")));
        for name in [".env", ".env.local", "server.mjs", "server.ts"] {
            fs::write(at(name), "").unwrap();
            assert_eq!(changed(), Some(at(name)));
            fs::remove_file(at(name)).unwrap();
            assert_eq!(changed(), Some(at(name)));
        }
        assert_eq!(changed(), None);
    }

    #[test]
    fn a_file_that_a_writer_has_open_is_no_source_until_it_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let places = [folder.path().to_owned()];
        let at = |name: &str| folder.path().join(name);
        let writers = [u32::MAX, std::process::id()];
        let before = Sources::look(&places);
        let mut log = fs::File::create(at("access.json")).unwrap();
        log.write_all(b"{}").unwrap();
        let grown = Sources::look(&places);
        assert_eq!(grown.changed_since(&before, &writers), None);
        assert_eq!(grown.changed_since(&before, &[]), Some(&*at("access.json")));
        fs::write(at("main.py"), "").unwrap();
        let edited = Sources::look(&places);
        assert_eq!(edited.changed_since(&before, &writers), Some(&*at("main.py")));
        drop(log);
        assert_eq!(grown.changed_since(&before, &writers), Some(&*at("access.json")));
    }
}
