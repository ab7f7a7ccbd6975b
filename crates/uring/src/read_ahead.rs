//! Reads one file in order with many reads in flight: a small complete use of the ring.
//!
//! A fixed number of equal blocks moves through the file. A block is read, perhaps in several pieces, passed
//! to the sink in order, and then reused for the next part of the file. Memory use is the blocks, however
//! long the file.
//!
//! INVARIANT: the kernel may write a block only while it is `InFlight`; a block's bytes are shown to the sink
//! only while it is `Whole`; and `in_flight` counts the first kind, so that no return, error or panic leaves
//! this file with the kernel still writing: `drain` waits until it is zero.

use crate::entry::{CURRENT_POSITION, Sqe};
use crate::fuse::is_on_fuse;
use crate::map::Mapping;
use crate::ring::{Builder, Ring, SetupError, Wait};
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// The alignment of addresses, offsets and lengths for `O_DIRECT` that every known device accepts: 4096
/// bytes. Blocks are aligned to it in memory and in the file, so direct and cached reads use the same code.
pub const DIRECT_ALIGNMENT: u32 = 4096;

/// The kind of source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// By offset, blocks side by side: regular files and block devices. `size` is the size that the system
    /// reports, a hint for how far ahead to read. The end is where a read returns nothing, so a file that has
    /// grown, or one with a reported size of 0 (`/proc`), is still read whole.
    Positioned {
        /// The reported size of the source in bytes.
        size: u64,
    },
    /// At its own position, one read at a time: pipes, terminals, sockets.
    Stream,
}

/// The reason why reading ended early. Everything passed to the sink before is correct and complete.
#[derive(Debug)]
pub enum ReadError {
    /// The source failed at `offset`; the bytes before it have been handed on.
    Source {
        /// Bytes from the start.
        offset: u64,
        /// The kernel's error.
        error: io::Error,
    },
    /// The sink refused.
    Sink(io::Error),
    /// The ring itself failed.
    Ring(io::Error),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Source { offset, error } => write!(f, "read at byte {offset}: {error}"),
            ReadError::Sink(error) => write!(f, "write: {error}"),
            ReadError::Ring(error) => write!(f, "io_uring_enter: {error}"),
        }
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ReadError::Source { error, .. } | ReadError::Sink(error) | ReadError::Ring(error) => Some(error),
        }
    }
}

/// Marks the completion of a wait, not of a read.
const WAITED: u64 = 1 << 63;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    InFlight,
    /// `done` bytes were read: the whole block, or all bytes before the end.
    Whole,
    /// The read failed with this errno after `done` bytes.
    Failed(i32),
}

#[derive(Clone, Copy, Debug)]
struct Block {
    offset: u64,
    done: u32,
    state: State,
    /// A read returned nothing more: the file ends at `offset + done`.
    at_end: bool,
}

impl Block {
    /// Returns the offset in the block at which the next read begins. A short direct read may end at an
    /// unaligned offset; the next read then begins at the last aligned offset, and the bytes between are read
    /// twice into the same memory. Only direct reads do this: a file of `/proc` returns pieces, and a
    /// repeated read before the last piece returns the same piece, which would look like the end.
    fn resume_at(&self, alignment: u32) -> u32 {
        self.done - self.done % alignment
    }
}

/// A ring and its blocks, good for one file after another.
#[derive(Debug)]
pub struct ReadAhead {
    ring: Ring,
    blocks: Vec<Block>,
    memory: Mapping,
    block_bytes: u32,
    in_flight: usize,
    enters: u64,
    /// What a read's place in the file must be a multiple of: 1, or [`DIRECT_ALIGNMENT`].
    alignment: u32,
}

