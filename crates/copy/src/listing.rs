//! The list of a tree: made once, and read by the parts of a copy instead of the tree's directories.
//!
//! ```text
//! ringroad list 1
//! d 0 photos/
//! f 48213 photos/a.jpg
//! = 1 0 1 48213
//! ```
//! A line has the kind, the size and the path below the source. Lines are sorted by the bytes of their paths,
//! and a directory has a slash after its name, so its entries follow it. Kinds: `d` directory, `f` regular
//! file, `h` anything with several names, `l` symbolic link, `o` other. `\n` and `\\` in a path stand for a
//! line break and a backslash; other bytes are literal. The last line has the number of directories, of `h`,
//! of the rest, and the bytes of `f`. So a truncated list is detected, and a part knows its share before it
//! has read the rest. Start at [`make`] and [`Reader`].

use crate::dir::{OPEN_DIRECTORY, lists_truly, os};
use crate::error::{Error, ErrorKind, Refusal};
use crate::exclude::Excluded;
use crate::leftover::{self, Maker};
use crate::lists::ListError;
use crate::options::Options;
use crate::parts::Part;
use crate::plan::Facts;
use crate::report::{Control, Event, Observer};
use crate::sorted::{Sorted, Sorter};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;
use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

const HEAD: &[u8] = b"ringroad list 1\n";
/// Maximum bytes of a line.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Maximum bytes of the last line: five words.
const END_BYTES_MAX: u64 = 128;
/// Weight of an entry besides its bytes when work is divided: about the bytes that are copied in the time
/// that a small file takes.
const ENTRY_WEIGHT: u64 = 32 << 10;

/// The kind of an entry in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Directory,
    File,
    /// A file with several names.
    Several,
    Link,
    Other,
    /// A line of `files_from`: only the source shows its kind.
    Unknown,
}

impl Kind {
    fn letter(self) -> char {
        match self {
            Kind::Directory => 'd',
            Kind::File => 'f',
            Kind::Several => 'h',
            Kind::Link => 'l',
            Kind::Other | Kind::Unknown => 'o',
        }
    }

    fn of_letter(letter: &[u8]) -> Option<Kind> {
        Some(match letter {
            b"d" => Kind::Directory,
            b"f" => Kind::File,
            b"h" => Kind::Several,
            b"l" => Kind::Link,
            b"o" => Kind::Other,
            _ => return None,
        })
    }
}

/// One entry of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) kind: Kind,
    pub(crate) size: u64,
    /// The path below the source; a directory's ends with a slash.
    pub(crate) path: Vec<u8>,
}

/// Totals of a whole list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Directories.
    pub directories: u64,
    /// Names of files that have several.
    pub several: u64,
    /// Everything else.
    pub entries: u64,
    /// Bytes of regular files that have one name.
    pub bytes: u64,
}

impl Sum {
    fn add(&mut self, record: &Record) {
        match record.kind {
            Kind::Directory => self.directories += 1,
            Kind::Several => self.several += 1,
            _ => self.entries += 1,
        }
        if record.kind == Kind::File {
            self.bytes = self.bytes.saturating_add(record.size);
        }
    }

    fn weight(self) -> u128 {
        u128::from(self.bytes) + u128::from(self.entries) * u128::from(ENTRY_WEIGHT)
    }
}

/// The share of one part: a contiguous range of the list with a fair share of its weight. A range mostly has
/// whole folders, so parts rarely create files in the same ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    part: Part,
    whole: u128,
    before: u128,
}

impl Share {
    pub(crate) fn new(part: Part, sum: Sum) -> Share {
        Share { part, whole: sum.weight().max(1), before: 0 }
    }

    /// Returns whether the next entry belongs to this part. Directories and files with several names are left
    /// to the last pass. The middle of an entry decides, so parts differ by one entry at each end.
    pub(crate) fn has(&mut self, record: &Record) -> bool {
        if matches!(record.kind, Kind::Directory | Kind::Several) {
            return false;
        }
        let bytes = if record.kind == Kind::File { record.size } else { 0 };
        let weight = u128::from(bytes) + u128::from(ENTRY_WEIGHT);
        let middle = 2 * self.before + weight;
        self.before += weight;
        let index = middle * u128::from(self.part.count) / (2 * self.whole);
        index.min(u128::from(self.part.count) - 1) == u128::from(self.part.index)
    }
}

