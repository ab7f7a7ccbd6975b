//! Where trees are copied: the root disk, memory, and file systems made for the run on images that go with
//! it.
//!
//! **Nothing is removed while something is measured.** ext4 does not give out an inode that was deleted
//! within the last minute (five, if its block is not written out), and finds out by looking at each
//! (`recently_deleted`, fs/ext4/ialloc.c): copiers that follow a removal spend their time there, and all
//! ratios shrink towards 1. So every run gets a folder of its own, every block a new file system where there
//! is an image, and where room must be made, everything that was copied goes at once, followed by a wait
//! until the file system no longer looks for it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The places there are, the main ones first.
pub(super) const NAMES: &[&str] = &["disk", "ext4", "xfs", "btrfs", "tmpfs"];
pub(super) const MAIN: usize = 2;

/// Free space left alone on the root disk.
const SPARE_BYTES: u64 = 8 << 30;
/// File systems want this much, whatever is put into them.
const BYTES_LEAST: u64 = 1 << 30;
/// What ext4 is made for by default.
const BYTES_PER_INODE: u64 = 16 << 10;
/// How long ext4 remembers a deletion that was written out, and a second.
const RECENT: Duration = Duration::from_secs(61);

/// A folder on one file system; what was mounted for it is unmounted with it.
#[derive(Debug)]
pub(super) struct Place {
    name: &'static str,
    path: PathBuf,
    image: Option<PathBuf>,
    mounted: bool,
    /// Folders of runs that are over.
    spent: Vec<PathBuf>,
    runs: usize,
    /// Tells the free bytes and inodes of the file system that a path is on: [`free`].
    room: fn(&Path) -> io::Result<(u64, u64)>,
}

impl Place {
    /// The place, not yet ready for a block; or why it cannot be had here.
    pub(super) fn new(name: &'static str, dir: &Path) -> Result<Place, String> {
        let path = dir.join(name);
        fs::create_dir_all(&path).map_err(|error| format!("create a folder: {error}"))?;
        let path = path.canonicalize().map_err(|error| format!("find the folder: {error}"))?;
        if name != "disk" && !rustix::process::geteuid().is_root() {
            return Err("mounting needs root".to_string());
        }
        let image = (!matches!(name, "disk" | "tmpfs")).then(|| dir.join(format!("{name}.img")));
        Ok(Place { name, path, image, mounted: false, spent: Vec::new(), runs: 0, room: free })
    }

