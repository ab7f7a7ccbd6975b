//! One entry: chooses how it is copied, and copies everything except directories and regular files.
//!
//! Elsewhere: regular files (`file.rs`), the decision if the target exists (`plan.rs`), and removing or
//! renaming it (`place.rs`). Start at [`Worker::entry`].

use crate::clock::{Clock, For};
use crate::dir::{Dir, Handles, lstat, stat};
use crate::error::{Error, ErrorKind};
use crate::file::{is_only_added_to, may_be_renamed};
use crate::journal::Window;
use crate::links::{Claim, Made, Waiter};
use crate::metadata::{Finish, Named};
use crate::options::Link;
use crate::place::Room;
use crate::plan::{self, Facts, How, Side};
use crate::queue::Task;
use crate::report::{Event, Kind, Method, Skip};
use crate::worker::Worker;
use rustix::fs::{AtFlags, FileType, Mode};
use rustix::io::Errno;
use std::ffi::CStr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// One name on each side.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'e> {
    pub(crate) dir: &'e Arc<Dir>,
    pub(crate) handles: &'e Handles,
    pub(crate) source: &'e CStr,
    pub(crate) target: &'e CStr,
    /// Named by the user.
    pub(crate) operand: bool,
    /// A link is followed.
    pub(crate) follow: bool,
    /// Its type in the listing. It is no more than a hint: something may be mounted over the entry, and
    /// layered file systems tell the type of what lies below.
    pub(crate) kind: Option<FileType>,
    /// The stretch of the journal that it is in.
    pub(crate) window: Option<&'e Window>,
}

/// The result for an entry.
#[derive(Debug)]
pub(crate) enum Outcome {
    Copied {
        kind: Kind,
        bytes: u64,
        backup: Option<PathBuf>,
        hash: Option<blake3::Hash>,
        method: Option<Method>,
    },
    Skipped(Skip),
    /// The target stays, and was compared with its source.
    Kept {
        why: Skip,
        hash: Option<blake3::Hash>,
        verified: bool,
    },
    /// A directory: its scan is on the stack, and its end counts it. `new`: it was made, and nothing is in it
    /// yet.
    Descended {
        new: bool,
    },
    /// Another name of a file that is being copied: queued until the copy is complete.
    Waiting,
}

impl Outcome {
    /// Returns an entry without contents, created.
    fn without_contents(kind: Kind, backup: Option<PathBuf>) -> Outcome {
        Outcome::Copied { kind, bytes: 0, backup, hash: None, method: None }
    }
}

impl Entry<'_> {
    pub(crate) fn source_path(&self) -> PathBuf {
        self.dir.source_of(self.source)
    }

    pub(crate) fn target_path(&self) -> PathBuf {
        self.dir.target_of(self.target)
    }

    pub(crate) fn source_error(&self, kind: ErrorKind, why: Errno) -> Error {
        Error::system(kind, self.source_path(), why)
    }

    pub(crate) fn target_error(&self, kind: ErrorKind, why: Errno) -> Error {
        Error::system(kind, self.target_path(), why)
    }

    /// Returns why the target could not be made: by what was tried, or where whether it is there cannot even
    /// be asked, by that.
    pub(crate) fn not_made(&self, kind: ErrorKind, why: Errno) -> Error {
        let barred = matches!(why, Errno::ACCESS | Errno::NOTDIR)
            && lstat(self.handles.target(), self.target) == Err(why);
        let kind = if barred || matches!(why, Errno::NAMETOOLONG) { ErrorKind::Stat } else { kind };
        self.target_error(kind, why)
    }

    /// Returns the source's facts, of what it leads to where links are followed.
    pub(crate) fn source_facts(&self) -> Result<Facts, Error> {
        let look = if self.follow { stat } else { lstat };
        look(self.handles.source(), self.source).map_err(|why| self.source_error(ErrorKind::Stat, why))
    }

    /// Both facts of the source.
    pub(crate) fn source_side(&self) -> Result<Side, Error> {
        let link = lstat(self.handles.source(), self.source)
            .map_err(|why| self.source_error(ErrorKind::Stat, why))?;
        let file = if link.kind == FileType::Symlink {
            stat(self.handles.source(), self.source).ok()
        } else {
            Some(link)
        };
        Ok(Side { link, file })
    }

    /// Both facts of a target that exists. Where it is a link and `followed`, it has to lead to where one may
    /// look; where it is only to be replaced, what it leads to does not matter.
    pub(crate) fn target_side(&self, followed: bool) -> Result<Side, Error> {
        let link = lstat(self.handles.target(), self.target)
            .map_err(|why| self.target_error(ErrorKind::Stat, why))?;
        let file = if link.kind == FileType::Symlink {
            match stat(self.handles.target(), self.target) {
                Ok(file) => Some(file),
                Err(Errno::NOENT | Errno::LOOP) => None,
                Err(_) if !followed => None,
                Err(why) => return Err(self.target_error(ErrorKind::Stat, why)),
            }
        } else {
            Some(link)
        };
        Ok(Side { link, file })
    }

    /// Returns whether the target is a symbolic link in a cycle.
    pub(crate) fn target_loops(&self) -> bool {
        stat(self.handles.target(), self.target) == Err(Errno::LOOP)
    }
}