fn escaped(path: &[u8], out: &mut Vec<u8>) {
    for byte in path {
        match byte {
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\\' => out.extend_from_slice(b"\\\\"),
            byte => out.push(*byte),
        }
    }
}

fn unescaped(text: &[u8]) -> Option<Vec<u8>> {
    let mut path = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        path.push(match byte {
            b'\\' => match bytes.next()? {
                b'n' => b'\n',
                b'\\' => b'\\',
                _ => return None,
            },
            byte => *byte,
        });
    }
    Some(path)
}

fn line_of(record: &Record) -> Vec<u8> {
    let mut line = format!("{} {} ", record.kind.letter(), record.size).into_bytes();
    escaped(&record.path, &mut line);
    line.push(b'\n');
    line
}

/// Returns whether a path stays below the source and is in normal form.
fn is_plain(path: &[u8]) -> bool {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    path.split(|byte| *byte == b'/').all(|part| !matches!(part, b"" | b"." | b"..")) && !path.contains(&0)
}

fn record_of(line: &[u8]) -> Option<Record> {
    let mut words = line.splitn(3, |byte| *byte == b' ');
    let kind = Kind::of_letter(words.next()?)?;
    let size = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
    let path = unescaped(words.next()?)?;
    let fits = is_plain(&path) && (kind == Kind::Directory) == path.ends_with(b"/");
    fits.then_some(Record { kind, size, path })
}

fn sum_of(line: &[u8]) -> Option<Sum> {
    let text = std::str::from_utf8(line.strip_prefix(b"= ")?).ok()?;
    let mut words = text.split(' ').map(|word| word.parse::<u64>().ok());
    let mut next = || words.next().flatten();
    let sum = Sum { directories: next()?, several: next()?, entries: next()?, bytes: next()? };
    words.next().is_none().then_some(sum)
}

/// A list that is read line by line.
#[derive(Debug)]
pub(crate) struct Reader {
    path: PathBuf,
    input: BufReader<File>,
    number: u64,
    last: Vec<u8>,
    /// The totals in the last line, and those read so far.
    sum: Sum,
    read: Sum,
    ended: bool,
}

impl Reader {
    pub(crate) fn open(path: &Path) -> Result<Reader, ListError> {
        let failed = |why: String| ListError { list: path.into(), line: 0, why };
        let system = |why: io::Error| failed(why.to_string());
        let mut file = File::open(path).map_err(system)?;
        let mut head = vec![0; HEAD.len()];
        if file.read_exact(&mut head).is_err() || head != HEAD {
            return Err(failed("not a list of `cp --make-list`".to_owned()));
        }
        let bytes = file.metadata().map_err(system)?.len();
        file.seek(SeekFrom::Start(bytes.saturating_sub(END_BYTES_MAX))).map_err(system)?;
        let mut end = Vec::new();
        file.read_to_end(&mut end).map_err(system)?;
        let sum = end.strip_suffix(b"\n").and_then(|end| {
            let start = end.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            sum_of(end.get(start..)?)
        });
        let sum = sum.ok_or_else(|| failed("it has no last line: it was cut off".to_owned()))?;
        file.seek(SeekFrom::Start(HEAD.len() as u64)).map_err(system)?;
        let input = BufReader::with_capacity(1 << 16, file);
        let read = Sum::default();
        Ok(Reader { path: path.into(), input, number: 1, last: Vec::new(), sum, read, ended: false })
    }

    pub(crate) fn sum(&self) -> Sum {
        self.sum
    }

    fn error(&self, why: &str) -> ListError {
        ListError { list: self.path.clone(), line: self.number, why: why.to_owned() }
    }

