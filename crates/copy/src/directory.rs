//! One directory: created or found, entered, and finished after its last change.

use crate::clock::For;
use crate::dir::{Child, Dir, Handles, OPEN_DIRECTORY, let_fill, lstat, open_to_fill};
use crate::entry::{Entry, Outcome};
use crate::error::{Error, ErrorKind};
use crate::feed::Feed;
use crate::journal::Journal;
use crate::metadata::{Finish, Named};
use crate::options::{Durability, Options};
use crate::plan::{self, Action, Facts, How, Question, Side};
use crate::queue::Task;
use crate::report::{Event, Kind, Skip};
use crate::worker::Worker;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// A directory that was to be entered.
#[derive(Debug)]
pub(crate) enum Entered {
    /// Both sides are open. `listed`: what is in it is copied. It is pending once, for that.
    Directory { child: Arc<Dir>, handles: Arc<Handles>, fresh: bool, listed: bool },
    /// It stays out.
    Not(Skip),
}

impl Worker<'_, '_> {
    /// Ends one pending task of `dir`. The last one finishes the directory, and possibly its parents.
    pub(crate) fn release(&mut self, dir: Arc<Dir>) {
        let mut dir = Some(dir);
        while let Some(this) = dir {
            // AcqRel: the worker that takes it to zero sees everything the others did in this directory.
            if this.pending.fetch_sub(1, Ordering::AcqRel) != 1 || this.parent.is_none() {
                return;
            }
            self.finish(&this);
            dir = this.parent.clone();
        }
    }

    /// Sets a directory's own attributes, after its last change.
    ///
    /// Not where the copy was stopped: a directory that is not full stays its owner's to fill, and has a time
    /// that does not say it were whole.
    fn finish(&mut self, dir: &Arc<Dir>) {
        if self.run.stopped() {
            dir.close();
            self.tally.skipped += 1;
            return;
        }
        let options = self.run.options;
        if options.part.is_some() {
            // Others may still fill it.
            dir.close();
            self.tally.copied += 1;
            self.tally.directories += 1;
            return;
        }
        let preserve = options.preserve;
        let keeps = preserve.mode || preserve.ownership || preserve.timestamps || options.resume;
        // The owner's bits that it has only to be filled.
        let narrowed = if options.default_modes { 0 } else { 0o700 & !dir.facts.mode };
        let lent = if dir.unfinished && !preserve.mode { dir.lent | narrowed } else { 0 };
        let mut errors = Vec::new();
        let syncs = options.durability == Durability::File;
        let defaults = options.default_modes && dir.unfinished;
        if keeps || defaults || lent != 0 || syncs || preserve.xattr != crate::Demand::No {
            match dir.handles(&self.run.budget) {
                Err(error) => errors.push(error),
                Ok(handles) => {
                    let now = rustix::fs::fstat(handles.target()).map(Facts::from);
                    let now = now.ok();
                    let finish = Finish {
                        options,
                        me: self.run.me,
                        source: Named::Open(handles.source()),
                        target: dir.own_target(&handles),
                        facts: &dir.facts,
                        names: None,
                        owner: now.map(|now| (now.uid, now.gid)),
                        mode: now.map(|now| now.mode),
                        plain_mode: self
                            .run
                            .me
                            .widened(options, &dir.facts)
                            .filter(|_| dir.unfinished)
                            .map(|mode| mode | inherited(now))
                            .or_else(|| {
                                // It has its default list from the directory that it was made in.
                                let listed = defaults && dir.has_default_acl(&handles);
                                let mode = self.run.me.by_default(options, &dir.facts).filter(|_| listed);
                                mode.map(|mode| mode | inherited(now))
                            })
                            .or_else(|| now.filter(|_| lent != 0).map(|now| now.mode & !lent)),
                        without_list: defaults,
                    };
                    let mut fail = |error: Error| errors.push(Error { path: dir.target_path(), ..error });
                    finish.before_times(&mut self.clock, &mut fail);
                    if options.durability == Durability::File
                        && let Err(why) = self.clock.call(For::Sync, || rustix::fs::fsync(handles.target()))
                    {
                        fail(Error::system(ErrorKind::Sync, PathBuf::new(), why));
                    }
                    finish.times(&mut self.clock, &mut fail);
                }
            }
        }
        dir.close();
        if errors.iter().all(Error::is_warning) {
            self.tally.copied += 1;
            self.tally.directories += 1;
        } else {
            self.tally.failed += 1;
        }
        errors.into_iter().for_each(|error| self.tell(error));
    }

