//! Owner, extended attributes, mode and times of a copy, in an order that never makes a copy more accessible
//! than its source: owner first, then access lists, then the mode with its setuid bits, times last.
//!
//! Times come last for a second reason: `resume` relies on a copy being whole if it has its source's
//! modification time.

use crate::attributes::{self, Class};
use crate::clock::{Clock, For};
use crate::error::{Error, ErrorKind};
use crate::options::{Demand, Options};
use crate::plan::{Facts, as_kept};
use crate::sys;
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use std::borrow::Cow;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
const ACL: &[&[u8]] = &[ACL_ACCESS, b"system.posix_acl_default"];
/// An access list in the kernel's form: a version, then entries (`linux/posix_acl_xattr.h`).
const LIST_HEAD_BYTES: usize = 4;
const LIST_ENTRY_BYTES: usize = 8;
/// A list of owner, group and others, which is what a mode says.
const MODE_AS_LIST_BYTES: usize = LIST_HEAD_BYTES + 3 * LIST_ENTRY_BYTES;

/// The user of this process, as far as metadata is concerned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Me {
    pub(crate) uid: u32,
    pub(crate) umask: u32,
    umask_is_known: bool,
}

impl Me {
    /// `umask`: whether the mask will be asked for; finding it takes longer than copying a file.
    pub(crate) fn now(umask: bool) -> Me {
        let umask = umask.then(|| umask_of_status().unwrap_or_else(umask_by_change));
        Me {
            uid: rustix::process::geteuid().as_raw(),
            umask: umask.unwrap_or(0o077),
            umask_is_known: umask.is_some(),
        }
    }

    /// Returns the mask, asked for now if it was not before. Where /proc does not tell it, it takes all from
    /// others: to change it, as asking does, would touch what other workers make.
    pub(crate) fn mask(self) -> u32 {
        let known = self.umask_is_known.then_some(self.umask);
        known.or_else(umask_of_status).unwrap_or(0o077)
    }

    pub(crate) fn is_root(self) -> bool {
        self.uid == 0
    }

    /// Returns whether a file made with `mode` has it already.
    pub(crate) fn mode_comes_out(self, mode: u32, default_acl: bool) -> bool {
        self.umask_is_known && !default_acl && mode & (self.umask | 0o7000) == 0
    }
}

impl Me {
    /// Returns the mode of a new directory that was made with more, so that it could be filled, where the
    /// source's is not preserved.
    pub(crate) fn of_directory(self, options: &Options, source: &Facts) -> Option<u32> {
        (self.umask_is_known && !options.default_modes).then_some(source.mode & 0o1777 & !self.umask)
    }

    /// Returns the mode of a new copy that was made with less, because its owner changes, while the source's
    /// mode is not preserved: what it would have had at once.
    pub(crate) fn widened(self, options: &Options, source: &Facts) -> Option<u32> {
        let narrowed = options.preserve.ownership && !options.preserve.mode && !options.default_modes;
        // A directory has its sticky bit without being asked.
        let bits = if source.kind == FileType::Directory { 0o1777 } else { 0o777 };
        (narrowed && self.umask_is_known).then_some(source.mode & bits & !self.umask)
    }

    /// Returns the mode that a new copy has by default (`default_modes`), where a default list of its
    /// directory would give it more or less.
    pub(crate) fn by_default(self, options: &Options, source: &Facts) -> Option<u32> {
        let mode = match source.kind {
            FileType::Directory => 0o777 | source.mode & 0o1000,
            FileType::Socket => 0o777,
            _ => 0o666,
        };
        (options.default_modes && self.umask_is_known).then_some(mode & !self.umask)
    }

