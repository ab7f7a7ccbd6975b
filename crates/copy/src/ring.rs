//! The `ring` engine: the ring opens and reads many sources ahead, the worker does the rest by plain calls.
//!
//! For a file that is not cached, the disk accesses take most of the time; with sixty-four files in flight
//! they overlap. The ring is used only for that: creating, writing and setting attributes run on kernel
//! threads when a ring does them, at up to six times the cost of a plain call.

use crate::clock::For;
use crate::entry::Entry;
use crate::error::Error;
use crate::file::{Opened, SOURCE_FLAGS};
use crate::flight::{AHEAD_BYTES, Batch, Flight, Landed, Step};
use crate::options::{Engine, Link, Reflink, Sparse};
use crate::plan::Facts;
use crate::queue::{Names, Task};
use crate::worker::Worker;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, ReadWriteFlags};
use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// How a source is held to be looked at: nothing is opened by it.
const LOOK_FLAGS: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

impl Worker<'_, '_> {
    /// Works until there is nothing left, with many files in flight. An error is the ring's own; then what
    /// was in flight is to be told as failed ([`Worker::ground`]), and what was not yet is work for others.
    pub(crate) fn work_in_flight(&mut self, flight: &mut Flight) -> io::Result<()> {
        let mut current: Option<Rc<Batch>> = None;
        let ended = self.keep_in_flight(flight, &mut current);
        if let (Err(_), Some(batch)) = (&ended, &current) {
            self.hand_back(batch);
        }
        ended
    }

    /// `current` is the batch that files are being taken from.
    fn keep_in_flight(&mut self, flight: &mut Flight, current: &mut Option<Rc<Batch>>) -> io::Result<()> {
        loop {
            while flight.has_room() {
                if let Some(batch) = current.as_ref().map(Rc::clone) {
                    if !self.launch(flight, &batch)? {
                        *current = None;
                    }
                    continue;
                }
                let task = if flight.is_empty() { self.run.queue.take() } else { self.run.queue.try_take() };
                match task {
                    Some(Task::Files(dir, names, range)) => *current = self.batch(dir, names, range),
                    Some(other) => {
                        self.task(other);
                        self.run.queue.done();
                        self.flush();
                    }
                    None if flight.is_empty() => return Ok(()),
                    None => break,
                }
            }
            if flight.landed.is_empty() {
                let before = Instant::now();
                let enters = flight.enters;
                flight.turn(true)?;
                self.clock.add(For::Read, before.elapsed(), flight.enters - enters);
            }
            while let Some(landed) = flight.landed.pop_front() {
                self.landed(flight, landed)?;
            }
        }
    }

    /// Opens the directory of a batch. `None`: it could not be, which is told.
    fn batch(
        &mut self,
        dir: Arc<crate::dir::Dir>,
        names: Arc<Names>,
        range: std::ops::Range<usize>,
    ) -> Option<Rc<Batch>> {
        match dir.handles(&self.run.budget) {
            Ok(handles) if !range.is_empty() => Some(Rc::new(Batch {
                dir,
                handles,
                names,
                next: Cell::new(range.start),
                end: Cell::new(range.end),
                left: Cell::new(range.len()),
            })),
            answer => {
                if let Err(error) = answer {
                    self.tally.failed += range.len() as u64;
                    self.tell(error);
                }
                self.release(dir);
                self.run.queue.done();
                None
            }
        }
    }

    /// Sends the next file of a batch on its way, or copies it at once where the ring is no help. Returns
    /// whether there are more.
    fn launch(&mut self, flight: &mut Flight, batch: &Rc<Batch>) -> io::Result<bool> {
        let at = batch.next.get();
        if at >= batch.end.get() {
            return Ok(false);
        }
        let end = self.share(&batch.dir, &batch.names, at..batch.end.get());
        self.ends_at(batch, end);
        batch.next.set(at + 1);
        let more = at + 1 < end;
        let Some((name, kind)) = batch.names.get(at) else {
            self.ended(batch);
            return Ok(more);
        };
        if self.run.stopped() {
            self.tally.skipped += 1;
            self.ended(batch);
            return Ok(more);
        }
        let plain =
            kind == FileType::RegularFile && !self.run.looks_first && self.run.options.link == Link::No;
        if !plain {
            self.name(&batch.dir, &batch.handles, &batch.names, name, kind);
            self.ended(batch);
            return Ok(more);
        }
        let nofollow = if batch.dir.follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        // `auto` got here because some files were not cached. That says little about this one.
        if self.asks_cache && self.run.chosen.choice.engine == Engine::Threads {
            match self.cached(batch, name, nofollow) {
                Cached::Whole(fd, facts) => {
                    let attributes = self.attributes_of(fd.as_fd());
                    let entry = entry_of(batch, name);
                    let outcome = self.opened(&entry, &Opened { fd, facts, ahead: None, attributes });
                    self.account(&entry, outcome);
                    self.ended(batch);
                    return Ok(more);
                }
                Cached::Name(fd, facts) => {
                    if let Some(slot) = flight.take(batch, at) {
                        self.with_source(flight, slot, fd, facts)?;
                    }
                    return Ok(more);
                }
                Cached::No => {}
            }
        }
        if let Some(slot) = flight.take(batch, at) {
            flight.look(slot, (LOOK_FLAGS | nofollow).bits() as i32)?;
        }
        Ok(more)
    }

