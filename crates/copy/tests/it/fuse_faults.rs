//! What the copier makes of file systems that flip bits, hang, fail, read short and keep coarse times.

use crate::fuse::{Faults, Fuse, drop_cached, put};
use crate::image::Disk;
use crate::support::{Told, archive, clean, engines, files, folders, many, packed, run, unpacked};
use crate::tree::noise;
use ringroad_copy::{Durability, Engine, ErrorKind, Options, Reflink};
use ringroad_engine::fs::OpenOptions;
use ringroad_engine::{DriverName, Runtime, choose};
use ringroad_uring::{ReadAhead, Ring, Source};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

#[test]
fn the_file_system_for_faults_keeps_files_when_it_has_none() {
    let Some(fuse) = Fuse::mount(Faults::default()) else { return };
    let (_place, source, target) = folders();
    many(&source, 30, 5000);
    std::fs::write(source.join("large"), noise(3 << 20, 5)).unwrap();
    for &engine in engines() {
        let there = fuse.mounted.join(engine.name());
        clean(&source, &there, &archive(engine));
        let back = target.with_extension(engine.name());
        clean(&there, &back, &archive(engine));
        let found = crate::compare::differences(&source, &back, crate::compare::ALL);
        assert!(found.is_empty(), "{engine:?}: {found:?}");
    }
}

/// The page cache keeps what was written; the disk has something else.
#[test]
fn verify_reads_the_copy_from_its_file_system_and_not_from_memory() {
    let Some(fuse) = Fuse::mount(Faults { flip: Some("f7"), ..Faults::default() }) else { return };
    for &engine in engines() {
        let (_place, source, _) = folders();
        many(&source, 30, 5000);
        let target = fuse.mounted.join(engine.name());
        let told = Told::default();
        let options = Options { verify: true, ..archive(engine) };
        let report = run(&source, &target, &options, &told);
        assert_eq!(*told.kinds.lock().unwrap(), [ErrorKind::Mismatch], "{engine:?}");
        assert_eq!((report.mismatches, report.totals.verified), (1, 29), "{engine:?}: {report:?}");
        assert!(!target.join("d7/f7").exists(), "{engine:?}: what differs is not left");
    }
}

#[test]
fn resume_skips_a_copy_whose_times_its_file_system_cut() {
    // NTFS, FAT in hundredths, ext3 with small inodes.
    for step_ns in [100, 10_000_000, 1_000_000_000] {
        let Some(fuse) = Fuse::mount(Faults { step_ns, ..Faults::default() }) else { return };
        let (_place, source, _) = folders();
        many(&source, 30, 500);
        let target = fuse.mounted.join("copy");
        let options = Options { resume: true, ..archive(Engine::Threads) };
        clean(&source, &target, &options);
        let again = clean(&source, &target, &options);
        assert_eq!((again.totals.files, again.totals.skipped), (0, 30), "{step_ns} ns: {again:?}");
        // One that was changed since is copied.
        std::fs::write(source.join("d1/f1"), "changed").unwrap();
        let changed = clean(&source, &target, &options);
        assert_eq!(changed.totals.files, 1, "{step_ns} ns: {changed:?}");
    }
}

#[test]
fn a_file_that_a_quota_refuses_fails_alone() {
    for number in [122, 28] {
        let Some(fuse) = Fuse::mount(Faults { write_fails: Some(("f7", number)), ..Faults::default() })
        else {
            return;
        };
        for &engine in engines() {
            let (_place, source, _) = folders();
            many(&source, 20, 5000);
            let target = fuse.mounted.join(engine.name());
            let told = Told::default();
            let report = run(&source, &target, &archive(engine), &told);
            assert_eq!((report.totals.files, report.totals.failed), (19, 1), "{engine:?}: {report:?}");
            assert!(report.full && !report.is_success(), "{engine:?}");
            assert_eq!(files(&target).len(), 19, "{engine:?}");
        }
    }
}

