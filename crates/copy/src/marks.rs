//! The completeness mark of `resume`: a file gets its source's times only after its data is on the disk.
//!
//! `resume` skips what has its source's size and time, so these times must never survive a crash that the
//! data did not survive. One `fdatasync(2)` after the other would cost a commit of the journal and a flush of
//! the disk per file. So finished files wait here, open: the kernel is told to write all of them, then they
//! are waited for.
//!
//! On ext4 and XFS it is enough to wait for the data (`sync_file_range(2)`). They log the change of the times
//! after the extents and the size of the file, and flush the disk before they commit. Other file systems get
//! `fdatasync`: btrfs may commit times and size before the extents. Files that wait when the process is
//! killed are copied again by the next `resume`. Start at [`Worker::mark`].
//!
//! INVARIANT: what changes a file's times to its source's is ordered after all its data, on the disk.

use crate::clock::For;
use crate::dir::Dir;
use crate::entry::Entry;
use crate::error::{Error, ErrorKind};
use crate::plan::Facts;
use crate::worker::Worker;
use rustix::fs::{Timespec, Timestamps};
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, PoisonError};

/// Files that wait together, unless the process may have few descriptors.
const FILES: usize = 128;
/// Bytes of such files: a disk should write them in about a second.
const BYTES: u64 = 128 << 20;

/// Finished files that wait for their times.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    files: Vec<Mark>,
    bytes: u64,
}

#[derive(Debug)]
struct Mark {
    file: OwnedFd,
    times: Timestamps,
    dir: Arc<Dir>,
    name: CString,
}

impl Mark {
    fn error(&self, kind: ErrorKind, why: Errno) -> Error {
        Error::system(kind, self.dir.target_of(&self.name), why)
    }
}

impl Worker<'_, '_> {
    /// Takes a finished file for its times. With enough of them, writes them and sets the times.
    pub(crate) fn mark(&mut self, entry: &Entry<'_>, file: OwnedFd, source: &Facts) {
        let of = |(tv_sec, tv_nsec): (i64, i64)| Timespec { tv_sec, tv_nsec: tv_nsec as _ };
        let times = Timestamps { last_access: of(source.atime), last_modification: of(source.mtime) };
        let mark = Mark { file, times, dir: Arc::clone(entry.dir), name: entry.target.to_owned() };
        let most = self.run.budget.most().min(FILES);
        let full = {
            let mut marks = self.run.marks.lock().unwrap_or_else(PoisonError::into_inner);
            marks.files.push(mark);
            marks.bytes += source.size;
            marks.files.len() >= most || marks.bytes >= BYTES
        };
        if full {
            self.write_marks();
        }
    }

    /// Writes what waits to the disk and sets its times.
    pub(crate) fn write_marks(&mut self) {
        let _marking =
            self.run.journal.get().map(|_| self.run.marking.lock().unwrap_or_else(PoisonError::into_inner));
        let marks = std::mem::take(&mut *self.run.marks.lock().unwrap_or_else(PoisonError::into_inner));
        for mark in &marks.files {
            // A hint: the disk gets all of it at once.
            let _ = self.clock.call(For::Sync, || crate::sys::start_writing(mark.file.as_fd()));
        }
        for mark in &marks.files {
            let error = match self.clock.call(For::Sync, || is_written(mark)) {
                Ok(()) => self
                    .clock
                    .call(For::Metadata, || rustix::fs::futimens(&mark.file, &mark.times))
                    .map_err(|why| mark.error(ErrorKind::PreserveTimes, why)),
                Err(why) => Err(mark.error(ErrorKind::Sync, why)),
            };
            if let Err(error) = error {
                // The file may be in any stretch.
                self.run.journal.get().inspect(|journal| journal.spoil());
                self.tell(error);
            }
        }
    }
}

/// Waits until the data of a file is on the disk.
fn is_written(mark: &Mark) -> rustix::io::Result<()> {
    // Magic numbers: statfs(2). What cannot be asked is not one of these.
    let logs =
        rustix::fs::fstatfs(&mark.file).is_ok_and(|found| matches!(found.f_type, 0xef53 | 0x5846_5342));
    match if logs { crate::sys::wait_written(mark.file.as_fd()) } else { Err(Errno::NOSYS) } {
        // Kernels that lack the call, filters that refuse it, and file systems that need the other.
        Err(Errno::NOSYS | Errno::PERM | Errno::INVAL | Errno::OPNOTSUPP) => {
            crate::sys::sync_data(&mark.file)
        }
        written => written,
    }
}
