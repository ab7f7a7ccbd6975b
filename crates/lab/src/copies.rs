//! Where copies of trees go, so that the removal of one does not slow down another.
//!
//! **Nothing is removed while something is measured.** ext4 does not reuse an inode within a minute after its
//! deletion, and finds out by reading each (`recently_deleted`, fs/ext4/ialloc.c). A copy after a removal can
//! take ten times as long, and all ratios shrink towards 1. So each copy has a name of its own and stays.
//! Where there is no room for another, all are removed at once, and no copy begins before the minute is over.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Left free whatever happens.
pub(crate) const SPARE_BYTES: u64 = 2 << 30;
/// How long ext4 remembers a deletion that was written out, and a second.
const RECENT: Duration = Duration::from_secs(61);

/// What a copy takes, and what is there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) bytes: u64,
    pub(crate) files: u64,
}

impl Room {
    /// Of the file system that a folder is on. One that does not count its inodes has enough.
    pub(crate) fn of(folder: &Path) -> io::Result<Room> {
        let facts = rustix::fs::statvfs(folder)?;
        let files = if facts.f_files == 0 { u64::MAX } else { facts.f_favail };
        Ok(Room { bytes: facts.f_bavail * facts.f_frsize, files })
    }

    /// Returns whether a tree has room here. A small file takes a block, and so does a folder.
    fn has_room_for(&self, tree: Room) -> bool {
        let bytes = tree.bytes + tree.files * 4096;
        self.bytes >= bytes + bytes / 4 + SPARE_BYTES && self.files >= tree.files + tree.files / 4
    }
}

/// Where in the folder for trees they lie.
const FOLDER: &str = "copies";

/// Returns a name for a copy of `tree` below `scratch`, where nothing has that name. Waits where room had to
/// be made, unless `stop` is set meanwhile.
pub(crate) fn fresh(scratch: &Path, tree: Room, stop: &AtomicBool) -> io::Result<PathBuf> {
    let folder = &scratch.join(FOLDER);
    fs::create_dir_all(folder)?;
    let mut there = fs::read_dir(folder)?.count();
    if there > 0 && !Room::of(folder)?.has_room_for(tree) {
        clear(scratch)?;
        fs::create_dir(folder)?;
        there = 0;
        rustix::fs::sync();
        let removed = Instant::now();
        while removed.elapsed() < RECENT && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    Ok(folder.join(there.to_string()))
}

/// Removes all copies, when nothing will be measured any more.
pub(crate) fn clear(scratch: &Path) -> io::Result<()> {
    match fs::remove_dir_all(scratch.join(FOLDER)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_copy_takes_no_name_that_is_there_and_removes_nothing_while_there_is_room() {
        let place = tempfile::tempdir().unwrap();
        let (folder, stop) = (place.path(), AtomicBool::new(false));
        let small = Room { bytes: 1, files: 1 };
        if !Room::of(place.path()).unwrap().has_room_for(small) {
            return eprintln!("skipped: the disk is nearly full");
        }
        let first = fresh(folder, small, &stop).unwrap();
        fs::write(&first, "a copy").unwrap();
        let second = fresh(folder, small, &stop).unwrap();
        assert!(first.exists() && !second.exists());
        clear(folder).unwrap();
        assert!(!first.exists());
        clear(folder).unwrap();
    }

    #[test]
    fn without_room_the_partial_copy_is_removed_and_a_stop_takes_effect_promptly() {
        let place = tempfile::tempdir().unwrap();
        let (folder, stop) = (place.path(), AtomicBool::new(true));
        let large = Room { bytes: 1 << 60, files: 1 };
        let first = fresh(folder, large, &stop).unwrap();
        fs::create_dir(&first).unwrap();
        assert_eq!(fresh(folder, large, &stop).unwrap(), first);
        assert!(!first.exists());
    }

    #[test]
    fn room_is_for_blocks_and_inodes_and_some_is_left() {
        let tree = Room { bytes: 1000, files: 1 << 20 };
        let there = |bytes, files| Room { bytes, files }.has_room_for(tree);
        assert!(there(8 << 30, 2 << 20));
        assert!(!there(4 << 30, 2 << 20), "a block for each file, and what is to stay free");
        assert!(!there(8 << 30, 1 << 20), "inodes");
    }
}
