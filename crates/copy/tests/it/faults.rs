//! Faults beneath the copier: limits, full disks, a kernel without rings, a process killed.

use crate::child;
use crate::image::{Image, unmount};
use crate::support::{
    Told, archive, assert_no_torn_file, clean, engines, files, folders, many, packed, ring_engines, run,
    unpacked,
};
use crate::tree::{build, deep};
use ringroad_copy::{Control, Destination, Engine, Refusal};
use std::path::Path;

#[test]
fn a_write_that_is_cut_short_fails_its_file_and_leaves_no_torn_copy() {
    for &engine in engines() {
        let (_place, source, target) = folders();
        many(&source, 50, 1000);
        std::fs::write(source.join("large"), crate::tree::noise(100_000, 1)).unwrap();
        // Blocks of 512 or 1024 bytes, by shell: either way below the large file, above the small ones.
        let answer = child::run("trap '' XFSZ; ulimit -f 64", engine, &source, &target);
        assert!(answer.balanced && answer.failed == 1, "{engine:?}: {answer:?}");
        assert!(answer.errors.len() == 1 && answer.errors[0].contains("large"), "{answer:?}");
        assert!(!target.join("large").exists(), "half a file is not left");
        assert_eq!(files(&target).len(), 50);
        assert_no_torn_file(&source, &target);
    }
}

#[test]
fn sixty_four_descriptors_are_enough_for_a_deep_tree() {
    for &engine in engines() {
        let (_place, source, target) = folders();
        build(&source, &deep(200));
        many(&source, 200, 100);
        let answer = child::run("ulimit -n 64", engine, &source, &target);
        assert!(answer.balanced && answer.failed == 0, "{engine:?}: {answer:?}");
        assert!(answer.copied > 400, "{answer:?}");
    }
}

/// Each worker, open directory and ring takes some, so there are fewer of them.
#[test]
fn with_few_descriptors_there_is_less_at_a_time_and_nothing_is_lost() {
    for &engine in engines() {
        let (_place, source, target) = folders();
        build(&source, &deep(60));
        many(&source, 200, 5000);
        let limit = if matches!(engine, Engine::Threads | Engine::Auto) { 14 } else { 20 };
        let answer = child::run(&format!("ulimit -n {limit}"), engine, &source, &target);
        assert!(answer.balanced && answer.failed == 0, "{engine:?}: {answer:?}");
        assert!(answer.copied > 260, "{answer:?}");
    }
}

/// Shells, build tools and supervisors leave descriptors open to what they start.
#[test]
fn descriptors_that_were_open_before_are_not_counted_on() {
    for &engine in engines() {
        let (_place, source, target) = folders();
        build(&source, &deep(20));
        many(&source, 400, 5000);
        let free = if matches!(engine, Engine::Threads | Engine::Auto) { 14 } else { 20 };
        for limit in [60, 1024] {
            let target = target.join(limit.to_string());
            std::fs::create_dir_all(target.parent().unwrap()).unwrap();
            let limits = format!("ulimit -n {limit}; export {}={}", child::HELD, limit - free);
            let answer = child::run(&limits, engine, &source, &target);
            assert!(answer.balanced && answer.failed == 0, "{engine:?}, {limit}: {answer:?}");
            assert!(answer.copied > 420, "{answer:?}");
        }
    }
}

/// systemd's group of calls about resources has `prlimit64`; a filter without it leaves the limit unknown.
#[test]
fn a_filter_that_does_not_tell_the_limit_of_descriptors_stops_nothing() {
    for &engine in engines() {
        let (_place, source, target) = folders();
        many(&source, 50, 1000);
        let work = std::thread::spawn(move || {
            deny_rings(seccompiler::SeccompAction::Errno(1), &[libc::SYS_prlimit64]);
            assert_eq!(clean(&source, &target, &archive(engine)).totals.files, 50, "{engine:?}");
        });
        work.join().unwrap();
    }
}

