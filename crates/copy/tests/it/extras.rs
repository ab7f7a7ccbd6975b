//! What goes beyond `cp`: resume, manifest, exclusion, cancelling, what is counted and explained.

use crate::fifo::reader_of;
use crate::image::Image;
use crate::support::{Told, archive, clean, engines, folders, many, ring_engines, run, run_with, sees};
use ringroad_copy::{Control, Destination, Durability, Engine, ErrorKind, Options, Reflink, Update, copy};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

/// Gives a file a time so many seconds from now. By itself it may get the one of a file written just before:
/// on many kernels the clock of files stands still for ten milliseconds.
fn dated(path: &Path, seconds: u64) {
    let time = std::time::SystemTime::now() + std::time::Duration::from_secs(seconds);
    std::fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

#[test]
fn resume_copies_what_differs_in_size_or_time_and_nothing_else() {
    for &engine in engines() {
        let (_place, source, target) = folders();
        many(&source, 100, 1000);
        let mut options = archive(engine);
        options.resume = true;
        clean(&source, &target, &options);
        // As a killed copy leaves it: short, and with the time of the writing.
        std::fs::write(target.join("d1/f1"), "torn").unwrap();
        // The size is right, the time is not.
        std::fs::write(target.join("d2/f2"), vec![0; 1000]).unwrap();
        dated(&target.join("d2/f2"), 60);
        std::fs::remove_file(target.join("d3/f3")).unwrap();
        let report = clean(&source, &target, &options);
        assert_eq!(report.totals.files, 3);
        assert_eq!(report.totals.skipped, 97);
        crate::support::assert_no_torn_file(&source, &target);
    }
}

#[test]
fn resume_mends_a_torn_file_also_where_only_older_ones_are_replaced() {
    for &engine in engines() {
        let (_place, source, target) = folders();
        many(&source, 20, 1000);
        let mut options = archive(engine);
        (options.resume, options.update) = (true, Update::Older);
        clean(&source, &target, &options);
        std::fs::write(target.join("d1/f1"), "torn").unwrap();
        dated(&target.join("d1/f1"), 60);
        // Whole, and younger.
        dated(&target.join("d2/f2"), 60);
        assert_eq!(clean(&source, &target, &options).totals.files, 1, "{engine:?}");
        crate::support::assert_no_torn_file(&source, &target);
    }
}

#[test]
fn resume_is_refused_where_a_torn_file_would_stay() {
    for update in [Update::None, Update::NoneFail] {
        let (_place, source, target) = folders();
        let options = Options { resume: true, update, ..archive(Engine::Auto) };
        let to = ringroad_copy::Destination::At(target.clone());
        let refused = ringroad_copy::copy(&[source], &to, &options, &(), &Control::new());
        assert!(matches!(refused, Err(ringroad_copy::Refusal::Options(_))), "{update:?}: {refused:?}");
        assert!(!target.exists());
    }
}

/// The name that is missing may come before or after the one that is there.
#[test]
fn resume_links_a_missing_name_to_the_copy_that_is_there() {
    for &engine in engines() {
        for missing in ["f", "g"] {
            let (_place, source, target) = folders();
            std::fs::write(source.join("f"), "x").unwrap();
            std::fs::hard_link(source.join("f"), source.join("g")).unwrap();
            let mut options = archive(engine);
            options.resume = true;
            clean(&source, &target, &options);
            std::fs::remove_file(target.join(missing)).unwrap();
            clean(&source, &target, &options);
            for name in ["f", "g"] {
                assert_eq!(target.join(name).metadata().unwrap().nlink(), 2, "{engine:?}: {missing}, {name}");
            }
        }
    }
}

#[test]
fn resume_removes_unfinished_copies_of_dead_processes() {
    let (_place, source, target) = folders();
    many(&source, 10, 10);
    let mut options = archive(Engine::Auto);
    options.resume = true;
    clean(&source, &target, &options);
    let name = of_a_dead_process();
    // In a directory that is merged into, and where the operand itself is.
    let left = [target.join("d1").join(&name), target.with_file_name(&name)];
    left.iter().for_each(|path| std::fs::write(path, "half").unwrap());
    let alike = target.join("d1/.ringroad-mine.part");
    std::fs::write(&alike, "a user's").unwrap();
    clean(&source, &target, &options);
    assert_eq!(left.map(|path| path.exists()), [false; 2]);
    assert!(alike.exists(), "only what has the whole form is taken for a leftover");
}

/// The end of a name that a copy gives to what it makes, on this machine; process numbers end long before
/// this one.
fn of_a_dead_process() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let namespace = std::fs::metadata("/proc/self/ns/pid").unwrap().ino();
    format!(".ringroad-{}-{namespace}-4294967294-1-0.part", &boot[..8])
}

