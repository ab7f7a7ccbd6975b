//! One open file.

use super::metadata::{Metadata, stat};
use super::way::{attempt, expect_direct, perform};
use crate::buf::{Buf, IoBuf, IoBufMut, Loan, filled};
use crate::error::{Error, Result};
use crate::exec::Core;
use crate::inflight::{At, Open, Request};
use crate::sys::file::flags_of;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

/// An open file, for reads and writes at positions.
///
/// It belongs to no runtime: it can be sent to and shared with other threads, and its operations run on the
/// runtime that awaits them. Any number of them may be in flight at once.
///
/// A dropped file is closed by a plain close(2) as soon as it has no operation in flight. Errors that a file
/// system reports only then (a network's) are returned by [`File::close`] or [`File::sync_all`].
#[derive(Clone)]
pub struct File {
    pub(super) on: Arc<Open>,
}

impl File {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// As openat(2). Opening never waits for a peer: see [`OpenOptions`](super::OpenOptions).
    pub async fn open(path: impl AsRef<Path>) -> Result<File> {
        super::OpenOptions::new().read(true).open(path).await
    }

    /// Opens a file for writing: creates it, or truncates an existing one.
    ///
    /// # Errors
    /// As openat(2).
    pub async fn create(path: impl AsRef<Path>) -> Result<File> {
        super::OpenOptions::new().write(true).create(true).truncate(true).open(path).await
    }

    /// Takes over a file that was opened elsewhere.
    pub fn from_std(file: std::fs::File) -> File {
        let open = Open::new(file.into(), None);
        expect_direct(&open, flags_of(open.number()));
        File { on: Arc::new(open) }
    }

    /// Converts it into a file of the standard library; into a duplicate descriptor if operations are in
    /// flight.
    ///
    /// # Errors
    /// EMFILE if a duplicate descriptor is needed.
    pub fn into_std(self) -> Result<std::fs::File> {
        let fd = match Arc::try_unwrap(self.on) {
            Ok(open) => open.into_fd(),
            Err(shared) => shared.fd().try_clone().map_err(|why| Error::new("fcntl", why))?,
        };
        Ok(std::fs::File::from(fd))
    }

    /// Duplicates the descriptor (`F_DUPFD_CLOEXEC`). A clone ([`Clone`]) shares the descriptor instead.
    ///
    /// # Errors
    /// EMFILE.
    pub fn try_clone(&self) -> Result<File> {
        let fd = self.on.fd().try_clone().map_err(|why| Error::new("fcntl", why).on(self.on.number()))?;
        Ok(File::from_std(std::fs::File::from(fd)))
    }

    /// Reads into the spare capacity of `buf`, from `offset` (in bytes) on. Returns the number of bytes
    /// appended, and the buffer.
    ///
    /// A read may be shorter than the spare capacity, at the end of the file or for reasons internal to the
    /// kernel. It is zero only at the end of the file, or without spare capacity. [`File::read_exact_at`]
    /// repeats it as needed. A file without positions (a pipe, a terminal) ignores the offset, and the read
    /// waits until there is data. On every driver the driver waits: the read uses no thread of the pool, and
    /// if it is dropped it takes no bytes.
    ///
    /// Dropping the future of a read that the kernel has begun does not stop it; the buffer is freed at its
    /// end.
    ///
    /// # Errors
    /// As pread(2): EISDIR for a directory; EBADF for a file opened for writing only; EINVAL for a file
    /// opened with `O_DIRECT` if buffer, offset or capacity is not aligned, and for an offset above
    /// `i64::MAX`.
    pub async fn read_at<B>(&self, buf: B, offset: u64) -> (Result<usize>, B)
    where
        B: IoBufMut + Send + 'static,
    {
        let (result, Loan(buf)) = self.read_some(buf.into_buf(), usize::MAX, offset).await;
        (result, B::from_buf(Loan(buf)))
    }

    /// Reads exactly `bytes` bytes into the spare capacity of `buf`, from `offset` (in bytes) on.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends earlier, `InvalidInput` if the spare capacity is smaller; else as
    /// [`File::read_at`]. Bytes read before the error are in the buffer.
    pub async fn read_exact_at<B>(&self, buf: B, bytes: usize, offset: u64) -> (Result<()>, B)
    where
        B: IoBufMut + Send + 'static,
    {
        let mut loan = buf.into_buf();
        let room = B::spare(&mut loan).1;
        let mut done = 0;
        let result = loop {
            if done == bytes {
                break Ok(());
            }
            if room < bytes {
                let why = format!("the buffer has room for {room} bytes, not for {bytes}");
                break Err(self.invalid(io::ErrorKind::InvalidInput, why));
            }
            let (result, back) = self.read_some(loan, bytes - done, offset.saturating_add(done as u64)).await;
            loan = back;
            match result {
                Ok(0) => {
                    let why = format!("the file ends after {done} of {bytes} bytes");
                    break Err(self.invalid(io::ErrorKind::UnexpectedEof, why));
                }
                Ok(read) => done += read,
                Err(why) => break Err(why),
            }
        };
        (result, B::from_buf(loan))
    }

