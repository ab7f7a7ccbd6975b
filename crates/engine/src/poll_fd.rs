//! Readiness of descriptors that the engine has no operations for: inotify, netlink, timerfd, pidfd, a
//! socket of another library.

use crate::error::{Error, Result};
use crate::exec::Core;
use crate::fs::{readable, writable};
use crate::name::DriverName;
use crate::op::Kind;
use crate::sync::budget::counted;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Waits until a descriptor of any kind can be read or written, as poll(2) defines it. The program reads and
/// writes it itself.
///
/// It belongs to no runtime: the driver of the runtime that awaits it waits. Several tasks may wait for one
/// descriptor.
///
/// ```
/// use ringroad_engine::{DriverName, PollFd, Runtime};
/// use std::io::{self, Read, Write};
///
/// let (reader, mut writer) = io::pipe().unwrap();
/// let reader = PollFd::new(reader);
/// Runtime::new(DriverName::Epoll)?.block_on(async {
///     writer.write_all(b"told").unwrap();
///     let mut bytes = [0; 16];
///     reader.readable().await?;
///     assert_eq!(reader.get_ref().read(&mut bytes).unwrap(), 4);
///     Ok::<(), ringroad_engine::Error>(())
/// })??;
/// # Ok::<(), ringroad_engine::Error>(())
/// ```
pub struct PollFd<T: AsFd> {
    inner: T,
}

impl<T: AsFd> PollFd<T> {
    /// Takes the owner of a descriptor.
    pub fn new(inner: T) -> PollFd<T> {
        PollFd { inner }
    }

    /// Waits until a read would not block: there is something to read, or the end, or an error. The wait may
    /// be over without cause: be prepared for `WouldBlock`.
    ///
    /// Dropping the future has no effect on the descriptor.
    ///
    /// # Errors
    /// EPERM: the descriptor does not support poll(2), as a regular file. EMFILE: the wait needs a duplicate.
    /// `Unsupported` on `sim`, which has no descriptors of the kernel.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub async fn readable(&self) -> Result<()> {
        self.ready("PollFd::readable", Kind::Readable).await
    }

    /// Waits until a write would not block: there is room, or an error. The wait may be over without cause:
    /// be prepared for `WouldBlock`. A regular file can always be written.
    ///
    /// Dropping the future has no effect on the descriptor.
    ///
    /// # Errors
    /// As [`readable`](Self::readable).
    ///
    /// # Panics
    /// Outside of a runtime.
    pub async fn writable(&self) -> Result<()> {
        self.ready("PollFd::writable", Kind::Writable).await
    }

    async fn ready(&self, what: &'static str, kind: Kind) -> Result<()> {
        let core = Core::current(what);
        let failed = |errno: i32| Error::errno("poll", -errno).on(self.inner.as_fd().as_raw_fd());
        match core.with_io(|io| io.driver_name()) {
            None => return Err(failed(-libc::ECANCELED).hint("the runtime has been shut down")),
            Some(DriverName::Sim) => {
                let why =
                    io::Error::new(io::ErrorKind::Unsupported, "a descriptor of the kernel in a simulation");
                return Err(Error::new("poll", why).by(DriverName::Sim));
            }
            Some(_) => {}
        }
        let duplicate = self.inner.as_fd().try_clone_to_owned().map_err(|why| Error::new("fcntl", why))?;
        let ready = match kind {
            Kind::Writable => writable(&core, duplicate).await,
            _ => readable(&core, duplicate).await,
        };
        match ready {
            errno if errno < 0 => Err(failed(errno)),
            _ => Ok(()),
        }
    }

    /// Calls `read` until it returns something else than `WouldBlock`; waits in between. The descriptor must
    /// be non-blocking, or `read` refuse to block.
    ///
    /// # Errors
    /// Those of `read`; as [`readable`](Self::readable).
    pub async fn read_with<R>(&self, read: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        self.repeated(read, Kind::Readable).await
    }

    /// Calls `write` until it returns something else than `WouldBlock`; waits in between. The descriptor must
    /// be non-blocking, or `write` refuse to block.
    ///
    /// # Errors
    /// Those of `write`; as [`writable`](Self::writable).
    pub async fn write_with<R>(&self, write: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        self.repeated(write, Kind::Writable).await
    }

    /// Calls `call` until it does not have to wait. Its result counts against the budget of the task.
    async fn repeated<R>(&self, mut call: impl FnMut(&T) -> io::Result<R>, kind: Kind) -> io::Result<R> {
        counted(async {
            loop {
                match call(&self.inner) {
                    Err(why) if why.kind() == io::ErrorKind::WouldBlock => match kind {
                        Kind::Writable => self.writable().await?,
                        _ => self.readable().await?,
                    },
                    Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                    result => return result,
                }
            }
        })
        .await
    }

    /// Returns the owner of the descriptor.
    pub fn get_ref(&self) -> &T {
        &self.inner
    }

    /// Returns the owner of the descriptor.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.inner
    }

    /// Returns the owner of the descriptor.
    pub fn into_inner(self) -> T {
        self.inner
    }
}

impl<T: AsFd> AsFd for PollFd<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

impl From<OwnedFd> for PollFd<OwnedFd> {
    fn from(fd: OwnedFd) -> PollFd<OwnedFd> {
        PollFd::new(fd)
    }
}

impl<T: AsFd> fmt::Debug for PollFd<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PollFd").field(&self.inner.as_fd().as_raw_fd()).finish()
    }
}
