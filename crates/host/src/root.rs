//! Where `/proc` and `/sys` are read from: the machine itself, or a tree a test has laid out.
//!
//! It reads whole small files and gives up on what is missing, masked or not text; parsing is the caller's
//! part. Start at [`Root`].

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The longest file read. `/proc/cpuinfo` of a 1024-core machine has about 1.6 MB; what is longer than this
/// is no file we know.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// A file system root to read facts under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root(PathBuf);

impl Default for Root {
    fn default() -> Self {
        Root::system()
    }
}

impl Root {
    /// Returns this machine: `/`.
    pub fn system() -> Self {
        Root(PathBuf::from("/"))
    }

    /// Returns the machine laid out under `path`, as in `path/proc/meminfo`.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Root(path.into())
    }

    /// Returns where `path` (absolute or not) lies under this root.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Returns the file as text; bytes that are not UTF-8 become U+FFFD, since no fact of ours holds any.
    ///
    /// # Errors
    /// The system's error with the path in front of it; the kind is kept.
    pub fn read(&self, path: impl AsRef<Path>) -> io::Result<String> {
        let path = self.path(path);
        let mut bytes = Vec::new();
        File::open(&path)
            .and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes))
            .map_err(|error| io::Error::new(kind_of(&error), format!("read {}: {error}", path.display())))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Returns the file as text without surrounding white space; `None` if it cannot be read or is empty.
    pub(crate) fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let text = self.read(path).ok()?;
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// Returns the file as one number; `None` if it cannot be read or is something else.
    pub(crate) fn number<T: std::str::FromStr>(&self, path: impl AsRef<Path>) -> Option<T> {
        self.text(path)?.parse().ok()
    }

    pub(crate) fn is_dir(&self, path: impl AsRef<Path>) -> bool {
        self.path(path).is_dir()
    }

    pub(crate) fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.path(path).exists()
    }

    /// Returns the names in a directory, sorted.
    ///
    /// # Errors
    /// The system's error with the path in front of it; the kind is kept.
    pub(crate) fn names(&self, path: impl AsRef<Path>) -> io::Result<Vec<String>> {
        let path = self.path(path);
        let name_error =
            |error: io::Error| io::Error::new(kind_of(&error), format!("list {}: {error}", path.display()));
        let mut names = Vec::new();
        for entry in fs::read_dir(&path).map_err(name_error)? {
            names.push(entry.map_err(name_error)?.file_name().to_string_lossy().into_owned());
        }
        names.sort_unstable();
        Ok(names)
    }
}

/// `/proc` answers ESRCH for a task that ended between open and read; std has no kind for it, and for a
/// reader it is the same as a missing file.
fn kind_of(error: &io::Error) -> io::ErrorKind {
    if error.raw_os_error() == Some(libc::ESRCH) { io::ErrorKind::NotFound } else { error.kind() }
}

/// A machine laid out for a test; it goes away with the value.
#[cfg(test)]
pub(crate) struct Fixture {
    pub(crate) root: Root,
    _dir: tempfile::TempDir,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
impl Fixture {
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Fixture { root: Root::at(dir.path()), _dir: dir }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::Root;
    use std::io::ErrorKind;

    #[test]
    fn absolute_paths_stay_under_the_root() {
        assert_eq!(Root::at("/fixture").path("/proc/stat").to_str(), Some("/fixture/proc/stat"));
        assert_eq!(Root::system().path("proc/stat").to_str(), Some("/proc/stat"));
    }

    #[test]
    fn an_error_names_the_file_and_keeps_its_kind() {
        let dir = tempfile::tempdir().unwrap();
        let error = Root::at(dir.path()).read("proc/nothing").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("proc/nothing"), "{error}");
    }

    #[test]
    fn bytes_that_are_not_text_do_not_stop_a_reader() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("junk"), b"12\xff\xfe").unwrap();
        let root = Root::at(dir.path());
        assert!(root.text("junk").unwrap().starts_with("12"));
        assert_eq!(root.number::<u64>("junk"), None);
    }
}
