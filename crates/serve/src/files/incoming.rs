//! A file that is being put into a folder: without a name until it is whole.

use super::open::Root;
use crate::upload::Kept;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, linkat, openat, renameat, unlinkat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Names in the making.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A file in the making. It goes with this value if it was not finished.
#[derive(Debug)]
pub(crate) struct Uploads {
    folder: OwnedFd,
    file: File,
    /// Its name until it is whole, on file systems without nameless files.
    temporary: Option<String>,
}

fn temporary() -> String {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!(".ringroad-upload-{}-{number}.part", std::process::id())
}

impl Root {
    /// Begins a file. `None`: so many bytes are not free.
    pub(crate) fn begin_upload(&self, free: u64) -> io::Result<Option<Uploads>> {
        self.reopen();
        let folder =
            openat(self.folder(), ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let space = rustix::fs::fstatvfs(&folder)?;
        if space.f_bavail.saturating_mul(space.f_frsize) < free {
            return Ok(None);
        }
        let mode = Mode::from_raw_mode(0o644);
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        if let Ok(file) = openat(&folder, ".", flags | OFlags::TMPFILE, mode) {
            return Ok(Some(Uploads { folder, file: file.into(), temporary: None }));
        }
        let name = temporary();
        let file = openat(&folder, &name, flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW, mode)?;
        Ok(Some(Uploads { folder, file: file.into(), temporary: Some(name) }))
    }
}

impl Uploads {
    /// Returns the file, to be written to.
    pub(crate) fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Gives the file its name, after its bytes are on the disk.
    pub(crate) fn finish(mut self, name: &str, overwrite: bool) -> io::Result<Kept> {
        self.file.sync_data()?;
        match self.link(name) {
            Ok(()) => {
                rustix::fs::fsync(&self.folder)?;
                return Ok(Kept::Created);
            }
            Err(Errno::EXIST) => {}
            Err(why) => return Err(why.into()),
        }
        if self.is_there(name)? {
            return Ok(Kept::Same);
        }
        if !overwrite {
            return Ok(Kept::Taken);
        }
        let from = match &self.temporary {
            Some(name) => name.clone(),
            None => {
                let from = temporary();
                self.link(&from)?;
                self.temporary = Some(from.clone());
                from
            }
        };
        renameat(&self.folder, &from, &self.folder, name)?;
        self.temporary = None;
        rustix::fs::fsync(&self.folder)?;
        Ok(Kept::Replaced)
    }

    /// Gives the file a name that is free.
    fn link(&self, name: &str) -> rustix::io::Result<()> {
        match &self.temporary {
            Some(from) => linkat(&self.folder, from, &self.folder, name, AtFlags::empty()),
            None => {
                let from = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                linkat(CWD, from, &self.folder, name, AtFlags::SYMLINK_FOLLOW)
            }
        }
    }

    /// Returns whether a regular file of this name has the same bytes.
    fn is_there(&self, name: &str) -> io::Result<bool> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(there) = openat(&self.folder, name, flags, Mode::empty()) else { return Ok(false) };
        let (one, other) = (fstat(&self.file)?, fstat(&there)?);
        if FileType::from_raw_mode(other.st_mode) != FileType::RegularFile || one.st_size != other.st_size {
            return Ok(false);
        }
        let mut own = self.file.try_clone()?;
        io::Seek::rewind(&mut own)?;
        let (mut one, mut other) = (BufReader::new(own).bytes(), BufReader::new(File::from(there)).bytes());
        loop {
            match (one.next().transpose()?, other.next().transpose()?) {
                (None, None) => return Ok(true),
                (one, other) if one == other => {}
                _ => return Ok(false),
            }
        }
    }
}

impl Drop for Uploads {
    fn drop(&mut self) {
        if let Some(name) = &self.temporary {
            // What is left of it has a name that is not served.
            let _ = unlinkat(&self.folder, name, AtFlags::empty());
        }
    }
}
