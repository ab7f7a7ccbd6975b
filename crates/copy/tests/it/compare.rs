//! Two trees, compared entry by entry by plain calls: what differs, in words.
//!
//! Written against the same manual pages as the copier but not with its code. [`differences`] walks both
//! trees by directory descriptor, so that no path is too long; `rsync` is a second opinion
//! ([`rsync_differences`]).

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, SeekFrom, Stat, chmodat, fgetxattr, flistxattr, lgetxattr,
    llistxattr, open, openat, readlinkat, seek, statat,
};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is compared beside names, types, contents, targets of links and device numbers, which always are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Aspects {
    pub(crate) modes: bool,
    pub(crate) owners: bool,
    /// Modification times of everything but symbolic links and directories.
    pub(crate) times: bool,
    pub(crate) times_of_links_and_directories: bool,
    /// Which names are names of one file.
    pub(crate) links: bool,
    /// Extended attributes, access control lists among them.
    pub(crate) attributes: bool,
    /// Where data begins and ends in a sparse file.
    pub(crate) holes: bool,
}

/// Everything `-a` keeps.
pub(crate) const ALL: Aspects = Aspects {
    modes: true,
    owners: true,
    times: true,
    times_of_links_and_directories: true,
    links: true,
    attributes: true,
    holes: true,
};

/// What two programs that did the same at different moments leave alike.
pub(crate) const TIMELESS: Aspects = Aspects { times: false, times_of_links_and_directories: false, ..ALL };

/// Names and contents alone.
pub(crate) const CONTENTS: Aspects =
    Aspects { modes: false, owners: false, links: false, attributes: false, holes: false, ..TIMELESS };

/// What differs between two directories, a line each; empty if nothing does.
pub(crate) fn differences(expected: &Path, found: &Path, aspects: Aspects) -> Vec<String> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let open =
        |path: &Path| open(path, flags, Mode::empty()).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let mut compared = Compared {
        aspects,
        lines: Vec::new(),
        names: [HashMap::new(), HashMap::new()],
        path: PathBuf::new(),
    };
    let (expected, found) = (open(expected), open(found));
    let same = statat(&expected, ".", AtFlags::empty()).unwrap();
    let other = statat(&found, ".", AtFlags::empty()).unwrap();
    compared.properties(&same, &other);
    compared.attributes_of(expected.as_fd(), found.as_fd());
    compared.directory(expected.as_fd(), found.as_fd());
    if aspects.links {
        compared.groups();
    }
    compared.lines
}

struct Compared {
    aspects: Aspects,
    lines: Vec<String>,
    /// Names by device and inode, on both sides.
    names: [HashMap<(u64, u64), BTreeSet<PathBuf>>; 2],
    path: PathBuf,
}

impl Compared {
    fn differ(&mut self, what: &str, expected: impl std::fmt::Debug, found: impl std::fmt::Debug) {
        self.lines.push(format!("{:?}: {what}: {found:?}, expected {expected:?}", self.path));
    }

