//! Comparing a copy with its source, byte by byte.
//!
//! The copy is written to its disk (`fdatasync`) and its cached pages are dropped (`POSIX_FADV_DONTNEED`)
//! before it is read. So the comparison covers the way to the disk and back, as far as the file system and
//! the disk let go of their own caches. The source is read as it comes, mostly from the page cache.

use crate::clock::{Clock, For};
use crate::content::ALIGNMENT;
use crate::dir::stat;
use crate::entry::Entry;
use crate::error::{Error, ErrorKind};
use crate::file::{Broken, Opened, Place, Target};
use crate::plan::{self, Facts};
use crate::report::Control;
use crate::worker::Worker;
use rustix::fs::{Advice, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compared {
    Equal,
    Different,
    /// The copy was stopped.
    Cancelled,
}

/// What of a target is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    Whole,
    /// As much as the source has.
    Beginning,
}

impl Worker<'_, '_> {
    /// Compares a copy that has all its bytes with its source.
    pub(crate) fn verify(
        &mut self,
        entry: &Entry<'_>,
        opened: &Opened<'_>,
        target: &Target,
    ) -> Result<(), Broken> {
        let failed = |why: Errno| Broken::new(entry.target_error(ErrorKind::Read, why));
        let kind = rustix::fs::fstat(&target.fd).map(|stat| Facts::from(stat).kind).map_err(failed)?;
        if !matches!(kind, FileType::RegularFile | FileType::BlockDevice) {
            return Err(Broken::kept(Error::plain(ErrorKind::NotReadBack, entry.target_path())));
        }
        let name = match &target.place {
            Place::Temporary(name) => name,
            Place::New | Place::Existing => entry.target,
        };
        let nofollow =
            if matches!(target.place, Place::Existing) { OFlags::empty() } else { OFlags::NOFOLLOW };
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | nofollow;
        let open = |waits| rustix::fs::openat(entry.handles.target(), name, flags | waits, Mode::empty());
        let Some(opened_again) = self.open_leased(For::Open, open) else { return Err(Broken::cancelled()) };
        let again = match opened_again {
            Err(Errno::ACCESS) => as_reader(target.fd.as_fd(), || open(OFlags::NONBLOCK)),
            opened => opened,
        };
        let again = again.map_err(failed)?;
        let identity = |fd| rustix::fs::fstat(fd).map(|stat| Facts::from(stat).identity());
        if identity(again.as_fd()).map_err(failed)? != identity(target.fd.as_fd()).map_err(failed)? {
            return Err(Broken::new(Error::plain(ErrorKind::Replaced, entry.target_path())));
        }
        let as_broken = |error| Broken::new(error);
        self.drop_cached(entry, target.fd.as_fd(), again.as_fd()).map_err(as_broken)?;
        // A disk is mostly larger than what was written to its beginning.
        let extent = if kind == FileType::BlockDevice { Extent::Beginning } else { Extent::Whole };
        let compared =
            self.compare(entry, opened.fd.as_fd(), (again.as_fd(), extent), None).map_err(as_broken)?;
        match compared {
            Compared::Equal => Ok(()),
            Compared::Cancelled => Err(Broken::cancelled()),
            Compared::Different => {
                let now = rustix::fs::fstat(&opened.fd).map(Facts::from);
                if now.is_ok_and(|now| opened.facts.same_contents(&now)) {
                    let error = Error::plain(ErrorKind::Mismatch, entry.target_path());
                    return Err(Broken::new(error.with(entry.source_path())));
                }
                // The source was removed or replaced, so there is nothing to compare with.
                Err(Broken::kept(Error::plain(ErrorKind::Unverified, entry.source_path())))
            }
        }
    }

    /// Writes a file to its disk and drops what is cached of it, so that the next read asks the disk.
    /// `written` is the descriptor that errors of writing are reported to; `read` the one that will be read.
    /// Pages that the kernel keeps all the same (tmpfs, memory maps) are read from memory.
    pub(crate) fn drop_cached(
        &mut self,
        entry: &Entry<'_>,
        written: BorrowedFd<'_>,
        read: BorrowedFd<'_>,
    ) -> Result<(), Error> {
        self.clock
            .call(For::Sync, || crate::sys::sync_data(written))
            .map_err(|why| entry.target_error(ErrorKind::Sync, why))?;
        let _ = self.clock.call(For::Read, || rustix::fs::fadvise(read, 0, None, Advice::DontNeed));
        Ok(())
    }

