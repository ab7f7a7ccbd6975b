//! Files and directories: opened, read, written, listed, renamed, without holding up whoever else is on the runtime.
//!
//! No kernel waits for a disk by readiness, so each operation goes where it is fastest on the driver at hand: at once, if
//! the kernel promises not to wait; through the ring; or on a thread of the [`blocking`](crate::blocking) pool. Where,
//! and why, is in one table (`fs/way.rs`). What an operation means and what its errors say is the same everywhere.
//!
//! # Buffers
//! A read or a write takes its buffer by value and gives it back with the result, also with an error. It has to be
//! `Send`, since a thread of the pool may be the one to use it: `Vec<u8>`, [`Pages`](crate::Pages), `&'static` bytes;
//! what a [`Lease`](crate::Lease) holds is copied first (`to_vec`).
//!
//! # What a dropped future means
//! It is cancelled if that is possible, and otherwise done all the same: a file may be made, renamed or written although
//! nobody waits. Its buffer is freed, and a file that was opened is closed, when that is over.
//!
//! In [`sim`](crate::sim) the operations are done to the real file system; when they are over, and what goes wrong,
//! the seed decides.
//!
//! ```no_run
//! use ringroad_engine::{Builder, Name, Runtime, fs};
//!
//! let runtime = Runtime::builder(Name::Epoll).build()?;
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
mod way;

pub use cached::is_cached;
pub use directory::{Dir, DirEntry, ReadDir};
pub use file::File;
pub use metadata::{FileType, Metadata};
pub use options::OpenOptions;

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

/// What is at `path`; of a link, what it leads to.
///
/// # Errors
/// As statx(2).
pub async fn metadata(path: impl AsRef<Path>) -> Result<Metadata> {
    stat_beneath(None, path.as_ref(), 0).await
}

/// What is at `path`; of a link, itself.
///
/// # Errors
/// As statx(2).
pub async fn symlink_metadata(path: impl AsRef<Path>) -> Result<Metadata> {
    stat_beneath(None, path.as_ref(), libc::AT_SYMLINK_NOFOLLOW).await
}

/// Gives a file or directory another name, in place of what has that name.
///
/// # Errors
/// As renameat(2): EXDEV to another file system.
pub async fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
    rename_beneath(None, from.as_ref(), None, to.as_ref()).await
}

/// Removes a name of a file, and the file with its last one.
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

/// Makes a directory, of mode 0777 less what umask(2) takes.
///
/// # Errors
/// As mkdirat(2): EEXIST.
pub async fn create_dir(path: impl AsRef<Path>) -> Result<()> {
    create_beneath(None, path.as_ref()).await
}

/// Makes a directory and those above it that are missing. One that is there already is no error.
///
/// # Errors
/// As mkdirat(2): ENOTDIR, EEXIST where a file has one of the names. Those made until then stay.
pub async fn create_dir_all(path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    if path.as_os_str().is_empty() {
        return Ok(());
    }
    // Upwards until one can be made or is there, then down again.
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

/// What is in a directory, a chunk at a time.
///
/// # Errors
/// As openat(2): ENOTDIR.
pub async fn read_dir(path: impl AsRef<Path>) -> Result<ReadDir> {
    let dir = Dir::open(path).await?;
    Ok(ReadDir::new(dir))
}

/// Gives a file another name beside the one it has.
///
/// # Errors
/// As linkat(2).
pub async fn hard_link(original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
    let (from, to) = (at(None, original.as_ref())?, at(None, link.as_ref())?);
    let told = format!("{to} to {from}");
    simple("linkat", Request::Link { from, to }, told).await
}

/// Makes a symbolic link at `link`, to `original`, whether that is there or not.
///
/// # Errors
/// As symlinkat(2).
pub async fn symlink(original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
    let (target, at) = (name(original.as_ref())?, at(None, link.as_ref())?);
    let told = at.to_string();
    simple("symlinkat", Request::Symlink { target, at }, told).await
}

/// Where a symbolic link leads to, as it is written there.
///
/// # Errors
/// As readlinkat(2): EINVAL for what is no link.
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
        // It was cut off where it fills the room.
        if read == into.capacity() {
            bytes = into.capacity() * 2;
            continue;
        }
        // SAFETY: readlinkat(2) says that it wrote so many bytes into this memory, which it was told the size of.
        unsafe { into.set_len(read) };
        return Ok(PathBuf::from(OsString::from_vec(into)));
    }
}

/// All bytes of a file.
///
/// # Errors
/// As [`File::open`] and [`File::read_at`]; `OutOfMemory` if it is too long.
pub async fn read(path: impl AsRef<Path>) -> Result<Vec<u8>> {
    let file = File::open(path.as_ref()).await?;
    // One more than it has, to see the end; some, where a length is not told (`/proc`).
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

/// Room that a read of a whole file begins with at least.
const SMALL_READ_BYTES: usize = 256;

/// Makes `bytes` the content of a file, which is made if it is not there, and gives them back.
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

// ---- beneath a directory, or the working directory --------------------------------------------------------------

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

/// A path as the kernel takes it.
fn name(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| {
        let why = io::Error::new(io::ErrorKind::InvalidInput, "a path has no NUL in it");
        Error::new("a path", why).on(path.display())
    })
}

/// close(2): the descriptor is gone, whatever it answers.
fn sys_close(fd: OwnedFd) -> io::Result<()> {
    // SAFETY: owned until here, and given up by `into_raw_fd`.
    crate::sys::check(unsafe { libc::close(fd.into_raw_fd()) }).map(|_| ())
}
