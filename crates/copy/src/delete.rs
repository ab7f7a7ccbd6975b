//! Removes what is at the destination and not in the source (`delete`), before anything is copied.
//!
//! The trees of source and destination are gone through twice. The first walk changes nothing: it lists every
//! directory of the source and counts what would be removed. Only if all of the source could be listed, and
//! no more than `max_delete` entries would go, the second walk removes them. So a source that is not mounted
//! in part, or a wrong one, costs nothing. Directories are removed before the copy gives their parents their
//! times.
//!
//! Kept are: what `exclude` matches, copies in the making, the files of this copy (manifest, list, journal),
//! and what is mounted below the destination; and the folders that lead to these. Nothing is reached through
//! a link: each directory is opened in the one before. Start at [`delete`].

use crate::dir::{OPEN_DIRECTORY, lists_truly, os};
use crate::error::{Error, ErrorKind};
use crate::exclude::Excluded;
use crate::leftover;
use crate::operand::target_of;
use crate::options::{Dereference, Destination, Options};
use crate::plan::Facts;
use crate::report::{Control, Event, Observer, count};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Directories in one another that are gone through. Each costs two descriptors and a frame of the stack.
const DEPTH_MAX: usize = 1000;

/// Why a walk ends early. What it is about was told.
#[derive(Debug, PartialEq, Eq)]
enum Stop {
    Failed,
    TooMany,
    Cancelled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Nothing is changed.
    Count,
    Remove,
}

struct Deletion<'a> {
    options: &'a Options,
    observer: &'a dyn Observer,
    control: &'a Control,
    exclude: Option<&'a Excluded>,
    /// Files that stay, whatever the source has.
    keeps: HashSet<(u64, u64)>,
    step: Step,
    counted: u64,
    errors: u64,
}

/// Where a walk is: the directories on both sides, and their paths.
struct Place<'a> {
    source: BorrowedFd<'a>,
    target: BorrowedFd<'a>,
    source_path: PathBuf,
    target_path: PathBuf,
    /// Below the operand, for patterns.
    below: PathBuf,
    /// The device of the operand's target.
    device: u64,
    /// The device of the operand.
    source_device: u64,
    depth: usize,
}

/// A directory of the destination of which something is removed.
struct Folder<'a> {
    fd: BorrowedFd<'a>,
    path: &'a Path,
    /// Below the operand, for patterns.
    below: &'a Path,
    /// The device of the operand's target.
    device: u64,
    depth: usize,
}

/// Removes what is at the destinations of the operands and not in them. `keeps`: files that stay. What went
/// wrong is told; then nothing, or not all, was removed.
pub(crate) fn delete(
    sources: &[PathBuf],
    destination: &Destination,
    options: &Options,
    (observer, control): (&dyn Observer, &Control),
    exclude: Option<&Excluded>,
    keeps: &[&Path],
) {
    let identity = |path: &&Path| std::fs::metadata(path).ok().map(|there| (there.dev(), there.ino()));
    let mut deletion = Deletion {
        options,
        observer,
        control,
        exclude,
        keeps: keeps.iter().filter_map(identity).collect(),
        step: Step::Count,
        counted: 0,
        errors: 0,
    };
    let pairs: Vec<(PathBuf, PathBuf)> = sources
        .iter()
        .map(|source| (source.clone(), target_of(source, destination, options)))
        .filter(|(source, target)| source.is_dir() && is_target(target, destination, options))
        .collect();
    let walk = |deletion: &mut Deletion<'_>| {
        pairs.iter().try_for_each(|(source, target)| deletion.operand(source, target))
    };
    let counted = walk(&mut deletion);
    let target = || pairs.first().map(|(_, target)| target.clone()).unwrap_or_default();
    match counted {
        Err(Stop::Cancelled) => {}
        Err(Stop::TooMany) => deletion.tell(Error::plain(ErrorKind::TooManyToDelete, target())),
        _ if deletion.errors > 0 => deletion.tell(Error::plain(ErrorKind::NotDeleted, target())),
        Err(Stop::Failed) | Ok(()) => {
            if !options.dry_run {
                deletion.step = Step::Remove;
                deletion.counted = 0;
                // Errors were told, one by one.
                let _ = walk(&mut deletion);
            }
        }
    }
}

