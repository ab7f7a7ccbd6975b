//! Lines of a buffered reader.

use crate::buffered::BufReader;
use crate::traits::AsyncRead;
use ringroad_engine::Result;

/// The lines of a reader. See [`BufReader::lines`].
#[derive(Debug)]
pub struct Lines<R> {
    reader: BufReader<R>,
}

impl<R: AsyncRead> Lines<R> {
    pub(crate) fn new(reader: BufReader<R>) -> Lines<R> {
        Lines { reader }
    }

    /// Reads the next line, without its end; `None` at the end of the stream.
    ///
    /// # Errors
    /// As [`BufReader::read_line`].
    pub async fn next_line(&mut self) -> Result<Option<String>> {
        self.reader.read_line().await
    }

    /// Returns the reader, for instance to write to the stream.
    pub fn get_mut(&mut self) -> &mut BufReader<R> {
        &mut self.reader
    }

    /// Returns the reader.
    pub fn into_inner(self) -> BufReader<R> {
        self.reader
    }
}
