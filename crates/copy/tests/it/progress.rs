//! What can be seen of a copy while it runs, and that it does not change what is counted in the end.

use crate::fifo::writer_of;
use crate::over::Over;
use crate::support::{Told, archive, clean, engines, folders, many, run_with, sees};
use crate::tree::noise;
use ringroad_copy::{Control, Engine, Options, Reflink, Sparse, Underway};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

const MIB: usize = 1 << 20;

#[test]
fn files_are_counted_while_the_batch_they_are_in_is_copied() {
    for &engine in engines() {
        let (_place, source, target) = folders();
        for at in 0..1000 {
            std::fs::write(source.join(format!("f{at}")), "contents").unwrap();
        }
        let control = Control::new();
        let seen = AtomicU64::new(0);
        let behind = AtomicU64::new(0);
        let look = |_: &Path, copied: &Path| {
            if copied.is_file() {
                let files = seen.fetch_add(1, Ordering::Relaxed) + 1;
                behind.fetch_max(files - control.totals().files, Ordering::Relaxed);
            }
        };
        let told = Told { entry: Some(&look), ..Told::default() };
        let options = Options { jobs: Some(1), ..archive(engine) };
        let report = run_with(&source, &target, &options, &told, &control);
        assert_eq!(report.totals.files, 1000, "{engine:?}");
        let behind = behind.into_inner();
        assert!(behind <= 64, "{engine:?}: {behind} files were copied and not counted");
    }
}

/// Looks at the bytes that are told of a running copy until `done`. Returns whether some were told before all
/// were.
fn sees_bytes_move(control: &Control, size: u64, done: &AtomicBool) -> bool {
    let mut last = 0;
    let mut moves = false;
    while !done.load(Ordering::Relaxed) {
        let bytes = control.totals().bytes;
        assert!(last <= bytes && bytes <= size, "{last}, then {bytes} of {size}");
        moves |= 0 < bytes && bytes < size;
        last = bytes;
        std::hint::spin_loop();
    }
    moves
}

#[test]
fn the_bytes_of_a_large_file_are_told_while_it_is_copied_however_that_is_done() {
    let (_place, source, target) = folders();
    let path = source.join("large");
    let size = 48 * MIB;
    std::fs::write(&path, noise(size, 1)).unwrap();
    for &engine in engines() {
        for (reflink, sparse) in [(Reflink::Auto, Sparse::Auto), (Reflink::Never, Sparse::Always)] {
            let options = Options { reflink, sparse, ..archive(engine) };
            // It may all come between two looks, but not always.
            let seen = sees(|round| {
                let control = Control::new();
                let done = AtomicBool::new(false);
                let to = target.with_extension(round.to_string());
                std::thread::scope(|scope| {
                    let over = Over(&done);
                    let watcher = scope.spawn(|| sees_bytes_move(&control, size as u64, &done));
                    let report = run_with(&source, &to, &options, &Told::default(), &control);
                    drop(over);
                    assert!(report.is_success() && report.totals.bytes == size as u64, "{report:?}");
                    assert_eq!(control.underway(), Underway::default(), "{engine:?}");
                    std::fs::remove_dir_all(&to).unwrap();
                    // What is cloned is there at once.
                    watcher.join().unwrap() || report.totals.bytes_shared > 0
                })
            });
            assert!(seen, "{engine:?}, {reflink:?}: no byte was told before the file's last");
        }
    }
}

/// Writes into a FIFO that is being copied, and holds on, with the FIFO still open, until some of it was
/// told; then does `meanwhile`.
fn write_until_told(fifo: &Path, control: &Control, meanwhile: impl FnOnce()) {
    let mut writer = writer_of(fifo);
    writer.write_all(&noise(5 * MIB, 2)).unwrap();
    let begun = Instant::now();
    while control.totals().bytes < 4 << 20 {
        assert!(begun.elapsed().as_secs() < 120, "nothing is told: {:?}", control.totals());
        std::thread::yield_now();
    }
    meanwhile();
}

fn fifo(at: &Path) -> PathBuf {
    let path = at.join("fifo");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    path
}

#[test]
fn of_one_file_everything_is_found_before_its_bytes_are_there() {
    let (_place, source, target) = folders();
    let fifo = fifo(&source);
    for recursive in [false, true] {
        let control = Control::new();
        let options = Options { recursive, copy_contents: true, ..archive(Engine::Auto) };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                write_until_told(&fifo, &control, || {
                    let totals = control.totals();
                    assert!(control.scan_is_done() && totals.scanned == 1 && totals.copied == 0);
                    assert_eq!(control.underway().files, 1);
                });
            });
            let report = run_with(&fifo, &target, &options, &Told::default(), &control);
            assert_eq!(report.totals.bytes, 5 << 20);
        });
    }
}

#[test]
fn what_was_told_of_a_copy_that_is_stopped_is_taken_back() {
    let (_place, source, target) = folders();
    let fifo = fifo(&source);
    let control = Control::new();
    let options = Options { copy_contents: true, ..archive(Engine::Auto) };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = Over(&done);
        scope.spawn(|| {
            write_until_told(&fifo, &control, || {
                control.cancel();
                // A FIFO that was closed would be a file that has ended.
                while !done.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
            });
        });
        let report = run_with(&source, &target, &options, &Told::default(), &control);
        assert!(report.cancelled && report.totals.bytes == 0, "{report:?}");
    });
    assert_eq!(control.underway(), Underway::default());
    assert!(!target.join("fifo").exists());
}

