//! One worker: takes tasks, runs them, counts the results.
//!
//! Elsewhere: listing (`walk.rs`), directories (`directory.rs`), copying one entry (`entry.rs`, `file.rs`),
//! the queue (`queue.rs`). Start at [`Worker::work`].

use crate::choose::{Chosen, ring};
use crate::clock::Clock;
use crate::content::Buffer;
use crate::dir::{Budget, Dir, Handles, lstat, stat};
use crate::entry::{Entry, Outcome};
use crate::error::{Error, ErrorKind};
use crate::exclude::Excluded;
use crate::feed::Selection;
use crate::journal::Journal;
use crate::known::Manifested;
use crate::leftover::Maker;
use crate::links::Links;
use crate::manifest::Manifest;
use crate::marks::Marks;
use crate::metadata::Me;
use crate::missing::Lacks;
use crate::options::Options;
use crate::progress::Ahead;
use crate::queue::{Names, Queue, Task};
use crate::rate::Bucket;
use crate::report::{Control, Event, Kind, Observer, Skip, Totals};
use crate::sample::Sample;
use crate::writers::Writers;
use rustix::fs::FileType;
use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Number of tasks that one worker does before others are started: two folders with their files, or one with
/// a subfolder.
const ALONE_TASKS: usize = 4;
/// Files in such tasks. A cached file takes about 40 µs; starting and ending a thread takes 50 to 100.
const ALONE_FILES: usize = 8;

/// State that all workers share.
pub(crate) struct Run<'a> {
    pub(crate) options: &'a Options,
    pub(crate) observer: &'a dyn Observer,
    pub(crate) control: &'a Control,
    pub(crate) queue: Queue,
    pub(crate) budget: Arc<Budget>,
    pub(crate) links: Links,
    pub(crate) chosen: Chosen,
    pub(crate) manifest: Option<Manifest>,
    /// Whether writing the manifest failed, which was reported: there will be none.
    pub(crate) manifest_lost: AtomicBool,
    /// The selection that is copied instead of directory listings, until the operand takes it.
    pub(crate) selection: Mutex<Option<Selection>>,
    /// The journal, once the destination is there.
    pub(crate) journal: OnceLock<Journal>,
    /// The earlier manifest of the destination.
    pub(crate) manifested: Option<Manifested>,
    /// Limits what all workers write.
    pub(crate) rate: Option<Bucket>,
    /// Base of the paths in the manifest.
    pub(crate) manifest_root: PathBuf,
    /// A descriptor on each file system written to, by device: what `Durability::End` syncs.
    pub(crate) written: Mutex<HashMap<u64, OwnedFd>>,
    /// Clocks of workers that have ended.
    pub(crate) clocks: Mutex<Clock>,
    /// Whether a file is being read ahead on a thread of its own.
    pub(crate) prefetching: AtomicBool,
    /// Number of workers since the operands were last waited for.
    pub(crate) workers: AtomicUsize,
    pub(crate) me: Me,
    pub(crate) exclude: Option<Excluded>,
    /// Features that file systems of the destination refused as a whole.
    pub(crate) lacks: Lacks,
    pub(crate) mismatches: AtomicU64,
    /// Directories that this copy made or merged for an operand. A source among them would be copied into
    /// itself.
    pub(crate) own: Mutex<HashSet<(u64, u64)>>,
    /// Targets of operands that lie in their source, already reported.
    pub(crate) into_itself: Mutex<HashSet<PathBuf>>,
    /// Files made for operands, so that another operand does not overwrite them.
    pub(crate) made: Mutex<HashSet<MadeAs>>,
    /// Finished files that wait for a sync before they get their times.
    pub(crate) marks: Mutex<Marks>,
    /// Held while times are set, if the journal must know that all of them are.
    pub(crate) marking: Mutex<()>,
    /// The number of the next temporary name.
    pub(crate) temporary: AtomicU64,
    /// The existing files that are being written to.
    pub(crate) writers: Writers,
    /// This process, for temporary names.
    pub(crate) maker: OnceLock<Maker>,
    pub(crate) wants_entries: bool,
    /// Whether an option examines the target before anything is opened.
    pub(crate) looks_first: bool,
}

/// A file made for an operand: its identity, its directory, and its name there. If the file has several
/// names, only this one is protected.
pub(crate) type MadeAs = ((u64, u64), (u64, u64), CString);

