//! Lists directories in windows; each window becomes tasks.

use crate::clock::For;
use crate::dir::{Dir, Handles, lists_truly, lstat, stat};
use crate::error::{Error, ErrorKind};
use crate::options::Order;
use crate::queue::{Names, Task};
use crate::worker::Worker;
use rustix::fs::{FileType, RawDir};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Entries of one directory held at a time; also the window of the inode order.
const WINDOW: usize = 1 << 16;
const LISTING_BYTES: usize = 1 << 17;

impl Worker<'_, '_> {
    /// Lists the next window of a directory and makes work of it.
    pub(crate) fn scan(&mut self, dir: Arc<Dir>, handles: Arc<Handles>) {
        let run = self.run;
        if run.stopped() {
            return self.release(dir);
        }
        let mut files = Names::default();
        let mut directories = Names::default();
        let mut buffer = std::mem::take(&mut self.listing);
        buffer.reserve_exact(LISTING_BYTES);
        let mut entries = RawDir::new(handles.source(), buffer.spare_capacity_mut());
        let mut more = true;
        let mut failed = None;
        let mut pauses = self.pauses();
        // Patterns and parts ask whether an entry is a directory before it is looked at.
        let asks = run.options.part.is_some() || run.exclude.is_some();
        let in_doubt = asks && !lists_truly(handles.source());
        // The descriptor's position is behind the buffer's last entry, so a window ends where the buffer
        // does.
        while files.len() + directories.len() < WINDOW || !entries.is_buffer_empty() {
            let next = if entries.is_buffer_empty() {
                self.clock.call(For::Scan, || entries.next())
            } else {
                entries.next()
            };
            let entry = match next {
                None => {
                    more = false;
                    break;
                }
                Some(Ok(entry)) => entry,
                Some(Err(Errno::INTR)) => continue,
                // The directory was removed: there are no more entries in it.
                Some(Err(Errno::NOENT)) => {
                    more = false;
                    break;
                }
                Some(Err(why)) if self.lists_again(why, &mut pauses) => continue,
                Some(Err(why)) => {
                    failed = Some(why);
                    more = false;
                    break;
                }
            };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if run.manifest.as_ref().is_some_and(|manifest| manifest.is_made_as(name)) {
                continue;
            }
            self.tally.scanned += 1;
            // What the listing does not say, or what a followed link leads to, is found out here: directories
            // go another way than files.
            let mut kind = entry.file_type();
            if in_doubt || kind == FileType::Unknown || (kind == FileType::Symlink && dir.follow) {
                let look = if dir.follow { stat } else { lstat };
                let facts = look(handles.source(), name);
                kind = facts.map_or(kind, |facts| facts.kind);
            }
            if let Some(part) = run.options.part
                && kind != FileType::Directory
                && !part.has(&dir.below_operand(name))
                && !self.is_excluded(&dir, name, kind)
            {
                // Another program counts it.
                self.tally.scanned -= 1;
                continue;
            }
            if self.stays_out(&dir, name, kind) {
                continue;
            }
            let into = if kind == FileType::Directory { &mut directories } else { &mut files };
            into.push(name, entry.ino(), kind);
        }
        self.listing = buffer;
        if let Some(why) = failed {
            self.tell(Error::system(ErrorKind::ReadDirectory, dir.source_path(), why));
        }
        match run.options.order {
            Order::Inode => {
                files.sort_by_inode();
                directories.deal_by_inode(run.chosen.choice.jobs);
            }
            Order::Directory => directories.reverse(),
        }
        let mut tasks = Vec::new();
        dir.pending.fetch_add(directories.len(), Ordering::Relaxed);
        if !directories.is_empty() {
            tasks.push(Task::Directories(Arc::clone(&dir), directories));
        }
        let all = 0..files.len();
        tasks.extend(self.batches(&dir, &Arc::new(files), all));
        if more {
            tasks.insert(0, Task::Scan(dir, handles));
            run.queue.push(tasks);
        } else {
            run.queue.push(tasks);
            // Descriptors are scarce where the directories above must be opened again to be finished.
            drop(handles);
            self.release(dir);
        }
    }
}
