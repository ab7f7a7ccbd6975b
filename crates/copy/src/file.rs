//! Copies one regular file: opens it, creates the target, moves the bytes, sets attributes, and renames the
//! target if needed.
//!
//! A new file is written under its final name. An existing one is overwritten in place, as GNU cp does. With
//! `atomic` and `resume` a finished copy takes its name by rename instead, unless something about the old
//! file must stay (other names, an owner that cannot be given, attributes, a mount), must go by being
//! written (setuid bits), or the name cannot be replaced. A new file that cannot be finished is removed.
//!
//! Overwriting in place needs no right that `open(O_WRONLY | O_TRUNC)` and `write` do not need. What is tried
//! first may be refused (making the name, opening without `O_TRUNC`, setting the size); then it is done by
//! that open.

use crate::clock::For;
use crate::content::{Cloning, Fault, Moved, Transfer};
use crate::dir::{Dir, Handles, lstat};
use crate::entry::{Entry, Outcome};
use crate::error::{Error, ErrorKind};
use crate::metadata::{Finish, Me, Named, creation_mode, has_acl};
use crate::options::{Demand, Durability};
use crate::place::Room;
use crate::plan::{self, Facts, How, Side};
use crate::report::{Kind, Method, Skip};
use crate::worker::Worker;
use crate::writers::Sole;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, SeekFrom, Timespec, Timestamps, UTIME_NOW};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Flags for creating a target under a new name.
pub(crate) const CREATE: OFlags = OFlags::WRONLY
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NOCTTY);

/// How a source is opened. Not blocking: a FIFO must not hold us where a cancel does not reach us; for a
/// lease we wait ourselves (`lease.rs`). Where that makes reads of a regular file fail, they wait after that.
pub(crate) const SOURCE_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NOCTTY).union(OFlags::NONBLOCK);

/// An open source.
#[derive(Debug)]
pub(crate) struct Opened<'a> {
    pub(crate) fd: OwnedFd,
    pub(crate) facts: Facts,
    /// The bytes already read from its beginning; the file position is still 0.
    pub(crate) ahead: Option<&'a [u8]>,
    /// The names of its attributes, where they are wanted.
    pub(crate) attributes: Option<Vec<u8>>,
}

/// A target, open for writing.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) fd: OwnedFd,
    pub(crate) place: Place,
    pub(crate) room: Room,
    /// The permission bits it has, if known.
    mode: Option<u32>,
    /// The mode it shall have where the source's is not preserved.
    plain_mode: Option<u32>,
    /// Where the file has other names: no other worker writes to it meanwhile.
    _sole: Option<Sole>,
}

impl Target {
    /// Returns whether it is a file that can be on a disk, and not a device, a pipe or a terminal that was
    /// there.
    fn is_kept(&self) -> bool {
        !matches!(self.place, Place::Existing)
            || rustix::fs::fstat(&self.fd).is_ok_and(|stat| Facts::from(stat).kind == FileType::RegularFile)
    }

    /// Which file it is, as long as it is open.
    pub(crate) fn identity(&self) -> Option<(u64, u64)> {
        rustix::fs::fstat(&self.fd).ok().map(|stat| Facts::from(stat).identity())
    }
}

#[derive(Debug)]
pub(crate) enum Place {
    /// Under its name, which was free.
    New,
    /// Under this name until it is whole.
    Temporary(CString),
    /// An existing file, emptied.
    Existing,
}

impl Worker<'_, '_> {
    /// Copies the contents of a file. `known`: what was found at the name before.
    pub(crate) fn regular(&mut self, entry: &Entry<'_>, known: &Facts) -> Result<Outcome, Error> {
        if self.run.manifested.is_some()
            && let Some(outcome) = self.as_listed(entry, known)?
        {
            return self.linked(entry, known, |_| Ok(outcome));
        }
        // Opening a FIFO waits for a writer: not where there is no place for its bytes.
        let may_wait = known.kind != FileType::RegularFile;
        if (self.run.looks_first || may_wait)
            && let Some((skip, facts)) = self.skips(entry)?
        {
            if matches!(skip, Skip::NotOlder | Skip::Resumed) {
                // It is kept, and is the copy its other names are linked to; or one of them was copied
                // before, and then it becomes a name of that.
                return self.linked(entry, &facts, |worker| worker.kept(entry, skip, None));
            }
            return self.kept(entry, skip, None);
        }
        let opened = match self.open_source(entry, known) {
            Ok(Some(opened)) => opened,
            Ok(None) => return Ok(Outcome::Skipped(Skip::Stopped)),
            Err(error) => return self.not_opened(entry, error),
        };
        // Open the source before creating the target.
        let waits = opened.facts.kind != FileType::RegularFile;
        if waits && !crate::content::is_ready(opened.fd.as_fd(), self.run.control) {
            return Ok(Outcome::Skipped(Skip::Stopped));
        }
        self.opened(entry, &opened)
    }

