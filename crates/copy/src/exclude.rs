//! The patterns of `exclude`.

use crate::error::Refusal;
use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use std::path::Path;

/// All patterns.
#[derive(Debug)]
pub(crate) struct Excluded {
    entries: GlobSet,
    /// Those that end in `/`.
    directories: GlobSet,
}

impl Excluded {
    /// Returns `None` without patterns. An empty pattern is refused: it would match everything.
    pub(crate) fn by(patterns: &[String]) -> Result<Option<Excluded>, Refusal> {
        if patterns.is_empty() {
            return Ok(None);
        }
        let (mut entries, mut directories) = (GlobSetBuilder::new(), GlobSetBuilder::new());
        for pattern in patterns {
            let set = if pattern.ends_with('/') { &mut directories } else { &mut entries };
            set.add(glob(pattern)?);
        }
        let build =
            |set: GlobSetBuilder| set.build().map_err(|why| Refusal::Options(format!("--exclude: {why}")));
        Ok(Some(Excluded { entries: build(entries)?, directories: build(directories)? }))
    }

    /// Returns whether the entry with this path below its operand is excluded.
    pub(crate) fn excludes(&self, path: &Path, is_directory: bool) -> bool {
        self.entries.is_match(path) || (is_directory && self.directories.is_match(path))
    }
}

/// One pattern. Without `/`, but for one at its end, it matches at any depth.
fn glob(pattern: &str) -> Result<Glob, Refusal> {
    let refused = |why: &dyn std::fmt::Display| Refusal::Options(format!("--exclude {pattern:?}: {why}"));
    let trimmed = pattern.trim_start_matches("./").trim_end_matches('/');
    let anchored = trimmed.trim_start_matches('/');
    if anchored.is_empty() {
        return Err(refused(&"an empty pattern would exclude everything; use \"*\" for that"));
    }
    let deep = if trimmed.contains('/') { anchored.to_string() } else { format!("**/{anchored}") };
    GlobBuilder::new(&deep).literal_separator(true).build().map_err(|why| refused(why.kind()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn excludes(pattern: &str, path: &str, is_directory: bool) -> bool {
        Excluded::by(&[pattern.to_string()]).unwrap().unwrap().excludes(Path::new(path), is_directory)
    }

    #[test]
    fn a_pattern_that_ends_in_a_slash_is_about_directories() {
        assert!(excludes("build/", "a/build", true) && !excludes("build/", "a/build", false));
        assert!(excludes("/a/build/", "a/build", true) && !excludes("/a/build/", "b/a/build", true));
        assert!(excludes("build", "a/build", true) && excludes("build", "a/build", false));
    }

    #[test]
    fn a_pattern_that_names_nothing_is_refused() {
        for pattern in ["", "/", "./", ".//"] {
            let refused = Excluded::by(&["*.o".to_string(), pattern.to_string()]).unwrap_err();
            assert!(refused.to_string().contains(&format!("{pattern:?}")), "{refused}");
        }
        assert!(Excluded::by(&[]).unwrap().is_none());
    }
}