    /// Compares two files from their beginnings, wherever the descriptors stand, and shows the bytes to
    /// `hasher`.
    pub(crate) fn compare(
        &mut self,
        entry: &Entry<'_>,
        source: BorrowedFd<'_>,
        (target, extent): (BorrowedFd<'_>, Extent),
        mut hasher: Option<&mut blake3::Hasher>,
    ) -> Result<Compared, Error> {
        let half = self.buffer.bytes().len() / 2 / ALIGNMENT * ALIGNMENT;
        let (one, other) = self.buffer.bytes().split_at_mut(half);
        let mut at = 0;
        while !self.run.control.is_cancelled() {
            let here = self.clock.call(For::Read, || read_full(source, one, at));
            let here = here.map_err(|why| entry.source_error(ErrorKind::Read, why))?;
            let room = other.get_mut(..half).unwrap_or_default();
            let there = self.clock.call(For::Read, || read_full(target, room, at));
            let there = there.map_err(|why| entry.target_error(ErrorKind::Read, why))?;
            let there = if extent == Extent::Beginning { there.min(here) } else { there };
            if here != there || one.get(..here) != room.get(..there) {
                return Ok(Compared::Different);
            }
            if let Some(hasher) = &mut hasher {
                hasher.update(one.get(..here).unwrap_or_default());
            }
            if here < half {
                return Ok(Compared::Equal);
            }
            at += here as u64;
        }
        Ok(Compared::Cancelled)
    }

    /// Returns the hash of what is at an entry's target, where that is a regular file; or behind it, where
    /// the target is a link that is written through.
    pub(crate) fn hash_target(&mut self, entry: &Entry<'_>) -> Result<Option<blake3::Hash>, Error> {
        let failed = |why| entry.target_error(ErrorKind::Read, why);
        let open = |nofollow: OFlags| {
            // A link may lead to a terminal.
            let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | nofollow;
            move |waits| {
                rustix::fs::openat(entry.handles.target(), entry.target, flags | waits, Mode::empty())
            }
        };
        // A FIFO or a device is not opened for it.
        let there = stat(entry.handles.target(), entry.target);
        if there.is_ok_and(|there| there.kind != rustix::fs::FileType::RegularFile) {
            return Ok(None);
        }
        let mut opened = self.open_leased(For::Open, open(OFlags::NOFOLLOW));
        if matches!(opened, Some(Err(Errno::LOOP)))
            && plan::follows_target(self.run.options, entry.source_facts()?.kind)
        {
            opened = self.open_leased(For::Open, open(OFlags::empty()));
        }
        // Stopped while another program held a lease on it: there will be no manifest.
        let Some(opened) = opened else { return Ok(None) };
        let fd = match opened {
            Ok(fd) => fd,
            // A link that is copied as one, a socket: nothing to hash.
            Err(Errno::LOOP | Errno::NXIO) => return Ok(None),
            Err(why) => return Err(failed(why)),
        };
        let facts = Facts::from(rustix::fs::fstat(&fd).map_err(failed)?);
        if facts.kind != rustix::fs::FileType::RegularFile {
            return Ok(None);
        }
        let mut hasher = blake3::Hasher::new();
        let (control, buffer) = (self.run.control, self.buffer.bytes());
        let whole = hash_file(fd.as_fd(), &mut hasher, control, &mut self.clock, buffer).map_err(failed)?;
        Ok(whole.then(|| hasher.finalize()))
    }
}

/// Opens a copy that its owner, this process's user, may not read. The right is given for this moment only.
fn as_reader(
    copy: BorrowedFd<'_>,
    open: impl Fn() -> rustix::io::Result<OwnedFd>,
) -> rustix::io::Result<OwnedFd> {
    let mode = Mode::from_raw_mode(rustix::fs::fstat(copy)?.st_mode & 0o7777);
    crate::sys::chmod(copy, mode | Mode::RUSR)?;
    let opened = open();
    crate::sys::chmod(copy, mode).and(opened)
}

/// Adds all bytes of a file to `hasher`, from its beginning, wherever the descriptor stands. `false`: the
/// copy was cancelled.
pub(crate) fn hash_file(
    fd: BorrowedFd<'_>,
    hasher: &mut blake3::Hasher,
    control: &Control,
    clock: &mut Clock,
    buffer: &mut [u8],
) -> rustix::io::Result<bool> {
    let mut at = 0;
    while !control.is_cancelled() {
        let got = clock.call(For::Read, || read_full(fd, buffer, at))?;
        hasher.update(buffer.get(..got).unwrap_or_default());
        if got < buffer.len() {
            return Ok(true);
        }
        at += got as u64;
    }
    Ok(false)
}

/// Fills `buffer` from `at` on, or less at the end.
fn read_full(fd: BorrowedFd<'_>, buffer: &mut [u8], at: u64) -> rustix::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        let rest = buffer.get_mut(filled..).unwrap_or_default();
        match rustix::io::pread(fd, rest, at + filled as u64) {
            Ok(0) => break,
            Ok(got) => filled += got,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if crate::sys::make_waiting(fd) => {}
            // Past the cache, a file's odd end can be read only from its last whole block on; and some file
            // systems want more than a block.
            Err(why) => {
                let flags = rustix::fs::fcntl_getfl(fd)?;
                if why != Errno::INVAL || !flags.contains(OFlags::DIRECT) {
                    return Err(why);
                }
                rustix::fs::fcntl_setfl(fd, flags.difference(OFlags::DIRECT))?;
            }
        }
    }
    Ok(filled)
}