#[test]
fn a_source_that_cannot_be_read_fails_alone_and_leaves_nothing() {
    let Some(fuse) = Fuse::mount(Faults::default()) else { return };
    many(&fuse.mounted, 20, 50_000);
    fuse.set(Faults { read_fails: Some(("f7", 5)), ..Faults::default() });
    for &engine in engines() {
        let (_place, _, target) = folders();
        for n in 0..20 {
            drop_cached(&fuse.mounted.join(format!("d{}/f{n}", n % 10)));
        }
        let told = Told::default();
        let report = run(&fuse.mounted, &target, &archive(engine), &told);
        let errors = told.errors.into_inner().unwrap();
        assert_eq!((report.totals.files, report.totals.failed), (19, 1), "{engine:?}: {errors:?}");
        assert!(errors[0].contains("f7") && errors[0].contains("Input/output error"), "{errors:?}");
        assert!(!target.join("d7/f7").exists(), "{engine:?}");
    }
}

/// A server may know less of a file than its size says. What came is what can be copied, and it is no whole
/// file.
#[test]
fn reads_that_answer_less_than_there_is_are_not_taken_for_the_files_end() {
    let Some(fuse) = Fuse::mount(Faults::default()) else { return };
    let bytes = noise(300_000, 9);
    let source = put(&fuse, "file", &bytes);
    // Past the cache the answer reaches the copier as it is.
    fuse.set(Faults { read_most: Some(5000), ..Faults::default() });
    let (_place, _, target) = folders();
    let options = Options { direct: true, reflink: Reflink::Never, ..archive(Engine::Threads) };
    let told = Told::default();
    let report = run(&source, &target, &options, &told);
    let whole = std::fs::read(&target).is_ok_and(|copy| copy == bytes);
    assert!(whole || !report.is_success(), "{report:?}");
}

/// As servers of generated files and of object stores have it. Past the cache a read may answer less than it
/// is asked for, and the file's size may be unknown to the server.
#[test]
fn files_past_the_page_cache_are_copied_whole_by_every_engine() {
    let Some(fuse) = Fuse::mount(Faults::default()) else { return };
    many(&fuse.mounted, 20, 9000);
    let uncached = Faults { uncached: true, ..Faults::default() };
    for faults in [
        uncached.clone(),
        Faults { read_most: Some(1000), ..uncached.clone() },
        Faults { hides: 500, ..uncached },
    ] {
        fuse.set(faults.clone());
        for &engine in engines() {
            let (_place, _, target) = folders();
            clean(&fuse.mounted, &target, &archive(engine));
            let copies = (0..20).map(|at| format!("d{}/f{at}", at % 10));
            let wrong: Vec<_> = copies
                .filter(|name| {
                    std::fs::read(target.join(name)).ok() != std::fs::read(fuse.mounted.join(name)).ok()
                })
                .collect();
            assert_eq!(wrong, [""; 0], "{engine:?}: {faults:?}");
            assert_eq!(
                std::fs::metadata(target.join("d7/f7")).unwrap().len(),
                9000,
                "{engine:?}: {faults:?}"
            );
        }
    }
}

