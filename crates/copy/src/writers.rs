//! Allows one writer at a time for an existing file that several names refer to.
//!
//! Names are copied by several workers at once. Where two of them are one file, by hard links or through a
//! symbolic link, and it is written over where it is, both would write into each other's bytes, and what is
//! left would be neither source. So the second waits until the first has closed it, and the last to write
//! wins, whole, as if one had come after the other. A worker has one such file at a time, so none waits for
//! one that waits for it. Start at [`Writers::alone`].

use std::collections::HashSet;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// The files that are being written over.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writers(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    files: Mutex<HashSet<(u64, u64)>>,
    left: Condvar,
}

/// The right to overwrite one file. Dropping it passes it to the next worker.
#[derive(Debug)]
pub(crate) struct Sole {
    writers: Writers,
    file: (u64, u64),
}

impl Writers {
    /// Waits until no other worker writes to `file`.
    pub(crate) fn alone(&self, file: (u64, u64)) -> Sole {
        let mut files = self.0.files.lock().unwrap_or_else(PoisonError::into_inner);
        while !files.insert(file) {
            files = self.0.left.wait(files).unwrap_or_else(PoisonError::into_inner);
        }
        Sole { writers: self.clone(), file }
    }
}

impl Drop for Sole {
    fn drop(&mut self) {
        let Shared { files, left } = &*self.writers.0;
        files.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.file);
        left.notify_all();
    }
}
