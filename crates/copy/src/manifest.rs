//! The list of hashes: collected in any order, by any worker; written sorted, in bounded memory.
//!
//! Lines are held up to a few megabytes, then sorted and put aside in a file without a name; at the end the runs
//! are merged. A path that was written twice is listed as it was written last: lines of one path keep the order in
//! which they came, in a run and from run to run. The manifest appears under its name when it is whole; until then it
//! is a copy in the making, whose name and end are `leftover.rs`'s.

use crate::dir::Dir;
use crate::error::{Error, ErrorKind};
use crate::leftover::{self, Maker};
use crate::plan::Facts;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Bytes of lines held before they are put aside.
const HELD_BYTES: usize = 8 << 20;

/// A manifest in the making.
#[derive(Debug)]
pub(crate) struct Manifest {
    path: PathBuf,
    /// Which directory it will be in.
    folder: (u64, u64),
    temporary: PathBuf,
    maker: Maker,
    json: bool,
    out: Mutex<Option<File>>,
    held: Mutex<Held>,
}

/// A path, by whose bytes lines are sorted, and its whole line.
type Keyed = (Box<[u8]>, Box<[u8]>);

#[derive(Debug, Default)]
struct Held {
    lines: Vec<Keyed>,
    bytes: usize,
    runs: Vec<File>,
}

#[derive(Serialize)]
struct Line<'a> {
    path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_b64: Option<String>,
    size: u64,
    mtime_ns: i128,
    blake3: &'a str,
}

impl Manifest {
    /// Makes sure that it can be written, before anything is copied.
    pub(crate) fn create(path: &Path, maker: Maker) -> io::Result<Manifest> {
        // `list/` is a directory's name, whatever is there.
        let named =
            path.file_name().is_some_and(|name| path.as_os_str().as_bytes().ends_with(name.as_bytes()));
        if !named || path.is_dir() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        }
        let folder = Facts::from(rustix::fs::stat(leftover::folder_of(path))?).identity();
        let (temporary, out) = leftover::create_beside(path, maker)?;
        Ok(Manifest {
            path: path.to_path_buf(),
            folder,
            temporary,
            maker,
            json: path.extension().is_some_and(|end| end == "ndjson"),
            out: Mutex::new(Some(out)),
            held: Mutex::default(),
        })
    }

    /// Adds one file.
    pub(crate) fn add(&self, path: &Path, facts: &Facts, hash: &blake3::Hash) -> io::Result<()> {
        let line = if self.json { json_line(path, facts, hash)? } else { plain_line(path, hash) };
        let key: Box<[u8]> = path.as_os_str().as_bytes().into();
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.bytes += key.len() + line.len() + 64;
        held.lines.push((key, line.into()));
        if held.bytes > HELD_BYTES { self.put_aside(&mut held) } else { Ok(()) }
    }

    /// Whether a file of this name is the manifest in the making: it may lie in a source, and is no part of it.
    pub(crate) fn is_made_as(&self, name: &CStr) -> bool {
        leftover::is_made_beside(&self.path, self.maker, name)
    }

    /// The error of what would be copied to where the manifest will be: it would be lost when the manifest takes its name,
    /// and be listed all the same.
    pub(crate) fn refuses(&self, dir: &Dir, source: &CStr, target: &CStr) -> Option<Error> {
        let name = target.to_bytes();
        // A directory may be named with a slash behind it.
        let name = name.strip_suffix(b"/").unwrap_or(name);
        let same = self.path.file_name().is_some_and(|own| own.as_bytes() == name);
        (same && dir.target_identity == self.folder)
            .then(|| Error::plain(ErrorKind::OntoManifest, dir.target_of(target)).with(dir.source_of(source)))
    }

    fn put_aside(&self, held: &mut Held) -> io::Result<()> {
        let mut run = BufWriter::new(self.unnamed()?);
        in_order(&mut held.lines);
        for (key, line) in &held.lines {
            for part in [key, line] {
                run.write_all(&(part.len() as u32).to_le_bytes())?;
                run.write_all(part)?;
            }
        }
        let mut run = run.into_inner().map_err(io::IntoInnerError::into_error)?;
        run.rewind()?;
        held.lines.clear();
        held.bytes = 0;
        held.runs.push(run);
        Ok(())
    }

    /// Writes everything, sorted, and gives the file its name; or leaves nothing.
    pub(crate) fn finish(&self) -> io::Result<()> {
        let out = self.out.lock().unwrap_or_else(PoisonError::into_inner).take();
        let written = self.write_into(out.ok_or_else(|| io::Error::other("finished before"))?);
        if written.is_err() {
            // The first error is the one to be told; a part that stays is named as one.
            let _ = std::fs::remove_file(&self.temporary);
        }
        written
    }

    fn write_into(&self, out: File) -> io::Result<()> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = BufWriter::new(out);
        in_order(&mut held.lines);
        let mut runs: Vec<Run> =
            std::mem::take(&mut held.runs).into_iter().map(|file| Run::File(BufReader::new(file))).collect();
        runs.push(Run::Held(std::mem::take(&mut held.lines).into_iter()));
        let mut heads = BinaryHeap::new();
        for (index, run) in runs.iter_mut().enumerate() {
            if let Some((key, line)) = run.next()? {
                heads.push(Reverse((key, index, line)));
            }
        }
        while let Some(Reverse((key, index, line))) = heads.pop() {
            if let Some((key, line)) = runs.get_mut(index).map_or(Ok(None), Run::next)? {
                heads.push(Reverse((key, index, line)));
            }
            // Of one path, a later line follows an earlier one.
            if heads.peek().is_none_or(|Reverse((next, ..))| *next != key) {
                out.write_all(&line)?;
            }
        }
        // It stays open, and with that locked, until it has its name.
        let out = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        out.sync_data()?;
        std::fs::rename(&self.temporary, &self.path)
    }

    /// A file without a name, which goes when it is closed.
    fn unnamed(&self) -> io::Result<File> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let folder = leftover::folder_of(&self.path);
        match rustix::fs::openat(CWD, folder, flags, Mode::RUSR | Mode::WUSR) {
            Ok(fd) => Ok(fd.into()),
            // A file system without such files.
            Err(_) => {
                let (path, file) = leftover::create_beside(&self.path, self.maker)?;
                rustix::fs::unlinkat(CWD, &path, AtFlags::empty())?;
                Ok(file)
            }
        }
    }
}

