//! The I/O traits: `AsyncRead`, `AsyncWrite`, `Split`, and the methods built on them.

use crate::{LIMIT, ended, not_text, too_long};
use ringroad_engine::{IoBuf, IoBufMut, Lease, Result};
use std::future::Future;

/// Bytes that [`AsyncRead::recv`] asks for where the reader has no buffer of its own.
const RECV_BYTES: usize = 16 * 1024;

/// A source of bytes.
///
/// Buffers are `Send`, since a file may be read on another thread.
pub trait AsyncRead {
    /// Reads once into the spare capacity of `buffer`; returns it with the number of appended bytes. 0 means
    /// the end, unless there was no spare capacity.
    ///
    /// Dropping the future loses the buffer. A stream loses no bytes by it.
    fn read<B: IoBufMut + Unpin + Send>(&mut self, buffer: B) -> impl Future<Output = (Result<usize>, B)>;

    /// Receives the next bytes in the buffer that they arrived in. An empty lease means the end.
    ///
    /// Dropping the future of a stream loses nothing.
    fn recv(&mut self) -> impl Future<Output = Result<Lease>> {
        async {
            let (read, bytes) = self.read(Vec::with_capacity(RECV_BYTES)).await;
            read.map(|_| Lease::from(bytes))
        }
    }
}

/// A sink of bytes.
pub trait AsyncWrite {
    /// Writes as much of `bytes` as possible, at least one byte unless it is empty; returns the buffer and
    /// the number of bytes written.
    fn write<B: IoBuf + Unpin + Send>(&mut self, bytes: B) -> impl Future<Output = (Result<usize>, B)>;

    /// Writes all of `bytes`; returns the buffer, also on an error.
    ///
    /// Dropping the future leaves it unknown how much was written. A stream then refuses further writes.
    fn write_all<B: IoBuf + Unpin + Send>(&mut self, bytes: B) -> impl Future<Output = (Result<()>, B)>;

    /// Writes received bytes. A stream sends them from the buffer that they arrived in.
    fn write_lease(&mut self, lease: Lease) -> impl Future<Output = Result<()>> {
        async { self.write_all(Vec::from(lease)).await.0 }
    }

    /// Writes the bytes that the writer has collected.
    fn flush(&mut self) -> impl Future<Output = Result<()>> {
        async { Ok(()) }
    }

    /// Writes the bytes that the writer has collected, then ends the stream.
    fn shutdown(&mut self) -> impl Future<Output = Result<()>>;
}

/// A stream with a half for each direction, which two tasks can use at once.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be split",
    note = "a stream is split, and copied in both directions, as a whole: give it away instead of `&mut`"
)]
pub trait Split {
    /// The receiving half.
    type Read: AsyncRead;
    /// The sending half.
    type Write: AsyncWrite;

    /// Splits the stream. It is closed when both halves are dropped.
    fn into_split(self) -> (Self::Read, Self::Write);
}

/// Adds exact reads and reads to the end to every [`AsyncRead`].
pub trait AsyncReadExt: AsyncRead {
    /// Reads exactly `bytes` bytes and appends them to `buffer`, which is returned also on an error.
    ///
    /// Dropping the future loses the buffer and what was read into it: in a `select!` use
    /// [`BufReader::read_exact`](crate::BufReader::read_exact), which loses nothing.
    ///
    /// # Errors
    /// `UnexpectedEof` if the source ends earlier; the bytes before are in the buffer.
    fn read_exact(
        &mut self,
        mut buffer: Vec<u8>,
        bytes: usize,
    ) -> impl Future<Output = (Result<()>, Vec<u8>)> {
        async move {
            let start = buffer.len();
            loop {
                let missing = bytes - (buffer.len() - start);
                if missing == 0 {
                    return (Ok(()), buffer);
                }
                // The spare capacity bounds a read, and it must not exceed `missing`. An allocator may give
                // more than requested, so a buffer with more room reads through a boxed slice, which has an
                // exact length.
                buffer.reserve_exact(missing);
                let read = if buffer.capacity() - buffer.len() == missing {
                    let (read, back) = self.read(buffer).await;
                    buffer = back;
                    read
                } else {
                    let (read, piece) = self.read(exactly(missing)).await;
                    buffer.extend_from_slice(&piece);
                    read
                };
                match read {
                    Ok(0) => return (Err(ended(bytes, buffer.len() - start)), buffer),
                    Ok(_) => {}
                    Err(why) => return (Err(why), buffer),
                }
            }
        }
    }

    /// Reads to the end and appends everything to `buffer`, which is returned also on an error. At most
    /// `limit` bytes ([`LIMIT`] is a usual one), because a peer can send without end.
    ///
    /// Dropping the future loses the buffer and what was read into it.
    ///
    /// # Errors
    /// `InvalidData` if there is more.
    fn read_to_end(
        &mut self,
        mut buffer: Vec<u8>,
        limit: usize,
    ) -> impl Future<Output = (Result<()>, Vec<u8>)> {
        async move {
            let mut read = 0;
            loop {
                let lease = match self.recv().await {
                    Ok(lease) => lease,
                    Err(why) => return (Err(why), buffer),
                };
                if lease.is_empty() {
                    return (Ok(()), buffer);
                }
                read += lease.len();
                if read > limit {
                    return (Err(too_long(limit)), buffer);
                }
                buffer.extend_from_slice(&lease);
            }
        }
    }

    /// Reads text to the end, at most [`LIMIT`] bytes. Dropping the future loses what was read.
    ///
    /// # Errors
    /// As [`read_to_end`](Self::read_to_end); `InvalidData` if it is not UTF-8.
    fn read_to_string(&mut self) -> impl Future<Output = Result<String>> {
        async {
            let (read, bytes) = self.read_to_end(Vec::new(), LIMIT).await;
            read?;
            String::from_utf8(bytes).map_err(not_text)
        }
    }
}

/// Returns an empty vector with exactly this capacity.
fn exactly(bytes: usize) -> Vec<u8> {
    let mut exact = vec![0; bytes].into_boxed_slice().into_vec();
    exact.clear();
    exact
}

impl<R: AsyncRead + ?Sized> AsyncReadExt for R {}

impl<R: AsyncRead> AsyncRead for &mut R {
    fn read<B: IoBufMut + Unpin + Send>(&mut self, buffer: B) -> impl Future<Output = (Result<usize>, B)> {
        (**self).read(buffer)
    }

    fn recv(&mut self) -> impl Future<Output = Result<Lease>> {
        (**self).recv()
    }
}

impl<W: AsyncWrite> AsyncWrite for &mut W {
    fn write<B: IoBuf + Unpin + Send>(&mut self, bytes: B) -> impl Future<Output = (Result<usize>, B)> {
        (**self).write(bytes)
    }

    fn write_all<B: IoBuf + Unpin + Send>(&mut self, bytes: B) -> impl Future<Output = (Result<()>, B)> {
        (**self).write_all(bytes)
    }

    fn write_lease(&mut self, lease: Lease) -> impl Future<Output = Result<()>> {
        (**self).write_lease(lease)
    }

    fn flush(&mut self) -> impl Future<Output = Result<()>> {
        (**self).flush()
    }

    fn shutdown(&mut self) -> impl Future<Output = Result<()>> {
        (**self).shutdown()
    }
}