impl Worker<'_, '_> {
    /// Copies one entry of any kind.
    pub(crate) fn entry(&mut self, entry: &Entry<'_>) -> Result<Outcome, Error> {
        let options = self.run.options;
        // What is found in a directory was asked when it was listed.
        if entry.operand
            && let Some(manifest) = &self.run.manifest
            && let Some(error) = manifest.refuses(entry.dir, entry.source, entry.target)
        {
            return Err(error);
        }
        let mut replaced = None;
        if entry.kind == Some(FileType::Directory) {
            // The open requires a directory, and fails for other files without an effect on them.
            match self.descend(entry) {
                Err(error) if error.kind == ErrorKind::Replaced => replaced = Some(error),
                outcome => return outcome,
            }
        }
        // Looked at before anything is opened: opening a FIFO lets its writer go on, and opening a device may
        // do anything.
        let facts = self.clock.call(For::Open, || entry.source_facts())?;
        if facts.kind == FileType::Directory {
            if let Some(error) = replaced {
                return Err(error);
            }
            if options.list.is_some() && !entry.operand {
                // It was no directory when the list was made, and what is in it is not on the list.
                return Err(Error::plain(ErrorKind::Replaced, entry.source_path()));
            }
            return self.descend_unlisted(entry);
        }
        if let Some(outcome) = self.of_others(entry, &facts)? {
            return Ok(outcome);
        }
        match options.link {
            Link::Hard => return self.hard_link(entry, &facts),
            Link::Symbolic => return self.symbolic_link_to(entry, &facts),
            Link::No => {}
        }
        let like_a_file = !options.recursive || options.copy_contents;
        match facts.kind {
            FileType::RegularFile => self.regular(entry, &facts),
            FileType::Symlink => self.linked(entry, &facts, |worker| worker.symlink(entry, &facts)),
            _ if like_a_file => self.regular(entry, &facts),
            FileType::Fifo | FileType::Socket | FileType::CharacterDevice | FileType::BlockDevice => {
                self.linked(entry, &facts, |worker| worker.special(entry, &facts))
            }
            _ => Err(Error::plain(ErrorKind::UnknownType, entry.source_path())),
        }
    }

    /// Enters what turned out to be a directory, and is not pending as one yet.
    fn descend_unlisted(&mut self, entry: &Entry<'_>) -> Result<Outcome, Error> {
        if entry.operand {
            return self.descend(entry);
        }
        entry.dir.pending.fetch_add(1, Ordering::Relaxed);
        let outcome = self.descend(entry);
        if !matches!(outcome, Ok(Outcome::Descended { .. })) {
            // Not the last: this entry is pending, in its batch.
            entry.dir.pending.fetch_sub(1, Ordering::AcqRel);
        }
        outcome
    }

    /// Copies one of perhaps several names of a file: the first is copied by `copy`, the rest are linked to
    /// it.
    pub(crate) fn linked(
        &mut self,
        entry: &Entry<'_>,
        facts: &Facts,
        copy: impl FnOnce(&mut Self) -> Result<Outcome, Error>,
    ) -> Result<Outcome, Error> {
        // Following links, two names may lead to one file that has one name.
        let several = facts.nlink > 1 || entry.follow;
        if !self.run.options.preserve.links || !several {
            return copy(self);
        }
        let identity = facts.identity();
        // How many links lead to a file is not known before the end.
        let names = if entry.follow { u64::MAX } else { facts.nlink };
        let claim = self.run.links.claim(identity, names, || {
            entry.dir.pending.fetch_add(1, Ordering::Relaxed);
            Waiter {
                dir: Arc::clone(entry.dir),
                source: entry.source.to_owned(),
                target: entry.target.to_owned(),
                operand: entry.operand,
                follow: entry.follow,
            }
        });
        match claim {
            Claim::Wait => Ok(Outcome::Waiting),
            Claim::Link(made) => {
                let outcome = self.link_to(entry, &made);
                self.run.links.linked(identity);
                outcome
            }
            Claim::Copy => {
                let outcome = copy(self);
                let there = match &outcome {
                    Ok(Outcome::Copied { .. } | Outcome::Kept { .. }) => true,
                    Ok(Outcome::Skipped(why)) => {
                        matches!(why, Skip::Resumed | Skip::NotOlder | Skip::Exists | Skip::Same)
                    }
                    _ => false,
                };
                let made = there.then_some((entry.dir, entry.target));
                for waiter in self.run.links.resolve(identity, made) {
                    self.run.queue.push([Task::Name(waiter)]);
                }
                outcome
            }
        }
    }

