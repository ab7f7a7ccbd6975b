//! Packing a tree of small files into tar shards, and back.
//!
//! The same tree makes the same shards, byte by byte, on each machine: entries are in the order of the bytes
//! of their paths, and which shard an entry is in follows from paths and sizes. Files with names that are
//! equal up to the first point (`7.jpg`, `7.json`) are a sample of WebDataset and stay together. Shards are
//! plain tar archives (`tar.rs`) that need each other for nothing: names of one file in different shards
//! have the contents each. Beside a shard is its index, a JSON line for each file with the place of its
//! bytes and their hash. Start at [`pack`]; the way back is `unpack.rs`.

mod tar;
mod unpack;

use crate::dir::OPEN_DIRECTORY;
use crate::error::{Error, ErrorKind, Refusal};
use crate::exclude::Excluded;
use crate::leftover::{self, Maker};
use crate::listing::{self, Kind, NotMade, Record, path_of};
use crate::lists::ListError;
use crate::options::Options;
use crate::parts::Part;
use crate::plan::Facts;
use crate::report::{Control, Event, Observer};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use tar::{BLOCK, Head, header, padding};
pub use unpack::{Unpacked, Unpacking, unpack};

/// Bytes that are gathered before they are written.
const GATHERED_BYTES: usize = 4 << 20;
/// Entries of one shard that are held in memory at most; a shard ends there, whatever its size.
const ENTRIES_MAX: usize = 1 << 20;
/// What a header takes of a shard when shards are divided; long names take more.
const HEAD_BYTES: u64 = BLOCK as u64;

/// How a tree is packed.
#[derive(Clone, Debug)]
pub struct Packing {
    /// Bytes of a shard, which is larger only if one sample is.
    pub shard_bytes: u64,
    /// The time of every entry, instead of its own in whole seconds.
    pub mtime: Option<i64>,
    /// User and group of every entry. `None`: its own.
    pub owner: Option<(u32, u32)>,
    /// The shards of one part: every N-th.
    pub part: Option<Part>,
    /// Shards that are written at a time.
    pub jobs: usize,
    /// Patterns that leave entries out, as [`Options::exclude`].
    pub exclude: Vec<String>,
    /// An index beside each shard.
    pub index: bool,
}

/// What was packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// Shards of this part.
    pub shards: u64,
    /// Entries in them.
    pub entries: u64,
    /// Bytes of files.
    pub bytes: u64,
    /// Entries that could not be packed, which were reported.
    pub errors: u64,
}

/// A line of an index.
#[derive(Debug, Deserialize, Serialize)]
struct Indexed {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_b64: Option<String>,
    /// Where its bytes begin in the shard.
    offset: u64,
    size: u64,
    blake3: String,
}

/// The names of shards: a text with one `%d` or `%0Nd`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    before: String,
    digits: usize,
    after: String,
}

impl std::str::FromStr for Names {
    type Err = String;

    fn from_str(text: &str) -> Result<Names, String> {
        let expected = || format!("{text}: the names of shards have one %06d, as data-%06d.tar");
        let (before, rest) = text.split_once('%').ok_or_else(expected)?;
        let (digits, after) = rest.split_once('d').ok_or_else(expected)?;
        let plain = digits.is_empty() || digits.starts_with('0');
        let digits = if digits.is_empty() { Ok(0) } else { digits.parse() };
        match digits {
            Ok(digits) if plain && digits <= 20 && !after.contains('%') => {
                Ok(Names { before: before.into(), digits, after: after.into() })
            }
            _ => Err(expected()),
        }
    }
}

impl Names {
    /// Returns the shard of this number.
    pub fn name(&self, number: u64) -> PathBuf {
        format!("{}{number:0digits$}{}", self.before, self.after, digits = self.digits).into()
    }
}

/// Returns the index of a shard.
fn index_of(shard: &Path) -> PathBuf {
    let mut name = shard.as_os_str().to_owned();
    name.push(".ndjson");
    name.into()
}