    /// Makes or finds the copy of a directory that cannot be listed, and gives it its attributes, as GNU cp
    /// does. The caller reports the contents as an error.
    fn unlisted(&mut self, entry: &Entry<'_>) -> Result<(), Error> {
        let options = self.run.options;
        let facts = entry.source_facts()?;
        let (made, fresh) = self.target_directory(entry, &facts)?;
        if made.is_none() {
            return Ok(());
        }
        if self.run.wants_entries && fresh {
            let (source, target) = (entry.source_path(), entry.target_path());
            let kind = Kind::Directory;
            self.run.observer.event(Event::Copied {
                kind,
                source: &source,
                target: &target,
                backup: None,
                bytes: 0,
                method: None,
            });
        }
        let now = lstat(entry.handles.target(), entry.target).ok();
        let finish = Finish {
            options,
            me: self.run.me,
            source: Named::Name(entry.handles.source(), entry.source),
            target: Named::Name(entry.handles.target(), entry.target),
            facts: &facts,
            owner: now.map(|now| (now.uid, now.gid)),
            mode: None,
            plain_mode: self
                .run
                .me
                .of_directory(options, &facts)
                .map(|mode| mode | inherited(now))
                .or_else(|| {
                    // Without the mask: what it got, less what it got to be filled.
                    now.filter(|_| !options.default_modes).map(|now| now.mode & (!0o700 | facts.mode))
                })
                .filter(|_| fresh),
            without_list: false,
            names: None,
        };
        let mut errors = Vec::new();
        let mut fail = |error: Error| errors.push(Error { path: entry.target_path(), ..error });
        finish.before_times(&mut self.clock, &mut fail);
        finish.times(&mut self.clock, &mut fail);
        errors.into_iter().for_each(|error| self.tell(error));
        Ok(())
    }

    /// Enters a directory, and puts its scan on the stack, or the list that says what is copied of it.
    pub(crate) fn descend(&mut self, entry: &Entry<'_>) -> Result<Outcome, Error> {
        match self.enter(entry)? {
            Entered::Not(skip) => Ok(Outcome::Skipped(skip)),
            Entered::Directory { child, fresh, listed: false, .. } => {
                self.release(child);
                Ok(Outcome::Descended { new: fresh })
            }
            Entered::Directory { child, handles, fresh, listed: true } => {
                let selection = match entry.operand {
                    true => self.run.selection.lock().unwrap_or_else(PoisonError::into_inner).take(),
                    false => None,
                };
                let Some(selection) = selection else {
                    self.run.queue.push([Task::Scan(child, handles)]);
                    return Ok(Outcome::Descended { new: fresh });
                };
                self.begin_journal(&handles);
                self.run.queue.push([Task::Feed(Box::new(Feed::new(selection, child)))]);
                Ok(Outcome::Descended { new: fresh })
            }
        }
    }

    /// Opens the journal, now that the destination is there.
    fn begin_journal(&mut self, handles: &Handles) {
        let options = self.run.options;
        let (Some(path), Some(list)) = (&options.journal, &options.list) else { return };
        let opened = Journal::open(path, list, (options.part, options.finish), handles.target());
        match opened {
            Ok(journal) => drop(self.run.journal.set(journal)),
            Err(why) => {
                // The copy is right without it, and is what was asked for.
                let path = path.clone();
                self.tell(Error { kind: ErrorKind::Journal, path, other: None, source: Some(why) });
            }
        }
    }

