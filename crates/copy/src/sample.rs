//! Finds out whether files are cached: by `RWF_NOWAIT` where the kernel supports it, otherwise by the time of
//! reads.
//!
//! A read with `RWF_NOWAIT` (`preadv2(2)`) fails with EAGAIN where bytes are not cached, whatever else the
//! machine does. A small file is read by one call anyway, so asking it so costs nothing ([`Sample::read`]);
//! of what is moved past us a byte is looked at, and of cached ones only now and then ([`Sample::look`]).
//! What follows from it is `choose.rs`'s part.

use crate::clock::{Clock, For};
use rustix::io::{Errno, ReadWriteFlags};
use std::io::IoSliceMut;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// Number of files sampled before a judgement.
const FILES: u32 = 16;
/// After files were found cached, only one of so many is sampled if that costs a call.
const STRIDE: u32 = 8;
/// Files count as not cached if at least one of so many was not. With fewer misses, waiting costs less than
/// rings.
const COLD_SHARE: u32 = 4;
/// Without `RWF_NOWAIT`, a read that takes longer than this counts as a disk access: cached, it takes 1 to 4
/// µs.
const COLD: Duration = Duration::from_micros(40);

/// The offset that means a descriptor's own position.
const POSITION: u64 = u64::MAX;

/// Returns whether a byte is cached; `None` if the kernel or the file system does not say.
pub(crate) fn is_cached(source: BorrowedFd<'_>, place: u64) -> Option<bool> {
    let mut byte = [0];
    match rustix::io::preadv2(source, &mut [IoSliceMut::new(&mut byte)], place, ReadWriteFlags::NOWAIT) {
        Ok(_) => Some(true),
        Err(Errno::AGAIN) => Some(false),
        Err(_) => None,
    }
}

/// The first bytes of some files: whether they were cached.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    files: u32,
    /// Files of which the kernel said that it would have to read them.
    absent: u32,
    /// Where it does not say such things: files that made us wait, and how long all of them did.
    slow: u32,
    waited: Duration,
    /// The kernel did not say it of one of these files, so it is not asked about the rest of them.
    silent: bool,
    /// The files before these were found cached.
    settled: bool,
    /// So many files may pass before the next is looked at.
    pass: u32,
}

impl Sample {
    /// Returns the first read of a file that is needed for its bytes: a read like any other, and a look.
    pub(crate) fn read(
        &mut self,
        source: BorrowedFd<'_>,
        room: &mut [u8],
        clock: &mut Clock,
    ) -> rustix::io::Result<usize> {
        if !self.silent {
            let slice = IoSliceMut::new(&mut *room);
            let at_once = || rustix::io::preadv2(source, &mut [slice], POSITION, ReadWriteFlags::NOWAIT);
            match clock.call(For::Read, at_once) {
                // An end is believed only of the plain call.
                Ok(0) => {}
                Ok(got) => {
                    self.add(Duration::ZERO);
                    return Ok(got);
                }
                Err(Errno::AGAIN) => self.miss(),
                Err(_) => self.silent = true,
            }
            return clock.call(For::Read, || rustix::io::read(source, room));
        }
        let before = Instant::now();
        let got = clock.call(For::Read, || rustix::io::read(source, room));
        self.add(before.elapsed());
        got
    }

    /// Looks at the first byte of a file that will not be read here, if it is one to be looked at.
    pub(crate) fn look(&mut self, source: BorrowedFd<'_>, clock: &mut Clock) {
        if self.pass > 0 {
            self.pass -= 1;
            return;
        }
        let slow = self.slow + self.absent;
        if !self.silent {
            match clock.call(For::Read, || is_cached(source, 0)) {
                Some(true) => self.add(Duration::ZERO),
                Some(false) => self.miss(),
                None => self.silent = true,
            }
        }
        if self.silent {
            let before = Instant::now();
            // What fails here fails again where its bytes are moved, and is told there.
            let _ = clock.call(For::Read, || rustix::io::pread(source, &mut [0; 1], 0));
            self.add(before.elapsed());
        }
        // One that is not cached makes the next ones interesting.
        if self.settled && self.slow + self.absent == slow {
            self.pass = STRIDE - 1;
        }
    }

