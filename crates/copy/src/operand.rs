//! Operands: the target of each source, their order, and the directories of `--parents`.

use crate::clock::For;
use crate::dir::{Dir, itself, let_fill, lstat, open_to_fill, without_slashes};
use crate::entry::{Entry, Outcome};
use crate::error::{Error, ErrorKind};
use crate::metadata::Finish;
use crate::options::{Dereference, Destination, Durability, Link, Options};
use crate::plan::Facts;
use crate::report::{Event, Kind, Skip};
use crate::worker::{Run, Worker};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// One source and the name it gets.
#[derive(Debug)]
pub(crate) struct Operand {
    pub(crate) source: CString,
    pub(crate) target: CString,
    /// Directories of `--parents`, outermost first, as source paths; their targets are below the destination.
    pub(crate) parents: Vec<PathBuf>,
    /// The destination as the user wrote it.
    pub(crate) below: PathBuf,
}

/// A directory of `--parents`. It gets its attributes when nothing changes in it any more.
#[derive(Debug)]
struct Parent {
    source: PathBuf,
    target: PathBuf,
    /// Made by this copy, or by one that was stopped and is gone on with: the mode it shall have, less the
    /// mask; as to its owner it is what came out. And those of its bits that wait for owner and list.
    made: Option<(u32, u32)>,
}

/// Directories of `--parents` to be finished, each once and after the one it is in.
#[derive(Debug, Default)]
struct Parents {
    list: Vec<Parent>,
    known: HashSet<PathBuf>,
    /// What they are in.
    below: PathBuf,
}

impl Parents {
    fn add(&mut self, parents: Vec<Parent>, below: &Path) {
        self.below = below.to_path_buf();
        for parent in parents {
            if self.known.insert(parent.source.clone()) {
                self.list.push(parent);
            }
        }
    }
}

/// Removes trailing slashes, but not from the root.
pub(crate) fn stripped(path: &Path) -> PathBuf {
    PathBuf::from(without_slashes(path.as_os_str()))
}

/// Returns the last component, slashes and all gone; `.` and `..` stay what they are.
fn base(path: &Path) -> OsString {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    let bytes = bytes.get(..end).unwrap_or_default();
    let start = bytes.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    OsString::from_vec(bytes.get(start..).unwrap_or_default().to_vec())
}

/// Returns what stands before the last component. Not by `Path::parent`, which takes `s/.` for `s`.
pub(crate) fn before(path: &Path, base: &OsStr) -> PathBuf {
    let bytes = path.as_os_str().as_bytes();
    PathBuf::from(OsStr::from_bytes(bytes.strip_suffix(base.as_bytes()).unwrap_or(bytes)))
}

/// Returns the name that the copy of `source` gets in the directory it goes into. `cp -r dir/.. into` merges
/// into that directory, as `dir/.` does.
pub(crate) fn name_in_directory(source: &Path) -> OsString {
    let name = base(source);
    if name.is_empty() || name == ".." { OsString::from(".") } else { name }
}

/// Returns the path that the copy of an operand gets.
pub(crate) fn target_of(source: &Path, destination: &Destination, options: &Options) -> PathBuf {
    match destination {
        Destination::At(target) => target.clone(),
        Destination::Into(directory) if options.parents => {
            let mut target = stripped(directory);
            target.extend(stripped(source).components().filter(|part| !matches!(part, Component::RootDir)));
            target
        }
        Destination::Into(directory) => {
            let name = name_in_directory(source);
            if name == "." { directory.clone() } else { directory.join(name) }
        }
    }
}

/// Number of operands that are checked ahead.
const LOOKED_AT: usize = 64;

/// Returns how many of the operands, from the first on, may have entries to be found in them. Those that do
/// not are files: with them how much there is to do is known before they are copied, which may take long.
fn may_hold_entries(run: &Run<'_>, sources: &[PathBuf]) -> usize {
    if !run.options.recursive {
        return 0;
    }
    let known = sources.len().saturating_sub(LOOKED_AT);
    let last = sources.iter().skip(known).rposition(|source| source.is_dir());
    last.map_or(known, |at| known + at + 1)
}

/// What the directories among the operands have left to be done until it is waited for. All of them are
/// filled at once, by all workers, and a file is copied at once: so it comes before what is in the
/// directories that were named before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Left {
    Nothing,
    /// Directories that this copy made. What will be written lies in them, under names that are free.
    New,
    /// Directories that were there. Through links in them any file may be written.
    Merged,
}

