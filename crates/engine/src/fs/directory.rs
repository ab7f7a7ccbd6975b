//! Directories: a handle for relative paths, and a listing in chunks.

use super::file::{File, check};
use super::metadata::{FileType, Metadata};
use super::options::{OpenOptions, open};
use super::way::perform;
use crate::error::Result;
use crate::exec::Core;
use crate::inflight::{At, Base, Open, Request};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::future::{Future, poll_fn};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

/// An open directory, as the base of relative paths. It stays the same directory if it is renamed.
///
/// Paths may still leave it (`..`, links): this is not a sandbox. Like a [`File`] it belongs to no runtime,
/// and its clones share one descriptor.
#[derive(Clone)]
pub struct Dir {
    on: Arc<Open>,
    path: PathBuf,
}

impl Dir {
    /// Opens a directory.
    ///
    /// # Errors
    /// As openat(2): ENOTDIR for other files.
    pub async fn open(path: impl AsRef<Path>) -> Result<Dir> {
        Dir::open_beneath(None, path.as_ref(), path.as_ref().to_owned()).await
    }

    pub(super) async fn open_beneath(base: Base, path: &Path, told: PathBuf) -> Result<Dir> {
        let at = At { base, path: super::name(path)? };
        let on = open(at, libc::O_RDONLY | libc::O_DIRECTORY, 0).await?;
        Ok(Dir { on: Arc::new(on), path: told })
    }

    fn base(&self) -> Base {
        Some(Arc::clone(&self.on))
    }

    /// Opens a directory beneath this one.
    ///
    /// # Errors
    /// As [`Dir::open`].
    pub async fn open_dir(&self, path: impl AsRef<Path>) -> Result<Dir> {
        Dir::open_beneath(self.base(), path.as_ref(), self.path.join(path.as_ref())).await
    }

    /// Opens a file, as [`OpenOptions::open`].
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub async fn open_file(&self, path: impl AsRef<Path>, options: OpenOptions) -> Result<File> {
        options.open_beneath(self.base(), path.as_ref()).await
    }

    /// Works as [`metadata`](super::metadata()).
    ///
    /// # Errors
    /// As statx(2).
    pub async fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        super::stat_beneath(self.base(), path.as_ref(), 0).await
    }

    /// Works as [`symlink_metadata`](super::symlink_metadata()).
    ///
    /// # Errors
    /// As statx(2).
    pub async fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        super::stat_beneath(self.base(), path.as_ref(), libc::AT_SYMLINK_NOFOLLOW).await
    }

    /// Works as [`create_dir`](super::create_dir()).
    ///
    /// # Errors
    /// As mkdirat(2).
    pub async fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        super::create_beneath(self.base(), path.as_ref()).await
    }

    /// Works as [`remove_file`](super::remove_file()).
    ///
    /// # Errors
    /// As unlinkat(2).
    pub async fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        super::remove_beneath(self.base(), path.as_ref(), false).await
    }

    /// Works as [`remove_dir`](super::remove_dir()).
    ///
    /// # Errors
    /// As unlinkat(2).
    pub async fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        super::remove_beneath(self.base(), path.as_ref(), true).await
    }

    /// Works as [`rename`](super::rename()), to a path beneath `target`.
    ///
    /// # Errors
    /// As renameat(2).
    pub async fn rename(&self, from: impl AsRef<Path>, target: &Dir, to: impl AsRef<Path>) -> Result<()> {
        super::rename_beneath(self.base(), from.as_ref(), target.base(), to.as_ref()).await
    }

    /// Lists the directory from the beginning. Opens another descriptor, because a listing has a position.
    ///
    /// # Errors
    /// As openat(2).
    pub async fn read(&self) -> Result<ReadDir> {
        let dir = Dir::open_beneath(self.base(), Path::new("."), self.path.clone()).await?;
        Ok(ReadDir::new(dir))
    }
}

impl fmt::Debug for Dir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Dir").field(&self.on.number()).field(&self.path).finish()
    }
}

/// Size of a chunk in bytes, and all that a listing holds: about 1,000 names of usual length.
const CHUNK_BYTES: usize = 32 * 1024;

/// A chunk that is being read.
type Reading = Pin<Box<dyn Future<Output = (i32, Option<Request>)>>>;

/// A listing of a directory, a chunk at a time, in the file system's own order, without `.` and `..`.
///
/// Entries created or removed meanwhile may be listed or not.
pub struct ReadDir {
    dir: Dir,
    chunk: Vec<u8>,
    /// Number of bytes of the chunk that were returned.
    at: usize,
    /// Kept here and not in the future of [`ReadDir::next`], so that dropping that future loses no chunk.
    reading: Option<Reading>,
    over: bool,
}

impl ReadDir {
    pub(super) fn new(dir: Dir) -> ReadDir {
        ReadDir { dir, chunk: Vec::with_capacity(CHUNK_BYTES), at: 0, reading: None, over: false }
    }

