//! Which program a name stands for: each server's command, and hashes of the files in it.
//!
//! Cells of two records are paired by name alone, and the file behind a name may change between them. Start
//! at [`of_suite`].

use crate::suite::{Server, Suite};
use ringroad_host::process::in_path;
use ringroad_measure::record::Program;
use std::collections::BTreeMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

/// Each server of a suite by its name.
pub(crate) fn of_suite(suite: &Suite) -> BTreeMap<String, Program> {
    let folder = suite.folder.as_deref();
    suite.servers.iter().map(|server| (server.id.clone(), of_server(server, folder))).collect()
}

fn of_server(server: &Server, folder: Option<&Path>) -> Program {
    let hash = |(nth, word): (usize, &String)| {
        let path = if nth == 0 { program(word, folder)? } else { argument(word, server, folder) };
        // What is no file that can be read is known by its word alone.
        let hash = path.is_file().then(|| of_file(&path).ok())??;
        Some((word.clone(), hash))
    };
    Program {
        command: server.command.clone(),
        files: server.command.iter().enumerate().filter_map(hash).collect(),
    }
}

/// Returns where the program lies: from the suite's folder, or on the path.
fn program(word: &str, folder: Option<&Path>) -> Option<PathBuf> {
    if word.contains('/') {
        return Some(folder.unwrap_or(Path::new("")).join(word));
    }
    in_path(word)
}

/// Returns where a word of its command would lie if it is a file: the program sees it from its own folder.
fn argument(word: &str, server: &Server, folder: Option<&Path>) -> PathBuf {
    match &server.cwd {
        Some(cwd) => folder.unwrap_or(Path::new("")).join(cwd).join(word),
        None => PathBuf::from(word),
    }
}

/// Returns a hash of a file. It tells files apart and protects against nothing else.
pub(crate) fn of_file(path: &Path) -> io::Result<String> {
    let mut file = BufReader::with_capacity(1 << 16, File::open(path)?);
    let mut hasher = DefaultHasher::new();
    loop {
        let bytes = file.fill_buf()?;
        if bytes.is_empty() {
            return Ok(format!("{:016x}", hasher.finish()));
        }
        hasher.write(bytes);
        let used = bytes.len();
        file.consume(used);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_program_is_its_command_and_what_is_in_the_files_of_it() {
        let place = tempfile::tempdir().unwrap();
        let (tool, page) = (place.path().join("tool.sh"), place.path().join("page"));
        std::fs::write(&tool, "1").unwrap();
        std::fs::write(&page, "2").unwrap();
        let mut suite = Suite::quick().unwrap();
        suite.add(&format!("mine={} {} {{port}}", tool.display(), page.display())).unwrap();
        suite.add("sleeper=sleep {port}").unwrap();
        let before = of_suite(&suite);
        let mine = &before["mine"];
        assert_eq!((mine.command.len(), mine.files.len()), (3, 2), "{mine:?}");
        assert!(before["sleeper"].files.contains_key("sleep"), "found on the path");
        assert!(before["poll"].files.is_empty(), "our own build is known elsewhere");
        assert_eq!(mine.difference(&of_suite(&suite)["mine"]), None);
        std::fs::write(&page, "3").unwrap();
        let how = mine.difference(&of_suite(&suite)["mine"]).unwrap();
        assert!(how.contains("page differs"), "{how}");
    }
}
