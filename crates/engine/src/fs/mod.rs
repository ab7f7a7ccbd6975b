//! Files and directories, without blocking other tasks of the runtime.
//!
//! Linux has no readiness for disks, so each operation runs where it is fastest on the current driver: in
//! place, if the kernel promises not to wait; through the ring; or on a thread of the
//! [`blocking`](crate::blocking) pool. One table decides (`fs/way.rs`). The meaning of an operation and its
//! errors are the same everywhere.
//!
//! # Buffers
//! A read or a write takes its buffer by value and returns it with the result, also with an error. The buffer
//! must be `Send`, because a thread of the pool may use it: `Vec<u8>`, [`Pages`](crate::Pages), `&'static`
//! bytes. Copy the bytes of a [`Lease`](crate::Lease) first (`to_vec`).
//!
//! # What a dropped future means
//! The operation is cancelled if possible. Otherwise it still happens: a file may be created, renamed or
//! written although its future was dropped. Afterwards the buffer is freed, and a file that was opened is
//! closed. A read that waits for a peer (of a pipe, a terminal) is always cancelled, and takes no bytes.
//!
//! In `sim` the operations run on the real file system; the seed decides when they complete and which faults
//! occur.
//!
//! ```no_run
//! use ringroad_engine::{Builder, DriverName, Runtime, fs};
//!
//! let runtime = Runtime::builder(DriverName::Epoll).build()?;
//! runtime.block_on(async {
//!     let file = fs::File::open("data").await?;
//!     let (read, bytes) = file.read_at(Vec::with_capacity(4096), 0).await;
//!     println!("{} bytes: {bytes:?}", read?);
//!     Ok::<_, ringroad_engine::Error>(())
//! })??;
//! # Ok::<(), ringroad_engine::Error>(())
//! ```

mod cached;
mod directory;
mod file;
mod metadata;
mod options;
mod pooled;
mod way;

pub use cached::is_cached;
pub use directory::{Dir, DirEntry, ReadDir};
pub use file::File;
pub use metadata::{FileType, Metadata};
pub use options::OpenOptions;
pub use pooled::{canonicalize, copy, remove_dir_all, set_permissions};
pub(crate) use way::{readable, writable};

use crate::buf::IoBuf;
use crate::error::{Error, Result};
use crate::exec::Core;
use crate::inflight::{At, Base, Request};
use crate::sys::file::length_hint;
use file::check;
use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Returns the metadata of the file at `path`, following symbolic links.
///
/// # Errors
/// As statx(2).
pub async fn metadata(path: impl AsRef<Path>) -> Result<Metadata> {
    stat_beneath(None, path.as_ref(), 0).await
}

/// Returns the metadata of the file at `path`, or of the symbolic link itself.
///
/// # Errors
/// As statx(2).
pub async fn symlink_metadata(path: impl AsRef<Path>) -> Result<Metadata> {
    stat_beneath(None, path.as_ref(), libc::AT_SYMLINK_NOFOLLOW).await
}

/// Returns whether there is a file at `path`, following symbolic links.
///
/// # Errors
/// As statx(2), if that cannot be told: EACCES.
pub async fn try_exists(path: impl AsRef<Path>) -> Result<bool> {
    match metadata(path).await {
        Ok(_) => Ok(true),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(why) => Err(why),
    }
}

/// Renames a file or directory, replacing an existing target.
///
/// # Errors
/// As renameat(2): EXDEV for another file system.
pub async fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
    rename_beneath(None, from.as_ref(), None, to.as_ref()).await
}

/// Removes a name of a file; with the last name the file.
///
/// # Errors
/// As unlinkat(2): EISDIR for a directory.
pub async fn remove_file(path: impl AsRef<Path>) -> Result<()> {
    remove_beneath(None, path.as_ref(), false).await
}

