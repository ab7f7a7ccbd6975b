//! The `ring` engine: the ring opens and reads many sources ahead, the worker does the rest by plain calls.
//!
//! A cold file costs the time of its disk accesses, one after the other; with sixty-four in flight they overlap.
//! That is all a ring is good for here: creating, writing and setting attributes run on kernel threads when a ring
//! does them, at up to six times the cost of the plain call.

use crate::clock::For;
use crate::entry::Entry;
use crate::error::Error;
use crate::file::{Opened, SOURCE_FLAGS};
use crate::flight::{AHEAD_BYTES, Batch, Flight, Landed, Step};
use crate::options::{Engine, Link, Reflink, Sparse};
use crate::plan::Facts;
use crate::queue::{Names, Task};
use crate::worker::Worker;
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

impl Worker<'_, '_> {
    /// Works until there is nothing left, with many files in flight. An error is the ring's own; then what was in
    /// flight is to be told as failed ([`Worker::ground`]), and what was not yet is work for others.
    pub(crate) fn work_in_flight(&mut self, flight: &mut Flight) -> io::Result<()> {
        let mut current: Option<Rc<Batch>> = None;
        let ended = self.keep_in_flight(flight, &mut current);
        if let (Err(_), Some(batch)) = (&ended, &current) {
            self.hand_back(batch);
        }
        ended
    }

    /// `current` is the batch whose files are being sent on their way.
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

    /// Sends the next file of a batch on its way, or copies it at once where the ring is no help. Returns whether
    /// there are more.
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
            self.name(&batch.dir, &batch.handles, name, kind);
            self.ended(batch);
            return Ok(more);
        }
        if let Some(slot) = flight.take(batch, at) {
            let flags = if batch.dir.follow { SOURCE_FLAGS } else { SOURCE_FLAGS | OFlags::NOFOLLOW };
            flight.open(slot, flags.bits() as i32)?;
        }
        Ok(more)
    }

    /// The files of a batch that were not sent on their way become a batch of their own, for whoever takes it.
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

    /// Takes the next step of a file whose entry has completed.
    fn landed(&mut self, flight: &mut Flight, landed: Landed) -> io::Result<()> {
        let Landed { slot: index, result } = landed;
        match flight.land(index) {
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

    fn source_is_open(&mut self, flight: &mut Flight, index: usize, result: i32) -> io::Result<()> {
        let Some(slot) = flight.slots.get_mut(index) else { return Ok(()) };
        let Some(batch) = slot.batch.clone() else { return Ok(()) };
        if result < 0 {
            let why = Errno::from_raw_os_error(-result);
            if matches!(why, Errno::INTR | Errno::AGAIN | Errno::CANCELED) {
                // The plain way waits for whoever has a lease, or says it better.
                self.copy_landed(flight, index, None);
                return Ok(());
            }
            self.with_entry(flight, index, |worker, entry| {
                let error = worker.open_error(entry, FileType::RegularFile, why);
                worker.not_opened(entry, error)
            });
            return Ok(());
        }
        // SAFETY: the completion of an openat that succeeded: a descriptor nobody else knows.
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
        if facts.kind != FileType::RegularFile {
            self.with_entry(flight, index, |_, entry| {
                Err(Error::plain(crate::ErrorKind::Replaced, entry.source_path()))
            });
            return Ok(());
        }
        let size = facts.size;
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
            return self.with_entry(flight, index, |worker, entry| worker.regular(entry, None));
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
        // When even waiting fails, the flight leaks what the kernel may hold; the entries are counted all the same.
        if flight.settle().is_err() {
            flight.keep_batches();
        }
        // What has landed meanwhile is put away: a source that is open, a target that was made.
        while let Some(Landed { slot, result }) = flight.landed.pop_front() {
            let step = flight.land(slot);
            if result < 0 || !matches!(step, Step::Open | Step::Create) {
                continue;
            }
            // SAFETY: the completion of an openat that succeeded: a descriptor nobody else knows.
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

/// The entry of a batch's name.
pub(crate) fn entry_of<'e>(batch: &'e Batch, name: &'e std::ffi::CStr) -> Entry<'e> {
    Entry {
        dir: &batch.dir,
        handles: &batch.handles,
        source: name,
        target: name,
        operand: false,
        follow: batch.dir.follow,
        kind: Some(FileType::RegularFile),
    }
}
