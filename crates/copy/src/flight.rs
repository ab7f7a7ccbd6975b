//! Many files in flight on one ring: submitted entries, and completions.
//!
//! Each file in flight has a slot: its name (through its batch), its source, a piece of the buffer pool, and
//! for splicing a pipe and a target. A slot is owned either by the kernel or by this code. `ring.rs` and
//! `splice.rs` decide the next step of a completed file.
//!
//! INVARIANT: `with_kernel` counts the entries submitted and not completed. While a slot's entry is one of
//! them, no code touches its memory, and none drops its batch (which keeps names and directories), its
//! descriptors or its pipe. [`Flight::drain`] waits until there are none, and dropping a flight settles it
//! or leaks it.

use crate::content::{ALIGNMENT, zeros};
use crate::dir::{Dir, Handles};
use crate::file::Target;
use crate::plan::Facts;
use crate::progress::Ahead;
use crate::queue::Names;
use crate::threads::with_room;
use ringroad_uring::abi::setup::{IORING_SETUP_DEFER_TASKRUN, IORING_SETUP_SINGLE_ISSUER};
use ringroad_uring::{Ring, SetupError, Sqe, Wait};
use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

/// Bytes read ahead per file: typical dataset files completely, of larger ones the beginning.
pub(crate) const AHEAD_BYTES: usize = 128 << 10;

/// Memory that must be free when a ring is made.
const SPARE_BYTES: usize = 8 << 20;

/// Files of one directory that are copied together.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) dir: Arc<Dir>,
    pub(crate) handles: Arc<Handles>,
    pub(crate) names: Arc<Names>,
    pub(crate) next: Cell<usize>,
    pub(crate) end: Cell<usize>,
    /// Files not ended yet.
    pub(crate) left: Cell<usize>,
}

/// The step that a slot's file waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Free,
    /// The source, to be held by its path, so that it is known what it is.
    Look,
    /// The source, to be open.
    Open,
    /// The first bytes.
    Read,
    /// The target, to be made.
    Create,
    /// Bytes from the source into the pipe.
    In,
    /// Bytes from the pipe into the target.
    Out,
}

/// One file in flight.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) step: Step,
    pub(crate) batch: Option<Rc<Batch>>,
    /// The name's place in the batch.
    pub(crate) at: usize,
    /// The source as it was looked at, where it is a regular file.
    pub(crate) known: Option<Facts>,
    pub(crate) source: Option<(OwnedFd, Facts)>,
    pub(crate) target: Option<Target>,
    pub(crate) pipe: Option<(OwnedFd, OwnedFd)>,
    /// Bytes in the pipe.
    pub(crate) held: u32,
    pub(crate) moved: u64,
    /// What was told of that.
    pub(crate) ahead: Ahead,
    /// The mode the target is made with.
    pub(crate) mode: u32,
    pub(crate) attributes: Option<Vec<u8>>,
}

/// A completion: which slot, and the kernel's answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Landed {
    pub(crate) slot: usize,
    pub(crate) result: i32,
}

/// A ring and its slots.
#[derive(Debug)]
pub(crate) struct Flight {
    ring: Ring,
    pub(crate) slots: Vec<Slot>,
    free: Vec<usize>,
    memory: Vec<u8>,
    start: usize,
    with_kernel: usize,
    pub(crate) landed: VecDeque<Landed>,
    /// How many `io_uring_enter` calls were made.
    pub(crate) enters: u64,
}

impl Flight {
    /// Makes a ring for `files` files at a time, for the thread that calls this. `buffers`: whether each gets
    /// a piece of memory to be read ahead into.
    pub(crate) fn new(files: usize, buffers: bool) -> Result<Flight, String> {
        let bytes = if buffers { files * AHEAD_BYTES } else { 0 };
        // Where memory is limited no ring is made, and plain calls do the work. The rest is room for what is
        // allocated later, where a failure would abort the program.
        let made = with_room(bytes + SPARE_BYTES, || {
            let memory = zeros(bytes + ALIGNMENT).map_err(|why| format!("memory to read into: {why}"))?;
            let ring = Flight::ring(files).map_err(|why| why.to_string())?;
            Ok(Flight::with(ring, files, memory))
        });
        made.unwrap_or_else(|| {
            Err("memory is limited, and a ring would leave too little (raise the limit)".to_string())
        })
    }

    fn ring(files: usize) -> Result<Ring, SetupError> {
        let entries = u32::try_from(files.next_power_of_two()).unwrap_or(4096).max(2);
        let flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
        let ring = match Ring::builder(entries).flags(flags).build() {
            // Flags of Linux 6.1: an older kernel has rings without them.
            Err(why) if why.source.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => {
                Ring::builder(entries).build()?
            }
            answer => answer?,
        };
        let mut ring = ring;
        // Each open of a file that is not cached occupies a kernel worker; more of them only contend for the
        // directory's lock. Where the kernel cannot cap them (before 5.15) its own limits hold.
        let _ = ring.limit_workers(entries.min(32), 2);
        Ok(ring)
    }

