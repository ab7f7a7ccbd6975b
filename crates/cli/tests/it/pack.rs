//! `ringroad pack` and `ringroad unpack`, with `tar` and WebDataset as judges.

use crate::support::{Outcome, ringroad, run, skip};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A tree with samples, names of every length, links, a file with several names, holes, and odd modes.
fn place() -> TempDir {
    let place = tempfile::tempdir().unwrap();
    let source = place.path().join("s");
    for at in 0..120 {
        let inside = source.join(format!("class{}", at % 4));
        fs::create_dir_all(&inside).unwrap();
        fs::write(inside.join(format!("{at:04}.jpg")), vec![at as u8; at * 97 % 5000]).unwrap();
        fs::write(inside.join(format!("{at:04}.seg.txt")), format!("label {at}")).unwrap();
    }
    let long = ["n".repeat(120), "m".repeat(110)];
    fs::create_dir_all(source.join(long.join("/"))).unwrap();
    fs::write(source.join(long.join("/")).join("x".repeat(90)), "far away").unwrap();
    fs::create_dir(source.join("empty")).unwrap();
    fs::write(source.join("line\nbreak"), "odd").unwrap();
    fs::write(source.join("none"), "").unwrap();
    symlink("class1/0001.jpg", source.join("link")).unwrap();
    symlink("l".repeat(150), source.join("long link")).unwrap();
    fs::hard_link(source.join("class2/0002.jpg"), source.join("class2/0002")).unwrap();
    // Beside each other in the order of names, so in the same shard.
    fs::write(source.join("class2/z1"), "two names").unwrap();
    fs::hard_link(source.join("class2/z1"), source.join("class2/z2")).unwrap();
    let sparse = fs::File::create(source.join("sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"end", 3 << 20).unwrap();
    sparse.set_len(5 << 20).unwrap();
    fs::set_permissions(source.join("class3"), fs::Permissions::from_mode(0o750)).unwrap();
    fs::set_permissions(source.join("none"), fs::Permissions::from_mode(0o600)).unwrap();
    let words = [".", "-exec", "touch", "-h", "-d", "@1000000000", "{}", "+"];
    assert_eq!(run(Command::new("find").args(words).current_dir(&source)).code, Some(0));
    place
}

fn ours(place: &TempDir, words: &[&str]) -> Outcome {
    run(ringroad(words).current_dir(place.path()).env_remove("RINGROAD_PARTS"))
}

fn done(outcome: &Outcome) {
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
}

/// Everything below a folder: kind, mode, time, and bytes or where a link leads.
fn tree(folder: &Path) -> BTreeMap<PathBuf, (String, u32, i64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            let about = fs::symlink_metadata(&path).unwrap();
            let (kind, bytes) = if about.is_dir() {
                folders.push(path.clone());
                ("folder", Vec::new())
            } else if about.is_symlink() {
                ("link", fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes())
            } else {
                ("file", fs::read(&path).unwrap())
            };
            let mode = if about.is_symlink() { 0 } else { about.mode() & 0o777 };
            let below = path.strip_prefix(folder).unwrap().to_path_buf();
            found.insert(below, (kind.to_owned(), mode, about.mtime(), bytes));
        }
    }
    found
}

fn shards(place: &TempDir, folder: &str) -> Vec<String> {
    let names = fs::read_dir(place.path().join(folder)).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.retain(|name| name.ends_with(".tar"));
    names.sort();
    names.into_iter().map(|name| format!("{folder}/{name}")).collect()
}

fn packed(place: &TempDir, folder: &str, more: &[&str]) -> Vec<String> {
    fs::create_dir_all(place.path().join(folder)).unwrap();
    let names = format!("{folder}/a-%06d.tar");
    let words = ["pack", "-q", "s", &names, "--shard-size", "64k"];
    done(&ours(place, &[&words[..], more].concat()));
    shards(place, folder)
}

