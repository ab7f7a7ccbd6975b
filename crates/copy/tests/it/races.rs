//! A world that changes while it is copied: sources that grow, shrink, vanish and turn into something else,
//! directories that become links, and another user that tries to read what is not theirs.

use crate::over::Over;
use crate::support::{Told, archive, engines, folders, ring_engines, run, sees};
use ringroad_copy::{Engine, ErrorKind};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// Calls `change` when the first regular file is in its place.
fn at_first_file(change: impl Fn() + Sync) -> impl Fn(&Path, &Path) + Sync {
    let once = Once::new();
    move |_: &Path, target: &Path| {
        if target.is_file() {
            once.call_once(&change);
        }
    }
}

#[test]
fn a_source_that_grows_and_shrinks_all_the_time_is_copied_with_a_warning() {
    for &engine in engines() {
        let (place, source, _) = folders();
        let path = source.join("log");
        let size = 4 << 20;
        std::fs::write(&path, vec![b'x'; size]).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _over = Over(&done);
            scope.spawn(|| {
                let mut log = std::fs::File::options().append(true).open(&path).unwrap();
                while !done.load(Ordering::Relaxed) {
                    log.write_all(b"x").unwrap();
                    log.set_len(size as u64 / 2).unwrap();
                    log.set_len(size as u64).unwrap();
                }
            });
            // Now and then nothing is written between a copy's first and last look.
            let warned = sees(|round| {
                let told = Told::default();
                let target = place.path().join(format!("target{round}"));
                let report = run(&source, &target, &archive(engine), &told);
                assert!(report.is_success(), "{engine:?}: {:?}", told.errors.into_inner().unwrap());
                assert!(target.join("log").metadata().unwrap().len() > 0, "{engine:?}");
                std::fs::remove_dir_all(&target).unwrap();
                told.warnings.into_inner().unwrap() == [ErrorKind::Changed]
            });
            assert!(warned, "{engine:?}: no change was noticed");
        });
    }
}

/// A link, a mode and an attribute change a file's change time, and none of its bytes.
#[test]
fn a_source_whose_links_change_while_it_is_copied_is_no_changed_source() {
    for &engine in engines() {
        let (place, source, target) = folders();
        let path = source.join("file");
        std::fs::write(&path, vec![b'x'; 16 << 20]).unwrap();
        std::fs::create_dir(&target).unwrap();
        std::fs::write(target.join("file"), "old").unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _over = Over(&done);
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    std::fs::hard_link(&path, place.path().join("other")).unwrap();
                    std::fs::remove_file(place.path().join("other")).unwrap();
                }
            });
            for verify in [false, true] {
                let told = Told::default();
                let reflink = ringroad_copy::Reflink::Never;
                let options = ringroad_copy::Options { reflink, verify, ..archive(engine) };
                let report = run(&source, &target, &options, &told);
                assert!(report.is_success(), "{engine:?}: {:?}", told.errors.into_inner().unwrap());
                assert_eq!(told.warnings.into_inner().unwrap(), [], "{engine:?}");
            }
        });
        assert_eq!(target.join("file").metadata().unwrap().len(), 16 << 20);
    }
}

#[test]
fn sources_that_vanish_after_they_were_listed_are_told_one_by_one() {
    for &engine in engines() {
        let (_place, source, target) = folders();
        for n in 0..200 {
            std::fs::write(source.join(format!("f{n}")), "x").unwrap();
        }
        let change = at_first_file(|| {
            for n in 0..200 {
                std::fs::remove_file(source.join(format!("f{n}"))).unwrap();
            }
        });
        let told = Told { entry: Some(&change), ..Told::default() };
        let mut options = archive(engine);
        (options.jobs, options.in_flight) = (Some(1), Some(8));
        let report = run(&source, &target, &options, &told);
        assert!(report.totals.failed > 150, "{engine:?}: {report:?}");
        assert!(told.kinds.lock().unwrap().iter().all(|kind| *kind == ErrorKind::Stat));
    }
}

