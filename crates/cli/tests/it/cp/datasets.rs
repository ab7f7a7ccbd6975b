//! Trees that are kept alike: lists, parts by size, names from a file, deletion, manifests, limits, journals.
//! Where `rsync` has the same function it is the judge.

use super::compare::{ALL, TIMELESS, differences};
use super::engines;
use super::fuse::{Faults, Fuse};
use super::tree::{Abilities, build, everything, noise};
use crate::support::{Outcome, ringroad, run, run_with_input, skip};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

/// A place with a folder `s`.
fn place() -> TempDir {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join("s")).unwrap();
    place
}

/// Files of different sizes in some folders, an empty one, and names with odd bytes.
fn fill(folder: &Path, count: usize) {
    for at in 0..count {
        let inside = folder.join(format!("d{}/e{}", at % 5, at % 3));
        fs::create_dir_all(&inside).unwrap();
        fs::write(inside.join(format!("f{at}")), noise(at * 317 % 9000, at as u64)).unwrap();
    }
    fs::create_dir(folder.join("empty")).unwrap();
    fs::write(folder.join("line\nbreak \\n"), "odd").unwrap();
    fs::write(folder.join("# no comment"), "odd").unwrap();
    fs::write(folder.join("d1-"), "sorts between d1 and what is in it").unwrap();
    std::os::unix::fs::symlink("f0", folder.join("d0/link")).unwrap();
}

/// Gives everything in a folder one old time: rsync takes times of one second for equal.
fn age(folder: &Path) {
    let words = [".", "-exec", "touch", "-h", "-d", "@1000000000", "{}", "+"];
    let aged = run(Command::new("find").args(words).current_dir(folder));
    assert_eq!(aged.code, Some(0), "{}", aged.stderr);
}

fn cp(place: &TempDir, words: &[&str]) -> Outcome {
    let mut command = ringroad(["cp"]);
    run(command.args(words).current_dir(place.path()).env_remove("RINGROAD_PARTS"))
}

fn done(outcome: &Outcome) {
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
}

/// The counts that `--json` ends with.
fn counts(outcome: &Outcome) -> Value {
    serde_json::from_str(outcome.text().lines().last().unwrap()).unwrap()
}

/// Runs rsync in a place; `None` where it is not installed, which is printed.
fn rsync(place: &TempDir, words: &[&str]) -> Option<()> {
    match Command::new("rsync").args(words).current_dir(place.path()).output() {
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => {
            skip("rsync as a judge", "not installed");
            None
        }
        output => {
            let output = output.unwrap();
            assert!(output.status.success(), "rsync {words:?}: {output:?}");
            Some(())
        }
    }
}

fn alike(place: &TempDir, one: &str, other: &str) {
    let (one, other) = (place.path().join(one), place.path().join(other));
    assert_eq!(differences(&one, &other, ALL), [""; 0]);
}

#[test]
fn parts_of_one_list_and_a_last_pass_are_a_copy_of_everything_on_every_engine() {
    for engine in engines() {
        let place = place();
        let source = place.path().join("s");
        build(&source, &everything(Abilities::of(&source)));
        done(&cp(&place, &["-a", "--quiet", "--make-list", "list", "s"]));
        let engine = format!("--engine={engine}");
        let mut merge = vec!["manifest".to_owned(), "merge".into(), "all.ndjson".into()];
        for index in [4, 1, 5, 2, 3] {
            let (part, list) = (format!("--part={index}/5"), format!("{index}.ndjson"));
            for _ in 0..2 {
                let words = ["-a", &engine, &part, "--list", "list", "--manifest", &list, "s", "d"];
                done(&cp(&place, &words));
            }
            merge.push(list);
        }
        for _ in 0..2 {
            let words = ["-a", &engine, "--finish", "--list=list", "--manifest=finish.ndjson", "s", "d"];
            done(&cp(&place, &words));
        }
        alike(&place, "s", "d");
        merge.push("finish.ndjson".into());
        assert_eq!(run(ringroad(&merge).current_dir(place.path())).code, Some(0));
        done(&cp(&place, &["-a", &engine, "--manifest=one.ndjson", "s", "whole"]));
        let list = |name: &str| fs::read_to_string(place.path().join(name)).unwrap();
        assert_eq!(list("all.ndjson"), list("one.ndjson"));
        // One run by the list is the whole, too.
        done(&cp(&place, &["-a", &engine, "--list=list", "-T", "s", "by-list"]));
        alike(&place, "s", "by-list");
    }
}