impl Left {
    /// Returns whether this has to be done before an operand is copied, as far as its source tells. Many
    /// operands of both kinds (`cp -r from/* to`) are not waited for where `to` was empty; over a tree that
    /// is there each file is in its turn.
    fn comes_before(self, run: &Run<'_>, source: &Path, directory: bool) -> bool {
        match self {
            Left::Nothing => false,
            // Links that are followed in a source may lead to where the file will be.
            Left::New => !directory && run.options.dereference == Dereference::Always,
            // So may links at the destination, where those to directories are kept.
            Left::Merged => !directory || run.options.keep_directory_symlink || is_in_own(run, source),
        }
    }

    /// Returns whether this has to be done before an operand is copied, as far as its target tells: one that
    /// is there as a link or with other names may be one of what is left to be made, or lead to it.
    fn comes_before_target(self, run: &Run<'_>, dir: &Dir, target: &CStr, directory: bool) -> bool {
        if self == Left::Nothing {
            return false;
        }
        let Ok(handles) = dir.handles(&run.budget) else { return false };
        match lstat(handles.target(), target) {
            Ok(there) if directory => there.kind == FileType::Symlink,
            Ok(there) => there.kind != FileType::RegularFile || there.nlink > 1,
            Err(why) => why != Errno::NOENT,
        }
    }
}

/// Returns whether a directory lies in one that was made or merged for an operand; in doubt it does.
fn is_in_own(run: &Run<'_>, directory: &Path) -> bool {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let identity = |fd: &OwnedFd| rustix::fs::fstat(fd).map(|stat| Facts::from(stat).identity());
    let Ok(mut at) = rustix::fs::open(directory, flags, Mode::empty()) else { return true };
    loop {
        let above = rustix::fs::openat(&at, c"..", flags, Mode::empty());
        let Ok(above) = above else { return true };
        match (identity(&at), identity(&above)) {
            (Ok(here), _) if run.is_own(here) => return true,
            (Ok(here), Ok(there)) if here == there => return false,
            (Ok(_), Ok(_)) => at = above,
            _ => return true,
        }
    }
}

/// Copies the operands: one after the other where order could matter, else as work for all workers. `drain`
/// is called to wait for what was given out.
pub(crate) fn operands(
    run: &Run<'_>,
    worker: &mut Worker<'_, '_>,
    sources: &[PathBuf],
    destination: &Destination,
    drain: &mut dyn FnMut(&mut Worker<'_, '_>),
) {
    let mut merging = false;
    let mut left = Left::Nothing;
    let mut parents = Parents::default();
    let mut last = None;
    let mut cleared: Option<Arc<Dir>> = None;
    let mut names: HashSet<OsString> = HashSet::new();
    let mut seen = Seen::default();
    worker.tally.scanned += sources.len() as u64;
    worker.flush();
    let holding = may_hold_entries(run, sources);
    for (at, source) in sources.iter().enumerate() {
        if at == holding {
            worker.found();
        }
        if run.stopped() {
            worker.tally.skipped += 1;
            continue;
        }
        let source = if run.options.strip_trailing_slashes { stripped(source) } else { source.clone() };
        let name = if run.options.parents { source.as_os_str().to_owned() } else { base(&source) };
        let mut found = facts_of(run, &source);
        if found.is_err() && left != Left::Nothing {
            // Perhaps it is one of what is to be made.
            drain(worker);
            left = Left::Nothing;
            found = facts_of(run, &source);
        }
        let facts = found.ok();
        let directory = facts.is_some_and(|facts| facts.kind == FileType::Directory);
        if facts.is_some_and(|facts| is_repeated(run, worker, &source, &facts, &name, &mut seen)) {
            worker.tally.skipped += 1;
            continue;
        }
        // Two operands under one name: the second must find what the first made. What merges into the
        // destination itself may hold every name.
        let target = name_in_directory(&source);
        let merges = target == ".";
        let taken = !names.insert(if run.options.parents { name } else { target });
        // An operand that is a directory waits with both its sides open.
        let waits = left.comes_before(run, &source, directory);
        if taken || merges || merging || waits || run.budget.is_spent() {
            drain(worker);
            left = Left::Nothing;
        }
        merging = merges;
        match place(run, &source, destination, &mut last, &mut parents) {
            Ok((dir, operand)) => {
                // Each place once: the next operand's is most often the same.
                if run.options.resume
                    && !cleared.as_ref().is_some_and(|before| Arc::ptr_eq(before, &dir))
                    && let Ok(handles) = dir.handles(&run.budget)
                {
                    worker.remove_leftovers(handles.target(), || dir.target_path());
                    cleared = Some(Arc::clone(&dir));
                }
                if left.comes_before_target(run, &dir, &operand.target, directory) {
                    drain(worker);
                    left = Left::Nothing;
                }
                // Without parallel work there is nothing to win by handing it out.
                left = left.max(worker.operand(&dir, &operand));
            }
            Err(error) => {
                worker.tally.failed += 1;
                worker.tell(error);
            }
        }
    }
    if holding >= sources.len() {
        worker.found();
    }
    drain(worker);
    worker.write_journal();
    worker.write_marks();
    worker.finish_parents(&parents);
}

