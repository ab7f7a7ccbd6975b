//! Targets that are kept because of `resume` or `update`: what must be read before such a target counts as a
//! copy.
//!
//! Size and time show that a target looks complete. After a crash that can be wrong: file systems may save
//! the size and the times of a file before its data, and the file then has a hole where the source has data.
//! So `resume` asks the file system for holes (`SEEK_HOLE`), which costs no read. With `verify` or a manifest
//! every byte is compared. A target that looks complete and differs is copied again. Start at
//! [`Worker::kept`].
//!
//! INVARIANT: `verified` and the manifest never cover bytes that this run did not read.

use crate::clock::For;
use crate::entry::{Entry, Outcome};
use crate::error::{Error, ErrorKind};
use crate::file::Opened;
use crate::plan;
use crate::report::Skip;
use crate::verify::{Compared, Extent};
use crate::worker::Worker;
use rustix::fs::{FileType, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

impl Worker<'_, '_> {
    /// Accounts for an entry of which the target stays because of `skip`, or copies it again where that
    /// target turns out not to be a copy. `opened`: the source, where it is open already.
    pub(crate) fn kept(
        &mut self,
        entry: &Entry<'_>,
        skip: Skip,
        opened: Option<&Opened<'_>>,
    ) -> Result<Outcome, Error> {
        let options = self.run.options;
        let certifies = options.verify || self.run.manifest.is_some();
        let checks =
            matches!(skip, Skip::Resumed | Skip::NotOlder | Skip::Exists) && !options.attributes_only;
        if !checks || !(certifies || options.resume) {
            return Ok(Outcome::Skipped(skip));
        }
        let source = match opened {
            Some(opened) => opened.facts,
            None => entry.source_side()?.copied(entry.follow),
        };
        let follows = plan::follows_target(options, source.kind);
        let side = entry.target_side(follows)?;
        let target = if follows { side.file.unwrap_or(side.link) } else { side.link };
        if source.kind != FileType::RegularFile || target.kind != FileType::RegularFile {
            return Ok(Outcome::Skipped(skip));
        }
        let looks_complete = plan::looks_complete(options, &source, &target);
        if !looks_complete && !options.verify {
            // The manifest lists what the target holds, and nothing says that it were a copy.
            return Ok(Outcome::Skipped(skip));
        }
        let there = match self.open_kept(entry, follows) {
            Some(Ok(there)) => there,
            None => return Ok(Outcome::Skipped(Skip::Stopped)),
            // Without a claim to make, size and time have to do.
            Some(Err(_)) if !certifies => return Ok(Outcome::Skipped(skip)),
            Some(Err(why)) => return Err(entry.target_error(ErrorKind::Read, why)),
        };
        if !certifies && !self.has_hole(there.as_fd(), 0, target.size) {
            return Ok(Outcome::Skipped(skip));
        }
        let own;
        let opened = match opened {
            Some(opened) => opened,
            None => match self.open_source(entry, &source)? {
                Some(source) => {
                    own = source;
                    &own
                }
                None => return Ok(Outcome::Skipped(Skip::Stopped)),
            },
        };
        if !certifies && !self.lacks_data(opened.fd.as_fd(), there.as_fd(), target.size) {
            return Ok(Outcome::Skipped(skip));
        }
        if options.verify {
            self.drop_cached(entry, there.as_fd(), there.as_fd())?;
        }
        let mut hasher = self.run.manifest.as_ref().map(|_| blake3::Hasher::new());
        match self.compare(entry, opened.fd.as_fd(), (there.as_fd(), Extent::Whole), hasher.as_mut())? {
            Compared::Cancelled => Ok(Outcome::Skipped(Skip::Stopped)),
            Compared::Equal => {
                let hash = hasher.map(|hasher| hasher.finalize());
                Ok(Outcome::Kept { why: skip, hash, verified: options.verify })
            }
            Compared::Different if looks_complete && skip != Skip::Exists => {
                drop(there);
                self.again(entry, opened)
            }
            Compared::Different => {
                Err(Error::plain(ErrorKind::KeptDiffers, entry.target_path()).with(entry.source_path()))
            }
        }
    }

    /// Copies a file again, because its target is no copy of it, whatever `resume` and `update` say.
    fn again(&mut self, entry: &Entry<'_>, opened: &Opened<'_>) -> Result<Outcome, Error> {
        // Looking for holes moved it.
        rustix::fs::seek(&opened.fd, SeekFrom::Start(0))
            .map_err(|why| entry.source_error(ErrorKind::Read, why))?;
        self.differs = true;
        let copied = self.contents(entry, opened);
        self.differs = false;
        copied
    }

    /// Opens a target for reading. `None`: the copy was stopped while another program held a lease on it.
    fn open_kept(&mut self, entry: &Entry<'_>, follows: bool) -> Option<rustix::io::Result<OwnedFd>> {
        let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
        flags.set(OFlags::NOFOLLOW, !follows);
        self.open_leased(For::Open, |waits| {
            rustix::fs::openat(entry.handles.target(), entry.target, flags | waits, Mode::empty())
        })
    }

    /// Returns whether there is a hole between `from` and `to`. File systems that cannot tell report data.
    fn has_hole(&mut self, file: BorrowedFd<'_>, from: u64, to: u64) -> bool {
        from < to
            && self
                .clock
                .call(For::Read, || rustix::fs::seek(file, SeekFrom::Hole(from)))
                .is_ok_and(|hole| hole < to)
    }

    /// Returns whether `target` has a hole where `source` has data.
    fn lacks_data(&mut self, source: BorrowedFd<'_>, target: BorrowedFd<'_>, size: u64) -> bool {
        let mut at = 0;
        while at < size {
            let data = match self.clock.call(For::Read, || rustix::fs::seek(source, SeekFrom::Data(at))) {
                Ok(data) => data,
                // Only a hole is left.
                Err(Errno::NXIO) => return false,
                // Unknown: compare the bytes.
                Err(_) => return true,
            };
            let hole = self.clock.call(For::Read, || rustix::fs::seek(source, SeekFrom::Hole(data)));
            let hole = hole.unwrap_or(size).min(size);
            if self.has_hole(target, data, hole) {
                return true;
            }
            at = hole.max(data + 1);
        }
        false
    }
}