    /// Opens a source directory, and makes or finds its target.
    pub(crate) fn enter(&mut self, entry: &Entry<'_>) -> Result<Entered, Error> {
        let run = self.run;
        let options = run.options;
        let Entry { dir, handles, source, target, .. } = *entry;
        if !options.recursive {
            return Err(Error::plain(ErrorKind::OmittedDirectory, entry.source_path()));
        }
        let nofollow = if entry.follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        let opened = self.clock.call(For::Open, || {
            rustix::fs::openat(handles.source(), source, OPEN_DIRECTORY | nofollow, Mode::empty())
        });
        let opened = match opened {
            Ok(opened) => opened,
            Err(Errno::LOOP | Errno::NOTDIR) if !entry.operand => {
                // It was a directory when it was listed, and is something else now.
                return Err(Error::plain(ErrorKind::Replaced, entry.source_path()));
            }
            Err(why @ Errno::NOENT) if !entry.operand => {
                return Err(entry.source_error(ErrorKind::Stat, why));
            }
            Err(why) => {
                if why == Errno::ACCESS {
                    self.unlisted(entry)?;
                }
                return Err(Error::system(ErrorKind::Access, entry.source_path(), why));
            }
        };
        let mut opened = opened;
        let facts = match rustix::fs::fstat(&opened) {
            Ok(stat) => Facts::from(stat),
            Err(why) => return Err(Error::system(ErrorKind::Stat, entry.source_path(), why)),
        };
        if dir.follow && dir.is_at_or_below(facts.identity()) {
            return Err(Error::plain(ErrorKind::CyclicLink, entry.source_path()));
        }
        if run.is_own(facts.identity()) {
            let told = self.operand_target(dir, entry);
            if !run.into_itself.lock().unwrap_or_else(PoisonError::into_inner).insert(told) {
                // Said once for each operand: the rest follows from it.
                return Ok(Entered::Not(Skip::Same));
            }
            return Err(Error::plain(ErrorKind::IntoItself, self.operand_source(dir, entry))
                .with(self.operand_target(dir, entry)));
        }
        let (made, fresh) = self.target_directory(entry, &facts)?;
        let Some(made) = made else { return Ok(Entered::Not(Skip::Exists)) };
        if entry.operand && fresh {
            // If the target is in its source, the listing must show it, or it would not be told that this
            // copies into itself. Btrfs lists what a directory had when it was opened.
            let anew = || rustix::fs::openat(&opened, c".", OPEN_DIRECTORY, Mode::empty());
            if let Ok(anew) = self.clock.call(For::Open, anew) {
                opened = anew;
            }
        }
        let denied = |why| Error::system(ErrorKind::Access, entry.target_path(), why);
        let opened_target = open_to_fill(handles.target(), &*made, keep_link(options)).map_err(denied)?;
        let there = match rustix::fs::fstat(&opened_target.0) {
            Ok(stat) => Facts::from(stat),
            Err(why) => return Err(Error::system(ErrorKind::Stat, entry.target_path(), why)),
        };
        let target_identity = there.identity();
        // Before anything is done in it, which would change its time.
        let left = !fresh && run.me.left_unfinished(options, &facts, &there, mode_to_fill(options, &facts));
        let unfinished = fresh || left;
        let lent = 0o700 & if left { run.me.umask } else { !there.mode };
        let (opened_target, target_flags) =
            if unfinished { let_fill(opened_target, there.mode) } else { opened_target };
        if target_flags.contains(OFlags::PATH) {
            // What is held by its path was not asked yet whether it may be entered, and cannot be synced.
            rustix::fs::statat(&opened_target, c".", AtFlags::empty()).map_err(denied)?;
            if options.durability != Durability::None {
                return Err(denied(Errno::ACCESS));
            }
        }
        if options.durability == Durability::End {
            run.writes_to(&opened_target, target_identity.0);
        }
        if options.resume && !fresh {
            self.remove_leftovers(opened_target.as_fd(), || entry.target_path());
        }
        if entry.operand {
            run.own.lock().unwrap_or_else(PoisonError::into_inner).insert(target_identity);
        }
        if facts.identity() == target_identity {
            return Err(Error::plain(ErrorKind::IntoItself, entry.source_path()).with(entry.target_path()));
        }
        if run.wants_entries && fresh {
            let (source, target) = (entry.source_path(), entry.target_path());
            run.observer.event(Event::Copied {
                kind: Kind::Directory,
                source: &source,
                target: &target,
                backup: None,
                bytes: 0,
                method: None,
            });
        }
        let device = if entry.operand { facts.dev } else { dir.device };
        let listed = !options.one_file_system || facts.dev == device;
        let child = Child {
            source_name: source.to_owned(),
            target_name: target.to_owned(),
            source: opened,
            target: opened_target,
            flags: (nofollow, target_flags),
            facts,
            target_identity,
            unfinished,
            lent,
            follow: options.dereference == crate::Dereference::Always,
            device,
        };
        let (child, handles) = Dir::child(dir, child, &run.budget);
        Ok(Entered::Directory { child, handles, fresh, listed })
    }