#[test]
fn sources_that_become_fifos_or_links_after_they_were_listed_are_copied_as_what_they_are() {
    for &engine in engines() {
        let (place, source, target) = folders();
        let secret = place.path().join("secret");
        std::fs::write(&secret, "secret").unwrap();
        for n in 0..200 {
            std::fs::write(source.join(format!("f{n}")), "plain").unwrap();
        }
        let change = at_first_file(|| {
            for n in 0..200 {
                let path = source.join(format!("f{n}"));
                std::fs::remove_file(&path).unwrap();
                if n % 2 == 0 {
                    symlink(&secret, &path).unwrap();
                } else {
                    let mode = rustix::fs::Mode::RUSR;
                    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
                }
            }
        });
        let told = Told { entry: Some(&change), ..Told::default() };
        let mut options = archive(engine);
        (options.jobs, options.in_flight) = (Some(1), Some(8));
        let report = run(&source, &target, &options, &told);
        // Those in flight were replaced between two looks.
        assert!(report.totals.failed <= 16, "{engine:?}: {report:?}");
        let replaced = [ErrorKind::Replaced, ErrorKind::Stat];
        assert!(told.kinds.lock().unwrap().iter().all(|kind| replaced.contains(kind)), "{engine:?}");
        let mut as_they_are = 0;
        for n in 0..200 {
            let name = format!("f{n}");
            let Ok(copy) = target.join(&name).symlink_metadata() else { continue };
            if copy.is_file() {
                assert_eq!(std::fs::read(target.join(&name)).unwrap(), b"plain", "{engine:?}");
            } else {
                let kind = source.join(&name).symlink_metadata().unwrap().file_type();
                assert_eq!(copy.file_type(), kind, "{engine:?}");
                as_they_are += 1;
            }
        }
        assert!(as_they_are > 150, "{engine:?}: {as_they_are}");
    }
}

#[test]
fn directories_that_become_links_after_they_were_listed_are_copied_as_links_and_not_entered() {
    for &engine in engines() {
        let (place, source, target) = folders();
        let outside = place.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("secret"), "secret").unwrap();
        for n in 0..20 {
            std::fs::create_dir(source.join(format!("d{n}"))).unwrap();
            std::fs::write(source.join(format!("d{n}/plain")), "plain").unwrap();
        }
        let change = at_first_file(|| {
            for n in 0..20 {
                let folder = source.join(format!("d{n}"));
                if !target.join(format!("d{n}")).exists() {
                    std::fs::remove_dir_all(&folder).unwrap();
                    symlink(&outside, &folder).unwrap();
                }
            }
        });
        let told = Told { entry: Some(&change), ..Told::default() };
        let mut options = archive(engine);
        (options.jobs, options.in_flight) = (Some(1), Some(1));
        let report = run(&source, &target, &options, &told);
        assert!(report.totals.failed <= 1, "{engine:?}: {report:?}");
        assert!(told.kinds.lock().unwrap().iter().all(|kind| *kind == ErrorKind::Replaced));
        let mut links = 0;
        for n in 0..20 {
            let copy = target.join(format!("d{n}"));
            let Ok(there) = copy.symlink_metadata() else { continue };
            if there.is_symlink() {
                assert_eq!(std::fs::read_link(&copy).unwrap(), outside);
                links += 1;
            } else {
                assert!(!copy.join("secret").exists(), "{engine:?}");
            }
        }
        assert!(links >= 10, "{engine:?}: {links}");
    }
}

