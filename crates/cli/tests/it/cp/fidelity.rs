//! Everything that `-a` keeps, through each engine: judged by an own comparer and by rsync.

use super::compare::{ALL, differences, rsync_differences};
use super::engines;
use super::image::Image;
use super::tree::{Abilities, build, deep, everything, noise, sparse};
use crate::support::{is_root, ringroad, run, skip};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A source tree and a place for its copy, on the file system of a folder.
struct Trees {
    _folder: TempDir,
    source: PathBuf,
    target: PathBuf,
}

impl Trees {
    fn on(place: &Path) -> Trees {
        let folder = tempfile::tempdir_in(place).unwrap();
        let (source, target) = (folder.path().join("source"), folder.path().join("target"));
        fs::create_dir(&source).unwrap();
        Trees { _folder: folder, source, target }
    }

    /// Copies by name: into a place that is not there yet.
    fn copy(&self, engine: &str, more: &[&str]) {
        let mut copy = ringroad(["cp", "-aT", "--engine", engine]);
        let outcome = run(copy.args(more).arg(&self.source).arg(&self.target));
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{engine} {more:?}");
    }

    /// Removes the copy, what stands in folders too that their owner may not write to: only root needs no
    /// leave.
    fn remove_copy(&self) {
        if !is_root() {
            let outcome = run(Command::new("chmod").args(["-R", "u+rwx"]).arg(&self.target));
            assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
        }
        fs::remove_dir_all(&self.target).unwrap();
    }
}

/// Where trees are copied: the folder of temporary files, memory, and file systems made for it.
fn places() -> Vec<(PathBuf, Option<Image>)> {
    let mut places = vec![(std::env::temp_dir(), None)];
    if fs::metadata("/dev/shm").is_ok_and(|about| about.is_dir()) {
        places.push(("/dev/shm".into(), None));
    } else {
        skip("fidelity on tmpfs", "there is no /dev/shm");
    }
    // XFS wants 300 MiB at least; an image takes only what is written to it.
    let make = [["mkfs.ext4", "-q", "-F"], ["mkfs.xfs", "-q", "-f"], ["mkfs.btrfs", "-q", "-f"]];
    let images = make.iter().filter_map(|words| Image::of(words, 1 << 30));
    places.extend(images.map(|image| (image.mounted.clone(), Some(image))));
    places
}

#[test]
fn archive_keeps_everything() {
    for (place, _image) in places() {
        let trees = Trees::on(&place);
        build(&trees.source, &everything(Abilities::of(&trees.source)));
        for engine in engines() {
            trees.copy(engine, &[]);
            let context = format!("{engine} on {place:?}");
            assert_eq!(differences(&trees.source, &trees.target, ALL), [""; 0], "{context}");
            match rsync_differences(&trees.source, &trees.target) {
                Some(said) => assert_eq!(said, "", "rsync, {context}"),
                None => skip("rsync as a second judge", "not installed"),
            }
            trees.remove_copy();
        }
    }
}

/// A second copy over the first must leave the same tree, whether files are replaced or removed first.
#[test]
fn archive_over_an_older_copy_keeps_everything() {
    let trees = Trees::on(&std::env::temp_dir());
    build(&trees.source, &everything(Abilities::of(&trees.source)));
    for engine in engines() {
        for how in ["--force", "--remove-destination"] {
            if how == "--remove-destination" && !is_root() {
                skip(how, "some folders of the tree do not let their owner remove anything");
                continue;
            }
            trees.copy(engine, &[how]);
            // What is there is to be replaced, not left because it is the same.
            let stale = trees.target.join("sizes/4097");
            fs::write(&stale, "older, and shorter").unwrap();
            fs::write(trees.target.join("links/one"), "older").unwrap();
            trees.copy(engine, &[how]);
            assert_eq!(differences(&trees.source, &trees.target, ALL), [""; 0], "{engine} {how}");
        }
        trees.remove_copy();
    }
}

#[test]
fn every_setting_leaves_the_same_tree() {
    let trees = Trees::on(&std::env::temp_dir());
    build(&trees.source, &everything(Abilities::of(&trees.source)));
    for engine in engines() {
        for more in [
            &["--jobs", "1"][..],
            &["--jobs", "7", "--in-flight", "3"],
            &["--order", "dir"],
            &["--durability", "end"],
            &["--verify"],
            &["--reflink=never"],
        ] {
            trees.copy(engine, more);
            assert_eq!(differences(&trees.source, &trees.target, ALL), [""; 0], "{engine} {more:?}");
            trees.remove_copy();
        }
    }
}

/// Holes are not read: a tebibyte of them takes no time.
#[test]
fn a_tebibyte_of_nothing_is_copied_as_nothing() {
    let trees = Trees::on(&std::env::temp_dir());
    build(&trees.source, &[sparse("huge", 1 << 40, vec![(1 << 39, noise(9, 5))])]);
    for engine in engines() {
        trees.copy(engine, &[]);
        assert_eq!(differences(&trees.source, &trees.target, ALL), [""; 0], "{engine}");
        trees.remove_copy();
    }
}

#[test]
fn a_tree_deeper_than_any_path_is_copied_to_its_bottom() {
    let trees = Trees::on(&std::env::temp_dir());
    build(&trees.source, &deep(60));
    for engine in engines() {
        trees.copy(engine, &[]);
        assert_eq!(differences(&trees.source, &trees.target, ALL), [""; 0], "{engine}");
        trees.remove_copy();
    }
}

/// The judge itself: each thing it looks at, spoilt once, must be found.
#[test]
fn the_comparer_finds_what_is_different() {
    let trees = Trees::on(&std::env::temp_dir());
    let abilities = Abilities::of(&trees.source);
    build(&trees.source, &everything(abilities));
    let spoil: &[(&str, &str)] = &[
        (
            "contents",
            "printf y | dd of=sizes/131073 bs=1 seek=131072 conv=notrunc 2>/dev/null && touch -r \"$S/sizes/131073\" sizes/131073",
        ),
        ("size", "printf y >>sizes/1 && touch -r \"$S/sizes/1\" sizes/1"),
        ("time", "touch -d '2009-02-13 23:31:30.987654320 UTC' times/nanoseconds"),
        ("time", "touch -h -d 2001-01-01 times/link"),
        ("time", "touch -d 2001-01-01 times/directory"),
        ("mode", "chmod 0754 modes/file-0755"),
        // Which its owner may not read, either.
        ("mode", "chmod 0 modes/file-0644"),
        ("no longer names of one file", "cp -p links/one x && mv x links/one"),
        ("target", "ln -sfn elsewhere/ links/to-directory"),
        ("missing", "rm names/.hidden"),
        ("nobody expects it", "touch empty/more"),
        (
            "data in a hole",
            "dd if=/dev/zero of=holes/middle bs=4096 count=1 seek=100 conv=notrunc 2>/dev/null && touch -r \"$S/holes/middle\" holes/middle",
        ),
        ("type", "rm special/fifo && touch special/fifo"),
    ];
    for (expected, script) in spoil {
        trees.copy("threads", &[]);
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", script]).current_dir(&trees.target).env("S", &trees.source);
        assert!(shell.status().unwrap().success(), "{script}");
        let found = differences(&trees.source, &trees.target, ALL);
        assert!(found.iter().any(|line| line.contains(expected)), "{script}: {found:?}");
        trees.remove_copy();
    }
}