    pub(crate) fn next(&mut self) -> Result<Option<Record>, ListError> {
        if self.ended {
            return Ok(None);
        }
        let mut line = Vec::new();
        self.number += 1;
        let read = Read::take(&mut self.input, LINE_BYTES_MAX).read_until(b'\n', &mut line);
        read.map_err(|why| self.error(&why.to_string()))?;
        let Some(text) = line.strip_suffix(b"\n") else {
            return Err(self.error("the line has no end: the list was cut off"));
        };
        if let Some(sum) = sum_of(text) {
            if sum != self.read {
                return Err(self.error("the last line does not count the lines before it"));
            }
            self.ended = true;
            return Ok(None);
        }
        let record = record_of(text).ok_or_else(|| self.error("not a line of a list"))?;
        if record.path <= self.last {
            return Err(self.error("the paths are not in order"));
        }
        self.last.clone_from(&record.path);
        self.read.add(&record);
        Ok(Some(record))
    }
}

/// Returns the names in `files_from`, sorted and each once.
pub(crate) fn names_of(file: &Path, nul: bool) -> Result<Sorted, ListError> {
    let failed = |line: u64, why: String| ListError { list: file.into(), line, why };
    let system = |why: io::Error| failed(0, why.to_string());
    let mut input: Box<dyn BufRead> = match file == Path::new("-") {
        true => Box::new(io::stdin().lock()),
        false => Box::new(BufReader::new(File::open(file).map_err(system)?)),
    };
    let aside = std::env::temp_dir().join("ringroad-names");
    let maker = Maker::this();
    let end = if nul { 0 } else { b'\n' };
    let (mut sorter, mut number) = (Sorter::default(), 0);
    loop {
        let mut line = Vec::new();
        number += 1;
        let read = Read::take(&mut input, LINE_BYTES_MAX).read_until(end, &mut line).map_err(system)?;
        if read == 0 {
            return sorter.sorted().map_err(system);
        }
        let name = match line.strip_suffix(&[end]) {
            Some(name) => name,
            None if read as u64 == LINE_BYTES_MAX => {
                return Err(failed(number, "longer than any path".to_owned()));
            }
            None => &line,
        };
        // As in rsync, these lines are comments.
        if name.is_empty() || (!nul && matches!(name.first(), Some(b'#' | b';'))) {
            continue;
        }
        let mut path = Vec::with_capacity(name.len());
        for part in name.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b".")) {
            if part == b".." {
                return Err(failed(number, "`..` would lead out of the source".to_owned()));
            }
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(part);
        }
        let unnamed = || leftover::unnamed_beside(&aside, maker);
        sorter.add(path.into_boxed_slice(), Box::default(), unnamed).map_err(system)?;
    }
}

/// Why a list was not made.
#[derive(Debug)]
pub enum NotMade {
    /// A part of the tree could not be listed; the observer got the errors.
    Incomplete,
    /// It was stopped.
    Cancelled,
    /// The options or the list are refused.
    Refused(Refusal),
}

/// Lists the tree `source` in the file `out`, with bounded memory and all workers. Copies nothing. The list
/// gets its name when it is complete; there is none if a part of the tree could not be listed.
///
/// # Errors
/// See [`NotMade`].
pub fn make(
    source: &Path,
    out: &Path,
    options: &Options,
    observer: &dyn Observer,
    control: &Control,
) -> Result<Sum, NotMade> {
    let refused = |why: io::Error| {
        NotMade::Refused(Refusal::List(ListError { list: out.into(), line: 0, why: why.to_string() }))
    };
    let exclude = Excluded::by(&options.exclude).map_err(NotMade::Refused)?;
    if options.dereference == crate::Dereference::Always {
        let why = "--make-list cannot be combined with -L: a list has links as links";
        return Err(NotMade::Refused(Refusal::Options(why.to_owned())));
    }
    let maker = Maker::this();
    let old = std::fs::metadata(out).ok().map(|old| (old.dev(), old.ino()));
    let (temporary, file) = leftover::create_beside(out, maker).map_err(refused)?;
    let walk = Walk {
        options,
        exclude,
        observer,
        control,
        out,
        maker,
        old,
        state: Mutex::default(),
        changed: Condvar::new(),
        found: Mutex::default(),
        device: Mutex::new(None),
    };
    let listed = walk.run(source).and_then(|found| write(found, file).map_err(refused));
    let named = listed.and_then(|sum| {
        std::fs::rename(&temporary, out).map_err(refused)?;
        Ok(sum)
    });
    if named.is_err() {
        // The first error is the one to report.
        let _ = std::fs::remove_file(&temporary);
    }
    named
}