/// File systems and filters without a call answer EINVAL, ENOSYS, EOPNOTSUPP, old filters EPERM. What does
/// without is done without.
#[test]
fn calls_that_there_are_not_end_no_copy_list_or_shard() {
    const EPERM: u32 = 1;
    const EINVAL: u32 = 22;
    const EOPNOTSUPP: u32 = 95;
    let ways: [(u32, &[i64]); 4] = [
        (EINVAL, &[libc::SYS_fdatasync]),
        (EOPNOTSUPP, &[libc::SYS_fdatasync, libc::SYS_sync_file_range]),
        (EPERM, &[libc::SYS_sync_file_range, libc::SYS_fstatfs, libc::SYS_faccessat2]),
        (EINVAL, &[libc::SYS_sync_file_range, libc::SYS_fadvise64]),
    ];
    for (&engine, (number, calls)) in engines().iter().flat_map(|engine| ways.map(|way| (engine, way))) {
        let (place, source, target) = folders();
        many(&source, 50, 1000);
        let place = place.path().to_path_buf();
        let work = std::thread::spawn(move || {
            deny_rings(seccompiler::SeccompAction::Errno(number), calls);
            let with = |change: fn(&mut ringroad_copy::Options)| {
                let mut options = archive(engine);
                change(&mut options);
                options
            };
            clean(&source, &target, &with(|options| options.dry_run = true));
            assert!(!target.exists());
            clean(&source, &target, &with(|options| options.resume = true));
            clean(&source, &target, &with(|options| options.verify = true));
            let manifest = Some(place.join("manifest"));
            let listed = ringroad_copy::Options { manifest, ..archive(engine) };
            clean(&source, &place.join("other"), &listed);
            let list = place.join("list");
            ringroad_copy::listing::make(&source, &list, &archive(engine), &(), &Control::new()).unwrap();
            shards_are_made_and_unpacked(&source, &place);
            assert_no_torn_file(&source, &target);
        });
        work.join().unwrap();
    }
}

#[test]
fn a_file_without_room_fails_alone_and_leaves_whole_files_only() {
    for &engine in engines() {
        let (_place, source, _) = folders();
        many(&source, 60, 10_000);
        // The first in every order: alone in its directory, which is read before its parent's files end.
        std::fs::write(source.join("d0/large"), crate::tree::noise(40 << 20, 1)).unwrap();
        // Those that are copied while the large one has all the room may fail with it: most of them, where
        // its worker has to wait for a CPU just then.
        let most_arrive = (0..10).any(|_| {
            let Some(image) = Image::new(16 << 20) else { return true };
            let target = image.mounted.join("copy");
            let told = Told::default();
            let report = run(&source, &target, &archive(engine), &told);
            let errors = told.errors.into_inner().unwrap();
            assert!(report.full && !report.is_success(), "{engine:?}: {report:?}");
            assert!(errors.iter().any(|error| error.contains("large")), "{errors:?}");
            assert!(errors.iter().all(|error| error.contains("No space left")), "{errors:?}");
            assert_eq!(report.totals.skipped, 0, "every file was tried: {report:?}");
            assert!(!target.join("d0/large").exists(), "what was written of it makes room for others");
            assert_no_torn_file(&source, &target);
            report.totals.files >= 30
        });
        assert!(most_arrive, "{engine:?}: the large file took the room of most others each time");
    }
}

/// ext4 answers ENOSPC where attributes need more than a block, XFS has room for them.
#[test]
fn an_attribute_without_room_is_an_error_of_its_file_and_not_the_end_of_the_copy() {
    let Some(small) = Image::new(16 << 20) else { return };
    let Some(roomy) = Image::of(&["mkfs.xfs", "-q", "-f"], 400 << 20) else { return };
    let source = roomy.mounted.join("source");
    many(&source, 30, 100);
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(source.join("d1/f1"), "user.large", &[b'x'; 20_000], flags).unwrap();
    for &engine in engines() {
        let target = small.mounted.join(engine.name());
        let told = Told::default();
        let mut options = archive(engine);
        (options.preserve.xattr, options.jobs) = (ringroad_copy::Demand::Must, Some(1));
        let report = run(&source, &target, &options, &told);
        let errors = told.errors.into_inner().unwrap();
        assert!(errors.len() == 1 && errors[0].contains("No space left"), "{engine:?}: {errors:?}");
        assert!(!report.full, "{engine:?}: {report:?}");
        assert_eq!((report.totals.failed, report.totals.skipped), (1, 0), "{engine:?}: {report:?}");
        assert_eq!(files(&target).len(), 30, "{engine:?}");
        assert_no_torn_file(&source, &target);
    }
}