impl Deletion<'_> {
    fn tell(&mut self, error: Error) {
        self.errors += 1;
        count(&self.control.counts.errors, 1);
        self.observer.event(Event::Error(&error));
    }

    fn operand(&mut self, source: &Path, target: &Path) -> Result<(), Stop> {
        let open = |path: &Path| rustix::fs::openat(CWD, path, OPEN_DIRECTORY, Mode::empty());
        let opened = open(source).map_err(|why| (source, why));
        let opened = opened.and_then(|one| Ok((one, open(target).map_err(|why| (target, why))?)));
        let (from, to) = match opened {
            Ok(opened) => opened,
            Err((path, why)) => {
                self.tell(Error::system(ErrorKind::Access, path.to_path_buf(), why));
                return Err(Stop::Failed);
            }
        };
        let device = |fd: &OwnedFd| rustix::fs::fstat(fd).map(|stat| Facts::from(stat).identity());
        let (Ok(one), Ok(other)) = (device(&from), device(&to)) else { return Err(Stop::Failed) };
        if one == other {
            // The copy refuses it.
            return Ok(());
        }
        self.pair(&Place {
            source: from.as_fd(),
            target: to.as_fd(),
            source_path: source.to_path_buf(),
            target_path: target.to_path_buf(),
            below: PathBuf::new(),
            device: other.0,
            source_device: one.0,
            depth: 0,
        })
    }

    /// Returns the names of a directory and what each is. A link counts as what it leads to where links are
    /// followed.
    fn names(
        &mut self,
        directory: BorrowedFd<'_>,
        path: &Path,
        follow: bool,
    ) -> Option<Vec<(CString, FileType)>> {
        let mut room = Vec::with_capacity(1 << 15);
        let mut found = Vec::new();
        // A listing of its own, with its own position.
        let listing = rustix::fs::openat(directory, c".", OPEN_DIRECTORY, Mode::empty());
        let read = listing.and_then(|listing| {
            let in_doubt = !lists_truly(listing.as_fd());
            let mut entries = RawDir::new(&listing, room.spare_capacity_mut());
            while let Some(entry) = entries.next() {
                let entry = match entry {
                    Err(Errno::INTR) => continue,
                    // The directory was removed: there are no more entries in it.
                    Err(Errno::NOENT) => break,
                    entry => entry?,
                };
                let name = entry.file_name();
                if matches!(name.to_bytes(), b"." | b"..") {
                    continue;
                }
                let mut kind = entry.file_type();
                if in_doubt || kind == FileType::Unknown || (follow && kind == FileType::Symlink) {
                    let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
                    let facts = rustix::fs::statat(directory, name, flags);
                    kind = facts.map_or(kind, |stat| FileType::from_raw_mode(stat.st_mode));
                }
                found.push((name.to_owned(), kind));
            }
            Ok(())
        });
        match read {
            Ok(()) => Some(found),
            Err(why) => {
                self.tell(Error::system(ErrorKind::ReadDirectory, path.to_path_buf(), why));
                None
            }
        }
    }

    fn open(&mut self, at: BorrowedFd<'_>, name: &CStr, path: &Path, follow: bool) -> Option<OwnedFd> {
        let nofollow = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        match rustix::fs::openat(at, name, OPEN_DIRECTORY | nofollow, Mode::empty()) {
            Ok(opened) => Some(opened),
            Err(why) => {
                self.tell(Error::system(ErrorKind::Access, path.to_path_buf(), why));
                None
            }
        }
    }

    /// Compares two directories.
    fn pair(&mut self, place: &Place<'_>) -> Result<(), Stop> {
        if self.control.is_cancelled() {
            return Err(Stop::Cancelled);
        }
        if place.depth > DEPTH_MAX {
            let error = Error::system(ErrorKind::Access, place.source_path.clone(), Errno::LOOP);
            self.tell(error);
            return Err(Stop::Failed);
        }
        let follow = self.options.dereference == Dereference::Always;
        let Some(listed) = self.names(place.source, &place.source_path, follow) else { return Ok(()) };
        let source: HashMap<CString, FileType> = listed.into_iter().collect();
        let Some(target) = self.names(place.target, &place.target_path, false) else { return Ok(()) };
        let mut there = HashSet::new();
        for (name, kind) in &target {
            let below = place.below.join(os(name));
            let is_directory = *kind == FileType::Directory;
            let excluded = self.exclude.is_some_and(|patterns| patterns.excludes(&below, is_directory));
            if excluded || leftover::has_form(name) {
                there.insert(name);
                continue;
            }
            match source.get(name) {
                Some(FileType::Directory) if is_directory => {
                    there.insert(name);
                    self.children(place, name, below)?;
                }
                // A link to a directory that is used as that directory.
                Some(FileType::Directory)
                    if self.options.keep_directory_symlink && leads_to_directory(place, name) =>
                {
                    there.insert(name);
                }
                Some(FileType::Symlink) if !is_directory => {}
                // A copy would be written through a link.
                Some(source)
                    if *source != FileType::Directory && !is_directory && *kind != FileType::Symlink => {}
                // It is in the way, or is not in the source.
                _ => {
                    let folder = Folder {
                        fd: place.target,
                        path: &place.target_path,
                        below: &place.below,
                        device: place.device,
                        depth: 0,
                    };
                    self.remove(&folder, name, is_directory)?;
                }
            }
        }
        if self.step == Step::Remove {
            return Ok(());
        }
        // The whole source has to be listed, also what is new in it.
        for (name, _) in source.iter().filter(|(_, kind)| **kind == FileType::Directory) {
            let below = place.below.join(os(name));
            let excluded = self.exclude.is_some_and(|patterns| patterns.excludes(&below, true));
            if !there.contains(name) && !excluded {
                let path = place.source_path.join(os(name));
                self.can_be_listed(place.source, name, path, (below, place.source_device), place.depth + 1)?;
            }
        }
        Ok(())
    }

    /// Compares two directories of one name.
    fn children(&mut self, place: &Place<'_>, name: &CStr, below: PathBuf) -> Result<(), Stop> {
        let follow = self.options.dereference == Dereference::Always;
        let (source_path, target_path) = (place.source_path.join(os(name)), place.target_path.join(os(name)));
        let Some(source) = self.open(place.source, name, &source_path, follow) else { return Ok(()) };
        let Some(target) = self.open(place.target, name, &target_path, false) else { return Ok(()) };
        let device = |fd: &OwnedFd| rustix::fs::fstat(fd).map_or(0, |stat| Facts::from(stat).dev);
        if self.options.one_file_system
            && (device(&target) != place.device || device(&source) != place.source_device)
        {
            return Ok(());
        }
        self.pair(&Place {
            source: source.as_fd(),
            target: target.as_fd(),
            source_path,
            target_path,
            below,
            depth: place.depth + 1,
            ..*place
        })
    }

    /// Lists a directory of the source that is not at the destination, for its errors alone.
    fn can_be_listed(
        &mut self,
        at: BorrowedFd<'_>,
        name: &CStr,
        path: PathBuf,
        (below, device): (PathBuf, u64),
        depth: usize,
    ) -> Result<(), Stop> {
        if self.control.is_cancelled() {
            return Err(Stop::Cancelled);
        }
        // Links may lead in circles, which the copy finds out.
        if self.options.dereference == Dereference::Always {
            return Ok(());
        }
        if depth > DEPTH_MAX {
            self.tell(Error::system(ErrorKind::Access, path, Errno::LOOP));
            return Err(Stop::Failed);
        }
        let Some(opened) = self.open(at, name, &path, false) else { return Ok(()) };
        let here = rustix::fs::fstat(&opened).map_or(0, |stat| Facts::from(stat).dev);
        if self.options.one_file_system && here != device {
            return Ok(());
        }
        let Some(names) = self.names(opened.as_fd(), &path, false) else { return Ok(()) };
        for (name, _) in names.iter().filter(|(_, kind)| *kind == FileType::Directory) {
            let below = below.join(os(name));
            if !self.exclude.is_some_and(|patterns| patterns.excludes(&below, true)) {
                self.can_be_listed(opened.as_fd(), name, path.join(os(name)), (below, device), depth + 1)?;
            }
        }
        Ok(())
    }

    /// Counts or removes an entry of the destination with all that is in it. Returns whether it stays, or
    /// something in it.
    fn remove(&mut self, folder: &Folder<'_>, name: &CStr, is_directory: bool) -> Result<bool, Stop> {
        if self.control.is_cancelled() {
            return Err(Stop::Cancelled);
        }
        let path = folder.path.join(os(name));
        let facts = match rustix::fs::statat(folder.fd, name, AtFlags::SYMLINK_NOFOLLOW).map(Facts::from) {
            Ok(facts) => facts,
            Err(Errno::NOENT) => return Ok(false),
            Err(why) => {
                self.tell(Error::system(ErrorKind::Stat, path, why));
                return Ok(true);
            }
        };
        if self.keeps.contains(&facts.identity()) {
            return Ok(true);
        }
        if is_directory {
            let elsewhere = self.options.one_file_system && facts.dev != folder.device;
            if elsewhere || folder.depth > DEPTH_MAX {
                return Ok(true);
            }
            let Some(opened) = self.open(folder.fd, name, &path, false) else { return Ok(true) };
            if is_mounted(opened.as_fd(), folder.fd) {
                // It is told once, and is no reason to keep the rest.
                if self.step == Step::Remove || self.options.dry_run {
                    self.tell(Error::plain(ErrorKind::Mounted, path));
                }
                return Ok(true);
            }
            let Some(names) = self.names(opened.as_fd(), &path, false) else { return Ok(true) };
            let inner = Folder {
                fd: opened.as_fd(),
                path: &path,
                below: &folder.below.join(os(name)),
                device: folder.device,
                depth: folder.depth + 1,
            };
            let mut stays = false;
            for (name, kind) in &names {
                let is_directory = *kind == FileType::Directory;
                let below = inner.below.join(os(name));
                let excluded = self.exclude.is_some_and(|patterns| patterns.excludes(&below, is_directory));
                stays |= excluded || leftover::has_form(name) || self.remove(&inner, name, is_directory)?;
            }
            if stays {
                return Ok(true);
            }
        }
        if self.options.max_delete.is_some_and(|most| self.counted >= most) {
            return Err(Stop::TooMany);
        }
        self.counted += 1;
        let removed = match self.step {
            Step::Count => {
                if self.options.dry_run {
                    count(&self.control.counts.deleted, 1);
                    self.observer.event(Event::Deleted { target: &path, planned: true });
                }
                return Ok(false);
            }
            Step::Remove => {
                let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
                rustix::fs::unlinkat(folder.fd, name, flags)
            }
        };
        Ok(match removed {
            Ok(()) => {
                count(&self.control.counts.deleted, 1);
                self.observer.event(Event::Deleted { target: &path, planned: false });
                false
            }
            // Another program was faster.
            Err(Errno::NOENT) => false,
            Err(Errno::NOTEMPTY | Errno::EXIST) => true,
            Err(why) => {
                self.tell(Error::system(ErrorKind::Remove, path, why));
                true
            }
        })
    }
}

/// Returns whether a copy would be made in this directory. A link is used as the directory that it leads to
/// where that is asked for, and where it is the directory that is copied into.
fn is_target(target: &Path, destination: &Destination, options: &Options) -> bool {
    let is_into = matches!(destination, Destination::Into(directory) if directory == target);
    match options.keep_directory_symlink || is_into {
        true => target.is_dir(),
        false => target.symlink_metadata().is_ok_and(|there| there.is_dir()),
    }
}

/// Returns whether something is mounted over a directory of `folder`.
fn is_mounted(directory: BorrowedFd<'_>, folder: BorrowedFd<'_>) -> bool {
    let asked = |fd| rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
    let device = |fd| rustix::fs::fstat(fd).map(|stat| stat.st_dev);
    match asked(directory) {
        Ok(there) if there.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) => {
            there.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
        }
        // Before Linux 5.8, and where a filter refuses the call.
        _ => device(directory) != device(folder),
    }
}

fn leads_to_directory(place: &Place<'_>, name: &CStr) -> bool {
    let there = rustix::fs::statat(place.target, name, AtFlags::empty());
    there.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}
