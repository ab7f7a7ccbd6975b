//! The manifest: hashes collected in any order by all workers, and written sorted in bounded memory.
//!
//! A path that was written twice is listed as it was written last (`sorted.rs`). The manifest appears under
//! its name when it is whole; until then it is a copy in the making: `leftover.rs` decides its name and its
//! end. A link leads to that name, as from a shell's `>`; a FIFO, a device or a descriptor of this process
//! (`/dev/stdout`) stays what it is and is written to, at the end.

use crate::dir::Dir;
use crate::error::{Error, ErrorKind};
use crate::leftover::{self, Maker};
use crate::plan::Facts;
use crate::sorted::Sorter;
use rustix::fs::{CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC};
use rustix::io::Errno;
use serde::Serialize;
use std::ffi::{CStr, OsString};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Links that are followed, as many as by the kernel.
const LINKS_MAX: usize = 40;

/// A manifest that is being written.
#[derive(Debug)]
pub(crate) struct Manifest {
    /// The file that it and what is put aside are made beside.
    path: PathBuf,
    /// What will have the name `path`. `None`: the lines go into what is there.
    temporary: Option<PathBuf>,
    /// The names that it takes or is reached by.
    names: Vec<Place>,
    maker: Maker,
    json: bool,
    out: Mutex<Option<File>>,
    held: Mutex<Sorter>,
}

/// A name, and which directory it is in.
type Place = ((u64, u64), OsString);

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
        let json = path.extension().is_some_and(|end| end == "ndjson");
        let (mut path, mut names, own) = behind_links(path)?;
        let there = match rustix::fs::stat(&path) {
            Ok(there) => Some(Facts::from(there)),
            Err(Errno::NOENT) => None,
            Err(why) => return Err(why.into()),
        };
        let (temporary, out) = match there.map(|there| there.kind) {
            Some(FileType::Directory) => return Err(io::ErrorKind::IsADirectory.into()),
            None | Some(FileType::RegularFile) if !own => {
                let (temporary, out) = leftover::create_beside(&path, maker)?;
                (Some(temporary), out)
            }
            kind => {
                let mut flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
                // What was written to an open file before stays.
                flags.set(OFlags::APPEND, kind == Some(FileType::RegularFile));
                let out = match there.filter(|_| own).and_then(standard) {
                    Some(out) => out,
                    None => rustix::fs::openat(CWD, &path, flags, Mode::empty())?,
                };
                // Beside a device no files are made.
                path = std::env::temp_dir().join("ringroad-manifest");
                names.clear();
                (None, out.into())
            }
        };
        let (out, held) = (Mutex::new(Some(out)), Mutex::default());
        Ok(Manifest { path, temporary, names, maker, json, out, held })
    }

    /// Returns the file that it is made beside, to take its name.
    pub(crate) fn made_beside(&self) -> Option<&Path> {
        self.temporary.is_some().then_some(&*self.path)
    }

    /// Adds one file.
    pub(crate) fn add(&self, path: &Path, facts: &Facts, hash: &blake3::Hash) -> io::Result<()> {
        let line = if self.json { json_line(path, facts, hash)? } else { plain_line(path, hash) };
        let key: Box<[u8]> = path.as_os_str().as_bytes().into();
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.add(key, line.into(), || leftover::unnamed_beside(&self.path, self.maker))
    }

    /// Returns the files that it is made as: they are no part of a tree that is compared.
    pub(crate) fn made_as(&self) -> impl Iterator<Item = &Path> {
        [Some(&*self.path), self.temporary.as_deref()].into_iter().flatten()
    }

    /// Returns whether a file of this name is the manifest in the making: it may lie in a source, and is no
    /// part of it.
    pub(crate) fn is_made_as(&self, name: &CStr) -> bool {
        leftover::is_made_beside(&self.path, self.maker, name)
    }

    /// Returns the error of what would be copied to where the manifest will be: it would be lost when the
    /// manifest takes its name, and be listed all the same.
    pub(crate) fn refuses(&self, dir: &Dir, source: &CStr, target: &CStr) -> Option<Error> {
        let name = target.to_bytes();
        // A directory may be named with a slash behind it.
        let name = name.strip_suffix(b"/").unwrap_or(name);
        let same = |(folder, own): &Place| *folder == dir.target_identity && own.as_bytes() == name;
        self.names
            .iter()
            .any(same)
            .then(|| Error::plain(ErrorKind::OntoManifest, dir.target_of(target)).with(dir.source_of(source)))
    }

    /// Writes everything, sorted, and gives the file its name; where that fails there is none of it.
    pub(crate) fn finish(&self) -> io::Result<()> {
        let out = self.out.lock().unwrap_or_else(PoisonError::into_inner).take();
        let written = self.write_into(out.ok_or_else(|| io::Error::other("finished before"))?);
        if written.is_err() {
            self.remove();
        }
        written
    }

    /// Removes what was begun. An earlier error was reported already, or the run is over; a part that stays
    /// has the name of one.
    fn remove(&self) {
        if let Some(temporary) = &self.temporary {
            let _ = std::fs::remove_file(temporary);
        }
    }

    fn write_into(&self, out: File) -> io::Result<()> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = BufWriter::new(out);
        let mut sorted = held.sorted()?;
        while let Some((_, line)) = sorted.next()? {
            out.write_all(&line)?;
        }
        // It stays open, and with that locked, until it has its name.
        let out = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        let Some(temporary) = &self.temporary else { return Ok(()) };
        crate::sys::sync_data(&out)?;
        std::fs::rename(temporary, &self.path)
    }
}