    /// Makes the target of a directory, or finds it. `None`: it stays out.
    fn target_directory(
        &mut self,
        entry: &Entry<'_>,
        facts: &Facts,
    ) -> Result<(Option<CString>, bool), Error> {
        let options = self.run.options;
        let Entry { handles, target, .. } = *entry;
        let mut mode = mode_to_fill(options, facts);
        if mode & MASKED_BY_DEFAULT != 0 && !options.default_modes && entry.dir.has_default_acl(handles) {
            // Where there is a default list the kernel leaves the umask out, and these bits go into the mask
            // of the new directory's list.
            mode &= !(self.run.me.mask() & MASKED_BY_DEFAULT);
        }
        let made = self
            .clock
            .call(For::Create, || rustix::fs::mkdirat(handles.target(), target, Mode::from_raw_mode(mode)));
        match made {
            Ok(()) => return Ok((Some(target.to_owned()), true)),
            Err(Errno::EXIST) => {}
            // Where none may be made, one that is there can be filled all the same.
            Err(_) if lstat(handles.target(), target).is_ok() => {}
            Err(why) => return Err(entry.not_made(ErrorKind::CreateDirectory, why)),
        }
        let side = entry.target_side(plan::follows_target(options, FileType::Directory))?;
        let question = Question {
            source: Side { link: *facts, file: Some(*facts) },
            target: side,
            follow: entry.follow,
            same_name: false,
            operand: entry.operand,
            just_created: false,
            differs: false,
        };
        match plan::decide(options, &question) {
            Action::Replace(How::Merge) => Ok((Some(target.to_owned()), false)),
            Action::Replace(_) => {
                Err(Error::plain(ErrorKind::OtherByDirectory, entry.target_path()).with(entry.source_path()))
            }
            Action::Skip(_) => Ok((None, false)),
            Action::Refuse(ErrorKind::SameFile) => {
                Err(Error::plain(ErrorKind::SameFile, entry.source_path()).with(entry.target_path()))
            }
            Action::Refuse(kind) => Err(Error::plain(kind, entry.target_path()).with(entry.source_path())),
        }
    }

    /// Returns the operand a source belongs to, as it was typed: for the sentence about copying into itself.
    fn operand_source(&self, dir: &Arc<Dir>, entry: &Entry<'_>) -> PathBuf {
        top(dir).map_or_else(|| entry.source_path(), Dir::source_as_typed)
    }

    fn operand_target(&self, dir: &Arc<Dir>, entry: &Entry<'_>) -> PathBuf {
        top(dir).map_or_else(|| entry.target_path(), |top| top.target_path())
    }
}

/// Returns the operand's own directory.
fn top(dir: &Arc<Dir>) -> Option<&Dir> {
    let mut this: &Dir = dir;
    while let Some(parent) = this.parent.as_deref() {
        if parent.parent.is_none() {
            return Some(this);
        }
        this = parent;
    }
    None
}

/// Returns the setgid bit that a directory was made with: it comes from the one above, and goes on to what is
/// made below.
fn inherited(now: Option<Facts>) -> u32 {
    now.map_or(0, |now| now.mode & 0o2000)
}

/// Returns the mode a directory is made with, so that it can be filled.
fn mode_to_fill(options: &Options, source: &Facts) -> u32 {
    // The sticky bit is the one special bit that mkdir(2) takes, and that a copy has without being asked.
    if options.default_modes {
        0o777 | source.mode & 0o1000
    } else if options.preserve.mode || options.preserve.ownership {
        // Its owner's alone until what is in it has its own mode.
        0o700
    } else {
        source.mode & 0o1777 | 0o700
    }
}

/// Writing by group and others: GNU cp takes it from a directory that it makes as the umask says, also where
/// the kernel does not.
const MASKED_BY_DEFAULT: u32 = 0o022;

fn keep_link(options: &Options) -> OFlags {
    if options.keep_directory_symlink { OFlags::empty() } else { OFlags::NOFOLLOW }
}
