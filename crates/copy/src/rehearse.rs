//! A dry run: reports what a copy would do, by the same rules, and changes nothing.
//!
//! INVARIANT: nothing here creates, writes, renames or removes. So this is a separate walk instead of a flag
//! in the copying code. The decisions are those of `plan.rs`. Failures during a copy are not predicted: a
//! disk that fills up or fails, a file that changes. Start at [`rehearse`].

use crate::delete::delete;
use crate::error::{Error, ErrorKind, Refusal};
use crate::exclude::Excluded;
use crate::feed::{self, list_error};
use crate::known::{self, AsListed, Manifested};
use crate::listing::{self, path_of};
use crate::operand::{before, stripped, target_of};
use crate::options::{BackupKind, Dereference, Destination, Link, Options};
use crate::plan::{self, Action, Facts, How, Question, Side};
use crate::report::{Choice, Control, Event, Kind, Observer, Report, Skip, count};
use crate::run::{own_files, root_of};
use crate::sys;
use rustix::fs::{Access, FileType};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Reports what `copy` would do with the same arguments.
pub(crate) fn rehearse(
    sources: &[PathBuf],
    destination: &Destination,
    options: &Options,
    observer: &dyn Observer,
    control: &Control,
    choice: Choice,
) -> Result<Report, Refusal> {
    let started = Instant::now();
    observer.event(Event::Start(&choice));
    let exclude = Excluded::by(&options.exclude)?;
    let selection = feed::selection(options).map_err(Refusal::List)?;
    let manifested = options.update_from_manifest.as_deref().map(Manifested::open);
    let manifested = manifested.transpose().map_err(Refusal::List)?;
    if options.delete {
        let keeps: Vec<&Path> = own_files(sources, options).collect();
        delete(sources, destination, options, (observer, control), exclude.as_ref(), &keeps);
    }
    let mut rehearsal = Rehearsal {
        options,
        observer,
        control,
        exclude,
        linked: HashSet::new(),
        operands: HashSet::new(),
        made: HashSet::new(),
        waiting: Vec::new(),
        manifested,
        manifest_root: root_of(sources, destination),
        by_list: selection.is_some(),
        folders: HashSet::new(),
        root: None,
    };
    let mut selection = selection;
    for source in sources {
        if control.is_cancelled() {
            break;
        }
        rehearsal.operand(source, destination);
        while let Some(next) = rehearsal.waiting.pop() {
            if control.is_cancelled() {
                count(&control.counts.scanned, 1);
                rehearsal.skipped(&next, Skip::Stopped);
                continue;
            }
            rehearsal.entry(&next);
        }
        if let Some(selection) = selection.take() {
            rehearsal.listed(selection);
        }
    }
    control.scan_done.store(true, Ordering::Release);
    Ok(Report {
        totals: control.totals(),
        choice,
        elapsed: started.elapsed(),
        workers: 1,
        phases: Vec::new(),
        full: false,
        missing: Vec::new(),
        cancelled: control.is_cancelled(),
        mismatches: 0,
    })
}

/// One name on each side.
#[derive(Clone, Debug)]
struct Name {
    source: PathBuf,
    target: PathBuf,
    /// Below the operand; empty for the operand itself.
    below: PathBuf,
    follow: bool,
    /// The operand's device.
    device: u64,
    /// Whether the directory of the target is there now.
    can_exist: bool,
}

struct Rehearsal<'a> {
    options: &'a Options,
    observer: &'a dyn Observer,
    control: &'a Control,
    exclude: Option<Excluded>,
    /// Files with several names of which one was met.
    linked: HashSet<(u64, u64)>,
    /// Operands that were met, and the names they get.
    operands: HashSet<((u64, u64), PathBuf)>,
    /// Targets of earlier operands.
    made: HashSet<PathBuf>,
    /// Entries of directories; the last is the next.
    waiting: Vec<Name>,
    manifested: Option<Manifested>,
    manifest_root: PathBuf,
    /// A list says what is in directories.
    by_list: bool,
    /// Directories of the list that were met.
    folders: HashSet<PathBuf>,
    /// The operand, below which the list's paths are.
    root: Option<Name>,
}

