//! Datasets: the counts and sizes their documentation states, and the same tree every time.

use ringroad_lab::dataset::{Dataset, DatasetError, Made, make};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What is at one path, as far as a dataset promises it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Thing {
    Folder,
    Link(PathBuf),
    File { inode: u64, bytes: Vec<u8> },
}

/// Everything under `root` by path, with its modification time.
fn listing(root: &Path) -> BTreeMap<PathBuf, (Thing, i64, i64)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let about = path.symlink_metadata().unwrap();
            let thing = if about.is_dir() {
                folders.push(path.clone());
                Thing::Folder
            } else if about.is_symlink() {
                Thing::Link(fs::read_link(&path).unwrap())
            } else {
                Thing::File { inode: about.ino(), bytes: fs::read(&path).unwrap() }
            };
            let inside = path.strip_prefix(root).unwrap().to_path_buf();
            found.insert(inside, (thing, about.mtime(), about.mtime_nsec()));
        }
    }
    found
}

/// A number for the whole tree: FNV-1a over paths, kinds, contents and times, inode numbers left out.
fn tree_hash(root: &Path) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    for (path, (thing, seconds, nanoseconds)) in listing(root) {
        add(path.as_os_str().as_encoded_bytes());
        match thing {
            Thing::Folder => add(b"folder"),
            Thing::Link(target) => add(target.as_os_str().as_encoded_bytes()),
            Thing::File { bytes, .. } => add(&bytes),
        }
        add(&seconds.to_le_bytes());
        add(&nanoseconds.to_le_bytes());
    }
    hash
}

fn made(dataset: &str, scale: f64) -> (tempfile::TempDir, Made) {
    let folder = tempfile::tempdir().unwrap();
    let made = make(dataset.parse().unwrap(), scale, &folder.path().join("new"), 2).unwrap();
    (folder, made)
}

#[test]
fn counts_and_sizes_are_those_of_the_source_times_the_scale() {
    for (name, scale, files, least, most) in [
        ("imagenet", 0.0005, 640, 100_000, 200_000),
        ("coco", 0.001, 330, 50_000, 500_000),
        ("mnist", 0.02, 1400, 784, 784),
        ("cifar10", 0.02, 1200, 3072, 3072),
        ("300x5K/7", 1.0, 300, 5120, 5120),
    ] {
        let (folder, made) = made(name, scale);
        let found = listing(&folder.path().join("new"));
        let sizes: Vec<usize> = found
            .values()
            .filter_map(
                |(thing, ..)| if let Thing::File { bytes, .. } = thing { Some(bytes.len()) } else { None },
            )
            .collect();
        assert_eq!(sizes.len(), files, "{name}");
        assert!(sizes.iter().all(|size| (least..=most).contains(size)), "{name}: {sizes:?}");
        if least < most {
            let (smallest, biggest) = (*sizes.iter().min().unwrap(), *sizes.iter().max().unwrap());
            let tenth = (most - least) / 10;
            assert!(smallest < least + tenth && biggest > most - tenth, "{name}: {smallest} to {biggest}");
        }
        let folders = found.values().filter(|(thing, ..)| *thing == Thing::Folder).count();
        let bytes = sizes.iter().sum::<usize>() as u64;
        let expected = Made { files: files as u64, bytes, folders: folders as u64, links: 0 };
        assert_eq!(made, expected, "{name}: what it says of itself");
    }
}

#[test]
fn imagenet_has_a_folder_per_class_and_coco_is_flat() {
    let (folder, _) = made("imagenet", 0.001);
    let classes = listing(&folder.path().join("new/train"));
    let folders = classes.values().filter(|(thing, ..)| *thing == Thing::Folder).count();
    assert_eq!(folders, 1000);
    let (folder, made) = made("coco", 0.0005);
    assert_eq!(made.folders, 4);
    assert_eq!(listing(&folder.path().join("new")).len(), 165 + 4);
}

#[test]
fn one_folder_means_the_root_itself() {
    let (folder, made) = made("50x10", 1.0);
    assert_eq!((made.files, made.folders), (50, 0));
    assert_eq!(listing(&folder.path().join("new")).len(), 50);
}