impl Run<'_> {
    /// Returns whether no new work may begin.
    pub(crate) fn stopped(&self) -> bool {
        self.control.is_cancelled()
    }

    /// Records what was made for an operand.
    pub(crate) fn created(&self, entry: &Entry<'_>) {
        if let Ok(facts) = lstat(entry.handles.target(), entry.target) {
            let made = made_as(entry, facts.identity());
            self.made.lock().unwrap_or_else(PoisonError::into_inner).insert(made);
        }
    }

    /// Returns whether the target of an operand, `identity`, was made for another.
    pub(crate) fn was_created(&self, entry: &Entry<'_>, identity: (u64, u64)) -> bool {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).contains(&made_as(entry, identity))
    }

    /// Records the file system of a directory or file, to be synced at the end.
    pub(crate) fn writes_to(&self, there: &OwnedFd, device: u64) {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if let std::collections::hash_map::Entry::Vacant(slot) = written.entry(device)
            && let Ok(again) = rustix::io::fcntl_dupfd_cloexec(there, 3)
        {
            slot.insert(again);
        }
    }

    pub(crate) fn is_own(&self, identity: (u64, u64)) -> bool {
        self.own.lock().unwrap_or_else(PoisonError::into_inner).contains(&identity)
    }
}

/// Returns the identity under which an operand was made. The directory's facts are those of the target side.
fn made_as(entry: &Entry<'_>, identity: (u64, u64)) -> MadeAs {
    (identity, entry.dir.facts.identity(), entry.target.to_owned())
}

/// Ends the waiting of the others when a worker panics.
struct Watch<'q>(&'q Queue);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.abandon();
        }
    }
}

/// The state of one thread.
pub(crate) struct Worker<'r, 'a> {
    pub(crate) run: &'r Run<'a>,
    pub(crate) buffer: Buffer,
    pub(crate) clock: Clock,
    pub(crate) tally: Totals,
    /// The progress reported for the present file.
    pub(crate) ahead: Ahead,
    /// Bytes reported ahead for files that have ended, to be subtracted at the next flush.
    pub(crate) told: u64,
    /// Whether the files of this batch are checked for cached data, and what was seen so far, from batch to
    /// batch.
    pub(crate) looks: bool,
    pub(crate) sample: Sample,
    /// Buffer for directory listings.
    pub(crate) listing: Vec<u8>,
    /// A ring was tried and is not tried again.
    ringless: bool,
    /// Whether the kernel reports if an open needs the disk (`RESOLVE_CACHED`).
    pub(crate) asks_cache: bool,
    /// The device of the last source that a ring opened, and whether it is FUSE.
    pub(crate) fuse: Option<(u64, bool)>,
    /// Whether the present target was compared with its source and differs: it is replaced regardless of
    /// `resume` and `update`.
    pub(crate) differs: bool,
}

impl<'r, 'a> Worker<'r, 'a> {
    pub(crate) fn new(run: &'r Run<'a>) -> Self {
        Worker {
            run,
            buffer: Buffer::new(crate::content::BUFFER_BYTES),
            clock: Clock::new(run.options.explain),
            tally: Totals::default(),
            ahead: Ahead::default(),
            told: 0,
            looks: false,
            sample: Sample::default(),
            listing: Vec::new(),
            ringless: false,
            asks_cache: true,
            fuse: None,
            differs: false,
        }
    }

    /// Works until the queue is empty. `more` adds a worker.
    pub(crate) fn work(&mut self, more: &dyn Fn()) {
        let _watch = Watch(&self.run.queue);
        loop {
            if self.run.chosen.rings_now() && !self.ringless && self.work_on_ring() {
                return;
            }
            let Some(task) = self.run.queue.take() else { return };
            self.task(task);
            self.run.queue.done();
            self.flush();
            let chosen = &self.run.chosen;
            if chosen.threads_now()
                && self.run.queue.waiting() > 0
                && self.run.workers.load(Ordering::Relaxed) < chosen.threads_most
            {
                more();
            }
        }
    }

    /// Copies one or two small folders, which takes less time than starting a thread. No other worker runs
    /// yet.
    pub(crate) fn work_alone(&mut self) {
        let small = |task: &Task| !matches!(task, Task::Files(_, _, range) if range.len() > ALONE_FILES);
        for _ in 0..ALONE_TASKS {
            let Some(task) = self.run.queue.try_take_if(small) else { return };
            self.task(task);
            self.run.queue.done();
            self.flush();
        }
    }

    /// Works on a ring until the queue is empty. Returns `false` if this worker has no ring, or lost it.
    fn work_on_ring(&mut self) -> bool {
        let splice = self.run.chosen.choice.engine == crate::Engine::RingSplice;
        let chosen = &self.run.chosen;
        let mut flight = match ring(chosen.choice.in_flight, !splice, chosen.may_open) {
            Ok(flight) => flight,
            Err(why) => {
                self.ringless = true;
                self.run.chosen.refuse_ring(why);
                return false;
            }
        };
        match self.work_in_flight(&mut flight) {
            Ok(()) => true,
            Err(why) => {
                self.ringless = true;
                self.run.chosen.refuse_ring(why.to_string());
                self.ground(&mut flight, why);
                false
            }
        }
    }