impl Drop for Manifest {
    fn drop(&mut self) {
        let unfinished = self.out.get_mut().unwrap_or_else(PoisonError::into_inner).is_some();
        if unfinished {
            // Nobody is left to tell; a part that stays is named as one.
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}

/// By path; lines of one path as they came.
fn in_order(lines: &mut [Keyed]) {
    lines.sort_by(|(one, _), (other, _)| one.cmp(other));
}

/// Lines in order.
enum Run {
    File(BufReader<File>),
    Held(std::vec::IntoIter<Keyed>),
}

impl Run {
    fn next(&mut self) -> io::Result<Option<Keyed>> {
        match self {
            Run::Held(lines) => Ok(lines.next()),
            Run::File(file) => {
                let mut length = [0; 4];
                match file.read_exact(&mut length) {
                    Err(why) if why.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
                    answer => answer?,
                }
                let key = part(file, length)?;
                file.read_exact(&mut length)?;
                Ok(Some((key, part(file, length)?)))
            }
        }
    }
}

fn part(file: &mut BufReader<File>, length: [u8; 4]) -> io::Result<Box<[u8]>> {
    let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
    file.read_exact(&mut bytes)?;
    Ok(bytes.into())
}

/// As `b3sum` writes it, and `b3sum --check` reads it: a name with a backslash or a line break in it is escaped, and
/// a backslash before the line says so.
fn plain_line(path: &Path, hash: &blake3::Hash) -> Vec<u8> {
    let name = path.to_string_lossy();
    let line = if name.contains(['\\', '\n', '\r']) {
        let name = name.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r");
        format!("\\{}  {name}\n", hash.to_hex())
    } else {
        format!("{}  {name}\n", hash.to_hex())
    };
    line.into_bytes()
}

fn json_line(path: &Path, facts: &Facts, hash: &blake3::Hash) -> io::Result<Vec<u8>> {
    use base64::Engine as _;
    let name = path.to_string_lossy();
    let bytes = path.as_os_str().as_bytes();
    let exact = std::str::from_utf8(bytes).is_ok();
    let line = Line {
        path: &name,
        path_b64: (!exact).then(|| base64::engine::general_purpose::STANDARD.encode(bytes)),
        size: facts.size,
        mtime_ns: i128::from(facts.mtime.0) * 1_000_000_000 + i128::from(facts.mtime.1),
        blake3: &hash.to_hex(),
    };
    let mut line = serde_json::to_vec(&line).map_err(io::Error::other)?;
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_that_cannot_have_its_name_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("list");
        let manifest = Manifest::create(&list, Maker::this()).unwrap();
        // Somebody was there first, with what no file can replace.
        std::fs::create_dir(&list).unwrap();
        manifest.finish().unwrap_err();
        let left: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(left, [list]);
    }

    #[test]
    fn a_path_added_twice_is_listed_once_as_it_was_last_also_after_lines_were_put_aside() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("list");
        let manifest = Manifest::create(&list, Maker::this()).unwrap();
        let facts = Facts::from(rustix::fs::stat(folder.path()).unwrap());
        let path = |at: usize| PathBuf::from(format!("{}{at:06}", "long/".repeat(800)));
        let (first, last) = (blake3::hash(b"first"), blake3::hash(b"last"));
        let count = 700;
        for at in 0..count {
            // Twice before they are put aside; then in another run, then in what is held to the end.
            for hash in [&last, &first] {
                manifest.add(&path(at), &facts, hash).unwrap();
            }
        }
        for at in (0..count).rev() {
            manifest.add(&path(at), &facts, if at & 1 == 0 { &last } else { &first }).unwrap();
        }
        manifest.add(&path(1), &facts, &last).unwrap();
        assert!(!manifest.held.lock().unwrap().runs.is_empty(), "nothing was put aside");
        manifest.finish().unwrap();
        let text = std::fs::read_to_string(&list).unwrap();
        let line = |at: usize| {
            let hash = if at & 1 == 0 || at == 1 { &last } else { &first };
            format!("{}  {}", hash.to_hex(), path(at).display())
        };
        let expected: Vec<String> = (0..count).map(line).collect();
        assert!(text.lines().eq(expected.iter()), "{} lines", text.lines().count());
    }
}
