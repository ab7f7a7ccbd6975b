//! The bytes of one file, by plain calls: cloned, copied in one piece, or read and written in order.
//!
//! Partial results are continued and interrupted calls repeated. A source that ends early ends the copy
//! early; the caller notices it by comparing the metadata before and after. An error states which side
//! failed.

use crate::clock::{Clock, For};
use crate::options::{Options, Reflink, Sparse};
use crate::plan::Facts;
use crate::prefetch::{self, Prefetch};
use crate::progress::Ahead;
use crate::rate::Bucket;
use crate::report::{Control, Holes, Means, Method};
use crate::sample::Sample;
use crate::threads::with_room;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Advice, OFlags, SeekFrom};
use rustix::io::Errno;
use std::alloc::Layout;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Bytes per read and write: large enough for typical dataset files.
pub(crate) const BUFFER_BYTES: usize = 1 << 20;
/// The alignment of addresses, offsets and lengths for `O_DIRECT`.
pub(crate) const ALIGNMENT: usize = 4096;
/// From this size on, `copy_file_range` is cheaper than a read and a write: it moves the bytes once
/// (docs/adr/0012).
const IN_KERNEL_BYTES: u64 = 16 << 10;
/// Bytes per `copy_file_range`: small enough to notice a cancel in time.
const STEP_BYTES: usize = 16 << 20;
/// Files of which more than this is left are read ahead on another thread if they are not cached.
const PREFETCH_BYTES: u64 = 2 * STEP_BYTES as u64;
/// Files above this size are advised as sequential. Smaller ones are read ahead whole anyway.
const READ_AHEAD_BYTES: u64 = 128 << 10;
/// Zero runs shorter than this are written.
const HOLE_BYTES: usize = 4096;

/// Room that a buffer leaves: for names, and what a listing reads into.
const LEFT_BYTES: usize = 1 << 20;

/// Page-aligned memory, reused for every file of a worker.
#[derive(Debug)]
pub(crate) struct Buffer {
    memory: Vec<u8>,
    start: usize,
}

impl Buffer {
    /// Allocates a buffer of `bytes`, or less if memory is limited.
    pub(crate) fn new(bytes: usize) -> Buffer {
        let smaller = [bytes, bytes / 4, bytes / 16].into_iter();
        let taken = |bytes| with_room(bytes + LEFT_BYTES, || zeros(bytes + ALIGNMENT).ok()).flatten();
        let memory = smaller.filter_map(taken).next();
        let memory = memory.unwrap_or_else(|| vec![0; 2 * ALIGNMENT]);
        let start = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Buffer { memory, start }
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        let end = self.memory.len() - ALIGNMENT + self.start;
        self.memory.get_mut(self.start..end).unwrap_or_default()
    }
}

/// Allocates zeroed memory, or returns an error: a memory limit must not abort the program.
///
/// The allocator takes large blocks from the kernel, and their pages are zero: a page costs nothing until it
/// is used. (`Vec::resize` writes each of them.)
pub(crate) fn zeros(bytes: usize) -> io::Result<Vec<u8>> {
    let layout = Layout::array::<u8>(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
    if layout.size() == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: the layout has a size, as the line above checks.
    let start = unsafe { std::alloc::alloc_zeroed(layout) };
    if start.is_null() {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    // SAFETY: the global allocator has just returned `start` for `layout`: `bytes` bytes, with the alignment
    // of `u8`. All of them are initialised (0), and nothing else owns them.
    Ok(unsafe { Vec::from_raw_parts(start, bytes, bytes) })
}

/// Which side failed, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Read(Errno),
    Write(Errno),
    Extend(Errno),
    Clone(Errno),
    /// The copy was cancelled between two pieces.
    Cancelled,
    /// It was cancelled while it waited for a regular file that has no end, as `/proc/kmsg`. Such a file
    /// gives each byte once, so what was copied stays.
    Ended,
}

/// The number of bytes moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) bytes: u64,
    /// Bytes of these that are shared with the source.
    pub(crate) shared: u64,
    pub(crate) method: Method,
}

