//! What a stopped copy leaves of its directories, and what `--resume` makes of that.

use crate::support::{Told, clean, engines, folders, many, run_with};
use ringroad_copy::{Control, Dereference, Destination, Engine, Options, Preserve, copy};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

fn set(folder: &Path, mode: u32) {
    std::fs::set_permissions(folder, PermissionsExt::from_mode(mode)).unwrap();
}

fn mode(folder: &Path) -> u32 {
    folder.metadata().unwrap().mode() & 0o7777
}

/// The directories of [`many`], and the one they are in.
fn names() -> impl Iterator<Item = String> {
    (0..10).map(|n| format!("d{n}")).chain([String::new()])
}

/// `-r`, with or without `--preserve=ownership`.
fn recursive(engine: Engine, ownership: bool) -> Options {
    Options {
        recursive: true,
        dereference: Dereference::Never,
        preserve: Preserve { ownership, ..Preserve::default() },
        engine,
        ..Options::default()
    }
}

#[test]
fn directories_that_a_stopped_copy_left_get_the_modes_they_would_have_had() {
    for &engine in engines() {
        for (ownership, of_source) in [(true, 0o755), (true, 0o555), (false, 0o555)] {
            let (place, source, target) = folders();
            many(&source, 400, 500);
            names().for_each(|name| set(&source.join(name), of_source));
            let whole = place.path().join("whole");
            let mut options = recursive(engine, ownership);
            clean(&source, &whole, &options);
            let control = Control::new();
            let seen = AtomicU64::new(0);
            let stop = |_: &Path, _: &Path| {
                if seen.fetch_add(1, Ordering::Relaxed) >= 60 {
                    control.cancel();
                }
            };
            let told = Told { entry: Some(&stop), ..Told::default() };
            let report = run_with(&source, &target, &options, &told, &control);
            assert!(report.cancelled && mode(&target) != mode(&whole), "{engine:?}: {report:?}");
            options.resume = true;
            clean(&source, &target, &options);
            for name in names() {
                let (found, wanted) = (mode(&target.join(&name)), mode(&whole.join(&name)));
                assert_eq!(found, wanted, "{engine:?}, ownership {ownership}: {name:?} {found:o} {wanted:o}");
            }
            // So that the place can be removed.
            for side in [&source, &target, &whole] {
                names().for_each(|name| set(&side.join(name), 0o755));
            }
        }
    }
}

#[test]
fn directories_that_are_the_users_keep_the_modes_they_have() {
    let (_place, source, target) = folders();
    many(&source, 30, 10);
    names().for_each(|name| set(&source.join(name), 0o755));
    let mut options = recursive(Engine::Auto, true);
    options.resume = true;
    clean(&source, &target, &options);
    // Not the mode of one in the making; and that mode, but with the time of one that is whole.
    set(&target.join("d1"), 0o711);
    std::fs::File::open(target.join("d1")).unwrap().set_modified(SystemTime::now()).unwrap();
    set(&target.join("d2"), 0o700);
    clean(&source, &target, &options);
    assert_eq!((mode(&target.join("d1")), mode(&target.join("d2"))), (0o711, 0o700));
}

#[test]
fn directories_of_parents_that_a_stopped_copy_left_get_the_modes_they_would_have_had() {
    for (ownership, of_source) in [(true, 0o755), (false, 0o555)] {
        let (place, source, target) = folders();
        many(&source, 30, 10);
        set(&source, of_source);
        let whole = place.path().join("whole");
        let mut options = Options { parents: true, ..recursive(Engine::Threads, ownership) };
        let stopped = |target: &Path, options: &Options, stops: bool| {
            std::fs::create_dir_all(target).unwrap();
            let control = Control::new();
            let stop = |_: &Path, copied: &Path| {
                if stops && copied.is_file() {
                    control.cancel();
                }
            };
            let told = Told { entry: Some(&stop), ..Told::default() };
            let to = Destination::Into(target.to_path_buf());
            let report = copy(&[source.join("d1")], &to, options, &told, &control).unwrap();
            assert_eq!(report.cancelled, stops);
            assert!(told.errors.lock().unwrap().is_empty(), "{:?}", told.errors.lock().unwrap());
            mode(&target.join(source.strip_prefix("/").unwrap()))
        };
        let wanted = stopped(&whole, &options, false);
        assert_ne!(stopped(&target, &options, true), wanted, "what was stopped is not finished");
        options.resume = true;
        let found = stopped(&target, &options, false);
        assert_eq!(found, wanted, "ownership {ownership}: {found:o} {wanted:o}");
        for side in [&target, &whole] {
            set(&side.join(source.strip_prefix("/").unwrap()), 0o755);
        }
        set(&source, 0o755);
    }
}