    /// Returns whether a directory that is there was made by a copy that was stopped before it was finished:
    /// it is ours, has exactly the mode that it was `made` with, to be filled, or was given then where the
    /// mask took what its owner needs for that, and not its source's time, which comes last.
    pub(crate) fn left_unfinished(self, options: &Options, source: &Facts, there: &Facts, made: u32) -> bool {
        // A setgid bit comes from the directory above.
        let came_out = made & !self.umask;
        let as_made = self.umask_is_known && [came_out, came_out | 0o700].contains(&(there.mode & !0o2000));
        options.resume && as_made && there.uid == self.uid && there.mtime != as_kept(source.mtime, there)
    }
}

/// Returns the mask as /proc tells it.
fn umask_of_status() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let digits = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(digits.trim(), 8).ok()
}

/// Returns the mask as umask(2) tells it, which is only by changing it, for every thread. For that moment,
/// before there are workers, it takes more away rather than less.
fn umask_by_change() -> u32 {
    let mask = rustix::process::umask(Mode::RWXG | Mode::RWXO);
    rustix::process::umask(mask);
    mask.as_raw_mode()
}

/// Returns the mode a new file is made with.
///
/// Never more than the source's. Where the owner will change, nothing for group and others: the group is not
/// yet the one the bits are meant for. Where an access list (`acl`) will follow or has to go, neither: with
/// one, the group's bits are the most that any named user gets, and say nothing about the group.
pub(crate) fn creation_mode(options: &Options, source: &Facts, owner_is_right: bool, acl: bool) -> u32 {
    if options.default_modes {
        return if source.kind == FileType::Socket { 0o777 } else { 0o666 };
    }
    let mode = source.mode & 0o777;
    let waits = (options.preserve.ownership && !owner_is_right) || (options.preserve.mode && acl);
    if waits { mode & 0o700 } else { mode }
}

/// What is being finished.
pub(crate) struct Finish<'a> {
    pub(crate) options: &'a Options,
    pub(crate) me: Me,
    /// The source, for extended attributes.
    pub(crate) source: Named<'a>,
    pub(crate) target: Named<'a>,
    /// The source's facts.
    pub(crate) facts: &'a Facts,
    /// The names of the source's attributes, where they were asked for already.
    pub(crate) names: Option<&'a [u8]>,
    /// The owner and group the target has now.
    pub(crate) owner: Option<(u32, u32)>,
    /// The permission bits the target has now, if known.
    pub(crate) mode: Option<u32>,
    /// The mode it shall have when the source's is not preserved; `None`: what it has.
    pub(crate) plain_mode: Option<u32>,
    /// Whether that mode is said without the access list that the target got from its directory, which goes
    /// then. Beside one, the group's bits of a mode are the list's mask, and would become the group's own.
    pub(crate) without_list: bool,
}

/// A file to be finished: an open descriptor, or a name where opening would do something (FIFOs, devices) or
/// is not possible (links).
#[derive(Clone, Copy, Debug)]
pub(crate) enum Named<'a> {
    Open(BorrowedFd<'a>),
    Name(BorrowedFd<'a>, &'a CStr),
}

/// What became of access lists.
#[derive(Clone, Copy, Debug, Default)]
struct Lists {
    /// One was set or removed, which changes what the mode's group bits mean.
    changed: bool,
    /// The copy could not take its source's: then what that gives the owning group.
    lost: Option<u32>,
    /// The source has access lists of another kind (NFSv4), which follow the mode.
    foreign: bool,
}

/// Returns the rights (0 to 7) that an access list gives the owning group; none where it does not say.
fn group_of(list: &[u8]) -> u32 {
    let entries = list.get(LIST_HEAD_BYTES..).unwrap_or_default().chunks_exact(LIST_ENTRY_BYTES);
    // ACL_GROUP_OBJ and ACL_MASK. Tag and rights are 16 bits each, the low byte first.
    let rights = |tag: u8| {
        entries.clone().find_map(|entry| match entry {
            [this, 0, given, ..] if *this == tag => Some(u32::from(*given) & 7),
            _ => None,
        })
    };
    rights(0x04).unwrap_or(0) & rights(0x10).unwrap_or(7)
}