/// Returns the sample that a path belongs to: what is before the first point of its name. `None`: it is none.
fn sample(path: &[u8]) -> Option<&[u8]> {
    let start = path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let point = path.get(start..)?.iter().position(|byte| *byte == b'.')?;
    (point > 0).then(|| path.get(..start + point)).flatten()
}

/// Entries of one shard.
type Entries = Vec<Record>;

/// Divides the records of a tree, which come in order, into shards.
struct Division {
    shard_bytes: u64,
    number: u64,
    entries: Entries,
    bytes: u64,
    /// Where in `entries` the last sample begins, and the bytes before it.
    last: (usize, u64),
}

impl Division {
    /// Takes the next record. Returns a shard that is complete.
    fn take(&mut self, record: Record) -> Option<(u64, Entries)> {
        let contents = if record.kind == Kind::Directory { 0 } else { record.size };
        let bytes = HEAD_BYTES + contents + padding(contents) as u64;
        let same = self
            .entries
            .last()
            .is_some_and(|before| sample(&record.path).is_some_and(|own| sample(&before.path) == Some(own)));
        if !same {
            self.last = (self.entries.len(), self.bytes);
        }
        self.entries.push(record);
        self.bytes += bytes;
        let full = self.bytes > self.shard_bytes || self.entries.len() > ENTRIES_MAX;
        let (at, before) = self.last;
        if !full || at == 0 {
            return None;
        }
        // The sample that does not fit begins the next shard.
        let rest = self.entries.split_off(at);
        self.bytes -= before;
        self.last = (0, 0);
        let whole = std::mem::replace(&mut self.entries, rest);
        self.number += 1;
        Some((self.number - 1, whole))
    }

    fn end(self) -> Option<(u64, Entries)> {
        (!self.entries.is_empty()).then_some((self.number, self.entries))
    }
}

