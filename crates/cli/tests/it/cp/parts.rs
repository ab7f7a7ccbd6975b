//! `cp --part` and `--finish`: parts that are killed, repeated and made in any order are one copy.

use super::compare::{ALL, differences, rsync_differences};
use super::engines;
use super::tree::{Abilities, build, everything, noise};
use crate::support::{Kill, ringroad, run, skip};
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

struct Place {
    folder: tempfile::TempDir,
    engine: &'static str,
    /// What lists are: `b3`, or `ndjson`, which has names that are not UTF-8 as they are.
    kind: &'static str,
}

impl Place {
    fn new(engine: &'static str, kind: &'static str) -> Place {
        Place { folder: tempfile::tempdir().unwrap(), engine, kind }
    }

    fn list(&self, name: impl std::fmt::Display) -> String {
        format!("{name}.{}", self.kind)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `cp -a` of `s` to `d` with these words, and a list of its own.
    fn copy(&self, words: &[&str], list: &str) -> Command {
        let mut command = ringroad(["cp", "-a", "--engine", self.engine, "--manifest", list]);
        command.args(words).args(["s", "d"]).current_dir(self.folder.path()).env_remove("RINGROAD_PARTS");
        command
    }

    /// Nothing is lost and nothing is twice: the tree is that of the source for every judge, and the lists of
    /// the parts are the list of one run.
    fn is_whole(&self, lists: &[String]) {
        let (finished, all, one) = (self.list("finish"), self.list("all"), self.list("one"));
        let finish = run(&mut self.copy(&["--finish"], &finished));
        assert_eq!((finish.code, finish.stderr.as_str()), (Some(0), ""), "{}", self.engine);
        let (source, target) = (self.at("s"), self.at("d"));
        assert_eq!(differences(&source, &target, ALL), [""; 0], "{}", self.engine);
        match rsync_differences(&source, &target) {
            Some(said) => assert_eq!(said, "", "rsync, {}", self.engine),
            None => skip("rsync as a second judge", "not installed"),
        }
        let lists = lists.iter().map(String::as_str).chain([finished.as_str()]);
        let mut merge = ringroad(["manifest", "merge", &all].into_iter().chain(lists));
        let merged = run(merge.current_dir(self.folder.path()));
        assert_eq!(merged.code, Some(0), "{merged:?}");
        let whole =
            run(ringroad(["cp", "-a", "--manifest", &one, "s", "other"]).current_dir(self.folder.path()));
        assert_eq!(whole.code, Some(0), "{whole:?}");
        assert_eq!(fs::read_to_string(self.at(&all)).unwrap(), fs::read_to_string(self.at(&one)).unwrap());
        let check = run(ringroad(["manifest", "check", &all, "d"]).current_dir(self.folder.path()));
        assert_eq!((check.code, check.stderr.as_str()), (Some(0), ""), "{check:?}");
    }
}

#[test]
fn parts_in_any_order_and_a_last_pass_are_a_copy_of_everything_on_every_engine() {
    for engine in engines() {
        let place = Place::new(engine, "ndjson");
        fs::create_dir(place.at("s")).unwrap();
        build(&place.at("s"), &everything(Abilities::of(&place.at("s"))));
        let mut lists = Vec::new();
        for index in [4, 1, 5, 2, 3] {
            let (part, list) = (format!("--part={index}/5"), place.list(index));
            // The second time there is nothing left to do, and its list is the same.
            let said = [(); 2].map(|()| {
                let outcome = run(&mut place.copy(&[&part], &list));
                assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{engine} {part}");
                fs::read_to_string(place.at(&list)).unwrap()
            });
            assert_eq!(said[0], said[1]);
            lists.push(list);
        }
        place.is_whole(&lists);
        // The last pass can be repeated, too.
        assert_eq!(run(&mut place.copy(&["--finish"], &place.list("finish"))).code, Some(0));
        assert_eq!(differences(&place.at("s"), &place.at("d"), ALL), [""; 0]);
    }
}

fn some_files(folder: &Path, count: usize) {
    for at in 0..count {
        let inside = folder.join(format!("d{}/e{}", at % 7, at % 3));
        fs::create_dir_all(&inside).unwrap();
        fs::write(inside.join(format!("f{at}")), noise(at * 37 % 5000, at as u64)).unwrap();
        if at % 10 == 0 {
            fs::hard_link(inside.join(format!("f{at}")), folder.join(format!("d1/name-of-{at}")))
                .unwrap_or_else(|_| {
                    fs::create_dir_all(folder.join("d1")).unwrap();
                    fs::hard_link(inside.join(format!("f{at}")), folder.join(format!("d1/name-of-{at}")))
                        .unwrap();
                });
        }
    }
    fs::create_dir(folder.join("empty")).unwrap();
}

/// Ten kills; `RINGROAD_KILLS` sets another number. Each comes after a random number of entries was reported,
/// by a fixed seed.
#[test]
fn parts_that_are_killed_and_repeated_lose_nothing_and_copy_nothing_twice() {
    let kills = std::env::var("RINGROAD_KILLS").map_or(10, |count| count.parse().unwrap());
    let place = Place::new("auto", "b3");
    fs::create_dir(place.at("s")).unwrap();
    some_files(&place.at("s"), 400);
    let mut chance = fastrand::Rng::with_seed(30);
    let parts = 4;
    for _ in 0..kills {
        let index = chance.u32(1..=parts);
        let mut copy = place.copy(&[&format!("--part={index}/{parts}"), "-v"], &format!("{index}.b3"));
        let mut child = Kill(copy.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
        let lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
        let _ = lines.take(chance.usize(0..60)).map_while(Result::ok).count();
        child.signal(Signal::KILL);
        child.wait();
    }
    let early = run(&mut place.copy(&["--finish"], "finish.b3"));
    let lists: Vec<String> = (1..=parts)
        .map(|index| {
            let list = format!("{index}.b3");
            let outcome = run(&mut place.copy(&[&format!("--part={index}/{parts}")], &list));
            assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "part {index}");
            list
        })
        .collect();
    place.is_whole(&lists);
    // It said what was left, if anything was: no part had come to its end.
    assert!(early.code == Some(0) || early.stderr.contains("no part has copied it"), "{early:?}");
}

#[test]
fn a_last_pass_names_what_no_part_has_copied() {
    let place = Place::new("auto", "b3");
    fs::create_dir(place.at("s")).unwrap();
    some_files(&place.at("s"), 30);
    assert_eq!(run(&mut place.copy(&["--part=1/2"], "1.b3")).code, Some(0));
    let early = run(&mut place.copy(&["--finish"], "finish.b3"));
    assert_eq!(early.code, Some(1), "{early:?}");
    assert!(early.stderr.contains("no part has copied it"), "{early:?}");
    // The same by what an engine for jobs sets.
    let mut second = place.copy(&[], "2.b3");
    let second = run(second.env("JOB_COMPLETION_INDEX", "1").env("RINGROAD_PARTS", "2"));
    assert_eq!((second.code, second.stderr.as_str()), (Some(0), ""));
    place.is_whole(&["1.b3".into(), "2.b3".into()]);
    // What changes afterwards is found, too.
    fs::write(place.at("s/d1/e1/f1"), "another length").unwrap();
    let late = run(&mut place.copy(&["--finish"], "finish.b3"));
    assert_eq!(late.code, Some(1), "{late:?}");
    assert!(late.stderr.contains("d1/e1/f1"), "{late:?}");
}

#[test]
fn what_has_no_meaning_for_parts_is_refused() {
    let place = Place::new("auto", "b3");
    fs::create_dir(place.at("s")).unwrap();
    for (words, why) in [
        (&["--part=0/2"][..], "counted from 1"),
        (&["--part=1/2", "--finish"], "the last pass is over all of it"),
        (&["--part=1/2", "--backup"], "cannot be combined"),
        (&["--part=1/2", "-L"], "cannot keep hard links together"),
        (&["--part=auto"], "neither"),
    ] {
        let outcome = run(&mut place.copy(words, "list"));
        assert_eq!(outcome.code, Some(2), "{words:?} {outcome:?}");
        assert!(outcome.stderr.contains(why), "{words:?} {outcome:?}");
    }
}