#[test]
fn shards_are_unpacked_to_the_same_tree_by_ourselves_and_by_tar() {
    let place = place();
    let all = packed(&place, "out", &[]);
    assert!(all.len() > 4, "{all:?}");
    let words: Vec<&str> = all.iter().map(String::as_str).collect();
    done(&ours(&place, &[&["unpack", "--verify", "-C", "back"], &words[..]].concat()));
    let (source, back) = (tree(&place.path().join("s")), tree(&place.path().join("back")));
    assert!(
        source == back,
        "{:?}",
        source.keys().filter(|path| source.get(*path) != back.get(*path)).collect::<Vec<_>>()
    );
    let number = |name: &str| fs::metadata(place.path().join("back").join(name)).unwrap();
    assert_eq!(number("class2/z1").ino(), number("class2/z2").ino());
    assert!(number("sparse").blocks() * 512 < 1 << 20, "holes stay holes");
    // Again, over what is there.
    done(&ours(&place, &[&["unpack", "-C", "back"], &words[..]].concat()));
    assert!(source == tree(&place.path().join("back")));
    let tar = |words: &[&str]| run(Command::new("tar").args(words).current_dir(place.path()));
    fs::create_dir(place.path().join("tar")).unwrap();
    let mut listed = 0;
    for shard in &all {
        let list = tar(&["-tvf", shard]);
        assert_eq!((list.code, list.stderr.as_str()), (Some(0), ""), "{shard}");
        listed += list.text().lines().count();
        let extracted = tar(&["-xpf", shard, "-C", "tar"]);
        assert_eq!((extracted.code, extracted.stderr.as_str()), (Some(0), ""), "{shard}");
    }
    assert_eq!(listed, source.len());
    let theirs = tree(&place.path().join("tar"));
    for (path, (kind, mode, time, bytes)) in &source {
        let found = &theirs[path];
        // A folder changes when a later shard is extracted into it.
        let time = if kind == "folder" { found.2 } else { *time };
        assert!(*found == (kind.clone(), *mode, time, bytes.clone()), "{path:?}");
    }
}

#[test]
fn the_same_tree_makes_the_same_shards_in_any_number_of_parts() {
    let place = place();
    let one = packed(&place, "one", &["--jobs=1"]);
    for part in ["--part=2/3", "--part=1/3", "--part=3/3"] {
        packed(&place, "parts", &["--jobs=3", part]);
    }
    let read = |name: &str| fs::read(place.path().join(name)).unwrap();
    for shard in &one {
        let other = shard.replace("one/", "parts/");
        assert!(read(shard) == read(&other), "{shard}");
        assert!(read(&format!("{shard}.ndjson")) == read(&format!("{other}.ndjson")), "{shard}");
    }
    assert_eq!(shards(&place, "parts").len(), one.len());
    // The index says where the bytes are.
    for line in String::from_utf8(read(&format!("{}.ndjson", one[0]))).unwrap().lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let (from, size) =
            (line["offset"].as_u64().unwrap() as usize, line["size"].as_u64().unwrap() as usize);
        let path = place.path().join("s").join(line["path"].as_str().unwrap());
        assert!(read(&one[0])[from..from + size] == fs::read(path).unwrap(), "{line}");
    }
    let dated = packed(&place, "dated", &["--mtime=5", "--owner=7:8", "--no-index"]);
    let listed =
        run(Command::new("tar").args(["-tvf", &dated[0], "--numeric-owner"]).current_dir(place.path()));
    assert!(listed.text().lines().all(|line| line.contains(" 7/8 ") && line.contains("1970")), "{listed:?}");
}

#[test]
fn what_is_spoiled_or_leads_elsewhere_is_not_unpacked() {
    let place = place();
    let all = packed(&place, "out", &[]);
    let shard = place.path().join(&all[1]);
    let whole = fs::read(&shard).unwrap();
    let mut bytes = whole.clone();
    let index = fs::read_to_string(place.path().join(format!("{}.ndjson", all[1]))).unwrap();
    let lines: Vec<serde_json::Value> =
        index.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let line = lines.iter().find(|line| line["size"].as_u64().unwrap() > 10).unwrap();
    bytes[line["offset"].as_u64().unwrap() as usize + 5] ^= 1;
    fs::write(&shard, &bytes).unwrap();
    let spoiled = ours(&place, &["unpack", "-C", "back", &all[0], &all[1]]);
    assert_eq!(spoiled.code, Some(4), "{}", spoiled.stderr);
    assert!(!place.path().join("back").join(line["path"].as_str().unwrap()).exists());
    fs::write(&shard, &whole[..whole.len() / 2]).unwrap();
    let cut = ours(&place, &["unpack", "-C", "cut", &all[1]]);
    assert_eq!(cut.code, Some(1), "{}", cut.stderr);
    let without = ours(&place, &["unpack", "--verify", "-C", "v", &all[0].replace(".tar", ".other")]);
    assert_eq!(without.code, Some(1), "{}", without.stderr);
    // The index of a shard that had more files.
    let index = format!("{}.ndjson", shard.display());
    fs::write(&shard, &whole).unwrap();
    let lines = fs::read_to_string(&index).unwrap();
    fs::write(&index, format!("{lines}{}\n", lines.lines().next().unwrap())).unwrap();
    let fewer = ours(&place, &["unpack", "--verify", "-C", "fewer", &all[1]]);
    assert!(fewer.code == Some(1) && fewer.stderr.contains("the shard ends before its index"), "{fewer:?}");
    // Archives of others, which lead out of the folder by a path or through a link.
    fs::create_dir(place.path().join("evil")).unwrap();
    symlink("../outside", place.path().join("evil/out")).unwrap();
    fs::create_dir(place.path().join("outside")).unwrap();
    fs::write(place.path().join("file"), "x").unwrap();
    let tar = |words: &[&str]| {
        let made = run(Command::new("tar").args(words).current_dir(place.path()));
        assert_eq!(made.code, Some(0), "{}", made.stderr);
    };
    tar(&["-cf", "up.tar", "--transform=s,^file,../escaped,", "-P", "file"]);
    tar(&["-cf", "root.tar", "--transform=s,^file,/tmp/ringroad-escaped,", "-P", "file"]);
    tar(&["-cf", "through.tar", "-C", "evil", "out"]);
    tar(&["-rf", "through.tar", "--transform=s,^file,out/escaped,", "file"]);
    for (archive, why) in [
        ("up.tar", "`..` in the path, which would lead out"),
        ("root.tar", "an absolute path, which would lead out"),
        ("through.tar", "Not a directory"),
    ] {
        let refused = ours(&place, &["unpack", "-C", "in/here", archive]);
        assert!(refused.code == Some(1) && refused.stderr.contains(why), "{archive}: {}", refused.stderr);
    }
    assert!(!place.path().join("in/escaped").exists() && !place.path().join("outside/escaped").exists());
    for words in [&["s", "a.tar"][..], &["s", "a-%d.tar", "--shard-size=0"], &["s", "a-%d.tar", "--owner=x"]]
    {
        assert_eq!(ours(&place, &[&["pack"], words].concat()).code, Some(2), "{words:?}");
    }
}