#[test]
fn a_list_does_not_depend_on_the_number_of_workers_and_names_what_is_not_there_any_more() {
    let place = place();
    fill(&place.path().join("s"), 200);
    let list = |words: &[&str]| {
        done(&cp(&place, &[&["-a", "--quiet"], words, &["--make-list=list", "s"]].concat()));
        fs::read_to_string(place.path().join("list")).unwrap()
    };
    let one = list(&["--jobs=1"]);
    assert_eq!(one, list(&["--jobs=7"]));
    let sum = one.lines().last().unwrap();
    assert!(sum.starts_with("= 21 0 204 "), "{sum}");
    assert!(!list(&["--exclude=e2/"]).contains("/e2/"));
    list(&[]);
    fs::remove_file(place.path().join("s/d1/e1/f1")).unwrap();
    let copied = cp(&place, &["-a", "--list=list", "-T", "s", "d"]);
    assert_eq!(copied.code, Some(1), "{copied:?}");
    assert!(copied.stderr.contains("d1/e1/f1") && copied.stderr.lines().count() == 2, "{copied:?}");
    alike(&place, "s", "d");
    let cut = one.trim_end().rsplit_once('\n').unwrap().0;
    fs::write(place.path().join("list"), cut).unwrap();
    let refused = cp(&place, &["-a", "--list=list", "-T", "s", "e"]);
    assert!(refused.code == Some(1) && refused.stderr.contains("cut off"), "{refused:?}");
    assert!(!place.path().join("e").exists());
}

#[test]
fn names_of_a_file_are_copied_as_by_rsync() {
    let place = place();
    let source = place.path().join("s");
    fill(&source, 100);
    age(&source);
    let lines = "d1/e1/f1\n./d2//e2/f2\n/d3/e0/f3\n# comment\n; comment\n\nd0/link\nd1-\nd4\nempty\n\
                 d1/e1/f1\nd4/e1/f4\n";
    let nul = "line\nbreak \\n\0d1/e1/f1\0d3/e0\0";
    let find = run(Command::new("find").args(["d2", "d4", "-print0"]).current_dir(&source));
    let found = String::from_utf8(find.stdout).unwrap();
    for (at, (names, more)) in
        [(lines, None), (nul, Some("-0")), (&found, Some("-0"))].into_iter().enumerate()
    {
        fs::write(place.path().join("names"), names).unwrap();
        let ours = format!("ours-{at}");
        let words = ["cp", "-a", "--files-from=-", "-T", "s", &ours];
        let mut copy = ringroad(words.into_iter().chain(more));
        done(&run_with_input(copy.current_dir(place.path()), names.as_bytes()));
        let planned = ["-a", "--dry-run", "--json", "--files-from=names", "-T", "s", "elsewhere"];
        let planned = counts(&cp(&place, &[&planned[..], &more.into_iter().collect::<Vec<_>>()].concat()));
        let files = walk(&place.path().join(&ours)).len() as u64;
        assert_eq!(planned["files"], files, "{planned}");
        let theirs = format!("theirs-{at}");
        let mut words = vec!["-aHAXr", "--files-from=names", "s/", &theirs];
        words.extend(more.map(|_| "--from0"));
        if rsync(&place, &words).is_some() {
            let [ours, theirs] = [ours, theirs].map(|name| place.path().join(name));
            // rsync gives the destination itself no time.
            let found = differences(&theirs, &ours, ALL);
            assert!(found.iter().all(|line| line.starts_with("\"\": time")), "{found:?}");
        }
    }
    // With -0 every name is one.
    fs::write(place.path().join("names"), "# no comment\0").unwrap();
    done(&cp(&place, &["-a", "-0", "--files-from=names", "-T", "s", "odd"]));
    assert!(place.path().join("odd/# no comment").exists());
    fs::write(place.path().join("names"), "d1/e1/f1\nd1/none\n").unwrap();
    let missing = cp(&place, &["-a", "--files-from=names", "-T", "s", "missing"]);
    assert!(missing.code == Some(1) && missing.stderr.contains("s/d1/none"), "{missing:?}");
    assert_eq!(walk(&place.path().join("missing")).len(), 1);
    fs::write(place.path().join("names"), "d1/../../secret\n").unwrap();
    let out = cp(&place, &["-a", "--files-from=names", "-T", "s", "out"]);
    assert!(out.code == Some(1) && out.stderr.contains("line 1"), "{out:?}");
}

