//! One worker: takes work, does it, accounts for it.
//!
//! Leaves to others: how one entry is copied (`entry.rs`, `file.rs`), what waits (`queue.rs`). Start at
//! [`Worker::work`].

use crate::choose::{COLD, Chosen, SAMPLE, THREADS_MOST};
use crate::clock::{Clock, For};
use crate::content::{Buffer, Cloning};
use crate::dir::{Budget, Child, Dir, Handles, OPEN_DIRECTORY, lstat, stat};
use crate::entry::{Entry, Outcome};
use crate::error::{Error, ErrorKind};
use crate::flight::Flight;
use crate::links::Links;
use crate::manifest::Manifest;
use crate::metadata::{Finish, Me, Named};
use crate::options::{Durability, Options, Order};
use crate::plan::{self, Action, Facts, How, Question, Side};
use crate::queue::{Names, Queue, Task};
use crate::report::{Control, Event, Kind, Observer, Skip, Totals, count};
use globset::GlobSet;
use rustix::fs::{FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Entries of one directory held at a time; also the window of the inode order.
const WINDOW: usize = 1 << 16;
/// Files given to a worker at a time.
const BATCH: usize = 1024;
const LISTING_BYTES: usize = 1 << 17;

/// What all workers share.
pub(crate) struct Run<'a> {
    pub(crate) options: &'a Options,
    pub(crate) observer: &'a dyn Observer,
    pub(crate) control: &'a Control,
    pub(crate) queue: Queue,
    pub(crate) budget: Arc<Budget>,
    pub(crate) links: Links,
    pub(crate) cloning: Cloning,
    pub(crate) chosen: Chosen,
    pub(crate) manifest: Option<Manifest>,
    /// What paths in the manifest are relative to.
    pub(crate) manifest_root: PathBuf,
    /// A descriptor on each file system written to, by device: what `Durability::End` syncs.
    pub(crate) written: Mutex<HashMap<u64, OwnedFd>>,
    /// Clocks of workers that have ended.
    pub(crate) clocks: Mutex<Clock>,
    pub(crate) workers: AtomicUsize,
    pub(crate) me: Me,
    pub(crate) exclude: Option<GlobSet>,
    /// The destination has no room left.
    pub(crate) full: AtomicBool,
    pub(crate) mismatches: AtomicU64,
    /// Directories this copy made or merged for an operand: a source that is one of them is a copy into itself.
    pub(crate) own: Mutex<HashSet<(u64, u64)>>,
    /// Operands' targets of which it was told that they lie in their source.
    pub(crate) into_itself: Mutex<HashSet<PathBuf>>,
    /// Files made for operands, so that another operand does not overwrite them.
    pub(crate) made: Mutex<HashSet<(u64, u64)>>,
    /// The number of the next temporary name.
    pub(crate) temporary: AtomicU64,
    /// When this process began, for temporary names.
    pub(crate) started: u64,
    pub(crate) wants_entries: bool,
    /// An option asks about the target before anything is opened.
    pub(crate) looks_first: bool,
}

impl Run<'_> {
    /// Whether nothing new may begin.
    pub(crate) fn stopped(&self) -> bool {
        self.control.is_cancelled() || self.full.load(Ordering::Relaxed)
    }

    /// Remembers what was made for an operand.
    pub(crate) fn created(&self, entry: &Entry<'_>) {
        if let Ok(facts) = lstat(entry.handles.target(), entry.target) {
            self.made.lock().unwrap_or_else(PoisonError::into_inner).insert(facts.identity());
        }
    }

    pub(crate) fn was_created(&self, identity: (u64, u64)) -> bool {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).contains(&identity)
    }

    /// Remembers a file system, to be synced at the end.
    pub(crate) fn writes_to(&self, directory: &OwnedFd, device: u64) {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if let std::collections::hash_map::Entry::Vacant(slot) = written.entry(device)
            && let Ok(again) = rustix::io::fcntl_dupfd_cloexec(directory, 3)
        {
            slot.insert(again);
        }
    }

    fn is_own(&self, identity: (u64, u64)) -> bool {
        self.own.lock().unwrap_or_else(PoisonError::into_inner).contains(&identity)
    }
}