    /// Another name of a file that was copied.
    fn link_to(&mut self, entry: &Entry<'_>, made: &Made) -> Result<Outcome, Error> {
        let at = made.dir.handles(&self.run.budget)?;
        let failed =
            |why| entry.target_error(ErrorKind::CreateHardLink, why).with(made.dir.target_of(&made.name));
        let link = |name: &CStr| {
            rustix::fs::linkat(at.target(), &*made.name, entry.handles.target(), name, AtFlags::empty())
        };
        match self.clock.call(For::Create, || link(entry.target)) {
            Ok(()) => {
                return Ok(Outcome::without_contents(Kind::HardLink, None));
            }
            Err(Errno::EXIST) => {}
            Err(why) => return Err(failed(why)),
        }
        let first = lstat(at.target(), &made.name).map_err(failed)?;
        let there = lstat(entry.handles.target(), entry.target)
            .map_err(|why| entry.target_error(ErrorKind::Stat, why))?;
        if there.identity() == first.identity() {
            if entry.operand && self.run.was_created(entry, first.identity()) {
                return Err(
                    Error::plain(ErrorKind::JustCreated, entry.target_path()).with(entry.source_path())
                );
            }
            return Ok(Outcome::Skipped(Skip::Resumed));
        }
        let room = match self.make_room(entry, &entry.source_side()?)? {
            Ok(room) => room,
            // That names belong together counts for more than which is younger, or that both are right.
            Err(Skip::NotOlder | Skip::Resumed) => Room::default(),
            Err(skip) => return Ok(Outcome::Skipped(skip)),
        };
        let made = match self.clock.call(For::Create, || link(entry.target)) {
            // What is there stays until the link is. Only the link itself tells whether it can be: the kernel
            // says that a name is taken before it says that the file systems differ or that a file has all
            // the names it can have.
            Err(Errno::EXIST) => self.link_over(entry, link),
            made => made,
        };
        if let Err(why) = made {
            self.undo(entry, &room);
            return Err(failed(why));
        }
        Ok(Outcome::without_contents(Kind::HardLink, room.backup_path(entry)))
    }

    /// A name that waited for its file's copy.
    pub(crate) fn waited(&mut self, waiter: Waiter) {
        let dir = Arc::clone(&waiter.dir);
        if self.run.stopped() {
            self.tally.skipped += 1;
            return self.release(dir);
        }
        match dir.handles(&self.run.budget) {
            Ok(handles) => {
                let entry = Entry {
                    dir: &dir,
                    handles: &handles,
                    source: &waiter.source,
                    target: &waiter.target,
                    operand: waiter.operand,
                    follow: waiter.follow,
                    kind: None,
                    window: None,
                };
                let outcome = self.entry(&entry);
                self.account(&entry, outcome);
            }
            Err(error) => {
                self.tally.failed += 1;
                self.tell(error);
            }
        }
        self.release(dir);
    }

    /// Copies by hard link (`--link`).
    fn hard_link(&mut self, entry: &Entry<'_>, facts: &Facts) -> Result<Outcome, Error> {
        if facts.kind == FileType::Directory {
            return Err(
                Error::plain(ErrorKind::HardLinkToDirectory, entry.target_path()).with(entry.source_path())
            );
        }
        let flags = if entry.follow { AtFlags::SYMLINK_FOLLOW } else { AtFlags::empty() };
        let (from, to) = (entry.handles.source(), entry.handles.target());
        self.make_link(entry, ErrorKind::CreateHardLink, Kind::HardLink, entry.source_path(), |name| {
            rustix::fs::linkat(from, entry.source, to, name, flags)
        })
    }

