//! A directory being copied: a descriptor on each side, the number of pending tasks, and its parent.
//!
//! Everything below is opened relative to these descriptors, one component at a time and without following
//! links, so a path is never resolved twice and can be of any length. Descriptors are scarce: those of a
//! directory that only waits for its children may be closed, and are opened again by the same steps. Then the
//! identity must be what it was: something else in its place is an error, never followed.
//!
//! INVARIANT: `pending` counts the tasks before the directory can be finished: its scan, each batch of files,
//! each child directory, each waiting link. Only the task that decrements it to zero finishes the directory.

use crate::content::Cloning;
use crate::error::{Error, ErrorKind};
use crate::metadata::Named;
use crate::plan::Facts;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::path::Arg;
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// How a directory is opened for listing or as a place to open others in.
pub(crate) const OPEN_DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Open descriptors of both sides.
#[derive(Debug)]
pub(crate) struct Handles {
    pub(crate) source: OwnedFd,
    pub(crate) target: OwnedFd,
    budget: Option<Arc<Budget>>,
}

impl Handles {
    pub(crate) fn source(&self) -> BorrowedFd<'_> {
        self.source.as_fd()
    }

    pub(crate) fn target(&self) -> BorrowedFd<'_> {
        self.target.as_fd()
    }
}

impl Drop for Handles {
    fn drop(&mut self) {
        if let Some(budget) = &self.budget {
            budget.open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// How many directories may stay open.
#[derive(Debug)]
pub(crate) struct Budget {
    open: AtomicUsize,
    most: usize,
}

impl Budget {
    pub(crate) fn new(most: usize) -> Arc<Budget> {
        Arc::new(Budget { open: AtomicUsize::new(0), most })
    }

    /// Returns how many may be open.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Returns whether the maximum number of directories is open.
    pub(crate) fn is_spent(&self) -> bool {
        self.open.load(Ordering::Relaxed) >= self.most
    }
}

/// One directory, or the place of an operand ([`Dir::place`]).
#[derive(Debug)]
pub(crate) struct Dir {
    pub(crate) parent: Option<Arc<Dir>>,
    source_name: CString,
    target_name: CString,
    /// For a place: what the operand's target is below, as the user wrote it.
    target_prefix: PathBuf,
    /// How source and target were opened, and are again: whether each may be a link, and whether the target
    /// is held by its path alone ([`open_to_fill`]).
    flags: (OFlags, OFlags),
    handles: Mutex<Slot>,
    pub(crate) facts: Facts,
    pub(crate) target_identity: (u64, u64),
    /// Made by this copy, or by one that was stopped and is gone on with: it has the mode it was made with,
    /// to be filled.
    pub(crate) unfinished: bool,
    /// Owner's bits that it has only as long as it is filled, since the mask or a default ACL took them.
    pub(crate) lent: u32,
    /// Links of the source are followed here and below.
    pub(crate) follow: bool,
    pub(crate) pending: AtomicUsize,
    /// The owner and group that new files get here, once one was made and looked at.
    pub(crate) newborn_owner: OnceLock<(u32, u32)>,
    /// Whether a default ACL decides about the mode of new files here.
    pub(crate) default_acl: OnceLock<bool>,
    /// Whether files here can be cloned: the same for all directories on the same two file systems, one below
    /// the other.
    pub(crate) cloning: Arc<Cloning>,
    /// The device of the operand, for `--one-file-system`.
    pub(crate) device: u64,
    /// Bytes of the operand's own path, which `exclude` does not look at.
    pub(crate) depth: usize,
}

#[derive(Debug, Default)]
struct Slot {
    strong: Option<Arc<Handles>>,
    weak: Weak<Handles>,
}

/// The parts of a new [`Dir`].
pub(crate) struct Child {
    pub(crate) source_name: CString,
    pub(crate) target_name: CString,
    pub(crate) source: OwnedFd,
    pub(crate) target: OwnedFd,
    pub(crate) flags: (OFlags, OFlags),
    pub(crate) facts: Facts,
    pub(crate) target_identity: (u64, u64),
    pub(crate) unfinished: bool,
    pub(crate) lent: u32,
    pub(crate) follow: bool,
    pub(crate) device: u64,
}

impl Dir {
    /// Returns the place of an operand: its source is relative to the working directory, its target is in
    /// `target`.
    pub(crate) fn place(
        source: OwnedFd,
        target: OwnedFd,
        target_prefix: PathBuf,
    ) -> rustix::io::Result<Arc<Dir>> {
        let facts = Facts::from(rustix::fs::fstat(&target)?);
        let handles = Arc::new(Handles { source, target, budget: None });
        Ok(Arc::new(Dir {
            parent: None,
            source_name: CString::default(),
            target_name: CString::default(),
            target_prefix,
            flags: (OFlags::empty(), OFlags::empty()),
            handles: Mutex::new(Slot { weak: Arc::downgrade(&handles), strong: Some(handles) }),
            facts,
            target_identity: facts.identity(),
            unfinished: false,
            lent: 0,
            follow: false,
            pending: AtomicUsize::new(1),
            newborn_owner: OnceLock::new(),
            default_acl: OnceLock::new(),
            cloning: Arc::default(),
            device: 0,
            depth: 0,
        }))
    }

    /// Returns a directory below `parent`, and its descriptors. Its scan is pending.
    pub(crate) fn child(parent: &Arc<Dir>, child: Child, budget: &Arc<Budget>) -> (Arc<Dir>, Arc<Handles>) {
        if budget.is_spent() {
            parent.close_ancestors();
        }
        budget.open.fetch_add(1, Ordering::Relaxed);
        let handles = Arc::new(Handles {
            source: child.source,
            target: child.target,
            budget: Some(Arc::clone(budget)),
        });
        // A place knows one side only.
        let sides = (child.facts.dev, child.target_identity.0);
        let same = parent.parent.is_some() && sides == (parent.facts.dev, parent.target_identity.0);
        let slot = Slot { weak: Arc::downgrade(&handles), strong: Some(Arc::clone(&handles)) };
        let dir = Arc::new(Dir {
            parent: Some(Arc::clone(parent)),
            source_name: child.source_name,
            target_name: child.target_name,
            target_prefix: PathBuf::new(),
            flags: child.flags,
            handles: Mutex::new(slot),
            facts: child.facts,
            target_identity: child.target_identity,
            unfinished: child.unfinished,
            lent: child.lent,
            follow: child.follow,
            pending: AtomicUsize::new(1),
            newborn_owner: OnceLock::new(),
            default_acl: OnceLock::new(),
            cloning: if same { Arc::clone(&parent.cloning) } else { Arc::default() },
            device: child.device,
            depth: parent.depth + 1,
        });
        (dir, handles)
    }

    /// Closes the descriptors of this directory and its ancestors, except those of a place.
    fn close_ancestors(self: &Arc<Dir>) {
        let mut dir = Some(self);
        while let Some(this) = dir.filter(|dir| dir.parent.is_some()) {
            this.close();
            dir = this.parent.as_ref();
        }
    }

    /// Closes the descriptors once their current users are done.
    pub(crate) fn close(&self) {
        self.slot().strong = None;
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Slot> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_now(&self) -> Option<Arc<Handles>> {
        let slot = self.slot();
        slot.strong.clone().or_else(|| slot.weak.upgrade())
    }

    /// Returns the descriptors, opened again if they were closed.
    pub(crate) fn handles(&self, budget: &Arc<Budget>) -> Result<Arc<Handles>, Error> {
        if let Some(handles) = self.open_now() {
            return Ok(handles);
        }
        // From the nearest open ancestor down; a place is always open.
        let mut closed = vec![self];
        let mut above = self.parent.as_deref();
        let mut handles = loop {
            let dir = above.unwrap_or(self);
            match dir.open_now() {
                Some(handles) => break handles,
                None => {
                    closed.push(dir);
                    above = dir.parent.as_deref();
                }
            }
        };
        while let Some(dir) = closed.pop() {
            handles = dir.reopen(&handles, budget)?;
        }
        Ok(handles)
    }

    fn reopen(&self, parent: &Handles, budget: &Arc<Budget>) -> Result<Arc<Handles>, Error> {
        let failed = |kind, path: PathBuf| move |why: Errno| Error::system(kind, path, why);
        let open = |at: BorrowedFd<'_>, name: &CStr, flags| {
            rustix::fs::openat(at, name, OPEN_DIRECTORY | flags, Mode::empty())
        };
        let source = open(parent.source(), &self.source_name, self.flags.0)
            .map_err(failed(ErrorKind::Access, self.source_path()))?;
        let target = open(parent.target(), &self.target_name, self.flags.1)
            .map_err(failed(ErrorKind::Access, self.target_path()))?;
        for (fd, identity, path) in [
            (&source, self.facts.identity(), Dir::source_path as fn(&Dir) -> PathBuf),
            (&target, self.target_identity, Dir::target_path),
        ] {
            let now = rustix::fs::fstat(fd).map_err(failed(ErrorKind::Stat, path(self)))?;
            if Facts::from(now).identity() != identity {
                return Err(Error::plain(ErrorKind::Replaced, path(self)));
            }
        }
        budget.open.fetch_add(1, Ordering::Relaxed);
        let handles = Arc::new(Handles { source, target, budget: Some(Arc::clone(budget)) });
        let mut slot = self.slot();
        slot.weak = Arc::downgrade(&handles);
        if !budget.is_spent() {
            slot.strong = Some(Arc::clone(&handles));
        }
        Ok(handles)
    }

    /// Returns the path as the user would write it.
    pub(crate) fn source_path(&self) -> PathBuf {
        self.path(|dir| &dir.source_name, PathBuf::new())
    }

    /// Returns the source's path with the slashes behind its name, which [`source_path`](Self::source_path)
    /// leaves out.
    pub(crate) fn source_as_typed(&self) -> PathBuf {
        match self.parent.as_deref() {
            Some(parent) => parent.source_of(&self.source_name),
            None => self.source_path(),
        }
    }

    /// Returns the target's path as the user would write it.
    pub(crate) fn target_path(&self) -> PathBuf {
        let mut root = self;
        while let Some(parent) = &root.parent {
            root = parent;
        }
        self.path(|dir| &dir.target_name, root.target_prefix.clone())
    }

    fn path(&self, name: fn(&Dir) -> &CString, mut path: PathBuf) -> PathBuf {
        let mut names = Vec::new();
        let mut dir = Some(self);
        while let Some(this) = dir {
            if this.parent.is_some() {
                names.push(name(this));
            }
            dir = this.parent.as_deref();
        }
        for name in names.iter().rev() {
            path.push(without_slashes(os(name)));
        }
        path
    }

    /// Returns the path of an entry on the source side.
    pub(crate) fn source_of(&self, name: &CStr) -> PathBuf {
        join(self.source_path(), name)
    }

    /// Returns the path of an entry on the target side.
    pub(crate) fn target_of(&self, name: &CStr) -> PathBuf {
        join(self.target_path(), name)
    }

    /// Returns the path below the operand, for `exclude`.
    pub(crate) fn below_operand(&self, name: &CStr) -> PathBuf {
        let mut names = vec![name];
        let mut dir = Some(self);
        while let Some(this) = dir {
            if this.depth > 1 {
                names.push(&this.source_name);
            }
            dir = this.parent.as_deref();
        }
        names.iter().rev().map(|name| os(name)).collect()
    }

    /// Returns whether `identity` is this source directory or one above it.
    pub(crate) fn is_at_or_below(&self, identity: (u64, u64)) -> bool {
        let mut dir = Some(self);
        while let Some(this) = dir.filter(|dir| dir.parent.is_some()) {
            if this.facts.identity() == identity {
                return true;
            }
            dir = this.parent.as_deref();
        }
        false
    }

    /// Returns whether the targets here are in the working directory, which is where relative links are
    /// right.
    pub(crate) fn is_here(&self, handles: &Handles) -> bool {
        let here = rustix::fs::stat(c".").map(Facts::from);
        let there = rustix::fs::fstat(handles.target()).map(Facts::from);
        matches!((here, there), (Ok(here), Ok(there)) if here.identity() == there.identity())
    }

    /// Returns the target, for its own attributes.
    pub(crate) fn own_target<'h>(&self, handles: &'h Handles) -> Named<'h> {
        itself(handles.target(), self.flags.1)
    }

    /// Returns whether new files get their mode from a default ACL. Looked up once.
    pub(crate) fn has_default_acl(&self, handles: &Handles) -> bool {
        *self.default_acl.get_or_init(|| {
            let none: &mut [u8] = &mut [];
            // In doubt yes: then modes are set again, in case they are wrong.
            !matches!(
                rustix::fs::fgetxattr(handles.target(), c"system.posix_acl_default", none),
                Err(Errno::NODATA | Errno::OPNOTSUPP)
            )
        })
    }
}

/// Opens a directory to make things in, with `flags` besides. One that cannot be opened for listing will do:
/// it is held by its path alone then, and `OFlags::PATH` is among the flags that are returned.
pub(crate) fn open_to_fill<P: Arg + Copy>(
    at: BorrowedFd<'_>,
    name: P,
    flags: OFlags,
) -> rustix::io::Result<(OwnedFd, OFlags)> {
    let open = |flags| {
        rustix::fs::openat(at, name, OPEN_DIRECTORY | flags, Mode::empty()).map(|opened| (opened, flags))
    };
    open(flags).or_else(|why| open(flags | OFlags::PATH).map_err(|_| why))
}

/// Gives the owner of a directory that was made what is needed to fill it, and opens it for that where it
/// could not be. `opened` is what [`open_to_fill`] returned, `mode` what the directory has. What cannot be
/// given is missed, and told, when it is filled; where modes mean nothing it is not.
pub(crate) fn let_fill(opened: (OwnedFd, OFlags), mode: u32) -> (OwnedFd, OFlags) {
    if mode & 0o700 == 0o700 {
        return opened;
    }
    let mode = Mode::from_raw_mode(mode | 0o700);
    let (held, flags) = opened;
    if !flags.contains(OFlags::PATH) {
        let _ = crate::sys::chmod(&held, mode);
        return (held, flags);
    }
    // Of what is held by its path alone the mode is set through that.
    let Ok(path) = CString::new(format!("/proc/self/fd/{}", held.as_raw_fd())) else { return (held, flags) };
    let given = crate::sys::chmod_at(CWD, &path, mode);
    match given.and_then(|()| rustix::fs::openat(&held, c".", OPEN_DIRECTORY, Mode::empty())) {
        Ok(opened) => (opened, flags.difference(OFlags::PATH)),
        Err(_) => (held, flags),
    }
}

/// Returns a directory for its own attributes, opened with these flags.
pub(crate) fn itself(opened: BorrowedFd<'_>, flags: OFlags) -> Named<'_> {
    if flags.contains(OFlags::PATH) { Named::Name(opened, c".") } else { Named::Open(opened) }
}

/// Returns a name as the rest of the library writes paths.
pub(crate) fn os(name: &CStr) -> &OsStr {
    OsStr::from_bytes(name.to_bytes())
}

/// Returns a path without the slashes behind it, but not without the root.
pub(crate) fn without_slashes(name: &OsStr) -> &OsStr {
    let bytes = name.as_bytes();
    let end = bytes.iter().rposition(|byte| *byte != b'/').map_or(bytes.len().min(1), |at| at + 1);
    OsStr::from_bytes(bytes.get(..end).unwrap_or_default())
}

/// `Path::push` without its wish to make an empty name a trailing slash.
fn join(mut path: PathBuf, name: &CStr) -> PathBuf {
    if path.as_os_str().is_empty() {
        return PathBuf::from(os(name));
    }
    path.push(Path::new(os(name)));
    path
}

/// Returns whether the listings of a directory tell of each entry if it is a directory. File systems do that
/// keep the type beside the name, or have it from the file itself. Layered ones, and those of other programs,
/// may tell the type of something else. What is mounted over an entry is a directory if the entry is one.
pub(crate) fn lists_truly(directory: BorrowedFd<'_>) -> bool {
    // statfs(2): ext4, XFS, btrfs, tmpfs, ramfs, F2FS, ZFS, bcachefs, EROFS, squashfs, NFS, Ceph, Lustre.
    const TRUE: [u32; 13] = [
        0xef53,
        0x5846_5342,
        0x9123_683e,
        0x0102_1994,
        0x8584_58f6,
        0xf2f5_2010,
        0x2fc1_2fc1,
        0xca45_1a4e,
        0xe0f5_e1e2,
        0x7371_7368,
        0x6969,
        0x00c3_6400,
        0x0bd0_0bd0,
    ];
    #[allow(clippy::unnecessary_cast)] // The field's width differs between architectures.
    rustix::fs::fstatfs(directory).is_ok_and(|found| TRUE.contains(&(found.f_type as u32)))
}

/// `stat` of a name itself.
pub(crate) fn lstat(at: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<Facts> {
    rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW).map(Facts::from)
}

/// `stat` of what a name leads to.
pub(crate) fn stat(at: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<Facts> {
    rustix::fs::statat(at, name, AtFlags::empty()).map(Facts::from)
}