#[test]
fn mixed_has_links_of_both_kinds_big_files_and_empty_folders() {
    let (folder, made) = made("mixed", 0.01 / 4.0);
    let root = folder.path().join("new");
    let found = listing(&root);
    let mut names: BTreeMap<u64, u64> = BTreeMap::new();
    let (mut symlinks, mut folders) = (0, BTreeSet::new());
    for (path, (thing, ..)) in &found {
        match thing {
            Thing::File { inode, .. } => *names.entry(*inode).or_default() += 1,
            Thing::Link(_) => {
                symlinks += 1;
                assert!(root.join(path).is_file(), "{path:?} leads nowhere");
            }
            Thing::Folder => drop(folders.insert(path.clone())),
        }
    }
    let further: u64 = names.values().map(|count| count - 1).sum();
    assert_eq!(
        (names.len() as u64, symlinks + further, folders.len() as u64),
        (made.files, made.links, made.folders)
    );
    assert!(symlinks >= 2 && further >= 2, "{symlinks} symbolic links, {further} hard links");
    let occupied: BTreeSet<_> = found.keys().filter_map(|path| path.parent()).collect();
    assert!(folders.iter().any(|folder| !occupied.contains(folder.as_path())), "no folder is empty");

    // Ten shards at scale 1: one from scale 0.05 on.
    let shard = |scale| {
        let folder = tempfile::tempdir().unwrap();
        make(Dataset::Mixed, scale, folder.path(), 2).unwrap();
        folder.path().join("shards/shard-000000.tar").metadata().map(|about| about.len()).ok()
    };
    assert_eq!(shard(0.05), Some(32 << 20));
}

/// Different runs, different numbers of threads, the same bytes; and the same as when this was written.
#[test]
fn the_same_name_and_scale_give_the_same_tree_for_ever() {
    for (name, scale, hash) in [
        ("mnist", 0.01, 0x8476_3319_a0fa_4909),
        ("mixed", 0.002, 0xc576_0e20_101a_dae1),
        ("4x1025K/3", 1.0, 0xc3aa_6267_ba2c_0b70),
    ] {
        let hashes: Vec<u64> = [1, 4]
            .iter()
            .map(|threads| {
                let folder = tempfile::tempdir().unwrap();
                make(name.parse().unwrap(), scale, folder.path(), *threads).unwrap();
                tree_hash(folder.path())
            })
            .collect();
        assert_eq!(hashes, [hash, hash], "{name}: {:#x}", hashes[0]);
    }
}

#[test]
fn no_two_files_are_equal() {
    for name in ["20000x20", "100x3K/4"] {
        let (folder, made) = made(name, 1.0);
        let contents: BTreeSet<Thing> = listing(&folder.path().join("new"))
            .into_values()
            .filter_map(|(thing, ..)| match thing {
                Thing::File { bytes, .. } => Some(Thing::File { inode: 0, bytes }),
                _ => None,
            })
            .collect();
        assert_eq!(contents.len() as u64, made.files, "{name}");
    }
}

#[test]
fn a_folder_with_something_in_it_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("mine"), "precious").unwrap();
    let error = make(Dataset::Mnist, 0.01, folder.path(), 1).unwrap_err();
    assert!(matches!(error, DatasetError::NotEmpty(_)), "{error}");
    assert_eq!(listing(folder.path()).len(), 1);
}

#[test]
fn a_scale_that_leaves_nothing_is_refused_before_anything_is_made() {
    let folder = tempfile::tempdir().unwrap();
    for scale in [0.0, -1.0, f64::NAN, f64::INFINITY, 1001.0, 1e-9] {
        let error = make(Dataset::Mnist, scale, &folder.path().join("new"), 1).unwrap_err();
        assert!(matches!(error, DatasetError::Scale(_)), "{scale}: {error}");
        assert!(!folder.path().join("new").exists(), "{scale}");
    }
}

#[test]
fn a_dataset_that_does_not_fit_is_refused_before_a_file_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let mount = |words: &[&str]| {
        let done = std::process::Command::new(words[0]).args(&words[1..]).arg(folder.path()).output();
        done.is_ok_and(|output| output.status.success())
    };
    if !mount(&["mount", "-t", "tmpfs", "-o", "size=1m", "ringroad"]) {
        eprintln!("skipped: a file system of one megabyte could not be mounted");
        return;
    }
    let root = folder.path().join("new");
    let fits =
        make("2x100K".parse().unwrap(), 1.0, &folder.path().join("fits"), 1).map_err(|why| why.to_string());
    let error = make(Dataset::Coco, 1.0, &root, 1).unwrap_err();
    let left = std::fs::read_dir(&root).map(Iterator::count).ok();
    let _ = mount(&["umount"]);
    assert_eq!(fits.map(|made| made.files), Ok(2));
    assert!(matches!(error, DatasetError::Room { bytes: 90_750_000_000, .. }), "{error}");
    assert!(error.to_string().contains("the files take 84.5 GiB"), "{error}");
    assert_eq!(left, Some(0));
}

#[test]
fn names_that_are_no_dataset_are_refused() {
    for name in
        ["", "ImageNet", "x", "10x", "x10", "0x5", "10x5/0", "10x5/11", "10x99999999999999999999", "-1x5"]
    {
        assert!(name.parse::<Dataset>().is_err(), "{name}");
    }
    let expected = Dataset::Uniform { files: 100_000, bytes: 4096, folders: 100 };
    assert_eq!("100000x4K/100".parse(), Ok(expected));
}
