//! Files under a lease of another process, as file servers take them for their clients: an open of such a
//! file waits until the lease is given up.

use crate::support::{Told, archive, assert_no_torn_file, clean, engines, folders, many, run_with};
use nix::libc;
use ringroad_copy::{Control, Options, Preserve};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// A lease on a file, taken by this process: it holds up every open of the file, also by this process.
struct Lease {
    file: File,
    kind: libc::c_int,
}

impl Lease {
    /// `kind`: `F_RDLCK` is against writers, `F_WRLCK` against all. `None`, with the reason on stderr, where
    /// the file system has no leases.
    fn take(path: &Path, kind: libc::c_int) -> Option<Lease> {
        let lease = Lease { file: File::open(path).unwrap(), kind };
        let begun = Instant::now();
        loop {
            match lease.control(libc::F_SETLEASE, kind) {
                Ok(_) => break,
                // A process that another test is about to start may have it open still.
                Err(why) if why.raw_os_error() == Some(libc::EAGAIN) => {
                    assert!(begun.elapsed().as_secs() < 60, "{} stays open elsewhere", path.display());
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(why) => {
                    eprintln!("skipped: a lease on {}: {why}", path.display());
                    return None;
                }
            }
        }
        // No process gets the signal, which would end this one; whether the lease is wanted is looked for.
        lease.control(libc::F_SETOWN, 0).unwrap();
        Some(lease)
    }

    fn control(&self, command: libc::c_int, value: libc::c_int) -> std::io::Result<libc::c_int> {
        // SAFETY: these commands take an integer, and the descriptor is ours.
        let answer = unsafe { libc::fcntl(self.file.as_raw_fd(), command, value) };
        if answer < 0 { Err(std::io::Error::last_os_error()) } else { Ok(answer) }
    }

    /// Returns when a process wants to open the file.
    fn wait_until_wanted(&self) {
        let begun = Instant::now();
        // Asked of a lease that is wanted, the kernel says what it shall become.
        while self.control(libc::F_GETLEASE, 0).unwrap() == self.kind {
            assert!(begun.elapsed().as_secs() < 120, "nobody wanted to open the file");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Holds it a while longer than it is wanted, and gives it up.
    fn give_up(&self) {
        self.wait_until_wanted();
        std::thread::sleep(Duration::from_millis(200));
        self.control(libc::F_SETLEASE, libc::F_UNLCK).unwrap();
    }
}

/// Does `work` while another thread does `other`.
fn beside<T>(other: impl FnOnce() + Send, work: impl FnOnce() -> T) -> T {
    std::thread::scope(|scope| {
        scope.spawn(other);
        work()
    })
}

#[test]
fn a_source_under_a_write_lease_is_copied_after_its_release() {
    for &engine in engines() {
        let (_place, source, target) = folders();
        many(&source, 30, 1000);
        let Some(lease) = Lease::take(&source.join("d1/f1"), libc::F_WRLCK) else { return };
        let report = beside(|| lease.give_up(), || clean(&source, &target, &archive(engine)));
        assert_eq!(report.totals.files, 30, "{engine:?}");
        assert_no_torn_file(&source, &target);
    }
}

#[test]
fn a_target_under_a_read_lease_is_written_after_its_release_and_keeps_its_links() {
    for &engine in engines() {
        for force in [false, true] {
            let (place, source, target) = folders();
            many(&source, 30, 1000);
            std::fs::create_dir_all(target.join("d1")).unwrap();
            let (path, other) = (target.join("d1/f1"), place.path().join("other"));
            std::fs::write(&path, "old").unwrap();
            std::fs::hard_link(&path, &other).unwrap();
            let Some(lease) = Lease::take(&path, libc::F_RDLCK) else { return };
            // To keep the source's names together, a target's are parted.
            let options = Options { force, preserve: Preserve::DEFAULT, ..archive(engine) };
            beside(|| lease.give_up(), || clean(&source, &target, &options));
            assert_no_torn_file(&source, &target);
            let (path, other) = (path.metadata().unwrap(), other.metadata().unwrap());
            assert_eq!(path.ino(), other.ino(), "{engine:?}, force {force}: it is one file still");
        }
    }
}

#[test]
fn a_skipped_target_under_a_lease_is_listed_after_its_release() {
    for &engine in engines() {
        let (place, source, target) = folders();
        many(&source, 30, 1000);
        let list = place.path().join("list");
        let options = Options { resume: true, manifest: Some(list.clone()), ..archive(engine) };
        clean(&source, &target, &options);
        let first = std::fs::read(&list).unwrap();
        let Some(lease) = Lease::take(&target.join("d1/f1"), libc::F_WRLCK) else { return };
        beside(|| lease.give_up(), || clean(&source, &target, &options));
        assert!(std::fs::read(&list).unwrap() == first, "{engine:?}: the list is another");
    }
}

#[test]
fn a_copy_that_is_stopped_waits_for_no_lease_and_leaves_the_target_as_it_was() {
    for &engine in engines() {
        for of_source in [false, true] {
            let (_place, source, target) = folders();
            std::fs::create_dir(&target).unwrap();
            std::fs::write(source.join("f"), "new").unwrap();
            std::fs::write(target.join("f"), "old").unwrap();
            let (path, kind) =
                if of_source { (source.join("f"), libc::F_WRLCK) } else { (target.join("f"), libc::F_RDLCK) };
            let Some(lease) = Lease::take(&path, kind) else { return };
            let control = Control::new();
            let stop = || {
                lease.wait_until_wanted();
                std::thread::sleep(Duration::from_millis(50));
                control.cancel();
            };
            let told = Told::default();
            let options = Options { force: true, ..archive(engine) };
            let report = beside(stop, || run_with(&source, &target, &options, &told, &control));
            assert!(report.cancelled, "{engine:?}");
            let totals = report.totals;
            assert_eq!(
                (totals.files, totals.failed),
                (0, 0),
                "{engine:?}: {:?}",
                told.errors.lock().unwrap()
            );
            lease.control(libc::F_SETLEASE, libc::F_UNLCK).unwrap();
            assert_eq!(std::fs::read(target.join("f")).unwrap(), b"old", "{engine:?}");
        }
    }
}