    pub(crate) fn task(&mut self, task: Task) {
        match task {
            Task::Scan(dir, handles) => {
                self.scan(dir, handles);
                self.found();
            }
            Task::Files(dir, names, range) => {
                self.files(&dir, &names, range);
                self.release(dir);
            }
            Task::Name(waiter) => self.waited(waiter),
            Task::Feed(feed) => {
                self.feed(feed);
                self.found();
            }
            Task::Directories(dir, mut names) => {
                if let Some(name) = names.pop() {
                    let rest = !names.is_empty();
                    if rest {
                        self.run.queue.push([Task::Directories(Arc::clone(&dir), names)]);
                    }
                    self.directory_entry(&dir, &name);
                }
                self.found();
            }
        }
    }

    fn files(&mut self, dir: &Arc<Dir>, names: &Arc<Names>, range: Range<usize>) {
        if self.run.stopped() {
            self.tally.skipped += range.len() as u64;
            return;
        }
        let handles = match dir.handles(&self.run.budget) {
            Ok(handles) => handles,
            Err(error) => {
                self.tally.failed += range.len() as u64;
                return self.tell(error);
            }
        };
        let Range { start: mut at, mut end } = range;
        // Cloned files are not read, cached or not.
        self.looks = self.run.chosen.watches() && !dir.cloning.works();
        while at < end {
            end = self.share(dir, names, at..end);
            match self.sample.judge() {
                Some(true) if !dir.cloning.works() => {
                    self.run.chosen.cold.store(true, Ordering::Relaxed);
                    // The rest is left for the way of cold files: on a ring, or with more threads.
                    self.leave(dir, names, at..end);
                    break;
                }
                _ => {}
            }
            if self.run.stopped() {
                self.tally.skipped += (end - at) as u64;
                return;
            }
            if let Some((name, kind)) = names.get(at) {
                self.name(dir, &handles, names, name, kind);
            }
            at += 1;
        }
        self.looks = false;
    }

    /// Gives the second half of a batch's rest to an idle worker, if there is one. Returns the new end of the
    /// rest.
    pub(crate) fn share(&self, dir: &Arc<Dir>, names: &Arc<Names>, rest: Range<usize>) -> usize {
        if rest.len() < 2 || !self.run.queue.starves() {
            return rest.end;
        }
        let middle = rest.start + rest.len().div_ceil(2);
        self.leave(dir, names, middle..rest.end);
        middle
    }

    /// Puts files that this worker will not copy on the queue.
    pub(crate) fn leave(&self, dir: &Arc<Dir>, names: &Arc<Names>, files: Range<usize>) {
        self.run.queue.push(self.batches(dir, names, files));
    }

    /// Makes batches of files, pending in their directory. The last batch is copied first, so that it is on
    /// top of the stack and files are read in order.
    pub(crate) fn batches(&self, dir: &Arc<Dir>, names: &Arc<Names>, files: Range<usize>) -> Vec<Task> {
        let size = self.run.chosen.batch(files.len());
        let starts = files.clone().step_by(size).rev();
        let tasks: Vec<Task> = starts
            .map(|start| {
                let batch = start..(start + size).min(files.end);
                Task::Files(Arc::clone(dir), Arc::clone(names), batch)
            })
            .collect();
        dir.pending.fetch_add(tasks.len(), Ordering::Relaxed);
        tasks
    }

    /// Copies one name of a directory, and accounts for it.
    pub(crate) fn name(
        &mut self,
        dir: &Arc<Dir>,
        handles: &Handles,
        names: &Names,
        name: &CStr,
        kind: FileType,
    ) {
        let entry = Entry {
            dir,
            handles,
            source: name,
            target: name,
            operand: false,
            follow: dir.follow,
            kind: Some(kind),
            window: names.window.as_deref(),
        };
        let outcome = self.entry(&entry);
        self.account(&entry, outcome);
    }