#[test]
fn a_link_planted_at_the_target_is_not_written_beyond() {
    for &engine in engines() {
        let (place, source, target) = folders();
        let outside = place.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        for n in 0..20 {
            std::fs::create_dir(source.join(format!("d{n}"))).unwrap();
            std::fs::write(source.join(format!("d{n}/plain")), "plain").unwrap();
        }
        let change = at_first_file(|| {
            for n in 0..20 {
                // Where a directory was made already, the name is taken.
                let _ = symlink(&outside, target.join(format!("d{n}")));
            }
        });
        let told = Told { entry: Some(&change), ..Told::default() };
        let mut options = archive(engine);
        (options.jobs, options.in_flight) = (Some(1), Some(1));
        let report = run(&source, &target, &options, &told);
        assert!(report.totals.failed >= 10, "{engine:?}: {report:?}");
        assert!(told.kinds.lock().unwrap().iter().all(|kind| *kind == ErrorKind::OtherByDirectory));
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0, "nothing was written outside");
    }
}

#[test]
fn no_other_user_can_open_a_copy_in_progress() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: being another user needs root");
        return;
    }
    for engine in [Engine::Threads].into_iter().chain(ring_engines()) {
        let (place, source, target) = folders();
        std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::create_dir(&target).unwrap();
        for n in 0..100 {
            let path = source.join(format!("f{n}"));
            std::fs::write(&path, "secret").unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
            if n % 2 == 0 {
                // The group may read it, and is not the group of the copier.
                std::os::unix::fs::chown(&path, Some(1), Some(2)).unwrap();
            } else {
                // A list lets one user read it, which shows in the group's bits, and the group not.
                let file = std::fs::File::open(&path).unwrap();
                let flags = rustix::fs::XattrFlags::empty();
                let _ = rustix::fs::fsetxattr(&file, "system.posix_acl_access", &ONE_READER, flags);
            }
        }
        let done = AtomicBool::new(false);
        let opened = std::thread::scope(|scope| {
            let over = Over(&done);
            let other = scope.spawn(|| {
                // Another user from here on, this thread alone; in the copier's group, so that a group's
                // bits given too early would open the file.
                rustix::thread::set_thread_uid(rustix::fs::Uid::from_raw(65_534)).unwrap();
                let names: Vec<_> = (0..100).map(|n| target.join(format!("f{n}"))).collect();
                let mut opened = 0;
                while !done.load(Ordering::Relaxed) {
                    opened += names.iter().filter(|name| std::fs::File::open(name).is_ok()).count();
                }
                opened
            });
            for _ in 0..5 {
                let mut options = archive(engine);
                options.remove_destination = true;
                let told = Told::default();
                run(&source, &target, &options, &told);
                assert!(told.errors.lock().unwrap().is_empty(), "{:?}", told.errors.lock().unwrap());
                std::fs::set_permissions(&target, PermissionsExt::from_mode(0o755)).unwrap();
            }
            drop(over);
            other.join().unwrap()
        });
        assert_eq!(opened, 0, "{engine:?}");
    }
}

/// What a directory gives to what is made in it is not the source's, and goes when the copy is ready: until
/// then it must let no other user in.
#[test]
fn a_default_access_list_gives_no_other_user_access_to_a_copy_in_progress() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: being another user needs root");
        return;
    }
    for engine in [Engine::Threads].into_iter().chain(ring_engines()) {
        let (place, source, target) = folders();
        std::fs::create_dir(&target).unwrap();
        for folder in [place.path(), &source, &target] {
            std::fs::set_permissions(folder, PermissionsExt::from_mode(0o755)).unwrap();
        }
        for n in 0..100 {
            let path = source.join(format!("f{n}"));
            std::fs::write(&path, "secret").unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        }
        let names_the_user = || {
            let list = std::fs::File::open(&target).unwrap();
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::fsetxattr(&list, "system.posix_acl_default", &one_reader(65_534), flags)
        };
        if let Err(why) = names_the_user() {
            eprintln!("skipped: default access lists: {why}");
            return;
        }
        let done = AtomicBool::new(false);
        let opened = std::thread::scope(|scope| {
            let over = Over(&done);
            let other = scope.spawn(|| {
                // This thread alone; and in no group that the files are of.
                rustix::thread::set_thread_groups(&[]).unwrap();
                rustix::thread::set_thread_gid(rustix::fs::Gid::from_raw(65_534)).unwrap();
                rustix::thread::set_thread_uid(rustix::fs::Uid::from_raw(65_534)).unwrap();
                let names: Vec<_> = (0..100).map(|n| target.join(format!("f{n}"))).collect();
                let mut opened = 0;
                while !done.load(Ordering::Relaxed) {
                    opened += names.iter().filter(|name| std::fs::File::open(name).is_ok()).count();
                }
                opened
            });
            for _ in 0..5 {
                names_the_user().unwrap();
                let mut options = archive(engine);
                options.remove_destination = true;
                let told = Told::default();
                run(&source, &target, &options, &told);
                assert!(told.errors.lock().unwrap().is_empty(), "{:?}", told.errors.lock().unwrap());
            }
            drop(over);
            other.join().unwrap()
        });
        assert_eq!(opened, 0, "{engine:?}");
    }
}

