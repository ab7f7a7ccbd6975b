//! The `ring-splice` engine: the design of uring-sync, kept so that its claim can be tried. The ring opens,
//! creates and moves the bytes through a pipe, one per file in flight; attributes are plain calls, for which
//! rings have no operation.
//!
//! Mistakes of the original are fixed: a source that ends early ends the copy, a pipe is emptied into the
//! target before more is put in, and a pipe that still holds bytes is never reused.

use crate::content::Moved;
use crate::entry::Outcome;
use crate::error::{Error, ErrorKind};
use crate::file::CREATE;
use crate::flight::{AHEAD_BYTES, Flight, Step};
use crate::report::{Holes, Means, Method};
use crate::worker::Worker;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

impl Worker<'_, '_> {
    /// Goes on with the target, once the source is open.
    pub(crate) fn splice_begin(&mut self, flight: &mut Flight, index: usize) -> io::Result<()> {
        let Some(slot) = flight.slots.get_mut(index) else { return Ok(()) };
        if slot.pipe.is_none() {
            match pipe_with(PipeFlags::CLOEXEC) {
                Ok((from, to)) => {
                    // Beyond the user's budget for pipes the kernel refuses; a smaller pipe is only slower.
                    let _ = fcntl_setpipe_size(&to, AHEAD_BYTES);
                    slot.pipe = Some((from, to));
                }
                // No descriptors left for a pipe: without one, then.
                Err(_) => {
                    self.copy_landed(flight, index, None);
                    return Ok(());
                }
            }
        }
        let (Some(batch), Some((fd, facts))) = (slot.batch.clone(), &slot.source) else { return Ok(()) };
        slot.attributes = self.attributes_of(fd.as_fd());
        let mode = self.creation_mode(&batch.dir, &batch.handles, facts, slot.attributes.as_deref());
        slot.mode = mode;
        flight.create(index, CREATE.bits() as i32, mode)
    }

    /// Takes the end of a step of the pipe's way.
    pub(crate) fn splice_step(
        &mut self,
        flight: &mut Flight,
        index: usize,
        step: Step,
        result: i32,
    ) -> io::Result<()> {
        let Some(slot) = flight.slots.get_mut(index) else { return Ok(()) };
        let again = result == -Errno::INTR.raw_os_error();
        match step {
            Step::Create if result < 0 => {
                // It exists, most likely; the plain way knows what to do, and what to say.
                self.copy_landed(flight, index, None);
                Ok(())
            }
            Step::Create => {
                // SAFETY: the completion of an openat that succeeded: a new descriptor that no other code
                // knows.
                let fd = unsafe { OwnedFd::from_raw_fd(result) };
                let (Some(batch), Some((_, facts))) = (slot.batch.clone(), &slot.source) else {
                    return Ok(());
                };
                slot.target = Some(self.new_target(&batch.dir, &batch.handles, slot.mode, facts, fd));
                flight.splice_in(index, AHEAD_BYTES as u32)
            }
            Step::In if again => flight.splice_in(index, AHEAD_BYTES as u32),
            Step::Out if again => flight.splice_out(index),
            Step::In if result < 0 => self.splice_failed(flight, index, ErrorKind::Read, -result),
            Step::Out if result <= 0 => {
                let code = if result == 0 { Errno::NOSPC.raw_os_error() } else { -result };
                self.splice_failed(flight, index, ErrorKind::Write, code)
            }
            Step::In if result == 0 => {
                self.splice_end(flight, index);
                Ok(())
            }
            Step::In => {
                slot.held = result as u32;
                flight.splice_out(index)
            }
            _ => {
                let put = result as u32;
                slot.held = slot.held.saturating_sub(put);
                slot.moved += u64::from(put);
                let size = slot.source.as_ref().map_or(0, |(_, facts)| facts.size);
                slot.ahead.moved(&self.run.control.counts, u64::from(put), size);
                if slot.held > 0 {
                    return flight.splice_out(index);
                }
                if self.run.stopped() {
                    self.splice_cancelled(flight, index);
                    return Ok(());
                }
                flight.splice_in(index, AHEAD_BYTES as u32)
            }
        }
    }

    /// All bytes are there: the rest is as for every file.
    fn splice_end(&mut self, flight: &mut Flight, index: usize) {
        let Some(slot) = flight.slots.get_mut(index) else { return };
        let (Some(source), Some(target)) = (slot.source.take(), slot.target.take()) else { return };
        let attributes = slot.attributes.take();
        let offload = Means::Yes;
        let method = Method { offload, reflink: Means::Avoided, holes: Holes::No };
        let moved = Moved { bytes: slot.moved, shared: 0, method };
        self.with_entry(flight, index, |worker, entry| {
            let opened = crate::file::Opened { fd: source.0, facts: source.1, ahead: None, attributes };
            worker.moved(entry, &opened, target, moved)
        });
    }

    fn splice_cancelled(&mut self, flight: &mut Flight, index: usize) {
        let target = flight.slots.get_mut(index).and_then(|slot| slot.target.take());
        self.with_entry(flight, index, |worker, entry| {
            if let Some(target) = target {
                worker.abandon(entry, (&target.place, target.identity()), &target.room, false);
            }
            Ok(Outcome::Skipped(crate::Skip::Stopped))
        });
    }

    fn splice_failed(
        &mut self,
        flight: &mut Flight,
        index: usize,
        kind: ErrorKind,
        code: i32,
    ) -> io::Result<()> {
        let target = flight.slots.get_mut(index).and_then(|slot| slot.target.take());
        // EINVAL: this file system cannot splice. EAGAIN: the file has nothing yet. The plain way can, and
        // waits.
        let cannot = [Errno::INVAL, Errno::AGAIN].iter().any(|why| code == why.raw_os_error());
        if cannot {
            if let (Some(target), Some(slot)) = (target, flight.slots.get_mut(index)) {
                slot.pipe = None;
                slot.held = 0;
                let Some(batch) = slot.batch.clone() else { return Ok(()) };
                if let Some((name, _)) = batch.names.get(slot.at) {
                    let begun = (&target.place, target.identity());
                    self.abandon(&crate::ring::entry_of(&batch, name), begun, &target.room, false);
                }
                slot.source = None;
            }
            self.copy_landed(flight, index, None);
            return Ok(());
        }
        self.with_entry(flight, index, |worker, entry| {
            if let Some(target) = target {
                worker.abandon(entry, (&target.place, target.identity()), &target.room, false);
            }
            let path = if kind == ErrorKind::Read { entry.source_path() } else { entry.target_path() };
            Err(Error::system(kind, path, Errno::from_raw_os_error(code)))
        });
        Ok(())
    }
}