    /// Writes `buf` to `offset` (in bytes). Returns the number of bytes written, and the buffer. A file
    /// opened for appending ignores the offset.
    ///
    /// A write may be short if the file system is full, if a limit is reached, or for reasons internal to the
    /// kernel; [`File::write_all_at`] repeats it as needed. If the future is dropped, it is unknown how much
    /// was or will be written. A file without positions (a pipe, a terminal) ignores the offset, and the
    /// write waits until there is room. On every driver the driver waits: while it does, the write uses no
    /// thread of the pool, and if it is dropped it has written nothing.
    ///
    /// # Errors
    /// As pwrite(2): EPIPE, and never SIGPIPE, if the reader of a pipe or socket has gone; ENOSPC, EDQUOT;
    /// EFBIG beyond `RLIMIT_FSIZE` (if the program ignores SIGXFSZ; otherwise that signal ends it); EINVAL
    /// for an offset above `i64::MAX`.
    pub async fn write_at<B>(&self, buf: B, offset: u64) -> (Result<usize>, B)
    where
        B: IoBuf + Send + 'static,
    {
        let (result, loan) = self.write_some(buf.into_buf(), 0, offset).await;
        (result, B::from_buf(loan))
    }

    /// Writes all of `buf` to `offset` (in bytes).
    ///
    /// # Errors
    /// As [`File::write_at`]; a part may have been written.
    pub async fn write_all_at<B>(&self, buf: B, offset: u64) -> (Result<()>, B)
    where
        B: IoBuf + Send + 'static,
    {
        let mut loan = buf.into_buf();
        let bytes = loan.0.bytes().len();
        let mut done = 0;
        let result = loop {
            if done == bytes {
                break Ok(());
            }
            let (result, back) = self.write_some(loan, done, offset.saturating_add(done as u64)).await;
            loan = back;
            match result {
                Ok(0) => {
                    let why = format!("nothing more was taken after {done} of {bytes} bytes");
                    break Err(self.invalid(io::ErrorKind::WriteZero, why));
                }
                Ok(written) => done += written,
                Err(why) => break Err(why),
            }
        };
        (result, B::from_buf(loan))
    }

    /// Returns the file's metadata (statx(2)).
    ///
    /// # Errors
    /// As statx(2).
    pub async fn metadata(&self) -> Result<Metadata> {
        let at = At { base: Some(Arc::clone(&self.on)), path: c"".into() };
        stat(at, libc::AT_EMPTY_PATH).await.map_err(|why| why.on(self))
    }

    /// Waits until all written data and metadata are on the device (fsync(2)).
    ///
    /// # Errors
    /// As fsync(2). After an error the state of the device is unknown, and a second call does not report it
    /// again.
    pub async fn sync_all(&self) -> Result<()> {
        self.simple("fsync", Request::Sync { on: Arc::clone(&self.on), data_only: false }).await
    }

    /// Works as [`File::sync_all`], but without metadata that is not needed to read the data (fdatasync(2)).
    ///
    /// # Errors
    /// As [`File::sync_all`].
    pub async fn sync_data(&self) -> Result<()> {
        self.simple("fdatasync", Request::Sync { on: Arc::clone(&self.on), data_only: true }).await
    }

    /// Sets the file's length in bytes: truncates it, or adds a hole that reads as zeros.
    ///
    /// # Errors
    /// As ftruncate(2).
    pub async fn set_len(&self, bytes: u64) -> Result<()> {
        self.simple("ftruncate", Request::Truncate { on: Arc::clone(&self.on), bytes }).await
    }

    /// Closes the file on a thread of the pool, and returns the error if a network file system could not
    /// write buffered data. Does nothing while operations or clones keep the file open.
    ///
    /// # Errors
    /// EIO, ENOSPC, EDQUOT. The file is closed even then.
    pub async fn close(self) -> Result<()> {
        let core = Core::current("closing a file");
        let name = self.to_string();
        let Ok(open) = Arc::try_unwrap(self.on) else { return Ok(()) };
        let fd = open.into_fd();
        let closed = crate::blocking::spawn_blocking(move || super::sys_close(fd)).await;
        let closed = closed.unwrap_or_else(|why| Err(io::Error::other(why.to_string())));
        closed.map_err(|why| with_driver(&core, Error::new("close", why)).on(name))
    }

    async fn simple(&self, name: &'static str, request: Request) -> Result<()> {
        let core = Core::current("an operation on a file");
        let (result, _) = perform(Rc::clone(&core), request).await;
        check(&core, name, result).map(|_| ()).map_err(|why| why.on(self))
    }

