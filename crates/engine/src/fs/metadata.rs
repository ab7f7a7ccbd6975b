//! What the system knows of a file.

use super::file::check;
use super::way::perform;
use crate::error::Result;
use crate::exec::Core;
use crate::inflight::{At, Request};
use std::fmt;
use std::mem::MaybeUninit;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

/// What statx(2) tells.
#[derive(Clone, Copy)]
pub struct Metadata(libc::statx);

/// What kind of thing a name stands for.
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
    /// A device of blocks.
    BlockDevice,
    /// A device of characters.
    CharacterDevice,
    /// What the file system does not tell, or nobody knew when this was written.
    Unknown,
}

impl FileType {
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

    /// From `d_type` of a directory's entry, which is the same number, shifted (`IFTODT`).
    pub(super) fn of_entry(kind: u8) -> FileType {
        FileType::of_mode(u32::from(kind) << 12)
    }
}

impl Metadata {
    /// The length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "a file's length, as in the standard library")]
    pub fn len(&self) -> u64 {
        self.0.stx_size
    }

    /// What kind of thing it is.
    pub fn file_type(&self) -> FileType {
        FileType::of_mode(self.0.stx_mode.into())
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.file_type() == FileType::File
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.file_type() == FileType::Directory
    }

    /// Whether it is a symbolic link, which only [`symlink_metadata`](super::symlink_metadata) tells.
    pub fn is_symlink(&self) -> bool {
        self.file_type() == FileType::Symlink
    }

    /// Kind and permissions, as the system numbers them (`st_mode`).
    pub fn mode(&self) -> u32 {
        self.0.stx_mode.into()
    }

    /// The owner.
    pub fn uid(&self) -> u32 {
        self.0.stx_uid
    }

    /// The group.
    pub fn gid(&self) -> u32 {
        self.0.stx_gid
    }

    /// The number of the inode in its file system.
    pub fn ino(&self) -> u64 {
        self.0.stx_ino
    }

    /// The device the file system is on, as stat(2) numbers it.
    pub fn dev(&self) -> u64 {
        libc::makedev(self.0.stx_dev_major, self.0.stx_dev_minor)
    }

    /// How many names it has.
    pub fn nlink(&self) -> u32 {
        self.0.stx_nlink
    }

    /// What it occupies, in units of 512 bytes.
    pub fn blocks(&self) -> u64 {
        self.0.stx_blocks
    }

    /// When its bytes were last changed.
    pub fn modified(&self) -> SystemTime {
        time(self.0.stx_mtime)
    }

    /// When it was last read, as far as the file system keeps that.
    pub fn accessed(&self) -> SystemTime {
        time(self.0.stx_atime)
    }

    /// When anything about it was last changed.
    pub fn changed(&self) -> SystemTime {
        time(self.0.stx_ctime)
    }

    /// When it was made, if the file system keeps that.
    pub fn created(&self) -> Option<SystemTime> {
        (self.0.stx_mask & libc::STATX_BTIME != 0).then(|| time(self.0.stx_btime))
    }
}

/// Before 1970, seconds are negative and nanoseconds go on counting forwards.
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

/// Asks the system.
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
    fn times_before_1970_are_told() {
        // SAFETY: integers only.
        let mut told: libc::statx_timestamp = unsafe { std::mem::zeroed() };
        (told.tv_sec, told.tv_nsec) = (-2, 250_000_000);
        let before = SystemTime::UNIX_EPOCH - Duration::from_millis(1750);
        assert_eq!(time(told), before);
        (told.tv_sec, told.tv_nsec) = (i64::MIN, 999_999_999);
        let _ = time(told);
    }
}