    /// Accounts for an entry with a source that could not be opened. If it would not have been copied anyway,
    /// that says more; but what cannot be read cannot be verified.
    pub(crate) fn not_opened(&mut self, entry: &Entry<'_>, error: Error) -> Result<Outcome, Error> {
        match self.skips(entry) {
            Ok(Some(_)) if self.run.options.verify => Err(error),
            Ok(Some((skip, _))) => Ok(Outcome::Skipped(skip)),
            Err(refused) if refused.kind != ErrorKind::DanglingTarget => Err(refused),
            _ => Err(error),
        }
    }

    /// Copies a file; its source is open.
    pub(crate) fn opened(&mut self, entry: &Entry<'_>, opened: &Opened<'_>) -> Result<Outcome, Error> {
        self.linked(entry, &opened.facts, |worker| worker.contents(entry, opened))
    }

    /// Returns whether the entry stays out because of a target that is there, found without opening anything;
    /// and the source's facts. An error where it may not be replaced.
    pub(crate) fn skips(&mut self, entry: &Entry<'_>) -> Result<Option<(Skip, Facts)>, Error> {
        if self.run.options.interactive {
            // The question is asked when the target is found, once.
            return Ok(None);
        }
        self.is_kept_out(entry)
    }

    /// Returns the same, where it has to be known now: what is asked is asked here.
    pub(crate) fn is_kept_out(&mut self, entry: &Entry<'_>) -> Result<Option<(Skip, Facts)>, Error> {
        let options = self.run.options;
        let Ok(link) = lstat(entry.handles.target(), entry.target) else { return Ok(None) };
        let source = entry.source_side()?;
        let target = if link.kind == FileType::Symlink {
            entry.target_side(plan::follows_target(options, source.copied(entry.follow).kind))?
        } else {
            Side { link, file: Some(link) }
        };
        match self.decide(entry, &source, &target)? {
            Err(skip) => Ok(Some((skip, source.copied(entry.follow)))),
            Ok(_) => Ok(None),
        }
    }