/// The engine's own reads, which the programs beside the copier make.
#[test]
fn files_past_the_page_cache_are_read_as_they_are_on_every_driver() {
    let Some(fuse) = Fuse::mount(Faults::default()) else { return };
    let bytes = noise(9000, 1);
    put(&fuse, "f", &bytes);
    let direct = libc::O_DIRECT;
    let kinds = [(0, true), (direct, true), (direct, false)];
    let each = |read_most| kinds.map(|(flags, uncached)| (flags, uncached, read_most));
    for (flags, uncached, read_most) in each(None).into_iter().chain(each(Some(1000))) {
        fuse.set(Faults { uncached, read_most, ..Faults::default() });
        for driver in choose::drivers().filter(|driver| choose::probe(*driver).is_ok()) {
            let runtime = Runtime::new(driver).unwrap();
            let read = runtime.block_on(async {
                let file = OpenOptions::new().read(true).custom_flags(flags);
                let file = file.open(fuse.mounted.join("f")).await.unwrap();
                let mut all = Vec::new();
                while all.len() < 2 * bytes.len() {
                    let (read, piece) = file.read_at(Vec::with_capacity(4096), all.len() as u64).await;
                    if read.unwrap() == 0 {
                        break;
                    }
                    all.extend(piece);
                }
                all
            });
            assert!(read.unwrap() == bytes, "{driver}: {flags:#o}, {read_most:?}");
        }
        if choose::probe(DriverName::IoUring).is_err() {
            continue;
        }
        let mut ahead = ReadAhead::new(Ring::builder(4), 4096).unwrap();
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).custom_flags(flags).open(fuse.mounted.join("f")).unwrap();
        for source in [Source::Positioned { size: 9000 }, Source::Positioned { size: 0 }, Source::Stream] {
            let mut all = Vec::new();
            let read = ahead.read(file.as_fd(), source, &mut |piece| {
                all.extend_from_slice(piece);
                if all.len() > bytes.len() { Err(std::io::ErrorKind::FileTooLarge.into()) } else { Ok(()) }
            });
            assert!(read.is_ok() && all == bytes, "{read:?}: {flags:#o}, {read_most:?}, {source:?}");
        }
    }
}

/// The same size and the same time, and other bytes.
#[test]
fn a_copy_that_looks_complete_and_is_not_is_copied_again_by_verify_and_by_a_manifest() {
    for (verify, manifest) in [(true, false), (false, true), (true, true)] {
        for update in [ringroad_copy::Update::All, ringroad_copy::Update::Older] {
            let (place, source, target) = folders();
            many(&source, 20, 5000);
            clean(&source, &target, &archive(Engine::Threads));
            corrupt(&source.join("d7/f7"), &target.join("d7/f7"));
            let resume = update == ringroad_copy::Update::All;
            let list = place.path().join("list");
            let manifest = manifest.then(|| list.clone());
            let options = Options { resume, verify, manifest, update, ..archive(Engine::Auto) };
            let report = clean(&source, &target, &options);
            assert_eq!(report.totals.files, 1, "{options:?}: {report:?}");
            if verify {
                assert_eq!(report.totals.verified, 20, "{options:?}: the copied one and the kept ones");
            }
            crate::support::assert_no_torn_file(&source, &target);
            if options.manifest.is_some() {
                let text = std::fs::read_to_string(&list).unwrap();
                for (path, bytes) in files(&source) {
                    let hash = blake3::hash(&bytes).to_hex().to_string();
                    assert!(text.contains(&hash), "{}: {text}", path.display());
                }
            }
        }
    }
}

#[test]
fn a_target_that_is_kept_and_differs_is_an_error_of_verify() {
    let (_place, source, target) = folders();
    many(&source, 20, 500);
    clean(&source, &target, &archive(Engine::Threads));
    // Younger than its source: `update` keeps it.
    std::fs::write(target.join("d7/f7"), "written since").unwrap();
    for update in [ringroad_copy::Update::Older, ringroad_copy::Update::None] {
        let told = Told::default();
        let options = Options { verify: true, update, ..archive(Engine::Auto) };
        let report = run(&source, &target, &options, &told);
        assert_eq!(told.kinds.into_inner().unwrap(), [ErrorKind::KeptDiffers], "{update:?}");
        assert_eq!((report.totals.verified, report.totals.failed), (19, 1), "{update:?}: {report:?}");
        assert_eq!(std::fs::read(target.join("d7/f7")).unwrap(), b"written since");
    }
}