    fn miss(&mut self) {
        self.absent += 1;
        self.add(Duration::ZERO);
    }

    fn add(&mut self, waited: Duration) {
        self.files += 1;
        self.slow += u32::from(waited > COLD);
        self.waited += waited;
    }

    /// Returns whether files wait for a disk, once there are enough of them; then others are looked at. A
    /// single one shows nothing: it may be new, and where time is all there is, another program had the CPU.
    pub(crate) fn judge(&mut self) -> Option<bool> {
        if self.files < FILES {
            return None;
        }
        let Sample { files, absent, slow, waited, .. } = *self;
        let cold = absent * COLD_SHARE >= files || (slow > 1 && waited > COLD * files);
        *self = Sample { settled: !cold, ..Sample::default() };
        Some(cold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, Write};
    use std::os::fd::AsFd;

    /// Returns what is found where the kernel does not say what is cached.
    fn timed(waits: &[u64]) -> Option<bool> {
        let mut sample = Sample::default();
        waits.iter().for_each(|wait| sample.add(Duration::from_micros(*wait)));
        sample.judge()
    }

    #[test]
    fn one_file_that_took_long_shows_nothing_and_two_do() {
        assert_eq!(timed(&[3; 15]), None, "too few");
        assert_eq!(timed(&[3; 16]), Some(false), "cached");
        assert_eq!(timed(&[150; 16]), Some(true), "each from the disk");
        let mut interrupted = [3; 16];
        interrupted[5] = 4000;
        assert_eq!(timed(&interrupted), Some(false), "a time slice of somebody else's");
        // What is read ahead beneath us: few wait, and those long.
        interrupted[11] = 4000;
        assert_eq!(timed(&interrupted), Some(true));
        let mut little = [3; 16];
        little[..2].fill(41);
        assert_eq!(timed(&little), Some(false), "little all in all");
    }

    fn written(bytes: &[u8]) -> std::io::Result<std::fs::File> {
        let mut file = tempfile::tempfile()?;
        file.write_all(bytes)?;
        file.rewind()?;
        Ok(file)
    }

    #[test]
    fn of_files_found_cached_one_in_eight_is_looked_at_and_judging_begins_anew() -> std::io::Result<()> {
        let file = written(&[7; 100_000])?;
        let (mut sample, mut clock) = (Sample::default(), Clock::new(true));
        // The sixteenth look is the last of a window; one in eight, that is at file 15 * 8 + 1.
        for files in [16, 15 * 8 + 1, 15 * 8 + 1] {
            for _ in 0..files {
                assert_eq!(sample.judge(), None, "{sample:?}");
                sample.look(file.as_fd(), &mut clock);
            }
            if sample.silent {
                eprintln!("skipped: this file system does not say what is cached");
                return Ok(());
            }
            assert_eq!(sample.judge(), Some(false), "{sample:?}");
        }
        let reads = clock.phases().into_iter().find(|phase| phase.name == "read");
        assert_eq!(reads.map(|phase| phase.calls), Some(3 * 16));
        Ok(())
    }

    #[test]
    fn a_look_while_reading_takes_the_bytes_at_the_position_and_sees_the_end() -> std::io::Result<()> {
        let file = written(b"some bytes")?;
        let (mut sample, mut clock) = (Sample::default(), Clock::new(true));
        let mut room = [0; 6];
        for expected in [&b"some b"[..], b"ytes", b""] {
            let got = sample.read(file.as_fd(), &mut room, &mut clock)?;
            assert_eq!(room.get(..got), Some(expected));
        }
        let mut silent = Sample { silent: true, ..Sample::default() };
        let again = written(b"some bytes")?;
        assert_eq!(silent.read(again.as_fd(), &mut room, &mut clock)?, 6);
        assert_eq!((silent.files, silent.absent), (1, 0), "timed, where the kernel does not say");
        Ok(())
    }
}
