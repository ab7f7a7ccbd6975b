//! Metadata of a file.

use super::file::check;
use super::way::perform;
use crate::error::Result;
use crate::exec::Core;
use crate::inflight::{At, Request};
use std::fmt;
use std::mem::MaybeUninit;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

/// The result of statx(2).
#[derive(Clone, Copy)]
pub struct Metadata(libc::statx);

/// The type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FileType {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A block device.
    BlockDevice,
    /// A character device.
    CharacterDevice,
    /// The file system does not report it, or a type unknown to this version.
    Unknown,
}

impl FileType {
    /// Returns whether it is a regular file.
    pub fn is_file(self) -> bool {
        self == FileType::File
    }

    /// Returns whether it is a directory.
    pub fn is_dir(self) -> bool {
        self == FileType::Directory
    }

    /// Returns whether it is a symbolic link.
    pub fn is_symlink(self) -> bool {
        self == FileType::Symlink
    }

    pub(super) fn of_mode(mode: u32) -> FileType {
        match mode & libc::S_IFMT {
            libc::S_IFREG => FileType::File,
            libc::S_IFDIR => FileType::Directory,
            libc::S_IFLNK => FileType::Symlink,
            libc::S_IFIFO => FileType::Fifo,
            libc::S_IFSOCK => FileType::Socket,
            libc::S_IFBLK => FileType::BlockDevice,
            libc::S_IFCHR => FileType::CharacterDevice,
            _ => FileType::Unknown,
        }
    }

    /// Returns the type for `d_type` of a directory entry: the bits of `st_mode`, shifted (`IFTODT`).
    pub(super) fn of_entry(kind: u8) -> FileType {
        FileType::of_mode(u32::from(kind) << 12)
    }
}

impl Metadata {
    /// Returns the length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "a file's length, as in the standard library")]
    pub fn len(&self) -> u64 {
        self.0.stx_size
    }

    /// Returns the type.
    pub fn file_type(&self) -> FileType {
        FileType::of_mode(self.0.stx_mode.into())
    }

    /// Returns whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.file_type().is_file()
    }

    /// Returns whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.file_type().is_dir()
    }

    /// Returns whether it is a symbolic link; only [`symlink_metadata`](super::symlink_metadata) reports one.
    pub fn is_symlink(&self) -> bool {
        self.file_type().is_symlink()
    }

    /// Returns type and permissions (`st_mode`).
    pub fn mode(&self) -> u32 {
        self.0.stx_mode.into()
    }

    /// Returns the owner's user id.
    pub fn uid(&self) -> u32 {
        self.0.stx_uid
    }

    /// Returns the group id.
    pub fn gid(&self) -> u32 {
        self.0.stx_gid
    }

    /// Returns the inode number.
    pub fn ino(&self) -> u64 {
        self.0.stx_ino
    }

    /// Returns the device of the file system (`st_dev`).
    pub fn dev(&self) -> u64 {
        libc::makedev(self.0.stx_dev_major, self.0.stx_dev_minor)
    }

    /// Returns the number of hard links.
    pub fn nlink(&self) -> u32 {
        self.0.stx_nlink
    }

    /// Returns the allocated size, in units of 512 bytes.
    pub fn blocks(&self) -> u64 {
        self.0.stx_blocks
    }

    /// Returns the time of the last change of the content.
    pub fn modified(&self) -> SystemTime {
        time(self.0.stx_mtime)
    }

    /// Returns the time of the last read, as far as the file system records it.
    pub fn accessed(&self) -> SystemTime {
        time(self.0.stx_atime)
    }

    /// Returns the time of the last change of content or metadata.
    pub fn changed(&self) -> SystemTime {
        time(self.0.stx_ctime)
    }

    /// Returns the time of creation, if the file system records it.
    pub fn created(&self) -> Option<SystemTime> {
        (self.0.stx_mask & libc::STATX_BTIME != 0).then(|| time(self.0.stx_btime))
    }
}

/// Converts a timestamp. Before 1970, seconds are negative and nanoseconds still count forwards.
fn time(told: libc::statx_timestamp) -> SystemTime {
    let seconds = Duration::from_secs(told.tv_sec.unsigned_abs());
    let whole = match told.tv_sec < 0 {
        true => SystemTime::UNIX_EPOCH.checked_sub(seconds),
        false => SystemTime::UNIX_EPOCH.checked_add(seconds),
    };
    let whole = whole.unwrap_or(SystemTime::UNIX_EPOCH);
    whole.checked_add(Duration::from_nanos(told.tv_nsec.into())).unwrap_or(whole)
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metadata")
            .field("file_type", &self.file_type())
            .field("len", &self.len())
            .field("mode", &format_args!("{:o}", self.mode()))
            .field("modified", &self.modified())
            .finish_non_exhaustive()
    }
}

/// Calls statx(2).
pub(super) async fn stat(at: At, flags: i32) -> Result<Metadata> {
    let core = Core::current("asking for metadata");
    let into = Box::new(MaybeUninit::uninit());
    let (result, request) = perform(Rc::clone(&core), Request::Stat { at, flags, into }).await;
    check(&core, "statx", result)?;
    match request {
        // SAFETY: statx(2) has succeeded on this memory, and fills all of it.
        Some(Request::Stat { into, .. }) => Ok(Metadata(*unsafe { into.assume_init() })),
        _ => unreachable!("a request comes back as what it was"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_are_converted() {
        // SAFETY: integers only.
        let mut told: libc::statx_timestamp = unsafe { std::mem::zeroed() };
        (told.tv_sec, told.tv_nsec) = (-2, 250_000_000);
        let before = SystemTime::UNIX_EPOCH - Duration::from_millis(1750);
        assert_eq!(time(told), before);
        (told.tv_sec, told.tv_nsec) = (i64::MIN, 999_999_999);
        let _ = time(told);
    }
}