impl Rehearsal<'_> {
    fn operand(&mut self, source: &Path, destination: &Destination) {
        let source =
            if self.options.strip_trailing_slashes { stripped(source) } else { source.to_path_buf() };
        let target = target_of(&source, destination, self.options);
        let follow = self.options.dereference != Dereference::Never;
        let name = Name { source, target, below: PathBuf::new(), follow, device: 0, can_exist: true };
        let Some(facts) = self.facts(&name) else { return };
        let directory = facts.kind == FileType::Directory;
        let repeated = !self.operands.insert((facts.identity(), name.target.clone()));
        if repeated && (directory || self.options.backup.is_none()) {
            let kind = if directory { ErrorKind::DirectoryTwice } else { ErrorKind::SourceTwice };
            self.tell(Error::plain(kind, name.source.clone()));
            return self.skipped(&name, Skip::Twice);
        }
        let numbered = self.options.backup.as_ref().is_some_and(|backup| backup.kind == BackupKind::Numbered);
        if !directory && !numbered && self.made.contains(&name.target) {
            let error = Error::plain(ErrorKind::JustCreated, name.target.clone());
            return self.failed(error.with(name.source.clone()));
        }
        self.made.insert(name.target.clone());
        if self.by_list {
            self.root = Some(Name { device: facts.dev, ..name.clone() });
        }
        self.decide(Name { device: facts.dev, ..name }, facts);
    }

    /// Goes through a list: each entry, and the directories on the way to it.
    fn listed(&mut self, selection: feed::Selection) {
        let Some(root) = self.root.clone() else { return };
        let follow = self.options.dereference == Dereference::Always;
        let hashed = !matches!(selection, feed::Selection::List(..));
        // Directories that were named, and are gone through with all that is in them.
        let mut covered: HashSet<PathBuf> = HashSet::new();
        for record in feed::records(selection) {
            let record = match record {
                Ok(record) => record,
                Err(why) => return self.tell(list_error(why)),
            };
            if self.control.is_cancelled() {
                return;
            }
            let at = |below: &Path| Name {
                source: root.source.join(below),
                target: root.target.join(below),
                below: below.to_path_buf(),
                follow,
                device: root.device,
                can_exist: root.target.join(below).parent().is_some_and(Path::exists),
            };
            let path = path_of(&record.path);
            let ways: Vec<&Path> = path.ancestors().skip(1).collect();
            if ways.iter().any(|way| covered.contains(*way) || self.excluded_folders(way)) {
                continue;
            }
            if hashed && at(path).source.is_dir() && (follow || !at(path).source.is_symlink()) {
                covered.insert(path.to_path_buf());
            }
            let meet = |this: &mut Self, way: &Path, whole: bool| {
                let name = at(way);
                if whole || this.folders.insert(way.to_path_buf()) {
                    this.by_list = !whole;
                    this.waiting.push(name);
                    while let Some(next) = this.waiting.pop() {
                        this.entry(&next);
                    }
                    this.by_list = true;
                }
            };
            for way in ways.iter().rev().filter(|way| !way.as_os_str().is_empty()) {
                meet(self, way, false);
            }
            if record.kind == listing::Kind::Directory {
                meet(self, path, false);
            } else if !path.as_os_str().is_empty() {
                meet(self, path, hashed);
            } else if let Ok(facts) = rustix::fs::stat(&root.source).map(Facts::from) {
                self.by_list = false;
                self.descend(root.clone(), &facts, root.target.exists());
                while let Some(next) = self.waiting.pop() {
                    self.entry(&next);
                }
                self.by_list = true;
            }
        }
    }

    /// Returns whether a directory on the way is excluded, which was told when it was met.
    fn excluded_folders(&self, way: &Path) -> bool {
        self.folders.contains(way)
            && self.exclude.as_ref().is_some_and(|patterns| patterns.excludes(way, true))
    }

    /// Returns whether a file is as the manifest of the destination has it. What is not sure is read in the
    /// source.
    fn is_as_listed(&self, name: &Name, facts: &Facts) -> Result<bool, Error> {
        let (Some(manifested), Ok(target)) = (&self.manifested, rustix::fs::lstat(&name.target)) else {
            return Ok(false);
        };
        let path = name.target.strip_prefix(&self.manifest_root).unwrap_or(&name.target);
        let failed =
            |kind, path: &Path, why| Error { kind, path: path.to_path_buf(), other: None, source: Some(why) };
        let found = manifested.find(path.as_os_str().as_bytes());
        let found = found.map_err(|why| failed(ErrorKind::List, path, why))?;
        let Some(known) = found else { return Ok(false) };
        Ok(match known::compare(&known, facts, &Facts::from(target)) {
            AsListed::Yes => true,
            AsListed::No => false,
            AsListed::PerhapsByHash => {
                let mut hasher = blake3::Hasher::new();
                let read =
                    std::fs::File::open(&name.source).and_then(|file| hasher.update_reader(file).map(drop));
                read.map_err(|why| failed(ErrorKind::Read, &name.source, why))?;
                hasher.finalize() == known.hash
            }
        })
    }

    fn entry(&mut self, name: &Name) {
        let Some(facts) = self.facts(name) else { return };
        let excluded = self
            .exclude
            .as_ref()
            .is_some_and(|patterns| patterns.excludes(&name.below, facts.kind == FileType::Directory));
        if excluded {
            return self.skipped(name, Skip::Excluded);
        }
        if self.is_of_others(&name.below, &facts) {
            return self.skipped(name, Skip::OfAnotherPart);
        }
        let Name { source, target, below, .. } = name;
        let name = Name { source: source.clone(), target: target.clone(), below: below.clone(), ..*name };
        self.decide(name, facts);
    }

    /// Returns whether an entry is left to another part, or to the last pass.
    fn is_of_others(&self, below: &Path, facts: &Facts) -> bool {
        let Some(part) = self.options.part.filter(|_| facts.kind != FileType::Directory) else {
            return false;
        };
        (self.options.list.is_none() && !part.has(below)) || (self.options.preserve.links && facts.nlink > 1)
    }

    /// Counts an entry and looks at it. `None`: it cannot be looked at, which is told.
    fn facts(&mut self, name: &Name) -> Option<Facts> {
        count(&self.control.counts.scanned, 1);
        let look = if name.follow { rustix::fs::stat } else { rustix::fs::lstat };
        match look(&name.source) {
            Ok(stat) => Some(Facts::from(stat)),
            Err(why) => {
                self.failed(Error::system(ErrorKind::Stat, name.source.clone(), why));
                None
            }
        }
    }

    fn decide(&mut self, name: Name, facts: Facts) {
        let options = self.options;
        let directory = facts.kind == FileType::Directory;
        if directory && !options.recursive {
            return self.failed(Error::plain(ErrorKind::OmittedDirectory, name.source));
        }
        if directory && name.below.as_os_str().is_empty() && lies_in(&name.target, &name.source) {
            return self.failed(Error::plain(ErrorKind::IntoItself, name.source).with(name.target));
        }
        match self.is_as_listed(&name, &facts) {
            Ok(true) => return self.skipped(&name, Skip::Listed),
            Ok(false) => {}
            Err(error) => return self.failed(error),
        }
        let replaces = match self.target_of(&name, &facts) {
            Ok(None) => false,
            Ok(Some(target)) => match self.action(&name, &facts, target) {
                Action::Skip(why) => return self.skipped(&name, why),
                // Deletion removes what is in the way.
                Action::Refuse(
                    ErrorKind::DirectoryByOther | ErrorKind::OtherByDirectory | ErrorKind::DanglingTarget,
                ) if options.delete => false,
                Action::Refuse(kind @ (ErrorKind::SameFile | ErrorKind::HardLinkToDirectory)) => {
                    return self.failed(Error::plain(kind, name.source).with(name.target));
                }
                Action::Refuse(kind) => {
                    return self.failed(Error::plain(kind, name.target).with(name.source));
                }
                Action::Replace(How::Merge) => {
                    count(&self.control.counts.copied, 1);
                    count(&self.control.counts.directories, 1);
                    return self.descend(name, &facts, true);
                }
                Action::Replace(_) => true,
            },
            Err(why) => return self.failed(Error::system(ErrorKind::Stat, name.target, why)),
        };
        if let Err(error) = self.is_permitted(&name, &facts, replaces) {
            return self.failed(error);
        }
        let several = options.preserve.links && facts.nlink > 1 && !directory;
        let linked = options.link == Link::Hard || (several && !self.linked.insert(facts.identity()));
        let kind = match facts.kind {
            FileType::Directory => Kind::Directory,
            _ if linked => Kind::HardLink,
            _ if options.link == Link::Symbolic => Kind::Symlink,
            FileType::RegularFile => Kind::File,
            FileType::Symlink => Kind::Symlink,
            _ => Kind::Special,
        };
        let bytes = if kind == Kind::File && !options.attributes_only { facts.size } else { 0 };
        let counts = &self.control.counts;
        count(&counts.copied, 1);
        count(&counts.files, u64::from(kind == Kind::File));
        count(&counts.directories, u64::from(directory));
        count(&counts.bytes, bytes);
        let Name { source, target, .. } = &name;
        self.observer.event(Event::Planned { kind, source, target, replaces, bytes });
        if directory {
            self.descend(name, &facts, false);
        }
    }

    /// Returns the target, if it is there.
    fn target_of(&self, name: &Name, source: &Facts) -> rustix::io::Result<Option<Side>> {
        if !name.can_exist {
            return Ok(None);
        }
        let link = match rustix::fs::lstat(&name.target) {
            Ok(stat) => Facts::from(stat),
            Err(Errno::NOENT) => return Ok(None),
            Err(why) => return Err(why),
        };
        let followed = plan::follows_target(self.options, source.kind);
        let file = match link.kind {
            FileType::Symlink => match rustix::fs::stat(&name.target) {
                Ok(stat) => Some(Facts::from(stat)),
                Err(Errno::NOENT | Errno::LOOP) => None,
                Err(_) if !followed => None,
                Err(why) => return Err(why),
            },
            _ => Some(link),
        };
        Ok(Some(Side { link, file }))
    }

    fn action(&self, name: &Name, facts: &Facts, target: Side) -> Action {
        let link = rustix::fs::lstat(&name.source).map_or(*facts, Facts::from);
        let file = if link.kind == FileType::Symlink {
            rustix::fs::stat(&name.source).ok().map(Facts::from)
        } else {
            Some(link)
        };
        let same_name = link.identity() == target.link.identity()
            && name.source.file_name() == name.target.file_name()
            && same_folder(&name.source, &name.target);
        let question = Question {
            source: Side { link, file },
            target,
            follow: name.follow,
            same_name,
            operand: name.below.as_os_str().is_empty(),
            just_created: false,
            differs: false,
        };
        plan::decide(self.options, &question)
    }

    /// Checks whether the source may be read and the target be made, as far as permissions tell.
    fn is_permitted(&self, name: &Name, facts: &Facts, replaces: bool) -> Result<(), Error> {
        let allowed = sys::may_access;
        let reads = self.options.link == Link::No && !self.options.attributes_only;
        if reads
            && facts.kind == FileType::RegularFile
            && let Err(why) = allowed(&name.source, Access::READ_OK)
        {
            return Err(Error::system(ErrorKind::OpenSource, name.source.clone(), why));
        }
        if replaces || !name.can_exist {
            return Ok(());
        }
        let folder = name.target.parent().filter(|folder| !folder.as_os_str().is_empty());
        match allowed(folder.unwrap_or(Path::new(".")), Access::WRITE_OK | Access::EXEC_OK) {
            // The directories of `--parents` are made.
            Err(Errno::NOENT) if self.options.parents => Ok(()),
            Err(why) => Err(Error::system(ErrorKind::Create, name.target.clone(), why)),
            Ok(()) => Ok(()),
        }
    }

    /// Puts the entries of a directory on the stack, in the order of their names.
    fn descend(&mut self, name: Name, facts: &Facts, can_exist: bool) {
        if self.by_list {
            return;
        }
        if self.options.one_file_system && facts.dev != name.device {
            return;
        }
        let mut found = Vec::new();
        match std::fs::read_dir(&name.source) {
            Ok(listing) => {
                for entry in listing {
                    match entry {
                        Ok(entry) => found.push(entry.file_name()),
                        Err(why) => {
                            let why = Errno::from_io_error(&why).unwrap_or(Errno::IO);
                            self.tell(Error::system(ErrorKind::ReadDirectory, name.source.clone(), why));
                            break;
                        }
                    }
                }
            }
            Err(why) => {
                let why = Errno::from_io_error(&why).unwrap_or(Errno::IO);
                self.tell(Error::system(ErrorKind::Access, name.source.clone(), why));
            }
        }
        found.sort_unstable_by(|one, other| other.cmp(one));
        let follow = self.options.dereference == Dereference::Always;
        for entry in found {
            self.waiting.push(Name {
                source: name.source.join(&entry),
                target: name.target.join(&entry),
                below: name.below.join(&entry),
                follow,
                device: name.device,
                can_exist,
            });
        }
    }

    fn skipped(&self, name: &Name, why: Skip) {
        count(&self.control.counts.skipped, 1);
        self.observer.event(Event::Skipped { source: &name.source, target: &name.target, why });
    }

    fn failed(&self, error: Error) {
        count(&self.control.counts.failed, 1);
        self.tell(error);
    }

    fn tell(&self, error: Error) {
        if !error.is_warning() {
            count(&self.control.counts.errors, 1);
        }
        self.observer.event(Event::Error(&error));
    }
}

/// Returns the folder that a path's last component is in.
fn folder_of(path: &Path) -> PathBuf {
    let plain = stripped(path);
    let name = plain.file_name().unwrap_or(OsStr::from_bytes(b""));
    let folder = before(&plain, name);
    if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder }
}

fn same_folder(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| rustix::fs::stat(folder_of(path)).map(|stat| Facts::from(stat).identity());
    matches!((identity(one), identity(other)), (Ok(one), Ok(other)) if one == other)
}

/// Returns whether `target` would lie in the directory `source`.
fn lies_in(target: &Path, source: &Path) -> bool {
    let (Ok(source), Ok(folder)) = (source.canonicalize(), folder_of(target).canonicalize()) else {
        return false;
    };
    folder.starts_with(source)
}
