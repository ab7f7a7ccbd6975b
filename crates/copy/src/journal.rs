//! The journal of a copy by a list: which stretches of the list are complete, so that going on with a tree
//! of millions of entries asks nothing about those.
//!
//! Entries other than directories are counted in windows of [`WINDOW_ENTRIES`]. A window is complete when
//! each of its entries was copied or found complete. It is written down after its file system was synced, so
//! what the journal says holds after a power failure too. Directories are gone through again by each run,
//! which gives them their attributes. Memory: a bit for each window.
//!
//! The journal is of one list, one part and one destination, which its first line names; another one is
//! refused. What is removed at the destination between two runs is not seen: `finish`, or a run without the
//! journal, does see it. One run at a time has it: it is locked (flock(2)). Start at [`Journal::open`].

use crate::clock::For;
use crate::error::{Error, ErrorKind};
use crate::parts::Part;
use crate::worker::Worker;
use rustix::fs::{AtFlags, FlockOperation, StatxFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Entries of a window: few enough that little is done again, many enough that a sync for each costs little.
pub(crate) const WINDOW_ENTRIES: u64 = 16_384;
/// A journal has a line of at most 22 bytes for each window; more than this is none.
const JOURNAL_BYTES_MAX: u64 = 1 << 30;

/// One stretch of a list that is being copied.
#[derive(Debug)]
pub(crate) struct Window {
    number: u64,
    /// Entries that are not accounted for, and one for the feed as long as it adds to them.
    left: AtomicU64,
    complete: Arc<Mutex<Vec<u64>>>,
}

impl Window {
    /// An entry more. One that fails is never [`done`](Self::done), so its window is not complete.
    pub(crate) fn add(&self) {
        self.left.fetch_add(1, Ordering::Relaxed);
    }

    /// An entry was copied or found complete; or the feed has given out all of them.
    pub(crate) fn done(&self) {
        // AcqRel: the last sees what the others did.
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.complete.lock().unwrap_or_else(PoisonError::into_inner).push(self.number);
        }
    }
}

/// The journal.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: Mutex<File>,
    /// Windows that were complete before.
    before: BTreeSet<u64>,
    /// Windows that are complete and not written down.
    complete: Arc<Mutex<Vec<u64>>>,
    /// Something failed that may concern any window: nothing more is written down.
    spoiled: AtomicBool,
    /// A directory of the destination, to be synced.
    target: OwnedFd,
}

/// Returns what a journal is of, as a line.
fn head(list: &Path, part: Option<Part>, finish: bool, target: BorrowedFd<'_>) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(File::open(list)?)?;
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let there = rustix::fs::statx(target, c"", AtFlags::EMPTY_PATH, wanted)?;
    let part = match part {
        Some(Part { index, count }) => format!("{}/{count}", index + 1),
        None if finish => "finish".to_owned(),
        None => "whole".to_owned(),
    };
    Ok(format!(
        "ringroad journal 1 {} {part} {}:{}:{}.{}.{}\n",
        hasher.finalize().to_hex(),
        there.stx_dev_major,
        there.stx_dev_minor,
        there.stx_ino,
        there.stx_btime.tv_sec,
        there.stx_btime.tv_nsec,
    ))
}

impl Journal {
    /// Opens the journal `path`, or begins it.
    pub(crate) fn open(
        path: &Path,
        list: &Path,
        (part, finish): (Option<Part>, bool),
        target: BorrowedFd<'_>,
    ) -> io::Result<Journal> {
        let head = head(list, part, finish, target)?;
        let mut file = File::options().read(true).append(true).create(true).open(path)?;
        // Two runs copy the same files, so a range that one has completed is not complete while the other
        // writes. Where files cannot be locked, nothing says that there is another one.
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
            let why = "another run with this journal has not ended (wait for it, or end it)";
            return Err(io::Error::other(why));
        }
        let mut bytes = Vec::new();
        Read::take(&mut file, JOURNAL_BYTES_MAX).read_to_end(&mut bytes)?;
        let before = match bytes.strip_prefix(head.as_bytes()) {
            Some(lines) => {
                // A line that was cut off says nothing, and would be another number with what follows it.
                let whole = lines.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
                if whole < lines.len() {
                    file.set_len((head.len() + whole) as u64)?;
                }
                let lines = lines.get(..whole).unwrap_or_default().split(|byte| *byte == b'\n');
                lines.filter_map(|line| std::str::from_utf8(line).ok()?.parse().ok()).collect()
            }
            // Its first line was cut off, so there was no other.
            None if head.as_bytes().starts_with(&bytes) => {
                file.set_len(0)?;
                file.write_all(head.as_bytes())?;
                file.sync_all()?;
                BTreeSet::new()
            }
            None => {
                let why = "it is the journal of another list, part or destination (remove it, or give \
                           another name)";
                return Err(io::Error::other(why));
            }
        };
        Ok(Journal {
            path: path.into(),
            file: Mutex::new(file),
            before,
            complete: Arc::default(),
            spoiled: false.into(),
            target: target.try_clone_to_owned()?,
        })
    }

    /// Returns whether a window was complete before this run.
    pub(crate) fn has(&self, window: u64) -> bool {
        self.before.contains(&window)
    }

    /// Begins a window. It is done once by the feed.
    pub(crate) fn begin(&self, number: u64) -> Arc<Window> {
        Arc::new(Window { number, left: 1.into(), complete: Arc::clone(&self.complete) })
    }

    /// Writes no window down any more.
    pub(crate) fn spoil(&self) {
        self.spoiled.store(true, Ordering::Relaxed);
    }

    fn write(&self, windows: &[u64]) -> io::Result<()> {
        let lines: String = windows.iter().map(|window| format!("{window}\n")).collect();
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(lines.as_bytes())?;
        file.sync_data()
    }
}