/// Whether cloning works between two file systems: tried once, and remembered.
#[derive(Debug, Default)]
pub(crate) struct Cloning(AtomicU8);

impl Cloning {
    const REFUSED: u8 = 1;
    const WORKS: u8 = 2;

    /// Returns whether a file was cloned: then the next will be, and its bytes need not be read.
    pub(crate) fn works(&self) -> bool {
        self.0.load(Ordering::Relaxed) == Self::WORKS
    }

    fn worked(&self) {
        if !self.works() {
            self.0.store(Self::WORKS, Ordering::Relaxed);
        }
    }

    fn is_refused(&self) -> bool {
        self.0.load(Ordering::Relaxed) == Self::REFUSED
    }

    fn refuse(&self) {
        self.0.store(Self::REFUSED, Ordering::Relaxed);
    }
}

/// One transfer.
pub(crate) struct Transfer<'a> {
    pub(crate) options: &'a Options,
    pub(crate) control: &'a Control,
    /// Limits the bytes per second of all workers.
    pub(crate) rate: Option<&'a Bucket>,
    /// Reports progress meanwhile.
    pub(crate) told: &'a mut Ahead,
    pub(crate) cloning: &'a Cloning,
    pub(crate) source: BorrowedFd<'a>,
    pub(crate) target: BorrowedFd<'a>,
    /// The source's.
    pub(crate) facts: Facts,
    /// The source's first bytes, if they were read already.
    pub(crate) ahead: Option<&'a [u8]>,
    /// Treatment of holes: the option, or [`Sparse::Never`] if the target cannot have any.
    pub(crate) sparse: Sparse,
    /// Whether both sides go past the page cache now.
    pub(crate) direct: bool,
    /// If given, gets every byte in order; then all bytes pass through this program. A file that must be
    /// cloned is read for it in addition.
    pub(crate) hasher: Option<&'a mut blake3::Hasher>,
    /// If given, a file that is not cached may be read ahead on another thread; set while one is.
    pub(crate) prefetching: Option<&'a AtomicBool>,
    /// If given, learns whether the source is cached.
    pub(crate) sample: Option<&'a mut Sample>,
    /// How it went so far.
    pub(crate) method: Method,
}