/// Removes an empty directory.
///
/// # Errors
/// As rmdir(2): ENOTEMPTY.
pub async fn remove_dir(path: impl AsRef<Path>) -> Result<()> {
    remove_beneath(None, path.as_ref(), true).await
}

/// Creates a directory with mode 0777, less umask(2).
///
/// # Errors
/// As mkdirat(2): EEXIST.
pub async fn create_dir(path: impl AsRef<Path>) -> Result<()> {
    create_beneath(None, path.as_ref()).await
}

/// Creates a directory and its missing parents. An existing directory is no error.
///
/// # Errors
/// As mkdirat(2): ENOTDIR, EEXIST if a file has one of the names. Directories created before the error stay.
pub async fn create_dir_all(path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    if path.as_os_str().is_empty() {
        return Ok(());
    }
    // Go up until one exists or can be created, then down again.
    let mut missing = vec![path];
    let mut down = false;
    while let Some(path) = missing.last() {
        match create_beneath(None, path).await {
            Ok(()) => {}
            Err(why) if why.raw_os_error() == Some(libc::ENOENT) && !down => {
                match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                    Some(parent) => missing.push(parent),
                    None => return Err(why),
                }
                continue;
            }
            Err(why) if why.raw_os_error() == Some(libc::EEXIST) => {
                if !metadata(path).await.is_ok_and(|there| there.is_dir()) {
                    return Err(why);
                }
            }
            Err(why) => return Err(why),
        }
        down = true;
        missing.pop();
    }
    Ok(())
}

/// Lists a directory, a chunk at a time.
///
/// # Errors
/// As openat(2): ENOTDIR.
pub async fn read_dir(path: impl AsRef<Path>) -> Result<ReadDir> {
    let dir = Dir::open(path).await?;
    Ok(ReadDir::new(dir))
}

/// Creates a hard link: another name of a file.
///
/// # Errors
/// As linkat(2).
pub async fn hard_link(original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
    let (from, to) = (at(None, original.as_ref())?, at(None, link.as_ref())?);
    let told = format!("{to} to {from}");
    simple("linkat", Request::Link { from, to }, told).await
}

/// Creates a symbolic link at `link` to `original`, which need not exist.
///
/// # Errors
/// As symlinkat(2).
pub async fn symlink(original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
    let (target, at) = (name(original.as_ref())?, at(None, link.as_ref())?);
    let told = at.to_string();
    simple("symlinkat", Request::Symlink { target, at }, told).await
}

/// Returns the content of a symbolic link.
///
/// # Errors
/// As readlinkat(2): EINVAL for other files.
pub async fn read_link(path: impl AsRef<Path>) -> Result<PathBuf> {
    let core = Core::current("reading a link");
    let at = at(None, path.as_ref())?;
    let mut bytes = libc::PATH_MAX as usize;
    loop {
        let into = Vec::with_capacity(bytes);
        let request = Request::ReadLink { at: at.clone(), into };
        let (result, request) = way::perform(Rc::clone(&core), request).await;
        let read = check(&core, "readlinkat", result).map_err(|why| why.on(&at))? as usize;
        let Some(Request::ReadLink { mut into, .. }) = request else {
            unreachable!("a request comes back as what it was")
        };
        // A result that fills the memory may be truncated.
        if read == into.capacity() {
            bytes = into.capacity() * 2;
            continue;
        }
        // SAFETY: readlinkat(2) has returned the number of bytes it wrote into this memory, within its size.
        unsafe { into.set_len(read) };
        return Ok(PathBuf::from(OsString::from_vec(into)));
    }
}

