//! Goes through a list instead of directories: the list of a tree, or the names of `files_from`.
//!
//! One task reads the list in order, enters each directory when the first of its entries comes, and leaves
//! it when an entry comes that is not in it. Its files become batches, as those of a listing do. The task
//! reads a window, puts the rest of itself *below* the work that the window made, and goes on when that is
//! done: so a list of any length costs a bounded number of names. Start at [`Worker::feed`].

use crate::dir::{Dir, lstat, stat};
use crate::directory::Entered;
use crate::entry::Entry;
use crate::error::{Error, ErrorKind};
use crate::journal::{WINDOW_ENTRIES, Window};
use crate::listing::{self, Kind, Reader, Record, Share, name_of, path_of};
use crate::lists::ListError;
use crate::queue::{Names, Task};
use crate::report::{Event, Skip};
use crate::sorted::Sorted;
use crate::worker::Worker;
use rustix::fs::FileType;
use std::ffi::CStr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Records that are read at a time.
const RECORDS: usize = 4096;
/// Files of one directory that are given out at once.
const BATCH: usize = 1024;

/// Where records come from.
#[derive(Debug)]
pub(crate) enum Selection {
    /// A list of the whole tree, and the share of it that is copied.
    List(Reader, Option<Share>),
    /// The names of `files_from`, and the file that has them.
    Names(Sorted, PathBuf),
}

impl Selection {
    /// Returns the next entry that is one of this program's; directories of a list among them.
    fn next(&mut self) -> Result<Option<Record>, ListError> {
        match self {
            Selection::List(reader, None) => reader.next(),
            Selection::List(reader, Some(share)) => loop {
                match reader.next()? {
                    Some(record) if !share.has(&record) => {}
                    answer => return Ok(answer),
                }
            },
            Selection::Names(names, list) => match names.next() {
                Ok(next) => {
                    Ok(next.map(|(path, _)| Record { kind: Kind::Unknown, size: 0, path: path.into_vec() }))
                }
                Err(why) => Err(ListError { list: list.clone(), line: 0, why: why.to_string() }),
            },
        }
    }
}

/// A directory on the way, by its path with a slash behind it. `None`: it stays out, with all that is in it.
#[derive(Debug)]
struct Open {
    path: Vec<u8>,
    dir: Option<Arc<Dir>>,
}

/// The rest of a list.
#[derive(Debug)]
pub(crate) struct Feed {
    selection: Selection,
    /// Directories that are entered, each in the one before. The first is the operand.
    stack: Vec<Open>,
    /// Directories of `files_from` that are copied with all that is in them.
    covered: Vec<Vec<u8>>,
    /// Entries so far, of which the journal counts windows.
    entries: u64,
    window: Option<Arc<Window>>,
}

impl Feed {
    /// All of a selection, below the operand's directory, which is pending once for it.
    pub(crate) fn new(selection: Selection, operand: Arc<Dir>) -> Feed {
        let stack = vec![Open { path: Vec::new(), dir: Some(operand) }];
        Feed { selection, stack, covered: Vec::new(), entries: 0, window: None }
    }

    /// Returns whether a path is copied with a directory that it is in.
    fn covers(&mut self, path: &[u8]) -> bool {
        // What has been passed comes no more.
        self.covered.retain(|covered| path.starts_with(covered) || path < covered.as_slice());
        self.covered.iter().any(|covered| path.starts_with(covered))
    }
}

/// Returns the directory that an entry is in, with a slash behind it, and its name there.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let at = path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    path.split_at(at)
}

impl Worker<'_, '_> {
    /// Makes work of the next records of a list.
    pub(crate) fn feed(&mut self, mut feed: Box<Feed>) {
        self.write_journal();
        let mut names = Names::default();
        for _ in 0..RECORDS {
            let next = if self.run.stopped() { Ok(None) } else { feed.selection.next() };
            match next {
                Ok(Some(record)) => self.record(&mut feed, record, &mut names),
                Ok(None) => return self.end_feed(feed, names, !self.run.stopped()),
                Err(why) => {
                    self.tell(list_error(why));
                    return self.end_feed(feed, names, false);
                }
            }
        }
        self.give_out(&feed, &mut names);
        self.run.queue.push_below(Task::Feed(feed));
    }

    /// Leaves all directories. `whole`: the list was read to its end.
    fn end_feed(&mut self, mut feed: Box<Feed>, mut names: Names, whole: bool) {
        self.give_out(&feed, &mut names);
        if let Some(window) = feed.window.take().filter(|_| whole) {
            window.done();
        }
        while let Some(Open { dir, .. }) = feed.stack.pop() {
            dir.into_iter().for_each(|dir| self.release(dir));
        }
    }