/// Returns a mode as an access list in the kernel's form: setting it sets the mode, and no list stays
/// (acl(5)).
fn mode_as_list(mode: u32) -> [u8; MODE_AS_LIST_BYTES] {
    let mut list = [0; MODE_AS_LIST_BYTES];
    // POSIX_ACL_XATTR_VERSION.
    list[0] = 2;
    // ACL_USER_OBJ, ACL_GROUP_OBJ, ACL_OTHER. They name no user or group, which is the largest number.
    for (entry, (tag, shift)) in
        list[LIST_HEAD_BYTES..].chunks_exact_mut(LIST_ENTRY_BYTES).zip([(0x01, 6), (0x04, 3), (0x20, 0)])
    {
        entry.copy_from_slice(&[tag, 0, (mode >> shift & 7) as u8, 0, 0xff, 0xff, 0xff, 0xff]);
    }
    list
}

/// Returns whether this is how a file system says that it has no access lists (GNU's `acl_errno_valid`).
fn has_no_lists(why: Errno) -> bool {
    matches!(why, Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::BUSY)
}

/// Returns whether an access list is among the names of a file's attributes.
pub(crate) fn has_acl(names: &[u8]) -> bool {
    names.split(|byte| *byte == 0).any(|name| ACL.contains(&name))
}