    /// Copies a child directory, which is pending in `dir`.
    fn directory_entry(&mut self, dir: &Arc<Dir>, name: &CStr) {
        if self.run.stopped() {
            self.tally.skipped += 1;
            return self.release(Arc::clone(dir));
        }
        let handles = match dir.handles(&self.run.budget) {
            Ok(handles) => handles,
            Err(error) => {
                self.tally.failed += 1;
                self.tell(error);
                return self.release(Arc::clone(dir));
            }
        };
        let entry = Entry {
            dir,
            handles: &handles,
            source: name,
            target: name,
            operand: false,
            follow: dir.follow,
            kind: Some(FileType::Directory),
            window: None,
        };
        let outcome = self.entry(&entry);
        let outcome = self.persist(outcome, |worker| worker.entry(&entry));
        let descended = matches!(outcome, Ok(Outcome::Descended { .. }));
        self.account(&entry, outcome);
        if !descended {
            self.release(Arc::clone(dir));
        }
    }

    /// Counts and reports the outcome of an entry.
    pub(crate) fn account(&mut self, entry: &Entry<'_>, outcome: Result<Outcome, Error>) {
        // Operands and directories were retried earlier, since more depends on them.
        let outcome = match entry.operand || entry.kind == Some(FileType::Directory) {
            true => outcome,
            false => self.persist(outcome, |worker| worker.entry(entry)),
        };
        if let (Some(window), Ok(accounted)) = (entry.window, &outcome)
            && !matches!(accounted, Outcome::Waiting | Outcome::Skipped(Skip::Stopped))
        {
            window.done();
        }
        match outcome {
            Ok(Outcome::Copied { kind, bytes, backup, hash, method }) => {
                self.list(entry, kind == Kind::HardLink, hash, true);
                self.tally.copied += 1;
                self.tally.bytes += bytes;
                self.tally.files += u64::from(kind == Kind::File);
                if self.run.wants_entries {
                    let (source, target) = (entry.source_path(), entry.target_path());
                    let backup = backup.as_deref();
                    let (source, target) = (&*source, &*target);
                    let event = Event::Copied { kind, source, target, backup, bytes, method };
                    self.run.observer.event(event);
                }
            }
            Ok(Outcome::Skipped(why)) => {
                self.tally.skipped += 1;
                let there = matches!(why, Skip::Exists | Skip::NotOlder | Skip::Resumed | Skip::Same);
                self.list(entry, there, None, false);
                if self.run.wants_entries {
                    let (source, target) = (entry.source_path(), entry.target_path());
                    self.run.observer.event(Event::Skipped { source: &source, target: &target, why });
                }
            }
            Ok(Outcome::Kept { why, hash, verified }) => {
                self.tally.skipped += 1;
                self.tally.verified += u64::from(verified);
                self.list(entry, false, hash, false);
                if self.run.wants_entries {
                    let (source, target) = (entry.source_path(), entry.target_path());
                    self.run.observer.event(Event::Skipped { source: &source, target: &target, why });
                }
            }
            // Counted when it ends.
            Ok(Outcome::Descended { .. } | Outcome::Waiting) => {}
            Err(error) => {
                self.tally.failed += 1;
                self.tell(error);
            }
        }
        self.show();
    }

    /// Adds a file to the manifest: with the hash of the copied data, or of the existing target (`there`).
    fn list(&mut self, entry: &Entry<'_>, there: bool, hash: Option<blake3::Hash>, copied: bool) {
        let Some(manifest) = &self.run.manifest else { return };
        if self.run.manifest_lost.load(Ordering::Relaxed) {
            return;
        }
        let hash = match hash {
            None if there => self.hash_target(entry),
            hash => Ok(hash),
        };
        let added = hash.and_then(|hash| {
            let Some(hash) = hash else { return Ok(()) };
            let failed = |why| Error {
                kind: ErrorKind::Manifest,
                path: entry.target_path(),
                other: None,
                source: Some(why),
            };
            // The written file, perhaps through a link.
            let mut facts = stat(entry.handles.target(), entry.target).map_err(|why| failed(why.into()))?;
            // The source's time is set later, after the data (`marks.rs`).
            if copied
                && self.run.options.resume
                && let Ok(source) = stat(entry.handles.source(), entry.source)
            {
                facts.mtime = source.mtime;
            }
            let path = entry.target_path();
            let path = path.strip_prefix(&self.run.manifest_root).unwrap_or(&path);
            manifest.add(path, &facts, &hash).map_err(|why| {
                self.run.manifest_lost.store(true, Ordering::Relaxed);
                failed(why)
            })
        });
        if let Err(error) = added {
            self.tell(error);
        }
    }

    /// Reports an error and counts it.
    pub(crate) fn tell(&mut self, error: Error) {
        if !error.is_warning() {
            self.tally.errors += 1;
        }
        self.run.lacks.note(&error);
        if error.kind == ErrorKind::Mismatch {
            self.run.mismatches.fetch_add(1, Ordering::Relaxed);
        }
        self.run.observer.event(Event::Error(&error));
    }
}
