//! A buffered reader: bytes up to a delimiter, lines, an exact number.

use crate::lines::Lines;
use crate::traits::{AsyncRead, AsyncWrite};
use crate::{LIMIT, ended, not_text, too_long};
use memchr::memchr;
use ringroad_engine::sync::budget::counted;
use ringroad_engine::{IoBuf, IoBufMut, Lease, Result};

/// Reads bytes up to a delimiter, lines, or an exact number of bytes, out of the buffers that they arrive in.
///
/// While it waits it holds no buffer, unless a part of what is wanted has arrived. A line or a piece is
/// bounded ([`with_limit`](Self::with_limit)), since a peer may never send its end.
///
/// Dropping a future of this reader loses no bytes: what was read before is kept for the next call.
///
/// A piece that is already here counts against the budget of its task as a receive does
/// ([`budget`](ringroad_engine::sync::budget)): a large buffer full of short lines does not stop the runtime.
#[derive(Debug)]
pub struct BufReader<R> {
    source: R,
    /// What was received last, less what was consumed.
    lease: Lease,
    /// Bytes before `lease`: the beginning of a line or piece that has not arrived completely.
    begun: Vec<u8>,
    limit: usize,
}

impl<R: AsyncRead> BufReader<R> {
    /// Makes a reader with a limit of [`LIMIT`] bytes per line.
    pub fn new(source: R) -> BufReader<R> {
        BufReader { source, lease: Lease::default(), begun: Vec::new(), limit: LIMIT }
    }

    /// Sets the maximum number of bytes of a line, of a read up to a delimiter, and of an exact read.
    pub fn with_limit(mut self, bytes: usize) -> BufReader<R> {
        self.limit = bytes;
        self
    }

    /// Returns the source.
    pub fn get_ref(&self) -> &R {
        &self.source
    }

    /// Returns the source, for instance to write to it. Do not read from it: this reader may hold bytes that
    /// come before.
    pub fn get_mut(&mut self) -> &mut R {
        &mut self.source
    }

    /// Returns the source, and the bytes that were received and not read yet.
    pub fn into_parts(self) -> (R, Vec<u8>) {
        let mut unread = self.begun;
        unread.extend_from_slice(&self.lease);
        (self.source, unread)
    }

    /// Returns the received bytes that were not read yet. Waits for more if there are none. Empty at the end.
    ///
    /// # Errors
    /// Those of the source.
    pub async fn fill(&mut self) -> Result<&[u8]> {
        if !self.begun.is_empty() {
            return Ok(&self.begun);
        }
        if self.lease.is_empty() {
            self.lease = self.source.recv().await?;
        }
        Ok(&self.lease)
    }

    /// Marks bytes of [`fill`](Self::fill) as read.
    ///
    /// # Panics
    /// There are fewer.
    pub fn consume(&mut self, bytes: usize) {
        if self.begun.is_empty() {
            self.lease.advance(bytes);
        } else {
            self.begun.drain(..bytes);
        }
    }

    /// Reads up to and including `delimiter`, or to the end, and appends the bytes to `to`. Returns the
    /// number of bytes: 0 at the end.
    ///
    /// # Errors
    /// Those of the source; `InvalidData` beyond the limit.
    pub async fn read_until(&mut self, delimiter: u8, to: &mut Vec<u8>) -> Result<usize> {
        counted(self.read_until_uncounted(delimiter, to)).await
    }

    async fn read_until_uncounted(&mut self, delimiter: u8, to: &mut Vec<u8>) -> Result<usize> {
        // Bytes before `searched` of `begun` hold no delimiter.
        let mut searched = 0;
        loop {
            if let Some(at) = memchr(delimiter, self.begun.get(searched..).unwrap_or_default()) {
                let bytes = searched + at + 1;
                to.extend(self.begun.drain(..bytes));
                return Ok(bytes);
            }
            searched = self.begun.len();
            if self.lease.is_empty() {
                if searched > self.limit {
                    return Err(too_long(self.limit));
                }
                self.lease = self.source.recv().await?;
                if self.lease.is_empty() {
                    to.append(&mut self.begun);
                    return Ok(searched);
                }
            }
            match memchr(delimiter, &self.lease) {
                Some(at) if searched + at + 1 > self.limit => return Err(too_long(self.limit)),
                Some(at) => {
                    to.append(&mut self.begun);
                    to.extend_from_slice(self.lease.get(..=at).unwrap_or_default());
                    self.lease.advance(at + 1);
                    return Ok(searched + at + 1);
                }
                None => self.begin(),
            }
        }
    }