/// Returns the folder of a shard.
fn folder_of(shard: &Path) -> &Path {
    shard.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Refuses shards that would be packed themselves, the next time at the latest: the same tree would not make
/// the same shards.
fn outside(source: &Path, shard: &Path, exclude: &[String]) -> Result<(), Refusal> {
    // Of a folder that will be made, what is there of its path decides.
    let wanted = folder_of(shard);
    let there = |above: &Path| {
        let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        above.canonicalize().ok()
    };
    let mut above = wanted.ancestors();
    let folder = above.find_map(|above| Some(there(above)?.join(wanted.strip_prefix(above).ok()?)));
    // A source that is not there is told where it is used.
    let (Ok(tree), Some(folder)) = (source.canonicalize(), folder) else { return Ok(()) };
    let Ok(below) = folder.strip_prefix(&tree) else { return Ok(()) };
    if let Some(excluded) = Excluded::by(exclude)? {
        let mut folders = below.ancestors().filter(|folder| !folder.as_os_str().is_empty());
        let shard = below.join(shard.file_name().unwrap_or_default());
        if folders.any(|folder| excluded.excludes(folder, true)) || excluded.excludes(&shard, false) {
            return Ok(());
        }
    }
    let (tree, folder) = (source.display(), folder.display());
    Err(Refusal::Options(format!(
        "the shards would be in {folder}, which is in the tree {tree} that is packed: name a folder beside it, or \
         leave this one out with --exclude"
    )))
}

/// Packs the tree `source` into shards, and makes their folder if it is not there. A shard has its name when
/// it is whole; one of that name is replaced.
///
/// # Errors
/// The shards would be in the tree; some of it could not be listed, it was stopped, or a shard cannot be
/// written. An entry that cannot be read is reported and left out.
pub fn pack(
    source: &Path,
    names: &Names,
    packing: &Packing,
    observer: &dyn Observer,
    control: &Control,
) -> Result<Packed, NotMade> {
    let mut options = Options { exclude: packing.exclude.clone(), ..Options::default() };
    options.dereference = crate::Dereference::Never;
    outside(source, &names.name(0), &packing.exclude).map_err(NotMade::Refused)?;
    let folder = names.name(0);
    let folder = folder_of(&folder);
    if source.is_dir() {
        std::fs::create_dir_all(folder)
            .map_err(|why| NotMade::Refused(Refusal::List(list_error(folder, why))))?;
    }
    let mut found = listing::sorted(source, &names.name(0), &options, observer, control)?;
    let root = rustix::fs::openat(CWD, source, OPEN_DIRECTORY, Mode::empty())
        .map_err(|why| NotMade::Refused(Refusal::List(list_error(source, why.into()))))?;
    let packer = Packer { source, root, names, packing, observer, control, totals: Totals::default() };
    let failed = Mutex::new(None);
    let work = |(number, entries): (u64, Entries)| {
        let stopped = failed.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        if stopped || control.is_cancelled() {
            return;
        }
        if let Err(why) = packer.shard(number, &entries) {
            let name = names.name(number);
            let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
            failed.get_or_insert(NotMade::Refused(Refusal::List(list_error(&name, why))));
        }
    };
    crate::threads::spread(packing.jobs, 1, work, |give| {
        let shard_bytes = packing.shard_bytes;
        let mut division = Division { shard_bytes, number: 0, entries: Vec::new(), bytes: 0, last: (0, 0) };
        let own = |(number, _): &(u64, Entries)| {
            packing.part.is_none_or(|part| number % u64::from(part.count.max(1)) == u64::from(part.index))
        };
        let mut read = || {
            while let Some((_, line)) = found.next()? {
                if control.is_cancelled() {
                    return Ok(());
                }
                let record = listing::record_of_line(&line);
                if let Some(shard) = record.and_then(|record| division.take(record)).filter(own) {
                    give(shard);
                }
            }
            Ok(())
        };
        let read: io::Result<()> = read();
        if let (Ok(()), Some(shard)) = (&read, division.end().filter(own)) {
            give(shard);
        }
        if let Err(why) = read {
            let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
            failed.get_or_insert(NotMade::Refused(Refusal::List(list_error(source, why))));
        }
    });
    if let Some(why) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(why);
    }
    if control.is_cancelled() {
        return Err(NotMade::Cancelled);
    }
    Ok(packer.totals.sum())
}

fn list_error(path: &Path, why: io::Error) -> ListError {
    ListError { list: path.to_path_buf(), line: 0, why: why.to_string() }
}

#[derive(Default)]
struct Totals {
    shards: AtomicU64,
    entries: AtomicU64,
    bytes: AtomicU64,
    errors: AtomicU64,
}

impl Totals {
    fn sum(&self) -> Packed {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Packed {
            shards: of(&self.shards),
            entries: of(&self.entries),
            bytes: of(&self.bytes),
            errors: of(&self.errors),
        }
    }
}

struct Packer<'a> {
    source: &'a Path,
    root: OwnedFd,
    names: &'a Names,
    packing: &'a Packing,
    observer: &'a dyn Observer,
    control: &'a Control,
    totals: Totals,
}

/// A shard that is being written.
struct Shard {
    out: File,
    /// What is gathered.
    bytes: Vec<u8>,
    /// Bytes before that.
    written: u64,
}

impl Shard {
    fn at(&self) -> u64 {
        self.written + self.bytes.len() as u64
    }

    /// Takes back what came after the first `bytes` of it.
    fn take_back(&mut self, bytes: u64) -> io::Result<()> {
        match bytes.checked_sub(self.written) {
            Some(kept) => self.bytes.truncate(usize::try_from(kept).unwrap_or(usize::MAX)),
            None => {
                self.bytes.clear();
                self.out.set_len(bytes)?;
                self.written = self.out.seek(SeekFrom::Start(bytes))?;
            }
        }
        Ok(())
    }

