//! File operations as plain data: the arguments of a system call, independent of how the call is made.
//!
//! The request that created one keeps in place what it points to (`inflight::request`).

use super::Span;

/// A path, and the descriptor of the directory it is relative to (`AT_FDCWD`: the working directory).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    pub(crate) beneath: i32,
    /// NUL-terminated.
    pub(crate) path: *const libc::c_char,
}

/// One file operation: one system call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FileOp {
    Read {
        fd: i32,
        memory: Span,
        offset: u64,
    },
    Write {
        fd: i32,
        bytes: Span,
        offset: u64,
    },
    Open {
        at: Path,
        flags: i32,
        mode: u32,
    },
    /// Reads metadata of the file at the path; with `AT_EMPTY_PATH` and no path, of the descriptor.
    Stat {
        at: Path,
        flags: i32,
        into: *mut libc::statx,
    },
    Sync {
        fd: i32,
        /// Omit metadata that is not needed to read the data back.
        data_only: bool,
    },
    Truncate {
        fd: i32,
        bytes: u64,
    },
    Rename {
        from: Path,
        to: Path,
    },
    Unlink {
        at: Path,
        directory: bool,
    },
    MakeDirectory {
        at: Path,
        mode: u32,
    },
    Link {
        from: Path,
        to: Path,
    },
    Symlink {
        target: *const libc::c_char,
        at: Path,
    },
    ReadLink {
        at: Path,
        memory: Span,
    },
    /// Reads the next entries, in the layout of `getdents64(2)`.
    ReadDirectory {
        fd: i32,
        memory: Span,
    },
}

impl FileOp {
    /// Returns the name of the system call.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            FileOp::Read { .. } => "pread",
            FileOp::Write { .. } => "pwrite",
            FileOp::Open { .. } => "openat",
            FileOp::Stat { .. } => "statx",
            FileOp::Sync { data_only: false, .. } => "fsync",
            FileOp::Sync { data_only: true, .. } => "fdatasync",
            FileOp::Truncate { .. } => "ftruncate",
            FileOp::Rename { .. } => "renameat",
            FileOp::Unlink { directory: false, .. } => "unlinkat",
            FileOp::Unlink { directory: true, .. } => "rmdir",
            FileOp::MakeDirectory { .. } => "mkdirat",
            FileOp::Link { .. } => "linkat",
            FileOp::Symlink { .. } => "symlinkat",
            FileOp::ReadLink { .. } => "readlinkat",
            FileOp::ReadDirectory { .. } => "getdents64",
        }
    }

    /// Returns whether its result is a descriptor.
    pub(crate) fn opens(&self) -> bool {
        matches!(self, FileOp::Open { .. })
    }
}