impl Finish<'_> {
    /// Everything but the times. The errors are the entry's; the copy stays.
    pub(crate) fn before_times(&self, clock: &mut Clock, fail: &mut dyn FnMut(Error)) {
        let preserve = self.options.preserve;
        let mut mode = self.facts.mode;
        let symlink = self.facts.kind == FileType::Symlink;
        if preserve.ownership && self.owner != Some((self.facts.uid, self.facts.gid)) {
            match clock.call(For::Metadata, || self.chown(Some(self.facts.uid), self.facts.gid)) {
                Ok(()) => {}
                Err(Errno::PERM | Errno::INVAL) if !self.me.is_root() => {
                    // The group may be ours to give. The owner is not, so setuid bits would serve another
                    // user; they go.
                    let group = clock.call(For::Metadata, || self.chown(None, self.facts.gid));
                    mode &= if group.is_ok() { !0o4000 } else { !0o6000 };
                    let is_ours = self.owner.is_some_and(|(uid, _)| uid == self.facts.uid);
                    // Of a directory the bit protects what is in it, whatever its group.
                    mode &= if self.facts.kind == FileType::Directory { !0 } else { !0o1000 };
                    mode |= if group.is_ok() && is_ours { self.facts.mode & 0o4000 } else { 0 };
                }
                Err(why) => {
                    // The rights of group and others, and an access list, were meant for another owner
                    // and group.
                    fail(self.error(ErrorKind::PreserveOwnership, why));
                    let wanted = if preserve.mode { Some(mode) } else { self.plain_mode };
                    let wanted = wanted.or(self.mode).unwrap_or(mode) & 0o700;
                    if !symlink && let Err(why) = clock.call(For::Metadata, || self.chmod(wanted)) {
                        fail(self.error(ErrorKind::PreserveMode, why));
                    }
                    return;
                }
            }
        }
        let mut lists = Lists::default();
        if preserve.mode || preserve.xattr != Demand::No {
            lists = self.attributes(clock, fail);
        }
        if self.without_list && self.plain_mode.is_some() {
            // Neither the mode nor the rights of others are the directory's.
            lists.changed |= self.shed_lists(&[], &[ACL_ACCESS], clock, fail);
        }
        if let Some(group) = lists.lost {
            // Beside a list the mode's group bits are the most that any user named in it gets. Without it
            // they would be the group's own.
            mode = (mode & !0o070) | (group << 3);
        }
        if symlink {
            return;
        }
        let wanted = if preserve.mode { Some(mode) } else { self.plain_mode };
        if let Some(wanted) = wanted
            && (lists.changed || self.mode != Some(wanted))
            && let Err(why) = clock.call(For::Metadata, || self.chmod(wanted))
        {
            fail(self.error(ErrorKind::PreserveMode, why));
        }
        if lists.foreign
            && let Err(why) = self.foreign_lists(clock)
        {
            fail(self.error(ErrorKind::PreserveMode, why));
        }
    }

    /// Copies access lists of other kinds than Linux has itself. A target that knows no such list has the
    /// mode, which says what there can be said.
    fn foreign_lists(&self, clock: &mut Clock) -> rustix::io::Result<()> {
        let names = match self.names {
            Some(names) => Cow::Borrowed(names),
            None => Cow::Owned(clock.call(For::Metadata, || self.source.list())?),
        };
        let mut done = Ok(());
        for name in names.split_inclusive(|byte| *byte == 0) {
            let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
            if ACL.contains(&name.to_bytes()) || attributes::class(name) != Class::Permissions {
                continue;
            }
            let value = clock.call(For::Metadata, || self.source.get(name));
            match value.and_then(|value| clock.call(For::Metadata, || self.target.set(name, &value))) {
                // Gone since it was listed, or there are none here: these errors say so (GNU's
                // acl_errno_valid).
                Ok(())
                | Err(Errno::NODATA | Errno::BUSY | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
                Err(why) => done = Err(why),
            }
        }
        done
    }

    /// The times, last of all.
    pub(crate) fn times(&self, clock: &mut Clock, fail: &mut dyn FnMut(Error)) {
        if !self.options.preserve.timestamps && !self.options.resume {
            return;
        }
        let of = |(tv_sec, tv_nsec): (i64, i64)| Timespec { tv_sec, tv_nsec: tv_nsec as _ };
        let times = Timestamps { last_access: of(self.facts.atime), last_modification: of(self.facts.mtime) };
        let set = clock.call(For::Metadata, || match self.target {
            Named::Open(fd) => rustix::fs::futimens(fd, &times),
            Named::Name(at, name) => rustix::fs::utimensat(at, name, &times, AtFlags::SYMLINK_NOFOLLOW),
        });
        if let Err(why) = set {
            fail(self.error(ErrorKind::PreserveTimes, why));
        }
    }

    fn chown(&self, uid: Option<u32>, gid: u32) -> rustix::io::Result<()> {
        match self.target {
            Named::Open(fd) => sys::chown(fd, uid, Some(gid)),
            Named::Name(at, name) => {
                let (uid, gid) = (uid.map(Uid::from_raw), Some(Gid::from_raw(gid)));
                rustix::fs::chownat(at, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
            }
        }
    }

    /// Sets the mode. Where chmod is refused (by a filter, a module or a server), the mode may be right
    /// already, or can be said as a list of owner, group and others: GNU cp sets it so.
    fn chmod(&self, mode: u32) -> rustix::io::Result<()> {
        self.change_mode(Mode::from_raw_mode(mode)).or_else(|why| {
            let has = || self.target.facts().map(|facts| facts.mode & 0o7777);
            if has() == Ok(mode) {
                return Ok(());
            }
            let name = CString::new(ACL_ACCESS).map_err(|_| why)?;
            // A list that is there says more than a mode. setuid and the like are in no list.
            if mode & 0o7000 != 0 || self.target.get(&name).is_ok() {
                return Err(why);
            }
            self.target.set(&name, &mode_as_list(mode)).map_err(|_| why)?;
            if has() == Ok(mode) { Ok(()) } else { Err(why) }
        })
    }

    fn change_mode(&self, mode: Mode) -> rustix::io::Result<()> {
        match self.target {
            Named::Open(fd) => sys::chmod(fd, mode),
            Named::Name(at, name) => {
                // chmod follows links, so the name is held by a descriptor that cannot be a link to
                // elsewhere, and changed through that: by /proc, and where that is missing by a call that
                // there is from Linux 6.6 on.
                let held = rustix::fs::openat(
                    at,
                    name,
                    OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
                    Mode::empty(),
                )?;
                if Facts::from(rustix::fs::fstat(&held)?).kind == FileType::Symlink {
                    return Err(Errno::LOOP);
                }
                let path =
                    CString::new(format!("/proc/self/fd/{}", held.as_raw_fd())).map_err(|_| Errno::INVAL)?;
                match sys::chmod_at(CWD, &path, mode) {
                    // Libraries before libc do not hear of the other call.
                    Err(Errno::NOENT) if self.options.interposed => sys::chmod_at(at, name, mode),
                    Err(Errno::NOENT) => match sys::chmod_held(held.as_fd(), mode) {
                        // Old kernels do not know the call, and old filters forbid it. It was no link a
                        // moment ago, and there is no other way left.
                        Err(Errno::NOSYS | Errno::PERM) => sys::chmod_at(at, name, mode),
                        changed => changed,
                    },
                    changed => changed,
                }
            }
        }
    }

    /// Copies extended attributes and access lists.
    fn attributes(&self, clock: &mut Clock, fail: &mut dyn FnMut(Error)) -> Lists {
        let preserve = self.options.preserve;
        let listed = match self.names {
            Some(names) => Ok(Cow::Borrowed(names)),
            None => clock.call(For::Metadata, || self.source.list()).map(Cow::Owned),
        };
        let names = match listed {
            Ok(names) => names,
            Err(why) => {
                if !matches!(why, Errno::OPNOTSUPP | Errno::NOSYS) {
                    self.left(why, fail);
                }
                Cow::Owned(if preserve.mode { self.lists_by_name(clock) } else { Vec::new() })
            }
        };
        let changed = preserve.mode && self.shed_lists(&names, ACL, clock, fail);
        let mut lists = Lists { changed, ..Lists::default() };
        for name in names.split_inclusive(|byte| *byte == 0) {
            let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
            let acl = ACL.contains(&name.to_bytes());
            let wanted = match attributes::class(name) {
                // Of lists that Linux knows nothing of the mode must be set first: setting it changes them.
                Class::Permissions if !acl => {
                    lists.foreign |= preserve.mode;
                    false
                }
                Class::Permissions => preserve.mode,
                Class::Skip => false,
                Class::Other => preserve.xattr != Demand::No,
            };
            if !wanted {
                continue;
            }
            let value = clock.call(For::Metadata, || self.source.get(name));
            let copied = match &value {
                Ok(value) => clock.call(For::Metadata, || match self.target.set(name, value) {
                    Err(Errno::ACCESS) if !acl => self.set_as_writer(name, value),
                    set => set,
                }),
                Err(why) => Err(*why),
            };
            match copied {
                Ok(()) => lists.changed |= acl,
                // Gone since it was listed.
                Err(Errno::NODATA) => {}
                Err(why) if acl => {
                    let access = name.to_bytes() == ACL_ACCESS;
                    // What says no more than a mode, a file system without lists keeps too. A default list is
                    // no right to this directory, and GNU cp does without it there.
                    let more = access && value.as_ref().is_ok_and(|list| list.len() > MODE_AS_LIST_BYTES);
                    if more || !has_no_lists(why) {
                        fail(self.error(ErrorKind::PreserveMode, why));
                        if access {
                            lists.lost = Some(group_of(&value.unwrap_or_default()));
                        }
                    }
                }
                Err(why) => self.left(why, fail),
            }
        }
        lists
    }

    /// Reports an attribute that was not copied, as far as that is wanted.
    fn left(&self, why: Errno, fail: &mut dyn FnMut(Error)) {
        // That the target has no attributes is no news, unless there is nothing else to copy.
        let no_news = matches!(why, Errno::OPNOTSUPP | Errno::NODATA) && !self.options.attributes_only;
        match self.options.preserve.xattr {
            Demand::Must => fail(self.error(ErrorKind::PreserveXattr, why)),
            Demand::Warn if !no_news => fail(self.error(ErrorKind::LeftXattr, why)),
            Demand::No | Demand::Try | Demand::Warn => {}
        }
    }

    /// Returns the names of the source's access lists where its attributes cannot be listed: they decide what
    /// the mode's group bits mean, so they are asked for one by one. What cannot be told is taken for one.
    fn lists_by_name(&self, clock: &mut Clock) -> Vec<u8> {
        let mut names = Vec::new();
        let kind = self.facts.kind;
        for list in ACL.iter().filter(|list| **list == ACL_ACCESS || kind == FileType::Directory) {
            let Ok(name) = CString::new(*list) else { continue };
            let there = kind != FileType::Symlink
                && match clock.call(For::Metadata, || self.source.get(&name)) {
                    Ok(_) => true,
                    Err(why) => why != Errno::NODATA && !has_no_lists(why),
                };
            if there {
                names.extend_from_slice(name.as_bytes_with_nul());
            }
        }
        names
    }

    /// Sets an attribute of a copy that its owner may not write, as its source was: Linux asks for that
    /// right, also of a process that has the file open (`xattr_permission`). So it is given for this moment.
    fn set_as_writer(&self, attribute: &CStr, value: &[u8]) -> rustix::io::Result<()> {
        let Named::Open(fd) = self.target else { return Err(Errno::ACCESS) };
        let mode = Mode::from_raw_mode(rustix::fs::fstat(fd)?.st_mode & 0o7777);
        sys::chmod(fd, mode | Mode::WUSR)?;
        let set = self.target.set(attribute, value);
        sys::chmod(fd, mode).and(set)
    }

    /// Removes those of `lists` that the source has not: what is made in a directory with a default list
    /// inherits from it. Returns whether there was one. Not asked where the mode came out as wanted, which it
    /// does not under such a list.
    fn shed_lists(
        &self,
        names: &[u8],
        lists: &[&[u8]],
        clock: &mut Clock,
        fail: &mut dyn FnMut(Error),
    ) -> bool {
        let directory = self.facts.kind == FileType::Directory;
        if !directory && self.mode.is_some() {
            return false;
        }
        let Ok(inherited) = clock.call(For::Metadata, || self.target.list()) else { return false };
        let has = |names: &[u8], list: &[u8]| names.split(|byte| *byte == 0).any(|name| name == list);
        let mut shed = false;
        for list in lists.iter().filter(|list| has(&inherited, list) && !has(names, list)) {
            let Ok(name) = CString::new(*list) else { continue };
            match clock.call(For::Metadata, || self.target.remove(&name)) {
                Ok(()) => shed = true,
                Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
                Err(why) => fail(self.error(ErrorKind::SetMode, why)),
            }
        }
        shed
    }

    /// Returns an error, of which the caller fills in the path.
    fn error(&self, kind: ErrorKind, why: Errno) -> Error {
        Error::system(kind, std::path::PathBuf::new(), why)
    }
}

impl Named<'_> {
    /// Returns a path that needs no resolution of what is above, for calls without an `at` form.
    fn path(&self) -> Option<CString> {
        let Named::Name(at, name) = self else { return None };
        let mut path = format!("/proc/self/fd/{}/", at.as_raw_fd()).into_bytes();
        path.extend_from_slice(name.to_bytes());
        CString::new(path).ok()
    }

    fn facts(&self) -> rustix::io::Result<Facts> {
        match self {
            Named::Open(fd) => rustix::fs::fstat(fd).map(Facts::from),
            Named::Name(at, name) => crate::dir::lstat(*at, name),
        }
    }

    /// Returns the attributes' names, each with its NUL.
    pub(crate) fn list(&self) -> rustix::io::Result<Vec<u8>> {
        let listed = grow(|buffer| match (self, self.path()) {
            (Named::Open(fd), _) => rustix::fs::flistxattr(fd, buffer),
            (_, Some(path)) => rustix::fs::llistxattr(&path, buffer),
            (_, None) => Ok(0),
        });
        match (self, listed) {
            // Without /proc nothing can be asked about by name. It is no file or directory, which have nearly
            // all there are.
            (Named::Name(at, name), Err(Errno::NOENT)) if crate::dir::lstat(*at, name).is_ok() => {
                Ok(Vec::new())
            }
            (_, listed) => listed,
        }
    }

    fn get(&self, attribute: &CStr) -> rustix::io::Result<Vec<u8>> {
        grow(|buffer| match (self, self.path()) {
            (Named::Open(fd), _) => rustix::fs::fgetxattr(fd, attribute, buffer),
            (_, Some(path)) => rustix::fs::lgetxattr(&path, attribute, buffer),
            (_, None) => Ok(0),
        })
    }

    fn set(&self, attribute: &CStr, value: &[u8]) -> rustix::io::Result<()> {
        match (self, self.path()) {
            (Named::Open(fd), _) => rustix::fs::fsetxattr(fd, attribute, value, XattrFlags::empty()),
            (_, Some(path)) => rustix::fs::lsetxattr(&path, attribute, value, XattrFlags::empty()),
            (_, None) => Ok(()),
        }
    }

    fn remove(&self, attribute: &CStr) -> rustix::io::Result<()> {
        match (self, self.path()) {
            (Named::Open(fd), _) => rustix::fs::fremovexattr(fd, attribute),
            (_, Some(path)) => rustix::fs::lremovexattr(&path, attribute),
            (_, None) => Ok(()),
        }
    }

    /// Returns whether there is any attribute that a new file in its place would lack.
    pub(crate) fn has_attributes(&self) -> bool {
        !matches!(self.list(), Ok(names) if names.is_empty())
            && !matches!(self.list(), Err(Errno::OPNOTSUPP | Errno::NOSYS))
    }
}