/// A source that changes is read again: twice its bytes are moved, and once they are counted.
#[test]
fn of_a_file_that_is_read_again_the_bytes_of_its_copy_are_counted() {
    for &engine in engines() {
        let (place, source, _) = folders();
        let path = source.join("file");
        let size = 32 * MIB;
        let contents = noise(size, 3);
        let mut cloned = false;
        let seen = (0..200).any(|round| {
            std::fs::write(&path, &contents).unwrap();
            let mut file = std::fs::File::options().append(true).open(&path).unwrap();
            let target = place.path().join(format!("target{round}"));
            let control = Control::new();
            let done = AtomicBool::new(false);
            let changed = std::thread::scope(|scope| {
                let over = Over(&done);
                let change = scope.spawn(|| {
                    while control.totals().bytes == 0 && !done.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                    let still = control.underway().files > 0;
                    file.write_all(b"y").unwrap();
                    still
                });
                let report = run_with(&source, &target, &archive(engine), &Told::default(), &control);
                drop(over);
                cloned = report.totals.bytes_shared > 0;
                let length = target.join("file").metadata().unwrap().len();
                assert_eq!(report.totals.bytes, length, "{engine:?}: {report:?}");
                change.join().unwrap() && length > size as u64
            });
            std::fs::remove_dir_all(&target).unwrap();
            assert_eq!(control.underway(), Underway::default(), "{engine:?}");
            changed || cloned
        });
        if !seen || cloned {
            eprintln!("skipped: {engine:?}: the file was cloned, or copied between two looks");
        }
    }
}

#[test]
fn everything_is_found_with_the_last_listing_and_not_with_the_last_file() {
    for &engine in engines() {
        let (place, source, _) = folders();
        many(&source, 400, 100);
        // Other workers may have copied the files of the last listing before the worker that made it goes on.
        let is_told_early = sees(|round| {
            let control = Control::new();
            let scanned = Mutex::new(Vec::new());
            let look = |_: &Path, copied: &Path| {
                let found = control.scan_is_done();
                if copied.is_file() {
                    scanned.lock().unwrap().push(found.then(|| control.totals().scanned));
                }
            };
            let told = Told { entry: Some(&look), ..Told::default() };
            let target = place.path().join(format!("target{round}"));
            let report = run_with(&source, &target, &archive(engine), &told, &control);
            let scanned = scanned.into_inner().unwrap();
            assert_eq!(scanned.first(), Some(&None), "{engine:?}: nine directories were not listed yet");
            let whole = report.totals.scanned;
            let is_whole = scanned.iter().flatten().all(|scanned| *scanned == whole);
            assert!(is_whole, "{engine:?}: {scanned:?} {whole}");
            scanned.iter().any(Option::is_some)
        });
        assert!(is_told_early, "{engine:?}: it was told when all was copied");
    }
}

#[test]
fn several_operands_are_found_when_no_directory_is_among_those_to_come() {
    let (place, source, _) = folders();
    let target = place.path().join("target");
    std::fs::create_dir(&target).unwrap();
    many(&source, 30, 100);
    for name in ["one", "two", "three"] {
        std::fs::write(place.path().join(name), noise(2 * MIB, 4)).unwrap();
    }
    let sources = ["one", "source", "two", "three"].map(|name| place.path().join(name));
    let control = Control::new();
    let found = Mutex::new(Vec::new());
    let look = |from: &Path, _: &Path| {
        if from.parent() == Some(place.path()) {
            let name = from.file_name().unwrap().to_str().unwrap().to_string();
            found.lock().unwrap().push((name, control.scan_is_done()));
        }
    };
    let told = Told { entry: Some(&look), ..Told::default() };
    let to = ringroad_copy::Destination::Into(target.clone());
    let report = ringroad_copy::copy(&sources, &to, &archive(Engine::Auto), &told, &control).unwrap();
    assert!(report.is_success() && report.totals.balance(), "{report:?}");
    let found = found.into_inner().unwrap();
    // The directory is listed when the operands behind it were copied.
    assert!(found.iter().all(|(_, found)| !found), "{found:?}");
    let control = Control::new();
    let files = ["one", "two", "three"].map(|name| place.path().join(name));
    let done = Mutex::new(Vec::new());
    let look = |_: &Path, _: &Path| done.lock().unwrap().push((control.scan_is_done(), control.totals()));
    let told = Told { entry: Some(&look), ..Told::default() };
    let to = ringroad_copy::Destination::Into(target);
    let report = ringroad_copy::copy(&files, &to, &archive(Engine::Auto), &told, &control).unwrap();
    assert_eq!(report.totals.scanned, 3);
    let done = done.into_inner().unwrap();
    assert!(done.iter().all(|(found, totals)| *found && totals.scanned == 3), "{done:?}");
    assert_eq!(done.last().unwrap().1.files, 2, "each is counted when it is there: {done:?}");
}

#[test]
fn sparse_files_and_empty_ones_end_with_the_bytes_they_have() {
    for &engine in engines() {
        let (_place, source, target) = folders();
        std::fs::write(source.join("empty"), "").unwrap();
        let sparse = std::fs::File::create(source.join("sparse")).unwrap();
        sparse.set_len(20 << 20).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&sparse, &noise(3 * MIB, 5), 9 << 20).unwrap();
        let report = clean(&source, &target, &archive(engine));
        assert_eq!(report.totals.bytes, 20 << 20, "{engine:?}");
    }
}
