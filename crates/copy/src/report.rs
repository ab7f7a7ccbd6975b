//! What a copy tells: events while it runs, live totals for whoever looks, a report at the end.
//!
//! INVARIANT: `scanned == copied + skipped + failed` in every report, whatever happened: an entry is counted as
//! scanned when it is found, and as one of the three when nothing more will be done with it. [`Totals::balance`]
//! is the check, and a report that does not balance is a failed copy.

use crate::{Engine, Error};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Is told what happens. Called from every worker, at the same time.
pub trait Observer: Sync {
    /// Whether [`event`](Self::event) wants [`Event::Copied`] and [`Event::Skipped`]. Making their paths costs
    /// something for each entry; errors come in any case.
    fn wants_entries(&self) -> bool {
        false
    }

    /// Something happened.
    fn event(&self, event: Event<'_>) {
        let _ = event;
    }

    /// May `target` be replaced? Asked with [`Options::interactive`](crate::Options::interactive). `mode` is the
    /// target's when its permission bits forbid writing (GNU asks differently then).
    fn overwrite(&self, target: &Path, protected_mode: Option<u32>) -> bool {
        let _ = (target, protected_mode);
        true
    }
}

/// An observer that wants to know nothing.
impl Observer for () {}

/// Something that happened.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The engine was chosen and work begins.
    Start(&'a Choice),
    /// An entry is in its place (`'source' -> 'target'` of `cp -v`). Directories are told when they are made, before
    /// their contents; those that were there already are not.
    Copied {
        /// What it is.
        kind: Kind,
        /// From where.
        source: &'a Path,
        /// To where.
        target: &'a Path,
        /// Where what was there before went.
        backup: Option<&'a Path>,
        /// Bytes of contents.
        bytes: u64,
        /// How the contents came there, where there are any.
        method: Option<Method>,
    },
    /// A target was removed to make room (`removed 'target'` of `cp -v`).
    Removed(&'a Path),
    /// An entry stays out.
    Skipped {
        /// From where.
        source: &'a Path,
        /// To where it would have gone.
        target: &'a Path,
        /// Why.
        why: Skip,
    },
    /// Something went wrong; the rest goes on unless the report says so.
    Error(&'a Error),
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// Another name of a file that was copied already, or `-l`.
    HardLink,
    /// A FIFO, a socket or a device.
    Special,
}

/// How the contents of a file came to its copy: what `cp --debug` tells.
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
    /// It did not come to that: there was nothing to move, or another means had moved it.
    #[default]
    Unknown,
    /// It was not asked for.
    No,
    /// It was.
    Yes,
    /// It could have been, and another was better: a small file is cheaper to read and write, and what is hashed
    /// has to be seen.
    Avoided,
    /// It was wanted, and the file system cannot do it.
    Unsupported,
}

/// How holes of the source were found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Holes {
    /// It did not come to that.
    #[default]
    Unknown,
    /// Nobody looked: the source takes all the room its size needs, or holes are to be filled.
    No,
    /// The file system was asked (`SEEK_DATA`).
    Seek,
    /// Runs of zero bytes became holes.
    Zeros,
    /// Both.
    SeekAndZeros,
}

/// Why an entry stays out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skip {
    /// The target exists and [`Update`](crate::Update) keeps it.
    Exists,
    /// The target is not older.
    NotOlder,
    /// It was copied before: size and time match.
    Resumed,
    /// The user said no.
    Declined,
    /// A pattern excludes it.
    Excluded,
    /// The operand was given before.
    Twice,
    /// Source and target are one file already, and that was asked for (`-l`, `-s`).
    Same,
    /// Work stopped before it: cancelled, or the destination is full.
    Stopped,
}

/// Counts of entries and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Entries found: files, directories, links, all else.
    pub scanned: u64,
    /// Entries in their place.
    pub copied: u64,
    /// Entries that stay out for a stated reason.
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
    /// Files read again and found equal.
    pub verified: u64,
    /// Errors told. May exceed `failed`: an entry can have several.
    pub errors: u64,
}

impl Totals {
    /// Whether every entry is accounted for.
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
    pub(crate) errors: AtomicU64,
}

/// Relaxed: counters for people; the report reads them after every worker was joined.
pub(crate) fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

impl Control {
    /// Nothing counted, not cancelled.
    pub fn new() -> Control {
        Control::default()
    }

    /// Stops the copy soon: what is half-written is removed, nothing new begins. Async-signal-safe.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether [`cancel`](Self::cancel) was called.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Whether every entry has been found, so that `scanned` in [`totals`](Self::totals) asked for later is the whole.
    pub fn scan_is_done(&self) -> bool {
        self.scan_done.load(Ordering::Acquire)
    }

    /// Large files that are being copied now.
    pub fn underway(&self) -> Underway {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counts = &self.counts;
        Underway {
            files: of(&counts.underway_files),
            bytes: of(&counts.underway_bytes),
            moved: of(&counts.underway_moved),
        }
    }

    /// The counts so far: small files some at a time, and the bytes of large ones as they are moved.
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
            errors: of(&counts.errors),
        }
    }
}

/// Which engine, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Never [`Engine::Auto`].
    pub engine: Engine,
    /// In a sentence.
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
    /// Which engine did it.
    pub choice: Choice,
    /// From the first system call to the last.
    pub elapsed: Duration,
    /// The most workers there were at a time.
    pub workers: usize,
    /// Per phase, when asked for by [`Options::explain`](crate::Options::explain); else empty.
    pub phases: Vec<Phase>,
    /// The destination has no room left; work was stopped.
    pub full: bool,
    /// Work was stopped by [`Control::cancel`].
    pub cancelled: bool,
    /// Copies that differ from their source when read again.
    pub mismatches: u64,
}

impl Report {
    /// Whether everything asked for was done.
    pub fn is_success(&self) -> bool {
        self.totals.errors == 0
            && self.totals.failed == 0
            && self.totals.balance()
            && !self.full
            && !self.cancelled
    }
}
