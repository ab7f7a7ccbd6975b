//! A file operation with everything it names: paths, buffers, the file it works on.
//!
//! It is self-contained, so that it can stay in a slot, move to a thread of the pool, or be dropped where it
//! ends. What it points to lives at least as long as it does.

use crate::buf::{Buf, filled, spare_of};
use crate::op::{FileOp, Path, Span};
use std::ffi::CString;
use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An open file, shared by its owner and its operations in flight. The last of them closes it, with a plain
/// close(2).
#[derive(Debug)]
pub(crate) struct Open {
    fd: OwnedFd,
    _counted: Counted,
    /// Knowledge about how to read it best, defined in `fs::way`.
    pub(crate) known: AtomicU8,
    /// Knowledge about how to write it, likewise.
    pub(crate) writes: AtomicU8,
    /// Reads consume bytes, as from a pipe: bytes of an abandoned read are kept for the next one.
    pub(crate) consumes: AtomicBool,
    /// Bytes of abandoned reads.
    unread: Mutex<Vec<u8>>,
}

/// Counts an open file of a runtime.
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
    /// Takes over a descriptor, counted in `open`.
    pub(crate) fn new(fd: OwnedFd, open: Option<Arc<AtomicUsize>>) -> Open {
        if let Some(open) = &open {
            open.fetch_add(1, Ordering::Relaxed);
        }
        Open {
            fd,
            _counted: Counted(open),
            known: AtomicU8::new(0),
            writes: AtomicU8::new(0),
            consumes: AtomicBool::new(false),
            unread: Mutex::default(),
        }
    }

    /// Returns the descriptor.
    pub(crate) fn into_fd(self) -> OwnedFd {
        self.fd
    }

    fn unread(&self) -> MutexGuard<'_, Vec<u8>> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    pub(crate) fn number(&self) -> i32 {
        self.fd.as_raw_fd()
    }
}

/// The base of a relative path: a directory, or the working directory.
pub(crate) type Base = Option<Arc<Open>>;

/// A path and its base.
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
    /// Reads at most `most` bytes, appended to the buffer.
    Read {
        on: Arc<Open>,
        into: Buf,
        most: usize,
        offset: u64,
    },
    /// Writes the bytes after the first `done` to `offset`.
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
    /// Returns a read into a buffer that may move to another thread.
    pub(crate) fn read(on: Arc<Open>, into: Buf, most: usize, offset: u64) -> Request {
        assert!(goes_anywhere(&into), "the buffer of a file operation is of a type that is Send");
        Request::Read { on, into, most, offset }
    }

    /// Returns a write from a buffer that may move to another thread.
    pub(crate) fn write(on: Arc<Open>, from: Buf, done: usize, offset: u64) -> Request {
        assert!(goes_anywhere(&from), "the buffer of a file operation is of a type that is Send");
        Request::Write { on, from, done, offset }
    }

    /// Returns the operation as plain data. It points to memory of this request on the heap, which stays in
    /// place while the request moves, until the request is dropped or this is called again.
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

    /// Returns whether it works on an open file.
    pub(crate) fn has_file(&self) -> bool {
        matches!(self, Request::Read { .. } | Request::Write { .. })
    }

    /// Performs the operation on the calling thread.
    pub(crate) fn perform(&mut self) -> i32 {
        let op = self.op();
        // SAFETY: what it points to is owned by `self`, which is borrowed during the call.
        unsafe { crate::sys::file::perform(op) }
    }

    /// Fills a read with bytes of abandoned reads of the same stream; returns their number, 0 if there are
    /// none.
    pub(crate) fn take_unread(&mut self) -> i32 {
        let Request::Read { on, into, most, .. } = self else { return 0 };
        let mut unread = on.unread();
        let (start, room) = spare_of(into);
        let bytes = room.min(*most).min(unread.len()).min(i32::MAX as usize);
        // SAFETY: `bytes` bytes from `start` are the buffer's spare capacity, which is borrowed here and does
        // not overlap `unread`.
        unsafe { std::ptr::copy_nonoverlapping(unread.as_ptr(), start.as_ptr(), bytes) };
        unread.drain(..bytes);
        bytes as i32
    }

    /// Disposes of the result after the owner was dropped: closes the descriptor of an open, and keeps bytes
    /// that a read consumed for the next read.
    pub(crate) fn dispose(self, result: i32) {
        match self {
            Request::Open { .. } if result >= 0 => {
                // SAFETY: the result of an open that succeeded, reported once, here: no other code has the
                // number.
                drop(unsafe { OwnedFd::from_raw_fd(result) });
            }
            Request::Read { on, mut into, .. } if result > 0 && on.consumes.load(Ordering::Relaxed) => {
                let start = into.bytes().len();
                // SAFETY: the result of the completed read of this request: the kernel wrote this many bytes
                // there.
                unsafe { filled(&mut into, result as usize) };
                on.unread().extend_from_slice(&into.bytes()[start..]);
            }
            _ => {}
        }
    }
}

/// Returns whether a buffer may be used and dropped on another thread.
fn goes_anywhere(buf: &Buf) -> bool {
    match buf {
        Buf::Vec(_)
        | Buf::Static(_)
        | Buf::Pages(_)
        | Buf::SharedByThreads(_)
        | Buf::Bytes(_)
        | Buf::BytesMut(_) => true,
        Buf::Shared(_) | Buf::Lease(_) => false,
    }
}

// SAFETY: all parts are Send except buffers with a non-atomic reference count (`Rc<[u8]>`, leases). The only
// constructors of requests with buffers, [`Request::read`] and [`Request::write`], refuse those.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::Write;

    #[test]
    fn bytes_that_an_abandoned_read_consumed_go_to_the_next_read() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let on = Arc::new(Open::new(reader.into(), None));
        on.consumes.store(true, Ordering::Relaxed);
        let read = |room, most| Request::read(Arc::clone(&on), Buf::Vec(Vec::with_capacity(room)), most, 0);
        writer.write_all(b"abandoned").unwrap();
        let mut abandoned = read(100, 100);
        let result = abandoned.perform();
        assert_eq!(result, 9);
        abandoned.dispose(result);
        let mut parts = Vec::new();
        for (room, most) in [(0, 100), (100, 4), (3, 100), (100, 100), (100, 100)] {
            let mut next = read(room, most);
            let taken = next.take_unread();
            let Request::Read { mut into, .. } = next else { panic!("it is a read") };
            // SAFETY: this many bytes were filled by the line above.
            unsafe { filled(&mut into, taken as usize) };
            parts.push(into.bytes().to_vec());
        }
        assert_eq!(parts, [&b""[..], b"aban", b"don", b"ed", b""]);
    }
}