#[test]
fn a_manifest_removes_what_a_killed_copy_with_the_same_manifest_left() {
    let (place, source, target) = folders();
    many(&source, 10, 10);
    let mut options = archive(Engine::Auto);
    let manifest = place.path().join("list");
    options.manifest = Some(manifest.clone());
    let left = |name: &str| place.path().join(format!("{name}{}", of_a_dead_process()));
    let kept = [left("listed"), left(""), place.path().join("list.4294967294.part")];
    let locked = place.path().join(format!("list{}", of_a_dead_process().replace("-0.part", "-1.part")));
    for path in kept.iter().chain([&left("list"), &locked]) {
        std::fs::write(path, "half").unwrap();
    }
    let held = std::fs::File::open(&locked).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    clean(&source, &target, &options);
    assert!(!left("list").exists());
    assert!(locked.exists(), "who holds its lock still writes it");
    assert_eq!(kept.map(|path| path.exists()), [true; 3], "nothing else is taken for it");
    assert!(manifest.exists());
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 7, "its own is gone too");
}

#[test]
fn a_manifest_may_have_the_longest_name_there_is() {
    let (place, source, target) = folders();
    many(&source, 10, 10);
    let mut options = archive(Engine::Auto);
    let manifest = place.path().join("n".repeat(255));
    options.manifest = Some(manifest.clone());
    clean(&source, &target, &options);
    assert!(manifest.exists());
}

#[test]
fn a_manifest_with_a_directorys_name_is_refused_before_anything_is_copied() {
    let (place, source, target) = folders();
    many(&source, 10, 10);
    for name in ["list/", "list/.", "..", "source"] {
        let options = Options { manifest: Some(place.path().join(name)), ..archive(Engine::Auto) };
        let to = ringroad_copy::Destination::At(target.clone());
        let told = Told::default();
        let refused =
            ringroad_copy::copy(std::slice::from_ref(&source), &to, &options, &told, &Control::new());
        assert!(matches!(refused, Err(ringroad_copy::Refusal::Manifest(..))), "{name}");
        assert!(!target.exists());
    }
}

#[test]
fn a_manifest_goes_into_a_fifo_or_a_device_and_that_stays_what_it_is() {
    use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
    for &engine in engines() {
        let (place, source, target) = folders();
        many(&source, 50, 10);
        let [fifo, null] = ["fifo", "null"].map(|name| place.path().join(name));
        let mode = Mode::from_raw_mode(0o600);
        mknodat(CWD, &fifo, FileType::Fifo, mode, 0).unwrap();
        let mut options = Options { manifest: Some(fifo.clone()), ..archive(engine) };
        let read = std::thread::spawn({
            let fifo = fifo.clone();
            move || {
                let mut text = String::new();
                reader_of(&fifo).read_to_string(&mut text).unwrap();
                text
            }
        });
        clean(&source, &target, &options);
        let kind = |path: &Path| FileType::from_raw_mode(path.symlink_metadata().unwrap().mode());
        assert_eq!(kind(&fifo), FileType::Fifo, "{engine:?}");
        assert_eq!(read.join().unwrap(), as_b3sum_lists(&target), "{engine:?}");

        if let Err(why) = mknodat(CWD, &null, FileType::CharacterDevice, mode, makedev(1, 3)) {
            eprintln!("skipped: a manifest into a device: {why}");
            continue;
        }
        options.manifest = Some(null.clone());
        clean(&source, &target, &options);
        assert_eq!(kind(&null), FileType::CharacterDevice, "{engine:?}");
        assert_eq!(
            std::fs::read_dir(place.path()).unwrap().count(),
            4,
            "{engine:?}: nothing is left beside it"
        );
    }
}

#[test]
fn a_manifest_through_a_link_is_where_the_link_leads_and_the_link_stays() {
    for &engine in engines() {
        for there in [true, false] {
            let (place, source, target) = folders();
            many(&source, 10, 10);
            let [real, links] = ["real", "links"].map(|name| place.path().join(name));
            std::fs::create_dir(&links).unwrap();
            std::os::unix::fs::symlink("../real", links.join("one")).unwrap();
            std::os::unix::fs::symlink("one", links.join("two")).unwrap();
            if there {
                std::fs::write(&real, "old").unwrap();
            }
            let options = Options { manifest: Some(links.join("two")), ..archive(engine) };
            clean(&source, &target, &options);
            assert!(links.join("two").is_symlink() && links.join("one").is_symlink(), "{engine:?}");
            assert_eq!(
                std::fs::read_to_string(&real).unwrap(),
                as_b3sum_lists(&target),
                "{engine:?}, {there}"
            );
            assert_eq!(std::fs::read_dir(&links).unwrap().count(), 2, "{engine:?}");

            // Copied to any name on the way it would be lost.
            for name in [&real, &links.join("one"), &links.join("two")] {
                let told = Told::default();
                run(&source.join("d1/f1"), name, &options, &told);
                assert_eq!(*told.kinds.lock().unwrap(), [ErrorKind::OntoManifest], "{engine:?}: {name:?}");
            }
        }
    }
}

/// What `b3sum` says of all files below, by name.
fn as_b3sum_lists(folder: &Path) -> String {
    let line = |(path, bytes): (std::path::PathBuf, Vec<u8>)| {
        let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_string();
        let escaped = name.replace('\\', "\\\\").replace('\n', "\\n");
        let mark = if escaped == name { "" } else { "\\" };
        let line = format!("{mark}{}  {escaped}\n", blake3::hash(&bytes).to_hex());
        (name.into_bytes(), line)
    };
    let lines: std::collections::BTreeMap<_, _> =
        crate::support::files(folder).into_iter().map(line).collect();
    lines.into_values().collect()
}

