//! The same trees through every engine, compared by an outside program and by our own comparer.

use crate::compare::{ALL, differences, rsync_differences};
use crate::support::{Told, archive, clean, engines, folders, many, ring_engines, run};
use crate::tree::{Abilities, build, deep, directory, everything, file, hard_link};
use ringroad_copy::{Engine, Options, Order, Sparse};
use std::collections::HashSet;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::Path;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

fn assert_same(source: &std::path::Path, target: &std::path::Path) {
    let found = differences(source, target, ALL);
    assert!(found.is_empty(), "{found:#?}");
    match rsync_differences(source, target) {
        Some(found) => assert_eq!(found, "", "rsync finds no difference"),
        None => eprintln!("skipped: rsync as a second judge: not installed"),
    }
}

#[test]
fn a_tree_of_everything_arrives_as_it_was_by_every_engine() {
    for &engine in engines() {
        for (in_flight, jobs) in [(None, None), (Some(1), Some(3))] {
            let (_place, source, target) = folders();
            build(&source, &everything(Abilities::of(&source)));
            let mut options = archive(engine);
            (options.in_flight, options.jobs) = (in_flight, jobs);
            clean(&source, &target, &options);
            assert_same(&source, &target);
        }
    }
}

#[test]
fn many_small_files_arrive_whole_by_every_engine_in_either_order() {
    let (place, source, _) = folders();
    many(&source, 300, 4096);
    for &engine in engines() {
        for order in [Order::Inode, Order::Directory] {
            let target = place.path().join(format!("{}-{order:?}", engine.name()));
            let mut options = archive(engine);
            options.order = order;
            let report = clean(&source, &target, &options);
            assert_eq!(report.totals.files, 300);
            assert_eq!(report.totals.bytes, 300 * 4096);
            assert_same(&source, &target);
        }
    }
}

#[test]
fn one_worker_goes_through_folders_forwards_by_inode_or_as_they_are_listed() {
    for order in [Order::Inode, Order::Directory] {
        let (_place, source, target) = folders();
        for at in 0..50 {
            std::fs::create_dir(source.join(format!("d{}", at * 7 % 50))).unwrap();
        }
        let mut wanted: Vec<_> = std::fs::read_dir(&source)
            .unwrap()
            .map(|entry| entry.map(|entry| (entry.ino(), entry.path())).unwrap())
            .collect();
        if order == Order::Inode {
            wanted.sort();
        }
        let seen = Mutex::new(Vec::new());
        let remember = |folder: &Path, _: &Path| seen.lock().unwrap().push(folder.to_path_buf());
        let told = Told { entry: Some(&remember), ..Told::default() };
        let options = Options { order, jobs: Some(1), ..archive(Engine::Threads) };
        assert!(run(&source, &target, &options, &told).is_success());
        let seen = seen.into_inner().unwrap();
        let below: Vec<_> = seen.into_iter().filter(|folder| *folder != source).collect();
        let wanted: Vec<_> = wanted.into_iter().map(|(_, folder)| folder).collect();
        assert_eq!(below, wanted, "{order:?}");
    }
}

#[test]
fn each_worker_takes_a_folder_that_no_other_worker_has_begun() {
    // In memory, if there is some: thousands of files are removed at the end.
    let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let source = place.path().join("source");
    for folder in ["a", "b", "c"] {
        let folder = source.join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        for at in 0..1500 {
            std::fs::write(folder.join(at.to_string()), "").unwrap();
        }
    }
    for &engine in engines() {
        let seen = Mutex::new(Vec::new());
        let remember = |file: &Path, _: &Path| {
            let folder = file.parent().unwrap().to_path_buf();
            seen.lock().unwrap().push((folder, std::thread::current().id()));
        };
        let told = Told { entry: Some(&remember), ..Told::default() };
        let options = Options { jobs: Some(2), ..archive(engine) };
        assert!(run(&source, &place.path().join(engine.name()), &options, &told).is_success());
        let mut seen = seen.into_inner().unwrap();
        seen.retain(|(folder, _)| folder.parent() == Some(&source));
        let mut begun = HashSet::new();
        let first = seen.iter().map(|(folder, _)| begun.insert(folder));
        let last = first.enumerate().filter(|(_, first)| *first).map(|(at, _)| at).last().unwrap();
        let pairs: HashSet<_> = seen.iter().take(last).collect();
        assert_eq!((pairs.len(), begun.len()), (2, 3), "{engine:?}: two workers in one folder");
    }
}

#[test]
fn a_directory_is_shared_with_a_worker_that_has_nothing_to_do() {
    for &engine in engines() {
        let (_place, source, target) = folders();
        for at in 0..100 {
            std::fs::write(source.join(format!("f{at}")), at.to_string()).unwrap();
        }
        let seen = Mutex::new((HashSet::new(), 0_u32));
        let came = Condvar::new();
        let by = |_: &Path, _: &Path| {
            let mut seen = seen.lock().unwrap();
            seen.0.insert(std::thread::current().id());
            came.notify_all();
            // The other worker may be on its way still, and gets something only between two files: it is
            // waited for at each, longer each time, and for 100 s at all of them.
            seen.1 += 1;
            let most = Duration::from_millis(20) * seen.1;
            drop(came.wait_timeout_while(seen, most, |(threads, _)| threads.len() < 2).unwrap());
        };
        let told = Told { entry: Some(&by), ..Told::default() };
        // What a ring has in flight is not shared with other workers.
        let options = Options { jobs: Some(2), in_flight: Some(4), ..archive(engine) };
        let report = run(&source, &target, &options, &told);
        assert!(report.is_success(), "{engine:?}: {:?}", told.errors.lock().unwrap());
        assert_same(&source, &target);
        assert_eq!(report.totals.files, 100, "{engine:?}");
        let threads = seen.into_inner().unwrap().0;
        assert_eq!(threads.len(), 2, "{engine:?}: all files of one directory by one worker");
    }
}