    fn same<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, expected: T, found: T) {
        if expected != found {
            self.differ(what, expected, found);
        }
    }

    fn directory(&mut self, expected: BorrowedFd<'_>, found: BorrowedFd<'_>) {
        let (there, here) = (entries(expected), entries(found));
        for name in there.difference(&here) {
            self.lines.push(format!("{:?}: missing", self.path.join(name)));
        }
        for name in here.difference(&there) {
            self.lines.push(format!("{:?}: nobody expects it", self.path.join(name)));
        }
        for name in there.intersection(&here) {
            self.path.push(name);
            self.entry(expected, found, name);
            self.path.pop();
        }
    }

    fn entry(&mut self, expected: BorrowedFd<'_>, found: BorrowedFd<'_>, name: &OsStr) {
        let (there, here) = (
            statat(expected, name, AtFlags::SYMLINK_NOFOLLOW),
            statat(found, name, AtFlags::SYMLINK_NOFOLLOW),
        );
        let (there, here) = (there.unwrap(), here.unwrap());
        let (kind, other) = (FileType::from_raw_mode(there.st_mode), FileType::from_raw_mode(here.st_mode));
        if kind != other {
            return self.differ("type", kind, other);
        }
        self.properties(&there, &here);
        if kind != FileType::Directory {
            for (side, about) in [&there, &here].into_iter().enumerate() {
                if about.st_nlink > 1 {
                    let names = self.names[side].entry((about.st_dev, about.st_ino)).or_default();
                    names.insert(self.path.clone());
                }
            }
        }
        match kind {
            FileType::Directory => {
                let (there, here) = (descend(expected, name), descend(found, name));
                self.attributes_of(there.as_fd(), here.as_fd());
                self.directory(there.as_fd(), here.as_fd());
            }
            FileType::RegularFile => {
                let (there, here) = (read(expected, name), read(found, name));
                self.attributes_of(there.as_fd(), here.as_fd());
                self.contents(there, here);
            }
            FileType::Symlink => {
                let (there, here) = (readlinkat(expected, name, vec![]), readlinkat(found, name, vec![]));
                self.same("target", there.unwrap(), here.unwrap());
                if self.aspects.attributes {
                    let (there, here) = (attributes_of_link(expected, name), attributes_of_link(found, name));
                    self.same("attributes", there, here);
                }
            }
            FileType::CharacterDevice | FileType::BlockDevice => {
                self.same("device", there.st_rdev, here.st_rdev)
            }
            _ => {}
        }
    }

    fn properties(&mut self, there: &Stat, here: &Stat) {
        let kind = FileType::from_raw_mode(there.st_mode);
        if self.aspects.modes && kind != FileType::Symlink {
            let mode = |about: &Stat| format!("{:04o}", about.st_mode & 0o7777);
            self.same("mode", mode(there), mode(here));
        }
        if self.aspects.owners {
            self.same("owner", (there.st_uid, there.st_gid), (here.st_uid, here.st_gid));
        }
        let timed = match kind {
            FileType::Symlink | FileType::Directory => self.aspects.times_of_links_and_directories,
            _ => self.aspects.times,
        };
        if timed {
            self.same("time", (there.st_mtime, there.st_mtime_nsec), (here.st_mtime, here.st_mtime_nsec));
        }
        if kind == FileType::RegularFile {
            self.same("size", there.st_size, here.st_size);
        }
    }

    fn contents(&mut self, mut there: File, mut here: File) {
        let (data_there, data_here) = (segments(&there), segments(&here));
        if self.aspects.holes {
            // What was written may be padded to a block or left out where it is zeros: the copy has no data
            // where its source has none.
            let more =
                data_here.iter().find(|segment| !data_there.iter().any(|other| covers(*other, **segment)));
            if let Some(more) = more {
                self.differ("data in a hole", &data_there, more);
            }
        }
        // Reading data alone lets a test have a file of a tebibyte.
        let mut all: Vec<(u64, u64)> = data_there.into_iter().chain(data_here).collect();
        all.sort_unstable();
        for (begin, end) in all {
            let mut position = begin;
            while position < end {
                let length = (end - position).min(1 << 20) as usize;
                let (expected, found) =
                    (piece(&mut there, position, length), piece(&mut here, position, length));
                if expected != found {
                    let place = expected.iter().zip(&found).position(|(a, b)| a != b);
                    let place = position + place.unwrap_or(expected.len().min(found.len())) as u64;
                    return self.lines.push(format!("{:?}: contents differ at byte {place}", self.path));
                }
                position += length as u64;
            }
        }
    }

    fn attributes_of(&mut self, there: BorrowedFd<'_>, here: BorrowedFd<'_>) {
        if self.aspects.attributes {
            let (there, here) = (attributes(there), attributes(here));
            self.same("attributes", there, here);
        }
    }

    /// Names that belong together on one side belong together on the other.
    fn groups(&mut self) {
        let groups = |names: &HashMap<(u64, u64), BTreeSet<PathBuf>>| {
            names.values().filter(|group| group.len() > 1).cloned().collect::<BTreeSet<_>>()
        };
        let (there, here) = (groups(&self.names[0]), groups(&self.names[1]));
        for group in there.difference(&here) {
            self.lines.push(format!("{group:?}: no longer names of one file"));
        }
        for group in here.difference(&there) {
            self.lines.push(format!("{group:?}: names of one file, which they were not"));
        }
    }
}

fn covers((begin, end): (u64, u64), (inner_begin, inner_end): (u64, u64)) -> bool {
    begin <= inner_begin && inner_end <= end
}

