//! A file operation with everything it names: paths, buffers, the file it works on.
//!
//! In one piece, so that it can be kept in a slot, be moved to a thread of the pool, or be dropped where it is over;
//! whoever has it knows that nothing it points to goes before it does.

use crate::buf::{Buf, spare_of};
use crate::op::{FileOp, Path, Span};
use std::ffi::CString;
use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// An open file: shared by its owner and the operations under way, and closed with the last of them, by a plain
/// close(2).
#[derive(Debug)]
pub(crate) struct Open {
    fd: OwnedFd,
    _counted: Counted,
    /// What is known of how it is best read; `fs::way` says what it means.
    pub(crate) known: AtomicU8,
}

/// One of the open files of a runtime.
#[derive(Debug)]
struct Counted(Option<Arc<AtomicUsize>>);

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(open) = &self.0 {
            open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Open {
    /// Takes a descriptor over, counted in `open`.
    pub(crate) fn new(fd: OwnedFd, open: Option<Arc<AtomicUsize>>) -> Open {
        if let Some(open) = &open {
            open.fetch_add(1, Ordering::Relaxed);
        }
        Open { fd, _counted: Counted(open), known: AtomicU8::new(0) }
    }

    /// The descriptor, which is no longer ours.
    pub(crate) fn into_fd(self) -> OwnedFd {
        self.fd
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    pub(crate) fn number(&self) -> i32 {
        self.fd.as_raw_fd()
    }
}

/// What a relative path begins at: a directory, or the working directory.
pub(crate) type Base = Option<Arc<Open>>;

/// A path and what it begins at.
#[derive(Clone, Debug)]
pub(crate) struct At {
    pub(crate) base: Base,
    pub(crate) path: CString,
}

impl At {
    fn raw(&self) -> Path {
        let beneath = self.base.as_ref().map_or(libc::AT_FDCWD, |base| base.number());
        Path { beneath, path: self.path.as_ptr() }
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path.to_string_lossy())
    }
}

/// A file operation that owns what it names.
#[derive(Debug)]
pub(crate) enum Request {
    /// At most `most` bytes, behind what the buffer holds.
    Read {
        on: Arc<Open>,
        into: Buf,
        most: usize,
        offset: u64,
    },
    /// What is behind the first `done` bytes, to `offset`.
    Write {
        on: Arc<Open>,
        from: Buf,
        done: usize,
        offset: u64,
    },
    Open {
        at: At,
        flags: i32,
        mode: u32,
    },
    Stat {
        at: At,
        flags: i32,
        into: Box<MaybeUninit<libc::statx>>,
    },
    Sync {
        on: Arc<Open>,
        data_only: bool,
    },
    Truncate {
        on: Arc<Open>,
        bytes: u64,
    },
    Rename {
        from: At,
        to: At,
    },
    Unlink {
        at: At,
        directory: bool,
    },
    MakeDirectory {
        at: At,
        mode: u32,
    },
    Link {
        from: At,
        to: At,
    },
    Symlink {
        target: CString,
        at: At,
    },
    ReadLink {
        at: At,
        into: Vec<u8>,
    },
    ReadDirectory {
        on: Arc<Open>,
        into: Vec<u8>,
    },
}

impl Request {
    /// A read into a buffer that may go to another thread.
    pub(crate) fn read(on: Arc<Open>, into: Buf, most: usize, offset: u64) -> Request {
        assert!(goes_anywhere(&into), "the buffer of a file operation is of a type that is Send");
        Request::Read { on, into, most, offset }
    }

    /// A write likewise.
    pub(crate) fn write(on: Arc<Open>, from: Buf, done: usize, offset: u64) -> Request {
        assert!(goes_anywhere(&from), "the buffer of a file operation is of a type that is Send");
        Request::Write { on, from, done, offset }
    }

    /// The operation as plain data. What it points to is this request's, on the heap: it stays in place while the
    /// request is moved, until that is dropped or asked again.
    pub(crate) fn op(&mut self) -> FileOp {
        let room = |vec: &mut Vec<u8>| {
            let spare = vec.spare_capacity_mut();
            Span { start: spare.as_mut_ptr().cast(), bytes: spare.len() }
        };
        match self {
            Request::Read { on, into, most, offset } => {
                let (start, room) = spare_of(into);
                let memory = Span { start: start.as_ptr(), bytes: room.min(*most) };
                FileOp::Read { fd: on.number(), memory, offset: *offset }
            }
            Request::Write { on, from, done, offset } => {
                FileOp::Write { fd: on.number(), bytes: from.span_after(*done), offset: *offset }
            }
            Request::Open { at, flags, mode } => FileOp::Open { at: at.raw(), flags: *flags, mode: *mode },
            Request::Stat { at, flags, into } => {
                FileOp::Stat { at: at.raw(), flags: *flags, into: into.as_mut_ptr() }
            }
            Request::Sync { on, data_only } => FileOp::Sync { fd: on.number(), data_only: *data_only },
            Request::Truncate { on, bytes } => FileOp::Truncate { fd: on.number(), bytes: *bytes },
            Request::Rename { from, to } => FileOp::Rename { from: from.raw(), to: to.raw() },
            Request::Unlink { at, directory } => FileOp::Unlink { at: at.raw(), directory: *directory },
            Request::MakeDirectory { at, mode } => FileOp::MakeDirectory { at: at.raw(), mode: *mode },
            Request::Link { from, to } => FileOp::Link { from: from.raw(), to: to.raw() },
            Request::Symlink { target, at } => FileOp::Symlink { target: target.as_ptr(), at: at.raw() },
            Request::ReadLink { at, into } => FileOp::ReadLink { at: at.raw(), memory: room(into) },
            Request::ReadDirectory { on, into } => {
                FileOp::ReadDirectory { fd: on.number(), memory: room(into) }
            }
        }
    }

    /// Whether it is about a file that is open already.
    pub(crate) fn has_file(&self) -> bool {
        matches!(self, Request::Read { .. } | Request::Write { .. })
    }

    /// Does it here and now.
    pub(crate) fn perform(&mut self) -> i32 {
        let op = self.op();
        // SAFETY: what it points to is ours, is not touched meanwhile since `self` is borrowed, and outlives the call.
        unsafe { crate::sys::file::perform(op) }
    }

    /// What is left when its owner is gone: what an open brought is closed.
    pub(crate) fn dispose(self, result: i32) {
        if let Request::Open { .. } = self
            && result >= 0
        {
            // SAFETY: the result of an open that succeeded, told once, here: nobody else knows the number.
            drop(unsafe { OwnedFd::from_raw_fd(result) });
        }
    }
}

/// Whether a buffer may be used and dropped on another thread.
fn goes_anywhere(buf: &Buf) -> bool {
    match buf {
        Buf::Vec(_) | Buf::Static(_) | Buf::Pages(_) => true,
        Buf::Shared(_) | Buf::Lease(_) => false,
    }
}

// SAFETY: all of it is Send but for the buffers that count their owners without a lock (`Rc<[u8]>`, leases), and those
// are refused where a request is made of a buffer ([`Request::read`], [`Request::write`]: nobody else makes those two).
unsafe impl Send for Request {}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Request::Read { on, offset, .. } => write!(f, "fd {} at {offset}, pread", on.number()),
            Request::Write { on, offset, .. } => write!(f, "fd {} at {offset}, pwrite", on.number()),
            Request::Sync { on, .. } => write!(f, "fd {}, fsync", on.number()),
            Request::Truncate { on, .. } => write!(f, "fd {}, ftruncate", on.number()),
            Request::ReadDirectory { on, .. } => write!(f, "fd {}, getdents64", on.number()),
            Request::Open { at, .. } => write!(f, "{at}, openat"),
            Request::Stat { at, .. } => write!(f, "{at}, statx"),
            Request::Rename { from, to } => write!(f, "{from} to {to}, renameat"),
            Request::Unlink { at, .. } => write!(f, "{at}, unlinkat"),
            Request::MakeDirectory { at, .. } => write!(f, "{at}, mkdirat"),
            Request::Link { from, to } => write!(f, "{from} as {to}, linkat"),
            Request::Symlink { at, .. } => write!(f, "{at}, symlinkat"),
            Request::ReadLink { at, .. } => write!(f, "{at}, readlinkat"),
        }
    }
}
