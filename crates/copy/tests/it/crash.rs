//! Power failures: a disk that loses its unsynced writes at a random moment, and what `--resume` makes of the
//! rest.
//!
//! The disk is an image on the file system for tests, which remembers every write since the last flush. After
//! a failure what was flushed is there, and of later writes a random part. Two rounds per file system;
//! `RINGROAD_CRASHES` sets another number.

use crate::fuse::{Faults, Fuse};
use crate::image::unmount;
use crate::support::{Told, archive, clean, files, many, run_with};
use crate::tree::noise;
use ringroad_copy::{Control, Engine, Options};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

const IMAGE: &str = "disk";

/// A mounted image, unmounted when dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn new(image: &Path, at: PathBuf, options: &str) -> Option<Mounted> {
        std::fs::create_dir_all(&at).unwrap();
        let options = format!("loop,{options}");
        let mounted = Command::new("mount").args(["-o", &options]).arg(image).arg(&at).output().unwrap();
        if !mounted.status.success() {
            eprintln!("skipped: mount: {}", String::from_utf8_lossy(&mounted.stderr).trim());
            return None;
        }
        Some(Mounted(at))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        unmount(&self.0);
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % end
    }
}

/// A file system: how it is made, the size of its disk, and how it is mounted for the copy.
struct System {
    make: &'static [&'static str],
    bytes: u64,
    mount: &'static str,
}

/// Copies to a disk that fails after a random number of files, and returns the disk as it is then.
fn crashed(system: &System, source: &Path, resume: bool, random: &mut Random) -> Option<Vec<u8>> {
    let System { make, bytes, mount } = *system;
    let fuse = Fuse::mount(Faults { records: true, ..Faults::default() })?;
    let place = tempfile::tempdir().unwrap();
    let image = fuse.mounted.join(IMAGE);
    std::fs::File::create(&image).unwrap().set_len(bytes).unwrap();
    let made = Command::new(make[0]).args(&make[1..]).arg(&image).output();
    if !made.is_ok_and(|made| made.status.success()) {
        eprintln!("skipped: {} is not there", make[0]);
        return None;
    }
    std::fs::File::open(&image).unwrap().sync_all().unwrap();
    let disk = Mounted::new(&image, place.path().join("disk"), mount)?;
    let fails_at = random.below(420);
    let failed = std::sync::Mutex::new(None);
    let seen = AtomicU64::new(0);
    let keep = random.below(4);
    let mut dice = Random(random.below(u64::MAX >> 34));
    let snapshot = |dice: &mut Random| fuse.after_power_failure(IMAGE, || dice.below(4) < keep);
    let state = std::sync::Mutex::new(&mut dice);
    let entry = |_: &Path, _: &Path| {
        if seen.fetch_add(1, Ordering::Relaxed) == fails_at {
            // Another program syncs a file of its own, and with that what the file system knows of others.
            let other = std::fs::File::create(disk.0.join("other")).unwrap();
            other.sync_all().unwrap();
            *failed.lock().unwrap() = Some(snapshot(&mut state.lock().unwrap()));
        }
    };
    let told = Told { entry: Some(&entry), ..Told::default() };
    let options = Options { resume, ..archive(Engine::Threads) };
    run_with(source, &disk.0.join("copy"), &options, &told, &Control::new());
    let first = failed.lock().unwrap().take();
    // Or some time after its end, when the journal is written and the data perhaps not.
    let failed = first.unwrap_or_else(|| {
        let synced = Command::new("sync").arg(disk.0.join("copy")).status();
        assert!(synced.unwrap().success());
        snapshot(&mut state.lock().unwrap())
    });
    drop(disk);
    Some(failed)
}

/// Files that have the size and the time of their source and not its contents.
fn torn(source: &Path, copy: &Path) -> Vec<PathBuf> {
    let mut torn = Vec::new();
    for (path, bytes) in files(source) {
        let target = copy.join(path.strip_prefix(source).unwrap());
        let Ok(found) = target.symlink_metadata() else { continue };
        let from = path.metadata().unwrap();
        let complete = (found.len(), found.modified().unwrap()) == (from.len(), from.modified().unwrap());
        if complete && std::fs::read(&target).ok() != Some(bytes) {
            torn.push(target);
        }
    }
    torn
}

fn survives(system: &System, resume: bool) {
    let name = system.make[0];
    let rounds = std::env::var("RINGROAD_CRASHES").map_or(2, |count| count.parse().unwrap());
    let mut random = Random(rounds ^ u64::from(resume) << 7);
    for round in 0..rounds {
        let place = tempfile::tempdir().unwrap();
        let source = place.path().join("source");
        many(&source, 300, 6000);
        for n in 0..8 {
            std::fs::write(source.join(format!("large{n}")), noise(400_000, n)).unwrap();
            // A hole at the end: its size is set before the data is written.
            let tail = std::fs::File::options().write(true).open(source.join(format!("large{n}"))).unwrap();
            tail.set_len(900_000).unwrap();
        }
        let Some(disk) = crashed(system, &source, resume, &mut random) else { return };
        let image = place.path().join("image");
        std::fs::write(&image, disk).unwrap();
        let Some(disk) = Mounted::new(&image, place.path().join("after"), "rw") else {
            panic!("round {round}: the file system did not survive, which is not the copier's doing");
        };
        let copy = disk.0.join("copy");
        if resume {
            let torn = torn(&source, &copy);
            assert!(torn.is_empty(), "{name}, round {round}: {torn:?} look complete and are not");
        }
        let options = Options { resume: true, ..archive(Engine::Auto) };
        let report = clean(&source, &copy, &options);
        eprintln!("{name}, resume {resume}, round {round}: {:?}", report.totals);
        let found = crate::compare::differences(&source, &copy, crate::compare::ALL);
        assert!(found.is_empty(), "{name}, resume {resume}, round {round}: {found:?}");
    }
}

// With `commit=1` metadata reach the disk soon, and data when they like: the order that tears files. XFS has
// no such option; its log is written when another program syncs.
const EXT4: System = System {
    make: &["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0"],
    bytes: 48 << 20,
    mount: "commit=1",
};
const BTRFS: System = System { make: &["mkfs.btrfs", "-q", "-f"], bytes: 128 << 20, mount: "commit=1" };
/// On the smallest disk that `mkfs.xfs` takes.
const XFS: System = System { make: &["mkfs.xfs", "-q", "-f"], bytes: 300 << 20, mount: "rw" };

#[test]
fn a_copy_with_resume_that_a_power_failure_stopped_is_completed_by_resume_on_ext4() {
    survives(&EXT4, true);
}

#[test]
fn a_plain_copy_that_a_power_failure_stopped_is_completed_by_resume_on_ext4() {
    survives(&EXT4, false);
}

#[test]
fn a_copy_with_resume_that_a_power_failure_stopped_is_completed_by_resume_on_btrfs() {
    survives(&BTRFS, true);
}

#[test]
fn a_copy_with_resume_that_a_power_failure_stopped_is_completed_by_resume_on_xfs() {
    survives(&XFS, true);
}