#[test]
fn the_manifest_lists_every_file_sorted_as_b3sum_does() {
    for &engine in engines() {
        let (place, source, target) = folders();
        many(&source, 50, 3000);
        std::fs::write(source.join("back\\slash\nline"), "x").unwrap();
        std::fs::hard_link(source.join("d1/f1"), source.join("linked")).unwrap();
        let mut options = archive(engine);
        let manifest = place.path().join("manifest");
        options.manifest = Some(manifest.clone());
        clean(&source, &target, &options);
        let expected = as_b3sum_lists(&target);
        assert!(expected.contains("  back\\\\slash\\nline\n"), "{expected}");
        assert_eq!(std::fs::read_to_string(&manifest).unwrap(), expected, "{engine:?}");

        // Again, with nothing to copy: the list is as whole.
        options.resume = true;
        let report = clean(&source, &target, &options);
        assert_eq!(report.totals.files, 0);
        assert_eq!(std::fs::read_to_string(&manifest).unwrap(), expected);
    }
}

#[test]
fn a_file_that_another_operand_replaces_is_in_the_manifest_once_as_it_is() {
    for &engine in engines() {
        let (place, source, target) = folders();
        std::fs::create_dir(&target).unwrap();
        let sources = ["one", "two"].map(|name| source.join(name).join("s"));
        for (at, from) in sources.iter().enumerate() {
            std::fs::create_dir_all(from).unwrap();
            std::fs::write(from.join("f"), format!("contents {at}")).unwrap();
        }
        let manifest = place.path().join("list");
        let options = Options { manifest: Some(manifest.clone()), ..archive(engine) };
        let to = ringroad_copy::Destination::Into(target.clone());
        let report = ringroad_copy::copy(&sources, &to, &options, &(), &Control::new()).unwrap();
        assert!(report.is_success(), "{engine:?}: {report:?}");
        let hash = blake3::hash(&std::fs::read(target.join("s/f")).unwrap()).to_hex();
        assert_eq!(std::fs::read_to_string(&manifest).unwrap(), format!("{hash}  s/f\n"), "{engine:?}");
    }
}

#[test]
fn the_number_of_workers_does_not_grow_with_the_operands_that_wait_for_each_other() {
    let (_place, source, target) = folders();
    std::fs::create_dir(&target).unwrap();
    let sources: Vec<_> = (0..5).map(|at| source.join(format!("{at}/s"))).collect();
    sources.iter().for_each(|source| std::fs::create_dir_all(source).unwrap());
    let options = Options { jobs: Some(3), ..archive(Engine::Threads) };
    let to = ringroad_copy::Destination::Into(target);
    let workers = || {
        let report = ringroad_copy::copy(&sources, &to, &options, &(), &Control::new()).unwrap();
        assert!(report.is_success(), "{report:?}");
        report.workers
    };
    assert_eq!(workers(), 1, "there is too little for a thread");
    for (folder, at) in sources.iter().flat_map(|folder| (0..40).map(move |at| (folder, at))) {
        std::fs::write(folder.join(format!("{at}")), "contents").unwrap();
    }
    assert_eq!(workers(), 3);
}

#[test]
fn a_file_written_through_a_link_has_its_own_size_in_the_manifest() {
    let (place, source, _) = folders();
    let (from, link) = (source.join("new"), source.join("link"));
    std::fs::write(&from, "contents").unwrap();
    std::fs::write(source.join("old"), "").unwrap();
    std::os::unix::fs::symlink("old", &link).unwrap();
    let manifest = place.path().join("list.ndjson");
    clean(&from, &link, &Options { manifest: Some(manifest.clone()), ..Options::default() });
    let line: serde_json::Value = serde_json::from_slice(&std::fs::read(&manifest).unwrap()).unwrap();
    assert_eq!(line["path"], "link");
    assert_eq!(line["size"], 8);
}

#[test]
fn what_was_written_through_a_link_stays_in_the_manifest_when_it_is_passed_over() {
    for &engine in engines() {
        let (place, source, target) = folders();
        std::fs::create_dir(&target).unwrap();
        std::fs::write(source.join("f"), "contents").unwrap();
        std::os::unix::fs::symlink("f", source.join("l")).unwrap();
        std::os::unix::fs::symlink("../other", target.join("f")).unwrap();
        std::fs::write(place.path().join("other"), "").unwrap();
        let manifest = place.path().join("list");
        // A link that is copied as one is never in it.
        let expected = format!("{}  f\n", blake3::hash(b"contents").to_hex());
        let (copied, resumed) = ((false, Update::All), (true, Update::All));
        for (resume, update) in [copied, resumed, (false, Update::None)] {
            let options = Options { resume, update, manifest: Some(manifest.clone()), ..archive(engine) };
            let report = clean(&source, &target, &options);
            let passed_over = resume || update == Update::None;
            assert_eq!(report.totals.files, u64::from(!passed_over), "{engine:?}");
            let listed = std::fs::read_to_string(&manifest).unwrap();
            assert_eq!(listed, expected, "{engine:?}, resume: {resume}, {update:?}");
        }
    }
}