    /// Opens a source if that needs no disk, and looks whether its first bytes are cached. Both are answered
    /// at once: a plain call copies a cached file at less cost than a ring.
    fn cached(&mut self, batch: &Batch, name: &std::ffi::CStr, nofollow: OFlags) -> Cached {
        let open = |flags: OFlags| {
            let flags = flags | nofollow;
            rustix::fs::openat2(batch.handles.source(), name, flags, Mode::empty(), ResolveFlags::CACHED)
        };
        let known = match self.clock.call(For::Open, || open(LOOK_FLAGS)) {
            Ok(held) => rustix::fs::fstat(&held).map(Facts::from),
            // Linux before 5.12, and filters, do not have it.
            Err(Errno::INVAL | Errno::NOSYS | Errno::PERM) => {
                self.asks_cache = false;
                return Cached::No;
            }
            // Not cached, or an error that the other way reports.
            Err(_) => return Cached::No,
        };
        let Ok(known) = known else { return Cached::No };
        if known.kind != FileType::RegularFile {
            return Cached::No;
        }
        let Ok(fd) = self.clock.call(For::Open, || open(SOURCE_FLAGS)) else { return Cached::No };
        let facts = match self.clock.call(For::Open, || rustix::fs::fstat(&fd)) {
            Ok(stat) => Facts::from(stat),
            Err(_) => return Cached::No,
        };
        if facts.kind != known.kind || facts.identity() != known.identity() {
            return Cached::No;
        }
        let mut byte = [0];
        let slice = std::io::IoSliceMut::new(&mut byte);
        let read = || rustix::io::preadv2(&fd, &mut [slice], 0, ReadWriteFlags::NOWAIT);
        let cached = facts.size == 0 || self.clock.call(For::Read, read).is_ok();
        if cached { Cached::Whole(fd, facts) } else { Cached::Name(fd, facts) }
    }

    /// The files of a batch that were not sent on their way become a batch of their own, for any worker.
    fn hand_back(&mut self, batch: &Batch) {
        let rest = batch.next.get()..batch.end.get();
        if !rest.is_empty() {
            self.leave(&batch.dir, &batch.names, rest.clone());
            self.ends_at(batch, rest.start);
        }
    }

    /// What lies behind `end` is no part of a batch any more.
    fn ends_at(&mut self, batch: &Batch, end: usize) {
        let files = batch.end.replace(end) - end;
        if files > 0 {
            self.less(batch, files);
        }
    }

    /// One file of a batch has ended; with its last the batch is done.
    pub(crate) fn ended(&mut self, batch: &Batch) {
        self.less(batch, 1);
    }

    fn less(&mut self, batch: &Batch, files: usize) {
        batch.left.set(batch.left.get() - files);
        if batch.left.get() == 0 {
            self.release(Arc::clone(&batch.dir));
            self.run.queue.done();
            self.flush();
        }
    }

    /// Takes the next step of a file after its entry has completed.
    fn landed(&mut self, flight: &mut Flight, landed: Landed) -> io::Result<()> {
        let Landed { slot: index, result } = landed;
        match flight.land(index) {
            Step::Look => self.source_is_known(flight, index, result),
            Step::Open => self.source_is_open(flight, index, result),
            Step::Read => {
                let got = usize::try_from(result).ok();
                self.copy_landed(flight, index, got);
                Ok(())
            }
            step @ (Step::Create | Step::In | Step::Out) => self.splice_step(flight, index, step, result),
            Step::Free => Ok(()),
        }
    }