/// Returns the sorted lines of a tree, stored in temporary files beside `aside`.
pub(crate) fn sorted(
    source: &Path,
    aside: &Path,
    options: &Options,
    observer: &dyn Observer,
    control: &Control,
) -> Result<Sorted, NotMade> {
    let exclude = Excluded::by(&options.exclude).map_err(NotMade::Refused)?;
    let walk = Walk {
        options,
        exclude,
        observer,
        control,
        out: aside,
        maker: Maker::this(),
        old: None,
        state: Mutex::default(),
        changed: Condvar::new(),
        found: Mutex::default(),
        device: Mutex::new(None),
    };
    walk.run(source)?.sorted().map_err(|why| {
        NotMade::Refused(Refusal::List(ListError { list: aside.into(), line: 0, why: why.to_string() }))
    })
}

/// Returns the record of a whole line.
pub(crate) fn record_of_line(line: &[u8]) -> Option<Record> {
    record_of(line.strip_suffix(b"\n")?)
}

fn write(mut found: Sorter, file: File) -> io::Result<Sum> {
    let mut out = BufWriter::with_capacity(1 << 16, file);
    let (mut sum, mut sorted) = (Sum::default(), found.sorted()?);
    out.write_all(HEAD)?;
    while let Some((_, line)) = sorted.next()? {
        if let Some(record) = line.strip_suffix(b"\n").and_then(record_of) {
            sum.add(&record);
        }
        out.write_all(&line)?;
    }
    let Sum { directories, several, entries, bytes } = sum;
    writeln!(out, "= {directories} {several} {entries} {bytes}")?;
    let out = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    crate::sys::sync_data(&out)?;
    Ok(sum)
}

/// A directory to be listed: its parent, its name, and its path with a slash at the end.
struct Task {
    at: Option<Arc<OwnedFd>>,
    name: CString,
    path: Vec<u8>,
}

#[derive(Default)]
struct State {
    /// A stack, so that few directories are open at a time.
    waiting: Vec<Task>,
    outstanding: usize,
    errors: u64,
}

struct Walk<'a> {
    options: &'a Options,
    exclude: Option<Excluded>,
    observer: &'a dyn Observer,
    control: &'a Control,
    out: &'a Path,
    maker: Maker,
    /// The earlier list of this name.
    old: Option<(u64, u64)>,
    state: Mutex<State>,
    changed: Condvar,
    found: Mutex<Sorter>,
    /// The device of the source.
    device: Mutex<Option<u64>>,
}