    /// Copies by symbolic link (`--symbolic-link`).
    fn symbolic_link_to(&mut self, entry: &Entry<'_>, facts: &Facts) -> Result<Outcome, Error> {
        let text = entry.source_path();
        if !text.is_absolute() && !entry.dir.is_here(entry.handles) {
            // What stays as it is, or may not be replaced, is told as that.
            if let Some((skip, _)) = self.is_kept_out(entry)? {
                return Ok(Outcome::Skipped(skip));
            }
            return Err(Error::plain(ErrorKind::RelativeSymlink, entry.target_path()));
        }
        let to = entry.handles.target();
        let said = text.clone();
        let made = self.make_link(entry, ErrorKind::CreateSymlink, Kind::Symlink, text, |name| {
            rustix::fs::symlinkat(&said, to, name)
        })?;
        // Of what it leads to such a link has the times, where they are preserved, and nothing else.
        if self.run.options.preserve.timestamps && matches!(made, Outcome::Copied { .. }) {
            self.by_name(entry, facts, |finish, clock, fail| finish.times(clock, fail))?;
        }
        Ok(made)
    }

    fn make_link(
        &mut self,
        entry: &Entry<'_>,
        failing: ErrorKind,
        kind: Kind,
        other: PathBuf,
        link: impl Fn(&CStr) -> rustix::io::Result<()>,
    ) -> Result<Outcome, Error> {
        let failed = |why| entry.not_made(failing, why).with(other.clone());
        match self.clock.call(For::Create, || link(entry.target)) {
            Ok(()) => return Ok(Outcome::without_contents(kind, None)),
            Err(Errno::EXIST) => {}
            Err(why) => return Err(failed(why)),
        }
        let source = entry.source_side()?;
        let followed = plan::follows_target(self.run.options, source.copied(entry.follow).kind);
        let target = entry.target_side(followed)?;
        let mut room = Room::default();
        let made = match self.decide(entry, &source, &target)? {
            Err(skip) => return Ok(Outcome::Skipped(skip)),
            // What is there stays until the link is.
            Ok(How::Remove) => {
                let made = self.link_over(entry, &link);
                if made.is_ok() && self.run.wants_entries {
                    self.run.observer.event(Event::Removed(&entry.target_path()));
                }
                made
            }
            // It was asked about, and is to be replaced; a question about a symbolic link changes nothing.
            Ok(how) if how != How::Backup && self.run.options.interactive && kind == Kind::HardLink => {
                self.link_over(entry, &link)
            }
            Ok(how) => {
                if how == How::Backup {
                    room = self.back_up_room(entry)?;
                }
                self.clock.call(For::Create, || link(entry.target))
            }
        };
        if let Err(why) = made {
            self.undo(entry, &room);
            return Err(failed(why));
        }
        Ok(Outcome::without_contents(kind, room.backup_path(entry)))
    }

    /// Makes a link that takes the target's name by rename: what is there stays until the link is. Where
    /// renames are refused, `remove_destination` removes it, once it is clear that the link can be made.
    fn link_over(
        &mut self,
        entry: &Entry<'_>,
        link: impl Fn(&CStr) -> rustix::io::Result<()>,
    ) -> rustix::io::Result<()> {
        let (name, to) = (self.temporary_name(), entry.handles.target());
        let remove = |name: &CStr| rustix::fs::unlinkat(to, name, AtFlags::empty());
        let replaced = self.clock.call(For::Create, || may_be_renamed(to, entry.target));
        let removes = self.run.options.remove_destination && !is_only_added_to(to);
        // What cannot be removed again is not made: there is nothing of this name, and a filter says so.
        if replaced.is_err() && !(removes && remove(&name) == Err(Errno::NOENT)) {
            return replaced;
        }
        self.clock.call(For::Create, || link(&name))?;
        let replaced = replaced.and_then(|()| {
            self.clock.call(For::Create, || rustix::fs::renameat(to, &*name, to, entry.target))
        });
        if replaced.is_err() {
            let removed = remove(&name);
            if !removes || removed.is_err() {
                return replaced;
            }
            self.clock.call(For::Create, || remove(entry.target))?;
            return self.clock.call(For::Create, || link(entry.target));
        }
        replaced
    }