    /// A new file system for a block that will want up to `bytes` in `files`. Returns whether the source is
    /// to be made.
    pub(super) fn renew(&mut self, shape: &str, bytes: u64, files: u64) -> Result<bool, String> {
        if self.name == "disk" {
            return Ok(!self.source(shape).exists());
        }
        self.unmount()?;
        self.spent.clear();
        if self.name == "tmpfs" {
            let size = format!("size={}", bytes + BYTES_LEAST);
            run(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&self.path))?;
        } else if let Some(image) = &self.image {
            let _ = fs::remove_file(image);
            let file = fs::File::create(image).map_err(|error| format!("create an image: {error}"))?;
            let room = (self.room)(image).map_err(|error| format!("look at the disk: {error}"))?.0;
            // ext4 makes an inode for every 16 KiB; the image has holes, so that what is not used costs
            // nothing.
            let wanted = (bytes + bytes / 4).max(files * BYTES_PER_INODE * 5 / 4) + BYTES_LEAST;
            let bytes = wanted.min(room.saturating_sub(SPARE_BYTES));
            file.set_len(bytes).map_err(|error| format!("size an image: {error}"))?;
            let mut make = Command::new(format!("mkfs.{}", self.name));
            match self.name {
                // Else the kernel goes on making the file system while it is measured.
                "ext4" => make.args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"]),
                _ => make.args(["-q", "-f"]),
            };
            run(make.arg(image))?;
            run(Command::new("mount").args(["-o", "loop"]).arg(image).arg(&self.path))?;
        }
        self.mounted = true;
        Ok(true)
    }

    pub(super) fn source(&self, shape: &str) -> PathBuf {
        self.path.join(format!("source-{shape}"))
    }

    /// A small tree of the same shape.
    pub(super) fn sample(&self, shape: &str) -> PathBuf {
        self.path.join(format!("sample-{shape}"))
    }

    /// A name for a target, in a new folder of its own. Where there is no room for it, what was copied before
    /// goes.
    pub(super) fn fresh_target(&mut self, bytes: u64, files: u64) -> io::Result<PathBuf> {
        let spare = if self.image.is_none() && !self.mounted { SPARE_BYTES } else { BYTES_LEAST / 4 };
        let (free_bytes, free_files) = (self.room)(&self.path)?;
        if !self.spent.is_empty()
            && (free_bytes < bytes + bytes / 4 + spare || free_files < files + files / 4)
        {
            self.remove_spent()?;
            if matches!(self.name, "disk" | "ext4") {
                eprintln!("  what was copied is removed; ext4 looks for it for a minute: waiting");
                rustix::fs::sync();
                std::thread::sleep(RECENT);
            }
        }
        self.runs += 1;
        let folder = self.path.join(format!("run-{}", self.runs));
        fs::create_dir(&folder)?;
        self.spent.push(folder.clone());
        Ok(folder.join("target"))
    }

    fn remove_spent(&mut self) -> io::Result<()> {
        super::run::remove_all(std::mem::take(&mut self.spent))
    }

    /// Why a temperature makes no sense here, if it makes none.
    pub(super) fn refuses(&self, cold: bool) -> Option<&'static str> {
        if cold && self.name == "tmpfs" {
            Some("memory is never cold")
        } else if cold && !rustix::process::geteuid().is_root() {
            Some("dropping caches needs root")
        } else {
            None
        }
    }

    /// Type and options of the mount this folder is on, from the kernel.
    pub(super) fn description(&self) -> String {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        // The longest mount point that the folder is under; the last of equal ones is on top.
        let over = fields.filter(|fields| fields.get(1).is_some_and(|point| self.path.starts_with(point)));
        let best = over.max_by_key(|fields| fields.get(1).map_or(0, |point| point.len()));
        let kind = best.and_then(|fields| Some(format!("{} {}", fields.get(2)?, fields.get(3)?)));
        let on = if self.image.is_some() { ", on a loop device over a file on the root disk" } else { "" };
        kind.unwrap_or_default() + on
    }

    fn unmount(&mut self) -> Result<(), String> {
        if self.mounted {
            run(Command::new("umount").arg(&self.path))?;
            self.mounted = false;
        }
        Ok(())
    }

    /// Removes everything: images, and on the disk every copy and the source.
    pub(super) fn clear(&mut self) -> Result<(), String> {
        let path = self.path.clone();
        let failed = |error: io::Error| format!("remove {}: {error}", path.display());
        if self.mounted {
            self.unmount()?;
        } else if self.name == "disk" {
            self.remove_spent().map_err(failed)?;
            super::run::remove(&path).map_err(failed)?;
        }
        match &self.image {
            Some(image) => match fs::remove_file(image) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
                _ => Ok(()),
            },
            None => Ok(()),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Err(error) = self.clear() {
            eprintln!("bench copy: {error}");
        }
    }
}

/// Free bytes and inodes of the file system `path` is on. A file system without a number of inodes has
/// enough.
fn free(path: &Path) -> io::Result<(u64, u64)> {
    let facts = rustix::fs::statvfs(path)?;
    let inodes = if facts.f_files == 0 { u64::MAX } else { facts.f_favail };
    Ok((facts.f_bavail * facts.f_frsize, inodes))
}

/// Runs a command to its end; a failure is told in its own words.
fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(format!("{program}: not installed")),
        Err(error) => Err(format!("{program}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_run_on_the_disk_has_a_folder_of_its_own_and_nothing_is_removed_before_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let mut place = Place::new("disk", folder.path()).unwrap();
        place.room = |_| Ok((u64::MAX, u64::MAX));
        assert!(place.renew("a", 1, 1).unwrap(), "there is no source yet");
        fs::create_dir(place.source("a")).unwrap();
        let first = place.fresh_target(1, 1).unwrap();
        fs::write(&first, "a copy").unwrap();
        assert!(!place.renew("a", 1, 1).unwrap(), "the source stays from block to block");
        let second = place.fresh_target(1, 1).unwrap();
        assert_ne!(first, second);
        assert!(first.exists() && !second.exists());
        place.clear().unwrap();
        assert!(!folder.path().join("disk").exists());
    }
}