/// The names in a directory, which have not been read from this descriptor yet.
fn entries(directory: BorrowedFd<'_>) -> BTreeSet<OsString> {
    // Not by `Dir::read_from`, which looks for ".": that takes the right to search.
    let entries = Dir::new(rustix::io::dup(directory).unwrap()).unwrap().map(|entry| entry.unwrap());
    let names = entries.map(|entry| OsStr::from_bytes(entry.file_name().to_bytes()).to_os_string());
    names.filter(|name| name != "." && name != "..").collect()
}

fn descend(at: BorrowedFd<'_>, name: &OsStr) -> OwnedFd {
    to_read(at, name, OFlags::DIRECTORY)
}

fn read(at: BorrowedFd<'_>, name: &OsStr) -> File {
    File::from(to_read(at, name, OFlags::empty()))
}

/// Opens an entry, also one that its owner may not read. If this process is the owner, it grants itself the
/// right for that moment.
fn to_read(at: BorrowedFd<'_>, name: &OsStr, kind: OFlags) -> OwnedFd {
    let flags = kind | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || openat(at, name, flags, Mode::empty());
    let opened = open().or_else(|error| {
        if error != Errno::ACCESS {
            return Err(error);
        }
        let mode = Mode::from_raw_mode(statat(at, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode & 0o7777);
        chmodat(at, name, mode | Mode::RUSR, AtFlags::empty())?;
        let opened = open();
        chmodat(at, name, mode, AtFlags::empty())?;
        opened
    });
    opened.unwrap_or_else(|error| panic!("{name:?}: {error}"))
}

fn piece(file: &mut File, position: u64, length: usize) -> Vec<u8> {
    seek(&*file, SeekFrom::Start(position)).unwrap();
    let mut bytes = Vec::new();
    file.take(length as u64).read_to_end(&mut bytes).unwrap();
    bytes
}

/// Where data lies, neighbours joined.
fn segments(file: &File) -> Vec<(u64, u64)> {
    let mut found: Vec<(u64, u64)> = Vec::new();
    let mut position = 0;
    while let Ok(begin) = seek(file, SeekFrom::Data(position)) {
        let end = seek(file, SeekFrom::Hole(begin)).unwrap();
        match found.last_mut() {
            Some(last) if last.1 == begin => last.1 = end,
            _ => found.push((begin, end)),
        }
        position = end;
    }
    found
}

type Attributes = BTreeMap<OsString, Vec<u8>>;

fn attributes(of: BorrowedFd<'_>) -> Attributes {
    let mut names = vec![0; 65_536];
    let Ok(length) = flistxattr(of, &mut names) else { return Attributes::new() };
    let value = |name: &CString| {
        let mut value = vec![0; 65_536];
        let length = fgetxattr(of, name, &mut value).unwrap();
        value.truncate(length);
        value
    };
    split(&names[..length]).into_iter().map(|name| (text(&name), value(&name))).collect()
}

fn attributes_of_link(at: BorrowedFd<'_>, name: &OsStr) -> Attributes {
    let path = PathBuf::from(format!("/proc/self/fd/{}", at.as_raw_fd())).join(name);
    let mut names = vec![0; 65_536];
    let Ok(length) = llistxattr(&path, &mut names) else { return Attributes::new() };
    let value = |name: &CString| {
        let mut value = vec![0; 65_536];
        let length = lgetxattr(&path, name, &mut value).unwrap();
        value.truncate(length);
        value
    };
    split(&names[..length]).into_iter().map(|name| (text(&name), value(&name))).collect()
}

fn split(names: &[u8]) -> Vec<CString> {
    names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| CString::new(name).unwrap())
        .collect()
}

fn text(name: &CString) -> OsString {
    OsString::from_vec(name.as_bytes().to_vec())
}

/// What `rsync` would still have to do to make `found` equal to `expected`; nothing if all is well. `None`
/// where rsync is not installed.
pub(crate) fn rsync_differences(expected: &Path, found: &Path) -> Option<String> {
    let slash = |path: &Path| {
        let mut path = path.as_os_str().to_os_string();
        path.push("/");
        path
    };
    let ran = Command::new("rsync")
        .args(["-aHAXSn", "--delete", "--checksum", "--itemize-changes"])
        .args([slash(expected), slash(found)])
        .output();
    let output = match ran {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        ran => ran.unwrap(),
    };
    Some(format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)))
}