    fn record(&mut self, feed: &mut Feed, record: Record, names: &mut Names) {
        if feed.covers(&record.path) {
            return;
        }
        if record.kind == Kind::Directory {
            self.reach(feed, &record.path, names);
            return;
        }
        if record.path.is_empty() {
            // `.` is the whole source.
            if let Some(dir) = feed.stack.first().and_then(|open| open.dir.clone()) {
                self.whole(feed, dir, Vec::new());
            }
            return;
        }
        if self.is_in_journal(feed, names) {
            self.tally.scanned += 1;
            self.tally.skipped += 1;
            return;
        }
        let (parent, name) = split(&record.path);
        if let (Selection::Names(..), Some(part)) = (&feed.selection, self.run.options.part)
            && !part.has(path_of(&record.path))
            && !self.leads_to_directory(feed, parent, name, names)
        {
            return;
        }
        let (Some(dir), Some(name)) = (self.reach(feed, parent, names), name_of(name)) else { return };
        let kind = match record.kind {
            Kind::File => FileType::RegularFile,
            Kind::Link => FileType::Symlink,
            Kind::Unknown => match self.look(&dir, &name) {
                Some(FileType::Directory) => {
                    if let Some(child) = self.enter_listed(&dir, &name) {
                        self.whole(feed, child, [&*record.path, b"/"].concat());
                    } else {
                        feed.covered.push([&*record.path, b"/"].concat());
                    }
                    return;
                }
                Some(kind) => kind,
                None => return,
            },
            Kind::Several | Kind::Other | Kind::Directory => FileType::Unknown,
        };
        if self.run.manifest.as_ref().is_some_and(|manifest| manifest.is_made_as(&name)) {
            return;
        }
        self.tally.scanned += 1;
        if !self.stays_out(&dir, &name, kind) {
            names.push(&name, 0, kind);
            if names.len() >= BATCH {
                self.give_out(feed, names);
            }
        } else if let Some(window) = &feed.window {
            window.done();
        }
    }

    /// Returns whether a name of `files_from` that another part has is a directory: parts share what is in
    /// those.
    fn leads_to_directory(&mut self, feed: &mut Feed, parent: &[u8], name: &[u8], names: &mut Names) -> bool {
        let (Some(dir), Some(name)) = (self.reach(feed, parent, names), name_of(name)) else { return false };
        let Ok(handles) = dir.handles(&self.run.budget) else { return false };
        lstat(handles.source(), &name).is_ok_and(|facts| facts.kind == FileType::Directory)
    }

    /// Counts an entry for the journal. Returns whether it is in a window that was complete before.
    fn is_in_journal(&mut self, feed: &mut Feed, names: &mut Names) -> bool {
        let Some(journal) = self.run.journal.get() else { return false };
        let (number, first) = (feed.entries / WINDOW_ENTRIES, feed.entries.is_multiple_of(WINDOW_ENTRIES));
        feed.entries += 1;
        if first {
            self.give_out(feed, names);
            if let Some(window) = feed.window.take() {
                window.done();
            }
            feed.window = (!journal.has(number)).then(|| journal.begin(number));
        }
        match &feed.window {
            None => true,
            Some(window) => {
                window.add();
                false
            }
        }
    }

    /// Returns what a name of the source is. `None`: it cannot be looked at, which is told.
    fn look(&mut self, dir: &Arc<Dir>, name: &CStr) -> Option<FileType> {
        let handles = match dir.handles(&self.run.budget) {
            Ok(handles) => handles,
            Err(error) => {
                self.tell(error);
                return None;
            }
        };
        let look = if dir.follow { stat } else { lstat };
        match look(handles.source(), name) {
            Ok(facts) => Some(facts.kind),
            Err(why) => {
                self.tally.scanned += 1;
                self.tally.failed += 1;
                self.tell(Error::system(ErrorKind::Stat, dir.source_of(name), why));
                None
            }
        }
    }

    /// Copies a directory with all that is in it. It is pending once for that.
    fn whole(&mut self, feed: &mut Feed, dir: Arc<Dir>, path: Vec<u8>) {
        if path.is_empty() {
            // The operand is pending for the feed.
            dir.pending.fetch_add(1, Ordering::Relaxed);
        }
        feed.covered.push(path);
        match dir.handles(&self.run.budget) {
            Ok(handles) => self.run.queue.push([Task::Scan(dir, handles)]),
            Err(error) => {
                self.tell(error);
                self.release(dir);
            }
        }
    }

