//! The queue of tasks, shared by all workers: a stack, so that a tree is walked depth first and the queue
//! stays small.
//!
//! A directory is listed in windows; what remains of the listing waits *below* the work its last window made.
//! So at any time a bounded number of names is held for each level of the tree, however many a directory has.
//!
//! Files are handed out in batches, mostly a whole folder's: two workers in one folder wait for its lock. A
//! worker that has nothing to do gets half of what is left of another's batch, as soon as that one is between
//! two files ([`Queue::starves`]).
//!
//! INVARIANT: `outstanding` counts tasks that wait or run. A task adds what it makes before it is done, so
//! zero means that nothing more will come. So does `finding`, for entries to be found.

use crate::dir::{Dir, Handles};
use crate::feed::Feed;
use crate::journal::Window;
use crate::links::Waiter;
use rustix::fs::FileType;
use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Names of one directory, packed: a million of them are a few hundred allocations.
#[derive(Debug, Default)]
pub(crate) struct Names {
    bytes: Vec<u8>,
    index: Vec<Name>,
    /// The stretch of the journal that they are in.
    pub(crate) window: Option<Arc<Window>>,
}

#[derive(Clone, Copy, Debug)]
struct Name {
    start: u32,
    end: u32,
    ino: u64,
    kind: FileType,
}

impl Names {
    pub(crate) fn push(&mut self, name: &CStr, ino: u64, kind: FileType) {
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(name.to_bytes_with_nul());
        self.index.push(Name { start, end: self.bytes.len() as u32, ino, kind });
    }

    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    pub(crate) fn sort_by_inode(&mut self) {
        self.index.sort_unstable_by_key(|name| name.ino);
    }

    /// Orders names for [`Names::pop`]: each of `workers` that take them by turns gets a stretch of the
    /// inodes, and goes through it forwards. A file system that reads ahead does so for each of them, and
    /// they do not wait for the same block (docs/adr/0012).
    pub(crate) fn deal_by_inode(&mut self, workers: usize) {
        self.sort_by_inode();
        let stretch = self.index.len().div_ceil(workers.max(1)).max(1);
        let stretches: Vec<&[Name]> = self.index.chunks(stretch).collect();
        let turns = (0..stretch).flat_map(|at| stretches.iter().filter_map(move |names| names.get(at)));
        let mut taken: Vec<Name> = turns.copied().collect();
        taken.reverse();
        self.index = taken;
    }

    /// Orders names so that [`Names::pop`] takes the first pushed first.
    pub(crate) fn reverse(&mut self) {
        self.index.reverse();
    }

    pub(crate) fn get(&self, at: usize) -> Option<(&CStr, FileType)> {
        let name = self.index.get(at)?;
        let bytes = self.bytes.get(name.start as usize..name.end as usize)?;
        Some((CStr::from_bytes_with_nul(bytes).ok()?, name.kind))
    }

    /// Takes the last name.
    pub(crate) fn pop(&mut self) -> Option<std::ffi::CString> {
        let last = self.get(self.len().checked_sub(1)?)?.0.to_owned();
        self.index.pop();
        Some(last)
    }
}

/// Work that waits.
#[derive(Debug)]
pub(crate) enum Task {
    /// What is left of a directory's listing: the source's descriptor keeps the position, so it stays open.
    Scan(Arc<Dir>, Arc<Handles>),
    /// Everything but directories, all of it pending once in `dir`.
    Files(Arc<Dir>, Arc<Names>, std::ops::Range<usize>),
    /// A name that waited for the copy of its file, pending once.
    Name(Waiter),
    /// Child directories, each pending in `dir`.
    Directories(Arc<Dir>, Names),
    /// What is left of a list.
    Feed(Box<Feed>),
}

impl Task {
    /// Returns whether there may be entries in it that were not seen yet.
    fn finds(&self) -> bool {
        matches!(self, Task::Scan(..) | Task::Directories(..) | Task::Feed(..))
    }
}

/// The stack.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    /// Workers that wait for a task; written under the lock.
    idle: AtomicUsize,
    /// Tasks that may find entries, and one for the operands as long as they may.
    finding: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Task>,
    outstanding: usize,
    /// A worker panicked.
    abandoned: bool,
}