/// One thread's share.
pub(crate) struct Worker<'r, 'a> {
    pub(crate) run: &'r Run<'a>,
    pub(crate) buffer: Buffer,
    pub(crate) clock: Clock,
    pub(crate) tally: Totals,
    /// A ring was tried and is not to be tried again.
    ringless: bool,
}

impl<'r, 'a> Worker<'r, 'a> {
    pub(crate) fn new(run: &'r Run<'a>) -> Self {
        Worker {
            run,
            buffer: Buffer::new(crate::content::BUFFER_BYTES),
            clock: Clock::new(run.options.explain),
            tally: Totals::default(),
            ringless: false,
        }
    }

    /// Works until there is nothing left. `more` adds a worker.
    pub(crate) fn work(&mut self, more: &dyn Fn()) {
        loop {
            if self.run.chosen.rings_now() && !self.ringless && self.work_on_ring() {
                return;
            }
            let Some(task) = self.run.queue.take() else { return };
            self.task(task);
            self.run.queue.done();
            self.flush();
            let chosen = &self.run.chosen;
            if chosen.threads_when_cold
                && chosen.cold.load(Ordering::Relaxed)
                && self.run.queue.waiting() > 0
                && self.run.workers.load(Ordering::Relaxed) < THREADS_MOST
            {
                more();
            }
        }
    }

    /// Works on a ring until there is nothing left. `false`: there is no ring for this worker, or no longer.
    fn work_on_ring(&mut self) -> bool {
        self.ringless = true;
        let splice = self.run.chosen.choice.engine == crate::Engine::RingSplice;
        let Ok(mut flight) = Flight::new(self.run.chosen.choice.in_flight, !splice) else {
            // It could be made when it was tried; without it this worker goes on by plain calls.
            return false;
        };
        match self.work_in_flight(&mut flight) {
            Ok(()) => true,
            Err(why) => {
                self.ground(&mut flight, why);
                false
            }
        }
    }

    /// Adds what was counted here to what all can see.
    pub(crate) fn flush(&mut self) {
        let counts = &self.run.control.counts;
        let tally = std::mem::take(&mut self.tally);
        for (counter, more) in [
            (&counts.scanned, tally.scanned),
            (&counts.copied, tally.copied),
            (&counts.skipped, tally.skipped),
            (&counts.failed, tally.failed),
            (&counts.files, tally.files),
            (&counts.directories, tally.directories),
            (&counts.bytes, tally.bytes),
            (&counts.bytes_shared, tally.bytes_shared),
            (&counts.verified, tally.verified),
            (&counts.errors, tally.errors),
        ] {
            if more > 0 {
                count(counter, more);
            }
        }
    }

    pub(crate) fn task(&mut self, task: Task) {
        match task {
            Task::Scan(dir, listing) => self.scan(dir, listing),
            Task::Files(dir, names, range) => {
                self.files(&dir, &names, range);
                self.release(dir);
            }
            Task::Name(waiter) => self.waited(waiter),
            Task::Directories(dir, mut names) => {
                let Some(name) = names.pop() else { return };
                let rest = !names.is_empty();
                if rest {
                    self.run.queue.push([Task::Directories(Arc::clone(&dir), names)]);
                }
                self.directory_entry(&dir, &name);
            }
        }
    }

    fn files(&mut self, dir: &Arc<Dir>, names: &Arc<Names>, range: std::ops::Range<usize>) {
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
        let (start, end) = (range.start, range.end);
        let sampled = self.run.chosen.watches();
        self.clock.sample(sampled);
        for at in range {
            if sampled && at == start + SAMPLE {
                let spent = self.clock.sampled();
                self.clock.sample(false);
                if spent > COLD * SAMPLE as u32 {
                    self.run.chosen.cold.store(true, Ordering::Relaxed);
                    // The rest in the other way of working.
                    dir.pending.fetch_add(1, Ordering::Relaxed);
                    self.run.queue.push([Task::Files(Arc::clone(dir), Arc::clone(names), at..end)]);
                    return;
                }
            }
            if self.run.stopped() {
                self.tally.skipped += (end - at) as u64;
                return;
            }
            let Some((name, kind)) = names.get(at) else { continue };
            self.name(dir, &handles, name, kind);
        }
        self.clock.sample(false);
    }

