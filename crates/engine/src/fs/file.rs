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

/// An open file, to be read and written at positions.
///
/// It belongs to no runtime: it can be sent to and shared with other threads, and is used on whichever runtime its
/// operations are awaited. Any number of them may be under way at once.
///
/// Dropped, it is closed by a plain close(2) as soon as no operation is under way on it; errors that a file system tells
/// only then (a network's) are heard by [`File::close`] or [`File::sync_all`].
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

    /// Opens a file for writing; makes it if it is not there, empties it if it is.
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

    /// Gives the file to the standard library; another descriptor of it where operations are still under way.
    ///
    /// # Errors
    /// EMFILE, where another descriptor is needed.
    pub fn into_std(self) -> Result<std::fs::File> {
        let fd = match Arc::try_unwrap(self.on) {
            Ok(open) => open.into_fd(),
            Err(shared) => shared.fd().try_clone().map_err(|why| Error::new("fcntl", why))?,
        };
        Ok(std::fs::File::from(fd))
    }

    /// Another descriptor of the same open file (`F_DUPFD_CLOEXEC`). A clone ([`Clone`]) shares this one, and costs no
    /// descriptor.
    ///
    /// # Errors
    /// EMFILE.
    pub fn try_clone(&self) -> Result<File> {
        let fd = self.on.fd().try_clone().map_err(|why| Error::new("fcntl", why).on(self.on.number()))?;
        Ok(File::from_std(std::fs::File::from(fd)))
    }

    /// Reads into the spare room of `buf`, from `offset` on: how many bytes were appended, and the buffer.
    ///
    /// Fewer than there is room for at the end of the file, and for reasons of the kernel's own; zero only at the end,
    /// or without room. [`File::read_exact_at`] goes on by itself. On what has no positions (a pipe, a terminal) the
    /// offset means nothing, and the read waits for a peer: better read there with what is made for it, since on
    /// most drivers that occupies one of the pool's threads.
    ///
    /// Dropped, the read goes on by itself if the kernel has it, and its buffer is freed when that is over.
    ///
    /// # Errors
    /// As pread(2): EISDIR of a directory, EBADF of a file opened for writing only, EINVAL of one opened with `O_DIRECT`
    /// if buffer, offset or room are not aligned, and of an offset above `i64::MAX`.
    pub async fn read_at<B>(&self, buf: B, offset: u64) -> (Result<usize>, B)
    where
        B: IoBufMut + Send + 'static,
    {
        let (result, Loan(buf)) = self.read_some(buf.into_buf(), usize::MAX, offset).await;
        (result, B::from_buf(Loan(buf)))
    }

    /// Reads `bytes` bytes into the spare room of `buf`, from `offset` on.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends before, `InvalidInput` if there is less room; else as [`File::read_at`]. What
    /// was read until then is in the buffer.
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

    /// Writes `buf` from `offset` on: how many bytes were written, and the buffer. In a file opened for appending the
    /// offset means nothing.
    ///
    /// Fewer than all where the file system is full, a limit is met, and for reasons of the kernel's own;
    /// [`File::write_all_at`] goes on by itself. Dropped, nobody knows how much of it was or will be written.
    ///
    /// # Errors
    /// As pwrite(2): ENOSPC, EDQUOT; EFBIG beyond `RLIMIT_FSIZE`, if the program ignores SIGXFSZ, which ends it
    /// otherwise; EINVAL of an offset above `i64::MAX`, whatever the file.
    pub async fn write_at<B>(&self, buf: B, offset: u64) -> (Result<usize>, B)
    where
        B: IoBuf + Send + 'static,
    {
        let (result, loan) = self.write_some(buf.into_buf(), 0, offset).await;
        (result, B::from_buf(loan))
    }

    /// Writes all of `buf`, from `offset` on.
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

    /// What the system knows of the file (statx(2)).
    ///
    /// # Errors
    /// As statx(2).
    pub async fn metadata(&self) -> Result<Metadata> {
        let at = At { base: Some(Arc::clone(&self.on)), path: c"".into() };
        stat(at, libc::AT_EMPTY_PATH).await.map_err(|why| why.on(self))
    }

    /// Waits until everything that was written is on the device: data and metadata (fsync(2)).
    ///
    /// # Errors
    /// As fsync(2). After an error it is unknown what is on the device, and a second call does not tell.
    pub async fn sync_all(&self) -> Result<()> {
        self.simple("fsync", Request::Sync { on: Arc::clone(&self.on), data_only: false }).await
    }

    /// Likewise, without the metadata that reading the data does not need (fdatasync(2)).
    ///
    /// # Errors
    /// As [`File::sync_all`].
    pub async fn sync_data(&self) -> Result<()> {
        self.simple("fdatasync", Request::Sync { on: Arc::clone(&self.on), data_only: true }).await
    }

    /// Makes the file so long: cuts it, or adds a hole that reads as zeros.
    ///
    /// # Errors
    /// As ftruncate(2).
    pub async fn set_len(&self, bytes: u64) -> Result<()> {
        self.simple("ftruncate", Request::Truncate { on: Arc::clone(&self.on), bytes }).await
    }

    /// Closes the file where that hurts nobody, and says what went wrong: what a file system (a network's) was still to
    /// write, and could not. While operations or clones are left only they keep it open, and this does nothing.
    ///
    /// # Errors
    /// EIO, ENOSPC, EDQUOT. The file is closed all the same.
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

    /// What is cached is read here, the rest where it may wait; as much of it as can be had in one.
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
                // The end; or an error, which the next read meets again if something came before it.
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

    /// Positions are signed in the kernel, and to io_uring and preadv2(2) -1 means "wherever the file is": a write to
    /// `u64::MAX` would land at its beginning.
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

/// How much a read may still bring.
fn room(request: &mut Request) -> usize {
    match request.op() {
        crate::op::FileOp::Read { memory, .. } => memory.bytes,
        _ => 0,
    }
}

/// Takes in that a read has brought so many bytes: it goes on behind them.
fn advance(request: &mut Request, read: i32) -> usize {
    let read = read as usize;
    if let Request::Read { into, most, offset, .. } = request {
        // SAFETY: this is the result of the read of this request, which is over: the kernel, or the simulation, wrote so
        // many bytes where the spare room begins.
        unsafe { filled(into, read) };
        *most -= read;
        *offset = offset.saturating_add(read as u64);
    }
    read
}

/// A result as the kernel gives it, or as an error by the runtime's driver.
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