impl Queue {
    /// Nothing waits, and the operands are to come.
    pub(crate) fn new() -> Queue {
        Queue { finding: AtomicUsize::new(1), ..Queue::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts `tasks` on top; the last is taken first.
    pub(crate) fn push(&self, tasks: impl IntoIterator<Item = Task>) {
        let mut state = self.lock();
        let before = state.waiting.len();
        state.waiting.extend(tasks);
        let more = state.waiting.len() - before;
        state.outstanding += more;
        let listings = state.waiting.iter().skip(before).filter(|task| task.finds()).count();
        if listings > 0 {
            self.finding.fetch_add(listings, Ordering::Relaxed);
        }
        let idle = self.idle.load(Ordering::Relaxed);
        drop(state);
        for _ in 0..more.min(idle) {
            self.changed.notify_one();
        }
    }

    /// Puts a task below all others: it is taken when they are.
    pub(crate) fn push_below(&self, task: Task) {
        if task.finds() {
            self.finding.fetch_add(1, Ordering::Relaxed);
        }
        let mut state = self.lock();
        state.waiting.insert(0, task);
        state.outstanding += 1;
        drop(state);
        self.changed.notify_one();
    }

    /// Returns the next task, waiting for one; `None` when there will be no more.
    pub(crate) fn take(&self) -> Option<Task> {
        let mut state = self.lock();
        loop {
            if state.abandoned {
                return None;
            }
            if let Some(task) = state.waiting.pop() {
                return Some(task);
            }
            if state.outstanding == 0 {
                return None;
            }
            self.idle.fetch_add(1, Ordering::Relaxed);
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            self.idle.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns the next task, if there is one now.
    pub(crate) fn try_take(&self) -> Option<Task> {
        self.lock().waiting.pop()
    }

    /// Returns the next task, if there is one now and it is `fit`.
    pub(crate) fn try_take_if(&self, fit: impl FnOnce(&Task) -> bool) -> Option<Task> {
        let mut state = self.lock();
        let fits = state.waiting.last().is_some_and(fit);
        if fits { state.waiting.pop() } else { None }
    }

    /// Returns whether a worker waits and nothing is there for it. Without the lock while all are busy: asked
    /// before every file.
    pub(crate) fn starves(&self) -> bool {
        self.idle.load(Ordering::Relaxed) > 0 && self.waiting() == 0
    }

    /// The task that was taken is done.
    pub(crate) fn done(&self) {
        let mut state = self.lock();
        state.outstanding = state.outstanding.saturating_sub(1);
        let last = state.outstanding == 0;
        drop(state);
        if last {
            self.changed.notify_all();
        }
    }

    /// A worker ended in the middle of a task, which will never be done: the others end too, instead of
    /// waiting for it for ever.
    pub(crate) fn abandon(&self) {
        let mut state = self.lock();
        state.waiting.clear();
        state.outstanding = 0;
        state.abandoned = true;
        drop(state);
        self.changed.notify_all();
    }

    /// Notes that a task that finds entries is done, or the operands are. Returns whether it was the last.
    pub(crate) fn found(&self) -> bool {
        // AcqRel: the last sees what all of them have counted.
        self.finding.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Returns how many tasks wait.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    fn names(inodes: impl IntoIterator<Item = u64>) -> Names {
        let mut names = Names::default();
        for ino in inodes {
            let name = CString::new(ino.to_string()).unwrap_or_default();
            names.push(&name, ino, FileType::Directory);
        }
        names
    }

    fn taken(mut names: Names) -> Vec<u64> {
        std::iter::from_fn(|| names.pop()).filter_map(|name| name.to_string_lossy().parse().ok()).collect()
    }

    #[test]
    fn workers_that_take_directories_in_turn_each_proceed_in_inode_order() {
        let mut dealt = names([5, 3, 8, 1, 4, 7, 2, 6]);
        dealt.deal_by_inode(2);
        assert_eq!(taken(dealt), [1, 5, 2, 6, 3, 7, 4, 8]);
    }

    #[test]
    fn one_worker_takes_directories_in_the_order_of_their_inodes() {
        let mut dealt = names([5, 3, 1, 4, 2]);
        dealt.deal_by_inode(1);
        assert_eq!(taken(dealt), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn dealing_loses_no_name_whatever_the_number_of_workers() {
        for count in 0..20 {
            for workers in 1..8 {
                let mut dealt = names((0..count).rev());
                dealt.deal_by_inode(workers);
                let mut all = taken(dealt);
                all.sort_unstable();
                assert_eq!(all, (0..count).collect::<Vec<_>>(), "{count} names, {workers} workers");
            }
        }
    }

    #[test]
    fn names_in_the_order_of_the_listing_are_taken_first_to_last() {
        let mut listed = names([5, 3, 8]);
        listed.reverse();
        assert_eq!(taken(listed), [5, 3, 8]);
    }
}