    /// Copies one name of a directory, and accounts for it.
    pub(crate) fn name(&mut self, dir: &Arc<Dir>, handles: &Handles, name: &CStr, kind: FileType) {
        let entry = Entry {
            dir,
            handles,
            source: name,
            target: name,
            operand: false,
            follow: dir.follow,
            kind: Some(kind),
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
        };
        let outcome = self.entry(&entry);
        let descended = matches!(outcome, Ok(Outcome::Descended));
        self.account(&entry, outcome);
        if !descended {
            self.release(Arc::clone(dir));
        }
    }

    /// Counts and tells what became of an entry.
    pub(crate) fn account(&mut self, entry: &Entry<'_>, outcome: Result<Outcome, Error>) {
        match outcome {
            Ok(Outcome::Copied { kind, bytes, backup, hash }) => {
                self.list(entry, kind == Kind::HardLink, hash);
                self.tally.copied += 1;
                self.tally.bytes += bytes;
                self.tally.files += u64::from(kind == Kind::File);
                if self.run.wants_entries {
                    let (source, target) = (entry.source_path(), entry.target_path());
                    let backup = backup.as_deref();
                    let event = Event::Copied { kind, source: &source, target: &target, backup, bytes };
                    self.run.observer.event(event);
                }
            }
            Ok(Outcome::Skipped(why)) => {
                self.tally.skipped += 1;
                let there = matches!(why, Skip::Exists | Skip::NotOlder | Skip::Resumed | Skip::Same);
                self.list(entry, there, None);
                if self.run.wants_entries {
                    let (source, target) = (entry.source_path(), entry.target_path());
                    self.run.observer.event(Event::Skipped { source: &source, target: &target, why });
                }
            }
            // Counted by whoever ends it.
            Ok(Outcome::Descended | Outcome::Waiting) => {}
            Err(error) => {
                self.tally.failed += 1;
                self.tell(error);
            }
        }
    }

