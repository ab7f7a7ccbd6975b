//! Events of a running copy, live totals on request, and the report at the end.
//!
//! INVARIANT: `scanned == copied + skipped + failed` in every report, whatever happened: an entry is counted
//! as scanned when it is found, and as one of the three when nothing more will be done with it.
//! [`Totals::balance`] is the check, and a report that does not balance is a failed copy.

use crate::missing::Missing;
use crate::{Engine, Error};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Receives the events of a copy. Called from every worker, at the same time.
pub trait Observer: Sync {
    /// Returns whether [`event`](Self::event) wants [`Event::Copied`] and [`Event::Skipped`]: their paths
    /// cost time for each entry. Errors are reported in any case.
    fn wants_entries(&self) -> bool {
        false
    }

    /// Receives one event.
    fn event(&self, event: Event<'_>) {
        let _ = event;
    }

    /// Decides whether `target` may be replaced. Asked with
    /// [`Options::interactive`](crate::Options::interactive). `mode` is the target's when its permission bits
    /// forbid writing (GNU asks differently then).
    fn overwrite(&self, target: &Path, protected_mode: Option<u32>) -> bool {
        let _ = (target, protected_mode);
        true
    }
}

/// Ignores all events.
impl Observer for () {}

/// An event of a copy.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The engine was chosen and the copy begins.
    Start(&'a Choice),
    /// An entry was copied (`'source' -> 'target'` of `cp -v`). Directories are reported when they are made,
    /// before their contents; existing ones are not.
    Copied {
        /// What it is.
        kind: Kind,
        /// From where.
        source: &'a Path,
        /// To where.
        target: &'a Path,
        /// Where the previous target went.
        backup: Option<&'a Path>,
        /// Bytes of contents.
        bytes: u64,
        /// How the contents were copied, where there are any.
        method: Option<Method>,
    },
    /// A dry run would copy this ([`Options::dry_run`](crate::Options::dry_run)).
    Planned {
        /// What it is.
        kind: Kind,
        /// From where.
        source: &'a Path,
        /// To where.
        target: &'a Path,
        /// Something else is there now.
        replaces: bool,
        /// Bytes of contents.
        bytes: u64,
    },
    /// A target was removed to make room (`removed 'target'` of `cp -v`).
    Removed(&'a Path),
    /// An entry of the destination that the source does not have was removed, or would be in a dry run
    /// ([`Options::delete`](crate::Options::delete)).
    Deleted {
        /// Which.
        target: &'a Path,
        /// In a dry run.
        planned: bool,
    },
    /// An entry was not copied.
    Skipped {
        /// From where.
        source: &'a Path,
        /// To where it would have gone.
        target: &'a Path,
        /// Why.
        why: Skip,
    },
    /// An error. The rest is copied.
    Error(&'a Error),
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A directory that [`Options::parents`](crate::Options::parents) makes.
    Parent,
    /// A symbolic link.
    Symlink,
    /// Another name of a file that was copied already, or `-l`.
    HardLink,
    /// A FIFO, a socket or a device.
    Special,
}

/// How the contents of a file were copied: what `cp --debug` prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Method {
    /// The kernel moved the bytes, past this program: `copy_file_range`, or pipes for
    /// [`Engine::RingSplice`](crate::Engine::RingSplice).
    pub offload: Means,
    /// Blocks are shared with the source.
    pub reflink: Means,
    /// How holes were found.
    pub holes: Holes,
}

/// Whether a means was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Means {
    /// Not tried: there was nothing to move, or another means had moved it.
    #[default]
    Unknown,
    /// Not requested.
    No,
    /// Used.
    Yes,
    /// It was possible, but another means was better: a small file is cheaper to read and write, and hashing
    /// has to see the bytes.
    Avoided,
    /// Requested, but the file system does not support it.
    Unsupported,
}

/// How holes of the source were found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Holes {
    /// Not tried.
    #[default]
    Unknown,
    /// Not looked for: the source takes all the room its size needs, or holes are to be filled.
    No,
    /// The file system was asked (`SEEK_DATA`).
    Seek,
    /// Runs of zero bytes became holes.
    Zeros,
    /// Both.
    SeekAndZeros,
}

/// Why an entry was not copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skip {
    /// The target exists and [`Update`](crate::Update) keeps it.
    Exists,
    /// The target is not older.
    NotOlder,
    /// It was copied before: size and time match.
    Resumed,
    /// It is as the earlier manifest has it
    /// ([`Options::update_from_manifest`](crate::Options::update_from_manifest)).
    Listed,
    /// The user said no.
    Declined,
    /// A pattern excludes it.
    Excluded,
    /// The operand was given before.
    Twice,
    /// Source and target are one file already, and that was asked for (`-l`, `-s`).
    Same,
    /// Work was cancelled before it.
    Stopped,
    /// It belongs to another part of the copy, or to its last pass.
    OfAnotherPart,
}