/// The regular files below a folder.
fn walk(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(walk(&entry.path()));
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
    found
}

/// Changes a tree at random, alike for the same seed: files and folders go, come, and change their type.
fn disturb(folder: &Path, seed: u64) {
    let mut chance = fastrand::Rng::with_seed(seed);
    let mut files = walk(folder);
    files.sort();
    for path in files {
        match chance.u32(0..8) {
            0 => fs::remove_file(&path).unwrap(),
            1 => {
                fs::remove_file(&path).unwrap();
                fs::create_dir(&path).unwrap();
                fs::write(path.join("in a folder now"), "x").unwrap();
            }
            2 => fs::write(path.with_extension("new"), "new").unwrap(),
            3 => {
                fs::remove_file(&path).unwrap();
                std::os::unix::fs::symlink("../..", &path).unwrap();
            }
            _ => {}
        }
    }
    fs::create_dir_all(folder.join("more/and/more")).unwrap();
    fs::write(folder.join("more/and/file"), "x").unwrap();
}

#[test]
fn what_the_source_has_not_is_deleted_as_by_rsync() {
    for seed in 0..4 {
        let place = place();
        let at = |name: &str| place.path().join(name);
        fill(&at("s"), 80);
        age(&at("s"));
        done(&cp(&place, &["-a", "-T", "s", "d"]));
        disturb(&at("d"), seed);
        done(&cp(&place, &["-a", "-T", "d", "theirs"]));
        done(&cp(&place, &["-a", "-T", "d", "before"]));
        let planned = cp(&place, &["-a", "--delete", "--dry-run", "--json", "-T", "s", "d"]);
        done(&planned);
        alike(&place, "before", "d");
        let deleted = cp(&place, &["-a", "--delete", "--json", "-T", "s", "d"]);
        done(&deleted);
        assert_eq!(counts(&planned)["deleted"], counts(&deleted)["deleted"]);
        alike(&place, "s", "d");
        if rsync(&place, &["-aHAX", "--delete", "--dry-run", "s/", "theirs/"]).is_some() {
            rsync(&place, &["-aHAX", "--delete", "s/", "theirs/"]);
            alike(&place, "theirs", "d");
        }
        let again = cp(&place, &["-a", "--delete", "--json", "-T", "s", "d"]);
        assert_eq!(counts(&again)["deleted"], 0, "{again:?}");
    }
}

#[test]
fn nothing_is_deleted_beyond_a_bound_by_a_pattern_through_a_link_or_of_the_copys_own_files() {
    let place = place();
    let at = |name: &str| place.path().join(name);
    fill(&at("s"), 20);
    done(&cp(&place, &["-a", "-T", "s", "d"]));
    for name in ["d/x1", "d/x2", "d/keep.me", "d/d1/x3"] {
        fs::write(at(name), "x").unwrap();
    }
    fs::create_dir_all(at("outside/d2")).unwrap();
    fs::write(at("outside/d2/x"), "x").unwrap();
    std::os::unix::fs::symlink("../outside", at("d/out")).unwrap();
    // A folder of the source is a link at the destination.
    fs::remove_dir_all(at("d/d2")).unwrap();
    std::os::unix::fs::symlink("../outside/d2", at("d/d2")).unwrap();
    let words = ["-a", "--delete", "--exclude=keep.*", "--manifest=d/list.b3", "-T", "s", "d"];
    let bounded = cp(&place, &[&["--max-delete=4"], &words[..]].concat());
    assert!(bounded.code == Some(1) && bounded.stderr.contains("--max-delete"), "{bounded:?}");
    assert!(at("d/x1").exists() && at("d/d1/x3").exists() && at("d/out").is_symlink());
    done(&cp(&place, &[&["--max-delete=5"], &words[..]].concat()));
    assert!(at("d/keep.me").exists() && at("d/list.b3").exists() && at("outside/d2/x").exists());
    for name in ["d/x1", "d/x2", "d/d1/x3"] {
        assert!(!at(name).exists(), "{name}");
    }
    assert!(!at("d/out").is_symlink() && !at("d/d2").is_symlink());
    done(&cp(&place, &["-a", "--delete", "--exclude=list.b3", "--exclude=keep.*", "-T", "s", "d"]));
    assert!(at("d/list.b3").exists());
    // A source inside the destination is not deleted by its own copy.
    done(&cp(&place, &["-a", "--delete", "d/d1/.", "d"]));
    assert!(at("d/d1/e1/f1").exists() && at("d/e1/f1").exists() && !at("d/d2").exists());
}