    /// Opens the source. `None`: the copy was cancelled while another program held a lease on it.
    pub(crate) fn open_source(
        &mut self,
        entry: &Entry<'_>,
        known: &Facts,
    ) -> Result<Option<Opened<'static>>, Error> {
        let mut flags = SOURCE_FLAGS.difference(OFlags::NONBLOCK);
        if !entry.follow {
            flags |= OFlags::NOFOLLOW;
        }
        let fd = self.open_leased(For::Open, |waits| {
            rustix::fs::openat(entry.handles.source(), entry.source, flags | waits, Mode::empty())
        });
        let Some(fd) = fd else { return Ok(None) };
        let fd = fd.map_err(|why| self.open_error(entry, known.kind, why))?;
        let facts = self.clock.call(For::Open, || rustix::fs::fstat(&fd));
        let facts = Facts::from(facts.map_err(|why| entry.source_error(ErrorKind::Stat, why))?);
        if facts.kind != known.kind || known.identity() != facts.identity() {
            return Err(Error::plain(ErrorKind::Replaced, entry.source_path()));
        }
        let attributes = self.attributes_of(fd.as_fd());
        Ok(Some(Opened { fd, facts, ahead: None, attributes }))
    }

    /// Returns the names of a source's attributes, where they are to be preserved. What cannot be listed is
    /// listed again, and told, when attributes are set.
    pub(crate) fn attributes_of(&mut self, source: BorrowedFd<'_>) -> Option<Vec<u8>> {
        let preserve = self.run.options.preserve;
        if !preserve.mode && preserve.xattr == Demand::No {
            return None;
        }
        self.clock.call(For::Metadata, || Named::Open(source).list()).ok()
    }

    /// Returns the error for a source that could not be opened.
    pub(crate) fn open_error(&self, entry: &Entry<'_>, expected: FileType, why: Errno) -> Error {
        match why {
            Errno::LOOP if !entry.follow => Error::plain(ErrorKind::Replaced, entry.source_path()),
            Errno::NXIO if expected == FileType::RegularFile => {
                Error::plain(ErrorKind::Replaced, entry.source_path())
            }
            Errno::NOENT => entry.source_error(ErrorKind::Stat, why),
            // The directory denies access, not the file.
            Errno::ACCESS if lstat(entry.handles.source(), entry.source) == Err(why) => {
                entry.source_error(ErrorKind::Stat, why)
            }
            why => entry.source_error(ErrorKind::OpenSource, why),
        }
    }

    /// Creates the target, moves the bytes and finishes it. On failure removes the partial target.
    pub(crate) fn contents(&mut self, entry: &Entry<'_>, opened: &Opened<'_>) -> Result<Outcome, Error> {
        let target = match self.target(entry, opened)? {
            Ok(target) => target,
            Err(skip) => return self.kept(entry, skip, Some(opened)),
        };
        self.finished(entry, opened, target, None)
    }

    /// Finishes a target; its bytes were moved already.
    pub(crate) fn moved(
        &mut self,
        entry: &Entry<'_>,
        opened: &Opened<'_>,
        target: Target,
        moved: Moved,
    ) -> Result<Outcome, Error> {
        self.finished(entry, opened, target, Some(moved))
    }

    fn finished(
        &mut self,
        entry: &Entry<'_>,
        opened: &Opened<'_>,
        target: Target,
        moved: Option<Moved>,
    ) -> Result<Outcome, Error> {
        let filled = self.fill(entry, opened, &target, moved);
        let filled = filled.and_then(|filled| {
            let (lacks, waits) = self.complete(entry, opened, &filled, &target)?;
            Ok((filled, lacks, waits))
        });
        let begun = if filled.is_err() { target.identity() } else { None };
        let Target { fd, place, room, .. } = target;
        let placed = filled.and_then(|(filled, lacks, waits)| {
            self.put_in_place(entry, fd, &place)?;
            if let Some(file) = waits {
                self.mark(entry, file, &filled.facts);
            }
            // The copy is complete; a missing attribute is an error of the entry.
            lacks.map_or(Ok(filled), |error| Err(Broken { error: Some(error), keep: true }))
        });
        match placed {
            Ok(Filled { moved, hash, .. }) => {
                self.tally.bytes_shared += moved.shared;
                self.tally.verified += u64::from(self.verifies(opened));
                let backup = room.backup_path(entry);
                let method = (!self.run.options.attributes_only).then_some(moved.method);
                Ok(Outcome::Copied { kind: Kind::File, bytes: moved.bytes, backup, hash, method })
            }
            Err(Broken { error, keep }) => {
                self.abandon(entry, (&place, begun), &room, keep);
                match error {
                    Some(error) if keeps_its_name(&error) => self.in_place(entry, opened),
                    Some(error) if self.fits_in_place(entry, opened, &place, &error) => {
                        self.in_place(entry, opened)
                    }
                    Some(error) => Err(error),
                    None => Ok(Outcome::Skipped(Skip::Stopped)),
                }
            }
        }
    }

    /// Returns whether there was no room for a new file beside the one it was to replace, and there is in its
    /// stead.
    fn fits_in_place(&self, entry: &Entry<'_>, opened: &Opened<'_>, place: &Place, error: &Error) -> bool {
        if !matches!(place, Place::Temporary(_)) || !error.is_full() {
            return false;
        }
        let to = entry.handles.target();
        let (Ok(there), Ok(space)) = (lstat(to, entry.target), rustix::fs::fstatvfs(to)) else {
            return false;
        };
        // Of a quota what is free is not known, and what the old file has is all there surely is.
        let free = if error.is(Errno::DQUOT) { 0 } else { space.f_bavail.saturating_mul(space.f_frsize) };
        opened.facts.size <= free.saturating_add(there.stored)
    }

    /// Copies once more, into the file that is there: its name cannot be another's, or there is no room for
    /// two.
    fn in_place(&mut self, entry: &Entry<'_>, opened: &Opened<'_>) -> Result<Outcome, Error> {
        rustix::fs::seek(&opened.fd, SeekFrom::Start(0))
            .map_err(|why| entry.source_error(ErrorKind::Read, why))?;
        let there = entry.target_side(plan::follows_target(self.run.options, opened.facts.kind))?;
        match self.existing(entry, opened, &there, How::InPlace)? {
            Some(Ok(target)) => self.finished(entry, opened, target, None),
            Some(Err(skip)) => Ok(Outcome::Skipped(skip)),
            None => Err(create_error(entry, Errno::BUSY)),
        }
    }

    /// Moves the bytes. `done`: what was moved already.
    ///
    /// A source that changes meanwhile is copied as it was read, as GNU cp does, and observers get a warning.
    fn fill(
        &mut self,
        entry: &Entry<'_>,
        opened: &Opened<'_>,
        target: &Target,
        done: Option<Moved>,
    ) -> Result<Filled, Broken> {
        let options = self.run.options;
        let mut facts = opened.facts;
        if options.attributes_only {
            return Ok(Filled { moved: Moved::default(), hash: None, facts, changed: false });
        }
        // Each operand may be on another file system, as GNU cp has it: each is asked.
        let asked = Cloning::default();
        let cloning = if entry.operand { &asked } else { &entry.dir.cloning };
        let mut hasher = self.run.manifest.as_ref().map(|_| blake3::Hasher::new());
        let moved = match done {
            Some(moved) => moved,
            None => {
                self.begin_anew();
                let looks = self.looks && facts.kind == FileType::RegularFile && facts.size > 0;
                let transfer = Transfer {
                    options,
                    sparse: options.sparse,
                    control: self.run.control,
                    rate: self.run.rate.as_ref(),
                    told: &mut self.ahead,
                    cloning,
                    source: opened.fd.as_fd(),
                    target: target.fd.as_fd(),
                    facts,
                    ahead: opened.ahead,
                    hasher: hasher.as_mut(),
                    prefetching: (options.jobs != Some(1)).then_some(&self.run.prefetching),
                    sample: looks.then_some(&mut self.sample),
                    method: Method::default(),
                    direct: false,
                };
                let moved = transfer.run(&mut self.clock, self.buffer.bytes());
                moved.map_err(|fault| broken(entry, fault))?
            }
        };
        let hash = hasher.map(|hasher| hasher.finalize());
        if facts.kind != FileType::RegularFile {
            return Ok(Filled { moved, hash, facts, changed: false });
        }
        let later = self.clock.call(For::Read, || rustix::fs::fstat(&opened.fd));
        let later = Facts::from(later.map_err(|why| Broken::new(entry.source_error(ErrorKind::Stat, why)))?);
        let changed = !facts.same_contents(&later);
        if changed {
            self.tell(Error::plain(ErrorKind::Changed, entry.source_path()));
        }
        // What was written since may be for fewer readers.
        facts.mode &= later.mode | 0o7000;
        Ok(Filled { moved, hash, facts, changed })
    }

    /// Sets attributes, makes the copy durable if asked, and sets its times. Returns an error of the entry,
    /// and the file again where its times have to wait until its data is on the disk (`marks.rs`).
    fn complete(
        &mut self,
        entry: &Entry<'_>,
        opened: &Opened<'_>,
        filled: &Filled,
        target: &Target,
    ) -> Result<(Option<Error>, Option<OwnedFd>), Broken> {
        let options = self.run.options;
        let facts = &filled.facts;
        let owner = options.preserve.ownership.then(|| self.newborn_owner(entry, target)).flatten();
        let finish = Finish {
            options,
            me: self.run.me,
            source: Named::Open(opened.fd.as_fd()),
            target: Named::Open(target.fd.as_fd()),
            facts,
            // Where the source changed, its attributes may have, too.
            names: opened.attributes.as_deref().filter(|_| facts.unchanged(&opened.facts)),
            owner,
            mode: target.mode,
            plain_mode: target.plain_mode,
            without_list: options.default_modes,
        };
        let mut errors = Vec::new();
        let mut fail = |error: Error| errors.push(Error { path: entry.target_path(), ..error });
        finish.before_times(&mut self.clock, &mut fail);
        if self.verifies(opened) {
            self.verify(entry, opened, target)?;
        }
        if options.durability == Durability::File && target.is_kept() {
            // Try once: after a failed fsync the kernel has dropped the pages it could not write.
            self.clock
                .call(For::Sync, || rustix::fs::fsync(&target.fd))
                .map_err(|why| Broken::new(entry.target_error(ErrorKind::Sync, why)))?;
        }
        // With its source's time the next resume would skip it and not report the error again.
        let lacks = filled.changed || !errors.iter().all(Error::is_warning);
        let mut waits = None;
        if options.resume && !lacks && !self.is_synced(opened) && target.is_kept() {
            waits = rustix::io::fcntl_dupfd_cloexec(&target.fd, 0).ok();
            if waits.is_none() {
                // No descriptor is left.
                self.clock
                    .call(For::Sync, || crate::sys::sync_data(&target.fd))
                    .map_err(|why| Broken::new(entry.target_error(ErrorKind::Sync, why)))?;
            }
        }
        if !options.resume || !lacks && waits.is_none() {
            finish.times(&mut self.clock, &mut |error| {
                errors.push(Error { path: entry.target_path(), ..error })
            });
        }
        Ok((self.first_of(errors).err(), waits))
    }

    /// Returns whether the copy was synced already.
    fn is_synced(&self, opened: &Opened<'_>) -> bool {
        self.run.options.durability == Durability::File
            || self.verifies(opened)
            || opened.facts.kind != FileType::RegularFile
            || self.run.options.attributes_only
    }

    fn verifies(&self, opened: &Opened<'_>) -> bool {
        let options = self.run.options;
        options.verify && opened.facts.kind == FileType::RegularFile && !options.attributes_only
    }

    /// Closes a copy, and only then lets it replace what was there: some file systems say at the very end
    /// that they could not keep what they took.
    fn put_in_place(&mut self, entry: &Entry<'_>, fd: OwnedFd, place: &Place) -> Result<(), Broken> {
        let to = entry.handles.target();
        if let Err(why) = self.clock.call(For::Create, || crate::sys::close(fd)) {
            if let Place::Existing = place {
                // Written over: it must not have its source's time, by which it would be taken for whole.
                let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
                let times = Timestamps { last_access: now, last_modification: now };
                if let Err(why) = rustix::fs::utimensat(to, entry.target, &times, AtFlags::empty()) {
                    self.tell(entry.target_error(ErrorKind::PreserveTimes, why));
                }
            }
            return Err(Broken::new(entry.target_error(ErrorKind::Close, why)));
        }
        if let Place::Temporary(name) = place {
            self.clock
                .call(For::Create, || rustix::fs::renameat(to, &**name, to, entry.target))
                .map_err(|why| Broken::new(entry.target_error(ErrorKind::Rename, why)))?;
        }
        Ok(())
    }

    /// Returns the owner that a new file gets in this directory.
    fn newborn_owner(&mut self, entry: &Entry<'_>, target: &Target) -> Option<(u32, u32)> {
        let look = |worker: &mut Self| {
            let stat = worker.clock.call(For::Metadata, || rustix::fs::fstat(&target.fd)).ok()?;
            let facts = Facts::from(stat);
            Some((facts.uid, facts.gid))
        };
        if matches!(target.place, Place::Existing) {
            return look(self);
        }
        if let Some(owner) = entry.dir.newborn_owner.get() {
            return Some(*owner);
        }
        let owner = look(self)?;
        Some(*entry.dir.newborn_owner.get_or_init(|| owner))
    }

    /// Removes a partial target, if its name still refers to the same file: a file that another program put
    /// there meanwhile is kept.
    pub(crate) fn abandon(
        &mut self,
        entry: &Entry<'_>,
        (place, begun): (&Place, Option<(u64, u64)>),
        room: &Room,
        keep: bool,
    ) {
        let to = entry.handles.target();
        let name = match place {
            Place::New if !keep => Some(entry.target),
            Place::Temporary(name) => Some(&**name),
            Place::New | Place::Existing => None,
        };
        if keep && matches!(place, Place::New | Place::Existing) {
            return;
        }
        if let Some(name) = name {
            if let (Some(begun), Ok(there)) = (begun, lstat(to, name))
                && there.identity() != begun
            {
                return;
            }
            match rustix::fs::unlinkat(to, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(_) if matches!(place, Place::Temporary(_)) && self.take_back(to, name) => {}
                Err(why) => {
                    let error = Error::system(ErrorKind::Remove, entry.dir.target_of(name), why);
                    self.tell(error);
                }
            }
        }
        self.undo(entry, room);
    }

    /// Removes a temporary file that was given to another owner already: in a sticky directory only its owner
    /// may do that.
    fn take_back(&self, at: BorrowedFd<'_>, name: &CStr) -> bool {
        let me = Some(rustix::fs::Uid::from_raw(self.run.me.uid));
        rustix::fs::chownat(at, name, me, None, AtFlags::SYMLINK_NOFOLLOW).is_ok()
            && rustix::fs::unlinkat(at, name, AtFlags::empty()).is_ok()
    }

    /// Returns the mode a new target in `dir` is made with. Where the directory gives it a list, that has to
    /// go first.
    pub(crate) fn creation_mode(
        &self,
        dir: &Dir,
        handles: &Handles,
        source: &Facts,
        attributes: Option<&[u8]>,
    ) -> u32 {
        let options = self.run.options;
        let owner_is_right = dir.newborn_owner.get() == Some(&(source.uid, source.gid));
        // What could not be listed may be a list.
        let acl = attributes.is_none_or(has_acl) || (options.preserve.mode && dir.has_default_acl(handles));
        creation_mode(options, source, owner_is_right, acl)
    }

    /// Returns the target that was just made with `mode`.
    pub(crate) fn new_target(
        &self,
        dir: &Dir,
        handles: &Handles,
        mode: u32,
        source: &Facts,
        fd: OwnedFd,
    ) -> Target {
        let options = self.run.options;
        let acl = (options.preserve.mode || options.default_modes) && dir.has_default_acl(handles);
        let me = self.run.me;
        let plain_mode =
            me.by_default(options, source).filter(|_| acl).or_else(|| me.widened(options, source));
        let mode = self.run.me.mode_comes_out(mode, acl).then_some(mode);
        Target { fd, place: Place::New, room: Room::default(), mode, plain_mode, _sole: None }
    }

    /// Creates or opens the target.
    fn target(&mut self, entry: &Entry<'_>, opened: &Opened<'_>) -> Result<Result<Target, Skip>, Error> {
        let attributes = opened.attributes.as_deref();
        let mode = self.creation_mode(entry.dir, entry.handles, &opened.facts, attributes);
        let mut room = Room::default();
        let mut refused = Errno::EXIST;
        for _ in 0..8 {
            let made = self.clock.call(For::Create, || {
                rustix::fs::openat(entry.handles.target(), entry.target, CREATE, Mode::from_raw_mode(mode))
            });
            match made {
                Ok(fd) => {
                    let target = self.new_target(entry.dir, entry.handles, mode, &opened.facts, fd);
                    return Ok(Ok(Target { room, ..target }));
                }
                Err(Errno::EXIST) => {}
                Err(Errno::ISDIR) if entry.target.to_bytes().ends_with(b"/") => {
                    if lstat(entry.handles.target(), entry.target).is_ok() {
                        let error = Error::plain(ErrorKind::DirectoryByOther, entry.target_path());
                        return Err(error.with(entry.source_path()));
                    }
                    return Err(create_error(entry, Errno::NOTDIR));
                }
                // Where names may not be made, a file that is there may still be written.
                Err(why) => refused = why,
            }
            let target = match lstat(entry.handles.target(), entry.target) {
                Ok(link) if link.kind != FileType::Symlink => Side { link, file: Some(link) },
                Ok(_) => entry.target_side(plan::follows_target(self.run.options, opened.facts.kind))?,
                // Gone again: then it can be made.
                Err(Errno::NOENT) if refused == Errno::EXIST => continue,
                Err(_) if refused != Errno::EXIST => {
                    self.undo(entry, &room);
                    return Err(create_error(entry, refused));
                }
                Err(why) => return Err(entry.target_error(ErrorKind::Stat, why)),
            };
            let source = if entry.follow {
                let link = lstat(entry.handles.source(), entry.source).unwrap_or(opened.facts);
                Side { link, file: Some(opened.facts) }
            } else {
                Side { link: opened.facts, file: Some(opened.facts) }
            };
            match self.decide(entry, &source, &target)? {
                Err(skip) => return Ok(Err(skip)),
                Ok(How::Backup) => {
                    room = self.back_up_room(entry)?;
                }
                Ok(How::Remove) => self.remove(entry)?,
                Ok(how @ (How::Swap | How::InPlace)) => {
                    if let Some(target) = self.existing(entry, opened, &target, how)? {
                        return Ok(target);
                    }
                }
                Ok(How::Merge) => {
                    return Err(Error::plain(ErrorKind::DirectoryByOther, entry.target_path())
                        .with(entry.source_path()));
                }
            }
        }
        self.undo(entry, &room);
        Err(create_error(entry, refused))
    }

    /// Opens an existing target for writing, or a new file that will take its name. `None`: it is gone, and
    /// the target can be made anew. It is skipped where the copy was stopped while another program held a
    /// lease on it.
    fn existing(
        &mut self,
        entry: &Entry<'_>,
        opened: &Opened<'_>,
        target: &Side,
        how: How,
    ) -> Result<Option<Result<Target, Skip>>, Error> {
        let options = self.run.options;
        let to = entry.handles.target();
        let there = target.file.unwrap_or(target.link);
        let link = target.link.kind == FileType::Symlink;
        let mut flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
        if !link {
            flags |= OFlags::NOFOLLOW;
        }
        let dangling = target.file.is_none();
        if dangling && options.through_dangling {
            flags |= OFlags::CREATE;
        }
        let mode = Mode::from_raw_mode(creation_mode(options, &opened.facts, false, true));
        let regular = there.kind == FileType::RegularFile;
        let empties = regular && !dangling && !options.attributes_only;
        let open = |empty: OFlags| rustix::fs::openat(to, entry.target, flags | empty, mode);
        let open_waiting = |waits| open(if regular { waits } else { OFlags::empty() });
        let Some(fd) = self.open_leased(For::Create, open_waiting) else {
            return Ok(Some(Err(Skip::Stopped)));
        };
        let fd = match fd {
            // Some file systems let a file be opened for writing only to be emptied at once. What is opened
            // is no longer looked at before it is emptied, so it is looked at now.
            Err(why) if empties && why != Errno::NOENT => {
                let look = if link { crate::dir::stat } else { lstat };
                let now = look(to, entry.target).map(|facts| facts.identity());
                let other = there.identity() != opened.facts.identity();
                if other && now == Ok(there.identity()) { open(OFlags::TRUNC) } else { Err(why) }
            }
            fd => fd,
        };
        let mut fd = match fd {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(_) if options.force => {
                self.remove(entry)?;
                return Ok(None);
            }
            Err(why) => return Err(create_error(entry, why)),
        };
        let now = rustix::fs::fstat(&fd).map_err(|why| entry.target_error(ErrorKind::Stat, why))?;
        let now = Facts::from(now);
        if now.identity() == opened.facts.identity() && !options.attributes_only {
            // The last guard before anything is emptied, whatever was decided and however the names were
            // moved.
            return Err(Error::plain(ErrorKind::SameFile, entry.source_path()).with(entry.target_path()));
        }
        if now.identity() != there.identity() && !dangling {
            let look = if link { crate::dir::stat } else { lstat };
            let again = look(to, entry.target);
            let steady = again.is_ok_and(|again| {
                [now.identity(), there.identity()].contains(&again.identity()) || again.kind != now.kind
            });
            if steady || now.kind != there.kind {
                // Something else took the name since it was judged; it is judged anew.
                return Ok(None);
            }
            // This file system numbers its files anew at each look.
        }
        if options.durability == Durability::End && now.kind == FileType::RegularFile {
            // Behind a link, or mounted, it may be on another file system than its directory.
            self.run.writes_to(&fd, now.dev);
        }
        if how == How::Swap
            && may_swap(&now, self.run.me)
            && !entry.dir.has_default_acl(entry.handles)
            && !Named::Open(fd.as_fd()).has_attributes()
            && let Some(target) = self.swap(entry, &now)?
        {
            return Ok(Some(Ok(target)));
        }
        let mut sole = None;
        if now.kind == FileType::RegularFile && !options.attributes_only {
            if now.nlink > 1 || link {
                sole = Some(self.run.writers.alone(now.identity()));
            }
            if options.preserve.mode && now.mode & !opened.facts.mode & 0o077 != 0 {
                // A user that may read the old contents and not the source must not read the new contents.
                let narrow = Mode::from_raw_mode(now.mode & opened.facts.mode);
                let _ = crate::sys::chmod(&fd, narrow);
            }
            let emptied = self.clock.call(For::Create, || rustix::fs::ftruncate(&fd, 0));
            // Where the size may not be set, opening may do it. And a file of the kernel's that has no size
            // may have something that goes by being opened so.
            if emptied.is_err() || now.size == 0 {
                match (self.clock.call(For::Create, || open(OFlags::TRUNC)), emptied) {
                    (Ok(anew), _) if is_file(&anew, now.identity()) => fd = anew,
                    (_, Ok(())) => {}
                    (Ok(_), Err(_)) => return Ok(None),
                    (Err(_), Err(why)) => return Err(create_error(entry, why)),
                }
            }
        }
        let (place, room) = (Place::Existing, Room::default());
        Ok(Some(Ok(Target { fd, place, room, mode: None, plain_mode: None, _sole: sole })))
    }

    /// Returns a new file that will take the existing one's name, owner and mode. `None`: that is not
    /// possible here.
    fn swap(&mut self, entry: &Entry<'_>, there: &Facts) -> Result<Option<Target>, Error> {
        let options = self.run.options;
        let to = entry.handles.target();
        if may_be_renamed(to, entry.target).is_err() {
            return Ok(None);
        }
        let name = self.temporary_name();
        let made = self
            .clock
            .call(For::Create, || rustix::fs::openat(to, &*name, CREATE, Mode::from_raw_mode(0o600)));
        let Ok(fd) = made else { return Ok(None) };
        crate::leftover::lock(fd.as_fd());
        let target = Target {
            fd,
            place: Place::Temporary(name),
            room: Room::default(),
            mode: None,
            plain_mode: Some(there.mode),
            _sole: None,
        };
        if !options.preserve.ownership {
            let own = rustix::fs::fstat(&target.fd).map(Facts::from);
            let same = own.is_ok_and(|own| (own.uid, own.gid) == (there.uid, there.gid));
            // A file that was given away cannot be finished without the right to change those of others.
            let given = same
                || crate::sys::chown(&target.fd, Some(there.uid), Some(there.gid)).is_ok()
                    && crate::sys::chmod(&target.fd, Mode::RUSR | Mode::WUSR).is_ok();
            if !given {
                self.abandon(entry, (&target.place, target.identity()), &target.room, false);
                return Ok(None);
            }
        }
        Ok(Some(target))
    }
}

