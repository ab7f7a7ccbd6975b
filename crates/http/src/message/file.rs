//! Bodies that are parts of files, sent by the kernel from its page cache.
//!
//! `sendfile(2)` waits for the disk if the data is not in the cache, and a worker that waits serves no
//! request. So each step is checked first. If the kernel reports the state of all its pages in one call
//! (`cachestat(2)`), that is used, and one byte at the end is read with `RWF_NOWAIT` (preadv2(2)). That read
//! is refused if it would have to wait: for a page that is still being read, which the last one would be. On
//! other kernels one byte each is read at the beginning, at the end, and every 128 KiB between. If a read is
//! refused, a thread of the blocking pool reads the step before it is sent. Read-ahead of a disk brings at
//! least 128 KiB, so gaps between the checks are rare; a gap costs one wait. If a file system does not
//! support `RWF_NOWAIT`, the pool reads.
//!
//! `server/exchange.rs` sends the steps, and decides when to give up.

use super::body::{Piece, Pieces};
use super::chunk::Chunk;
use super::error::BoxError;
use futures_core::Stream;
use ringroad_engine::blocking::{Blocking, spawn_blocking};
use ringroad_engine::{FilePart, JoinError, fs};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Size of a step, which is checked and then sent.
const STEP_BYTES: u64 = 1024 * 1024;

/// Size of one read, in bytes.
const READ_BYTES: usize = 128 * 1024;

/// A part of a file.
pub(crate) struct FileBody {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl FileBody {
    pub(crate) fn new(file: Arc<File>, range: Range<u64>) -> FileBody {
        FileBody { file, at: range.start, end: range.end.max(range.start) }
    }

    /// Returns the bytes that are left.
    pub(crate) fn left(&self) -> u64 {
        self.end - self.at
    }

    /// Returns the next step, `None` at the end, and whether the checks found all of it in the cache.
    pub(crate) fn step(&mut self) -> Option<(FilePart, bool)> {
        let step = self.at..self.end.min(self.at.saturating_add(STEP_BYTES));
        if step.is_empty() {
            return None;
        }
        self.at = step.end;
        let part = FilePart::new(Arc::clone(&self.file), step.clone());
        // For smaller steps, the checks need no more calls.
        let told =
            if part.left() > READ_BYTES as u64 { fs::is_cached(&self.file, step.clone()) } else { None };
        let is_cached = match told {
            Some(true) => is_cached(&self.file, &(step.end - 1..step.end)),
            Some(false) => false,
            None => is_cached(&self.file, &step),
        };
        Some((part, is_cached))
    }

    /// Reads the last step, which ends at `at`, into the page cache.
    pub(crate) fn fetch(&self, part: &FilePart) -> Blocking<io::Result<()>> {
        let (file, range) = (Arc::clone(&self.file), self.at - part.left()..self.at);
        spawn_blocking(move || {
            let mut buffer = vec![0; READ_BYTES];
            let mut at = range.start;
            while at < range.end {
                match file.read_at(&mut buffer, at) {
                    // The file has become shorter. The send will report it.
                    Ok(0) => break,
                    Ok(bytes) => at += bytes as u64,
                    Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                    Err(why) => return Err(why),
                }
            }
            Ok(())
        })
    }

    /// Returns the bytes as a stream, for callers that cannot use `sendfile`.
    pub(crate) fn into_pieces(self) -> Pieces {
        let size = Some(self.left());
        Pieces { stream: Box::pin(FilePieces { body: self, reading: None }), size }
    }
}

fn is_cached(file: &File, range: &Range<u64>) -> bool {
    let first = range.start..range.end - 1;
    let looks = first.step_by(READ_BYTES).chain([range.end - 1]);
    looks.into_iter().all(|at| {
        let mut byte = [0];
        loop {
            match preadv2(file, &mut [IoSliceMut::new(&mut byte)], at, ReadWriteFlags::NOWAIT) {
                Err(Errno::INTR) => {}
                // No byte: the file ends earlier, so a send does not wait.
                looked => return looked.is_ok(),
            }
        }
    })
}

/// Bytes of a file, which the pool reads piece by piece.
struct FilePieces {
    body: FileBody,
    reading: Option<Blocking<io::Result<Vec<u8>>>>,
}

impl Stream for FilePieces {
    type Item = Result<Piece, BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let (at, left) = (this.body.at, this.body.left().min(READ_BYTES as u64) as usize);
        if left == 0 {
            return Poll::Ready(None);
        }
        let file = &this.body.file;
        let reading = this.reading.get_or_insert_with(|| {
            let file = Arc::clone(file);
            spawn_blocking(move || {
                let mut piece = vec![0; left];
                file.read_exact_at(&mut piece, at).map(|()| piece)
            })
        });
        let read: Result<_, JoinError> = ready!(Pin::new(reading).poll(context));
        this.reading = None;
        let piece = match read {
            Ok(Ok(piece)) => piece,
            Ok(Err(why)) => return Poll::Ready(Some(Err(why.into()))),
            Err(why) => return Poll::Ready(Some(Err(why.to_string().into()))),
        };
        this.body.at += piece.len() as u64;
        Poll::Ready(Some(Ok(Piece::Data(Chunk::from(piece)))))
    }
}