impl Transfer<'_> {
    /// Moves all bytes. Both descriptors are at offset 0.
    pub(crate) fn run(mut self, clock: &mut Clock, buffer: &mut [u8]) -> Result<Moved, Fault> {
        let regular = self.facts.kind == rustix::fs::FileType::RegularFile;
        let holes = regular && self.facts.stored < self.facts.size;
        let may_skip = self.sparse == Sparse::Always || (holes && self.sparse == Sparse::Auto);
        if may_skip && !self.target_can_have_holes() {
            self.sparse = Sparse::Never;
        }
        // No option asks for the bytes.
        let unseen = self.hasher.is_none()
            && self.options.sparse != Sparse::Always
            && self.options.reflink != Reflink::Never
            && !self.options.direct;
        let kernel = regular && unseen && self.facts.size >= IN_KERNEL_BYTES;
        let never = self.options.reflink == Reflink::Never;
        self.method.reflink = if never { Means::No } else { Means::Unknown };
        let must = self.options.reflink == Reflink::Always;
        // An empty file need not be cloned, unless cloning is required; and a file of reported size 0 may
        // have bytes, as in /proc.
        if regular && self.options.reflink != Reflink::Never && (self.facts.size > 0 || must) {
            self.method.reflink = Means::Unsupported;
            if self.hasher.is_some() && !must {
                self.method.reflink = Means::Avoided;
            } else if must || !self.cloning.is_refused() {
                match clock.call(For::Write, || rustix::fs::ioctl_ficlone(self.target, self.source)) {
                    Ok(()) => {
                        self.cloning.worked();
                        let size = self.facts.size;
                        self.method.reflink = Means::Yes;
                        self.hash_source(clock, buffer)?;
                        return Ok(Moved { bytes: size, shared: size, method: self.method });
                    }
                    Err(why) if must => return Err(Fault::Clone(why)),
                    Err(Errno::OPNOTSUPP | Errno::XDEV | Errno::NOTTY | Errno::NOSYS) => {
                        self.cloning.refuse()
                    }
                    // This file cannot be cloned (a swap file, an odd size): copy its bytes.
                    Err(_) => {}
                }
            }
        }
        if (kernel || holes || self.options.direct)
            && let Some(sample) = self.sample.take()
        {
            sample.look(self.source, clock);
        }
        if regular && self.facts.size > READ_AHEAD_BYTES {
            // Advises the kernel to read further ahead. An error does not matter.
            let _ = clock.call(For::Read, || rustix::fs::fadvise(self.source, 0, None, Advice::Sequential));
        }
        if regular && self.options.direct && self.facts.size > 0 {
            self.go_direct(true);
        }
        if self.facts.size > 0 {
            let zeros = self.sparse == Sparse::Always;
            self.method.holes = if zeros { Holes::Zeros } else { Holes::No };
            self.method.offload = if kernel { Means::Unsupported } else { Means::Avoided };
        }
        if holes && self.sparse != Sparse::Never {
            return self.around_holes(clock, buffer);
        }
        let mut moved = 0;
        let mut tail = 0;
        if let Some(ahead) = self.ahead.take().filter(|ahead| !ahead.is_empty()) {
            self.take_piece(clock, ahead, &mut tail)?;
            moved = ahead.len() as u64;
            if moved == self.facts.size {
                // One byte more was requested and did not arrive: the end.
                return self.end(clock, moved, tail);
            }
            rustix::fs::seek(self.source, SeekFrom::Start(moved)).map_err(Fault::Read)?;
        }
        let left = self.facts.size.saturating_sub(moved);
        if kernel && left >= IN_KERNEL_BYTES && self.in_the_kernel(clock, &mut moved)? {
            return self.end(clock, moved, tail);
        }
        self.pieces(clock, buffer, u64::MAX, &mut moved, &mut tail)?;
        self.end(clock, moved, tail)
    }

    /// Shows a cloned source to the hasher. These are the clone's bytes too, unless a program wrote
    /// meanwhile, which the facts will tell.
    fn hash_source(&mut self, clock: &mut Clock, buffer: &mut [u8]) -> Result<(), Fault> {
        let Some(hasher) = self.hasher.take() else { return Ok(()) };
        if self.options.direct {
            self.go_direct(true);
        }
        let whole = crate::verify::hash_file(self.source, hasher, self.control, clock, buffer);
        if whole.map_err(Fault::Read)? { Ok(()) } else { Err(Fault::Cancelled) }
    }

    /// Returns whether the target is a regular file. A pipe or a device gets every zero.
    fn target_can_have_holes(&self) -> bool {
        let kind = rustix::fs::fstat(self.target).map(|stat| crate::plan::Facts::from(stat).kind);
        kind == Ok(rustix::fs::FileType::RegularFile)
    }

    /// Copies what is left by `copy_file_range`, which a server or a file system may do without moving a
    /// byte. `true`: all of it came and the source has ended. Otherwise both descriptors stand where it
    /// stopped, and the rest is read and written.
    fn in_the_kernel(&mut self, clock: &mut Clock, moved: &mut u64) -> Result<bool, Fault> {
        let size = self.facts.size;
        let large = size - *moved > PREFETCH_BYTES && self.rate.is_none();
        let busy = self.prefetching.filter(|_| large);
        let Some(prefetch) = busy.and_then(|busy| Prefetch::of(self.source, (*moved, size), busy, clock))
        else {
            return self.steps(clock, moved, STEP_BYTES, |_| None);
        };
        std::thread::scope(|scope| {
            // Also if a step panics: the scope waits for its threads.
            let _end = prefetch.ends();
            self.steps(clock, moved, prefetch::FIRST_STEP_BYTES, |at| prefetch.reached(at, scope))
        })
    }

    /// Copies in steps, the first of up to `step` bytes. `reached` is told how far it is after each, and
    /// returns the most of the next if it is not the usual one.
    fn steps(
        &mut self,
        clock: &mut Clock,
        moved: &mut u64,
        mut step: usize,
        reached: impl Fn(u64) -> Option<usize>,
    ) -> Result<bool, Fault> {
        while *moved < self.facts.size {
            if self.control.is_cancelled() {
                return Err(Fault::Cancelled);
            }
            // One byte more than there should be: a short answer at the size is the end.
            let left = usize::try_from(self.facts.size - *moved).unwrap_or(step);
            let most = self.rate.map_or(step, |rate| rate.piece().min(step));
            let want = left.saturating_add(1).min(most);
            let copy = || rustix::fs::copy_file_range(self.source, None, self.target, None, want);
            match clock.call(For::Write, copy) {
                // An early end, or a file system that returns 0 for files it cannot copy: reading shows
                // which.
                Ok(0) => break,
                Ok(copied) => {
                    self.method.offload = Means::Yes;
                    *moved += copied as u64;
                    self.tell(copied as u64);
                    self.pay(copied);
                    step = reached(*moved).unwrap_or(STEP_BYTES);
                    if copied < want && *moved == self.facts.size {
                        return Ok(true);
                    }
                }
                Err(Errno::INTR) => {}
                Err(why @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => return Err(Fault::Write(why)),
                // The error does not show which side failed, or whether the call is supported: reading and
                // writing do.
                Err(_) => break,
            }
        }
        Ok(false)
    }

    /// Reads and writes until the end or `limit`. `tail`: bytes of zeros at the end that were skipped, not
    /// written.
    fn pieces(
        &mut self,
        clock: &mut Clock,
        buffer: &mut [u8],
        limit: u64,
        moved: &mut u64,
        tail: &mut u64,
    ) -> Result<(), Fault> {
        let mut left = limit;
        // A regular file that gave exactly its size has ended, unless it grew: one byte more than the size is
        // asked for, and a short answer at the size is the end.
        let size = self.facts.size;
        let small = size > 0 && size < buffer.len() as u64 && limit == u64::MAX;
        let mut waits = self.facts.kind != rustix::fs::FileType::RegularFile;
        let mut stopped = Fault::Cancelled;
        while left > 0 {
            if self.control.is_cancelled() {
                return Err(stopped);
            }
            if waits && !is_ready(self.source, self.control) {
                return Err(stopped);
            }
            let most = self.rate.map_or(buffer.len(), |rate| rate.piece().min(buffer.len()));
            let want = left.min(most as u64) as usize;
            let room = buffer.get_mut(..want).unwrap_or_default();
            let got = match self.sample.take() {
                Some(sample) if !waits && size > 0 => sample.read(self.source, &mut *room, clock),
                _ => clock.call(For::Read, || rustix::io::read(self.source, &mut *room)),
            };
            let got = match got {
                Ok(0) => break,
                Ok(got) => got,
                Err(Errno::INTR) => continue,
                // A regular file that has nothing yet: waited for where a cancel is noticed. One that cannot
                // be polled is read again at once, and then by a call that waits.
                Err(Errno::AGAIN) if !waits => {
                    (waits, stopped) = (true, Fault::Ended);
                    continue;
                }
                Err(Errno::AGAIN) if self.facts.kind == rustix::fs::FileType::RegularFile => {
                    if crate::sys::make_waiting(self.source) {
                        continue;
                    }
                    return Err(Fault::Read(Errno::AGAIN));
                }
                // Another reader has taken the bytes.
                Err(Errno::AGAIN) => continue,
                Err(Errno::INVAL) if self.direct => {
                    self.go_direct(false);
                    continue;
                }
                Err(why) => return Err(Fault::Read(why)),
            };
            let piece = buffer.get(..got).unwrap_or_default();
            self.take_piece(clock, piece, tail)?;
            *moved += got as u64;
            left -= got as u64;
            self.tell(got as u64);
            if small && *moved == size {
                break;
            }
        }
        Ok(())
    }

    /// Waits until the limit allows `bytes`. Whether the copy was stopped meanwhile is asked afterwards.
    fn pay(&self, bytes: usize) {
        if let Some(rate) = self.rate {
            rate.take(bytes as u64, self.control);
        }
    }

    fn tell(&mut self, bytes: u64) {
        self.told.moved(&self.control.counts, bytes, self.facts.size);
    }

    /// Hashes and writes a piece, or leaves out its zeros.
    fn take_piece(&mut self, clock: &mut Clock, piece: &[u8], tail: &mut u64) -> Result<(), Fault> {
        self.pay(piece.len());
        if let Some(hasher) = &mut self.hasher {
            hasher.update(piece);
        }
        if self.sparse == Sparse::Always {
            self.skipping_zeros(clock, piece, tail)
        } else {
            self.write(clock, piece)
        }
    }

    /// Sends both sides past the page cache, or back through it. Where that is not possible, nothing changes:
    /// the calls that follow are right either way.
    fn go_direct(&mut self, direct: bool) {
        self.direct = direct;
        for fd in [self.source, self.target] {
            if let Ok(flags) = rustix::fs::fcntl_getfl(fd) {
                let mut wanted = flags;
                wanted.set(OFlags::DIRECT, direct);
                let _ = rustix::fs::fcntl_setfl(fd, wanted);
            }
        }
    }

    /// Writes all of `piece` at the target's position.
    fn write(&mut self, clock: &mut Clock, mut piece: &[u8]) -> Result<(), Fault> {
        while !piece.is_empty() {
            // A partial block at the end goes through the cache.
            let whole = piece.len() - piece.len() % ALIGNMENT;
            if self.direct && whole == 0 {
                self.go_direct(false);
            }
            let now = if self.direct { piece.get(..whole).unwrap_or_default() } else { piece };
            match clock.call(For::Write, || rustix::io::write(self.target, now)) {
                Err(Errno::INVAL) if self.direct => self.go_direct(false),
                // A regular file that accepts no bytes without an error is full.
                Ok(0) => return Err(Fault::Write(Errno::NOSPC)),
                Ok(put) => piece = piece.get(put..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if crate::sys::make_waiting(self.target) => {}
                Err(why) => return Err(Fault::Write(why)),
            }
        }
        Ok(())
    }

    fn skipping_zeros(&mut self, clock: &mut Clock, piece: &[u8], tail: &mut u64) -> Result<(), Fault> {
        let mut rest = piece;
        while !rest.is_empty() {
            let zeros =
                rest.chunks(HOLE_BYTES).take_while(|block| is_zero(block)).map(<[u8]>::len).sum::<usize>();
            let (hole, after) = rest.split_at(zeros);
            if !hole.is_empty() {
                *tail += hole.len() as u64;
                rest = after;
                continue;
            }
            let data =
                rest.chunks(HOLE_BYTES).take_while(|block| !is_zero(block)).map(<[u8]>::len).sum::<usize>();
            let (data, after) = rest.split_at(data);
            self.skip(clock, std::mem::take(tail))?;
            self.write(clock, data)?;
            rest = after;
        }
        Ok(())
    }

    fn skip(&mut self, clock: &mut Clock, bytes: u64) -> Result<(), Fault> {
        if bytes > 0 {
            let forward = SeekFrom::Current(bytes as i64);
            clock.call(For::Write, || rustix::fs::seek(self.target, forward)).map_err(Fault::Extend)?;
        }
        Ok(())
    }

    /// Sets the size where the last bytes were a hole.
    fn end(&mut self, clock: &mut Clock, bytes: u64, tail: u64) -> Result<Moved, Fault> {
        if tail > 0 {
            clock.call(For::Write, || rustix::fs::ftruncate(self.target, bytes)).map_err(Fault::Extend)?;
        }
        Ok(Moved { bytes, shared: 0, method: self.method })
    }

    /// Moves what is between the holes, and leaves holes where they were.
    fn around_holes(&mut self, clock: &mut Clock, buffer: &mut [u8]) -> Result<Moved, Fault> {
        let mut at = 0_u64;
        let mut tail = 0;
        let without = self.method.holes;
        self.method.holes = if without == Holes::Zeros { Holes::SeekAndZeros } else { Holes::Seek };
        loop {
            let data = match clock.call(For::Read, || rustix::fs::seek(self.source, SeekFrom::Data(at))) {
                Ok(data) => data,
                // Only a hole is left, if anything.
                Err(Errno::NXIO) => break,
                // This file system cannot tell: then everything is data.
                Err(Errno::INVAL | Errno::OPNOTSUPP) if at == 0 => {
                    self.method.holes = without;
                    let mut moved = 0;
                    self.pieces(clock, buffer, u64::MAX, &mut moved, &mut tail)?;
                    return self.end(clock, moved, tail);
                }
                Err(why) => return Err(Fault::Read(why)),
            };
            let hole = clock
                .call(For::Read, || rustix::fs::seek(self.source, SeekFrom::Hole(data)))
                .or_else(|why| if why == Errno::NXIO { Ok(data) } else { Err(why) })
                .map_err(Fault::Read)?;
            if hole <= data {
                break;
            }
            clock
                .call(For::Read, || rustix::fs::seek(self.source, SeekFrom::Start(data)))
                .map_err(Fault::Read)?;
            self.hash_zeros(data - at);
            self.tell(data - at);
            tail += data - at;
            if self.options.sparse == Sparse::Auto {
                self.skip(clock, std::mem::take(&mut tail))?;
            }
            let mut moved = 0;
            self.pieces(clock, buffer, hole - data, &mut moved, &mut tail)?;
            at = data + moved;
            if moved < hole - data {
                // The source shrank meanwhile; comparing the metadata will show it.
                return self.end(clock, at, tail);
            }
        }
        let size = self.facts.size.max(at);
        self.hash_zeros(size - at);
        self.end(clock, size, tail + (size - at))
    }

    fn hash_zeros(&mut self, bytes: u64) {
        static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
        let Some(hasher) = &mut self.hasher else { return };
        let mut left = bytes;
        while left > 0 {
            let some = left.min(ZEROS.len() as u64);
            hasher.update(ZEROS.get(..some as usize).unwrap_or_default());
            left -= some;
        }
    }
}

/// Waits until a FIFO, a device or a terminal has something to read, or has ended. `false`: the copy was
/// cancelled.
pub(crate) fn is_ready(source: BorrowedFd<'_>, control: &Control) -> bool {
    // A cancel wakes no thread, so the flag is polled: ten calls a second.
    let look = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    while !control.is_cancelled() {
        match poll(&mut [PollFd::new(&source, PollFlags::IN)], Some(&look)) {
            Ok(0) | Err(Errno::INTR) => {}
            // A file that cannot be polled can be read, or returns an error.
            _ => return true,
        }
    }
    false
}

fn is_zero(block: &[u8]) -> bool {
    // Sixteen bytes at a time, which the compiler turns into vector compares.
    let mut words = block.chunks_exact(16);
    words.all(|word| word == [0; 16]) && words.remainder().iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn zeroed_memory_is_of_the_size_asked_for_and_more_than_there_is_is_an_error() {
        for bytes in [0, 1, 4095, BUFFER_BYTES + ALIGNMENT] {
            // The allocator gives memory again that was used.
            drop(vec![7_u8; bytes]);
            let mut memory = zeros(bytes).unwrap();
            assert_eq!((memory.len(), memory.capacity()), (bytes, bytes));
            assert!(memory.iter().all(|byte| *byte == 0));
            // It is the vector's own: it grows, and is freed, as any other.
            memory.fill(7);
            memory.extend([8; 100]);
            assert!(memory.iter().take(bytes).all(|byte| *byte == 7));
        }
        for bytes in [usize::MAX, isize::MAX as usize] {
            assert_eq!(zeros(bytes).map_err(|why| why.kind()), Err(io::ErrorKind::OutOfMemory));
        }
    }
}