/// As after a crash: size and time of a file reached the disk, its data did not.
#[test]
fn resume_copies_again_what_has_a_hole_where_its_source_has_data() {
    let (_place, source, target) = folders();
    many(&source, 20, 50_000);
    clean(&source, &target, &archive(Engine::Threads));
    for (name, keeps) in [("d7/f7", 0), ("d8/f8", 20_480)] {
        let (from, to) = (source.join(name), target.join(name));
        let torn = std::fs::File::options().write(true).open(&to).unwrap();
        torn.set_len(keeps).unwrap();
        torn.set_len(50_000).unwrap();
        torn.set_modified(from.metadata().unwrap().modified().unwrap()).unwrap();
    }
    // A copy that has holes for zeros is a copy.
    std::fs::write(source.join("zeros"), vec![0; 100_000]).unwrap();
    let zeros = std::fs::File::create(target.join("zeros")).unwrap();
    zeros.set_len(100_000).unwrap();
    zeros.set_modified(source.join("zeros").metadata().unwrap().modified().unwrap()).unwrap();
    let options = Options { resume: true, ..archive(Engine::Auto) };
    let report = clean(&source, &target, &options);
    assert_eq!(report.totals.files, 2, "{report:?}");
    crate::support::assert_no_torn_file(&source, &target);
}

fn corrupt(source: &std::path::Path, target: &std::path::Path) {
    let mut bytes = std::fs::read(target).unwrap();
    bytes[1000] ^= 1;
    std::fs::write(target, bytes).unwrap();
    let time = source.metadata().unwrap().modified().unwrap();
    std::fs::File::options().write(true).open(target).unwrap().set_modified(time).unwrap();
}

#[test]
fn a_listing_that_fails_for_a_while_is_gone_on_with_and_loses_no_name() {
    for (retries, fails) in [(4, 2), (1, 1000)] {
        let Some(fuse) = Fuse::mount(Faults::default()) else { return };
        many(&fuse.mounted, 40, 100);
        fuse.set(Faults {
            list_fails: Some(("d3", libc::EIO)),
            list_fails_times: Some(fails),
            ..Faults::default()
        });
        for &engine in engines() {
            let (_place, _, target) = folders();
            let told = Told::default();
            let options = Options { retries, ..archive(engine) };
            let report = run(&fuse.mounted, &target, &options, &told);
            let passed = fails < 1000;
            assert_eq!(report.is_success(), passed, "{engine:?}: {:?}", told.errors.lock().unwrap());
            assert_eq!(report.totals.files, if passed { 40 } else { 36 }, "{engine:?}");
        }
    }
}

#[test]
fn what_fails_for_a_while_is_tried_again_as_often_as_asked() {
    for number in [libc::EIO, libc::ESTALE] {
        for (retries, fails) in [(4, 2), (1, 1000)] {
            let faults = Faults {
                read_fails: Some(("f7", number)),
                read_fails_times: Some(fails),
                ..Faults::default()
            };
            let Some(fuse) = Fuse::mount(faults) else { return };
            for name in ["f6", "f7"] {
                put(&fuse, name, &noise(300, 1));
            }
            let (_place, _, target) = folders();
            let told = Told::default();
            let options = Options { retries, ..archive(Engine::Threads) };
            let report = run(&fuse.mounted, &target, &options, &told);
            let passed = fails < 1000;
            assert_eq!(report.is_success(), passed, "{:?}", told.errors.lock().unwrap());
            assert_eq!(report.totals.files, if passed { 2 } else { 1 });
            assert_eq!(target.join("f7").exists(), passed, "what cannot be finished is removed");
        }
    }
}