#[test]
fn sizes_around_every_buffer_arrive_whole_by_every_engine() {
    let (place, source, _) = folders();
    let edges = [
        0,
        1,
        4095,
        4096,
        4097,
        (128 << 10) - 1,
        128 << 10,
        (128 << 10) + 1,
        1 << 20,
        (1 << 20) + 1,
        3 << 20,
    ];
    for size in edges {
        std::fs::write(source.join(format!("{size}")), crate::tree::noise(size, size as u64)).unwrap();
    }
    for &engine in engines() {
        for direct in [false, true] {
            let target = place.path().join(format!("{}-{direct}", engine.name()));
            let mut options = archive(engine);
            options.direct = direct;
            options.verify = true;
            let report = clean(&source, &target, &options);
            assert_eq!(report.totals.verified, edges.len() as u64);
            assert_same(&source, &target);
        }
    }
}

#[test]
fn names_of_one_file_in_many_directories_stay_names_of_one_file() {
    for &engine in engines() {
        let (_place, source, target) = folders();
        let mut nodes = vec![directory("a", (0..50).map(|n| file(format!("f{n}"), "x").label(n)).collect())];
        for folder in 0..10 {
            let links =
                (0..50).map(|n| crate::tree::Node { name: format!("l{n}").into(), ..hard_link("", n) });
            nodes.push(directory(format!("b{folder}"), links.collect()));
        }
        build(&source, &nodes);
        let mut options = archive(engine);
        options.jobs = Some(4);
        let report = clean(&source, &target, &options);
        assert_eq!(report.totals.files, 50, "each file is copied once");
        assert_eq!(target.join("a/f7").metadata().unwrap().nlink(), 11);
        assert_same(&source, &target);
    }
}

#[test]
fn long_attributes_and_many_arrive_whole() {
    let (_place, source, target) = folders();
    many(&source, 20, 10);
    let flags = rustix::fs::XattrFlags::empty();
    let long = crate::tree::noise(2000, 1);
    for value in [255, 256, 257, 2000] {
        let path = source.join(format!("d1/{value}"));
        std::fs::write(&path, "x").unwrap();
        if let Err(why) = rustix::fs::setxattr(&path, "user.long", &long[..value], flags) {
            eprintln!("skipped: attributes: {why}");
            return;
        }
    }
    for name in 0..40 {
        let name = format!("user.one-of-many-names-{name}");
        rustix::fs::setxattr(source.join("d2/f2"), &*name, b"x", flags).unwrap();
    }
    for &engine in engines() {
        clean(&source, &target, &archive(engine));
        assert_same(&source, &target);
        std::fs::remove_dir_all(&target).unwrap();
    }
}

#[test]
fn a_path_deeper_than_any_path_may_be_arrives() {
    for engine in [Engine::Threads].into_iter().chain(ring_engines()) {
        let (_place, source, target) = folders();
        build(&source, &deep(700));
        let report = clean(&source, &target, &archive(engine));
        assert!(report.totals.directories > 700);
        assert_eq!(depth(&source), depth(&target));
    }
}

/// How many directories are one in the other, counted without a path.
fn depth(folder: &std::path::Path) -> usize {
    use rustix::fs::{Mode, OFlags, RawDir};
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let mut at = rustix::fs::open(folder, flags, Mode::empty()).unwrap();
    let mut depth = 0;
    loop {
        let mut buffer = vec![std::mem::MaybeUninit::uninit(); 4096];
        let mut below = None;
        let mut listing = RawDir::new(&at, &mut buffer);
        while let Some(entry) = listing.next() {
            let entry = entry.unwrap();
            let dots = matches!(entry.file_name().to_bytes(), b"." | b"..");
            if !dots && entry.file_type() == rustix::fs::FileType::Directory {
                below = Some(entry.file_name().to_owned());
            }
        }
        let Some(name) = below else { return depth };
        at = rustix::fs::openat(&at, &*name, flags, Mode::empty()).unwrap();
        depth += 1;
    }
}

#[test]
fn zeros_become_holes_or_holes_zeros_as_asked() {
    let mut bytes = vec![0; 1 << 20];
    bytes[300_000] = 1;
    for &engine in engines() {
        let (_place, source, target) = folders();
        std::fs::write(source.join("zeros"), &bytes).unwrap();
        let hole = std::fs::File::create(source.join("hole")).unwrap();
        hole.set_len(1 << 20).unwrap();
        let mut options = archive(engine);
        options.sparse = Sparse::Always;
        clean(&source, &target, &options);
        assert_eq!(std::fs::read(target.join("zeros")).unwrap(), bytes);
        assert!(target.join("zeros").metadata().unwrap().blocks() * 512 < 100_000, "{engine:?}");

        let filled = target.with_extension("filled");
        options.sparse = Sparse::Never;
        clean(&source, &filled, &options);
        assert!(filled.join("hole").metadata().unwrap().blocks() * 512 >= 1 << 20, "{engine:?}");
    }
}

#[test]
fn a_named_engine_is_reported_and_auto_says_why() {
    let (place, source, _) = folders();
    many(&source, 20, 10);
    for &engine in engines() {
        let report = clean(&source, &place.path().join(engine.name()), &archive(engine));
        assert!(!report.choice.why.is_empty());
        assert_ne!(report.choice.engine, Engine::Auto);
        if engine != Engine::Auto {
            assert_eq!(report.choice.engine, engine);
        }
    }
}