#[test]
fn a_manifest_without_room_is_told_and_does_not_make_the_destination_full() {
    let Some(image) = Image::new(16 << 20) else { return };
    let mut filler = std::fs::File::create(image.mounted.join("filler")).unwrap();
    // To the last byte: by blocks, and then by what is left of one.
    for step in [vec![0; 1 << 16], vec![0; 1]] {
        while std::io::Write::write_all(&mut filler, &step).is_ok() {}
    }
    let _ = filler.sync_all();
    let (_place, source, target) = folders();
    many(&source, 30, 100);
    let mut options = archive(Engine::Auto);
    options.manifest = Some(image.mounted.join("list"));
    let told = Told::default();
    let report = run(&source, &target, &options, &told);
    assert_eq!(*told.kinds.lock().unwrap(), [ringroad_copy::ErrorKind::Manifest]);
    assert!(!report.full && !report.is_success(), "{report:?}");
    assert_eq!(report.totals.files, 30);
}

#[test]
fn a_disk_that_cannot_be_read_fails_the_files_on_it_and_no_others() {
    for &engine in engines() {
        let Some(image) = Image::new(32 << 20) else { return };
        let (_place, reference, target) = folders();
        many(&reference, 200, 100_000);
        let source = image.mounted.join("source");
        clean(&reference, &source, &archive(Engine::Threads));
        // Mounted anew, nothing of it is in memory.
        unmount(&image.mounted);
        assert!(image.mount());
        image.cut(20 << 20);
        let told = Told::default();
        let report = run(&source, &target, &archive(engine), &told);
        let errors = told.errors.into_inner().unwrap();
        assert!(report.totals.failed > 0 && !report.is_success(), "{engine:?}: {report:?}");
        assert!(errors.iter().all(|error| error.contains("Input/output error")), "{errors:?}");
        assert!(report.totals.files > 0, "what can be read is copied: {report:?}");
        assert_no_torn_file(&reference, &target);
    }
}