/// Returns whether a new file can be all that this one would be, once written. Writing takes setuid and
/// setgid bits away, but not for every user: the kernel decides. And a user that may write to a file may be
/// unable to give one to its owner.
fn may_swap(there: &Facts, me: Me) -> bool {
    there.mode & 0o6000 == 0 && (me.is_root() || me.uid == there.uid)
}

/// Returns whether a file stays under its name because the name cannot be replaced: something is mounted
/// there, as `/etc/hosts` in containers is, or what is in the directory may not be renamed, or the file
/// system cannot. Such a file can still be written.
fn keeps_its_name(error: &Error) -> bool {
    let refusals =
        [Errno::BUSY, Errno::PERM, Errno::ACCESS, Errno::NOSYS, Errno::OPNOTSUPP, Errno::INVAL, Errno::XDEV];
    error.kind == ErrorKind::Rename && refusals.iter().any(|why| error.is(*why))
}

/// Returns whether names in a directory may be replaced, as far as that can be found out without making one
/// that might then have to stay: in a directory that is only added to, and where a filter forbids renaming,
/// it would. A rename of a name to itself changes nothing, and asks filters all the same.
pub(crate) fn may_be_renamed(directory: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<()> {
    if is_only_added_to(directory) {
        return Err(Errno::PERM);
    }
    rustix::fs::renameat(directory, name, directory, name)
}

/// Returns whether names in a directory can be added and nothing else (`chattr +a`).
pub(crate) fn is_only_added_to(directory: BorrowedFd<'_>) -> bool {
    let append = rustix::fs::StatxAttributes::APPEND;
    let about = rustix::fs::statx(directory, c"", AtFlags::EMPTY_PATH, rustix::fs::StatxFlags::TYPE);
    about.is_ok_and(|about| about.stx_attributes.contains(append))
}

/// Returns whether a descriptor is of this file.
fn is_file(fd: &OwnedFd, identity: (u64, u64)) -> bool {
    rustix::fs::fstat(fd).is_ok_and(|stat| Facts::from(stat).identity() == identity)
}

/// A target that has all its bytes.
#[derive(Debug)]
struct Filled {
    moved: Moved,
    hash: Option<blake3::Hash>,
    /// The source's facts when it was opened.
    facts: Facts,
    /// Its contents changed while they were read.
    changed: bool,
}

/// The end of a copy that failed.
#[derive(Debug)]
pub(crate) struct Broken {
    /// `None`: it was cancelled.
    error: Option<Error>,
    /// The existing target is kept.
    keep: bool,
}

impl Broken {
    pub(crate) fn new(error: Error) -> Broken {
        Broken { error: Some(error), keep: false }
    }

    /// Returns an error of a copy that is kept.
    pub(crate) fn kept(error: Error) -> Broken {
        Broken { error: Some(error), keep: true }
    }

    pub(crate) fn cancelled() -> Broken {
        Broken { error: None, keep: false }
    }
}

fn broken(entry: &Entry<'_>, fault: Fault) -> Broken {
    match fault {
        Fault::Read(why) => Broken::new(entry.source_error(ErrorKind::Read, why)),
        Fault::Write(why) => Broken::new(entry.target_error(ErrorKind::Write, why)),
        Fault::Extend(why) => Broken::new(entry.target_error(ErrorKind::Extend, why)),
        Fault::Clone(why) => Broken::new(entry.target_error(ErrorKind::Clone, why).with(entry.source_path())),
        Fault::Cancelled => Broken::cancelled(),
        // What was read of it cannot be read again.
        Fault::Ended => Broken { error: None, keep: true },
    }
}

fn create_error(entry: &Entry<'_>, why: Errno) -> Error {
    let kind = if why == Errno::LOOP { ErrorKind::Stat } else { ErrorKind::Create };
    match entry.not_made(kind, why) {
        error if error.kind == ErrorKind::Create => error.with(entry.source_path()),
        error => error,
    }
}
