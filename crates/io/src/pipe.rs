//! Pipes, and the standard streams of the process.

use crate::traits::{AsyncRead, AsyncWrite};
use ringroad_engine::fs::File;
use ringroad_engine::{Error, IoBuf, IoBufMut, Result, spawn_blocking};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Makes a pipe (`pipe2(2)`).
///
/// ```
/// # use ringroad_engine::{DriverName, Runtime};
/// use ringroad_io::{AsyncReadExt, AsyncWrite, pipe};
///
/// Runtime::new(DriverName::Epoll)?.block_on(async {
///     let (mut reader, mut writer) = pipe()?;
///     writer.write_all("through").await.0?;
///     drop(writer);
///     assert_eq!(reader.read_to_string().await?, "through");
///     Ok::<(), ringroad_engine::Error>(())
/// })??;
/// # Ok::<(), ringroad_engine::Error>(())
/// ```
///
/// # Errors
/// EMFILE, ENFILE.
pub fn pipe() -> Result<(PipeReader, PipeWriter)> {
    let (reader, writer) = io::pipe().map_err(|why| Error::layered("pipe2", why))?;
    Ok((PipeReader::from(OwnedFd::from(reader)), PipeWriter::from(OwnedFd::from(writer))))
}

/// Returns the standard input of the process, by a duplicate of its descriptor. A read that is dropped takes
/// no bytes.
///
/// # Errors
/// EBADF: it is closed. EMFILE.
pub fn stdin() -> Result<PipeReader> {
    duplicate(io::stdin().as_fd()).map(PipeReader::from)
}

/// Returns the standard output of the process, by a duplicate of its descriptor. It has no buffer:
/// see [`BufWriter`](crate::BufWriter).
///
/// # Errors
/// EBADF: it is closed. EMFILE.
pub fn stdout() -> Result<PipeWriter> {
    duplicate(io::stdout().as_fd()).map(PipeWriter::from)
}

/// Returns the standard error output of the process.
///
/// # Errors
/// As [`stdout`].
pub fn stderr() -> Result<PipeWriter> {
    duplicate(io::stderr().as_fd()).map(PipeWriter::from)
}

fn duplicate(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    fd.try_clone_to_owned().map_err(|why| Error::layered("fcntl", why))
}

/// The reading end of a pipe, or any descriptor that is read from its beginning to its end: a terminal, a
/// FIFO, the output of a process. The driver waits for it, on every driver, without a thread. A dropped read
/// takes no bytes.
///
/// If the descriptor is a regular file, as standard input may be, it is read on a thread of the blocking pool
/// from the position that all its owners share; there a dropped read loses what it has read.
#[derive(Debug)]
pub struct PipeReader {
    end: End,
    /// Bytes of a regular file that did not fit the caller's buffer.
    unread: Vec<u8>,
}

/// The writing end of a pipe, or any descriptor that is written to in order. The driver waits for the reader,
/// on every driver, without a thread. If the reader has closed, a write fails with EPIPE; SIGPIPE is never
/// raised.
#[derive(Debug)]
pub struct PipeWriter {
    end: End,
}

#[derive(Debug)]
enum End {
    Stream(File),
    /// A regular file. All descriptors that share it have one position.
    Regular(Arc<std::fs::File>),
}

impl From<OwnedFd> for End {
    fn from(fd: OwnedFd) -> End {
        let file = std::fs::File::from(fd);
        match file.metadata() {
            Ok(metadata) if metadata.is_file() => End::Regular(Arc::new(file)),
            _ => End::Stream(File::from_std(file)),
        }
    }
}

impl AsFd for End {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            End::Stream(file) => file.as_fd(),
            End::Regular(file) => file.as_fd(),
        }
    }
}

impl From<OwnedFd> for PipeReader {
    fn from(fd: OwnedFd) -> PipeReader {
        PipeReader { end: End::from(fd), unread: Vec::new() }
    }
}

impl From<OwnedFd> for PipeWriter {
    fn from(fd: OwnedFd) -> PipeWriter {
        PipeWriter { end: End::from(fd) }
    }
}

impl AsFd for PipeReader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}

impl AsFd for PipeWriter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}

impl AsyncRead for PipeReader {
    async fn read<B: IoBufMut + Unpin + Send>(&mut self, mut buffer: B) -> (Result<usize>, B) {
        let file = match &self.end {
            End::Stream(file) => return file.read_at(buffer, 0).await,
            End::Regular(file) => Arc::clone(file),
        };
        if self.unread.is_empty() {
            match spawn_blocking(move || read_some(&file)).await {
                Ok(Ok(bytes)) => self.unread = bytes,
                Ok(Err(why)) => return (Err(Error::layered("read", why)), buffer),
                Err(why) => return (Err(Error::layered("read", io::Error::other(why.to_string()))), buffer),
            }
        }
        let read = buffer.append(&self.unread);
        self.unread.drain(..read);
        (Ok(read), buffer)
    }
}

/// Reads at the position that all owners of the file share.
fn read_some(mut file: &std::fs::File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; READ_BYTES];
    let read = file.read(&mut bytes)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Bytes of a read from a regular file.
const READ_BYTES: usize = 64 * 1024;

impl AsyncWrite for PipeWriter {
    async fn write<B: IoBuf + Unpin + Send>(&mut self, bytes: B) -> (Result<usize>, B) {
        match &self.end {
            End::Stream(file) => file.write_at(bytes, 0).await,
            End::Regular(_) => {
                let count = bytes.bytes().len();
                let (written, bytes) = self.write_all(bytes).await;
                (written.map(|()| count), bytes)
            }
        }
    }

    async fn write_all<B: IoBuf + Unpin + Send>(&mut self, bytes: B) -> (Result<()>, B) {
        let file = match &self.end {
            End::Stream(file) => return file.write_all_at(bytes, 0).await,
            End::Regular(file) => Arc::clone(file),
        };
        let (written, bytes) = on_pool(bytes, move |bytes| (&*file).write_all(bytes)).await;
        (written.map_err(|why| Error::layered("write", why)), bytes)
    }

    /// Does nothing. The reader sees the end when the last writer is dropped.
    async fn shutdown(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Calls `write` with the bytes on a thread of the pool; returns the buffer, also if there is no thread.
async fn on_pool<B, W>(bytes: B, write: W) -> (io::Result<()>, B)
where
    B: IoBuf + Send,
    W: FnOnce(&[u8]) -> io::Result<()> + Send + 'static,
{
    let place = Arc::new(Mutex::new(Some(bytes)));
    let job = Arc::clone(&place);
    let written = spawn_blocking(move || match &*lock(&job) {
        Some(bytes) => write(bytes.bytes()),
        None => Ok(()),
    });
    let written = written.await.unwrap_or_else(|why| Err(io::Error::other(why.to_string())));
    match lock(&place).take() {
        Some(bytes) => (written, bytes),
        None => unreachable!("the buffer is taken only here"),
    }
}

fn lock<B>(place: &Mutex<B>) -> MutexGuard<'_, B> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}