/// Counts of entries and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Entries found: files, directories, links, all else.
    pub scanned: u64,
    /// Entries copied.
    pub copied: u64,
    /// Entries skipped for a stated reason.
    pub skipped: u64,
    /// Entries with an error.
    pub failed: u64,
    /// Regular files among the copied.
    pub files: u64,
    /// Directories among the copied.
    pub directories: u64,
    /// Bytes of contents of the copied.
    pub bytes: u64,
    /// Of these, bytes shared with the source by reflink.
    pub bytes_shared: u64,
    /// Files compared with their source and found equal.
    pub verified: u64,
    /// Entries of the destination that were removed because the source does not have them.
    pub deleted: u64,
    /// Errors reported. May exceed `failed`, because an entry can have several.
    pub errors: u64,
}

impl Totals {
    /// Returns whether every entry is accounted for.
    pub fn balance(&self) -> bool {
        self.scanned == self.copied + self.skipped + self.failed
    }
}

/// Files that are being copied and large enough to be waited for, from 1 MiB on. None when a copy is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Underway {
    /// How many.
    pub files: u64,
    /// Their sizes together.
    pub bytes: u64,
    /// Bytes of them that are in their copies: they are among [`Totals::bytes`] already.
    pub moved: u64,
}

/// The handle on a running copy: shared with a signal handler's thread, a progress line.
#[derive(Debug, Default)]
pub struct Control {
    cancelled: AtomicBool,
    pub(crate) scan_done: AtomicBool,
    pub(crate) counts: Counts,
}

#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) scanned: AtomicU64,
    pub(crate) copied: AtomicU64,
    pub(crate) skipped: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) files: AtomicU64,
    pub(crate) directories: AtomicU64,
    /// With those that are told ahead (`progress.rs`).
    pub(crate) bytes: AtomicU64,
    pub(crate) underway_files: AtomicU64,
    pub(crate) underway_bytes: AtomicU64,
    pub(crate) underway_moved: AtomicU64,
    pub(crate) bytes_shared: AtomicU64,
    pub(crate) verified: AtomicU64,
    pub(crate) deleted: AtomicU64,
    pub(crate) errors: AtomicU64,
}

/// Relaxed: live counters are approximate; the report reads them after every worker was joined.
pub(crate) fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

impl Control {
    /// Makes a control with nothing counted, not cancelled.
    pub fn new() -> Control {
        Control::default()
    }

    /// Stops the copy soon: what is half-written is removed, nothing new begins. Async-signal-safe.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Returns whether [`cancel`](Self::cancel) was called.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Returns whether every entry has been found, so that `scanned` in [`totals`](Self::totals) asked for
    /// later is the whole.
    pub fn scan_is_done(&self) -> bool {
        self.scan_done.load(Ordering::Acquire)
    }

    /// Returns the large files that are being copied now.
    pub fn underway(&self) -> Underway {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counts = &self.counts;
        Underway {
            files: of(&counts.underway_files),
            bytes: of(&counts.underway_bytes),
            moved: of(&counts.underway_moved),
        }
    }

    /// Returns the counts so far: small files some at a time, and the bytes of large ones as they are moved.
    pub fn totals(&self) -> Totals {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counts = &self.counts;
        Totals {
            scanned: of(&counts.scanned),
            copied: of(&counts.copied),
            skipped: of(&counts.skipped),
            failed: of(&counts.failed),
            files: of(&counts.files),
            directories: of(&counts.directories),
            bytes: of(&counts.bytes),
            bytes_shared: of(&counts.bytes_shared),
            verified: of(&counts.verified),
            deleted: of(&counts.deleted),
            errors: of(&counts.errors),
        }
    }
}

/// The chosen engine, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Never [`Engine::Auto`].
    pub engine: Engine,
    /// The reason, as a sentence.
    pub why: String,
    /// Engines that were considered and are not usable, each with its reason.
    pub refused: Vec<(Engine, String)>,
    /// Workers at the start.
    pub jobs: usize,
    /// Files in flight per worker.
    pub in_flight: usize,
}

/// One part of the work, for `explain`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phase {
    /// `scan`, `open`, `read`, `create`, `write`, `metadata`, `sync`.
    pub name: &'static str,
    /// Time spent in its system calls, summed over workers.
    pub time: Duration,
    /// How many system calls.
    pub calls: u64,
}

/// How a copy ended.
#[derive(Clone, Debug)]
pub struct Report {
    /// Counts; they balance.
    pub totals: Totals,
    /// The engine that was used.
    pub choice: Choice,
    /// From the first system call to the last.
    pub elapsed: Duration,
    /// The most workers there were at a time.
    pub workers: usize,
    /// Per phase, when asked for by [`Options::explain`](crate::Options::explain); else empty.
    pub phases: Vec<Phase>,
    /// The destination was full for an entry (ENOSPC, EDQUOT). The rest was still copied.
    pub full: bool,
    /// What each file system of the destination refused as a whole.
    pub missing: Vec<Missing>,
    /// Work was stopped by [`Control::cancel`].
    pub cancelled: bool,
    /// Copies that differ from their source when read again, and were removed.
    pub mismatches: u64,
}

impl Report {
    /// Returns whether everything requested was done.
    pub fn is_success(&self) -> bool {
        self.totals.errors == 0
            && self.totals.failed == 0
            && self.totals.balance()
            && !self.full
            && !self.cancelled
    }
}