    /// Writes what is gathered if there is much of it.
    fn write(&mut self, least: usize) -> io::Result<()> {
        if self.bytes.len() >= least.max(1) {
            self.out.write_all(&self.bytes)?;
            self.written += self.bytes.len() as u64;
            self.bytes.clear();
        }
        Ok(())
    }
}

/// The last directory that was entered: most entries are in it.
type Entered = Option<(Vec<u8>, OwnedFd)>;

impl Packer<'_> {
    fn shard(&self, number: u64, entries: &Entries) -> io::Result<()> {
        let name = self.names.name(number);
        let maker = Maker::this();
        let (temporary, out) = leftover::create_beside(&name, maker)?;
        let index = match self.packing.index {
            true => Some((leftover::create_beside(&index_of(&name), maker)?, index_of(&name))),
            false => None,
        };
        let mut lines = index.as_ref().map(|((_, file), _)| BufWriter::new(file));
        let written = self.fill(Shard { out, bytes: Vec::new(), written: 0 }, entries, &mut lines);
        let written = written.and_then(|()| lines.map_or(Ok(()), |mut lines| lines.flush()));
        let named = written.and_then(|()| {
            if let Some(((temporary, file), path)) = &index {
                crate::sys::sync_data(file)?;
                std::fs::rename(temporary, path)?;
            }
            std::fs::rename(&temporary, &name)
        });
        if named.is_err() {
            // The first error is the one to report.
            let _ = std::fs::remove_file(&temporary);
            index.iter().for_each(|((temporary, _), _)| drop(std::fs::remove_file(temporary)));
        } else {
            self.totals.shards.fetch_add(1, Ordering::Relaxed);
        }
        named
    }

    fn fill(
        &self,
        mut shard: Shard,
        entries: &Entries,
        lines: &mut Option<BufWriter<&File>>,
    ) -> io::Result<()> {
        let mut entered = None;
        // Names of files with several that are in this shard.
        let mut several = HashMap::new();
        for record in entries {
            if self.control.is_cancelled() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            match self.entry(&mut shard, record, &mut entered, &mut several) {
                Ok(Some(indexed)) => {
                    if let Some(lines) = lines {
                        serde_json::to_writer(&mut *lines, &indexed)?;
                        lines.write_all(b"\n")?;
                    }
                }
                Ok(None) => {}
                Err(Failed::Source(error)) => {
                    self.totals.errors.fetch_add(1, Ordering::Relaxed);
                    self.observer.event(Event::Error(&error));
                    continue;
                }
                Err(Failed::Shard(why)) => return Err(why),
            }
            self.totals.entries.fetch_add(1, Ordering::Relaxed);
            shard.write(GATHERED_BYTES)?;
        }
        shard.bytes.resize(shard.bytes.len() + 2 * BLOCK, 0);
        shard.write(0)?;
        Ok(crate::sys::sync_data(&shard.out)?)
    }

    fn entry(
        &self,
        shard: &mut Shard,
        record: &Record,
        entered: &mut Entered,
        several: &mut HashMap<(u64, u64), Vec<u8>>,
    ) -> Result<Option<Indexed>, Failed> {
        let path = path_of(&record.path);
        let failed = |kind, why: Errno| Failed::Source(Error::system(kind, self.source.join(path), why));
        let (folder, name) = split(&record.path);
        let at = self.enter(folder, entered).map_err(|why| failed(ErrorKind::Access, why))?;
        let facts = rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW).map(Facts::from);
        let facts = facts.map_err(|why| failed(ErrorKind::Stat, why))?;
        let mut head = self.head(record, &facts);
        match facts.kind {
            rustix::fs::FileType::Directory => {
                head.kind = tar::Kind::Directory;
                header(&head, &mut shard.bytes);
                return Ok(None);
            }
            rustix::fs::FileType::Symlink => {
                let link = rustix::fs::readlinkat(at, name, Vec::new());
                let link = link.map_err(|why| failed(ErrorKind::ReadLink, why))?;
                head.kind = tar::Kind::Symlink;
                head.link = link.into_bytes();
                header(&head, &mut shard.bytes);
                return Ok(None);
            }
            rustix::fs::FileType::RegularFile => {}
            _ => {
                let kind = ErrorKind::UnknownType;
                return Err(Failed::Source(Error::plain(kind, self.source.join(path))));
            }
        }
        if facts.nlink > 1 {
            // WebDataset passes over links, and would miss a file of a sample.
            let first = several.get(&facts.identity()).filter(|_| sample(&record.path).is_none());
            if let Some(first) = first {
                head.kind = tar::Kind::HardLink;
                head.link.clone_from(first);
                header(&head, &mut shard.bytes);
                return Ok(None);
            }
            several.entry(facts.identity()).or_insert_with(|| record.path.clone());
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = rustix::fs::openat(at, name, flags, Mode::empty())
            .map_err(|why| failed(ErrorKind::OpenSource, why))?;
        let opened_facts =
            Facts::from(rustix::fs::fstat(&opened).map_err(|why| failed(ErrorKind::Stat, why))?);
        if opened_facts.identity() != facts.identity() {
            return Err(Failed::Source(Error::plain(ErrorKind::Replaced, self.source.join(path))));
        }
        crate::sys::make_waiting(std::os::fd::AsFd::as_fd(&opened));
        let mut head = self.head(record, &opened_facts);
        head.size = opened_facts.size;
        let begin = shard.at();
        header(&head, &mut shard.bytes);
        let offset = shard.at();
        match self.contents(shard, File::from(opened), head.size) {
            Ok(hash) => {
                self.totals.bytes.fetch_add(head.size, Ordering::Relaxed);
                shard.bytes.resize(shard.bytes.len() + padding(head.size), 0);
                Ok(Some(indexed(record, offset, head.size, &hash)))
            }
            Err((why, false)) => Err(Failed::Shard(why)),
            Err((why, true)) => {
                // It is left out, and is not what its other names are links to.
                shard.take_back(begin).map_err(Failed::Shard)?;
                if several.get(&facts.identity()) == Some(&record.path) {
                    several.remove(&facts.identity());
                }
                let errno = Errno::from_io_error(&why).unwrap_or(Errno::IO);
                Err(failed(ErrorKind::Read, errno))
            }
        }
    }

    fn head(&self, record: &Record, facts: &Facts) -> Head {
        let (uid, gid) = self.packing.owner.unwrap_or((facts.uid, facts.gid));
        Head {
            kind: tar::Kind::File,
            path: record.path.clone(),
            link: Vec::new(),
            mode: facts.mode,
            uid: u64::from(uid),
            gid: u64::from(gid),
            size: 0,
            mtime: (self.packing.mtime.unwrap_or(facts.mtime.0), 0),
        }
    }

    /// Gathers the bytes of a file, exactly `size` of them. The error says whether it is the source's.
    fn contents(
        &self,
        shard: &mut Shard,
        mut file: File,
        size: u64,
    ) -> Result<blake3::Hash, (io::Error, bool)> {
        let mut hasher = blake3::Hasher::new();
        let mut left = size;
        while left > 0 {
            if self.control.is_cancelled() {
                return Err((io::ErrorKind::Interrupted.into(), false));
            }
            let start = shard.bytes.len();
            let want = left.min(GATHERED_BYTES as u64) as usize;
            shard.bytes.resize(start + want, 0);
            let room = shard.bytes.get_mut(start..).unwrap_or_default();
            file.read_exact(room).map_err(|why| match why.kind() {
                io::ErrorKind::UnexpectedEof => {
                    (io::Error::other("it became shorter while it was read"), true)
                }
                _ => (why, true),
            })?;
            hasher.update(room);
            left -= want as u64;
            if left > 0 {
                shard.write(GATHERED_BYTES).map_err(|why| (why, false))?;
            }
        }
        Ok(hasher.finalize())
    }

    /// Opens a directory of the source step by step, through no link.
    fn enter<'e>(&'e self, folder: &[u8], entered: &'e mut Entered) -> Result<&'e OwnedFd, Errno> {
        if folder.is_empty() {
            return Ok(&self.root);
        }
        if entered.as_ref().is_none_or(|(path, _)| path != folder) {
            let mut here: Option<OwnedFd> = None;
            for part in folder.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
                let at = here.as_ref().unwrap_or(&self.root);
                here = Some(rustix::fs::openat(at, part, OPEN_DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?);
            }
            *entered = here.map(|here| (folder.to_vec(), here));
        }
        entered.as_ref().map(|(_, opened)| opened).ok_or(Errno::NOENT)
    }
}