/// Some files are served by programs that heed `O_NONBLOCK`, which files on disks do not.
#[test]
fn files_that_answer_eagain_to_calls_that_do_not_wait_are_copied_replaced_verified_and_packed() {
    for faults in
        [Faults { no_nonblock: true, ..Faults::default() }, Faults { opens_wait: true, ..Faults::default() }]
    {
        let Some(fuse) = Fuse::mount(faults) else { return };
        let source = fuse.mounted.join("source");
        many(&source, 20, 5000);
        for &engine in engines() {
            let target = fuse.mounted.join(engine.name());
            for text in ["", "changed"] {
                std::fs::write(source.join("d1/f1"), text).unwrap();
                let options = Options { verify: true, ..archive(engine) };
                clean(&source, &target, &options);
                assert_eq!(std::fs::read(target.join("d1/f1")).unwrap(), text.as_bytes(), "{engine:?}");
            }
            let resume = Options { resume: true, ..archive(engine) };
            clean(&source, &target, &resume);
            let found = crate::compare::differences(&source, &target, crate::compare::ALL);
            assert!(found.is_empty(), "{engine:?}: {found:?}");
        }
    }
}

/// So the kernel says that a directory was removed after it was opened; readdir(3) of every C library ends
/// there.
#[test]
fn a_directory_that_was_removed_is_empty() {
    const ENOENT: i32 = 2;
    let Some(fuse) = Fuse::mount(Faults::default()) else { return };
    let source = fuse.mounted.join("source");
    many(&source, 20, 100);
    fuse.set(Faults { list_fails: Some(("d3", ENOENT)), ..Faults::default() });
    for &engine in engines() {
        let (place, _, target) = folders();
        clean(&source, &target, &archive(engine));
        assert_eq!(files(&target).len(), 18, "{engine:?}");
        std::fs::write(target.join("more"), "").unwrap();
        let report = clean(&source, &target, &Options { delete: true, ..archive(engine) });
        assert_eq!(report.totals.deleted, 1, "{engine:?}");
        let list = place.path().join("list");
        let options = archive(engine);
        let listed =
            ringroad_copy::listing::make(&source, &list, &options, &(), &ringroad_copy::Control::new());
        assert_eq!(listed.unwrap().entries, 18, "{engine:?}");
        // Numbered backups look for those that there are.
        let numbered =
            ringroad_copy::Backup { kind: ringroad_copy::BackupKind::Numbered, suffix: "~".into() };
        let options = Options { backup: Some(numbered), ..archive(engine) };
        clean(&place.path().join("list"), &source.join("d3/f3"), &options);
        assert!(source.join("d3/f3.~1~").exists());
        std::fs::remove_file(source.join("d3/f3.~1~")).unwrap();
    }
}

/// There is no disk behind them that their data could be on.
#[test]
fn a_device_is_not_synced_and_that_is_no_error() {
    for &engine in engines() {
        let (_place, source, _) = folders();
        std::fs::write(source.join("f"), "x").unwrap();
        let plain = Options { engine, ..Options::default() };
        for options in [
            Options { durability: Durability::File, ..plain.clone() },
            Options { resume: true, ..plain.clone() },
        ] {
            clean(&source.join("f"), std::path::Path::new("/dev/null"), &options);
        }
    }
}

#[test]
fn a_disk_is_verified_as_far_as_it_was_written_and_other_devices_say_why_they_are_not() {
    let (place, source, _) = folders();
    std::fs::write(source.join("f"), noise(300_001, 7)).unwrap();
    let image = place.path().join("image");
    std::fs::File::create(&image).unwrap().set_len(1 << 20).unwrap();
    let disk = Disk::over(&image);
    for &engine in engines() {
        let options = Options { engine, verify: true, ..Options::default() };
        let told = Told::default();
        let report = run(&source.join("f"), Path::new("/dev/null"), &options, &told);
        let errors = told.errors.into_inner().unwrap();
        assert_eq!(
            (report.totals.verified, report.mismatches, errors.len()),
            (0, 0, 1),
            "{engine:?}: {errors:?}"
        );
        assert!(errors[0].contains("cannot be read back"), "{engine:?}: {errors:?}");
        if let Some(disk) = &disk {
            let report = clean(&source.join("f"), &disk.path, &options);
            assert_eq!(report.totals.verified, 1, "{engine:?}");
        }
    }
    if disk.is_none() {
        eprintln!("skipped: a disk that is verified needs a loop device");
    }
}