#[test]
fn a_clone_that_must_be_and_cannot_is_an_error_with_a_manifest_as_without() {
    for &engine in engines() {
        let (place, source, target) = folders();
        many(&source, 10, 3000);
        let mut options = Options { reflink: Reflink::Always, ..archive(engine) };
        let told = Told::default();
        if run(&source, &target, &options, &told).totals.bytes_shared > 0 {
            return eprintln!("skipped: this file system can clone");
        }
        assert_eq!(*told.kinds.lock().unwrap(), [ErrorKind::Clone; 10], "{engine:?}");
        options.manifest = Some(place.path().join("list"));
        let told = Told::default();
        run(&source, &target, &options, &told);
        assert_eq!(*told.kinds.lock().unwrap(), [ErrorKind::Clone; 10], "{engine:?}, with a manifest");
        assert_eq!(crate::support::files(&target).len(), 0, "{engine:?}");
    }
}

/// Btrfs lists what a directory had when it was opened, so a copy made in its source afterwards is not
/// among it.
#[test]
fn a_directory_copied_into_itself_is_an_error_where_listings_end_at_what_there_was() {
    let Some(image) = Image::of(&["mkfs.btrfs", "-q", "-f"], 128 << 20) else { return };
    for &engine in engines() {
        let source = image.mounted.join(engine.name());
        many(&source, 3, 10);
        let told = Told::default();
        run(&source, &source.join("copy"), &archive(engine), &told);
        assert_eq!(*told.kinds.lock().unwrap(), [ErrorKind::IntoItself], "{engine:?}");
    }
}

#[test]
fn a_clone_that_must_be_is_one_with_a_manifest_too_and_is_listed() {
    let Some(image) = Image::of(&["mkfs.xfs", "-q", "-f"], 400 << 20) else { return };
    let source = image.mounted.join("source");
    std::fs::create_dir(&source).unwrap();
    // More than one read of the longest, and an odd end.
    many(&source, 50, 20_001);
    std::fs::write(source.join("long"), crate::tree::noise(3_000_001, 7)).unwrap();
    let manifest = image.mounted.join("list");
    for &engine in engines() {
        for direct in [false, true] {
            let target = image.mounted.join(format!("{}-{direct}", engine.name()));
            let (reflink, list) = (Reflink::Always, Some(manifest.clone()));
            let options = Options { reflink, direct, manifest: list, ..archive(engine) };
            let report = clean(&source, &target, &options);
            assert_eq!(report.totals.bytes_shared, 50 * 20_001 + 3_000_001, "{engine:?}, direct: {direct}");
            let listed = std::fs::read_to_string(&manifest).unwrap();
            assert_eq!(listed, as_b3sum_lists(&target), "{engine:?}, direct: {direct}");
        }
    }
}

#[test]
fn a_manifest_in_the_making_below_a_source_is_no_part_of_the_copy_and_one_from_before_is() {
    for &engine in engines() {
        let (_place, source, target) = folders();
        many(&source, 20, 10);
        let list = source.join("list");
        let options = Options { manifest: Some(list.clone()), ..archive(engine) };
        let report = clean(&source, &target, &options);
        assert_eq!(crate::support::files(&target).len(), 20, "{engine:?}");
        assert_eq!(report.totals.scanned, 20 + 11, "{engine:?}: and it is not counted");
        let first = std::fs::read_to_string(&list).unwrap();
        assert_eq!(first, as_b3sum_lists(&target), "{engine:?}");

        clean(&source, &target, &options);
        assert_eq!(crate::support::files(&target).len(), 21, "{engine:?}");
        assert_eq!(std::fs::read_to_string(target.join("list")).unwrap(), first, "{engine:?}: as it was");
        assert_eq!(std::fs::read_to_string(&list).unwrap(), as_b3sum_lists(&target), "{engine:?}");
    }
}

#[test]
fn what_would_be_copied_to_where_the_manifest_will_be_is_an_error() {
    let tells = |engine, report: &ringroad_copy::Report, told: &Told<'_>| {
        let errors = told.errors.lock().unwrap();
        assert_eq!(*told.kinds.lock().unwrap(), [ErrorKind::OntoManifest], "{engine:?}: {errors:?}");
        assert!(errors[0].contains("target/list") && errors[0].contains("source/list"), "{errors:?}");
        assert_eq!(report.totals.failed, 1, "{engine:?}");
    };
    for &engine in engines() {
        for folder in [false, true] {
            let (place, source, target) = folders();
            std::fs::create_dir(&target).unwrap();
            many(&source, 20, 10);
            let list = source.join("list");
            if folder { std::fs::create_dir(&list) } else { std::fs::write(&list, "a user's") }.unwrap();
            // The same place by another name, and the same name in another place.
            let link = place.path().join("link");
            std::os::unix::fs::symlink("target", &link).unwrap();
            std::fs::write(source.join("d1/list"), "").unwrap();
            let options = Options { manifest: Some(link.join("list")), ..archive(engine) };
            let told = Told::default();
            let report = run(&source, &target, &options, &told);
            tells(engine, &report, &told);
            // What is listed is what is there.
            let kept = place.path().join("kept");
            std::fs::rename(target.join("list"), &kept).unwrap();
            let listed = std::fs::read_to_string(kept).unwrap();
            assert_eq!(listed, as_b3sum_lists(&target), "{engine:?}");
            assert_eq!(listed.lines().count(), 21, "{engine:?}");

            let told = Told::default();
            tells(engine, &run(&list, &target.join("list"), &options, &told), &told);
        }
    }
}