    /// Takes a source that was found, and is held by its path: only a regular file is opened.
    fn source_is_known(&mut self, flight: &mut Flight, index: usize, result: i32) -> io::Result<()> {
        if result < 0 {
            return self.not_found(flight, index, result);
        }
        // SAFETY: the completion of an openat that succeeded: a new descriptor that no other code knows.
        let held = unsafe { OwnedFd::from_raw_fd(result) };
        let known = self.clock.call(For::Open, || rustix::fs::fstat(&held)).map(Facts::from);
        let Some(slot) = flight.slots.get_mut(index) else { return Ok(()) };
        slot.known = known.ok().filter(|known| known.kind == FileType::RegularFile);
        let follow = slot.batch.as_ref().is_some_and(|batch| batch.dir.follow);
        if slot.known.is_none() {
            // It goes the way of what it is.
            self.copy_landed(flight, index, None);
            return Ok(());
        }
        let flags = if follow { SOURCE_FLAGS } else { SOURCE_FLAGS | OFlags::NOFOLLOW };
        flight.open(index, flags.bits() as i32)
    }

    /// Takes a source that could not be looked at or opened.
    fn not_found(&mut self, flight: &mut Flight, index: usize, result: i32) -> io::Result<()> {
        let why = Errno::from_raw_os_error(-result);
        let passing = matches!(why, Errno::INTR | Errno::AGAIN | Errno::CANCELED);
        if passing || matches!(why, Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) {
            // The plain way waits for a lease to end, needs less, or reports the error better.
            self.copy_landed(flight, index, None);
            return Ok(());
        }
        self.with_entry(flight, index, |worker, entry| {
            let error = worker.open_error(entry, FileType::RegularFile, why);
            worker.not_opened(entry, error)
        });
        Ok(())
    }

    fn source_is_open(&mut self, flight: &mut Flight, index: usize, result: i32) -> io::Result<()> {
        if result < 0 {
            return self.not_found(flight, index, result);
        }
        // SAFETY: the completion of an openat that succeeded: a new descriptor that no other code knows.
        let fd = unsafe { OwnedFd::from_raw_fd(result) };
        let facts = match self.clock.call(For::Open, || rustix::fs::fstat(&fd)) {
            Ok(stat) => Facts::from(stat),
            Err(why) => {
                self.with_entry(flight, index, |_, entry| {
                    Err(entry.source_error(crate::ErrorKind::Stat, why))
                });
                return Ok(());
            }
        };
        let known = flight.slots.get(index).and_then(|slot| slot.known);
        if known.is_none_or(|known| known.kind != facts.kind || known.identity() != facts.identity()) {
            self.with_entry(flight, index, |_, entry| {
                Err(Error::plain(crate::ErrorKind::Replaced, entry.source_path()))
            });
            return Ok(());
        }
        self.with_source(flight, index, fd, facts)
    }

    /// Takes the next step of a slot's file after its source was opened.
    fn with_source(
        &mut self,
        flight: &mut Flight,
        index: usize,
        fd: OwnedFd,
        facts: Facts,
    ) -> io::Result<()> {
        let Some(slot) = flight.slots.get_mut(index) else { return Ok(()) };
        let Some(batch) = slot.batch.clone() else { return Ok(()) };
        let size = facts.size;
        let fuse = match self.fuse {
            Some((device, fuse)) if device == facts.dev => fuse,
            _ => self.fuse.insert((facts.dev, ringroad_uring::is_on_fuse(fd.as_fd()))).1,
        };
        // Holes are found by seeking, and what is claimed by another name is not read at all.
        let whole = facts.stored >= size;
        let linked = self.run.options.preserve.links && (facts.nlink > 1 || batch.dir.follow);
        let options = self.run.options;
        // Splicing sees no byte, so what looks at bytes goes the other way.
        let splices = self.run.chosen.choice.engine == Engine::RingSplice
            && self.run.manifest.is_none()
            && options.sparse != Sparse::Always
            && options.reflink != Reflink::Always
            && !options.direct
            && !options.attributes_only;
        slot.source = Some((fd, facts));
        // A ring gives wrong bytes of it, and splicing believes the size that its server tells.
        if fuse {
            self.copy_landed(flight, index, None);
            return Ok(());
        }
        if splices && whole && !linked && size > 0 {
            return self.splice_begin(flight, index);
        }
        let ahead = !options.direct && !options.attributes_only && options.reflink != Reflink::Always;
        let ahead = ahead && self.run.chosen.choice.engine != Engine::RingSplice;
        // What is cloned needs none of its bytes.
        let cloned =
            batch.dir.cloning.works() && options.reflink != Reflink::Never && self.run.manifest.is_none();
        if size == 0 || !whole || linked || !ahead || cloned {
            self.copy_landed(flight, index, None);
            return Ok(());
        }
        // One byte more than there is shows that there is no more.
        let bytes = usize::try_from(size).unwrap_or(AHEAD_BYTES).saturating_add(1);
        flight.read(index, bytes)
    }

