//! A buffered writer: many small writes, few system calls.

use crate::traits::{AsyncRead, AsyncWrite};
use ringroad_engine::{IoBuf, IoBufMut, Lease, Result};

/// Default number of bytes that are collected before they are written.
const CAPACITY: usize = 8 * 1024;

/// Collects small writes. Bytes that were collected are lost when it is dropped: call
/// [`flush`](AsyncWrite::flush) or [`shutdown`](AsyncWrite::shutdown) at the end.
#[derive(Debug)]
pub struct BufWriter<W> {
    sink: W,
    collected: Vec<u8>,
    capacity: usize,
}

impl<W: AsyncWrite> BufWriter<W> {
    /// Makes a writer that collects up to 8 KiB.
    pub fn new(sink: W) -> BufWriter<W> {
        BufWriter::with_capacity(CAPACITY, sink)
    }

    /// Makes a writer that collects up to `capacity` bytes.
    pub fn with_capacity(capacity: usize, sink: W) -> BufWriter<W> {
        BufWriter { sink, collected: Vec::new(), capacity: capacity.max(1) }
    }

    /// Writes borrowed bytes: they are copied.
    ///
    /// # Errors
    /// Those of the sink.
    pub async fn write_slice(&mut self, bytes: &[u8]) -> Result<()> {
        if self.collected.len() + bytes.len() > self.capacity && !self.collected.is_empty() {
            self.write_collected().await?;
        }
        if bytes.len() >= self.capacity {
            return self.sink.write_all(bytes.to_vec()).await.0;
        }
        self.collected.extend_from_slice(bytes);
        Ok(())
    }

    /// Returns the collected bytes.
    pub fn buffer(&self) -> &[u8] {
        &self.collected
    }

    /// Returns the sink.
    pub fn get_ref(&self) -> &W {
        &self.sink
    }

    /// Returns the sink. Bytes written to it directly come before the collected bytes.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.sink
    }

    /// Returns the sink, and the bytes that were collected and not written.
    pub fn into_parts(self) -> (W, Vec<u8>) {
        (self.sink, self.collected)
    }

    async fn write_collected(&mut self) -> Result<()> {
        if self.collected.is_empty() {
            return Ok(());
        }
        let collected = std::mem::take(&mut self.collected);
        let (written, mut buffer) = self.sink.write_all(collected).await;
        buffer.clear();
        self.collected = buffer;
        written
    }
}

impl<W: AsyncWrite> AsyncWrite for BufWriter<W> {
    async fn write<B: IoBuf + Unpin + Send>(&mut self, bytes: B) -> (Result<usize>, B) {
        let count = bytes.bytes().len();
        let (written, bytes) = self.write_all(bytes).await;
        (written.map(|()| count), bytes)
    }

    async fn write_all<B: IoBuf + Unpin + Send>(&mut self, bytes: B) -> (Result<()>, B) {
        if bytes.bytes().len() < self.capacity {
            return (self.write_slice(bytes.bytes()).await, bytes);
        }
        // A large buffer is not copied: it is written directly.
        match self.write_collected().await {
            Ok(()) => self.sink.write_all(bytes).await,
            Err(why) => (Err(why), bytes),
        }
    }

    async fn flush(&mut self) -> Result<()> {
        self.write_collected().await?;
        self.sink.flush().await
    }

    async fn shutdown(&mut self) -> Result<()> {
        self.write_collected().await?;
        self.sink.shutdown().await
    }
}

impl<W: AsyncRead> AsyncRead for BufWriter<W> {
    async fn read<B: IoBufMut + Unpin + Send>(&mut self, buffer: B) -> (Result<usize>, B) {
        self.sink.read(buffer).await
    }

    async fn recv(&mut self) -> Result<Lease> {
        self.sink.recv().await
    }
}