#[test]
fn a_manifest_of_json_lines_keeps_names_that_are_not_utf_8() {
    use std::os::unix::ffi::OsStrExt;
    let (place, source, target) = folders();
    std::fs::write(source.join(std::ffi::OsStr::from_bytes(b"\xff")), "abc").unwrap();
    let mut options = archive(Engine::Auto);
    let manifest = place.path().join("list.ndjson");
    options.manifest = Some(manifest.clone());
    clean(&source, &target, &options);
    let line: serde_json::Value = serde_json::from_slice(&std::fs::read(&manifest).unwrap()).unwrap();
    assert_eq!(line["path_b64"], "/w==");
    assert_eq!(line["size"], 3);
    assert_eq!(line["blake3"], blake3::hash(b"abc").to_hex().as_str());
    assert!(line["mtime_ns"].as_i64().unwrap() > 1_500_000_000_000_000_000);
}

#[test]
fn what_is_excluded_stays_out_with_all_that_is_in_it() {
    let (_place, source, target) = folders();
    many(&source, 30, 10);
    std::fs::create_dir_all(source.join("deep/d1/x")).unwrap();
    std::fs::write(source.join("deep/d1/x/keep.tmp"), "").unwrap();
    std::fs::write(source.join("deep/kept"), "").unwrap();
    let options = Options {
        exclude: vec![
            "*.tmp".into(),
            "/d3".into(),
            "deep/*/x".into(),
            "f7".into(),
            "d9/".into(),
            "f8/".into(),
        ],
        ..archive(Engine::Auto)
    };
    let report = clean(&source, &target, &options);
    assert!(!target.join("d3").exists());
    assert!(!target.join("deep/d1/x").exists());
    assert!(!target.join("d7/f7").exists());
    assert!(target.join("d7/f17").exists());
    assert!(target.join("deep/kept").exists());
    assert!(!target.join("d9").exists());
    assert!(target.join("d8/f8").exists(), "a pattern with a slash at its end is about directories");
    assert_eq!(report.totals.skipped, 4);
    for wrong in ["a[", "", "/", "./"] {
        let to = ringroad_copy::Destination::At(target.clone());
        let options = Options { exclude: vec![wrong.into()], ..archive(Engine::Auto) };
        let refused = ringroad_copy::copy(std::slice::from_ref(&source), &to, &options, &(), &Control::new());
        assert!(refused.unwrap_err().to_string().contains(&format!("{wrong:?}")));
    }
}

#[test]
fn a_cancelled_copy_leaves_whole_files_only() {
    for &engine in engines() {
        let (_place, source, target) = folders();
        many(&source, 400, 5000);
        let control = Control::new();
        let seen = AtomicU64::new(0);
        let stop = |_: &Path, _: &Path| {
            if seen.fetch_add(1, Ordering::Relaxed) >= 60 {
                control.cancel();
            }
        };
        let told = Told { entry: Some(&stop), ..Told::default() };
        let report = run_with(&source, &target, &archive(engine), &told, &control);
        assert!(report.cancelled && !report.is_success());
        assert!(report.totals.files < 400, "{engine:?}: it stopped early");
        assert_eq!(report.totals.failed, 0, "{:?}", told.errors.lock().unwrap());
        crate::support::assert_no_torn_file(&source, &target);
    }
}

#[test]
fn a_directory_that_was_not_filled_stays_writable_and_undated_until_resume_has_filled_it() {
    let set = |folder: &Path, mode| {
        std::fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    for &engine in engines() {
        let (_place, source, target) = folders();
        many(&source, 400, 5000);
        let names = || (0..10).map(|n| format!("d{n}")).chain([String::new()]);
        for folder in names().map(|name| source.join(name)) {
            set(&folder, 0o555);
            let long_ago = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1 << 30);
            std::fs::File::open(&folder).unwrap().set_modified(long_ago).unwrap();
        }
        let control = Control::new();
        let seen = AtomicU64::new(0);
        let stop = |_: &Path, _: &Path| {
            if seen.fetch_add(1, Ordering::Relaxed) >= 60 {
                control.cancel();
            }
        };
        let told = Told { entry: Some(&stop), ..Told::default() };
        let mut options = archive(engine);
        let report = run_with(&source, &target, &options, &told, &control);
        assert!(report.cancelled && report.totals.skipped > 0, "{engine:?}: {report:?}");
        for name in names().filter(|name| target.join(name).exists()) {
            let (from, to) = (source.join(&name), target.join(&name));
            let count = |folder: &Path| std::fs::read_dir(folder).unwrap().count();
            let filled = !name.is_empty() && count(&from) == count(&to);
            let (from, to) = (from.metadata().unwrap(), to.metadata().unwrap());
            let undated = to.modified().unwrap() != from.modified().unwrap();
            assert!(filled || (to.mode() & 0o777 == 0o700 && undated), "{engine:?}: {name:?} {to:?}");
        }
        options.resume = true;
        clean(&source, &target, &options);
        let found = crate::compare::differences(&source, &target, crate::compare::ALL);
        assert!(found.is_empty(), "{engine:?}: {found:?}");
        // So that the place can be removed.
        names().for_each(|name| [&source, &target].iter().for_each(|side| set(&side.join(&name), 0o755)));
    }
}