    fn with(ring: Ring, files: usize, memory: Vec<u8>) -> Flight {
        let start = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        let slot = |_| Slot {
            step: Step::Free,
            batch: None,
            at: 0,
            known: None,
            source: None,
            target: None,
            pipe: None,
            held: 0,
            moved: 0,
            ahead: Ahead::default(),
            mode: 0,
            attributes: None,
        };
        Flight {
            ring,
            slots: (0..files).map(slot).collect(),
            free: (0..files).rev().collect(),
            memory,
            start,
            with_kernel: 0,
            landed: VecDeque::new(),
            enters: 0,
        }
    }

    pub(crate) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Returns whether no file is in flight.
    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// Returns a free slot, for name `at` of `batch`.
    pub(crate) fn take(&mut self, batch: &Rc<Batch>, at: usize) -> Option<usize> {
        let index = self.free.pop()?;
        let slot = self.slots.get_mut(index)?;
        slot.batch = Some(Rc::clone(batch));
        slot.at = at;
        slot.known = None;
        slot.moved = 0;
        slot.held = 0;
        Some(index)
    }

    /// The slot's file has ended. Its pipe is kept for the next, if it is empty.
    pub(crate) fn give_back(&mut self, index: usize) {
        if let Some(slot) = self.slots.get_mut(index) {
            assert!(slot.step == Step::Free, "a slot is given back when the kernel is done with it");
            slot.batch = None;
            slot.source = None;
            slot.target = None;
            slot.attributes = None;
            if slot.held > 0 {
                slot.pipe = None;
            }
            self.free.push(index);
        }
    }

    /// Queues the look at a slot's source: an open with `O_PATH`.
    pub(crate) fn look(&mut self, index: usize, flags: i32) -> io::Result<()> {
        self.open_for(index, flags, Step::Look)
    }

    /// Queues the open of a slot's source.
    pub(crate) fn open(&mut self, index: usize, flags: i32) -> io::Result<()> {
        self.open_for(index, flags, Step::Open)
    }

    fn open_for(&mut self, index: usize, flags: i32, step: Step) -> io::Result<()> {
        let Some(slot) = self.slots.get_mut(index) else { return Ok(()) };
        let Some(batch) = &slot.batch else { return Ok(()) };
        let Some((name, _)) = batch.names.get(slot.at) else { return Ok(()) };
        let entry = Sqe::openat(batch.handles.source.as_raw_fd(), name.as_ptr(), flags, 0);
        // SAFETY: the name lies in the batch's `names` and the directory in its `handles`, both immutable;
        // the slot holds the batch until its step is `Free` again, which is after the completion.
        unsafe { self.submit(index, step, entry) }
    }

    /// Queues a read of the source's first `bytes`, which must fit in the slot's memory.
    pub(crate) fn read(&mut self, index: usize, bytes: usize) -> io::Result<()> {
        let bytes = bytes.min(AHEAD_BYTES);
        let memory = self.start + index * AHEAD_BYTES;
        assert!(memory + bytes <= self.memory.len(), "a slot's memory lies in the pool");
        let into = self.memory.as_mut_ptr().wrapping_add(memory);
        let Some(Slot { source: Some((fd, _)), .. }) = self.slots.get(index) else { return Ok(()) };
        let entry = Sqe::read(fd.as_raw_fd(), into, bytes as u32, 0);
        // SAFETY: the memory is the slot's own piece of the pool, by the assertion inside it, and shown by
        // `bytes` only while the step is `Free`; the pool is released after `drain` only. The source is in
        // the slot.
        unsafe { self.submit(index, Step::Read, entry) }
    }

    /// Queues the creation of the target, under the name of the source.
    pub(crate) fn create(&mut self, index: usize, flags: i32, mode: u32) -> io::Result<()> {
        let Some(slot) = self.slots.get_mut(index) else { return Ok(()) };
        let Some(batch) = &slot.batch else { return Ok(()) };
        let Some((name, _)) = batch.names.get(slot.at) else { return Ok(()) };
        let entry = Sqe::openat(batch.handles.target.as_raw_fd(), name.as_ptr(), flags, mode);
        // SAFETY: as in `open_for`.
        unsafe { self.submit(index, Step::Create, entry) }
    }

    /// Queues a splice of up to `bytes` from the source into the pipe.
    pub(crate) fn splice_in(&mut self, index: usize, bytes: u32) -> io::Result<()> {
        let Some(Slot { source: Some((from, _)), pipe: Some((_, to)), .. }) = self.slots.get(index) else {
            return Ok(());
        };
        let entry = splice(from.as_raw_fd(), to.as_raw_fd(), bytes);
        // SAFETY: a splice names no memory of ours; both descriptors are in the slot.
        unsafe { self.submit(index, Step::In, entry) }
    }