/// Twelve kills, or as many as `RINGROAD_KILLS` says.
#[test]
fn a_copy_killed_at_any_moment_is_completed_by_resume() {
    let (_place, source, target) = folders();
    many(&source, 400, 20_000);
    let rounds = std::env::var("RINGROAD_KILLS").map_or(12, |count| count.parse().unwrap());
    let mut killed = 0;
    let mut seed = rounds as u64 ^ 7;
    // Until so many were killed: a copy that was faster than the look at it does not count.
    for round in 0.. {
        if killed >= rounds {
            break;
        }
        assert!(round < 100 * rounds, "only {killed} of {round} copies were killed before their end");
        let engine = engines()[round % engines().len()];
        let mut child = child::start(":", engine, &source, &target, true);
        // Somewhere between its first system call and its end: how many files there are decides, and no
        // clock.
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let enough = (seed >> 33) as usize % 330;
        loop {
            if child.try_wait().unwrap().is_some() {
                break;
            }
            if target.exists() && count(&target) >= enough {
                child.kill().unwrap();
                killed += 1;
                break;
            }
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert_finished_files_are_whole(&source, &target);
        if round % 4 == 3 {
            let mut options = archive(engine);
            options.resume = true;
            clean(&source, &target, &options);
            let found = crate::compare::differences(&source, &target, crate::compare::ALL);
            assert!(found.is_empty(), "{found:?}");
            std::fs::remove_dir_all(&target).unwrap();
        }
    }
    eprintln!("{killed} copies killed");
}

fn count(folder: &Path) -> usize {
    let folders = std::fs::read_dir(folder).into_iter().flatten().flatten();
    folders.map(|folder| std::fs::read_dir(folder.path()).into_iter().flatten().count()).sum()
}

/// A copy that has its source's time and size is what resume takes for whole: it must be.
fn assert_finished_files_are_whole(source: &Path, target: &Path) {
    for (path, bytes) in files(target) {
        let original = source.join(path.strip_prefix(target).unwrap());
        let Ok(facts) = original.metadata() else { continue };
        let copy = path.metadata().unwrap();
        if copy.modified().unwrap() == facts.modified().unwrap() && copy.len() == facts.len() {
            assert_eq!(std::fs::read(&original).unwrap(), bytes, "{}", path.display());
        }
    }
}

/// Denies calls, those of io_uring among others, to this thread and those it starts.
pub(crate) fn deny_rings(action: seccompiler::SeccompAction, calls: &[i64]) {
    let rules = calls.iter().map(|call| (*call, Vec::new())).collect();
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let allow = seccompiler::SeccompAction::Allow;
    let filter = seccompiler::SeccompFilter::new(rules, allow, action, arch).unwrap();
    let program: seccompiler::BpfProgram = filter.try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}

/// `io_uring_setup`, `io_uring_enter` on every architecture that has them.
const SETUP: i64 = 425;
const ENTER: i64 = 426;

#[test]
fn where_rings_are_denied_auto_copies_all_the_same_and_a_named_ring_is_refused() {
    use seccompiler::SeccompAction::{Errno, KillProcess};
    // Death first: what was found out holds for the process, and here it must be found out.
    let ways: [(seccompiler::SeccompAction, &[i64]); 4] =
        [(KillProcess, &[SETUP]), (Errno(1), &[SETUP]), (Errno(38), &[SETUP]), (Errno(1), &[ENTER])];
    for (action, calls) in ways {
        let (place, source, target) = folders();
        many(&source, 100, 1000);
        let place = place.path().to_path_buf();
        let denied = std::thread::spawn(move || {
            deny_rings(action, calls);
            let report = clean(&source, &target, &archive(Engine::Auto));
            assert_eq!(report.choice.engine, Engine::Threads);
            assert_no_torn_file(&source, &target);
            for engine in [Engine::Ring, Engine::RingSplice] {
                let other = place.join(engine.name());
                let to = Destination::At(other.clone());
                let refused = ringroad_copy::copy(
                    std::slice::from_ref(&source),
                    &to,
                    &archive(engine),
                    &(),
                    &Control::new(),
                );
                assert!(matches!(refused, Err(Refusal::Engine { .. })), "{refused:?}");
                assert!(!other.exists(), "nothing was touched");
            }
        });
        denied.join().unwrap();
    }
}

/// The ring of a worker stops working in the middle: it may no longer be entered.
#[test]
fn a_ring_that_fails_in_the_middle_loses_what_was_in_flight_and_nothing_else() {
    for engine in ring_engines() {
        let (_place, source, target) = folders();
        many(&source, 400, 3000);
        let (from, to) = (source.clone(), target.clone());
        let report = std::thread::spawn(move || {
            let once = std::sync::Once::new();
            // Told by the worker that copied it, so it is this thread that may not enter a ring from now on.
            let deny = |_: &Path, copy: &Path| {
                if copy.is_file() {
                    once.call_once(|| deny_rings(seccompiler::SeccompAction::Errno(1), &[ENTER]));
                }
            };
            let told = Told { entry: Some(&deny), ..Told::default() };
            let mut options = archive(engine);
            (options.jobs, options.in_flight) = (Some(1), Some(16));
            let report = run(&from, &to, &options, &told);
            assert!(told.errors.lock().unwrap().iter().all(|error| error.contains("not permitted")));
            report
        })
        .join()
        .unwrap();
        let totals = report.totals;
        assert!((1..=16).contains(&totals.failed), "{engine:?}: what was in flight, no more: {totals:?}");
        assert_eq!(totals.files + totals.failed, 400, "{engine:?}: {totals:?}");
        // A file that the ring was asked to make may be made when no completion is read any more: empty, and
        // told.
        for (path, bytes) in files(&target) {
            let original = std::fs::read(source.join(path.strip_prefix(&target).unwrap())).unwrap();
            let unheard = engine == Engine::RingSplice && bytes.is_empty();
            assert!(unheard || bytes == original, "{engine:?}: {} is not whole", path.display());
        }
    }
}

/// A file system may say at the very end that it could not keep what it took (quotas and full disks of
/// servers).
#[test]
fn a_copy_whose_close_fails_is_not_left_to_be_taken_for_whole() {
    const CLOSE: i64 = 3;
    if std::env::consts::ARCH != "x86_64" {
        eprintln!("skipped: the number of close(2) is known for x86_64");
        return;
    }
    let (_place, source, target) = folders();
    many(&source, 20, 3000);
    // Overwritten in place, since it has an attribute; replaced, since it has none.
    for (folder, name) in [("d1", "d1/f1"), ("d2", "d2/f2")] {
        std::fs::create_dir_all(target.join(folder)).unwrap();
        std::fs::write(target.join(name), "old").unwrap();
    }
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(target.join("d1/f1"), "user.kept", b"yes", flags).unwrap();
    let (from, to) = (source.clone(), target.clone());
    let failed = std::thread::spawn(move || {
        deny_rings(seccompiler::SeccompAction::Errno(5), &[CLOSE]);
        let told = Told::default();
        let mut options = archive(Engine::Threads);
        (options.jobs, options.atomic) = (Some(1), true);
        let report = run(&from, &to, &options, &told);
        assert!(told.errors.lock().unwrap().iter().all(|error| error.contains("Input/output error")));
        report.totals.failed
    })
    .join()
    .unwrap();
    assert_eq!(failed, 20);
    // Nothing new is left over, nothing is replaced, and what was written over does not look whole.
    let mut left = files(&target);
    left.sort();
    let names: Vec<_> =
        left.iter().map(|(path, _)| path.strip_prefix(&target).unwrap().to_str().unwrap()).collect();
    assert_eq!(names, ["d1/f1", "d2/f2"]);
    assert_eq!(left[1].1, b"old");
    let time = |path: &Path| path.metadata().unwrap().modified().unwrap();
    assert_ne!(time(&target.join("d1/f1")), time(&source.join("d1/f1")), "resume copies it again");
}

/// 50 files, in several shards that four threads would make.
fn shards_are_made_and_unpacked(source: &Path, place: &Path) {
    let (packed, shards) = packed(source, place, 20_000, 4);
    assert!(packed.errors == 0 && packed.shards > 2, "{packed:?}");
    let done = unpacked(&shards, &place.join("unpacked"), 4);
    assert_eq!((done.verified, done.errors), (50, 0));
}

/// `ulimit -u`, the `pids` controller, and filters refuse threads.
#[test]
fn where_no_thread_can_be_had_copies_lists_checks_and_shards_are_made_by_the_one_there_is() {
    // Under a filter, whether rings may be made is tried in a child process, which this filter refuses.
    for engine in [Engine::Threads, Engine::Auto] {
        let (place, source, target) = folders();
        many(&source, 50, 1000);
        let place = place.path().to_path_buf();
        let work = std::thread::spawn(move || {
            deny_rings(seccompiler::SeccompAction::Errno(1), &[libc::SYS_clone, libc::SYS_clone3]);
            assert!(std::thread::Builder::new().spawn(|| {}).is_err(), "none can be had");
            let options = ringroad_copy::Options { jobs: Some(4), ..archive(engine) };
            let manifest = place.join("manifest.b3");
            let report = clean(
                &source,
                &target,
                &ringroad_copy::Options { manifest: Some(manifest.clone()), ..options.clone() },
            );
            assert_eq!((report.totals.files, report.workers), (50, 1), "{engine:?}");
            let checked = ringroad_copy::lists::check(&manifest, &target, 4, &|_, _| {}).unwrap();
            assert_eq!((checked.good, checked.faults), (50, 0), "{engine:?}");
            let list = place.join("list");
            let listed = ringroad_copy::listing::make(&source, &list, &options, &(), &Control::new());
            assert_eq!(listed.unwrap().entries, 50, "{engine:?}");
            shards_are_made_and_unpacked(&source, &place);
        });
        work.join().unwrap();
    }
}