/// Reads a whole file.
///
/// # Errors
/// As [`File::open`] and [`File::read_at`]; `OutOfMemory` if it is too long.
pub async fn read(path: impl AsRef<Path>) -> Result<Vec<u8>> {
    let file = File::open(path.as_ref()).await?;
    // One byte more than its length, to detect the end; a minimum for files without a length (`/proc`).
    let hint = usize::try_from(length_hint(file.on.number())).unwrap_or(usize::MAX);
    let mut bytes = Vec::new();
    let mut more = hint.saturating_add(1).max(SMALL_READ_BYTES);
    loop {
        let reserved = bytes.try_reserve_exact(more);
        let lacking = |_| io::Error::from(io::ErrorKind::OutOfMemory);
        reserved.map_err(|why| Error::new("pread", lacking(why)).on(path.as_ref().display()))?;
        while bytes.len() < bytes.capacity() {
            let offset = bytes.len() as u64;
            let (result, back) = file.read_at(bytes, offset).await;
            bytes = back;
            if result.map_err(|why| why.on(path.as_ref().display()))? == 0 {
                return Ok(bytes);
            }
        }
        more = bytes.len();
    }
}

/// Reads a whole file as text.
///
/// # Errors
/// As [`read`]; `InvalidData` if it is not UTF-8.
pub async fn read_to_string(path: impl AsRef<Path>) -> Result<String> {
    let bytes = read(path.as_ref()).await?;
    String::from_utf8(bytes).map_err(|why| {
        Error::new("pread", io::Error::new(io::ErrorKind::InvalidData, why)).on(path.as_ref().display())
    })
}

/// Minimum initial capacity of a read of a whole file, in bytes.
const SMALL_READ_BYTES: usize = 256;

/// Creates or truncates a file and writes `bytes` to it; returns the buffer.
///
/// # Errors
/// As [`File::create`] and [`File::write_at`]; a part may have been written.
pub async fn write<B>(path: impl AsRef<Path>, bytes: B) -> (Result<()>, B)
where
    B: IoBuf + Send + 'static,
{
    match File::create(path.as_ref()).await {
        Ok(file) => {
            let (result, bytes) = file.write_all_at(bytes, 0).await;
            (result.map_err(|why| why.on(path.as_ref().display())), bytes)
        }
        Err(why) => (Err(why), bytes),
    }
}

// ---- beneath a directory, or the working directory --------------------------------------------------------

async fn stat_beneath(base: Base, path: &Path, flags: i32) -> Result<Metadata> {
    let at = at(base, path)?;
    metadata::stat(at, flags).await.map_err(|why| why.on(path.display()))
}

async fn create_beneath(base: Base, path: &Path) -> Result<()> {
    let at = at(base, path)?;
    simple("mkdirat", Request::MakeDirectory { at, mode: 0o777 }, path.display()).await
}

async fn remove_beneath(base: Base, path: &Path, directory: bool) -> Result<()> {
    let at = at(base, path)?;
    let name = if directory { "rmdir" } else { "unlinkat" };
    simple(name, Request::Unlink { at, directory }, path.display()).await
}

async fn rename_beneath(base: Base, from: &Path, target: Base, to: &Path) -> Result<()> {
    let (from, to) = (at(base, from)?, at(target, to)?);
    let told = format!("{from} to {to}");
    simple("renameat", Request::Rename { from, to }, told).await
}

async fn simple(name: &'static str, request: Request, on: impl std::fmt::Display) -> Result<()> {
    let core = Core::current("an operation on a path");
    let (result, _) = way::perform(Rc::clone(&core), request).await;
    check(&core, name, result).map(|_| ()).map_err(|why| why.on(on))
}

fn at(base: Base, path: &Path) -> Result<At> {
    Ok(At { base, path: name(path)? })
}

/// Converts a path to a C string.
fn name(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| {
        let why = io::Error::new(io::ErrorKind::InvalidInput, "a path has no NUL in it");
        Error::new("a path", why).on(path.display())
    })
}

/// Calls close(2). The descriptor is closed whatever it returns.
fn sys_close(fd: OwnedFd) -> io::Result<()> {
    // SAFETY: owned until here, and released by `into_raw_fd`.
    crate::sys::check(unsafe { libc::close(fd.into_raw_fd()) }).map(|_| ())
}
