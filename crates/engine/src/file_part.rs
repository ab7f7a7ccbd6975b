//! A part of a file that is to be sent.

use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

/// A part of a file, to be sent by [`TcpStream::send_file`](crate::net::TcpStream::send_file): the bytes of the file as
/// they are at that moment.
pub struct FilePart(Option<Box<Part>>);

struct Part {
    file: Arc<File>,
    at: u64,
    end: u64,
}

/// Most bytes that one call is asked for.
const BYTES_MAX: u64 = 1 << 30;

impl FilePart {
    /// The bytes of `file` at these places. The file's own position does not matter and stays.
    pub fn new(file: Arc<File>, range: Range<u64>) -> FilePart {
        FilePart(Some(Box::new(Part { file, at: range.start, end: range.end.max(range.start) })))
    }

    /// What comes back of one that went down with its runtime.
    pub(crate) fn lost() -> FilePart {
        FilePart(None)
    }

    /// Bytes that are still to be sent.
    pub fn left(&self) -> u64 {
        self.0.as_ref().map_or(0, |part| part.end - part.at)
    }

    /// So many bytes from its beginning have been sent.
    pub(crate) fn advance(&mut self, bytes: u32) {
        let bytes = u64::from(bytes).min(self.left());
        if let Some(part) = &mut self.0 {
            part.at += bytes;
        }
    }

    /// How many bytes one call is asked for.
    pub(crate) fn step(&self) -> usize {
        self.left().min(BYTES_MAX) as usize
    }

    /// The file, and where its next byte to be sent is.
    pub(crate) fn source(&self) -> (&File, u64) {
        #[allow(clippy::expect_used, reason = "a lost one has nothing left, and is never sent")]
        let part = self.0.as_deref().expect("a part that is sent");
        (&part.file, part.at)
    }
}

impl fmt::Debug for FilePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FilePart").field(&self.0.as_ref().map(|part| part.at..part.end)).finish()
    }
}