/// The mode may have been narrowed for what was written since. The time stays the one at the beginning, as
/// GNU cp has it: the source is younger then, and is copied again by whatever compares times.
#[test]
fn a_source_that_changed_while_it_was_read_is_copied_with_no_more_mode_than_it_has_now() {
    for &engine in engines() {
        let (place, source, _) = folders();
        let path = source.join("file");
        let size = 32 << 20;
        let begun = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        // The change must come while it is read: after the copy appears, and before it is whole.
        let seen = sees(|round| {
            std::fs::write(&path, vec![b'x'; size]).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
            let file = std::fs::File::options().append(true).open(&path).unwrap();
            file.set_modified(begun).unwrap();
            let target = place.path().join(format!("target{round}"));
            let copy = target.join("file");
            let done = AtomicBool::new(false);
            let told = Told::default();
            std::thread::scope(|scope| {
                let _over = Over(&done);
                scope.spawn(|| {
                    while !copy.exists() && !done.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                    file.set_permissions(PermissionsExt::from_mode(0o600)).unwrap();
                    (&file).write_all(b"y").unwrap();
                });
                let options =
                    ringroad_copy::Options { reflink: ringroad_copy::Reflink::Never, ..archive(engine) };
                assert!(run(&source, &target, &options, &told).is_success());
            });
            let came_between = told.warnings.into_inner().unwrap() == [ErrorKind::Changed];
            if came_between {
                let to = copy.metadata().unwrap();
                assert_eq!(to.permissions().mode() & 0o777, 0o600, "{engine:?}");
                assert_eq!(to.modified().unwrap(), begun, "{engine:?}");
            }
            std::fs::remove_dir_all(&target).unwrap();
            came_between
        });
        assert!(seen, "{engine:?}: no copy was under way when its source changed");
    }
}

/// An access list in the kernel's form: `user::rw-,user:3:r--,group::---,mask::r--,other::---`.
const ONE_READER: [u8; 4 + 5 * 8] = one_reader(3);

/// The same for another than user 3.
const fn one_reader(user: u32) -> [u8; 4 + 5 * 8] {
    let entries: [(u8, u8, u32); 5] =
        [(0x01, 6, u32::MAX), (0x02, 4, user), (0x04, 0, u32::MAX), (0x10, 4, u32::MAX), (0x20, 0, u32::MAX)];
    let mut bytes = [0; 44];
    bytes[0] = 2;
    let mut at = 0;
    while at < 5 {
        let (tag, bits, id) = entries[at];
        bytes[4 + at * 8] = tag;
        bytes[6 + at * 8] = bits;
        let id = id.to_le_bytes();
        let mut byte = 0;
        while byte < 4 {
            bytes[8 + at * 8 + byte] = id[byte];
            byte += 1;
        }
        at += 1;
    }
    bytes
}