impl Drop for Manifest {
    fn drop(&mut self) {
        let unfinished = self.out.get_mut().unwrap_or_else(PoisonError::into_inner).is_some();
        if unfinished {
            self.remove();
        }
    }
}

/// Our standard output or error, where that is the file `there`: with its position, so that later output does
/// not overwrite the list.
fn standard(there: Facts) -> Option<OwnedFd> {
    let (out, error) = (io::stdout(), io::stderr());
    let is_there = |fd: &BorrowedFd<'_>| {
        rustix::fs::fstat(fd).is_ok_and(|it| Facts::from(it).identity() == there.identity())
    };
    let standard = [out.as_fd(), error.as_fd()].into_iter().find(is_there)?;
    standard.try_clone_to_owned().ok()
}

/// Returns where links lead from `path`, which need not be there; the names on the way; and whether it is a
/// descriptor of a process, which /proc shows as a link and only the kernel can follow.
fn behind_links(path: &Path) -> io::Result<(PathBuf, Vec<Place>, bool)> {
    let mut path = path.to_path_buf();
    let mut names = Vec::new();
    while names.len() <= LINKS_MAX {
        // `list/` is a directory's name, whatever is there.
        let name = path.file_name().filter(|name| path.as_os_str().as_bytes().ends_with(name.as_bytes()));
        let Some(name) = name else { return Err(io::ErrorKind::IsADirectory.into()) };
        let folder = leftover::folder_of(&path);
        names.push((Facts::from(rustix::fs::stat(folder)?).identity(), name.to_os_string()));
        if !path.is_symlink() {
            return Ok((path, names, false));
        }
        if rustix::fs::statfs(folder)?.f_type == PROC_SUPER_MAGIC {
            return Ok((path, names, true));
        }
        path = folder.join(std::fs::read_link(&path)?);
    }
    Err(Errno::LOOP.into())
}

/// As `b3sum` writes it, and `b3sum --check` reads it: a name with a backslash or a line break in it is
/// escaped, and a backslash before the line says so.
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
        // A directory took the name first, which no file can replace.
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
        assert!(manifest.held.lock().unwrap().has_runs(), "nothing was put aside");
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