    /// Moves the bytes of the lease to `begun`, so that its buffer returns to the pool.
    fn begin(&mut self) {
        let lease = std::mem::take(&mut self.lease);
        if self.begun.is_empty() {
            self.begun = Vec::from(lease);
        } else {
            self.begun.extend_from_slice(&lease);
        }
    }

    /// Reads a line without its end (`\n` or `\r\n`); `None` at the end of the stream.
    ///
    /// # Errors
    /// As [`read_until`](Self::read_until); `InvalidData` if it is not UTF-8.
    pub async fn read_line(&mut self) -> Result<Option<String>> {
        let mut line = Vec::new();
        if self.read_until(b'\n', &mut line).await? == 0 {
            return Ok(None);
        }
        if line.last() == Some(&b'\n') {
            line.pop();
            if line.last() == Some(&b'\r') {
                line.pop();
            }
        }
        String::from_utf8(line).map(Some).map_err(not_text)
    }

    /// Returns the lines, one after another.
    pub fn lines(self) -> Lines<R> {
        Lines::new(self)
    }

    /// Reads exactly `bytes` bytes.
    ///
    /// # Errors
    /// Those of the source; `UnexpectedEof` if it ends earlier; `InvalidData` beyond the limit.
    pub async fn read_exact(&mut self, bytes: usize) -> Result<Vec<u8>> {
        counted(self.read_exact_uncounted(bytes)).await
    }

    async fn read_exact_uncounted(&mut self, bytes: usize) -> Result<Vec<u8>> {
        if bytes > self.limit {
            return Err(too_long(self.limit));
        }
        while self.begun.len() + self.lease.len() < bytes {
            self.begin();
            self.lease = self.source.recv().await?;
            if self.lease.is_empty() {
                return Err(ended(bytes, self.begun.len()));
            }
        }
        let mut exact = Vec::with_capacity(bytes);
        let begun = bytes.min(self.begun.len());
        exact.extend(self.begun.drain(..begun));
        let rest = bytes - begun;
        exact.extend_from_slice(self.lease.get(..rest).unwrap_or_default());
        self.lease.advance(rest);
        Ok(exact)
    }

    /// Reads one byte; `None` at the end.
    ///
    /// # Errors
    /// Those of the source.
    pub async fn read_u8(&mut self) -> Result<Option<u8>> {
        let first = self.fill().await?.first().copied();
        if first.is_some() {
            self.consume(1);
        }
        Ok(first)
    }
}

impl<R: AsyncRead> AsyncRead for BufReader<R> {
    async fn read<B: IoBufMut + Unpin + Send>(&mut self, buffer: B) -> (Result<usize>, B) {
        if self.begun.is_empty() && self.lease.is_empty() {
            return self.source.read(buffer).await;
        }
        let mut buffer = buffer;
        let read = if self.begun.is_empty() {
            let read = buffer.append(&self.lease);
            self.lease.advance(read);
            read
        } else {
            let read = buffer.append(&self.begun);
            self.begun.drain(..read);
            read
        };
        (Ok(read), buffer)
    }

    async fn recv(&mut self) -> Result<Lease> {
        if !self.begun.is_empty() {
            return Ok(Lease::from(std::mem::take(&mut self.begun)));
        }
        if !self.lease.is_empty() {
            return Ok(std::mem::take(&mut self.lease));
        }
        self.source.recv().await
    }
}

impl<R: AsyncWrite> AsyncWrite for BufReader<R> {
    async fn write<B: IoBuf + Unpin + Send>(&mut self, bytes: B) -> (Result<usize>, B) {
        self.source.write(bytes).await
    }

    async fn write_all<B: IoBuf + Unpin + Send>(&mut self, bytes: B) -> (Result<()>, B) {
        self.source.write_all(bytes).await
    }

    async fn write_lease(&mut self, lease: Lease) -> Result<()> {
        self.source.write_lease(lease).await
    }

    async fn flush(&mut self) -> Result<()> {
        self.source.flush().await
    }

    async fn shutdown(&mut self) -> Result<()> {
        self.source.shutdown().await
    }
}