/// Operands that were met: which file, under which name, and in which directories.
type Seen = HashMap<(u64, u64, OsString), Vec<PathBuf>>;

/// Returns the directory a path's last component is in.
fn place_of(path: &Path) -> PathBuf {
    match stripped(path).parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

fn is_same(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| rustix::fs::stat(path).map(|stat| Facts::from(stat).identity());
    one == other || matches!((identity(one), identity(other)), (Ok(one), Ok(other)) if one == other)
}

/// Returns what an operand is.
fn facts_of(run: &Run<'_>, source: &Path) -> rustix::io::Result<Facts> {
    let follow = run.options.dereference != Dereference::Never;
    let stat = if follow { rustix::fs::stat(source) } else { rustix::fs::lstat(source) };
    stat.map(Facts::from)
}

/// Returns whether an operand was given before, which is told and not an error.
fn is_repeated(
    run: &Run<'_>,
    worker: &mut Worker<'_, '_>,
    source: &Path,
    facts: &Facts,
    name: &OsStr,
    seen: &mut Seen,
) -> bool {
    let directory = facts.kind == FileType::Directory;
    // With backups each file is copied, and the one before is kept.
    if (directory && !run.options.recursive) || (!directory && run.options.backup.is_some()) {
        return false;
    }
    let places = seen.entry((facts.dev, facts.ino, name.to_owned())).or_default();
    let place = place_of(source);
    if places.is_empty() || (!directory && !places.iter().any(|other| is_same(other, &place))) {
        // Two names of one file are two sources, and the second finds what the first made.
        places.push(place);
        return false;
    }
    let kind = if directory { ErrorKind::DirectoryTwice } else { ErrorKind::SourceTwice };
    worker.tell(Error::plain(kind, source.to_path_buf()));
    true
}

/// The directory of the operand before.
struct Last {
    below: PathBuf,
    /// Its source is named from the root, not from the working directory.
    from_root: bool,
    dir: Arc<Dir>,
}

/// Finds the directory an operand's target is made in, and its name there.
///
/// `last`: the directory of the operand before, which most often is this one's too. `found`: the directories
/// of `--parents` that are to be finished.
fn place(
    run: &Run<'_>,
    source: &Path,
    destination: &Destination,
    last: &mut Option<Last>,
    found: &mut Parents,
) -> Result<(Arc<Dir>, Operand), Error> {
    let nul = |_| Error::system(ErrorKind::Stat, source.to_path_buf(), Errno::INVAL);
    let source_name = CString::new(source.as_os_str().as_bytes()).map_err(nul)?;
    let mut parents = Vec::new();
    let (below, target) = match destination {
        Destination::Into(directory) if run.options.parents => {
            let name = base(source);
            let mut above: PathBuf = before(&stripped(source), &name).components().collect();
            let mut below = stripped(directory);
            below.extend(above.components().filter(|part| !matches!(part, Component::RootDir)));
            while !above.as_os_str().is_empty() && above != Path::new("/") {
                parents.push(above.clone());
                above.pop();
            }
            parents.reverse();
            (below, if name.is_empty() { OsString::from(".") } else { name })
        }
        Destination::Into(directory) => (stripped(directory), name_in_directory(source)),
        Destination::At(target) if target.as_os_str().is_empty() => {
            return Err(Error::system(ErrorKind::Create, PathBuf::new(), Errno::NOENT));
        }
        Destination::At(target) => {
            let plain = stripped(target);
            let mut name = base(target);
            if name.is_empty() || name == ".." {
                (plain, OsString::from("."))
            } else {
                let parent = stripped(&before(&plain, &name));
                if name != "." {
                    // Slashes behind it ask for a directory, and are told as they were given.
                    let slashes = target.as_os_str().as_bytes().get(plain.as_os_str().len()..);
                    name.push(OsStr::from_bytes(slashes.unwrap_or_default()));
                }
                (parent, name)
            }
        }
    };
    let top = match destination {
        Destination::Into(directory) => directory.clone(),
        Destination::At(_) => below.clone(),
    };
    let target_name = CString::new(target.as_bytes()).map_err(nul)?;
    let operand = Operand { source: source_name, target: target_name, parents, below: top };
    let make_parents = !operand.parents.is_empty();
    if !make_parents
        && let Some(last) = last
        && last.below == below
        && last.from_root == source.is_absolute()
    {
        return Ok((Arc::clone(&last.dir), operand));
    }
    let opened = if make_parents {
        make_directories(run, &operand, found)
    } else {
        open_target(run, source, &below, &target)
    };
    let opened = opened?;
    // The working directory is opened only for what is named from it: it may be one that cannot be entered,
    // or on a file system that does not answer.
    let from_root = source.is_absolute();
    let here = open(Path::new(if from_root { "/" } else { "." })).map_err(|why| {
        let closed = why == Errno::ACCESS;
        let (kind, path) =
            if closed { (ErrorKind::Stat, source) } else { (ErrorKind::Access, Path::new(".")) };
        Error::system(kind, path.to_path_buf(), why)
    })?;
    let dir = Dir::place(here.0, opened, below.clone())
        .map_err(|why| Error::system(ErrorKind::Stat, below.clone(), why))?;
    if !make_parents {
        *last = Some(Last { below, from_root, dir: Arc::clone(&dir) });
    }
    Ok((dir, operand))
}

/// Opens the directory a target is made in. Where that cannot be, the error is that of making the target, or
/// that of the source if there is none.
fn open_target(run: &Run<'_>, source: &Path, below: &Path, name: &OsStr) -> Result<OwnedFd, Error> {
    let path = if below.as_os_str().is_empty() { Path::new(".") } else { below };
    let opened = open(path).map_err(|why| {
        let kind = match facts_of(run, source).map(|facts| facts.kind) {
            Err(why) => return Error::system(ErrorKind::Stat, source.to_path_buf(), why),
            Ok(FileType::Directory) if !run.options.recursive => {
                return Error::plain(ErrorKind::OmittedDirectory, source.to_path_buf());
            }
            // Whether the target exists cannot even be asked.
            Ok(_) if why != Errno::NOENT => ErrorKind::Stat,
            Ok(FileType::Directory) => ErrorKind::CreateDirectory,
            Ok(_) if run.options.link != Link::No => {
                let symbolic = run.options.link == Link::Symbolic;
                let kind = if symbolic { ErrorKind::CreateSymlink } else { ErrorKind::CreateHardLink };
                return Error::system(kind, below.join(name), why).with(source.to_path_buf());
            }
            Ok(FileType::Symlink) => ErrorKind::CreateSymlink,
            Ok(FileType::RegularFile) => ErrorKind::Create,
            Ok(_) if run.options.copy_contents || !run.options.recursive => ErrorKind::Create,
            Ok(FileType::Fifo) => ErrorKind::CreateFifo,
            Ok(_) => ErrorKind::CreateSpecial,
        };
        Error::system(kind, below.join(name), why)
    })?;
    can_be_synced(run, opened, path)
}

/// Returns a directory of the user's, links followed.
fn open(path: &Path) -> rustix::io::Result<(OwnedFd, OFlags)> {
    open_to_fill(CWD, path, OFlags::empty())
}

/// Returns a directory to make things in, which has to be one that can be synced where that was asked for:
/// not one that is held by its path alone. Said before anything is made in it.
fn can_be_synced(run: &Run<'_>, opened: (OwnedFd, OFlags), path: &Path) -> Result<OwnedFd, Error> {
    let (opened, flags) = opened;
    if run.options.durability != Durability::None && flags.contains(OFlags::PATH) {
        return Err(Error::system(ErrorKind::Access, path.to_path_buf(), Errno::ACCESS));
    }
    Ok(opened)
}

/// Makes the directories of `--parents`, and notes those that are to be finished.
fn make_directories(run: &Run<'_>, operand: &Operand, found: &mut Parents) -> Result<OwnedFd, Error> {
    let mut passed = Vec::new();
    let opened = make_each(run, operand, &mut passed);
    // As GNU has it: where the directory of the target was there already, those above it stay as they are.
    // What `--resume` goes on with was perhaps made, and not finished.
    let made = passed.iter().any(|parent| parent.made.is_some());
    if run.options.resume || made {
        let innermost = passed.last().filter(|parent| parent.made.is_some()).map(|last| last.target.clone());
        found.add(passed, &operand.below);
        // Where that of the target was made, GNU cp then tries to make it again, which it cannot.
        let name = operand.target.to_bytes();
        let tries = run.options.recursive && !run.options.resume;
        if let (true, b"." | b"..", Some(innermost)) = (tries, name, innermost)
            && opened.is_ok()
        {
            // Not by `join`, which takes `s/.` for `s`.
            let mut path = innermost.into_os_string();
            path.push("/");
            path.push(crate::dir::os(&operand.target));
            return Err(Error::system(ErrorKind::CreateDirectory, path.into(), Errno::EXIST));
        }
    }
    opened
}

/// Makes the directories of `--parents`, one below the other, or finds them.
fn make_each(run: &Run<'_>, operand: &Operand, passed: &mut Vec<Parent>) -> Result<OwnedFd, Error> {
    let options = run.options;
    let mut path = operand.below.clone();
    let opened = open(&path).map_err(|why| Error::system(ErrorKind::Access, path.clone(), why))?;
    let mut at = can_be_synced(run, opened, &path)?;
    // Nothing is made for a source that is not there.
    let source = Path::new(crate::dir::os(&operand.source));
    rustix::fs::lstat(source).map_err(|why| Error::system(ErrorKind::Stat, source.to_path_buf(), why))?;
    for source in &operand.parents {
        let name = base(source);
        path.push(&name);
        let facts = rustix::fs::stat(source)
            .map(Facts::from)
            .map_err(|why| Error::system(ErrorKind::Stat, source.clone(), why))?;
        let mode = if options.default_modes { 0o777 } else { facts.mode & 0o1777 };
        // Bits for others than the owner mean something only when owner, group and access list are right.
        let waits = if options.preserve.ownership || options.preserve.mode { facts.mode & 0o077 } else { 0 };
        let to_fill = mode & !waits | 0o700;
        let made = rustix::fs::mkdirat(&at, &*name, Mode::from_raw_mode(to_fill));
        let parent = |made| Parent { source: source.clone(), target: path.clone(), made };
        match made {
            Ok(()) => {
                passed.push(parent(Some((mode, waits))));
                if run.wants_entries {
                    run.observer.event(Event::Copied {
                        kind: Kind::Parent,
                        source,
                        target: &path,
                        backup: None,
                        bytes: 0,
                        method: None,
                    });
                }
            }
            Err(Errno::EXIST) => passed.push(parent(None)),
            // Where none may be made, one that is there will do.
            Err(_) if rustix::fs::statat(&at, &*name, AtFlags::empty()).is_ok() => passed.push(parent(None)),
            Err(why) => return Err(Error::system(ErrorKind::Parent, path, why)),
        }
        let failed = |why| Error::system(ErrorKind::Parent, path.clone(), why);
        let opened = open_to_fill(at.as_fd(), &*name, OFlags::empty()).map_err(|why| match why {
            // A link that leads nowhere has the name, so no directory can be made there.
            Errno::NOENT | Errno::LOOP => failed(Errno::EXIST),
            why => failed(why),
        })?;
        let there = Facts::from(rustix::fs::fstat(&opened.0).map_err(failed)?);
        if let Some(parent) = passed.last_mut() {
            let came_out = match parent.made {
                Some(_) => Some(there.mode),
                None => run
                    .me
                    .left_unfinished(options, &facts, &there, to_fill)
                    .then_some(to_fill & !run.me.umask),
            };
            parent.made = came_out.map(|came_out| (mode & (!0o700 | came_out), waits));
        }
        let made = passed.last().is_some_and(|parent| parent.made.is_some());
        at = can_be_synced(run, if made { let_fill(opened, there.mode) } else { opened }, &path)?;
    }
    Ok(at)
}

impl Worker<'_, '_> {
    /// Copies one operand. Of a directory the entries are left.
    fn operand(&mut self, dir: &Arc<Dir>, operand: &Operand) -> Left {
        let handles = match dir.handles(&self.run.budget) {
            Ok(handles) => handles,
            Err(error) => {
                self.tally.failed += 1;
                self.tell(error);
                return Left::Nothing;
            }
        };
        let entry = Entry {
            dir,
            handles: &handles,
            source: &operand.source,
            target: &operand.target,
            operand: true,
            follow: self.run.options.dereference != Dereference::Never,
            kind: None,
            window: None,
        };
        let outcome = self.entry(&entry);
        let outcome = self.persist(outcome, |worker| worker.entry(&entry));
        let copied = matches!(outcome, Ok(Outcome::Copied { .. }));
        if copied {
            self.run.created(&entry);
        }
        match self.run.options.durability {
            Durability::End if copied => self.run.writes_to(&handles.target, dir.facts.dev),
            // A directory has its name from now on.
            Durability::File if copied || matches!(outcome, Ok(Outcome::Descended { .. })) => {
                self.sync(handles.target(), || dir.target_path());
            }
            _ => {}
        }
        debug_assert!(!matches!(outcome, Ok(Outcome::Skipped(Skip::Twice))));
        let left = match outcome {
            Ok(Outcome::Descended { new: true }) => Left::New,
            Ok(Outcome::Descended { new: false }) => Left::Merged,
            _ => Left::Nothing,
        };
        self.account(&entry, outcome);
        left
    }

    /// `--durability=file` of a directory in which something got its name.
    fn sync(&mut self, directory: BorrowedFd<'_>, path: impl FnOnce() -> PathBuf) {
        if let Err(why) = self.clock.call(For::Sync, || rustix::fs::fsync(directory)) {
            let path = path();
            let path = if path.as_os_str().is_empty() { PathBuf::from(".") } else { path };
            self.tell(Error::system(ErrorKind::Sync, path, why));
        }
    }

    fn sync_at(&mut self, path: &Path) {
        match open(path) {
            Ok((directory, _)) => self.sync(directory.as_fd(), || path.to_path_buf()),
            Err(why) => self.tell(Error::system(ErrorKind::Sync, path.to_path_buf(), why)),
        }
    }

    /// Gives the directories of `--parents` their attributes, innermost first, when nothing changes in them
    /// any more.
    fn finish_parents(&mut self, parents: &Parents) {
        let options = self.run.options;
        let preserve = options.preserve;
        if self.run.stopped() {
            return;
        }
        let keeps = preserve.mode || preserve.ownership || preserve.timestamps;
        let syncs = options.durability == Durability::File;
        for Parent { source, target, made } in parents.list.iter().rev() {
            let narrowed = made.filter(|(mode, waits)| mode & 0o700 != 0o700 || *waits != 0);
            if !keeps && !syncs && narrowed.is_none() {
                continue;
            }
            let (Ok((from, from_flags)), Ok((to, to_flags))) = (open(source), open(target)) else {
                if syncs {
                    self.sync_at(target);
                }
                continue;
            };
            let facts = |fd: &OwnedFd| rustix::fs::fstat(fd).map(Facts::from);
            let (Ok(facts), Ok(now)) = (facts(&from), facts(&to)) else { continue };
            let me = self.run.me;
            let finish = Finish {
                options,
                me,
                source: itself(from.as_fd(), from_flags),
                target: itself(to.as_fd(), to_flags),
                facts: &facts,
                names: None,
                owner: Some((now.uid, now.gid)),
                mode: Some(now.mode),
                plain_mode: narrowed.map(|(mode, waits)| (now.mode | (waits & !me.umask)) & (!0o700 | mode)),
                // It is said beside the list, if there is one.
                without_list: false,
            };
            let mut errors = Vec::new();
            let mut fail = |error: Error| errors.push(Error { path: target.clone(), ..error });
            finish.before_times(&mut self.clock, &mut fail);
            if syncs {
                self.sync(to.as_fd(), || target.clone());
            }
            finish.times(&mut self.clock, &mut fail);
            errors.into_iter().for_each(|error| self.tell(error));
        }
        if syncs && !parents.list.is_empty() {
            // The outermost got its name there, perhaps.
            self.sync_at(&parents.below);
        }
    }
}
