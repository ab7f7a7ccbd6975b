//! Progress of a file while it is copied: its bytes, as they are moved.
//!
//! INVARIANT: the shared count of bytes is that of the files that have ended, and beyond it only what was
//! told [`Ahead`]. The worker that tells ahead keeps how much, and it is taken back in the same addition that
//! counts the file, or when nothing becomes of it ([`Worker::flush`]): so the totals at the end are those of
//! the files alone.
//!
//! Small files are counted in groups when they are complete: that costs two additions and no shared access.

use crate::report::{Counts, count};
use crate::worker::Worker;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes per progress report.
const STEP_BYTES: u64 = 1 << 20;
/// Entries that are counted together.
const ENTRIES: u64 = 64;

/// The bytes reported of one file that is not complete.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    moved: u64,
    told: u64,
    size: u64,
}

impl Ahead {
    /// `bytes` more of a file of `size` are in its copy.
    #[inline]
    pub(crate) fn moved(&mut self, counts: &Counts, bytes: u64, size: u64) {
        self.moved += bytes;
        if self.moved - self.told >= STEP_BYTES {
            self.tell(counts, size);
        }
    }

    #[cold]
    fn tell(&mut self, counts: &Counts, size: u64) {
        if self.told == 0 {
            self.size = size;
            count(&counts.underway_files, 1);
            count(&counts.underway_bytes, size);
        }
        let more = self.moved - self.told;
        count(&counts.bytes, more);
        count(&counts.underway_moved, more);
        self.told = self.moved;
    }

    /// Takes note that the file has ended, or begins anew. Returns what was told of it, which is to be taken
    /// back.
    pub(crate) fn end(&mut self, counts: &Counts) -> u64 {
        let Ahead { told, size, .. } = std::mem::take(self);
        if told > 0 {
            let less = |counter: &AtomicU64, by| counter.fetch_sub(by, Ordering::Relaxed);
            less(&counts.underway_files, 1);
            less(&counts.underway_bytes, size);
            less(&counts.underway_moved, told);
        }
        told
    }
}

impl Worker<'_, '_> {
    /// What was told ahead of the file at hand counts no more: it is read again from its beginning.
    pub(crate) fn begin_anew(&mut self) {
        self.told += self.ahead.end(&self.run.control.counts);
        if self.told > 0 {
            self.flush();
        }
    }

    /// An entry was accounted for: now and then, all can see it.
    pub(crate) fn show(&mut self) {
        self.told += self.ahead.end(&self.run.control.counts);
        let tally = &self.tally;
        let entries = tally.copied + tally.skipped + tally.failed;
        if entries >= ENTRIES || tally.bytes >= STEP_BYTES || self.told > 0 {
            self.flush();
        }
    }

    /// Adds what was counted here to what all can see, and takes back what was told ahead of it.
    pub(crate) fn flush(&mut self) {
        let counts = &self.run.control.counts;
        let tally = std::mem::take(&mut self.tally);
        let told = std::mem::take(&mut self.told);
        for (counter, more) in [
            (&counts.scanned, tally.scanned),
            (&counts.copied, tally.copied),
            (&counts.skipped, tally.skipped),
            (&counts.failed, tally.failed),
            (&counts.files, tally.files),
            (&counts.directories, tally.directories),
            // Less than nothing where what was told ahead did not become a copy: the addition goes round.
            (&counts.bytes, tally.bytes.wrapping_sub(told)),
            (&counts.bytes_shared, tally.bytes_shared),
            (&counts.verified, tally.verified),
            (&counts.errors, tally.errors),
        ] {
            if more > 0 {
                count(counter, more);
            }
        }
    }

    /// A listing has come to its end, or the operands have: with the last one, everything is found.
    pub(crate) fn found(&mut self) {
        // First what it found, so that nothing is missing from the whole.
        self.flush();
        if self.run.queue.found() {
            self.run.control.scan_done.store(true, Ordering::Release);
        }
    }
}
