//! What an earlier manifest says of the destination: `update_from_manifest`.
//!
//! A file that is as the manifest has it is not copied, and the destination's bytes are not read: its target
//! must be a regular file of the listed size, and its source must have the listed size and time, or else the
//! listed hash. So where the time differs the source is read, and nothing else. Start at
//! [`Worker::as_listed`].
//!
//! Looking up a path reads one block of the manifest. Memory holds the first path of each block: about three
//! bytes for each file.

use crate::clock::For;
use crate::dir::lstat;
use crate::entry::{Entry, Outcome};
use crate::error::{Error, ErrorKind};
use crate::lists::{self, List, ListError};
use crate::plan::{self, Facts};
use crate::report::Skip;
use crate::worker::Worker;
use rustix::fs::FileType;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes of lines after which a new block begins.
const BLOCK_BYTES: u64 = 4096;

/// A manifest that paths are looked up in.
#[derive(Debug)]
pub(crate) struct Manifested {
    path: PathBuf,
    file: File,
    json: bool,
    /// The first path of each block, and where it begins.
    blocks: Vec<(Box<[u8]>, u64)>,
    end: u64,
}

impl Manifested {
    /// Reads the whole manifest once, so that a mistake in it is found before anything is copied.
    pub(crate) fn open(path: &Path) -> Result<Manifested, ListError> {
        let failed = |why: std::io::Error| ListError { list: path.into(), line: 0, why: why.to_string() };
        let file = File::open(path).map_err(failed)?;
        let json = lists::is_json(path);
        let mut list = List::open(path)?;
        let (mut blocks, mut at, mut next) = (Vec::new(), 0_u64, 0_u64);
        while let Some(item) = list.next()? {
            if at >= next && lists::is_exact(json, &item.path) {
                blocks.push((item.path.into_boxed_slice(), at));
                next = at + BLOCK_BYTES;
            }
            at += item.line.len() as u64;
        }
        blocks.shrink_to_fit();
        Ok(Manifested { path: path.into(), file, json, blocks, end: at })
    }

    /// Returns what is listed of a path.
    pub(crate) fn find(&self, path: &[u8]) -> std::io::Result<Option<lists::Known>> {
        let after = self.blocks.partition_point(|(first, _)| **first <= *path);
        let Some((_, start)) = after.checked_sub(1).and_then(|at| self.blocks.get(at)) else {
            return Ok(None);
        };
        let end = self.blocks.get(after).map_or(self.end, |(_, next)| *next);
        let mut block = vec![0; (end - start) as usize];
        self.file.read_exact_at(&mut block, *start)?;
        let lines = block.split(|byte| *byte == b'\n');
        Ok(lines.filter_map(|line| lists::known(line, self.json)).find(|known| known.path == path))
    }
}

/// Whether a source is as listed.
pub(crate) enum AsListed {
    /// Size and time say so.
    Yes,
    /// Its hash has to be asked.
    PerhapsByHash,
    No,
}

/// Compares a source and its target with what is listed, by their metadata.
pub(crate) fn compare(known: &lists::Known, source: &Facts, target: &Facts) -> AsListed {
    let regular = source.kind == FileType::RegularFile && target.kind == FileType::RegularFile;
    let listed = known.size_and_time.map_or(source.size, |(size, _)| size);
    if !regular || source.size != listed || target.size != listed {
        return AsListed::No;
    }
    let Some((_, time)) = known.size_and_time else { return AsListed::PerhapsByHash };
    let nanoseconds = |(seconds, nanos): (i64, i64)| seconds.checked_mul(1_000_000_000)?.checked_add(nanos);
    // The list has the time as the destination's file system kept it.
    let same = [source.mtime, plan::as_kept(source.mtime, target)].map(nanoseconds).contains(&Some(time));
    if same { AsListed::Yes } else { AsListed::PerhapsByHash }
}

impl Worker<'_, '_> {
    /// Leaves a file as it is if the manifest of the destination has it as the source is now. `None`: it is
    /// to be copied.
    pub(crate) fn as_listed(&mut self, entry: &Entry<'_>, source: &Facts) -> Result<Option<Outcome>, Error> {
        let Some(manifested) = &self.run.manifested else { return Ok(None) };
        if source.kind != FileType::RegularFile {
            return Ok(None);
        }
        let Ok(target) = self.clock.call(For::Open, || lstat(entry.handles.target(), entry.target)) else {
            return Ok(None);
        };
        let path = entry.target_path();
        let path = path.strip_prefix(&self.run.manifest_root).unwrap_or(&path);
        let found = manifested.find(path.as_os_str().as_bytes()).map_err(|why| Error {
            kind: ErrorKind::List,
            path: manifested.path.clone(),
            other: None,
            source: Some(why),
        })?;
        let Some(known) = found else { return Ok(None) };
        match compare(&known, source, &target) {
            AsListed::No => return Ok(None),
            AsListed::Yes => {}
            AsListed::PerhapsByHash => {
                let Some(opened) = self.open_source(entry, source)? else {
                    return Ok(Some(Outcome::Skipped(Skip::Stopped)));
                };
                let mut hasher = blake3::Hasher::new();
                let whole = crate::verify::hash_file(
                    std::os::fd::AsFd::as_fd(&opened.fd),
                    &mut hasher,
                    self.run.control,
                    &mut self.clock,
                    self.buffer.bytes(),
                );
                if !whole.map_err(|why| entry.source_error(ErrorKind::Read, why))? {
                    return Ok(Some(Outcome::Skipped(Skip::Stopped)));
                }
                if hasher.finalize() != known.hash {
                    return Ok(None);
                }
                // The bytes are the same, and something about the file is not.
                self.attributes_again(entry, source)?;
            }
        }
        Ok(Some(Outcome::Kept { why: Skip::Listed, hash: Some(known.hash), verified: false }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_path_of_a_manifest_is_found_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = |at: u32| format!("d{:02}/file with\\ backslash {:05}", at % 40, at);
        let mut paths: Vec<String> = (0..5000).map(path).collect();
        paths.sort();
        for json in [false, true] {
            let list = folder.path().join(if json { "l.ndjson" } else { "l.b3" });
            let line = |path: &String| {
                let hash = blake3::hash(path.as_bytes()).to_hex();
                let quoted = serde_json::to_string(path).unwrap();
                match json {
                    true => {
                        format!("{{\"path\":{quoted},\"size\":7,\"mtime_ns\":-9,\"blake3\":\"{hash}\"}}\n")
                    }
                    false => format!("\\{hash}  {}\n", path.replace('\\', "\\\\")),
                }
            };
            std::fs::write(&list, paths.iter().map(line).collect::<String>()).unwrap();
            let manifested = Manifested::open(&list).unwrap();
            assert!(manifested.blocks.len() > 100, "{}", manifested.blocks.len());
            for path in &paths {
                let known = manifested.find(path.as_bytes()).unwrap().unwrap();
                assert_eq!(known.hash, blake3::hash(path.as_bytes()));
                assert_eq!(known.size_and_time, json.then_some((7, -9)));
            }
            for path in ["", "d00", "d00/", "d39/file with\\ backslash 99999", "e"] {
                assert_eq!(manifested.find(path.as_bytes()).unwrap(), None);
            }
        }
    }
}