impl Walk<'_> {
    fn run(self, source: &Path) -> Result<Sorter, NotMade> {
        let name = CString::new(source.as_os_str().as_bytes());
        let name = name.map_err(|_| NotMade::Refused(Refusal::Options("a path with NUL".to_owned())))?;
        let first = Task { at: None, name, path: Vec::new() };
        *self.lock() = State { waiting: vec![first], outstanding: 1, errors: 0 };
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let jobs = self.options.jobs.unwrap_or(cores.clamp(2, 16));
        crate::threads::together(jobs, || self.work(source));
        if self.control.is_cancelled() {
            return Err(NotMade::Cancelled);
        }
        let Walk { state, found, .. } = self;
        if state.into_inner().unwrap_or_else(PoisonError::into_inner).errors > 0 {
            return Err(NotMade::Incomplete);
        }
        Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, source: &Path) {
        loop {
            let mut state = self.lock();
            let task = loop {
                if let Some(task) = state.waiting.pop() {
                    break task;
                }
                if state.outstanding == 0 {
                    return;
                }
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            };
            drop(state);
            let mut more = Vec::new();
            if !self.control.is_cancelled()
                && let Err((kind, name, why)) = self.list(&task, &mut more)
            {
                let below = source.join(OsStr::from_bytes(&task.path));
                let path = if name.is_empty() { below } else { below.join(OsStr::from_bytes(&name)) };
                self.observer.event(Event::Error(&Error::system(kind, path, why)));
                self.lock().errors += 1;
            }
            let mut state = self.lock();
            state.outstanding += more.len();
            state.waiting.extend(more);
            state.outstanding -= 1;
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Lists one directory. The error has the name of the entry, or none for the directory itself.
    fn list(&self, task: &Task, more: &mut Vec<Task>) -> Result<(), (ErrorKind, Vec<u8>, Errno)> {
        let own = |kind| move |why| (kind, Vec::new(), why);
        let opened = match &task.at {
            // The source itself may be named by a link.
            None => rustix::fs::openat(CWD, &*task.name, OPEN_DIRECTORY, Mode::empty()),
            Some(at) => rustix::fs::openat(at, &*task.name, OPEN_DIRECTORY | OFlags::NOFOLLOW, Mode::empty()),
        };
        let directory = Arc::new(opened.map_err(own(ErrorKind::Access))?);
        if self.options.one_file_system {
            let here = Facts::from(rustix::fs::fstat(&directory).map_err(own(ErrorKind::Stat))?).dev;
            let mut device = self.device.lock().unwrap_or_else(PoisonError::into_inner);
            if *device.get_or_insert(here) != here {
                return Ok(());
            }
        }
        let in_doubt = !lists_truly(directory.as_fd());
        let mut room = Vec::with_capacity(1 << 16);
        let mut entries = RawDir::new(&directory, room.spare_capacity_mut());
        let mut found = Vec::new();
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(Errno::INTR) => continue,
                // The directory was removed: there are no more entries in it.
                Err(Errno::NOENT) => break,
                Err(why) => return Err(own(ErrorKind::ReadDirectory)(why)),
            };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") || leftover::is_made_beside(self.out, self.maker, name)
            {
                continue;
            }
            let kind = if in_doubt { FileType::Unknown } else { entry.file_type() };
            self.entry(task, &directory, name, kind, (more, &mut found))
                .map_err(|why| (ErrorKind::Stat, name.to_bytes().to_vec(), why))?;
        }
        let mut sorter = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        for record in found {
            let line = line_of(&record).into_boxed_slice();
            let unnamed = || leftover::unnamed_beside(self.out, self.maker);
            sorter.add(record.path.into_boxed_slice(), line, unnamed).map_err(|why| {
                (ErrorKind::List, Vec::new(), Errno::from_io_error(&why).unwrap_or(Errno::IO))
            })?;
        }
        Ok(())
    }

    fn entry(
        &self,
        task: &Task,
        directory: &Arc<OwnedFd>,
        name: &CStr,
        kind: FileType,
        (more, found): (&mut Vec<Task>, &mut Vec<Record>),
    ) -> Result<(), Errno> {
        let mut path = [&task.path, name.to_bytes()].concat();
        let facts = match kind {
            FileType::Directory => None,
            _ => Some(Facts::from(rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?)),
        };
        let kind = facts.map_or(kind, |facts| facts.kind);
        if let Some(patterns) = &self.exclude
            && patterns.excludes(Path::new(OsStr::from_bytes(&path)), kind == FileType::Directory)
        {
            return Ok(());
        }
        let Some(facts) = facts.filter(|facts| facts.kind != FileType::Directory) else {
            path.push(b'/');
            more.push(Task { at: Some(Arc::clone(directory)), name: name.to_owned(), path: path.clone() });
            found.push(Record { kind: Kind::Directory, size: 0, path });
            return Ok(());
        };
        if Some(facts.identity()) == self.old {
            return Ok(());
        }
        let several = facts.nlink > 1 && self.options.preserve.links;
        let (kind, size) = match facts.kind {
            _ if several => (Kind::Several, facts.size),
            FileType::RegularFile => (Kind::File, facts.size),
            FileType::Symlink => (Kind::Link, 0),
            _ => (Kind::Other, 0),
        };
        found.push(Record { kind, size, path });
        Ok(())
    }
}