    /// Returns the next entry; `None` at the end. Dropping the future loses nothing.
    ///
    /// # Errors
    /// As getdents64(2); the listing ends with it.
    pub async fn next(&mut self) -> Option<Result<DirEntry>> {
        loop {
            if let Some(raw) = RawEntry::first_of(self.chunk.get(self.at..).unwrap_or_default()) {
                let RawEntry { kind, ino, name, length } = raw;
                let name = (!matches!(name, b"." | b"..")).then(|| OsStr::from_bytes(name).to_owned());
                self.at += length;
                if let Some(name) = name {
                    let folder = self.dir.path.clone();
                    return Some(Ok(DirEntry { folder, name, kind: FileType::of_entry(kind), ino }));
                }
                continue;
            }
            if self.over {
                return None;
            }
            if let Err(why) = self.fill().await {
                self.over = true;
                return Some(Err(why));
            }
        }
    }

    /// Returns the number of bytes it holds, which does not depend on the size of the directory.
    pub fn held_bytes(&self) -> usize {
        self.chunk.capacity()
    }

    /// Fetches the next chunk.
    async fn fill(&mut self) -> Result<()> {
        let core = Core::current("listing a directory");
        let reading = self.reading.get_or_insert_with(|| {
            let mut into = std::mem::take(&mut self.chunk);
            into.clear();
            into.reserve(CHUNK_BYTES);
            self.at = 0;
            let request = Request::ReadDirectory { on: Arc::clone(&self.dir.on), into };
            Box::pin(perform(Rc::clone(&core), request))
        });
        let (result, request) = poll_fn(|context| reading.as_mut().poll(context)).await;
        self.reading = None;
        let bytes = check(&core, "getdents64", result).map_err(|why| why.on(self.dir.path.display()))?;
        if let Some(Request::ReadDirectory { mut into, .. }) = request {
            // SAFETY: getdents64(2) has returned the number of bytes it wrote at the start of this memory,
            // within its size.
            unsafe { into.set_len(bytes as usize) };
            self.chunk = into;
        }
        self.over = bytes == 0;
        Ok(())
    }
}

/// An entry in the form of `struct linux_dirent64`.
#[derive(Debug, PartialEq, Eq)]
struct RawEntry<'a> {
    kind: u8,
    ino: u64,
    name: &'a [u8],
    /// Offset of the next entry in bytes.
    length: usize,
}

impl RawEntry<'_> {
    /// Returns the first entry of a chunk: inode and position with eight bytes each, length with two, type
    /// with one, then the name up to a NUL.
    fn first_of(chunk: &[u8]) -> Option<RawEntry<'_>> {
        let (ino, rest) = chunk.split_first_chunk::<8>()?;
        let length = usize::from(u16::from_ne_bytes(rest.get(8..10)?.try_into().ok()?));
        let kind = *rest.get(10)?;
        let name = chunk.get(19..length)?;
        let end = name.iter().position(|byte| *byte == 0)?;
        Some(RawEntry { kind, ino: u64::from_ne_bytes(*ino), name: &name[..end], length })
    }
}

impl fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadDir").field("dir", &self.dir).field("over", &self.over).finish_non_exhaustive()
    }
}

/// One name in a directory.
#[derive(Clone, Debug)]
pub struct DirEntry {
    folder: PathBuf,
    name: OsString,
    kind: FileType,
    ino: u64,
}

impl DirEntry {
    /// Returns the name, which need not be UTF-8.
    pub fn file_name(&self) -> &OsStr {
        &self.name
    }

    /// Returns the path with which the directory was opened, joined with the name.
    pub fn path(&self) -> PathBuf {
        self.folder.join(&self.name)
    }

    /// Returns the type from the listing; [`FileType::Unknown`] if the file system does not report it.
    pub fn file_type(&self) -> FileType {
        self.kind
    }

    /// Returns the inode number.
    pub fn ino(&self) -> u64 {
        self.ino
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_truncated_entry_is_not_returned() {
        let mut chunk = vec![0; 24];
        chunk[..8].copy_from_slice(&7u64.to_ne_bytes());
        chunk[16..18].copy_from_slice(&24u16.to_ne_bytes());
        chunk[18] = 8;
        chunk[19..21].copy_from_slice(b"ab");
        let whole = RawEntry { kind: 8, ino: 7, name: b"ab", length: 24 };
        assert_eq!(RawEntry::first_of(&chunk), Some(whole));
        for end in 0..24 {
            assert_eq!(RawEntry::first_of(&chunk[..end]), None);
        }
        chunk[21..].fill(b'c');
        assert_eq!(RawEntry::first_of(&chunk), None, "a name without an end");
        chunk[16..18].copy_from_slice(&0u16.to_ne_bytes());
        assert_eq!(RawEntry::first_of(&chunk), None, "a length of nothing");
    }
}
