//! Unpacks shards: each entry below one folder, checked against the shard's index where there is one.
//!
//! Nothing is made outside the folder: a path with `..` or from the root is an error, each directory is
//! opened in the one before, and no link is followed. Directories get their modes and times when all shards
//! are unpacked. Start at [`unpack`].

use super::tar::{Head, Kind, Reader, padding};
use super::{GATHERED_BYTES, Indexed, index_of};
use crate::dir::OPEN_DIRECTORY;
use crate::error::{Error, ErrorKind};
use crate::listing::path_of;
use crate::parts::Part;
use crate::report::{Control, Event, Observer};
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Timespec, Timestamps, Uid};
use rustix::io::Errno;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Zeros that become a hole.
const HOLE_BYTES: usize = 4096;

/// How shards are unpacked.
#[derive(Clone, Copy, Debug)]
pub struct Unpacking {
    /// Entries get their owners and special bits, which takes privilege.
    pub owners: bool,
    /// The shards of one part: every N-th.
    pub part: Option<Part>,
    /// Shards at a time.
    pub jobs: usize,
    /// A shard without an index is an error.
    pub needs_index: bool,
}

/// What was unpacked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unpacked {
    /// Shards.
    pub shards: u64,
    /// Entries.
    pub entries: u64,
    /// Bytes of files.
    pub bytes: u64,
    /// Files that are as their index has them.
    pub verified: u64,
    /// Files that are not, and were removed.
    pub mismatches: u64,
    /// Errors, which were reported; mismatches among them.
    pub errors: u64,
    /// It was stopped.
    pub cancelled: bool,
}

#[derive(Default)]
struct Totals {
    shards: AtomicU64,
    entries: AtomicU64,
    bytes: AtomicU64,
    verified: AtomicU64,
    mismatches: AtomicU64,
    errors: AtomicU64,
}

struct Work<'a> {
    root: OwnedFd,
    folder: &'a Path,
    unpacking: &'a Unpacking,
    observer: &'a dyn Observer,
    control: &'a Control,
    totals: Totals,
    /// Directories that get their attributes at the end.
    directories: Mutex<Vec<Head>>,
}

/// Unpacks shards into `folder`, which is made if it is not there. What is there of an entry's name is
/// replaced. Errors are reported to the observer, and the rest is unpacked.
pub fn unpack(
    shards: &[PathBuf],
    folder: &Path,
    unpacking: &Unpacking,
    observer: &dyn Observer,
    control: &Control,
) -> io::Result<Unpacked> {
    std::fs::create_dir_all(folder)?;
    let root = rustix::fs::openat(CWD, folder, OPEN_DIRECTORY, Mode::empty())?;
    let (totals, directories) = (Totals::default(), Mutex::default());
    let work = Work { root, folder, unpacking, observer, control, totals, directories };
    let own: Vec<&PathBuf> = shards
        .iter()
        .enumerate()
        .filter(|(at, _)| {
            let part = unpacking.part;
            part.is_none_or(|part| at % (part.count.max(1) as usize) == part.index as usize)
        })
        .map(|(_, shard)| shard)
        .collect();
    let next = AtomicUsize::new(0);
    crate::threads::together(unpacking.jobs.clamp(1, own.len().max(1)), || {
        while let Some(shard) = own.get(next.fetch_add(1, Ordering::Relaxed)) {
            if control.is_cancelled() {
                return;
            }
            match work.shard(shard) {
                Ok(()) => drop(work.totals.shards.fetch_add(1, Ordering::Relaxed)),
                Err(why) => work.tell(Error {
                    kind: ErrorKind::Read,
                    path: shard.to_path_buf(),
                    other: None,
                    source: Some(why),
                }),
            }
        }
    });
    work.finish_directories();
    let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let totals = &work.totals;
    Ok(Unpacked {
        shards: of(&totals.shards),
        entries: of(&totals.entries),
        bytes: of(&totals.bytes),
        verified: of(&totals.verified),
        mismatches: of(&totals.mismatches),
        errors: of(&totals.errors),
        cancelled: control.is_cancelled(),
    })
}

