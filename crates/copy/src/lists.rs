//! Manifests that are there: several merged into one, and one compared with a tree.
//!
//! A manifest is sorted by the bytes of its paths, and a tree can be walked in that order, so both are done
//! line by line: memory grows with the largest directory and with nothing else. Start at [`merge`] and
//! [`check`].

use crate::leftover::{self, Maker};
use serde::Deserialize;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The longest line that is read: paths have no more than a few kilobytes.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Files that wait for a thread which hashes them.
const WAITING: usize = 256;

/// Why a manifest or a list cannot be used: the file, the line in it, and what is wrong.
#[derive(Debug)]
pub struct ListError {
    /// The manifest.
    pub list: PathBuf,
    /// The number of the line, from 1; 0 where it is about the whole file.
    pub line: u64,
    /// What is wrong.
    pub why: String,
}

impl std::fmt::Display for ListError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let list = self.list.display().to_string();
        write!(f, "list, on {}", list.escape_debug())?;
        if self.line > 0 {
            write!(f, ", line {}", self.line)?;
        }
        write!(f, ": {}", self.why)
    }
}

impl std::error::Error for ListError {}

/// One file of a manifest.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) path: Vec<u8>,
    hash: String,
    /// The whole line, with its end.
    pub(crate) line: Vec<u8>,
}

#[derive(Deserialize)]
struct Json {
    path: String,
    path_b64: Option<String>,
    size: Option<u64>,
    mtime_ns: Option<i64>,
    blake3: String,
}

impl Json {
    fn path_and_hash(self) -> Option<(Vec<u8>, String)> {
        use base64::Engine as _;
        let path = match self.path_b64 {
            Some(bytes) => base64::engine::general_purpose::STANDARD.decode(bytes).ok()?,
            None => self.path.into_bytes(),
        };
        Some((path, hash_of(self.blake3.as_bytes())?))
    }
}

/// What a manifest knows of one file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) path: Vec<u8>,
    pub(crate) hash: blake3::Hash,
    /// Size and modification time in nanoseconds; lines of `b3sum` have neither.
    pub(crate) size_and_time: Option<(u64, i64)>,
}

/// Returns what one line says, without its end.
pub(crate) fn known(line: &[u8], json: bool) -> Option<Known> {
    let (path, hash, size_and_time) = if json {
        let line: Json = serde_json::from_slice(line).ok()?;
        let size_and_time = line.size.zip(line.mtime_ns);
        let (path, hash) = line.path_and_hash()?;
        (path, hash, size_and_time)
    } else {
        let (path, hash) = plain(line)?;
        (path, hash, None)
    };
    Some(Known { path, hash: blake3::Hash::from_hex(hash).ok()?, size_and_time })
}

/// A manifest that is read line by line, in order.
pub(crate) struct List {
    path: PathBuf,
    input: BufReader<File>,
    json: bool,
    number: u64,
    last: Option<Vec<u8>>,
}

impl List {
    pub(crate) fn open(path: &Path) -> Result<List, ListError> {
        let failed = |why: io::Error| ListError { list: path.to_owned(), line: 0, why: why.to_string() };
        let input = BufReader::new(File::open(path).map_err(failed)?);
        let json = is_json(path);
        Ok(List { path: path.to_owned(), input, json, number: 0, last: None })
    }

    fn error(&self, why: impl Into<String>) -> ListError {
        ListError { list: self.path.clone(), line: self.number, why: why.into() }
    }

    pub(crate) fn next(&mut self) -> Result<Option<Item>, ListError> {
        let mut line = Vec::new();
        self.number += 1;
        let read = io::Read::take(&mut self.input, LINE_BYTES_MAX).read_until(b'\n', &mut line);
        match read {
            Err(why) => return Err(self.error(why.to_string())),
            Ok(0) => return Ok(None),
            Ok(_) if !line.ends_with(b"\n") => {
                return Err(self.error("the line has no end: the list was cut off"));
            }
            Ok(_) => {}
        }
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        let parsed = if self.json { json(text) } else { plain(text) };
        let (path, hash) = parsed
            .ok_or_else(|| self.error("not a line of a manifest (as b3sum writes it, or JSON in .ndjson)"))?;
        let is_exact = |path: &[u8]| is_exact(self.json, path);
        let before = self.last.as_ref().filter(|last| is_exact(last) && is_exact(&path));
        if before.is_some_and(|last| *last >= path) {
            return Err(self.error("the paths are not in order: it was not written by --manifest"));
        }
        self.last = Some(path.clone());
        Ok(Some(Item { path, hash, line }))
    }
}

