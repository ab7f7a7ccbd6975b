//! A part of a file, as the source of a send.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// A part of a file, for [`TcpStream::send_file`](crate::net::TcpStream::send_file). The bytes are those that
/// the file has at the time of the send.
pub struct FilePart(Option<Box<Part>>);

struct Part {
    file: Arc<File>,
    at: u64,
    end: u64,
}

/// Maximum number of bytes per system call.
const BYTES_MAX: u64 = 1 << 30;

impl FilePart {
    /// Returns the bytes of `file` in this range of offsets. The position of the file is neither used nor
    /// changed.
    pub fn new(file: Arc<File>, range: Range<u64>) -> FilePart {
        FilePart(Some(Box::new(Part { file, at: range.start, end: range.end.max(range.start) })))
    }

    /// Returns an empty part, in place of one that was lost with its runtime.
    pub(crate) fn lost() -> FilePart {
        FilePart(None)
    }

    /// Returns the number of bytes still to be sent.
    pub fn left(&self) -> u64 {
        self.0.as_ref().map_or(0, |part| part.end - part.at)
    }

    /// Reads the next bytes into the front of `buffer`, how many is the result, and counts them as sent. For
    /// code that has to change the bytes before they are sent. Waits for the disk unless they are in the page
    /// cache.
    ///
    /// # Errors
    /// `pread(2)` fails. ENODATA: the file has ended before the part.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left()).unwrap_or(usize::MAX).min(buffer.len());
        let Some(target) = buffer.get_mut(..most).filter(|target| !target.is_empty()) else { return Ok(0) };
        loop {
            let (file, at) = self.source();
            match file.read_at(target, at) {
                Ok(0) => return Err(io::Error::from_raw_os_error(libc::ENODATA)),
                Ok(bytes) => {
                    // At most `BYTES_MAX` were asked for.
                    self.advance(u32::try_from(bytes).unwrap_or(u32::MAX));
                    return Ok(bytes);
                }
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => return Err(why),
            }
        }
    }

    /// Removes bytes that were sent from the front.
    pub(crate) fn advance(&mut self, bytes: u32) {
        let bytes = u64::from(bytes).min(self.left());
        if let Some(part) = &mut self.0 {
            part.at += bytes;
        }
    }

    /// Returns the number of bytes for the next system call.
    pub(crate) fn step(&self) -> usize {
        self.left().min(BYTES_MAX) as usize
    }

    /// Returns the file, and the offset of the next byte to be sent.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    #[test]
    fn a_part_is_read_to_its_end_and_a_file_that_is_shorter_is_an_error() {
        let path = std::env::temp_dir().join(format!("ringroad-file-part-{}", std::process::id()));
        std::fs::write(&path, b"0123456789").unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut part = FilePart::new(Arc::new(file), 3..12);
        let mut buffer = [0; 4];
        assert_eq!((part.read(&mut buffer).unwrap(), &buffer), (4, b"3456"));
        assert_eq!((part.read(&mut buffer).unwrap(), &buffer[..3]), (3, b"789".as_slice()));
        assert_eq!(part.left(), 2);
        assert_eq!(part.read(&mut buffer).unwrap_err().raw_os_error(), Some(libc::ENODATA));
        assert_eq!(part.read(&mut []).unwrap(), 0);
    }
}