    /// Queues a splice of what the pipe holds into the target.
    pub(crate) fn splice_out(&mut self, index: usize) -> io::Result<()> {
        let Some(Slot { target: Some(to), pipe: Some((from, _)), held, .. }) = self.slots.get(index) else {
            return Ok(());
        };
        let entry = splice(from.as_raw_fd(), to.fd.as_raw_fd(), *held);
        // SAFETY: as in `splice_in`.
        unsafe { self.submit(index, Step::Out, entry) }
    }

    /// Puts an entry into the queue, submitting what it holds where it is full.
    ///
    /// # Safety
    /// As [`ringroad_uring::Slot::fill`], until the slot's step is `Free` again.
    unsafe fn submit(&mut self, index: usize, step: Step, entry: Sqe) -> io::Result<()> {
        while self.ring.submissions().is_full() {
            self.enters += 1;
            match self.ring.make_room() {
                Err(why) if is_transient(&why) => self.reap(),
                answer => answer?,
            }
        }
        // SAFETY: promised by the caller.
        let pushed = unsafe { self.ring.submissions().push(entry.user_data(index as u64)) };
        pushed.map_err(io::Error::other)?;
        self.with_kernel += 1;
        if let Some(slot) = self.slots.get_mut(index) {
            slot.step = step;
        }
        Ok(())
    }

    /// Submits what is queued and takes what has come; waits for something where `wait` and the kernel has
    /// some.
    pub(crate) fn turn(&mut self, wait: bool) -> io::Result<()> {
        let completions = u32::from(wait && self.with_kernel > 0);
        self.enters += 1;
        match self.ring.submit_and_wait(Wait { completions, ..Wait::default() }) {
            Err(why) if is_transient(&why) => {}
            answer => {
                answer?;
            }
        }
        self.reap();
        Ok(())
    }

    fn reap(&mut self) {
        while let Some(completion) = self.ring.completions().pop() {
            self.with_kernel -= 1;
            self.landed.push_back(Landed { slot: completion.user_data as usize, result: completion.result });
        }
    }

    /// Returns the step a landed slot was in; from now on the slot is ours.
    pub(crate) fn land(&mut self, index: usize) -> Step {
        match self.slots.get_mut(index) {
            Some(slot) => std::mem::replace(&mut slot.step, Step::Free),
            None => Step::Free,
        }
    }

    /// Returns the first `length` bytes of a slot's memory.
    pub(crate) fn bytes(&self, index: usize, length: usize) -> &[u8] {
        let ours = self.slots.get(index).is_some_and(|slot| slot.step == Step::Free);
        assert!(ours && length <= AHEAD_BYTES, "the bytes are read when the kernel has written them");
        let start = self.start + index * AHEAD_BYTES;
        assert!(start + length <= self.memory.len(), "a slot's memory lies in the pool");
        // SAFETY: inside the pool, by the assertion, which begins as zeros. The piece is the slot's, the slot
        // is ours (`Free`), and the kernel gets it again only through `read`, which needs `&mut self` while
        // this slice borrows it. The rest of the pool, which the kernel may be writing, is not referred to.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().add(start), length) }
    }

    /// Leaks the names and directories of entries in flight: the kernel may still read them, and the wait has
    /// failed.
    pub(crate) fn keep_batches(&mut self) {
        for slot in &self.slots {
            std::mem::forget(slot.batch.clone());
        }
    }

    /// Waits until no entry is in flight.
    pub(crate) fn drain(&mut self) -> io::Result<()> {
        while self.with_kernel > 0 {
            self.turn(true)?;
        }
        Ok(())
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        // Only a panic, or a ring that failed, gets here with something in flight.
        if self.drain().is_err() {
            // The kernel may still write into the pool and read the names: they stay for the rest of the
            // process.
            std::mem::forget(std::mem::take(&mut self.memory));
            std::mem::forget(std::mem::take(&mut self.slots));
        }
    }
}

/// Returns whether to retry: EINTR, completions must be taken first, or no memory for requests at the moment.
fn is_transient(why: &io::Error) -> bool {
    use rustix::io::Errno;
    let code = why.raw_os_error();
    [Errno::INTR, Errno::BUSY, Errno::AGAIN].iter().any(|errno| code == Some(errno.raw_os_error()))
}

/// `IORING_OP_SPLICE` (5.7) between the positions of both.
fn splice(from: i32, to: i32, bytes: u32) -> Sqe {
    use ringroad_uring::abi::{io_uring_op, io_uring_sqe};
    // SAFETY: integers and unions of integers; zero is what the kernel expects in fields an opcode does not
    // use.
    let mut raw: io_uring_sqe = unsafe { std::mem::zeroed() };
    raw.opcode = io_uring_op::IORING_OP_SPLICE as u8;
    raw.fd = to;
    raw.__bindgen_anon_1.off = u64::MAX;
    raw.__bindgen_anon_2.splice_off_in = u64::MAX;
    raw.len = bytes;
    raw.__bindgen_anon_5.splice_fd_in = from;
    Sqe::from_raw(raw)
}