    fn symlink(&mut self, entry: &Entry<'_>, facts: &Facts) -> Result<Outcome, Error> {
        let text = self
            .clock
            .call(For::Read, || rustix::fs::readlinkat(entry.handles.source(), entry.source, Vec::new()));
        let text = text.map_err(|why| match why {
            Errno::INVAL => Error::plain(ErrorKind::Replaced, entry.source_path()),
            why => entry.source_error(ErrorKind::ReadLink, why),
        })?;
        let to = entry.handles.target();
        self.node(entry, facts, ErrorKind::CreateSymlink, Kind::Symlink, |_| {
            rustix::fs::symlinkat(&*text, to, entry.target)
        })
    }

    fn special(&mut self, entry: &Entry<'_>, facts: &Facts) -> Result<Outcome, Error> {
        let fifo = facts.kind == FileType::Fifo;
        let failing = if fifo { ErrorKind::CreateFifo } else { ErrorKind::CreateSpecial };
        let device = if matches!(facts.kind, FileType::CharacterDevice | FileType::BlockDevice) {
            facts.rdev
        } else {
            0
        };
        let to = entry.handles.target();
        self.node(entry, facts, failing, Kind::Special, |mode| {
            rustix::fs::mknodat(to, entry.target, facts.kind, Mode::from_raw_mode(mode), device)
        })
    }

    /// Returns a target that is made whole by one call, and then gets its attributes by name.
    fn node(
        &mut self,
        entry: &Entry<'_>,
        facts: &Facts,
        failing: ErrorKind,
        kind: Kind,
        make: impl Fn(u32) -> rustix::io::Result<()>,
    ) -> Result<Outcome, Error> {
        let failed = |why| entry.not_made(failing, why);
        let options = self.run.options;
        let mode = crate::metadata::creation_mode(options, facts, false, true);
        let mut room = Room::default();
        match self.clock.call(For::Create, || make(mode)) {
            Ok(()) => {}
            Err(Errno::EXIST) => {
                let side = Side { link: *facts, file: entry.source_side()?.file };
                room = match self.make_room(entry, &side)? {
                    Ok(room) => room,
                    Err(skip) => return Ok(Outcome::Skipped(skip)),
                };
                if let Err(why) = self.clock.call(For::Create, || make(mode)) {
                    self.undo(entry, &room);
                    return Err(failed(why));
                }
            }
            Err(why) => return Err(failed(why)),
        }
        self.attributes_again(entry, facts)?;
        Ok(Outcome::without_contents(kind, room.backup_path(entry)))
    }

    /// Gives a target that stays its source's attributes.
    pub(crate) fn attributes_again(&mut self, entry: &Entry<'_>, facts: &Facts) -> Result<(), Error> {
        self.by_name(entry, facts, |finish, clock, fail| {
            finish.before_times(clock, fail);
            finish.times(clock, fail);
        })
    }

    /// Gives attributes to what cannot be opened, or where that would do something.
    fn by_name(
        &mut self,
        entry: &Entry<'_>,
        facts: &Facts,
        give: impl FnOnce(&Finish<'_>, &mut Clock, &mut dyn FnMut(Error)),
    ) -> Result<(), Error> {
        let options = self.run.options;
        let now =
            options.preserve.ownership.then(|| lstat(entry.handles.target(), entry.target).ok()).flatten();
        let me = self.run.me;
        // Regular files that stay come this way, too.
        let listed = options.default_modes
            && facts.kind != FileType::RegularFile
            && entry.dir.has_default_acl(entry.handles);
        let plain_mode =
            me.by_default(options, facts).filter(|_| listed).or_else(|| me.widened(options, facts));
        let finish = Finish {
            options,
            me,
            source: Named::Name(entry.handles.source(), entry.source),
            target: Named::Name(entry.handles.target(), entry.target),
            facts,
            names: None,
            owner: now.map(|now| (now.uid, now.gid)),
            mode: None,
            plain_mode,
            without_list: options.default_modes,
        };
        let mut errors = Vec::new();
        let mut fail = |error: Error| errors.push(Error { path: entry.target_path(), ..error });
        give(&finish, &mut self.clock, &mut fail);
        self.first_of(errors)
    }

    /// Of several errors of one entry the first counts for the entry; the others are reported too.
    /// Warnings are only reported.
    pub(crate) fn first_of(&mut self, errors: Vec<Error>) -> Result<(), Error> {
        let (warnings, errors): (Vec<_>, Vec<_>) = errors.into_iter().partition(Error::is_warning);
        warnings.into_iter().for_each(|warning| self.tell(warning));
        let mut errors = errors.into_iter();
        let Some(first) = errors.next() else { return Ok(()) };
        errors.for_each(|error| self.tell(error));
        Err(first)
    }
}
