//! Options for opening a file.

use super::file::{File, check, with_driver};
use super::way::{expect_direct, perform};
use crate::error::{Error, Result};
use crate::exec::Core;
use crate::inflight::{At, Base, Open, Request};
use crate::sys::file::wait_again;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

/// Options for opening a file. Contradictory options are EINVAL, as in the standard library.
///
/// Opening never waits for a peer: opening a FIFO for reading succeeds immediately, and opening it for
/// writing fails with ENXIO while it has no reader. Operations on an open file wait as usual, so `O_NONBLOCK`
/// among the flags has no effect.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    mode: u32,
    custom_flags: i32,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions::new()
    }
}

impl OpenOptions {
    /// Creates options with nothing set; new files get mode 0666, less umask(2).
    pub const fn new() -> OpenOptions {
        OpenOptions {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            mode: 0o666,
            custom_flags: 0,
        }
    }

    /// Opens for reading.
    pub const fn read(mut self, read: bool) -> OpenOptions {
        self.read = read;
        self
    }

    /// Opens for writing.
    pub const fn write(mut self, write: bool) -> OpenOptions {
        self.write = write;
        self
    }

    /// Appends every write, also after what other processes write at the same time.
    pub const fn append(mut self, append: bool) -> OpenOptions {
        self.append = append;
        self
    }

    /// Truncates the file.
    pub const fn truncate(mut self, truncate: bool) -> OpenOptions {
        self.truncate = truncate;
        self
    }

    /// Creates the file if it does not exist.
    pub const fn create(mut self, create: bool) -> OpenOptions {
        self.create = create;
        self
    }

    /// Creates the file; it must not exist (EEXIST), not even as a dangling link.
    pub const fn create_new(mut self, create_new: bool) -> OpenOptions {
        self.create_new = create_new;
        self
    }

    /// Sets the mode of a file that is created, less umask(2).
    pub const fn mode(mut self, mode: u32) -> OpenOptions {
        self.mode = mode;
        self
    }

    /// Sets further flags of open(2), such as `O_DIRECT`, `O_NOFOLLOW`, `O_TMPFILE`. They do not change the
    /// access mode.
    pub const fn custom_flags(mut self, flags: i32) -> OpenOptions {
        self.custom_flags = flags;
        self
    }

    /// Opens the file at `path`.
    ///
    /// # Errors
    /// As openat(2); EINVAL for contradictory options.
    pub async fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        self.open_beneath(None, path.as_ref()).await
    }

    pub(super) async fn open_beneath(&self, base: Base, path: &Path) -> Result<File> {
        let flags = self.flags().map_err(|why| why.on(path.display()))?;
        let on = open(At { base, path: super::name(path)? }, flags, self.mode).await?;
        Ok(File { on: Arc::new(on) })
    }

    fn flags(&self) -> Result<i32> {
        let writes = self.write || self.append;
        let access = match (self.read, writes) {
            (true, false) => libc::O_RDONLY,
            (false, true) => libc::O_WRONLY,
            (true, true) => libc::O_RDWR,
            (false, false) => return Err(impossible("a file is to be opened for reading or for writing")),
        };
        if !writes && (self.truncate || self.create || self.create_new) {
            return Err(impossible("a file is made or emptied only if it is opened for writing"));
        }
        if self.append && self.truncate && !self.create_new {
            return Err(impossible("a file is either appended to or emptied"));
        }
        let when = |yes, flag| if yes { flag } else { 0 };
        let making = match (self.create_new, self.create) {
            (true, _) => libc::O_CREAT | libc::O_EXCL,
            (false, create) => when(create, libc::O_CREAT) | when(self.truncate, libc::O_TRUNC),
        };
        let custom = self.custom_flags & !libc::O_ACCMODE & !libc::O_NONBLOCK;
        Ok(access | making | when(self.append, libc::O_APPEND) | custom)
    }
}

#[cold]
fn impossible(why: &'static str) -> Error {
    Error::errno("openat", libc::EINVAL).hint(why)
}

/// Opens an existing file, without waiting for a peer.
pub(super) async fn open(at: At, flags: i32, mode: u32) -> Result<Open> {
    let core = Core::current("opening a file");
    let flags = flags | libc::O_CLOEXEC;
    let hurried = Request::Open { at: at.clone(), flags: flags | libc::O_NONBLOCK, mode };
    let (mut result, _) = perform(Rc::clone(&core), hurried).await;
    if result == -libc::EAGAIN {
        // Another process holds a lease on the file and must release it first (fcntl(2), F_SETLEASE): wait
        // for that.
        let patient = Request::Open { at: at.clone(), flags, mode };
        (result, _) = perform(Rc::clone(&core), patient).await;
    }
    let number = check(&core, "openat", result).map_err(|why| {
        let fifo = result == -libc::ENXIO;
        let why = why.on(&at);
        if fifo {
            why.hint("no process reads from this FIFO or device, and opening does not wait")
        } else {
            why
        }
    })?;
    // SAFETY: the result of an open that succeeded, and no other code has the number.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    wait_again(number, flags);
    let counted = core.with_io(|io| Arc::clone(io.files_open()));
    if counted.is_none() {
        return Err(with_driver(&core, Error::errno("openat", libc::ECANCELED)).on(&at));
    }
    let open = Open::new(fd, counted);
    expect_direct(&open, flags);
    Ok(open)
}