impl ReadAhead {
    /// Makes the ring, and as many blocks of `block_bytes` as it has submission entries. The ring is made
    /// here because every completion in it must be one of ours. For `O_DIRECT` the size is a multiple of
    /// [`DIRECT_ALIGNMENT`]. Errors: as [`Builder::build`]; no memory; a block of no bytes or of 2 GiB and
    /// more (a read returns an `i32`).
    pub fn new(ring: Builder, block_bytes: u32) -> Result<ReadAhead, SetupError> {
        if block_bytes == 0 || block_bytes > i32::MAX as u32 {
            let why = format!("a block has 1 to {} bytes, not {block_bytes}", i32::MAX);
            return Err(ring.refused("ReadAhead::new", io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        let mut made = ring.clone().build()?;
        let depth = made.submissions().entries() as usize;
        let memory =
            Mapping::anonymous(depth * block_bytes as usize).map_err(|why| ring.refused("mmap", why))?;
        let ring = made;
        let free = Block { offset: 0, done: 0, state: State::Free, at_end: false };
        Ok(ReadAhead {
            ring,
            blocks: vec![free; depth],
            memory,
            block_bytes,
            in_flight: 0,
            enters: 0,
            alignment: 1,
        })
    }

    /// Returns how many `io_uring_enter` calls were made so far.
    pub fn enters(&self) -> u64 {
        self.enters
    }

    /// Returns how many reads may be in flight.
    pub fn depth(&self) -> usize {
        self.blocks.len()
    }

    /// Passes every byte of `file` to `sink`, in order, and returns their number.
    ///
    /// The slice is valid during the call of `sink` only. A short read is continued; an interrupted one is
    /// repeated. A file that shrinks meanwhile ends where it ends now. Files on FUSE are read by plain calls,
    /// one after another.
    pub fn read(
        &mut self,
        file: BorrowedFd<'_>,
        source: Source,
        sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<u64, ReadError> {
        // Nothing is in flight here, unless waiting for it failed last time: then it must succeed now.
        self.drain().map_err(ReadError::Ring)?;
        // SAFETY: F_GETFL takes numbers only; the borrow proves the descriptor open.
        let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
        let direct = flags >= 0 && flags & libc::O_DIRECT != 0;
        self.alignment = if direct { DIRECT_ALIGNMENT } else { 1 };
        if is_on_fuse(file) {
            return self.plainly(file.as_raw_fd(), source, sink);
        }
        let outcome = self.pump(file.as_raw_fd(), source, sink);
        // The data of reads beyond the end, or beyond an error, is unused, but those reads still write into
        // the blocks.
        match self.drain() {
            Ok(()) => outcome,
            Err(error) => outcome.and(Err(ReadError::Ring(error))),
        }
    }

    /// Reads by plain calls. Nothing is in flight.
    fn plainly(
        &mut self,
        fd: RawFd,
        source: Source,
        sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<u64, ReadError> {
        let (start, room) = (self.memory.start().cast(), self.block_bytes as usize);
        let mut offset = 0_u64;
        loop {
            // SAFETY: the memory is the first block, inside our mapping. Nothing is in flight, so by the
            // INVARIANT nothing else reads or writes it.
            let read = unsafe {
                match source {
                    Source::Stream => libc::read(fd, start, room),
                    Source::Positioned { .. } => libc::pread(fd, start, room, offset as libc::off_t),
                }
            };
            match u32::try_from(read) {
                Ok(0) => return Ok(offset),
                Ok(read) => {
                    sink(self.bytes(0, read)).map_err(ReadError::Sink)?;
                    offset += u64::from(read);
                }
                Err(_) => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(ReadError::Source { offset, error });
                    }
                }
            }
        }
    }

    fn pump(
        &mut self,
        fd: RawFd,
        source: Source,
        sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<u64, ReadError> {
        let depth = self.blocks.len() as u64;
        // Sequence numbers: block n lies at n * block_bytes and lives in blocks[n % depth].
        // first <= next <= first + depth: [first, next) are in flight or wait to be handed on.
        let (mut first, mut next) = (0_u64, 0_u64);
        let mut handed = 0_u64;
        loop {
            while next - first < depth && self.worth_asking(source, first, next) {
                let index = (next % depth) as usize;
                let offset = next * u64::from(self.block_bytes);
                self.blocks[index] = Block { offset, done: 0, state: State::Free, at_end: false };
                self.ask(fd, index, source).map_err(ReadError::Ring)?;
                next += 1;
            }
            let index = (first % depth) as usize;
            let mut moved = false;
            while first < next {
                let index = (first % depth) as usize;
                let block = self.blocks[index];
                match block.state {
                    State::Whole => {
                        sink(self.bytes(index, block.done)).map_err(ReadError::Sink)?;
                        handed += u64::from(block.done);
                        if block.at_end {
                            return Ok(handed);
                        }
                    }
                    State::Failed(errno) => {
                        sink(self.bytes(index, block.done)).map_err(ReadError::Sink)?;
                        let offset = handed + u64::from(block.done);
                        return Err(ReadError::Source { offset, error: io::Error::from_raw_os_error(errno) });
                    }
                    State::Free | State::InFlight => break,
                }
                first += 1;
                moved = true;
            }
            if moved {
                continue;
            }
            self.turn(fd, source, index).map_err(ReadError::Ring)?;
        }
    }

    /// Returns whether the read of block `next` should be started already. At least one is in flight, to find
    /// the end. Up to the reported size of the source all blocks are used; beyond it one at a time.
    fn worth_asking(&self, source: Source, first: u64, next: u64) -> bool {
        match source {
            Source::Stream => next == first,
            Source::Positioned { size } => next == first || next * u64::from(self.block_bytes) < size,
        }
    }

    /// Puts a read for what `index` lacks into the submission queue.
    fn ask(&mut self, fd: RawFd, index: usize, source: Source) -> io::Result<()> {
        let block = &self.blocks[index];
        debug_assert!(block.state != State::InFlight);
        let from = block.resume_at(self.alignment);
        let offset = match source {
            Source::Stream => CURRENT_POSITION,
            Source::Positioned { .. } => block.offset + u64::from(from),
        };
        let start = self.memory.start().wrapping_add(index * self.block_bytes as usize + from as usize);
        let entry = Sqe::read(fd, start, self.block_bytes - from, offset).user_data(index as u64);
        // SAFETY: the memory is block `index` from `from` on, inside our mapping. By the INVARIANT no code
        // reads or writes it while the block is `InFlight`, and the mapping is not released before `drain`
        // has seen the completion (`read` and `drop` call it on every path).
        unsafe { self.push(entry)? };
        self.blocks[index].state = State::InFlight;
        Ok(())
    }

    /// Queues an entry, making room first if there is none. With as many blocks as entries there nearly
    /// always is; but a kernel thread that submits for us (SQPOLL) may post a completion before it gives the
    /// entry back.
    ///
    /// # Safety
    /// As [`crate::Slot::fill`].
    unsafe fn push(&mut self, entry: Sqe) -> io::Result<()> {
        while self.ring.submissions().is_full() {
            self.enters += 1;
            match self.ring.make_room() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                answer => answer?,
            }
        }
        // SAFETY: promised by the caller.
        let pushed = unsafe { self.ring.submissions().push(entry) };
        pushed.map_err(io::Error::other)?;
        self.in_flight += 1;
        Ok(())
    }

    /// Puts a wait for the stream to become readable into the queue; the block stays `InFlight` meanwhile.
    fn wait_for(&mut self, fd: RawFd, index: usize) -> io::Result<()> {
        let entry = Sqe::poll_add(fd, libc::POLLIN as u32).user_data(index as u64 | WAITED);
        // SAFETY: a poll names no memory.
        unsafe { self.push(entry) }
    }

    /// Submits the queued entries and takes completions, in one system call. Waits if block `awaited` has not
    /// completed.
    fn turn(&mut self, fd: RawFd, source: Source, awaited: usize) -> io::Result<()> {
        let completions = u32::from(self.blocks[awaited].state == State::InFlight);
        self.enters += 1;
        match self.ring.submit_and_wait(Wait { completions, ..Wait::default() }) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            answer => {
                answer?;
            }
        }
        while let Some(completion) = self.ring.completions().pop() {
            let index = (completion.user_data & !WAITED) as usize;
            self.in_flight -= 1;
            let block = &mut self.blocks[index];
            let from = block.resume_at(self.alignment);
            match completion.result {
                // What was waited for: the stream has something now, or never will.
                _ if completion.user_data & WAITED != 0 => {
                    block.state = State::Free;
                    self.ask(fd, index, source)?;
                }
                // A stream in non-blocking mode that has nothing yet. Linux 6.18 waits for a pipe all the
                // same; where a kernel takes O_NONBLOCK as "do not wait for me", waiting must be asked for.
                result if result == -libc::EAGAIN && source == Source::Stream => {
                    self.wait_for(fd, index)?;
                }
                // Interrupted before anything was read, or the file system wants another try (XFS may).
                result if result == -libc::EINTR || result == -libc::EAGAIN => {
                    block.state = State::Free;
                    self.ask(fd, index, source)?;
                }
                result if result < 0 => block.state = State::Failed(-result),
                result => {
                    let reached = from + result as u32;
                    // No byte beyond those read before: this is the end.
                    block.at_end = reached <= block.done;
                    block.done = block.done.max(reached);
                    let stream_has_some = source == Source::Stream && block.done > 0;
                    block.state = State::Whole;
                    if !block.at_end && block.done < self.block_bytes && !stream_has_some {
                        self.ask(fd, index, source)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn bytes(&self, index: usize, length: u32) -> &[u8] {
        assert!(self.blocks[index].state != State::InFlight && length <= self.block_bytes);
        // SAFETY: inside the mapping. The kernel is done with this block (not `InFlight`, by the INVARIANT)
        // and gets it again only through `ask`, which needs `&mut self` while this slice borrows it. The
        // memory is initialised: anonymous pages begin as zeros.
        unsafe {
            std::slice::from_raw_parts(
                self.memory.start().add(index * self.block_bytes as usize),
                length as usize,
            )
        }
    }

    /// Waits until the kernel has let go of every block.
    fn drain(&mut self) -> io::Result<()> {
        while self.in_flight > 0 {
            self.enters += 1;
            match self.ring.submit_and_wait(Wait { completions: 1, ..Wait::default() }) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                answer => {
                    answer?;
                }
            }
            while self.ring.completions().pop().is_some() {
                self.in_flight -= 1;
            }
        }
        for block in &mut self.blocks {
            block.state = State::Free;
        }
        Ok(())
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        // Only a panic in the sink gets here with reads in flight.
        if self.drain().is_err() {
            // The kernel may still write: the memory must stay, for the rest of the process.
            self.memory.forget();
        }
    }
}
