//! A file that gets a result at the end: opened before the work, once, and kept.
//!
//! Opened early, because ten minutes must not end in "permission denied". Kept, because a FIFO has a reader
//! that takes a second opening for a second writer, or has gone by then. Start at [`OutFile::open`].

use crate::complaint::{name, say, why};
use rustix::fs::OFlags;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// An open file for a result, and its path.
#[derive(Debug)]
pub(crate) struct OutFile {
    path: PathBuf,
    file: File,
}

impl OutFile {
    /// Opens it, and makes it where there is none. What is in it stays until the result is written. A FIFO
    /// without a reader is waited for, as a shell does, with a word about it unless `quiet`: call this before
    /// signals are taken over, so that Ctrl-C ends the wait.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn open(path: &Path, quiet: bool) -> io::Result<OutFile> {
        let file = match fs::metadata(path) {
            Ok(about) if about.file_type().is_fifo() => fifo(path, quiet)?,
            _ => OpenOptions::new().write(true).create(true).truncate(false).open(path)?,
        };
        Ok(OutFile { path: path.to_owned(), file })
    }

    /// Writes all of it, in place of what is there. A file that was cut off in the middle is removed: that is
    /// worse than none.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn write(&self, text: &str) -> io::Result<()> {
        let about = self.file.metadata()?;
        let mut file = &self.file;
        let written = match about.is_file() {
            true => file.set_len(0).and_then(|()| file.seek(SeekFrom::Start(0))).map(drop),
            false => Ok(()),
        };
        written.and_then(|()| file.write_all(text.as_bytes())).inspect_err(|_| {
            let is_own = |there: fs::Metadata| (there.dev(), there.ino()) == (about.dev(), about.ino());
            if about.is_file() && fs::symlink_metadata(&self.path).is_ok_and(is_own) {
                let _ = fs::remove_file(&self.path);
            }
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Returns the error of a result that was not written, as a message.
pub(crate) fn unwritten(path: &Path, error: &io::Error) -> String {
    format!("write, on {}: {}", name(path), why(error))
}

/// Opens a FIFO that may have no reader yet.
fn fifo(path: &Path, quiet: bool) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    match OpenOptions::new().write(true).custom_flags(flags).open(path) {
        Ok(file) => {
            // The writing waits for the reader.
            let flags = rustix::fs::fcntl_getfl(&file)?;
            rustix::fs::fcntl_setfl(&file, flags.difference(OFlags::NONBLOCK))?;
            Ok(file)
        }
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {
            if !quiet {
                say(&format!("{}: waiting for a reader of this FIFO (Ctrl-C ends the wait)", name(path)));
            }
            OpenOptions::new().write(true).open(path)
        }
        Err(error) => Err(error),
    }
}