#[test]
fn webdataset_reads_every_sample_whole() {
    let place = place();
    let all = packed(&place, "out", &["--exclude=sparse", "--exclude=n*"]);
    let program = "import sys, json, webdataset\n\
                   found = {}\n\
                   for sample in webdataset.WebDataset(sys.argv[1:], shardshuffle=False):\n    \
                       found[sample['__key__']] = sorted(k for k in sample if not k.startswith('__'))\n\
                   print(json.dumps(found))\n";
    match run_python(&place, program, &all) {
        None => skip("WebDataset as a judge", "the Python package webdataset is not installed"),
        Some(outcome) => {
            assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
            let found: BTreeMap<String, Vec<String>> = serde_json::from_str(&outcome.text()).unwrap();
            let expected: BTreeMap<String, Vec<String>> = (0..120)
                .map(|at| (format!("class{}/{at:04}", at % 4), vec!["jpg".to_owned(), "seg.txt".to_owned()]))
                .collect();
            assert_eq!(found, expected);
        }
    }
}

/// Runs a program with webdataset; `None` where that is not installed.
fn run_python(place: &TempDir, program: &str, shards: &[String]) -> Option<Outcome> {
    let there = Command::new("python3").args(["-c", "import webdataset"]).output();
    if !there.is_ok_and(|output| output.status.success()) {
        return None;
    }
    Some(run(Command::new("python3").args(["-c", program]).args(shards).current_dir(place.path())))
}

#[test]
fn shards_in_the_tree_that_is_packed_are_refused_unless_they_are_left_out() {
    let place = place();
    fs::create_dir_all(place.path().join("s/out/deep")).unwrap();
    symlink("s/out", place.path().join("beside")).unwrap();
    for names in ["s/out/deep/%d.tar", "s/%d.tar", "beside/%d.tar", "s/../s/out/%d.tar"] {
        let refused = ours(&place, &["pack", "-q", "s", names]);
        assert_eq!(refused.code, Some(2), "{names}: {refused:?}");
        assert!(refused.stderr.contains("which is in the tree s that is packed"), "{}", refused.stderr);
    }
    assert_eq!(shards(&place, "s"), Vec::<String>::new());
    // The folder is made if it is not there, and not in the tree.
    let inside = ours(&place, &["pack", "-q", "s", "s/new/deep/%d.tar"]);
    assert!(inside.code == Some(2) && !place.path().join("s/new").exists(), "{inside:?}");
    let none = ours(&place, &["pack", "-q", "no such tree", "new/%d.tar"]);
    assert!(none.code == Some(1) && !place.path().join("new").exists(), "{none:?}");
    done(&ours(&place, &["pack", "-q", "s", "new/deep/%d.tar"]));
    assert!(place.path().join("new/deep/0.tar").exists());
    let first = |number: u8| {
        let names = format!("s/out/{number}-%d.tar");
        done(&ours(&place, &["pack", "-q", "s", &names, "--exclude", "out/"]));
        fs::read(place.path().join(format!("s/out/{number}-0.tar"))).unwrap()
    };
    assert!(first(1) == first(2), "what was packed before is left out");
}