#[test]
fn an_observer_that_panics_ends_the_copy_and_does_not_hang_it() {
    for &engine in engines() {
        let (_place, source, target) = folders();
        many(&source, 100, 10);
        let panics = |_: &Path, target: &Path| assert!(!target.ends_with("f55"), "on purpose");
        let ended = std::panic::catch_unwind(|| {
            let told = Told { entry: Some(&panics), ..Told::default() };
            let options = Options { jobs: Some(3), ..archive(engine) };
            let to = ringroad_copy::Destination::At(target.clone());
            ringroad_copy::copy(std::slice::from_ref(&source), &to, &options, &told, &Control::new())
        });
        assert!(ended.is_err(), "{engine:?}");
    }
}

#[test]
fn every_durability_copies_the_same() {
    for durability in [Durability::None, Durability::End, Durability::File] {
        let (_place, source, target) = folders();
        many(&source, 30, 100);
        let options = Options { durability, explain: true, ..archive(Engine::Auto) };
        let report = clean(&source, &target, &options);
        let syncs = report.phases.iter().find(|phase| phase.name == "sync").unwrap().calls;
        match durability {
            Durability::None => assert_eq!(syncs, 0),
            Durability::End => assert_eq!(syncs, 1),
            Durability::File => assert_eq!(syncs, 30 + 11 + 1, "each file, each directory, the target's own"),
        }
        crate::support::assert_no_torn_file(&source, &target);
    }
}

#[test]
fn with_durability_of_files_every_directory_of_parents_is_synced_and_what_it_is_in() {
    let (_place, source, target) = folders();
    many(&source, 30, 100);
    std::fs::create_dir(&target).unwrap();
    let options =
        Options { durability: Durability::File, explain: true, parents: true, ..archive(Engine::Auto) };
    let to = Destination::Into(target);
    // The first makes the directories; the second finds them.
    let operands = [source.join("d1"), source.join("d2/f2")];
    let report = copy(&operands, &to, &options, &(), &Control::new()).unwrap();
    assert!(report.is_success(), "{report:?}");
    let syncs = report.phases.iter().find(|phase| phase.name == "sync").unwrap().calls;
    let below_root = source.components().count() as u64 - 1;
    let files = 3 + 1;
    let directories = 1 + (below_root + 1) + 1;
    let places = 2;
    assert_eq!(syncs, files + directories + places, "{report:?}");
}

#[test]
fn at_the_end_the_file_system_behind_a_link_that_was_written_through_is_synced_too() {
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else {
        return eprintln!("skipped: no second file system at /dev/shm");
    };
    for &engine in engines() {
        let (place, _, target) = folders();
        let source = place.path().join("file");
        std::fs::write(&source, "new").unwrap();
        let other = memory.path().join(engine.name());
        std::fs::write(&other, "old").unwrap();
        let device = |path: &Path| std::fs::metadata(path).unwrap().dev();
        if device(&other) == device(place.path()) {
            return eprintln!("skipped: /dev/shm is no other file system");
        }
        std::os::unix::fs::symlink(&other, &target).unwrap();
        let options = Options { durability: Durability::End, explain: true, engine, ..Options::default() };
        let report = clean(&source, &target, &options);
        assert_eq!(std::fs::read(&other).unwrap(), b"new", "{engine:?}");
        let syncs = report.phases.iter().find(|phase| phase.name == "sync").unwrap().calls;
        assert_eq!(syncs, 2, "{engine:?}: the link's file system, and the file's");
    }
}

#[test]
fn explain_counts_the_calls_of_each_phase() {
    let (_place, source, target) = folders();
    many(&source, 50, 4096);
    let options = Options { explain: true, jobs: Some(1), ..archive(Engine::Threads) };
    let report = clean(&source, &target, &options);
    let calls = |name: &str| report.phases.iter().find(|phase| phase.name == name).unwrap().calls;
    // Where blocks can be shared, that is the one write of a file; else it is asked once.
    assert!((50..=51).contains(&calls("write")), "{:?}", report.phases);
    assert_eq!(calls("read"), if calls("write") == 50 { 50 } else { 100 }, "a read, and the facts again");
}