/// Converts a path of a list to a `Path`.
pub(crate) fn path_of(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// Returns the name of a path component.
pub(crate) fn name_of(bytes: &[u8]) -> Option<CString> {
    CString::new(bytes).ok().filter(|name| !os(name).is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn record(kind: Kind, size: u64, path: &str) -> Record {
        Record { kind, size, path: path.as_bytes().to_vec() }
    }

    fn list_of(records: &[Record]) -> Vec<u8> {
        let mut sum = Sum::default();
        let lines: Vec<u8> = records
            .iter()
            .flat_map(|record| {
                sum.add(record);
                line_of(record)
            })
            .collect();
        let end = format!("= {} {} {} {}\n", sum.directories, sum.several, sum.entries, sum.bytes);
        [HEAD, &lines, end.as_bytes()].concat()
    }

    fn read(bytes: &[u8]) -> Result<Vec<Record>, ListError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("list");
        std::fs::write(&path, bytes).unwrap();
        let mut reader = Reader::open(&path)?;
        let mut records = Vec::new();
        while let Some(record) = reader.next()? {
            records.push(record);
        }
        Ok(records)
    }

    #[test]
    fn a_list_is_read_as_it_was_written_whatever_is_in_its_names() {
        let records = [
            record(Kind::Directory, 0, "a b/"),
            record(Kind::File, 7, "a b/line\nbreak \\n"),
            record(Kind::Several, 9, "a b/x"),
            record(Kind::Other, 0, "c"),
            record(Kind::Link, 0, "d"),
        ];
        assert_eq!(read(&list_of(&records)).unwrap(), records);
    }

    #[test]
    fn a_list_that_is_cut_off_out_of_order_or_leads_elsewhere_is_refused() {
        let whole = list_of(&[record(Kind::File, 1, "a"), record(Kind::File, 1, "b")]);
        for end in 0..whole.len() {
            assert!(read(&whole[..end]).is_err(), "{end} bytes");
        }
        let text = String::from_utf8(whole).unwrap();
        for (one, other, why) in [
            ("f 1 b", "f 1 a", "not in order"),
            ("f 1 b", "f 1 ../b", "not a line"),
            ("f 1 b", "f 1 b/", "not a line"),
            ("f 1 b", "f 1 b//c", "not a line"),
            ("f 1 b", "x 1 b", "not a line"),
            ("f 1 b", "f 2 b", "does not count"),
        ] {
            let error = read(text.replace(one, other).as_bytes()).unwrap_err().to_string();
            assert!(error.contains(why), "{other}: {error}");
        }
    }

    #[test]
    fn shares_are_whole_disjoint_stretches_and_differ_by_less_than_the_largest_entry() {
        let size = |at: u64| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 3_000_000;
        let records: Vec<Record> = (0..3000)
            .map(|at| record(if at % 9 == 0 { Kind::Link } else { Kind::File }, size(at), "x"))
            .collect();
        let mut sum = Sum::default();
        records.iter().for_each(|record| sum.add(record));
        for count in [1, 2, 3, 8, 64] {
            let mut shares: Vec<Share> =
                (0..count).map(|index| Share::new(Part { index, count }, sum)).collect();
            let mut weights = vec![0_u128; count as usize];
            let mut last = 0;
            for record in &records {
                let of: Vec<usize> = shares
                    .iter_mut()
                    .enumerate()
                    .filter_map(|(at, share)| share.has(record).then_some(at))
                    .collect();
                let [at] = of[..] else { panic!("{of:?}") };
                assert!(at >= last, "stretches");
                last = at;
                let bytes = if record.kind == Kind::File { record.size } else { 0 };
                weights[at] += u128::from(bytes + ENTRY_WEIGHT);
            }
            let fair = sum.weight() / u128::from(count);
            let most = u128::from(3_000_000 + ENTRY_WEIGHT);
            assert!(weights.iter().all(|weight| weight.abs_diff(fair) <= most), "{count}: {weights:?}");
        }
    }
}