    /// Puts a file into the manifest: with the hash of what was copied, or of what is `there` already.
    fn list(&mut self, entry: &Entry<'_>, there: bool, hash: Option<blake3::Hash>) {
        let Some(manifest) = &self.run.manifest else { return };
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
            let facts = lstat(entry.handles.target(), entry.target).map_err(|why| failed(why.into()))?;
            let path = entry.target_path();
            let path = path.strip_prefix(&self.run.manifest_root).unwrap_or(&path);
            manifest.add(path, &facts, &hash).map_err(failed)
        });
        if let Err(error) = added {
            self.tell(error);
        }
    }

    /// Tells an error, and notes what it means for the whole.
    pub(crate) fn tell(&mut self, error: Error) {
        if !error.is_warning() {
            self.tally.errors += 1;
        }
        if error.is_full() {
            self.run.full.store(true, Ordering::Relaxed);
        }
        if error.kind == ErrorKind::Mismatch {
            self.run.mismatches.fetch_add(1, Ordering::Relaxed);
        }
        self.run.observer.event(Event::Error(&error));
    }

    /// Lists the next window of a directory and makes work of it.
    fn scan(&mut self, dir: Arc<Dir>, listing: OwnedFd) {
        let run = self.run;
        if run.stopped() {
            return self.release(dir);
        }
        let mut files = Names::default();
        let mut directories = Names::default();
        let mut buffer = vec![MaybeUninit::<u8>::uninit(); LISTING_BYTES];
        let mut entries = RawDir::new(&listing, &mut buffer);
        let mut more = true;
        let mut failed = None;
        // The descriptor's position is behind the buffer's last entry, so a window ends where the buffer does.
        while files.len() + directories.len() < WINDOW || !entries.is_buffer_empty() {
            let next = if entries.is_buffer_empty() {
                self.clock.call(For::Scan, || entries.next())
            } else {
                entries.next()
            };
            let entry = match next {
                None => {
                    more = false;
                    break;
                }
                Some(Ok(entry)) => entry,
                Some(Err(Errno::INTR)) => continue,
                Some(Err(why)) => {
                    failed = Some(why);
                    more = false;
                    break;
                }
            };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            self.tally.scanned += 1;
            if run.exclude.is_some() && self.is_excluded(&dir, name) {
                self.skip_excluded(&dir, name);
                continue;
            }
            // What the listing does not say, or what a followed link leads to, is found out here: directories go
            // another way than files.
            let mut kind = entry.file_type();
            if kind == FileType::Unknown || (kind == FileType::Symlink && dir.follow) {
                let facts =
                    if dir.follow { stat(listing.as_fd(), name) } else { lstat(listing.as_fd(), name) };
                kind = facts.map_or(kind, |facts| facts.kind);
            }
            let into = if kind == FileType::Directory { &mut directories } else { &mut files };
            into.push(name, entry.ino(), kind);
        }
        if let Some(why) = failed {
            self.tell(Error::system(ErrorKind::ReadDirectory, dir.source_path(), why));
        }
        if run.options.order == Order::Inode {
            files.sort_by_inode();
            directories.sort_by_inode();
        }
        let mut tasks = Vec::new();
        dir.pending.fetch_add(directories.len(), Ordering::Relaxed);
        if !directories.is_empty() {
            tasks.push(Task::Directories(Arc::clone(&dir), directories));
        }
        let files = Arc::new(files);
        let mut start = 0;
        while start < files.len() {
            let end = (start + BATCH).min(files.len());
            dir.pending.fetch_add(1, Ordering::Relaxed);
            tasks.push(Task::Files(Arc::clone(&dir), Arc::clone(&files), start..end));
            start = end;
        }
        // The first batch on top, so that files are read in order.
        let at = usize::from(matches!(tasks.first(), Some(Task::Directories(..))));
        tasks.get_mut(at..).unwrap_or_default().reverse();
        if more {
            tasks.insert(0, Task::Scan(dir, listing));
            run.queue.push(tasks);
        } else {
            run.queue.push(tasks);
            self.release(dir);
        }
    }

    fn skip_excluded(&mut self, dir: &Dir, name: &CStr) {
        self.tally.skipped += 1;
        if self.run.wants_entries {
            let (source, target) = (dir.source_of(name), dir.target_of(name));
            let why = Skip::Excluded;
            self.run.observer.event(Event::Skipped { source: &source, target: &target, why });
        }
    }

    fn is_excluded(&self, dir: &Dir, name: &CStr) -> bool {
        self.run.exclude.as_ref().is_some_and(|globs| globs.is_match(dir.below_operand(name)))
    }

    /// One thing less that keeps `dir` open; the last finishes it, and perhaps those above.
    pub(crate) fn release(&mut self, dir: Arc<Dir>) {
        let mut dir = Some(dir);
        while let Some(this) = dir {
            // AcqRel: whoever takes it to zero sees everything the others did in this directory.
            if this.pending.fetch_sub(1, Ordering::AcqRel) != 1 || this.parent.is_none() {
                return;
            }
            self.finish(&this);
            dir = this.parent.clone();
        }
    }

    /// Sets a directory's own attributes, now that nothing more changes in it.
    fn finish(&mut self, dir: &Arc<Dir>) {
        let options = self.run.options;
        let preserve = options.preserve;
        let keeps = preserve.mode || preserve.ownership || preserve.timestamps || options.resume;
        let narrow = dir.fresh && !options.default_modes && !preserve.mode && dir.facts.mode & 0o700 != 0o700;
        let mut errors = Vec::new();
        let syncs = options.durability == Durability::File;
        if keeps || narrow || syncs || preserve.xattr != crate::Demand::No {
            match dir.handles(&self.run.budget) {
                Err(error) => errors.push(error),
                Ok(handles) => {
                    let now = rustix::fs::fstat(handles.target()).map(Facts::from);
                    let now = now.ok();
                    let finish = Finish {
                        options,
                        me: self.run.me,
                        source: Named::Open(handles.source()),
                        target: Named::Open(handles.target()),
                        facts: &dir.facts,
                        names: None,
                        owner: now.map(|now| (now.uid, now.gid)),
                        mode: now.map(|now| now.mode),
                        plain_mode: self.run.me.widened(options, &dir.facts).filter(|_| dir.fresh).or_else(
                            || now.filter(|_| narrow).map(|now| now.mode & (!0o700 | dir.facts.mode)),
                        ),
                    };
                    let mut fail = |error: Error| errors.push(Error { path: dir.target_path(), ..error });
                    finish.before_times(&mut self.clock, &mut fail);
                    if options.durability == Durability::File
                        && let Err(why) = self.clock.call(For::Sync, || rustix::fs::fsync(handles.target()))
                    {
                        fail(Error::system(ErrorKind::Sync, PathBuf::new(), why));
                    }
                    finish.times(&mut self.clock, &mut fail);
                }
            }
        }
        dir.close();
        if errors.is_empty() {
            self.tally.copied += 1;
            self.tally.directories += 1;
        } else {
            self.tally.failed += 1;
            errors.into_iter().for_each(|error| self.tell(error));
        }
    }

    /// Opens a source directory, makes or finds its target, and puts its scan on the stack.
    pub(crate) fn descend(&mut self, entry: &Entry<'_>) -> Result<Outcome, Error> {
        let run = self.run;
        let options = run.options;
        let Entry { dir, handles, source, target, .. } = *entry;
        if !options.recursive {
            return Err(Error::plain(ErrorKind::OmittedDirectory, entry.source_path()));
        }
        let nofollow = if entry.follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        let opened = self.clock.call(For::Open, || {
            rustix::fs::openat(handles.source(), source, OPEN_DIRECTORY | nofollow, Mode::empty())
        });
        let opened = match opened {
            Ok(opened) => opened,
            Err(Errno::LOOP | Errno::NOTDIR) if !entry.operand => {
                return Err(Error::plain(ErrorKind::Replaced, entry.source_path()));
            }
            Err(why) => {
                // As GNU does: the directory is made, with its attributes, and what is in it is the error.
                return Err(Error::system(ErrorKind::Access, entry.source_path(), why));
            }
        };
        let facts = match rustix::fs::fstat(&opened) {
            Ok(stat) => Facts::from(stat),
            Err(why) => return Err(Error::system(ErrorKind::Stat, entry.source_path(), why)),
        };
        if dir.follow && dir.is_at_or_below(facts.identity()) {
            return Err(Error::plain(ErrorKind::CyclicLink, entry.source_path()));
        }
        if run.is_own(facts.identity()) {
            let told = self.operand_target(dir, entry);
            if !run.into_itself.lock().unwrap_or_else(PoisonError::into_inner).insert(told) {
                // Said once for each operand: the rest follows from it.
                return Ok(Outcome::Skipped(Skip::Same));
            }
            return Err(Error::plain(ErrorKind::IntoItself, self.operand_source(dir, entry))
                .with(self.operand_target(dir, entry)));
        }
        let (made, fresh, backup) = self.target_directory(entry, &facts)?;
        let Some(made) = made else { return Ok(Outcome::Skipped(Skip::Exists)) };
        let opened_target =
            rustix::fs::openat(handles.target(), &*made, OPEN_DIRECTORY | keep_link(options), Mode::empty());
        let opened_target = match opened_target {
            Ok(fd) => fd,
            Err(why) => return Err(Error::system(ErrorKind::Access, entry.target_path(), why)),
        };
        let target_identity = match rustix::fs::fstat(&opened_target) {
            Ok(stat) => Facts::from(stat).identity(),
            Err(why) => return Err(Error::system(ErrorKind::Stat, entry.target_path(), why)),
        };
        if options.durability == Durability::End {
            run.writes_to(&opened_target, target_identity.0);
        }
        if options.resume && !fresh {
            self.remove_leftovers(&opened_target, entry);
        }
        if entry.operand {
            run.own.lock().unwrap_or_else(PoisonError::into_inner).insert(target_identity);
        }
        if facts.identity() == target_identity {
            return Err(Error::plain(ErrorKind::IntoItself, entry.source_path()).with(entry.target_path()));
        }
        if run.wants_entries && fresh {
            let (source, target) = (entry.source_path(), entry.target_path());
            run.observer.event(Event::Copied {
                kind: Kind::Directory,
                source: &source,
                target: &target,
                backup: backup.as_deref(),
                bytes: 0,
            });
        }
        let device = if entry.operand { facts.dev } else { dir.device };
        let listing = if options.one_file_system && facts.dev != device {
            None
        } else {
            let again = rustix::io::fcntl_dupfd_cloexec(&opened, 3);
            Some(again.map_err(|why| Error::system(ErrorKind::Access, entry.source_path(), why))?)
        };
        let child = Child {
            source_name: source.to_owned(),
            target_name: target.to_owned(),
            source: opened,
            target: opened_target,
            facts,
            target_identity,
            fresh,
            follow: options.dereference == crate::Dereference::Always,
            device,
        };
        let child = Dir::child(dir, child, &run.budget);
        match listing {
            Some(listing) => run.queue.push([Task::Scan(child, listing)]),
            None => self.release(child),
        }
        Ok(Outcome::Descended)
    }

    /// Makes the target of a directory, or finds it. `None`: it stays out.
    fn target_directory(
        &mut self,
        entry: &Entry<'_>,
        facts: &Facts,
    ) -> Result<(Option<CString>, bool, Option<PathBuf>), Error> {
        let options = self.run.options;
        let Entry { handles, target, .. } = *entry;
        // The sticky bit is the one special bit that mkdir(2) takes, and that a copy has without being asked.
        let mode = if options.default_modes {
            0o777 | facts.mode & 0o1000
        } else if options.preserve.mode || options.preserve.ownership {
            // Nobody else's until what is in it has its own mode.
            0o700
        } else {
            facts.mode & 0o1777 | 0o700
        };
        let mut backup = None;
        for _ in 0..2 {
            let made = self.clock.call(For::Create, || {
                rustix::fs::mkdirat(handles.target(), target, Mode::from_raw_mode(mode))
            });
            match made {
                Ok(()) => return Ok((Some(target.to_owned()), true, backup)),
                Err(Errno::EXIST) => {}
                Err(why) => return Err(Error::system(ErrorKind::CreateDirectory, entry.target_path(), why)),
            }
            let side = entry.target_side()?;
            let question = Question {
                source: Side { link: *facts, file: Some(*facts) },
                target: side,
                follow: entry.follow,
                same_name: false,
                operand: entry.operand,
                just_created: false,
            };
            match plan::decide(options, &question) {
                Action::Replace(How::Merge) => return Ok((Some(target.to_owned()), false, backup)),
                Action::Replace(How::Backup) => backup = Some(self.back_up(entry)?),
                Action::Replace(_) => {
                    return Err(Error::plain(ErrorKind::OtherByDirectory, entry.target_path())
                        .with(entry.source_path()));
                }
                Action::Skip(_) => return Ok((None, false, None)),
                Action::Refuse(ErrorKind::SameFile) => {
                    return Err(
                        Error::plain(ErrorKind::SameFile, entry.source_path()).with(entry.target_path())
                    );
                }
                Action::Refuse(kind) => {
                    return Err(Error::plain(kind, entry.target_path()).with(entry.source_path()));
                }
            }
        }
        Err(Error::system(ErrorKind::CreateDirectory, entry.target_path(), Errno::EXIST))
    }

    /// The operand a source belongs to, for the sentence about copying into itself.
    fn operand_source(&self, dir: &Arc<Dir>, entry: &Entry<'_>) -> PathBuf {
        top(dir).map_or_else(|| entry.source_path(), |top| top.source_path())
    }

    fn operand_target(&self, dir: &Arc<Dir>, entry: &Entry<'_>) -> PathBuf {
        top(dir).map_or_else(|| entry.target_path(), |top| top.target_path())
    }
}

/// The operand's own directory.
fn top(dir: &Arc<Dir>) -> Option<&Dir> {
    let mut this: &Dir = dir;
    while let Some(parent) = this.parent.as_deref() {
        if parent.parent.is_none() {
            return Some(this);
        }
        this = parent;
    }
    None
}

fn keep_link(options: &Options) -> OFlags {
    if options.keep_directory_symlink { OFlags::empty() } else { OFlags::NOFOLLOW }
}