    /// Makes the directory `path` the last that is entered, and returns it.
    fn reach(&mut self, feed: &mut Feed, path: &[u8], names: &mut Names) -> Option<Arc<Dir>> {
        if feed.stack.last().is_some_and(|last| last.path != path) {
            self.give_out(feed, names);
        }
        while feed.stack.len() > 1 && feed.stack.last().is_some_and(|last| !path.starts_with(&last.path)) {
            if let Some(dir) = feed.stack.pop().and_then(|left| left.dir) {
                self.release(dir);
            }
        }
        loop {
            let last = feed.stack.last()?;
            let rest = path.strip_prefix(last.path.as_slice())?;
            let Some(end) = rest.iter().position(|byte| *byte == b'/') else { return last.dir.clone() };
            let (name, below) = (name_of(rest.get(..end)?), [&*last.path, rest.get(..=end)?].concat());
            let dir = match (last.dir.clone(), name) {
                (Some(dir), Some(name)) => self.enter_listed(&dir, &name),
                _ => None,
            };
            feed.stack.push(Open { path: below, dir });
        }
    }

    /// Enters a directory of a list, which is pending once then. `None`: it stays out, and was accounted for.
    fn enter_listed(&mut self, dir: &Arc<Dir>, name: &CStr) -> Option<Arc<Dir>> {
        self.tally.scanned += 1;
        if self.stays_out(dir, name, FileType::Directory) {
            return None;
        }
        let handles = match dir.handles(&self.run.budget) {
            Ok(handles) => handles,
            Err(error) => {
                self.tally.failed += 1;
                self.tell(error);
                return None;
            }
        };
        dir.pending.fetch_add(1, Ordering::Relaxed);
        let kind = Some(FileType::Directory);
        let (source, target, follow) = (name, name, dir.follow);
        let entry =
            Entry { dir, handles: &handles, source, target, operand: false, follow, kind, window: None };
        let entered = self.enter(&entry);
        match self.persist(entered, |worker| worker.enter(&entry)) {
            Ok(Entered::Directory { child, listed: true, .. }) => return Some(child),
            // It is on another file system, and what is in it stays out.
            Ok(Entered::Directory { child, .. }) => self.release(child),
            Ok(Entered::Not(skip)) => {
                self.tally.skipped += 1;
                if self.run.wants_entries {
                    let (source, target) = (entry.source_path(), entry.target_path());
                    self.run.observer.event(Event::Skipped { source: &source, target: &target, why: skip });
                }
                self.release(Arc::clone(dir));
            }
            Err(error) => {
                self.tally.failed += 1;
                self.tell(error);
                self.release(Arc::clone(dir));
            }
        }
        None
    }

    /// Returns whether an entry, which is counted, stays out; then it is accounted for.
    pub(crate) fn stays_out(&mut self, dir: &Arc<Dir>, name: &CStr, kind: FileType) -> bool {
        let run = self.run;
        if self.is_excluded(dir, name, kind) {
            self.tally.skipped += 1;
            if run.wants_entries {
                let (source, target) = (dir.source_of(name), dir.target_of(name));
                let why = Skip::Excluded;
                run.observer.event(Event::Skipped { source: &source, target: &target, why });
            }
            return true;
        }
        if let Some(error) = run.manifest.as_ref().and_then(|manifest| manifest.refuses(dir, name, name)) {
            self.tally.failed += 1;
            self.tell(error);
            return true;
        }
        false
    }

    pub(crate) fn is_excluded(&self, dir: &Dir, name: &CStr, kind: FileType) -> bool {
        let Some(patterns) = &self.run.exclude else { return false };
        patterns.excludes(&dir.below_operand(name), kind == FileType::Directory)
    }

    /// Gives the names of the directory that was entered last to the workers.
    fn give_out(&mut self, feed: &Feed, names: &mut Names) {
        let mut names = std::mem::take(names);
        let Some(dir) = feed.stack.last().and_then(|last| last.dir.as_ref()).filter(|_| !names.is_empty())
        else {
            return;
        };
        names.window = feed.window.clone();
        let all = 0..names.len();
        let tasks = self.batches(dir, &Arc::new(names), all);
        self.run.queue.push(tasks);
        self.flush();
    }
}

/// Returns the error of a list that cannot be read.
pub(crate) fn list_error(why: ListError) -> Error {
    let text = if why.line > 0 { format!("line {}: {}", why.line, why.why) } else { why.why };
    Error { kind: ErrorKind::List, path: why.list, other: None, source: Some(std::io::Error::other(text)) }
}

/// Opens what is selected.
pub(crate) fn selection(options: &crate::Options) -> Result<Option<Selection>, ListError> {
    if let Some(list) = &options.list {
        let reader = Reader::open(list)?;
        let share = options.part.map(|part| Share::new(part, reader.sum()));
        return Ok(Some(Selection::List(reader, share)));
    }
    let Some(from) = &options.files_from else { return Ok(None) };
    Ok(Some(Selection::Names(listing::names_of(&from.file, from.nul)?, from.file.clone())))
}

/// Records of a selection, for a walk without workers: a dry run.
pub(crate) fn records(mut selection: Selection) -> impl Iterator<Item = Result<Record, ListError>> {
    std::iter::from_fn(move || selection.next().transpose())
}