#[test]
fn a_file_that_cannot_be_read_to_its_end_is_left_out_of_its_shard_and_nothing_else_is() {
    let faults = Faults { read_fails: Some(("b", 5)), read_fails_from: 9 << 20, ..Faults::default() };
    let Some(fuse) = Fuse::mount(Faults::default()) else { return };
    let place = tempfile::tempdir().unwrap();
    for (name, bytes) in [("a", 1000), ("b", 10 << 20), ("c", 5 << 20)] {
        put(&fuse, name, &crate::tree::noise(bytes, 7));
    }
    fuse.set(faults);
    let (packed, shards) = packed(&fuse.mounted, place.path(), 1 << 30, 2);
    assert_eq!((packed.shards, packed.entries, packed.errors), (1, 2, 1));
    let to = place.path().join("to");
    let done = unpacked(&shards, &to, 2);
    assert_eq!((done.entries, done.verified, done.errors), (2, 2, 0));
    assert!(!to.join("b").exists());
    for name in ["a", "c"] {
        assert!(std::fs::read(to.join(name)).unwrap() == std::fs::read(fuse.mounted.join(name)).unwrap());
    }
}

/// A disk that fails, a file server that was restarted, a value that does not fit: any call may say so.
#[test]
fn an_error_of_any_call_is_told_and_what_is_there_nevertheless_is_whole() {
    // LOOKUP, GETATTR, SETATTR, READLINK, SYMLINK, MKNOD, MKDIR, UNLINK, RENAME, OPEN, READ, WRITE, STATFS,
    // FSYNC, SETXATTR, GETXATTR, LISTXATTR, FLUSH, OPENDIR, READDIR, CREATE, FALLOCATE, RENAME2, LSEEK,
    // COPY_FILE_RANGE, STATX
    const CALLS: [u32; 26] =
        [1, 3, 4, 5, 6, 8, 9, 10, 12, 14, 15, 16, 17, 20, 21, 22, 23, 25, 27, 28, 35, 43, 45, 46, 47, 52];
    let Some(fuse) = Fuse::mount(Faults::default()) else { return };
    let (_place, plain, target) = folders();
    many(&plain, 3, 5000);
    let there = fuse.mounted.join("source");
    clean(&plain, &there, &archive(Engine::Threads));
    let mut runs = 0;
    for &engine in engines() {
        for call in CALLS {
            for is_of_source in [true, false] {
                runs += 1;
                let number = [libc::EIO, libc::ESTALE, libc::EOVERFLOW][runs % 3];
                let (from, to) = match is_of_source {
                    true => (&there, target.with_extension(runs.to_string())),
                    false => (&plain, fuse.mounted.join(runs.to_string())),
                };
                files(&there).iter().for_each(|(path, _)| drop_cached(path));
                let refuses = Box::leak(Box::new([(call, number)]));
                fuse.set(Faults { refuses, ..Faults::default() });
                let told = Told::default();
                let report = run(from, &to, &archive(engine), &told);
                fuse.set(Faults::default());
                let told = told.errors.into_inner().unwrap();
                let what = format!("{engine:?}: call {call} of source {is_of_source}: {number}: {told:?}");
                assert!(report.is_success() || !told.is_empty(), "{what}");
                let copied = if to.is_dir() { files(&to) } else { Vec::new() };
                assert!(!report.is_success() || copied.len() == 3, "{what}");
                // What a file server could not keep it may say at the close.
                assert!(!report.is_success() || is_of_source || call != 25, "{what}");
                for (path, bytes) in copied {
                    let original = plain.join(path.strip_prefix(&to).unwrap());
                    assert!(std::fs::read(original).is_ok_and(|own| own == bytes), "{what}: {path:?}");
                }
            }
        }
    }
}