/// Returns whether a line has the bytes that it was sorted by. A name that is not UTF-8 is in a line of
/// `b3sum` with others.
pub(crate) fn is_exact(json: bool, path: &[u8]) -> bool {
    json || !path.windows(3).any(|bytes| bytes == "\u{fffd}".as_bytes())
}

pub(crate) fn is_json(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "ndjson")
}

/// Path and hash of a line as `b3sum` writes it.
fn plain(line: &[u8]) -> Option<(Vec<u8>, String)> {
    let (escaped, line) = line.strip_prefix(b"\\").map_or((false, line), |line| (true, line));
    let (hash, rest) = line.split_at_checked(64)?;
    let path = rest.strip_prefix(b"  ")?;
    let hash = hash_of(hash)?;
    if !escaped {
        return Some((path.to_vec(), hash));
    }
    let mut bytes = path.iter();
    let mut path = Vec::new();
    while let Some(byte) = bytes.next() {
        path.push(match byte {
            b'\\' => match bytes.next()? {
                b'n' => b'\n',
                b'r' => b'\r',
                b'\\' => b'\\',
                _ => return None,
            },
            byte => *byte,
        });
    }
    Some((path, hash))
}

fn json(line: &[u8]) -> Option<(Vec<u8>, String)> {
    serde_json::from_slice::<Json>(line).ok()?.path_and_hash()
}

fn hash_of(text: &[u8]) -> Option<String> {
    let is_hash = text.len() == 64 && text.iter().all(u8::is_ascii_hexdigit);
    is_hash.then(|| String::from_utf8_lossy(text).to_ascii_lowercase())
}

/// Merges manifests of parts, which have no path in common, into one in order. Returns the number of files.
/// The result has its name when it is whole.
///
/// # Errors
/// A list cannot be read, is not in order, or has a path of another one: then nothing is written.
pub fn merge(lists: &[PathBuf], out: &Path) -> Result<u64, ListError> {
    let failed = |why: io::Error| ListError { list: out.to_owned(), line: 0, why: why.to_string() };
    if let Some(other) = lists.iter().find(|list| is_json(list) != is_json(out)) {
        let why = "lines of b3sum and of JSON (.ndjson) do not go together".to_owned();
        return Err(ListError { list: other.clone(), line: 0, why });
    }
    let mut open = lists.iter().map(|list| List::open(list)).collect::<Result<Vec<_>, _>>()?;
    let (temporary, file) = leftover::create_beside(out, Maker::this()).map_err(failed)?;
    let merged = merge_into(&mut open, file).map_err(|why| match why {
        Why::List(why) => why,
        Why::Out(why) => failed(why),
    });
    match merged {
        Ok(count) => {
            fs::rename(&temporary, out).map_err(failed)?;
            Ok(count)
        }
        Err(why) => {
            // The first error is the one to report.
            let _ = fs::remove_file(&temporary);
            Err(why)
        }
    }
}

enum Why {
    List(ListError),
    Out(io::Error),
}

fn merge_into(lists: &mut [List], out: File) -> Result<u64, Why> {
    let mut out = BufWriter::new(out);
    let mut heads = BinaryHeap::new();
    for (index, list) in lists.iter_mut().enumerate() {
        if let Some(item) = list.next().map_err(Why::List)? {
            heads.push(Reverse((item.path, index, item.line)));
        }
    }
    let (mut count, mut last): (u64, Option<(Vec<u8>, usize)>) = (0, None);
    while let Some(Reverse((path, index, line))) = heads.pop() {
        if let Some((before, first)) = &last
            && *before == path
        {
            let other = lists.get(*first).map(|list| list.path.display().to_string()).unwrap_or_default();
            let name = String::from_utf8_lossy(&path).escape_debug().to_string();
            let why = format!(
                "{name} is in {} too: parts of one copy have no file in common",
                other.escape_debug()
            );
            return Err(Why::List(match lists.get(index) {
                Some(list) => ListError { line: list.number, ..list.error(why) },
                None => ListError { list: PathBuf::new(), line: 0, why },
            }));
        }
        out.write_all(&line).map_err(Why::Out)?;
        count += 1;
        last = Some((path, index));
        if let Some(item) = lists.get_mut(index).map_or(Ok(None), List::next).map_err(Why::List)? {
            heads.push(Reverse((item.path, index, item.line)));
        }
    }
    let out = out.into_inner().map_err(|why| Why::Out(why.into_error()))?;
    crate::sys::sync_data(&out).map_err(|why| Why::Out(why.into()))?;
    Ok(count)
}