enum Failed {
    /// An entry of the source, which is left out.
    Source(Error),
    /// The shard, which there will not be.
    Shard(io::Error),
}

/// Returns the directory that an entry is in, and its name there.
fn split(path: &[u8]) -> (&[u8], &OsStr) {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let at = path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let (folder, name) = path.split_at(at);
    (folder.strip_suffix(b"/").unwrap_or(folder), OsStr::from_bytes(name))
}

fn indexed(record: &Record, offset: u64, size: u64, hash: &blake3::Hash) -> Indexed {
    use base64::Engine as _;
    let exact = std::str::from_utf8(&record.path).is_ok();
    Indexed {
        path: String::from_utf8_lossy(&record.path).into_owned(),
        path_b64: (!exact).then(|| base64::engine::general_purpose::STANDARD.encode(&record.path)),
        offset,
        size,
        blake3: hash.to_hex().to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_sample_is_what_is_before_the_first_point_of_a_name() {
        for (path, expected) in [
            ("a/7.jpg", Some("a/7")),
            ("a/7.seg.png", Some("a/7")),
            ("a.b/7", None),
            ("a/.hidden", None),
            ("7.", Some("7")),
        ] {
            assert_eq!(sample(path.as_bytes()), expected.map(str::as_bytes), "{path}");
        }
    }

    #[test]
    fn samples_stay_together_and_shards_are_as_large_as_asked() {
        let size = |at: u64| at * 7919 % 3000;
        let records = (0..900_u64).map(|at| Record {
            kind: Kind::File,
            size: size(at),
            path: format!("{:04}.{}", at / 3, ["a", "b", "c"][at as usize % 3]).into_bytes(),
        });
        let mut division =
            Division { shard_bytes: 20_000, number: 0, entries: Vec::new(), bytes: 0, last: (0, 0) };
        let mut shards: Vec<(u64, Entries)> = Vec::new();
        for record in records.clone() {
            shards.extend(division.take(record));
        }
        shards.extend(division.end());
        let numbers: Vec<u64> = shards.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, (0..shards.len() as u64).collect::<Vec<_>>());
        let all: Vec<Record> = shards.iter().flat_map(|(_, entries)| entries.clone()).collect();
        assert_eq!(all, records.collect::<Vec<_>>());
        for (number, entries) in &shards {
            assert_eq!(entries.len() % 3, 0, "shard {number}");
            let bytes: u64 =
                entries.iter().map(|entry| HEAD_BYTES + entry.size + padding(entry.size) as u64).sum();
            assert!(bytes <= 20_000, "shard {number}: {bytes}");
            assert!(bytes > 20_000 - 3 * 3600 || *number + 1 == shards.len() as u64, "{number}: {bytes}");
        }
    }

    #[test]
    fn names_of_shards_have_one_number() {
        let names: Names = "out/a-%06d.tar".parse().unwrap();
        assert_eq!(names.name(7), Path::new("out/a-000007.tar"));
        assert_eq!("a%d".parse::<Names>().unwrap().name(12), Path::new("a12"));
        for wrong in ["a.tar", "%s", "%6d", "%d%d", "%06d-%d", "%099d"] {
            assert!(wrong.parse::<Names>().is_err(), "{wrong}");
        }
    }
}