/// The most that the kernel gives of one attribute, and of a list of names (`XATTR_SIZE_MAX`,
/// `XATTR_LIST_MAX`).
const ATTRIBUTE_BYTES_MAX: usize = 64 << 10;

/// Asks with a small buffer, then with one that everything fits into. An empty buffer would not do to ask for
/// the size: rustix answers that with 0.
fn grow(mut ask: impl FnMut(&mut [u8]) -> rustix::io::Result<usize>) -> rustix::io::Result<Vec<u8>> {
    let mut small = [0_u8; 256];
    match ask(&mut small) {
        Ok(length) => return Ok(small.get(..length).unwrap_or_default().to_vec()),
        Err(Errno::RANGE) => {}
        Err(why) => return Err(why),
    }
    let mut large = vec![0; ATTRIBUTE_BYTES_MAX];
    let length = ask(&mut large)?;
    large.truncate(length);
    large.shrink_to_fit();
    Ok(large)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owning_groups_rights_are_told_from_what_a_list_gives_others() {
        let list = |entries: &[(u8, u8)]| {
            let mut bytes = vec![2, 0, 0, 0];
            entries.iter().for_each(|(tag, rights)| bytes.extend([*tag, 0, *rights, 0, 1, 0, 0, 0]));
            bytes
        };
        // user::rw-, user:1:rw-, group::---, mask::rw-, other::---
        assert_eq!(group_of(&list(&[(1, 6), (2, 6), (4, 0), (0x10, 6), (0x20, 0)])), 0);
        assert_eq!(group_of(&list(&[(1, 6), (4, 7), (8, 7), (0x10, 5), (0x20, 0)])), 5);
        assert_eq!(group_of(&list(&[(1, 6), (4, 4), (0x20, 0)])), 4);
        assert_eq!(group_of(b"what is no list"), 0);
        assert_eq!(list(&[(1, 6), (4, 4), (0x20, 0)]).len(), MODE_AS_LIST_BYTES);
    }
}