/// An index that is read along with its shard.
struct Index(io::Lines<BufReader<File>>);

impl Index {
    fn of(shard: &Path) -> io::Result<Option<Index>> {
        match File::open(index_of(shard)) {
            Ok(file) => Ok(Some(Index(BufReader::new(file).lines()))),
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(why) => Err(why),
        }
    }

    /// Returns the hash of the next file, which must be this one.
    fn hash(&mut self, head: &Head) -> io::Result<blake3::Hash> {
        use base64::Engine as _;
        let line = self.0.next().ok_or_else(|| io::Error::other("the index ends before the shard"))??;
        let Indexed { path, path_b64, size, blake3, .. } = serde_json::from_str(&line)?;
        let path = match path_b64 {
            Some(bytes) => base64::engine::general_purpose::STANDARD.decode(bytes).unwrap_or_default(),
            None => path.into_bytes(),
        };
        if path != head.path || size != head.size {
            return Err(io::Error::other("the index is of another shard"));
        }
        blake3::Hash::from_hex(blake3).map_err(io::Error::other)
    }
}

/// Why an entry was not made.
enum Failed {
    Entry(io::Error),
    Shard(io::Error),
}

impl From<Errno> for Failed {
    fn from(why: Errno) -> Failed {
        Failed::Entry(why.into())
    }
}

impl From<io::Error> for Failed {
    fn from(why: io::Error) -> Failed {
        Failed::Entry(why)
    }
}