impl Worker<'_, '_> {
    /// Writes down the windows that are complete, after what is in them is on the disk.
    pub(crate) fn write_journal(&mut self) {
        let Some(journal) = self.run.journal.get() else { return };
        let windows = std::mem::take(&mut *journal.complete.lock().unwrap_or_else(PoisonError::into_inner));
        if windows.is_empty() || journal.spoiled.load(Ordering::Relaxed) {
            return;
        }
        self.write_marks();
        let synced = self.clock.call(For::Sync, || rustix::fs::syncfs(journal.target.as_fd()));
        // Setting times may have failed meanwhile.
        if journal.spoiled.load(Ordering::Relaxed) {
            return;
        }
        let written = synced.map_err(io::Error::from).and_then(|()| journal.write(&windows));
        if let Err(why) = written {
            journal.spoil();
            let path = journal.path.clone();
            self.tell(Error { kind: ErrorKind::Journal, path, other: None, source: Some(why) });
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_window_is_complete_when_each_of_its_entries_is_and_lines_cut_off_say_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (list, path) = (folder.path().join("list"), folder.path().join("journal"));
        std::fs::write(&list, "a list").unwrap();
        let target = File::open(folder.path()).unwrap();
        let open = |part| Journal::open(&path, &list, (part, false), target.as_fd());
        let journal = open(None).unwrap();
        let window = journal.begin(7);
        window.add();
        window.add();
        window.done();
        window.done();
        assert!(journal.complete.lock().unwrap().is_empty(), "the feed may add to it");
        window.done();
        let failing = journal.begin(8);
        failing.add();
        failing.done();
        assert_eq!(*journal.complete.lock().unwrap(), [7]);
        journal.write(&[7, 12]).unwrap();
        drop(journal);
        let whole = std::fs::read(&path).unwrap();
        for (cut, seven, twelve) in [(0, true, true), (1, true, false), (3, true, false), (4, false, false)] {
            std::fs::write(&path, &whole[..whole.len() - cut]).unwrap();
            let journal = open(None).unwrap();
            assert_eq!((journal.has(7), journal.has(12), journal.has(1)), (seven, twelve, false), "{cut}");
            journal.write(&[3]).unwrap();
            drop(journal);
            let journal = open(None).unwrap();
            let found: Vec<u64> = (0..200).filter(|window| journal.has(*window)).collect();
            let expected = [(3, true), (7, seven), (12, twelve)].into_iter();
            assert_eq!(
                found,
                expected.filter_map(|(at, is)| is.then_some(at)).collect::<Vec<u64>>(),
                "{cut}"
            );
        }
        assert!(open(Some(Part { index: 0, count: 2 })).unwrap_err().to_string().contains("another list"));
        std::fs::write(&path, &whole[..20]).unwrap();
        assert!(!open(None).unwrap().has(7), "begun anew");
        std::fs::write(&path, "something else").unwrap();
        assert!(open(None).is_err());
    }

    /// The other run may be about to write a file again that this one finds complete.
    #[test]
    fn a_journal_is_of_one_run_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let (list, path) = (folder.path().join("list"), folder.path().join("journal"));
        std::fs::write(&list, "a list").unwrap();
        let target = File::open(folder.path()).unwrap();
        let open = || Journal::open(&path, &list, (None, false), target.as_fd());
        let first = open().unwrap();
        let refused = open().unwrap_err().to_string();
        assert!(refused.contains("another run with this journal has not ended"), "{refused}");
        drop(first);
        assert!(open().is_ok());
    }
}