/// What was found wrong with one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// It is in the manifest and not in the tree.
    Missing,
    /// It is in the tree and not in the manifest.
    Unlisted,
    /// Its contents are others.
    Differs,
    /// It cannot be read.
    Unreadable,
}

impl Fault {
    /// Returns it in words, to stand behind a path.
    pub fn what(self) -> &'static str {
        match self {
            Fault::Missing => "is missing",
            Fault::Unlisted => "is not in the manifest",
            Fault::Differs => "differs from the manifest",
            Fault::Unreadable => "cannot be read",
        }
    }
}

/// What came of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Files that are as the manifest has them.
    pub good: u64,
    /// Faults that were reported.
    pub faults: u64,
}

/// Compares the regular files of the tree `root` with a manifest, both ways, and reads all of them with
/// `jobs` threads. The manifest itself may lie in the tree.
///
/// # Errors
/// The list cannot be read or is not in order. What is wrong with files goes to `report`.
pub fn check(
    list: &Path,
    root: &Path,
    jobs: usize,
    report: &(dyn Fn(&Path, Fault) + Sync),
) -> Result<Checked, ListError> {
    let mut items = List::open(list)?;
    let own = fs::metadata(list).ok().map(|about| (about.dev(), about.ino()));
    let totals = Mutex::new(Checked::default());
    let count = |fault: Option<(&Path, Fault)>| {
        {
            let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
            match fault {
                None => totals.good += 1,
                Some(_) => totals.faults += 1,
            }
        }
        if let Some((path, fault)) = fault {
            report(path, fault);
        }
    };
    let compare = |(path, hash): (PathBuf, String)| {
        let mut hasher = blake3::Hasher::new();
        let read = File::open(root.join(&path)).and_then(|file| hasher.update_reader(file).map(|_| ()));
        let fault = match read {
            Err(why) if why.kind() == io::ErrorKind::NotFound => Some(Fault::Missing),
            Err(_) => Some(Fault::Unreadable),
            Ok(()) if hasher.finalize().to_hex().as_str() != hash => Some(Fault::Differs),
            Ok(()) => None,
        };
        count(fault.map(|fault| (path.as_path(), fault)));
    };
    crate::threads::spread(jobs, WAITING, compare, |give| {
        let mut walk = Walk::new(root, own);
        let (mut item, mut file) = (items.next()?, walk.next());
        loop {
            // The smaller path is the one that the other side does not have.
            let order = match (&item, &file) {
                (None, None) => break,
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (Some(item), Some((path, _))) => item.path.as_slice().cmp(path.as_os_str().as_bytes()),
            };
            if order.is_le() {
                if let Some(known) = item.take() {
                    let path = PathBuf::from(OsStr::from_bytes(&known.path));
                    if order.is_lt() {
                        count(Some((&path, Fault::Missing)));
                    } else {
                        give((path, known.hash));
                    }
                }
                item = items.next()?;
            }
            if order.is_ge() {
                if order.is_gt()
                    && let Some((path, readable)) = &file
                {
                    count(Some((path, if *readable { Fault::Unlisted } else { Fault::Unreadable })));
                }
                file = walk.next();
            }
        }
        Ok(())
    })?;
    Ok(totals.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// The regular files of a tree in the order of the bytes of their paths, relative to its root. A directory
/// that cannot be listed comes as itself, and not as readable.
struct Walk<'a> {
    root: &'a Path,
    own: Option<(u64, u64)>,
    /// What is left of each directory on the way, the last name first.
    stack: Vec<(PathBuf, bool)>,
}

impl<'a> Walk<'a> {
    fn new(root: &'a Path, own: Option<(u64, u64)>) -> Walk<'a> {
        Walk { root, own, stack: vec![(PathBuf::new(), true)] }
    }
}

impl Iterator for Walk<'_> {
    type Item = (PathBuf, bool);

    fn next(&mut self) -> Option<(PathBuf, bool)> {
        while let Some((path, is_directory)) = self.stack.pop() {
            if !is_directory {
                return Some((path, true));
            }
            let Ok(listing) = fs::read_dir(self.root.join(&path)) else { return Some((path, false)) };
            let mut entries = Vec::new();
            for entry in listing.flatten() {
                let Ok(about) = entry.metadata() else { continue };
                if self.own == Some((about.dev(), about.ino())) || !(about.is_dir() || about.is_file()) {
                    continue;
                }
                // Below a directory all paths have a slash behind its name, which counts in the order.
                let mut key = entry.file_name().as_bytes().to_vec();
                if about.is_dir() {
                    key.push(b'/');
                }
                entries.push((key, path.join(entry.file_name()), about.is_dir()));
            }
            entries.sort_by(|one, two| two.0.cmp(&one.0));
            self.stack.extend(entries.into_iter().map(|(_, path, is_directory)| (path, is_directory)));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn line(path: &str, contents: &str) -> String {
        format!("{}  {path}\n", blake3::hash(contents.as_bytes()).to_hex())
    }

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let hash = blake3::hash(b"x").to_hex().to_string();
        for (text, path) in [("  a b", "a b"), ("  ü", "ü")] {
            assert_eq!(
                plain(format!("{hash}{text}").as_bytes()),
                Some((path.as_bytes().to_vec(), hash.clone()))
            );
        }
        let escaped = format!("\\{hash}  a\\\\b\\nc\\r");
        assert_eq!(plain(escaped.as_bytes()), Some((b"a\\b\nc\r".to_vec(), hash.clone())));
        let other = format!(r#"{{"path":"?","path_b64":"//8=","size":1,"mtime_ns":1,"blake3":"{hash}"}}"#);
        assert_eq!(json(other.as_bytes()), Some((vec![0xff, 0xff], hash)));
        assert_eq!((plain(b"abc  d"), json(b"{}")), (None, None));
    }

    #[test]
    fn lists_of_parts_become_one_in_order_and_a_path_in_two_of_them_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("1"), line("a", "1") + &line("c/d", "2")).unwrap();
        fs::write(at("2"), line("b", "3") + &line("c-", "4") + &line("e", "5")).unwrap();
        fs::write(at("3"), "").unwrap();
        let out = at("all");
        assert_eq!(merge(&[at("1"), at("2"), at("3")], &out).unwrap(), 5);
        let expected =
            line("a", "1") + &line("b", "3") + &line("c-", "4") + &line("c/d", "2") + &line("e", "5");
        assert_eq!(fs::read_to_string(&out).unwrap(), expected);
        fs::write(at("3"), line("c-", "4")).unwrap();
        let error = merge(&[at("1"), at("2"), at("3")], &at("none")).unwrap_err().to_string();
        assert!(error.contains("c- is in ") && error.contains("no file in common"), "{error}");
        fs::write(at("3"), line("z", "1") + &line("y", "2")).unwrap();
        assert!(
            merge(&[at("3")], &at("none"))
                .unwrap_err()
                .to_string()
                .contains("line 2: the paths are not in order")
        );
        fs::write(at("3"), line("z", "1").trim_end()).unwrap();
        assert!(merge(&[at("3")], &at("none")).unwrap_err().to_string().contains("cut off"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4, "nothing is left behind");
    }

    #[test]
    fn a_tree_is_compared_with_its_list_both_ways() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir_all(root.join("c/x")).unwrap();
        for (path, contents) in [("a", "1"), ("c-", "4"), ("c/d", "2"), ("c/x/y", "6"), ("c.", "7")] {
            fs::write(root.join(path), contents).unwrap();
        }
        std::os::unix::fs::symlink("nowhere", root.join("link")).unwrap();
        let list = root.join("list");
        let all = [("a", "1"), ("c-", "4"), ("c.", "7"), ("c/d", "2"), ("c/x/y", "6")];
        fs::write(&list, all.map(|(path, contents)| line(path, contents)).concat()).unwrap();
        let faults = |jobs| {
            let found = Mutex::new(Vec::new());
            let report = |path: &Path, fault| found.lock().unwrap().push((path.display().to_string(), fault));
            let checked = check(&list, &root, jobs, &report).unwrap();
            let mut found = found.into_inner().unwrap();
            found.sort();
            assert_eq!(checked.faults, found.len() as u64);
            (checked.good, found)
        };
        assert_eq!(faults(3), (5, vec![]));
        fs::write(root.join("c/d"), "other").unwrap();
        fs::remove_file(root.join("c-")).unwrap();
        fs::write(root.join("c/new"), "").unwrap();
        let expected = [("c-", Fault::Missing), ("c/d", Fault::Differs), ("c/new", Fault::Unlisted)]
            .map(|(path, fault)| (path.to_owned(), fault));
        assert_eq!(faults(1), (3, expected.to_vec()));
    }
}