    /// Reads cached data in place, and the rest by an operation that may wait; as much as possible in one
    /// operation.
    async fn read_some(&self, loan: Loan, most: usize, offset: u64) -> (Result<usize>, Loan) {
        let core = Core::current("a read");
        if let Err(why) = self.check_offset(&core, "pread", offset) {
            return (Err(why), loan);
        }
        let mut request = Request::read(Arc::clone(&self.on), loan.0, most, offset);
        let mut done = 0;
        while room(&mut request) > 0 {
            match attempt(&core, &mut request).await {
                None => break,
                Some(read) if read > 0 => done += advance(&mut request, read),
                // The end of the file; or an error, which the next read gets again if this one returns data.
                Some(result) => return self.read_over(&core, result, done, Some(request)),
            }
        }
        if room(&mut request) == 0 {
            return self.read_over(&core, 0, done, Some(request));
        }
        let (result, mut request) = perform(Rc::clone(&core), request).await;
        if let Some(request) = &mut request
            && result > 0
        {
            done += advance(request, result);
        }
        self.read_over(&core, result, done, request)
    }

    fn read_over(
        &self,
        core: &Core,
        result: i32,
        done: usize,
        request: Option<Request>,
    ) -> (Result<usize>, Loan) {
        let loan = Loan(match request {
            Some(Request::Read { into, .. }) => into,
            _ => Buf::Static(&[]),
        });
        if result < 0 && done == 0 {
            return (Err(self.transfer_error(core, "pread", result)), loan);
        }
        (Ok(done), loan)
    }

    async fn write_some(&self, loan: Loan, done: usize, offset: u64) -> (Result<usize>, Loan) {
        let core = Core::current("a write");
        if let Err(why) = self.check_offset(&core, "pwrite", offset) {
            return (Err(why), loan);
        }
        let mut request = Request::write(Arc::clone(&self.on), loan.0, done, offset);
        let (result, request) = match attempt(&core, &mut request).await {
            Some(result) => (result, Some(request)),
            None => perform(Rc::clone(&core), request).await,
        };
        let loan = Loan(match request {
            Some(Request::Write { from, .. }) => from,
            _ => Buf::Static(&[]),
        });
        if result < 0 {
            return (Err(self.transfer_error(&core, "pwrite", result)), loan);
        }
        (Ok(result as usize), loan)
    }

    /// Refuses offsets above `i64::MAX`. Offsets are signed in the kernel, and for io_uring and preadv2(2) -1
    /// means the current file position: a write to `u64::MAX` would go there.
    fn check_offset(&self, core: &Core, name: &'static str, offset: u64) -> Result<()> {
        if i64::try_from(offset).is_ok() {
            return Ok(());
        }
        let error = with_driver(core, Error::errno(name, libc::EINVAL)).on(self);
        Err(error.hint("no file has a position above i64::MAX"))
    }

    #[cold]
    fn transfer_error(&self, core: &Core, name: &'static str, result: i32) -> Error {
        let error = with_driver(core, Error::errno(name, -result)).on(self);
        if result == -libc::EINVAL && flags_of(self.on.number()) & libc::O_DIRECT != 0 {
            return error.hint(
                "it was opened with O_DIRECT: where the buffer begins, the offset and the length must be multiples \
                 of the device's block size, at most 4096; `Pages` begin so",
            );
        }
        error
    }

    fn invalid(&self, kind: io::ErrorKind, why: String) -> Error {
        let name = if kind == io::ErrorKind::WriteZero { "pwrite" } else { "pread" };
        Error::new(name, io::Error::new(kind, why)).on(self)
    }
}

/// Returns how many bytes a read may still return.
fn room(request: &mut Request) -> usize {
    match request.op() {
        crate::op::FileOp::Read { memory, .. } => memory.bytes,
        _ => 0,
    }
}

/// Records the bytes of a read: the next read continues after them.
fn advance(request: &mut Request, read: i32) -> usize {
    let read = read as usize;
    if let Request::Read { into, most, offset, .. } = request {
        // SAFETY: this is the result of the completed read of this request: the kernel, or the simulation,
        // wrote this many bytes at the start of the spare capacity.
        unsafe { filled(into, read) };
        *most -= read;
        *offset = offset.saturating_add(read as u64);
    }
    read
}

/// Converts a result of the kernel; a negated errno becomes an error with the runtime's driver.
pub(super) fn check(core: &Core, name: &'static str, result: i32) -> Result<i32> {
    if result < 0 { Err(with_driver(core, Error::errno(name, -result))) } else { Ok(result) }
}

pub(super) fn with_driver(core: &Core, error: Error) -> Error {
    match core.with_io(|io| io.driver_name()) {
        Some(name) => error.by(name),
        None => error.hint("the runtime has been shut down"),
    }
}

impl fmt::Display for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "descriptor {}", self.on.number())
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("File").field(&self.on.number()).finish()
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.on.fd().as_fd()
    }
}

impl From<OwnedFd> for File {
    fn from(fd: OwnedFd) -> File {
        File::from_std(fd.into())
    }
}