    /// Copies a file by plain calls; `got` bytes of it are in the slot's memory.
    pub(crate) fn copy_landed(&mut self, flight: &mut Flight, index: usize, got: Option<usize>) {
        let Some(slot) = flight.slots.get_mut(index) else { return };
        self.told += slot.ahead.end(&self.run.control.counts);
        let Some((fd, facts)) = slot.source.take() else {
            return self.with_entry(flight, index, |worker, entry| worker.entry(entry));
        };
        let Some(batch) = slot.batch.clone() else { return };
        if let Some((name, _)) = batch.names.get(slot.at) {
            let entry = entry_of(&batch, name);
            if self.run.stopped() {
                self.account(&entry, Ok(crate::entry::Outcome::Skipped(crate::Skip::Stopped)));
            } else {
                let attributes = self.attributes_of(fd.as_fd());
                let ahead = got.map(|got| flight.bytes(index, got));
                let outcome = self.opened(&entry, &Opened { fd, facts, ahead, attributes });
                self.account(&entry, outcome);
            }
        }
        flight.give_back(index);
        self.ended(&batch);
    }

    /// Ends a slot's file with what `end` says.
    pub(crate) fn with_entry(
        &mut self,
        flight: &mut Flight,
        index: usize,
        end: impl FnOnce(&mut Self, &Entry<'_>) -> Result<crate::entry::Outcome, Error>,
    ) {
        let Some(slot) = flight.slots.get_mut(index) else { return };
        self.told += slot.ahead.end(&self.run.control.counts);
        let Some(batch) = slot.batch.clone() else { return };
        if let Some((name, _)) = batch.names.get(slot.at) {
            let entry = entry_of(&batch, name);
            let outcome = end(self, &entry);
            self.account(&entry, outcome);
        }
        flight.give_back(index);
        self.ended(&batch);
    }

    /// The ring failed: what was in flight ends as failed, so that every entry is accounted for.
    pub(crate) fn ground(&mut self, flight: &mut Flight, why: io::Error) {
        let code = Errno::from_raw_os_error(why.raw_os_error().unwrap_or(5));
        // When even waiting fails, the flight leaks what the kernel may hold; the entries are counted all the
        // same.
        if flight.drain().is_err() {
            flight.keep_batches();
        }
        // What has landed meanwhile is put away: a source that is open, a target that was made.
        while let Some(Landed { slot, result }) = flight.landed.pop_front() {
            let step = flight.land(slot);
            if result < 0 || !matches!(step, Step::Look | Step::Open | Step::Create) {
                continue;
            }
            // SAFETY: the completion of an openat that succeeded: a new descriptor that no other code knows.
            let fd = unsafe { OwnedFd::from_raw_fd(result) };
            let Some(slot) = flight.slots.get_mut(slot) else { continue };
            if let (Step::Create, Some(batch), Some((_, facts))) = (step, &slot.batch, &slot.source) {
                slot.target = Some(self.new_target(&batch.dir, &batch.handles, slot.mode, facts, fd));
            }
        }
        for index in 0..flight.slots.len() {
            flight.land(index);
            let Some(slot) = flight.slots.get_mut(index).filter(|slot| slot.batch.is_some()) else {
                continue;
            };
            let target = slot.target.take();
            self.with_entry(flight, index, |worker, entry| {
                if let Some(target) = target {
                    worker.abandon(entry, (&target.place, target.identity()), &target.room, false);
                }
                Err(entry.source_error(crate::ErrorKind::Read, code))
            });
        }
    }
}

/// What is cached of a source that is a regular file.
#[derive(Debug)]
enum Cached {
    /// Its first bytes, so most likely all of it.
    Whole(OwnedFd, Facts),
    /// Its name and inode.
    Name(OwnedFd, Facts),
    /// Nothing, or that is not known.
    No,
}

/// Returns the entry of a batch's name.
pub(crate) fn entry_of<'e>(batch: &'e Batch, name: &'e std::ffi::CStr) -> Entry<'e> {
    Entry {
        dir: &batch.dir,
        handles: &batch.handles,
        source: name,
        target: name,
        operand: false,
        follow: batch.dir.follow,
        kind: Some(FileType::RegularFile),
        window: batch.names.window.as_deref(),
    }
}