impl Work<'_> {
    fn tell(&self, error: Error) {
        self.totals.errors.fetch_add(1, Ordering::Relaxed);
        self.observer.event(Event::Error(&error));
    }

    fn shard(&self, shard: &Path) -> io::Result<()> {
        let mut index = Index::of(shard)?;
        if index.is_none() && self.unpacking.needs_index {
            return Err(io::Error::other("it has no index beside it"));
        }
        let input = BufReader::with_capacity(1 << 20, File::open(shard)?);
        let mut reader = Reader { input };
        let mut entered = None;
        while let Some(head) = reader.next()? {
            if self.control.is_cancelled() {
                return Ok(());
            }
            let expected = match (&mut index, head.kind) {
                (Some(index), Kind::File) => Some(index.hash(&head)?),
                _ => None,
            };
            let mut left = head.size + padding(head.size) as u64;
            let path = || self.folder.join(path_of(&head.path));
            match self.entry(&head, &mut reader.input, &mut left, expected, &mut entered) {
                Ok(()) => drop(self.totals.entries.fetch_add(1, Ordering::Relaxed)),
                Err(Failed::Entry(why)) => {
                    let error =
                        Error { kind: ErrorKind::Create, path: path(), other: None, source: Some(why) };
                    self.tell(error);
                }
                Err(Failed::Shard(why)) => return Err(why),
            }
            // What is left of it, and what fills its last block.
            let skipped = io::copy(&mut Read::take(&mut reader.input, left), &mut io::sink())?;
            if skipped != left {
                return Err(io::Error::other("the archive was cut off"));
            }
        }
        match index.map(|mut index| index.0.next()) {
            Some(Some(_)) => {
                Err(io::Error::other("the shard ends before its index, so files are missing in it"))
            }
            Some(None) | None => Ok(()),
        }
    }

    fn entry(
        &self,
        head: &Head,
        input: &mut impl Read,
        left: &mut u64,
        expected: Option<blake3::Hash>,
        entered: &mut Option<(Vec<u8>, OwnedFd)>,
    ) -> Result<(), Failed> {
        let path = plain(&head.path)?;
        let Some((folder, name)) = path.split_last().map(|(name, folder)| (folder, *name)) else {
            // The root of an archive that was made of `.`.
            return Ok(());
        };
        let folder = folder.join(&b'/');
        if entered.as_ref().is_none_or(|(path, _)| *path != folder) {
            *entered = Some((folder.clone(), self.enter(&folder)?));
        }
        let Some((_, at)) = entered.as_ref() else { return Err(Errno::NOENT.into()) };
        let name = OsStr::from_bytes(name);
        match head.kind {
            Kind::Directory => {
                match rustix::fs::mkdirat(at, name, Mode::RWXU) {
                    Ok(()) => {}
                    Err(Errno::EXIST) => {
                        let flags = OPEN_DIRECTORY | OFlags::NOFOLLOW;
                        rustix::fs::openat(at, name, flags, Mode::empty())?;
                    }
                    Err(why) => return Err(why.into()),
                }
                self.directories.lock().unwrap_or_else(PoisonError::into_inner).push(head.clone());
            }
            Kind::Symlink => {
                remove(at, name)?;
                rustix::fs::symlinkat(head.link.as_slice(), at, name)?;
                self.attributes(at, name, head)?;
            }
            Kind::HardLink => {
                let link = plain(&head.link)?;
                let (first, above) =
                    link.split_last().ok_or_else(|| io::Error::other("a hard link to nothing"))?;
                let above = self.enter(&above.join(&b'/'))?;
                remove(at, name)?;
                rustix::fs::linkat(&above, OsStr::from_bytes(first), at, name, AtFlags::empty())?;
            }
            Kind::File => {
                remove(at, name)?;
                let flags =
                    OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = File::from(rustix::fs::openat(at, name, flags, Mode::RUSR | Mode::WUSR)?);
                let hash = match self.contents(&file, input, head.size, left, expected.is_some()) {
                    Ok(hash) => hash,
                    Err(why) => {
                        // What is there of it is no file of the shard.
                        let _ = rustix::fs::unlinkat(at, name, AtFlags::empty());
                        return Err(why);
                    }
                };
                if let Some(expected) = expected {
                    if hash != Some(expected) {
                        let _ = rustix::fs::unlinkat(at, name, AtFlags::empty());
                        self.totals.mismatches.fetch_add(1, Ordering::Relaxed);
                        let path = self.folder.join(path_of(&head.path));
                        self.tell(Error::plain(ErrorKind::Mismatch, path));
                        return Ok(());
                    }
                    self.totals.verified.fetch_add(1, Ordering::Relaxed);
                }
                self.attributes(at, name, head)?;
                self.totals.bytes.fetch_add(head.size, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Writes the contents of a file, with holes where there are zeros. `left`: what of it and its padding
    /// was not read.
    fn contents(
        &self,
        mut file: &File,
        input: &mut impl Read,
        size: u64,
        left: &mut u64,
        hashes: bool,
    ) -> Result<Option<blake3::Hash>, Failed> {
        let mut hasher = hashes.then(blake3::Hasher::new);
        let mut room = vec![0; (size as usize).min(GATHERED_BYTES)];
        let written = Failed::Entry;
        let (mut rest, mut hole) = (size, false);
        while rest > 0 {
            let want = rest.min(room.len() as u64) as usize;
            let piece = room.get_mut(..want).unwrap_or_default();
            input
                .read_exact(piece)
                .map_err(|_| Failed::Shard(io::Error::other("the archive was cut off")))?;
            *left -= want as u64;
            rest -= want as u64;
            if let Some(hasher) = &mut hasher {
                hasher.update(piece);
            }
            let is_hole = |block: &&[u8]| block.len() == HOLE_BYTES && block.iter().all(|byte| *byte == 0);
            let mut blocks = piece.chunks(HOLE_BYTES).peekable();
            let mut start = 0;
            while blocks.peek().is_some() {
                let zeros = std::iter::from_fn(|| blocks.next_if(is_hole)).count() * HOLE_BYTES;
                let data: usize =
                    std::iter::from_fn(|| blocks.next_if(|block| !is_hole(block))).map(<[u8]>::len).sum();
                if zeros > 0 {
                    file.seek(SeekFrom::Current(zeros as i64)).map_err(written)?;
                }
                hole = data == 0;
                let bytes = piece.get(start + zeros..start + zeros + data).unwrap_or_default();
                file.write_all(bytes).map_err(written)?;
                start += zeros + data;
            }
        }
        if hole {
            file.set_len(size).map_err(written)?;
        }
        Ok(hasher.map(|hasher| hasher.finalize()))
    }

    /// Gives an entry owner, mode and time, in this order.
    fn attributes(&self, at: &OwnedFd, name: &OsStr, head: &Head) -> Result<(), Errno> {
        let of = |number: u64| u32::try_from(number).ok();
        if self.unpacking.owners {
            let (user, group) = (of(head.uid).map(Uid::from_raw), of(head.gid).map(Gid::from_raw));
            rustix::fs::chownat(at, name, user, group, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        if head.kind != Kind::Symlink {
            let bits = if self.unpacking.owners { 0o7777 } else { 0o777 };
            let name = CString::new(name.as_bytes()).map_err(|_| Errno::INVAL)?;
            crate::sys::chmod_at(at, &name, Mode::from_raw_mode(head.mode & bits))?;
        }
        let time = Timespec { tv_sec: head.mtime.0, tv_nsec: head.mtime.1.into() };
        let times = Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(at, name, &times, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// The deepest first, so that nothing changes in a directory that has its time.
    fn finish_directories(&self) {
        let mut directories =
            std::mem::take(&mut *self.directories.lock().unwrap_or_else(PoisonError::into_inner));
        directories.sort_by(|one, other| other.path.cmp(&one.path));
        for head in directories {
            let given = plain(&head.path).and_then(|path| {
                let Some((name, above)) = path.split_last() else { return Ok(()) };
                let above = self.enter(&above.join(&b'/'))?;
                Ok(self.attributes(&above, OsStr::from_bytes(name), &head)?)
            });
            if let Err(why) = given {
                let path = self.folder.join(path_of(&head.path));
                self.tell(Error { kind: ErrorKind::SetMode, path, other: None, source: Some(why) });
            }
        }
    }

    /// Opens a directory below the folder, making what is not there.
    fn enter(&self, folder: &[u8]) -> Result<OwnedFd, Errno> {
        let mut here = rustix::fs::openat(&self.root, c".", OPEN_DIRECTORY, Mode::empty())?;
        for part in folder.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            let name = OsStr::from_bytes(part);
            let open = || rustix::fs::openat(&here, name, OPEN_DIRECTORY | OFlags::NOFOLLOW, Mode::empty());
            here = match open() {
                Err(Errno::NOENT) => {
                    match rustix::fs::mkdirat(&here, name, Mode::from_raw_mode(0o777)) {
                        // Another shard made it meanwhile.
                        Ok(()) | Err(Errno::EXIST) => open()?,
                        Err(why) => return Err(why),
                    }
                }
                opened => opened?,
            };
        }
        Ok(here)
    }
}

/// Returns the parts of a path that stays below the folder.
fn plain(path: &[u8]) -> io::Result<Vec<&[u8]>> {
    if path.starts_with(b"/") {
        return Err(io::Error::other("an absolute path, which would lead out of the folder"));
    }
    if path.contains(&0) {
        return Err(io::Error::other("a zero byte in the path"));
    }
    let parts: Vec<&[u8]> =
        path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b".")).collect();
    match parts.contains(&b"..".as_slice()) {
        true => Err(io::Error::other("`..` in the path, which would lead out of the folder")),
        false => Ok(parts),
    }
}

/// Removes what has an entry's name, unless it is a directory.
fn remove(at: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    match rustix::fs::unlinkat(at, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(why) => Err(why),
    }
}