#[test]
fn a_list_that_cannot_have_a_name_says_which_one_can() {
    use std::os::unix::ffi::OsStrExt;
    let place = place();
    fs::write(place.path().join("s").join(std::ffi::OsStr::from_bytes(b"caf\xe9")), "x").unwrap();
    for (list, code, hint) in [("list.b3", 4, true), ("list.ndjson", 0, false)] {
        done(&cp(&place, &["-a", &format!("--manifest={list}"), "-T", "s", "d"]));
        let checked = run(ringroad(["manifest", "check", list, "d"]).current_dir(place.path()));
        assert_eq!(checked.code, Some(code), "{checked:?}");
        assert_eq!(checked.stderr.contains("cp --manifest FILE.ndjson makes one"), hint, "{checked:?}");
    }
}

/// A folder that is mounted over another, until it is dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn over(what: &Path, over: &Path) -> Option<Mounted> {
        match rustix::mount::mount_bind(what, over) {
            Ok(()) => Some(Mounted(over.to_path_buf())),
            Err(why) => {
                skip("what is mounted stays", &format!("mounting over a folder: {why}"));
                None
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn a_folder_that_the_source_has_not_keeps_what_a_pattern_matches_and_the_rest_of_it_is_deleted() {
    for pattern in ["--exclude=keep.*", "--exclude=extra/deep/keep.me", "--exclude=/*/deep/keep*"] {
        let place = place();
        let at = |name: &str| place.path().join(name);
        fs::write(at("s/a"), "a").unwrap();
        fs::create_dir_all(at("d/extra/deep")).unwrap();
        fs::create_dir_all(at("d/extra/other/deep")).unwrap();
        for name in ["d/extra/deep/keep.me", "d/extra/deep/x", "d/extra/other/deep/x", "d/extra/y"] {
            fs::write(at(name), "x").unwrap();
        }
        let words = ["-a", "--delete", "--json", pattern, "-T", "s", "d"];
        let planned = cp(&place, &[&["--dry-run"], &words[..]].concat());
        // Three files and two folders; the folders that lead to what stays are none of them.
        assert_eq!((planned.code, &counts(&planned)["deleted"]), (Some(0), &5.into()), "{planned:?}");
        let bounded = cp(&place, &[&["--max-delete=4"], &words[..]].concat());
        assert!(bounded.code == Some(1) && at("d/extra/y").exists(), "{bounded:?}");
        let deleted = cp(&place, &[&["--max-delete=5"], &words[..]].concat());
        done(&deleted);
        assert_eq!(counts(&deleted)["deleted"], 5, "{deleted:?}");
        assert!(at("d/extra/deep/keep.me").exists(), "{pattern}");
        assert!(!at("d/extra/y").exists() && !at("d/extra/deep/x").exists() && !at("d/extra/other").exists());
    }
}

#[test]
fn what_is_mounted_at_the_destination_stays_and_the_rest_is_deleted() {
    let place = place();
    let at = |name: &str| place.path().join(name);
    fs::write(at("s/a"), "a").unwrap();
    fs::create_dir_all(at("disk/data")).unwrap();
    fs::write(at("disk/data/x"), "x").unwrap();
    fs::create_dir_all(at("d/extra/mounted")).unwrap();
    fs::write(at("d/extra/y"), "y").unwrap();
    let Some(_mounted) = Mounted::over(&at("disk"), &at("d/extra/mounted")) else { return };
    for more in [&["--dry-run"][..], &[]] {
        let outcome = cp(&place, &[more, &["-a", "--delete", "-T", "s", "d"]].concat());
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        assert!(outcome.stderr.contains("d/extra/mounted: a file system is mounted there"), "{outcome:?}");
        assert!(at("disk/data/x").exists());
        assert_eq!(at("d/extra/y").exists(), !more.is_empty());
    }
    done(&cp(&place, &["-a", "--delete", "--exclude=mounted/", "-T", "s", "d"]));
    assert!(at("disk/data/x").exists());
}

#[test]
fn nothing_is_deleted_through_a_destination_that_is_a_link_and_refused() {
    let place = place();
    let at = |name: &str| place.path().join(name);
    fs::write(at("s/a"), "a").unwrap();
    fs::create_dir(at("other")).unwrap();
    fs::write(at("other/x"), "x").unwrap();
    std::os::unix::fs::symlink("other", at("d")).unwrap();
    let refused = cp(&place, &["-a", "--delete", "-T", "s", "d"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(at("other/x").exists(), "{refused:?}");
    // Where the link is used as the folder, that one is made like the source.
    done(&cp(&place, &["-a", "--delete", "s/.", "d"]));
    assert!(at("other/a").exists() && !at("other/x").exists());
}

#[test]
fn nothing_is_deleted_if_some_of_the_source_cannot_be_listed() {
    let Some(fuse) = Fuse::mount(Faults::default()) else { return };
    fs::create_dir(fuse.mounted.join("d3")).unwrap();
    fs::write(fuse.mounted.join("d3/a"), "a").unwrap();
    fs::write(fuse.mounted.join("b"), "b").unwrap();
    for target_has_it in [true, false] {
        fuse.set(Faults::default());
        let place = place();
        let target = place.path().join("d");
        let source = fuse.mounted.to_str().unwrap();
        done(&cp(&place, &["-a", "-T", source, "d"]));
        fs::write(target.join("extra"), "x").unwrap();
        if !target_has_it {
            fs::remove_dir_all(target.join("d3")).unwrap();
        }
        fuse.set(Faults { list_fails: Some(("d3", 5)), ..Faults::default() });
        let failed = cp(&place, &["-a", "--delete", "-T", source, "d"]);
        assert_eq!(failed.code, Some(1), "{failed:?}");
        assert!(failed.stderr.contains("nothing was removed"), "{failed:?}");
        assert!(target.join("extra").exists());
        // Neither is a list made, which would lack what could not be listed.
        let list = cp(&place, &["-a", "--make-list=list", source]);
        assert_eq!(list.code, Some(1), "{list:?}");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2, "no list is left");
    }
}

#[test]
fn only_what_is_not_as_an_earlier_manifest_has_it_is_copied_and_the_destination_is_not_read() {
    for kind in ["ndjson", "b3"] {
        let place = place();
        let at = |name: &str| place.path().join(name);
        fill(&at("s"), 60);
        // In a list of lines such a name would be in another form.
        let manifest = |name: &str| format!("--manifest={name}.{kind}");
        done(&cp(&place, &["-a", &manifest("old"), "-T", "s", "d"]));
        let times = |path: &str| fs::metadata(at(path)).unwrap().modified().unwrap();
        // Other bytes at the destination, of the same size: found if they were read.
        let size = fs::metadata(at("d/d1/e1/f1")).unwrap().len() as usize;
        let time = times("d/d1/e1/f1");
        fs::write(at("d/d1/e1/f1"), vec![b'?'; size]).unwrap();
        fs::File::options().write(true).open(at("d/d1/e1/f1")).unwrap().set_modified(time).unwrap();
        fs::write(at("s/d2/e2/f2"), "changed").unwrap();
        fs::write(at("s/d2/e2/new"), "new").unwrap();
        fs::remove_file(at("d/d3/e0/f3")).unwrap();
        fs::File::options()
            .write(true)
            .open(at("s/d4/e1/f4"))
            .unwrap()
            .set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 30))
            .unwrap();
        let update = format!("--update-from-manifest=old.{kind}");
        let words = ["-a", "--json", &update, "-T", "s", "d"];
        let planned = counts(&cp(&place, &[&["--dry-run"], &words[..]].concat()));
        let copied = cp(&place, &[&[manifest("new").as_str()], &words[..]].concat());
        done(&copied);
        assert_eq!((&counts(&copied)["files"], &planned["files"]), (&3.into(), &3.into()), "{kind}");
        assert_eq!(fs::read(at("d/d1/e1/f1")).unwrap(), vec![b'?'; size], "not read");
        assert_eq!(times("d/d4/e1/f4"), times("s/d4/e1/f4"), "the bytes are the same, and the time is given");
        fs::copy(at("s/d1/e1/f1"), at("d/d1/e1/f1")).unwrap();
        assert_eq!(differences(&at("s"), &at("d"), TIMELESS), [""; 0]);
        // The new list is that of a whole copy.
        done(&cp(&place, &["-a", &manifest("whole"), "-T", "s", "other"]));
        let list = |name: &str| fs::read_to_string(at(&format!("{name}.{kind}"))).unwrap();
        assert_eq!(list("new"), list("whole"));
        let checked =
            run(ringroad(["manifest", "check", &format!("new.{kind}"), "d"]).current_dir(place.path()));
        assert_eq!(checked.code, Some(0), "{checked:?}");
        // A file that is not a list is refused before anything is done.
        fs::write(at(&format!("old.{kind}")), list("new").trim_end()).unwrap();
        let refused = cp(&place, &words);
        assert!(refused.code == Some(1) && refused.stderr.contains("cut off"), "{refused:?}");
    }
}

/// A copy is never faster than its limit; how much slower it is says nothing.
#[test]
fn a_limit_on_bytes_per_second_holds_for_all_workers_together() {
    for engine in engines().iter().filter(|engine| **engine != "ring-splice") {
        let place = place();
        for at in 0..8 {
            fs::write(place.path().join(format!("s/f{at}")), noise(128 << 10, at)).unwrap();
        }
        let engine = format!("--engine={engine}");
        let copied = cp(&place, &["-a", "--json", &engine, "--rate=2M", "--jobs=4", "-T", "s", "d"]);
        done(&copied);
        // A mebibyte takes half a second, of which the burst may save a tenth of a second.
        let seconds = counts(&copied)["elapsed_s"].as_f64().unwrap();
        assert!(seconds >= 0.39, "{engine}: {seconds}");
        alike(&place, "s", "d");
    }
    let place = place();
    for rate in ["0", "x", "5 apples", "-1"] {
        let refused = cp(&place, &["-a", &format!("--rate={rate}"), "s", "d"]);
        assert!(refused.code == Some(2) && refused.stderr.contains("--rate"), "{refused:?}");
    }
}

#[test]
fn a_journal_passes_over_what_was_complete_and_is_of_one_list_part_and_destination() {
    let place = place();
    let at = |name: &str| place.path().join(name);
    fill(&at("s"), 100);
    done(&cp(&place, &["-a", "--quiet", "--make-list=list", "s"]));
    let words = ["-a", "--json", "--list=list", "--journal=journal", "s", "d"];
    let first = cp(&place, &words);
    done(&first);
    assert_eq!(counts(&first)["files"], 103);
    alike(&place, "s", "d");
    let lines = || fs::read_to_string(at("journal")).unwrap();
    assert_eq!(lines().lines().skip(1).collect::<Vec<_>>(), ["0"]);
    // What is complete is not asked about: this is seen without the journal only.
    fs::remove_file(at("d/d1/e1/f1")).unwrap();
    let second = cp(&place, &words);
    done(&second);
    assert!(counts(&second)["files"] == 0 && !at("d/d1/e1/f1").exists(), "{second:?}");
    let third = cp(&place, &["-a", "--json", "--list=list", "--resume", "-T", "s", "d"]);
    assert_eq!(counts(&third)["files"], 1, "{third:?}");
    alike(&place, "s", "d");
    // Of another destination.
    let other = cp(&place, &["-a", "--list=list", "--journal=journal", "s", "other"]);
    assert!(other.code == Some(1) && other.stderr.contains("another list"), "{other:?}");
    // A window with an entry that failed is not complete.
    fs::remove_file(at("s/d2/e2/f2")).unwrap();
    let failed = cp(&place, &["-a", "--list=list", "--journal=later", "s", "failed"]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert_eq!(fs::read_to_string(at("later")).unwrap().lines().count(), 1);
}

#[test]
fn options_that_contradict_each_other_are_refused_before_anything_is_done() {
    let place = place();
    fill(&place.path().join("s"), 5);
    done(&cp(&place, &["-a", "--quiet", "--make-list=list", "s"]));
    for (words, why) in [
        (&["--list=list", "--files-from=list"][..], "one of them"),
        (&["--list=list", "-L"], "-L"),
        (&["--journal=j"], "--list"),
        (&["--list=list", "--journal=j", "--verify"], "verify"),
        (&["--delete", "--files-from=list"], "delete"),
        (&["--delete", "--part=1/2"], "delete"),
        (&["--delete", "-n"], "delete"),
        (&["--max-delete=3"], "max-delete"),
        (&["-0"], "--files-from"),
        (&["--update-from-manifest=list", "--verify"], "update-from-manifest"),
    ] {
        let refused = cp(&place, &[&["-a"], words, &["s", "d"]].concat());
        assert!(refused.code == Some(2) && refused.stderr.contains(why), "{words:?}: {refused:?}");
        assert!(!place.path().join("d").exists(), "{words:?}");
    }
}
