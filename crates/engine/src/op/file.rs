//! Operations on files, as plain data: what a system call is told, and nothing about who makes it.
//!
//! What they point to is kept in place by whoever made them (`inflight::request`), as for every other operation.

use super::Span;

/// A path, and the descriptor of the directory it is relative to (`AT_FDCWD`: the working directory).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    pub(crate) beneath: i32,
    /// NUL-terminated.
    pub(crate) path: *const libc::c_char,
}

/// One operation on a file, one system call.
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
    /// Of what is at the path; with `AT_EMPTY_PATH` and no path, of the descriptor.
    Stat {
        at: Path,
        flags: i32,
        into: *mut libc::statx,
    },
    Sync {
        fd: i32,
        /// Without the metadata that is not needed to read the data back.
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
    /// The next entries, as `getdents64(2)` lays them out.
    ReadDirectory {
        fd: i32,
        memory: Span,
    },
}

impl FileOp {
    /// The name of the system call that does this.
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

    /// Whether its result is a descriptor.
    pub(crate) fn opens(&self) -> bool {
        matches!(self, FileOp::Open { .. })
    }
}