/// What the kernel says of a file: whether it is cached; `None` where it does not say.
fn is_cached(path: &Path) -> Option<bool> {
    let file = std::fs::File::open(path).unwrap();
    let mut byte = [0];
    let at_once = rustix::io::ReadWriteFlags::NOWAIT;
    match rustix::io::preadv2(&file, &mut [std::io::IoSliceMut::new(&mut byte)], 0, at_once) {
        Ok(_) => Some(true),
        Err(rustix::io::Errno::AGAIN) => Some(false),
        Err(_) => None,
    }
}

/// Has a file written out, and its pages forgotten.
fn evict(path: &Path) {
    let file = std::fs::File::open(path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

/// Has files written out and forgotten. Returns whether the first of them is: a file system in memory keeps
/// its files there, and not every kernel says it.
fn forgets(paths: &[PathBuf]) -> bool {
    // A page that is in use at that moment stays.
    (0..50).any(|_| {
        paths.iter().for_each(|path| evict(path));
        let is_forgotten = is_cached(&paths[0]) == Some(false);
        // The question may have brought it back.
        evict(&paths[0]);
        is_forgotten
    })
}

#[test]
fn whether_files_are_cached_is_asked_of_the_kernel() {
    let (_place, source, target) = folders();
    many(&source, 100, 100_000);
    let paths: Vec<_> = (0..100).map(|at| source.join(format!("d{}/f{at}", at % 10))).collect();
    if is_cached(&paths[0]) == Some(true) {
        let report = clean(&source, &target, &archive(Engine::Auto));
        assert!(!report.choice.why.contains("were not cached"), "however long it took: {:?}", report.choice);
    }
    if forgets(&paths) {
        let mut last = None;
        let is_noticed = sees(|round| {
            paths.iter().for_each(|path| evict(path));
            let cold = target.with_extension(format!("cold{round}"));
            let choice = clean(&source, &cold, &archive(Engine::Auto)).choice;
            last.insert(choice).why.contains("were not cached")
        });
        assert!(is_noticed, "{last:?}");
    }
}

/// It is large enough to be read ahead on a thread of its own.
#[test]
fn a_large_file_that_is_not_cached_is_copied_whole_by_one_thread_and_by_several() {
    let (_place, source, target) = folders();
    let mut bytes: Vec<u8> = (0..6_500_001_u32).flat_map(|at| u64::from(at).to_le_bytes()).collect();
    bytes.truncate(52_000_003);
    let large = source.join("large");
    std::fs::write(&large, &bytes).unwrap();
    for jobs in [None, Some(1), Some(3)] {
        evict(&large);
        let options = Options { jobs, ..archive(Engine::Auto) };
        let report = clean(&source, &target, &options);
        assert_eq!(report.totals.bytes, bytes.len() as u64);
        assert!(std::fs::read(target.join("large")).unwrap() == bytes, "{jobs:?}");
        std::fs::remove_dir_all(&target).unwrap();
    }
}

/// GNU cp clones where it can, and is fast by it: what is read ahead there is read for nothing.
#[test]
fn what_can_be_cloned_is_cloned_and_cold_files_bring_no_rings_there() {
    let Some(image) = Image::of(&["mkfs.xfs", "-q", "-f"], 400 << 20) else { return };
    let source = image.mounted.join("source");
    std::fs::create_dir(&source).unwrap();
    many(&source, 200, 20_000);
    let paths: Vec<_> = (0..200).map(|at| source.join(format!("d{}/f{at}", at % 10))).collect();
    for &engine in engines() {
        if !forgets(&paths) {
            return eprintln!("skipped: this kernel does not say what is cached");
        }
        let target = image.mounted.join(engine.name());
        // One worker asks first; with more each may ask for a file before the first answer.
        let options = Options { jobs: Some(1), in_flight: Some(1), ..archive(engine) };
        let report = clean(&source, &target, &options);
        if engine != Engine::RingSplice {
            assert_eq!(report.totals.bytes_shared, 200 * 20_000, "{engine:?}");
        }
        assert!(!report.choice.why.contains("were not cached"), "{engine:?}: {:?}", report.choice);
    }
}

#[test]
fn from_16_kib_on_a_file_is_moved_by_one_call_and_a_smaller_one_by_two() {
    for (bytes, calls_per_file) in [(16 << 10, 1), ((16 << 10) - 1, 2), (100_000, 1)] {
        let (_place, source, target) = folders();
        many(&source, 50, bytes);
        let options = Options { explain: true, jobs: Some(1), ..archive(Engine::Threads) };
        let report = clean(&source, &target, &options);
        let calls = |name: &str| report.phases.iter().find(|phase| phase.name == name).unwrap().calls;
        if calls("write") == 50 && report.totals.bytes_shared > 0 {
            // Blocks are shared here, which is one call whatever the size.
            continue;
        }
        // The question whether blocks can be shared, once; and the facts of each file, again.
        let moving = calls("write") - 1 + calls("read") - 50;
        assert_eq!(moving, 50 * calls_per_file, "{bytes}: {:?}", report.phases);
        crate::support::assert_no_torn_file(&source, &target);
    }
}

#[test]
fn update_and_existing_targets_are_told_apart() {
    let (_place, source, target) = folders();
    many(&source, 20, 10);
    clean(&source, &target, &archive(Engine::Auto));
    std::fs::write(source.join("d1/f1"), "newer").unwrap();
    dated(&source.join("d1/f1"), 60);
    let options = Options { update: Update::Older, ..archive(ring_engines().next().unwrap_or(Engine::Auto)) };
    let report = clean(&source, &target, &options);
    assert_eq!(report.totals.files, 1);
    assert_eq!(std::fs::read(target.join("d1/f1")).unwrap(), b"newer");
    let options = Options { update: Update::NoneFail, ..archive(Engine::Threads) };
    let told = Told::default();
    let report = run(&source, &target, &options, &told);
    assert_eq!(report.totals.failed, 20);
}

/// ext4 with small inodes keeps whole seconds.
#[test]
fn update_onto_a_file_system_of_coarse_times_copies_only_what_is_newer() {
    let Some(image) = Image::of(&["mkfs.ext4", "-q", "-F", "-I", "128"], 16 << 20) else { return };
    let (_place, source, _) = folders();
    let target = image.mounted.join("copy");
    many(&source, 20, 10);
    let half = std::time::UNIX_EPOCH + std::time::Duration::from_millis(1_000_000_000_500);
    let give = |path: &Path, time| {
        let times = std::fs::FileTimes::new().set_accessed(time).set_modified(time);
        std::fs::File::options().write(true).open(path).unwrap().set_times(times).unwrap();
    };
    (0..20).for_each(|at| give(&source.join(format!("d{}/f{at}", at % 10)), half));
    let options = Options { update: Update::Older, ..archive(Engine::Auto) };
    assert_eq!(clean(&source, &target, &options).totals.files, 20);
    let kept = target.join("d1/f1").metadata().unwrap();
    assert_eq!((kept.mtime(), kept.mtime_nsec()), (1_000_000_000, 0), "the file system is one of that kind");
    assert_eq!(clean(&source, &target, &options).totals.files, 0);
    give(&source.join("d1/f1"), half + std::time::Duration::from_secs(1));
    assert_eq!(clean(&source, &target, &options).totals.files, 1);
}

#[test]
fn a_copy_that_differs_when_read_again_is_told_and_removed() {
    // Every read of this file gives something else.
    let source = Path::new("/proc/sys/kernel/random/uuid");
    let (_place, _, target) = folders();
    let options = Options { verify: true, ..Options::default() };
    let told = Told::default();
    let report = run(source, &target, &options, &told);
    assert_eq!(report.mismatches, 1);
    assert_eq!(*told.kinds.lock().unwrap(), [ringroad_copy::ErrorKind::Mismatch]);
    assert!(!target.exists());
}

#[test]
fn files_of_proc_that_claim_to_be_empty_are_copied_whole() {
    let (_place, _, target) = folders();
    // Nothing else changes it, and it is longer than a read of /proc gives. The process ends with its input.
    let word = "x".repeat(100_000);
    let mut cat = Command::new("/bin/cat");
    cat.env_clear().env("WORD", &word).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut cat = cat.spawn().unwrap();
    let source = PathBuf::from(format!("/proc/{}/environ", cat.id()));
    for &engine in engines() {
        let options = Options { engine, ..Options::default() };
        run(&source, &target, &options, &Told::default());
        assert!(std::fs::read(&target).unwrap() == format!("WORD={word}\0").as_bytes(), "{engine:?}");
    }
    drop(cat.stdin.take());
    cat.wait().unwrap();
}

/// Where links at the destination are followed, two operands may have one place, and the last one has it.
/// Side by side, a FIFO of the last one could even be there before a file of the first, which then waits for
/// a reader.
#[test]
fn directories_that_links_at_the_destination_lead_to_are_copied_in_their_turn() {
    // Made by this copy, or there before.
    for (&engine, there) in engines().iter().flat_map(|engine| [(engine, true), (engine, false)]) {
        let (place, _, target) = folders();
        let sources = ["a", "b"].map(|name| place.path().join(name));
        for (source, text) in sources.iter().zip(["the first", "the last"]) {
            std::fs::create_dir(source).unwrap();
            for n in 0..300 {
                std::fs::write(source.join(format!("f{n}")), text).unwrap();
            }
        }
        std::fs::create_dir_all(&target).unwrap();
        if there {
            std::fs::create_dir(target.join("a")).unwrap();
        }
        std::os::unix::fs::symlink("a", target.join("b")).unwrap();
        let options = Options { keep_directory_symlink: true, ..archive(engine) };
        let told = Told::default();
        let to = Destination::Into(target.clone());
        let report = copy(&sources, &to, &options, &told, &Control::new()).unwrap();
        assert!(report.is_success(), "{engine:?}, {there}: {:?}", told.errors.lock().unwrap());
        let firsts =
            (0..300).filter(|n| std::fs::read(target.join(format!("a/f{n}"))).unwrap() != b"the last");
        assert_eq!(firsts.count(), 0, "{engine:?}, {there}");
    }
}
